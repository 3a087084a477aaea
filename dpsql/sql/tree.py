"""Reading and changing syntax trees: relations in FROM, keys, tests, calls and names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

from sqlglot import exp

from dpsql.intervals.errorfunctions import ERRORS
from dpsql.row_expressions.expression import Node


def relations(select: Node) -> list[Node]:
    """The relations in FROM and its joins, in order."""
    first, joins = select.args.get("from_"), select.args.get("joins") or []
    return [*([first.this] if first is not None else []), *(join.this for join in joins)]


def ctes(query: Node) -> list[Node]:
    """The CTEs of a query."""
    clause = query.args.get("with_")
    return [] if clause is None else list(clause.expressions)


def block_number(relation: Node) -> int | None:
    """The block whose relation a table in FROM is, or None."""
    prefix, name = "dp_block_", relation.name.lower()
    is_block = isinstance(relation, exp.Table) and name.startswith(prefix)
    return int(name[len(prefix) :]) if is_block else None


def is_star(projection: Node) -> bool:
    """True if a select item is `*` or `t.*`."""
    column = isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star)
    return column or isinstance(projection, exp.Star)


def ordinal(key: Node, select: Node) -> Node:
    """Expression behind a key; a number is an ordinal of the select list."""
    is_number = isinstance(key, exp.Literal) and not key.is_string and key.name.isdecimal()
    place = int(key.name) if is_number else 0
    return unaliased(select.expressions[place - 1]) if 1 <= place <= len(select.expressions) else key


def behind(key: Node, select: Node, is_source: Callable[[exp.Column], bool]) -> Node:
    """Expression behind a key: a select item by its number, or by its alias where no source has such a column."""
    aliased = isinstance(key, exp.Column) and not key.table and not is_source(key)
    items = (item for item in select.expressions if isinstance(item, exp.Alias) and aliased)
    named_item = next((item for item in items if item.alias.lower() == key.name.lower()), None)
    return ordinal(key, select) if named_item is None else unaliased(named_item)


def expand_aliases(node: Node, aliases: Mapping[str, Node], is_source: Callable[[exp.Column], bool]) -> Node:
    """A copy of an expression with names that only the select list has replaced by their expressions.

    Args:
        node: the expression.
        aliases: by name in lower case.
        is_source: whether a relation of FROM has a column.
    """
    root = exp.Paren(this=node.copy())
    for column in list(root.find_all(exp.Column)):
        if not column.table and column.name.lower() in aliases and not is_source(column):
            column.replace(exp.Paren(this=placed(aliases[column.name.lower()], column)))
    expanded: Node = root.this
    return expanded


def placed(expression: Node, like: Node) -> Node:
    """A copy of an expression whose parts all point at the characters of another node."""
    copy = expression.copy()
    marks = next((node.meta for node in like.walk() if "start" in node.meta), {})
    for node in copy.find_all(exp.Identifier):
        node.meta.update({k: marks[k] for k in ("start", "end", "line", "col") if k in marks})
    return copy


def group_keys(select: Node) -> list[Node]:
    """Keys that the rows of a SELECT are grouped by, ordinals and ALL replaced."""
    group = select.args.get("group")
    if group is None:
        return []
    if group.args.get("all"):
        return [unaliased(projection) for projection in select.expressions if not aggregates(projection)]
    return [ordinal(key, select) for key in group.expressions]


def aggregates(node: Node) -> list[Node]:
    """Aggregate calls in an expression, outside of subqueries; those that a window evaluates are not counted."""
    if isinstance(node, (exp.Subquery, exp.Query)):
        return []
    calls: list[Node] = []
    window = isinstance(node, exp.Window)
    if is_aggregate(node) and not isinstance(node, (exp.Filter, exp.WithinGroup)):
        calls.append(node)
    for child in node.iter_expressions():
        inner = child.this if window and isinstance(child, exp.Filter) else child
        if window and child is node.this:
            for argument in inner.iter_expressions():
                calls.extend(aggregates(argument))
        else:
            calls.extend(aggregates(child))
    return calls


def conjuncts(node: Node | None) -> list[Node]:
    """The tests of an AND, or of a WHERE or HAVING, brackets removed."""
    if node is None:
        return []
    if isinstance(node, (exp.Paren, exp.Where, exp.Having)):
        return conjuncts(node.this)
    if isinstance(node, exp.And):
        return [*conjuncts(node.left), *conjuncts(node.right)]
    return [node]


def number(node: Node | None) -> Decimal | None:
    """A number as it is written, its sign and brackets included; None for anything else."""
    if isinstance(node, exp.Paren):
        return number(node.this)
    if isinstance(node, exp.Neg):
        positive = number(node.this)
        return None if positive is None else -positive
    return Decimal(node.name) if isinstance(node, exp.Literal) and not node.is_string else None


def add_test(select: Node, clause: type[Node], test: Node) -> None:
    """One more test of a WHERE, HAVING or QUALIFY."""
    present = select.args.get(clause.key)
    select.set(clause.key, clause(this=test if present is None else exp.and_(present.this, test, copy=False)))


def bottom_up(tree: Node, change: Callable[[Node], Node]) -> Node:
    """A tree whose nodes are changed in place, those inside of others first; new ones are not visited."""
    for node in reversed(list(tree.walk(bfs=False))):
        new = change(node)
        if new is not node and node is tree:
            tree = new
        elif new is not node:
            node.replace(new)
    return tree


def is_error_call(node: Node) -> bool:
    """True if a node is a function of an error, such as DP_STDERR."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in ERRORS


def is_aggregate(node: Node) -> bool:
    """True if a node is a call over rows, with what belongs to it: FILTER, WITHIN GROUP, and functions of its
    error."""
    while isinstance(node, (exp.Filter, exp.WithinGroup)):
        node = node.this
    return is_error_call(node) or (isinstance(node, exp.AggFunc) and not isinstance(node, exp.Grouping))


def output_name(node: Node) -> str:
    """The name DuckDB would give a select item.

    >>> import sqlglot
    >>> output_name(sqlglot.parse_one("SUM(a.b)"))
    'sum(a.b)'
    """
    name = node.alias_or_name if isinstance(node, (exp.Alias, exp.Column)) else ""
    if name:
        return str(name)
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count_star()"
    return node.sql(dialect="duckdb", normalize_functions="lower")


def named(node: Node, name: str) -> exp.Alias:
    """The node as a select item of that name."""
    return exp.Alias(this=node, alias=exp.Identifier(this=name, quoted=True))


def unaliased(node: Node) -> Node:
    """The expression under a select item's alias."""
    return node.this if isinstance(node, exp.Alias) else node


def quoted_column(name: str, table: str = "") -> exp.Column:
    """A quoted column, with its table if one is given."""
    place = exp.Identifier(this=table, quoted=True) if table else None
    return exp.Column(this=exp.Identifier(this=name, quoted=True), table=place)
