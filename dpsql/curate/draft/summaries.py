"""Facts about people that a draft proposes: how many rows of each fact a person has, her first time and her last one.

Classes of counts are the same for every source, up to twenty times the mean; times have the bounds of their column.

**Privacy**: a function of what the draft says, and of how many rows the tables have; each line waits for confirmation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import NamedTuple

from dpsql.curate.design.text import quoted
from dpsql.curate.draft.domains import YEARS_FROM, domain_of
from dpsql.curate.draft.links import Links
from dpsql.curate.draft.look import TableFacts
from dpsql.curate.draft.roles import TableRoles
from dpsql.errors import CatalogError
from dpsql.star.sql import identifier
from dpsql.star.sql.aggregate import parse_aggregate
from dpsql.star.sql.expression import column_name

COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 50, 100, 200, 500)
LEAST_UPPER = 1000
DAYS_TO = 62
"""Days that a time spans up to which its classes are days; beyond, months or years."""


class DraftedSummaries(NamedTuple):
    """The summaries of the people's table.

    Args:
        lines: below `summaries`.
        views: below `views`.
    """

    lines: tuple[str, ...] = ()
    views: tuple[str, ...] = ()


def drafted_summaries(tables: Sequence[TableFacts], links: Links, roles: TableRoles) -> DraftedSummaries:
    """Visits, first and last time of every fact from which one way leads to the people.

    Args:
        tables: what was read of them.
        links: their keys.
        roles: what they are for.
    """
    people = next((table for table in tables if table.name == roles.unit_table), None)
    if people is None or people.name in roles.counted:
        return DraftedSummaries()
    facts = [
        table
        for table in tables
        if table.name in roles.facts - roles.bridges
        and [name for _, name in links.ways(table.name)].count(people.name) == 1
    ]
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
    return DraftedSummaries(tuple(lines), tuple(views))


def _names(fact: str, taken: set[str]) -> Iterator[str]:
    """Names that the people's table has not: of the fact where there are several."""
    for word in ("visits", "first_time", "last_time"):
        name = f"{fact}_{word}" if fact else word
        free = next(n for n in (name, *(f"{name}_{i}" for i in range(2, 99))) if n.lower() not in taken)
        taken.add(free.lower())
        yield free


def _counts(fact: TableFacts, people: TableFacts) -> str:
    classes, step = list(COUNTS), LEAST_UPPER
    while 20 * fact.rows > step * people.rows:
        classes += [step, 2 * step, 5 * step]
        step *= 10
    return f"type: int, lower: 0, upper: {step}, cuts: {classes}, confirm: true"


def _times(fact: TableFacts, links: Links) -> Iterator[tuple[str, str]]:
    """Columns of times that are no keys, and what a summary of one says."""
    for column in fact.columns:
        domain = domain_of(column, counted=False)
        if (
            column.name in links.foreign[fact.name]
            or domain is None
            or not (column.nature and column.nature.timed)
        ):
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
