"""What a `max_ids: auto` table pays for choosing its bounds, and how they follow from what is known.

| step | share | what for |
|---|---|---|
| rows per unit | 2% | tau = q.5(n), tau_hi = 3 q.9(n) |
| sums per unit | 2%, split among measures | C = 3 q.9(S) |
| norms per unit | 2%, zCDP only | K = q.4(nu) |
| total rows | 5%, pure 7% | N_hi |
| total sums | 9%, pure 7%, split among measures | S_hi, mid = S_hi / N_hi |
| views | what is left | weighted shapes, by the catalog's shares |
| rows by group | 5% for each view with `calibrate: per_group` | R_g |

Steps that a table does not need (no measure, a public number of rows, pure epsilon) leave their share to the
views, so the shares always add to 1. What is chosen is a function of something `Known`: released histograms
at publish, public guesses before.

**Privacy**: shares are a function of the catalog, and every step has a ledger line of its own; every number
fetched here is noised by the draw of its step before anything depends on it.
**Source**: docs/method/user_level.md, "Shares of the recipe", "Selection", "Totals with a high bound",
"Centre".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod, sqrt
from typing import NamedTuple, Protocol

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.engines.template import LARGEST
from dpsql.errors import CatalogError, InternalError
from dpsql.mechanisms.family.people import (
    NoisyHistogram,
    NoisyTotal,
    centre,
    cleaned,
    doubling_edges,
    draw_histogram,
    draw_total,
    high_bound,
    quantile,
    rounded,
    spread,
)
from dpsql.mechanisms.family.whitened import pure_bound, typical_square
from dpsql.mechanisms.law import GAUSSIAN, LAPLACE, NoiseLaw
from dpsql.noise import Noise
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan, Step
from dpsql.publishing.userlevel.sql import clipped_total, make_people, people_per_bin

FloatArray = npt.NDArray[np.float64]
Buy = Callable[[Fraction, NoiseLaw], Fraction]

SELECTION = Fraction(2, 100)
"""Of each noisy histogram."""

SCALE = Fraction(14, 100)
"""Of all totals with a high bound together."""

SCALE_ROWS = {1: Fraction(7, 100), 2: Fraction(5, 100)}
"""The part of the total of rows, by norm; sums get the rest, since S_hi sets the centre and so every SUM."""

GROUPS = Fraction(5, 100)
"""For each view that is calibrated by group: rows of each group with a high bound."""

LARGEST_REACH = 1 << 30
"""The farthest a value may lie from the middle of its bounds, in units of its scale."""

MOST_GROUPED = 4
"""Views of one table that may be calibrated by group."""

ROWS, SUMS, NORMS, TOTAL_ROWS, TOTAL_SUMS, GROUP_ROWS = (
    "rows per unit",
    "sums per unit",
    "norms per unit",
    "total rows",
    "total sums",
    "rows by group",
)

ROW_BINS = 16
"""Bins of rows per unit: 1, 2, 3-4, .. 2^15, and more."""

SUM_BINS, SUM_START = 20, 16
"""Bins of sums per unit: from a 16th of what one row may be, doubling."""

LARGEST_BOUND = (1 << 42) - 1
"""Totals are clipped here at the latest, so that 64-bit noise has its headroom and no draw can fail (rule N4)."""

LOW, HIGH = 0.5, 0.9
"""The quantile of the low bound, and the one it is raised to where noise is small anyway."""

SMALL_NOISE = 0.03
"""Predicted median relative noise below which the low bound is raised."""


def recipe_shares(
    measures: Sequence[str], law: NoiseLaw, *, public_rows: bool, grouped: Sequence[str] = ()
) -> tuple[dict[tuple[str, str], Fraction], Fraction]:
    """The share of each step, and of the views together.

    Args:
        measures: names of the table's summed measures.
        law: the noise.
        public_rows: whether the number of rows may be told.
        grouped: names of the views that are calibrated by group.

    Returns:
        (share by (kind, measure), share of the views); together exactly 1.

    >>> steps, views = recipe_shares(["sales.amount"], GAUSSIAN, public_rows=False)
    >>> sum(steps.values()) + views, views
    (Fraction(1, 1), Fraction(4, 5))
    """
    steps = {(ROWS, ""): SELECTION}
    steps |= {(SUMS, name): SELECTION / len(measures) for name in measures}
    if law == GAUSSIAN:
        steps[NORMS, ""] = SELECTION
    if not public_rows:
        steps[TOTAL_ROWS, ""] = SCALE_ROWS[law.norm] if measures else SCALE
    left = SCALE if public_rows else SCALE - SCALE_ROWS[law.norm]
    steps |= {(TOTAL_SUMS, name): left / len(measures) for name in measures}
    steps |= {(GROUP_ROWS, view): GROUPS for view in grouped}
    return steps, 1 - sum(steps.values(), Fraction(0))


class Divided(NamedTuple):
    """The steps of one table, and all statistics with what is left to them."""

    steps: list[Step]
    statistics: list[PlannedStatistic]


def divide(
    of: str, statistics: Sequence[PlannedStatistic], buy: Buy, *, public_rows: bool, grouped: Sequence[str]
) -> Divided:
    """Take the recipe's steps out of the charges of one table's views; charges add up to what they were.

    Args:
        of: a table with `max_ids: auto`.
        statistics: all statistics of the release.
        buy: (charge, law) -> what it buys in the noise's own currency.
        public_rows: whether the number of rows may be told.
        grouped: names of the views that are calibrated by group.

    Raises:
        CatalogError: too many views are calibrated by group, or a measure is too wide.
    """
    mine = [s for s in statistics if s.of == of]
    _check(of, mine, grouped)
    whole, law = sum((s.charge for s in mine), Fraction(0)), mine[0].law
    sums = list(dict.fromkeys(s.measure.name for s in mine if s.bounds is not None))
    shares, left = recipe_shares(sums, law, public_rows=public_rows, grouped=grouped)
    steps = [
        Step(of, kind, measure, buy(whole * share, law), whole * share)
        for (kind, measure), share in shares.items()
    ]
    reduced = [replace(s, charge=s.charge * left, spend=buy(s.charge * left, law)) for s in mine]
    kept = iter(reduced)
    return Divided(steps, [next(kept) if s.of == of else s for s in statistics])


def _check(of: str, mine: Sequence[PlannedStatistic], grouped: Sequence[str]) -> None:
    """Refuse what weights cannot hold."""
    wide = [s for s in mine if s.bounds is not None and s.bounds.reach > LARGEST_REACH]
    if wide:
        raise CatalogError(
            f"{wide[0].measure.name}: its bounds are too wide for weighted 64-bit sums at its scale",
            hint="narrow lower and upper, or lower its scale",
        )
    if len(grouped) > MOST_GROUPED:
        raise CatalogError(
            f"views: {len(grouped)} views of {of} say `calibrate: per_group`, which costs 5% each",
            hint=f"keep it for {MOST_GROUPED} of them",
        )


class Known(Protocol):
    """What is known of the amounts that people own: released numbers at publish, public guesses before."""

    @property
    def people(self) -> float:
        """About how many people there are."""

    def quantile(self, share: float) -> float:
        """The amount that a share of them do not pass."""

    def weighted(self, tau: int) -> float:
        """About how much there is if nobody counts for more than tau."""


@dataclass(frozen=True)
class Released:
    """Known from a noisy histogram."""

    histogram: NoisyHistogram

    @property
    def people(self) -> float:
        """Those who stand out of the noise."""
        return float(cleaned(self.histogram).sum())

    def quantile(self, share: float) -> float:
        """See `Known`."""
        return quantile(self.histogram, share)

    def weighted(self, tau: int) -> float:
        """See `Known`."""
        return float((cleaned(self.histogram) * np.minimum(self._amounts(), tau)).sum())

    def owned_above(self, tau: int) -> float:
        """About which share of all there is belongs to people with more than tau."""
        amounts = self._amounts()
        owned = cleaned(self.histogram) * amounts
        return float(owned[amounts > tau].sum() / owned.sum()) if owned.sum() > 0 else 0.0

    def _amounts(self) -> FloatArray:
        """The geometric middle of each bin; the overflow bin counts at its lower end."""
        edges = np.asarray(self.histogram.edges, dtype=np.float64)
        return np.concatenate([edges[:1], np.sqrt(edges[1:] * edges[:-1]), edges[-1:]])


def low_quantile(plan: ReleasePlan, of: str, known: Known, rows: float) -> float:
    """The quantile of tau: q.5, or q.9 where the noise of a typical cell is predicted to be small at q.5 already.

    Args:
        plan: the release.
        of: the table.
        known: of rows per unit.
        rows: how many there are at most.
    """
    tau = rounded(known.quantile(LOW))
    kept = min(rows, known.weighted(tau))
    if kept <= 0:
        return LOW
    relative = [
        sqrt(cell_variance(plan, s, tau)) * prod(plan.shape(s)) / kept
        for s in counts_of(plan.mine(of)).values()
    ]
    return HIGH if relative and float(np.median(relative)) < SMALL_NOISE else LOW


def cell_variance(plan: ReleasePlan, statistic: PlannedStatistic, tau: int, clip: float = 1.0) -> float:
    """Predicted variance of one cell at a given tau; under zCDP K is so many typical norms."""
    if statistic.law == LAPLACE:
        return float(2 * (pure_reach(statistic, tau) / statistic.spend) ** 2)
    return clip * float(typical_size(plan, statistic, tau) / (2 * statistic.spend))


def pure_reach(statistic: PlannedStatistic, tau: int) -> int:
    """The most that a weighted unit adds under pure epsilon: tau for counts, T for sums."""
    bounds, mid = statistic.bounds, statistic.mid
    if bounds is None:
        return tau
    reach = max(bounds.upper - mid, mid - bounds.lower, 1)
    return pure_bound(tau, reach, spread(mid, bounds.lower, bounds.upper))


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


def total_bound(known: Known, step: Step, law: NoiseLaw) -> int:
    """The bound of a step's total, from two quantiles."""
    unit_noise = law.unit_noise(step.spend)
    bound = high_bound(known.quantile(LOW), known.quantile(HIGH), known.people, unit_noise)
    return min(bound, LARGEST_BOUND)


@dataclass(frozen=True)
class Choices:
    """What the recipe chose for one table, from released values alone.

    Args:
        quantile: q.5 or q.9, of which tau and K are.
        tau: rows of a typical unit.
        high: q.9 of rows per unit, the bound of rows by group.
        rows: N_hi.
        sums: S_hi of each measure, by name.
        mids: the centre of each measure, by name.
        weighted_down: share of rows, about, whose unit owns more than tau.
    """

    quantile: float
    tau: int
    high: int
    rows: NoisyTotal
    sums: Mapping[str, NoisyTotal]
    mids: Mapping[str, int]
    weighted_down: float


@dataclass(frozen=True)
class Table:
    """One table's part of a release being made.

    Args:
        connection: where the rows are.
        plan: the release.
        of: the counted table.
        rows: table of all its placed rows with their `unit`.
        columns: SQL of each bounded measure, by `table.column`.
        noise: where noise comes from.
    """

    connection: duckdb.DuckDBPyConnection
    plan: ReleasePlan
    of: str
    rows: str
    columns: Mapping[str, str]
    noise: Noise

    @property
    def statistics(self) -> dict[int, PlannedStatistic]:
        """The table's statistics by index in the plan."""
        return self.plan.mine(self.of)

    @property
    def law(self) -> NoiseLaw:
        """The noise."""
        return next(iter(self.statistics.values())).law

    @property
    def sums(self) -> dict[str, PlannedStatistic]:
        """One statistic of each summed measure, by its name."""
        return {s.measure.name: s for s in self.statistics.values() if s.bounds is not None}

    @property
    def public_rows(self) -> bool:
        """Whether the number of rows is told: nothing is spent on it then."""
        return self.plan.step(self.of, TOTAL_ROWS) is None

    def step(self, kind: str, measure: str = "") -> Step:
        """The planned step of this table."""
        step = self.plan.step(self.of, kind, measure)
        if step is None:
            raise InternalError(f"the plan has no {kind} of {self.of}")
        return step

    def centred(self, mids: Mapping[str, int]) -> Table:
        """The same with sums around chosen centres."""
        moved = [
            replace(s, mid=mids[s.measure.name]) if s.of == self.of and s.bounds is not None else s
            for s in self.plan.statistics
        ]
        return replace(self, plan=replace(self.plan, statistics=tuple(moved)))


def choose_bounds(table: Table) -> Choices:
    """Steps 1 to 3: tau, the totals with a high bound, the centres."""
    measures = list(table.sums)
    people = make_people(table.connection, table.rows, table.of, [table.columns[name] for name in measures])
    per_unit = Released(people_histogram(table, people, "n", doubling_edges(1, ROW_BINS), table.step(ROWS)))
    rows = _total_rows(table, people, per_unit)
    totals, mids = {}, {}
    for i, name in enumerate(measures):
        bounds = table.sums[name].bounds
        assert bounds is not None
        largest = max(abs(bounds.lower), abs(bounds.upper), 1)
        edges = doubling_edges(max(1, largest // SUM_START), SUM_BINS)
        per_sum = people_histogram(table, people, f"abs(s{i})", edges, table.step(SUMS, name))
        totals[name] = _total(table, people, f"s{i}", Released(per_sum), table.step(TOTAL_SUMS, name))
        mids[name] = centre(totals[name], rows, bounds.lower, bounds.upper)
    share = low_quantile(table.plan, table.of, per_unit, float(rows.value))
    tau, high = rounded(per_unit.quantile(share)), rounded(per_unit.quantile(HIGH))
    return Choices(share, tau, high, rows, totals, mids, per_unit.owned_above(tau))


def _total_rows(table: Table, people: str, per_unit: Known) -> NoisyTotal:
    """N_hi, or the number of rows where the catalog says that it may be told."""
    if table.public_rows:
        return NoisyTotal(clipped_total(table.connection, people, "n", LARGEST), 0.0, 0)
    return _total(table, people, "n", per_unit, table.step(TOTAL_ROWS))


def _total(table: Table, people: str, amount: str, known: Known, step: Step) -> NoisyTotal:
    """The noisy total of an amount, with a high bound from what is known of it."""
    bound = total_bound(known, step, table.law)
    exact = clipped_total(table.connection, people, amount, bound)
    return draw_total(exact, bound, step.spend, table.law, table.noise)


def is_sticky(plan: ReleasePlan, of: str, axis: int) -> bool:
    """Whether all rows of a unit share one leaf of an axis: it lies behind the unit's own key."""
    owner = plan.catalog.star.tables[of].unit
    path = plan.axes[axis].axis.path
    return owner is not None and path[: len(owner.path) + 1] == (*owner.path, owner.column)


def people_histogram(
    table: Table, people: str, amount: str, edges: Sequence[int], step: Step
) -> NoisyHistogram:
    """The noisy histogram of a step: people by an amount of theirs."""
    counts = people_per_bin(table.connection, people, amount, edges)
    return draw_histogram(counts, tuple(edges), step.spend, table.law, table.noise)


def counts_of(statistics: Mapping[int, PlannedStatistic]) -> dict[int, PlannedStatistic]:
    """The statistics that count rows."""
    return {i: s for i, s in statistics.items() if s.measure.name == "count"}
