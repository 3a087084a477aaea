"""Joins along declared keys -> the foreign-key path on which every table of a FROM clause stands.

An equality between a declared foreign key and the key it points at is a join; it may stand in ON, USING or WHERE. All
instances must hang together on such joins, below one root that nothing points at.

A left join *to* the root keeps partners that no row has: `product LEFT JOIN sales`. Which these are is not public, but
COUNT and SUM of the rows' own columns do not see them, and groups are shown whether they are empty or not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain

from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.planner.schema import Schema
from dpsql.row_expressions.expression import Node
from dpsql.sql.from_clause import Edge, Instance, RowRelation
from dpsql.sql.parse import refusal


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
