"""The words in which engines differ: about fifteen small functions, one class an engine.

The template (`dpsql.engines.template`) is one text for all engines; what is not spelt alike everywhere is asked of a
`Dialect`. Rewriting DuckDB's SQL by a parser gets about as many constructs wrong, in silence: `is_nan` where there
is none, integer division in NUMERIC, 128-bit integers that do not exist.

| here | what goes wrong otherwise |
|---|---|
| `is_nan` | NaN equals NaN in most engines, so `x <> x` finds nothing; some have no function for it |
| `quotient` | a cast of a float quotient rounds: 2^20 * 2 / 3 becomes one too many, and a bound breaks |
| `nearest` | `round(2.5)` is 2 in one engine and 3 in another; the floor of x + 0.5 is 3 in all |
| `date`, `instant` | literals without a zone mean the session's zone |
| `text` | a collation may take two texts for one |
| `digest` | hashes differ; MD5 of a text is the same everywhere |
| `materialised` | a common table that is read twice is two scans of rows that may have moved |

Types are named as DuckDB names them (`BIGINT`, `DECIMAL(12,2)`, `TIMESTAMP WITH TIME ZONE`); an engine says which of
its own types are which.

**Privacy**: a dialect sees expressions, never rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar, Protocol

from dpsql.star.sql import identifier, literal

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Dialect(Protocol):
    """How one engine spells what engines spell differently."""

    @property
    def wide(self) -> str:
        """A type for integers up to 2^100."""

    @property
    def double(self) -> str:
        """The type of 64-bit floats."""

    @property
    def reads_any(self) -> bool:
        """Whether values of any type may be read by TRY_CAST, as DuckDB spells it; others have typed columns alone."""

    @property
    def materialised(self) -> str | None:
        """What stands between AS and a common table that is computed once; None where it may be computed again."""

    def identifier(self, name: str) -> str:
        """A quoted name."""

    def literal(self, text: str) -> str:
        """A quoted text."""

    def is_nan(self, value: str) -> str:
        """Whether a float is NaN."""

    def quotient(self, dividend: str, divisor: str) -> str:
        """The floor of a quotient of BIGINTs, the first at least 0, the second above."""

    def remainder(self, dividend: str, divisor: str) -> str:
        """What is left of a BIGINT; the sign is the dividend's."""

    def nearest(self, value: str) -> str:
        """The floor of value + 0.5 as a BIGINT; a float or a decimal below 2^52."""

    def date(self, days: int) -> str:
        """The literal of a date, so many days after 1970-01-01."""

    def instant(self, microseconds: int, kind: str) -> str:
        """The literal of a TIMESTAMP, or of a TIMESTAMP WITH TIME ZONE, after 1970-01-01 00:00 UTC."""

    def days(self, value: str) -> str:
        """A DATE as days since 1970-01-01, a BIGINT."""

    def microseconds(self, value: str) -> str:
        """A TIMESTAMP, or one with a zone, as microseconds since 1970-01-01 00:00 UTC, a BIGINT."""

    def months(self, value: str) -> str:
        """The months of a DATE, or of a TIMESTAMP, since year 0: 12 year + month - 1, a whole number."""

    def position(self, value: str, texts: Sequence[str]) -> str:
        """Where a value stands among texts, from 0; NULL where it is none of them. Texts are compared byte by byte."""

    def text(self, value: str) -> str:
        """A value as a text that is compared byte by byte."""

    def digest(self, text: str) -> str:
        """The first 28 bits of the MD5 of a text, a BIGINT."""

    def total(self, value: str, wide: bool) -> str:
        """The sum of a BIGINT expression; `wide` where 64 bits may be too few."""


class DuckDialect:
    """DuckDB's words."""

    wide: ClassVar[str] = "HUGEINT"
    double: ClassVar[str] = "DOUBLE"
    reads_any: ClassVar[bool] = True
    materialised: ClassVar[str | None] = "MATERIALIZED"

    def identifier(self, name: str) -> str:
        """See `Dialect`."""
        return identifier(name)

    def literal(self, text: str) -> str:
        """See `Dialect`."""
        return literal(text)

    def is_nan(self, value: str) -> str:
        """See `Dialect`."""
        return f"isnan({value})"

    def quotient(self, dividend: str, divisor: str) -> str:
        """See `Dialect`."""
        return f"({dividend}) // ({divisor})"

    def remainder(self, dividend: str, divisor: str) -> str:
        """See `Dialect`."""
        return f"({dividend}) % ({divisor})"

    def nearest(self, value: str) -> str:
        """See `Dialect`."""
        return f"CAST(floor({value} + 0.5) AS BIGINT)"

    def date(self, days: int) -> str:
        """See `Dialect`."""
        return f"DATE '{day(days).isoformat()}'"

    def instant(self, microseconds: int, kind: str) -> str:
        """See `Dialect`."""
        zone = "+00" if kind == "TIMESTAMP WITH TIME ZONE" else ""
        return f"CAST('{moment(microseconds)}{zone}' AS {kind})"

    def days(self, value: str) -> str:
        """See `Dialect`."""
        return f"date_diff('day', DATE '1970-01-01', {value})"

    def microseconds(self, value: str) -> str:
        """See `Dialect`."""
        return f"epoch_us({value})"

    def months(self, value: str) -> str:
        """See `Dialect`."""
        return f"year({value}) * 12 + month({value}) - 1"

    def position(self, value: str, texts: Sequence[str]) -> str:
        """See `Dialect`. A function of one column runs once for each value of a dictionary; CASE runs once a row."""
        entries = ", ".join(f"{literal(text)}: {i}" for i, text in enumerate(texts))
        return f"map {{{entries}}}[{self.text(value)}]"

    def text(self, value: str) -> str:
        """See `Dialect`."""
        return f"CAST({value} AS VARCHAR)"

    def digest(self, text: str) -> str:
        """See `Dialect`."""
        return f"CAST('0x' || substr(md5({text}), 1, 7) AS BIGINT)"

    def total(self, value: str, wide: bool) -> str:
        """See `Dialect`. DuckDB sums whole numbers of any width as HUGEINT."""
        return f"sum({value})"


DUCK = DuckDialect()


def day(days: int) -> date:
    """A date by its number.

    >>> day(365)
    datetime.date(1971, 1, 1)
    """
    return (EPOCH + timedelta(days=days)).date()


def moment(microseconds: int) -> str:
    """An instant in UTC as SQL writes it, without a zone.

    >>> moment(1_500_000)
    '1970-01-01 00:00:01.500000'
    """
    instant = EPOCH + timedelta(microseconds=microseconds)
    # isoformat: strftime writes the year 1 as `1`, which PostgreSQL takes for 2001
    return instant.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
