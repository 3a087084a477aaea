"""STDDEV, VARIANCE, COVAR and CORR -> averages of squares and products, whose errors are known.

| asked | answered, v = x - c |
|---|---|
| `VAR_POP(x)` | `GREATEST(AVG(v * v) - AVG(v) * AVG(v), AVG(v) * 0 + 0)`: never below 0, NULL for nobody |
| `STDDEV_POP(x)` | its root |
| `VARIANCE(x)`, `STDDEV(x)` | both sides times n / (n - 1), n = `SUM(v * 0 + 1)`: the rows that the sums count |
| `COVAR_POP(x, y)` | `AVG(x * y) - AVG(x) * AVG(y)` over rows where both are known |
| `CORR(x, y)` | that over the root of the product of both variances |

x is an expression of one axis, with c = 0, or a measure whose squares about c a view has (`squares(sales.amount)`). A
value of an axis is known where the catalog's domain has it.

**Source**: docs/method/views.md, "Variances of values".

Expressions that statements sum are what a table could declare as measures, with bounds that follow from columns.

**Privacy**: a function of statements and declared bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import sqlglot
from sqlglot import exp

from dpsql.catalog.base import SQUARES_OF, MeasureName
from dpsql.errors import NotSupportedError
from dpsql.row_expressions.expression import Node
from dpsql.sql.binding import Binding, declared_measures
from dpsql.sql.parse import parse, refusal

ROOTS = (exp.Stddev, exp.StddevSamp, exp.StddevPop)
WHOLE = (exp.StddevPop, exp.VariancePop, exp.CovarPop, exp.Corr)
"""Moments of all rows, without n / (n - 1)."""
OF_ONE = (*ROOTS, exp.Variance, exp.VariancePop)
OF_TWO = (exp.CovarPop, exp.CovarSamp, exp.Corr)


def expand_moment(binding: Binding, call: Node) -> Node | None:
    """A moment as arithmetic over aggregates; None for any other call.

    Args:
        binding: the rows.
        call: a resolved aggregate, FILTER included.

    Raises:
        NotSupportedError: no view has what it is made of.
    """
    test = call.expression.this if isinstance(call, exp.Filter) else None
    moment = call.this if isinstance(call, exp.Filter) else call
    if isinstance(moment, OF_ONE):
        value = _centred(binding, moment)
        variance = _variance(value, test, sample=not isinstance(moment, WHOLE))
        return exp.Sqrt(this=variance) if isinstance(moment, ROOTS) else variance
    if not isinstance(moment, OF_TWO):
        return None
    sides = moment.this, moment.expression
    known = [None if _always_there(binding, side) else _one_each(side) for side in sides]
    covariance = _difference(*sides, test, known[::-1])
    if isinstance(moment, exp.Corr):
        centred = [_centred(binding, exp.VariancePop(this=side.copy())) for side in sides]
        variances = [_variance(side, test, other) for side, other in zip(centred, known[::-1], strict=True)]
        roots = exp.Sqrt(this=exp.Mul(this=variances[0], expression=variances[1]))
        return _over(covariance, roots)
    return covariance if isinstance(moment, WHOLE) else _of_sample(covariance, _product(*sides), test)


def _centred(binding: Binding, moment: Node) -> Node:
    """Expression that is squared: one axis's, or a measure about the middle of its bounds."""
    value: Node = moment.this
    while isinstance(value, exp.Paren) or (isinstance(value, exp.Cast) and not value.meta.get("rounds")):
        value = value.this
    if isinstance(value, exp.Column):
        instance, name = binding.rows.of(value)
        square = MeasureName(f"{instance.table.name}.{SQUARES_OF}{name}")
        body = declared_measures(binding).get(square)
        if square in binding.schema.measures and isinstance(body, exp.Mul) and body.left == body.right:
            centred: Node = body.left.unnest()
            if isinstance(centred, exp.Sub) and centred.left == value:
                return centred
        if f"{instance.table.name}.{name}" in binding.schema.measures:
            raise refusal(
                NotSupportedError, f"no view has squares of {instance.table.name}.{name}", at=moment, clause="SELECT",
                hint=f"ask the curator for `squares({instance.table.name}.{name})` alongside it in a view",
            )  # fmt: skip
    if binding.of_one_axis(value):
        return value
    raise refusal(
        NotSupportedError, f"{moment.key.upper()} needs a measure or an axis of the release", at=moment,
        clause="SELECT", hint="name a column of an axis, or a measure whose squares a view has",
    )  # fmt: skip


def _always_there(binding: Binding, value: Node) -> bool:
    """True if an expression is a measure that is never NULL."""
    if not isinstance(value, exp.Column):
        return False
    instance, name = binding.rows.of(value)
    measure = MeasureName(f"{instance.table.name}.{name}")
    return measure in binding.schema.measures and measure.counted not in binding.schema.measures


def _where(call: Node, test: Node | None) -> Node:
    """An aggregate over the rows that meet a test."""
    return call if test is None else exp.Filter(this=call, expression=exp.Where(this=test.copy()))


def _product(first: Node, second: Node | None) -> Node:
    if second is None:
        return first
    sides = [exp.Paren(this=side.copy()) for side in (first, second)]
    return exp.Mul(this=sides[0], expression=sides[1])


def _one_each(value: Node) -> Node:
    """1 of each row whose value is known."""
    nothing = exp.Mul(this=exp.Paren(this=value.copy()), expression=exp.Literal.number(0))
    return exp.Add(this=nothing, expression=exp.Literal.number(1))


def _difference(
    first: Node,
    second: Node,
    test: Node | None,
    known: Sequence[Node | None] = (None, None),
    product_known: Node | None = None,
) -> Node:
    """AVG(xy) - AVG(x) AVG(y).

    Args:
        first, second: x and y.
        test: which rows count.
        known: of x and of y, what else has to be known of a row; 1 where it is.
        product_known: the same of xy.
    """
    product = _where(exp.Avg(this=_product(_product(first, second), product_known)), test)
    averages = [
        _where(exp.Avg(this=_product(side.copy(), other)), test)
        for side, other in zip((first, second), known, strict=True)
    ]
    return exp.Paren(this=exp.Sub(this=product, expression=exp.Mul(this=averages[0], expression=averages[1])))


def _variance(value: Node, test: Node | None, known: Node | None = None, sample: bool = False) -> Node:
    """AVG(xx) - AVG(x)^2, never below 0. GREATEST takes what is not NULL, so its 0 is NULL where the variance is."""
    spread = _difference(value, value, test, (known, known), known)
    there = _where(exp.Avg(this=_product(value.copy(), known)), test)
    if sample:
        spread, there = _of_sample(spread, value, test), _of_sample(there, value, test)
    nothing = exp.Mul(this=exp.Paren(this=there), expression=exp.Literal.number(0))
    return exp.Greatest(this=spread, expressions=[exp.Add(this=nothing, expression=exp.Literal.number(0))])


def _of_sample(moment: Node, value: Node, test: Node | None) -> Node:
    """Times n / (n - 1), n the rows that the sums count."""
    rows = _where(exp.Sum(this=_one_each(value)), test)
    fewer = exp.Paren(this=exp.Sub(this=rows.copy(), expression=exp.Literal.number(1)))
    return exp.Mul(this=moment, expression=exp.Paren(this=_over(rows, fewer)))


def _over(above: Node, below: Node) -> Node:
    return exp.Div(this=above, expression=exp.Nullif(this=below, expression=exp.Literal.number(0)))


MOST_DIGITS = 4


class Summed(NamedTuple):
    """An expression inside SUM or AVG.

    Args:
        sql: DuckDB text over bare column names.
        columns: the columns in it, in small letters.
        name: what the statement calls its sum, or nothing.
    """

    sql: str
    columns: frozenset[str]
    name: str


class Range(NamedTuple):
    """Value range: inclusive bounds, and decimal digits."""

    low: Fraction
    high: Fraction
    scale: int


def summed_expressions(text: str) -> Iterator[Summed]:
    """Products, sums and differences of columns that a statement sums.

    Args:
        text: one statement.

    Raises:
        ProgrammingError: it is not SQL.

    >>> [each.sql for each in summed_expressions("SELECT SUM(s.price * s.qty) AS revenue, AVG(x), SUM(2 * y) FROM s")]
    ['price * qty']
    """
    for node in parse(text, "").find_all(exp.Sum, exp.Avg):
        inner = node.this.unnest() if isinstance(node.this, exp.Paren) else node.this
        columns = frozenset(column.name.lower() for column in inner.find_all(exp.Column))
        if (
            isinstance(inner, (exp.Mul, exp.Add, exp.Sub))
            and len(columns) > 1
            and not inner.find(exp.Case, exp.AggFunc)
        ):
            alias = node.parent.alias if isinstance(node.parent, exp.Alias) else ""
            yield Summed(_bare(inner).sql(dialect="duckdb"), columns, alias)


def squared(text: str) -> frozenset[str]:
    """Columns, in lower case, of whose values a statement asks a variance, or what is made of one.

    Args:
        text: one statement.

    Raises:
        ProgrammingError: it is not SQL.

    >>> sorted(squared("SELECT SUM(a), STDDEV(b), CORR(s.C, d) FROM s"))
    ['b', 'c', 'd']
    """
    moments = parse(text, "").find_all(*OF_ONE, exp.Corr)
    return frozenset(column.name.lower() for moment in moments for column in moment.find_all(exp.Column))


def _bare(node: Node) -> Node:
    """The expression without table names and quotes that it does not need."""
    return node.copy().transform(
        lambda descendant: (
            exp.column(descendant.name, quoted=not descendant.name.isidentifier())
            if isinstance(descendant, exp.Column)
            else descendant
        )
    )


def same_expression(left: str, right: str) -> bool:
    """True if two expressions are the same, whatever their letters' case and brackets.

    >>> same_expression("A * b", "(b * a)")
    True
    """
    return _canonical(left) == _canonical(right)


def _canonical(text: str) -> str:
    node = sqlglot.parse_one(text.lower(), dialect="duckdb").transform(
        lambda descendant: descendant.this if isinstance(descendant, exp.Paren) else descendant
    )
    if isinstance(node, (exp.Mul, exp.Add)):
        return node.key + " ".join(sorted((node.left.sql(), node.right.sql())))
    return str(node.sql())


def range_of(text: str, columns: Mapping[str, Range]) -> Range | None:
    """Range of an expression given the ranges of its columns; None for functions that are not followed.

    Args:
        text: a DuckDB expression of numbers and columns with + - *.
        columns: name in small letters -> its range.

    >>> price, qty = Range(Fraction(0), Fraction(5), 2), Range(Fraction(1), Fraction(9), 0)
    >>> range_of("price * qty - 1", {"price": price, "qty": qty})
    Range(low=Fraction(-1, 1), high=Fraction(44, 1), scale=2)
    """
    return _range(sqlglot.parse_one(text, dialect="duckdb"), columns)


def _range(node: Node, columns: Mapping[str, Range]) -> Range | None:
    if isinstance(node, exp.Paren):
        return _range(node.this, columns)
    if isinstance(node, exp.Column):
        return columns.get(node.name.lower())
    if isinstance(node, exp.Literal) and not node.is_string:
        value = Fraction(node.this)
        return Range(value, value, len(node.this.partition(".")[2]))
    if not isinstance(node, (exp.Add, exp.Sub, exp.Mul)):
        return None
    left, right = _range(node.left, columns), _range(node.right, columns)
    if left is None or right is None:
        return None
    if isinstance(node, exp.Mul):
        ends = [a * b for a in left[:2] for b in right[:2]]
        return Range(min(ends), max(ends), min(left.scale + right.scale, MOST_DIGITS))
    scale = max(left.scale, right.scale)
    if isinstance(node, exp.Add):
        return Range(left.low + right.low, left.high + right.high, scale)
    return Range(left.low - right.high, left.high - right.low, scale)
