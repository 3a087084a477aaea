"""Views by blocks, from catalog to answers: what is chosen, ledger lines, error parts, intervals, refusals."""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpsql.catalog import load_catalog
from dpsql.central.axes import axis_maker, open_public
from dpsql.central.central import publish_release
from dpsql.central.plan import plan_release
from dpsql.errors import CatalogError
from dpsql.executor.engine import ReleaseEngine
from dpsql.ledger.store import budget_report
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.release import open_release
from tests.releases import write_catalog
from tests.thinned import by_default

CATALOG = """
privacy: {lineage: riders, cap: 9, unit: row, epsilon: 1.0}
tables:
  rides: {role: fact, columns: {
    x: {type: int, lower: 0, upper: 63, nullable: true, out_of_domain: drop},
    y: {type: int, lower: 0, upper: 63, out_of_domain: drop}, z: {type: int, lower: 0, upper: 3, out_of_domain: drop},
    paid: {type: int, lower: 0, upper: 9, measure: true}}}
views:
  plane: {of: rides, axes: [rides.x, rides.y], measures: {count: 0.5, rides.paid: 0.5}, mechanism: blocks}
"""
SPARSE = """SELECT CASE WHEN i % 50 = 0 THEN NULL ELSE 10 + (i * i) % 9 END AS x, 20 + (i * 7) % 11 AS y, i % 4 AS z,
            i % 10 AS paid FROM range(8000) t(i)"""
FULL = "SELECT i % 64 AS x, (i // 64) % 64 AS y, i % 4 AS z, i % 10 AS paid FROM range(400000) t(i)"


def city(folder: Path, rows: str = SPARSE, old: str = "", new: str = "") -> Path:
    assert old in CATALOG
    return write_catalog(folder, CATALOG.replace(old, new) if old else CATALOG, {"rides": rows})


def publish(catalog: Path, seed: int = 3) -> Path:
    noise = ExactNoise(insecure_test_entropy(seed))
    return publish_release(
        load_catalog(catalog), catalog.with_suffix(".dpsql"), noise=noise, key=b"k" * 32
    ).path


@pytest.fixture(scope="module")
def sparse(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(city(tmp_path_factory.mktemp("sparse")))


def test_sparse_planes_are_measured_by_blocks_and_sums_follow(sparse: Path):
    with closing(open_release(sparse, insecure=True)) as release:
        count, paid = release.statistics
        assert {count.reading, paid.reading} == {"blocks"}
        assert "cell by cell" in count.mechanism
        assert count.mechanism == paid.mechanism
        assert not count.biased


def test_every_stage_has_a_ledger_line(sparse: Path):
    (lineage,) = budget_report(sparse.with_name("ledger")).lineages
    lines = {line.purpose: line.amount for line in lineage.entries[0].lines}
    assert lines == {
        "view plane: count, choice of blocks or product": Fraction(1, 200),
        "view plane: count, blocks and cells": Fraction(99, 200),
        "view plane: rides.paid, blocks and cells": Fraction(1, 2),
    }


def test_answers_are_near_and_both_parts_are_told(sparse: Path):
    answerer = ReleaseEngine(open_release(sparse, insecure=True))
    inside = "WHERE x BETWEEN 12 AND 40 AND y BETWEEN 3 AND 25"
    plain = duckdb.connect()
    for value in ("COUNT(*)", "SUM(paid)", "AVG(paid)"):
        found = answerer.query(f"SELECT {value} FROM rides {inside}")
        (low,), (high,) = (grid[0] for grid in found.interval_rows())
        ((truth,),) = plain.execute(
            f"SELECT {value} FROM '{sparse.parent}/rides.parquet' {inside}"
        ).fetchall()
        assert low < truth < high
        within, noise = found.components["within_leaf"][0][0], found.noise_rows[0][0]
        assert 0 < within < noise * 3
        linear = "AVG" not in value
        assert not linear or high - low == pytest.approx(2 * 1.96 * np.hypot(within, noise), rel=1e-2)
    asked = answerer.query(f"SELECT DP_STDERR(COUNT(*), 'within_leaf') AS e FROM rides {inside}")
    alone = answerer.query(f"SELECT COUNT(*) FROM rides {inside}")
    assert asked.scalar() == pytest.approx(alone.components["within_leaf"][0][0])


def test_a_question_that_cuts_no_leaf_has_no_such_part(sparse: Path):
    answerer = ReleaseEngine(open_release(sparse, insecure=True))
    assert answerer.query("SELECT COUNT(*) FROM rides").components["within_leaf"] == ((0.0,),)


def test_parts_add_up_to_the_whole(sparse: Path):
    answerer = ReleaseEngine(open_release(sparse, insecure=True))
    by_row = answerer.query("SELECT x, COUNT(*) AS n FROM rides GROUP BY x")
    assert len(by_row.rows) == 65
    assert sum(n for _, n in by_row.rows) == pytest.approx(
        answerer.query("SELECT COUNT(*) FROM rides").scalar(), abs=1e-4
    )


@pytest.mark.usefixtures("publishes")
def test_full_planes_are_measured_by_the_product(tmp_path: Path):
    with closing(open_release(publish(city(tmp_path, FULL)), insecure=True)) as release:
        assert {statistic.reading for statistic in release.statistics} == {"looked"}
        assert all("blocks are full" in statistic.mechanism for statistic in release.statistics)
        answerer = ReleaseEngine(release)
        found = answerer.query("SELECT COUNT(*), SUM(paid) FROM rides WHERE x < 20 AND y < 30")
        low, high = found.interval_rows(0.999)
        truth = duckdb.execute(
            f"SELECT COUNT(*), SUM(paid) FROM '{tmp_path}/rides.parquet' WHERE x < 20 AND y < 30"
        ).fetchall()[0]
        assert all(a < t < b for a, t, b in zip(low[0], truth, high[0], strict=True))
        assert found.components["within_leaf"] == ((0.0, 0.0),)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    by_default(
        [
            ("{count: 0.5, rides.paid: 0.5}", "[rides.paid, count]", "count first"),
            ("[rides.x, rides.y]", "[rides.x]", "two axes"),
            ("[rides.x, rides.y]", "[rides.x, rides.y, rides.z]", "two axes"),
            ("[rides.x, rides.y]", "[rides.z, {axis: rides.y, cuts: [16, 32, 48]}]", "too few blocks"),
            ("epsilon: 1.0", "epsilon: 1.0, delta: 1e-6", "delta 0"),
        ],
        2,
    ),
)
def test_what_does_not_fit_is_refused_by_name_and_passed_over_by_auto(tmp_path, old, new, word):
    with pytest.raises(CatalogError, match=word):
        readings(city(tmp_path, SPARSE, old, new))
    allowed = city(tmp_path, SPARSE, "mechanism: blocks", "data_dependent: allow")
    allowed.write_text(allowed.read_text().replace(old, new))
    assert "looked" not in readings(allowed)


def test_counts_take_blocks_and_counts_with_sums_one_draw(tmp_path: Path):
    """The bound of blocks is 1.02 times the product's error, that of numbers drawn together half of it."""
    shares, numbers = (
        "{count: 0.5, rides.paid: 0.5}, mechanism: blocks",
        "[count, rides.paid], data_dependent: allow",
    )
    assert readings(city(tmp_path, SPARSE, shares, "[count], data_dependent: allow")) == {"looked"}
    assert readings(city(tmp_path, SPARSE, shares, numbers)) == {"product"}


def readings(catalog: Path) -> set[str]:
    """How the planned statistics answer."""
    loaded = load_catalog(catalog)
    with closing(open_public(loaded)) as public:
        return {
            s.measurement.facts.reading for s in plan_release(loaded, axis_maker(loaded, public)).statistics
        }
