"""Integer rows that add to zero over an axis: what is measured of a set of axes beyond its subsets.

They tell nothing of the axis's total, which is measured apart, so they are no strategy of an axis by itself; the
residual family (`mechanisms.family.residual`) puts sets of axes together.

| here | there | unit |
|---|---|---|
| B = `matrix` | R_i, rounded: B 1 = 0 | 1 / total |
| `total` | the largest column norm of B, rounded up | - |

**Source** docs/method/views.md, "Residual rows".
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isqrt
from typing import Any, ClassVar, Self

import numpy as np

from dpsql.mechanisms.axis.dense import DENSE_SCALE
from dpsql.mechanisms.axis.question import AxisChoice, expected_error
from dpsql.mechanisms.axis.residual_axis import residual_axis
from dpsql.mechanisms.axis.rows import SparseRows, square_rows
from dpsql.mechanisms.axis.strategy import AxisStrategy, Frozen, check_sensitivity
from dpsql.mechanisms.law import GAUSSIAN, NoiseLaw
from dpsql.tree import FloatArray, IntArray, Workload
from dpsql.variance.prefix import PrefixVariance


@dataclass(frozen=True, eq=False)
class ZeroSumStrategy:
    """Zero-sum rows. See `AxisStrategy` for what its methods answer; estimates are deviations from the mean.

    Args:
        matrix: B, shape (n, n); every row adds to zero.
        total: bound of the column norms.

    Raises:
        InternalError: if a column norm passes `total`.
    """

    matrix: IntArray
    total: int
    kind: ClassVar[str] = "zero_sum"
    law: ClassVar[NoiseLaw] = GAUSSIAN
    grain: ClassVar[int] = 1
    refinements: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Refuse rows that are more sensitive than they say."""
        check_sensitivity(self, self.entries().column_bound(self.budget, self.law.norm))

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return len(self.matrix)

    @property
    def budget(self) -> IntArray:
        """Ones."""
        return np.ones(len(self.matrix), np.int64)

    @cached_property
    def gram(self) -> FloatArray:
        """X = B' B / total^2."""
        rows = self.matrix / self.total
        return np.asarray(rows.T @ rows, np.float64)

    @cached_property
    def _deviations(self) -> FloatArray:
        """Covariance of the leaves' deviations from their mean at unit noise, shape (n, n)."""
        return np.asarray(np.linalg.pinv(self.gram, rcond=1e-12, hermitian=True), np.float64)

    def measure_columns(self, x: IntArray) -> IntArray:
        """See `AxisStrategy`."""
        return self.matrix @ x

    def estimate_columns(self, y: FloatArray) -> FloatArray:
        """The leaves' deviations from their mean."""
        leaves = self._deviations @ (self.matrix.T.astype(np.float64) @ y) / self.total**2
        return np.asarray(leaves - leaves.mean(axis=0), np.float64)

    def variance(self) -> PrefixVariance:
        """The axis's total is taken as measured with noise of variance 1."""
        return PrefixVariance(self._deviations + 1 / self.leaves**2)

    def entries(self) -> SparseRows:
        """All of them."""
        return square_rows(self.matrix)

    def gathers(self) -> bool:
        """Always."""
        return True

    def even_square(self) -> Fraction:
        """Rows add to zero, so nothing of an even row is seen."""
        return Fraction(1, (self.leaves * self.total) ** 2)

    def for_products(self, crumb: float) -> AxisStrategy:
        """Itself."""
        return self

    def frozen(self) -> dict[str, Any]:
        """The matrix."""
        return {"matrix": self.matrix.tolist(), "total": self.total}

    @classmethod
    def thawed(cls, frozen: Frozen) -> Self:
        """See `AxisStrategy`."""
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
    entry = _rounded(scale * residual_axis(n, workload).rows)
    largest = int((entry * entry).sum(axis=0).max())
    return ZeroSumStrategy(entry, isqrt(largest - 1) + 1)


def zero_sum_choice(n: int, workload: Workload | None, scale: int) -> AxisChoice:
    """The zero-sum rows of an axis of the residual design, with their error over ranges.

    Args:
        n, workload, scale: as of `zero_sum_strategy`.
    """
    strategy = zero_sum_strategy(n, workload, scale)
    return AxisChoice(strategy, "residual rows", expected_error(strategy, workload))


def _rounded(rows: FloatArray) -> IntArray:
    """Nearest integers whose every row adds to zero: what is over goes to the entries that were rounded most."""
    entry = np.rint(rows).astype(np.int64)
    for row, exact in zip(entry, rows, strict=True):
        over = int(row.sum())
        if over:
            most = np.argsort((exact - row) * np.sign(over))[: abs(over)]
            row[most] -= np.sign(over)
    return entry
