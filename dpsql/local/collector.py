"""Spools in, tallies out: files of reports, read strictly, each counted once, one report a token.

**Files.** What `spools` reads, a portion at a time: memory does not grow with the number of reports. Token and epoch
are written by whoever receives reports: taken from senders, a sender could name a new epoch and be counted again.

**Reports.** The plan explains every byte, or the report is rejected by reason.

**State.** A private DuckDB file (or memory, `files`): a manifest of files by content hash, their tallies, rejections by
reason, and reports that carry a one-time token until the collection is closed. A file is one transaction, so a crash
leaves it counted or not at all; adding it again changes nothing, and the order of files does not matter.

**Tokens.** Hashed by SHA-256 behind 16 bytes made of the collection's key, of which 128 bits are kept. Reports are held
by them as they come; closing keeps the least in byte order of each token and epoch, a part of the tokens at a time.

Rows of reports in, tallies out: DuckDB tells views apart and packs payloads, an oracle counts many of them at once.

| step | where |
|------|-------|
| the first 13 bytes name magic, plan, view and oracle: a report has a view, or a reason why not | SQL, a join |
| payloads of one view, length and fold become one text of hex digits | SQL, an aggregate |
| payloads that the oracle cannot give are rejected by its reason, the others counted | numpy, by bytes and bits |

No step looks at reports one by one in Python. Rows come in portions that fit in memory, whatever their number.

**Privacy**: reports are private before they get here.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.client.device import HEADER, MAGIC
from dpsql.client.plan import Plan
from dpsql.engines.duck import private_connection
from dpsql.local.spools import CountedFile, Spool, check_damage, counted_file
from dpsql.local.tallies import FOLDS, ViewTally, added, empty_tallies, oracle_of
from dpsql.release.write import registered

PORTION = 1 << 25
"""Bytes of reports that are packed at once."""
CHECKS = (
    (f"octet_length(report) <= {HEADER}", "too short"),
    ("view IS NULL AND report[:2] <> $magic", "not a report of version 1"),
    ("view IS NULL AND report[3:10] <> $plan", "another plan"),
    ("view IS NULL AND report[11:12] > $last", "no such view"),
    ("view IS NULL", "not the view's oracle"),
    ("octet_length(report) > $longest", "payload length"),
)
"""In this order, what is looked at before an oracle sees a payload; `view` is that of a report whose head is known."""
LONGEST = 64
"""Bytes that any payload may have; beyond, none has more than a byte for each item of the largest view."""


def heads_of(plan: Plan) -> list[bytes]:
    """The first bytes of a report to each view."""
    return [
        MAGIC + plan.hash + number.to_bytes(2, "big") + bytes([view.perturbs.code])
        for number, view in enumerate(plan.views)
    ]


def longest_report(plan: Plan) -> int:
    """Bytes of the longest report that an oracle looks at."""
    return HEADER + max(LONGEST, *(view.domain for view in plan.views))


class Counting:
    """Counts the reports to one plan, portion by portion.

    Args:
        connection: where the rows are; it gets a temporary table of the plan's views.
        plan: the plan that reports must name.

    Attributes:
        tallies: of the accepted reports.
        rejected: how many were rejected for each reason.
        accepted: how many were accepted.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, plan: Plan) -> None:
        self._connection = connection
        self._oracles = [oracle_of(plan, view) for view in plan.views]
        self.tallies = empty_tallies(plan)
        self.rejected = Counter[str]()
        self.accepted = 0
        heads = heads_of(plan)
        connection.execute("CREATE OR REPLACE TEMP TABLE plan_head (view INTEGER, head BLOB)")
        connection.executemany("INSERT INTO plan_head VALUES (?, ?)", list(enumerate(heads)))
        self._known = {
            "magic": MAGIC,
            "plan": plan.hash,
            "last": heads[-1][10:12],
            "longest": longest_report(plan),
        }

    def add(self, rows: str) -> None:
        """Count one portion.

        Args:
            rows: a relation in SQL with columns `report` BLOB and `fold`, an integer below `FOLDS`.
        """
        cases = " ".join(f"WHEN {check} THEN {number}" for number, (check, _) in enumerate(CHECKS))
        groups = self._connection.execute(
            f"""
            WITH said AS (
                SELECT report, fold, view, CASE {cases} END AS failed
                FROM ({rows}) LEFT JOIN plan_head ON report[:{HEADER}] = head)
            SELECT failed, if(failed IS NULL, view, 0) AS number, if(failed IS NULL, fold, 0) AS part,
                if(failed IS NULL, octet_length(report) - {HEADER}, 0) AS width, count(*),
                string_agg(if(failed IS NULL, hex(report[{HEADER + 1}:]), NULL), '')
            FROM said GROUP BY ALL
            """,
            self._known,
        ).fetchall()
        for failed, view, fold, width, reports, digits in groups:
            if failed is not None:
                self.rejected[CHECKS[failed][1]] += reports
                continue
            payloads = np.frombuffer(bytes.fromhex(digits), dtype=np.uint8).reshape(reports, width)
            oracle, tally = self._oracles[view], self.tallies[view]
            accepted, reason = oracle.check(payloads)
            sound = int(accepted.sum())
            self.rejected[reason] += reports - sound
            if sound:
                tally.reports[fold] += sound
                tally.support[fold] += oracle.count(payloads if sound == reports else payloads[accepted])
                self.accepted += sound


def decode_reports(plan: Plan, reports: Sequence[bytes], folds: NDArray[np.uint8]) -> Counting:
    """Check and count reports that are in memory.

    Args:
        plan: the plan that they must name.
        reports: report bytes.
        folds: fold of people of each report, 0 .. 3; must not depend on the report.

    Returns:
        The counts.
    """
    connection, spill = private_connection()
    try:
        counting = Counting(connection, plan)
        with registered(connection, "given", {"digits": [r.hex() for r in reports], "fold": folds % FOLDS}):
            counting.add("SELECT from_hex(digits) AS report, fold FROM given")
    finally:
        connection.close()
        spill.cleanup()
    return counting


PARTS = 256
"""Into which tokens are split by the last byte of their hash; folds are the last bits of it."""
MODULUS = 2**31 - 1
LARGEST_ROWS = 1 << 20
"""Most rows of a portion: tokens of more take longer to tell apart, since they no longer fit the processor's cache."""


class SpoolCount(NamedTuple):
    """Count of one file: its reports, those newly accepted, and whether it was known."""

    reports: int
    accepted: int
    known: bool


class CollectionManifest(NamedTuple):
    """Manifest of a collection: files, reports, accepted ones, the rest by reason, and how many carried a token."""

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
        path: a .parquet, .csv, .jsonl or .ndjson file.
        key: secret bytes under which tokens are hashed.

    Returns:
        What the file brought.

    Raises:
        OperationalError: there is no such file.
        MachineFault: it cannot be read, or not be counted.
    """
    content = counted_file(path)
    digest = content.digest
    seen = state.execute("SELECT reports FROM file WHERE hash = ?", [digest]).fetchall()
    if seen:
        return SpoolCount(int(seen[0][0]), 0, True)
    counted_files = [
        CountedFile(str(n), int(b)) for n, b in state.execute("SELECT file, bytes FROM size").fetchall()
    ]
    spool = Spool(path, content, counted_files, Counter())
    state.execute("BEGIN")
    try:
        held, accepted, tallies, rejected = _read(state, plan, spool, digest, key)
    except duckdb.Error as error:
        state.execute("ROLLBACK")
        check_damage(spool, state, error)
        state.execute("BEGIN")
        held, accepted, tallies, rejected = 0, 0, empty_tallies(plan), Counter({"unreadable file": 1})
    _store(state, digest, tallies)
    reports = held + accepted + sum(rejected.values())
    state.execute("INSERT INTO file VALUES (?, ?, ?, ?)", [digest, path.name, reports, accepted])
    state.execute("INSERT INTO size VALUES (?, ?)", [digest, content.size])
    for reason, count in sorted(rejected.items()):
        if count:
            state.execute("INSERT INTO rejected VALUES (?, ?, ?)", [digest, reason, count])
    state.execute("COMMIT")
    return SpoolCount(reports, accepted, False)


def _read(
    state: duckdb.DuckDBPyConnection, plan: Plan, spool: Spool, digest: str, key: bytes
) -> tuple[int, int, list[ViewTally], Counter[str]]:
    """Hold the reports that have a token, and count the others.

    Returns:
        How many were held and accepted, tallies of the latter, and rejections by reason.
    """
    counting, token_reports = Counting(state, plan), 0
    for portion in spool.portions(state):
        rows, tokens = _row(state, f"SELECT count(*), count(token) FROM {portion}")
        if tokens:
            # kept under the hash of its token
            state.execute(
                f"""
                INSERT INTO held
                SELECT CAST(token & {PARTS - 1} AS UTINYINT), token, epoch, report FROM (
                    SELECT CAST('0x' || left(sha256($prefix || encode(token)), 32) AS UHUGEINT) AS token, epoch, report
                    FROM {portion} WHERE token IS NOT NULL)
                """,
                {"prefix": token_prefix(key)},
            )
            token_reports += tokens
        if rows > tokens:
            _count_plain(state, counting, portion, digest)
    return token_reports, counting.accepted, counting.tallies, counting.rejected + spool.unreadable


def _row(state: duckdb.DuckDBPyConnection, query: str) -> tuple[int, ...]:
    return tuple(int(value) for value in state.execute(query).fetchall()[0])


def token_prefix(key: bytes) -> bytes:
    """Prefix of a token where it is hashed: 16 bytes derived from the collection's key."""
    return hashlib.blake2b(b"", key=key, digest_size=16, person=b"dpsql token").digest()


def _count_plain(state: duckdb.DuckDBPyConnection, counting: Counting, portion: str, digest: str) -> None:
    """Count reports without a token, some at a time.

    Folds come from the file's hash and the row's place, never from the report.
    """
    factor, shift = int(digest[:7], 16) | 1 << 20, int(digest[7:14], 16)
    # Squared: a line alone gives all rows of a small file folds of one parity.
    mixed = f"(((place % {MODULUS}) * {factor} + {shift}) % {MODULUS})"
    fold = f"(({mixed} * {mixed}) % {MODULUS}) & {FOLDS - 1}"
    state.execute(
        f"CREATE OR REPLACE TEMP TABLE plain AS SELECT CAST({fold} AS UTINYINT) AS fold, report FROM {portion} "
        "WHERE token IS NULL"
    )
    rows, size, start = _row(
        state, "SELECT count(*), coalesce(sum(octet_length(report)), 0), coalesce(min(rowid), 0) FROM plain"
    )
    steps = _portions(rows, size)
    for step in range(steps):
        first, last = start + rows * step // steps, start + rows * (step + 1) // steps
        counting.add(f"SELECT report, fold FROM plain WHERE rowid >= {first} AND rowid < {last}")
    state.execute("DROP TABLE plain")


def _portions(rows: int, size: int) -> int:
    """Into how many portions rows of so many bytes are split."""
    return max(-(-rows // LARGEST_ROWS), -(-size // PORTION), 1)


def close_collection(
    state: duckdb.DuckDBPyConnection, plan: Plan
) -> tuple[list[ViewTally], CollectionManifest]:
    """Add everything up, including reports held by token.

    Args:
        state: from `collecting.files.open_state`.
        plan: the plan.

    Returns:
        Tallies per view, and the manifest.
    """
    counting = Counting(state, plan)
    token_reports, size = _row(state, "SELECT count(*), coalesce(sum(octet_length(report)), 0) FROM held")
    steps = min(_portions(token_reports, size), PARTS // FOLDS) if token_reports else 0
    for step in range(steps):
        first, last = PARTS * step // steps, PARTS * (step + 1) // steps - 1
        counting.add(
            f"SELECT min(report) AS report, any_value(part) & {FOLDS - 1} AS fold FROM held "
            f"WHERE part BETWEEN {first} AND {last} GROUP BY token, epoch"
        )
    people = counting.accepted + counting.rejected.total()
    files, reports, accepted = _row(
        state, "SELECT count(*), coalesce(sum(reports), 0), coalesce(sum(accepted), 0) FROM file"
    )
    stored = state.execute("SELECT reason, sum(reports) FROM rejected GROUP BY reason").fetchall()
    rejected = Counter({str(reason): int(n) for reason, n in stored}) + counting.rejected
    rejected += Counter({"repeated token": token_reports - people})
    return added(_load(state, plan), counting.tallies), CollectionManifest(
        files, reports, accepted + counting.accepted, dict(sorted(rejected.items())), people
    )


def _store(state: duckdb.DuckDBPyConnection, digest: str, tallies: list[ViewTally]) -> None:
    blocks = []
    for number, tally in enumerate(tallies):
        folds, items = np.nonzero(tally.support)
        blocks.append((np.full(folds.size, number), folds, items, tally.support[folds, items]))
        for fold in np.nonzero(tally.reports)[0].tolist():
            state.execute(
                "INSERT INTO people VALUES (?, ?, ?, ?)", [digest, number, fold, int(tally.reports[fold])]
            )
    names = ("view", "fold", "item", "support")
    columns = {name: np.concatenate([p[i] for p in blocks]) for i, name in enumerate(names)}
    with registered(state, "incoming", columns):
        state.execute("INSERT INTO tally SELECT ?, view, fold, item, support FROM incoming", [digest])


def _load(state: duckdb.DuckDBPyConnection, plan: Plan) -> list[ViewTally]:
    tallies = empty_tallies(plan)
    for view, fold, position, support in state.execute(
        "SELECT view, fold, item, sum(support) FROM tally GROUP BY ALL"
    ).fetchall():
        tallies[view].support[fold, position] = int(support)
    for view, fold, reports in state.execute(
        "SELECT view, fold, sum(reports) FROM people GROUP BY ALL"
    ).fetchall():
        tallies[view].reports[fold] = int(reports)
    return tallies
