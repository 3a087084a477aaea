"""Counts of reports per view and fold of people, and what each kind of view makes of people's rows.

Tallies are all that estimation ever sees. The kinds are the collector's halves of `dpsql.client.plan`: for planning
and tests they draw items of many people at once, following the client's steps (slot, row, measure bit, or even item).

**Privacy**: draws made here protect nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.client.plan import Plan, View, states
from dpsql.errors import InternalError
from dpsql.local.mechanisms.blue import cell_design
from dpsql.local.mechanisms.truncation import ValueWithError
from dpsql.local.oracles import SquareWaveAggregator, oracle_named, wave_matrix
from dpsql.local.oracles.oracle import FloatArray, Oracle, estimate, variance

IntArray = NDArray[np.int64]
FOLDS = 4
"""Folds of people, for choosing how smooth a histogram is by held-out people."""


@dataclass(frozen=True)
class ViewTally:
    """Counts of one view.

    Args:
        support: reports that support each cell of the oracle, shape (folds, cells).
        reports: reports per fold, shape (folds,).
    """

    support: IntArray
    reports: IntArray

    @property
    def total(self) -> int:
        return int(self.reports.sum())


def oracle_of(plan: Plan, view: View) -> Oracle:
    """The view's oracle."""
    return oracle_named(view.oracle, view.domain, plan.own, view.extra)


@dataclass(frozen=True)
class CountedCollection:
    """A plan and the counts of its accepted reports.

    Args:
        plan: the plan that people answered.
        tallies: of each of its views.
    """

    plan: Plan
    tallies: Sequence[ViewTally]

    @property
    def accepted(self) -> int:
        return sum(tally.total for tally in self.tallies)

    def oracle(self, number: int) -> Oracle:
        return oracle_of(self.plan, self.plan.views[number])

    def shares(self, number: int, folds: Sequence[int] = range(FOLDS)) -> FloatArray:
        """Unbiased shares of a view's items from some folds."""
        tally, folds = self.tallies[number], list(folds)
        support = tally.support[folds].sum(axis=0).astype(np.float64)
        return estimate(self.oracle(number), support, float(max(tally.reports[folds].sum(), 1)))


def empty_collection(plan: Plan) -> CountedCollection:
    """Zero counts for every view."""
    widths = [oracle_of(plan, view).width for view in plan.views]
    zeros = [ViewTally(np.zeros((FOLDS, n), dtype=np.int64), np.zeros(FOLDS, dtype=np.int64)) for n in widths]
    return CountedCollection(plan, zeros)


@dataclass(frozen=True)
class RespondentRows:
    """Rows of many people, sorted by person.

    Args:
        first: index of each person's first row, and one past the last row at the end, shape (people + 1,).
        leaves: leaf per row and axis, shape (rows, axes).
        measures: integer per row and measure, shape (rows, measures).
    """

    first: IntArray
    leaves: IntArray
    measures: IntArray

    @property
    def count(self) -> int:
        return self.first.size - 1

    def rows(self, who: IntArray) -> IntArray:
        """Number of rows of some people."""
        return np.asarray(self.first[who + 1] - self.first[who])


class AxisItems(NamedTuple):
    """Items of a view about one axis.

    Args:
        design: share of each cell as a linear function of leaves (and of "no row" at the end), shape (cells, leaves).
        items: the cells as sums of the view's items, shape (cells, items).
    """

    design: FloatArray
    items: FloatArray


class ItemLayout(NamedTuple):
    """Layout of a view's items.

    Args:
        rows: per cell, a row; with a measure, a row and bit 0.
        bits: per cell, a row and a measure's bit 1; None without a measure.
        silent: no row.
    """

    rows: IntArray
    bits: IntArray | None
    silent: IntArray


@dataclass(frozen=True)
class TallyKind:
    """One way of asking, as its collector sees it.

    Args:
        name: what plans call it.
        draw: from plan, view, people and who of them is asked to each person's item; the domain itself is the "no row"
            that the oracle perturbs.
        along: from plan, view and one of its axes to what its items say of it; with a measure, of that one's values in
            half-ranges. None where they say nothing.
        rows_between: mean rows of a person beyond the first and up to the second of a view's two numbers of rows,
            by its reports; None where they do not tell.
        histogram: whether its reports are a histogram of people's numbers of rows.
        layout: from a view to what its items say; None where they are not cells of a table.
        filled: share of people whose bit is 1, by its reports; None where they do not tell.
        stretch: what shares of its items are multiplied by, from the share of people whose bit is 1. A row that stands
            for all of a person's is divided by it: cells are then shares of all rows.
        one_row_each: whether its items also tell where one uniform row of each person lies.
    """

    name: str
    draw: Callable[[Plan, View, RespondentRows, IntArray, np.random.Generator], IntArray]
    along: Callable[[Plan, View, int, int | None], AxisItems | None] = lambda plan, view, axis, measure: None
    rows_between: Callable[[CountedCollection, int], ValueWithError | None] = lambda collection, number: None
    histogram: bool = False
    layout: Callable[[View], ItemLayout | None] = lambda view: None
    filled: Callable[[CountedCollection, int], ValueWithError | None] = lambda collection, number: None
    stretch: Callable[[ValueWithError], ValueWithError] = lambda filled: ValueWithError(1.0, 0.0)
    one_row_each: bool = False


def _slot_items(
    plan: Plan,
    view: View,
    people: RespondentRows,
    who: IntArray,
    rng: np.random.Generator,
    cells_of: Callable[[View, IntArray], IntArray],
) -> IntArray:
    """The cell of a slot's row, or "no row"."""
    rows = people.rows(who)
    filled = rng.integers(0, plan.tau, size=who.size) < rows
    silent = view.asks.silent
    items = np.full(who.size, view.domain if silent else view.domain - 1, dtype=np.int64)
    if not view.empty and not silent:
        items[~filled] = rng.integers(0, view.domain, size=who.size - int(filled.sum()))
    row = people.first[who[filled]] + rng.integers(0, rows[filled])
    cell = cells_of(view, people.leaves[row][:, list(view.axes)])
    if view.measure is not None:
        cell = cell + view.cells * _measure_bits(plan, view.measure, people.measures[row, view.measure], rng)
    items[filled] = cell
    return items


def _measure_bits(plan: Plan, number: int, values: IntArray, rng: np.random.Generator) -> IntArray:
    """1 as likely as a clamped value is far from the measure's lower bound to its upper one."""
    bounds = plan.measures[number]
    above = np.clip(values, bounds.lower, bounds.upper) - bounds.lower
    drawn = rng.integers(0, bounds.upper - bounds.lower, size=values.size)
    return np.asarray(drawn < above, dtype=np.int64)


def _grid_cells(view: View, leaves: IntArray) -> IntArray:
    cell = np.zeros(len(leaves), dtype=np.int64)
    for position, edges in enumerate(view.edges):
        cell = cell * (len(edges) - 1) + np.searchsorted(edges, leaves[:, position], side="right") - 1
    return cell


def _boxes(view: View, leaves: IntArray) -> IntArray:
    boxes = np.array(view.boxes, dtype=np.int64).reshape(len(view.boxes), -1, 2)
    return enclosing(np.stack([leaves, leaves + 1], axis=2), boxes)


def enclosing(fine: IntArray, coarse: IntArray) -> IntArray:
    """For each fine box, the coarse box that holds it."""
    covers = (coarse[None, :, :, 0] <= fine[:, None, :, 0]) & (fine[:, None, :, 1] <= coarse[None, :, :, 1])
    return np.asarray(np.argmax(covers.all(axis=2), axis=1), dtype=np.int64)


def _weighted_row(
    plan: Plan, view: View, people: RespondentRows, who: IntArray, rng: np.random.Generator
) -> IntArray:
    """The cell of an own row, and a bit for how many there are; any cell alike without one."""
    rows = people.rows(who)
    items = states(view) * rng.integers(0, view.cells, size=who.size)
    has = rows > 0
    row = people.first[who[has]] + rng.integers(0, rows[has])
    bits = (rng.integers(0, plan.tau, size=row.size) < rows[has]).astype(np.int64)
    if view.measure is not None:
        bits += bits * _measure_bits(plan, view.measure, people.measures[row, view.measure], rng)
    items[has] = states(view) * _grid_cells(view, people.leaves[row][:, list(view.axes)]) + bits
    return items


def _bit_of_rows(
    plan: Plan, view: View, people: RespondentRows, who: IntArray, rng: np.random.Generator
) -> IntArray:
    """1 as likely as the number of rows is far from the first to the second of the view's two."""
    floor, cap = view.rows
    count = np.clip(people.rows(who), floor, cap) - floor
    draw = rng.integers(0, cap - floor, size=who.size)
    return np.asarray(draw < count, dtype=np.int64)


def _rows_by_bits(collection: CountedCollection, number: int) -> ValueWithError | None:
    """Rows between the view's two numbers, by the share of ones."""
    reports = collection.tallies[number].total
    if not reports:
        return None
    up, (floor, cap) = collection.shares(number), collection.plan.views[number].rows
    noise = variance(collection.oracle(number), np.clip(up, 0, 1), float(reports))
    return ValueWithError(float(up[1]) * (cap - floor), float(np.sqrt(noise[1])) * (cap - floor))


def _filled_within(collection: CountedCollection, number: int) -> ValueWithError | None:
    """E min(r, tau) / tau by people who report their rows up to tau."""
    plan, (floor, cap) = collection.plan, collection.plan.views[number].rows
    rows = _rows_by_bits(collection, number) if (floor, cap) == (plan.rows_floor, plan.tau) else None
    return None if rows is None else ValueWithError((floor + rows.value) / cap, rows.error / cap)


def _filled_bits(collection: CountedCollection, number: int) -> ValueWithError | None:
    """The share of items with a bit."""
    view, reports = collection.plan.views[number], collection.tallies[number].total
    if not reports:
        return None
    item_shares, counted = collection.shares(number), np.ones(view.domain)
    counted[_weighted_layout(view).silent] = 0.0
    structure = collection.oracle(number).structure(np.clip(item_shares, 0, 1))
    noise = float(counted**2 @ structure.diagonal - (counted @ structure.tilt) ** 2) / reports
    return ValueWithError(float(counted @ item_shares), float(np.sqrt(noise)))


def _slot_layout(view: View) -> ItemLayout:
    """Cells, cells again with the measure's bit, "no row" last."""
    cells = np.arange(view.cells)
    silent_start = view.cells * (1 if view.measure is None else 2)
    bits = None if view.measure is None else cells + view.cells
    return ItemLayout(cells, bits, np.arange(silent_start, view.domain))


def _weighted_layout(view: View) -> ItemLayout:
    """The states of each cell side by side."""
    first = np.arange(view.cells) * states(view)
    return ItemLayout(first + 1, None if view.measure is None else first + 2, first)


def layout_of(view: View) -> ItemLayout:
    """Item layout of a view of cells.

    Raises:
        InternalError: a view that asks something else.
    """
    layout = kind_of(view).layout(view)
    if layout is None:
        raise InternalError(f"a view of {view.kind} has no cells")
    return layout


def _margin_along(plan: Plan, view: View, axis: int, measure: int | None) -> AxisItems | None:
    """A grid's margin: both bits of a cell count rows, bit 1 minus bit 0 is a measure."""
    if measure not in (None, view.measure):
        return None
    place, sizes = view.axes.index(axis), [len(edges) - 1 for edges in view.edges]
    design, layout = cell_design(view.edges[place], plan.axes[axis].leaves), layout_of(view)
    inside = (np.indices(sizes)[place].ravel() == np.arange(sizes[place])[:, None]).astype(np.float64)
    items = np.zeros((sizes[place], view.domain))
    items[:, layout.rows] = inside if measure is None else -inside
    if layout.bits is not None:
        items[:, layout.bits] = inside
    if measure is not None or not any(view.empty for view in plan.views):
        return AxisItems(design, items)
    silence = np.isin(np.arange(view.domain), layout.silent).astype(np.float64)
    padded = np.pad(design, ((0, 1), (0, 1)))
    padded[-1, -1] = 1.0
    return AxisItems(padded, np.vstack([items, silence]))


def _blur_along(plan: Plan, view: View, axis: int, measure: int | None) -> AxisItems | None:
    """Square Wave's bins; whoever has no row draws bins evenly."""
    if measure is not None:
        return None
    blur = wave_matrix(SquareWaveAggregator(view.domain, plan.own, view.extra))
    even = np.full((len(blur), int(any(view.empty for view in plan.views))), 1 / len(blur))
    return AxisItems(np.hstack([blur, even]), np.eye(len(blur)))


_cell_of_slot = partial(_slot_items, cells_of=_grid_cells)
KINDS = (
    TallyKind("grid", _cell_of_slot, _margin_along, layout=_slot_layout),
    TallyKind(
        "weighted",
        _weighted_row,
        _margin_along,
        layout=_weighted_layout,
        filled=_filled_bits,
        stretch=lambda filled: ValueWithError(1 / filled.value, filled.error / filled.value**2),
        one_row_each=True,
    ),
    TallyKind("boxes", partial(_slot_items, cells_of=_boxes)),
    TallyKind("wave", _cell_of_slot, _blur_along),
    TallyKind(
        "rows",
        lambda plan, view, people, who, rng: np.minimum(people.rows(who), plan.rows_cap),
        histogram=True,
    ),
    TallyKind("rows_bit", _bit_of_rows, rows_between=_rows_by_bits, filled=_filled_within),
)


def kind_of(view: View) -> TallyKind:
    """Kind of question of a view.

    Raises:
        InternalError: something that has no half here.
    """
    for kind in KINDS:
        if kind.name == view.kind:
            return kind
    raise InternalError(f"no view asks {view.kind!r}", hint="use the version that wrote the plan")
