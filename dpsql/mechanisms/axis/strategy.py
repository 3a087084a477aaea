"""A strategy: which integer rows of one axis are measured, and with how much of the budget each.

A strategy is made from public facts only. Its rows are integers and its budgets are integers, so the
measurement H x is exact and the sensitivity is a sum of integers that each strategy checks when it is made.

    Laplace      max over leaves l of  sum_r |H_rl| b_r       <= total
    Gaussian     max over leaves l of  sum_r  H_rl^2 b_r^2    <= total^2

Row r carries noise of scale total/b_r per unit of 1/epsilon, or of standard deviation total/b_r per unit of sigma.

**Source** docs/method/axis.md, "Rows and budgets".

A mechanism is asked an `AxisProblem` and answers by offers and refusals (`mechanisms.offers`). Every candidate's
error is computed, from public facts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from dpsql.errors import InterfaceError, InternalError
from dpsql.matrices import AxisVariance, mean_variance
from dpsql.mechanisms import offers
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution, NoisyRows, NoisyView
from dpsql.mechanisms.integer_rows import AxisBudget, LevelShares, SparseRows
from dpsql.noise import Noise
from dpsql.tree import Exact, FloatArray, IntArray, Workload

Frozen = Mapping[str, Any]
"""Plain values of JSON that hold a whole strategy."""


class AxisStrategy(Protocol):
    """Integer rows over the leaves of one axis, with relative integer budgets.

    **Privacy** Adding or removing one record of unit value moves the rows by at most `total` in the law's norm, after
    weighting by the budgets; every strategy refuses to be made otherwise.
    """

    kind: ClassVar[str]
    """What a stored strategy is called."""

    @property
    def law(self) -> NoiseDistribution:
        """The noise that its budgets are for."""

    @property
    def leaves(self) -> int:
        """Number of leaves, n."""

    @property
    def budget(self) -> IntArray:
        """Relative budget of each row, at least 1, shape (rows,)."""

    @property
    def total(self) -> int:
        """Bound of the weighted column sums, see the module's table."""

    @property
    def entry_scale(self) -> int:
        """Scale of the integer rows: products of rows of several axes have to fit in 64 bits."""

    @property
    def refinements(self) -> int:
        """Rounds in which an estimate is refined on the integers that it leaves unexplained."""

    def measure_columns(self, x: IntArray) -> IntArray:
        """H x of each column, in exact integers modulo 2^64, (n, m) -> (rows, m).

        **Privacy** Raw: never leaves publishing without noise of at least the strategy's scale.
        """

    def estimate_columns(self, y: FloatArray) -> FloatArray:
        """Best linear unbiased leaf estimates of each column, (rows, m) -> (n, m)."""

    def variance(self) -> AxisVariance:
        """Variance model of the estimates, for noise of variance (total/b_r)^2 on row r.

        Laplace noise at epsilon multiplies by 2/epsilon^2, Gaussian noise by sigma^2.
        """

    def entries(self) -> SparseRows | None:
        """The rows' integers, or None where there are too many to be written down."""

    def for_products(self, crumb: float) -> AxisStrategy:
        """The strategy for views with other axes: rows with less of the budget than `crumb` are left out."""

    def frozen(self) -> dict[str, Any]:
        """The integers that floating point chose, for audits and later appends; `thawed` takes them."""

    @classmethod
    def thawed(cls, frozen: Frozen) -> Self:
        """The strategy that `frozen` was taken of."""


class EvenRows:
    """Rows of even budgets, whose estimate is exact at once: in views with other axes none is left out."""

    refinements: ClassVar[int] = 1

    def for_products(self, crumb: float) -> Self:
        """Itself."""
        return self


@runtime_checkable
class LevelledStrategy(Protocol):
    """Strategy whose rows are leaves drawn together."""

    @property
    def levels(self) -> LevelShares:
        """Shape of the tree, and the levels' shares of `total`; the leaves' is their budget."""


def row_count(strategy: AxisStrategy) -> int:
    """Number of measured rows, p."""
    return len(strategy.budget)


def gathers(strategy: AxisStrategy) -> bool:
    """True if some row adds leaves together."""
    entries = strategy.entries()
    return entries is None or bool(np.any(entries.stop - entries.start > 1))


def axis_budgets(strategies: Sequence[AxisStrategy]) -> list[AxisBudget]:
    """Facts about the axes of a view that a noise distribution needs."""
    return [
        AxisBudget(s.budget, s.total, s.levels if isinstance(s, LevelledStrategy) else None)
        for s in strategies
    ]


def check_sensitivity(strategy: AxisStrategy, column_bound: int) -> None:
    """Refuse a strategy whose sensitivity is larger than it says.

    Args:
        strategy: as it would be.
        column_bound: its largest weighted column sum, an exact integer or a proven bound.

    Raises:
        InternalError: a budget below 1, or a sum above `total` to the power of the law's norm.
    """
    if np.any(strategy.budget < 1) or column_bound > strategy.total**strategy.law.norm:
        raise InternalError(
            f"a strategy of kind {strategy.kind} on {strategy.leaves} leaves is more sensitive than declared"
        )


def measure(strategy: AxisStrategy, x: npt.NDArray[np.int64], axis: int = 0) -> IntArray:
    """H x along one axis of an array, in exact integers.

    Args:
        strategy: the rows.
        x: integers, with strategy.leaves cells along `axis`.
        axis: the axis to replace.

    Returns:
        int64, with the strategy's rows along `axis`, modulo 2^64. No noise is added here.

    **Privacy** Raw: never leaves publishing without noise of at least the strategy's scale. Sums and the noise
    added to them wrap around at 2^64, which is a function of the noisy integer; an error would tell of the data.
    """
    moved = np.moveaxis(np.asarray(x), axis, 0)
    flat = moved.reshape(strategy.leaves, -1).astype(np.int64, casting="safe")
    measured = strategy.measure_columns(flat)
    return np.moveaxis(measured.reshape(len(measured), *moved.shape[1:]), 0, axis)


def estimate(strategy: AxisStrategy, y: npt.NDArray[np.generic], axis: int = 0) -> FloatArray:
    """Best linear unbiased leaf estimates along one axis, for noise of variance (total/b_r)^2 on row r.

    Args:
        strategy: the rows that were measured.
        y: noisy measurements, with the strategy's rows along `axis`.
        axis: the axis to replace.

    Returns:
        float64, with strategy.leaves cells along `axis`.
    """
    moved = np.moveaxis(np.asarray(y, np.float64), axis, 0)
    leaves = strategy.estimate_columns(moved.reshape(len(moved), -1))
    return np.moveaxis(leaves.reshape(strategy.leaves, *moved.shape[1:]), 0, axis)


def measure_view(histogram: IntArray, strategies: Sequence[AxisStrategy]) -> IntArray:
    """Exact rows of a whole view, leaf combinations (n_1, .., n_d) -> (rows_1, .., rows_d)."""
    for axis, strategy in enumerate(strategies):
        histogram = measure(strategy, histogram, axis)
    return histogram


def draw_view(
    histogram: Exact, strategies: Sequence[AxisStrategy], spend: Fraction, sensitivity: int, noise: Noise
) -> NoisyView:
    """Measure a view by the Kronecker product of its axes' strategies, once.

    Row (r_1, .., r_d) is the product of integer rows and gets its own integer budget. The histogram, the products and
    the noise are int64; the first float appears after the noisy integers exist.

    Args:
        histogram: exact integer leaf combinations, shape (n_1, .., n_d).
        strategies: one for each axis, of one law.
        spend: what the view may spend, in the law's own currency.
        sensitivity: the most that one privacy unit changes the sum of |cells|, in stored units.
        noise: where noise comes from.

    Raises:
        PrivacyError: spend or sensitivity leave no room for integer budgets.

    **Privacy**: the spend, for neighbours that differ in one unit's rows.
    """
    exact = Exact(measure_view(histogram, strategies))
    return law_of(strategies).draw(exact, axis_budgets(strategies), spend, sensitivity, noise)


def law_of(strategies: Sequence[AxisStrategy]) -> NoiseDistribution:
    """The one law of a view's strategies.

    Raises:
        InternalError: for strategies of two laws, or none.
    """
    laws = {strategy.law.norm: strategy.law for strategy in strategies}
    if len(laws) != 1:
        raise InternalError("the strategies of a view need one law of noise")
    return next(iter(laws.values()))


def leaf_estimates(view: NoisyRows, strategies: Sequence[AxisStrategy]) -> FloatArray:
    """Best linear unbiased estimates of the leaf combinations.

    The estimate is refined on what is left of the integers after the rounded first estimate, so that float rounding
    stays relative to the noise and a noiseless view comes back exactly.

    Args:
        view: noisy integers.
        strategies: the axes' strategies.

    Returns:
        Estimates, shape (n_1, .., n_d).
    """
    first = np.zeros([strategy.leaves for strategy in strategies], np.int64)
    residual: IntArray = view.value
    for _ in range(max((strategy.refinements for strategy in strategies), default=1)):
        first = first + np.rint(_estimate_view(residual, strategies)).astype(np.int64)
        residual = view.value - measure_view(first, strategies)
    return first + _estimate_view(residual, strategies)


def _estimate_view(rows: IntArray, strategies: Sequence[AxisStrategy]) -> FloatArray:
    leaves = rows.astype(np.float64)
    for axis, strategy in enumerate(strategies):
        leaves = estimate(strategy, leaves, axis)
    return leaves


Candidate = offers.Candidate[AxisStrategy]
AxisChoice = offers.Choice[AxisStrategy]
Proposal: TypeAlias = offers.Offer[AxisStrategy] | offers.Refusal

FEWEST_LEAVES = 4
"""Below it nothing beats measuring each leaf, and no mechanism is asked."""


class JointCells(NamedTuple):
    """The cells of a view whose leaves may be drawn together along one axis.

    Args:
        numbers: how many numbers a row of the view moves; all are of one draw.
        trees: cells of the view's other axes, each with a tree of its own.
        room: about the view's epsilon in units of 1/t: how fine the levels' rates are.
    """

    numbers: int
    trees: int
    room: int


@dataclass(frozen=True, eq=False)
class AxisProblem:
    """Requirements on the strategy of one axis.

    Args:
        leaves: n, at least 1.
        law: the noise.
        workload: the ranges asked; None means all ranges, equally often.
        whole: the part of the questions that asks for the total instead, in [0, 1): what an axis is asked by queries
            that use only the other axes of its view.
        scale: full rows of integers are rounded to multiples of 1 / scale.
        joint: what is drawn, where all leaves may be drawn together; None where rows have noise of their own.

    Raises:
        InterfaceError: for an axis without leaves, or ranges that lie outside of it.
    """

    leaves: int
    law: NoiseDistribution
    workload: Workload | None
    whole: float
    scale: int
    joint: JointCells | None = None

    def __post_init__(self) -> None:
        """Refuse what no axis is asked."""
        if self.leaves < 1:
            raise InterfaceError("an axis needs at least one leaf")
        if not 0 <= self.whole < 1:
            raise InterfaceError("the total is asked a part of the time, in [0, 1)")
        if self.workload is None:
            return
        lo, hi, weight = (np.asarray(column) for column in self.workload)
        inside = bool(np.all((lo >= 0) & (lo < hi) & (hi <= self.leaves)))
        if not len(lo) or not inside or np.any(weight < 0) or not np.sum(weight) > 0:
            raise InterfaceError(f"a workload needs ranges inside [0, {self.leaves}) with positive weight")

    @property
    def reach(self) -> int:
        return (
            self.leaves
            if self.workload is None
            else int(np.max(self.workload.hi - np.asarray(self.workload.lo)))
        )

    def error(self, strategy: AxisStrategy) -> float:
        """Mean squared error of a strategy at epsilon 1 (Laplace) or sigma 1 (Gaussian)."""
        return expected_error(strategy, self.workload, self.whole)


class Word(NamedTuple):
    """A mechanism as the catalog names it, with what it says of a tree.

    Args:
        name: the catalog's word.
        shape: how a tree is split; empty where it is left open.
        arity: children of a node; 0 where it is left open.
    """

    name: str
    shape: str = ""
    arity: int = 0


class NamedAxisMechanism(NamedTuple):
    """Mechanism named by a word of the catalog.

    Args:
        choose: what it gives for a question.
        laws: the noise that it has rows for.
    """

    choose: Callable[[AxisProblem, Word], AxisChoice]
    laws: tuple[NoiseDistribution, ...] = (LAPLACE, GAUSSIAN)


class Mechanism(Protocol):
    """A module that has strategies of one axis."""

    NAMED: Mapping[str, NamedAxisMechanism]
    """The catalog's words for it."""

    def offers(self, question: AxisProblem) -> Iterator[Proposal]:
        """Offers and refusals for a question."""


def expected_error(strategy: AxisStrategy, workload: Workload | None = None, whole: float = 0.0) -> float:
    """Mean squared error over the workload at epsilon 1 (Laplace) or sigma 1 (Gaussian).

    Args:
        strategy: what is measured.
        workload: the ranges asked; None means all ranges, equally often.
        whole: the part of the questions that asks for the total instead, in [0, 1].
    """
    return strategy.law.error_at_unit_budget * mean_variance(strategy.variance(), workload, whole)


def candidate(strategy: AxisStrategy, name: str, question: AxisProblem) -> Candidate:
    """A strategy with its error."""
    return Candidate(strategy, question.error(strategy), name)


def alone(strategy: AxisStrategy, name: str, question: AxisProblem) -> AxisChoice:
    """A choice without rivals."""
    return AxisChoice(strategy, name, question.error(strategy))


def best(made: Iterable[Candidate]) -> Candidate:
    """The candidate of least error."""
    return min(made, key=lambda candidate: candidate.error)
