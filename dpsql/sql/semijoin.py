"""Joins along declared keys, and IN and EXISTS over another table's rows as the joins and counts that they state.

An equality between a declared foreign key and the key it points at is a join; it may stand in ON, USING or WHERE. All
instances must hang together on such joins, below one root that nothing points at. A left join *to* the root keeps
partners that no row has: `product LEFT JOIN sales`. Which these are is not public, but COUNT and SUM of the rows' own
columns do not see them, and groups are shown whether they are empty or not.

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

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.planner.schema import Schema, SchemaTable
from dpsql.row_expressions.expression import Node
from dpsql.sql import parse
from dpsql.sql.from_clause import (
    Edge,
    Instance,
    RowRelation,
    base_tables,
    bind_from,
    column_of,
    is_row_level,
    resolve,
)
from dpsql.sql.parse import refusal
from dpsql.sql.statement import Context, Scope


@dataclass(frozen=True)
class Paths:
    """Position of every table instance in the join tree.

    Args:
        root: the table whose rows count.
        path: instance number -> foreign keys from the root.
        joins: path of foreign keys to a joined dimension -> whether rows without a partner are left out; sorted.
        beside: instances whose rows are kept though no row of the root points at them.
    """

    root: str
    path: dict[int, tuple[str, ...]]
    joins: Mapping[tuple[str, ...], bool]
    beside: frozenset[int] = frozenset()


JoinColumn = tuple[int, str]
"""A column that a join compares: its instance's number and its name."""


def _compared_columns(rows: RowRelation, node: Node) -> tuple[JoinColumn, JoinColumn] | None:
    """The columns of two instances that a condition says are equal; None for any other condition."""
    if not isinstance(node, exp.EQ):
        return None
    sides = [rows.of(side) for side in (node.left, node.right) if isinstance(side, exp.Column)]
    if len(sides) < 2 or sides[0][0] is sides[1][0]:
        return None
    (left, a), (right, b) = sides
    return (left.number, a), (right.number, b)


def _declared_joins(
    rows: RowRelation, joins: Mapping[tuple[JoinColumn, JoinColumn], Node], schema: Schema
) -> list[Edge]:
    """Declared joins that equalities of columns state or, among tables of inner joins, imply: `USING (film_id)` over
    inventory, film and film_category says that an item's film is the film of the category.

    Raises:
        NotSupportedError: columns are compared that no declared joins make equal.
    """
    stated = {pair: _edges(rows, pair) for pair in joins}
    edges = list(chain.from_iterable(stated.values()))
    undeclared = [pair for pair in joins if not stated[pair]]
    if not undeclared:
        return edges
    classes: list[set[JoinColumn]] = []
    for pair in joins:
        met = [columns for columns in classes if not columns.isdisjoint(pair)]
        classes = [columns for columns in classes if columns not in met] + [set(pair).union(*met)]
    for pair in undeclared:
        columns = next(columns for columns in classes if pair[0] in columns)
        implied = _edges(rows, columns)
        # where a row has no partner NULL is equal to nothing; n columns hang together on n - 1 edges, as every child
        # has one parent (`find_paths`)
        if any(rows.instances[number].left for number, _ in columns) or len(implied) < len(columns) - 1:
            left, right = (rows.instances[number] for number, _ in pair)
            raise off_key(left, right, joins[pair], schema)
        edges += implied
    return edges


def _edges(rows: RowRelation, columns: Collection[JoinColumn]) -> list[Edge]:
    """Declared joins between equal columns: a foreign key, and the key that it points at."""
    edges: list[Edge] = []
    for parent, name in columns:
        target = rows.instances[parent].table.foreign_keys.get(name, "").lower()
        for child, key in columns:
            table = rows.instances[child].table
            if child != parent and (table.name.lower(), table.key) == (target, key):
                edges.append(Edge(parent, name, child))
    return edges


def off_key(left: Instance, right: Instance, node: Node, schema: Schema) -> NotSupportedError:
    """The refusal of a join that is not along a declared key."""
    if left.table.name == right.table.name:
        return refusal(
            NotSupportedError,
            f"a self-join of {left.table.name} would compare rows with each other",
            at=node,
            clause="JOIN",
            hint="ask for its groups instead, with GROUP BY",
        )
    keys = [
        f"{t.name}.{k} = {v}.{schema.tables[v.lower()].key}"
        for t in schema.tables.values()
        for k, v in t.foreign_keys.items()
        if v.lower() in schema.tables
    ]
    return refusal(
        NotSupportedError,
        f"{left.table.name} and {right.table.name} are joined off the declared keys",
        at=node,
        clause="JOIN",
        hint=f"declared joins: {', '.join(keys)}" if keys else "there are none",
    )


def find_paths(rows: RowRelation, schema: Schema) -> Paths:
    """Take the join conditions out of `rows.conditions` and find every instance's path.

    Args:
        rows: the FROM clause; its conditions lose the joins.
        schema: the star.

    Returns:
        The root and the paths.

    Raises:
        NotSupportedError: joins off the declared keys, a cross join, a self-join, two facts.
    """
    conditions, joins = list[Node](), dict[tuple[JoinColumn, JoinColumn], Node]()
    for condition in rows.conditions:
        pair = _compared_columns(rows, condition)
        if pair is None:
            conditions.append(condition)
        else:
            joins.setdefault(pair, condition)
    edges = [*rows.edges, *_declared_joins(rows, joins, schema)]
    rows.conditions = conditions
    pointed = {edge.child for edge in edges}
    roots = [i for i in rows.instances if i.number not in pointed]
    if len(roots) != 1:
        raise _no_single_root(roots, rows)
    parents = {edge.child: edge for edge in edges}
    if len(parents) < len(set(edges)):  # `origin = code AND dest = code` also compares origin with dest
        edge = next(edge for edge in edges if parents[edge.child] != edge)
        keys = sorted((edge.foreign_key, parents[edge.child].foreign_key))
        table = rows.instances[edge.child].table
        raise refusal(
            NotSupportedError, f"{keys[0]} and {keys[1]} are joined to one row of {table.name}", clause="JOIN",
            hint=f"join {table.name} once for each",
        )  # fmt: skip
    path = {i.number: _path(i, parents, rows) for i in rows.instances}
    preserved = frozenset(i.number for i in rows.instances if roots[0].left and not i.left)
    return Paths(roots[0].table.name, path, _joins(rows, path), preserved)


def _path(instance: Instance, parents: dict[int, Edge], rows: RowRelation) -> tuple[str, ...]:
    steps: list[str] = []
    number = instance.number
    while number in parents:
        if len(steps) > len(rows.instances):
            raise refusal(NotSupportedError, "the joins form a cycle", clause="JOIN")
        steps.append(parents[number].foreign_key)
        number = parents[number].parent
    return tuple(reversed(steps))


def _joins(rows: RowRelation, path: dict[int, tuple[str, ...]]) -> dict[tuple[str, ...], bool]:
    """Each joined path's kind; an inner join below a left one makes both inner (its ON needs the row)."""
    inner: dict[tuple[str, ...], bool] = {}
    for instance in rows.instances:
        where = path[instance.number]
        if where:
            inner[where] = inner.get(where, False) or not instance.left
    for where in [w for w, needed in inner.items() if needed]:
        inner |= {where[:stop]: True for stop in range(1, len(where))}
    return dict(sorted(inner.items()))


def _no_single_root(roots: list[Instance], rows: RowRelation) -> NotSupportedError:
    names = [instance.table.name for instance in (roots or rows.instances)]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        return refusal(
            NotSupportedError,
            f"a self-join of {repeated} would compare rows with each other",
            clause="FROM",
            hint="ask for its groups instead, with GROUP BY",
        )
    return refusal(
        NotSupportedError,
        f"{' and '.join(names)} are not joined on a declared key",
        clause="FROM",
        hint="join them on a foreign key and the key it points at",
    )


STRICT = (
    exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.Cast, exp.DataType, exp.Neg, exp.Add, exp.Sub, exp.Mul,
    exp.Div,
)  # fmt: skip
"""Parts of an expression that is NULL once a column of it is."""
FILLING = (exp.Is, exp.Coalesce, exp.Case, exp.If, exp.NullSafeEQ, exp.NullSafeNEQ)
"""What may be true, or have a value, where a column is NULL."""
PUBLIC = (exp.Min, exp.Max)
"""Calls that the catalog answers."""


def check_call(rows: RowRelation, paths: Paths, call: Node) -> None:
    """Refuse an aggregate that counts partners without a row.

    Args:
        rows: the FROM clause.
        paths: where its tables stand.
        call: a resolved aggregate.

    Raises:
        NotSupportedError: it would need to know which partners have none.
    """
    if not paths.beside or isinstance(call, PUBLIC):
        return
    value = call.this
    if isinstance(value, exp.Distinct) or (
        isinstance(value, exp.Expression) and _of_rows(rows, paths, value)
    ):
        return
    partner = next(i.table.name for i in rows.instances if i.number in paths.beside)
    raise refusal(
        NotSupportedError,
        f"{call.key.upper()} counts each {partner} without a row of {paths.root}; a release cannot tell which",
        at=call,
        clause="SELECT",
        hint=f"COUNT or SUM a column of {paths.root}, or write INNER JOIN",
    )


def _of_rows(rows: RowRelation, paths: Paths, node: Node) -> bool:
    """True if an expression is NULL where there is no row of the root."""
    of_rows = [rows.of(column)[0].number not in paths.beside for column in node.find_all(exp.Column)]
    return any(of_rows) and all(isinstance(descendant, STRICT) for descendant in node.walk())


def check_tests(rows: RowRelation, paths: Paths, tests: list[Node]) -> None:
    """Refuse conditions that partners without a row may meet by the NULLs in the row's place.

    Args:
        rows: the FROM clause.
        paths: where its tables stand.
        tests: resolved conditions.

    Raises:
        NotSupportedError: it would need to know which partners have none.
    """
    if not paths.beside:
        return
    for test in tests:
        columns = [
            c
            for c in test.find_all(exp.Column)
            if not c.meta.get("answer") and rows.of(c)[0].number not in paths.beside
        ]
        if columns and test.find(*FILLING) is not None:
            raise refusal(
                NotSupportedError,
                f"a release cannot tell which partners have no row of {paths.root} (anti-join)",
                at=columns[0],
                clause="WHERE",
                hint=f"COUNT(DISTINCT ..) FROM {paths.root} counts those who have one, to be subtracted from all",
            )


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
    outer = resolve(rows, member.outer)
    alone = bind_from(context, member.select, scope)
    inner = resolve(alone, member.key)
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
    key = resolve(inner, member.key)
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
    """Rewrite every SELECT over the people's table alone that asks who has a row.

    Args:
        tree: a parsed statement; changed in place.
        schema: the star.
    """
    for select in list(tree.find_all(exp.Select)):
        source = select.args.get("from_")
        if source is None or select.args.get("joins") or source.this.args.get("joins"):
            continue
        tables = list(chain.from_iterable(base_tables(select, schema).values()))
        if schema.unit is not None and [table.name for table in tables] == [schema.unit.table]:
            _rewrite(select, source.this, tables[0])


def _is_key(node: Node, people: exp.Table, table: SchemaTable) -> bool:
    """True if a column is the key of the people's table."""
    alias = people.alias_or_name.lower()
    is_column = isinstance(node, exp.Column) and node.table.lower() in ("", alias)
    return is_column and node.name.lower() == str(table.key).lower()


def _rewrite(select: exp.Select, people: exp.Table, table: SchemaTable) -> None:
    """Count the rows' different keys in place of the people, where one condition alone asks for rows."""
    conditions = parse.conjuncts(select.args.get("where"))
    asking = [condition for condition in conditions if condition.find(exp.Select) is not None]
    calls = _calls(select)
    if not asking or not calls:
        return
    # other conditions compare with an answer
    asked = (node for condition in asking for node in condition.find_all(exp.Column, exp.Exists))
    outside = (node for node in asked if node.find_ancestor(exp.Subquery) is None)
    if not any(isinstance(node, exp.Exists) or _is_key(node, people, table) for node in outside):
        return
    counts_rows = all(isinstance(call, exp.Count) and isinstance(call.this, exp.Star) for call in calls)
    member = _rows_of(asking[0], people, table) if len(asking) == 1 and counts_rows else None
    if member is None:
        key, name = table.key, table.name
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
    people_columns = [column for column in columns if table.column(column.name) is not None]
    for call in _calls(select):
        call.replace(exp.Count(this=exp.Distinct(expressions=[member.key.copy()])))
    joins = [*(member.select.args.get("joins") or [])]
    for column in people_columns:
        column.set("table", exp.to_identifier(people.alias_or_name))
    if people_columns:
        tie = exp.EQ(this=member.key.copy(), expression=exp.column(str(table.key), people.alias_or_name))
        joins.append(exp.Join(this=people.copy(), on=tie))
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


def _rows_of(condition: Node, people: exp.Table, table: SchemaTable) -> _Membership | None:
    """The rows that name the person by her key, if a condition asks for nothing else."""
    member = _membership(condition, lambda column: column.table.lower() == people.alias_or_name.lower())
    names_person = member is not None and _plain(member.select) and _is_key(member.outer, people, table)
    return member if names_person else None


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
