"""The smooth, non-negative counts that are stored beside the unbiased ones and answer on request.

One ordered axis takes the log-smooth stack, several axes one joint fit. They are biased towards smooth histograms and
far less noisy. A stack has error bars of its own, from repeating its fits; how often it leaves the unbiased estimate's
interval is stored as a warning. A joint fit's answers keep the unbiased ones' bars, which are wider than they need be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dpsql.client.plan import Plan
from dpsql.collecting.estimate import AxisTable
from dpsql.collecting.smooth import joint_table, smooth_axis
from dpsql.collecting.tallies import Tallies
from dpsql.mechanisms.local.blue import Estimate, range_variances
from dpsql.mechanisms.local.oracles import FloatArray
from dpsql.mechanisms.local.smooth import stack_covariance

MOST_NUMBERS = 25_000_000
"""Most cells x weights of a joint fit, which takes about four times as many doubles: two axes of 200 leaves took 50
seconds of one core and 0.7 GB, three of 34 leaves 6 seconds and 0.2 GB."""
MOST_WEIGHTS = 1_100
"""Most weights of a joint fit, each step of which solves for all of them: categories have one weight a combination, and
32 x 32 of them took 42 seconds, 100 x 100 would take hours."""
KNOTS = {1: 12, 2: 12}
"""At most so many knots of a pair along an ordered axis, by how many ordered axes are fitted together; else 6."""
WIDE_KNOTS = 4
"""At most so many knots along an ordered axis of what three axes or more do together."""
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
        (`fit_size`), a pair that no view saw. Such a view's answers stay unbiased whatever the reader asks.
    """
    sizes = [plan.axes[a]["leaves"] for a in axes]
    if len(axes) == 1:
        smooth = int(plan.axes[axes[0]].get("smooth", 0))
        return _stacked(plan, tallies, axes[0], smooth, known) if smooth >= SMOOTH else None
    pairs = itertools.combinations(axes, 2)
    told = all(any(set(p) <= set(v.axes) for v in plan.views if v.kind == "grid") for p in pairs)
    grids = [[axes.index(a) for a in v.axes if a in axes] for v in plan.views if v.kind == "grid"]
    weights = fit_size(sizes, [int(plan.axes[a].get("smooth", 0)) for a in axes], grids)
    if not told or weights > MOST_WEIGHTS or weights * math.prod(sizes) > MOST_NUMBERS:
        return None
    filled = float(np.clip(np.mean([known[a].filled for a in axes]), 1e-6, 1.0))
    return Positive(joint_table(plan, tallies, axes, None, filled).shares * filled)


def fit_size(sizes: Sequence[int], smooth: Sequence[int], grids: Sequence[Sequence[int]] = ()) -> int:
    """At most how many weights a joint fit has: of axes, of pairs, and of what grids tell of three axes or more.

    Args:
        sizes: leaves of each axis.
        smooth: leading leaves of each along which neighbours resemble each other.
        grids: positions that a grid holds together.

    Example:
        >>> fit_size([200, 200], [200, 200]), fit_size([100, 100], [0, 0])
        (544, 10200)
    """
    knots = KNOTS.get(sum(s >= SMOOTH for s in smooth), 6)
    pair, wide = (
        [min(s, most) + size - s for size, s in zip(sizes, smooth, strict=True)]
        for most in (knots, WIDE_KNOTS)
    )
    more = {
        part
        for grid in grids
        for width in range(3, len(grid) + 1)
        for part in itertools.combinations(sorted(grid), width)
    }
    pairs = sum(one * other for one, other in itertools.combinations(pair, 2))
    return sum(sizes) + pairs + sum(math.prod(wide[i] for i in part) for part in more)


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
