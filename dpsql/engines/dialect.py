"""The words in which engines differ: fewer than twenty small functions, one table of them an engine.

The template (`dpsql.engines.counting`) is one text for all engines; what is not spelt alike everywhere is asked of a
`Dialect`. Rewriting DuckDB's SQL by a parser gets about as many constructs wrong, in silence: `is_nan` where there
is none, integer division in NUMERIC, 128-bit integers that do not exist.

| here | what goes wrong otherwise |
|---|---|
| `is_nan` | NaN equals NaN in most engines, so `x <> x` finds nothing; some have no function for it |
| `quotient` | a cast of a float quotient rounds: 2^20 * 2 / 3 becomes one too many, and a bound breaks |
| `wide_quotient` | quotients of wide numbers are decimals with places, or a BIGINT that overflows |
| `nearest` | `round(2.5)` is 2 in one engine and 3 in another; the floor of x + 0.5 is 3 in all |
| `date`, `instant` | literals without a zone mean the session's zone |
| `text` | a collation may take two texts for one |
| `number`, `hex`, `sha256` | hashes differ; MD5 and SHA-256 are the same everywhere, in hex digits |
| `materialised` | a common table that is read twice is two scans of rows that may have moved |

Types are named as DuckDB names them (`BIGINT`, `DECIMAL(12,2)`, `TIMESTAMP WITH TIME ZONE`); an engine says which of
its own types are which.

**Privacy**: a dialect sees expressions, never rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from dpsql.row_expressions import identifier, literal
from dpsql.row_expressions.typed import Arithmetic, tried

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def searched(text: Callable[[str], str], quoted: Callable[[str], str]) -> Callable[[str, Sequence[str]], str]:
    """Position of a value among texts, by a CASE.

    Args:
        text: a value as a text that is compared byte by byte.
        quoted: a literal.
    """

    def position(value: str, texts: Sequence[str]) -> str:
        whens = " ".join(f"WHEN {quoted(candidate)} THEN {i}" for i, candidate in enumerate(texts))
        return f"CASE {text(value)} {whens} END"

    return position


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """SQL dialect of one engine, where engines differ.

    Args:
        wide: a type for integers up to 2^100.
        double: the type of 64-bit floats.
        reads_any: whether values of any type may be read by TRY_CAST, as DuckDB spells it; others have typed
            columns alone.
        materialised: what stands between AS and a common table that is computed once; None where it may be
            computed again.
        is_nan: whether a float is NaN.
        quotient: the floor of a quotient of BIGINTs, the first at least 0, the second above.
        wide_quotient: the floor of a quotient of the wide type, the first from 0 to 2^126, the second from 1 to 2^86,
            the quotient below 2^100.
        instant: the literal of a TIMESTAMP, or of a TIMESTAMP WITH TIME ZONE, after 1970-01-01 00:00 UTC.
        days: a DATE as days since 1970-01-01, a BIGINT.
        microseconds: a TIMESTAMP, or one with a zone, as microseconds since 1970-01-01 00:00 UTC, a BIGINT.
        position: where a value stands among texts, from 0; NULL where it is none of them. Texts are compared
            byte by byte.
        text: a value as a text that is compared byte by byte.
        octets: how many bytes of UTF-8 a text has.
        without: a text without some characters.
        number: a BIGINT of at most 14 hex digits, a text.
        hex: bytes as a text of hex digits in lower case, compared byte by byte.
        sha256: hex digits in lower case of a prefix, itself in hex digits, and the UTF-8 bytes of a text.
        chance: a number in [0, 1) that the engine draws for each row; it protects nobody.
        exact: a sum, difference or product of two numbers, NULL beyond its type.
        total: the sum of a BIGINT expression; `wide` where 64 bits may be too few.
        smallest: the n-th smallest value of a group, equal values counted each, NULL where there are fewer; None where
            a window must rank them.
        identifier: a quoted name; from here on as most engines spell it, unless an engine says otherwise.
        literal: a quoted text.
        md5: hex digits in lower case of the UTF-8 bytes of a text.
        decimal: the literal of a decimal with a point.
        fraction: a decimal without its whole part; the sign is the decimal's.
        derives: whether total expressions of the curator's are written in it.
        remainder: what is left of a BIGINT; the sign is the dividend's.
        nearest: the floor of value + 0.5 as a BIGINT; a float or a decimal below 2^52.
        date: the literal of a date, so many days after 1970-01-01.
        months: the months of a DATE, or of a TIMESTAMP, since year 0: 12 year + month - 1, a whole number.
        year: the year of a DATE or of an instant, 0 before 1; NULL of infinite ones.
    """

    wide: str
    double: str
    reads_any: bool
    materialised: str | None
    is_nan: Callable[[str], str]
    quotient: Callable[[str, str], str]
    wide_quotient: Callable[[str, str], str]
    instant: Callable[[int, str], str]
    days: Callable[[str], str]
    microseconds: Callable[[str], str]
    position: Callable[[str, Sequence[str]], str]
    text: Callable[[str], str]
    octets: Callable[[str], str]
    without: Callable[[str, str], str]
    number: Callable[[str], str]
    hex: Callable[[str], str]
    sha256: Callable[[str, str], str]
    chance: str
    exact: Callable[[Arithmetic], str]
    total: Callable[[str, bool], str]
    smallest: Callable[[str, int], str] | None = None
    identifier: Callable[[str], str] = identifier
    literal: Callable[[str], str] = literal
    md5: Callable[[str], str] = lambda text: f"md5({text})"
    decimal: Callable[[str], str] = lambda digits: digits
    fraction: Callable[[str], str] = lambda value: f"({value} % 1)"
    derives: bool = True
    remainder: Callable[[str, str], str] = lambda dividend, divisor: f"({dividend}) % ({divisor})"
    nearest: Callable[[str], str] = lambda value: f"CAST(floor(({value}) + 0.5) AS BIGINT)"
    date: Callable[[int], str] = lambda days: f"DATE '{day(days).isoformat()}'"
    months: Callable[[str], str] = lambda value: f"year({value}) * 12 + month({value}) - 1"
    year: Callable[[str], str] = lambda value: f"year({value})"


def least_row_hashes(
    dialect: Dialect, place: str, columns: Sequence[str], key: str, number: int, rows: int
) -> Iterator[str]:
    """Queries for the least different keyed hashes of whole rows, least first; take the first one that has enough.

    Args:
        dialect: the engine's.
        place: what FROM names.
        columns: SQL of every column, in an order that does not hang on the source's.
        key: in hex digits.
        number: how many hashes.
        rows: of the table: hashes are spread evenly, so that a large table is not sorted as a whole.
    """
    texts = [f"coalesce({dialect.text(column)}, {dialect.literal(chr(30))})" for column in columns]
    hashes = (
        f"SELECT {dialect.sha256(key, f' || {dialect.literal(chr(31))} || '.join(texts))} AS h FROM {place}"
    )
    share = 16 * number / max(rows, 1)
    cuts = [f"{int(share * 0xFFFFFFFF):08x}", "g"] if share < 1 else ["g"]  # behind every hex digit
    for cut in cuts:
        in_range = f"WHERE {dialect.text('h')} < {dialect.literal(cut)}"
        yield f"SELECT DISTINCT {dialect.text('h')} AS h FROM ({hashes}) AS hashes {in_range} ORDER BY 1 LIMIT {number}"


def _map_position(value: str, texts: Sequence[str]) -> str:
    """A function of one column runs once for each value of a dictionary; CASE runs once a row."""
    entries = ", ".join(f"{literal(text)}: {i}" for i, text in enumerate(texts))
    return f"map {{{entries}}}[{_varchar(value)}]"


def _varchar(value: str) -> str:
    return f"CAST({value} AS VARCHAR)"


def _without(value: str, characters: str) -> str:
    """`translate` reads its list anew for each row: 3 us instead of .2."""
    listed = "".join(f"\\x{{{ord(character):x}}}" for character in characters)
    return f"regexp_replace({value}, '[{listed}]', '', 'g')"


DUCK = Dialect(
    wide="HUGEINT",
    double="DOUBLE",
    reads_any=True,
    materialised="MATERIALIZED",
    is_nan=lambda value: f"isnan({value})",
    quotient=lambda dividend, divisor: f"({dividend}) // ({divisor})",
    wide_quotient=lambda dividend, divisor: f"({dividend}) // ({divisor})",
    instant=lambda microseconds, kind: (
        f"CAST('{moment(microseconds)}{'+00' if kind == 'TIMESTAMP WITH TIME ZONE' else ''}' AS {kind})"
    ),
    days=lambda value: f"({value} - DATE '1970-01-01')",
    microseconds=lambda value: f"epoch_us({value})",
    position=_map_position,
    text=_varchar,
    octets=lambda value: f"strlen({value})",
    without=_without,
    number=lambda digits: f"CAST('0x' || {digits} AS BIGINT)",
    hex=lambda value: f"lower(hex({value}))",
    sha256=lambda prefix, text: f"sha256(from_hex('{prefix}') || encode({text}))",
    chance="random()",
    exact=tried,
    total=lambda value, wide: f"sum({value})",
    smallest=lambda value, number: f"min({value}, {number})[{number}]",
)
"""DuckDB's words; it sums whole numbers of any width as HUGEINT."""
