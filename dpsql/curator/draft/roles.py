"""Roles of tables: what each is for, whose rows it has, and which may be public.

    fact        nobody refers to it; one that holds nothing but keys is a bridge, and is counted like a fact
    dimension   others name its rows
    people      called so, or holding what only people have: two of birthdate, sex, income, ..
    event       a private dimension that is not people, and whose rows are somebody's: orders above their lines
    public      a dimension that is neither people nor an event, and from which no key leads to people

The unit is the people's table that facts lead to. Where none does, or several could be meant, the draft asks: a row is
never the unit in silence.

**Privacy**: looks at names and keys. What it proposes as public waits for confirmation, since its rows would be shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dpsql.curator.draft.links import Links
from dpsql.curator.draft.name_rules import EVENTS, SERVED, STAFF, TRAITS, words
from dpsql.curator.draft.profile import TableFacts


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
    bridges = frozenset(t.name for t in tables if t.name in facts and _is_bridge(t, links))
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


def _is_bridge(table: TableFacts, links: Links) -> bool:
    keys = {*links.foreign[table.name], links.keys[table.name]}
    return len(links.foreign[table.name]) > 1 and all(column.name in keys for column in table.columns)


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
    if len(rivals) > 1:
        return Whose(
            names[0],
            (*names, "row"),
            f"{' and '.join(rivals)} both identify people. Do the rows belong to {names[0]}?",
        )
    return Whose(names[0], (*names, "row"))
