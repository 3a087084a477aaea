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

from dpsql.answer.answered import Answered
from dpsql.answer.block import Condition, Linear, Ratio, Term
from dpsql.answer.leafsets import FloatArray, IntArray
from dpsql.answer.plan import Box, presence
from dpsql.answer.relation import Relation
from dpsql.answer.sql.carry import ABOVE, BELOW, STEP, Place, place_of
from dpsql.answer.uncertainty.beyond import Moving, Reach, by_table, reach_of, share_beyond
from dpsql.answer.uncertainty.both import both_err, err_apart
from dpsql.answer.uncertainty.estimated import Limits
from dpsql.answer.uncertainty.linear import FAR, cell_variance, fieller, laplace_kurtosis, quantile, reads
from dpsql.answer.uncertainty.pairs import distinct, pairs_of
from dpsql.answer.uncertainty.partial_bins import ratio_moved
from dpsql.answer.uncertainty.scale import Parts, average, common_parts, follows_scale, settled
from dpsql.release import Release
from dpsql.release.format import MeasureScale
from dpsql.release.request import blocks
from dpsql.variance.model import Covariance

MOST_WEIGHTS = 16
"""Different weights of one number up to which masks are added for each weight apart, as they were asked."""


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
        first, back = distinct([self.number, self.cell], len(self.number))
        weight = np.bincount(back, self.weight, len(first))
        first, weight = first[weight != 0], weight[weight != 0]
        return Weights(self.number[first], self.cell[first], weight)

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
    lengths = [len(lines or ()) for lines in numbers]
    cells = np.array([cell for lines in numbers for cell in lines or ()], np.int64)
    derivatives = np.array([weight for lines in weights for weight in lines or ()], np.float64)
    return Weights(np.repeat(np.arange(len(lengths)), lengths), cells, derivatives).added()


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
        index = tuple(np.zeros_like(axis_index) for axis_index in index)
    number, factor = weights.number, weights.weight
    at = [axis_index[weights.cell] for axis_index in index]
    lists = answered.errors.release.reading(source.statistic).listed
    inside = np.ones(len(number))
    if _many_weights(weights):
        largest = np.zeros(int(number.max(initial=-1)) + 1)
        np.maximum.at(largest, number, np.abs(factor))
        factor, inside = largest[number], factor / largest[number]
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
    ranks = np.unique(weights.weight, return_inverse=True)[1].reshape(-1)
    first, _ = distinct([weights.number, ranks], len(ranks))
    return bool(np.max(np.bincount(weights.number[first]), initial=0) > MOST_WEIGHTS)


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
    ranks = np.unique(lines.factor, return_inverse=True)[1].reshape(-1)
    first, back = distinct([*keys, ranks], len(ranks))
    if len(first) == len(ranks) and np.all(lines.inside == 1.0):  # no two lines are one
        return Along(keys[0], lines.factor, list(lines.at), table)
    groups, at = np.unique(lines.at[axis], return_inverse=True)
    counts = np.zeros((len(first), len(groups)))
    np.add.at(counts, (back, at), lines.inside)
    different, inverse = np.unique(counts, axis=0, return_inverse=True)
    places = [axis_index[first] for axis_index in lines.at]
    places[axis] = inverse.reshape(-1)
    return Along(keys[0][first], lines.factor[first], places, different @ table[groups])


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

    def z(self, level: float) -> FloatArray:
        """See `Estimated`."""
        return quantile(level, laplace_kurtosis(self._largest, np.maximum(self._variance, 0.0)))

    @cached_property
    def _largest(self) -> FloatArray:
        """Noise variance that the cell with the largest weight adds, of Laplace noise (`Errors.largest`)."""
        largest = np.zeros(len(self.middle))
        for source, cells in self._products(self.reads).items():
            if not self.answered(source).laplace:
                continue
            peak = np.abs(cells.weight)
            for at, masks in zip(cells.at, cells.masks, strict=True):
                peak = peak * np.abs(masks).max(axis=1)[at]
            variance = cell_variance(self._release(source), source.statistic)
            np.maximum.at(largest, cells.number, np.where(peak > 0, peak, 0.0) ** 2 * variance)
        return largest

    def limits(self) -> Limits | None:
        """See `Estimated`; a quotient of outer sums is not known for an average."""
        return None

    def ends(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
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
        self, sides: Sides, delta: tuple[FloatArray, FloatArray], z: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        above, below = self._reads_of(sides.above_cells), self._reads_of(sides.below_cells)
        va, cab, vb = (
            self.covariance(u, w).noise for u, w in ((above, above), (above, below), (below, below))
        )
        low, high = fieller(sides.above, sides.below, va, cab, vb, z)
        weight_margin = z * np.sqrt(np.maximum(self._weighted, 0.0))
        low, high = (
            self.middle - np.hypot(self.middle - low, weight_margin),
            self.middle + np.hypot(high - self.middle, weight_margin),
        )
        near = np.abs(sides.below) < FAR * np.sqrt(np.maximum(vb, 0.0))
        return np.where(near, low, delta[0]), np.where(near, high, delta[1])

    def _near_zero(self, near: Denominators, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """By how much intervals move and grow since a denominator is near 0; NaN where one may be 0."""
        variance = np.maximum(self.within(near.cells, len(near.value))._variance, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            denominator_g = np.where(near.value == 0, np.inf, z[near.number] ** 2 * variance / near.value**2)
        order = np.lexsort((denominator_g, near.number))
        last = np.append(near.number[order][1:] != near.number[order][:-1], True)
        worst = order[last]  # of each number, the denominator nearest to 0
        shift, stretch = np.zeros(len(self.middle)), np.ones(len(self.middle))
        quotients, cells = self._beside_each(near, worst)
        shared = quotients.covariance(quotients.reads, cells.reads).noise
        number, g, vb = near.number[worst], denominator_g[worst], variance[worst]
        with np.errstate(divide="ignore", invalid="ignore"):
            alike = np.clip(np.where(vb > 0, shared**2 / (quotients._variance * vb), 0.0), 0.0, 1.0)
            by_far = (FAR * FAR) * g < z[number] ** 2
            moved = -g / (1 - g) * near.value[worst] * shared / vb
            longer = np.sqrt(1 - g * (1 - alike)) / (1 - g)
        shift[number] = np.where(by_far, 0.0, moved)
        stretch[number] = np.where(by_far, 1.0, np.where(g < 1, longer, np.nan))
        return shift, stretch

    def _beside_each(self, near: Denominators, chosen: IntArray) -> tuple[Composite, Composite]:
        """For some denominators the number that each belongs to, and the denominator itself, line by line."""
        rows = len(chosen)
        quotients = _taken_by(near.number[chosen], self.cells)
        below = _taken_by(chosen, near.cells)
        return self.within(quotients, rows), self.within(below, rows)

    def moved(self) -> FloatArray:
        """See `Estimated`; a first derivative is no bound, so other than linear numbers and quotients have none."""
        if self.quotient is not None:
            sides = self.quotient
            moved = self._moved(sides.above_cells), self._moved(sides.below_cells)
            return ratio_moved(sides.above, sides.below, moved, None)
        misplaced = self._moved(self.cells)
        return misplaced if self.linear else np.where(misplaced == 0, 0.0, np.nan)

    def _moved(self, cells: Weights) -> FloatArray:
        misplaced = np.zeros(len(self.middle))
        for key, weights in self._terms(cells).items():
            cuts = self.answered(key).cuts[key.term]
            misplaced += np.bincount(
                weights.number, np.abs(weights.weight) * cuts[weights.cell], len(misplaced)
            )
        return misplaced

    def left_out(self) -> FloatArray:
        """See `Estimated`; NaN where the blocks' differ."""
        shares: set[float | None] = set()
        for key in self.terms:
            answered = self.answered(key)
            if follows_scale(key.term):
                beyond = share_beyond(answered.errors.release, answered.plan.view.of)
                shares.add(None if np.isnan(beyond) else beyond)
        share = shares.pop() if len(shares) == 1 else None if shares else 0.0
        return np.full(len(self.middle), np.nan if share is None else share)

    def beside(self) -> Parts | None:
        """See `Estimated`; releases that were scaled each have their own."""
        components: list[Parts] = []
        for release in {id(r): r for r in map(self._release, self.terms)}.values():
            release_terms = {
                key: weights for key, weights in self.terms.items() if self._release(key) is release
            }
            scaled = {
                key: weights for key, weights in release_terms.items()
                if release.scales.get(self.answered(key).plan.view.of) is not None and follows_scale(key.term)
            }  # fmt: skip
            if release.meta.local is None and scaled:
                components.append(self._parts(scaled, release_terms))
            components += map(Parts.beyond, self._beyond(release_terms))
        return Parts.joined(components)

    def _beyond(self, terms: Mapping[Measured, Weights]) -> Iterator[Reach]:
        """How far rows beyond declared bounds may move numbers, for every table of one release."""
        codes: dict[tuple[int, Condition], int] = {}
        moving = []
        for key, weights in terms.items():
            condition = codes.setdefault((key.block, key.term.condition), len(codes))
            rows = weights.cell
            moving.append(
                Moving(self.answered(key), key.term, condition, weights.number, rows, weights.weight)
            )
        for measured, lines in by_table(moving):
            yield reach_of(lines, len(self.middle), measured)

    def _parts(self, scaled: Mapping[Measured, Weights], release_terms: Mapping[Measured, Weights]) -> Parts:
        """Scale, spread and tail of the numbers' terms of one release."""
        sizes: dict[MeasureScale, FloatArray] = {}
        gross: dict[MeasureScale, FloatArray] = {}
        none = np.zeros(len(self.middle))
        for key, weights in scaled.items():
            answered = self.answered(key)
            scale = answered.errors.release.scales[answered.plan.view.of].measure(key.term.measure)
            size = weights.weight * answered.totals[key.term][weights.cell]
            sizes[scale] = sizes.get(scale, none) + np.bincount(weights.number, size, len(none))
            gross[scale] = gross.get(scale, none) + np.bincount(weights.number, np.abs(size), len(none))
        of_shares: dict[Source, list[Weights]] = {}
        for key, weights in release_terms.items():
            for source, moved in self._shares(key, weights):
                of_shares.setdefault(source, []).append(moved)
        reads_of = {source: Weights.joined(summands) for source, summands in of_shares.items()}
        alike = {(one, two) for one in reads_of for two in reads_of if one.statistic == two.statistic}
        off = self.covariance(reads_of, reads_of, alike)
        sizes = {scale: settled(size, gross[scale]) for scale, size in sizes.items()}
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
        terms: dict[Measured, list[Weights]] = {}
        codes, back = np.unique(cells.cell % STEP, return_inverse=True)
        for i, code in enumerate(codes.tolist()):
            place, at_place = place_of(code), back.reshape(-1) == i
            form = _form(self.relations[place.block], place)
            lines = Weights(cells.number[at_place], cells.cell[at_place] // STEP, cells.weight[at_place])
            at = self._holds(place.block, form)
            for term, weight in form.weights:
                key = Measured(place.block, at, term)
                terms.setdefault(key, []).append(lines._replace(weight=lines.weight * weight))
        return {key: Weights.joined(summands) for key, summands in terms.items()}

    def _holds(self, block: int, form: Linear) -> int:
        """Which of a block's answers holds a form's terms."""
        wanted = self.relations[block].answered_for(form)
        return next(i for i, answered in enumerate(self.relations[block].answered) if answered is wanted)

    def _reads_of(self, cells: Weights) -> dict[Source, Weights]:
        by_source: dict[Source, list[Weights]] = {}
        for key, weights in self._terms(cells).items():
            for read in reads(self.answered(key).plan, key.term):
                source = Source(key.block, key.answered, read.statistic, read.box)
                moved = weights._replace(weight=weights.weight * read.factor)
                by_source.setdefault(source, []).append(moved)
        return {source: Weights.joined(summands) for source, summands in by_source.items()}

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
        """What the estimated weight of rows adds to the variance, release by release (`linear.Weight`)."""
        variance = np.zeros(len(self.middle))
        sizes: dict[int, tuple[float, FloatArray]] = {}
        wholes: dict[Source, list[Weights]] = {}
        for key, weights in self.terms.items():
            answered = self.answered(key)
            weight = answered.errors.weight
            if weight is None:
                continue
            size = np.bincount(
                weights.number, weights.weight * answered.totals[key.term][weights.cell], len(variance)
            )
            count = answered.plan.view.statistics["count"].id
            numbers = np.arange(len(variance))
            lines = Weights(numbers, np.zeros_like(numbers), -size / weight.rows)
            wholes.setdefault(Source(key.block, key.answered, count, None), []).append(lines)
            release = id(answered.errors.release)
            subtotal = sizes[release][1] if release in sizes else np.zeros(len(variance))
            sizes[release] = weight.relative, subtotal + size
        if not wholes:
            return variance
        joined = {source: Weights.joined(summands) for source, summands in wholes.items()}
        variance += 2 * self.covariance(self.reads, joined).noise + self.covariance(joined, joined).noise
        return variance + sum(relative**2 * size**2 for relative, size in sizes.values())

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
        left_products = self._products(left)
        right_products = left_products if right is left else self._products(right)
        for left_source, left_cells in left_products.items():
            for right_source, right_cells in right_products.items():
                if only is None or (left_source, right_source) in only:
                    for component, summand in zip(
                        total, self._between(left_source, left_cells, right_source, right_cells), strict=True
                    ):
                        component += summand
        return Covariance(*total)

    def _products(self, weights: Mapping[Source, Weights]) -> dict[Source, Cells]:
        return {
            source: products(self.answered(source), source, source_weights)
            for source, source_weights in weights.items()
        }

    def _between(self, left_source: Source, left: Cells, right_source: Source, right: Cells) -> Covariance:
        """Covariances of what two sources give to the same numbers."""
        none = np.zeros(len(self.middle))
        a, b = self._release(left_source), self._release(right_source)
        if a is not b:
            apart = none if err_apart(a, b) else np.full(len(none), np.nan)
            common = np.isin(np.arange(len(none)), np.intersect1d(left.number, right.number))
            return Covariance(np.where(common, apart, 0.0))
        if right_source.statistic < left_source.statistic:
            return self._between(right_source, right, left_source, left)
        between = both_err(a, left_source.statistic, right_source.statistic)
        total = [np.zeros(len(none)) for _ in Covariance._fields]
        if between is None:
            return Covariance(none)
        for i, j in pairs_of(left.number, right.number):
            first, back = distinct([at[i] for at in left.at] + [at[j] for at in right.at], len(i))
            values = [np.zeros(len(first)) for _ in Covariance._fields]
            for block in blocks(
                len(first), max([m.shape[1] for m in (*left.masks, *right.masks)], default=1)
            ):
                u = [left.taken(axis, i[first[block]]) for axis in range(len(left.masks))]
                w = [right.taken(axis, j[first[block]]) for axis in range(len(right.masks))]
                same = left_source == right_source and all(
                    np.array_equal(x, y) for x, y in zip(u, w, strict=True)
                )
                for value, component in zip(values, between(u, None if same else w), strict=True):
                    value[block] = component
            factor = left.weight[i] * right.weight[j]
            for component, value in zip(total, values, strict=True):
                component += np.bincount(left.number[i], factor * value[back], len(none))
        return Covariance(*total)


def _taken_by(numbers: IntArray, weights: Weights) -> Weights:
    """For each of some numbers its lines, numbered anew in this order."""
    pairs = [(i, weights.cell[j], weights.weight[j]) for i, j in pairs_of(numbers, weights.number)]
    none = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    return Weights(*(np.concatenate(column) for column in zip(none, *pairs, strict=True)))


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


def _form(relation: Relation, place: Place) -> Linear:
    """The linear form that a cell is a value of."""
    value = relation.block.values[place.value]
    if isinstance(value, Ratio):
        return value.above if place.part == ABOVE else value.below
    assert isinstance(value, Linear) and place.part not in (ABOVE, BELOW)
    return value
