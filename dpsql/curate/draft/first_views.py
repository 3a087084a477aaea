"""A first view of every table that is counted, where the curator gave no questions: each good axis alone, and by time.

**Privacy**: a function of what the draft says; its shares are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dpsql.curate.design.text import quoted
from dpsql.curate.draft.domains import domain_of, public_domain
from dpsql.curate.draft.links import Links
from dpsql.curate.draft.look import DAY, TEXT, ColumnFacts, TableFacts
from dpsql.curate.draft.roles import TableRoles
from dpsql.curate.draft.words import AMOUNTS, GRADES, NAMES, TEXTS, words

MOST_AXES, MOST_LEAVES, BEST_GRAIN = 3, 800, 30
MOST_MEASURES = 2


class FirstAxis(NamedTuple):
    """An axis of a first view.

    Args:
        name: of its column.
        full: of its place and column, for names that stand twice.
        written: as a view writes it.
        rank: how soon it is wanted; 0 is time.
    """

    name: str
    full: str
    written: str
    rank: int


def first_views(tables: Sequence[TableFacts], links: Links, roles: TableRoles) -> list[str]:
    """The lines of `views:`.

    Args:
        tables: what was read of them.
        links: their keys.
        roles: what they are for.
    """
    lines: list[str] = []
    for table in tables:
        if not _countable(table.name, links, roles):
            continue
        axes = _axes(table, {each.name: each for each in tables}, links, roles)
        measures = ", ".join(["count", *_sums(table, links, roles)])
        lines += [_line(table.name, each, measures) for each in [*((axis,) for axis in axes), *_pairs(axes)]]
    return lines


def _sums(table: TableFacts, links: Links, roles: TableRoles) -> list[str]:
    """Measures that are summed first: amounts, since prices and rates add up to nothing; else rows are only counted."""
    domains = (domain_of(column, counted=table.name in roles.counted) for column in _own(table, links))
    sums = [d.name for d in domains if d and d.measure]
    amounts = [name for name in sums if words(name) & AMOUNTS]
    return [quoted(f"{table.name}.{name}") for name in amounts[:MOST_MEASURES]]


def _countable(table: str, links: Links, roles: TableRoles) -> bool:
    """Whether views may count a table: its rows lead to the unit by one way, or are the people themselves."""
    unit = roles.unit_table
    if unit is None:
        return table in roles.facts
    return table == unit or (table in roles.counted and [t for _, t in links.ways(table)].count(unit) == 1)


def _axes(
    table: TableFacts, tables: dict[str, TableFacts], links: Links, roles: TableRoles
) -> list[FirstAxis]:
    """The best axis of every place that the table's rows lead to, time first."""
    axes: list[FirstAxis] = []
    ways = list(links.ways(table.name))
    for path, name in ways:
        place = name if [t for _, t in ways].count(name) == 1 else ".".join(path)
        if name in roles.public:
            axes += _public_axis(tables[name], place, links)
        elif _own_place(name, roles, links):
            axes += _private_axes(tables[name], place, links, of_people=name in roles.people)
    named = [axis.name.lower() for axis in axes]
    unambiguous = [a._replace(name=a.full) if named.count(a.name.lower()) > 1 else a for a in axes]
    return sorted(unambiguous, key=lambda axis: axis.rank)[:MOST_AXES]


def _own_place(name: str, roles: TableRoles, links: Links) -> bool:
    """Whether rows of a private table are the unit's own, or nobody's."""
    return roles.unit_table is None or name == roles.unit_table or roles.unit_table in links.reached(name) or (
        name not in roles.people
    )  # fmt: skip


def _public_axis(table: TableFacts, place: str, links: Links) -> Iterator[FirstAxis]:
    """The grain with the most values that still makes a short axis; days where there are some."""
    days = [c.name for c in table.columns if c.nature is DAY and c.distinct <= MOST_LEAVES]
    listed = [
        (c.nature is TEXT, c.distinct, c.name) for c in _own(table, links)
        if public_domain(c) and 2 <= c.distinct <= BEST_GRAIN and not words(c.name) & (NAMES | TEXTS)
        and (c.nature is TEXT or words(c.name) & GRADES)
    ]  # fmt: skip
    best = days[:1] or [name for *_, name in sorted(listed)[-1:]]
    for name in best:
        written = f"{{axis: {quoted(place)}, by: [{quoted(name)}]}}"
        yield FirstAxis(name, f"{place.replace('.', '_')}_{name}", written, 0 if days else 1)


def _private_axes(table: TableFacts, place: str, links: Links, *, of_people: bool) -> Iterator[FirstAxis]:
    """Its first time and all its other short axes."""
    times = 0
    for column in _own(table, links):
        domain = domain_of(column, counted=False, of_people=of_people)
        timed = column.nature is not None and column.nature.timed
        if domain is not None and 2 <= domain.leaves <= MOST_LEAVES and not (timed and times):
            times += timed
            full = f"{place.replace('.', '_')}_{column.name}"
            yield FirstAxis(column.name, full, quoted(f"{place}.{column.name}"), 0 if timed else 2)


def _own(table: TableFacts, links: Links) -> list[ColumnFacts]:
    """Columns that are no keys."""
    keys = {*links.foreign[table.name], links.keys[table.name]}
    return [column for column in table.columns if column.name not in keys]


def _pairs(axes: Sequence[FirstAxis]) -> list[tuple[FirstAxis, FirstAxis]]:
    """The first axis that is no time, by time, or else the first two."""
    times, untimed = [a for a in axes if a.rank == 0], [a for a in axes if a.rank > 0]
    first, second = (untimed[:1], times[:1]) if times else (untimed[:1], untimed[1:2])
    return [(a, b) for a in first for b in second]


def _line(table: str, axes: Sequence[FirstAxis], measures: str) -> str:
    name = f"{table}_by_" + "_".join(axis.name for axis in axes)
    written = ", ".join(axis.written for axis in axes)
    return f"  {quoted(name)}: {{of: {quoted(table)}, axes: [{written}], measures: [{measures}]}}"
