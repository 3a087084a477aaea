"""Files that survive a crash: atomic small files, hashes, and renames that reached the disk."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpsql.errors import MachineFault
from dpsql.faults import UNCHARGED
from dpsql.scratch import shown_bytes

RELEASE_MODE = 0o444
PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def beside(ledger: Path, suffix: str) -> Path:
    """The ledger's companion file, for instance `ledger.duckdb.lock`."""
    return ledger.with_name(ledger.name + suffix)


def check_folder(path: Path) -> None:
    """Refuse a file's place before anything is spent on it.

    Raises:
        MachineFault: the folder is not there or cannot be written.
    """
    probe = path.with_name(f".{path.name}.new")
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE))
        probe.unlink()
    except OSError as error:
        raise MachineFault(
            f"cannot write to {path.parent} ({error.strerror})",
            hint=f"make the folder, or choose another output; {UNCHARGED}",
        ) from error


def sync(path: Path) -> None:
    """Make a file's content, or a directory's names, reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def made_aside(path: Path) -> Iterator[Path]:
    """Make a private file in a folder closed to others, then rename it: a crash leaves a whole file or none.

    DuckDB makes its files as the umask says, and refuses an empty one that was made for it; so others could read a
    database for as long as it takes to change its mode.

    Args:
        path: the file wanted; what a crash left in `<path>.new` is removed.

    Yields:
        Where to make it.
    """
    folder = beside(path, ".new")
    remove_aside(path)
    folder.mkdir(mode=PRIVATE_DIRECTORY)
    aside = folder / path.name
    try:
        yield aside
        aside.chmod(PRIVATE_FILE)
        sync(aside)
        aside.replace(path)
        sync(path.parent)
    finally:
        remove_aside(path)


def remove_aside(path: Path) -> None:
    """Remove what a crash left of `made_aside`."""
    folder = beside(path, ".new")
    if folder.is_dir():
        shutil.rmtree(folder)
    else:
        folder.unlink(missing_ok=True)


def private_log(database: Path) -> None:
    """Make an empty write-ahead log that only its owner can read; an open database fills it as it is.

    Call it before each transaction that writes: DuckDB removes the log when it has emptied it, and would make the next
    one as the umask says.
    """
    os.close(os.open(beside(database, ".wal"), os.O_WRONLY | os.O_CREAT, PRIVATE_FILE))


def write_private(path: Path, content: bytes) -> None:
    """Replace a small private file atomically: whatever crashes, a reader sees the old content or the new one."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    try:
        handle = os.open(fresh, _FRESH, PRIVATE_FILE)
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_json(path: Path, value: object) -> None:
    """Replace a small private file by a value as JSON, atomically."""
    write_private(path, json.dumps(value, sort_keys=True).encode())


def file_hash(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def holds(path: Path, sha256: str) -> bool:
    """Is this file there, with exactly this content?"""
    return path.is_file() and file_hash(path) == sha256


def draft_hash(path: Path) -> str:
    """The SHA-256 of what a draft will hold once it is shown."""
    digest = hashlib.sha256()
    with path.open("rb") as source:
        for block in shown_bytes(source):
            digest.update(block)
    return digest.hexdigest()


def put(
    source: Path, target: Path, sha256: str, kill_point: Callable[[str], None] = lambda step: None
) -> None:
    """Put a release in place: a copy without the mark of a draft, whole or not at all, on whatever disk.

    Args:
        source: a release or a draft.
        target: where it is to be shown; what lies there is replaced.
        sha256: of the release.
        kill_point: told each step, for tests that kill there.

    Raises:
        OSError: it cannot be written, or the copy differs.
    """
    aside = target.with_name(f".{target.name}.{sha256[:32]}.copy")
    aside.unlink(missing_ok=True)
    try:
        with source.open("rb") as draft, os.fdopen(os.open(aside, _FRESH, PRIVATE_FILE), "wb") as copy:
            copy.writelines(shown_bytes(draft))
        if not holds(aside, sha256):
            raise OSError(errno.EIO, "the copy differs", str(source))
        aside.chmod(RELEASE_MODE)
        sync(aside)
        kill_point("readable")
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    kill_point("renamed")
    sync(target.parent)
