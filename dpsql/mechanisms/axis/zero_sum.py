"""Integer rows that add to zero over an axis: what is measured of a set of axes beyond its subsets.

They tell nothing of the axis's total, which is measured apart, so they are no strategy of an axis by itself; the
residual family (`mechanisms.family.residual`) puts sets of axes together. The rows with the least mean error over the
declared ranges are found first, then rounded to integers that still add to zero.

| here | there | unit |
|---|---|---|
| `gram` | X = R' R, X 1 = 0, diagonal at most 1 | n x n |
| `spread` | q' X^+ q | 1 |
| B = `matrix` | R_i, rounded: B 1 = 0 | 1 / total |
| `total` | the largest column norm of B, rounded up | - |

**Source** docs/method/views.md, "Residual rows"; Xiao, He, Zhang and Kifer (2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isqrt, sqrt
from typing import Any, ClassVar, Self

import numpy as np

from dpsql.errors import InterfaceError
from dpsql.matrices.leaves import PrefixVariance
from dpsql.mechanisms.axis.dense import DENSE_LEAVES, DENSE_SCALE, Mixing, SquareRows, workload_gram
from dpsql.mechanisms.axis.strategy import AxisChoice, Frozen, check_sensitivity, expected_error
from dpsql.tree import FloatArray, IntArray, Workload, single_leaves


def best_gram(n: int, workload: Workload | None = None, gap: float = 3e-4, steps: int = 40) -> FloatArray:
    """The X of zero-sum rows with the least mean of q' X^+ q over the declared ranges, largest diagonal entry 1.

    The fixed point of `dense.optimal_gram` on the space of vectors that add to zero: for leaf prices v the
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
    projected_gram = basis.T @ workload_gram(n, workload) @ basis
    mixing, x = Mixing(np.ones(n)), np.eye(n)
    for _ in range(steps):
        price = mixing.price
        side, inverse = _roots(basis.T @ (price[:, None] * basis))
        root = _roots(side @ projected_gram @ side)[0]
        x = basis @ inverse @ root @ inverse @ basis.T
        flat = np.diag(x)
        if flat.max() * price.sum() <= (1 + gap) * np.trace(root):
            break
        mixing.times(flat**2)
    return np.asarray(x / np.diag(x).max(), np.float64)


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


@dataclass(frozen=True, eq=False)
class ZeroSumStrategy(SquareRows):
    """Zero-sum rows. See `AxisStrategy` for what its methods answer; estimates are deviations from the mean.

    Args:
        matrix: B, shape (n, n); every row adds to zero.
        total: bound of the column norms.

    Raises:
        InternalError: if a column norm passes `total`.
    """

    kind: ClassVar[str] = "zero_sum"
    entry_scale: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Refuse rows that are more sensitive than they say."""
        check_sensitivity(self, self.entries().column_bound(self.budget, self.law.norm))

    @cached_property
    def _deviations(self) -> FloatArray:
        """X^+: covariance of the leaves' deviations from their mean at unit noise, shape (n, n)."""
        rows = self.matrix / self.total
        return np.asarray(np.linalg.pinv(rows.T @ rows, rcond=1e-12, hermitian=True), np.float64)

    def estimate_columns(self, y: FloatArray) -> FloatArray:
        """The leaves' deviations from their mean."""
        leaves = self._deviations @ (self.matrix.T.astype(np.float64) @ y) / self.total**2
        return np.asarray(leaves - leaves.mean(axis=0), np.float64)

    def variance(self) -> PrefixVariance:
        """The axis's total is taken as measured with noise of variance 1."""
        return PrefixVariance(self._deviations + 1 / self.leaves**2)

    def frozen(self) -> dict[str, Any]:
        return {"matrix": self.matrix.tolist(), "total": self.total}

    @classmethod
    def thawed(cls, frozen: Frozen) -> Self:
        return cls(np.array(frozen["matrix"], np.int64), int(frozen["total"]))


def zero_sum_strategy(n: int, workload: Workload | None = None, scale: int = DENSE_SCALE) -> ZeroSumStrategy:
    """The best zero-sum rows of an axis for the declared ranges, in integers.

    Args:
        n: number of leaves, 2 to `dense.DENSE_LEAVES`.
        workload: the ranges asked; None means all ranges.
        scale: rows are rounded to multiples of about 1 / scale.

    Raises:
        InterfaceError: for an axis that is too short or too long.

    **Privacy** `total` is the exact largest column norm of the integer rows, rounded up.
    """
    values, vectors = np.linalg.eigh(best_gram(n, workload))
    return _in_integers((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, scale)


def _in_integers(rows: FloatArray, scale: int) -> ZeroSumStrategy:
    matrix = _rounded(scale * np.asarray(rows, np.float64))
    largest = int((matrix * matrix).sum(axis=0).max())
    return ZeroSumStrategy(matrix, isqrt(largest - 1) + 1)


def zero_sum_choice(n: int, workload: Workload | None, scale: int) -> AxisChoice:
    """The zero-sum rows of an axis of the residual design, with their error over ranges.

    Args:
        n, workload, scale: as of `zero_sum_strategy`.
    """
    strategy = zero_sum_strategy(n, workload, scale)
    return AxisChoice(strategy, "residual rows", expected_error(strategy, workload))


def single_leaf_choice(n: int, scale: int) -> AxisChoice:
    """The zero-sum rows with the least error of single leaves: each leaf less the mean, R = (I - 11'/n) sqrt(n/(n-1)).

    All leaves are alike to single leaves, so the best X is the one matrix that no exchange of leaves changes.

    Args:
        n, scale: as of `zero_sum_strategy`.
    """
    strategy = _in_integers((np.eye(n) - 1 / n) * sqrt(n / (n - 1)), scale)
    return AxisChoice(strategy, "residual rows of cells", expected_error(strategy, single_leaves(n)))


def _rounded(rows: FloatArray) -> IntArray:
    """Nearest integers whose every row adds to zero: what is over goes to the entries that were rounded most."""
    rounded = np.rint(rows).astype(np.int64)
    for row, exact in zip(rounded, rows, strict=True):
        over = int(row.sum())
        if over:
            most_rounded = np.argsort((exact - row) * np.sign(over))[: abs(over)]
            row[most_rounded] -= np.sign(over)
    return rounded
