"""One number from all axes: rows, a measure's total and centre, the scale from shares to rows, one report's reach.

**Totals.** Each axis has its own estimate of the total, since every report tells of it. They are put together by their
variances; reports of a grid enter several axes at once, so the variance of the mean is computed from what every item of
every view adds to it (its influence).

**Centre.** SUM is put together as y + mid c, and answers take the errors of y and c for independent. One report says
both: where most values lie near a bound the two bits of a cell err together, the more the larger epsilon is. Around the
right mid the sum's error is what the count's does not explain.

**Scale.** How many people reported, what tau left out, and how surely that is known.

**Reach.** An axis's unbiased estimate is linear in what the reports say, with weights that do not depend on them. A
report of GRR or Square Wave says one cell; one of OUE or OLH may say any of its view's cells at once, and so moves a
set of leaves much further than any one of them.

| here     | there                     | unit |
|----------|---------------------------|------|
| counts, signed | c, s; s is bit 1 minus bit 0 | shares of slots |
| crossed  | cov(c, s)                 | squared shares |
| centre   | middle + half x sum of cov(c, s) over ranges / sum of var(c), rounded | measure units |
| slots    | N tau                     | people of both rounds times tau |
| kept     | E min(r, tau)             | rows a person within tau: the filled slots that ordinary reports tell |
| lost     | E (r - tau)+              | rows a person beyond tau: from people who reported how many they have |
| weight   | E r / E min(r, tau)       | only with `row_weighting: bit` |
| clipped  | lost / (lost + kept)      | share of all rows (up to `rows_cap` a person) |
| gain, moved | leaves moved by a cell's share, by one report | reports |

**Privacy**: post-processing of tallies, whose reports were private before they left the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dpsql.local import estimate
from dpsql.local.mechanisms.blue import (
    ShareEstimate,
    ViewReports,
    crossed,
    gains,
    range_workload,
    signed_gains,
)
from dpsql.local.mechanisms.truncation import ValueWithError, clipped_share, lost_by_histogram
from dpsql.local.oracles.oracle import FloatArray
from dpsql.local.plan import row_reports_of
from dpsql.local.tallies import CountedCollection

Influences = dict[int, FloatArray]
"""Per view, an axis's influence on each of its items."""


def total_of(
    collection: CountedCollection,
    known: Mapping[int, estimate.AxisTable],
    measure: int | None = None,
    half: float = 1.0,
    shift: float = 0.0,
) -> estimate.Total:
    """The total of all rows, or of a measure, as a share of slots.

    Args:
        collection: the counted reports.
        known: every axis's table; with a measure its `signed` holds half s + shift c (`centre.centred_on`).
        measure: None for counts.
        half, shift: for a measure, what multiplies signed values and counts.
    """
    influences = {}
    for axis in known:
        count = _influences(collection, axis)
        if measure is None:
            influences[axis] = count
            continue
        signed = _influences(collection, axis, measure)
        influences[axis] = {
            n: half * signed.get(n, np.zeros(1)) + shift * influence for n, influence in count.items()
        }
    covariance = _covariance(collection, list(influences.values()))
    estimates = [t.counts if measure is None else t.signed[measure] for t in known.values()]
    weights = estimate.weights_of(np.diag(covariance))
    value = float(weights @ np.array([e.shares.sum() for e in estimates]))
    drifting = 0.0 if measure is None else (value - shift) * estimate.drift_of(collection)
    return estimate.Total(value, max(float(weights @ covariance @ weights), 0.0) + drifting**2)


def _covariance(collection: CountedCollection, influences: list[Influences]) -> FloatArray:
    """Covariance of the axes' totals."""
    covariance = np.zeros((len(influences), len(influences)))
    for number in sorted({number for of_axis in influences for number in of_axis}):
        item_shares = np.clip(collection.shares(number), 0, 1)
        # of a view's items, times its reports
        noise = collection.oracle(number).structure(item_shares)
        matrix = np.array(
            [axis_influences.get(number, np.zeros(noise.diagonal.size)) for axis_influences in influences]
        )
        covariance += noise.between(matrix, matrix) / collection.tallies[number].total
    return covariance


def _influences(collection: CountedCollection, axis: int, measure: int | None = None) -> Influences:
    view_estimates, leaves = estimate.told_of(collection, axis, measure), collection.plan.axes[axis].leaves
    weights = (gains if measure is None else signed_gains)(
        [view_estimate.group for view_estimate in view_estimates]
    )
    return {
        view_estimate.number: gain[:leaves].sum(axis=0) @ view_estimate.items
        for view_estimate, gain in zip(view_estimates, weights, strict=True)
    }


class Centre(NamedTuple):
    """Centre of a measure's sums.

    Args:
        mid: the centre.
        half: half the measure's range.
        shift: the range's middle minus `mid`.
        left: what rounding `mid` leaves of the influence, in measure units.
        crossed: per axis the covariance of counts (rows) and signed values (columns).
    """

    mid: int
    half: float
    shift: float
    left: float
    crossed: Mapping[int, FloatArray]


def centre_of(collection: CountedCollection, known: Mapping[int, estimate.AxisTable], measure: int) -> Centre:
    """The centre around which a measure's sums err independently of counts, over all ranges of all axes.

    Args:
        collection: the counted reports.
        known: every axis's table.
        measure: the measure's position.
    """
    together = {a: _crossed(collection, a, table, measure) for a, table in known.items()}
    covariance = sum(float((k * range_workload(len(k))).sum()) for k in together.values())
    variance = sum(
        float((t.counts.covariance * range_workload(t.counts.shares.size)).sum()) for t in known.values()
    )
    bounds = collection.plan.measures[measure]
    lower, upper = bounds.lower, bounds.upper
    middle, half = (lower + upper) / 2, (upper - lower) / 2
    best = middle + half * float(np.clip(covariance / variance if variance > 0 else 0.0, -1.0, 1.0))
    mid = min(max(round(best), lower), upper)
    return Centre(mid, half, middle - mid, best - mid, together)


def centred_on(
    centre: Centre,
    known: Mapping[int, estimate.AxisTable],
    parts: estimate.Parts,
    counts: estimate.Parts,
    measure: int,
) -> tuple[dict[int, estimate.AxisTable], dict[tuple[int, ...], estimate.Interaction]]:
    """A measure's tables and interactions in measure units around the centre.

    Args:
        centre: from `centre_of`.
        known: every axis's table.
        parts: the measure's interactions.
        counts: the interactions of counts.
        measure: the measure's position.

    Returns:
        Axis tables whose `signed` holds the sums, and interactions. A part's own errors with the count's are not known;
        its strength is that of the sum around the middle, which is no less.
    """
    tables = {a: replace(t, signed=_moved(centre, a, t, measure)) for a, t in known.items()}
    moved = {}
    for key in {*parts, *counts}:
        signed, count = parts.get(key), counts.get(key)
        values = sum(f * p.values for f, p in ((centre.half, signed), (centre.shift, count)) if p is not None)
        strength = sum(
            f**2 * p.strength for f, p in ((centre.half, signed), (centre.left, count)) if p is not None
        )
        moved[key] = estimate.Interaction(np.asarray(values), strength)
    return tables, moved


def _moved(centre: Centre, axis: int, table: estimate.AxisTable, measure: int) -> tuple[ShareEstimate, ...]:
    """The signed estimates of an axis with the measure's in measure units around the centre."""
    signed, together = table.signed[measure], centre.crossed[axis]
    shares = centre.half * signed.shares + centre.shift * table.counts.shares
    covariance = (
        centre.half**2 * signed.covariance
        + centre.half * centre.shift * (together + together.T)
        + centre.shift**2 * table.counts.covariance
    )
    return (*table.signed[:measure], ShareEstimate(shares, covariance), *table.signed[measure + 1 :])


def _crossed(collection: CountedCollection, axis: int, table: estimate.AxisTable, measure: int) -> FloatArray:
    leaves, view_estimates = table.counts.shares.size, estimate.told_of(collection, axis)
    groups = [t.group for t in view_estimates]
    twins = {t.number: t.group for t in estimate.told_of(collection, axis, measure)}
    shares = np.clip(table.counts.shares, 0, None)
    silent = np.full(groups[0].design.shape[1] - leaves, max(1 - float(table.counts.shares.sum()), 0.0))
    distribution = np.append(shares, silent)
    distribution /= distribution.sum()
    values = np.clip(table.signed[measure].shares, -distribution[:leaves], distribution[:leaves])
    return crossed(groups, [twins.get(t.number) for t in view_estimates], distribution, values)[:leaves]


@dataclass(frozen=True)
class Scale:
    """Shares to rows.

    Args:
        slots: people of the collection times tau; with weighted views times the rows of a person within tau.
        weight: rows per counted row, 1 with slots.
        weight_error: standard error that the mean rows of a person bring to `weight`. What `kept` brings cancels
            against the noise of counts and sums themselves, which their error bars see to.
        clipped: share of the rows that tau left out, with its error; None where nobody reported row counts.
    """

    slots: float
    weight: float
    weight_error: float
    clipped: ValueWithError | None = None

    @property
    def cut(self) -> float:
        """Share of the rows left out, one standard error of it included: what noise hides may be there."""
        return 0.0 if self.clipped is None else float(np.hypot(*self.clipped))

    @property
    def factor(self) -> float:
        """Rows per unit of share."""
        return self.slots * self.weight


def row_scale(collection: CountedCollection, known: Mapping[int, estimate.AxisTable]) -> Scale:
    """People's slots, the weight of rows that tau left out, and which share of all rows those are.

    Args:
        collection: the counted reports.
        known: every axis's table.
    """
    plan, first = collection.plan, row_reports_of(collection.plan)
    people = float(collection.accepted + (0 if first is None else first.reports))
    if estimate.one_row_each(plan):
        # Weighted views give shares of all rows; rows a person come from reports within tau and beyond it.
        filled = estimate.filled_share(collection)
        rows_within = ValueWithError(filled.value * plan.tau, filled.error * plan.tau)
        beyond = estimate.rows_between(collection, plan.tau, plan.rows_cap) or ValueWithError(0.0, 0.0)
        rows = rows_within.value + max(beyond.value, 0.0)
        relative, weight = float(np.hypot(rows_within.error, beyond.error)) / rows, rows / rows_within.value
        clipped = clipped_share(beyond, rows_within)
        return Scale(people * rows_within.value, weight, relative * weight, clipped)
    total = total_of(collection, known)
    rows_within = ValueWithError(max(total.value, 1e-9) * plan.tau, float(np.sqrt(total.variance)) * plan.tau)
    counted = estimate.rows_between(collection, plan.rows_floor, plan.rows_cap)
    if counted is not None:
        mean = ValueWithError(plan.rows_floor + counted.value, counted.error)
        # The mean counts kept rows too, so what is lost errs against them.
        lost = ValueWithError(mean.value - rows_within.value, float(np.hypot(mean.error, rows_within.error)))
        clipped = clipped_share(lost, rows_within, together=-(rows_within.error**2))
        return Scale(people * plan.tau, 1.0, 0.0, clipped)
    if first is None:
        return Scale(people * plan.tau, 1.0, 0.0)
    support = np.array(first.support, dtype=np.float64)
    lost = lost_by_histogram(first.oracle, support, float(first.reports), plan.tau)
    return Scale(people * plan.tau, 1.0, 0.0, clipped_share(lost, rows_within))


def rows_moved(collection: CountedCollection, slots: float) -> float:
    """Most rows by which one report more moves the COUNT of any set of leaves of any one axis.

    Args:
        collection: the counted reports.
        slots: rows per unit of share (`Scale.factor`).
    """
    return slots * max(
        axis_moved(estimate.axis_groups(collection, axis), described.leaves)
        for axis, described in enumerate(collection.plan.axes)
    )


def axis_moved(groups: Sequence[ViewReports], leaves: int) -> float:
    """Most that one report moves the estimated share of any set of an axis's leaves, up or down.

    Args:
        groups: what all views say about the axis.
        leaves: its leaves; what `groups` hold beyond them ("no row") is counted by no answer.
    """
    moved = [
        group.oracle.moved(gain[:leaves] * group.stretch, group.shares / group.stretch, group.fan)
        / group.reports
        for group, gain in zip(groups, gains(groups), strict=True)
    ]
    return max(moved)
