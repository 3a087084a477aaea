"""LPRR's level combinations by name: `kind: lprr`, from the catalog to SQL."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpsql
from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql.catalog import parse_catalog
from dpsql.client.plan import read_plan
from dpsql.errors import CatalogError
from dpsql.local import plan as plans
from dpsql.local.estimate import axis_table, interaction, model_of, table
from dpsql.local.parts import Estimates, interactions
from dpsql.local.plan import CollectionDesign, PlannedAxis, build_plan
from dpsql.local.run import Reports, collect, write_plan
from dpsql.local.simulate import simulate_reports, write_spool
from dpsql.matrices.kronecker import AxisSplit, ProductReading
from dpsql.matrices.model import PrefixVariance

SIZES = (9, 6)


def design(people: int, smooth: bool = False, **more: object) -> CollectionDesign:
    axes = tuple(PlannedAxis(f"a{i}", m, m if smooth else 0) for i, m in enumerate(SIZES))
    plain = CollectionDesign(
        "l", Fraction(2), people, axes, together=((0, 1),), rows_floor=1, branching=3, kind="lprr"
    )
    return CollectionDesign(**{**vars(plain), **more})  # type: ignore[arg-type]


def said_by(people: int, seed: int) -> np.ndarray:
    """Two columns that go together sharply."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 9, people)
    second = np.where(rng.random(people) < 0.7, (first * 2) % 6, rng.integers(0, 6, people))
    return np.stack([first, second], axis=1)


def test_every_combination_but_the_roots_is_asked_by_depth() -> None:
    plan = read_plan(build_plan(design(10_000)))
    asked = {
        tuple(len(view.edges[view.axes.index(a)]) - 1 if a in view.axes else 1 for a in (0, 1)): view.share
        for view in plan.views
    }
    firsts, seconds = (1, 3, 9), (1, *sorted({cells for _, cells in asked} - {1}))
    depth = {(a, b): i + j for i, a in enumerate(firsts) for j, b in enumerate(seconds) if i + j}
    assert asked.keys() == depth.keys()
    unit = sum(depth.values())
    for levels, share in asked.items():
        assert share == pytest.approx(plans.SHARES * depth[levels] / unit, abs=1)


def test_a_coarse_combination_says_nothing_of_what_lies_inside_its_cells() -> None:
    """Pooled as one, coarse grids would smear the fine ones; step by step every box is unbiased and its bar right."""
    plan, people = read_plan(build_plan(design(60_000))), 60_000
    hits, off_by = [], []
    for run in range(12):
        said = said_by(people, run)
        exact = np.histogram2d(said[:, 0], said[:, 1], bins=[np.arange(m + 1) for m in SIZES])[0] / people
        collection = simulate_tallies(plan, one_row_each(said), np.random.default_rng(100 + run))
        known = {a: axis_table(collection, a) for a in (0, 1)}
        held = table((0, 1), known, interactions(Estimates(collection, known), [(0, 1)]))
        models = tuple(AxisSplit(PrefixVariance(model_of(known[a].counts))) for a in (0, 1))
        boxes = [
            [np.isin(np.arange(9), range(a, a + 4)) * 1.0, np.isin(np.arange(6), range(b, b + 2)) * 1.0]
            for a in range(6)
            for b in range(5)
        ]
        masks = [np.array([box[i] for box in boxes]) for i in (0, 1)]
        off = np.einsum("bi,ij,bj->b", masks[0], held.values - exact, masks[1])
        error = np.sqrt(ProductReading(models, dict(held.strengths)).covariance(masks).noise)
        hits.append(np.mean(np.abs(off) < 1.96 * error))
        off_by.append(off / error)
    assert 0.9 <= np.mean(hits) <= 0.995, hits
    assert np.abs(np.mean(off_by, axis=0)).max() < 4 / np.sqrt(len(off_by))


def test_what_it_errs_by_is_what_independent_views_bring() -> None:
    """The interaction's stated noise, summed over its parts, against collections of the same people."""
    plan, said = read_plan(build_plan(design(20_000))), said_by(20_000, 1)
    values, told = [], 0.0
    mask = np.outer(np.arange(9) < 4, np.arange(6) >= 3) - 0.0
    for run in range(40):
        collection = simulate_tallies(plan, one_row_each(said), np.random.default_rng(run))
        seen = interaction(collection, (0, 1), None)
        assert seen is not None
        values.append(float((mask * seen.table).sum()))
        sides = [np.arange(9) < 4, np.arange(6) >= 3]
        told = sum(
            variance * np.prod([((side @ s) ** 2).sum() for side, s in zip(sides, spreads, strict=True)])
            for variance, spreads in seen.noises
        )
    assert 0.5 < np.var(values) / told < 2  # 40 draws tell a variance to about a quarter


CATALOG = """
dpsql: 1
name: homes
privacy: {lineage: town, cap: 3, unit: row, epsilon: 3}
collection: {epsilon: 3, kind: lprr, branching: 4, participation: all}
tables:
  answer:
    role: fact
    columns:
      age: {type: int, lower: 0, upper: 15, cuts: {width: 1}, out_of_domain: drop}
      rooms: {type: int, lower: 0, upper: 7, cuts: {width: 1}, out_of_domain: drop}
      paid: {type: int, lower: 0, upper: 20, measure: true}
views: {both: {of: answer, axes: [answer.age, answer.rooms], measures: [count, answer.paid]}}
"""


@pytest.mark.usefixtures("publishes")
def test_it_answers_in_sql(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CATALOG)
    people, rng = 40_000, np.random.default_rng(3)
    write_plan(tmp_path / "c.yaml", tmp_path / "p.json", people)
    plan = read_plan((tmp_path / "p.json").read_bytes())
    age = rng.integers(0, 16, people)
    rooms = np.clip(age // 2 + rng.integers(-1, 2, people), 0, 7)
    paid = np.clip(rooms * 2 + rng.integers(0, 6, people), 0, 20)
    order = [0 if axis.name == "answer.age" else 1 for axis in plan.axes]
    everybody = one_row_each(np.stack([age, rooms], axis=1)[:, order], paid[:, None])
    write_spool(tmp_path / "r.parquet", simulate_reports(plan, everybody, rng))
    collect(Reports(tmp_path / "p.json", [tmp_path / "r.parquet"], b"k" * 32), tmp_path / "r.dpsql", "x")
    where = (age < 8) & (rooms >= 2)
    exact = {"COUNT(*)": where.sum(), "SUM(paid)": paid[where].sum(), "AVG(paid)": paid[where].mean()}
    for what, true in exact.items():
        sql = f"SELECT {what} FROM answer WHERE age < 8 AND rooms >= 2"
        found = dpsql.query(sql, release=tmp_path / "r.dpsql", nonnegative=False)
        error = float(np.asarray(found.stderr, dtype=float).reshape(-1)[0])
        assert 0 < error < 0.2 * true, what
        assert abs(float(found.scalar()) - true) < 4.5 * error, what


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = "joint: {g: {axes: [answer.age, answer.rooms, answer.age], share: 1/10}}, kind: lprr"
    with pytest.raises(CatalogError):
        parse_catalog(CATALOG.replace("kind: lprr", grid))
    monkeypatch.setattr(plans, "MOST_COMBINATIONS", 7)
    with pytest.raises(CatalogError, match="8 combinations of levels; the most is 7"):
        build_plan(design(1_000))
    monkeypatch.setattr(plans, "MOST_COMBINATIONS", 8)
    monkeypatch.setattr(plans, "MOST_CELLS", 20)
    cells = [view.cells for view in read_plan(build_plan(design(1_000))).views]
    assert max(cells) <= 20
    assert len(cells) < 8
