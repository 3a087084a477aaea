"""The bounds and centres of a `max_ids: auto` table, chosen from noisy histograms and totals alone.

    rows per unit, sums per unit    noisy histograms    tau, tau_hi, C
    total rows, total sums          noisy totals        N_hi, mid = S_hi / N_hi

**Privacy**: every number fetched here is noised by the draw of its step before anything depends on it.
**Source**: docs/method/user_level.md, "Selection", "Totals with a high bound", "Centre".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod, sqrt

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.catalog import unit_path
from dpsql.mechanisms.central.scale import NoisyTotal, centre, draw_total, high_bound
from dpsql.mechanisms.central.selection import (
    NoisyHistogram,
    cleaned,
    doubling_edges,
    draw_histogram,
    quantile,
    rounded,
)
from dpsql.mechanisms.central.whitened import typical_square
from dpsql.mechanisms.law import LAPLACE, NoiseLaw
from dpsql.noise import Noise
from dpsql.publishing.exact import LARGEST
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.publishing.userlevel_plan import ROWS, SUMS, TOTAL_ROWS, TOTAL_SUMS, Step
from dpsql.publishing.userlevel_sql import clipped_total, make_people, people_per_bin

FloatArray = npt.NDArray[np.float64]

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
        return {i: s for i, s in enumerate(self.plan.statistics) if s.of == self.of}

    @property
    def law(self) -> NoiseLaw:
        """The noise."""
        return next(iter(self.statistics.values())).law

    @property
    def sums(self) -> dict[str, PlannedStatistic]:
        """One statistic of each summed measure, by its name."""
        return {s.measure.name: s for s in self.statistics.values() if s.bounds is not None}

    def step(self, kind: str, measure: str = "") -> Step:
        """The planned step of this table."""
        return next(s for s in self.plan.steps if (s.of, s.kind, s.measure) == (self.of, kind, measure))


def choose_bounds(table: Table) -> Choices:
    """Steps 1 to 3: tau, the totals with a high bound, the centres."""
    measures = list(table.sums)
    people = make_people(table.connection, table.rows, table.of, [table.columns[name] for name in measures])
    per_unit = people_histogram(table, people, "n", doubling_edges(1, ROW_BINS), table.step(ROWS))
    rows = _total_rows(table, people, per_unit)
    totals, mids = {}, {}
    for i, name in enumerate(measures):
        bounds = table.sums[name].bounds
        assert bounds is not None
        largest = max(abs(bounds.lower), abs(bounds.upper), 1)
        edges = doubling_edges(max(1, largest // SUM_START), SUM_BINS)
        per_sum = people_histogram(table, people, f"abs(s{i})", edges, table.step(SUMS, name))
        step = table.step(TOTAL_SUMS, name)
        bound = _high_bound(per_sum, step, table.law)
        exact = clipped_total(table.connection, people, f"s{i}", bound)
        totals[name] = draw_total(exact, bound, step.spend, table.law, table.noise)
        mids[name] = centre(totals[name], rows, bounds.lower, bounds.upper)
    share = _low_quantile(table, per_unit, rows)
    tau = rounded(quantile(per_unit, share))
    high = rounded(quantile(per_unit, HIGH))
    return Choices(share, tau, high, rows, totals, mids, _owned_above(per_unit, tau))


def _total_rows(table: Table, people: str, per_unit: NoisyHistogram) -> NoisyTotal:
    """N_hi, or the number of rows where the catalog says that it may be told."""
    if table.plan.catalog.privacy.rows == "public":
        exact = clipped_total(table.connection, people, "n", LARGEST)
        return NoisyTotal(exact, 0.0, 0)
    bound = _high_bound(per_unit, table.step(TOTAL_ROWS), table.law)
    exact = clipped_total(table.connection, people, "n", bound)
    return draw_total(exact, bound, table.step(TOTAL_ROWS).spend, table.law, table.noise)


def _high_bound(histogram: NoisyHistogram, step: Step, law: NoiseLaw) -> int:
    """The bound of a total, from the two quantiles of its histogram."""
    people = float(cleaned(histogram).sum())
    half, ninth = quantile(histogram, LOW), quantile(histogram, HIGH)
    return min(high_bound(half, ninth, people, law.unit_noise(step.spend)), LARGEST_BOUND)


def _low_quantile(table: Table, per_unit: NoisyHistogram, rows: NoisyTotal) -> float:
    """q.5, or q.9 where the noise of a typical cell is predicted to be small at q.5 already."""
    tau = rounded(quantile(per_unit, LOW))
    kept = min(float(rows.value), _weighted(per_unit, tau))
    if kept <= 0:
        return LOW
    relative = [
        sqrt(_cell_variance(table, s, tau)) * prod(table.plan.shape(s)) / kept
        for s in counts_of(table.statistics).values()
    ]
    return HIGH if float(np.median(relative)) < SMALL_NOISE else LOW


def _cell_variance(table: Table, statistic: PlannedStatistic, tau: int) -> float:
    """Predicted variance of one cell's count at a given tau, a typical norm taken for K."""
    if statistic.law == LAPLACE:
        return float(2 * (tau / statistic.spend) ** 2)
    return float(typical(table, statistic, tau) / (2 * statistic.spend))


def typical(table: Table, statistic: PlannedStatistic, tau: int) -> Fraction:
    """t_v^2 of a view."""
    sticky = [is_sticky(table.plan, table.of, axis) for axis in statistic.axes]
    return typical_square(table.plan.strategies(statistic), sticky, tau)


def is_sticky(plan: ReleasePlan, of: str, axis: int) -> bool:
    """Whether all rows of a unit share one leaf of an axis: it lies behind the unit's own key."""
    owner = unit_path(plan.catalog, of)
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


def _amounts(histogram: NoisyHistogram) -> FloatArray:
    """The geometric middle of each bin; the overflow bin counts at its lower end."""
    edges = np.asarray(histogram.edges, dtype=np.float64)
    inner = np.sqrt(edges[1:] * edges[:-1])
    return np.concatenate([edges[:1], inner, edges[-1:]])


def _weighted(histogram: NoisyHistogram, tau: int) -> float:
    """About how many weighted rows there are at a bound: sum of min(n, tau)."""
    return float((cleaned(histogram) * np.minimum(_amounts(histogram), tau)).sum())


def _owned_above(histogram: NoisyHistogram, tau: int) -> float:
    """About which share of all rows belongs to units with more than tau of them."""
    rows = cleaned(histogram) * _amounts(histogram)
    return float(rows[_amounts(histogram) > tau].sum() / rows.sum()) if rows.sum() > 0 else 0.0
