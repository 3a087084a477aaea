"""Long axes are planned, published and asked in bounded memory; what does not fit is refused by the plan."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpsql.errors import CatalogError
from dpsql.executor.engine import ReleaseEngine
from dpsql.matrices import model as models
from dpsql.matrices.strategy import AxisBudget
from dpsql.mechanisms.axis import auto_strategy, axis_strategy
from dpsql.mechanisms.axis.tree import TENT_LEAVES
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution
from dpsql.mechanisms.offers import AxisProblem, Word
from dpsql.noise import ZeroNoise
from dpsql.planner import axis_query, leaf_values
from dpsql.release import open_release
from dpsql.tree import Exact
from tests.long_axis import CATALOG, measured
from tests.releases import published, seeded, write_catalog
from tests.thinned import by_default

RESIDENT_MB = 1024
MISSES = 3
"""Of nine ranges at 95%: more come by chance once in a thousand, if the ranges erred independently."""


@pytest.mark.slow
@pytest.mark.parametrize("delta", by_default(["0", "1e-6"], 1))
def test_an_axis_of_2_17_leaves(delta):
    axis = measured(1 << 17, delta, "auto")
    assert axis.resident < RESIDENT_MB / 2
    assert axis.missed <= MISSES


@pytest.mark.slow
@pytest.mark.parametrize(("delta", "mechanism"), [("0", "auto"), ("1e-6", "auto"), ("0", "identity")])
def test_an_axis_of_2_20_leaves(delta, mechanism):
    axis = measured(1 << 20, delta, mechanism)
    assert axis.resident < RESIDENT_MB
    assert axis.missed <= MISSES


PEOPLE = """
privacy: {lineage: long, cap: 4, unit: person.pid, epsilon: 1, delta: 1e-6}
tables:
  person: {role: dimension, key: pid, private: true}
  sales: {role: fact, foreign_keys: {pid: person}, max_ids: auto, columns: {x: {type: int, lower: 0, upper: 262142}}}
views: {all: {of: sales, axes: [sales.x], measures: [count]}}
"""


@pytest.mark.timeout(120)
def test_people_on_a_long_axis(tmp_path: Path, publishes: None):
    """The norms' layers are found in one pass: where each row was copied, 2^18 leaves did not end."""
    sales = "SELECT (i * 7919 % 262143)::INT AS x, (i % 500)::INT AS pid FROM range(2000) AS r(i)"
    tables = {"sales": sales, "person": "SELECT i::INT AS pid FROM range(500) AS r(i)"}
    engine = published(write_catalog(tmp_path, PEOPLE, tables), seeded(1), "long")
    ((low,),), ((high,),) = engine.query("SELECT COUNT(*) FROM sales").interval_rows()
    assert low <= 2000 and (high is None or high >= 2000)


RUNS = (
    *(
        f"COUNT(*) FROM sales WHERE {where}"
        for where in ("x < 99", "NOT x BETWEEN 9 AND 4000", "x % 3000 < 7")
    ),
    "x // 900 AS k, COUNT(*), COUNT(*) FILTER (WHERE x < 4000) FROM sales WHERE 10 / (x - 50) < 1 GROUP BY 1",
    "SUM(n), MAX(n) FROM (SELECT x // 500 AS k, COUNT(*) AS n FROM sales WHERE x > 70 GROUP BY 1) AS t",
)


def test_runs_of_leaves_answer_as_leaves_do(tmp_path: Path, publishes: None, monkeypatch):
    text = CATALOG.replace(", out_of_domain: drop", "").format(delta=0, last=models.TABLE, mechanism="auto")
    catalog = write_catalog(
        tmp_path, text, {"sales": "SELECT (i * i % 4099)::INT AS x FROM range(900) AS r(i)"}
    )
    release, answers = published(catalog, seeded(1), "long").release.path, []
    moved = shutil.copy(release, tmp_path / "moved.dpsql")
    moved.chmod(0o600)
    with duckdb.connect(moved) as file:  # its leaves are not in the order of the axis
        file.execute("CREATE TABLE a AS FROM axis_0 ORDER BY hash(leaf)")
        file.execute("DROP TABLE axis_0; ALTER TABLE a RENAME TO axis_0")
    for path, most in ((release, models.TABLE), (moved, models.TABLE), (release, 1 << 20)):
        for module in (axis_query, leaf_values):
            monkeypatch.setattr(module, "TABLE", most)
        engine = ReleaseEngine(open_release(path, insecure=True))
        assert leaf_values.has_runs(engine.release, 0) == (path == release and most == models.TABLE)
        results = [engine.query(f"SELECT {question}") for question in RUNS for _ in range(3)]
        tables = [table for result in results for table in (result.rows, *result.interval_rows(0.95))]
        answers.append(np.array([value for table in tables for row in table for value in row], np.float64))
        ranges = [f"SELECT COUNT(*) FROM sales WHERE x >= 50 AND x {end}" for end in ("< 60.5", "<= 60")]
        assert len({engine.query(text).rows for text in ranges}) == 1, "50 and 60 are whole"
    np.testing.assert_allclose(answers[:2], answers[1:], rtol=1e-9)


def test_tents_on_a_longer_axis_are_refused():
    question = AxisProblem(TENT_LEAVES + 1, LAPLACE, None, 0.0, 1 << 14)
    with pytest.raises(CatalogError, match=r"tents.*leaves at most") as refusal:
        axis_strategy(question, Word("tents"), False)
    assert refusal.value.hint == "write `mechanism: auto`"


@pytest.mark.parametrize(("law", "word"), [(GAUSSIAN, "auto"), (LAPLACE, "auto"), (LAPLACE, "lue_dptree")])
def test_masks_of_few_steps_are_read_by_ranges(law: NoiseDistribution, word: str, monkeypatch):
    n = models.TABLE + 1
    problem = AxisProblem(n, law, None, 0.0, 1 << 14)
    found = auto_strategy(n, law=law) if word == "auto" else axis_strategy(problem, Word(word), False)
    solver = found.strategy.solver
    masks = np.zeros((5, n))
    masks[0], masks[1, 3], masks[2, 100:4000], masks[3, :20] = 1, 1, 1, 0.5
    masks[2, 300:310], masks[4, -1] = 0, 2
    by_ranges = solver.quadratic(masks)
    assert models.by_steps(solver, masks) is not None
    monkeypatch.setattr(models, "TABLE", n)
    np.testing.assert_allclose(by_ranges, solver.quadratic(masks), rtol=1e-8)


def test_gaussian_rows_stay_in_their_places_whatever_their_budgets():
    axes = [AxisBudget(np.array([3, 1, 2]), 4), AxisBudget(np.array([2, 1, 1, 2]), 3)]
    exact = Exact(np.arange(12).reshape(3, 4))
    drawn = GAUSSIAN.draw_at(exact, axes, Fraction(9), 1, ZeroNoise())
    assert drawn.value.tolist() == exact.tolist()
    assert drawn.budget.tolist() == np.outer([3, 1, 2], [2, 1, 1, 2]).tolist()
