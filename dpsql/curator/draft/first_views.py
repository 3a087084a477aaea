"""A first view of every table that is counted, where the curator gave no questions: each good axis alone, and by time;
and facts about people: how many rows of each fact a person has, her first time and her last one.

Classes of counts are the same for every source, up to twenty times the mean; times have the bounds of their column.

**Privacy**: a function of what the draft says, and of numbers of rows; each summary waits for confirmation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import NamedTuple

from dpsql.curator.design.text import quoted
from dpsql.curator.draft.domains import YEARS_FROM, domain_of, public_domain
from dpsql.curator.draft.links import Links
from dpsql.curator.draft.name_rules import AMOUNTS, GRADES, NAMES, TEXTS, words
from dpsql.curator.draft.profile import DAY, TEXT, TableFacts
from dpsql.curator.draft.roles import TableRoles
from dpsql.errors import CatalogError
from dpsql.row_expressions import identifier
from dpsql.row_expressions.aggregate import parse_aggregate
from dpsql.row_expressions.expression import column_name

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
    domains = (domain_of(column, counted=table.name in roles.counted) for column in links.values(table))
    sums = [d.name for d in domains if d and d.measure]
    amounts = [name for name in sums if words(name) & AMOUNTS]
    return [quoted(f"{table.name}.{name}") for name in amounts[:MOST_MEASURES]]


def _countable(table: str, links: Links, roles: TableRoles) -> bool:
    """True if views may count a table: its rows lead to the unit by one way, or are the people themselves."""
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
        # rows of a private table that are the unit's own, or nobody's
        elif roles.unit_table in (None, name, *links.reached(name)) or name not in roles.people:
            axes += _private_axes(tables[name], place, links, of_people=name in roles.people)
    named = [axis.name.lower() for axis in axes]
    unambiguous = [a._replace(name=a.full) if named.count(a.name.lower()) > 1 else a for a in axes]
    return sorted(unambiguous, key=lambda axis: axis.rank)[:MOST_AXES]


def _public_axis(table: TableFacts, place: str, links: Links) -> Iterator[FirstAxis]:
    """The grain with the most values that still makes a short axis; days where there are some."""
    days = [c.name for c in table.columns if c.nature is DAY and c.distinct <= MOST_LEAVES]
    listed = [
        (c.nature is TEXT, c.distinct, c.name) for c in links.values(table)
        if public_domain(c) and 2 <= c.distinct <= BEST_GRAIN and not words(c.name) & (NAMES | TEXTS)
        and (c.nature is TEXT or words(c.name) & GRADES)
    ]  # fmt: skip
    best = days[:1] or [name for *_, name in sorted(listed)[-1:]]
    for name in best:
        written = f"{{axis: {quoted(place)}, by: [{quoted(name)}]}}"
        yield FirstAxis(name, f"{place.replace('.', '_')}_{name}", written, 0 if days else 1)


def _private_axes(table: TableFacts, place: str, links: Links, *, of_people: bool) -> Iterator[FirstAxis]:
    """Its first time and all its other short axes, last those that tell each row from every other."""
    times = 0
    for column in links.values(table):
        domain = domain_of(column, counted=False, of_people=of_people)
        timed = column.nature is not None and column.nature.timed
        if domain is not None and 2 <= domain.leaves <= MOST_LEAVES and not (timed and times):
            times += timed
            full = f"{place.replace('.', '_')}_{column.name}"
            rank = 0 if timed else 3 if column.unique else 2
            yield FirstAxis(column.name, full, quoted(f"{place}.{column.name}"), rank)


def _pairs(axes: Sequence[FirstAxis]) -> list[tuple[FirstAxis, FirstAxis]]:
    """The first axis that is no time, by time, or else the first two."""
    times, untimed = [a for a in axes if a.rank == 0], [a for a in axes if a.rank > 0]
    first, second = (untimed[:1], times[:1]) if times else (untimed[:1], untimed[1:2])
    return [(a, b) for a in first for b in second]


def _line(table: str, axes: Sequence[FirstAxis], measures: str) -> str:
    name = f"{table}_by_" + "_".join(axis.name for axis in axes)
    written = ", ".join(axis.written for axis in axes)
    return f"  {quoted(name)}: {{of: {quoted(table)}, axes: [{written}], measures: [{measures}]}}"


CLASSES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 50, 100, 200, 500)
LEAST_UPPER = 1000
DAYS_TO = 62
"""Days that a time spans up to which its classes are days; beyond, months or years."""


def drafted_summaries(
    tables: Sequence[TableFacts], links: Links, roles: TableRoles
) -> tuple[list[str], list[str]]:
    """Visits, first and last time of every fact from which one way leads to the people.

    Args:
        tables: what was read of them.
        links: their keys.
        roles: what they are for.

    Returns:
        Lines below `summaries` of the people's table, and below `views`.
    """
    people = next((table for table in tables if table.name == roles.unit_table), None)
    if people is None or people.name in roles.counted:
        return [], []
    counted = [table for table in tables if table.name in roles.facts - roles.bridges]
    facts = [t for t in counted if [name for _, name in links.ways(t.name)].count(people.name) == 1]
    lines, views = list[str](), list[str]()
    taken = {column.name.lower() for column in people.columns}
    for fact in facts:
        words = _names(fact.name if len(facts) > 1 else "", taken)
        visits = next(words)
        lines.append(f"{quoted(visits)}: {{of: {quoted(fact.name)}, is: count(*), {_counts(fact, people)}}}")
        views.append(_view(people.name, visits))
        timed = next(_times(fact, links), None)
        if timed is not None:
            column, keys = timed
            ends = [(next(words), function) for function in ("min", "max")]
            lines += [
                f"{quoted(name)}: {{of: {quoted(fact.name)}, is: {quoted(f'{function}({_spelt(column)})')}, {keys}}}"
                for name, function in ends
            ]
            views.append(_view(people.name, *(name for name, _ in ends)))
    return lines, views


def _names(fact: str, taken: set[str]) -> Iterator[str]:
    """Names that the people's table has not: of the fact where there are several."""
    for word in ("visits", "first_time", "last_time"):
        name = f"{fact}_{word}" if fact else word
        free = next(n for n in (name, *(f"{name}_{i}" for i in range(2, 99))) if n.lower() not in taken)
        taken.add(free.lower())
        yield free


def _counts(fact: TableFacts, people: TableFacts) -> str:
    classes, step = list(CLASSES), LEAST_UPPER
    while 20 * fact.rows > step * people.rows:
        classes += [step, 2 * step, 5 * step]
        step *= 10
    return f"type: int, lower: 0, upper: {step}, cuts: {classes}, confirm: true"


def _times(fact: TableFacts, links: Links) -> Iterator[tuple[str, str]]:
    """Columns of times that are no keys, and what a summary of one says."""
    for column in fact.columns:
        domain, timed = domain_of(column, counted=False), column.nature is not None and column.nature.timed
        if column.name in links.foreign[fact.name] or domain is None or not timed:
            continue
        said = dict(key.split(": ", 1) for key in domain.keys)
        days = (date.fromisoformat(said["upper"][:10]) - date.fromisoformat(said["lower"][:10])).days
        width = "day" if days <= DAYS_TO else "month" if days < YEARS_FROM else "year"
        kept = [f"{key}: {said[key]}" for key in ("type", "grain", "lower", "upper") if key in said]
        yield column.name, ", ".join([*kept, f"cuts: {{width: {width}}}", "nullable: true", "confirm: true"])


def _spelt(column: str) -> str:
    """A column as SQL reads it back."""
    try:
        read = column_name(parse_aggregate(f"min({column})").arguments[0])
    except CatalogError:
        read = None
    return column if read is not None and read == ("", column) else identifier(column)


def _view(people: str, *names: str) -> str:
    axes = ", ".join(quoted(f"{people}.{name}") for name in names)
    return f"  {quoted(f'{people}_by_' + '_'.join(names))}: {{of: {quoted(people)}, axes: [{axes}], measures: [count]}}"
