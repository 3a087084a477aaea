"""What the baselines share: budgets as integers, tree measurements and their best linear unbiased estimate.

Every baseline is one function `publish(counts, epsilon, noise) -> estimate`: int64 counts of shape (n,) in,
float64 leaf estimates of shape (n,) out, so a benchmark can put any of them in any row of a table.
All of them draw integer noise through `noise.laplace(s, t)`, as the shipped mechanisms do; what the
literature publishes as a float is a discrete Laplace here, private for integers and as accurate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.noise import ExactNoise, LeafNoise, Noise, insecure_test_entropy, noised
from dpsql.noise.knorm import TreeNoise

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

T = 1 << 30  # common denominator of all budgets


Publish = Callable[[IntArray, Fraction, Noise], FloatArray]


class SimulationNoise:
    """The same law from a seeded generator: fast and repeatable, fit for measuring, unfit for people."""

    insecure: ClassVar[bool] = True

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def laplace(self, units: IntArray, denominator: int, exact: IntArray | None = None) -> IntArray:
        """Difference of two geometric draws, which is the discrete Laplace law."""
        p = -np.expm1(-np.asarray(units, np.float64) / denominator)
        return noised(exact, (self.rng.geometric(p) - self.rng.geometric(p)).astype(np.int64))

    def joint(
        self, units: IntArray, denominator: int, bounds: Sequence[int], exact: IntArray | None = None
    ) -> IntArray:
        """A Gamma radius times a uniform point of the cube, rounded."""
        numbers, size = len(bounds), np.shape(units)
        radius = self.rng.gamma(numbers + 1, 1.0, size) * denominator / np.asarray(units, np.float64)
        cube = self.rng.uniform(-1, 1, (numbers, *size)) * np.reshape(bounds, (-1, *[1] * len(size)))
        return noised(exact, np.rint(radius * cube).astype(np.int64))

    def trees(self, tree: TreeNoise, exact: IntArray) -> IntArray:
        """The exact sampler on entropy from the generator: no float draws a tree at once."""
        entropy = insecure_test_entropy(int(self.rng.integers(1 << 31)))
        return ExactNoise(entropy).trees(tree, exact)

    def stored(self, leaf: LeafNoise, exact: IntArray, drawn: IntArray) -> IntArray:
        """What was drawn before and kept."""
        return noised(exact, drawn)

    def gaussian(self, sigma2: Fraction, size: int, exact: IntArray | None = None) -> IntArray:
        """Rounded normal draws: close enough to the discrete law to measure errors by."""
        return noised(exact, np.rint(self.rng.normal(0.0, float(sigma2) ** 0.5, size)).astype(np.int64))


def units(share: FloatArray, epsilon: Fraction) -> IntArray:
    """Budgets of T-ths from shares of epsilon, rounded down so that no path can pass epsilon."""
    cap = int(epsilon * T)
    return np.maximum(np.floor(share * cap), 0).astype(np.int64)
