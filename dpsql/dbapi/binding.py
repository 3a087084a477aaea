"""Parameters into a statement: each placeholder outside of strings, names and comments becomes one literal.

A scanner, not a search: what stands inside quotes or comments is copied as it is. A value is written as a
literal of its type and can end neither its quotes nor the token it stands in, so a parameter never
changes what the statement asks.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dpsql.errors import DataError, ProgrammingError

Parameters = Sequence[Any] | Mapping[str, Any]

PIECE = re.compile(
    r"""(?P<skip>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"""
    r"""|--[^\n]*|/\*.*?\*/|::)"""
    r"""|(?P<mark>\?)|(?P<named>(?<![\w:]):[A-Za-z_]\w*)|(?P<other>.)""",
    re.DOTALL,
)


def bind(sql: str, parameters: Parameters | None) -> str:
    """The statement with its placeholders replaced by literals.

    Args:
        sql: the statement; `?` marks are filled in order, `:name` marks by name.
        parameters: a sequence for `?`, a mapping for `:name`; None leaves the statement as it is.

    Returns:
        A statement without placeholders.

    Raises:
        ProgrammingError: too few or too many values, or an unknown name.
        DataError: a value that has no literal.

    >>> bind("SELECT COUNT(*) FROM t WHERE a = ? AND b = '?'", ["x' OR 1=1 --"])
    "SELECT COUNT(*) FROM t WHERE a = 'x'' OR 1=1 --' AND b = '?'"
    """
    if parameters is None:
        return sql
    if isinstance(parameters, Mapping):
        return _bind_named(sql, parameters)
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
        raise ProgrammingError(
            "parameters are neither a sequence nor a mapping", hint="pass a tuple or a dict"
        )
    waiting = list(parameters)
    parts = []
    for piece in PIECE.finditer(sql):
        if piece.lastgroup != "mark":
            parts.append(piece.group())
        elif waiting:
            parts.append(literal(waiting.pop(0)))
        else:
            raise ProgrammingError(f"there are more ? marks than values ({len(parameters)})")
    if waiting:
        marks = len(parameters) - len(waiting)
        raise ProgrammingError(f"there are {marks} ? marks and {len(parameters)} values")
    return "".join(parts)


def _bind_named(sql: str, parameters: Mapping[str, Any]) -> str:
    parts = []
    for piece in PIECE.finditer(sql):
        if piece.lastgroup != "named":
            parts.append(piece.group())
            continue
        name = piece.group()[1:]
        if name not in parameters:
            raise ProgrammingError(f"there is no value for :{name}", hint="add it to the mapping")
        parts.append(literal(parameters[name]))
    return "".join(parts)


def literal(value: Any) -> str:
    """A value as a SQL literal that stands for itself anywhere.

    Args:
        value: None, bool, int, float, Decimal, str, date, time, datetime, timedelta, or a list of them.

    Raises:
        DataError: any other type, a NUL character, or a number that is not finite.

    >>> literal(datetime.date(2025, 1, 31)), literal(-3), literal(["a", None])
    ("DATE '2025-01-31'", '(-3)', "('a', NULL)")
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if hasattr(value, "item") and not isinstance(value, datetime.date):
        value = value.item()  # a numpy scalar
    if isinstance(value, int | float | decimal.Decimal):
        return _number(value)
    if isinstance(value, str):
        if "\x00" in value:
            raise DataError("a text parameter holds a NUL character", hint="remove it")
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, datetime.time):
        return f"TIME '{value.isoformat()}'"
    if isinstance(value, datetime.timedelta):
        return f"INTERVAL '{value // datetime.timedelta(microseconds=1)}' MICROSECOND"
    if isinstance(value, list | tuple | set | frozenset) and value:
        return "(" + ", ".join(literal(item) for item in value) + ")"
    raise DataError(f"a parameter of type {type(value).__name__} has no SQL literal", hint="convert it first")


def _number(value: int | float | decimal.Decimal) -> str:
    if not isinstance(value, int) and not math.isfinite(value):
        raise DataError("a numeric parameter is not finite", hint="use None for a missing value")
    text = format(value, "f") if isinstance(value, decimal.Decimal) else repr(value)
    return f"({text})" if text.startswith("-") else text
