"""Rules that refuse a spend: labels, targets, identities, caps, rows of another name, a ledger that went back in time.

A ledger that was restored from an old copy would charge again what it has charged. Its head, which lies beside it,
tells where the file alone was restored; where the whole folder was, only something outside can. So every folder that a
release of the ledger was put into holds a small private file: how many entries there were, and the last one's hash. It
is written after each charge, wherever that can be done: who cannot write it loses a warning and no promise.

Nothing tells where all folders were restored to one time; keep their backups apart.

**Keyed sketches of rows**: a table is known again that was renamed and has a row more or less.

A place is spelled once and a digest of all rows changes with each of them, so a file that is renamed and gets one row
would begin a second budget about the same people. A sketch is the `SKETCH` least keyed hashes of the texts of a table's
whole rows: two tables that share nearly all rows share nearly all of them. It is made anew at each charge, and compared
once for a pair of places of two lineages; the verdict is kept, whatever the rows become.

| table of the ledger | one row per | columns |
|---|---|---|
| `row_sketch` | lineage and places of a table | keyed hashes, least first |
| `row_verdict` | two such pairs | `apart`, `alike`, or `stated` with the curator's reason |

**Privacy**: outside of epsilon (docs/privacy.md, "The same rows under another name"): the refusal depends on raw rows
and is shown to the curator alone, who holds both tables. A hash is one of a row under the ledger's secret; whoever
reads the ledger can test a guess of a whole row against the 64 that are kept. `dpsql forget LEDGER` erases them all.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from dpsql.budget import GRAINS, KEY_GRAINS
from dpsql.errors import BudgetExceeded, IntegrityError, InternalError, LineageError, ReleaseExists
from dpsql.faults import UNCHARGED, machine
from dpsql.ledger import identity
from dpsql.ledger.files import beside, file_hash, held, holds, private_log, write_json
from dpsql.ledger.store import RESTORE, Store


def find(store: Store, name: identity.Label) -> identity.LedgerEntry | None:
    """The release that a lineage's label stands for, reserved or sealed, if there is one.

    Raises:
        ReleaseExists: the label stands for another specification.
    """
    found = next((entry for entry in named(store, name) if entry.state != identity.ENDED), None)
    if found is not None and found.spec_hash != name.spec_hash:
        done = "published" if found.state == identity.SEALED else "reserved"
        raise ReleaseExists(
            f"label {name.label!r} was {done} with another specification", hint="choose a new label"
        )
    return found


def named(store: Store, name: identity.Label) -> list[identity.LedgerEntry]:
    """All releases of a lineage's label as they stand; of those that ended there may be several."""
    standing = store.standing().values()
    return [entry for entry in standing if (entry.lineage, entry.label) == (name.lineage, name.label)]


def earlier(store: Store, entry: identity.LedgerEntry, target: Path) -> identity.Receipt:
    """The release that a label already names, or the reason why it cannot be it."""
    lineage = store.counters[entry.lineage].lineage
    for path in (target, Path(entry.target)):
        if holds(path, entry.sha256):
            remaining = lineage.limit - store.spent(entry.lineage)
            return identity.Receipt(
                entry.release_id, path, entry.sha256, False, Fraction(0), remaining, lineage.currency
            )
    raise ReleaseExists(
        f"label {entry.label!r} is charged but its file is gone or changed",
        hint=f"restore {Path(entry.target).name} from a backup, or choose a new label to spend again",
    )


def check_public(store: Store, public: Iterable[tuple[Path, str]]) -> None:
    """Refuse to spend while a release of the lineage is out that the ledger does not know: it was charged elsewhere."""
    charged_ids = {entry.release_id for entry in store.entries}
    for path, release_id in public:
        if release_id not in charged_ids:
            raise IntegrityError(
                f"the ledger does not know the release {path}",
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


def check_spend(store: Store, spend: identity.ReleaseSpend, reserved: identity.LedgerEntry | None) -> None:
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
    if identity.charge_grains(cost) > identity.limit_grains(remaining):
        # what buys the cap is rounded down, and 3.99999 left of an untouched 4 would read as a spend
        left = lineage.cap if remaining >= lineage.limit else currency.payable(max(remaining, Fraction(0)))
        raise BudgetExceeded(
            f"this release costs epsilon {_short(currency.epsilon(cost))}; the cap of lineage {lineage.name!r} is "
            f"{_short(lineage.cap)}{currency.at_delta}, and {_short(left)} epsilon left of it",
            hint="lower epsilon; a cap never rises",
        )
    if math.ceil(spend.delta * KEY_GRAINS) + spent > math.floor(lineage.key_delta * KEY_GRAINS):
        raise BudgetExceeded(
            f"lineage {lineage.name!r} has no delta left to choose keys with",
            hint="list the keys of an earlier release in `always`, or take the column out of the views",
        )


def check_copies(store: Store, lineage: identity.Lineage, tables: Iterable[identity.SourceTable]) -> None:
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
    store: Store,
    lineage: identity.Lineage,
    marks: Sequence[str],
    marks_of: Callable[[identity.SourceTable], Sequence[str]],
) -> Iterator[str]:
    """Other lineages whose charged tables have one of some marks."""
    for entry in store.entries:
        if entry.lineage != lineage.name and any(
            set(marks_of(t)) & set(marks) for t in entry.charged_tables()
        ):
            yield entry.lineage


def _check_identity(lineage: identity.Lineage, recorded: identity.Lineage) -> None:
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


SKETCH = 64
"""Hashes of one table."""
ALIKE = 58
"""Of them in common: 95% of pairs of tables that share 19 rows in 20 reach it, 2% of those that share 17 in 20."""
FEWEST_ROWS = 640
"""Different rows below which a table has no sketch: its hashes would be a tenth of its rows or more."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS row_sketch (
    lineage VARCHAR, place VARCHAR, hashes VARCHAR NOT NULL, PRIMARY KEY (lineage, place));
CREATE TABLE IF NOT EXISTS row_verdict (
    lineage VARCHAR, place VARCHAR, other_lineage VARCHAR, other_place VARCHAR, verdict VARCHAR NOT NULL,
    reason VARCHAR NOT NULL, PRIMARY KEY (lineage, place, other_lineage, other_place));
"""


@dataclass(frozen=True)
class RowComparison:
    """Sketches of a publish, and whether somebody is there to read a refusal.

    Args:
        least_hashes: a key and a number -> raw table -> its least keyed row hashes, least first, so many or all.
        compare: whether tables are compared: at a terminal or where it was asked for, never in a timer or a server.
        other_people: why rows that are alike are about other people, in the curator's words; empty where they are not.
    """

    least_hashes: Callable[[str, int], Mapping[str, Sequence[str]]]
    compare: bool = False
    other_people: str = ""


class _Sketch(NamedTuple):
    """A stored sketch."""

    lineage: str
    place: str
    hashes: frozenset[str]


def check_sketches(store: Store, spend: identity.ReleaseSpend, comparison: RowComparison) -> None:
    """Refuse a table whose rows another lineage has been charged for, and keep the sketches of those that are charged.

    Args:
        store: the opened ledger, before anything is charged.
        spend: whose budget, and the raw tables.
        comparison: how to make the sketches, and whether to compare them.

    Raises:
        LineageError: a table that is new to its lineage has nearly all rows of another lineage's table.
        MachineFault: the ledger cannot be written.
    """
    name = spend.lineage.name
    entries = [entry for entry in store.entries if entry.lineage == name]
    charged = {place for entry in entries for table in entry.charged_tables() for place in table.places}
    row_hashes = comparison.least_hashes(store.fingerprint("row sketches"), FEWEST_ROWS)
    private_log(store.path)
    store.connection.execute(_SCHEMA)
    for table in spend.tables:
        # of a folder itself, whatever files come into it; of a data frame its name
        place = store.fingerprint(f"place {table.places[0]}" if table.places else f"frame {table.name}")
        # A place that holds too few rows now keeps no older sketch either.
        hashes = row_hashes.get(table.name, ())
        sketch = _Sketch(name, place, frozenset(hashes[:SKETCH] if len(hashes) >= FEWEST_ROWS else ()))
        if comparison.compare and charged.isdisjoint(table.places):
            for stranger in _strangers(store, name):
                _judge(store, table.name, sketch, stranger, comparison.other_people)
        store.connection.execute(
            "INSERT OR REPLACE INTO row_sketch VALUES (?, ?, ?)",
            [name, sketch.place, json.dumps(sorted(sketch.hashes))],
        )


def forget_sketches(ledger: Path) -> int:
    """Erase the sketches of a ledger; verdicts, which hold no row, stay.

    Args:
        ledger: the ledger file.

    Returns:
        How many tables had one.

    Raises:
        IntegrityError: the chain is broken.
        MachineFault: the file cannot be locked, opened or written.
    """
    with machine("nothing was erased", UNCHARGED), held(beside(ledger, ".lock")):
        store = Store(ledger)
        try:
            # the table of sketches is there from the first publish on
            some = "SELECT COUNT(*) > 0 FROM duckdb_tables() WHERE table_name = 'row_sketch'"
            kept = "SELECT COUNT(*) > 0 FROM row_sketch WHERE hashes <> '[]'"
            if not all(store.connection.execute(sql).fetchall() == [(True,)] for sql in (some, kept)):
                return 0  # the file stays as it is
            private_log(store.path)
            erased = store.connection.execute("DELETE FROM row_sketch WHERE hashes <> '[]'").fetchall()
            store.connection.execute("CHECKPOINT")  # the rows leave the write-ahead log
        finally:
            store.close()
    return int(erased[0][0])


def _judge(store: Store, table: str, sketch: _Sketch, stranger: _Sketch, reason: str) -> None:
    """Compare two sketches, once for each pair; the verdict is kept before anything is said.

    Raises:
        LineageError: they are alike, and nobody has said that the rows are about other people.
    """
    pair = [sketch.lineage, sketch.place, stranger.lineage, stranger.place]
    where = "lineage = ? AND place = ? AND other_lineage = ? AND other_place = ?"
    stored = store.connection.execute(f"SELECT verdict FROM row_verdict WHERE {where}", pair).fetchall()
    outcome = "alike" if len(sketch.hashes & stranger.hashes) >= ALIKE else "apart"
    verdict = stored[0][0] if stored else outcome
    if verdict == "alike" and reason:
        verdict = "stated"
    written = [*pair, verdict, reason if verdict == "stated" else ""]
    if not stored or stored[0][0] != verdict:
        store.connection.execute("INSERT OR REPLACE INTO row_verdict VALUES (?, ?, ?, ?, ?, ?)", written)
    if verdict == "alike":
        raise LineageError(
            f"(private) table {table!r} has nearly all rows of a table that lineage {stranger.lineage!r} has published",
            hint=f"name lineage {stranger.lineage!r}, or state with --other-people why these rows are about others",
        )


def _strangers(store: Store, name: str) -> Iterator[_Sketch]:
    """Sketches of other lineages that were charged: one whose publish was refused later has no entry."""
    charged = {entry.lineage for entry in store.entries} - {name}
    rows = store.connection.execute("SELECT lineage, place, hashes FROM row_sketch ORDER BY ALL").fetchall()
    for lineage, place, hashes in rows:
        if lineage in charged:
            yield _Sketch(lineage, place, frozenset(json.loads(hashes)))
