"""A cube: all sets of up to two of its axes, planned, published, asked, audited."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.catalog import load_catalog
from dpsql.errors import CatalogError, NoViewError
from dpsql.interfaces.cli.plan import plan_text
from dpsql.mechanisms.distribution import GAUSSIAN
from dpsql.noise import ZeroNoise
from tests.privacy import joints
from tests.releases import headed, published, write_catalog

pytestmark = pytest.mark.usefixtures("publishes")

CATALOG = """
privacy: {lineage: people, cap: 2, unit: row, epsilon: 1.0, delta: DELTA}
tables:
  sales: {role: fact, columns: {
    a: {type: int, lower: 0, upper: 9}, b: {type: int, lower: 0, upper: 6}, c: {type: bool},
    d: {type: string, categories: [x, y, z], out_of_domain: drop},
    amount: {type: int, lower: 0, upper: 20, measure: true}}}
views:
  all: {of: sales, axes: [sales.a, sales.b, sales.c, sales.d], measures: [count, sales.amount], ways: 2}
"""
PAIRS = "\n".join(
    f"  {x}{y}: {{of: sales, axes: [sales.{x}, sales.{y}], measures: [count, sales.amount], mechanism: residual}}"
    for x, y in ("ab", "ac", "ad", "bc", "bd", "cd")
)


def shop(folder: Path, delta: str = "1e-6", views: str = "") -> Path:
    made = (
        "SELECT i % 10 AS a, i * 3 % 7 AS b, i % 3 = 0 AS c, ['x', 'y', 'z'][1 + i % 3] AS d, i % 21 AS amount"
        " FROM range(3000) t(i)"
    )
    text = CATALOG[: CATALOG.index("views:")] + "views:\n" + views if views else CATALOG
    return write_catalog(folder, text, {"sales": made}, DELTA=delta)


ASKED = [
    "SELECT COUNT(*) FROM sales WHERE a BETWEEN 2 AND 5 AND b > 3",
    "SELECT COUNT(*) FROM sales WHERE d IN ('x', 'z') AND NOT c",
    "SELECT SUM(amount) FROM sales WHERE a < 4 OR d = 'y'",
    "SELECT d, COUNT(*) AS n FROM sales WHERE b = 2 GROUP BY d ORDER BY d",
    "SELECT COUNT(*) FROM sales",
]


def test_without_noise_all_sets_of_two_axes_are_exact(tmp_path: Path):
    asked, raw = published(shop(tmp_path), ZeroNoise(), key=b"k" * 32), duckdb.connect()
    raw.execute(f"CREATE VIEW sales AS FROM '{tmp_path}/sales.parquet'")
    for sql in ASKED:
        found, wanted = asked.query(sql).rows, raw.execute(sql).fetchall()
        assert [row[:-1] for row in found] == [row[:-1] for row in wanted]
        assert [float(r[-1]) for r in found] == pytest.approx([float(r[-1]) for r in wanted], abs=0.01)
    assert "cube all" in asked.explain(ASKED[0])
    with pytest.raises(NoViewError, match="all has sets of up to 2 of its axes"):
        asked.query("SELECT COUNT(*) FROM sales WHERE a = 1 AND b = 1 AND c")


def test_it_is_planned_published_and_audited_as_all_pairs_are(tmp_path: Path):
    catalog = shop(tmp_path)
    planned = dpsql.plan(catalog, ASKED)
    assert len(planned.statistics) == 2 * (6 + 4 + 1)
    (tmp_path / "pairs").mkdir()
    by_hand = dpsql.plan(shop(tmp_path / "pairs", views=PAIRS), ASKED)
    for ours, theirs in zip(planned.queries, by_hand.queries, strict=True):
        assert ours.columns[0].median == pytest.approx(theirs.columns[0].median, rel=1e-4)
    dpsql.publish(catalog, tmp_path / "shop.dpsql")
    said = dpsql.query(ASKED[0], release=tmp_path / "shop.dpsql").stderr.iloc[0, 0]
    assert said == pytest.approx(planned.queries[0].columns[0].median, rel=1e-6)
    report = dpsql.api.audit(tmp_path / "shop.dpsql", catalog=catalog, samples=0)
    assert not [check for check in report.checks if check.held is False]


def test_what_a_cube_needs_is_said(tmp_path: Path):
    with pytest.raises(CatalogError, match="needs delta above 0"):
        dpsql.plan(shop(tmp_path, "0"))
    text = shop(tmp_path).read_text()
    for old, new, words in (
        ("ways: 2", "ways: 4", "ways"), ("ways: 2", "ways: 2, mechanism: tents", "goes with"),
        ("ways: 2", "ways: 3", "write ways: 2"), (", sales.c, sales.d]", "]", "more than 2"),
    ):  # fmt: skip
        (tmp_path / "bad.yaml").write_text(text.replace(old, new))
        with pytest.raises(CatalogError, match=words):
            load_catalog(tmp_path / "bad.yaml")


def test_people_of_sets_of_axes_are_refused(tmp_path: Path) -> None:
    text = joints.catalog(
        promise="delta: 1e-6", axes=joints.PLANE, measures="[count, people]", mechanism=", ways: 2"
    )
    path = tmp_path / "shop.yaml"
    path.write_text(text.replace("ROOT", str(tmp_path)).replace("LEDGER", str(tmp_path / "ledger.duckdb")))
    with pytest.raises(CatalogError, match=r"views.v.measures: people are counted on all axes"):
        dpsql.plan(path)


NAMES = """
  sales: {role: fact, columns: {
    a: {type: string, categories: [p, q, r, s, t], out_of_domain: drop}, b: {type: int, lower: 0, upper: 6},
    c: {type: string, categories: [u, v], out_of_domain: drop},
    d: {type: string, categories: [x, y, z], out_of_domain: drop}}}
"""


def names(folder: Path, views: str) -> Path:
    text = CATALOG[: CATALOG.index("  sales: {role")] + NAMES + f"views:\n{views}"
    return write_catalog(folder, headed(text, {"sales": "sales.parquet"}), DELTA="1e-6")


def test_names_are_asked_by_cells_and_pairs_come_first(tmp_path: Path) -> None:
    """Groups and totals err more than by ranges, within their bounds, and pairs less than flat ones by hand."""
    axes = "sales.a, sales.c, sales.d"
    path = names(tmp_path, f"  all: {{of: sales, axes: [{axes}], ways: 2}}\n")
    report = dpsql.plan(path)
    objective = "pairs: cells of sales.a, sales.c, sales.d; groups of fewer axes and totals have bounds"
    assert report.not_taken[0].asked == objective
    assert f"compared by {objective}" in plan_text(report, mechanisms=True)
    flat = sqrt(3 * GAUSSIAN.bounded_noise(1, sum(Fraction(s.charge) for s in report.statistics)) ** 2)
    pairs = [s.typical for s in report.statistics if len(s.axes) == 2]
    assert max(pairs) < flat
    mixed = dpsql.plan(names(tmp_path, "  all: {of: sales, axes: [sales.a, sales.b, sales.d], ways: 2}\n"))
    assert "cells of sales.a, sales.d, ranges of the other axes" in mixed.not_taken[0].asked
