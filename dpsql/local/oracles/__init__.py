"""Frequency oracles: what a report says of its owner's item, and what a tally of reports says of everybody's.

| class                         | there | a report says |
|-------------------------------|-------|---------------|
| `UnaryEncodingAggregator`     | OUE   | one bit per item |
| `LocalHashingAggregator`      | OLH   | a seed and a bucket of items |
| `RandomisedResponseAggregator`| GRR   | one item |
| `SquareWaveAggregator`        | WAVE  | one bin near the own leaf |

An oracle has two halves: the device's in `dpsql.client.oracles`, the collector's here. Nobody asks which one it is.
The list is closed: an oracle without its proof in this project has no place in it.

**GRR**, generalised randomised response: a report is one item, the own one with weight W. Best for few items: its
variance grows with their number.

**OLH**, optimised local hashing: a report is a public seed and the bucket of the own item, by randomised response,
and supports every item of its bucket. Short for any number of items; counting takes as long as there are items.

**OUE**, optimised unary encoding: a report has a bit per item, the own one fair, any other seldom 1.

**WAVE**, Square Wave on a discrete domain: a report is one bin, near the own leaf with weight W. Its cells are bins,
one a report, of which each leaf fills some more than others (`wave_matrix`). Nothing is added to a bin's share
afterwards, so p = 1 and q = 0.

**Source**: docs/method/local.md, "Oracles".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpsql.client.oracles import varint
from dpsql.errors import InternalError
from dpsql.local.oracles.oracle import (
    OTHER,
    Bytes,
    Checked,
    FloatArray,
    IntArray,
    Oracle,
    Packed,
    Structure,
    check_numbers,
    farthest,
    numbers_of,
    varints,
)


class RandomisedResponseAggregator(Oracle):
    """One item of the domain.

    Example:
        >>> round(RandomisedResponseAggregator(10, 3 << 20).p, 3)
        0.25
    """

    name: ClassVar[str] = "GRR"
    tilted: ClassVar[bool] = False

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

    def supports(self, packed: Packed) -> NDArray[np.bool_]:
        return np.asarray(packed == np.arange(self.domain))

    def payloads(self, items: IntArray, rng: np.random.Generator) -> list[bytes]:
        return [varint(item) for item in responses(self.domain, self.own, items, rng).tolist()]

    @property
    def slope(self) -> float:
        """1 / (p - q)."""
        return 1.0 / self.gap

    @property
    def item_noise(self) -> float:
        """(1 / (p - q)^2 - 1) / D."""
        return (1 / self.gap**2 - 1) / self.domain

    def structure(self, shares: FloatArray, fan: float | FloatArray = 1.0) -> Structure:
        """lambda / (p - q)^2 and lambda / (p - q)."""
        gap = self.gap
        support = fan * self.q + shares * gap
        return Structure(np.asarray(support / gap**2), np.asarray(support / gap))

    def moved(self, gain: FloatArray, shares: FloatArray, fan: float | FloatArray) -> float:
        """A report says one cell."""
        gap = self.gap
        silent = -np.broadcast_to(np.asarray(fan, np.float64), shares.shape) * self.q / gap
        return farthest(gain / gap + (gain @ silent - gain @ shares)[:, None])


def responses(domain: int, own: int, items: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw one randomised response per device, shape of `items`."""
    draw = rng.integers(0, own + (domain - 1) * OTHER, size=items.shape)
    false_item = (draw - own) // OTHER
    return np.where(draw < own, items, false_item + (false_item >= items))


SEED_POOL = 1 << 16
SEED = 2
"""Bytes of a seed."""


class LocalHashingAggregator(Oracle):
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


LONGEST = 2048
"""Most items: a report has a bit for each."""
CHUNK = 252
"""Rows added in single bytes before they could overflow."""


class UnaryEncodingAggregator(Oracle):
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
            return (np.zeros(len(payloads), dtype=bool), "payload length")
        spare = 8 * self.apart - self.domain
        return ((payloads[:, -1] & ((1 << spare) - 1)) == 0, "padding bits")

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


FLOOR = 1e-3
"""Least share of a bin as a variance, in even shares."""


class SquareWaveAggregator(Oracle):
    """One of domain + 2 extra bins; `extra` is how far the near ones reach.

    Example:
        >>> SquareWaveAggregator(4, 3 << 20, 1).width
        6
    """

    name: ClassVar[str] = "WAVE"
    tilted: ClassVar[bool] = False
    slope: ClassVar[float] = 1.0

    @classmethod
    def offered(cls, domain: int, own: int) -> Self | None:
        """Never for items: a plan has views of its own for it."""
        return None

    @property
    def cost(self) -> Fraction:
        raise InternalError("Square Wave's leaves have no variance of their own")

    @property
    def width(self) -> int:
        """A tally counts bins."""
        return self.domain + 2 * self.extra

    @property
    def exact(self) -> tuple[Fraction, Fraction]:
        """Each bin is told as it is."""
        return Fraction(1), Fraction(0)

    def supports(self, packed: Packed) -> NDArray[np.bool_]:
        """Bins support no leaf alone."""
        raise InternalError("Square Wave's reports are not joined person by person")

    def payloads(self, items: IntArray, rng: np.random.Generator) -> list[bytes]:
        """Who has no row draws bins evenly."""
        near, leaves = 2 * self.extra + 1, self.domain
        draw = rng.integers(0, near * self.own + (leaves - 1) * OTHER, size=items.shape)
        far_bin = (draw - near * self.own) // OTHER
        spoken = np.where(
            draw < near * self.own, items + draw // self.own, far_bin + near * (far_bin >= items)
        )
        bins = np.where(items < leaves, spoken, rng.integers(0, leaves + near - 1, size=items.shape))
        return [varint(bin_) for bin_ in bins.tolist()]

    @property
    def item_noise(self) -> float:
        raise InternalError("Square Wave's reports are not joined person by person")

    def structure(self, shares: FloatArray, fan: float | FloatArray = 1.0) -> Structure:
        return Structure(shares, shares)

    def plugged(self, cells: FloatArray) -> FloatArray:
        """No bin is known to be empty."""
        return np.asarray(np.maximum(cells, FLOOR / cells.size))

    def expected_support(self, shares: FloatArray) -> FloatArray:
        return np.asarray(wave_matrix(self) @ shares)

    def moved(self, gain: FloatArray, shares: FloatArray, fan: float | FloatArray) -> float:
        """A report says one bin."""
        return farthest(gain - (gain @ shares)[:, None])


def wave_matrix(oracle: SquareWaveAggregator) -> FloatArray:
    """Probability of each bin given each leaf, shape (m + 2 reach, m)."""
    near = 2 * oracle.extra + 1
    total = near * oracle.own + (oracle.domain - 1) * OTHER
    matrix = np.full((oracle.width, oracle.domain), OTHER / total)
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


ORACLES: tuple[type[Oracle], ...] = (
    UnaryEncodingAggregator,
    LocalHashingAggregator,
    RandomisedResponseAggregator,
    SquareWaveAggregator,
)
"""Of two that cost the same, the first is chosen."""


def choose_oracle(domain: int, own: int) -> Oracle:
    """Choose the oracle of least variance: GRR below 3 e^eps + 2 items, else OUE, past 2048 items OLH.

    Args:
        domain: number of items.
        own: integer weight of the truth.

    Returns:
        The oracle.

    Example:
        >>> [choose_oracle(d, 3 << 20).name for d in (10, 11, 3000)]
        ['GRR', 'OUE', 'OLH']
    """
    offers = [oracle for kind in ORACLES if (oracle := kind.offered(domain, own)) is not None]
    return min(offers, key=lambda oracle: oracle.cost)


def oracle_named(name: str, domain: int, own: int, extra: int = 0) -> Oracle:
    """The oracle that a plan names.

    Args:
        name: as in plans and reports.
        domain: number of items (Square Wave: leaves).
        own: integer weight of the truth.
        extra: OLH's buckets, Square Wave's reach, else 0.

    Raises:
        InternalError: no oracle is called that.
    """
    kinds = {kind.name: kind for kind in ORACLES}
    if name not in kinds:
        raise InternalError(f"no oracle is called {name!r}", hint="use the version that wrote the plan")
    return kinds[name](domain, own, extra)
