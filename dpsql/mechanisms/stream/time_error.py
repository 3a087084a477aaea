"""Predicted errors of a time plan, exact and in O(n) a level: running totals, prefixes, ranges, windows."""

from __future__ import annotations

import numpy as np

from dpsql.mechanisms.laminar import FloatArray, IntArray
from dpsql.mechanisms.stream.laminar import Currency
from dpsql.mechanisms.stream.time_tree import TimePlan, TimeVariance, time_variance


def plan_variance(plan: TimePlan, batches: int, currency: Currency) -> TimeVariance:
    """The time axis of a plan after so many batches, at epsilon = 1 or rho = 1/2."""
    return time_variance(plan.edges(batches), plan.variances(currency))


def running_variance(plan: TimePlan, batches: int, currency: Currency) -> FloatArray:
    """Variance of the total so far at each batch 1..batches, asked on the spot, when open blocks lack theirs.

    >>> running_variance(TimePlan((1, 2), (1, 1)), 3, "pure").round(4).tolist()
    [8.0, 5.3333, 13.3333]
    """
    length = np.arange(1, batches + 1, dtype=np.int64)
    value = np.zeros(batches)
    closed = 0.0  # variance of a closed node of this level, given all below it
    for level, (span, variance) in enumerate(zip(plan.spans, plan.variances(currency), strict=True)):
        below = closed * (span // plan.spans[level - 1]) if level else np.inf
        closed = float(variance) if level == 0 else below * float(variance) / (below + float(variance))
        top = level + 1 == len(plan.spans)
        count = length // span if top else length % plan.spans[level + 1] // span
        value += count * closed
    return value


def mean_prefix(axis: TimeVariance) -> float:
    """Mean variance of the prefixes 1..n, asked when all n batches are there."""
    stop = np.arange(1, axis.n + 1)
    return float(axis.ranges(np.zeros_like(stop), stop).mean())


def mean_window(axis: TimeVariance, length: int) -> float:
    """Mean variance of all windows of `length` batches.

    Raises:
        ValueError: when no window of that length fits.
    """
    if not 1 <= length <= axis.n:
        raise ValueError("a window must hold at least one batch and fit into the horizon")
    start = np.arange(axis.n - length + 1)
    return float(axis.ranges(start, start + length).mean())


def mean_range(axis: TimeVariance) -> float:
    """Mean variance of all n (n + 1) / 2 ranges, without visiting them.

    Leaf i lies in (i + 1)(n - i) ranges. A node's term is gain * (A(t) - A(s))^2 with A its running alpha,
    and the sum of squared differences over all pairs of the n + 1 positions is (n + 1) sum A^2 - (sum A)^2.
    """
    n = axis.n
    place = np.arange(n, dtype=np.float64)
    value = float(np.diff(axis.leaf) @ ((place + 1) * (n - place)))
    for edges, alpha, gain in zip(axis.edges, axis.alpha, axis.gain, strict=True):
        if gain.size:
            value -= float(gain @ _pair_sums(n, edges, alpha))
    return value / (n * (n + 1) / 2)


def _pair_sums(n: int, edges: IntArray, alpha: FloatArray) -> FloatArray:
    """Per node of one level: the squared difference of its running alpha, summed over pairs of positions."""
    closed = int(edges[-1])
    rise = alpha[1 : closed + 1] - np.repeat(alpha[edges[:-1]], np.diff(edges))
    total = np.diff(alpha[edges])
    after = (n - edges[1:]).astype(np.float64)  # positions past the node, where A stays at its total
    first = np.add.reduceat(rise, edges[:-1]) + total * after
    second = np.add.reduceat(rise**2, edges[:-1]) + total**2 * after
    return np.asarray((n + 1) * second - first**2)
