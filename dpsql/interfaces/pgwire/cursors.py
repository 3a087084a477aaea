"""Cursors and COPY in SQL: DECLARE, FETCH, MOVE, CLOSE, and COPY (query) TO STDOUT.

| statement | |
|---|---|
| `DECLARE c [NO SCROLL] CURSOR [WITH HOLD] FOR SELECT ..` | the whole answer is kept until the cursor is closed |
| `FETCH [NEXT, PRIOR, FIRST, LAST, n, ALL, FORWARD n, BACKWARD n, ABSOLUTE n, RELATIVE n] FROM c` | rows |
| `MOVE ..` | the same without rows |
| `COPY (SELECT ..) TO STDOUT [WITH] (FORMAT text, csv or binary, HEADER, DELIMITER, NULL)` | rows as a file |
"""

from __future__ import annotations

import csv
import io
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpsql.errors import NotSupportedError
from dpsql.interfaces.pgwire.protocol import StatementRefused, WireColumn, as_binary, as_text, with_length
from dpsql.release.request import size_of

DECLARE = re.compile(
    r'DECLARE\s+(?P<name>"[^"]+"|\w+)\s+(?:BINARY\s+|ASENSITIVE\s+|INSENSITIVE\s+|NO\s+SCROLL\s+|SCROLL\s+)*CURSOR\s+'
    r"(?:(?P<hold>WITH\s+HOLD)\s+|WITHOUT\s+HOLD\s+)?FOR\s+(?P<query>.*)",
    re.IGNORECASE | re.DOTALL,
)
FETCH = re.compile(
    r"(?:FETCH|MOVE)\s+(?:(?P<way>NEXT|PRIOR|FIRST|LAST|FORWARD|BACKWARD|ABSOLUTE|RELATIVE)\s+)?"
    r'(?:(?P<count>ALL|[-+]?\d+)\s+)?(?:(?:FROM|IN)\s+)?(?P<name>"[^"]+"|\w+)',
    re.IGNORECASE,
)
COPY = re.compile(
    r"COPY\s*\((?P<query>.*)\)\s*TO\s+STDOUT\s*(?:WITH\s*)?(?P<options>.*)", re.IGNORECASE | re.DOTALL
)
ENDLESS = 1 << 40
SIGNATURE = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


CopyForm = tuple[str, bool, str, str]
"""Row format of COPY: `text`, `csv` or `binary`; whether a line of names comes first; what stands between values, and
for NULL."""


@dataclass(frozen=True)
class WireAnswer:
    """Rows with their columns, or a bare tag.

    Args:
        tag: what CommandComplete says, without the number of rows.
        columns: None for a bare tag.
        rows: Python values.
        flags: what the client is told beside the rows.
        standing: flags that other answers have too; a connection is told each once.
        copy: how the rows are written as a file; None for rows.
        reported: names and values of settings that have changed.
    """

    tag: str
    columns: tuple[WireColumn, ...] | None = None
    rows: Sequence[tuple[Any, ...]] = ()
    flags: tuple[str, ...] = ()
    standing: tuple[str, ...] = ()
    copy: CopyForm | None = None
    reported: tuple[tuple[str, str], ...] = ()


class DeclaredCursor:
    """A kept answer, and how many of its rows lie before the cursor's place: 0 before the first row; k on the k-th.

    Args:
        answer: with all its rows.
        hold: whether it outlives its transaction.
    """

    def __init__(self, answer: WireAnswer, hold: bool) -> None:
        self.answer, self.hold, self.place = answer, hold, 0
        self.size = size_of(answer.rows)

    def rows(self, way: str, count: str) -> Sequence[tuple[Any, ...]]:
        """Move as FETCH says; the rows on the way."""
        rows, total = self.answer.rows, len(self.answer.rows)
        number = ENDLESS if count == "ALL" else int(count or 1)
        if way in ("FIRST", "LAST", "ABSOLUTE", "RELATIVE"):
            target = {"FIRST": 1, "LAST": total, "RELATIVE": self.place + number}.get(way, number)
            target += total + 1 if way == "ABSOLUTE" and number < 0 else 0
            self.place = min(max(target, 0), total + 1)
            return rows[self.place - 1 : self.place] if 1 <= self.place <= total else ()
        if way in ("PRIOR", "BACKWARD") or number < 0:
            first = max(self.place - 1 - abs(number), 0)
            passed = rows[first : max(self.place - 1, 0)][::-1]
            self.place = first + 1 if len(passed) == abs(number) else 0
            return passed
        passed = rows[self.place : self.place + number]
        self.place = min(self.place + number, total + 1)
        return passed


def bare(name: str) -> str:
    """A name as it is kept: without quotes, or in lower case."""
    return name[1:-1] if name.startswith('"') else name.lower()


def copy_form(options: str) -> CopyForm:
    """The options behind TO STDOUT, in today's spelling or the old one.

    Raises:
        NotSupportedError: one that is not known here.

    >>> copy_form("(FORMAT csv, HEADER)"), copy_form("BINARY")[0]
    (('csv', True, ',', ''), 'binary')
    """
    words = re.findall(r"'(?:[^']|'')*'|\w+", options)
    form, header, delimiter, null = "text", False, None, None
    while words:
        word = words.pop(0).strip("'").upper()
        if word in ("FORMAT", "AS"):
            continue
        if word in ("TEXT", "CSV", "BINARY"):
            form = word.lower()
        elif word == "HEADER":
            header = not words or words[0].upper() not in ("FALSE", "OFF")
            words = words[1:] if words and words[0].upper() in ("TRUE", "ON", "FALSE", "OFF") else words
        elif word in ("DELIMITER", "NULL", "ENCODING", "QUOTE", "ESCAPE") and words:
            words = words[1:] if words[0].upper() == "AS" else words
            value = words.pop(0)[1:-1].replace("''", "'")
            delimiter, null = value if word == "DELIMITER" else delimiter, value if word == "NULL" else null
        else:
            raise NotSupportedError(f"COPY with {word} is not supported", hint="write (FORMAT csv, HEADER)")
    usual = (",", "") if form == "csv" else ("\t", "\\N")
    return form, header, delimiter or usual[0], usual[1] if null is None else null


def copied(columns: Sequence[WireColumn], rows: Sequence[tuple[Any, ...]], form: CopyForm) -> Iterator[bytes]:
    """Rows as COPY writes them, one piece a row."""
    kind, header, delimiter, null = form
    if kind == "binary":
        head = SIGNATURE
        for row in rows:
            raw = [as_binary(value, oid) for value, (_, oid, _) in zip(row, columns, strict=True)]
            yield head + struct.pack("!h", len(raw)) + b"".join(map(with_length, raw))
            head = b""
        yield head + struct.pack("!h", -1)
        return
    lines = [tuple(name for name, _, _ in columns)] if header else []
    for row in (*lines, *rows):
        texts = [None if (text := as_text(value)) is None else text.decode() for value in row]
        if kind == "csv":
            line = io.StringIO()
            writer = csv.writer(line, delimiter=delimiter, lineterminator="\n")
            writer.writerow([null if text is None else text for text in texts])
            yield line.getvalue().encode()
        else:
            words = (null if text is None else text.translate(ESCAPES) for text in texts)
            yield f"{delimiter.join(words)}\n".encode()


def no_cursor(name: str) -> StatementRefused:
    """There is no cursor of a name."""
    return StatementRefused("34000", f"there is no cursor {name}", hint="declare it first")
