"""Text into statements and commands: `;` ends a statement outside of quotes and comments, a line that
begins with a backslash or a dot is a command."""

from __future__ import annotations

import re
from typing import NamedTuple

TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|(?P<end>;)|(?P<open>'|"|/\*)|.""", re.DOTALL
)
LEADING = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
COMMAND = re.compile(r"\s*[\\.][A-Za-z?]")


class Piece(NamedTuple):
    """A statement without its `;`, or a command line."""

    text: str
    command: bool


def is_command(line: str) -> bool:
    """Whether a line, at the start of a statement, is a command.

    >>> is_command("\\\\d sales"), is_command(".tables"), is_command("SELECT .5")
    (True, True, False)
    """
    return COMMAND.match(line) is not None


def split(text: str) -> tuple[list[Piece], str]:
    """Whole pieces and what is left unfinished.

    Args:
        text: any number of lines.

    Returns:
        (pieces, rest); the rest is blank, comments, or a statement that has no `;` yet.

    >>> split("\\\\x\\nSELECT 1; SELECT ';")
    ([Piece(text='\\\\x', command=True), Piece(text='SELECT 1', command=False)], " SELECT ';")
    """
    pieces: list[Piece] = []
    while begun := text[LEADING.match(text).end() :]:  # type: ignore[union-attr]  # matches the empty text too
        if is_command(begun):
            line, _, text = begun.partition("\n")
            pieces.append(Piece(line.strip().rstrip(";").rstrip(), True))
            continue
        end = _end(begun)
        if end is None:
            break
        statement, text = begun[:end], begun[end + 1 :]
        if statement.strip():
            pieces.append(Piece(statement.strip(), False))
    return pieces, text


def _end(text: str) -> int | None:
    """Where the first `;` outside of quotes and comments stands."""
    for token in TOKEN.finditer(text):
        if token.lastgroup == "open":
            return None
        if token.lastgroup == "end":
            return token.start()
    return None


def unfinished(rest: str) -> str:
    """What is left after the last whole piece, without leading blanks and comments.

    >>> unfinished(" -- note"), unfinished("/* a */ SELECT 1")
    ('', 'SELECT 1')
    """
    begun = LEADING.match(rest)
    return rest[begun.end() if begun else 0 :].rstrip()
