"""The catalogue that psql and drivers ask: PostgreSQL's relations about a star, in an in-memory DuckDB.

tree       a statement as DuckDB's parser reads it
rewrite    PostgreSQL's spellings turned into DuckDB's
lists      what a query may be made of
relations  pg_catalog and information_schema with their rows
macros     PostgreSQL's functions

It holds public names and types alone, is locked down like a release, and takes SELECT alone.
"""

from __future__ import annotations

import datetime
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb

from dpsql.errors import NotSupportedError, UnknownTable
from dpsql.interfaces.pgwire import macros, relations
from dpsql.interfaces.pgwire.allowlist import check_catalogue_query
from dpsql.interfaces.pgwire.duckdb_ast import Node, outermost, parse, written
from dpsql.interfaces.pgwire.rewrite import name_columns, names_of, rewrite
from dpsql.interfaces.pgwire.values import OIDS_BY_NAME, oid_of
from dpsql.interfaces.python.describe import TableInfo
from dpsql.release.read import LOCKDOWN
from dpsql.row_expressions.guard import check_text

SECONDS = 2.0
MOST_ROWS = 20_000
"""Of an answer; a star has fewer columns."""
MEMORY = "100MB"
CONSTANTS = frozenset({"version", "current_database", "current_catalog"})
FUNCTIONS = macros.NAMES | CONSTANTS
SETTINGS = {"preserve_identifier_case": "false"} | LOCKDOWN | {"memory_limit": MEMORY}


class CatalogueRows(NamedTuple):
    """The answer of a catalogue query: names of its columns, their OIDs, rows."""

    names: tuple[str, ...]
    oids: tuple[int, ...]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True)
class Catalogue:
    """The in-memory database; each query has a cursor of its own.

    Args:
        connection: DuckDB without any way out.
    """

    connection: duckdb.DuckDBPyConnection

    def query(self, text: str, *, described: bool = False) -> CatalogueRows:
        """Answer one catalogue query.

        Args:
            text: without placeholders.
            described: whether columns are wanted and no rows.

        Raises:
            SqlSyntaxError: it does not parse.
            UnknownTable: it reads a table that PostgreSQL's catalogue does not have.
            NotSupportedError: not a SELECT, or one that this catalogue cannot answer.
        """
        check_text(text)
        cursor = self.connection.cursor()
        if (types := wanted_types(text)) is not None:
            tree_oids = tuple(OIDS_BY_NAME[kind] for kind in TREE_COLUMNS.values())
            return CatalogueRows(tuple(TREE_COLUMNS), tree_oids, type_tree(cursor, types))
        timer = threading.Timer(SECONDS, cursor.interrupt)
        timer.start()
        try:
            tree = parse(cursor, text)
            names, sources = names_of(tree), _sources(tree)
            name_columns(tree)
            rewrite(tree, relations.relations().keys())
            check_catalogue_query(tree, FUNCTIONS, relations.relations().keys())
            sql = written(cursor, tree)
            done = cursor.execute(f"SELECT * FROM ({sql}) AS described LIMIT 0" if described else sql)
            heads = [(str(column[0]), str(column[1])) for column in done.description or []]
            rows = done.fetchmany(MOST_ROWS + 1)
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
        ) as error:  # a tree of another form
            raise NotSupportedError("a part of the query is not known to the catalogue") from error
        except duckdb.Error as error:
            raise _refusal(str(error).splitlines()[0]) from error
        finally:
            timer.cancel()
        if len(rows) > MOST_ROWS:
            raise NotSupportedError(f"the catalogue's answer has more than {MOST_ROWS} rows")
        named = _spread(names, [name for name, _ in heads])
        columns = _spread(sources, [name for name, _ in heads])
        oids = [_oid(kind, column) for (_, kind), column in zip(heads, columns, strict=True)]
        zoned = [column == ZONED for column in columns]
        if any(zoned):
            rows = [
                tuple(_zoned(v) if flag else v for v, flag in zip(row, zoned, strict=True)) for row in rows
            ]
        return CatalogueRows(tuple(named), tuple(oids), rows)


def _refusal(reason: str) -> NotSupportedError | UnknownTable:
    if reason.endswith("42P01"):  # of the macro regclass_oid
        return UnknownTable("the relation does not exist", hint="\\d lists the relations")
    return NotSupportedError(f"the catalogue cannot answer this: {reason}")


def _sources(tree: Node) -> list[str | None]:
    """The column of a relation that each column of an answer is; empty for expressions, None for a `*`."""
    return [_source(node) for node in outermost(tree)["select_list"]]


def _source(node: Node) -> str | None:
    if node.get("class") == "STAR":
        return None
    if node.get("class") == "CAST":
        return ZONED if node["type_expr"]["type_name"].lower() in ZONED_TYPES else ""
    return str(node["column_names"][-1]) if node.get("class") == "COLUMN_REF" else ""


def _zoned(value: Any) -> Any:
    """A moment, which DuckDB keeps in universal time, with its zone."""
    return value.replace(tzinfo=datetime.UTC) if isinstance(value, datetime.datetime) else value


ZONED = "timestamptz"
ZONED_TYPES = frozenset({"timestamptz", "timestamp with time zone"})


def _spread(words: Sequence[str | None], names: Sequence[str]) -> list[str]:
    """Words of a select list over the columns of its answer; what a `*` gives is called as DuckDB calls it."""
    if None not in words:
        return [str(word) for word in words] if len(words) == len(names) else list(names)
    first = words.index(None)
    after = len(words) - 1 - words[::-1].index(None)
    tail = len(words) - 1 - after
    if None not in words[first:after]:
        head = [str(word) for word in words[:first]]
        middle = names[first : len(names) - tail]
        return [*head, *middle, *(str(word) for word in words[after + 1 :])]
    return list(names)


def _oid(kind: str, column: str) -> int:
    """PostgreSQL's type of a column: that of the relation's column where DuckDB stores it as such, else DuckDB's."""
    if column == ZONED:
        return OIDS_BY_NAME[ZONED]
    pg_type = relations.column_types().get(column.lower(), "")
    if pg_type in SHOWN and relations.STORED.get(pg_type, "VARCHAR") == kind:
        return OIDS_BY_NAME[SHOWN[pg_type]]
    return oid_of(kind)


SHOWN: Mapping[str, str] = {
    "oid": "oid", "name": "name", "char": "char", "int2vector": "int2vector", "oidvector": "oidvector",
    "_oid": "_oid", "_int2": "_int2", "_text": "_text",
}  # fmt: skip
"""PostgreSQL's types that DuckDB has no type for."""


def make_catalogue(
    tables: Sequence[tuple[str, TableInfo]],
    database: str,
    version: str,
    settings: Mapping[str, str] | None = None,
) -> Catalogue:
    """List a star as PostgreSQL would.

    Args:
        tables: (release name, table) of everything a statement may name.
        database: what current_database() says.
        version: of dpsql.
        settings: what pg_settings shows.
    """
    connection = duckdb.connect(":memory:")
    relations.fill(connection, tables, database)
    keywords, *lines = relations.keywords()
    connection.execute(f"CREATE TABLE pg_keywords ({', '.join(f'{name} VARCHAR' for name in keywords)})")
    connection.execute(
        "INSERT INTO pg_keywords SELECT unnest(?), unnest(?), unnest(?)",
        [*map(list, zip(*lines, strict=True))],
    )
    for name, value in (settings or {}).items():
        connection.execute(
            "INSERT INTO pg_settings (name, setting, vartype) VALUES (?, ?, 'string')", [name, value]
        )
    constants = {
        "version": f"PostgreSQL 15.0 (dpsql {version})", "current_database": database, "current_catalog": database,
    }  # fmt: skip
    for statement in macros.statements(constants, settings or {}):
        connection.execute(statement)
    for setting, locked in SETTINGS.items():
        connection.execute(f"SET GLOBAL {setting} = '{locked}'")
    return Catalogue(connection)


# asyncpg asks about types that it does not know, with their elements, bounds and bases, all the way down: a recursive
# query whose parts are recursive queries again, over every type and column. DuckDB works out all of them for all types
# and runs out of memory, so the text is known here and its answer walked from `pg_type`.
TREE_BEGINS = re.compile(r"\s*WITH\s+RECURSIVE\s+typeinfo_tree\s*\(", re.IGNORECASE)
TREE_WANTED = re.compile(
    r"ti\.oid\s*=\s*any\s*\(\s*(?:ARRAY\s*\[([\d,\sNUL]*)\]|'\{([\d,]*)\}')(?:::oid\[\])?\s*\)", re.IGNORECASE
)
TREE_COLUMNS = {
    "oid": "oid", "ns": "name", "name": "name", "kind": "char", "basetype": "oid", "elemtype": "oid",
    "elemdelim": "char", "range_subtype": "oid", "attrtypoids": "_oid", "attrnames": "_text", "depth": "int4",
    "basetype_name": "text", "elemtype_name": "text", "range_subtype_name": "text",
}  # fmt: skip
"""Columns of the answer with PostgreSQL's types."""
TREE_TYPES = """SELECT t.oid, n.nspname, t.typname, t.typtype, nullif(t.typbasetype, 0), t.typelem, e.typdelim,
    coalesce(r.rngsubtype, m.rngsubtype), format_type(nullif(t.typbasetype, 0), NULL), format_type(t.typelem, NULL),
    format_type(coalesce(r.rngsubtype, m.rngsubtype), NULL)
FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace LEFT JOIN pg_range AS r ON r.rngtypid = t.oid
    LEFT JOIN pg_range AS m ON m.rngmultitypid = t.oid
    LEFT JOIN pg_type AS e ON e.oid = t.typelem AND t.typlen = -1 AND t.typelem <> 0 WHERE list_contains(?, t.oid)"""


def wanted_types(text: str) -> list[int] | None:
    """The types that a statement asks for; None if it is another question."""
    match = TREE_WANTED.search(text) if TREE_BEGINS.match(text) else None
    return (
        None if match is None else [int(number) for number in re.findall(r"\d+", match[1] or match[2] or "")]
    )


def type_tree(cursor: duckdb.DuckDBPyConnection, oids: list[int]) -> list[tuple[Any, ...]]:
    """The types and all that they are made of, the innermost first."""
    rows: list[tuple[Any, ...]] = []
    depth = 0
    while oids:
        level = cursor.execute(TREE_TYPES, [oids]).fetchall()
        rows += [(*row[:8], None, None, depth, *row[8:]) for row in level]
        seen = {row[0] for row in rows}
        oids = list({oid for row in level for oid in (row[4], row[5], row[7]) if oid} - seen)
        depth += 1
    return rows[::-1]
