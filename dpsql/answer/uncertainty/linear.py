"""How far an answer may be off: variances of forms, delta method, Fieller's interval, the weight of local releases.

| here | there | unit |
|---|---|---|
| read | (statistic, box, factor): one recombined number in stored units | |
| variance, covariance | | squared units of the answer |
| `relative` | r, standard error of E r over E r | 1 |
| `rows` | W, the view's COUNT(*) | rows |
| `Weight.variance` | Var(W) of slots alone | squared rows |
| `shared` | Cov(F, W) of slots alone | units of F times rows |

COUNT and the centred SUM of one view have independent noise, and so SUM = y + mid c has
Var = Var(y) + mid^2 Var(c). A ratio uses the delta method while its denominator is far from 0 and
Fieller's interval nearer to it.

Counts and sums of a local release share an estimated weight (`row_weighting: mar`). A count is people x E r x its part
of all rows within tau, a sum likewise: the weight E r / E min(r, tau) puts every slot's rows in the place of the slot.
So answers share the relative error of E r, and what they count is divided by what all slots hold: a count of everything
does not carry the slots' error at all. By the delta method an answer F has

    Var(F) - 2 (F/W) Cov(F, W) + (F/W)^2 Var(W) + r^2 F^2

in place of Var(F), and a, b of one release have r^2 a b more in common. Ratios see neither: both sides carry the same.
This is in standard errors and intervals, while `variance` and `covariance` are of the noise alone.

**Privacy**: published values alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import overload

import numpy as np
import numpy.typing as npt

from dpsql.answer.block import Linear, Noisy, Term
from dpsql.answer.leafsets import FloatArray
from dpsql.answer.plan import Box, Plan, presence
from dpsql.answer.run import run
from dpsql.release import Release, StatisticMeta
from dpsql.release.format import UNIT
from dpsql.release.request import blocks, take
from dpsql.variance.model import Covariance


@dataclass(frozen=True)
class Weight:
    """An estimated weight, as the answers of one view see it.

    Args:
        relative: relative standard error of the rows a person has.
        rows: the view's COUNT(*).
        variance: its variance without the weight's error.
    """

    relative: float
    rows: float
    variance: float

    def added(self, values: FloatArray, shared: FloatArray) -> FloatArray:
        """What an answer's variance gains; below 0 where more of the slots' error cancels than the weight brings.

        Args:
            values: the answers without their constants, shape (rows,).
            shared: their covariances with `rows`, shape (rows,).
        """
        share = values / self.rows
        return share**2 * self.variance - 2 * share * shared + (self.relative * values) ** 2


def weight_error(release: Release) -> float:
    """Relative standard error of the weight of rows; 0 where rows have none."""
    return 0.0 if release.meta.local is None else release.meta.local.weight_error


def weight_of(release: Release, count: StatisticMeta) -> Weight | None:
    """The weight that a view's answers share.

    Args:
        release: an open release.
        count: the view's count.

    Returns:
        None where rows have no estimated weight, or where the view counts no rows.
    """
    relative = weight_error(release)
    if not relative:
        return None
    roots = " AND ".join(f"n{i + 1} = 0" for i in range(len(count.axes)))
    text = f"SELECT {release.estimate(count.id)} FROM node_combination_{count.id} WHERE {roots or 'true'}"
    root_rows = run(release, text).rows
    rows = root_rows[0][0] / UNIT if root_rows else 0.0
    all_leaves = [np.ones((1, release.axes[axis].leaves)) for axis in count.axes]
    return (
        Weight(relative, rows, float(release.reading(count.id).covariance(all_leaves).noise[0]))
        if rows > 0
        else None
    )


LAPLACE_KURTOSIS = 3.0
FAR = 10.0
"""Standard errors between a denominator and 0 from which the delta method is good enough."""


@lru_cache(maxsize=256)
def _quantiles(level: float) -> tuple[float, float]:
    """Two-sided quantiles of normal and of Laplace noise with standard deviation 1, the latter never the smaller."""
    normal = NormalDist().inv_cdf(0.5 + level / 2)
    return normal, max(normal, -math.log(1.0 - level) / math.sqrt(2.0))


@overload
def quantile(level: float, kurtosis: float = 0.0) -> float: ...
@overload
def quantile(level: float, kurtosis: FloatArray) -> FloatArray: ...
def quantile(level: float, kurtosis: float | FloatArray = 0.0) -> float | FloatArray:
    """Standard errors on each side of an answer that hold it with probability `level`.

    One Laplace draw has heavier tails than a normal one (2.118 against 1.960 at 95%); a sum of many is
    normal. Between the two it goes linearly in the excess kurtosis, and never below the normal quantile.

    Args:
        level: in (0, 1).
        kurtosis: excess kurtosis of the noise: 0 for normal, 3 for one Laplace draw, 3/m for a sum of m; one number
            or an array.

    Returns:
        The factor, in the shape of `kurtosis`.

    >>> round(quantile(0.95), 3), round(quantile(0.95, 3.0), 3)
    (1.96, 2.118)
    """
    normal, laplace = _quantiles(level)
    factor = normal + np.clip(np.divide(kurtosis, LAPLACE_KURTOSIS), 0.0, 1.0) * (laplace - normal)
    return factor if isinstance(kurtosis, np.ndarray) else float(factor)


def laplace_kurtosis(largest: FloatArray, variance: FloatArray) -> FloatArray:
    """Excess kurtosis of Laplace noise: that of as many equal draws as make up the variance.

    It depends on what an answer is, not on how it is spelt or which stored nodes are added up.

    Args:
        largest: variance that the cell with the largest weight adds (`Errors.largest`).
        variance: of the noise.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(variance > 0, largest / variance, 0.0)
    return LAPLACE_KURTOSIS * np.clip(share, 0.0, 1.0)


def cell_variance(release: Release, statistic: int) -> float:
    """Noise variance of one cell in the middle of a statistic's axes: about that of one draw.

    Where leaves were measured as wholes (`blocks`) the noise of a leaf is a small part of a draw's: there it is the
    noise of all leaves over the number of wholes.
    """
    meta = release.statistics[statistic]

    def variance() -> float:
        sizes = [release.axes[axis].leaves for axis in meta.axes]
        reading = release.reading(statistic)
        covariance = reading.covariance([np.eye(1, leaves, leaves // 2) for leaves in sizes])
        if not np.any(covariance.within_leaf):
            return float(np.max(covariance.noise))
        wholes = len(next(iter(reading.columns()[0].values())))
        return float(reading.covariance([np.ones((1, leaves)) for leaves in sizes]).noise[0]) / wholes

    return release.kept(("cell_variance", statistic), variance)


@dataclass(frozen=True)
class Read:
    """One recombined number with its factor in an answer."""

    statistic: int
    box: Box
    factor: float


def reads(plan: Plan, term: Term) -> list[Read]:
    """What a term reads: its statistic, and the count that its centre is multiplied by."""
    statistic = plan.view.statistics[term.measure]
    scale = 10.0**-statistic.scale
    term_reads = [Read(statistic.id, box, scale) for box in plan.boxes_for(term)]
    if statistic.mid:
        count = presence(term.measure, plan.view)
        assert count is not None
        mid = statistic.mid if statistic.noise_mid is None else statistic.noise_mid
        term_reads += [Read(count.id, box, mid * scale) for box in plan.boxes_for(term)]
    return term_reads


def reads_of(plan: Plan, form: Linear) -> dict[tuple[int, Box], float]:
    """All reads of a linear form, factors of equal ones added up."""
    total: dict[tuple[int, Box], float] = {}
    for term, weight in form.weights:
        for read in reads(plan, term):
            key = (read.statistic, read.box)
            total[key] = total.get(key, 0.0) + weight * read.factor
    return total


@dataclass(frozen=True, eq=False)
class Errors:
    """Variances on one plan for given groups.

    Args:
        plan: the plan.
        release: an open release.
        index: for each axis the group of each row, shape (rows,).
    """

    plan: Plan
    release: Release
    index: tuple[np.ndarray, ...]
    _products: dict[tuple[int, Box, Box | None, int | None], Covariance] = field(
        default_factory=dict, repr=False
    )

    def covariance(self, left: Linear, right: Linear) -> FloatArray:
        """Covariance of two linear forms, shape (rows,)."""
        rows = len(self.index[0]) if self.index else 1
        total = np.zeros(rows)
        a, b = reads_of(self.plan, left), reads_of(self.plan, right)
        for (statistic, box), factor in a.items():
            for (right_statistic, second), weight in b.items():
                if factor and weight:
                    total += factor * weight * self.product(statistic, box, second, right_statistic).noise
        return total

    def part(
        self, of: Callable[[Covariance], FloatArray | float], form: Linear, other: Linear | None = None
    ) -> FloatArray:
        """One part of a covariance of two linear forms, of a variance without `other`, shape (rows,)."""
        total = np.zeros(len(self.index[0]) if self.index else 1)
        second = form if other is None else other
        for (statistic, box), factor in reads_of(self.plan, form).items():
            for (s, b), weight in reads_of(self.plan, second).items():
                total = total + factor * weight * of(self.product(statistic, box, b, s))
        return total

    def part_variance(
        self,
        of: Callable[[Covariance], FloatArray | float],
        form: Noisy,
        above: FloatArray,
        below: FloatArray,
    ) -> FloatArray:
        """One part of the variance of a form, of a ratio by the delta method, shape (rows,); arguments as `stderr`."""
        if isinstance(form, Linear):
            return np.maximum(self.part(of, form), 0.0)
        ratio = _divided(above, below)
        spread = self.part(of, form.above) - 2 * ratio * self.part(of, form.above, form.below)
        spread = spread + ratio**2 * self.part(of, form.below)
        return _divided(np.maximum(spread, 0.0), below**2)

    def largest(self, form: Noisy, above: FloatArray, below: FloatArray) -> FloatArray:
        """Noise variance that the cell with the largest weight adds to a form, shape (rows,); arguments as `stderr`."""
        rows = len(self.index[0]) if self.index else 1
        weights: dict[tuple[int, Box], FloatArray] = {}
        if isinstance(form, Linear):
            sides = [(form, np.ones(rows))]
        else:
            slope = _divided(np.ones(rows), below)
            sides = [(form.above, slope), (form.below, -_divided(above, below) * slope)]
        for side, slope in sides:
            for read, factor in reads_of(self.plan, side).items():
                weights[read] = weights.get(read, np.zeros(rows)) + factor * slope
        largest = np.zeros(rows)
        for (statistic, box), weight in weights.items():
            peak = np.abs(weight)
            for mask, group in zip(self.plan.box_masks(box), self.index, strict=True):
                peak = peak * np.abs(mask).max(axis=1)[group]
            largest = np.fmax(
                largest, np.where(peak > 0, peak, 0.0) ** 2 * cell_variance(self.release, statistic)
            )
        return largest

    def variance(self, form: Linear) -> FloatArray:
        """Variance of a linear form, shape (rows,)."""
        return np.maximum(self.covariance(form, form), 0.0)

    def spread(self, rows: npt.NDArray[np.int64], weights: FloatArray, boxes: Sequence[Box]) -> float:
        """Standard error of a weighted sum of COUNTs of groups that differ along one axis.

        Args:
            rows: rows of the relation.
            weights: one for each of them.
            boxes: the boxes of the count; NaN is returned for more than one.
        """
        if len(boxes) != 1 or not len(rows):
            return math.nan
        masks = []
        for mask, index in zip(self.plan.box_masks(boxes[0]), self.index, strict=True):
            group = index[rows]
            same = bool(np.all(group == group[0]))
            masks.append(mask[group[:1]] if same else np.bincount(group, weights, len(mask))[None] @ mask)
        count = self.plan.view.statistics["count"].id
        scale = 1.0 if len(rows) > 1 else float(weights[0] ** 2)
        covariance = self.release.reading(count).covariance(masks)
        return math.sqrt(scale * max(0.0, float(np.sum(covariance.noise + covariance.within_leaf))))

    @cached_property
    def weight(self) -> Weight | None:
        """The weight that counts and sums share, where it is estimated."""
        count = self.plan.view.statistics.get("count")
        return None if count is None else weight_of(self.release, count)

    def weighted(self, form: Noisy, above: FloatArray, below: FloatArray) -> FloatArray:
        """What the error of the weight adds to the variance of a form, of a ratio times its denominator squared.

        A constant is not weighted: of a ratio nothing is left but what its constants leave.
        """
        weight, rows = self.weight, len(self.index[0]) if self.index else 1
        if weight is None:
            return np.zeros(rows)
        if isinstance(form, Linear):
            return weight.added(above - form.constant, self._with_all(form))
        ratio = _divided(above, below)
        from_constants = ratio * form.below.constant - form.above.constant
        return weight.added(from_constants, self._with_all(form.above) - ratio * self._with_all(form.below))

    def _with_all(self, form: Linear) -> FloatArray:
        """Covariance of a linear form with the count of all of the view's rows, shape (rows,)."""
        count = self.plan.view.statistics["count"].id
        total = np.zeros(len(self.index[0]) if self.index else 1)
        for (statistic, box), factor in reads_of(self.plan, form).items():
            if statistic == count:
                total += factor * self.product(statistic, box, None).noise
        return total

    def product(self, statistic: int, left: Box, right: Box | None, other: int | None = None) -> Covariance:
        """Covariances of two boxes by part, each of shape (rows,), of one statistic or of two; None is all rows.

        Kept, since a standard error, both ends of an interval and its parts ask for the same.
        """
        key = statistic, left, right, other
        if key not in self._products:
            covariance = self._product(statistic, left, right, other)
            take(sum(component.nbytes for component in covariance if isinstance(component, np.ndarray)))
            self._products[key] = covariance
        return self._products[key]

    def _product(
        self, statistic: int, left: Box, right: Box | None, right_statistic: int | None
    ) -> Covariance:
        second = statistic if right_statistic is None else right_statistic
        if second < statistic and right is not None:
            return self.product(second, right, left, statistic)
        reading = self.release.shared(statistic, second)
        if reading is None:
            return Covariance(np.zeros(len(self.index[0]) if self.index else 1))
        left_masks = self.plan.box_masks(left)
        if right is None:
            right_masks = [np.ones_like(mask) for mask in left_masks]
        else:
            right_masks = left_masks if left == right else self.plan.box_masks(right)
        if not left_masks:
            return reading.covariance([])
        covariances = []
        for block in blocks(len(self.index[0]), max(mask.shape[1] for mask in left_masks)):
            rows = [index[block] for index in self.index]
            u, v = (
                [mask[i] for mask, i in zip(masks, rows, strict=True)] for masks in (left_masks, right_masks)
            )
            alone = left == right and second == statistic
            covariances.append(reading.covariance(u, None if alone else v))
        if not covariances:
            return Covariance(np.zeros(0))
        return Covariance(*(_joined(pieces, len(self.index[0])) for pieces in zip(*covariances, strict=True)))

    def stderr(self, form: Noisy, above: FloatArray, below: FloatArray) -> FloatArray:
        """Standard error of a form.

        Args:
            form: linear or a ratio.
            above: value of the linear form, or of the ratio's numerator.
            below: value of the ratio's denominator; not read for linear forms.

        Returns:
            Shape (rows,); NaN where a ratio's denominator is 0.
        """
        if isinstance(form, Linear):
            return np.sqrt(np.maximum(self.variance(form) + self.weighted(form, above, below), 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = above / below
            spread = (
                self.variance(form.above)
                - 2 * ratio * self.covariance(form.above, form.below)
                + ratio**2 * self.variance(form.below)
                + self.weighted(form, above, below)
            )
            error: FloatArray = np.where(below == 0, np.nan, np.sqrt(np.maximum(spread, 0.0)) / np.abs(below))
            return error

    def interval(
        self, form: Noisy, above: FloatArray, below: FloatArray, z: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Ends of the interval of z standard errors, z of shape (rows,); NaN where it is unbounded."""
        middle = above if isinstance(form, Linear) else _divided(above, below)
        half = z * self.stderr(form, above, below)
        if isinstance(form, Linear):
            return middle - half, middle + half
        low, high = fieller(
            above,
            below,
            self.variance(form.above),
            self.covariance(form.above, form.below),
            self.variance(form.below),
            z,
        )
        near = np.abs(below) < FAR * np.sqrt(self.variance(form.below))
        if self.weight is not None:
            weight_margin = z * np.sqrt(
                _divided(np.maximum(self.weighted(form, above, below), 0.0), below**2)
            )
            low, high = (
                middle - np.hypot(middle - low, weight_margin),
                middle + np.hypot(high - middle, weight_margin),
            )
        return np.where(near, low, middle - half), np.where(near, high, middle + half)


def _joined(pieces: Sequence[FloatArray | float], rows: int) -> FloatArray:
    """Pieces one after the other; a part that a reading does not have is 0 everywhere."""
    arrays = [piece for piece in pieces if isinstance(piece, np.ndarray)]
    return np.concatenate(arrays) if arrays else np.zeros(rows)


def _divided(above: FloatArray, below: FloatArray) -> FloatArray:
    ratio: FloatArray = np.divide(above, below, out=np.full(len(above), np.nan), where=below != 0)
    return ratio


def fieller(
    above: FloatArray,
    below: FloatArray,
    va: FloatArray,
    cab: FloatArray,
    vb: FloatArray,
    z: float | FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Fieller's interval of a ratio of two normal numbers.

    Args:
        above, below: numerator and denominator.
        va, cab, vb: their variances and covariance.
        z: standard errors on each side.

    Returns:
        (low, high), NaN where the denominator's own interval holds 0.

    >>> low, high = fieller(*(np.array([x]) for x in (10.0, 5.0, 0.0, 0.0, 0.25)), 2.0)
    >>> round(float(low[0]), 3), round(float(high[0]), 3)
    (1.667, 2.5)
    """
    a = below**2 - z**2 * vb
    b = above * below - z**2 * cab
    c = above**2 - z**2 * va
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
        good = a > 0
        return np.where(good, (b - root) / a, np.nan), np.where(good, (b + root) / a, np.nan)
