"""Shown keys are texts of strangers: every way out escapes them, and every way in takes them as they are."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from dpsql.answer import Answerer
from dpsql.answer.output import render
from dpsql.doors import dbapi
from dpsql.doors.report import report_page
from dpsql.noise import ZeroNoise
from dpsql.publishing.central import publish_release
from dpsql.release import open_release
from dpsql.star import load_catalog
from dpsql.star.sql import literal

CATALOG = """
dpsql: 1
name: shop
source: {kind: parquet, root: ., tables: {sales: sales.parquet, person: person.parquet}}
privacy: {lineage: shop, cap: 8, epsilon: 2, unit: person.id, delta: 1e-5}
tables:
  person: {role: dimension, key: id, private: true}
  sales: {role: fact, max_ids: 1, foreign_keys: {id: person}, columns: {item: {type: string, categories: private}}}
views:
  items: {of: sales, axes: [sales.item], measures: [count]}
"""
FORMULAS = ("=1+cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)")
HOSTILE = (
    *FORMULAS, "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'; DROP TABLE sales; --",
    "a|b`c`[d](javascript:e)", "caf\u00e9", "cafe\u0301", "{{7*7}}", "%s${HOME}", "NULL", r"\n\x1b[31m", "*b* _c_ #d",
)  # fmt: skip
CLEANED = ("\x1b[31mred", "a\tb", "a\nb", "\u202eevil", "\x7f", "\x85")
"""Keys that are none: they command a terminal or turn the text around."""
EACH = 200


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, publishes: None) -> Iterator[tuple[Path, Answerer]]:
    folder = tmp_path_factory.mktemp("shop")
    rows = [key for key in (*HOSTILE, *CLEANED) for _ in range(EACH)]
    with duckdb.connect() as db:
        db.execute(
            "CREATE TABLE t AS SELECT * FROM (SELECT unnest($1) AS id, unnest($2) AS item)",
            [list(range(len(rows))), rows],
        )
        db.execute(f"COPY t TO '{folder / 'sales.parquet'}'")
        db.execute(f"COPY (SELECT id FROM t) TO '{folder / 'person.parquet'}'")
    (folder / "shop.yaml").write_text(CATALOG)
    publish_release(
        load_catalog(folder / "shop.yaml"), folder / "shop.dpsql", noise=ZeroNoise(), key=bytes(32)
    )
    yield folder / "shop.dpsql", Answerer(open_release(folder / "shop.dpsql", insecure=True))


BY_ITEM = "SELECT item, COUNT(*) AS n FROM sales GROUP BY item"


def test_keys_that_command_a_terminal_are_none(shop: tuple[Path, Answerer]) -> None:
    counts = dict(shop[1].query(BY_ITEM).rows)
    assert {key: counts[key] for key in HOSTILE} == dict.fromkeys(HOSTILE, EACH)
    assert counts["(other)"] == EACH * len(CLEANED) and not counts.keys() & set(CLEANED)


def test_a_spreadsheet_runs_no_key(shop: tuple[Path, Answerer]) -> None:
    rows = list(csv.reader(io.StringIO(render(shop[1].query(BY_ITEM), "csv", 0.95))))
    assert not [row for row in rows if row[0].startswith(("=", "+", "-", "@"))]
    assert {f"'{formula}" for formula in FORMULAS} <= {row[0] for row in rows}


def test_programs_get_them_exactly(shop: tuple[Path, Answerer]) -> None:
    named = {row["item"] for row in json.loads(render(shop[1].query(BY_ITEM), "json", 0.95))}
    assert set(HOSTILE) <= named


def test_pages_hold_no_tag_of_a_key(shop: tuple[Path, Answerer]) -> None:
    answer = shop[1].query(BY_ITEM)
    pages = [answer._repr_html_(), report_page(shop[1].release)]
    for page in pages:
        assert "<script>alert" not in page and "<img src=x" not in page
    table = render(answer, "markdown", 0.95)
    assert not re.search(r"(?<!\\)<script|(?<!\\)<img|(?<!\\)\]\(javascript", table)
    widths = {line.replace("\\|", "").count("|") for line in table.splitlines() if line.startswith("|")}
    assert len(widths) == 1  # no key opens a column


@pytest.mark.parametrize("key", HOSTILE)
def test_a_key_is_asked_for_as_it_is(shop: tuple[Path, Answerer], key: str) -> None:
    quoted = f"SELECT COUNT(*) FROM sales WHERE item = {literal(key)}"
    assert shop[1].query(quoted).rows == ((EACH,),)
    with closing(dbapi.connect(str(shop[0]), insecure=True)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*) FROM sales WHERE item = ?", (key,))
        assert cursor.fetchall() == [(EACH,)]
