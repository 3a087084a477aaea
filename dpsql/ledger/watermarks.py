"""Marks beside releases, by which a ledger that went back in time is found before it spends again.

A ledger that was restored from an old copy would charge again what it has charged. Its head, which lies beside it,
tells where the file alone was restored; where the whole folder was, only something outside can. So every folder that a
release of the ledger was put into holds a small private file: how many entries there were, and the last one's hash. It
is written after each charge, wherever that can be done: who cannot write it loses a warning and no promise.

Nothing tells where all folders were restored to one time; keep their backups apart.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dpsql.errors import IntegrityError
from dpsql.ledger.files import write_json
from dpsql.ledger.store import RESTORE, Store

_LARGEST = 4096


class Mark(NamedTuple):
    """Progress of a ledger: its number of entries and the last one's hash."""

    entries: int
    hash: str


def mark_file(store: Store, folder: Path) -> Path:
    """Path of a folder's mark; every ledger has its own."""
    return folder / f".dpsql-{store.fingerprint('mark')[:16]}"


def write_marks(store: Store) -> None:
    """Say in every folder of the ledger's releases how far it has come."""
    mark = Mark(len(store.entries), store.last_hash())
    for place in _folders(store):
        with suppress(OSError):  # a folder that is closed or gone
            write_json(mark_file(store, place), mark._asdict())


def check_marks(store: Store, target: Path, label: str) -> None:
    """Refuse to spend from a ledger that is older than a mark.

    Args:
        store: the open ledger.
        target: where the next release is to go.
        label: what it is called.

    Raises:
        IntegrityError: a mark tells of entries that the ledger does not hold, or is damaged.

    **Privacy**: marks of other people are passed over, so nobody else can stop a publish.
    """
    for place in dict.fromkeys([_folder(target, label), *_folders(store)]):
        file = mark_file(store, place)
        mark = _read(file)
        if mark is None:
            continue
        if mark.entries > len(store.entries) or mark.entries < 1:
            raise IntegrityError(
                f"the ledger is an older copy: it has {len(store.entries)} entries, {file} records {mark.entries}",
                hint=RESTORE,
            )
        if store.entries[mark.entries - 1].hash != mark.hash:
            raise IntegrityError(f"{file} records a different history", hint=RESTORE)


def _folders(store: Store) -> Iterable[Path]:
    """Folders of the ledger's releases; a stream's is the one that holds its directory."""
    return dict.fromkeys(_folder(Path(entry.target), entry.label) for entry in store.entries)


def _folder(target: Path, label: str) -> Path:
    """Folder of a release; what is charged for a stream lies in its directory, which is named as its label."""
    return target.parent.parent if target.parent.name == label else target.parent


def _read(file: Path) -> Mark | None:
    """A mark of our own; None where there is none.

    Raises:
        IntegrityError: it is damaged.
    """
    try:
        status = file.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return None
    try:
        value = json.loads(file.read_bytes()[:_LARGEST])
        return Mark(int(value["entries"]), str(value["hash"]))
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(
            f"the mark {file} is damaged",
            hint="remove it, if the ledger is surely the newest; spending has stopped",
        ) from error
