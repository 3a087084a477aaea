"""One person, one key: the keys of a star carried into the type of the key that they name, before anything is joined.

The key of a dimension and all foreign keys that name it are one group. Where their types are the same nothing is done.
Where they differ, every column of the group is carried into one type by value, in the view `raw.<table>`
itself, so that joins, ranks, counters and axes all see one form. The type is decided by types alone:

    the group's first form (a stream's first batch), else the type of the key itself,
    read as whole numbers where the file holds text and the catalog declares the key `type: int`

**Privacy**: a function of the source's column types and the catalog; no row is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from dpsql.engines import RawSide, open_tables, retyped
from dpsql.errors import SourceError
from dpsql.star import Catalog
from dpsql.star.derived import derived_sql
from dpsql.star.source import query_of
from dpsql.star.sql import identifier

INTEGERS = frozenset(
    (
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "HUGEINT",
        "UTINYINT",
        "USMALLINT",
        "UINTEGER",
        "UBIGINT",
        "UHUGEINT",
    )
)
FLOATS = frozenset(("FLOAT", "DOUBLE"))
TIMES = frozenset(
    ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE")
)
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_LARGEST = 1 << 53
_WHOLE = "[+-]?[0-9]+([.]0*)?"
_PLAIN = "[+-]?[0-9]+([.][0-9]*)?"


def family(kind: str) -> str:
    """What kind of values a DuckDB type holds: integer, decimal, float, text, time, or the type itself.

    >>> family("UBIGINT"), family("DECIMAL(9,0)"), family("DECIMAL(9,2)"), family("ENUM('a')"), family("UUID")
    ('integer', 'integer', 'decimal', 'text', 'UUID')
    """
    digits = _DECIMAL.fullmatch(kind)
    if kind in INTEGERS or (digits and digits[2] == "0"):
        return "integer"
    if digits:
        return "decimal"
    if kind in FLOATS:
        return "float"
    if kind == "VARCHAR" or kind.startswith("ENUM("):
        return "text"
    return "time" if kind in TIMES else kind


def widest(kind: str) -> str:
    """The type that holds every value of a type's family (decimals: of its scale).

    >>> widest("SMALLINT"), widest("DECIMAL(9,2)"), widest("FLOAT"), widest("DATE"), widest("UUID")
    ('HUGEINT', 'DECIMAL(38,2)', 'DOUBLE', 'TIMESTAMP', 'UUID')
    """
    whole = {"integer": "HUGEINT", "float": "DOUBLE", "text": "VARCHAR", "time": "TIMESTAMP"}
    digits = _DECIMAL.fullmatch(kind)
    return whole.get(family(kind)) or (f"DECIMAL(38,{digits[2]})" if digits else kind)


def exact_cast(value: str, own: str, target: str) -> str | None:
    """SQL for the same value in another type, NULL on rows where there is none.

    Args:
        value: SQL of a column.
        own: its DuckDB type.
        target: the DuckDB type wanted.

    Returns:
        The expression, or None where no value of one type stands for one of the other.

    >>> exact_cast("id", "UUID", "BIGINT") is None, exact_cast("id", "BIGINT", "BIGINT")
    (True, 'id')
    """
    here, there = family(own), family(target)
    if own == target and here != "float":
        return value
    text = f"trim(CAST({value} AS VARCHAR), E' \\t\\r\\n')"
    if here == "float" and there in ("integer", "decimal"):
        # by way of an integer: DuckDB multiplies a float by 10^scale in floating point
        whole = f"TRY_CAST(TRY_CAST({value} AS HUGEINT) AS {target})"
        return f"CASE WHEN {_small(value)} AND {value} = trunc({value}) THEN {whole} END"
    if there == "integer" and here == "integer":
        return f"TRY_CAST({value} AS {target})"
    if there == "integer" and here in ("decimal", "text"):
        return f"CASE WHEN regexp_full_match({text}, '{_WHOLE}') THEN TRY_CAST({text} AS {target}) END"
    if there == "decimal" and here in ("integer", "decimal", "text"):
        digits = _DECIMAL.fullmatch(target)
        fits = f"[+-]?[0-9]+([.][0-9]{{0,{digits[2] if digits else 0}}}0*)?"
        return f"CASE WHEN regexp_full_match({text}, '{fits}') THEN TRY_CAST({text} AS {target}) END"
    if there == "float" and here in ("integer", "decimal", "float"):
        whole = f" AND {value} = trunc({value})" if here == "decimal" else ""
        # adding zero makes -0.0 and 0.0 one value
        return f"CASE WHEN {_small(value)}{whole} THEN CAST({value} AS {target}) + 0 END"
    if there == "float" and here == "text":
        number = f"CASE WHEN regexp_full_match({text}, '{_PLAIN}') THEN TRY_CAST({text} AS {target}) END"
        return f"CASE WHEN {_small(number)} THEN {number} + 0 END"
    if there == "text" and here == "text":
        return f"CAST({value} AS {target})"
    if there == "time" and here == "time":
        return f"TRY_CAST({value} AS {target})"
    return f"TRY_CAST({text} AS {target})" if here == "text" and there not in ("text", "BOOLEAN") else None


def _small(value: str) -> str:
    """Whether a number is finite and so small that no float rounds it to a whole number (NaN is above all)."""
    return f"({value} > -{_LARGEST} AND {value} < {_LARGEST})"


class KeyColumn(NamedTuple):
    """A column that holds keys of a group.

    Args:
        table, column: where it is.
        kind: its DuckDB type.
        place: how the catalog names it, for messages.
    """

    table: str
    column: str
    kind: str
    place: str


def open_star(
    catalog: Catalog,
    names: Iterable[str] | None = None,
    *,
    first: Mapping[str, str] | None = None,
    own_files: Mapping[str, Path] | None = None,
) -> RawSide:
    """Open tables of a catalog with their keys in one form each.

    Args:
        catalog: a checked catalog with a source.
        names: which tables, all of the source's unless given.
        first: root table -> DuckDB type of its key at a stream's first batch.
        own_files: table -> Parquet or CSV file that stands in for its source.

    Raises:
        CatalogError, SourceError: a file is missing or cannot be read, a SELECT does not fit its files, or a key and
            a foreign key cannot be equal.
    """
    raw = open_tables(catalog, names, own_files=own_files)
    try:
        type_keys(catalog, raw, first or {})
    except BaseException:
        raw.close()
        raise
    return raw


def type_keys(catalog: Catalog, raw: RawSide, first: Mapping[str, str]) -> None:
    """Carry every key of the open tables into its group's type.

    Args:
        catalog: the catalog.
        raw: the raw side; its views and column types are replaced.
        first: root table -> DuckDB type of its key at a stream's first batch.

    Raises:
        SourceError: a column's type and its group's stand for no common values.
    """
    casts: dict[str, dict[str, tuple[str, str]]] = {}
    for root, members in _groups(catalog, raw).items():
        target = raw.key_types[root] = group_type(catalog, root, members, first.get(root))
        for member in members:
            value = exact_cast(identifier(member.column), member.kind, target)
            if value is None:
                raise SourceError(
                    f"{member.place}: {member.kind} is never equal to {root}.{catalog.tables[root].key}, which holds "
                    f"{family(target)} values",
                    hint="write both in one type, or declare the key's column `type: int` if its text holds numbers",
                )
            if value != identifier(member.column):
                _not_joined(catalog, raw, member.table, target)
                casts.setdefault(member.table, {})[member.column] = (value, target)
    for table, columns in casts.items():
        every = {name: (identifier(name), kind) for name, kind in raw.columns[table].items()}
        retyped(raw, table, every | columns)


def group_type(catalog: Catalog, root: str, members: list[KeyColumn], first: str | None) -> str:
    """The type of a group's keys: its own where all agree, else one that holds every value of its family."""
    key = next(
        (m.kind for m in members if (m.table, m.column.lower()) == (root, _key(catalog, root))),
        members[0].kind,
    )
    base = first or key
    declared = catalog.tables[root].columns.get(str(catalog.tables[root].key))
    if declared is not None and declared.type == "int" and family(base) == "text":
        base = "HUGEINT"
    if {member.kind for member in members} == {base}:
        return base
    # A public key keeps its type where it can: its axis shows it.
    keeps = catalog.tables[root].is_public and key == base and family(base) == "integer"
    return base if keeps else widest(base)


def roots(catalog: Catalog) -> dict[tuple[str, str], str]:
    """(table, column in lower case) -> the table whose key it holds, for every key and foreign key.

    A key that is itself a foreign key belongs to the group of the key that it names.
    """
    named = {(name, _key(catalog, name)): name for name, table in catalog.tables.items() if table.key}
    for name, table in catalog.tables.items():
        for column in table.foreign_keys:
            named[name, column.lower()] = _root(catalog, name, column)
    return named


def _root(catalog: Catalog, table: str, column: str) -> str:
    """The table at the end of a chain of keys that are foreign keys too."""
    for _ in catalog.tables:
        foreign = {
            name.lower(): entry.references for name, entry in catalog.tables[table].foreign_keys.items()
        }
        if column.lower() not in foreign:
            return table
        table = foreign[column.lower()]
        column = _key(catalog, table)
    return table


def _groups(catalog: Catalog, raw: RawSide) -> dict[str, list[KeyColumn]]:
    """The key columns that the open tables have, by root."""
    groups: dict[str, list[KeyColumn]] = {}
    for (table, column), root in roots(catalog).items():
        foreign = [name for name in catalog.tables[table].foreign_keys if name.lower() == column]
        place = f"tables.{table}.foreign_keys.{foreign[0]}" if foreign else f"tables.{table}.key"
        for name, kind in raw.columns.get(table, {}).items():
            if name.lower() == column:
                groups.setdefault(root, []).append(KeyColumn(table, name, kind, place))
    return groups


def _key(catalog: Catalog, table: str) -> str:
    return str(catalog.tables[table].key).lower()


def derived_columns(catalog: Catalog, raw: RawSide, table: str, row: str) -> dict[str, str]:
    """Derived columns and measures of a table; an expression that makes a foreign key is carried like one.

    Args:
        catalog: the catalog.
        raw: the raw side, its keys carried.
        table: one of its tables.
        row: alias of the raw row, quoted.

    Returns:
        Name -> expression that is NULL where it fails.

    Raises:
        SourceError: its type and its group's stand for no common values.
    """
    derived, keys = derived_sql(catalog.tables[table], raw.columns[table], row), roots(catalog)
    for name, expression in derived.items():
        target = raw.key_types.get(keys.get((table, name.lower()), ""))
        if target is None:
            continue
        query = f"DESCRIBE SELECT {expression} FROM raw.{identifier(table)} AS {row}"
        kind = str(raw.connection.execute(query).fetchall()[0][1])
        value = exact_cast(expression, kind, target)
        if value is None:
            raise SourceError(
                f"tables.{table}.derive.{name}: {kind} is never equal to the key it names",
                hint="cast it in the expression",
            )
        derived[name] = value
    return derived


def _not_joined(catalog: Catalog, raw: RawSide, table: str, target: str) -> None:
    """Refuse to carry keys that the SELECT of another table joins as they are stored.

    Raises:
        SourceError: one does.
    """
    for name in raw.columns:
        query = None if name == table else query_of(catalog, name)
        if query is not None and any(arm == table for arm, _ in query.keys):
            raise SourceError(
                f"tables.{table}.key: it would be read as {target}, and the SELECT of {name} joins it as it is stored",
                hint=f"write {target} in the source of {table}",
            )
