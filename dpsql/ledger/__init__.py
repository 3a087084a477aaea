"""Durable spends: every release is charged to a lineage's cap before anybody can see it, exactly once.

Read in this order: `identity` (what is charged, to whom), `publish` (the protocol), `rules` (what it
refuses), `recovery`, `store` (the private DuckDB file and its hash chain), `files` (locks and durable small
files), `report`.

Beside the ledger file live `<ledger>.lock` (one spender at a time), `<ledger>.head` (the last entry's hash:
a ledger that was cut short or restored from an old copy is recognised) and, while a release is being made,
`<ledger>.intent` (which draw to finish or to destroy after a crash).
"""

from dpsql.ledger.identity import (
    Currency,
    Entry,
    Label,
    Lineage,
    PublicRelease,
    Receipt,
    Recovery,
    SourceTable,
    Spend,
    SpendLine,
    new_release_id,
    spec_hash,
)
from dpsql.ledger.publish import publish_file, published_before
from dpsql.ledger.recovery import KillPoint, recover
from dpsql.ledger.report import BudgetReport, EntryReport, LineageReport, budget_report, ledger_entries

__all__ = [
    "BudgetReport",
    "Currency",
    "Entry",
    "EntryReport",
    "KillPoint",
    "Label",
    "Lineage",
    "LineageReport",
    "PublicRelease",
    "Receipt",
    "Recovery",
    "SourceTable",
    "Spend",
    "SpendLine",
    "budget_report",
    "ledger_entries",
    "new_release_id",
    "publish_file",
    "published_before",
    "recover",
    "spec_hash",
]
