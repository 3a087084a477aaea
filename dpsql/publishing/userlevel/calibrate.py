"""`calibrate: per_group`: a factor for each group of a view, under pure epsilon.

On an axis where all rows of a person share one leaf (her store, her country), groups whose people own more
rows than others are weighted down more, and one common R leaves them off. A one-way view with the bound
q.9(n) tells each group's own factor; it is noisy, so it is shrunk to R by as much as the factors vary beyond
their noise. On other axes this mostly adds noise. A calibrated view is not reconciled with the others, since
its totals differ from theirs. Under a delta differences do this for every view.

**Privacy**: docs/privacy/user_level.md section 6: one draw of weighted cells, at most q.9(n) rows a person.
**Source**: docs/method/user_level.md, "A factor for each group".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.strategy import draw_view, leaf_estimates
from dpsql.mechanisms.family.people import SEEN
from dpsql.mechanisms.family.tails import Factor
from dpsql.mechanisms.family.whitened import UNIT
from dpsql.mechanisms.law import NoisyView
from dpsql.publishing.cells import exact_sums
from dpsql.publishing.planned import Groups, PlannedStatistic, Step
from dpsql.publishing.userlevel.choose import GROUP_ROWS, Choices, Table, counts_of, is_sticky
from dpsql.publishing.userlevel.sql import WEIGHT, make_pure_weights, weighted

FloatArray = npt.NDArray[np.float64]


def calibrate_groups(
    table: Table, choices: Choices, factor: Factor, views: Mapping[int, NoisyView]
) -> Mapping[str, tuple[Groups, ...]]:
    """Factors, relative to R, of the groups of each calibrated view.

    Args:
        table: the table.
        choices: its bounds.
        factor: R.
        views: noisy views by index in the plan.

    Returns:
        View name -> its group axis and factors; views that are not calibrated are left out.
    """
    steps = {s.measure: s for s in table.plan.steps if (s.of, s.kind) == (table.of, GROUP_ROWS)}
    found = {}
    for i, statistic in counts_of(table.statistics).items():
        if statistic.view in steps:
            axis = group_axis(table, statistic)
            high = _high_rows(table, choices, axis, steps[statistic.view])
            low = _low_rows(table, statistic, axis, views[i])
            found[statistic.view] = (Groups(axis, tuple(shrunk(high, low, factor).tolist())),)
    return found


def group_axis(table: Table, statistic: PlannedStatistic) -> int:
    """The view's first axis on which a person has one leaf, else its first axis."""
    sticky = [axis for axis in statistic.axes if is_sticky(table.plan, table.of, axis)]
    return (sticky or list(statistic.axes))[0]


def shrunk(
    high: tuple[FloatArray, FloatArray], low: tuple[FloatArray, FloatArray], factor: Factor
) -> FloatArray:
    """R_g / R, shrunk to 1.

    Args:
        high: rows with the higher bound and their variances, by group.
        low: weighted rows and their variances, by group.
        factor: R.

    Returns:
        One factor for each group; 1 where a group is lost in noise, or R is.
    """
    factors = np.ones(len(high[0]))
    seen = (high[0] > SEEN * np.sqrt(high[1])) & (low[0] > SEEN * np.sqrt(low[1]))
    if factor.measured is None or np.count_nonzero(seen) < 2:
        return factors
    own = high[0][seen] / low[0][seen]
    own = own * low[0][seen].sum() / high[0][seen].sum()
    noise = own**2 * (high[1][seen] / high[0][seen] ** 2 + low[1][seen] / low[0][seen] ** 2)
    excess = ((own - 1.0) ** 2 / noise).sum() - len(own)
    between = max(0.0, excess / (1.0 / noise).sum())
    factors[seen] = 1.0 + between / (between + noise) * (own - 1.0)
    return factors


def _high_rows(table: Table, choices: Choices, axis: int, step: Step) -> tuple[FloatArray, FloatArray]:
    """Noisy rows of each group, a person's rows weighted to at most q.9(n)."""
    leaves = table.plan.axes[axis].axis.leaves
    weights = make_pure_weights(table.connection, table.rows, f"{table.of} groups", choices.high, [])
    (cells,) = exact_sums(table.connection, weighted(table.rows, weights), (axis,), (leaves,), [WEIGHT])
    strategies = [LeafStrategy(leaves, table.law)]
    reach = UNIT * choices.high
    view = draw_view(cells, strategies, step.spend, reach, table.noise)
    return leaf_estimates(view, strategies) / UNIT, np.full(leaves, view.unit_variance / UNIT**2)


def _low_rows(
    table: Table, statistic: PlannedStatistic, axis: int, view: NoisyView
) -> tuple[FloatArray, FloatArray]:
    """The view's weighted rows of each group and their variances."""
    strategies = table.plan.strategies(statistic)
    place = statistic.axes.index(axis)
    others = tuple(i for i in range(len(strategies)) if i != place)
    rows = leaf_estimates(view, strategies).sum(axis=others) / UNIT
    variance = view.unit_variance / UNIT**2
    for i in others:
        variance *= float(strategies[i].variance().ranges(np.array([0]), np.array([strategies[i].leaves]))[0])
    leaf = np.arange(strategies[place].leaves)
    return rows, variance * strategies[place].variance().ranges(leaf, leaf + 1)
