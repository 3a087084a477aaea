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
    BitOracle,
    Bytes,
    Checked,
    IntArray,
    Packed,
)

LONGEST = 2048
"""Most items: a report has a bit for each."""
CHUNK = 252
"""Rows added in single bytes before they could overflow."""


@dataclass(frozen=True)
class UnaryEncodingAggregator(BitOracle):
    """A bit per item.

    Example:
        >>> UnaryEncodingAggregator(2, 3 << 20).exact
        (Fraction(1, 2), Fraction(1, 4))
    """

    name: ClassVar[str] = "OUE"

    @classmethod
    def offered(cls, domain: int, own: int) -> Self | None:
        """While a report is short."""
        return cls(domain, own) if domain <= LONGEST else None

    @property
    def apart(self) -> int:
        return (self.domain + 7) // 8

    @property
    def exact(self) -> tuple[Fraction, Fraction]:
        """1/2 and S / (W + S)."""
        return Fraction(1, 2), Fraction(OTHER, self.own + OTHER)

    def check(self, payloads: Bytes) -> Checked:
        """As many bytes as the items take, padded with zero bits."""
        if payloads.shape[1] != self.apart:
            return Checked(np.zeros(len(payloads), dtype=bool), "payload length")
        spare = 8 * self.apart - self.domain
        return Checked((payloads[:, -1] & ((1 << spare) - 1)) == 0, "padding bits")

    def count(self, payloads: Bytes) -> IntArray:
        """Ones per item; chunks are summed in bytes, which is eight times less to move."""
        total = np.zeros(self.domain, dtype=np.int64)
        step = CHUNK * 64
        for start in range(0, len(payloads), step):
            bits = np.unpackbits(payloads[start : start + step], axis=1, count=self.domain)
            chunked_rows = len(bits) // CHUNK * CHUNK
            if chunked_rows:
                blocks = bits[:chunked_rows].reshape(-1, CHUNK, self.domain)
                total += np.add.reduce(blocks, axis=1, dtype=np.uint8).sum(axis=0, dtype=np.int64)
            total += bits[chunked_rows:].sum(axis=0, dtype=np.int64)
        return total

    def packed(self, payloads: Sequence[bytes]) -> Packed:
        return np.frombuffer(b"".join(payloads), np.uint8).reshape(-1, self.apart)

    def supports(self, packed: Packed) -> NDArray[np.bool_]:
        """Items whose bit is 1."""
        return np.unpackbits(packed.astype(np.uint8, copy=False), axis=1, count=self.domain).astype(bool)

    def payloads(self, items: IntArray, rng: np.random.Generator) -> list[bytes]:
        bits = rng.integers(0, self.own + OTHER, size=(items.size, self.domain), dtype=np.int64) < OTHER
        bits[np.arange(items.size), items] = rng.integers(0, 2, size=items.size) == 1
        return [row.tobytes() for row in np.packbits(bits, axis=1)]
