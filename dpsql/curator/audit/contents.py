"""Contents of a release file, recomputed: tables and columns from the catalog, numbers from the noisy integers.

| check | recomputed from |
|---|---|
| tables, columns, types | `meta`, when the file is opened: one more may carry anything |
| axis tables and look-up trees | the catalog and public rows |
| budgets of all rows | strategies and charges, in integers; then the largest path sum |
| estimates, node sums, variances | the noisy integers, by the code that publishes |
| scale of the noise | what least squares leaves unexplained, for strategies with more rows than leaves |

Where noisy numbers chose what was measured next, the choice follows from integers that the release holds. So the audit
chooses again, and compares budgets, estimates, variance models and meta with the file's.

Report of an audit: one line for each check, and whether all passed.

Lists of keys that nobody listed: what found them follows from the catalog, each table of chances is worth its price.

Counts are stored nowhere, so neither a missing key nor one that too few people have can be seen.

The plan that a release must have come from is made again from the catalog inside the file. Axes over private columns
follow from that catalog, axes over public tables from their rows: with the curator's catalog at hand they are read
again, without it their leaves are taken from the file and their contents are not checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.axis.build import build_axis, needed_tables
from dpsql.axis.model import Axis, KeyRule, PublicTable, table_sql
from dpsql.budget.curve import CERTAIN, is_priced, people_at
from dpsql.catalog import Catalog
from dpsql.catalog.columns import is_key
from dpsql.catalog.graph import ResolvedAxis
from dpsql.catalog.private_columns import reported_columns
from dpsql.central import hybrid, selection
from dpsql.central.axes import AxisMaker, axis_maker, open_public
from dpsql.central.bounding import DrawnRelease
from dpsql.central.content import release_content
from dpsql.central.plan import EVEN, KeyPlan, key_plans, list_limits, plan_release
from dpsql.central.planned import ReleasePlan
from dpsql.central.row_pairs import stored_squares
from dpsql.engines.schema_union import declared_values
from dpsql.errors import ReleaseError
from dpsql.matrices.max_entropy import pair_number, unpacked
from dpsql.matrices.model import Columns as ModelColumns
from dpsql.matrices.reading import stored_as_pairs
from dpsql.matrices.reconcile import node_sums
from dpsql.mechanisms.designs.measurement import DrawParameters, DrawReplay, LinearRows
from dpsql.mechanisms.distribution import NoisyRows, NoisyView, published
from dpsql.release import Release
from dpsql.release.format import KeyListMeta, Meta, SpentAmount, to_json
from dpsql.release.reports import ReportedMeta
from dpsql.release.request import requested
from dpsql.release.structure import LONGEST_TABLE, NODE
from dpsql.release.write import ARRAYS, LOOKUP_ARITY, ReleaseBuilder, StatisticPart, registered
from dpsql.scratch import scratch
from dpsql.tree import Tree, kary_tree

SECONDS = 300.0
"""Until reading one table is stopped: ten times a question's time, for the largest releases."""


@dataclass(frozen=True)
class Replanned:
    """A release's plan, made again.

    Args:
        plan: the plan of what was counted.
        catalog: as it was written, reported columns with their values.
        shown: the axes that the release shows.
        borrowed: ids of axes that were taken from the file.
        lists: the keys that nobody listed, by column, as the file has them.
        limits: most keys of each list.
        linear: the rows of statistics that can be recomputed from their noisy integers, by index: no data-dependent
            mechanism, no rows per unit chosen at publish.
    """

    plan: ReleasePlan
    catalog: Catalog
    shown: tuple[Axis, ...]
    borrowed: frozenset[int]
    lists: Mapping[str, selection.KeyList]
    limits: Mapping[str, int]
    linear: dict[int, LinearRows]


def replan(release: Release, catalog: Catalog | None) -> Replanned:
    """Plan again what a release claims to be.

    Args:
        release: an open central release.
        catalog: the curator's catalog, whose public tables may be read; None to work from the file alone.

    Raises:
        CatalogError: the catalog inside the file does not plan.
        ReleaseError: the file's axes are not those of its catalog.
    """
    written = release.catalog
    inside = hybrid.counted_catalog(written)
    lent: dict[ResolvedAxis, Axis] = {}
    with requested(SECONDS):
        lists = selection.stored_lists(release)
    empty = selection.empty_lists(inside)
    facts = selection.listed_tables(empty | lists)
    if catalog is None:
        limits = list_limits(inside, axes_from_file(release, inside, {}, selection.listed_tables(empty)))
        plan = plan_release(inside, axes_from_file(release, inside, lent, facts))
    else:
        with closing(open_public(hybrid.counted_catalog(catalog))) as public:
            limits = list_limits(inside, axis_maker(inside, public, selection.listed_tables(empty)))
            plan = plan_release(inside, axis_maker(inside, public, facts))
    plan = hybrid.supplemented(plan, inside)
    if len(plan.axes) != len(release.axes) or len(plan.statistics) != len(release.statistics):
        raise ReleaseError(f"{release.path} holds other axes or statistics than its catalog plans")
    borrowed = frozenset(i for i, planned in enumerate(plan.axes) if planned.resolved in lent)
    rows = {i: s.measurement.facts.linear for i, s in enumerate(plan.statistics) if s.sensitivity}
    linear = {i: linear for i, linear in rows.items() if linear is not None}
    shown = tuple(hybrid.shown_axis(written, planned) for planned in plan.axes)
    return Replanned(plan, written, shown, borrowed, lists, limits, linear)


def axes_from_file(
    release: Release,
    catalog: Catalog,
    lent: dict[ResolvedAxis, Axis],
    lists: Mapping[str, PublicTable],
) -> AxisMaker:
    """Build axes from the catalog and from lists of keys, and take those over public tables from the file."""

    def make(resolved: ResolvedAxis) -> Axis:
        if lists.keys() >= set(needed_tables(catalog, resolved)):
            return build_axis(catalog, resolved, lists)
        lent[resolved] = _borrow(release, resolved)
        return lent[resolved]

    return make


def _borrow(release: Release, resolved: ResolvedAxis) -> Axis:
    """An axis of the right size and name, without columns."""
    for meta in release.axes:
        if (meta.name, meta.path, meta.of) == (resolved.name, resolved.path, resolved.of):
            return Axis(
                meta.name, resolved, meta.leaves, meta.null_leaf, meta.missing_leaf, meta.other_leaf, (), (),
                KeyRule("", (), np.zeros(0, np.int64)), meta.atomic, np.zeros(0, np.int64), {},
            )  # fmt: skip
    raise ReleaseError(f"{release.path} has no axis {resolved.name}, which its catalog plans")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Args:
        what: the claim.
        held: whether it is true; None where it could not be checked.
        detail: figures, or what is wrong, or why it was not checked.
    """

    what: str
    held: bool | None
    detail: str = ""


@dataclass(frozen=True)
class AuditReport:
    """All checks of one release, in order."""

    release: Path
    checks: tuple[Check, ...]

    @property
    def held(self) -> bool:
        return all(check.held is not False for check in self.checks)

    def plus(self, check: Check) -> AuditReport:
        """The same with one more check."""
        return AuditReport(self.release, (*self.checks, check))

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        checks = [asdict(check) for check in self.checks]
        return {"release": str(self.release), "held": self.held, "checks": checks}

    def text(self) -> str:
        """One line for each check, for people."""
        words = {True: "ok  ", False: "BAD ", None: "    "}
        lines = [f"{words[c.held]} {c.what}" + (f": {c.detail}" if c.detail else "") for c in self.checks]
        return "\n".join(lines)


Columns = dict[str, Any]

RELEASE_ID = re.compile("[0-9a-f]{32}")
CLOSE = 1e-6
"""Relative difference that another machine's floating point may make."""


def check_tables(release: Release) -> Iterator[Check]:
    """Check what opening has ensured (`dpsql.release.structure`), and the release's id."""
    yield Check("no table, column or type but those that its meta implies", True)
    yield Check("no view, macro, sequence, type, index, constraint, comment or default", True)
    named = RELEASE_ID.fullmatch(release.meta.release_id) is not None
    yield Check("release id of 32 hexadecimal digits", named)


def read_table(release: Release, table: str) -> Columns:
    """A table's columns in stored order."""
    with requested(SECONDS):
        return release.whole(table)


def check_axes(release: Release, made: Replanned) -> Iterator[Check]:
    """Axis tables and look-up trees are those of the catalog and of public tables."""
    wrong, skipped = [], []
    for i, axis in enumerate(made.shown):
        if i in made.borrowed:
            skipped.append(release.axes[i].name)
            atoms, leaves = read_table(release, f"axis_{i}"), release.axes[i].leaves
            weight = np.bincount(atoms["leaf"].astype(np.int64), weights=atoms["weight"], minlength=leaves)
            # each leaf's atoms add up to one
            right = len(weight) == leaves and bool(np.allclose(weight, 1.0))
        else:
            with scratch() as connection, registered(connection, ARRAYS, axis.arrays()):
                expected: Columns = dict(connection.execute(table_sql(axis, ARRAYS)).fetchnumpy())
            right = same(read_table(release, f"axis_{i}"), expected)
        wrong += [] if right else [f"axis_{i}"]
    yield Check("axis tables follow from the catalog", not wrong, ", ".join(wrong))
    if skipped:
        yield Check(
            f"public tables behind {', '.join(dict.fromkeys(skipped))}", None, "pass the catalog to read them"
        )
    trees = [kary_tree(axis.leaves, LOOKUP_ARITY) for axis in made.shown]
    tree_columns = [
        (np.full(t.size, i), np.arange(t.size), t.parent, t.level, t.lo, t.hi) for i, t in enumerate(trees)
    ]
    nodes = {name: np.concatenate([columns[j] for columns in tree_columns]) for j, name in enumerate(NODE)}
    yield Check("look-up trees follow from the catalog", same(read_table(release, "node"), nodes))


def same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Equal columns in equal order; floats up to another machine's arithmetic."""
    return list(left) == list(right) and all(_equal(left[name], right[name]) for name in left)


def _equal(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind == "f" or b.dtype.kind == "f":
        return bool(np.allclose(np.ma.filled(a, np.nan), np.ma.filled(b, np.nan), rtol=CLOSE, equal_nan=True))
    return bool(
        np.array_equal(np.ma.getmaskarray(a), np.ma.getmaskarray(b)) and np.all(np.ma.filled(a == b, True))
    )


def differences(left: Any, right: Any, place: str = "") -> Iterator[str]:
    """Differences of two JSON values, up to float arithmetic of another machine.

    >>> list(differences({"a": [1, 2.0]}, {"a": [1, 2.5]}))
    ['.a.1']
    """
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            yield from differences(left.get(key), right.get(key), f"{place}.{key}")
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple) and len(left) == len(right):
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            yield from differences(a, b, f"{place}.{i}")
    elif isinstance(left, float) or isinstance(right, float):
        near = isinstance(left, int | float) and isinstance(right, int | float)
        if not near or not math.isclose(left, right, rel_tol=CLOSE):
            yield place
    elif left != right:
        yield place


IntArray = npt.NDArray[np.int64]

GRAIN = 64
"""Units of 2^-20 by which another machine's floating point may move an estimate, beside a millionth of it."""

FEWEST = 223
"""Degrees of freedom below which halved noise is within `FAR`: 0.75 f / sqrt(5 f) reaches 5 at 223."""

FINE = 1 << 10
"""Parts of one in which residuals take estimates: far below any noise, and far from overflow."""

FAR = 5.0
"""Standard errors at which a noise scale counts as wrong: one correct release in a million."""

StoredIntegers = tuple[NoisyView, LinearRows, DrawParameters]
"""The noisy integers of one statistic as the file holds them: values and budgets, with the row variance that the plan
gives; their rows; what they were drawn with."""


def read_views(release: Release, made: Replanned) -> dict[int, StoredIntegers]:
    """The linear statistics' integers; a table of the wrong size or order is left out."""
    stored = {}
    for index, linear in made.linear.items():
        statistic = made.plan.statistics[index]
        terms = statistic.terms(made.plan.axes)
        shape = linear.shape(terms.strategies)
        columns = read_table(release, f"measurement_{index}")
        order = [np.broadcast_to(indices, shape).ravel() for indices in np.indices(shape, sparse=True)]
        if len(columns["value"]) != prod(shape) or any(
            not np.array_equal(columns[f"r{i + 1}"], indices) for i, indices in enumerate(order)
        ):
            continue
        variance = statistic.measurement.variance_at_unit_budget(terms)
        value, budget = (columns[name].astype(np.int64).reshape(shape) for name in ("value", "budget"))
        stored[index] = NoisyView(published(value), budget, variance, terms.sensitivity), linear, terms
    return stored


def check_budgets(release: Release, made: Replanned, stored: dict[int, StoredIntegers]) -> Iterator[Check]:
    """Row counts, row budgets and path sums in integers; charges in fractions."""
    lacking = [f"measurement_{i}" for i in made.linear if i not in stored]
    yield Check("as many noisy integers as planned, in order", not lacking, ", ".join(lacking))
    wrong, over = [], []
    for index, (view, linear, terms) in stored.items():
        if not np.array_equal(view.budget, linear.budgets(terms)):
            wrong.append(f"measurement_{index}")
        if linear.largest_column(view.budget, terms) > linear.column_cap(terms):
            over.append(f"measurement_{index}")
    yield Check("row budgets are those of the plan", not wrong, ", ".join(wrong))
    yield Check("no path of row budgets spends more than its view's part", not over, ", ".join(over))
    planned = tuple(SpentAmount(line.purpose, str(line.amount), str(line.delta)) for line in made.plan.lines)
    planned += tuple(SpentAmount(reported.line, "0") for reported in _told(release, made))
    promise = release.meta.privacy
    total = sum((Fraction(spend.amount) for spend in planned), Fraction(0))
    claimed = Fraction(promise.mu2 or promise.epsilon)
    good = release.meta.spends == planned and total <= claimed == made.plan.charge
    yield Check(
        "the parts of the budget are within the promise", good, f"{float(total):g} of {float(claimed):g}"
    )


def check_estimates(release: Release, made: Replanned, stored: dict[int, StoredIntegers]) -> Iterator[Check]:
    """Estimates, variances and meta are what publishing makes of these integers."""
    views = tuple(stored[i][0] for i in made.linear if i in stored)
    if len(views) != len(made.linear) or not views:
        yield Check("estimates follow from the noisy integers", None, "no statistic can be recomputed")
        return
    # the recomputable statistics alone; axes keep their ids
    plan = replace(made.plan, statistics=tuple(made.plan.statistics[i] for i in made.linear))
    meta, drawn = release.meta, DrawnRelease(plan, views)
    content = _undone(release, made, release_content(drawn, meta.release_id, insecure=meta.insecure_entropy))
    parts = zip(made.linear, content.statistics, strict=True)
    wrong = [f"node_combination_{index}" for index, part in parts if not _holds(release, index, part)]
    yield Check("estimates follow from the noisy integers", not wrong, ", ".join(wrong))
    used = {axis for i in made.linear for axis in made.plan.statistics[i].axes}
    used |= {k for s in content.meta.statistics for k in s.models}
    models = [k for k in used if not same(read_table(release, f"variance_{k}"), content.models[k].columns())]
    yield Check(
        "variance models follow from the catalog", not models, ", ".join(f"variance_{k}" for k in models)
    )
    yield _check_meta(release, made, content.meta)


def _told(release: Release, replanned: Replanned) -> tuple[ReportedMeta, ...]:
    """Metadata about reported columns; only the release knows which plan devices answered."""
    plans = {reported.column: reported.plan_hash for reported in release.meta.reported}
    return tuple(
        hybrid.reported_meta(reported, plans.get(str(reported), ""))
        for reported in reported_columns(replanned.catalog)
    )


def _undone(release: Release, replanned: Replanned, content: ReleaseBuilder) -> ReleaseBuilder:
    """The release of values, from that of reported items and the squares in the file.

    Raises:
        ReleaseError: squares are missing or too many.
    """
    if not release.meta.reported:
        return content
    stored = [square for reported in release.meta.reported for square in reported.squares]
    squares = stored_squares(replanned.plan, hybrid.counted_catalog(replanned.catalog), content, stored)
    return hybrid.invert_channel(
        content, hybrid.ChannelInputs(replanned.catalog, replanned.plan, squares, _told(release, replanned))
    )


def _holds(release: Release, index: int, part: StatisticPart) -> bool:
    """True if the stored estimates of a statistic are these, up to another machine's floating point."""
    columns, content = read_table(release, f"node_combination_{index}"), part.content
    for name, values in (("estimate", content.nodes), ("nonnegative", content.nonnegative)):
        stored, made = columns.get(name), None if values is None else values.ravel()
        if made is None:
            continue
        if stored is None or stored.shape != made.shape:
            return False
        if not np.all(np.abs(stored.astype(np.float64) - made) <= GRAIN + 1e-6 * np.abs(made)):
            return False
    return True


def _check_meta(release: Release, replanned: Replanned, meta: Meta) -> Check:
    """The promise and every entry about a recomputable statistic or an axis of the catalog."""
    wrong: list[str] = []
    if len(replanned.linear) == len(replanned.plan.statistics):
        promise = replace(meta.privacy, values=declared_values(replanned.catalog))
        wrong += differences(to_json(release.meta.privacy), to_json(promise), "privacy")
    wrong += differences(to_json(release.meta.reported), to_json(meta.reported), "reported")
    for index, expected in zip(replanned.linear, meta.statistics, strict=True):
        expected_fields = to_json(replace(expected, id=index))
        wrong += differences(to_json(release.statistics[index]), expected_fields, f"statistics.{index}")
    axes = {axis for s in replanned.linear for axis in replanned.plan.statistics[s].axes}
    for i in axes - replanned.borrowed:
        wrong += differences(to_json(release.axes[i]), to_json(meta.axes[i]), f"axes.{i}")
    return Check("meta follows from the catalog", not wrong, ", ".join(wrong[:5]))


def check_sums(release: Release) -> Check:
    """Inner nodes are sums of leaves, of every statistic."""
    wrong = []
    for index, statistic in enumerate(release.statistics):
        listed = release.reading(index).listed
        trees = [None if at in listed else release.tree(axis) for at, axis in enumerate(statistic.axes)]
        columns = read_table(release, f"node_combination_{index}")
        shape = tuple(listed[at] if tree is None else tree.size for at, tree in enumerate(trees))
        for name in ("estimate", "nonnegative") if statistic.nonnegative else ("estimate",):
            values = columns[name].astype(np.int64)
            if stored_as_pairs(statistic.reading):
                good = values.size == pair_number(shape) and all(
                    _adds_up(table, [trees[i] for i in pair])
                    for pair, table in unpacked(values, shape).items()
                )
            else:
                good = values.size == prod(shape) and _adds_up(values.reshape(shape), trees)
            if not good:
                wrong.append(f"node_combination_{index}.{name}")
    return Check("inner nodes are sums of their leaves", not wrong, ", ".join(wrong))


def _adds_up(nodes: IntArray, trees: Sequence[Tree | None]) -> bool:
    sizes = zip(trees, nodes.shape, strict=True)
    leaves = nodes[np.ix_(*(np.arange(size) if tree is None else tree.leaves for tree, size in sizes))]
    return bool(np.array_equal(node_sums(leaves, trees), nodes))


def check_noise(stored: dict[int, StoredIntegers]) -> Check:
    """Check that least-squares residuals have the size that the budgets promise."""
    squares, freedom = 0.0, 0
    for view, linear, terms in stored.values():
        spare = view.value.size - linear.known(terms.strategies)
        if spare > 0:
            squares += _unexplained(view, linear, terms)
            freedom += spare
    claim = "the noise has its promised size"
    if freedom == 0:
        return Check(claim, None, "no rows beyond the leaves to test it by")
    off = (squares - freedom) / sqrt(5 * freedom)  # Laplace: variance of a square is 5, not 2
    detail = f"{sqrt(squares / freedom):.3f} of the promised scale over {freedom} degrees of freedom"
    if freedom < FEWEST:
        return Check(claim, None, f"{detail}, too few to tell")
    return Check(claim, abs(off) < FAR, detail)


def _unexplained(view: NoisyView, linear: LinearRows, terms: DrawParameters) -> float:
    """Squared residuals of least squares over their variances; estimates are taken to 2^-10 in integers."""
    leaves = linear.leaf_estimates(view, terms.strategies)
    rounded = np.rint(leaves).astype(np.int64)
    fraction = np.rint((leaves - rounded) * FINE).astype(np.int64)
    residual = view.value.astype(np.float64)
    for leaf_values, unit in ((rounded, 1), (fraction, FINE)):
        residual = residual - linear.measure(leaf_values, terms.strategies) / unit
    return float(np.sum((residual * linear.weights(terms.strategies)) ** 2) / view.variance_at_unit_budget)


def replays(made: Replanned) -> dict[int, DrawReplay]:
    """Replay of statistics that are no fixed rows over cells, by index."""
    candidates = {i: s.measurement.facts.replay for i, s in enumerate(made.plan.statistics) if s.sensitivity}
    return {i: replay for i, replay in candidates.items() if replay is not None}


def check_replayed(release: Release, made: Replanned) -> Iterator[Check]:
    """Budgets, estimates, models and meta of such statistics are what publishing makes of their integers."""
    indices = replays(made)
    if not indices:
        return
    views: dict[int, NoisyRows] = {}
    firsts: dict[str, int] = {}
    wrong: list[str] = []
    for index, replay in indices.items():
        statistic = made.plan.statistics[index]
        first = firsts.setdefault(statistic.view, index)
        terms = statistic.terms(made.plan.axes)._replace(beside=views.get(first))
        columns = read_table(release, f"measurement_{index}")
        views[index] = replay(published(columns["value"]), terms)
        if not np.array_equal(columns["budget"], views[index].budget):
            wrong.append(f"measurement_{index}")
    yield Check("budgets follow from what noisy numbers chose", not wrong, ", ".join(wrong))
    statistics = tuple(made.plan.statistics[index] for index in indices)
    drawn = DrawnRelease(replace(made.plan, statistics=statistics), tuple(views.values()))
    content = release_content(drawn, release.meta.release_id, insecure=release.meta.insecure_entropy)
    models = [model.columns() for model in content.models]
    wrong = [line for index, recomputed in zip(indices, content.statistics, strict=True)
             for line in _differences(release, index, recomputed, models)]  # fmt: skip
    yield Check("what noisy numbers chose follows from them", not wrong, ", ".join(wrong[:5]))


def _differences(
    release: Release, index: int, recomputed: StatisticPart, models: Sequence[ModelColumns]
) -> Iterator[str]:
    """Differences between one statistic and its integers."""
    stored = release.statistics[index]
    if not _holds(release, index, recomputed):
        yield f"node_combination_{index}"
    if len(stored.models) != len(recomputed.meta.models):
        yield f"statistics.{index}.models"
    for k, recomputed_model in zip(stored.models, recomputed.meta.models, strict=False):
        if not same(read_table(release, f"variance_{k}"), models[recomputed_model]):
            yield f"variance_{k}"
    expected = to_json(replace(recomputed.meta, id=index, models=stored.models))
    yield from differences(to_json(stored), expected, f"statistics.{index}")


def check_key_lists(release: Release, made: Replanned) -> Iterator[Check]:
    """One line for each list."""
    plans = key_plans(made.catalog)
    if [meta.column for meta in release.meta.keys] != [plan.column.name for plan in plans]:
        yield Check("lists of keys are those of the catalog", False)
        return
    for plan, meta in zip(plans, release.meta.keys, strict=True):
        wrong = list(_faults(plan, meta, made.lists[meta.column], made.limits[meta.column]))
        what = "were shown by the catalog's chances" if meta.rounds else "were listed before"
        people = f", each of about {meta.rounds[-1].people} people or more" if meta.rounds else ""
        detail = ", ".join(wrong) or f"{meta.keys} keys{people}"
        yield Check(f"keys of {meta.column} {what}", not wrong, detail)
        if meta.known is not None:
            yield Check(
                f"keys of {meta.column} listed before", None, f"they are those of release {meta.known}"
            )


def _faults(plan: KeyPlan, meta: KeyListMeta, found: selection.KeyList, most: int) -> Iterator[str]:
    """Faults of a key list."""
    column = plan.column
    expected = selection.key_list_meta(plan, found, most, meta.known)
    # Whoever made the release may have had other floats: a table is right by its pairs, however it was searched.
    pairs = zip(expected.rounds, meta.rounds, strict=False)
    as_stored = tuple(replace(step, people=stored.people, table=stored.table) for step, stored in pairs)
    if meta != replace(expected, rounds=as_stored):
        yield "prices, deltas or sizes are not those of the catalog"
    for step, stored in zip(plan.rounds, meta.rounds, strict=False):
        table = [int(stored.table[i : i + 16], 16) for i in range(0, len(stored.table), 16)]
        whole = len(table) < LONGEST_TABLE
        if table[0] > step.table[0] or not is_priced(step.price, table) or (whole and table[-1] < CERTAIN):
            yield "a table of chances is not worth its price"
        elif whole and stored.people != people_at(table, EVEN):
            yield "a number of people is not that of its table"
    if any(selection.order_of(first) >= selection.order_of(second) for first, second in pairwise(found.keys)):
        yield "keys are not sorted, or one is repeated"
    if column.spec.type == "string" and not all(
        is_key(str(key), column.keys.length, column.spec.other) for key in found.keys
    ):
        yield "a text is not a key"
    listed = set(selection.always_keys(column))
    for key, number in zip(found.keys, found.rounds, strict=True):
        if not 0 <= number <= len(plan.rounds) or (number == 0 and key not in listed and meta.known is None):
            yield "a key is in no list"
    if not listed <= {key for key, number in zip(found.keys, found.rounds, strict=True) if number == 0}:
        yield "a value of `always` is missing"
