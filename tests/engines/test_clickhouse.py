"""ClickHouse by chdb: keys are one to one, neighbours cost what is charged, and what is not proved is refused."""

from __future__ import annotations

from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dpsql.catalog.source import server_tables
from dpsql.engines import values
from dpsql.engines.clickhouse import CLICKHOUSE, ClickHouseSession
from dpsql.errors import EngineLost, InterfaceError, SourceError
from tests.engines.servers import run_clickhouse
from tests.privacy.loss import Written, measure_sources
from tests.privacy.source_cases import HEAD
from tests.privacy.source_star import cells, opened, star
from tests.privacy.test_source_pairs import FLOAT_TEXTS, MOMENTS, TEXTS, UUIDS, decimals, whole

DAYS = [
    "1900-01-01",
    "2299-12-31",
    *(f"2024-02-{day:02d}" for day in range(1, 30)),
    "1969-12-31",
    "1970-01-01",
]
SECONDS = [text for text in MOMENTS if text >= "1970" and "." not in text and text < "2106"]
KEYS = {
    "Int8": whole(-128, 127), "UInt8": whole(0, 255), "Int32": whole(-(2**31), 2**31 - 1),
    "Int64": whole(-(2**63), 2**63 - 1), "UInt64": whole(0, 2**64 - 1), "Float32": FLOAT_TEXTS,
    "Float64": FLOAT_TEXTS, "Decimal(9, 2)": decimals(9, 2), "Decimal(38, 9)": decimals(38, 9), "String": TEXTS,
    "LowCardinality(String)": TEXTS, "UUID": [u for u in UUIDS if len(u) == 36], "Date32": DAYS, "DateTime": SECONDS,
    "DateTime64(6, 'Asia/Tokyo')": [text for text in MOMENTS if text >= "1900"], "Bool": ["true", "false"],
}  # fmt: skip
MIXED = [("Int64", "UInt8"), ("UInt64", "Int8"), ("UInt64", "Int64")]


def literal(text: str) -> str:
    return CLICKHOUSE.literal(text)


def load(folder: Path, person: str, sales: str, kinds: tuple[str, str]) -> dict[str, Any]:
    """Both tables from SELECTs of (key, n)."""
    run_clickhouse(
        folder,
        "DROP DATABASE IF EXISTS spelt",
        "CREATE DATABASE spelt",
        f"CREATE TABLE spelt.person (id {kinds[0]}, n Int32, age Int32) ENGINE = MergeTree ORDER BY ()",
        f"CREATE TABLE spelt.sales (person_id {kinds[1]}, n Int32, amount Int32) ENGINE = MergeTree ORDER BY ()",
        f"INSERT INTO spelt.person SELECT *, 3 FROM ({person})",
        f"INSERT INTO spelt.sales SELECT *, 2 FROM ({sales})",
    )
    return {
        "kind": "clickhouse",
        "root": str(folder),
        "tables": {t: f"spelt.{t}" for t in ("person", "sales")},
    }


def keyed(kind: str) -> str:
    """A SELECT of hostile keys of a type."""
    parts = (f"SELECT CAST({literal(text)} AS {kind}) AS k, {n} AS n" for n, text in enumerate(KEYS[kind]))
    return " UNION ALL ".join(parts)


@pytest.mark.parametrize(("person", "sales"), [*((kind, kind) for kind in KEYS), *MIXED], ids=str)
def test_one_equality_for_each_stored_type(clickhouse: Path, tmp_path: Path, person: str, sales: str) -> None:
    """Pairs of rows are equal by the join, as a unit, and by their text, or not at all."""
    catalog = star(tmp_path, load(clickhouse, keyed(person), keyed(sales), (person, sales)), unit="person.id")
    with opened(catalog) as engine:
        session = engine._session  # type: ignore[union-attr]
        one, two = (engine.rows(catalog, table) for table in ("person", "sales"))
        join = session.rows(f"SELECT p.n, s.n FROM {one} AS p JOIN {two} AS s ON p.id = s.person_id", "join")
        both = (
            f"SELECT id AS k, n, 0 AS side FROM {one} AS p UNION ALL SELECT person_id, n, 1 FROM {two} AS s"
        )
        pairs = [{(int(i), int(j)) for i, j in join}]
        for key in ("k", CLICKHOUSE.text("k")):
            grouped = (
                f"groupArrayIf(n, side = 0), groupArrayIf(n, side = 1) FROM ({both}) AS b WHERE k IS NOT NULL"
            )
            units = session.rows(f"SELECT {grouped} GROUP BY {key}", "units")
            pairs.append({pair for unit in units for pair in product(*unit)})
    assert pairs[0] == pairs[1] == pairs[2]
    if person == sales and not person.startswith("Float"):
        own = {(n, n) for n in range(len(KEYS[person]))}
        assert own <= pairs[0]
        assert pairs[0] == own or person == "UUID"  # the listed texts are as many values


CATALOG = (
    HEAD
    + """
  person: {role: dimension, key: id, private: true, columns: {age: {type: int, lower: 0, upper: 7},
    born: {type: date, lower: "1990-01-01", upper: "1999-12-31", cuts: {width: 1000}}}}
  sales: {role: fact, foreign_keys: {buyer: person}, max_ids: 2, BOUNDING columns: {
    region: {type: string, categories: [north, south], nullable: true},
    paid: {type: decimal, scale: 1, lower: -9, upper: 9, measure: true},
    price: {type: decimal, scale: 2, lower: 0, upper: 99, measure: true}}}
views:
  v: {of: sales, axes: [person.age, sales.region], measures: [count, sales.paid, sales.price], mechanism: identity}
  w: {of: sales, axes: [person.born], measures: [count], mechanism: identity}
"""
)
PERSON = "id Int64, age Nullable(Float64), born Nullable(Date32)"
BOUGHT = "buyer Nullable(Int64), region LowCardinality(Nullable(String)), paid Nullable(Float64), price Decimal(16, 9)"
LARGEST = "9999999.999999999"
EVERYBODY = ", ".join(f"({n}, {n % 8}, '199{n % 10}-05-05')" for n in range(30))
SALES = ", ".join(f"({n}, 'north', {n} / 3, 2.5), ({n}, NULL, -0.0, 1)" for n in range(30))
HOSTILE = [
    "(99, 'north', nan, '%s')", "(99, 'north', inf, '-%s')", "(99, unhex('FF'), -inf, 0)", "(99, 'south', 1e300, 1)",
    "(99, 'n\\0', -1e300, '0.005')", "(99, repeat('n', 5000), NULL, 1)", "(99, '\\'', 0.05, '-0.005')",
]  # fmt: skip


@pytest.mark.usefixtures("clickhouse")
@pytest.mark.parametrize("bounding", ["", "bounding: weight,"])
@pytest.mark.parametrize(
    "person",
    ["(99, nan, '1900-01-01')", "(99, -0.0, '2299-12-31')", "(99, NULL, NULL), (99, 3, '1999-12-31')"],
)
def test_a_person_whose_rows_are_hostile_costs_what_is_charged(
    tmp_path: Path, person: str, bounding: str
) -> None:
    """The exact loss of a star with her rows and the star without them."""

    def side(name: str, people: str, rows: str) -> Written:
        run_clickhouse(
            tmp_path / name,
            f"CREATE TABLE person ({PERSON}) ENGINE = MergeTree ORDER BY ()",
            f"CREATE TABLE sales ({BOUGHT}) ENGINE = MergeTree ORDER BY ()",
            f"INSERT INTO person VALUES {people}", f"INSERT INTO sales VALUES {rows}",
        )  # fmt: skip
        tables = {"person": "person", "sales": "default.sales"}
        return lambda *_: {"kind": "clickhouse", "root": str(tmp_path / name), "tables": tables}

    hers = ", ".join(HOSTILE).replace("%s", LARGEST)
    more, fewer = side("more", f"{EVERYBODY}, {person}", f"{SALES}, {hers}"), side("fewer", EVERYBODY, SALES)
    measured = measure_sources(CATALOG.replace("BOUNDING", bounding), more, fewer, tmp_path / "sides")
    assert 0 < measured.share <= 1


ONE = "SELECT toInt64(1) AS k, 1 AS n"


def changed(folder: Path, *statements: str) -> dict[str, Any]:
    """A small star, and statements of its owner."""
    source = load(folder, ONE, ONE, ("Int64", "Int64"))
    run_clickhouse(folder, *statements)
    return source


@pytest.mark.parametrize(
    ("column", "match"),
    [
        ("FixedString(3)", "FixedString"), ("Int128", "Int128"), ("DateTime64(9)", "DateTime64"),
        ("Array(Int8)", "Array"), ("Decimal(76, 3)", "Decimal"), ("Int8 DEFAULT n + 1", "default"),
        ("Int8 ALIAS n + 1", "alias"),
        ("Int8 MATERIALIZED n + 1", "materialized"), ("Tuple(a Int8)", "Tuple"), ("IPv4", "IPv4"),
    ],
)  # fmt: skip
def test_a_type_without_a_rule_is_refused_where_it_is_named(
    clickhouse: Path, tmp_path: Path, column: str, match: str
) -> None:
    source = changed(clickhouse, f"ALTER TABLE spelt.sales ADD COLUMN extra {column}")
    assert cells(star(tmp_path / "a", source)).rows == 1
    columns = {"extra": {"type": "int", "lower": 0, "upper": 9}}
    with pytest.raises(SourceError, match=match):
        cells(star(tmp_path / "b", source, columns=columns))


@pytest.mark.parametrize(
    "engine", ["ReplacingMergeTree", "SummingMergeTree", "Memory", "Log", "Merge(spelt, 'sales')", "Null"]
)
def test_only_rows_as_they_were_inserted_are_read(clickhouse: Path, tmp_path: Path, engine: str) -> None:
    ordered = " ORDER BY person_id" if "MergeTree" in engine else ""
    columns = "(person_id Int64, amount Int32)"
    source = changed(clickhouse, f"CREATE TABLE spelt.other {columns} ENGINE = {engine}{ordered}")
    source["tables"]["sales"] = "spelt.other"
    with pytest.raises(SourceError, match=r"has no table spelt\.other that may be read"):
        cells(star(tmp_path, source))


TWICE = {
    "amount": {"type": "decimal", "scale": 1, "lower": 0, "upper": 9, "measure": True},
    "twice": {"type": "int", "lower": 0, "upper": 18},
}


def test_what_is_not_written_for_it_is_refused(clickhouse: Path, tmp_path: Path) -> None:
    """Expressions of the catalog, and a view until the curator vouches for it."""
    source = changed(
        clickhouse,
        "CREATE VIEW spelt.seen AS SELECT person_id, toInt16(amount + 1) AS amount FROM spelt.sales",
    )
    with pytest.raises(SourceError, match="no expression of the catalog's"):
        cells(star(tmp_path / "a", source, derive={"twice": "amount * 2"}, columns=TWICE))
    select = {**source["tables"], "sales": "SELECT person_id, amount FROM spelt.sales WHERE amount > 0"}
    with pytest.raises(SourceError, match=r"no expression of the catalog's"):
        cells(star(tmp_path / "b", source | {"tables": select}))
    source["tables"]["sales"] = "spelt.seen"
    with pytest.raises(SourceError, match="is a view of the database"):
        cells(star(tmp_path / "c", source))
    assert cells(star(tmp_path / "d", source | {"trusted": True})).totals == {"amount": 3}
    with pytest.raises(InterfaceError, match="reports"):
        server_tables("clickhouse", "", ["spelt.sales"])


def test_the_session_only_reads_and_only_for_so_long(clickhouse: Path, tmp_path: Path) -> None:
    """And says a code, not the server's text; a folder of anything else stays as it is."""
    changed(clickhouse)
    with closing(ClickHouseSession(str(clickhouse), 1)) as session:
        for statement in (
            "INSERT INTO spelt.sales VALUES (1, 1, 1)", "SET readonly = 0",
            "CREATE TABLE spelt.new (n Int8) ENGINE = Log",
            "SELECT * FROM file('/etc/hostname', 'LineAsString')",
            "SELECT * FROM url('http://127.0.0.1:1', 'LineAsString')",
            "SELECT 1 SETTINGS max_execution_time = 0",
        ):  # fmt: skip
            with pytest.raises(EngineLost, match=r"ClickHouse: testing failed \(code 164\)"):
                session.rows(statement, "testing")
        with pytest.raises(EngineLost, match="it ran longer than allowed"):
            session.rows("SELECT sum(cityHash64(number)) FROM numbers(100000000000)", "testing")
        with pytest.raises(EngineLost) as lost:
            session.rows("SELECT CAST('a secret' AS Int8)", "testing")
        assert "secret" not in str(lost.value)
        assert session.table("system.tables") is None
    (tmp_path / "empty").mkdir()
    for root in ("", str(tmp_path / "empty"), str(tmp_path / "nowhere"), f"{clickhouse}?readonly=0"):
        with pytest.raises(SourceError, match="not the folder of a chdb database"):
            ClickHouseSession(root, 1)
    assert not [*(tmp_path / "empty").iterdir()]


def test_a_table_is_known_by_its_name_and_by_its_identifier(clickhouse: Path) -> None:
    changed(clickhouse, "CREATE TABLE spelt.kept (n Int8) ENGINE = MergeTree ORDER BY ()")
    with closing(ClickHouseSession(str(clickhouse / ".." / clickhouse.name), 60)) as session:
        first = session.places("spelt.kept")
    run_clickhouse(clickhouse, "RENAME TABLE spelt.kept TO spelt.renamed")
    with closing(ClickHouseSession(str(clickhouse), 60)) as session:
        renamed = session.places("spelt.renamed")
    assert first[1] == renamed[1] and first[0] != renamed[0]
    assert first[0] == f"clickhouse+folder:{clickhouse.resolve()}#spelt/kept"


@pytest.mark.parametrize(
    ("stored", "key", "want"),
    [
        ("Int32", True, ("INTEGER", "x")), ("UInt64", True, ("HUGEINT", "CAST(x AS Int128)")),
        ("Decimal(9, 2)", True, ("DECIMAL(9,2)", "x * CAST('1' AS Decimal(38, 0))")),
        ("Float32", False, ("FLOAT", "CAST(x AS Float64)")),
        ("UUID", True, ("VARCHAR", "toString(x)")), ("Decimal(39, 2)", True, None), ("DateTime64(7)", False, None),
        ("FixedString(2)", True, None), ("Int8, default", False, None),
    ],
)  # fmt: skip
def test_types_of_clickhouse(stored: str, key: bool, want: tuple[str, str] | None) -> None:
    """Without chdb."""
    assert values.leaving(values.CLICKHOUSE, stored, "x", key=key) == want


def test_words_of_clickhouse() -> None:
    """Without chdb: what would be clamped, rounded or escaped otherwise."""
    assert CLICKHOUSE.literal("a\\'b") == r"'a\\\'b'" and CLICKHOUSE.identifier('a"b') == r'"a\"b"'
    assert CLICKHOUSE.date(0) == "CAST('1970-01-01' AS Date32)"
    assert CLICKHOUSE.date(-25_568) == "fromUnixTimestamp64Micro(toInt64(-2209075200000000), 'UTC')"
    assert CLICKHOUSE.decimal("1.50") == "CAST('1.50' AS Decimal(38, 2))"
