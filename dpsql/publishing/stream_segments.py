"""The public side of a stream release: a directory with a manifest and one immutable segment file per batch.

    retail.dpsql/
        manifest.json                   {format, release_id, base, segments: [{file, sha256, batch}]}
        base.duckdb                     catalog, axes, statistics: a release file without measurements (if
        given) segments/000000000.parquet      the noisy numbers of batch 0, mode 0444

The manifest is replaced atomically and only ever grows, and a segment never changes once the manifest names
it. So a reader that has read the manifest keeps its snapshot while batches are appended, and `as of` a batch
is a prefix of the list. A segment file that no manifest names is not part of the release.

| segment column | meaning                                                          |
|----------------|------------------------------------------------------------------|
| statistic      | position in the release's list of statistics                     |
| level          | size class of the time node, 0 the finest                        |
| lo, hi         | the batches [lo, hi) that the number covers                      |
| cell           | row of the other axes' strategy, flat, in C order                |
| value          | the noisy integer as drawn (BIGINT)                              |

**Privacy**: everything here was noised before it came here; digests of raw batches and contribution counters
stay in the private state.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.errors import IntegrityError, OperationalError, ReleaseError
from dpsql.ledger.files import file_hash, sync

FORMAT = 1
MANIFEST = "manifest.json"
SEGMENTS = "segments"
PUBLIC_FILE = 0o444
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
class Segment:
    """One published batch: the file's name in the release directory, its hash, and the batch number (0-based)."""

    file: str
    sha256: str
    batch: int


@dataclass(frozen=True)
class Manifest:
    """What is published.

    Attributes:
        release_id: identity of the release, as in the ledger.
        segments: the batches 0, 1, .. in order.
        base: name and hash of the file with catalog and axes, or None.
    """

    release_id: str
    segments: tuple[Segment, ...] = ()
    base: tuple[str, str] | None = None

    @property
    def as_of_batch(self) -> int:
        """Number of the newest batch, -1 before the first."""
        return len(self.segments) - 1

    def up_to(self, batch: int) -> Manifest:
        """The release as it was once `batch` had been published.

        Raises:
            ReleaseError: when the batch is not published.
        """
        if not -1 <= batch <= self.as_of_batch:
            raise ReleaseError(
                f"batch {batch} is not in this release", hint=f"the newest is {self.as_of_batch}"
            )
        return Manifest(self.release_id, self.segments[: batch + 1], self.base)


@dataclass(frozen=True)
class NoisyNode:
    """One noisy sum per cell of one statistic: int64[cells] over the batches [lo, hi)."""

    statistic: int
    level: int
    lo: int
    hi: int
    values: IntArray


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a stream release, checked for shape.

    Raises:
        ReleaseError: no manifest, another format, or batches that are not 0, 1, 2, ..
    """
    try:
        entry = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        segments = tuple(
            Segment(str(s["file"]), str(s["sha256"]), int(s["batch"])) for s in entry["segments"]
        )
        base = (str(entry["base"]["file"]), str(entry["base"]["sha256"])) if entry.get("base") else None
        release_id, version = str(entry["release_id"]), entry["format"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReleaseError(f"{directory} holds no stream release that can be read") from error
    if version != FORMAT:
        raise ReleaseError(
            f"{directory} has stream format {version}", hint=f"this version reads format {FORMAT}"
        )
    names = [segment.file for segment in segments] + ([base[0]] if base else [])
    inside = all(not Path(name).is_absolute() and ".." not in Path(name).parts for name in names)
    if [segment.batch for segment in segments] != list(range(len(segments))) or not inside:
        raise ReleaseError(f"the manifest of {directory} is damaged", hint="restore it from a backup")
    return Manifest(release_id, segments, base)


def create_directory(directory: Path, release_id: str, base: str | None = None) -> Manifest:
    """Make an empty stream release.

    Args:
        directory: must not hold a release yet; made if it does not exist.
        release_id: identity of the release.
        base: name of a file already in the directory that holds catalog and axes, or None.

    Raises:
        OperationalError: the directory already holds a release, or cannot be written.
    """
    if (directory / MANIFEST).exists():
        raise OperationalError(f"{directory} already holds a stream release", hint="choose another output")
    try:
        (directory / SEGMENTS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OperationalError(f"{directory} cannot be made ({error.strerror})") from error
    manifest = Manifest(release_id, (), (base, file_hash(directory / base)) if base else None)
    write_manifest(directory, manifest)
    return manifest


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest atomically: a reader sees the old list or the new one."""
    base = {"file": manifest.base[0], "sha256": manifest.base[1]} if manifest.base else None
    text = json.dumps(
        {
            "format": FORMAT,
            "release_id": manifest.release_id,
            "base": base,
            "segments": [asdict(segment) for segment in manifest.segments],
        },
        sort_keys=True,
    )
    fresh = directory / (MANIFEST + ".new")
    fresh.unlink(missing_ok=True)
    fresh.write_text(text + "\n", encoding="utf-8")
    fresh.chmod(PUBLIC_FILE)
    sync(fresh)
    fresh.replace(directory / MANIFEST)
    sync(directory)


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


def check_segment(directory: Path, segment: Segment) -> None:
    """Refuse a segment whose content is not what the manifest names.

    Raises:
        IntegrityError: the file is missing or differs.
    """
    path = directory / segment.file
    if not path.is_file() or file_hash(path) != segment.sha256:
        raise IntegrityError(
            f"segment {segment.file} is not the one that was published",
            hint="restore the release directory from a backup",
        )


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
