"""Two axes by look and measure: blocks that stand out are split down to cells, quiet ones stay whole, or the product.

A grid of few coarse blocks is looked at. Loud blocks are split into finer ones, which are looked at in turn, and at
last into cells; a quiet block spends what is left on one more number. A hundredth of epsilon says beforehand, by one
noisy number, whether that or the product of the axes' strategies errs less: blocks win where most of a plane is empty
or smooth, and lose where most blocks are loud. The number is read from the count; sums of the same view follow what the
count has chosen.

Nothing here but its offer counts axes. It stops at two: on three, rows that lie in one thin slab (everybody who works
40 hours) hide in quiet blocks, the errors of all blocks that a box cuts there have one sign, and no interval tells.

| here | there | unit |
|---|---|---|
| `CHOICE` | e0 = epsilon CHOICE | epsilon |

**Privacy**: docs/privacy/data_dependent.md. A unit changes the cells by at most M in L1: the number that chooses by
max W M, the looks at each grid by M, and, for every partition, the last rows by M. Budgets of the rows that a cell is
in add up to what is left of epsilon, so all looks and rows are one line in the ledger, and a product spends that line.
Grids, budgets and forecasts are a function of numbers of leaves, declared questions, epsilon and M;
`SelectionStatistic.number` alone sees cells.
**Source**: docs/method/views.md, "The choice", "Look, split, measure".

Grids and budgets are public, and so is the forecast by which blocks are chosen. The error of a grid of loud blocks over
random questions is a sum over blocks,

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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from math import ceil, prod
from typing import NamedTuple, Self

import numpy as np

from dpsql.budget import cap_units, scaled_denominator
from dpsql.errors import InternalError, PrivacyError
from dpsql.matrices.blocks import LOOKED, BlockReading, BlockVariance
from dpsql.matrices.estimated import Estimated
from dpsql.matrices.reconcile import Subset
from dpsql.mechanisms.axis import AUTO
from dpsql.mechanisms.axis import WHOLE as WHOLE
from dpsql.mechanisms.designs import measurement
from dpsql.mechanisms.designs.partition import (
    BlockGrid,
    BlockRows,
    Mask,
    Partition,
    Selection,
    StageVariances,
    block_grid,
    block_variance,
    cell_estimates,
    leaf_groups,
    partition,
)
from dpsql.mechanisms.designs.product import PRODUCT, product_view
from dpsql.mechanisms.designs.question import (
    DesignProblem,
    FamilyAxis,
    FamilyCandidate,
    FamilyDesign,
    NamedFamily,
    Proposal,
    stands_alone,
)
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoisyRows, NoisyView, joined, picked, shaped
from dpsql.mechanisms.offers import Offer, Refusal
from dpsql.noise import Noise
from dpsql.noise.discrete import laplace_variance
from dpsql.tree import Exact, FloatArray, IntArray, Noisy

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


FEWEST_BLOCKS = 16
"""On fewer blocks of the grid that is weighed next to nothing is left to choose."""


class Outcome(NamedTuple):
    """Reading of a statistic after it was drawn.

    Args:
        words: what was measured; empty before.
        reading: its name.
        model: of blocks; None for a product.
    """

    words: str
    reading: str
    model: BlockVariance | None


BEFORE = Outcome("", LOOKED, None)
"""As long as nothing was drawn a plan speaks of the product, beyond which a release errs by 2% at most."""


@dataclass(frozen=True, eq=False)
class DrawnBlocks:
    """One statistic after its draw.

    Args:
        value, budget, unit_variance: as `NoisyView`, in one line: the number that chose, then looks from the coarsest
            grid down and rows, or the product's rows.
        leaves: estimates of the cells.
        outcome: what was measured.
        rows: by blocks; None for a product.
    """

    value: Noisy
    budget: IntArray
    variance_at_unit_budget: float
    leaves: FloatArray
    outcome: Outcome
    rows: BlockRows | None


@dataclass(frozen=True, eq=False)
class Blocks(measurement.LinearRows):
    """A view of two axes by blocks, or by the product of its axes' strategies. See `Measurement`.

    Args:
        axes: the view's axes.
        product_error: of the product over the questions that the view is asked, at epsilon 1.
        first: whether it is the count that chooses; the view's other statistics follow.
        outcome: what was drawn.
        whole: how often each axis is asked as a whole; 0 where boxes alone are.
    """

    axes: tuple[FamilyAxis, ...]
    product_error: float
    first: bool = True
    outcome: Outcome = BEFORE
    whole: float = 0.0

    @property
    def choice(self) -> Fraction:
        return CHOICE if self.first else Fraction(0)

    @property
    def facts(self) -> measurement.MeasurementFacts:
        """The choice is paid apart; looks and rows are one line: what a quiet block saves it spends on its row."""
        chosen = (measurement.ChargeLine("choice of blocks or product", CHOICE),) if self.first else ()
        parts = (*chosen, measurement.ChargeLine("blocks and cells", 1 - self.choice))
        return measurement.MeasurementFacts(
            parts, self.outcome.reading, replay=self.restored, model=self.outcome.model
        )

    def words(self, strategies: Sequence[str]) -> str:
        """Blocks drawn or planned, in words."""
        return self.outcome.words or f"blocks, or if they are full {PRODUCT.words(strategies)}"

    def settled(self, view: NoisyRows) -> Self:
        """With the outcome of a draw."""
        return replace(self, outcome=_drawn(view).outcome)

    def variance_at_unit_budget(self, terms: measurement.DrawParameters) -> float:
        return PRODUCT.variance_at_unit_budget(self._left(terms))

    def draw(self, cells: Exact, terms: measurement.DrawParameters, noise: Noise) -> NoisyRows:
        """Choose, look and measure, or follow what the view's count has chosen.

        **Privacy**: epsilon-DP for neighbours that differ in one unit's rows, given what was drawn before.
        """
        value: list[Noisy] = []
        if self.first:
            chosen = self._forecast(terms)
            number = Exact(np.array([chosen.number(cells)], np.int64))
            value.append(LAPLACE.draw_units(number, np.array([chosen.units]), chosen.denominator, noise))
        remaining = self._left(terms)
        if not self._takes_blocks(value, terms):
            value.append(PRODUCT.draw(cells, remaining, noise).value)
            return self.restored(joined(*value), terms)
        budgets = stages(remaining.spend, remaining.sensitivity)

        def look(level: int, nodes: Mask) -> Noisy:
            exact = Exact(grids[level].sums(cells)[nodes])
            units = np.full(len(exact), budgets.look[level], np.int64)
            return LAPLACE.draw_units(exact, units, budgets.denominator, noise)

        grids = block_grids(self.axes)
        chosen_rows, numbers = self._partition(look, terms)
        rows = chosen_rows.row_budgets(budgets.leaf, budgets.cell)
        sums = Exact(chosen_rows.measure(cells))
        value += [numbers, LAPLACE.draw_units(sums, rows, budgets.denominator, noise)]
        return self.restored(joined(*value), terms)

    def restored(self, value: Noisy, terms: measurement.DrawParameters) -> DrawnBlocks:
        """Draw restored from its noisy integers and public facts alone.

        Args:
            value: as stored.
            terms: what it was drawn with.

        Raises:
            InternalError: there are too many integers, or too few.

        **Privacy** Post-processing.
        """
        chosen, measured = picked(value, slice(int(self.first))), picked(value, slice(int(self.first), None))
        budget = [np.array([self._forecast(terms).units])] if self.first else []
        remaining = self._left(terms)
        if not self._takes_blocks([chosen], terms):
            return self._product(value, measured, budget, remaining)
        budgets, start = stages(remaining.spend, remaining.sensitivity), 0

        def stored(level: int, nodes: Mask) -> Noisy:
            nonlocal start
            start += int(np.count_nonzero(nodes))
            return picked(measured, slice(start - int(np.count_nonzero(nodes)), start))

        chosen_rows, looks = self._partition(stored, terms)
        _check_length(looks, len(chosen_rows.level))
        rows = picked(measured, slice(start, None))
        _check_length(rows, chosen_rows.row_count)
        budget += [np.array(budgets.look, np.int64)[chosen_rows.level],
                   chosen_rows.row_budgets(budgets.leaf, budgets.cell)]  # fmt: skip
        noisy_rows = BlockRows(chosen_rows, looks, rows, budgets.variances)
        count = self._count(terms)
        selection = budgets.selection(bar_of(terms.spend, terms.sensitivity)) if self.first else None
        model = block_variance(noisy_rows, leaf_groups(count or noisy_rows), count)
        outcome = Outcome(_words(noisy_rows.partition), BlockReading.name, model)
        leaves = cell_estimates(noisy_rows, selection)
        return DrawnBlocks(value, np.concatenate(budget), 1.0, leaves, outcome, noisy_rows)

    def _product(
        self, value: Noisy, measured: Noisy, budget: list[IntArray], remaining: measurement.DrawParameters
    ) -> DrawnBlocks:
        """A draw of the product's rows."""
        row_budget = PRODUCT.budgets(remaining)
        _check_length(measured, row_budget.size)
        unit = PRODUCT.variance_at_unit_budget(remaining)
        view = NoisyView(shaped(measured, row_budget.shape), row_budget, unit, remaining.sensitivity)
        leaves = PRODUCT.leaf_estimates(view, remaining.strategies)
        outcome = Outcome("a product, blocks are full", LOOKED, None)
        return DrawnBlocks(value, np.concatenate([*budget, row_budget.ravel()]), unit, leaves, outcome, None)

    def _left(self, terms: measurement.DrawParameters) -> measurement.DrawParameters:
        """Budget left for the draw after the choice."""
        return terms._replace(spend=terms.spend * (1 - self.choice))

    def _count(self, terms: measurement.DrawParameters) -> BlockRows | None:
        """The looks and rows of the view's count, where this is another statistic."""
        return None if self.first or terms.beside is None else _drawn(terms.beside).rows

    def _forecast(self, terms: measurement.DrawParameters) -> SelectionStatistic:
        """The number that chooses, before it is known."""
        return forecast(self.axes, terms.spend, terms.sensitivity, self.whole)

    def _takes_blocks(self, chosen: Sequence[Noisy], terms: measurement.DrawParameters) -> bool:
        """Choice by the count's noisy number; other statistics follow the count."""
        if not self.first:
            return self._count(terms) is not None
        return self._forecast(terms).takes_blocks(int(chosen[0][0]), self.product_error)

    def _partition(
        self, look: Callable[[int, Mask], Noisy], terms: measurement.DrawParameters
    ) -> tuple[Partition, Noisy]:
        """Partition by the count's selection, and the noisy values at its nodes.

        Args:
            look: as of `partition`.
            terms: what is drawn with.
        """
        count = self._count(terms)
        if count is None:
            return partition(block_grids(self.axes), bar_of(terms.spend, terms.sensitivity), look)
        nodes = count.partition
        return nodes, joined(*(look(level, nodes.is_node(level)) for level in range(len(nodes.grids))))

    def estimate(
        self, family: Sequence[measurement.DrawnMember], axes: Mapping[int, measurement.MeasuredAxis]
    ) -> list[Estimated]:
        return [
            estimate
            for member in family
            for estimate in measurement.estimated(
                self.settled(member.view), [member], [_drawn(member.view).leaves], axes
            )
        ]

    def components(
        self, family: measurement.MemberVariances, totals: Mapping[int, float]
    ) -> dict[Subset, float]:
        """One of blocks, all of a product's."""
        return PRODUCT.components(family, totals) if self.outcome.model is None else dict(family)


def _drawn(view: NoisyRows) -> DrawnBlocks:
    if not isinstance(view, DrawnBlocks):
        raise InternalError("a view by blocks was drawn by something else")
    return view


def _check_length(value: Noisy, wanted: int) -> None:
    """Refuse a stored line that is longer or shorter than what it says was drawn."""
    if len(value) != wanted:
        raise InternalError(f"{len(value)} noisy integers stand where {wanted} were drawn")


def _words(pieces: Partition) -> str:
    loud, leaves = (int(np.count_nonzero(which)) for which in (pieces.loud, ~pieces.is_split))
    return f"blocks: {loud} of {pieces.grids[-1].cells.size} cell by cell, the others as {leaves} leaves"


TITLE = "blocks"
NAMED: Mapping[str, NamedFamily] = {TITLE: NamedFamily(stands_alone, whole=0.0)}
"""A view that names it is asked for boxes alone; one that competes as its rivals are (`WHOLE`)."""


def offers(question: DesignProblem) -> Iterator[Proposal]:
    """For a view of two axes that lets its strategy look first."""
    refusal = _refusal(question)
    if refusal is not None:
        yield Refusal(TITLE, *refusal)
        return

    def make() -> FamilyCandidate:
        (view,) = question.views
        product_choice = product_view(question, view)
        blocks = Blocks(
            tuple(question.axes[axis] for axis in view.axes), product_choice.error, whole=question.whole
        )
        following = replace(blocks, first=False)
        largest_error = product_choice.error / float(1 - CHOICE) ** 2
        return FamilyCandidate(
            "blocks, or a product",
            FamilyDesign(blocks, (product_choice,), following=following),
            lambda: largest_error,
        )

    yield Offer(TITLE, 0.0, make)


def _refusal(question: DesignProblem) -> tuple[str, str] | None:
    """Reason why blocks do not fit, and what to write instead."""
    view = question.views[0]
    axes = [question.axes[axis] for axis in view.axes]
    reasons = {
        ("is for `data_dependent: allow`", "write it, or `mechanism: blocks`"): question.lets(TITLE),
        ("measures two axes", "write auto, or views of two axes"): len(axes) == 2,
        ("is for delta 0", "remove privacy.delta, or write auto"): question.law != GAUSSIAN,
        ("needs `mechanism: auto`", "write auto"): view.word == AUTO,
        ("needs the view's count first", "list count first in `measures`"): next(iter(view.charges), "") == "count",
        ("needs a declared max_ids", f"write a number in max_ids of {question.of}"): not question.people,
        ("is not made batch by batch", "write auto"): not question.batches,
    }  # fmt: skip
    short = next((reason for reason, met in reasons.items() if not met), None)
    if short is None and prod(weighed_grid(axes).shape) < FEWEST_BLOCKS:
        return "finds too few blocks on axes of so few leaves", "write auto, or cut the axes finer"
    return short
