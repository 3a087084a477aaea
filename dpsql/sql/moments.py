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
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.catalog.moments import PREFIX
from dpsql.errors import NotSupportedError
from dpsql.row_expressions.expression import Node
from dpsql.sql.binding import Binding, declared_measures
from dpsql.sql.parse import refusal

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
        square = f"{instance.table.name}.{PREFIX}{name}"
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
    measure = f"{instance.table.name}.{name}"
    return measure in binding.schema.measures and f"count({measure})" not in binding.schema.measures


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
