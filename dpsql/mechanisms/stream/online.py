"""The total so far of a time axis, kept up to date in O(levels) a batch.

Only sums of best estimates are carried: per level, the closed nodes inside the open node one level up. A
block that closes replaces its children's sum by the inverse-variance mean of that sum and its own
measurement, once; a closed node never reopens. This is what a reader needs who follows the stream without
keeping it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpsql.mechanisms.stream.laminar import Currency
from dpsql.mechanisms.stream.time_tree import TimePlan


@dataclass(frozen=True)
class RunningTotal:
    """Estimates of the closed nodes so far; make the first with `running_total`.

    Attributes:
        plan: node sizes and budgets.
        spread: variance of one node of each level as measured.
        batches: how many batches have arrived.
        open_sum: per level, sum of best estimates of the closed nodes inside the open node above.
        open_variance: per level, the variance of that sum.
    """

    plan: TimePlan
    spread: tuple[float, ...]
    batches: int
    open_sum: tuple[float, ...]
    open_variance: tuple[float, ...]

    @property
    def estimate(self) -> float:
        """Best estimate of the total of all batches so far."""
        return sum(self.open_sum)

    @property
    def variance(self) -> float:
        """Its variance, at the same unit as `spread`."""
        return sum(self.open_variance)

    def append(self, measured: Sequence[float]) -> RunningTotal:
        """The state after one more batch.

        Args:
            measured: the noisy sums of the nodes that close with this batch, finest first.

        Raises:
            ValueError: when the number of nodes is not the number that closes now.
        """
        batches = self.batches + 1
        closing = [level for level, span in enumerate(self.plan.spans) if batches % span == 0]
        if len(measured) != len(closing):
            raise ValueError(f"batch {batches} closes {len(closing)} nodes, not {len(measured)}")
        sums, variances = list(self.open_sum), list(self.open_variance)
        for level, value in zip(closing, measured, strict=True):
            own = self.spread[level]
            if level == 0:
                best, left = float(value), own
            else:  # the children's sum is spent: it moves up one level, corrected
                below, known = sums[level - 1], variances[level - 1]
                best = below + known / (known + own) * (float(value) - below)
                left = known * own / (known + own)
                sums[level - 1], variances[level - 1] = 0.0, 0.0
            sums[level] += best
            variances[level] += left
        return replace(self, batches=batches, open_sum=tuple(sums), open_variance=tuple(variances))


def running_total(plan: TimePlan, currency: Currency) -> RunningTotal:
    """The state before the first batch.

    >>> state = running_total(TimePlan((1, 2), (1, 1)), "pure").append([4]).append([6, 13])
    >>> round(state.estimate, 4), round(state.variance, 4)
    (12.0, 5.3333)
    """
    zeros = (0.0,) * len(plan.spans)
    return RunningTotal(plan, tuple(plan.variances(currency).tolist()), 0, zeros, zeros)
