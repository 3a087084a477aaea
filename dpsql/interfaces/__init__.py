"""Interfaces for people and programs: command line, shell, DB-API, SQLAlchemy, Superset, the wire, a report.

An interface holds no method of its own: it asks `dpsql.api` or an open session and shows what comes back.
"""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines of left-aligned columns, two blanks apart.

    >>> aligned([("a", "bb"), ("xxx", "y")])
    ['a    bb', 'xxx  y']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
