"""PEP 249's type objects and constructors."""

from __future__ import annotations

import datetime
import time


class TypeObject:
    """A type code of `cursor.description`; equal to the DuckDB type names that it stands for.

    >>> NUMBER == "BIGINT", STRING == "BIGINT"
    (True, False)
    """

    def __init__(self, name: str, *kinds: str) -> None:
        self.name = name
        self.kinds = frozenset(kinds)

    def __eq__(self, other: object) -> bool:
        """Same object, or a type name that this object stands for."""
        return other is self or (isinstance(other, str) and other.split("(")[0].upper() in self.kinds)

    def __hash__(self) -> int:
        """By name."""
        return hash(self.name)

    def __repr__(self) -> str:
        """The name."""
        return self.name


STRING = TypeObject("STRING", "VARCHAR", "CHAR", "TEXT")
BINARY = TypeObject("BINARY", "BLOB", "BYTEA")
NUMBER = TypeObject(
    "NUMBER",
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UBIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL",
    "BOOLEAN",
)
DATETIME = TypeObject("DATETIME", "DATE", "TIME", "TIMESTAMP")
ROWID = TypeObject("ROWID", "ROWID")

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:  # noqa: N802 - PEP 249 fixes the name
    """The local date of seconds since the epoch."""
    return Date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> datetime.time:  # noqa: N802 - PEP 249 fixes the name
    """The local time of day of seconds since the epoch."""
    return Time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:  # noqa: N802 - PEP 249 fixes the name
    """The local time of seconds since the epoch."""
    return Timestamp(*time.localtime(ticks)[:6])


def type_of(kind: str) -> TypeObject:
    """The type object of a DuckDB type; STRING for types that have none of their own.

    >>> type_of("DECIMAL(9,2)"), type_of("TIMESTAMP WITH TIME ZONE")
    (NUMBER, DATETIME)
    """
    base = kind.upper().split("(")[0].split(" ")[0].removesuffix("_NS").removesuffix("_MS")
    return next((each for each in (NUMBER, DATETIME, BINARY) if each == base), STRING)
