"""Strategies of time in closed form and as matrices, and a running total: what the package's integers are held against.

| here                 | seed 004                     | unit                                   |
|----------------------|------------------------------|----------------------------------------|
| strategy_matrix(n)   | M, algorithm 5.2 (pt <= N)   | row i - 1 is node i                    |
| decoder_matrix(n)    | B, algorithm 5.3 gives B'    | row t - 1 is the prefix of t batches   |
| fda_share(n, i)      | lambda_i                     | fraction of epsilon (Gaussian: of mu^2)|
| fda_error(n)         | err                          | sum of w_i / lambda_i^2, w_i = uses    |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from dpsql.mechanisms.continual.prefixes import fenwick_nodes
from dpsql.mechanisms.continual.spectral import ending_rows, lasting_rows
from dpsql.mechanisms.continual.time_tree import StreamProblem, TimeStrategy, question_of, share_variance
from dpsql.mechanisms.distribution import GAUSSIAN, NoiseDistribution
from dpsql.streams.append import StreamSpec
from dpsql.streams.public import create_directory
from dpsql.streams.state import create_state
from dpsql.tree import FloatArray, IntArray

USUAL = ("running", "range", "1", "7")
"""What is asked where a test does not say."""


def asking(
    law: NoiseDistribution, horizon: int, *names: str, ends: bool = True, units: int = 1
) -> StreamProblem:
    """These questions, all alike."""
    return StreamProblem(law, horizon, tuple(question_of(name, 1) for name in names), units, ends)


def ending(horizon: int, *names: str, units: int = 1, cutoff: float = 1.0) -> TimeStrategy:
    """Spectral rows for a known end."""
    return ending_rows(asking(GAUSSIAN, horizon, *(names or USUAL), units=units), cutoff)


def lasting(horizon: int, *names: str, cutoff: float = 1.0) -> TimeStrategy:
    """Spectral rows without an end."""
    return lasting_rows(asking(GAUSSIAN, horizon, *(names or USUAL), ends=False), cutoff)


def mean_error(strategy: TimeStrategy, batches: int, name: str) -> float:
    """Mean variance of a kind of question over the first batches, at epsilon 1 or mu^2 1."""
    return strategy.law.error_at_unit_budget * question_of(name, 1).mean_variance(strategy.variance(batches))


def level_variance(tree: TimeStrategy) -> FloatArray:
    """Noise variance of one node of each level, against a node that spends all."""
    budgets = np.array(tree.stored["budgets"])
    return share_variance(tree.law, budgets / budgets.sum())


def strategy_matrix(n: int) -> IntArray:
    """M: 1 where a node covers a batch (int64[n, n])."""
    nodes, batch = fenwick_nodes(n), np.arange(n)
    return ((nodes.lo[:, None] <= batch) & (batch < nodes.hi[:, None])).astype(np.int64)


def decoder_matrix(n: int) -> IntArray:
    """B: 1 where a prefix reads a node (int64[n, n]); B M is all lower ones."""
    nodes, length = fenwick_nodes(n), np.arange(1, n + 1)[:, None]
    return ((nodes.first <= length) & (length < nodes.stop)).astype(np.int64)


@lru_cache(maxsize=256)
def block_error(levels: int, exponent: float) -> float:
    """err_m: the optimum for 2^m - 1 batches."""
    if levels == 0:
        return 0.0
    block = block_error(levels - 1, exponent)
    return float((block**exponent + float(1 << (levels - 1)) ** exponent) ** (1 / exponent)) + block


def fda_error(n: int, exponent: float = 1 / 3) -> float:
    """The least sum of uses / lambda^2 over the prefixes of n batches; times 2 / epsilon^2, the total variance."""
    total = 0.0
    while n > 0:
        levels = n.bit_length() - 1
        rest = n - (1 << levels)
        total += float(
            (block_error(levels, exponent) ** exponent + (rest + 1.0) ** exponent) ** (1 / exponent)
        )
        n = rest
    return total


def fda_share(n: int, number: int, exponent: float = 1 / 3) -> float:
    """lambda_i in floating point: the optimal share of node i when n batches are planned."""
    scale = 1.0
    while True:
        levels = n.bit_length() - 1
        corner = 1 << levels
        if number > corner:  # the right block is independent of the left one
            number, n = number - corner, n - corner
            continue
        below = block_error(levels, exponent) ** exponent
        own = (n - corner + 1.0) ** exponent
        if number == corner:
            return float(scale * own / (below + own))
        scale *= below / (below + own)
        n = corner - 1


@dataclass(frozen=True)
class RunningTotal:
    """The total so far of a tree, kept up to date in O(levels) a batch.

    Only sums of best estimates are carried: per level, the closed nodes inside the open node one level up. A block that
    closes replaces its children's sum by the inverse-variance mean of that sum and its own measurement, once.
    """

    tree: TimeStrategy
    batches: int
    open_sum: tuple[float, ...]
    open_variance: tuple[float, ...]

    @property
    def estimate(self) -> float:
        """Best estimate of the total of all batches so far."""
        return sum(self.open_sum)

    @property
    def variance(self) -> float:
        """Its variance, against a node that spends all."""
        return sum(self.open_variance)

    def append(self, measured: Sequence[float]) -> RunningTotal:
        """The state after one more batch, which closes these nodes, finest first."""
        batches = self.batches + 1
        closing = [level for level, span in enumerate(self.tree.stored["spans"]) if batches % span == 0]
        sums, variances = list(self.open_sum), list(self.open_variance)
        for level, value in zip(closing, measured, strict=True):
            own = float(level_variance(self.tree)[level])
            best, left = float(value), own
            if level:  # the children's sum is spent: it moves up one level, corrected
                below, known = sums[level - 1], variances[level - 1]
                best = below + known / (known + own) * (float(value) - below)
                left = known * own / (known + own)
                sums[level - 1], variances[level - 1] = 0.0, 0.0
            sums[level] += best
            variances[level] += left
        return replace(self, batches=batches, open_sum=tuple(sums), open_variance=tuple(variances))


def running_total(tree: TimeStrategy) -> RunningTotal:
    """The state before the first batch."""
    zeros = (0.0,) * len(tree.stored["spans"])
    return RunningTotal(tree, 0, zeros, zeros)


def create_stream(
    directory: Path, private: Path, spec: StreamSpec, *, release_id: str, secret: bytes
) -> None:
    """An empty stream without a catalog: the private state first, then the public directory."""
    create_state(private, {"release_id": release_id, "spec": spec.text()}, secret)
    create_directory(directory, release_id, None)
