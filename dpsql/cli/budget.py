"""What a ledger holds, as text and as JSON."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dpsql.ledger import BudgetReport
from dpsql.ledger.report import EntryReport, LineageReport


def budget_json(report: BudgetReport) -> dict[str, Any]:
    """A budget report as plain values; amounts are exact fractions as text."""
    return {"ledger": str(report.ledger), "lineages": [_lineage_json(lineage) for lineage in report.lineages]}


def _lineage_json(report: LineageReport) -> dict[str, Any]:
    identity = report.lineage
    return {
        "lineage": identity.name,
        "unit": identity.unit,
        "neighbours": identity.neighbours,
        "currency": identity.currency,
        "cap": str(identity.cap),
        "spent": str(report.spent),
        "left": str(report.left),
        "releases": [_entry_json(entry) for entry in report.entries],
    }


def _entry_json(entry: EntryReport) -> dict[str, Any]:
    return {
        "label": entry.label,
        "release_id": entry.release_id,
        "published_at": entry.published_at,
        "path": str(entry.path),
        "present": entry.present,
        "cost": str(entry.cost),
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
            f"{identity.name}: {amount(lineage.spent)} of {amount(identity.cap)} {identity.currency} spent, "
            f"{amount(lineage.left)} left (unit {identity.unit}, {identity.neighbours})"
        )
        for entry in lineage.entries:
            gone = "" if entry.present else ", file is gone but stays charged"
            lines.append(f"  {entry.published_at}  {amount(entry.cost)}  {entry.label} -> {entry.path}{gone}")
            lines += [f"    {amount(line.amount)}  {line.purpose}" for line in entry.lines]
    return "\n".join(lines)


def amount(value: Fraction) -> str:
    """A budget in four significant digits.

    >>> amount(Fraction(1, 6)), amount(Fraction(4))
    ('0.1667', '4')
    """
    return f"{float(value):.4g}"
