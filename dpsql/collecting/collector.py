"""Spools in, tallies out: files of reports, read strictly, each counted once, one report a token.

**Files.** Parquet or JSON lines, columns `report` BLOB, optionally `token` VARCHAR and `epoch` INTEGER; JSON lines hold
the report's JSON twin with the same two optional fields. Nothing in a file can stop a collection. Token and epoch are
written by whoever receives reports: taken from senders, a sender could name a new epoch and be counted again.

**Reports.** The plan explains every byte, or the report is rejected by reason. Reports of equal length stand as rows of
one byte table, so the checks are array comparisons.

**State.** A private DuckDB file (or memory, `files`): a manifest of files by content hash, their tallies, rejections by
reason, and reports that carry a one-time token until the collection is closed. A file is one transaction, so a crash
leaves it counted or not at all; adding it again changes nothing, and the order of files does not matter.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.client.plan import Plan
from dpsql.client.report import HEADER, MAGIC, encode, from_json
from dpsql.collecting.tallies import FOLDS, ViewTally, added, empty_tallies, oracle_of
from dpsql.errors import DataError, OperationalError
from dpsql.mechanisms.oracles.oracle import Bytes
from dpsql.release.write import registered

LARGEST_EPOCH = 2**31 - 1


class Spool(NamedTuple):
    """A file's reports, and how many bytes the file has; tokens are None where there are none."""

    reports: list[bytes]
    tokens: list[str | None] | None
    epochs: list[int] | None
    unreadable: Counter[str]
    size: int


class Counted(NamedTuple):
    """A file that was counted: hash and size of what it held then."""

    digest: str
    size: int


def file_hash(path: Path) -> str:
    """SHA-256 of a file's content."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise OperationalError(f"cannot read the spool {path.name}", hint="check the path") from error


def read_spool(state: duckdb.DuckDBPyConnection, path: Path, known: Sequence[Counted] = ()) -> Spool:
    """Read a file's reports; what is no report at all is counted by reason.

    Args:
        state: any connection.
        path: a .parquet file, or JSON lines.
        known: files counted before; lines that one of them held at the head of this file are left out.
    """
    if path.suffix == ".parquet":
        return _read_parquet(state, path)
    raw = path.read_bytes()
    return _read_lines(raw[_counted_part(raw, known) :], len(raw))


def _counted_part(raw: bytes, known: Sequence[Counted]) -> int:
    """How many bytes at the head of a file were counted when it was shorter: whole lines only."""
    done, at, running = 0, 0, hashlib.sha256()
    for digest, size in sorted(known, key=lambda each: each.size):
        if at <= size < len(raw):
            running.update(raw[at:size])
            at = size
            if running.hexdigest() == digest:
                done = size
    if raw[done : done + 1] in (b"\n", b"\r"):
        return done
    return max(raw.rfind(b"\n", 0, done), raw.rfind(b"\r", 0, done)) + 1


def _read_parquet(state: duckdb.DuckDBPyConnection, path: Path) -> Spool:
    size = path.stat().st_size
    try:
        types = {
            str(row[0]): str(row[1])
            for row in state.execute("DESCRIBE SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
        }
        if types.get("report") != "BLOB":
            total = state.execute("SELECT count(*) FROM read_parquet(?)", [str(path)]).fetchall()
            return Spool([], None, None, Counter({"no report column of bytes": int(total[0][0])}), size)
        token = "CAST(token AS VARCHAR)" if "token" in types else "NULL"
        epoch = "coalesce(TRY_CAST(epoch AS INTEGER), 0)" if "epoch" in types else "0"
        columns = "report" if token == "NULL" else f"report, {token} AS token, {epoch} AS epoch"
        fetched = state.execute(f"SELECT {columns} FROM read_parquet(?)", [str(path)]).fetchnumpy()
        data: dict[str, Any] = dict(fetched)
    except duckdb.Error:
        return Spool([], None, None, Counter({"unreadable file": 1}), size)
    absent = np.ma.getmaskarray(data["report"])
    reports = data["report"].tolist()
    unreadable = Counter({"no report": int(absent.sum())})
    if not absent.any() and token == "NULL":
        return Spool(reports, None, None, unreadable, size)
    kept = np.nonzero(~absent)[0].tolist()
    if token == "NULL":
        return Spool([reports[i] for i in kept], None, None, unreadable, size)
    tokens, epochs = np.ma.filled(data["token"].astype(object), None).tolist(), data["epoch"].tolist()
    epochs = [epochs[i] for i in kept]
    return Spool([reports[i] for i in kept], [tokens[i] for i in kept], epochs, unreadable, size)


def _read_lines(raw: bytes, size: int) -> Spool:
    reports: list[bytes] = []
    tokens: list[str | None] = []
    epochs: list[int] = []
    unreadable = Counter[str]()
    for line in raw.splitlines():
        try:
            fields = json.loads(line)
            token, epoch = (
                (fields.pop("token", None), fields.pop("epoch", 0)) if isinstance(fields, dict) else (None, 0)
            )
            report = encode(from_json(json.dumps(fields)))
            if type(epoch) is not int or not (token is None or isinstance(token, str)):
                raise DataError("a token is text and an epoch an integer")
            if abs(epoch) > LARGEST_EPOCH:
                raise DataError("an epoch has 32 bits")
            (token or "").encode()  # fails for half a surrogate pair, which has no bytes to hash
        except (ValueError, DataError, RecursionError):
            unreadable["not a JSON report of version 1"] += 1
            continue
        reports.append(report)
        tokens.append(token)
        epochs.append(epoch)
    return Spool(reports, tokens if any(t is not None for t in tokens) else None, epochs, unreadable, size)


class Decoded(NamedTuple):
    """Tallies of the accepted reports, and how many were rejected for each reason."""

    tallies: list[ViewTally]
    rejected: Counter[str]
    accepted: int


def decode_reports(plan: Plan, reports: Sequence[bytes], folds: NDArray[np.uint8]) -> Decoded:
    """Check and count reports.

    Args:
        plan: the plan that they must name.
        reports: report bytes.
        folds: fold of people of each report, 0 .. 3; must not depend on the report.

    Returns:
        Tallies, rejections by reason, and the number of accepted reports.
    """
    tallies, rejected, accepted = empty_tallies(plan), Counter[str](), 0
    lengths = np.fromiter(map(len, reports), dtype=np.int64, count=len(reports))
    for length in np.unique(lengths):
        chosen = np.nonzero(lengths == length)[0]
        if length <= HEADER:
            rejected["too short"] += chosen.size
            continue
        same = reports if chosen.size == len(reports) else [reports[i] for i in chosen.tolist()]
        table = np.frombuffer(b"".join(same), dtype=np.uint8).reshape(-1, length)
        accepted += _count_table(plan, table, folds[chosen], tallies, rejected)
    return Decoded(tallies, rejected, accepted)


def _count_table(
    plan: Plan, table: Bytes, folds: Bytes, tallies: list[ViewTally], rejected: Counter[str]
) -> int:
    """Check one table of equally long reports and add it to the tallies; returns how many were accepted."""
    views = table[:, 10].astype(np.int64) * 256 + table[:, 11]
    known = views < len(plan.views)
    codes = np.array([view.perturbs.code for view in plan.views])
    checks = [
        ("not a report of version 1", (table[:, :2] == np.frombuffer(MAGIC, np.uint8)).all(axis=1)),
        ("another plan", (table[:, 2:10] == np.frombuffer(plan.hash, np.uint8)).all(axis=1)),
        ("no such view", known),
        ("not the view's oracle", table[:, 12] == codes[np.where(known, views, 0)]),
    ]
    sound = np.ones(len(table), dtype=bool)
    for reason, passed in checks:
        rejected[reason] += int((sound & ~passed).sum())
        sound &= passed
    accepted = 0
    for number in np.unique(views[sound]):
        rows = sound & (views == number)
        payload = table[rows][:, HEADER:] if not rows.all() else table[:, HEADER:]
        fold = folds[rows]
        oracle = oracle_of(plan, plan.views[number])
        kept, reason = oracle.check(payload)
        rejected[reason] += int((~kept).sum())
        if kept.any():
            payload, fold = payload[kept], fold[kept]
            tallies[number].reports[:] += np.bincount(fold, minlength=FOLDS)
            for own in range(FOLDS):
                tallies[number].support[own] += oracle.count(payload[fold == own])
        accepted += int(kept.sum())
    return accepted


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
        state: from `collecting.files.open_state`.
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
        state: from `collecting.files.open_state`.
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
    columns: dict[str, list[Any]] = {
        "token": [t for t, _ in best],
        "epoch": [e for _, e in best],
        "report": [r.hex() for r in best.values()],
    }
    with registered(state, "incoming", columns):
        state.execute(
            "INSERT INTO held SELECT token, epoch, from_hex(report) FROM incoming "
            "ON CONFLICT (token, epoch) DO UPDATE SET report = least(report, excluded.report)"
        )


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
    names = ("view", "fold", "item", "support")
    columns = {name: np.concatenate([p[i] for p in parts]) for i, name in enumerate(names)}
    with registered(state, "incoming", columns):
        state.execute("INSERT INTO tally SELECT ?, view, fold, item, support FROM incoming", [digest])


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
