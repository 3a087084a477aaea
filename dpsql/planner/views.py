"""Listings of what a release can answer, and how well: `SHOW VIEWS`, or `information_schema.dp_views`.

| column | says |
|---|---|
| view_name, table_name | the view, and the table whose rows it counts |
| axes, measures | what may stand in WHERE and GROUP BY together, and what is counted and summed |
| cells | how many combinations of leaves it holds |
| keys | of private keys how many are shown, of about how many people, and the part of rows in OTHER |
| error_total | standard error of COUNT(*) over all of the view |
| error_half | the same over the middle half of every axis at once |

Errors are `DP_STDERR` of that view's count, in rows (or people). NULL where a view counts nothing, does not answer that
question, or where the interval has an open end.

**Privacy**: follows from the catalog and published variances.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from dpsql.catalog import Catalog
from dpsql.catalog.columns import Column
from dpsql.catalog.graph import COUNTS
from dpsql.errors import NoViewError
from dpsql.executor.recombine import answer_terms
from dpsql.executor.run import run
from dpsql.executor.small_numbers import is_few
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, STDERR
from dpsql.intervals.estimated import nullable
from dpsql.planner.answerability import listed_words, unanswerable_reason
from dpsql.planner.block import one
from dpsql.planner.plan import ReleaseView, one_group, plan_of_leaves, views_of
from dpsql.planner.schema import INFORMATION, Listing, Schema, data_type
from dpsql.planner.terms import Term
from dpsql.release import Release, StatisticMeta
from dpsql.row_expressions import identifier as quoted
from dpsql.sql.from_clause import RowRelation, wide_source
from dpsql.sql.statement import Statement

NAME = "dp_views"
SHOW = re.compile(r"\s*+show\s++views\s*+;?\s*+", re.IGNORECASE)
STATEMENT = f"SELECT * FROM information_schema.{NAME} ORDER BY table_name, cells, view_name"


class ViewRow(NamedTuple):
    """A row of the listing, as the table above says."""

    view_name: str
    table_name: str
    axes: str
    measures: str
    cells: int
    keys: str | None
    error_total: float | None
    error_half: float | None


VIEWS = {NAME: ViewRow._fields}
"""Its name and columns."""
TYPES = ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "BIGINT", "VARCHAR", "DOUBLE", "DOUBLE")


def shown(text: str) -> str:
    """The statement that `SHOW VIEWS` stands for; any other text as it is.

    >>> shown("show views;")
    'SELECT * FROM information_schema.dp_views ORDER BY table_name, cells, view_name'
    >>> shown("SELECT 1")
    'SELECT 1'
    """
    return STATEMENT if SHOW.fullmatch(text) else text


def list_views(release: Release) -> list[ViewRow]:
    """The views of a release, with the error to expect of each.

    Args:
        release: an open release.
    """
    names = dict.fromkeys(s.view for s in release.statistics if release.declares(s.view))
    return [_row(release, name, [s for s in release.statistics if s.view == name]) for name in names]


def listings(release: Release, schema: Schema, statement: Statement) -> list[Listing]:
    """Listings that a statement reads instead of answers: tables of information_schema, those that other engines
    have too and the views, and rows of public tables."""
    public = [_public_rows(release, schema, name) for name in statement.public_tables]
    if not statement.catalog_tables:
        return public
    rows = list_views(release)
    columns = tuple([row[i] for row in rows] for i in range(len(TYPES)))
    return [
        *public,
        *information_tables(schema, release.catalog),
        Listing(f"dp_{NAME}", ViewRow._fields, TYPES, columns),
    ]


def information_tables(schema: Schema, catalog: Catalog) -> list[Listing]:
    """The relations dp_tables, dp_columns and dp_schemata: name, columns, DuckDB types, values."""
    columns: list[tuple[str, str, str]] = []
    for table in schema.tables.values():
        columns += [
            (table.name, name, data_type(table.types.get(name, ""))) for name in table.columns.values()
        ]
    for wide, fact in schema.wide().items():
        root = schema.table(fact)
        if root is not None:
            source = wide_source(RowRelation(), schema, root, wide)
            kinds = {name: kind for _, name, kind in columns}
            columns += [(wide, name, kinds.get(name, "VARCHAR")) for name in source.names.values()]
    names = list(dict.fromkeys(name for name, _, _ in columns))
    database, wide_names, position = schema.name, schema.wide(), Counter[str]()
    rows: dict[str, list[tuple[Any, ...]]] = {"tables": [], "columns": [], "schemata": [(database, "main")]}
    for name in names:
        rows["tables"].append((database, "main", name, "VIEW" if name in wide_names else "BASE TABLE"))
    known = {
        name: precision(spec) for table in catalog.tables.values() for name, spec in table.columns.items()
    }
    for table_name, name, kind in columns:
        position[table_name] += 1
        own = catalog.tables[table_name].columns.get(name) if table_name in catalog.tables else None
        unit = known.get(name) if own is None else precision(own)
        rows["columns"].append(
            (database, "main", table_name, name, position[table_name], None, "YES", kind, unit)
        )
    return [
        Listing(
            f"dp_{table}", fields, tuple("INTEGER" if f == "ordinal_position" else "VARCHAR" for f in fields),
            tuple([row[i] for row in rows[table]] for i in range(len(fields))),
        )
        for table, fields in INFORMATION.items()
    ]  # fmt: skip


def _public_rows(release: Release, schema: Schema, name: str) -> Listing:
    """The rows of a public table, as the axis has them that is as fine as its key.

    Raises:
        NoViewError: no axis of this release is.
    """
    public_rows = schema.public_rows(name)
    if public_rows is None:
        raise NoViewError(f"no axis has the rows of {name}", hint="name the release that has them")
    number, columns = public_rows
    fields = ", ".join(quoted(column.name) for column in columns)
    rows = run(release, f"SELECT {fields} FROM axis_{number} WHERE kind = 0 ORDER BY atom").rows
    values = tuple([row[i] for row in rows] for i in range(len(columns)))
    types = tuple(column.type for column in columns)
    return Listing(quoted(f"dp_public_{name}"), tuple(quoted(c.column) for c in columns), types, values)


def _row(release: Release, name: str, statistics: list[StatisticMeta]) -> ViewRow:
    first = statistics[0]
    axes = [release.axes[axis] for axis in first.axes]
    measure = next((s.measure for s in statistics if s.measure in COUNTS), None)
    errors: list[float | None] = [None, None]
    keys: str | None = None
    if measure is not None:
        view = next(v for v in views_of(release) if v.name == name and measure in v.statistics)
        leaves = [release.axes[axis].leaves for axis in view.axes]
        keys = "; ".join(listed_words(release, view)) or None
        selections = (
            [range(n) for n in leaves],
            [range(n) if n < 4 else range(n // 4, n - n // 4) for n in leaves],
        )
        errors = [_error(release, view, Term(measure), selection) for selection in selections]
    return ViewRow(
        name, first.of, ", ".join(axis.name for axis in axes), ", ".join(s.measure for s in statistics), first.cells,
        keys, *errors,
    )  # fmt: skip


def _error(release: Release, view: ReleaseView, term: Term, ranges: Sequence[range]) -> float | None:
    """`DP_STDERR` of a view's own count over some leaves of each axis; None where its interval has an open end."""
    answered = answer_terms(plan_of_leaves(release, view, ranges), [term], one_group(view), release)
    if unanswerable_reason(answered.plan, [term], release) or is_few(term, answered)[0]:
        return None
    return nullable(STDERR.values(Composite.of_form(one(term), answered), DEFAULT_LEVEL))[0]


def precision(column: Column) -> str | None:
    """The unit in which a release knows a column: `hour`, `day`, `0.1`; None where values are what they are.

    >>> precision(Column(type="decimal", scale=1)), precision(Column(type="timestamp", grain="hour"))
    ('0.1', 'hour')
    """
    if column.type == "timestamp":
        return column.grain
    if column.type in ("int", "decimal"):
        return format(Decimal(1).scaleb(-column.digits), "f")
    return "day" if column.type == "date" else None
