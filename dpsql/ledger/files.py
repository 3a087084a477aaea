"""Files that survive a crash: atomic small files, hashes, renames that reached the disk; the lock and the signing key.

**The lock** lets one process spend at a time. It dies with its process, and a note in it says who holds it. The kernel
lets go of the lock when its holder ends, however it ends, so no lock is ever stale. The note in the file may be: it is
believed only while the lock is held, and, on the same host, while its process lives.

A lock file that was removed while it was held would let a second process in. Whoever takes the lock makes sure that
the name still leads to the file it holds, and looks again before it charges.

The signing key is 32 secret bytes, for its owner's eyes alone. It is made when the first release is published.
Whoever reads it can sign as this curator; whoever loses it publishes under a new name. It signs nothing but releases,
and no budget depends on it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dpsql.errors import IntegrityError, MachineFault, visible
from dpsql.faults import UNCHARGED, told
from dpsql.noise import os_entropy
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


def put_in_place(fresh: Path, path: Path, mode: int) -> None:
    """Replace a file by a finished one beside it, so that a crash leaves the old one or the new one."""
    fresh.chmod(mode)
    sync(fresh)
    fresh.replace(path)
    sync(path.parent)


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
        put_in_place(aside, path, PRIVATE_FILE)
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


PATIENCE = "DPSQL_LOCK_SECONDS"
"""The environment variable that says how long to wait."""
SECONDS = 600.0
"""How long to wait unless it says otherwise: a publish holds the lock while it counts."""
SILENT = 2.0
"""Seconds after which whoever waits says for whom."""
LONGEST_NOTE = 4096


@dataclass(frozen=True)
class Lock:
    """A lock that is held."""

    path: Path
    handle: int

    def check(self) -> None:
        """Refuse to go on if the lock was lost.

        Raises:
            MachineFault: its file was removed or replaced while it was held.
        """
        if not _leads_to(self.path, self.handle):
            raise MachineFault(
                f"the lock {self.path} was removed while it was held",
                hint=f"do not remove it; {told(UNCHARGED)}",
            )


@contextmanager
def held(path: Path) -> Iterator[Lock]:
    """Hold the lock of a file, which need not exist; its directory is made. Threads and processes exclude each other.

    Raises:
        MachineFault: the file cannot be made or locked, or its holder did not let go in time.
    """
    try:
        path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        handle = _taken(path)
    except OSError as error:
        raise MachineFault(
            f"{path} cannot be locked ({error.strerror})", hint=f"check the directory's rights; {UNCHARGED}"
        ) from error
    try:
        # for people: a full disk is no reason not to hold the lock
        note = {
            "pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200] if sys.argv else "",
        }  # fmt: skip
        with suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(note).encode(), 0)
        yield Lock(path, handle)
    finally:
        os.close(handle)


def _taken(path: Path) -> int:
    """The locked file; waits for whoever has it."""
    patience, start, warned = _patience(), time.monotonic(), False
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        try:
            if _lock(handle) and _leads_to(path, handle):
                return handle
            holder = _holder(handle)
        except OSError:
            os.close(handle)
            raise
        os.close(handle)
        waited = time.monotonic() - start
        if waited >= patience:
            raise MachineFault(
                f"{path} is held by {holder}; gave up after {waited:.0f} s",
                hint=f"wait until it is done ({PATIENCE} says how long); {UNCHARGED}",
            )
        if waited >= SILENT and not warned:
            warned = True
            logging.getLogger("dpsql").warning("waiting for %s, held by %s", path, visible(holder))
        time.sleep(min(0.05, patience - waited))


def _lock(handle: int) -> bool:
    """Take the lock if it is free."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _patience() -> float:
    """Seconds to wait.

    Raises:
        MachineFault: the environment does not say a number.
    """
    seconds = os.environ.get(PATIENCE) or str(SECONDS)
    try:
        return float(seconds)
    except ValueError as error:
        raise MachineFault(f"{PATIENCE} is not a number of seconds", hint="write one such as 600") from error


def _leads_to(path: Path, handle: int) -> bool:
    """True if a name still leads to an open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _holder(handle: int) -> str:
    """Holder of a lock, in words."""
    try:
        note = json.loads(os.pread(handle, LONGEST_NOTE, 0))
        pid, host, since, command = (note[name] for name in ("pid", "host", "since", "command"))
    except (OSError, ValueError, KeyError, TypeError):
        return "another program, which left no note"
    if host == socket.gethostname() and not _lives(pid):
        return f"another program (the note is of process {pid}, which has ended)"
    return f"process {pid} on {host} since {since} ({command})"


def _lives(pid: object) -> bool:
    try:
        os.kill(int(str(pid)), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


_SEED = re.compile(rb"[0-9a-f]{64}\n")
_MOVE = "restore it from a backup; or move it away, and the next publish makes a new one; tell the readers"


def signing_seed(ledger: Path) -> bytes:
    """The secret key of whoever keeps a ledger; made if there has never been one.

    Args:
        ledger: the ledger file, which need not exist.

    Returns:
        32 bytes.

    Raises:
        IntegrityError: the key file is damaged, or others can read it.
        MachineFault: it can be neither read nor made.
    """
    path = beside(ledger, ".key")
    try:
        ledger.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        if not path.exists():
            _make(path)
        content, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        raise MachineFault(
            f"the signing key {path} cannot be read or made ({error.strerror})",
            hint=f"check the folder's rights; {UNCHARGED}",
        ) from error
    if not _SEED.fullmatch(content):
        raise IntegrityError(f"the signing key {path} is damaged", hint=_MOVE)
    if mode & 0o077:
        raise IntegrityError(f"others can read the signing key {path}", hint=f"chmod 600 {path}")
    return bytes.fromhex(content.decode())


def _make(path: Path) -> None:
    """Make the file whole under a name of its own, then link it: of two that make it at once, one wins for both."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(os_entropy()(32).hex().encode() + b"\n")
            out.flush()
            os.fsync(out.fileno())
        try:
            path.hardlink_to(fresh)
        except FileExistsError:
            return
        sync(path.parent)
    finally:
        fresh.unlink(missing_ok=True)
