"""Public part of a view by blocks before anything is drawn: grids, budgets, and the forecast it is chosen by.

The error of a grid of loud blocks over random questions is a sum over blocks,

    E_b = v2 E[m] - v2^2 / (k v2 + v1) E[m^2]         m cells of block b in a question, k cells in all

and a quiet block adds next to nothing, so the sum over blocks of E_b min(x_b, c) / c says how much of a plane, weighted
by what questions cut, stands out. That number is linear in the cells up to a cut, so one row moves it by at most the
largest E_b.

    epsilon = e0 + e,   e0 = epsilon CHOICE,   theta = ceil(LOUD M / epsilon)
    U = sum_b W_b min(x_b, theta) + noise of scale max W M / e0,    W_b = ceil(64 E_b epsilon^2 / M^2)
    P = U / (64 theta)                                              in (M / epsilon)^2

m is a product over axes, so both its means are products of sums over one axis. A view that names blocks is asked for
boxes; one that `auto` plans for rectangles, ranges of either axis alone and totals.

| here | there | unit |
|---|---|---|
| `MOST_LOUD`, `MOST_ERROR` | blocks iff P <= 0.48 of P with all blocks loud, and P <= 8 E_product | 1 |
| `SIDES` | sides of the blocks of grids 0, 1, 2 | leaves |
| `SHARES` | f_l: what the looks at grid l spend, and last the cells | share of epsilon - e0 |
| `StageBudgets.leaf` | what a block that stops at grid l spends on its own row: all shares after f_l | units |

**Privacy**: a function of numbers of leaves, declared questions, epsilon and M; `SelectionStatistic.number` alone
sees cells.
**Source**: docs/method/views.md, "The choice".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import ceil
from typing import NamedTuple

import numpy as np

from dpsql.budget import cap_units, scaled_denominator
from dpsql.errors import PrivacyError
from dpsql.mechanisms.designs.partition import BlockGrid, Selection, StageVariances, block_grid
from dpsql.mechanisms.designs.question import FamilyAxis
from dpsql.noise import laplace_variance
from dpsql.tree import FloatArray, IntArray

CHOICE = Fraction(1, 100)
SIDES = (64, 16, 4)  # (64, 32, 8, 4), (32, 8, 4) and (32, 8) err more on the planes of tuning
SHARES = tuple(Fraction(n, 22) for n in (5, 4, 3, 10))  # equal shares err 1.3 times as much there
LOUD = 25  # blocks of fewer rows than so many 1/epsilon are quiet; 20 and 30 err up to 5% more there
GRAIN = 64  # weights of the forecast are integers of 1/64
WEIGHED = (8, 4)  # sides of the blocks that the forecast weighs: the first that leaves ENOUGH of them
ENOUGH = 64  # the noise of the forecast is four blocks of the largest weight: 4% of all on 74 x 99 leaves
MOST_LOUD = 0.48  # about here blocks and product err alike on the planes of tuning
MOST_ERROR = (
    8  # on 256 x 256 leaves both bounds are one; wider planes have more loud blocks for their product
)


class StageBudgets(NamedTuple):
    """Integer budgets over one denominator, which holds M.

    Args:
        look: of a block of each grid.
        leaf: of the row of a block that stops there.
        cell: of a cell.
        denominator: of all of them.
    """

    look: tuple[int, ...]
    leaf: tuple[int, ...]
    cell: int
    denominator: int

    @property
    def variances(self) -> StageVariances:
        look, leaf, (cell,) = (
            laplace_variance(np.array(units), self.denominator)
            for units in (self.look, self.leaf, (self.cell,))
        )
        return StageVariances(look, leaf, float(cell))

    def selection(self, bar: int) -> Selection:
        return bar, np.array(self.look) / self.denominator


def stages(spend: Fraction, sensitivity: int) -> StageBudgets:
    """Budgets of all stages: those of the rows that a cell is in add up to at most `spend`, wherever blocks stop.

    Args:
        spend: epsilon of all stages together.
        sensitivity: M.

    Raises:
        PrivacyError: there is no room for integer budgets.
    """
    t = scaled_denominator(sensitivity)
    look = tuple(cap_units(spend * share, t) for share in SHARES[:-1])
    leaf = tuple(cap_units(spend * sum(SHARES[level + 1 :]), t) for level in range(len(SIDES)))
    return StageBudgets(look, leaf, cap_units(spend * SHARES[-1], t), t * sensitivity)


def block_grids(axes: Sequence[FamilyAxis]) -> tuple[BlockGrid, ...]:
    """The grids of a view, coarse to fine; each block of one is a union of blocks of the next."""
    return tuple(_grid(axes, side) for side in SIDES)


def weighed_grid(axes: Sequence[FamilyAxis]) -> BlockGrid:
    """The grid whose loud blocks the forecast weighs."""
    grids = [_grid(axes, side) for side in WEIGHED]
    return next((grid for grid in grids if grid.cells.size >= ENOUGH), grids[-1])


def _grid(axes: Sequence[FamilyAxis], side: int) -> BlockGrid:
    return block_grid([axis.leaves for axis in axes], [axis.strips for axis in axes], side)


def bar_of(spend: Fraction, sensitivity: int) -> int:
    """theta: the number of drawn integers from which a block is loud, if nothing hid it."""
    return ceil(LOUD * sensitivity / spend)


class Moments(NamedTuple):
    """E[m] and E[m^2] of the runs of one axis, shape (runs,) each."""

    first: FloatArray
    second: FloatArray


def run_moments(axis: FamilyAxis, edges: IntArray, whole: float = 0.0) -> Moments:
    """Number of leaves of each run that a question of the axis covers.

    Args:
        axis: its number of leaves and the ranges asked; None means all.
        edges: borders of the runs.
        whole: how often the axis is asked as a whole.

    >>> from dpsql.mechanisms.designs.question import Grains
    >>> moments = run_moments(FamilyAxis("x", 3, None, Grains(1, 1)), np.array([0, 2, 3]))
    >>> (6 * moments.first).round(9).tolist(), (6 * moments.second).round(9).tolist()
    ([7.0, 3.0], [11.0, 3.0])
    """
    ranges, lengths = _range_moments(axis, edges), np.diff(edges).astype(np.float64)
    return Moments(
        (1 - whole) * ranges.first + whole * lengths, (1 - whole) * ranges.second + whole * lengths**2
    )


def _range_moments(axis: FamilyAxis, edges: IntArray) -> Moments:
    """The same of ranges alone."""
    if axis.workload is not None:
        low, high, weight = (np.asarray(column, np.float64)[:, None] for column in axis.workload)
        covered = np.maximum(np.minimum(high, edges[1:]) - np.maximum(low, edges[:-1]), 0.0)
        share = weight / weight.sum()
        return Moments((share * covered).sum(axis=0), (share * covered**2).sum(axis=0))
    n = axis.leaves
    leaf, run = np.arange(n), np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    first = np.bincount(run, weights=(leaf + 1.0) * (n - leaf))
    second = first.copy()
    for apart in range(1, int(np.diff(edges).max())):
        left_leaf = leaf[:-apart][run[:-apart] == run[apart:]]
        second += np.bincount(
            run[left_leaf], weights=2 * (left_leaf + 1.0) * (n - left_leaf - apart), minlength=len(first)
        )
    ranges = n * (n + 1) / 2
    return Moments(first / ranges, second / ranges)


def loud_errors(
    axes: Sequence[FamilyAxis], grid: BlockGrid, look_variance: float, cell_variance: float, whole: float
) -> FloatArray:
    """E_b of each block, of the grid's shape.

    Args:
        axes: what is asked of them.
        grid: the blocks.
        look_variance: v1, of a block's own number.
        cell_variance: v2.
        whole: how often each axis is asked as a whole.
    """
    moments = [run_moments(axis, edges, whole) for axis, edges in zip(axes, grid.edges, strict=True)]
    first, second = (
        reduce(np.multiply.outer, [axis_moments[i] for axis_moments in moments])
        for i in range(len(Moments._fields))
    )
    return np.asarray(
        cell_variance * first - cell_variance**2 / (grid.cells * cell_variance + look_variance) * second
    )


@dataclass(frozen=True, eq=False)
class SelectionStatistic:
    """The number that chooses.

    Args:
        grid: the blocks.
        weights: W_b, E_b in integers of 1 / GRAIN at epsilon 1, rounded up, of the grid's shape.
        bar: c, at which a block counts as loud; in drawn integers.
        units, denominator: the budget of its noise, for what it may move by.
    """

    grid: BlockGrid
    weights: IntArray
    bar: int
    units: int
    denominator: int

    def number(self, cells: IntArray) -> int:
        """sum W_b min(x_b, c), exactly.

        **Privacy** Raw. Cells are cut before they are added, so that no sum leaves 64 bits: cutting and adding move
        two sets of cells no further apart.
        """
        blocks = np.minimum(self.grid.sums(np.clip(cells, -self.bar, self.bar)), self.bar)
        return int((self.weights * blocks).sum())

    def error(self, number: int) -> float:
        """P, the error of loud blocks that a noisy number stands for, at epsilon 1 and M = 1."""
        return number / (GRAIN * self.bar)

    def takes_blocks(self, number: int, product_error: float) -> bool:
        """True if a noisy number says blocks: P is small for that of a plane all of whose blocks are loud, and
        for the product's error."""
        largest = self.error(int(self.weights.sum()) * self.bar)
        return self.error(number) <= min(MOST_LOUD * largest, MOST_ERROR * product_error)


def forecast(
    axes: Sequence[FamilyAxis], spend: Fraction, sensitivity: int, whole: float = 0.0
) -> SelectionStatistic:
    """The number that chooses, and its noise.

    Args:
        axes: what is asked of them.
        spend: epsilon of the whole statistic.
        sensitivity: M.
        whole: how often each axis is asked as a whole.

    Raises:
        PrivacyError: there is no room for it in 64 bits.

    **Privacy** Weights are rounded before their largest is taken: that is what the noise is drawn for.
    """
    variances, grid = stages(spend * (1 - CHOICE), sensitivity).variances, weighed_grid(axes)
    unit = float(spend) ** 2 / float(sensitivity) ** 2
    errors = loud_errors(axes, grid, float(variances.look[1]), variances.cell, whole)
    weights = np.ceil(GRAIN * unit * errors).astype(np.int64)
    bar, reach = bar_of(spend, sensitivity), int(weights.max()) * sensitivity
    if bar * max(int(weights.sum()), int(grid.cells.max())) >= 1 << 62:
        raise PrivacyError(
            "epsilon is too small for blocks of a measure of this width",
            hint="give the view a larger share, lower max_ids, or write `mechanism: auto`",
        )
    t = scaled_denominator(reach)
    return SelectionStatistic(grid, weights, bar, cap_units(spend * CHOICE, t), t * reach)
