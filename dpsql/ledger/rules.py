"""Rules that refuse a spend: labels, targets, budget identities, caps, and a ledger that went back in time.

A ledger that was restored from an old copy would charge again what it has charged. Its head, which lies beside it,
tells where the file alone was restored; where the whole folder was, only something outside can. So every folder that a
release of the ledger was put into holds a small private file: how many entries there were, and the last one's hash. It
is written after each charge, wherever that can be done: who cannot write it loses a warning and no promise.

Nothing tells where all folders were restored to one time; keep their backups apart.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from dpsql.budget import GRAINS, KEY_GRAINS
from dpsql.errors import BudgetExceeded, IntegrityError, InternalError, LineageError, ReleaseExists
from dpsql.ledger.files import file_hash, holds, write_json
from dpsql.ledger.identity import (
    ENDED,
    SEALED,
    ChargedTable,
    Label,
    LedgerEntry,
    Lineage,
    PublicRelease,
    Receipt,
    ReleaseSpend,
    charge_grains,
    limit_grains,
)
from dpsql.ledger.store import RESTORE, Store


def find(store: Store, name: Label) -> LedgerEntry | None:
    """The release that a lineage's label stands for, reserved or sealed, if there is one.

    Raises:
        ReleaseExists: the label stands for another specification.
    """
    found = next((entry for entry in named(store, name) if entry.state != ENDED), None)
    if found is not None and found.spec_hash != name.spec_hash:
        done = "published" if found.state == SEALED else "reserved"
        raise ReleaseExists(
            f"label {name.label!r} was {done} with another specification", hint="choose a new label"
        )
    return found


def named(store: Store, name: Label) -> list[LedgerEntry]:
    """All releases of a lineage's label as they stand; of those that ended there may be several."""
    standing = store.standing().values()
    return [entry for entry in standing if (entry.lineage, entry.label) == (name.lineage, name.label)]


def earlier(store: Store, entry: LedgerEntry, target: Path) -> Receipt:
    """The release that a label already names, or the reason why it cannot be it."""
    lineage = store.counters[entry.lineage].lineage
    for path in (target, Path(entry.target)):
        if holds(path, entry.sha256):
            remaining = lineage.limit - store.spent(entry.lineage)
            return Receipt(
                entry.release_id, path, entry.sha256, False, Fraction(0), remaining, lineage.currency
            )
    raise ReleaseExists(
        f"label {entry.label!r} is charged but its file is gone or changed",
        hint=f"restore {Path(entry.target).name} from a backup, or choose a new label to spend again",
    )


def check_public(store: Store, public: Iterable[PublicRelease]) -> None:
    """Refuse to spend while a release of the lineage is out that the ledger does not know: it was charged elsewhere."""
    charged_ids = {entry.release_id for entry in store.entries}
    for release in public:
        if release.release_id not in charged_ids:
            raise IntegrityError(
                f"the ledger does not know the release {release.path}",
                hint="restore the ledger it was charged to; if it is about other people, move it to another folder",
            )


def check_target(store: Store, target: Path) -> None:
    """Refuse to write over a file."""
    if not target.exists():
        return
    labels = {entry.sha256: entry.label for entry in store.entries}
    label = labels.get(file_hash(target)) if target.is_file() else None
    if label is None:
        raise IntegrityError(
            f"{target} exists and the ledger does not know it",
            hint="choose another output, or restore the ledger it was charged to",
        )
    raise ReleaseExists(f"{target} contains the release {label!r}", hint="choose another output")


def check_release_id(store: Store, release_id: str) -> None:
    """Refuse an id that was charged before: each draw has one of its own."""
    if any(entry.release_id == release_id for entry in store.entries):
        raise InternalError("this release id was charged before", hint="take one from new_release_id()")


def check_spend(store: Store, spend: ReleaseSpend, reserved: LedgerEntry | None) -> None:
    """Refuse a spend that contradicts its lineage, reads another lineage's table, or passes the cap.

    Args:
        store, spend: what is to be spent.
        reserved: what was reserved for it before, if anything; the cap counts it once.
    """
    lineage, cost = spend.lineage, spend.charge
    spend.check()
    for table in spend.tables:
        for owner in _others(store, lineage, table.places, lambda charged: charged.places):
            raise LineageError(
                f"table {table.name!r} belongs to lineage {owner!r}", hint=f"name lineage {owner!r}"
            )
    if lineage.name in store.counters:
        _check_identity(lineage, store.counters[lineage.name].lineage)
    remaining, currency = lineage.limit - store.spent(lineage.name), lineage.currency
    spent = store.counters[lineage.name].key_spent if lineage.name in store.counters else 0
    if reserved is not None:
        remaining += Fraction(reserved.grains(), GRAINS)
        spent -= reserved.key_grains()
    if charge_grains(cost) > limit_grains(remaining):
        raise BudgetExceeded(
            f"lineage {lineage.name!r} has {_short(currency.payable(max(remaining, Fraction(0))))} epsilon left"
            f" of {_short(lineage.cap)}{currency.at_delta} and this release costs {_short(currency.epsilon(cost))}",
            hint="lower epsilon; a cap never rises",
        )
    if math.ceil(spend.delta * KEY_GRAINS) + spent > math.floor(lineage.key_delta * KEY_GRAINS):
        raise BudgetExceeded(
            f"lineage {lineage.name!r} has no delta left to choose keys with",
            hint="list the keys of an earlier release in `always`, or take the column out of the views",
        )


def check_copies(store: Store, lineage: Lineage, tables: Iterable[ChargedTable]) -> None:
    """Refuse a table whose rows another lineage has published from another place.

    **Privacy**: the refusal tells the curator, who holds both tables, that their rows are the same.
    """
    for table in tables:
        for owner in _others(store, lineage, table.fingerprints, lambda charged: charged.fingerprints):
            raise LineageError(
                f"table {table.name!r} has the same rows as a table of lineage {owner!r}",
                hint=f"name lineage {owner!r}",
            )


def _others(
    store: Store, lineage: Lineage, marks: Sequence[str], marks_of: Callable[[ChargedTable], Sequence[str]]
) -> Iterator[str]:
    """Other lineages whose charged tables have one of some marks."""
    for entry in store.entries:
        if entry.lineage != lineage.name and any(
            set(marks_of(t)) & set(marks) for t in entry.charged_tables()
        ):
            yield entry.lineage


def _check_identity(lineage: Lineage, recorded: Lineage) -> None:
    if not recorded.key_delta and lineage.key_delta:
        raise LineageError(
            f"lineage {lineage.name!r} was opened without `key_delta`, so it has no delta for private keys",
            hint="list the values of the column, or open a new lineage for other people",
        )
    for name in ("unit", "neighbours", "delta", "key_delta"):
        first, current = getattr(recorded, name), getattr(lineage, name)
        if first != current:
            opened_with, today = (
                _short(value) if isinstance(value, Fraction) else repr(value) for value in (first, current)
            )
            raise LineageError(
                f"lineage {lineage.name!r} was opened with {name} {opened_with}, not {today}",
                hint=f"write {opened_with}, or name a new lineage for other people",
            )
    if lineage.cap > recorded.cap:
        raise LineageError(
            f"lineage {lineage.name!r} has cap {_short(recorded.cap)} and caps never rise",
            hint=f"write cap {_short(recorded.cap)} or less",
        )


def _short(amount: Fraction) -> str:
    """An amount as a short decimal, for messages."""
    return f"{float(amount):.12g}"


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
