"""Bad input at the command line: one line that says what and what to do, the right exit code, nothing half-written."""

from __future__ import annotations

import subprocess
from pathlib import Path

import duckdb
import pytest

from tests.command import dpsql_command as dpsql

pytestmark = pytest.mark.long

CATALOG = """
dpsql: 1
name: shop
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet, product: product.parquet}}
privacy: {lineage: people, cap: 1.5, unit: row, epsilon: 1.0}
tables:
  product: {role: dimension, key: product_id, private: false}
  sales: {role: fact, foreign_keys: {product_id: product}, columns: {day: {type: int, lower: 0, upper: 9}}}
views:
  days: {of: sales, axes: [sales.day, {axis: product, by: [kind]}], measures: [count]}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    raw = duckdb.connect()
    raw.execute(
        f"COPY (SELECT i % 10 AS day, i % 3 AS product_id FROM range(100) t(i)) TO '{tmp_path}/sales.parquet'"
    )
    raw.execute(
        f"COPY (SELECT i AS product_id, 'k' || i AS kind FROM range(3) t(i)) TO '{tmp_path}/product.parquet'"
    )
    (tmp_path / "shop.yaml").write_text(CATALOG.replace("ROOT", str(tmp_path)))
    return tmp_path


def refused(result: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """One line on standard error (a caret may follow it), the exit code, and nothing on standard output."""
    first, *rest = result.stderr.splitlines()
    assert result.returncode == code, result.stderr
    assert first.startswith("dpsql: ")
    assert all(word in first for word in words), first
    assert result.stdout == ""
    assert all(set(line.strip()) <= {"^"} or line in result.args for line in rest), result.stderr


def edit(shop: Path, old: str, new: str) -> Path:
    file = shop / "shop.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    return file


def leftovers(shop: Path) -> list[str]:
    return [p.name for p in shop.iterdir() if p.suffix == ".dpsql" or p.name.endswith((".draft", ".copy"))]


def test_unknown_catalog_key(shop):
    file = edit(shop, "epsilon: 1.0", "epsilonn: 1.0")
    refused(
        dpsql("publish", file, "-o", shop / "a.dpsql"), 2, "shop.yaml", "epsilonn", "did you mean `epsilon`?"
    )
    assert leftovers(shop) == []


def test_duplicate_key_in_a_public_dimension(shop):
    duckdb.connect().execute(
        f"COPY (SELECT i % 2 AS product_id, 'k' AS kind FROM range(3) t(i)) TO '{shop}/product.parquet'"
    )
    refused(dpsql("publish", shop / "shop.yaml", "-o", shop / "a.dpsql"), 2, "product")
    assert leftovers(shop) == []


def test_cap_exceeded(shop):
    assert dpsql("publish", shop / "shop.yaml", "-o", shop / "a.dpsql").returncode == 0
    again = dpsql("publish", shop / "shop.yaml", "-o", shop / "b.dpsql")
    refused(again, 3, "people", "0.5", "left")
    assert leftovers(shop) == ["a.dpsql"]


def test_tables_of_a_known_lineage_must_name_it(shop):
    assert dpsql("publish", shop / "shop.yaml", "-o", shop / "a.dpsql").returncode == 0
    file = edit(shop, "lineage: people", "lineage: strangers")
    refused(dpsql("publish", file, "-o", shop / "b.dpsql"), 3, "people")


def test_a_release_that_exists_is_returned_or_refused(shop):
    target = shop / "a.dpsql"
    assert dpsql("publish", shop / "shop.yaml", "-o", target).returncode == 0
    before = target.read_bytes()
    again = dpsql("publish", shop / "shop.yaml", "-o", target)
    assert again.returncode == 0
    assert "nothing was drawn or charged" in again.stderr
    other = edit(shop, "upper: 9", "upper: 8")
    refused(dpsql("publish", other, "-o", target), 3, "specification")
    assert target.read_bytes() == before
    assert target.stat().st_mode & 0o777 == 0o444


def test_not_a_release_file(shop):
    (shop / "x.dpsql").write_text("no")
    refused(dpsql("query", shop / "x.dpsql", "SELECT 1"), 2, "not a dpsql release")
    refused(dpsql("query", shop / "none.dpsql", "SELECT 1"), 2, "no release")


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT COUNT(* FROM sales", ""),
        ("SELECT * FROM sales", "rows"),
        ("SELECT COUNT(*) FROM sales a JOIN sales b ON a.day = b.day", ""),
        ("SELECT COUNT(*) FROM sales WHERE colour = 1", "colour"),
        ("SELECT MAX(price) FROM sales", "price"),
        (
            "SELECT MIN() FROM sales",
            "",
        ),  # newer parsers read it and we refuse, older ones refuse it themselves
        ("DROP TABLE sales", ""),
    ],
)
def test_statements_that_are_refused(shop, sql, word):
    assert dpsql("publish", shop / "shop.yaml", "-o", shop / "a.dpsql").returncode == 0
    refused(dpsql("query", shop / "a.dpsql", sql), 1, word)
