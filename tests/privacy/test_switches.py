"""Canaries: what DuckDB does once a switch of the raw side is taken back.

Each case measures a whole release twice, with the switch and without. If a new DuckDB no longer misbehaves without it,
the second half fails: then the switch may go, or the case no longer meets what it was made for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path
from unittest import mock

import duckdb
import numpy as np
import pytest

from dpsql.catalog.source import PARQUET
from dpsql.engines import duck, open_sources
from dpsql.engines.duck import SWITCHED_OFF, no_sources
from dpsql.errors import EngineLost
from tests.privacy.loss import Bytes, RawRows, measure

CATALOG = """
dpsql: 1
name: shop
ledger: LEDGER
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet}}
privacy: {lineage: people, cap: 9, unit: row, epsilon: 1}
tables:
  sales: {role: fact, COLUMNS}
views:
  days: {of: sales, axes: [sales.day], measures: [count, sales.amount]}
"""
BOUNDED = """columns: {day: {type: int, lower: 0, upper: 9},
    amount: {type: decimal, scale: 2, lower: 0, upper: 9, measure: true}}"""
DERIVED = """columns: {word: {type: string}, day: {type: int, lower: 0, upper: 9}},
    derive: {day: CAST(word AS INT) + 1},
    measures: {amount: {expr: CAST(word AS INT) * 2, lower: 0, upper: 9}}"""
GUARDED = """tables: {sales: "WITH s AS (SELECT word, word <> 'x' AS ok FROM 'sales.parquet') SELECT
    coalesce(CASE WHEN NOT ok THEN 0 END, CAST(word AS INT) + 1) AS day,
    coalesce(CASE WHEN NOT ok THEN 0 END, CAST(word AS INT) * 2) AS amount FROM s"}, trusted: true"""
"""A SELECT that runs as it stands; its curator has seen to the word that is no number."""


def untrue(folder: Path, rows: int, *amounts: int) -> Bytes:
    """A file of one honest row in five days, then of some amounts, under a footer that says that none is above 5."""
    kinds = "CAST(i % 5 AS BIGINT) AS day, CAST(amount AS DECIMAL(18, 2)) AS amount"
    odd = "".join(f" WHEN {rows + place} THEN {amount}" for place, amount in enumerate(amounts))
    contents = []
    with duckdb.connect() as raw:
        for amount in (f"CASE i{odd} ELSE 1 + i % 5 END" if odd else "1 + i % 5", "1 + i % 5"):
            raw.execute(
                f"COPY (SELECT {kinds} FROM (SELECT i, {amount} AS amount FROM range({rows + len(amounts)}) t(i))) "
                f"TO '{folder / 'file.parquet'}' (FORMAT parquet, COMPRESSION uncompressed, DICTIONARY_SIZE_LIMIT 1)"
            )
            contents.append((folder / "file.parquet").read_bytes())
    lies, honest = contents
    footer = len(honest) - 8 - struct.unpack("<I", honest[-8:-4])[0]
    assert len(lies) == len(honest)
    return Bytes("sales.parquet", lies[:footer] + honest[footer:])


def untrue_statistics(folder: Path) -> float:
    """One row beyond the bound, which the file denies."""
    left, right = untrue(folder, 100, 99_000), untrue(folder, 100)
    catalog = CATALOG.replace("COLUMNS", BOUNDED)
    return measure(catalog, {"sales": left}, {"sales": right}, folder / "sides").share


def word_that_is_no_number(folder: Path, catalog: str) -> float:
    """One row that expressions cannot read: where its publish stops, the neighbour's does not."""
    rows = RawRows("word VARCHAR", [(str(i % 5),) for i in range(50)])
    try:
        return measure(catalog, {"sales": rows.plus(("x",))}, {"sales": rows}, folder / "sides").share
    except EngineLost:
        return inf


IN_DERIVED_COLUMNS = CATALOG.replace("COLUMNS", DERIVED)
BEHIND_A_GUARD = CATALOG.replace("COLUMNS", BOUNDED).replace("tables: {sales: sales.parquet}", GUARDED)
"""Its COALESCE never comes to the word."""
CASES: dict[str, Callable[[Path], float]] = {
    "statistics_propagation": untrue_statistics,
    "common_subexpressions": lambda folder: word_that_is_no_number(folder, BEHIND_A_GUARD),
}


@contextmanager
def taken_back(switch: str) -> Iterator[None]:
    rest = tuple(name for name in SWITCHED_OFF if name != switch)
    with mock.patch.object(duck, "SWITCHED_OFF", rest):
        yield


def test_every_switch_has_its_case_and_is_off() -> None:
    assert set(CASES) == set(SWITCHED_OFF)
    with closing(no_sources()) as raw:
        (names,) = raw.connection.execute("SELECT current_setting('disabled_optimizers')").fetchone() or ("",)
    assert {name.strip() for name in names.split(",")} == set(CASES)


@pytest.mark.parametrize("switch", CASES)
def test_a_release_costs_its_claim_only_with_the_switch(tmp_path: Path, switch: str) -> None:
    for folder in ("with", "without"):
        (tmp_path / folder).mkdir()
    assert CASES[switch](tmp_path / "with") <= 1
    with taken_back(switch):
        assert CASES[switch](tmp_path / "without") > 1


def test_a_word_stays_in_its_try_without_the_switch_only_in_new_versions(tmp_path: Path) -> None:
    """DuckDB 2.0.0 takes what two TRYs share out of them, 2.0.1 no more; both do so to COALESCE. We promise both."""
    for folder in ("with", "without"):
        (tmp_path / folder).mkdir()
    assert word_that_is_no_number(tmp_path / "with", IN_DERIVED_COLUMNS) <= 1
    with taken_back("common_subexpressions"):
        lost = word_that_is_no_number(tmp_path / "without", IN_DERIVED_COLUMNS) > 1
    assert lost == (duckdb.__version__ == "2.0.0")


def test_variables_of_a_program_are_no_tables() -> None:
    """`python_enable_replacements`: a SELECT would read rows that the catalog never named."""
    people = {"id": np.array([1])}
    with closing(no_sources()) as raw, pytest.raises(duckdb.CatalogException):
        raw.connection.execute("SELECT count(*) FROM people")
    with duckdb.connect() as without:
        assert without.execute("SELECT count(*) FROM people").fetchone() == (1,)
    assert people is not None


def test_days_of_a_moment_do_not_follow_from_the_place_of_the_machine(tmp_path: Path) -> None:
    """`TimeZone`: one moment lies on two days."""
    with duckdb.connect() as file:
        file.execute(
            f"COPY (SELECT TIMESTAMPTZ '2025-01-01 02:00+00' AS moment) TO '{tmp_path / 'sales.parquet'}'"
        )
    day = "SELECT CAST(CAST(moment AS DATE) AS VARCHAR) FROM raw.sales"
    with closing(open_sources(PARQUET, tmp_path, {"sales": "sales.parquet"})) as raw:
        assert raw.connection.execute(day).fetchone() == ("2025-01-01",)
        raw.connection.execute("SET TimeZone = 'America/New_York'")
        assert raw.connection.execute(day).fetchone() == ("2024-12-31",)
