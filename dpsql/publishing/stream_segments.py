"""Segment files of a stream release: the noisy numbers of one batch, written once.

| segment column | meaning                                                          |
|----------------|------------------------------------------------------------------|
| statistic      | position in the release's list of statistics                     |
| level          | size class of the time node, 0 the finest                        |
| lo, hi         | the batches [lo, hi) that the number covers                      |
| cell           | row of the other axes' strategy, flat, in C order                |
| value          | the noisy integer as drawn (BIGINT)                              |

**Privacy**: everything here was noised before it came here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.ledger.files import file_hash, sync
from dpsql.publishing.stream_manifest import PUBLIC_FILE, SEGMENTS, Manifest, Segment, check_segment, expand

SCHEMA = {
    "statistic": "INTEGER",
    "level": "INTEGER",
    "lo": "BIGINT",
    "hi": "BIGINT",
    "cell": "BIGINT",
    "value": "BIGINT",
}

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class NoisyNode:
    """One noisy sum per cell of one statistic: int64[cells] over the batches [lo, hi)."""

    statistic: int
    level: int
    lo: int
    hi: int
    values: IntArray


def write_segment(directory: Path, batch: int, nodes: Sequence[NoisyNode]) -> Segment:
    """Write the segment of one batch: fresh file, fsync, mode 0444, rename. The manifest is not touched.

    A left-over of an unfinished append is replaced: it held the same stored values and no manifest names it.
    """
    name = f"{SEGMENTS}/{batch:09d}.parquet"
    fresh = directory / (name + ".new")
    fresh.unlink(missing_ok=True)
    with duckdb.connect() as connection:
        connection.register("noisy", _columns(nodes))
        picked = ", ".join(f"CAST({column} AS {kind}) AS {column}" for column, kind in SCHEMA.items())
        connection.execute(f"COPY (SELECT {picked} FROM noisy) TO {_quoted(fresh)} (FORMAT parquet)")
    fresh.chmod(PUBLIC_FILE)
    sync(fresh)
    segment = Segment(name, file_hash(fresh), batch)
    fresh.replace(directory / name)
    sync((directory / name).parent)
    return segment


def read_segments(directory: Path, manifest: Manifest) -> dict[str, IntArray]:
    """The columns of all segments of a manifest, in order of batch; hashes are checked first.

    Raises:
        IntegrityError: a segment is missing or is not the one that was published.
    """
    manifest = expand(directory, manifest)
    for segment in manifest.segments:
        check_segment(directory, segment)
    if not manifest.segments:
        return {column: np.zeros(0, np.int64) for column in SCHEMA}
    files = [str(directory / segment.file) for segment in manifest.segments]
    with duckdb.connect(config={"threads": 1}) as connection:
        found: dict[str, Any] = connection.execute(
            f"SELECT {', '.join(SCHEMA)} FROM read_parquet(?, file_row_number = true, filename = true) "
            "ORDER BY filename, file_row_number",
            [files],
        ).fetchnumpy()
    return {column: np.asarray(values, dtype=np.int64) for column, values in found.items()}


def _columns(nodes: Sequence[NoisyNode]) -> dict[str, IntArray]:
    """Nodes as flat columns, one row per cell."""
    sizes = [node.values.size for node in nodes]

    def spread(values: list[int]) -> IntArray:
        return np.repeat(np.array(values, dtype=np.int64), sizes)

    return {
        "statistic": spread([n.statistic for n in nodes]),
        "level": spread([n.level for n in nodes]),
        "lo": spread([n.lo for n in nodes]),
        "hi": spread([n.hi for n in nodes]),
        "cell": np.concatenate([np.arange(size, dtype=np.int64) for size in sizes]),
        "value": np.concatenate([node.values for node in nodes]),
    }


def _quoted(path: Path) -> str:
    """A path as an SQL literal; COPY takes no parameter there."""
    return "'" + str(path).replace("'", "''") + "'"
