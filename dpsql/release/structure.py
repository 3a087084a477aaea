"""Checks that a file is what its own `meta` says: the tables, columns and types that follow from it, nothing else.

A release may come from anybody, so nothing in it is believed. DuckDB would read a view, a macro or a generated column
as if it were a table, a function or a column, and compute what it says: one named `meta` need never end, one named
`sum` gives other answers. So the first questions go to DuckDB's own lists under their full names, which no name in the
file can hide; only then is `meta` read, and only then what it implies.

| checked when a release is opened | |
|---|---|
| no file beside it that DuckDB reads with it | a write-ahead log is played over the tables, also by readers |
| no view, macro, sequence, type, index, constraint, schema, trigger, default or comment | DuckDB's lists |
| `meta`: few entries, of bounded size and depth, nothing but what `Meta` declares | `dpsql.release.structure` |
| exactly the tables that follow, with exactly their columns and types | `check_tables` |

None of it depends on how large the tables are. What they hold is looked at when it is read (`dpsql.release.read`), and
is known to be what the curator wrote only where the signature was checked (`dpsql.release.signature`).

The `meta` table of a file that may come from anybody: read within bounds, and believed as far as it fits together.

Its JSON is bounded before it is parsed, since a few bytes can stand for a number or a nesting that takes for ever;
what the types of `Meta` cannot tell, numbers that point at each other, is checked here. `dpsql.release.structure` has
made sure that `meta` is a table.

`Margins` are running totals of the leaves of a few axes, all others added up. Inner nodes are sums of leaves, so a
range of leaves adds up to the integer that its nodes add up to. A file holds millions of node combinations; of running
totals a range takes two numbers on each axis, however long the axis is.

A margin whose nodes are not the sums of its leaves, or that is large, is not copied: whoever asks reads the file.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite, prod
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
from pydantic import ValidationError

from dpsql.errors import InternalError, ReleaseError
from dpsql.matrices.reading import indices, stored_columns
from dpsql.matrices.reconcile import node_sums
from dpsql.release.format import FORMAT, KeyListMeta, Meta, StatisticMeta, adapter, to_json
from dpsql.release.request import executed
from dpsql.tree import IntArray, Tree

AXIS = {"atom": "INTEGER", "leaf": "INTEGER", "kind": "TINYINT", "weight": "DOUBLE"}
"""Columns of every axis table, before its public ones."""
NODE = dict.fromkeys(("axis", "id", "parent", "level", "lo", "hi"), "INTEGER")
SCALE = {
    "of_table": "VARCHAR", "measure": "VARCHAR", "factor": "DOUBLE", "left_out": "DOUBLE", "above": "DOUBLE",
    "relative_error": "DOUBLE", "down": "DOUBLE", "up": "DOUBLE", "mean_error": "DOUBLE", "mean_down": "DOUBLE",
    "mean_up": "DOUBLE",
}  # fmt: skip
LONGEST_LABEL = 1 << 24
"""Bytes. Nobody writes such a label; one of 400 MB took a reader half a minute of CPU before it ran out of memory."""
META = {"key": "VARCHAR", "value": "VARCHAR"}

COMPANIONS = (".wal", ".wal.checkpoint", ".wal.recovery")
"""What DuckDB looks for beside a database."""
_LISTS = {
    "schema": ("schemas", "NOT internal AND schema_name <> 'main'"),
    "view": ("views", "NOT internal"),
    "macro": ("functions", "NOT internal"),
    "type": ("types", "NOT internal"),
    "sequence": ("sequences", "TRUE"),
    "index": ("indexes", "TRUE"),
    "constraint": ("constraints", "TRUE"),
    "trigger": ("triggers", "TRUE"),
    "comment on a table": ("tables", "NOT internal AND comment IS NOT NULL"),
    "default, comment or computed value in a column": (
        "columns",
        "NOT internal AND (comment IS NOT NULL OR column_default IS NOT NULL OR is_generated)",
    ),
}  # fmt: skip
_STRANGE = " UNION ALL ".join(
    f"(SELECT '{what}' AS what FROM system.main.duckdb_{function}() WHERE {where} LIMIT 1)"
    for what, (function, where) in _LISTS.items()
)
_COLUMNS = (
    "SELECT schema_name, table_name, column_name, data_type FROM system.main.duckdb_columns() WHERE NOT internal "
    "ORDER BY table_oid, column_index"
)

_LOGS, _NO_LOG = "SELECT wal_size FROM system.main.pragma_database_size()", "0 bytes"
"""How much was played over the tables: `check_alone` looks before, and a log may come and go."""


def refused(path: Path, reason: str, hint: str = "ask its curator for a fresh copy") -> ReleaseError:
    """The error of a file that is not what it says it is."""
    return ReleaseError(f"{path} is not a dpsql release, or it is damaged: {reason}", hint=hint)


def damaged(path: Path) -> ReleaseError:
    """The error of a file that DuckDB cannot read."""
    if path.suffix.lower() in (".yaml", ".yml"):
        return ReleaseError(f"{path} is a catalog, not a release", hint="publish it first: `dpsql publish`")
    return ReleaseError(
        f"{path} is not a dpsql release, or it is damaged", hint="ask its curator for a fresh copy"
    )


def check_alone(path: Path) -> None:
    """Nothing lies beside a release that DuckDB would read with it.

    Raises:
        ReleaseError: something does.
    """
    for suffix in COMPANIONS:
        companion = path.with_name(path.name + suffix)
        if companion.exists() or companion.is_symlink():
            raise ReleaseError(
                f"{companion.name} lies beside {path} and would change its content",
                hint="a release has no write-ahead log; remove that file, or ask its curator for a fresh copy",
            )


def check_objects(connection: duckdb.DuckDBPyConnection, path: Path) -> StoredTables:
    """Nothing is in a database but plain tables. Asked before anything else of it.

    Args:
        connection: of the release alone.
        path: for messages.

    Returns:
        The tables, with their columns in order and their types; of other schemas under a full name.

    Raises:
        ReleaseError: something else is.
    """
    strange = rows_of(connection, _STRANGE)
    if strange:
        raise refused(path, f"it contains a {strange[0][0]}")
    if any(log != _NO_LOG for (log,) in rows_of(connection, _LOGS)):
        raise ReleaseError(
            f"a write-ahead log lay beside {path} when it was opened", hint="open it again once it is gone"
        )
    stored: dict[str, dict[str, str]] = {}
    for schema, table, column, kind in rows_of(connection, _COLUMNS):
        name = str(table) if schema == "main" else f"{schema}.{table}"
        stored.setdefault(name, {})[str(column)] = str(kind)
    if stored.get("meta") != META:
        raise refused(path, "it has no meta table")
    return stored


def expected_tables(meta: Meta) -> dict[str, dict[str, str]]:
    """Every table that a release of this `meta` holds, with its columns in order and their types.

    Raises:
        InternalError: a reading or a model that this version does not know.
    """
    tables = {"meta": META, "node": NODE, "scale": SCALE}
    about = {axis.model: 1 for axis in meta.axes}
    for i, axis in enumerate(meta.axes):
        tables[f"axis_{i}"] = AXIS | {column.name: column.type for column in axis.columns}
    for s, statistic in enumerate(meta.statistics):
        axes = len(statistic.axes)
        about |= {model: axes for model in statistic.models if model not in about}
        rows = {f"r{i}": "INTEGER" for i in range(1, indices(statistic.reading, axes) + 1) or (0,)}
        nodes = {f"n{i}": "INTEGER" for i in range(1, axes + 1) or (0,)}
        tables[f"measurement_{s}"] = rows | {"value": "BIGINT", "budget": "BIGINT"}
        extra = {"nonnegative": "BIGINT"} if statistic.nonnegative else {}
        tables[f"node_combination_{s}"] = nodes | {"estimate": "BIGINT"} | extra
    for i, keys in enumerate(meta.keys):
        tables[f"keys_{i}"] = key_list_columns(keys)
    for k, kind in enumerate(meta.models):
        tables[f"variance_{k}"] = stored_columns(kind, about.get(k, 1))
    return tables


def key_list_columns(keys: KeyListMeta) -> dict[str, str]:
    """Columns of the table of a list of keys."""
    return {"key": keys.kind, "round": "INTEGER"}


def check_tables(stored: StoredTables, path: Path, meta: Meta) -> None:
    """A release holds exactly the tables that its `meta` implies, with exactly their columns and types.

    Args:
        stored: what `check_objects` gave.
        path: for messages.
        meta: what the file says of itself.

    Raises:
        ReleaseError: it holds others.
    """
    try:
        expected = expected_tables(meta)
    except InternalError as error:
        raise refused(path, error.reason, error.hint) from None
    if stored.keys() != expected.keys():
        lacking = sorted(expected.keys() - stored.keys())
        raise refused(path, f"it lacks the table {lacking[0]}" if lacking else "it has an unexpected table")
    for name, columns in expected.items():
        if list(stored[name].items()) != list(columns.items()):
            raise refused(path, f"the table {name} has other columns or types than its meta table states")


def check_labels(connection: duckdb.DuckDBPyConnection, path: Path, axes: int) -> None:
    """Refuse labels of megabytes, which every statement along their axis would read.

    The file's own statistics tell, so this costs the same whatever lies in it. Statistics that lie are found when the
    axis is read; until then each statement has its own time and memory.

    Raises:
        ReleaseError: one is longer than `LONGEST_LABEL`.
    """
    queries = (
        f"SELECT {axis}, stats FROM pragma_storage_info('axis_{axis}') WHERE segment_type = 'VARCHAR'"
        for axis in range(axes)
    )
    for axis, statistics in rows_of(connection, " UNION ALL ".join(queries)) if axes else ():
        if isinstance(statistics, dict) and statistics.get("max_string_length", 0) > LONGEST_LABEL:
            raise refused(path, f"axis_{axis} has a label longer than a release makes it")


StoredTables = dict[str, dict[str, str]]
"""The tables of a database: their columns in order with their types."""


def rows_of(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    """All rows of a statement of our own making, within a question's time."""
    return executed(connection.cursor(), sql, (), lambda cursor: cursor.fetchall())


MOST_ENTRIES, MOST_BYTES, DEEPEST, LONGEST = 64, 1 << 26, 40, 400
"""Entries of `meta`, bytes of all, nesting of its JSON, and digits of a number in it."""
MOST_LEAVES, MOST_AXES, MOST = 1 << 21, 26, 1 << 63
MOST_KEYS = 1 << 16
STEPS = frozenset(1 << k for k in range(63))
MOST_COVARIANCES = 1 << 12
AMOUNT = re.compile(rf"[0-9]{{1,{LONGEST}}}(/[1-9][0-9]{{0,{LONGEST - 1}}})?")
"""A fraction as releases write it; `1e999999999` is one too, which takes for ever to read."""
LONGEST_TABLE = 1 << 12
"""Entries of a table that a file holds, 64 KiB; a budget of mu .008 has twice as many."""
TABLE = re.compile(rf"([0-9a-f]{{16}}){{1,{LONGEST_TABLE}}}")


def written_chances(table: Sequence[int]) -> str:
    """A table of chances as files hold it."""
    return "".join(f"{chance:016x}" for chance in table[:LONGEST_TABLE])


_SIZE = "SELECT count(*), sum(strlen(key) + strlen(value)) FROM (FROM meta LIMIT {})"


def read_meta(connection: duckdb.DuckDBPyConnection, path: Path) -> Meta:
    """The `meta` of a release of this format.

    Args:
        connection: `check_objects` has seen it, and it has a table `meta`.
        path: for messages.

    Raises:
        ReleaseError: of another format, or not as this format is.
    """
    ((number, size),) = rows_of(connection, _SIZE.format(MOST_ENTRIES + 1))
    if not number or number > MOST_ENTRIES or size is None or size > MOST_BYTES:
        raise refused(path, "its meta table is empty or too large")
    entries: dict[str, Any] = {}
    for key, value in rows_of(connection, "SELECT key, value FROM meta"):
        if key is None or value is None or key in entries:
            raise refused(path, "its meta table has a key twice, or none")
        entries[key] = _json(value, path)
    version = entries.get("format")
    if version != FORMAT:
        shown = version if isinstance(version, int) and abs(version) < 1000 else "unknown"
        raise ReleaseError(
            f"{path} has format {shown} and this dpsql reads {FORMAT}", hint="publish with this version"
        )
    try:
        meta: Meta = adapter(Meta).validate_python(entries)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])[:80]
        lacks = "lacks" if first["type"] == "missing" else "cannot be read at"
        raise ReleaseError(
            f"{path} {lacks} {place} in its meta table", hint="it is not a dpsql release"
        ) from None
    if to_json(meta) != entries:
        raise refused(path, "its meta table has more than this format has")
    for fault in _faults(meta):
        raise refused(path, f"in its meta table {fault}")
    return meta


def _json(text: str, path: Path) -> Any:
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_real, parse_int=_whole)
    except (ValueError, RecursionError):
        raise refused(path, "its meta table is not JSON, or has a number that no release has") from None
    if _deeper(value, DEEPEST):
        raise refused(path, f"its meta table is nested more than {DEEPEST} levels deep")
    return value


def _no_number(text: str) -> Any:
    raise ValueError(text)


def _real(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("not finite")
    return value


def _whole(text: str) -> int:
    if len(text) > LONGEST:
        raise ValueError("too long")
    return int(text)


def _deeper(value: Any, levels: int) -> bool:
    """True if a JSON value is nested more than so many levels."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(
        _deeper(element, levels - 1) for element in inner if isinstance(element, dict | list)
    )


def _faults(meta: Meta) -> Iterator[str]:
    """Faults in numbers and names that the types of `Meta` cannot express."""
    promise = meta.privacy
    amounts = [promise.epsilon, promise.delta, promise.mu2 or "0", *(spend.amount for spend in meta.spends)]
    amounts += [statistic.budget for statistic in meta.statistics]
    amounts += [promise.key_delta or "0", *(spend.delta for spend in meta.spends)]
    for keys in meta.keys:
        if not (0 <= keys.keys <= keys.most <= MOST_KEYS and 1 <= keys.per_unit <= MOST_KEYS):
            yield "a list of keys is too long"
        for step in keys.rounds:
            amounts += [step.mu2, step.delta, step.slot_mu2, step.slot_delta, step.room]
            if not (1 <= step.keys <= MOST_KEYS and 1 <= step.people < MOST and TABLE.fullmatch(step.table)):
                yield "a round of keys has an impossible table"
    if not all(map(AMOUNT.fullmatch, amounts)):
        yield "an amount of the budget is not a fraction"
    if any(not 0 <= axis.model < len(meta.models) for axis in meta.axes):
        yield "an axis names a variance model that is not there"
    for axis in meta.axes:
        special = [leaf for leaf in (axis.null_leaf, axis.missing_leaf, axis.other_leaf) if leaf is not None]
        names = [*AXIS, *(column.name.lower() for column in axis.columns)]
        if not 1 <= axis.leaves <= MOST_LEAVES or any(not 0 <= leaf < axis.leaves for leaf in special):
            yield "an axis has no leaves, too many, or a special one that is not among them"
        if len(set(special)) < len(special) or len(set(names)) < len(names):
            yield "an axis has one leaf or column twice"
    for place, statistic in enumerate(meta.statistics):
        yield from _statistic_faults(meta, place, statistic)
    if len(meta.covariances) > MOST_COVARIANCES:
        yield "too many families err together"
    for covariance in meta.covariances:
        members = [*covariance.left, *covariance.right]
        if len(set(members)) < len(members) or any(not 0 <= i < len(meta.statistics) for i in members):
            yield "families that err together have a statistic twice, or one that is not there"
        if any(not 0 <= axis < len(meta.axes) for axes, _ in covariance.components for axis in axes):
            yield "families that err together have a part of no axis"


def _statistic_faults(meta: Meta, place: int, statistic: StatisticMeta) -> Iterator[str]:
    axes, models = statistic.axes, [*statistic.models, statistic.nonnegative_model or 0]
    if statistic.id != place or len(axes) > MOST_AXES or len(set(axes)) < len(axes):
        yield "a statistic has another number than its place, or an axis twice"
    if any(not 0 <= axis < len(meta.axes) for axis in axes):
        yield "a statistic names an axis that is not there"
    elif any(meta.axes[axis].of != statistic.of for axis in axes):
        yield "a statistic has an axis of another table"
    elif statistic.cells != prod(meta.axes[axis].leaves for axis in axes):
        yield "a statistic has another number of cells than its axes"
    if any(not 0 <= model < len(meta.models) for model in models):
        yield "a statistic names a variance model that is not there"
    components = [(positions, factor) for positions, factor in statistic.components]
    if any(not 0 <= i < len(axes) for positions, _ in components for i in positions) or any(
        factor < 0 for _, factor in components
    ):
        yield "a statistic has a part of no axis, or of a variance below 0"
    if statistic.step not in STEPS:
        yield "a statistic's step is not a power of two"
    if not 0 <= statistic.scale <= 18 or statistic.sensitivity < 0 or abs(statistic.mid) >= MOST:
        yield "a statistic has an impossible scale"


MOST_NUMBERS = 1 << 22
"""Running totals of all margins of one release: 32 MB."""

MOST_SUM = 1 << 62


class NodeTable(NamedTuple):
    """Table that stores the node combinations of a statistic.

    Args:
        table, estimate: the table, and its column.
        position: of each axis of the margin in it.
        axes: how many axes it has.
    """

    table: str
    estimate: str
    position: tuple[int, ...]
    axes: int

    def margin(self) -> str:
        """DuckDB text that gives the nodes of the margin's axes, the other axes at their root."""
        others = (f"n{i + 1} = 0" for i in range(self.axes) if i not in self.position)
        where = " AND ".join(others) or "true"
        nodes = ", ".join(f"n{i + 1} AS a{k}" for k, i in enumerate(self.position))
        return f"SELECT {nodes}, {self.estimate} AS estimate FROM {self.table} WHERE {where}"


Fetched = Mapping[str, Any]
"""Columns of a statement's answer as numpy arrays."""


class Margins:
    """The margins of one release. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock, self._numbers = threading.Lock(), 0
        self._totals: dict[NodeTable, IntArray | None] = {}

    def totals(
        self, source: NodeTable, trees: Sequence[Tree], fetch: Callable[[str], Fetched]
    ) -> IntArray | None:
        """Running totals of a margin, shape (n_1 + 1, ..): at (i, ..) the sum of the leaves before i, and so on.

        Args:
            source: the statistic.
            trees: the look-up trees of the margin's axes.
            fetch: runs a statement on the release.

        Returns:
            The totals; None where the margin is large, or its nodes are not the sums of its leaves.
        """
        if source not in self._totals:
            size = prod(tree.n + 1 for tree in trees)
            if self._numbers + size > MOST_NUMBERS:
                return None
            totals = _leaves(source, trees, fetch)
            if totals is not None:
                for axis in range(totals.ndim):
                    totals = np.cumsum(totals, axis=axis)
                totals = np.pad(totals, [(1, 0)] * totals.ndim)
            with self._lock:
                self._numbers += size
                self._totals[source] = totals
        return self._totals[source]


def _leaves(source: NodeTable, trees: Sequence[Tree], fetch: Callable[[str], Fetched]) -> IntArray | None:
    """Estimates of all leaf combinations, shape (n_1, ..); None where the stored nodes are not their sums."""
    columns = fetch(source.margin())
    sizes = tuple(tree.size for tree in trees)
    estimate = columns["estimate"]
    if len(estimate) != prod(sizes) or any(np.ma.is_masked(values) for values in columns.values()):
        return None
    place = tuple(np.asarray(columns[f"a{k}"], np.int64) for k in range(len(trees)))
    if any(np.any((nodes < 0) | (nodes >= size)) for nodes, size in zip(place, sizes, strict=True)):
        return None
    nodes = np.zeros(sizes, np.int64)
    nodes[place] = np.asarray(estimate, np.int64)
    leaves: IntArray = nodes[np.ix_(*(tree.leaves for tree in trees))]
    # no sum of theirs wraps
    small = int(np.max(np.abs(leaves), initial=0)) <= MOST_SUM // max(1, leaves.size)
    return leaves if small and np.array_equal(node_sums(leaves, list(trees)), nodes) else None
