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

**Privacy**: all of it is public.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any, NamedTuple, Protocol, TypeAlias

from dpsql.budget import scaled_denominator
from dpsql.mechanisms.axis import AUTO, WHOLE
from dpsql.mechanisms.axis.strategy import AxisChoice, JointCells, Word
from dpsql.mechanisms.designs.measurement import Measurement
from dpsql.mechanisms.designs.product import joint_laws
from dpsql.mechanisms.distribution import GAUSSIAN, NoiseDistribution
from dpsql.mechanisms.offers import Choice, Mechanism, Offer, Refusal
from dpsql.noise.knorm import MOST_DRAWN
from dpsql.tree import Workload, single_leaves

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
