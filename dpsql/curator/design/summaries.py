"""Facts about people that statements need and the catalog lacks, read from each `GROUP BY customer_id`.

    HAVING COUNT(*) >= 3     visits: {of: sales, is: count(*), type: int, lower: 0, upper: 200}

Bounds follow from what the catalog says of the columns, never from rows. What lies beyond them counts as the bound.

**Privacy**: a function of the catalog and of statements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dpsql.catalog import Catalog
from dpsql.catalog.summaries import people_table, summary_input, unused_summaries, value_spec
from dpsql.catalog.tables import ORDERED, Column, Summary
from dpsql.curator.design.questions import column_ranges, decimal_text
from dpsql.errors import CatalogError, Error
from dpsql.planner.schema import Schema, catalog_schema
from dpsql.row_expressions.aggregate import CONDITIONS, Aggregate, parse_aggregate, spelling
from dpsql.row_expressions.expression import column_names
from dpsql.sql.moments import range_of
from dpsql.sql.parse import parse
from dpsql.sql.per_person import NAMES, MissingSummary
from dpsql.sql.rewrite import split_statement

MOST_ROWS = 200
"""The upper bound of a number of rows: who has more counts as one who has so many."""
TYPICAL_ROWS = 20
"""Rows of a person whose greatest values make the upper bound of a sum, unless `max_ids` says how many count."""
MOST_CLASSES = 1 << 15
"""Classes of a sum: questions are read against them, and a view has as few as its questions need."""
MOST_PROPOSED = 32

Entry = Mapping[str, Any]


def new_summaries(catalog: Catalog, statements: Sequence[str]) -> dict[str, Entry]:
    """Summaries that would let statements be answered: name -> what stands in the catalog.

    Args:
        catalog: the catalog.
        statements: SQL.
    """
    people, entries = people_table(catalog), dict[str, Entry]()
    if people is None or people.key is None or catalog.stream is not None:
        return entries
    schema = catalog_schema(catalog)
    for text in statements:
        while len(entries) < MOST_PROPOSED and (wanted := _missing(schema, text)) is not None:
            of, is_ = wanted
            entry = _entry(catalog, of, is_)
            taken = {name.lower() for name in (*schema.tables[_people(catalog)].columns, *entries)}
            name = _name(of, is_, taken)
            extended = _with_summary(catalog, schema, of, is_, name)
            if entry is None or extended is None:
                break
            entries[name], schema = entry, extended
    return entries


def with_summaries(catalog: Catalog, entries: Mapping[str, Entry]) -> Catalog:
    """The catalog with them."""
    people = people_table(catalog)
    if people is None or not entries:
        return catalog
    more = {name: Summary.model_validate(entry) for name, entry in entries.items()}
    return _with_people(catalog, {**people.summaries, **more})


def without_unused(catalog: Catalog) -> Catalog:
    """The catalog without summaries that nothing reads."""
    while unused := unused_summaries(catalog):
        people = people_table(catalog)
        assert people is not None  # it has summaries
        catalog = _with_people(catalog, {n: s for n, s in people.summaries.items() if n not in unused})
    return catalog


def _with_people(catalog: Catalog, summaries: Mapping[str, Summary]) -> Catalog:
    name = str(catalog.privacy.unit.table)
    people = catalog.tables[name].model_copy(update={"summaries": summaries})
    return catalog.model_copy(update={"tables": {**catalog.tables, name: people}})


def _people(catalog: Catalog) -> str:
    return str(catalog.privacy.unit.table).lower()


def _missing(schema: Schema, text: str) -> tuple[str, str] | None:
    """The fact and the aggregate of the first summary that a statement lacks."""
    try:
        split_statement(parse(text, ""), schema, text)
    except MissingSummary as error:
        return error.wanted
    except Error:
        pass  # whoever reads the statement says what is wrong
    return None


def _with_summary(catalog: Catalog, schema: Schema, of: str, is_: str, name: str) -> Schema | None:
    """The schema with a summary; None where the catalog cannot say it, or the schema has it."""
    fact = schema.person_facts[of.lower()]
    try:
        spelt = spelling(parse_aggregate(is_), lambda column: summary_input(catalog, of, column).spelling)
    except CatalogError:
        return None
    if spelt in fact.summaries:
        return None
    facts = {**schema.person_facts, of.lower(): fact._replace(summaries={**fact.summaries, spelt: name})}
    people = schema.tables[_people(catalog)]
    people = replace(people, columns={**people.columns, name.lower(): name})
    return replace(schema, person_facts=facts, tables={**schema.tables, _people(catalog): people})


def _entry(catalog: Catalog, of: str, is_: str) -> Entry | None:
    """Catalog entry of a summary; None where no declared column gives its bounds."""
    try:
        call = parse_aggregate(is_)
        domain = _domain(catalog, of, call)
    except CatalogError:
        return None
    return None if domain is None else {"of": of, "is": is_, **domain}


def _domain(catalog: Catalog, of: str, call: Aggregate) -> Entry | None:
    if call.function in CONDITIONS:
        return {"type": "bool"}
    if call.function == "count":
        spec = value_spec(catalog, of, call.arguments[0]) if call.distinct else None
        few = None if spec is None or spec.ordered or not spec.listed else len(spec.listed)
        return {"type": "int", "lower": "0", "upper": str(few or MOST_ROWS), "measure": True}
    if call.function == "sum":
        return _sum(catalog, of, call)
    spec = value_spec(catalog, of, call.arguments[0])
    if call.function not in ("min", "max") or spec is None or spec.type not in ORDERED or spec.lower is None:
        return None
    return {**_kind(spec), "lower": spec.lower, "upper": spec.upper, "nullable": True}


def _sum(catalog: Catalog, of: str, call: Aggregate) -> Entry | None:
    value = call.arguments[0]
    ranges = column_ranges(catalog.tables[of])
    plain = all(not column.table for column in column_names(value))
    bounds = range_of(value.sql("duckdb"), ranges) if plain else None
    if bounds is None:
        return None
    spec = value_spec(catalog, of, value)
    kind = _kind(spec) if spec is not None else {"type": "decimal", "scale": str(bounds.scale)}
    limit = catalog.tables[of].max_ids
    rows = limit if isinstance(limit, int) else TYPICAL_ROWS
    ends = (min(Fraction(0), bounds.low * rows), max(Fraction(0), bounds.high * rows))
    lower, upper = (decimal_text(end, bounds.scale) for end in ends)
    units, digits = (ends[1] - ends[0]) * 10**bounds.scale, 0
    while units // 10**digits >= MOST_CLASSES:
        digits += 1
    width = decimal_text(Fraction(10**digits, 10**bounds.scale), bounds.scale)
    cuts = {"cuts": {"width": width}} if digits else {}
    return {**kind, "lower": lower, "upper": upper, "measure": True, **cuts}


def _kind(spec: Column) -> dict[str, str]:
    """Its type, and what belongs to it."""
    kind: dict[str, str] = {"type": spec.type}
    if spec.type == "decimal":
        kind["scale"] = str(spec.digits)
    return kind | ({"grain": spec.grain} if spec.type == "timestamp" else {})


def _name(of: str, is_: str, taken: set[str]) -> str:
    """Name of a summary by aggregate and column: visits, total_amount, least_day."""
    call = parse_aggregate(is_)
    columns = [column.name.lower() for part in call.arguments for column in column_names(part)]
    word = "_".join([NAMES.get(call.function, "value"), *columns])
    if call.function == "count" and (columns or call.condition is not None):
        word = "_".join(["kinds_of" if call.distinct else "rows_with", *(columns or [of.lower()])])
    return next(name for name in (word, *(f"{word}_{i}" for i in range(2, 99))) if name not in taken)
