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

from dpsql.catalog.source import DELTA, ICEBERG, SourceKind, expand
from dpsql.errors import SourceError
from dpsql.extras import extra


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
