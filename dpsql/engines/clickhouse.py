"""ClickHouse: tables of a chdb database, counted in this process.

    source: {kind: clickhouse, root: /data/shop.chdb, tables: {sales: shop.sales, customer: customer}}

`root` is the folder that `chdb.connect(folder)` writes; a name without a database is in `default`. One process opens a
folder at a time, merges are stopped while it is open, and so nothing moves between two statements. The session is
read-only: it writes no row, and no table function reads a file or an address.

Only tables of the engine MergeTree are rows as they were inserted. Others merge rows at times of their own
(`ReplacingMergeTree`), or are statements (`View`) or other places (`URL`, `Dictionary`): a view is read where the
curator vouches for it, the rest is not. A column with a default is computed for the parts that lack it, by an
expression that could fail on a row, and so it has no type here.

A table is known by two places: its name in a folder, and the identifier that it keeps when it is renamed or copied.

**Privacy**: only cells leave ClickHouse. A message names the step and the code of an error, never its text, which may
quote a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import numpy as np

from dpsql.engines.dialect import Dialect, day, searched
from dpsql.engines.joined_rows import BATCH, engine_lost
from dpsql.engines.server import StoredTable
from dpsql.engines.values import CLICKHOUSE as CLICKHOUSE_TYPES
from dpsql.errors import SourceError
from dpsql.extras import extra
from dpsql.row_expressions.typed import guarded
from dpsql.tree import IntArray

FIRST_DATE, LAST_DATE = -25_567, 120_529
"""Days of 1900-01-01 and 2299-12-31, the ends of Date32: a date beyond them becomes the nearer end in silence."""


def _escaped(text: str, mark: str) -> str:
    """A text between marks; a backslash escapes between any."""
    return mark + text.replace("\\", "\\\\").replace(mark, f"\\{mark}") + mark


def _literal(text: str) -> str:
    return _escaped(text, "'")


def _text(value: str) -> str:
    return f"CAST({value} AS String)"


def _instant(microseconds: int, kind: str) -> str:
    """By its number: a text beyond the years of Date32 is clamped."""
    return f"fromUnixTimestamp64Micro(toInt64({microseconds}), 'UTC')"


def _date(days: int) -> str:
    """A date; one that no Date32 is, as an instant, with which dates are compared exactly."""
    if FIRST_DATE <= days <= LAST_DATE:
        return f"CAST('{day(days).isoformat()}' AS Date32)"
    return _instant(days * 86_400 * 10**6, "TIMESTAMP")


def _decimal(digits: str) -> str:
    """A number with a point would be a float."""
    return f"CAST('{digits}' AS Decimal(38, {len(digits.partition('.')[2])}))"


def _without(value: str, characters: str) -> str:
    listed = "".join(f"\\x{{{ord(character):x}}}" for character in characters)
    return f"replaceRegexpAll({value}, {_literal(f'[{listed}]')}, '')"


CLICKHOUSE = Dialect(
    wide="Int128",
    double="Float64",
    reads_any=False,
    materialised=None,
    identifier=lambda name: _escaped(name, '"'),
    literal=_literal,
    is_nan=lambda value: f"isNaN({value})",
    quotient=lambda dividend, divisor: f"intDiv({dividend}, {divisor})",
    wide_quotient=lambda dividend, divisor: f"intDiv({dividend}, {divisor})",
    nearest=lambda value: f"CAST(floor(({value}) + {_decimal('0.5')}) AS BIGINT)",
    decimal=_decimal,
    fraction=lambda value: f"({value} - trunc({value}))",
    instant=_instant,
    date=_date,
    days=lambda value: f"CAST(toInt32({value}) AS BIGINT)",
    microseconds=lambda value: f"toUnixTimestamp64Micro({value})",
    position=searched(_text, _literal),
    text=_text,
    octets=lambda value: f"length({value})",
    without=_without,
    number=lambda digits: f"reinterpretAsInt64(reverse(unhex(lpad({digits}, 16, '0'))))",
    hex=lambda value: f"lower(hex({value}))",
    md5=lambda text: f"lower(hex(MD5({text})))",
    sha256=lambda prefix, text: f"lower(hex(SHA256(concat(unhex('{prefix}'), {text}))))",
    chance="randCanonical()",
    exact=lambda operation: guarded(operation, "Int128"),
    # sums wrap around in silence
    total=lambda value, wide: f"sum(CAST({value} AS Int128))" if wide else f"sum({value})",
    derives=False,
)
"""ClickHouse's words; settings of the session: `SETTINGS`. `decimal % 1` is 0 there, NaN is neither below nor above a
number, LENGTH, LIKE and SUBSTRING count bytes, so no expression of the curator's is written in it."""

SETTINGS = {
    "session_timezone": "UTC",
    "join_use_nulls": "1",  # a row without a partner would have 0 and ''
    "cast_keep_nullable": "1",  # NULL AS BIGINT would be an error
    "group_by_use_nulls": "1",  # so would be the columns of other grouping sets
    "aggregate_functions_null_for_empty": "1",
    "least_greatest_legacy_null_behavior": "0",
    "prefer_column_name_to_alias": "1",  # `p0 + 1 AS p0` would be read by its neighbours
    "use_variant_as_common_type": "0",
    "transform_null_in": "0",
    "precise_float_parsing": "1",
    "compile_expressions": "0",  # compiled, x * 100 + 0.5 may be rounded once
    "short_circuit_function_evaluation": "force_enable",  # CASE guards the casts in its branches
    "count_distinct_implementation": "uniqExact",
    "join_default_strictness": "ALL",
    "decimal_check_overflow": "1",
    "final": "0",
    "timeout_overflow_mode": "throw",
    "max_query_size": str(1 << 30),
    "max_ast_elements": "1000000",
    "max_expanded_ast_elements": "100000000",
    "max_parser_depth": "10000",
    "output_format_arrow_string_as_string": "1",
}
_CODE = re.compile(r"Code: (\d+)")
_REASONS = {"159": "it ran longer than allowed", "241": "memory is too small"}

_TABLE = "SELECT engine, toString(uuid) FROM system.tables WHERE database = {} AND name = {}"
_COLUMNS = (
    "SELECT name, type, default_kind FROM system.columns WHERE database = {} AND table = {} ORDER BY position"
)
_NOWHERE = "00000000-0000-0000-0000-000000000000"
_KEPT = {"VARCHAR": "String", "DOUBLE": "Float64", "FLOAT": "Float64", "BOOLEAN": "Bool", "HUGEINT": "Int128"}


def stored_type(declared: str, default: str) -> str:
    """A column's type as the table of source values lists it.

    Args:
        declared: as ClickHouse writes it.
        default: kind of its default expression, empty where there is none.

    >>> stored_type("LowCardinality(Nullable(String))", ""), stored_type("Nullable(Int8)", "DEFAULT")
    ('String', 'Int8, default')
    """
    for wrapper in ("LowCardinality", "Nullable"):
        declared = re.sub(rf"^{wrapper}\((.*)\)$", r"\1", declared, flags=re.DOTALL)
    return f"{declared}, {default.lower()}" if default else declared


class ClickHouseSession:
    """A read-only session on a chdb database.

    Args:
        root: its folder.
        seconds: time limit of a statement.

    Raises:
        InterfaceError: chdb is not installed.
        SourceError: there is no such folder.
        EngineLost: it cannot be opened; another process has it open.
    """

    name: ClassVar[str] = CLICKHOUSE_TYPES
    dialect: ClassVar[Dialect] = CLICKHOUSE

    def __init__(self, root: str, seconds: int) -> None:
        chdb = extra("clickhouse")
        self._arrow = extra("arrow")
        self._folder = Path(root).expanduser().resolve()
        if not root or "?" in root or not (self._folder / "metadata").is_dir():  # chdb would make one
            raise SourceError("source.root is not the folder of a chdb database")
        with self._step("opening the database"):
            self._connection = chdb.connect(str(self._folder))
        try:
            with self._step("opening a read-only session"):
                self._connection.query("SYSTEM STOP MERGES")
                settings = {**SETTINGS, "max_execution_time": str(seconds)}
                self._connection.query(
                    f"SET {', '.join(f'{k} = {_literal(v)}' for k, v in settings.items())}"
                )
                self._connection.query("SET readonly = 1")
        except BaseException:
            self.close()
            raise

    def table(self, place: str) -> StoredTable | None:
        """See `ServerSession`; a place is `sales` or `shop.sales`."""
        names = self._named(place)
        listed = self.rows(_TABLE.format(*map(_literal, names)), "reading the schema")
        if (
            not listed
            or listed[0][0] not in ("MergeTree", "View")
            or names[0] in ("system", "information_schema")
        ):
            return None
        columns = self.rows(_COLUMNS.format(*map(_literal, names)), "reading the schema")
        types = {str(column): stored_type(declared, default) for column, declared, default in columns}
        place = ".".join(map(CLICKHOUSE.identifier, names))
        return StoredTable(place, types, listed[0][0] == "MergeTree")

    def places(self, name: str) -> tuple[str, ...]:
        names = self._named(name)
        ((_, identifier),) = self.rows(_TABLE.format(*map(_literal, names)), "resolving a table's name")
        named = "/".join(quote(part, safe="") for part in names)
        place = f"clickhouse+folder:{self._folder}#{named}"
        return (place,) if identifier == _NOWHERE else (place, f"clickhouse+table:{identifier}")

    def rows(self, sql: str, step: str) -> list[tuple[Any, ...]]:
        table = self._fetched(sql, step)
        return list(zip(*map(_values, table.columns), strict=True))

    def columns(self, sql: str, step: str) -> Mapping[str, IntArray]:
        table = self._fetched(sql, step)
        return {name: np.array(_values(table[name]), np.int64) for name in table.column_names}

    def batches(self, sql: str, step: str) -> Iterator[list[tuple[Any, ...]]]:
        rows = self.rows(sql, step)
        for first in range(0, len(rows), BATCH):
            yield rows[first : first + BATCH]

    def lookup(self, keys: str, kind: str) -> str:
        pairs = [
            [key if isinstance(key := pair["key"], str) else json.dumps(key), pair["leaf"]]
            for pair in json.loads(keys)
        ]
        listed = (
            f"JSONExtract({_literal(json.dumps(pairs, ensure_ascii=False))}, 'Array(Tuple(String, Int32))')"
        )
        if kind == "TIMESTAMP WITH TIME ZONE":
            key = "parseDateTime64BestEffort(pair.1, 6, 'UTC')"
        else:
            key = f"CAST(pair.1 AS {'Date32' if kind == 'DATE' else _KEPT.get(kind, kind)})"
        return f"(SELECT {key} AS key, pair.2 AS leaf FROM (SELECT arrayJoin({listed}) AS pair) AS pairs)"

    def row_hash(self, columns: Sequence[str]) -> str:
        listed = ", ".join(f"isNull({column}), coalesce({_text(column)}, '')" for column in columns)
        return f"CAST(cityHash64({listed}) AS Int64)"  # NULL alone would make the hash NULL

    def close(self) -> None:
        """Let others open the folder."""
        self._connection.close()

    @staticmethod
    def _named(place: str) -> tuple[str, str]:
        database, _, name = place.rpartition(".")
        return database or "default", name

    def _fetched(self, sql: str, step: str) -> Any:
        with self._step(step):
            answer = self._connection.query(sql, "ArrowStream").bytes()
        return self._arrow.ipc.open_stream(answer).read_all()

    @contextmanager
    def _step(self, step: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            code = _CODE.search(str(error))
            why = _REASONS.get(code[1], f"code {code[1]}") if code else "it cannot be opened"
            raise engine_lost(self.name, step, why) from None


def _values(column: Any) -> list[Any]:
    """A column of Arrow; whole numbers of 128 bits are sixteen bytes there, the lowest first."""
    values = column.to_pylist()
    if str(column.type) != "fixed_size_binary[16]":
        return list(values)
    return [value if value is None else int.from_bytes(value, "little", signed=True) for value in values]
