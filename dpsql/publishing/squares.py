"""How the rows of one person add up, a few noisy numbers that error bars of a reported column need.

| here | what is summed over people | the most that one person adds |
|---|---|---|
| `PAIRS`, and along an axis | pairs of different rows; of one cell of the axis | tau (tau - 1) |
| `OWN` | squares of how far what rows add is from its mean | tau R^2 |
| `ALIKE` | likewise products of pairs of different rows | tau (tau - 1) R^2 |

R is how far the measure's bounds lie from its mean, at most. The mean is a released one: the squares are drawn after
the sums. Half of what the bounds span would cut what lies far off, a fifth of a variance where it was measured.
Squares take `reported.error_bar`'s part of the table's budget, a ledger line each.

**Privacy**: each line's epsilon; docs/privacy/hybrid.md section 2. A person's part is a function of her own rows that
count, cut to what the table says.
**Source**: docs/method/hybrid.md, "Error bars".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.budget import NEIGHBOURS, currency_at
from dpsql.engines import RawSide
from dpsql.engines.template import cut
from dpsql.errors import InternalError
from dpsql.mechanisms.law import LAPLACE
from dpsql.publishing.bounding import Scan
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan, Step
from dpsql.publishing.rows import place_rows
from dpsql.release.format import UNIT
from dpsql.release.write import ReleaseBuilder
from dpsql.star import Catalog
from dpsql.star.reported import reported_columns
from dpsql.variance.channel import COUNTED, Deviations, Squares

FloatArray = npt.NDArray[np.float64]
SQUARES, COUNT = "squares", "count"
ROOM = 1 << 40
"""Most that one person's squares may be, so that those of four million people fit 62 bits; sums are cut there."""


class Squared(NamedTuple):
    """One noisy sum over people, of products of two rows of hers.

    Args:
        word: as ledger lines name it.
        own: of a row and itself; else of pairs of different rows.
        axis: pairs in one cell of this axis; None for all of them.
    """

    word: str
    own: bool = False
    axis: int | None = None


PAIRS, OWN, ALIKE = Squared("pairs"), Squared("own", own=True), Squared("alike")


class Factor(NamedTuple):
    """SQL of what a row is multiplied by itself and others with, and the most that it is, up or down."""

    sql: str
    reach: int

    def rows(self, table: str, axis: int | None) -> str:
        """The rows of a table by person and cell of an axis."""
        cell = "0" if axis is None else f"a{axis}"
        return f"SELECT unit, {cell} AS cell, {self.sql} AS v FROM {table}"


class SquaresOf(NamedTuple):
    """What is asked of one statistic of a view with a reported column."""

    statistic: int
    asked: tuple[Squared, ...]


def hybrid_statistics(plan: ReleasePlan, catalog: Catalog) -> dict[int, int]:
    """Statistics with a reported column among their axes: position -> that axis's id."""
    known = {(each.table, each.column) for each in reported_columns(catalog)}
    found = {}
    for i, statistic in enumerate(plan.statistics):
        for axis in statistic.axes:
            meant = plan.axes[axis].resolved
            if (meant.table, meant.column) in known:
                found[i] = axis
    return found


def budget_share(catalog: Catalog) -> Fraction:
    """The part of a table's budget that squares take, the least that its reported columns say."""
    return min((each.told.error_bar.share for each in reported_columns(catalog)), default=Fraction(0))


def asked_squares(plan: ReleasePlan, catalog: Catalog) -> list[SquaresOf]:
    """The squares that error bars need; none where they are bounded, or where a person has one row and counts alone."""
    found: list[SquaresOf] = []
    if not budget_share(catalog):
        return found
    for i, axis in hybrid_statistics(plan, catalog).items():
        statistic = plan.statistics[i]
        whole = (
            not catalog.tables[statistic.of].bounding.weighs
            and (statistic.tau * _span(statistic)) ** 2 < ROOM
        )
        along = tuple(Squared(f"pairs on axis {a}", axis=a) for a in statistic.axes if a != axis)
        pairs = (ALIKE,) if statistic.bounds else (PAIRS, *along)
        asked = (*((OWN,) if statistic.bounds else ()), *(pairs if statistic.tau > 1 else ()))
        if whole and asked:
            found.append(SquaresOf(i, asked))
    return found


def with_squares(plan: ReleasePlan, catalog: Catalog) -> ReleasePlan:
    """The plan with a part of its charges set aside for squares, evenly; charges add up to what they were."""
    asked, share = asked_squares(plan, catalog), budget_share(catalog)
    lines = sum(len(each.asked) for each in asked)
    if not lines:
        return plan
    hybrid = hybrid_statistics(plan, catalog)
    whole = sum((plan.statistics[i].charge for i in hybrid), Fraction(0))
    charge, statistics, steps = whole * share / lines, list(plan.statistics), []
    for i in hybrid:
        left, spend = statistics[i].charge * (1 - share), statistics[i].spend * (1 - share)
        statistics[i] = replace(statistics[i], charge=left, spend=spend)
    for each in asked:
        statistic = plan.statistics[each.statistic]
        for squared in each.asked:
            steps.append(Step(statistic.of, SQUARES, _words(statistic, squared), _pure(plan, charge), charge))
    return replace(plan, statistics=tuple(statistics), steps=(*plan.steps, *steps))


def _words(statistic: PlannedStatistic, squared: Squared) -> str:
    return f"{statistic.view}, {statistic.measure.name}: {squared.word}"


def _pure(plan: ReleasePlan, charge: Fraction) -> Fraction:
    """The epsilon of Laplace noise that a charge pays for."""
    privacy = plan.catalog.privacy
    currency = currency_at(privacy.delta)
    return LAPLACE.bought(currency.drawn(charge, NEIGHBOURS[privacy.neighbours]), currency)


class Noisy(NamedTuple):
    """A noisy sum and its standard error."""

    value: float
    stderr: float


@dataclass(frozen=True)
class DrawnSquares:
    """Every square that was drawn.

    Args:
        plan: the release.
        sums: by statistic and square.
    """

    plan: ReleasePlan
    sums: Mapping[tuple[int, Squared], Noisy]

    def rows(self, index: int, counts: FloatArray) -> Squares:
        """How rows of one person add up in a statistic's view: by its count's squares, else the most they may be.

        Args:
            index: the statistic.
            counts: released cells of its view's count.
        """
        statistic, flat = self.plan.statistics[index], (0.0,) * counts.ndim
        index = _count_of(self.plan, index)
        if (index, PAIRS) not in self.sums:
            return Squares(float(statistic.tau), 0.0, flat)
        rows, stick = max(float(counts.sum()), 1.0), []
        whole = max(self.sums[index, PAIRS].value, 0.0)
        for place, axis in enumerate(statistic.axes):
            others = tuple(i for i in range(counts.ndim) if i != place)
            shares = np.maximum(counts.sum(axis=others), 0.0) / rows
            chance = float(np.minimum((shares**2).sum(), 0.999))
            alike = self.sums.get((index, Squared(f"pairs on axis {axis}", axis=axis)))
            share = alike.value / whole if alike is not None and whole else 0.0
            stick.append(float(np.clip((share - chance) / (1 - chance), 0.0, 1.0)))
        return Squares(1.0, whole / rows, tuple(stick))

    def deviations(self, index: int, counts: FloatArray) -> Deviations:
        """How far what rows add is from its mean: at least what noise may hide, at most what bounds allow."""
        statistic = self.plan.statistics[index]
        if index == _count_of(self.plan, index):
            return COUNTED
        reach = float(statistic.bounds.reach if statistic.bounds else 1)
        own, alike = self.sums.get((index, OWN)), self.sums.get((index, ALIKE))
        if own is None:
            return Deviations(reach**2, 1.0, reach)
        each = min(max(own.value, own.stderr) / max(float(counts.sum()), 1.0), reach**2)
        pairs = self.sums.get((_count_of(self.plan, index), PAIRS))
        if alike is None or pairs is None:
            return Deviations(each, 1.0, reach)
        return Deviations(each, float(np.clip(alike.value / max(pairs.value * each, 1.0), 0.0, 1.0)), reach)


def _count_of(plan: ReleasePlan, index: int) -> int:
    """The statistic that counts the rows of another one's view."""
    view = plan.statistics[index].view
    return next(i for i, s in enumerate(plan.statistics) if s.view == view and s.measure.name == COUNT)


def draw_squares(scan: Scan, content: ReleaseBuilder) -> DrawnSquares:
    """Draw every square that the plan pays for.

    Args:
        scan: the release being made; its catalog is the one that is counted.
        content: what was drawn of it: means are taken from there.

    **Privacy**: each line's epsilon. One person changes a sum by at most `_bound`, to which her part is cut; means are
    released numbers.
    """
    plan, found = scan.plan, dict[tuple[int, Squared], Noisy]()
    rows: dict[str, tuple[str, Mapping[str, str]]] = {}
    for index, asked in asked_squares(plan, scan.catalog):
        statistic, raw = plan.statistics[index], scan.raw.as_duckdb("reported")
        if statistic.of not in rows:
            rows[statistic.of] = place_rows(scan.catalog, raw, plan, statistic.of, scan.key)
        table, columns = rows[statistic.of]
        released = (int(content.statistics[i].content.nodes.flat[0]) for i in (index, _count_of(plan, index)))
        factor = _factor(statistic, columns, *released)
        for squared in asked:
            step = plan.step(statistic.of, SQUARES, _words(statistic, squared))
            if step is None:
                raise InternalError(f"nothing pays for {_words(statistic, squared)}")
            bound = _bound(statistic, squared, factor.reach)
            exact = np.array([_exact(raw, factor.rows(table, squared.axis), squared, bound)], np.int64)
            drawn = LAPLACE.draw_bounded(exact, bound, step.spend, scan.noise)
            found[index, squared] = Noisy(float(drawn.value[0]), float(np.sqrt(2.0) * bound / step.spend))
    return DrawnSquares(plan, found)


def _factor(statistic: PlannedStatistic, columns: Mapping[str, str], sums: int, rows: int) -> Factor:
    """What a row is multiplied by itself and others with: 1, or how far it is from the released mean.

    Args:
        statistic: of the view.
        columns: the measures' columns.
        sums, rows: what was released of it, and the number of rows, in units of 2^-20.
    """
    if statistic.bounds is None:
        return Factor("1::HUGEINT", 1)
    low, high = statistic.bounds.lower, statistic.bounds.upper
    mean = max(low, min(high, statistic.mid + sums // max(rows, UNIT)))
    measured = columns[f"{statistic.measure.table}.{statistic.measure.column}"]
    return Factor(f"coalesce({measured} - ({mean}), 0)::HUGEINT", max(high - mean, mean - low, 1))


def _bound(statistic: PlannedStatistic, squared: Squared, reach: int) -> int:
    """The most that one person adds to a sum of squares, up or down."""
    rows = statistic.tau if squared.own else statistic.tau * (statistic.tau - 1)
    return int(max(1, rows) * reach**2)


def _span(statistic: PlannedStatistic) -> int:
    """The most that what a row adds can lie from its mean; 1 where rows are counted."""
    return statistic.bounds.upper - statistic.bounds.lower if statistic.bounds else 1


def _exact(raw: RawSide, rows: str, squared: Squared, bound: int) -> int:
    """The exact sum over rows of `unit`, `cell` and `v`; each person's part cut to the bound."""
    part = "sum(q)" if squared.own else "sum(s * s - q)"
    inner = f"SELECT unit, sum(v) AS s, sum(v * v) AS q FROM ({rows}) GROUP BY unit, cell"
    per_unit = f"SELECT greatest(least({part}, {bound}), -{bound}) AS part FROM ({inner}) GROUP BY unit"
    ((found,),) = raw.connection.execute(
        f"SELECT {cut('sum(part)', raw.dialect)} FROM ({per_unit})"
    ).fetchall()
    return int(found)
