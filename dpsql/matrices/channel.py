"""Errors of answers over attributes that people reported: through a channel, or read off a stack of smooth fits.

A channel: its noise, and who reported.

| here | there | unit |
|---|---|---|
| law, scores | K, s | 1 |
| g | sum of s over the asked leaves, one number an item | 1 |
| h | sum_y K_ya g_y^2 - (sum_y K_ya g_y)^2: variance of one row's score | 1 |
| H | sum of h over the rows of a box, by the released counts | rows |
| own, pairs, stick | mu, lambda, theta: of rows of one person, by `Squares` | 1 |
| mean | xbar: what a row of the box adds on average, by the released sums; 1 where rows are counted | measure unit |
| each, alike | E, rho: how far rows are from their mean, by `Deviations` | (measure unit)^2, 1 |
| moved | d: what an answer gains when a person of a leaf reports, by leaf; that leaf's mask less that of NULL | 1 |

A person's rows share one item. Over a box Z of the other axes her n rows add h n^2: the rows themselves, mu, and pairs
of different rows, lambda. A pair lies in the box as often as chance has it, or surely, as far as her rows stick
together on an axis:

    D = mu + lambda prod_j (theta_j + (1 - theta_j) pi_j)              pi_j: released share of the rows in Z_j

Her sum is her rows times the box's mean, and what they deviate from it. Two statistics of a view share the first part:

    Cov(x, z) = xbar zbar H D,    Var(x) = xbar^2 H D + H E (mu + rho (D - mu))

so that an average, whose numerator less the average times its denominator has no mean, errs by deviations alone; it is
not what three large numbers leave of each other.

Where people are taken to be silent at random, with chance 1 - r in a box, they are one draw among others. A person
moves an answer by d n if she reports, so its variance gains r (1 - r) sum d^2 n^2 over everybody, which is (1 - r) sum
d^2 n^2 over those who reported: the same formulas with (1 - r) d d' in the place of h. It is nothing where all leaves
and NULL are asked alike. Products and ratios of answers have what the delta method makes of it: COUNT times all rows by
reported rows gains N q (1 - q) D (1 - r) / r, q the answer's part of the respondents' rows.

Without squares mu is the most that n rows may be, tau, and lambda is 0; E is then the most that a row may be: never too
little.

**Privacy**: published numbers alone.
**Source**: docs/method/local.md, "Error bars".

A stack of smooth fits (`StackReading`): how far refits scatter, and a part of the unbiased estimate's own noise. Refits
around a stack's own answer do not see what it smoothed away. So a part k of the unbiased covariance takes the
place of theirs, and a larger one where the answer is a large share of everything: a bend that is small beside each leaf
adds up there. The share is the answered one, so the bars are post-processing.

| here     | there | unit |
|----------|-------|------|
| `refit`  | T'    | (measure unit)^2 |
| `unbiased` | U   | (measure unit)^2 |
| `small`, `large` | k below and from a share of LARGE | 1 |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from dpsql.matrices.kronecker import ProductReading
from dpsql.matrices.model import (
    Columns,
    Components,
    Covariance,
    Masks,
    Reading,
    Shared,
    arrays_of,
    crossed,
    symmetric,
    table,
    upper,
)
from dpsql.matrices.pooled import weigh
from dpsql.tree import FloatArray

LEAST = 0.2
"""Part of the least h that a row adds at least, where noise hides how many rows a box has."""


class Squares(NamedTuple):
    """Sums of squares over the rows of one person.

    Args:
        own: mu, what a row's own square is.
        pairs: lambda, pairs of different rows, per row.
        stick: theta of each axis, in [0, 1]; 0 for the attribute.
    """

    own: float
    pairs: float
    stick: tuple[float, ...]


class Deviations(NamedTuple):
    """Deviation of row values from their mean; None where rows are counted.

    Args:
        mean_square: E, the mean square.
        alike: rho, how much two rows of a person deviate alike, in [0, 1].
        reach: the most that a row adds, up or down.
    """

    mean_square: float
    alike: float
    reach: float


COUNTED = Deviations(0.0, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class ChannelModel:
    """Channel of a statistic in a release.

    Args:
        place: the attribute's axis in the view.
        law: K, shape (items, leaves in the domain).
        scores: s, shape (leaves in the domain, items).
        counts: released counts of the view's cells.
        sums: the statistic's released cells; the counts again where it counts.
        squares: of the rows.
        deviations: of what they add.
        sampled: whether those who reported are taken for a random sample.
    """

    place: int
    law: FloatArray
    scores: FloatArray
    counts: FloatArray
    sums: FloatArray
    squares: Squares
    deviations: Deviations
    sampled: bool
    kind: ClassVar[str] = "channel"

    def columns(self) -> Columns:
        """The arrays, with the constants before the sticks."""
        constants = [self.place, self.squares.own, self.squares.pairs, *self.deviations, self.sampled]
        return table(self.law, self.scores, self.counts, self.sums, constants, self.squares.stick)

    def asked(self, masks: Masks) -> FloatArray:
        """g of each mask of the attribute, shape (g, items)."""
        return np.asarray(masks[self.place][:, : self.law.shape[1]] @ self.scores)

    def _within(self, masks: Masks, leaves: FloatArray) -> list[FloatArray]:
        """Masks with numbers of the domain's leaves in the attribute's place, and 0 for its special ones."""
        special = np.zeros((len(leaves), self.counts.shape[self.place] - leaves.shape[1]))
        return [np.hstack([leaves, special]) if i == self.place else mask for i, mask in enumerate(masks)]

    def rows(self, left: Masks, right: Masks) -> FloatArray:
        """H of pairs of questions, shape (g,): at least what noise may hide where both are one."""
        first, second = self.asked(left), self.asked(right)
        h = (first * second) @ self.law - (first @ self.law) * (second @ self.law)
        intersection = [u * v for u, v in zip(left, right, strict=True)]
        weighted = weigh(self.counts, self._within(intersection, h))
        inside = np.maximum(weigh(self.counts, self._within(intersection, np.ones_like(h))), 0.0)
        floor = np.maximum(LEAST * h.min(axis=1) * inside, h.max(axis=1))
        same = np.all([np.all(u == v, axis=1) for u, v in zip(left, right, strict=True)], axis=0)
        return np.where(same, np.maximum(weighted, floor), weighted)

    def moved(self, masks: Masks) -> Masks:
        """Masks with d in the attribute's place; NULL is the first leaf after the domain's."""
        mask, leaves = masks[self.place], self.law.shape[1]
        return self._within(masks, mask[:, :leaves] - mask[:, leaves : leaves + 1])

    def sample(self, left: Masks, right: Masks) -> FloatArray:
        """(1 - r) d d' over the rows of pairs of questions with `moved` masks, shape (g,): H of who reported."""
        intersection = [u * v for u, v in zip(left, right, strict=True)]
        weighted = weigh(self.counts, intersection)
        same = np.all([np.all(u == v, axis=1) for u, v in zip(left, right, strict=True)], axis=0)
        floor = intersection[self.place].max(axis=1)
        return np.asarray(self._silent(intersection) * np.where(same, np.maximum(weighted, floor), weighted))

    def _silent(self, boxes: Masks) -> FloatArray:
        """1 - r, the released part of each box's rows whose people did not report, shape (g,)."""
        at, null = np.arange(self.counts.shape[self.place]), self.law.shape[1]
        silent, everybody = (
            weigh(
                self.counts,
                [np.tile(leaves, (len(m), 1)) if i == self.place else m for i, m in enumerate(boxes)],
            )
            for leaves in ((at == null).astype(np.float64), (at <= null).astype(np.float64))
        )
        return np.clip(silent / np.maximum(everybody, 1.0), 0.0, 1.0)

    def together(self, left: Masks, right: Masks) -> FloatArray:
        """Chance that of a pair of rows with one in the left box the other is in the right one, shape (g,)."""
        chance = np.ones(len(left[0]))
        total = max(float(self.counts.sum()), 1.0)
        for axis, stick in enumerate(self.squares.stick):
            if axis != self.place:
                other_axes = tuple(i for i in range(self.counts.ndim) if i != axis)
                margin = np.maximum(self.counts.sum(axis=other_axes), 0.0) / total
                second = np.clip(right[axis] @ margin, 0.0, 1.0)
                first = np.clip(left[axis] @ margin, 1e-12, 1.0)
                shared = np.clip((left[axis] * right[axis]) @ margin / first, 0.0, 1.0)
                chance = chance * (stick * shared + (1 - stick) * second)
        return chance

    def mean(self, masks: Masks) -> FloatArray:
        """Average contribution of a row of each box, shape (g,)."""
        box = self._within(masks, np.abs(masks[self.place][:, : self.law.shape[1]]))
        rows, reach = np.maximum(weigh(self.counts, box), 1.0), self.deviations.reach
        return np.clip(weigh(self.sums, box) / rows, -reach, reach)

    def shared(self, other: ChannelModel, left: Masks, right: Masks) -> FloatArray:
        """Common part of two statistics, shape (g,): the rows that both add up.

        Args:
            other: of a statistic of the same view, whose questions are the right ones.
            left, right: masks.
        """
        return self._shared(other, left, right, self.rows(left, right))

    def shared_sample(self, other: ChannelModel, left: Masks, right: Masks) -> FloatArray:
        """Sampling part common to two statistics, shape (g,); arguments as `shared`."""
        if not self.sampled:
            return np.zeros(len(left[0]))
        first, second = self.moved(left), other.moved(right)
        return self._shared(other, first, second, self.sample(first, second))

    def _shared(self, other: ChannelModel, left: Masks, right: Masks, rows: FloatArray) -> FloatArray:
        size = self.squares.own + self.squares.pairs * self.together(left, right)
        return np.asarray(rows * size * self.mean(left) * other.mean(right))

    def alone(self, left: Masks, right: Masks) -> FloatArray:
        """Variance that the channel adds to the statistic's own covariances, shape (g,)."""
        return self._alone(left, right, self.rows(left, right))

    def alone_sample(self, left: Masks, right: Masks) -> FloatArray:
        """Sampling part that the channel adds to the statistic's own covariances, shape (g,); 0 if taken as
        given."""
        if not self.sampled:
            return np.zeros(len(left[0]))
        first, second = self.moved(left), self.moved(right)
        return self._alone(first, second, self.sample(first, second))

    def _alone(self, left: Masks, right: Masks, rows: FloatArray) -> FloatArray:
        together = self.squares.pairs * self.together(left, right)
        means = self.mean(left) * self.mean(right)
        apart = np.minimum(
            self.deviations.mean_square, np.maximum(self.deviations.reach**2 - np.abs(means), 0.0)
        )
        size = self.squares.own + together
        return np.asarray(
            rows * (means * size + apart * (self.squares.own + self.deviations.alike * together))
        )


def from_columns(columns: Columns) -> ChannelModel:
    """Rebuild the model from `ChannelModel.columns`."""
    law, scores, counts, sums, constants, stick = arrays_of(columns)
    place, own, pairs, *deviations, sampled = constants.tolist()
    squares = Squares(own, pairs, tuple(stick.tolist()))
    return ChannelModel(
        int(place), law, scores, counts, sums, squares, Deviations(*deviations), bool(sampled)
    )


@dataclass(frozen=True, eq=False)
class ChannelReading(Reading):
    """Reading of a statistic whose view has a reported attribute.

    Args:
        noise: the view's noise, seen through the scores.
        channel: the rest.
    """

    noise: ProductReading
    channel: ChannelModel
    name: ClassVar[str] = "channel"

    def takes(self, boxes: Iterable[Masks]) -> bool:
        return self.noise.takes(boxes)

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        """See `Reading`; noise, channel and who reported."""
        second = masks if other is None else other
        added, sample = self.channel.alone(masks, second), self.channel.alone_sample(masks, second)
        return Covariance(self.noise.covariance(masks, other).noise + added + sample, channel=added)

    def matrix(self, masks: Masks) -> FloatArray:
        """Noise and channel of all combinations of rows, as `Reading` says."""
        cells, covariances = crossed(masks), self.noise.matrix(masks)
        for i in range(len(covariances)):
            row = [np.broadcast_to(cell[i], cell.shape) for cell in cells]
            covariances[i] += self.channel.alone(row, cells) + self.channel.alone_sample(row, cells)
        return covariances

    def columns(self) -> tuple[Columns, ...]:
        """Those of the noise, then the channel's."""
        return (*self.noise.columns(), self.channel.columns())


def shared_channel(one: ChannelReading, other: ChannelReading) -> Shared:
    """Covariance of two statistics of one view: their noise is independent, a person's rows stand under one item."""

    def between(masks: Masks, second: Masks) -> Covariance:
        channel = one.channel.shared(other.channel, masks, second)
        return Covariance(channel + one.channel.shared_sample(other.channel, masks, second), channel=channel)

    return Shared(between)


LARGE = 0.05
"""The answered share from which a range counts as large."""


@dataclass(frozen=True, eq=False)
class StackVariance:
    """Error model of one axis's stack; symmetric and positive semidefinite, shape (n, n) each.

    Args:
        refit, unbiased: covariances of the leaves.
        shares: the stack's answer, shape (n,).
        small, large: part of `unbiased` in the variance of small and of large answers.

    >>> model = StackVariance(np.zeros((2, 2)), np.eye(2), np.array([0.01, 0.99]), 0.25, 1.0)
    >>> model.covariance([np.eye(2)]).tolist(), model.covariance([np.eye(2)], [np.ones((2, 2))]).tolist()
    ([0.25, 1.0], [0.5, 1.0])
    """

    refit: FloatArray
    unbiased: FloatArray
    shares: FloatArray
    small: float
    large: float
    kind: ClassVar[str] = "stack"

    @property
    def n(self) -> int:
        return len(self.shares)

    @cached_property
    def total(self) -> float:
        """The sum of all shares; above 0."""
        return max(float(self.shares.sum()), 1e-300)

    def part(self, masks: FloatArray) -> FloatArray:
        """k of each mask, shape (g,)."""
        large = masks @ self.shares >= LARGE * self.total
        return np.where(large, self.large, self.small)

    def covariance(self, masks: Masks, other: Masks | None = None) -> FloatArray:
        """Covariances of the answers under the masks of the one axis with those under `other`, shape (g,).

        sqrt((1 - k)(1 - k')) u'T'w + sqrt(k k') u'U w: a product of covariances, hence one itself.
        """
        (left,), (right,) = masks, masks if other is None else other
        first, second = self.part(left), self.part(right)
        fit = np.sum((left @ self.refit) * right, axis=1)
        noise = np.sum((left @ self.unbiased) * right, axis=1)
        return np.asarray(np.sqrt((1 - first) * (1 - second)) * fit + np.sqrt(first * second) * noise)

    def scaled(self, factor: float) -> StackVariance:
        """The same with shares multiplied by a factor."""
        squared = factor**2
        return StackVariance(
            self.refit * squared, self.unbiased * squared, self.shares * factor, self.small, self.large
        )

    def columns(self) -> Columns:
        """Both covariances by their upper triangles, the shares, and both parts."""
        return table(upper(self.refit), upper(self.unbiased), self.shares, [self.small, self.large])


def stack_from_columns(columns: Columns) -> StackVariance:
    """The model that `columns` were read from."""
    refit, unbiased, shares, (small, large) = arrays_of(columns)
    n = len(shares)
    return StackVariance(symmetric(refit, n), symmetric(unbiased, n), shares, float(small), float(large))


@dataclass(frozen=True)
class StackReading(Reading):
    """Reading of the non-negative counts of one axis.

    Args:
        pieces: the one model.
        components: the one part, with what the model is multiplied by.
    """

    pieces: tuple[StackVariance]
    components: Components
    name: ClassVar[str] = "stack"
