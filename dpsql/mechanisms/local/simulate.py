"""Many devices at once: reports and tallies with the client's probabilities, for planning and for tests.

A tally is drawn in law from a histogram of items, without one draw per bit: an answer equals the truth with
probability (W - S) / total and is otherwise uniform over all answers, and OUE's bits are independent.
**Privacy**: numpy's generator is no source of entropy for real people; nothing here is sent or released.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.local.oracles import OTHER, FloatArray, Oracle

IntArray = NDArray[np.int64]
SEED_POOL = 1 << 16


def histogram_tally(oracle: Oracle, histogram: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw the tally that many devices would produce.

    Args:
        oracle: any oracle; WAVE takes one more histogram entry for devices without a row.
        histogram: devices per item, shape (domain,).
        rng: source of pseudo-random numbers.

    Returns:
        Reports supporting each item (WAVE: reports per bin).
    """
    histogram = np.asarray(histogram, dtype=np.int64)
    if oracle.name == "GRR":
        return _mixed(histogram, histogram.size, oracle, rng)
    if oracle.name == "OUE":
        rest = int(histogram.sum()) - histogram
        return rng.binomial(histogram, 0.5) + rng.binomial(rest, oracle.q)
    if oracle.name == "OLH":
        items = np.repeat(np.arange(histogram.size), histogram)
        return support_counts(oracle, olh_table(oracle, *olh_reports(oracle, items, rng)))
    return _wave_tally(oracle, histogram, rng)


def _mixed(histogram: IntArray, answers: int, oracle: Oracle, rng: np.random.Generator) -> IntArray:
    total = oracle.own + (answers - 1) * OTHER
    kept = rng.binomial(histogram, (oracle.own - OTHER) / total)
    rest = int(histogram.sum() - kept.sum())
    return kept + rng.multinomial(rest, np.full(answers, 1 / answers))


def _wave_tally(oracle: Oracle, histogram: IntArray, rng: np.random.Generator) -> IntArray:
    near, leaves = 2 * oracle.extra + 1, oracle.domain
    total = near * oracle.own + (leaves - 1) * OTHER
    kept = rng.binomial(histogram[:leaves], near * (oracle.own - OTHER) / total)
    tally = np.zeros(leaves + near - 1, dtype=np.int64)
    for shift, part in enumerate(rng.multinomial(kept, np.full(near, 1 / near)).T):
        tally[shift : shift + leaves] += part
    rest = int(histogram.sum() - kept.sum())
    return tally + rng.multinomial(rest, np.full(tally.size, 1 / tally.size))


def grr_reports(domain: int, own: int, items: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw one randomised response per device, shape of `items`."""
    draw = rng.integers(0, own + (domain - 1) * OTHER, size=items.shape)
    other = (draw - own) // OTHER
    return np.where(draw < own, items, other + (other >= items))


def oue_reports(oracle: Oracle, items: IntArray, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw one packed bit string per device, shape (devices, ceil(domain / 8))."""
    bits = rng.integers(0, oracle.own + OTHER, size=(items.size, oracle.domain), dtype=np.int64) < OTHER
    bits[np.arange(items.size), items] = rng.integers(0, 2, size=items.size) == 1
    return np.packbits(bits, axis=1)


def olh_reports(oracle: Oracle, items: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Draw one seed and one perturbed bucket per device."""
    seeds = rng.integers(0, SEED_POOL, size=items.shape)
    return seeds, grr_reports(oracle.extra, oracle.own, bucket(seeds, items, oracle.extra), rng)


def wave_reports(oracle: Oracle, items: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw one bin per device; an item equal to the domain stands for "no row"."""
    near, leaves = 2 * oracle.extra + 1, oracle.domain
    draw = rng.integers(0, near * oracle.own + (leaves - 1) * OTHER, size=items.shape)
    other = (draw - near * oracle.own) // OTHER
    spoken = np.where(draw < near * oracle.own, items + draw // oracle.own, other + near * (other >= items))
    return np.where(items < leaves, spoken, rng.integers(0, leaves + near - 1, size=items.shape))


def bucket(seeds: IntArray, items: IntArray, buckets: int) -> IntArray:
    """The client's hash, on arrays."""
    mask = np.uint64(0xFFFFFFFF)
    seed, item = np.asarray(seeds, dtype=np.uint64), np.asarray(items, dtype=np.uint64)
    one = np.uint64(1)
    mixed = ((seed + one) * np.uint64(0x9E3779B1) + (item + one) * np.uint64(0x85EBCA77)) & mask
    mixed = ((mixed ^ (mixed >> np.uint64(16))) * np.uint64(0x85EBCA6B)) & mask
    mixed = ((mixed ^ (mixed >> np.uint64(13))) * np.uint64(0xC2B2AE35) + seed * np.uint64(0x27D4EB2F)) & mask
    mixed = ((mixed ^ (mixed >> np.uint64(15))) * np.uint64(0x2C1B3C6D)) & mask
    return np.asarray((mixed ^ (mixed >> np.uint64(16))) % np.uint64(buckets), dtype=np.int64)


def olh_table(oracle: Oracle, seeds: IntArray, held: IntArray) -> IntArray:
    """Count reports per (seed, bucket), shape (2^16, buckets): all that estimation needs."""
    flat = np.bincount(seeds * oracle.extra + held, minlength=SEED_POOL * oracle.extra)
    return flat.reshape(SEED_POOL, oracle.extra)


def support_counts(oracle: Oracle, table: IntArray) -> IntArray:
    """Count the OLH reports that support each item, shape (domain,)."""
    counts = np.empty(oracle.domain, dtype=np.int64)
    seeds, held = np.nonzero(table)
    few = seeds.size < SEED_POOL  # then it is cheaper to go through the reports than through the pool
    weight, pool = table[seeds, held], np.arange(SEED_POOL)
    for item in range(oracle.domain):
        one = np.full(1, item)
        if few:
            counts[item] = weight[bucket(seeds, one, oracle.extra) == held].sum()
        else:
            counts[item] = table[pool, bucket(pool, one, oracle.extra)].sum()
    return counts


def shares_of(histogram: IntArray) -> FloatArray:
    """Normalise a histogram."""
    return np.asarray(histogram / max(int(np.sum(histogram)), 1))
