"""Spool files to reports: Parquet and JSON lines, of which nothing can stop a collection.

Columns: `report` BLOB, optionally `token` VARCHAR and `epoch` INTEGER. JSON lines hold the report's JSON twin with the
same two optional fields. Token and epoch are written by whoever receives reports: taken from senders, a sender could
name a new epoch and be counted again.
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

from dpsql.client.report import encode, from_json
from dpsql.errors import DataError, OperationalError

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
