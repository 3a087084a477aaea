"""Standard errors and intervals of values over noisy cells.

Every value is a composite of cells. A block's value follows one cell, its own row's; a sum of groups, a difference or a
share in an outer statement follows the cells of many groups, of one block or of several.

A quotient has Fieller's interval where its denominator is near 0. With g = z^2 Var(b) / b^2, and rho the correlation of
the quotient f with its denominator b by the delta method, that interval is

    f - g / (1 - g) b Cov(f, b) / Var(b)  +-  z sd(f) sqrt(1 - g (1 - rho^2)) / (1 - g)

which needs f's derivatives alone. So any f with a denominator near 0 gets it, by the denominator that is nearest to 0;
there is none where g >= 1.

**Privacy**: published values alone.
**Source**: docs/method/views.md, "Variance of a view".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import inf

import numpy as np

from dpsql.executor.recombine import TermEstimates
from dpsql.intervals import reads
from dpsql.intervals.errorfunctions import (
    DEFAULT_LEVEL,
    FAR,
    BothEnds,
    Curved,
    ErrorComponents,
    ValueRange,
    fieller,
    image,
    interval,
    laplace_kurtosis,
    quantile,
    quotient,
)
from dpsql.intervals.linear import LinearNumbers, Reads, covariance, joined_lines, largest_cells
from dpsql.intervals.possible import quotient_range, sum_range
from dpsql.intervals.scale import beyond_noise, share_beyond_bound, values_beyond
from dpsql.matrices.model import Covariance
from dpsql.planner.axis_query import FloatArray, IntArray
from dpsql.planner.block import Block, Linear, Noisy, Ratio

Component = Callable[[Covariance], FloatArray | float]
"""One component of a covariance."""
NULL_LEVEL = 0.95
"""An AVG is NULL when its count's interval at this level holds 0."""

UNLISTED = 1e-6
"""Of the rows that cut bins may add: an average of fewer is one of texts of which perhaps none is meant, and NULL."""


@dataclass(frozen=True, eq=False)
class Sides:
    """Numerators and denominators: their values, and what they follow.

    Args:
        above, below: numerators and denominators, shape (rows,).
        above_numbers, below_numbers: what each follows.
        average: what bounds averages of one measure where bins are cut.
    """

    above: FloatArray
    above_numbers: LinearNumbers
    below: FloatArray
    below_numbers: LinearNumbers
    average: Averaged | None = None

    @cached_property
    def covariances(self) -> tuple[Covariance, Covariance, Covariance]:
        """Variances of the numerators, covariances with the denominators, variances of the denominators."""
        above, below = self.above_numbers, self.below_numbers
        return above.variances, covariance(above.reads, below.reads, above.count), below.variances

    def noise(self, of: Component) -> tuple[FloatArray, FloatArray, FloatArray]:
        """One component of the covariances; variances are not below 0."""
        above, between, below = (of(values) + np.zeros(len(self.above)) for values in self.covariances)
        return np.maximum(above, 0.0), between, np.maximum(below, 0.0)

    def delta(self, of: Component, ratio: FloatArray) -> FloatArray:
        """One component of the quotients' variance by the delta method, times the squared denominators."""
        above, between, below = self.noise(of)
        return above - 2 * ratio * between + ratio**2 * below

    def cut_ends(self, numbers: Composite) -> CutEnds:
        """The least and the largest quotients that rows of cut bins may make; none where no bin is cut."""
        if not (self.above_numbers.cut or self.below_numbers.cut):
            return ()
        (a_below, a_above), (b_below, b_above) = (
            self.above_numbers.interpolation_bound,
            self.below_numbers.interpolation_bound,
        )
        moved = (a_below != 0) | (a_above != 0) | (b_below != 0) | (b_above != 0)
        if self.average is not None:
            pairs = reads.average_ends(*self.average)
        else:
            pairs = reads.quotient_ends(self.above, self.below, (a_below, a_above), (b_below, b_above))
        corners = list(product(self.above_numbers.cut_corners, self.below_numbers.cut_corners))
        ends = []
        for above, below in pairs:
            above, below = np.where(moved, above, self.above), np.where(moved, below, self.below)
            middle = np.where(moved, quotient(above, below), numbers.middle)
            sides = [Sides(above, one, below, other) for one, other in corners]
            ends.append(
                [replace(numbers, middle=middle, quotient=q, by_sides=True, intervals={}) for q in sides]
            )
        return tuple(zip(*ends, strict=True))

    def reads(self) -> Reads:
        """By how much the quotients move with what is read."""
        slope = quotient(np.ones(len(self.below)), self.below)
        slopes = slope, -quotient(self.above, self.below) * slope
        sides = zip((self.above_numbers, self.below_numbers), slopes, strict=True)
        return joined_lines(
            (source, weights.times(factor))
            for side, factor in sides
            for source, weights in side.reads.items()
        )


Averaged = tuple[reads.Parts, reads.CutMass, reads.CutMass, tuple[float, float], float]
"""Averages of one measure, as `reads.average_ends` takes them."""


def averaged(form: Noisy, answered: TermEstimates) -> Averaged | None:
    """The sums and rows of averages of one measure; None for other forms.

    Args:
        form: the form.
        answered: the answers that hold its terms.
    """
    view = answered.plan.view
    average = reads.average_of(form, view)
    if average is None:
        return None
    (term, factor), rows = average, form.sides[1].weights[0][0]
    bounds = reads.value_bounds(view.statistics[term.measure], answered.errors.release)
    if not bounds[0] < bounds[1] or not factor:
        return None
    values = answered.totals[term], answered.totals[rows]
    return values, answered.cuts[term], answered.cuts[rows], bounds, factor


CutEnds = tuple[tuple["Composite", "Composite"], ...]
"""Least and largest numbers that cut bins may make, with the noise of each corner (`LinearNumbers.cut_corners`)."""
Denominators = tuple[IntArray, FloatArray, LinearNumbers]
"""Denominators: the number each belongs to, its value, and what each follows."""


@dataclass(frozen=True, eq=False)
class Composite:
    """Numbers that follow noisy cells; `Estimated` says what each method gives.

    Args:
        middle: the numbers, NaN where one is NULL, shape (rows,).
        slope: by how much they move with terms.
        linear: whether they do so however far the terms are off.
        quotient: both sides, where they are quotients of linear numbers.
        by_sides: whether the variance of quotients is worked out from their sides.
        near: denominators of other quotients.
        average: the least and the largest value that averages may have.
        curve: what they are functions of, for their interval.
        dry: whether the numbers are zeros of a dry release: their intervals are as wide as those of noisy numbers,
            whose low ends do not meet what is possible.
        intervals: those that were worked out last, by level: a standard error and both ends ask for the same.
    """

    middle: FloatArray
    slope: LinearNumbers
    linear: bool
    quotient: Sides | None = None
    by_sides: bool = False
    near: Denominators | None = None
    average: tuple[float, float] | None = None
    curve: Curved | None = None
    dry: bool = False
    intervals: dict[float, BothEnds] = field(default_factory=dict)

    @staticmethod
    def of_form(form: Noisy, answered: TermEstimates) -> Composite:
        """A block's value: each number follows its own row.

        Args:
            form: linear or a ratio.
            answered: the answers that hold its terms.
        """
        numbers = [LinearNumbers.of_form(side, answered) for side in form.sides]
        values = [answered.value(side) for side in form.sides]
        if len(numbers) == 1:
            return Composite(values[0], numbers[0], True)
        (above, below), (above_numbers, below_numbers) = values, numbers
        ratio, (above_form, below_form) = quotient(above, below), form.sides
        # NaN over a denominator of 0: two infinite slopes by one term would not add up
        slopes = [(term, quotient(np.full(len(below), weight), below)) for term, weight in above_form.weights]
        slopes += [(term, -quotient(ratio * weight, below)) for term, weight in below_form.weights]
        defined = below != 0
        if form.mean:
            count = Composite(below, below_numbers, True)
            defined &= np.abs(below) > count.z(NULL_LEVEL) * np.sqrt(count.variance(_noise))
            if below_numbers.cut:  # rows of unlisted texts alone, of which perhaps none is meant
                defined &= below > UNLISTED * below_numbers.interpolation_bound[1]
        middle: FloatArray = np.divide(above, below, out=np.full(len(above), np.nan), where=defined)
        limits = reads.average_limits(form, answered.plan.view, answered.errors.release)
        return Composite(
            middle, LinearNumbers.of_slopes(slopes, answered), False,
            Sides(above, above_numbers, below, below_numbers, averaged(form, answered)), True,
            average=limits,
        )  # fmt: skip

    def central(self) -> FloatArray:
        """The numbers; NaN where one is NULL."""
        return self.middle

    def noise(self) -> FloatArray:
        """Standard errors of the noise; NaN where a denominator is 0."""
        if not self.by_sides or self.quotient is None:
            return np.sqrt(np.maximum(self.slope.variances.noise + self._weighted, 0.0))
        below = self.quotient.below
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = self.quotient.delta(_noise, self.quotient.above / below) + self._weighted * below**2
            return np.where(below == 0, np.nan, np.sqrt(np.maximum(spread, 0.0)) / np.abs(below))

    @property
    def _weighted(self) -> FloatArray | float:
        """Variance added by the estimated weight of rows."""
        return 0.0 if self.slope.weight_variance is None else self.slope.weight_variance

    def variance(self, of: Component) -> FloatArray:
        """One component of the variances."""
        if not self.by_sides or self.quotient is None:
            return np.maximum(of(self.slope.variances), 0.0) + np.zeros(len(self.middle))
        below = self.quotient.below
        spread = self.quotient.delta(of, quotient(self.quotient.above, below))
        return quotient(np.maximum(spread, 0.0), below**2)

    def z(self, level: float) -> FloatArray:
        """Standard errors on each side of a number that cover it with this chance."""
        moved = self.quotient.reads() if self.by_sides and self.quotient is not None else self.slope.reads
        if not any(source.answered.laplace for source in moved):
            return quantile(level, np.zeros(len(self.middle)))
        largest = largest_cells(moved, len(self.middle))
        return quantile(level, laplace_kurtosis(largest, self.variance(_noise)))

    @cached_property
    def _possible(self) -> ValueRange | None:
        if self.dry:
            return None
        if self.average is not None:
            none = np.zeros(len(self.middle))
            return ValueRange(self.average[0] + none, self.average[1] + none)
        if self.quotient is not None:
            sides = self.quotient
            return quotient_range(sides.above, sides.above_numbers, sides.below, sides.below_numbers)
        return sum_range(self.middle, self.slope) if self.linear else None

    def possible(self, level: float) -> ValueRange | None:
        """Between which values the exact answers lie whatever the rows are; None where nothing is known of them.

        An average of values that count as the nearest bound lies between the bounds, that of the values themselves
        as far outside as those beyond may move it, with this chance.
        """
        limits, sides = self._possible, self.quotient
        averages = sides is not None and all(k.term.measure.is_count for k in sides.below_numbers.terms)
        values = values_beyond(self.slope) if averages else None
        if limits is None or values is None:
            return limits
        ways = (-values.shift_low, values.down), (values.shift_high, values.up)
        down, up = (
            np.nan_to_num(shift + quantile(level) * np.sqrt(v), nan=0.0, posinf=inf) for shift, v in ways
        )
        return ValueRange(limits.low - np.maximum(down, 0.0), limits.high + np.maximum(up, 0.0))

    def beyond_noise(self) -> ErrorComponents | None:
        """Variances beyond the noise: scale, spread, tail and rows beyond a bound."""
        components = beyond_noise(self.slope)
        if components is None or self.quotient is None:
            return components
        # Where noise turned a denominator's sign, derivatives say the wrong side.
        opened = np.isinf(components.down) | np.isinf(components.up)
        down, up = (np.where(opened, np.inf, side) for side in (components.down, components.up))
        return replace(components, down=down, up=up)

    def share_beyond(self) -> FloatArray:
        """Share of the rows beyond the contribution bound; NaN where unknown."""
        return share_beyond_bound(self.slope)

    def interpolation_bound(self) -> FloatArray:
        """The most that cutting bins may add; a first derivative is no bound, so NaN of all but sums and quotients."""
        ends = self.cut_ends()
        if not ends:
            return np.zeros(len(self.middle))
        low, high = (end.central() for end in ends[0])
        return np.maximum(np.maximum(self.middle - low, high - self.middle), 0.0)

    def cut_ends(self) -> CutEnds:
        """The least and the largest numbers that rows of cut bins may make; none where no bin is cut."""
        return self._cut_ends

    @cached_property
    def _cut_ends(self) -> CutEnds:
        # for `interpolation_bound` alone: its interval is an image of one that has them
        if self.curve is not None:
            ends = self.curve.argument.cut_ends()
            if not ends:
                return ()
            low, high = image(self.curve, (ends[0][0].central(), ends[0][1].central()))
            return ((replace(self, middle=low), replace(self, middle=high)),)
        if self.quotient is not None:
            return self.quotient.cut_ends(self)
        if not self.slope.cut:
            return ()
        slopes = self.slope.cut_corners
        below, above = self.slope.interpolation_bound
        if self.linear:
            low, high = self.middle - below, self.middle + above
            return tuple((Composite(low, slope, True), Composite(high, slope, True)) for slope in slopes)
        # up to two standard errors of the noise, over which it is taken for straight anyway
        moved = np.maximum(below, above)
        straight = (moved == 0) | (moved <= 2 * self.noise())
        low, high = (np.where(straight, end, np.nan) for end in (self.middle - below, self.middle + above))
        return tuple(
            (
                replace(self, middle=low, slope=slope, intervals={}),
                replace(self, middle=high, slope=slope, intervals={}),
            )
            for slope in slopes
        )

    def ends(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ends of the noise's interval of z standard errors; NaN where it is unbounded."""
        half = z * self.noise()
        low, high = self.middle - half, self.middle + half
        if self.quotient is not None:
            # Fieller's interval where the denominator is near 0, else that of the delta method.
            delta_low, delta_high = low, high
            above, between, below = self.quotient.noise(_noise)
            low, high = fieller(self.quotient.above, self.quotient.below, above, between, below, z)
            if self.slope.weight_variance is not None:
                margin = z * np.sqrt(np.maximum(self.slope.weight_variance, 0.0))
                low = self.middle - np.hypot(self.middle - low, margin)
                high = self.middle + np.hypot(high - self.middle, margin)
            near = np.abs(self.quotient.below) < FAR * np.sqrt(below)
            return np.where(near, low, delta_low), np.where(near, high, delta_high)
        if self.near is None or not len(self.near[0]):
            return low, high
        shift, stretch = self._near_zero(self.near, z)
        return self.middle + shift - half * stretch, self.middle + shift + half * stretch

    def _near_zero(self, near: Denominators, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """By how much intervals move and grow since a denominator is near 0; NaN where one may be 0."""
        of_number, value, denominators = near
        variance = np.maximum(denominators.variances.noise, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            denominator_g = np.where(value == 0, np.inf, z[of_number] ** 2 * variance / value**2)
        order = np.lexsort((denominator_g, of_number))
        last = np.append(of_number[order][1:] != of_number[order][:-1], True)
        worst = order[last]  # of each number, the denominator nearest to 0
        shift, stretch = np.zeros(len(self.middle)), np.ones(len(self.middle))
        number, g, vb = of_number[worst], denominator_g[worst], variance[worst]
        quotients, below = self.slope.taken(number), denominators.taken(worst)
        shared = covariance(quotients.reads, below.reads, len(worst)).noise
        with np.errstate(divide="ignore", invalid="ignore"):
            alike = np.where(vb > 0, shared**2 / (quotients.variances.noise * vb), 0.0)
            by_far = (FAR * FAR) * g < z[number] ** 2
            moved = -g / (1 - g) * value[worst] * shared / vb
            longer = np.sqrt(1 - g * (1 - np.clip(alike, 0.0, 1.0))) / (1 - g)
        shift[number] = np.where(by_far, 0.0, moved)
        stretch[number] = np.where(by_far, 1.0, np.where(g < 1, longer, np.nan))
        return shift, stretch


def _noise(covariances: Covariance) -> FloatArray:
    return covariances.noise


def mean_half_width(form: Noisy, answered: TermEstimates) -> float:
    """The mean half-width of a form's 95% intervals; infinite where one has no ends."""
    ends = interval(Composite.of_form(form, answered), DEFAULT_LEVEL)
    halves = (ends.high - ends.low) / 2
    return float(np.mean(np.where(np.isnan(halves), np.inf, halves))) if len(halves) else 0.0


def mostly_bound(block: Block, answered: TermEstimates) -> bool:
    """True if what cutting bins may add exceeds half of some number of a block."""
    forms = dict.fromkeys(v.subject for v in block.values if isinstance(v.subject, Linear | Ratio))
    for form in forms:
        if all(term in answered.totals for term in form.terms):
            numbers = Composite.of_form(form, answered)
            if np.any(numbers.interpolation_bound() > np.abs(numbers.central()) / 2):
                return True
    return False
