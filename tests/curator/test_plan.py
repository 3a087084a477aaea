"""Planning says what publishing then does: the same errors, no budget spent, no private table opened."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpsql import api
from dpsql.catalog import load_catalog
from dpsql.catalog.model import Privacy
from dpsql.central.axes import axis_maker, open_public
from dpsql.central.central import publish_release
from dpsql.curator.dry_release import dry_release, priced_plan
from dpsql.curator.forecast import break_even
from dpsql.errors import CatalogError, InterfaceError, ReleaseError
from dpsql.executor.engine import ReleaseEngine
from dpsql.interfaces.cli.plan import plan_text, statements
from dpsql.release import open_release
from tests.command import dpsql_command
from tests.releases import headed, published, seeded, write_catalog
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

CATALOG = """
dpsql: 1
name: shop
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet, product: product.parquet}}
privacy: {lineage: people, cap: 9, unit: row, epsilon: 1.0, DELTA}
tables:
  product: {role: dimension, key: product_id, private: false}
  sales: {role: fact, foreign_keys: {product_id: product}, columns: {
    day: {type: int, lower: 0, upper: 39}, amount: {type: decimal, scale: 2, lower: 0, upper: 20, measure: true}}}
views:
  days: {of: sales, axes: [sales.day, {axis: product, by: [kind]}], measures: [count, sales.amount], share: 0.7}
  line: {of: sales, axes: [sales.day], measures: [count], share: 0.3}
"""
WORKLOAD = (
    "SELECT COUNT(*) FROM sales",
    "SELECT COUNT(*) AS n FROM sales WHERE day BETWEEN 3 AND 17",
    "SELECT kind, SUM(amount) AS s, COUNT(*) AS n FROM sales JOIN product USING (product_id) GROUP BY kind",
    "SELECT 2 * COUNT(*) - SUM(amount) AS x FROM sales JOIN product USING (product_id) "
    "WHERE day BETWEEN 0 AND 8 OR kind = 'k1'",
    "SELECT AVG(amount) AS a FROM sales",
    "SELECT COUNT(*) FROM nowhere",
)


def shop(folder: Path, delta: str = "delta: 0", rows: bool = True) -> Path:
    tables = {"product": "SELECT i AS product_id, 'k' || i AS kind FROM range(3) t(i)"}
    if rows:
        columns = "i % 40 AS day, i % 3 AS product_id, (i % 2000) / 100.0 AS amount"
        tables["sales"] = f"SELECT {columns} FROM range(4000) t(i)"
    return write_catalog(folder, CATALOG.replace("DELTA", delta), tables)


@pytest.mark.parametrize(
    "delta", by_default(["delta: 1e-6", "delta: 0", "neighbours: replace_one, delta: 0"], 1)
)
def test_predicted_errors_are_those_of_the_release(tmp_path: Path, delta: str):
    catalog = shop(tmp_path, delta)
    report = api.plan(catalog, WORKLOAD)
    made = publish_release(load_catalog(catalog), tmp_path / "r.dpsql", noise=seeded(5), key=b"k" * 32)
    answerer = ReleaseEngine(open_release(made.path, insecure=True))
    for query in report.queries[:4]:
        got = answerer.query(query.sql).stderr_rows
        for column in query.columns:
            place = answerer.query(query.sql).columns.index(column.name)
            errors = [row[place] for row in got]
            assert column.median == pytest.approx(float(np.median(errors)), rel=1e-9)
            assert (column.least, column.most) == pytest.approx((min(errors), max(errors)), rel=1e-9)
            assert column.groups == len(errors)
            assert column.view == answerer.query(query.sql).provenance["views"][0]
    assert [q.columns[0].median for q in report.queries[4:5]] == [None]
    assert report.queries[5].refusal is not None
    assert made.cells == sum(s.cells for s in report.statistics)


def test_planning_opens_no_private_table_and_spends_nothing(tmp_path: Path):
    catalog = shop(tmp_path, rows=False)
    report = api.plan(catalog, WORKLOAD[:2])
    assert report.queries[0].columns[0].median is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["catalog.yaml", "product.parquet"]


def test_a_dry_release_cannot_be_taken_for_a_release(tmp_path: Path):
    catalog = load_catalog(shop(tmp_path))
    public = open_public(catalog)
    dry_release(priced_plan(catalog, axis_maker(catalog, public))).write(tmp_path / "dry")
    with pytest.raises(ReleaseError, match="protects nobody"):
        open_release(tmp_path / "dry")


def test_runners_up(tmp_path: Path):
    report = api.plan(shop(tmp_path), WORKLOAD[:3])
    days = report.statistics[0]
    assert len(days.axes) == len(days.strategies) == len(days.axis_forecasts)
    own = days.axis_forecasts[0]
    assert own.runners_up
    assert all(error >= own.expected for _, error in own.runners_up)


def test_the_plan_says_why_others_were_not_taken(tmp_path: Path):
    """Of views that are measured together: who refused and who lost; of each axis: who refused."""
    catalog = shop(tmp_path, "delta: 1e-6")
    catalog.write_text(catalog.read_text().replace(", share: 0.7", "").replace(", share: 0.3", ""))
    report = api.plan(catalog)
    family = report.not_taken[0]
    assert family.what == "days, line"
    lost = dict(family.lost)
    assert {family.taken, *lost} == {"axes one by one", "residual rows"}
    assert family.expected_error <= min(lost.values())
    reasons = {refusal.name: refusal.reason for refusal in family.refused}
    assert "by name only" in reasons["DiffHR"]
    assert "days, line" not in plan_text(report)
    text = plan_text(report, mechanisms=True)
    assert f"days, line: {family.taken} {family.expected_error:.4g} (behind: " in text
    assert "not DiffHR: is used by name only" in text
    catalog.write_text(catalog.read_text().replace("delta: 1e-6", "delta: 0"))
    pure = api.plan(catalog)
    family = pure.not_taken[0]  # rows of each axis, and trees by one draw
    assert family.expected_error <= min(error for _, error in family.lost)
    (day,) = (
        each
        for each in pure.not_taken
        if each.what == "sales.day" and each.taken == pure.statistics[-1].strategies[0]
    )
    assert ("dense optimum", "is for Gaussian noise") in [refusal[:2] for refusal in day.refused]


def test_cut_bins_are_announced(tmp_path: Path):
    catalog = shop(tmp_path)
    wide = "{axis: sales.day, cuts: [10, 20]}"
    catalog.write_text(catalog.read_text().replace("axes: [sales.day", f"axes: [{wide}"))
    asked = ["SELECT COUNT(*) FROM sales WHERE day < 10", "SELECT COUNT(*) FROM sales WHERE day < 15"]
    assert [q.columns[0].cut for q in api.plan(catalog, asked).queries] == [False, True]


def test_runners_up_are_in_the_release(tmp_path: Path):
    catalog = shop(tmp_path)
    choices = published(catalog, seeded(5), key=b"k" * 32).release.meta.choices
    line = next(s for s in api.plan(catalog).statistics if s.view == "line")
    recorded = next(c for c in choices if c.strategy == line.strategies[0])
    assert [(r.strategy, r.expected_error) for r in recorded.runners_up] == list(
        line.axis_forecasts[0].runners_up
    )


def privacy(delta: str) -> Privacy:
    return Privacy(lineage="x", cap=Fraction(9), unit="row", epsilon=Fraction(1), delta=Fraction(delta))


def test_break_even():
    """Mean absolute errors of 2 K and 6.03 sqrt(K), on either side of the number of queries."""
    for stderr in (3.0, 40.0, 1000.0):
        ours = math.sqrt(2 / math.pi) * stderr
        for delta, theirs in (("0", lambda k: 2 * k), ("1/1000000", lambda k: 6.037 * math.sqrt(k))):
            k = break_even(stderr, privacy(delta))
            assert theirs(k) * 1.001 > ours
            assert theirs(k - 1) * 0.999 < ours


def test_command_line(tmp_path: Path):
    catalog, workload = shop(tmp_path), tmp_path / "q.sql"
    workload.write_text(
        "-- totals\nSELECT COUNT(*) FROM sales;\nSELECT SUM(amount) AS s FROM sales WHERE day = 1"
    )
    assert len(statements(workload)) == 2
    report = json.loads(dpsql_command("plan", catalog, "--workload", workload, "--json").stdout)
    assert report["queries"][1]["columns"][0]["median"] > 0
    text = plan_text(api.plan(catalog, statements(workload)))
    assert "more accurate than paying per query after" in text
    half = 1.96 * report["queries"][0]["columns"][0]["median"]
    assert (
        text.startswith("answers (±: half of the 95% interval")
        and f"count_star(): ± {half:.4g}, one number" in text
    )
    with pytest.raises(InterfaceError, match="there is no file"):
        statements(tmp_path / "none.sql")


def test_a_collection_is_not_planned_here():
    survey = Path(__file__).resolve().parents[2] / "catalog" / "survey.yaml"
    with pytest.raises(CatalogError, match="collection-plan"):
        api.plan(survey)


@pytest.mark.parametrize("word", ["refuse", "allow"])
def test_a_plan_says_by_what_two_axes_were_compared(word: str, tmp_path: Path) -> None:
    text = """
privacy: {lineage: p, cap: 9, unit: row, epsilon: 1.0}
tables:
  hits: {role: fact, columns: {x: {type: int, lower: 0, upper: 255}, y: {type: int, lower: 0, upper: 255}}}
views:
  plane: {of: hits, axes: [hits.x, hits.y], measures: [count], share: 1/2, data_dependent: WORD}
  line: {of: hits, axes: [hits.x], measures: [count], share: 1/2, data_dependent: WORD}
"""
    report = api.plan(write_catalog(tmp_path, headed(text, {"hits": "hits.parquet"}), WORD=word))
    asked = "a quarter each: rectangles, ranges of either axis alone, totals"
    assert [n.asked for n in report.not_taken if "plane" in n.what.split(", ")] == [asked]
    assert f"compared by {asked}" in plan_text(report, mechanisms=True)


@pytest.mark.parametrize(
    "delta, other, said", [("1e-6", "0", "`delta: 0` would make its intervals 68% narrower at the same share"),
                           ("0", "1e-06", "`delta: 1e-06` would make its intervals 211% wider at the same share")]
)  # fmt: skip
def test_a_plan_states_the_errors_in_the_other_currency(
    tmp_path: Path, delta: str, other: str, said: str
) -> None:
    """One number with a whole cap: discrete Laplace noise of variance 1.84 for Gaussian noise of 1 / .056 = 17.85."""
    file = tmp_path / "one.yaml"
    file.write_text(
        "dpsql: 1\nname: one\nsource: {kind: parquet, root: ., tables: {t: t.parquet}}\n"
        f"privacy: {{lineage: one, cap: 1, epsilon: 1, unit: row, delta: {delta}}}\n"
        "tables: {t: {role: fact, columns: {a: {type: string, categories: [x], other: drop}}}}\n"
        "views: {v: {of: t, axes: [t.a], measures: [count], mechanism: identity}}\n"
    )
    report = api.plan(file)
    assert (report.cap_share, report.other_delta) == (1.0, other)
    assert said in plan_text(report)
