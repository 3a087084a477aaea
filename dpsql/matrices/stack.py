"""The errors of a stack of smooth fits: how far refits scatter, and a part of the unbiased estimate's own noise.

Refits around a stack's own answer do not see what it smoothed away. So a part k of the unbiased covariance takes the
place of theirs, and a larger one where the answer is a large share of everything: a bend that is small beside each leaf
adds up there. The share is the answered one, so the bars are post-processing.

| here     | there | unit |
|----------|-------|------|
| `refit`  | T'    | (measure unit)^2 |
| `unbiased` | U   | (measure unit)^2 |
| `small`, `large` | k below and from a share of LARGE | 1 |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from dpsql.matrices.model import Columns, Components, Reading, arrays_of, symmetric, table, upper
from dpsql.tree import FloatArray

LARGE = 0.05
"""The answered share from which a range counts as large."""


@dataclass(frozen=True, eq=False)
class StackVariance:
    """Error model of one axis's stack; symmetric and positive semidefinite, shape (n, n) each.

    Args:
        refit, unbiased: covariances of the leaves.
        shares: the stack's answer, shape (n,).
        small, large: part of `unbiased` in the variance of small and of large answers.

    >>> model = StackVariance(np.zeros((2, 2)), np.eye(2), np.array([0.01, 0.99]), 0.25, 1.0)
    >>> model.covariance([np.eye(2)]).tolist(), model.covariance([np.eye(2)], [np.ones((2, 2))]).tolist()
    ([0.25, 1.0], [0.5, 1.0])
    """

    refit: FloatArray
    unbiased: FloatArray
    shares: FloatArray
    small: float
    large: float
    kind: ClassVar[str] = "stack"

    @property
    def n(self) -> int:
        return len(self.shares)

    @cached_property
    def total(self) -> float:
        """The sum of all shares; above 0."""
        return max(float(self.shares.sum()), 1e-300)

    def part(self, masks: FloatArray) -> FloatArray:
        """k of each mask, shape (g,)."""
        large = masks @ self.shares >= LARGE * self.total
        return np.where(large, self.large, self.small)

    def covariance(
        self, masks: Sequence[FloatArray], other: Sequence[FloatArray] | None = None
    ) -> FloatArray:
        """Covariances of the answers under the masks of the one axis with those under `other`, shape (g,).

        sqrt((1 - k)(1 - k')) u'T'w + sqrt(k k') u'U w: a product of covariances, hence one itself.
        """
        (left,), (right,) = masks, masks if other is None else other
        first, second = self.part(left), self.part(right)
        fit = np.sum((left @ self.refit) * right, axis=1)
        noise = np.sum((left @ self.unbiased) * right, axis=1)
        return np.asarray(np.sqrt((1 - first) * (1 - second)) * fit + np.sqrt(first * second) * noise)

    def scaled(self, factor: float) -> StackVariance:
        """The same with shares multiplied by a factor."""
        squared = factor**2
        return StackVariance(
            self.refit * squared, self.unbiased * squared, self.shares * factor, self.small, self.large
        )

    def columns(self) -> Columns:
        """Both covariances by their upper triangles, the shares, and both parts."""
        return table(upper(self.refit), upper(self.unbiased), self.shares, [self.small, self.large])


def from_columns(columns: Columns) -> StackVariance:
    """The model that `columns` were read from."""
    refit, unbiased, shares, (small, large) = arrays_of(columns)
    n = len(shares)
    return StackVariance(symmetric(refit, n), symmetric(unbiased, n), shares, float(small), float(large))


@dataclass(frozen=True)
class StackReading(Reading):
    """Reading of the non-negative counts of one axis.

    Args:
        pieces: the one model.
        components: the one part, with what the model is multiplied by.
    """

    pieces: tuple[StackVariance]
    components: Components
    name: ClassVar[str] = "stack"
