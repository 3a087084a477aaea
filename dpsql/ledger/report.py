"""What has been spent: the figures behind `dpsql budget`, for the curator only."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from dpsql.ledger.files import beside, locked
from dpsql.ledger.identity import GRAINS, Entry, Lineage, SpendLine
from dpsql.ledger.stated import left_epsilon, spent_epsilon
from dpsql.ledger.store import Store


@dataclass(frozen=True)
class EntryReport:
    """One release of a lineage.

    Attributes:
        label, release_id, published_at, path: which release, when (UTC), and where it was put.
        cost: what it was charged, in the lineage's currency.
        epsilon: the same as an epsilon at the lineage's delta, for this release alone.
        lines: what for.
        present: whether the file is still there (a missing one stays charged).
    """

    label: str
    release_id: str
    published_at: str
    path: Path
    cost: Fraction
    epsilon: Fraction
    lines: tuple[SpendLine, ...]
    present: bool


@dataclass(frozen=True)
class LineageReport:
    """One lineage: its identity and cap, what is spent and left in its currency, and the releases."""

    lineage: Lineage
    spent: Fraction
    left: Fraction
    entries: tuple[EntryReport, ...]

    @property
    def spent_epsilon(self) -> Fraction:
        """What is spent, as an epsilon at the lineage's delta."""
        return spent_epsilon(self.spent, self.lineage.delta)

    @property
    def left_epsilon(self) -> Fraction:
        """The largest epsilon of one more release; under a delta epsilons do not add up to the cap."""
        return left_epsilon(self.left, self.lineage.delta)


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
        OperationalError: the file cannot be opened.

    **Privacy**: for the curator; it holds labels and paths but no data.
    """
    if not ledger.exists() and not beside(ledger, ".head").exists():
        return BudgetReport(ledger, ())
    with locked(ledger):
        store = Store(ledger)
        store.close()
    reports = []
    for name in sorted(store.counters):
        counter = store.counters[name]
        entries = tuple(_entry_report(entry) for entry in store.entries if entry.lineage == name)
        spent, left = (
            Fraction(grains, GRAINS) for grains in (counter.spent, counter.ceiling - counter.spent)
        )
        reports.append(LineageReport(counter.lineage, spent, left, entries))
    return BudgetReport(ledger, tuple(reports))


def ledger_entries(ledger: Path) -> tuple[Entry, ...]:
    """All entries of a ledger in order, its chain checked; none if it has not been used yet.

    Args:
        ledger: the ledger file.

    Raises:
        IntegrityError: the chain is broken or cut short.
        OperationalError: the file cannot be opened.
    """
    if not ledger.exists() and not beside(ledger, ".head").exists():
        return ()
    with locked(ledger):
        store = Store(ledger)
        store.close()
    return tuple(store.entries)


def _entry_report(entry: Entry) -> EntryReport:
    path = Path(entry.target)
    return EntryReport(
        entry.label,
        entry.release_id,
        entry.published_at,
        path,
        Fraction(entry.cost),
        entry.epsilon,
        entry.spend_lines(),
        path.is_file(),
    )
