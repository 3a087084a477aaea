"""Declared bounds: truncated or weighted rows, and the private number of rows beyond the bound."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpsql import api
from dpsql.catalog import load_catalog
from dpsql.central.axes import axis_maker
from dpsql.central.bounding import OpenSource, reach
from dpsql.central.placed_rows import prepare_tables
from dpsql.central.plan import plan_release
from dpsql.contributions.statements import UNIT
from dpsql.curator.audit import audit_release
from dpsql.curator.prove.layouts import RawRows
from dpsql.engines.registry import open_engine
from dpsql.errors import CatalogError
from dpsql.ledger.store import ledger_entries
from dpsql.noise import ExactNoise, ZeroNoise, os_entropy
from tests.releases import published, write_catalog
from tests.strategies import declared_cells
from tests.thinned import by_default

CATALOG = """
privacy: {lineage: people, cap: 9, unit: customer.customer_id, epsilon: 1.0}
tables:
  customer: {role: dimension, key: customer_id, private: true}
  sales: {role: fact, foreign_keys: {customer_id: customer}, max_ids: 4, bounding: HOW, clipped_share: 0.05,
    columns: {day: {type: int, lower: 0, upper: 9}, amount: {type: int, lower: 0, upper: 9, measure: true}}}
views:
  days: {of: sales, axes: [sales.day], measures: [count, sales.amount]}
"""
ROWS = [1, 2, 4, 8, 60]
"""Rows of each customer: 4 + 56 beyond four; the last leaves out 56, of which 45 are measured."""


def shop(folder: Path, how: str, rows: list[int]) -> Path:
    owners = [(owner, (owner + i) % 10, i % 10) for owner, n in enumerate(rows) for i in range(n)]
    sales = RawRows("customer_id INT, day INT, amount INT", owners)
    tables = {"sales": sales, "customer": "SELECT DISTINCT customer_id FROM sales"}
    return write_catalog(folder, CATALOG, tables, HOW=how)


def cells(folder: Path, how: str, rows: list[int]) -> list[np.ndarray]:
    catalog = load_catalog(shop(folder, how, rows))
    raw = open_engine(catalog)
    plan = plan_release(catalog, axis_maker(catalog, raw))
    prepare_tables(catalog, raw, plan)
    scan = OpenSource(catalog, raw, plan, ZeroNoise(), bytes(32))
    return list(declared_cells(scan, "sales").of(*plan.statistics))


@pytest.mark.parametrize("how", ["truncate", "weight"])
def test_bounds_hold_and_rows_beyond_are_measured(tmp_path: Path, how: str):
    answerer = published(shop(tmp_path, how, ROWS), ZeroNoise(), key=b"k" * 32)
    total = answerer.query("SELECT COUNT(*) FROM sales")
    assert total.scalar() == pytest.approx(1 + 2 + 4 + 4 + 4, abs=1e-3)
    (beyond,) = answerer.release.meta.bounding
    assert (beyond.rows, beyond.tau, beyond.at_most) == (4, 4, reach(4)), (
        "the rows of who owns 60 are in units"
    )
    assert (beyond.units, beyond.unbounded) == (1, False), "one of 60 rows, hidden by noise"
    assert beyond.counted == pytest.approx(15, abs=1e-3)
    assert beyond.stderr is not None and beyond.stderr > 300
    assert beyond.clipped_fraction is None, "50 rows are hidden by such noise"
    precise = replace(beyond, stderr=1.0, units_stderr=0.4)
    assert precise.clipped_fraction == pytest.approx(50 / 65, abs=1e-3)
    assert any(
        "hidden by noise, of up to 49 rows a unit lie beyond max_ids (4)" in note for note in total.notes
    )
    assert any("weighted" in note for note in total.notes) == (how == "weight")


def test_weights_spread_over_all_rows_of_a_unit(tmp_path: Path):
    """Truncation keeps 4 of 20 rows, wherever they fall; weights keep the shape."""
    count, amount = cells(tmp_path, "weight", [20])
    assert np.allclose(count[:10] / UNIT, 0.4, atol=1e-5)
    assert amount.sum() / UNIT == pytest.approx(4 * (4.5 - 4), abs=1e-4)


def test_the_number_beyond_is_charged_and_noisy(tmp_path: Path):
    release = published(shop(tmp_path, "truncate", ROWS), ExactNoise(os_entropy()), key=b"k" * 32).release
    (entry,) = ledger_entries(tmp_path / "ledger")
    lines = {line.purpose: line.amount for line in entry.spend_lines()}
    assert lines["sales: rows beyond max_ids"] == Fraction(1, 20)
    assert sum(lines.values()) == 1
    (beyond,) = release.meta.bounding
    assert beyond.stderr == pytest.approx(np.sqrt(2) * reach(4) * 20, rel=0.01)
    assert beyond.units_stderr == pytest.approx(np.sqrt(2) * 20, rel=0.01)


@pytest.mark.parametrize(
    ("written", "share"),
    [("", "1/20"), ("clipped_share: 0,", "0"), ("clipped_share: 0.25,", "1/4")],
)
def test_a_declared_bound_is_measured_unless_the_catalog_says_no(tmp_path: Path, written: str, share: str):
    file = shop(tmp_path, "truncate", ROWS)
    file.write_text(file.read_text().replace("clipped_share: 0.05,", written))
    catalog = load_catalog(file)
    plan = plan_release(catalog, axis_maker(catalog, open_engine(catalog)))
    assert catalog.star.tables["sales"].bounding.clipped_share == Fraction(share)
    lines = {line.purpose: line.amount for line in plan.lines}
    assert not any(line.delta for line in plan.lines)
    assert lines.get("sales: rows beyond max_ids", 0) == Fraction(share)
    assert sum(lines.values()) == 1
    (bound,) = api.plan(file, []).bounds
    assert bound.charge == (share if share != "0" else None)
    if bound.stderr is None:
        assert "are not measured, and every answer says so" in bound.line()
    else:
        assert bound.stderr == pytest.approx(np.sqrt(2) * reach(4) / Fraction(share))
        assert bound.units_stderr == pytest.approx(np.sqrt(2) / Fraction(share))


def test_under_a_delta_the_number_beyond_has_gaussian_noise_that_plan_foresees(tmp_path: Path):
    file = shop(tmp_path, "truncate", ROWS)
    file.write_text(file.read_text().replace("epsilon: 1.0", "epsilon: 1.0, delta: 1e-6"))
    (bound,) = api.plan(file, []).bounds
    (beyond,) = published(file, ZeroNoise(), key=b"k" * 32).release.meta.bounding
    assert beyond.stderr == pytest.approx(bound.stderr, rel=1e-3)
    assert beyond.units_stderr == pytest.approx(bound.units_stderr, rel=1e-3)
    assert bound.stderr == pytest.approx(reach(4) / np.sqrt(float(Fraction(bound.charge))), rel=1e-3)


def test_a_table_whose_rows_are_units_measures_nothing(tmp_path: Path):
    file = shop(tmp_path, "truncate", ROWS)
    written = file.read_text().replace("max_ids: 4, bounding: truncate, clipped_share: 0.05,", "")
    file.write_text(written.replace("unit: customer.customer_id", "unit: row"))
    answerer = published(file, ZeroNoise(), key=b"k" * 32)
    assert answerer.release.meta.bounding == ()
    result = answerer.query("SELECT DP_BIAS_HINT(COUNT(*)), DP_BIAS_HINT(AVG(amount)) FROM sales")
    assert result.rows == ((0.0, 0.0),)
    (flag,) = result.flags  # about values; there is no bound on rows to say anything of
    assert flag.startswith("sales.amount: values beyond its bounds")


@pytest.mark.parametrize("how", by_default(["weight", "truncate"], 1))
def test_planned_audited_and_answered_alike(tmp_path: Path, how: str):
    path = published(shop(tmp_path, how, ROWS), ExactNoise(os_entropy()), key=b"k" * 32).release.path
    report = audit_release(path, ExactNoise(os_entropy()), catalog=None, samples=2000)
    assert report.held, report.text()
    unmeasured = tmp_path / "unmeasured"  # what rows beyond the bound add to an error depends on the rows
    file = shop(unmeasured, how, ROWS)
    file.write_text(file.read_text().replace("clipped_share: 0.05", "clipped_share: 0"))
    statement = "SELECT COUNT(*) AS n, SUM(amount) AS s FROM sales WHERE day BETWEEN 0 AND 4"
    planned = api.plan(file, [statement]).queries[0].columns
    (errors,) = published(file, ExactNoise(os_entropy()), key=b"k" * 32).query(statement).stderr_rows
    assert [column.median for column in planned] == pytest.approx(errors, rel=1e-9)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("max_ids: 4", "max_ids: auto", "declared number"),
        ("clipped_share: 0.05", "clipped_share: 0.5", "0.25"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, old: str, new: str, word: str):
    catalog = shop(tmp_path, "weight", ROWS)
    catalog.write_text(catalog.read_text().replace(old, new))
    with pytest.raises(CatalogError, match=word):
        load_catalog(catalog)
