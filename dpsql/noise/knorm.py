r"""Exact draws of integer vectors with P(z) proportional to exp(-N(z)), N a norm: the K-norm mechanism.

| here | there | unit |
|---|---|---|
| `bounds` (M_0 .. M_{d-1}) | how far one unit moves each number | stored units |
| size(z) | max_j \|z_j\| / M_j | units |
| `joint_rows` | one vector of d numbers a row, P(z) ~ exp(-(s/t) size(z)) | |
| `joint_trees` | leaves of trees, P(z) ~ exp(-sum over nodes v of (c_level(v) / t) size(sum of v's leaves)) | |

COUNT and SUM of the same rows move together, so one draw of their pair pays once for what two draws pay twice; and
leaves of a tree drawn from the norm of all its node sums need no noise for the nodes themselves.

A draw takes no exact value: the sum is made after it. The number of tries depends on coins alone and is independent
of the values that are kept (docs/privacy.md, "Several numbers by one draw", says what time shows).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import count
from math import factorial, prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.noise.discrete import (
    BLOCK,
    BoolArray,
    Entropy,
    IntArray,
    UniformReals,
    WordArray,
    check_denominator,
    discrete_laplace,
    exponentials,
    full_words,
    rational_coin,
)

_SLACK = 2.0**-48
"""Of an exponent of a tree's coin: some eight correctly rounded operations err by less than 2^-49 of it."""


MOST_DRAWN = 25
"""Numbers of one draw for which the slacks below are proved and which plans are held to."""

_RADIUS_SLACK = 16 * 2.0**-53
"""Of M_j r in floats, relative: the fraction of x (3 roundings and, below 2^-64, no claim), its whole part added (1),
t / s (3), their product (1), M_j (1), the product (1) are 10 u, u = 2^-53; the rest is room for the comparison."""


def _coin_slack(numbers: int) -> float:
    """Of prod_j (2 m_j + 1) / (2 M_j r + 1) in floats, relative. A factor errs by the 10 u of M_j r, the rounding of
    2 m_j + 1, of 2 M_j r + 1, of their quotient and of the product so far: 14 u each, first order, and 2 u of room.

    Raises:
        InternalError: more numbers than it is proved for.
    """
    if numbers > MOST_DRAWN:
        raise InternalError(f"one draw holds at most {MOST_DRAWN} numbers")
    return (16 * numbers + 2) * 2.0**-53


_FLOAT_FLOORS = 2.0**10
"""Scale M_j t / s up to which floats are asked for floors first. Public, so that what the exact floors of larger ones
take does not depend on the noise."""
_LARGEST = 1 << 62
"""Floors from here on do not fit the vectors of 64-bit integers; below exp(-250 d) by `check_denominator`."""
_TRIES = 1 << 9
"""The fewest tries made at once: numpy's calls cost more than so few draws."""


def joint_rows(units: IntArray, denominator: int, bounds: Sequence[int], entropy: Entropy) -> IntArray:
    """Independent vectors of d numbers with P(z) proportional to exp(-(s/t) max_j |z_j| / M_j).

    exp(-l size(z)) is the integral of l e^(-l r) over r >= size(z), l = s / t: so z is uniform on the box of all
    |z_j| <= M_j r, where r has the density e^(-l r) prod_j (2 floor(M_j r) + 1). That is drawn from e^(-l r) prod_j (2
    M_j r + 1), a mixture of Gamma laws, and kept with chance prod_j (2 floor(M_j r) + 1) / (2 M_j r + 1):
    `expected_tries`.

    Args:
        units: int64, any shape, each >= 1; s.
        denominator: t >= 1; 512 t d max M_j < 2^63.
        bounds: M_j >= 1, one a number; at most `MOST_DRAWN`.
        entropy: where uniform bytes come from.

    Returns:
        int64, shape (d, *units.shape); a number beyond 64 bits modulo 2^64.

    Raises:
        InternalError: a row without budget, too many numbers, or scales that int64 does not hold.

    **Privacy**: added to integer vectors of which one unit moves one by w (x_0, .., x_{d-1}), |x_j| <= M_j and w in
    [0, 1], row r is w s_r / t - DP, for all d numbers together.

    **Source**: docs/method/rows.md, "Joint rows"; Hardt and Talwar (2010), Awan and Slavkovic (2020).
    """
    units = np.asarray(units, dtype=np.int64)
    numbers = len(bounds)
    if numbers < 1 or min(bounds) < 1:
        raise InternalError("a joint draw needs a positive bound for each of its numbers")
    check_denominator(denominator * numbers * max(bounds))
    if numbers == 1:
        return discrete_laplace(units, denominator * bounds[0], entropy)[np.newaxis]
    _coin_slack(numbers)
    if units.size and int(units.min()) < 1:
        raise InternalError("a measurement was given no budget", hint="leave rows without budget unmeasured")
    flat = units.reshape(-1)
    noise = np.empty((numbers, flat.size), dtype=np.int64)
    block = max(_TRIES, BLOCK // (numbers + 1))
    for start in range(0, flat.size, block):
        pending = np.arange(start, min(start + block, flat.size))
        while pending.size:
            tried = np.repeat(pending, -(-_TRIES // pending.size) if pending.size < _TRIES else 1)
            boxes = _Boxes(flat[tried], denominator, bounds, entropy)
            # the first try of a row that its coin keeps; those after it are thrown away unseen
            accepted = np.flatnonzero(boxes.keep())
            rows, first = np.unique(tried[accepted], return_index=True)
            noise[:, rows] = boxes.points(accepted[first])
            pending = np.setdiff1d(pending, rows, assume_unique=True)
    return noise.reshape(numbers, *units.shape)


class _Boxes:
    """Tries of a radius r = (t / s) x, x a Gamma real as a sum of order + 1 exponential reals, and the floors M_j r.

    All tries draw d + 1 exponential reals, so that their time does not depend on the order.
    """

    def __init__(self, units: IntArray, denominator: int, bounds: Sequence[int], entropy: Entropy) -> None:
        self.units, self.denominator, self.bounds, self.entropy = units, denominator, bounds, entropy
        self.order = _gamma_orders(units, denominator, bounds, entropy)
        reals = len(bounds) + 1
        self.integers, self.fractions = exponentials(units.size * reals, entropy)
        counted = np.arange(reals) <= self.order[:, np.newaxis]
        self.integer, self.high, self.low = _added_up(self.integers, self.fractions, counted)
        fraction = self.high.astype(np.float64) * 2.0**-64 + self.low.astype(np.float64) * 2.0**-128
        scale = denominator / units.astype(np.float64)
        radius = (self.integer.astype(np.float64) + fraction) * scale
        self.reals = radius * np.array(bounds, dtype=np.float64)[:, np.newaxis]
        self.large: dict[tuple[int, int], int] = {}
        self.floors = np.empty(self.reals.shape, dtype=np.int64)
        # else x may be so small that its first 128 bits say little
        small = (self.integer > 0) | (self.high > 0)
        for j, bound in enumerate(bounds):
            lower = np.floor(self.reals[j] * (1.0 - _RADIUS_SLACK))
            decided = small & (lower == np.floor(self.reals[j] * (1.0 + _RADIUS_SLACK)))
            decided &= scale * bound <= _FLOAT_FLOORS
            self.floors[j] = np.where(decided, lower, 0.0)
            self._exact_floors(j, np.flatnonzero(~decided))

    def radius_bounds(self, place: int, read: int) -> tuple[int, int]:
        """x 2^(64 words) of a try lies between these, by so many words of each of its reals."""
        first = place * (len(self.bounds) + 1)
        terms = range(first, first + int(self.order[place]) + 1)
        low = sum((int(self.integers[k]) << 64 * read) + self.fractions.prefix(k, read) for k in terms)
        return low, low + len(terms)

    def floor(self, j: int, place: int) -> int:
        """floor(M_j r) of a try."""
        return self.large.get((j, place), int(self.floors[j, place]))

    def _exact_floors(self, j: int, places: npt.NDArray[np.intp]) -> None:
        """floor(M_j x t / s) in whole numbers of any size, by 128 bits of each real, by more where they do not do."""
        if not places.size:
            return
        factor = self.bounds[j] * self.denominator
        prefix = self.integer[places].astype(object) << 128
        prefix += (self.high[places].astype(object) << 64) + self.low[places].astype(object)
        divisor = self.units[places].astype(object) << 128
        floors = prefix * factor // divisor
        remainder = prefix * factor - floors * divisor
        for i in np.flatnonzero(remainder + (self.order[places] + 1).astype(object) * factor >= divisor):
            floors[i] = self._exact_floor(j, int(places[i]))
        for i in np.flatnonzero(floors >= _LARGEST):
            self.large[j, int(places[i])], floors[i] = int(floors[i]), 0
        self.floors[j, places] = floors.astype(np.int64)

    def _exact_floor(self, j: int, place: int) -> int:
        factor, units = self.bounds[j] * self.denominator, int(self.units[place])
        for read in count(3):
            low, high = self.radius_bounds(place, read)
            floor = low * factor // (units << 64 * read)
            if floor == high * factor // (units << 64 * read):
                return floor
        raise AssertionError

    def keep(self) -> BoolArray:
        """Bernoulli(prod_j (2 floor(M_j r) + 1) / (2 M_j r + 1)) of each try.

        Floats are a filter only: a coin that their slack leaves open is decided by whole numbers.
        """
        chance = np.ones(self.units.size)
        for floors, reals in zip(self.floors, self.reals, strict=True):
            chance *= (2 * floors + 1).astype(np.float64) / (2.0 * reals + 1.0)
        slack = chance * _coin_slack(len(self.bounds))
        word = full_words(self.units.size, self.entropy)
        low = (word >> np.uint64(11)).astype(np.float64) * 2.0**-53  # 53 bits, exact in float
        heads = low + 2.0**-53 <= chance - slack
        undecided = ~heads & (low < chance + slack) | (self.integer == 0) & (self.high == 0)
        for place in {*np.flatnonzero(undecided).tolist(), *(place for _, place in self.large)}:
            heads[place] = self._exact_coin(int(word[place]), place)
        return heads

    def _exact_coin(self, word: int, place: int) -> bool:
        """Is a uniform real that starts with this word below the chance of a try? Bits of both are read until clear."""
        units = int(self.units[place])
        inside = prod(2 * self.floor(j, place) + 1 for j in range(len(self.bounds)))
        for read in count(1):
            scale = 1 << 64 * read
            shortest, longest = (
                prod(Fraction(2 * bound * self.denominator * end, units * scale) + 1 for bound in self.bounds)
                for end in self.radius_bounds(place, read)
            )
            if (word + 1) * longest <= inside * scale:
                return True
            if word * shortest >= inside * scale:
                return False
            word = word << 64 | int.from_bytes(self.entropy(8), "big")
        raise AssertionError

    def points(self, places: npt.NDArray[np.intp]) -> IntArray:
        """Uniform integer points of the boxes of some tries, shape (d, places)."""
        floors = self.floors[:, places]
        points = _below(2 * floors.ravel() + 1, self.entropy).reshape(floors.shape) - floors
        where = {int(place): i for i, place in enumerate(places)} if self.large else {}
        for (j, place), floor in self.large.items():
            if place in where:
                below = _exact_below(_bits(2, self.entropy), 2, 2 * floor + 1, self.entropy)
                points[j, where[place]] = (below - floor + (1 << 63)) % (1 << 64) - (1 << 63)
        return points


def _gamma_orders(
    units: IntArray, denominator: int, bounds: Sequence[int], entropy: Entropy
) -> npt.NDArray[np.int64]:
    """Orders i = 0 .. d of x^i e^-x that each x is drawn from, with chance c_i i! (t / s)^i over the sum of all,
    where prod_j (2 M_j r + 1) = sum_i c_i r^i."""
    weights = [1]
    for bound in bounds:
        weights = [a + 2 * bound * b for a, b in zip([*weights, 0], [0, *weights], strict=True)]
    weights = [weight * factorial(i) * denominator**i for i, weight in enumerate(weights)]
    distinct, inverse = np.unique(units, return_inverse=True)
    sums = [_weight_sums(weights, unit) for unit in distinct.tolist()]
    steps = np.array([[(part << 64) // row[-1] for part in row[:-1]] for row in sums], dtype=np.uint64)
    word = full_words(units.size, entropy)
    order = np.zeros(units.size, dtype=np.int64)
    undecided = np.zeros(units.size, dtype=np.bool_)
    for step in steps.T:
        order += word > step[inverse]
        undecided |= word == step[inverse]
    for place in np.flatnonzero(undecided):
        order[place] = _exact_order(int(word[place]), sums[inverse[place]], entropy)
    return order


def _weight_sums(weights: Sequence[int], unit: int) -> list[int]:
    """Running sums of the weights of all orders, times s^d."""
    sums, power, total = list[int](), 1, 0
    powers = [1]
    for _ in weights[1:]:
        power *= unit
        powers.append(power)
    for weight, factor in zip(weights, reversed(powers), strict=True):
        total += weight * factor
        sums.append(total)
    return sums


def _exact_order(word: int, sums: Sequence[int], entropy: Entropy) -> int:
    """The number of running sums, over the last one, that are at most a uniform real that starts with this word."""
    for read in count(1):
        lower, upper = (
            sum(part << 64 * read <= end * sums[-1] for part in sums[:-1]) for end in (word, word + 1)
        )
        if lower == upper:
            return lower
        word = word << 64 | int.from_bytes(entropy(8), "big")
    raise AssertionError


def _added_up(
    integers: IntArray, fractions: UniformReals, counted: BoolArray
) -> tuple[IntArray, WordArray, WordArray]:
    """The counted reals of each row added up: whole part and the first two words of the fraction, exactly."""
    half, mask = np.uint64(32), np.uint64((1 << 32) - 1)
    sums = []
    for word in (fractions.second, fractions.first):
        word = np.where(counted, word.reshape(counted.shape), np.uint64(0))
        sums += [(word & mask).sum(axis=1, dtype=np.uint64), (word >> half).sum(axis=1, dtype=np.uint64)]
    for i in range(3):
        sums[i + 1] += sums[i] >> half
    low, high = (sums[i] & mask | sums[i + 1] << half for i in (0, 2))
    integer = np.where(counted, integers.reshape(counted.shape), 0).sum(axis=1)
    return integer + (sums[3] >> half).astype(np.int64), high, low


def _bits(number: int, entropy: Entropy) -> int:
    """So many uniform words as one whole number."""
    return int.from_bytes(entropy(8 * number), "big")


def _product(a: WordArray, b: WordArray) -> tuple[WordArray, WordArray]:
    """Both words, the higher first, of a product of 64-bit integers."""
    half, mask = np.uint64(32), np.uint64((1 << 32) - 1)
    (a_high, a_low), (b_high, b_low) = ((x >> half, x & mask) for x in (a, b))
    low = a_low * b_low
    middle = a_high * b_low + (low >> half)
    crossed = a_low * b_high + (middle & mask)
    return a_high * b_high + (middle >> half) + (crossed >> half), crossed << half | low & mask


def _below(bounds: IntArray, entropy: Entropy) -> IntArray:
    """Uniform integers in [0, n), each n of its own: floor(n U), U a real of which 128 bits are read at once.

    More of them are read with a chance of 2^-64, so the time does not depend on n or on what comes out.
    """
    first, second = full_words(2 * bounds.size, entropy).reshape(2, -1)
    size = bounds.astype(np.uint64)
    (quotient, middle), (carried, _) = _product(first, size), _product(second, size)
    middle = middle + carried
    quotient += middle < carried
    drawn = quotient.astype(np.int64)
    for i in np.flatnonzero(middle == np.uint64((1 << 64) - 1)):  # bits not read yet might carry
        drawn[i] = _exact_below(int(first[i]) << 64 | int(second[i]), 2, int(bounds[i]), entropy)
    return drawn


def _exact_below(prefix: int, read: int, bound: int, entropy: Entropy) -> int:
    """floor(n U) of a uniform real U with these first words; more are read until it is clear."""
    while prefix * bound >> 64 * read != (prefix + 1) * bound >> 64 * read:
        prefix, read = prefix << 64 | _bits(1, entropy), read + 1
    return prefix * bound >> 64 * read


_FEWEST, _CHUNK = 1 << 9, 1 << 13
"""The fewest leaves drawn at first, and, doubled each time, in the end: the calls cost more than so few draws."""


_GRID = 1.0 / 128


@lru_cache(maxsize=256)
def expected_tries(rate: float, bounds: tuple[int, ...]) -> float:
    """The mean number of tries of one vector: sum_i c_i i! (t/s)^i over the mass of the target, by midpoints.

    Args:
        rate: s / t > 0.
        bounds: M_j >= 1, one a number.

    Returns:
        At least 1; within 1%.

    >>> round(expected_tries(0.1, (1,) * 10), 2), round(expected_tries(5.0, (1,) * 16), 1)
    (1.05, 5.0)
    """
    numbers = len(bounds)
    end = numbers + 12.0 * (numbers + 1) ** 0.5 + 40.0  # Gamma laws of orders up to d have 10^-15 beyond
    x = np.arange(0.5 * _GRID, end, _GRID)
    logs, accepted = -x, np.ones_like(x)
    for bound in bounds if numbers > 1 else ():
        real = bound * x / rate
        logs += np.log1p(2.0 * real)
        accepted *= (2.0 * np.floor(real) + 1.0) / (2.0 * real + 1.0)
    mass = np.exp(logs - logs.max())
    return float(mass.sum() / (mass * accepted).sum())


class TreeNoise(NamedTuple):
    """Noise of the leaves of joint trees.

    Args:
        arities: children of a node at each level, the root's first; their product is the number of leaves drawn.
        rates: integers c_0 .. c_L >= 0, the root's first; the leaves' is at least the number of leaves.
        denominator: t; 512 t d max M_j < 2^63.
        bounds: M_j >= 1, one a number.
    """

    arities: tuple[int, ...]
    rates: tuple[int, ...]
    denominator: int
    bounds: tuple[int, ...]

    @property
    def leaves(self) -> int:
        """Leaves that are drawn, those of the padding included."""
        return prod(self.arities)

    def check(self) -> None:
        """Refuse a tree whose sums of noise int64 might not hold, or whose leaves have no noise.

        Raises:
            InternalError: as said.
        """
        if (
            len(self.rates) != len(self.arities) + 1
            or min(self.rates) < 0
            or min(self.arities, default=2) < 2
        ):
            raise InternalError("a tree needs one rate a level, the root's first, and arities of at least 2")
        if self.rates[-1] < self.leaves:
            raise InternalError("the leaves of a joint tree need a rate of at least their number")
        check_denominator(self.denominator * len(self.bounds) * max(self.bounds))


def joint_trees(tree: TreeNoise, number: int, entropy: Entropy) -> IntArray:
    """Leaves of independent trees, P(z) proportional to exp(-sum_v (c_l(v) / t) size(sum of the leaves below v)).

    Leaves are drawn by `joint_rows`; k siblings are kept with the coin of their parent's sum, level by level upwards,
    and a group that is not kept is drawn anew with all below it. Kept values are independent of which groups were
    kept, so taking the first `number` trees does not change the distribution, and how many draws it took is
    independent of the noise that came out.

    Args:
        tree: shape and rates.
        number: how many trees.
        entropy: where uniform bytes come from.

    Returns:
        int64, shape (d, number, leaves).

    Raises:
        InternalError: rates or scales that `TreeNoise.check` refuses.

    **Privacy**: added to integer vectors of leaves of which one unit moves one leaf by w (x_0, .., x_{d-1}),
    |x_j| <= M_j and w in [0, 1], it is w sum_l c_l / t - DP; any rows whose w add up to W cost W times that.

    **Source**: docs/method/rows.md, "Joint trees".
    """
    tree.check()
    arities, bounds = tree.arities, tree.bounds
    pools = [np.empty((len(bounds), 0, prod(arities[level:])), np.int64) for level in range(len(arities) + 1)]
    fewest = _FEWEST
    while pools[0].shape[1] < number:
        chunk = min(BLOCK, max(fewest, (number - pools[0].shape[1]) * tree.leaves))
        fewest = min(_CHUNK, 2 * fewest)
        units = np.full(chunk, tree.rates[-1], dtype=np.int64)
        kept = joint_rows(units, tree.denominator, bounds, entropy)[:, :, np.newaxis]
        for level in range(len(arities) - 1, -1, -1):
            nodes = np.concatenate([pools[level + 1], kept], axis=1)
            groups = nodes.shape[1] // arities[level]
            pools[level + 1] = nodes[:, groups * arities[level] :]
            siblings = nodes[:, : groups * arities[level]].reshape(len(bounds), groups, prod(arities[level:]))
            kept = siblings[:, _sum_coin(siblings.sum(axis=2), tree, level, entropy)]
        pools[0] = np.concatenate([pools[0], kept], axis=1)
    return pools[0][:, :number]


def _sum_coin(sums: IntArray, tree: TreeNoise, level: int, entropy: Entropy) -> BoolArray:
    """Bernoulli(exp(-(c_l/t) max_j |S_j| / M_j)) for each column of `sums`, shape (d, groups)."""
    rate = tree.rates[level]
    if rate == 0:
        return np.ones(sums.shape[1], dtype=np.bool_)
    sizes = np.abs(sums).astype(np.float64) / np.array(tree.bounds, dtype=np.float64)[:, np.newaxis]
    exponent = sizes.max(axis=0) * (rate / tree.denominator)

    def exact(index: int) -> Fraction:
        size = max(Fraction(abs(int(z)), bound) for z, bound in zip(sums[:, index], tree.bounds, strict=True))
        return Fraction(rate, tree.denominator) * size

    return rational_coin(exponent, exponent * _SLACK, exact, entropy)
