"""Columns that no question reads: a draft for some questions omits them, so that nobody is asked to confirm
their bounds.

    tables    kept are those that the questions name, that a foreign key which they read leads to, the people's,
              and those in between
    columns   kept are keys, public columns, and columns that the questions name

A question may name a column without its table where a key leads there; and the catalog's own name stands for all tables
that are counted. Words are compared, not SQL: a column that is kept for nothing costs one bound to confirm.

**Privacy**: looks at names and keys alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dpsql.curator.draft.links import Links
from dpsql.curator.draft.profile import ColumnFacts, TableFacts
from dpsql.curator.draft.roles import TableRoles

NO_QUESTION = "no question uses it"
NO_TABLE = "no question uses its table"


class ReadTables(NamedTuple):
    """Tables and columns that the questions read.

    Args:
        tables: those that are kept, with the columns that are.
        links: their keys and foreign keys.
        unread: table -> what is left out of it; all of its columns where it is left out.
    """

    tables: tuple[TableFacts, ...]
    links: Links
    unread: dict[str, tuple[ColumnFacts, ...]]


def read_tables(
    tables: Sequence[TableFacts], links: Links, roles: TableRoles, words: frozenset[str], catalog: str
) -> ReadTables:
    """Take out what no question reads.

    Args:
        tables: what was read.
        links: their keys and foreign keys.
        roles: what they are for.
        words: every word of the questions, in small letters; none keeps everything.
        catalog: its name, which questions may write for a table.
    """
    if not words:
        return ReadTables(tuple(tables), links, {})
    names = _named_tables(tables, roles, words, catalog) | _read_targets(tables, links, words)
    names |= _between(links, names, roles.unit_table)
    names |= _beyond(tables, links, names, words)
    names |= _between(links, names, roles.unit_table)
    foreign = {
        t: {c: target for c, target in targets.items() if t in names and target in names}
        for t, targets in links.foreign.items()
    }
    unlisted = {t: {c: n for c, n in gone.items() if c in foreign[t]} for t, gone in links.unlisted.items()}
    links = Links(links.keys, foreign, unlisted)
    kept, unread = [], dict[str, tuple[ColumnFacts, ...]]()
    for table in tables:
        columns = tuple(column for column in table.columns if _is_read(column, table, links, roles, words))
        if table.name in names:
            kept.append(replace(table, columns=columns))
        unread[table.name] = tuple(c for c in table.columns if table.name not in names or c not in columns)
    return ReadTables(tuple(kept), links, unread)


def _named_tables(
    tables: Sequence[TableFacts], roles: TableRoles, words: frozenset[str], catalog: str
) -> set[str]:
    """Tables that the questions name, and the people's."""
    everything = catalog.lower() in words
    return {
        table.name for table in tables
        if table.name.lower() in words or table.name == roles.unit_table or (everything and table.name in roles.counted)
    }  # fmt: skip


def _read_targets(tables: Sequence[TableFacts], links: Links, words: frozenset[str]) -> set[str]:
    """Tables that a foreign key leads to which a named table's questions read."""
    return {
        target for table in tables if table.name.lower() in words
        for column, target in links.foreign[table.name].items() if column.lower() in words
    }  # fmt: skip


def _between(links: Links, names: set[str], unit: str | None) -> set[str]:
    """Tables on the ways from one of these to another, or to the people's."""
    between = set[str]()
    for name in names:
        for path, end in links.ways(name):
            at = name
            for column in path if end == unit or end in names else ():
                at = links.foreign[at][column]
                between.add(at)
    return between


def _beyond(tables: Sequence[TableFacts], links: Links, names: set[str], words: frozenset[str]) -> set[str]:
    """Tables that keys lead to and that alone have a column of that name: it may be asked for without its table."""
    here = {column.name for table in tables if table.name in names for column in table.columns}
    reached = {target for name in names for target in links.reached(name)}
    return {
        table.name for table in tables
        if table.name in reached and any(c.name not in here and c.name.lower() in words for c in table.columns)
    }  # fmt: skip


def _is_read(
    column: ColumnFacts, table: TableFacts, links: Links, roles: TableRoles, words: frozenset[str]
) -> bool:
    keys = (links.keys[table.name], *links.foreign[table.name])
    return column.name in keys or table.name in roles.public or column.name.lower() in words
