"""Blocks of cells: which are measured cell by cell, by themselves or together, and what is estimated from that.

Each axis is cut into runs of a few leaves, and a product of runs is a block. Leaves that hold no values (NULL, MISSING,
OTHER) stand at the end of an axis and are runs of their own. A noisy number of each block says which ones are loud;
quiet neighbours are merged upwards, two along each axis, as long as they are quiet together.

| here | there | unit |
|---|---|---|
| `BlockGrid` | blocks b of k_b cells | cells |
| `bar` | theta | drawn integers |
| `Partition` | loud blocks, and leaves of r blocks | - |
| `look` | y, noise of variance v1 = `before` | drawn integers |
| `rows` | z, noise of variance v2 = `after` | drawn integers |
| `selection_bias` | c(y): E[noise of the look; loud], estimated without bias from the look alone | drawn integers |
| `LeafGroups.of` | the group that each leaf's mean square M is measured in | - |

**Privacy**: a partition is a function of noisy numbers and of public facts. Every cell is in one measured row, so one
unit changes the rows by no more than it changes the cells: `Partition.rows` is one number for each cell.
Estimates and errors of cells are functions of the noisy integers alone.
**Source**: docs/method/blocks.md, "Look, merge, measure", "Estimates" and "Inside a leaf".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from math import isqrt, prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.tree import FloatArray, IntArray, Noisy
from dpsql.variance.blocks import BlockVariance

FEWEST_NODES = 4
"""Merging stops at so many nodes: the whole plane is never one leaf."""


@dataclass(frozen=True, eq=False)
class BlockGrid:
    """The blocks of a view.

    Args:
        edges: borders of the runs along each axis, from 0 to its number of leaves.
        values: how many runs of each axis hold values; those after them are one leaf each and never merged.

    >>> grid = block_grid((5, 3), (1, 0), 2)
    >>> [edges.tolist() for edges in grid.edges], grid.values, grid.cells.tolist()
    ([[0, 2, 4, 5], [0, 2, 3]], (2, 2), [[4, 2], [4, 2], [2, 1]])
    """

    edges: tuple[IntArray, ...]
    values: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(edges) - 1 for edges in self.edges)

    @cached_property
    def cells(self) -> IntArray:
        """Cells of each block, of `shape`."""
        return np.asarray(reduce(np.multiply.outer, [np.diff(edges) for edges in self.edges]), np.int64)

    def sums(self, cells: IntArray) -> IntArray:
        """Sums of cells over each block, modulo 2^64, of `shape`."""
        sums = cells
        for axis, edges in enumerate(self.edges):
            sums = np.add.reduceat(sums, edges[:-1], axis=axis)
        return np.asarray(sums, np.int64)

    def spread(self, blocks: IntArray) -> IntArray:
        """The value of each cell's block, in the shape of the cells."""
        values = blocks
        for axis, edges in enumerate(self.edges):
            values = np.repeat(values, np.diff(edges), axis=axis)
        return values

    def merged(self, level: int) -> tuple[int, ...]:
        """Nodes of values along each axis after so many steps of merging two neighbours."""
        return tuple(-(-runs >> level) for runs in self.values)

    def node(self, level: int) -> IntArray:
        """The node that each block is in at a level, numbered in row-major order, of `shape`."""
        axis_nodes, sizes = [], []
        for runs, values, nodes in zip(self.shape, self.values, self.merged(level), strict=True):
            run = np.arange(runs)
            axis_nodes.append(np.where(run < values, run >> level, run - values + nodes))
            sizes.append(nodes + runs - values)
        return np.asarray(np.ravel_multi_index(np.meshgrid(*axis_nodes, indexing="ij"), sizes), np.int64)


def block_grid(leaves: Sequence[int], strips: Sequence[int], side: int) -> BlockGrid:
    """Runs of `side` leaves along each axis; the last may be shorter.

    Args:
        leaves: of each axis.
        strips: how many of them, at the end, hold no values.
        side: leaves of a run.
    """
    edges, values = [], []
    for n, apart in zip(leaves, strips, strict=True):
        starts = np.arange(0, n - apart, side)
        edges.append(np.concatenate([starts, np.arange(n - apart, n + 1)]))
        values.append(len(starts))
    return BlockGrid(tuple(edges), tuple(values))


@dataclass(frozen=True, eq=False)
class Partition:
    """What is measured of a grid of blocks.

    Args:
        grid: the blocks.
        piece: the piece that each block is in, of the grid's shape; pieces are numbered by their first blocks.
        level: -1 for a loud block; else a leaf, which was merged so often, shape (pieces,).
    """

    grid: BlockGrid
    piece: IntArray
    level: IntArray

    @property
    def loud(self) -> npt.NDArray[np.bool_]:
        """Which pieces are measured cell by cell."""
        return np.asarray(self.level < 0)

    @cached_property
    def blocks(self) -> IntArray:
        """Blocks of each piece, r."""
        return np.bincount(self.piece.ravel(), minlength=len(self.level)).astype(np.int64)

    @cached_property
    def cells(self) -> IntArray:
        """Cells of each piece, k or a."""
        cells = np.zeros(len(self.level), np.int64)
        np.add.at(cells, self.piece.ravel(), self.grid.cells.ravel())
        return cells

    @cached_property
    def bounds(self) -> IntArray:
        """Half-open bounds of each piece along each axis, in leaves, shape (pieces, axes, 2)."""
        bounds = np.zeros((len(self.level), len(self.grid.edges), 2), np.int64)
        places = np.indices(self.piece.shape).reshape(self.piece.ndim, -1)
        for axis, edges in enumerate(self.grid.edges):
            bounds[:, axis, 0] = edges[-1]
            np.minimum.at(bounds[:, axis, 0], self.piece.ravel(), edges[:-1][places[axis]])
            np.maximum.at(bounds[:, axis, 1], self.piece.ravel(), edges[1:][places[axis]])
        return bounds

    @cached_property
    def rows(self) -> IntArray:
        """The one row that measures each cell, in the shape of the cells: leaves first, then cells of loud blocks."""
        quiet = ~self.loud
        leaf = np.cumsum(quiet) - 1
        piece = self.grid.spread(self.piece)
        rows, loud = leaf[piece], self.loud[piece]
        rows[loud] = np.count_nonzero(quiet) + np.arange(np.count_nonzero(loud))
        return np.asarray(rows, np.int64)

    @property
    def row_count(self) -> int:
        """How many rows are measured."""
        return int(self.rows.max()) + 1

    def measure(self, cells: IntArray) -> IntArray:
        """Exact sums of the rows, modulo 2^64.

        **Privacy** Raw where the cells are.
        """
        sums = np.zeros(self.row_count, np.int64)
        np.add.at(sums, self.rows.ravel(), cells.ravel())
        return sums

    def of_blocks(self, values: IntArray) -> FloatArray:
        """Sums of blocks' numbers over each piece."""
        sums = np.bincount(self.piece.ravel(), weights=values.ravel().astype(np.float64))
        return np.asarray(sums, np.float64)


def partition(grid: BlockGrid, look: Noisy, bar: int, scale: Fraction, merge: int) -> Partition:
    """Loud blocks alone, quiet ones merged as far as they are quiet together.

    A node of 2 x 2 nodes, all of them quiet, is one leaf if their noisy numbers add up to at most the bar and `merge`
    standard deviations of their noise. All in integers, so that it is the same on every machine.

    Args:
        grid: the blocks.
        look: the noisy number of each block.
        bar: above it a block is loud.
        scale: of the noise of a look.
        merge: standard deviations.

    **Privacy** Post-processing of `look`.

    >>> from dpsql.mechanisms.law import published
    >>> grid = block_grid((8, 8), (0, 0), 2)
    >>> found = partition(grid, published(np.where(np.arange(16).reshape(4, 4) == 5, 99, 1)), 20, Fraction(2), 1)
    >>> found.piece.tolist(), found.level.tolist()
    ([[0, 1, 2, 2], [3, 4, 2, 2], [5, 5, 6, 6], [5, 5, 6, 6]], [0, 0, 1, 0, -1, 1, 1])
    """
    intact = look <= bar
    level = np.where(intact, 0, -1)
    step = 1
    while prod(grid.merged(step)) >= FEWEST_NODES:
        node = grid.node(step)
        size = np.bincount(node.ravel())
        total = np.zeros(len(size), np.int64)
        np.add.at(total, node.ravel(), look.ravel())
        all_intact = np.bincount(node.ravel(), weights=intact.ravel()) == size
        allowed = {r: isqrt(int(2 * r * (merge * scale) ** 2)) for r in np.unique(size).tolist()}
        mergeable = all_intact & (total <= bar + np.array([allowed[r] for r in size.tolist()]))
        intact = mergeable[node]
        level[intact] = step
        step += 1
    return _pieces(grid, level)


def _pieces(grid: BlockGrid, level: IntArray) -> Partition:
    """Number the pieces by their first blocks."""
    name = np.zeros(grid.shape, np.int64)
    for step in range(-1, int(level.max()) + 1):
        at_level = level == step
        name[at_level] = (step + 1) * grid.cells.size + grid.node(max(step, 0))[at_level]
    _, first, piece = np.unique(name.ravel(), return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return Partition(grid, rank[piece].reshape(grid.shape), level.ravel()[first[order]])


FEWEST_LEAVES = 12
"""A mean square is taken over so many leaves at least."""

HIGHEST_BAND = 8
"""Leaves whose looks are so many standard deviations above 0 or more are one band."""

KURTOSIS = 5.0
"""Of Laplace noise: the variance of its square in squares of its variance."""


class Variances(NamedTuple):
    """Noise variances of a look at a block and of a measured row."""

    look: float
    row: float


@dataclass(frozen=True, eq=False)
class BlockRows:
    """The noisy integers of one statistic.

    Args:
        partition: what was measured.
        look: the noisy number of each block, of the grid's shape.
        rows: of the partition's rows.
        variances: of both.
    """

    partition: Partition
    look: Noisy
    rows: Noisy
    variances: Variances

    @property
    def leaf(self) -> FloatArray:
        """The rows of the leaves, in order."""
        return self.rows[: np.count_nonzero(~self.partition.loud)].astype(np.float64)


class Selection(NamedTuple):
    """How looks decided which blocks are loud.

    Args:
        bar: theta.
        rate: of the look's discrete Laplace noise, an integer.
    """

    bar: int
    rate: float


def selection_bias(look: FloatArray, selection: Selection) -> FloatArray:
    """c(y), with E[c(x + N)] = E[N; x + N > bar] for every integer x and discrete Laplace noise N.

    Args:
        look: noisy integers, any shape.
        selection: the bar and the rate.

    >>> selection_bias(np.array([20.0, 21.0]), Selection(20, 0.5)).round(6).tolist()
    [1.541494, 1.541494]
    """
    above = np.where(look > selection.bar, look - selection.bar, selection.bar - look + 1)
    return np.asarray(np.exp(-selection.rate * above) / -np.expm1(-selection.rate))


def cell_estimates(of: BlockRows, selection: Selection | None) -> FloatArray:
    """Best estimates of all cells; a leaf's number is spread evenly.

    Args:
        of: the noisy integers.
        selection: what the looks decided; None where other numbers did.

    Returns:
        In the shape of the cells.
    """
    partition, (look_variance, row_variance) = of.partition, of.variances
    loud, cells, blocks = partition.loud, partition.cells, partition.blocks
    look = partition.of_blocks(of.look)
    row_piece = np.empty(len(of.rows), np.int64)
    piece = partition.grid.spread(partition.piece)
    row_piece[partition.rows.ravel()] = piece.ravel()
    measured = np.bincount(row_piece, weights=of.rows.astype(np.float64), minlength=len(loud))
    # of a loud block the cells' sum moves towards the look by `step` a cell; a leaf is the mean of both by precision
    step = (look - measured) * row_variance / (cells * row_variance + look_variance)
    leaf_total = (look / (blocks * look_variance) + measured / row_variance) / (
        1 / (blocks * look_variance) + 1 / row_variance
    )
    if selection is not None:
        single = blocks == 1
        weight = cells * row_variance / (cells * row_variance + look_variance) - row_variance / (
            look_variance + row_variance
        )
        off = np.where(single, weight, 0.0) * selection_bias(look, selection)
        step, leaf_total = step - off / cells, leaf_total - off
    loud_estimate = of.rows[partition.rows].astype(np.float64) + step[piece]
    return np.asarray(np.where(loud[piece], loud_estimate, (leaf_total / cells)[piece]))


@dataclass(frozen=True, eq=False)
class LeafGroups:
    """Leaves that are alike by their looks.

    Args:
        of: group of each leaf, in the order of the leaves.
        size: leaves of each group.
    """

    of: IntArray
    size: IntArray

    def mean(self, values: FloatArray) -> FloatArray:
        return np.bincount(self.of, weights=values, minlength=len(self.size)) / self.size


def leaf_groups(of: BlockRows) -> LeafGroups:
    """Leaves by how often they were merged and by bands of their looks, joined from the top until there are enough.

    Args:
        of: the noisy integers of the statistic that chose the partition.
    """
    quiet = ~of.partition.loud
    level, blocks = of.partition.level[quiet], of.partition.blocks[quiet]
    height = of.partition.of_blocks(of.look)[quiet] / np.sqrt(blocks * of.variances.look)
    band = np.clip(np.floor(height), -1, HIGHEST_BAND).astype(np.int64)
    group, number = np.zeros(len(level), np.int64), 0
    for merges in np.unique(level).tolist():
        waiting: list[IntArray] = []
        opened = number
        for step in range(HIGHEST_BAND, -2, -1):
            waiting.append(np.flatnonzero((level == merges) & (band == step)))
            if sum(map(len, waiting)) >= FEWEST_LEAVES:
                group[np.concatenate(waiting)] = number
                waiting, number = [], number + 1
        remaining = np.concatenate([np.zeros(0, np.int64), *waiting])
        if number == opened:
            number += 1  # fewer than enough in all
        group[remaining] = number - 1
    return LeafGroups(group, np.bincount(group, minlength=number))


def mean_squares(of: BlockRows, groups: LeafGroups) -> FloatArray:
    """M of each group: the mean square of its leaves' exact numbers, and one standard error of that mean.

    Rows are fresh noise, which neither the partition nor the groups have seen, so that squares less their noise are
    unbiased.
    """
    row_variance = of.variances.row
    square = np.maximum(groups.mean(of.leaf**2) - row_variance, 0.0)
    return np.asarray(
        square + np.sqrt((KURTOSIS * row_variance**2 + 4 * square * row_variance) / groups.size)
    )


def block_variance(of: BlockRows, groups: LeafGroups, count: BlockRows | None) -> BlockVariance:
    """The errors of `cell_estimates`: noise given the partition, and where rows may lie inside of leaves.

    Args:
        of: the noisy integers.
        groups: of the leaves.
        count: those of the view's count; None where it is this one.
    """
    partition, (look_variance, row_variance) = of.partition, of.variances
    loud, cells, blocks = partition.loud, partition.cells.astype(np.float64), partition.blocks
    quiet = ~loud
    noise = np.zeros((len(loud), 2))
    noise[loud, 0] = row_variance
    noise[loud, 1] = -(row_variance**2) / (cells[loud] * row_variance + look_variance)
    noise[quiet, 1] = 1 / (1 / (blocks[quiet] * look_variance) + 1 / row_variance) / cells[quiet] ** 2
    mean_square = mean_squares(of, groups)
    within = _inside(partition, mean_square[groups.of])
    if count is None:
        return BlockVariance(partition.bounds, noise, within, np.zeros_like(within))
    bound = np.sqrt(mean_square * mean_squares(count, groups))
    common = np.clip(groups.mean(of.leaf * count.leaf), -bound, bound)
    return BlockVariance(partition.bounds, noise, within, _inside(partition, common[groups.of]))


def _inside(partition: Partition, square: FloatArray) -> FloatArray:
    """A = M / a and B = -M / a^2 of the leaves, 0 for loud blocks, shape (pieces, 2)."""
    coefficients, quiet = np.zeros((len(partition.level), 2)), ~partition.loud
    cells = partition.cells[quiet].astype(np.float64)
    coefficients[quiet] = np.stack([square / cells, -square / cells**2], axis=1)
    return coefficients
