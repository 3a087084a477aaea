"""The smooth, non-negative counts that are stored beside the unbiased ones and answer on request.

One ordered axis takes the log-smooth stack, several axes one joint fit. They are biased towards smooth histograms and
far less noisy; how often a stack leaves the unbiased estimate's interval is stored as a warning.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from dpsql.client.plan import Plan
from dpsql.collecting.estimate import AxisTable
from dpsql.collecting.smooth import joint_table, smooth_axis
from dpsql.collecting.tallies import Tallies
from dpsql.mechanisms.local.blue import Estimate, range_variances
from dpsql.mechanisms.local.oracles import FloatArray

MOST_CELLS = 10_000
SMOOTH = 4
"""Fewest ordered leaves that a third difference can bend along."""


def positive_shares(
    plan: Plan, tallies: Tallies, axes: Sequence[int], known: Mapping[int, AxisTable]
) -> FloatArray | None:
    """Non-negative shares of slots per leaf combination.

    Args:
        plan: the plan.
        tallies: counts per view.
        axes: a view's axes.
        known: every axis's table.

    Returns:
        Shape of the axes' leaves; None where no fit is made (one unordered axis, too many cells, a pair unseen).
    """
    sizes = [plan.axes[a]["leaves"] for a in axes]
    if len(axes) == 1:
        ordered = int(plan.axes[axes[0]].get("smooth", 0)) >= SMOOTH
        return smooth_axis(plan, tallies, axes[0]).shares[: sizes[0]] if ordered else None
    pairs = itertools.combinations(axes, 2)
    told = all(any(set(p) <= set(v.axes) for v in plan.views if v.kind == "grid") for p in pairs)
    if not told or int(np.prod(sizes)) > MOST_CELLS:
        return None
    filled = float(np.clip(np.mean([known[a].filled for a in axes]), 1e-6, 1.0))
    return joint_table(plan, tallies, axes, None, filled).shares * filled


def outside(shares: FloatArray, unbiased: Estimate) -> float:
    """Share of all ranges where an estimate leaves the unbiased one's 95% interval; above 5% it is a warning.

    Example:
        >>> held = Estimate(np.array([0.5, 0.5]), np.diag([1e-4, 1e-4]))
        >>> outside(np.array([0.5, 0.5]), held), outside(np.array([0.9, 0.1]), held)
        (0.0, 0.6666666666666666)
    """
    off = np.concatenate([[0.0], np.cumsum(shares - unbiased.shares)])
    distance = np.abs(off[None, :] - off[:, None])
    wide = 1.96 * np.sqrt(np.maximum(range_variances(unbiased.covariance), 0.0))
    upper = np.triu_indices(off.size, 1)
    return float(np.mean(distance[upper] > wide[upper] + 1e-12))
