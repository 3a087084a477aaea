"""Counting different people in the rows that views place, and drawing what `people` planned.

    own        a person's one cell: her least, should her rows name several
    gaps       (her own cell, leaf before, leaf after), one for each gap of hers
    cells      her own cell with each cell that she touches, and how many those are

Any engine runs these statements. Lines of one person stay in it; counts of people leave it, and are noised by the draw
of their line before anything depends on them.

**Privacy**: docs/privacy/people.md. What a person adds is a function of her own rows and of released numbers. Counts
are integers, and weights whole numbers of 2^-20.
**Source**: docs/method/distinct.md, "People of a cell", "Ranges by gaps", "Cells".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.engines.engine import Engine
from dpsql.engines.placed import PlacedRows
from dpsql.engines.template import stored_rows
from dpsql.mechanisms.family.distinct import UNIT, cell_reach, cell_weight
from dpsql.mechanisms.family.people import (
    NoisyHistogram,
    cleaned,
    doubling_edges,
    draw_histogram,
    quantile,
    rounded,
)
from dpsql.mechanisms.law import NoiseLaw, NoisyRows
from dpsql.noise import Noise
from dpsql.publishing.people import CELLS_TOUCHED
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.tree import Exact
from dpsql.variance.distinct import GapReading, TouchedReading, gaps_of
from dpsql.variance.kronecker import ProductReading

IntArray = npt.NDArray[np.int64]

BOUND = 0.9
"""K is this quantile of the cells that a person touches; what it leaves out is put back by one factor."""


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
        """Whether a person has one leaf of an axis."""
        return self.plan.catalog.star.tables[self.of].is_own(self.plan.axes[axis].axis.path)

    def number(self, axes: Iterable[int]) -> str:
        """SQL of the number of a row's cell on some axes, the last one fastest."""
        sql = "CAST(0 AS BIGINT)"
        for axis in axes:
            sql = f"({sql}) * CAST({self.plan.axes[axis].axis.leaves} AS BIGINT) + a{axis}"
        return sql

    @property
    def placed(self) -> str:
        """What stands after FROM for the rows, with their `unit` and the leaf a<axis id> on every axis."""
        return f"({stored_rows(self.rows, self.engine.dialect)}) AS placed"


class DrawnPeople(NamedTuple):
    """A statistic as it was drawn, with what was chosen on the way, and its noisy integers."""

    statistic: PlannedStatistic
    view: NoisyRows


def draw_people(people: PeopleRows) -> dict[int, DrawnPeople]:
    """Draw all that was planned about the people of a table.

    Args:
        people: its rows.

    Returns:
        By position in the plan.

    **Privacy**: spends the lines of the table's people, each once.
    """
    planned = people.plan.people(people.of)
    return {i: WAYS[s.measurement.facts.reading](people, s) for i, s in planned.items()}


def _draw_own(people: PeopleRows, statistic: PlannedStatistic) -> DrawnPeople:
    """People by cell of their own axes, drawn as rows of one each."""
    shape = people.plan.shape(statistic)
    counts = people.engine.fetch(
        f"SELECT c, count(*) AS people FROM (SELECT min({people.number(statistic.axes)}) AS c FROM {people.placed} "
        "GROUP BY unit) AS own GROUP BY c"
    )
    exact = np.zeros(prod(shape), np.int64)
    exact[counts["c"]] = counts["people"]
    view = statistic.measurement.draw(
        Exact(exact.reshape(shape)), statistic.terms(people.plan.axes), people.noise
    )
    return DrawnPeople(statistic, view)


def _draw_gaps(people: PeopleRows, statistic: PlannedStatistic) -> DrawnPeople:
    """Everybody, and the gaps along the one axis that is not a person's own."""
    own_axes = [axis for axis in statistic.axes if people.is_own(axis)]
    (wide,) = (axis for axis in statistic.axes if axis not in own_axes)
    n = people.plan.axes[wide].axis.leaves
    gaps = people.engine.fetch(gap_sql(people.placed, people.number(own_axes), f"a{wide}"))
    cells = prod(people.plan.axes[axis].axis.leaves for axis in own_axes)
    exact = gap_cells(gaps, cells, n)
    view = statistic.measurement.draw(exact, statistic.terms(people.plan.axes), people.noise)
    return DrawnPeople(statistic, view)


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
        f"CASE WHEN lead(k) {order} IS NULL THEN 1 END AS final FROM ({touched}) AS t"
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
    edges = doubling_edges(1, prod(statistic.measurement.facts.listed.values()).bit_length() + 1)
    histogram = draw_histogram(_per_bin(people, touched, edges), edges, step.spend, law, people.noise)
    bound = rounded(quantile(histogram, BOUND))
    terms = statistic.terms(people.plan.axes)._replace(sensitivity=cell_reach(bound, law))
    view = statistic.measurement.draw(_weighted_cells(people, touched, statistic, bound), terms, people.noise)
    return DrawnPeople(replace(statistic, factor=put_back(histogram, bound, law) / UNIT), view)


def _touched_sql(people: PeopleRows, statistic: PlannedStatistic) -> str:
    """Each person's cells: o on axes that are not her own, c on her own, and d, how many she has."""
    own_number = people.number(axis for axis in statistic.axes if people.is_own(axis))
    wide = people.number(axis for axis in statistic.axes if not people.is_own(axis))
    return (
        "SELECT o, min(c) OVER (PARTITION BY unit) AS c, count(*) OVER (PARTITION BY unit) AS d "
        f"FROM (SELECT unit, {wide} AS o, min({own_number}) AS c FROM {people.placed} GROUP BY unit, {wide}) AS t"
    )


def _per_bin(people: PeopleRows, touched: str, edges: Sequence[int]) -> Exact:
    """How many people touch which number of cells, shape (bins + 1,)."""
    touches = people.engine.fetch(f"SELECT d, count(*) AS cells FROM ({touched}) AS s GROUP BY d")
    counts = np.zeros(len(edges) + 1, np.int64)
    np.add.at(counts, np.searchsorted(edges, touches["d"]), touches["cells"] // touches["d"])
    return Exact(counts)


def _weighted_cells(people: PeopleRows, touched: str, statistic: PlannedStatistic, bound: int) -> Exact:
    """Sums of weights by cell, in units of 2^-20 and the statistic's shape; no sum reaches 2^63 below 2^43 people."""
    counts = people.engine.fetch(f"SELECT c, o, d, count(*) AS people FROM ({touched}) AS s GROUP BY c, o, d")
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


def put_back(histogram: NoisyHistogram, bound: int, law: NoiseLaw) -> float:
    """What cells are multiplied by for what weights leave out, from released numbers.

    Only bins that follow each other above twice the noise count: one far bin of noise would move the factor by tenths.

    Args:
        histogram: people by the cells that they touch; bins double from 1.
        bound: K.
        law: of the weights.

    >>> from dpsql.mechanisms.law import GAUSSIAN, published
    >>> put_back(NoisyHistogram((1, 2, 4), published(np.array([100, 0, 0, 0])), 1.0), 1, GAUSSIAN)
    1.0
    """
    upper = np.asarray(histogram.edges, np.float64)
    touched = np.sqrt(upper * np.append(1.0, upper[:-1] + 1))
    seen = cleaned(histogram)[:-1]
    place = int(np.searchsorted(histogram.edges, bound))
    quiet = np.flatnonzero(seen[place:] == 0)
    if len(quiet):
        seen[place + quiet[0] :] = 0.0
    weight = [min(1.0, (bound / cells) ** (1 / law.norm)) for cells in touched]
    weighted = float((seen * touched * weight).sum())
    return float((seen * touched).sum()) / weighted if weighted > 0 else 1.0


WAYS: Mapping[str, Callable[[PeopleRows, PlannedStatistic], DrawnPeople]] = {
    ProductReading.name: _draw_own,
    GapReading.name: _draw_gaps,
    TouchedReading.name: _draw_cells,
}
"""By how a statistic answers."""
