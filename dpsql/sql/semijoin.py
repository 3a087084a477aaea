"""IN and EXISTS over another table's rows, as the joins and counts that they state.

    WHERE product_id IN (SELECT product_id FROM product WHERE category = 'tea')
    WHERE EXISTS (SELECT 1 FROM product AS p WHERE p.product_id = sales.product_id AND p.category = 'tea')

A row has one partner at most, so both keep a row once, as the inner join does, and become it. Under NOT, OR or CASE
they become a condition over a left join: the partner is there and meets the conditions.

`NOT EXISTS` takes rows without a partner. `NOT IN` takes those whose key finds no row, but not those whose key is NULL;
a release counts the two together, so it is refused where there are any.

People who have a row that meets a condition are counted by that row:

    SELECT COUNT(*) FROM customer WHERE customer_id IN (SELECT customer_id FROM sales WHERE day < 8)
    SELECT COUNT(*) FROM customer AS c WHERE EXISTS (SELECT 1 FROM sales WHERE sales.customer_id = c.customer_id AND ..)

both ask what `SELECT COUNT(DISTINCT customer_id) FROM sales WHERE day < 8` asks, and become it. Conditions and groups
over the person's own columns stay, over the join that reaches them. Other shapes are refused, with what to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.planner.schema import Schema, SchemaTable
from dpsql.row_expressions.expression import Node
from dpsql.sql import parse
from dpsql.sql.from_clause import RowRelation, base_tables, bind_from, column_of, is_row_level, resolve
from dpsql.sql.statement import Context, Scope


class _Membership(NamedTuple):
    """IN or EXISTS: a row elsewhere has the key that a column here names.

    Args:
        select: the rows elsewhere, without the condition that ties the two together.
        key: their column, as it is written.
        outer: the column here; resolved once it is known to be a foreign key.
    """

    select: exp.Select
    key: exp.Column
    outer: exp.Column


def _membership(node: Node, is_outer: Callable[[exp.Column], bool]) -> _Membership | None:
    """The rows and the columns that IN or EXISTS compares; None where it compares anything else.

    Args:
        node: the condition.
        is_outer: whether a column of an EXISTS is one of the query around it.
    """
    query = node.this if isinstance(node, exp.Exists) else node.args.get("query")
    query = query.unnest() if isinstance(query, exp.Query) else None
    if not isinstance(query, exp.Select) or not isinstance(node, (exp.In, exp.Exists)):
        return None
    if isinstance(node, exp.In):
        keys = [parse.unaliased(projection) for projection in query.expressions]
        if len(keys) != 1 or not isinstance(keys[0], exp.Column) or not isinstance(node.this, exp.Column):
            return None
        return _Membership(query, keys[0], node.this)
    query = query.copy()
    conditions = parse.conjuncts(query.args.get("where"))
    ties = [(test, *sides) for test in conditions for sides in _compared(test) if is_outer(sides[1])]
    if len(ties) != 1 or is_outer(ties[0][1]):
        return None
    tie, key, outer = ties[0]
    remaining = [test for test in conditions if test is not tie]
    if any(map(is_outer, (column for test in remaining for column in test.find_all(exp.Column)))):
        return None
    query.set("where", exp.Where(this=exp.and_(*remaining)) if remaining else None)
    return _Membership(query, key, outer)


def _compared(test: Node) -> list[tuple[exp.Column, exp.Column]]:
    """The two columns that a test says are equal, in either order; none of any other test."""
    left, right = (test.left, test.right) if isinstance(test, exp.EQ) else (None, None)
    columns = isinstance(left, exp.Column) and isinstance(right, exp.Column)
    return [(left, right), (right, left)] if columns else []  # type: ignore[list-item]


def join_members(context: Context, rows: RowRelation, scope: Scope) -> None:
    """Replace every IN and EXISTS over a table's key in the conditions of some rows.

    Args:
        context: the statement.
        rows: gain the tables; their conditions change in place.
        scope: CTEs.
    """
    conditions, rewritten = list(rows.conditions), list[Node]()
    for condition in conditions:
        bracketed = exp.Paren(this=condition)
        for node in list(_asking(bracketed)):
            member = _member(context, rows, node, scope)
            if member is not None:
                node.replace(_joined(context, rows, node, member, scope))
        rewritten += parse.conjuncts(bracketed)
    rows.conditions[: len(conditions)] = rewritten


def _asking(node: Node) -> Iterator[Node]:
    """IN and EXISTS with a query, outside of other queries."""
    for child in node.iter_expressions():
        if isinstance(child, exp.Exists) or (
            isinstance(child, exp.In) and child.args.get("query") is not None
        ):
            yield child
        elif not isinstance(child, exp.Query):
            yield from _asking(child)


def _member(context: Context, rows: RowRelation, node: Node, scope: Scope) -> _Membership | None:
    """Semijoin condition, if its partners are named by their key."""
    query = (node.this if isinstance(node, exp.Exists) else node.args["query"]).unnest()
    if not isinstance(query, exp.Select) or not is_row_level(context, query, scope):
        return None
    inside = {relation.alias_or_name.lower() for relation in parse.relations(query)}
    outside = {source.alias.lower() for source in rows.sources} - inside
    member = _membership(node, lambda column: column.table.lower() in outside)
    return member and _checked(context, rows, member, scope)


def _checked(context: Context, rows: RowRelation, member: _Membership, scope: Scope) -> _Membership | None:
    """The condition, if it says that a foreign key is the key that it points at."""
    outer = resolve(rows, member.outer, context.schema)
    alone = bind_from(context, member.select, scope)
    inner = resolve(alone, member.key, context.schema)
    if not isinstance(outer, exp.Column) or not isinstance(inner, exp.Column):
        return None
    foreign = _foreign(rows, outer)
    (instance, name), (partner, key) = rows.of(foreign), alone.of(inner)
    points = instance.table.foreign_keys.get(name, "").lower() == partner.table.name.lower()
    return member._replace(outer=foreign) if points and key == partner.table.key else None


def _foreign(rows: RowRelation, column: exp.Column) -> exp.Column:
    """The foreign key that a join says a key is equal to, else the column itself."""
    for condition in rows.conditions:
        if isinstance(condition, exp.EQ) and column in (condition.left, condition.right):
            partner = condition.right if condition.left == column else condition.left
            if isinstance(partner, exp.Column):
                instance, name = rows.of(partner)
                if name in instance.table.foreign_keys:
                    return partner
    return column


def _joined(context: Context, rows: RowRelation, node: Node, member: _Membership, scope: Scope) -> Node:
    """Replacement of the condition after its table is joined."""
    above = node.parent
    instances, conditions = len(rows.instances), len(rows.conditions)
    inner = bind_from(context, member.select, scope, rows)
    key = resolve(inner, member.key, context.schema)
    added = rows.conditions[conditions:]
    joins = [condition for condition in added if _ties(condition)]
    rows.conditions[conditions:] = [*joins, exp.EQ(this=member.outer.copy(), expression=key.copy())]
    tests = [condition for condition in added if not _ties(condition)]
    if _top(node):
        return exp.Paren(this=exp.and_(exp.true(), *tests))
    required = [instance for instance in rows.instances[instances:] if not instance.left]
    for instance in required:
        instance.left = True
    keys = [key, *(column_of(i.number, str(i.table.key)) for i in required)]
    present = [
        exp.Not(this=exp.Is(this=expression, expression=exp.Null())) for expression in dict.fromkeys(keys)
    ]
    is_member = exp.Paren(this=exp.Is(this=exp.Paren(this=exp.and_(*present, *tests)), expression=exp.true()))
    negated = [expression for expression in _above(node) if isinstance(expression, exp.Not)]
    if isinstance(node, exp.Exists) or not negated:
        return is_member
    if len(negated) > 1 or negated[0] is not above or not _top(above):
        raise parse.refusal(
            NotSupportedError, "IN under NOT is not true where the key is NULL", at=node, clause="WHERE",
            hint="write EXISTS, or NOT IN as a condition of its own",
        )  # fmt: skip
    # NOT (is_member OR key IS NULL): rows whose key is NULL are in neither
    return exp.Paren(this=exp.or_(is_member, exp.Is(this=member.outer.copy(), expression=exp.Null())))


def _ties(condition: Node) -> bool:
    """True if a condition joins two tables."""
    columns = {column.table for column in condition.find_all(exp.Column)}
    return isinstance(condition, exp.EQ) and len(columns) == 2 and isinstance(condition.left, exp.Column)


def _above(node: Node) -> Iterator[Node]:
    while node.parent is not None:
        node = node.parent
        yield node


def _top(node: Node) -> bool:
    """True if a condition stands beside AND alone."""
    return all(isinstance(ancestor, (exp.And, exp.Paren)) for ancestor in _above(node))


def count_members(tree: Node, schema: Schema) -> None:
    """Rewrite every SELECT over the people's table that asks who has a row.

    Args:
        tree: a parsed statement; changed in place.
        schema: the star.
    """
    for select in list(tree.find_all(exp.Select)):
        people = _people(select, schema)
        if people is not None:
            _rewrite(select, people)


class _PeopleSource(NamedTuple):
    """The people's table in a FROM clause, alone.

    Args:
        source: where it stands.
        table: what is known of it.
    """

    source: exp.Table
    table: SchemaTable

    @property
    def alias(self) -> str:
        """Alias of the source in the statement."""
        return str(self.source.alias_or_name)

    def is_key(self, node: Node) -> bool:
        """True if a column is the person's key."""
        is_column = isinstance(node, exp.Column) and node.table.lower() in ("", self.alias.lower())
        return is_column and node.name.lower() == str(self.table.key).lower()


def _people(select: exp.Select, schema: Schema) -> _PeopleSource | None:
    """The people's table, where it is all that a SELECT stands over."""
    source, tables = select.args.get("from_"), list(chain.from_iterable(base_tables(select, schema).values()))
    if source is None or select.args.get("joins") or source.this.args.get("joins"):
        return None
    alone = schema.unit is not None and [table.name for table in tables] == [schema.unit.table]
    return _PeopleSource(source.this, tables[0]) if alone else None


def _rewrite(select: exp.Select, people: _PeopleSource) -> None:
    """Count the rows' different keys in place of the people, where one condition alone asks for rows."""
    conditions = parse.conjuncts(select.args.get("where"))
    asking = [condition for condition in conditions if condition.find(exp.Select) is not None]
    calls = _calls(select)
    if not asking or not calls:
        return
    # other conditions compare with an answer
    asked = (node for condition in asking for node in condition.find_all(exp.Column, exp.Exists))
    outside = (node for node in asked if node.find_ancestor(exp.Subquery) is None)
    if not any(isinstance(node, exp.Exists) or people.is_key(node) for node in outside):
        return
    counts_rows = all(isinstance(call, exp.Count) and isinstance(call.this, exp.Star) for call in calls)
    member = _rows_of(asking[0], people) if len(asking) == 1 and counts_rows else None
    if member is None:
        key, name = people.table.key, people.table.name
        raise parse.refusal(
            NotSupportedError,
            f"a condition on rows elsewhere would be evaluated for each of {name}",
            at=asking[0],
            clause="WHERE",
            hint=f"COUNT(*) takes one `{key} IN (SELECT {key} FROM .. WHERE ..)` or EXISTS, and AND; "
            f"those without a row are all of {name} less those with one",
        )
    source, tests = member.select.args["from_"].this, parse.conjuncts(member.select.args.get("where"))
    if isinstance(source, exp.Table) and not member.select.args.get("joins"):
        for expression in [member.key, *tests]:  # the people's table may join them
            for column in expression.find_all(exp.Column):
                if not column.table:
                    column.set("table", exp.to_identifier(source.alias_or_name))
    remaining = [condition for condition in conditions if condition is not asking[0]]
    for projection in select.expressions:
        if parse.aggregates(projection) and not isinstance(projection, exp.Alias):
            projection.replace(parse.named(projection.copy(), parse.output_name(projection)))
    # Columns of the people's table in what stays of the SELECT.
    clauses = (select.args.get(key) for key in ("group", "having", "order"))
    expressions = [*select.expressions, *remaining, *(clause for clause in clauses if clause is not None)]
    columns = [column for expression in expressions for column in expression.find_all(exp.Column)]
    people_columns = [column for column in columns if people.table.column(column.name) is not None]
    for call in _calls(select):
        call.replace(exp.Count(this=exp.Distinct(expressions=[member.key.copy()])))
    joins = [*(member.select.args.get("joins") or [])]
    for column in people_columns:
        column.set("table", exp.to_identifier(people.alias))
    if people_columns:
        tie = exp.EQ(this=member.key.copy(), expression=exp.column(str(people.table.key), people.alias))
        joins.append(exp.Join(this=people.source.copy(), on=tie))
    select.set("from_", member.select.args["from_"])
    select.set("joins", joins or None)
    all_conditions = [*tests, *remaining]
    select.set("where", exp.Where(this=exp.and_(*all_conditions, copy=False)) if all_conditions else None)


def _calls(select: exp.Select) -> list[exp.AggFunc]:
    """Aggregate calls of the select list, HAVING and ORDER BY, those inside functions of an error too."""
    clauses = (select.args.get(key) for key in ("having", "order"))
    expressions = [*select.expressions, *(clause for clause in clauses if clause is not None)]
    return [
        call
        for expression in expressions
        for outer in parse.aggregates(expression)
        for call in outer.find_all(exp.AggFunc)
    ]


def _rows_of(condition: Node, people: _PeopleSource) -> _Membership | None:
    """The rows that name the person by her key, if a condition asks for nothing else."""
    member = _membership(condition, lambda column: column.table.lower() == people.alias.lower())
    return member if member is not None and _plain(member.select) and people.is_key(member.outer) else None


def _plain(rows: Node) -> bool:
    """True if a SELECT only filters, so that who is in it is who has a row."""
    clauses = ("group", "having", "limit", "offset", "qualify", "with_")
    return (
        isinstance(rows, exp.Select)
        and rows.args.get("from_") is not None
        and not any(rows.args.get(part) for part in clauses)
        and not any(parse.aggregates(projection) for projection in rows.expressions)
        and not any(part.find(exp.Select) for part in parse.conjuncts(rows.args.get("where")))
    )
