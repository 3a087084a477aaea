"""From shares of slots to rows: how many people reported, what tau left out, and how surely that is known.

| here     | there                     | unit |
|----------|---------------------------|------|
| slots    | N tau                     | people of both rounds times tau |
| kept     | E min(r, tau)             | rows a person within tau: the filled slots that ordinary reports tell |
| lost     | E (r - tau)+              | rows a person beyond tau: from people who reported how many they have |
| weight   | E r / E min(r, tau)       | only with `row_weighting: mar` |
| clipped  | lost / (lost + kept)      | share of all rows (up to `rows_cap` a person) |

**Privacy**: post-processing of reports that were private before they left the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpsql.client.plan import Plan
from dpsql.collecting.estimate import AxisTable
from dpsql.collecting.kinds import kind_of
from dpsql.collecting.plan import facts_of
from dpsql.collecting.tallies import Tallies
from dpsql.collecting.totals import total_of
from dpsql.mechanisms.local.truncation import Measured, clipped_share, lost_by_histogram


@dataclass(frozen=True)
class Scale:
    """Shares to rows.

    Args:
        slots: people of the collection times tau.
        weight: rows per counted row, 1 unless rows are taken as missing at random.
        weight_error: standard error that the mean rows of a person bring to `weight`. What `kept` brings cancels
            against the noise of counts and sums themselves, which their error bars see to.
        clipped: share of the rows that tau left out, with its error; None where nobody reported row counts.
    """

    slots: float
    weight: float
    weight_error: float
    clipped: Measured | None = None

    @property
    def factor(self) -> float:
        """Rows per unit of share."""
        return self.slots * self.weight


def row_scale(plan: Plan, tallies: Tallies, known: Mapping[int, AxisTable]) -> Scale:
    """People's slots, the weight of rows that tau left out, and which share of all rows those are.

    Args:
        plan: the plan that people answered.
        tallies: counts per view.
        known: every axis's table.
    """
    first = facts_of(plan).row_reports
    people = sum(t.total for t in tallies) + (0 if first is None else first.reports)
    kept = _kept(plan, tallies, known)
    mean = _mean_rows(plan, tallies)
    if mean is not None:
        # The mean counts kept rows too, so what is lost errs against them.
        lost = Measured(mean.value - kept.value, float(np.hypot(mean.error, kept.error)))
        clipped = clipped_share(lost, kept, together=-(kept.error**2))
        if facts_of(plan).missing_at_random:
            weight = max(mean.value / kept.value, 1.0)
            return Scale(float(people) * plan.tau, weight, mean.error / kept.value, clipped)
        return Scale(float(people) * plan.tau, 1.0, 0.0, clipped)
    if first is None:
        return Scale(float(people) * plan.tau, 1.0, 0.0)
    counted = np.array(first.support, dtype=np.float64)
    lost = lost_by_histogram(first.oracle, counted, float(first.reports), plan.tau)
    return Scale(float(people) * plan.tau, 1.0, 0.0, clipped_share(lost, kept))


def _kept(plan: Plan, tallies: Tallies, known: Mapping[int, AxisTable]) -> Measured:
    """Rows a person within tau."""
    total = total_of(plan, tallies, known)
    return Measured(max(total.value, 1e-9) * plan.tau, float(np.sqrt(total.variance)) * plan.tau)


def _mean_rows(plan: Plan, tallies: Tallies) -> Measured | None:
    """Mean rows of a person, `rows_floor` to `rows_cap`, from one-bit reports; None if there are none."""
    for number, view in enumerate(plan.views):
        told = kind_of(view).mean_rows(plan, number, tallies[number])
        if told is not None:
            return told
    return None
