"""One value, one text: what a source calls a value, a type or an equality reaches no unit."""

from __future__ import annotations

from contextlib import closing
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.api import certificate as certify_release
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.errors import CatalogError, SourceError
from dpsql.interfaces.web.page import certificate_page
from dpsql.interfaces.web.report import report_page
from dpsql.noise import ZeroNoise
from dpsql.release import open_release
from tests.privacy.source_cases import copied, database
from tests.privacy.source_star import cells, opened, star
from tests.releases import published, write_catalog
from tests.thinned import by_default

PEOPLE = "SELECT i AS id, i % 10 AS age FROM range(100) t(i)"


def month(amount: str, rows: int = 1000) -> str:
    return f"SELECT i % 100 AS person_id, {amount} AS amount FROM range({rows}) t(i)"


FILES = {"kind": "parquet", "root": ".", "tables": {"person": "person.parquet", "sales": "sales/*.parquet"}}

VISITS = """
dpsql: 1
name: visits
source: {kind: parquet, root: ., tables: {visit: visit.parquet}}
privacy: {lineage: visits, cap: 9, unit: row, epsilon: 1}
tables: {visit: {role: fact, columns: {
  at: {type: timestamp, grain: hour, lower: 1969-12-30, upper: 1970-01-06, nullable: true}}}}
views: {hours: {of: visit, axes: [{axis: visit.at, cuts: {width: day}}], measures: [count]}}
"""


# several files of one table


WHOLE = ["CAST(2 AS INTEGER)", "CAST(2 AS BIGINT)", "CAST(2 AS DECIMAL(9,0))", "2::HUGEINT"]
FRACTIONS = ["2.5::DOUBLE", "2.5::FLOAT", "CAST(2.5 AS DECIMAL(9,2))", "'2.5'"]


@pytest.mark.parametrize(("whole", "fraction"), by_default(product(WHOLE, FRACTIONS), 5))
def test_fractions_count_after_a_file_of_whole_numbers(tmp_path: Path, whole: str, fraction: str) -> None:
    """The first file's type rounded February: 2,100 for 2,500."""
    copied(tmp_path, person=PEOPLE, sales__1january=month(whole), sales__2february=month(fraction))
    assert cells(star(tmp_path, FILES)).totals["amount"] == 2000 + 2500
    copied(tmp_path, sales__1january=month(fraction), sales__2february=month(whole))
    assert cells(star(tmp_path, FILES)).totals["amount"] == 2000 + 2500


@pytest.mark.parametrize("one", ["1.5::DOUBLE", "'1.5'", "'n/a'", "NULL::INTEGER", "'nan'::DOUBLE"])
def test_one_row_of_the_first_file_moves_nobody_elses(tmp_path: Path, one: str) -> None:
    """A fraction or a text in January changed February's amounts: L1 401 where a row may move 45 units."""
    january = f"SELECT 0 AS person_id, {one} AS amount"
    rest = month("CAST(i % 4 AS BIGINT)", 400)
    copied(tmp_path / "a", person=PEOPLE, sales__1=january, sales__2=rest, sales__3=month("0.5::DOUBLE", 10))
    copied(tmp_path / "b", person=PEOPLE, sales__1=f"{january} LIMIT 0", sales__2=rest,
            sales__3=month("0.5::DOUBLE", 10))  # fmt: skip
    here, there = (cells(star(tmp_path / name, FILES)) for name in "ab")
    assert here.distance(there) <= 45
    assert here.rows == there.rows + 1


def test_a_text_among_numbers_stops_no_publish(tmp_path: Path) -> None:
    copied(tmp_path, person=PEOPLE, sales__1=month("CAST(2 AS BIGINT)"))
    copied(tmp_path, sales__2=month("CASE WHEN i = 7 THEN 'n/a' ELSE '3' END", 100))
    got = cells(star(tmp_path, FILES))
    assert got.rows == 1100
    middle = 4.5  # the row without an amount adds nothing to the centred sum
    assert got.totals["amount"] == 2000 + 99 * 3 + middle


def test_a_column_that_a_file_lacks_is_refused_unless_null_is_a_value(tmp_path: Path) -> None:
    copied(tmp_path, person=PEOPLE, sales__1=month("2"), sales__2="SELECT 5 AS person_id")
    with pytest.raises(SourceError, match=r"tables.sales.amount: some of its files have no such column"):
        cells(star(tmp_path, FILES))
    amount = {"type": "int", "lower": 0, "upper": 9, "measure": True, "nullable": True}
    assert cells(star(tmp_path, FILES, columns={"amount": amount})).rows == 1001
    copied(tmp_path, sales__2="SELECT 5 AS amount")
    with pytest.raises(SourceError, match=r"tables.sales.person_id: some of its files have no such column"):
        cells(star(tmp_path, FILES, columns={"amount": amount}))


def test_types_without_common_values_are_refused_from_the_schemas(tmp_path: Path) -> None:
    copied(tmp_path, person=PEOPLE, sales__1=month("2"), sales__2=month("DATE '2025-01-01'", 0))
    with pytest.raises(SourceError, match="no DATE is a value of the declared type decimal"):
        cells(star(tmp_path, FILES))
    copied(tmp_path, sales__2="SELECT 'p7' AS person_id, 2 AS amount LIMIT 0")
    with pytest.raises(SourceError, match=r"tables.sales.person_id: BIGINT, VARCHAR in files of one table"):
        cells(star(tmp_path, FILES))


def test_keys_of_several_files_meet_by_value(tmp_path: Path) -> None:
    copied(tmp_path, person=PEOPLE)
    whole = cells_of_people(tmp_path, "person_id", "person_id")
    for kind in ("INTEGER", "DOUBLE", "DECIMAL(9,2)", "UBIGINT", "HUGEINT"):
        assert cells_of_people(tmp_path, "person_id", f"CAST(person_id AS {kind})") == whole, kind
        assert cells_of_people(tmp_path, f"CAST(person_id AS {kind})", "person_id") == whole, kind


def cells_of_people(folder: Path, first: str, second: str) -> list[list[int]]:
    """Cells of two files of everybody's sales, ten rows of each person in each, three of which count."""
    for number, key in enumerate((first, second)):
        copied(folder, **{f"sales__{number}": f"SELECT * REPLACE ({key} AS person_id) FROM ({month('2')})"})
    return [each.tolist() for each in cells(star(folder, FILES, unit="person.id", max_ids=4)).arrays]


def test_whole_numbers_beyond_53_bits_keep_their_digits(tmp_path: Path) -> None:
    big = 2**53 + 1
    people = f"SELECT {big} + i AS id, 3 AS age FROM range(4) t(i)"
    copied(tmp_path, person=people, sales__1=f"SELECT {big} + i AS person_id, 1 AS amount FROM range(4) t(i)")
    copied(tmp_path, sales__2="SELECT 5.0::DOUBLE AS person_id, 2.5::DOUBLE AS amount")
    with opened(star(tmp_path, FILES, unit="person.id")) as engine:
        rows = engine.as_duckdb("test").connection.execute(
            "SELECT count(DISTINCT person_id), count(*) FROM raw.sales JOIN raw.person ON person_id = id"
        )
        assert rows.fetchall() == [(4, 4)]


def test_a_text_that_is_no_utf8_stops_no_publish(tmp_path: Path) -> None:
    """The engine's reader refuses the file for one such row."""
    copied(tmp_path, person=PEOPLE)
    texts = pa.array([b"r0", b"\xff\xfe", b"r1"])
    region = pa.StringArray.from_buffers(3, *texts.buffers()[1:])
    (tmp_path / "sales").mkdir()
    pq.write_table(pa.table({"person_id": [1, 2, 3], "amount": [2, 2, 2], "region": region}),
                tmp_path / "sales" / "1.parquet")  # fmt: skip
    counted = cells(star(tmp_path, FILES, columns=REGION)).arrays[0].sum(axis=0).tolist()
    assert counted == [1, 1, 0, 0, 1]


# folders that name a column


def regions(folder: Path) -> dict[str, object]:
    for n in range(3):
        copied(folder, **{f"sales/region=r{n}/a": month("2", 100)})
    copied(folder, person=PEOPLE)
    return {"kind": "parquet", "root": ".", "tables": {"person": "person.parquet", "sales": "sales"}}


REGION = {"region": {"type": "string", "categories": ["r0", "r1", "r2"], "nullable": True}}


def test_one_file_beside_the_folders_moves_its_own_rows_only(tmp_path: Path) -> None:
    """It switched the column off for all: 200 of 300 rows swapped."""
    source = regions(tmp_path) | {"hive": {"sales": ["region"]}}
    before = cells(star(tmp_path, source, columns=REGION))
    assert before.rows == 300
    copied(tmp_path, sales__loose=month("2", 1))
    after = cells(star(tmp_path, source, columns=REGION))
    assert after.distance(before) == 1


def test_folders_name_a_column_only_if_the_catalog_says_so(tmp_path: Path) -> None:
    source = regions(tmp_path)
    with pytest.raises(SourceError, match="the source has no column `region`"):
        cells(star(tmp_path, source, columns=REGION))
    with pytest.raises(CatalogError, match="`hive` names `nothing`"):
        star(tmp_path, source | {"hive": {"nothing": ["region"]}}, columns=REGION)


def test_a_column_in_name_and_in_file_is_refused(tmp_path: Path) -> None:
    source = regions(tmp_path) | {"hive": {"sales": ["region"]}}
    copied(tmp_path, **{"sales/region=r1/b": f"SELECT *, 'r2' AS region FROM ({month('2', 1)})"})
    with pytest.raises(SourceError, match=r"source.hive.sales: `region` is in the files and in the names"):
        cells(star(tmp_path, source, columns=REGION))


def test_a_folders_text_is_read_as_the_declared_type(tmp_path: Path) -> None:
    source = regions(tmp_path) | {"hive": {"sales": ["year"]}}
    for year in ("2024", "02025", "__HIVE_DEFAULT_PARTITION__", "x%2Fy"):
        copied(tmp_path, **{f"sales/year={year}/a": month("2", 10)})
    year = {"year": {"type": "int", "lower": 2024, "upper": 2026, "nullable": True}}
    counted = cells(star(tmp_path, source, columns=year)).arrays[0].sum(axis=0).tolist()
    assert counted == [10, 10, 0, 310, 10]  # 2024, 2025, 2026, NULL with the three regions, no number


# collations of a DuckDB file

COLLATIONS = ("NOCASE", "NOACCENT", "NFC", "NOCASE.NOACCENT", "de", "tr", "icu_noaccent")
SPELLINGS = ["".join(c.upper() if n >> i & 1 else c for i, c in enumerate("annabel")) for n in range(64)]


def spelt(collation: str, sales: str, person: str = "SELECT 'annabel' AS id, 3 AS age") -> tuple[str, ...]:
    key = f"VARCHAR COLLATE {collation}"
    return (
        f"CREATE TABLE person (id {key}, age INTEGER)",
        f"CREATE TABLE sales (person_id {key}, amount INTEGER)",
        f"INSERT INTO person {person}",
        f"INSERT INTO sales {sales}",
    )


def test_joins_units_and_rows_are_of_one_equality(tmp_path: Path) -> None:
    """A person's row joined the sales of 64 spellings, each a unit of its own: her going moved all of them."""
    every = f"SELECT unnest({SPELLINGS}) AS person_id, 2 AS amount"
    gone = f"SELECT * FROM ({every}) WHERE person_id <> 'annabel'"
    source = database(tmp_path / "a", *spelt("NOCASE", every))
    with_her = cells(star(tmp_path / "a", source, unit="person.id"))
    source = database(tmp_path / "b", *spelt("NOCASE", gone, "SELECT 'other', 3"))
    without = cells(star(tmp_path / "b", source, unit="person.id"))
    assert with_her.arrays[0].sum() == without.arrays[0].sum() + 1
    assert abs(with_her.arrays[0] - without.arrays[0]).sum() == 1


def test_a_public_key_in_many_spellings_counts_a_sale_once(tmp_path: Path) -> None:
    """One sale counted 64 times under `unit: row`."""
    source = database(
        tmp_path,
        "CREATE TABLE person (id INTEGER, age INTEGER)",
        "CREATE TABLE shop (name VARCHAR COLLATE NOCASE, city VARCHAR COLLATE NOCASE)",
        "CREATE TABLE sales (person_id INTEGER, name VARCHAR COLLATE NOCASE, amount INTEGER)",
        f"INSERT INTO shop SELECT unnest({SPELLINGS}), 'x'",
        "INSERT INTO sales VALUES (1, 'annabel', 2)",
    )
    catalog_text = star(tmp_path, source).file
    text = catalog_text.read_text().replace("person_id: person", "person_id: person\n      name: shop")
    text = text.replace("    person: person\n", "    person: person\n    shop: shop\n", 1)
    text = text.replace("  sales:\n    role: fact", "  shop:\n    role: dimension\n    key: name\n    private: false\n"
                        "    columns: {city: {type: string}}\n  sales:\n    role: fact")  # fmt: skip
    text = text.replace("    - person.age\n", "    - person.age\n    - {axis: shop, by: [name]}\n")
    catalog_text.write_text(text)
    assert cells(load_catalog(catalog_text)).rows == 1


@pytest.mark.parametrize("collation", by_default(COLLATIONS, 3))
def test_no_collation_leaves_a_database(tmp_path: Path, collation: str) -> None:
    """Of tables, views, macros and generated columns; the canary fails where DuckDB would fold `by_bytes` away."""
    texts = ["a", "A", "á", "a\u0301", "\u00e1", "ß", "ss", "ı", "i", "İ", "", " ", "a "]
    person = f"SELECT unnest({texts}) AS id, 3 AS age"
    source = database(
        tmp_path,
        *spelt(collation, f"SELECT unnest({texts}), 2", person),
        "ALTER TABLE sales RENAME TO stored",
        "CREATE TABLE computed (person_id VARCHAR, amount INTEGER, "
        f'other VARCHAR GENERATED ALWAYS AS (person_id COLLATE "{collation}") VIRTUAL)',
        "INSERT INTO computed (person_id, amount) SELECT person_id, amount FROM stored",
        f'CREATE MACRO folded(x) AS CAST(x AS VARCHAR) COLLATE "{collation}"',
        "CREATE VIEW seen AS SELECT folded(person_id) AS person_id, amount FROM stored",
    )
    selects = ("stored", "seen", "SELECT other AS person_id, amount FROM computed",
               "SELECT folded(person_id) AS person_id, amount FROM stored")  # fmt: skip
    for place in selects:
        tables = {"person": "person", "sales": place}
        with opened(star(tmp_path, source | {"tables": tables, "trusted": True}, unit="person.id")) as engine:
            run = engine.as_duckdb("test").connection.execute
            distinct = len(set(texts))
            assert run("SELECT count(DISTINCT person_id) FROM raw.sales").fetchall() == [(distinct,)], place
            assert len(run("SELECT person_id FROM raw.sales GROUP BY person_id").fetchall()) == distinct
            pairs = run("SELECT count(*) FROM raw.sales JOIN raw.person ON person_id = id").fetchall()
            assert pairs == [(len(texts) + 2,)], place  # á stands twice among them
            assert run("SELECT count(*) FROM raw.sales WHERE person_id = 'A'").fetchall() == [(1,)]


def test_a_macro_of_the_database_stands_in_for_no_function(tmp_path: Path) -> None:
    """A trusted SELECT may use the database's macros; the counting statement uses the engine's functions."""
    source = database(
        tmp_path,
        "CREATE TABLE person AS SELECT 1 AS id, 3 AS age",
        "CREATE TABLE stored AS SELECT 1 AS person_id, 2.26 AS cost",
        "CREATE MACRO floor(x) AS 0",
        "CREATE MACRO doubled(x) AS 2 * x",
    )
    tables = {"person": "person", "sales": "SELECT person_id, doubled(cost) AS amount FROM stored"}
    counted = cells(star(tmp_path, source | {"tables": tables, "trusted": True}))
    assert (counted.rows, counted.totals["amount"]) == (1, 4.5)


# types that the table does not list


@pytest.mark.parametrize(
    "stored", ["'{}'::JSON", "[1, 2]", "{'a': 1}", "TIME '10:00'", "INTERVAL 1 DAY", "'1'::BIT"]
)
def test_a_type_without_a_rule_is_refused_where_it_is_named(tmp_path: Path, stored: str) -> None:
    for column in ("amount", "person_id"):
        values_of = {"person_id": "1", "amount": "2"} | {column: stored}
        columns = ", ".join(f"{value} AS {name}" for name, value in values_of.items())
        source = database(
            tmp_path,
            "CREATE TABLE person AS SELECT 1 AS id, 3 AS age",
            f"CREATE TABLE sales AS SELECT {columns}",
        )
        with pytest.raises(SourceError, match=rf"tables.sales.{column}: a column stored as .* has no rule"):
            cells(star(tmp_path, source))
    source = database(
        tmp_path, "CREATE TABLE person AS SELECT 1 AS id, 3 AS age",
        f"CREATE TABLE sales AS SELECT 1 AS person_id, 2 AS amount, {stored} AS unused",
    )  # fmt: skip
    with opened(star(tmp_path, source)) as engine:
        assert "unused" not in engine.columns["sales"]


def test_the_certificate_names_types_and_equalities(tmp_path: Path) -> None:
    """From the catalog alone: neither other rows nor other types of the same files change a word."""
    words = []
    for rows in (100, 7):
        folder = tmp_path / str(rows)
        copied(folder, person=PEOPLE, sales__1=month("CAST(2 AS BIGINT)", rows), sales__2=month("2::INTEGER", rows),
                sales__3=month("2.25::DOUBLE" if rows == 100 else "2::BIGINT", rows))  # fmt: skip
        catalog = star(folder, FILES, unit="person.id")
        publish_release(catalog, folder / "r.dpsql", noise=ZeroNoise(), key=bytes(32))
        with closing(open_release(folder / "r.dpsql", insecure=True)) as release:
            words.append(release.meta.privacy.values)
            page = report_page(release)
        certificate = certify_release(folder / "r.dpsql")
        assert dict(certificate.protected.values) == words[-1]
        assert "amount kept to 1 decimal place, half up" in certificate_page(certificate)
    assert words[0] == words[1] == {
        "person": "id compared as canonical text; age kept to whole numbers, half up",
        "sales": "person_id compared as canonical text; amount kept to 1 decimal place, half up",
    }  # fmt: skip
    assert "person_id compared as canonical text" in page


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_nanoseconds_with_a_zone_count_as_their_microsecond(tmp_path: Path, zone: str) -> None:
    """As pandas writes moments; the last nanosecond of a day stays in its day, before 1970 too."""
    day = 86_400 * 10**9
    moments = [-1, -day - 1, 0, 1, day - 1, day, 5 * day + 999, 5 * day - 1, None]
    whole = [None if moment is None else moment // 1000 for moment in moments]
    answers = []
    for unit, stamps in (("ns", moments), ("us", whole)):
        folder = tmp_path / unit
        folder.mkdir()
        rows = pa.table({"at": pa.array(stamps, pa.timestamp(unit, zone))})
        pq.write_table(rows, folder / "visit.parquet")
        answerer = published(write_catalog(folder, VISITS), ZeroNoise())
        answers.append(
            answerer.query("""SELECT DATE_TRUNC('day', "at") AS day, COUNT(*) FROM visit GROUP BY 1""").rows
        )
    assert answers[0] == answers[1]
    assert [count for _, count in answers[0]] == [1, 1, 3, 1, 0, 0, 1, 1, 1]
