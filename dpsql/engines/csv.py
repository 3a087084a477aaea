"""Rows of a CSV file, each read from its own line alone, under a dialect that the catalog declares.

Engines guess delimiter, quotes, header and line ends from the rows, and lose lines beside a broken one where their
buffers meet; one person's row would then decide how other people's rows are read. Here bytes are cut at every
newline first, whatever quotes say, and each line is taken or left out by a rule that looks at nothing else:

    left out    longer than `LONGEST` bytes, undecodable, with a NUL, an open quote, text after a closing quote, or
                another number of fields than the header
    skipped     empty lines

So a quoted field cannot hold a newline. Column names come from the first line, or from the catalog.

**Privacy**: raw. A line changes the rows that come from it and no other; in a private table no line is an error,
and no message holds a line's text.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import duckdb

from dpsql.catalog.source import Csv
from dpsql.errors import SourceError
from dpsql.row_expressions import identifier

LONGEST = 1 << 17
"""Bytes of the longest line that is read; Python's csv module takes no longer field."""

BLOCK = 1 << 22
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def load_csv(
    connection: duckdb.DuckDBPyConnection, target: str, file: Path, dialect: Csv, names: Sequence[str] = ()
) -> int:
    """Make a table of text columns from a CSV file.

    Args:
        connection: private connection.
        target: quoted name of the table to make.
        file: the CSV file.
        dialect: how its lines are written.
        names: column names, if the first line is a row and not a header.

    Returns:
        How many lines were left out.

    Raises:
        SourceError: the file cannot be opened, or its first line is no header.

    **Privacy**: raw; the number is for the curator, or for nobody.
    """
    try:
        with file.open("rb") as stream:
            if stream.read(len(BYTE_ORDER_MARK)) != BYTE_ORDER_MARK:
                stream.seek(0)
            columns = tuple(names) or _header(stream, file, dialect)
            connection.execute(
                f"CREATE TABLE {target} ({', '.join(f'{identifier(name)} VARCHAR' for name in columns)})"
            )
            return _fill(connection, target, len(columns), dialect, blocks_of_lines(stream))
    except OSError as error:
        raise SourceError(f"{file.name} cannot be read ({type(error).__name__})") from error


def blocks_of_lines(stream: IO[bytes], block: int = BLOCK) -> Iterator[list[bytes]]:
    """The lines of a file, many at a time; of a line that is too long only its beginning is kept.

    Args:
        stream: a binary file.
        block: bytes read at a time.

    Yields:
        Lines without their newline.

    >>> import io
    >>> list(blocks_of_lines(io.BytesIO(b"a\\nbc\\nd"), 3))
    [[b'a'], [b'bc'], [b'd']]
    """
    begun = b""
    while read := stream.read(block):
        complete, newline, tail = read.rpartition(b"\n")
        if newline:
            yield (begun + complete).split(b"\n")
            begun = tail
        else:
            begun = (begun + tail)[: LONGEST + 1]
    if begun:
        yield [begun]


def parse_lines(lines: Iterable[bytes], width: int, dialect: Csv) -> tuple[list[str], int]:
    """The fields of every line that holds a whole row, row by row, and how many lines no row could be made of.

    Args:
        lines: lines without their newline.
        width: number of columns.
        dialect: how they are written.

    >>> parse_lines([b'1,"a, b"', b'2,"open', b'3,plain', b'4,5,6'], 2, Csv())
    (['1', 'a, b', '3', 'plain'], 2)
    """
    flat: list[str] = []
    left_out = 0
    for line in lines:
        if line in (b"", b"\r"):
            continue
        row = _row(line, dialect)
        if row is not None and len(row) == width:
            flat += row
        else:
            left_out += 1
    return flat, left_out


def _row(line: bytes, dialect: Csv) -> list[str] | None:
    """The fields of one line, or None where it is no row."""
    if len(line) > LONGEST or b"\0" in line:
        return None
    try:
        text = line.removesuffix(b"\r").decode(dialect.encoding)
        if "\r" not in text and dialect.quote not in text and dialect.escape not in text:
            return text.split(dialect.delimiter)
        doubled = dialect.escape == dialect.quote
        reader = csv.reader(
            (text,),
            delimiter=dialect.delimiter,
            quotechar=dialect.quote,
            doublequote=doubled,
            escapechar=None if doubled else dialect.escape,
            strict=True,
        )
        return next(reader)
    except (UnicodeDecodeError, csv.Error):
        return None


def _header(stream: IO[bytes], file: Path, dialect: Csv) -> tuple[str, ...]:
    """Column names from the first line."""
    names = _row(stream.readline(LONGEST + 1).removesuffix(b"\n"), dialect) or []
    distinct = {name.lower() for name in names}
    if not names or "" in distinct or len(distinct) < len(names):
        raise SourceError(
            f"the first line of {file.name} names no columns, or one of them twice",
            hint="give each column a name of its own (case is ignored), and write source.csv as the file is "
            "written; source.csv.columns names columns of a file without a header",
        )
    return tuple(names)


def _fill(
    connection: duckdb.DuckDBPyConnection,
    target: str,
    width: int,
    dialect: Csv,
    blocks: Iterable[list[bytes]],
) -> int:
    """Insert the rows of all lines; no field holds a newline, so a column travels as one text."""
    left_out = 0
    values = ", ".join(f"nullif(unnest(string_split(${i + 1}, chr(10))), ${width + 1})" for i in range(width))
    for lines in blocks:
        fields, unread = parse_lines(lines, width, dialect)
        left_out += unread
        if fields:
            columns = ["\n".join(fields[i::width]) for i in range(width)]
            connection.execute(f"INSERT INTO {target} SELECT {values}", [*columns, dialect.null])
    return left_out
