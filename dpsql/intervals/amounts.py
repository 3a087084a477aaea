"""Rows along an amount's own axis, where people who spend much weigh less: how far their counts may be off.

Under `max_ids: auto` a person's weight falls with her rows and with her sums. So rows of large amounts are in the hands
of people who weigh less than others, and one factor R leaves `WHERE amount > 500` too low. What weights left out is
known in all: L rows, and amounts of M. With Y the weighted rows of leaves that begin at a, and Y+ those from a on,

    rows that weights left out, from a on     X+ <= min(L, M / a)             they add up to no more than M
    of a leaf                                 X  <= X+ Y / Y+                 (*)
    rows                                      Y <= T <= Y + X                 R Y is the estimate

    mean of a sum over some rows              between R_S / R times the shown one, the estimate, and the shown one

(*) holds where the part that weights left out does not fall along the axis: whoever weighs less has the dearer rows. Of
all rows nothing is off but the scale, and of the leaves from a on up to the last R Y is too low, not too high.

| here | there | unit |
|---|---|---|
| `_Amounts.rows`, `.amount` | L, M | rows, units of the measure |
| `_Amounts.starts` | a: least value of each leaf | units of the measure |
| `_Amounts.seen` | Y by leaf | rows |
| `_Amounts.error` | standard error of M upwards | units of the measure |

**Privacy**: published values alone.
**Source**: docs/method/user_level.md, "An amount's own axis".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.catalog.graph import is_count, sums_rows
from dpsql.executor.recombine import rows_term
from dpsql.executor.run import run
from dpsql.intervals.estimated import ErrorComponents
from dpsql.intervals.linear import MeasuredTerm, Weights
from dpsql.planner.axis_query import FloatArray, IntArray, WeightedValues, masks, special_leaves
from dpsql.planner.terms import Condition
from dpsql.release import Release, StatisticMeta
from dpsql.release.format import ScaleMeta
from dpsql.row_expressions import identifier as quoted

ROWS = 1 << 40
"""More than the rows of any block's answers."""


class _Amounts(NamedTuple):
    """Amounts that weights left out of a table along the axis of one of its measures."""

    factor: float
    rows: float
    amount: float
    error: float
    starts: FloatArray
    seen: FloatArray


class _Moved(NamedTuple):
    """Reach of the rows of one place, line by line."""

    number: IntArray
    place: IntArray
    up: FloatArray
    down: FloatArray
    error: FloatArray


def reach_of_amounts(terms: Mapping[MeasuredTerm, Weights], numbers: int) -> ErrorComponents | None:
    """Bias bound of one table's numbers along the axes of its measures; None where they are not along any.

    Counts and sums of the same rows move together, so an average of theirs does not move with their number.
    """
    conditions: dict[tuple[int, Condition], int] = {}
    lines = []
    for key, weights in terms.items():
        place = amount_axis(key)
        if place is not None:
            condition = conditions.setdefault((key.block, key.term.condition), len(conditions))
            lines.append(_moved(key, place, condition, weights))
    if not lines:
        return None
    joined = _Moved(*(np.concatenate(column) for column in zip(*lines, strict=True)))
    places, back = np.unique(np.stack([joined.number, joined.place]), axis=1, return_inverse=True)
    back, number = back.reshape(-1), places[0]
    up, down, error = (
        np.bincount(back, side, places.shape[1]) for side in (joined.up, joined.down, joined.error)
    )

    def added(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(number, values, numbers), np.float64)

    high = added(np.maximum(up, 0.0) + np.maximum(-down, 0.0))
    low = -added(np.maximum(-up, 0.0) + np.maximum(down, 0.0))
    raised, lowered = (added(np.maximum(sign * error, 0.0)) ** 2 for sign in (1.0, -1.0))
    none = np.zeros(numbers)
    return ErrorComponents(none, none, lowered, raised, low, high)


def amount_axis(key: MeasuredTerm) -> int | None:
    """The position of an axis on which a view's table has a measure of its own, with a scale; None without one."""
    release, view = key.answered.errors.release, key.answered.plan.view
    scale = release.scales.get(view.of)
    if scale is None or not sums_rows(key.term.measure):
        return None
    scaled = {measured.measure for measured in scale.measures}
    for position, axis in enumerate(view.axes):
        meta = release.axes[axis]
        if not meta.path and meta.columns and f"{meta.table}.{meta.columns[0].column}" in scaled:
            return position
    return None


def _moved(key: MeasuredTerm, at: int, condition: int, weights: Weights) -> _Moved:
    """Rows that a term's may be too few or too many by, times the derivative and the mean value of a row."""
    plan, errors, term = key.answered.plan, key.answered.errors, key.term
    count = plan.view.statistics.get("count")
    counting = rows_term(plan, term)
    none = np.zeros(len(weights.cell))
    amounts = None if count is None else _amounts(errors.release, count, plan.view.axes[at], plan.view.of)
    if amounts is None or counting is None or counting not in key.answered.totals or count is None:
        return _Moved(weights.number, condition * ROWS + weights.cell, none, none, none)
    rows = key.answered.totals[counting]
    boxes = plan.boxes_for(counting)
    variance = sum((errors.product(count.id, box, box).noise for box in boxes), np.zeros(errors.rows))
    noise = np.sqrt(np.maximum(variance, 0.0)) + 1e-9
    taken = sum((_leaves(key, at, box[at]) for box in boxes), np.zeros((1, 1))) > 0
    runs = _runs(amounts, taken).of_rows(errors.index[at])
    share = np.clip((rows + noise) / (np.maximum(amounts.factor * runs.onwards, 0.0) + noise), 0.0, 1.0)
    beyond = (amounts.factor - 1.0) / amounts.factor * np.maximum(rows, 0.0)
    up = np.where(runs.complete, 0.0, np.maximum(share * runs.hidden - beyond, 0.0))
    down = np.where(runs.complete | runs.tail, 0.0, np.minimum(beyond, runs.shortfall))
    value = np.ones(len(rows))
    if not is_count(term.measure) or term.factor is not None:
        value = key.answered.totals[term] / np.maximum(rows, noise)
    slope, cell = weights.weight * value[weights.cell], weights.cell
    off = np.where(runs.complete, 0.0, share * runs.error)
    place = condition * ROWS + cell
    counted = _Moved(weights.number, place, slope * up[cell], slope * down[cell], slope * off[cell])
    relative = errors.release.scales[plan.view.of].measure(term.measure).factor / amounts.factor
    if is_count(term.measure) or relative == 1.0:
        return counted
    # The sum's own factor is that of all rows: of some, the mean value may be the one that weights show.
    factored = weights.weight * np.where(runs.complete, 0.0, key.answered.totals[term])[cell]
    raised, lowered = factored * max(0.0, 1.0 / relative - 1.0), factored * max(0.0, 1.0 - 1.0 / relative)
    shown = _Moved(weights.number, -1 - place, raised, lowered, np.zeros(len(cell)))
    return _Moved(*(np.concatenate(column) for column in zip(counted, shown, strict=True)))


def _leaves(key: MeasuredTerm, at: int, taken: object) -> FloatArray:
    """Coverage of an axis's leaves by a box, group by group."""
    plan = key.answered.plan
    truths = taken.truths if isinstance(taken, WeightedValues) else taken
    return masks(plan.cells[at], truths)  # type: ignore[arg-type]


class _Runs(NamedTuple):
    """Groups' runs of leaves, of each the one that may be off most; arrays of shape (groups,).

    Args:
        onwards: Y+ from where the run begins.
        hidden, error: X+ from there, and its standard error upwards.
        tail: whether the group is one run up to the last leaf.
        shortfall: by how much R Y+ is too low at most from the leaf after a group that is one run from the first leaf;
            infinite for other groups.
        complete: whether it has all leaves, or none.
    """

    onwards: FloatArray
    hidden: FloatArray
    error: FloatArray
    shortfall: FloatArray
    tail: npt.NDArray[np.bool_]
    complete: npt.NDArray[np.bool_]

    def of_rows(self, groups: IntArray) -> _Runs:
        """The runs of each row's group."""
        return _Runs(
            self.onwards[groups], self.hidden[groups], self.error[groups], self.shortfall[groups], self.tail[groups],
            self.complete[groups],
        )  # fmt: skip


def _runs(amounts: _Amounts, taken: npt.NDArray[np.bool_]) -> _Runs:
    """The runs of groups that take these leaves, shape (groups, leaves)."""
    order = np.argsort(amounts.starts, kind="stable")[: int(np.isfinite(amounts.starts).sum())]
    inside, starts = taken[:, order], amounts.starts[order]
    onwards = np.cumsum(amounts.seen[order][::-1])[::-1]
    with np.errstate(divide="ignore"):
        by_amount = np.where(starts > 0, amounts.amount / starts, np.inf)
        error = np.where(starts > 0, amounts.error / starts, 0.0)
    hidden = np.minimum(by_amount, amounts.rows)
    error = np.where(by_amount < amounts.rows, error, 0.0)  # that of the number of rows is the scale's
    begins = inside & ~np.pad(inside, ((0, 0), (1, 0)))[:, :-1]
    ratio = np.where(begins, hidden / np.maximum(onwards, 1.0), -np.inf)
    at = np.argmax(ratio, axis=1)
    single = begins.sum(axis=1) == 1
    complete = np.asarray(~inside.any(axis=1) | inside.all(axis=1))
    end = np.minimum(inside.sum(axis=1), len(order) - 1)  # the leaf after a run from the first one
    low = np.maximum(hidden + error - (amounts.factor - 1.0) * onwards, 0.0)[end]
    shortfall = np.where(single & inside[:, 0], low, np.inf)
    return _Runs(onwards[at], hidden[at], error[at], shortfall, single & inside[:, -1], complete)


def _amounts(release: Release, count: StatisticMeta, axis: int, of: str) -> _Amounts | None:
    """Amounts left out along an axis; None where values have both signs, or where an error has no end."""
    return release.kept(("amounts", count.id, axis), lambda: _read_amounts(release, count, axis, of))


def _read_amounts(release: Release, count: StatisticMeta, axis: int, of: str) -> _Amounts | None:
    meta, scale = release.axes[axis], release.scales[of]
    measure = f"{meta.table}.{meta.columns[0].column}"
    rows, amount = scale.measure(""), scale.measure(measure)
    total = _total(release, scale, measure)
    if rows.error.up is None or amount.error.up is None or total is None:
        return None
    name = quoted(meta.columns[0].name)
    lows = dict(run(release, f"SELECT leaf, MIN({name}) FROM axis_{axis} WHERE kind = 0 GROUP BY leaf").rows)
    starts = np.full(meta.leaves, np.inf)
    starts[list(lows)] = [float(low) for low in lows.values()]
    starts[list(special_leaves(meta))] = np.inf
    if not np.any(np.isfinite(starts)) or starts.min() < 0:
        return None
    where = " AND ".join(f"n{i + 1} = {0}" for i, other in enumerate(count.axes) if other != axis)
    column = f"n{count.axes.index(axis) + 1}"
    sql = f"SELECT {column}, {release.estimate(count.id)} FROM node_combination_{count.id} WHERE {where or 'true'}"
    by_node = dict(run(release, sql).rows)
    nodes = release.tree(axis).leaves.tolist()
    counts = count.in_units(np.array([by_node[node] for node in nodes], np.float64))
    factor = max(rows.factor, 1.0)
    number = float(max(scale.rows, 0))
    return _Amounts(
        factor, number * (1.0 - 1.0 / factor), total * max(0.0, 1.0 - 1.0 / max(amount.factor, 1.0)),
        total * amount.error.up, starts, np.maximum(counts, 0.0) / factor,
    )  # fmt: skip


def _total(release: Release, scale: ScaleMeta, measure: str) -> float | None:
    """The published sum of a measure over all rows; None where no view sums it."""
    summed = next((s for s in release.statistics if s.of == scale.of and s.measure == measure), None)
    if summed is None:
        return None
    where = " AND ".join(f"n{i + 1} = 0" for i in range(len(summed.axes))) or "true"
    ((root,),) = run(release, f"SELECT estimate FROM node_combination_{summed.id} WHERE {where}").rows
    centred = float(summed.in_units(np.array([root], np.float64))[0])
    return max(0.0, (centred + summed.mid * max(scale.rows, 0)) / 10.0**summed.scale)
