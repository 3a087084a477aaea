"""How far one hostile report moves an answer: whatever it says, and whichever leaves of one axis are counted.

An axis's unbiased estimate is linear in what the reports say, with weights that do not depend on them. A report of GRR
or Square Wave says one cell; one of OUE or OLH may say any of its view's cells at once, and so moves a set of leaves
much further than any one of them.

| here | there | unit |
|------|-------|------|
| gain | leaves moved by a cell's share | |
| moved | of the oracle: the most that one report adds to any leaves | reports |

**Privacy**: post-processing of tallies.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.client.plan import Plan
from dpsql.collecting.cells import axis_groups
from dpsql.collecting.tallies import Tallies
from dpsql.mechanisms.local.blue import Group, gains


def rows_moved(plan: Plan, tallies: Tallies, slots: float) -> float:
    """Most rows by which one report more moves the COUNT of any set of leaves of any one axis.

    Args:
        plan: the plan.
        tallies: counts per view.
        slots: rows per unit of share (`Scale.factor`).
    """
    return slots * max(
        axis_moved(axis_groups(plan, tallies, axis), described.leaves)
        for axis, described in enumerate(plan.axes)
    )


def axis_moved(groups: Sequence[Group], leaves: int) -> float:
    """Most that one report moves the estimated share of any set of an axis's leaves, up or down.

    Args:
        groups: what all views say about the axis.
        leaves: its leaves; what `groups` hold beyond them ("no row") is counted by no answer.
    """
    moved = [
        group.oracle.moved(gain[:leaves], group.shares, group.fan) / group.reports
        for group, gain in zip(groups, gains(groups), strict=True)
    ]
    return max(moved)
