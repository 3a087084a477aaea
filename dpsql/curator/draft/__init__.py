"""`dpsql init`: a first catalog, drafted from raw tables as somebody who knows them would.

    words     what names tell
    look      what stands in the tables: columns, types, few values, bounds
    links     which column names which table's rows, by names and by inclusion of values
    roles     facts, dimensions and bridges; whose the rows are; what looks like a list of things
    domains   columns as axes and measures: bounds, cuts, categories in their order; ids and free text left out
    unread    what no question reads is left out, where questions were given
    summaries rows, first and last time of a person in each fact, where no questions were given
    views     a first view of every fact, where no questions were given

This module writes all of it as YAML. Every table is private unless the curator named it. What came from data gets
``confirm: true``, and so does the promise unless the curator states it: publishing refuses while a mark is left,
since a bound that one person decides would tell on that person. The draft is a valid catalog as it is written.

**Privacy**: reads raw rows and shows bounds and categories to the curator, before any promise is made. The text is for
the curator's eyes until every `confirm` was checked and removed.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import yaml

from dpsql.axis.model import ABSENT
from dpsql.catalog import parse_catalog
from dpsql.catalog.base import nearest
from dpsql.catalog.source import CSV, POSTGRESQL
from dpsql.catalog.tables import PublicGuess
from dpsql.central.bounding import EXCESS_SHARE, MOST_SPENT
from dpsql.contributions.rehearsal import Guess
from dpsql.curator.design import CatalogDesign, design_catalog
from dpsql.curator.design.axes import quoted
from dpsql.curator.design.questions import named
from dpsql.curator.draft.domains import (
    DerivedQuery,
    Domain,
    asked_expressions,
    derived_columns,
    domain_of,
    keeping,
    left_out,
    public_domain,
    reading_lines,
    reasons,
)
from dpsql.curator.draft.links import FEWEST_PEOPLE, Links, find_links, without_rare_values
from dpsql.curator.draft.profile import (
    WHOLE,
    ColumnFacts,
    Postgres,
    SelectReader,
    TableFacts,
    called,
    look,
    open_reader,
)
from dpsql.curator.draft.roles import (
    NO_QUESTION,
    NO_TABLE,
    TableRoles,
    Whose,
    drafted_summaries,
    first_views,
    people_of_rows,
    person_key,
    read_tables,
    roles_of,
    why_private,
)
from dpsql.errors import InterfaceError, SourceError, visible

_VALUE = re.compile(r"\s*-?\d[\d.,:/ -]*")
"""A number, date or time: names of columns that are one suggest that a CSV file has no header."""

EPSILON, CAP = "1", "4"
"""What stands in a draft until the curator has chosen: under `confirm`, so nothing is spent by it."""


@dataclass(frozen=True)
class CuratorChoices:
    """Choices that only the curator can make; None where she was not asked and the draft leaves it open.

    Args:
        unit: `row` or `table.key`.
        public: tables whose rows anybody may see; None, as where it is empty, for no table.
        epsilon: what one release spends.
        cap: most that these people may ever lose.
        data_dependent: whether noisy numbers may choose how views are measured.
        guesses: of a fact, or of all of them under an empty name.
        traits: where no table has one row a person, columns of the rows that are about her; None for those whose names
            say so.
    """

    unit: str | None = None
    public: frozenset[str] | None = None
    epsilon: str | None = None
    cap: str | None = None
    data_dependent: bool | None = None
    guesses: Mapping[str, PublicGuess] = field(default_factory=dict)
    traits: frozenset[str] | None = None


@dataclass(frozen=True)
class Sketch:
    """Draft of tables, keys and people before the curator is asked.

    Args:
        tables: what was read.
        links: keys and foreign keys.
        whose: the privacy unit.
    """

    tables: tuple[TableFacts, ...]
    links: Links
    whose: Whose


def leave_open(sketch: Sketch) -> CuratorChoices:
    """Nobody is asked: the draft says what was found and marks it."""
    return CuratorChoices()


class DroppedColumn(NamedTuple):
    """A column that a draft leaves out.

    Args:
        table, column: which one.
        why: the reason.
        line: what keeps it below the table's `columns`, or what must be written first.
    """

    table: str
    column: str
    why: str
    line: str


@dataclass(frozen=True)
class CatalogDraft:
    """A drafted catalog.

    Args:
        text: its YAML.
        open: places that wait for confirmation.
        question: what is asked about the privacy unit; empty where it is plain.
        foreign_keys: how many were found.
        public: tables that the curator named as public.
        candidates: private tables that look like lists of things, where she was not asked which are public.
        notes: how those become public, and why a table that she named was no candidate.
        dropped: columns of private tables that it leaves out.
        unmatched: foreign keys with rows that name nothing, or nobody, and how many; private.
        unread: files that are not read, and lines of others that are no rows; private.
        design: how its views were designed, where questions were given.
        allows: whether noisy numbers may choose how its views are measured.
    """

    text: str
    open: int
    question: str
    foreign_keys: int
    public: tuple[str, ...]
    candidates: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    dropped: tuple[DroppedColumn, ...] = ()
    unmatched: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    design: CatalogDesign | None = None
    allows: bool = False


def draft(
    name: str, reader: SelectReader, ask: Callable[[Sketch], CuratorChoices], statements: Sequence[str] = ()
) -> CatalogDraft:
    """Look at a source and write its first catalog.

    Args:
        name: the catalog's name.
        reader: the open source.
        ask: the curator, shown what was found.
        statements: the workload; columns that it names are kept wherever they can be.

    **Privacy**: reads raw rows; the text is for the curator's eyes.
    """
    source_tables = look(reader, named(statements))
    tables, _ = _with_people(reader, source_tables, None, None)
    links = find_links(reader, tables)
    choices = ask(Sketch(tables, links, roles_of(tables, links, None, frozenset()).whose))
    named_public = choices.public or frozenset()
    if not any(column.distinct for table in source_tables for column in table.columns):
        raise SourceError("no table has a row that can be read", hint="no catalog is written; see the files")
    if choices.unit or choices.traits is not None:
        tables, unit = _with_people(reader, source_tables, choices.unit, choices.traits)
        choices = replace(choices, unit=unit)
    _check(choices, tables)
    if choices.unit or named_public or choices.traits is not None:
        links = find_links(reader, tables, choices.unit, named_public)
    roles = roles_of(tables, links, choices.unit, named_public)
    reasons = why_private(tables, links, roles.whose.unit)
    tables = without_rare_values(reader, tables, links, roles.unit_table, roles.public)
    every_table = tables
    tables, links, unread = read_tables(tables, links, roles, named(statements), name)
    roles = replace(
        roles_of(every_table, links, roles.whose.unit, roles.public, statements), whose=roles.whose
    )
    candidates = tuple(t.name for t in tables if choices.public is None and t.name not in reasons)
    notes = [
        f"no table has one row a person: {t.name} is made of the rows of {t.people_of}, one for each "
        f"{links.keys[t.name]}; --trait COLUMN names what is about her"
        for t in tables if t.people_of
    ]  # fmt: skip
    notes += [
        f"{t.name}.{c.name} holds whole numbers that read as days: a comment in the draft has the line that makes "
        "them dates, which months and years can be asked of"
        for t in tables for c in links.values(t) if c.readings and c.nature is WHOLE
    ]  # fmt: skip
    notes += _to_be_named(candidates) if candidates else []
    lines = _header(name, reader, tables, links, roles, choices)
    lines += ["", *(f"# {visible(line)}" for line in notes), "tables:"]
    # questions say what they need to know of people
    summaries, of_people = ([], []) if statements else drafted_summaries(tables, links, roles)
    asked = () if reader.kind is POSTGRESQL else asked_expressions(statements)  # servers derive nothing yet
    for table in tables:
        guess = choices.guesses.get(table.name, choices.guesses.get(""))
        lines += _table(table, links, roles, asked, guess)
        if table.name == roles.unit_table and summaries:
            lines += ["    summaries:  # beyond its bounds a value counts as the bound"]
            lines += [f"      {line}" for line in summaries]
    views = [*first_views(tables, links, roles, named(statements)), *of_people] or ["  {}"]
    text = "\n".join([*lines, "", "views:", *views]) + "\n"
    marks = sum(line.partition("#")[0].count("confirm: true") for line in text.splitlines())
    link_count = sum(len(targets) for targets in links.foreign.values())
    public = tuple(t.name for t in tables if t.name in roles.public)
    notes += [f"{t} is public since you named it, though {reasons[t]}" for t in public if t in reasons]
    dropped = [
        DroppedColumn(table.name, column.name, why, keeping(column))
        for table in tables if table.name not in roles.public for column in links.values(table)
        if (why := left_out(column, of_people=table.name in roles.people).why)
    ]  # fmt: skip
    dropped += [
        column for table in every_table for column in _unread(table, unread.get(table.name, ()), roles)
    ]
    return CatalogDraft(
        text, marks, roles.whose.question, link_count, public, candidates, tuple(notes), tuple(dropped),
        tuple(_unmatched(links, tables, roles)),
        tuple(_unread_sources(reader, every_table)),
        allows=bool(choices.data_dependent),
    )  # fmt: skip


def _with_people(
    reader: SelectReader, tables: tuple[TableFacts, ...], unit: str | None, traits: frozenset[str] | None
) -> tuple[tuple[TableFacts, ...], str | None]:
    """Tables with one of people where none has one row for each; and the unit, named by it.

    Raises:
        InterfaceError: a trait is no column of those rows.
    """
    proposed = None if reader.kind is POSTGRESQL else person_key(tables, None)
    if unit is not None and proposed is not None:
        people = people_of_rows(*proposed, {table.name for table in tables}, traits)
        unit = f"{people.people_of}.{proposed[1]}" if unit == f"{people.name}.{proposed[1]}" else unit
    chosen = proposed if unit is None else None if reader.kind is POSTGRESQL else person_key(tables, unit)
    if chosen is None:
        return tables, unit
    rows, key = chosen
    columns = {column.name for column in rows.columns}
    for unknown in sorted((traits or frozenset()) - columns):
        raise InterfaceError(f"{rows.name} has no column {unknown}", hint=nearest(unknown, tuple(columns)))
    people = people_of_rows(rows, key, {table.name for table in tables}, traits)
    assert not isinstance(reader, Postgres)
    reader.put_together(people.name, rows.name, key)
    return (people, *tables), None if unit is None else f"{people.name}.{key}"


def _to_be_named(candidates: Sequence[str]) -> list[str]:
    """Sentences on private tables that look like lists of things: how they become public, and what privacy costs."""
    options = " ".join(f"--public {shlex.quote(name)}" for name in candidates)
    return [
        f"every table is private; these look like lists of things, not of people: {', '.join(candidates)}",
        f"where anybody may see every row, draft again with: {options}",
        "private, their columns need declared domains, a value that nobody listed counts as (other), and groups are "
        "the declared values",
    ]


def _unread(table: TableFacts, columns: Sequence[ColumnFacts], roles: TableRoles) -> Iterator[DroppedColumn]:
    """Columns that no question names, with the line that keeps each; of a table that none needs, all."""
    of_people = table.name in roles.people
    for column in columns:
        drafted = domain_of(column, counted=table.name in roles.counted, of_people=of_people)
        line = keeping(column) if drafted is None else drafted.line
        whole = len(columns) == len(table.columns)
        yield DroppedColumn(table.name, column.name, NO_TABLE if whole else NO_QUESTION, line)


def _unmatched(links: Links, tables: Sequence[TableFacts], roles: TableRoles) -> Iterator[str]:
    """Foreign keys with rows that name nothing; and those on the way to the people that are NULL in some rows, which
    publishing leaves out."""
    for of, columns in links.unlisted.items():
        for name, share in columns.items():
            yield f"{of}.{name}: {_percent(share)} of its rows name no row of {links.foreign[of][name]}"
    for table in tables:
        for name in _nobodys(table, roles):
            absent = _percent(1 - table.column(name).present / table.rows)
            yield f"{table.name}.{name}: {absent} of its rows are NULL; they belong to nobody and are not counted"


def _nobodys(table: TableFacts, roles: TableRoles) -> list[str]:
    """The foreign key of a table on its way to the people, if it is NULL in some rows."""
    return [name for name in roles.paths.get(table.name, ())[:1] if table.column(name).nullable]


def _unread_sources(reader: SelectReader, tables: Sequence[TableFacts]) -> Iterator[str]:
    """Files that are not read, and those of which lines are no rows."""
    for file in reader.unread_files:
        yield f"{file} was not read: files of a source have one extension; convert it like the others, and draft again"
    for table in tables:
        if table.left_out:
            yield f"{visible(table.place)}: {table.left_out:,} of its lines {NO_ROWS}"


NO_ROWS = "are not UTF-8 rows with as many fields as its first line; correct the file, and draft again"


def _check(choices: CuratorChoices, tables: Sequence[TableFacts]) -> None:
    """Answers name tables and keys that there are.

    Raises:
        InterfaceError: one does not.
    """
    units = ["row", *(f"{table.name}.{key}" for table in tables for key in table.unique_columns)]
    if choices.unit not in (None, *units):
        hint = f"choose one of {', '.join(units)}; people with several rows need a table with one row each"
        raise InterfaceError(f"`{choices.unit}` is not a unique column, so it cannot be the unit", hint=hint)
    names = {table.name for table in tables}
    for unknown in sorted((choices.public or frozenset()) - names):
        raise InterfaceError(f"no table {unknown}", hint=f"there are {', '.join(sorted(names))}")
    for table in tables:
        if table.name in (choices.public or ()) and not table.unique_columns:
            raise InterfaceError(
                f"{table.name} has no column with a different value in every row, so nothing can identify its rows",
                hint="leave it out of the public tables",
            )


def _header(
    name: str,
    reader: SelectReader,
    tables: Sequence[TableFacts],
    links: Links,
    roles: TableRoles,
    choices: CuratorChoices,
) -> list[str]:
    """Header above the tables: name, source, and the curator's choices."""
    root = "${DPSQL_SOURCE}" if reader.kind is POSTGRESQL else reader.root
    places = [f"    {quoted(t.name)}: {quoted(_place(t, reader, roles))}" for t in tables if not t.people_of]
    marks = {value for t in tables for c in t.columns for value in c.values if value in ABSENT}
    unsure = "".join(
        f"; where {m} means that a value is missing, declare it as `null`" for m in sorted(marks)[:1]
    )
    csv = [] if reader.csv is None else [
        f"  csv: {json.dumps(reader.csv.model_dump(exclude={'columns'}))}  # how the files are written{unsure}"
    ]  # fmt: skip
    unit = roles.unit_table
    # rows of a unit are chosen, which needs a delta
    bounded = any(unit in links.reached(name) for name in roles.counted)
    question = [f"  # {roles.whose.question}"] if roles.whose.question else []
    candidates = [c for c in roles.whose.candidates if c != roles.whose.unit]
    shown = "whose rows are protected together" if unit else "each row by itself"
    shown += f"; or {', '.join(candidates)}" if candidates else ""
    return [
        "# A draft: check every place marked `confirm: true`, then remove the mark; publish refuses until then.",
        "# Bounds must hold for every possible row and must not follow from the rows at hand. Which column is free",
        "# text, empty or an id, and how many digits of a decimal are kept, are facts of the rows at hand too.",
        "dpsql: 1",
        f"name: {quoted(name)}",
        "source:",
        f"  kind: {reader.kind.name}",
        f"  root: {quoted(root)}",
        *csv,
        "  tables:",
        *places,
        "privacy:",
        *question,
        f"  unit: {quoted(roles.whose.unit)}  # {shown}",
        f"  lineage: {quoted(f'{name}_{unit}' if unit else name)}  # all releases about them draw on one cap",
        f"  cap: {choices.cap or CAP}  # most that these people may ever lose",
        f"  epsilon: {choices.epsilon or EPSILON}  # what this release spends",
        f"  delta: {'1e-6' if bounded else '0'}",
        *(["  confirm: true"] if None in (choices.unit, choices.epsilon, choices.cap) else []),
    ]


def _place(table: TableFacts, reader: SelectReader, roles: TableRoles) -> str:
    """Its file; a public one in which rows stand twice is read without the second ones."""
    if table.repeated is None or table.name not in roles.public or reader.kind in (CSV, POSTGRESQL):
        return table.place
    columns = ", ".join(f'"{column.name}"' for column in table.columns)
    return f"SELECT DISTINCT {columns} FROM '{table.place}'"


def _table(
    table: TableFacts,
    links: Links,
    roles: TableRoles,
    asked: Sequence[DerivedQuery],
    guess: PublicGuess | None,
) -> list[str]:
    if table.people_of:
        return _people_lines(table, links)
    is_fact, is_public = table.name in roles.facts, table.name in roles.public
    key, foreign = links.keys[table.name], links.foreign[table.name]
    aside = "  # a bridge: its rows link others" if table.name in roles.bridges else ""
    lines = [f"  {quoted(table.name)}:{aside}", f"    role: {'fact' if is_fact else 'dimension'}"]
    lines += [f"    key: {quoted(key)}"] if key is not None else []
    if not is_fact:
        lines += [f"    private: {'false  # anybody may see its rows' if is_public else 'true'}"]
    unlisted = links.unlisted[table.name]
    of_people = table.name in roles.people
    value_columns = links.values(table)
    by_rows = not is_public and any(left_out(column, of_people=of_people).by_rows for column in value_columns)
    headless = [column.name for column in table.columns if column.guessed and _VALUE.fullmatch(column.name)]
    nobodys = _nobodys(table, roles)
    marked = unlisted or nobodys or by_rows or headless or table.left_out
    lines += ["    confirm: true"] if marked else []
    lines += ["    # numbers or dates in its first line: is that a row, not a header?"] if headless else []
    unread = f"    # {table.left_out:,} of its lines {NO_ROWS}. Private: remove this line too."
    lines += [unread] if table.left_out else []
    if foreign:
        named = {column: quoted(target) for column, target in foreign.items()}
        named |= {column: f"{{references: {named[column]}, nullable: true}}" for column in nobodys}
        pairs = ", ".join(f"{quoted(column)}: {target}" for column, target in named.items())
        lines.append(f"    foreign_keys: {{{pairs}}}")
    if [target for _, target in links.ways(table.name)].count(roles.unit_table or "") > 1:
        own_keys = ", ".join(map(quoted, roles.paths[table.name]))
        lines.append(f"    unit_path: [{own_keys}]  # of several ways to whose rows these are")
    lines += [
        f"    # {visible(column)}: {_percent(share)} of its rows name no row of {foreign[column]}. "
        "Private: remove this line too."
        for column, share in unlisted.items()
    ]
    counted = table.name in roles.counted
    drafted = (
        public_domain(column) if is_public else domain_of(column, counted=counted, of_people=of_people)
        for column in value_columns
    )
    domains = [domain for domain in drafted if domain is not None]
    if is_public and key is not None and (numbers := table.column(key)).guessed and numbers.nature is WHOLE:
        # keys of a text file are texts, which sort 1, 10, 2, unless they are declared
        domains = [Domain(key, (f"type: {WHOLE.word}",), numbers.distinct), *domains]
    if roles.unit_table in links.reached(table.name) and counted:
        lines.append(
            "    max_ids: auto  # rows of a unit that count, chosen when publishing; better: a limit by rule"
        )
        if guess is not None:
            means = {d.name: guess.means[d.name] for d in domains if d.measure and d.name in guess.means}
            stated = guess.model_copy(update={"means": means}).model_dump(exclude_defaults=True)
            text = yaml.safe_dump(stated, default_flow_style=True, sort_keys=False, width=float("inf"))
            lines.append(f"    guess: {text.strip()}")
    measures = sum(domain.measure for domain in domains)
    if 0 < measures * EXCESS_SHARE <= MOST_SPENT:
        lines.append(
            f"    excess_share: {float(EXCESS_SHARE)}  # of the budget: how many values lie beyond bounds"
        )
    derived = {} if is_public else derived_columns(table, domains, asked)
    expressions = ", ".join(f"{quoted(d.name)}: {quoted(text)}" for text, d in derived.items())
    lines += [f"    derive: {{{expressions}}}  # used by the questions"] if derived else []
    domains += derived.values()
    lines += ["    columns:", *(f"      {domain.line}" for domain in domains)] if domains else []
    rare = [] if is_public else [c.name for c in value_columns if c.rare and c.values]
    unlisted_values = f"values of fewer than {FEWEST_PEOPLE} people are not listed and count as (other)"
    lines += [f"    # {', '.join(map(visible, rare))}: {unlisted_values}"] if rare else []
    why = "" if is_public else reasons(value_columns, of_people=of_people)
    checked = "; check it against every possible row" if by_rows else ""
    lines += [f"    # left out: {visible(why)}{checked}"] if why else []
    texts = () if is_public else (column for column in value_columns if column.readings)
    lines += [f"    # {visible(c.name)}, read as it is written: {visible(reading_lines(c))}" for c in texts]
    return lines


def _people_lines(table: TableFacts, links: Links) -> list[str]:
    """A table of people that is made of another one's rows; its columns are declared there."""
    foreign = links.foreign[table.name]
    names = [c.name for c in links.values(table) if domain_of(c, counted=True, of_people=True)]
    pairs = ", ".join(f"{quoted(column)}: {quoted(target)}" for column, target in foreign.items())
    return [
        f"  {quoted(table.name)}:  # one row a person; of several values of a column the least by its text, by rule",
        f"    people_of: {quoted(table.people_of)}",
        f"    key: {quoted(str(links.keys[table.name]))}",
        *([f"    foreign_keys: {{{pairs}}}"] if pairs else []),
        f"    columns: [{', '.join(map(quoted, names))}]  # that are about her, not about one row; declared below",
    ]


def _percent(share: float) -> str:
    """A part of the rows in whole percents, which say little about any one of them."""
    return f"{share:.0%}" if share >= 0.01 else "less than 1%"


class DraftWorkload(NamedTuple):
    """Questions that a release is for, and about how many units and rows there are, in public."""

    statements: Sequence[str]
    guess: Guess | None = None


def allowing(text: str) -> str:
    r"""A drafted catalog whose views let noisy numbers choose how they are measured.

    >>> print(allowing("name: a\nviews:\n  x: {of: t, measures: [count]}\n  y:\n    of: t\n"), end="")
    name: a
    views:
      x: {of: t, measures: [count], data_dependent: allow}
      y:
        data_dependent: allow
        of: t
    """
    head, mark, views = text.rpartition("\nviews:\n")
    lines = []
    for line in views.split("\n"):
        is_view = re.match(r"  \S", line) is not None
        lines.append(f"{line[:-1]}, data_dependent: allow}}" if is_view and line.endswith("}") else line)
        lines += ["    data_dependent: allow"] if is_view and line.endswith(":") else []
    return head + mark + "\n".join(lines)


def draft_from_source(
    source: str | Path,
    output: Path,
    name: str | None,
    ask: Callable[[Sketch], CuratorChoices],
    workload: DraftWorkload | None = None,
    encoding: str = "utf-8",
) -> CatalogDraft:
    """Write a first catalog.

    Args:
        source: a folder of Parquet or CSV files, one such file, a DuckDB file, or `postgresql://..`.
        output: the catalog; must not exist.
        name: its name; the source's own unless given.
        ask: shown what was found, says what only the curator can.
        workload: questions that the views are designed for; without them each table gets first views.
        encoding: of CSV files.

    Returns:
        The draft, which is written to the output.

    Raises:
        SourceError: nothing readable there.
        InterfaceError: the output exists, or an answer names no table.
    """
    if output.exists():
        raise InterfaceError(f"{output} exists", hint="choose another output, or remove it")
    with closing(open_reader(source, encoding)) as reader:
        first_draft = draft(name or called(source), reader, ask, workload.statements if workload else ())
    parse_catalog(first_draft.text, str(output))
    if workload is not None:
        # counts by each column that the views of the questions lack: what is asked next
        designed = design_catalog(first_draft.text, output, workload.statements, workload.guess, keep=True)
        first_draft = replace(first_draft, text=designed.text, design=designed)
    if first_draft.allows:
        first_draft = replace(first_draft, text=allowing(first_draft.text))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(first_draft.text, encoding="utf-8")
    return first_draft
