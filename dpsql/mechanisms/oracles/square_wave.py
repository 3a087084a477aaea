"""Square Wave on a discrete domain (WAVE): a report is one bin, near the own leaf with weight W.

Its cells are bins, one a report, of which each leaf fills some more than others (`wave_matrix`). Nothing is added to a
bin's share afterwards, so p = 1 and q = 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpsql.client.oracles import varint
from dpsql.errors import InternalError
from dpsql.mechanisms.oracles.oracle import (
    OTHER,
    Bytes,
    Checked,
    FloatArray,
    IntArray,
    OracleLaw,
    Packed,
    Structure,
    check_numbers,
    farthest,
    numbers_of,
    varints,
)

FLOOR = 1e-3
"""Least share of a bin as a variance, in even shares."""


@dataclass(frozen=True)
class SquareWaveAggregator:
    """One of domain + 2 extra bins; `extra` is how far the near ones reach.

    Example:
        >>> SquareWaveAggregator(4, 3 << 20, 1).law.width
        6
    """

    name: ClassVar[str] = "WAVE"
    domain: int
    own: int
    extra: int = 0

    @classmethod
    def offered(cls, domain: int, own: int) -> Self | None:
        """Never for items: a plan has views of its own for it."""
        return None

    @property
    def cost(self) -> Fraction:
        raise InternalError("Square Wave's leaves have no variance of their own")

    @cached_property
    def law(self) -> OracleLaw:
        """A tally counts bins, each told as it is."""
        width = self.domain + 2 * self.extra
        return OracleLaw(self.domain, self.own, self.extra, width, 0, (Fraction(1), Fraction(0)))

    @property
    def estimate(self) -> WaveErrors:
        """A report names one bin."""
        return WaveErrors(self)

    def check(self, payloads: Bytes) -> Checked:
        """A number of a bin."""
        return check_numbers(payloads, self.law.width)

    def count(self, payloads: Bytes) -> IntArray:
        return np.bincount(varints(payloads), minlength=self.law.width)

    def packed(self, payloads: Sequence[bytes]) -> Packed:
        """Bins, shape (reports, 1)."""
        return numbers_of(payloads)[:, None]

    def supports(self, packed: Packed) -> NDArray[np.bool_]:
        """Bins support no leaf alone."""
        raise InternalError("Square Wave's reports are not joined person by person")

    def payloads(self, items: IntArray, rng: np.random.Generator) -> list[bytes]:
        """See `Oracle`; who has no row draws bins evenly."""
        near, leaves = 2 * self.extra + 1, self.domain
        draw = rng.integers(0, near * self.own + (leaves - 1) * OTHER, size=items.shape)
        far_bin = (draw - near * self.own) // OTHER
        spoken = np.where(
            draw < near * self.own, items + draw // self.own, far_bin + near * (far_bin >= items)
        )
        bins = np.where(items < leaves, spoken, rng.integers(0, leaves + near - 1, size=items.shape))
        return [varint(bin_) for bin_ in bins.tolist()]


@dataclass(frozen=True)
class WaveErrors:
    """Errors of shares of bins. See `ShareErrors`."""

    oracle: SquareWaveAggregator
    tilted: ClassVar[bool] = False
    slope: ClassVar[float] = 1.0

    @property
    def item_noise(self) -> float:
        raise InternalError("Square Wave's reports are not joined person by person")

    def structure(self, shares: FloatArray, fan: float | FloatArray = 1.0) -> Structure:
        return Structure(shares, shares)

    def plugged(self, cells: FloatArray) -> FloatArray:
        """No bin is known to be empty."""
        return np.asarray(np.maximum(cells, FLOOR / cells.size))

    def even_support(self) -> FloatArray:
        return np.asarray(wave_matrix(self.oracle).mean(axis=1))

    def moved(self, gain: FloatArray, shares: FloatArray, fan: float | FloatArray) -> float:
        """A report says one bin."""
        return farthest(gain - (gain @ shares)[:, None])


def wave_matrix(oracle: SquareWaveAggregator) -> FloatArray:
    """Probability of each bin given each leaf, shape (m + 2 reach, m)."""
    near = 2 * oracle.extra + 1
    total = near * oracle.own + (oracle.domain - 1) * OTHER
    matrix = np.full((oracle.law.width, oracle.domain), OTHER / total)
    for leaf in range(oracle.domain):
        matrix[leaf : leaf + near, leaf] = oracle.own / total
    return matrix


def wave_reach(leaves: int, epsilon: float) -> int:
    """Half-width of Square Wave's near bins that keeps most information about a smooth histogram.

    Args:
        leaves: number of leaves m.
        epsilon: privacy of one report.

    Returns:
        floor(m (eps e^eps - e^eps + 1) / (2 e^eps (e^eps - 1 - eps))).
    """
    grown = math.exp(epsilon)
    return math.floor(leaves * (epsilon * grown - grown + 1) / (2 * grown * (grown - 1 - epsilon)))
