"""The release file's tables and the values in its `meta` table.

| table | rows | columns |
|---|---|---|
| `meta` | one per key | key, value (JSON) |
| `axis_<i>` | one per atom of axis i | atom, leaf, kind (see below), weight, public columns |
| `node` | one per node of each axis's look-up tree | axis, id, parent, level, lo, hi |
| `measurement_<s>` | one per noisy integer of statistic s, as drawn | r1.. of its reading, value, budget |
| `node_combination_<s>` | one per combination of nodes | n1..nd, estimate [, nonnegative] in units of 2^-20 `step` |
| `variance_<k>` | as the kind of model k needs | flat columns of the variance model of an axis, or of a view |
| `scale` | one per table with `max_ids: auto` and measure | as `MeasureScale` |
| `keys_<i>` | one per key of a column with private keys, sorted | key, round (0: listed before) |

Measurements of a table with a scale are in units of a weight, 2^-20; its estimates and variances have the factor in.

Every row count follows from the catalog and the lists of keys, and so does everything in `meta` except the release id.
`meta` is read and written as a `Meta`; what is None is left out of its JSON.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from dpsql.catalog.base import MeasureName
from dpsql.matrices.distinct import PeopleBounds
from dpsql.release.reports import BitLeftOut, LocalMeta, ReportedMeta, SlotsLeftOut
from dpsql.tree import FloatArray

FORMAT = 13
"""Format version; a reader refuses another one."""

UNIT = 1 << 20
"""Estimates are stored as integers of step/UNIT."""

DOMAIN, NULL, MISSING, OTHER = range(4)
"""What an atom of an axis table stands for."""


@dataclass(frozen=True)
class ColumnMeta:
    """One public column of an axis table.

    Args:
        path: foreign-key columns that lead from the view's table to the column's table.
        table, column: where the column stands in the star.
        name: its name inside `axis_<i>`.
        type: its DuckDB type.
        description: domain and unit in words.
    """

    path: tuple[str, ...]
    table: str
    column: str
    name: str
    type: str
    description: str = ""


@dataclass(frozen=True)
class AxisMeta:
    """One axis of the release.

    Args:
        name, table, path: as in the catalog; `path` holds foreign-key columns.
        of: the table whose rows the axis places, that is the view's `of`.
        leaves: number of leaves, the special ones (at the end) included.
        null_leaf, missing_leaf, other_leaf: positions of the special leaves, or None.
        atomic: False where the domain was too large for one row per value; then only comparisons
            and monotone functions of the bounds columns can be answered.
        columns: the axis table's public columns.
        model: which `variance_<k>` describes the axis.
        strategy: what was measured, in words.
    """

    name: str
    table: str
    path: tuple[str, ...]
    of: str
    leaves: int
    columns: tuple[ColumnMeta, ...]
    atomic: bool
    model: int
    strategy: str
    null_leaf: int | None = None
    missing_leaf: int | None = None
    other_leaf: int | None = None


@dataclass(frozen=True)
class StatisticMeta:
    """One statistic: a view and a measure.

    Args:
        id: s in `measurement_<s>` and `node_combination_<s>`.
        view, of: the view and the table whose rows it counts.
        measure: what it counts or sums; of a sum the stored value is SUM(x - mid) at the declared scale.
        axes: axis ids in the order of n1..nd.
        mid, scale: centre (an integer at the scale) and decimal places of the measure; 0 for counts.
        kind: the measure's type, `int` or `decimal`; `int` for counts.
        sensitivity: how much one privacy unit changes one cell, in stored units.
        budget: what the statistic spent, a fraction as text, in `currency`.
        currency: epsilon or mu2.
        mechanism: how the axes were measured, in words.
        cells: number of leaf combinations.
        reading: how it answers, one of `variance.reading.READINGS`.
        models: which `variance_<k>` describe it: one for each axis, or one for all of its cells where the axes were
            measured together.
        components: (axis positions, variance factor) of every independent part; one part, of all axes, where they
            were measured together.
        nonnegative: whether the non-negative (biased) estimate is stored too.
        nonnegative_model: which `variance_<k>` describes that estimate, of a view of one axis; None where its errors
            are told by the unbiased estimate's.
        preferred: whether non-negative estimates answer unless unbiased ones are asked for.
        biased: whether the estimate itself is biased (DiffHR): intervals then tell of noise alone.
        noise_mid: what the noise of the view's count is multiplied by in a sum; None where that is `mid`.
        step: what stored estimates count 2^-20 of, in stored units: 1, or the power of two by which the numbers of a
            family were divided so that 64 bits hold them.
        cut: whether exact sums may have been cut where 64 bits end; nothing is answered from it then.
        people_bounds: between which lines the people of a cell lie, given its estimate; None where nobody weighs less
            than 1.
    """

    id: int
    view: str
    of: str
    measure: MeasureName
    axes: tuple[int, ...]
    mid: int
    scale: int
    kind: str
    sensitivity: int
    budget: str
    currency: str
    mechanism: str
    cells: int
    reading: str
    models: tuple[int, ...]
    components: tuple[tuple[tuple[int, ...], float], ...]
    nonnegative: bool = False
    biased: bool = False
    nonnegative_model: int | None = None
    preferred: bool = False
    noise_mid: float | None = None
    step: int = 1
    cut: bool = False
    people_bounds: PeopleBounds | None = None

    def in_units(self, stored: npt.ArrayLike) -> FloatArray:
        """Estimates in stored units: of the integers of `node_combination_<s>`, or of sums of them."""
        return np.asarray(np.asarray(stored, np.float64) / UNIT * self.step)


class RelativeError(NamedTuple):
    """Relative standard errors of a scale: of noise, and with what its tail may hold, towards less and more.

    `up` is None where nothing bounds the tail: intervals have no upper end.
    """

    noise: float
    down: float
    up: float | None


@dataclass(frozen=True)
class MeasureScale:
    """The factor of one measure.

    Args:
        measure: `table.column`; empty for rows.
        factor: R, which is already in the estimates and their variances.
        above: about which share of the total lies above what one unit may count for in it, put back by estimate.
        error: of R, common to all answers of the measure.
        mean_error: what averages err by, sums over counts; that of rows is unused.
        left_out: about which share of the total the low bound left out, 1 - 1/R; None where noise hides it.
    """

    measure: MeasureName
    factor: float
    above: float
    error: RelativeError
    mean_error: RelativeError
    left_out: float | None = None


@dataclass(frozen=True)
class ScaleMeta:
    """Scale of the shapes of one table, and the bias that bounding may cause.

    Args:
        of: the counted table.
        tau, quantile: rows of a typical unit, and which quantile that is.
        unseen, unseen_above: the most units that may own more than so many rows each, since noise hides them.
        rows: the noisy total of rows.
        public_rows: whether the number of rows was told exactly.
        measures: the factor of rows, under the empty name, then of each summed measure, and of rows where one is known.
    """

    of: str
    tau: int
    quantile: float
    unseen: int
    unseen_above: int
    rows: int
    public_rows: bool
    measures: tuple[MeasureScale, ...]

    def measure(self, name: str) -> MeasureScale:
        """The factor of a measure, or of rows where it has none of its own."""
        return next((scale for scale in self.measures if scale.measure == name), self.measures[0])


class SpentAmount(NamedTuple):
    """A part of the budget: what it paid for, how much, and how much delta it took, fractions as text."""

    purpose: str
    amount: str
    delta: str = "0"


@dataclass(frozen=True)
class Promise:
    """Promise of a release, and to whom.

    Args:
        unit: `row`, or `table.key` of the people's table; of a stream also of how many batches.
        neighbours: data sets that may not be told apart, as in the catalog.
        epsilon, delta: fractions as text.
        rows_per_unit: table -> rows of one unit that count, or `auto`.
        mu2: of Gaussian differential privacy, which implies epsilon and delta where delta is above 0.
        rows: whether the number of rows is told, `private` or `public`.
        vouched: tables whose SQL only the curator checked.
        values: table -> how its source's values were compared and rounded; facts of schemas and the catalog.
        trust: `local` where people report for themselves.
        adds_up: what holds together with other releases, in words.
        simulated: True where made-up people reported.
        key_delta: the part of delta that finding private keys spent; the Gaussian rows imply epsilon at what is left of
            the lineage's delta.
    """

    unit: str
    neighbours: Literal["add_remove", "replace_one"]
    epsilon: str
    delta: str = "0"
    rows_per_unit: Mapping[str, int | str] | None = None
    mu2: str | None = None
    rows: str | None = None
    vouched: tuple[str, ...] | None = None
    values: Mapping[str, str] | None = None
    trust: str | None = None
    adds_up: str | None = None
    simulated: bool | None = None
    key_delta: str | None = None


@dataclass(frozen=True)
class KeyRoundMeta:
    """One round that found keys; fractions as text.

    Args:
        mu2, delta: what it spent.
        keys: keys of one unit that counted.
        slot_mu2, slot_delta, room: price of each slot, and the mu^2 of the statistics after all rounds.
        people: fewest units of a key that is shown with chance 1/2.
        table: chances of 1, 2, .. units as multiples of 2^-64, 16 hexadecimal digits each.
    """

    mu2: str
    delta: str
    keys: int
    slot_mu2: str
    slot_delta: str
    room: str
    people: int
    table: str


@dataclass(frozen=True)
class KeyListMeta:
    """The list of keys of one column that nobody listed.

    Args:
        column: `table.column`.
        kind: DuckDB type of its keys, VARCHAR or BIGINT.
        keys: how many are shown.
        most: how many could have been.
        per_unit: keys of one unit that counted, in all rounds.
        rounds: what found them; none where all were listed before.
        known: id of the release whose keys were listed already, if any.
    """

    column: str
    kind: Literal["VARCHAR", "BIGINT"]
    keys: int
    most: int
    per_unit: int
    rounds: tuple[KeyRoundMeta, ...]
    known: str | None = None

    @property
    def missing(self) -> str:
        """Keys that are not shown."""
        if not self.rounds:
            return "keys that were not listed before are not"
        return f"keys of fewer than about {self.rounds[-1].people:,} people are not"

    @property
    def among(self) -> str:
        """Note under numbers that count keys, or list them."""
        return f"{self.column}: of the {self.keys} keys shown; {self.missing}"


@dataclass(frozen=True)
class RunnerUp:
    """A strategy that was compared with the chosen one."""

    strategy: str
    expected_error: float


@dataclass(frozen=True)
class ChoiceMeta:
    """Choice of a strategy: its exact expected error and those of the runners-up, best first.

    Errors are mean variances over the workload at epsilon 1 (Laplace) or mu^2 1 (Gaussian).

    Args:
        strategy, expected_error: the chosen one.
        runners_up: the others.
        axis: whose strategy it is; None where axes are measured together.
        view: whose two axes may be measured together; its errors are over ranges on both.
        whole: its error over all cells.
    """

    strategy: str
    expected_error: float
    runners_up: tuple[RunnerUp, ...]
    axis: str | None = None
    view: str | None = None
    whole: float | None = None


@dataclass(frozen=True)
class RowsBeyondBound:
    """Rows of a table beyond its declared contribution bound.

    Args:
        of: the counted table.
        bounding: `truncate` or `weight`; of reports `slots` or `bit`.
        tau: rows of a unit that count.
        counted: released number of rows within the bound; None where no view counts rows.
        rows: noisy number of rows beyond it of units with at most `at_most`, with `stderr`; None where not measured.
        units: noisy number of units with more rows beyond it than `at_most`, with `units_stderr`.
    """

    of: str
    bounding: Literal["truncate", "weight", "slots", "bit"]
    tau: int
    counted: float | None = None
    rows: int | None = None
    stderr: float | None = None
    at_most: int | None = None
    units: int | None = None
    units_stderr: float | None = None

    @property
    def people(self) -> float:
        """Fewest units that own the rows beyond, by the noisy numbers; infinite where they were not measured."""
        return math.inf if self.rows is None else self.rows / max(1, self.at_most or 1) + (self.units or 0)

    @property
    def rows_beyond(self) -> tuple[float, float]:
        """Rows beyond, with their standard error; `at_most` + 1 of each unit with more.

        >>> RowsBeyondBound("sales", "truncate", 4, 900.0, 100, 3.0, 4, 2, 1.0).rows_beyond
        (110.0, 5.830951894845301)
        """
        most, units = (self.at_most or 0) + 1, self.units or 0
        error = math.hypot(self.stderr or 0, most * (self.units_stderr or 0))
        return (self.rows or 0) + float(most * units), error

    @property
    def unbounded(self) -> bool:
        """True if units are seen that own more rows than were measured, so that nothing bounds their number."""
        return self.units is not None and self.units_stderr is not None and self.units > 3 * self.units_stderr

    @property
    def clipped_fraction(self) -> float | None:
        """The part of all rows; None where it is not measured, where noise hides it, or where nothing bounds it.

        >>> [RowsBeyondBound("sales", "truncate", 4, 900.0, n, 20.0, 12).clipped_fraction for n in (100, 35)]
        [0.1, None]
        """
        rows, error = self.rows_beyond
        if self.rows is None or self.stderr is None or self.counted is None or rows <= 2 * error:
            return None
        return None if self.unbounded else rows / max(1.0, rows + self.counted)

    @property
    def misread(self) -> bool:
        """True if numbers would be misread without the note: nothing was measured, or rows beyond are seen."""
        return self.rows is None or self.unbounded or self.clipped_fraction is not None

    def note(self) -> str:
        """The caveat of every count, sum and average of the table."""
        if self.rows is None or self.stderr is None:
            return f"{self.of}: of the bounded rows; rows beyond max_ids were not measured"
        most = self.tau + (self.at_most or 0)
        if self.unbounded and self.units_stderr is not None:
            return (
                f"{self.of}: about {self.units:,} +- {1.96 * self.units_stderr:,.0f} units own more than {most:,} "
                f"rows, of which {self.tau:,} count (max_ids), so intervals are open; raise max_ids, or write auto"
            )
        share, (rows, error) = self.clipped_fraction, self.rows_beyond
        if share is None:
            size = f"at most about {max(0.0, rows + 2 * error):,.0f} rows, hidden by noise,"
        else:
            size = f"about {rows:,.0f} +- {1.96 * error:,.0f} rows ({100 * share:.2g}% of all)"
        return (
            f"{self.of}: {size} of up to {most:,} rows a unit lie beyond max_ids ({self.tau}); intervals allow for "
            "them, but not for units with more that noise hides or for groups of very few units"
        )


class UnitsBeyondBound(NamedTuple):
    """Noisy numbers of units with values beyond one bound.

    Args:
        near: units whose values exceed it by at most three widths of the bounds, all together.
        far: those whose values exceed it by more.
    """

    near: int
    far: int


@dataclass(frozen=True)
class ValuesBeyondBounds:
    """Privacy units with values of one measure beyond its declared bounds.

    Args:
        of, measure: the counted table, and the measure as statistics name it.
        lower, upper: the bounds, as the catalog writes them.
        width: upper - lower, in the measure's own unit.
        stderr: standard error of every number of units.
        above, below: units whose values lie beyond one bound alone.
        both: units with values beyond both; None where every row is a unit.
        counted: released number of rows of the table; None where no view counts rows.
        mean: released mean of the measure, within its bounds; None where no view counts rows.
    """

    of: str
    measure: MeasureName
    lower: str
    upper: str
    width: float
    stderr: float
    above: UnitsBeyondBound
    below: UnitsBeyondBound
    both: int | None = None
    counted: float | None = None
    mean: float | None = None

    @property
    def units(self) -> int:
        """Noisy number of units with values beyond either bound."""
        return sum((*self.above, *self.below, self.both or 0))

    @property
    def misread(self) -> bool:
        """True if units with values beyond the bounds stand out of the noise."""
        return max(*self.above, *self.below, self.both or 0) > 3 * self.stderr

    def note(self) -> str:
        """The caveat of every sum and average of the measure."""
        several = 4 if self.both is None else 5
        error, bounds = self.stderr * several**0.5, f"{self.lower} to {self.upper}"
        size = f"about {max(0, self.units):,} +- {error:,.0f} units"
        if not self.misread:
            size = f"at most about {max(0, self.units) + 2 * error:,.0f} units, hidden by noise,"
        return (
            f"{self.measure}: {size} have values beyond {bounds}, which count as the nearest bound; intervals "
            "of sums and averages allow for them"
        )


@dataclass(frozen=True)
class StreamMeta:
    """Stream metadata of a release.

    Args:
        as_of_batch, as_of: the newest batch, by number and by the beginning of its time.
        column, grain, strategy, late: as in the catalog.
        rows_per_batch: rows of a unit that count in one batch.
        max_batches: batches in which one unit may appear, ever; None where its rows of one batch are protected.
    """

    as_of_batch: int
    as_of: str
    column: str
    grain: str
    strategy: str
    late: str
    rows_per_batch: int
    max_batches: int | None = None


class FamilyCovariance(NamedTuple):
    """Covariance of two families' statistics: all rows and those where a measure is not NULL, of one draw.

    Args:
        left, right: ids of the statistics of either family; those of one agree on what they share.
        components: (axis ids, covariance factor) of every independent part that both families estimate.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    components: tuple[tuple[tuple[int, ...], float], ...]


@dataclass(frozen=True)
class Meta:
    """The `meta` table.

    Args:
        release_id: 32 hexadecimal digits.
        catalog: the public part of the catalog, as `Catalog.to_json` writes it.
        spec_hash: of the catalog (`dpsql.catalog.spec_hash`).
        privacy: what is promised.
        spends: what it cost.
        insecure_entropy: whether noise came from test entropy, or there was none.
        axes, statistics, scales: the release's; ids are positions.
        models: the kind of each variance model, those of the axes first.
        choices: why these strategies.
        bounding: what bounding left out of each table, where that is told.
        excess: the units with values beyond the bounds of each measure that was looked at.
        stream: of a state of a stream.
        local: of a release made of people's own reports.
        reported: columns of the curator's tables that people's devices reported.
        keys: lists of keys that nobody listed; `keys_<i>` holds the i-th.
        covariances: of families of statistics that err together; all others err independently, but for what their
            readings say.
        format: this format's version.
    """

    release_id: str
    catalog: Mapping[str, Any]
    spec_hash: str
    privacy: Promise
    spends: tuple[SpentAmount, ...]
    insecure_entropy: bool
    axes: tuple[AxisMeta, ...]
    models: tuple[str, ...]
    statistics: tuple[StatisticMeta, ...]
    choices: tuple[ChoiceMeta, ...] = ()
    scales: tuple[ScaleMeta, ...] = ()
    bounding: tuple[RowsBeyondBound | SlotsLeftOut | BitLeftOut, ...] = ()
    stream: StreamMeta | None = None
    local: LocalMeta | None = None
    reported: tuple[ReportedMeta, ...] = ()
    keys: tuple[KeyListMeta, ...] = ()
    covariances: tuple[FamilyCovariance, ...] = ()
    excess: tuple[ValuesBeyondBounds, ...] = ()
    format: int = FORMAT

    def key_list(self, table: str, column: str) -> KeyListMeta | None:
        """The list of a column's keys; None where the catalog lists its values."""
        return next((keys for keys in self.keys if keys.column == f"{table}.{column}"), None)

    def beyond(self, of: str) -> RowsBeyondBound | None:
        """Rows beyond a table's declared bound; None where there can be none."""
        tables = [table for table in self.bounding if isinstance(table, RowsBeyondBound) and table.of == of]
        return tables[0] if tables else None

    def left_out(self, of: str) -> SlotsLeftOut | BitLeftOut | None:
        """Rows of a table that reports leave out; None where nobody reports, or people have no more than they tell."""
        tables = (table for table in self.bounding if not isinstance(table, RowsBeyondBound))
        return next((table for table in tables if table.of == of), None)

    def excess_of(self, of: str, measure: MeasureName) -> ValuesBeyondBounds | None:
        """Values of a measure, or of the one that it squares, beyond its bounds; None where nothing measured them."""
        return next((e for e in self.excess if (e.of, e.measure) == (of, measure.squared or measure)), None)


def to_json(value: Any) -> dict[str, Any]:
    """Plain values of anything that stands in `meta`; what is None is left out."""
    return adapter(type(value)).dump_python(value, mode="json", exclude_none=True)  # type: ignore[no-any-return, arg-type]


@lru_cache(maxsize=32)
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Reader and writer of a class that stands in `meta`; reading raises `pydantic.ValidationError`."""
    return TypeAdapter(kind)
