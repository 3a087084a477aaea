"""SQL as people and drivers type it, before any parser: where statements end, and where placeholders stand.

A scanner, not a search: what stands inside quotes or comments is copied as it is. `;` outside of them ends a
statement; a line that begins with a backslash or a dot is a command of the shell. A parameter is written as a
literal of its type and can end neither its quotes nor the token it stands in, so it never changes what is asked.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dpsql.errors import DataError, ProgrammingError

Parameters = Sequence[Any] | Mapping[str, Any]

TOKEN = re.compile(
    r"""(?P<skip>(?<!\w)[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|::"""
    r"""|\$(?P<tag>(?:[A-Za-z_]\w*)?)\$.*?\$(?P=tag)\$)"""
    r"""|(?P<end>;)|(?P<open>'|"|/\*|\$(?:[A-Za-z_]\w*)?\$)"""
    r"""|(?P<mark>\?)|(?P<named>(?<![\w:]):[A-Za-z_]\w*)|(?P<number>(?<![\w$])\$\d+)|(?P<other>\w+|[\s(),.=<>+*]+|.)""",
    re.DOTALL,
)
LEADING = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
COMMAND = re.compile(r"\s*(?:[\\.][A-Za-z?]|(?:help|quit|exit)[ \t]*;?[ \t]*(?:\n|$))", re.IGNORECASE)


class InputPiece(NamedTuple):
    """A statement without its `;`, or a command line."""

    text: str
    command: bool


def is_command(line: str) -> bool:
    """True if a line, at the start of a statement, is a command.

    >>> is_command("\\\\d sales"), is_command(".tables"), is_command("help"), is_command("help me")
    (True, True, True, False)
    """
    return COMMAND.match(line) is not None


def split(text: str) -> tuple[list[InputPiece], str]:
    """Whole pieces and what is left unfinished.

    Args:
        text: any number of lines.

    Returns:
        (pieces, rest); the rest is blank, comments, or a statement that has no `;` yet.

    >>> split("\\\\x\\nSELECT 1; SELECT ';")
    ([InputPiece(text='\\\\x', command=True), InputPiece(text='SELECT 1', command=False)], " SELECT ';")
    """
    pieces: list[InputPiece] = []
    while begun := text[LEADING.match(text).end() :]:  # type: ignore[union-attr]  # matches the empty text too
        if is_command(begun):
            line, _, text = begun.partition("\n")
            pieces.append(InputPiece(line.strip().rstrip(";").rstrip(), True))
            continue
        end = _end(begun)
        if end is None:
            break
        statement, text = begun[:end], begun[end + 1 :]
        if statement.strip():
            pieces.append(InputPiece(statement.strip(), False))
    return pieces, text


def _end(text: str) -> int | None:
    """Position of the first `;` outside of quotes and comments; none after quotes that are still open."""
    for token in TOKEN.finditer(text):
        if token.lastgroup == "open":
            return None
        if token.lastgroup == "end":
            return token.start()
    return None


def unfinished(rest: str) -> str:
    """Rest after the last whole piece, without leading blanks and comments.

    >>> unfinished(" -- note"), unfinished("/* a */ SELECT 1")
    ('', 'SELECT 1')
    """
    begun = LEADING.match(rest)
    return rest[begun.end() if begun else 0 :].rstrip()


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
        pieces = []
        for token in TOKEN.finditer(sql):
            if token.lastgroup != "named":
                pieces.append(token.group())
                continue
            name = token.group()[1:]
            if name not in parameters:
                raise ProgrammingError(f"there is no value for :{name}", hint="add it to the mapping")
            pieces.append(literal(parameters[name]))
        return "".join(pieces)
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
        raise ProgrammingError(
            "parameters are neither a sequence nor a mapping", hint="pass a tuple or a dict"
        )
    waiting = list(parameters)
    pieces = []
    for token in TOKEN.finditer(sql):
        if token.lastgroup != "mark":
            pieces.append(token.group())
        elif waiting:
            pieces.append(literal(waiting.pop(0)))
        else:
            raise ProgrammingError(f"there are more ? marks than values ({len(parameters)})")
    if waiting:
        marks = len(parameters) - len(waiting)
        raise ProgrammingError(f"there are {marks} ? marks and {len(parameters)} values")
    return "".join(pieces)


def placeholders(sql: str) -> int:
    """The largest `$n` outside of quotes."""
    return max((int(t.group()[1:]) for t in TOKEN.finditer(sql) if t.lastgroup == "number"), default=0)


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
        if not isinstance(value, int) and not math.isfinite(value):
            raise DataError("a numeric parameter is not finite", hint="use None for a missing value")
        text = format(value, "f") if isinstance(value, decimal.Decimal) else repr(value)
        return f"({text})" if text.startswith("-") else text
    if isinstance(value, str):
        if "\x00" in value:
            raise DataError("a text parameter contains a NUL character", hint="remove it")
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
        return "(" + ", ".join(literal(element) for element in value) + ")"
    raise DataError(f"a parameter of type {type(value).__name__} has no SQL literal", hint="convert it first")
