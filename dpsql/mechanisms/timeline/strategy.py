"""A strategy of time: what each batch publishes, how exact totals, ranges and days then are.

One `Emission` is one noisy number per cell: the exact sum over the batches [lo, hi), weighted where the strategy
weighs them, plus signed *noise nodes*. A noise node is one draw per cell. It spends a share of what the statistic may
spend, of epsilon under Laplace noise and of mu^2 under Gaussian noise. Positions are prefix lengths: before batch b
(0-based) b batches have arrived, after it b + 1.

| here                    | unit                                                                              |
|-------------------------|-----------------------------------------------------------------------------------|
| share                   | part of the statistic's spend, exact                                              |
| variance of a strategy  | noise of variance 1 on a node that spends all; `NoiseLaw.unit_variance` multiplies |
| errors of a strategy    | variance per unit count at epsilon 1 or mu^2 1: `NoiseLaw.unit_error` times that  |

**Privacy**: over any batch, sum over the noise nodes of share * |weight|^norm <= 1, where the weight is what the node's
exact sum counts a row of that batch with. So a row of one batch pays at most the statistic's spend, however long the
stream runs; batches past `horizon`, for which nothing is left, are refused.
**Source**: docs/method/streams.md, "The split theorem".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.law import NoiseLaw
from dpsql.tree import FloatArray, IntArray
from dpsql.variance import AxisVariance

UNIT = 1 << 30
"""Integer budget of a whole path where shares are not already integers."""

Frozen = Mapping[str, Any]
"""Plain values of JSON that hold a whole strategy but for its law."""


class NodeRead(NamedTuple):
    """One noise node that an emission reads.

    Attributes:
        node: its number within the strategy; a number names one draw per cell, for ever.
        sign: +1 or -1.
        share: what the node spends, of the statistic's spend.
        until: the first prefix length that no longer reads it.
    """

    node: int
    sign: int
    share: Fraction
    until: int


@dataclass(frozen=True)
class Emission:
    """One noisy sum.

    Attributes:
        level: size class of the node, 0 the finest.
        lo, hi: batches [lo, hi) that the exact sum covers.
        reads: the noise nodes added.
        weights: int64[hi - lo] factors of the batches, or None for a plain sum.
    """

    level: int
    lo: int
    hi: int
    reads: tuple[NodeRead, ...]
    weights: IntArray | None = None


class TimeErrors(Protocol):
    """Mean variances of a strategy's answers over some first batches, at epsilon 1 or mu^2 1."""

    def running(self) -> float:
        """Totals so far, each asked when its batch arrives."""

    def prefix(self) -> float:
        """Totals so far, asked when all batches are there."""

    def range(self) -> float:
        """All ranges of batches, equally likely."""

    def window(self, length: int) -> float:
        """All windows of so many batches. ValueError where none fits."""


class TimeStrategy(Protocol):
    """What is measured over time, frozen when a stream is made; made of public facts alone."""

    @property
    def kind(self) -> str:
        """What a stored strategy is called."""

    @property
    def law(self) -> NoiseLaw:
        """The noise that its shares are for."""

    @property
    def horizon(self) -> int | None:
        """Batches that there is budget for; None: without end."""

    @property
    def name(self) -> str:
        """What it is, in words."""

    def emissions(self, batch: int) -> tuple[Emission, ...]:
        """What a batch (0-based, before the horizon) publishes, finest level first; at least one."""

    def needed(self, batches: int) -> tuple[int, ...]:
        """The prefix lengths whose exact sums later emissions need, after so many batches."""

    def shares(self) -> tuple[Fraction, Fraction]:
        """The least and the greatest share that a noise node spends."""

    def price(self, batches: int) -> Fraction:
        """What a unit in so many batches pays, against one that is in one batch: a proven bound, at least 1.

        Under Laplace noise the number of batches. Under Gaussian noise its square would do: all rows may meet in one
        node. Where they cannot, less does.
        """

    def estimate(self, batches: int, published: NDArray[np.generic]) -> FloatArray:
        """Best linear unbiased estimates of the batches.

        Args:
            batches: how many are public.
            published: (rows, ..) noisy sums in order of publication. Further axes may follow the first; they hold
                best estimates inside each node.

        Returns:
            float64[batches, ..].

        Raises:
            ValueError: so many batches publish another number of rows.
        """

    def variance(self, batches: int) -> AxisVariance:
        """How noisy `estimate` is."""

    def errors(self, batches: int) -> TimeErrors:
        """How noisy answers are on average over the first batches, before anything is drawn."""

    def frozen(self) -> dict[str, Any]:
        """The integers that floating point chose, for appends and audits; its module's `KINDS` takes them."""


Kinds = Mapping[str, Callable[[NoiseLaw, Frozen], TimeStrategy]]
"""How a stored strategy of each kind is restored."""


def one_node(law: NoiseLaw, batches: int) -> Fraction:
    """The price where all rows of a unit may meet in one node.

    >>> from dpsql.mechanisms.law import GAUSSIAN, LAPLACE
    >>> str(one_node(LAPLACE, 3)), str(one_node(GAUSSIAN, 3))
    ('3', '9')
    """
    return Fraction(batches**law.norm)


def exponent(law: NoiseLaw) -> float:
    """The split theorem's exponent for shares of the law's spend: 1/3 of epsilon, 1/2 of mu^2."""
    return law.norm / (law.norm + 2)


def share_variance(law: NoiseLaw, shares: FloatArray) -> FloatArray:
    """Noise variance of nodes with these shares, against a node that spends all: share^-2 (Laplace), share^-1.

    >>> from dpsql.mechanisms.law import GAUSSIAN, LAPLACE
    >>> share_variance(LAPLACE, np.array([1, 0.5])).tolist(), share_variance(GAUSSIAN, np.array([0.5])).tolist()
    ([1.0, 4.0], [2.0])
    """
    return np.asarray(np.asarray(shares, dtype=np.float64) ** (-2 / law.norm))


def refuse_past(strategy: TimeStrategy, batch: int) -> None:
    """Refuse batches for which a strategy has no budget left.

    Raises:
        ValueError: the batch is at its horizon or past it, or before the first.
    """
    if batch < 0 or (strategy.horizon is not None and batch >= strategy.horizon):
        raise ValueError(f"{strategy.name} has no budget left for batch {batch}")


def check_rows(published: NDArray[np.generic], wanted: int) -> FloatArray:
    """Published numbers as floats.

    Raises:
        ValueError: there are more or fewer of them than so many batches publish.
    """
    if len(published) != wanted:
        raise ValueError(f"so many batches publish {wanted} rows, not {len(published)}")
    return np.asarray(published, dtype=np.float64)
