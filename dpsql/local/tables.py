"""Reports in tables of a server, counted there: one statement, whose rows are counts and nothing else.

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

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from dpsql.client.device import HEADER, MAGIC
from dpsql.client.plan import Plan
from dpsql.engines.dialect import Dialect
from dpsql.engines.joined_rows import common_table, with_tables
from dpsql.engines.server import ServerSession, every_column
from dpsql.engines.values import BITS, SourceColumn
from dpsql.errors import SourceError
from dpsql.local.collector import CHECKS, CollectionManifest, heads_of, longest_report, token_prefix
from dpsql.local.oracles.oracle import Bytes, Oracle
from dpsql.local.spools import LARGEST_EPOCH
from dpsql.local.tallies import FOLDS, IntArray, ViewTally, empty_tallies, oracle_of

BYTES = ("BYTEA", "BINARY", "BLOB")
"""What engines call a column of bytes."""
NUMBER = 7
"""Bytes of the longest payload that is read as a number; every oracle's is shorter, a longer one is none of theirs."""
REASONS = (*(reason for _, reason in CHECKS), "no report")
COUNTING = "counting the reports"


def tally_tables(
    session: ServerSession, plan: Plan, places: Sequence[str], key: bytes
) -> tuple[list[ViewTally], CollectionManifest]:
    """Count all reports of some tables, each table once.

    Args:
        session: an open server.
        plan: the plan that reports must name.
        places: tables, with a column `report` of bytes and perhaps `token` and `epoch`.
        key: secret bytes under which tokens become folds.

    Returns:
        Tallies per view, and the manifest.

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
    with_checks = (
        f"SELECT said.*, {_failed(plan)} AS failed, {_of_view(apart, 0)} AS apart, "
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


def _failed(plan: Plan) -> str:
    """SQL of why a report answers no view, by its place in `REASONS`; -1 if it does."""
    last = f"{len(plan.views) - 1:04x}"
    checks = (
        "width <= 0",
        f"view IS NULL AND substr(digits, 1, 4) <> '{MAGIC.hex()}'",
        f"view IS NULL AND substr(digits, 5, 16) <> '{plan.hash.hex()}'",
        f"view IS NULL AND substr(digits, 21, 4) > '{last}'",
        "view IS NULL",
        f"width > {longest_report(plan) - HEADER}",
    )
    numbered = zip(checks, range(len(CHECKS)), strict=True)
    whens = " ".join(f"WHEN {check} THEN {number}" for check, number in numbered)
    return f"CASE WHEN digits IS NULL THEN {len(checks)} {whens} ELSE -1 END"


def _tallied(
    plan: Plan, columns: Mapping[str, IntArray], tables: int
) -> tuple[list[ViewTally], CollectionManifest]:
    """Tallies and the manifest from the statement's columns."""
    tallies, rejected = empty_tallies(plan), Counter[str]()
    passed = columns["failed"] < 0
    once = ~passed  # lines that stand for a report, so that one of several parts is counted once
    for number in np.unique(columns["failed"][~passed]).tolist():
        rejected[REASONS[number]] += int(columns["people"][columns["failed"] == number].sum())
    keys = np.stack([columns[name] for name in ("view", "fold", "width")], axis=1)
    for view, fold, width in np.unique(keys[passed], axis=0).tolist():
        in_group = passed & (keys == (view, fold, width)).all(axis=1)
        lines = {name: column[in_group] for name, column in columns.items()}
        oracle, people = oracle_of(plan, plan.views[view]), lines["people"]
        payloads = _payloads(oracle, lines["place"], lines["value"], width)
        sound, reason = oracle.check(payloads)
        rejected[reason] += int(people[~sound].sum())
        tallies[view].support[fold] += _times(oracle, payloads[sound], people[sound])
        tallies[view].reports[fold] += int(people[sound & (lines["place"] == 0)].sum())
        once[in_group] = ~sound | (lines["place"] == 0)
    people, rows, tokens = (int(columns[name][once].sum()) for name in ("people", "n", "tokens"))
    accepted = people - rejected.total()
    rejected["repeated token"] += rows - people
    return tallies, CollectionManifest(tables, rows, accepted, dict(sorted((+rejected).items())), tokens)


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
