"""A parsed statement -> its blocks and the statement over their groups.

Every SELECT over rows of people becomes a block; the SELECT itself stays, over the block's relation.
What stands around it (CTEs, derived tables, set operations, ORDER BY, LIMIT, windows) is post-processing
and stays as it was written.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from dpsql.answer.schema import Schema
from dpsql.answer.sql.finite import finite
from dpsql.answer.sql.fromclause import aggregates, bind_from, holds_rows, is_row_level, sources
from dpsql.answer.sql.outer import outer_select
from dpsql.answer.sql.refuse import refusal
from dpsql.answer.sql.select import build
from dpsql.answer.sql.statement import Common, Context, Shape, Statement, named
from dpsql.answer.sql.whitelist import check
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.sql.node import Node

Scope = dict[str, Common]


def take_apart(tree: Node, schema: Schema, text: str) -> Statement:
    """Rewrite a whole statement.

    Args:
        tree: the parsed statement; changed in place.
        schema: the star.
        text: what the user wrote.

    Returns:
        Blocks, outer statement and output columns.

    Raises:
        dpsql.errors.Error: the statement cannot be answered; the error says which part and why.
    """
    check(tree)
    context = Context(schema, text)
    shape = rewrite_query(context, tree, {}, True)
    blocks = tuple(replace(draft.block, values=tuple(draft.values)) for draft in context.drafts)
    picked = picked_columns(shape)
    outer = finite(shape.node).sql(
        dialect="duckdb", copy=False
    )  # the last use of the tree: generating may change it
    return Statement(
        blocks,
        outer,
        tuple(shape.names),
        tuple(shape.forms),
        tuple(shape.carriers.values()),
        context.catalog_tables,
        picked,
    )


def picked_columns(shape: Shape) -> tuple[str, ...]:
    """The columns of the block's relation, if the query does nothing but pick some of them."""
    select = shape.node
    plain = {key for key, value in select.args.items() if value} <= {"expressions", "from_", "kind"}
    if shape.block is None or not isinstance(select, exp.Select) or not plain:
        return ()
    items = [item.this for item in select.expressions]
    if not all(isinstance(item, exp.Column) and not item.table for item in items):
        return ()
    return tuple(item.name for item in items)


def rewrite_query(context: Context, node: Node, scope: Scope, track: bool) -> Shape:
    """Rewrite one query, whatever it is.

    Args:
        context: the statement.
        node: SELECT, set operation or parenthesised query.
        scope: CTEs in sight.
        track: whether row numbers may be carried out of it.

    Returns:
        Its shape.
    """
    scope = _with(context, node, scope)
    if isinstance(node, exp.Subquery):
        inner = rewrite_query(context, node.this, scope, track)
        return Shape(node, inner.names, inner.forms, inner.carriers, None, [("", inner)])
    if isinstance(node, exp.SetOperation):
        return _set_operation(context, node, scope, track)
    if not isinstance(node, exp.Select):
        raise refusal(
            NotSupportedError, f"{node.key.upper()} is not supported here", at=node, hint="use SELECT"
        )
    kinds = [holds_rows(context, source, scope) for source in sources(node)]
    if kinds and all(kinds):
        if _preview(node):
            return _no_rows(context, node, scope)
        return build(context, node, scope, track, lambda sub: _scalar(context, sub, scope))
    if any(kinds):
        raise refusal(
            NotSupportedError,
            "a table of people is joined to an answer",
            clause="FROM",
            at=sources(node)[0],
            hint="aggregate it first, in a derived table of its own",
        )
    return outer_select(context, node, scope, track, rewrite_query)


def _with(context: Context, node: Node, scope: Scope) -> Scope:
    """Put the query's CTEs into scope; row-level ones leave the statement, they are unwrapped where used."""
    clause = node.args.get("with_")
    if clause is None:
        return scope
    scope = dict(scope)
    kept = []
    for common in clause.expressions:
        if common.args["alias"].args.get("columns"):
            raise refusal(
                NotSupportedError,
                "a CTE with a column list",
                clause="WITH",
                hint="name the columns inside it",
            )
        query = common.this
        if isinstance(query, exp.Select) and is_row_level(context, query, scope):
            scope[common.alias.lower()] = Common(raw=query)
        else:
            scope[common.alias.lower()] = Common(shape=rewrite_query(context, query, scope, True))
            kept.append(common)
    clause.set("expressions", kept)
    if not kept:
        node.set("with_", None)
    return scope


def _set_operation(context: Context, node: exp.SetOperation, scope: Scope, track: bool) -> Shape:
    """UNION, INTERSECT, EXCEPT. Row numbers are carried through UNION ALL alone: elsewhere they would
    make equal rows differ."""
    through = track and isinstance(node, exp.Union) and not node.args.get("distinct")
    left = rewrite_query(context, node.left, scope, through)
    right = rewrite_query(context, node.right, scope, through)
    if len(left.names) != len(right.names):
        raise refusal(
            ProgrammingError,
            f"the branches have {len(left.names)} and {len(right.names)} columns",
            clause="UNION",
            hint="select the same number of columns",
        )
    carriers = {**left.carriers, **right.carriers} if through else {}
    for branch in (left, right):
        _pad(branch, carriers)
    blocks = [{b for form in shape.forms for b in form} for shape in (left, right)]
    clash = bool(blocks[0] & blocks[1])
    forms = [{} if clash else {**a, **b} for a, b in zip(left.forms, right.forms, strict=True)]
    return Shape(node, left.names, forms, carriers, None, [("", left), ("", right)])


def _pad(branch: Shape, carriers: dict[str, int]) -> None:
    """Give a branch all hidden columns, in one order; those of the other branch are NULL."""
    select = branch.node
    while isinstance(select, exp.Subquery):
        select = select.this
    if isinstance(select, exp.SetOperation):
        for _, child in branch.children:
            _pad(child, carriers)
        return
    visible = select.expressions[: len(branch.names)]
    own = {item.alias: item for item in select.expressions[len(branch.names) :]}
    hidden = [own.get(name) or named(exp.null(), name) for name in carriers]
    select.set("expressions", [*visible, *hidden])


def _scalar(context: Context, node: exp.Subquery, scope: Scope) -> None:
    """A scalar subquery in an expression over groups: a statement of its own."""
    inner = rewrite_query(context, node.this, scope, False)
    if len(inner.names) != 1:
        raise refusal(
            ProgrammingError, f"a scalar subquery has one column, this one has {len(inner.names)}", at=node
        )


def _preview(select: exp.Select) -> bool:
    """SELECT .. LIMIT 0 without aggregates: BI tools ask for the column names."""
    limit = select.args.get("limit")
    zero = (
        isinstance(limit, exp.Limit)
        and isinstance(limit.expression, exp.Literal)
        and limit.expression.this == "0"
    )
    return zero and not select.args.get("group") and not any(aggregates(item) for item in select.expressions)


def _no_rows(context: Context, select: exp.Select, scope: Scope) -> Shape:
    rows = bind_from(context, select, scope)
    names: list[str] = []
    for item in select.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            names += [name for source in rows.sources for name in source.names.values()]
        else:
            names.append(item.alias_or_name or item.sql(dialect="duckdb"))
    empty = exp.Select(expressions=[named(exp.null(), name) for name in names])
    return Shape(empty.where(exp.false()), names, [{} for _ in names])
