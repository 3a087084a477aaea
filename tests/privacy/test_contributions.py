"""One privacy unit changes every view by at most its bound, whatever it owns and however rows are ordered."""

from __future__ import annotations

import random

import duckdb
import numpy as np
import pytest

from dpsql.central.placed_rows import check_public_key
from dpsql.central.planned import Bounds
from dpsql.engines.counting import Sampled, StatisticGroup, Value, coefficients
from dpsql.engines.dialect import DUCK
from dpsql.engines.duck import RawSide
from dpsql.engines.expressions import Ends, measure
from dpsql.engines.joined_rows import Digit, JoinSide, PlacedRows, UnitKey
from dpsql.errors import SourceError

BOUNDS = Bounds(-300, 1001, 2)
ENDS = Ends(-300, 1001, 2)
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
    age = Digit(
        "a0", ("customer_id",), "CASE WHEN age IS NULL THEN 4 WHEN age BETWEEN 0 AND 3 THEN age ELSE 6 END", 0, 7, 5,
        total=True,
    )  # fmt: skip
    amount = Digit("m0", (), measure("amount", ENDS, "DOUBLE", DUCK), -300, 1302, nullable=True)
    sides = (
        JoinSide((), "raw.sales", carried=("customer_id",)),
        JoinSide(("customer_id",), "raw.customer", "customer_id", once=True),
    )
    rows = PlacedRows(sides, (age,), (amount,), UnitKey((), "customer_id", "INTEGER"))
    values = Value(), Value("m0", BOUNDS.mid, BOUNDS.reach)
    statement = Sampled(tau, coefficients(b"k" * 32)).statement(rows, [StatisticGroup(("a0",), values)], DUCK)
    found = RawSide(connection, {}).relations("counting").fetch(statement)
    cells = np.zeros((2, 7), np.int64)
    cells[:, found["cell"]] = found["v0"], found["v1"]
    return cells


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
    with pytest.raises(SourceError, match=r"customer.key: customer_id has duplicates"):
        check_public_key(RawSide(connection, {}), "customer", "customer_id")
    connection = raw_side([], ["(NULL, 0)"])
    with pytest.raises(SourceError, match="contains NULL"):
        check_public_key(RawSide(connection, {}), "customer", "customer_id")


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
    sql = measure("x", ENDS, None, DUCK)
    row = duckdb.connect().execute(f"SELECT {sql} FROM (SELECT {value} AS x)").fetchone()
    assert row == (expected,)
