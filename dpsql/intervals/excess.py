"""Values beyond a measure's bounds: how far they may move sums and averages, which count them as the nearest bound.

A release with `excess_share` holds, for each measure, noisy numbers of units with values above its bounds and below
them, near and far, each with the standard error s. With n the near ones of a side, the excess of all rows is E = n m,
of which a group with the share F of the rows has about F E:

    m          |bound - mean|, at least LEAST widths of the bounds; at least |mean| beyond a bound away from 0
    s_E^2      m^2 (s^2 + n+^2)                          n+ = max(n, s): m is known up to its own size
    shift      F E
    variance   F^2 (s_E^2 + (TASTE (1 - F))^2 (E^2 + s_E^2)) + F (1 - F) SQUARES n+ m^2

towards more for values above the upper bound, towards less for those below the lower one. Where far units, or units
beyond both bounds, stand out of their noise, nothing bounds that side.

The mean excess of values beyond a bound is about the bound itself, whatever the tail, or, where the mean is near the
bound, as much as the values: those of an exponential law with a mean of 3.3 within [0, 4] go on by 10. A Pareto tail of
1.2 and less is not covered where noise hides it.

A sum or an average over an axis (`AVG(age)`) leaves out rows whose value lies beyond the axis's bounds, and nothing
measures these values. Where such rows stand out of the noise and the statement's conditions may hold for them, nothing
bounds either side.

| here | there | unit |
|---|---|---|
| `ValuesBeyondBounds.above`, `below`, `width` | n, W | units, measure |
| `excess` | E, s_E | measure |

**Privacy**: published values alone.
**Source**: docs/method/rows.md, "Values beyond the bounds".

Rows beyond a declared contribution bound: how far they may move an answer that is made of the bounded rows.

A table with `max_ids: 20` counts at most twenty rows of a unit. A release measures the rows beyond (`clipped_share`)
of units with few of them and the number of the others, each of which stands for one row more than few: together L with
its standard error s, beside the B rows that count. A count of C bounded rows then
lies below the exact answer over all rows by about C L / B, a sum likewise, and an average moves only as far as the
rows beyond differ from the others. With net the part of an answer that grows with the rows of one group, P and M the
sums of positive and of negative ones, and F the part of B that such groups hold,

    shift      (L / B) (P - M)
    variance   e^2 (P - M)^2  +  r^2 (k(F_P)^2 P^2 + k(F_M)^2 M^2 + values)
    e^2, r^2   (s^2 + (UNSEEN L)^2) / B^2,  L^2 / B^2 + e^2,  no L below 0
    k(F)^2     (TASTE (1 - F))^2 + (1 - F) / (F H),  P / F no more than B rows of the largest value make
    values     squares of (VALUES |sum|) and of rows (upper - lower) / sqrt(12 H), of every sum that is read

The interval reaches from the noise's end to `shift` and this variance on the sides to which rows can move an answer at
all: a count only grows, a sum of amounts that are never negative too. Where units with more rows than are measured
stand out of the noise of their number, nothing bounds those sides.

Rows that people's reports leave out by a bit are in the numbers by their scale, so they shift both ends, by 1.96 times
the root of rate times k(F)^2 amounts^2: where they lie is no noise. The variance has `values` alone.

What is proven is only that one group may hold all of L. A group that a few heavy units own is in no such variance; a
note under the answer says so.

| here | there | unit |
|---|---|---|
| `RowsBeyondBound.rows_beyond`, `counted` | L and s, B | rows |
| `Grown.amount` | net, line by line | units of the answer |
| UNSEEN | how many more rows one unit may own above `at_most` of hers, relative to L | 1 |
| TASTE | how far the rows beyond of heavy units may favour a group, relative | 1 |
| VALUES | how far their mean value may differ, relative | 1 |
| H | units that own rows beyond, at least: L / `at_most` | units |

**Privacy**: published values alone.
**Source**: docs/method/rows.md, "Rows beyond the bound".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import hypot, inf
from typing import NamedTuple

import numpy as np

from dpsql.catalog.base import COUNT, COUNTS, MeasureName
from dpsql.executor.recombine import answer_terms, rows_term
from dpsql.intervals.errorfunctions import ErrorComponents, quantile
from dpsql.intervals.linear import MeasuredTerm, Weights
from dpsql.intervals.reads import total_rows, value_bounds
from dpsql.planner.axis_query import FloatArray, IntArray, WeightedValues, classes_taken, has_unlisted
from dpsql.planner.plan import ReleaseView, one_group, plan_of_leaves
from dpsql.planner.schema import Condition, Term, every, in_domain
from dpsql.release import Release
from dpsql.release.format import RowsBeyondBound, UnitsBeyondBound, ValuesBeyondBounds
from dpsql.release.reports import BIT, TASTE, UNSEEN

VALUES = 0.5
"""A judgement, not a measurement: mean values of heavy units' rows may differ from the others' by half."""

ROWS = 1 << 40
"""More than the rows of any block's answers."""


LEAST_KEPT = 1e-9
"""Of all rows, that slots are taken to hold where noise says none."""


class Grown(NamedTuple):
    """By how much numbers follow terms; arrays of shape (lines,).

    Args:
        number: which number.
        place: which rows the term counts or sums: equal where they are the same.
        amount: derivative times the term's value.
        rows: how many rows these are.
        values: derivative times rows times what their values range over; 0 of counts.
        varying: derivative times the term's value, of terms whose rows have values; 0 of counts.
        rises, falls: whether more rows may raise, or lower, the number.
        largest: the most that one row may move the number; infinite where its values are not declared.
    """

    number: IntArray
    place: IntArray
    amount: FloatArray
    rows: FloatArray
    values: FloatArray
    varying: FloatArray
    rises: FloatArray
    falls: FloatArray
    largest: FloatArray


def measured_beyond(release: Release, of: str) -> RowsBeyondBound | None:
    """The measured rows beyond a table's declared bound; None where it has none, or nothing measured them."""
    beyond = release.meta.beyond(of)
    return None if beyond is None or beyond.rows is None else beyond


def share_beyond(release: Release, of: str) -> float:
    """About which share of a table's rows bounding left out; 0 where none can be, NaN where it is not known."""
    scale = release.scales.get(of)
    if scale is not None:
        share = scale.measure("").left_out
    else:
        share = next((table.clipped_fraction for table in release.meta.bounding if table.of == of), 0.0)
    return np.nan if share is None else share


def grown(key: MeasuredTerm, condition: int, weights: Weights) -> Grown:
    """The lines of one term, whose rows meet a condition of this number."""
    answered, term, slope, row = key.answered, key.term, weights.weight, weights.cell
    statistic = answered.plan.view.statistics[term.measure]
    low, high = value_bounds(statistic, answered.errors.release)
    counting = rows_term(answered.plan, term)
    amount = slope * answered.totals[term][row]
    rows = np.zeros(len(row)) if counting is None else np.maximum(answered.totals[counting][row], 0.0)
    valued = low != high or term.factor is not None
    return Grown(
        weights.number, condition * ROWS + row, amount, rows, np.abs(slope) * rows * (high - low),
        amount if valued else np.zeros(len(row)),
        np.where(slope > 0, high > 0, low < 0) & (slope != 0) | (term.factor is not None),
        np.where(slope > 0, low < 0, high > 0) & (slope != 0) | (term.factor is not None),
        np.abs(slope) * max(abs(low), abs(high)) if term.factor is None else np.full(len(row), np.inf),
    )  # fmt: skip


def reach_of(lines: Sequence[Grown], numbers: int, beyond: RowsBeyondBound) -> ErrorComponents:
    """Largest change of numbers by rows beyond one table's contribution bound.

    Args:
        lines: of every term of the table that they follow.
        numbers: how many there are.
        beyond: what the release measured.

    Returns:
        The tail and the bias; NaN where no view counts the rows that the bound keeps.
    """
    assert beyond.rows is not None and beyond.stderr is not None and beyond.at_most is not None
    joined = Grown(*(np.concatenate(column) for column in zip(*lines, strict=True)))
    if beyond.counted is None:
        unknown = np.full(numbers, np.nan)
        return _sided(joined, numbers, unknown, unknown)
    counted = max(1.0, beyond.counted)
    rows, stderr = beyond.rows_beyond
    units = max(1.0, max(rows, stderr) / beyond.at_most)
    net, spread = _by_place(joined, numbers, counted, units)
    values = _squares(joined, numbers, VALUES * joined.varying)
    values = values + _squares(joined, numbers, joined.values / np.sqrt(12.0 * units))
    seen = max(rows, 0.0) / counted
    error = (stderr / counted) ** 2 + (UNSEEN * seen) ** 2
    rate = seen**2 + error
    if beyond.bounding == BIT:
        # Rows left out are in the numbers by their scale, so any of them may be too high. Where they lie is the same in
        # every collection, and noise as large does not hide it: the two add up, or one star's shares miss too often.
        far, none = quantile(0.95) * np.sqrt(rate * spread), np.zeros(numbers)
        return ErrorComponents(none, none, rate * values, rate * values, -far, far)
    variance = np.full(numbers, inf) if beyond.unbounded else error * net**2 + rate * (spread + values)
    return _sided(joined, numbers, rows / counted * net, variance)


def reach_of_weights(terms: Mapping[MeasuredTerm, Weights], numbers: int) -> ErrorComponents | None:
    """Bias bound of numbers of people from the smaller weight of those who touch many cells; None without any.

    A cell's lines (`PeopleBounds`) hold for its estimate without noise, so they are read at both ends of the noise.
    """
    low, high = np.zeros(numbers), np.zeros(numbers)
    bounded = False
    for key, weights in terms.items():
        statistic = key.answered.plan.view.statistics[key.term.measure]
        if statistic.people_bounds is None:
            continue
        bounded = True
        estimate = key.answered.totals[key.term]
        noise = CERTAIN * np.sqrt(_noise(key))
        bottom, top = estimate - noise, estimate + noise
        down = np.minimum(statistic.people_bounds.below(bottom) - bottom, 0.0)[weights.cell]
        up = np.maximum(statistic.people_bounds.above(top) - top, 0.0)[weights.cell]
        added, taken = np.maximum(weights.weight, 0.0), np.minimum(weights.weight, 0.0)
        low += weights.totals(added * down + taken * up, numbers)
        high += weights.totals(added * up + taken * down, numbers)
    none = np.zeros(numbers)
    return ErrorComponents(none, none, none, none, low, high) if bounded else None


def _noise(key: MeasuredTerm) -> FloatArray:
    """Variances of a term's numbers, row by row; cells of several boxes are independent."""
    plan, errors = key.answered.plan, key.answered.errors
    statistic = plan.view.statistics[key.term.measure].id
    variances = [errors.product(statistic, box, box).noise for box in plan.boxes_for(key.term)]
    return np.maximum(sum(variances, np.zeros(errors.rows)), 0.0)


CERTAIN = 2.1
"""Standard errors of one side at 95%, of Laplace noise."""


def _by_place(lines: Grown, numbers: int, counted: float, units: float) -> tuple[FloatArray, FloatArray]:
    """P - M, and k(F_P)^2 P^2 + k(F_M)^2 M^2, of every number."""
    places, back = np.unique(np.stack([lines.number, lines.place]), axis=1, return_inverse=True)
    back = back.reshape(-1)
    net, rows = np.bincount(back, lines.amount, places.shape[1]), np.zeros(places.shape[1])
    largest, of_row = np.zeros(numbers), np.bincount(back, lines.largest, places.shape[1])
    np.maximum.at(rows, back, lines.rows)
    np.maximum.at(largest, places[0], of_row)
    total, spread = np.zeros(numbers), np.zeros(numbers)
    for side in (net > 0, net < 0):
        amount = np.bincount(places[0][side], net[side], numbers)
        share = np.clip(np.bincount(places[0][side], rows[side], numbers) / counted, 1.0 / counted, 1.0)
        total += amount
        # Noise gives groups without rows an amount: were all rows there, each would be of the largest value at most.
        everywhere = np.minimum(np.abs(amount) / share, counted * largest)
        spread += (TASTE * (1 - share) * amount) ** 2 + np.abs(amount) * everywhere * (1 - share) / units
    return total, spread


def _squares(lines: Grown, numbers: int, size: FloatArray) -> FloatArray:
    """Squared sums of sizes by number: values of one unit's rows are alike everywhere."""
    return np.asarray(np.bincount(lines.number, np.abs(size), numbers) ** 2, np.float64)


def _sided(lines: Grown, numbers: int, shift: FloatArray, variance: FloatArray) -> ErrorComponents:
    """Moves on the sides to which rows can move a number."""
    rises, falls = (np.bincount(lines.number, side, numbers) > 0 for side in (lines.rises, lines.falls))
    none = np.zeros(numbers)
    return ErrorComponents(
        none, none, np.where(falls, variance, none), np.where(rises, variance, none),
        np.where(falls, shift, none), np.where(rises, shift, none),
    )  # fmt: skip


def by_table(terms: Mapping[MeasuredTerm, Weights]) -> Iterator[tuple[RowsBeyondBound, list[Grown]]]:
    """The lines of every table of a release whose rows beyond the bound were measured."""
    conditions: dict[tuple[int, Condition], int] = {}
    tables: dict[str, tuple[RowsBeyondBound, list[Grown]]] = {}
    counted = {(key.block, key.term.condition) for key in terms if key.term.factor is None}
    for key, weights in terms.items():
        of, rows = key.answered.plan.view.of, (key.block, key.term.condition)
        if key.term.factor is not None and rows not in counted:
            # an average over an axis divides by the rows whose values it adds up
            rows = key.block, every([key.term.condition, in_domain(key.term.factor)])
        condition = conditions.setdefault(rows, len(conditions))
        beyond = measured_beyond(key.answered.errors.release, of) or _reported_beyond(key)
        if beyond is not None and key.term.measure.sums_rows:
            tables.setdefault(of, (beyond, []))[1].append(grown(key, condition, weights))
    yield from tables.values()


def _reported_beyond(key: MeasuredTerm) -> RowsBeyondBound | None:
    """Rows that slots or bits left out of people's reports, up to those asked about; None where nobody was asked."""
    release, view = key.answered.errors.release, key.answered.plan.view
    table, count = release.meta.left_out(view.of), view.statistics.get(COUNT)
    if table is None or count is None or not table.clipped_fraction or table.clipped_fraction_error is None:
        return None
    counted = total_rows(release, count)
    everything = counted if table.bounding == BIT else counted / max(1 - table.clipped_fraction, LEAST_KEPT)
    rows, error = everything * table.clipped_fraction, everything * table.clipped_fraction_error
    farthest = max(1, table.asked - table.tau)
    return RowsBeyondBound(view.of, table.bounding, table.tau, counted, round(rows), error, farthest)


LEAST = 0.1
"""Of the width: values below 0 of a measure from 0 on are refunds, as large as the payments before them."""

SEEN = 3.0
"""Standard errors above which far units open an end."""

SQUARES = 4.0
"""Mean square of excesses over their squared mean: 2 if exponential, 4 if log-normal with a deviation of 1.2."""


def excess(
    beyond: ValuesBeyondBounds, units: UnitsBeyondBound, bound: float
) -> tuple[float, float, float, bool]:
    """Sum of the values beyond one bound, in the measure's own unit; of a measure of squares that of their excess.

    A square counts up to h^2, h half of the width of the bounds, so a value e beyond leaves out 2 h e + e^2.

    Returns:
        E and s_E, about the sum of the squared excesses, and whether nothing bounds it.

    >>> counted = UnitsBeyondBound(40, 1), UnitsBeyondBound(0, 0)
    >>> beyond = ValuesBeyondBounds("s", MeasureName("s.x"), "0", "10", 10.0, 1.0, *counted, mean=2.0)
    >>> total, error, _, unbounded = excess(beyond, beyond.above, 10.0)
    >>> round(total), round(error), unbounded
    (320, 320, False)
    """
    far = beyond.width if beyond.mean is None else abs(bound - beyond.mean)
    if beyond.mean is not None and abs(beyond.mean) <= abs(bound) and beyond.mean * bound > 0:
        far = max(far, abs(beyond.mean))
    mean, likely = max(far, LEAST * beyond.width), max(float(units.near), beyond.stderr)
    unbounded = max(units.far, beyond.both or 0) > SEEN * beyond.stderr
    if beyond.measure.squared:
        mean = beyond.width * mean + SQUARES * mean**2
    return units.near * mean, hypot(beyond.stderr, likely) * mean, SQUARES * likely * mean**2, unbounded


ExcessLines = tuple[IntArray, FloatArray, FloatArray]
"""How numbers follow the sums of one measure, arrays of shape (lines,): which number, its derivative by the sum, and
the part of the table's rows that the sum is over."""


def excess_reach(lines: Sequence[ExcessLines], numbers: int, beyond: ValuesBeyondBounds) -> ErrorComponents:
    """Bias bound of numbers from values beyond a measure's bounds.

    Args:
        lines: of every term of the measure that they follow.
        numbers: how many there are.
        beyond: what the release measured.
    """
    number, slope, share = (np.concatenate(column) for column in zip(*lines, strict=True))
    none = np.zeros(numbers)
    shifts, errors = {-1: none, 1: none}, {-1: none, 1: none}
    ends = (1, beyond.above, float(beyond.upper)), (-1, beyond.below, float(beyond.lower))
    for way, units, bound in ends:
        total, error, squares, unbounded = excess(beyond, units, bound)
        for sign in (1, -1):
            of_sign = sign * slope > 0
            moved = np.bincount(number[of_sign], np.abs(slope * share)[of_sign], numbers)
            part = np.minimum(np.bincount(number[of_sign], share[of_sign], numbers), 1.0)
            slopes = np.divide(moved, part, out=np.zeros(numbers), where=part > 0)
            taste = (TASTE * (1 - part)) ** 2 * (total**2 + error**2)
            variance = moved**2 * (error**2 + taste) + slopes**2 * part * (1 - part) * squares
            side = sign if beyond.measure.squared else way * sign
            shifts[side] = shifts[side] + side * moved * total
            errors[side] = errors[side] + np.sqrt(variance)
            if unbounded:
                errors[side] = np.where(moved > 0, inf, errors[side])
    return ErrorComponents(none, none, errors[-1] ** 2, errors[1] ** 2, shifts[-1], shifts[1])


def by_measure(
    terms: Mapping[MeasuredTerm, Weights],
) -> Iterator[tuple[ValuesBeyondBounds, list[ExcessLines]]]:
    """The lines of every measure, or of its squares, whose values beyond the bounds were measured."""
    measures: dict[MeasureName, tuple[ValuesBeyondBounds, list[ExcessLines]]] = {}
    for key, weights in terms.items():
        meta, measure = key.answered.errors.release.meta, key.term.measure
        beyond = meta.excess_of(key.answered.plan.view.of, measure)
        if beyond is not None and len(weights.cell):
            # The lines of one term; where its view counts no rows, all of the excess may be in each group.
            counting = rows_term(key.answered.plan, key.term)
            scale = key.answered.errors.release.scales.get(beyond.of)
            counted = beyond.counted if scale is None else float(scale.rows)
            share = np.ones(len(weights.cell))
            if counting is not None and counted is not None:
                rows = np.maximum(key.answered.totals[counting][weights.cell], 1.0)
                share = np.minimum(rows / max(1.0, counted), 1.0)
            lines = weights.number, weights.weight, share
            measures.setdefault(measure, (replace(beyond, measure=measure), []))[1].append(lines)
    yield from measures.values()


def has_values_beyond(key: MeasuredTerm) -> bool:
    """True if rows of a term whose factor nobody knows, beyond an axis's bounds or unlisted, stand out of the noise."""
    plan, release = key.answered.plan, key.answered.errors.release
    for box in plan.boxes_for(key.term) if key.term.factor is not None else ():
        for position, (query, cells, taken) in enumerate(zip(plan.questions, plan.cells, box, strict=True)):
            if not isinstance(taken, WeightedValues) or not has_unlisted(release, query.axis):
                continue
            leaf = release.axes[query.axis].other_leaf
            met = leaf is not None and bool(np.any(cells.leaf[classes_taken(cells, taken)] == leaf))
            if met and _stands_out(release, plan.view, position):
                return True
    return False


def _stands_out(release: Release, view: ReleaseView, position: int) -> bool:
    """True if a view's rows in the OTHER of an axis are more than noise makes of none, or nothing counts them."""
    measure = next((name for name in COUNTS if name in view.statistics), None)
    leaf = release.axes[view.axes[position]].other_leaf
    if measure is None or leaf is None:
        return True
    selections = [range(release.axes[number].leaves) for number in view.axes]
    selections[position] = range(leaf, leaf + 1)

    def seen() -> bool:
        term, plan = Term(measure), plan_of_leaves(release, view, selections)
        key = MeasuredTerm(0, answer_terms(plan, [term], one_group(view), release), term)
        return float(key.answered.totals[term][0]) > SEEN * float(np.sqrt(_noise(key)[0]))

    return release.kept(("values beyond an axis", view.name, position), seen)


def reach_of_axes(terms: Mapping[MeasuredTerm, Weights], numbers: int) -> ErrorComponents | None:
    """Open ends of numbers that sum an axis's values, where rows lie beyond its bounds; None without any."""
    moved = np.zeros(numbers, bool)
    for key, weights in terms.items():
        if has_values_beyond(key):
            moved[weights.number[weights.weight != 0]] = True
    if not moved.any():
        return None
    none, variance = np.zeros(numbers), np.where(moved, inf, 0.0)
    return ErrorComponents(none, none, variance, variance, none, none)
