"""Two axes by look and measure: blocks that stand out cell by cell, quiet ones together, or the plain product.

Half of epsilon looks at a grid of blocks. Loud blocks are measured again cell by cell with the other half, quiet ones
are merged and measured once more as wholes. A hundredth of epsilon says beforehand, by one noisy number, whether that
or the product of the axes' strategies errs less: blocks win where most of a plane is empty, and lose where most blocks
are loud. The number is read from the count; sums of the same view follow what the count has chosen.

Nothing here but its offer counts axes. It stops at two: on three, rows that lie in one thin slab (everybody who works
40 hours) hide in quiet blocks, the errors of all blocks that a box cuts there have one sign, and no interval tells.

| here | there | unit |
|---|---|---|
| `CHOICE`, `LOOK` | e0 = epsilon CHOICE, e1 = (epsilon - e0) LOOK, e2 = the rest | epsilon |
| `MERGE` | MERGE | standard deviations |
| `BLOCKS_IF` | take blocks iff P <= 0.9 E_product | 1 |

**Privacy**: docs/privacy/blocks.md. A unit changes the cells by at most M in L1: the number that chooses by max W M,
the looks by M, and, for every partition, the rows by M. Each has its own line in the ledger; a product spends the last
two lines together.
**Source**: docs/method/blocks.md, "The choice", "Look, merge, measure".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import NamedTuple, Self

import numpy as np

from dpsql.errors import InternalError
from dpsql.mechanisms.axis import AUTO
from dpsql.mechanisms.axis import WHOLE as WHOLE
from dpsql.mechanisms.axis.strategy import AxisStrategy
from dpsql.mechanisms.family.block_plan import (
    CHOICE,
    LOOK,
    SelectionStatistic,
    bar_of,
    best_grid,
    forecast,
    stages,
)
from dpsql.mechanisms.family.measurement import (
    AxisWorkload,
    ChargeLine,
    DrawnMember,
    MeasuredAxis,
    MeasurementFacts,
    Terms,
    estimated,
)
from dpsql.mechanisms.family.partition import (
    BlockGrid,
    BlockRows,
    Partition,
    block_variance,
    cell_estimates,
    leaf_groups,
    partition,
)
from dpsql.mechanisms.family.product import PRODUCT, product_view
from dpsql.mechanisms.family.question import (
    Answer,
    FamilyAxis,
    FamilyCandidate,
    FamilyDesign,
    FamilyQuestion,
    NamedFamily,
    stands_alone,
)
from dpsql.mechanisms.law import GAUSSIAN, LAPLACE, NoisyRows, NoisyView, joined, picked, shaped
from dpsql.mechanisms.offers import Offer, Refusal
from dpsql.noise import Noise
from dpsql.tree import Exact, FloatArray, IntArray, Noisy
from dpsql.variance.blocks import BlockReading, BlockVariance, LookedReading
from dpsql.variance.estimated import Estimated
from dpsql.variance.reconcile import Subset

MERGE = 1  # of .5, 1, 2 and 3 the most even on the planes of tuning
BLOCKS_IF = 0.9  # actual over predicted error lay in .83 to 1.27: at the border less than 1.15 is lost
FEWEST_BLOCKS = 16
"""On fewer blocks next to nothing is left to merge."""


class Outcome(NamedTuple):
    """How a statistic answers, once it was drawn.

    Args:
        words: what was measured; empty before.
        reading: its name.
        model: of blocks; None for a product.
    """

    words: str
    reading: str
    model: BlockVariance | None


BEFORE = Outcome("", LookedReading.name, None)
"""As long as nothing was drawn a plan speaks of the product, beyond which a release errs by 2% at most."""


@dataclass(frozen=True, eq=False)
class DrawnBlocks:
    """One statistic after its draw.

    Args:
        value, budget, unit_variance: as `NoisyView`, in one line: the number that chose, then looks and rows, or the
            product's rows.
        leaves: estimates of the cells.
        outcome: what was measured.
        rows: by blocks; None for a product.
    """

    value: Noisy
    budget: IntArray
    unit_variance: float
    leaves: FloatArray
    outcome: Outcome
    rows: BlockRows | None


@dataclass(frozen=True, eq=False)
class Blocks:
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
    def facts(self) -> MeasurementFacts:
        """The choice, the looks and the rows are paid apart; a product spends the last two together."""
        chosen = (ChargeLine("choice of blocks or product", CHOICE),) if self.first else ()
        remaining = 1 - self.choice
        looks, cells = remaining * LOOK, remaining * (1 - LOOK)
        parts = (*chosen, ChargeLine("looks at blocks", looks), ChargeLine("cells and leaves", cells))
        return MeasurementFacts(parts, self.outcome.reading, replay=self, model=self.outcome.model)

    def words(self, strategies: Sequence[str]) -> str:
        """What was drawn, or what may be."""
        return self.outcome.words or f"blocks, or if they are full {PRODUCT.words(strategies)}"

    def settled(self, view: NoisyRows) -> Self:
        """With the outcome of a draw."""
        return replace(self, outcome=_drawn(view).outcome)

    def row_count(self, strategies: Sequence[AxisStrategy]) -> int:
        return PRODUCT.row_count(strategies)

    def unit_variance(self, terms: Terms) -> float:
        return PRODUCT.unit_variance(self._left(terms))

    def mean_variance(
        self,
        axes: Subset,
        unit: float,
        family: Sequence[tuple[Subset, float]],
        asked: Mapping[int, AxisWorkload],
    ) -> float:
        """Of the product: the most that is expected."""
        return PRODUCT.mean_variance(axes, unit, family, asked)

    def draw(self, cells: Exact, terms: Terms, noise: Noise) -> NoisyRows:
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
        stage_budgets, grid = stages(remaining.spend, remaining.sensitivity), self._grid(terms)
        looks = np.full(grid.cells.size, stage_budgets.look, np.int64)
        look = LAPLACE.draw_units(Exact(grid.sums(cells).ravel()), looks, stage_budgets.denominator, noise)
        chosen_rows = self._partition(look, terms)
        rows = np.full(chosen_rows.row_count, stage_budgets.rows, np.int64)
        sums = Exact(chosen_rows.measure(cells))
        value += [look, LAPLACE.draw_units(sums, rows, stage_budgets.denominator, noise)]
        return self.restored(joined(*value), terms)

    def restored(self, value: Noisy, terms: Terms) -> DrawnBlocks:
        """What a draw was, from its noisy integers and public facts alone.

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
        stage_budgets, grid = stages(remaining.spend, remaining.sensitivity), self._grid(terms)
        look, rows = picked(measured, slice(grid.cells.size)), picked(measured, slice(grid.cells.size, None))
        _check_length(look, grid.cells.size)
        chosen_rows = self._partition(look, terms)
        _check_length(rows, chosen_rows.row_count)
        budget += [
            np.full(len(look), stage_budgets.look, np.int64),
            np.full(len(rows), stage_budgets.rows, np.int64),
        ]
        noisy_rows = BlockRows(chosen_rows, shaped(look, grid.shape), rows, stage_budgets.variances)
        count = self._count(terms)
        selection = stage_budgets.selection(bar_of(terms.spend, terms.sensitivity)) if self.first else None
        model = block_variance(noisy_rows, leaf_groups(count or noisy_rows), count)
        outcome = Outcome(_words(noisy_rows.partition), BlockReading.name, model)
        leaves = cell_estimates(noisy_rows, selection)
        return DrawnBlocks(value, np.concatenate(budget), 1.0, leaves, outcome, noisy_rows)

    def _product(
        self, value: Noisy, measured: Noisy, budget: list[IntArray], remaining: Terms
    ) -> DrawnBlocks:
        """A draw of the product's rows."""
        row_budget = PRODUCT.budgets(remaining)
        _check_length(measured, row_budget.size)
        unit = PRODUCT.unit_variance(remaining)
        view = NoisyView(shaped(measured, row_budget.shape), row_budget, unit, remaining.sensitivity)
        leaves = PRODUCT.leaf_estimates(view, remaining.strategies)
        outcome = Outcome("a product, blocks are full", LookedReading.name, None)
        return DrawnBlocks(value, np.concatenate([*budget, row_budget.ravel()]), unit, leaves, outcome, None)

    def _left(self, terms: Terms) -> Terms:
        """What is drawn with after the choice."""
        return terms._replace(spend=terms.spend * (1 - self.choice))

    def _count(self, terms: Terms) -> BlockRows | None:
        """The looks and rows of the view's count, where this is another statistic."""
        return None if self.first or terms.beside is None else _drawn(terms.beside).rows

    def _grid(self, terms: Terms) -> BlockGrid:
        return best_grid(self.axes, self.whole)

    def _forecast(self, terms: Terms) -> SelectionStatistic:
        """The number that chooses, before it is known."""
        return forecast(self.axes, self._grid(terms), terms.spend, terms.sensitivity, self.whole)

    def _takes_blocks(self, chosen: Sequence[Noisy], terms: Terms) -> bool:
        """What the count's noisy number says; other statistics follow the count."""
        if not self.first:
            return self._count(terms) is not None
        return self._forecast(terms).error(int(chosen[0][0])) <= BLOCKS_IF * self.product_error

    def _partition(self, look: Noisy, terms: Terms) -> Partition:
        """What the count's looks say."""
        count = self._count(terms)
        if count is not None:
            return count.partition
        grid, stage_budgets = self._grid(terms), stages(self._left(terms).spend, terms.sensitivity)
        bar = bar_of(terms.spend, terms.sensitivity)
        return partition(grid, shaped(look, grid.shape), bar, stage_budgets.scale, MERGE)

    def estimate(self, family: Sequence[DrawnMember], axes: Mapping[int, MeasuredAxis]) -> list[Estimated]:
        return [
            estimate
            for member in family
            for estimate in estimated(self.settled(member.view), [member], [_drawn(member.view).leaves], axes)
        ]

    def components(
        self, family: Sequence[tuple[Subset, float]], totals: Mapping[int, float]
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
    loud = int(np.count_nonzero(pieces.loud))
    return f"blocks: {loud} of {pieces.grid.cells.size} cell by cell, the others as {len(pieces.level) - loud} leaves"


TITLE = "blocks"
NAMED: Mapping[str, NamedFamily] = {TITLE: NamedFamily(stands_alone, whole=0.0)}
"""A view that names it is asked for boxes alone; one that competes as its rivals are (`WHOLE`)."""


def offers(question: FamilyQuestion) -> Iterator[Answer]:
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


def _refusal(question: FamilyQuestion) -> tuple[str, str] | None:
    """Why blocks do not fit, and what to write instead."""
    view = question.views[0]
    axes = [question.axes[axis] for axis in view.axes]
    reasons = {
        ("is for `data_dependent: allow`", "write it, or `mechanism: blocks`"): question.lets(TITLE),
        ("measures two axes", "write auto, or views of two axes"): len(axes) == 2,
        ("is for delta 0", "remove privacy.delta, or write auto"): not question.allows(GAUSSIAN),
        ("stands for `mechanism: auto`", "write auto"): view.word == AUTO,
        ("looks at the view's count first", "list count first in `measures`"): next(iter(view.charges), "") == "count",
        ("needs a declared max_ids", f"write a number in max_ids of {question.of}"): not question.people,
        ("is not made batch by batch", "write auto"): not question.batches,
    }  # fmt: skip
    short = next((reason for reason, met in reasons.items() if not met), None)
    if short is None and prod(best_grid(axes, question.whole).shape) < FEWEST_BLOCKS:
        return "finds too few blocks on axes of so few leaves", "write auto, or cut the axes finer"
    return short
