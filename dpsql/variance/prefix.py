"""Variance of ranges from a dense covariance of prefix sums, for axes of about a thousand leaves at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.tree import FloatArray
from dpsql.variance.model import AxisVariance, covariance


@dataclass(frozen=True, eq=False)
class PrefixVariance:
    """Any covariance of the leaves.

    Args:
        leaves: covariance of the leaf estimates for noise of unit strength, symmetric, shape (n, n).

    >>> PrefixVariance(np.eye(3)).ranges([0, 1], [3, 2]).tolist()
    [3.0, 1.0]
    """

    leaves: FloatArray
    kind: ClassVar[str] = "prefix"

    @property
    def n(self) -> int:
        """Number of leaves."""
        return len(self.leaves)

    @cached_property
    def prefix(self) -> FloatArray:
        """Covariance of the prefix sums, shape (n + 1, n + 1)."""
        out = np.zeros((self.n + 1, self.n + 1))
        out[1:, 1:] = np.cumsum(np.cumsum(self.leaves, axis=0), axis=1)
        return out

    def ranges(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
        """Variance of each half-open range, shape (q,)."""
        lo, hi = np.atleast_1d(np.asarray(lo, np.int64)), np.atleast_1d(np.asarray(hi, np.int64))
        variance: FloatArray = self.prefix[lo, lo] + self.prefix[hi, hi] - 2 * self.prefix[lo, hi]
        return variance

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,)."""
        u = np.asarray(masks, np.float64)
        variance: FloatArray = np.sum((u @ self.leaves) * u, axis=1)
        return variance

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line per pair of leaves i <= j: (i, j, covariance)."""
        i, j = np.triu_indices(self.n)
        return {"i": i, "j": j, "covariance": self.leaves[i, j]}


def scaled_leaves(model: AxisVariance, factors: FloatArray) -> PrefixVariance:
    """The model of leaves that are each multiplied by a factor of their own.

    Args:
        model: the leaves' model before.
        factors: one for each leaf, shape (n,).

    >>> scaled_leaves(PrefixVariance(np.eye(2)), np.array([1.0, 3.0])).ranges([0, 1], [2, 2]).tolist()
    [10.0, 9.0]
    """
    i, j = np.indices((model.n, model.n)).reshape(2, -1)
    between = covariance(model, i, i + 1, j, j + 1).reshape(model.n, model.n)
    return PrefixVariance(np.asarray(factors[:, None] * between * factors, np.float64))


def from_columns(n: int, columns: Mapping[str, npt.NDArray[np.generic]]) -> PrefixVariance:
    """The model that `columns` were read from; lines may come in any order."""
    i, j = columns["i"].astype(np.int64), columns["j"].astype(np.int64)
    leaves = np.zeros((n, n))
    leaves[i, j] = leaves[j, i] = columns["covariance"].astype(np.float64)
    return PrefixVariance(leaves)
