"""Durable spends: every release is charged to a lineage's cap before anything is drawn for it, exactly once.

Read in this order: `identity` (what is charged, to whom), `publish` (the protocol and recovery), `rules`
(what it refuses), `store` (the private DuckDB file, its hash chain and its report), `marks` and `copies` (how an older
copy is found, backup, move), `memory` and `row_sketches` (how a ledger that begins anew, or a renamed table, is
noticed), `locks` and `files` (durable small files).

Beside the ledger file live `<ledger>.lock` (one spender at a time), `<ledger>.head` (the last entry's hash:
a ledger that was cut short or restored from an old copy is recognised), `<ledger>.key` (which signs releases,
`keys`) and, while a release is being made,
`<ledger>.<id>.draft/`, a folder with what is drawn, which nobody can read yet.
"""

from dpsql.ledger.identity import (
    Label,
    LedgerEntry,
    Lineage,
    Receipt,
    Recovery,
    ReleaseSpend,
    SourceTable,
    SpendLine,
    new_release_id,
)
from dpsql.ledger.publish import Draft, KillPoint, Order, publish_file, published_before
from dpsql.ledger.rules import RowComparison
from dpsql.ledger.store import BudgetReport, EntryReport, LineageReport, budget_report, ledger_entries

__all__ = [
    "BudgetReport",
    "Draft",
    "EntryReport",
    "KillPoint",
    "Label",
    "LedgerEntry",
    "Lineage",
    "LineageReport",
    "Order",
    "Receipt",
    "Recovery",
    "ReleaseSpend",
    "RowComparison",
    "SourceTable",
    "SpendLine",
    "budget_report",
    "ledger_entries",
    "new_release_id",
    "publish_file",
    "published_before",
]
