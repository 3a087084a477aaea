"""The two laws that noise is drawn from, each with everything that depends on which one it is.

| here | Laplace | Gaussian |
|---|---|---|
| `norm` | 1: column sums of \\|H\\| b | 2: column sums of (H b)^2 |
| `spend` | epsilon | mu^2 |
| `error_at_unit_budget` | 2: variance of a row of whole budget at epsilon 1 | 1: at sigma 1, which is mu^2 1 |
| budget of a row combination | floor(.. floor(cap b_1 / B_1) ..) in units of 1/t | b_1 b_2 .. |
| noise of a row of budget s | rate s / (t M) | sigma^2 = (M B_1 B_2 .. / s)^2 / mu^2 + 4 |

A strategy carries its law; whoever draws, predicts or audits asks the law and never which one it is.

**Privacy**: one unit changes the cells by at most M in L1, so a row combination changes by at most |H_r| M. Under
Laplace noise the loss is at most sum_r |H_r| s_r / t <= epsilon for every cell, under Gaussian noise
sum_r (H_r M)^2 / (sigma_r^2 - 4) <= mu^2: `Sensitive` strategies and `combine` hold both in integers.
**Source**: docs/method/views.md, "Products of axes"; docs/method/rows.md, "Integer budgets and path sums".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod, sqrt
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dpsql.budget import Currency, cap_units, combine, scaled_denominator
from dpsql.budget.curve import SLACK, gaussian_sigma2
from dpsql.errors import InternalError, PrivacyError
from dpsql.matrices.strategy import AxisBudget, NullCount, PlacedTree, SparseRows, largest_sum, tree_of
from dpsql.matrices.tree import level_moments
from dpsql.noise import LeafNoise, Noise
from dpsql.noise.discrete import laplace_variance
from dpsql.noise.knorm import TreeNoise
from dpsql.tree import Exact, IntArray, Noisy

SMALLEST_RATIO = 1e-9
"""At budgets of hundreds discrete noise is 0 for all practical purposes; a variance of 0 would divide by 0."""

ROUNDING = 1 / 12
"""About the variance of rounding what was drawn at a finer scale to integers."""

FINE = 1 << 16
"""A variance parameter beside which `SLACK` does not count."""

_CUT = 1 << 62
"""Where exact integers are cut, far above every sum whose estimates a release can hold (2^42 at 2^-20)."""


class NoisyValues(NamedTuple):
    """Noisy integers with the standard deviation of each."""

    value: Noisy
    sd: float


class NoisyRows(Protocol):
    """One statistic's noisy integers as drawn, whatever measured it; see `NoisyView` for its values."""

    @property
    def value(self) -> Noisy:
        """Stored value."""

    @property
    def budget(self) -> IntArray:
        """Integer budgets, the same shape."""

    @property
    def variance_at_unit_budget(self) -> float:
        """Variance of a row of whole budget."""


@dataclass(frozen=True)
class NoisyView:
    """One view's noisy integers as drawn.

    Args:
        value: shape (rows_1, .., rows_d).
        budget: integer budget of each row combination, the same shape.
        unit_variance: c_A, the noise variance of a row combination times the product of its squared axis
            budgets, in squared stored units.
        sensitivity: the most that one unit changes the sum of |cells|, in stored units.
    """

    value: Noisy
    budget: IntArray
    variance_at_unit_budget: float
    sensitivity: int


@dataclass(frozen=True)
class Laplace:
    """Discrete Laplace noise, and its joint draw for several numbers that the same rows move; spends epsilon.

    Numbers of one ledger line share one epsilon, so each of n numbers buys n times what it is charged.

    Arguments of its methods: `axes` are the budgets of a view's axes, `spend` is epsilon (mu^2 of `Gaussian`),
    `sensitivity` is M, the most that one privacy unit changes the sum of |cells| in stored units.

    Args:
        numbers: statistics of one ledger line; 1 for a statistic alone.
        widest: the largest sensitivity of a number of the draw, in stored units; they need a common denominator.
        apart: whether rows with NULL have a draw of their own beside the one of the other d = numbers - 1 numbers.
        counts: what the statistic counts, where a number of the draw tells rows with NULL from others.
    """

    numbers: int = 1
    widest: int = 0
    apart: bool = False
    counts: NullCount = NullCount.NEITHER
    norm: ClassVar[int] = 1
    seconds: ClassVar[float] = 1.2e-6  # about what one draw takes; measured on two cores

    @property
    def name(self) -> str:
        drawn = "Laplace" if self.drawn == 1 else f"Laplace, {self.drawn} numbers a draw"
        return f"{drawn}, rows with NULL by another" if self.apart else drawn

    @property
    def drawn(self) -> int:
        """d, the numbers of the larger draw."""
        return self.numbers - self.apart

    @property
    def halves(self) -> bool:
        """True if the statistic is half a sum of two drawn numbers, rows and an indicator."""
        return self.counts is NullCount.PRESENT and not self.apart

    @property
    def error_at_unit_budget(self) -> float:
        """(d + 1)(d + 2) / 3 at the d-fold epsilon that a charge buys: 2 for d = 1."""
        return self.widening * 2.0 / self.numbers**2

    @property
    def widening(self) -> float:
        """Variance of a statistic of a joint draw, or of a sum of two numbers, over that of a draw of its own."""
        number = (self.drawn + 1) * (self.drawn + 2) / 6
        if self.apart:
            return number + (self.counts is NullCount.ROWS)
        return number / 2 if self.halves else number

    def denominator(self, sensitivity: int) -> int:
        """t, common to all numbers of a draw: units per epsilon 1."""
        return scaled_denominator(self.numbers * max(self.widest, sensitivity))

    def budgets(self, axes: Sequence[AxisBudget], spend: Fraction, sensitivity: int) -> IntArray:
        """The integer budget of every row combination, shape (p_1, .., p_d).

        Raises:
            PrivacyError: spend or sensitivity leave no room for integer budgets.
        """
        budget = combine(self.column_cap(axes, spend, sensitivity), [axis[:2] for axis in axes])
        if not budget.all():
            raise PrivacyError(
                f"the view's epsilon is too small to be shared out over {len(axes)} axes of this size",
                hint="give the view a larger share, fewer axes, or `mechanism: identity`",
            )
        return budget

    def variance_at_unit_budget(self, axes: Sequence[AxisBudget], spend: Fraction, sensitivity: int) -> float:
        """Variance of a row of whole budget, known before anything is drawn. Errors as of `budgets`.

        Budgets are floored and the noise is discrete, so the product form holds up to two small factors: the
        floors' (averaged by precision) and the discreteness' (its largest, so never understated).
        """
        tree, tree_noise = tree_of(axes), self.tree_noise(axes, spend, [sensitivity])
        if tree is not None and tree_noise is not None:
            return self._tree_variance(tree, tree_noise)
        budget, cap = self.budgets(axes, spend, sensitivity), self.column_cap(axes, spend, sensitivity)
        denominator = self.denominator(sensitivity) * sensitivity
        ideal = np.float64(cap) * np.ones(budget.shape)
        for place, (relative, total, _) in enumerate(axes):
            shape = [-1 if axis == place else 1 for axis in range(len(axes))]
            ideal = ideal * (relative / total).reshape(shape)
        real = budget.astype(np.float64)
        floors = float(np.average((ideal / real) ** 2, weights=ideal**2))
        continuous = 2.0 * self.widening * (denominator / cap) ** 2 * floors
        if self.numbers > 1:
            return continuous  # above the discrete one by 2.5% at epsilon 1 and a sensitivity of 1, less at larger ones
        ratio = laplace_variance(budget, denominator) * real**2 / (2.0 * float(denominator) ** 2)
        return continuous * max(float(np.max(ratio)), SMALLEST_RATIO)

    def _tree_variance(self, tree: PlacedTree, noise: TreeNoise) -> float:
        """Exact moments at these rates over those that the strategy's model has: the largest of any level, so never
        understated there. Of one number they are those of integers; of two, twice those of the limit of small
        rates, since the law of integers is no longer twice that of one number (.96 of the truth at epsilon 1)."""
        (sensitivity,), arities = noise.bounds, noise.arities
        rates = tuple(rate / noise.denominator for rate in noise.rates)
        lattice = sensitivity if self.drawn == 1 else 0
        exact = level_moments(arities, rates, lattice).variance * float(sensitivity) ** 2
        unit = level_moments(arities, tree.levels.rates(tree.total)).variance / LAPLACE.error_at_unit_budget
        return self.widening * float(np.max(np.maximum(exact / unit, SMALLEST_RATIO)))

    def noise_refinement(self, axes: Sequence[AxisBudget], spend: Fraction, sensitivity: int) -> int:
        """Factor on exact integers before noise is drawn, so that being discrete costs next to nothing.

        1: discrete Laplace noise is no dearer than continuous noise.
        """
        return 1

    def column_cap(self, axes: Sequence[AxisBudget], spend: Fraction, sensitivity: int) -> int:
        """The most that weighted column sums of budgets may reach for the spend to hold: epsilon in units of 1/t."""
        return cap_units(spend, self.denominator(sensitivity))

    def largest_column(
        self, budget: IntArray, rows: Sequence[SparseRows | None], axes: Sequence[AxisBudget], cap: int
    ) -> int:
        """The largest weighted column sum of stored budgets; an audit holds it against `column_cap`.

        It is the largest sum over rows of |H_r| s_r of any cell, and of the levels above leaves drawn together.

        Args:
            budget: of every row combination, shape (p_1, .., p_d).
            rows: of each axis.
            axes: the axes' own budgets.
            cap: `column_cap`; of leaves drawn together it gives the other levels' rates.

        Raises:
            InternalError: rows that are not written down.
        """
        written = [entries for entries in rows if entries is not None]
        if len(written) < len(rows):
            raise InternalError("Laplace noise is drawn for rows that are written down")

        def spread(sums: npt.NDArray[Any]) -> npt.NDArray[Any]:
            for place, entries in enumerate(written):
                along = np.moveaxis(sums, place, 0)
                column = entries.spread(along.reshape(entries.number, -1))
                sums = np.moveaxis(column.reshape(entries.cells, *along.shape[1:]), 0, place)
            return sums

        return largest_sum(budget, spread) + sum(self.level_rates(axes, cap)[:-1])

    def level_rates(self, axes: Sequence[AxisBudget], cap: int) -> tuple[int, ...]:
        """c_l of a view whose leaves are drawn together along one axis, the root's first; empty for other views."""
        tree = tree_of(axes)
        return () if tree is None else tuple(cap * share // tree.total for share in tree.levels.shares)

    def draw(
        self, exact: Exact, axes: Sequence[AxisBudget], spend: Fraction, sensitivity: int, noise: Noise
    ) -> NoisyView:
        """Add noise to exact rows, shape (p_1, .., p_d). Errors as of `budgets`.

        **Privacy**: epsilon-DP, for neighbours that differ in one unit's rows.
        """
        if tree_of(axes) is not None:
            return self.draw_together([exact], axes, spend, [sensitivity], noise)[0]
        budget = self.budgets(axes, spend, sensitivity)
        denominator = self.denominator(sensitivity) * sensitivity
        noisy = self.draw_units(exact, budget, denominator, noise)
        return NoisyView(noisy, budget, self.variance_at_unit_budget(axes, spend, sensitivity), sensitivity)

    def draw_together(
        self,
        exacts: Sequence[Exact],
        axes: Sequence[AxisBudget],
        spend: Fraction,
        sensitivities: Sequence[int],
        noise: Noise,
    ) -> list[NoisyView]:
        """Add noise to several numbers of the same rows, by one draw for each row combination or tree of them.

        Args:
            exacts: exact rows of each number, all of shape (p_1, .., p_d).
            axes: the axes' budgets.
            spend: epsilon of all numbers together.
            sensitivities: M_j >= 1 of each number, in stored units.
            noise: where noise comes from.

        Raises:
            InternalError: as many numbers as the law was not made for.
            PrivacyError: as of `budgets`.

        **Privacy**: epsilon-DP for all numbers together, where each row of a unit moves the same row combinations by
        w (x_0, x_1, ..) with |x_j| <= M_j, and the w of a unit add up to at most 1.
        """
        expected = {self.drawn, 1} if self.apart else {self.numbers}
        if len(exacts) not in expected or len(sensitivities) != len(exacts):
            raise InternalError(f"a draw of {self.drawn} numbers was given {len(exacts)}")
        budget = self.budgets(axes, spend, max(sensitivities))
        denominator = self.denominator(max(sensitivities))
        tree, tree_noise = tree_of(axes), self.tree_noise(axes, spend, sensitivities)
        numbers = np.stack(exacts)
        if tree is None or tree_noise is None:
            noisy = noise.joint(budget.ravel(), denominator, sensitivities, numbers.reshape(len(exacts), -1))
        else:
            leaves_last = np.moveaxis(numbers, tree.axis + 1, -1)
            drawn = noise.trees(tree_noise, leaves_last.reshape(len(exacts), -1, leaves_last.shape[-1]))
            noisy = np.moveaxis(drawn.reshape(leaves_last.shape), -1, tree.axis + 1)
        return [
            NoisyView(
                Noisy(number.reshape(budget.shape)), budget, self.variance_at_unit_budget(axes, spend, m), m
            )
            for number, m in zip(noisy, sensitivities, strict=True)
        ]

    def tree_noise(
        self, axes: Sequence[AxisBudget], spend: Fraction, sensitivities: Sequence[int]
    ) -> TreeNoise | None:
        """Tree noise of a view's leaves, where they are drawn together along one axis."""
        tree, widest = tree_of(axes), max(sensitivities)
        if tree is None:
            return None
        rates = self.level_rates(axes, self.column_cap(axes, spend, widest))
        return TreeNoise(tree.levels.arities, rates, self.denominator(widest), tuple(sensitivities))

    def leaf_noise(
        self, axes: Sequence[AxisBudget], spend: Fraction, sensitivities: Sequence[int]
    ) -> LeafNoise:
        """Leaf noise of each tree of a view; the tree's axis comes first.

        Raises:
            InternalError: no axis is drawn together.
        """
        noise = self.tree_noise(axes, spend, sensitivities)
        if noise is None:
            raise InternalError("leaves of a tree need a tree")
        trees = prod(axis.budget.size for axis in axes[1:])
        return LeafNoise(np.full(trees, sum(noise.rates), np.int64), noise.denominator, noise.bounds)

    def draw_units(self, exact: Exact, units: IntArray, denominator: int, noise: Noise) -> Noisy:
        """Add noise to integers, each at a rate of its own.

        Args:
            exact: any shape.
            units: s_i, at least 1, of the same shape; number i gets noise with P(x) proportional to
                exp(-|x| s_i / denominator).
            denominator: t M, common to all.
            noise: where noise comes from.

        **Privacy**: for neighbours whose integers differ by d_i, epsilon = sum_i |d_i| s_i / denominator.
        """
        noisy = noise.laplace(units.ravel(), denominator, exact.ravel())
        return Noisy(noisy.reshape(units.shape))

    def draw_bounded(self, exact: Exact, bound: int, spend: Fraction, noise: Noise) -> NoisyValues:
        """Add noise to integers of which one unit changes a single one, by at most `bound`.

        **Privacy**: epsilon-DP.
        """
        t = scaled_denominator(bound)
        units = np.full(np.shape(exact), cap_units(spend, t), np.int64)
        sd = float(laplace_variance(units[:1], t * bound)[0]) ** 0.5
        return NoisyValues(self.draw_units(exact, units, t * bound, noise), sd)

    def bounded_noise(self, bound: int, spend: Fraction) -> float:
        """The standard deviation of `draw_bounded`, here that of continuous noise, a little more."""
        return sqrt(2) * bound / float(spend)

    def affordable(self, amount: Fraction, currency: Currency) -> Fraction:
        """The largest spend within an amount of the currency whose law it is (`law_for`).

        It is an epsilon of the whole draw, which each of its numbers pays a part of.

        Raises:
            PrivacyError: the currency pays for another law.
        """
        if currency.delta:
            raise PrivacyError("Laplace noise is for delta 0", hint="remove privacy.delta, or write auto")
        return amount * self.numbers


@dataclass(frozen=True)
class Gaussian:
    """Discrete Gaussian noise; spends mu^2. Methods as of `Laplace`."""

    name: ClassVar[str] = "Gaussian"
    norm: ClassVar[int] = 2
    error_at_unit_budget: ClassVar[float] = 1.0
    seconds: ClassVar[float] = 4.5e-6

    def budgets(self, axes: Sequence[AxisBudget], spend: Fraction, sensitivity: int) -> IntArray:
        """Products of the axes' budgets; whatever is spent."""
        budget = np.ones([len(axis.budget) for axis in axes], dtype=np.int64)
        for place, (relative, _, _) in enumerate(axes):
            shape = [-1 if axis == place else 1 for axis in range(len(axes))]
            budget = budget * relative.reshape(shape)
        return budget

    def variance_at_unit_budget(self, axes: Sequence[AxisBudget], spend: Fraction, sensitivity: int) -> float:
        """M^2 / mu^2, and what discreteness costs the row of largest budget."""
        total_squared = prod(axis.total for axis in axes) ** 2
        largest = prod(int(axis.budget.max(initial=0)) for axis in axes) ** 2
        return float(Fraction(sensitivity**2) / spend + Fraction(SLACK * largest, total_squared))

    def noise_refinement(self, axes: Sequence[AxisBudget], spend: Fraction, sensitivity: int) -> int:
        """The least power of two at which every sigma^2 is at least `FINE`: `SLACK` is then a part of it in 16,384."""
        largest = Fraction(1) * prod(Fraction(int(axis.budget.max(initial=1)), axis.total) for axis in axes)
        factor = 1
        while (factor * sensitivity) ** 2 < FINE * spend * largest**2:
            factor *= 2
        return factor

    def column_cap(self, axes: Sequence[AxisBudget], spend: Fraction, sensitivity: int) -> int:
        """The squared product of the totals: noise is scaled to them."""
        return prod(axis.total for axis in axes) ** 2

    def largest_column(
        self, budget: IntArray, rows: Sequence[SparseRows | None], axes: Sequence[AxisBudget], cap: int
    ) -> int:
        """Budgets are products over axes, and so are sums of squares: the strategies bound each."""
        return prod(axis.total**2 for axis in axes)

    def draw(
        self, exact: Exact, axes: Sequence[AxisBudget], spend: Fraction, sensitivity: int, noise: Noise
    ) -> NoisyView:
        """See `Laplace.draw`. **Privacy**: mu^2; the weighted L2 distance of neighbours is at most M B."""
        distance = prod(axis.total for axis in axes) * sensitivity
        return self.draw_at(exact, axes, Fraction(distance**2) / spend, sensitivity, noise)

    def draw_at(
        self, exact: Exact, axes: Sequence[AxisBudget], variance: Fraction, sensitivity: int, noise: Noise
    ) -> NoisyView:
        """Add noise of a given strength.

        Args:
            exact: exact rows, shape (p_1, .., p_d).
            axes: the axes' budgets.
            variance: V of a row of budget product 1; a row of product b gets sigma^2 = V / b^2 + 4, rounded up.
            sensitivity: the most that one privacy unit changes the sum of |cells|, in stored units.
            noise: where noise comes from.

        **Privacy**: for neighbours whose rows differ by d_r, mu^2 = sum_r (b_r d_r)^2 / V.
        """
        budget = self.budgets(axes, variance, sensitivity)
        noisy, flat = np.zeros(budget.size, dtype=np.int64), exact.ravel()
        order = np.argsort(budget, axis=None, kind="stable")
        shares, first = np.unique(budget.ravel()[order], return_index=True)
        for share, where in zip(shares.tolist(), np.split(order, first[1:]), strict=True):
            noisy[where] = self.draw_spread(Exact(flat[where]), self.row_variance(share, variance), noise)
        total_squared = prod(axis.total for axis in axes) ** 2
        unit = float((variance + SLACK * int(budget.max(initial=0)) ** 2) / total_squared)
        return NoisyView(Noisy(noisy.reshape(budget.shape)), budget, unit, sensitivity)

    def row_variance(self, budget: int, variance: Fraction) -> Fraction:
        """sigma^2 of a row of some budget, rounded up; `variance` is V of a row of budget 1."""
        return gaussian_sigma2(budget**2 / variance, 1)

    def draw_spread(self, exact: Exact, sigma2: Fraction, noise: Noise) -> Noisy:
        """Integers of shape (m,) with noise of one variance, `SLACK` included (`gaussian_sigma2`).

        **Privacy**: for neighbours whose integers differ by d_i, mu^2 = sum_i d_i^2 / (sigma2 - 4).
        """
        return Noisy(noise.gaussian(sigma2, exact.size, exact))

    def draw_bounded(self, exact: Exact, bound: int, spend: Fraction, noise: Noise) -> NoisyValues:
        """See `Laplace.draw_bounded`. **Privacy**: mu^2; rounding what is drawn refined is post-processing."""
        factor = self.noise_refinement((), spend, bound)
        sigma2 = gaussian_sigma2(spend, (factor * bound) ** 2)
        noisy = self.draw_spread(refined(exact, factor), sigma2, noise)
        return NoisyValues(Noisy((2 * noisy + factor) // (2 * factor)), self.bounded_noise(bound, spend))

    def bounded_noise(self, bound: int, spend: Fraction) -> float:
        factor = self.noise_refinement((), spend, bound)
        sigma2 = gaussian_sigma2(spend, (factor * bound) ** 2)
        return sqrt(float(sigma2) / factor**2 + (ROUNDING if factor > 1 else 0.0))

    def affordable(self, amount: Fraction, currency: Currency) -> Fraction:
        """A mu^2."""
        if not currency.delta:
            raise PrivacyError("Gaussian noise needs a delta above 0", hint="write privacy.delta, or auto")
        return amount


NoiseDistribution: TypeAlias = Laplace | Gaussian
LAPLACE, GAUSSIAN = Laplace(), Gaussian()


def as_laplace(law: NoiseDistribution) -> Laplace | None:
    """The law where it is Laplace noise, which alone is drawn for several numbers at once."""
    return law if isinstance(law, Laplace) else None


def refined(exact: Exact, factor: int) -> Exact:
    """Exact integers times a factor, cut where 64 bits end.

    **Privacy**: cutting moves two integers no further apart, so a difference is multiplied by at most the factor.
    """
    room = _CUT // factor
    return Exact(np.clip(exact, -room, room) * factor)


def law_for(currency: Currency) -> NoiseDistribution:
    """The law that a currency pays for: epsilon Laplace noise, mu^2 Gaussian noise.

    A Laplace number would cost (pi / 2) epsilon^2 of mu^2 and have pi times the variance of the Gaussian one.
    """
    return GAUSSIAN if currency.delta else LAPLACE


LAWS: dict[int, NoiseDistribution] = {law.norm: law for law in (LAPLACE, GAUSSIAN)}
"""By the norm that a file stores."""


def again(exact: Exact, draw: IntArray, sign: int = 1) -> Noisy:
    """Integers with noise that was drawn before and kept, or less it (`sign` -1).

    **Privacy**: that of the strategy whose numbers share the draw; `TimeStrategy` prices them together.
    """
    return Noisy(exact + sign * draw)


def with_stored(
    leaf: LeafNoise, exacts: Sequence[Exact], drawn: Sequence[IntArray], noise: Noise
) -> list[Noisy]:
    """Integers with leaves of trees that were drawn before, one of each tree.

    Args:
        leaf: what they were drawn with.
        exacts: of each number, one for each tree.
        drawn: the leaves, alike.
        noise: where exact integers and noise meet.

    **Privacy**: that of the trees, for all leaves of a unit's rows together.
    """
    return [Noisy(number) for number in noise.stored(leaf, np.stack(exacts), np.stack(drawn))]


def signed_sum(drawn: Noisy, sign: int, other: Noisy | int = 0) -> Noisy:
    """The numbers or their negatives, and others that were drawn."""
    return Noisy(sign * drawn + other)


def published(value: IntArray) -> Noisy:
    """Integers read back from a release or a segment: they were stored noisy."""
    return Noisy(np.asarray(value, np.int64))


def joined(*drawn: Noisy) -> Noisy:
    """Several draws in one line."""
    return Noisy(np.concatenate([noisy.ravel() for noisy in drawn]))


def picked(drawn: Noisy, index: slice | IntArray) -> Noisy:
    """Some of the numbers of one line; of the shape of `index` where that is an array of positions."""
    return Noisy(drawn.ravel()[index])


def shaped(drawn: Noisy, shape: Sequence[int]) -> Noisy:
    """The same numbers, in row-major order."""
    return Noisy(drawn.reshape(shape))


def nothing_drawn(axes: int) -> Noisy:
    """Of a statistic that keeps no drawn integers: reports of people, or a release that is only planned."""
    return Noisy(np.zeros((0,) * axes, np.int64))
