"""One table of a source: rows that are read by several schemas meet in one view.

    member    files of one schema and of one folder's values, a table of a database, or a SELECT
    view      a column each: read by its member's schema, carried by value to the type in which the members meet

Which columns there are, their types, what is refused and what is NULL follow from the schemas and the catalog alone.

| of a column | what becomes of it |
|---|---|
| its type is not listed in `dpsql.engines.values` | not read; refused if the catalog names it |
| a member lacks it | NULL; refused if it is a key, or declared and not `nullable` |
| types that have nothing in common | not read; refused if the catalog names it |
| the catalog says that folders name it (`source.hive`) | the folder's text; refused if a file has it too |

**Privacy**: reads schemas and names of files, no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import duckdb

from dpsql.catalog import Catalog
from dpsql.catalog.derived import expressions
from dpsql.catalog.graph import key_of, roots
from dpsql.catalog.source import LAKES, expand, files_read
from dpsql.engines.values import (
    EMPTY,
    DeclaredType,
    SourceColumn,
    canonical_text,
    carried,
    common_type,
    exact_cast,
    family,
    is_rounded,
    key_type,
    key_words,
    leaving,
    reads,
    stored_type,
    type_word,
)
from dpsql.errors import SourceError
from dpsql.row_expressions import identifier, literal

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Folder of the rows whose value is NULL, as Hive and Spark write it."""

FLOAT_LIMIT = 1 << 53


class SchemaGroup(NamedTuple):
    """Rows that are read by one schema.

    Args:
        relation: what stands after FROM.
        schema: column -> stored type.
        folders: column -> its value in the folders' names, None for NULL.
        files: how many there are; 0 for a table of a database or a SELECT.
    """

    relation: str
    schema: Mapping[str, str]
    folders: Mapping[str, str | None] = {}
    files: int = 0


@dataclass(frozen=True)
class TableUse:
    """Columns of a table that the catalog uses, all names in lower case.

    Args:
        declared: column -> what it declares.
        keys: key and foreign keys -> whether the key that they name is declared `type: int`.
        folders: columns whose values stand in names of folders.
        public: whether its rows are; then a line that is no row is an error.
        listed: whether columns of types that are not listed are left out; a draft and a SELECT see them.
        person: the key of which each value makes one row (`people_of`); empty where rows stay as they are.
    """

    declared: Mapping[str, DeclaredType] = field(default_factory=dict)
    keys: Mapping[str, bool] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    listed: bool = False
    public: bool = False
    person: str = ""

    def names(self, column: str) -> bool:
        """True if the catalog names a column."""
        return column in self.declared or column in self.keys


NUMBERS = ("int", "decimal")


def table_use(catalog: Catalog, name: str) -> TableUse:
    """Collect the columns of a table that the catalog uses."""
    folders = catalog.raw_source().hive.get(name, ())
    return _declared_use(catalog, name, folders)


def _declared_use(catalog: Catalog, name: str, folders: Sequence[str] = ()) -> TableUse:
    """The same as far as columns are declared; a released catalog has no source."""
    table = catalog.tables[name]
    derived = {column.lower() for column in expressions(table)}
    declared = {
        column.lower(): DeclaredType(spec.type, spec.nullable, _is_small(spec.lower, spec.upper), spec.digits)
        for column, spec in table.written.items()
        if column.lower() not in derived and spec.reported is None
    }
    keys = {}
    for (owner, column), root in roots(catalog).items():
        if owner == name and column not in derived:
            spec = {c.lower(): s for c, s in catalog.tables[root].columns.items()}.get(key_of(catalog, root))
            keys[column] = spec is not None and spec.type == "int"
    person = "" if table.people_of is None else str(table.key)
    return TableUse(declared, keys, tuple(folders), listed=True, public=table.is_public, person=person)


def _is_small(lower: str | None, upper: str | None) -> bool:
    """True if both bounds are there and below 2^53."""
    try:
        return all(end is not None and abs(float(end)) < FLOAT_LIMIT for end in (lower, upper))
    except ValueError:  # dates
        return False


def schema_of(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    """The columns of a relation and their stored types."""
    described = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return {str(row[0]): str(row[1]) for row in described}


def parquet_members(
    connection: duckdb.DuckDBPyConnection, files: Sequence[Path], root: Path, folders: Sequence[str]
) -> list[SchemaGroup]:
    """Parquet files, each read by its own schema: those of one schema and of one folder's values together."""
    groups: dict[tuple[object, ...], list[Path]] = {}
    schemas: dict[tuple[object, ...], tuple[dict[str, str], dict[str, str | None]]] = {}
    for file in files:
        schema, values = schema_of(connection, _parquet([file])), folder_values(file, root, folders)
        group = (tuple(schema.items()), tuple(values.items()))
        groups.setdefault(group, []).append(file)
        schemas[group] = schema, values
    return [SchemaGroup(_parquet(group), *schemas[key], len(group)) for key, group in groups.items()]


def _parquet(files: Sequence[Path]) -> str:
    listed = ", ".join(literal(str(file.absolute())) for file in files)
    # a text that is no UTF-8 would stop a publish; its bytes that are none become question marks
    return f"read_parquet([{listed}], hive_partitioning = false, utf8_validation = 'replace')"


def folder_values(file: Path, root: Path, folders: Sequence[str]) -> dict[str, str | None]:
    """The columns that folders name and their texts for one file; NULL where no folder of its path says one.

    >>> folder_values(Path("/lake/sales/region=N%C3%AEmes/a.parquet"), Path("/lake"), ["region", "year"])
    {'region': 'Nîmes', 'year': None}
    """
    path = file.relative_to(root) if file.is_relative_to(root) else file
    named = dict(folder.split("=", 1) for folder in path.parts[:-1] if "=" in folder)
    values = {name.lower(): unquote(text) for name, text in named.items()}
    return {
        name: None if values.get(name.lower()) == NO_VALUE else values.get(name.lower()) for name in folders
    }


def united(
    table: str, members: Sequence[SchemaGroup], use: TableUse, source: str
) -> tuple[str, dict[str, str]]:
    """The SELECT in which members of a table meet, and its columns with their types.

    Args:
        table: for messages.
        members: at least one.
        use: what the catalog makes of the columns.
        source: of `dpsql.engines.values`.

    Raises:
        SourceError: a column that the catalog names cannot be read; see the table above.
    """
    names: dict[str, str] = {}
    for member in members:
        for name in (*member.schema, *member.folders):
            names.setdefault(name.lower(), name)
    selected: list[list[str]] = [[] for _ in members]
    types: dict[str, str] = {}
    for low, name in names.items():
        meeting = _meeting(table, low, members, use, source)
        if meeting is None:
            continue
        types[name], values = meeting
        for columns, value in zip(selected, values, strict=True):
            columns.append(f"{value} AS {identifier(name)}")
    selects = (
        f"SELECT {', '.join(c) or '1'} FROM {m.relation}" for c, m in zip(selected, members, strict=True)
    )
    return " UNION ALL ".join(selects), types


def one_row_a_person(table: str, select: str, columns: Iterable[str], person: str) -> str:
    """The rows of a SELECT put together by a key: of each column the least value by its text's bytes, NULLs aside.

    Args:
        table: for messages.
        select: the rows, keys as the texts or numbers by which they are joined.
        columns: all of its columns.
        person: the key.

    Raises:
        SourceError: there is no such column.

    **Privacy**: a row is a function of the rows with its key; rows without a key make none.
    """
    key = next((identifier(name) for name in columns if name.lower() == person.lower()), None)
    if key is None:
        raise SourceError(f"tables.{table}.key: the source has no column `{person}`")
    values = (identifier(name) for name in columns if name.lower() != person.lower())
    least = (f"arg_min({value}, CAST({value} AS VARCHAR)) AS {value}" for value in values)
    return f"SELECT {', '.join([key, *least])} FROM ({select}) WHERE {key} IS NOT NULL GROUP BY {key}"


def _meeting(
    table: str, low: str, members: Sequence[SchemaGroup], use: TableUse, source: str
) -> tuple[str, list[str]] | None:
    """The type of a column and its SQL for each member; None where it is not read."""
    declared, place = use.declared.get(low, DeclaredType()), f"tables.{table}.{low}"
    columns: list[SourceColumn] = []
    for member in members:
        column = _column(table, low, member, use, source)
        if column is None:
            return None
        if not reads("" if low in use.keys else declared.type, column.kind):
            raise SourceError(
                f"{place}: no {type_word(column.kind)} is a value of the declared type {declared.type}",
                hint="declare the type that it has, or CAST it in a SELECT or a view that is the table's source",
            )
        columns.append(column)
    kinds = [column.kind for column in columns]
    if not use.listed and len(members) == 1:
        return kinds[0], [column.sql for column in columns]
    key = low in use.keys
    target = key_type(kinds, use.keys[low]) if key else common_type(kinds, declared)
    if target is None:
        if not use.names(low):
            return None
        raise SourceError(
            f"{place}: {', '.join(sorted(set(map(type_word, kinds))))} in files of one table have no values in common",
            hint="write its files in one type" + (", or declare the key `type: int`" if key else ""),
        )
    if key:
        return target, [
            str(exact_cast(sql, kind, target)) if kind != target else sql for kind, sql in columns
        ]
    return target, [carried(sql, kind, target) for kind, sql in columns]


def _column(table: str, low: str, member: SchemaGroup, use: TableUse, source: str) -> SourceColumn | None:
    """A column as it leaves one member; None where its type is not listed and nobody names it."""
    stored = {name.lower(): (name, kind) for name, kind in member.schema.items()}
    if low in {name.lower() for name in member.folders}:
        if low in stored:
            raise SourceError(
                f"source.hive.{table}: `{low}` is in the files and in the names of their folders",
                hint="remove it from source.hive, or from the files",
            )
        text = next(value for name, value in member.folders.items() if name.lower() == low)
        return SourceColumn(
            "VARCHAR", "CAST(NULL AS VARCHAR)" if text is None else f"CAST({literal(text)} AS VARCHAR)"
        )
    if low not in stored:
        return _absent(table, low, use)
    name, kind = stored[low]
    column = leaving(source, kind, identifier(name), key=low in use.keys)
    if not use.listed:  # types as stored, but texts without their collation
        return column if column is not None and kind == "VARCHAR" else SourceColumn(kind, identifier(name))
    if column is None:
        if use.names(low):
            raise unlisted(table, name, source, kind)
        return None
    if use.declared.get(low, DeclaredType()).type == "string" and family(column.kind) in ("decimal", "float"):
        return column if low in use.keys else SourceColumn("VARCHAR", canonical_text(column.sql, column.kind))
    return column


def _absent(table: str, low: str, use: TableUse) -> SourceColumn:
    """A column that other files have: NULL.

    Raises:
        SourceError: rows without it would be left out, or counted elsewhere, without a word.
    """
    if low in use.keys or (low in use.declared and not use.declared[low].nullable):
        raise SourceError(
            f"tables.{table}.{low}: some of its files have no such column",
            hint="write the column, empty where nothing is known"
            + ("" if low in use.keys else ", or declare it `nullable: true`"),
        )
    return SourceColumn(EMPTY, "NULL")


def source_words(place: str, columns: Mapping[str, str], use: TableUse) -> str:
    """Comparison and rounding of a table's values, in words for the curator alone: a type may follow from one
    row.

    Args:
        place: what holds its rows.
        columns: column -> type, keys carried into their groups' types.
        use: what the catalog makes of them.

    **Privacy**: of schemas and the catalog.

    >>> source_words("3 files, 2 schemas", {"id": "BIGINT"}, TableUse(keys={"id": False}))
    '3 files, 2 schemas; id compared as canonical integer text; no value rounded'
    """
    keys = [
        f"{name} compared as {key_words(kind)}" for name, kind in columns.items() if name.lower() in use.keys
    ]
    rounded = [
        f"{name} rounded half up to {declared.places} decimal places as declared"
        for name, kind in columns.items()
        if (declared := use.declared.get(name.lower()))
        and name.lower() not in use.keys
        and is_rounded(kind, declared)
    ]
    return "; ".join([place, *keys, *(rounded or ["no value rounded"])])


def declared_values(catalog: Catalog) -> dict[str, str]:
    """Table -> which snapshot is read, and how values are compared and rounded, as the catalog declares it."""
    words = {name: declared_words(_declared_use(catalog, name)) for name in catalog.tables}
    source = catalog.source
    if source is not None and source.kind in LAKES:
        for name in source.tables:
            pins = (expand(place).rpartition("@")[2] for place in files_read(source, catalog.tables, name))
            words[name] = f"{source.kind.name} snapshot {', '.join(pins)}; {words[name]}"
    return words


def declared_words(use: TableUse) -> str:
    """The same as far as the catalog says it, for the release and its certificate.

    Stored types and the number of schemas are left out: a program that writes files may choose them by a row.

    >>> declared_words(TableUse({"amount": DeclaredType("decimal", False, True, 2)}, {"id": True}))
    'id compared as canonical integer text; amount kept to 2 decimal places, half up'
    """
    keys = [
        f"{name} compared as canonical {'integer ' * is_integer}text" for name, is_integer in use.keys.items()
    ]
    numbers = [
        f"{name} kept to {_places(spec.places)}, half up"
        for name, spec in use.declared.items()
        if spec.type in NUMBERS and name not in use.keys
    ]
    return "; ".join([*keys, *numbers]) or "compared byte by byte"


def _places(places: int) -> str:
    return f"{places} decimal place{'s' if places > 1 else ''}" if places else "whole numbers"


def place_words(members: Sequence[SchemaGroup], use: TableUse) -> str:
    """Place of a table's rows in words. Which folders there are may follow from rows, so their files are not
    counted."""
    schemas = len({tuple(member.schema.items()) for member in members})
    files = sum(member.files for member in members)
    plural = "" if schemas == 1 else "s"
    if use.folders:
        return f"files in folders by {', '.join(use.folders)}, {schemas} schema{plural}"
    return f"{files} file{'' if files == 1 else 's'}, {schemas} schema{plural}" if files else "one relation"


def unlisted(table: str, column: str, source: str, stored: str) -> SourceError:
    """The refusal of a stored type that the table of source values does not list for that use."""
    if stored_type(source, stored) is not None:
        return SourceError(
            f"tables.{table}.{column}: {type_word(stored)} treats several texts as one, so it cannot be a key",
            hint=f"name views that choose one text for all: CAST(lower({column}) AS text) AS {column}",
        )
    return SourceError(
        f"tables.{table}.{column}: a column stored as {type_word(stored)} has no rule",
        hint=f"read it through a SELECT or a view that says what it means: CAST({column} AS VARCHAR) AS {column}",
    )
