"""A SELECT over answers: post-processing, with error bars carried along where they stay defined."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.answer.block import ErrorOf, Form
from dpsql.answer.schema import nearest
from dpsql.answer.sql.formof import error_call, form_of
from dpsql.answer.sql.fromclause import aggregates, sources
from dpsql.answer.sql.refuse import refusal
from dpsql.answer.sql.statement import Common, Context, Shape, named, output_name, quoted_column, unaliased
from dpsql.errors import NotSupportedError, UnknownName
from dpsql.sql.node import Node

Scope = dict[str, Common]
Rewrite = Callable[[Context, Node, Scope, bool], Shape]

INFORMATION = {
    "tables": ["table_catalog", "table_schema", "table_name", "table_type"],
    "columns": ["table_catalog", "table_schema", "table_name", "column_name", "ordinal_position", "column_default",
                "is_nullable", "data_type"],
    "schemata": ["catalog_name", "schema_name"],
}  # fmt: skip


def outer_select(context: Context, select: exp.Select, scope: Scope, track: bool, rewrite: Rewrite) -> Shape:
    """Rewrite a SELECT whose sources are answers, constants or the information schema.

    Args:
        context: the statement.
        select: changed in place.
        scope: CTEs in sight.
        track: whether row numbers may be carried out.
        rewrite: rewrites a query inside it.

    Returns:
        Its shape.
    """
    grouped = bool(select.args.get("group") or select.args.get("distinct")) or _aggregating(select)
    children = [_child(context, source, scope, rewrite, not grouped) for source in sources(select)]
    for subquery in _subqueries(select):
        rewrite(context, subquery.this, scope, False)
    items, names = _items(select, children)
    _check_columns(select, children, names)
    forms = []
    for item in items:
        _error_calls(context, item, children)
        forms.append({} if grouped else _forms(unaliased(item), children))
    carriers: dict[str, int] = {}
    if track and not grouped:
        for alias, child in children:
            for name, block in child.carriers.items():
                if name not in carriers:
                    carriers[name] = block
                    items.append(named(quoted_column(name, alias), name))
    select.set("expressions", items)
    return Shape(select, names, forms, carriers, None, children)


def _aggregating(select: exp.Select) -> bool:
    having = select.args.get("having")
    calls = [
        call for part in [*select.expressions, *([having] if having else [])] for call in aggregates(part)
    ]
    return any(not isinstance(call, exp.Anonymous) for call in calls)


def _subqueries(select: exp.Select) -> list[exp.Subquery]:
    """Scalar subqueries in the select list, WHERE, HAVING and ORDER BY, outermost only."""
    found: list[exp.Subquery] = []
    for key in ("expressions", "where", "having", "qualify", "order"):
        part = select.args.get(key)
        for root in part if isinstance(part, list) else [part] if part is not None else []:
            for node in root.find_all(exp.Subquery):
                outermost = not any(node is not other and _inside(node, other) for other in found)
                if outermost:
                    found.append(node)
    return found


def _inside(node: Node, other: Node) -> bool:
    above = node.parent
    while above is not None:
        if above is other:
            return True
        above = above.parent
    return False


def _child(context: Context, node: Node, scope: Scope, rewrite: Rewrite, track: bool) -> tuple[str, Shape]:
    """One source of answers."""
    if isinstance(node, exp.Subquery):
        inner = rewrite(context, node.this, scope, track)
        return node.alias, inner
    if isinstance(node, exp.Values):
        columns = (
            [c.name for c in (node.args["alias"].args.get("columns") or [])] if node.args.get("alias") else []
        )
        width = len(node.expressions[0].expressions) if node.expressions else 0
        names = columns or [f"col{i}" for i in range(width)]
        return node.alias, Shape(node, names, [{} for _ in names])
    if isinstance(node, exp.Table) and node.db.lower() == "information_schema":
        return _information(context, node)
    common = scope.get(node.name.lower()) if isinstance(node, exp.Table) else None
    if common is None or common.shape is None:
        raise refusal(
            NotSupportedError,
            f"{node.key.upper()} in FROM",
            at=node,
            clause="FROM",
            hint="use a table's name",
        )
    shape = common.shape
    alias = node.alias_or_name
    return alias, Shape(shape.node, shape.names, shape.forms, shape.carriers, None, [("", shape)])


def _information(context: Context, node: exp.Table) -> tuple[str, Shape]:
    name = node.name.lower()
    if name not in INFORMATION:
        raise refusal(
            UnknownName,
            f"information_schema.{name} is not kept",
            at=node,
            clause="FROM",
            hint=f"there are {', '.join(INFORMATION)}",
        )
    context.catalog_tables = True
    alias = node.alias_or_name
    node.set("db", None)
    node.set("this", exp.to_identifier(f"dp_{name}"))
    node.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    names = INFORMATION[name]
    return alias, Shape(node, names, [{} for _ in names])


def _items(select: exp.Select, children: list[tuple[str, Shape]]) -> tuple[list[Node], list[str]]:
    """Select items with their names; stars are spelled out, so that hidden columns stay hidden."""
    items: list[Node] = []
    names: list[str] = []
    for item in select.expressions:
        star = isinstance(item, exp.Star) or (
            isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
        )
        if not star:
            names.append(output_name(item))
            items.append(named(unaliased(item), names[-1]))
            continue
        wanted = item.table.lower() if isinstance(item, exp.Column) else ""
        for alias, child in children:
            if wanted in ("", alias.lower()):
                names += child.names
                items += [named(quoted_column(name, alias), name) for name in child.names]
    return items, names


def _check_columns(select: exp.Select, children: list[tuple[str, Shape]], names: list[str]) -> None:
    """Every column of this level must be an output of a source (or, in ORDER BY, of the SELECT)."""
    known = {name.lower() for _, child in children for name in child.names} | {name.lower() for name in names}
    for part in select.expressions:
        for column in part.find_all(exp.Column):
            own = not any(isinstance(above, exp.Subquery) for above in _above(column, part))
            if own and not isinstance(column.this, exp.Star) and column.name.lower() not in known:
                raise refusal(
                    UnknownName,
                    f"there is no column {column.name!r}",
                    at=column,
                    clause="SELECT",
                    hint=nearest(column.name, known) or "check the inner SELECT",
                )


def _above(node: Node, stop: Node) -> list[Node]:
    found = []
    above = node.parent
    while above is not None and above is not stop:
        found.append(above)
        above = above.parent
    return found


def _forms(node: Node, children: list[tuple[str, Shape]]) -> dict[int, Form]:
    """The form of a select item for each block that it may come from."""
    by_block: dict[int, dict[str, Form]] = {}
    for alias, child in children:
        for name, forms in zip(child.names, child.forms, strict=True):
            for block, form in forms.items():
                scope = by_block.setdefault(block, {})
                scope[name.lower()] = form
                scope[f"{alias}.{name}".lower()] = form
    found = {block: form_of(node, scope) for block, scope in by_block.items()}
    return {block: form for block, form in found.items() if form is not None}


def _error_calls(context: Context, item: Node, children: list[tuple[str, Shape]]) -> None:
    """DP_ functions of inner columns: their block computes them, and every level hands them out."""
    for call in list(item.find_all(exp.Anonymous)):
        if not str(call.this).lower().startswith("dp_"):
            continue
        what, inner, level = error_call(call)
        found = _forms(inner, children)
        if len(found) != 1 or not any(_contains(child, block) for _, child in children for block in found):
            call.replace(exp.null())
            continue
        ((block, form),) = found.items()
        column = context.drafts[block].value(ErrorOf(what, form, level))
        alias, child = next((a, c) for a, c in children if _contains(c, block))
        name = expose(context, child, block, column)
        call.replace(quoted_column(name, alias))


def _contains(shape: Shape, block: int) -> bool:
    """Whether a block stands below a query, with no set operation between."""
    if isinstance(shape.node, exp.SetOperation):
        return False
    return shape.block == block or any(_contains(child, block) for _, child in shape.children)


def expose(context: Context, shape: Shape, block: int, column: str) -> str:
    """Hand a block's column out through every level above it, as a hidden column.

    Args:
        context: the statement.
        shape: the outermost query that contains the block.
        block: its number.
        column: its column.

    Returns:
        The hidden column's name.
    """
    if shape.block == block:
        name = context.fresh()
        shape.node.append("expressions", named(exp.column(column), name))
        return name
    alias, child = next((a, c) for a, c in shape.children if _contains(c, block))
    name = expose(context, child, block, column)
    if child.node is not shape.node and isinstance(shape.node, exp.Select):
        shape.node.append("expressions", named(quoted_column(name, alias), name))
    return name
