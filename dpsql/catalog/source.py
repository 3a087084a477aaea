"""Source of raw rows: files, or SELECTs that were checked.

A SELECT is checked by `dpsql.row_expressions.rowlocal`; ${NAME} in a place comes from the environment.

**Privacy**: a private table's SELECT is row-local, a public table's reads nothing that a private table reads, or the
curator vouches for it by `trusted: true`, which the release then says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from dpsql.catalog.base import Model, OneOf, Problem
from dpsql.catalog.tables import Table
from dpsql.errors import CatalogError, InterfaceError
from dpsql.row_expressions.rowlocal import (
    Arm,
    Query,
    checked_select,
    is_select,
    normal,
    public_select,
    trusted_select,
)

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def expand(text: str, environment: Mapping[str, str] | None = None) -> str:
    """Put environment variables in.

    Args:
        text: may hold ``${NAME}``.
        environment: where names are looked up; the process environment unless given.

    Returns:
        The text with every variable replaced.

    Raises:
        CatalogError: a variable is not set.

    >>> expand("${ROOT}/shop", {"ROOT": "/data"})
    '/data/shop'
    """
    values = os.environ if environment is None else environment

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if not values.get(name):
            raise CatalogError(
                f"source: the environment variable {name} is not set", hint=f"export {name}=<folder>"
            )
        return values[name]

    return _VARIABLE.sub(value, text)


class Csv(Model):
    """CSV dialect of a source: RFC 4180 unless it says otherwise, one row a line.

    **Privacy**: nothing of it is read from rows. A private row that does not fit is left out, a public one is an error.
    """

    delimiter: str = Field(default=",", min_length=1, max_length=1, description="between two fields")
    quote: str = Field(
        default='"', min_length=1, max_length=1, description="around a field that contains a delimiter"
    )
    escape: str = Field(
        default='"', min_length=1, max_length=1, description="before a quote inside a quoted field"
    )
    encoding: Literal["utf-8", "latin-1", "cp1252"] = Field(default="utf-8", description="of the bytes")
    null: str = Field(default="", description="a field that reads so, quoted or not, is NULL")
    columns: dict[str, tuple[str, ...]] = Field(
        default={}, description="table: its column names, if its file has no header line"
    )

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        marks = (self.delimiter, self.quote, self.escape)
        if any(not mark.isascii() or mark in "\r\n\0" for mark in marks):
            raise ValueError("`delimiter`, `quote` and `escape` are ASCII characters other than line ends")
        if self.delimiter in marks[1:]:
            raise ValueError("`delimiter` is neither `quote` nor `escape`; write another one")
        return self


class SourceKind(NamedTuple):
    """Kind of a source.

    Args:
        name: the catalog's word.
        has_views: whether what it calls a table may be a statement.
        is_server: whether `root` is a server's address, and no folder or file.
        has_paths: whether a path says which table is which; a server's engine says it, and data frames lie nowhere.
    """

    name: str
    has_views: bool = False
    is_server: bool = False
    has_paths: bool = True


PARQUET, CSV, DUCKDB = SourceKind("parquet"), SourceKind("csv"), SourceKind("duckdb", has_views=True)
POSTGRESQL = SourceKind("postgresql", has_views=True, is_server=True, has_paths=False)
SPARK = SourceKind("spark", has_views=True, is_server=True, has_paths=False)
CLICKHOUSE = SourceKind("clickhouse", has_views=True, is_server=True, has_paths=False)
DELTA, ICEBERG = LAKES = SourceKind("delta"), SourceKind("iceberg")
"""Folders whose rows a pinned snapshot names, written to private Parquet files while they are read."""
FRAMES = SourceKind("frames", has_paths=False)
"""Data frames of a program, written to private Parquet files while they are read; no catalog names them."""

_STORE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_SECRET = re.compile(r"(password|token|secret)\s*=|://[^/@\s]*:[^/@\s]*@", re.IGNORECASE)


class Source(Model):
    """The raw side. A table is a file name below `root`, or a SELECT over files below `root`."""

    kind: Annotated[
        SourceKind, OneOf(PARQUET, CSV, DUCKDB, DELTA, ICEBERG, POSTGRESQL, SPARK, CLICKHOUSE)
    ] = Field(PARQUET, description="files, one database, tables of a lake, or a server")
    csv: Csv = Field(
        default=Csv(), description="how CSV files are written, batch files of a stream among them"
    )
    root: str = Field(
        ".", description="folder of the files, the DuckDB file, or a server's address; ${NAME} expands"
    )
    tables: dict[str, str] = Field(
        description="table: file name (duckdb: table name; delta, iceberg: `folder@snapshot`), or a SELECT statement"
    )
    reports: dict[str, str] = Field(
        default={}, description="table: file of its people's reports, as `dpsql collect --for` writes it"
    )
    hive: dict[str, tuple[str, ...]] = Field(
        default={}, description="table: columns whose values are in folder names, `region=north/`"
    )
    trusted: bool = Field(
        False,
        description="accept SELECTs that cannot be checked; the release says that the curator vouches for them",
    )

    timeout: int = Field(3600, ge=1, description="seconds that a statement may run on a server")

    @model_validator(mode="after")
    def _folders_of_files(self) -> Self:
        if self.hive and self.kind not in (PARQUET, CSV):
            raise ValueError("`hive` is for files; a database has no folders")
        unknown = sorted(set(self.hive) - set(self.tables))
        if unknown:
            raise ValueError(f"`hive` names `{unknown[0]}`, which is not in `tables`")
        return self

    @model_validator(mode="after")
    def _on_disk(self) -> Self:
        places = () if self.kind.is_server else (self.root, *self.tables.values(), *self.reports.values())
        stored = next((place for place in places if _STORE.match(place)), None)
        if stored is not None:
            raise ValueError(
                f"`{stored}` is in an object store, which is not read; mount or copy it, or read it by `kind: spark`"
            )
        return self

    @model_validator(mode="after")
    def _no_secret(self) -> Self:
        if self.kind.is_server and _SECRET.search(self.root):
            raise ValueError(
                "`root` contains a password; write ${NAME} and set NAME, or leave it to the client's profile"
            )
        return self

    @property
    def address(self) -> str:
        """Address for a server's client; empty for its own profile.

        Raises:
            CatalogError: a variable is not set.
        """
        return "" if self.root == "." else expand(self.root)

    def expanded(self) -> dict[str, str]:
        """The tables with environment variables put in, for whoever opens them.

        Raises:
            CatalogError: a variable is not set.
        """
        return {table: expand(place) for table, place in self.tables.items()}

    def folder(self, catalog_file: Path | None) -> Path:
        """The place of the raw files.

        A relative root is looked for in the catalog's own folder first, then in the working directory.

        Args:
            catalog_file: the YAML file, or None.

        Returns:
            An existing path.

        Raises:
            CatalogError: it is in neither place, or a variable is not set.
        """
        root = Path(expand(self.root)).expanduser()
        near_catalog = [] if catalog_file is None else [catalog_file.parent / root]
        for candidate in [*near_catalog, root]:
            if candidate.exists():
                return candidate.resolve()
        raise CatalogError(
            f"source.root: `{self.root}` is neither beside the catalog nor in the working directory",
            hint="write an existing folder, or run the program that makes the data",
        )


def server_tables(kind: str, root: str, places: Sequence[str]) -> Source:
    """Tables of a server that no catalog names.

    Args:
        kind: of the source: `postgresql` or `spark`.
        root: the server's address, empty for its client's own profile; ${NAME} expands.
        places: the tables, as the server names them.

    Raises:
        InterfaceError: the kind is not a server's, or the address holds a password.

    >>> server_tables("spark", "", ["lake.reports"]).address
    ''
    """
    try:
        source = Source.model_validate(
            {"kind": kind, "root": root or ".", "tables": {place: place for place in places}}
        )
    except ValidationError as error:
        raise InterfaceError(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from None
    if source.kind not in (POSTGRESQL, SPARK):
        raise InterfaceError(
            f"{kind} is no server that reports are read from", hint="name files without an engine"
        )
    return source


def query_of(source: Source, tables: Mapping[str, Table], name: str) -> Query | None:
    """The checked SELECT of a table, or None where its source is the name of a file or table.

    Args:
        source: where raw rows are.
        tables: those of the catalog.
        name: one of them.

    Raises:
        Problem: it is more than this table may be made of, and nobody vouches for it.
    """
    text = source.tables.get(name, "")
    if not is_select(text):
        return None
    try:
        return public_select(text) if tables[name].is_public else checked_select(text, _arms(source, tables))
    except CatalogError as error:
        if source.trusted:
            return trusted_select(text)
        raise Problem(("source", "tables", name), str(error)) from None


def _arms(source: Source, tables: Mapping[str, Table]) -> dict[str, Arm]:
    """Public tables that a SELECT over private rows may join, by their files and by their names."""
    keyed = {name: t.key for name, t in tables.items() if t.is_public and t.key is not None}
    arms = {name: Arm(name, key) for name, key in keyed.items() if name in source.tables}
    files = {
        normal(source.tables[name]): arm for name, arm in arms.items() if not is_select(source.tables[name])
    }
    return arms | files


def files_read(source: Source, tables: Mapping[str, Table], name: str) -> tuple[str, ...]:
    """The files (or tables of a database) that a table is made of, as the catalog writes them, `./` left out.

    Args:
        source: where raw rows are.
        tables: those of a checked catalog.
        name: one of them.

    Returns:
        One place, or those that its SELECT reads; public tables that it joins are named by their own entries. A
        trusted statement's are named as far as it parses.
    """
    query = query_of(source, tables, name)
    return (normal(source.tables[name]),) if query is None else query.reads


def vouched_tables(source: Source, tables: Mapping[str, Table]) -> tuple[str, ...]:
    """Tables whose SQL nobody but the curator checked."""
    named = [name for name in tables if name in source.tables]
    if source.trusted and source.kind.has_views:
        return tuple(named)  # what a database calls a table may be a view, which nobody checks
    queries = {name: query_of(source, tables, name) for name in named}
    return tuple(
        name
        for name, query in queries.items()
        if query is not None and (query.trusted or _shared(source, tables, name))
    )


def check_queries(source: Source, tables: Mapping[str, Table]) -> None:
    """Check every SELECT of the source.

    Raises:
        Problem: at the table's key; a server's tables are named, statements over them are its own views.
    """
    for name, place in source.tables.items():
        at = ("source", "tables", name)
        query = query_of(source, tables, name) if name in tables else None
        if source.kind.is_server and is_select(place):
            # types of columns say whether expressions are total: one private table alone
            table = tables.get(name)
            reason = "is of a public table" if table is None or table.is_public else ""
            reason = reason or ("joins another table" if query is not None and query.joins else "")
            reason = reason or ("is not checked" if query is None or query.trusted else "")
            if reason:
                raise Problem(
                    at,
                    f"a SELECT that {reason} is for files and DuckDB; make a view of it on the server, name the "
                    "view, and vouch for it by `trusted: true`",
                )
        if query is None:
            continue
        shared = _shared(source, tables, name)
        if shared and not source.trusted:
            raise Problem(
                at,
                f"`{name}` is public and reads `{shared}`, whose rows are private; write its values as "
                "`categories`, or in a file of their own",
            )
        if query.columns is not None:
            _check_columns(tables[name], query.columns, at)


def _shared(source: Source, tables: Mapping[str, Table], name: str) -> str:
    """A file that a public table reads by a SELECT although a private table's rows are in it, or nothing."""
    if not tables[name].is_public:
        return ""
    private = {
        place
        for table, spec in tables.items()
        if not spec.is_public and table in source.tables
        for place in files_read(source, tables, table)
    }
    return next((place for place in files_read(source, tables, name) if place in private), "")


def _check_columns(table: Table, columns: Sequence[str], at: tuple[str, ...]) -> None:
    """A SELECT without a star makes every column that the table declares."""
    made = {column.lower() for column in (*columns, *table.derive, *table.measures)}
    for column in (*table.written, *table.foreign_keys, *([table.key] if table.key else [])):
        if column.lower() not in made:
            raise Problem(at, f"the SELECT makes no column `{column}`; add it, or take it out of `tables`")
