"""Views by data-dependent mechanisms and non-negative estimates, from catalog to answers."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpsql
from dpsql import api
from dpsql.errors import CatalogError
from dpsql.executor.engine import ReleaseEngine
from dpsql.ledger.store import budget_report
from dpsql.noise import ZeroNoise
from dpsql.release import open_release
from tests.releases import published, seeded, write_catalog

CATALOG = """
privacy: {lineage: people, cap: 9, unit: row, epsilon: 1.0}
tables:
  sales: {role: fact, columns: {
    day: {type: int, lower: 0, upper: 199}, hour: {type: int, lower: 0, upper: 23},
    shelf: {type: int, lower: 0, upper: 99}, amount: {type: int, lower: 0, upper: 9, measure: true}}}
views:
  days: {of: sales, axes: [sales.day], measures: [count], share: 0.25}
  shelves: {of: sales, axes: [sales.shelf], measures: [count], mechanism: diffhr, share: 0.25}
  hours: {of: sales, axes: [sales.hour], measures: [count], mechanism: signal, share: 0.25}
  both: {of: sales, axes: [sales.day, sales.hour], measures: {count: 0.5, sales.amount: 0.5}, share: 0.25}
"""


def shop(folder: Path, old: str = "", new: str = "") -> Path:
    rows = (
        "SELECT (i * i) % 40 AS day, i % 12 AS hour, i % 5 AS shelf, i % 10 AS amount FROM range(6000) t(i)"
    )
    assert not old or old in CATALOG
    return write_catalog(folder, CATALOG.replace(old, new) if old else CATALOG, {"sales": rows})


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(shop(tmp_path_factory.mktemp("noisy")), seeded(3), key=b"k" * 32).release.path


def test_without_noise_all_views_tell_the_truth(tmp_path: Path):
    """Where cells of a group are equal."""
    answerer = published(shop(tmp_path), ZeroNoise(), key=b"k" * 32)
    assert answerer.query("SELECT COUNT(*) FROM sales").scalar() == 6000
    assert answerer.query("SELECT COUNT(*) FROM sales WHERE shelf < 3").scalar() == 3600
    assert answerer.query("SELECT COUNT(*) FROM sales WHERE hour < 12").scalar() == 6000


def test_what_a_sparse_signal_chose_for_answers_and_says_so(noisy: Path):
    by_default, unbiased = (
        ReleaseEngine(open_release(noisy, insecure=True, nonnegative=kind)) for kind in (None, False)
    )
    sql = "SELECT hour, COUNT(*) FROM sales GROUP BY hour ORDER BY hour"
    answer = by_default.query(sql)
    assert answer.provenance["estimates"] == "non-negative" and min(row[1] for row in answer.rows) >= 0
    assert any("non-negative" in note and "biased" in note for note in answer.notes)
    assert unbiased.query(sql).provenance["estimates"] == "unbiased"
    both = by_default.query("SELECT day, COUNT(*) FROM sales GROUP BY day")
    assert both.provenance["estimates"] == "unbiased"  # its view has no signal


def test_unbiased_views_answer_first_and_bias_is_said(noisy: Path):
    answerer = ReleaseEngine(open_release(noisy, insecure=True, nonnegative=False))
    total = answerer.query("SELECT COUNT(*) FROM sales")
    assert total.provenance["views"][0] in ("days", "hours", "both")
    assert not any("biased" in note for note in total.notes)
    shelf = answerer.query("SELECT COUNT(*) FROM sales WHERE shelf BETWEEN 2 AND 8")
    assert shelf.provenance["views"] == ["shelves"]
    assert any("biased" in note and "DiffHR" in note for note in shelf.notes)
    assert 0 < shelf.stderr_rows[0][0] < 500


def test_each_part_of_a_mechanism_has_a_ledger_line(noisy: Path):
    (lineage,) = budget_report(noisy.with_name("ledger")).lineages
    lines = {line.purpose: line.amount for line in lineage.entries[0].lines}
    assert lines["view shelves: count, noisy view for grouping"] == Fraction(3, 16)
    assert lines["view hours: count, signal for choosing"] == Fraction(3, 800)
    assert sum(lines.values()) == 1


def test_what_was_chosen_is_in_the_release(noisy: Path):
    release = open_release(noisy, insecure=True)
    chosen = {s.view: s.mechanism for s in release.statistics}
    assert "DiffHR, " in chosen["shelves"]
    assert "signal" in chosen["hours"]
    assert {s.view for s in release.statistics if s.biased} == {"shelves"}


def test_nonnegative_answers(noisy: Path):
    statement = "SELECT day, hour, COUNT(*) AS n FROM sales GROUP BY day, hour"
    plain, clamped = (dpsql.connect(noisy, insecure=True, nonnegative=on) for on in (False, True))
    cursors = [connection.execute("SET dp_round = off") for connection in (plain, clamped)]
    unbiased, nonnegative = (cursor.execute(statement).fetchall() for cursor in cursors)
    values, projected = (np.array([row[2] for row in rows]) for rows in (unbiased, nonnegative))
    assert values.min() < 0 <= projected.min()
    assert projected.sum() == pytest.approx(values.sum(), abs=0.01)
    found = Counter(((i * i) % 40, i % 12) for i in range(6000))
    truth = np.array([found[d, h] for d in range(40) for h in (0, 1)])
    places = [d * 24 + h for d in range(40) for h in (0, 1)]
    assert np.abs(projected[places] - truth).mean() < np.abs(values[places] - truth).mean()


def test_nonnegative_parts_add_up_and_errors_stay_unbiased(noisy: Path):
    plain = ReleaseEngine(open_release(noisy, insecure=True))
    clamped = ReleaseEngine(open_release(noisy, insecure=True, nonnegative=True))
    days = "day BETWEEN 0 AND 49"
    by_hour = f"SELECT hour, COUNT(*) AS n FROM sales WHERE {days} GROUP BY hour"
    parts, whole = (
        clamped.query(by_hour),
        clamped.query(f"SELECT COUNT(*) FROM sales WHERE {days} AND hour BETWEEN 0 AND 23"),
    )
    assert sum(n for hour, n in parts.rows if hour is not None) == pytest.approx(whole.scalar(), abs=1e-4)
    unbiased = plain.query(by_hour)
    assert parts.noise_rows == unbiased.noise_rows
    both = zip(
        parts.stderr_rows,
        unbiased.stderr_rows,
        parts.interval_rows()[0],
        unbiased.interval_rows()[0],
        strict=True,
    )
    whole_intervals = [(a[1], b[1]) for a, b, *lows in both if all(low[1] > 0 for low in lows)]
    assert whole_intervals, "intervals that are not cut at 0"
    for clamped_error, error in whole_intervals:
        # Half of an interval around another middle: only the ends are rounded otherwise.
        assert clamped_error == pytest.approx(error, rel=1e-13)
    assert any("non-negative" in note for note in parts.notes)
    amount = "SELECT SUM(amount) AS s FROM sales WHERE day BETWEEN 0 AND 6"
    assert clamped.query(amount).stderr_rows == plain.query(amount).stderr_rows


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("axes: [sales.shelf], measures: [count], mechanism: diffhr",
         "axes: [sales.shelf, sales.hour], measures: [count], mechanism: diffhr", "one axis"),
        ("[sales.shelf], measures: [count], mechanism: diffhr",
         "[sales.shelf], measures: [count, sales.amount], mechanism: diffhr", "measures counts"),
        ("axes: [sales.shelf]", "axes: [{axis: sales.shelf, workload: [[0, 9], [5, 20]]}]",
         "diffhr takes no `workload`"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(tmp_path: Path, old: str, new: str, word: str):
    with pytest.raises(CatalogError, match=word):
        api.plan(shop(tmp_path, old, new))


@pytest.mark.slow
def test_a_view_that_names_the_signal_takes_no_workload(tmp_path: Path):
    """Its rows follow from what it sees; a view that only allows it has the strategy of least error on the workload."""
    old = "axes: [sales.hour], measures: [count], mechanism: signal"
    ranges = "axes: [{axis: sales.hour, workload: [[0, 9], [5, 20]]}], measures: [count]"
    with pytest.raises(CatalogError, match="takes no `workload`"):
        api.plan(shop(tmp_path, old, f"{ranges}, mechanism: signal"))
    report = api.plan(shop(tmp_path, old, f"{ranges}, data_dependent: allow"))
    (hours,) = [s for s in report.statistics if s.view == "hours"]
    assert not hours.strategies[0].startswith("by noisy signal")


def test_planning_says_who_chooses(tmp_path: Path):
    strategies = {s.view: s.strategies[0] for s in api.plan(shop(tmp_path)).statistics}
    assert strategies["hours"].startswith("by noisy signal")
    assert strategies["shelves"] == "DiffHR"
