"""One table has one cap, however it is spelt; what lies beside a release neither hides a spend nor stops one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from dpsql.catalog import load_catalog
from dpsql.central.central import Published, publish_release
from dpsql.errors import IntegrityError, LineageError
from dpsql.ledger.store import budget_report
from dpsql.noise import ZeroNoise
from dpsql.release import FORMAT
from tests.thinned import by_default

CATALOG = """
dpsql: 1
name: shop
ledger: LEDGER
source: {kind: KIND, root: ROOT, trusted: TRUSTED, tables: {visits: "WHERE", shop: SHOPS}}
privacy: {lineage: LINEAGE, cap: 1, unit: row, epsilon: 1}
tables:
  visits: {role: fact, columns: {age: {type: int, lower: 0, upper: 9}}}
  shop: {role: dimension, key: shop, private: false, columns: {city: {type: string}}}
views: {ages: {of: visits, axes: [visits.age]}}
"""
ROWS = "SELECT i % 10 AS age, i AS id, i % 3 AS shop FROM range(200) AS t(i)"
JOINED = "SELECT v.age FROM '{}' v JOIN 'shop.parquet' s ON v.shop = s.shop"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A shop whose visits the lineage `first` has published."""
    (tmp_path / "raw").mkdir()
    write(tmp_path / "raw" / "visits.parquet", ROWS)
    write(tmp_path / "raw" / "shop.parquet", "SELECT i AS shop, 'x' AS city FROM range(3) AS t(i)")
    (tmp_path / "out").mkdir()
    publish(tmp_path, "visits.parquet", lineage="first")
    return tmp_path


def write(file: Path, rows: str) -> None:
    duckdb.sql(f"COPY ({rows}) TO '{file}' (FORMAT parquet)")


def publish(
    folder: Path, where: str, *, lineage: str = "second", root: Path | str | None = None, ledger: str = "ledger",
    kind: str = "parquet", trusted: bool = False,
) -> Published:  # fmt: skip
    """Publish the table that stands at a place under a lineage of its own."""
    words = {
        "WHERE": where.replace('"', '\\"'), "LINEAGE": lineage, "KIND": kind, "ROOT": root or folder / "raw",
        "LEDGER": folder / ledger, "TRUSTED": str(trusted).lower(), "SHOPS": "shop" + ".parquet" * (kind == "parquet"),
    }  # fmt: skip
    text = CATALOG
    for word, value in words.items():
        text = text.replace(word, str(value))
    catalog, target = folder / f"{lineage}.yaml", folder / "out" / f"{lineage}.dpsql"
    catalog.write_text(text, encoding="utf-8")
    return publish_release(load_catalog(catalog), target, noise=ZeroNoise(), key=bytes(32))


def copied(folder: Path, name: str, rows: str) -> str:
    write(folder / "raw" / name, rows)
    return name


def linked(folder: Path) -> str:
    (folder / "raw" / "link.parquet").symlink_to(folder / "raw" / "visits.parquet")
    return "link.parquet"


def hard(folder: Path) -> str:
    (folder / "raw" / "hard.parquet").hardlink_to(folder / "raw" / "visits.parquet")
    return "hard.parquet"


def byte_copy(folder: Path) -> str:
    shutil.copy(folder / "raw" / "visits.parquet", folder / "raw" / "same.parquet")
    return "same.parquet"


def overwritten(folder: Path) -> str:
    return copied(folder, "visits.parquet", "SELECT 3 AS age, 4 AS id, 1 AS shop")


SAME: dict[str, Callable[[Path], str]] = {
    "dot": lambda folder: "./visits.parquet",
    "up and down": lambda folder: "../raw/visits.parquet",
    "absolute": lambda folder: f"{folder}/raw/visits.parquet",
    "symbolic link": linked,
    "hard link": hard,
    "copy": byte_copy,
    "copy, other order": lambda folder: copied(folder, "b.parquet", f"{ROWS} ORDER BY random()"),
    "copy, columns turned": lambda folder: copied(folder, "b.parquet", f"SELECT shop, id, age FROM ({ROWS})"),
    "select": lambda folder: "SELECT * FROM 'visits.parquet'",
    "select of a part": lambda folder: "SELECT age FROM read_parquet('./visits.parquet') WHERE age < 5",
    "select of a copy": lambda folder: f"SELECT age FROM '{byte_copy(folder)}'",
    "select with a public table": lambda folder: JOINED.format("visits.parquet"),
    "other rows, same place": overwritten,
    "other rows, another spelling": lambda folder: f"../raw/{overwritten(folder)}",
}


@pytest.mark.parametrize("place", by_default(SAME.values(), 2), ids=SAME)
def test_one_table_has_one_cap(shop: Path, place: Callable[[Path], str]) -> None:
    where = place(shop)
    with pytest.raises(LineageError, match="lineage 'first'"):
        publish(shop, where)
    assert [report.lineage.name for report in budget_report(shop / "ledger").lineages] == ["first"]


def test_a_root_that_is_a_link_is_the_same_root(shop: Path) -> None:
    (shop / "elsewhere").symlink_to(shop / "raw")
    with pytest.raises(LineageError, match="'visits' belongs to lineage 'first'"):
        publish(shop, "visits.parquet", root=shop / "elsewhere")


@pytest.mark.parametrize(
    "root", by_default(["s.duckdb", "./s.duckdb", "out/../s.duckdb", "link.duckdb", "ABSOLUTE"], 2)
)
@pytest.mark.parametrize(
    "where", by_default(["visits", "VISITS", "SELECT * FROM visits", 'SELECT * FROM "Visits"',
                         "SELECT age FROM main.visits", 'SELECT * FROM "main"."VISITS" WHERE age > 3'], 3),
)  # fmt: skip
def test_a_table_of_a_database_file_has_one_cap(tmp_path: Path, where: str, root: str) -> None:
    (tmp_path / "out").mkdir()
    with duckdb.connect(str(tmp_path / "s.duckdb")) as connection:
        connection.execute(
            f"CREATE TABLE visits AS {ROWS}; CREATE TABLE shop AS SELECT 1 AS shop, 'x' AS city"
        )
    publish(tmp_path, "visits", lineage="first", root=tmp_path / "s.duckdb", kind="duckdb")
    # loaded anew: the digest of its rows is another
    with duckdb.connect(str(tmp_path / "s.duckdb")) as connection:
        connection.execute(f"DROP TABLE visits; CREATE TABLE visits AS {ROWS} LIMIT 150")
    (tmp_path / "link.duckdb").symlink_to("s.duckdb")
    with pytest.raises(LineageError, match="'visits' belongs to lineage 'first'"):
        spelt = root if root != "ABSOLUTE" else tmp_path / "s.duckdb"
        publish(tmp_path, where, root=spelt, kind="duckdb", trusted="main" in where)


def test_other_people_have_their_own_cap(shop: Path) -> None:
    """A public table that both read is nobody's, and tables without rows are not each other's copies."""
    copied(shop, "empty.parquet", f"{ROWS} LIMIT 0")
    copied(shop, "others.parquet", f"SELECT * FROM ({ROWS}) WHERE id > 7")
    assert publish(shop, "empty.parquet", lineage="third").receipt.drawn
    copied(shop, "void.parquet", f"{ROWS} LIMIT 0")
    assert publish(shop, "void.parquet", lineage="fourth").receipt.drawn
    assert publish(shop, JOINED.format("others.parquet")).receipt.drawn


def test_a_release_of_the_lineage_that_the_ledger_does_not_know_stops_spending(shop: Path) -> None:
    (shop / "out" / "first.dpsql").rename(shop / "out" / "older.dpsql")
    with pytest.raises(IntegrityError, match=r"does not know the release .*older\.dpsql"):
        publish(shop, "visits.parquet", lineage="first", ledger="a ledger made anew")
    (shop / "out" / "older.dpsql").rename(shop / "older.dpsql")
    assert publish(shop, "visits.parquet", lineage="first", ledger="a ledger made anew").receipt.drawn


def promise(folder: Path, **fields: object) -> None:
    folder.mkdir()
    text = {"release_id": "f" * 32, "catalog": {"privacy": {"lineage": "second"}}} | fields
    (folder / "promise.json").write_text(json.dumps(text), encoding="utf-8")


HOSTILE: dict[str, Callable[[Path], object]] = {
    "another lineage": lambda out: None,  # first.dpsql lies there
    "no database": lambda out: (out / "x.dpsql").write_bytes(b"x" * 4096),
    "empty": lambda out: (out / "x.dpsql").write_bytes(b""),
    "cut": lambda out: (out / "x.dpsql").write_bytes((out / "first.dpsql").read_bytes()[:9000]),
    "a pipe": lambda out: os.mkfifo(out / "x.dpsql"),
    "a link that turns in a circle": lambda out: (out / "x.dpsql").symlink_to("x.dpsql"),
    "a link": lambda out: (out / "x.dpsql").symlink_to("/dev/zero"),
    "an empty folder": lambda out: (out / "x.dpsql").mkdir(),
    "a promise of nothing": lambda out: promise(out / "x.dpsql", catalog=None),
    "a promise of lists": lambda out: promise(out / "x.dpsql", catalog={"privacy": ["lineage"]}),
    "a deep promise": lambda out: (
        promise(out / "x.dpsql"),
        (out / "x.dpsql/promise.json").write_text("[" * 10**5),
    ),
    "meta that is no object": lambda out: odd_meta(out / "x.dpsql", "[1]"),
    "meta of another shape": lambda out: odd_meta(out / "x.dpsql", '{"privacy": 3}'),
}


def odd_meta(file: Path, catalog: str) -> None:
    """A release of this format whose catalog is something else."""
    keys = ("release_id", "privacy", "axes", "statistics", "catalog")
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE TABLE meta (key VARCHAR, value VARCHAR)")
        rows = [(key, catalog) for key in keys] + [("format", json.dumps(FORMAT))]
        connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)


@pytest.mark.parametrize("plant", by_default(HOSTILE.values(), 2), ids=HOSTILE)
def test_files_beside_do_not_stop_a_publish(shop: Path, plant: Callable[[Path], object]) -> None:
    copied(shop, "others.parquet", "SELECT 1 AS age, 2 AS id, 3 AS shop")
    plant(shop / "out")
    assert publish(shop, "others.parquet").receipt.drawn


def test_somebody_elses_file_does_not_stop_a_publish(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that claims the lineage counts only if the one who publishes owns it."""
    copied(shop, "others.parquet", "SELECT 1 AS age, 2 AS id, 3 AS shop")
    promise(shop / "out" / "planted.dpsql")
    with pytest.raises(IntegrityError, match="planted"):
        publish(shop, "others.parquet")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert publish(shop, "others.parquet").receipt.drawn
