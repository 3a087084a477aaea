"""Facts about people (`summaries` of the people's table): what their names mean, and what may be written.

    visits: {of: sales, is: count(*), type: int, lower: 0, upper: 100}

A summary reads columns of its fact, columns of public tables behind that fact's foreign keys, and summaries written
above it, by their names. Names of summaries mean exact values, before any bound.

**Privacy**: each is a symmetric function of the joined rows of its own person, of public tables and of summaries of the
same person (docs/privacy/people.md). No GROUP BY is ever written: rows are grouped by the unit's key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

from dpsql.catalog import graph
from dpsql.catalog.base import Problem, at_path, nearest, refuse
from dpsql.catalog.columns import NUMERIC, ORDERED, Column
from dpsql.catalog.model import CatalogFields, View
from dpsql.catalog.tables import Summary, Table
from dpsql.errors import CatalogError
from dpsql.row_expressions.aggregate import CONDITIONS, Aggregate, parse_aggregate, spelling
from dpsql.row_expressions.expression import ColumnName, Node, column_name, column_names, row_expression

DEEPEST = 4
"""Stages of summaries over summaries."""


class SummaryInput(NamedTuple):
    """Meaning of a name in `is`.

    Args:
        path: foreign keys from the fact to the public table that holds the column; () of the fact itself.
        column: the column, or the summary.
        spec: what the catalog declares of it; None where it is derived and not declared.
        person: whether it is a summary, one value of the person.
    """

    path: graph.KeyPath
    column: str
    spec: Column | None
    person: bool = False

    @property
    def spelling(self) -> str:
        """One text for every way to write it."""
        return ".".join((*self.path, self.column)).lower()


def people_table(catalog: CatalogFields) -> Table | None:
    """The table that `privacy.unit` names; None where each row is a unit."""
    name = catalog.privacy.unit.table
    return None if name is None else catalog.tables.get(name)


def summaries_of(catalog: CatalogFields) -> Mapping[str, Summary]:
    """All facts about people, in the catalog's order."""
    table = people_table(catalog)
    return {} if table is None else table.summaries


def summary_input(catalog: CatalogFields, of: str, column: ColumnName) -> SummaryInput:
    """Meaning of a column in `is`, seen from a fact.

    Args:
        catalog: any catalog.
        of: the fact.
        column: as it is written: a column of the fact, `public_table.column`, or a summary.

    Raises:
        CatalogError: nothing, a private table's column, or the person's key.
    """
    name = column.name
    if column.table:
        path = graph.locate(catalog, of, (column.table,))
        tables = graph.reachable(catalog, of)
        if any(not catalog.tables[tables[path[: hop + 1]]].is_public for hop in range(len(path))):
            raise CatalogError(
                f"`{column.table}.{name}` is a column of a private table",
                hint=f"use columns of `{of}` and of public tables behind its foreign keys",
            )
        if path:
            # whatever a public table has may be read; its rows are nobody's
            return SummaryInput(path, name, _declared(catalog.tables[tables[path]].columns, name))
    fact, people = catalog.tables[of], summaries_of(catalog)
    spec = _declared(fact.columns, name)
    if name.lower() == graph.own_path(catalog, of)[-1].lower():
        raise CatalogError(
            f"`{name}` identifies the person, and one person has one", hint="count(*) counts her rows"
        )
    if spec is not None or name.lower() in {derived.lower() for derived in fact.derive}:
        return SummaryInput((), name, spec)
    if not column.table and (summary := _declared(people, name)) is not None:
        return SummaryInput((), name, summary, person=True)
    raise CatalogError(
        f"`{name}` is neither a declared column of `{of}` nor a summary",
        hint=nearest(name, (*fact.columns, *fact.derive, *people)),
    )


def _declared(columns: Mapping[str, Column], name: str) -> Column | None:
    return next((spec for column, spec in columns.items() if column.lower() == name.lower()), None)


def summary_inputs(catalog: CatalogFields, summary: Summary) -> list[SummaryInput]:
    """Everything that a summary reads, each once."""
    columns = [column for part in parse_aggregate(summary.is_).parts for column in column_names(part)]
    return list(dict.fromkeys(summary_input(catalog, summary.of, column) for column in columns))


def stages(catalog: CatalogFields, last: str = "") -> dict[str, int]:
    """Stage of each summary: 1 if it reads no other, else one above those that it reads.

    Args:
        catalog: any catalog.
        last: where to stop; all of them unless given.
    """
    names = list(summaries_of(catalog))
    depths: dict[str, int] = {}
    for name in names[: names.index(last) + 1] if last else names:
        summary = summaries_of(catalog)[name]
        read = [each.column.lower() for each in summary_inputs(catalog, summary) if each.person]
        depths[name.lower()] = 1 + max((depths.get(inner, 0) for inner in read), default=0)
    return {name: depths[name.lower()] for name in names if name.lower() in depths}


def is_never_null(summary: Summary) -> bool:
    """True if every person has a value, those without a row too."""
    return parse_aggregate(summary.is_).grows


def summary_spelling(catalog: CatalogFields, summary: Summary) -> str:
    """One text for all spellings of what a summary is; see `dpsql.row_expressions.aggregate`."""
    return spelling(
        parse_aggregate(summary.is_), lambda column: summary_input(catalog, summary.of, column).spelling
    )


def tables_read(catalog: CatalogFields) -> dict[str, None]:
    """The facts of all summaries, tables on their ways to the people's table, and public tables that they look up."""
    names: dict[str, None] = {}
    for summary in summaries_of(catalog).values():
        tables = graph.reachable(catalog, summary.of)
        owner = graph.unit_path(catalog, summary.of)
        ways = [each.path for each in summary_inputs(catalog, summary)]
        ways = [() if owner is None else owner.path, *ways]
        names |= {tables[way[:hop]]: None for way in ways for hop in range(len(way) + 1)}
    return names


def check_people(catalog: CatalogFields) -> None:
    """Refuse a table of people made of rows that are not each person's own, or that do not lie together.

    **Privacy**: a row of it is a function of one person's rows alone, as section 2 of docs/privacy.md needs.
    """
    for name, table in catalog.tables.items():
        of, key, path = table.people_of, str(table.key), ("tables", name, "people_of")
        if of is None:
            continue
        rows, source = catalog.tables[of], catalog.source
        refuse({
            f"its rows are the people; write `unit: {name}.{key}`": catalog.privacy.unit.table != name,
            f"`{of}` is public; its rows must be private": rows.is_public,
            f"`{of}` is made of rows itself; name the table that has them": rows.people_of is not None,
            f"`{key}` is derived; the key must be a column of the source": key in {*table.derive, *rows.derive},
            "a stream's batches make no people, since a person returns; write a table with one row a person":
                catalog.stream is not None,
            "people who report for themselves are no rows here; leave out `collection`, or `people_of`":
                catalog.collection is not None,
            "on a server, make a view with one row a person and vouch for it by `trusted: true`":
                source is not None and source.kind.is_server,
            "devices report one value a person; leave out `reported`, or `people_of`":
                any(column.reported is not None for column in table.written.values()),
        }, *path)  # fmt: skip
        with at_path("tables", of):
            owner = graph.unit_path(catalog, of)
        if owner is None or (owner.path, owner.column) != ((), key):
            reason = f"rows of `{of}` must belong to `{key}`; write `unit_path: [{key}]` there"
            raise Problem(("tables", of, "foreign_keys"), reason)


def check_summaries(catalog: CatalogFields) -> None:
    """Refuse summaries that are no exact function of their own person's rows.

    Args:
        catalog: a catalog whose tables and unit are valid one by one.

    Raises:
        Problem: at the key.
    """
    unit = catalog.privacy.unit
    for table_name, table in catalog.tables.items():
        if not table.summaries:
            continue
        path = ("tables", table_name, "summaries")
        reasons = {
            "under `unit: row` one row more would move a person whom a view counts; write `unit: <table>.<key>`, or "
            "remove `summaries`": unit.table is None,
            "summaries are facts about people, and those of baskets or other tables on the way are not made; write "
            f"them under tables.{unit.table}": table_name != unit.table,
            "a person's row would change with each batch, and a stream counts a row once; columns as of a batch "
            "are not made: remove `stream`, and publish anew by `releases: <number>`": catalog.stream is not None,
            "nobody holds the rows of people who report for themselves; remove `summaries`":
                catalog.collection is not None and catalog.source is None,
        }  # fmt: skip
        refuse(reasons, *path)
        named = {
            name.lower() for name in (*table.written, *table.derive, *table.measures, *table.foreign_keys)
        }
        for name in table.summaries:
            if name.lower() in named | {str(table.key).lower()}:
                raise Problem((*path, name), f"`{name}` is a column already; rename the summary")
        for name, summary in table.summaries.items():
            try:
                _check_summary(catalog, table, name, summary)
            except CatalogError as error:
                raise Problem((*path, name, "is"), str(error)) from None
            except ValueError as error:
                raise (error if isinstance(error, Problem) else Problem((*path, name), str(error))) from None


def _check_summary(catalog: CatalogFields, table: Table, name: str, summary: Summary) -> None:
    """One summary: its fact, what it reads, its type."""
    fact = catalog.tables.get(summary.of)
    path = ("tables", str(catalog.privacy.unit.table), "summaries", name)
    if fact is None or not fact.role.counted:
        facts = tuple(each for each, spec in catalog.tables.items() if spec.role.counted)
        raise Problem((*path, "of"), f"`{summary.of}` is not a fact; {nearest(summary.of, facts)}")
    if any(spec.reported is not None for spec in fact.columns.values()):
        reported = {column for column, spec in fact.columns.items() if spec.reported is not None}
        used = {column.name for part in parse_aggregate(summary.is_).parts for column in column_names(part)}
        if reported & used:
            raise Problem((*path, "is"), f"`{min(reported & used)}` is known to devices alone; leave it out")
    with at_path(*path, "of"):
        graph.unit_path(catalog, summary.of)
    above = list(table.summaries)[: list(table.summaries).index(name)]
    for each in summary_inputs(catalog, summary):
        if each.person and each.column.lower() not in {earlier.lower() for earlier in above}:
            raise CatalogError(f"`{each.column}` is not written above it", hint="move it up, or leave it out")
    if stages(catalog, name)[name] > DEEPEST:
        raise CatalogError(
            f"it depends on more than {DEEPEST} stages of summaries", hint="read columns instead"
        )
    _check_type(catalog, summary, parse_aggregate(summary.is_))
    nearest_counts = summary.has_domain and summary.out_of_domain.nearest
    if nearest_counts and not (summary.nullable or is_never_null(summary)):
        raise Problem(path, f"`{name}` is NULL for people without rows; write `nullable: true`")


def _check_type(catalog: CatalogFields, summary: Summary, call: Aggregate) -> None:
    """The declared type is that of the value, as far as declared columns say."""
    wanted = {"count": ("int",), "sum": ("int", "decimal"), "bool_or": ("bool",), "bool_and": ("bool",)}
    wanted |= dict.fromkeys(("min", "max", "nth"), ORDERED)
    if call.function in wanted and summary.type not in wanted[call.function]:
        raise CatalogError(
            f"{call.function} is not of type {summary.type}",
            hint=f"write type: {' or '.join(wanted[call.function])}",
        )
    if call.function in CONDITIONS:
        return
    if call.function in ("arg_min", "arg_max"):
        by = value_spec(catalog, summary.of, call.arguments[1])
        if by is None or not by.ordered:
            raise CatalogError(
                "the column that orders rows is not a declared number or time",
                hint=f"declare it in tables.{summary.of}",
            )
    if call.function == "count" and not call.distinct:
        return
    value = call.arguments[0]
    spec = value_spec(catalog, summary.of, value)
    if call.function in ("count", "mode") and spec is None:
        raise CatalogError(
            f"{call.function} compares values, and the type of these is not declared",
            hint=f"name a column that tables.{summary.of} declares, a derived one for instance",
        )
    wrong = spec is not None and any(
        getattr(spec, k) != getattr(summary, k) for k in ("type", "digits", "grain")
    )
    if spec is not None and call.function != "count" and wrong:
        said = f"type {spec.type}" + (f", scale: {spec.digits}" if spec.type == "decimal" else "")
        said += f", grain: {spec.grain}" if spec.type == "timestamp" else ""
        raise CatalogError(f"the values are of {said}", hint=f"write {said.replace('type ', 'type: ', 1)}")


def value_spec(catalog: CatalogFields, of: str, node: Node) -> Column | None:
    """Declaration of a value; None unless it is a declared column alone."""
    column = column_name(node)
    return None if column is None else summary_input(catalog, of, column).spec


def check_summary_uses(catalog: CatalogFields) -> None:
    """Refuse summaries that nothing uses, and those that count rows as axes of views of rows.

    Args:
        catalog: a catalog whose summaries and views are valid one by one.

    Raises:
        Problem: at the summary or the view.
    """
    table = people_table(catalog)
    if table is None:
        return
    for name, view in catalog.views.items():
        if view.of != catalog.privacy.unit.table:
            _check_fact_view(catalog, table, name, view)
    for name in unused_summaries(catalog):
        raise Problem(
            ("tables", str(catalog.privacy.unit.table), "summaries", name),
            "nothing uses it; name it in a view, in `derive` or in another summary, or remove it",
        )


def unused_summaries(catalog: CatalogFields) -> list[str]:
    """Summaries that no view, derived column, measure or other summary reads."""
    table = people_table(catalog)
    if table is None:
        return []
    inputs = [each for summary in table.summaries.values() for each in summary_inputs(catalog, summary)]
    used = {each.column.lower() for each in inputs if each.person}
    for text in (*table.derive.values(), *(measure.expr for measure in table.measures.values())):
        used |= {column.lower() for column in row_expression(text).columns}
    for view in catalog.views.values():
        used |= {column.lower() for column in _columns_used(catalog, view)}
    return [name for name in table.summaries if name.lower() not in used]


def counts_for(summary: Summary) -> str:
    """Bound of one person's contribution to its sums; empty where no bound is the nearest one."""
    if not summary.out_of_domain.nearest or summary.lower is None or summary.upper is None:
        return ""
    high = f"{Decimal(summary.upper):,}" if summary.type in NUMERIC else summary.upper
    return ("" if summary.lower == "0" else f"at least {summary.lower} and ") + f"at most {high}"


def summed_words(catalog: CatalogFields) -> Iterator[str]:
    """Bound of one person's contribution to each summary that a view sums."""
    unit, views = catalog.privacy.unit.table, catalog.views.values()
    summed = {m.name.column for view in views if view.of == unit for m in graph.view_measures(catalog, view)}
    for name, summary in summaries_of(catalog).items():
        if name in summed and counts_for(summary):
            yield f"{unit}.{name}: a row of {unit} counts for {counts_for(summary)} in its sums and averages"


def _columns_used(catalog: CatalogFields, view: View) -> Iterator[str]:
    unit = catalog.privacy.unit.table
    for axis in graph.view_axes(catalog, view):
        if axis.table == unit and axis.column is not None:
            yield axis.column
    if view.of == unit:
        yield from (measure.name.column for measure in graph.view_measures(catalog, view))


def _check_fact_view(catalog: CatalogFields, table: Table, name: str, view: View) -> None:
    """Groups by a number of rows differ exactly by what bounding takes, so that no error bar would hold."""
    for axis in graph.view_axes(catalog, view):
        if axis.table != catalog.privacy.unit.table or axis.column is None:
            continue
        if counts_rows(table, axis.column) and any(measure.sums_rows for measure in view.measures):
            raise Problem(
                ("views", name, "axes"),
                f"`{axis.column}` follows from how many rows a person has, and `max_ids` takes rows of those who have "
                f"many; make it an axis of a view of `{axis.table}`",
            )


def counts_rows(table: Table, column: str) -> bool:
    """True if a column of the people's table is, or stands on, a summary that counts or sums rows."""
    summary = _declared(table.summaries, column)
    if isinstance(summary, Summary) and is_never_null(summary):
        return True
    text = next((text for name, text in table.derive.items() if name.lower() == column.lower()), None)
    return text is not None and any(counts_rows(table, inner) for inner in row_expression(text).columns)
