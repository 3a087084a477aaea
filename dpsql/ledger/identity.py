"""Identities of charges: lineages, spends, and the entries that record them.

A **lineage** is the budget of one group of people: a name, the privacy unit, the neighbour relation, delta
and the cap. It is declared, never guessed, and fixed at its first use.

A cap is an epsilon at the lineage's delta. What is counted is epsilon where delta is 0 and mu^2 else, so under
a delta the cap is converted once, by the conversion that turns a release's epsilon into mu^2.

Amounts are fractions; the ledger counts them in grains, 1 / (2^40 3^4 5^20) of epsilon or mu^2, rounded up
for charges and down for caps. Decimals of up to 20 places, halves and thirds are exact, so ten releases of
0.4 fit a cap of 4.

The memory of this computer (`LedgerMemory`) notices a ledger that begins anew: a catalog that was moved or cloned
begins a ledger of its own, with a full cap. So each charge leaves a trace outside of ledgers and catalogs, in
`$DPSQL_STATE`, else `$XDG_STATE_HOME/dpsql`, else `~/.local/state/dpsql`: pairs of keyed digests, one of the lineage's
name, one of a table's place or of its rows. A table is refused if the file knows it and the ledger at hand has charged
none of its lineages, unless `--new-ledger` says that these are other people.

It is a warning and not the ledger: it is written after the charge, and where it cannot be read or written, publishing
goes on and the receipt says why. Two publishes of one table that run at the same moment do not see each other, and a
kill between the charge and the row leaves no row.

**Privacy**: no name, no path and no row of data. The key lies in the same file, mode 0600: whoever reads it can test a
guess of a path, of a lineage's name, or of all rows of a table together.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import math
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from dpsql.budget import GRAINS, KEY_GRAINS, Currency, currency_at
from dpsql.errors import InternalError, LineageError, PrivacyError
from dpsql.ledger.files import PRIVATE_DIRECTORY, PRIVATE_FILE, write_json
from dpsql.noise import os_entropy

GENESIS = "0" * 64

RESERVED, BEGUN_KEYS, BEGUN, SEALED, ENDED = "reserved", "begun keys", "begun", "sealed", "ended"
FOLLOWS: dict[str, tuple[str, ...]] = {
    "": (RESERVED, SEALED),
    RESERVED: (RESERVED, BEGUN_KEYS, BEGUN, SEALED),
    BEGUN_KEYS: (BEGUN, ENDED),
    BEGUN: (SEALED, ENDED),
    SEALED: (),
    ENDED: (),
}
"""State of a release in the ledger -> states that may come next; none leads back from `begun`.

| state | what has been drawn | what becomes of it after a crash |
|---|---|---|
| reserved | perhaps noise that decides nothing; nobody saw it | taken up again for nothing, by the same label |
| begun keys | key rounds alone, priced by what was to be drawn after them | ended: the whole charge stays |
| begun | a step whose outcome decides what follows | ended: the whole charge stays |
| sealed | the file whose hash it holds | the file is put in place |
| ended | nothing that is left | the label reserves anew |
"""


@dataclass(frozen=True)
class Lineage:
    """Lineage whose budget is spent.

    Attributes:
        name: the declared id.
        unit: the privacy unit, for instance `customer.customer_id` or `row`.
        neighbours: `add_remove` or `replace_one`.
        delta: 0, or the delta at which every epsilon of this lineage is meant.
        cap: the most that may ever be spent, an epsilon at delta.
        key_delta: the part of delta that choosing keys may ever spend.
    """

    name: str
    unit: str
    neighbours: str
    delta: Fraction
    cap: Fraction
    key_delta: Fraction = Fraction(0)

    @property
    def currency(self) -> Currency:
        return currency_at(self.delta, self.key_delta)

    @property
    def limit(self) -> Fraction:
        """The cap in the currency."""
        return self.currency.counted(self.cap)


class SpendLine(NamedTuple):
    """One purpose of a release and what it spends; every data-dependent choice has a line of its own.

    A step that chooses keys spends a delta of its own too.
    """

    purpose: str
    amount: Fraction
    currency: str
    delta: Fraction = Fraction(0)


class SourceTable(NamedTuple):
    """A raw table.

    Args:
        name: in the catalog.
        places: canonical places that its rows lie at.
        fingerprints: keyed hashes of its digests, as a ledger keeps them.
    """

    name: str
    places: tuple[str, ...]
    fingerprints: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReleaseSpend:
    """All that one release spends.

    Attributes:
        lineage: whose budget.
        charge: what the catalog is charged, in the lineage's currency: the same for every plan that data may choose.
        lines: what for, as far as it is known before anything is drawn.
        tables: the raw tables that are read about the lineage's people.
        reported: lines without cost: columns whose people paid on their own devices.
    """

    lineage: Lineage
    charge: Fraction
    lines: tuple[SpendLine, ...]
    tables: tuple[SourceTable, ...]
    reported: tuple[SpendLine, ...] = ()

    def check(self) -> None:
        """Refuse lines that cannot be charged.

        Raises:
            PrivacyError: no lines, or a line that is not above 0.
            LineageError: a line in another currency.
            InternalError: the lines add up to more than the charge.

        **Privacy**: basic composition in either currency.
        """
        if not self.lines or any(line.amount <= 0 for line in self.lines):
            raise PrivacyError("every spend needs an amount above 0", hint="give each part a share above 0")
        name = self.lineage.currency.name
        foreign_currency = next((line.currency for line in self.lines if line.currency != name), None)
        if foreign_currency is not None:
            raise LineageError(
                f"lineage {self.lineage.name!r} counts {name} and cannot record a spend in {foreign_currency}",
                hint="publish at the lineage's delta, or name a new lineage",
            )
        if sum((line.amount for line in self.lines), Fraction(0)) > self.charge:
            raise InternalError("the parts of a release add up to more than its charge")

    @property
    def delta(self) -> Fraction:
        """Part of the lineage's `key_delta` that is charged."""
        return sum((line.delta for line in self.lines), Fraction(0))


@dataclass(frozen=True)
class LedgerEntry:
    """A release's row in the ledger; the newest one with its id says how the release stands.

    Attributes:
        sequence: its number in the chain, from 1.
        release_id: of the release.
        state: one of `FOLLOWS`.
        lineage, unit, neighbours, delta, key_delta, cap, limit: whose budget, as texts.
        label, spec_hash: as of `Label`.
        lines, tables: what for and from what, as JSON.
        cost, key_cost: what the release is charged, as it stands, of the lineage's currency and of its `key_delta`.
        sha256: of the file; empty until it is sealed.
        target: where the file is to be shown.
        published_at: when the row was written, UTC.
        previous, hash: `hash` covers all other fields and the hash of the row before.
    """

    sequence: int
    release_id: str
    state: str
    lineage: str
    unit: str
    neighbours: str
    delta: str
    key_delta: str
    cap: str
    limit: str
    label: str
    spec_hash: str
    lines: str
    tables: str
    cost: str
    key_cost: str
    sha256: str
    target: str
    published_at: str
    previous: str
    hash: str

    def expected_hash(self) -> str:
        """The hash that the other fields call for."""
        fields = {key: value for key, value in asdict(self).items() if key != "hash"}
        return hashlib.sha256(canonical(fields).encode()).hexdigest()

    def spend_lines(self) -> tuple[SpendLine, ...]:
        """The lines as they were charged."""
        return tuple(
            SpendLine(purpose, Fraction(amount), currency, Fraction(delta))
            for purpose, amount, currency, delta in json.loads(self.lines)
        )

    def charged_tables(self) -> tuple[SourceTable, ...]:
        """The raw tables that were read."""
        return tuple(
            SourceTable(name, tuple(where), tuple(prints)) for name, where, prints in json.loads(self.tables)
        )

    @property
    def epsilon(self) -> Fraction:
        """Cost of this release alone, as an epsilon at the lineage's delta."""
        return self.currency.epsilon(Fraction(self.cost))

    @property
    def currency(self) -> Currency:
        return currency_at(Fraction(self.delta), Fraction(self.key_delta))

    def grains(self) -> int:
        """Charge in ledger quanta."""
        return charge_grains(Fraction(self.cost))

    def key_grains(self) -> int:
        """Charge of chosen keys in their quanta."""
        return math.ceil(Fraction(self.key_cost) * KEY_GRAINS)


class Label(NamedTuple):
    """Identity of a publish: lineage and label name it, the specification must agree; data are no part."""

    lineage: str
    label: str
    spec_hash: str


@dataclass(frozen=True)
class Recovery:
    """Outcome of recovery after a crash.

    Attributes:
        finished: the release that was charged and has now been put in place, or None.
        lost: the release that stays charged although its file is gone, or None.
        removed: the directory of a draw that nobody saw and that is now destroyed, or None.
    """

    finished: Path | None = None
    lost: Path | None = None
    removed: Path | None = None


@dataclass(frozen=True)
class Receipt:
    """Outcome of `publish_file`.

    Attributes:
        release_id: the release's id; an earlier one if the label was already published.
        path: where the release is.
        sha256: its hash.
        drawn: False if an earlier release of the same specification and label was returned.
        charged: what the release was charged, in the lineage's currency; 0 if nothing was drawn.
        left: what the lineage has left, in its currency.
        currency: what the lineage counts.
        recovery: what an earlier crash had left behind, and what was done about it.
        copied: where the earlier release lies that this is a copy of, or None.
        taken_up: whether an earlier call had reserved the charge.
        ended: what earlier draws of this label cost for good, since they ended once they had begun.
        forgotten: why the computer's memory does not know of this charge; empty where it does, or nothing was charged.
    """

    release_id: str
    path: Path
    sha256: str
    drawn: bool
    charged: Fraction
    left: Fraction
    currency: Currency
    recovery: Recovery = Recovery()
    copied: Path | None = None
    taken_up: bool = False
    ended: Fraction = Fraction(0)
    forgotten: str = ""

    @property
    def charged_epsilon(self) -> Fraction:
        """Charge as an epsilon at delta."""
        return self.currency.epsilon(self.charged)

    @property
    def left_epsilon(self) -> Fraction:
        """The largest epsilon of one more release that is left."""
        return self.currency.payable(self.left)

    @property
    def repeats(self) -> int:
        """Number of releases of the same charge that are left."""
        return int(self.left // self.charged)


def new_release_id() -> str:
    """A fresh random id: 32 hexadecimal digits."""
    return os_entropy()(16).hex()


def charge_grains(amount: Fraction) -> int:
    """A charge in grains, rounded up."""
    return math.ceil(amount * GRAINS)


def limit_grains(limit: Fraction) -> int:
    """A limit in grains, rounded down."""
    return math.floor(limit * GRAINS)


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


VARIABLE = "DPSQL_STATE"
"""The environment variable that names the folder."""

MOST_ROWS = 10_000
"""Beyond, the rows that were written longest ago are dropped."""

_FORMAT = "dpsql-memory-1"
_LARGEST = 1 << 22

_PATIENCE = 5.0
"""Seconds to wait for another program that writes the file, which takes milliseconds."""


class MemoryFault(Exception):
    """Reason why nothing is remembered: for the receipt, never raised past this module."""


class _Remembered(NamedTuple):
    """The content of the file.

    Args:
        key: of the digests.
        rows: (digest of a lineage, digest of a table), the newest last.
    """

    key: bytes
    rows: list[tuple[str, str]]

    def digest(self, kind: str, text: str) -> str:
        """A keyed digest of 128 bits."""
        return hmac.new(self.key, f"{kind}:{text}".encode(), hashlib.sha256).hexdigest()[:32]


@dataclass(frozen=True)
class LedgerMemory:
    """The memory of one computer.

    Args:
        folder: where its file lies; None where nobody can say.
        new_ledger: whether tables that were spent on in another ledger are taken: they are about other people.
    """

    folder: Path | None
    new_ledger: bool = False

    @property
    def file(self) -> Path:
        """The file.

        Raises:
            MemoryFault: there is no folder.
        """
        if self.folder is None:
            raise MemoryFault(f"there is no home folder; set {VARIABLE}")
        return self.folder / "spends.json"

    def check(self, lineage: str, charged: Collection[str], tables: Mapping[str, Iterable[str]]) -> None:
        """Refuse a table that another ledger has charged.

        Args:
            lineage: whose budget is to be spent.
            charged: lineages that the ledger at hand has charged.
            tables: table -> its marks: places and digests of rows.

        Raises:
            LineageError: a mark is remembered, and of no lineage of this ledger.
        """
        if self.new_ledger:
            return
        try:
            remembered = _read(self.file)
        except (MemoryFault, OSError):
            return  # `remember` says so
        charged_digests = {remembered.digest("lineage", name) for name in charged}
        spenders: dict[str, set[str]] = {}
        for owner, mark in remembered.rows:
            spenders.setdefault(mark, set()).add(owner)
        for table, marks in tables.items():
            for mark in marks:
                owners = spenders.get(remembered.digest("table", mark), set())
                if owners and not owners & charged_digests:
                    raise _refusal(lineage, table, remembered.digest("lineage", lineage) in owners)

    def remember(self, lineage: str, marks: Iterable[str]) -> str:
        """Write down what was charged.

        Args:
            lineage: whose budget was spent.
            marks: of the tables that were read.

        Returns:
            Why nothing was remembered; empty where it was.
        """
        try:
            file = self.file
            file.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            with _locked(file.with_name(file.name + ".lock")):
                remembered = _read(file)
                owner = remembered.digest("lineage", lineage)
                fresh = dict.fromkeys((owner, remembered.digest("table", mark)) for mark in marks)
                rows = [row for row in remembered.rows if row not in fresh] + list(fresh)
                content = {"format": _FORMAT, "key": remembered.key.hex(), "rows": rows[-MOST_ROWS:]}
                write_json(file, content)
        except MemoryFault as fault:
            return str(fault)
        except OSError as fault:
            return str(fault.strerror or type(fault).__name__)
        return ""


def memory_of_this_computer(*, new_ledger: bool) -> LedgerMemory:
    """The memory that the environment names.

    Args:
        new_ledger: as of `LedgerMemory`.
    """
    return LedgerMemory(_state_folder(), new_ledger)


def _state_folder() -> Path | None:
    if named := os.environ.get(VARIABLE):
        return Path(named).absolute()
    base = Path(os.environ.get("XDG_STATE_HOME") or "")
    if base.is_absolute():  # the specification says that a relative one does not count
        return base / "dpsql"
    try:
        return Path.home() / ".local" / "state" / "dpsql"
    except RuntimeError:
        return None


def _refusal(lineage: str, table: str, is_same: bool) -> LineageError:
    hint = "give --ledger PATH, or --new-ledger if these are other people"
    if is_same:
        return LineageError(f"lineage `{lineage}` has spent before, in another ledger", hint=hint)
    return LineageError(f"another lineage has spent on table `{table}` before, in another ledger", hint=hint)


def _read(file: Path) -> _Remembered:
    """The content of the file; a fresh key and no rows where there is none.

    Raises:
        MemoryFault: it is damaged.
        OSError: it cannot be read.
    """
    try:
        with file.open("rb") as stream:
            content = json.loads(stream.read(_LARGEST))
        rows = [(str(owner), str(mark)) for owner, mark in content["rows"]]
        key = bytes.fromhex(content["key"])
        if content["format"] != _FORMAT or len(key) != 32:
            raise ValueError
    except FileNotFoundError:
        return _Remembered(os_entropy()(32), [])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MemoryFault(f"{file} is damaged; remove it") from error
    return _Remembered(key, rows)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Exclude other programs. The lock file stays empty: who holds it would be a name.

    Raises:
        MemoryFault: another program holds it for too long.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    try:
        start = time.monotonic()
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - start > _PATIENCE:
                    raise MemoryFault(f"{path} is locked by another program") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)
