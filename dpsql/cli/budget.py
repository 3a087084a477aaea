"""What a ledger holds, as text and as JSON."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dpsql.ledger import BudgetReport
from dpsql.ledger.report import EntryReport, LineageReport
from dpsql.ledger.stated import at_delta


def budget_json(report: BudgetReport) -> dict[str, Any]:
    """A budget report as plain values; amounts are fractions as text, in epsilon at the lineage's delta."""
    return {"ledger": str(report.ledger), "lineages": [_lineage_json(lineage) for lineage in report.lineages]}


def _lineage_json(report: LineageReport) -> dict[str, Any]:
    identity = report.lineage
    rho = {"cap": identity.limit, "spent": report.spent, "left": report.left} if identity.delta else {}
    return {
        "lineage": identity.name,
        "unit": identity.unit,
        "neighbours": identity.neighbours,
        "currency": identity.currency,
        "delta": str(identity.delta),
        "cap": str(identity.cap),
        "spent": str(report.spent_epsilon),
        "left": str(report.left_epsilon),
        "rho": {name: str(value) for name, value in rho.items()} or None,
        "releases": [_entry_json(entry) for entry in report.entries],
    }


def _entry_json(entry: EntryReport) -> dict[str, Any]:
    return {
        "label": entry.label,
        "release_id": entry.release_id,
        "published_at": entry.published_at,
        "path": str(entry.path),
        "present": entry.present,
        "cost": str(entry.epsilon),
        "spends": [
            {"what": line.purpose, "amount": str(line.amount), "currency": line.currency}
            for line in entry.lines
        ],
    }


def budget_text(report: BudgetReport) -> str:
    """A budget report for people."""
    if not report.lineages:
        return f"{report.ledger}: nothing was spent yet"
    lines = []
    for lineage in report.lineages:
        identity = lineage.lineage
        lines.append(
            f"{identity.name}: {amount(lineage.spent_epsilon)} of {amount(identity.cap)} epsilon spent"
            f"{at_delta(identity.delta)}, {amount(lineage.left_epsilon)} left (unit {identity.unit}, "
            f"{identity.neighbours})"
        )
        if identity.delta:
            lines.append(
                f"  rho {amount(lineage.spent)} of {amount(identity.limit)} spent, {amount(lineage.left)} left: "
                "under a delta rho adds up and epsilon does not"
            )
        for entry in lineage.entries:
            gone = "" if entry.present else ", file is gone but stays charged"
            lines.append(
                f"  {entry.published_at}  {amount(entry.epsilon)}  {entry.label} -> {entry.path}{gone}"
            )
            lines += [f"    {amount(line.amount)}  {line.purpose}" for line in entry.lines]
    return "\n".join(lines)


def amount(value: Fraction) -> str:
    """A budget in four significant digits.

    >>> amount(Fraction(1, 6)), amount(Fraction(4))
    ('0.1667', '4')
    """
    return f"{float(value):.4g}"
