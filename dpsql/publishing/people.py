"""How many different people: what is measured for every view that asks for `people`; `distinct` counts and draws it.

A view `{of: sales, axes: [day, customer.country], measures: [count, people]}` counts each customer once in every
answer, however many sales are hers. What is measured follows from its axes:

| axes of the view | measured | answered |
|---|---|---|
| all are a person's own: one value a person | people by cell, as rows of their table would be | sums over cells |
| one more, of at most 64 leaves | gaps between the leaves that she touches | any range of its leaves |
| others | cells, each person with one weight | single cells |

Where there is a view of the first or the last kind, a tenth of its share counts all people of the table. Cells spend
another tenth on how many cells a person touches: it chooses the bound of the weights, and how much they leave out.

Rows are those that views place, before any of a unit's rows are left out: `max_ids` does not bind people.

**Privacy**: a function of the catalog and of public facts; shares are exact fractions, and every draw has its line in
the ledger. What is drawn: docs/privacy/people.md.
**Source**: docs/method/distinct.md, "People of a cell", "Ranges by gaps", "Cells".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from dpsql.mechanisms.axis.registry import AUTO
from dpsql.mechanisms.family import product
from dpsql.mechanisms.family.distinct import LONGEST, Gaps, Touched
from dpsql.mechanisms.family.measurement import Measurement
from dpsql.mechanisms.family.question import FamilyAxis, FamilyQuestion, FamilyView
from dpsql.mechanisms.law import NoiseLaw
from dpsql.mechanisms.offers import Offer
from dpsql.publishing.planned import AxisPlanner, PlannedStatistic, Step, set_name
from dpsql.star.graph import PEOPLE, ResolvedMeasure
from dpsql.star.resolve import StarTable, StarView

Buy = Callable[[Fraction, NoiseLaw], Fraction]

TOTAL = Fraction(1, 10)
"""Of what views of cells and of people's own axes spend on people: everybody."""

TOUCHED = Fraction(1, 10)
"""Of what is left to a view of cells: how many cells a person touches."""

CELLS_TOUCHED = "cells per unit"


class PeoplePlan(NamedTuple):
    """What is drawn about people: statistics, and the steps that they need."""

    statistics: list[PlannedStatistic]
    steps: list[Step]


class Asked(NamedTuple):
    """What is asked about the people of one table.

    Args:
        table: the table whose rows say who.
        views: its views that count people, each with what it may spend on them, in the release's currency.
        rows: the release's statistics of rows, on whose axes people are counted.
        planner: the release's axes; gains those that only people are counted on.
        question: the table's views of rows; its laws are used.
        buy: (charge, law) -> what it buys in the noise's own currency.
    """

    table: StarTable
    views: Sequence[tuple[StarView, Fraction]]
    rows: Sequence[PlannedStatistic]
    planner: AxisPlanner
    question: FamilyQuestion
    buy: Buy

    @property
    def law(self) -> NoiseLaw:
        """The noise of gaps and cells."""
        return self.question.laws[0]


class _Counted(NamedTuple):
    """A view that counts people.

    Args:
        view: the view.
        axes: ids of its axes, increasing, as its rows are counted on them.
        own: for each whether a person has one leaf there.
        leaves: of each.
        charge: what it may spend on people.
    """

    view: StarView
    axes: tuple[int, ...]
    own: tuple[bool, ...]
    leaves: tuple[int, ...]
    charge: Fraction

    @property
    def wide(self) -> list[int]:
        """Positions of axes on which a person may have several leaves."""
        return [i for i, own in enumerate(self.own) if not own]

    @property
    def has_gaps(self) -> bool:
        """Whether one axis is not a person's own, and is short enough for gaps."""
        return len(self.wide) == 1 and self.leaves[self.wide[0]] <= LONGEST


def plan_people(asked: Asked) -> PeoplePlan:
    """Plan the people of one table.

    Args:
        asked: its views, and what they may spend.

    Returns:
        Statistics and steps; their charges add up to those of the views.
    """
    counted = [_counted(asked, view, charge) for view, charge in asked.views]
    ranges = [each for each in counted if each.has_gaps]
    summed = [each for each in counted if not each.has_gaps]
    total = TOTAL * sum((each.charge for each in summed), Fraction(0))
    left = [each._replace(charge=each.charge * (1 - TOTAL)) for each in summed]
    statistics = _of_own_axes(asked, [each for each in left if not each.wide], total) if summed else []
    steps = []
    for each in ranges:
        gaps = Gaps(each.leaves, each.wide[0], asked.law.norm)
        statistics.append(_planned(asked, each, each.charge, gaps))
    for each in left:
        if each.wide:
            part = each.charge * TOUCHED
            steps.append(
                Step(asked.table.name, CELLS_TOUCHED, each.view.name, asked.buy(part, asked.law), part)
            )
            statistics.append(_planned(asked, each, each.charge - part, Touched(each.leaves, each.own)))
    return PeoplePlan(statistics, steps)


def _counted(asked: Asked, view: StarView, charge: Fraction) -> _Counted:
    """A view as its rows are counted."""
    axes = next(s.axes for s in asked.rows if s.view == view.name)
    placed = [asked.planner.entries[axis].axis for axis in axes]
    own = tuple(asked.table.is_own(axis.path) for axis in placed)
    return _Counted(view, axes, own, tuple(axis.leaves for axis in placed), charge)


def _planned(asked: Asked, counted: _Counted, charge: Fraction, measurement: Measurement) -> PlannedStatistic:
    """Gaps or cells on the axes of the view's rows."""
    place = _Place(counted.view.name, counted.axes, asked.law)
    return _statistic(asked, place, charge, measurement)


def _of_own_axes(asked: Asked, counted: Sequence[_Counted], total: Fraction) -> list[PlannedStatistic]:
    """Everybody, and views of a person's own axes: measured as rows of the people's table would be."""
    of, star = asked.table.name, {each.view.name: each.view for each in counted}
    axes: list[FamilyAxis] = []
    views = [FamilyView(set_name(of, []), (), AUTO, "refuse", {PEOPLE: total}, True, False)]
    for each in counted:
        own = [asked.planner.asked(axis.meant, axis.written) for axis in each.view.axes]
        axes += [axis for axis in own if axis not in axes]
        places = tuple(axes.index(axis) for axis in own)
        views.append(FamilyView(each.view.name, places, AUTO, "refuse", {PEOPLE: each.charge}, True, False))
    question = replace(
        asked.question, views=tuple(views), axes=tuple(axes), people=False, named="", alone=True
    )
    (offer,) = (each for each in product.offers(question) if isinstance(each, Offer))
    found = []
    for view, chosen in zip(views, offer.make().strategy.views, strict=True):
        written = star[view.name].axes if view.name in star else ()
        ids = tuple(
            sorted(
                asked.planner.placed(axis.meant, axis.written, choice, "")
                for axis, choice in zip(written, chosen.axes, strict=True)
            )
        )
        place = _Place(view.name, ids, chosen.law)
        found.append(_statistic(asked, place, view.charges[PEOPLE], product.PRODUCT))
    return found


class _Place(NamedTuple):
    """The view that a statistic answers for, the ids of its axes and its noise."""

    view: str
    axes: tuple[int, ...]
    law: NoiseLaw


def _statistic(asked: Asked, place: _Place, charge: Fraction, measurement: Measurement) -> PlannedStatistic:
    """People are counted by ones: a person changes a cell by 1 at most, whatever her weights."""
    of, spend = asked.table.name, asked.buy(charge, place.law)
    measure = ResolvedMeasure(PEOPLE, Fraction(0), of)
    return PlannedStatistic(
        place.view, of, measure, place.axes, place.law, spend, charge, 1, None, 0, 1, measurement=measurement
    )
