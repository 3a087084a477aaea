"""`generate_series(first, last[, step])` in FROM: a public list between constants, for days without a row.

**Privacy**: it reads no release.
"""

from __future__ import annotations

import duckdb
from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.executor.run import run_apart
from dpsql.row_expressions.expression import Node
from dpsql.sql.parse import refusal
from dpsql.sql.statement import RewrittenQuery, named

MOST_STEPS = 100_000
"""Rows of a series: the hours of eleven years."""


SERIES = (exp.ExplodingGenerateSeries, exp.GenerateSeries)


def is_series(node: Node) -> bool:
    """True if a source of FROM is a series."""
    return isinstance(node, exp.Table) and isinstance(node.this, SERIES)


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
    if len(ends) == 3 and not _is_number(ends[2]):
        ends = [
            exp.cast(end, kind)
            for end, kind in zip(ends, ("TIMESTAMP", "TIMESTAMP", "INTERVAL"), strict=True)
        ]
    series = exp.Anonymous(this="generate_series", expressions=ends)
    _check_length(series, call)
    name = node.alias or "generate_series"
    columns = alias.args.get("columns") if alias is not None else None
    column = columns[0].name if columns else name
    table = exp.Table(
        this=series, alias=exp.TableAlias(this=exp.to_identifier("s"), columns=[exp.to_identifier("n")])
    )
    select = exp.Select(expressions=[named(exp.column("n", "s"), column)]).from_(table)
    node.replace(exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True))))
    return name, RewrittenQuery(select, [column], [{}], unique=frozenset({column.lower()}))


def _is_number(node: Node) -> bool:
    inner = node.this if isinstance(node, (exp.Neg, exp.Paren)) else node
    return isinstance(inner, exp.Literal) and not inner.is_string


def _check_length(series: Node, call: Node) -> None:
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
