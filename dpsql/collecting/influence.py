"""How far one hostile report moves an answer: whatever it says, and whichever leaves of one axis are counted.

An axis's unbiased estimate is linear in what the reports say, with weights that do not depend on them. A report of GRR
or Square Wave says one cell; one of OUE or OLH may say any of its view's cells at once, and so moves a set of leaves
much further than any one of them.

| here | there | unit |
|------|-------|------|
| gain | leaves moved by a cell's share | |
| said | (1 - q) / (p - q), -q / (p - q) | share of one report |

**Privacy**: post-processing of tallies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsql.client.plan import Plan
from dpsql.collecting.cells import axis_groups
from dpsql.collecting.tallies import Tallies
from dpsql.mechanisms.local.blue import Group, gains
from dpsql.mechanisms.local.oracles import FloatArray


def rows_moved(plan: Plan, tallies: Tallies, slots: float) -> float:
    """Most rows by which one report more moves the COUNT of any set of leaves of any one axis.

    Args:
        plan: the plan.
        tallies: counts per view.
        slots: rows per unit of share (`Scale.factor`).
    """
    return slots * max(
        axis_moved(axis_groups(plan, tallies, axis), a["leaves"]) for axis, a in enumerate(plan.axes)
    )


def axis_moved(groups: Sequence[Group], leaves: int) -> float:
    """Most that one report moves the estimated share of any set of an axis's leaves, up or down.

    Args:
        groups: what all views say about the axis.
        leaves: its leaves; what `groups` hold beyond them ("no row") is counted by no answer.
    """
    moved = [
        _moved(group, gain[:leaves]) / group.reports
        for group, gain in zip(groups, gains(groups), strict=True)
    ]
    return max(moved)


def _moved(group: Group, gain: FloatArray) -> float:
    """The same for one group, times its reports."""
    oracle, held = group.oracle, gain @ group.shares
    if oracle.name == "WAVE":
        return _farthest(gain - held[:, None])
    gap, fan = oracle.p - oracle.q, np.broadcast_to(np.asarray(group.fan, np.float64), group.shares.shape)
    silent = -fan * oracle.q / gap
    if oracle.name == "GRR":
        return _farthest(gain / gap + (gain @ silent - held)[:, None])
    # Each item's bit is free: what a set gains from all of them is at most the sum over cells of what each may add.
    most, least = fan * (1 - oracle.q) / gap, -silent
    up, down = np.maximum(gain, 0).sum(axis=0), np.maximum(-gain, 0).sum(axis=0)
    rest = float(np.abs(held).sum())
    return rest + float(max(up @ most + down @ least, down @ most + up @ least))


def _farthest(moves: FloatArray) -> float:
    """Largest sum of moves of one sign within a column: the set of leaves that is moved most."""
    return float(max(np.maximum(moves, 0).sum(axis=0).max(), np.maximum(-moves, 0).sum(axis=0).max()))
