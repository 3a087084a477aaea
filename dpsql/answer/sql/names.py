"""Names in a statement -> tables and columns of the star.

A row-level FROM clause (base tables, wide tables, derived tables without aggregates) becomes `Rows`:
a flat list of table instances and the conditions on them. A derived table that only renames or filters
is thereby unwrapped, however deeply a BI tool nests it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.answer.schema import Schema, Table, nearest
from dpsql.answer.sql.refuse import refusal
from dpsql.errors import UnknownName
from dpsql.sql.node import Node


@dataclass
class Instance:
    """One base table in a FROM clause. `left` marks the null-supplying side of a LEFT JOIN."""

    number: int
    table: Table
    left: bool = False


@dataclass(frozen=True)
class Edge:
    """A join along a declared foreign key, from the instance that holds it to the one it points at."""

    parent: int
    foreign_key: str
    child: int


@dataclass
class Source:
    """What one name in FROM offers: output name -> expression over instances, in order."""

    alias: str
    columns: dict[str, Node]
    names: dict[str, str] = field(default_factory=dict)


@dataclass
class Rows:
    """A row-level relation over base tables."""

    instances: list[Instance] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    conditions: list[Node] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)

    def add(self, table: Table, alias: str) -> Source:
        """Put one more base table into the relation."""
        instance = Instance(len(self.instances), table)
        self.instances.append(instance)
        columns: dict[str, Node] = {
            low: column_of(instance.number, name) for low, name in table.columns.items()
        }
        return Source(alias, columns, dict(table.columns))

    def of(self, node: exp.Column) -> tuple[Instance, str]:
        """The instance and column that a resolved column stands for."""
        instance = self.instances[int(node.table[1:])]
        return instance, node.name


def column_of(number: int, name: str, like: Node | None = None) -> exp.Column:
    """The resolved column `i<number>.name`, with the place of the node it came from."""
    identifier = exp.Identifier(this=name, quoted=True)
    if like is not None:
        identifier.meta.update({k: like.meta[k] for k in ("start", "end", "line", "col") if k in like.meta})
    column = exp.Column(this=identifier, table=exp.Identifier(this=f"i{number}", quoted=False))
    column.meta["resolved"] = True
    return column


def lookup(rows: Rows, node: exp.Column, schema: Schema) -> Node:
    """The expression that a column name stands for.

    Args:
        rows: the FROM clause.
        node: the column as written.
        schema: for spelling help.

    Returns:
        A fresh expression over resolved columns, placed where the name stood.

    Raises:
        UnknownName: no such column, or several.
    """
    name, qualifier = node.name.lower(), node.table.lower()
    if qualifier and not any(source.alias.lower() == qualifier for source in rows.sources):
        known = [source.alias for source in rows.sources]
        raise refusal(
            UnknownName,
            f"there is no table {node.table!r} in FROM",
            at=node,
            clause="FROM",
            hint=nearest(qualifier, known) or f"FROM has {', '.join(known)}",
        )
    found = [
        source.columns[name]
        for source in rows.sources
        if name in source.columns and qualifier in ("", source.alias.lower())
    ]
    if not found:
        known = [name for source in rows.sources for name in source.names.values()]
        raise refusal(
            UnknownName,
            f"there is no column {node.name!r}",
            at=node,
            clause="column",
            hint=nearest(name, known) or "dpsql lists columns under information_schema.columns",
        )
    if len(found) > 1 and name not in rows.shared and any(other != found[0] for other in found[1:]):
        aliases = [s.alias for s in rows.sources if name in s.columns]
        raise refusal(
            UnknownName,
            f"column {node.name!r} is in {' and '.join(aliases)}",
            at=node,
            clause="column",
            hint=f"write {aliases[0]}.{node.name}",
        )
    return placed(found[0], node)


def placed(expression: Node, like: Node) -> Node:
    """A copy of an expression whose parts all point at the characters of another node."""
    copy = expression.copy()
    marks = next((part.meta for part in like.walk() if "start" in part.meta), {})
    for part in copy.find_all(exp.Identifier):
        part.meta.update({k: marks[k] for k in ("start", "end", "line", "col") if k in marks})
    return copy


def resolve(rows: Rows, node: Node, schema: Schema) -> Node:
    """A copy of an expression with every column resolved; subqueries are left alone.

    >>> import sqlglot
    >>> rows = Rows(); star = Schema("s", {}, (), frozenset())
    >>> table = Table("t", None, {"a": "A"}, {}, {}, {}, frozenset(), {}, True)
    >>> rows.sources.append(rows.add(table, "t"))
    >>> resolve(rows, sqlglot.parse_one("t.a + 1"), star).sql()
    'i0."A" + 1'
    """
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        return node.copy() if node.meta.get("resolved") else lookup(rows, node, schema)
    copy = node.copy()
    _resolve_inside(rows, copy, schema)
    return copy


def _resolve_inside(rows: Rows, node: Node, schema: Schema) -> None:
    for child in list(node.iter_expressions()):
        if isinstance(child, (exp.Subquery, exp.Query)):
            continue
        if child.meta.get("resolved"):
            continue
        if isinstance(child, exp.Column) and not isinstance(child.this, exp.Star):
            child.replace(_bracketed(lookup(rows, child, schema), node))
        else:
            _resolve_inside(rows, child, schema)


def _bracketed(expression: Node, parent: Node) -> Node:
    """Operators that take an operator's place keep their brackets."""
    needs = isinstance(expression, (exp.Binary, exp.Unary, exp.Case, exp.Between, exp.In))
    return exp.Paren(this=expression) if needs and not isinstance(parent, exp.Paren) else expression


def wide_source(rows: Rows, schema: Schema, fact: Table, alias: str) -> Source:
    """The star as one table: the fact's columns and those of every dimension, left joined."""
    root = rows.add(fact, alias)
    taken = dict(root.columns)
    spelled = dict(root.names)
    pending = [(len(rows.instances) - 1, fact)]
    while pending:
        number, table = pending.pop(0)
        for foreign_key, target in table.foreign_keys.items():
            dimension = schema.table(target)
            if dimension is None or len(rows.instances) > 64:
                continue
            offered = rows.add(dimension, alias)
            child = len(rows.instances) - 1
            rows.instances[child].left = True
            rows.edges.append(Edge(number, foreign_key, child))
            for low, expression in offered.columns.items():
                if dimension.key and low == dimension.key.lower() and low in taken:
                    continue
                name = low if low not in taken else f"{dimension.name}_{low}".lower()
                if name not in taken:
                    taken[name] = expression
                    spelled[name] = (
                        offered.names[low] if name == low else f"{dimension.name}_{offered.names[low]}"
                    )
            pending.append((child, dimension))
    return Source(alias, taken, spelled)
