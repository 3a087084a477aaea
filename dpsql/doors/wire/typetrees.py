"""asyncpg's question about types that it does not know: a type with its elements, bounds and bases, all the way down.

It is a recursive query whose parts are recursive queries again, over every type and column. DuckDB works out all of
them for all types and runs out of memory, so the text is known here and its answer walked from `pg_type`.
"""

from __future__ import annotations

import re
from typing import Any

import duckdb

BEGINS = re.compile(r"\s*WITH\s+RECURSIVE\s+typeinfo_tree\s*\(", re.IGNORECASE)
WANTED = re.compile(
    r"ti\.oid\s*=\s*any\s*\(\s*(?:ARRAY\s*\[([\d,\sNUL]*)\]|'\{([\d,]*)\}')(?:::oid\[\])?\s*\)", re.IGNORECASE
)
COLUMNS = {
    "oid": "oid", "ns": "name", "name": "name", "kind": "char", "basetype": "oid", "elemtype": "oid",
    "elemdelim": "char", "range_subtype": "oid", "attrtypoids": "_oid", "attrnames": "_text", "depth": "int4",
    "basetype_name": "text", "elemtype_name": "text", "range_subtype_name": "text",
}  # fmt: skip
"""Columns of the answer with PostgreSQL's types."""
TYPES = """SELECT t.oid, n.nspname, t.typname, t.typtype, nullif(t.typbasetype, 0), t.typelem, e.typdelim,
    coalesce(r.rngsubtype, m.rngsubtype), format_type(nullif(t.typbasetype, 0), NULL), format_type(t.typelem, NULL),
    format_type(coalesce(r.rngsubtype, m.rngsubtype), NULL)
FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace LEFT JOIN pg_range AS r ON r.rngtypid = t.oid
    LEFT JOIN pg_range AS m ON m.rngmultitypid = t.oid
    LEFT JOIN pg_type AS e ON e.oid = t.typelem AND t.typlen = -1 AND t.typelem <> 0 WHERE list_contains(?, t.oid)"""


def wanted_types(text: str) -> list[int] | None:
    """The types that a statement asks for; None if it is another question."""
    match = WANTED.search(text) if BEGINS.match(text) else None
    return (
        None if match is None else [int(number) for number in re.findall(r"\d+", match[1] or match[2] or "")]
    )


def type_tree(cursor: duckdb.DuckDBPyConnection, oids: list[int]) -> list[tuple[Any, ...]]:
    """The types and all that they are made of, the innermost first."""
    rows: list[tuple[Any, ...]] = []
    depth = 0
    while oids:
        level = cursor.execute(TYPES, [oids]).fetchall()
        rows += [(*row[:8], None, None, depth, *row[8:]) for row in level]
        seen = {row[0] for row in rows}
        oids = list({oid for row in level for oid in (row[4], row[5], row[7]) if oid} - seen)
        depth += 1
    return rows[::-1]
