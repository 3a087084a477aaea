"""The same value in another type, row by row and NULL where there is none; and which columns hold which table's keys.

**Privacy**: functions of types and the catalog; an expression is a total function of one row.
"""

from __future__ import annotations

from dpsql.engines.kinds import decimal_digits, family
from dpsql.star import Catalog

_LARGEST = 1 << 53
_WHOLE = "[+-]?[0-9]+([.]0*)?"
_PLAIN = "[+-]?[0-9]+([.][0-9]*)?"


def exact_cast(value: str, own: str, target: str) -> str | None:
    """SQL for the same value in another type, NULL on rows where there is none.

    Args:
        value: SQL of a column.
        own: its DuckDB type.
        target: the DuckDB type wanted.

    Returns:
        The expression, or None where no value of one type stands for one of the other.

    >>> exact_cast("id", "UUID", "BIGINT") is None, exact_cast("id", "BIGINT", "BIGINT")
    (True, 'id')
    """
    here, there = family(own), family(target)
    if own == target and here != "float":
        return value
    text = f"trim(CAST({value} AS VARCHAR), E' \\t\\r\\n')"
    if here == "float" and there in ("integer", "decimal"):
        # by way of an integer: DuckDB multiplies a float by 10^scale in floating point
        whole = f"TRY_CAST(TRY_CAST({value} AS HUGEINT) AS {target})"
        return f"CASE WHEN {_small(value)} AND {value} = trunc({value}) THEN {whole} END"
    if there == "integer" and here == "integer":
        return f"TRY_CAST({value} AS {target})"
    if there == "integer" and here in ("decimal", "text"):
        return f"CASE WHEN regexp_full_match({text}, '{_WHOLE}') THEN TRY_CAST({text} AS {target}) END"
    if there == "decimal" and here in ("integer", "decimal", "text"):
        digits = decimal_digits(target)
        fits = f"[+-]?[0-9]+([.][0-9]{{0,{digits.places if digits else 0}}}0*)?"
        return f"CASE WHEN regexp_full_match({text}, '{fits}') THEN TRY_CAST({text} AS {target}) END"
    if there == "float" and here in ("integer", "decimal", "float"):
        whole = f" AND {value} = trunc({value})" if here == "decimal" else ""
        # adding zero makes -0.0 and 0.0 one value
        return f"CASE WHEN {_small(value)}{whole} THEN CAST({value} AS {target}) + 0 END"
    if there == "float" and here == "text":
        number = f"CASE WHEN regexp_full_match({text}, '{_PLAIN}') THEN TRY_CAST({text} AS {target}) END"
        return f"CASE WHEN {_small(number)} THEN {number} + 0 END"
    if there == "text" and here == "text":
        return f"CAST({value} AS {target})"
    if there == "time" and here == "time":
        return f"TRY_CAST({value} AS {target})"
    return f"TRY_CAST({text} AS {target})" if here == "text" and there not in ("text", "BOOLEAN") else None


def _small(value: str) -> str:
    """Whether a number is finite and so small that no float rounds it to a whole number (NaN is above all)."""
    return f"({value} > -{_LARGEST} AND {value} < {_LARGEST})"


def roots(catalog: Catalog) -> dict[tuple[str, str], str]:
    """(table, column in lower case) -> the table whose key it holds, for every key and foreign key.

    A key that is itself a foreign key belongs to the group of the key that it names.
    """
    named = {(name, key_of(catalog, name)): name for name, table in catalog.tables.items() if table.key}
    for name, table in catalog.tables.items():
        for column in table.foreign_keys:
            named[name, column.lower()] = _root(catalog, name, column)
    return named


def _root(catalog: Catalog, table: str, column: str) -> str:
    """The table at the end of a chain of keys that are foreign keys too."""
    for _ in catalog.tables:
        foreign = {
            name.lower(): entry.references for name, entry in catalog.tables[table].foreign_keys.items()
        }
        if column.lower() not in foreign:
            return table
        table = foreign[column.lower()]
        column = key_of(catalog, table)
    return table


def key_of(catalog: Catalog, table: str) -> str:
    """The key column of a table, in lower case."""
    return str(catalog.tables[table].key).lower()
