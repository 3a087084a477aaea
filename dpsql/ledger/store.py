"""The ledger file: one counter row per lineage with a CHECK, the rows of each release, a hash chain; its report.

| table | one row per | columns |
|---|---|---|
| `meta` | key | format, and the secret key of the data fingerprints |
| `lineage` | lineage | name, unit, neighbours, delta, cap in epsilon, ceiling, spent, CHECK (spent <= ceiling) |
| | | key_delta, key_ceiling, key_spent, CHECK (key_spent <= key_ceiling) |
| `entry` | step of a release | the fields of `LedgerEntry` |

No row is changed: a release's newest row says how it stands, and what has been spent is the sum of those. Ceiling and
spent are grains of what the lineage counts; those of keys are grains of delta, and `key_delta` is written when the row
is made and never again: to set it aside later would be a choice between two stopping rules by what was seen.

DuckDB decides the shape: transactions that each SUM entries overspend (24 of 10 measured), so the counter is
one row; a cut write-ahead log opens as a shorter history, so `<ledger>.head` keeps the last hash outside.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass, fields, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import duckdb

from dpsql.budget import GRAINS, KEY_GRAINS
from dpsql.errors import BudgetExceeded, IntegrityError, InternalError, MachineFault
from dpsql.faults import UNCHARGED, UNSURE, machine
from dpsql.ledger.files import beside, held, made_aside, private_log, remove_aside, write_json
from dpsql.ledger.identity import (
    BEGUN,
    BEGUN_KEYS,
    ENDED,
    FOLLOWS,
    GENESIS,
    RESERVED,
    SEALED,
    LedgerEntry,
    Lineage,
    SourceTable,
    SpendLine,
    limit_grains,
)
from dpsql.noise import os_entropy
from dpsql.scratch import scratch

_FORMAT = "dpsql-ledger-12"
_COLUMNS = [field.name for field in fields(LedgerEntry)]
_SCHEMA = f"""
CREATE TABLE meta (key VARCHAR PRIMARY KEY, value VARCHAR NOT NULL);
CREATE TABLE lineage (
    name VARCHAR PRIMARY KEY, unit VARCHAR NOT NULL, neighbours VARCHAR NOT NULL, delta VARCHAR NOT NULL,
    cap VARCHAR NOT NULL, ceiling HUGEINT NOT NULL, spent HUGEINT NOT NULL, CHECK (spent <= ceiling),
    CHECK (spent >= 0), key_delta VARCHAR NOT NULL, key_ceiling HUGEINT NOT NULL, key_spent HUGEINT NOT NULL,
    CHECK (key_spent <= key_ceiling), CHECK (key_spent >= 0));
CREATE TABLE entry (
    {", ".join(f'"{name}" {"BIGINT" if name == "sequence" else "VARCHAR"} NOT NULL' for name in _COLUMNS)},
    PRIMARY KEY (sequence));
"""
RESTORE = "restore the ledger and its .head file from their newest backup; spending has stopped"
_OTHER = (
    "restore the ledger; if an older version wrote this one, name another file under `ledger` and lower the cap by what"
    " it spent"
)


class Head(NamedTuple):
    """Number of rows and last hash, kept beside the ledger.

    Args:
        sequence, hash: of the last row.
        moved: where the ledger went, or None while it is here.
        files: names of what went with it.
    """

    sequence: int
    hash: str
    moved: str | None = None
    files: tuple[str, ...] = ()


class Counter(NamedTuple):
    """One lineage's row: who, and the most and the spent in grains, also those of keys."""

    lineage: Lineage
    ceiling: int
    spent: int
    key_ceiling: int
    key_spent: int


class Store:
    """The opened ledger, its chain checked. Only for a holder of the lock."""

    def __init__(self, path: Path) -> None:
        """Open the ledger, making it if there has never been one here.

        Args:
            path: the ledger file.

        Raises:
            IntegrityError: the chain is broken, cut short, or does not add up.
            MachineFault: the file cannot be opened.
        """
        self.path = path
        head = beside(path, ".head")
        if head.exists() and (moved := read_head(head).moved) is not None:
            raise IntegrityError(
                f"the ledger {path} was moved to {moved}",
                hint="name that file under `ledger`; to finish a move that was cut short, run it again",
            )
        if not path.exists():
            _create(path, head)
        remove_aside(path)
        self._connection = _connect(path)
        try:
            self.entries, self.counters, self._secret = self._read()
            _check_chain(self.entries, self.counters)
            # the last row or, after a crash between commit and head, the one before
            sequence, last = read_head(head)[:2]
            if not len(self.entries) - 1 <= sequence <= len(self.entries):
                raise IntegrityError(
                    f"the ledger has {len(self.entries)} entries, its head {sequence}", hint=RESTORE
                )
            if last != (self.entries[sequence - 1].hash if sequence else GENESIS):
                raise IntegrityError("the ledger's head is not on its chain", hint=RESTORE)
        except BaseException:
            self._connection.close()
            raise

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """For tables that no charge depends on, such as `row_sketch`."""
        return self._connection

    def close(self) -> None:
        self._connection.close()

    def spent(self, name: str) -> Fraction:
        """Spend of a lineage, in its currency."""
        return Fraction(self.counters[name].spent, GRAINS) if name in self.counters else Fraction(0)

    def fingerprint(self, digest: str) -> str:
        """The keyed hash of a digest of the raw data; without the ledger it tells nothing about them."""
        return hmac.new(self._secret, digest.encode(), hashlib.sha256).hexdigest()

    def last_hash(self) -> str:
        """The hash that the next entry continues."""
        return self.entries[-1].hash if self.entries else GENESIS

    def standing(self) -> dict[str, LedgerEntry]:
        """Newest row of each release by its id, in the order of the first."""
        return {entry.release_id: entry for entry in self.entries}

    def refresh(self) -> None:
        """Read again what is on disk, and let the head catch up."""
        self.entries, self.counters, self._secret = self._read()
        self.move_head()

    def commit(self, entry: LedgerEntry, lineage: Lineage, kill_point: Callable[[str], None]) -> None:
        """Charge and record in one transaction, then move the head.

        Args:
            entry: the row; its place in the chain, its moment and its hash are filled in.
            lineage: whose counter; its row is made, or its cap lowered, in the same transaction.
            kill_point: called inside the transaction, for tests that kill there.

        Raises:
            BudgetExceeded: the CHECK of the counter row refused the charge.
            InternalError: the release stands where this state cannot follow.
            MachineFault: the file or the head cannot be written; the line says what is charged.
        """
        before = self.standing().get(entry.release_id)
        if entry.state not in FOLLOWS[before.state if before else ""]:
            raise InternalError(
                f"a release that is {before.state if before else 'new'} cannot be {entry.state}"
            )
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        entry = replace(entry, sequence=len(self.entries) + 1, published_at=moment, previous=self.last_hash())
        entry = replace(entry, hash=entry.expected_hash())
        charge, keys = _added(entry, before)
        connection, ceiling = self._connection, limit_grains(lineage.limit)
        private_log(self.path)
        connection.execute("BEGIN")
        try:
            if lineage.name in self.counters:
                connection.execute(
                    "UPDATE lineage SET spent = spent + ?, cap = ?, ceiling = ?, key_spent = key_spent + ? "
                    "WHERE name = ?",
                    [charge, str(lineage.cap), ceiling, keys, lineage.name],
                )
            else:
                key_ceiling = math.floor(lineage.key_delta * KEY_GRAINS)
                connection.execute(
                    "INSERT INTO lineage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [lineage.name, lineage.unit, lineage.neighbours, str(lineage.delta), str(lineage.cap), ceiling,
                     charge, str(lineage.key_delta), key_ceiling, keys],
                )  # fmt: skip
            kill_point(f"{entry.state}: charged")
            marks = ", ".join("?" * len(_COLUMNS))
            connection.execute(f"INSERT INTO entry VALUES ({marks})", list(astuple(entry)))
            kill_point(f"{entry.state}: recorded")
            connection.execute("COMMIT")
        except BaseException as error:
            with suppress(duckdb.Error):  # a commit that failed has rolled back, one that did not is on disk
                connection.execute("ROLLBACK")
            if isinstance(error, duckdb.ConstraintException):
                raise BudgetExceeded(
                    f"the ledger refused a spend of {entry.cost} on lineage {lineage.name!r}",
                    hint="see dpsql budget",
                ) from error
            if isinstance(error, duckdb.Error):
                raise MachineFault(f"the ledger {self.path} could not be written", hint=UNSURE) from error
            raise
        kill_point(f"{entry.state}: committed")
        with machine("the ledger could not be read again", UNSURE):
            self.refresh()

    def move_head(self) -> None:
        """Write the last row's hash outside the ledger file, if it is not there yet."""
        head = beside(self.path, ".head")
        last = Head(len(self.entries), self.last_hash())
        if read_head(head) != last:
            write_head(head, last)

    def _read(self) -> tuple[list[LedgerEntry], dict[str, Counter], bytes]:
        try:
            meta = dict(self._connection.execute("SELECT key, value FROM meta").fetchall())
            if meta.get("format") != _FORMAT or "secret" not in meta:
                raise IntegrityError(f"{self.path} is not a ledger of this version of dpsql", hint=_OTHER)
            listed = ", ".join(f'"{name}"' for name in _COLUMNS)
            rows = self._connection.execute(f"SELECT {listed} FROM entry ORDER BY sequence").fetchall()
            counters = self._connection.execute("SELECT * FROM lineage").fetchall()
        except (duckdb.IOException, duckdb.OutOfMemoryException):  # of the machine; the ledger may be whole
            raise
        except duckdb.Error as error:
            raise IntegrityError(f"{self.path} is not a ledger or is damaged", hint=RESTORE) from error
        counters_by_name = {
            name: Counter(
                Lineage(name, unit, neighbours, Fraction(delta), Fraction(cap), Fraction(key_delta)),
                ceiling,
                spent,
                key_ceiling,
                key_spent,
            )
            for name, unit, neighbours, delta, cap, ceiling, spent, key_delta, key_ceiling, key_spent in counters
        }
        return [LedgerEntry(*row) for row in rows], counters_by_name, bytes.fromhex(meta["secret"])


def read_store(ledger: Path) -> Store:
    """Read the state of a ledger, its chain checked; closed again.

    Raises:
        IntegrityError: the chain is broken or cut short.
        MachineFault: the file cannot be locked, opened or read.
    """
    with machine(f"the ledger {ledger} was not read", UNCHARGED), held(beside(ledger, ".lock")):
        store = Store(ledger)
        store.close()
    return store


def _connect(path: Path) -> duckdb.DuckDBPyConnection:
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": "1",
        "enable_external_access": "false",
        "autoload_known_extensions": "false",
    }
    try:
        return duckdb.connect(str(path), config=config)
    except duckdb.Error as error:
        raise MachineFault(
            f"the ledger {path} cannot be opened",
            hint=f"close other programs that use it, or restore it; {UNCHARGED}",
        ) from error


def _create(path: Path, head: Path) -> None:
    """Make the file aside and rename it: a crash leaves a ledger or none."""
    if head.exists() and read_head(head).sequence > 0:
        raise IntegrityError(f"the ledger {path} is gone but its head is not", hint=RESTORE)
    with made_aside(path) as aside:
        with scratch(aside) as connection:
            connection.execute(f"BEGIN; {_SCHEMA}")
            rows = [("format", _FORMAT), ("secret", os_entropy()(32).hex())]
            connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)
            connection.execute("COMMIT; CHECKPOINT")  # closing would do it too, and not say that it failed
        write_head(head, Head(0, GENESIS))  # before the ledger: a ledger without a head is always a fault


def write_head(head: Path, last: Head) -> None:
    """Replace a head."""
    moved = {"moved": last.moved, "files": last.files} if last.moved is not None else {}
    write_json(head, {"sequence": last.sequence, "hash": last.hash, **moved})


def read_head(head: Path) -> Head:
    """A ledger's head.

    Raises:
        IntegrityError: it is missing or damaged.
    """
    try:
        value = json.loads(head.read_text(encoding="utf-8"))
        moved = value.get("moved")
        return Head(
            int(value["sequence"]), str(value["hash"]), None if moved is None else str(moved),
            tuple(map(str, value.get("files", ()))),
        )  # fmt: skip
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(f"the ledger's head {head} is missing or damaged", hint=RESTORE) from error


def _check_chain(entries: list[LedgerEntry], counters: dict[str, Counter]) -> None:
    """Each entry continues the one before, and the counters are what the entries add up to."""
    previous = GENESIS
    spent: dict[str, tuple[int, int]] = dict.fromkeys(counters, (0, 0))
    latest: dict[str, LedgerEntry] = {}
    standing: dict[str, LedgerEntry] = {}
    for number, entry in enumerate(entries, start=1):
        if entry.sequence != number or entry.previous != previous or entry.hash != entry.expected_hash():
            raise IntegrityError(f"the ledger's chain is broken at entry {number}", hint=RESTORE)
        previous = entry.hash
        before = standing.get(entry.release_id)
        if entry.state not in FOLLOWS[before.state if before else ""]:
            raise IntegrityError(f"the ledger's entry {number} cannot follow", hint=RESTORE)
        total, key_total = spent.get(entry.lineage, (0, 0))
        charge, keys = _added(entry, before)
        spent[entry.lineage] = total + charge, key_total + keys
        latest[entry.lineage] = standing[entry.release_id] = entry
    for name, totals in spent.items():
        if name not in counters or name not in latest or not _agrees(counters[name], latest[name], totals):
            raise IntegrityError(f"lineage {name!r} does not agree with its entries", hint=RESTORE)


def _added(entry: LedgerEntry, before: LedgerEntry | None) -> tuple[int, int]:
    """By how many grains a row moves its lineage's counters, given the release's row before."""
    if before is None:
        return entry.grains(), entry.key_grains()
    return entry.grains() - before.grains(), entry.key_grains() - before.key_grains()


def _agrees(counter: Counter, entry: LedgerEntry, totals: tuple[int, int]) -> bool:
    lineage = counter.lineage
    identity = (
        lineage.unit, lineage.neighbours, str(lineage.delta), str(lineage.key_delta), str(lineage.cap), counter.ceiling,
        counter.key_ceiling,
    )  # fmt: skip
    recorded = (
        entry.unit, entry.neighbours, entry.delta, entry.key_delta, entry.cap, limit_grains(Fraction(entry.limit)),
        math.floor(Fraction(entry.key_delta) * KEY_GRAINS),
    )  # fmt: skip
    return (counter.spent, counter.key_spent) == totals and identity == recorded


UNSHOWN = {
    RESERVED: "reserved: the same publish takes it up",
    BEGUN_KEYS: "begun: the next publish ends it",
    BEGUN: "begun: the next publish ends it",
    ENDED: "ended: what had begun stays charged",
    SEALED: "file is gone but stays charged",
}


@dataclass(frozen=True)
class EntryReport:
    """One release of a lineage, or a charge that none came of.

    Attributes:
        label, release_id, published_at, path: which release, when (UTC), and where it was put.
        state: how it stands, one of `FOLLOWS`; only a sealed one has a file.
        cost: what it was charged, in the lineage's currency.
        epsilon: the same as an epsilon at the lineage's delta, for this release alone.
        lines: what for.
        present: whether the file is still there (a missing one stays charged).
        tables: the raw tables that it read.
    """

    label: str
    release_id: str
    state: str
    published_at: str
    path: Path
    cost: Fraction
    epsilon: Fraction
    lines: tuple[SpendLine, ...]
    present: bool
    tables: tuple[SourceTable, ...]

    @property
    def unshown(self) -> str:
        """Reason why a charge has no file, in words; empty where it has one."""
        return "" if self.present and self.state == SEALED else UNSHOWN[self.state]


@dataclass(frozen=True)
class LineageReport:
    """One lineage: its identity and cap, what is spent and left in its currency, and the releases.

    `key_spent` is what chosen keys have spent of the lineage's `key_delta`.
    """

    lineage: Lineage
    spent: Fraction
    left: Fraction
    entries: tuple[EntryReport, ...]
    key_spent: Fraction

    @property
    def spent_epsilon(self) -> Fraction:
        """Spend as an epsilon at the lineage's delta."""
        return self.lineage.currency.epsilon(self.spent)

    @property
    def left_epsilon(self) -> Fraction:
        """The largest epsilon of one more release; under a delta epsilons do not add up to the cap."""
        return self.lineage.currency.payable(self.left)


@dataclass(frozen=True)
class BudgetReport:
    """All lineages of one ledger, by name; none if the ledger has not been used yet."""

    ledger: Path
    lineages: tuple[LineageReport, ...]


def budget_report(ledger: Path) -> BudgetReport:
    """Read the ledger and check its chain.

    Args:
        ledger: the ledger file; one that was never used gives an empty report.

    Returns:
        Per lineage its cap, what is spent and left, and the releases in order.

    Raises:
        IntegrityError: the chain is broken or cut short.
        MachineFault: the file cannot be opened.

    **Privacy**: for the curator; it holds labels and paths but no data.
    """
    if not ledger.exists() and not beside(ledger, ".head").exists():
        return BudgetReport(ledger, ())
    store = read_store(ledger)
    reports = []
    for name in sorted(store.counters):
        counter = store.counters[name]
        entries = tuple(_entry_report(entry) for entry in store.standing().values() if entry.lineage == name)
        spent, remaining = (
            Fraction(grains, GRAINS) for grains in (counter.spent, counter.ceiling - counter.spent)
        )
        key_spent = Fraction(counter.key_spent, KEY_GRAINS)
        reports.append(LineageReport(counter.lineage, spent, remaining, entries, key_spent))
    return BudgetReport(ledger, tuple(reports))


def ledger_entries(ledger: Path) -> tuple[LedgerEntry, ...]:
    """The newest row of each release of a ledger, its chain checked; none if it has not been used yet.

    Args:
        ledger: the ledger file.

    Raises:
        IntegrityError: the chain is broken or cut short.
        MachineFault: the file cannot be opened.
    """
    if not ledger.exists() and not beside(ledger, ".head").exists():
        return ()
    return tuple(read_store(ledger).standing().values())


def _entry_report(entry: LedgerEntry) -> EntryReport:
    path = Path(entry.target)
    return EntryReport(
        entry.label,
        entry.release_id,
        entry.state,
        entry.published_at,
        path,
        Fraction(entry.cost),
        entry.epsilon,
        entry.spend_lines(),
        path.is_file(),
        entry.charged_tables(),
    )
