"""Tables, columns, types and contents that need no noisy integer: all of them follow from the catalog.

**Privacy**: a file with a table or column more than listed here may carry anything; that is what this looks for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.axis import table_sql
from dpsql.inspection.replan import Replanned
from dpsql.inspection.report import Check
from dpsql.publishing.content import LOOKUP_ARITY
from dpsql.release import Release
from dpsql.release.write import ARRAYS
from dpsql.tree import kary_tree

Columns = dict[str, Any]

META = {
    "format", "release_id", "catalog", "spec_hash", "privacy", "spends", "insecure_entropy", "axes", "models",
    "statistics", "choices", "scales", "bounding", "local",
}  # fmt: skip
AXIS = {"atom": "INTEGER", "leaf": "INTEGER", "kind": "TINYINT", "weight": "DOUBLE"}
NODE = dict.fromkeys(("axis", "id", "parent", "level", "lo", "hi"), "INTEGER")
SCALE = {
    "of_table": "VARCHAR", "factor": "DOUBLE", "relative_error": "DOUBLE", "left_out": "DOUBLE", "tau": "INTEGER",
    "quantile": "DOUBLE", "weighted_down": "DOUBLE", "sticky": "VARCHAR", "total_rows": "BIGINT",
    "public_rows": "BOOLEAN",
}  # fmt: skip
TYPES = {"i": "BIGINT", "f": "DOUBLE"}
RELEASE_ID = re.compile("[0-9a-f]{32}")
CLOSE = 1e-6
"""Relative difference that another machine's floating point may make."""


def whitelist(release: Release) -> dict[str, dict[str, str]]:
    """Every table that a release of these axes and statistics may hold, with its columns and types."""
    tables = {"meta": {"key": "VARCHAR", "value": "VARCHAR"}, "node": NODE, "scale": SCALE}
    for i, axis in enumerate(release.axes):
        tables[f"axis_{i}"] = AXIS | {column.name: column.type for column in axis.columns}
        model = release.model(i).model.columns()
        tables[f"variance_{axis.model}"] = {name: TYPES[values.dtype.kind] for name, values in model.items()}
    for s, statistic in enumerate(release.statistics):
        places = range(1, len(statistic.axes) + 1) or (0,)
        rows = {f"r{i}": "INTEGER" for i in (places if statistic.joint is None else (1,))}
        if statistic.joint is not None:
            joint = release.joint_model(statistic.joint).columns()
            tables[f"variance_{statistic.joint}"] = {
                name: TYPES[each.dtype.kind] for name, each in joint.items()
            }
        own = release.nonnegative_split(s)
        if own is not None:
            columns = own.model.columns()
            tables[f"variance_{statistic.nonnegative_model}"] = {
                n: TYPES[v.dtype.kind] for n, v in columns.items()
            }
        tables[f"measurement_{s}"] = rows | {"value": "BIGINT", "budget": "BIGINT"}
        extra = {"nonnegative": "BIGINT"} if statistic.nonnegative else {}
        nodes = {f"n{i}": "INTEGER" for i in places}
        tables[f"node_combination_{s}"] = nodes | {"estimate": "BIGINT"} | extra
    return tables


def check_tables(release: Release) -> Iterator[Check]:
    """Nothing but the listed tables and columns, no views, no other schemas."""
    found: dict[str, dict[str, str]] = {}
    rows = release.connection.cursor().execute(
        "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal "
        "ORDER BY table_oid, column_index"
    )
    for schema, table, column, kind in rows.fetchall():
        name = str(table) if schema == "main" else f"{schema}.{table}"
        found.setdefault(name, {})[str(column)] = str(kind)
    expected = whitelist(release)
    surplus, lacking = sorted(found.keys() - expected.keys()), sorted(expected.keys() - found.keys())
    yield Check("no table but those that the catalog plans", not surplus, ", ".join(surplus))
    yield Check("no planned table is missing", not lacking, ", ".join(lacking))
    wrong = [name for name in sorted(found.keys() & expected.keys()) if found[name] != expected[name]]
    yield Check("no column but those of the format, in its types", not wrong, ", ".join(wrong))
    keys = sorted(release.meta.keys() - META)
    keys += [] if RELEASE_ID.fullmatch(str(release.meta["release_id"])) else ["release_id"]
    yield Check("no entry in meta but those of the format", not keys, ", ".join(keys))
    others = release.connection.cursor().execute(
        "SELECT count(*) FROM (SELECT view_name FROM duckdb_views() WHERE NOT internal UNION ALL "
        "SELECT sequence_name FROM duckdb_sequences() UNION ALL "
        "SELECT function_name FROM duckdb_functions() WHERE NOT internal UNION ALL "
        "SELECT type_name FROM duckdb_types() WHERE NOT internal UNION ALL "
        "SELECT column_name FROM duckdb_columns() WHERE NOT internal AND (comment IS NOT NULL "
        "OR column_default IS NOT NULL) UNION ALL "
        "SELECT table_name FROM duckdb_tables() WHERE NOT internal AND comment IS NOT NULL)"
    )
    yield Check("no view, macro, sequence, type, comment or default", others.fetchall() == [(0,)])


def read_table(release: Release, table: str) -> Columns:
    """A table's columns in stored order."""
    return dict(release.connection.cursor().execute(f"SELECT * FROM {table} ORDER BY rowid").fetchnumpy())


def check_axes(release: Release, made: Replanned) -> Iterator[Check]:
    """Axis tables and look-up trees are those of the catalog and of public tables."""
    wrong, skipped = [], []
    for i, planned in enumerate(made.plan.axes):
        if i in made.borrowed:
            skipped.append(release.axes[i].name)
            wrong += (
                []
                if _whole_leaves(read_table(release, f"axis_{i}"), release.axes[i].leaves)
                else [f"axis_{i}"]
            )
            continue
        with duckdb.connect(":memory:") as scratch:
            import pandas as pd

            arrays = {name: pd.Series(values) for name, values in planned.axis.arrays().items()}
            scratch.register(ARRAYS, pd.DataFrame(arrays))
            expected: Columns = dict(scratch.execute(table_sql(planned.axis, ARRAYS)).fetchnumpy())
        if not same(read_table(release, f"axis_{i}"), expected):
            wrong.append(f"axis_{i}")
    yield Check("axis tables follow from the catalog", not wrong, ", ".join(wrong))
    if skipped:
        yield Check(
            f"public tables behind {', '.join(dict.fromkeys(skipped))}", None, "pass the catalog to read them"
        )
    yield Check("look-up trees follow from the catalog", same(read_table(release, "node"), _nodes(made)))


def _whole_leaves(columns: Columns, leaves: int) -> bool:
    """Every leaf has atoms whose weights add up to one."""
    weight = np.bincount(columns["leaf"].astype(np.int64), weights=columns["weight"], minlength=leaves)
    return len(weight) == leaves and bool(np.allclose(weight, 1.0))


def _nodes(made: Replanned) -> Columns:
    trees = [kary_tree(planned.axis.leaves, LOOKUP_ARITY) for planned in made.plan.axes]
    parts = [
        (np.full(t.size, i), np.arange(t.size), t.parent, t.level, t.lo, t.hi) for i, t in enumerate(trees)
    ]
    return {name: np.concatenate([part[j] for part in parts]) for j, name in enumerate(NODE)}


def same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Equal columns in equal order; floats up to another machine's arithmetic."""
    return list(left) == list(right) and all(_equal(left[name], right[name]) for name in left)


def _equal(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind == "f" or b.dtype.kind == "f":
        return bool(np.allclose(np.ma.filled(a, np.nan), np.ma.filled(b, np.nan), rtol=CLOSE, equal_nan=True))
    return bool(
        np.array_equal(np.ma.getmaskarray(a), np.ma.getmaskarray(b)) and np.all(np.ma.filled(a == b, True))
    )


def differences(left: Any, right: Any, place: str = "") -> Iterator[str]:
    """Where two JSON values differ, floats up to another machine's arithmetic.

    >>> list(differences({"a": [1, 2.0]}, {"a": [1, 2.5]}))
    ['.a.1']
    """
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            yield from differences(left.get(key), right.get(key), f"{place}.{key}")
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple) and len(left) == len(right):
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            yield from differences(a, b, f"{place}.{i}")
    elif isinstance(left, float) or isinstance(right, float):
        near = isinstance(left, int | float) and isinstance(right, int | float)
        if not near or not math.isclose(left, right, rel_tol=CLOSE):
            yield place
    elif left != right:
        yield place
