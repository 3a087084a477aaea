"""Oracles, the device's halves: from an item to a report's payload, by integer weights, never by floats.

| plan | class | a report says |
|------|-------|---------------|
| GRR  | `RandomisedResponse` (generalised randomised response) | one item |
| OUE  | `UnaryEncoding` (optimised unary encoding) | one bit per item |
| OLH  | `LocalHashing` (optimised local hashing) | a seed and a bucket of items |
| WAVE | `SquareWave` on a discrete domain | one bin near the own leaf |
| DESIGN | `BlockDesign` (hyperplanes of a projective space) | one block, likelier one that holds the own item |

| here   | there                                | unit |
|--------|--------------------------------------|------|
| `own`  | W = floor(e^epsilon 2^20)            | weight of the true answer |
| `OTHER`| S = 2^20                             | weight of any other answer |

What a collector makes of reports is in `dpsql.local.oracles`. Nobody asks which oracle it is.

**Privacy**: an output's probabilities under any two inputs differ by at most W / S <= e^epsilon.
`tests/privacy/test_local_exact.py` enumerates all of them in fractions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice, product
from typing import ClassVar, NamedTuple

from dpsql.client.entropy import LARGEST_BOUND, Entropy, below
from dpsql.errors import DataError


def varint(value: int) -> bytes:
    """Write an unsigned integer in LEB128, seven bits a byte, least significant first.

    Example:
        >>> varint(300).hex()
        'ac02'
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(raw: bytes) -> tuple[int, int]:
    """Read an unsigned LEB128 integer, and how many bytes it took; only its shortest form is accepted.

    Raises:
        DataError: if it is cut off, longer than four bytes, or not in shortest form.
    """
    value = 0
    for position, byte in enumerate(raw[:4]):
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            if byte == 0 and position:
                break
            return value, position + 1
    raise DataError("a report's integer is cut off or not in shortest form")


OTHER = 1 << 20
SEED_POOL = 1 << 16
_MASK = 0xFFFFFFFF


def grr(item: int, domain: int, own: int, entropy: Entropy) -> int:
    """Report the item with weight `own`, every other item with weight 2^20.

    Args:
        item: 0 .. domain - 1.
        domain: number of items.
        own: integer weight of the truth.
        entropy: where bytes come from.

    Returns:
        An item.

    **Source**: docs/method/local.md, "Oracles" (GRR).
    """
    draw = below(own + (domain - 1) * OTHER, entropy)
    if draw < own:
        return item
    rank = (draw - own) // OTHER
    return rank if rank < item else rank + 1


def oue(item: int, domain: int, own: int, entropy: Entropy) -> bytes:
    """Report one bit per item: the own bit is fair, any other is 1 with probability 2^20 / (own + 2^20).

    Args:
        item: 0 .. domain - 1.
        domain: number of bits.
        own: integer weight of the truth.
        entropy: where bytes come from.

    Returns:
        ceil(domain / 8) bytes, most significant bit first, padded with zero bits.

    **Source**: docs/method/local.md, "Oracles" (OUE).
    """
    packed = bytearray((domain + 7) // 8)
    for position in range(domain):
        bit = below(2, entropy) if position == item else int(below(own + OTHER, entropy) < OTHER)
        packed[position >> 3] |= bit << (7 - (position & 7))
    return bytes(packed)


def bucket(seed: int, item: int, buckets: int) -> int:
    """Hash an item under one of the 2^16 public seeds; 32-bit arithmetic only, as JavaScript has it."""
    mixed = ((seed + 1) * 0x9E3779B1 + (item + 1) * 0x85EBCA77) & _MASK
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & _MASK
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35 + seed * 0x27D4EB2F) & _MASK
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & _MASK
    return (mixed ^ (mixed >> 16)) % buckets


def olh(item: int, buckets: int, own: int, entropy: Entropy) -> tuple[int, int]:
    """Draw a public seed, hash the item, and report the bucket by randomised response.

    Args:
        item: 0 or more.
        buckets: number of buckets, round(e^epsilon) + 1.
        own: integer weight of the truth.
        entropy: where bytes come from.

    Returns:
        (seed, bucket).
    """
    seed = below(SEED_POOL, entropy)
    return seed, grr(bucket(seed, item, buckets), buckets, own, entropy)


def wave(item: int | None, domain: int, reach: int, own: int, entropy: Entropy) -> int:
    """Report a bin: within `reach` of the item's own bin with weight `own`, elsewhere with weight 2^20.

    The normaliser (2 reach + 1) own + (domain - 1) 2^20 is the same for every item. A device with nothing
    to report (None) draws uniformly, which lies between the two weights and so keeps the ratio.

    Args:
        item: 0 .. domain - 1, or None for "no row".
        domain: number of leaves.
        reach: half-width B of the near bins.
        own: integer weight of each near bin.
        entropy: where bytes come from.

    Returns:
        A bin in 0 .. domain + 2 reach - 1; the item's own bin is item + reach.
    """
    if item is None:
        return below(domain + 2 * reach, entropy)
    near = 2 * reach + 1
    draw = below(near * own + (domain - 1) * OTHER, entropy)
    if draw < near * own:
        return item + draw // own
    rank = (draw - near * own) // OTHER
    return rank if rank < item else rank + near


LARGEST_DOMAIN = 1 << 24


class DeviceOracle(ABC):
    """A randomizer with the numbers that a plan gives it. As it stands "no row" is an item, and every draw can be made.

    Args:
        domain: number of items.
        extra: what a plan says beside it, else 0.

    **Privacy**: an output's probabilities under any two items, and under none where `silent`, differ by at most
    own / 2^20, which `tests/privacy/test_local_exact.py` enumerates.
    """

    name: ClassVar[str]
    """What plans call it."""
    code: ClassVar[int]
    """What reports call it."""
    silent: ClassVar[bool] = False
    """Whether it perturbs "no row" as such; for the others that is an item, or any item alike."""

    def __init__(self, domain: int, extra: int = 0) -> None:
        self.domain, self.extra = domain, extra

    def sound(self, own: int) -> bool:
        """True if every draw can be made; `domain` and `extra` are integers and the domain is in bounds."""
        return True

    @abstractmethod
    def payload(self, item: int | None, own: int, entropy: Entropy) -> bytes:
        """Perturb an item; None, "no row", only where `silent`."""


class RandomisedResponse(DeviceOracle):
    """One item: the own one with weight `own`, any other with weight 2^20."""

    name, code = "GRR", 1

    def payload(self, item: int | None, own: int, entropy: Entropy) -> bytes:
        return varint(grr(_item(item), self.domain, own, entropy))


class UnaryEncoding(DeviceOracle):
    """One bit per item."""

    name, code = "OUE", 2

    def payload(self, item: int | None, own: int, entropy: Entropy) -> bytes:
        return oue(_item(item), self.domain, own, entropy)


class LocalHashing(DeviceOracle):
    """A seed and one of `extra` buckets."""

    name, code = "OLH", 3

    def sound(self, own: int) -> bool:
        return 2 <= self.extra <= LARGEST_DOMAIN

    def payload(self, item: int | None, own: int, entropy: Entropy) -> bytes:
        """The seed in two bytes, then the bucket's number."""
        seed, reported_bucket = olh(_item(item), self.extra, own, entropy)
        return seed.to_bytes(2, "big") + varint(reported_bucket)


class SquareWave(DeviceOracle):
    """One bin; near ones, up to `extra` from the own leaf, with weight `own`."""

    name, code, silent = "WAVE", 4, True

    def sound(self, own: int) -> bool:
        """Weights that add up to no more than can be drawn from."""
        return self.extra >= 0 and (2 * self.extra + 1) * own + (self.domain - 1) * OTHER <= LARGEST_BOUND

    def payload(self, item: int | None, own: int, entropy: Entropy) -> bytes:
        return varint(wave(item, self.domain, self.extra, own, entropy))


LARGEST_DESIGN = 1 << 14
"""Most blocks of a design: a device goes through all of them."""


class Space(NamedTuple):
    """A projective space over q whose hyperplanes are blocks: coordinates of a point, blocks, and blocks through it."""

    q: int
    coordinates: int
    blocks: int
    through: int


def space_of(items: int, q: int) -> Space:
    """The least space over q with a point for each item.

    >>> space_of(16, 3)
    Space(q=3, coordinates=4, blocks=40, through=13)
    """
    coordinates, blocks = 2, q + 1
    while blocks < items:
        coordinates, blocks = coordinates + 1, blocks * q + 1
    return Space(q, coordinates, blocks, (blocks - 1) // q)


def points(space: Space) -> Iterator[tuple[int, ...]]:
    """The points, which number the hyperplanes too: first coordinate that is not 0 is 1; in lexicographic order."""
    for vector in product(range(space.q), repeat=space.coordinates):
        if next((value for value in vector if value), 0) == 1:
            yield vector


def block(item: int, space: Space, own: int, entropy: Entropy) -> int:
    """Report a block: each that holds the item with weight `own`, any other with weight 2^20.

    Every item lies in as many blocks, so the weights of all blocks add up to the same number for each.

    Args:
        item: 0 .. blocks - 1.
        space: the design.
        own: integer weight of a block that holds the item.
        entropy: where bytes come from.

    **Source**: docs/method/local.md, "The channel".
    """
    draw = below(space.through * own + (space.blocks - space.through) * OTHER, entropy)
    holds = draw < space.through * own
    remaining = draw // own if holds else (draw - space.through * own) // OTHER
    point = next(islice(points(space), item, None))
    for number, normal in enumerate(points(space)):
        if (sum(a * b for a, b in zip(point, normal, strict=True)) % space.q == 0) == holds:
            if remaining == 0:
                return number
            remaining -= 1
    raise DataError("a design has no such block")


class BlockDesign(DeviceOracle):
    """One block of a design over `extra`, a prime."""

    name, code = "DESIGN", 5

    def sound(self, own: int) -> bool:
        """A prime, few blocks, and weights that add up to no more than can be drawn from."""
        prime = 2 <= self.extra < 1 << 10 and all(self.extra % n for n in range(2, self.extra))
        if not prime or self.domain > LARGEST_DESIGN:
            return False
        space = space_of(self.domain, self.extra)
        total_weight = space.through * own + (space.blocks - space.through) * OTHER
        return space.blocks <= LARGEST_DESIGN and total_weight <= LARGEST_BOUND

    def payload(self, item: int | None, own: int, entropy: Entropy) -> bytes:
        return varint(block(_item(item), space_of(self.domain, self.extra), own, entropy))


ORACLES: tuple[type[DeviceOracle], ...] = (
    RandomisedResponse, UnaryEncoding, LocalHashing, SquareWave, BlockDesign,
)  # fmt: skip
"""The list is closed: an oracle without its proof has no place in it."""


def device_oracle(name: str) -> type[DeviceOracle] | None:
    """The oracle that a plan names; None if there is none of that name."""
    return next((oracle for oracle in ORACLES if oracle.name == name), None)


def _item(true_item: int | None) -> int:
    if true_item is None:
        raise DataError("only Square Wave has no item for a missing row")
    return true_item
