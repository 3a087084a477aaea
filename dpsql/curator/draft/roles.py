"""Roles of tables: what each is for, whose rows it has, and which look like lists of things.

    fact        nobody refers to it; one that holds nothing but keys is a bridge, and is counted like a fact
    dimension   others name its rows
    people      called so, or holding what only people have: two of birthdate, sex, income, ..
    event       a private dimension that is not people, and whose rows are somebody's: orders above their lines
    public      what the curator named; the draft names none
    candidate   a list of things, not of people, their homes or what they do: the draft asks about it (`why_private`)

The unit is the people's table that facts lead to. Where none does, or several could be meant, the draft asks: a row is
never the unit in silence.

**Privacy**: looks at names and keys. No table is public unless the curator names it, since all of its rows are shown.

Columns that no question reads: a draft for some questions omits them, so that nobody is asked to confirm
their bounds.

    tables    kept are those that the questions name, that a foreign key which they read leads to, the people's,
              and those in between
    columns   kept are keys, public columns, and columns that the questions name

A question may name a column without its table where a key leads there; and the catalog's own name stands for all tables
that are counted. Words are compared, not SQL: a column that is kept for nothing costs one bound to confirm.

**Privacy**: looks at names and keys alone.

A first view of every table that is counted, where the curator gave no questions: each good axis alone, and by time;
and facts about people: how many rows of each fact a person has, her first time and her last one.

Classes of counts are the same for every source, up to twenty times the mean; times have the bounds of their column.

**Privacy**: a function of what the draft says, and of numbers of rows; each summary waits for confirmation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import zip_longest
from typing import NamedTuple

from dpsql.curator.design.axes import quoted
from dpsql.curator.design.questions import named
from dpsql.curator.draft.domains import YEARS_FROM, domain_of, public_domain
from dpsql.curator.draft.links import (
    AMOUNTS,
    EVENTS,
    GRADES,
    NAMES,
    SERVED,
    STAFF,
    TEXTS,
    TRAITS,
    Links,
    is_personal,
    words,
)
from dpsql.curator.draft.profile import DAY, TEXT, ColumnFacts, TableFacts
from dpsql.errors import CatalogError, InterfaceError
from dpsql.row_expressions import free_name, identifier
from dpsql.row_expressions.aggregate import parse_aggregate
from dpsql.row_expressions.expression import column_name


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
        public: tables that the curator named as public.
        whose: the privacy unit.
        paths: table -> foreign keys from its rows to the person whose they are.
    """

    facts: frozenset[str]
    counted: frozenset[str]
    bridges: frozenset[str]
    people: frozenset[str]
    public: frozenset[str]
    whose: Whose
    paths: Mapping[str, tuple[str, ...]]

    @property
    def unit_table(self) -> str | None:
        """The people's table; None where each row is a unit."""
        table, dot, _ = self.whose.unit.partition(".")
        return table if dot else None


def roles_of(
    tables: Sequence[TableFacts],
    links: Links,
    unit: str | None,
    public: frozenset[str],
    statements: Sequence[str] = (),
) -> TableRoles:
    """Role of each table.

    Args:
        tables: what was read of them.
        links: their keys.
        unit: the curator's answer, `row` or `table.key`; None where she was not asked.
        public: her public tables.
        statements: questions, whose joins choose between several ways to a person.
    """
    # a table may be public though nothing names its rows
    facts = frozenset(table.name for table in tables if table.name not in links.referred) - public
    people = frozenset(table.name for table in tables if _rank(table) > 0)
    linking = {t.name for t in tables if len(links.foreign[t.name]) > 1 and not links.values(t)}
    bridges = facts & linking
    whose = _whose(tables, links, people) if unit is None else Whose(unit, (unit,))
    holder = whose.unit.partition(".")[0]
    if holder in public:
        hint = f"leave {holder} out of the public tables, or name another unit"
        raise InterfaceError(f"{holder} has the people whose privacy this is, so it is private", hint=hint)
    events = {t.name for t in tables if holder in links.reached(t.name)} - facts - people - public
    paths = _people_paths(tables, links, holder, [named([text]) for text in statements])
    return TableRoles(facts, facts | events, bridges, people, public, whose, paths)


def _people_paths(
    tables: Sequence[TableFacts], links: Links, unit: str, questions: Sequence[frozenset[str]]
) -> dict[str, tuple[str, ...]]:
    """Foreign keys from each table to the people: of several ways the one that questions join most, else the shortest.

    From each table on the way on they are that table's own, so that none of its rows has two owners.
    """
    paths: dict[str, tuple[str, ...]] = {unit: ()}
    # a table's keys lead to tables that reach fewer others than it does
    for name in sorted((t.name for t in tables if t.name != unit), key=lambda name: len(links.reached(name))):
        ways = [(column, *paths[to]) for column, to in links.foreign[name].items() if to in paths]
        joined = dict.fromkeys(ways, 0)
        for way in ways:
            ends = {end.lower() for path, end in links.ways(name) if path and path == way[: len(path)]}
            asked = [question for question in questions if {name.lower(), *ends} - {unit.lower()} <= question]
            joined[way] = sum(len(ends & question) for question in asked)
        if ways:
            paths[name] = min(ways, key=lambda way: (-joined[way], len(way)))
    return paths


def why_private(tables: Sequence[TableFacts], links: Links, unit: str) -> dict[str, str]:
    """Tables that do not look like lists of things, each with the reason; numbers of rows decide nothing.

    Args:
        tables: what was read of them.
        links: their keys.
        unit: the privacy unit, `row` or `table.key`.
    """
    people = {table.name for table in tables if _rank(table) > 0} | {unit.partition(".")[0]}
    persons, reasons = set(people), dict[str, str]()
    for table in tables:
        name, foreign = table.name, links.foreign[table.name]
        # a foreign key is judged by where it leads
        names = [name, *(column.name for column in table.columns if column.name not in foreign)]
        personal = next((text for text in names if is_personal(text)), None)
        if name in people:
            reasons[name] = "its rows are people"
        elif name not in links.referred:
            reasons[name] = "no other table names its rows, as of what is counted"
        elif words(name) & EVENTS:
            reasons[name] = "its name is one of events"
        elif links.reached(name) & people:
            reasons[name] = "its keys lead to people"
        elif personal is not None:
            persons.add(name)
            reasons[name] = f"`{personal}` looks like a trait, a name or a home of people"
    # what only people's tables name tells of people too: in a home's town one of them may live alone
    for target in [table.name for table in tables] * len(tables):
        pointers = [(t, c) for t in tables for c, to in links.foreign[t.name].items() if to == target]
        once = [t.name for t, c in pointers if t.column(c).distinct == t.column(c).present]
        causes = [f"{name} names each of its rows once" for name in once if name in reasons]
        causes += ["only people name its rows"] if {t.name for t, _ in pointers} <= persons else []
        if target not in reasons and causes:
            persons.add(target)
            reasons[target] = causes[0]
    return reasons


def _rank(table: TableFacts) -> int:
    """Rank of a table as the people served: 3 by name, 2 by its contents, 1 staff, 0 no people."""
    name = words(table.name)
    if name & SERVED:
        return 3
    traits = sum(bool(words(column.name) & TRAITS) for column in table.columns)
    return 2 if traits > 1 else 1 if name & STAFF else 0


def person_key(tables: Sequence[TableFacts], unit: str | None) -> tuple[TableFacts, str] | None:
    """The column that names people where no table has one row for each: its table, and its name.

    Args:
        tables: what was read of them.
        unit: the curator's answer; None where she was not asked, and names alone decide.
    """
    if unit is None:
        if any(_rank(table) > 1 and table.unique_columns for table in tables):
            return None
        named = [
            (sum(bool(words(c.name) & TRAITS) for c in table.columns), table.name, column.name)
            for table in tables for column in table.columns
            if (mine := words(column.name)) & SERVED and len(mine) > 1 and mine <= SERVED | NAMES
            and not column.unique and column.distinct > 1
        ]  # fmt: skip
        unit = ".".join(max(named)[1:]) if named else ""
    holder, _, key = unit.partition(".")
    rows = next((t for t in tables if t.name == holder and key in {c.name for c in t.columns}), None)
    if rows is None or key in rows.unique_columns or not rows.column(key).distinct:
        return None
    return rows, key


def people_of_rows(
    rows: TableFacts, key: str, taken: Collection[str], traits: Collection[str] | None
) -> TableFacts:
    """A table of people made of rows that name them more than once.

    Args:
        rows, key: as of `person_key`.
        taken: names of tables.
        traits: columns that are about a person; None for those whose names say so, without a look at rows.
    """
    called = sorted(words(key) & SERVED)
    name = next(n for n in (f"{called[0]}s" if called else "people", f"{rows.name}_people") if n not in taken)
    chosen = ({c.name for c in rows.columns if words(c.name) & TRAITS} if traits is None else set(traits)) - {
        key
    }
    identity = replace(rows.column(key), unique=True, nullable=False, present=rows.column(key).distinct)
    columns = (identity, *(c for c in rows.columns if c.name in chosen))
    return TableFacts(name, rows.place, identity.distinct, columns, people_of=rows.name)


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
    names |= {table.people_of for table in tables if table.name in names and table.people_of}
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
    is_any_named = any(
        c.name.lower() in words or table.name in roles.public
        for table in tables if table.name in names for c in links.values(table)
    )  # fmt: skip
    for table in tables:
        values, is_public = links.values(table), table.name in roles.public
        # all rows are counted along some column: where questions name none, each may be the one
        is_whole = is_public or (table.name in in_words and not is_any_named)
        columns = tuple(c for c in table.columns if c not in values or is_whole or c.name.lower() in words)
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


def first_views(
    tables: Sequence[TableFacts], links: Links, roles: TableRoles, asked: frozenset[str]
) -> list[str]:
    """The lines of `views:`; with questions a count by each column alone, of every table its own columns first.

    Args:
        tables: what was read of them.
        links: their keys.
        roles: what they are for.
        asked: every word of the questions.
    """
    lines, by_column = list[str](), list[list[str]]()
    for table in tables:
        if not _countable(table.name, roles):
            continue
        axes = _axes(table, {each.name: each for each in tables}, links, roles, asked)
        if asked:
            by_column.append([_line(table.name, {axis.name: axis.written}, "count") for axis in axes])
            continue
        axes = sorted(axes, key=lambda axis: axis.rank)[:MOST_AXES]
        # amounts alone: prices and rates add up to nothing
        domains = (domain_of(column, counted=table.name in roles.counted) for column in links.values(table))
        sums = [d.name for d in domains if d and d.measure]
        amounts = [name for name in sums if words(name) & AMOUNTS]
        measures = ", ".join(["count", *(quoted(f"{table.name}.{n}") for n in amounts[:MOST_MEASURES])])
        # the first axis that is no time, by time, or else the first two
        times, untimed = [a for a in axes if a.rank == 0], [a for a in axes if a.rank > 0]
        first, second = (untimed[:1], times[:1]) if times else (untimed[:1], untimed[1:2])
        for view_axes in [*((axis,) for axis in axes), *((a, b) for a in first for b in second)]:
            lines.append(_line(table.name, {axis.name: axis.written for axis in view_axes}, measures))
    return [*lines, *(line for nth in zip_longest(*by_column) for line in nth if line is not None)]


def _countable(table: str, roles: TableRoles) -> bool:
    """True if views may count a table: its rows lead to the unit, or are the people themselves."""
    unit = roles.unit_table
    if unit is None:
        return table in roles.facts
    return table == unit or (table in roles.counted and table in roles.paths)


def _of_others(table: str, path: tuple[str, ...], links: Links, roles: TableRoles) -> bool:
    """True if a way passes private rows that need not be those of the counted row's person."""
    ends = {way: end for way, end in links.ways(table) if way and way == path[: len(way)]}
    return any(
        roles.unit_table in (end, *links.reached(end)) and way != roles.paths[table][: len(way)]
        for way, end in ends.items() if end not in roles.public and roles.unit_table is not None
    )  # fmt: skip


def _axes(
    table: TableFacts,
    tables: dict[str, TableFacts],
    links: Links,
    roles: TableRoles,
    asked: frozenset[str],
) -> list[FirstAxis]:
    """Axes of every place that the table's rows lead to, the nearest first; of public tables the best one, or those
    that questions name."""
    axes: list[FirstAxis] = []
    ways = list(links.ways(table.name))
    for path, name in ways:
        if _of_others(table.name, path, links, roles):
            continue
        place = name if [t for _, t in ways].count(name) == 1 else ".".join(path)
        if name in roles.public:
            axes += _public_axis(tables[name], place, links, asked)
        # rows of a private table that are the unit's own, or nobody's
        elif roles.unit_table in (None, name, *links.reached(name)) or name not in roles.people:
            named_all = bool(asked)  # a draft for questions keeps no other private column
            axes += _private_axes(tables[name], place, links, of_people=name in roles.people, every=named_all)
    named = [axis.name.lower() for axis in axes]
    return [axis._replace(name=axis.full) if named.count(axis.name.lower()) > 1 else axis for axis in axes]


def _public_axis(table: TableFacts, place: str, links: Links, asked: frozenset[str]) -> Iterator[FirstAxis]:
    """Columns that questions name, else the grain with the most values that still makes a short axis; days where there
    are some."""
    days = [c.name for c in table.columns if c.nature is DAY and c.distinct <= MOST_LEAVES]
    listed = [
        (c.nature is TEXT, c.distinct, c.name) for c in links.values(table)
        if public_domain(c) and 2 <= c.distinct <= BEST_GRAIN and not words(c.name) & (NAMES | TEXTS)
        and (c.nature is TEXT or words(c.name) & GRADES)
    ]  # fmt: skip
    named_grains = [name for *_, name in listed if name.lower() in asked]
    best = days[:1] or named_grains or [name for *_, name in sorted(listed)[-1:]]
    for name in best:
        written = f"{{axis: {quoted(place)}, by: [{quoted(name)}]}}"
        yield FirstAxis(name, f"{place.replace('.', '_')}_{name}", written, 0 if days else 1)


def _private_axes(
    table: TableFacts, place: str, links: Links, *, of_people: bool, every: bool
) -> Iterator[FirstAxis]:
    """Its first time, or every one, and all its other short axes, last those that tell each row from every other."""
    times = 0
    for column in links.values(table):
        domain = domain_of(column, counted=False, of_people=of_people)
        timed = column.nature is not None and column.nature.timed
        if domain is not None and 2 <= domain.leaves <= MOST_LEAVES and (every or not (timed and times)):
            times += timed
            full = f"{place.replace('.', '_')}_{column.name}"
            rank = 0 if timed else 3 if column.unique else 2
            yield FirstAxis(column.name, full, quoted(f"{place}.{column.name}"), rank)


def _line(table: str, axes: Mapping[str, str], measures: str) -> str:
    name, written = f"{table}_by_" + "_".join(axes), ", ".join(axes.values())
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
    facts = [table for table in counted if table.name in roles.paths]
    lines, views = list[str](), list[str]()
    taken = {column.name.lower() for column in people.columns}
    for fact in facts:
        words = _names(fact.name if len(facts) > 1 else "", taken)
        visits = next(words)
        classes, step = list(CLASSES), LEAST_UPPER
        while 20 * fact.rows > step * people.rows:
            classes += [step, 2 * step, 5 * step]
            step *= 10
        counts = f"type: int, lower: 0, upper: {step}, cuts: {classes}, confirm: true"
        lines.append(f"{quoted(visits)}: {{of: {quoted(fact.name)}, is: count(*), {counts}}}")
        views.append(_line(people.name, {visits: quoted(f"{people.name}.{visits}")}, "count"))
        timed = next(_times(fact, links), None)
        if timed is not None:
            column, keys = timed
            ends = [(next(words), function) for function in ("min", "max")]
            lines += [
                f"{quoted(name)}: {{of: {quoted(fact.name)}, is: {quoted(f'{function}({_spelt(column)})')}, {keys}}}"
                for name, function in ends
            ]
            axes = {name: quoted(f"{people.name}.{name}") for name, _ in ends}
            views.append(_line(people.name, axes, "count"))
    return lines, views


def _names(fact: str, taken: set[str]) -> Iterator[str]:
    """Names that the people's table has not: of the fact where there are several."""
    for word in ("visits", "first_time", "last_time"):
        name = f"{fact}_{word}" if fact else word
        free = free_name(taken, name)
        taken.add(free.lower())
        yield free


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
