"""Each axis by a strategy of its own: a row of the view is a product of the axes' rows.

Views that share axes are reconciled part by part. Every word of the catalog for the strategy of an axis leads here,
and so does `auto` where no way to measure several axes at once errs less.

Counts and sums of one view that the same rows of the table move are several numbers by one pure draw.

Where a measure may be NULL, its count of values and the count of all rows are not drawn as such:

| statistics of the view | drawn | COUNT(*) | COUNT(x) |
|---|---|---|---|
| count, count(x), x if it is summed | n_0 = rows with NULL by itself; (n_1 = other rows, x) as one | n_0 + n_1 | n_1 |
| count, count(x_j), others | (count, g_j = 2 count(x_j) - count, others) as one | count | (count + g_j) / 2 |

COUNT(x) of the second line is stored in halves of a row.

No row moves the number of rows with NULL and the sum, so each has the whole epsilon. Variances at epsilon 1: of the
first line COUNT(*) 6, COUNT(x) and SUM(x) 4 each (4 and 2 without the sum); of the second V = (d + 1)(d + 2) / 3 for d
numbers, as of any joint draw, where a draw for each number has 2 d^2, and COUNT(x) V / 2. Numbers of one draw are
uncorrelated.

Each number has a draw of its own in streams (their noise may be drawn ahead, and their state holds it statistic by
statistic), with reported columns (the channel is undone statistic by statistic), with `max_ids: auto`, and for
mechanisms that select by noisy numbers.

**Privacy**: docs/privacy.md, "Several numbers by one draw"; budgets are products over axes, as the law combines them.
**Source**: docs/method/views.md, "Products of axes"; docs/method/rows.md, "Joint rows", "Rows with NULL".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dpsql.errors import CatalogError, InternalError
from dpsql.matrices.estimated import Estimated
from dpsql.matrices.kronecker import ProductReading
from dpsql.matrices.strategy import (
    NullCount,
    Strategy,
    axis_budgets,
    measure_view,
    tree_of,
)
from dpsql.mechanisms.axis import WHOLE, axis_strategy, laws_of
from dpsql.mechanisms.axis.strategy import AxisChoice, AxisProblem, JointCells, Word, leaf_estimates
from dpsql.mechanisms.designs.measurement import (
    AxisWorkload,
    ChargeLine,
    DrawnMember,
    DrawParameters,
    LinearRows,
    MeasuredAxis,
    MeasurementFacts,
    StatisticShare,
    asked_sets,
    estimated,
    mean_error,
)
from dpsql.mechanisms.designs.question import (
    DesignProblem,
    FamilyAxis,
    FamilyCandidate,
    FamilyDesign,
    FamilyView,
    NamedFamily,
    Proposal,
    ViewChoice,
)
from dpsql.mechanisms.distribution import (
    GAUSSIAN,
    LAPLACE,
    Laplace,
    NoiseDistribution,
    NoisyView,
    as_laplace,
    refined,
    signed_sum,
)
from dpsql.mechanisms.offers import Offer, Refusal
from dpsql.noise import Noise
from dpsql.noise.knorm import MOST_DRAWN, expected_tries
from dpsql.tree import Exact, IntArray


class Product(LinearRows):
    """Axes one by one. See `Measurement` and `LinearRows` for what its methods answer."""

    @property
    def facts(self) -> MeasurementFacts:
        """One part; all views of a table are one family."""
        return MeasurementFacts((ChargeLine("", Fraction(1)),), ProductReading.name, "", linear=self)

    def estimate(self, family: Sequence[DrawnMember], axes: Mapping[int, MeasuredAxis]) -> list[Estimated]:
        """Every view by itself, then reconciled part by part."""
        leaves = [leaf_estimates(m.view, [axes[axis].strategy for axis in m.axes]) for m in family]
        return estimated(self, family, leaves, axes, agree=True)


PRODUCT = Product()

NAMED: Mapping[str, NamedFamily] = {}


def offers(question: DesignProblem) -> Iterator[Proposal]:
    """Fits all views whose rows per person are declared."""
    name = "axes one by one"
    if question.people:
        yield Refusal(name, f"needs a declared number in max_ids of {question.of}")
        return

    def design(views: Sequence[ViewChoice], words: str = name) -> FamilyCandidate:
        words = " x ".join(choice.name for choice in views[0].axes) if len(views) == 1 else words
        return FamilyCandidate(words, FamilyDesign(PRODUCT, tuple(views)), lambda: _error(question, views))

    views = [product_view(question, view, trees=len(question.views) == 1) for view in question.views]
    yield Offer(name, 0.0, lambda: design(views))
    on_trees = [_on_tree(question, views, place) for place in range(len(views))]
    if any(choice is not None for choice in on_trees):
        chosen = [tree or view for tree, view in zip(on_trees, views, strict=True)]
        yield Offer("joint trees", 0.0, lambda: design(chosen, "axes one by one, some leaves by one draw"))


def product_view(question: DesignProblem, view: FamilyView, *, trees: bool = True) -> ViewChoice:
    """The strategies of a view's axes, as its word says.

    Args:
        question: its family.
        view: the view.
        trees: whether the leaves of its axis may be drawn together, where it has one.

    Raises:
        CatalogError: the word has no rows for the family's noise.
    """
    law = question.law
    if law not in laws_of(view.word):
        needed, hint = (
            ("delta 0", "remove it") if law == GAUSSIAN else ("delta above 0", "write privacy.delta")
        )
        raise CatalogError(
            f"views.{view.name}.mechanism: {view.word.name} needs {needed}", hint=f"{hint}, or auto"
        )
    joint = question.joint_cells(view, 0) if trees and len(view.axes) == 1 else None
    shared = _shares_axes(question, view)
    choices = (question.axes[i].once(_strategy, law, view.word, shared, joint) for i in view.axes)
    return ViewChoice(law, tuple(choices))


def _shares_axes(question: DesignProblem, view: FamilyView) -> bool:
    return len(view.axes) > 1 and question.whole > 0


def _on_tree(question: DesignProblem, views: Sequence[ViewChoice], place: int) -> ViewChoice | None:
    """Leaves of one axis drawn together for each cell of the others, where that errs less than rows of each axis.

    Args:
        question: the family.
        views: its views without trees.
        place: of the view among them.
    """
    view, choices = question.views[place], [views[place]]
    if question.joint_cells(view, 0) is None:
        return None
    shared = _shares_axes(question, view)
    if len(view.axes) == 1:
        choices.append(product_view(question, view))
    for position, axis in enumerate(view.axes if len(view.axes) > 1 else ()):
        joint = question.joint_cells(view, position)
        tree = question.axes[axis].once(_strategy, LAPLACE, view.word, shared, joint)
        if tree_of(axis_budgets([tree.strategy])) is not None:
            cells = [question.axes[i].once(_strategy, LAPLACE, CELLS, shared, None) for i in view.axes]
            choices.append(ViewChoice(LAPLACE, (*cells[:position], tree, *cells[position + 1 :])))
    kept = [choice for choice in choices if _still_agrees(question, views, place, choice)]
    best = min(kept, key=lambda choice: choice.error)
    return None if best is choices[0] else best


def _still_agrees(
    question: DesignProblem, views: Sequence[ViewChoice], place: int, choice: ViewChoice
) -> bool:
    """True if a view may be measured so and still agree with all views that it agrees with now: they are
    reconciled on axes that have one strategy, and no answer of one may contradict the other's."""
    for axis, before, after in zip(question.views[place].axes, views[place].axes, choice.axes, strict=True):
        for view, other in zip(question.views, views, strict=True):
            if other is not views[place] and axis in view.axes:
                strategy = other.axes[view.axes.index(axis)].strategy
                if before.strategy == strategy and after.strategy != strategy:
                    return False
    return True


CELLS = Word("identity")


def _strategy(
    axis: FamilyAxis, law: NoiseDistribution, word: Word, shared: bool, joint: JointCells | None
) -> AxisChoice:
    """The strategy of an axis; one that shares its views is asked as a whole half of the time."""
    scale = axis.grains.shared if shared else axis.grains.alone
    question = AxisProblem(axis.leaves, law, axis.workload, WHOLE if shared else 0.0, scale, joint)
    return axis_strategy(question, word, shared)


def _error(question: DesignProblem, views: Sequence[ViewChoice]) -> float:
    """Of one view in closed form; of several once they are reconciled, the mean over measures."""
    if len(views) == 1:
        return question.joint_gain(question.views[0]) * views[0].error
    ids: dict[tuple[int, Strategy], int] = {}  # views that share a strategy have one axis
    members = []
    for view, choice in zip(question.views, views, strict=True):
        own = [(axis, axis_choice.strategy) for axis, axis_choice in zip(view.axes, choice.axes, strict=True)]
        members.append(tuple(sorted(ids.setdefault(pair, len(ids)) for pair in own)))
    asked_axes = {i: AxisWorkload(own.solver, question.workload(axis)) for (axis, own), i in ids.items()}
    errors = []
    for measure in question.measures:
        charges = [float(view.charges.get(measure, 0)) for view in question.views]
        drawn = [
            StatisticShare(axes, question.joint_gain(view) * question.unit(charge / sum(charges)))
            for view, axes, charge in zip(question.views, members, charges, strict=True)
            if charge
        ]
        sets = asked_sets(
            [StatisticShare(axes, charge) for axes, charge in zip(members, charges, strict=True) if charge]
        )
        errors.append(mean_error(PRODUCT, drawn, sets, asked_axes))
    return sum(errors) / len(errors)


MOST_TRIES = 64
"""Mean tries of one vector above which a view's numbers have a draw each. Of any epsilon ten counts take at most 17,
sixteen 55, twenty-five 261 tries; the most of them at an epsilon of 11, 18 and 28."""


_RATES = 64


COUNT, COUNT_OF = "count", "count({})"
"""Names of the statistics that count all rows, and those where a measure is not NULL."""


def joint_laws(measures: Sequence[str], *, indicators: bool) -> list[Laplace]:
    """The noise of a view's statistics where one ledger line pays for all of them.

    Args:
        measures: names of the statistics.
        indicators: whether rows with NULL are told by a number of their own, where the view counts all rows too.
    """
    sums = [measure for measure in measures if measure != COUNT and COUNT_OF.format(measure) in measures]
    present = [m for m in measures if m.startswith(COUNT_OF.partition("{")[0])]
    law = Laplace(len(measures))
    if not (indicators and present and COUNT in measures):
        return [law] * len(measures)
    law = replace(law, apart=len(present) == 1 and len(measures) == 2 + len(sums))
    counts = {COUNT: NullCount.ROWS} | dict.fromkeys(present, NullCount.PRESENT)
    return [replace(law, counts=counts.get(measure, NullCount.NEITHER)) for measure in measures]


class DrawnNumbers(NamedTuple):
    """The numbers that are drawn in the place of the statistics of one ledger line; a position stands for both.

    Args:
        draws: positions of the numbers of each draw.
        taken: number i is `times` x_i - x_k: i -> (times, k).
        added: statistic i is number i plus number k: i -> k.
    """

    draws: tuple[tuple[int, ...], ...]
    taken: Mapping[int, tuple[int, int]]
    added: Mapping[int, int]

    def exact(self, cells: Sequence[Exact], i: int) -> Exact:
        """The exact cells of a number; counts are far below 2^62, so their differences are exact."""
        if i not in self.taken:
            return cells[i]
        times, k = self.taken[i]
        return Exact(times * cells[i] - cells[k])

    def bound(self, sensitivities: Sequence[int], i: int) -> int:
        """The most that one unit changes a number: an indicator as much as a count of all rows, in rows."""
        return min(sensitivities[i], sensitivities[self.taken[i][1]]) if i in self.taken else sensitivities[i]


def drawn_numbers(laws: Sequence[NoiseDistribution]) -> DrawnNumbers:
    """Numbers drawn for statistics with these distributions."""
    counts = [law.counts if law else NullCount.NEITHER for law in map(as_laplace, laws)]
    every = tuple(range(len(laws)))
    if NullCount.ROWS not in counts:
        return DrawnNumbers((every,), {}, {})
    rows = counts.index(NullCount.ROWS)
    present = [i for i in every if counts[i] is NullCount.PRESENT]
    if any(law and law.halves for law in map(as_laplace, laws)):
        return DrawnNumbers((every,), dict.fromkeys(present, (2, rows)), dict.fromkeys(present, rows))
    (with_value,) = present
    draws = ((rows,), tuple(i for i in every if i != rows))
    return DrawnNumbers(draws, {rows: (1, with_value)}, {rows: with_value})


def drawn_bounds(laws: Sequence[NoiseDistribution], sensitivities: Sequence[int]) -> list[tuple[int, ...]]:
    """M_j of the numbers of each draw, from the laws and the sensitivities of the statistics."""
    numbers = drawn_numbers(laws)
    return [tuple(numbers.bound(sensitivities, i) for i in draw) for draw in numbers.draws]


def too_many_tries(spend: Fraction, laws: Sequence[NoiseDistribution], sensitivities: Sequence[int]) -> bool:
    """True if statistics are drawn one by one: they are more than a draw holds, or it may take over
    `MOST_TRIES`.

    Args:
        spend: epsilon of the draw; none of its rows has a larger rate.
        laws, sensitivities: of each statistic.
    """
    if len(laws) > MOST_DRAWN:
        return True
    rates = [float(spend) / 1.5**i for i in range(_RATES)]  # more than two tries take rates above .5
    bounds = max(drawn_bounds(laws, sensitivities), key=len)
    return any(expected_tries(rate, bounds) > MOST_TRIES for rate in rates if rate > 0.5)


def mean_tries(budget: IntArray, denominator: int, bounds: tuple[int, ...]) -> float:
    """Mean number of tries of a view's vectors.

    Args:
        budget: s of each row combination, any shape.
        denominator: t.
        bounds: M_j of each number of the draw.
    """
    units, often = np.unique(budget, return_counts=True)
    grid = np.unique(np.geomspace(units[0], units[-1], _RATES)) if units.size > _RATES else units
    tries = [expected_tries(float(unit) / denominator, bounds) for unit in grid]
    return float(np.average(np.interp(units, grid, tries), weights=often))


def draw_together(cells: Sequence[Exact], terms: Sequence[DrawParameters], noise: Noise) -> list[NoisyView]:
    """Measure all numbers of a view by one draw, or by two where rows with NULL have their own.

    Args:
        cells: exact integers of each statistic, all of shape (n_1, .., n_d), in rows and units of sums.
        terms: of each statistic; they differ in sensitivity and in what they count alone.
        noise: where noise comes from.

    Raises:
        InternalError: numbers that do not share rows, law and spend.
        PrivacyError: spend or sensitivity leave no room for integer budgets.

    **Privacy**: the spend for all numbers together, for neighbours that differ in one unit's rows.
    """
    first, law = terms[0], shared_law([(t.law, t.spend) for t in terms])
    if any(t.strategies != first.strategies for t in terms):
        raise InternalError("numbers of one draw need the same rows")
    numbers, axes = drawn_numbers([t.law for t in terms]), axis_budgets(first.strategies)
    sensitivities, drawn = [t.sensitivity for t in terms], dict[int, NoisyView]()
    for draw in numbers.draws:
        cut = [refined(numbers.exact(cells, i), 1) for i in draw]
        rows = [Exact(measure_view(exact, first.strategies)) for exact in cut]
        bounds = [numbers.bound(sensitivities, i) for i in draw]
        drawn |= zip(draw, law.draw_together(rows, axes, first.spend, bounds, noise), strict=True)
    views = []
    for i, t in enumerate(terms):
        value = signed_sum(drawn[i].value, 1, drawn[numbers.added[i]].value if i in numbers.added else 0)
        variance = t.law.variance_at_unit_budget(axes, t.spend, t.sensitivity)
        views.append(NoisyView(value, drawn[i].budget, variance, t.sensitivity))
    return views


def shared_law(spends: Sequence[tuple[NoiseDistribution, Fraction]]) -> Laplace:
    """The noise of numbers that share one draw, from the law and the spend of each.

    Raises:
        InternalError: they do not share both, or it is not Laplace noise.
    """
    laws = [as_laplace(law) for law, _ in spends]
    shared = {law and replace(law, counts=NullCount.NEITHER) for law in laws}
    law = laws[0]
    if law is None or len(shared) > 1 or len({spend for _, spend in spends}) > 1:
        raise InternalError("numbers of one draw need the same rows, law and spend")
    return replace(law, counts=NullCount.NEITHER)
