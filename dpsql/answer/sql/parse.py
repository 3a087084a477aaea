"""One statement, in any dialect the parser reads, as a tree."""

from __future__ import annotations

from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from dpsql.answer.sql.refuse import refusal
from dpsql.answer.sql.settings import read_change
from dpsql.errors import InterfaceError, SqlSyntaxError
from dpsql.sql.guard import check_text
from dpsql.sql.node import Node

DEFAULT_DIALECT = "duckdb"


def parse(text: str, dialect: str = "") -> Node:
    """Guard the text and parse its one statement.

    Args:
        text: the statement.
        dialect: a sqlglot dialect; empty for the default, which reads DuckDB and Postgres.

    Returns:
        A query: SELECT, set operation or parenthesised query.

    Raises:
        SqlSyntaxError: a guard's limit, not parsable, not exactly one statement, not a query.
        InterfaceError: unknown dialect.
    """
    reader = known_dialect(dialect)
    check_text(text)
    try:
        found = [each for each in sqlglot.parse(text, read=reader) if each is not None]
    except ParseError as error:
        raise _located(error) from error
    except (
        SqlglotError,
        RecursionError,
        ValueError,
        IndexError,
        AttributeError,
        TypeError,
        KeyError,
    ) as error:
        # the tokenizer raises plain Python errors on some broken input
        raise SqlSyntaxError("the statement does not parse", hint="check quotes and brackets") from error
    if len(found) != 1:
        raise SqlSyntaxError(f"there are {len(found)} statements", hint="send exactly one")
    tree = found[0]
    while isinstance(tree, exp.Subquery) and not tree.alias:
        tree = tree.this
    if not isinstance(tree, exp.Query):
        raise refusal(
            SqlSyntaxError,
            f"{type(tree).__name__.upper()} is not a query",
            at=tree,
            hint=_instead(text),
            clause="statement",
        )
    return tree


def _instead(text: str) -> str:
    """What to do instead of a statement that is no query: a lone question has no session to set things for."""
    change = read_change(text)
    if change is None or change.verb == "SHOW":
        return "a release only answers SELECT"
    return "set it in a connection, the shell or the server; for one question pass nonnegative=True"


@lru_cache(maxsize=64)
def known_dialect(dialect: str) -> str:
    """The dialect's name, checked."""
    name = dialect.strip().lower() or DEFAULT_DIALECT
    try:
        sqlglot.Dialect.get_or_raise(name)
    except (ValueError, SqlglotError) as error:
        hint = "for instance duckdb, postgres, tsql"
        raise InterfaceError(f"there is no SQL dialect {dialect!r}", hint=hint) from error
    return name


def _located(error: ParseError) -> SqlSyntaxError:
    detail = error.errors[0] if error.errors else {}
    highlight = str(detail.get("highlight") or "")
    place = f" near {highlight[:40]!r}" if highlight.strip() else ""
    line, column = detail.get("line"), detail.get("col")
    at = f" at line {line}, column {column}" if line else ""
    return refusal(
        SqlSyntaxError,
        f"the statement does not parse{at}{place}",
        clause="statement",
        hint="check the spelling there, or name its dialect",
    )
