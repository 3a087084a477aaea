"""Public rows as the catalog declares them: a CSV file holds texts, and `type: int` says that they are numbers.

| declared | texts that are read | becomes |
|---|---|---|
| int | `-17` | BIGINT |
| decimal | `1.50`, `1e3` | DECIMAL of the declared scale where every value fits it, else DOUBLE |
| date, timestamp | ISO 8601, a zone turned to UTC | DATE, TIMESTAMP |
| bool | `true`, `false`, in capitals or not | BOOLEAN |

`NA` and the like are NULL there, as in private columns. Other texts are an error: a public table's rows are public.

**Privacy**: public tables alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

from dpsql.axis.model import PublicTable
from dpsql.catalog.tables import Column
from dpsql.errors import SourceError

ABSENT = frozenset(("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"))
"""Texts that stand for no value: R writes NA."""
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_DIGITS = 18


def as_declared(table: PublicTable, columns: Mapping[str, Column]) -> PublicTable:
    """A table with its texts read as their declared types.

    Args:
        table: as its source holds it.
        columns: what the catalog declares.

    Raises:
        SourceError: a text is none of its type.
    """
    declared = {name.lower(): column for name, column in columns.items()}
    types, values = dict(table.types), dict(table.columns)
    for name, kind in table.types.items():
        column = declared.get(name.lower())
        if kind == "VARCHAR" and column is not None and column.type in _READERS:
            try:
                types[name], values[name] = _read(table.columns[name], column)
            except (ValueError, InvalidOperation) as error:
                raise SourceError(
                    f"{table.name}.{name}: a value is not of type {column.type}, which the catalog declares",
                    hint="write `type: string` there, or correct the file",
                ) from error
    return replace(table, types=types, columns=values)


def _read(texts: Sequence[object], column: Column) -> tuple[str, Sequence[object]]:
    kind, read = _READERS[column.type]
    trimmed = (None if text is None else str(text).strip() for text in texts)
    values = [None if text is None or text in ABSENT else read(text) for text in trimmed]
    if column.type != "decimal":
        return kind, values
    numbers = [value for value in values if isinstance(value, Decimal)]
    limit, step = Decimal(10) ** (_DIGITS - column.digits), Decimal(1).scaleb(-column.digits)
    if all(abs(number) < limit and number == number.quantize(step) for number in numbers):
        return f"DECIMAL({_DIGITS},{column.digits})", values
    return "DOUBLE", [float(value) if isinstance(value, Decimal) else None for value in values]


def _whole(text: str) -> int:
    if _WHOLE.fullmatch(text) is None:
        raise ValueError
    return int(text)


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError
    return number


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


_READERS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "int": ("BIGINT", _whole), "decimal": ("DECIMAL", _decimal), "date": ("DATE", date.fromisoformat),
    "timestamp": ("TIMESTAMP", _moment), "bool": ("BOOLEAN", _truth),
}  # fmt: skip
