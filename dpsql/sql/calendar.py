"""Fields of times that a catalog derives: `EXTRACT(HOUR FROM sold_at)` is its column `sold_hour` where a view has that.

    tables: {sales: {derive: {sold_hour: "hour(sold_at)"}, columns: {sold_hour: {type: int, lower: 0, upper: 23}}}}

An axis of 24 hours errs by far less than the hours of a year added up. Where a SELECT also asks for the time itself,
a field is replaced only if some view has both.

**Privacy**: reads a statement and the catalog.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from dpsql.planner.schema import Schema, SchemaTable
from dpsql.row_expressions.calendar import CalendarField, calendar_field
from dpsql.row_expressions.expression import Node, column_name
from dpsql.sql.statement import output_name


def map_fields(tree: Node, schema: Schema) -> None:
    """Replace every field of a time by the column that holds it.

    Args:
        tree: a parsed statement; changed in place.
        schema: the star.
    """
    if not schema.fields:
        return
    common = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for select in list(tree.find_all(exp.Select)):
        sources = dict(_sources(select, schema, common))
        calls = [
            (node, field)
            for node in select.find_all(exp.Expression)
            if node.find_ancestor(exp.Select) is select and (field := calendar_field(node)) is not None
        ]
        inside = {id(column) for node, _ in calls for column in node.find_all(exp.Column)}
        plain = {column_name(c) for c in select.find_all(exp.Column) if id(c) not in inside}
        for node, field in calls:
            key = _key(field, sources)
            name = None if key is None else schema.fields.get(key)
            if name is not None and ((field.table, field.column) not in plain or key in schema.beside):
                held: Node = exp.column(name, table=field.table or None, quoted=True)
                shown = node.parent is select and node.arg_key == "expressions"
                node.replace(exp.alias_(held, output_name(node), quoted=True) if shown else held)


def _sources(
    select: exp.Select, schema: Schema, common: set[str]
) -> Iterator[tuple[str, tuple[SchemaTable, ...]]]:
    """Aliases in FROM, and the star's table behind each."""
    source = select.args.get("from_")
    wide = schema.wide()
    for relation in [
        *([source.this] if source else []),
        *(join.this for join in select.args.get("joins") or []),
    ]:
        if isinstance(relation, exp.Table) and not _is_shadowed(relation, common):
            table = schema.table(relation.name)
            every = tuple(schema.tables.values()) if relation.name.lower() in wide else ()
            yield relation.alias_or_name.lower(), every if table is None else (table,)


def _is_shadowed(relation: exp.Table, common: set[str]) -> bool:
    """True if a name is that of a CTE, outside of this one itself."""
    above = relation.find_ancestor(exp.CTE)
    name = relation.name.lower()
    return name in common and not (above is not None and above.alias.lower() == name)


def _key(field: CalendarField, sources: dict[str, tuple[SchemaTable, ...]]) -> tuple[str, str, str] | None:
    """Table, column of times and field; None where several tables could be meant."""
    tables = [
        table
        for called, named in sources.items()
        if field.table.lower() in ("", called)
        for table in named
        if table.column(field.column) is not None
    ]
    return (tables[0].name.lower(), field.column.lower(), field.name) if len(tables) == 1 else None
