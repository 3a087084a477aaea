"""The publish protocol: lock, recover, check, reserve the charge, draw, seal, show; and recovery.

    step       the release's row   what else is on disk                      a crash after it
    checked    -                   nothing new                               nothing happened: nothing was drawn
    reserved   reserved            the signing key                           the label takes the charge up again
    drafted    reserved            <ledger>.<id>.draft/, marked              the same; the draft is destroyed
    begun      begun (keys)        the draft                                 a charge for good; the draft is destroyed
    sealed     sealed, the hash    the draft, whole and still marked         the release is put in place
    shown      sealed              the release, mode 0444, and the draft     the draft is removed

The charge is in the ledger before the first byte of entropy, so no exit after it is free. A row that is `reserved` is
taken up again for nothing, by the same label and specification: what was drawn decided nothing that anybody could see,
it is destroyed unseen and drawn anew. A step whose outcome decides what follows writes `begun` first; such a row is
never taken up, whatever ended it, and the label reserves anew (`identity.FOLLOWS`).

An exit does what recovery does, at once. Recovery rolls forward and never draws: what is sealed is shown, whatever else
lies in a draft's folder is destroyed. A draft bears a mark that every reader refuses, and the copy that is shown is the
first without it. A file that holds no draw needs no reservation: its charge and its hash are one row.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from dpsql import faults
from dpsql.errors import IntegrityError, InternalError, MachineFault, ReleaseExists
from dpsql.faults import CHARGED, FAULTS, UNCHARGED, UNSURE, machine, spending
from dpsql.ledger import files, rules
from dpsql.ledger.identity import (
    BEGUN,
    BEGUN_KEYS,
    ENDED,
    RESERVED,
    SEALED,
    Label,
    LedgerEntry,
    LedgerMemory,
    Lineage,
    Receipt,
    Recovery,
    ReleaseSpend,
    SourceTable,
    canonical,
)
from dpsql.ledger.rules import RowComparison, check_marks, check_sketches, write_marks
from dpsql.ledger.store import Store

KillPoint: TypeAlias = Callable[[str], None]
_DRAFT = ".draft"


def no_kill(step: str) -> None:
    """Go on."""


@contextmanager
def opened(ledger: Path) -> Iterator[tuple[Store, files.Lock]]:
    """The ledger, checked, and the lock that is held on it; closed whatever happens."""
    with files.held(files.beside(ledger, ".lock")) as lock:
        store = Store(ledger)
        try:
            yield store, lock
        finally:
            with machine(f"the ledger {ledger} was not closed", UNSURE):
                store.close()


class Draft:
    """A release on its way, as whoever draws it sees it.

    Attributes:
        row: how the ledger holds it.
        file: where it is built; nothing else may be left beside it.
    """

    def __init__(
        self, held_open: tuple[Store, files.Lock], row: LedgerEntry, lineage: Lineage, kill_point: KillPoint
    ) -> None:
        """A release that is about to be reserved, of a ledger that `opened` gave."""
        self.row = row
        self._store, self._lock = held_open
        self._lineage, self._kill_point = lineage, kill_point
        self.file = _folder(self._store, row.release_id) / Path(row.target).name

    @property
    def release_id(self) -> str:
        """The id that the file must hold."""
        return self.row.release_id

    def begin(self, *, keys: bool = False) -> None:
        """Say, durably, that a step begins whose outcome decides what follows: before its first byte of entropy.

        Args:
            keys: whether key rounds alone have begun, which cannot begin twice.

        **Privacy**: from here on whatever ends the draw is charged and nothing is drawn again for it.
        """
        spending(faults.BEGUN)
        self.step(BEGUN_KEYS if keys else BEGUN)

    def step(self, state: str, sha256: str = "") -> None:
        """Write the release's next row."""
        row = replace(self.row, state=state, sha256=sha256)
        self._lock.check()
        with machine("the ledger could not be written", UNSURE):
            self._store.commit(row, self._lineage, self._kill_point)
        self.row = row


def settle(store: Store) -> Recovery:
    """Recover with the ledger open: the head catches up, what had begun ends, drafts are shown or destroyed."""
    store.move_head()
    found = Recovery()
    for row in store.standing().values():
        if row.state in (BEGUN_KEYS, BEGUN):
            _end(store, row)
    for folder in sorted(store.path.parent.glob(f"{store.path.name}.*{_DRAFT}")):
        release_id = folder.name.removeprefix(f"{store.path.name}.").removesuffix(_DRAFT)
        entry = store.standing().get(release_id)
        if entry is None or entry.state != SEALED:
            shutil.rmtree(folder)
            found = replace(found, removed=folder)
            continue
        with machine("an earlier publish is not finished yet", CHARGED):
            shown = _shown(store, entry)
            found = replace(found, finished=shown) if shown else replace(found, lost=Path(entry.target))
    return found


def _shown(store: Store, entry: LedgerEntry) -> Path | None:
    """Put a sealed release in place unless it is there, and remove its draft; None where nothing is left of it."""
    write_marks(store)
    folder, target = _folder(store, entry.release_id), Path(entry.target)
    draft = folder / target.name
    is_left = draft.is_file() and files.draft_hash(draft) == entry.sha256
    if target.exists():
        if not files.holds(target, entry.sha256):
            raise IntegrityError(
                f"{target} is in the place of release {entry.label!r}", hint="move that file away"
            )
        files.sync(target.parent)
    elif is_left:
        files.put(draft, target, entry.sha256)
    shutil.rmtree(folder)
    return target if target.exists() else None


def _folder(store: Store, release_id: str) -> Path:
    """The private folder of a draft, beside the ledger."""
    return files.beside(store.path, f".{release_id}{_DRAFT}")


def _end(store: Store, row: LedgerEntry) -> None:
    """Let a release that had begun end: its charge stays."""
    lineage = store.counters[row.lineage].lineage
    ended = replace(row, state=ENDED, cap=str(lineage.cap), limit=str(lineage.limit))
    store.commit(ended, lineage, no_kill)


def _left(store: Store, draft: Draft) -> None:
    """Immediate recovery of an exit before the release is shown: see `settle`.

    Where the ledger cannot be read any more, recovery will: the draft is refused by every reader until then.
    """
    with suppress(*FAULTS, MachineFault):
        store.refresh()
        row = store.standing().get(draft.release_id)
        if row is not None and row.state == SEALED:
            return
        if draft.file.parent.exists():
            shutil.rmtree(draft.file.parent)
        if row is not None and row.state in (BEGUN_KEYS, BEGUN):
            _end(store, row)


def nothing() -> None:
    """Nothing is to be done."""


@dataclass(frozen=True)
class Order:
    """One release file that is to be made.

    Args:
        name: lineage, label and specification: what decides which releases are "the same". Data are not compared: that
            would tell whether they are equal.
        target: where it is to be shown.
        release_id: its id, from `new_release_id()`, unless an earlier call has reserved one.
        build: draws the noise and writes and closes a fresh file, with the draft's id in it.
        digests: makes digests of each raw table's rows, if there is something to draw; kept as keyed hashes only.
        prepare: all that can be refused before anything is drawn; nothing is reserved until then.
        public: releases of the lineage that are out; one that the ledger does not know stops spending.
        memory: of this computer; None for made-up rows, which are nobody's.
        rows: sketches of the raw tables' rows; None for batches of a stream and for made-up rows.
        draws: whether the file holds noise; one that does not is charged when it is sealed.
    """

    name: Label
    target: Path
    release_id: str
    build: Callable[[Draft], None]
    digests: Callable[[], Mapping[str, tuple[str, ...]]]
    prepare: Callable[[], None] = nothing
    public: tuple[tuple[Path, str], ...] = ()
    memory: LedgerMemory | None = None
    rows: RowComparison | None = None
    draws: bool = True


def publish_file(ledger: Path, spend: ReleaseSpend, order: Order, kill_point: KillPoint = no_kill) -> Receipt:
    """Publish one release file and charge it, exactly once.

    Args:
        ledger: the ledger file; made if there has never been one.
        spend: whose budget, how much, what for, which raw tables.
        order: the file.
        kill_point: called with the name of each step, for tests that kill or raise there.

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

    **Privacy**: the charge is durable before the first draw. A draw is destroyed unseen or shown, and only one that
    decided nothing is made again for the same charge.
    """
    name, target = order.name, order.target.absolute()
    with machine("the release was not published", UNCHARGED), opened(ledger) as (store, lock):
        kill_point("locked")
        recovery = settle(store)
        kill_point("recovered")
        found = rules.find(store, name)
        if found is not None and found.state == SEALED:
            return replace(_returned(store, found, name, target), recovery=recovery)
        rules.check_target(store, target)
        files.check_folder(target)
        rules.check_public(store, order.public)
        check_marks(store, target, name.label)
        if found is None:
            rules.check_release_id(store, order.release_id)
        rules.check_spend(store, spend, found)
        digests = order.digests()
        tables = _charged(store, spend, digests)
        rules.check_copies(store, spend.lineage, tables)
        if order.rows is not None:
            check_sketches(store, spend, order.rows)
        marks = {table.name: _marks(table, digests) for table in spend.tables}
        if order.memory is not None:
            order.memory.check(spend.lineage.name, {entry.lineage for entry in store.entries}, marks)
        order.prepare()
        row = _row(spend, order, tables, found.release_id if found else order.release_id)
        draft = Draft((store, lock), row, spend.lineage, kill_point)
        kill_point("checked")
        try:
            if order.draws:
                draft.step(RESERVED)
                spending(faults.RESERVED)
            digest = _built(draft, order.build, kill_point)
            spending()
            draft.step(SEALED, digest)
        except BaseException as error:
            _left(store, draft)
            if draft.row.state not in (BEGUN_KEYS, BEGUN) or not isinstance(error, Exception):
                raise
            raise MachineFault(  # its own words may tell of what was chosen
                f"the release ended once its draws had begun to decide ({type(error).__name__})",
                hint=faults.BEGUN,
            ) from None
        with machine("the release is not in place yet", CHARGED):
            files.put(draft.file, target, digest, kill_point)
            write_marks(store)
            shutil.rmtree(draft.file.parent)
        forgotten = ""
        if order.memory is not None:
            forgotten = order.memory.remember(spend.lineage.name, chain(*marks.values()))
        ended = (Fraction(entry.cost) for entry in rules.named(store, name) if entry.state == ENDED)
        return Receipt(
            draft.release_id,
            target,
            digest,
            True,
            spend.charge,
            spend.lineage.limit - store.spent(spend.lineage.name),
            spend.lineage.currency,
            recovery,
            taken_up=found is not None,
            ended=sum(ended, Fraction(0)),
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
    if not ledger.exists() and not files.beside(ledger, ".head").exists():
        return None
    with machine("the release was not published", UNCHARGED), opened(ledger) as (store, _):
        published = rules.find(store, name)
        if published is None or published.state != SEALED:
            return None
        recovery = settle(store)
        return replace(_returned(store, published, name, target.absolute()), recovery=recovery)


def _returned(store: Store, entry: LedgerEntry, name: Label, target: Path) -> Receipt:
    """The release that a label names, at the place that is asked for: a copy, where it lies elsewhere."""
    receipt = rules.earlier(store, entry, target)
    if receipt.path == target:
        return receipt
    if target.exists():
        raise ReleaseExists(
            f"{target} is not the release of label {name.label!r}, which is {receipt.path}",
            hint="choose another output; to publish anew, another label as well",
        )
    with machine(f"{target} cannot be written", CHARGED):
        files.put(receipt.path, target, receipt.sha256)
    return replace(receipt, path=target, copied=receipt.path)


def _built(draft: Draft, build: Callable[[Draft], None], kill_point: KillPoint) -> str:
    """Build the release in its private folder; what it will hash to once it is shown."""
    file = draft.file
    file.parent.mkdir(mode=files.PRIVATE_DIRECTORY)
    kill_point("directory")
    build(draft)
    kill_point("built")
    if [path.name for path in file.parent.iterdir()] != [file.name]:
        raise InternalError("the release was not written as one closed file")
    files.sync(file)
    files.sync(file.parent)
    digest = files.draft_hash(file)
    kill_point("hashed")
    return digest


def _charged(
    store: Store, spend: ReleaseSpend, digests: Mapping[str, tuple[str, ...]]
) -> tuple[SourceTable, ...]:
    """The raw tables as the ledger keeps them."""
    return tuple(
        SourceTable(table.name, table.places, tuple(map(store.fingerprint, digests.get(table.name, ()))))
        for table in spend.tables
    )


def _marks(table: SourceTable, digests: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Marks by which another ledger recognises a table: its places, which stay when rows change, and digests of
    its rows."""
    places = (f"place {place}" for place in table.places)
    return (*places, *(f"rows {digest}" for digest in digests.get(table.name, ())))


def _row(spend: ReleaseSpend, order: Order, tables: tuple[SourceTable, ...], release_id: str) -> LedgerEntry:
    """The ledger's row of a release; its state, and the fields that `Store.commit` fills in, are empty."""
    lineage, name = spend.lineage, order.name
    return LedgerEntry(
        sequence=0,
        release_id=release_id,
        state="",
        lineage=lineage.name,
        unit=lineage.unit,
        neighbours=lineage.neighbours,
        delta=str(lineage.delta),
        key_delta=str(lineage.key_delta),
        cap=str(lineage.cap),
        limit=str(lineage.limit),
        label=name.label,
        spec_hash=name.spec_hash,
        lines=canonical(
            [
                [line.purpose, str(line.amount), line.currency, str(line.delta)]
                for line in (*spend.lines, *spend.reported)
            ]
        ),
        tables=canonical(sorted(set(tables))),
        cost=str(spend.charge),
        key_cost=str(spend.delta),
        sha256="",
        target=str(order.target.absolute()),
        published_at="",
        previous="",
        hash="",
    )
