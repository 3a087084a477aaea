"""FROM: which sources hold rows of people, and which are already answers."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsql.answer.schema import nearest
from dpsql.answer.sql.joins import conjuncts
from dpsql.answer.sql.names import Rows, Source, resolve, wide_source
from dpsql.answer.sql.refuse import refusal
from dpsql.answer.sql.statement import Common, Context, output_name, unaliased
from dpsql.errors import NotSupportedError, ProgrammingError, UnknownName
from dpsql.sql.node import Node

Scope = Mapping[str, Common]
SCHEMAS = frozenset({"", "main", "public", "dbo", "default"})


def sources(select: exp.Select) -> list[Node]:
    """The relations in FROM and its joins, in order."""
    first = select.args.get("from_")
    joins = select.args.get("joins") or []
    if joins and first is None:
        raise refusal(
            ProgrammingError, "a JOIN stands without FROM", at=joins[0], clause="FROM", hint="write FROM"
        )
    return ([first.this] if first is not None else []) + [join.this for join in joins]


def holds_rows(context: Context, node: Node, scope: Scope) -> bool:
    """Whether a source is row-level: a base or wide table, or a query that only filters and renames one.

    Raises:
        UnknownName: no table of that name.
    """
    if isinstance(node, exp.Table):
        common = scope.get(node.name.lower()) if not node.db else None
        if common is not None:
            return common.raw is not None
        if node.db.lower() == "information_schema":
            return False
        return _known_table(context, node)
    inner = node
    while isinstance(inner, exp.Subquery):
        inner = inner.this
    return isinstance(inner, exp.Select) and is_row_level(context, inner, scope)


def _known_table(context: Context, node: exp.Table) -> bool:
    name, schema = node.name, context.schema
    if node.db.lower() not in SCHEMAS | {schema.name.lower()}:
        raise refusal(
            UnknownName,
            f"there is no schema {node.db!r}",
            at=node,
            clause="FROM",
            hint=f"write {name} or main.{name}",
        )
    if schema.table(name) is None and name.lower() not in schema.wide():
        known = [*(table.name for table in schema.tables.values()), *schema.wide()]
        raise refusal(
            UnknownName,
            f"there is no table {name!r}",
            at=node,
            clause="FROM",
            hint=nearest(name, known) or f"tables: {', '.join(known[:12])}",
        )
    return True


def is_row_level(context: Context, select: exp.Select, scope: Scope) -> bool:
    """Whether a SELECT yields one row per row of its FROM clause."""
    if select.args.get("with_") is not None or not sources(select):
        return False
    parts = ("group", "having", "distinct", "limit", "offset", "qualify")
    if any(select.args.get(part) for part in parts):
        return False
    if any(aggregates(item) or item.find(exp.Window) for item in select.expressions):
        return False
    return all(holds_rows(context, source, scope) for source in sources(select))


def aggregates(node: Node) -> list[Node]:
    """Aggregate calls in an expression, outside of subqueries; those that a window evaluates are not counted."""
    if isinstance(node, (exp.Subquery, exp.Query)):
        return []
    found: list[Node] = []
    window = isinstance(node, exp.Window)
    if isinstance(node, exp.AggFunc) or (
        isinstance(node, exp.Anonymous) and str(node.this).lower().startswith("dp_")
    ):
        found.append(node)
    for child in node.iter_expressions():
        inner = child.this if window and isinstance(child, exp.Filter) else child
        if window and child is node.this:
            for argument in inner.iter_expressions():
                found.extend(aggregates(argument))
        else:
            found.extend(aggregates(child))
    return found


def bind_from(context: Context, select: exp.Select, scope: Scope, into: Rows | None = None) -> Rows:
    """The row-level FROM clause of a SELECT, derived tables unwrapped.

    Args:
        context: the statement.
        select: a SELECT whose sources are all row-level.
        scope: CTEs.
        into: the relation that a derived table is unwrapped into.

    Returns:
        Its instances and conditions; `sources` are this SELECT's own names.
    """
    shared = into or Rows()
    rows = Rows(shared.instances, shared.edges, shared.conditions, [], set())
    first = select.args["from_"].this
    rows.sources.append(_source(context, first, scope, rows))
    for join in [*(first.args.get("joins") or []), *(select.args.get("joins") or [])]:
        _join(context, rows, join, scope)
    where = select.args.get("where")
    for part in conjuncts(where.this if where is not None else None):
        rows.conditions.append(resolve(rows, part, context.schema))
    return rows


def _source(context: Context, node: Node, scope: Scope, rows: Rows) -> Source:
    """One row-level source, its instances added to the relation."""
    if isinstance(node, exp.Table):
        common = scope.get(node.name.lower()) if not node.db else None
        if common is not None and common.raw is not None:
            return _unwrapped(context, common.raw, node.alias_or_name, scope, rows)
        table = context.schema.table(node.name)
        if table is not None:
            return rows.add(table, node.alias_or_name)
        fact = context.schema.table(context.schema.wide()[node.name.lower()])
        assert fact is not None
        return wide_source(rows, context.schema, fact, node.alias_or_name)
    inner = node
    while isinstance(inner, exp.Subquery):
        inner = inner.this
    return _unwrapped(context, inner, node.alias_or_name, scope, rows)


def _unwrapped(context: Context, node: Node, alias: str, scope: Scope, rows: Rows) -> Source:
    """A derived table that renames and filters: its names, over the same instances."""
    assert isinstance(node, exp.Select)
    inner = bind_from(context, node, scope, rows)
    columns: dict[str, Node] = {}
    names: dict[str, str] = {}
    for item in node.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            wanted = item.table.lower() if isinstance(item, exp.Column) else ""
            for source in inner.sources:
                if wanted in ("", source.alias.lower()):
                    columns |= {k: v for k, v in source.columns.items() if k not in columns}
                    names |= {k: v for k, v in source.names.items() if k not in names}
            continue
        name = output_name(item)
        columns[name.lower()] = resolve(inner, unaliased(item), context.schema)
        names[name.lower()] = name
    return Source(alias, columns, names)


def _join(context: Context, rows: Rows, join: exp.Join, scope: Scope) -> None:
    """One more source, with its ON or USING conditions."""
    side, method = str(join.args.get("side") or "").upper(), str(join.args.get("method") or "").upper()
    kind = str(join.args.get("kind") or "").upper()
    if side in ("RIGHT", "FULL") or kind in ("SEMI", "ANTI") or method:
        words = " ".join(word for word in (method, side, kind) if word)
        raise refusal(
            NotSupportedError,
            f"{words} JOIN would list people without rows",
            at=join,
            clause="JOIN",
            hint="use INNER JOIN or LEFT JOIN from the fact to the dimension",
        )
    before, conditions = len(rows.instances), len(rows.conditions)
    source = _source(context, join.this, scope, rows)
    if side == "LEFT" and len(rows.conditions) > conditions:
        raise refusal(
            NotSupportedError,
            "a LEFT JOIN to a filtered derived table",
            at=join,
            clause="JOIN",
            hint="put the filter into WHERE or into a CASE",
        )
    rows.sources.append(source)
    for instance in rows.instances[before:]:
        instance.left = instance.left or side == "LEFT"
    on = join.args.get("on")
    for part in conjuncts(on):
        resolved = resolve(rows, part, context.schema)
        if side == "LEFT" and not isinstance(resolved, exp.EQ):
            raise refusal(
                NotSupportedError,
                "a LEFT JOIN takes key equalities only",
                at=part,
                clause="JOIN",
                hint="put other conditions into WHERE or into a CASE",
            )
        rows.conditions.append(resolved)
    for name in join.args.get("using") or []:
        _using(rows, source, name)


def _using(rows: Rows, source: Source, name: Node) -> None:
    key = name.name.lower()
    left = next((s.columns[key] for s in rows.sources[:-1] if key in s.columns), None)
    right = source.columns.get(key)
    if left is None or right is None:
        raise refusal(
            UnknownName,
            f"USING names {name.name!r}, which is not in both tables",
            at=name,
            clause="JOIN",
            hint="write ON with the key of each",
        )
    rows.shared.add(key)
    rows.conditions.append(exp.EQ(this=left.copy(), expression=right.copy()))
