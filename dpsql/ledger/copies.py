"""A ledger's backup, and its move to another place. Both leave one ledger that can spend.

A backup is a ledger file and its head, made under the lock. Restored, it is an older copy as soon as the ledger has
spent again; `marks` finds that. The signing key goes with it only if asked: whoever reads it signs as its curator.

Moving turns the old head into a note of where the ledger went before the new ledger is there, so at no time can both
spend, and a catalog that still names the old place is told the new one. A move that was cut short is finished by the
same command.

    step     what is on disk                                         a crash after it
    copied   the new place has key and stream states, no ledger      the old ledger goes on
    noted    the old head says where the ledger goes                 neither spends until the move is run again
    placed   the new place has head and ledger                       the new ledger spends
    removed  the old place has the note alone                        done
"""

from __future__ import annotations

import errno
import hashlib
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from dpsql.errors import MachineFault, OperationalError
from dpsql.faults import ANEW, machine
from dpsql.ledger.files import (
    PRIVATE_DIRECTORY,
    beside,
    file_hash,
    held,
    holds,
    made_aside,
    remove_aside,
    sync,
)
from dpsql.ledger.identity import LedgerEntry
from dpsql.ledger.publish import settle
from dpsql.ledger.store import Store, read_head, write_head


class Copied(NamedTuple):
    """Result of a copy or move.

    Args:
        path: the ledger file at its new place.
        entries: how many rows it has, one for each step of a release.
        files: what lies beside it now: head, key, stream states.
    """

    path: Path
    entries: int
    files: tuple[Path, ...]


def backup_ledger(ledger: Path, target: Path, *, with_key: bool) -> Copied:
    """Copy a ledger and its head, consistently, after finishing what a crash has left.

    Args:
        ledger: the ledger file.
        target: the copy; must not exist. Its head lies beside it.
        with_key: whether the signing key goes with it.

    Returns:
        What was copied, all of mode 0600.

    Raises:
        OperationalError: there is no ledger, or the target is taken.
        IntegrityError: the chain is broken.
        MachineFault: the machine refused; the ledger is as it was.
    """
    ledger, target = ledger.absolute(), target.absolute()
    _check_there(ledger)
    suffixes = [".head", ".key"] if with_key and beside(ledger, ".key").exists() else [".head"]
    _check_free(target, [beside(target, suffix) for suffix in (".head", ".key")])
    with machine("no backup was made", ANEW), held(beside(ledger, ".lock")):
        entries = _settled(ledger)
        for suffix in suffixes:
            _copy(beside(ledger, suffix), beside(target, suffix))
        _copy(ledger, target)
    return Copied(target, len(entries), tuple(beside(target, suffix) for suffix in suffixes))


def move_ledger(old: Path, new: Path) -> Copied:
    """Move a ledger with its head, its key and the private states of its streams.

    Args:
        old: the ledger file; a note stays behind.
        new: where it goes; must not exist.

    Raises:
        OperationalError: there is no ledger, or the new place is taken.
        IntegrityError: the chain is broken, or the ledger was moved elsewhere before.
        MachineFault: the machine refused; run the same command again.
    """
    old, new = old.absolute(), new.absolute()
    if old == new:
        raise OperationalError("the ledger is there already", hint="name another place")
    with machine("the ledger was not moved", ANEW), ExitStack() as locks:
        for file in sorted((old, new)):
            locks.enter_context(held(beside(file, ".lock")))
        head = read_head(beside(old, ".head")) if beside(old, ".head").exists() else None
        if head is None or head.moved is None:
            _check_there(old)
            _check_free(new, [beside(new, ".head")])
        elif Path(head.moved) != new:
            raise OperationalError(f"the ledger was moved to {head.moved}", hint="move it from there")
        return _moved(old, new, locks, begun=head is not None and head.moved is not None)


def _moved(old: Path, new: Path, locks: ExitStack, *, begun: bool) -> Copied:
    """Move, or finish a move; both places are locked."""
    if not begun:
        entries = _settled(old)
        states = _states(old, entries) if old.parent != new.parent else []
        for state in states:
            locks.enter_context(held(beside(state, ".lock")))
            # the journal of an append that was cut short belongs to the state
            if state.with_name(state.name + "-journal").exists():
                raise OperationalError(
                    f"an append to {state} was cut short", hint="append that batch again, then move"
                )
        sources = [beside(old, ".key"), *states, *(beside(state, ".sum") for state in states)]
        pairs = [(file, _place(file, old, new)) for file in sources if file.exists()]
        # a move that was cut short has copied some already
        _check_free(new, [target for source, target in pairs if not holds(target, file_hash(source))])
        for source, target in pairs:
            if target.exists():
                remove_aside(target)
            else:
                _copy(source, target)
        head = read_head(beside(old, ".head"))
        moved = head._replace(moved=str(new), files=tuple(source.name for source, _ in pairs))
        write_head(beside(old, ".head"), moved)
    note = read_head(beside(old, ".head"))
    write_head(beside(new, ".head"), note._replace(moved=None, files=()))
    if old.exists():
        if not new.exists():
            _copy(old, new)
        old.unlink()
    files = [old.with_name(name) for name in note.files]
    for file in files:
        file.unlink(missing_ok=True)
    sync(old.parent)
    return Copied(new, note.sequence, (beside(new, ".head"), *(_place(file, old, new) for file in files)))


def _settled(ledger: Path) -> Sequence[LedgerEntry]:
    """Finish what a crash has left; the entries of the ledger, whose file is closed and whole then.

    Raises:
        MachineFault: its write-ahead log is still there.
    """
    store = Store(ledger)
    try:
        settle(store)
    finally:
        store.close()
    if beside(ledger, ".wal").exists():
        raise MachineFault(f"the ledger {ledger} could not be closed", hint=f"free space; {ANEW}")
    return store.entries


def _states(ledger: Path, entries: Sequence[LedgerEntry]) -> list[Path]:
    """The private states of a ledger's streams, which lie beside it."""
    named = {f"{e.label}.{hashlib.sha256(e.lineage.encode()).hexdigest()[:8]}.stream" for e in entries}
    return [file for file in (ledger.with_name(name) for name in sorted(named)) if file.exists()]


def _place(file: Path, old: Path, new: Path) -> Path:
    """Target of a file beside the old ledger."""
    if file == beside(old, ".key"):
        return beside(new, ".key")
    return new.with_name(file.name)


def _check_there(ledger: Path) -> None:
    if not ledger.is_file():
        raise OperationalError(f"there is no ledger {ledger}", hint="name the file that `dpsql budget` names")


def _check_free(target: Path, files: Sequence[Path]) -> None:
    """Refuse to write over anything."""
    taken = next((file for file in (target, *files) if file.exists()), None)
    if taken is not None:
        raise OperationalError(f"{taken} exists", hint="name another file; nothing is overwritten")


def _copy(source: Path, target: Path) -> None:
    """Copy a private file, whole or not at all, and look at the copy."""
    target.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    with made_aside(target) as aside:
        shutil.copyfile(source, aside)
        if not holds(aside, file_hash(source)):
            raise OSError(errno.EIO, "the copy differs", str(source))
