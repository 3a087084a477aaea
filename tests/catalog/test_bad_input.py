"""Bad input at the command line: one line that says what and what to do, the right exit code, nothing half-written."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.command import dpsql_command as dpsql
from tests.releases import write_catalog, write_tables

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
    tables = {
        "sales": "SELECT i % 10 AS day, i % 3 AS product_id FROM range(100) t(i)",
        "product": "SELECT i AS product_id, 'k' || i AS kind FROM range(3) t(i)",
    }
    write_catalog(tmp_path, CATALOG, tables).rename(tmp_path / "shop.yaml")
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
    write_tables(shop, {"product": "SELECT i % 2 AS product_id, 'k' AS kind FROM range(3) t(i)"})
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
