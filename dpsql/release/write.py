"""Write a fresh release file: estimates rounded, added up and described.

Values arrive here noisy; nothing raw is ever in this process's file handle.

Whoever makes a release, of raw rows, of batches, of people's reports or of a plan alone, fills in a `ReleaseBuilder`,
and that writes it. The file is complete when `ReleaseBuilder.write` returns: closed, without a
write-ahead log. Where it goes, when it may be seen and what it costs is the ledger's protocol, not this module's.

Estimates take one path for central releases, streams, local collections and plans. Leaves of one family are rounded
once, so that views agree on shared margins in every bit; inner nodes are sums of leaves.

**Privacy**: post-processing of noisy integers or reports, and public facts.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, reduce
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.axis.model import Axis, table_sql
from dpsql.catalog.base import MeasureName
from dpsql.errors import InternalError
from dpsql.matrices import AxisVariance
from dpsql.matrices.estimated import Estimated, round_with_partners
from dpsql.matrices.max_entropy import pair_places
from dpsql.matrices.reading import Together, indices, stored_as_pairs
from dpsql.matrices.reconcile import (
    UNIT,
    family_step,
    node_sums,
    nonnegative,
    product_tree,
    signal_tree,
    to_units,
)
from dpsql.release.format import (
    AxisMeta,
    ChoiceMeta,
    ColumnMeta,
    FamilyCovariance,
    KeyListMeta,
    Meta,
    Promise,
    RowsBeyondBound,
    ScaleMeta,
    SpentAmount,
    StatisticMeta,
    StreamMeta,
    ValuesBeyondBounds,
    to_json,
)
from dpsql.release.reports import BitLeftOut, LocalMeta, ReportedMeta, SlotsLeftOut
from dpsql.release.signature import sign
from dpsql.release.structure import NODE, SCALE, key_list_columns
from dpsql.row_expressions import identifier
from dpsql.scratch import scratch
from dpsql.tree import IntArray, Noisy, Tree, kary_tree

ARRAYS = "axis_arrays"
"""The relation that an axis's SELECT reads."""

PART = 1 << 20
"""Rows that are written at once: some 20 MB, however large a view is."""


LOOKUP_ARITY = 4
"""Children per node of the look-up trees: a range of 256 leaves needs at most 24 nodes, storage is 4/3 n."""


@dataclass(frozen=True)
class StatisticContent:
    """A statistic's numbers.

    Args:
        value: noisy integers as drawn, shape (rows_1, .., rows_d); (rows,) where the axes are measured together.
        budget: integer budget of each draw, the same shape.
        nodes: estimates of all node combinations in units of 2^-20, shape (nodes_1, .., nodes_d); of a statistic that
            is stored as pairs those of `pair_places`, in a line.
        nonnegative: the non-negative estimates, or None.
    """

    value: Noisy
    budget: IntArray
    nodes: IntArray
    nonnegative: IntArray | None = None


class AxisPart(NamedTuple):
    """An axis table as encoded arrays and the SELECT that decodes them.

    Args:
        meta: the axis in `meta`.
        arrays: column name -> encoded values, all of one length.
        select: a SELECT over the relation `ARRAYS` that makes the axis table.
        tree: the axis's look-up tree over its leaves.
    """

    meta: AxisMeta
    arrays: Mapping[str, npt.NDArray[Any]]
    select: str
    tree: Tree


class StatisticPart(NamedTuple):
    """A statistic in `meta`, and its numbers."""

    meta: StatisticMeta
    content: StatisticContent


class KeyListPart(NamedTuple):
    """A list of keys in `meta`, and its columns: key, round and weight."""

    meta: KeyListMeta
    columns: Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class ReleaseBuilder:
    """All that a release file will hold.

    Args:
        release_id: 32 hexadecimal digits.
        catalog: the public part of the catalog, as `Catalog.to_json` writes it.
        spec_hash: of the catalog.
        privacy: what is promised.
        spends: what it cost.
        insecure: whether noise came from test entropy, or there was none.
        axes, statistics: their ids are their positions.
        models: the variance models of the axes, then those of views' cells together, of non-negative estimates or of
            scaled shares.
        choices, scales, bounding, excess, stream, local, reported: as in `Meta`.
        keys: lists of keys that nobody listed.
        covariances: as in `Meta`.

    **Privacy**: stores what it is given. Callers hand over noisy values and public facts only.
    """

    release_id: str
    catalog: Mapping[str, Any]
    spec_hash: str
    privacy: Promise
    spends: Sequence[SpentAmount]
    insecure: bool
    axes: Sequence[AxisPart]
    models: Sequence[AxisVariance | Together]
    statistics: Sequence[StatisticPart]
    choices: Sequence[ChoiceMeta] = ()
    scales: Sequence[ScaleMeta] = ()
    bounding: Sequence[RowsBeyondBound | SlotsLeftOut | BitLeftOut] = ()
    stream: StreamMeta | None = None
    local: LocalMeta | None = None
    reported: Sequence[ReportedMeta] = ()
    keys: Sequence[KeyListPart] = ()
    covariances: Sequence[FamilyCovariance] = ()
    excess: Sequence[ValuesBeyondBounds] = ()

    @property
    def meta(self) -> Meta:
        return Meta(
            self.release_id,
            self.catalog,
            self.spec_hash,
            self.privacy,
            tuple(self.spends),
            self.insecure,
            axes=tuple(axis.meta for axis in self.axes),
            models=tuple(model.kind for model in self.models),
            statistics=tuple(statistic.meta for statistic in self.statistics),
            choices=tuple(self.choices),
            scales=tuple(self.scales),
            bounding=tuple(self.bounding),
            stream=self.stream,
            local=self.local,
            reported=tuple(self.reported),
            keys=tuple(part.meta for part in self.keys),
            covariances=tuple(self.covariances),
            excess=tuple(self.excess),
        )

    def write(
        self, path: Path, seed: bytes | None = None, *, block_size: int = 1 << 16, draft: bool = False
    ) -> None:
        """Write the file.

        Args:
            path: where; must not exist.
            seed: the secret key that signs the file; None leaves it unsigned.
            block_size: bytes of the file's blocks; small ones (16,384 at least) suit small tables.
            draft: whether readers refuse it until it is shown (`dpsql.scratch`).

        Raises:
            InternalError: the path exists.
        """
        if path.exists():
            raise InternalError(f"{path.name} exists and a release is never reopened for writing")
        with scratch(path, block_size=block_size, draft=draft) as connection:
            connection.execute("BEGIN")  # one commit: each would write a log and sync it
            self.fill(connection)
            connection.execute("COMMIT; CHECKPOINT")
        if seed is not None:
            sign(path, seed)

    def fill(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Make the release's tables in an empty database."""
        _write_axes(connection, self.axes)
        for k, model in enumerate(self.models):
            create_table(connection, f"variance_{k}", model.columns())
        for s, statistic in enumerate(self.statistics):
            trees = [self.axes[axis].tree for axis in statistic.meta.axes]
            _write_statistic(connection, s, statistic, trees)
        connection.execute(
            f"CREATE TABLE scale ({', '.join(f'{name} {kind}' for name, kind in SCALE.items())})"
        )
        for scale in self.scales:
            for m in scale.measures:
                row = (scale.of, m.measure, m.factor, m.left_out, m.above, *m.error, *m.mean_error)
                connection.execute(f"INSERT INTO scale VALUES ({', '.join('?' * len(row))})", row)
        for i, part in enumerate(self.keys):
            create_table(connection, f"keys_{i}", part.columns, key_list_columns(part.meta))
        # last: without it nothing passes for a release
        connection.execute("CREATE TABLE meta (key VARCHAR, value VARCHAR)")
        # The catalog keeps its order: the order of its views numbers the axes.
        rows = [
            (key, json.dumps(value, sort_keys=key != "catalog")) for key, value in to_json(self.meta).items()
        ]
        keys, values = zip(*rows, strict=True)
        connection.execute("INSERT INTO meta SELECT unnest(?), unnest(?)", [list(keys), list(values)])


class PlacedAxis(NamedTuple):
    """An axis, the table whose rows it places, and what was measured on it, in words."""

    axis: Axis
    of: str
    strategy: str


def axis_parts(placed: Iterable[PlacedAxis]) -> list[AxisPart]:
    """Axes as a release holds them: each with its table, its look-up tree and the variance model of its own number."""
    parts = []
    for number, (axis, of, strategy) in enumerate(placed):
        arrays, select = axis.arrays(), table_sql(axis, ARRAYS)
        types = column_types(arrays, select)
        columns = tuple(
            ColumnMeta(c.path, c.table, c.column, c.sql_name, types[c.sql_name], c.description)
            for c in [*axis.columns, *(column for column, _ in axis.derived)]
        )
        meta = AxisMeta(
            axis.name, axis.table, axis.path, of, axis.leaves, columns, axis.atomic, number, strategy,
            axis.null_leaf, axis.missing_leaf, axis.other_leaf,
        )  # fmt: skip
        parts.append(AxisPart(meta, arrays, select, kary_tree(axis.leaves, LOOKUP_ARITY)))
    return parts


@contextmanager
def registered(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]]
) -> Iterator[None]:
    """Let statements read arrays as a relation while a block runs.

    Args:
        connection: where.
        name: of the relation.
        columns: arrays of one length; None is NULL.
    """
    connection.register(name, {column: _array(values) for column, values in columns.items()})
    try:
        yield
    finally:
        connection.unregister(name)


def _array(values: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[Any]:
    """As DuckDB reads it: text as objects, because it would take numpy's own text for an enumeration.

    Whole numbers become an array, because DuckDB guesses the type of objects from a sample of them.
    """
    if isinstance(values, np.ndarray):
        return values.astype(object) if np.issubdtype(values.dtype, np.str_) else values
    array = np.empty(len(values), dtype=object)
    array[:] = values
    integers = all(type(value) is int and -(2**63) <= value < 2**63 for value in values)
    return array.astype(np.int64) if integers else array


def column_types(arrays: Mapping[str, npt.NDArray[Any]], select: str) -> dict[str, str]:
    """The types that DuckDB gives the columns of an axis table.

    Args:
        arrays: of the axis; their first entries are looked at.
        select: a SELECT over the relation `ARRAYS`.
    """
    firsts = ((name, values.dtype.str, values[:1].tolist()) for name, values in arrays.items())
    # Values alone are no key: 1 and True are equal, Decimal("1.0") and Decimal("1.00") too.
    return dict(_described(select, tuple((name, kind, *first, repr(first)) for name, kind, first in firsts)))


@lru_cache(maxsize=256)  # 3 CPU ms an axis, and a plan or a design writes the same axes again and again
def _described(select: str, firsts: tuple[tuple[Any, ...], ...]) -> list[tuple[str, str]]:
    entries = {name: np.array(first, dtype=kind) for name, kind, *first, _ in firsts}
    with scratch() as connection, registered(connection, ARRAYS, entries):
        described = connection.execute(f"DESCRIBE {select}").fetchall()
    return [(str(row[0]), str(row[1])) for row in described]


def _write_axes(connection: duckdb.DuckDBPyConnection, axes: Sequence[AxisPart]) -> None:
    for i, axis in enumerate(axes):
        with registered(connection, ARRAYS, axis.arrays):
            connection.execute(f"CREATE TABLE axis_{i} AS {axis.select}")
    numbered = [
        (np.full(len(axis.tree.lo), i), np.arange(len(axis.tree.lo)), axis.tree)
        for i, axis in enumerate(axes)
    ]
    arrays = [(a, n, t.parent, t.level, t.lo, t.hi) for a, n, t in numbered]
    columns = {
        name: np.concatenate([array[j] for array in arrays]) if arrays else np.zeros(0, np.int64)
        for j, name in enumerate(NODE)
    }
    create_table(connection, "node", columns, NODE)


def _write_statistic(
    connection: duckdb.DuckDBPyConnection, s: int, stored: StatisticPart, trees: Sequence[Tree]
) -> None:
    statistic, drawn = stored.content, {"value": stored.content.value, "budget": stored.content.budget}
    none = np.zeros((0,) * indices(stored.meta.reading, len(stored.meta.axes)), np.int64)
    rows = drawn if statistic.value.size else dict.fromkeys(drawn, none)
    create_cells(connection, f"measurement_{s}", "r", rows)
    nodes = {"estimate": statistic.nodes}
    if statistic.nonnegative is not None:
        nodes["nonnegative"] = statistic.nonnegative
    if stored_as_pairs(stored.meta.reading):
        places = pair_places([tree.size for tree in trees]).T.astype(np.int32)
        names = [f"n{i + 1}" for i in range(len(places))]
        create_table(connection, f"node_combination_{s}", dict(zip(names, places, strict=True)) | nodes)
        return
    create_cells(connection, f"node_combination_{s}", "n", nodes)


def create_cells(
    connection: duckdb.DuckDBPyConnection, table: str, letter: str, values: Mapping[str, IntArray]
) -> None:
    """Make one table of the entries of arrays, in row-major order and part by part.

    A row's number follows from its indices, so there is no key: one would be as large as the table, and joins with a
    short list of nodes do not use it. Joins by index skip what they do not need: at 2^24 rows 3.0 CPU ms for 120 nodes,
    as many as by row number.

    Args:
        connection: where.
        table: its name.
        letter: of the index columns, one an axis; arrays without axes have the single column 0.
        values: integers of one shape by column.
    """
    shape = next(iter(values.values())).shape
    names = [f"{letter}{i + 1}" for i in range(len(shape))] or [f"{letter}0"]
    flat = {name: np.ascontiguousarray(array).ravel() for name, array in values.items()}
    size, kinds = prod(shape), [*(f"{name} INTEGER" for name in names), *(f"{name} BIGINT" for name in flat)]
    connection.execute(f"CREATE TABLE {table} ({', '.join(kinds)})")
    for start in range(0, size, PART):
        stop = min(size, start + PART)
        places = np.unravel_index(np.arange(start, stop), shape or (1,))
        columns: dict[str, npt.NDArray[Any]] = dict(
            zip(names, (place.astype(np.int32) for place in places), strict=True)
        )
        columns |= {name: array[start:stop] for name, array in flat.items()}
        with registered(connection, "incoming", columns):
            connection.execute(f"INSERT INTO {table} SELECT * FROM incoming")


def create_table(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    data: Mapping[str, npt.NDArray[Any] | Sequence[Any]],
    types: Mapping[str, str] | None = None,
) -> None:
    """Make one table of columns; types follow numpy's where none are given."""
    kinds = (
        dict(types) if types is not None else {name: _duckdb_type(np.asarray(data[name])) for name in data}
    )
    columns = ", ".join(f"{identifier(name)} {kind}" for name, kind in kinds.items())
    connection.execute(f"CREATE TABLE {table} ({columns})")
    casts = ", ".join(f"CAST({identifier(name)} AS {kind})" for name, kind in kinds.items())
    with registered(connection, "incoming", {name: data[name] for name in kinds}):
        connection.execute(f"INSERT INTO {table} SELECT {casts} FROM incoming")


def _duckdb_type(values: npt.NDArray[Any]) -> str:
    if values.dtype == np.int64:
        return "BIGINT"
    if np.issubdtype(values.dtype, np.integer):
        return "INTEGER"
    return "DOUBLE"


class Description(NamedTuple):
    """Description of a statistic that nothing was drawn for.

    Args:
        view, of, measure, axes, mid, scale, sensitivity, currency, noise_mid: as in `StatisticMeta`.
        budget: what it spent.
        nonnegative: whether the non-negative estimate is made of the unbiased one and stored too.
        family: statistics with one of these are rounded together; those of one table and measure that agree.
    """

    view: str
    of: str
    measure: MeasureName
    axes: tuple[int, ...]
    sensitivity: int
    budget: Fraction
    currency: str
    family: Hashable
    mid: int = 0
    scale: int = 0
    noise_mid: float | None = None
    nonnegative: bool = False


class Statistic(NamedTuple):
    """A statistic and its estimates."""

    described: Description
    estimated: Estimated


class Assembled(NamedTuple):
    """Contents of a release.

    Args:
        statistics: in the order given.
        models: of the axes, then of cells measured together, of non-negative estimates and of scaled shares.
    """

    statistics: list[StatisticPart]
    models: list[AxisVariance | Together]


def assemble(
    statistics: Sequence[Statistic], axes: Sequence[AxisVariance], trees: Sequence[Tree]
) -> Assembled:
    """Round, add up and describe.

    Args:
        statistics: estimated; those of one family agree.
        axes: the variance model of each axis.
        trees: its look-up tree.
    """
    models, leaves = numbered_models(statistics, axes), rounded(statistics)
    parts = []
    for number, (statistic, (units, step)) in enumerate(zip(statistics, leaves, strict=True)):
        described, estimated = statistic
        axis_trees = [trees[axis] for axis in described.axes]
        summed = [None if at in estimated.listed else tree for at, tree in enumerate(axis_trees)]
        content = StatisticContent(
            estimated.integers.value,
            estimated.integers.budget,
            node_sums(units, summed),
            _nonnegative(statistic, units, step, axis_trees),
        )
        meta = replace(statistic_meta(number, statistic, models), step=step)
        parts.append(StatisticPart(meta, content))
    return Assembled(parts, models)


def without_numbers(statistics: Sequence[Statistic], axes: Sequence[AxisVariance]) -> Assembled:
    """The same of a plan: what a release would say, with tables that hold nothing.

    Args:
        statistics, axes: as of `assemble`; leaves have their shape alone.
    """
    models, parts = numbered_models(statistics, axes), []
    for number, statistic in enumerate(statistics):
        empty = statistic.estimated.integers.value
        meta = statistic_meta(number, statistic, models)
        content = StatisticContent(empty, empty, empty, empty if meta.nonnegative else None)
        parts.append(StatisticPart(meta, content))
    return Assembled(parts, models)


def rounded(statistics: Sequence[Statistic]) -> list[tuple[IntArray, int]]:
    """Leaves in units of 2^-20 of a step, each family rounded as one, and the step."""
    families: dict[Hashable, list[int]] = {}
    for number, (described, _) in enumerate(statistics):
        families.setdefault(described.family, []).append(number)
    leaves: dict[int, tuple[IntArray, int]] = {}
    for members in families.values():
        views = [(statistics[i].described.axes, statistics[i].estimated.leaves) for i in members]
        partners, step = statistics[members[0]].estimated.partners, family_step(views)
        units = round_with_partners([(axes, estimate / step) for axes, estimate in views], partners)
        leaves |= {i: (leaf_units, step) for i, leaf_units in zip(members, units, strict=True)}
    return [leaves[i] for i in range(len(statistics))]


def _nonnegative(statistic: Statistic, units: IntArray, step: int, trees: Sequence[Tree]) -> IntArray | None:
    """Node sums of the non-negative estimate, where the release stores one."""
    smooth = statistic.estimated.smooth
    if smooth is not None:
        return node_sums(to_units(smooth.leaves / step), trees)
    if not statistic.described.nonnegative:
        return None
    tree = signal_tree(len(units)) if len(trees) == 1 else reduce(product_tree, trees)
    leaves = nonnegative(tree, (units / UNIT).ravel()).reshape(units.shape)
    return node_sums(to_units(leaves), trees)


def numbered_models(
    statistics: Sequence[Statistic], axes: Sequence[AxisVariance]
) -> list[AxisVariance | Together]:
    """Every model that the statistics are read by, each once; a model's number is its position."""
    models: list[AxisVariance | Together] = list(axes)
    estimates = [estimated for _, estimated in statistics]
    alone = [estimated.model for estimated in estimates if not estimated.by_axis]
    smooth = [estimated.smooth.model for estimated in estimates if estimated.smooth is not None]
    beside = [estimated.model for estimated in estimates if estimated.by_axis]
    for model in (*alone, *smooth, *beside):
        if model is not None and all(model is not listed for listed in models):
            models.append(model)
    return models


def statistic_meta(
    number: int, statistic: Statistic, models: Sequence[AxisVariance | Together]
) -> StatisticMeta:
    """Metadata of a statistic.

    Args:
        number: its id.
        statistic: the statistic.
        models: as of `numbered_models`.
    """
    described, estimated = statistic
    smooth, joint = estimated.smooth, () if estimated.model is None else (_number(models, estimated.model),)
    return StatisticMeta(
        id=number,
        view=described.view,
        of=described.of,
        measure=described.measure,
        axes=described.axes,
        mid=described.mid,
        scale=described.scale,
        kind="decimal" if described.scale else "int",
        sensitivity=described.sensitivity,
        budget=str(described.budget),
        currency=described.currency,
        mechanism=estimated.notes,
        cells=prod(models[axis].n for axis in described.axes),  # type: ignore[union-attr, misc]  # axes come first
        reading=estimated.reading,
        models=(*described.axes, *joint) if estimated.by_axis else joint,
        components=tuple(sorted(estimated.components.items())),
        nonnegative=described.nonnegative or smooth is not None,
        biased=estimated.biased,
        nonnegative_model=None if smooth is None or smooth.model is None else _number(models, smooth.model),
        preferred=smooth.preferred if smooth is not None else described.nonnegative and estimated.prefers,
        noise_mid=described.noise_mid,
    )


def _number(models: Sequence[AxisVariance | Together], model: Together) -> int:
    """The position of a model."""
    return next(k for k, listed in enumerate(models) if listed is model)
