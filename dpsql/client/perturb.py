"""The randomizers a device runs, each exact: probabilities are ratios of integer weights, never floats.

| here   | there                                | unit |
|--------|--------------------------------------|------|
| `own`  | W = floor(e^epsilon 2^20)            | weight of the true answer |
| `OTHER`| S = 2^20                             | weight of any other answer |
| grr    | generalised randomised response      | one item |
| oue    | optimised unary encoding             | one bit per item |
| olh    | optimised local hashing              | a seed and a bucket |
| wave   | Square Wave on a discrete domain     | one bin |

**Privacy**: an output's probabilities under any two inputs differ by at most W / S <= e^epsilon.
`tests/privacy/test_local_exact.py` enumerates all of them in fractions.
"""

from __future__ import annotations

from dpsql.client.entropy import Entropy, below

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
    other = (draw - own) // OTHER
    return other if other < item else other + 1


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
    other = (draw - near * own) // OTHER
    return other if other < item else other + near
