"""Answers of distinct counts, with their variances.

A person counts once in every cell that she touches, so cells do not add up. Two readings know which sums are right.

**Gaps.** A person who touches leaves k_1 < .. < k_d of an axis has d + 1 gaps (k_i, k_(i+1)), with k_0 = -1 and
k_(d+1) = n. G[p, k] counts the people with that gap. Who touches the range [i, j) has in it a first leaf k after one
p < i, and only one, so the people of a range are a sum of different gaps. Every leaf that ends a gap begins another, so
gaps are a flow from -1 to n: what enters a leaf leaves it. Least squares with that, and with the noisy number of all
people, gives the stored estimate of each range, one number a range.

With F the flow, H the rows, W their precisions and A = (H' W H)^-1 the estimate is least squares under F g = 0, of
covariance S = A - A F' (F A F')^-1 F A.

| here | there | unit |
|---|---|---|
| `gap_weights` | b: integer budgets of the rows, one for everybody and one for each gap | - |
| `gap_total` | B: what the budgets of one person's rows add up to, B = 10 (n + 1) | - |
| `range_number` | where the people of [i, j) are stored | - |
| `gap_variance` | u' S w, S the covariance of the gaps after least squares | variance of a row of budget B |

**Cells.** Where several axes, or a long one, are not a person's own, single cells are stored, with one weight a person.

Axes on which each person has one leaf (her country) add up in both.

**Source**: docs/method/views.md, "Ranges by gaps", "Cells".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, product
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np

from dpsql.matrices.model import (
    PERHAPS,
    Columns,
    Components,
    Covariance,
    Masks,
    Reading,
    arrays_of,
    table,
)
from dpsql.tree import FloatArray, IntArray

ALL = 10
"""Everybody's row gets one part in so many. Of 1/20, 1/10, 3/20 and 1/5 this is within 3% of the least mean variance
over all ranges for 6 to 64 leaves, under both laws."""


@lru_cache(maxsize=64)
def gaps_of(n: int) -> tuple[IntArray, IntArray]:
    """All gaps between n leaves in stored order, but the one of nobody at all, (-1, n).

    Returns:
        The leaf before each (-1: none) and the leaf after it (n: none), each of shape (m,).
    """
    pairs = [(p, k) for p in range(-1, n) for k in range(p + 1, n + 1) if k - p <= n]
    before, after = np.array(pairs, np.int64).reshape(-1, 2).T
    return before, after


def gap_total(n: int) -> int:
    """Sum of the budgets of one person's rows, whatever leaves she touches."""
    return ALL * (n + 1)


def gap_weights(n: int) -> IntArray:
    """Integer budgets: of everybody's row, then of each gap by its length. Lengths of a person's gaps add up to n + 1.

    >>> gap_weights(2).tolist(), gap_total(2)
    ([3, 9, 18, 9, 18, 9], 30)
    """
    before, after = gaps_of(n)
    return np.append(n + 1, (ALL - 1) * (after - before)).astype(np.int64)


def ranges_of(n: int) -> tuple[IntArray, IntArray]:
    """Ends [i, j) of every range of n leaves, in stored order."""
    i, j = np.triu_indices(n)
    return i.astype(np.int64), j.astype(np.int64) + 1


@dataclass(frozen=True, eq=False)
class GapModel:
    """Least squares on the gaps of n leaves.

    Args:
        n: leaves.
        norm: 1 where a row of budget b has (B / b)^2 times the variance of a row of budget B, 2 where it has B / b.
    """

    n: int
    norm: int

    @cached_property
    def precision(self) -> FloatArray:
        """Of every row, everybody's first, shape (m + 1,)."""
        return np.asarray((gap_weights(self.n) / gap_total(self.n)) ** (2 / self.norm), np.float64)

    @cached_property
    def _first(self) -> FloatArray:
        """The gaps that begin a person, each of whom has one, shape (m,)."""
        before, _ = gaps_of(self.n)
        return np.asarray(before == -1, np.float64)

    @cached_property
    def _flow(self) -> FloatArray:
        """Net flow into each leaf, shape (n, m)."""
        (before, after), leaf = gaps_of(self.n), np.arange(self.n)[:, None]
        return np.asarray((after == leaf).astype(np.float64) - (before == leaf), np.float64)

    def _solve(self, x: FloatArray) -> FloatArray:
        """(H' W H)^-1 x for columns x, shape (m, q): a diagonal and everybody's row."""
        everybody, diagonal = self.precision[0], self.precision[1:]
        scaled = x / diagonal[:, None]
        first = self._first / diagonal
        seen = self._first @ scaled
        return np.asarray(scaled - np.outer(first, seen) * (everybody / (1 + everybody * first.sum())))

    @cached_property
    def _held(self) -> tuple[FloatArray, FloatArray]:
        """(H'WH)^-1 F' and (F (H'WH)^-1 F')^-1 of the flow F."""
        solved = self._solve(self._flow.T)
        return solved, np.asarray(np.linalg.inv(self._flow @ solved), np.float64)

    def project(self, x: FloatArray) -> FloatArray:
        """S x for columns x, shape (m, q): S is the covariance of the gaps that flow."""
        solved, core = self._held
        free = self._solve(x)
        return np.asarray(free - solved @ (core @ (self._flow @ free)))

    def people(self, i: IntArray, j: IntArray) -> FloatArray:
        """The gaps that add up to the people of ranges [i, j), shape (m, q): one from before i to a leaf in it."""
        before, after = (ends[:, None] for ends in gaps_of(self.n))
        return ((before < i) & (after >= i) & (after < j)).astype(np.float64)

    def estimate(self, rows: FloatArray) -> FloatArray:
        """Best linear unbiased number of people of every range.

        Args:
            rows: measurements, everybody's first, shape (q, m + 1).

        Returns:
            Shape (q, ranges), as `ranges_of` orders them.
        """
        weighed = rows * self.precision
        gaps = self.project((weighed[:, :1] * self._first + weighed[:, 1:]).T)
        return np.asarray((self.people(*ranges_of(self.n)).T @ gaps).T)

    def covariance(self, left: Sequence[IntArray], right: Sequence[IntArray]) -> FloatArray:
        """Covariances of the people of ranges with those of others, for a row of budget B of variance 1.

        Args:
            left, right: ends (i, j), each of shape (q,).
        """
        return np.asarray(np.sum(self.people(*left) * self.project(self.people(*right)), axis=0))

    def mean_variance(self) -> float:
        ends = ranges_of(self.n)
        return float(self.covariance(ends, ends).mean())


@lru_cache(maxsize=32)
def gap_model(n: int, norm: int) -> GapModel:
    """The model of so many leaves, made once."""
    return GapModel(n, norm)


class Single(NamedTuple):
    """Stored extras of a distinct statistic.

    Args:
        kind: of the variance table.
        place: position of the axis of gaps; -1 for cells.
        norm: as of `GapModel`; 0 for cells.
        leaves: of each axis.
        own: 1 for an axis on which each person has one leaf.
    """

    kind: str
    place: int
    norm: int
    leaves: tuple[int, ...]
    own: tuple[int, ...]

    def columns(self) -> Columns:
        return table([self.place, self.norm], self.leaves, self.own)


class PeopleBounds(NamedTuple):
    """Lines between which the people of a cell lie, given its estimate y without noise.

        max(slope y - shift) <= people <= min(slope y + shift)

    Args:
        low, high: slope and shift of each line.
    """

    low: tuple[tuple[float, float], ...]
    high: tuple[tuple[float, float], ...]

    def below(self, y: FloatArray) -> FloatArray:
        """The fewest people."""
        return np.asarray(np.max([slope * y - shift for slope, shift in self.low], axis=0), np.float64)

    def above(self, y: FloatArray) -> FloatArray:
        """The most people."""
        return np.asarray(np.min([slope * y + shift for slope, shift in self.high], axis=0), np.float64)


GAPS, CELLS = "gaps", "touched"


def from_columns(kind: str, columns: Columns) -> Single:
    """Rebuild from `columns()`."""
    (place, norm), leaves, own = (tuple(array.astype(int).tolist()) for array in arrays_of(columns))
    return Single(kind, place, norm, leaves, own)


def _apart(boxes: Sequence[Masks], single_leaf: Sequence[int]) -> bool:
    """True if nobody is in two boxes: each pair takes different leaves of an axis on which a person has one."""
    return all(
        any(
            single and not np.any(u * w > PERHAPS)
            for u, w, single in zip(left, right, single_leaf, strict=True)
        )
        for left, right in combinations(boxes, 2)
    )


def _whole(mask: FloatArray) -> bool:
    """True if no leaf is cut."""
    return bool(np.all((mask == 0.0) | (mask == 1.0)))


def _decided(mask: FloatArray) -> FloatArray:
    """A mask without its last leaf, that of values outside of the domain, where perhaps none or not all is meant."""
    decided = mask.copy()
    decided[:, -1] *= (mask[:, -1] > PERHAPS) & ((mask[:, -1] == 1.0) | (mask[:, -1] < 1.0 - PERHAPS))
    return decided


def _along(masks: Masks, second: Masks, places: Iterable[int]) -> FloatArray:
    """Products over axes of what two masks have in common, shape (g,)."""
    shared = [np.sum(masks[i] * second[i], axis=1) for i in places]
    return np.asarray(prod(shared, start=np.ones(len(masks[0]))), np.float64)


@dataclass(frozen=True)
class GapReading(Reading):
    """Reading of people in ranges: one stored number a range, added up over the other axes.

    Args:
        pieces: what the statistic is.
        components: the one part, of all axes: variance of a row of budget B.
    """

    pieces: tuple[Single]
    components: Components
    name: ClassVar[str] = GAPS

    @property
    def listed(self) -> Mapping[int, int]:
        """The axis of gaps and its number of ranges."""
        n = self.pieces[0].leaves[self.pieces[0].place]
        return {self.pieces[0].place: n * (n + 1) // 2}

    def takes(self, boxes: Iterable[Masks]) -> bool:
        """Whole leaves that stand beside each other, and nobody in two boxes."""
        taken, single = list(boxes), self.pieces[0]
        ranges = [_decided(box[single.place]) for box in taken]
        contiguous = all(_whole(mask) and np.all(np.diff(mask, axis=1, prepend=0.0).clip(0).sum(axis=1) <= 1)
                     for mask in ranges)  # fmt: skip
        return contiguous and _apart(taken, single.own)

    def stored(self, masks: Masks) -> Masks:
        """Masks of the stored numbers of the ranges, as `Reading` says."""
        place = self.pieces[0].place
        picked = np.zeros((len(masks[place]), self.listed[place]))
        for i, j, weight in _parts(masks[place]):
            nonempty = np.flatnonzero(j > i)
            # Index of the stored number of people of the range [i, j) of n leaves
            first, last = np.asarray(i[nonempty], np.int64), np.asarray(j[nonempty], np.int64)
            numbers = first * masks[place].shape[1] - first * (first - 1) // 2 + last - first - 1
            picked[nonempty, numbers] += weight[nonempty]
        return [picked if axis == place else mask for axis, mask in enumerate(masks)]

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        """Covariances under `masks` and `other`, as `Reading` says: those of the gaps, leaf by leaf of other axes."""
        single, right = self.pieces[0], masks if other is None else other
        (sigma2,) = self.components.values()
        model = gap_model(masks[single.place].shape[1], single.norm)
        of_ranges = np.zeros(len(masks[single.place]))
        for (i, j, weight), (k, m, by) in product(_parts(masks[single.place]), _parts(right[single.place])):
            ends, back = np.unique(np.stack([i, j, k, m], axis=1), axis=0, return_inverse=True)
            found = model.covariance((ends[:, 0], ends[:, 1]), (ends[:, 2], ends[:, 3]))
            of_ranges += weight * by * found[back.reshape(-1)]
        other_axes = [axis for axis in range(len(masks)) if axis != single.place]
        return Covariance(sigma2 * of_ranges * _along(masks, right, other_axes))


def _parts(mask: FloatArray) -> list[tuple[IntArray, IntArray, FloatArray]]:
    """Ranges [i, j) that a mask takes, with their weights: one of leaves beside each other, and where some row has it
    apart or in part the last leaf; people of both count twice, so their sum is at least the number of people."""
    last = mask[:, -1]
    apart = (last > 0) & ((last < 1) | ((mask[:, -2:-1].sum(axis=1) == 0) & mask[:, :-1].any(axis=1)))
    ranges = mask.copy()
    ranges[apart, -1] = 0.0
    parts = [(*_ends(ranges), np.ones(len(mask)))]
    if apart.any():
        end = np.where(apart, mask.shape[1], 0).astype(np.int64)
        parts.append((end - apart, end, np.where(apart, last, 0.0)))
    return parts


def _ends(mask: FloatArray) -> tuple[IntArray, IntArray]:
    """First leaf and one past the last of each row's range; 0, 0 where it takes none."""
    n = mask.shape[1]
    taken = mask > 0
    nonempty = taken.any(axis=1)
    first = np.where(nonempty, taken.argmax(axis=1), 0)
    last = np.where(nonempty, n - taken[:, ::-1].argmax(axis=1), 0)
    return first.astype(np.int64), last.astype(np.int64)


@dataclass(frozen=True)
class TouchedReading(Reading):
    """Reading of people in single cells; they add up along a person's own axes alone.

    Args:
        pieces: what the statistic is.
        components: the one part, of all axes: variance of a cell.
    """

    pieces: tuple[Single]
    components: Components
    name: ClassVar[str] = CELLS

    @property
    def listed(self) -> Mapping[int, int]:
        """The axes along which cells do not add up, and their leaves."""
        (single,) = self.pieces
        return {i: single.leaves[i] for i, single_leaf in enumerate(single.own) if not single_leaf}

    def takes(self, boxes: Iterable[Masks]) -> bool:
        """One whole leaf of each axis that does not add up, and nobody in two boxes."""
        taken = list(boxes)
        listed = [_decided(box[i]) for box in taken for i in self.listed]
        single = all(_whole(mask) and np.all(mask.sum(axis=1) <= 1) for mask in listed)
        return single and _apart(taken, self.pieces[0].own)

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        """Covariances under `masks` and `other`, as `Reading` says: cells are independent."""
        (sigma2,) = self.components.values()
        return Covariance(sigma2 * _along(masks, masks if other is None else other, range(len(masks))))
