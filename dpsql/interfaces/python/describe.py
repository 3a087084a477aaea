"""The star of a release in words: tables, the wide table, columns with type, domain and use.

What introspection shows everywhere: the shell's `\\d`, SQLAlchemy's inspector, the wire server's catalogue.
All of it stands in the release's public catalog; nothing here depends on data. `complete` offers its words, and
SQL's, where people type.

Example questions are those that a release answers well, made of the same, each with how far its numbers may be off:

| here | meaning |
|---|---|
| total | COUNT(*), SUM or AVG of one counted table: the release's headline numbers |
| grouping | a column of an axis with at most `MOST_GROUPS` values, or its bins or months |
| error | relative: standard error over published value, the median over an answer's rows |

Standard errors are predicted by the release's variance model; the values beside them are published. A question that
cuts a bin, or that no view answers, is left out.

**Privacy**: post-processing; asks the open releases as everybody may.
"""

from __future__ import annotations

import logging
import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

from dpsql.catalog.columns import Column
from dpsql.catalog.tables import Table
from dpsql.errors import Error
from dpsql.executor.run import run
from dpsql.federation.session import OpenReleases
from dpsql.intervals.errorfunctions import ERRORS
from dpsql.planner.schema import Schema, SchemaTable, data_type, read_schema
from dpsql.release import AxisMeta, ColumnMeta, Release
from dpsql.release.request import check, requested
from dpsql.results.render import NUMBERS
from dpsql.results.result import Result
from dpsql.row_expressions import identifier

AXIS, MEASURE, KEY, UNPUBLISHED = "axis", "measure", "key", "not published"


@dataclass(frozen=True)
class ColumnInfo:
    """One column as analysts see it.

    Args:
        name, type: the column and its SQL type.
        nullable: whether it may be NULL.
        use: `axis`, `measure`, `key` or `not published`.
        comment: domain, unit and description in words.
        values: its categories, where the catalog lists them; for completion.
        origin: `table.column` that it stands for.
    """

    name: str
    type: str
    nullable: bool
    use: str
    comment: str
    values: tuple[str, ...] = ()
    origin: str = ""


@dataclass(frozen=True)
class TableInfo:
    """One table as analysts see it.

    Args:
        name: the table.
        of: the table whose rows it has: its own, or the fact that is widened.
        kind: `fact`, `dimension` or `wide`.
        columns: in catalog order.
        key: primary key column, or None.
        references: foreign key column -> (table, key).
        comment: one line.
    """

    name: str
    of: str
    kind: str
    columns: tuple[ColumnInfo, ...]
    key: str | None
    references: Mapping[str, tuple[str, str]]
    comment: str


def describe(release: Release) -> tuple[TableInfo, ...]:
    """The tables of a release; the wide tables come last.

    Args:
        release: an open release.

    Returns:
        One entry for each table that a statement may name.
    """
    schema = read_schema(release)
    entries = release.catalog.tables
    tables = [_table(release, schema, table, entries[table.name]) for table in schema.tables.values()]
    by_name = {table.name.lower(): table for table in tables}
    return (*tables, *(_wide(schema, name, fact, by_name) for name, fact in schema.wide().items()))


def widest(tables: Iterable[TableInfo], of: str) -> TableInfo:
    """The table to ask about the rows of a counted table: the wide one where there is one, else itself."""
    return [table for table in tables if table.of == of][-1]


def asked_name(axis: AxisMeta, wanted: ColumnMeta, tables: Sequence[TableInfo]) -> str:
    """An axis's column as a statement over the widest table of its rows names it."""
    origin = f"{wanted.table}.{wanted.column}".lower()
    for table in reversed(tables):  # the wide ones first
        for column in table.columns:
            if column.origin.lower() == origin and table.of == axis.of:
                return column.name
    return wanted.column


def _table(release: Release, schema: Schema, table: SchemaTable, star_table: Table) -> TableInfo:
    columns = tuple(_column(release, schema, table, name, star_table) for name in table.columns.values())
    references = {
        column: (target, str(target_table.key))
        for column, target in table.foreign_keys.items()
        if (target_table := schema.table(target)) is not None and target_table.key
    }
    counting = {s.view for s in release.statistics if s.of.lower() == table.name.lower()}
    views = sorted(view for view in counting if release.declares(view))
    counted = f"rows are counted by {', '.join(views)}" if views else "joined to other tables"
    comment = "; ".join(filter(None, [star_table.description, counted]))
    kind = "fact" if table.fact else "dimension"
    return TableInfo(table.name, table.name, kind, columns, table.key, references, comment)


def _wide(schema: Schema, name: str, fact: str, by_name: Mapping[str, TableInfo]) -> TableInfo:
    from dpsql.sql.from_clause import RowRelation, wide_source

    root = schema.tables[fact.lower()]
    rows = RowRelation()
    source = wide_source(rows, schema, root, name)
    columns = []
    for low, spelled in source.names.items():
        instance, column = rows.of(source.columns[low])  # type: ignore[arg-type]  # of a wide table all are columns
        of_table = by_name[instance.table.name.lower()].columns
        base = next(c for c in of_table if c.name.lower() == column.lower())
        columns.append(replace(base, name=spelled, nullable=base.nullable or instance.left))
    comment = f"{fact} with the columns of every dimension it refers to"
    return TableInfo(name, fact, "wide", tuple(columns), None, {}, comment)


def _column(release: Release, schema: Schema, table: SchemaTable, name: str, star_table: Table) -> ColumnInfo:
    declared = star_table.columns.get(name)
    axes = [
        (axis, column)
        for axis in release.axes
        for column in axis.columns
        if column.table.lower() == table.name.lower() and column.column.lower() == name.lower()
    ]
    measured = f"{table.name}.{name}" in schema.measures
    is_key = name == table.key or name in table.foreign_keys
    if axes:
        kind = axes[0][1].type
    elif name in table.measures:
        kind = "DOUBLE"
    else:
        kind = "BIGINT" if is_key and name not in table.types else data_type(table.types.get(name, ""))
    uses = (AXIS if axes else "", MEASURE if measured else "", KEY if is_key else "")
    use = ", ".join(filter(None, uses)) or UNPUBLISHED
    nullable = name in table.nullable
    described = "" if declared is None else " ".join(declared.description.split())
    comment = "; ".join(filter(None, [described, _domain(declared), use]))
    values = (() if declared is None else declared.listed) or _listed(release, axes)
    return ColumnInfo(name, kind, nullable, use, comment, values, f"{table.name}.{name}")


def _domain(declared: Column | None) -> str:
    """Bounds or categories in words.

    >>> _domain(Column(type="int", lower="18", upper="89"))
    '18 to 89'
    """
    if declared is None:
        return ""
    if declared.lower is not None:
        return f"{declared.lower} to {declared.upper}"
    remainder = f" and {len(declared.listed) - 8} more" if len(declared.listed) > 8 else ""
    return ", ".join(declared.listed[:8]) + remainder


def _listed(release: Release, axes: list[Any], limit: int = 200) -> tuple[str, ...]:
    """Text values of a public dimension's column, straight from its axis table."""
    for axis, column in axes:
        if column.type == "VARCHAR":
            source = f"axis_{release.axes.index(axis)} WHERE kind = 0 LIMIT {limit + 1}"
            text = f"SELECT DISTINCT {identifier(column.name)} FROM {source}"
            rows = run(release, text).rows
            words = sorted(str(row[0]) for row in rows if row[0] is not None)
            return tuple(words) if len(rows) <= limit else ()
    return ()


KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "OFFSET", "JOIN", "LEFT JOIN"),
    *("USING", "ON", "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "CASE", "WHEN"),
    *("THEN", "ELSE", "END", "AS", "DISTINCT", "WITH", "UNION ALL", "ASC", "DESC", "FILTER"),
)
FUNCTIONS = (
    *("COUNT(", "SUM(", "AVG(", "MIN(", "MAX(", "MEDIAN(", "DATE_TRUNC(", "EXTRACT(", "YEAR(", "MONTH("),
    *("FLOOR(", "ROUND(", "COALESCE("),
)
QUOTED = re.compile(r"(?:^|[^'])'([^']*)$")
COMPARED = re.compile(
    r"([\w.\"]+)\s*(?:=|<>|!=|(?:NOT\s+)?(?:I?LIKE|IN\s*\((?:\s*'[^']*'\s*,)*))\s*'[^']*$", re.I
)
WORD = re.compile(r"[\w.]*$")
AFTER_TABLE_WORD = re.compile(r"\b(?:FROM|JOIN)\s+[\w.]*$", re.IGNORECASE)


class Words:
    """Completions that the open releases offer: tables and columns with their comments, columns of each table, and
    categories of columns.

    Args:
        tables: of the releases.
    """

    def __init__(self, tables: Iterable[TableInfo]) -> None:
        self.tables: dict[str, str] = {}
        self.columns: dict[str, str] = {}
        self.owned: dict[str, tuple[str, ...]] = {}
        self.values: dict[str, tuple[str, ...]] = {}
        for table in tables:
            self.tables[table.name] = table.comment
            self.owned[table.name.lower()] = tuple(c.name for c in table.columns)
            for column in table.columns:
                self.columns.setdefault(column.name, f"{column.type}, {column.comment}")
                if column.values:
                    self.values.setdefault(column.name.lower(), column.values)


Suggestion = tuple[str, int, str]
"""A word that may stand there, how many characters before the cursor it replaces, and what it is."""


def complete(words: Words, before: str) -> Iterator[Suggestion]:
    """Words that may go on from the text before the cursor.

    Args:
        words: of the open releases.
        before: a statement up to the cursor.

    Yields:
        Category values inside a quoted text, a table's columns after its name and a dot, tables after FROM and JOIN;
        elsewhere columns, tables, functions and keywords.

    >>> words = Words([])
    >>> words.tables["sales"], words.columns["sold_on"], words.owned["sales"] = "", "DATE", ("sold_on",)
    >>> [word for word, _, _ in complete(words, "SELECT s")]
    ['sold_on', 'sales', 'SUM(', 'SELECT']
    """
    quoted = QUOTED.search(before)
    if quoted:
        compared = COMPARED.search(before)
        column = compared.group(1).replace('"', "").split(".")[-1].lower() if compared else ""
        yield from offered(quoted.group(1), dict.fromkeys(words.values.get(column, ()), column))
        return
    match = WORD.search(before)
    word = match.group() if match else ""
    owner, dot, prefix = word.rpartition(".")
    if dot:
        names = words.owned.get(owner.lower().split(".")[-1], ())
        yield from offered(prefix, {name: words.columns.get(name, "") for name in names})
    elif AFTER_TABLE_WORD.search(before):
        yield from offered(word, words.tables)
    elif word:
        functions = (*FUNCTIONS, *(f"{name.upper()}(" for name in ERRORS))
        yield from offered(
            word, {**words.columns, **words.tables, **dict.fromkeys((*functions, *KEYWORDS), "")}
        )


def offered(part: str, words: Mapping[str, str]) -> Iterator[Suggestion]:
    """Those of some words, with their comments, that begin with what was typed, in any case."""
    for word, comment in words.items():
        if word.lower().startswith(part.lower()):
            yield word, len(part), comment


WELL = 0.1
"""A question is answered well up to this relative error."""
MOST_GROUPS, MOST_PAIRS = 40, 60
MOST_TRIED, MOST_OF_A_GROUPING = 48, 2
SECONDS = 10.0
"""For all candidates together."""
LOG = logging.getLogger(__name__)
FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a mistake of ours raises: one example is left out, and the page or report has all others."""
PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
PARTS_OF_TIME = {"month": 31, "quarter": 92, "year": 366}
STEPS = (1, 2, 5)


class ExampleQuestion(NamedTuple):
    """A question in words and in SQL; `topic` is what it groups by."""

    words: str
    sql: str
    topic: str = ""


RatedQuestion = tuple[ExampleQuestion, Result, float]
"""A question, its answer, and its relative error."""


class GroupExpression(NamedTuple):
    """An expression to group by, its name in the answer, how many values it has, and itself in words."""

    sql: str
    name: str
    values: int
    words: str

    @property
    def selected(self) -> str:
        """As an item of a select list."""
        return self.sql if self.sql == self.name else f"{self.sql} AS {self.name}"


CountedTable = tuple[str, str, list[tuple[str, str]]]
"""A counted table: how a statement names it, its own name, and aggregates of its groups, in words and as items of a
select list: the count, then average and sum of each measure."""


def totals(releases: OpenReleases) -> list[RatedQuestion]:
    """The headline numbers: rows of every counted table, and sum and average of its measures, as far as answered."""
    return _rated(releases, headlines(releases))


def well_answered(releases: OpenReleases, most: int) -> list[RatedQuestion]:
    """Grouped questions whose relative error is at most `WELL`, the best first; no more than two by one grouping.

    Args:
        releases: who is asked.
        most: how many are wanted.
    """
    chosen, topics = list[RatedQuestion](), Counter[str]()
    for rated in sorted(_rated(releases, groupings(releases)[:MOST_TRIED]), key=lambda rated: rated[2]):
        question, _, error = rated
        topics[question.topic] += 1
        if error <= WELL and topics[question.topic] <= MOST_OF_A_GROUPING:
            chosen.append(rated)
    return chosen[:most]


def headlines(releases: OpenReleases) -> list[ExampleQuestion]:
    """Totals and averages of every counted table."""
    questions: list[ExampleQuestion] = []
    for release in releases.releases:
        for of in dict.fromkeys(s.of for s in release.statistics):
            source, _, (count, *others) = _counted(release, of, releases, describe(release))
            sums_first = [item for pair in zip(others[1::2], others[::2], strict=True) for item in pair]
            questions += [
                ExampleQuestion(words, f"SELECT {value} FROM {source}")
                for words, value in (count, *sums_first)
            ]
    return questions


def groupings(releases: OpenReleases, most: int = MOST_PAIRS) -> list[ExampleQuestion]:
    """The same by one column, or by two of one view that have at most so many groups together."""
    return [question for release in releases.releases for question in _grouped(release, releases, most)]


def _rated(releases: OpenReleases, questions: Iterable[ExampleQuestion]) -> list[RatedQuestion]:
    rated = []
    with requested() as request:
        until = time.monotonic() + SECONDS
        for question in dict.fromkeys(questions):
            try:
                with request.within(until - time.monotonic()):
                    answer = releases.query(question.sql).rounded()
                    error = _relative_error(answer)
            except Error:
                check()  # whoever waits may have left
                continue  # a candidate that these releases do not answer, or not in time, is no example
            except FAULTS as fault:
                LOG.warning("an example was left out (%s): %s", type(fault).__name__, question.sql)
                continue
            if error is not None:
                rated.append((question, answer, error))
    return rated


def _relative_error(answer: Result) -> float | None:
    """The median over rows; None where a bin is cut, or where no row has an error."""
    if not answer.rows or not answer.noisy:
        return None
    c = answer.noisy[-1]
    if any(row[c] != 0 for row in answer.model_bound):
        return None
    relative_errors = [
        math.inf if error[c] is None else error[c] / abs(float(row[c]))
        for row, noise, error in zip(answer.rows, answer.noise_rows, answer.stderr_rows, strict=True)
        if isinstance(row[c], NUMBERS) and row[c] and noise[c] is not None
    ]
    return statistics.median(relative_errors) if relative_errors else None


def _grouped(release: Release, releases: OpenReleases, most: int) -> Iterator[ExampleQuestion]:
    """One grouping after the other, then pairs of one view."""
    pairs = []
    seen: set[tuple[str, str]] = set()
    for counted, groupings in together(release, releases):
        pairs += [(counted, pair) for pair in combinations(groupings, 2)]
        for by in groupings:
            if (counted[1], by.sql) not in seen:
                seen.add((counted[1], by.sql))
                yield from _by(counted, (by,))
    for counted, pair in pairs:
        if math.prod(by.values for by in pair) <= most:
            yield from _by(counted, pair)


def together(
    release: Release, releases: OpenReleases
) -> Iterator[tuple[CountedTable, tuple[GroupExpression, ...]]]:
    """Compatible groupings: each counted table with the groupings of one of its views.

    Args:
        release: one of the open releases.
        releases: all of them, which decide how a table is named.
    """
    tables = describe(release)
    for of in dict.fromkeys(s.of for s in release.statistics):
        counted = _counted(release, of, releases, tables)
        for axes in dict.fromkeys(s.axes for s in release.statistics if s.of == of):
            groupings = (_grouping(release, axis, tables) for axis in axes)
            yield counted, tuple(grouping for grouping in groupings if grouping is not None)


def _by(counted: CountedTable, groupings: tuple[GroupExpression, ...]) -> Iterator[ExampleQuestion]:
    keys = ", ".join(by.selected for by in groupings)
    order = ", ".join(str(i) for i in range(1, len(groupings) + 1))
    words = " and ".join(by.words for by in groupings)
    source, rows, aggregates = counted
    for title, value in aggregates:
        sql = f"SELECT {keys}, {value}\nFROM {source}\nGROUP BY {order} ORDER BY {order}"
        yield ExampleQuestion(f"{title} by {words}", sql, f"{rows} {words}")


def _counted(
    release: Release, of: str, releases: OpenReleases, tables: tuple[TableInfo, ...]
) -> CountedTable:
    alike = len({opened.catalog.population for opened in releases.releases}) == 1
    prefix = "" if len(releases.releases) == 1 or alike else f"{_spelled(release.name)}."
    summed = {s.measure.column for s in release.statistics if s.of == of and not s.measure.is_count}
    aggregates = [(f"count of {of}", "COUNT(*) AS n")]
    for measure in sorted(summed):
        aggregates.append((f"average {measure}", f"AVG({_spelled(measure)}) AS average"))
        aggregates.append((f"sum of {measure}", f"SUM({_spelled(measure)}) AS total"))
    return prefix + _spelled(widest(tables, of).name), of, aggregates


def _grouping(release: Release, number: int, tables: tuple[TableInfo, ...]) -> GroupExpression | None:
    """The first column of an axis that has few values, or few bins; a key only where nothing else does."""
    axis = release.axes[number]
    keys = {(table.name, table.key) for table in tables}
    for column in sorted(axis.columns, key=lambda column: (column.table, column.column) in keys):
        name = identifier(column.name)
        picked = f"count(DISTINCT {name}), min({name}), max({name})"
        row = run(release, f"SELECT {picked} FROM axis_{number} WHERE kind = 0").rows[0]
        if row[1] is None or row[0] < 2:
            continue
        ends = f"SELECT min({name}), max({name}) FROM axis_{number} WHERE kind = 0 GROUP BY leaf"
        leaves = [(low, high) for low, high in run(release, ends).rows]
        asked = _spelled(asked_name(axis, column, tables))
        if grouping := _few(asked, column, int(row[0]), row[1], row[2], leaves):
            return grouping
    return None


def _few(
    name: str, column: ColumnMeta, values: int, low: Any, high: Any, leaves: Sequence[tuple[Any, Any]] = ()
) -> GroupExpression | None:
    """A grouping with at most `MOST_GROUPS` values that cuts no leaf of numbers.

    >>> column = ColumnMeta((), "t", "age", "age", "BIGINT")
    >>> _few("age", column, 72, 18, 89).sql, _few("age", column, 5, 1, 5).sql
    ('FLOOR(age / 2) * 2', 'age')
    >>> _few("age", column, 72, 18, 89, [(18, 19), (20, 24), (25, 29), (30, 39)]).sql
    'FLOOR(age / 10) * 10'
    """
    if column.type == "DATE" or column.type.startswith("TIMESTAMP"):
        days = (high - low).days + 1  # both are dates, or both timestamps
        for period, length in PARTS_OF_TIME.items():
            if days <= MOST_GROUPS * length:
                return GroupExpression(
                    f"DATE_TRUNC('{period}', {name})", period, -(-days // length), f"{period} of {name}"
                )
        return None
    text = column.type in ("VARCHAR", "BOOLEAN")
    if values <= MOST_GROUPS and (text or all(first == last for first, last in leaves)):
        return GroupExpression(name, name, values, name)
    if text:
        return None
    span = float(high) - float(low)
    steps = (s * 10**e for e in range(-6, 16) for s in STEPS if span / (s * 10**e) <= MOST_GROUPS)
    step = next((step for step in steps if span < step or _whole(leaves, step)), span)
    if span <= step:
        return None
    return GroupExpression(
        f"FLOOR({name} / {step}) * {step}", name, round(span / step) + 1, f"{name} in steps of {step}"
    )


def _whole(leaves: Sequence[tuple[Any, Any]], step: float) -> bool:
    """True if no leaf lies in two steps."""
    return all(float(first) // step == float(last) // step for first, last in leaves)


def _spelled(name: str) -> str:
    """A name as people write it: quoted only where it must be.

    >>> _spelled("age"), _spelled("Sold On")
    ('age', '"Sold On"')
    """
    return name if PLAIN.fullmatch(name) else identifier(name)
