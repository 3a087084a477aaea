"""`dpsql design` over statements that group rows by the person: the summaries that it proposes answer them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpsql.catalog import parse_catalog
from dpsql.curator.design import design_catalog
from dpsql.curator.design.axes import new_summaries, with_views
from dpsql.noise import ZeroNoise
from tests.releases import published, write_catalog

CATALOG = """\
dpsql: 1
name: shop
source: {kind: duckdb, root: ROOT, tables: {sales: sales, customer: customer}}
privacy: {lineage: shop, cap: 100, unit: customer.id, epsilon: 20, delta: 1e-6}
tables:
  customer:
    role: dimension
    key: id
    columns: {region: {type: string, categories: [n, s]}}
    summaries:
      old: {of: sales, is: max(day), type: date, lower: 2025-01-01, upper: 2025-12-31, nullable: true}
  sales:
    role: fact
    foreign_keys: {id: customer}
    max_ids: 30
    columns:
      amount: {type: int, lower: 0, upper: 50, measure: true}
      day: {type: date, lower: 2025-01-01, upper: 2025-12-31}
      kind: {type: string, categories: [a, b, c]}
views:
  old: {of: customer, axes: [customer.old], measures: [count]}
ledger: ledger.duckdb
"""
TABLES = """
CREATE TABLE customer AS SELECT i AS id, CASE WHEN i % 3 = 0 THEN 'n' ELSE 's' END AS region FROM range(60) AS r(i);
CREATE TABLE sales AS SELECT i % 47 % 41 AS id, i * 7 % 51 AS amount,
    DATE '2025-01-01' + CAST(i * 31 % 365 AS INT) AS day,
    CASE i % 5 WHEN 0 THEN 'a' WHEN 1 THEN 'b' ELSE 'c' END AS kind FROM range(200) AS r(i);
"""
STATEMENTS = (
    "SELECT COUNT(*) FROM (SELECT id, COUNT(*) AS n FROM sales GROUP BY id HAVING COUNT(*) >= 3) q",
    "SELECT n, COUNT(*) FROM (SELECT id, COUNT(DISTINCT kind) AS n FROM sales GROUP BY 1) t GROUP BY 1 ORDER BY 1",
    "SELECT COUNT(*) FROM (SELECT id FROM sales WHERE kind = 'a' GROUP BY id HAVING SUM(amount) > 20) t",
    "SELECT region, COUNT(*) FROM customer WHERE id IN (SELECT id FROM sales WHERE kind = 'b' GROUP BY 1) "
    "GROUP BY 1 ORDER BY 1",
    "SELECT COUNT(*) FROM (SELECT id, MIN(day) AS f FROM sales GROUP BY id) t WHERE f < DATE '2025-02-01'",
)


def test_bounds_follow_from_declared_columns() -> None:
    catalog = parse_catalog(CATALOG.replace("ROOT", "nowhere.duckdb"))
    counts: Mapping[str, Any] = {"type": "int", "lower": "0", "upper": "200", "measure": True}
    assert new_summaries(catalog, STATEMENTS) == {
        "visits": {"of": "sales", "is": "count(*)", **counts},
        "kinds_of_kind": {"of": "sales", "is": "count(DISTINCT kind)", **counts, "upper": "3"},
        "total_amount": {
            "of": "sales", "is": "sum(amount) FILTER (WHERE kind = 'a')", "type": "int", "lower": "0", "upper": "1500",
            "measure": True,
        },
        "rows_with_sales": {"of": "sales", "is": "count(*) FILTER (WHERE kind = 'a')", **counts},
        "rows_with_sales_2": {"of": "sales", "is": "count(*) FILTER (WHERE kind = 'b')", **counts},
        "least_day": {
            "of": "sales", "is": "min(day)", "type": "date", "lower": "2025-01-01", "upper": "2025-12-31",
            "nullable": True,
        },
    }  # fmt: skip
    # nothing for what the catalog has, for what no summary is, and for what it does not declare
    known = (
        "SELECT COUNT(*) FROM (SELECT id, MAX(day) AS d FROM sales GROUP BY id) t WHERE d < DATE '2025-02-01'"
    )
    unknown = "SELECT COUNT(*) FROM (SELECT id, MAX(size) AS d FROM sales GROUP BY id) t WHERE d < 3"
    average = "SELECT COUNT(*) FROM (SELECT id, AVG(amount) AS d FROM sales GROUP BY id) t WHERE d < 3"
    assert new_summaries(catalog, (known, unknown, average)) == {}


@pytest.mark.usefixtures("publishes")
def test_designed_summaries_answer_the_questions(tmp_path: Path) -> None:
    """Without noise, answers but for empty groups are DuckDB's over raw rows; what no question reads is taken out."""
    root = tmp_path / "shop.duckdb"
    with duckdb.connect(str(root)) as connection:
        connection.execute(TABLES)
        truths = [connection.execute(sql).fetchall() for sql in STATEMENTS]
    text = CATALOG.replace("ROOT", str(root)).replace("ledger.duckdb", str(tmp_path / "ledger.duckdb"))
    designed = design_catalog(text, tmp_path / "shop.yaml", STATEMENTS, None)
    assert designed.served == len(STATEMENTS)
    assert "old is left out: no question uses it" in designed.notes
    assert list(parse_catalog(designed.text).tables["customer"].summaries) == list(designed.summaries)
    answerer = published(write_catalog(tmp_path, designed.text), ZeroNoise())
    answers = [[tuple(row) for row in answerer.query(sql).rows if row[-1] != 0] for sql in STATEMENTS]
    assert answers == truths


BLOCK = """\
tables:
  t:
    key: id
    summaries:
      a: {of: s, is: count(*)}
      b:
        of: s
        is: min(x)
  u: {key: k}
"""
FLOW = "tables: {t: {key: id, summaries: {a: {of: s}, b: {of: s}}}, u: {key: k}}\n"


@pytest.mark.parametrize("text", [BLOCK, FLOW])
@pytest.mark.parametrize(
    ("unused", "gained", "names"),
    [
        ((), ("c",), ["c", "a", "b"]), (("a",), ("c",), ["c", "b"]), (("b",), (), ["a"]), (("b",), ("c",), ["c", "a"]),
        (("a", "b"), ("c",), ["c"]), (("a", "b"), (), []),
    ],
)  # fmt: skip
def test_the_rest_of_the_text_stays(
    text: str, unused: tuple[str, ...], gained: tuple[str, ...], names: list[str]
) -> None:
    import yaml

    summaries = {name: {"of": "s"} for name in gained}
    views = {"v": {"of": "t", "measures": [f"t.{name}" for name in gained]}}
    changed = yaml.safe_load(with_views(text, views, {}, "t", summaries, unused))
    assert changed["tables"]["t"].get("excess_share") == (0.01 if gained else None)
    assert list(changed["tables"]["t"].get("summaries", {})) == names
    before = yaml.safe_load(text)["tables"]
    assert changed["tables"]["u"] == before["u"]
    kept = {name: entry for name, entry in before["t"]["summaries"].items() if name in names}
    assert {n: e for n, e in changed["tables"]["t"].get("summaries", {}).items() if n not in gained} == kept
    assert changed["tables"]["t"]["key"] == "id"
