"""Typed errors that point into the statement: clause, position underlined, reason, nearest query that works."""

from __future__ import annotations

from typing import TypeVar

from dpsql.errors import Error
from dpsql.sql.node import Node

E = TypeVar("E", bound=Error)
Span = tuple[int, int]


def span(node: Node | None) -> Span | None:
    """First and last character of a node in the text it was parsed from, or None."""
    if node is None:
        return None
    starts, ends = [], []
    for part in node.walk():
        if "start" in part.meta and "end" in part.meta:
            starts.append(int(part.meta["start"]))
            ends.append(int(part.meta["end"]))
    return (min(starts), max(ends)) if starts else None


def refusal(
    kind: type[E],
    reason: str,
    *,
    clause: str = "",
    at: Node | None = None,
    where: Span | None = None,
    nearest: str = "",
    hint: str = "",
) -> E:
    """An error that knows its place; `pointed` adds the caret once the whole text is at hand.

    Args:
        kind: class of the error.
        reason: one line.
        clause: SELECT, FROM, WHERE ..
        at: the node to underline.
        where: or its characters.
        nearest: the nearest statement that works.
        hint: what to do; by default the nearest statement.

    Returns:
        The error, to be raised.
    """
    error = kind(
        " ".join(reason.split()), hint=" ".join((hint or (f"try {nearest}" if nearest else "")).split())
    )
    error.clause = clause
    error.position = where or span(at)
    error.nearest = nearest
    return error


def pointed(error: E, text: str) -> E:
    """The same error with the line of the statement and carets under its part.

    Args:
        error: an error, with or without a position.
        text: the statement.

    Returns:
        The error; its message stays one line.
    """
    if error.position is None or error.caret:
        return error
    start, end = error.position
    if not 0 <= start < len(text):
        return error
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", start)
    line = text[begin : stop if stop >= 0 else len(text)]
    width = max(1, min(end + 1, begin + len(line)) - start)
    error.caret = f"{line}\n{' ' * (start - begin)}{'^' * width}"
    return error
