"""`dpsql certificate`: what a data-protection officer files about a release, as values for JSON and a page.

Who is protected and how, what it cost and where that is written, what was measured of it and by which version, and
what is not promised. Everything follows from the release; the ledger's line needs the curator's catalog, and the figure
of the exact loss is measured when the certificate is made (`dpsql.curator.prove`).

**Privacy**: published values, the ledger's line about this release, and made-up rows.
**Source**: docs/privacy.md, "8. What an offline audit of a release shows".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.catalog import Catalog
from dpsql.catalog.graph import ledger_path
from dpsql.catalog.model import ROW
from dpsql.central.central import PROMISE
from dpsql.curator.audit import AuditReport
from dpsql.curator.prove import Proof
from dpsql.engines.postgresql import is_by_address
from dpsql.errors import InterfaceError, ReleaseError
from dpsql.ledger.files import file_hash
from dpsql.ledger.store import budget_report
from dpsql.release import Release
from dpsql.release.promises import RULE, has_key_rounds, promise_words
from dpsql.release.read import release_file
from dpsql.release.signature import check_signature, held

FORMAT = "dpsql-certificate-1"


class Certified(NamedTuple):
    """File that a certificate is about.

    Args:
        name, description, population: as in its catalog.
        release_id: as the ledger has it.
        file, sha256: of a stream its promise, which the ledger seals.
        signer: the public key whose signature the file bears, of a stream its newest state; None where none holds.
    """

    name: str
    description: str
    population: str
    release_id: str
    file: str
    sha256: str
    signer: str | None


class Protected(NamedTuple):
    """Protected unit, with the sentence that holds for it.

    Args:
        unit: `row`, or the people's key.
        neighbours: the catalog's word.
        rows_per_unit: table -> rows of one unit that count.
        epsilon, delta, mu2, rho: fractions as text; mu2 and rho under a delta alone, no rho where private keys were
            sought.
        sentence: what is promised, in words.
        values: table -> how its source's values were compared and rounded.
    """

    unit: str
    neighbours: str
    rows_per_unit: dict[str, int | str]
    epsilon: str
    delta: str
    mu2: str | None
    rho: str | None
    sentence: str
    values: dict[str, str]


class MeasuredStatistic(NamedTuple):
    """One statistic: what is told of what, how, and for how much."""

    view: str
    measure: str
    mechanism: str
    amount: str
    currency: str


class LedgerLine(NamedTuple):
    """Ledger entry of this release; epsilons at the lineage's delta.

    Args:
        ledger, lineage, label: where it is written.
        charged_on: UTC.
        charged: for this release.
        spent, cap: of the lineage, all releases together.
        by_address: tables that the ledger knows by their server's address, whose identifier could not be read.
    """

    ledger: str
    lineage: str
    label: str
    charged_on: str
    charged: float
    spent: float
    cap: float
    by_address: tuple[str, ...]


@dataclass(frozen=True)
class Certificate:
    """All of it.

    Args:
        about: the release.
        made_on, version: when it was written, ISO date, UTC, and by which dpsql.
        protected: the promise.
        measured: every statistic.
        spends: purpose and amount of each part of the budget.
        ledger: its line; None without the curator's catalog.
        proof: the measured loss; None where it was not measured.
        checked: (checks of the offline audit that held, that could not be made, that failed).
        not_promised: sentences.
    """

    about: Certified
    made_on: str
    version: str
    protected: Protected
    measured: tuple[MeasuredStatistic, ...]
    spends: tuple[tuple[str, str], ...]
    ledger: LedgerLine | None
    proof: Proof | None
    checked: tuple[int, int, int]
    not_promised: tuple[str, ...]

    @property
    def held(self) -> bool:
        """True if nothing that was looked at failed."""
        return not self.checked[2] and (self.proof is None or self.proof.held)

    def to_json(self) -> dict[str, Any]:
        passed, open_, failed = self.checked
        return {
            "format": FORMAT,
            "made_on": self.made_on,
            "dpsql": self.version,
            "release": self.about._asdict(),
            "protected": self.protected._asdict(),
            "mechanisms": [measurement._asdict() for measurement in self.measured],
            "spends": [{"what": purpose, "amount": amount} for purpose, amount in self.spends],
            "ledger": None if self.ledger is None else self.ledger._asdict(),
            "exact_loss": None if self.proof is None else self.proof.to_json(),
            "audit": {"held": passed, "not_checked": open_, "failed": failed},
            "not_promised": list(self.not_promised),
        }  # fmt: skip


def certify(
    release: Release, audit: AuditReport, catalog: Catalog | None, proof: Proof | None
) -> Certificate:
    """Write the certificate of a release.

    Args:
        release: an open central release or state of a stream.
        audit: of it.
        catalog: the curator's, for the ledger's line.
        proof: of its catalog, where it was measured.

    Raises:
        InterfaceError: people reported for themselves; their plan is what to file.
        IntegrityError, OperationalError: the ledger is broken or cannot be opened.
    """
    meta = release.meta
    if meta.local is not None:
        raise InterfaceError(
            "people reported for themselves: there is no curator's release to certify",
            hint="file the collection's plan and `dpsql report`",
        )
    path, written, signer = audit.release, release.catalog, None
    # opening has read these very bytes, so a fault is of the signature
    with suppress(ReleaseError), held(release_file(path)) as opened:
        signer = check_signature(opened, None).key
    about = Certified(
        written.name, written.description, written.population or "", meta.release_id, path.name,
        file_hash(path / PROMISE if path.is_dir() else path), signer,
    )  # fmt: skip
    checks = [check.held for check in audit.checks]
    line = None if catalog is None else _line(ledger_path(catalog), meta.release_id)
    measured = (
        MeasuredStatistic(s.view, s.measure, s.mechanism, s.budget, s.currency) for s in release.statistics
    )
    return Certificate(
        about, datetime.now(UTC).date().isoformat(), version("dpsql"), _protected(release), tuple(measured),
        tuple((spend.purpose, spend.amount) for spend in meta.spends), line, proof,
        (checks.count(True), checks.count(None), checks.count(False)),
        tuple(_not_promised(release, () if line is None else line.by_address)),
    )  # fmt: skip


def _protected(release: Release) -> Protected:
    promise = release.meta.privacy
    # a shown key of one unit has a loss without bound: rounds of keys are zero-concentrated at no rho
    pure_or_keys = promise.mu2 is None or has_key_rounds(promise)
    rho = None if pure_or_keys else str(Fraction(promise.mu2 or 0) / 2)
    return Protected(
        promise.unit, promise.neighbours, dict(promise.rows_per_unit or {}), promise.epsilon, promise.delta,
        promise.mu2, rho, promise_words(promise)[0], dict(promise.values or {}),
    )  # fmt: skip


def _line(ledger: Path, release_id: str) -> LedgerLine | None:
    for lineage in budget_report(ledger).lineages:
        for entry in (entry for entry in lineage.entries if entry.release_id == release_id):
            by_address = tuple(table.name for table in entry.tables if any(map(is_by_address, table.places)))
            return LedgerLine(
                ledger.name, lineage.lineage.name, entry.label, entry.published_at, float(entry.epsilon),
                float(lineage.spent_epsilon), float(lineage.lineage.cap), by_address,
            )  # fmt: skip
    return None


def _not_promised(release: Release, by_address: Sequence[str]) -> Iterator[str]:
    """Properties that a reader may assume and this release does not promise."""
    meta, catalog = release.meta, release.catalog
    promise = meta.privacy
    if meta.insecure_entropy:
        yield "Its noise is predictable (test entropy): nothing is promised."
    yield from promise_words(promise)[1:]
    if promise.unit == ROW.name:
        joined = [n for n, t in catalog.tables.items() if not t.is_public and n not in catalog.star.tables]
        note = f" Rows of {', '.join(joined)} are joined and not protected." if joined else ""
        yield f"People: one row of {', '.join(catalog.star.tables)} is protected, not all that a person owns.{note}"
    else:
        yield (
            f"Others who are named in a person's rows: a row is its {promise.unit}'s own; whoever else it names is not "
            "protected by this release."
        )
    if meta.stream is not None and meta.stream.max_batches is None and promise.unit != ROW.name:
        yield "A lifetime: a person's rows of one batch are protected; over k batches the promise is k epsilon."
    if meta.privacy.mu2 is not None:
        yield "Certainty: outcomes with probability below delta may reveal more than the factor states."
    yield "Groups: of k units together the promise is k epsilon (under a delta k^2 mu^2); a family is a group."
    yield (
        "Facts about people in general: an answer about all may make a fact likely for each person, in the data or not."
    )
    public = sorted(catalog.public_tables)
    listed = f", all rows of {', '.join(public)}" if public else ""
    yield f"Public facts: the catalog with its bounds and categories{listed}, and that and when this was published."
    yield "Releases about the same people that were charged to another ledger: their costs add up."
    if by_address:
        yield (
            f"One cap under another address: {', '.join(by_address)} is known by host, port and database, since the "
            "identifier of their database cluster could not be read."
        )
    if catalog.privacy.min_people:
        yield f"Hidden small numbers. {RULE.format(catalog.privacy.min_people)}"
    yield "Secrecy of raw rows where they are kept, while publishing too. Erasing a person there changes no release."
