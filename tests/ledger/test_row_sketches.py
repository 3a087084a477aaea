"""A table that was renamed and has a row more is known again; the refusal is said once, and costs no epsilon."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from dpsql import api
from dpsql.central.central import Published
from dpsql.curator.audit import forget_people
from dpsql.errors import LineageError
from dpsql.ledger.rules import FEWEST_ROWS
from dpsql.ledger.store import budget_report
from tests.command import dpsql_command
from tests.thinned import by_default

CATALOG = """
dpsql: 1
name: shop
source: {kind: KIND, root: ROOT, tables: {visits: "WHERE"}}
privacy: {lineage: LINEAGE, cap: 9, unit: row, epsilon: 1}
ledger: LEDGER
tables:
  visits: {role: fact, columns: {COLUMNS}}
views: {counts: {of: visits, axes: [visits.AXIS]}}
"""
ROWS = "SELECT CAST(i % 10 AS INTEGER) AS age, CAST(i % 7 AS INTEGER) AS size, i AS id FROM range({}) AS t(i)"
MORE = " UNION ALL SELECT 3, 3, -1"
AGE, SIZE = "age: {type: int, lower: 0, upper: 9}", "size: {type: int, lower: 0, upper: 6}"
ALIKE = r"\(private\) table 'visits' has nearly all rows of a table that lineage 'first' has published; name lineage"


class Curator:
    """Publishes a table of some place to a lineage of one ledger; each release in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ledger, self.number = folder, folder / "ledger.duckdb", 0

    def catalog(self, place: Path, lineage: str, kind: str, columns: str) -> Path:
        root, where = (place.parent, place.name) if kind == "parquet" else (place, "visits")
        if kind == "duckdb":
            with duckdb.connect(str(place), read_only=True) as connection:
                where = str(connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()[0][0])
        text = CATALOG
        for word, value in {"KIND": kind, "ROOT": root, "WHERE": where, "LINEAGE": lineage, "LEDGER": self.ledger,
                            "COLUMNS": columns, "AXIS": columns.partition(":")[0]}.items():  # fmt: skip
            text = text.replace(word, str(value))
        self.number += 1
        out = self.folder / f"out{self.number}"
        out.mkdir()
        (out / "catalog.yaml").write_text(text, encoding="utf-8")
        return out / "catalog.yaml"

    def publish(
        self, place: Path, lineage: str, kind: str = "parquet", columns: str = AGE, **options: object
    ) -> Published:
        catalog = self.catalog(place, lineage, kind, columns)
        return api.publish(catalog, catalog.parent / "r.dpsql", **options)  # type: ignore[arg-type]

    def lineages(self) -> list[str]:
        return [report.lineage.name for report in budget_report(self.ledger).lineages]


@pytest.fixture
def curator(publishes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Curator:
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / "state"))
    return Curator(tmp_path)


def write(place: Path, rows: str) -> Path:
    place.parent.mkdir(exist_ok=True)
    duckdb.sql(f"COPY ({rows}) TO '{place}' (FORMAT parquet)")
    return place


def database(place: Path, table: str, rows: str) -> Path:
    with duckdb.connect(str(place)) as connection:
        connection.execute(f"CREATE TABLE {table} AS {rows}")
    return place


def renamed_file(folder: Path, rows: str) -> tuple[Path, Path]:
    first = write(folder / "visits.parquet", rows)
    return first, folder / "people.parquet"


def renamed_folder(folder: Path, rows: str) -> tuple[Path, Path]:
    first = write(folder / "visits" / "a.parquet", rows)
    return first.parent, folder / "people"


def hard_link(folder: Path, rows: str) -> tuple[Path, Path]:
    first, second = renamed_file(folder, rows)
    os.link(first, second)
    return first, second


def another_spelling(folder: Path, rows: str) -> tuple[Path, Path]:
    """Columns and rows in another order, and other columns declared."""
    return write(folder / "visits.parquet", rows), folder / "turned.parquet"


CHANGES: dict[str, Callable[[Path, str], tuple[Path, Path]]] = {
    "file": renamed_file, "folder": renamed_folder, "link": hard_link, "order": another_spelling,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "more"), by_default([(change, more) for more in (MORE, "") for change in CHANGES], 2)
)
def test_a_renamed_table_is_refused_under_another_lineage(curator: Curator, change: str, more: str) -> None:
    rows = ROWS.format(2000)
    first, second = CHANGES[change](curator.folder, rows)
    curator.publish(first, "first", confirm=True)
    if change == "order":
        write(second, f"SELECT id, size, age FROM ({rows}{more}) ORDER BY random()")
    elif change == "folder":
        first.rename(second)
        write(second / "a.parquet", rows + more)
    elif change == "file":
        first.unlink()
        write(second, rows + more)
    elif more:
        write(first, rows + more)  # DuckDB writes a fresh file: the link keeps the rows as they were
        shutil.copyfile(first, second)
    columns = SIZE if change == "order" else AGE
    known = ALIKE if change == "order" or more else "has the same rows as a table of lineage 'first'|" + ALIKE
    with pytest.raises(LineageError, match=known):
        curator.publish(second, "second", columns=columns, confirm=True)
    assert curator.lineages() == ["first"], "nothing is charged"


@pytest.mark.parametrize("more", ["", MORE], ids=["same", "one more"])
def test_a_table_renamed_within_a_database_is_refused(curator: Curator, more: str) -> None:
    place = database(curator.folder / "shop.duckdb", "visits", ROWS.format(2000))
    curator.publish(place, "first", "duckdb")
    with duckdb.connect(str(place)) as connection:
        connection.execute("ALTER TABLE visits RENAME TO people")
        if more:
            connection.execute("INSERT INTO people VALUES (3, 3, -1)")
    known = ALIKE if more else "has the same rows as a table of lineage 'first'"
    with pytest.raises(LineageError, match=known):
        curator.publish(place, "second", "duckdb", confirm=True)


def test_a_verdict_is_said_once_and_words_change_it(curator: Curator) -> None:
    first, second = renamed_file(curator.folder, ROWS.format(2000))
    curator.publish(first, "first")
    write(second, ROWS.format(2000) + MORE)
    with pytest.raises(LineageError, match=ALIKE):
        curator.publish(second, "second", confirm=True)
    write(second, ROWS.format(700).replace("i % 7", "i % 5"))
    # the rows are others now, which nobody learns by asking again
    with pytest.raises(LineageError, match=ALIKE):
        curator.publish(second, "second", confirm=True)
    curator.publish(second, "second", other_people="a panel that repeats the first one's answers")
    write(second, ROWS.format(2001) + MORE)
    curator.publish(second, "second", confirm=True)
    with duckdb.connect(str(curator.ledger)) as connection:
        rows = connection.execute("SELECT verdict, reason FROM row_verdict").fetchall()
    assert rows == [("stated", "a panel that repeats the first one's answers")]


def test_others_and_small_tables_are_taken_and_apart_stays_apart(curator: Curator) -> None:
    first, second = renamed_file(curator.folder, ROWS.format(2000))
    curator.publish(first, "first")
    write(second, ROWS.format(2000).replace("i AS id", "i + 9000 AS id") + MORE)
    curator.publish(second, "second", confirm=True)
    small = write(curator.folder / "small.parquet", ROWS.format(FEWEST_ROWS - 1))
    curator.publish(small, "small")
    smaller = write(curator.folder / "smaller.parquet", ROWS.format(FEWEST_ROWS - 2))
    curator.publish(smaller, "smaller", confirm=True)
    with duckdb.connect(str(curator.ledger)) as connection:
        verdicts = connection.execute("SELECT DISTINCT verdict FROM row_verdict").fetchall()
        lengths = dict(
            connection.execute("SELECT lineage, len(CAST(hashes AS JSON[])) FROM row_sketch").fetchall()
        )
    assert verdicts == [("apart",)]
    assert lengths == {"first": 64, "second": 64, "small": 0, "smaller": 0}


def test_only_a_terminal_or_the_option_compares(curator: Curator) -> None:
    first, second = renamed_file(curator.folder, ROWS.format(2000))
    curator.publish(first, "first")
    write(second, ROWS.format(2000) + MORE)
    catalog = curator.catalog(second, "second", "parquet", AGE)
    command = ("publish", catalog, "-o", catalog.parent / "r.dpsql")
    refused = dpsql_command(*command, "--confirm")
    assert refused.returncode == 3 and refused.stderr.startswith(
        "dpsql: (private) table 'visits' has nearly all rows"
    )
    assert dpsql_command(*command).returncode == 0, "a timer: nobody reads what it says"


def test_sketches_are_erased(curator: Curator) -> None:
    first, second = renamed_file(curator.folder, ROWS.format(2000))
    curator.publish(first, "first")
    assert forget_people(curator.ledger, ["anybody"], None).erased == 1
    assert forget_people(curator.ledger, ["anybody"], None).erased == 0
    write(second, ROWS.format(2000) + MORE)
    curator.publish(second, "second", confirm=True)
