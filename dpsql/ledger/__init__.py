"""Durable spends: every release is charged to a lineage's cap before anything is drawn for it, exactly once.

Read in this order: `identity` (what is charged, to whom), `publish` (the protocol and recovery), `rules` (what it
refuses; how an older copy, or a renamed table, is noticed), `store` (the private DuckDB file, its hash chain and its
report), `copies` (backup, move), `memory` (how a ledger that begins anew is noticed), `files` (durable small files).

Beside the ledger file live `<ledger>.lock` (one spender at a time), `<ledger>.head` (the last entry's hash:
a ledger that was cut short or restored from an old copy is recognised), `<ledger>.key` (which signs releases) and,
while a release is being made, `<ledger>.<id>.draft/`, a folder with what is drawn, which nobody can read yet.
"""
