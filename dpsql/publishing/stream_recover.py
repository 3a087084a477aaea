"""Send decided batches to the public side, and finish what a crash left behind; refuse sides that do not fit.

Recovery re-sends stored values and never draws again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from dpsql.errors import IntegrityError
from dpsql.publishing.stream_manifest import Manifest, Segment, check_segment, grow, read_head, write_manifest
from dpsql.publishing.stream_segments import NoisyNode, read_segments, write_segment
from dpsql.publishing.stream_state import StreamState

KillPoint: TypeAlias = Callable[[str], None]
Present: TypeAlias = Callable[[Path, Manifest], Manifest]
"""Writes the release file of a state that is about to be public, from public numbers; names it in the manifest."""


def no_state(directory: Path, manifest: Manifest) -> Manifest:
    """Segments alone."""
    return manifest


def no_kill(step: str) -> None:
    """Go on."""


def send(
    directory: Path,
    state: StreamState,
    manifest: Manifest,
    batch: int,
    kill_point: KillPoint,
    present: Present = no_state,
) -> Manifest:
    """Send a decided batch out of the outbox, name it in the manifest with the new state, mark it."""
    segment = write_segment(directory, batch, state.outbox(batch))
    kill_point("segment")
    grown = present(directory, grow(directory, manifest, segment))
    kill_point("state")
    write_manifest(directory, grown)
    for dropped in set(manifest.states) - set(grown.states):
        (directory / dropped.file).unlink(missing_ok=True)
    kill_point("manifest")
    state.mark(batch, segment.sha256)
    kill_point("marked")
    return grown


def settle(
    directory: Path, state: StreamState, kill_point: KillPoint, present: Present = no_state
) -> Manifest:
    """Compare the two sides, finish what a crash left behind from stored values, refuse anything else.

    Raises:
        IntegrityError: the public side is ahead of the private one, behind it, or holds other segments.
    """
    manifest = read_head(directory)
    if manifest.release_id.encode() != state.setting("release_id"):
        raise IntegrityError("the private state belongs to another release", hint="name the one made with it")
    if manifest.batches > state.next_batch():
        raise IntegrityError(
            f"{manifest.batches} batches are public but the private state knows {state.next_batch()}",
            hint="an old copy was restored: bring back the newest one; nothing was drawn",
        )
    decided, public = state.batches(manifest.first), manifest.segments
    marked = [entry.segment for entry in decided if entry.segment is not None]
    if marked != [segment.sha256 for segment in public[: len(marked)]]:
        raise IntegrityError(
            "published batches are missing or are not the ones that were decided",
            hint="restore the release directory from a backup; nothing was drawn",
        )
    if public:
        check_segment(directory, public[-1])
    for place, entry in enumerate(decided[len(marked) :], start=len(marked)):
        if place < len(public):
            _check_sent(directory, public[place], state.outbox(entry.number))
            state.mark(entry.number, public[place].sha256)
        else:
            manifest = send(directory, state, manifest, entry.number, kill_point, present)
    return manifest


def _check_sent(directory: Path, segment: Segment, stored: Sequence[NoisyNode]) -> None:
    """Refuse to mark a public segment whose values are not the stored ones: the state is a copy that diverged.

    Raises:
        IntegrityError: they differ.
    """
    found = read_segments(directory, Manifest("", (segment,)))["value"]
    wanted = np.concatenate([node.values for node in stored])
    if not np.array_equal(found, wanted):
        raise IntegrityError(
            f"batch {segment.batch} is public with other values than the private state decided",
            hint="bring back the state that published it; nothing was drawn",
        )
