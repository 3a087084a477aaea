"""`dpsql init`: what an expert would draft, from every kind of source; nothing is settled in silence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from benchmarks.figures import Figures
from dpsql import api
from dpsql.catalog import Catalog, load_catalog, parse_catalog
from dpsql.central.central import publish_release
from dpsql.curator.confirm import confirm_tables, groups_of, open_marks
from dpsql.curator.draft import CatalogDraft, CuratorChoices, DraftWorkload, draft_from_source, leave_open
from dpsql.errors import CatalogError, InterfaceError, SourceError, UnknownName
from dpsql.federation.session import open_session
from dpsql.noise import ZeroNoise
from tests.command import dpsql_command
from tests.releases import published, write_tables
from tests.thinned import by_default

pytestmark = pytest.mark.long

SHOP = """
CREATE TABLE customers AS SELECT i AS c_custkey, 'n' || i AS c_name, 18 + i % 70 AS c_age,
    ['$10K - $30K', '$110K - $130K', '$30K - $50K', '$150K +'][1 + i % 4] AS c_income,
    ['Bronze', 'Golden', 'Normal', 'Silver'][1 + i % 4] AS c_card FROM range(200) AS r(i);
CREATE TABLE stores AS SELECT i AS store_id, 'Town ' || i AS city, i AS code FROM range(12) AS r(i);
CREATE TABLE orders AS SELECT i AS o_orderkey, i % 200 AS o_custkey, DATE '2024-03-05' + CAST(i % 300 AS INTEGER) AS
    o_date,    i % 12 AS o_storeid
    FROM range(900) AS r(i);
CREATE TABLE lines AS SELECT i % 900 AS l_orderkey, i AS l_linenumber, round(i % 9973 / 100, 2) AS l_amount,
    CASE WHEN i = 7 THEN 9000000 ELSE 1 + i % 2000 END AS l_grams, 1 + i % 3 AS l_status,
    CASE WHEN i % 10 > 0 THEN 'word ' || i END AS l_note FROM range(9000) AS r(i);
CREATE TABLE friends AS SELECT i AS f_custkey, i % 12 AS f_storeid FROM range(150) AS r(i);
"""
TABLES = ("customers", "stores", "orders", "lines", "friends")


def make_shop(folder: Path, kind: str = "duckdb") -> Path:
    """The shop as a database, or as a folder of files."""
    made = folder / kind if kind != "duckdb" else folder / "shop.duckdb"
    with duckdb.connect(str(made) if kind == "duckdb" else ":memory:") as connection:
        connection.execute(SHOP)
        if kind != "duckdb":
            made.mkdir()
            for table in TABLES:
                connection.execute(f"COPY {table} TO '{made}/{table}.{kind}' (FORMAT {kind})")
    return made


def draft(
    source: Path,
    choices: CuratorChoices | None = None,
    questions: Sequence[str] = (),
    output: str = "drafted.yaml",
) -> CatalogDraft:
    """A draft beside its source; without choices the curator's are left open."""
    asked = [DraftWorkload(list(questions))] if questions else []
    decide = leave_open if choices is None else lambda _: choices
    return draft_from_source(source, source.parent / output, None, decide, *asked)


def of_tables(folder: Path, tables: Mapping[str, str], *given: Any, **more: Any) -> CatalogDraft:
    """A draft of a folder of tables: queries, or texts of files whose names have an ending."""
    data = write_tables(folder / "data", {name: rows for name, rows in tables.items() if "." not in name})
    for name in tables.keys() - {table for table in tables if "." not in table}:
        (data / name).write_text(tables[name], encoding="utf-8")
    return draft(data, *given, **more)


def csv(header: str, rows: Iterable[str]) -> str:
    """The text of a file: its first line, and the others."""
    return "\n".join([header, *rows, ""])


def keys(catalog: Catalog, table: str) -> dict[str, str]:
    """Foreign keys of a table, each with the table that it names."""
    return {column: key.references for column, key in catalog.tables[table].foreign_keys.items()}


def confirmed(text: str, *, rounder: bool = False) -> str:
    """A draft after every mark was confirmed."""
    return confirm_tables(text, dict.fromkeys(groups_of(open_marks(parse_catalog(text))), rounder))[0]


@pytest.mark.parametrize("kind", ["duckdb", "parquet", "csv"])
def test_a_draft_is_what_an_expert_would_write(kind: str, tmp_path: Path) -> None:
    written = draft(make_shop(tmp_path, kind)).text
    shop = parse_catalog(written)
    assert {table: keys(shop, table) for table in shop.tables} == {
        "customers": {}, "stores": {}, "lines": {"l_orderkey": "orders"},
        "orders": {"o_custkey": "customers", "o_storeid": "stores"},
        "friends": {"f_custkey": "customers", "f_storeid": "stores"},
    }  # fmt: skip
    assert [name for name, table in shop.tables.items() if table.role.counted] == ["friends", "lines"]
    assert not any(table.is_public for table in shop.tables.values())
    assert shop.privacy.unit.name == "customers.c_custkey"
    customers, lines = shop.tables["customers"].columns, shop.tables["lines"].columns
    assert customers["c_income"].categories == ("$10K - $30K", "$30K - $50K", "$110K - $130K", "$150K +")
    assert customers["c_card"].categories == ("Normal", "Bronze", "Silver", "Golden")
    assert "c_name" not in customers and not {"l_note", "l_linenumber"} & set(lines)
    assert (lines["l_amount"].type, lines["l_amount"].scale, lines["l_amount"].upper) == ("decimal", 2, "200")
    assert [name for name, column in lines.items() if column.measure] == ["l_amount", "l_grams"]
    # the next but one of 1, 2, 5 above 99.9%; one odd row does not set a bound
    assert float(lines["l_grams"].upper or 0) == 5000
    assert (shop.tables["orders"].columns["o_date"].lower, shop.tables["orders"].columns["o_date"].type) == (
        "2024-03-01", "date",
    )  # fmt: skip
    private = {f"tables.{t}.columns.{c}" for t in shop.tables for c in shop.tables[t].written}
    visits = "tables.customers.summaries.visits"
    assert set(shop.unconfirmed()) == {"privacy", visits, *private}
    assert shop.tables["customers"].summaries["visits"].of == "lines"  # `friends` holds nothing but keys
    assert {view.of for view in shop.views.values()} == {"customers", "friends", "lines", "orders"}
    assert "  friends:  # a bridge: its rows link others\n    role: fact\n" in written


def test_publish_refuses_a_draft_until_every_mark_is_gone(tmp_path: Path) -> None:
    draft(make_shop(tmp_path))
    with pytest.raises(CatalogError, match=r"privacy: .*not confirmed"):
        api.publish(tmp_path / "drafted.yaml", tmp_path / "shop.dpsql")


PEOPLE_AND_LISTS = {
    "home": ("home_id, 'A' || i AS colour", True),
    "dwelling": ("dwelling_id, 'A' || i AS street", False),
    "reader": ("reader_id, 'n' || i AS first_name, 1950 + i % 50 AS birth_year", False),
    "card": ("card_id, '5' || i AS mobile", False),
    "desk": ("desk_id, 'm' || i AS customer_name", False),
    "profile": ("profile_id, 'm' || i AS nickname", False),
    "place": ("place_id, 48 + i / 90 AS lat, 9 + i / 90 AS lon", False),
    "branch": ("branch_id, 'b' || i AS email", False),
    "guardian": ("guardian_id, 'g' || i AS motto", False),
    "town": ("town_id, 'T' || i AS town", True),
}
"""Table -> its columns, and whether people alone have its key; the others are named by what people do."""


@pytest.mark.parametrize("names", by_default([[*PEOPLE_AND_LISTS][::4], [*PEOPLE_AND_LISTS]], 1))
def test_homes_phones_and_names_are_never_asked_about(names: list[str], tmp_path: Path) -> None:
    candidates = 0
    for name, (columns, alone) in ((name, PEOPLE_AND_LISTS[name]) for name in names):
        foreign = f", i % 70 AS {name}_id"
        made = of_tables(tmp_path / name, {
            name: f"SELECT i AS {columns} FROM range(70) AS r(i)",
            "customer": f"SELECT i AS customer_id, i % 9 AS n{foreign * alone} FROM range(90) AS r(i)",
            "log": f"SELECT i % 90 AS customer_id{foreign * (not alone)}, i % 5 AS size FROM range(900) AS r(i)",
        })  # fmt: skip
        assert made.foreign_keys == 2 and "--public" not in made.text
        candidates += len(made.candidates) + len(made.public)
        named = CuratorChoices(public=frozenset({name}))
        made = draft(tmp_path / name / "data", named, output=f"{name}_public.yaml")
        assert made.public == (name,) and f"{name} is public since you named it, though" in made.notes[0]
    if len(names) == 10:
        Figures().at_most("draft-candidates, of ten folders with homes, phones or names", candidates, 0)
    assert not candidates


def rentals(folder: Path, size: int) -> Path:
    """A star as Sakila's; every table has another number of rows for another size."""
    rows = {
        "country": "i AS country_id, 'C' || i AS country",
        "city": f"i AS city_id, 'T' || i AS city, i % {size} AS country_id",
        "address": f"i AS address_id, 'A' || i AS address, i % {2 * size} AS city_id, '5' || i AS phone",
        "customer": f"i AS customer_id, 'f' || i AS first_name, i AS address_id, i % {size} AS store_id",
        "staff": f"i AS staff_id, 'f' || i AS first_name, i AS address_id, i % {size} AS store_id",
        "store": "i AS store_id, 'S' || i AS sign",
        "film": "i AS film_id, 'F' || i AS title, 80 + i % 20 AS length",
        "inventory": f"i AS inventory_id, i % {7 * size} AS film_id, i % {size} AS store_id",
        "rental": f"i AS rental_id, i % {8 * size} AS inventory_id, i % {4 * size} AS customer_id",
        "payment": f"i AS payment_id, i % {9 * size} AS rental_id, i % 500 / 100 AS amount",
    }
    sizes = dict(zip(rows, (1, 2, 9, 4, 5, 1, 7, 8, 9, 10), strict=True))
    written = {t: f"SELECT {text} FROM range({sizes[t] * size}) AS r(i)" for t, text in rows.items()}
    return write_tables(folder, written)


def test_lists_of_things_are_asked_about_and_stay_private_until_they_are_named(tmp_path: Path) -> None:
    small, large = (draft(rentals(tmp_path / f"of{n}", n), output=f"{n}.yaml") for n in (20, 33))
    assert small.candidates == large.candidates == ("film", "inventory", "store")
    assert small.notes == large.notes and "--public film --public inventory --public store" in small.notes[1]
    assert all(f"\n# {line}\n" in small.text for line in small.notes)
    every = parse_catalog(confirmed(small.text, rounder=True))
    assert not every.unconfirmed() and not any(table.is_public for table in every.tables.values())
    named = draft(tmp_path / "of20", CuratorChoices(public=frozenset({"film", "city"})), output="named.yaml")
    assert parse_catalog(named.text).public_tables == {"film", "city"}
    assert not {"tables.film", "tables.city"} & set(parse_catalog(named.text).unconfirmed())


def test_what_the_curator_says_is_not_marked(tmp_path: Path) -> None:
    source = make_shop(tmp_path)
    shop = parse_catalog(draft(source, CuratorChoices("customers.c_custkey", frozenset(), "0.5", "2")).text)
    assert (str(shop.privacy.epsilon), str(shop.privacy.cap)) == ("1/2", "2")
    assert not {"privacy", "tables.stores"} & set(shop.unconfirmed())
    assert not shop.tables["stores"].is_public
    named = (CuratorChoices(public=frozenset({table})) for table in ("shops", "customers"))
    for wrong in (CuratorChoices(unit="customers.c_nothing"), *named):
        with pytest.raises(InterfaceError, match=r"one of|there are|customers has the people whose privacy"):
            draft(source, wrong, output="wrong.yaml")


def test_what_the_rows_alone_decided_is_marked(tmp_path: Path) -> None:
    """Free text, ids and empty columns by their values, scales of floats, types of CSV columns."""
    rows = "SELECT i % 7 AS age, 'w ' || i AS essay, i % 2 = 0 AS smoker, i / 8 AS litres"
    rows += ", CAST(NULL AS VARCHAR) AS nothing FROM range(200) AS r(i)"
    named = "SELECT i % 7 AS age, 'n' || i % 7 AS note, i % 2 = 0 AS smoker FROM range(200) AS r(i)"
    write_tables(tmp_path / "raw" / "data", {"t": rows}, "csv")
    made = {
        "raw": draft(tmp_path / "raw" / "data"), "typed": of_tables(tmp_path / "typed", {"t": rows}),
        "named": of_tables(tmp_path / "named", {"t": named}),
    }  # fmt: skip
    marked = {name: set(parse_catalog(each.text).unconfirmed()) - {"privacy"} for name, each in made.items()}
    ordered = {"tables.t.columns.age", "tables.t.columns.litres"}
    assert marked["typed"] == {"tables.t", *ordered}
    assert marked["raw"] == {"tables.t", *ordered, "tables.t.columns.smoker"}
    assert marked["named"] == {"tables.t.columns.age"}, "a note is one by its name, and a boolean by its type"
    text = made["typed"].text
    assert (
        "Which column is free\n# text, empty or an id, and how many digits of a decimal are kept, are facts"
        in text
    )
    assert "# left out: essay (free text); nothing (empty); check it against every possible row" in text


def test_a_first_line_that_may_be_a_row_is_marked(tmp_path: Path) -> None:
    made = of_tables(tmp_path, {"t.csv": "34,north\n" + "35,south\n36,north\n" * 9})
    assert "tables.t" in parse_catalog(made.text).unconfirmed()
    assert "is that a row, not a header?" in made.text


def test_a_row_is_never_the_unit_in_silence(tmp_path: Path) -> None:
    made = of_tables(tmp_path, {"rides": "SELECT i AS x FROM range(50) AS r(i)"})
    assert "No table has one row per person" in made.question
    assert f"# {made.question}" in made.text
    rides = parse_catalog(made.text)
    assert rides.privacy.unit.table is None and "privacy" in rides.unconfirmed()


@pytest.mark.parametrize(("unit", "said"), [("rider.rider_id", "together"), ("row", "each row by itself")])
def test_the_comment_beside_the_unit_says_what_it_is(unit: str, said: str, tmp_path: Path) -> None:
    rider = {"rider": "SELECT i AS rider_id FROM range(50) AS r(i)"}
    (line,) = re.findall(
        r"^  unit:.*", of_tables(tmp_path, rider, CuratorChoices(unit=unit)).text, re.MULTILINE
    )
    assert said in line.partition("#")[2]


@pytest.mark.parametrize(("strays", "found"), [(0, True), (4, True), (20, True), (60, False)])
def test_a_key_with_a_few_unlisted_values_waits_for_confirmation(
    strays: int, found: bool, tmp_path: Path
) -> None:
    made = of_tables(tmp_path, {
        "products": "SELECT i AS product_id, 'kind ' || i % 3 AS kind FROM range(8) AS r(i)",
        "sales": f"SELECT CASE WHEN i < {strays} THEN 100 + i ELSE i % 8 END AS product_id FROM range(100) AS r(i)",
    })  # fmt: skip
    sales_table = parse_catalog(made.text).tables["sales"]
    assert list(sales_table.foreign_keys) == ["product_id"] * found
    assert sales_table.confirm == (f"product_id: {strays}% of its rows name no row of products" in made.text)
    assert sales_table.confirm == bool(made.unmatched) == (strays in (4, 20))


def test_rows_first_and_last_time_of_every_fact_are_drafted(tmp_path: Path) -> None:
    """Of names that the people's table has another is taken; questions say what they need, and nothing is drafted."""
    made = of_tables(tmp_path, {
        "customer": "SELECT i AS customer_id, i % 3 AS sale_visits FROM range(90) AS r(i)",
        "sale": "SELECT i % 90 AS customer_id, DATE '2024-01-05' + CAST(i % 700 AS INT) AS \"sold on\", i % 7 AS n "
        "FROM range(9000) AS r(i)",
        "call": "SELECT i % 90 AS customer_id, TIMESTAMP '2024-01-05 10:00:00' + i * INTERVAL 1 HOUR AS at "
        "FROM range(700) AS r(i)",
    }, CuratorChoices(unit="customer.customer_id"))  # fmt: skip
    summaries = parse_catalog(made.text).tables["customer"].summaries
    assert {name: (spec.of, spec.is_, spec.type, spec.upper) for name, spec in summaries.items()
            if "visits" in name} == {
        "call_visits": ("call", "count(*)", "int", "1000"), "sale_visits_2": ("sale", "count(*)", "int", "10000"),
    }  # fmt: skip
    times = {name: (spec.of, spec.is_, spec.type) for name, spec in summaries.items() if "time" in name}
    assert times == {
        "call_first_time": ("call", "min(at)", "timestamp"), "call_last_time": ("call", "max(at)", "timestamp"),
        "sale_first_time": ("sale", 'min("sold on")', "date"), "sale_last_time": ("sale", 'max("sold on")', "date"),
    }  # fmt: skip
    assert len(summaries) == 6 and all(spec.confirm for spec in summaries.values())
    assert [str(summaries[f"{fact}_last_time"].cuts.width) for fact in ("call", "sale")] == ["day", "month"]  # type: ignore[union-attr]
    text, _ = confirm_tables(made.text, {"customer": True})
    assert not any(spec.confirm for spec in parse_catalog(text).tables["customer"].summaries.values())
    asked = draft(tmp_path / "data", None, ["SELECT COUNT(*) FROM sale WHERE n = 3"], "asked.yaml")
    assert not parse_catalog(asked.text).tables["customer"].summaries


def test_names_of_people_are_no_categories_and_visits_are_counted(tmp_path: Path) -> None:
    clinic = parse_catalog(of_tables(tmp_path, {
        "patients": "SELECT i AS patient_id, 'name ' || i % 9 AS firstName, i % 2 AS smoker FROM range(90) AS r(i)",
        "wards": "SELECT 'w' || i AS ward, 'Ward ' || i AS title FROM range(5) AS r(i)",
        "visits": "SELECT i AS visit_id, i % 90 AS patient_id, 'w' || i % 5 AS ward, i % 77 AS cost "
        "FROM range(400) AS r(i)",
        "drugs": "SELECT i % 400 AS visit_id, i % 7 AS kind FROM range(900) AS r(i)",
    }).text)  # fmt: skip
    visits = clinic.tables["visits"]
    assert "firstName" not in clinic.tables["patients"].columns
    assert keys(clinic, "visits") == {"patient_id": "patients", "ward": "wards"}
    assert (
        not clinic.tables["wards"].is_public and visits.columns["cost"].measure and visits.max_ids == "auto"
    )
    assert {view.of for view in clinic.views.values()} == {"patients", "visits", "drugs"}


RIDES = "zone,day,when,paid,price\n" + (
    "02134,2024-02-30,2024-01-01 08:00,true,1.5\n02135,2024-03-01,2024-01-02T09:00:01,false,-2\n" * 50
)
TRIALS = csv("dose,trace,lot", [f"{i / 7},{2e-5 * (i % 3)},{i % 4}E{i % 5}" for i in range(1000)])


@pytest.mark.parametrize(("text", "types"), [
    (RIDES, {"zone": "string", "day": "string", "when": "timestamp", "paid": "bool", "price": "decimal"}),
    (TRIALS, {"dose": "decimal", "trace": "decimal", "lot": "string"}),
], ids=["codes with leading zeros, days that must exist", "numbers with an exponent, and codes"])  # fmt: skip
def test_types_of_texts(text: str, types: dict[str, str], tmp_path: Path) -> None:
    """pandas writes 8.08e-05; a column of such numbers was called free text. Publishing reads them already."""
    columns = parse_catalog(of_tables(tmp_path, {"t.csv": text}).text).tables["t"].columns
    assert {name: column.type for name, column in columns.items()} == types and "e-05" in TRIALS


RARE = """
CREATE TABLE customers AS SELECT i AS customer_id, CASE WHEN i = 0 THEN 'CANARY' WHEN i < 50 THEN 'few' ELSE 'some' END
    AS city FROM range(100) AS r(i);
CREATE TABLE stores AS SELECT i AS store_id, 'S' || i AS manager FROM range(3) AS r(i);
CREATE TABLE orders AS SELECT i AS order_id, i % 100 AS customer_id, i % 2 AS store_id FROM range(400) AS r(i);
CREATE TABLE lines AS SELECT i % 400 AS order_id, round(i / 7, 2) AS price,
    CASE WHEN i % 100 = 7 THEN 'HERS' WHEN i % 2 = 0 THEN 'even' ELSE 'odd' END AS kind FROM range(8000) AS r(i);
"""


def test_no_value_that_fewer_than_50_people_have_is_drafted(tmp_path: Path) -> None:
    """However many rows hold it: people are counted, along keys from the rows or to them."""
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute(RARE)
    made, by_row = (
        draft(tmp_path / "shop.duckdb", CuratorChoices(unit, frozenset(), "1", "4"), output=f"{unit}.yaml")
        for unit in ("customers.customer_id", "row")
    )
    shop, rows = parse_catalog(made.text), parse_catalog(by_row.text)
    assert list(shop.tables["customers"].columns["city"].categories or ()) == ["some"]
    assert list(shop.tables["lines"].columns["kind"].categories or ()) == ["even"], (
        "of 'odd' 49 people are left"
    )
    assert list(shop.tables["stores"].columns["manager"].categories or ()) == ["S0", "S1"]
    assert not any(word in made.text for word in ("CANARY", "few'", "HERS", "odd", "S2"))
    assert made.text.count("values of fewer than 50 people are not listed and count as (other)") == 3
    assert list(rows.tables["lines"].columns["kind"].categories or ()) == ["HERS", "even", "odd"]
    assert not rows.tables["stores"].columns


@pytest.mark.usefixtures("publishes")
def test_repeated_rows_of_a_public_table_are_put_together(tmp_path: Path) -> None:
    made = of_tables(tmp_path, {
        "zones": "SELECT i % 40 AS zone_id, 'Z' || i % 4 AS borough FROM range(43) AS r(i)",
        "rides": "SELECT i % 41 AS from_zone_id, i % 40 AS to_zone_id, i AS meters FROM range(500) AS r(i)",
    }, CuratorChoices(public=frozenset({"zones"})))  # fmt: skip
    shop = parse_catalog(made.text)
    assert shop.source is not None and shop.source.tables["zones"].startswith("SELECT DISTINCT")
    assert list(shop.tables["rides"].foreign_keys) == ["from_zone_id", "to_zone_id"]
    assert len(api.plan(tmp_path / "drafted.yaml").statistics) > 2


def test_the_command_asks_and_writes(tmp_path: Path) -> None:
    source, output = make_shop(tmp_path), tmp_path / "asked.yaml"
    typed = "\n\nstores\n4\n0.5\n\n\n\n\n\n"
    run = dpsql_command("init", source, "-o", output, "--interactive", text=typed)
    assert run.returncode == 0, run.stderr
    shop = load_catalog(output)
    assert (shop.privacy.unit.name, str(shop.privacy.epsilon)) == ("customers.c_custkey", "1/2")
    assert "privacy" not in shop.unconfirmed()
    assert {view.data_dependent for view in shop.views.values()} == {"allow"}
    again = dpsql_command("init", source, "-o", output)
    assert again.returncode == 2 and "exists" in again.stderr


@pytest.mark.usefixtures("publishes")
def test_a_wrong_answer_is_asked_again(tmp_path: Path) -> None:
    of_stores = "SELECT city, COUNT(*) FROM friends JOIN stores ON f_storeid = store_id GROUP BY city;"
    (tmp_path / "q.sql").write_text(
        f"SELECT c_card, COUNT(*) AS n FROM customers GROUP BY c_card;{of_stores}"
    )
    typed = f"nowhere.sql {tmp_path}/q.sql people customers shops stores four 0 4 5 1/2 n".replace(" ", "\n")
    output = tmp_path / "asked.yaml"
    run = dpsql_command("init", make_shop(tmp_path), "-o", output, "--interactive", text=typed + "\n" * 4)
    assert run.returncode == 0, run.stderr
    for said in ("no file nowhere.sql", "write row, or one of", "no table shops", "write a number above 0",
                 "more than 4", "2 of 2 questions are served"):  # fmt: skip
        assert said in run.stdout + run.stderr
    shop = load_catalog(output)
    assert (shop.privacy.unit.name, str(shop.privacy.cap)) == ("customers.c_custkey", "4")
    assert shop.public_tables == {"stores"}
    assert {view.data_dependent for view in shop.views.values()} == {"refuse"}


def test_nothing_readable_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.bin").write_bytes(b"no database")
    for source, said in (("empty", "no Parquet or CSV"), ("x.bin", "not a DuckDB file")):
        with pytest.raises(SourceError, match=said):
            draft(tmp_path / source)


TRIPS = """
CREATE TABLE people AS SELECT i AS ID, 'p' || i AS playerID, 1900 + i % 90 AS birthYear FROM range(300) AS r(i);
CREATE TABLE games AS SELECT 'p' || i // 20 AS playerID, 1950 + i % 70 AS yearID, 'T' || i % 120 AS teamID,
    'NOTE ' || i AS remark, i % 3000 AS ballID, CASE WHEN i % 9 > 0 THEN i % 40 - 20 END AS delay,
    strftime(TIMESTAMP '2013-01-01' + INTERVAL (i) HOUR, '%Y-%m-%dT%H:%M:%SZ') AS starts FROM range(6000) AS r(i);
"""


def make_trips(folder: Path) -> Path:
    made = folder / "trips"
    made.mkdir()
    with duckdb.connect() as connection:
        connection.execute(TRIPS)
        for table in ("people", "games"):
            connection.execute(f"COPY {table} TO '{made}/{table}.csv' (NULLSTR 'NA')")
    return made


def test_years_teams_and_times_with_zones_are_no_ids_and_what_is_left_out_says_how_to_keep_it(
    tmp_path: Path,
) -> None:
    made = draft(make_trips(tmp_path))
    trips = parse_catalog(made.text)
    assert trips.privacy.unit.name == "people.playerID" and not made.question
    games = trips.tables["games"].columns
    assert (games["yearID"].lower, games["yearID"].upper) == ("1950", "2019")
    assert len(games["teamID"].categories or ()) == 120
    assert (games["starts"].type, games["starts"].grain) == ("timestamp", "hour")
    assert (games["delay"].type, games["delay"].nullable) == ("int", True)
    assert "delay" not in str(trips.views)  # no amount by its name: rows are counted
    dropped = {f"{column.table}.{column.column}": column for column in made.dropped}
    assert {place: column.why for place, column in dropped.items()} == {
        "people.ID": "an id", "games.remark": "free text", "games.ballID": "an id",
    }  # fmt: skip
    kept = made.text.replace("      yearID:", f"      {dropped['games.ballID'].line}\n      yearID:")
    assert parse_catalog(kept).tables["games"].columns["ballID"].confirm


def test_a_workload_keeps_what_it_names(tmp_path: Path) -> None:
    asked = ["SELECT ballID, COUNT(*) FROM games GROUP BY ballID", "SELECT AVG(delay) FROM games"]
    made = draft(make_trips(tmp_path), None, asked)
    assert made.design is not None and made.design.served == 2
    assert "ballID" not in [column.column for column in made.dropped]


def test_questions_leave_out_what_none_of_them_reads(tmp_path: Path) -> None:
    asked = ["SELECT c_card, SUM(l_amount) FROM lines JOIN orders ON l_orderkey = o_orderkey "
             "JOIN customers ON o_custkey = c_custkey GROUP BY c_card"]  # fmt: skip
    choices = CuratorChoices("customers.c_custkey", frozenset(), "1", "4")
    made = draft(make_shop(tmp_path, "parquet"), choices, asked)
    assert made.design is not None and made.design.served == 1
    assert {name: sorted(table.columns) for name, table in parse_catalog(made.text).tables.items()} == {
        "customers": ["c_card"], "lines": ["l_amount"], "orders": [],
    }  # fmt: skip
    why = {f"{column.table}.{column.column}": column.why for column in made.dropped}
    assert {place for place, reason in why.items() if reason == "no question uses its table"} == {
        "friends.f_custkey", "friends.f_storeid", "stores.city", "stores.code", "stores.store_id",
    }  # fmt: skip
    assert why["customers.c_age"] == why["orders.o_date"] == "no question uses it"
    (line,) = (column.line for column in made.dropped if column.column == "c_age")
    kept = parse_catalog(made.text.replace("      c_card:", f"      {line}\n      c_card:"))
    assert kept.tables["customers"].columns["c_age"].confirm


def test_the_table_of_drops_has_one_row_for_what_a_table_holds_beside_the_questions(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT COUNT(*) FROM games WHERE yearID > 1990;")
    run = dpsql_command(
        "init", make_trips(tmp_path), "-o", tmp_path / "trips.yaml", "--workload", tmp_path / "q.sql"
    )
    assert run.returncode == 0, run.stderr
    printed = (run.stdout + run.stderr).splitlines()
    rows = [line for line in printed if "left out: no question uses it" in line]
    assert [row.partition(":")[0] for row in rows] == ["games", "people"]
    assert "teamID" in rows[0] and "dpsql init --json" in rows[0]


def test_ids_that_repeat_name_the_rows_of_the_one_table_with_such_a_key(tmp_path: Path) -> None:
    tables = {
        "subjects.csv": csv("id,stage", (f"{i},{i % 3}" for i in range(90))),
        "visits.csv": csv("id,day", (f"{i % 90},{i % 7}" for i in range(400))),
        "logs.csv": csv("id,day", (f"{i},{i % 7}" for i in range(90))),
    }
    three = parse_catalog(of_tables(tmp_path / "three", tables).text)
    assert not any(table.foreign_keys for table in three.tables.values())
    del tables["logs.csv"]  # whose keys are called alike: then nothing says which table is meant
    assert keys(parse_catalog(of_tables(tmp_path / "two", tables).text), "visits") == {"id": "subjects"}


def test_a_key_called_after_its_table_beats_a_code_that_many_tables_have(tmp_path: Path) -> None:
    named = {"employees": "EmployeeID", "suppliers": "SupplierID", "shops": "ShopID"}
    tables = {
        f"{name}.csv": csv(f"{key},PostalCode", (f"{i},{1000 + i}" for i in range(40)))
        for name, key in named.items()
    }
    orders = csv("OrderID,EmployeeID", (f"{i},{i % 40}" for i in range(99)))
    catalog = parse_catalog(of_tables(tmp_path, tables | {"orders.csv": orders}).text)
    assert {name: catalog.tables[name].key for name in named} == named
    assert keys(catalog, "orders") == {"EmployeeID": "employees"}


def test_a_name_that_no_catalog_may_hold_is_read_by_its_plain_one(tmp_path: Path, publishes: None) -> None:
    """R writes alk.phos: the catalog reads alk_phos, and a question may write either."""
    visits = csv("id,alk.phos,stage", (f"{i},{i % 9},{i % 3}" for i in range(90)))
    asked = [
        'SELECT "alk.phos", COUNT(*) FROM visits WHERE stage = 1 GROUP BY 1', "SELECT SUM(alk_phos) FROM visits",
    ]  # fmt: skip
    choices = CuratorChoices("row", frozenset(), "5000", "5000")
    made = of_tables(tmp_path, {"visits.csv": visits}, choices, asked)
    assert made.design is not None and made.design.served == 2
    (tmp_path / "drafted.yaml").write_text(confirmed(made.text))
    answerer = published(tmp_path / "drafted.yaml", ZeroNoise(), key=bytes(range(32)))
    rows = answerer.query(asked[0] + " ORDER BY 1").rows
    assert {row for row in rows if row[1]} == {(n, 10.0) for n in (1, 4, 7)}
    assert answerer.query('SELECT SUM("alk.phos") FROM visits').scalar() == sum(i % 9 for i in range(90))
    with pytest.raises(UnknownName, match="alk"):
        answerer.query('SELECT "alk.phos.x", COUNT(*) FROM visits GROUP BY 1')
    with pytest.raises(SourceError, match=r"visits: `a\.b` and another column would both be called `a_b`"):
        of_tables(tmp_path / "other", {"visits.csv": "id,a.b,a_b\n1,2,3\n"})


def test_one_question_a_table_confirms_a_draft(tmp_path: Path) -> None:
    draft(make_trips(tmp_path), output="trips.yaml")
    catalog = tmp_path / "trips.yaml"
    shown = dpsql_command("confirm", catalog)
    assert "games: " in shown.stdout and "rounder: " in shown.stdout and load_catalog(catalog).unconfirmed()
    done = dpsql_command("confirm", catalog, "--rounder", "games", "--by", "ada")
    assert done.returncode == 0 and "still open: privacy, people" in done.stderr
    games = load_catalog(catalog).tables["games"].columns
    assert not games["yearID"].confirm and (games["yearID"].lower, games["yearID"].upper) == ("1940", "2020")
    assert dpsql_command("confirm", catalog, "--rounder", "games", "--by", "ada").returncode == 2
    assert dpsql_command("confirm", catalog, "--as-read", "all", "--by", "bob").returncode == 0
    assert load_catalog(catalog).unconfirmed() == ()
    record = [json.loads(line) for line in (tmp_path / "trips.confirmed.jsonl").read_text().splitlines()]
    assert [(line["by"], line["of"]) for line in record] == [
        ("ada", "games"),
        ("bob", "privacy"),
        ("bob", "people"),
    ]
    assert record[0]["places"]["tables.games.columns.yearID"]["written"] == {"lower": "1940", "upper": "2020"}


def test_row_numbers_are_no_first_views(tmp_path: Path) -> None:
    """A column that tells each row from every other comes last: a view of it would count ones."""
    rows = (f"{i},{900 - i},{1974 + i % 9},{18 + i % 50}" for i in range(300))
    made = of_tables(tmp_path, {"wages.csv": csv("rownames,serial,year,age", rows)})
    assert made.dropped == ()
    assert "wages_by_year" in made.text and "wages_by_age" in made.text
    assert "wages_by_year_age" in made.text or "wages_by_age_year" in made.text
    assert "by_serial_" not in made.text and "by_rownames_" not in made.text


@pytest.mark.parametrize("text, said", [("NA", True), ("FR", False)])
def test_where_na_may_be_no_value_the_draft_says_what_to_write(text: str, said: bool, tmp_path: Path) -> None:
    """It may be Namibia: rows decide nothing about how a file is written. Among numbers it is no value anyway."""
    rows = (f"{i % 7 or 'NA'},{text if i % 3 else 'DE'}" for i in range(300))
    made = of_tables(tmp_path, {"visits.csv": csv("size,country", rows)})
    assert '"null": ""' in made.text
    assert ("where NA means that a value is missing, declare it as `null`" in made.text) == said


def test_a_column_that_repeats_people_makes_a_table_of_them(tmp_path: Path) -> None:
    tables = {"log.csv": "who,score,side\n1,3,a\n1,4,b\n2,4,a\n"}
    for traits in ({"score"}, None):
        choices = CuratorChoices(unit="log.who", traits=traits and frozenset(traits))
        made = parse_catalog(of_tables(tmp_path / str(bool(traits)), tables, choices).text)
        people = made.tables["people"]
        assert (people.people_of, people.key, list(people.written)) == ("log", "who", [*(traits or ())])
        assert made.privacy.unit.name == "people.who" and keys(made, "log")["who"] == "people"
    with pytest.raises(InterfaceError, match="log has no column scor"):
        of_tables(tmp_path / "c", tables, CuratorChoices(unit="log.who", traits=frozenset({"scor"})))
    written = of_tables(
        tmp_path / "d", tables | {"people.csv": "who\n1\n2\n"}, CuratorChoices(unit="people.who")
    )
    assert keys(parse_catalog(written.text), "log")["who"] == "people"


ENROLLED = {
    "studentInfo": "SELECT i % 300 AS id_student, 'M' || i // 300 AS code_module, CASE WHEN i % 300 < 150 THEN "
    "'F' ELSE 'M' END AS gender, 'r' || i % 3 AS region, 1950 + i % 60 AS born, "
    "['Pass', 'Fail'][1 + i % 2] AS final_result FROM range(400) r(i)",
    "studentAssessment": "SELECT i % 310 AS id_student, i % 101 AS score FROM range(4000) r(i)",
}


@pytest.mark.parametrize("rows", [400, 900])
def test_where_no_table_is_of_people_the_draft_makes_one_by_names_alone(rows: int, tmp_path: Path) -> None:
    tables = {name: sql.replace("range(400)", f"range({rows})") for name, sql in ENROLLED.items()}
    made = of_tables(tmp_path, tables)
    catalog = parse_catalog(made.text)
    assert catalog.privacy.unit.name == "students.id_student" and "privacy" in catalog.unconfirmed()
    students = catalog.tables["students"]
    assert (students.people_of, students.key) == ("studentInfo", "id_student")
    assert [c.categories or c.bounds for c in students.written.values()] == [("F", "M"), (1950, 2009)]
    assert {t: [*catalog.tables[t].foreign_keys] for t in ENROLLED} == {t: ["id_student"] for t in ENROLLED}
    assert any("students is made of the rows of studentInfo" in note for note in made.notes)


def test_a_unit_that_repeats_makes_people_though_its_rows_have_a_key_and_traits(tmp_path: Path) -> None:
    people = "SELECT i AS rowname, i % 900 AS subject_id, ['f', 'm'][1 + i % 2] AS gender, i % 90 AS age"
    choices = CuratorChoices("tests.subject_id", frozenset(), "1", "4")
    catalog = parse_catalog(
        of_tables(tmp_path, {"tests": f"{people} FROM range(1200) AS r(i)"}, choices).text
    )
    unit = catalog.privacy.unit
    assert unit.key == "subject_id" and catalog.tables[str(unit.table)].people_of == "tests"


def test_a_drafted_table_of_people_answers_as_duckdb_does(tmp_path: Path) -> None:
    questions = (
        "SELECT gender, COUNT(*) AS n FROM students GROUP BY gender",
        "SELECT gender, COUNT(*) AS n FROM studentAssessment JOIN students USING (id_student) GROUP BY gender",
        "SELECT final_result, COUNT(*) AS n FROM studentInfo GROUP BY final_result",
    )
    made = of_tables(tmp_path, ENROLLED, None, questions)
    assert made.design is not None and made.design.served == 3
    text = confirmed(made.text)  # the domain is written once, so the rounded bound of one is that of both
    assert not parse_catalog(text).unconfirmed()
    people = "CREATE TABLE students AS SELECT id_student, min(gender) AS gender FROM studentInfo GROUP BY 1"
    answers_as_duckdb(tmp_path, text, {**ENROLLED, "": people}, questions)


def answers_as_duckdb(folder: Path, text: str, tables: dict[str, str], questions: tuple[str, ...]) -> None:
    """Publish a confirmed catalog without noise, and compare it with DuckDB over its tables."""
    (folder / "all.yaml").write_text(text.replace("max_ids: auto", "max_ids: 60"))
    publish_release(load_catalog(folder / "all.yaml"), folder / "r.dpsql", noise=ZeroNoise(), key=bytes(32))
    with duckdb.connect() as plain, closing(open_session([folder / "r.dpsql"], insecure=True)) as session:
        for name, sql in tables.items():
            plain.execute(f"CREATE TABLE {name} AS {sql}" if name else sql)
        for sql in questions:
            shown = {row[0]: row[-1] for row in session.query(sql).rows if row[0] is not None and row[-1]}
            exact = {key: n for key, *_, n in plain.execute(sql).fetchall() if key is not None}
            assert shown == pytest.approx(exact, abs=1e-3), sql


RENTED = {
    "customer": "SELECT i AS customer_id, ['north', 'south', 'east'][1 + i % 3] AS region FROM range(600) AS r(i)",
    "film": "SELECT i AS film_id, ['G', 'PG', 'R'][1 + i % 3] AS rating, 60 + i AS minutes,"
    " DATE '2024-01-10' + CAST(7 * i AS INTEGER) AS shown FROM range(40) AS r(i)",
    "rental": "SELECT i AS rental_id, i % 600 AS customer_id, i % 37 AS film_id,"
    " DATE '2024-01-05' + CAST(i % 300 AS INTEGER) AS due, CASE WHEN i % 9 > 0 THEN"
    " DATE '2024-01-01' + CAST(i % 300 + i % 11 AS INTEGER) END AS back,"
    " CASE WHEN i % 7 > 0 THEN i % 50 END AS weight FROM range(6000) AS r(i)",
    "payment": "SELECT i AS payment_id, (i * 7) % 6000 AS rental_id, ((i * 7) % 6000) % 600 AS customer_id,"
    " ['card', 'cash'][1 + i % 2] AS method, round(i % 97 / 10, 1) AS amount FROM range(9000) AS r(i)",
}
OF_FILMS = "FROM payment JOIN rental USING (rental_id) JOIN film USING (film_id) GROUP BY ALL"
"""Facts under facts; payments name their customer twice."""


def test_facts_under_facts_answer_and_so_does_what_is_asked_next(tmp_path: Path) -> None:
    questions = (
        f"SELECT rating, SUM(amount) {OF_FILMS}",
        "SELECT method, COUNT(*) FROM payment GROUP BY method",
        "SELECT method, MEDIAN(amount) FROM payment GROUP BY method",
        "SELECT back > due, COUNT(*) FROM rental GROUP BY back > due",
        "SELECT region, AVG(weight) FROM rental JOIN customer USING (customer_id) GROUP BY region",
    )
    made = of_tables(
        tmp_path, RENTED, CuratorChoices("customer.customer_id", frozenset({"film"}), "200", "200"), questions
    )
    catalog = parse_catalog(made.text)
    assert made.design is not None and made.design.served == 5
    assert catalog.tables["payment"].unit_path == ("rental_id", "customer_id")
    rental = catalog.tables["rental"]
    assert (rental.columns["weight"].measure, rental.columns["back_gt_due"].type) == (True, "bool")
    own = [view for view in catalog.views.values() if view.axes[0].axis in ("rental.due", "rental.weight")]
    assert own and sum(catalog.shares.values()) <= 1
    following = (
        "SELECT due, COUNT(*) FROM rental GROUP BY due",
        "SELECT rating, COUNT(*) FROM rental JOIN film USING (film_id) GROUP BY rating",
    )
    asked = (*questions[:2], *questions[3:], *following)
    answers_as_duckdb(tmp_path, confirmed(made.text), RENTED, asked)


def test_a_comparison_along_a_key_comes_with_the_source_that_makes_it_a_column(tmp_path: Path) -> None:
    late = "SELECT {}, COUNT(*) AS n FROM rental JOIN film USING (film_id) GROUP BY 1".format
    choices = CuratorChoices("customer.customer_id", frozenset({"film"}), "200", "200")
    made = of_tables(tmp_path, RENTED, choices, [late("rental.due >= film.shown"), late("rating")])
    assert made.design is not None and made.design.served == 2
    source, column = made.design.notes[0].split("`")[3:6:2]
    text = confirmed(made.text).replace("rental: rental.parquet", f"rental: {source}")
    (tmp_path / "late.yaml").write_text(text.replace("      due: {", f"      {column}\n      due: {{"))
    made = api.design(tmp_path / "late.yaml", [late("due_gte_shown")])
    source = source.replace("'rental.parquet' AS", "rental AS")
    tables = {**RENTED, "": f"CREATE OR REPLACE TABLE rental AS {source}"}
    answers_as_duckdb(tmp_path, made.text, tables, (late("due_gte_shown"),))


def test_one_way_to_a_person_is_the_one_that_questions_join(tmp_path: Path) -> None:
    question = "SELECT region, COUNT(*) FROM payment JOIN customer USING (customer_id) GROUP BY region"
    choices = CuratorChoices("customer.customer_id", frozenset({"film"}), "1", "4")
    made = of_tables(tmp_path, RENTED, choices, [question])
    assert made.design is not None and made.design.served == 1
    assert parse_catalog(made.text).tables["payment"].unit_path == ("customer_id",)


def test_lines_and_files_that_are_not_read_are_said(tmp_path: Path) -> None:
    """A file in another encoding is read in part, and a release of it would be about the others."""
    rows = [f"{i};{'Köln' if i % 4 else 'Bonn'}\n".encode("latin-1") for i in range(400)]
    (tmp_path / "visits.CSV").write_bytes(b"size;city\n" + b"".join(rows))
    (tmp_path / "towns.tsv").write_text("town\tpeople\nBonn\t7\n")
    made = draft_from_source(tmp_path, tmp_path / "visits.yaml", None, leave_open)
    text = (tmp_path / "visits.yaml").read_text()
    assert [line.split(": ")[0] for line in made.unread] == ["towns.tsv was not read", "visits.CSV"]
    assert "    confirm: true\n    # 300 of its lines are not UTF-8 rows" in text
    text = text.replace("  confirm: true\n", "").replace(", confirm: true", "").replace("    # 300", "# 300")
    (tmp_path / "visits.yaml").write_text(text)
    catalog = load_catalog(tmp_path / "visits.yaml")
    published = publish_release(catalog, tmp_path / "v.dpsql", noise=ZeroNoise(), key=bytes(32))
    assert published.to_json()["left_out_private"] == {"visits": 300}
    assert "left out of visits (private): 300 lines that are not rows" in published.summary()
    again = publish_release(catalog, tmp_path / "v.dpsql", noise=ZeroNoise(), key=bytes(32))
    assert again.left_out == {}


def test_a_column_of_huge_numbers_is_said_to_be_left_out(tmp_path: Path) -> None:
    rows = (f"{i % 5},{9007199254740990 + i % 4}" for i in range(400))
    made = of_tables(tmp_path, {"visits.csv": csv("size,card", rows)})
    assert [(column.column, column.why) for column in made.dropped] == [("card", "its numbers are too large")]
    assert "left out: card (its numbers are too large)" in made.text


@pytest.mark.parametrize(("one", "two", "lines"), [
    ("31.12.2023", "1.2.2023", [r"strptime(\"x\", '%d.%m.%Y')"]),
    ("9/30/1990 0:00:00", "NA", [r"strptime(\"x\", '%m/%d/%Y %H:%M:%S')"]),
    ("01/02/2023", "03/04/2023", [r"strptime(\"x\", '%d/%m/%Y')", r"strptime(\"x\", '%m/%d/%Y')"]),
    ("1.234,5", "7", [r"replace(replace(\"x\", '.', ''), ',', '.')"]),
    ("1,234.5", "-7", [r"replace(\"x\", ',', '')"]),
    ("12.5%", "7 %", [r"replace(replace(\"x\", '%', ''), ',', '')"]),
    ("13:45", "02:10", [r"CAST(left(\"x\", 2) AS INT)"]),
    ("02134", "10115", []), ("31.12.2023", "tomorrow", []), ("12:30 Uhr", "a", []),
])  # fmt: skip
def test_a_draft_says_what_reads_texts_of_days_and_numbers(
    one: str, two: str, lines: list[str], tmp_path: Path
) -> None:
    """It declares none of them: which day 01/02/2023 is only the curator knows."""
    rows = (f'{i % 5};"{two if i % 2 else one}"' for i in range(300))
    text = of_tables(tmp_path, {"visits.csv": csv("size;x", rows)}).text
    said = [line for line in text.splitlines() if "x, read as it is written" in line]
    assert [all(expression in line for expression in lines) for line in said] == [True] * bool(lines)
    assert [line.count("derive:") for line in said] == [len(lines)] * bool(lines)
    assert "x: {type: string, categories:" in text


def test_decimals_without_a_leading_zero_are_numbers(tmp_path: Path) -> None:
    rows = (f"{i % 5},{'-' * (i % 2)}.{i % 7}5" for i in range(400))
    assert (
        "rate: {type: decimal, scale: 2" in of_tables(tmp_path, {"visits.csv": csv("size,rate", rows)}).text
    )


def test_a_draft_says_what_makes_days_of_whole_numbers(tmp_path: Path) -> None:
    rows = [f"{i % 5},{20230100 + i % 28 + 1},{20230000 + i % 50}" for i in range(300)]
    made = of_tables(tmp_path, {"visits.csv": csv("size,date,code", rows)})
    ((line),) = [line for line in made.text.splitlines() if "read as it is written" in line]
    assert (
        "# date, read" in line
        and "make_date(" in line
        and "date_day: {type: date, lower: .., upper: ..}" in line
    )
    assert any("visits.date holds whole numbers that read as days" in note for note in made.notes)


def test_rows_that_are_nobodys_are_said(tmp_path: Path) -> None:
    made = of_tables(tmp_path, {
        "visits.csv": csv("visit_id,person_id,size", (f"{i},{i % 100 if i % 4 else ''},{i % 7}" for i in range(400))),
        "people.csv": csv("person_id,age", (f"{i},{20 + i % 9}" for i in range(100))),
    }, CuratorChoices(unit="people.person_id"))  # fmt: skip
    said = "visits.person_id: 25% of its rows are NULL; they belong to nobody and are not counted"
    assert made.unmatched == (said,)
    assert "foreign_keys: {person_id: {references: people, nullable: true}}" in made.text


def test_nan_is_no_value_and_no_bound(tmp_path: Path) -> None:
    """It is above every number, so a column with a few of them had no bounds and was left out."""
    age = "CASE WHEN i % 9 = 0 THEN CAST('NaN' AS DOUBLE) ELSE i % 40 END"
    made = of_tables(tmp_path, {"visits": f"SELECT i % 5 AS size, {age} AS age FROM range(900) AS t(i)"})
    assert made.dropped == ()
    assert "age: {type: int, lower: 0, upper: 120, measure: true, nullable: true, confirm: true}" in made.text


def test_uuids_are_keys_and_foreign_keys_as_whole_numbers_are(tmp_path: Path) -> None:
    clinic = parse_catalog(of_tables(tmp_path, {
        "patients": "SELECT md5('p' || i)::UUID AS patient_id, i % 90 AS age FROM range(400) t(i)",
        "visits": "SELECT md5('p' || i % 400)::UUID AS patient_id, i % 9 AS ward FROM range(900) t(i)",
    }).text)  # fmt: skip
    assert keys(clinic, "visits") == {"patient_id": "patients"}
    assert "patient_id" not in clinic.tables["visits"].columns


def test_whole_keys_of_a_public_csv_table_are_numbers_and_codes_stay_texts(tmp_path: Path) -> None:
    """As texts, room 10 stood before room 2, and `room BETWEEN 2 AND 10` was no condition."""
    tables = {
        "rooms.csv": csv("room,wing", (f"{i},w{i % 3}" for i in range(1, 13))),
        "zips.csv": csv("zip,town", (f"0{i},t{i}" for i in range(10, 15))),
        "visits.csv": csv("visit,room,zip", (f"{i},{1 + i % 12},0{10 + i % 5}" for i in range(60))),
    }
    choices = CuratorChoices("row", frozenset({"rooms", "zips"}), "5000", "5000")
    questions = [
        "SELECT room, COUNT(*) FROM visits GROUP BY room",
        "SELECT zip, COUNT(*) FROM visits GROUP BY zip",
    ]
    text = of_tables(tmp_path, tables, choices, questions).text
    catalog = parse_catalog(text)
    assert catalog.tables["rooms"].columns["room"].type == "int"
    assert "zip" not in catalog.tables["zips"].columns
    (tmp_path / "rooms.yaml").write_text(confirmed(text))
    answers = published(tmp_path / "rooms.yaml", ZeroNoise())
    rows = answers.query(
        "SELECT room, COUNT(*) FROM visits WHERE room BETWEEN 2 AND 10 GROUP BY 1 ORDER BY 1"
    ).rows
    assert [(room, round(count)) for room, count in rows] == [(room, 5) for room in range(2, 11)]


def test_questions_that_name_no_column_are_served(tmp_path: Path) -> None:
    """A workload of `SELECT COUNT(*)` alone once was refused for want of a domain."""
    tables = {"visits.csv": csv("person_id,ward", (f"{i % 400},w{i % 3}" for i in range(2000)))}
    choices = CuratorChoices("persons.person_id", frozenset(), "100", "100")
    questions = ["SELECT COUNT(*) FROM visits", "SELECT COUNT(DISTINCT person_id) FROM visits"]
    design = of_tables(tmp_path, tables, choices, questions).design
    assert design is not None and design.served == 2
