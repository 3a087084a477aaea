"""Optimised local hashing (OLH): a report is a public seed and the bucket of the own item, by randomised response.

A report supports every item of its bucket. Short for any number of items; counting takes as long as there are items.
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
    BitOracle,
    Bytes,
    Checked,
    IntArray,
    Packed,
    check_numbers,
    numbers_of,
    varints,
)
from dpsql.mechanisms.oracles.randomised_response import responses

SEED_POOL = 1 << 16
SEED = 2
"""Bytes of a seed."""


@dataclass(frozen=True)
class LocalHashingAggregator(BitOracle):
    """A seed and one of `extra` buckets.

    Example:
        >>> LocalHashingAggregator(9, 3 << 20, 4).exact
        (Fraction(1, 2), Fraction(1, 4))
    """

    name: ClassVar[str] = "OLH"

    @classmethod
    def offered(cls, domain: int, own: int) -> Self | None:
        """With e^eps + 1 buckets, rounded."""
        return cls(domain, own, round(own / OTHER) + 1)

    @property
    def exact(self) -> tuple[Fraction, Fraction]:
        """The bucket's own probability, and one bucket's share."""
        return Fraction(self.own, self.own + (self.extra - 1) * OTHER), Fraction(1, self.extra)

    def check(self, payloads: Bytes) -> Checked:
        """Any seed, and a number of a bucket."""
        return check_numbers(payloads, self.extra, SEED)

    def count(self, payloads: Bytes) -> IntArray:
        """Reports whose bucket each item is in."""
        seeds = payloads[:, 0].astype(np.int64) * 256 + payloads[:, 1]
        return self.support(seeds, varints(payloads[:, SEED:]))

    def support(self, seeds: IntArray, held: IntArray) -> IntArray:
        """Count the reports that support each item, by (seed, bucket): all that estimation needs."""
        table = np.bincount(seeds * self.extra + held, minlength=SEED_POOL * self.extra)
        table = table.reshape(SEED_POOL, self.extra)
        counts = np.empty(self.domain, dtype=np.int64)
        seeds, held = np.nonzero(table)
        few = seeds.size < SEED_POOL  # then it is cheaper to go through the reports than through the pool
        weight, pool = table[seeds, held], np.arange(SEED_POOL)
        for item in range(self.domain):
            single = np.full(1, item)
            if few:
                counts[item] = weight[bucket(seeds, single, self.extra) == held].sum()
            else:
                counts[item] = table[pool, bucket(pool, single, self.extra)].sum()
        return counts

    def packed(self, payloads: Sequence[bytes]) -> Packed:
        """Seeds and buckets, shape (reports, 2)."""
        seeds = np.array([int.from_bytes(payload[:SEED], "big") for payload in payloads], dtype=np.int64)
        return np.stack([seeds, numbers_of(payloads, SEED)], axis=1)

    def supports(self, packed: Packed) -> NDArray[np.bool_]:
        """Items in the reported bucket."""
        buckets = bucket(packed[:, :1].astype(np.int64), np.arange(self.domain)[None, :], self.extra)
        return np.asarray(buckets == packed[:, 1:])

    def payloads(self, items: IntArray, rng: np.random.Generator) -> list[bytes]:
        seeds, buckets = self.hashed(items, rng)
        return [
            s.to_bytes(SEED, "big") + varint(h) for s, h in zip(seeds.tolist(), buckets.tolist(), strict=True)
        ]

    def hashed(self, items: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Draw one seed and one perturbed bucket per device."""
        seeds = rng.integers(0, SEED_POOL, size=items.shape)
        return seeds, responses(self.extra, self.own, bucket(seeds, items, self.extra), rng)


def bucket(seeds: IntArray, items: IntArray, buckets: int) -> IntArray:
    """The client's hash, on arrays."""
    mask = np.uint64(0xFFFFFFFF)
    seed, item = np.asarray(seeds, dtype=np.uint64), np.asarray(items, dtype=np.uint64)
    unit = np.uint64(1)
    mixed = ((seed + unit) * np.uint64(0x9E3779B1) + (item + unit) * np.uint64(0x85EBCA77)) & mask
    mixed = ((mixed ^ (mixed >> np.uint64(16))) * np.uint64(0x85EBCA6B)) & mask
    mixed = ((mixed ^ (mixed >> np.uint64(13))) * np.uint64(0xC2B2AE35) + seed * np.uint64(0x27D4EB2F)) & mask
    mixed = ((mixed ^ (mixed >> np.uint64(15))) * np.uint64(0x2C1B3C6D)) & mask
    return np.asarray((mixed ^ (mixed >> np.uint64(16))) % np.uint64(buckets), dtype=np.int64)
