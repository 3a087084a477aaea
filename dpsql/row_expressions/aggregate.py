"""One aggregate of a person's rows, as a catalog's `is` or a statement writes it: parsed to a value, and one spelling.

    count(*) | count(x) | count(DISTINCT x) | sum(x) | min(x) | max(x) | nth(x, n) | nth(DISTINCT x, n)
    bool_or(c) | bool_and(c) | arg_min(y, x) | arg_max(y, x) | mode(x)             each with FILTER (WHERE c) if wanted

Arguments look at one row. Each aggregate is a function of the multiset of rows: no order of rows shows in it.
`spelling` writes two aggregates alike where names, AND, OR and comparisons are written in another order.

A condition of a FILTER is compared in words that all engines share: columns as whole units of their declared types,
texts by bytes, so it means the same whether a source stores texts, doubles or decimals.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from sqlglot import exp

from dpsql.catalog.columns import Column
from dpsql.errors import CatalogError
from dpsql.row_expressions.expression import ColumnName, Node, check_row, column_name, parse_one

CALLS: dict[type[Node], str] = {
    exp.Count: "count", exp.Sum: "sum", exp.Min: "min", exp.Max: "max", exp.LogicalOr: "bool_or",
    exp.LogicalAnd: "bool_and", exp.ArgMin: "arg_min", exp.ArgMax: "arg_max", exp.Mode: "mode",
}  # fmt: skip
NTH = "nth"
COUNTS = ("count", "sum")
"""Aggregates that grow with the number of rows, and are 0 without any."""
CONDITIONS = ("bool_or", "bool_and")

INSTEAD = {
    "Avg": "write a sum and a count, and divide them in `derive`",
    "Median": "a number of the order is `nth(x, n)`",
    "Window": "an aggregate of all her rows takes no OVER",
    "ArrayAgg": "a summary is one value; count, or take `mode`",
    "List": "a summary is one value; count, or take `mode`",
    "GroupConcat": "a summary is one value; count, or take `mode`",
    "Select": "a summary is one aggregate, without a query",
    "Subquery": "a summary is one aggregate, without a query",
    "Order": "a person's rows have no order; write `arg_min(y, x)`, or `nth(x, n)`",
    "AnyValue": "which row comes first is chance; write `min` or `mode`",
    "First": "which row comes first is chance; write `arg_min(y, x)`",
    "Last": "which row comes last is chance; write `arg_max(y, x)`",
}
HINT = "write count, sum, min, max, nth, bool_or, bool_and, arg_min, arg_max or mode; arithmetic goes to `derive`"

_COMPARISONS: dict[type[Node], type[Node]] = {
    exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.GT: exp.LT, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.LTE: exp.GTE,
}  # fmt: skip
"""Comparisons, and what each is with its sides exchanged."""


class Aggregate(NamedTuple):
    """One aggregate of rows.

    Args:
        function: its name.
        arguments: row expressions; none of COUNT(*).
        distinct: whether equal values count once.
        number: which value in order, of `nth`.
        condition: which rows it is over; None for all of them.
    """

    function: str
    arguments: tuple[Node, ...] = ()
    distinct: bool = False
    number: int = 0
    condition: Node | None = None

    @property
    def parts(self) -> tuple[Node, ...]:
        """Everything that looks at a row."""
        return (*self.arguments, *(() if self.condition is None else (self.condition,)))

    @property
    def grows(self) -> bool:
        """True if it counts or sums rows: 0 without any."""
        return self.function in COUNTS


@lru_cache(maxsize=1024)
def parse_aggregate(text: str) -> Aggregate:
    """Read the `is` of a summary.

    Args:
        text: SQL of one aggregate.

    Returns:
        The aggregate.

    Raises:
        CatalogError: it is something else, or looks at more than a row at a time inside; says what to write.

    >>> parse_aggregate("nth(sold_on, 2)").number
    2
    """
    tree = parse_one(text)
    call = read_call(tree)
    if call is None:
        names = [type(node).__name__ for node in tree.walk()]
        hint = next((INSTEAD[name] for name in names if name in INSTEAD), HINT)
        raise CatalogError("`is` is not one aggregate of her rows", hint=hint)
    for part in call.parts:
        for node in part.walk():
            if isinstance(node, exp.AggFunc | exp.Window | exp.Query | exp.Order):
                hint = INSTEAD.get(type(node).__name__, HINT)
                raise CatalogError(f"{type(node).__name__.upper()} is inside the aggregate", hint=hint)
        check_row(part)
    return call


def read_call(node: Node) -> Aggregate | None:
    """The aggregate that a call is; None where it is none that a summary may hold."""
    if isinstance(node, exp.Filter):
        inner, where = read_call(node.this), node.expression
        return None if inner is None else inner._replace(condition=both(where.this, inner.condition))
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == NTH:
        return _nth(node.expressions)
    function = CALLS.get(type(node))
    if function is None or any(value for name, value in node.args.items() if name not in _TAKEN):
        return None
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star | exp.Literal):
        return Aggregate("count")
    argument = node.this
    distinct = isinstance(argument, exp.Distinct)
    if distinct and (not isinstance(node, exp.Count) or len(argument.expressions) != 1):
        return None
    argument = argument.expressions[0] if distinct else argument
    second = node.args.get("expression")
    if argument is None or (second is None) == (function in ("arg_min", "arg_max")):
        return None
    return _folded(Aggregate(function, (argument, second) if second is not None else (argument,), distinct))


_TAKEN = ("this", "expression", "big_int")


def _nth(arguments: list[Node]) -> Aggregate | None:
    """nth(x, n), where DISTINCT takes both arguments for its own."""
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    value, *numbers = arguments[0].expressions if distinct else arguments or [exp.Null()]
    if len(numbers) != 1 or not isinstance(numbers[0], exp.Literal) or not str(numbers[0].this).isdecimal():
        return None
    number = int(numbers[0].this)
    return Aggregate(NTH, (value,), distinct, number) if 1 <= number <= 1000 else None


def _folded(call: Aggregate) -> Aggregate:
    """COUNT and SUM of a CASE with one branch, as the same over rows that meet its condition."""
    case = call.arguments[0]
    if call.function not in COUNTS or not isinstance(case, exp.Case) or case.this is not None:
        return call
    branches, otherwise = case.args["ifs"], case.args.get("default")
    zero = isinstance(otherwise, exp.Literal) and str(otherwise.this) == "0"
    if len(branches) != 1 or not (otherwise is None or isinstance(otherwise, exp.Null) or zero):
        return call
    then, test = branches[0].args["true"], branches[0].this
    number = isinstance(then, exp.Literal)
    # SUM of ones is NULL where there are none, unless zeros are added; COUNT counts the zeros too
    counted = number and (not zero if call.function == "count" else zero and str(then.this) == "1")
    if counted and not call.distinct:
        return Aggregate("count", condition=test)
    return call if call.distinct or zero or number else Aggregate(call.function, (then,), condition=test)


def both(first: Node, second: Node | None) -> Node:
    """The conjunction of two conditions; the second may be none."""
    return first if second is None else exp.and_(first.copy(), second.copy())


def spelling(call: Aggregate, name: Callable[[ColumnName], str]) -> str:
    """One text for all spellings of an aggregate.

    Args:
        call: the aggregate.
        name: one text for a column, however it is written.

    >>> text = lambda column: column.name
    >>> one, two = (parse_aggregate(f"count(*) FILTER (WHERE {c})") for c in ("b > 1 AND a = 'x'", "'x' = a AND 1 < b"))
    >>> spelling(one, text) == spelling(two, text)
    True
    """
    arguments = ", ".join(expression_spelling(argument, name) for argument in call.arguments) or "*"
    number = f", {call.number}" if call.number else ""
    filtered = f" where {expression_spelling(call.condition, name)}" if call.condition is not None else ""
    return f"{call.function}({'distinct ' if call.distinct else ''}{arguments}{number}){filtered}"


def expression_spelling(node: Node, name: Callable[[ColumnName], str]) -> str:
    """One text for all spellings of a row expression: order of AND, OR, IN and of the sides of a comparison."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And | exp.Or):
        tests = sorted({expression_spelling(test, name) for test in _flat(node, type(node))})
        return tests[0] if len(tests) == 1 else f"({f' {type(node).__name__.lower()} '.join(tests)})"
    if isinstance(node, exp.Not):
        return f"not {expression_spelling(node.this, name)}"
    if isinstance(node, exp.Between):
        low, high = node.args["low"], node.args["high"]
        return expression_spelling(
            exp.And(
                this=exp.GTE(this=node.this, expression=low),
                expression=exp.LTE(this=node.this, expression=high),
            ),
            name,
        )
    if isinstance(node, exp.In) and node.args.get("query") is None:
        values = sorted({_written(value, name) for value in node.expressions})
        value = _written(node.this, name)
        return f"{value} = {values[0]}" if len(values) == 1 else f"{value} in ({', '.join(values)})"
    exchanged = _COMPARISONS.get(type(node))
    if exchanged is not None:
        left, right, kind = node.this, node.expression, type(node)
        if left.find(exp.Column) is None and right.find(exp.Column) is not None:
            left, right, kind = right, left, exchanged
        sign = {"EQ": "=", "NEQ": "<>", "GT": ">", "LT": "<", "GTE": ">=", "LTE": "<="}[kind.__name__]
        return f"{_written(left, name)} {sign} {_written(right, name)}"
    return _written(node, name)


def _flat(node: Node, kind: type[Node]) -> list[Node]:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, kind):
        return [*_flat(node.this, kind), *_flat(node.expression, kind)]
    return [node]


def _written(node: Node, name: Callable[[ColumnName], str]) -> str:
    while isinstance(node, exp.Paren):
        node = node.this

    def renamed(inner: Node) -> Node:
        column = column_name(inner) if isinstance(inner, exp.Column) else None
        return inner if column is None else exp.Var(this=name(column))

    return str(node.transform(renamed).sql("duckdb", comments=False, normalize_functions="lower"))


def catalog_text(call: Aggregate, name: Callable[[exp.Column], str]) -> str:
    """An aggregate as a catalog's `is` writes it."""

    def text(node: Node) -> str:
        copy = node.copy().transform(lambda n: exp.Var(this=name(n)) if isinstance(n, exp.Column) else n)
        return str(copy.sql("duckdb", normalize_functions="lower"))

    arguments = ", ".join(map(text, call.arguments)) or "*"
    number = f", {call.number}" if call.number else ""
    filtered = "" if call.condition is None else f" FILTER (WHERE {text(call.condition)})"
    return f"{call.function}({'DISTINCT ' if call.distinct else ''}{arguments}{number}){filtered}"


SIGNS: dict[type[Node], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.LT: "<", exp.GTE: ">=", exp.LTE: "<=",
}  # fmt: skip

ColumnOf = Callable[[ColumnName], tuple[str, Column]]
"""A column -> SQL of its units, and what the catalog declares."""


class NotPlain(ValueError):
    """A condition that is more than AND, OR, NOT and comparisons of declared columns with exact constants."""


def comparison(node: Node, column: ColumnOf, text: Callable[[str], str]) -> str:
    """SQL of a condition over units.

    Args:
        node: a checked expression of one row.
        column: a column in units; may raise `NotPlain`.
        text: a text constant that is compared by bytes.

    Raises:
        NotPlain: it is more.
    """
    if isinstance(node, exp.Paren):
        return f"({comparison(node.this, column, text)})"
    if isinstance(node, exp.And | exp.Or):
        word = "AND" if isinstance(node, exp.And) else "OR"
        return f"({comparison(node.this, column, text)} {word} {comparison(node.expression, column, text)})"
    if isinstance(node, exp.Not):
        return f"(NOT {comparison(node.this, column, text)})"
    sign = SIGNS.get(type(node))
    if sign is not None and column_name(node.this) is None:
        name, spec = _units(node.expression, column)
        return f"({_constant(node.this, spec, text)} {sign} {name})"
    plain = not isinstance(node, exp.Column)
    name, spec = _units(node.this if plain else node, column)
    if sign is not None:
        return f"({name} {sign} {_constant(node.expression, spec, text)})"
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return f"({name} IS NULL)"
    if isinstance(node, exp.Between):
        low, high = (_constant(node.args[end], spec, text) for end in ("low", "high"))
        return f"({name} >= {low} AND {name} <= {high})"
    if isinstance(node, exp.In) and node.expressions:
        return f"({name} IN ({', '.join(_constant(value, spec, text) for value in node.expressions)}))"
    if plain or spec.type != "bool":
        raise NotPlain
    return f"({name} = 1)"


def _units(node: object, column: ColumnOf) -> tuple[str, Column]:
    name = column_name(node) if isinstance(node, Node) else None
    if name is None:
        raise NotPlain
    return column(name)


def _constant(node: Node, spec: Column, text: Callable[[str], str]) -> str:
    """A constant in units of a column's type."""
    if isinstance(node, exp.Boolean) and spec.type == "bool":
        return str(int(bool(node.this)))
    quoted = node.this if isinstance(node, exp.Cast) else node
    negative = isinstance(node, exp.Neg)
    number = node.this if negative else node
    if spec.type in ("int", "decimal"):
        if not isinstance(number, exp.Literal) or number.is_string:
            raise NotPlain
        return _exact(spec, f"-{number.this}" if negative else str(number.this))
    if not isinstance(quoted, exp.Literal) or not quoted.is_string:
        raise NotPlain
    if spec.type == "string":
        if quoted is not node:
            raise NotPlain
        return text(str(quoted.this))
    written = str(quoted.this)
    units = _exact(spec, written)
    if spec.text(int(units)).removesuffix(" 00:00:00") != written.removesuffix(" 00:00:00"):
        raise NotPlain  # finer than the column's grain
    return units


def _exact(spec: Column, written: str) -> str:
    try:
        return str(spec.units(written))
    except ValueError:
        raise NotPlain from None
