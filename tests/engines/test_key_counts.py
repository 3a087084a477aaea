"""Counts of keys in every engine equal plain Python, over hostile keys; one unit moves at most k of them, each by one.

The star: sales with an item and a number of their own, and a shelf whose rows nobody owns, twice under one key.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from dpsql.catalog import Catalog
from dpsql.catalog.catalog import parse_catalog
from dpsql.catalog.columns import CONTROL, is_key
from dpsql.catalog.private_columns import PrivateColumn, private_columns
from dpsql.central import selection
from dpsql.central.placed_rows import prepare_tables
from dpsql.central.selection import (
    PAIRS,
    Key,
    KeyScan,
    key_statement,
    listed_keys,
    open_selection,
    order_of,
    pairs_of,
)
from dpsql.engines import summaries
from dpsql.engines.counting import coefficients
from dpsql.engines.dialect import DUCK
from dpsql.engines.registry import open_engine
from dpsql.engines.summaries import key_sql
from dpsql.noise import ZeroNoise
from dpsql.scratch import scratch
from tests.engines.servers import Server, copied, new_schema
from tests.engines.test_template import offset
from tests.releases import insert
from tests.thinned import by_default

pytestmark = pytest.mark.long

KEY = bytes(range(32))
COEFFICIENTS = coefficients(hashlib.sha256(b"keys" + KEY).digest())
CATALOG = """
dpsql: 1
name: keys
source: {kind: KIND, root: "ROOT", tables: {sales: SALES, person: PERSON, shelf: SHELF}}
privacy: {lineage: keys, cap: 1, epsilon: 1, unit: person.id, delta: 1e-6}
tables:
  person: {role: dimension, key: id, private: true}
  shelf: {role: dimension, key: shelf_id, private: true, columns: {
    name: {type: string, categories: {private: true, per_unit: 2, most: 60}}, size: {type: int, lower: 0, upper: 3}}}
  sales: {role: fact, max_ids: 3, foreign_keys: {person_id: person, shelf: shelf}, columns: {
    item: {type: string, categories: {private: true, per_unit: MOST, most: 60}},
    number: {type: int, categories: {private: true, per_unit: 3, most: 60}}}}
views:
  items: {of: sales, axes: [sales.item]}
  numbers: {of: sales, axes: [sales.number]}
  shelves: {of: sales, axes: [shelf.name, shelf.size]}
"""
ITEMS = [
    "", " ", "tea", "Tea", "tea ", " tea", "7", "07", "é", "é", "ß", "ss", "a\\b", "it's", "${x}", "(other)", "=1+1",
    "te\na", "te\x7fa", "te\u202ea", "\u2066x", "\x85", "x" * 200, "x" * 201, "é" * 100, "é" * 101, "NULL", "Ω",
    "\U0001f600",
]  # fmt: skip
NUMBERS = [None, 0, -1, 7, 10**17, -(10**17), 10**18, 2**63 - 1]
SHELVES = [
    (1, "top", 9),
    (1, "low", 2),
    (1, "low\n", 2),
    (2, None, 1),
    (3, "(other)", 0),
    (4, "low", None),
    (4, "top", 2),
]


class Sale(NamedTuple):
    """A row."""

    person_id: int | None
    item: str | None
    number: int | None
    shelf: int | None


def sales(rng: random.Random) -> list[Sale]:
    """People of 1 to 60 rows, one of 524 keys, rows of nobody."""
    rows = []
    for person in (None, -5, 0, 1, 2, 3, 2**62, *range(10, 40)):
        for _ in range(rng.choice([1, 2, 5, 12, 60])):
            rows.append(
                Sale(
                    person, rng.choice([None, *ITEMS]), rng.choice(NUMBERS), rng.choice([None, 1, 2, 3, 4, 9])
                )
            )
    return rows + [Sale(99, f"own {i}", i, 1) for i in range(500)] + [Sale(99, item, 7, 4) for item in ITEMS]


def counted(rows: Iterable[tuple[Any, Key]], most: int, listed: Sequence[Key] = ()) -> dict[Key, int]:
    """Units of every key, in plain Python."""
    keys: defaultdict[Any, set[Key]] = defaultdict(set)
    for unit, key in rows:
        if unit is not None and key is not None and key not in listed:
            keys[unit].add(key)
    counts: Counter[Key] = Counter()
    for unit, held in keys.items():
        n, r = len(held), offset(unit, len(held), COEFFICIENTS)
        placed = enumerate(sorted(held, key=order_of), start=1)
        counts.update(key for i, key in placed if n <= most or (i * most + r) % n < most)
    return dict(counts)


def text_key(text: str | None) -> str | None:
    return text if text is not None and is_key(text, 200, "(other)") else None


def shelf_names() -> dict[int, str | None]:
    """The row of each shelf that counts: least leaf of size, then NULL last, then the bytes of the key."""

    def order(row: tuple[int, str | None, int | None]) -> tuple[Any, ...]:
        _, name, size = row
        key = text_key(name)
        return (4 if size is None or not 0 <= size <= 3 else size, key is None, (key or "").encode())

    return {number: min((r for r in SHELVES if r[0] == number), key=order)[1] for number, _, _ in SHELVES}


def expected(rows: Sequence[Sale], column: str, per_unit: int, listed: Sequence[Key] = ()) -> dict[Key, int]:
    """Units of every key of one column."""
    names = shelf_names()
    held = {
        "sales.item": lambda row: text_key(row.item),
        "sales.number": lambda row: (
            row.number if row.number is not None and abs(row.number) < 10**18 else None
        ),
        "shelf.name": lambda row: text_key(names.get(row.shelf)),
    }[column]
    return counted(((row.person_id, held(row)) for row in rows), per_unit, listed)


def star(kind: str, root: str, tables: dict[str, str], most: int = 20) -> Catalog:
    text = CATALOG.replace("KIND", kind).replace("ROOT", root).replace("MOST", str(most))
    for name, place in tables.items():
        text = text.replace(name.upper(), place)
    return parse_catalog(text)


def columns_of(
    catalog: Catalog, listed: dict[str, Sequence[Key]], key: bytes = KEY
) -> Iterator[tuple[str, int, dict[Key, int]]]:
    """Each private column with its cap and the counts that the engine gives."""
    with closing(open_engine(catalog)) as engine:
        selection = open_selection(catalog, engine, listed_keys(catalog))
        prepare_tables(catalog, engine, selection.plan)
        scan = KeyScan(catalog, engine, selection.plan, ZeroNoise(), key)
        for column in private_columns(catalog):
            relations = engine.relations("counting")
            relations.make(PAIRS, pairs_of(scan, column))
            statement = key_statement(scan, column, column.per_unit, listed.get(column.name, ()))
            pairs = [pair for batch in relations.batches(statement) for pair in batch]
            assert len(dict(pairs)) == len(pairs)
            yield column.name, column.per_unit, dict(pairs)


def write(folder: Path, rows: Sequence[Sale]) -> None:
    with duckdb.connect() as db:
        db.execute("CREATE TABLE sales (person_id BIGINT, item VARCHAR, number BIGINT, shelf INTEGER)")
        insert(db, "sales", rows)
        db.execute(
            "CREATE TABLE person AS SELECT DISTINCT person_id AS id FROM sales WHERE person_id % 2 = 0"
        )
        db.execute("CREATE TABLE shelf (shelf_id INTEGER, name VARCHAR, size INTEGER)")
        insert(db, "shelf", random.Random(len(rows)).sample(SHELVES, len(SHELVES)))
        for table in ("sales", "person", "shelf"):
            db.execute(f"COPY {table} TO '{folder / table}.parquet' (FORMAT parquet)")


FILES = {"sales": "sales.parquet", "person": "person.parquet", "shelf": "shelf.parquet"}
CLEANINGS = ("lower", "trim", "raw")
"""What one engine might do to a text on its own."""


def otherwise(cleaning: str) -> Callable[..., str]:
    """`key_sql` with a defect."""

    def planted(column: PrivateColumn, value: str, *given: Any) -> str:
        shipped = key_sql(column, value, *given)
        if column.spec.type != "string":
            return shipped
        return f"CAST({value} AS VARCHAR)" if cleaning == "raw" else f"{cleaning}({shipped})"

    return planted


LISTED: dict[str, Sequence[Key]] = {"sales.item": ("tea", "é", "own 3"), "sales.number": (7,)}


@pytest.mark.parametrize("listed", [{}, LISTED], ids=["all", "listed"])
@pytest.mark.parametrize("seed", by_default([1, 2], 1))
def test_duckdb_counts_as_plain_python_does(
    tmp_path: Path, seed: int, listed: dict[str, Sequence[Key]]
) -> None:
    rng = random.Random(seed)
    rows = rng.sample(made := sales(rng), len(made))
    write(tmp_path, rows)
    for name, per_unit, counts in columns_of(star("parquet", str(tmp_path), FILES), listed):
        assert counts == expected(rows, name, per_unit, listed.get(name, ())), name


def test_duckdb_leaves_out_the_characters_that_no_key_has_and_no_others() -> None:
    codes = [*range(0xD800), *range(0xE000, 0x110000, 7), 0x10FFFF]
    with scratch() as db:
        left = DUCK.without("'a' || chr(code) || chr(code) || 'b'", CONTROL)
        rows = db.execute(
            f"SELECT code, {left} FROM (SELECT unnest(?::INTEGER[]) AS code)", [codes]
        ).fetchall()
    assert len(rows) == len(codes)
    assert all(text == "a" + ("" if chr(code) in CONTROL else chr(code) * 2) + "b" for code, text in rows)


def test_a_unit_moves_at_most_k_counts_each_by_one(tmp_path: Path) -> None:
    rows = sales(random.Random(3))
    counts, caps = [], {}
    for number, some in enumerate((rows, [row for row in rows if row.person_id != 99])):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, some)
        columns = list(columns_of(star("parquet", str(folder), FILES), {}))
        counts.append({name: people for name, _, people in columns})
        caps = {name: most for name, most, _ in columns}
    for name, with_her in counts[0].items():
        without = counts[1][name]
        moved = [people - without.get(key, 0) for key, people in with_her.items()]
        assert set(moved) <= {0, 1} and 0 < sum(moved) <= caps[name]
        assert without.keys() <= with_her.keys()
    assert counts[0]["sales.item"].keys() - counts[1]["sales.item"].keys()


def test_rows_that_are_units_count_one_each(tmp_path: Path) -> None:
    rows = sales(random.Random(4))
    write(tmp_path, rows)
    text = (
        CATALOG.replace("unit: person.id", "unit: row")
        .replace("MOST", "1")
        .replace("per_unit: 3", "per_unit: 1")
    )
    text = text.replace("per_unit: 2", "per_unit: 1").replace("max_ids: 3, ", "").replace("KIND", "parquet")
    for name, place in FILES.items():
        text = text.replace(name.upper(), place)
    catalog = parse_catalog(text.replace("ROOT", str(tmp_path)))
    ((_, _, counts), *_) = [each for each in columns_of(catalog, {}) if each[0] == "sales.item"]
    keys = [text_key(row.item) for row in rows if text_key(row.item) is not None]
    assert counts == Counter(keys)


def test_each_of_a_units_keys_counts_alike_often(tmp_path: Path) -> None:
    """Of seven keys of 600 people three count; counts are within five standard errors."""
    write(tmp_path, [Sale(unit, f"key {key}", None, None) for unit in range(600) for key in range(7)])
    catalog = star("parquet", str(tmp_path), FILES, 3)
    for seed in (1, 2):
        key = hashlib.sha256(bytes([seed])).digest()
        counts = next(counts for name, _, counts in columns_of(catalog, {}, key) if name == "sales.item")
        assert sum(counts.values()) == 1800
        assert all(abs(people - 1800 / 7) < 5 * math.sqrt(600 * 12 / 49) for people in counts.values())


def keyed_in_postgres(
    postgres: Server, schema: str, rows: Sequence[Sale], monkeypatch: pytest.MonkeyPatch
) -> Catalog:
    """The star in a schema of a PostgreSQL."""
    import psycopg

    with psycopg.connect(postgres.dsn) as server:
        server.execute(new_schema(schema))
        server.execute(
            f"CREATE TABLE {schema}.sales (person_id bigint, item text, number bigint, shelf integer)"
        )
        server.execute(f"CREATE TABLE {schema}.person (id bigint)")
        server.execute(f"CREATE TABLE {schema}.shelf (shelf_id integer, name varchar(20), size integer)")
        with server.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {schema}.sales VALUES (%s, %s, %s, %s)", [*rows])
            cursor.executemany(f"INSERT INTO {schema}.shelf VALUES (%s, %s, %s)", SHELVES)
    monkeypatch.setenv("KEYS_DSN", postgres.dsn)
    return star("postgresql", "${KEYS_DSN}", {name: f"{schema}.{name}" for name in FILES})


def test_postgresql_counts_as_plain_python_does(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sales(random.Random(5))
    catalog = keyed_in_postgres(postgres, "keyed", rows, monkeypatch)
    for name, per_unit, counts in columns_of(catalog, LISTED):
        assert counts == expected(rows, name, per_unit, LISTED.get(name, ())), name


def test_spark_counts_as_plain_python_does(spark: Any, tmp_path: Path) -> None:
    rows = sales(random.Random(6))
    write(tmp_path, rows)
    tables = {name: str(tmp_path / place) for name, place in FILES.items()}
    for name, per_unit, counts in columns_of(star("spark", "", tables), LISTED):
        assert counts == expected(rows, name, per_unit, LISTED.get(name, ())), name


def test_clickhouse_counts_as_plain_python_does(clickhouse: Path, tmp_path: Path) -> None:
    rows = sales(random.Random(8))
    write(tmp_path, rows)
    copied(clickhouse, "keyed", {name: tmp_path / place for name, place in FILES.items()})
    tables = {name: f"keyed.{name}" for name in FILES}
    for name, per_unit, counts in columns_of(star("clickhouse", str(clickhouse), tables), LISTED):
        assert counts == expected(rows, name, per_unit, LISTED.get(name, ())), name


KEYS_OF_BOUNDED_ROWS = "row_number() OVER (PARTITION BY unit ORDER BY k) <= 3"
"""The first `max_ids` rows of a unit by their keys, where the method takes the keys of all her rows."""


def unlike_python(folder: Path, seed: int = 7) -> set[str]:
    """Columns whose counts in DuckDB are not those of plain Python."""
    rows = sales(random.Random(seed))
    write(folder, rows)
    columns = columns_of(star("parquet", str(folder), FILES), {})
    return {name for name, per_unit, counts in columns if counts != expected(rows, name, per_unit)}


class TestPlanted:
    """Each defect gives counts that plain Python does not."""

    def test_nothing_is_found_without_a_defect(self, tmp_path: Path) -> None:
        assert unlike_python(tmp_path) == set()

    def test_keys_of_bounded_rows(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shipped = summaries._keys
        monkeypatch.setattr(
            summaries,
            "_keys",
            lambda *given: f"SELECT * FROM ({shipped(*given)}) AS b QUALIFY {KEYS_OF_BOUNDED_ROWS}",
        )
        assert "sales.item" in unlike_python(tmp_path)

    def test_another_row_of_a_key_that_stands_twice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By the bytes of the key alone, where views go by the listed leaves first."""
        shipped = selection.leaf_of_row

        def unordered(*given: Any) -> Any:
            leaf = shipped(*given)
            return leaf._replace(digit=leaf.digit._replace(sql="0"))

        monkeypatch.setattr(selection, "leaf_of_row", unordered)
        assert unlike_python(tmp_path) == {"shelf.name"}

    @pytest.mark.parametrize("cleaning", by_default(CLEANINGS, 1))
    def test_cleaning_of_one_engine(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cleaning: str
    ) -> None:
        monkeypatch.setattr(selection, "key_sql", otherwise(cleaning))
        assert {"sales.item", "shelf.name"} & unlike_python(tmp_path)

    @pytest.mark.parametrize("cleaning", by_default(CLEANINGS, 1))
    def test_cleaning_of_postgresql(
        self, postgres: Server, monkeypatch: pytest.MonkeyPatch, cleaning: str
    ) -> None:
        rows = sales(random.Random(5))
        catalog = keyed_in_postgres(postgres, f"planted_{cleaning}", rows, monkeypatch)
        monkeypatch.setattr(selection, "key_sql", otherwise(cleaning))
        (counts,) = [w for name, _, w in columns_of(catalog, LISTED) if name == "sales.item"]
        assert counts != expected(rows, "sales.item", 20, LISTED["sales.item"])
