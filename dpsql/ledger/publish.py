"""The publish protocol: lock, recover, check, draw, charge and record in one commit, show; and recovery.

    step        what is on disk                                     a crash after it
    checked     nothing new                                         nothing happened
    intent      <ledger>.intent names the draw's private directory  the directory is removed
    built       the release, readable by its owner only             the draw is destroyed, nothing charged
    committed   charge + entry, then <ledger>.head                  the rename is finished
    renamed     the release in place, mode 0444                     the intent is removed

Recovery rolls forward and never draws again: a draw that was charged (the ledger holds its entry) is shown,
one that was not is destroyed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias

from dpsql.errors import BudgetExceeded, IntegrityError, InternalError, MachineFault, ReleaseExists
from dpsql.faults import CHARGED, UNCHARGED, UNSURE, machine, spending
from dpsql.ledger.files import (
    RELEASE_MODE,
    beside,
    file_hash,
    holds,
    make_directory,
    sync,
    write_json,
)
from dpsql.ledger.identity import (
    ChargedTable,
    Label,
    LedgerEntry,
    Lineage,
    PublicRelease,
    Receipt,
    Recovery,
    ReleaseSpend,
    SourceTable,
    SpendLine,
    lines_json,
    tables_json,
)
from dpsql.ledger.locks import Lock, held
from dpsql.ledger.marks import check_marks, write_marks
from dpsql.ledger.memory import LedgerMemory
from dpsql.ledger.row_sketches import RowComparison, check_sketches
from dpsql.ledger.rules import (
    check_copies,
    check_public,
    check_release_id,
    check_spend,
    check_target,
    earlier,
    find,
)
from dpsql.ledger.store import Store

KillPoint: TypeAlias = Callable[[str], None]


class PendingDraw(NamedTuple):
    """A draw on its way: its private directory, the file in it, and where it is to be shown."""

    release_id: str
    target: Path

    @property
    def directory(self) -> Path:
        """The private directory next to the target: the rename stays within one file system."""
        return self.target.with_name(f".{self.target.name}.{self.release_id}.staging")

    @property
    def file(self) -> Path:
        return self.directory / self.target.name


def no_kill(step: str) -> None:
    """Go on."""


@contextmanager
def opened(ledger: Path) -> Iterator[tuple[Store, Lock]]:
    """The ledger, checked, and the lock that is held on it; closed whatever happens."""
    with held(beside(ledger, ".lock")) as lock:
        store = Store(ledger)
        try:
            yield store, lock
        finally:
            with machine(f"the ledger {ledger} was not closed", UNSURE):
                store.close()


def settle(store: Store) -> Recovery:
    """Recover with the ledger open: the head catches up, then the intent is finished or undone."""
    store.move_head()
    intent = beside(store.path, ".intent")
    # A note that a kill cut short: the one before it still stands, or there was none and nothing was drawn.
    beside(store.path, ".intent.new").unlink(missing_ok=True)
    if not intent.exists():
        return Recovery()
    draft = _read_intent(intent)
    entry = next((entry for entry in store.entries if entry.release_id == draft.release_id), None)
    if entry is None:
        clean(store, draft)
        return Recovery(removed=draft.directory)
    with machine("an earlier publish is not finished yet", CHARGED):
        return _finish(store, draft, entry)


def _finish(store: Store, draft: PendingDraw, entry: LedgerEntry) -> Recovery:
    """Show a draw that was charged."""
    write_marks(store)
    if draft.target.exists():
        if not holds(draft.target, entry.sha256):
            raise IntegrityError(
                f"{draft.target} stands where release {entry.label!r} belongs", hint="move that file away"
            )
        sync(draft.target.parent)
        clean(store, draft)
        return Recovery(finished=draft.target)
    if holds(draft.file, entry.sha256):
        show(draft, no_kill)
        clean(store, draft)
        return Recovery(finished=draft.target)
    clean(store, draft)
    return Recovery(lost=draft.target)


def _read_intent(intent: Path) -> PendingDraw:
    try:
        value = json.loads(intent.read_text(encoding="utf-8"))
        return PendingDraw(str(value["release_id"]), Path(value["target"]))
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(
            f"the note {intent} of an unfinished publish is damaged",
            hint="restore it, or remove it after the unfinished draw",
        ) from error


def write_intent(store: Store, draft: PendingDraw) -> None:
    """Note, durably, which draw is about to be made."""
    intent = {"release_id": draft.release_id, "target": str(draft.target)}
    write_json(beside(store.path, ".intent"), intent)


def show(draft: PendingDraw, kill_point: KillPoint) -> None:
    """Put the charged release in place."""
    draft.file.chmod(RELEASE_MODE)
    kill_point("readable")
    draft.file.rename(draft.target)
    kill_point("renamed")
    sync(draft.target.parent)


def clean(store: Store, draft: PendingDraw) -> None:
    """Remove the private directory, with the draw if it is still in there, and then the intent."""
    if draft.directory.exists():
        shutil.rmtree(draft.directory)
    beside(store.path, ".intent").unlink(missing_ok=True)


@dataclass
class SelectionRecord:
    """What a draw that first chooses what it measures tells the ledger while it runs.

    Whoever sees a draw fail learns something of what was chosen. So a failure after the choice is charged, in the lines
    that were planned before it.

    Attributes:
        begun: whether noisy numbers have chosen anything.
        lines: what was spent in the end; None where that is what was planned.
    """

    begun: bool = False
    lines: tuple[SpendLine, ...] | None = None


@dataclass(frozen=True)
class Order:
    """One release file that is to be made.

    Args:
        name: lineage, label and specification: what decides which releases are "the same". Data are not compared: that
            would tell whether they are equal.
        target: where it is to be shown.
        release_id: the id that `build` writes into it, from `new_release_id()`.
        build: draws the noise and writes and closes a fresh file at the path it is given.
        digests: makes digests of each raw table's rows, if there is something to draw; kept as keyed hashes only.
        public: releases of the lineage that are out; one that the ledger does not know stops spending.
        memory: of this computer; None for made-up rows, which are nobody's.
        selection: of a draw that chooses what it measures; None for all others.
        rows: sketches of the raw tables' rows; None for batches of a stream and for made-up rows.
    """

    name: Label
    target: Path
    release_id: str
    build: Callable[[Path], None]
    digests: Callable[[], Mapping[str, tuple[str, ...]]]
    public: tuple[PublicRelease, ...] = ()
    memory: LedgerMemory | None = None
    selection: SelectionRecord | None = None
    rows: RowComparison | None = None


def publish_file(ledger: Path, spend: ReleaseSpend, order: Order, kill_point: KillPoint = no_kill) -> Receipt:
    """Publish one release file and charge it, exactly once.

    Args:
        ledger: the ledger file; made if there has never been one.
        spend: whose budget, what for, which raw tables.
        order: the file.
        kill_point: called with the name of each step, for tests that kill there.

    Returns:
        The receipt. With the same specification and label, the earlier release: nothing is drawn or charged. Where it
        lies elsewhere, a copy is made at the target.

    Raises:
        ReleaseExists: the label was used for another specification, or the target is taken.
        BudgetExceeded: the cap does not hold this spend.
        LineageError: a budget identity that contradicts its first use, or a table that another ledger has charged.
        IntegrityError: chain, releases and ledger disagree.
        InternalError: `build` left no file, or files beside it.
        MachineFault: the machine refused; the line says what is charged.

    **Privacy**: what becomes readable has been charged, durably, before; each draw is charged at most once.
    """
    name, target, release_id = order.name, order.target.absolute(), order.release_id
    digests_of_rows = order.digests
    with machine("the release was not published", UNCHARGED), opened(ledger) as (store, lock):
        kill_point("locked")
        recovery = settle(store)
        kill_point("recovered")
        published = find(store, name)
        if published is not None:
            return replace(_returned(store, published, name, target), recovery=recovery)
        check_target(store, target)
        check_public(store, order.public)
        check_marks(store, target, name.label)
        check_release_id(store, release_id)
        check_spend(store, spend)
        digests = digests_of_rows()
        tables = _charged(store, spend, digests)
        check_copies(store, spend.lineage, tables)
        if order.rows is not None:
            check_sketches(store, spend, order.rows)
        marks = {table.name: _marks(table, digests) for table in spend.tables}
        if order.memory is not None:
            order.memory.check(spend.lineage.name, {entry.lineage for entry in store.entries}, marks)
        kill_point("checked")
        draft = PendingDraw(release_id, target)
        try:
            digest = _draw(store, draft, order.build, kill_point)
        except BaseException as error:
            if order.selection is None or not order.selection.begun:
                raise
            _book(store, spend, name, tables, draft)
            if not isinstance(error, Exception):
                raise
            raise MachineFault(
                f"the release failed after its keys were found ({type(error).__name__})",
                hint="it is charged, since the failure may tell of them; to publish choose another --label",
            ) from None
        spend = _spent(spend, order.selection)
        entry = _seal(store, spend, name, tables, draft, digest)
        lock.check()
        spending()
        with machine("the ledger could not be written", UNSURE):
            _commit(store, entry, spend.lineage, draft, kill_point)
        forgotten = ""
        if order.memory is not None:
            forgotten = order.memory.remember(spend.lineage.name, chain(*marks.values()))
        with machine("the release is not in place yet", CHARGED):
            show(draft, kill_point)
            write_marks(store)
            clean(store, draft)
        remaining = spend.lineage.limit - store.spent(spend.lineage.name)
        return Receipt(
            release_id,
            target,
            digest,
            True,
            spend.cost(),
            remaining,
            spend.lineage.currency,
            recovery,
            forgotten=forgotten,
        )


def published_before(ledger: Path, name: Label, target: Path) -> Receipt | None:
    """The release that a label already names, looked up before anything private is opened.

    Args:
        ledger: the ledger file.
        name: lineage, label and specification.
        target: where the release is wanted: a copy is made there if it lies elsewhere.

    Returns:
        The receipt, or None where `publish_file` has something to draw.

    Raises:
        ReleaseExists: the label was used for another specification, its file is gone, or the target is another file.
        IntegrityError: chain, releases and ledger disagree.

    **Privacy**: a function of the catalog, the ledger and release files; no raw row is opened, so nothing about
    them can be told, not even by the time it takes.
    """
    if not ledger.exists() and not beside(ledger, ".head").exists():
        return None
    with machine("the release was not published", UNCHARGED), opened(ledger) as (store, _):
        published = find(store, name)
        if published is None:
            return None
        recovery = settle(store)
        return replace(_returned(store, published, name, target.absolute()), recovery=recovery)


def _returned(store: Store, entry: LedgerEntry, name: Label, target: Path) -> Receipt:
    """The release that a label names, at the place that is asked for: a copy, where it lies elsewhere."""
    receipt = earlier(store, entry, name, target)
    if receipt.path == target:
        return receipt
    if target.exists():
        raise ReleaseExists(
            f"{target} is not the release of label {name.label!r}, which is {receipt.path}",
            hint="choose another output; to publish anew, another label as well",
        )
    aside = target.with_name(f".{target.name}.{receipt.release_id}.copy")
    with machine(f"{target} cannot be written", CHARGED):
        aside.unlink(missing_ok=True)
        shutil.copyfile(receipt.path, aside)
        if not holds(aside, receipt.sha256):
            raise OSError(errno.EIO, "the copy differs", str(receipt.path))
        aside.chmod(RELEASE_MODE)
        sync(aside)
        aside.rename(target)
        sync(target.parent)
    return replace(receipt, path=target, copied=receipt.path)


def _draw(store: Store, draft: PendingDraw, build: Callable[[Path], None], kill_point: KillPoint) -> str:
    """Build the release in its private directory; on any failure the draw is destroyed."""
    write_intent(store, draft)
    kill_point("intent")
    try:
        make_directory(draft.directory)
        kill_point("directory")
        build(draft.file)
        kill_point("built")
        if [path.name for path in draft.directory.iterdir()] != [draft.file.name]:
            raise InternalError("the release was not written as one closed file", hint="nothing was charged")
        sync(draft.file)
        sync(draft.directory)
        digest = file_hash(draft.file)
        kill_point("hashed")
    except BaseException:
        clean(store, draft)
        raise
    return digest


def _charged(
    store: Store, spend: ReleaseSpend, digests: Mapping[str, tuple[str, ...]]
) -> tuple[ChargedTable, ...]:
    """The raw tables as the ledger keeps them."""
    return tuple(
        ChargedTable(table.name, table.places, tuple(map(store.fingerprint, digests.get(table.name, ()))))
        for table in spend.tables
    )


def _marks(table: SourceTable, digests: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """What a table is known by in another ledger: its places, which stay when rows change, and digests of its rows."""
    places = (f"place {place}" for place in table.places)
    return (*places, *(f"rows {digest}" for digest in digests.get(table.name, ())))


def _seal(
    store: Store,
    spend: ReleaseSpend,
    name: Label,
    tables: tuple[ChargedTable, ...],
    draft: PendingDraw,
    digest: str,
) -> LedgerEntry:
    """The entry that continues the chain."""
    lineage = spend.lineage
    entry = LedgerEntry(
        sequence=len(store.entries) + 1,
        release_id=draft.release_id,
        lineage=lineage.name,
        unit=lineage.unit,
        neighbours=lineage.neighbours,
        delta=str(lineage.delta),
        key_delta=str(lineage.key_delta),
        cap=str(lineage.cap),
        limit=str(lineage.limit),
        label=name.label,
        spec_hash=name.spec_hash,
        lines=lines_json((*spend.lines, *spend.reported)),
        tables=tables_json(tables),
        cost=str(spend.cost()),
        key_cost=str(spend.key_cost()),
        sha256=digest,
        target=str(draft.target),
        published_at=datetime.now(UTC).isoformat(timespec="seconds"),
        previous=store.last_hash(),
        hash="",
    )
    return replace(entry, hash=entry.expected_hash())


def _spent(spend: ReleaseSpend, selection: SelectionRecord | None) -> ReleaseSpend:
    """What was spent: as much as planned, in the lines of what was measured in the end.

    Raises:
        InternalError: it is more than was planned.
    """
    if selection is None or selection.lines is None:
        return spend
    measured = replace(spend, lines=selection.lines)
    if measured.cost() > spend.cost() or measured.key_cost() > spend.key_cost():
        raise InternalError("a draw spent more than it was planned for")
    return measured


def _book(
    store: Store, spend: ReleaseSpend, name: Label, tables: tuple[ChargedTable, ...], draft: PendingDraw
) -> None:
    """Charge a draw that failed after it had chosen something; its file is gone."""
    spending()
    entry = _seal(store, spend, name, tables, draft, hashlib.sha256(draft.release_id.encode()).hexdigest())
    with machine("the ledger could not be written", UNSURE):
        store.commit(entry, spend.lineage, no_kill)


def _commit(
    store: Store, entry: LedgerEntry, lineage: Lineage, draft: PendingDraw, kill_point: KillPoint
) -> None:
    try:
        store.commit(entry, lineage, kill_point)
    except BudgetExceeded:
        clean(store, draft)
        raise
