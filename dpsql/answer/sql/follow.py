"""How an expression moves with the noisy cells below it: its derivative, as DuckDB text beside the expression's own.

    n - LAG(n) OVER (ORDER BY month)        moves by 1 with this month's cell, by -1 with the last one's

A derivative is a list of cells with their weights, `[{c, w}, ..]`, that DuckDB computes as it computes the value: a sum
of groups joins their lists, a factor multiplies weights, a window or a scalar subquery collects lists as it collects
values. What is linear has exact weights. A quotient of two linear values keeps both, so that its interval can be
Fieller's; other products and quotients have the weights of the delta method, and a list of the denominators, for the
delta method holds only far from 0.

Where the choice of rows or branches hangs on noise there is no derivative, and the reason is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from sqlglot import exp

from dpsql.answer.sql.finite import unguarded
from dpsql.star.sql.expression import Node

CELLS = "STRUCT(c BIGINT, w DOUBLE)[]"
EMPTY = f"CAST([] AS {CELLS})"
NOWHERE = f"CAST([] AS STRUCT(b DOUBLE, g {CELLS})[])"


class Quotient(NamedTuple):
    """A quotient of two linear values: DuckDB text of both and of their cells."""

    above: str
    above_cells: str
    below: str
    below_cells: str


@dataclass(frozen=True)
class Follows:
    """How a value moves with noisy cells.

    Args:
        cells: text of the list of cells and weights.
        quotient: both sides, where it is a quotient of linear values.
        near: text of a list {b, g} of denominators and their cells; empty where there are none.
        linear: whether the weights are exact however far the cells are off.
    """

    cells: str
    quotient: Quotient | None = None
    near: str = ""
    linear: bool = True

    @property
    def denominators(self) -> str:
        """All of them, its own included."""
        if self.quotient is None:
            return self.near
        return f"[{{'b': CAST({self.quotient.below} AS DOUBLE), 'g': {self.quotient.below_cells}}}]"

    @property
    def parts(self) -> tuple[str, ...]:
        """Its texts in one order: cells, both sides of a quotient, denominators."""
        return (self.cells, *(self.quotient or ()), *((self.near,) if self.near else ()))

    def mapped(self, change: Callable[[str], str]) -> Follows:
        """The same with every text changed."""
        cells, *tail = map(change, self.parts)
        quotient = Quotient(*tail[:4]) if self.quotient is not None else None
        return Follows(cells, quotient, tail[-1] if self.near else "", linear=self.linear)


@dataclass(frozen=True)
class Unknown:
    """A value whose error is not defined, and why."""

    why: str


Dependence = Follows | Unknown | None
"""None: no noise in it."""


class NameResolver(Protocol):
    """What an expression may name."""

    def picked(self, over: bool) -> str:
        """Why a noisy value chose the rows that a call sees, in a window or not; empty where none did."""

    def column(self, node: exp.Column) -> Dependence:
        """How a column moves."""

    def subquery(self, node: exp.Subquery) -> Dependence:
        """How the value of a scalar subquery moves."""


def written(node: Node) -> str:
    """DuckDB text, in brackets where an operator beside it could tear it apart."""
    text = node.sql(dialect="duckdb")
    return f"({text})" if isinstance(node, (exp.Binary, exp.Unary, exp.Case, exp.If)) else text


def verbatim(text: str) -> exp.Var:
    """DuckDB text as a node that is written as it stands."""
    return exp.Var(this=text)


def times(cells: str, factor: str) -> str:
    """Cells with their weights multiplied. The factor stays outside of the function, where a window may not stand."""
    if cells == EMPTY:
        return EMPTY
    return (
        f"LIST_TRANSFORM([{{'g': {cells}, 'k': CAST({factor} AS DOUBLE)}}], LAMBDA dp_p : "
        "LIST_TRANSFORM(dp_p.g, LAMBDA dp_e : {'c': dp_e.c, 'w': dp_e.w * dp_p.k}))[1]"
    )


def together(*lists: str) -> str:
    """Lists one after the other."""
    nonempty = [text for text in lists if text not in ("", EMPTY)]
    return nonempty[0] if len(nonempty) == 1 else f"LIST_CONCAT({', '.join(nonempty)})" if nonempty else EMPTY


def follow(node: Node, names: NameResolver) -> Dependence:
    """How an expression moves with noisy cells.

    Args:
        node: an expression of the outer statement.
        names: what it may name.

    Returns:
        None where it has no noise; `Unknown` where its error is not defined.
    """
    node = unguarded(node)
    rule = RULES.get(type(node))
    if rule is not None:
        return rule(node, names)
    if isinstance(node, (exp.Window, exp.Filter, exp.AggFunc)):
        return _call(node, names)
    return _any_other(node, names)


def moves(node: Node, names: NameResolver) -> bool:
    """Whether any part of an expression is noisy."""
    return follow(node, names) is not None


def _any_other(node: Node, names: NameResolver) -> Dependence:
    """An operation that has no rule: public if all of its parts are."""
    for operand in node.iter_expressions():
        dependence = follow(operand, names)
        if isinstance(dependence, Unknown):
            return dependence
        if dependence is not None:
            return Unknown(f"{_called(node)} of a noisy value has no derivative here")
    return None


def _called(node: Node) -> str:
    return node.sql_name() if isinstance(node, exp.Func) else node.key.upper()


def _same(node: Node, names: NameResolver) -> Dependence:
    return follow(node.this, names)


def _cast(node: exp.Cast, names: NameResolver) -> Dependence:
    dependence = follow(node.this, names)
    number = node.to.this in exp.DataType.NUMERIC_TYPES
    return (
        dependence if dependence is None or number else Unknown("a noisy value was cast to what is no number")
    )


def _rounded(node: Node, names: NameResolver) -> Dependence:
    """A rounding is taken as exact, as long as its digits are known."""
    if any(
        follow(argument, names) is not None
        for argument in node.iter_expressions()
        if argument is not node.this
    ):
        return Unknown("ROUND to a noisy number of digits")
    return follow(node.this, names)


def _negative(node: exp.Neg, names: NameResolver) -> Dependence:
    dependence = follow(node.this, names)
    return scaled(dependence, "-1.0") if isinstance(dependence, Follows) else dependence


def scaled(value: Follows, factor: str) -> Follows:
    """A value times what has no noise."""
    unscaled = value.quotient
    quotient = unscaled and unscaled._replace(
        above=f"({unscaled.above} * {factor})", above_cells=times(unscaled.above_cells, factor)
    )
    return replace(value, cells=times(value.cells, factor), quotient=quotient)


class MovingOperand(NamedTuple):
    """One side of an operator: its text and how it moves; no cells where it has no noise."""

    text: str
    moves: Follows | None


def _sides(node: exp.Binary, names: NameResolver) -> tuple[MovingOperand, MovingOperand] | Unknown | None:
    left, right = follow(node.left, names), follow(node.right, names)
    for side in (left, right):
        if isinstance(side, Unknown):
            return side
    if left is None and right is None:
        return None
    texts = [f"CAST({operand.sql(dialect='duckdb')} AS DOUBLE)" for operand in (node.left, node.right)]
    return MovingOperand(texts[0], left), MovingOperand(texts[1], right)  # type: ignore[arg-type]


def _sum(node: exp.Binary, names: NameResolver) -> Dependence:
    sides = _sides(node, names)
    if not isinstance(sides, tuple):
        return sides
    sign = "-" if isinstance(node, exp.Sub) else "+"
    return added(sides[0], sides[1], sign)


def added(left: MovingOperand, right: MovingOperand, sign: str) -> Follows:
    """left + right, or less it."""
    first, second = (side.moves or Follows(EMPTY) for side in (left, right))
    turned = times(second.cells, "-1.0") if sign == "-" else second.cells
    cells = together(first.cells, turned)
    quotient = _one_below(left, right, sign)
    if quotient is not None:
        return Follows(cells, quotient, linear=False)
    near = (
        together(first.denominators, second.denominators) if first.denominators or second.denominators else ""
    )
    return Follows(cells, None, near, linear=first.linear and second.linear)


def _one_below(left: MovingOperand, right: MovingOperand, sign: str) -> Quotient | None:
    """a/n + p, p + a/n and a/n + c/n over one denominator; None where it is none of them."""
    first, second = (None if side.moves is None else side.moves.quotient for side in (left, right))
    if first is not None and second is not None and first.below == second.below:
        turned = times(second.above_cells, "-1.0") if sign == "-" else second.above_cells
        return first._replace(
            above=f"({first.above} {sign} {second.above})", above_cells=together(first.above_cells, turned)
        )
    if first is not None and right.moves is None:
        cells = times(first.below_cells, f"({sign} {right.text})")
        return first._replace(
            above=f"({first.above} {sign} {right.text} * {first.below})",
            above_cells=together(first.above_cells, cells),
        )
    if second is not None and left.moves is None:
        signed_cells = times(second.above_cells, "-1.0") if sign == "-" else second.above_cells
        return second._replace(
            above=f"({left.text} * {second.below} {sign} {second.above})",
            above_cells=together(times(second.below_cells, left.text), signed_cells),
        )
    return None


def _product(node: exp.Mul, names: NameResolver) -> Dependence:
    sides = _sides(node, names)
    if not isinstance(sides, tuple):
        return sides
    left, right = sides
    for noisy, constant in ((left, right), (right, left)):
        if noisy.moves is not None and constant.moves is None:
            return scaled(noisy.moves, constant.text)
    return _delta(left, right, right.text, left.text)


def _delta(
    left: MovingOperand, right: MovingOperand, by_left: str, by_right: str, extra: str = ""
) -> Follows:
    """By the delta method: the derivatives by both sides, and the denominators of both."""
    first, second = (side.moves or Follows(EMPTY) for side in (left, right))
    cells = together(times(first.cells, by_left), times(second.cells, by_right))
    denominators = [
        denominator for denominator in (first.denominators, second.denominators, extra) if denominator
    ]
    return Follows(cells, None, together(*denominators) if denominators else "", linear=False)


def _division(node: exp.Div, names: NameResolver) -> Dependence:
    sides = _sides(node, names)
    return divided(*sides) if isinstance(sides, tuple) else sides


def divided(left: MovingOperand, right: MovingOperand) -> Follows:
    """left / right."""
    numerator, divisor = left.moves or Follows(EMPTY), right.moves
    if divisor is None:
        return scaled(numerator, f"(1.0 / {right.text})")
    cells = together(
        times(numerator.cells, f"(1.0 / {right.text})"),
        times(divisor.cells, f"(-{left.text} / ({right.text} * {right.text}))"),
    )
    over, under = numerator.quotient, divisor.quotient
    if numerator.linear and divisor.linear:
        return Follows(cells, Quotient(left.text, numerator.cells, right.text, divisor.cells), linear=False)
    if over is not None and under is not None and over.below == under.below:
        quotient = Quotient(over.above, over.above_cells, under.above, under.above_cells)
        return Follows(cells, quotient, linear=False)
    if left.moves is None and under is not None:
        above = f"({left.text} * {under.below})"
        quotient = Quotient(above, times(under.below_cells, left.text), under.above, under.above_cells)
        return Follows(cells, quotient, linear=False)
    denominator = f"[{{'b': CAST({right.text} AS DOUBLE), 'g': {divisor.cells}}}]"
    near = together(*(text for text in (numerator.denominators, divisor.denominators, denominator) if text))
    return Follows(cells, None, near, linear=False)


def _root(node: exp.Sqrt, names: NameResolver) -> Dependence:
    """By the delta method; a root of 0 has no derivative, so no error."""
    inner = follow(node.this, names)
    if not isinstance(inner, Follows):
        return inner
    root = f"SQRT(CAST({node.this.sql(dialect='duckdb')} AS DOUBLE))"
    return Follows(times(inner.cells, f"(0.5 / {root})"), None, inner.denominators, linear=False)


def _cut(node: exp.Greatest, names: NameResolver) -> Dependence:
    """A noisy value that is cut at a constant keeps its error: what is cut lies within it of the constant."""
    first = follow(node.this, names)
    constant = len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Literal)
    return first if constant and isinstance(first, Follows) else _any_other(node, names)


def _nullif(node: exp.Nullif, names: NameResolver) -> Dependence:
    dependence = follow(node.this, names)
    if follow(node.expression, names) is not None:
        return Unknown("NULLIF compares noisy values")
    return dependence


def _coalesce(node: exp.Coalesce, names: NameResolver) -> Dependence:
    """The first that is there. A row that is not there has no cells, a value that noise made NULL has unknown ones."""
    dependences = [follow(argument, names) for argument in (node.this, *node.expressions)]
    return _one_of(dependences, lambda texts: f"COALESCE({', '.join(texts)})")


def _one_of(dependences: list[Dependence], choose: Callable[[list[str]], str]) -> Dependence:
    """One of several values, chosen by what is public."""
    for dependence in dependences:
        if isinstance(dependence, Unknown):
            return dependence
    noisy = [dependence for dependence in dependences if isinstance(dependence, Follows)]
    if not noisy:
        return None
    if len(noisy) == 1:
        alone = noisy[0]

        def picked(number: int, otherwise: str) -> str:
            return choose(
                [
                    dependence.parts[number] if isinstance(dependence, Follows) else otherwise
                    for dependence in dependences
                ]
            )

        texts = [picked(i, "NULL" if i else EMPTY) for i in range(len(alone.parts))]
        replacements = iter(texts)
        return alone.mapped(lambda _: next(replacements))
    cells = choose(
        [dependence.cells if isinstance(dependence, Follows) else EMPTY for dependence in dependences]
    )
    if all(dependence.linear for dependence in noisy):
        return Follows(cells)
    near = choose(
        [
            (dependence.denominators if isinstance(dependence, Follows) else "") or NOWHERE
            for dependence in dependences
        ]
    )
    return Follows(cells, None, near, linear=False)


def _case(node: exp.Case | exp.If, names: NameResolver) -> Dependence:
    """CASE by what is public picks a derivative too; by noise, one branch beside NULL is shown or not, as in HAVING."""
    branches, subject = _branches(node)
    otherwise = node.args.get("default") if isinstance(node, exp.Case) else node.args.get("false")
    values = [branch.args["true"] for branch in branches] + [otherwise or exp.null()]
    dependences = [follow(value, names) for value in values]
    if chooses(node, names):
        shown = [
            dependence
            for value, dependence in zip(values, dependences, strict=True)
            if not isinstance(value, exp.Null)
        ]
        if len(shown) == 1 and shown[0] is not None:
            return shown[0]
        return Unknown("CASE chooses by a noisy value")

    def choose(texts: list[str]) -> str:
        head = f"CASE {written(subject)}" if subject is not None else "CASE"
        whens = [
            f"WHEN {branch.this.sql(dialect='duckdb')} THEN {text}"
            for branch, text in zip(branches, texts, strict=False)
        ]
        return f"{head} {' '.join(whens)} ELSE {texts[-1]} END"

    return _one_of(dependences, choose)


def _branches(node: exp.Case | exp.If) -> tuple[list[Node], Node | None]:
    """The branches of a CASE, and what they are compared with."""
    if isinstance(node, exp.Case):
        return node.args["ifs"], node.this
    return [node], None


def chooses(node: exp.Case | exp.If, names: NameResolver) -> bool:
    """Whether a CASE chooses its branch by a noisy value."""
    branches, subject = _branches(node)
    tests = [branch.this for branch in branches] + ([subject] if subject is not None else [])
    return any(moves(test, names) and not _almost_never(test, names, subject) for test in tests)


def _almost_never(test: Node, names: NameResolver, subject: Node | None) -> bool:
    """Whether a test asks if a noisy value is exactly something known, as guards of a division do, or if a row is
    there: a linear value is never NULL by noise."""
    test = unguarded(test)
    while isinstance(test, (exp.Paren, exp.Not)):
        test = unguarded(test.this)
    if isinstance(test, exp.Is) and isinstance(test.expression, exp.Null):
        dependence = follow(test.this, names)
        return isinstance(dependence, Follows) and dependence.linear
    if not isinstance(test, (exp.EQ, exp.NEQ)) or subject is not None:
        return False
    return sum(moves(side, names) for side in (test.left, test.right)) == 1


def _subquery(node: exp.Subquery, names: NameResolver) -> Dependence:
    return names.subquery(node)


def _column(node: exp.Column, names: NameResolver) -> Dependence:
    return names.column(node)


class Call(NamedTuple):
    """An aggregate or a window function.

    Args:
        function: the call itself.
        around: text of another call -> the same with this one's FILTER and OVER.
        over: whether a window evaluates it.
        rows: why its rows or their order hang on noise; empty where they do not.
    """

    function: Node
    around: Callable[[str], str]
    over: bool
    rows: str


def _opened(node: Node, names: NameResolver) -> Call:
    """A call with its FILTER and OVER taken off."""
    function, layers, rows = node, list[Node](), ""
    while isinstance(function, (exp.Window, exp.Filter)):
        layers.append(function)
        clauses = [
            expression for expression in function.iter_expressions() if expression is not function.this
        ]
        if any(
            moves(expression, names)
            for clause in clauses
            for expression in clause.find_all(exp.Column, exp.Subquery)
        ):
            selector = "a window orders or parts" if isinstance(function, exp.Window) else "FILTER picks"
            rows = f"{selector} rows by a noisy value"
        function = function.this

    def around(text: str) -> str:
        inner: Node = verbatim(text)
        for layer in reversed(layers):
            copy = layer.copy()
            copy.set("this", inner)
            inner = copy
        return inner.sql(dialect="duckdb")

    return Call(function, around, any(isinstance(clause, exp.Window) for clause in layers), rows)


def _call(node: Node, names: NameResolver) -> Dependence:
    call = _opened(node, names)
    argument = unguarded(call.function.this) if isinstance(call.function.this, exp.Expression) else None
    values = [operand for operand in call.function.iter_expressions() if not isinstance(operand, exp.Star)]
    dependences = [follow(operand, names) for operand in values]
    if isinstance(argument, exp.Distinct) and any(dependences):
        return Unknown(f"{_called(call.function)} hangs on which noisy values there are")
    unknown = next((dependence for dependence in dependences if isinstance(dependence, Unknown)), None)
    if unknown is not None:
        return unknown
    name = _called(call.function)
    if call.rows:
        return Unknown(f"{name}: {call.rows}")
    if names.picked(call.over):
        return Unknown(f"{name}: {names.picked(call.over)}")
    value = next((dependence for dependence in dependences if isinstance(dependence, Follows)), None)
    if value is None or isinstance(call.function, exp.Count):
        return None
    if dependences[0] is not value:
        return Unknown(f"{name} hangs on which noisy values there are")
    rule = CALLS.get(type(call.function))
    if rule is None:
        return Unknown(f"{name} picks among noisy values")
    return rule(call, value)


def _summed(call: Call, value: Follows) -> Follows:
    """SUM: the lists of all rows together, of those whose value is NULL no more than what noise made NULL."""
    present = f"{written(call.function.this)} IS NOT NULL"
    cells = f"CASE WHEN {present} THEN {value.cells} ELSE LIST_FILTER({value.cells}, LAMBDA dp_n : ISNAN(dp_n.w)) END"

    def collected(text: str) -> str:
        return f"FLATTEN({call.around(f'LIST({text})')})"

    if value.linear:
        return Follows(collected(cells))
    near = collected(value.denominators) if value.denominators else ""
    return Follows(collected(cells), None, near, linear=False)


def _averaged(call: Call, value: Follows) -> Follows:
    """AVG over groups: how many there are is public."""
    count = call.around(f"COUNT({written(call.function.this)})")
    return scaled(_summed(call, value), f"(1.0 / {count})")


def _shifted(call: Call, value: Follows) -> Follows:
    """LAG and its like: the same row's lists."""

    def taken(text: str) -> str:
        copy = call.function.copy()
        copy.set("this", verbatim(text))
        default = copy.args.get("default")
        if default is not None:
            copy.set("default", verbatim(EMPTY if text == value.cells else "NULL"))
        return call.around(copy.sql(dialect="duckdb"))

    return value.mapped(taken)


CALLS: dict[type[Node], Callable[[Call, Follows], Follows]] = {
    exp.Sum: _summed, exp.Avg: _averaged, exp.Lag: _shifted, exp.Lead: _shifted, exp.FirstValue: _shifted,
    exp.LastValue: _shifted, exp.NthValue: _shifted,
}  # fmt: skip
"""Calls through which cells can be followed."""

RULES: dict[type[Node], Callable[..., Dependence]] = {
    exp.Column: _column, exp.Paren: _same, exp.Alias: _same, exp.Cast: _cast, exp.TryCast: _cast,
    exp.Round: _rounded, exp.Neg: _negative, exp.Add: _sum, exp.Sub: _sum, exp.Mul: _product,
    exp.Div: _division, exp.Nullif: _nullif, exp.Coalesce: _coalesce, exp.Case: _case, exp.If: _case,
    exp.Subquery: _subquery, exp.Sqrt: _root, exp.Greatest: _cut,
}  # fmt: skip
