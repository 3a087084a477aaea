"""Around which value a measure's sums are stored, so that they and the counts err independently.

SUM is put together as y + mid c, and answers take the errors of y and c for independent. One report says both: where
most values lie near a bound the two bits of a cell err together, the more the larger epsilon is. Around the right mid
the sum's error is what the count's does not explain.

| here | there | unit |
|------|-------|------|
| counts, signed | c, s | shares of slots; s is bit 1 minus bit 0 |
| crossed | cov(c, s) | squared shares |
| lean | sum of cov(c, s) over ranges / sum of var(c) | half-ranges a row |
| mid  | middle + half lean, rounded | measure units |

**Privacy**: a function of reports that were private before they left the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpsql.client.plan import Plan
from dpsql.collecting.cells import axis_groups, axis_views, signed_group
from dpsql.collecting.estimate import AxisTable, Part, Parts
from dpsql.collecting.tallies import FOLDS, Tallies
from dpsql.mechanisms.local.blue import Estimate, crossed, range_workload
from dpsql.mechanisms.oracles.oracle import FloatArray


class Centre(NamedTuple):
    """Where a measure's sums are centred.

    Args:
        mid: the centre.
        half: half the measure's range.
        shift: the range's middle minus `mid`.
        left: what rounding `mid` leaves of the lean, in measure units.
        crossed: per axis the covariance of counts (rows) and signed values (columns).
    """

    mid: int
    half: float
    shift: float
    left: float
    crossed: Mapping[int, FloatArray]


def centre_of(plan: Plan, tallies: Tallies, known: Mapping[int, AxisTable], measure: int) -> Centre:
    """The centre around which a measure's sums err independently of counts, over all ranges of all axes.

    Args:
        plan: the plan.
        tallies: counts per view.
        known: every axis's table.
        measure: the measure's position.
    """
    together = {a: _crossed(plan, tallies, a, held, measure) for a, held in known.items()}
    both = sum(float((k * range_workload(len(k))).sum()) for k in together.values())
    own = sum(
        float((t.counts.covariance * range_workload(t.counts.shares.size)).sum()) for t in known.values()
    )
    bounds = plan.measures[measure]
    lower, upper = bounds.lower, bounds.upper
    middle, half = (lower + upper) / 2, (upper - lower) / 2
    best = middle + half * float(np.clip(both / own if own > 0 else 0.0, -1.0, 1.0))
    mid = min(max(round(best), lower), upper)
    return Centre(mid, half, middle - mid, best - mid, together)


def centred_on(
    centre: Centre, known: Mapping[int, AxisTable], parts: Parts, counts: Parts, measure: int
) -> tuple[dict[int, AxisTable], dict[tuple[int, ...], Part]]:
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
        moved[key] = Part(np.asarray(values), strength)
    return tables, moved


def _moved(centre: Centre, axis: int, held: AxisTable, measure: int) -> tuple[Estimate, ...]:
    """The signed estimates of an axis with the measure's in measure units around the centre."""
    signed, together = held.signed[measure], centre.crossed[axis]
    shares = centre.half * signed.shares + centre.shift * held.counts.shares
    covariance = (
        centre.half**2 * signed.covariance
        + centre.half * centre.shift * (together + together.T)
        + centre.shift**2 * held.counts.covariance
    )
    return (*held.signed[:measure], Estimate(shares, covariance), *held.signed[measure + 1 :])


def _crossed(plan: Plan, tallies: Tallies, axis: int, held: AxisTable, measure: int) -> FloatArray:
    leaves, groups = held.counts.shares.size, axis_groups(plan, tallies, axis)
    shares = np.clip(held.counts.shares, 0, None)
    silent = np.full(groups[0].design.shape[1] - leaves, max(1 - float(held.counts.shares.sum()), 0.0))
    whole = np.append(shares, silent)
    whole /= whole.sum()
    values = np.clip(held.signed[measure].shares, -whole[:leaves], whole[:leaves])
    numbers = axis_views(plan, tallies, axis, range(FOLDS))
    twins = [signed_group(plan, tallies, axis, measure, number) for number in numbers]
    return crossed(groups, twins, whole, values)[:leaves]
