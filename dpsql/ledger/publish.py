"""The publish protocol: lock, recover, check, draw, hash, charge and record in one commit, show.

    step        what is on disk                                     a crash after it
    checked     nothing new                                         nothing happened
    intent      <ledger>.intent names the draw's private directory  the directory is removed
    built       the release, readable by its owner only             the draw is destroyed, nothing charged
    committed   charge + entry, then <ledger>.head                  the rename is finished
    renamed     the release in place, mode 0444                     the intent is removed

Recovery rolls forward and never draws again: a draw that was charged is shown, one that was not is destroyed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from dpsql.errors import BudgetExceeded, InternalError
from dpsql.ledger.files import file_hash, make_directory, sync
from dpsql.ledger.identity import (
    ChargedTable,
    Entry,
    Label,
    Lineage,
    PublicRelease,
    Receipt,
    Spend,
    lines_json,
    tables_json,
)
from dpsql.ledger.recovery import Draft, KillPoint, clean, no_kill, opened, settle, show, write_intent
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


def publish_file(
    ledger: Path,
    spend: Spend,
    *,
    release_id: str,
    label: str,
    spec_hash: str,
    digests: Callable[[], Mapping[str, tuple[str, ...]]],
    build: Callable[[Path], None],
    target: Path,
    public: Iterable[PublicRelease] = (),
    kill_point: KillPoint = no_kill,
) -> Receipt:
    """Publish one release file and charge it, exactly once.

    Args:
        ledger: the ledger file; made if there has never been one.
        spend: whose budget, what for, which raw tables.
        release_id: the id that `build` writes into the file, from `new_release_id()`.
        label: the curator's name for this release; with the specification it decides what is "the same". Data are
            not compared: that would tell whether they are equal.
        spec_hash: the hash of the canonical specification, from `spec_hash()`.
        digests: makes digests of each raw table's rows, if there is something to draw; kept as keyed hashes only.
        build: draws the noise and writes and closes a fresh file at the path it is given.
        target: where the release is to be shown.
        public: releases of the lineage that are out; one that the ledger does not know stops spending.
        kill_point: called with the name of each step, for tests that kill there.

    Returns:
        The receipt. With the same specification and label, the earlier release: nothing is drawn or charged.

    Raises:
        ReleaseExists: the label was used for another specification, or the target is taken.
        BudgetExceeded: the cap does not hold this spend.
        LineageError: a budget identity that contradicts its first use.
        IntegrityError: chain, releases and ledger disagree.
        InternalError: `build` left no file, or files beside it.

    **Privacy**: what becomes readable has been charged, durably, before; each draw is charged at most once.
    """
    target = target.absolute()
    with opened(ledger) as store:
        kill_point("locked")
        recovery = settle(store)
        kill_point("recovered")
        name = Label(spend.lineage.name, label, spec_hash)
        known = find(store, name)
        if known is not None:
            return replace(earlier(store, known, name, target), recovery=recovery)
        check_target(store, target)
        check_public(store, public)
        check_release_id(store, release_id)
        check_spend(store, spend)
        tables = _charged(store, spend, digests())
        check_copies(store, spend.lineage, tables)
        kill_point("checked")
        draft = Draft(release_id, target)
        digest = _draw(store, draft, build, kill_point)
        entry = _seal(store, spend, name, tables, draft, digest)
        _commit(store, entry, spend.lineage, draft, kill_point)
        show(draft, kill_point)
        clean(store, draft)
        left = spend.lineage.limit - store.spent(spend.lineage.name)
        return Receipt(release_id, target, digest, True, spend.cost(), left, spend.lineage.delta, recovery)


def published_before(ledger: Path, name: Label, target: Path) -> Receipt | None:
    """The release that a label already names, looked up before anything private is opened.

    Args:
        ledger: the ledger file.
        name: lineage, label and specification.
        target: where the release may also lie.

    Returns:
        The receipt, or None where `publish_file` has something to draw.

    Raises:
        ReleaseExists: the label was used for another specification, or its file is gone.
        IntegrityError: chain, releases and ledger disagree.

    **Privacy**: a function of the catalog, the ledger and release files; no raw row is opened, so nothing about
    them can be told, not even by the time it takes.
    """
    if not ledger.exists():
        return None
    with opened(ledger) as store:
        known = find(store, name)
        if known is None:
            return None
        recovery = settle(store)
        return replace(earlier(store, known, name, target.absolute()), recovery=recovery)


def _draw(store: Store, draft: Draft, build: Callable[[Path], None], kill_point: KillPoint) -> str:
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


def _charged(store: Store, spend: Spend, digests: Mapping[str, tuple[str, ...]]) -> tuple[ChargedTable, ...]:
    """The raw tables as the ledger keeps them."""
    return tuple(
        ChargedTable(table.name, table.places, tuple(map(store.fingerprint, digests.get(table.name, ()))))
        for table in spend.tables
    )


def _seal(
    store: Store, spend: Spend, name: Label, tables: tuple[ChargedTable, ...], draft: Draft, digest: str
) -> Entry:
    """The entry that continues the chain."""
    lineage = spend.lineage
    entry = Entry(
        sequence=len(store.entries) + 1,
        release_id=draft.release_id,
        lineage=lineage.name,
        unit=lineage.unit,
        neighbours=lineage.neighbours,
        delta=str(lineage.delta),
        cap=str(lineage.cap),
        limit=str(lineage.limit),
        label=name.label,
        spec_hash=name.spec_hash,
        lines=lines_json(spend.lines),
        tables=tables_json(tables),
        cost=str(spend.cost()),
        sha256=digest,
        target=str(draft.target),
        published_at=datetime.now(UTC).isoformat(timespec="seconds"),
        previous=store.last_hash(),
        hash="",
    )
    return replace(entry, hash=entry.expected_hash())


def _commit(store: Store, entry: Entry, lineage: Lineage, draft: Draft, kill_point: KillPoint) -> None:
    try:
        store.commit(entry, lineage, kill_point)
    except BudgetExceeded:
        clean(store, draft)
        raise
