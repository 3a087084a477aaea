"""Rows of files: a CSV file's, each read from its own line alone, and those of a pinned snapshot of a lake's table.

**CSV.** Engines guess delimiter, quotes, header and line ends from the rows, and lose lines beside a broken one where
their buffers meet; one person's row would then decide how other people's rows are read. Here bytes are cut at every
newline first, whatever quotes say, and each line is taken or left out by a rule that looks at nothing else:

    left out    longer than `LONGEST` bytes, undecodable, with a NUL, an open quote, text after a closing quote, or
                another number of fields than the header
    skipped     empty lines

So a quoted field cannot hold a newline. Column names come from the first line, or from the catalog.

**Privacy**: raw. A line changes the rows that come from it and no other; in a private table no line is an error,
and no message holds a line's text.

**Lakes.** One snapshot of a Delta or Iceberg table becomes a private Parquet file, read like any other from there on.
A place is a folder and what pins its rows: `sales@12` is version 12 of a Delta table, `sales@3951242743944688636` that
snapshot of an Iceberg table. Nothing but the pin decides which rows are read: a table that is written meanwhile, or was
written since, is the same one here.

    Delta      the files that the version's log names, and the values of its partition columns. What the log says of a
               file's other columns (least, largest, how many NULLs) is not believed: a row would then be read otherwise
               because of what a writer worked out from its neighbours
    Iceberg    a scan of the snapshot by the schema that it was written with, rows that were deleted left out

Tables lie on disk. What the libraries do not read of the formats, such as deletion vectors, they refuse.

**Privacy**: sees raw rows. Errors name the table, the pin and the kind of error, never a library's words.
**Source**: docs/engines.md, "Lakes".
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import duckdb

from dpsql.catalog.source import DELTA, ICEBERG, Csv, SourceKind, expand
from dpsql.errors import SourceError, visible
from dpsql.extras import extra
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
    """Column names from the first line; R and pandas write row numbers into a first column without a name."""
    names = _row(stream.readline(LONGEST + 1).removesuffix(b"\n"), dialect) or []
    if names[1:] and not names[0]:
        names[0] = "row_number"
    distinct = {name.lower() for name in names}
    if not file.stat().st_size:
        raise SourceError(f"{file.name} is empty", hint="its first line names its columns")
    if not names or "" in distinct or len(distinct) < len(names):
        twice = next((name for i, name in enumerate(names) if name.lower() in map(str.lower, names[:i])), "")
        wrong = f"names {visible(twice)!r} twice" if twice else "leaves a column without a name"
        raise SourceError(
            f"the first line of {file.name} {wrong}",
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


def snapshot_of(table: str, place: str) -> tuple[str, int]:
    """A place of a lake, variables put in.

    Returns:
        (folder below the source's root, Delta's version or Iceberg's snapshot id).

    Raises:
        SourceError: it pins no snapshot.

    >>> snapshot_of("sales", "shop/sales@12")
    ('shop/sales', 12)
    """
    folder, at, number = place.rpartition("@")
    if not at or not folder or not number.isascii() or not number.isdecimal() or len(number) > 19:
        raise SourceError(
            f"source.tables.{table}: no snapshot is pinned",
            hint="write `folder@N`: the version of a Delta table, or the snapshot id of an Iceberg table",
        )
    return folder, int(number)


def write_snapshot(kind: SourceKind, root: Path, table: str, place: str, file: Path) -> None:
    """Write the rows of a snapshot into a Parquet file.

    Args:
        kind: `delta` or `iceberg`.
        root: of the source.
        table: whose rows they are, for messages.
        place: the snapshot, as the catalog writes it.
        file: to make.

    Raises:
        InterfaceError: the library is not installed.
        SourceError: there is no such table or snapshot, or the library cannot read it.
    """
    folder, pin = snapshot_of(table, expand(place))
    extra("arrow")
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetWriter

    own = (extra("delta").exceptions.DeltaError,) if kind is DELTA else ()
    try:
        batches = READERS[kind](root / folder, pin)
        with ParquetWriter(file, batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    except (ArrowException, OSError, ValueError, NotImplementedError, *own) as error:
        # the place as it is written, not what ${NAME} stands for; a library's own words may quote a value
        lacks = "" if (root / folder).is_dir() else ": there is no such folder below source.root"
        raise SourceError(
            f"source.tables.{table}: snapshot {place} cannot be read ({type(error).__name__}){lacks}",
            hint="name one that the table still has, and that its library can read",
        ) from None


Batches = Any
"""A reader of Arrow's record batches."""


def _delta_batches(folder: Path, version: int) -> Batches:
    from pyarrow import RecordBatchReader, dataset

    opened = extra("delta").DeltaTable(str(folder), version=version)
    whole, partitions = opened.to_pyarrow_dataset(), opened.metadata().partition_columns
    fragments = [
        whole.format.make_fragment(
            fragment.path, fragment.filesystem, _partition(fragment.partition_expression, partitions)
        )
        for fragment in whole.get_fragments()
    ]
    plain = dataset.FileSystemDataset(fragments, whole.schema, whole.format, whole.filesystem)
    return RecordBatchReader.from_batches(whole.schema, plain.to_batches())


def _partition(stated: Any, partitions: Iterable[str]) -> Any:
    """Value of a partition column in a log entry.

    Raises:
        ValueError: it does not say one of them; the column would be NULL in silence.
    """
    from pyarrow import dataset

    values, alone = dataset.get_partition_keys(stated), dataset.scalar(True)
    for name in partitions:
        if name not in values:
            raise ValueError(name)
        field = dataset.field(name)
        alone = alone & (field.is_null() if values[name] is None else field == values[name])
    return alone


def _iceberg_batches(folder: Path, snapshot: int) -> Batches:
    written = sorted((folder / "metadata").glob("*.metadata.json"), reverse=True)
    tables = (extra("iceberg").StaticTable.from_metadata(str(file)) for file in written)
    # a snapshot never changes: any metadata that knows it will do
    knowing = next((opened for opened in tables if opened.snapshot_by_id(snapshot) is not None), None)
    if knowing is None:
        raise ValueError(snapshot)
    return knowing.scan(snapshot_id=snapshot).to_arrow_batch_reader()


READERS: Mapping[SourceKind, Callable[[Path, int], Batches]] = {
    DELTA: _delta_batches, ICEBERG: _iceberg_batches,
}  # fmt: skip
"""Kind of lake -> what reads it: (folder, pin)."""
