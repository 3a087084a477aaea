"""The release file's tables and the values in its `meta` table.

| table | rows | columns |
|---|---|---|
| `meta` | one per key | key, value (JSON) |
| `axis_<i>` | one per atom of axis i | atom, leaf, kind (see below), weight, public columns |
| `node` | one per node of each axis's look-up tree | axis, id, parent, level, lo, hi |
| `measurement_<s>` | one per noisy integer of statistic s, as drawn | r1..rd (r1 in a joint model), value, budget |
| `node_combination_<s>` | one per combination of nodes | n1..nd, estimate [, nonnegative] in units of 2^-20 |
| `variance_<k>` | as the kind of model k needs | flat columns of the variance model of an axis, or of a view |
| `scale` | one per table with `max_ids: auto` | as `ScaleMeta`, lists as text |

Measurements of a table with a scale are in units of a weight, 2^-20; its estimates and variances have the factor in.

Every row count follows from the catalog alone, and so does everything in `meta` except the release id.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

FORMAT = 1
"""Format version; a reader refuses another one."""

UNIT = 1 << 20
"""Estimates are stored as integers of 1/UNIT."""

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

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ColumnMeta:
        """Read back what `asdict` wrote."""
        return cls(**{**value, "path": tuple(value["path"])})


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
    null_leaf: int | None
    missing_leaf: int | None
    other_leaf: int | None
    columns: tuple[ColumnMeta, ...]
    atomic: bool
    model: int
    strategy: str

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> AxisMeta:
        """Read back what `asdict` wrote."""
        columns = tuple(ColumnMeta.from_json(column) for column in value["columns"])
        return cls(**{**value, "path": tuple(value["path"]), "columns": columns})


@dataclass(frozen=True)
class StatisticMeta:
    """One statistic: a view and a measure.

    Args:
        id: s in `measurement_<s>` and `node_combination_<s>`.
        view, of: the view and the table whose rows it counts.
        measure: `count`, `table.column` (the stored value is SUM(x - mid) at the declared scale), or
            `count(table.column)` (rows where a nullable measure is not NULL).
        axes: axis ids in the order of n1..nd.
        mid, scale: centre (an integer at the scale) and decimal places of the measure; 0 for counts.
        kind: the measure's type, `int` or `decimal`; `int` for counts.
        sensitivity: how much one privacy unit changes one cell, in stored units.
        budget: what the statistic spent, a fraction as text, in `currency`.
        currency: epsilon or rho.
        mechanism: how the axes were measured, in words.
        cells: number of leaf combinations.
        components: (axis positions, variance factor) of every independent part; one part, of all axes, where the view
            has a joint model.
        nonnegative: whether the non-negative (biased) estimate is stored too.
        nonnegative_model: which `variance_<k>` describes that estimate, of a view of one axis; None where its errors
            are told by the unbiased estimate's.
        biased: whether the estimate itself is biased (DiffHR, DAWA): intervals then tell of noise alone.
        joint: which `variance_<k>` describes all cells together, where the axes were not measured one by one; None
            where the axes' own models do.
    """

    id: int
    view: str
    of: str
    measure: str
    axes: tuple[int, ...]
    mid: int
    scale: int
    kind: str
    sensitivity: int
    budget: str
    currency: str
    mechanism: str
    cells: int
    components: tuple[tuple[tuple[int, ...], float], ...]
    nonnegative: bool = False
    biased: bool = False
    joint: int | None = None
    nonnegative_model: int | None = None

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> StatisticMeta:
        """Read back what `asdict` wrote."""
        components = tuple((tuple(part), float(sigma2)) for part, sigma2 in value["components"])
        return cls(**{**value, "axes": tuple(value["axes"]), "components": components})


@dataclass(frozen=True)
class ScaleMeta:
    """How the shapes of one table got their scale, and what bounding may have biased.

    Args:
        of: the counted table.
        factor: R, which is already in the estimates and their variances; 1 where it was not applied.
        relative_error: relative standard error of R, common to all COUNT and SUM answers; AVG and shares
            of a total do not see it.
        left_out: about which share of the rows the low bound left out, 1 - 1/R; None where noise hides it.
        tau, quantile: rows of a typical unit, and which quantile that is.
        weighted_down: about which share of the rows belongs to units with more than tau.
        sticky: names of axes on which all rows of a unit share one leaf; groups there may be off most.
        rows: the noisy total with a high bound, N_hi.
        public_rows: whether the number of rows was told exactly.
    """

    of: str
    factor: float
    relative_error: float
    left_out: float | None
    tau: int
    quantile: float
    weighted_down: float
    sticky: tuple[str, ...]
    rows: int
    public_rows: bool

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ScaleMeta:
        """Read back what `asdict` wrote."""
        return cls(**{**value, "sticky": tuple(value["sticky"])})


def to_json(value: ColumnMeta | AxisMeta | StatisticMeta | ScaleMeta) -> dict[str, Any]:
    """A plain dictionary for the `meta` table."""
    return asdict(value)
