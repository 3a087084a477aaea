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

from dpsql.errors import CatalogError
from dpsql.mechanisms.axis import AUTO
from dpsql.mechanisms.family import product
from dpsql.mechanisms.family.distinct import LONGEST, Gaps, Touched
from dpsql.mechanisms.family.measurement import Measurement
from dpsql.mechanisms.family.question import FamilyAxis, FamilyQuestion, FamilyView
from dpsql.mechanisms.law import NoiseLaw
from dpsql.mechanisms.offers import Offer
from dpsql.publishing.planned import AxisPlanner, PlannedStatistic, Step, set_name
from dpsql.star.catalog import StarTable, StarView
from dpsql.star.graph import PEOPLE, ResolvedMeasure

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


class PeopleQuery(NamedTuple):
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


class _CountedView(NamedTuple):
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
        return [i for i, is_own in enumerate(self.own) if not is_own]

    @property
    def has_gaps(self) -> bool:
        """Whether one axis is not a person's own, and is short enough for gaps."""
        return len(self.wide) == 1 and self.leaves[self.wide[0]] <= LONGEST


def plan_people(asked: PeopleQuery) -> PeoplePlan:
    """Plan the people of one table.

    Args:
        asked: its views, and what they may spend.

    Returns:
        Statistics and steps; their charges add up to those of the views.
    """
    counted = [_counted(asked, view, charge) for view, charge in asked.views]
    ranges = [counted_view for counted_view in counted if counted_view.has_gaps]
    summed = [counted_view for counted_view in counted if not counted_view.has_gaps]
    total = TOTAL * sum((counted_view.charge for counted_view in summed), Fraction(0))
    reduced = [counted_view._replace(charge=counted_view.charge * (1 - TOTAL)) for counted_view in summed]
    statistics = (
        _of_own_axes(asked, [counted_view for counted_view in reduced if not counted_view.wide], total)
        if summed
        else []
    )
    steps = []
    for counted_view in ranges:
        gaps = Gaps(counted_view.leaves, counted_view.wide[0], asked.law.norm)
        statistics.append(_planned(asked, counted_view, counted_view.charge, gaps))
    for counted_view in reduced:
        if counted_view.wide:
            touched_charge = counted_view.charge * TOUCHED
            steps.append(
                Step(
                    asked.table.name,
                    CELLS_TOUCHED,
                    counted_view.view.name,
                    asked.buy(touched_charge, asked.law),
                    touched_charge,
                )
            )
            statistics.append(
                _planned(
                    asked,
                    counted_view,
                    counted_view.charge - touched_charge,
                    Touched(counted_view.leaves, counted_view.own),
                )
            )
    return PeoplePlan(statistics, steps)


def _counted(request: PeopleQuery, view: StarView, charge: Fraction) -> _CountedView:
    """A view as its rows are counted."""
    axes = next((s.axes for s in request.rows if s.view == view.name), None)
    if axes is None:
        raise CatalogError(
            f"views.{view.name}.measures: people are counted on all axes of a view, and `ways` measures sets of them",
            hint="write `people` in a view without `ways`",
        )
    placed = [request.planner.entries[axis].axis for axis in axes]
    is_own = tuple(request.table.is_own(axis.path) for axis in placed)
    return _CountedView(view, axes, is_own, tuple(axis.leaves for axis in placed), charge)


def _planned(
    request: PeopleQuery, counted: _CountedView, charge: Fraction, measurement: Measurement
) -> PlannedStatistic:
    """Gaps or cells on the axes of the view's rows."""
    place = _PeopleStatistic(counted.view.name, counted.axes, request.law)
    return _statistic(request, place, charge, measurement)


def _of_own_axes(
    request: PeopleQuery, counted: Sequence[_CountedView], total: Fraction
) -> list[PlannedStatistic]:
    """Everybody, and views of a person's own axes: measured as rows of the people's table would be."""
    of, star = request.table.name, {each.view.name: each.view for each in counted}
    axes: list[FamilyAxis] = []
    views = [FamilyView(set_name(of, []), (), AUTO, False, {PEOPLE: total}, True, False)]
    for each in counted:
        view_axes = [request.planner.family_axis(axis.meant, axis.written) for axis in each.view.axes]
        axes += [axis for axis in view_axes if axis not in axes]
        places = tuple(axes.index(axis) for axis in view_axes)
        views.append(FamilyView(each.view.name, places, AUTO, False, {PEOPLE: each.charge}, True, False))
    question = replace(
        request.question, views=tuple(views), axes=tuple(axes), people=False, named="", alone=True
    )
    (offer,) = (each for each in product.offers(question) if isinstance(each, Offer))
    statistics = []
    for view, chosen in zip(views, offer.make().strategy.views, strict=True):
        written = star[view.name].axes if view.name in star else ()
        ids = tuple(
            sorted(
                request.planner.placed(axis.meant, axis.written, choice)
                for axis, choice in zip(written, chosen.axes, strict=True)
            )
        )
        place = _PeopleStatistic(view.name, ids, chosen.law)
        statistics.append(_statistic(request, place, view.charges[PEOPLE], product.PRODUCT))
    return statistics


class _PeopleStatistic(NamedTuple):
    """The view that a statistic answers for, the ids of its axes and its noise."""

    view: str
    axes: tuple[int, ...]
    law: NoiseLaw


def _statistic(
    request: PeopleQuery, place: _PeopleStatistic, charge: Fraction, measurement: Measurement
) -> PlannedStatistic:
    """People are counted by ones: a person changes a cell by 1 at most, whatever her weights."""
    of, spend = request.table.name, request.buy(charge, place.law)
    measure = ResolvedMeasure(PEOPLE, Fraction(0), of)
    return PlannedStatistic(
        place.view, of, measure, place.axes, place.law, spend, charge, 1, None, 0, 1, measurement=measurement
    )
