"""A label is no equality test: publishing again under it shows the same whatever became of the data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from dpsql.interfaces.cli import cli
from tests.ledger.test_spend_memory import write

CATALOG = """
dpsql: 1
name: shop
source: {kind: parquet, root: raw, tables: {visits: visits.parquet}}
privacy: {lineage: shop, cap: 4, unit: row, epsilon: 1}
tables:
  visits: {role: fact, columns: {age: {type: int, lower: 0, upper: 9}}}
views: {ages: {of: visits, axes: [visits.age]}}
"""
TWO = "SELECT i % 10 AS age FROM range(200) AS t(i)"


class Shown(NamedTuple):
    """All that leaves a command, and what the ledger says afterwards."""

    code: int
    output: str
    errors: str
    budget: str


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    (tmp_path / "shop.yaml").write_text(CATALOG, encoding="utf-8")
    write(tmp_path, TWO)
    return tmp_path


def publish(folder: Path, *options: str) -> Shown:
    catalog, run = str(folder / "shop.yaml"), CliRunner()
    shown = run.invoke(cli, ["publish", catalog, "-o", str(folder / "shop.dpsql"), *options])
    return Shown(
        shown.exit_code, shown.stdout, shown.stderr, run.invoke(cli, ["budget", catalog, "--json"]).stdout
    )


CHANGES: dict[str, Callable[[Path], object]] = {
    "one row more": lambda folder: write(folder, f"{TWO} UNION ALL SELECT 3"),
    "no rows": lambda folder: write(folder, f"{TWO} LIMIT 0"),
    "another column": lambda folder: write(folder, "SELECT 7 AS years"),
    "damaged": lambda folder: (folder / "raw" / "visits.parquet").write_bytes(b"PAR1"),
    "gone": lambda folder: (folder / "raw" / "visits.parquet").unlink(),
}


@pytest.mark.parametrize(
    "options", [(), ("--label", "day one"), pytest.param(("--json",), marks=pytest.mark.slow)]
)
def test_nothing_tells_whether_the_data_are_the_same(shop: Path, options: tuple[str, ...]) -> None:
    assert publish(shop, *options).code == 0
    release = (shop / "shop.dpsql").read_bytes()
    same = publish(shop, *options)
    for what, change in CHANGES.items():
        change(shop)
        assert publish(shop, *options) == same, what
    assert same.code == 0
    assert (shop / "shop.dpsql").read_bytes() == release


def test_no_raw_row_is_opened_for_a_label_that_is_taken(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the time that it takes depends on them."""
    publish(shop)

    def opened(*_: object) -> None:
        raise AssertionError("the raw side was opened")

    monkeypatch.setattr("dpsql.engines.duck.private_connection", opened)
    assert publish(shop).code == 0


def test_the_command_says_how_today_is_published(shop: Path) -> None:
    made = json.loads(publish(shop, "--json").output)
    write(shop, "SELECT 3 AS age")
    again = json.loads(publish(shop, "--json").output)
    assert (again["drawn"], again["charged"], again["left"]) == (False, "0", "3")
    assert [again[key] for key in ("release_id", "statistics", "cells")] == [
        made[key] for key in ("release_id", "statistics", "cells")
    ]
    words = publish(shop).errors
    assert "data are not compared" in words and "--label" in words and "another output" in words
    assert json.loads(publish(shop, "--label", "tomorrow", "-o", str(shop / "b.dpsql"), "--json").output)[
        "drawn"
    ]
