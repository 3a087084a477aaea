"""The smooth, non-negative counts that are stored beside the unbiased ones and answer on request.

One ordered axis takes the log-smooth stack, several axes one joint fit. They are biased towards smooth histograms and
far less noisy. A stack has error bars of its own, from repeating its fits; how often it leaves the unbiased estimate's
interval is stored as a warning. A joint fit's answers keep the unbiased ones' bars, which are wider than they need be.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dpsql.client.plan import Plan
from dpsql.collecting.estimate import AxisTable
from dpsql.collecting.smooth import joint_fits, joint_table, smooth_axis
from dpsql.collecting.tallies import Tallies
from dpsql.mechanisms.local.blue import Estimate, range_variances
from dpsql.mechanisms.local.smooth import stack_covariance
from dpsql.mechanisms.oracles.oracle import FloatArray

SMOOTH = 4
"""Fewest ordered leaves that a third difference can bend along."""


class Positive(NamedTuple):
    """Non-negative shares of slots per leaf combination, and a stack's own covariance of them."""

    shares: FloatArray
    covariance: FloatArray | None = None


def positive_shares(
    plan: Plan, tallies: Tallies, axes: Sequence[int], known: Mapping[int, AxisTable]
) -> Positive | None:
    """Non-negative shares of slots per leaf combination.

    Args:
        plan: the plan.
        tallies: counts per view.
        axes: a view's axes.
        known: every axis's table.

    Returns:
        Shares of the shape of the axes' leaves; None where no fit is made: one unordered axis, a fit too large
        (`joint_fits`), a pair that no view saw. Such a view's answers stay unbiased whatever the reader asks.
    """
    if len(axes) == 1:
        smooth = plan.axes[axes[0]].smooth
        return _stacked(plan, tallies, axes[0], smooth, known) if smooth >= SMOOTH else None
    pairs = itertools.combinations(axes, 2)
    told = all(any(view.holds(pair) for view in plan.views) for pair in pairs)
    if not told or not joint_fits(plan, axes):
        return None
    filled = float(np.clip(np.mean([known[a].filled for a in axes]), 1e-6, 1.0))
    return Positive(joint_table(plan, tallies, axes, None, filled).shares * filled)


def _stacked(
    plan: Plan, tallies: Tallies, axis: int, smooth: int, known: Mapping[int, AxisTable]
) -> Positive:
    """One axis's stack with its covariance; the draws follow from the plan, so that a release can be made again."""
    found, unbiased = smooth_axis(plan, tallies, axis), known[axis].counts
    rng = np.random.default_rng(int.from_bytes(plan.hash, "big") + axis)
    covariance = stack_covariance(found, unbiased.covariance, smooth, rng)
    return Positive(found.shares[: unbiased.shares.size], covariance)


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
