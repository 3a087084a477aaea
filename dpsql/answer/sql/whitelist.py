"""Which parts of SQL may reach DuckDB. One list for node types, one for functions; the rest is refused.

A query part passes if its node type stands on a list of `sql.functions`, or if it is a function
that the parser does not know and its name stands in NAMED. All of them are pure: no clock, no random
number, no file, no setting, so the same statement has the same answer.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.answer.sql.refuse import refusal
from dpsql.errors import NotSupportedError
from dpsql.sql.functions import (
    AGGREGATES,
    NAMED_OVER_ROWS,
    NAMED_SCALARS,
    OPERATORS,
    SCALARS,
    SHAPES,
    VALUES,
    WINDOWS,
    words,
)
from dpsql.sql.node import Node

NAMED_HERE = words("dp_stderr dp_interval_low dp_interval_high dp_bias_hint dp_model_bound")

NAMED = NAMED_SCALARS | NAMED_OVER_ROWS | NAMED_HERE

ALLOWED = SHAPES | VALUES | OPERATORS | SCALARS | AGGREGATES | WINDOWS

REASONS = {
    "Rand": "random numbers would make the answer differ from time to time",
    "CurrentDate": "the clock would make the answer differ from day to day; write the date as a literal",
    "CurrentTimestamp": "the clock would make the answer differ from day to day; write the date as a literal",
    "Placeholder": "a placeholder has no value here; bind it in execute()",
    "Parameter": "a placeholder has no value here; bind it in execute()",
    "Lateral": "a lateral join would read rows",
    "Exists": "a correlated subquery would read rows",
    "Pivot": "PIVOT is not supported; use COUNT(*) FILTER (WHERE ..)",
}


def check(tree: Node) -> None:
    """Refuse the statement if any part of it is not on the lists.

    Args:
        tree: a parsed statement.

    Raises:
        NotSupportedError: names the part, its place and, where there is one, the way round.
    """
    for node in tree.walk():
        name = type(node).__name__
        if name in ALLOWED:
            if isinstance(node, exp.Table):
                _check_table(node)
            if isinstance(node, exp.With) and node.args.get("recursive"):
                raise refusal(NotSupportedError, "recursive CTEs are not supported", clause="WITH", at=node)
            continue
        if isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc)):
            called = str(node.this).lower()
            if called in NAMED:
                continue
            raise refusal(
                NotSupportedError,
                f"function {called} is not on the list of pure functions",
                at=node,
                hint="docs/sql.md has the list",
            )
        reason = REASONS.get(name, f"{name} is not supported")
        raise refusal(
            NotSupportedError,
            reason,
            at=node if not isinstance(node, exp.Query) else None,
            hint="" if name in REASONS else "docs/sql.md lists what is",
        )


def _check_table(node: exp.Table) -> None:
    """A table is a plain name: no function, no file, no sample, no time travel."""
    extras = {k for k, v in node.args.items() if v} - {"this", "db", "catalog", "alias"}
    if extras or not isinstance(node.this, exp.Identifier):
        raise refusal(
            NotSupportedError,
            "FROM takes names of tables, not functions, files or samples",
            at=node,
            clause="FROM",
        )
