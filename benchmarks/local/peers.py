"""Peers of seed 003 on the star join: HIO-JOIN and its decomposition by complement, LPRR-JOIN with two choices of tau.

| name | who joins | what a person reports |
|------|-----------|-----------------------|
| HIO, client join | the device | one level combination of all axes, drawn evenly, the root too |
| HIO-JOIN | two services by pseudonymous id | one level combination a service, half of epsilon each |
| HIO-JOIN-RDC | the same | the same; a range is 1 minus its complement where that takes fewer nodes |
| LPRR-JOIN-T, -E | the device | one level combination but the root, in proportion to depth; tau as in `truncation` |

All unbiased estimates are sums of node estimates, as printed; LPRR is the corrected one (the printed one is not
private). HIO gets the exact scale from rows to people for nothing, which flatters it; LPRR estimates none and keeps
the bias of tau. A measure is one more axis of two leaves that is never the root: its bit, rounded at random, whose
shares f_0 and f_1 give SUM = rows (a_min f_0 + a_max f_1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from benchmarks.local.simulated import tally as tally_of
from dpsql.client.plan import largest_weight
from dpsql.local.mechanisms.truncation import estimated_rows, theory_tau
from dpsql.local.oracles import choose_oracle
from dpsql.local.oracles.aggregators import UnaryEncodingAggregator
from dpsql.local.oracles.oracle import Oracle, estimate
from dpsql.local.tallies import RespondentRows

DEPTH, BRANCHING = 2, 5
LOWEST, HIGHEST = 1, 25
"""Bounds of the measure."""
Levels = tuple[int, ...]


class Slots(NamedTuple):
    """What people would report: leaves and bit of those whose slot holds a row, and how many slots are empty.

    Axes have 5^depth leaves.
    """

    leaves: np.ndarray
    bits: np.ndarray
    empty: int
    depth: int = DEPTH

    @property
    def people(self) -> int:
        """Everybody."""
        return len(self.leaves) + self.empty


class Piece(NamedTuple):
    """A signed set of nodes of one axis at one level; level 0 is the root."""

    sign: float
    level: int
    nodes: tuple[int, ...]


def pieces(low: int, high: int, complement: bool, depth: int = DEPTH) -> list[Piece]:
    """A range as nodes of the fewest levels; as 1 minus its complement where that takes fewer nodes."""
    leaves = BRANCHING**depth
    if (low, high) == (0, leaves):
        return [Piece(1.0, 0, (0,))]
    own = _cover(set(range(low, high)), depth)
    other = _cover(set(range(leaves)) - set(range(low, high)), depth)
    if complement and sum(len(n) for _, n in other) < sum(len(n) for _, n in own):
        return [Piece(1.0, 0, (0,)), *(Piece(-1.0, level, nodes) for level, nodes in other)]
    return [Piece(1.0, level, nodes) for level, nodes in own]


def _cover(leaves: set[int], depth: int) -> list[tuple[int, tuple[int, ...]]]:
    """The minimal cover of a set of leaves, coarse nodes first."""
    found = []
    for level in range(1, depth + 1):
        width = BRANCHING ** (depth - level)
        nodes = [n for n in range(BRANCHING**level) if leaves.issuperset(range(n * width, (n + 1) * width))]
        leaves = leaves - {n * width + i for n in nodes for i in range(width)}
        if nodes:
            found.append((level, tuple(nodes)))
    return found


def node_of(leaves: np.ndarray, level: int, depth: int) -> np.ndarray:
    """The node at a level that holds each leaf."""
    return leaves // BRANCHING ** (depth - level)


def shares_by_depth(axes: int, depth: int = DEPTH) -> dict[Levels, float]:
    """Share of people per level combination but the root, in proportion to its depth."""
    found = {levels: float(sum(levels)) for levels in itertools.product(range(depth + 1), repeat=axes)}
    total = sum(found.values())
    return {levels: weight / total for levels, weight in found.items() if weight}


def even_shares(axes: int, depth: int = DEPTH) -> dict[Levels, float]:
    """The same share for every level combination, the root included."""
    return dict.fromkeys(itertools.product(range(depth + 1), repeat=axes), float((depth + 1) ** -axes))


def client_join(
    slots: Slots,
    boxes: Sequence[Sequence[tuple[int, int]]],
    shares: dict[Levels, float],
    epsilon: float,
    rng: np.random.Generator,
    measured: bool = False,
) -> np.ndarray:
    """Estimated shares of slots for boxes, each from the level combinations that it needs.

    Args:
        slots: what people report about.
        boxes: a range per axis.
        shares: share of people per level combination.
        epsilon: privacy of a report.
        rng: source of pseudo-random numbers.
        measured: whether reports hold the measure's bit.

    Returns:
        Shape (boxes, 1); with a measure (boxes, 2), a column for each value of the bit.
    """
    own, kinds = largest_weight(Fraction(str(epsilon))), 2 if measured else 1
    tables: dict[Levels, np.ndarray] = {}
    found = np.zeros((len(boxes), kinds))
    for number, box in enumerate(boxes):
        for choice in itertools.product(*(pieces(low, high, False, slots.depth) for low, high in box)):
            levels = tuple(piece.level for piece in choice)
            if not any(levels) and not measured:
                found[number] += 1.0
                continue
            if levels not in tables:
                tables[levels] = _level_shares(slots, levels, kinds, shares[levels], own, rng)
            nodes = tables[levels][np.ix_(*(piece.nodes for piece in choice), range(kinds))]
            found[number] += nodes.reshape(-1, kinds).sum(axis=0)
    return found


def _level_shares(
    slots: Slots, levels: Levels, kinds: int, share: float, own: int, rng: np.random.Generator
) -> np.ndarray:
    shape = (*(BRANCHING**level for level in levels), kinds)
    cells = math.prod(shape)
    drawn = rng.random(len(slots.leaves)) < share
    nodes = [node_of(slots.leaves[drawn, i], level, slots.depth) for i, level in enumerate(levels)]
    flat = np.ravel_multi_index((*nodes, slots.bits[drawn] % kinds), shape)
    histogram = np.append(np.bincount(flat, minlength=cells), rng.binomial(slots.empty, share))
    oracle = choose_oracle(cells + 1, own)
    tally = tally_of(oracle, histogram, rng).astype(float)
    return np.asarray(estimate(oracle, tally, max(float(histogram.sum()), 1.0))[:cells].reshape(shape))


def services_join(
    slots: Slots,
    cuts: Sequence[int],
    box: Sequence[tuple[int, int]],
    epsilon: float,
    complement: bool,
    rng: np.random.Generator,
    measured: bool = False,
) -> np.ndarray:
    """Estimated share of a box when services report apart: K - 1 `cuts` of the axes, epsilon/K for each service.

    A report's score over chosen nodes is drawn in law: OUE's bits of those nodes are independent, so the number of
    ones among the others is binomial. The last service reports the measure's bit with its node.

    Returns:
        Shape (1,); with a measure (2,), one for each value of the bit.
    """
    bounds = [0, *cuts, slots.leaves.shape[1]]
    oracle = UnaryEncodingAggregator(2, largest_weight(Fraction(str(epsilon)) / (len(bounds) - 1)))
    total = np.zeros(2 if measured else 1)
    for choice in itertools.product(*(pieces(low, high, complement, slots.depth) for low, high in box)):
        sign = math.prod(piece.sign for piece in choice)
        sides = [choice[low:high] for low, high in itertools.pairwise(bounds)]
        last = len(sides) - 1
        asked = [
            (i, side)
            for i, side in enumerate(sides)
            if any(piece.level for piece in side) or (measured and i == last)
        ]
        if not asked:
            total += sign
            continue
        groups = math.prod((slots.depth + 1) ** len(side) for _, side in asked)
        drawn = rng.random(len(slots.leaves)) < 1 / groups
        chosen, bits = slots.leaves[drawn], slots.bits[drawn]
        if len(chosen) == 0:
            continue
        product = np.ones((total.size, len(chosen)))
        for i, side in asked:
            held = np.ones(len(chosen), dtype=bool)
            for j, piece in enumerate(side):
                held &= np.isin(node_of(chosen[:, bounds[i] + j], piece.level, slots.depth), piece.nodes)
            volume = math.prod(len(piece.nodes) for piece in side)
            if i != last or not measured:
                product *= _scores(oracle, held, volume, rng)
                continue
            for kind in (0, 1):
                product[kind] *= _scores(oracle, held & (bits == kind), volume, rng)
        total += sign * product.mean(axis=1)
    return total


def _scores(oracle: Oracle, held: np.ndarray, volume: int, rng: np.random.Generator) -> np.ndarray:
    """Each report's unbiased indicator that one of `volume` nodes is its own."""
    ones = rng.binomial(volume - held, oracle.law.q) + (held & (rng.random(held.size) < oracle.law.p))
    return np.asarray((ones - volume * oracle.law.q) / (oracle.law.p - oracle.law.q))


def slots(
    people: RespondentRows, tau: int, rng: np.random.Generator, spoken: int = 0, depth: int = DEPTH
) -> Slots:
    """A random own row of everybody whose slot is filled; the bit of its first measure, rounded at random.

    Args:
        people: everybody's rows.
        tau: slots a person.
        rng: source of pseudo-random numbers.
        spoken: how many, from the first on, have reported something else and stay silent.
        depth: levels of an axis's tree.
    """
    rows = (people.first[1:] - people.first[:-1])[spoken:]
    filled = rng.integers(0, tau, size=rows.size) < rows
    at = people.first[spoken:-1][filled] + rng.integers(0, rows[filled])
    up = rng.integers(0, HIGHEST - LOWEST, size=at.size) < people.measures[at, 0] - LOWEST
    return Slots(people.leaves[at], up.astype(np.int64), int((~filled).sum()), depth)


def estimated_tau(
    rows: np.ndarray, epsilon: float, noise: float, answer: float, rng: np.random.Generator
) -> int:
    """Tao-Search, corrected: these people report min(rows, 10) and then never again."""
    oracle = choose_oracle(11, largest_weight(Fraction(str(epsilon))))
    histogram = np.bincount(np.minimum(rows, 10), minlength=11)
    tally = tally_of(oracle, histogram, rng).astype(float)
    return theory_tau(estimated_rows(oracle, tally, float(histogram.sum())), noise, answer)
