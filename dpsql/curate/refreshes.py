"""How many refreshes of a catalog its cap still holds, where `releases` shares it.

**Privacy**: for the curator. It reads the ledger, which holds amounts and no data.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.budget import currency_at
from dpsql.ledger import budget_report
from dpsql.publishing.plan import charged
from dpsql.star import Catalog
from dpsql.star.graph import ledger_path


@dataclass(frozen=True)
class Refreshes:
    """What the releases of a catalog share; amounts are epsilons at the lineage's delta, fractions in text.

    Args:
        planned: how many share the cap.
        left: how many of them still fit.
        epsilon: what each is charged.
        cap: what all are charged together, at most.
        spent: what the lineage has spent so far.
        at_delta: what follows an epsilon in a sentence.
    """

    planned: int
    left: int
    epsilon: str
    cap: str
    spent: str
    at_delta: str


def refreshes(catalog: Catalog) -> Refreshes | None:
    """What is left of a catalog's `releases`.

    Args:
        catalog: a loaded catalog.

    Returns:
        None where the catalog says an `epsilon` alone.

    Raises:
        IntegrityError, OperationalError: the ledger is damaged, or cannot be opened.
    """
    privacy = catalog.privacy
    if privacy.releases is None:
        return None
    currency, charge = currency_at(privacy.delta), charged(privacy)
    lineages = {report.lineage.name: report for report in budget_report(ledger_path(catalog)).lineages}
    spent = lineages[privacy.lineage].spent if privacy.lineage in lineages else Fraction(0)
    remaining = max(0, (currency.counted(privacy.cap) - spent) // charge)
    used = currency.epsilon(spent) if spent else spent
    epsilon, cap = str(currency.epsilon(charge)), str(privacy.cap)
    return Refreshes(privacy.releases, remaining, epsilon, cap, str(used), currency.at_delta)
