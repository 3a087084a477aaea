"""Types of expressions, as far as a division, an integer cast and a sum need them.

Only what is certain has a type: `whole` numbers, other `numbers` and `days`. Where PostgreSQL and others divide whole
numbers, the quotient is cut towards 0: `age / 10` is 1 for every age from 10 to 19.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.row_expressions.expression import Node
from dpsql.sql.parse import refusal

Kind = Literal["whole", "number", "day"]
KindOf = Callable[[exp.Column], Kind | None]

WHOLE_CALLS = (
    exp.Length, exp.StrPosition, exp.Ascii, exp.Year, exp.Month, exp.Day, exp.Quarter, exp.Week, exp.WeekOfYear,
    exp.DayOfWeek, exp.DayOfWeekIso, exp.DayOfMonth, exp.DayOfYear, exp.Hour, exp.Minute, exp.Second, exp.DateDiff,
    exp.TsOrDsDiff, exp.IntDiv, exp.Sign,
)  # fmt: skip
NUMBER_CALLS = (exp.Sqrt, exp.Exp, exp.Ln, exp.Log, exp.Floor, exp.Ceil, exp.Round, exp.Trunc)
ALIKE = (exp.Coalesce, exp.Greatest, exp.Least)
"""Calls whose value is one of their arguments."""
MOST_DIGITS = 2
"""Casts to decimals of at least so many digits after the point are taken for exact: amounts of money have no more."""
DAYS = (exp.TsOrDsToDate, exp.DateStrToDate, exp.Date)


def kind_of_type(name: str) -> Kind | None:
    """The kind of a DuckDB or catalog type.

    >>> kind_of_type("BIGINT"), kind_of_type("DECIMAL(18,0)"), kind_of_type("decimal"), kind_of_type("VARCHAR")
    ('whole', 'number', 'number', None)
    """
    word = name.upper().partition("(")[0]
    if word in ("INT", "INTEGER", "BIGINT", "SMALLINT", "TINYINT", "HUGEINT", "UBIGINT", "UINTEGER"):
        return "whole"
    if word in ("DECIMAL", "DOUBLE", "FLOAT", "REAL", "NUMERIC"):
        return "number"
    return "day" if word == "DATE" else None


def kind(node: Node, column: KindOf) -> Kind | None:
    """The kind of an expression's values; None where nothing says.

    Args:
        node: an expression.
        column: the kind of a column.
    """
    if isinstance(node, exp.Column):
        return column(node)
    if isinstance(node, exp.Literal):
        return None if node.is_string else "whole" if str(node.this).isdecimal() else "number"
    if isinstance(node, (exp.Paren, exp.Neg, exp.Abs, exp.Nullif, exp.Min, exp.Max)):
        return kind(node.this, column)
    if isinstance(node, exp.Cast):
        return kind_of_type(node.to.sql("duckdb"))
    if isinstance(node, exp.Extract):
        return "number" if node.meta.get("fractional") else "whole"
    if isinstance(node, WHOLE_CALLS):
        return "whole"
    if isinstance(node, NUMBER_CALLS):
        return "number"
    if isinstance(node, DAYS):
        return "day"
    if isinstance(node, ALIKE):
        return _common([node.this, *node.expressions], column)
    if isinstance(node, exp.Case):
        return _common(
            [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")], column
        )
    if isinstance(node, exp.Div):
        return (
            "number" if {kind(node.left, column), kind(node.right, column)} <= {"whole", "number"} else None
        )
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Mod)):
        return _chain(node, column)
    return None


def _chain(node: exp.Binary, column: KindOf) -> Kind | None:
    """The kind of a chain of operations, from its first operand on: chains are as long as a statement."""
    links: list[exp.Binary] = []
    first: Node = node
    while isinstance(first, (exp.Add, exp.Sub, exp.Mul, exp.Mod)):
        links.append(first)
        first = first.left
    left_kind = kind(first, column)
    for link in reversed(links):
        right_kind = kind(link.right, column)
        if left_kind == right_kind == "day":
            left_kind = "whole" if isinstance(link, exp.Sub) else None
        else:
            left_kind = _shared({left_kind, right_kind}) if "day" not in (left_kind, right_kind) else None
    return left_kind


def _common(nodes: list[Node | None], column: KindOf) -> Kind | None:
    """The kind that values of several expressions share."""
    return _shared(
        {kind(node, column) for node in nodes if node is not None and not isinstance(node, exp.Null)}
    )


def _shared(value_kinds: set[Kind | None]) -> Kind | None:
    """The kind of all: whole numbers are numbers too."""
    if len(value_kinds) == 2 and value_kinds.issuperset(("whole", "number")):
        return "number"
    return next(iter(value_kinds)) if len(value_kinds) == 1 else None


def typed(node: Node, column: KindOf) -> Node:
    """An expression whose quotients of whole numbers and integer casts are those of its dialect.

    Args:
        node: changed in place.
        column: the kind of a column.

    Returns:
        The expression.
    """
    for descendant in reversed(list(node.walk(bfs=False))):
        if isinstance(descendant.parent, exp.Query) and descendant is not node:
            continue
        new = _division(descendant, column) if isinstance(descendant, exp.Div) else descendant
        if isinstance(descendant, exp.Cast):
            new = _cast(descendant, column)
        if isinstance(descendant, exp.AtTimeZone) and _is_day(descendant.this, column):
            raise refusal(
                NotSupportedError, "AT TIME ZONE of a day, which systems take for midnight in different zones",
                at=descendant, hint="cast it first: day::timestamptz AT TIME ZONE 'Europe/Riga'",
            )  # fmt: skip
        if new is not descendant and descendant is node:
            node = new
        elif new is not descendant:
            descendant.replace(new)
    return node


def _is_day(node: Node, column: KindOf) -> bool:
    """True if a time zone stands at a column of days, which `dialects` has cast as it would a time."""
    return isinstance(node, exp.Cast) and not node.meta.get("zoned") and kind(node.this, column) == "day"


def _division(node: exp.Div, column: KindOf) -> Node:
    if not node.args.get("typed") or {kind(node.left, column), kind(node.right, column)} != {"whole"}:
        return node
    return exp.IntDiv(this=node.left.copy(), expression=node.right.copy())


def _cast(node: exp.Cast, column: KindOf) -> Node:
    """A cast that may change a number says so: its sum is not the number's."""
    integer = node.to.this in exp.DataType.INTEGER_TYPES
    if kind(node.this, column) != "number" or not (integer or node.to.this == exp.DataType.Type.DECIMAL):
        return node
    node.meta["rounds"] = integer or _digits(node.to) < MOST_DIGITS
    if node.meta.pop("truncates", False) and integer:
        node.set("this", exp.Trunc(this=node.this.copy()))
    return node


def _digits(target: exp.DataType) -> int:
    """Digits after the point of a decimal type, as DuckDB reads it."""
    parameters = target.expressions
    return int(parameters[1].name) if len(parameters) > 1 else 0 if parameters else 3
