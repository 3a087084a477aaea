"""Neighbours that differ in one person alone, where a source once made more of her: measurements that defects fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import duckdb

from dpsql.engines import values
from tests.privacy.loss import Loss, measure_sources

HEAD = """
dpsql: 1
name: shop
ledger: LEDGER
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet, person: person.parquet}}
privacy: {lineage: p, cap: 9, unit: person.id, epsilon: 1}
tables:"""
CATALOG = f"""{HEAD}
  person: {{role: dimension, key: id, private: true, columns: {{age: {{type: int, lower: 0, upper: 7}}}}}}
  sales: {{role: fact, foreign_keys: {{buyer: person}}, max_ids: 1, columns: {{
    region: {{type: string, categories: [north, south], nullable: true}},
    amount: {{type: decimal, scale: 1, lower: 0, upper: 9, measure: true}}}}}}
views:
  v: {{of: sales, axes: [person.age, sales.region], measures: [count, sales.amount], mechanism: identity}}
"""
PEOPLE = 30
SPELLINGS = ["".join(letters) for letters in product("aA", "nN", "nN", "aA")]


def measured(
    folder: Path, left: Callable[[Path], dict[str, Any]], right: Callable[[Path], dict[str, Any]]
) -> Loss:
    """The loss of two sides, each written by a function of its folder that gives the catalog's source."""
    return measure_sources(CATALOG, lambda place, _: left(place), lambda place, _: right(place), folder)


def copied(place: Path, **files: str) -> None:
    """Parquet files by SELECT; `__` stands for a slash in names that have none."""
    for name, sql in files.items():
        file = place / f"{name if '/' in name else name.replace('__', '/')}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        duckdb.execute(f"COPY ({sql}) TO '{file}' (FORMAT parquet)")


EVERYBODY = f"SELECT i AS id, 3 AS age FROM range({PEOPLE}) t(i)"


def fractions_after_whole_amounts(folder: Path) -> Loss:
    """One amount of 1.5 in January, whose other amounts are whole; everybody's February has fractions."""

    def write(place: Path, january: str) -> dict[str, Any]:
        february = (
            f"SELECT i AS buyer, 'north' AS region, 2.4::DECIMAL(6,1) AS amount FROM range({PEOPLE}) t(i)"
        )
        copied(place, person=EVERYBODY, sales__1=january, sales__2=february)
        return {"root": str(place), "tables": {"sales": "sales/*.parquet", "person": "person.parquet"}}

    none = "SELECT 0 AS buyer, 'north' AS region, CAST(1 AS INTEGER) AS amount WHERE false"
    one = "SELECT 99 AS buyer, 'north' AS region, CAST(1.5 AS DECIMAL(4,1)) AS amount"
    return measured(folder, lambda place: write(place, one), lambda place: write(place, none))


def database(place: Path, *statements: str) -> dict[str, Any]:
    """A DuckDB file made anew by some statements."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "shop.duckdb").unlink(missing_ok=True)
    with duckdb.connect(str(place / "shop.duckdb")) as raw:
        for statement in statements:
            raw.execute(statement)
    return {
        "kind": "duckdb", "root": str(place / "shop.duckdb"), "tables": {"sales": "sales", "person": "person"}
    }  # fmt: skip


def row_of_a_person_without_sales(kind: str) -> tuple[Sequence[str], str]:
    """Sixteen people's sales, who differ by case alone and have no row of their own; then one row of a person."""
    sales = ", ".join(f"('{text}', 'north', 1)" for text in SPELLINGS[1:])
    return (
        f"CREATE TABLE person (id {kind}, age INTEGER)",
        f"CREATE TABLE sales (buyer {kind}, region VARCHAR(9), amount DECIMAL(4,1))",
        f"INSERT INTO sales VALUES {sales}",
    ), "INSERT INTO person VALUES ('anna', 5)"


def spelt_alike(folder: Path) -> Loss:
    """Under a collation a join would give her everybody's sales."""
    tables, person = row_of_a_person_without_sales("VARCHAR COLLATE NOCASE")
    return measured(
        folder, lambda place: database(place, *tables, person), lambda place: database(place, *tables)
    )


def file_beside_folders(folder: Path) -> Loss:
    """One person's sale lies beside the folders `region=north` and `region=south`."""

    def write(place: Path, *, beside: bool) -> dict[str, Any]:
        rows = f"SELECT i AS buyer, 1.0 AS amount FROM range({PEOPLE}) t(i)"
        files = {
            f"sales/region={name}/1": f"{rows} WHERE i % 2 = {k}" for k, name in enumerate(("north", "south"))
        }
        more = {"sales/2": "SELECT 99::BIGINT AS buyer, 1.0 AS amount"} if beside else {}
        copied(place, person=EVERYBODY, **files, **more)
        tables = {"sales": "sales/**/*.parquet", "person": "person.parquet"}
        return {"root": str(place), "tables": tables, "hive": {"sales": ["region"]}}

    return measured(folder, lambda place: write(place, beside=True), lambda place: write(place, beside=False))


def rules_with(source: str, stored: str, kind: str, key: str) -> tuple[values.StoredType, ...]:
    """The table of source values, where keys of some stored types leave by another expression.

    Args:
        source: of the stored types.
        stored: what their pattern holds.
        kind, key: the type and the SQL of a key.
    """
    return tuple(
        replace(rule, key=(kind, key)) if source in rule.sources and stored in rule.pattern else rule
        for rule in values.TYPES
    )
