"""Derivatives of expressions with respect to the noisy cells below them, as DuckDB text beside each expression.

    n - LAG(n) OVER (ORDER BY month)        moves by 1 with this month's cell, by -1 with the last one's

A derivative is a list of cells with their weights, `[{c, w}, ..]`, that DuckDB computes as it computes the value: a sum
of groups joins their lists, a factor multiplies weights, a window or a scalar subquery collects lists as it collects
values. What is linear has exact weights. A quotient of two linear values keeps both, so that its interval can be
Fieller's; other products and quotients have the weights of the delta method, and a list of the denominators, for the
delta method holds only far from 0. A function of one noisy value (SQRT, LN, GREATEST ..) also keeps that value and the
steps that lead from it, so that its interval is the image of the value's own (`uncertainty.image`).

Where the choice of rows or branches hangs on noise there is no derivative, and the reason is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sqlglot import exp

from dpsql.row_expressions.expression import Node
from dpsql.sql import parse
from dpsql.sql.dependence import (
    EMPTY,
    NOWHERE,
    Dependence,
    Extreme,
    MovingOperand,
    NoisyLineage,
    Unknown,
    added,
    by_delta,
    curved,
    divided,
    final_parts,
    noisy_lineages,
    scaled,
)
from dpsql.sql.statement import unguarded


@dataclass
class Output:
    """Columns that a query yields, with their derivatives, and reasons for missing rows."""

    names: list[str]
    follows: list[Dependence]
    picked: str = ""


class FromRelation(NamedTuple):
    """A relation in FROM: its alias, and how each of its columns moves."""

    alias: str
    columns: dict[str, Dependence]
    picked: str


@dataclass
class NameScope:
    """Names that the expressions of one SELECT may use; `lineage` follows the columns of a query in a scope."""

    lineage: Callable[[Node, dict[str, Output], int], Output]
    sources: list[FromRelation]
    scope: dict[str, Output]
    rows: str = ""
    groups: str = ""
    own: dict[str, Node] = field(default_factory=dict)

    def picked(self, over: bool) -> str:
        """Reason why a noisy value chose the rows that an aggregate sees, or a window, which sees those after
        HAVING."""
        return self.groups or self.rows if over else self.rows

    def column(self, node: exp.Column) -> Dependence:
        """Lineage of a column; a name that no source has is one of the select list's."""
        name, table = node.name.lower(), node.table.lower()
        for source in self.sources:
            if table in ("", source.alias.lower()) and name in source.columns:
                return source.columns[name]
        inner = self.own.get(name)
        return follow(inner, replace(self, own={})) if inner is not None else None

    def subquery(self, node: exp.Subquery) -> Dependence:
        """Lineage of a scalar subquery: its cells are those of the same query once more."""
        copy = node.this.copy()
        output = self.lineage(copy, self.scope, 0)
        follows = output.follows[0] if output.follows else None
        if output.picked:
            return Unknown(f"in a subquery {output.picked}")
        if not isinstance(follows, NoisyLineage):
            return follows
        text = copy.sql(dialect="duckdb")
        return follows.mapped(lambda column: f"(SELECT {column} FROM ({text}) AS dp_scalar)")

    def spelled(self, node: Node) -> Node:
        """An expression with the select list's names replaced by what they stand for."""
        return parse.expand_aliases(
            node,
            self.own,
            lambda column: any(column.name.lower() in source.columns for source in self.sources),
        )


def written(node: Node) -> str:
    """DuckDB text, in brackets where an operator beside it could tear it apart."""
    text = node.sql(dialect="duckdb")
    return f"({text})" if isinstance(node, (exp.Binary, exp.Unary, exp.Case, exp.If)) else text


def verbatim(text: str) -> exp.Var:
    """DuckDB text as a node that is written as it stands."""
    return exp.Var(this=text)


def follow(node: Node, names: NameScope) -> Dependence:
    """Derivative of an expression with respect to noisy cells.

    Args:
        node: an expression of the outer statement.
        names: what it may name.

    Returns:
        None where it has no noise; `Unknown` where its error is not defined.
    """
    node = unguarded(node)
    rule = RULES.get(type(node))
    if rule is None:
        rule = _call if isinstance(node, (exp.Window, exp.Filter, exp.AggFunc)) else _any_other
    dependence: Dependence = rule(node, names)
    if isinstance(dependence, NoisyLineage) and dependence.plain and not isinstance(node, PLAIN):
        return replace(dependence, plain=False)
    return dependence


PLAIN = (exp.Column, exp.Subquery, exp.Paren, exp.Alias, exp.Window, exp.Filter, exp.Sum)
"""What hands values of blocks on as they are, or adds them up."""


def moves(node: Node, names: NameScope) -> bool:
    """True if any part of an expression is noisy."""
    return follow(node, names) is not None


def _any_other(node: Node, names: NameScope) -> Dependence:
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


def _same(node: Node, names: NameScope) -> Dependence:
    return follow(node.this, names)


def _cast(node: exp.Cast, names: NameScope) -> Dependence:
    dependence = follow(node.this, names)
    number = node.to.this in exp.DataType.NUMERIC_TYPES
    return (
        dependence
        if dependence is None or number
        else Unknown("a noisy value was cast to something that is not a number")
    )


def _rounded(node: Node, names: NameScope) -> Dependence:
    """A rounding is taken as exact, as long as its digits are known."""
    if any(
        follow(argument, names) is not None
        for argument in node.iter_expressions()
        if argument is not node.this
    ):
        return Unknown("ROUND to a noisy number of digits")
    return follow(node.this, names)


def _negative(node: exp.Neg, names: NameScope) -> Dependence:
    dependence = follow(node.this, names)
    return scaled(dependence, "-1.0") if isinstance(dependence, NoisyLineage) else dependence


def _sides(node: exp.Binary, names: NameScope) -> tuple[MovingOperand, MovingOperand] | Unknown | None:
    left, right = follow(node.left, names), follow(node.right, names)
    noisy = noisy_lineages([left, right])
    if not isinstance(noisy, list):
        return noisy
    texts = [f"CAST({operand.sql(dialect='duckdb')} AS DOUBLE)" for operand in (node.left, node.right)]
    return MovingOperand(texts[0], left), MovingOperand(texts[1], right)  # type: ignore[arg-type]


def _sum(node: exp.Binary, names: NameScope) -> Dependence:
    sides = _sides(node, names)
    if not isinstance(sides, tuple):
        return sides
    sign = "-" if isinstance(node, exp.Sub) else "+"
    return added(sides[0], sides[1], sign)


def _product(node: exp.Mul, names: NameScope) -> Dependence:
    sides = _sides(node, names)
    if not isinstance(sides, tuple):
        return sides
    left, right = sides
    for noisy, constant in ((left, right), (right, left)):
        if noisy.moves is not None and constant.moves is None:
            return scaled(noisy.moves, constant.text)
    return by_delta(left, right, right.text, left.text)


def _division(node: exp.Div, names: NameScope) -> Dependence:
    sides = _sides(node, names)
    return divided(*sides) if isinstance(sides, tuple) else sides


def _function(node: Node, names: NameScope) -> Dependence:
    """A function of one noisy value whose derivative is known; other arguments are public."""
    value = node.expression if isinstance(node, exp.Log) and node.expression is not None else node.this
    argument = follow(value, names)
    if not isinstance(argument, NoisyLineage):
        return _any_other(node, names)
    text = f"CAST({value.sql(dialect='duckdb')} AS DOUBLE)"
    if isinstance(node, exp.Pow):
        if follow(node.expression, names) is not None:
            return Unknown("POWER to a noisy number has no derivative here")
        by = f"CAST({node.expression.sql(dialect='duckdb')} AS DOUBLE)"
        return curved(argument, text, "power", f"({by} * POWER({text}, {by} - 1.0))", by)
    if isinstance(node, exp.Log):
        base = "10" if node.expression is None else node.this.sql(dialect="duckdb")
        if node.expression is not None and follow(node.this, names) is not None:
            return Unknown("LOG to a noisy base has no derivative here")
        return scaled(curved(argument, text, "ln", f"(1.0 / {text})"), f"(1.0 / LN(CAST({base} AS DOUBLE)))")
    step, slope = FUNCTIONS[type(node)]
    return curved(argument, text, step, slope.format(text))


FUNCTIONS: dict[type[Node], tuple[str, str]] = {
    exp.Sqrt: ("sqrt", "(0.5 / SQRT(GREATEST({0}, 0.0)))"), exp.Cbrt: ("cbrt", "(1.0 / (3.0 * CBRT({0}) * CBRT({0})))"),
    exp.Exp: ("exp", "EXP({0})"), exp.Ln: ("ln", "(1.0 / {0})"), exp.Abs: ("abs", "SIGN({0})"),
}  # fmt: skip
"""Functions by their step and their derivative."""


def _cut(node: exp.Greatest | exp.Least, names: NameScope) -> Dependence:
    """One noisy value cut at public ones. `e * 0 + c` is a c that the value never lies beyond (`sql.moments`)."""
    operands = [node.this, *node.expressions]
    limits = [limit for limit in map(_limit, operands) if limit is not None]
    bounds = limits + [
        operand for operand in operands if _limit(operand) is None and not moves(operand, names)
    ]
    noisy = [operand for operand in operands if _limit(operand) is None and moves(operand, names)]
    argument = follow(noisy[0], names) if len(noisy) == 1 else None
    if not isinstance(argument, NoisyLineage) or any(moves(bound, names) for bound in bounds):
        return _any_other(node, names)
    step = "at_least" if isinstance(node, exp.Greatest) else "at_most"
    step = f"always_{step}" if limits else step
    bound = bounds[0] if len(bounds) == 1 else type(node)(this=bounds[0], expressions=bounds[1:])
    texts = [f"CAST({operand.sql(dialect='duckdb')} AS DOUBLE)" for operand in (noisy[0], bound)]
    return curved(argument, texts[0], step, "1.0", texts[1])


def _limit(bound: Node) -> Node | None:
    """c of `e * 0 + c`, which is c wherever e is not NULL."""
    plus = unguarded(bound)
    nothing = unguarded(plus.this) if isinstance(plus, exp.Add) else None
    if not isinstance(nothing, exp.Mul) or nothing.expression != exp.Literal.number(0):
        return None
    constant: Node = plus.expression
    return constant


def _nullif(node: exp.Nullif, names: NameScope) -> Dependence:
    dependence = follow(node.this, names)
    if follow(node.expression, names) is not None:
        return Unknown("NULLIF compares noisy values")
    return dependence


def _coalesce(node: exp.Coalesce, names: NameScope) -> Dependence:
    """The first that is there. A row that is not there has no cells, a value that noise made NULL has unknown ones."""
    dependences = [follow(argument, names) for argument in (node.this, *node.expressions)]
    return _one_of(dependences, lambda texts: f"COALESCE({', '.join(texts)})")


def _one_of(dependences: list[Dependence], choose: Callable[[list[str]], str]) -> Dependence:
    """One of several values, chosen by what is public."""
    noisy = noisy_lineages(dependences)
    if not isinstance(noisy, list):
        return noisy
    if len(noisy) == 1:
        alone = noisy[0]

        def picked(number: int, otherwise: str) -> str:
            return choose(
                [
                    dependence.parts[number] if isinstance(dependence, NoisyLineage) else otherwise
                    for dependence in dependences
                ]
            )

        texts = [picked(i, "NULL" if i else EMPTY) for i in range(len(alone.parts))]
        replacements = iter(texts)
        return alone.mapped(lambda _: next(replacements))
    cells = choose(
        [dependence.cells if isinstance(dependence, NoisyLineage) else EMPTY for dependence in dependences]
    )
    if all(dependence.linear for dependence in noisy):
        return NoisyLineage(cells)
    near = choose(
        [
            (dependence.denominators if isinstance(dependence, NoisyLineage) else "") or NOWHERE
            for dependence in dependences
        ]
    )
    return NoisyLineage(cells, None, near, linear=False)


def _case(node: exp.Case | exp.If, names: NameScope) -> Dependence:
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


def chooses(node: exp.Case | exp.If, names: NameScope) -> bool:
    """True if a CASE chooses its branch by a noisy value."""
    branches, subject = _branches(node)
    tests = [branch.this for branch in branches] + ([subject] if subject is not None else [])
    return any(moves(test, names) and not _almost_never(test, names, subject) for test in tests)


def _almost_never(test: Node, names: NameScope, subject: Node | None) -> bool:
    """True if a test asks if a noisy value is exactly something known, as guards of a division do, or if a row
    is there: a linear value is never NULL by noise."""
    test = unguarded(test)
    while isinstance(test, (exp.Paren, exp.Not)):
        test = unguarded(test.this)
    if isinstance(test, exp.Is) and isinstance(test.expression, exp.Null):
        dependence = follow(test.this, names)
        return isinstance(dependence, NoisyLineage) and dependence.linear
    if not isinstance(test, (exp.EQ, exp.NEQ)) or subject is not None:
        return False
    return sum(moves(side, names) for side in (test.left, test.right)) == 1


Around = Callable[[str], str]
"""Text of a call -> the same with the FILTER and OVER of another."""


def _opened(node: Node, names: NameScope) -> tuple[Node, Around, bool, str]:
    """An aggregate or window function, opened.

    Returns:
        The call without its FILTER and OVER, what puts these around another, whether a window evaluates it, and why its
        rows or their order hang on noise; empty where they do not.
    """
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
            selector = "a window orders or partitions" if isinstance(function, exp.Window) else "FILTER picks"
            rows = f"{selector} rows by a noisy value"
        function = function.this

    def around(text: str) -> str:
        inner: Node = verbatim(text)
        for layer in reversed(layers):
            copy = layer.copy()
            copy.set("this", inner)
            inner = copy
        return inner.sql(dialect="duckdb")

    return function, around, any(isinstance(clause, exp.Window) for clause in layers), rows


def _call(node: Node, names: NameScope) -> Dependence:
    function, around, over, rows = _opened(node, names)
    argument = unguarded(function.this) if isinstance(function.this, exp.Expression) else None
    values = [operand for operand in function.iter_expressions() if not isinstance(operand, exp.Star)]
    dependences = [follow(operand, names) for operand in values]
    if isinstance(argument, exp.Distinct) and any(dependences):
        return Unknown(f"{_called(function)} depends on which noisy values there are")
    noisy = noisy_lineages(dependences)
    if isinstance(noisy, Unknown):
        return noisy
    name = _called(function)
    if rows:
        return Unknown(f"{name}: {rows}")
    if names.picked(over):
        return Unknown(f"{name}: {names.picked(over)}")
    if noisy is None or isinstance(function, exp.Count):
        return None
    value = noisy[0]
    if dependences[0] is not value:
        return Unknown(f"{name} depends on which noisy values there are")
    rule = CALLS.get(type(function))
    if rule is None:
        return Unknown(f"{name} picks among noisy values")
    return rule(function, around, value)


def extreme(node: Node, names: NameScope) -> Extreme | None:
    """MIN or MAX over the noisy values of groups that no noise chose; None of any other expression."""
    node = unguarded(node)
    if not isinstance(node, (exp.Filter, exp.Min, exp.Max)):
        return None
    function, around, over, rows = _opened(node, names)
    value, why = function.this, _call(node, names)
    alone = isinstance(function, (exp.Min, exp.Max)) and not function.expressions
    if not alone or rows or names.picked(over) or isinstance(value, exp.Distinct):
        return None
    if any(chooses(case, names) for case in value.find_all(exp.Case)):
        return None
    member = follow(value, names)
    if not isinstance(member, NoisyLineage) or not isinstance(why, Unknown):
        return None
    texts = [f"CAST({written(value)} AS DOUBLE)", *final_parts(member)]
    fields = ", ".join(f"'p{i}': {text}" for i, text in enumerate(texts))
    return Extreme(why.why, member, around(f"LIST({{{fields}}})"), isinstance(function, exp.Min))


def _summed(function: Node, around: Around, value: NoisyLineage) -> NoisyLineage:
    """SUM: the lists of all rows together, of those whose value is NULL no more than what noise made NULL."""
    present = f"{written(function.this)} IS NOT NULL"
    cells = f"CASE WHEN {present} THEN {value.cells} ELSE LIST_FILTER({value.cells}, LAMBDA dp_n : ISNAN(dp_n.w)) END"

    def collected(text: str) -> str:
        return f"FLATTEN({around(f'LIST({text})')})"

    if value.linear:
        return NoisyLineage(collected(cells), plain=value.plain)
    near = collected(value.denominators) if value.denominators else ""
    return NoisyLineage(collected(cells), None, near, linear=False)


def _averaged(function: Node, around: Around, value: NoisyLineage) -> NoisyLineage:
    """AVG over groups: how many there are is public."""
    count = around(f"COUNT({written(function.this)})")
    return scaled(_summed(function, around, value), f"(1.0 / {count})")


def _shifted(function: Node, around: Around, value: NoisyLineage) -> NoisyLineage:
    """LAG and its like: the same row's lists."""

    def taken(text: str) -> str:
        copy = function.copy()
        copy.set("this", verbatim(text))
        default = copy.args.get("default")
        if default is not None:
            copy.set("default", verbatim(EMPTY if text == value.cells else "NULL"))
        return around(copy.sql(dialect="duckdb"))

    return replace(value.mapped(taken), plain=False)


CALLS: dict[type[Node], Callable[[Node, Around, NoisyLineage], NoisyLineage]] = {
    exp.Sum: _summed, exp.Avg: _averaged, exp.Lag: _shifted, exp.Lead: _shifted, exp.FirstValue: _shifted,
    exp.LastValue: _shifted, exp.NthValue: _shifted,
}  # fmt: skip
"""Calls through which cells can be followed."""

RULES: dict[type[Node], Callable[..., Dependence]] = {
    exp.Column: lambda node, names: names.column(node), exp.Subquery: lambda node, names: names.subquery(node),
    exp.Paren: _same, exp.Alias: _same, exp.Cast: _cast, exp.TryCast: _cast,
    exp.Round: _rounded, exp.Neg: _negative, exp.Add: _sum, exp.Sub: _sum, exp.Mul: _product,
    exp.Div: _division, exp.Nullif: _nullif, exp.Coalesce: _coalesce, exp.Case: _case, exp.If: _case,
    exp.Greatest: _cut, exp.Least: _cut, exp.Pow: _function, exp.Log: _function,
    **dict.fromkeys(FUNCTIONS, _function),
}  # fmt: skip
