"""IN and EXISTS over a table's key, as the join that they state.

    WHERE product_id IN (SELECT product_id FROM product WHERE category = 'tea')
    WHERE EXISTS (SELECT 1 FROM product AS p WHERE p.product_id = sales.product_id AND p.category = 'tea')

A row has one partner at most, so both keep a row once, as the inner join does, and become it. Under NOT, OR or CASE
they become a condition over a left join: the partner is there and meets the conditions.

`NOT EXISTS` takes rows without a partner. `NOT IN` takes those whose key finds no row, but not those whose key is NULL;
a release counts the two together, so it is refused where there are any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.row_expressions.expression import Node
from dpsql.sql.from_clause import RowRelation, bind_from, column_of, conjuncts, is_row_level, resolve
from dpsql.sql.parse import refusal
from dpsql.sql.statement import Context, Scope, unaliased


class _PartnerCondition(NamedTuple):
    """A condition that a row has a partner.

    Args:
        select: the partners.
        key: their column, as it is written.
        foreign: the row's column, resolved.
    """

    select: exp.Select
    key: Node
    foreign: exp.Column


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
        rewritten += conjuncts(bracketed)
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


def _member(context: Context, rows: RowRelation, node: Node, scope: Scope) -> _PartnerCondition | None:
    """Semijoin condition, if its partners are named by their key."""
    query = node.this if isinstance(node, exp.Exists) else node.args["query"]
    while isinstance(query, exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select) or not is_row_level(context, query, scope):
        return None
    if isinstance(node, exp.In):
        keys, foreign = [unaliased(projection) for projection in query.expressions], node.this
        if len(keys) != 1 or not isinstance(keys[0], exp.Column) or not isinstance(foreign, exp.Column):
            return None
        return _checked(context, rows, _PartnerCondition(query, keys[0], foreign), scope)
    query = query.copy()
    where = query.args.get("where")
    conditions = conjuncts(where.this if where is not None else None)
    outside = {source.alias.lower() for source in rows.sources} - _aliases(query)
    for condition in conditions:
        sides = (condition.left, condition.right) if isinstance(condition, exp.EQ) else ()
        for key, foreign in (sides, sides[::-1]) if sides else ():
            if (
                isinstance(foreign, exp.Column)
                and foreign.table.lower() in outside
                and isinstance(key, exp.Column)
            ):
                remaining = [test for test in conditions if test is not condition]
                if any(
                    column.table.lower() in outside
                    for test in remaining
                    for column in test.find_all(exp.Column)
                ):
                    return None
                query.set("where", exp.Where(this=exp.and_(*remaining)) if remaining else None)
                return _checked(context, rows, _PartnerCondition(query, key, foreign), scope)
    return None


def _aliases(select: exp.Select) -> set[str]:
    """Names of a SELECT's own relations."""
    relations = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or [])]
    return {relation.alias_or_name.lower() for relation in relations}


def _checked(
    context: Context, rows: RowRelation, member: _PartnerCondition, scope: Scope
) -> _PartnerCondition | None:
    """The condition, if it says that a foreign key is the key that it points at."""
    outer = resolve(rows, member.foreign, context.schema)
    alone = bind_from(context, member.select, scope)
    inner = resolve(alone, member.key, context.schema)
    if not isinstance(outer, exp.Column) or not isinstance(inner, exp.Column):
        return None
    foreign = _foreign(rows, outer)
    (instance, name), (partner, key) = rows.of(foreign), alone.of(inner)
    points = instance.table.foreign_keys.get(name, "").lower() == partner.table.name.lower()
    return member._replace(foreign=foreign) if points and key == partner.table.key else None


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


def _joined(context: Context, rows: RowRelation, node: Node, member: _PartnerCondition, scope: Scope) -> Node:
    """Replacement of the condition after its table is joined."""
    above = node.parent
    instances, conditions = len(rows.instances), len(rows.conditions)
    inner = bind_from(context, member.select, scope, rows)
    key = resolve(inner, member.key, context.schema)
    added = rows.conditions[conditions:]
    joins = [condition for condition in added if _ties(condition)]
    rows.conditions[conditions:] = [*joins, exp.EQ(this=member.foreign.copy(), expression=key.copy())]
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
        raise refusal(
            NotSupportedError, "IN under NOT is not true where the key is NULL", at=node, clause="WHERE",
            hint="write EXISTS, or NOT IN as a condition of its own",
        )  # fmt: skip
    # NOT (is_member OR key IS NULL): rows whose key is NULL are in neither
    return exp.Paren(this=exp.or_(is_member, exp.Is(this=member.foreign.copy(), expression=exp.Null())))


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
