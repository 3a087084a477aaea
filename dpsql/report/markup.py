"""The page's one building block: a table of text, escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """An HTML table.

    Args:
        head: names of the columns.
        rows: their cells, as text.

    Example:
        >>> table(("a",), [("<1",)])
        '<table><tr><th>a</th></tr><tr><td>&lt;1</td></tr></table>'
    """

    def line(tag: str, cells: tuple[str, ...]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{line('th', head)}{''.join(line('td', row) for row in rows)}</table>"
