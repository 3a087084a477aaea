"""Optimised unary encoding (OUE): a report has a bit per item, the own one fair, any other seldom 1.

**Source**: docs/method/local.md, "Oracles" (OUE).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.oracles.oracle import (
    OTHER,
    Bytes,
    Checked,
    FloatArray,
    IntArray,
    Oracle,
    Packed,
    Structure,
)

LONGEST = 2048
"""Most items: a report has a bit for each."""
CHUNK = 252
"""Rows added in single bytes before they could overflow."""


@dataclass(frozen=True)
class UnaryEncoding:
    """A bit per item.

    Example:
        >>> UnaryEncoding(2, 3 << 20).exact
        (Fraction(1, 2), Fraction(1, 4))
    """

    name: ClassVar[str] = "OUE"
    tilted: ClassVar[bool] = True
    domain: int
    own: int
    extra: int = 0

    @classmethod
    def offered(cls, domain: int, own: int) -> Self | None:
        """While a report is short."""
        return cls(domain, own) if domain <= LONGEST else None

    @property
    def cost(self) -> Fraction:
        """v(eps), whatever the number of items."""
        return bits_cost(self.own)

    @property
    def width(self) -> int:
        """Items."""
        return self.domain

    @property
    def exact(self) -> tuple[Fraction, Fraction]:
        """1/2 and S / (W + S)."""
        return Fraction(1, 2), Fraction(OTHER, self.own + OTHER)

    @property
    def p(self) -> float:
        """See `Oracle`."""
        return float(self.exact[0])

    @property
    def q(self) -> float:
        """See `Oracle`."""
        return float(self.exact[1])

    @property
    def slope(self) -> float:
        """(1 - 2q) / (p - q)."""
        return (1 - 2 * self.q) / (self.p - self.q)

    @property
    def item_noise(self) -> float:
        """See `Oracle`."""
        return bits_noise(self)

    def structure(self, shares: FloatArray, fan: float | FloatArray = 1.0) -> Structure:
        """lambda (1 - lambda) / (p - q)^2 + f^2, and f."""
        return bits_structure(self, shares, fan)

    def plugged(self, cells: FloatArray) -> FloatArray:
        """Cut to 0 .. 1."""
        return np.asarray(np.clip(cells, 0, 1))

    def even_support(self) -> FloatArray:
        """lambda at 1 / D."""
        return np.full(self.domain, self.q + (self.p - self.q) / self.domain)

    def moved(self, gain: FloatArray, shares: FloatArray, fan: float | FloatArray) -> float:
        """A report may say all cells at once."""
        return bits_moved(self, gain, shares, fan)

    def check(self, payloads: Bytes) -> Checked:
        """As many bytes as the items take, padded with zero bits."""
        size = (self.domain + 7) // 8
        if payloads.shape[1] != size:
            return Checked(np.zeros(len(payloads), dtype=bool), "payload length")
        spare = 8 * size - self.domain
        return Checked((payloads[:, -1] & ((1 << spare) - 1)) == 0, "padding bits")

    def count(self, payloads: Bytes) -> IntArray:
        """Ones per item; chunks are summed in bytes, which is eight times less to move."""
        total = np.zeros(self.domain, dtype=np.int64)
        step = CHUNK * 64
        for start in range(0, len(payloads), step):
            bits = np.unpackbits(payloads[start : start + step], axis=1, count=self.domain)
            whole = len(bits) // CHUNK * CHUNK
            if whole:
                blocks = bits[:whole].reshape(-1, CHUNK, self.domain)
                total += np.add.reduce(blocks, axis=1, dtype=np.uint8).sum(axis=0, dtype=np.int64)
            total += bits[whole:].sum(axis=0, dtype=np.int64)
        return total

    def packed(self, payloads: Sequence[bytes]) -> Packed:
        """The bytes."""
        return np.frombuffer(b"".join(payloads), np.uint8).reshape(-1, (self.domain + 7) // 8)

    def supports(self, packed: Packed) -> NDArray[np.bool_]:
        """Items whose bit is 1."""
        return np.unpackbits(packed.astype(np.uint8, copy=False), axis=1, count=self.domain).astype(bool)

    def payloads(self, items: IntArray, rng: np.random.Generator) -> list[bytes]:
        """See `Oracle`."""
        bits = rng.integers(0, self.own + OTHER, size=(items.size, self.domain), dtype=np.int64) < OTHER
        bits[np.arange(items.size), items] = rng.integers(0, 2, size=items.size) == 1
        return [row.tobytes() for row in np.packbits(bits, axis=1)]


def bits_cost(own: int) -> Fraction:
    """v(eps), exactly."""
    ratio = Fraction(own, OTHER)
    return 4 * ratio / (ratio - 1) ** 2


def bits_structure(oracle: Oracle, shares: FloatArray, fan: float | FloatArray) -> Structure:
    """Covariance where a report supports each item independently of the others.

    lambda (1 - lambda) + f^2 (p - q)^2 is linear in f, so cells of several items add up without knowing each one.
    """
    gap = oracle.p - oracle.q
    diagonal = fan * oracle.q * (1 - oracle.q) / gap**2 + shares * (1 - 2 * oracle.q) / gap
    return Structure(np.asarray(diagonal), shares)


def bits_noise(oracle: Oracle) -> float:
    """`item_noise` where a report supports each item independently of the others."""
    own = oracle.p * (1 - oracle.p) - oracle.q * (1 - oracle.q)
    return (oracle.q * (1 - oracle.q) + own / oracle.domain) / (oracle.p - oracle.q) ** 2


def bits_moved(oracle: Oracle, gain: FloatArray, shares: FloatArray, fan: float | FloatArray) -> float:
    """`moved` where a report may support any items at once: the sum over cells of what each may add at most."""
    gap, fan = oracle.p - oracle.q, np.broadcast_to(np.asarray(fan, np.float64), shares.shape)
    most, least = fan * (1 - oracle.q) / gap, fan * oracle.q / gap
    up, down = np.maximum(gain, 0).sum(axis=0), np.maximum(-gain, 0).sum(axis=0)
    rest = float(np.abs(gain @ shares).sum())
    return rest + float(max(up @ most + down @ least, down @ most + up @ least))
