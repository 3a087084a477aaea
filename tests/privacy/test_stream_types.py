"""A person is one person in every batch of a stream, whatever types come; what is public is not compared."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from dpsql.errors import BatchConflict, CatalogError, Error, IntegrityError, SourceError
from tests.stream_shop import StreamShop, make_stream_shop
from tests.thinned import by_default

PEOPLE = 30
STREAM = """
dpsql: 1
name: retail
source: {kind: KIND, root: data, tables: {customer: customer.KIND, product: product.KIND, sales: sales.KIND}}
privacy: {lineage: shop, cap: 4.0, unit: customer.customer_id, neighbours: add_remove, epsilon: 1, delta: 0}
tables:
  customer: {role: dimension, key: customer_id, private: true, columns: {age: {type: int, lower: 0, upper: 99}DECLARED}}
  product:
    {role: dimension, key: product_id, private: false, columns: {category: {type: string}, product_id: {type: int}}}
  sales:
    {role: fact, foreign_keys: {customer_id: customer, product_id: product}, max_ids: 2,
     columns: {amount: {type: decimal, scale: 2, lower: 0, upper: 200, measure: true},
               shop: {type: string, categories: ["1", "2"]},
               sold_on: {type: date, lower: 2025-01-01, upper: 2025-12-31, out_of_domain: drop}}}
stream: {column: sales.sold_on, grain: day, horizon: 31, late: batch, max_batches: 2}
views:
  days: {of: sales, axes: [sales.sold_on, sales.shop], measures: {count: 0.5, sales.amount: 0.5}}
  ages: {of: sales, axes: [sales.sold_on, {axis: customer.age, cuts: [15]}], measures: [count]}
"""
WHOLE = {
    "BIGINT": "CAST({v} AS BIGINT)",
    "INTEGER": "CAST({v} AS INTEGER)",
    "DOUBLE": "CAST({v} AS DOUBLE)",
    "DOUBLE, one missing": "CASE WHEN n = 0 THEN 'nan'::DOUBLE ELSE CAST({v} AS DOUBLE) END",
    "DECIMAL": "CAST({v} AS DECIMAL(12,2))",
    "text": "CAST({v} AS VARCHAR)",
    "padded": "lpad(CAST({v} AS VARCHAR), 5, '0')",
    "float text": "CAST({v} AS VARCHAR) || '.0'",
}
AMOUNT = (
    "CAST(n AS BIGINT)",
    "n + 0.25::DOUBLE",
    "CAST(n + 0.25 AS DECIMAL(9,2))",
    "CAST(n AS VARCHAR) || '.25'",
)
TIMES = ("{d}", "{d}::TIMESTAMP + INTERVAL 3 HOUR", "{d}::VARCHAR", "({d}::TIMESTAMP)::TIMESTAMP_NS")


def shop_of(folder: Path, key: str = "BIGINT", kind: str = "parquet", declared: str = "") -> StreamShop:
    """A stream of thirty people, whose dimension has a key of one type."""
    shop = make_stream_shop(
        folder, customers=5, text=STREAM.replace("KIND", kind).replace("DECLARED", declared)
    )
    people(shop, key, kind)
    sql = "SELECT i AS product_id, 'c' || i % 2 AS category FROM range(1, 5) t(i)"
    duckdb.execute(f"COPY ({sql}) TO '{shop.folder / 'data' / 'product'}.{kind}'")
    return shop


def people(shop: StreamShop, key: str, kind: str = "parquet") -> None:
    sql = f"SELECT {WHOLE[key].format(v='n')} AS customer_id, n AS age FROM range(1, {PEOPLE + 1}) t(n)"
    duckdb.execute(f"COPY ({sql}) TO '{shop.folder / 'data' / 'customer'}.{kind}'")


def day_file(
    folder: Path, day: int, key: str, *, amount: str = AMOUNT[1], time: str = TIMES[0], shop: str = "BIGINT",
    ending: str = "parquet", more: str = "", who: str = "n",
) -> Path:  # fmt: skip
    """Three rows of everybody on one day."""
    columns = {
        "sale_id": "n", "Customer_ID": WHOLE[key].format(v=f"({who})"), "product_id": "1 + n % 4", "amount": amount,
        "shop": WHOLE[shop].format(v="(1 + n % 2)"), "sold_on": time.format(d=f"DATE '2025-01-{day + 1:02d}'"),
    }  # fmt: skip
    order = sorted(columns, key=lambda name: random.Random(f"{day}{name}").random())
    listed = ", ".join(f"{columns[name]} AS {name}" for name in order)
    path = folder / f"day{day}.{ending}"
    duckdb.execute(f"COPY (SELECT {listed}{more} FROM range(0, {PEOPLE + 1}) t(n), range(3)) TO '{path}'")
    return path


def counters(shop: StreamShop) -> list[int]:
    """How many batches each person has been in."""
    (private,) = (shop.folder / ".dpsql").glob("*.stream")
    with closing(sqlite3.connect(private)) as database:
        return [int(row[0]) for row in database.execute("SELECT batches FROM contributor")]


def files(shop: StreamShop) -> dict[Path, bytes]:
    """What is public."""
    return {path: path.read_bytes() for path in shop.directory.rglob("*") if path.is_file()}


def total(shop: StreamShop) -> float:
    return float(shop.opened().query("SELECT COUNT(*) FROM sales").scalar())


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_nobody_is_in_more_batches_than_the_cap_whatever_types_come(tmp_path: Path, seed: int) -> None:
    """Numbers of thirty people (and a 0 or a missing one) come as any type, on both sides of the join."""
    choice = random.Random(seed)
    shop = shop_of(tmp_path, choice.choice(["BIGINT", "INTEGER", "DECIMAL", "DOUBLE"]) if seed else "BIGINT")
    for day in range(5):
        if day:
            people(shop, choice.choice([key for key in WHOLE if key != "DOUBLE, one missing"]))
        key = choice.choice(list(WHOLE))
        ending = choice.choice(["csv", "parquet"]) if "text" in key or key == "padded" else "parquet"
        file = day_file(tmp_path, day, key, ending=ending, amount=choice.choice(AMOUNT), time=choice.choice(TIMES),
                        shop="text")  # fmt: skip
        shop.append(day, file)
    found = counters(shop)
    assert max(found) == 2
    assert len(found) <= PEOPLE + 1  # one is in no dimension, and on some days without a number
    assert PEOPLE * 2 * 2 - 0.01 <= total(shop) <= (PEOPLE + 1) * 2 * 2 + 0.01


def test_other_columns_mean_the_same_whatever_types_come(tmp_path: Path) -> None:
    """Text of categories, amounts with and without digits after the point, dates and times."""
    question = "SELECT shop, COUNT(*) AS n, SUM(amount) AS s FROM sales GROUP BY shop ORDER BY shop"
    answers = []
    for name, shop_type, amount, time in (
        ("same", "BIGINT", AMOUNT[1], TIMES[0]),
        ("other", "DOUBLE", AMOUNT[3], TIMES[1]),
        ("text", "padded", AMOUNT[2], TIMES[2]),
    ):
        shop = shop_of(tmp_path / name)
        shop.append(0, day_file(tmp_path / name, 0, "BIGINT"))
        types = {"shop": shop_type, "amount": amount, "time": time, "more": ", 5 AS extra"}
        shop.append(1, day_file(tmp_path / name, 1, "BIGINT", **types))  # type: ignore[arg-type]
        answers.append(shop.opened().query(question).rows)
    for answer in answers[1:]:
        assert [row[0] for row in answer] == [row[0] for row in answers[0]]
        for row, want in zip(answer, answers[0], strict=True):
            assert row[1] == pytest.approx(want[1], abs=0.01) and row[2] == pytest.approx(want[2], abs=0.05)


def test_a_value_that_cannot_be_read_leaves_out_its_row_and_nothing_else(tmp_path: Path) -> None:
    shop = shop_of(tmp_path)
    shop.append(0, day_file(tmp_path, 0, "BIGINT"))
    bad = day_file(tmp_path, 1, "text", who="n", ending="csv")
    text = bad.read_text().replace(",7,", ",seven,").replace(",8,", ",8.5,")
    bad.write_text(text)
    report = shop.append(1, bad)
    assert report.added and "bounded" in report.left_out
    assert max(counters(shop)) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    by_default(
        [
            ({"time": "5"}, "sales.sold_on: no INTEGER is a value of the declared type date"),
            (
                {"amount": "DATE '2025-01-01'"},
                "sales.amount: no DATE is a value of the declared type decimal",
            ),
            ({"amount": "uuid()"}, "sales.amount: no UUID is a value of the declared type decimal"),
        ],
        1,
    ),
)
def test_types_without_common_values_are_refused_by_name(tmp_path, change, words):
    shop = shop_of(tmp_path)
    shop.append(0, day_file(tmp_path, 0, "BIGINT"))
    with pytest.raises(SourceError, match=words):
        shop.append(1, day_file(tmp_path, 1, "BIGINT", **change))  # type: ignore[arg-type]
    assert shop.append(1, day_file(tmp_path, 1, "BIGINT")).batch == 1


def test_a_missing_column_is_refused_by_name_and_extra_ones_are_not_read(tmp_path: Path) -> None:
    shop = shop_of(tmp_path)
    shop.append(0, day_file(tmp_path, 0, "BIGINT", more=", 1 AS note"))
    path, less = day_file(tmp_path, 1, "BIGINT"), tmp_path / "less.parquet"
    duckdb.execute(f"COPY (SELECT * EXCLUDE (shop) FROM '{path}') TO '{less}' (FORMAT parquet)")
    with pytest.raises(SourceError, match=r"tables.sales: this batch has no column `shop`"):
        shop.append(1, less)
    assert shop.append(1, path).added  # `note` is no column of the catalog
    assert shop.append(2, day_file(tmp_path, 2, "BIGINT", more=", 'x' AS note, [1, 2] AS list")).added


def test_a_dimension_whose_key_changes_its_type_keeps_its_people(tmp_path: Path) -> None:
    shop = shop_of(tmp_path, "DOUBLE")
    ages = "SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE age >= 15"
    counts = []
    for day, (person, fact) in enumerate((("DOUBLE", "DOUBLE"), ("BIGINT", "padded"))):
        people(shop, person)
        shop.append(day, day_file(tmp_path, day, fact))
        counts.append(float(shop.opened().query(ages).scalar()))
    assert counts[1] == pytest.approx(2 * counts[0], abs=0.01)
    people(shop, "BIGINT")
    duckdb.execute(
        f"COPY (SELECT DATE '2025-01-01' AS customer_id, 3 AS age) TO '{tmp_path}/data/customer.parquet'"
    )
    with pytest.raises(SourceError, match="customer"):
        shop.append(2, day_file(tmp_path, 2, "BIGINT"))


def test_leaves_of_a_public_table_stay_what_they_were(tmp_path: Path) -> None:
    """Another product in the middle of the alphabet moves every later leaf; a type or a column does not."""
    shop = shop_of(tmp_path)
    axis = "axes: [sales.sold_on, {axis: product, by: [category, product_id]}]"
    shop.catalog.write_text(shop.catalog.read_text().replace("axes: [sales.sold_on, sales.shop]", axis))
    shop.append(0, day_file(tmp_path, 0, "BIGINT"))
    products = tmp_path / "data" / "product.parquet"
    rows = (
        "SELECT CAST(i AS DOUBLE) AS product_id, 'c' || i % 2 AS category, 5 AS price FROM range(1, 5) t(i)"
    )
    duckdb.execute(f"COPY ({rows}) TO '{products}'")
    assert shop.append(1, day_file(tmp_path, 1, "BIGINT")).added
    duckdb.execute(f"COPY (SELECT * REPLACE (CASE WHEN product_id = 1 THEN 'c9' ELSE category END AS category) "
                   f"FROM ({rows})) TO '{products}'")  # fmt: skip
    with pytest.raises(IntegrityError, match="axes are not those"):
        shop.append(2, day_file(tmp_path, 2, "BIGINT"))


def test_csv_people_need_a_declared_type(tmp_path: Path) -> None:
    undeclared = shop_of(tmp_path / "none", kind="csv")
    with pytest.raises(CatalogError, match=r"whether 7, 7.0 and 00007 are one person") as refused:
        undeclared.append(0, day_file(tmp_path / "none", 0, "text", ending="csv"))
    assert "customer_id: {type: int}" in str(refused.value)
    assert not undeclared.directory.exists()
    numbers = shop_of(tmp_path / "int", "float text", "csv", ", customer_id: {type: int}")
    for day, key in enumerate(("padded", "text", "float text", "DOUBLE", "BIGINT")):
        ending = "csv" if day < 3 else "parquet"
        numbers.append(day, day_file(tmp_path / "int", day, key, ending=ending, shop="text"))
    assert max(counters(numbers)) == 2 and len(counters(numbers)) <= PEOPLE + 1
    texts = shop_of(tmp_path / "string", "padded", "csv", ", customer_id: {type: string}")
    texts.append(0, day_file(tmp_path / "string", 0, "padded", ending="csv"))
    with pytest.raises(SourceError, match=r"customer_id: BIGINT .* has text values"):
        texts.append(1, day_file(tmp_path / "string", 1, "BIGINT"))


def test_whatever_rows_come_for_a_public_batch_what_is_seen_is_the_same(tmp_path: Path) -> None:
    """An exact test of equality would be a disclosure; only the curator's `check` makes one."""
    shop = shop_of(tmp_path)
    same = day_file(tmp_path, 0, "BIGINT")
    shop.append(0, same)
    folder = tmp_path / "others"
    folder.mkdir()
    others: list[Path | None] = [
        day_file(folder, 0, "DOUBLE, one missing"), tmp_path / "data" / "customer.parquet", folder / "absent.csv", None,
    ]  # fmt: skip
    (folder / "torn.parquet").write_bytes(same.read_bytes()[:40])
    others.append(folder / "torn.parquet")
    before = files(shop)
    seen = shop.append(0, same)
    for other in others:
        assert shop.append(0, other) == seen
    assert files(shop) == before
    assert shop.check(0, same).batch == 0
    assert shop.check(0, day_file(tmp_path, 0, "padded")).batch == 0  # the same values in another type
    for other in others:
        with pytest.raises(Error) as told:
            shop.check(0, other)
        if other is others[0]:
            assert isinstance(told.value, BatchConflict)
