"""Exact draws of integer vectors with P(z) proportional to exp(-N(z)), N a norm: the K-norm mechanism.

| here | there | unit |
|---|---|---|
| `bounds` (M_0 .. M_{d-1}) | how far one unit moves each number | stored units |
| size(z) | max_j \\|z_j\\| / M_j | units |
| `joint_rows` | one vector of d numbers a row, P(z) ~ exp(-(s/t) size(z)) | |
| `joint_trees` | leaves of trees, P(z) ~ exp(-sum over nodes v of (c_level(v) / t) size(sum of v's leaves)) | |

COUNT and SUM of the same rows move together, so one draw of their pair pays once for what two draws pay twice; and
leaves of a tree drawn from the norm of all its node sums need no noise for the nodes themselves.

A draw takes no exact value: the sum is made after it. The number of tries depends on coins alone and is independent
of the values that are kept, so the time of a draw reveals nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import NamedTuple

import numpy as np

from dpsql.errors import InternalError
from dpsql.noise.coins import BLOCK, BoolArray, Entropy, IntArray, check_denominator, rational_coin
from dpsql.noise.laplace import discrete_laplace

_SLACK = 2.0**-48
"""Of the larger term of an exponent: some eight correctly rounded operations err by less than 2^-49 of it."""


_FEWEST, _CHUNK = 1 << 9, 1 << 13
"""The fewest leaves drawn at first, and, doubled each time, in the end: the calls cost more than so few draws."""


def joint_rows(units: IntArray, denominator: int, bounds: Sequence[int], entropy: Entropy) -> IntArray:
    """Independent vectors of d numbers with P(z) proportional to exp(-(s/t) max_j |z_j| / M_j).

    Each number is drawn by the d-th part of the rate and the vector kept with the chance that is missing, which is
    exp(-(s/t) (max - mean)) of |z_j| / M_j: a maximum is never below a mean. About d^d / d! tries.

    Args:
        units: int64, any shape, each >= 1; s.
        denominator: t >= 1; 512 t d max M_j < 2^63.
        bounds: M_j >= 1, one a number.
        entropy: where uniform bytes come from.

    Returns:
        int64, shape (d, *units.shape).

    Raises:
        InternalError: a row without budget, or scales that int64 does not hold.

    **Privacy**: added to integer vectors of which one unit moves one by w (x_0, .., x_{d-1}), |x_j| <= M_j and w in
    [0, 1], row r is w s_r / t - DP, for all d numbers together.

    **Source**: docs/method/noise.md, "Joint rows"; Hardt and Talwar (2010), Awan and Slavkovic (2020).
    """
    units = np.asarray(units, dtype=np.int64)
    numbers = len(bounds)
    if numbers < 1 or min(bounds) < 1:
        raise InternalError("a joint draw needs a positive bound for each of its numbers")
    check_denominator(denominator * numbers * max(bounds))
    flat = units.reshape(-1)
    if numbers == 1:
        return discrete_laplace(units, denominator * bounds[0], entropy)[np.newaxis]
    noise = np.empty((numbers, flat.size), dtype=np.int64)
    for start in range(0, flat.size, BLOCK):
        pending = np.arange(start, min(start + BLOCK, flat.size))
        while pending.size:
            scale = flat[pending]
            draws = np.stack(
                [discrete_laplace(scale, denominator * numbers * bound, entropy) for bound in bounds]
            )
            kept = _excess_coin(draws, scale, denominator, bounds, entropy)
            noise[:, pending[kept]] = draws[:, kept]
            pending = pending[~kept]
    return noise.reshape(numbers, *units.shape)


def _excess_coin(
    draws: IntArray, units: IntArray, denominator: int, bounds: Sequence[int], entropy: Entropy
) -> BoolArray:
    """Bernoulli(exp(-(s/t) (max_j |z_j| / M_j - mean_j |z_j| / M_j))) for each column of `draws`."""
    sizes = np.abs(draws).astype(np.float64) / np.array(bounds, dtype=np.float64)[:, np.newaxis]
    largest = sizes.max(axis=0)
    rate = units.astype(np.float64) / denominator

    def exact(index: int) -> Fraction:
        parts = [Fraction(abs(int(z)), bound) for z, bound in zip(draws[:, index], bounds, strict=True)]
        return Fraction(int(units[index]), denominator) * (max(parts) - sum(parts, Fraction(0)) / len(parts))

    # The difference cancels: its error is bounded by the maximum, not by itself.
    return rational_coin(rate * (largest - sizes.mean(axis=0)), rate * largest * _SLACK, exact, entropy)


class TreeNoise(NamedTuple):
    """What the leaves of joint trees are drawn with.

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

    **Source**: docs/method/noise.md, "Joint trees".
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
