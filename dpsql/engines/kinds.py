"""Types of columns, named as DuckDB names them whatever the engine: what kind of values each holds.

**Privacy**: of schemas and catalogs; no row is read.
"""

from __future__ import annotations

import re
from typing import NamedTuple

INTEGERS = frozenset(
    (
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "HUGEINT",
        "UTINYINT",
        "USMALLINT",
        "UINTEGER",
        "UBIGINT",
        "UHUGEINT",
    )
)
BITS = {
    "TINYINT": 8,
    "UTINYINT": 9,
    "SMALLINT": 16,
    "USMALLINT": 17,
    "INTEGER": 32,
    "UINTEGER": 33,
    "BIGINT": 64,
}
"""Bits of the whole numbers that fit into a BIGINT, their sign included."""

FLOATS = frozenset(("FLOAT", "DOUBLE"))
TIMES = frozenset(
    ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE")
)
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


class Digits(NamedTuple):
    """Of a decimal type: all digits, and those behind the point."""

    whole: int
    places: int


def decimal_digits(kind: str | None) -> Digits | None:
    """The digits of a decimal type; None for any other.

    >>> decimal_digits("DECIMAL(12,2)")
    Digits(whole=12, places=2)
    """
    found = _DECIMAL.fullmatch(kind or "")
    return Digits(int(found[1]), int(found[2])) if found else None


def family(kind: str) -> str:
    """What kind of values a type holds: integer, decimal, float, text, time, or the type itself.

    >>> family("UBIGINT"), family("DECIMAL(9,0)"), family("DECIMAL(9,2)"), family("ENUM('a')"), family("UUID")
    ('integer', 'integer', 'decimal', 'text', 'UUID')
    """
    digits = decimal_digits(kind)
    if kind in INTEGERS or (digits and digits.places == 0):
        return "integer"
    if digits:
        return "decimal"
    if kind in FLOATS:
        return "float"
    if kind == "VARCHAR" or kind.startswith("ENUM("):
        return "text"
    return "time" if kind in TIMES else kind


def widest(kind: str) -> str:
    """The type that holds every value of a type's family (decimals: of its scale).

    >>> widest("SMALLINT"), widest("DECIMAL(9,2)"), widest("FLOAT"), widest("DATE"), widest("UUID")
    ('HUGEINT', 'DECIMAL(38,2)', 'DOUBLE', 'TIMESTAMP', 'UUID')
    """
    whole = {"integer": "HUGEINT", "float": "DOUBLE", "text": "VARCHAR", "time": "TIMESTAMP"}
    digits = decimal_digits(kind)
    return whole.get(family(kind)) or (f"DECIMAL(38,{digits.places})" if digits else kind)
