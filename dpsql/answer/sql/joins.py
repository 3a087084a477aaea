"""Join conditions -> foreign-key paths from one root table.

An equality between a declared foreign key and the key it points at is a join; it may stand in ON, USING
or WHERE. All instances must hang together on such joins, below one root that nothing points at.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from dpsql.answer.block import INNER, LEFT
from dpsql.answer.schema import Schema
from dpsql.answer.sql.names import Edge, Instance, Rows
from dpsql.answer.sql.refuse import refusal
from dpsql.errors import NotSupportedError
from dpsql.sql.node import Node


@dataclass(frozen=True)
class Paths:
    """Where every instance stands: the root table and a foreign-key path for each instance number."""

    root: str
    path: dict[int, tuple[str, ...]]
    joins: tuple[tuple[tuple[str, ...], str], ...]


def conjuncts(node: Node | None) -> list[Node]:
    """The parts of an AND, brackets removed."""
    if node is None:
        return []
    if isinstance(node, exp.Paren):
        return conjuncts(node.this)
    if isinstance(node, exp.And):
        return [*conjuncts(node.left), *conjuncts(node.right)]
    return [node]


def edge_of(rows: Rows, node: Node, schema: Schema) -> Edge | None:
    """The declared join that an equality states, or None if it compares columns of one table."""
    if not (
        isinstance(node, exp.EQ) and isinstance(node.left, exp.Column) and isinstance(node.right, exp.Column)
    ):
        return None
    (left, a), (right, b) = rows.of(node.left), rows.of(node.right)
    if left.number == right.number:
        return None
    for (one, x), (other, y) in (((left, a), (right, b)), ((right, b), (left, a))):
        target = one.table.foreign_keys.get(x)
        if target and target.lower() == other.table.name.lower() and other.table.key == y:
            return Edge(one.number, x, other.number)
    raise off_key(left, right, node, schema)


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


def find_paths(rows: Rows, schema: Schema) -> Paths:
    """Take the join conditions out of `rows.conditions` and find every instance's path.

    Args:
        rows: the FROM clause; its conditions lose the joins.
        schema: the star.

    Returns:
        The root and the paths.

    Raises:
        NotSupportedError: joins off the declared keys, a cross join, a self-join, two facts.
    """
    rest, edges = [], list(rows.edges)
    for condition in rows.conditions:
        edge = edge_of(rows, condition, schema)
        if edge is None:
            rest.append(condition)
        else:
            edges.append(edge)
    rows.conditions, rows.edges = rest, []
    pointed = {edge.child for edge in edges}
    roots = [i for i in rows.instances if i.number not in pointed]
    if len(roots) != 1:
        raise _no_single_root(roots, rows)
    parents = {edge.child: edge for edge in edges}
    path = {i.number: _path(i, parents, rows) for i in rows.instances}
    if roots[0].left:
        raise refusal(
            NotSupportedError,
            f"a LEFT JOIN from a dimension to {roots[0].table.name} would list people without rows",
            clause="JOIN",
            hint=f"start FROM {roots[0].table.name}",
        )
    rows.edges = edges
    return Paths(roots[0].table.name, path, _joins(rows, path))


def _path(instance: Instance, parents: dict[int, Edge], rows: Rows) -> tuple[str, ...]:
    steps: list[str] = []
    number = instance.number
    while number in parents:
        if len(steps) > len(rows.instances):
            raise refusal(NotSupportedError, "the joins go round in a circle", clause="JOIN")
        steps.append(parents[number].foreign_key)
        number = parents[number].parent
    return tuple(reversed(steps))


def _joins(rows: Rows, path: dict[int, tuple[str, ...]]) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Each joined path's kind; an inner join below a left one makes both inner (its ON needs the row)."""
    kinds: dict[tuple[str, ...], str] = {}
    for instance in rows.instances:
        where = path[instance.number]
        if where and kinds.get(where) != INNER:
            kinds[where] = LEFT if instance.left else INNER
    for where in [w for w, kind in kinds.items() if kind == INNER]:
        for stop in range(1, len(where)):
            kinds[where[:stop]] = INNER
    return tuple(sorted(kinds.items()))


def _no_single_root(roots: list[Instance], rows: Rows) -> NotSupportedError:
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
