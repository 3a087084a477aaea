"""Whole releases: what they look like never depends on one customer, and odd data give typed results."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.answer.answerer import Answerer
from dpsql.errors import CatalogError
from dpsql.ledger import budget_report
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy
from dpsql.publishing.central import publish_release
from dpsql.release import open_release
from dpsql.release.format import to_json
from dpsql.star import load_catalog
from tests.userlevel_star import Row, uneven_rows, write_star

ASKED = "SELECT COUNT(*), SUM(amount), AVG(amount) FROM sales"


def published(folder, rows, customers, noise=None, **options) -> Answerer:
    catalog = load_catalog(write_star(folder, rows, customers, **options))
    noise = noise or ExactNoise(insecure_test_entropy(4))
    name = options.get("name", "shop")
    out = publish_release(catalog, folder / f"{name}.dpsql", noise=noise, key=bytes(32))
    return Answerer(open_release(out.path, insecure=True))


def outline(answerer: Answerer) -> object:
    """Everything about a release that is not a noisy number."""
    connection = answerer.release.connection.cursor()
    tables = [
        row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
    ]
    counts = [connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables]
    nodes = connection.execute("SELECT * FROM node ORDER BY axis, id").fetchall()
    meta = {
        k: v
        for k, v in to_json(answerer.release.meta).items()
        if k not in ("release_id", "scales", "statistics")
    }
    views = [(s.view, s.measure, s.axes, s.cells, s.budget) for s in answerer.release.statistics]
    return tables, counts, nodes, meta, views


@pytest.mark.parametrize(("delta", "owned"), [("1e-6", (0, 1, 10, 1000, 10_000)), ("0", (0, 1000))])
def test_the_outline_is_the_same_whatever_one_customer_owns(tmp_path, delta, owned):
    rows, customers = uneven_rows(60, 1)
    outlines = []
    for i, extra in enumerate(owned):
        more: list[Row] = [(999, (None, 1e308, -5.0)[j % 3], (None, 99, 3)[j % 3]) for j in range(extra)]
        folder = tmp_path / str(i)
        folder.mkdir()
        outlines.append(outline(published(folder, rows + more, customers | {999: "?"}, delta=delta)))
    assert all(each == outlines[0] for each in outlines)


@pytest.mark.parametrize("delta", ["1e-6", "0"])
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("nobody", []),
        ("no_owner", [(None, 5.0, 3)] * 50),
        ("one_customer", [(1, 5.0, 3)] * 5000),
        ("dangling", [(77, 5.0, 3), (78, None, None), (79, float("nan"), 99)]),
        ("infinite", [(1, float("inf"), 3), (2, float("-inf"), 3), (3, 1e300, -7)]),
    ],
)
def test_odd_data_publish_and_answer(tmp_path, name, rows, delta):
    answerer = published(tmp_path, rows, {1: "n", 2: None}, delta=delta, name=name)
    count, total, mean = answerer.query(ASKED).rows[0]
    scale = answerer.release.scales["sales"]
    assert math.isfinite(count) and math.isfinite(total)
    assert mean is None or math.isfinite(mean)
    assert scale.factor >= 1.0 and scale.tau >= 1
    assert (
        len(answerer.query("SELECT region, COUNT(*) FROM sales JOIN customer USING (id) GROUP BY 1").rows)
        >= 3
    )


def test_every_line_is_charged_and_they_add_up(tmp_path):
    rows, customers = uneven_rows(40, 2)
    answerer = published(tmp_path, rows, customers)
    spends = dict(answerer.release.meta.spends)
    assert len(spends) == 5 + 4
    assert {"sales: rows per unit", "sales: norms per unit", "view days: count"} <= set(spends)
    rho = Fraction(answerer.release.meta.privacy.rho)
    assert sum(map(Fraction, spends.values())) == rho
    assert Fraction(spends["sales: rows per unit"]) == rho * Fraction(2, 100)
    report = budget_report(tmp_path / ".dpsql" / "ledger.duckdb")
    assert report.lineages


def test_without_noise_equal_customers_are_answered_exactly(tmp_path):
    """Everybody owns one row in each of six cells, so one factor puts everything right."""
    rows: list[Row] = [(person, 10.0 + day, 2 * day) for person in range(2000) for day in range(1, 7)]
    answerer = published(tmp_path, rows, {p: "nsw"[p % 3] for p in range(2000)}, noise=ZeroNoise())
    scale = answerer.release.scales["sales"]
    assert scale.factor > 1.1
    by_day = answerer.query("SELECT day, COUNT(*), SUM(amount), AVG(amount) FROM sales GROUP BY 1").rows
    found = {day: values for day, *values in by_day if day is not None}
    for day in range(1, 7):
        count, total, mean = found[2 * day]
        assert count == pytest.approx(2000, rel=1e-4)
        assert total == pytest.approx(2000 * (10 + day), rel=1e-4)
        assert mean == pytest.approx(10 + day, rel=1e-4)
    assert found[1][0] == pytest.approx(0, abs=1e-6)


def test_public_rows_are_told_exactly_and_said(tmp_path):
    rows, customers = uneven_rows(800, 3)
    answerer = published(tmp_path, rows, customers, public_rows=True)
    assert answerer.release.meta.privacy.rows == "public"
    assert answerer.release.scales["sales"].public_rows
    assert answerer.query("SELECT COUNT(*) FROM sales").scalar() == pytest.approx(len(rows), rel=1e-6)
    assert not any("total rows" in purpose for purpose, _ in answerer.release.meta.spends)


def test_a_nullable_measure_has_its_own_count(tmp_path):
    rows, customers = uneven_rows(900, 6)
    half: list[Row] = [(p, a if i % 2 else None, d) for i, (p, a, d) in enumerate(rows)]
    answerer = published(tmp_path, half, customers, nullable=True, noise=ZeroNoise())
    every, some = answerer.query("SELECT COUNT(*), COUNT(amount) FROM sales").rows[0]
    assert some / every == pytest.approx(0.5, abs=0.03)


def test_sticky_axes_and_bias_hints_are_told(tmp_path):
    rows, customers = uneven_rows(900, 7)
    scale = published(tmp_path, rows, customers).release.scales["sales"]
    assert scale.sticky == ("customer.region",)
    assert scale.factor > 1.1 and 0 < scale.left_out < 1 and 0 < scale.weighted_down < 1
    assert 0 < scale.relative_error < 0.5


def test_a_view_without_a_count_is_refused(tmp_path):
    file = write_star(tmp_path, [], {})
    file.write_text(file.read_text().replace("{count: 0.55, sales.amount: 0.45}", "[count(sales.amount)]", 1))
    with pytest.raises(CatalogError, match="count"):
        publish_release(load_catalog(file), tmp_path / "x.dpsql", noise=ZeroNoise(), key=bytes(32))


def test_answers_tell_noise_scale_error_and_bias_apart(tmp_path):
    rows, customers = uneven_rows(900, 8)
    answerer = published(tmp_path, rows, customers)
    scale = answerer.release.scales["sales"]
    result = answerer.query(
        "SELECT region, COUNT(*) AS c, SUM(amount) AS s, AVG(amount) AS a, DP_BIAS_HINT(COUNT(*)) AS hint, "
        "DP_STDERR(COUNT(*)) AS e FROM sales JOIN customer USING (id) GROUP BY 1"
    )
    first = result.rows[0]
    assert first[4] == scale.left_out
    assert first[5] == result.stderr_rows[0][1]
    assert result.scale_error[0][1] == pytest.approx(abs(first[1]) * scale.relative_error)
    assert result.scale_error[0][2] == pytest.approx(abs(first[2]) * scale.relative_error)
    assert result.scale_error[0][3] in (0.0, None)
    assert any("customer.region may be off most" in note for note in result.notes)
    assert any(f"times {scale.factor:.3g}" in line for line in result.plan)


def test_groups_that_own_more_are_put_right_when_asked(tmp_path):
    """Customers of `s` own ten times as many rows as the others; one common factor cannot know."""
    rng = np.random.default_rng(5)
    rows: list[Row] = [
        (person, 10.0, int(day))
        for person in range(3000)
        for day in rng.integers(1, 13, 60 if person % 3 == 1 else 6)
    ]
    customers = {person: "nsw"[person % 3] for person in range(3000)}
    sql = "SELECT region, COUNT(*) FROM sales JOIN customer USING (id) GROUP BY 1"
    answers = {}
    for mode in ("none", "per_group"):
        folder = tmp_path / mode
        folder.mkdir()
        file = write_star(folder, rows, customers)
        file.write_text(
            file.read_text().replace("    of: sales\n", f"    of: sales\n    calibrate: {mode}\n")
        )
        noise = ExactNoise(insecure_test_entropy(3))
        out = publish_release(load_catalog(file), folder / "out.dpsql", noise=noise, key=bytes(32))
        answers[mode] = Answerer(open_release(out.path, insecure=True))
    off = {mode: dict(answerer.query(sql).rows)["s"] / 60_000 - 1 for mode, answerer in answers.items()}
    assert off["none"] < -0.3
    assert abs(off["per_group"]) < 0.15
    spends = dict(answers["per_group"].release.meta.spends)
    rho = Fraction(answers["per_group"].release.meta.privacy.rho)
    assert Fraction(spends["sales: rows by group of regions"]) == rho * Fraction(5, 100)
    assert sum(map(Fraction, spends.values())) == rho
    wide = [answerer.query(sql).stderr_rows[1][1] for answerer in answers.values()]
    assert wide[1] > wide[0]


def test_factors_by_group_go_with_the_recipe_and_cost_at_most_four_views(tmp_path):
    file = write_star(tmp_path, [], {})
    text = file.read_text().replace("    of: sales\n", "    of: sales\n    calibrate: per_group\n")
    file.write_text(text.replace("max_ids: auto", "max_ids: 3"))
    with pytest.raises(CatalogError, match="goes with"):
        publish_release(load_catalog(file), tmp_path / "x.dpsql", noise=ZeroNoise(), key=bytes(32))
    views = text[text.index("  regions:") :]
    more = "".join(views.replace("regions", f"regions{i}").replace("0.5\n", "0.01\n") for i in range(5))
    file.write_text(text.replace("share: 0.5}", "share: 0.4}") + more)
    with pytest.raises(CatalogError, match="costs 5% each"):
        publish_release(load_catalog(file), tmp_path / "y.dpsql", noise=ZeroNoise(), key=bytes(32))
