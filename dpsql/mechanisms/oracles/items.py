"""What oracles over items answer alike: a report supports the own item with probability p, any other with q.

| here | whose reports |
|---|---|
| `ItemAggregator` | support items |
| `BitOracle` | support each item independently of the others |

**Source**: docs/method/local.md, "Oracles".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.mechanisms.oracles.oracle import OTHER, FloatArray, Structure


@dataclass(frozen=True)
class ItemAggregator(ABC):
    """An oracle of so many items, the own one with integer weight `own`. See `Oracle` for what methods answer."""

    domain: int
    own: int

    @property
    @abstractmethod
    def exact(self) -> tuple[Fraction, Fraction]:
        """The probabilities (p, q): each oracle has its own."""

    @property
    def width(self) -> int:
        """Items."""
        return self.domain

    @property
    def p(self) -> float:
        return float(self.exact[0])

    @property
    def q(self) -> float:
        return float(self.exact[1])

    def plugged(self, cells: FloatArray) -> FloatArray:
        """Cut to 0 .. 1."""
        return np.asarray(np.clip(cells, 0, 1))

    def even_support(self) -> FloatArray:
        """lambda at 1 / D."""
        return np.full(self.domain, self.q + (self.p - self.q) / self.domain)


class BitOracle(ItemAggregator):
    """An oracle whose reports support items independently: by a bit for each, or by a seed."""

    @property
    def cost(self) -> Fraction:
        """v(eps) = 4 e^eps / (e^eps - 1)^2, whatever the number of items; rounding of buckets is never far."""
        ratio = Fraction(self.own, OTHER)
        return 4 * ratio / (ratio - 1) ** 2

    @property
    def slope(self) -> float:
        """(1 - 2q) / (p - q)."""
        return (1 - 2 * self.q) / (self.p - self.q)

    @property
    def item_noise(self) -> float:
        excess = self.p * (1 - self.p) - self.q * (1 - self.q)
        return (self.q * (1 - self.q) + excess / self.domain) / (self.p - self.q) ** 2

    def structure(self, shares: FloatArray, fan: float | FloatArray = 1.0) -> Structure:
        """lambda (1 - lambda) / (p - q)^2 + f^2, and f.

        lambda (1 - lambda) + f^2 (p - q)^2 is linear in f, so cells of several items add up without knowing each one.
        """
        gap = self.p - self.q
        diagonal = fan * self.q * (1 - self.q) / gap**2 + shares * (1 - 2 * self.q) / gap
        return Structure(np.asarray(diagonal), shares)

    def moved(self, gain: FloatArray, shares: FloatArray, fan: float | FloatArray) -> float:
        """A report may support any items at once: the sum over cells of what each may add at most."""
        gap, fan = self.p - self.q, np.broadcast_to(np.asarray(fan, np.float64), shares.shape)
        weight_of_one, weight_of_zero = fan * (1 - self.q) / gap, fan * self.q / gap
        up, down = np.maximum(gain, 0).sum(axis=0), np.maximum(-gain, 0).sum(axis=0)
        baseline = float(np.abs(gain @ shares).sum())
        return baseline + float(
            max(up @ weight_of_one + down @ weight_of_zero, down @ weight_of_one + up @ weight_of_zero)
        )
