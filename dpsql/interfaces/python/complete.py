"""Completion of SQL: keywords, tables, columns, functions and category values, for interfaces where people type.

The words come from a release's public catalog; nothing is asked of its numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from dpsql.interfaces.python.describe import TableInfo
from dpsql.intervals.errorfunctions import ERRORS

KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "OFFSET", "JOIN", "LEFT JOIN"),
    *("USING", "ON", "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "CASE", "WHEN"),
    *("THEN", "ELSE", "END", "AS", "DISTINCT", "WITH", "UNION ALL", "ASC", "DESC", "FILTER"),
)
FUNCTIONS = (
    *("COUNT(", "SUM(", "AVG(", "MIN(", "MAX(", "MEDIAN(", "DATE_TRUNC(", "EXTRACT(", "YEAR(", "MONTH("),
    *("FLOOR(", "ROUND(", "COALESCE("),
)
QUOTED = re.compile(r"(?:^|[^'])'([^']*)$")
COMPARED = re.compile(
    r"([\w.\"]+)\s*(?:=|<>|!=|(?:NOT\s+)?(?:I?LIKE|IN\s*\((?:\s*'[^']*'\s*,)*))\s*'[^']*$", re.I
)
WORD = re.compile(r"[\w.]*$")
AFTER_TABLE_WORD = re.compile(r"\b(?:FROM|JOIN)\s+[\w.]*$", re.IGNORECASE)


class Words:
    """Completions that the open releases offer: tables and columns with their comments, columns of each table, and
    categories of columns.

    Args:
        tables: of the releases.
    """

    def __init__(self, tables: Iterable[TableInfo]) -> None:
        self.tables: dict[str, str] = {}
        self.columns: dict[str, str] = {}
        self.owned: dict[str, tuple[str, ...]] = {}
        self.values: dict[str, tuple[str, ...]] = {}
        for table in tables:
            self.tables[table.name] = table.comment
            self.owned[table.name.lower()] = tuple(c.name for c in table.columns)
            for column in table.columns:
                self.columns.setdefault(column.name, f"{column.type}, {column.comment}")
                if column.values:
                    self.values.setdefault(column.name.lower(), column.values)


Suggestion = tuple[str, int, str]
"""A word that may stand there, how many characters before the cursor it replaces, and what it is."""


def complete(words: Words, before: str) -> Iterator[Suggestion]:
    """Words that may go on from the text before the cursor.

    Args:
        words: of the open releases.
        before: a statement up to the cursor.

    Yields:
        Category values inside a quoted text, a table's columns after its name and a dot, tables after FROM and JOIN;
        elsewhere columns, tables, functions and keywords.

    >>> words = Words([])
    >>> words.tables["sales"], words.columns["sold_on"], words.owned["sales"] = "", "DATE", ("sold_on",)
    >>> [word for word, _, _ in complete(words, "SELECT s")]
    ['sold_on', 'sales', 'SUM(', 'SELECT']
    """
    quoted = QUOTED.search(before)
    if quoted:
        compared = COMPARED.search(before)
        column = compared.group(1).replace('"', "").split(".")[-1].lower() if compared else ""
        yield from offered(quoted.group(1), dict.fromkeys(words.values.get(column, ()), column))
        return
    match = WORD.search(before)
    word = match.group() if match else ""
    owner, dot, prefix = word.rpartition(".")
    if dot:
        names = words.owned.get(owner.lower().split(".")[-1], ())
        yield from offered(prefix, {name: words.columns.get(name, "") for name in names})
    elif AFTER_TABLE_WORD.search(before):
        yield from offered(word, words.tables)
    elif word:
        functions = (*FUNCTIONS, *(f"{name.upper()}(" for name in ERRORS))
        yield from offered(
            word, {**words.columns, **words.tables, **dict.fromkeys((*functions, *KEYWORDS), "")}
        )


def offered(part: str, words: Mapping[str, str]) -> Iterator[Suggestion]:
    """Those of some words, with their comments, that begin with what was typed, in any case."""
    for word, comment in words.items():
        if word.lower().startswith(part.lower()):
            yield word, len(part), comment
