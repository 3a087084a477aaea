"""GROUP BY ROLLUP, CUBE and GROUPING SETS: a UNION ALL of one GROUP BY each, which is what they mean.

    SELECT region, age, COUNT(*) FROM shop GROUP BY ROLLUP (region, age)

asks by region and age, by region, and of all rows; a key that a branch does not group by is NULL in it. ORDER BY and
LIMIT stay with the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import chain, combinations, product

from sqlglot import exp

from dpsql.answer.sql.parse import refusal
from dpsql.answer.sql.statement import named, output_name, unaliased
from dpsql.errors import NotSupportedError
from dpsql.star.sql.expression import Node

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
        if group is None or not any(type(element) in LISTS for element in _elements(group)):
            continue
        whole = _united(select, group)
        if select is tree:
            tree = whole
        else:
            select.replace(whole)
    return tree


def _united(select: Node, group: Node) -> Node:
    sets = [tuple(chain.from_iterable(choice)) for choice in product(*_choices(group, select))]
    if len(sets) > MOST:
        raise refusal(
            NotSupportedError, f"GROUP BY asks for {len(sets)} lists of keys, the limit is {MOST}",
            clause="GROUP BY", hint="name the lists that you need in GROUPING SETS",
        )  # fmt: skip
    keys = list(dict.fromkeys(chain.from_iterable(sets)))
    outer = {part: select.args.get(part) for part in ("order", "limit", "offset", "with_")}
    order = outer["order"]
    for item in order.expressions if order is not None else ():
        item.set("this", _place(item.this, select))
    for part in outer:
        select.set(part, None)
    branches = [_branch(select, own, keys) for own in sets]
    whole = reduce(lambda left, right: exp.Union(this=left, expression=right, distinct=False), branches)
    for part, value in outer.items():
        whole.set(part, value)
    return whole


def _elements(group: Node) -> list[Node]:
    """The elements of GROUP BY; some versions of the parser keep lists of keys apart."""
    return [*group.expressions, *(part for word in WORDS for part in group.args.get(word) or [])]


def _choices(group: Node, select: Node) -> list[list[Keys]]:
    """For each element of GROUP BY the lists of keys that it stands for."""
    found: list[list[Keys]] = []
    for element in _elements(group):
        lists = LISTS.get(type(element))
        keys = [_keys(part, select) for part in (element.expressions if lists else [element])]
        found.append([tuple(chain.from_iterable(some)) for some in (lists(keys) if lists else [keys])])
    return found


def _rolled(keys: list[Keys]) -> list[list[Keys]]:
    return [keys[:stop] for stop in range(len(keys), -1, -1)]


def _all_of(keys: list[Keys]) -> list[list[Keys]]:
    return [list(some) for size in range(len(keys), -1, -1) for some in combinations(keys, size)]


def _each(keys: list[Keys]) -> list[list[Keys]]:
    return [[key] for key in keys]


LISTS: dict[type[Node], Callable[[list[Keys]], list[list[Keys]]]] = {
    exp.Rollup: _rolled, exp.Cube: _all_of, exp.GroupingSets: _each,
}  # fmt: skip
"""Elements that stand for several lists of keys."""


def _keys(part: Node, select: Node) -> Keys:
    """The keys of one element: one, or several in brackets."""
    if isinstance(part, exp.Paren):
        return _keys(part.this, select)
    inner = part.expressions if isinstance(part, exp.Tuple) else [part]
    return tuple(_spelled(key, select) for key in inner)


def _spelled(key: Node, select: Node) -> Node:
    """A key with an ordinal or an alias replaced by what it stands for."""
    if (
        isinstance(key, exp.Literal)
        and str(key.this).isdigit()
        and 0 < int(key.this) <= len(select.expressions)
    ):
        return unaliased(select.expressions[int(key.this) - 1])
    if isinstance(key, exp.Column) and not key.table:
        for item in select.expressions:
            if isinstance(item, exp.Alias) and item.alias.lower() == key.name.lower():
                return unaliased(item)
    return key


def _place(key: Node, select: Node) -> Node:
    """What a union may be ordered by: a name, or the place of the item that a key repeats."""
    for number, item in enumerate(select.expressions, 1):
        if unaliased(item) == key:
            return exp.Literal.number(number)
    return key


def _branch(select: Node, own: Keys, keys: list[Node]) -> Node:
    """The SELECT by some of the keys; the others are NULL in it."""
    branch = select.copy()
    away = [key for key in keys if key not in own]
    items = [named(_without(unaliased(item), away, own), output_name(item)) for item in branch.expressions]
    branch.set("expressions", items)
    having = branch.args.get("having")
    if having is not None:
        branch.set("having", exp.Having(this=_without(having.this, away, own)))
    branch.set("group", exp.Group(expressions=[key.copy() for key in own]) if own else None)
    return branch


def _without(node: Node, away: list[Node], own: Keys) -> Node:
    """An expression with NULL for keys that are not grouped by, outside of aggregates; GROUPING(key) says which."""
    if isinstance(node, exp.Grouping):
        bits = [int(key not in own) for key in node.expressions]
        return exp.Literal.number(reduce(lambda number, bit: 2 * number + bit, bits, 0))
    if node in away:
        return exp.null()
    if not isinstance(node, exp.AggFunc):
        for child in list(node.iter_expressions()):
            child.replace(_without(child, away, own))
    return node
