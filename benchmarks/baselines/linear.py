"""Baselines whose estimate is a fixed linear function of the noisy measurements: data never choose anything.

name         source                                          measures
dwork        Dwork, McSherry, Nissim, Smith (2006)           every cell
flat         -                                               the total alone
boost        Hay, Rastogi, Miklau, Suciu (2010), k = 2       every node of a binary tree, equal budgets
boost_un     the same with one optimised budget per level    (seed of Boost-UN: levels, not nodes)
privelet     Xiao, Wang, Gehrke (2010), Haar wavelet         differences of the halves of every node
hb           Qardaji, Yang, Li (2013), root dropped          a k-ary tree, k by their rule
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from benchmarks.baselines.common import FloatArray, IntArray, T, publish_tree, units
from dpsql.noise import Noise
from dpsql.tree import Tree, coverage, kary_tree


def dwork(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """One noisy count per cell."""
    return (counts + noise.laplace(units(np.ones(len(counts)), epsilon), T)).astype(np.float64)


def flat(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """The noisy total, spread evenly: what a mechanism must beat to have looked at the data at all."""
    total = int(counts.sum()) + int(noise.laplace(units(np.ones(1), epsilon), T)[0])
    return np.full(len(counts), total / len(counts))


def boost(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """A binary tree with equal budgets on all levels, then the best linear unbiased estimate."""
    tree = kary_tree(len(counts), 2)
    return publish_tree(tree, np.full(tree.size, 1.0 / tree.depth), counts, epsilon, noise)


def level_shares(tree: Tree) -> FloatArray:
    """Shares per level that minimise the error before BLUE: cube roots of the levels' coverage."""
    root = np.cbrt(np.bincount(tree.level, weights=coverage(tree)))
    return np.asarray((root / root.sum())[tree.level])


def boost_un(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """Boost with one optimised budget per level."""
    tree = kary_tree(len(counts), 2)
    return publish_tree(tree, level_shares(tree), counts, epsilon, noise)


def hb_arity(n: int) -> int:
    """The k that HB chooses: least (k - 1) h^3 - 2 (k + 1) h^2 / 3, h the number of levels below the root."""

    def height(k: int) -> int:
        levels, reach = 0, 1
        while reach < n:
            levels, reach = levels + 1, reach * k
        return levels

    def loss(k: int) -> float:
        return (k - 1) * height(k) ** 3 - 2 * (k + 1) * height(k) ** 2 / 3

    return min(range(2, min(n, 64) + 1), key=loss)


def hb_shares(tree: Tree) -> FloatArray:
    """Equal shares on the levels below the root."""
    return np.where(tree.level == 0, 0.0, 1.0 / max(tree.depth - 1, 1))


def hb(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """A tree of HB's arity, root not measured."""
    if len(counts) < 3:
        return dwork(counts, epsilon, noise)
    tree = kary_tree(len(counts), hb_arity(len(counts)))
    return publish_tree(tree, hb_shares(tree), counts, epsilon, noise)


def privelet(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """The Haar wavelet. A coefficient is a difference of halves over their size, so integers are measured.

    With Privelet's weights every difference gets the same noise, (1 + log2 n) / epsilon.
    """
    height = max(len(counts) - 1, 0).bit_length()
    parts = np.zeros(1 << height, np.int64)
    parts[: len(counts)] = counts
    differences = []
    for _ in range(height):
        pair = parts.reshape(-1, 2)
        differences.append(pair[:, 0] - pair[:, 1])
        parts = pair.sum(axis=1)
    share = 1.0 / (height + 1)
    sums = (parts + noise.laplace(units(np.full(1, share), epsilon), T)).astype(np.float64)
    for exact in reversed(differences):
        noisy = exact + noise.laplace(units(np.full(len(exact), share), epsilon), T)
        sums = np.stack([(sums + noisy) / 2, (sums - noisy) / 2], axis=1).ravel()
    return sums[: len(counts)]
