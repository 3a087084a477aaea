"""Non-negative answers of local releases: which views have them, and error bars of their own on one axis."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpsql
from benchmarks.local.simulated import one_row_each, range_masks, simulate_tallies
from dpsql.client.plan import read_plan
from dpsql.curator.audit.contents import check_tables
from dpsql.local import smooth as fits
from dpsql.local.estimate import axis_table
from dpsql.local.mechanisms.blue import ShareEstimate, range_variances
from dpsql.local.mechanisms.joint import make_model, weights_of
from dpsql.local.mechanisms.priors import HIDDEN, ROUGH, with_hidden
from dpsql.local.plan import CollectionDesign, PlannedAxis, build_plan
from dpsql.local.run import Reports, collect, write_plan
from dpsql.local.simulate import simulate_reports, write_spool
from dpsql.local.smooth import compatible, outside, positive_shares
from dpsql.matrices import channel
from dpsql.matrices.channel import StackVariance
from dpsql.release.read import open_release

pytestmark = pytest.mark.usefixtures("publishes")

HEAD = """
dpsql: 1
name: ages
privacy: {lineage: town, cap: 2, unit: row, epsilon: 1}
collection: {epsilon: 1}
tables:
  answer:
    role: fact"""
CATALOG = (
    HEAD
    + """
    columns:
      age: {type: int, lower: 0, upper: 39, cuts: {width: 1}, out_of_domain: drop}
      home: {type: string, categories: [north, south, east, west], out_of_domain: drop}
views:
  one: {of: answer, axes: [answer.age], measures: [count]}
  place: {of: answer, axes: [answer.home], measures: [count]}
"""
)


def bell(leaves: int, people: int, seed: int) -> np.ndarray:
    at = np.arange(leaves)
    shares = np.exp(-(((at - 0.45 * leaves) / (0.17 * leaves)) ** 2) / 2)
    return np.random.default_rng(seed).choice(leaves, size=people, p=shares / shares.sum())


def covered(leaves: int, people: int, epsilon: str, runs: int) -> tuple[float, float]:
    """Share of all ranges inside their 95% interval, and how wide these are beside the unbiased answers'."""
    upper, held, width = np.triu_indices(leaves + 1, 1), [], []
    apart = np.arange(upper[0].size) != leaves - 1  # the whole axis is known exactly
    for run in range(runs):
        axis, said = PlannedAxis("a", leaves, leaves), bell(leaves, people, run)
        design = CollectionDesign(f"run {run}", Fraction(epsilon), people, (axis,), rows_floor=1)
        plan = read_plan(build_plan(design))
        collection = simulate_tallies(plan, one_row_each(said[:, None]), np.random.default_rng(1000 + run))
        known = {0: axis_table(collection, 0)}
        found = positive_shares(collection, (0,), known)
        assert found is not None
        assert found.errors is not None
        assert (found.shares >= 0).all()
        masks = range_masks(leaves)[apart]
        error = np.abs(masks @ (found.shares - np.bincount(said, minlength=leaves) / people))
        own = np.sqrt(found.errors.covariance([masks]))
        unbiased = np.sqrt(np.maximum(range_variances(known[0].counts.covariance)[upper][apart], 0))
        held.append(float(np.mean(error < 1.96 * own)))
        width.append(float(own.mean() / unbiased.mean()))
    return float(np.mean(held)), float(np.mean(width))


@pytest.fixture(scope="module")
def bell_of_20() -> tuple[float, float]:
    """Coverage and width on 20 leaves."""
    return covered(20, 10_000, "2", 40)


@pytest.mark.slow
def test_intervals_of_non_negative_answers_hold(bell_of_20: tuple[float, float]) -> None:
    assert bell_of_20[0] >= 0.93


@pytest.mark.slow
@pytest.mark.slow
def test_intervals_of_non_negative_answers_are_no_wider_than_they_need(
    bell_of_20: tuple[float, float],
) -> None:
    assert bell_of_20[0] <= 0.97
    assert bell_of_20[1] < 0.8  # the unbiased answers' bars, which they had before, held 99.7%


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leaves", "people", "epsilon"), [(40, 20_000, "1"), (40, 20_000, "3"), (64, 50_000, "2")]
)
def test_intervals_of_non_negative_answers_hold_elsewhere(leaves: int, people: int, epsilon: str) -> None:
    held, width = covered(leaves, people, epsilon, 60)
    assert 0.93 <= held <= 0.97
    assert width < 0.85


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, people = tmp_path_factory.mktemp("positive"), 20_000
    (folder / "c.yaml").write_text(CATALOG)
    write_plan(folder / "c.yaml", folder / "plan.json", people)
    plan = read_plan((folder / "plan.json").read_bytes())
    said = np.stack([bell(40, people, 1), np.arange(people) % 4], axis=1)
    order = [0 if a.name == "answer.age" else 1 for a in plan.axes]
    reports = simulate_reports(plan, one_row_each(said[:, order]), np.random.default_rng(2))
    write_spool(folder / "r.parquet", reports)
    collect(Reports(folder / "plan.json", [folder / "r.parquet"], b"k" * 32), folder / "r.dpsql", "a" * 32)
    return folder / "r.dpsql"


def test_one_axis_answers_have_bars_of_their_own(release: Path) -> None:
    sql = "SELECT COUNT(*) FROM answer WHERE age BETWEEN 10 AND 17"
    plain, smooth = (dpsql.query(sql, release=release, nonnegative=kind) for kind in (False, True))
    errors = [float(np.asarray(r.stderr, dtype=float).reshape(-1)[0]) for r in (plain, smooth)]
    assert 0 < errors[1] < 0.9 * errors[0]
    exact = int(np.isin(bell(40, 20_000, 1), np.arange(10, 18)).sum())
    assert abs(float(smooth.scalar()) - exact) < 4 * errors[1]
    assert any("errors are from repeating their fit" in note for note in smooth.notes)
    whole = dpsql.query("SELECT COUNT(*) FROM answer", release=release, nonnegative=True)
    assert float(whole.scalar()) == pytest.approx(20_000, abs=1)
    groups = dpsql.query(
        "SELECT age, COUNT(*) AS n FROM answer GROUP BY age", release=release, nonnegative=True
    )
    assert (groups.df().n >= 0).all()
    assert (np.asarray(groups.stderr.iloc[:, -1], dtype=float) > 0).all()


def test_they_answer_one_axis_unless_unbiased_ones_are_asked_for(release: Path) -> None:
    """One kind a statement, and provenance says which; a release that flags its fit keeps the unbiased ones."""
    one = "SELECT COUNT(*) FROM answer WHERE age BETWEEN 10 AND 17"
    both = f"SELECT ({one}) AS a, (SELECT COUNT(*) FROM answer WHERE home = 'north') AS b"
    found = {kind: dpsql.query(one, release=release, nonnegative=kind) for kind in (None, False, True)}
    assert found[None].rows == found[True].rows != found[False].rows
    kinds = {kind: result.provenance["estimates"] for kind, result in found.items()}
    assert kinds == {None: "non-negative", False: "unbiased", True: "non-negative"}
    mixed = dpsql.query(both, release=release)
    assert mixed.provenance["estimates"] == "unbiased"
    assert mixed.rows[0][0] == found[False].rows[0][0]
    connection = dpsql.connect(str(release))
    connection.execute("SET dp_round = off")
    assert connection.execute(one).fetchall() == [tuple(found[True].rows[0])]
    connection.execute("SET dp_nonnegative = false")
    assert connection.execute(one).fetchall() == [tuple(found[False].rows[0])]
    connection.execute("SET dp_nonnegative = true")
    assert connection.execute(one).fetchall() == [tuple(found[True].rows[0])]
    connection.close()


def test_a_fit_that_the_reports_reject_is_not_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = table_of([40], [40])
    assert fine is not None
    assert fine.preferred
    stacked = fits.smooth_axis

    def reversed_axis(*of: object) -> fits.Stack:
        fit = stacked(*of)  # type: ignore[arg-type]
        return fit._replace(shares=fit.shares[::-1])

    monkeypatch.setattr(fits, "smooth_axis", reversed_axis)
    rejected = table_of([40], [40])
    assert rejected is not None
    assert not rejected.preferred


def test_the_truth_is_rejected_once_in_a_hundred_draws() -> None:
    """Ranges err together, so more than 5% of them lie outside their own intervals far more often."""
    rng, leaves = np.random.default_rng(0), 48
    root = rng.standard_normal((leaves, leaves)) / leaves
    truth, covariance = np.full(leaves, 1 / leaves), root @ root.T + np.eye(leaves) / leaves
    draws = [
        ShareEstimate(truth + rng.multivariate_normal(0 * truth, covariance), covariance) for _ in range(2000)
    ]
    rejected = float(np.mean([not compatible(truth, unbiased) for unbiased in draws]))
    assert 0.004 <= rejected <= 0.025
    assert np.mean([outside(truth, unbiased) > 0.05 for unbiased in draws[:300]]) > 0.2


def test_the_part_of_the_unbiased_noise_follows_the_answered_share() -> None:
    model = StackVariance(np.zeros((3, 3)), np.eye(3), np.array([0.04, 0.03, 0.93]), 0.08, 0.25)
    masks = np.array([[1.0, 0, 0], [1, 1, 0], [0, 0, 1]])
    np.testing.assert_allclose(model.covariance([masks]), [0.08, 0.5, 0.25])
    rng = np.random.default_rng(0)
    root = rng.standard_normal((2, 3, 3))
    mixed = StackVariance(root[0] @ root[0].T, root[1] @ root[1].T, model.shares, 0.08, 0.25)
    both = np.array([[float(mixed.covariance([a[None]], [b[None]])[0]) for a in masks] for b in masks])
    assert np.linalg.eigvalsh(both).min() > -1e-9
    again = channel.stack_from_columns(mixed.columns())
    np.testing.assert_allclose(again.covariance([masks]), mixed.covariance([masks]))
    assert (again.small, again.large) == (0.08, 0.25)


def test_the_less_refits_scatter_the_more_is_hidden() -> None:
    none, some, much = (with_hidden(part * np.eye(8), np.eye(8)) for part in (0.0, 0.2, 0.6))
    assert (none.small, none.large) == HIDDEN
    assert none.small > some.small > much.small == 0
    assert none.large > some.large > much.large > 0
    np.testing.assert_allclose(some.covariance, (1 - 0.2 * ROUGH) * 0.2 * np.eye(8))


def test_a_view_without_them_says_so(release: Path) -> None:
    found = dpsql.query("SELECT home, COUNT(*) FROM answer GROUP BY home", release=release, nonnegative=True)
    assert any("no non-negative estimates: its counts are unbiased" in note for note in found.notes)


def test_the_release_holds_nothing_but_what_it_lists(release: Path) -> None:
    held = open_release(release)
    checks = [check for check in check_tables(held) if check.held is False]
    statistics = {s.view: s.nonnegative_model for s in held.statistics}
    held.close()
    assert statistics["place"] is None
    assert statistics["one"] == 2
    assert not checks


def table_of(sizes: list[int], smooth: list[int], people: int = 20_000) -> fits.Positive | None:
    axes = tuple(PlannedAxis(f"a{i}", m, s) for i, (m, s) in enumerate(zip(sizes, smooth, strict=True)))
    every = tuple(range(len(sizes)))
    design = CollectionDesign("limits", Fraction(1), people, axes, together=(every,), rows_floor=1)
    plan, rng = read_plan(build_plan(design)), np.random.default_rng(3)
    said = np.stack([bell(m, people, i) for i, m in enumerate(sizes)], axis=1)
    collection = simulate_tallies(plan, one_row_each(said), rng)
    return positive_shares(collection, every, {a: axis_table(collection, a) for a in every})


@pytest.mark.parametrize("sizes", [[25, 25, 25], pytest.param([150, 150], marks=pytest.mark.slow)])
def test_views_beyond_ten_thousand_cells_have_them(sizes: list[int]) -> None:
    found = table_of(sizes, sizes)
    assert found is not None
    assert found.shares.shape == tuple(sizes)
    assert (found.shares >= 0).all()
    assert found.shares.sum() == pytest.approx(1, abs=0.02)
    assert found.errors is None  # several axes: the unbiased answers' bars


def test_a_fit_that_would_take_hours_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("no fit should be tried")

    monkeypatch.setattr(fits, "joint_table", never)
    assert table_of([34, 34], [0, 0]) is None  # 1,156 combinations of categories, one weight each
    assert table_of([260, 260], [260, 260]) is None  # memory


@pytest.mark.parametrize(
    ("sizes", "smooth", "seen", "knots"),
    [
        ([30, 20], [30, 18], [], 12),
        ([9, 8, 7], [9, 8, 0], [], 0),
        ([12, 5, 6, 7], [12, 0, 6, 4], [], 0),
        ([9, 8, 7], [9, 8, 6], [(0, 1, 2)], 0),
        ([6, 5, 6, 4], [6, 0, 6, 0], [(0, 1, 2, 3)], 0),
    ],
)
def test_fits_are_as_large_as_foretold(
    sizes: list[int], smooth: list[int], seen: list[tuple[int, ...]], knots: int
) -> None:
    held = make_model(sizes, smooth, seen, knots).features.shape[1]
    assert weights_of(sizes, smooth, seen, knots) == held
