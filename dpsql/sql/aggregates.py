"""Select list: aggregate calls become values of a block, arithmetic over them becomes forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from sqlglot import exp

from dpsql.catalog.base import COUNT, PEOPLE, MeasureName
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, ERRORS, ErrorFunction
from dpsql.planner.block import (
    ROWS,
    CatalogValue,
    Form,
    Linear,
    Ratio,
    Value,
    added,
    divided,
    is_constant,
    multiplied,
    one,
)
from dpsql.planner.schema import TRUE, Condition, Predicate, Term, complement, conjuncts, every, in_domain
from dpsql.row_expressions.expression import Node
from dpsql.sql.binding import Binding, condition, declared_measures, expression
from dpsql.sql.parse import refusal
from dpsql.sql.semijoin import check_call

QUANTILES = (exp.Median, exp.Quantile, exp.PercentileCont, exp.PercentileDisc, exp.ApproxQuantile)

OUTER = 0.01
"""The share of rows beyond what MIN and MAX of a measure give."""


def aggregate(binding: Binding, node: Node) -> Value:
    """The value that an aggregate call asks for, over rows where WHERE says that measures are there or NULL.

    Args, returns, raises: as `_value`.
    """
    value = _value(binding, node)
    if not binding.presences:
        return value
    value = value if binding.within == TRUE else _under(value, binding.within, node)
    return value.mapped(partial(_by_presence, binding)) if isinstance(value, Linear | Ratio) else value


def _by_presence(binding: Binding, form: Linear) -> Linear:
    """Rows where a nullable measure is there by its own count; those where it is NULL are all rows less these."""
    total = Linear((), form.constant)
    for term, weight in form.weights:
        tests = conjuncts(term.condition)
        known = next(
            (t for t in tests if isinstance(t, Predicate) and t.expression in binding.presences), None
        )
        measure = MeasureName("") if known is None else binding.presences[known.expression]
        counted = {COUNT: measure.counted, measure: measure, measure.counted: measure.counted}
        if known is None or term.measure not in counted or term.factor is not None:
            total = total.plus(one(term), weight)
            continue
        rows = every([test for test in tests if test is not known])
        present = one(Term(counted[term.measure], rows))
        shown = one(Term(term.measure, rows)).plus(present, -1.0) if known.negated else present
        total = total.plus(_by_presence(binding, shown), weight)
    return total


def _value(binding: Binding, node: Node) -> Value:
    """The value that an aggregate call asks for, over all rows of the block.

    Args:
        binding: the FROM clause.
        node: the call, its arguments resolved; `FILTER` and `WITHIN GROUP` included.

    Returns:
        A linear form, a ratio or a catalog fact.

    Raises:
        NotSupportedError: an aggregate that no release can answer, with the nearest one that it can.
    """
    if isinstance(node, exp.Filter):
        return _under(_value(binding, node.this), condition(binding, node.expression.this), node)
    check_call(binding.rows, binding.paths, node)
    if isinstance(node, exp.WithinGroup):
        return _within_group(binding, node)
    if isinstance(node, exp.Count):
        return _count(binding, node)
    if isinstance(node, (exp.CountIf, exp.Min, exp.Max)) and node.this is None:
        raise refusal(
            ProgrammingError,
            f"{node.key.upper()} needs an argument",
            at=node,
            clause="SELECT",
            hint="name a column",
        )
    if isinstance(node, exp.CountIf):
        return one(Term(COUNT, condition(binding, node.this)))
    if isinstance(node, exp.Sum):
        _no_distinct(node)
        return _total(binding, node.this, TRUE, node)[0]
    if isinstance(node, exp.Avg):
        _no_distinct(node)
        above, below = _total(binding, node.this, TRUE, node)
        return Ratio(above, below, mean=True)
    if isinstance(node, (exp.Min, exp.Max)):
        return _extreme(binding, node)
    if isinstance(node, exp.Median):
        return CatalogValue("quantile", expression(binding, node.this), 0.5)
    if isinstance(node, QUANTILES):
        where = node.args.get("quantile") or node.args.get("expression")
        at = _number(where) if isinstance(where, Node) else None
        return _quantile(binding, node, at, node.this)
    name = node.sql_name() if isinstance(node, exp.Func) else node.key
    raise refusal(
        NotSupportedError,
        f"{name} is not published",
        at=node,
        clause="SELECT",
        hint="COUNT, SUM and AVG are; MIN, MAX and MEDIAN of an axis too",
    )


def _extreme(binding: Binding, node: exp.Min | exp.Max) -> CatalogValue:
    """MIN or MAX: of an axis the catalog's, of a measure an outer percentile, for one row decides its extremes."""
    name, value = node.key, _bare(node.this)
    if isinstance(value, exp.Column):
        instance, column = binding.rows.of(value)
        if column in instance.table.quantiles:
            at = OUTER if name == "min" else 1 - OUTER
            return CatalogValue("quantile", expression(binding, value), at, name.upper())
    return CatalogValue(name, expression(binding, node.this))


def _no_distinct(node: Node) -> None:
    if isinstance(node.this, exp.Distinct):
        raise refusal(
            NotSupportedError,
            f"{node.key.upper()}(DISTINCT ..) depends on which values occur, and a release does not reveal that",
            at=node,
            clause="SELECT",
            hint="drop DISTINCT",
        )


def _under(value: Value, extra: Condition, node: Node) -> Value:
    """The same value over the rows that also meet a condition."""

    def narrowed(form: Linear) -> Linear:
        weights = tuple((replace(t, condition=every([t.condition, extra])), w) for t, w in form.weights)
        return replace(form, weights=weights)

    if isinstance(value, Linear | Ratio):
        return value.mapped(narrowed)
    raise refusal(
        NotSupportedError,
        "FILTER and NULLs of a measure go with COUNT, SUM and AVG only",
        at=node,
        clause="FILTER",
        hint="put the condition in WHERE",
    )


def _count(binding: Binding, node: exp.Count) -> Value:
    inner = node.this
    if isinstance(inner, exp.Distinct):
        if len(inner.expressions) != 1:
            raise refusal(NotSupportedError, "COUNT(DISTINCT ..) takes one column", at=node, clause="SELECT")
        people = _people(binding, inner.expressions[0])
        return (
            CatalogValue("count", expression(binding, inner.expressions[0]))
            if people is None
            else one(people)
        )
    if inner is None or isinstance(inner, exp.Star) or _number(inner) is not None:
        return ROWS
    inner = _bare(inner)
    # with numbers added to it an expression is NULL where it is NULL without them
    while isinstance(inner, (exp.Add, exp.Sub)) and (_number(inner.left) is None) != (
        _number(inner.right) is None
    ):
        inner = _bare(inner.left if _number(inner.left) is None else inner.right)
    if isinstance(inner, exp.Case):
        return _total(binding, inner, TRUE, node)[1]
    return one(_presence(binding, inner, TRUE))


def _people(binding: Binding, node: Node) -> Term | None:
    """Different privacy units, if a resolved expression is the key that names them; where a CASE says, some of them."""
    unit, root, node = binding.schema.unit, binding.paths.root, _bare(node)
    branch = _only_branch(node)
    if branch is not None:
        counted = _people(binding, branch.args["true"])
        return counted and replace(
            counted, condition=every([counted.condition, condition(binding, branch.this)])
        )
    if unit is None or not isinstance(node, exp.Column):
        return None
    if binding.ref(node) not in unit.columns.get(root.lower(), ()):
        return None
    # each unit behind a row counts once; where each row is a unit, rows do
    return Term(COUNT if root.lower() == unit.table.lower() else PEOPLE)


def _only_branch(node: Node) -> exp.If | None:
    """The one condition of a CASE that is NULL elsewhere."""
    otherwise = node.args.get("default") or node.args.get("false")
    if otherwise is not None and not isinstance(otherwise, exp.Null):
        return None
    if isinstance(node, exp.Case) and node.this is None and len(node.args["ifs"]) == 1:
        (only,) = node.args["ifs"]
        return only if isinstance(only, exp.If) else None
    return node if isinstance(node, exp.If) else None


def _presence(binding: Binding, node: Node, where: Condition) -> Term:
    """Rows where an expression is not NULL."""
    measure = measure_of(binding, node)
    if measure is not None:
        counted = presence_measure(binding, measure)
        binding.never_null |= {measure: None} if counted.counts_rows else {}
        return Term(counted, where)
    if isinstance(node, exp.Column):
        instance, name = binding.rows.of(node)
        path = binding.paths.path[instance.number]
        present_rows = MeasureName(f"{instance.table.name}.{name}").counted
        if present_rows in binding.schema.measures and not path and binding.lacks_axis(node):
            # a view may count it without its sum; where it has an axis, views of that say more: by any of their axes
            return Term(present_rows, where)
        sure = name not in instance.table.nullable and name not in instance.table.foreign_keys
        unit_columns = (
            ()
            if binding.schema.unit is None
            else binding.schema.unit.columns.get(binding.paths.root.lower(), ())
        )
        whose = not path and binding.ref(node) in unit_columns  # rows of nobody are in no release
        if not path and (sure or whose):
            declared = sure and not whose and name != instance.table.key and name in instance.table.types
            binding.never_null |= {f"{instance.table.name}.{name}": None} if declared else {}
            return Term(COUNT, where)
    present = exp.Not(this=exp.Is(this=node.copy(), expression=exp.Null()))
    return Term(COUNT, every([where, condition(binding, present)]))


def presence_measure(binding: Binding, measure: MeasureName) -> MeasureName:
    """`count(table.column)` where a nullable measure has its own count, else `count`."""
    return measure.counted if measure.counted in binding.schema.measures else COUNT


def _total(binding: Binding, node: Node, where: Condition, call: Node) -> tuple[Linear, Linear]:
    """(SUM, COUNT of non-NULL values) of an expression over the rows that meet a condition."""
    node = _bare(node)
    number = _number(node)
    if number is not None:
        count = one(Term(COUNT, where))
        return count.scaled(number), count
    measure = measure_of(binding, node)
    if measure is not None:
        return one(Term(measure, where)), one(Term(presence_measure(binding, measure), where))
    if isinstance(node, exp.Neg):
        above, below = _total(binding, node.this, where, call)
        return above.scaled(-1.0), below
    # days since a date are numbers, and neither side is
    if isinstance(node, (exp.Add, exp.Sub)) and all(
        _number(side) is not None or side.find(exp.Column) for side in (node.left, node.right)
    ):
        return _combined(binding, node, where, call)
    if isinstance(node, (exp.Mul, exp.Div)):
        product = _product(binding, node, where, call)
        if product is not None:
            return product
    if isinstance(node, exp.Coalesce) and len(node.expressions) == 1:
        filling = _number(node.expressions[0])
        if filling is not None:
            (above, filled), count = _total(binding, node.this, where, call), one(Term(COUNT, where))
            return (above.plus(count.plus(filled, -1.0), filling) if filling else above), count
    if isinstance(node, (exp.Case, exp.If)):
        return _cases(binding, node, where, call)
    if binding.is_condition(node) and binding.of_one_axis(node):
        present_node = exp.Not(this=exp.Is(this=exp.Paren(this=node.copy()), expression=exp.Null()))
        true, present = condition(binding, node), condition(binding, present_node)
        return one(Term(COUNT, every([where, true]))), one(Term(COUNT, every([where, present])))
    if binding.of_one_axis(node):
        factor = expression(binding, node)
        return one(Term(COUNT, where, factor)), one(Term(COUNT, every([where, in_domain(factor)])))
    raise _no_measure(binding, node, call)


def _combined(binding: Binding, node: exp.Binary, where: Condition, call: Node) -> tuple[Linear, Linear]:
    """SUM(a + b) = SUM(a) + SUM(b) where both are present in the same rows."""
    sign = 1.0 if isinstance(node, exp.Add) else -1.0
    left_number, right_number = _number(node.left), _number(node.right)
    if right_number is not None:  # a number counts once for each row that has a value
        above, count = _total(binding, node.left, where, call)
        return above.plus(count.scaled(right_number), sign), count
    if left_number is not None:
        above, count = _total(binding, node.right, where, call)
        return count.scaled(left_number).plus(above, sign), count
    left, count = _total(binding, node.left, where, call)
    right, right_count = _total(binding, node.right, where, call)
    if count != right_count:
        raise refusal(
            NotSupportedError,
            "a row with one part NULL would drop the other part",
            at=call,
            clause="SELECT",
            hint="ask the curator for it as a column, `derive: {difference: ..}` in its table, and aggregate that",
        )
    return left.plus(right, sign), count


def _product(
    binding: Binding, node: exp.Binary, where: Condition, call: Node
) -> tuple[Linear, Linear] | None:
    """A measure times or divided by a number, or by what an axis tells; None where it is neither."""
    left, right = _number(_bare(node.left)), _number(_bare(node.right))
    if right is not None and (isinstance(node, exp.Mul) or right):
        above, below = _total(binding, node.left, where, call)
        return above.scaled(right if isinstance(node, exp.Mul) else 1.0 / right), below
    if left is not None and isinstance(node, exp.Mul):
        above, below = _total(binding, node.right, where, call)
        return above.scaled(left), below
    pairs = [(node.left, node.right)]
    if isinstance(node, exp.Mul):
        pairs.append((node.right, node.left))
    for value, by in pairs:
        if binding.of_one_axis(by) and not binding.of_one_axis(node):
            if isinstance(node, exp.Div):
                by = exp.Div(this=exp.Literal.number("1.0"), expression=exp.Paren(this=by.copy()))
            factor = expression(binding, by)
            above, below = _total(binding, value, every([where, in_domain(factor)]), call)
            if not above.constant and all(term.factor is None for term, _ in above.weights):
                weights = tuple((replace(term, factor=factor), weight) for term, weight in above.weights)
                return Linear(weights), below
    return None


def _cases(binding: Binding, node: Node, where: Condition, call: Node) -> tuple[Linear, Linear]:
    """SUM(CASE WHEN p THEN x WHEN q THEN y ELSE z END): each branch over the rows that reach it."""
    branches = node.args["ifs"] if isinstance(node, exp.Case) else [node]
    otherwise = node.args.get("default") if isinstance(node, exp.Case) else node.args.get("false")
    above, below, remaining = Linear(()), Linear(()), where
    subject = node.this if isinstance(node, exp.Case) else None
    for branch in branches:
        test = (
            exp.EQ(this=subject.copy(), expression=branch.this.copy()) if subject is not None else branch.this
        )
        holds = condition(binding, test)
        total, count = _branch(binding, branch.args["true"], every([remaining, holds]), call)
        above, below = above.plus(total), below.plus(count)
        remaining = every([remaining, complement(holds)])
    if otherwise is not None:
        total, count = _branch(binding, otherwise, remaining, call)
        above, below = above.plus(total), below.plus(count)
    return above, below


def _branch(binding: Binding, node: Node, where: Condition, call: Node) -> tuple[Linear, Linear]:
    node = _bare(node)
    if isinstance(node, exp.Null):
        return Linear(()), Linear(())
    if isinstance(call, exp.Count) and measure_of(binding, node) is None and _number(node) is None:
        count = (
            one(_presence(binding, node, where))
            if not isinstance(node, exp.Literal)
            else one(Term(COUNT, where))
        )
        return count, count
    return _total(binding, node, where, call)


def _bare(node: Node) -> Node:
    """Without brackets and numeric casts."""
    while isinstance(node, exp.Paren) or (isinstance(node, exp.Cast) and _numeric(node)):
        node = node.this
    return node


def _numeric(node: exp.Cast) -> bool:
    """True if a cast gives the same number."""
    return node.to.this in exp.DataType.NUMERIC_TYPES and not node.meta.get("rounds")


def _number(node: Node) -> float | None:
    """The value of a numeric literal, casts and sign included."""
    node = _bare(node)
    if isinstance(node, exp.Neg):
        inner = _number(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Literal) and not node.is_string:
        return float(node.this)
    return None


def measure_of(binding: Binding, node: Node) -> MeasureName | None:
    """The published measure that a resolved expression is, or None."""
    if isinstance(node, exp.Column):
        instance, name = binding.rows.of(node)
        measure = MeasureName(f"{instance.table.name}.{name}")
        return measure if measure in binding.schema.measures else None
    if isinstance(node, exp.Literal):
        return None
    wanted = _ordered(node)
    for measure, body in declared_measures(binding).items():
        if measure in binding.schema.measures and _ordered(body) == wanted:
            return measure
    return None


def _ordered(node: Node) -> Node:
    """A canonical form in which a * b equals b * a, without brackets."""

    def turn(descendant: Node) -> Node:
        if isinstance(descendant, exp.Paren):
            inner: Node = descendant.this
            return inner
        if isinstance(descendant, (exp.Mul, exp.Add)) and descendant.left.sql() > descendant.right.sql():
            return type(descendant)(this=descendant.right.copy(), expression=descendant.left.copy())
        return descendant

    return node.copy().transform(turn)


def _no_measure(binding: Binding, node: Node, call: Node) -> NotSupportedError:
    measures = sorted(m for m in binding.schema.measures if not m.is_count)
    root = binding.paths.root
    if not any(axis.of.lower() == root.lower() for axis in binding.schema.axes):
        return refusal(
            NotSupportedError, f"{call.key.upper()} of {_said(node)}: no view counts rows of {root}", at=call,
            clause="SELECT", hint="join it to the rows that a view counts, or ask the curator for a view",
        )  # fmt: skip
    hint = f"measures: {', '.join(measures)}" if measures else "only COUNT is published"
    columns = dict.fromkeys(column.name for column in node.find_all(exp.Column))
    if len(columns) > 1 and not binding.lacks_axis(node):  # a view of all of them has it, group by group
        hint += (
            f"; or count rows by {' and '.join(columns)} in a derived table, and sum their counts times it"
        )
    return refusal(
        NotSupportedError,
        f"{call.key.upper()} of {_said(node)}: no release has it as a measure or on one axis",
        at=call,
        clause="SELECT",
        hint=hint,
    )


def _said(node: Node) -> str:
    def name(descendant: Node) -> Node:
        if isinstance(descendant, exp.Column) and descendant.table:
            return exp.column(descendant.name)
        return descendant

    return node.copy().transform(name).sql(dialect="duckdb")[:80]


def _within_group(binding: Binding, node: exp.WithinGroup) -> CatalogValue:
    at = None if node.this.this is None else _number(node.this.this)
    ordered = node.expression.expressions
    if isinstance(node.this, exp.Mode):
        value = _said(ordered[0].this)
        raise refusal(
            NotSupportedError, "MODE() picks a value that noise may have made commonest", at=node, clause="SELECT",
            hint=f"SELECT {value}, COUNT(*) .. GROUP BY 1 ORDER BY 2 DESC LIMIT 1 says by how much it leads",
        )  # fmt: skip
    return _quantile(binding, node, at, ordered[0].this if len(ordered) == 1 else None)


def _quantile(binding: Binding, node: Node, at: float | None, value: Node | None) -> CatalogValue:
    if at is None or value is None or not 0 <= at <= 1:
        raise refusal(NotSupportedError, "a quantile takes one number from 0 to 1", at=node, clause="SELECT")
    return CatalogValue("quantile", expression(binding, value), at)


def form_of(node: Node, forms: Mapping[str, Form]) -> Form | None:
    """The form of an expression.

    Args:
        node: an expression over columns.
        forms: column (`name` or `table.name`, lower case) -> form.

    Returns:
        Its form; None where its error is not defined. A rounding or an integer cast is taken as exact.
    """
    if isinstance(node, (exp.Paren, exp.Alias)):
        return form_of(node.this, forms)
    if isinstance(node, exp.Column):
        return forms.get(f"{node.table}.{node.name}".lower() if node.table else node.name.lower())
    if isinstance(node, exp.Literal):
        return None if node.is_string else Linear((), float(node.this))
    if isinstance(node, exp.Neg):
        return multiplied(Linear((), -1.0), form_of(node.this, forms))
    if isinstance(node, exp.Cast):
        return form_of(node.this, forms) if _numeric(node) else None
    if isinstance(node, (exp.Coalesce, exp.Round)):
        return form_of(node.this, forms)
    if isinstance(node, exp.Nullif):
        return form_of(node.this, forms) if is_constant(form_of(node.expression, forms)) else None
    if isinstance(node, (exp.Add, exp.Sub)):
        sign = 1.0 if isinstance(node, exp.Add) else -1.0
        return added(form_of(node.left, forms), form_of(node.right, forms), sign)
    if isinstance(node, (exp.Mul, exp.Div)):
        combine = multiplied if isinstance(node, exp.Mul) else divided
        return combine(form_of(node.left, forms), form_of(node.right, forms))
    return None


def error_call(node: Node) -> tuple[ErrorFunction, Node, float]:
    """Error, expression and level of a call of a DP_ function.

    Raises:
        ProgrammingError: a wrong number of arguments, a level out of (0, 1).
    """
    name, arguments = str(node.this), node.expressions
    error = ERRORS[name.lower()]
    if error.compares and len(arguments) > 1:
        sides = (exp.Paren(this=side.copy()) for side in arguments[:2])
        arguments = [exp.Sub(this=next(sides), expression=next(sides)), *arguments[2:]]
    if len(arguments) == 2 and isinstance(arguments[1], exp.Literal) and arguments[1].name in error.parts:
        return error.parts[arguments[1].name], arguments[0], DEFAULT_LEVEL
    if not 1 <= len(arguments) <= 1 + error.takes_level or len(node.expressions) <= error.compares:
        choices = f" and one of {', '.join(repr(choice) for choice in error.parts)}" if error.parts else ""
        raise refusal(
            ProgrammingError,
            f"{name.upper()} takes {'two values' if error.compares else 'an aggregate'}"
            f"{' and a level' * error.takes_level}{choices}",
            at=node,
            clause="SELECT",
            hint=f"write {name.upper()}(COUNT(*){', 0' * error.compares})",
        )
    level_node = arguments[1] if len(arguments) > 1 else None
    level = DEFAULT_LEVEL if level_node is None else _number(level_node)
    if level is None or not 0 < level < 1:
        raise refusal(
            ProgrammingError,
            "an interval's level lies between 0 and 1",
            at=node,
            clause="SELECT",
            hint="for instance 0.95",
        )
    return error, arguments[0], level
