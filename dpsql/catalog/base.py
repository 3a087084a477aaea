"""Base of catalog models: frozen, refusing unknown keys, with exact scalars.

Every error says what to write instead. What names data (`Label`: categories) is kept to the byte; numbers, dates,
widths and paths (`Text`) lose blanks around them. Numbers, dates and times stay text, fractions or whole **units** of
their column, so that nothing between the catalog and a leaf index is ever a float:

    int        the value itself
    decimal    value * 10**scale
    date       days since 1970-01-01
    timestamp  grains (second, minute, hour, day) since 1970-01-01 00:00:00
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Protocol

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from dpsql.errors import CatalogError


class Problem(ValueError):
    """Something wrong at a key path that lies below or beside the model that found it.

    Args:
        path: the keys that lead to the place, from the top of the catalog.
        message: what is wrong and what to write.
    """

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.path = path


@contextmanager
def at_path(*path: str) -> Iterator[None]:
    """Raise errors of the block as a `Problem` at this key path; one that has a path keeps it."""
    try:
        yield
    except CatalogError as error:
        raise Problem(path, str(error)) from None
    except ValueError as error:
        raise (error if isinstance(error, Problem) else Problem(path, str(error))) from None


def refuse(reasons: Mapping[str, bool], *path: str) -> None:
    """Refuse by the first reason that holds.

    Args:
        reasons: what is wrong and what to write instead -> whether it is so, in the order of the checks.
        path: the key path, unless pydantic knows it.

    Raises:
        ValueError: a reason holds; a `Problem` at the path, if one is given.
    """
    for reason, holds in reasons.items():
        if holds:
            raise Problem(path, reason) if path else ValueError(reason)


def nearest(word: str, known: tuple[str, ...]) -> str:
    """The hint that closes an error about an unknown name.

    Args:
        word: the name as written.
        known: the names that would have been right.

    Returns:
        ``did you mean `x`?`` where one is near, otherwise the list of what there is.

    >>> nearest("lwer", ("lower", "upper"))
    'did you mean `lower`?'
    >>> nearest("zzz", ("lower", "upper"))
    'write one of `lower`, `upper`'
    """
    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), list(folded), n=1, cutoff=0.6)
    if close:
        return f"did you mean `{folded[close[0]]}`?"
    if not known:
        return "there are none"
    return "write one of " + ", ".join(f"`{name}`" for name in known[:12])


SQUARES_OF = "squares_of_"
"""Begins the name of the declared measure that `squares(..)` in a view makes of a column."""


class MeasureName(str):
    """Name of a statistic: ``count``, ``people``, ``table.column`` or ``count(table.column)``.

    Catalogs, releases and messages hold it as this text; it is taken apart here alone.

    Attributes:
        counts_rows, counts_values: whether rows are counted, all of them or those where the column is not NULL.
        is_count: whether each row, or each unit, adds 0 or 1.
        sums_rows: whether rows are counted or summed, and so bounded, scaled and added up; people count once, however
            many rows name them.
        summed: the column or declared measure, ``table.column``; empty for ``count`` and ``people``.
        table, column: its two parts.
        squared: the measure whose squares are summed; empty where none are.

    >>> name = MeasureName("sales.amount").counted
    >>> name, name.table, name.column, name.is_count
    ('count(sales.amount)', 'sales', 'amount', True)
    """

    def __init__(self, text: str) -> None:
        # of itself, not of its argument: `str(x)` comes here with x where `x.__str__` returns a name
        values = re.fullmatch(r"count\(([^()]*)\)", self)
        self.counts_rows, self.counts_values = self == "count", values is not None
        self.sums_rows = self != "people"
        self.is_count = self.counts_rows or self.counts_values or not self.sums_rows
        self.summed: str = values[1] if values else "" if self.is_count else str(self)
        table, _, column = self.summed.rpartition(".")
        self.table, self.column = table, column
        squares = column.startswith(SQUARES_OF) and not self.is_count
        self.squared = f"{table}.{column.removeprefix(SQUARES_OF)}" if squares else ""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A text in YAML and JSON."""
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema())

    @property
    def counted(self) -> MeasureName:
        """Rows where the column is not NULL."""
        return MeasureName(f"count({self})")


COUNT, PEOPLE = COUNTS = MeasureName("count"), MeasureName("people")
"""Measures without a column; a view's size is read from the first that it has."""


class Named(Protocol):
    """A value that the catalog writes as one word."""

    @property
    def name(self) -> str:
        """The word."""


class OneOf:
    """Reads one of several words as the value that it names, and writes it as the word.

    Args:
        values: what may be written.
    """

    def __init__(self, *values: Named) -> None:
        self.values = {value.name: value for value in values}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read the word; values that programs hand in stay as they are."""
        word = core_schema.plain_serializer_function_ser_schema(lambda value: value.name)
        return core_schema.no_info_plain_validator_function(self._read, serialization=word)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"enum": list(self.values), "type": "string"}

    def _read(self, written: Any) -> Named:
        if written in self.values.values():
            return written  # type: ignore[no-any-return]
        if not isinstance(written, str):
            raise ValueError(f"expected one of {', '.join(f'`{word}`' for word in self.values)}")
        if written not in self.values:
            raise ValueError(f"`{written}` is unknown here; {nearest(written, tuple(self.values))}")
        return self.values[written]


class Model(BaseModel):
    """A frozen value; an unknown key is refused with the nearest known one."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, str_max_length=100_000, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        keys = tuple(field.alias or name for name, field in cls.model_fields.items())
        accepted = {*keys, *cls.model_fields}
        for key in values:
            if key not in accepted:
                raise ValueError(f"unknown key `{key}`; {nearest(str(key), keys)}")
        return values


def short_for(key: str, *kinds: type) -> BeforeValidator:
    """A shorter way to write a mapping: the value of its one key, of these types, alone."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, kinds) else value)


EPOCH = date(1970, 1, 1)
GRAIN_MICROSECONDS = {"second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6, "day": 86400 * 10**6}
# A unit count stays below 10**18, so sums of two of them and products by a small scale stay in int64.
LARGEST_UNITS = 10**18
_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,2})?|[+-]?\d{1,30}/\d{1,30}")


def as_label(value: Any) -> str:
    """A value of the data as the text that stands in the catalog, to the byte.

    >>> as_label(" Private")
    ' Private'
    """
    if isinstance(value, bool | float) or not isinstance(value, str | int | Decimal | Fraction | date):
        raise ValueError("write a plain value (a number in quotes if it comes from a program)")
    text = value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)
    if "\x00" in text:
        raise ValueError("a value contains the character NUL, which no engine supports")
    return text


def as_text(value: Any) -> str:
    """A number, date or path as text, without blanks around it; floats are refused, since 0.1 would not stay 1/10."""
    text = as_label(value).strip()
    if not text:
        raise ValueError("an empty value; write one or leave the key out")
    return text


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
Label = Annotated[str, PlainValidator(as_label), WithJsonSchema({"type": ["string", "number"]})]
Exact = Annotated[
    Fraction,
    PlainValidator(as_fraction),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": ["string", "number"], "examples": ["1.0", "1/3"]}),
]


def to_units(type: str, text: str, *, scale: int = 0, grain: str = "second", upper: bool = False) -> int:
    """A catalog value in whole units of its column.

    Args:
        type: int, decimal, date or timestamp.
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
    if type in ("int", "decimal"):
        scale = scale if type == "decimal" else 0
        units: Fraction = as_fraction(text) * 10**scale
        if units.denominator != 1:
            raise ValueError(
                f"`{text}` has more than {scale} digits after the point; raise `scale` or round it"
            )
        if abs(units.numerator) >= LARGEST_UNITS:
            raise ValueError(f"`{text}` is too large at scale {scale}; keep below 18 digits")
        return units.numerator
    if type == "date":
        try:
            return (date.fromisoformat(text) - EPOCH).days
        except ValueError:
            raise ValueError(f"`{text}` is not a date; write it like 2025-12-31") from None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"`{text}` is not a timestamp; write it like 2025-12-31 23:59:59") from None
    if moment.tzinfo is not None:
        raise ValueError(f"`{text}` has a time zone; write it in UTC without one")
    if upper and len(text) == 10:
        moment += timedelta(days=1, microseconds=-1)
    return int((moment - datetime(1970, 1, 1)) // timedelta(microseconds=GRAIN_MICROSECONDS[grain]))


def from_units(type: str, units: int, *, scale: int = 0, grain: str = "second") -> str:
    """A count of units as a catalog writes the value; `to_units` takes it back.

    >>> from_units("decimal", 50, scale=2), from_units("date", 2)
    ('0.50', '1970-01-03')
    """
    if type == "decimal":
        return format(Decimal(units).scaleb(-scale), "f")
    if type == "int":
        return str(units)
    step = GRAIN_MICROSECONDS["day" if type == "date" else grain]
    moment = datetime(1970, 1, 1) + units * timedelta(microseconds=step)
    return moment.date().isoformat() if type == "date" else moment.isoformat(sep=" ")


def alike_but_for_blanks(labels: Iterable[str]) -> tuple[str, str] | None:
    """Two labels that are one once blanks around them are taken off; None where there are none.

    >>> alike_but_for_blanks(["a", "b", " a"])
    ('a', ' a')
    """
    trimmed: dict[str, str] = {}
    for label in labels:
        first = trimmed.setdefault(label.strip(), label)
        if first != label:
            return first, label
    return None
