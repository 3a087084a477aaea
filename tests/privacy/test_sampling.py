"""Systematic sampling keeps min(n, tau) rows of a unit, whichever its offset, and each row equally often."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import product

import duckdb
import numpy as np
import pytest

from dpsql.engines.counting import (  # fmt: skip
    PRIME,
    UNIT,
    RowWeighting,
    Sampled,
    StatisticGroup,
    Value,
    beyond_bound,
    coefficients,
    hash_sql,
    is_kept,
    offset,
    unit_number,
)
from dpsql.engines.dialect import DUCK
from dpsql.engines.joined_rows import Digit, JoinSide, PlacedRows, UnitKey, row_numbers
from tests.thinned import by_default

KEY = bytes(range(32))
EDGES = [0, 1, -1, 2, PRIME - 1, PRIME, PRIME + 1, -PRIME, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1]


def kept(n: int, tau: int, h: int) -> list[int]:
    """Which of rows 1 .. n are kept, by the SQL that ships."""
    numbers = f"SELECT i::BIGINT AS i, {n}::BIGINT AS n FROM range(1, {n + 1}) t(i)"
    offsets = f"SELECT i, n, {offset(f'{h}::BIGINT', DUCK)} AS r FROM ({numbers})"
    rows = duckdb.execute(f"SELECT i FROM ({offsets}) WHERE {is_kept(tau, 'r', DUCK)} ORDER BY i").fetchall()
    return [row[0] for row in rows]


@pytest.mark.parametrize(("n", "tau"), [(11, 4), (37, 10), (60, 7), (5, 5), (3, 5), (12, 1)])
def test_every_offset_keeps_exactly_tau_rows_and_every_row_equally_often(n: int, tau: int) -> None:
    seen = np.zeros(n, int)
    for r in range(n):
        h = -(-r * PRIME // n)  # the least h with h n div P = r
        assert h * n // PRIME == r
        rows = kept(n, tau, h)
        assert len(rows) == min(n, tau)
        seen[np.array(rows) - 1] += 1
    assert set(seen) == {min(n, tau)}


def test_a_negative_offset_would_keep_more() -> None:
    """Why h must be at least 0: the bound is the telescoping sum's, and it needs 0 <= r < n."""
    assert len(kept(1000, 10, 0)) == 10
    assert len(kept(1000, 10, -PRIME + 1)) > 10


def hashes(values: list[object], kind: str, key: bytes = KEY) -> list[int]:
    with duckdb.connect() as db:
        c = coefficients(key)
        h = hash_sql(unit_number("unit", kind, c, DUCK), kind, c, DUCK)
        listed = [list(map(str, values)), len(values)]
        pairs = "SELECT unnest(CAST(? AS VARCHAR[])) AS unit, unnest(range(?)) AS i"
        db.execute(f"CREATE TABLE units AS SELECT i, CAST(unit AS {kind}) AS unit FROM ({pairs})", listed)
        return [row[0] for row in db.execute(f"SELECT {h} FROM units ORDER BY i").fetchall()]


@pytest.mark.parametrize("kind", ["BIGINT", "HUGEINT", "VARCHAR", "DOUBLE"])
def test_any_key_has_an_offset_in_range(kind: str) -> None:
    found = hashes(list(map(str, EDGES)) if kind == "VARCHAR" else list(EDGES), kind)
    assert all(0 <= h < PRIME for h in found)
    assert len(set(found)) >= len(EDGES) - 2  # two doubles are equal, and chance


@pytest.mark.parametrize("values", by_default([list(range(4000)), list(range(0, 64 * 4000, 64))], 1))
def test_offsets_of_consecutive_keys_are_spread_evenly(values: list[object]) -> None:
    """Chi-square over 37 offsets, 60 secrets: mean 36 and standard deviation 8.5 if even; linear hashes reach 464."""
    found = []
    for seed in range(60):
        h = np.array(hashes(values, "BIGINT", random.Random(seed).randbytes(32)), dtype=object)
        counts = np.bincount((h * 37 // PRIME).astype(int), minlength=37)
        found.append(float(((counts - len(values) / 37) ** 2).sum() / (len(values) / 37)))
    assert abs(np.mean(found) - 36) < 4 * 8.5 / 60**0.5
    assert max(found) < 36 + 6 * 8.5


ONE_SCAN = replace(DUCK, materialised=None)
"""DuckDB as an engine that may compute a common table twice."""

MADE = "CREATE TABLE sales (unit BIGINT, a INTEGER, m BIGINT); CREATE TABLE people (id BIGINT, b INTEGER)"
SALES = [(unit, i % 4, i % 7 - 3) for unit in range(-3, 20) for i in range(unit + 4)]
PEOPLE = [(unit, (unit * i) % 3) for unit in range(-3, 18) for i in range(unit % 4)]
"""Units and something of theirs; some stand several times, some nowhere."""


@pytest.mark.parametrize("missing", by_default([3, None], 1))
@pytest.mark.parametrize("one_scan", by_default([True, False], 1))
def test_rows_found_by_the_units_own_key_are_bounded_like_its_own(one_scan, missing):
    """A row of a unit is one of its m rows with one of d; that d rows have the key lets no more than tau count."""
    sales = SALES.copy()
    found = with_people(sales, PEOPLE, one_scan, missing)
    assert found == Counter(expected(sales, PEOPLE, missing))
    random.Random(4).shuffle(sales)
    assert with_people(sales, random.Random(5).sample(PEOPLE, len(PEOPLE)), one_scan, missing) == found
    kept = Counter(unit for unit, *_ in found.elements())
    assert max(kept.values()) == 6


def stored_in(*tables: list[tuple[int, ...]]) -> duckdb.DuckDBPyConnection:
    """A database of sales and people."""
    db = duckdb.connect()
    db.execute(MADE)
    for name, rows in zip(("sales", "people"), tables, strict=True):
        db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    return db


def with_people(
    sales: list[tuple[int, int, int]], people: list[tuple[int, int]], one_scan: bool, missing: int | None
) -> Counter[tuple[int, ...]]:
    """(unit, a, m, b) of the kept rows, at most 6 of a unit."""
    axes = (Digit("a0", (), "a", 0, 4), Digit("a1", ("unit",), "b", 0, 4, missing=missing, total=True))
    sides = (JoinSide((), "sales", carried=("unit",)), JoinSide(("unit",), "people", key="id"))
    measure = Digit("m0", (), "m", -3, 7, nullable=True)
    plan = PlacedRows(sides, axes, (measure,), UnitKey((), "unit", "BIGINT"))
    query = Sampled(6, coefficients(KEY)).stored(plan, ONE_SCAN if one_scan else DUCK)
    with stored_in(sales, people) as db:
        return Counter(db.execute(f"SELECT unit, a0, m0, a1 FROM ({query})").fetchall())


def expected(
    sales: list[tuple[int, int, int]], people: list[tuple[int, int]], missing: int | None
) -> list[tuple[int, ...]]:
    """The same by the method page."""
    kept: list[tuple[int, ...]] = []
    for unit in {sale[0] for sale in sales}:
        own = sorted((a, m) for owner, a, m in sales if owner == unit)
        theirs = sorted(b for owner, b in people if owner == unit) or ([] if missing is None else [missing])
        n = len(own) * len(theirs)
        r = hashes([unit], "BIGINT")[0] * n // PRIME
        numbered = enumerate(((unit, a, m, b) for a, m in own for b in theirs), 1)
        kept += [row for i, row in numbered if n <= 6 or (i * 6 + r) % n < 6]
    return kept


PLACES = {0: 1, 1: 0, 3: 1}
"""A lookup table by a row's a: 2 names none."""


@pytest.mark.parametrize(
    ("looked_up", "missing"), by_default(product(["missing", "dropped", "unlisted"], [3, None]), 3)
)
@pytest.mark.parametrize("one_scan", by_default([False, True], 1))
def test_weights_and_rows_beyond_are_those_of_all_joined_rows(one_scan, missing, looked_up):
    """Whatever joins may be left out or done for units instead of rows: n is the number of a unit's placed rows."""
    total = looked_up != "unlisted"
    axes = (
        Digit("a0", (), "a", 0, 4, total=True),
        Digit("a1", ("unit",), "b", 0, 4, missing=missing, total=True),
        Digit("a2", ("a",), "c", 0, 3, missing=None if looked_up == "dropped" else 2, total=total),
    )
    sides = (
        JoinSide((), "sales", carried=("unit", "a")),
        JoinSide(("unit",), "people", key="id"),
        JoinSide(("a",), "places", key="id", unique=True),
    )
    m = Digit("m0", (), "m", -3, 7, nullable=True)
    plan = PlacedRows(sides, axes, (m,), UnitKey((), "unit", "BIGINT"))
    none = [] if missing is None else [missing]
    people = {unit: [b for owner, b in PEOPLE if owner == unit] or none for unit, *_ in SALES}
    places = {a: c for a, c in PLACES.items() if c or total} | ({} if looked_up == "dropped" else {2: 2})
    joined = [(u, 12 * a + 3 * b + places[a], v) for u, a, v in SALES if a in places for b in people[u]]
    rows, expected = Counter(unit for unit, *_ in joined), Counter[int]()
    for unit, cell, value in joined:
        expected[cell] += value * min(UNIT, 6 * UNIT // rows[unit])
    dialect = ONE_SCAN if one_scan else DUCK
    with stored_in(SALES, PEOPLE) as db:
        db.execute("CREATE TABLE places (id INTEGER, c INTEGER)")
        known = [(a, c if c or total else None) for a, c in PLACES.items()]  # place 0 without a leaf
        db.executemany("INSERT INTO places VALUES (?, ?)", known)
        group = StatisticGroup(("a0", "a1", "a2"), (Value("m0", 0, 3),))
        weighted = db.execute(RowWeighting(6).statement(plan, [group], dialect)).fetchall()
        ((beyond, more),) = db.execute(beyond_bound(plan, 6, 18, dialect)).fetchall()
    assert {cell: total for _, cell, total in weighted if total} == {c: n for c, n in expected.items() if n}
    assert beyond == sum(n - 6 for n in rows.values() if 6 < n <= 24) > 0
    assert more == sum(n > 24 for n in rows.values()) > 0


WIDE = 2**40


@pytest.mark.parametrize(
    ("m", "low", "size", "wide", "words"),
    [
        (tuple(range(-5, 6)), -5, 11, 4, 1),
        ((-WIDE, 0, WIDE), -WIDE, 2 * WIDE + 1, 9, 1),
        (tuple(range(30_000, 50_001, 999)), 0, 50_001, 1 << 61, 2),
        ((-(10**18), 0, 10**18), -(10**18), 2 * 10**18 + 1, 1 << 61, 3),
    ],
)
def test_a_packed_row_comes_back_whole(m, low, size, wide, words):
    axes = (Digit("a0", (), "a0", 0, 3000),)
    measures = (
        Digit("m0", (), "m0", low, size, nullable=True),
        Digit("m1", (), "m1", 10, 1, nullable=True),
        Digit("m2", (), "m2", 0, wide, nullable=True),
    )
    plan = PlacedRows((JoinSide((), "t", carried=("unit",)),), axes, measures, UnitKey((), "unit", "INTEGER"))
    assert len(row_numbers(plan)) == words
    rows = list(product((0, 1, 2999), (None, *m), (None, 10), (None, 0, wide - 1)))
    with duckdb.connect() as db:
        db.execute("CREATE TABLE t (unit INTEGER, a0 INTEGER, m0 BIGINT, m1 BIGINT, m2 BIGINT)")
        db.executemany("INSERT INTO t VALUES (1, ?, ?, ?, ?)", rows)
        found = db.execute(Sampled(10**6, coefficients(KEY)).stored(plan, DUCK)).fetchall()
    assert sorted(map(str, found)) == sorted(str((*row, 1)) for row in rows)
