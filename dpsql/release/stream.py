"""Releases inside a stream directory: the states that its manifest names.

After every batch the stream's present state is one ordinary release file, `states/<batch>.duckdb`. The manifest is
replaced atomically and names the newest states with their hashes; the files never change. So a reader that opened
one keeps its snapshot while batches are appended, and `as_of` opens an earlier one while it is kept.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsql.errors import ReleaseError

MANIFEST = "manifest.json"
STREAM_FORMAT = 3

AsOf = int | str
"""A batch: its number (0-based) or its label, the date that it begins with."""


@dataclass(frozen=True)
class StreamSnapshot:
    """One state of the stream as a release file.

    Args:
        file: name in the stream directory.
        sha256: of the file.
        batch: the newest batch in it, 0-based.
        label: how that batch is called, the date or time that it begins with.
    """

    file: str
    sha256: str
    batch: int
    label: str


def listed_states(entries: Any) -> tuple[StreamSnapshot, ...]:
    """The states that a manifest's JSON names, oldest first.

    Raises:
        ValueError: a file outside of the stream directory.
        KeyError, TypeError: not a list of states.
    """
    states = tuple(
        StreamSnapshot(str(e["file"]), str(e["sha256"]), int(e["batch"]), str(e["label"])) for e in entries
    )
    if any(Path(state.file).is_absolute() or ".." in Path(state.file).parts for state in states):
        raise ValueError("a file outside the release")
    return states


def state_file(directory: Path, as_of: AsOf | None = None) -> Path:
    """The release file of a stream's newest state, or of the state as of a batch.

    Args:
        directory: the stream directory.
        as_of: the newest batch that is wanted, by number or label; None takes the newest there is.

    Returns:
        The file; its hash has been checked.

    Raises:
        ReleaseError: no stream, nothing published yet, a state that is no longer kept, or a damaged file.
    """
    state = _chosen(directory, _states(directory), as_of)
    path = directory / state.file
    try:
        with path.open("rb") as source:
            digest = hashlib.file_digest(source, "sha256").hexdigest()
    except OSError as error:
        raise ReleaseError(
            f"{path} cannot be read ({error.strerror})", hint="open the stream again: it may have moved on"
        ) from error
    if digest != state.sha256:
        raise ReleaseError(
            f"{path} is not the state that was published", hint="ask its curator for a fresh copy"
        )
    return path


def named_batch(file: Path) -> int | None:
    """The batch that a stream's manifest gives a file for; None for a file that no manifest names.

    The manifest is not signed: without this, an old state could be shown as a newer one, under its good signature.

    Raises:
        ReleaseError: the manifest cannot be read.
    """
    directory = file.absolute().parent.parent
    if not (directory / MANIFEST).is_file():
        return None
    named = {state.file: state.batch for state in _states(directory)}
    return named.get(f"{file.parent.name}/{file.name}")


def _states(directory: Path) -> tuple[StreamSnapshot, ...]:
    path = directory / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version, states = manifest["format"], listed_states(manifest.get("states", []))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReleaseError(
            f"{directory} contains no readable stream release",
            hint="run `dpsql append` or check the path",
        ) from error
    if version != STREAM_FORMAT:
        raise ReleaseError(
            f"{directory} has stream format {version}", hint=f"this version reads format {STREAM_FORMAT}"
        )
    if not states:
        raise ReleaseError(f"{directory} has no batch yet", hint="append the first one with `dpsql append`")
    return states


def _chosen(directory: Path, states: tuple[StreamSnapshot, ...], as_of: AsOf | None) -> StreamSnapshot:
    if as_of is None:
        return states[-1]
    wanted = str(as_of).strip()
    for state in states:
        if wanted in (str(state.batch), state.label):
            return state
    raise ReleaseError(
        f"{directory} keeps the states as of batch {states[0].batch} ({states[0].label}) to "
        f"{states[-1].batch} ({states[-1].label}), not {wanted}",
        hint="older states are not kept as files; copy one while it is there to keep it",
    )
