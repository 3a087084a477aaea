"""No message, log, traceback or ledger holds what a private source holds: canaries in every place of sources."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.errors import Error
from tests.command import dpsql_command
from tests.ledger import test_spend_memory
from tests.thinned import by_default

CANARY = "Zebra4711"
"""In names of columns, values, types, SQL and bytes; nowhere in a catalog."""

CATALOG = """
dpsql: 1
name: shop
source: {kind: KIND, root: ROOT, TRUSTED tables: {visits: "VISITS", shops: "SHOPS"}}
privacy: {lineage: shop, cap: 4, unit: row, epsilon: 1}
tables:
  visits:
    role: fact
    foreign_keys: {shop_id: shops}
    columns: {age: {type: int, lower: 0, upper: 9}}
    measures: {cents: {expr: "age * 100", lower: 0, upper: 900}}
  shops: {role: dimension, key: shop_id, private: false, columns: {city: {type: string}}}
views:
  ages: {of: visits, axes: [visits.age], measures: [count, visits.cents]}
  cities: {of: visits, axes: [{axis: shops, by: [city]}]}
"""
VISITS = "SELECT i % 10 AS age, i % 3 AS shop_id FROM range(60) AS t(i)"
SHOPS = "SELECT i AS shop_id, 'c' || i AS city FROM range(3) AS t(i)"


def catalog(
    folder: Path,
    kind: str = "csv",
    root: str = "raw",
    visits: str = "",
    shops: str = "",
    trusted: bool = False,
) -> Path:
    ending, text = "" if kind == "duckdb" else f".{kind}", CATALOG
    words = {
        "KIND": kind,
        "ROOT": root,
        "VISITS": visits or f"visits{ending}",
        "SHOPS": shops or f"shops{ending}",
    }
    for word, value in (words | {"TRUSTED": "trusted: true," * trusted}).items():
        text = text.replace(word, value)
    (folder / "catalog.yaml").write_text(text, encoding="utf-8")
    return folder / "catalog.yaml"


def files(
    ending: str = "csv", visits: str = VISITS, shops: str = SHOPS, place: str = "", **raw: str | bytes
) -> Callable[[Path], Path]:
    """Files of both tables, of which some hold other bytes; visits may lie in another place."""

    def make(folder: Path) -> Path:
        for name, rows in (("visits", visits), ("shops", shops)):
            duckdb.sql(f"COPY ({rows}) TO '{folder}/raw/{name}.{ending}' (FORMAT {ending})")
        for name, content in raw.items():
            file = folder / "raw" / f"{name.removesuffix('_file')}.{ending}"
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return catalog(folder, ending, visits=place)

    return make


def parquet(visits: str = VISITS, shops: str = SHOPS) -> Callable[[Path], Path]:
    return files("parquet", visits, shops)


def database(*statements: str, visits: str = "visits", trusted: bool = False) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        with duckdb.connect(str(folder / "raw" / "s.duckdb")) as connection:
            connection.execute(f"CREATE TABLE visits AS {VISITS}; CREATE TABLE shops AS {SHOPS}")
            for statement in statements:
                connection.execute(statement)
        return catalog(folder, "duckdb", "raw/s.duckdb", visits, trusted=trusted)

    return make


def several(folder: Path) -> Path:
    (folder / "raw" / "v").mkdir()
    duckdb.sql(f"COPY ({VISITS}) TO '{folder}/raw/v/a.parquet'")
    duckdb.sql(f"COPY (SELECT '{CANARY}' AS age, 1 AS shop_id) TO '{folder}/raw/v/b.parquet'")
    return files("parquet", place="v/*.parquet")(folder)


def selected(statement: str) -> Callable[[Path], Path]:
    rows = f"SELECT '{CANARY}' AS {CANARY}, '{CANARY}' AS note, * FROM ({VISITS})"
    return files("parquet", rows, place=statement)


def strangers(kind: str, root: str, place: str) -> Callable[[Path], Path]:
    """A catalog of somebody else that names a file of the reader."""

    def make(folder: Path) -> Path:
        (folder / "secret.txt").write_text(f"{CANARY}:x:0,{CANARY}\nsecond,{CANARY}\n", encoding="utf-8")
        return catalog(folder, kind, root, visits=place, shops=place)

    return make


ROW = f"4711,{CANARY},HIV,1\n4712,{CANARY} B.,flu,2\n"
TYPE = f"CREATE TYPE ill AS ENUM ('{CANARY}', 'flu')"
SOURCES: dict[str, Callable[[Path], Path]] = {
    "no header": files(visits_file=ROW),
    "no header of a public table": files(shops_file=ROW),
    "no header, a name twice": files(visits_file=f"1,{CANARY},{CANARY}\n"),
    "no header, an empty field": files(visits_file=f"1,,{CANARY}\n"),
    "one line": files(visits_file=CANARY),
    "no text": files(visits_file=f"age,shop_id\n\xff{CANARY}\0\n".encode("latin-1")),
    "lines that are not rows": files(shops_file=f"shop_id,city\n1,{CANARY},3\n"),
    "a key twice": files(shops_file=f"shop_id,city\n{CANARY},x\n{CANARY},y\n"),
    "a key that is NULL": files(shops_file=f"shop_id,city\n,{CANARY}\n1,x\n"),
    "texts in a column of numbers": files(visits_file=f"age,shop_id\n{CANARY},{CANARY}\n3,1\n"),
    "no Parquet file": files("parquet", visits_file=f"PAR1{CANARY}PAR1"),
    "a cut Parquet file": files("parquet", visits_file=f"{CANARY}".encode() * 400 + b"PAR1"),
    "columns of other names": parquet(f"SELECT i AS {CANARY} FROM range(9) AS t(i)"),
    "public columns of other names": parquet(shops=f"SELECT i AS shop_id, 1 AS {CANARY} FROM range(3) AS t(i)"),
    "keys of another type": parquet(f"SELECT i AS age, '{CANARY}' AS shop_id FROM range(9) AS t(i)"),
    "a structure": parquet(f"SELECT {{'{CANARY}': 1}} AS age, {{'{CANARY}': 1}} AS shop_id FROM range(9)"),
    "a derived column in the source": parquet(f"SELECT 1 AS age, 1 AS shop_id, '{CANARY}' AS cents"),
    "files of several types": several,
    "a cast that fails": selected("SELECT CAST(note AS INTEGER) AS age, shop_id FROM 'visits.parquet'"),
    "a column that is not there": selected("SELECT Zebra AS age, shop_id FROM 'visits.parquet'"),
    "a file that is not there": selected("SELECT age, shop_id FROM 'visit.parquet'"),
    "an enumeration": database(TYPE, "CREATE TABLE v AS SELECT 1 AS age, CAST('flu' AS ill) AS shop_id", visits="v"),
    "an enumeration that is counted": database(
        TYPE, "CREATE TABLE v AS SELECT CAST('flu' AS ill) AS age, 1 AS shop_id", visits="v"),
    "a view": database(f"CREATE VIEW v AS SELECT '{CANARY}' AS age, 1 AS shop_id", visits="v"),
    "a view that fails": database(
        f"CREATE VIEW v AS SELECT CAST('{CANARY}' || age AS INTEGER) AS age, shop_id FROM visits", visits="v",
        trusted=True),
    "a view that raises": database(
        f"CREATE VIEW v AS SELECT CASE WHEN age > 3 THEN error('{CANARY}') ELSE age END AS age, shop_id FROM visits",
        visits="v", trusted=True),
    "a view over what is gone": database(
        f"CREATE TABLE {CANARY} AS SELECT 1 AS age, 1 AS shop_id", f"CREATE VIEW v AS SELECT * FROM {CANARY}",
        f"DROP TABLE {CANARY}", visits="v", trusted=True),
    "a macro": database(
        f"CREATE MACRO m() AS CAST('{CANARY}' AS INTEGER)", "CREATE VIEW v AS SELECT m() AS age, 1 AS shop_id",
        visits="v", trusted=True),
    "a stranger's CSV": strangers("csv", ".", "secret.txt"),
    "a stranger's Parquet": strangers("parquet", ".", "secret.txt"),
    "a stranger's DuckDB": strangers("duckdb", "secret.txt", "visits"),
    "a stranger's SELECT": strangers("csv", ".", "SELECT age, shop_id FROM 'secret.txt'"),
}  # fmt: skip


def everywhere(folder: Path) -> list[str]:
    """Files of a folder whose bytes hold the canary, but for the sources."""
    kept = (f for f in folder.rglob("*") if f.is_file() and f.name != "secret.txt" and "raw" not in f.parts)
    return [str(file) for file in kept if CANARY.encode() in file.read_bytes()]


@pytest.mark.parametrize("source", by_default(SOURCES.values(), 6), ids=SOURCES)
def test_no_message_log_or_ledger_holds_a_value(
    tmp_path: Path, source: Callable[[Path], Path], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "raw").mkdir()
    file = source(tmp_path)
    assert CANARY not in file.read_text(encoding="utf-8")
    with caplog.at_level(logging.DEBUG):
        told: list[str] = []
        try:
            made = dpsql.publish(file, tmp_path / "r.dpsql", progress=lambda step: told.append(str(step)))
            told.append(made.summary())
        except Error as error:
            told += traceback.format_exception(error)
        ended = dpsql_command("publish", str(file), "-o", str(tmp_path / "s.dpsql"), "--json")
    told += [ended.stdout, ended.stderr, *(record.getMessage() for record in caplog.records)]
    assert not any(CANARY.lower() in text.lower() for text in told), "\n".join(told)
    assert not everywhere(tmp_path)


def test_a_file_without_a_header_is_named_by_how_many_columns_it_has(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    ended = dpsql_command("publish", str(SOURCES["no header"](tmp_path)), "-o", str(tmp_path / "r.dpsql"))
    assert "tables.visits: the source has no column `" in ended.stderr
    assert "it has 4 columns; if it is a CSV file, does it have a header?" in ended.stderr


STREAM = test_spend_memory.STREAM.replace("root: raw", "kind: csv, root: raw").replace(
    "visits.parquet", "visits.csv"
)
BATCHES = {
    "no header": f"4,2026-01-02,{CANARY}\n",
    "no time": f"age,{CANARY}\n1,{CANARY}\n",
    "no day": f"age,day\n1,{CANARY}\n",
    "another column": f"day,{CANARY}\n2026-01-02,{CANARY}\n",
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_nor_does_one_about_a_batch(tmp_path: Path, batch: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "visits.csv").write_text("age,day\n1,2026-01-01\n2,2026-01-01\n", encoding="utf-8")
    (tmp_path / "catalog.yaml").write_text(STREAM, encoding="utf-8")
    stream, file, told = tmp_path / "s.dpsql", tmp_path / "catalog.yaml", []
    dpsql.append(stream, None, "2026-01-01", catalog=file)
    (tmp_path / "raw" / "day.csv").write_text(batch, encoding="utf-8")
    with caplog.at_level(logging.DEBUG):
        try:
            made = dpsql.append(stream, tmp_path / "raw" / "day.csv", "2026-01-02", catalog=file)
            told.append(made.summary())
        except Error as error:
            told += traceback.format_exception(error)
    told += [record.getMessage() for record in caplog.records]
    assert told and not any(CANARY.lower() in text.lower() for text in told), "\n".join(told)
    assert not everywhere(tmp_path)


UNREADABLE = {
    "a database": ("s.duckdb", CANARY.encode() * 300),
    "a Parquet file": ("s.parquet", b"PAR1" + CANARY.encode() * 300 + b"PAR1"),
    "a CSV file": ("s.csv", f"1,,{CANARY}\n{CANARY}\n".encode()),
    "bytes as CSV": ("s.csv", b"\xff\xfe" + CANARY.encode("utf-16-le")),
}


@pytest.mark.parametrize(("name", "content"), UNREADABLE.values(), ids=UNREADABLE)
def test_nor_does_one_of_a_draft(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    ended = dpsql_command("init", str(tmp_path / name), "-o", str(tmp_path / "shop.yaml"))
    if not (tmp_path / "shop.yaml").exists():
        assert ended.returncode != 0
        assert CANARY not in ended.stdout + ended.stderr


SPOOLS = {
    "lines": ("r.jsonl", json.dumps({"report": CANARY, CANARY: 1}) + "\n" + CANARY + "\n"),
    "a table": ("r.csv", f"report,token\n{CANARY},{CANARY}\n"),
    "no header": ("r.csv", f"{CANARY},{CANARY}\n"),
}


@pytest.mark.parametrize(("name", "content"), SPOOLS.values(), ids=SPOOLS)
def test_nor_does_one_about_reports(tmp_path: Path, name: str, content: str) -> None:
    survey = """
dpsql: 1
name: survey
privacy: {lineage: people, cap: 4, unit: person.id, epsilon: 1}
tables: {person: {role: dimension, key: id, columns: {age: {type: int, lower: 0, upper: 9}}}}
views: {ages: {of: person, axes: [person.age]}}
collection: {epsilon: 1}
"""
    (tmp_path / "survey.yaml").write_text(survey, encoding="utf-8")
    (tmp_path / name).write_text(content, encoding="utf-8")
    made, out = str(tmp_path / "plan.json"), str(tmp_path / "out.dpsql")
    plan = dpsql_command("collection-plan", str(tmp_path / "survey.yaml"), "--people", "100", "-o", made)
    ended = dpsql_command("collect", made, str(tmp_path / name), "-o", out, "--json")
    assert plan.returncode == 0, plan.stderr
    assert CANARY not in ended.stdout + ended.stderr + plan.stdout + plan.stderr
