"""One person is one unit whatever types her key comes in: casts, joins, rows that bounding keeps, doubled keys."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpsql.catalog import load_catalog
from dpsql.central import placed_rows
from dpsql.central.axes import axis_maker
from dpsql.central.placed_rows import check_public_key, place_rows, prepare_tables
from dpsql.central.plan import plan_release
from dpsql.engines.duck import RawSide
from dpsql.engines.joined_rows import JoinSide
from dpsql.engines.registry import open_star, table_digests
from dpsql.engines.values import exact_cast, family, widest
from dpsql.errors import SourceError
from tests.privacy.loss import Loss, RawRows, measure
from tests.releases import write_catalog, write_tables
from tests.thinned import by_default

VALUES = {
    "TINYINT": [-7, 0, 7],
    "BIGINT": [-7, 0, 7, 15, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1],
    "UBIGINT": [0, 7, 2**64 - 1],
    "HUGEINT": [7, -(2**53) - 1, 2**127 - 1],
    "DECIMAL(18,0)": ["7", "15"],
    "DECIMAL(9,2)": ["7.00", "7.50", "-7.00"],
    "DECIMAL(38,9)": ["7.000000000", "7.500000001", "7.5", "0"],
    "FLOAT": ["7", "7.5", "-0.0", "nan", "inf"],
    "DOUBLE": ["7", "7.5", "-0.0", "0.1", "9007199254740991", "9007199254740992", "1e30", "nan", "-inf", "-7"],
    "VARCHAR": ["7", "00007", "7.0", "7.000", "+7", "-7", " 7 ", "7.5", "7,0", "1e3", "0x7", "1_5", "", "x", "-", "７",
                "9007199254740993"],
}  # fmt: skip


def value_of(text: object, kind: str, target: str) -> object:
    """What a value stands for in a target type; None where it stands for nothing. Written apart from the SQL."""
    there = family(target)
    if kind == "VARCHAR":
        if there == "text":
            return text
        plain = str(text).strip()
        digits = plain.lstrip("+-")
        if len(plain) - len(digits) > 1 or not digits.isascii() or not digits[:1].isdigit():
            return None
        if not digits.replace(".", "", 1).isdigit():
            return None
        number = Fraction(Decimal(plain)) if there != "float" else Fraction(float(plain))
        if there == "float" and abs(number) >= 2**53:
            return None
    elif family(kind) == "float":
        real = float(str(text))
        if real != real or abs(real) >= 2**53:
            return None
        number = Fraction(real)
        if there == "decimal" and number.denominator != 1:
            return None
    else:
        number = Fraction(Decimal(str(text)))
        if there == "float" and family(kind) == "decimal" and number.denominator != 1:
            return None
    if there == "integer":
        low, high = (-(2**127), 2**127 - 1) if target == "HUGEINT" else (-(2**63), 2**63 - 1)
        return number if number.denominator == 1 and low <= number <= high else None
    if there == "decimal":
        scale = int(target.rstrip(")").split(",")[1])
        fits = (number * 10**scale).denominator == 1 and abs(number * 10**scale) < 10**38
        return number if fits else None
    return number if abs(number) < 2**53 else None


@pytest.mark.parametrize(
    "target", ["BIGINT", "HUGEINT", "DECIMAL(38,2)", "DECIMAL(38,9)", "DOUBLE", "VARCHAR"]
)
def test_a_cast_keeps_the_value_or_gives_null(target: str) -> None:
    connection = duckdb.connect()
    refused = []
    for kind, values in VALUES.items():
        cast = exact_cast("v", kind, target)
        if cast is None:
            refused.append(family(kind))
            continue
        for text in values:
            query = f"SELECT {cast} FROM (SELECT CAST('{text}' AS {kind}) AS v)"
            (found,) = connection.execute(query).fetchall()[0]
            want = value_of(text, kind, target)
            got = found if found is None or family(target) == "text" else Fraction(found)
            assert got == want, (kind, text, target)
            if family(target) == "float" and found is not None:
                assert str(found) != "-0.0"
    assert set(refused) == ({"integer", "decimal", "float"} if target == "VARCHAR" else set())


def test_types_without_common_values_are_refused_and_others_kept() -> None:
    for own in ("UUID", "BOOLEAN", "BLOB", "DATE", "INTEGER[]"):
        assert not any(exact_cast("v", own, target) for target in ("BIGINT", "DOUBLE", "VARCHAR"))
    connection = duckdb.connect()
    days = exact_cast("v", "DATE", "TIMESTAMP")
    query = f"SELECT CAST({days} AS VARCHAR) FROM (SELECT unnest(['2024-02-29', 'infinity'])::DATE AS v)"
    assert connection.execute(query).fetchall() == [("2024-02-29 00:00:00",), ("infinity",)]
    text = exact_cast("'6F9619FF-8B86-D011-B42D-00C04FC964FF'", "VARCHAR", "UUID")
    assert str(connection.execute(f"SELECT {text}").fetchall()[0][0]).startswith("6f9619ff")
    assert widest("UUID") == "UUID"


STAR = """
dpsql: 1
name: shop
source: {kind: parquet, root: ., tables: {person: person.parquet, sales: sales.parquet, store: store.parquet}}
privacy: {lineage: shop, cap: 4, unit: person.id, neighbours: add_remove, epsilon: 1, delta: 0}
tables:
  person: {role: dimension, key: id, private: true, columns: {age: {type: int, lower: 0, upper: 9}KEY}}
  store: {role: dimension, key: store_id, private: false, columns: {city: {type: string}}}
  sales: {role: fact, foreign_keys: {person_id: person, store_id: store}, max_ids: 3DERIVE,
          columns: {amount: {type: int, lower: 0, upper: 9, measure: true}}}
views:
  ages: {of: sales, axes: [person.age, {axis: store, by: [store_id]}], measures: [count, sales.amount]}
"""
PEOPLE = "SELECT CAST(i AS BIGINT) AS id, i AS age FROM range(8) t(i)"
STORES = "SELECT CAST(i AS INTEGER) AS store_id, chr(CAST(97 + i AS INTEGER)) AS city FROM range(4) t(i)"
SALES = (
    "SELECT CASE WHEN i % 11 = 5 THEN NULL WHEN i % 13 = 6 THEN 88 ELSE i * i % 8 END AS person_id, "
    "i % 5 AS store_id, i AS sale, i % 10 AS amount FROM range(90) t(i)"
)


def placed(
    folder: Path, person: str, fact: str, tau: int | None = None, *, key: str = "", store: str = "INTEGER"
) -> list[tuple[object, ...]]:
    """The rows that bounding keeps, with their units and leaves, for key columns of some types."""
    tables = {
        "person": f"SELECT * REPLACE ({person} AS id) FROM ({PEOPLE})",
        "store": f"SELECT * REPLACE (CAST(store_id AS {store}) AS store_id) FROM ({STORES})",
        "sales": f"SELECT * REPLACE ({fact} AS person_id) FROM ({SALES})",
    }
    return placed_by(write_catalog(folder, STAR, tables, KEY=key, DERIVE=""), tau)


def placed_by(file: Path, tau: int | None) -> list[tuple[object, ...]]:
    """The same of a catalog that is written."""
    catalog = load_catalog(file)
    with closing(open_star(catalog)) as raw:
        plan = plan_release(catalog, axis_maker(catalog, raw))
        prepare_tables(catalog, raw, plan)
        table, _ = place_rows(catalog, raw, plan, "sales", bytes(32), tau=tau)
        query = f"SELECT * REPLACE (CAST(unit AS DOUBLE) AS unit) FROM {table} ORDER BY ALL"
        return raw.connection.execute(query).fetchall()


FACTS = (
    "CAST(person_id AS INTEGER)",
    "CAST(person_id AS UBIGINT)",
    "CAST(person_id AS DECIMAL(12,2))",
    "CAST(person_id AS DOUBLE)",
    "CAST(coalesce(CAST(person_id AS DOUBLE), 'nan') AS DOUBLE)",
    "lpad(CAST(person_id AS VARCHAR), 5, '0')",
    "CAST(person_id AS VARCHAR) || '.0'",
    "coalesce(CAST(person_id AS VARCHAR), '')",
)


@pytest.mark.parametrize(
    "tau", by_default([None, 0], 1), ids=["truncate", "all rows of a unit, for weight and auto"]
)
@pytest.mark.parametrize("person", by_default(["CAST(id AS DOUBLE)", "id"], 1))
def test_bounding_keeps_the_same_number_of_a_persons_rows_whatever_her_keys_type(tmp_path, person, tau):
    want = placed(tmp_path / "want", person, person.replace("id", "person_id"), tau)
    units = [row[-1] for row in want]
    for fact in FACTS:
        got = placed(tmp_path / "got", person, fact, tau)
        assert [row[-1] for row in got] == units, fact
        # which rows are kept depends on the rank of their content, so only all rows are the same
        if tau == 0:
            assert got == want
    if tau is None:
        assert all(units.count(unit) <= 3 for unit in units)


def test_a_text_key_is_its_text_unless_the_catalog_calls_it_a_number(tmp_path: Path) -> None:
    padded, plain = "lpad(CAST(id AS VARCHAR), 5, '0')", "CAST(person_id AS VARCHAR)"
    want = placed(tmp_path / "want", "id", "person_id", 0)
    said = r"person_id: BIGINT .* person.id, which has text values(.|\n)*type: int"
    with pytest.raises(SourceError, match=said):
        placed(tmp_path / "refused", padded, "person_id", 0)
    ages = [row[0] for row in placed(tmp_path / "text", padded, plain, 0)]
    assert set(ages) == {max(ages)}  # no text is equal, so every row lies in MISSING
    for fact in ("person_id", plain, *FACTS):
        assert placed(tmp_path / "int", padded, fact, 0, key=", id: {type: int}") == want, fact


def test_a_copy_of_a_table_is_known_again_whatever_its_keys_were_carried_into(tmp_path: Path) -> None:
    """Digests that a lineage goes by are of the rows as the source has them."""
    digests = []
    for name, person in (("same", "id"), ("other", "CAST(id AS DOUBLE)")):
        placed(tmp_path / name, person, "person_id")
        catalog = load_catalog(tmp_path / name / "catalog.yaml")
        with closing(open_star(catalog)) as raw:
            assert raw.columns["sales"]["person_id"] == ("BIGINT" if name == "same" else "DOUBLE")
            digests.append(table_digests(raw, catalog, "sales", ()))
    assert digests[0] == digests[1] != ()


def test_a_derived_foreign_key_and_a_public_key_meet_by_value_too(tmp_path: Path) -> None:
    want = placed(tmp_path / "want", "id", "person_id", 0)
    assert placed(tmp_path / "store", "id", "person_id", 0, store="DOUBLE") == want
    assert placed(tmp_path / "store", "id", "person_id", 0, store="SMALLINT") == want
    derived = ", derive: {whose: \"replace(label, 'p', '')\"}"
    text = STAR.replace("person_id: person", "whose: person")
    folder = tmp_path / "derived"
    placed(folder, "id", "person_id", 0)
    labelled = "* EXCLUDE (person_id), 'p00' || person_id AS label"
    write_tables(folder, {"sales": f"SELECT {labelled} FROM '{folder / 'sales'}.parquet'"})
    text = text.replace("columns: {amount", "columns: {label: {type: string}, amount")
    assert placed_by(write_catalog(folder, text, KEY="", DERIVE=derived), 0) == want


def test_types_that_cannot_be_equal_are_refused_by_name_before_a_row_is_read(tmp_path: Path) -> None:
    said = r"sales.foreign_keys.person_id: .* is never equal to person.id"
    for fact in ("DATE '2025-01-01'", "person_id > 3", "person_id::VARCHAR::BLOB"):
        with pytest.raises(SourceError, match=said):
            placed(tmp_path / "star", "id", fact)


CATALOG = """
privacy: {lineage: shop, cap: 9, unit: row, epsilon: 1}
tables:
  device: {role: dimension, key: id, private: true, columns: {KEY kind: {type: int, lower: 0, upper: 3}}}
  sales: {role: fact, foreign_keys: {device: device}, columns: {day: {type: int, lower: 0, upper: 3}}}
views:
  v: {of: sales, axes: [device.kind], measures: [count], mechanism: identity}
"""


TYPES = {
    "numbers beside floats": ("BIGINT", "DOUBLE", [1.0, 1, 1.0], ""),
    "floats beside numbers": ("DOUBLE", "BIGINT", [1, 1, 1], ""),
    "two zeros": ("DOUBLE", "DOUBLE", [0.0, -0.0, 0.0], ""),
    "text that the catalog calls a number": ("BIGINT", "VARCHAR", ["1", "01", "1.0"], "id: {type: int},"),
    "decimals beside numbers": ("BIGINT", "DECIMAL(9,2)", ["1.00", "1", "1.0"], ""),
}


def one_sale_more(folder: Path, name: str) -> Loss:
    """The loss of a sale whose device stands in three rows."""
    foreign, key, ids, declared = TYPES[name]
    device = RawRows(f"id {key}, kind INT", [(each, kind) for kind, each in enumerate(ids)])
    sale = 0.0 if name == "two zeros" else 1
    left = {"sales": RawRows(f"device {foreign}, day INT", [(sale, 0), (sale, 1)]), "device": device}
    right = left | {"sales": RawRows(f"device {foreign}, day INT", [(sale, 0)])}
    return measure(CATALOG.replace("KEY", declared), left, right, folder)


@pytest.mark.parametrize("name", by_default(TYPES, 2))
def test_a_row_counts_once_however_its_key_is_doubled(tmp_path: Path, name: str) -> None:
    assert 0.98 <= one_sale_more(tmp_path, name).share <= 1


@pytest.mark.parametrize("name", ["numbers beside floats", "text that the catalog calls a number"])
def test_a_key_that_is_made_unique_by_its_spelling_is_found(tmp_path, name, monkeypatch):
    """The planted defect: rows of a key that differ in the file all stay."""

    def doubled(*of: Any, **named: Any) -> JoinSide:
        return JoinSide(*of, **named)._replace(once=False)

    monkeypatch.setattr(placed_rows, "JoinSide", doubled)
    assert one_sale_more(tmp_path, name).share > 2


@pytest.mark.parametrize(("keys", "words"), [("0, 0", "id has duplicates"), ("NULL", "contains NULL")])
def test_keys_of_a_public_table_are_whole_and_unique(keys: str, words: str) -> None:
    connection = duckdb.connect()
    connection.execute(f"CREATE SCHEMA raw; CREATE TABLE raw.device AS SELECT unnest([{keys}]) AS id")
    with pytest.raises(SourceError, match=words):
        check_public_key(RawSide(connection, {}), "device", "id")
