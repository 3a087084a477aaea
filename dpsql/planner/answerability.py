"""Additivity of a view's stored numbers, the caveat where they do not add up, and the listing of what views answer.

A person may be in several cells of an axis that is not her own, so cells of a count of units do not add up. What is
stored answers some sums of cells and no others (`Reading.takes`); the rest is refused with the view that would answer.

Keys that are not shown: where keys were found when the release was made (`categories: private`), rows of all others lie
in one leaf, OTHER. A condition that some of them may meet cuts that leaf: it counts nothing of it, its error bar allows
for all of it, and alone it is refused. It is never a silent 0.

Listings of what a release can answer, and how well: `SHOW VIEWS`, or `information_schema.dp_views`.

| column | says |
|---|---|
| view_name, table_name | the view, and the table whose rows it counts |
| axes, measures | what may stand in WHERE and GROUP BY together, and what is counted and summed |
| cells | how many combinations of leaves it holds |
| keys | of private keys how many are shown, of about how many people, and the part of rows in OTHER |
| error_total | standard error of COUNT(*) over all of the view |
| error_half | the same over the middle half of every axis at once |

Errors are `DP_STDERR` of that view's count, in rows (or people). NULL where a view counts nothing, does not answer that
question, or where the interval has an open end.

**Privacy**: post-processing of released numbers and of numbers of people, which follow from the catalog; listings
follow from the catalog and published variances.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dpsql.catalog import Catalog
from dpsql.catalog.base import COUNTS, PEOPLE
from dpsql.catalog.columns import Column
from dpsql.errors import NoViewError, PartialBinError
from dpsql.executor.recombine import answer_terms
from dpsql.executor.run import run
from dpsql.executor.small_numbers import is_few
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, HIGH, LOW, STDERR, nullable
from dpsql.matrices.blocks import BoxReading
from dpsql.matrices.max_entropy import partly
from dpsql.matrices.model import PERHAPS
from dpsql.planner.axis_query import FloatArray, decides, key_list
from dpsql.planner.block import Block, one
from dpsql.planner.leaf_values import UNKNOWN
from dpsql.planner.plan import ReleaseView, ViewPlan, one_group, plan_of_leaves, views_of, wanted_view
from dpsql.planner.schema import INFORMATION, Listing, Schema, Term, data_type
from dpsql.release import Release, StatisticMeta
from dpsql.release.format import KeyListMeta
from dpsql.row_expressions import identifier as quoted
from dpsql.sql.from_clause import RowRelation, wide_source
from dpsql.sql.statement import Statement


def unanswerable_reason(plan: ViewPlan, terms: Sequence[Term], release: Release) -> str:
    """Reason why a view's stored numbers do not add up to an answer; empty where they do."""
    for term in terms:
        statistic = plan.view.statistics[term.measure]
        reading = release.reading(statistic.id)
        if release.fitted(statistic.id) is not None:
            if why := _not_fitted(plan, term, release):
                return why
            continue
        if not reading.takes(plan.box_masks(box) for box in plan.boxes_for(term)):
            if not reading.listed:
                return f"{plan.view.name} was bought for a few questions, and this one is not a sum of them"
            names = ", ".join(release.axes[statistic.axes[at]].name for at in sorted(reading.listed))
            cell_kind = "ranges of whole leaves" if len(reading.listed) == 1 else "single cells"
            counted = f"{plan.view.name} counts {term.measure} in {cell_kind} of {names}"
            return f"{counted}; who is in two cells would count twice"
    return ""


FITTED = "maximum entropy"
MOST_FITTED = 1024
"""Groups of one statement that are fitted, each with its redrawn fits: ten seconds of one core."""


def fitted_boxes(plan: ViewPlan, term: Term, release: Release) -> list[Sequence[FloatArray]]:
    """Masks of the boxes of a term that maximum entropy answers."""
    reading = release.fitted(plan.view.statistics[term.measure].id)
    if reading is None:
        return []
    boxes = (plan.box_masks(box) for box in plan.boxes_for(term))
    return [masks for masks in boxes if not reading.takes([masks])]


def _not_fitted(plan: ViewPlan, term: Term, release: Release) -> str:
    """Reason why maximum entropy does not answer a term; empty where it does, or where the term is a sum of
    stored numbers."""
    boxes = fitted_boxes(plan, term, release)
    if not boxes:
        return ""
    by_entropy = f"{plan.view.name} answers three axes and more by maximum entropy"
    if any(
        np.any((np.abs(mask) > PERHAPS) & (np.abs(mask - 1.0) > PERHAPS)) for masks in boxes for mask in masks
    ):
        return f"{by_entropy}, which counts rows in whole bins and takes no sums, averages or parts of bins"
    groups = prod(plan.shape)
    if groups > MOST_FITTED:
        return f"{by_entropy}, up to {MOST_FITTED} groups a statement, and there are {groups}"
    return ""


def estimates_kind(positive: bool, fitted: bool) -> str:
    """Name of the kind of estimates behind an answer: fitted, non-negative or unbiased."""
    return FITTED if fitted else "non-negative" if positive else "unbiased"


def entropy_caveat(plan: ViewPlan, terms: Sequence[Term], release: Release) -> str:
    """Caveat for answers by maximum entropy; empty where all are sums of stored numbers."""
    boxes = [masks for term in terms for masks in fitted_boxes(plan, term, release)]
    if not boxes:
        return ""
    names = [
        release.axes[plan.view.axes[i]].name for i in sorted({i for masks in boxes for i in partly(masks)})
    ]
    return (
        f"{', '.join(names[:-1])} and {names[-1]} together: estimated by maximum entropy from pairs (LLE), biased "
        "where three axes interact in ways that no pair shows; error bars exclude that bias: 95% intervals "
        "covered 82 to 99% of boxes in six settings, and parts do not add up"
    )


def adaptive_caveat(plan: ViewPlan, terms: Sequence[Term], release: Release) -> str:
    """The coverage of answers from boxes of three axes and more; empty where there are fewer."""
    read = [t for t in terms if isinstance(release.reading(plan.view.statistics[t.measure].id), BoxReading)]
    axes = {i for term in read for box in plan.boxes_for(term) for i in partly(plan.box_masks(box))}
    if len(axes) < 3:
        return ""
    names = [release.axes[plan.view.axes[i]].name for i in sorted(axes)]
    return (
        f"{', '.join(names[:-1])} and {names[-1]} together: boxes that adaptive rounds did not split are taken as "
        "even; 95% intervals held 85 to 99% of boxes in eight settings, fewest where three axes go closely together"
    )


def no_unit_view(
    block: Block, terms: Sequence[Term], refusals: Sequence[str], release: Release, schema: Schema
) -> NoViewError:
    """The refusal that shows the view that would answer.

    Args:
        block, terms: what is asked; a term counts units.
        refusals: why the views there are do not answer.
        release: an open release.
        schema: its star.
    """
    axes = ", ".join([axis.name for axis in release.axes if axis.of == block.root][:1])
    view = wanted_view(block, terms, release.catalog)
    view = view or f"{PEOPLE}: {{of: {block.root}, axes: [{axes}], measures: [{', '.join(COUNTS)}]}}"
    why = "; ".join(dict.fromkeys(refusals)) or f"no view counts the {PEOPLE} of {block.root}"
    counts = f"COUNT(*) counts rows of {block.root}"
    hint = f"ask the curator for a view such as `{view}`, its axis cut at the ends you ask; {counts}"
    error = NoViewError(f"{PEOPLE} cannot be counted here: {why}"[:600], hint=hint)
    return error.at("SELECT", block.span, schema.example(block.root))


def overlap_caveat(plan: ViewPlan, terms: Sequence[Term], release: Release) -> str:
    """Caveat naming the groups that do not add up where units are counted; empty where all do."""
    if not any(term.measure == PEOPLE for term in terms):
        return ""
    statistic, unit = plan.view.statistics[PEOPLE], release.catalog.privacy.unit.table
    names = [release.axes[statistic.axes[at]].name for at in sorted(release.reading(statistic.id).listed)]
    different = f"counts of different {' and '.join(names)} do not add up to the total"
    return f"each unit of {unit} counts once: {different}" if names else ""


class LeafCount(NamedTuple):
    """A noisy count over some leaves: its value, standard error and 95% interval."""

    value: float
    stderr: float
    low: float
    high: float


def leaf_count(release: Release, view: ReleaseView, axis: int, leaves: range) -> LeafCount | None:
    """The rows of some leaves of one axis of a view; None where it counts nothing, or few people.

    Args:
        release, view: an open release and one of its views.
        axis: the axis's position in the view.
        leaves: of that axis.
    """
    measure = next((name for name in COUNTS if name in view.statistics), None)
    if measure is None:
        return None
    selections = [range(release.axes[number].leaves) for number in view.axes]
    selections[axis] = leaves
    answered = answer_terms(
        plan_of_leaves(release, view, selections), [Term(measure)], one_group(view), release
    )
    if is_few(Term(measure), answered)[0]:
        return None
    composite = Composite.of_form(one(Term(measure)), answered)
    stderr, low, high = (float(error.values(composite, DEFAULT_LEVEL)[0]) for error in (STDERR, LOW, HIGH))
    return LeafCount(float(answered.totals[Term(measure)][0]), stderr, low, high)


def other_count(release: Release, view: ReleaseView, axis: int) -> LeafCount | None:
    """The rows of keys that are not shown."""
    leaf = release.axes[view.axes[axis]].other_leaf
    if leaf is None:
        return None
    return release.kept(
        ("other", view.name, axis), lambda: leaf_count(release, view, axis, range(leaf, leaf + 1))
    )


def list_words(keys: KeyListMeta) -> str:
    """Number of shown keys in words, and about how many units a key needs.

    >>> from dpsql.release.format import KeyRoundMeta
    >>> step = KeyRoundMeta("1/180", "1/10000000", 1, "1/180", "1/20000000", "1/20", 46, "")
    >>> list_words(KeyListMeta("t.x", "VARCHAR", 387, 400, 1, (step,)))
    'keys of t.x: private, 387 shown, of about 46 people or more each'
    """
    shown = f"of about {keys.rounds[-1].people:,} people or more each" if keys.rounds else "all listed before"
    return f"keys of {keys.column}: private, {keys.keys} shown, {shown}"


def listed_words(release: Release, view: ReleaseView) -> Iterator[str]:
    """The same of each list of a view, with the part of its rows in OTHER."""
    for position, axis in enumerate(view.axes):
        keys = key_list(release, axis)
        if keys is None:
            continue
        other = other_count(release, view, position)
        whole = leaf_count(release, view, position, range(release.axes[axis].leaves))
        if other is None or whole is None or whole.low <= 0:
            yield list_words(keys)
            continue
        share, low, high = (
            min(1.0, max(0.0, part))
            for part in (other.value / whole.value, other.low / whole.high, other.high / whole.low)
        )
        yield f"{list_words(keys)}; {share:.1%} of rows in {_outside(release, axis)} ({low:.1%} to {high:.1%})"


def _outside(release: Release, axis: int) -> str:
    """Label of rows whose keys are not shown."""
    meta = release.axes[axis]
    spec = release.catalog.tables[meta.table].columns[meta.columns[0].column]
    return spec.other if spec.type == "string" else "the group without a value"


def unshown_refusal(plan: ViewPlan, release: Release) -> PartialBinError | None:
    """The refusal of a group that keys which are not shown alone may have rows in; None where there is no such group.

    Args:
        plan: a plan that is refused, since more than half of a group is not known.
        release: an open release.
    """
    for position, (query, cells) in enumerate(zip(plan.questions, plan.cells, strict=True)):
        keys, conditions = key_list(release, query.axis), (*query.filters, *query.classes)
        alone = any(cells.coverage[cells.truths == each].max() <= UNKNOWN for each in np.unique(cells.truths))
        culprit = next((p.expression for p in conditions if not decides(p, query, release)), None)
        if keys is None or query.groups or culprit is None or not alone:
            continue
        other, outside = other_count(release, plan.view, position), _outside(release, query.axis)
        rows = "" if other is None else f", {other.value:,.0f} +- {1.96 * other.stderr:,.0f} rows"
        return PartialBinError(
            f"{culprit.words()}: not among the {keys.keys} keys shown; its rows are in {outside}{rows}; "
            f"{keys.missing} shown",
            hint="ask for shown keys, which SELECT DISTINCT lists; with `on_partial_bin: interpolate` in the catalog "
            "or the connection it is answered, with an error bar that covers all of them",
        ).at("WHERE", culprit.span)
    return None


NAME = "dp_views"
SHOW = re.compile(r"\s*+show\s++views\s*+;?\s*+", re.IGNORECASE)
STATEMENT = f"SELECT * FROM information_schema.{NAME} ORDER BY table_name, cells, view_name"


class ViewRow(NamedTuple):
    """A row of the listing, as the table above says."""

    view_name: str
    table_name: str
    axes: str
    measures: str
    cells: int
    keys: str | None
    error_total: float | None
    error_half: float | None


VIEWS = {NAME: ViewRow._fields}
"""Its name and columns."""
TYPES = ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "BIGINT", "VARCHAR", "DOUBLE", "DOUBLE")


def shown(text: str) -> str:
    """The statement that `SHOW VIEWS` stands for; any other text as it is.

    >>> shown("show views;")
    'SELECT * FROM information_schema.dp_views ORDER BY table_name, cells, view_name'
    >>> shown("SELECT 1")
    'SELECT 1'
    """
    return STATEMENT if SHOW.fullmatch(text) else text


def list_views(release: Release) -> list[ViewRow]:
    """The views of a release, with the error to expect of each.

    Args:
        release: an open release.
    """
    names = dict.fromkeys(s.view for s in release.statistics if release.declares(s.view))
    return [_row(release, name, [s for s in release.statistics if s.view == name]) for name in names]


def listings(release: Release, schema: Schema, statement: Statement) -> list[Listing]:
    """Listings that a statement reads instead of answers: tables of information_schema, those that other engines
    have too and the views, and rows of public tables."""
    public = [_public_rows(release, schema, name) for name in statement.public_tables]
    if not statement.catalog_tables:
        return public
    rows = list_views(release)
    columns = tuple([row[i] for row in rows] for i in range(len(TYPES)))
    return [
        *public,
        *information_tables(schema, release.catalog),
        Listing(f"dp_{NAME}", ViewRow._fields, TYPES, columns),
    ]


def information_tables(schema: Schema, catalog: Catalog) -> list[Listing]:
    """The relations dp_tables, dp_columns and dp_schemata: name, columns, DuckDB types, values."""
    columns: list[tuple[str, str, str]] = []
    for table in schema.tables.values():
        columns += [
            (table.name, name, data_type(table.types.get(name, ""))) for name in table.columns.values()
        ]
    for wide, fact in schema.wide().items():
        root = schema.table(fact)
        if root is not None:
            source = wide_source(RowRelation(), schema, root, wide)
            kinds = {name: kind for _, name, kind in columns}
            columns += [(wide, name, kinds.get(name, "VARCHAR")) for name in source.names.values()]
    names = list(dict.fromkeys(name for name, _, _ in columns))
    database, wide_names, position = schema.name, schema.wide(), Counter[str]()
    rows: dict[str, list[tuple[Any, ...]]] = {"tables": [], "columns": [], "schemata": [(database, "main")]}
    for name in names:
        rows["tables"].append((database, "main", name, "VIEW" if name in wide_names else "BASE TABLE"))
    known = {
        name: precision(spec) for table in catalog.tables.values() for name, spec in table.columns.items()
    }
    for table_name, name, kind in columns:
        position[table_name] += 1
        own = catalog.tables[table_name].columns.get(name) if table_name in catalog.tables else None
        unit = known.get(name) if own is None else precision(own)
        rows["columns"].append(
            (database, "main", table_name, name, position[table_name], None, "YES", kind, unit)
        )
    return [
        Listing(
            f"dp_{table}", fields, tuple("INTEGER" if f == "ordinal_position" else "VARCHAR" for f in fields),
            tuple([row[i] for row in rows[table]] for i in range(len(fields))),
        )
        for table, fields in INFORMATION.items()
    ]  # fmt: skip


def _public_rows(release: Release, schema: Schema, name: str) -> Listing:
    """The rows of a public table, as the axis has them that is as fine as its key.

    Raises:
        NoViewError: no axis of this release is.
    """
    public_rows = schema.public_rows(name)
    if public_rows is None:
        raise NoViewError(f"no axis has the rows of {name}", hint="name the release that has them")
    number, columns = public_rows
    fields = ", ".join(quoted(column.name) for column in columns)
    rows = run(release, f"SELECT {fields} FROM axis_{number} WHERE kind = 0 ORDER BY atom").rows
    values = tuple([row[i] for row in rows] for i in range(len(columns)))
    types = tuple(column.type for column in columns)
    return Listing(quoted(f"dp_public_{name}"), tuple(quoted(c.column) for c in columns), types, values)


def _row(release: Release, name: str, statistics: list[StatisticMeta]) -> ViewRow:
    first = statistics[0]
    axes = [release.axes[axis] for axis in first.axes]
    measure = next((s.measure for s in statistics if s.measure in COUNTS), None)
    errors: list[float | None] = [None, None]
    keys: str | None = None
    if measure is not None:
        view = next(v for v in views_of(release) if v.name == name and measure in v.statistics)
        leaves = [release.axes[axis].leaves for axis in view.axes]
        keys = "; ".join(listed_words(release, view)) or None
        selections = (
            [range(n) for n in leaves],
            [range(n) if n < 4 else range(n // 4, n - n // 4) for n in leaves],
        )
        errors = [_error(release, view, Term(measure), selection) for selection in selections]
    return ViewRow(
        name, first.of, ", ".join(axis.name for axis in axes), ", ".join(s.measure for s in statistics), first.cells,
        keys, *errors,
    )  # fmt: skip


def _error(release: Release, view: ReleaseView, term: Term, ranges: Sequence[range]) -> float | None:
    """`DP_STDERR` of a view's own count over some leaves of each axis; None where its interval has an open end."""
    answered = answer_terms(plan_of_leaves(release, view, ranges), [term], one_group(view), release)
    if unanswerable_reason(answered.plan, [term], release) or is_few(term, answered)[0]:
        return None
    return nullable(STDERR.values(Composite.of_form(one(term), answered), DEFAULT_LEVEL))[0]


def precision(column: Column) -> str | None:
    """The unit in which a release knows a column: `hour`, `day`, `0.1`; None where values are what they are.

    >>> precision(Column(type="decimal", scale=1)), precision(Column(type="timestamp", grain="hour"))
    ('0.1', 'hour')
    """
    if column.type == "timestamp":
        return column.grain
    if column.type in ("int", "decimal"):
        return format(Decimal(1).scaleb(-column.digits), "f")
    return "day" if column.type == "date" else None
