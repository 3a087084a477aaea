"""Identities of charges: lineages, spends, and the entries that record them.

A **lineage** is the budget of one group of people: a name, the privacy unit, the neighbour relation, delta
and the cap. It is declared, never guessed, and fixed at its first use.

A cap is an epsilon at the lineage's delta. What is counted is epsilon where delta is 0 and mu^2 else, so under
a delta the cap is converted once, by the conversion that turns a release's epsilon into mu^2.

Amounts are fractions; the ledger counts them in grains, 1 / (2^40 3^4 5^20) of epsilon or mu^2, rounded up
for charges and down for caps. Decimals of up to 20 places, halves and thirds are exact, so ten releases of
0.4 fit a cap of 4.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from dpsql.budget import GRAINS, KEY_GRAINS, Currency, currency_at
from dpsql.errors import InternalError, LineageError, PrivacyError
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
    """A raw table by its name in the catalog and the canonical places that its rows lie at."""

    name: str
    places: tuple[str, ...]


class ChargedTable(NamedTuple):
    """A raw table as the ledger keeps it, with the keyed hashes of its digests."""

    name: str
    places: tuple[str, ...]
    fingerprints: tuple[str, ...]


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

    def charged_tables(self) -> tuple[ChargedTable, ...]:
        """The raw tables that were read."""
        return tuple(
            ChargedTable(name, tuple(where), tuple(prints)) for name, where, prints in json.loads(self.tables)
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
