"""Blocks of cells: which are split into finer blocks or cells, and what is estimated from that.

Each axis is cut into runs of leaves, and a product of runs is a block; grids are nested. Leaves that hold no values
(NULL, MISSING, OTHER) stand at the end of an axis and are runs of their own. A noisy number of each block of the
coarsest grid says which ones are loud. Loud ones are split into the blocks of the next grid, which are looked at in
turn, and at last into cells; a quiet one is a leaf, and spends on a number of its own what finer looks would have cost.

| here | there | unit |
|---|---|---|
| `BlockGrid` | blocks b of k_b cells | cells |
| `bar` | theta | drawn integers |
| `Partition` | nodes n: split ones, and leaves of a cells | - |
| `look` | y_n, noise of variance v_l on grid l | drawn integers |
| `rows` | z, noise of variance w_l for a leaf of grid l, v for a cell | drawn integers |
| `below`, `below_variance` | S_n, R_n | drawn integers, their squares |
| `total`, `variance` | T_n, V_n | the same |
| `selection_bias` | c(y): E[noise of the look; loud], estimated without bias from the look alone | drawn integers |
| `leaf_groups` | the group that each leaf's mean square M is measured in | - |

From the finest grid up each node has a total, and from the coarsest one down it hands on what it knows better:

    T_n = (y_n / v_l + S_n / R_n) V_n,     V_n = 1 / (1 / v_l + 1 / R_n)
    down   child c gets (T_n - S_n) V_c / R_n, each of k cells of a loud block (T_n - S_n) / k; a leaf is spread evenly

Looks chose, so (wl - wq) c(y) is taken off each node's total: wq = w_l / (w_l + v_l) is the weight of y in a leaf, wl
in a node all of whose children are leaves. M is `ALIGNED` times a group's mean of z^2 - w, at least 0, and one
standard error of it.

**Privacy**: a partition is a function of noisy numbers and of public facts. A cell is in one block of each grid down to
its leaf, and in one last row, whose budgets add up to at most epsilon (`StageBudgets`). Estimates and errors of cells
are functions of the noisy integers alone.
**Source**: docs/method/views.md, "Look, split, measure", "Estimates" and "Inside a leaf".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dpsql.matrices.blocks import BlockVariance, NodeTree
from dpsql.mechanisms.distribution import joined
from dpsql.tree import FloatArray, IntArray, Noisy

Mask = npt.NDArray[np.bool_]
Number = TypeVar("Number", bound=np.generic)


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
    """Partition into blocks of nested grids, which determines what is measured.

    A node is a block whose parent is split, or any block of the coarsest grid. Nodes are numbered grid by grid, so that
    parents come before their children.

    Args:
        grids: coarse to fine.
        split: for each grid, the blocks that are split; those of the finest are measured cell by cell.
    """

    grids: tuple[BlockGrid, ...]
    split: tuple[Mask, ...]

    def is_node(self, level: int) -> Mask:
        """Mask of a grid's blocks that are nodes, of its shape."""
        return split_above(self.grids, self.split, level)

    @cached_property
    def counts(self) -> list[int]:
        """Nodes of each grid."""
        return [int(np.count_nonzero(self.is_node(level))) for level in range(len(self.grids))]

    @cached_property
    def level(self) -> IntArray:
        """The grid of each node."""
        return np.repeat(np.arange(len(self.grids)), self.counts)

    @cached_property
    def parent(self) -> IntArray:
        """The parent of each node; -1 in the coarsest grid."""
        parents, first = [np.full(self.counts[0], -1)], 0
        for level in range(1, len(self.grids)):
            number = np.full(self.grids[level - 1].shape, -1)
            number[self.is_node(level - 1)] = first + np.arange(self.counts[level - 1])
            parents.append(_inherited(self.grids[level - 1], self.grids[level], number)[self.is_node(level)])
            first += self.counts[level - 1]
        return np.concatenate(parents)

    @cached_property
    def is_split(self) -> Mask:
        """Mask of the nodes that are split."""
        return np.concatenate([self.split[level][self.is_node(level)] for level in range(len(self.grids))])

    @cached_property
    def loud(self) -> Mask:
        """Mask of the nodes that are measured cell by cell."""
        return np.asarray(self.is_split & (self.level == len(self.grids) - 1))

    @cached_property
    def cells(self) -> IntArray:
        """Cells of each node, k or a."""
        return np.concatenate([grid.cells[self.is_node(level)] for level, grid in enumerate(self.grids)])

    @cached_property
    def bounds(self) -> IntArray:
        """Half-open bounds of each node along each axis, in leaves, shape (nodes, axes, 2)."""
        bounds = []
        for level, grid in enumerate(self.grids):
            places = np.nonzero(self.is_node(level))
            ends = [np.stack([e[:-1][i], e[1:][i]], axis=1) for e, i in zip(grid.edges, places, strict=True)]
            bounds.append(np.stack(ends, axis=1))
        return np.concatenate(bounds)

    @cached_property
    def piece(self) -> IntArray:
        """The smallest node that each cell is in, in the shape of the cells."""
        pieces, first = np.zeros(tuple(int(e[-1]) for e in self.grids[0].edges), np.int64), 0
        for level, grid in enumerate(self.grids):
            number = np.full(grid.shape, -1)
            number[self.is_node(level)] = first + np.arange(self.counts[level])
            spread = grid.spread(number)
            pieces = np.where(spread >= 0, spread, pieces)
            first += self.counts[level]
        return pieces

    @cached_property
    def rows(self) -> IntArray:
        """The last row that measures each cell, in the shape of the cells: leaves first, then cells of loud blocks."""
        leaf = np.cumsum(~self.is_split) - 1
        rows, loud = leaf[self.piece], self.loud[self.piece]
        rows[loud] = np.count_nonzero(~self.is_split) + np.arange(np.count_nonzero(loud))
        return np.asarray(rows, np.int64)

    @property
    def row_count(self) -> int:
        """Number of rows measured last."""
        return int(self.rows.max()) + 1

    def measure(self, cells: IntArray) -> IntArray:
        """Exact sums of the last rows, modulo 2^64.

        **Privacy** Raw where the cells are.
        """
        sums = np.zeros(self.row_count, np.int64)
        np.add.at(sums, self.rows.ravel(), cells.ravel())
        return sums

    def row_budgets(self, leaf: Sequence[int], cell: int) -> IntArray:
        """The budget of each row.

        Args:
            leaf: of a leaf of each grid.
            cell: of a cell.
        """
        leaves = np.array(leaf, np.int64)[self.level[~self.is_split]]
        return np.concatenate([leaves, np.full(self.row_count - len(leaves), cell, np.int64)])


def split_above(grids: Sequence[BlockGrid], split: Sequence[Mask], level: int) -> Mask:
    """The blocks of a grid whose parents are split, of its shape; all of the coarsest."""
    if level == 0:
        return np.ones(grids[0].shape, np.bool_)
    return _inherited(grids[level - 1], grids[level], split[level - 1])


def _inherited(coarse: BlockGrid, fine: BlockGrid, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """The value of each fine block's parent."""
    for axis, (outer, inner) in enumerate(zip(coarse.edges, fine.edges, strict=True)):
        values = np.repeat(values, np.diff(np.searchsorted(inner, outer)), axis=axis)
    return values


def partition(
    grids: tuple[BlockGrid, ...], bar: int, look: Callable[[int, Mask], Noisy]
) -> tuple[Partition, Noisy]:
    """Split blocks from the coarsest grid down, as long as they are loud.

    Args:
        grids: coarse to fine.
        bar: a block is split iff its noisy number is above it and it has more cells than one.
        look: the noisy numbers of some blocks of a grid, given its place and which blocks, in row-major order.

    Returns:
        The partition, and the noisy numbers of its nodes.

    **Privacy** Post-processing of what `look` gives; which blocks it is asked for depends on what it gave before.

    >>> from dpsql.mechanisms.distribution import published
    >>> grids = tuple(block_grid((4, 4), (0, 0), side) for side in (4, 2))
    >>> numbers = published(np.array([30])), published(np.array([5, 25, 9, 0]))
    >>> found, _ = partition(grids, 20, lambda level, nodes: numbers[level])
    >>> found.parent.tolist(), found.is_split.tolist(), found.rows.tolist()
    ([-1, 0, 0, 0, 0], [True, False, True, False, False], [[0, 0, 3, 4], [0, 0, 5, 6], [1, 1, 2, 2], [1, 1, 2, 2]])
    """
    split: list[Mask] = []
    looks: list[Noisy] = []
    for level, grid in enumerate(grids):
        node = split_above(grids, split, level)
        looks.append(look(level, node))
        loud = np.zeros(grid.shape, np.bool_)
        loud[node] = looks[-1] > bar
        split.append(loud & (grid.cells > 1))
    return Partition(grids, tuple(split)), joined(*looks)


FEWEST_LEAVES = 12
"""A mean square is taken over so many leaves at least."""

HIGHEST_BAND = 8
"""Leaves whose looks are so many standard deviations above 0 or more are one band."""

KURTOSIS = 5.0
"""Of Laplace noise: the variance of its square in squares of its variance."""


ALIGNED = 3.0
"""Errors of leaves in a row have one sign where rows lie along lines, such as round salaries: without this factor 82%
of the intervals of one axis cover on the worst real plane of tuning, with it 89%, and 98% on average."""


class StageVariances(NamedTuple):
    """Noise variances of a look at a block of each grid, of the row of one that stops there, and of a cell."""

    look: FloatArray
    leaf: FloatArray
    cell: float


@dataclass(frozen=True, eq=False)
class BlockRows:
    """The noisy integers of one statistic.

    Args:
        partition: what was measured.
        look: the noisy number of each node.
        rows: of the partition's rows.
        variances: of all.
    """

    partition: Partition
    look: Noisy
    rows: Noisy
    variances: StageVariances

    @property
    def leaf(self) -> FloatArray:
        """The rows of the leaves, in order."""
        return self.rows[: np.count_nonzero(~self.partition.is_split)].astype(np.float64)

    @cached_property
    def look_variance(self) -> FloatArray:
        """Of each node's look."""
        return np.asarray(self.variances.look[self.partition.level])

    @cached_property
    def leaf_variance(self) -> FloatArray:
        """Of each leaf's row."""
        return np.asarray(self.variances.leaf[self.partition.level[~self.partition.is_split]])


Selection = tuple[int, FloatArray]
"""Selection of blocks by their noisy values: theta, and the rate of a look's discrete Laplace noise at each grid."""


def selection_bias(look: FloatArray, bar: int, rate: FloatArray) -> FloatArray:
    """c(y), with E[c(x + N)] = E[N; x + N > bar] for every integer x and discrete Laplace noise N.

    Args:
        look: noisy integers.
        bar: theta.
        rate: of the noise of each look.

    >>> selection_bias(np.array([20.0, 21.0]), 20, np.array([0.5, 0.5])).round(6).tolist()
    [1.541494, 1.541494]
    """
    above = np.where(look > bar, look - bar, bar - look + 1)
    return np.asarray(np.exp(-rate * above) / -np.expm1(-rate))


def look_bias(of: BlockRows, selection: Selection) -> FloatArray:
    """Mean bias of each node's total from selecting by its noisy value, estimated from that value.

    A look counts for more in the total of a node that is split than in that of a leaf. Children of a split node count
    as leaves here, which they mostly are where its look is near the bar.
    """
    partition, variances, (bar, rate) = of.partition, of.variances, selection
    leaf = 1 / (1 / variances.look + 1 / variances.leaf)
    below = np.concatenate(
        [
            _inside(grid, fine)[partition.is_node(level)] * leaf[level + 1]
            for level, (grid, fine) in enumerate(pairwise(partition.grids))
        ]
        + [partition.grids[-1].cells[partition.is_node(len(partition.grids) - 1)] * variances.cell]
    )
    row_variance = variances.leaf[partition.level]
    weight = below / (below + of.look_variance) - row_variance / (row_variance + of.look_variance)
    bias = selection_bias(of.look.astype(np.float64), bar, rate[partition.level])
    return np.asarray(np.where(partition.cells > 1, weight * bias, 0.0))


def _inside(coarse: BlockGrid, fine: BlockGrid) -> IntArray:
    """Number of blocks of the finer grid in each block, of the coarse grid's shape."""
    counts = [
        np.diff(np.searchsorted(inner, outer)) for outer, inner in zip(coarse.edges, fine.edges, strict=True)
    ]
    return np.asarray(reduce(np.multiply.outer, counts), np.int64)


def node_totals(
    of: BlockRows, selection: Selection | None
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Totals of all nodes from the finest up: best linear estimates of what lies below, given the partition.

    Args:
        of: the noisy integers.
        selection: what the looks decided; None where other numbers did.

    Returns:
        Each node's total and its variance by what lies below its look (its own row, its cells or its children), then
        both with its look, by rows and looks of the node and of all nodes below it; shape (nodes,) each.
    """
    partition, nodes = of.partition, len(of.partition.level)
    row_node = np.empty(len(of.rows), np.int64)
    row_node[partition.rows.ravel()] = partition.piece.ravel()
    below: FloatArray = np.bincount(row_node, weights=of.rows.astype(np.float64), minlength=nodes).astype(
        np.float64
    )
    below_variance = np.where(partition.loud, partition.cells * of.variances.cell, 0.0)
    below_variance[~partition.is_split] = of.leaf_variance
    total, variance = np.zeros(nodes), np.zeros(nodes)
    bias = look_bias(of, selection) if selection is not None else np.zeros(nodes)
    for level in reversed(range(len(partition.grids))):
        node = partition.level == level
        precision = 1 / of.look_variance[node] + 1 / below_variance[node]
        variance[node] = 1 / precision
        total[node] = (
            of.look[node] / of.look_variance[node] + below[node] / below_variance[node]
        ) / precision
        total[node] -= bias[node]
        if level > 0:
            parent = partition.parent[node]
            below += np.bincount(parent, weights=total[node], minlength=nodes)
            below_variance += np.bincount(parent, weights=variance[node], minlength=nodes)
    return below, below_variance, total, variance


def cell_estimates(of: BlockRows, selection: Selection | None) -> FloatArray:
    """Best estimates of all cells; a leaf's number is spread evenly.

    Args:
        of: the noisy integers.
        selection: as of `node_totals`.

    Returns:
        In the shape of the cells.
    """
    partition = of.partition
    below, below_variance, total, variance = node_totals(of, selection)
    for level in range(1, len(partition.grids)):
        node = partition.level == level
        parent = partition.parent[node]
        missing = total[parent] - below[parent]
        total[node] += missing * variance[node] / below_variance[parent]
    step = (total - below) / partition.cells
    loud = partition.loud[partition.piece]
    by_cell = of.rows[partition.rows].astype(np.float64) + step[partition.piece]
    return np.asarray(np.where(loud, by_cell, (total / partition.cells)[partition.piece]))


def group_means(group: IntArray, values: FloatArray) -> FloatArray:
    """Mean of the leaves' values in each group."""
    return np.asarray(np.bincount(group, weights=values) / np.bincount(group))


def leaf_groups(of: BlockRows) -> IntArray:
    """Group of each leaf, in the order of the leaves.

    Leaves are grouped by their grid and by bands of their looks, joined from the top until there are enough.

    Args:
        of: the noisy integers of the statistic that chose the partition.
    """
    quiet = ~of.partition.is_split
    level, height = of.partition.level[quiet], of.look[quiet] / np.sqrt(of.look_variance[quiet])
    band = np.clip(np.floor(height), -1, HIGHEST_BAND).astype(np.int64)
    group, number = np.zeros(len(level), np.int64), 0
    for grid in np.unique(level).tolist():
        waiting: list[IntArray] = []
        opened = number
        for step in range(HIGHEST_BAND, -2, -1):
            waiting.append(np.flatnonzero((level == grid) & (band == step)))
            if sum(map(len, waiting)) >= FEWEST_LEAVES:
                group[np.concatenate(waiting)] = number
                waiting, number = [], number + 1
        remaining = np.concatenate([np.zeros(0, np.int64), *waiting])
        if number == opened:
            number += 1  # fewer than enough in all
        group[remaining] = number - 1
    return group


def mean_squares(of: BlockRows, groups: IntArray) -> FloatArray:
    """M of each group: the mean square of its leaves' exact numbers, and one standard error of that mean.

    Rows are fresh noise, which neither the partition nor the groups have seen, so that squares less their noise are
    unbiased.
    """
    row_variance = group_means(groups, of.leaf_variance)
    square = np.maximum(group_means(groups, of.leaf**2) - row_variance, 0.0)
    return np.asarray(
        square + np.sqrt((KURTOSIS * row_variance**2 + 4 * square * row_variance) / np.bincount(groups))
    )


def block_variance(of: BlockRows, groups: IntArray, count: BlockRows | None) -> BlockVariance:
    """The errors of `cell_estimates`: noise given the partition, and where rows may lie inside of leaves.

    Args:
        of: the noisy integers.
        groups: of the leaves.
        count: those of the view's count; None where it is this one.
    """
    partition, (_, below_variance, _, variance) = of.partition, node_totals(of, None)
    split, parent = partition.is_split, partition.parent
    weight = np.where(parent < 0, 0.0, variance / below_variance[parent])
    noise = np.zeros((len(split), 2))
    noise[partition.loud, 0] = of.variances.cell
    noise[:, 1] = np.where(split, variance - below_variance, variance)
    mean_square = ALIGNED * mean_squares(of, groups)
    within = _within(partition, mean_square[groups])
    shared = np.zeros_like(within)
    if count is not None:
        bound = np.sqrt(mean_square * ALIGNED * mean_squares(count, groups))
        common = np.clip(ALIGNED * group_means(groups, of.leaf * count.leaf), -bound, bound)
        shared = _within(partition, common[groups])
    return BlockVariance(NodeTree(partition.bounds, parent, weight), noise, within, shared)


def _within(partition: Partition, square: FloatArray) -> FloatArray:
    """A = M / a and B = -M of the leaves, 0 for split nodes, shape (nodes, 2)."""
    coefficients, quiet = np.zeros((len(partition.level), 2)), ~partition.is_split
    coefficients[quiet] = np.stack([square / partition.cells[quiet], -square], axis=1)
    return coefficients
