"""Errors beyond noise where shapes were scaled to totals: scale, spread and tail.

| part | what it is | who shares it |
|---|---|---|
| scale | noise of the total that shapes are scaled to | all counts and sums of a measure |
| spread | groups whose people own more or less than others | questions about the same groups |
| tail | rows of the few who own most, above every bound; longer on the side of more | all of them |
| shift | estimated bias from a declared bound (`dpsql.intervals.excess_rows`, `excess`) | all of a table |

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
**Source**: docs/method/user_level.md, "Intervals that cover the exact answer".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dpsql.catalog.graph import sums_rows
from dpsql.executor.recombine import TermEstimates
from dpsql.intervals.amounts import reach_of_amounts
from dpsql.intervals.bin_bounds import value_bounds
from dpsql.intervals.estimated import ErrorComponents
from dpsql.intervals.excess import by_measure, excess_reach, rows_past_bounds
from dpsql.intervals.excess_rows import by_table, reach_of, reach_of_weights, share_beyond
from dpsql.intervals.linear import BoxStatistic, LinearNumbers, MeasuredTerm, Weights, covariance
from dpsql.intervals.possible import moves
from dpsql.planner.axis_query import NEAR, FloatArray
from dpsql.planner.plan import presence
from dpsql.planner.terms import Term
from dpsql.release.format import MeasureScale, RelativeError

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
    releases = {id(key.answered.errors.release): key.answered.errors.release for key in numbers.terms}
    for release in releases.values():
        terms = {
            key: weights for key, weights in numbers.terms.items() if key.answered.errors.release is release
        }
        for of, table_terms in _tables(terms).items():
            if release.meta.unasked(of):
                components.append(unasked_rows(table_terms, numbers.count))
            if release.meta.local is None and release.scales.get(of) is not None:
                components.append(_scaled_components(table_terms, numbers.count))
                of_amounts = reach_of_amounts(table_terms, numbers.count)
                components += [] if of_amounts is None else [of_amounts]
        components += [reach_of(lines, numbers.count, beyond) for beyond, lines in by_table(terms)]
        components += [excess_reach(lines, numbers.count, beyond) for beyond, lines in by_measure(terms)]
        if release.meta.excess:
            components += [
                moved for key, lines in terms.items() for moved in rows_past_bounds(key, lines, numbers.count)
            ]
        of_weights = reach_of_weights(terms, numbers.count)
        components += [] if of_weights is None else [of_weights]
    return ErrorComponents.joined(components)


def share_beyond_bound(numbers: LinearNumbers) -> FloatArray:
    """Share of the rows beyond the contribution bound; NaN where it is unknown, or where tables differ."""
    shares: set[float | None] = set()
    for key in numbers.terms:
        if follows_scale(key.term):
            beyond = share_beyond(key.answered.errors.release, key.answered.plan.view.of)
            shares.add(None if np.isnan(beyond) else beyond)
    share = shares.pop() if len(shares) == 1 else None if shares else 0.0
    return np.full(numbers.count, np.nan if share is None else share)


def _tables(terms: Terms) -> dict[str, Terms]:
    """The terms of each table: totals of two tables are drawn apart, so their errors add up."""
    tables: dict[str, dict[MeasuredTerm, Weights]] = {}
    for key, weights in terms.items():
        tables.setdefault(key.answered.plan.view.of, {})[key] = weights
    return {of: lines for of, lines in tables.items() if any(follows_scale(key.term) for key in lines)}


def unasked_rows(terms: Terms, count: int) -> ErrorComponents:
    """Open ends of counts and sums on the sides to which rows that nobody was asked about move them.

    Averages and shares, whose terms cancel, are of the rows that people were asked about, and their notes say so.

    Args:
        terms: of one table.
        count: how many numbers there are.
    """
    terms = {key: weights for key, weights in terms.items() if follows_scale(key.term)}
    none, net, gross = np.zeros(count), np.zeros(count), np.zeros(count)
    is_open = np.zeros((2, count), bool)
    for key, weights in terms.items():
        size = weights.weight * key.answered.totals[key.term][weights.cell]
        net, gross = net + weights.totals(size, count), gross + weights.totals(np.abs(size), count)
        for side, way in zip(is_open, (-1.0, 1.0), strict=True):
            np.logical_or.at(side, weights.number, moves(key, weights, way))
    cancels = (gross > 0) & (_settled(net, gross) == 0)
    down, up = np.where(is_open & ~cancels, np.inf, 0.0)
    return ErrorComponents(none, none, down, up, none, none)


def _scaled_components(terms: Terms, count: int) -> ErrorComponents:
    """Scale, spread and tail of numbers, by their terms of one table."""
    none = np.zeros(count)
    sizes: dict[MeasureScale, FloatArray] = {}
    gross: dict[MeasureScale, FloatArray] = {}
    is_open = np.zeros((2, count), bool)
    for key, weights in terms.items():
        if not follows_scale(key.term):
            continue
        scale = key.answered.errors.release.scales[key.answered.plan.view.of].measure(key.term.measure)
        size = weights.weight * key.answered.totals[key.term][weights.cell]
        if None in (scale.error.up, scale.mean_error.up):
            for side, way in zip(is_open, (-1.0, 1.0), strict=True):
                np.logical_or.at(side, weights.number, moves(key, weights, way))
        sizes[scale] = sizes.get(scale, none) + weights.totals(size, count)
        gross[scale] = gross.get(scale, none) + weights.totals(np.abs(size), count)
    summands: dict[BoxStatistic, list[Weights]] = {}
    for key, weights in terms.items():
        for source, moved in _shares(key, weights):
            summands.setdefault(source, []).append(moved)
    moved_shares = {source: Weights.joined(lines) for source, lines in summands.items()}
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


def follows_scale(term: Term) -> bool:
    """True if a term was scaled to a total: rows and sums are, people are counted as they are."""
    return sums_rows(term.measure)


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
