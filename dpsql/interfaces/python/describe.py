"""The star of a release in words: tables, the wide table, columns with type, domain and use.

What introspection shows everywhere: the shell's `\\d`, SQLAlchemy's inspector, the wire server's catalogue.
All of it stands in the release's public catalog; nothing here depends on data. `complete` offers its words, and
SQL's, where people type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpsql.catalog.columns import Column
from dpsql.catalog.tables import Table
from dpsql.executor.run import run
from dpsql.intervals.errorfunctions import ERRORS
from dpsql.planner.schema import Schema, SchemaTable, data_type, read_schema
from dpsql.release import AxisMeta, ColumnMeta, Release
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
