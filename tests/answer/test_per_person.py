"""Plain SQL by person: without noise it gives what DuckDB gives over raw rows, or says which line to add."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ZeroNoise
from dpsql.sql import per_person
from tests.releases import Twins, published, write_catalog

pytestmark = pytest.mark.usefixtures("publishes")

CATALOG = """\
dpsql: 1
name: shop
ledger: ROOT/ledger.duckdb
source: {kind: parquet, root: ROOT, tables: {customer: customer.parquet, sales: sales.parquet, returns: returns.parquet,
  product: product.parquet}}
privacy: {lineage: shop, cap: 5000, unit: customer.customer_id, epsilon: 5000}
tables:
  customer:
    role: dimension
    key: customer_id
    columns: {region: {type: string, categories: [north, south, east]},
      gap: {type: int, lower: 0, upper: 40, nullable: true}}
    derive: {gap: "date_diff('day', first_day, second_day)"}
    summaries:
      visits: {of: sales, is: count(*), type: int, lower: 0, upper: 60}
      spent: {of: sales, is: sum(amount), type: int, lower: 0, upper: 400, measure: true}
      paid: {of: sales, is: count(amount), type: int, lower: 0, upper: 60}
      pieces: {of: sales, is: sum(pieces), type: int, lower: 0, upper: 400, measure: true}
      first_day: {of: sales, is: min(sold_on), type: date, lower: 2025-01-01, upper: 2025-01-31, nullable: true}
      second_day: {of: sales, is: "nth(sold_on, 2)", type: date}
      last_day: {of: sales, is: max(sold_on), type: date, lower: 2025-01-01, upper: 2025-01-31, nullable: true}
      toys: {of: sales, is: bool_or(product.category = 'toys'), type: bool}
      toy_visits: {of: sales,
        is: "count(*) FILTER (WHERE product.category = 'toys' AND pieces > 1)", type: int, lower: 0, upper: 60}
      late: {of: sales, is: count(*) FILTER (WHERE sold_on >= DATE '2025-01-20'), type: int, lower: 0, upper: 60}
      kinds: {of: sales, is: count(DISTINCT product.category), type: int, lower: 0, upper: 9}
      favourite: {of: sales, is: mode(product.category), type: string, categories: [toys, food, tools], nullable: true}
      sent_back: {of: returns, is: count(*), type: int, lower: 0, upper: 60}
  product: {role: dimension, key: product_id, private: false,
    columns: {category: {type: string, categories: [toys, food, tools]}}}
  sales: {role: fact, max_ids: 60, foreign_keys: {customer_id: customer, product_id: product}, columns: {
    amount: {type: int, lower: 0, upper: 20, measure: true, nullable: true}, pieces: {type: int, lower: 0, upper: 9},
    sold_on: {type: date, lower: 2025-01-01, upper: 2025-01-31}}}
  returns: {role: fact, max_ids: 60, foreign_keys: {customer_id: customer}, columns: {
    day: {type: date, lower: 2025-01-01, upper: 2025-01-31}}}
views:
  visits: {of: customer, axes: [customer.visits, customer.region], measures: [count, customer.spent, customer.pieces]}
  money: {of: customer, axes: [customer.spent, customer.paid], measures: [count]}
  buyers: {of: customer, measures: [count], share: 0.01, axes: [
    {axis: customer.spent, cuts: [11, 21]}, {axis: customer.paid, cuts: [1]}, {axis: customer.visits, cuts: [1]}]}
  pieces: {of: customer, axes: [customer.pieces, customer.visits], measures: [count]}
  cohort: {of: customer, axes: [customer.first_day, customer.last_day, customer.region], measures: [count]}
  gaps: {of: customer, axes: [customer.gap, customer.region], measures: [count]}
  toys: {of: customer, axes: [customer.toys, customer.region], measures: [count]}
  rows: {of: customer, axes: [customer.toy_visits, customer.visits], measures: [count]}
  late: {of: customer, axes: [customer.late, customer.visits], measures: [count]}
  kinds: {of: customer, axes: [customer.kinds, customer.visits], measures: [count]}
  favourite: {of: customer, axes: [customer.favourite], measures: [count]}
  back: {of: customer, axes: [customer.sent_back, customer.visits], measures: [count]}
"""  # fmt: skip

HERE = Path(__file__).parent
STATEMENTS = (HERE / "per_person.sql").read_text().splitlines()
MISSES = re.findall(r"^-- (.*)\n(.*);$", (HERE / "per_person_misses.sql").read_text(), re.MULTILINE)
"""Statements that no summary answers, each below what its refusal must say."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReleaseEngine, duckdb.DuckDBPyConnection]:
    """A release without noise, and the raw rows of people who are in the people's table."""
    folder, chance = tmp_path_factory.mktemp("shop"), random.Random(7)
    raw = duckdb.connect()
    raw.execute("CREATE TABLE customer (customer_id BIGINT, region VARCHAR)")
    raw.execute("CREATE TABLE product (product_id BIGINT, category VARCHAR)")
    raw.execute(
        "CREATE TABLE sales (customer_id BIGINT, product_id BIGINT, amount BIGINT, pieces BIGINT, sold_on DATE)"
    )
    raw.execute("CREATE TABLE returns (customer_id BIGINT, day DATE)")

    def day() -> date:
        return date(2025, 1, 1) + timedelta(days=chance.randint(0, 30))

    people = [(key, chance.choice(["north", "south", "east"])) for key in range(60)]
    keys = [*range(45), *range(20), *range(8), None, 777]
    sales: list[tuple[Any, ...]] = [
        (chance.choice(keys), chance.choice([1, 2, 3, 4, None, 99]), chance.choice([None, 0, 1, 5, 9]),
         chance.randint(0, 9), day())
        for _ in range(260)
    ]  # fmt: skip
    sales += [(50, 1, None, 1, day())] * 2  # one who has sales and no amount
    raw.executemany("INSERT INTO customer VALUES (?, ?)", people)
    raw.executemany(
        "INSERT INTO product VALUES (?, ?)", [(1, "toys"), (2, "food"), (3, "tools"), (4, "toys")]
    )
    raw.executemany("INSERT INTO sales VALUES (?, ?, ?, ?, ?)", sales)
    raw.executemany("INSERT INTO returns VALUES (?, ?)", [(chance.choice(keys), day()) for _ in range(70)])
    for table in ("customer", "product", "sales", "returns"):
        raw.execute(f"COPY {table} TO '{folder / table}.parquet'")
    answerer = published(write_catalog(folder, CATALOG), ZeroNoise())
    # what no release has: groups of the NULL key and of keys that name nobody
    nobody = "customer_id IS NULL OR customer_id NOT IN (SELECT customer_id FROM customer)"
    for table in ("sales", "returns"):
        raw.execute(f"DELETE FROM {table} WHERE {nobody}")
    return answerer, raw


def groups(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Groups that somebody is in: a release shows all that the catalog knows."""
    return [row for row in rows if len(row) == 1 or any(row[1:])]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_plain_sql_means_what_it_says(statement: str, shop: Twins) -> None:
    answerer, raw = shop
    answer = answerer.query(statement)
    expected = raw.execute(statement).fetchall()
    assert len(groups(answer.rows)) == len(groups(expected))
    for row, wanted in zip(groups(answer.rows), groups(expected), strict=True):
        for value, exact in zip(row, wanted, strict=True):
            assert value == (pytest.approx(exact) if isinstance(exact, float) else exact)
    assert any("names nobody" in note for note in answer.notes)


@pytest.mark.parametrize(("advice", "statement"), MISSES)
def test_near_misses_name_the_line_to_add(statement: str, advice: str, shop: Twins) -> None:
    with pytest.raises(NotSupportedError) as caught:
        shop[0].query(statement)
    assert advice in str(caught.value)


def test_a_sum_of_people_says_what_one_counts_for(shop: Twins) -> None:
    notes = shop[0].query("SELECT region, AVG(spent), SUM(pieces) FROM customer GROUP BY 1").notes
    assert "a row of customer counts for at most 400 of spent" in notes
    assert "a row of customer counts for at most 400 of pieces" in notes
    notes = shop[0].query("SELECT AVG(visits) FROM customer").notes
    assert "a row of customer counts for at most 60 of visits" in notes
    notes = shop[0].query("SELECT visits, COUNT(*) FROM customer GROUP BY 1").notes
    assert not any("counts for at most" in note for note in notes)


class TestPlanted:
    """A mapping that forgets a rule gives other rows than DuckDB."""

    def wrong(self, shop: Twins) -> int:
        answerer, raw = shop
        plain = ReleaseEngine(answerer.release)  # remembers no statement
        return sum(
            groups(plain.query(statement).rows) != groups(raw.execute(statement).fetchall())
            for statement in STATEMENTS
            if "AVG" not in statement
        )

    def test_none_without_one(self, shop: Twins) -> None:
        assert self.wrong(shop) == 0

    def test_people_without_rows(self, shop: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(per_person._Mapping, "present", lambda *_: exp.true())
        assert self.wrong(shop) >= 5

    def test_sums_of_nothing(self, shop: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(per_person._Mapping, "_may_be_null", lambda *_: False)
        assert self.wrong(shop) >= 1
