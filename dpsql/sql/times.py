"""Times of a statement: the fields that a catalog derives, the clock, and series of days.

**Fields.** `EXTRACT(HOUR FROM sold_at)` is the column `sold_hour` where a view has that:

    tables: {sales: {derive: {sold_hour: "hour(sold_at)"}, columns: {sold_hour: {type: int, lower: 0, upper: 23}}}}

An axis of 24 hours errs by far less than the hours of a year added up. Where a SELECT also asks for the time itself,
a field is replaced only if some view has both.

**Clock.** `CURRENT_DATE`, `NOW()` and others are the moment at which a statement began, in UTC:

| written | becomes |
|---|---|
| `CURRENT_DATE`, `CURDATE()`, `today()` | `DATE '2026-11-26'` |
| `NOW()`, `CURRENT_TIMESTAMP`, `LOCALTIMESTAMP`, `GETDATE()` | `TIMESTAMP '2026-11-26 11:05:33'` |

Every call of one statement is the same moment, and a note under the answer states it. What is kept of a statement (its
answer, its shape) is not used for the next one that reads the clock.

**Series.** `generate_series(first, last[, step])` in FROM is a public list between constants, for days without a row.

**Privacy**: reads a statement and the catalog, no release.
"""

from __future__ import annotations

from datetime import datetime

import duckdb
from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.executor.run import run_apart
from dpsql.planner.schema import Schema
from dpsql.release.request import moment
from dpsql.row_expressions.expression import Node, calendar_field, column_name
from dpsql.sql.from_clause import base_tables
from dpsql.sql.parse import named, number, output_name, refusal
from dpsql.sql.statement import RewrittenQuery


def map_fields(tree: Node, schema: Schema) -> None:
    """Replace every field of a time by the column that holds it.

    Args:
        tree: a parsed statement; changed in place.
        schema: the star.
    """
    if not schema.fields:
        return
    for select in list(tree.find_all(exp.Select)):
        sources = base_tables(select, schema)
        calls = [
            (node, field)
            for node in select.find_all(exp.Expression)
            if node.find_ancestor(exp.Select) is select and (field := calendar_field(node)) is not None
        ]
        inside = {id(column) for node, _ in calls for column in node.find_all(exp.Column)}
        plain = {column_name(c) for c in select.find_all(exp.Column) if id(c) not in inside}
        for node, field in calls:
            # no field where several tables could be meant
            tables = [
                table
                for called, named in sources.items()
                if field.table.lower() in ("", called)
                for table in named
                if table.column(field.column) is not None
            ]
            key = (tables[0].name.lower(), field.column.lower(), field.name) if len(tables) == 1 else None
            name = None if key is None else schema.fields.get(key)
            if name is not None and ((field.table, field.column) not in plain or key in schema.beside):
                held: Node = exp.column(name, table=field.table or None, quoted=True)
                shown = node.parent is select and node.arg_key == "expressions"
                node.replace(exp.alias_(held, output_name(node), quoted=True) if shown else held)


DATES = (exp.CurrentDate,)
TIMES = (exp.CurrentTimestamp, exp.Localtimestamp, exp.CurrentDatetime)
NAMED_DATES = frozenset({"today", "curdate"})
NAMED_TIMES = frozenset({
    "getdate", "getutcdate", "sysdatetime", "sysutcdatetime", "get_current_timestamp", "transaction_timestamp",
    "statement_timestamp", "clock_timestamp", "sysdate", "now",
})  # fmt: skip


def fold_clock(tree: Node) -> tuple[Node, datetime | None]:
    """Write the moment at which the request began in place of the clock.

    Args:
        tree: a parsed statement; changed in place.

    Returns:
        The statement, and that moment in UTC without its zone; None where it does not read the clock.
    """
    dates = [node for node in tree.walk() if _is_clock(node, DATES, NAMED_DATES)]
    times = [node for node in tree.walk() if _is_clock(node, TIMES, NAMED_TIMES)]
    if not dates and not times:
        return tree, None
    now = moment().replace(tzinfo=None, microsecond=0)
    for calls, value, kind in ((dates, now.date(), "DATE"), (times, now, "TIMESTAMP")):
        for call in calls:
            literal = exp.cast(exp.Literal.string(str(value)), kind)
            literal.meta["zoned"] = kind == "TIMESTAMP"
            call.replace(literal)
    return tree, now


def _is_clock(node: Node, types: tuple[type[Node], ...], names: frozenset[str]) -> bool:
    """True if a node reads the clock: by its type, or as a call that the parser has no type for."""
    called = isinstance(node, exp.Anonymous) and not node.expressions and str(node.this).lower() in names
    return called or isinstance(node, types)


MOST_STEPS = 100_000
"""Rows of a series: the hours of eleven years."""
SERIES = (exp.ExplodingGenerateSeries, exp.GenerateSeries)


def read_series(node: Node) -> tuple[str, RewrittenQuery]:
    """Put a derived table in the place of a series.

    Args:
        node: the call in FROM, its parts on the lists; replaced.

    Returns:
        Its alias and its shape.

    Raises:
        NotSupportedError: its ends are computed from other tables, or too far apart.
    """
    call, alias = node.this, node.args.get("alias")
    if call.args.get("is_end_exclusive"):
        raise refusal(
            NotSupportedError, "RANGE leaves out its end", at=call, clause="FROM", hint="use generate_series"
        )
    if call.find(exp.Column, exp.Query, exp.AggFunc):
        raise refusal(
            NotSupportedError, "generate_series between ends that are computed from tables", at=call, clause="FROM",
            hint="write them as constants, such as DATE '2025-01-31' or CURRENT_DATE",
        )  # fmt: skip
    ends = [call.args[key] for key in ("start", "end", "step") if call.args.get(key) is not None]
    if len(ends) == 3 and number(ends[2]) is None:
        ends = [
            exp.cast(end, kind)
            for end, kind in zip(ends, ("TIMESTAMP", "TIMESTAMP", "INTERVAL"), strict=True)
        ]
    series = exp.Anonymous(this="generate_series", expressions=ends)
    counted = f"SELECT COUNT(*) FROM (SELECT 1 FROM {series.sql('duckdb')} LIMIT {MOST_STEPS + 1})"
    try:
        steps = run_apart(counted, []).rows[0][0]
    except duckdb.Error as error:
        raise refusal(
            NotSupportedError, "generate_series with these ends and this step", at=call, clause="FROM",
            hint="write generate_series(DATE '2025-01-01', DATE '2025-01-31', INTERVAL '1 day')",
        ) from error  # fmt: skip
    if steps > MOST_STEPS:
        raise refusal(
            NotSupportedError, f"generate_series of more than {MOST_STEPS} rows", at=call, clause="FROM",
            hint="take longer steps",
        )  # fmt: skip
    name = node.alias or "generate_series"
    columns = alias.args.get("columns") if alias is not None else None
    column = columns[0].name if columns else name
    table = exp.Table(
        this=series, alias=exp.TableAlias(this=exp.to_identifier("s"), columns=[exp.to_identifier("n")])
    )
    select = exp.Select(expressions=[named(exp.column("n", "s"), column)]).from_(table)
    node.replace(exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True))))
    return name, RewrittenQuery(select, [column], [{}], unique=frozenset({column.lower()}))
