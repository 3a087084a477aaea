"""A parsed statement -> its blocks and the statement over their groups.

Every SELECT over rows of people becomes a block; the SELECT itself stays, over the block's relation. What stands around
it (CTEs, derived tables, set operations, ORDER BY, LIMIT, windows) is post-processing: it stays as it was written, and
error bars are carried along where they stay defined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sqlglot import exp

from dpsql.errors import NotSupportedError, ProgrammingError, UnknownName
from dpsql.planner.answerability import VIEWS
from dpsql.planner.block import ErrorOf, Form
from dpsql.planner.schema import INFORMATION, Schema, nearest
from dpsql.row_expressions.expression import Node
from dpsql.sql import parse
from dpsql.sql.added import leave_out_added
from dpsql.sql.aggregates import error_call, form_of
from dpsql.sql.binding import COMPARED, DIALECT
from dpsql.sql.dialects import SERIES, fold_clock, map_fields, name_columns, native, read_series
from dpsql.sql.finer_groups import Inner
from dpsql.sql.from_clause import bind_from, holds_rows, is_row_level, sources, starred
from dpsql.sql.per_person import map_people
from dpsql.sql.select import build
from dpsql.sql.semijoin import count_members
from dpsql.sql.spellings import normal, spread_sets
from dpsql.sql.statement import (
    Context,
    Kind,
    RewrittenQuery,
    Scope,
    Statement,
    finite,
    kind,
    kind_of_type,
    typed,
)


def split_statement(tree: Node, schema: Schema, text: str, carries: bool = False) -> Statement:
    """Rewrite a whole statement.

    Args:
        tree: the parsed statement; changed in place.
        schema: the star.
        text: what the user wrote.
        carries: whether functions of an error are worked out beside the outer statement, never in a block.

    Returns:
        Blocks, outer statement and output columns.

    Raises:
        dpsql.errors.Error: the statement cannot be answered; the error says which part and why.
    """
    dialect = tree.meta.get("dialect", parse.DEFAULT_DIALECT)
    for query in tree.find_all(exp.Query):
        if not query.is_star:
            parse.check_ordinals(query, len(query.selects))
    tree, moment = fold_clock(name_columns(tree, dialect, text))
    tree = spread_sets(normal(native(tree, dialect)), schema)
    map_fields(tree, schema)
    notes = map_people(tree, schema)
    count_members(tree, schema)
    parse.check(tree)
    parse.check_growth(tree)
    ordered = tree.find(exp.Order) is not None
    context = Context(schema, text, carries)
    shape = rewrite_query(context, tree, Scope({}, {}), True)
    blocks = tuple(replace(draft.block, values=tuple(draft.values)) for draft in context.drafts)
    picked = picked_columns(shape)
    left_out, counting, key_texts = leave_out_added(shape.node, blocks)
    node = finite(left_out or shape.node)
    counting = counting[: len(shape.names)]
    asks_errors = any(map(parse.is_error_call, node.find_all(exp.Anonymous)))
    keeps = node.find(*KEEPING) is not None
    common = parse.ctes(node)
    node.set("with_", None)

    def written(expression: Node) -> str:  # the last use of the tree: generating may change it
        return expression.sql(dialect=DIALECT, copy=False)

    return Statement(
        blocks, written(node), tuple(map(written, common)),
        tuple(shape.names), tuple(shape.forms), tuple(shape.carriers.values()), context.catalog_tables,
        tuple(dict.fromkeys(context.public_tables)), () if counting else picked, ordered, asks_errors, keeps, moment,
        notes, counting, key_texts,
    )  # fmt: skip


KEEPING = (exp.Limit, exp.Offset, exp.Fetch, exp.Where, exp.Having, exp.Qualify, exp.Join, exp.Case)
"""What may keep some rows of a query, or show some of its values."""


def picked_columns(shape: RewrittenQuery) -> tuple[str, ...]:
    """The columns of the block's relation, if the query does nothing but pick some of them."""
    select = shape.node
    plain = {key for key, value in select.args.items() if value} <= {"expressions", "from_", "kind"}
    if shape.block is None or not isinstance(select, exp.Select) or not plain:
        return ()
    items = [projection.this for projection in select.expressions]
    if not all(isinstance(projection, exp.Column) for projection in items):
        return ()
    return tuple(projection.name for projection in items)


def rewrite_query(context: Context, node: Node, scope: Scope, track: bool) -> RewrittenQuery:
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
        return RewrittenQuery(
            node, inner.names, inner.forms, inner.carriers, None, [("", inner)], kinds=inner.kinds
        )
    if isinstance(node, exp.SetOperation):
        return _set_operation(context, node, scope, track)
    if not isinstance(node, exp.Select):
        raise parse.refusal(
            NotSupportedError, f"{node.key.upper()} is not supported here", at=node, hint="use SELECT"
        )
    kinds = [holds_rows(context, source, scope) for source in sources(node)]
    if kinds and all(kinds) and _preview(node):  # its columns' names, and no rows
        rows = bind_from(context, node, scope)
        names: list[str] = []
        for projection in node.expressions:
            if parse.is_star(projection):
                names += [source.names[name] for source, name in starred(rows, projection)]
            else:
                names.append(projection.alias_or_name or projection.sql(dialect="duckdb"))
        empty = exp.Select(expressions=[parse.named(exp.null(), name) for name in names])
        return RewrittenQuery(empty.where(exp.false()), names, [{} for _ in names])
    if kinds and all(_is_public(context, source, scope) for source in sources(node)):
        return outer_select(context, node, scope, track)
    if any(kinds):
        around = Inner(
            lambda sub: _scalar(context, sub, scope), lambda source: _child(context, source, scope, False)
        )
        with context.reading(_release_of(context, node, scope)):
            return build(context, node, scope, track, around)
    return outer_select(context, node, scope, track)


def _is_public(context: Context, source: Node, scope: Scope) -> bool:
    """True if a source is a public table of which the release has every row, or a SELECT of such tables alone."""
    inner = source.unnest()
    if isinstance(inner, exp.Select):
        inside = sources(inner)
        return bool(inside) and all(_is_public(context, relation, scope) for relation in inside)
    return (
        isinstance(source, exp.Table)
        and (bool(source.db) or not scope.holds(source.name))
        and source.db.lower() not in context.schema.named
        and context.schema.public_rows(source.name) is not None
    )


def _release_of(context: Context, select: exp.Select, scope: Scope) -> str:
    """The release whose rows a SELECT names; empty where it names none."""
    rows = [source for source in sources(select) if holds_rows(context, source, scope)]
    names = {table.db.lower(): table for source in rows for table in source.find_all(exp.Table)}
    releases = [name for name in names if name in context.schema.named]
    if len(releases) > 1:
        raise parse.refusal(
            NotSupportedError, f"rows of {' and '.join(sorted(releases))} are joined, and releases contain no rows",
            at=names[releases[-1]], clause="FROM", hint="aggregate those of each, and join the answers",
        )  # fmt: skip
    return releases[0] if releases else context.release


def _with(context: Context, node: Node, scope: Scope) -> Scope:
    """Put the query's CTEs into scope; row-level ones leave the statement, they are unwrapped where used."""
    if node.args.get("with_") is None:
        return scope
    scope, answer_ctes = Scope(dict(scope.rows), dict(scope.answers)), []
    for common in parse.ctes(node):
        if common.args["alias"].args.get("columns"):
            raise parse.refusal(
                NotSupportedError,
                "a CTE with a column list",
                clause="WITH",
                hint="name the columns inside it",
            )
        name, query = common.alias.lower(), common.this
        if isinstance(query, exp.Select) and is_row_level(context, query, scope):
            scope.rows[name] = query
            continue
        scope.answers[name] = rewrite_query(context, query, scope, True)
        scope.rows.pop(name, None)
        answer_ctes.append(common)
    node.set("with_", exp.With(expressions=answer_ctes) if answer_ctes else None)
    return scope


def _set_operation(context: Context, node: exp.SetOperation, scope: Scope, track: bool) -> RewrittenQuery:
    """UNION, INTERSECT, EXCEPT. Row numbers are carried through UNION ALL alone: elsewhere they would
    make equal rows differ."""
    through = track and isinstance(node, exp.Union) and not node.args.get("distinct")
    left = rewrite_query(context, node.left, scope, through)
    right = rewrite_query(context, node.right, scope, through)
    if len(left.names) != len(right.names):
        raise parse.refusal(
            ProgrammingError,
            f"the branches have {len(left.names)} and {len(right.names)} columns",
            clause="UNION",
            hint="select the same number of columns",
        )
    parse.check_ordinals(node, len(left.names))
    carriers = {**left.carriers, **right.carriers} if through else {}
    for branch in (left, right):
        _pad(branch, carriers)
    blocks = [{b for form in shape.forms for b in form} for shape in (left, right)]
    clash = bool(blocks[0] & blocks[1]) or not through
    forms = [{} if clash else {**a, **b} for a, b in zip(left.forms, right.forms, strict=True)]
    kinds = left.kinds if left.kinds == right.kinds else []
    return RewrittenQuery(node, left.names, forms, carriers, None, [("", left), ("", right)], kinds=kinds)


def _pad(branch: RewrittenQuery, carriers: dict[str, int]) -> None:
    """Give a branch all hidden columns, in one order; those of the other branch are NULL."""
    select = branch.node.unnest()
    if isinstance(select, exp.SetOperation):
        for _, child in branch.children:
            _pad(child, carriers)
        return
    visible = select.expressions[: len(branch.names)]
    by_name = {projection.alias: projection for projection in select.expressions[len(branch.names) :]}
    hidden = [by_name.get(name) or parse.named(exp.null(), name) for name in carriers]
    select.set("expressions", [*visible, *hidden])


def _scalar(context: Context, node: exp.Subquery, scope: Scope) -> None:
    """A scalar subquery in an expression over groups: a statement of its own."""
    inner = rewrite_query(context, node.this, scope, False)
    compared = node.parent.this if isinstance(node.parent, exp.In) else None
    width = len(compared.expressions) if isinstance(compared, exp.Tuple) else 1
    if len(inner.names) != width:
        raise parse.refusal(
            ProgrammingError,
            f"a subquery has {len(inner.names)} columns, {width} is what it is compared with",
            at=node,
        )


def _preview(select: exp.Select) -> bool:
    """SELECT .. LIMIT 0, or WHERE 1 = 0, without aggregates: BI tools and data frames ask for the column names."""
    limit = select.args.get("limit")
    nothing = isinstance(limit, exp.Limit) and limit.expression == exp.Literal.number(0)
    nothing |= any(map(_never, parse.conjuncts(select.args.get("where"))))
    return nothing and not select.args.get("group") and not any(map(parse.aggregates, select.expressions))


def _never(test: Node) -> bool:
    """True of FALSE, and of a comparison of two numbers that is false: 1 = 0, but not 1 = 1.0."""
    if isinstance(test, exp.Binary) and type(test) in COMPARED:
        left, right = parse.number(test.left), parse.number(test.right)
        return left is not None and right is not None and not COMPARED[type(test)](left, right)
    return bool(test == exp.false())


def outer_select(context: Context, select: exp.Select, scope: Scope, track: bool) -> RewrittenQuery:
    """Rewrite a SELECT whose sources are answers, constants or the information schema.

    Args:
        context: the statement.
        select: changed in place.
        scope: CTEs in sight.
        track: whether row numbers may be carried out.

    Returns:
        Its shape.
    """
    having = select.args.get("having")
    calls = [
        call
        for item in [*select.expressions, *([having] if having else [])]
        for call in parse.aggregates(item)
    ]
    grouped = bool(select.args.get("group") or select.args.get("distinct"))
    grouped |= any(not isinstance(call, exp.Anonymous) for call in calls)
    children = [_child(context, source, scope, not grouped) for source in sources(select)]
    for exists in select.find_all(exp.Exists):
        if exists.find_ancestor(exp.Select) is select:
            raise parse.refusal(
                NotSupportedError, "EXISTS over answers is not supported", at=exists, clause="WHERE",
                hint="compare with IN",
            )  # fmt: skip
    clauses = [select.args.get(key) for key in ("where", "having", "qualify", "order")]
    roots = [*select.expressions, *filter(None, clauses)]
    subqueries = [node for root in roots for node in root.find_all(exp.Subquery)]
    for subquery in [node for node in subqueries if node.find_ancestor(exp.Select) is select]:
        rewrite_query(context, subquery.this, scope, False)
    column_kind = partial(_kind_of, children)
    items, names = _items(select, children)
    if select.is_star:
        parse.check_ordinals(select, len(names))
    for expression in [*items, *filter(None, [*clauses, select.args.get("group")])]:
        typed(expression, column_kind)
    kinds = [kind(parse.unaliased(projection), column_kind) for projection in items]
    _check_columns(select, children, names)
    forms = []
    for projection in items:
        _error_calls(context, projection, children)
        forms.append({} if grouped else _forms(parse.unaliased(projection), children))
    carriers: dict[str, int] = {}
    if track and not grouped:
        for alias, child in children:
            for name, block in child.carriers.items():
                if name not in carriers:
                    carriers[name] = block
                    items.append(parse.named(parse.quoted_column(name, alias), name))
    unique = _unique(select, items[: len(names)], children)
    select.set("expressions", items)
    return RewrittenQuery(select, names, forms, carriers, None, children, unique, kinds)


def _kind_of(children: list[tuple[str, RewrittenQuery]], column: exp.Column) -> Kind | None:
    """The kind of an inner column that only one source has."""
    kinds = [
        child.kinds[child.names.index(name)]
        for alias, child in children
        for name in child.names
        if child.kinds and name.lower() == column.name.lower() and column.table.lower() in ("", alias.lower())
    ]
    return kinds[0] if len(kinds) == 1 else None


def _unique(
    select: exp.Select, items: Sequence[Node], children: list[tuple[str, RewrittenQuery]]
) -> frozenset[str] | None:
    """Columns that no two rows have alike: all of a DISTINCT, or what holds those of the only source."""
    if select.args.get("distinct") is not None:
        return frozenset(projection.alias.lower() for projection in items)
    unique = children[0][1].unique if len(children) == 1 and not select.args.get("group") else None
    shown = {
        projection.this.name.lower(): projection.alias.lower()
        for projection in items
        if isinstance(projection.this, exp.Column)
    }
    return frozenset(shown[name] for name in unique) if unique is not None and unique <= set(shown) else None


def _child(context: Context, node: Node, scope: Scope, track: bool) -> tuple[str, RewrittenQuery]:
    if isinstance(node, exp.Table) and isinstance(node.this, SERIES):
        return read_series(node)
    if isinstance(node, exp.Subquery):
        inner = rewrite_query(context, node.this, scope, track)
        return node.alias, inner
    if isinstance(node, exp.Values):
        width = len(node.expressions[0].expressions) if node.expressions else 0
        names = node.alias_column_names or [f"col{i}" for i in range(width)]
        return node.alias, RewrittenQuery(node, names, [{} for _ in names])
    if isinstance(node, exp.Table) and node.db.lower() == "information_schema":
        return _information(context, node)
    if isinstance(node, exp.Table) and _is_public(context, node, scope):
        public_rows = context.schema.public_rows(node.name)
        assert public_rows is not None
        names, kinds = [c.column for c in public_rows[1]], [kind_of_type(c.type) for c in public_rows[1]]
        context.public_tables.append(node.name.lower())
        alias = _renamed(node, exp.to_identifier(f"dp_public_{node.name.lower()}", quoted=True))
        return alias, RewrittenQuery(node, names, [{} for _ in names], kinds=kinds)
    answer = scope.answers.get(node.name.lower()) if isinstance(node, exp.Table) else None
    if answer is None:
        raise parse.refusal(
            NotSupportedError,
            f"{node.key.upper()} in FROM",
            at=node,
            clause="FROM",
            hint="use a table's name",
        )
    shape = replace(answer, block=None, children=[("", answer)])
    return node.alias_or_name, shape


def _information(context: Context, node: exp.Table) -> tuple[str, RewrittenQuery]:
    name = node.name.lower()
    columns = (INFORMATION | VIEWS).get(name)
    if columns is None:
        raise parse.refusal(
            UnknownName,
            f"information_schema.{name} is not provided",
            at=node,
            clause="FROM",
            hint=f"there are {', '.join(INFORMATION | VIEWS)}",
        )
    context.catalog_tables = True
    return _renamed(node, exp.to_identifier(f"dp_{name}")), RewrittenQuery(
        node, list(columns), [{} for _ in columns]
    )


def _renamed(node: exp.Table, name: exp.Identifier) -> str:
    """Let a table in FROM read a relation, under the alias that it has; returns the alias."""
    alias = node.alias_or_name
    node.set("db", None)
    node.set("this", name)
    node.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return alias


def _items(select: exp.Select, children: list[tuple[str, RewrittenQuery]]) -> tuple[list[Node], list[str]]:
    """Select items with their names; stars are spelled out, so that hidden columns stay hidden."""
    items: list[Node] = []
    names: list[str] = []
    merged = _merged(select, children)
    for projection in select.expressions:
        if not parse.is_star(projection):
            names.append(parse.output_name(projection))
            items.append(parse.named(parse.unaliased(projection), names[-1]))
            continue
        wanted = projection.table.lower() if isinstance(projection, exp.Column) else ""
        for (alias, child), repeated in zip(children, merged, strict=True):
            if wanted not in ("", alias.lower()):
                continue
            for name in child.names:
                if wanted or name.lower() not in repeated:
                    # without its table a merged column is the one that an outer join leaves there
                    table = alias if wanted or not any(name.lower() in columns for columns in merged) else ""
                    names.append(name)
                    items.append(parse.named(parse.quoted_column(name, table), name))
    return items, names


def _merged(select: exp.Select, children: list[tuple[str, RewrittenQuery]]) -> list[set[str]]:
    """For each source the columns that USING or NATURAL merges with those of a source before it."""
    merged, seen = list[set[str]](), set[str]()
    for (_, child), join in zip(children, [exp.Join(), *(select.args.get("joins") or [])], strict=False):
        names = {name.lower() for name in child.names}
        using = {name.name.lower() for name in join.args.get("using") or []}
        merged.append(seen & names if join.method == "NATURAL" else using)
        seen |= names
    return merged


def _check_columns(select: exp.Select, children: list[tuple[str, RewrittenQuery]], names: list[str]) -> None:
    """Every column of this level must be an output of a source (or, in ORDER BY, of the SELECT)."""
    visible = {name.lower() for _, child in children for name in child.names} | {
        name.lower() for name in names
    }
    for projection in select.expressions:
        for column in projection.find_all(exp.Column):
            at_this_level = column.find_ancestor(exp.Select) is select
            if at_this_level and not isinstance(column.this, exp.Star) and column.name.lower() not in visible:
                raise parse.refusal(
                    UnknownName,
                    f"there is no column {column.name!r}",
                    at=column,
                    clause="SELECT",
                    hint=nearest(column.name, visible) or "check the inner SELECT",
                )


def _forms(node: Node, children: list[tuple[str, RewrittenQuery]]) -> dict[int, Form]:
    """The form of a select item for each block that it may come from."""
    by_block: dict[int, dict[str, Form]] = {}
    carried = [block for _, child in children for block in set(child.carriers.values())]
    for alias, child in children:
        for name, forms in zip(child.names, child.forms, strict=True):
            for block, form in forms.items():
                if carried.count(block) > 1:
                    continue  # rows of one block side by side: only `sql.carry` tells them apart
                scope = by_block.setdefault(block, {})
                scope[name.lower()] = form
                scope[f"{alias}.{name}".lower()] = form
    block_forms = {block: form_of(node, scope) for block, scope in by_block.items()}
    return {block: form for block, form in block_forms.items() if form is not None}


def _error_calls(context: Context, projection: Node, children: list[tuple[str, RewrittenQuery]]) -> None:
    """DP_ functions of inner columns: their block computes them, and every level hands them out."""
    for call in list(projection.find_all(exp.Anonymous)):
        if not parse.is_error_call(call):
            continue
        error, inner, level = error_call(call)
        forms = {} if context.carries else _forms(inner, children)
        if len(forms) != 1 or not any(_contains(child, block) for _, child in children for block in forms):
            continue  # it stays, for `sql.carry`
        ((block, form),) = forms.items()
        column = context.drafts[block].value(ErrorOf(error, form, level))
        alias, child = next((a, c) for a, c in children if _contains(c, block))
        name = expose(context, child, block, column)
        call.replace(parse.quoted_column(name, alias))


def _contains(shape: RewrittenQuery, block: int) -> bool:
    """True if a block stands below a query, with no set operation between."""
    if isinstance(shape.node, exp.SetOperation):
        return False
    return shape.block == block or any(_contains(child, block) for _, child in shape.children)


def expose(context: Context, shape: RewrittenQuery, block: int, column: str) -> str:
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
        shape.node.append("expressions", parse.named(exp.column(column, f"dp_block_{block}"), name))
        return name
    alias, child = next((a, c) for a, c in shape.children if _contains(c, block))
    name = expose(context, child, block, column)
    if child.node is not shape.node and isinstance(shape.node, exp.Select):
        shape.node.append("expressions", parse.named(parse.quoted_column(name, alias), name))
    return name
