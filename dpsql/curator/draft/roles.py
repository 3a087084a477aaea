"""Roles of tables: what each is for, whose rows it has, and which may be public.

    fact        nobody refers to it; one that holds nothing but keys is a bridge, and is counted like a fact
    dimension   others name its rows
    people      called so, or holding what only people have: two of birthdate, sex, income, ..
    event       a private dimension that is not people, and whose rows are somebody's: orders above their lines
    public      a dimension that is neither people nor an event, and from which no key leads to people

The unit is the people's table that facts lead to. Where none does, or several could be meant, the draft asks: a row is
never the unit in silence.

**Privacy**: looks at names and keys. What it proposes as public waits for confirmation, since its rows would be shown.

Columns that no question reads: a draft for some questions omits them, so that nobody is asked to confirm
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
from dataclasses import dataclass, replace
from typing import NamedTuple

from dpsql.curator.draft.links import Links
from dpsql.curator.draft.name_rules import EVENTS, SERVED, STAFF, TRAITS, words
from dpsql.curator.draft.profile import ColumnFacts, TableFacts


class Whose(NamedTuple):
    """Privacy unit of a draft.

    Args:
        unit: `table.key`, or `row`.
        candidates: what it might be, the likeliest first.
        question: what the curator is asked; empty where it is plain.
    """

    unit: str
    candidates: tuple[str, ...]
    question: str = ""


@dataclass(frozen=True)
class TableRoles:
    """Roles of the tables.

    Args:
        facts: tables that are counted.
        counted: facts and events, whose rows are counted.
        bridges: facts that hold nothing but keys.
        people: tables whose rows are people.
        public: tables that may be public.
        whose: the privacy unit.
    """

    facts: frozenset[str]
    counted: frozenset[str]
    bridges: frozenset[str]
    people: frozenset[str]
    public: frozenset[str]
    whose: Whose

    @property
    def unit_table(self) -> str | None:
        """The people's table; None where each row is a unit."""
        table, dot, _ = self.whose.unit.partition(".")
        return table if dot else None


def roles_of(
    tables: Sequence[TableFacts], links: Links, unit: str | None, public: frozenset[str] | None
) -> TableRoles:
    """Role of each table.

    Args:
        tables: what was read of them.
        links: their keys.
        unit: the curator's answer, `row` or `table.key`; None where she was not asked.
        public: her public tables; None where she was not asked.
    """
    facts = frozenset(table.name for table in tables if table.name not in links.referred)
    people = frozenset(table.name for table in tables if _rank(table) > 0)
    linking = {t.name for t in tables if len(links.foreign[t.name]) > 1 and not links.values(t)}
    bridges = facts & linking
    whose = _whose(tables, links, people) if unit is None else Whose(unit, (unit,))
    holder = whose.unit.partition(".")[0]
    proposed = frozenset(
        table.name for table in tables
        if table.name not in facts | people | {holder}
        and not words(table.name) & EVENTS and not links.reached(table.name) & people
    )  # fmt: skip
    seen = proposed if public is None else public - {holder}
    facts -= seen  # a table may be public though nothing names its rows
    events = {t.name for t in tables if holder in links.reached(t.name)} - facts - people - seen
    return TableRoles(facts, facts | events, bridges, people, seen, whose)


def _rank(table: TableFacts) -> int:
    """Rank of a table as the people served: 3 by name, 2 by its contents, 1 staff, 0 no people."""
    name = words(table.name)
    if name & SERVED:
        return 3
    traits = sum(bool(words(column.name) & TRAITS) for column in table.columns)
    return 2 if traits > 1 else 1 if name & STAFF else 0


def _whose(tables: Sequence[TableFacts], links: Links, people: frozenset[str]) -> Whose:
    """The people's table that most rows lead to; a question where none does or several could be meant."""
    ranked = []
    for table in tables:
        key = links.keys[table.name]
        led = sum(t.rows for t in tables if table.name in links.reached(t.name)) + table.rows
        if table.name in people and key is not None:
            ranked.append((_rank(table), led, f"{table.name}.{key}"))
    ranked.sort(reverse=True)
    names = tuple(name for _, _, name in ranked)
    if not names:
        return Whose("row", ("row",), "No table has one row per person. Is every row a different person?")  # fmt: skip
    rivals = [name for rank, _, name in ranked if rank == ranked[0][0]]
    question = f"{' and '.join(rivals)} both identify people. Do the rows belong to {names[0]}?"
    return Whose(names[0], (*names, "row"), question if len(rivals) > 1 else "")


NO_QUESTION = "no question uses it"
NO_TABLE = "no question uses its table"


ReadTables = tuple[tuple[TableFacts, ...], Links, dict[str, tuple[ColumnFacts, ...]]]
"""Tables and columns that the questions read: those that are kept, with the columns that are; their keys and foreign
keys; table -> what is left out of it, all of its columns where it is left out."""


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
        return tuple(tables), links, {}
    unit, everything = roles.unit_table, catalog.lower() in words
    in_words = {table.name for table in tables if table.name.lower() in words}
    # tables that the questions name, the people's, and those that a foreign key leads to which questions read
    names = in_words | {t.name for t in tables if t.name == unit or (everything and t.name in roles.counted)}
    names |= {
        to for name in in_words for column, to in links.foreign[name].items() if column.lower() in words
    }
    names |= _between(links, names, unit)
    names |= _beyond(tables, links, names, words)
    names |= _between(links, names, unit)
    foreign = {
        t: {c: target for c, target in targets.items() if t in names and target in names}
        for t, targets in links.foreign.items()
    }
    unlisted = {t: {c: n for c, n in gone.items() if c in foreign[t]} for t, gone in links.unlisted.items()}
    links = Links(links.keys, foreign, unlisted)
    kept, unread = [], dict[str, tuple[ColumnFacts, ...]]()
    for table in tables:
        values, is_public = links.values(table), table.name in roles.public
        columns = tuple(c for c in table.columns if c not in values or is_public or c.name.lower() in words)
        if table.name in names:
            kept.append(replace(table, columns=columns))
        unread[table.name] = tuple(c for c in table.columns if table.name not in names or c not in columns)
    return tuple(kept), links, unread


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
