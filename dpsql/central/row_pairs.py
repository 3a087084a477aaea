"""Sums of squares over people, a few noisy numbers that intervals of a reported column need.

| here | what is summed over people | the most that one person adds |
|---|---|---|
| `PAIRS`, and along an axis | pairs of different rows; of one cell of the axis | tau (tau - 1) |
| `OWN` | squares of how far what rows add is from its mean | tau R^2 |
| `ALIKE` | likewise products of pairs of different rows | tau (tau - 1) R^2 |

Where rows weigh min(1, tau / n) their weights are multiplied in, `OWN` of counts is asked too, and pairs come to tau^2.

R is how far the measure's bounds lie from its mean, at most. The mean is a released one: the squares are drawn after
the sums. Half of what the bounds span would cut what lies far off, a fifth of a variance where it was measured.
Squares take `reported.error_bar`'s part of the table's budget, a ledger line each.

**Privacy**: each line's charge; docs/privacy/local.md, "2. Analysts". A person's part is a function of her own rows
that count, cut to what the table says.
**Source**: docs/method/local.md, "Error bars".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple, Protocol

import numpy as np

from dpsql.catalog import Catalog
from dpsql.catalog.private_columns import reported_columns
from dpsql.central.bounding import OpenSource
from dpsql.central.placed_rows import place_rows
from dpsql.central.planned import PlannedStatistic, ReleasePlan, Step, law_of, spend_of
from dpsql.engines.counting import cut
from dpsql.engines.duck import RawSide
from dpsql.errors import InternalError, ReleaseError
from dpsql.matrices.channel import COUNTED, Deviations, Squares
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.release.format import UNIT
from dpsql.release.reports import SquareMeta
from dpsql.release.write import ReleaseBuilder
from dpsql.row_expressions import identifier
from dpsql.tree import Exact, FloatArray

SQUARES = "squares"
ROOM = 1 << 40
"""Most that one person's squares may be, so that those of four million people fit 62 bits; sums are cut there."""


class RowProductSum(NamedTuple):
    """One noisy sum over people, of products of two rows of hers.

    Args:
        word: as ledger lines name it.
        own: of a row and itself; else of pairs of different rows.
        axis: pairs in one cell of this axis; None for all of them.
    """

    word: str
    own: bool = False
    axis: int | None = None


PAIRS, OWN, ALIKE = RowProductSum("pairs"), RowProductSum("own", own=True), RowProductSum("alike")


def hybrid_statistics(plan: ReleasePlan, catalog: Catalog) -> dict[int, int]:
    """Statistics with a reported column among their axes: position -> that axis's id."""
    columns = {(reported.table, reported.column) for reported in reported_columns(catalog)}
    reported_axes = {}
    for i, statistic in enumerate(plan.statistics):
        for axis in statistic.axes:
            meant = plan.axes[axis].resolved
            if (meant.table, meant.column) in columns:
                reported_axes[i] = axis
    return reported_axes


def budget_share(catalog: Catalog) -> Fraction:
    """The part of a table's budget that squares take, the least that its reported columns say."""
    return min((reported.told.error_bar.share for reported in reported_columns(catalog)), default=Fraction(0))


def asked_squares(plan: ReleasePlan, catalog: Catalog) -> list[tuple[int, tuple[RowProductSum, ...]]]:
    """Statistics whose error bars need squares, by position, with the squares.

    None where they are bounded, or where a person has one row and counts alone.
    """
    squares: list[tuple[int, tuple[RowProductSum, ...]]] = []
    if not budget_share(catalog):
        return squares
    for i, axis in hybrid_statistics(plan, catalog).items():
        statistic, weighs = (
            plan.statistics[i],
            catalog.star.tables[plan.statistics[i].of].bounding.word.weighs,
        )
        along = tuple(RowProductSum(f"pairs on axis {a}", axis=a) for a in statistic.axes if a != axis)
        pairs = (ALIKE,) if statistic.bounds else (PAIRS, *along)
        kinds = (
            *((OWN,) if statistic.bounds or weighs else ()),
            *(pairs if statistic.tau > 1 or weighs else ()),
        )
        # the most that what a row adds can lie from its mean
        span = statistic.bounds.upper - statistic.bounds.lower if statistic.bounds else 1
        if kinds and (statistic.tau * span) ** 2 < ROOM:
            squares.append((i, kinds))
    return squares


def with_squares(plan: ReleasePlan, catalog: Catalog) -> ReleasePlan:
    """The plan with a part of its charges set aside for squares, evenly; charges add up to what they were."""
    squares, share = asked_squares(plan, catalog), budget_share(catalog)
    lines = sum(len(kinds) for _, kinds in squares)
    if not lines:
        return plan
    hybrid = hybrid_statistics(plan, catalog)
    total = sum((plan.statistics[i].charge for i in hybrid), Fraction(0))
    charge, statistics, steps = total * share / lines, list(plan.statistics), []
    for i in hybrid:
        s = statistics[i]
        statistics[i] = replace(s, charge=s.charge * (1 - share), spend=s.spend * (1 - share))
    spend = spend_of(plan.catalog, charge, law_of(plan.catalog))
    for i, kinds in squares:
        statistic = plan.statistics[i]
        for squared in kinds:
            steps.append(Step(statistic.of, SQUARES, _words(statistic, squared), spend, charge))
    return replace(plan, statistics=tuple(statistics), steps=(*plan.steps, *steps))


def _words(statistic: PlannedStatistic, squared: RowProductSum) -> str:
    return f"{statistic.view}, {statistic.measure.name}: {squared.word}"


class PlannedSquare(NamedTuple):
    """A square before it is drawn.

    Args:
        statistic: its position in the plan.
        squared: which one.
        mean: what deviations are taken from, in the measure's integers; 0 where rows are counted.
        bound: the most that one person adds, up or down.
        spend: of its draw.
        law: its noise.
    """

    statistic: int
    squared: RowProductSum
    mean: int
    bound: int
    spend: Fraction
    law: NoiseDistribution

    @property
    def stderr(self) -> float:
        """Standard error of its noise."""
        return self.law.bounded_noise(self.bound, self.spend)


class SquareSum(NamedTuple):
    """A noisy sum and its standard error."""

    value: float
    stderr: float


class RowsOfPeople(Protocol):
    """Row structure of people as far as known; methods as of `DrawnSquares`."""

    @property
    def stored(self) -> tuple[SquareMeta, ...]:
        """SquareSum integers that a release holds of it."""

    def rows(self, index: int, counts: FloatArray) -> Squares:
        """Squares of one person's rows in a statistic's view."""

    def deviations(self, index: int, counts: FloatArray) -> Deviations:
        """Deviation of row values from their mean."""


@dataclass(frozen=True)
class DrawnSquares:
    """Every square that was drawn.

    Args:
        plan: the release.
        sums: by statistic and square.
    """

    plan: ReleasePlan
    sums: Mapping[tuple[int, RowProductSum], SquareSum]

    @property
    def stored(self) -> tuple[SquareMeta, ...]:
        """Its noisy integers, as a release holds them."""
        return tuple(
            SquareMeta(i, squared.word, int(noisy.value)) for (i, squared), noisy in self.sums.items()
        )

    def rows(self, index: int, counts: FloatArray) -> Squares:
        """Squares of one person's rows in a statistic's view: by its count's squares, else the largest possible.

        Args:
            index: the statistic.
            counts: released cells of its view's count.
        """
        statistic, flat = self.plan.statistics[index], (0.0,) * counts.ndim
        index = _count_of(self.plan, index)
        if (index, PAIRS) not in self.sums:
            return Squares(float(statistic.tau), 0.0, flat)
        rows, stick = max(float(counts.sum()), 1.0), []
        pair_sum = max(self.sums[index, PAIRS].value, 0.0)
        for place, axis in enumerate(statistic.axes):
            other_axes = tuple(i for i in range(counts.ndim) if i != place)
            shares = np.maximum(counts.sum(axis=other_axes), 0.0) / rows
            chance = float(np.minimum((shares**2).sum(), 0.999))
            alike = self.sums.get((index, RowProductSum(f"pairs on axis {axis}", axis=axis)))
            share = alike.value / pair_sum if alike is not None and pair_sum else 0.0
            stick.append(float(np.clip((share - chance) / (1 - chance), 0.0, 1.0)))
        own_sum = self.sums.get((index, OWN))
        mean = 1.0 if own_sum is None else float(np.clip(own_sum.value / rows, own_sum.stderr / rows, 1.0))
        return Squares(mean, pair_sum / rows, tuple(stick))

    def deviations(self, index: int, counts: FloatArray) -> Deviations:
        """Deviation of row values from their mean: at least what noise may hide, at most what bounds allow."""
        statistic = self.plan.statistics[index]
        if index == _count_of(self.plan, index):
            return COUNTED
        reach = float(statistic.bounds.reach if statistic.bounds else 1)
        own_sum, alike = self.sums.get((index, OWN)), self.sums.get((index, ALIKE))
        if own_sum is None:
            return Deviations(reach**2, 1.0, reach)
        rows = max(float(counts.sum()), 1.0) * self.rows(index, counts).own
        mean_square = min(max(own_sum.value, own_sum.stderr) / rows, reach**2)
        pairs = self.sums.get((_count_of(self.plan, index), PAIRS))
        if alike is None or pairs is None:
            return Deviations(mean_square, 1.0, reach)
        return Deviations(
            mean_square, float(np.clip(alike.value / max(pairs.value * mean_square, 1.0), 0.0, 1.0)), reach
        )


def _count_of(plan: ReleasePlan, index: int) -> int:
    """The statistic that counts the rows of another one's view."""
    view = plan.statistics[index].view
    return next(i for i, s in enumerate(plan.statistics) if s.view == view and s.measure.name.counts_rows)


def planned_squares(plan: ReleasePlan, catalog: Catalog, content: ReleaseBuilder) -> Iterator[PlannedSquare]:
    """Every square that the plan pays for, once its means are known.

    Args:
        plan, catalog: the release; the catalog is the one that is counted.
        content: what was drawn of it; means are taken from there.
    """
    law = law_of(plan.catalog)
    for index, kinds in asked_squares(plan, catalog):
        statistic = plan.statistics[index]
        sums, rows = (
            int(part.content.nodes.flat[0]) * part.meta.step
            for part in (content.statistics[i] for i in (index, _count_of(plan, index)))
        )
        mean, reach = _centre(statistic, sums, rows)
        weighs, tau = catalog.star.tables[statistic.of].bounding.word.weighs, statistic.tau
        for squared in kinds:
            step = plan.step(statistic.of, SQUARES, _words(statistic, squared))
            if step is None:
                raise InternalError(f"nothing pays for {_words(statistic, squared)}")
            term_limit = tau if squared.own else tau * tau if weighs else tau * (tau - 1)
            yield PlannedSquare(index, squared, mean, max(1, term_limit) * reach**2, step.spend, law)


def _centre(statistic: PlannedStatistic, sums: int, rows: int) -> tuple[int, int]:
    """The released mean of a sum's rows inside of its bounds, and the most that a row lies from it; (0, 1) of rows.

    Args:
        statistic: of the view.
        sums, rows: what was released of it, and the number of rows, in units of 2^-20.
    """
    if statistic.bounds is None:
        return 0, 1
    low, high = statistic.bounds.lower, statistic.bounds.upper
    mean = max(low, min(high, statistic.mid + sums // max(rows, UNIT)))
    return mean, max(high - mean, mean - low, 1)


def draw_squares(scan: OpenSource, content: ReleaseBuilder) -> DrawnSquares:
    """Draw every square that the plan pays for.

    Args:
        scan: the release being made; its catalog is the one that is counted.
        content: what was drawn of it.

    **Privacy**: each line's charge. One person changes a sum by at most its bound, to which her part is cut; means are
    released numbers.
    """
    sums: dict[tuple[int, RowProductSum], SquareSum] = {}
    rows: dict[str, tuple[str, Mapping[str, str]]] = {}
    for square in planned_squares(scan.plan, scan.catalog, content):
        statistic, raw = scan.plan.statistics[square.statistic], scan.raw.as_duckdb("reported")
        with raw.step(f"counting squares of {statistic.of}"):
            if statistic.of not in rows:
                rows[statistic.of] = _counting(scan, raw, statistic)
            exact = Exact(np.array([_exact(raw, *rows[statistic.of], statistic, square)], np.int64))
        drawn = square.law.draw_bounded(exact, square.bound, square.spend, scan.noise)
        sums[square.statistic, square.squared] = SquareSum(float(drawn.value[0]), square.stderr)
    return DrawnSquares(scan.plan, sums)


def _counting(scan: OpenSource, raw: RawSide, statistic: PlannedStatistic) -> tuple[str, Mapping[str, str]]:
    """The rows that count of a statistic's table, each with a column `w` of what it weighs in units of 2^-20."""
    weighs = scan.catalog.star.tables[statistic.of].bounding.word.weighs
    table, columns = place_rows(
        scan.catalog, raw, scan.plan, statistic.of, scan.key, tau=0 if weighs else None
    )
    tau, n = statistic.tau, "count(*) OVER (PARTITION BY unit)"
    weight = f"CASE WHEN {n} <= {tau} THEN {UNIT} ELSE {UNIT * tau} // {n} END" if weighs else str(UNIT)
    name = identifier(f"weighed {statistic.of}")
    raw.connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT *, {weight} AS w FROM {table} WHERE unit IS NOT NULL"
    )
    return name, columns


def stored_squares(
    plan: ReleasePlan, catalog: Catalog, content: ReleaseBuilder, stored: Iterable[SquareMeta]
) -> DrawnSquares:
    """The squares that a release holds, read again.

    Args:
        plan, catalog, content: the release, made again; as of `planned_squares`.
        stored: its noisy integers.

    Raises:
        ReleaseError: they are others than the plan pays for.
    """
    values = {(meta.statistic, meta.square): meta.value for meta in stored}
    planned = list(planned_squares(plan, catalog, content))
    if set(values) != {(square.statistic, square.squared.word) for square in planned}:
        raise ReleaseError("the release has other squares than its catalog plans")
    sums = {
        (square.statistic, square.squared): SquareSum(
            float(values[square.statistic, square.squared.word]), square.stderr
        )
        for square in planned
    }
    return DrawnSquares(plan, sums)


def _exact(
    raw: RawSide, table: str, columns: Mapping[str, str], statistic: PlannedStatistic, square: PlannedSquare
) -> int:
    """The exact sum over the rows that count, each person's part cut to the bound.

    Args:
        raw, table, columns: the rows, and the columns of measures.
        statistic, square: what is summed.
    """
    value, squared = "w::HUGEINT", square.squared
    if statistic.bounds is not None:
        measured = columns[statistic.measure.name.summed]
        value = f"w * coalesce({measured} - ({square.mean}), 0)::HUGEINT"
    cell = "0" if squared.axis is None else f"a{squared.axis}"
    contribution = "sum(q)" if squared.own else "sum(s * s - q)"
    rows = f"SELECT unit, {cell} AS cell, {value} AS v FROM {table}"
    inner = f"SELECT unit, sum(v) AS s, sum(v * v) AS q FROM ({rows}) GROUP BY unit, cell"
    cut_part = f"greatest(least(({contribution}) // {UNIT * UNIT}, {square.bound}), -{square.bound})"
    total = cut("sum(part)", raw.dialect)
    ((exact,),) = raw.connection.execute(
        f"SELECT {total} FROM (SELECT {cut_part} AS part FROM ({inner}) GROUP BY unit)"
    ).fetchall()
    return int(exact)
