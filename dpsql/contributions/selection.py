"""Selection of the bounds of a `max_ids: auto` table: ledger steps, tau, totals with a high bound, centres.

| step | share under a delta | pure | gives |
|---|---|---|---|
| rows per unit | 2.5% | 3% | tau = a quantile of n, the tail of rows |
| sums per unit | 2.5%, split among measures | 3% | the tail of each measure |
| norms per unit | 2% | - | K = a quantile of nu |
| total rows | 5% | 5% | N |
| total sums | 9%, split among measures | 9% | S, mid = S / N |
| views | the rest: 79% | 80% | weighted shapes, by the catalog's shares |

Steps that a table does not need (no measure, a public number of rows) leave their share to the views, so the
shares always add to 1. Choices are functions of histograms of people: released ones at publish, those of made-up
tables before (`rehearsal`).

tau is the quantile of rows a person where noise^2 + (rows left out)^2 of a cell is least (`low_quantile`), the two
terms of an interval; ties go to the one nearest to .9. K is the same quantile of the norms, q.4 where that is .5. Rows
are of bins up to the one past the last clear bin: a far bin is noise times many rows.

**Privacy**: shares are a function of the catalog, and every step has a ledger line of its own; every number
fetched here is noised by the draw of its step before anything depends on it.
**Source**: docs/method/rows.md, "The low bound", "Selection", "Totals with a high bound",
"Centre".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil, prod, sqrt
from typing import NamedTuple

import numpy as np

from dpsql.catalog import Catalog
from dpsql.central.placed_rows import CountedRows
from dpsql.central.planned import PlannedStatistic, ReleasePlan, Step, lowered, spend_of
from dpsql.contributions.constants import LOW_QUANTILES, ROW_ENDS, SUM_BINS, SUM_START
from dpsql.contributions.factors import unevenness
from dpsql.contributions.histogram import (
    NoisyHistogram,
    centre,
    cleaned,
    clear_people,
    doubling_edges,
    draw_histogram,
    draw_total,
    last_clear,
    middles,
    quantile,
    spread,
)
from dpsql.contributions.statements import clipped_total, make_people, people_per_bin, typical_square
from dpsql.contributions.tail import ClippedTotal, Tail, best_clip, public_total, read_tail, unclipped
from dpsql.engines.counting import LARGEST, stored_rows
from dpsql.engines.registry import Relations
from dpsql.errors import CatalogError, InternalError
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.noise import Noise
from dpsql.tree import FloatArray

LARGEST_REACH = 1 << 30
"""The farthest a value may lie from the middle of its bounds, in units of its scale."""

ROWS, SUMS, NORMS, TOTAL_ROWS, TOTAL_SUMS = (
    "rows per unit",
    "sums per unit",
    "norms per unit",
    "total rows",
    "total sums",
)

LARGEST_BOUND = (1 << 42) - 1
"""Totals are clipped here at the latest, so that 64-bit noise has its headroom and no draw can fail (rule N4)."""


@dataclass(frozen=True)
class StepShares:
    """Budget shares of a recipe's steps; views get the rest.

    Args:
        selection: for the histogram of rows, and as much for those of all sums together.
        norms: for the histogram of norms.
        rows, sums: for the total of rows, and for those of all sums together.
    """

    selection: Fraction
    norms: Fraction
    rows: Fraction
    sums: Fraction


def recipe_shares(
    shares: StepShares, measures: Sequence[str], *, public_rows: bool
) -> tuple[dict[tuple[str, str], Fraction], Fraction]:
    """The share of each step, and of the views together.

    Args:
        shares: of the table's law.
        measures: names of the table's summed measures.
        public_rows: whether the number of rows may be told.

    Returns:
        (share by (kind, measure), share of the views); together exactly 1.

    >>> percent = [Fraction(x, 200) for x in (5, 4, 10, 18)]
    >>> steps, views = recipe_shares(StepShares(*percent), ["sales.amount"], public_rows=False)
    >>> sum(steps.values()) + views, views
    (Fraction(1, 1), Fraction(79, 100))
    """
    steps = {(ROWS, ""): shares.selection}
    steps |= {(SUMS, name): shares.selection / len(measures) for name in measures}
    steps[NORMS, ""] = shares.norms
    if not public_rows:
        steps[TOTAL_ROWS, ""] = shares.rows if measures else shares.rows + shares.sums
    left = shares.sums + shares.rows if public_rows else shares.sums
    steps |= {(TOTAL_SUMS, name): left / len(measures) for name in measures}
    steps = {step: share for step, share in steps.items() if share}
    return steps, 1 - sum(steps.values(), Fraction(0))


class Divided(NamedTuple):
    """The steps of one table, and all statistics with what is left to them."""

    steps: list[Step]
    statistics: list[PlannedStatistic]


def divide(
    catalog: Catalog, mine: Sequence[PlannedStatistic], shares: StepShares, *, public_rows: bool
) -> Divided:
    """Take the recipe's steps out of the charges of one table's views; charges add up to what they were.

    Args:
        catalog: of the release.
        mine: the statistics of a table with `max_ids: auto`.
        shares: of their law.
        public_rows: whether the number of rows may be told.

    Raises:
        CatalogError: a measure is too wide.
    """
    _check(mine)
    whole, law = sum((s.charge for s in mine), Fraction(0)), mine[0].law
    sums = list(dict.fromkeys(s.measure.name for s in mine if s.bounds is not None))
    parts, left = recipe_shares(shares, sums, public_rows=public_rows)
    steps = [
        Step(mine[0].of, kind, measure, spend_of(catalog, whole * share, law), whole * share)
        for (kind, measure), share in parts.items()
    ]
    return Divided(steps, lowered(catalog, mine, mine[0].of, 1 - left))


def _check(mine: Sequence[PlannedStatistic]) -> None:
    """Refuse what weights cannot hold."""
    wide = [s for s in mine if s.bounds is not None and s.bounds.reach > LARGEST_REACH]
    if wide:
        raise CatalogError(
            f"{wide[0].measure.name}: its bounds are too wide for weighted 64-bit sums at its scale",
            hint="narrow lower and upper, or lower its scale",
        )


@dataclass(frozen=True)
class ContributionHistogram:
    """Amounts that people own: from a released histogram, or from an expected one.

    Args:
        histogram: people by their amounts.
        rows: whether amounts are numbers of rows; else sizes of sums.
    """

    histogram: NoisyHistogram
    rows: bool = True

    @property
    def people(self) -> float:
        """Those who stand out of the noise."""
        return float(cleaned(self.histogram).sum())

    @property
    def unseen(self) -> tuple[int, int]:
        """The most people who may own more rows than the last clear bin holds, and how many rows that is.

        What is drawn of the bins above, and `CERTAIN` standard errors of it: whoever owns more is in one of them.
        """
        place = last_clear(self.histogram)
        above = self.histogram.value[place + 1 :].astype(np.float64)
        margin = CERTAIN * self.histogram.sd * sqrt(len(above))
        return ceil(max(0.0, float(above.sum())) + margin), self.histogram.edges[place]

    @cached_property
    def tail(self) -> Tail:
        return read_tail(self.histogram, rows=self.rows)

    def quantile(self, share: float) -> int:
        """The whole number that a share of them do not pass: below 4 and above 3 rows there are none."""
        return ceil(quantile(self.histogram, share))

    def weighted(self, tau: int) -> float:
        """About how much there is if nobody counts for more than tau."""
        return float(self._people @ np.minimum(middles(self.histogram.edges, whole=self.rows), tau))

    @property
    def amount(self) -> float:
        """About how much there is, of people that histograms show."""
        return float(self._people @ middles(self.histogram.edges, whole=self.rows))

    @cached_property
    def _people(self) -> FloatArray:
        """Those of bins up to the one past the last clear one."""
        return clear_people(self.histogram, 1)


CERTAIN = 5.0
"""Standard errors of what a note states: one Laplace draw passes them once in 2,400 times, sums less often."""

CellVariance = Callable[[PlannedStatistic, int], float]
"""Predicted variance of one cell of a statistic, at a tau."""


def low_quantile(
    plan: ReleasePlan, of: str, owned: ContributionHistogram, rows: float, cell_variance: CellVariance
) -> float:
    """The quantile of tau: relative noise of a typical cell against the part of the rows that is left out.

    Args:
        plan: the release.
        of: the table.
        owned: rows per unit.
        rows: how many there are.
        cell_variance: of the table's clipping.
    """
    counts = counts_of(plan.row_statistics(of)).values()

    def loss(share: float) -> float:
        tau = owned.quantile(share)
        kept = owned.weighted(tau)
        if kept <= 0 or not counts:
            return 0.0
        noise = [sqrt(cell_variance(s, tau)) * prod(plan.shape(s)) / kept for s in counts]
        return float(np.median(noise)) ** 2 + (1 - kept / max(rows, owned.amount, kept)) ** 2

    return min(LOW_QUANTILES, key=loss)


def typical_size(plan: ReleasePlan, statistic: PlannedStatistic, tau: int) -> Fraction:
    """Squared size of what a typical unit adds to a statistic: t_v^2, for sums times the squared spread of a value."""
    sticky = [is_sticky(plan, statistic.of, axis) for axis in statistic.axes]
    size = typical_square(plan.strategies(statistic), sticky, tau)
    if statistic.bounds is None:
        return size
    return size * spread(statistic.mid, statistic.bounds.lower, statistic.bounds.upper) ** 2


def view_shares(statistics: Mapping[int, PlannedStatistic]) -> dict[int, Fraction]:
    """The part of what all views of a table spend that each statistic has."""
    whole = sum((s.charge for s in statistics.values()), Fraction(0))
    return {i: s.charge / whole for i, s in statistics.items()}


@dataclass(frozen=True)
class RecipeChoices:
    """Choices of the recipe for one table, from released values alone.

    Args:
        quantile: of which tau and K are.
        tau: rows of a typical unit.
        owned: rows per unit.
        rows: N.
        sums: S of each measure, by name.
        mids: the centre of each measure, by name.
        uneven: whether heavy owners own other things, of each measure, by name.
    """

    quantile: float
    tau: int
    owned: ContributionHistogram
    rows: ClippedTotal
    sums: Mapping[str, ClippedTotal]
    mids: Mapping[str, int]
    uneven: Mapping[str, float]


@dataclass(frozen=True)
class RecipeTable:
    """One table's part of a release being made.

    Args:
        relations: of the engine that holds the rows.
        plan: the release.
        of: the counted table.
        rows: table of all its placed rows with their `unit`.
        columns: SQL of each bounded measure, by `table.column`.
        noise: where noise comes from.
        stands_for: units of the whole table that each unit of a made-up sample stands for.
    """

    relations: Relations
    plan: ReleasePlan
    of: str
    rows: str
    columns: Mapping[str, str]
    noise: Noise
    stands_for: int = 1

    @property
    def statistics(self) -> dict[int, PlannedStatistic]:
        """The table's statistics by index in the plan."""
        return self.plan.row_statistics(self.of)

    @property
    def law(self) -> NoiseDistribution:
        return next(iter(self.statistics.values())).law

    @property
    def sums(self) -> dict[str, PlannedStatistic]:
        """One statistic of each summed measure, by its name."""
        return {s.measure.name: s for s in self.statistics.values() if s.bounds is not None}

    @property
    def public_rows(self) -> bool:
        """True if the number of rows is told: nothing is spent on it then."""
        return self.plan.step(self.of, TOTAL_ROWS) is None

    def step(self, kind: str, measure: str = "") -> Step:
        """The planned step of this table."""
        step = self.plan.step(self.of, kind, measure)
        if step is None:
            raise InternalError(f"the plan has no {kind} of {self.of}")
        return step

    def centred(self, mids: Mapping[str, int]) -> RecipeTable:
        """The same with sums around chosen centres."""
        moved = [
            replace(s, mid=mids[s.measure.name]) if s.of == self.of and s.bounds is not None else s
            for s in self.plan.statistics
        ]
        return replace(self, plan=replace(self.plan, statistics=tuple(moved)))


def placed_table(
    relations: Relations, plan: ReleasePlan, of: str, counted: CountedRows, noise: Noise
) -> RecipeTable:
    """A table whose rows are placed, all of them.

    Args:
        relations: of the engine that holds the rows.
        plan, of: the table.
        counted: its rows.
        noise: where noise comes from.
    """
    # groups by unit then meet rows that lie together: half of what norms cost
    rows = relations.make(f"bounded {of}", stored_rows(counted.rows, relations.dialect), order="unit")
    return RecipeTable(relations, plan, of, rows, counted.measures, noise)


def choose_bounds(table: RecipeTable, cell_variance: CellVariance) -> RecipeChoices:
    """Tau, the totals with a high bound, the centres.

    Args:
        table: its rows are placed.
        cell_variance: of its clipping.
    """
    measures = list(table.sums)
    people = make_people(table.relations, table.rows, table.of, [table.columns[name] for name in measures])
    owned = ContributionHistogram(people_histogram(table, people, "n", ROW_ENDS, table.step(ROWS)))
    sizes = {
        name: ContributionHistogram(
            people_histogram(
                table, people, f"abs(s{i})", sum_edges(table.sums[name]), table.step(SUMS, name)
            ),
            rows=False,
        )
        for i, name in enumerate(measures)
    }
    rows = _total_rows(table, people, owned)
    totals, mids = {}, {}
    for i, name in enumerate(measures):
        bounds = table.sums[name].bounds
        assert bounds is not None
        totals[name] = _total(table, people, f"s{i}", sizes[name], table.step(TOTAL_SUMS, name))
        mids[name] = centre(totals[name].clipped, rows.clipped, bounds.lower, bounds.upper)
    share = low_quantile(table.plan, table.of, owned, rows.value, cell_variance)
    uneven = {name: unevenness(owned.histogram, each.histogram) for name, each in sizes.items()}
    return RecipeChoices(share, owned.quantile(share), owned, rows, totals, mids, uneven)


def sum_edges(statistic: PlannedStatistic) -> tuple[int, ...]:
    """Bins of sums per unit."""
    bounds = statistic.bounds
    assert bounds is not None
    largest = max(abs(bounds.lower), abs(bounds.upper), 1)
    return doubling_edges(max(1, largest // SUM_START), SUM_BINS)


def _total_rows(table: RecipeTable, people: str, owned: ContributionHistogram) -> ClippedTotal:
    """N, or the number of rows where the catalog says that it may be told."""
    if table.public_rows:
        return public_total(clipped_total(table.relations, people, "n", LARGEST))
    return _total(table, people, "n", owned, table.step(TOTAL_ROWS))


def _total(
    table: RecipeTable, people: str, amount: str, owned: ContributionHistogram, step: Step
) -> ClippedTotal:
    """The total of an amount, clipped where its tail says, and the amount beyond the clip put back."""
    bound = best_clip(owned.tail, table.law.bounded_noise(1, step.spend), LARGEST_BOUND)
    exact = clipped_total(table.relations, people, amount, bound)
    drawn = draw_total(exact, bound, step.spend, table.law, table.noise)
    return unclipped(drawn, owned.tail)


def is_sticky(plan: ReleasePlan, of: str, axis: int) -> bool:
    """True if all rows of a unit share one leaf of an axis: it lies behind the unit's own key."""
    owner = plan.catalog.star.tables[of].unit
    path = plan.axes[axis].axis.path
    return owner is not None and path[: len(owner.path) + 1] == (*owner.path, owner.column)


def people_histogram(
    table: RecipeTable, people: str, amount: str, edges: Sequence[int], step: Step
) -> NoisyHistogram:
    """The noisy histogram of a step: people by an amount of theirs."""
    counts = people_per_bin(table.relations, people, amount, edges)
    return draw_histogram(counts, tuple(edges), step.spend, table.law, table.noise)


def counts_of(statistics: Mapping[int, PlannedStatistic]) -> dict[int, PlannedStatistic]:
    """The statistics that count rows."""
    return {i: s for i, s in statistics.items() if s.measure.name.counts_rows}
