"""Boxes over three axes and more from tables of pairs, by maximum entropy.

A release may hold of a view the tables of its pairs of axes alone. Sums over one axis or two are read off them. A box
over more axes cuts each axis in three, below, inside and above; of all tables of 3^m cells that agree with the pairs
the one of largest entropy answers. Iterative proportional fitting finds it: cells start as a product of the axes' own
shares and are scaled pair after pair, until a sweep moves no cell by 1e-5 / 2^m.

AHEAD cuts in two, inside and outside. Axes whose pairs say all of them (a Gaussian copula) are no such table any more
once their outsides are put together: with exact pairs of five bells of 32 leaves, correlation .8, boxes of half of
every axis missed by 1.2% of the people with two parts and by .4% with three.

Each box is a fit of its own, so boxes do not add up, and three axes that hang together beyond what their pairs show
make the answer biased. How far it may be off is bounded by the pairs: no more rows are inside on all axes than on any
two, and of those inside on axis i at most the sum over c of (inside on i, outside on c) are missing.

Errors are those of the fit repeated on `DRAWS` redrawn sets of pairs (`FittedErrors`). An axis that moves takes
its pairs along: their odds ratios stay, as raking leaves them, and move by the interactions' noise alone. To that comes
`UNRESOLVED` of what the third part moved the answer by. Which numbers are drawn follows from the release's id, so an
answer has the same error whenever and wherever it is asked, and two boxes of one release are redrawn together.

    redrawn      axes are normal with their covariance; a pair follows them with its odds ratio, and has noise v of its
                 interaction, within max(0, a_i + a_j - n) <= b_ij <= min(a_i, a_j)
    error        rms of the refits with two parts an axis, and half of the distance of three parts from two
    model bound  max_i (a_i - sum over c of (a_i - b_ic)) <= count <= min b_ij: the larger distance to the answer

n are all rows, a_i those inside on axis i, b_ij on both. v is the posterior variance of a pair's smooth fit over boxes
of half of both axes, the square of a fifth of the interaction, and what the fit bends away from its grid; without a fit
the grid's variance.

| here | there | unit |
|---|---|---|
| `total`, `single`, `pair` | rows in all, inside on one axis, inside on two | stored units |
| `axes` of a box | positions of the axes that it does not take whole | |

**Privacy**: post-processing of published numbers.
**Source**: docs/method/local.md, "Maximum entropy"; AHEAD, section 4.5.2 (LLE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.matrices import model
from dpsql.matrices.kronecker import AxisSplit, ProductReading
from dpsql.matrices.model import Columns, Components, Covariance, Masks, Reading
from dpsql.tree import FloatArray, IntArray

TOLERANCE = 1e-5
SWEEPS = 300
"""Most sweeps: three pairs that no table can agree with never settle, nor do cells that vanish slowly."""
DRAWS = 64
"""Redrawn fits of a box: its standard error then has a standard error of 9%."""
FITS = 1 << 13
"""Fits over six axes cut in two that are made at once; the request is asked before each block of them."""
SIDES = 3
"""Below, inside, above."""
UNRESOLVED = 0.5
"""Of what the third part moves an answer by, how much finer parts may still: .1 to .5 with exact pairs of bells, of
Laplace and of falling columns that go together."""
RARE = 1e-9
"""Least share of the rows in a cell that odds are taken of."""
MOST_AXES, MOST_LEAVES = 6, 256
"""The tables of 15 pairs of 256 leaves are a million numbers."""
LINEAR = 2
"""Axes whose boxes are sums of what is stored."""


class PairCounts(NamedTuple):
    """Counts of b boxes by pairs of m axes.

    Args:
        total: rows in all, shape (b,).
        single: rows inside on each axis, shape (b, m).
        pair: rows inside on both axes of each pair in the order of `combinations`, shape (b, m (m - 1) / 2).
    """

    total: FloatArray
    single: FloatArray
    pair: FloatArray


def entropy_counts(counts: PairCounts) -> FloatArray:
    """Rows inside on every axis in the table of largest entropy, shape (b,).

    Counts that no table has are moved to the nearest that one pair can have: inside on an axis are 0 to all rows,
    inside on two no more than on either and no fewer than both leave over.

    >>> half = PairCounts(np.array([8.0]), np.array([[4.0, 4, 4]]), np.array([[2.0, 2, 2]]))
    >>> entropy_counts(half).tolist()
    [1.0]
    """
    boxes, axes = counts.single.shape
    total = np.maximum(counts.total, 0.0)
    scale = np.where(total > 0, total, 1.0)[:, None]
    single = np.clip(counts.single / scale, 0.0, 1.0)
    pairs = list(combinations(range(axes), 2))
    first, second = single[:, [i for i, _ in pairs]], single[:, [j for _, j in pairs]]
    both = np.clip(counts.pair / scale, np.maximum(first + second - 1.0, 0.0), np.minimum(first, second))
    wanted = np.stack([1.0 - first - second + both, second - both, first - both, both], axis=2)
    wanted = np.maximum(wanted, 0.0).reshape(boxes, len(pairs), 2, 2)
    return _inside(np.stack([1 - single, single], axis=2), wanted) * total


def _inside(sides: FloatArray, wanted: FloatArray) -> FloatArray:
    """Shares of the cells that lie at 1 on every axis.

    Args:
        sides: shares of every axis's parts, shape (b, m, parts).
        wanted: shares of every pair's cells, shape (b, pairs, parts, parts).
    """
    boxes, axes, parts = sides.shape
    cells = np.ones((boxes,) + (parts,) * axes)
    for axis in range(axes):
        cells = cells * sides[:, axis].reshape([boxes, *(parts if k == axis else 1 for k in range(axes))])
    pairs = list(combinations(range(axes), 2))
    return np.asarray(_fitted(cells, wanted, pairs)[(slice(None), *(1,) * axes)])


def _fitted(cells: FloatArray, wanted: FloatArray, pairs: Sequence[tuple[int, int]]) -> FloatArray:
    """Cells (b, parts, .., parts) scaled to the tables of pairs (b, pairs, parts, parts); boxes that have settled are
    left alone."""
    axes, parts, moving = cells.ndim - 1, cells.shape[1], np.arange(len(cells))
    for _ in range(SWEEPS):
        scaled = cells[moving]
        for number, (i, j) in enumerate(pairs):
            away = tuple(k + 1 for k in range(axes) if k not in (i, j))
            sums = scaled.sum(axis=away)
            factor = np.divide(wanted[moving, number], sums, out=np.zeros_like(sums), where=sums > 0)
            scaled = scaled * factor.reshape(
                [len(moving), *(parts if k in (i, j) else 1 for k in range(axes))]
            )
        largest = np.abs(scaled - cells[moving]).reshape(len(moving), -1).max(axis=1, initial=0.0)
        cells[moving] = scaled
        moving = moving[largest >= TOLERANCE / 2**axes]
        if not len(moving):
            break
    return cells


def farthest(counts: PairCounts, answers: FloatArray) -> FloatArray:
    """Largest error of an answer if all counts of pairs were exact, shape (b,).

    >>> half = PairCounts(np.array([8.0]), np.array([[4.0, 4, 4]]), np.array([[2.0, 2, 2]]))
    >>> farthest(half, np.array([1.0])).tolist()
    [1.0]
    """
    axes = counts.single.shape[1]
    pairs = list(combinations(range(axes), 2))
    missing = np.zeros_like(counts.single)
    for number, (i, j) in enumerate(pairs):
        missing[:, i] += np.maximum(counts.single[:, i] - counts.pair[:, number], 0.0)
        missing[:, j] += np.maximum(counts.single[:, j] - counts.pair[:, number], 0.0)
    low = np.maximum((counts.single - missing).max(axis=1), 0.0)
    high = np.maximum(counts.pair.min(axis=1), 0.0)
    return np.asarray(np.maximum(np.maximum(high - answers, answers - low), 0.0))


class PairTables(NamedTuple):
    """Pair tables of a reading.

    Args:
        table: non-negative leaf counts of a pair of positions, in stored units; pairs agree on their axes.
        seed: whole numbers from which the redrawn noise follows.
        check: called between blocks of fits; raises where the request has ended.
    """

    table: Callable[[int, int], FloatArray]
    seed: tuple[int, ...]
    check: Callable[[], None]


@dataclass(frozen=True, eq=False)
class FittedErrors:
    """Errors of the tables that boxes over more than two axes are fitted to.

    A pair's interaction errs like independent cells of one variance, evenly spread over their leaves, whose sums along
    both axes are taken away: errors of smooth fits and of grids alike hang together over many leaves.

    Args:
        axes: covariance of each axis's leaves, (n, n) each.
        edges: boundaries of the cells of each axis, from 0 to n.
        pairs: variance of a cell, by a pair of positions.
    """

    axes: tuple[FloatArray, ...]
    edges: tuple[tuple[int, ...], ...]
    pairs: Mapping[tuple[int, int], float]
    kind: ClassVar[str] = "fitted"

    @property
    def n(self) -> int:
        """Number of leaves of all axes."""
        return sum(len(axis) for axis in self.axes)

    def root(self, axis: int) -> FloatArray:
        """The symmetric root of an axis's covariance."""
        size, direction = np.linalg.eigh(self.axes[axis])
        return np.asarray((direction * np.sqrt(np.maximum(size, 0.0))) @ direction.T)

    def scaled(self, factor: float) -> FittedErrors:
        """The same with tables multiplied by a factor."""
        squared = factor**2
        pairs = {pair: variance * squared for pair, variance in self.pairs.items()}
        return FittedErrors(tuple(axis * squared for axis in self.axes), self.edges, pairs)

    def columns(self) -> Columns:
        """Variances of pairs in order; of each axis the covariance's upper triangle; of each axis its edges."""
        pairs = [self.pairs[pair] for pair in combinations(range(len(self.axes)), 2)]
        return model.table(pairs, *map(model.upper, self.axes), *self.edges)


def cell_spread(edges: Sequence[int]) -> FloatArray:
    """Leaves x cells: each cell shared evenly among its leaves, without the mean of all cells.

    >>> cell_spread([0, 1, 3]).tolist()
    [[0.5, -0.5], [-0.25, 0.25], [-0.25, 0.25]]
    """
    widths = np.diff(edges)
    even = np.repeat(np.diag(1.0 / widths), widths, axis=0)
    return np.asarray(even - even.mean(axis=1, keepdims=True))


def from_columns(columns: Columns) -> FittedErrors:
    """The model that `columns` were read from.

    Raises:
        ValueError: lines that no such model writes.
    """
    variances, *arrays = model.arrays_of(columns)
    m = len(arrays) // 2
    pairs = dict(zip(combinations(range(m), 2), variances.tolist(), strict=True))
    if not LINEAR < m <= MOST_AXES or len(arrays) != 2 * m or min(pairs.values()) < 0:
        raise ValueError("variances of pairs of three to six axes are missing or negative")
    edges = [tuple(array.astype(np.int64).tolist()) for array in arrays[m:]]
    if any(len(cuts) < 2 or cuts[0] or any(x >= y for x, y in pairwise(cuts)) for cuts in edges):
        raise ValueError("cells of an axis do not follow each other")
    axes = [model.symmetric(leaves, cuts[-1]) for leaves, cuts in zip(arrays[:m], edges, strict=True)]
    return FittedErrors(tuple(axes), tuple(edges), pairs)


def partly(masks: Masks) -> tuple[int, ...]:
    """Positions of the axes that some mask does not take whole."""
    return tuple(i for i, mask in enumerate(masks) if not bool(np.all(mask == 1.0)))


def sides_of(mask: FloatArray) -> FloatArray:
    """Leaves below, inside and above, shape (g, 3, n); leaves outside that lie among those inside go to the nearer end.

    >>> sides_of(np.array([[0.0, 1, 1, 0]])).tolist()
    [[[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]]
    """
    before = np.cumsum(mask, axis=1) * 2 <= mask.sum(axis=1, keepdims=True)
    return np.stack([(1 - mask) * before, mask, (1 - mask) * ~before], axis=1)


@dataclass(frozen=True, eq=False)
class EntropyReading(Reading):
    """Reading of a statistic stored as the tables of its pairs.

    Args:
        axes: one split per axis of the view.
        errors: of the tables that boxes are fitted to.
        components: subset of at most two positions -> sigma_T^2, as of `ProductReading`: of sums over two axes at most.
        pairs: where the tables are; None until a release is open.
    """

    axes: tuple[AxisSplit, ...]
    errors: FittedErrors
    components: Components
    pairs: PairTables | None = None
    name: ClassVar[str] = "entropy"

    @cached_property
    def linear(self) -> ProductReading:
        """Answers of boxes over one axis or two."""
        return ProductReading(self.axes, self.components)

    def takes(self, boxes: Iterable[Masks]) -> bool:
        return all(len(partly(masks)) <= LINEAR for masks in boxes)

    def columns(self) -> tuple[Columns, ...]:
        return (*self.linear.columns(), self.errors.columns())

    def matrix(self, masks: Masks) -> FloatArray:
        return self.linear.matrix(masks) if len(partly(masks)) <= LINEAR else super().matrix(masks)

    def counts(self, masks: Masks) -> PairCounts:
        """Counts of boxes in the tables, from the axes that are not taken whole."""
        positions = partly(masks)
        masks = [np.asarray(mask, np.float64) for mask in masks]
        pairs = list(combinations(positions, 2))
        single, pair = np.zeros((len(masks[0]), len(positions))), np.zeros((len(masks[0]), len(pairs)))
        for k, i in enumerate(positions):
            single[:, k] = masks[i] @ self._margin(i)
        for k, (i, j) in enumerate(pairs):
            pair[:, k] = np.sum((masks[i] @ self._tables.table(i, j)) * masks[j], axis=1)
        return PairCounts(np.full(len(masks[0]), float(self._margin(0).sum())), single, pair)

    def answers(self, masks: Masks) -> tuple[FloatArray, FloatArray]:
        """Answers under boxes over more than two axes, and how far each may be off beside the noise; (g,) each."""
        answers = self._resolved(masks)
        return answers, farthest(self.counts(masks), answers)

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        """Covariances under `masks` and `other`, as `Reading` says, of boxes over two axes by their own model.

        A box over two axes errs together with one over more as its fitted table would: what the unbiased estimate errs
        by beyond that is independent of it.
        """
        if self.takes([masks] if other is None else [masks, other]):
            return self.linear.covariance(masks, other)
        left = self._deviations(masks)
        right = left if other is None else self._deviations(other)
        return Covariance(np.asarray(np.sum(left * right, axis=0) / DRAWS))

    @property
    def _tables(self) -> PairTables:
        if self.pairs is None:
            raise ValueError("the tables of pairs belong to an open release")
        return self.pairs

    def _margin(self, i: int) -> FloatArray:
        """Counts of an axis's leaves."""
        return np.asarray(
            self._tables.table(0, 1).sum(axis=1) if i == 0 else self._tables.table(0, i).sum(axis=0)
        )

    def _resolved(self, masks: Masks) -> FloatArray:
        """Answers of fits that cut each axis in three."""
        positions = partly(masks)
        block = max(FITS * 2**MOST_AXES // SIDES ** len(positions) // SIDES, 1)
        answers = [np.zeros(0)]
        total = max(float(self._margin(0).sum()), 0.0)
        for start in range(0, len(masks[0]), block):
            self._tables.check()
            sides = [sides_of(np.asarray(masks[i][start : start + block], np.float64)) for i in positions]
            single = np.stack(
                [side @ self._margin(i) for i, side in zip(positions, sides, strict=True)], axis=1
            )
            wanted = [
                (sides[a] @ self._tables.table(positions[a], positions[b])) @ sides[b].transpose(0, 2, 1)
                for a, b in combinations(range(len(positions)), 2)
            ]
            scale = total or 1.0
            answers.append(_inside(single / scale, np.stack(wanted, axis=1) / scale) * total)
        return np.concatenate(answers)

    def _deviations(self, masks: Masks) -> FloatArray:
        """By how much each redrawn answer misses the answer, and sqrt(DRAWS) times what three parts leave unresolved:
        shape (DRAWS + 1, g). Equal boxes are fitted once."""
        positions = partly(masks)
        rows = np.hstack(
            [np.asarray(masks[i], np.float64) for i in positions] or [np.zeros((len(masks[0]), 1))]
        )
        _, first, back = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        masks = [np.asarray(mask, np.float64)[first] for mask in masks]
        counts = self.counts(masks)
        noise, deviations = self._noise(positions, masks, counts), np.zeros((DRAWS + 1, len(first)))
        if len(positions) <= LINEAR:
            sums = [noise.total, *np.moveaxis(noise.single, 2, 0), *np.moveaxis(noise.pair, 2, 0)]
            deviations[:-1] = sums[{0: 0, 1: 1, 2: 3}[len(positions)]]
            return deviations[:, back.reshape(-1)]
        middle = self._fits(counts)
        for draw in range(DRAWS):
            moved = PairCounts(*(array + change[draw] for array, change in zip(counts, noise, strict=True)))
            deviations[draw] = self._fits(moved) - middle
        deviations[-1] = DRAWS**0.5 * UNRESOLVED * (self._resolved(masks) - middle)
        return deviations[:, back.reshape(-1)]

    def _fits(self, counts: PairCounts) -> FloatArray:
        """`entropy_counts` in blocks."""
        blocks = range(0, len(counts.total), FITS)
        answers = [np.zeros(0)]
        for start in blocks:
            self._tables.check()
            answers.append(entropy_counts(PairCounts(*(array[start : start + FITS] for array in counts))))
        return np.concatenate(answers)

    def _noise(self, positions: Sequence[int], masks: Masks, counts: PairCounts) -> PairCounts:
        """Redrawn noise of the counts of pairs: shapes (draws, g), (draws, g, m) and (draws, g, pairs).

        The total, every axis and every pair are drawn once for all boxes.
        """
        scale = np.where(counts.total > 0, counts.total, 1.0)
        relative = self._normal((), (DRAWS,)) * max(self.components.get((), 0.0), 0.0) ** 0.5
        total = relative[:, None] * np.ones(len(scale))
        alone = np.zeros((DRAWS, *counts.single.shape))
        for k, i in enumerate(positions):
            drawn = self._normal((i,), (DRAWS, masks[i].shape[1]))
            alone[:, :, k] = drawn @ self.errors.root(i) @ masks[i].T
        pairs = list(combinations(range(len(positions)), 2))
        pair = np.zeros((DRAWS, *counts.pair.shape))
        for number, (a, b) in enumerate(pairs):
            i, j = positions[a], positions[b]
            left, right = (masks[axis] @ cell_spread(self.errors.edges[axis]) for axis in (i, j))
            drawn = self._normal((i, j), (DRAWS, left.shape[1], right.shape[1]))
            together = np.stack([np.sum((left @ of_draw) * right, axis=1) for of_draw in drawn])
            first, second = _slopes(counts, scale, (a, b, number))
            pair[:, :, number] = alone[:, :, a] * first + alone[:, :, b] * second
            pair[:, :, number] += self.errors.pairs[i, j] ** 0.5 * together
        single = alone + total[:, :, None] * (counts.single / scale[:, None])
        return PairCounts(total, single, pair + total[:, :, None] * (counts.pair / scale[:, None]))

    def _normal(self, part: tuple[int, ...], shape: tuple[int, ...]) -> FloatArray:
        """Standard normal numbers of one component, the same whenever they are asked."""
        self._tables.check()
        return np.random.default_rng([*self._tables.seed, len(part), *part]).standard_normal(shape)


def _slopes(counts: PairCounts, scale: FloatArray, at: tuple[int, int, int]) -> tuple[FloatArray, FloatArray]:
    """By how much the count inside on both axes of a pair moves with that of either, its odds ratio kept; (b,) each.

    With cells p the log odds ratio moves by sum +- dp / p: db (1/p11 + 1/p10 + 1/p01 + 1/p00) = da (1/p10 + 1/p00).
    """
    a, b, number = at
    first, second, both = (
        counts.single[:, a] / scale,
        counts.single[:, b] / scale,
        counts.pair[:, number] / scale,
    )
    cells = np.stack([both, first - both, second - both, 1.0 - first - second + both])
    inverse = 1.0 / np.maximum(cells, RARE)
    whole = inverse.sum(axis=0)
    return (inverse[1] + inverse[3]) / whole, (inverse[2] + inverse[3]) / whole


def entropy_reading(pieces: tuple[AxisSplit | FittedErrors, ...], components: Components) -> EntropyReading:
    """The reading of some axes and of the errors of what is fitted to.

    Raises:
        ValueError: too few axes or too many, too many leaves, errors of other axes, or a component of more than two.
    """
    axes = tuple(piece for piece in pieces if isinstance(piece, AxisSplit))
    errors = [piece for piece in pieces if isinstance(piece, FittedErrors)]
    if not LINEAR < len(axes) <= MOST_AXES or any(len(subset) > LINEAR for subset in components):
        raise ValueError("maximum entropy goes with three to six axes, and with components of pairs")
    if max(axis.model.n for axis in axes) > MOST_LEAVES:
        raise ValueError(f"maximum entropy goes with up to {MOST_LEAVES} leaves of an axis")
    if [[len(leaves) for leaves in error.axes] for error in errors] != [[axis.model.n for axis in axes]]:
        raise ValueError("the errors of fitted tables are those of other axes")
    return EntropyReading(axes, errors[0], components)


def pair_places(nodes: Sequence[int]) -> IntArray:
    """Node combinations that tables of pairs hold, in stored order: the root, nodes of one axis, nodes of two.

    Args:
        nodes: how many nodes each axis has.

    >>> pair_places([2, 2]).tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    places = [np.zeros((1, len(nodes)), np.int64)]
    for width in range(1, LINEAR + 1):
        for positions in combinations(range(len(nodes)), width):
            inner = np.indices([nodes[i] - 1 for i in positions]).reshape(width, -1).T + 1
            block = np.zeros((len(inner), len(nodes)), np.int64)
            block[:, positions] = inner
            places.append(block)
    return np.concatenate(places)


def pair_number(nodes: Sequence[int]) -> int:
    """Number of node combinations given by `pair_places`.

    >>> pair_number([2, 2]), pair_number([3, 3, 3])
    (4, 19)
    """
    inner = [size - 1 for size in nodes]
    return sum(prod(sizes) for width in range(LINEAR + 1) for sizes in combinations(inner, width))


def packed(tables: Mapping[tuple[int, int], npt.NDArray[np.int64]], nodes: Sequence[int]) -> IntArray:
    """Node sums of all pairs as one column in the order of `pair_places`; pairs agree on what they share.

    >>> tables = {(0, 1): np.array([[5, 3], [4, 2]])}
    >>> packed(tables, [2, 2]).tolist()
    [5, 4, 3, 2]
    """
    columns = [next(iter(tables.values()))[:1, 0]]
    for i in range(len(nodes)):
        a, b = next(pair for pair in sorted(tables) if i in pair)
        columns.append(tables[a, b][1:, 0] if i == a else tables[a, b][0, 1:])
    columns += [tables[i, j][1:, 1:].ravel() for i, j in combinations(range(len(nodes)), LINEAR)]
    return np.concatenate(columns)


def unpacked(column: npt.NDArray[np.int64], nodes: Sequence[int]) -> dict[tuple[int, int], IntArray]:
    """Unpack the result of `packed`.

    >>> [table.tolist() for table in unpacked(np.array([5, 4, 3, 2]), [2, 2]).values()]
    [[[5, 3], [4, 2]]]
    """
    ends = np.cumsum([1, *(size - 1 for size in nodes)])
    single = [column[a:b] for a, b in pairwise(ends.tolist())]
    tables, start = dict[tuple[int, int], IntArray](), int(ends[-1])
    for i, j in combinations(range(len(nodes)), LINEAR):
        inner = len(single[i]), len(single[j])
        table = np.zeros((nodes[i], nodes[j]), np.int64)
        table[0, 0], table[1:, 0], table[0, 1:] = column[0], single[i], single[j]
        table[1:, 1:] = column[start : start + prod(inner)].reshape(inner)
        tables[i, j], start = table, start + prod(inner)
    return tables
