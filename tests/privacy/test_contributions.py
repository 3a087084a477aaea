"""One privacy unit changes every view by at most its bound, whatever it owns and however rows are ordered."""

from __future__ import annotations

import random

import duckdb
import numpy as np
import pytest

from dpsql.errors import SourceError
from dpsql.publishing.cells import exact_sums
from dpsql.publishing.planned import Bounds
from dpsql.publishing.rows import (
    RowPlan,
    alias,
    bounded_rows,
    check_dimension,
    measure_sql,
    prepare_counted,
    set_key,
)
from dpsql.star.resolve import Hop
from tests.axis.test_axis import KINDS, NUMBERS

BOUNDS = Bounds(-300, 1001, 2)
POISON = [
    "NULL", "'NaN'::DOUBLE", "'inf'::DOUBLE", "'-inf'::DOUBLE", "1e308", "-1e308", "0.005", "-0.0", "10.01", "4.35",
]  # fmt: skip


def raw_side(rows, customers):
    """sales(customer_id, age bin, amount) and a private customer dimension, as SQL value lists."""
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA raw")
    connection.execute("CREATE TABLE raw.sales (customer_id INT, amount DOUBLE)")
    connection.execute("CREATE TABLE raw.customer (customer_id INT, age INT)")
    if rows:
        connection.execute(f"INSERT INTO raw.sales VALUES {', '.join(rows)}")
    if customers:
        connection.execute(f"INSERT INTO raw.customer VALUES {', '.join(customers)}")
    return connection


def views(connection, tau):
    """COUNT and SUM(x - mid) over the age axis: 0-3 ages, 4 NULL, 5 MISSING, 6 OTHER."""
    set_key(connection, b"k" * 32)
    prepare_counted(connection, "sales", {})
    check_dimension(connection, "customer", "customer_id", {}, public=False)
    customer = alias(("customer_id",))
    leaf = (
        f"CASE WHEN {customer}.customer_id IS NULL THEN 5 WHEN {customer}.age IS NULL THEN 4 "
        f"WHEN {customer}.age BETWEEN 0 AND 3 THEN {customer}.age ELSE 6 END"
    )
    plan = RowPlan(
        of="sales",
        joins=[Hop(("customer_id",), "customer", "customer_id")],
        axes={0: leaf},
        measures={"sales.amount": measure_sql(f"{alias(())}.amount", BOUNDS)},
        unit=f"{alias(())}.customer_id",
        tau=tau,
    )
    table = bounded_rows(connection, plan)
    count, centred = exact_sums(connection, table, [0], [7], ["1", f"m0 - {BOUNDS.mid}"])
    return count, centred


@pytest.mark.parametrize("extra", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_one_more_unit_changes_views_by_at_most_the_bound(extra, seed):
    rng = random.Random(seed)
    rows = [f"({rng.randrange(50)}, {rng.uniform(-5, 15)})" for _ in range(300)]
    rows += ["(NULL, 3.5)", "(777, 2)"]
    customers = [f"({i}, {rng.choice(['NULL', -1, 0, 1, 2, 3, 9])})" for i in range(50)]
    victim = [f"(1000, {rng.choice(POISON)})" for _ in range(extra)]
    own = [f"(1000, {rng.choice(['NULL', 2, 10**9])})"] * rng.choice([0, 1, 3])
    tau = 3
    before = views(raw_side(rows, customers), tau)
    mixed = rows + victim
    rng.shuffle(mixed)
    after = views(raw_side(mixed, customers + own), tau)
    assert np.abs(after[0] - before[0]).sum() == min(tau, extra)
    assert np.abs(after[1] - before[1]).sum() <= min(tau, extra) * BOUNDS.reach


def test_the_order_of_rows_does_not_matter():
    rng = random.Random(7)
    rows = [f"({rng.randrange(9)}, {rng.uniform(0, 9)})" for _ in range(200)]
    customers = [f"({i}, {i % 5})" for i in range(9)]
    first = views(raw_side(rows, customers), 4)
    for _ in range(3):
        rng.shuffle(rows)
        rng.shuffle(customers)
        again = views(raw_side(rows, customers), 4)
        assert np.array_equal(first[0], again[0])
        assert np.array_equal(first[1], again[1])


def test_identical_rows_do_not_tie():
    count, _ = views(raw_side(["(1, 2.5)"] * 1000, ["(1, 2)"]), 3)
    assert count.tolist() == [0, 0, 3, 0, 0, 0, 0]


def test_rows_without_a_unit_are_left_out_and_dangling_units_are_units():
    count, _ = views(raw_side(["(NULL, 1)", "(5, 1)", "(5, 2)", "(6, 3)"], ["(6, NULL)"]), 1)
    assert count.tolist() == [0, 0, 0, 0, 1, 1, 0]


def test_private_duplicate_keys_multiply_nothing_and_public_ones_are_an_error():
    count, _ = views(raw_side(["(1, 1)", "(1, 2)", "(1, 3)"], ["(1, 0)", "(1, 1)", "(1, 2)"]), 9)
    assert count.sum() == 3
    connection = raw_side([], ["(1, 0)", "(1, 1)"])
    set_key(connection, b"k" * 32)
    with pytest.raises(SourceError, match=r"customer.key: customer_id has duplicates"):
        check_dimension(connection, "customer", "customer_id", {}, public=True)
    connection = raw_side([], ["(NULL, 0)"])
    with pytest.raises(SourceError, match="holds NULL"):
        check_dimension(connection, "customer", "customer_id", {}, public=True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("NULL", None), ("'NaN'::DOUBLE", None), ("'inf'::DOUBLE", 1001), ("'-inf'::DOUBLE", -300), ("1e308", 1001),
        ("4.35::DOUBLE", 435), ("4.355::DECIMAL(9,3)", 436), ("10.02::DOUBLE", 1001), ("-3.01::DOUBLE", -300),
        ("'1.5'", 150), ("'abc'", None), ("'1e400'", 1001), ("99999999999999999999999999999::HUGEINT", 1001),
        ("true", 100),
    ],
)  # fmt: skip
def test_measures_are_bounded_integers_for_every_input(value, expected):
    row = duckdb.connect().execute(f"SELECT {measure_sql('x', BOUNDS)} FROM (SELECT {value} AS x)").fetchone()
    assert row == (expected,)


@pytest.mark.parametrize("bounds", [Bounds(0, 50_000, 2), Bounds(-7, 99, 0), Bounds(-15, 15, 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_known_type_changes_no_measure(kind: str, bounds: Bounds) -> None:
    values = ", ".join(["(NULL)", *(f"('{v}')" for v in NUMBERS)])
    narrow, general = measure_sql("x", bounds, kind), measure_sql("x", bounds)
    rows = duckdb.connect().execute(
        f"SELECT x, {narrow}, {general} FROM (SELECT TRY_CAST(v AS {kind}) x FROM (VALUES {values}) t(v))"
    ).fetchall()  # fmt: skip
    assert all(a == b for _, a, b in rows), [row for row in rows if row[1] != row[2]]
