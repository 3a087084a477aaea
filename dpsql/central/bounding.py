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
**Source**: docs/method/rows.md, "At most tau rows of a unit".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

from dpsql.catalog import Catalog
from dpsql.central.excess import EXCESS, UnitsBeyond, units_beyond
from dpsql.central.people import PeopleRows, draw_people, plan_people
from dpsql.central.placed_rows import CountedCells, CountedRows, counted_rows
from dpsql.central.planned import PlannedStatistic, ReleasePlan, Step, UnitQuery, law_of, lowered, spend_of
from dpsql.contributions.recipe import CLIPPINGS, Corrected, TableScale, settle_table
from dpsql.contributions.selection import Divided, divide, placed_table
from dpsql.contributions.statements import UNIT
from dpsql.engines.counting import Bound, EveryRow, RowWeighting, Sampled, beyond_bound, coefficients
from dpsql.engines.engine import Engine
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
    plan: ReleasePlan
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

    statistics: dict[int, PlannedStatistic]
    views: dict[int, NoisyRows]
    scales: tuple[TableScale, ...] = ()
    beyond: tuple[RowsBeyondBound, ...] = ()
    corrected: Mapping[int, Corrected] = NOTHING
    excess: tuple[UnitsBeyond, ...] = ()


class Bounding(Protocol):
    """Contribution bounding of one table's rows."""

    @property
    def of(self) -> str:
        """The counted table."""

    @property
    def tau(self) -> int:
        """Rows of one unit that count; 0 where publishing chooses."""

    @property
    def unit(self) -> int:
        """Planned integers that make a row: 1, or 2^20 where rows have weights."""

    @property
    def people(self) -> bool:
        """True if weights are chosen at publish, by what people own in all views of the table."""

    def divide(self, catalog: Catalog, statistics: Sequence[PlannedStatistic]) -> Divided:
        """Take what is not spent on statistics out of the charges of the table's; charges add up to what they were.

        Args:
            catalog: of the release.
            statistics: all its statistics.
        """

    def draw(self, run: TableDraw) -> DrawnTable:
        """Draw the table's statistics.

        **Privacy**: spends the table's lines, each once.
        """


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
        of, tau: as of `Bounding`.
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
        return UNIT if self.weighs else 1

    def divide(self, catalog: Catalog, statistics: Sequence[PlannedStatistic]) -> Divided:
        if not self.share:
            return Divided([], list(statistics))
        charge = self.share * sum((s.charge for s in statistics if s.of == self.of), Fraction(0))
        step = Step(self.of, BEYOND, "", spend_of(catalog, charge, self.law), charge)
        return Divided([step], lowered(catalog, statistics, self.of, self.share))

    def cells(self, run: TableDraw) -> CountedCells:
        """The cells of the rows that count."""
        scan, counted = run.scan, run.counted
        bound: Bound = EveryRow()
        if counted.rows.unit is not None:
            bound = RowWeighting(self.tau) if self.weighs else Sampled(self.tau, coefficients(scan.key))
        return CountedCells(scan.raw.relations("counting"), scan.plan, self.of, counted, bound)

    def draw(self, run: TableDraw) -> DrawnTable:
        beyond = rows_beyond(run, self)
        drawn = draw_cells(run.scan, self.of, self.cells(run))
        return DrawnTable(run.scan.plan.row_statistics(self.of), drawn, (), beyond)


@dataclass(frozen=True)
class Auto:
    """Weights, bounds and one factor are chosen at publish from noisy numbers: see `dpsql.contributions`.

    Args:
        of: as of `Bounding`.
        public_rows: whether the number of rows may be told.
    """

    of: str
    public_rows: bool
    tau: ClassVar[int] = 0
    unit: ClassVar[int] = 1
    people: ClassVar[bool] = True

    def divide(self, catalog: Catalog, statistics: Sequence[PlannedStatistic]) -> Divided:
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
        scan = run.scan
        relations = scan.raw.relations(f"choosing bounds for {self.of}")
        drawn = settle_table(placed_table(relations, scan.plan, self.of, run.counted, scan.noise))
        return DrawnTable(dict(drawn.statistics), dict(drawn.views), (drawn.scale,), (), drawn.corrected)


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
    return DeclaredBound(of, max_ids, weighs, share, law_of(catalog))


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

    plan: ReleasePlan
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
        tables += [draw(run) for asked, draw in TABLE_DRAWS if asked(run)]
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


def draw_table_people(run: TableDraw) -> DrawnTable:
    """The people behind a table's rows: all that are placed, however many are theirs.

    **Privacy**: spends the lines of the table's people, each once.
    """
    scan = run.scan
    drawn = draw_people(PeopleRows(scan.raw, scan.plan, run.of, run.counted.rows, scan.noise))
    return DrawnTable({i: s for i, (s, _) in drawn.items()}, {i: view for i, (_, view) in drawn.items()})


def draw_excess(run: TableDraw) -> DrawnTable:
    """The units with values beyond the bounds of the table's measures.

    **Privacy**: spends the steps of these measures, each once.
    """
    scan = run.scan
    relations, law = scan.raw.relations("counting"), law_of(scan.catalog)
    drawn = units_beyond(
        scan.catalog, scan.raw, scan.plan, run.counted.rows, run.of, relations, law, scan.noise
    )
    return DrawnTable({}, {}, excess=drawn)


TABLE_DRAWS: tuple[tuple[Callable[[TableDraw], bool], Callable[[TableDraw], DrawnTable]], ...] = (
    (lambda run: bool(run.scan.plan.row_statistics(run.of)), lambda run: run.bounding.draw(run)),
    (lambda run: bool(run.scan.plan.unit_statistics(run.of)), draw_table_people),
    (lambda run: (run.of, EXCESS) in [(step.of, step.kind) for step in run.scan.plan.steps], draw_excess),
)
"""What is drawn of a table, each where the plan asks for it: rows by their bounding, people, values beyond bounds."""

UNIT_PLANS: tuple[Callable[[UnitQuery], tuple[list[PlannedStatistic], list[Step]]], ...] = (plan_people,)
"""What is planned of the units behind a table's rows; the statistics and steps of each are drawn by `TABLE_DRAWS`."""


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
