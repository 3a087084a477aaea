"""Write a fresh release file. Values arrive here noisy; nothing raw is ever in this process's file handle.

The file is complete when `write_release` returns: closed, without a write-ahead log. Where it goes, when
it may be seen and what it costs is the ledger's protocol, not this module's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.release.format import ScaleMeta
from dpsql.tree import Tree
from dpsql.variance import AxisVariance
from dpsql.variance.plane import PlaneVariance

IntArray = npt.NDArray[np.int64]

ARRAYS = "axis_arrays"
"""The relation that an axis's SELECT reads."""


@dataclass(frozen=True)
class AxisContent:
    """An axis table as encoded arrays and the SELECT that decodes them.

    Args:
        arrays: column name -> encoded values, all of one length.
        select: a SELECT over the relation `ARRAYS` that makes the axis table.
        tree: the axis's look-up tree over its leaves.
    """

    arrays: Mapping[str, npt.NDArray[Any]]
    select: str
    tree: Tree


@dataclass(frozen=True)
class StatisticContent:
    """A statistic's numbers.

    Args:
        value: noisy integers as drawn, shape (rows_1, .., rows_d); (rows,) where the axes are measured together.
        budget: integer budget of each draw, the same shape.
        nodes: estimates of all node combinations in units of 2^-20, shape (nodes_1, .., nodes_d).
        nonnegative: the non-negative estimates, or None.
    """

    value: IntArray
    budget: IntArray
    nodes: IntArray
    nonnegative: IntArray | None = None


@dataclass(frozen=True)
class ReleaseContent:
    """All that a release file holds; joint models of views come after those of the axes."""

    meta: Mapping[str, Any]
    axes: Sequence[AxisContent]
    models: Sequence[AxisVariance | PlaneVariance]
    statistics: Sequence[StatisticContent]
    scales: Sequence[ScaleMeta] = ()


def write_release(path: Path, content: ReleaseContent, *, block_size: int = 1 << 18) -> None:
    """Write the file.

    Args:
        path: where; must not exist.
        content: what.
        block_size: bytes of the file's blocks; small ones (16,384 at least) suit small tables.

    Raises:
        InternalError: the path exists.

    **Privacy**: stores what it is given. Callers hand over noisy values and public facts only.
    """
    if path.exists():
        raise InternalError(f"{path.name} exists and a release is never reopened for writing")
    connection = duckdb.connect(str(path), config={"default_block_size": str(block_size)})
    try:
        _write_axes(connection, content.axes)
        for k, model in enumerate(content.models):
            _create(connection, f"variance_{k}", model.columns())
        for s, statistic in enumerate(content.statistics):
            _write_statistic(connection, s, statistic)
        _write_scales(connection, content.scales)
        _write_meta(connection, content.meta)  # last: without it no half-written state passes for a release
        connection.execute("CHECKPOINT")
    finally:
        connection.close()


def _write_meta(connection: duckdb.DuckDBPyConnection, meta: Mapping[str, Any]) -> None:
    connection.execute("CREATE TABLE meta (key VARCHAR PRIMARY KEY, value VARCHAR NOT NULL)")
    # The catalog keeps its order: the order of its views numbers the axes.
    rows = [(key, json.dumps(value, sort_keys=key != "catalog")) for key, value in meta.items()]
    connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)


def _write_axes(connection: duckdb.DuckDBPyConnection, axes: Sequence[AxisContent]) -> None:
    import pandas as pd

    for i, axis in enumerate(axes):
        connection.register(
            ARRAYS, pd.DataFrame({name: pd.Series(values) for name, values in axis.arrays.items()})
        )
        connection.execute(f"CREATE TABLE axis_{i} AS {axis.select}")
        connection.unregister(ARRAYS)
    parts = [
        (np.full(len(axis.tree.lo), i), np.arange(len(axis.tree.lo)), axis.tree)
        for i, axis in enumerate(axes)
    ]
    names = ("axis", "id", "parent", "level", "lo", "hi")
    arrays = [(a, n, t.parent, t.level, t.lo, t.hi) for a, n, t in parts]
    columns = {
        name: np.concatenate([array[j] for array in arrays]) if arrays else np.zeros(0, np.int64)
        for j, name in enumerate(names)
    }
    _create(connection, "node", columns, dict.fromkeys(names, "INTEGER"))


def _write_statistic(connection: duckdb.DuckDBPyConnection, s: int, statistic: StatisticContent) -> None:
    rows = _coordinates("r", statistic.value.shape)
    rows |= {"value": statistic.value.ravel(), "budget": statistic.budget.ravel()}
    _create(connection, f"measurement_{s}", rows)
    nodes = _coordinates("n", statistic.nodes.shape)
    key = ", ".join(nodes)
    nodes["estimate"] = statistic.nodes.ravel()
    if statistic.nonnegative is not None:
        nodes["nonnegative"] = statistic.nonnegative.ravel()
    _create(connection, f"node_combination_{s}", nodes, primary_key=key)


def _write_scales(connection: duckdb.DuckDBPyConnection, scales: Sequence[ScaleMeta]) -> None:
    connection.execute(
        "CREATE TABLE scale (of_table VARCHAR PRIMARY KEY, factor DOUBLE, relative_error DOUBLE, left_out DOUBLE, "
        "tau INTEGER, quantile DOUBLE, weighted_down DOUBLE, sticky VARCHAR, total_rows BIGINT, public_rows BOOLEAN)"
    )
    for s in scales:
        values = (s.of, s.factor, s.relative_error, s.left_out, s.tau, s.quantile, s.weighted_down,
                  json.dumps(s.sticky), s.rows, s.public_rows)  # fmt: skip
        connection.execute(f"INSERT INTO scale VALUES ({', '.join('?' * len(values))})", values)


def _coordinates(letter: str, shape: tuple[int, ...]) -> dict[str, npt.NDArray[Any]]:
    """Index columns n1..nd of a flattened array; a view without axes has the single column n0 = 0."""
    if not shape:
        return {f"{letter}0": np.zeros(1, np.int32)}
    grid = np.indices(shape, dtype=np.int32, sparse=True)
    return {f"{letter}{i + 1}": np.broadcast_to(index, shape).ravel() for i, index in enumerate(grid)}


def _create(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    data: Mapping[str, npt.NDArray[Any]],
    types: Mapping[str, str] | None = None,
    primary_key: str = "",
) -> None:
    """One table from columns; types follow numpy's where none are given."""
    import pandas as pd

    kinds = (
        dict(types) if types is not None else {name: _duckdb_type(np.asarray(data[name])) for name in data}
    )
    columns = ", ".join(f"{_quoted(name)} {kind}" for name, kind in kinds.items())
    constraint = f", PRIMARY KEY ({primary_key})" if primary_key else ""
    connection.execute(f"CREATE TABLE {table} ({columns}{constraint})")
    incoming = pd.DataFrame({name: pd.Series(data[name]) for name in kinds})
    connection.register("incoming", incoming)
    casts = ", ".join(f"CAST({_quoted(name)} AS {kind})" for name, kind in kinds.items())
    connection.execute(f"INSERT INTO {table} SELECT {casts} FROM incoming")
    connection.unregister("incoming")


def _duckdb_type(values: npt.NDArray[Any]) -> str:
    if values.dtype == np.int64:
        return "BIGINT"
    if np.issubdtype(values.dtype, np.integer):
        return "INTEGER"
    return "DOUBLE"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
