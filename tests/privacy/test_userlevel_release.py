"""Whole releases: what they look like never depends on one customer, and odd data give typed results."""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.errors import CatalogError, ProgrammingError
from dpsql.executor.engine import ReleaseEngine
from dpsql.ledger.store import budget_report
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy
from dpsql.planner.notes import _hidden
from tests import releases
from tests.releases import seeded
from tests.thinned import by_default
from tests.userlevel_star import Row, uneven_rows, write_star

ASKED = "SELECT COUNT(*), SUM(amount), AVG(amount) FROM sales"


def published(folder, rows, customers, noise=None, **options) -> ReleaseEngine:
    catalog = write_star(folder, rows, customers, **options)
    return releases.published(catalog, noise or seeded(4), options.get("name", "shop"))


@pytest.mark.parametrize("delta", by_default(["1e-6", "0"], 1))
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
    assert all(own.factor >= 1.0 for own in scale.measures) and scale.tau >= 1
    assert math.isfinite(count) and math.isfinite(total)
    assert mean is None or math.isfinite(mean)
    assert (
        len(answerer.query("SELECT region, COUNT(*) FROM sales JOIN customer USING (id) GROUP BY 1").rows)
        >= 3
    )


def test_every_line_is_charged_and_they_add_up(tmp_path):
    rows, customers = uneven_rows(40, 2)
    answerer = published(tmp_path, rows, customers)
    lines = answerer.release.meta.spends
    spends = {purpose: amount for purpose, amount, _ in lines}
    assert len(spends) == len(lines) and not any(Fraction(delta) for *_, delta in lines)
    assert len(spends) == 5 + 4
    assert {"sales: rows per unit", "sales: norms per unit", "view days: count"} <= set(spends)
    mu2 = Fraction(answerer.release.meta.privacy.mu2)
    assert sum(map(Fraction, spends.values())) == mu2
    assert Fraction(spends["sales: rows per unit"]) == mu2 * Fraction(25, 1000)
    views = (Fraction(amount) for purpose, amount in spends.items() if purpose.startswith("view "))
    assert sum(views) == mu2 * Fraction(79, 100)
    report = budget_report(tmp_path / ".dpsql" / "ledger.duckdb")
    assert report.lineages


def test_without_noise_equal_customers_are_answered_exactly(tmp_path):
    """Everybody owns one row in each of six cells: no bin beyond shows anybody, so nothing is put back."""
    rows: list[Row] = [(person, 10.0 + day, 2 * day) for person in range(2000) for day in range(1, 7)]
    answerer = published(tmp_path, rows, {p: "nsw"[p % 3] for p in range(2000)}, noise=ZeroNoise())
    scale = answerer.release.scales["sales"]
    assert scale.measure("").factor == pytest.approx(1.0, abs=1e-3)
    by_day = answerer.query("SELECT day, COUNT(*), SUM(amount), AVG(amount) FROM sales GROUP BY 1").rows
    found = {day: values for day, *values in by_day if day is not None}
    for day in range(1, 7):
        count, total, mean = found[2 * day]
        assert count == pytest.approx(2000, rel=0.01)  # what a clip leaves out is read off bins
        assert total == pytest.approx(2000 * (10 + day), rel=0.01)
        assert mean == pytest.approx(10 + day, rel=0.01)
    assert found[1][0] == pytest.approx(0, abs=1e-6)


def test_public_rows_are_told_exactly_and_said(tmp_path):
    rows, customers = uneven_rows(800, 3)
    answerer = published(tmp_path, rows, customers, public_rows=True)
    assert answerer.release.meta.privacy.rows == "public"
    assert answerer.release.scales["sales"].public_rows
    assert answerer.query("SELECT COUNT(*) FROM sales").scalar() == pytest.approx(len(rows), rel=1e-6)
    assert not any("total rows" in purpose for purpose, *_ in answerer.release.meta.spends)


def test_a_nullable_measure_has_its_own_count(tmp_path):
    rows, customers = uneven_rows(900, 6)
    half: list[Row] = [(p, a if i % 2 else None, d) for i, (p, a, d) in enumerate(rows)]
    answerer = published(tmp_path, half, customers, nullable=True, noise=ZeroNoise())
    every, some = answerer.query("SELECT COUNT(*), COUNT(amount) FROM sales").rows[0]
    assert some / every == pytest.approx(0.5, abs=0.03)


def test_what_was_counted_and_left_out_is_told(tmp_path):
    rows, customers = uneven_rows(3000, 7)
    answerer = published(tmp_path, rows, customers)
    scale = answerer.release.scales["sales"]
    notes = " ".join(answerer.query("SELECT COUNT(*) FROM sales").notes)
    counted = f"sales: at most {scale.tau} rows per customer were counted and scaled up: counts by"
    assert (
        f"{counted} {scale.measure('').factor:.2f} (+- " in notes
        and "that error is shared by all groups" in notes
    )
    owned = np.bincount([row[0] for row in rows])
    assert np.sum(owned > scale.unseen_above) <= scale.unseen
    assert [own.measure for own in scale.measures] == ["", "sales.amount"]
    for own in scale.measures:
        assert own.factor > 1.1 and 0 < own.left_out < 1
        assert 0 < own.error.noise <= min(own.error.down, own.error.up) < 0.5


def test_a_view_without_a_count_is_refused(tmp_path):
    file = write_star(tmp_path, [], {})
    file.write_text(file.read_text().replace("{count: 0.55, sales.amount: 0.45}", "[count(sales.amount)]", 1))
    with pytest.raises(CatalogError, match="count"):
        publish_release(load_catalog(file), tmp_path / "x.dpsql", noise=ZeroNoise(), key=bytes(32))


def test_answers_tell_noise_scale_spread_and_tail_apart(tmp_path):
    rows, customers = uneven_rows(3000, 8)
    answerer = published(tmp_path, rows, customers)
    scale = answerer.release.scales["sales"]
    parts = ", ".join(
        f"DP_STDERR(COUNT(*), '{part}') AS {part}" for part in ("noise", "scale", "spread", "tail")
    )
    result = answerer.query(
        f"SELECT region, COUNT(*) AS c, SUM(amount) AS s, AVG(amount) AS a, DP_BIAS_HINT(COUNT(*)) AS hint, "
        f"DP_STDERR(COUNT(*)) AS e, {parts} FROM sales JOIN customer USING (id) GROUP BY 1"
    )
    first = result.rows[0]
    assert first[4] == scale.measure("").left_out
    ends = [each[0][1] for each in result.interval_rows(0.95)]
    assert first[5] == result.stderr_rows[0][1] == pytest.approx((ends[1] - ends[0]) / (2 * 1.959964))
    assert first[5] >= math.hypot(*first[6:9])
    told = {name: grid[0][1:4] for name, grid in result.components.items()}
    assert first[6:10] == tuple(told[name][0] for name in ("noise", "scale", "spread", "tail"))
    for place, name in enumerate(("", "sales.amount")):
        assert told["scale"][place] == pytest.approx(abs(first[1 + place]) * scale.measure(name).error.noise)
    assert told["scale"][2] == pytest.approx(first[3] * scale.measure("sales.amount").mean_error.noise)
    low, high = result.interval_rows(0.95)
    for column in (1, 2, 3):
        noise, common, spread, tail = (
            told[name][column - 1] for name in ("noise", "scale", "spread", "tail")
        )
        least = 1.96 * math.sqrt(noise**2 + common**2 + spread**2)
        below, above = first[column] - low[0][column], high[0][column] - first[column]
        assert least <= min(below, above) * 1.001
        assert 1.96 * tail * 0.999 <= (below + above) / 2 <= (least + 1.96 * tail) * 1.001
    assert any(f"counts by {scale.measure('').factor:.2f}" in line for line in result.plan)
    with pytest.raises(ProgrammingError, match="one of 'noise', 'channel', 'scale', 'spread', 'tail'"):
        answerer.query("SELECT DP_STDERR(COUNT(*), 'size') FROM sales")


def test_a_total_has_no_noise_of_its_own_and_a_share_no_scale(tmp_path):
    rows, customers = uneven_rows(3000, 8)
    answerer = published(tmp_path, rows, customers)
    total = answerer.query("SELECT COUNT(*), SUM(amount), AVG(amount) FROM sales").components
    for part in ("noise", "spread"):
        assert all(error < 1e-6 * 900 for error in total[part][0]), part
    assert all(error > 0 for part in ("scale", "tail") for error in total[part][0])
    share = answerer.query("SELECT COUNT(*) FILTER (WHERE day < 4) / COUNT(*) FROM sales").components
    assert share["scale"][0][0] == pytest.approx(0, abs=1e-9)
    assert share["noise"][0][0] > 0 and share["spread"][0][0] > 0
    both = answerer.query(
        "SELECT COUNT(*) FILTER (WHERE day < 9) - COUNT(*) FILTER (WHERE day < 4), "
        "COUNT(*) FILTER (WHERE day BETWEEN 4 AND 8) FROM sales"
    )
    for name, grid in both.components.items():
        exact = name not in ("spread", "tail")  # what is not measured is a bound for each question by itself
        assert grid[0][0] == pytest.approx(grid[0][1], rel=1e-6 if exact else 0.1), name


@pytest.mark.parametrize(("up", "words"), [(0.0021, "0.41%"), (0.06, "12%"), (0.6, "120%")])
def test_what_noise_may_hide_has_two_digits(up: float, words: str):
    """ "More than 0% of the rows" said that any row that is hidden is missing."""
    measure = SimpleNamespace(error=SimpleNamespace(up=up))
    scale = SimpleNamespace(of="sales", unseen=570, unseen_above=16, rows=5000, measure=lambda name: measure)
    (line,) = _hidden(scale, "customer")
    assert f"more than {words} of all rows" in line


def uneven_regions(least: int, most: int) -> tuple[list[Row], dict[int, str | None]]:
    """Customers of `s` own about ten times as many rows as the others; one common factor cannot know."""
    rng = np.random.default_rng(5)
    owned = rng.integers(least, most + 1, 3000)
    rows: list[Row] = [
        (person, 10.0, int(day))
        for person in range(3000)
        for day in rng.integers(1, 13, owned[person] if person % 3 == 1 else 6)
    ]
    return rows, {person: "nsw"[person % 3] for person in range(3000)}


BY_REGION = "SELECT region, COUNT(*) FROM sales JOIN customer USING (id) GROUP BY 1"


@pytest.mark.parametrize(
    ("delta", "least", "most"),
    [
        ("1e-6", 30, 90),
        ("0", 30, 90),
        ("1e-6", 60, 60),
        # nobody between 7 and 59 rows, and all of a bin at 60: where inside of a bin its people are, no bin shows
        ("0", 60, 60),
    ],
)
def test_intervals_cover_groups_that_own_more(tmp_path, delta, least, most):
    rows, customers = uneven_regions(least, most)
    heavy = sum(person % 3 == 1 for person, *_ in rows)
    answerer = published(tmp_path, rows, customers, ExactNoise(insecure_test_entropy(3)), delta=delta)
    result = answerer.query(BY_REGION)
    low, high = result.interval_rows(0.99)
    for row, below, above in zip(result.rows, low, high, strict=True):
        true = {"s": heavy, None: 0, "(other)": 0}.get(row[0], 6000)
        assert below[1] <= true <= above[1], row
    tables = answerer.release.connection.cursor().execute("SELECT table_name FROM duckdb_tables()").fetchall()
    assert not any(name.startswith("difference") for (name,) in tables)
