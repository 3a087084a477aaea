"""Completion: commands after a backslash, else SQL words, tables, columns, functions and category values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from dpsql.answer.errorfunctions import ERRORS
from dpsql.answer.output import STYLES
from dpsql.doors.shell.commands import NAMES, State

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


@dataclass(frozen=True)
class Words:
    """What the open releases offer.

    Args:
        tables: name -> comment.
        columns: name -> comment.
        owned: table -> its columns.
        values: column -> its categories.
    """

    tables: dict[str, str]
    columns: dict[str, str]
    owned: dict[str, tuple[str, ...]]
    values: dict[str, tuple[str, ...]]


def words_of(state: State) -> Words:
    """Collect the words of all open releases."""
    found = Words({}, {}, {}, {})
    for _, table in state.tables():
        found.tables[table.name] = table.comment
        found.owned[table.name.lower()] = tuple(c.name for c in table.columns)
        for column in table.columns:
            found.columns.setdefault(column.name, f"{column.type}, {column.comment}")
            if column.values:
                found.values.setdefault(column.name.lower(), column.values)
    return found


class ShellCompleter(Completer):
    """prompt_toolkit's completer over a set of words."""

    def __init__(self, words: Words) -> None:
        self.words = words

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Completions of the word before the cursor."""
        before = document.text_before_cursor
        if before.lstrip()[:1] in ("\\", "."):
            yield from self._commands(before.lstrip())
            return
        quoted = QUOTED.search(before)
        if quoted:
            yield from self._values(before, quoted.group(1))
            return
        match = WORD.search(before)
        word = match.group() if match else ""
        owner, dot, part = word.rpartition(".")
        if dot:
            names = self.words.owned.get(owner.lower().split(".")[-1], ())
            yield from _offer(part, {name: self.words.columns.get(name, "") for name in names})
        elif AFTER_TABLE_WORD.search(before):
            yield from _offer(word, self.words.tables)
        elif word:
            offered = {
                **self.words.columns,
                **self.words.tables,
                **dict.fromkeys((*FUNCTIONS, *(f"{name.upper()}(" for name in ERRORS), *KEYWORDS), ""),
            }
            yield from _offer(word, offered)

    def _commands(self, line: str) -> Iterable[Completion]:
        word, space, rest = line[1:].partition(" ")
        if not space:
            yield from _offer(word, dict.fromkeys(NAMES, ""))
        elif word in ("d", "dt"):
            yield from _offer(rest, self.words.tables)
        elif word in ("format", "mode"):
            yield from _offer(rest, dict.fromkeys(STYLES, ""))

    def _values(self, before: str, part: str) -> Iterable[Completion]:
        compared = COMPARED.search(before)
        column = compared.group(1).replace('"', "").split(".")[-1].lower() if compared else ""
        yield from _offer(part, dict.fromkeys(self.words.values.get(column, ()), column))


def _offer(part: str, words: dict[str, str]) -> Iterable[Completion]:
    for word, comment in words.items():
        if word.lower().startswith(part.lower()):
            yield Completion(word, start_position=-len(part), display_meta=comment)
