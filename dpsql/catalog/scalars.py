"""Exact scalars: a catalog's numbers, dates and times as text, as fractions and as whole units.

Every ordered value is counted in whole **units** of its column, so that nothing between the catalog and
a leaf index is ever a float:

    int        the value itself
    decimal    value * 10**scale
    date       days since 1970-01-01
    timestamp  grains (second, minute, hour, day) since 1970-01-01 00:00:00
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

EPOCH = date(1970, 1, 1)
GRAINS = ("second", "minute", "hour", "day")
GRAIN_MICROSECONDS = {"second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6, "day": 86400 * 10**6}
# A unit count stays below 10**18, so sums of two of them and products by a small scale stay in int64.
LARGEST_UNITS = 10**18
_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,2})?|[+-]?\d{1,30}/\d{1,30}")


def as_text(value: Any) -> str:
    """A scalar as the text that stands in the catalog; floats are refused, since 0.1 would not stay 1/10."""
    if isinstance(value, bool | float) or not isinstance(value, str | int | Decimal | Fraction | date):
        raise ValueError("write a plain value (a number in quotes if it comes from a program)")
    text = value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)
    if not text.strip() or "\x00" in text:
        raise ValueError("an empty value; write one or leave the key out")
    return text.strip()


def as_fraction(value: Any) -> Fraction:
    """A number as the exact fraction that its text says.

    Args:
        value: text such as ``0.1``, ``1e-6`` or ``1/3``, or an int, Decimal or Fraction.

    Returns:
        The fraction.

    Raises:
        ValueError: it is no number.

    >>> as_fraction("0.1"), as_fraction("1e-6")
    (Fraction(1, 10), Fraction(1, 1000000))
    """
    text = as_text(value)
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"`{text}` is not a number; write it like 0.5 or 1/3")
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise ValueError(f"`{text}` divides by zero") from None


Text = Annotated[str, PlainValidator(as_text), WithJsonSchema({"type": ["string", "number"]})]
Exact = Annotated[
    Fraction,
    PlainValidator(as_fraction),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": ["string", "number"], "examples": ["1.0", "1/3"]}),
]


def _decimal_units(text: str, scale: int) -> int:
    units: Fraction = as_fraction(text) * 10**scale
    if units.denominator != 1:
        raise ValueError(f"`{text}` has more than {scale} digits after the point; raise `scale` or round it")
    if abs(units.numerator) >= LARGEST_UNITS:
        raise ValueError(f"`{text}` is too large at scale {scale}; keep below 18 digits")
    return units.numerator


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"`{text}` is not a date; write it like 2025-12-31") from None


def _timestamp_units(text: str, grain: str, upper: bool) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"`{text}` is not a timestamp; write it like 2025-12-31 23:59:59") from None
    if moment.tzinfo is not None:
        raise ValueError(f"`{text}` has a time zone; write it in UTC without one")
    if upper and len(text) == 10:
        moment += timedelta(days=1, microseconds=-1)
    return int((moment - datetime(1970, 1, 1)) // timedelta(microseconds=GRAIN_MICROSECONDS[grain]))


def to_units(kind: str, text: str, *, scale: int = 0, grain: str = "second", upper: bool = False) -> int:
    """A catalog value in whole units of its column.

    Args:
        kind: int, decimal, date or timestamp.
        text: the value as written.
        scale: digits after the point of a decimal.
        grain: the unit of a timestamp.
        upper: whether this is an upper bound; a timestamp without a time of day then means the whole day.

    Returns:
        The count of units.

    Raises:
        ValueError: not a value of that type, or finer than its scale.

    >>> to_units("decimal", "0.50", scale=2), to_units("date", "1970-01-03")
    (50, 2)
    """
    if kind in ("int", "decimal"):
        return _decimal_units(text, scale if kind == "decimal" else 0)
    if kind == "date":
        return (_day(text) - EPOCH).days
    return _timestamp_units(text, grain, upper)


def from_units(kind: str, units: int, *, scale: int = 0, grain: str = "second") -> int | Decimal | date:
    """The value that a count of units stands for; the inverse of `to_units`.

    >>> from_units("decimal", 50, scale=2), from_units("date", 2)
    (Decimal('0.50'), datetime.date(1970, 1, 3))
    """
    if kind == "int":
        return units
    if kind == "decimal":
        return Decimal(units).scaleb(-scale)
    if kind == "date":
        return EPOCH + timedelta(days=units)
    return datetime(1970, 1, 1) + timedelta(microseconds=units * GRAIN_MICROSECONDS[grain])
