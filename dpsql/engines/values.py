"""Source values: the one table of what leaves a source, and as what.

A column leaves its source through one total function of one value, chosen by its stored type and its use alone
(`TYPES`). A stored type that the table does not list is not read; a catalog that names such a column is refused.

    stored type      value          a column of a declared type, or of none
                     key            a key or a foreign key; compared by its canonical text, or by an image of it

The canonical text of a key is what joins, units, counters of streams and joined reports compare: a number's shortest
decimal text (7, 7.0 and 7.00 are `7`), the bytes of a text, ISO text of a day or an instant in UTC. An engine may
compare an image of it that is one to one on the stored type: BIGINT for whole numbers, HUGEINT for wider ones.

Several files of one table are each read by their own schema and meet in one type that holds every value
(`common_type`); where there is none they meet in canonical text, which the declared type then reads row by row.

Types are named as DuckDB names them, whatever the engine.

**Privacy**: functions of schemas and the catalog; every expression is a total function of one row. No key is clamped,
rounded or collated: a value without a counterpart in its group's type is NULL.
**Source**: docs/engines.md, "What a stored value becomes".
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from dpsql.row_expressions import words

FILES, DATABASE, POSTGRESQL, SPARK, CLICKHOUSE = "files", "DuckDB file", "PostgreSQL", "Spark", "ClickHouse"

INTEGERS = words("TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT")
BITS = {
    "TINYINT": 8, "UTINYINT": 9, "SMALLINT": 16, "USMALLINT": 17, "INTEGER": 32, "UINTEGER": 33, "BIGINT": 64,
}  # fmt: skip
"""Bits of the whole numbers that fit into a BIGINT, their sign included."""

FLOATS = frozenset(("FLOAT", "DOUBLE"))
TIMES = words("DATE TIMESTAMP TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS TIMESTAMPTZ_NS") | {
    "TIMESTAMP WITH TIME ZONE"
}
EMPTY = '"NULL"'
"""Type of a Parquet column that holds nothing but NULL, as DuckDB writes it."""

FLOAT_BITS = 53
LARGEST = 1 << FLOAT_BITS
"""Floats from here on may be rounded whole numbers, so none of them is a key."""

_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_WHOLE = "[+-]?[0-9]+([.]0*)?"
_PLAIN = "[+-]?[0-9]+([.][0-9]*)?"


class Digits(NamedTuple):
    """Of a decimal type: all digits, and those behind the point."""

    whole: int
    places: int


def decimal_digits(sql_type: str | None) -> Digits | None:
    """The digits of a decimal type; None for any other.

    >>> decimal_digits("DECIMAL(12,2)")
    Digits(whole=12, places=2)
    """
    match = _DECIMAL.fullmatch(sql_type or "")
    return Digits(int(match[1]), int(match[2])) if match else None


def family(sql_type: str) -> str:
    """Family of a type's values: integer, decimal, float, text, time, or the type itself.

    >>> family("UBIGINT"), family("DECIMAL(9,0)"), family("DECIMAL(9,2)"), family("ENUM('a')"), family("UUID")
    ('integer', 'integer', 'decimal', 'text', 'UUID')
    """
    digits = decimal_digits(sql_type)
    if sql_type in INTEGERS or (digits and digits.places == 0):
        return "integer"
    if digits:
        return "decimal"
    if sql_type in FLOATS:
        return "float"
    if sql_type == "VARCHAR" or sql_type.startswith("ENUM("):
        return "text"
    return "time" if sql_type in TIMES else sql_type


def type_word(sql_type: str) -> str:
    """A type as messages name it: members of an ENUM and fields of a STRUCT may be values.

    >>> type_word("ENUM('HIV', 'flu')"), type_word("DECIMAL(9,2)"), type_word("STRUCT(a INTEGER)[]")
    ('ENUM', 'DECIMAL(9,2)', 'STRUCT')
    """
    return sql_type if decimal_digits(sql_type) else sql_type.partition("(")[0]


def widest(sql_type: str) -> str:
    """The type that holds every value of a type's family (decimals: of its scale).

    >>> widest("SMALLINT"), widest("DECIMAL(9,2)"), widest("FLOAT"), widest("DATE"), widest("UUID")
    ('HUGEINT', 'DECIMAL(38,2)', 'DOUBLE', 'TIMESTAMP', 'UUID')
    """
    widest_types = {"integer": "HUGEINT", "float": "DOUBLE", "text": "VARCHAR", "time": "TIMESTAMP"}
    digits = decimal_digits(sql_type)
    return widest_types.get(family(sql_type)) or (f"DECIMAL(38,{digits.places})" if digits else sql_type)


class SourceColumn(NamedTuple):
    """A column as it leaves its source.

    Args:
        kind: its type in DuckDB's words.
        sql: a total function of the stored column.
    """

    kind: str
    sql: str


@dataclass(frozen=True)
class StoredType:
    """One line of the table: a stored type of a source, and the functions that read it.

    Args:
        sources: where it is stored.
        stored: the type as the page writes it.
        pattern: regular expression of the type as the source writes it; its groups fill `{0}`, `{1}`.
        value: (type, SQL of `{x}`) of a column that is no key.
        key: the same of a key; None where it can be none.
        rounding, overflow: of the value, in words.
        equality: of keys, in words.
    """

    sources: tuple[str, ...]
    stored: str
    pattern: str
    value: tuple[str, str]
    key: tuple[str, str] | None
    rounding: str
    overflow: str
    equality: str


NEVER, FITS = "none", "none: every value fits"
WHOLE_NUMBERS = "integers"
DECIMALS = "decimals"
BYTES, NO_BLANKS = "bytes", "bytes; CHAR(n) without its blanks"
SAME_TIMES = "instants"
AS_STORED = "as stored"
ONLY_SMALL = "decimals below 2^53; NaN, infinities and from 2^53 on: no key"


def float_key(double: str) -> str:
    """A float that names one number: below 2^53, -0.0 as 0.0, neither NaN nor infinite."""
    value = f"CAST({{x}} AS {double})"
    return f"CASE WHEN abs({value}) < {LARGEST} THEN {value} + 0 END"


def postgres_text(column: str) -> str:
    """Bytes of a text; the cast takes the padding of CHAR(n) off."""
    return f'CAST({column} AS text) COLLATE "C"'


BY_BYTES = "TRY(decode(encode({x})))"
"""A text of DuckDB without its collation, which a cast, `||` and COALESCE would all keep."""

NUMERIC_KEY = "CASE WHEN {x} > '-Infinity' AND {x} < 'Infinity' THEN trim_scale({x}) END"
"""A NUMERIC of PostgreSQL without zeros at its end: one text a number, whatever its digits."""

MICROSECONDS = (
    "TRY(make_timestamp(epoch_ns({x}) // 1000 - CASE WHEN epoch_ns({x}) % 1000 < 0 THEN 1 ELSE 0 END))"
)
"""The microsecond of an instant in nanoseconds; a cast would round it up, at times into the next day."""

_DUCK = (FILES, DATABASE)
_LEAST_WIDE = f"least({{x}}, CAST('{(1 << 127) - 1}' AS UHUGEINT))"
_NUMERIC_NEAR = "CASE WHEN {x} <> 'NaN' THEN CAST(least(greatest({x}, -1e28), 1e28) AS numeric(38,9)) END"
_AS_IS = "{x}"
_CLICK_DECIMAL = "{x} * CAST('1' AS Decimal(38, 0))"
"""In 128 bits: products of narrower decimals fail where they overflow."""
_CLICK_TEXT = "CASE WHEN isValidUTF8(CAST({x} AS Nullable(String))) THEN CAST({x} AS Nullable(String)) END"
_CLICK_SECONDS = "toDecimal128({x}, 6)"
"""A cast to microseconds would fail on what DateTime64 has room for."""
_CLICK_INSTANT = (
    f"CASE WHEN {_CLICK_SECONDS} >= -62135596800 AND {_CLICK_SECONDS} < 253402300800 "
    f"THEN fromUnixTimestamp64Micro(CAST({_CLICK_SECONDS} * 1000000 AS BIGINT), 'UTC') END"
)

TYPES: tuple[StoredType, ...] = (
    StoredType(_DUCK, "TINYINT .. HUGEINT, UTINYINT .. UBIGINT", "(U?(?:TINY|SMALL|BIG)INT|U?INTEGER|HUGEINT)",
               ("{0}", _AS_IS), ("{0}", _AS_IS), NEVER, FITS, WHOLE_NUMBERS),
    StoredType(_DUCK, "UHUGEINT", "UHUGEINT", ("HUGEINT", f"CAST({_LEAST_WIDE} AS HUGEINT)"), ("UHUGEINT", _AS_IS),
               NEVER, "clamped to 2^127 - 1 as a value; none as a key", WHOLE_NUMBERS),
    StoredType(_DUCK, "DECIMAL(p,s)", r"DECIMAL\((\d+),(\d+)\)", ("DECIMAL({0},{1})", _AS_IS),
               ("DECIMAL({0},{1})", _AS_IS), NEVER, FITS, DECIMALS),
    StoredType(_DUCK, "FLOAT, DOUBLE", "FLOAT|DOUBLE", ("DOUBLE", "CAST({x} AS DOUBLE)"),
               ("DOUBLE", float_key("DOUBLE")), NEVER, FITS, ONLY_SMALL),
    StoredType((FILES,), "VARCHAR", "VARCHAR", ("VARCHAR", _AS_IS), ("VARCHAR", _AS_IS), NEVER,
               "bytes that are not UTF-8 become `?`", BYTES),
    StoredType((DATABASE,), "VARCHAR, any COLLATE", "VARCHAR", ("VARCHAR", BY_BYTES),
               ("VARCHAR", BY_BYTES), NEVER, FITS, BYTES),
    StoredType(_DUCK, "ENUM", r"ENUM\(.*\)", ("VARCHAR", "CAST({x} AS VARCHAR)"),
               ("VARCHAR", "CAST({x} AS VARCHAR)"), NEVER, FITS, BYTES),
    StoredType(_DUCK, "BOOLEAN, DATE, UUID", "(BOOLEAN|DATE|UUID)", ("{0}", _AS_IS), ("{0}", _AS_IS), NEVER, FITS,
               AS_STORED),
    StoredType(_DUCK, "TIMESTAMP, with time zone too", "(TIMESTAMP|TIMESTAMP WITH TIME ZONE)", ("{0}", _AS_IS),
               ("{0}", _AS_IS), NEVER, FITS, SAME_TIMES),
    StoredType(_DUCK, "TIMESTAMP_S, TIMESTAMP_MS", "(TIMESTAMP_S|TIMESTAMP_MS)",
               ("TIMESTAMP", "TRY_CAST({x} AS TIMESTAMP)"), ("TIMESTAMP", "TRY_CAST({x} AS TIMESTAMP)"), NEVER,
               "NULL beyond the years of TIMESTAMP", SAME_TIMES),
    StoredType(_DUCK, "TIMESTAMP_NS", "TIMESTAMP_NS", ("TIMESTAMP", MICROSECONDS), ("TIMESTAMP_NS", _AS_IS),
               "down to the microsecond as a value; none as a key", FITS, SAME_TIMES),
    StoredType(_DUCK, "TIMESTAMPTZ_NS", "TIMESTAMPTZ_NS", ("TIMESTAMP", MICROSECONDS), None,
               "down to the microsecond, in UTC; refused as a key", FITS, SAME_TIMES),
    StoredType(_DUCK, "BLOB", "BLOB", ("VARCHAR", "CAST({x} AS VARCHAR)"), ("BLOB", _AS_IS), NEVER, FITS,
               "bytes, in hex digits"),
    StoredType((FILES,), "a column of NULL alone", EMPTY, (EMPTY, "CAST(NULL AS VARCHAR)"), (EMPTY, _AS_IS), NEVER,
               FITS, "no value"),
    StoredType((POSTGRESQL,), "smallint, integer, bigint", "(smallint|integer|bigint)", ("{0}", _AS_IS),
               ("{0}", _AS_IS), NEVER, FITS, WHOLE_NUMBERS),
    StoredType((POSTGRESQL,), "numeric(p,s), p <= 38", r"numeric\((\d|[12]\d|3[0-8]),(\d+)\)",
               ("DECIMAL({0},{1})", "nullif({x}, 'NaN')"), ("DECIMAL({0},{1})", NUMERIC_KEY), NEVER,
               "NaN is NULL", DECIMALS),
    StoredType((POSTGRESQL,), "numeric, wider too", r"numeric(?:\(.*\))?", ("DECIMAL(38,9)", _NUMERIC_NEAR),
               ("NUMERIC", NUMERIC_KEY), "half away from zero at 9 places as a value; none as a key",
               "clamped to 1e28 as a value, NaN is NULL; as a key NaN and infinities are NULL", DECIMALS),
    StoredType((POSTGRESQL,), "real, double precision", "real|double precision",
               ("DOUBLE", "CAST({x} AS double precision)"), ("DOUBLE", float_key("double precision")),
               NEVER, FITS, ONLY_SMALL),
    StoredType((POSTGRESQL,), "text, varchar(n), char(n), name, enums",
               r"text|bpchar|character(?: varying)?(?:\(\d+\))?|name|enum",
               ("VARCHAR", postgres_text("{x}")), ("VARCHAR", postgres_text("{x}")), NEVER, FITS, NO_BLANKS),
    StoredType((POSTGRESQL,), "citext, text with a non-deterministic collation", "citext|text, folded",
               ("VARCHAR", postgres_text("{x}")), None, NEVER, FITS, "refused as a key; as a value bytes"),
    StoredType((POSTGRESQL,), "boolean, date, uuid", "(boolean|date|uuid)", ("{0}", _AS_IS), ("{0}", _AS_IS), NEVER,
               FITS, AS_STORED),
    StoredType((POSTGRESQL,), "timestamp, timestamptz", r"timestamp(?:\(\d\))?( with time zone| without time zone)",
               ("TIMESTAMP{0}", _AS_IS), ("TIMESTAMP{0}", _AS_IS), NEVER, FITS, SAME_TIMES),
    StoredType((SPARK,), "tinyint, smallint, int, bigint", "(tinyint|smallint|int|bigint)", ("{0}", _AS_IS),
               ("{0}", _AS_IS), NEVER, FITS, WHOLE_NUMBERS),
    StoredType((SPARK,), "decimal(p,s)", r"decimal\((\d+),(\d+)\)", ("DECIMAL({0},{1})", _AS_IS),
               ("DECIMAL({0},{1})", _AS_IS), NEVER, FITS, DECIMALS),
    StoredType((SPARK,), "float, double", "float|double", ("DOUBLE", "CAST({x} AS DOUBLE)"),
               ("DOUBLE", float_key("DOUBLE")), NEVER, FITS, ONLY_SMALL),
    StoredType((SPARK,), "string, varchar(n)", r"string|varchar\(\d+\)", ("VARCHAR", _AS_IS), ("VARCHAR", _AS_IS),
               NEVER, FITS, BYTES),
    StoredType((SPARK,), "char(n)", r"char\(\d+\)", ("VARCHAR", "rtrim({x})"), ("VARCHAR", "rtrim({x})"), NEVER, FITS,
               NO_BLANKS),
    StoredType((SPARK,), "string with a collation", "string collate .*", ("VARCHAR", "({x} COLLATE UTF8_BINARY)"),
               None, NEVER, FITS, "refused as a key; as a value bytes"),
    StoredType((SPARK,), "boolean, date", "(boolean|date)", ("{0}", _AS_IS), ("{0}", _AS_IS), NEVER, FITS,
               AS_STORED),
    StoredType((SPARK,), "timestamp, timestamp_ntz", "(timestamp|timestamp_ntz)", ("{0}", _AS_IS), ("{0}", _AS_IS),
               NEVER, FITS, SAME_TIMES),
    StoredType((CLICKHOUSE,), "Int8 .. Int64, UInt8 .. UInt32", "(Int8|Int16|Int32|Int64|UInt8|UInt16|UInt32)",
               ("{0}", _AS_IS), ("{0}", _AS_IS), NEVER, FITS, WHOLE_NUMBERS),
    StoredType((CLICKHOUSE,), "UInt64", "UInt64", ("BIGINT", f"CAST(least({{x}}, {(1 << 63) - 1}) AS BIGINT)"),
               ("HUGEINT", "CAST({x} AS Int128)"), NEVER, "clamped to 2^63 - 1 as a value; none as a key",
               WHOLE_NUMBERS),
    StoredType((CLICKHOUSE,), "Decimal(p<=38,s)", r"Decimal\((\d|[12]\d|3[0-8]), (\d+)\)",
               ("DECIMAL({0},{1})", _CLICK_DECIMAL), ("DECIMAL({0},{1})", _CLICK_DECIMAL), NEVER, FITS, DECIMALS),
    StoredType((CLICKHOUSE,), "Float32, Float64", "Float32|Float64", ("FLOAT", "CAST({x} AS Float64)"),
               ("FLOAT", float_key("Float64")), NEVER, FITS, ONLY_SMALL),
    StoredType((CLICKHOUSE,), "String, Enum8, Enum16", r"String|Enum(?:8|16)\(.*\)",
               ("VARCHAR", _CLICK_TEXT), ("VARCHAR", _CLICK_TEXT), NEVER, "NULL where it is not UTF-8", BYTES),
    StoredType((CLICKHOUSE,), "UUID", "UUID", ("VARCHAR", "toString({x})"), ("VARCHAR", "toString({x})"), NEVER, FITS,
               BYTES),
    StoredType((CLICKHOUSE,), "Bool", "Bool", ("BOOLEAN", _AS_IS), ("BOOLEAN", _AS_IS), NEVER, FITS, AS_STORED),
    StoredType((CLICKHOUSE,), "Date, Date32", "Date|Date32", ("DATE", "toDate32({x})"), ("DATE", "toDate32({x})"),
               NEVER, FITS, AS_STORED),
    StoredType((CLICKHOUSE,), "DateTime", r"DateTime(?:\('[^']*'\))?",
               ("TIMESTAMP WITH TIME ZONE", "toDateTime64({x}, 6, 'UTC')"),
               ("TIMESTAMP WITH TIME ZONE", "toDateTime64({x}, 6, 'UTC')"), NEVER, FITS, SAME_TIMES),
    StoredType((CLICKHOUSE,), "DateTime64(0..6)", r"DateTime64\([0-6](?:, '[^']*')?\)",
               ("TIMESTAMP WITH TIME ZONE", _CLICK_INSTANT), ("TIMESTAMP WITH TIME ZONE", _CLICK_INSTANT), NEVER,
               "NULL beyond the years 1 to 9999", SAME_TIMES),
)  # fmt: skip
"""The table. docs/engines.md prints it; a test holds the page to it."""

_NAMES = {
    "INT": "INTEGER",
    "TIMESTAMP_NTZ": "TIMESTAMP",
    "TIMESTAMP WITHOUT TIME ZONE": "TIMESTAMP",
}
_ENGINE_NAMES = {
    SPARK: {"TIMESTAMP": "TIMESTAMP WITH TIME ZONE"},  # an instant
    CLICKHOUSE: {
        "INT8": "TINYINT", "INT16": "SMALLINT", "INT32": "INTEGER", "INT64": "BIGINT",
        "UINT8": "UTINYINT", "UINT16": "USMALLINT", "UINT32": "UINTEGER",
    },
}  # fmt: skip


def stored_type(source: str, stored: str) -> tuple[StoredType, tuple[str, ...]] | None:
    """The line of the table for a stored type, and what its pattern's groups match; None where it is not listed."""
    for line in TYPES:
        match = re.fullmatch(line.pattern, stored, re.DOTALL) if source in line.sources else None
        if match:
            return line, tuple(group or "" for group in match.groups())
    return None


def leaving(source: str, stored: str, column: str, *, key: bool) -> SourceColumn | None:
    """Conversion of a column of a stored type as it leaves its source.

    Args:
        source: of `FILES`, `DATABASE`, `POSTGRESQL`, `SPARK`, `CLICKHOUSE`.
        stored: its type as the source writes it.
        column: SQL of the column.
        key: whether it is a key or a foreign key.

    Returns:
        None where the table does not list the type for that use.

    >>> leaving(FILES, "BIGINT", "x", key=True), leaving(FILES, "INTEGER[]", "x", key=False)
    (SourceColumn(kind='BIGINT', sql='x'), None)
    """
    match = stored_type(source, stored)
    form = None if match is None else match[0].key if key else match[0].value
    if match is None or form is None:
        return None
    sql_type = form[0].format(*match[1])
    sql_type = sql_type if sql_type == EMPTY else sql_type.upper()
    sql_type = _ENGINE_NAMES.get(source, {}).get(sql_type, sql_type)
    return SourceColumn(_NAMES.get(sql_type, sql_type), form[1].replace("{x}", column))


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
    source_family, target_family = family(own), family(target)
    if own == EMPTY:
        return f"CAST(NULL AS {target})"
    if own == target and source_family != "float":
        return value
    text = f"trim(CAST({value} AS VARCHAR), E' \\t\\r\\n')"
    if source_family == "float" and target_family in ("integer", "decimal"):
        # by way of an integer: DuckDB multiplies a float by 10^scale in floating point
        whole = f"TRY_CAST(TRY_CAST({value} AS HUGEINT) AS {target})"
        return f"CASE WHEN {_small(value)} AND {value} = trunc({value}) THEN {whole} END"
    if target_family == "integer" and source_family == "integer":
        return f"TRY_CAST({value} AS {target})"
    if target_family == "integer" and source_family in ("decimal", "text"):
        return f"CASE WHEN regexp_full_match({text}, '{_WHOLE}') THEN TRY_CAST({text} AS {target}) END"
    if target_family == "decimal" and source_family in ("integer", "decimal", "text"):
        digits = decimal_digits(target)
        fits = f"[+-]?[0-9]+([.][0-9]{{0,{digits.places if digits else 0}}}0*)?"
        return f"CASE WHEN regexp_full_match({text}, '{fits}') THEN TRY_CAST({text} AS {target}) END"
    if target_family == "float" and source_family in ("integer", "decimal", "float"):
        whole = f" AND {value} = trunc({value})" if source_family == "decimal" else ""
        # adding zero makes -0.0 and 0.0 one value
        return f"CASE WHEN {_small(value)}{whole} THEN CAST({value} AS {target}) + 0 END"
    if target_family == "float" and source_family == "text":
        number = f"CASE WHEN regexp_full_match({text}, '{_PLAIN}') THEN TRY_CAST({text} AS {target}) END"
        return f"CASE WHEN {_small(number)} THEN {number} + 0 END"
    if target_family == "text" and source_family == "text":
        return f"CAST({value} AS {target})"
    if target_family == "time" and source_family == "time":
        # a cast of nanoseconds rounds, and one of an instant to a date cuts
        cast = f"TRY_CAST({value} AS {target})"
        return f"CASE WHEN TRY_CAST({cast} AS {own}) = {value} THEN {cast} END"
    return (
        f"TRY_CAST({text} AS {target})"
        if source_family == "text" and target_family not in ("text", "BOOLEAN", "BLOB")
        else None
    )


def _small(value: str) -> str:
    """True if a number is finite and so small that no float rounds it to a whole number (NaN is above all)."""
    return f"({value} > -{LARGEST} AND {value} < {LARGEST})"


def canonical_text(value: str, sql_type: str) -> str:
    """SQL of DuckDB for the one text of a value: of a number the shortest decimal, as docs/in-your-app.md writes it.

    Args:
        value: SQL of a column that left its source.
        sql_type: its type.

    >>> canonical_text("id", "BIGINT")
    'CAST(id AS VARCHAR)'
    """
    text, digits = f"CAST({value} AS VARCHAR)", decimal_digits(sql_type)
    if sql_type == "VARCHAR":
        return value
    if sql_type == "BLOB":
        return f"lower(hex({value}))"
    if digits and digits.places:
        return f"regexp_replace({text}, '[.]?0+$', '')"
    if sql_type not in FLOATS:
        return text
    integer = f"CAST(TRY_CAST({value} AS HUGEINT) AS VARCHAR)"
    sign = f"CASE WHEN {value} < 0 THEN '-' ELSE '' END"
    zeros = f"repeat('0', CASE WHEN abs({value}) < 1e-5 THEN 5 ELSE 4 END)"
    small = f"{sign} || '0.' || {zeros} || regexp_replace({text}, '^-|[.]|e.*$', '', 'g')"
    return (
        f"CASE WHEN abs({value}) < 1e21 AND {value} = trunc({value}) THEN {integer} "
        f"WHEN abs({value}) < 1e-4 AND abs({value}) >= 1e-6 THEN {small} "
        f"ELSE regexp_replace({text}, 'e([+-])0+', 'e\\1') END"
    )


class DeclaredType(NamedTuple):
    """Declared type of a column.

    Args:
        type: its word for the type; empty where it declares none.
        nullable: whether NULL is a value of its own.
        small: whether all bounds are below 2^53, so that a float tells every number within them apart.
        places: digits behind the point that a number keeps.
    """

    type: str = ""
    nullable: bool = False
    small: bool = False
    places: int = 0


READS = {
    **dict.fromkeys(("int", "decimal"), words("integer decimal float text BOOLEAN")),
    **dict.fromkeys(("date", "timestamp"), words("time text")),
    "string": words("integer decimal float text BOOLEAN time UUID"),
    "bool": words("BOOLEAN text integer"),
}
"""Declared type -> families of stored types that stand for its values; others are refused from the schema."""


def reads(declared: str, sql_type: str) -> bool:
    """True if a declared type reads columns of a stored type; without a declaration all are read."""
    return sql_type == EMPTY or not declared or family(sql_type) in READS[declared]


KEY_WORDS = {
    "integer": "canonical integer text", "decimal": "canonical decimal text", "float": "canonical decimal text",
    "text": "bytes of the text", "time": "ISO text in UTC",
}  # fmt: skip


def key_words(sql_type: str) -> str:
    """Comparison of keys of a type, in words for the certificate.

    >>> key_words("BIGINT"), key_words("NUMERIC"), key_words("UUID")
    ('canonical integer text', 'canonical decimal text', 'canonical text')
    """
    return (
        KEY_WORDS["decimal"] if sql_type == "NUMERIC" else KEY_WORDS.get(family(sql_type), "canonical text")
    )


def is_rounded(sql_type: str, declared: DeclaredType) -> bool:
    """True if a number of a stored type may have more digits behind the point than are kept."""
    digits = decimal_digits(sql_type)
    if declared.type not in ("int", "decimal"):
        return False
    return family(sql_type) in ("float", "text") or (digits is not None and digits.places > declared.places)


def common_type(kinds: Collection[str], declared: DeclaredType) -> str | None:
    """The type in which columns of several files meet: every value keeps its value.

    Args:
        kinds: their types as they leave the files.
        declared: what the catalog says of the column.

    Returns:
        A type; VARCHAR for canonical text; None where the values have nothing in common.

    >>> common_type(["INTEGER", "BIGINT"], DeclaredType()), common_type(["INTEGER", "DOUBLE"], DeclaredType("decimal"))
    ('BIGINT', 'DOUBLE')
    >>> common_type(["DOUBLE", "VARCHAR"], DeclaredType("decimal")), common_type(["DATE", "BIGINT"], DeclaredType())
    ('VARCHAR', None)
    >>> common_type(["DECIMAL(18,0)", "DOUBLE"], DeclaredType())
    'VARCHAR'
    >>> common_type(["HUGEINT", "DOUBLE"], DeclaredType(small=True))
    'DOUBLE'
    """
    real = sorted({sql_type for sql_type in kinds if sql_type != EMPTY})
    families = {family(sql_type) for sql_type in real}
    if len(real) <= 1:
        return real[0] if real else "VARCHAR"
    if families == {"integer"}:
        return "BIGINT" if all(sql_type in BITS for sql_type in real) else "HUGEINT"
    if families <= {"integer", "decimal"}:
        # a decimal holds every value of some whole and decimal types, but for 38 digits being too few
        decimals = [
            decimal_digits(sql_type) or Digits(len(str(1 << BITS.get(sql_type, 128))), 0) for sql_type in real
        ]
        places = max(decimal.places for decimal in decimals)
        needed = max(decimal.whole - decimal.places for decimal in decimals) + places
        return (f"DECIMAL({needed},{places})" if needed <= 38 else None) or "VARCHAR"
    if families == {"integer", "float"}:
        exact = declared.small or all(
            sql_type in FLOATS or BITS.get(sql_type, 128) <= FLOAT_BITS for sql_type in real
        )
        return "DOUBLE" if exact else "VARCHAR"
    if families == {"float"}:
        return "DOUBLE"
    if families == {"time"}:
        return "TIMESTAMP WITH TIME ZONE" if "TIMESTAMP WITH TIME ZONE" in real else "TIMESTAMP"
    if "text" in families or families <= {"integer", "decimal", "float"}:
        return "VARCHAR"
    return None


def key_type(kinds: Collection[str], declared_int: bool) -> str | None:
    """The type in which key columns of several files meet; None where text stands among other values undeclared.

    >>> key_type(["BIGINT", "DOUBLE"], False), key_type(["BIGINT", "VARCHAR"], False)
    ('HUGEINT', None)
    """
    real = sorted({sql_type for sql_type in kinds if sql_type != EMPTY})
    families = {family(sql_type) for sql_type in real}
    if len(real) <= 1:
        return real[0] if real else EMPTY
    if "text" in families and families != {"text"}:
        return "HUGEINT" if declared_int and families <= {"text", "integer", "decimal", "float"} else None
    if families == {"integer"}:
        return "BIGINT" if all(sql_type in BITS for sql_type in real) else "HUGEINT"
    if families <= {"integer", "decimal", "float"}:
        places = [digits.places for sql_type in real if (digits := decimal_digits(sql_type))]
        return f"DECIMAL(38,{max(places)})" if "decimal" in families else "HUGEINT"
    return "TIMESTAMP" if families == {"time"} else None


def carried(value: str, sql_type: str, target: str) -> str:
    """SQL of DuckDB for a value in the type in which its files meet; see `common_type`.

    Args:
        value: SQL of a column that left its file.
        sql_type: its type.
        target: where it is carried.
    """
    if sql_type == target:
        return value
    if sql_type == EMPTY:
        return f"CAST(NULL AS {target})"
    return canonical_text(value, sql_type) if target == "VARCHAR" else f"TRY_CAST({value} AS {target})"
