"""How far numbers may be off that an outer statement made of many noisy cells: sums of groups, differences, shares.

| here | there | unit |
|---|---|---|
| a cell | one part of a value of a block, in one of its rows | |
| `Weights` | d number / d cell, one line for each that is not 0 | |
| a read | a statistic under a box, in one row: what the release stores | stored units |

    Var = sum over pairs of reads of  weight weight' Cov(read, read')

A sum over groups is one read again: masks of groups that are added with one weight are added up, axis by axis, before
anything is asked of the release. So a total has the same error whether it is asked at once or summed from its parts,
and a thousand groups cost as much as one. Reads of two releases are independent, unless both hold one noise.

A quotient has Fieller's interval near 0, as a block's own ratio has. With g = z^2 Var(b) / b^2, and rho the correlation
of the quotient f with its denominator b by the delta method, that interval is

    f - g / (1 - g) b Cov(f, b) / Var(b)  +-  z sd(f) sqrt(1 - g (1 - rho^2)) / (1 - g)

which asks for nothing but f's derivatives. So any f with a denominator near 0 gets it, by the denominator that is
nearest to 0; there is none where g >= 1.

**Privacy**: published values alone.
**Source**: docs/method/views.md, "Variance of a view".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dpsql.answer.answered import Answered, node_list
from dpsql.answer.block import Linear, Ratio, Term
from dpsql.answer.both import both_err, err_apart
from dpsql.answer.cuts import ratio_moved
from dpsql.answer.errorbars import CHUNK, FAR, LAPLACE_KURTOSIS, fieller, quantile, reads
from dpsql.answer.leafsets import FloatArray, IntArray
from dpsql.answer.plan import Box, presence
from dpsql.answer.relation import Relation
from dpsql.answer.scaled import Parts, average, common_parts, follows_scale
from dpsql.answer.sql.carry import ABOVE, BELOW, STEP, Place, place_of
from dpsql.release import Release
from dpsql.release.format import MeasureScale
from dpsql.variance.model import Covariance

MOST_WEIGHTS = 16
"""Different weights of one number up to which masks are added for each weight apart, as they were asked."""
MOST_PAIRS = 4_000_000
"""Pairs of reads that one column may ask for: about ten seconds."""


class Weights(NamedTuple):
    """By how much numbers move with cells or reads; arrays of shape (lines,).

    Args:
        number: which number.
        cell: which cell, or which row of a read.
        weight: the derivative.
    """

    number: IntArray
    cell: IntArray
    weight: FloatArray

    def times(self, factor: FloatArray) -> Weights:
        """Each number times a factor."""
        return Weights(self.number, self.cell, self.weight * factor[self.number])

    def added(self) -> Weights:
        """One line for each number and cell, lines of 0 left out."""
        pairs, back = np.unique(np.stack([self.number, self.cell]), axis=1, return_inverse=True)
        weight = np.bincount(back.reshape(-1), self.weight, pairs.shape[1])
        kept = weight != 0
        return Weights(pairs[0][kept], pairs[1][kept], weight[kept])

    @staticmethod
    def joined(parts: Sequence[Weights]) -> Weights:
        """Lines of several, added up."""
        if not parts:
            return Weights(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return Weights(*columns).added()


def listed(
    numbers: Sequence[Sequence[int] | None], weights: Sequence[Sequence[float | None] | None]
) -> Weights:
    """Weights from a list of cells and of weights for each number, None for one that has none.

    >>> listed([[3, 5], None], [[1.0, 2.0], None]).cell.tolist()
    [3, 5]
    """
    lengths = [len(each or ()) for each in numbers]
    cells = np.array([cell for each in numbers for cell in each or ()], np.int64)
    found = np.array([weight for each in weights for weight in each or ()], np.float64)
    return Weights(np.repeat(np.arange(len(lengths)), lengths), cells, found).added()


class Source(NamedTuple):
    """What is read of a block's answers: a statistic under a box; None is all rows."""

    block: int
    answered: int
    statistic: int
    box: Box | None


class Measured(NamedTuple):
    """A term of a block's answers."""

    block: int
    answered: int
    term: Term


@dataclass(frozen=True, eq=False)
class Cells:
    """Products of masks that numbers are made of, on the axes of one view.

    Args:
        number, weight: of each product, shape (t,).
        at: for each axis which mask each product has, shape (t,).
        masks: for each axis its masks, shape (m_i, n_i).
    """

    number: IntArray
    weight: FloatArray
    at: tuple[IntArray, ...]
    masks: tuple[FloatArray, ...]

    def taken(self, axis: int, rows: IntArray) -> FloatArray:
        """The masks of some products on an axis."""
        return self.masks[axis][self.at[axis][rows]]


def products(answered: Answered, source: Source, weights: Weights) -> Cells:
    """Groups as products of masks, those of equal weight added up axis by axis.

    Args:
        answered: the block's answers.
        source: what is read of them.
        weights: of its rows.
    """
    plan, index = answered.plan, answered.errors.index
    masks = plan.box_masks((None,) * len(plan.cells) if source.box is None else source.box)
    if source.box is None:
        masks = [np.ones((1, mask.shape[1])) for mask in masks]
        index = tuple(np.zeros_like(each) for each in index)
    number, factor = weights.number, weights.weight
    at = [each[weights.cell] for each in index]
    lists = answered.errors.release.reading(source.statistic).listed
    inside = np.ones(len(number))
    if _many_weights(weights):
        most = np.zeros(int(number.max(initial=-1)) + 1)
        np.maximum.at(most, number, np.abs(factor))
        factor, inside = most[number], factor / most[number]
    tables = list(masks)
    free = [i for i in range(len(tables)) if i not in lists]
    for axis in sorted(free, key=lambda i: -len(np.unique(at[i]))):
        keys = np.stack([number, *(at[i] for i in range(len(at)) if i != axis)])
        number, factor, at, tables[axis] = _added_along(axis, keys, Lines(factor, inside, at), tables[axis])
        inside = np.ones(len(number))
    if not np.all(inside == 1.0):  # no axis could take the weights in
        factor = factor * inside
    return Cells(number, factor, tuple(at), tuple(tables))


def _many_weights(weights: Weights) -> bool:
    """Whether some number has more different weights than are kept apart."""
    pairs = np.unique(np.stack([weights.number.astype(np.float64), weights.weight]), axis=1)
    return bool(np.max(np.bincount(pairs[0].astype(np.int64)), initial=0) > MOST_WEIGHTS)


class Lines(NamedTuple):
    """Weights outside and inside of masks, and the masks on each axis."""

    factor: FloatArray
    inside: FloatArray
    at: Sequence[IntArray]


class Along(NamedTuple):
    """Products after masks of one axis were added up."""

    number: IntArray
    factor: FloatArray
    at: list[IntArray]
    table: FloatArray


def _added_along(axis: int, keys: IntArray, lines: Lines, table: FloatArray) -> Along:
    """Add up the masks of lines that differ on one axis alone, weight by weight."""
    _, of_factor = np.unique(lines.factor, return_inverse=True)
    _, first, back = np.unique(
        np.concatenate([keys, of_factor.reshape(1, -1)]), axis=1, return_index=True, return_inverse=True
    )
    back = back.reshape(-1)
    some, at = np.unique(lines.at[axis], return_inverse=True)
    counts = np.zeros((len(first), len(some)))
    np.add.at(counts, (back, at), lines.inside)
    different, which = np.unique(counts, axis=0, return_inverse=True)
    places = [each[first] for each in lines.at]
    places[axis] = which.reshape(-1)
    return Along(keys[0][first], lines.factor[first], places, different @ table[some])


@dataclass(frozen=True, eq=False)
class Composite:
    """Numbers that follow cells of several blocks.

    Args:
        relations: the blocks' answers.
        middle: the numbers, shape (rows,).
        cells: by how much they move with cells.
        linear: whether they do so however far the cells are off.
        quotient: both sides, where they are quotients of linear numbers.
        near: denominators of other quotients.
    """

    relations: tuple[Relation, ...]
    middle: FloatArray
    cells: Weights
    linear: bool
    quotient: Sides | None = None
    near: Denominators | None = None

    def central(self) -> FloatArray:
        """See `Estimated`."""
        return self.middle

    def noise(self) -> FloatArray:
        """See `Estimated`."""
        return np.sqrt(np.maximum(self._variance + self._weighted, 0.0))

    def variance(self, of: Callable[[Covariance], FloatArray | float]) -> FloatArray:
        """See `Estimated`."""
        return np.maximum(of(self._variances), 0.0) + np.zeros(len(self.middle))

    def z(self, level: float) -> float:
        """See `Estimated`; as a block's own, by the fewest stored numbers that one of these is made of."""
        pure = any(a.kurtosis for each in self.relations for a in each.answered)
        return quantile(level, LAPLACE_KURTOSIS / self._fewest if pure else 0.0)

    @cached_property
    def _fewest(self) -> float:
        """The fewest nodes of a statistic that a number is made of, at least 1."""
        found = []
        for source, cells in self._products(self.reads).items():
            answered = self.answered(source)
            nodes = np.ones(len(cells.number))
            for axis, (at, masks) in enumerate(zip(cells.at, cells.masks, strict=True)):
                tree = answered.errors.release.tree(answered.plan.view.axes[axis])
                taken = node_list((masks != 0).astype(np.float64), tree)
                nodes *= np.bincount(taken.group, minlength=len(masks))[at]
            some = np.bincount(cells.number, nodes)
            found += some[some > 0].tolist()
        return max(1.0, min(found, default=1.0))

    def ends(self, z: float) -> tuple[FloatArray, FloatArray]:
        """See `Estimated`."""
        half = z * self.noise()
        low, high = self.middle - half, self.middle + half
        if self.quotient is not None:
            return self._fieller(self.quotient, (low, high), z)
        if self.near is None or not len(self.near.value):
            return low, high
        shift, stretch = self._near_zero(self.near, z)
        return self.middle + shift - half * stretch, self.middle + shift + half * stretch

    def _fieller(
        self, sides: Sides, delta: tuple[FloatArray, FloatArray], z: float
    ) -> tuple[FloatArray, FloatArray]:
        above, below = self._reads_of(sides.above_cells), self._reads_of(sides.below_cells)
        va, cab, vb = (
            self.covariance(u, w).noise for u, w in ((above, above), (above, below), (below, below))
        )
        low, high = fieller(sides.above, sides.below, va, cab, vb, z)
        more = z * np.sqrt(np.maximum(self._weighted, 0.0))
        low, high = (
            self.middle - np.hypot(self.middle - low, more),
            self.middle + np.hypot(high - self.middle, more),
        )
        near = np.abs(sides.below) < FAR * np.sqrt(np.maximum(vb, 0.0))
        return np.where(near, low, delta[0]), np.where(near, high, delta[1])

    def _near_zero(self, near: Denominators, z: float) -> tuple[FloatArray, FloatArray]:
        """By how much intervals move and grow since a denominator is near 0; NaN where one may be 0."""
        variance = np.maximum(self.within(near.cells, len(near.value))._variance, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(near.value == 0, np.inf, z**2 * variance / near.value**2)
        order = np.lexsort((part, near.number))
        last = np.append(near.number[order][1:] != near.number[order][:-1], True)
        worst = order[last]  # of each number, the denominator nearest to 0
        shift, stretch = np.zeros(len(self.middle)), np.ones(len(self.middle))
        own, cells = self._beside_each(near, worst)
        shared = own.covariance(own.reads, cells.reads).noise
        number, g, vb = near.number[worst], part[worst], variance[worst]
        with np.errstate(divide="ignore", invalid="ignore"):
            alike = np.clip(np.where(vb > 0, shared**2 / (own._variance * vb), 0.0), 0.0, 1.0)
            by_far = (FAR * FAR) * g < z**2
            moved = -g / (1 - g) * near.value[worst] * shared / vb
            longer = np.sqrt(1 - g * (1 - alike)) / (1 - g)
        shift[number] = np.where(by_far, 0.0, moved)
        stretch[number] = np.where(by_far, 1.0, np.where(g < 1, longer, np.nan))
        return shift, stretch

    def _beside_each(self, near: Denominators, chosen: IntArray) -> tuple[Composite, Composite]:
        """For some denominators the number that each belongs to, and the denominator itself, line by line."""
        rows = len(chosen)
        i, j = pairs_of(near.number[chosen], self.cells.number)
        own = Weights(i, self.cells.cell[j], self.cells.weight[j])
        i, j = pairs_of(chosen, near.cells.number)
        below = Weights(i, near.cells.cell[j], near.cells.weight[j])
        return self.within(own, rows), self.within(below, rows)

    def moved(self) -> FloatArray:
        """See `Estimated`; a first derivative is no bound, so other than linear numbers and quotients have none."""
        if self.quotient is not None:
            sides = self.quotient
            moved = self._moved(sides.above_cells), self._moved(sides.below_cells)
            return ratio_moved(sides.above, sides.below, moved, None)
        found = self._moved(self.cells)
        return found if self.linear else np.where(found == 0, 0.0, np.nan)

    def _moved(self, cells: Weights) -> FloatArray:
        found = np.zeros(len(self.middle))
        for key, weights in self._terms(cells).items():
            cuts = self.answered(key).cuts[key.term]
            found += np.bincount(weights.number, np.abs(weights.weight) * cuts[weights.cell], len(found))
        return found

    def left_out(self) -> FloatArray:
        """See `Estimated`; NaN where the blocks' differ."""
        shares = set()
        for key in self.terms:
            answered = self.answered(key)
            scale = answered.errors.release.scales.get(answered.plan.view.of)
            share = scale.measure("").left_out if scale is not None and follows_scale(key.term) else 0.0
            shares.add(np.nan if share is None else share)
        return np.full(len(self.middle), shares.pop() if len(shares) == 1 else 0.0 if not shares else np.nan)

    def beside(self) -> Parts | None:
        """See `Estimated`; releases that were scaled each have their own."""
        found: list[Parts] = []
        for release in {id(r): r for r in map(self._release, self.terms)}.values():
            own = {key: weights for key, weights in self.terms.items() if self._release(key) is release}
            scaled = {
                key: weights for key, weights in own.items()
                if release.scales.get(self.answered(key).plan.view.of) is not None and follows_scale(key.term)
            }  # fmt: skip
            if release.meta.local is None and scaled:
                found.append(self._parts(scaled, own))
        return None if not found else Parts(*(sum(each) for each in zip(*map(_fields, found), strict=True)))

    def _parts(self, scaled: Mapping[Measured, Weights], own: Mapping[Measured, Weights]) -> Parts:
        """Scale, spread and tail of the numbers' terms of one release."""
        sizes: dict[MeasureScale, FloatArray] = {}
        none = np.zeros(len(self.middle))
        for key, weights in scaled.items():
            answered = self.answered(key)
            scale = answered.errors.release.scales[answered.plan.view.of].measure(key.term.measure)
            size = weights.weight * answered.totals[key.term][weights.cell]
            sizes[scale] = sizes.get(scale, none) + np.bincount(weights.number, size, len(none))
        of_shares: dict[Source, list[Weights]] = {}
        for key, weights in own.items():
            for source, moved in self._shares(key, weights):
                of_shares.setdefault(source, []).append(moved)
        reads_of = {source: Weights.joined(parts) for source, parts in of_shares.items()}
        alike = {(one, two) for one in reads_of for two in reads_of if one.statistic == two.statistic}
        off = self.covariance(reads_of, reads_of, alike)
        return common_parts(sizes, off.spread + none, off.tail + none)

    def _shares(self, key: Measured, weights: Weights) -> Iterator[tuple[Source, Weights]]:
        """What of a term is read as a share of the total: its statistic, and a sum's rows by the average of a row."""
        answered, term = self.answered(key), key.term
        plan = answered.plan
        statistic, count = plan.view.statistics[term.measure], presence(term.measure, plan.view)
        for box in plan.boxes_for(term):
            by_unit = weights._replace(weight=weights.weight * 10.0**-statistic.scale)
            yield Source(key.block, key.answered, statistic.id, box), by_unit
            if statistic.noise_mid is not None and count is not None and count.id != statistic.id:
                rows = average(answered, term)[weights.cell]
                yield (
                    Source(key.block, key.answered, count.id, box),
                    weights._replace(weight=weights.weight * rows),
                )

    # what is read

    @cached_property
    def terms(self) -> dict[Measured, Weights]:
        """By how much the numbers move with each term, rows for cells."""
        return self._terms(self.cells)

    @cached_property
    def reads(self) -> dict[Source, Weights]:
        """By how much the numbers move with what is read."""
        return self._reads_of(self.cells)

    def _terms(self, cells: Weights) -> dict[Measured, Weights]:
        found: dict[Measured, list[Weights]] = {}
        codes, back = np.unique(cells.cell % STEP, return_inverse=True)
        for i, code in enumerate(codes.tolist()):
            place, mine = place_of(code), back.reshape(-1) == i
            form = _form(self.relations[place.block], place)
            own = Weights(cells.number[mine], cells.cell[mine] // STEP, cells.weight[mine])
            at = self._holds(place.block, form)
            for term, weight in form.weights:
                key = Measured(place.block, at, term)
                found.setdefault(key, []).append(own._replace(weight=own.weight * weight))
        return {key: Weights.joined(parts) for key, parts in found.items()}

    def _holds(self, block: int, form: Linear) -> int:
        """Which of a block's answers holds a form's terms."""
        wanted = self.relations[block].answered_for(form)
        return next(i for i, each in enumerate(self.relations[block].answered) if each is wanted)

    def _reads_of(self, cells: Weights) -> dict[Source, Weights]:
        found: dict[Source, list[Weights]] = {}
        for key, weights in self._terms(cells).items():
            for read in reads(self.answered(key).plan, key.term):
                source = Source(key.block, key.answered, read.statistic, read.box)
                moved = weights._replace(weight=weights.weight * read.factor)
                found.setdefault(source, []).append(moved)
        return {source: Weights.joined(parts) for source, parts in found.items()}

    def answered(self, key: Measured | Source) -> Answered:
        """The answers that a key is about."""
        return self.relations[key.block].answered[key.answered]

    def _release(self, key: Measured | Source) -> Release:
        return self.answered(key).errors.release

    # variances

    @cached_property
    def _variances(self) -> Covariance:
        return self.covariance(self.reads, self.reads)

    @property
    def _variance(self) -> FloatArray:
        return self._variances.noise

    def within(self, cells: Weights, rows: int) -> Composite:
        """Other numbers that follow the same blocks' cells."""
        return Composite(self.relations, np.zeros(rows), cells, True)

    @cached_property
    def _weighted(self) -> FloatArray:
        """What the estimated weight of rows adds to the variance, release by release (`errorbars.Weight`)."""
        found = np.zeros(len(self.middle))
        sizes: dict[int, tuple[float, FloatArray]] = {}
        wholes: dict[Source, list[Weights]] = {}
        for key, weights in self.terms.items():
            answered = self.answered(key)
            weight = answered.errors.weight
            if weight is None:
                continue
            size = np.bincount(
                weights.number, weights.weight * answered.totals[key.term][weights.cell], len(found)
            )
            count = answered.plan.view.statistics["count"].id
            numbers = np.arange(len(found))
            lines = Weights(numbers, np.zeros_like(numbers), -size / weight.rows)
            wholes.setdefault(Source(key.block, key.answered, count, None), []).append(lines)
            release = id(answered.errors.release)
            before = sizes[release][1] if release in sizes else np.zeros(len(found))
            sizes[release] = weight.relative, before + size
        if not wholes:
            return found
        joined = {source: Weights.joined(parts) for source, parts in wholes.items()}
        found += 2 * self.covariance(self.reads, joined).noise + self.covariance(joined, joined).noise
        return found + sum(relative**2 * size**2 for relative, size in sizes.values())

    def covariance(
        self, left: Mapping[Source, Weights], right: Mapping[Source, Weights],
        only: set[tuple[Source, Source]] | None = None,
    ) -> Covariance:  # fmt: skip
        """Covariances of the numbers under two sets of weights, by part.

        Args:
            left, right: what both read.
            only: pairs of sources that count; None for all.
        """
        total = [np.zeros(len(self.middle)) for _ in Covariance._fields]
        made = self._products(left)
        others = made if right is left else self._products(right)
        for one, of_one in made.items():
            for two, of_two in others.items():
                if only is None or (one, two) in only:
                    for part, found in zip(total, self._between(one, of_one, two, of_two), strict=True):
                        part += found
        return Covariance(*total)

    def _products(self, weights: Mapping[Source, Weights]) -> dict[Source, Cells]:
        return {source: products(self.answered(source), source, each) for source, each in weights.items()}

    def _between(self, one: Source, left: Cells, two: Source, right: Cells) -> Covariance:
        """Covariances of what two sources give to the same numbers."""
        none = np.zeros(len(self.middle))
        a, b = self._release(one), self._release(two)
        if a is not b:
            apart = none if err_apart(a, b) else np.full(len(none), np.nan)
            both = np.isin(np.arange(len(none)), np.intersect1d(left.number, right.number))
            return Covariance(np.where(both, apart, 0.0))
        if two.statistic < one.statistic:
            return self._between(two, right, one, left)
        i, j = pairs_of(left.number, right.number)
        between = both_err(a, one.statistic, two.statistic)
        if between is None or not len(i):
            return Covariance(none)
        if len(i) > MOST_PAIRS:
            return Covariance(np.full(len(none), np.nan))
        alone = one == two
        keys = (
            np.stack([*(at[i] for at in left.at), *(at[j] for at in right.at)])
            if left.at or right.at
            else np.zeros((1, len(i)))
        )
        _, first, back = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        values = [np.zeros(len(first)) for _ in Covariance._fields]
        wide = max([mask.shape[1] for mask in (*left.masks, *right.masks)], default=1)
        step = max(1, CHUNK // wide)
        for start in range(0, len(first), step):
            rows = first[start : start + step]
            u = [left.taken(axis, i[rows]) for axis in range(len(left.masks))]
            w = [right.taken(axis, j[rows]) for axis in range(len(right.masks))]
            same = alone and all(np.array_equal(x, y) for x, y in zip(u, w, strict=True))
            for value, part in zip(values, between(u, None if same else w), strict=True):
                value[start : start + step] = part
        factor = left.weight[i] * right.weight[j]
        back = back.reshape(-1)
        parts = [np.bincount(left.number[i], factor * value[back], len(none)) for value in values]
        return Covariance(*(np.asarray(part, np.float64) for part in parts))


class Sides(NamedTuple):
    """Numerators and denominators, and their cells."""

    above: FloatArray
    above_cells: Weights
    below: FloatArray
    below_cells: Weights


class Denominators(NamedTuple):
    """Denominators: the number each belongs to, its value, and the cells of each."""

    number: IntArray
    value: FloatArray
    cells: Weights


def pairs_of(left: IntArray, right: IntArray) -> tuple[IntArray, IntArray]:
    """Positions of all pairs with one number.

    >>> [each.tolist() for each in pairs_of(np.array([0, 1, 1]), np.array([1, 0]))]
    [[0, 1, 2], [1, 0, 0]]
    """
    order = np.argsort(right, kind="stable")
    low = np.searchsorted(right[order], left, "left")
    many = np.searchsorted(right[order], left, "right") - low
    i = np.repeat(np.arange(len(left)), many)
    inside = np.arange(len(i)) - np.repeat(np.cumsum(many) - many, many)
    return i, order[np.repeat(low, many) + inside]


def _form(relation: Relation, place: Place) -> Linear:
    """The linear form that a cell is a value of."""
    value = relation.block.values[place.value]
    if isinstance(value, Ratio):
        return value.above if place.part == ABOVE else value.below
    assert isinstance(value, Linear) and place.part not in (ABOVE, BELOW)
    return value


def _fields(parts: Parts) -> tuple[FloatArray, ...]:
    return parts.scale, parts.spread, parts.down, parts.up
