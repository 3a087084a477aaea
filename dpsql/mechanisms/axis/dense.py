"""The best rows for Gaussian noise on axes of up to about a thousand leaves, rounded to integers.

The optimum is a full matrix (`gram.optimal_gram`); a thousand leaves take under a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from dpsql.errors import InterfaceError
from dpsql.mechanisms.axis.gram import matrix_root, optimal_gram, workload_gram
from dpsql.mechanisms.axis.question import FEWEST_LEAVES, AxisQuestion, Candidate, Offer, Refusal, candidate
from dpsql.mechanisms.axis.rows import SparseRows, square_rows
from dpsql.mechanisms.axis.strategy import AxisStrategy, Frozen, check_sensitivity
from dpsql.mechanisms.law import GAUSSIAN, NoiseLaw
from dpsql.tree import FloatArray, IntArray, Workload
from dpsql.variance.prefix import PrefixVariance

DENSE_LEAVES = 1024  # a dense eigendecomposition of this size takes under a second
DENSE_SCALE = 1 << 14  # rounding rows to 1/16,384 costs about 1e-4 of the variance


NAMED: Mapping[str, Callable[[AxisQuestion], Candidate]] = {}


@dataclass(frozen=True, eq=False)
class DenseStrategy:
    """A full matrix of integer rows of equal budgets, for Gaussian noise. See `AxisStrategy` for its methods.

    Args:
        matrix: H, shape (n, n), of full rank.
        total: bound of the column norms.
        grain: what stands for 1 in the rows.

    Raises:
        InternalError: if a column norm passes `total`.
    """

    matrix: IntArray
    total: int
    grain: int
    kind: ClassVar[str] = "dense"
    law: ClassVar[NoiseLaw] = GAUSSIAN
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
    def _scaled(self) -> FloatArray:
        """The rows at unit noise."""
        return np.asarray(self.matrix / self.total, np.float64)

    def measure_columns(self, x: IntArray) -> IntArray:
        """See `AxisStrategy`."""
        return self.matrix @ x

    def estimate_columns(self, y: FloatArray) -> FloatArray:
        """The normal equations."""
        rows = self._scaled
        return np.linalg.solve(rows.T @ rows, rows.T @ (y / self.total)).astype(np.float64)

    def variance(self) -> PrefixVariance:
        """The inverse of the Gram matrix."""
        return PrefixVariance(np.linalg.inv(self._scaled.T @ self._scaled).astype(np.float64))

    def entries(self) -> SparseRows:
        """All of them."""
        return square_rows(self.matrix)

    def gathers(self) -> bool:
        """Always."""
        return True

    def even_square(self) -> Fraction:
        """A hair above the exact value."""
        sums = self.matrix.sum(axis=1).astype(object)
        return Fraction(int((sums**2).sum()) + 1, (self.leaves * self.total) ** 2)

    def for_products(self, crumb: float) -> AxisStrategy:
        """Itself."""
        return self

    def frozen(self) -> dict[str, Any]:
        """The matrix."""
        return {"matrix": self.matrix.tolist(), "total": self.total, "grain": self.grain}

    @classmethod
    def thawed(cls, frozen: Frozen) -> Self:
        """See `AxisStrategy`."""
        return cls(np.array(frozen["matrix"], np.int64), int(frozen["total"]), int(frozen["grain"]))


def dense_strategy(
    n: int, workload: Workload | None = None, scale: int = DENSE_SCALE, whole: float = 0.0
) -> DenseStrategy:
    """The best rows for Gaussian noise, rounded to integers.

    Args:
        n: number of leaves, at most `DENSE_LEAVES`.
        workload: the ranges asked; None means all ranges.
        scale: rows are rounded to multiples of 1 / scale.
        whole: the part of the questions that asks for the total instead.

    Raises:
        InterfaceError: for an axis that is too long.

    **Privacy** `total` is the exact largest column norm of the integer rows, rounded up.
    """
    if n > DENSE_LEAVES:
        raise InterfaceError(f"{n} leaves are too many for dense rows", hint="use sine_strategy")
    rows = matrix_root(optimal_gram(workload_gram(n, workload, whole=whole)))
    for slack in (0.0, 1e-7, 1e-6, 1e-5, 1e-4):  # a hair less than 1 keeps the rounded columns within scale
        entry = np.rint(scale * (1 - slack) * rows).astype(np.int64)
        squares = int((entry * entry).sum(axis=0).max())
        if squares <= scale**2:
            break
    return DenseStrategy(entry, max(scale, _ceil_sqrt(squares)), scale)


def _ceil_sqrt(value: int) -> int:
    """The least integer whose square is not below `value`."""
    root = int(np.sqrt(value))
    while root * root < value:
        root += 1
    return root


def reaches(question: AxisQuestion) -> bool:
    """Whether the axis is short enough for a dense optimum, and the noise is right."""
    return question.allows(DenseStrategy.law) and question.leaves <= DENSE_LEAVES


def is_optimal(question: AxisQuestion) -> bool:
    """Whether nothing can err less than the dense optimum: all ranges are asked."""
    return reaches(question) and question.workload is None


def offers(question: AxisQuestion) -> Iterator[Offer | Refusal]:
    """The dense optimum, on axes where it can be computed."""
    name = "dense optimum"
    if not question.allows(DenseStrategy.law):
        yield Refusal(name, f"is for {DenseStrategy.law.name} noise")
    elif not FEWEST_LEAVES <= question.leaves <= DENSE_LEAVES:
        yield Refusal(name, f"takes axes of {FEWEST_LEAVES} to {DENSE_LEAVES} leaves")
    else:
        yield Offer(name, 0.0, lambda: _optimum(question))


def _optimum(question: AxisQuestion) -> Candidate:
    made = dense_strategy(question.leaves, question.workload, question.scale, question.whole)
    return candidate(made, "dense optimum", question)
