"""Bins that are cut by a predicate or a group: how much is interpolated, when it is refused, what is said of it.

| here | there | unit |
|---|---|---|
| taken | w_a: coverage of an axis's bins by a group, added up | bins |
| whole | of it, what lies in bins that are taken entirely | bins |
| share | 1 - sum over boxes of prod whole / sum over boxes of prod taken | 1 |

NULL, MISSING and OTHER are no stretch of an axis and are never cut, but for the OTHER of keys that nobody listed: they
weigh something only where a group takes nothing else, lest a predicate that also takes NULL hides that its bins are
cut. A share is a function of the statement and of the catalog. Noise has no part in it, so a statement is answered or
refused whatever the release says.

`reads` says how far an answer may be off.

**Privacy**: public facts and released numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal, get_args

import numpy as np

from dpsql.catalog.columns import Column, Cuts, bin_starts
from dpsql.errors import InterfaceError, PartialBinError
from dpsql.executor.run import run
from dpsql.intervals.reads import CutMass
from dpsql.planner.answerability import other_count
from dpsql.planner.axis_query import (
    NEAR,
    AxisCells,
    FloatArray,
    IntArray,
    WeightedValues,
    is_bounded,
    key_list,
    masks,
    reach,
    special_leaves,
)
from dpsql.planner.block import Block
from dpsql.planner.leaf_values import UNKNOWN, AxisQuery, bounds_of
from dpsql.planner.plan import ViewPlan, wanted_view
from dpsql.planner.schema import Condition, Expression, Term
from dpsql.release import Release
from dpsql.row_expressions import identifier as quoted

LIMIT = 0.5 + NEAR
"""Part of an answer that may be interpolated unless more is asked for; weights are sums of floats."""
EDGES = 6
"""Edges that a refusal lists."""


PartialBin = Literal["interpolate", "limit", "refuse"]
LENIENT: tuple[PartialBin, ...] = get_args(PartialBin)
"""The most lenient first."""


def checked(word: str | None) -> PartialBin | None:
    """Session setting for cut bins; None to follow each catalog.

    Raises:
        InterfaceError: another word.
    """
    rule = next((lenient for lenient in LENIENT if lenient == word), None)
    if word is not None and rule is None:
        raise InterfaceError("on_partial_bin has an unknown value", hint=f"write one of {', '.join(LENIENT)}")
    return rule


def partial_bin(plan: ViewPlan, release: Release, asked: PartialBin | None) -> PartialBin:
    """Policy for a plan that cuts bins: refuse or interpolate.

    Args:
        plan: the plan. Its view's catalog entry says, else the catalog; a set of axes that no view names does what the
            most lenient view over these axes does.
        release: an open release.
        asked: what the session asks: it may lift the limit, and may refuse, but lifts no refusal of the catalog.
    """
    named, axes = {plan.view.name}, set(plan.view.axes)
    if not release.declares(plan.view.name):
        named = {s.view for s in release.statistics if axes <= set(s.axes) and release.declares(s.view)}
    views, default = release.catalog.views, release.catalog.on_partial_bin
    words = [(views[name].on_partial_bin if name in views else None) or default for name in named]
    rule = next(word for word in LENIENT if word in (words or [default]))
    return rule if asked is None or rule == "refuse" else asked


def axes_cut(plan: ViewPlan, release: Release) -> str:
    """Axes whose bins the plan cuts; values outside of the domain that a condition may mean are no bin with an edge."""
    return ", ".join(
        release.axes[question.axis].name for question, cells in zip(plan.questions, plan.cells, strict=True)
        if cells.cut or (cells.uncertain and _alone(question, release))
    )  # fmt: skip


def _excess(
    plan: ViewPlan, terms: Sequence[Term], release: Release, along: Expression | None
) -> tuple[float, int, tuple[int, ...]] | None:
    """The first group of which more than half is interpolated, in any term: the share of it that lies in cut bins, the
    position of the axis with the largest part, and its number on each axis."""
    if not any(cells.uncertain for cells in plan.cells):
        return None
    rows = [_rows(plan, axis, along) for axis in range(len(plan.cells))]
    for condition in dict.fromkeys(term.condition for term in terms):
        axes = [_taken(plan, axis, condition, rows[axis], release) for axis in range(len(plan.cells))]
        share = _combined(axes)
        if share.max(initial=0.0) > LIMIT:
            group = tuple(int(i) for i in np.unravel_index(np.argmax(share > LIMIT), share.shape))
            cut = [sum(t[g] - w[g] for t, w in boxes) for boxes, g in zip(axes, group, strict=True)]
            first = [int(np.argmax(row == g)) for row, g in zip(rows, group, strict=True)]
            return float(share[group]), int(np.argmax(cut)), tuple(first)
    return None


def _rows(plan: ViewPlan, axis: int, along: Expression | None) -> np.ndarray:
    """For each group of an axis the number of what it is added up to."""
    groups, cells = plan.questions[axis].groups, plan.cells[axis]
    if along is None or along not in groups:
        return np.arange(len(cells.keys))
    place = groups.index(along)
    numbers: dict[tuple[Any, ...], int] = {}
    other_keys = [(*key[:place], *key[place + 1 :]) for key in cells.keys]
    return np.array([numbers.setdefault(key, len(numbers)) for key in other_keys], np.int64)


def _taken(
    plan: ViewPlan, axis: int, condition: Condition, rows: np.ndarray, release: Release
) -> list[tuple[FloatArray, FloatArray]]:
    """(taken, whole) of an axis for each box of a condition, shape (groups,)."""
    cells = plan.cells[axis]
    special = cells.run_of(special_leaves(release.axes[plan.questions[axis].axis]))
    keys = _alone(plan.questions[axis], release)
    box_coverages, coverages = [], dict[Any, tuple[FloatArray, FloatArray]]()
    for box in plan.boxes_of(condition):
        if box[axis] not in coverages:
            coverages[box[axis]] = _weighed(
                _merged(masks(cells, box[axis]), rows), special, cells.widths, keys=keys
            )
        box_coverages.append(coverages[box[axis]])
    return box_coverages


def _merged(mask: FloatArray, rows: np.ndarray) -> FloatArray:
    """Masks of groups that are added up."""
    merged = np.zeros((int(rows.max(initial=-1)) + 1, mask.shape[1]))
    np.add.at(merged, rows, mask)
    return np.where(merged > 1 - NEAR, 1.0, merged)


def _alone(question: AxisQuery, release: Release) -> bool:
    """True if keys that are not shown may be all that is asked for: groups of an axis show theirs beside others."""
    return key_list(release, question.axis) is not None and not question.groups


def _weighed(
    mask: FloatArray, special: IntArray, widths: IntArray, *, keys: bool
) -> tuple[FloatArray, FloatArray]:
    """Bins taken, and those of them that are taken entirely; texts that the catalog does not list count as decided."""
    aside = mask[:, special].sum(axis=1)
    decided = np.where((mask[:, special] <= UNKNOWN) & keys, 0.0, mask[:, special]).sum(axis=1)
    bins = mask * widths
    bins[:, special] = 0.0
    taken, uncut = bins.sum(axis=1), np.where(mask < 1.0, 0.0, bins).sum(axis=1)
    return np.where(taken > 0, taken, aside), np.where(taken > 0, uncut, decided)


def _combined(axes: Sequence[Sequence[tuple[FloatArray, FloatArray]]]) -> FloatArray:
    """Share of every group that lies in cut bins, shape of the plan's groups."""
    taken: FloatArray = np.zeros(())
    uncut: FloatArray = np.zeros(())
    for box in zip(*axes, strict=True):
        products = [np.ones(()), np.ones(())]
        for axis_coverage in box:
            products = [
                np.multiply.outer(product, coverage)
                for product, coverage in zip(products, axis_coverage, strict=True)
            ]
        taken, uncut = taken + products[0], uncut + products[1]
    return np.asarray(1.0 - np.divide(uncut, taken, out=np.ones_like(taken), where=taken > 0))


def partial_refusal(
    plan: ViewPlan, terms: Sequence[Term], release: Release, along: Expression | None = None
) -> PartialBinError | None:
    """Refusal of a plan that interpolates more than half of some group.

    Args:
        plan: the plan.
        terms: what it answers.
        release: an open release.
        along: a group expression over which groups are added up, and that the analyst has not written: the column of a
            quantile.

    Returns:
        What cuts bins of which axis, how much that is, and the edges that are whole; None where no group is.
    """
    excess = _excess(plan, terms, release, along)
    if excess is None:
        return None
    share, place, row = excess
    question = plan.questions[place]
    axis = release.axes[question.axis]
    culprit = next(_culprits(plan, place), None)
    words = culprit.words() if culprit else "the statement"
    keys = [
        str(value)
        for axis_question, cells, g in zip(plan.questions, plan.cells, row, strict=True)
        for group, value in zip(
            axis_question.groups, cells.keys[g] if axis_question.groups else (), strict=True
        )
        if group != along
    ]
    where = f"of the group ({', '.join(keys)})" if keys else "of the answer"
    edges = _edges(plan, place, row[place], release)
    at = f", which begin at {edges}" if edges else ""
    error = PartialBinError(
        f"{words} cuts bins of {axis.name}: {share:.0%} {where} would be interpolated, more than half"[:400],
        hint=f"take whole bins{at}; with `on_partial_bin: interpolate` in the catalog or the connection it is answered",
    )
    if culprit is None:
        return error
    return error.at("GROUP BY" if culprit in question.groups else "WHERE", culprit.span)


def with_coarse_bins(plan: ViewPlan, release: Release) -> ViewPlan | None:
    """The plan with groups put together that share a bin, where each of them lies in whole bins then.

    Bins of 10,000 and one from 60,000 to 80,000, asked by FLOOR(income / 10000) * 10000, have a group 60,000 that
    counts 70,000 too. A bin that holds a part of a group which goes on in the next bin stays cut.

    Returns:
        None where that leaves a bin cut, where WHERE or a factor cuts it, or where most bins hold several groups.
    """
    cells, coarse = list(plan.cells), dict[int, Mapping[Any, tuple[Any, ...]]]()
    for place, question in enumerate(plan.questions):
        if not cells[place].cut:
            continue
        if len(question.groups) != 1 or question.factors or question.classes:
            return None
        coarser = _groups_together(cells[place], special_leaves(release.axes[question.axis]))
        if coarser is None:
            return None
        cells[place], coarse[place] = coarser
    return replace(plan, cells=tuple(cells), boxes={}, coarse=coarse) if coarse else None


def _groups_together(
    cells: AxisCells, special: Collection[int]
) -> tuple[AxisCells, Mapping[Any, tuple[Any, ...]]] | None:
    """Cells whose cut leaves lie in their first group, and which groups that group counts then; None where a leaf is
    cut by more than groups, a group goes on in another leaf, or most leaves are cut."""
    leaves_of: dict[int, set[int]] = {}
    groups_of: dict[int, list[int]] = {}
    for group, leaf in zip(cells.group.tolist(), cells.leaf.tolist(), strict=True):
        if leaf != cells.open_leaf:
            leaves_of.setdefault(group, set()).add(leaf)
            groups_of.setdefault(leaf, []).append(group)
    total = np.bincount(cells.leaf, cells.coverage, cells.leaves)
    first, cut = np.arange(len(cells.keys)), 0
    for leaf, groups in groups_of.items():
        if len(groups) == 1 and abs(total[leaf] - 1.0) <= NEAR:
            continue
        start, *inside = sorted(groups)
        if leaf in special or abs(total[leaf] - 1.0) > NEAR or any(len(leaves_of[g]) > 1 for g in inside):
            return None
        first[inside] = start
        cut += 1
    if 2 * cut > len(groups_of):
        return None
    keep = first[cells.group] == cells.group
    kept, number = np.unique(cells.group[keep], return_inverse=True)
    counted = {
        cells.keys[start][0]: tuple(
            cells.keys[g][0] for g in np.flatnonzero(first == start).tolist() if g != start
        )
        for start in np.unique(first[first != np.arange(len(first))]).tolist()
    }
    whole = replace(
        cells, keys=tuple(cells.keys[g] for g in kept.tolist()), group=number.reshape(-1).astype(np.int64),
        truths=cells.truths[keep], leaf=cells.leaf[keep],
        coverage=np.where(cells.leaf == cells.open_leaf, cells.coverage, 1.0)[keep],
    )  # fmt: skip
    return whole, counted


def coarse_notes(plan: ViewPlan) -> list[str]:
    """Notes on groups that count others too, since the view has no finer bins."""
    notes = []
    for place, counted in plan.coarse.items():
        words = plan.questions[place].groups[0].words()
        pairs = [
            f"{start} also counts {keys[0]}{f' to {keys[-1]}' if len(keys) > 1 else ''}"
            for start, keys in counted.items()
        ]
        listed = "; ".join(pairs[:EDGES]) + ("; .." if len(pairs) > EDGES else "")
        notes.append(f"{words} is finer than bins of the view {plan.view.name}: {listed}")
    return notes


def _culprits(plan: ViewPlan, place: int) -> Iterator[Expression]:
    """Expressions over an axis: what WHERE cuts first, then what groups cut, then what FILTER cuts."""
    question, cells, mask = plan.questions[place], plan.cells[place], masks(plan.cells[place], None)
    if cells.cut and cells.open_leaf is not None:  # values beyond the bounds cut no bin
        mask[:, cells.run_of(cells.open_leaf)] = 0
    together = mask.sum(axis=0)
    if np.any((together > 0) & (together < 1 - NEAR)):
        yield from (predicate.expression for predicate in question.filters if predicate.expression.columns)
    if np.any((mask > 0) & (mask < 1)):
        yield from question.groups
    yield from (predicate.expression for predicate in question.classes)
    yield from question.groups


def _edges(plan: ViewPlan, place: int, group: int, release: Release) -> str:
    """Starts of the bins that a group cuts and of those after them, and the end of the last one; empty without order.

    Bins are half-open but for the last, so that `x < 36` cuts it where `upper: 36`.
    """
    question = plan.questions[place]
    axis = release.axes[question.axis]
    if not question.columns:
        return ""
    name, largest = (column.name for column in bounds_of(axis, question.columns[0][1]))
    if next(column.type for column in axis.columns if column.name == name) == "VARCHAR":
        return ""
    ends = f"MIN({quoted(name)}), MAX({quoted(largest)})"
    bins = run(release, f"SELECT leaf, {ends} FROM axis_{question.axis} GROUP BY leaf").rows
    starts: Mapping[int, Any] = {leaf: start for leaf, start, _ in bins}
    cells, ordinary = plan.cells[place], axis.leaves - len(special_leaves(axis))
    cut_cells = (cells.group == group) & (cells.coverage < 1)
    cut = np.unique(cells.leaf[cut_cells])
    wanted = sorted({int(leaf) for at in cut for leaf in (at, at + 1) if leaf < ordinary})
    shown = list(dict.fromkeys(str(starts[leaf]) for leaf in wanted if starts.get(leaf) is not None))
    if len(shown) < 2 <= len(wanted):  # months begin at hour 0, each of them: no edge helps
        return ""
    if len(shown) > EDGES:
        return ", ".join(shown[:EDGES]) + ", .."
    last = [end for leaf, _, end in bins if leaf == ordinary - 1 and leaf in cut and end is not None]
    return ", ".join(shown) + (f" (the last holds {last[0]}, where it ends)" if last else "")


def interpolated(plan: ViewPlan, terms: Sequence[Term], release: Release) -> dict[int, tuple[int, float]]:
    """The cut axes of a plan, over all groups and conditions; OTHER is no bin.

    Args:
        plan: the plan.
        terms: what it answers.
        release: an open release.

    Returns:
        Position of an axis in the view -> bins of which a part is taken, and the part of all that is taken on this axis
        which lies in them, counted in bins.
    """
    cut_axes = {}
    for axis, taken in _cut_masks(plan, terms):
        bins, cells = [mask.copy() for mask in taken], plan.cells[axis]
        other = release.axes[plan.view.axes[axis]].other_leaf
        for mask in bins:
            mask[:, cells.run_of([] if other is None else [other])] = 0.0
        partly = [(mask > 0) & (mask < 1) for mask in bins]
        leaves = {int(leaf) for cut_mask in partly for leaf in np.nonzero(cut_mask)[1]}
        if leaves:
            inside = sum(float(mask[cut_mask].sum()) for mask, cut_mask in zip(bins, partly, strict=True))
            total = sum(float((mask * cells.widths).sum()) for mask in taken)
            cut_axes[axis] = len(leaves), inside / total
    return cut_axes


def _cut_masks(plan: ViewPlan, terms: Sequence[Term]) -> Iterator[tuple[int, list[FloatArray]]]:
    """Positions of axes of which a leaf is cut, with what each condition takes of them."""
    boxes = {box for term in terms for box in plan.boxes_of(term.condition)}
    for axis, cells in enumerate(plan.cells):
        if cells.uncertain:
            yield axis, [masks(cells, truths) for truths in {box[axis] for box in boxes}]


def unlisted_axes(plan: ViewPlan, terms: Sequence[Term], release: Release) -> list[str]:
    """Names of axes whose values outside of the domain may be meant or not; of numbers and times, where some are seen:
    their rows are more than twice their standard error."""
    names = []
    for position, taken in _cut_masks(plan, terms):
        number = plan.view.axes[position]
        leaf = release.axes[number].other_leaf
        if leaf is None:
            continue
        outside = [mask[:, plan.cells[position].run_of(leaf)] for mask in taken]
        if any(np.any((mask > 0) & (mask < 1)) for mask in outside):
            seen = other_count(release, plan.view, position) if is_bounded(release, number) else None
            if seen is None or seen.value > 2 * seen.stderr:
                names.append(release.axes[number].name)
    return names


def cut_notes(
    plan: ViewPlan, terms: Sequence[Term], cuts: Mapping[Term, CutMass], release: Release
) -> list[str]:
    """The same in words: which axes, and how far counts and sums may be off in the group that is off most."""
    cut, mixed = interpolated(plan, terms, release), mixed_axes(plan, terms, release)
    unlisted = unlisted_axes(plan, terms, release)
    if not (cut or mixed or unlisted) or not terms:
        return []
    names = {axis: release.axes[plan.view.axes[axis]].name for axis in cut}
    axes = ", ".join(f"{bins} bin{'s' * (bins > 1)} of {names[axis]}" for axis, (bins, _) in cut.items())
    why = [f"{axes} cut: interpolating them"] if axes else []
    why += [f"rows of unlisted values of {name}, which may be meant or not," for name in unlisted]
    why += [f"bins of {mixed} have several values: spreading these evenly"] if mixed else []
    most_by_term: dict[str, float] = {}
    for term in terms:
        largest = float(np.max(cuts[term].most, initial=0.0))
        most_by_term[str(term)] = max(most_by_term.get(str(term), 0.0), largest)
    each = ", ".join(
        f"{measure} by an unknown amount" if value != value else f"{measure} by up to {value:.4g}"
        for measure, value in most_by_term.items()
        if value != 0
    )
    return [f"{', '.join(why)} may shift {each}; intervals include it"] if each else []


def mixed_axes(plan: ViewPlan, terms: Sequence[Term], release: Release) -> str:
    """Names of axes over which rows are multiplied by what differs inside of a bin; empty where there are none."""
    return ", ".join(dict.fromkeys(release.axes[plan.view.axes[at]].name for at in _mixed(plan, terms)))


def _mixed(plan: ViewPlan, terms: Sequence[Term]) -> list[int]:
    """Positions of these axes in the view."""
    weighed = {
        (at, taken)
        for term in terms
        if term.factor is not None
        for box in plan.boxes_for(term)
        for at, taken in enumerate(box)
        if isinstance(taken, WeightedValues)
    }
    mixed = []
    for at, taken in sorted(weighed, key=repr):
        ends, uncut = reach(plan.cells[at], taken), masks(plan.cells[at], taken.truths) == 1.0
        if np.any(uncut & (ends.low < ends.high)):
            mixed.append(at)
    return mixed


FINER = 10
"""Leaves of a finer view that a note proposes, for each leaf of the view that answered."""


def finer_note(plan: ViewPlan, block: Block, terms: Sequence[Term], release: Release) -> str:
    """Note of a view or catalog line that would answer more finely where interpolation is more than half of an
    answer.

    Args:
        plan: the plan.
        block: the question.
        terms: what the plan answers.
        release: an open release.

    Returns:
        A clause that names a view with more leaves and what it lacks, or the line of YAML that gives one.
    """
    cut = {*interpolated(plan, terms, release), *_mixed(plan, terms)}
    coarse = {plan.view.axes[place]: release.axes[plan.view.axes[place]] for place in cut}
    places = {
        (axis.path, axis.table, axis.columns[0].column): axis for axis in coarse.values() if axis.columns
    }
    finer = [
        name
        for name, axes in {(s.view, s.axes) for s in release.statistics if s.of == plan.view.of}
        if name != plan.view.name and places and all(
            any((a.path, a.table, a.columns[0].column) == place and a.leaves > axis.leaves
                for a in map(release.axes.__getitem__, axes) if a.columns)
            for place, axis in places.items()
        )
    ]  # fmt: skip
    if finer:
        return f"the view {min(finer)} has finer bins, for questions that it can answer"

    def width(table: str, column: str) -> str:
        axis = next((axis for _, owner, name in places if (owner, name) == (table, column)
                     for axis in [places[_, owner, name]]), None)  # fmt: skip
        spec = release.catalog.tables[table].columns.get(column)
        return "" if axis is None or spec is None or spec.lower is None else finer_width(spec, axis.leaves)

    line = wanted_view(block, terms, release.catalog, width)
    return f"ask the curator for the view `{line}`" if "cuts:" in line else ""


def finer_width(column: Column, leaves: int) -> str:
    """A width of leaves some ten times as fine as an axis's, as YAML; empty where no width is finer.

    >>> score = Column(type="int", lower="0", upper="100")
    >>> finer_width(score, 2), finer_width(score, 101)
    ('5', '')
    """
    low, high = column.bounds
    spread = high - low + 1
    if column.type in ("date", "timestamp"):
        for width in CALENDAR_WIDTHS:
            with suppress(ValueError):  # finer than the column
                starts = len(bin_starts(column, Cuts.model_validate({"width": width})))
                if starts >= FINER * leaves or width == CALENDAR_WIDTHS[-1]:
                    return width if starts > leaves else ""
        return ""
    most = max(spread // (FINER * leaves), 1)
    step = max(
        unit * 10**power for power in range(len(str(most))) for unit in (1, 2, 5) if unit * 10**power <= most
    )
    return format(Decimal(step).scaleb(-column.digits), "f") if spread // step > leaves else ""


CALENDAR_WIDTHS = ("year", "quarter", "month", "week", "day", "hour", "minute")
"""Words for widths of leaves of days and times, the widest first."""
