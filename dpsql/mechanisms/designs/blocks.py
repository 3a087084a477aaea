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
max W M, the looks at each grid by M, and, for every partition, the last rows by M. Budgets of the rows that a cell
is in add up to what is left of epsilon, so all looks and rows are one line in the ledger, and a product spends that
line.
**Source**: docs/method/views.md, "The choice", "Look, split, measure".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import NamedTuple, Self

import numpy as np

from dpsql.errors import InternalError
from dpsql.matrices.blocks import LOOKED, BlockReading, BlockVariance
from dpsql.matrices.estimated import Estimated
from dpsql.matrices.reconcile import Subset
from dpsql.mechanisms.axis import AUTO
from dpsql.mechanisms.axis import WHOLE as WHOLE
from dpsql.mechanisms.designs.block_plan import (
    CHOICE,
    SelectionStatistic,
    bar_of,
    block_grids,
    forecast,
    stages,
    weighed_grid,
)
from dpsql.mechanisms.designs.measurement import (
    ChargeLine,
    DrawnMember,
    DrawParameters,
    MeasuredAxis,
    MeasurementFacts,
    estimated,
)
from dpsql.mechanisms.designs.partition import (
    BlockRows,
    Mask,
    Partition,
    block_variance,
    cell_estimates,
    leaf_groups,
    partition,
)
from dpsql.mechanisms.designs.product import PRODUCT, ExpectedProduct, product_view
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
from dpsql.tree import Exact, FloatArray, IntArray, Noisy

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
class Blocks(ExpectedProduct):
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
        """The choice is paid apart; looks and rows are one line: what a quiet block saves it spends on its row."""
        chosen = (ChargeLine("choice of blocks or product", CHOICE),) if self.first else ()
        parts = (*chosen, ChargeLine("blocks and cells", 1 - self.choice))
        return MeasurementFacts(parts, self.outcome.reading, replay=self, model=self.outcome.model)

    def words(self, strategies: Sequence[str]) -> str:
        """Blocks drawn or planned, in words."""
        return self.outcome.words or f"blocks, or if they are full {PRODUCT.words(strategies)}"

    def settled(self, view: NoisyRows) -> Self:
        """With the outcome of a draw."""
        return replace(self, outcome=_drawn(view).outcome)

    def variance_at_unit_budget(self, terms: DrawParameters) -> float:
        return PRODUCT.variance_at_unit_budget(self._left(terms))

    def draw(self, cells: Exact, terms: DrawParameters, noise: Noise) -> NoisyRows:
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

    def restored(self, value: Noisy, terms: DrawParameters) -> DrawnBlocks:
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
        self, value: Noisy, measured: Noisy, budget: list[IntArray], remaining: DrawParameters
    ) -> DrawnBlocks:
        """A draw of the product's rows."""
        row_budget = PRODUCT.budgets(remaining)
        _check_length(measured, row_budget.size)
        unit = PRODUCT.variance_at_unit_budget(remaining)
        view = NoisyView(shaped(measured, row_budget.shape), row_budget, unit, remaining.sensitivity)
        leaves = PRODUCT.leaf_estimates(view, remaining.strategies)
        outcome = Outcome("a product, blocks are full", LOOKED, None)
        return DrawnBlocks(value, np.concatenate([*budget, row_budget.ravel()]), unit, leaves, outcome, None)

    def _left(self, terms: DrawParameters) -> DrawParameters:
        """Budget left for the draw after the choice."""
        return terms._replace(spend=terms.spend * (1 - self.choice))

    def _count(self, terms: DrawParameters) -> BlockRows | None:
        """The looks and rows of the view's count, where this is another statistic."""
        return None if self.first or terms.beside is None else _drawn(terms.beside).rows

    def _forecast(self, terms: DrawParameters) -> SelectionStatistic:
        """The number that chooses, before it is known."""
        return forecast(self.axes, terms.spend, terms.sensitivity, self.whole)

    def _takes_blocks(self, chosen: Sequence[Noisy], terms: DrawParameters) -> bool:
        """Choice by the count's noisy number; other statistics follow the count."""
        if not self.first:
            return self._count(terms) is not None
        return self._forecast(terms).takes_blocks(int(chosen[0][0]), self.product_error)

    def _partition(
        self, look: Callable[[int, Mask], Noisy], terms: DrawParameters
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
