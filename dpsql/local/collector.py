"""Reports in, tallies out: files, or tables of a server, read strictly, each counted once, one report a token.

**Files.** What `files` reads, a portion at a time: memory does not grow with the number of reports. Token and epoch
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

**Tables of a server** are counted there: one statement, whose rows are counts and nothing else.

    r     the tables' reports as hex digits, with token and epoch
    one   the reports that count: of each token and epoch the least in byte order, and all without a token
    said  which view a report answers, or why it answers none
    part  what is counted of it

A payload that is one number is counted whole, by that number. Where every bit of a payload counts by itself
(`Oracle.apart`), its bytes are counted one by one: counts of 256 values a byte hold all that a tally needs, and no
payload is put together from them. Here the counts become payloads again, each in its multiplicity, and go through the
oracles that count files. So tallies are the same integers, whichever engine counted.

| here | there | unit |
|---|---|---|
| `place` | byte of a payload that is counted, from 0 | - |
| `people` | reports that count | reports |
| `rows` | those with the same token and epoch too | reports |

A person's fold is a keyed hash of the token, the same as of files. Without a token the engine draws it: totals are the
same integers then, folds are not.

**Privacy**: reports are private before they get here. A report that answers no view is counted by its reason; none
can make the statement fail. Folds do not look at reports. The key of tokens stands in the statement: it is drawn for
one run, and keeps folds from whoever chooses tokens, not tokens from the server that holds them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.client.device import HEADER, MAGIC
from dpsql.client.plan import Plan
from dpsql.engines.dialect import Dialect
from dpsql.engines.duck import private_connection
from dpsql.engines.joined_rows import common_table, with_tables
from dpsql.engines.server import ServerSession, every_column
from dpsql.engines.values import BITS, SourceColumn
from dpsql.errors import SourceError
from dpsql.local.files import LARGEST_EPOCH, CountedFile, Spool, check_damage, counted_file
from dpsql.local.oracles.oracle import Bytes, Oracle
from dpsql.local.tallies import FOLDS, CountedCollection, IntArray, ViewTally, empty_collection, oracle_of
from dpsql.release.write import registered

PORTION = 1 << 25
"""Bytes of reports that are packed at once."""
HEADS = (
    (2, "not a report of version 1"),
    (10, "another plan"),
    (12, "no such view"),
    (HEADER, "not the view's oracle"),
)
"""Reasons why a report is rejected by its head: no view's head begins with as many of its first bytes."""
REASONS = ("too short", *(reason for _, reason in HEADS), "payload length", "no report")
"""Why an oracle does not see a payload."""
LONGEST = 64
"""Bytes that any payload may have."""


def heads_of(plan: Plan) -> list[bytes]:
    """The first bytes of a report to each view."""
    return [
        MAGIC + plan.hash + number.to_bytes(2, "big") + bytes([view.perturbs.code])
        for number, view in enumerate(plan.views)
    ]


def failed_sql(plan: Plan, width: str, first: Callable[[int], str], literal: Callable[[bytes], str]) -> str:
    """SQL of why a report answers no view, by its place in `REASONS`; -1 if it does.

    Args:
        plan: the plan that reports must name.
        width: SQL of the payload's bytes; `view` is that of a report whose head is known.
        first: SQL of so many first bytes of a report.
        literal: SQL of bytes as `first` gives them.
    """
    checks, heads = [f"{width} <= 0"], heads_of(plan)
    for size, _ in HEADS:
        known = ", ".join(literal(head) for head in sorted({head[:size] for head in heads}))
        checks.append(f"view IS NULL AND {first(size)} NOT IN ({known})")
    # beyond, no payload has more than a byte for each item of the largest view
    checks.append(f"{width} > {max(LONGEST, *(view.domain for view in plan.views))}")
    whens = " ".join(f"WHEN {check} THEN {number}" for number, check in enumerate(checks))
    return f"CASE {whens} ELSE -1 END"


class Counting:
    """Counts the reports to one plan, portion by portion.

    Args:
        connection: where the rows are; it gets a temporary table of the plan's views.
        plan: the plan that reports must name.

    Attributes:
        collection: counts of the accepted reports.
        rejected: how many were rejected for each reason.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, plan: Plan) -> None:
        self._connection = connection
        self.collection = empty_collection(plan)
        self.rejected = Counter[str]()
        heads = list(enumerate(heads_of(plan)))
        connection.execute("CREATE OR REPLACE TEMP TABLE plan_head (view INTEGER, head BLOB)")
        connection.executemany("INSERT INTO plan_head VALUES (?, ?)", heads)
        self._failed = failed_sql(
            plan,
            f"octet_length(report) - {HEADER}",
            lambda size: f"report[:{size}]",
            lambda head: f"from_hex('{head.hex()}')",
        )

    def add(self, rows: str) -> None:
        """Count one portion.

        Args:
            rows: a relation in SQL with columns `report` BLOB and `fold`, an integer below `FOLDS`.
        """
        groups = self._connection.execute(
            f"""
            WITH said AS (
                SELECT report, fold, view, {self._failed} AS failed
                FROM ({rows}) LEFT JOIN plan_head ON report[:{HEADER}] = head)
            SELECT failed, if(failed < 0, view, 0) AS number, if(failed < 0, fold, 0) AS part,
                if(failed < 0, octet_length(report) - {HEADER}, 0) AS width, count(*),
                string_agg(if(failed < 0, hex(report[{HEADER + 1}:]), NULL), '')
            FROM said GROUP BY ALL
            """
        ).fetchall()
        for failed, view, fold, width, reports, digits in groups:
            if failed >= 0:
                self.rejected[REASONS[failed]] += reports
                continue
            payloads = np.frombuffer(bytes.fromhex(digits), dtype=np.uint8).reshape(reports, width)
            oracle, tally = self.collection.oracle(view), self.collection.tallies[view]
            accepted, reason = oracle.check(payloads)
            sound = int(accepted.sum())
            self.rejected[reason] += reports - sound
            if sound:
                tally.reports[fold] += sound
                tally.support[fold] += oracle.count(payloads if sound == reports else payloads[accepted])


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
        token_reports, counted, rejected = _read(state, plan, spool, digest, key)
    except duckdb.Error as error:
        state.execute("ROLLBACK")
        check_damage(spool, state, error)
        state.execute("BEGIN")
        token_reports, counted, rejected = 0, empty_collection(plan), Counter({"unreadable file": 1})
    _store(state, digest, counted.tallies)
    reports = token_reports + counted.accepted + sum(rejected.values())
    state.execute("INSERT INTO file VALUES (?, ?, ?, ?)", [digest, path.name, reports, counted.accepted])
    state.execute("INSERT INTO size VALUES (?, ?)", [digest, content.size])
    for reason, count in sorted(rejected.items()):
        if count:
            state.execute("INSERT INTO rejected VALUES (?, ?, ?)", [digest, reason, count])
    state.execute("COMMIT")
    return SpoolCount(reports, counted.accepted, False)


def _read(
    state: duckdb.DuckDBPyConnection, plan: Plan, spool: Spool, digest: str, key: bytes
) -> tuple[int, CountedCollection, Counter[str]]:
    """Hold the reports that have a token, and count the others.

    Returns:
        How many were held, counts of the others, and rejections by reason.
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
    return token_reports, counting.collection, counting.rejected + spool.unreadable


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
) -> tuple[CountedCollection, CollectionManifest]:
    """Add everything up, including reports held by token.

    Args:
        state: from `collecting.files.open_state`.
        plan: the plan.

    Returns:
        The counts, and the manifest.
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
    people = counting.collection.accepted + counting.rejected.total()
    files, reports = _row(state, "SELECT count(*), coalesce(sum(reports), 0) FROM file")
    stored = state.execute("SELECT reason, sum(reports) FROM rejected GROUP BY reason").fetchall()
    rejected = Counter({str(reason): int(n) for reason, n in stored}) + counting.rejected
    rejected += Counter({"repeated token": token_reports - people})
    _add_stored(state, counting.collection.tallies)
    accepted = counting.collection.accepted
    manifest = CollectionManifest(files, reports, accepted, dict(sorted(rejected.items())), people)
    return counting.collection, manifest


def _store(state: duckdb.DuckDBPyConnection, digest: str, tallies: Sequence[ViewTally]) -> None:
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


def _add_stored(state: duckdb.DuckDBPyConnection, tallies: Sequence[ViewTally]) -> None:
    for view, fold, position, support in state.execute(
        "SELECT view, fold, item, sum(support) FROM tally GROUP BY ALL"
    ).fetchall():
        tallies[view].support[fold, position] += int(support)
    for view, fold, reports in state.execute(
        "SELECT view, fold, sum(reports) FROM people GROUP BY ALL"
    ).fetchall():
        tallies[view].reports[fold] += int(reports)


BYTES = ("BYTEA", "BINARY", "BLOB")
"""What engines call a column of bytes."""
NUMBER = 7
"""Bytes of the longest payload that is read as a number; every oracle's is shorter, a longer one is none of theirs."""
COUNTING = "counting the reports"


def tally_tables(
    session: ServerSession, plan: Plan, places: Sequence[str], key: bytes
) -> tuple[CountedCollection, CollectionManifest]:
    """Count all reports of some tables, each table once.

    Args:
        session: an open server.
        plan: the plan that reports must name.
        places: tables, with a column `report` of bytes and perhaps `token` and `epoch`.
        key: secret bytes under which tokens become folds.

    Returns:
        The counts, and the manifest.

    Raises:
        SourceError: a table is not there, or has no such column.
        EngineLost: the server does not answer.
    """
    tables = [_select(session, place) for place in dict.fromkeys(places)]
    columns = session.columns(statement(plan, tables, token_prefix(key), session.dialect), COUNTING)
    return _tallied(plan, columns, len(tables))


def _select(session: ServerSession, place: str) -> str:
    """SELECT of a table's reports: `digits`, their bytes in hexadecimal; `token`, a text or NULL; `epoch`, a BIGINT.

    Raises:
        SourceError: there is no such table, or a column is of another type.
    """
    stored = session.table(place)
    if stored is None:
        raise SourceError(f"{session.name} has no table {place} that may be read", hint="check its name")
    listed = every_column(session.name, session.dialect, stored, key=True)
    columns = {name.lower(): column for name, column in listed.items()}
    report = columns.get("report")
    if report is None or report.kind not in BYTES:
        raise SourceError(
            f"{place} has no column `report` of bytes", hint="make a view with one, and name it"
        )
    token = columns["token"].sql if "token" in columns else "NULL"
    dialect = session.dialect
    return (
        f"SELECT {dialect.hex(report.sql)} AS digits, {dialect.text(token)} AS token, "
        f"{_epoch(place, columns)} AS epoch FROM {stored.place}"
    )


def _epoch(place: str, columns: Mapping[str, SourceColumn]) -> str:
    """SQL of an epoch: 0 where there is none of 32 bits."""
    if "epoch" not in columns:
        return "CAST(0 AS BIGINT)"
    stored, sql = columns["epoch"]
    if stored not in BITS:
        raise SourceError(
            f"the column `epoch` of {place} does not contain whole numbers", hint="cast it in a view"
        )
    within = f"{sql} BETWEEN {-LARGEST_EPOCH - 1} AND {LARGEST_EPOCH}"
    return f"CASE WHEN {within} THEN CAST({sql} AS BIGINT) ELSE 0 END"


def statement(plan: Plan, tables: Sequence[str], prefix: bytes, dialect: Dialect) -> str:
    """The statement that counts the reports of some tables.

    Args:
        plan: the plan that reports must name.
        tables: SELECT of each, with columns `digits`, `token` and `epoch`.
        prefix: secret bytes before a token where it is hashed.
        dialect: of the engine.
    """
    reports = " UNION ALL ".join(tables)
    last = f"substr({dialect.sha256(prefix.hex(), 'token')}, 32, 1)"
    fold = dialect.remainder(dialect.position(last, list("0123456789abcdef")), str(FOLDS))
    drawn = f"CAST(floor({dialect.chance} * {FOLDS}) AS INTEGER)"
    unique_reports = (
        f"SELECT min(digits) AS digits, {fold} AS fold, count(*) AS n, 1 AS tokens FROM r "
        f"WHERE token IS NOT NULL AND digits IS NOT NULL GROUP BY token, epoch UNION ALL "
        f"SELECT digits, {drawn} AS fold, 1 AS n, 0 AS tokens FROM r WHERE token IS NULL OR digits IS NULL"
    )
    view = dialect.position(f"substr(digits, 1, {2 * HEADER})", [head.hex() for head in heads_of(plan)])
    length = dialect.quotient("CAST(length(digits) AS BIGINT)", "2")
    with_views = f"SELECT digits, fold, n, tokens, {view} AS view, {length} - {HEADER} AS width FROM one"
    names = ("failed", "view", "fold", "width", "place", "value")
    sums = ", ".join(f"CAST(sum({name}) AS BIGINT) AS {name}" for name in ("n", "tokens"))
    counts = f"SELECT {', '.join(names)}, count(*) AS people, {sums} FROM part GROUP BY {', '.join(names)}"
    steps = [
        f"r AS ({reports})",
        common_table("one", unique_reports, dialect),
        f"said AS ({with_views})",
        f"part AS ({_parts(plan, dialect)})",
    ]
    return with_tables(steps, counts)


def _parts(plan: Plan, dialect: Dialect) -> str:
    """SELECT of what is counted: a line for each part of a sound payload, one for any other report."""
    apart = [oracle_of(plan, view).apart for view in plan.views]
    places = ", ".join(f"({place})" for place in range(max([1, *apart])))
    answered = ", ".join(
        f"CASE WHEN failed < 0 THEN {name} ELSE 0 END AS {name}" for name in ("view", "fold", "width")
    )
    # a byte, or the whole payload as a number
    first = 2 * HEADER + 1
    byte = dialect.number(f"substr(digits, {first} + 2 * place, 2)")
    number = dialect.number(f"substr(digits, {first}, {2 * NUMBER})")
    counted = (
        f"CASE WHEN failed >= 0 THEN 0 WHEN apart > 0 THEN {byte} WHEN width <= {NUMBER} THEN {number} "
        "ELSE 0 END"
    )
    return (
        f"SELECT failed, {answered}, place, {counted} AS value, n, tokens "
        f"FROM ({_ends(plan, apart, dialect)}) AS e CROSS JOIN (VALUES {places}) AS b(place) "
        "WHERE place BETWEEN lowest AND highest"
    )


def _ends(plan: Plan, apart: Sequence[int], dialect: Dialect) -> str:
    """SELECT of reports with the bytes that are counted: all that count apart, the last if its padding is damaged."""
    spare = [8 * size - view.domain if size else 0 for size, view in zip(apart, plan.views, strict=True)]
    failed = failed_sql(
        plan, "width", lambda size: f"substr(digits, 1, {2 * size})", lambda head: f"'{head.hex()}'"
    )
    failed = f"CASE WHEN digits IS NULL THEN {REASONS.index('no report')} ELSE {failed} END"
    with_checks = (
        f"SELECT said.*, {failed} AS failed, {_of_view(apart, 0)} AS apart, "
        f"{_of_view([1 << bits for bits in spare], 1)} AS spare FROM said"
    )
    last = dialect.number("substr(digits, length(digits) - 1, 2)")
    damaged = f"{dialect.remainder(last, 'spare')} <> 0"
    return (
        f"SELECT t.*, CASE WHEN failed < 0 AND width = apart AND {damaged} THEN apart - 1 ELSE 0 END AS lowest, "
        "CASE WHEN failed < 0 AND width = apart THEN apart - 1 ELSE 0 END AS highest "
        f"FROM ({with_checks}) AS t"
    )


def _of_view(values: Sequence[int], default: int) -> str:
    """SQL of a number of the report's view."""
    whens = " ".join(f"WHEN {view} THEN {value}" for view, value in enumerate(values) if value != default)
    return f"CASE view {whens} ELSE {default} END" if whens else str(default)


def _tallied(
    plan: Plan, columns: Mapping[str, IntArray], tables: int
) -> tuple[CountedCollection, CollectionManifest]:
    """Tallies and the manifest from the statement's columns."""
    collection, rejected = empty_collection(plan), Counter[str]()
    passed = columns["failed"] < 0
    once = ~passed  # lines that stand for a report, so that one of several parts is counted once
    for number in np.unique(columns["failed"][~passed]).tolist():
        rejected[REASONS[number]] += int(columns["people"][columns["failed"] == number].sum())
    keys = np.stack([columns[name] for name in ("view", "fold", "width")], axis=1)
    for view, fold, width in np.unique(keys[passed], axis=0).tolist():
        in_group = passed & (keys == (view, fold, width)).all(axis=1)
        lines = {name: column[in_group] for name, column in columns.items()}
        oracle, people, tally = collection.oracle(view), lines["people"], collection.tallies[view]
        payloads = _payloads(oracle, lines["place"], lines["value"], width)
        sound, reason = oracle.check(payloads)
        rejected[reason] += int(people[~sound].sum())
        tally.support[fold] += _times(oracle, payloads[sound], people[sound])
        tally.reports[fold] += int(people[sound & (lines["place"] == 0)].sum())
        once[in_group] = ~sound | (lines["place"] == 0)
    people, rows, tokens = (int(columns[name][once].sum()) for name in ("people", "n", "tokens"))
    accepted = collection.accepted
    rejected["repeated token"] += rows - people
    return collection, CollectionManifest(tables, rows, accepted, dict(sorted((+rejected).items())), tokens)


def _payloads(oracle: Oracle, place: IntArray, value: IntArray, width: int) -> Bytes:
    """Payloads that hold what was counted, and zero elsewhere."""
    payloads = np.zeros((value.size, width), dtype=np.uint8)
    if oracle.apart:
        payloads[np.arange(value.size), place] = value
    else:
        for position in range(min(width, NUMBER)):
            payloads[:, width - 1 - position] = value >> (8 * position) & 0xFF
    return payloads


def _times(oracle: Oracle, payloads: Bytes, people: IntArray) -> IntArray:
    """Support of payloads that came several times each: they are counted once a binary digit of that number."""
    total = np.zeros(oracle.width, dtype=np.int64)
    for digit in range(int(people.max(initial=0)).bit_length()):
        total += oracle.count(payloads[(people >> digit & 1) == 1]) << digit
    return total
