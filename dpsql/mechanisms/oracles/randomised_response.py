"""Generalised randomised response (GRR): a report is one item, the own one with weight W.

Best for few items: its variance grows with their number.

**Source**: docs/method/local.md, "Oracles" (GRR).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpsql.client.oracles import varint
from dpsql.mechanisms.oracles.oracle import (
    OTHER,
    Bytes,
    Checked,
    FloatArray,
    IntArray,
    ItemAggregator,
    ItemErrors,
    Packed,
    Structure,
    check_numbers,
    farthest,
    numbers_of,
    varints,
)


@dataclass(frozen=True)
class RandomisedResponseAggregator(ItemAggregator):
    """One item of the domain.

    Example:
        >>> round(RandomisedResponseAggregator(10, 3 << 20).law.p, 3)
        0.25
    """

    name: ClassVar[str] = "GRR"

    @classmethod
    def offered(cls, domain: int, own: int) -> Self | None:
        return cls(domain, own)

    @property
    def cost(self) -> Fraction:
        """(e^eps + D - 2) / (e^eps - 1)^2, below `spread` up to 3 e^eps + 2 items."""
        ratio = Fraction(self.own, OTHER)
        return (ratio + self.domain - 2) / (ratio - 1) ** 2

    @property
    def exact(self) -> tuple[Fraction, Fraction]:
        """(W, S) over the sum of all weights."""
        total = self.own + (self.domain - 1) * OTHER
        return Fraction(self.own, total), Fraction(OTHER, total)

    @property
    def estimate(self) -> ResponseErrors:
        """One report names one item."""
        return ResponseErrors(self.law)

    def check(self, payloads: Bytes) -> Checked:
        """A number of an item."""
        return check_numbers(payloads, self.domain)

    def count(self, payloads: Bytes) -> IntArray:
        return np.bincount(varints(payloads), minlength=self.domain)

    def packed(self, payloads: Sequence[bytes]) -> Packed:
        """Items, shape (reports, 1)."""
        return numbers_of(payloads)[:, None]

    def supports(self, packed: Packed) -> NDArray[np.bool_]:
        return np.asarray(packed == np.arange(self.domain))

    def payloads(self, items: IntArray, rng: np.random.Generator) -> list[bytes]:
        return [varint(item) for item in responses(self.domain, self.own, items, rng).tolist()]


class ResponseErrors(ItemErrors):
    """Errors of shares where a report names one item. See `ShareErrors`."""

    tilted: ClassVar[bool] = False

    @property
    def slope(self) -> float:
        """1 / (p - q)."""
        return 1.0 / self.gap

    @property
    def item_noise(self) -> float:
        """(1 / (p - q)^2 - 1) / D."""
        return (1 / self.gap**2 - 1) / self.law.domain

    def structure(self, shares: FloatArray, fan: float | FloatArray = 1.0) -> Structure:
        """lambda / (p - q)^2 and lambda / (p - q)."""
        gap = self.gap
        support = fan * self.law.q + shares * gap
        return Structure(np.asarray(support / gap**2), np.asarray(support / gap))

    def moved(self, gain: FloatArray, shares: FloatArray, fan: float | FloatArray) -> float:
        """A report says one cell."""
        gap = self.gap
        silent = -np.broadcast_to(np.asarray(fan, np.float64), shares.shape) * self.law.q / gap
        return farthest(gain / gap + (gain @ silent - gain @ shares)[:, None])


def responses(domain: int, own: int, items: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw one randomised response per device, shape of `items`."""
    draw = rng.integers(0, own + (domain - 1) * OTHER, size=items.shape)
    false_item = (draw - own) // OTHER
    return np.where(draw < own, items, false_item + (false_item >= items))
