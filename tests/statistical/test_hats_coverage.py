"""95% intervals on views measured by product hats hold the answer in 93-97% of releases; errors have their size."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpsql.answer.answerer import Answerer
from dpsql.engines import open_sources
from dpsql.mechanisms.family.measurement import Terms
from dpsql.mechanisms.family.plane import best_product_hats
from dpsql.mechanisms.law import LAPLACE
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy
from dpsql.publishing.axes import axis_maker
from dpsql.publishing.bounding import DrawnRelease, Scan, bounding_of
from dpsql.publishing.content import release_content
from dpsql.publishing.plan import plan_release
from dpsql.publishing.rows import prepare_tables
from dpsql.release import open_release
from dpsql.star import load_catalog
from dpsql.star.source import PARQUET
from dpsql.variance.plane import PlaneReading

CATALOG = """
dpsql: 1
name: map
source: {{kind: parquet, root: "{root}", tables: {{hits: hits.parquet}}}}
privacy: {{lineage: map, cap: 10, unit: row, epsilon: 1.0, delta: 0}}
tables:
  hits: {{role: fact, columns: {{
    x: {{type: int, lower: 0, upper: 17}}, y: {{type: int, lower: 0, upper: 13}},
    cost: {{type: int, lower: 0, upper: 40, measure: true}}}}}}
views:
  plane: {{of: hits, axes: [hits.x, hits.y], measures: {{count: 0.5, hits.cost: 0.5}}, mechanism: product_hats}}
"""

WHERE = [
    "", "WHERE x < 9", "WHERE y BETWEEN 3 AND 9", "WHERE x BETWEEN 4 AND 12 AND y BETWEEN 2 AND 10",
    "WHERE x < 6 OR y < 4", "WHERE NOT (x BETWEEN 5 AND 14 AND y > 5)", "WHERE x IN (1, 3, 5, 7, 9, 11, 13)",
    "WHERE (x < 9 AND y < 7) OR (x >= 9 AND y >= 7)",
]  # fmt: skip
RELEASES = 400
DRAWS = 3000


@pytest.mark.slow
def test_simulated_errors_have_the_stored_variance_and_intervals_cover():
    """Draws and estimates by themselves: boxes and unions of boxes, 3,000 times."""
    hats = best_product_hats(18, 14)[0]
    x, y = np.indices(hats.leaf.shape)
    unions = [x >= 0, x < 9, (y > 2) & (y < 10), (x > 3) & (x < 13) & (y < 7), (x < 6) | (y < 4), x % 2 == 1,
              ((x < 9) & (y < 7)) | ((x > 8) & (y > 6))]  # fmt: skip
    masks = np.array([union.ravel() for union in unions], np.float64)
    cells = np.random.default_rng(1).integers(0, 60, hats.leaf.shape)
    model, terms = hats.joint_variance(), Terms((), LAPLACE, Fraction(1, 2), 3)
    one_hot = [np.repeat(np.eye(18), 14, axis=0), np.tile(np.eye(14), (18, 1))]
    c = (
        PlaneReading((model,), {(0, 1): hats.unit_variance(terms)})
        .covariance(
            [np.repeat(each, 252, axis=0) for each in one_hot], [np.tile(each, (252, 1)) for each in one_hot]
        )
        .noise
    )
    stderr = np.sqrt(np.einsum("qi,ij,qj->q", masks, c.reshape(252, 252), masks))
    noise = ExactNoise(insecure_test_entropy(11))
    off = np.array([
        masks @ (hats.leaf_estimates(hats.draw(cells, terms, noise), ()) - cells).ravel()
        for _ in range(DRAWS)
    ]) / stderr  # fmt: skip
    sizes = (off**2).mean(axis=0)
    assert np.all(np.abs(sizes - 1) < 5 * np.sqrt(5 / DRAWS)), sizes
    assert np.all(np.abs(off.mean(axis=0)) < 5 / np.sqrt(DRAWS)), off.mean(axis=0)
    rates = (np.abs(off) <= 1.959964).mean(axis=0)
    assert np.all((rates >= 0.93) & (rates <= 0.97)), rates


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """Exact cells of a plane, and a way to turn draws into an Answerer."""
    folder = tmp_path_factory.mktemp("plane")
    db = duckdb.connect()
    db.execute("SELECT setseed(0.5)")
    db.execute(
        f"COPY (SELECT (random() * 17)::INT AS x, (random() * random() * 13)::INT AS y, (random() * 40)::INT AS cost "
        f"FROM range(20000)) TO '{folder}/hits.parquet'"
    )
    file = folder / "map.yaml"
    file.write_text(CATALOG.format(root=folder))
    catalog = load_catalog(file)
    raw = open_sources(PARQUET, folder, catalog.source.tables)
    plan = plan_release(catalog, axis_maker(catalog, raw))
    assert len(plan.joint) == 1
    prepare_tables(catalog, raw, plan)
    scan = Scan(catalog, raw, plan, ZeroNoise(), bytes(32))
    cells = bounding_of(catalog, "hits").cells(scan).of(*plan.statistics)

    def release(noise, name):
        each = enumerate(plan.statistics)
        drawn = DrawnRelease(
            plan, tuple(s.measurement.draw(cells[i], s.terms(plan.axes), noise) for i, s in each)
        )
        path = Path(folder / name)
        release_content(drawn, name, insecure=True).write(path)
        return Answerer(open_release(path, insecure=True))

    return release


@pytest.mark.slow
def test_intervals_cover_and_errors_have_their_size(plane):
    sql = [f"SELECT COUNT(*), SUM(cost), AVG(cost) FROM hits {where}" for where in WHERE]
    exact_release = plane(ZeroNoise(), "exact.dpsql")
    exact = np.array([[float(v) for v in exact_release.query(q).rows[0]] for q in sql])
    held, squares = np.zeros(3), np.zeros((len(sql), 3))
    noise = ExactNoise(insecure_test_entropy(20251121))
    for i in range(RELEASES):
        answerer = plane(noise, f"r{i}.dpsql")
        for k, q in enumerate(sql):
            result = answerer.query(q)
            low, high = (rows[0] for rows in result.interval_rows(0.95))
            held += [a <= truth <= b for a, truth, b in zip(low, exact[k], high, strict=True)]
            off = np.array([float(v) for v in result.rows[0]]) - exact[k]
            squares[k] += (off / np.array(result.stderr_rows[0])) ** 2
        answerer.release.close()
    rates = held / (RELEASES * len(sql))
    assert np.all((rates >= 0.93) & (rates <= 0.97)), rates
    sizes = squares / RELEASES  # 1 on average; one of them deviates by about sqrt(2 / 400) = 0.07
    assert np.all(np.abs(sizes - 1) < 0.35), sizes
    assert np.all(np.abs(sizes.mean(axis=0) - 1) < 0.15), sizes.mean(axis=0)
