"""The public side of a stream release: a directory with a manifest and one immutable segment file per batch.

    retail.dpsql/
        manifest.json                   {format, release_id, base, pages, segments: [{file, sha256, batch}], states}
        promise.json                    what was charged: catalog, unit, budget (if given)
        segments/000000000.parquet      the noisy numbers of batch 0, mode 0444
        segments/page-000000000.json    the list of the first 256 segments, once there are more
        states/000000000.duckdb         a release file of everything up to batch 0; the last few are kept

| segment column | meaning                                                          |
|----------------|------------------------------------------------------------------|
| statistic      | position in the release's list of statistics                     |
| level          | size class of the time node, 0 the finest                        |
| lo, hi         | the batches [lo, hi) that the number covers                      |
| cell           | row of the other axes' strategy, flat, in C order                |
| value          | the noisy integer as drawn (BIGINT)                              |

The manifest is replaced atomically and only ever grows; segments and pages never change once it names them. So a
reader that has read the manifest keeps its snapshot while batches are appended, and `as of` a batch is a prefix of
the list. A segment file that no manifest names is not part of the release. Pages keep an append's cost flat: it
rewrites at most 256 segments and one line a page, so 512 entries at 65,536 batches.

**Privacy**: everything here was noised before it came here; digests of raw batches and contribution counters
stay in the private state.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpsql.errors import IntegrityError, OperationalError, ReleaseError
from dpsql.ledger.files import file_hash, put_in_place, sync
from dpsql.release.signature import MANIFEST, StreamSnapshot, listed_states
from dpsql.release.signature import STREAM_FORMAT as FORMAT
from dpsql.row_expressions import literal
from dpsql.scratch import scratch
from dpsql.tree import IntArray, Noisy

SEGMENTS = "segments"
PUBLIC_FILE = 0o444
PAGE = 256
"""Segments that one page lists."""
SCHEMA = {
    "statistic": "INTEGER", "level": "INTEGER", "lo": "BIGINT", "hi": "BIGINT", "cell": "BIGINT", "value": "BIGINT"
}  # fmt: skip


@dataclass(frozen=True)
class Segment:
    """One published batch: the file's name in the release directory, its hash, and the batch number (0-based)."""

    file: str
    sha256: str
    batch: int


@dataclass(frozen=True)
class StreamManifest:
    """Manifest of what is published.

    Attributes:
        release_id: identity of the release, as in the ledger.
        segments: the batches after those of the pages, in order.
        base: name and hash of the file that says what was charged, or None.
        pages: files that list `PAGE` earlier segments each; `batch` is the first one's.
        states: release files of the newest states, oldest first; readers open these.
    """

    release_id: str
    segments: tuple[Segment, ...] = ()
    base: tuple[str, str] | None = None
    pages: tuple[Segment, ...] = ()
    states: tuple[StreamSnapshot, ...] = ()

    @property
    def first(self) -> int:
        """Number of the first batch that `segments` lists."""
        return len(self.pages) * PAGE

    @property
    def batches(self) -> int:
        """Number of published batches."""
        return self.first + len(self.segments)

    @property
    def as_of_batch(self) -> int:
        """Number of the newest batch, -1 before the first."""
        return self.batches - 1


def read_manifest(directory: Path) -> StreamManifest:
    """The manifest of a stream release with all its segments.

    Raises:
        ReleaseError: no manifest, another format, or batches that are not 0, 1, 2, ..
        IntegrityError: a page is missing or is not the one that was published.
    """
    return expand(directory, read_head(directory))


def read_head(directory: Path) -> StreamManifest:
    """The manifest as stored: pages stay unread. What an appender needs.

    Raises:
        ReleaseError: no manifest, another format, or batches that do not follow each other.
    """
    body = _json(directory / MANIFEST)
    try:
        segments, pages = _listed(body["segments"]), _listed(body.get("pages", []))
        base = (str(body["base"]["file"]), str(body["base"]["sha256"])) if body.get("base") else None
        states, version = listed_states(body.get("states", [])), body["format"]
        manifest = StreamManifest(str(body["release_id"]), segments, base, pages, states)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReleaseError(f"{directory} contains no readable stream release") from error
    if version != FORMAT:
        raise ReleaseError(
            f"{directory} has stream format {version}", hint=f"this version reads format {FORMAT}"
        )
    wanted = [*range(0, manifest.first, PAGE), *range(manifest.first, manifest.batches)]
    if [segment.batch for segment in (*pages, *segments)] != wanted or (base and _outside(base[0])):
        raise ReleaseError(f"the manifest of {directory} is damaged", hint="restore it from a backup")
    return manifest


def expand(directory: Path, manifest: StreamManifest) -> StreamManifest:
    """The same manifest with the segments of its pages listed.

    Raises:
        ReleaseError: a page that does not list its batches.
        IntegrityError: a page is missing or is not the one that was published.
    """
    listed: list[Segment] = []
    for page in manifest.pages:
        check_segment(directory, page)
        try:
            listed.extend(_listed(_json(directory / page.file)["segments"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ReleaseError(
                f"{page.file} is not a list of segments", hint="restore it from a backup"
            ) from error
    if [segment.batch for segment in listed] != list(range(manifest.first)):
        raise ReleaseError(f"the manifest of {directory} is damaged", hint="restore it from a backup")
    return replace(manifest, segments=(*listed, *manifest.segments), pages=())


def _json(path: Path) -> Any:
    """A JSON file of the release.

    Raises:
        ReleaseError: it cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReleaseError(f"{path} cannot be read", hint="is this a stream release?") from error


def _listed(entries: Any) -> tuple[Segment, ...]:
    """Files named by a manifest or a page; none outside the release directory."""
    segments = tuple(Segment(str(e["file"]), str(e["sha256"]), int(e["batch"])) for e in entries)
    if any(_outside(segment.file) for segment in segments):
        raise ValueError("a file outside the release")
    return segments


def _outside(name: str) -> bool:
    return Path(name).is_absolute() or ".." in Path(name).parts


def create_directory(directory: Path, release_id: str, base: str | None = None) -> StreamManifest:
    """Make an empty stream release.

    Args:
        directory: must not hold a release yet; made if it does not exist.
        release_id: identity of the release.
        base: name of a file already in the directory that says what was charged, or None.

    Raises:
        OperationalError: the directory already holds a release.
        OSError: it cannot be written; whoever knows what is charged says so.
    """
    if (directory / MANIFEST).exists():
        raise OperationalError(f"{directory} already contains a stream release", hint="choose another output")
    (directory / SEGMENTS).mkdir(parents=True, exist_ok=True)
    manifest = StreamManifest(release_id, (), (base, file_hash(directory / base)) if base else None)
    write_manifest(directory, manifest)
    return manifest


def write_manifest(directory: Path, manifest: StreamManifest) -> None:
    """Replace the manifest atomically: a reader sees the old list or the new one."""
    base = {"file": manifest.base[0], "sha256": manifest.base[1]} if manifest.base else None
    files = {n: [asdict(file) for file in getattr(manifest, n)] for n in ("pages", "segments", "states")}
    _write_json(
        directory / MANIFEST, {"format": FORMAT, "release_id": manifest.release_id, "base": base, **files}
    )


def grow(directory: Path, manifest: StreamManifest, segment: Segment) -> StreamManifest:
    """The manifest with one more segment; a full list moves into a page, which is written here."""
    segments, pages = (*manifest.segments, segment), manifest.pages
    if len(segments) > PAGE:
        name = f"{SEGMENTS}/page-{manifest.first:09d}.json"
        _write_json(directory / name, {"segments": [asdict(older) for older in segments[:PAGE]]})
        pages = (*pages, Segment(name, file_hash(directory / name), manifest.first))
        segments = segments[PAGE:]
    return replace(manifest, segments=segments, pages=pages)


def _write_json(path: Path, value: object) -> None:
    """Fresh file, fsync, mode 0444, rename, fsync of the directory."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    fresh.write_text(json.dumps(value, sort_keys=True) + "\n", encoding="utf-8")
    put_in_place(fresh, path, PUBLIC_FILE)


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


@dataclass(frozen=True)
class NoisyNode:
    """One noisy sum per cell of one statistic: int64[cells] over the batches [lo, hi)."""

    statistic: int
    level: int
    lo: int
    hi: int
    values: Noisy


def write_segment(directory: Path, batch: int, nodes: Sequence[NoisyNode]) -> Segment:
    """Write the segment of one batch: fresh file, fsync, mode 0444, rename. The manifest is not touched.

    A left-over of an unfinished append is replaced: it held the same stored values and no manifest names it.
    """
    name = f"{SEGMENTS}/{batch:09d}.parquet"
    fresh = directory / (name + ".new")
    fresh.unlink(missing_ok=True)
    with scratch() as connection:
        connection.register("noisy", _columns(nodes))
        picked = ", ".join(f"CAST({column} AS {kind}) AS {column}" for column, kind in SCHEMA.items())
        connection.execute(f"COPY (SELECT {picked} FROM noisy) TO {literal(str(fresh))} (FORMAT parquet)")
    fresh.chmod(PUBLIC_FILE)
    sync(fresh)
    segment = Segment(name, file_hash(fresh), batch)
    fresh.replace(directory / name)
    sync((directory / name).parent)
    return segment


def read_segments(directory: Path, manifest: StreamManifest) -> dict[str, IntArray]:
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
    with scratch() as connection:
        columns: dict[str, Any] = connection.execute(
            f"SELECT {', '.join(SCHEMA)} FROM read_parquet(?, file_row_number = true, filename = true) "
            "ORDER BY filename, file_row_number",
            [files],
        ).fetchnumpy()
    return {column: np.asarray(values, dtype=np.int64) for column, values in columns.items()}


def _columns(nodes: Sequence[NoisyNode]) -> dict[str, IntArray]:
    """Nodes as flat columns, one row per cell."""
    sizes = [node.values.size for node in nodes]
    columns = {}
    for name in ("statistic", "level", "lo", "hi"):
        columns[name] = np.repeat(np.array([getattr(n, name) for n in nodes], dtype=np.int64), sizes)
    columns["cell"] = np.concatenate([np.arange(size, dtype=np.int64) for size in sizes])
    columns["value"] = np.concatenate([node.values for node in nodes])
    return columns
