"""When a spend is refused: labels, targets, budget identities, caps."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

from dpsql.errors import BudgetExceeded, IntegrityError, InternalError, LineageError, ReleaseExists
from dpsql.ledger.files import file_hash, holds
from dpsql.ledger.identity import Entry, Label, Lineage, Receipt, Spend, charge_grains, limit_grains
from dpsql.ledger.stated import at_delta, left_epsilon, spent_epsilon
from dpsql.ledger.store import Store


def find(store: Store, name: Label) -> Entry | None:
    """The entry of this lineage and label, if there is one."""
    named = (name.lineage, name.label)
    return next((entry for entry in store.entries if (entry.lineage, entry.label) == named), None)


def earlier(store: Store, entry: Entry, name: Label, target: Path) -> Receipt:
    """The release that this label already names, or the reason why it cannot be it."""
    if entry.spec_hash != name.spec_hash:
        raise ReleaseExists(
            f"label {entry.label!r} was published with another specification", hint="choose a new label"
        )
    lineage = store.counters[entry.lineage].lineage
    for path in (target, Path(entry.target)):
        if holds(path, entry.sha256):
            left = lineage.limit - store.spent(entry.lineage)
            return Receipt(entry.release_id, path, entry.sha256, False, Fraction(0), left, lineage.delta)
    raise ReleaseExists(
        f"label {entry.label!r} is charged but its file is gone or changed",
        hint=f"restore {Path(entry.target).name} from a backup, or choose a new label to spend again",
    )


def check_public(store: Store, target: Path, public: Iterable[Path]) -> None:
    """Refuse to spend beside a release that the ledger does not know, or over one that it knows."""
    known = {entry.sha256: entry.label for entry in store.entries}
    for path in public:
        if path.is_file() and file_hash(path) not in known:
            raise IntegrityError(
                f"the ledger does not know the release {path}", hint="restore the ledger it was charged to"
            )
    if target.exists():
        label = known.get(file_hash(target)) if target.is_file() else None
        if label is None:
            raise IntegrityError(
                f"{target} exists and the ledger does not know it",
                hint="choose another output, or restore the ledger it was charged to",
            )
        raise ReleaseExists(f"{target} holds the release {label!r}", hint="choose another output")


def check_release_id(store: Store, release_id: str) -> None:
    """Refuse an id that was charged before: each draw has one of its own."""
    if any(entry.release_id == release_id for entry in store.entries):
        raise InternalError("this release id was charged before", hint="take one from new_release_id()")


def check_spend(store: Store, spend: Spend) -> None:
    """Refuse a spend that contradicts its lineage, reads another lineage's table, or passes the cap."""
    lineage, cost = spend.lineage, spend.cost()
    owners = {table: entry.lineage for entry in store.entries for table in entry.table_names()}
    for table in spend.tables:
        owner = owners.get(table, lineage.name)
        if owner != lineage.name:
            raise LineageError(
                f"table {table!r} belongs to lineage {owner!r}", hint=f"name lineage {owner!r}"
            )
    if lineage.name in store.counters:
        _check_identity(lineage, store.counters[lineage.name].lineage)
    left, delta = lineage.limit - store.spent(lineage.name), lineage.delta
    if charge_grains(cost) > limit_grains(left):
        raise BudgetExceeded(
            f"lineage {lineage.name!r} has {_short(left_epsilon(max(left, Fraction(0)), delta))} epsilon left"
            f" of {_short(lineage.cap)}{at_delta(delta)} and this release costs {_short(spent_epsilon(cost, delta))}",
            hint="lower epsilon; a cap never rises",
        )


def _check_identity(lineage: Lineage, known: Lineage) -> None:
    for name in ("unit", "neighbours", "delta"):
        first, now = getattr(known, name), getattr(lineage, name)
        if first != now:
            before, today = (_short(value) if name == "delta" else repr(value) for value in (first, now))
            raise LineageError(
                f"lineage {lineage.name!r} was opened with {name} {before}, not {today}",
                hint=f"write {before}, or name a new lineage for other people",
            )
    if lineage.cap > known.cap:
        raise LineageError(
            f"lineage {lineage.name!r} has cap {_short(known.cap)} and caps never rise",
            hint=f"write cap {_short(known.cap)} or less",
        )


def _short(amount: Fraction) -> str:
    """An amount as a short decimal, for messages."""
    return f"{float(amount):.12g}"
