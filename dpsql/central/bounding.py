"""Contribution bounding, one class for each way; and the one place where exact cells and noise meet.

| bounding | the catalog | a unit's rows beyond tau | what COUNT then means |
|---|---|---|---|
| `DeclaredBound` | `max_ids: 4`; `unit: row` | left out, by sampling | rows, at most tau a unit |
| .. `weighs` | `bounding: weight` | all for min(1, tau / rows of the unit) | the same total, spread over all rows |
| `Auto` | `max_ids: auto` | weighted; tau is chosen, a factor puts the total back | rows |

Where tau is `DeclaredBound` and a unit may own more rows, `clipped_share` of the table's charges measures the rows
beyond tau of units that own at most `reach` of them, and the number of all other units, which own more. Intervals reach
as far as these rows may move an answer, and have no end where units with more are seen (`dpsql.intervals.excess`).

At five percent of a pure epsilon the rows beyond have the noise 2 reach / (.05 epsilon), however many rows there are.
A curator who knows that nobody owns more rows than `max_ids` writes `clipped_share: 0`.

**Privacy**: a way says what one unit may change (`docs/privacy.md` section 2); the number of rows beyond tau is itself
private: a unit changes it by at most `reach`, or the number of units with more by 1, never both. Their two draws have
one line of the ledger, and each its whole spend.

A sum counts a value beyond its bounds as the nearest bound. `excess_share: 0.01` on a table spends one percent of its
charges, for each measure that its views sum, on the number of units whose values lie beyond: above, below or both, and
near or far by their excess, what a unit's values exceed the bounds by, added up over all its rows. Intervals reach as
far as these may move sums and averages (`dpsql.intervals.excess`).

At one percent of a pure epsilon a number has the error sqrt(2) / (.01 epsilon), 141 at epsilon 1, so an interval is 2.8
times that times the mean excess longer even where nothing lies beyond. So `dpsql init` proposes bounds above the 99.9%
value: the next but one of 1, 2 and 5 times a power of ten, never the largest value itself.

| here | there | unit |
|---|---|---|
| `NEAR` | the excess up to which a unit is near | widths of the bounds |
| `UnitsBeyond.units` | units above near, above far, below near, below far, both | units |

**Privacy**: docs/privacy.md section 2, "Values beyond bounds": a unit is in at most one of a measure's numbers, so
adding or removing it changes one by 1. Each measure has a draw and a line of the ledger.
**Source**: docs/method/rows.md, "At most tau rows of a unit", "Values beyond the bounds".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from dpsql.catalog import Catalog
from dpsql.catalog.base import LARGEST_UNITS
from dpsql.central import planned
from dpsql.central.people import PeopleRows, draw_people
from dpsql.central.placed_rows import CountedCells, CountedRows, counted_rows, measure_digits
from dpsql.contributions.recipe import CLIPPINGS, Corrected, TableScale, settle_table
from dpsql.contributions.selection import Divided, divide, placed_table
from dpsql.contributions.statements import UNIT
from dpsql.engines.counting import (
    Bound,
    EveryRow,
    RowWeighting,
    Sampled,
    beyond_bound,
    coefficients,
    units_beyond_bounds,
)
from dpsql.engines.joined_rows import PlacedRows
from dpsql.engines.registry import Engine
from dpsql.errors import CatalogError
from dpsql.mechanisms.designs.question import draw_together
from dpsql.mechanisms.distribution import NoiseDistribution, NoisyRows, refined
from dpsql.noise import Noise
from dpsql.progress import Progress, Stage
from dpsql.release.format import RowsBeyondBound
from dpsql.tree import Exact

BEYOND = "rows beyond max_ids"


def reach(tau: int) -> int:
    """Rows of one unit beyond tau that are measured at most: 3 tau, and up to 15 tau where these are no more than 45.

    Noise hides the number of units with more. Where most own one row and few own sixty, 3 tau of a small tau would be a
    tenth of what these few own, and no interval of a total would hold it.

    >>> [reach(tau) for tau in (1, 3, 10, 50)]
    [15, 45, 45, 150]
    """
    return max(3 * tau, min(15 * tau, 45))


class OpenSource(NamedTuple):
    """The raw side of a release being made; `prepare_tables` has run.

    Args:
        catalog, raw, plan: the release.
        noise: where noise comes from.
        key: 32 secret bytes that pick a unit's rows; fresh for each release, kept nowhere.
    """

    catalog: Catalog
    raw: Engine
    plan: planned.ReleasePlan
    noise: Noise
    key: bytes


NOTHING: Mapping[int, Any] = {}


class DrawnTable(NamedTuple):
    """One table, drawn.

    Args:
        statistics: what was drawn, by position in the plan, with what was chosen on the way.
        views: their noisy integers.
        scales: the table's scale, if it has one.
        beyond: the rows beyond the contribution bound, where they are measured.
        excess: the units with values beyond the bounds of each measure, where they are measured.
        corrected: of a table with a scale, what each statistic holds beside its scaled estimates.
    """

    statistics: dict[int, planned.PlannedStatistic]
    views: dict[int, NoisyRows]
    scales: tuple[TableScale, ...] = ()
    beyond: tuple[RowsBeyondBound, ...] = ()
    corrected: Mapping[int, Corrected] = NOTHING
    excess: tuple[UnitsBeyond, ...] = ()


@dataclass(frozen=True)
class TableDraw:
    """One table of a release being made, with what is built of its facts once.

    Args:
        scan: the release.
        of: the table.
    """

    scan: OpenSource
    of: str

    @cached_property
    def bounding(self) -> Bounding:
        """Bounding of its rows."""
        return bounding_of(self.scan.catalog, self.of)

    @cached_property
    def counted(self) -> CountedRows:
        """Its rows, as they are counted."""
        return counted_rows(self.scan.catalog, self.scan.raw, self.scan.plan, self.of)


@dataclass(frozen=True)
class DeclaredBound:
    """The catalog says how many rows of a unit count.

    Args:
        of: the counted table.
        tau: rows of one unit that count.
        weighs: whether all rows count, those of one unit for min(1, tau / rows of the unit); else tau rows of each
            unit count, by systematic sampling, and all rows where every row is a unit.
        share: part of the table's charges that measures the rows beyond tau.
        law: the noise of that measure.
    """

    of: str
    tau: int
    weighs: bool
    share: Fraction
    law: NoiseDistribution
    people: ClassVar[bool] = False

    @property
    def unit(self) -> int:
        """Planned integers that make a row: 1, or 2^20 where rows have weights."""
        return UNIT if self.weighs else 1

    def divide(self, catalog: Catalog, statistics: Sequence[planned.PlannedStatistic]) -> Divided:
        """Take what is not spent on statistics out of the charges of the table's; charges add up to what they were.

        Args:
            catalog: of the release.
            statistics: all its statistics.
        """
        if not self.share:
            return Divided([], list(statistics))
        charge = self.share * sum((s.charge for s in statistics if s.of == self.of), Fraction(0))
        step = planned.Step(self.of, BEYOND, "", planned.spend_of(catalog, charge, self.law), charge)
        return Divided([step], planned.lowered(catalog, statistics, self.of, self.share))

    def cells(self, run: TableDraw) -> CountedCells:
        """The cells of the rows that count."""
        scan, counted = run.scan, run.counted
        bound: Bound = EveryRow()
        if counted.rows.unit is not None:
            bound = RowWeighting(self.tau) if self.weighs else Sampled(self.tau, coefficients(scan.key))
        return CountedCells(scan.raw.relations("counting"), scan.plan, self.of, counted, bound)

    def draw(self, run: TableDraw) -> DrawnTable:
        """Draw the table's statistics.

        **Privacy**: spends the table's lines, each once.
        """
        beyond = rows_beyond(run, self)
        drawn = draw_cells(run.scan, self.of, self.cells(run))
        return DrawnTable(run.scan.plan.row_statistics(self.of), drawn, (), beyond)


@dataclass(frozen=True)
class Auto:
    """Weights, bounds and one factor are chosen at publish from noisy numbers: see `dpsql.contributions`.

    Weights follow from what people own in all views of the table.

    Args:
        of: the counted table.
        public_rows: whether the number of rows may be told.
    """

    of: str
    public_rows: bool
    tau: ClassVar[int] = 0
    unit: ClassVar[int] = 1
    people: ClassVar[bool] = True

    def divide(self, catalog: Catalog, statistics: Sequence[planned.PlannedStatistic]) -> Divided:
        """The recipe's steps.

        Raises:
            CatalogError: a measure is too wide.
        """
        places = [i for i, s in enumerate(statistics) if s.of == self.of]
        table_statistics = [statistics[i] for i in places]
        clipping = CLIPPINGS[table_statistics[0].law]
        steps, reduced = divide(catalog, table_statistics, clipping.shares, public_rows=self.public_rows)
        reduced_at = dict(zip(places, reduced, strict=True))
        return Divided(steps, [reduced_at.get(i, s) for i, s in enumerate(statistics)])

    def draw(self, run: TableDraw) -> DrawnTable:
        """Draw the table's statistics. **Privacy**: spends the table's lines, each once."""
        scan = run.scan
        relations = scan.raw.relations(f"choosing bounds for {self.of}")
        drawn = settle_table(placed_table(relations, scan.plan, self.of, run.counted, scan.noise))
        return DrawnTable(dict(drawn.statistics), dict(drawn.views), (drawn.scale,), (), drawn.corrected)


Bounding: TypeAlias = DeclaredBound | Auto


def bounding_of(catalog: Catalog, of: str) -> Bounding:
    """Bounding of a table's rows.

    Raises:
        CatalogError: the catalog does not say.
    """
    table = catalog.star.tables[of]
    word, max_ids, share = table.bounding
    if not max_ids:
        return Auto(of, catalog.privacy.rows.told)
    weighs = table.unit is not None and word.weighs
    return DeclaredBound(of, max_ids, weighs, share, planned.law_of(catalog))


class DrawnRelease(NamedTuple):
    """All noisy numbers of a release.

    Args:
        plan: the plan, with what was chosen on the way.
        views: noisy integers of each statistic, in the plan's order.
        scales: of each table with `max_ids: auto`.
        beyond: of each table that measures its rows beyond the contribution bound.
        excess: of each measure whose values beyond its bounds are measured.
        corrected: as of `DrawnTable`.
    """

    plan: planned.ReleasePlan
    views: tuple[NoisyRows, ...]
    scales: tuple[TableScale, ...] = ()
    beyond: tuple[RowsBeyondBound, ...] = ()
    corrected: Mapping[int, Corrected] = NOTHING
    excess: tuple[UnitsBeyond, ...] = ()


def draw_release(scan: OpenSource, progress: Progress) -> DrawnRelease:
    """Draw all statistics, table by table.

    Args:
        scan: the release being made.
        progress: told each table.

    **Privacy**: spends every line of the plan, once. What is returned is noisy; the cells themselves go nowhere else.
    """
    tables: list[DrawnTable] = []
    names = tuple(dict.fromkeys(s.of for s in scan.plan.statistics))
    for done, of in enumerate(names, 1):
        progress(Stage("bounding, counting and drawing", of, done=done, total=len(names)))
        run = TableDraw(scan, of)
        # rows by their bounding, people, values beyond bounds: each where the plan asks for it
        if scan.plan.row_statistics(of):
            tables.append(run.bounding.draw(run))
        if scan.plan.unit_statistics(of):
            # all people that are placed, however many rows are theirs
            people = draw_people(PeopleRows(scan.raw, scan.plan, of, run.counted.rows, scan.noise))
            tables.append(
                DrawnTable(
                    {i: s for i, (s, _) in people.items()}, {i: view for i, (_, view) in people.items()}
                )
            )
        if (of, EXCESS) in [(step.of, step.kind) for step in scan.plan.steps]:
            tables.append(DrawnTable({}, {}, excess=units_beyond(scan, of, run.counted.rows)))
    statistics = {i: s for table in tables for i, s in table.statistics.items()}
    views = {i: view for table in tables for i, view in table.views.items()}
    return DrawnRelease(
        replace(scan.plan, statistics=tuple(s for _, s in sorted(statistics.items()))),
        tuple(view for _, view in sorted(views.items())),
        tuple(scale for table in tables for scale in table.scales),
        tuple(rows for table in tables for rows in table.beyond),
        {i: each for table in tables for i, each in table.corrected.items()},
        tuple(measure for table in tables for measure in table.excess),
    )


def draw_cells(scan: OpenSource, of: str, cells: CountedCells) -> dict[int, NoisyRows]:
    """The one draw of each of a table's statistics, whose cells are fetched view by view."""
    plan = scan.plan
    views: dict[int, NoisyRows] = {}
    for group in plan.by_view(of):
        statistics = [plan.statistics[i] for i in group]
        exacts = dict(zip(group, cells.of(*statistics), strict=True))
        for draw in plan.draws:
            if len(draw) > 1 and draw[0] in exacts:
                together = [plan.statistics[i].terms(plan.axes) for i in draw]
                views |= zip(
                    draw,
                    draw_together([exacts.pop(i) for i in draw], together, scan.noise),
                    strict=True,
                )
        for i, exact in exacts.items():
            s = plan.statistics[i]
            terms = s.terms(plan.axes)._replace(beside=views.get(group[0]))
            views[i] = s.measurement.draw(refined(exact, s.noise_refinement), terms, scan.noise)
    return views


def unmeasured(catalog: Catalog, of: str) -> RowsBeyondBound:
    """Facts about a table's rows beyond its declared bound where nothing measures them."""
    rule = catalog.star.tables[of].bounding
    return RowsBeyondBound(of, "weight" if rule.word.weighs else "truncate", rule.max_ids)


def rows_beyond(run: TableDraw, bounding: DeclaredBound) -> tuple[RowsBeyondBound, ...]:
    """Measure the rows beyond the contribution bound, where the table pays for it.

    **Privacy**: the step's spend. Sensitivities are `reach(tau)` and 1, and a unit is in one of the two numbers or in
    none, so that either draw may have the whole.
    """
    scan, of, tau, most = run.scan, bounding.of, bounding.tau, reach(bounding.tau)
    step = scan.plan.step(of, BEYOND)
    if step is None:
        return ()
    columns = scan.raw.relations("counting").fetch(
        beyond_bound(run.counted.rows, tau, most, scan.raw.dialect)
    )
    draw, exact = bounding.law.draw_bounded, [Exact(columns[name]) for name in ("v0", "v1")]
    rows = draw(exact[0], most, step.spend, scan.noise)
    units = draw(exact[1], 1, step.spend, scan.noise)
    measured = replace(
        unmeasured(scan.plan.catalog, of), rows=int(rows.value[0]), stderr=rows.sd, at_most=most,
        units=int(units.value[0]), units_stderr=bounding.law.bounded_noise(1, step.spend),
    )  # fmt: skip
    return (measured,)


EXCESS = "values beyond bounds"

NEAR = 3
"""Widths of the bounds up to which a unit's excess is near. More classes would each add the noise of a number."""

MARGIN = NEAR + 1
"""Widths beyond the bounds up to which a value is read: past `NEAR`, so that what is far is seen to be."""

EXCESS_SHARE = Fraction(1, 100)
"""What drafts and designs propose: bounds that were read from rows, or typical ones of a person's rows, cut some."""

MOST_SPENT = Fraction(1, 2)
"""Of a table's charges, by all of its measures."""


@dataclass(frozen=True)
class UnitsBeyond:
    """Units with values of one measure beyond its bounds, measured.

    Args:
        of, measure: the counted table and the measure.
        bounds: its bounds.
        units: noisy numbers: above the upper bound alone near and far, below the lower alone near and far, both; the
            last is left out where every row is a unit.
        stderr: standard error of each.
    """

    of: str
    measure: str
    bounds: planned.Bounds
    units: tuple[int, ...]
    stderr: float


def measured_bounds(statistics: Sequence[planned.PlannedStatistic], of: str) -> dict[str, planned.Bounds]:
    """The measures of a table whose values beyond the bounds can be measured, by name.

    Squares are left out, since those of a value just beyond its bounds are near at once; bounds that wide too.
    """
    return {
        s.measure.name: s.bounds
        for s in statistics
        if s.of == of and s.bounds is not None and not s.measure.name.squared
        and max(map(abs, (s.bounds.wider(MARGIN).lower, s.bounds.wider(MARGIN).upper))) < LARGEST_UNITS
    }  # fmt: skip


def excess_steps(
    catalog: Catalog, of: str, statistics: Sequence[planned.PlannedStatistic], law: NoiseDistribution
) -> Divided:
    """Take the `excess_share` of a table out of the charges of its statistics, once for each of its measures.

    Args:
        catalog: the catalog.
        of: the counted table.
        statistics: all statistics of the release.
        law: the noise of these numbers.

    Raises:
        CatalogError: the measures together take more than half of the table's charges.
    """
    share = catalog.tables[of].excess_share or Fraction(0)
    names = measured_bounds(statistics, of) if share else {}
    if not names:
        return Divided([], list(statistics))
    if share * len(names) > MOST_SPENT:
        raise CatalogError(
            f"tables.{of}.excess_share: {share} for each of {len(names)} measures is more than half of the budget",
            hint="lower it",
        )
    charge = share * sum((s.charge for s in statistics if s.of == of), Fraction(0))
    steps = [planned.Step(of, EXCESS, name, planned.spend_of(catalog, charge, law), charge) for name in names]
    return Divided(steps, planned.lowered(catalog, statistics, of, share * len(names)))


def units_beyond(scan: OpenSource, of: str, rows: PlacedRows) -> tuple[UnitsBeyond, ...]:
    """Count the units with values beyond the bounds of a table's measures, and draw their numbers.

    Args:
        scan: the release being made.
        of: the counted table.
        rows: its placed rows.

    **Privacy**: the spends of the table's steps of this kind; sensitivity 1 each, in L1 and in L2.
    """
    catalog, raw, plan, law = scan.catalog, scan.raw, scan.plan, planned.law_of(scan.catalog)
    statistics = [s for s in plan.statistics if s.of == of]
    bounds = measured_bounds(statistics, of)
    steps = [step for name in bounds if (step := plan.step(of, EXCESS, name)) is not None]
    digits = measure_digits(catalog, raw, statistics, MARGIN)
    measured = [
        (digits[step.measure].name, ends.lower, ends.upper, NEAR * ends.width)
        for step in steps for ends in [bounds[step.measure]]
    ]  # fmt: skip
    counted = replace(rows, measures=tuple(digits[step.measure] for step in steps))
    columns = raw.relations("counting").fetch(units_beyond_bounds(counted, measured, raw.dialect))
    exact = np.array([columns[f"v{i}"][0] for i in range(len(columns))], np.int64).reshape(len(steps), -1)
    drawn_measures = []
    for step, numbers in zip(steps, exact, strict=True):
        drawn = law.draw_bounded(Exact(numbers), 1, step.spend, scan.noise)
        drawn_measures.append(
            UnitsBeyond(of, step.measure, bounds[step.measure], tuple(drawn.value.tolist()), drawn.sd)
        )
    return tuple(drawn_measures)
