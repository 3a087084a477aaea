"""STDDEV, VARIANCE, COVAR and CORR -> averages of squares and products, whose errors are known.

| asked | answered, v = x - c |
|---|---|
| `VAR_POP(x)` | `GREATEST(AVG(v * v) - AVG(v) * AVG(v), 0)` |
| `STDDEV_POP(x)` | its root |
| `VARIANCE(x)`, `STDDEV(x)` | the same times n / (n - 1) |
| `COVAR_POP(x, y)` | `AVG(x * y) - AVG(x) * AVG(y)` over rows where both are present |
| `CORR(x, y)` | that over the root of the product of both variances |

x is an expression of one axis, with c = 0, or a measure whose squares about c a view has (`squares(sales.amount)`).

**Source**: docs/method/views.md, "Variances of values".
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.answer.sql.binding import Binding, declared_measures
from dpsql.answer.sql.parse import refusal
from dpsql.errors import NotSupportedError
from dpsql.star.moments import PREFIX
from dpsql.star.sql.expression import Node

ROOTS = (exp.Stddev, exp.StddevSamp, exp.StddevPop)
WHOLE = (exp.StddevPop, exp.VariancePop, exp.CovarPop, exp.Corr)
"""Moments of all rows, without n / (n - 1)."""
OF_ONE = (*ROOTS, exp.Variance, exp.VariancePop)
OF_TWO = (exp.CovarPop, exp.CovarSamp, exp.Corr)


def spelled_out(binding: Binding, call: Node) -> Node | None:
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
        variance = _variance(value, test)
        variance = variance if isinstance(moment, WHOLE) else _of_sample(variance, value, test)
        return exp.Sqrt(this=variance) if isinstance(moment, ROOTS) else variance
    if not isinstance(moment, OF_TWO):
        return None
    first, second = moment.this, moment.expression
    tests = [_present(side) for side in (first, second) if not _always_there(binding, side)]
    tests += [test] if test is not None else []
    both = exp.and_(*tests) if tests else None
    covariance = _difference(first, second, both)
    if isinstance(moment, exp.Corr):
        sides = [_centred(binding, exp.VariancePop(this=side.copy())) for side in (first, second)]
        squares = exp.Mul(this=_variance(sides[0], both), expression=_variance(sides[1], both))
        return _over(covariance, exp.Sqrt(this=squares))
    return covariance if isinstance(moment, WHOLE) else _of_sample(covariance, first, both)


def _centred(binding: Binding, moment: Node) -> Node:
    """What is squared: an expression of one axis, or a measure about the middle of its bounds."""
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
                hint=f"ask the curator for `squares({instance.table.name}.{name})` beside it in a view",
            )  # fmt: skip
    if binding.of_one_axis(value):
        return value
    raise refusal(
        NotSupportedError, f"{moment.key.upper()} of what is no measure or axis of the release", at=moment,
        clause="SELECT", hint="name a column of an axis, or a measure whose squares a view has",
    )  # fmt: skip


def _always_there(binding: Binding, value: Node) -> bool:
    """Whether an expression is a measure that is never NULL."""
    if not isinstance(value, exp.Column):
        return False
    instance, name = binding.rows.of(value)
    measure = f"{instance.table.name}.{name}"
    return measure in binding.schema.measures and f"count({measure})" not in binding.schema.measures


def _present(value: Node) -> Node:
    return exp.Not(this=exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null()))


def _where(call: Node, test: Node | None) -> Node:
    """An aggregate over the rows that meet a test."""
    return call if test is None else exp.Filter(this=call, expression=exp.Where(this=test.copy()))


def _difference(first: Node, second: Node, test: Node | None) -> Node:
    """AVG(xy) - AVG(x) AVG(y)."""
    sides = [exp.Paren(this=side.copy()) for side in (first, second)]
    product = _where(exp.Avg(this=exp.Mul(this=sides[0], expression=sides[1])), test)
    averages = [_where(exp.Avg(this=side.copy()), test) for side in (first, second)]
    return exp.Paren(this=exp.Sub(this=product, expression=exp.Mul(this=averages[0], expression=averages[1])))


def _variance(value: Node, test: Node | None) -> Node:
    return exp.Greatest(this=_difference(value, value, test), expressions=[exp.Literal.number(0)])


def _of_sample(moment: Node, value: Node, test: Node | None) -> Node:
    """Times n / (n - 1)."""
    rows = _where(exp.Count(this=value.copy()), test)
    fewer = exp.Paren(this=exp.Sub(this=rows.copy(), expression=exp.Literal.number(1)))
    return exp.Mul(this=moment, expression=exp.Paren(this=_over(rows, fewer)))


def _over(above: Node, below: Node) -> Node:
    return exp.Div(this=above, expression=exp.Nullif(this=below, expression=exp.Literal.number(0)))
