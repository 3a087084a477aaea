"""Every leaf by itself and rows over intervals: hats, half-hats, a row of ones.

Least squares over an identity and interval rows takes time linear in the leaves (`variance.interval_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from dpsql.mechanisms.axis.rows import SparseRows
from dpsql.mechanisms.axis.strategy import AxisStrategy, Frozen, check_sensitivity
from dpsql.mechanisms.law import LAPLACE, NoiseLaw
from dpsql.tree import FloatArray, IntArray
from dpsql.variance.interval_rows import IntervalRows, blue_rows, interval_rows
from dpsql.variance.intervals import IntervalVariance


@dataclass(frozen=True, eq=False)
class IntervalStrategy:
    """An identity and interval rows of equal budgets, for Laplace noise. See `AxisStrategy` for its methods.

    Args:
        rows: the leaves' own rows first, in order, then the others.
        total: bound of the column sums.

    Raises:
        InternalError: if a column adds up to more than `total`.
    """

    rows: SparseRows
    total: int
    kind: ClassVar[str] = "intervals"
    law: ClassVar[NoiseLaw] = LAPLACE
    refinements: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Refuse rows that are more sensitive than they say."""
        check_sensitivity(self, self.rows.column_bound(self.budget, self.law.norm))

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return self.rows.cells

    @property
    def budget(self) -> IntArray:
        """Ones; what a row weighs is in its entries."""
        return np.ones(self.rows.number, np.int64)

    @property
    def grain(self) -> int:
        """1: hats are checked like all integers when they are measured."""
        return 1

    @cached_property
    def _layout(self) -> tuple[IntervalRows, IntArray]:
        """The leaves' rows as the identity and the others as interval rows, all at unit noise; their new order."""
        n, rows = self.leaves, self.rows
        weight = rows.entry / self.total
        return interval_rows(weight[:n], rows.start[n:], rows.stop[n:], weight[n:])

    def measure_columns(self, x: IntArray) -> IntArray:
        """See `AxisStrategy`."""
        return self.rows.measure(x)

    def estimate_columns(self, y: FloatArray) -> FloatArray:
        """Least squares by elimination from left to right."""
        rows, order = self._layout
        scaled = y / self.total
        return blue_rows(rows, scaled[: self.leaves], scaled[self.leaves :][order])

    def variance(self) -> IntervalVariance:
        """See `AxisStrategy`."""
        return IntervalVariance(self._layout[0])

    def entries(self) -> SparseRows:
        """The rows."""
        return self.rows

    def gathers(self) -> bool:
        """Always."""
        return True

    def even_square(self) -> Fraction:
        """A hair above the exact value."""
        sums = self.rows.sums().astype(object)
        return Fraction(int((sums**2).sum()) + 1, (self.leaves * self.total) ** 2)

    def for_products(self, crumb: float) -> AxisStrategy:
        """Itself: every row has the same budget."""
        return self

    def frozen(self) -> dict[str, Any]:
        """The rows."""
        rows = self.rows
        arrays = {"start": rows.start, "stop": rows.stop, "offset": rows.offset, "entry": rows.entry}
        return {
            "leaves": rows.cells,
            "total": self.total,
            **{name: each.tolist() for name, each in arrays.items()},
        }

    @classmethod
    def thawed(cls, frozen: Frozen) -> Self:
        """See `AxisStrategy`."""
        arrays = (np.array(frozen[name], np.int64) for name in ("start", "stop", "offset", "entry"))
        return cls(SparseRows(int(frozen["leaves"]), *arrays), int(frozen["total"]))
