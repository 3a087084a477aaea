"""Aimed neighbours as catalogs and rows: what tests hand to the measurement that ships (`dpsql.curator.prove`).

    measure(catalog, left, right, folder)               a central release
    measure(..., batches=["2025-01-01", ..])            a stream, all its batches together
    measure_sources(catalog, write, write, folder)      rows in a database, in several files, ..

A table is `RawRows`, or `Bytes` of a file as somebody may have written it. A table named `sales@2025-01-02` is the
file of its own that the batch of that label brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.catalog import Catalog, load_catalog
from dpsql.catalog.source import Source
from dpsql.curator.prove.layouts import RawRows, write_tables
from dpsql.curator.prove.loss import Distinguished, DrawLoss, Loss, Publish, record_pair
from dpsql.curator.prove.madeup import KEY, LATER, NeighbourSide, measure_pair
from dpsql.streams.publish import Arrival
from tests.releases import headed

__all__ = [
    "KEY", "Bytes", "Distinguished", "DrawLoss", "Loss", "RawRows", "Tables", "Written", "loss_of", "measure",
    "measure_sources", "write_side",
]  # fmt: skip


class Bytes(NamedTuple):
    """A raw table as the bytes of its file.

    Args:
        file: its name in the source's root.
        content: all of it.
    """

    file: str
    content: bytes


Tables = Mapping[str, RawRows | Bytes]
Written = Callable[[Path, Catalog], dict[str, Any]]


def measure(
    catalog: str, left: Tables, right: Tables, folder: Path, *, batches: Sequence[str] = (), seed: int = 0
) -> Loss:
    """Publish two data sets end to end and measure what tells them apart.

    Args:
        catalog: its text, but for what `headed` adds; ROOT is the folder of a Parquet file for each of `RawRows`.
        left, right: the raw tables of the two neighbours.
        folder: an empty folder.
        batches: labels of the batches of a stream, in order.
        seed: of the noise.

    Returns:
        Exact losses by draw, and what the ledger was charged.

    Raises:
        Distinguished: something but noisy numbers differs.
    """
    sides = []
    for name, tables in (("left", left), ("right", right)):
        place = write_side(folder / name, catalog, tables)
        arrivals = tuple(Arrival(label, _own_file(place, tables, label), LATER) for label in batches)
        sides.append(NeighbourSide(load_catalog(place / "catalog.yaml"), place / "release.dpsql", arrivals))
    return measure_pair(*sides, seed).loss


def measure_sources(
    catalog: str, left: Written, right: Written, folder: Path, *, batches: Sequence[str] = (), seed: int = 0
) -> Loss:
    """The same of sides whose rows lie in any source.

    Args:
        catalog: its text, with a source or without; ROOT is the folder of a side.
        left, right: write the rows of a side, given its folder and its catalog, and return the source that reads them.
        folder, batches, seed: as of `measure`; the rows of all batches lie in the source.
    """
    sides = []
    for name, write in (("left", left), ("right", right)):
        place = folder / name
        place.mkdir(parents=True)
        text = catalog.replace("ROOT", str(place)).replace("LEDGER", str(place / "ledger.duckdb"))
        (place / "catalog.yaml").write_text(text)
        known = load_catalog(place / "catalog.yaml")
        source = Source.model_validate(write(place, known))
        arrivals = tuple(Arrival(label, None, LATER) for label in batches if known.stream is not None)
        sides.append(
            NeighbourSide(known.model_copy(update={"source": source}), place / "release.dpsql", arrivals)
        )
    return measure_pair(*sides, seed).loss


def loss_of(left: Publish, right: Publish, seed: int = 0) -> tuple[DrawLoss, ...]:
    """The losses of two publishes, each given a source of noise."""
    return record_pair(left, right, seed).losses


def write_side(place: Path, catalog: str, tables: Tables) -> Path:
    """Write the raw tables and the catalog of one side."""
    write_tables(place, {name: table for name, table in tables.items() if isinstance(table, RawRows)})
    for table in tables.values():
        if isinstance(table, Bytes):
            (place / table.file).write_bytes(table.content)
    files = {
        name: table.file if isinstance(table, Bytes) else f"{name}.parquet"
        for name, table in tables.items()
        if "@" not in name
    }
    text = headed(catalog, files).replace("ROOT", str(place)).replace("LEDGER", str(place / "ledger.duckdb"))
    (place / "catalog.yaml").write_text(text)
    return place


def _own_file(place: Path, tables: Tables, label: str) -> Path | None:
    """The file that a batch brings, if one is written for it."""
    for name, table in tables.items():
        if name.endswith(f"@{label}"):
            return place / (table.file if isinstance(table, Bytes) else f"{name}.parquet")
    return None
