"""Distinct people: planned for every view that asks for `people`, counted in placed rows, and drawn.

A view `{of: sales, axes: [day, customer.country], measures: [count, people]}` counts each customer once in every
answer, however many sales are hers. What is measured follows from its axes:

| axes of the view | measured | answered |
|---|---|---|
| all are a person's own: one value a person | people by cell, as rows of their table would be | sums over cells |
| one more, of at most 64 leaves | gaps between the leaves that she touches | any range of its leaves |
| others | cells, each person with one weight | single cells |

Where there is a view of the first or the last kind, a tenth of its share counts all people of the table. Cells spend
another tenth on how many cells a person touches: it chooses the bound of the weights, and tells between which numbers
what they leave out lies.

Rows are those that views place, before any of a unit's rows are left out: `max_ids` does not bind people. Statements
that any engine runs count

    own        a person's one cell: her least, should her rows name several
    gaps       (her own cell, leaf before, leaf after), one for each gap of hers
    cells      her own cell with each cell that she touches, and how many those are

Lines of one person stay in the engine; counts of people leave it, and are noised by the draw of their line before
anything depends on them.

**Privacy**: docs/privacy/people.md. The plan is a function of the catalog and of public facts; shares are exact
fractions, and every draw has its line in the ledger. What a person adds is a function of her own rows and of released
numbers. Counts are integers, and weights whole numbers of 2^-20.
**Source**: docs/method/views.md, "Ranges by gaps", "Cells".

Weights of people who touch many cells: the bound K that a released histogram chooses, and what it leaves out.

**Privacy**: docs/privacy/people.md, "3. Cells with weights": functions of the catalog and of released numbers.
**Source**: docs/method/views.md, "Cells".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from dpsql.catalog.base import PEOPLE
from dpsql.catalog.catalog import StarView
from dpsql.catalog.graph import ResolvedMeasure
from dpsql.central.planned import PlannedStatistic, ReleasePlan, Step, UnitQuery, set_name, spend_of
from dpsql.contributions.histogram import NoisyHistogram, cleaned, doubling_edges, draw_histogram
from dpsql.engines.counting import stored_rows
from dpsql.engines.joined_rows import PlacedRows
from dpsql.engines.registry import Engine
from dpsql.errors import CatalogError
from dpsql.matrices.distinct import GapReading, PeopleBounds, TouchedReading, gaps_of
from dpsql.matrices.kronecker import ProductReading
from dpsql.mechanisms.axis import AUTO
from dpsql.mechanisms.designs import product
from dpsql.mechanisms.designs.distinct import LONGEST, UNIT, Gaps, Touched, cell_reach, cell_weight
from dpsql.mechanisms.designs.measurement import Measurement
from dpsql.mechanisms.designs.question import FamilyAxis, FamilyView
from dpsql.mechanisms.distribution import NoiseDistribution, NoisyRows
from dpsql.mechanisms.offers import Offer
from dpsql.noise import Noise
from dpsql.tree import Exact, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class CellWeights:
    """One bound K on the weights of a view's people, and what a released histogram says of the cells that it shows.

    A cell holds Y = sum of w n over bins of people by their number of cells: n of a bin's c people touch it, with a
    weight w that follows from their bin. So of the people T = sum of n, for every u > 0,

        Y / u - sum of (w / u - 1)+ c  <=  T  <=  Y / u + sum of (1 - w / u)+ c

    with w at the end of the bin that makes the line wider. u runs over the weights at bins' ends: these lines are the
    dual of the linear program. A sum over bins has the histogram's noise, and a line `CERTAIN` standard errors of it.

    Args:
        bound: K.
        most: cells that one person can touch.
        histogram: people by the cells that they touch; bins double from 1.
        law: of the weights.
    """

    bound: int
    most: int
    histogram: NoisyHistogram
    law: NoiseDistribution

    @cached_property
    def _upper(self) -> IntArray:
        """The most cells of each bin but the open one, which is empty."""
        return np.minimum(np.asarray(self.histogram.edges, np.int64), self.most)

    @cached_property
    def weights(self) -> tuple[FloatArray, FloatArray]:
        """The least and the largest weight in each bin."""
        lower = np.append(1, np.minimum(self._upper[:-1] + 1, self.most))
        smallest, largest = (
            np.array([cell_weight(int(cells), self.bound, self.law) / UNIT for cells in ends])
            for ends in (self._upper, lower)
        )
        return smallest, largest

    @cached_property
    def factor(self) -> float:
        """R: what cells are multiplied by for what weights leave out of all of them together.

        R = sum of c d / sum of c d w over the bins, c people, d a bin's geometric middle, w its weight.

        Only bins that follow each other above twice the noise count: a far bin of noise would move it by tenths.
        """
        upper = self._upper.astype(np.float64)
        touched = np.sqrt(upper * np.append(1.0, upper[:-1] + 1))
        seen = cleaned(self.histogram)[:-1]
        place = int(np.searchsorted(self._upper, self.bound))
        quiet = np.flatnonzero(seen[place:] == 0)
        if len(quiet):
            seen[place + quiet[0] :] = 0.0
        weight = np.minimum(1.0, (self.bound / touched) ** (1 / self.law.norm))
        weighted = float((seen * touched * weight).sum())
        return float((seen * touched).sum()) / weighted if weighted > 0 else 1.0

    @cached_property
    def bounds(self) -> PeopleBounds | None:
        """Lines around estimates, R times Y; None where everybody weighs 1."""
        smallest, largest = self.weights
        if np.all(smallest == 1.0):
            return None
        low, high = [], []
        for u in np.unique(np.append(smallest, 1.0)).tolist():
            high.append((1.0 / (u * self.factor), self._people(np.maximum(1.0 - smallest / u, 0.0))))
            low.append((1.0 / (u * self.factor), self._people(np.maximum(largest / u - 1.0, 0.0))))
        return PeopleBounds(tuple(low), tuple(high))

    def _people(self, share: FloatArray) -> float:
        """The most that a weighted sum of the bins' people may be."""
        value = self.histogram.value[:-1].astype(np.float64)
        margin = CERTAIN * self.histogram.sd * float(np.sqrt(np.sum(share**2)))
        return max(0.0, float(share @ value)) + margin

    def half_width(self, cell: float, sd: float) -> float:
        """Half of the interval of a cell.

        Args:
            cell: its people.
            sd: standard error of its noise under weights of at most 1, before R.
        """
        noise = CERTAIN * self.factor * sd
        if self.bounds is None:
            return noise
        ends = np.array([cell - noise]), np.array([cell + noise])
        return float(self.bounds.above(ends[1])[0] - min(ends[0][0], self.bounds.below(ends[0])[0])) / 2


CERTAIN = 2.1
"""Standard errors of one side at 95%, of Laplace noise."""

SIMPLER = 1.25
"""Everybody weighs 1 where that makes an interval at most so many times as long as the least one."""


def choose_weights(
    histogram: NoisyHistogram, most: int, cells: int, law: NoiseDistribution, sd: Callable[[int], float]
) -> CellWeights:
    """The bound K with the least interval of a cell of middle size, bias included.

    Args:
        histogram: people by the cells that they touch.
        most: cells that one person can touch.
        cells: of the statistic.
        law: of the weights.
        sd: K -> standard error of a cell's noise.

    Returns:
        K = `most`, under which everybody weighs 1 and nothing is biased, where its interval is at most `SIMPLER` times
        the least.

    **Privacy**: a function of the released histogram and of the catalog.
    """
    edges = np.minimum(np.asarray(histogram.edges, np.float64), most)
    middle = max(1.0, float(cleaned(histogram)[:-1] @ edges) / cells)

    def half_width(bound: int) -> float:
        return CellWeights(bound, most, histogram, law).half_width(middle, sd(bound))

    candidates = sorted({min(edge, most) for edge in histogram.edges})
    best = min(candidates, key=half_width)
    bound = most if half_width(most) <= SIMPLER * half_width(best) else best
    return CellWeights(bound, most, histogram, law)


TOTAL = Fraction(1, 10)
"""Of what views of cells and of people's own axes spend on people: everybody."""

TOUCHED = Fraction(1, 10)
"""Of what is left to a view of cells: how many cells a person touches."""

CELLS_TOUCHED = "cells per unit"


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
        """True if one axis is not a person's own, and is short enough for gaps."""
        return len(self.wide) == 1 and self.leaves[self.wide[0]] <= LONGEST


def plan_people(query: UnitQuery) -> tuple[list[PlannedStatistic], list[Step]]:
    """Plan the people of one table.

    Args:
        query: its views, and what they may spend.

    Returns:
        Statistics and steps; their charges add up to those of the views.
    """
    counted = [_counted(query, view, charge) for view, charge in query.views]
    ranges = [counted_view for counted_view in counted if counted_view.has_gaps]
    summed = [counted_view for counted_view in counted if not counted_view.has_gaps]
    total = TOTAL * sum((counted_view.charge for counted_view in summed), Fraction(0))
    reduced = [counted_view._replace(charge=counted_view.charge * (1 - TOTAL)) for counted_view in summed]
    statistics = (
        _of_own_axes(query, [counted_view for counted_view in reduced if not counted_view.wide], total)
        if summed
        else []
    )
    steps = []
    for counted_view in ranges:
        gaps = Gaps(counted_view.leaves, counted_view.wide[0], query.law.norm)
        statistics.append(_planned(query, counted_view, counted_view.charge, gaps))
    for counted_view in reduced:
        if counted_view.wide:
            touched_charge = counted_view.charge * TOUCHED
            steps.append(
                Step(
                    query.table.name,
                    CELLS_TOUCHED,
                    counted_view.view.name,
                    spend_of(query.catalog, touched_charge, query.law),
                    touched_charge,
                )
            )
            statistics.append(
                _planned(
                    query,
                    counted_view,
                    counted_view.charge - touched_charge,
                    Touched(counted_view.leaves, counted_view.own),
                )
            )
    return statistics, steps


def _counted(query: UnitQuery, view: StarView, charge: Fraction) -> _CountedView:
    """A view as its rows are counted."""
    axes = next((s.axes for s in query.rows if s.view == view.name), None)
    if axes is None:
        raise CatalogError(
            f"views.{view.name}.measures: people are counted on all axes of a view, and `ways` measures sets of them",
            hint="write `people` in a view without `ways`",
        )
    placed = [query.planner.entries[axis].axis for axis in axes]
    is_own = tuple(query.table.is_own(axis.path) for axis in placed)
    return _CountedView(view, axes, is_own, tuple(axis.leaves for axis in placed), charge)


def _planned(
    query: UnitQuery, counted: _CountedView, charge: Fraction, measurement: Measurement
) -> PlannedStatistic:
    """Gaps or cells on the axes of the view's rows."""
    return _statistic(query, (counted.view.name, counted.axes), charge, measurement)


def _of_own_axes(
    query: UnitQuery, counted: Sequence[_CountedView], total: Fraction
) -> list[PlannedStatistic]:
    """Everybody, and views of a person's own axes: measured as rows of the people's table would be."""
    of, star = query.table.name, {each.view.name: each.view for each in counted}
    axes: list[FamilyAxis] = []
    views = [FamilyView(set_name(of, []), (), AUTO, False, {PEOPLE: total}, True, False)]
    for each in counted:
        view_axes = [query.planner.family_axis(axis.meant, axis.written) for axis in each.view.axes]
        axes += [axis for axis in view_axes if axis not in axes]
        places = tuple(axes.index(axis) for axis in view_axes)
        views.append(FamilyView(each.view.name, places, AUTO, False, {PEOPLE: each.charge}, True, False))
    question = replace(
        query.question, views=tuple(views), axes=tuple(axes), people=False, named="", alone=True
    )
    (offer,) = (each for each in product.offers(question) if isinstance(each, Offer))
    statistics = []
    for view, chosen in zip(views, offer.make().strategy.views, strict=True):
        written = star[view.name].axes if view.name in star else ()
        ids = tuple(
            sorted(
                query.planner.placed(axis.meant, choice, question.workload(i))
                for axis, choice, i in zip(written, chosen.axes, view.axes, strict=True)
            )
        )
        statistics.append(_statistic(query, (view.name, ids), view.charges[PEOPLE], product.PRODUCT))
    return statistics


def _statistic(
    query: UnitQuery, place: tuple[str, tuple[int, ...]], charge: Fraction, measurement: Measurement
) -> PlannedStatistic:
    """People are counted by ones: a person changes a cell by 1 at most, whatever her weights.

    Args:
        query: of the table's views about its units.
        place: the view that it answers for, and the ids of its axes.
        charge: in the release's currency.
        measurement: how it is drawn.
    """
    of, law, (view, axes) = query.table.name, query.law, place
    spend = spend_of(query.catalog, charge, law)
    measure = ResolvedMeasure(PEOPLE, Fraction(0))
    return PlannedStatistic(
        view, of, measure, axes, law, spend, charge, 1, None, 0, 1, measurement=measurement
    )


@dataclass(frozen=True)
class PeopleRows:
    """One table's rows, as people are counted in them.

    Args:
        engine: where they are.
        plan: the release.
        of: the table.
        rows: all its rows, in the template's words; each has a unit.
        noise: where noise comes from.
    """

    engine: Engine
    plan: ReleasePlan
    of: str
    rows: PlacedRows
    noise: Noise

    def is_own(self, axis: int) -> bool:
        """True if a person has one leaf of an axis."""
        return self.plan.catalog.star.tables[self.of].is_own(self.plan.axes[axis].axis.path)

    def number(self, axes: Iterable[int]) -> str:
        """SQL of the number of a row's cell on some axes, the last one fastest."""
        sql = "CAST(0 AS BIGINT)"
        for axis in axes:
            sql = f"({sql}) * CAST({self.plan.axes[axis].axis.leaves} AS BIGINT) + a{axis}"
        return sql

    @property
    def placed(self) -> str:
        """FROM item for the rows, with their `unit` and the leaf a<axis id> on every axis."""
        return f"({stored_rows(self.rows, self.engine.dialect)}) AS placed"


DrawnPeople = tuple[PlannedStatistic, NoisyRows]
"""A statistic as it was drawn, with what was chosen on the way, and its noisy integers."""


def draw_people(people: PeopleRows) -> dict[int, DrawnPeople]:
    """Draw all that was planned about the people of a table.

    Args:
        people: its rows.

    Returns:
        By position in the plan.

    **Privacy**: spends the lines of the table's people, each once.
    """
    planned = people.plan.unit_statistics(people.of)
    return {i: WAYS[s.measurement.facts.reading](people, s) for i, s in planned.items()}


def _draw_own(people: PeopleRows, statistic: PlannedStatistic) -> DrawnPeople:
    """People by cell of their own axes, drawn as rows of one each."""
    shape = people.plan.shape(statistic)
    counts = people.engine.relations("counting").fetch(
        f"SELECT c, count(*) AS people FROM (SELECT min({people.number(statistic.axes)}) AS c FROM {people.placed} "
        "GROUP BY unit) AS own GROUP BY c"
    )
    exact = np.zeros(prod(shape), np.int64)
    exact[counts["c"]] = counts["people"]
    view = statistic.measurement.draw(
        Exact(exact.reshape(shape)), statistic.terms(people.plan.axes), people.noise
    )
    return (statistic, view)


def _draw_gaps(people: PeopleRows, statistic: PlannedStatistic) -> DrawnPeople:
    """Everybody, and the gaps along the one axis that is not a person's own."""
    own_axes = [axis for axis in statistic.axes if people.is_own(axis)]
    (wide,) = (axis for axis in statistic.axes if axis not in own_axes)
    n = people.plan.axes[wide].axis.leaves
    gaps = people.engine.relations("counting").fetch(
        gap_sql(people.placed, people.number(own_axes), f"a{wide}")
    )
    cells = prod(people.plan.axes[axis].axis.leaves for axis in own_axes)
    exact = gap_cells(gaps, cells, n)
    view = statistic.measurement.draw(exact, statistic.terms(people.plan.axes), people.noise)
    return (statistic, view)


def gap_sql(rows: str, own: str, leaf: str) -> str:
    """People by their own cell c, a leaf k that they touch and p, the one before it (-1: none); `lasts` end at k.

    The leaves of a person are read once, so that her gaps fit each other even if rows move.

    Args:
        rows: placed rows, as they stand after FROM.
        own: SQL of the number of a row's own cell.
        leaf: SQL of its leaf.
    """
    touched = f"SELECT unit, {leaf} AS k, min({own}) AS c FROM {rows} GROUP BY unit, {leaf}"
    order = "OVER (PARTITION BY unit ORDER BY k)"
    between = (
        f"SELECT k, min(c) OVER (PARTITION BY unit) AS c, lag(k, 1, -1) {order} AS p, "
        f"CASE WHEN lead(k, 1, -1) {order} < 0 THEN 1 END AS final FROM ({touched}) AS t"
    )
    return f"SELECT c, p, k, count(*) AS people, count(final) AS lasts FROM ({between}) AS b GROUP BY c, p, k"


def gap_cells(found: Mapping[str, IntArray], cells: int, n: int) -> Exact:
    """Everybody and each gap, by cell of the other axes.

    Args:
        found: columns of `gap_sql`.
        cells: of the other axes.
        n: leaves.

    Returns:
        Shape (cells, 1 + gaps), as `gap_weights` orders them.
    """
    previous, following = gaps_of(n)
    number = np.zeros((n + 1, n + 2), np.int64)
    number[previous + 1, following + 1] = 1 + np.arange(len(previous))
    exact = np.zeros((cells, 1 + len(previous)), np.int64)
    np.add.at(exact, (found["c"], number[found["p"] + 1, found["k"] + 1]), found["people"])
    np.add.at(exact, (found["c"], number[found["k"] + 1, n + 1]), found["lasts"])
    np.add.at(exact[:, 0], found["c"], found["lasts"])
    return Exact(exact)


def _draw_cells(people: PeopleRows, statistic: PlannedStatistic) -> DrawnPeople:
    """Cells, each person with the weight that her number of cells and the bound K give her."""
    touched, law = _touched_sql(people, statistic), statistic.law
    step = people.plan.step(statistic.of, CELLS_TOUCHED, statistic.view)
    assert step is not None
    most, cells = prod(statistic.measurement.facts.listed.values()), prod(people.plan.shape(statistic))
    edges = doubling_edges(1, most.bit_length() + 1)
    # Number of people by the number of cells they touch, shape (bins + 1,)
    touches = people.engine.relations("counting").fetch(
        f"SELECT d, count(*) AS cells FROM ({touched}) AS s GROUP BY d"
    )
    counts = np.zeros(len(edges) + 1, np.int64)
    np.add.at(counts, np.searchsorted(edges, touches["d"]), touches["cells"] // touches["d"])
    histogram = draw_histogram(Exact(counts), edges, step.spend, law, people.noise)
    terms = statistic.terms(people.plan.axes)

    def cell_error(bound: int) -> float:
        return law.bounded_noise(cell_reach(bound, law), terms.spend) / UNIT

    weights = choose_weights(histogram, most, cells, law, cell_error)
    exact = _weighted_cells(people, touched, statistic, weights.bound)
    terms = terms._replace(sensitivity=cell_reach(weights.bound, law))
    view = statistic.measurement.draw(exact, terms, people.noise)
    counted = replace(statistic, factor=weights.factor / UNIT, people_bounds=weights.bounds)
    return (counted, view)


def _touched_sql(people: PeopleRows, statistic: PlannedStatistic) -> str:
    """Each person's cells: o on axes that are not her own, c on her own, and d, how many she has."""
    own_number = people.number(axis for axis in statistic.axes if people.is_own(axis))
    wide = people.number(axis for axis in statistic.axes if not people.is_own(axis))
    return (
        "SELECT o, min(c) OVER (PARTITION BY unit) AS c, count(*) OVER (PARTITION BY unit) AS d "
        f"FROM (SELECT unit, {wide} AS o, min({own_number}) AS c FROM {people.placed} GROUP BY unit, {wide}) AS t"
    )


def _weighted_cells(people: PeopleRows, touched: str, statistic: PlannedStatistic, bound: int) -> Exact:
    """Sums of weights by cell, in units of 2^-20 and the statistic's shape; no sum reaches 2^63 below 2^43 people."""
    counts = people.engine.relations("counting").fetch(
        f"SELECT c, o, d, count(*) AS people FROM ({touched}) AS s GROUP BY c, o, d"
    )
    degrees, back = np.unique(counts["d"], return_inverse=True)
    weight = np.array([cell_weight(int(d), bound, statistic.law) for d in degrees], np.int64)
    leaves = people.plan.shape(statistic)
    order = sorted(range(len(leaves)), key=lambda i: not people.is_own(statistic.axes[i]))
    own_count = sum(people.is_own(axis) for axis in statistic.axes)
    exact = np.zeros(
        (prod(leaves[i] for i in order[:own_count]), prod(leaves[i] for i in order[own_count:])), np.int64
    )
    np.add.at(exact, (counts["c"], counts["o"]), weight[back.reshape(-1)] * counts["people"])
    return Exact(exact.reshape([leaves[i] for i in order]).transpose(np.argsort(order)))


WAYS: Mapping[str, Callable[[PeopleRows, PlannedStatistic], DrawnPeople]] = {
    ProductReading.name: _draw_own,
    GapReading.name: _draw_gaps,
    TouchedReading.name: _draw_cells,
}
"""By how a statistic answers."""
