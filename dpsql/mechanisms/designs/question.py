"""Questions of a table's views, and the answers of family mechanisms (see `mechanisms.offers`).

Views of one table share strategies on shared axes and are reconciled, so they are planned together. A mechanism may
answer for all of them, for some that name it, or for a single one that stands alone.

| here | what it is |
|---|---|
| `DesignProblem` | the views that are measured together, their axes, and what the promise allows |
| `FamilyCandidate` | a way to measure them all, with its expected error |
| `SetCharge` | a statistic for a set of axes that no view names (the residual design has them) |

An error is the mean variance of a count of rows when all that the family may spend is epsilon 1, or mu^2 1 where
delta is above 0. Every axis of a view is asked for ranges half of the time and as a whole otherwise, unless the views
name a mechanism that is asked otherwise.

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

**Privacy**: docs/privacy.md, "Several numbers by one draw"; problems and answers are public.
**Source**: docs/method/rows.md, "Joint rows", "Rows with NULL".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from dpsql.budget import scaled_denominator
from dpsql.catalog.base import COUNT, MeasureName
from dpsql.errors import InternalError
from dpsql.matrices.strategy import NullCount, axis_budgets, measure_view
from dpsql.mechanisms.axis import AUTO, WHOLE
from dpsql.mechanisms.designs.measurement import DrawParameters, Measurement
from dpsql.mechanisms.distribution import (
    GAUSSIAN,
    Laplace,
    NoiseDistribution,
    NoisyView,
    as_laplace,
    refined,
    signed_sum,
)
from dpsql.mechanisms.offers import AxisChoice, Choice, JointCells, Mechanism, Offer, Refusal, Word
from dpsql.noise import Noise
from dpsql.noise.knorm import MOST_DRAWN, expected_tries
from dpsql.tree import Exact, IntArray, Workload, single_leaves

MOST_NUMBERS = 2
"""A draw of more numbers has a variance on trees that is not known."""


class Grains(NamedTuple):
    """The grain of full rows of integers on an axis that stands alone in its views, and on one that shares them."""

    alone: int
    shared: int


@dataclass(frozen=True, eq=False)
class FamilyAxis:
    """One axis as mechanisms see it; views that ask the same of it have the same one.

    Args:
        name: for sentences.
        leaves: number of leaves.
        workload: the ranges asked; None means all.
        grains: how fine full rows may be.
        strips: how many leaves, at its end, hold no values (NULL, MISSING, OTHER).
        names: whether leaves are names without an order.
    """

    name: str
    leaves: int
    workload: Workload | None
    grains: Grains
    strips: int = 0
    names: bool = False
    _made: dict[Hashable, AxisChoice] = field(default_factory=dict)

    def once(self, make: Callable[..., AxisChoice], *words: Any) -> AxisChoice:
        """Return `make(axis, *words)` for hashable words, made once, so that views share it."""
        if (make, words) not in self._made:
            self._made[make, words] = make(self, *words)
        return self._made[make, words]


Boxes: TypeAlias = tuple[tuple[tuple[tuple[int, int], ...], ...], ...]
"""A question as disjoint boxes: for each one half-open intervals of leaves on each axis."""


class FamilyView(NamedTuple):
    """One view.

    Args:
        name: its name.
        axes: positions of its axes among the question's, in the view's order.
        word: the mechanism that it names.
        data_dependent: whether noisy numbers may select how it is measured.
        charges: what each measure may spend, in the release's currency.
        counts: whether it counts rows and nothing else.
        shared_out: whether its share was left open.
        questions: the only ones that it is for; empty where it is for whatever is asked.
        together: the most axes that are asked together; below the number of its axes it is a cube.
        widest: the most that a unit changes one of its numbers, in drawn integers; 0 where nothing is drawn jointly.
        positive: whether its non-negative estimates are stored, and may answer.
    """

    name: str
    axes: tuple[int, ...]
    word: Word
    data_dependent: bool
    charges: Mapping[str, Fraction]
    counts: bool
    shared_out: bool
    questions: tuple[Boxes, ...] = ()
    together: int = 0
    widest: int = 0
    positive: bool = True

    @property
    def sets(self) -> list[tuple[int, ...]]:
        """The largest sets of axes that are asked together: one, but of a cube."""
        size = self.together or len(self.axes)
        return [tuple(sorted(subset)) for subset in combinations(self.axes, size)]


@dataclass(frozen=True, eq=False)
class DesignProblem:
    """Views of one table that are measured together.

    Args:
        of: the table.
        views: the views.
        axes: of the table's views.
        law: the noise of the release.
        batches: whether rows arrive batch by batch.
        people: whether the rows that a person adds are bounded by weights chosen at publish.
        named: the word by which all views ask for one mechanism of families; empty where it is left open.
        alone: whether these are all views of the table.
        whole: how often an axis that shares its view is asked as a whole.
        cells: whether axes of names are asked by single leaves, not by ranges.
    """

    of: str
    views: tuple[FamilyView, ...]
    axes: tuple[FamilyAxis, ...]
    law: NoiseDistribution
    batches: bool
    people: bool
    named: str = ""
    alone: bool = True
    whole: float = WHOLE
    cells: bool = False

    @property
    def open(self) -> bool:
        """True if the curator left all to `auto`."""
        return not self.named and all(view.word == AUTO for view in self.views)

    @property
    def measures(self) -> tuple[str, ...]:
        """Counts and sums of the views, in their order."""
        return tuple(dict.fromkeys(measure for view in self.views for measure in view.charges))

    def lets(self, word: str) -> bool:
        """True if its views name a data-dependent mechanism, or name none and leave the selection to noisy
        numbers."""
        return self.named == word or (not self.named and all(view.data_dependent for view in self.views))

    def leaves(self, view: FamilyView) -> list[int]:
        """Leaves of each axis of a view."""
        return [self.axes[axis].leaves for axis in view.axes]

    def by_cells(self, axis: int) -> bool:
        """True if an axis is asked by single leaves."""
        return self.cells and self.axes[axis].names

    def workload(self, axis: int) -> Workload | None:
        """The ranges asked of an axis; None means all."""
        return single_leaves(self.axes[axis].leaves) if self.by_cells(axis) else self.axes[axis].workload

    def joint_gain(self, view: FamilyView) -> float:
        """Mean variance of a view's numbers where they share one draw, over that of a draw of its own.

        1 where they do not: under a delta, with bounds from data, for one number and for more than a draw holds.
        """
        if not 2 <= len(view.charges) <= MOST_DRAWN or self.law == GAUSSIAN or self.people:
            return 1.0
        laws = joint_laws(list(view.charges), indicators=not self.batches)
        return sum(joint.error_at_unit_budget for joint in laws) / len(laws) / self.law.error_at_unit_budget

    def joint_cells(self, view: FamilyView, axis: int) -> JointCells | None:
        """Cells of a view's joint draw over all leaves of one of its axes; None where it may have none.

        Args:
            view: one of the views.
            axis: a position in its axes.
        """
        numbers = len(view.charges)
        if not view.widest or numbers > MOST_NUMBERS or view.word != AUTO or self.law == GAUSSIAN:
            return None
        denominator = scaled_denominator(numbers * view.widest)
        # replace_one neighbours and `clipped_share` leave more than a quarter of the charges to the draw
        room = int(sum(view.charges.values(), Fraction(0)) * denominator / 4)
        leaves = self.leaves(view)
        return JointCells(numbers, prod(leaves) // leaves[axis], room)

    def asks(self, view: FamilyView) -> str:
        """The questions by which mechanisms of a view of several axes are compared, in words."""
        if len(view.axes) < 2 or view.questions:
            return ""
        named = [self.axes[axis].name for axis in view.axes if self.by_cells(axis)]
        if named:
            together = "pairs" if len(view.sets[0]) == 2 else "all axes at once"
            ranges = "" if len(named) == len(view.axes) else ", ranges of the other axes"
            return f"{together}: cells of {', '.join(named)}{ranges}; groups of fewer axes and totals have bounds"
        if self.whole == 0:
            return "ranges on all axes at once"
        if len(view.axes) == 2:
            return "a quarter each: rectangles, ranges of either axis alone, totals"
        return "ranges of each axis half of the time, the whole of it otherwise"

    def unit(self, share: float) -> float:
        """Variance of a row of whole budget that gets a share of all that the family may spend."""
        return self.law.error_at_unit_budget / share ** (2 // self.law.norm)


class ViewChoice(NamedTuple):
    """Choice for one view: the noise, and the strategy of each axis in the view's order."""

    law: NoiseDistribution
    axes: tuple[AxisChoice, ...]

    @property
    def error(self) -> float:
        """Of a product of axes, at epsilon 1 or mu^2 1."""
        unit = self.law.error_at_unit_budget
        return unit * prod(choice.expected_error / unit for choice in self.axes)


SetCharge: TypeAlias = tuple[str, tuple[int, ...], Fraction]
"""One statistic of a design that measures sets of axes instead of views: the measure, the positions of the set's axes,
increasing, and what it spends, in the release's currency."""


class FamilyDesign(NamedTuple):
    """Design of a family's measurement.

    Args:
        measurement: how its statistics are drawn and estimated.
        views: how each view is measured, in the question's order.
        sets: what is measured in the place of the views; empty where it is the views themselves.
        following: how the statistics of a view that follow its first are drawn and estimated, where that differs.
    """

    measurement: Measurement
    views: tuple[ViewChoice, ...]
    sets: tuple[SetCharge, ...] = ()
    following: Measurement | None = None


@dataclass(frozen=True, eq=False)
class FamilyCandidate:
    """A way to measure a family.

    Args:
        name: what it is, in words.
        strategy: the way.
        rate: its error; asked only where there is a choice.
    """

    name: str
    strategy: FamilyDesign
    rate: Callable[[], float]

    @cached_property
    def error(self) -> float:
        """Mean expected variance, see the module; infinite where it cannot be known beforehand."""
        return self.rate()


FamilyChoice = Choice[FamilyDesign]
Proposal: TypeAlias = Offer[FamilyDesign] | Refusal


class NamedFamily(NamedTuple):
    """Family mechanism named by a word of the catalog.

    Args:
        kin: a view's name -> what views that write the word must have in common to be measured together.
        whole, cells: as of `DesignProblem`.
    """

    kin: Callable[[str], str]
    whole: float = WHOLE
    cells: bool = False


def stands_alone(view: str) -> str:
    """Such views are measured one by one."""
    return view


FamilyMechanism: TypeAlias = Mechanism[NamedFamily, DesignProblem, FamilyDesign]


class DataDependentMechanism(Mechanism[NamedFamily, DesignProblem, FamilyDesign], Protocol):
    """A module that selects by noisy numbers; it measures one view alone, and offers a bound on its error."""

    WHOLE: float
    """As of `DesignProblem`, for a view that it measures."""


MOST_TRIES = 64
"""Mean tries of one vector above which a view's numbers have a draw each. Of any epsilon ten counts take at most 17,
sixteen 55, twenty-five 261 tries; the most of them at an epsilon of 11, 18 and 28."""

_RATES = 64


def joint_laws(measures: Sequence[str], *, indicators: bool) -> list[Laplace]:
    """The noise of a view's statistics where one ledger line pays for all of them.

    Args:
        measures: names of the statistics.
        indicators: whether rows with NULL are told by a number of their own, where the view counts all rows too.
    """
    names = [MeasureName(measure) for measure in measures]
    sums = [name for name in names if name.counted in measures]
    present = [name for name in names if name.counts_values]
    law = Laplace(len(measures))
    if not (indicators and present and COUNT in measures):
        return [law] * len(measures)
    law = replace(law, apart=len(present) == 1 and len(measures) == 2 + len(sums))
    counts = {COUNT: NullCount.ROWS} | dict.fromkeys(present, NullCount.PRESENT)
    return [replace(law, counts=counts.get(measure, NullCount.NEITHER)) for measure in names]


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
