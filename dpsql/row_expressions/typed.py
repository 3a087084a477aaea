"""Total expressions as values, their types, and what engines spell differently (`total`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

import duckdb

from dpsql.errors import CatalogError
from dpsql.row_expressions.expression import Node
from dpsql.scratch import scratch

BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
MOST_DIGITS, FLOAT_DIGITS = 38, 15
"""Digits of a decimal, and of a literal that every engine reads as the same float."""
MOST_WRITTEN = 1 << 16
INFINITE = (1 << 31) - 1
"""Days of DuckDB's infinite date, and less than them of the other one."""
HINT = "make the column in a view of yours, name the view, and vouch for it by `trusted: true` in `source`"
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")
INSTANTS = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")


class Words(Protocol):
    """Spelling of total expressions, engine by engine."""

    @property
    def double(self) -> str:
        """The type of 64-bit floats."""

    @property
    def literal(self) -> Callable[[str], str]: ...
    @property
    def text(self) -> Callable[[str], str]: ...
    @property
    def is_nan(self) -> Callable[[str], str]: ...
    @property
    def quotient(self) -> Callable[[str, str], str]: ...
    @property
    def remainder(self) -> Callable[[str, str], str]: ...
    @property
    def date(self) -> Callable[[int], str]: ...
    @property
    def instant(self) -> Callable[[int, str], str]: ...
    @property
    def days(self) -> Callable[[str], str]: ...
    @property
    def year(self) -> Callable[[str], str]: ...
    @property
    def exact(self) -> Callable[[Arithmetic], str]: ...


class Arithmetic(NamedTuple):
    """A sum, difference or product of two numbers.

    Args:
        left, right: SQL.
        sign: between them.
        kinds: their types in DuckDB's words.
        sql_type: that of the result.
    """

    left: str
    sign: str
    right: str
    kinds: tuple[str, str]
    sql_type: str


Columns: TypeAlias = Mapping[str, str]
Writer: TypeAlias = Callable[[Words, Columns], str]


class TotalExpression(NamedTuple):
    """A checked expression.

    Args:
        sql_type: its type in DuckDB's words.
        write: (an engine's words, column in lower case -> SQL that binds as tightly as a name) -> SQL, in brackets.
        duck: the same in DuckDB's words over NULLs of the columns' types, to ask for types.
    """

    sql_type: str
    write: Writer
    duck: str

    def sql(self, words: Words, columns: Columns) -> str:
        """The expression in an engine's words.

        Raises:
            CatalogError: it is too long.
        """
        text = self.write(words, columns)
        if len(text) > MOST_WRITTEN:
            raise CatalogError("is too long for a server; write it in fewer steps", hint=HINT)
        return text


def refused(node: Node, why: str = "") -> CatalogError:
    """The error of a part that is not total."""
    shown = node.sql("duckdb", comments=False)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    why = why or "engines differ in it, or a value could make it fail"
    return CatalogError(f"`{shown}` is not for a server: {why}", hint=HINT)


@lru_cache(maxsize=4096)
def duck_type(duck: str) -> str:
    """The type that DuckDB gives an expression over NULLs; empty where it does not bind."""
    with scratch() as connection:
        try:
            return str(connection.execute(f"DESCRIBE SELECT {duck} AS made").fetchall()[0][1])
        except duckdb.Error:
            return ""


def typed(node: Node, duck: str, write: Writer) -> TotalExpression:
    """An expression of the type that DuckDB gives it.

    Args:
        node: the part, for messages.
        duck, write: of the expression.

    Raises:
        CatalogError: it has none that engines share.
    """
    sql_type = duck_type(duck)
    if not family(sql_type):
        raise refused(node, f"its type would be {sql_type}" if sql_type else "its types do not fit")
    return TotalExpression(sql_type, write, duck)


def family(sql_type: str) -> str:
    """Comparison family of a type's values: number, float, text, truth, date, time; empty of other types."""
    families = {"DOUBLE": "float", "VARCHAR": "text", "BOOLEAN": "truth", "DATE": "date"}
    if sql_type in BITS or _DECIMAL.fullmatch(sql_type):
        return "number"
    return families.get(sql_type) or ("time" if sql_type in INSTANTS else "")


def digits(sql_type: str) -> tuple[int, int]:
    """Digits before and behind the point of a number's type."""
    match = _DECIMAL.fullmatch(sql_type)
    if match:
        return int(match[1]) - int(match[2]), int(match[2])
    return {8: 3, 16: 5, 32: 10, 64: 19}[BITS[sql_type]], 0


def guarded(operation: Arithmetic, wide: str) -> str:
    """SQL of an operation by a test of its exact value, for engines without TRY.

    Args:
        operation: whose exact value no type of the engine makes fail.
        wide: the engine's type for whole numbers up to 2^126.
    """
    sql_type, parts = operation.sql_type, [operation.left, operation.right]
    # a product then has 64 bits
    narrow = sql_type in BITS and max(BITS[sql_type] for sql_type in operation.kinds) <= 32
    if sql_type in BITS:
        high = str((1 << (BITS[sql_type] - 1)) - 1)
        low = f"-{high} - 1"
        parts = [f"CAST({part} AS {'BIGINT' if narrow else wide})" for part in parts]
    else:
        whole, places = digits(sql_type)
        high = ("9" * whole or "0") + ("." + "9" * places if places else "")
        low = f"-{high}"
    exact = f"({parts[0]} {operation.sign} {parts[1]})"
    value = f"CAST({exact} AS BIGINT)" if sql_type in BITS and not narrow else exact
    return f"(CASE WHEN {exact} BETWEEN {low} AND {high} THEN {value} END)"


def tried(operation: Arithmetic) -> str:
    """SQL of an operation for DuckDB: typed as the check types it, NULL where it fails."""
    kinds = (operation.sql_type,) * 2 if operation.sql_type in BITS else operation.kinds
    left, right = (
        f"CAST({part} AS {sql_type})"
        for part, sql_type in zip((operation.left, operation.right), kinds, strict=True)
    )
    return f"TRY({left} {operation.sign} {right})"


def days_of(value: TotalExpression) -> Writer:
    """Days since 1970; of the infinite dates those that DuckDB gives them."""

    def write(words: Words, sql: Columns) -> str:
        text = value.write(words, sql)
        infinite = f"CASE WHEN {text} > DATE '2000-01-01' THEN {INFINITE} WHEN {text} IS NOT NULL THEN -{INFINITE} END"
        return f"coalesce({words.days(text)}, {infinite})"

    return write
