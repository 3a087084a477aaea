"""Numbers that are linear in noisy cells: what they read of releases, and how these reads err together.

A block's value follows one cell, its own row's; an outer statement's value follows the cells of many groups.

| here | there | unit |
|---|---|---|
| a cell | one term of a block's answers, in one of its rows | |
| `Weights` | d number / d cell, one line for each that is not 0 | |
| a read | a statistic under a box, in one row: what the release stores | stored units |

    Var = sum over pairs of reads of  weight weight' Cov(read, read')

A sum over groups is one read again: masks of groups that are added with one weight are added up, axis by axis, before
the release's model of its noise is evaluated. So a total has the same error whether SQL sums all rows or the groups,
and a thousand groups cost as much as one. Reads of two releases are independent, unless both hold one noise.

**Privacy**: published values alone.
**Source**: docs/method/views.md, "Variance of a view".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from dpsql.catalog.base import COUNT
from dpsql.executor.recombine import TermEstimates
from dpsql.intervals.reads import cell_variance, reads
from dpsql.matrices.kronecker import ProductReading, on_runs
from dpsql.matrices.model import UNKNOWN, Covariance, Edges, Reading, Shared, by_leaf
from dpsql.planner.axis_query import FloatArray, IntArray
from dpsql.planner.block import Linear
from dpsql.planner.plan import Box
from dpsql.planner.schema import Term
from dpsql.release import Release
from dpsql.release.promises import independent
from dpsql.release.request import blocks, check

MOST_WEIGHTS = 16
"""Different weights of one number up to which masks are added for each weight apart, as they were asked."""
PAIRS = 1 << 18
"""Pairs that are worked out at once: 30 MB with what tells them apart."""


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

    @property
    def by_row(self) -> bool:
        """True if number i follows row i alone: one array then numbers both."""
        return self.number is self.cell

    def times(self, factor: FloatArray) -> Weights:
        """Each number times a factor."""
        return self._replace(weight=self.weight * factor[self.number])

    def totals(self, values: FloatArray, numbers: int) -> FloatArray:
        """Values of the lines added up for each number."""
        return np.asarray(np.bincount(self.number, values, numbers), np.float64)

    def taken_by(self, numbers: IntArray) -> Weights:
        """For each of some numbers its lines, numbered anew in this order."""
        pairs = [(i, self.cell[j], self.weight[j]) for i, j in pairs_of(numbers, self.number)]
        none = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        return Weights(*(np.concatenate(column) for column in zip(none, *pairs, strict=True)))

    @staticmethod
    def joined(summands: Sequence[Weights]) -> Weights:
        """Lines of several added up, one for each number and cell; lines of 0 left out unless all go row by row."""
        if summands and all(weights.by_row for weights in summands):
            return summands[0]._replace(weight=sum((weights.weight for weights in summands), np.zeros(1)))
        columns = [np.concatenate(column) for column in zip(NO_WEIGHTS, *summands, strict=True)]
        lines = Weights(*columns)
        first, back = distinct([lines.number, lines.cell], len(lines.number))
        weight = np.bincount(back, lines.weight, len(first))
        first, weight = first[weight != 0], weight[weight != 0]
        return Weights(lines.number[first], lines.cell[first], weight)


K = TypeVar("K")


def joined_lines(lines: Iterable[tuple[K, Weights]]) -> dict[K, Weights]:
    """Lines of each term or read added up."""
    summands: dict[K, list[Weights]] = {}
    for key, weights in lines:
        summands.setdefault(key, []).append(weights)
    return {key: Weights.joined(of_key) for key, of_key in summands.items()}


NO_WEIGHTS = Weights(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


class MeasuredTerm(NamedTuple):
    """A term of a block's answers.

    Args:
        block: the block's number in its statement.
        answered: the answers that hold the term.
        term: the term.
    """

    block: int
    answered: TermEstimates
    term: Term


class BoxStatistic(NamedTuple):
    """Statistic read under a box for a block's answers; None as box for all rows."""

    block: int
    answered: TermEstimates
    statistic: int
    box: Box | None

    @property
    def release(self) -> Release:
        """The release that stores it."""
        return self.answered.errors.release


Reads = Mapping[BoxStatistic, Weights]
"""By how much numbers move with what is read."""


def _cut(key: MeasuredTerm) -> bool:
    """True if rows of a term lie in bins that are cut, or whose values are taken as evenly spread."""
    moved = key.answered.cuts[key.term].most
    return any(cells.uncertain for cells in key.answered.plan.cells) or bool(np.any(moved != 0))


@dataclass(frozen=True, eq=False)
class LinearNumbers:
    """Numbers that are linear in terms.

    Args:
        count: how many numbers.
        terms: by how much they move with each term.
    """

    count: int
    terms: Mapping[MeasuredTerm, Weights]

    @staticmethod
    def of_form(form: Linear, answered: TermEstimates) -> LinearNumbers:
        """A block's linear form, row by row."""
        rows = answered.errors.rows
        return LinearNumbers.of_slopes(
            [(term, np.full(rows, weight)) for term, weight in form.weights], answered
        )

    @staticmethod
    def of_slopes(slopes: Sequence[tuple[Term, FloatArray]], answered: TermEstimates) -> LinearNumbers:
        """Numbers that move with a block's terms, row by row, by these slopes."""
        rows = np.arange(answered.errors.rows)
        lines = ((MeasuredTerm(0, answered, term), Weights(rows, rows, slope)) for term, slope in slopes)
        return LinearNumbers(answered.errors.rows, joined_lines(lines))

    @cached_property
    def reads(self) -> Reads:
        """By how much the numbers move with what is read."""
        return joined_lines(
            (BoxStatistic(key.block, key.answered, read.statistic, read.box),
             weights._replace(weight=weights.weight * read.factor))
            for key, weights in self.terms.items() for read in reads(key.answered.plan, key.term)
        )  # fmt: skip

    @cached_property
    def variances(self) -> Covariance:
        """Variances by component, as rounding leaves them: perhaps a little below 0."""
        return covariance(self.reads, self.reads, self.count)

    @cached_property
    def interpolation_bound(self) -> tuple[FloatArray, FloatArray]:
        """By how much cut bins may make the numbers too large, and too small."""
        below, above = np.zeros(self.count), np.zeros(self.count)
        for key, weights in self.terms.items():
            mass, more = key.answered.cuts[key.term], weights.weight > 0
            sides = mass.below[weights.cell], mass.above[weights.cell]
            size = np.abs(weights.weight)
            for total, moved in ((below, np.where(more, *sides)), (above, np.where(more, *sides[::-1]))):
                # a bin that is not cut moves nothing, also by a slope that is not defined
                products = np.multiply(size, moved, out=np.zeros_like(size), where=moved != 0)
                total += weights.totals(products, self.count)
        return below, above

    @property
    def cut(self) -> bool:
        """True if cut or mixed bins may move some number, also those of a mass that noise made 0 or less."""
        return any(map(_cut, self.terms))

    @cached_property
    def cut_corners(self) -> tuple[LinearNumbers, ...]:
        """The same numbers of every cut bin taken whole, of none, and of those alone that add to them, or take away.

        Their noise is that of the ends that a cut may have: where nodes are drawn, a part may have more than the whole.
        """
        cut = frozenset(filter(_cut, self.terms))
        taking = frozenset(key for key in cut if np.sum(self.terms[key].weight) < 0)
        return tuple(
            map(self._with_cuts, dict.fromkeys((cut, frozenset[MeasuredTerm](), taking, cut - taking)))
        )

    def _with_cuts(self, whole: Set[MeasuredTerm]) -> LinearNumbers:
        terms = {
            key._replace(answered=key.answered.whole if key in whole else key.answered.without)
            if _cut(key)
            else key: w
            for key, w in self.terms.items()
        }
        return LinearNumbers(self.count, terms)

    def taken(self, numbers: IntArray) -> LinearNumbers:
        """Some of the numbers, in this order."""
        terms = {key: weights.taken_by(numbers) for key, weights in self.terms.items()}
        return LinearNumbers(len(numbers), terms)

    @cached_property
    def weight_variance(self) -> FloatArray | None:
        """Variance added by the estimated weight of rows, release by release (`reads.EstimatedWeight`)."""
        sizes: dict[int, tuple[float, FloatArray]] = {}
        wholes: list[tuple[BoxStatistic, Weights]] = []
        numbers = np.arange(self.count)
        for key, weights in self.terms.items():
            if key.answered.errors.weight is None:
                continue
            relative, rows, _ = key.answered.errors.weight
            size = weights.totals(weights.weight * key.answered.totals[key.term][weights.cell], self.count)
            whole = BoxStatistic(key.block, key.answered, key.answered.plan.view.statistics[COUNT].id, None)
            lines = Weights(numbers, np.zeros_like(numbers), -size / rows)
            wholes.append((whole, lines))
            release = id(key.answered.errors.release)
            subtotal = sizes[release][1] if release in sizes else np.zeros(self.count)
            sizes[release] = relative, subtotal + size
        if not wholes:
            return None
        joined = joined_lines(wholes)
        variance = (
            2 * covariance(self.reads, joined, self.count).noise
            + covariance(joined, joined, self.count).noise
        )
        return variance + sum(error**2 * size**2 for error, size in sizes.values())


@dataclass(frozen=True, eq=False)
class MaskProducts:
    """Products of masks that numbers are made of, on the axes of one view.

    Args:
        number, weight: of each product, shape (t,).
        at: for each axis which mask each product has, shape (t,).
        masks: for each axis its masks, shape (m_i, n_i).
        edges: runs of leaves, the columns of masks, of each axis.
    """

    number: IntArray
    weight: FloatArray
    at: tuple[IntArray, ...]
    masks: tuple[FloatArray, ...]
    edges: Edges

    def cut_at(self, edges: Edges) -> MaskProducts:
        """The same over shorter runs."""
        masks = [
            by_leaf(mask, old) if new is None or old is None else mask[:, np.searchsorted(old, new[:-1], "right") - 1]
            for mask, old, new in zip(self.masks, self.edges, edges, strict=True)
        ]  # fmt: skip
        return replace(self, masks=tuple(masks), edges=edges)

    def taken(self, axis: int, rows: IntArray) -> FloatArray:
        """The masks of some products on an axis."""
        return self.masks[axis][self.at[axis][rows]]


def mask_products(source: BoxStatistic, weights: Weights) -> MaskProducts:
    """Groups as products of masks, those of equal weight added up axis by axis.

    Args:
        source: what is read.
        weights: of its rows.
    """
    plan, index = source.answered.plan, source.answered.errors.index
    masks = plan.box_masks((None,) * len(plan.cells) if source.box is None else source.box)
    if source.box is None:
        masks = [np.ones((1, mask.shape[1])) for mask in masks]
        index = tuple(np.zeros_like(axis_index) for axis_index in index)
    if weights.by_row:  # no two rows are one number
        return MaskProducts(weights.number, weights.weight, index, tuple(masks), plan.edges)
    number, factor = weights.number, weights.weight
    at = [axis_index[weights.cell] for axis_index in index]
    lists = source.release.reading(source.statistic).listed
    inside = np.ones(len(number))
    if _many_weights(weights):
        largest = np.zeros(int(number.max(initial=-1)) + 1)
        np.maximum.at(largest, number, np.abs(factor))
        factor, inside = largest[number], factor / largest[number]
    tables = list(masks)
    fitted = source.release.fitted(source.statistic)
    is_sum = fitted is None or fitted.takes([tables])  # fits of parts do not add up to the fit of the whole
    free = [i for i in range(len(tables)) if is_sum and i not in lists]
    for axis in sorted(free, key=lambda i: -len(np.unique(at[i]))):
        keys = np.stack([number, *(at[i] for i in range(len(at)) if i != axis)])
        number, factor, at, tables[axis] = _added_along(axis, keys, factor, inside, at, tables[axis])
        inside = np.ones(len(number))
    if not np.all(inside == 1.0):  # no axis could take the weights in
        factor = factor * inside
    return MaskProducts(number, factor, tuple(at), tuple(tables), plan.edges)


def _many_weights(weights: Weights) -> bool:
    """True if some number has more different weights than are kept apart."""
    ranks = np.unique(weights.weight, return_inverse=True)[1].reshape(-1)
    first, _ = distinct([weights.number, ranks], len(ranks))
    return bool(np.max(np.bincount(weights.number[first]), initial=0) > MOST_WEIGHTS)


def _added_along(
    axis: int,
    keys: IntArray,
    factor: FloatArray,
    inside: FloatArray,
    at: Sequence[IntArray],
    table: FloatArray,
) -> tuple[IntArray, FloatArray, list[IntArray], FloatArray]:
    """Add up the masks `at` of lines that differ on one axis alone, weight by weight: `factor` outside of the masks,
    `inside` in them.

    Returns:
        Number, factor and masks of each line, and the axis's masks.
    """
    ranks = np.unique(factor, return_inverse=True)[1].reshape(-1)
    first, back = distinct([*keys, ranks], len(ranks))
    if len(first) == len(ranks) and np.all(inside == 1.0):  # no two lines are one
        return keys[0], factor, list(at), table
    groups, group = np.unique(at[axis], return_inverse=True)
    counts = np.zeros((len(first), len(groups)))
    np.add.at(counts, (back, group), inside)
    different, inverse = np.unique(counts, axis=0, return_inverse=True)
    places = [axis_index[first] for axis_index in at]
    places[axis] = inverse.reshape(-1)
    return keys[0][first], factor[first], places, different @ table[groups]


def pairs_of(left: IntArray, right: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Positions of all pairs with one number, in blocks of about `PAIRS`; the request is asked before each.

    >>> [[i.tolist(), j.tolist()] for i, j in pairs_of(np.array([0, 1, 1]), np.array([1, 0]))]
    [[[0, 1, 2], [1, 0, 0]]]
    """
    order = np.argsort(right, kind="stable")
    low = np.searchsorted(right[order], left, "left")
    many = np.searchsorted(right[order], left, "right") - low
    ends = np.cumsum(many)
    start = 0
    while start < len(left):
        check()
        offset = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, offset + PAIRS, "right")))
        i = np.repeat(np.arange(start, stop), many[start:stop])
        inside = np.arange(len(i)) + offset - np.repeat(ends[start:stop] - many[start:stop], many[start:stop])
        yield i, order[np.repeat(low[start:stop], many[start:stop]) + inside]
        start = stop


def distinct(columns: Sequence[IntArray], rows: int) -> tuple[IntArray, IntArray]:
    """First rows of the different rows of some columns of numbers from 0 on, and to which of them each row belongs."""
    code = np.zeros(rows, np.int64)
    for column in columns:
        size = int(column.max(initial=0)) + 1
        if int(code.max(initial=0)) > np.iinfo(np.int64).max // (size + 1):
            code = np.unique(code, return_inverse=True)[1].reshape(-1)
        code = code * size + column
    _, first, back = np.unique(code, return_index=True, return_inverse=True)
    return first, back.reshape(-1)


def largest_cells(moved: Reads, count: int) -> FloatArray:
    """Noise variance that the cell with the largest weight adds to each number, of Laplace noise."""
    largest = np.zeros(count)
    for source, weights in moved.items():
        if source.answered.laplace:
            products = mask_products(source, weights)
            peak = np.abs(products.weight)
            for at, masks in zip(products.at, products.masks, strict=True):
                peak = peak * np.abs(masks).max(axis=1)[at]
            variance = cell_variance(source.release, source.statistic)
            np.maximum.at(largest, products.number, np.where(peak > 0, peak, 0.0) ** 2 * variance)
    return largest


def covariance(
    left: Reads, right: Reads, count: int,
    only: Collection[tuple[BoxStatistic, BoxStatistic]] | None = None,
) -> Covariance:  # fmt: skip
    """Covariances of numbers under two sets of weights, by component.

    Args:
        left, right: what both read.
        count: how many numbers there are.
        only: pairs of sources that count; None for all.
    """
    total = [np.zeros(count) for _ in Covariance._fields]

    @cache  # made when the first pair needs them
    def products(source: BoxStatistic, is_left: bool) -> MaskProducts:
        return mask_products(source, (left if is_left else right)[source])

    for left_source, left_weights in left.items():
        for right_source, right_weights in right.items():
            if only is not None and (left_source, right_source) not in only:
                continue
            between = _row_by_row(left_source, left_weights, right_source, right_weights)
            if between is None:
                of_right = products(right_source, right is left)
                between = _between(left_source, products(left_source, True), right_source, of_right, count)
            for component, summand in zip(total, between, strict=True):
                component += summand
    return Covariance(*total)


def _row_by_row(
    left_source: BoxStatistic, left: Weights, right_source: BoxStatistic, right: Weights
) -> Covariance | None:
    """Covariances of what two sources give to the rows of one block's answers; None of any other numbers."""
    if not (left.by_row and right.by_row and left_source.answered is right_source.answered):
        return None
    assert left_source.box is not None
    product = left_source.answered.errors.product(
        left_source.statistic, left_source.box, right_source.box, right_source.statistic
    )
    factor = left.weight * right.weight
    return Covariance(*(factor * component for component in product))


def _between(
    left_source: BoxStatistic, left: MaskProducts, right_source: BoxStatistic, right: MaskProducts, count: int
) -> Covariance:
    """Covariances of what two sources give to the same numbers."""
    a, b = left_source.release, right_source.release
    if a is not b:
        # neither was made of several when they were opened
        alone = independent([a.meta, b.meta]) and not a.pair_readings and not b.pair_readings
        apart = 0.0 if alone else np.nan
        common = np.isin(np.arange(count), np.intersect1d(left.number, right.number))
        return Covariance(np.where(common, apart, 0.0))
    if right_source.statistic < left_source.statistic:
        return _between(right_source, right, left_source, left, count)
    reading = joint_covariance(a, left_source.statistic, right_source.statistic)
    if reading is None:
        return Covariance(np.zeros(count))
    edges: Edges = (None,) * len(left.masks)
    if isinstance(reading, ProductReading):  # of one view's axes
        pairs = zip(left.edges, right.edges, strict=True)
        edges = tuple(None if x is None or y is None else np.union1d(x, y) for x, y in pairs)
        right = right.cut_at(edges)
    else:
        right = right.cut_at((None,) * len(right.masks))
    left, reading = left.cut_at(edges), on_runs(reading, edges)
    total = [np.zeros(count) for _ in Covariance._fields]
    for i, j in pairs_of(left.number, right.number):
        first, back = distinct([at[i] for at in left.at] + [at[j] for at in right.at], len(i))
        values = [np.zeros(len(first)) for _ in Covariance._fields]
        for block in blocks(len(first), max([m.shape[1] for m in (*left.masks, *right.masks)], default=1)):
            u = [left.taken(axis, i[first[block]]) for axis in range(len(left.masks))]
            w = [right.taken(axis, j[first[block]]) for axis in range(len(right.masks))]
            same = left_source == right_source and all(
                np.array_equal(x, y) for x, y in zip(u, w, strict=True)
            )
            for value, component in zip(values, reading.covariance(u, None if same else w), strict=True):
                value[block] = component
        factor = left.weight[i] * right.weight[j]
        for component, value in zip(total, values, strict=True):
            component += np.bincount(left.number[i], factor * value[back], count)
    return Covariance(*total)


def joint_covariance(release: Release, one: int, two: int) -> Reading | Shared | None:
    """Joint error of two statistics of a release, the lower first; None where they are independent."""
    left, right = release.statistics[one], release.statistics[two]
    if left.view == right.view or release.pair_readings:
        return release.shared(one, two)
    across = release.across(one, two)
    # what a channel does to two views at once is not kept
    return UNKNOWN if across is None and release.meta.reported else across
