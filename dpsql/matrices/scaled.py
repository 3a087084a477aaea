"""Errors of an answer whose view was measured with few rows of each person and then scaled to a total.

The total is that of all rows. What is left is a question of shares: noise of the part that a question asks for, and
rows beyond the low bound, of which a group may hold none or more than twice its share.

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
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any, ClassVar

import numpy as np

from dpsql.matrices import kronecker
from dpsql.matrices.kronecker import FamilyAcross, ProductReading
from dpsql.matrices.model import Columns, Covariance, Reading, Sum, arrays_of, table
from dpsql.tree import FloatArray

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

    def part(self, masks: Sequence[FloatArray]) -> FloatArray:
        """F of outer products of masks, shape (g,)."""
        if not masks:
            return np.ones(1)
        letters = "abcdefghijklmnopqrstuvwxyz"[: len(masks)]
        names = ",".join([letters, *(f"z{letter}" for letter in letters)])
        return np.asarray(np.einsum(f"{names}->z", self.shares, *masks, optimize=True), np.float64)

    def threshold_integrals(self, masks: Sequence[FloatArray]) -> FloatArray:
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

    def matrix(self, masks: Sequence[FloatArray]) -> FloatArray:
        """The noise of all combinations of rows, as `Reading` says."""
        return self.shape.matrix(masks)

    def terms(self, masks: Sequence[FloatArray]) -> tuple[Sum, ...]:
        return self.shape.terms(masks)

    def covariance(
        self, masks: Sequence[FloatArray], other: Sequence[FloatArray] | None = None
    ) -> Covariance:
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
        return Covariance(self._noise(masks, second, left, right), spread)

    def _deviations(self, masks: Sequence[FloatArray], part: FloatArray) -> tuple[FloatArray, FloatArray]:
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

    def _noise(
        self, masks: Sequence[FloatArray], other: Sequence[FloatArray], left: FloatArray, right: FloatArray
    ) -> FloatArray:
        """Of both questions less their parts of the total, whose covariance with any question is that of the first
        component alone."""
        total = self.shape.components[()]
        left_spread, right_spread = (
            prod((u @ axis.spread for axis, u in zip(self.shape.axes, side, strict=True)), start=np.ones(1))
            for side in (masks, other)
        )
        covariance = self.shape.covariance(masks, None if other is masks else other).noise
        noise = covariance + total * (left * right - left * right_spread - right * left_spread)
        return np.maximum(noise, 0.0) if other is masks else noise


def scaled_reading(pieces: tuple[Any, ...], components: Mapping[tuple[int, ...], float]) -> ScaledReading:
    """The reading of stored pieces: the axes' splits, then the spread."""
    return ScaledReading(ProductReading(pieces[:-1], components), pieces[-1])


@dataclass(frozen=True, eq=False)
class ScaledAcross:
    """Covariance of two views scaled to one total: the noise of both less their parts of the total.

    Args:
        shapes: how the views err together before they are scaled.
        left, right: how each answers.
    """

    shapes: FamilyAcross
    left: ScaledReading
    right: ScaledReading

    def covariance(
        self, masks: Sequence[FloatArray], other: Sequence[FloatArray] | None = None
    ) -> Covariance:
        """Covariances under `masks` of the left view and `other` of the right one: noise alone."""
        second = masks if other is None else other
        left_spread, right_spread = (
            prod((u @ axis.spread for axis, u in zip(view.shape.axes, side, strict=True)), start=np.ones(1))
            for view, side in ((self.left, masks), (self.right, second))
        )
        left, right = self.left.spread.part(masks), self.right.spread.part(second)
        total = self.left.shape.components[()]
        noise = self.shapes.covariance(masks, second).noise
        return Covariance(noise + total * (left * right - left * right_spread - right * left_spread))


def of_one_family(
    left: ScaledReading, right: ScaledReading, pairs: tuple[tuple[int, int], ...]
) -> ScaledAcross | None:
    """Covariance of two views of a measure; None where they were not made to agree."""
    shapes = kronecker.of_one_family(left.shape, right.shape, pairs)
    return None if shapes is None else ScaledAcross(shapes, left, right)
