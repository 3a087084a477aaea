"""Measures that statements sum and no table declares, with the bounds that follow from the columns' own.

**Privacy**: a function of the catalog and of statements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from dpsql.answer.sql.summed import Range, Summed, range_of, same_expression, summed_expressions
from dpsql.errors import Error
from dpsql.star import Catalog
from dpsql.star.tables import Column, Measure, Table

NewMeasures = dict[str, dict[str, Measure]]
"""Table -> name -> measure."""


def new_measures(catalog: Catalog, statements: Sequence[str]) -> NewMeasures:
    """Measures that would let statements be answered, or answered with less noise.

    Args:
        catalog: the catalog.
        statements: SQL.
    """
    measures: NewMeasures = {}
    for text in statements:
        try:
            summed = list(summed_expressions(text))
        except Error:
            continue  # whoever reads the statement says what is wrong
        for expression in summed:
            for name, table in catalog.tables.items():
                ranges = {c.lower(): _range(spec) for c, spec in table.columns.items() if _is_number(spec)}
                bounds = (
                    range_of(expression.sql, ranges)
                    if not table.is_public and expression.columns <= ranges.keys()
                    else None
                )
                table_measures = {**table.measures, **measures.get(name, {})}
                if bounds is None or any(
                    same_expression(m.expr, expression.sql) for m in table_measures.values()
                ):
                    continue
                measures.setdefault(name, {})[_name(expression, table, table_measures)] = _measure(
                    expression, bounds
                )
    return measures


def with_measures(catalog: Catalog, new: NewMeasures) -> Catalog:
    """The catalog with them."""
    tables = {
        name: table.model_copy(update={"measures": {**table.measures, **new.get(name, {})}})
        for name, table in catalog.tables.items()
    }
    return catalog.model_copy(update={"tables": tables})


def _is_number(column: Column) -> bool:
    return column.type in ("int", "decimal") and column.lower is not None


def _range(column: Column) -> Range:
    low, high = column.bounds
    return Range(Fraction(low, 10**column.digits), Fraction(high, 10**column.digits), column.digits)


def _measure(expression: Summed, bounds: Range) -> Measure:
    ends = {"lower": _decimal(bounds.low, bounds.scale), "upper": _decimal(bounds.high, bounds.scale)}
    return Measure.model_validate({"expr": expression.sql, "scale": bounds.scale, **ends})


def _decimal(value: Fraction, scale: int) -> str:
    return f"{Decimal(value.numerator * 10**scale // value.denominator).scaleb(-scale):f}"


def _name(expression: Summed, table: Table, table_measures: dict[str, Measure]) -> str:
    """What the statement calls the sum, if it is a plain word that the table does not use yet."""
    word = (
        expression.name.lower()
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", expression.name)
        else "_".join(sorted(expression.columns))
    )
    taken = {name.lower() for name in (*table.columns, *table.derive, *table_measures)}
    return (
        word if word not in taken else next(f"{word}_{n}" for n in range(2, 99) if f"{word}_{n}" not in taken)
    )
