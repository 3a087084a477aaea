"""The zero-sum rows of one axis with the least mean error over the declared ranges, before they are rounded.

| here | there | unit |
|---|---|---|
| `gram` | X = R' R, X 1 = 0, diagonal at most 1 | n x n |
| `spread` | q' X^+ q | 1 |

**Source** docs/method/views.md, "Residual rows"; Xiao, He, Zhang and Kifer (2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpsql.errors import InterfaceError
from dpsql.mechanisms.axis.dense import DENSE_LEAVES
from dpsql.mechanisms.axis.gram import workload_gram
from dpsql.tree import FloatArray, Workload


@dataclass(frozen=True, eq=False)
class ResidualAxis:
    """What is measured on one axis: its total, and rows that add to zero.

    Args:
        gram: X, positive semidefinite, X 1 = 0, diagonal at most 1, shape (n, n).

    **Privacy** One record moves the zero-sum rows by at most 1 in L2, as the diagonal says, and the total by 1.
    """

    gram: FloatArray

    def __post_init__(self) -> None:
        """Refuse rows that are more sensitive than declared, or that tell of the total."""
        if np.max(np.diag(self.gram), initial=0.0) > 1 + 1e-12 or np.abs(self.gram.sum(axis=0)).max() > 1e-6:
            raise InterfaceError("residual rows need a diagonal of at most 1 and columns that add to zero")

    @property
    def n(self) -> int:
        """Number of leaves."""
        return len(self.gram)

    @cached_property
    def inverse(self) -> FloatArray:
        """X^+, shape (n, n): covariance of the leaves' deviations from their mean, for unit noise."""
        return np.asarray(np.linalg.pinv(self.gram, rcond=1e-12, hermitian=True), np.float64)

    @cached_property
    def rows(self) -> FloatArray:
        """R = X^(1/2), shape (n, n): one choice of rows with this Gram matrix."""
        values, vectors = np.linalg.eigh(self.gram)
        return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, np.float64)

    def spread(self, masks: FloatArray) -> FloatArray:
        """q' X^+ q of each row of masks, shape (g, n) -> (g,)."""
        return np.asarray(np.sum((masks @ self.inverse) * masks, axis=1), np.float64)

    def share(self, masks: FloatArray) -> FloatArray:
        """(|q| / n)^2 of each row of masks, shape (g, n) -> (g,)."""
        return np.asarray((masks.sum(axis=1) / self.n) ** 2, np.float64)


def residual_axis(
    n: int, workload: Workload | None = None, gap: float = 3e-4, steps: int = 40
) -> ResidualAxis:
    """The zero-sum rows with the least mean of q' X^+ q over the declared ranges.

    The fixed point of `gram.optimal_gram` on the space of vectors that add to zero: for leaf prices v the
    best Y = W^(-1/2) (W^(1/2) G W^(1/2))^(1/2) W^(-1/2), with W and G the prices and the workload there.

    Args:
        n: number of leaves, 2 to `DENSE_LEAVES`.
        workload: the ranges asked; None means all ranges.
        gap: stop when the cost is within this fraction of a lower bound.
        steps: most rounds.

    Raises:
        InterfaceError: for an axis that is too short or too long.
    """
    if not 2 <= n <= DENSE_LEAVES:
        raise InterfaceError(
            f"residual rows need 2 to {DENSE_LEAVES} leaves, not {n}", hint="cut the axis wider"
        )
    basis = zero_sum_basis(n)
    asked = basis.T @ workload_gram(n, workload) @ basis
    price, x = np.ones(n), np.eye(n)
    for _ in range(steps):
        side, inverse = _roots(basis.T @ (price[:, None] * basis))
        root = _roots(side @ asked @ side)[0]
        x = basis @ inverse @ root @ inverse @ basis.T
        flat = np.diag(x)
        if flat.max() * price.sum() <= (1 + gap) * np.trace(root):
            break
        price = price * flat**2
    return ResidualAxis(np.asarray(x / np.diag(x).max(), np.float64))


def zero_sum_basis(n: int) -> FloatArray:
    """An orthonormal basis of the vectors that add to zero, shape (n, n - 1)."""
    k = np.arange(1, n)
    lower = np.where(np.arange(n)[:, None] < k, 1.0, 0.0)
    lower[k, k - 1] = -k
    return np.asarray(lower / np.sqrt(k * (k + 1.0)), np.float64)


def _roots(s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Square root of a positive definite matrix, and its inverse."""
    values, vectors = np.linalg.eigh(s)
    root = np.sqrt(np.maximum(values, values[-1] * 1e-15))
    return (vectors * root) @ vectors.T, (vectors / root) @ vectors.T
