"""`dpsql buy`: a catalog whose one release answers a few statements, with the least error for exactly these.

The statements are read against the axes that the catalog's views have. What each of their numbers holds is a set of
leaves on every axis, in disjoint boxes. Ordered axes are cut at the ends that were asked, and one view of each table
lists the boxes as its `questions`; its mechanism measures just what they need. What comes out is an ordinary catalog:
it is planned, published, charged and audited as any other.

**Privacy**: a function of the catalog, of statements and of public tables. The statements become public with the
release: somebody who chose them by what private rows hold has told it.
**Source**: docs/method/views.md, "A few questions".
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from os import PathLike
from os.path import relpath
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dpsql.axis.model import KeyListRule, OrderedRule
from dpsql.catalog import Catalog, load_catalog, made_view
from dpsql.catalog.base import COUNT, as_fraction, from_units
from dpsql.catalog.columns import Cuts
from dpsql.catalog.model import MOST, MOST_AXES, AxisSpec, View
from dpsql.catalog.private_columns import private_columns, with_keys
from dpsql.central.axes import open_public
from dpsql.central.selection import planning_maker
from dpsql.curator.dry_release import Priced, dry_answerer, priced_plan
from dpsql.errors import CatalogError, InterfaceError, NotSupportedError
from dpsql.executor.engine import ReleaseEngine
from dpsql.mechanisms.designs.workload_matrix import best_rows, classes_of, held_cells
from dpsql.planner.axis_query import key_list
from dpsql.planner.block import Block
from dpsql.planner.plan import ReleaseView as AskedView
from dpsql.planner.plan import ViewPlan, make_plan, no_view, place
from dpsql.planner.schema import Term
from dpsql.release import open_release
from dpsql.sql.parse import parse
from dpsql.sql.rewrite import split_statement
from dpsql.tree import FloatArray

MOST_QUESTIONS = 400
"""Numbers that statements may ask together; beyond, a release of views is the better buy."""

Box = tuple[FloatArray, ...]
"""A 0-1 mask of leaves for each axis of the table."""


@dataclass(frozen=True)
class Needed:
    """Needs of statements from one table.

    Args:
        of: the table.
        axes: ids of its axes in the dry release, the order of the masks.
        measures: what is counted and summed.
        questions: each as disjoint boxes.
    """

    of: str
    axes: tuple[int, ...]
    measures: tuple[str, ...]
    questions: tuple[tuple[Box, ...], ...]


class _Narrow(NamedTuple):
    """An axis as it will be published: its place among the masks, its entry, and the new leaf of every old one."""

    place: int
    spec: AxisSpec
    leaf: np.typing.NDArray[np.int64]


def read_purchase(
    catalog: str | PathLike[str],
    statements: str | Sequence[str],
    epsilon: Fraction | str,
    ledger: str | PathLike[str] | None = None,
    keys_of: str | PathLike[str] | None = None,
) -> Catalog:
    """`purchase` as somebody types it: a file, one statement or several, an amount as text, another ledger.

    Raises:
        InterfaceError: the amount is no number; else as of `purchase`.
    """
    workload = (statements,) if isinstance(statements, str) else tuple(statements)
    try:
        amount = as_fraction(epsilon)
    except ValueError as error:
        raise InterfaceError(f"epsilon: {error}") from error
    star = load_catalog(Path(catalog), ledger)
    return purchase(with_keys_of(star, None if keys_of is None else Path(keys_of)), workload, amount)


def with_keys_of(catalog: Catalog, release: Path | None) -> Catalog:
    """The catalog with the lists that a release has found, at no charge: they are public facts of that release.

    Args:
        catalog: the curator's.
        release: a release of its lineage; None for those that `known` names.

    Raises:
        ReleaseError: it cannot be opened.
    """
    columns: set[str] = set()
    if release is not None:
        with closing(open_release(release, insecure=True)) as opened:
            columns = {keys.column for keys in opened.meta.keys}
    tables = {}
    for name, table in catalog.tables.items():
        keys = {column: spec.private_keys for column, spec in table.columns.items() if spec.private_keys}
        known = {
            column: _written(catalog, release) if release and f"{name}.{column}" in columns else spec.known
            for column, spec in keys.items()
        }
        tables[name] = with_keys(
            table,
            {
                column: spec.model_copy(update={"share": Fraction(0), "known": known[column]})
                for column, spec in keys.items()
                if known[column] is not None
            },
        )
    return catalog.model_copy(update={"tables": tables})


def _written(catalog: Catalog, release: Path) -> str:
    """A release as `known` names it: from the catalog's folder."""
    folder = Path.cwd() if catalog.file is None else catalog.file.absolute().parent
    return relpath(release.absolute(), folder)


def purchase(catalog: Catalog, statements: Sequence[str], epsilon: Fraction) -> Catalog:
    """The catalog whose release answers some statements.

    Args:
        catalog: the catalog that they are asked of.
        statements: SQL.
        epsilon: what the release spends, at the catalog's delta. Private keys are found by nobody anew: they are those
            that a release has found (`with_keys_of`).

    Returns:
        The same star and promise with other views; `population` and lineage stay.

    Raises:
        InterfaceError: no statement, or no epsilon.
        CatalogError: the catalog is a stream's or a collection's.
        dpsql.errors.Error: a statement cannot be read, or asks for what no axis of the catalog has.
    """
    if not statements:
        raise InterfaceError("nothing to buy", hint="name at least one statement")
    if not 0 < epsilon <= MOST:
        raise InterfaceError(f"epsilon {epsilon} cannot be spent", hint="write a number above 0, such as 0.1")
    if catalog.stream is not None or (catalog.collection is not None and catalog.source is None):
        raise CatalogError(
            "statements are bought from a catalog that is published at once", hint="use `publish`"
        )
    scaffold = _scaffold(catalog)
    public = open_public(catalog)
    try:
        priced = priced_plan(scaffold, planning_maker(scaffold, public))
    finally:
        public.close()
    # Needs of the statements, table by table
    needs: dict[str, list[Needed]] = {}
    with dry_answerer(priced) as answerer:
        for text in statements:
            for block in split_statement(parse(text, ""), answerer.schema, text).blocks:
                terms = list(dict.fromkeys(term for value in block.values for term in value.terms))
                if terms:
                    needs.setdefault(block.root.lower(), []).append(_asked(block, terms, answerer))
    needed = [_together(table_needs) for table_needs in needs.values()]
    views = _views(priced, needed, 2 if catalog.privacy.delta else 1)
    privacy = catalog.privacy.model_copy(update={"epsilon": epsilon, "releases": None})
    bought = catalog.model_copy(update={"views": views, "privacy": privacy})
    _check_listed(bought, {(column.table, column.column) for column in private_columns(bought)})
    return bought


def _check_listed(catalog: Catalog, asked: Container[tuple[str, str]]) -> None:
    """Refuse questions about private keys that would be found anew.

    Args:
        catalog: whose columns they are.
        asked: (table, column) of axes that are asked.

    Raises:
        InterfaceError: there is one.
    """
    for column in private_columns(catalog):
        if column.rounds and (column.table, column.column) in asked:
            raise InterfaceError(
                f"{column.name}: a purchase does not find keys; it takes those of an earlier release",
                hint="name a release of this lineage: --keys-of shop.dpsql",
            )


def _scaffold(catalog: Catalog) -> Catalog:
    """Every axis of every table in a view of its own, measured in the cheapest way: it is never published."""
    views = {}
    for of in catalog.star.tables:
        table_views = catalog.star.views_of(of)
        measures = list(dict.fromkeys(m for view in table_views for m in view.spec.measures))
        axes = {
            (axis.written.axis, axis.written.by): axis.written for view in table_views for axis in view.axes
        }
        for number, spec in enumerate(axes.values()):
            plain = spec.model_copy(update={"workload": (), "cuts": None})  # as fine as the column is
            described = {"of": of, "axes": [plain], "measures": measures, "mechanism": "identity"}
            views[f"{of} {number}"] = made_view(f"{of} {number}", described)
    if not views:
        raise CatalogError(
            "views: none are declared", hint="declare the axes that statements may be about in a view"
        )
    return catalog.model_copy(update={"views": views})


def _asked(block: Block, terms: Sequence[Term], answerer: ReleaseEngine) -> Needed:
    """Query of one block over all axes of its table; of two axes over one column the finer one counts."""
    release = answerer.release
    table_axes = [i for i, axis in enumerate(release.axes) if axis.of.lower() == block.root.lower()]
    axes = tuple(sorted(table_axes, key=lambda i: -release.axes[i].leaves))
    for term in terms:
        if not term.measure.sums_rows:
            hint = f"count rows, or publish a view with `{term.measure}`"
            raise NotSupportedError(f"{term.measure} cannot be bought", hint=hint)
    if not axes:
        raise no_view(block, [f"the catalog has no view of {block.root}"], answerer.schema)
    view = AskedView("", release.axes[axes[0]].of, axes, {}, 0)
    placed = place(block, terms, view, release, answerer.schema)
    if isinstance(placed, str):
        raise no_view(block, [f"the catalog's views have no axis for {placed}"], answerer.schema)
    plan = make_plan(block, terms, view, placed, release).by_leaf
    entries = (
        release.axes[query.axis] for query in plan.questions if query.filters or query.classes or query.groups
    )
    _check_listed(release.catalog, {(axis.table, axis.columns[0].column) for axis in entries})
    cut = [release.axes[i].name for i, cells in zip(axes, plan.cells, strict=True) if cells.cut]
    lists = [key_list(release, i) for i, cells in zip(axes, plan.cells, strict=True) if cells.uncertain]
    if any(lists):
        unlisted = next(key.column for key in lists if key is not None)
        raise NotSupportedError(
            f"the statement asks for keys of {unlisted} that are not listed",
            hint="ask for keys of the release that --keys-of names: SELECT DISTINCT lists them",
        )
    if cut:
        raise NotSupportedError(
            f"the statement cuts a leaf of {cut[0]}",
            hint="ask at its `cuts`, or make them finer in the catalog",
        )
    questions = []
    for term in terms:
        boxes = [plan.box_masks(box) for box in plan.boxes_of(term.condition)]
        for at in product(*(range(n) for n in plan.shape)):
            group_boxes = [tuple(mask[i] for mask, i in zip(box, at, strict=True)) for box in boxes]
            parts = [_parts(box, plan) for box in group_boxes]
            questions.append(tuple(whole for whole, _ in parts if all(mask.any() for mask in whole)))
            questions += [(box,) for _, outside in parts for box in outside]
    measures = tuple(dict.fromkeys([COUNT, *(term.measure for term in terms)]))
    return Needed(view.of, axes, measures, tuple(question for question in questions if question))


def _parts(box: Sequence[FloatArray], plan: ViewPlan) -> tuple[Box, list[Box]]:
    """A box of whole leaves, and apart from it what may be meant of values outside of the domain, for intervals."""
    choices = []
    for mask, cells in zip(box, plan.cells, strict=True):
        leaf, whole = cells.open_leaf, np.rint(mask)
        alone = np.zeros_like(mask)
        if leaf is not None and mask[leaf] != whole[leaf]:
            alone[leaf] = 1.0
        choices.append([whole, *([alone] if alone.any() else [])])
    first, *others = product(*choices)
    return first, [each for each in others if all(mask.any() for mask in each)]


def _together(needs: Sequence[Needed]) -> Needed:
    """Joint query of several blocks of one table."""
    questions = tuple(question for need in needs for question in need.questions)
    if len(questions) > MOST_QUESTIONS:
        raise InterfaceError(
            f"the statements ask for {len(questions)} numbers of {needs[0].of}, the limit is {MOST_QUESTIONS}",
            hint="publish a view for them, or ask for fewer groups",
        )
    if not questions:
        raise InterfaceError(
            "the statements ask for values that cannot occur", hint="ask for values of the catalog"
        )
    measures = tuple(dict.fromkeys(measure for need in needs for measure in need.measures))
    return Needed(needs[0].of, needs[0].axes, measures, questions)


def _views(priced: Priced, needed: Sequence[Needed], norm: int) -> dict[str, View]:
    """One view a table; tables share the budget so that the sum of all variances is least."""
    views = [_view(priced, need) for need in needed]
    errors = [_error(view, leaves, norm) ** (norm / (norm + 2)) for view, leaves in views]
    shares = [Fraction(round(1000 * error / sum(errors)), 1000) for error in errors]
    shares[-1] = 1 - sum(shares[:-1], Fraction(0))
    return {
        f"bought_{view.of}": view.model_copy(update={"share": share})
        for (view, _), share in zip(views, shares, strict=True)
    }


def _error(view: View, leaves: Sequence[int], norm: int) -> float:
    _, questions = classes_of(held_cells(view.questions, leaves))
    return best_rows(questions, norm).error * len(view.measures)


def _view(priced: Priced, needed: Needed) -> tuple[View, list[int]]:
    """The view of one table's questions, and the leaves of its axes."""
    axes = _narrowed(priced, needed)
    questions = tuple(
        tuple(tuple(tuple(_intervals(box[axis.place], axis.leaf)) for axis in axes) for box in question)
        for question in needed.questions
    )
    if len(axes) > MOST_AXES:
        raise InterfaceError(
            f"the statements are about {len(axes)} axes of {needed.of} together, the limit is {MOST_AXES}",
            hint="buy them in two purchases",
        )
    view = made_view(
        f"bought_{needed.of}",
        {
            "of": needed.of, "axes": [axis.spec for axis in axes], "measures": list(needed.measures),
            "mechanism": "asked", "questions": questions, "nonnegative": False, "on_partial_bin": "refuse",
        }
    )  # fmt: skip
    return view, [int(axis.leaf.max()) + 1 for axis in axes]


def _narrowed(priced: Priced, needed: Needed) -> list[_Narrow]:
    """The axes that some question looks at, ordered ones cut at the ends that were asked."""
    entries, boxes = priced.plan.axes, [box for question in needed.questions for box in question]
    written = {
        axis.meant: axis.written for view in priced.plan.catalog.star.views.values() for axis in view.axes
    }
    narrowed = []
    for place_, number in enumerate(needed.axes):
        masks = np.unique(np.array([box[place_] for box in boxes]), axis=0)
        if not masks.all():
            planned = entries[number]
            narrowed.append(_narrow(place_, written[planned.resolved], planned.axis.rule, masks))
    if not narrowed:  # totals alone: any axis will do
        public = [i for i, n in enumerate(needed.axes) if not isinstance(entries[n].axis.rule, KeyListRule)]
        place_ = max(public, default=len(needed.axes) - 1)
        planned = entries[needed.axes[place_]]
        masks = np.ones((1, planned.axis.leaves))
        narrowed = [_narrow(place_, written[planned.resolved], planned.axis.rule, masks)]
    return narrowed


def _narrow(place_: int, spec: AxisSpec, rule: object, masks: FloatArray) -> _Narrow:
    """One axis. Leaves without order stay as they are; what stands behind the values (NULL and others) too."""
    n = masks.shape[1]
    if not isinstance(rule, OrderedRule):
        return _Narrow(place_, spec, np.arange(n))
    values = len(rule.starts)
    ends = np.flatnonzero(np.any(np.diff(masks[:, :values], axis=1) != 0, axis=0)) + 1
    leaf = np.searchsorted(ends, np.arange(values), side="right")
    behind = len(ends) + 1 + np.arange(n - values)
    at = tuple(
        from_units(rule.type, int(rule.starts[i]), scale=rule.scale, grain=rule.grain) for i in (0, *ends)
    )
    return _Narrow(
        place_,
        spec.model_copy(update={"cuts": Cuts.model_validate({"at": at})}),
        np.append(leaf, behind).astype(np.int64),
    )


def _intervals(mask: FloatArray, leaf: np.typing.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """The new leaves under a mask of old ones, as half-open intervals."""
    marked = np.zeros(int(leaf.max()) + 3, np.int64)
    marked[leaf[mask > 0] + 1] = 1
    change = np.diff(marked)
    for low, high in zip(np.flatnonzero(change > 0), np.flatnonzero(change < 0), strict=True):
        yield int(low), int(high)
