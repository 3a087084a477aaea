"""People who have a row that meets a condition: IN and EXISTS over the people's table, as COUNT(DISTINCT ..) of rows.

    SELECT COUNT(*) FROM customer WHERE customer_id IN (SELECT customer_id FROM sales WHERE day < 8)
    SELECT COUNT(*) FROM customer AS c WHERE EXISTS (SELECT 1 FROM sales WHERE sales.customer_id = c.customer_id AND ..)

both ask what `SELECT COUNT(DISTINCT customer_id) FROM sales WHERE day < 8` asks, and become it. Conditions and groups
over the person's own columns stay, over the join that reaches them. Other shapes are refused, with what to write.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.planner.schema import Schema, SchemaTable
from dpsql.row_expressions.expression import Node
from dpsql.sql.from_clause import aggregates, conjuncts
from dpsql.sql.parse import refusal
from dpsql.sql.statement import named, output_name


class _Membership(NamedTuple):
    """A condition that asks for a row elsewhere.

    Args:
        rows: the SELECT over these rows.
        key: its column that holds the person's key.
        where: its conditions, without the one that ties the two together.
    """

    rows: exp.Select
    key: exp.Column
    where: list[Node]


def count_members(tree: Node, schema: Schema) -> None:
    """Rewrite every SELECT over the people's table that asks who has a row.

    Args:
        tree: a parsed statement; changed in place.
        schema: the star.
    """
    cte_names = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}  # names that the statement gives itself
    for select in list(tree.find_all(exp.Select)):
        people = _people(select, schema)
        if people is not None and people.source.name.lower() not in cte_names:
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
    source = select.args.get("from_")
    table = source.this if source is not None else None
    if not isinstance(table, exp.Table) or select.args.get("joins") or table.args.get("joins"):
        return None
    catalog_table = schema.table(table.name)
    return (
        _PeopleSource(table, catalog_table)
        if schema.unit and catalog_table and catalog_table.name == schema.unit.table
        else None
    )


def _rewrite(select: exp.Select, people: _PeopleSource) -> None:
    """Count the rows' different keys in place of the people, where one condition alone asks for rows."""
    where = select.args.get("where")
    conditions = conjuncts(where.this if where is not None else None)
    asking = [condition for condition in conditions if condition.find(exp.Select) is not None]
    calls = _calls(select)
    if not asking or not calls:
        return
    if not any(_asks_who(condition, people) for condition in asking):
        return
    counts = len(asking) == 1 and all(_counts_rows(call) for call in calls)
    member = _member(asking[0], people) if counts else None
    if member is None:
        raise _other_shape(asking[0], people)
    _qualify(member)
    remaining = [condition for condition in conditions if condition is not asking[0]]
    for projection in select.expressions:
        if aggregates(projection) and not isinstance(projection, exp.Alias):
            projection.replace(named(projection.copy(), output_name(projection)))
    people_columns = _own_columns(select, remaining, people)
    for call in _calls(select):
        call.replace(exp.Count(this=exp.Distinct(expressions=[member.key.copy()])))
    joins = [*(member.rows.args.get("joins") or [])]
    for column in people_columns:
        column.set("table", exp.to_identifier(people.alias))
    if people_columns:
        tie = exp.EQ(this=member.key.copy(), expression=exp.column(str(people.table.key), people.alias))
        joins.append(exp.Join(this=people.source.copy(), on=tie))
    select.set("from_", member.rows.args["from_"])
    select.set("joins", joins or None)
    all_conditions = [*member.where, *remaining]
    select.set("where", exp.Where(this=exp.and_(*all_conditions, copy=False)) if all_conditions else None)


def _asks_who(condition: Node, people: _PeopleSource) -> bool:
    """True if a condition is about the person's key, or about rows elsewhere; others compare with an answer."""
    for node in condition.find_all(exp.Column, exp.Exists):
        outside = node.find_ancestor(exp.Subquery) is None
        if outside and (isinstance(node, exp.Exists) or people.is_key(node)):
            return True
    return False


def _other_shape(condition: Node, people: _PeopleSource) -> NotSupportedError:
    """The refusal of a condition over rows that is no count of those who have one."""
    key, name = people.table.key, people.table.name
    return refusal(
        NotSupportedError,
        f"a condition on rows elsewhere would be evaluated for each of {name}",
        at=condition,
        clause="WHERE",
        hint=f"COUNT(*) takes one `{key} IN (SELECT {key} FROM .. WHERE ..)` or EXISTS, and AND; "
        f"those without a row are all of {name} less those with one",
    )


def _qualify(member: _Membership) -> None:
    """Name the rows' table in columns that stand without one: the people's table may join them."""
    source = member.rows.args["from_"].this
    if isinstance(source, exp.Table) and not member.rows.args.get("joins"):
        for column in (
            column for expression in [member.key, *member.where] for column in expression.find_all(exp.Column)
        ):
            if not column.table:
                column.set("table", exp.to_identifier(source.alias_or_name))


def _calls(select: exp.Select) -> list[exp.AggFunc]:
    """Aggregate calls of the select list, HAVING and ORDER BY, those inside functions of an error too."""
    clauses = (select.args.get(key) for key in ("having", "order"))
    expressions = [*select.expressions, *(clause for clause in clauses if clause is not None)]
    return [
        call
        for expression in expressions
        for outer in aggregates(expression)
        for call in outer.find_all(exp.AggFunc)
    ]


def _counts_rows(call: Node) -> bool:
    """COUNT(*)."""
    return isinstance(call, exp.Count) and isinstance(call.this, exp.Star)


def _member(condition: Node, people: _PeopleSource) -> _Membership | None:
    """IN or EXISTS condition over the person's key, if the node is one."""
    if isinstance(condition, exp.In) and condition.args.get("query") is not None:
        rows = (
            condition.args["query"].this
            if isinstance(condition.args["query"], exp.Subquery)
            else condition.args["query"]
        )
        if not _plain(rows) or not people.is_key(condition.this) or len(rows.expressions) != 1:
            return None
        key = rows.expressions[0]
        return _Membership(rows, key, _where(rows)) if isinstance(key, exp.Column) else None
    if isinstance(condition, exp.Exists):
        rows = condition.this.this if isinstance(condition.this, exp.Subquery) else condition.this
        return _tied(rows, people) if _plain(rows) else None
    return None


def _tied(rows: exp.Select, people: _PeopleSource) -> _Membership | None:
    """The rows of an EXISTS, and the one condition that ties them to the person."""
    conditions, name = _where(rows), people.alias.lower()
    for condition in conditions:
        if not isinstance(condition, exp.EQ):
            continue
        for person_key, key in ((condition.left, condition.right), (condition.right, condition.left)):
            outer = isinstance(person_key, exp.Column) and person_key.table.lower() == name
            if (
                outer
                and people.is_key(person_key)
                and isinstance(key, exp.Column)
                and key.table.lower() != name
            ):
                remaining = [test for test in conditions if test is not condition]
                tied = any(
                    column.table.lower() == name for test in remaining for column in test.find_all(exp.Column)
                )
                return None if tied else _Membership(rows, key, remaining)
    return None


def _plain(rows: Node) -> bool:
    """True if a SELECT only filters, so that who is in it is who has a row."""
    clauses = ("group", "having", "limit", "offset", "qualify", "with_")
    return (
        isinstance(rows, exp.Select)
        and rows.args.get("from_") is not None
        and not any(rows.args.get(part) for part in clauses)
        and not any(aggregates(projection) for projection in rows.expressions)
        and not any(part.find(exp.Select) for part in _where(rows))
    )


def _where(rows: exp.Select) -> list[Node]:
    where = rows.args.get("where")
    return conjuncts(where.this if where is not None else None)


def _own_columns(select: exp.Select, remaining: list[Node], people: _PeopleSource) -> list[exp.Column]:
    """Columns of the people's table in what stays of the SELECT."""
    clauses = (select.args.get(key) for key in ("group", "having", "order"))
    expressions = [*select.expressions, *remaining, *(clause for clause in clauses if clause is not None)]
    columns = [column for expression in expressions for column in expression.find_all(exp.Column)]
    return [column for column in columns if people.table.column(column.name) is not None]
