"""Spools in, tallies out: Parquet and JSON-lines files of reports, each counted once, one report a token.

The state is a private DuckDB file (or memory): a manifest of files by content hash, their tallies, rejections by
reason, and reports that carry a one-time token until the collection is closed. A file is one transaction, so a
crash leaves it counted or not at all; adding it again changes nothing, and the order of files does not matter.

Spool columns: `report` BLOB, optionally `token` VARCHAR and `epoch` INTEGER; JSON lines likewise, the report's twin.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.client.plan import Plan
from dpsql.collecting.decode import decode_reports
from dpsql.collecting.spools import Counted, Spool, file_hash, read_spool
from dpsql.collecting.tallies import FOLDS, ViewTally, added, empty_tallies


class SpoolCount(NamedTuple):
    """What one file brought: reports in it, how many were accepted now, whether it was known already."""

    reports: int
    accepted: int
    known: bool


class Manifest(NamedTuple):
    """What a collection holds: files, reports, accepted ones, the rest by reason, and how many carried a token."""

    files: int
    reports: int
    accepted: int
    rejected: dict[str, int]
    tokens: int = 0


def add_spool(state: duckdb.DuckDBPyConnection, plan: Plan, path: Path, key: bytes) -> SpoolCount:
    """Count one spool file, once.

    Args:
        state: from `collecting.state.open_state`.
        plan: the plan.
        path: a .parquet, .jsonl or .ndjson file.
        key: secret bytes under which tokens are hashed.

    Returns:
        What the file brought.

    Raises:
        OperationalError: if the file cannot be opened.
    """
    digest = file_hash(path)
    seen = state.execute("SELECT reports FROM file WHERE hash = ?", [digest]).fetchall()
    if seen:
        return SpoolCount(int(seen[0][0]), 0, True)
    known = [Counted(str(n), int(b)) for n, b in state.execute("SELECT file, bytes FROM size").fetchall()]
    spool = read_spool(state, path, known)
    count = len(spool.reports) + sum(spool.unreadable.values())
    state.execute("BEGIN")
    plain, folds, repeated = _hold_tokens(state, spool, digest, key)
    found = decode_reports(plan, plain, folds)
    rejected = found.rejected + spool.unreadable + Counter({"repeated token": repeated})
    _store(state, digest, found.tallies)
    state.execute("INSERT INTO file VALUES (?, ?, ?, ?)", [digest, path.name, count, found.accepted])
    state.execute("INSERT INTO size VALUES (?, ?)", [digest, spool.size])
    for reason, reports in sorted(rejected.items()):
        if reports:
            state.execute("INSERT INTO rejected VALUES (?, ?, ?)", [digest, reason, reports])
    state.execute("COMMIT")
    return SpoolCount(count, found.accepted, False)


def close_collection(state: duckdb.DuckDBPyConnection, plan: Plan) -> tuple[list[ViewTally], Manifest]:
    """Add everything up, including reports held by token.

    Args:
        state: from `collecting.state.open_state`.
        plan: the plan.

    Returns:
        Tallies per view, and the manifest.
    """
    tallies = _load(state, plan)
    held = state.execute("SELECT token, report FROM held").fetchall()
    folds = np.array([int(token[0], 16) % FOLDS for token, _ in held], dtype=np.uint8)
    late = decode_reports(plan, [bytes(report) for _, report in held], folds)
    row = state.execute(
        "SELECT count(*), coalesce(sum(reports), 0), coalesce(sum(accepted), 0) FROM file"
    ).fetchall()[0]
    files, reports, accepted = (int(v) for v in row)
    stored = state.execute("SELECT reason, sum(reports) FROM rejected GROUP BY reason").fetchall()
    rejected = Counter({str(reason): int(n) for reason, n in stored}) + late.rejected
    return added(tallies, late.tallies), Manifest(
        files, reports, accepted + late.accepted, dict(sorted(rejected.items())), len(held)
    )


def _hold_tokens(
    state: duckdb.DuckDBPyConnection, spool: Spool, digest: str, key: bytes
) -> tuple[Sequence[bytes], NDArray[np.uint8], int]:
    """Keep reports with a token aside; returns the others, their folds, and how many tokens came again."""
    plain: Sequence[bytes] = spool.reports
    repeated = 0
    if spool.tokens is not None and spool.epochs is not None:
        rows = [
            (hashlib.blake2b(t.encode(), key=key, digest_size=16).hexdigest(), e, r)
            for t, e, r in zip(spool.tokens, spool.epochs, spool.reports, strict=True)
            if t is not None
        ]
        plain = [r for t, r in zip(spool.tokens, spool.reports, strict=True) if t is None]
        before = _held(state)
        _hold(state, rows)
        repeated = len(rows) - (_held(state) - before)
    # Folds come from the file's hash and the row's place, never from the report: splitmix64 of both.
    mixed = np.arange(len(plain), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
        int(digest[:15], 16)
    )
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return plain, ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(FOLDS)).astype(np.uint8), repeated


def _hold(state: duckdb.DuckDBPyConnection, rows: list[tuple[str, int, bytes]]) -> None:
    """Keep one report a token: of several the least in byte order, so that arrival order does not matter."""
    best: dict[tuple[str, int], bytes] = {}
    for token, epoch, report in rows:
        at = (token, epoch)
        best[at] = min(report, best.get(at, report))
    if not best:
        return
    columns: dict[str, Any] = {
        "token": np.array([t for t, _ in best], dtype=object),
        "epoch": np.array([e for _, e in best], dtype=np.int32),
        "report": np.array([r.hex() for r in best.values()], dtype=object),
    }
    state.register("incoming", _frame(columns))
    state.execute(
        "INSERT INTO held SELECT token, epoch, from_hex(report) FROM incoming "
        "ON CONFLICT (token, epoch) DO UPDATE SET report = least(report, excluded.report)"
    )
    state.unregister("incoming")


def _held(state: duckdb.DuckDBPyConnection) -> int:
    return int(state.execute("SELECT count(*) FROM held").fetchall()[0][0])


def _store(state: duckdb.DuckDBPyConnection, digest: str, tallies: list[ViewTally]) -> None:
    parts = []
    for number, tally in enumerate(tallies):
        folds, items = np.nonzero(tally.support)
        parts.append((np.full(folds.size, number), folds, items, tally.support[folds, items]))
        for fold in np.nonzero(tally.reports)[0].tolist():
            state.execute(
                "INSERT INTO people VALUES (?, ?, ?, ?)", [digest, number, fold, int(tally.reports[fold])]
            )
    columns = [np.concatenate([p[i] for p in parts]) for i in range(4)]
    state.register("incoming", _frame(dict(zip(("view", "fold", "item", "support"), columns, strict=True))))
    state.execute("INSERT INTO tally SELECT ?, view, fold, item, support FROM incoming", [digest])
    state.unregister("incoming")


def _load(state: duckdb.DuckDBPyConnection, plan: Plan) -> list[ViewTally]:
    tallies = empty_tallies(plan)
    for view, fold, item, support in state.execute(
        "SELECT view, fold, item, sum(support) FROM tally GROUP BY ALL"
    ).fetchall():
        tallies[view].support[fold, item] = int(support)
    for view, fold, reports in state.execute(
        "SELECT view, fold, sum(reports) FROM people GROUP BY ALL"
    ).fetchall():
        tallies[view].reports[fold] = int(reports)
    return tallies


def _frame(columns: dict[str, Any]) -> Any:
    import pandas as pd

    return pd.DataFrame(columns)
