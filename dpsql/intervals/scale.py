"""Errors beyond noise where shapes were scaled to totals: scale, spread and tail.

| part | what it is | who shares it |
|---|---|---|
| scale | noise of the total that shapes are scaled to | all counts and sums of a measure |
| spread | groups whose people own more or less than others | questions about the same groups |
| tail | rows of the few who own most, above every bound; longer on the side of more | all of them |
| shift | estimated bias from a declared bound (`dpsql.intervals.excess`, `excess`) | all of a table |

A question asks for a part F of the n_0 rows and answers n, with average A; P people, q the quantile of tau:

| part | COUNT | SUM | AVG |
|---|---|---|---|
| noise | R_N^2 var c | R_S^2 (var y + mid^2 var c) | [R_S^2 var y + (R_S mid - A R_N)^2 var c] / n^2 |
| scale and tail | (n rel_N)^2 | (S rel_S)^2 | A^2 rel_A^2 |
| spread | P_c | P_y + A^2 P_c | P_y / n^2 |

    U = max(0, 1 - 1 / R_N) n_0,   H = max(1, (1 - q) P / 2)
    P_c = (1.2 U F (1 - F))^2 + U^2 F (1 - F) / H,   P_y = P_c (spread of a value)^2

Noise is of the part F alone. Two things cannot be covered: rows in the hands of fewer people than noise can show, and
groups that only the heaviest own.

An answer is a form of counts and sums, so it changes by its derivatives: with C and S the part of an answer's
derivative that follows a count's or a sum's own size,

    scale      C^2 rel_N^2 + S^2 rel_S^2 + 2 C S (rel_N^2 + rel_S^2 - rel_A^2) / 2
    spread     of the counts and centred sums that it reads; a count moves a sum by the average A of its rows

so that an average has A^2 rel_A^2 and what its centred sum has, and a share of a total has no scale at all.

An error without an upper end (`RelativeError.up` is None) opens an end of each answer that rows could move that way.
What was never measured is no common factor: rows that noise hides may all be of one group, so they never cancel. A
count may grow, a difference may go both ways, a share and an average as far as their values allow
(`dpsql.intervals.possible`). Noise may turn the sign of a total; rows cannot, where the catalog declares
values of one sign. The variance of an open end is infinite.

**Privacy**: published values alone.
**Source**: docs/method/rows.md, "Intervals that cover the exact answer".

Rows along an amount's own axis, where people who spend much weigh less: how far their counts may be off.

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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.catalog.base import COUNT
from dpsql.executor.recombine import TermEstimates, rows_term
from dpsql.executor.run import run
from dpsql.intervals import excess
from dpsql.intervals.errorfunctions import ErrorComponents
from dpsql.intervals.linear import (
    BoxStatistic,
    LinearNumbers,
    MeasuredTerm,
    Weights,
    covariance,
    joined_lines,
)
from dpsql.intervals.possible import moves
from dpsql.intervals.reads import value_bounds
from dpsql.planner.axis_query import NEAR, FloatArray, IntArray, special_leaves
from dpsql.planner.plan import presence
from dpsql.planner.schema import Condition, Term
from dpsql.release import Release, StatisticMeta
from dpsql.release.format import MeasureScale, RelativeError, ScaleMeta
from dpsql.release.reports import UNDECLARED_ROWS
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
    if scale is None or not key.term.measure.sums_rows:
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
    count = plan.view.statistics.get(COUNT)
    counting = rows_term(plan, term)
    none = np.zeros(len(weights.cell))
    amounts, axis = None, plan.view.axes[at]
    if count is not None:
        read = partial(_amounts, errors.release, count, axis, plan.view.of)
        amounts = errors.release.kept(("amounts", count.id, axis), read)
    if amounts is None or counting is None or counting not in key.answered.totals or count is None:
        return _Moved(weights.number, condition * ROWS + weights.cell, none, none, none)
    rows = key.answered.totals[counting]
    boxes = plan.boxes_for(counting)
    variance = sum((errors.product(count.id, box, box).noise for box in boxes), np.zeros(errors.rows))
    noise = np.sqrt(np.maximum(variance, 0.0)) + 1e-9
    taken = sum((plan.box_masks(box)[at] for box in boxes), np.zeros((1, 1))) > 0
    runs = _runs(amounts, taken).of_rows(errors.index[at])
    share = np.clip((rows + noise) / (np.maximum(amounts.factor * runs.onwards, 0.0) + noise), 0.0, 1.0)
    beyond = (amounts.factor - 1.0) / amounts.factor * np.maximum(rows, 0.0)
    up = np.where(runs.complete, 0.0, np.maximum(share * runs.hidden - beyond, 0.0))
    down = np.where(runs.complete | runs.tail, 0.0, np.minimum(beyond, runs.shortfall))
    value = np.ones(len(rows))
    if not term.measure.is_count or term.factor is not None:
        value = key.answered.totals[term] / np.maximum(rows, noise)
    slope, cell = weights.weight * value[weights.cell], weights.cell
    off = np.where(runs.complete, 0.0, share * runs.error)
    place = condition * ROWS + cell
    counted = _Moved(weights.number, place, slope * up[cell], slope * down[cell], slope * off[cell])
    relative = errors.release.scales[plan.view.of].measure(term.measure).factor / amounts.factor
    if term.measure.is_count or relative == 1.0:
        return counted
    # The sum's own factor is that of all rows: of some, the mean value may be the one that weights show.
    factored = weights.weight * np.where(runs.complete, 0.0, key.answered.totals[term])[cell]
    raised, lowered = factored * max(0.0, 1.0 / relative - 1.0), factored * max(0.0, 1.0 - 1.0 / relative)
    shown = _Moved(weights.number, -1 - place, raised, lowered, np.zeros(len(cell)))
    return _Moved(*(np.concatenate(column) for column in zip(counted, shown, strict=True)))


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
    by_amount = np.divide(amounts.amount, starts, out=np.full(starts.shape, np.inf), where=starts > 0)
    error = np.divide(amounts.error, starts, out=np.zeros(starts.shape), where=starts > 0)
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
    """Amounts left out along an axis; None where values have both signs, or where any number of rows may be left out.

    Where nothing bounds the amounts, the rows that are left out bound every run.
    """
    meta, scale = release.axes[axis], release.scales[of]
    measure = f"{meta.table}.{meta.columns[0].column}"
    rows, amount = scale.measure(""), scale.measure(measure)
    total = _total(release, scale, measure)
    if rows.error.up is None or total is None:
        return None
    left_out, error = np.inf, 0.0
    if amount.error.up is not None:
        left_out, error = total * max(0.0, 1.0 - 1.0 / max(amount.factor, 1.0)), total * amount.error.up
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
        factor, number * (1.0 - 1.0 / factor), left_out, error, starts, np.maximum(counts, 0.0) / factor
    )


def _total(release: Release, scale: ScaleMeta, measure: str) -> float | None:
    """The published sum of a measure over all rows; None where no view sums it."""
    summed = next((s for s in release.statistics if s.of == scale.of and s.measure == measure), None)
    if summed is None:
        return None
    where = " AND ".join(f"n{i + 1} = 0" for i in range(len(summed.axes))) or "true"
    ((root,),) = run(release, f"SELECT estimate FROM node_combination_{summed.id} WHERE {where}").rows
    centred = float(summed.in_units(np.array([root], np.float64))[0])
    return max(0.0, (centred + summed.mid * max(scale.rows, 0)) / 10.0**summed.scale)


Sizes = Mapping[MeasureScale, FloatArray]
"""The part of an answer that follows the size of each factor."""
Terms = Mapping[MeasuredTerm, Weights]
"""By how much numbers move with terms."""


def beyond_noise(numbers: LinearNumbers) -> ErrorComponents | None:
    """Errors of numbers beyond their noise; None where no table has a scale or measured rows beyond its bound.

    Each release's scale is its own. What people report has its weight of rows in its noise (`reads.EstimatedWeight`).

    Args:
        numbers: the numbers, or the derivatives of others.
    """
    components: list[ErrorComponents] = []
    for release, terms in _by_release(numbers):
        for of, table_terms in _tables(terms).items():
            if release.meta.left_out(of):
                components.append(unasked_rows(table_terms, numbers.count))
            if release.meta.local is None and release.scales.get(of) is not None:
                components.append(_scaled_components(table_terms, numbers.count))
                of_amounts = reach_of_amounts(table_terms, numbers.count)
                components += [] if of_amounts is None else [of_amounts]
        components += [
            excess.reach_of(lines, numbers.count, beyond) for beyond, lines in excess.by_table(terms)
        ]
        reaches = (reach(terms, numbers.count) for reach in (excess.reach_of_weights, excess.reach_of_axes))
        components += [reach for reach in reaches if reach is not None]
    values = values_beyond(numbers)
    return ErrorComponents.joined([*components, *([] if values is None else [values])])


def values_beyond(numbers: LinearNumbers) -> ErrorComponents | None:
    """The part of it that values beyond the bounds of measures have; None where none were measured."""
    return ErrorComponents.joined(
        [
            excess.excess_reach(lines, numbers.count, beyond)
            for _, terms in _by_release(numbers)
            for beyond, lines in excess.by_measure(terms)
        ]
    )


def _by_release(numbers: LinearNumbers) -> Iterator[tuple[Release, Terms]]:
    """The terms of each release."""
    releases = {id(key.answered.errors.release): key.answered.errors.release for key in numbers.terms}
    for release in releases.values():
        yield release, {key: w for key, w in numbers.terms.items() if key.answered.errors.release is release}


def share_beyond_bound(numbers: LinearNumbers) -> FloatArray:
    """Share of the rows beyond the contribution bound; NaN where it is unknown, or where tables differ."""
    shares: set[float | None] = set()
    for key in numbers.terms:
        if key.term.measure.sums_rows:
            beyond = excess.share_beyond(key.answered.errors.release, key.answered.plan.view.of)
            shares.add(None if np.isnan(beyond) else beyond)
    share = shares.pop() if len(shares) == 1 else None if shares else 0.0
    return np.full(numbers.count, np.nan if share is None else share)


def _tables(terms: Terms) -> dict[str, Terms]:
    """The terms of each table: totals of two tables are drawn apart, so their errors add up."""
    tables: dict[str, dict[MeasuredTerm, Weights]] = {}
    for key, weights in terms.items():
        tables.setdefault(key.answered.plan.view.of, {})[key] = weights
    return {of: lines for of, lines in tables.items() if any(key.term.measure.sums_rows for key in lines)}


def unasked_rows(terms: Terms, count: int) -> ErrorComponents:
    """Open ends of numbers on the sides to which rows that nobody was asked about move them.

    Averages and shares, whose terms cancel, are of at most `max_ids` rows a person: nothing bounds them where people
    were asked about fewer.

    Args:
        terms: of one table.
        count: how many numbers there are.
    """
    is_whole = all(_asks_all(key) for key in terms)
    terms = {key: weights for key, weights in terms.items() if key.term.measure.sums_rows}
    none, net, gross = np.zeros(count), np.zeros(count), np.zeros(count)
    is_open = np.zeros((2, count), bool)
    for key, weights in terms.items():
        size = weights.weight * key.answered.totals[key.term][weights.cell]
        net, gross = net + weights.totals(size, count), gross + weights.totals(np.abs(size), count)
        for side, way in zip(is_open, (-1.0, 1.0), strict=True):
            np.logical_or.at(side, weights.number, moves(key, weights, way))
    cancels = (gross > 0) & (_settled(net, gross) == 0) & is_whole
    down, up = np.where(is_open & ~cancels, np.inf, 0.0)
    return ErrorComponents(none, none, down, up, none, none)


def _asks_all(key: MeasuredTerm) -> bool:
    """True if people were asked about as many rows as the catalog lets them have."""
    release, of = key.answered.errors.release, key.answered.plan.view.of
    table, most = release.meta.left_out(of), release.catalog.tables[of].max_ids
    return table is None or table.asked >= (most if isinstance(most, int) else UNDECLARED_ROWS)


def _scaled_components(terms: Terms, count: int) -> ErrorComponents:
    """Scale, spread and tail of numbers, by their terms of one table."""
    none = np.zeros(count)
    sizes: dict[MeasureScale, FloatArray] = {}
    gross: dict[MeasureScale, FloatArray] = {}
    is_open = np.zeros((2, count), bool)
    for key, weights in terms.items():
        if not key.term.measure.sums_rows:
            continue
        scale = key.answered.errors.release.scales[key.answered.plan.view.of].measure(key.term.measure)
        size = weights.weight * key.answered.totals[key.term][weights.cell]
        if None in (scale.error.up, scale.mean_error.up):
            for side, way in zip(is_open, (-1.0, 1.0), strict=True):
                np.logical_or.at(side, weights.number, moves(key, weights, way))
        sizes[scale] = sizes.get(scale, none) + weights.totals(size, count)
        gross[scale] = gross.get(scale, none) + weights.totals(np.abs(size), count)
    moved_shares = joined_lines(pair for key, weights in terms.items() for pair in _shares(key, weights))
    alike = {(one, two) for one in moved_shares for two in moved_shares if one.statistic == two.statistic}
    off = covariance(moved_shares, moved_shares, count, alike)
    sizes = {scale: _settled(size, gross[scale]) for scale, size in sizes.items()}
    return _common_components(sizes, is_open, off.spread + none, off.tail + none)


def _shares(key: MeasuredTerm, weights: Weights) -> Iterator[tuple[BoxStatistic, Weights]]:
    """Statistics that a term reads as shares of the total: its own, and a sum's rows by the average of a row."""
    plan = key.answered.plan
    statistic, count = plan.view.statistics[key.term.measure], presence(key.term.measure, plan.view)
    for box in plan.boxes_for(key.term):
        by_unit = weights._replace(weight=weights.weight * 10.0**-statistic.scale)
        yield BoxStatistic(key.block, key.answered, statistic.id, box), by_unit
        if statistic.noise_mid is not None and count is not None and count.id != statistic.id:
            rows = _average(key.answered, key.term)[weights.cell]
            moved = weights._replace(weight=weights.weight * rows)
            yield BoxStatistic(key.block, key.answered, count.id, box), moved


def _common_components(
    sizes: Sizes, is_open: npt.NDArray[np.bool_], spread: FloatArray | float, tail: FloatArray | float
) -> ErrorComponents:
    """The components of answers.

    Args:
        sizes: what follows the size of each factor.
        is_open: whether nothing bounds them towards less, and more, shape (2, rows).
        spread, tail: what their shares may be off by.
    """
    noise = _common(sizes, lambda error, sign: np.full_like(sign, error.noise))
    sides = [_common(sizes, _towards(way)) for way in (-1.0, 1.0)]
    down, up = (
        np.where(opened, np.inf, np.maximum(np.maximum(side - noise, 0.0) + tail, 0.0))
        for side, opened in zip(sides, is_open, strict=True)
    )
    none = np.zeros_like(noise)
    return ErrorComponents(noise, np.maximum(spread, 0.0), down, up, none, none)


def _settled(size: FloatArray, gross: FloatArray) -> FloatArray:
    """Sizes, 0 where what they are added up from cancels: a share of a total has none.

    Args:
        size: of answers.
        gross: the same, absolute values added up.
    """
    return np.where(np.abs(size) <= NEAR * gross, 0.0, size)


Side = Callable[[RelativeError, FloatArray], FloatArray]
"""A relative error as a function of the sign of what it moves."""


def _towards(way: float) -> Side:
    """The side on which an answer grows (1) or shrinks (-1); an open one is infinite beside this."""

    def side(error: RelativeError, sign: FloatArray) -> FloatArray:
        return np.where(way * sign > 0, error.down if error.up is None else error.up, error.down)

    return side


def _common(sizes: Sizes, side: Side) -> FloatArray:
    """Variance of an answer by its factors: their own errors, and what an average says of two of them."""
    rows = next((size for size in sizes.values()), np.zeros(1))
    total = np.zeros_like(rows, dtype=np.float64)
    counts = next((factor for factor in sizes if not factor.measure), None)
    of_rows = {factor: side(factor.error, np.sign(size)) for factor, size in sizes.items()}
    for factor, size in sizes.items():
        total = total + (size * of_rows[factor]) ** 2
    for factor, size in sizes.items():
        if counts is not None and factor is not counts:
            apart = side(factor.mean_error, np.sign(size))
            shared = (of_rows[counts] ** 2 + of_rows[factor] ** 2 - apart**2) / 2
            total = total + 2 * sizes[counts] * size * shared
    summed = [factor for factor in sizes if factor.measure]
    for i, factor in enumerate(summed):
        for second in summed[:i]:  # two measures are alike as far as each is like the rows
            apart = np.hypot(
                *(
                    side(measure_scale.mean_error, np.sign(sizes[measure_scale]))
                    for measure_scale in (factor, second)
                )
            )
            shared = (of_rows[factor] ** 2 + of_rows[second] ** 2 - apart**2) / 2
            total = total + 2 * sizes[factor] * sizes[second] * shared
    variance: FloatArray = np.maximum(total, 0.0)
    return variance


def _average(answered: TermEstimates, term: Term) -> FloatArray:
    """The average value of a scaled sum's rows, group by group, within what the catalog allows."""
    statistic = answered.plan.view.statistics[term.measure]
    count = presence(term.measure, answered.plan.view)
    assert count is not None
    rows = answered.totals[replace(term, measure=count.measure)]
    low, high = value_bounds(statistic, answered.errors.release)
    sums = answered.totals[term]
    middle = np.divide(sums, rows, out=np.zeros_like(sums), where=rows > 0)
    return np.clip(middle, low, high)
