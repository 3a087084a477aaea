"""Errors of answers on views of several axes: sums of Kronecker terms, and what scaling to a total adds.

| here | there | unit |
|---|---|---|
| `components`: subset T -> sigma2 | sigma_T^2 of the residual decomposition | (measure unit)^2 |
| `model.ranges`, `model.quadratic` | u' C u of one axis, unit noise | 1 |
| `share(u)` | g.u, g = C 1 / (1' C 1) | 1 |

Each axis splits a histogram into its total and what remains when the total, spread along
g = C 1 / (1' C 1), is taken away. Total and remainder are uncorrelated, so a view over the axes A
falls into 2^|A| independent parts, one for each subset T of A, and overlapping views of one release
estimate the same parts. After the parts have been averaged over the views, an answer with leaf masks
u_i has the variance

    Var(q) = sum over T of sigma_T^2  prod_{i in T} (u_i' C_i u_i - k_i (g_i.u_i)^2)  prod_{i not in T} (g_i.u_i)^2

with k_i = 1' C_i 1. An axis that a query does not use has u = 1, whose remainder is zero, so only
subsets of the used axes count. Nothing here depends on data.

Scaled views (`ScaledReading`) were measured with few rows of each person and then scaled to a total, that of all rows.
What is left is a question of shares: noise of the part that a question asks for, and rows beyond the low bound, of
which a group may hold none or more than twice its share.

| here | there | unit |
|---|---|---|
| `shares` | W: about which part of the rows each cell holds | 1 |
| F | the part of the rows that a question asks for | 1 |
| `tail` | U^2 / H: rows beyond the low bound, in few hands | squared stored units |
| `taste` | (1.2 U)^2: the same, of people who all own the same things | squared stored units |

Two questions have in common

    noise      the view's own, both questions less their part F of the total: the total is scaled exactly
    spread     tail (F_both - F F') + taste alike off off',     off = F (1 - F)

so that the whole has none of them. `alike` is the correlation that F_both - F F' gives, 1 of a question with itself.
Of a question that weighs rows, such as a sum of ages, F is the mean weight and `off` the integral of F_t (1 - F_t) over
thresholds t of the weight, F_t being the part of the rows above t: people who own many rows may be older throughout.

**Source**: docs/method/rows.md, "Intervals that cover the exact answer".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from math import prod
from typing import ClassVar

import numpy as np

from dpsql.matrices.model import (
    LONG_AXIS,
    AxisVariance,
    Columns,
    Components,
    Covariance,
    Edges,
    Masks,
    Reading,
    Shared,
    arrays_of,
    by_leaf,
    by_steps,
    table,
)
from dpsql.tree import FloatArray, IntArray


@dataclass(frozen=True)
class AxisSplit:
    """One axis's variance model together with its split into total and remainder.

    Args:
        model: the axis's variance model at unit noise.
        edges: where runs of leaves begin, and the number of leaves, of masks over runs; None of masks over leaves.
    """

    model: AxisVariance
    edges: IntArray | None = field(default=None, compare=False)

    @cached_property
    def total(self) -> float:
        """k = V(0, n), the variance of the axis's total at unit noise."""
        n = self.model.n
        return float(self.model.ranges(np.array([0]), np.array([n]))[0])

    @cached_property
    def spread(self) -> FloatArray:
        """g = C 1 / k, shape (n,): how a change of the total is spread over the leaves or runs. Adds to 1."""
        edges = np.arange(self.model.n + 1) if self.edges is None else self.edges
        prefix = np.empty(len(edges))
        for a in range(0, len(edges), LONG_AXIS):
            cuts = edges[a : a + LONG_AXIS]
            ends = np.concatenate([0 * cuts, cuts]), np.concatenate([cuts, 0 * cuts + self.model.n])
            left, right = np.split(self.model.ranges(*ends), 2)
            prefix[a : a + LONG_AXIS] = (self.total + left - right) / 2.0
        return np.asarray(np.diff(prefix) / self.total, dtype=np.float64)

    def columns(self) -> Columns:
        """Stored columns of the axis."""
        return self.model.columns()

    def parts(self, masks: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Remainder variance and squared total share of each mask.

        Args:
            masks: leaf coverages, shape (g, n).

        Returns:
            (u' C u - k (g.u)^2, (g.u)^2), each of shape (g,).
        """
        if len(masks) > 1 and masks.strides[0] == 0:  # one mask for all rows
            return tuple(np.broadcast_to(part, len(masks)) for part in self.parts(masks[:1]))  # type: ignore[return-value]
        share = (masks @ self.spread) ** 2
        remainder = self._quadratic(masks) - self.total * share
        return np.maximum(remainder, 0.0), share

    def mixed(self, left: FloatArray, right: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Bilinear form of `parts` on pairs of masks, by polarisation, which holds on one axis.

        Args:
            left, right: leaf coverages, each of shape (g, n).

        Returns:
            (u' C w - k (g.u) (g.w), (g.u) (g.w)), each of shape (g,).
        """
        share = (left @ self.spread) * (right @ self.spread)
        product = (self._quadratic(left + right) - self._quadratic(left - right)) / 4.0
        return product - self.total * share, share

    def _quadratic(self, masks: FloatArray) -> FloatArray:
        """u' C u for each row of masks, shape (g,)."""
        if self.edges is None:
            return self.model.quadratic(masks)
        if (stepwise := by_steps(self.model, masks, self.edges)) is not None:
            return stepwise
        return np.concatenate([self.model.quadratic(by_leaf(mask[None], self.edges)) for mask in masks])

    def table(self, masks: FloatArray) -> tuple[FloatArray, FloatArray]:
        """`mixed` of all pairs of rows of masks, each of shape (g, g)."""
        pairs = [self.mixed(np.broadcast_to(mask, masks.shape), masks) for mask in masks]
        remainder, share = (np.array([pair[i] for pair in pairs]) for i in (0, 1))
        return (remainder + remainder.T) / 2, share


@dataclass(frozen=True)
class ProductReading(Reading):
    """Reading of a statistic of a view measured axis by axis.

    Args:
        axes: one split per axis of the view, in the view's order.
        components: subset of axis positions (sorted) -> sigma_T^2, one entry for each subset of the axes.

    **Source**: docs/method/views.md, "Variance of a view", for strategies that are alike on shared axes.
    """

    axes: tuple[AxisSplit, ...]
    components: Components
    name: ClassVar[str] = "product"

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        """Covariances under `masks` and `other`, as `Reading` says: the sum over components of products over axes."""
        pairs = zip(self.axes, masks, masks if other is None else other, strict=True)
        return Covariance(self._sum([axis.parts(u) if u is w or np.array_equal(u, w) else axis.mixed(u, w)
                                     for axis, u, w in pairs]))  # fmt: skip

    def matrix(self, masks: Masks) -> FloatArray:
        """Covariances of all combinations of rows, as `Reading` says: Kronecker products of the axes' own."""
        tables = [axis.table(mask) for axis, mask in zip(self.axes, masks, strict=True)]
        covariance = np.zeros((1, 1))
        for subset, sigma2 in self.components.items():
            term = np.full((1, 1), sigma2)
            for position, (remainder, share) in enumerate(tables):
                term = np.kron(term, remainder if position in subset else share)
            covariance = covariance + term
        return covariance

    def columns(self) -> tuple[Columns, ...]:
        """One table for each axis."""
        return tuple(axis.columns() for axis in self.axes)

    def _sum(self, pairs: Sequence[tuple[FloatArray, FloatArray]]) -> FloatArray:
        """The sum over components of products over axes of (rest, share), shape (g,)."""
        groups = len(pairs[0][0]) if pairs else 1
        variance = np.zeros(groups)
        for subset, sigma2 in self.components.items():
            term = np.full(groups, sigma2)
            for position, (remainder, share) in enumerate(pairs):
                term = term * (remainder if position in subset else share)
            variance += term
        return variance


def _shared_parts(
    left: ProductReading,
    right: ProductReading,
    pairs: tuple[tuple[int, int], ...],
    masks: Masks,
    second: Masks,
) -> FloatArray:
    """Covariances of two views of one family: by the parts on axes that both have, which are the same numbers.

    Args:
        left, right: how each view answers.
        pairs: positions of the shared axes in both.
        masks, second: of the left view, and of the right one.

    **Source**: docs/method/views.md, "Views that share axes".
    """
    mixed = [left.axes[i].mixed(masks[i], second[j]) for i, j in pairs]
    alone = np.ones(1)
    for view, side, at in ((left, masks, 0), (right, second, 1)):
        shared = {pair[at] for pair in pairs}
        for position, (axis, mask) in enumerate(zip(view.axes, side, strict=True)):
            alone = alone if position in shared else alone * (mask @ axis.spread)
    covariance = np.zeros(len(alone))
    places = {i: n for n, (i, _) in enumerate(pairs)}
    for subset, sigma2 in left.components.items():
        if set(subset) <= set(places):
            term = sigma2 * alone
            for position, n in places.items():
                remainder, share = mixed[n]
                term = term * (remainder if position in subset else share)
            covariance = covariance + term
    return covariance


def of_two_families(
    readings: tuple[ProductReading, ProductReading],
    axes: tuple[tuple[int, ...], tuple[int, ...]],
    components: Mapping[tuple[int, ...], float],
) -> ProductReading | Shared:
    """Covariance of statistics of two families, part by part.

    Args:
        readings: how each answers.
        axes: ids of the axes of both views.
        components: axis ids -> covariance factor of the part that both families estimate.
    """
    left, right = axes
    factors = {
        tuple(left.index(axis) for axis in subset): factor
        for subset, factor in components.items()
        if set(subset) <= set(left)
    }
    reading = replace(readings[0], components=factors)
    if left == right:
        return reading
    pairs = tuple((i, right.index(axis)) for i, axis in enumerate(left) if axis in right)
    return Shared(lambda masks, second: Covariance(_shared_parts(reading, readings[1], pairs, masks, second)))


def on_runs(reading: Reading | Shared, edges: Edges) -> Reading | Shared:
    """How masks over runs of leaves are read: by ranges where each axis has a model of its own, else leaf by leaf."""
    if all(at is None for at in edges):
        return reading
    if isinstance(reading, ProductReading):
        axes = zip(reading.axes, edges, strict=True)
        return replace(
            reading, axes=tuple(axis if at is None else replace(axis, edges=at) for axis, at in axes)
        )

    def between(masks: Masks, second: Masks) -> Covariance:
        sides = (masks, second)
        left, right = ([by_leaf(mask, at) for mask, at in zip(side, edges, strict=True)] for side in sides)
        return reading.covariance(left, None if second is masks else right)

    return Shared(between)


def of_one_family(
    left: ProductReading, right: ProductReading, pairs: tuple[tuple[int, int], ...]
) -> Shared | None:
    """Covariance of two views of a measure; None where they were not made to agree.

    Args:
        left, right: how each answers.
        pairs: positions of the shared axes in both.
    """
    if not _agree(left, right, pairs):
        return None
    return Shared(lambda masks, second: Covariance(_shared_parts(left, right, pairs, masks, second)))


def _agree(left: ProductReading, right: ProductReading, pairs: tuple[tuple[int, int], ...]) -> bool:
    """True if two views have the same parts on the axes that both have."""
    places = dict(pairs)
    for subset, sigma2 in left.components.items():
        if set(subset) <= set(places):
            right_sigma2 = right.components.get(tuple(sorted(places[i] for i in subset)), 0.0)
            if not np.isclose(right_sigma2, sigma2, rtol=1e-9, atol=0.0):
                return False
    return True


WHOLE = 1e-9
"""A question that leaves out less asks for the whole."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Deviations of shares of one statistic, as a release stores them.

    Args:
        shares: shape (n_1, .., n_d), adding to 1.
        tail, taste: as in the module's table.
    """

    shares: FloatArray
    tail: float = 0.0
    taste: float = 0.0
    kind: ClassVar[str] = "spread"

    def columns(self) -> Columns:
        """The shares, and both constants."""
        return table(self.shares, [self.tail, self.taste])

    def part(self, masks: Masks) -> FloatArray:
        """F of outer products of masks, shape (g,)."""
        if not masks:
            return np.ones(1)
        letters = "abcdefghijklmnopqrstuvwxyz"[: len(masks)]
        names = ",".join([letters, *(f"z{letter}" for letter in letters)])
        return np.asarray(np.einsum(f"{names}->z", self.shares, *masks, optimize=True), np.float64)

    def threshold_integrals(self, masks: Masks) -> FloatArray:
        """The integral of F_t (1 - F_t) over thresholds t of each outer product of masks, shape (g,)."""
        parts = self.shares.ravel()
        integrals = np.empty(len(masks[0]))
        for row in range(len(integrals)):  # one question at a time: a view may have a million cells
            weights = reduce(np.multiply.outer, [mask[row] for mask in masks]).ravel()
            order = np.argsort(weights)
            below = np.cumsum(parts[order])[:-1]
            integrals[row] = np.sum(below * (1 - below) * np.diff(weights[order]))
        return np.maximum(integrals, 0.0)


def parts_of(rows: FloatArray) -> FloatArray:
    """Parts of the whole, noise below 0 cut; even where nothing is left."""
    positive = np.maximum(rows, 0.0)
    total = float(positive.sum())
    return positive / total if total > 0 else np.full(rows.shape, 1.0 / rows.size)


def from_columns(columns: Columns) -> Spread:
    """The spread that `Spread.columns` gave."""
    shares, (tail, taste) = arrays_of(columns)
    return Spread(shares, float(tail), float(taste))


@dataclass(frozen=True, eq=False)
class ScaledReading(Reading):
    """Variance model of a statistic whose view was scaled to a total.

    Args:
        shape: that of the view as measured, its variances scaled.
        spread: deviations of shares.

    **Source**: docs/method/rows.md, "Intervals that cover the exact answer".
    """

    shape: ProductReading
    spread: Spread
    name: ClassVar[str] = "scaled"

    def matrix(self, masks: Masks) -> FloatArray:
        """The noise of all combinations of rows, as `Reading` says."""
        return self.shape.matrix(masks)

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        """Noise and spread, as `Reading` says."""
        second = masks if other is None else other
        left = self.spread.part(masks)
        right = left if other is None else self.spread.part(second)
        apart = self.spread.part([u * w for u, w in zip(masks, second, strict=True)]) - left * right
        off, deviation = self._deviations(masks, left)
        other_off, other_deviation = (off, deviation) if other is None else self._deviations(second, right)
        alone = deviation * other_deviation
        alike = np.divide(apart, alone, out=np.zeros_like(apart), where=alone > 0)
        spread = self.spread.tail * apart + self.spread.taste * alike * off * other_off
        covariance = self.shape.covariance(masks, other).noise
        noise = _less_total((self, self), (masks, second), (left, right), covariance)
        return Covariance(np.maximum(noise, 0.0) if other is None else noise, spread)

    def _deviations(self, masks: Masks, part: FloatArray) -> tuple[FloatArray, FloatArray]:
        """`off`, and the standard deviation of the weights; 0 where a question asks for nothing or for the whole."""
        # Parts of bins are summed in floats: no last bit of a weight of 1 decides.
        if all(mask.size == 0 or (mask.min() >= -WHOLE and mask.max() <= 1 + WHOLE) for mask in masks):
            some = (part > 0) & (part < 1 - WHOLE)
            off = np.where(some, part * (1 - part), 0.0)
            return off, np.sqrt(off)
        off = self.spread.threshold_integrals(masks)
        squares = self.spread.part([mask**2 for mask in masks]) - part**2
        return off, np.sqrt(np.where(off > 0, np.maximum(squares, 0.0), 0.0))

    def columns(self) -> tuple[Columns, ...]:
        """Those of the shape, then the spread's."""
        return (*self.shape.columns(), self.spread.columns())


def scaled_family(
    left: ScaledReading, right: ScaledReading, pairs: tuple[tuple[int, int], ...]
) -> Shared | None:
    """Covariance of two views of a measure, scaled to one total: the noise of both less their parts of the total.

    None where they were not made to agree.
    """
    if not _agree(left.shape, right.shape, pairs):
        return None

    def between(masks: Masks, second: Masks) -> Covariance:
        noise = _shared_parts(left.shape, right.shape, pairs, masks, second)
        parts = left.spread.part(masks), right.spread.part(second)
        return Covariance(_less_total((left, right), (masks, second), parts, noise))

    return Shared(between)


def _less_total(
    views: tuple[ScaledReading, ScaledReading],
    sides: tuple[Masks, Masks],
    parts: tuple[FloatArray, FloatArray],
    covariance: FloatArray,
) -> FloatArray:
    """Covariances of questions less their parts of the total, whose covariance with any question is that of the first
    component alone.

    Args:
        views: how both are read.
        sides: masks of both.
        parts: F of both.
        covariance: of the questions as measured.
    """
    left_spread, right_spread = (
        prod((u @ axis.spread for axis, u in zip(view.shape.axes, side, strict=True)), start=np.ones(1))
        for view, side in zip(views, sides, strict=True)
    )
    left, right = parts
    total = views[0].shape.components[()]
    return np.asarray(covariance + total * (left * right - left * right_spread - right * left_spread))
