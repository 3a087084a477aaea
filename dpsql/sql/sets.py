"""GROUP BY ROLLUP, CUBE and GROUPING SETS: a UNION ALL of one GROUP BY each, which is what they mean.

    SELECT region, age, COUNT(*) FROM shop GROUP BY ROLLUP (region, age)

asks by region and age, by region, and of all rows; a key that a branch does not group by is NULL in it. ORDER BY and
LIMIT stay with the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from itertools import chain, combinations, product

from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.row_expressions.expression import Node
from dpsql.sql.parse import refusal
from dpsql.sql.tree import behind, is_aggregate, named, output_name, quoted_column, unaliased

WORDS = ("rollup", "cube", "grouping_sets")
MOST = 64
"""Branches that one statement may have."""

Keys = tuple[Node, ...]


def spread_sets(tree: Node) -> Node:
    """A statement in which every SELECT has at most one list of keys.

    Args:
        tree: a parsed statement; changed in place.

    Returns:
        The statement.

    Raises:
        NotSupportedError: more than MOST lists of keys.
    """
    for select in list(tree.find_all(exp.Select)):
        group = select.args.get("group")
        if group is None:
            continue
        listed = any(type(element) in LISTS for element in _elements(group))
        if not listed and not any(map(_grouping, _parts(select))):
            continue
        if listed:
            _refuse_windows(select)
        union = _united(select, group)
        if select is tree:
            tree = union
        else:
            select.replace(union)
    return tree


def _united(select: Node, group: Node) -> Node:
    sets = [tuple(chain.from_iterable(choice)) for choice in product(*_choices(group, select))]
    if len(sets) > MOST:
        raise refusal(
            NotSupportedError, f"GROUP BY asks for {len(sets)} lists of keys, the limit is {MOST}",
            clause="GROUP BY", hint="name the lists that you need in GROUPING SETS",
        )  # fmt: skip
    keys = list(dict.fromkeys(chain.from_iterable(sets)))
    outer = {clause: select.args.get(clause) for clause in ("order", "limit", "offset", "with_")}
    order = outer["order"]
    names = [output_name(expression) for expression in select.expressions]
    distinct = select.args.get("distinct") is not None
    for expression in order.expressions if order is not None else ():
        expression.set("this", _place(expression.this, select, distinct))
    for clause in outer:
        select.set(clause, None)
    branches = [_branch(select, grouping_set, keys) for grouping_set in sets]
    union = reduce(lambda left, right: exp.Union(this=left, expression=right, distinct=distinct), branches)
    if len(names) < len(select.expressions):  # the union orders by columns that are not shown
        alias = exp.TableAlias(this=exp.to_identifier("dp_sets"))
        source = exp.From(this=exp.Subquery(this=union, alias=alias))
        union = exp.Select(expressions=[named(quoted_column(name), name) for name in names], from_=source)
    for clause, value in outer.items():
        union.set(clause, value)
    return union


def _parts(select: Node) -> list[Node]:
    """Expressions that a SELECT computes over its groups."""
    clauses = (select.args.get(clause) for clause in ("having", "qualify", "order"))
    return [*select.expressions, *(clause for clause in clauses if clause is not None)]


def _grouping(node: Node) -> bool:
    return node.find(exp.Grouping) is not None


def _refuse_windows(select: Node) -> None:
    """A window over groups of several lists sees all of them at once.

    Raises:
        NotSupportedError: there is one.
    """
    windowed = next((expression for expression in _parts(select) if expression.find(exp.Window)), None)
    if windowed is not None:
        raise refusal(
            NotSupportedError, "a window over ROLLUP, CUBE or GROUPING SETS runs over the groups of all lists",
            at=windowed, clause="SELECT",
            hint="put the GROUP BY into a derived table, and the window around it",
        )  # fmt: skip


def _elements(group: Node) -> list[Node]:
    """The elements of GROUP BY; `a, b WITH ROLLUP` has an empty list, which stands for all keys before it."""
    lists = [element for word in WORDS for element in group.args.get(word) or []]
    if len(lists) == 1 and not lists[0].expressions:
        return [type(lists[0])(expressions=group.expressions)]
    return [*group.expressions, *lists]


def _choices(group: Node, select: Node) -> list[list[Keys]]:
    """For each element of GROUP BY the lists of keys that it stands for."""
    choices: list[list[Keys]] = []
    for element in _elements(group):
        lists = LISTS.get(type(element))
        keys = [_keys(member, select) for member in (element.expressions if lists else [element])]
        choices.append([tuple(chain.from_iterable(choice)) for choice in (lists(keys) if lists else [keys])])
    return choices


LISTS: dict[type[Node], Callable[[list[Keys]], list[list[Keys]]]] = {
    exp.Rollup: lambda keys: [keys[:stop] for stop in range(len(keys), -1, -1)],
    exp.Cube: lambda keys: [list(s) for size in range(len(keys), -1, -1) for s in combinations(keys, size)],
    exp.GroupingSets: lambda keys: [[key] for key in keys],
}
"""Elements that stand for several lists of keys."""


def _keys(element: Node, select: Node) -> Keys:
    """The keys of one element: one, or several in brackets."""
    if isinstance(element, exp.Paren):
        return _keys(element.this, select)
    inner = element.expressions if isinstance(element, exp.Tuple) else [element]
    return tuple(behind(key, select, lambda column: False) for key in inner)


def _place(key: Node, select: Node, distinct: bool) -> Node:
    """Ordering expression valid in a union: a name, or the ordinal of the item that a key repeats; a hidden
    item's name where a key is neither."""
    for number, projection in enumerate(select.expressions, 1):
        if unaliased(projection) == key:
            return exp.Literal.number(number)
    plain = isinstance(key, exp.Literal) or (isinstance(key, exp.Column) and not key.table)
    if plain or distinct:
        return key
    name = f"dp_order_{len(select.expressions)}"
    select.append("expressions", named(key.copy(), name))
    return quoted_column(name)


def _branch(select: Node, grouping_set: Keys, keys: list[Node]) -> Node:
    """The SELECT by some of the keys; the others are NULL in it."""
    branch = select.copy()
    away = [key for key in keys if key not in grouping_set]
    items = [
        named(_without(unaliased(projection), away, grouping_set, select), output_name(projection))
        for projection in branch.expressions
    ]
    branch.set("expressions", items)
    having = branch.args.get("having")
    if having is not None:
        branch.set("having", exp.Having(this=_without(having.this, away, grouping_set, select)))
    branch.set("group", exp.Group(expressions=[key.copy() for key in grouping_set]) if grouping_set else None)
    return branch


def _among(node: Node, keys: Iterable[Node]) -> bool:
    """True if an expression is one of some keys; a column may have its table before it or not."""

    def same(key: Node) -> bool:
        columns = isinstance(node, exp.Column) and isinstance(key, exp.Column)
        tables = {node.text("table").lower(), key.text("table").lower()}
        return node == key or (
            columns and node.name.lower() == key.name.lower() and (len(tables) == 1 or "" in tables)
        )

    return any(map(same, keys))


def _without(node: Node, away: list[Node], grouping_set: Keys, select: Node) -> Node:
    """An expression with NULL for keys that are not grouped by, outside of aggregates; GROUPING(key) says which."""
    if isinstance(node, exp.Grouping):
        bits = [
            int(not _among(behind(key, select, lambda column: False), grouping_set))
            for key in node.expressions
        ]
        return exp.Literal.number(reduce(lambda number, bit: 2 * number + bit, bits, 0))
    if _among(node, away) and not _among(node, grouping_set):
        return exp.null()
    if not is_aggregate(node):
        for child in list(node.iter_expressions()):
            child.replace(_without(child, away, grouping_set, select))
    return node
