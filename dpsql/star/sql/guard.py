"""Limits on a statement's text, checked before a parser sees it.

Every limit was set where parsing is still safe and quick: the parser recurses on brackets, and
bidirectional control characters make a statement read otherwise than it runs.

**Source** docs/method/reliability.md, "Guards before SQL is parsed".
"""

from __future__ import annotations

import re

from dpsql.errors import SqlSyntaxError

MAX_BYTES = 64 * 1024
MAX_DEPTH = 32
MAX_TOKENS = 10_000
MAX_IN_ITEMS = 1_000

BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
PREFIXES = frozenset({"not", "-", "+", "~"})
PIECE = re.compile(
    r"""(?P<skip>'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|/\*.*?\*/)"""
    r"""|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<word>[\w$.]+)|(?P<other>[^\s\w])""",
    re.DOTALL,
)


def check_text(text: str) -> str:
    """The text, if it is within all limits.

    Args:
        text: one SQL statement.

    Returns:
        The same text.

    Raises:
        SqlSyntaxError: too long, not valid Unicode, too deep, too many tokens or IN items.

    >>> check_text("SELECT 1")
    'SELECT 1'
    """
    if not isinstance(text, str):
        raise SqlSyntaxError("the statement is not text", hint="pass a str")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise SqlSyntaxError("the statement holds a lone surrogate", hint="send valid UTF-8") from error
    if size > MAX_BYTES:
        raise SqlSyntaxError(f"the statement has {size} bytes, the limit is {MAX_BYTES}", hint="shorten it")
    if "\x00" in text:
        raise SqlSyntaxError("the statement holds a NUL character", hint="remove it")
    if match := BIDI.search(text):
        name = f"U+{ord(match.group()):04X}"
        raise SqlSyntaxError(
            f"character {match.start() + 1} is the bidirectional control {name}", hint="remove it"
        )
    if not text.strip():
        raise SqlSyntaxError("the statement is empty", hint="write SELECT COUNT(*) FROM a table")
    _check_shape(text)
    return text


def _check_shape(text: str) -> None:
    """Bracket depth, tokens and list lengths, outside of strings and comments."""
    tokens, items, prefixes, cases = 0, [0], 0, 0
    for piece in PIECE.finditer(text):
        kind, word = piece.lastgroup, piece.group().lower()
        tokens += 1
        if kind == "open":
            items.append(0)
        elif kind == "close":
            items = items[:-1] or [0]
        elif word == ",":
            items[-1] += 1
        prefixes = prefixes + 1 if word in PREFIXES else 0
        cases = max(0, cases + (word == "case") - (word == "end"))
        if max(len(items) - 1, prefixes, cases) > MAX_DEPTH:
            raise SqlSyntaxError(f"the statement nests deeper than {MAX_DEPTH} levels", hint="flatten it")
        if items[-1] >= MAX_IN_ITEMS:
            raise SqlSyntaxError(f"a list has more than {MAX_IN_ITEMS} items", hint="use a range")
    if tokens > MAX_TOKENS:
        raise SqlSyntaxError(f"the statement has more than {MAX_TOKENS} tokens", hint="split it")
