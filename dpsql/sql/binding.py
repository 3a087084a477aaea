"""Rows bound to the star: expressions as placeholder text, conditions as predicates.

SQL keeps a row only where its condition is true. NOT is pushed down to the comparisons (De Morgan holds in three-valued
logic), after which AND and OR of "is true" are two-valued.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

import sqlglot
from sqlglot import exp

from dpsql.catalog.base import MeasureName
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.planner.schema import (
    FALSE,
    TRUE,
    Bound,
    ColumnRef,
    Comparison,
    Condition,
    Expression,
    Predicate,
    Schema,
    SchemaTable,
    complement,
    every,
    predicates,
    some,
)
from dpsql.row_expressions.expression import Node
from dpsql.sql.from_clause import RowRelation, column_of
from dpsql.sql.parse import Span, bottom_up, placed, refusal, span
from dpsql.sql.semijoin import Paths
from dpsql.sql.statement import Kind, finite, kind_of_type, typed

DIALECT = sqlglot.Dialect.get_or_raise("duckdb")
"""Made once: its name would make it anew for every expression."""

MONOTONE = (
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Var,
    exp.Null,
    exp.Boolean,
    exp.Paren,
    exp.Cast,
    exp.DataType,
    exp.DataTypeParam,
    exp.Interval,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.EQ,
    exp.NEQ,
    exp.Between,
    exp.Is,
    exp.In,
    exp.Not,
    exp.And,
    exp.Or,
    exp.Neg,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.IntDiv,
    exp.Floor,
    exp.Ceil,
    exp.Round,
    exp.DateTrunc,
    exp.TimestampTrunc,
    exp.Year,
    exp.Case,
    exp.If,
)
"""Nodes under which a value between two others has a result between theirs."""


@dataclass
class Binding:
    """A FROM clause with its paths, and what was met of it so far.

    Args:
        rows, paths, schema: the FROM clause and its star.
        columns: those of the placeholders given out, `known` by number.
        never_null: columns counted as never NULL.
        presences: tests that a nullable measure has a value -> the measure.
        within: such tests, or their opposites, that WHERE has.
    """

    rows: RowRelation
    paths: Paths
    schema: Schema
    columns: list[ColumnRef] = field(default_factory=list)
    known: dict[ColumnRef, int] = field(default_factory=dict)
    never_null: dict[str, None] = field(default_factory=dict)
    presences: dict[Expression, MeasureName] = field(default_factory=dict)
    within: Condition = TRUE

    def ref(self, node: exp.Column) -> ColumnRef:
        """The star's column that a resolved column stands for."""
        instance, name = self.rows.of(node)
        return ColumnRef(self.paths.path[instance.number], instance.table.name, name)

    def axes_of(self, node: Node) -> list[set[int]]:
        """For each column of a resolved expression the axes that hold it."""
        columns = node.find_all(exp.Column)
        return [{axis for axis, _ in self.schema.axis_columns(self.ref(column))} for column in columns]

    def stored(self, node: exp.Column) -> bool:
        """True if an axis of a public table holds a foreign key as its rows have it, dangling ones included."""
        ref = self.ref(node)
        offers = self.schema.axis_columns(ref)
        return any(
            column.path == ref.path
            and column.column == ref.column
            and self.schema.axes[axis].path != (*ref.path, ref.column)
            for axis, column in offers
        )

    def of_one_axis(self, node: Node) -> bool:
        """True if a row's value of an expression follows from its place on one axis of the release."""
        offers = self.axes_of(node)
        return bool(offers) and bool(set.intersection(*offers))

    def lacks_axis(self, node: Node) -> bool:
        """True if no axis holds some column of an expression."""
        return not all(self.axes_of(node))

    def ties_axes(self, test: Condition) -> bool:
        """True if a part of a condition follows from several axes together, as `age > price` does."""
        for predicate in predicates(test):
            refs = [self.columns[number] for number in predicate.expression.columns]
            offers = [{axis for axis, _ in self.schema.axis_columns(ref)} for ref in refs]
            if all(offers) and len(offers) > 1 and not set.intersection(*offers):
                return True
        return False

    def type_of(self, node: exp.Column) -> str:
        """The type of a resolved column: its axis's, or what the catalog declares; keys have none."""
        instance, name = self.rows.of(node)
        offers = self.schema.axis_columns(self.ref(node))
        return offers[0][1].type if offers else instance.table.types.get(name, "")

    def kind(self, node: exp.Column) -> Kind | None:
        """The kind of a column's values."""
        rows = node.meta.get("resolved") and not node.meta.get("answer")
        return kind_of_type(self.type_of(node)) if rows else None

    def is_condition(self, node: Node) -> bool:
        """True if the values of a resolved expression are true and false."""
        if isinstance(node, exp.Column):
            return self.type_of(node).upper() in ("BOOL", "BOOLEAN")
        return isinstance(node, (exp.Predicate, exp.Connector, exp.Not))

    def placeholder(self, ref: ColumnRef) -> int:
        """The number of a column's placeholder."""
        if ref not in self.known:
            self.known[ref] = len(self.columns)
            self.columns.append(ref)
        return self.known[ref]


def derived(binding: Binding, node: Node) -> Node:
    """Replace declared derivations that have an axis, or are summed as a measure, by their column, and the others by
    their expression.

    Args:
        binding: the FROM clause.
        node: a resolved expression; changed in place where possible.

    Returns:
        The expression to use from here on.
    """
    for instance in binding.rows.instances:
        for name, text in instance.table.derived.items():
            ref = ColumnRef(binding.paths.path[instance.number], instance.table.name, name)
            body = _declared(binding, instance.number, text)
            column, has_axis = column_of(instance.number, name), bool(binding.schema.axis_columns(ref))
            measured = f"{instance.table.name}.{name}" in binding.schema.measures
            if has_axis or measured:
                node = _swap(node, body, column)
            if not has_axis:
                node = _swap(node, column, exp.Paren(this=body), kept=_is_summed if measured else None)
    return typed(node, binding.kind)


def _declared(binding: Binding, number: int, text: str) -> Node:
    """A catalog expression over one table's columns, resolved to one instance of it."""
    table = binding.rows.instances[number].table

    def bind(descendant: Node) -> Node:
        if isinstance(descendant, exp.Column):
            return column_of(number, table.column(descendant.name) or descendant.name)
        return descendant

    return _catalog_expression(text).transform(bind)


@lru_cache(maxsize=256)
def _catalog_expression(text: str) -> Node:
    """Its tree, which nobody changes: a statement compares each of its sums with every declared measure."""
    return sqlglot.parse_one(text, read=DIALECT)


def declared_measures(binding: Binding) -> dict[MeasureName, Node]:
    """Declared product measures of the root and its dimensions: `table.name` -> resolved expression."""
    measures: dict[MeasureName, Node] = {}
    for instance in binding.rows.instances:
        for name, text in instance.table.measures.items():
            if text:
                measures.setdefault(
                    MeasureName(f"{instance.table.name}.{name}"), _declared(binding, instance.number, text)
                )
    return measures


def _swap(node: Node, old: Node, new: Node, kept: Callable[[Node], bool] | None = None) -> Node:
    if node == old and not (kept and kept(node)):
        return placed(new, node)
    for descendant in list(node.walk()):
        if descendant is node or descendant.parent is None or descendant != old:
            continue
        if not (kept and kept(descendant)):
            descendant.replace(placed(new, descendant))
    return node


def _is_summed(node: Node) -> bool:
    """True if an aggregate takes a value itself, and not what a comparison makes of it."""
    return isinstance(node.find_ancestor(exp.AggFunc, exp.Predicate), exp.AggFunc)


def expression(binding: Binding, node: Node) -> Expression:
    """A resolved scalar expression as placeholder text.

    Args:
        binding: the FROM clause.
        node: free of aggregates and subqueries.

    Returns:
        The text, its placeholders and its place.

    Raises:
        NotSupportedError: a subquery, an aggregate or a window inside.
    """
    descendants = list(node.walk())
    kinds = (exp.Query, exp.Subquery, exp.AggFunc, exp.Window)
    inner = next((descendant for descendant in descendants if isinstance(descendant, kinds)), None)
    if inner is not None:
        construct = (
            "subquery" if isinstance(inner, (exp.Query, exp.Subquery)) else type(inner).__name__.lower()
        )
        raise refusal(
            NotSupportedError,
            f"a {construct} inside a row-level condition would be evaluated on rows",
            at=node,
            clause="WHERE",
            hint="use HAVING, or write its value as a literal",
        )
    used: set[int] = set()

    def bind(descendant: Node) -> Node:
        if isinstance(descendant, exp.Is) and isinstance(descendant.expression, exp.Null):
            # an out-of-domain value is not NULL, though its columns are unknown here
            in_domain = exp.NEQ(this=exp.column("dp_kind"), expression=exp.Literal.number(3))
            return exp.Paren(this=exp.And(this=descendant.copy(), expression=in_domain))
        if isinstance(descendant, exp.Column) and descendant.table:
            number = binding.placeholder(binding.ref(descendant))
            used.add(number)
            return exp.column(f"dp_c{number}")
        return descendant

    bound = finite(bottom_up(node.copy(), bind)).sql(dialect=DIALECT, copy=False)
    monotone = all(isinstance(descendant, MONOTONE) for descendant in descendants)
    compared = comparisons(node, lambda column: binding.placeholder(binding.ref(column)))
    starts = tuple(
        descendant.meta["start"]
        for descendant in descendants
        if isinstance(descendant, exp.Literal) and "start" in descendant.meta
    )
    return Expression(
        bound, frozenset(used), monotone, span(node), partial(_words, binding, node), compared,
        starts, partial(_exchanged, binding, node), _choices(node), _barred(node), _of_null(node),
    )  # fmt: skip


def _choices(node: Node) -> int:
    """Number of constants of which a column is one. Equal ones count apart: other constants may take their place."""
    if not isinstance(node, (exp.EQ, exp.In)) or node.args.get("query") or node.args.get("unnest"):
        return 0
    constants = node.expressions if isinstance(node, exp.In) else [node.expression]
    free = not any(constant.find(exp.Column) for constant in constants)
    return len(constants) if isinstance(node.this, exp.Column) and free else 0


def _barred(node: Node) -> int:
    """Number of constants of which a column is none."""
    if isinstance(node, exp.NEQ):
        return _choices(exp.EQ(this=node.this.copy(), expression=node.expression.copy()))
    return _choices(node.this.unnest()) if isinstance(node, exp.Not) else 0


def _of_null(node: Node) -> bool:
    """True if a column is asked for NULL and nothing else."""
    inner = node.this.unnest() if isinstance(node, exp.Not) else node
    return (
        isinstance(inner, exp.Is)
        and isinstance(inner.expression, exp.Null)
        and isinstance(inner.this, exp.Column)
    )


def _exchanged(binding: Binding, node: Node, texts: Mapping[int, str]) -> Expression:
    """A resolved expression over other constants, by where those that it had stand in the statement."""
    copy = node.copy()
    for literal in copy.find_all(exp.Literal):
        if literal.meta.get("start") in texts:
            literal.set("this", texts[literal.meta["start"]])
    return expression(binding, copy)


def _words(binding: Binding, node: Node) -> str:
    """A resolved expression for people, with paths, tables and columns of the star."""

    def name(descendant: Node) -> Node:
        if isinstance(descendant, exp.Column) and descendant.table:
            return exp.Identifier(this=str(binding.ref(descendant)), quoted=False)
        return descendant

    return node.copy().transform(name).sql(dialect=DIALECT)


COMPARED: dict[type[Node], Callable[[Any, Any], Any]] = {
    exp.LT: operator.lt, exp.LTE: operator.le, exp.GT: operator.gt, exp.GTE: operator.ge, exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
}  # fmt: skip
OPPOSITE: dict[type[Node], type[Node]] = {
    exp.LT: exp.GTE, exp.LTE: exp.GT, exp.GT: exp.LTE, exp.GTE: exp.LT, exp.EQ: exp.NEQ, exp.NEQ: exp.EQ,
}  # fmt: skip
"""What holds where NOT of a comparison of known values does."""
MOST_DIGITS = 18
"""Integers of so many digits are 64-bit ones, and DuckDB reads a number with a point and so many as a DECIMAL."""


def comparisons(node: Node, number: Callable[[exp.Column], int]) -> tuple[Comparison, ...]:
    """Comparisons of one column with numbers or days that must all be true; () where an expression is more.

    Args:
        node: a resolved expression.
        number: the placeholder of a column.
    """
    kind = type(node)
    if kind is exp.Not and type(node.this.unnest()) in OPPOSITE:
        node = node.this.unnest()
        kind = OPPOSITE[type(node)]
    if kind is exp.Between and not node.args.get("symmetric"):
        ends = [(operator.ge, node.args["low"]), (operator.le, node.args["high"])]
    elif kind in COMPARED:
        ends = [(COMPARED[kind], node.expression)]
    else:
        return ()
    if not isinstance(node.this, exp.Column):
        return ()
    constants = [(compare, _constant(end)) for compare, end in ends]
    column = number(node.this)
    compared = [Comparison(column, compare, value) for compare, value in constants if value is not None]
    return tuple(compared) if len(compared) == len(ends) else ()


def _constant(node: Node) -> Bound | None:
    """An integer, a decimal number or a day as it is written; None for anything else."""
    if isinstance(node, exp.Neg):
        inner = _constant(node.this)
        return None if inner is None or isinstance(inner, date) else -inner
    cast = type(node) is exp.Cast and node.to.this == exp.DataType.Type.DATE
    if (
        cast
        or isinstance(node, exp.DateStrToDate)
        or (isinstance(node, exp.Date) and not node.args.get("zone"))
    ):
        node = node.this
    if not isinstance(node, exp.Literal):
        return None
    text = str(node.this)
    if not node.is_string:
        return None if cast or len(text) > MOST_DIGITS else _number(text)
    try:
        day = date.fromisoformat(text)
    except ValueError:  # such as the 30th of February, which DuckDB refuses with its own words
        return None
    return day if day.isoformat() == text else None


def _number(text: str) -> int | Decimal | None:
    """An integer, or a decimal number with digits on both sides of its point; None for one with an exponent."""
    integer, _, fraction = text.partition(".")
    if not integer.isdecimal() or (fraction and not fraction.isdecimal()):
        return None
    return Decimal(text) if fraction else int(text) if text.isdecimal() else None


def condition(binding: Binding, node: Node, negated: bool = False) -> Condition:
    """Truth of a resolved boolean expression; with `negated`, truth of its NOT.

    Args:
        binding: the FROM clause.
        node: a resolved boolean expression.
        negated: ask for NOT node.

    Returns:
        A condition over predicates.
    """
    if isinstance(node, exp.Paren):
        return condition(binding, node.this, negated)
    if isinstance(node, exp.Not):
        return condition(binding, node.this, not negated)
    if isinstance(node, (exp.And, exp.Or)):
        sides = [condition(binding, side, negated) for side in (node.left, node.right)]
        return every(sides) if isinstance(node, exp.And) != negated else some(sides)
    if isinstance(node, exp.Boolean):
        return TRUE if bool(node.this) != negated else FALSE
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean):
        truth = condition(binding, node.this, not node.expression.this)
        return complement(truth) if negated else truth
    if isinstance(node, exp.In) and isinstance(node.this, exp.Tuple) and node.expressions:
        # (a, b) IN ((1, 2), (3, 4)) as an OR of ANDs, so that a and b may lie on two axes.
        names = node.this.expressions
        rows = []
        for row in node.expressions:
            values = row.expressions if isinstance(row, exp.Tuple) else [row]
            if len(values) != len(names):
                raise refusal(
                    ProgrammingError, "the tuples of an IN differ in length", at=node, clause="WHERE"
                )
            equal = [exp.EQ(this=a.copy(), expression=b.copy()) for a, b in zip(names, values, strict=True)]
            rows.append(exp.and_(*equal))
        return condition(binding, exp.or_(*rows), negated)
    if _is_case(node):
        return _case(binding, node, negated)
    if _of_null(node):
        if _never_null(binding, node.this):
            return TRUE if negated else FALSE
        if (present := _presence(binding, node.this)) is not None:
            return present if negated else complement(present)
        if (partner := _partner(binding, node.this)) is not None:
            return complement(partner) if not negated else partner
    leaf = exp.Not(this=exp.Paren(this=node.copy())) if negated else node
    return Predicate(expression(binding, leaf))


def _never_null(binding: Binding, node: exp.Column) -> bool:
    """True if a column without an axis is never NULL: declared so, or the key of a partner that every row has."""
    instance, name = binding.rows.of(node)
    path = binding.paths.path[instance.number]
    if binding.schema.axis_columns(binding.ref(node)):
        return False
    if name in instance.table.foreign_keys:
        return _has_partner(binding, (*path, name))
    declared = name not in instance.table.nullable
    return declared and (not path or (name == instance.table.key and _has_partner(binding, path)))


def _presence(binding: Binding, node: exp.Column) -> Condition | None:
    """Rows where a nullable measure without an axis has a value, which its own count tells (`aggregates`)."""
    instance, name = binding.rows.of(node)
    measure = MeasureName(f"{instance.table.name}.{name}")
    if measure.counted not in binding.schema.measures or not binding.lacks_axis(node):
        return None
    present = expression(binding, exp.Not(this=exp.Is(this=node.copy(), expression=exp.Null())))
    binding.presences[present] = measure
    return Predicate(present)


def _has_partner(binding: Binding, path: tuple[str, ...]) -> bool:
    """True if every row has a partner along a path: it is joined so, or the release keeps no row without."""
    if any(needed and where[: len(path)] == path for where, needed in binding.paths.joins.items()):
        return True
    return binding.schema.complete(binding.paths.root, path)


def _partner(binding: Binding, node: exp.Column) -> Condition | None:
    """Rows with a partner, where a column is the partner's key; None for any other column.

    Raises:
        NotSupportedError: a foreign key, which a release does not tell from one that finds no row.
    """
    instance, name = binding.rows.of(node)
    path = binding.paths.path[instance.number]
    if name in instance.table.foreign_keys:
        if binding.stored(node):
            return None
        target = instance.table.foreign_keys[name]
        raise refusal(
            NotSupportedError, f"NULLs of {node.name} and keys that find no {target} are counted together",
            at=node, clause="WHERE", hint=f"LEFT JOIN {target} and ask whether its key is NULL",
        )  # fmt: skip
    if not path or name != instance.table.key:
        return None
    return _has(binding, path, instance.table, span(node))


def _has(binding: Binding, path: tuple[str, ...], table: SchemaTable, place: Span | None) -> Predicate:
    """Rows with a partner at the end of a path."""
    number = binding.placeholder(ColumnRef(path, table.name, str(table.key), partner=True))
    words = f"{table.name}.{table.key} IS NOT NULL"
    return Predicate(Expression(f"dp_c{number}", frozenset({number}), True, place, lambda: words))


def joined(binding: Binding) -> list[Condition]:
    """One condition for each inner join: a row has the partner. A join beyond another one implies that one."""
    inner = [path for path, needed in binding.paths.joins.items() if needed]
    farthest = [p for p in inner if not any(len(q) > len(p) and q[: len(p)] == p for q in inner)]
    tables = {binding.paths.path[instance.number]: instance.table for instance in binding.rows.instances}
    return [_has(binding, path, tables[path], None) for path in farthest]


def _is_case(node: Node) -> bool:
    """True if a condition is a CASE over several columns, or compares one with a constant."""
    case = (
        node.this
        if isinstance(node, (exp.EQ, exp.NEQ)) and isinstance(node.expression, exp.Literal)
        else node
    )
    columns = {(column.table, column.name) for column in case.find_all(exp.Column)}
    return isinstance(case, exp.Case) and len(columns) > 1


def _case(binding: Binding, node: Node, negated: bool) -> Condition:
    """CASE as a condition: each branch's own where it is reached, so that its tests may lie on several axes."""
    case = node if isinstance(node, exp.Case) else node.this

    def asked(value: Node) -> Condition:
        tested = value if node is case else type(node)(this=exp.Paren(this=value), expression=node.expression)
        return (
            FALSE
            if node is case and isinstance(value, exp.Null)
            else condition(binding, tested.copy(), negated)
        )

    conditions: list[Condition] = []
    reached: Condition = TRUE
    for branch in case.args["ifs"]:
        test = branch.this if case.this is None else exp.EQ(this=case.this, expression=branch.this)
        holds = condition(binding, test.copy())
        conditions.append(every([reached, holds, asked(branch.args["true"])]))
        reached = every([reached, complement(holds)])
    otherwise = case.args.get("default")
    if otherwise is not None:
        conditions.append(every([reached, asked(otherwise)]))
    return some(conditions)
