"""Boxes over three axes and more from tables of pairs, by maximum entropy.

A release may hold of a view the tables of its pairs of axes alone. Sums over one axis or two are read off them. A box
over more axes cuts each axis in two, inside and outside; of all tables of 2^m cells that agree with the pairs the one
of largest entropy answers. Iterative proportional fitting finds it: cells start as a product of the axes' own shares
and are scaled pair after pair, until a sweep moves no cell by 1e-5 / 2^m.

Each box is a fit of its own, so boxes do not add up, and three axes that hang together beyond what their pairs show
make the answer biased. How far it may be off is bounded by the pairs: no more rows are inside on all axes than on any
two, and of those inside on axis i at most the sum over c of (inside on i, outside on c) are missing.

Errors are those of the fit repeated on `DRAWS` redrawn sets of pairs: noise of the covariance that the release states
for its pair tables is added to them. Which numbers are drawn follows from the release's id, so an answer has the same
error whenever and wherever it is asked, and two boxes of one release are redrawn together.

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

from dpsql.tree import FloatArray, IntArray
from dpsql.variance.kronecker import AxisSplit, ProductReading
from dpsql.variance.model import Columns, Components, Covariance, Sum, all_pairs
from dpsql.variance.model import covariance as covariance_of_ranges

Masks = Sequence[FloatArray]
TOLERANCE = 1e-5
SWEEPS = 300
"""Most sweeps: three pairs that no table can agree with never settle, nor do cells that vanish slowly."""
DRAWS = 64
"""Redrawn fits of a box: its standard error then has a standard error of 9%."""
FITS = 1 << 13
"""Fits that are made at once; the request is asked before each block of them."""
MOST_AXES, MOST_LEAVES = 6, 256
"""Redrawing the 15 pairs of six axes of 256 leaves takes 63 million normal numbers, about a second."""
LINEAR = 2
"""Axes whose boxes are sums of what is stored."""


class PairCounts(NamedTuple):
    """What pairs of m axes say of b boxes.

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
    cells = np.ones((boxes,) + (2,) * axes)
    for axis in range(axes):
        shape = [boxes, *(2 if k == axis else 1 for k in range(axes))]
        cells = cells * np.stack([1 - single[:, axis], single[:, axis]], axis=1).reshape(shape)
    return np.asarray(_fitted(cells, wanted, pairs)[(slice(None), *(1,) * axes)] * total)


def _fitted(cells: FloatArray, wanted: FloatArray, pairs: Sequence[tuple[int, int]]) -> FloatArray:
    """Cells (b, 2, .., 2) scaled to the tables of pairs (b, pairs, 2, 2); boxes that have settled are left alone."""
    axes, moving = cells.ndim - 1, np.arange(len(cells))
    for _ in range(SWEEPS):
        scaled = cells[moving]
        for number, (i, j) in enumerate(pairs):
            away = tuple(k + 1 for k in range(axes) if k not in (i, j))
            sums = scaled.sum(axis=away)
            factor = np.divide(wanted[moving, number], sums, out=np.zeros_like(sums), where=sums > 0)
            scaled = scaled * factor.reshape([len(moving), *(2 if k in (i, j) else 1 for k in range(axes))])
        largest = np.abs(scaled - cells[moving]).reshape(len(moving), -1).max(axis=1, initial=0.0)
        cells[moving] = scaled
        moving = moving[largest >= TOLERANCE / 2**axes]
        if not len(moving):
            break
    return cells


def farthest(counts: PairCounts, answers: FloatArray) -> FloatArray:
    """How far an answer may be off if all counts of pairs were exact, shape (b,).

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
    """Where a reading finds the tables of its pairs.

    Args:
        table: non-negative leaf counts of a pair of positions, in stored units.
        seed: whole numbers from which the redrawn noise follows.
        check: called between blocks of fits; raises where the request has ended.
    """

    table: Callable[[int, int], FloatArray]
    seed: tuple[int, ...]
    check: Callable[[], None]


def partly(masks: Masks) -> tuple[int, ...]:
    """Positions of the axes that some mask does not take whole."""
    return tuple(i for i, mask in enumerate(masks) if not bool(np.all(mask == 1.0)))


@dataclass(frozen=True, eq=False)
class EntropyReading:
    """How a statistic that is stored as the tables of its pairs answers.

    Args:
        axes: one split per axis of the view.
        components: subset of at most two positions -> sigma_T^2, as of `ProductReading`.
        pairs: where the tables are; None until a release is open.
    """

    axes: tuple[AxisSplit, ...]
    components: Components
    pairs: PairTables | None = None
    name: ClassVar[str] = "entropy"
    listed: ClassVar[Mapping[int, int]] = {}

    @property
    def indices(self) -> int:
        return len(self.axes)

    @cached_property
    def linear(self) -> ProductReading:
        """How boxes over one axis or two answer."""
        return ProductReading(self.axes, self.components)

    def takes(self, boxes: Iterable[Masks]) -> bool:
        return all(len(partly(masks)) <= LINEAR for masks in boxes)

    def terms(self, masks: Masks) -> tuple[Sum, ...]:
        return self.linear.terms(masks)

    def columns(self) -> tuple[Columns, ...]:
        return self.linear.columns()

    def matrix(self, masks: Masks) -> FloatArray:
        return self.linear.matrix(masks) if len(partly(masks)) <= LINEAR else all_pairs(self, masks)

    def counts(self, masks: Masks) -> PairCounts:
        """What the tables say of boxes, from the axes that are not taken whole; more than two of them."""
        positions = partly(masks)
        masks = [np.asarray(masks[i], np.float64) for i in positions]
        pairs = list(combinations(range(len(positions)), 2))
        single, pair = np.zeros((len(masks[0]), len(masks))), np.zeros((len(masks[0]), len(pairs)))
        total = np.zeros(len(masks[0]))
        for number, (i, j) in enumerate(pairs):
            table = self._tables.table(positions[i], positions[j])
            pair[:, number] = np.sum((masks[i] @ table) * masks[j], axis=1)
            single[:, i], single[:, j] = masks[i] @ table.sum(axis=1), masks[j] @ table.sum(axis=0)
            total[:] = table.sum()
        return PairCounts(total, single, pair)

    def answers(self, masks: Masks) -> tuple[FloatArray, FloatArray]:
        """Answers under boxes over more than two axes, and how far each may be off beside the noise; (g,) each."""
        counts = self.counts(masks)
        answers = self._fits(counts)
        return answers, farthest(counts, answers)

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        """Covariances under `masks` and `other`, as `Reading` says, of boxes over two axes by their own model."""
        if self.takes([masks] if other is None else [masks, other]):
            return self.linear.covariance(masks, other)
        left = self._deviations(masks)
        right = left if other is None else self._deviations(other)
        return Covariance(np.asarray(np.mean(left * right, axis=0)))

    @property
    def _tables(self) -> PairTables:
        if self.pairs is None:
            raise ValueError("the tables of pairs belong to an open release")
        return self.pairs

    def _deviations(self, masks: Masks) -> FloatArray:
        """By how much each redrawn answer misses the answer, shape (DRAWS, g); equal boxes are fitted once."""
        positions = partly(masks)
        rows = np.hstack(
            [np.asarray(masks[i], np.float64) for i in positions] or [np.zeros((len(masks[0]), 1))]
        )
        _, first, back = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        unique_masks = [np.asarray(masks[i], np.float64)[first] for i in positions]
        noise = self._noise(positions, unique_masks)
        if len(positions) <= LINEAR:
            exact = [
                noise.total[:, None] + np.zeros(len(first)),
                *np.moveaxis(noise.single, 2, 0),
                *np.moveaxis(noise.pair, 2, 0),
            ]
            return np.asarray(exact[{0: 0, 1: 1, 2: 3}[len(positions)]][:, back.reshape(-1)])
        counts = self.counts([np.asarray(mask, np.float64)[first] for mask in masks])
        middle, deviations = self._fits(counts), np.zeros((DRAWS, len(first)))
        for draw in range(DRAWS):
            moved = PairCounts(
                counts.total + noise.total[draw],
                counts.single + noise.single[draw],
                counts.pair + noise.pair[draw],
            )
            deviations[draw] = self._fits(moved) - middle
        return deviations[:, back.reshape(-1)]

    def _fits(self, counts: PairCounts) -> FloatArray:
        """`entropy_counts` in blocks."""
        blocks = range(0, len(counts.total), FITS)
        answers = [np.zeros(0)]
        for start in blocks:
            self._tables.check()
            answers.append(entropy_counts(PairCounts(*(array[start : start + FITS] for array in counts))))
        return np.concatenate(answers)

    def _noise(self, positions: Sequence[int], masks: Masks) -> PairCounts:
        """Redrawn noise of the counts of pairs: shapes (draws,), (draws, g, m) and (draws, g, pairs).

        Each component of the release's variance is drawn once for all boxes: the total, what remains of an axis, and
        what remains of a pair.
        """
        boxes = len(masks[0]) if masks else 1
        total = self._normal((), (DRAWS,)) * self._strength(())
        spread = [mask @ self.axes[i].spread for i, mask in zip(positions, masks, strict=True)]
        alone, single = [], np.zeros((DRAWS, boxes, len(masks)))
        for k, (i, mask) in enumerate(zip(positions, masks, strict=True)):
            drawn = self._normal((i,), (DRAWS, mask.shape[1])) * self._strength((i,))
            alone.append(drawn @ self._roots[i] @ mask.T)
            single[:, :, k] = total[:, None] * spread[k] + alone[k]
        pairs = list(combinations(range(len(positions)), 2))
        pair = np.zeros((DRAWS, boxes, len(pairs)))
        for number, (a, b) in enumerate(pairs):
            i, j = positions[a], positions[b]
            drawn = self._normal((i, j), (DRAWS, masks[a].shape[1], masks[b].shape[1]))
            left, right = masks[a] @ self._roots[i], masks[b] @ self._roots[j]
            together = np.stack([np.sum((left @ of_draw) * right, axis=1) for of_draw in drawn])
            together = together * self._strength((i, j))
            pair[:, :, number] = (
                total[:, None] * spread[a] * spread[b]
                + alone[a] * spread[b]
                + alone[b] * spread[a]
                + together
            )
        return PairCounts(total, single, pair)

    def _strength(self, part: tuple[int, ...]) -> float:
        """Standard deviation of one component."""
        return float(max(self.components.get(part, 0.0), 0.0) ** 0.5)

    def _normal(self, part: tuple[int, ...], shape: tuple[int, ...]) -> FloatArray:
        """Standard normal numbers of one component, the same whenever they are asked."""
        self._tables.check()
        return np.random.default_rng([*self._tables.seed, len(part), *part]).standard_normal(shape)

    @cached_property
    def _roots(self) -> tuple[FloatArray, ...]:
        """Of each axis the symmetric root of the covariance of what remains without the total."""
        roots = []
        for axis in self.axes:
            i, j = np.indices((axis.model.n, axis.model.n)).reshape(2, -1)
            leaves = covariance_of_ranges(axis.model, i, i + 1, j, j + 1).reshape(axis.model.n, -1)
            remainder = leaves - axis.total * np.outer(axis.spread, axis.spread)
            size, direction = np.linalg.eigh((remainder + remainder.T) / 2)
            roots.append(np.asarray((direction * np.sqrt(np.maximum(size, 0.0))) @ direction.T))
        return tuple(roots)


def entropy_reading(pieces: tuple[AxisSplit, ...], components: Components) -> EntropyReading:
    """The reading of some axes.

    Raises:
        ValueError: too few axes or too many, too many leaves, or a component of more than two axes.
    """
    if not LINEAR < len(pieces) <= MOST_AXES or any(len(subset) > LINEAR for subset in components):
        raise ValueError("maximum entropy goes with three to six axes, and with components of pairs")
    if max(piece.model.n for piece in pieces) > MOST_LEAVES:
        raise ValueError(f"maximum entropy goes with up to {MOST_LEAVES} leaves of an axis")
    return EntropyReading(pieces, components)


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
    """How many node combinations `pair_places` gives.

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
    """What `packed` put together.

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
