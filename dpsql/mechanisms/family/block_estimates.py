"""Cells from looks at blocks and from measured rows, and how far they may be off; functions of noisy integers alone.

| here | there | unit |
|---|---|---|
| `look` | y, noise of variance v1 = `before` | drawn integers |
| `rows` | z, noise of variance v2 = `after` | drawn integers |
| `selection_bias` | c(y): E[noise of the look; loud], estimated without bias from the look alone | drawn integers |
| `LeafGroups.of` | the group that each leaf's mean square M is measured in | - |

**Source**: docs/method/blocks.md, "Estimates" and "Inside a leaf".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsql.mechanisms.family.partition import Partition
from dpsql.tree import FloatArray, IntArray, Noisy
from dpsql.variance.blocks import BlockVariance

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
