"""One snapshot of a Delta or Iceberg table as a private Parquet file, which is read like any other from there on.

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

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dpsql.errors import SourceError
from dpsql.extras import extra
from dpsql.star.source import DELTA, ICEBERG, SourceKind


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
        place: the snapshot, as `snapshot_of` reads it.
        file: to make.

    Raises:
        InterfaceError: the library is not installed.
        SourceError: there is no such table or snapshot, or the library cannot read it.
    """
    folder, pin = snapshot_of(table, place)
    extra("arrow")
    from pyarrow.parquet import ParquetWriter

    batches, failures = READERS[kind](table, root / folder, pin)
    try:
        with ParquetWriter(file, batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    except failures as error:
        raise SourceError(
            f"source.tables.{table} cannot be read ({type(error).__name__})",  # their words may quote a value
            hint="were files of the snapshot removed? name one that the table still has",
        ) from None


Batches = Any
"""A reader of Arrow's record batches."""

Failures = tuple[type[BaseException], ...]
"""What a library raises where it cannot read."""


def _delta_batches(table: str, folder: Path, version: int) -> tuple[Batches, Failures]:
    deltalake = extra("delta")
    from deltalake.exceptions import DeltaError
    from pyarrow import ArrowException, RecordBatchReader, dataset

    failures = (DeltaError, ArrowException, OSError, ValueError)
    try:
        opened = deltalake.DeltaTable(str(folder), version=version)
        whole = opened.to_pyarrow_dataset()
        partitions = opened.metadata().partition_columns
        fragments = [
            whole.format.make_fragment(
                fragment.path, fragment.filesystem, _partition(fragment.partition_expression, partitions)
            )
            for fragment in whole.get_fragments()
        ]
    except failures as error:
        raise _not_there(table, folder, version, error) from None
    plain = dataset.FileSystemDataset(fragments, whole.schema, whole.format, whole.filesystem)
    return RecordBatchReader.from_batches(whole.schema, plain.to_batches()), failures


def _partition(stated: Any, partitions: Iterable[str]) -> Any:
    """What a log says of a file, as far as it is the value of a partition column."""
    from pyarrow import dataset

    values = dataset.get_partition_keys(stated)
    alone = dataset.scalar(True)
    for name in partitions:
        if name not in values:
            raise ValueError(name)  # else the column would be NULL in silence
        field = dataset.field(name)
        alone = alone & (field.is_null() if values[name] is None else field == values[name])
    return alone


def _iceberg_batches(table: str, folder: Path, snapshot: int) -> tuple[Batches, Failures]:
    iceberg = extra("iceberg")
    from pyarrow import ArrowException

    failures = (ArrowException, OSError, ValueError, NotImplementedError)
    try:
        written = sorted((folder / "metadata").glob("*.metadata.json"), reverse=True)
        tables = (iceberg.StaticTable.from_metadata(str(file)) for file in written)
        # a snapshot never changes: any metadata that knows it will do
        knowing = next((opened for opened in tables if opened.snapshot_by_id(snapshot) is not None), None)
        reader = None if knowing is None else knowing.scan(snapshot_id=snapshot).to_arrow_batch_reader()
    except failures as error:
        raise _not_there(table, folder, snapshot, error) from None
    if reader is None:
        raise _not_there(table, folder, snapshot, None)
    return reader, failures


READERS: Mapping[SourceKind, Callable[[str, Path, int], tuple[Batches, Failures]]] = {
    DELTA: _delta_batches, ICEBERG: _iceberg_batches,
}  # fmt: skip
"""Kind of lake -> what reads it: (table, folder, pin)."""


def _not_there(table: str, folder: Path, pin: int, error: BaseException | None) -> SourceError:
    why = "" if error is None else f" ({type(error).__name__})"
    if not folder.is_dir():
        return SourceError(f"source.tables.{table}: there is no folder {folder.name} below source.root")
    return SourceError(
        f"source.tables.{table}: there is no snapshot {pin} that can be read{why}",
        hint="name one that the table still has, and that its library can read",
    )
