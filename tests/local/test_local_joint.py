"""Declared joint grids: what three axes do together, which no pair of them shows, reaches the answers."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpsql
from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql.client import Plan, decode, read_plan, to_json
from dpsql.errors import CatalogError, MachineFault
from dpsql.faults import advice
from dpsql.local import parts, run, smooth
from dpsql.local.estimate import FittedTable, axis_table, model_of, table
from dpsql.local.forecast import predict
from dpsql.local.mechanisms import joint
from dpsql.local.mechanisms.truncation import granularity, joint_granularity
from dpsql.local.parts import Estimates, interactions
from dpsql.local.plan import CollectionDesign, PlannedAxis, PlannedGrid, PlannedMeasure, build_plan, plan_body
from dpsql.local.run import Reports, collect, write_plan
from dpsql.local.simulate import simulate_reports
from dpsql.local.smooth import joint_seconds, joint_table, positive_shares
from dpsql.matrices.kronecker import AxisSplit, ProductReading
from dpsql.matrices.model import PrefixVariance
from dpsql.release.verify import verify
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

PEOPLE = 30_000
WEAK = joint.Strength(1.0, 1.0, 1e-2)
HOURS = """
dpsql: 1
name: hours
privacy: {lineage: town, cap: 4, unit: row, epsilon: 3}
collection: {epsilon: 3}
tables:
  answer:
    role: fact
    columns:
      rise: {type: int, lower: 0, upper: 7, out_of_domain: drop}
      rest: {type: int, lower: 0, upper: 7, out_of_domain: drop}
      cups: {type: int, lower: 0, upper: 4, measure: true}
views:
  all: {of: answer, axes: [answer.rise, answer.rest], measures: [count, answer.cups]}
"""
SURVEY = """
dpsql: 1
name: habits
privacy: {lineage: town, cap: 4, unit: row, epsilon: 3}
collection: COLLECTION
tables:
  answer:
    role: fact
    columns:
      tea: {type: string, categories: [no, yes], out_of_domain: drop}
      late: {type: string, categories: [no, yes], out_of_domain: drop}
      quiet: {type: string, categories: [no, yes], out_of_domain: drop}
      cups: {type: int, lower: 0, upper: 4, measure: true}
views:
  all: {of: answer, axes: [answer.tea, answer.late, answer.quiet], measures: [count, answer.cups]}
"""
JOINT = "{epsilon: 3, joint: {habit: {axes: [answer.tea, answer.late, answer.quiet], share: 2/5}}}"


def parity_people(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Three fair answers whose parity is even in four of five people; people of even parity drink more cups."""
    first, second = rng.integers(0, 2, PEOPLE), rng.integers(0, 2, PEOPLE)
    third = first ^ second ^ (rng.random(PEOPLE) < 0.2)
    even = (first ^ second ^ third) == 0
    return np.stack([first, second, third], axis=1), np.where(even, 3, 1)


def released(folder: Path, collection: str) -> Path:
    (folder / "c.yaml").write_text(SURVEY.replace("COLLECTION", collection))
    write_plan(folder / "c.yaml", folder / "plan.json", PEOPLE)
    plan = read_plan((folder / "plan.json").read_bytes())
    assert [a.name.split(".")[1] for a in plan.axes] == ["tea", "late", "quiet"]
    said, cups = parity_people(np.random.default_rng(1))
    reports = simulate_reports(plan, one_row_each(said, cups[:, None]), np.random.default_rng(2))
    (folder / "r.jsonl").write_text("\n".join(to_json(decode(report)) for report in reports))
    release = folder / "r.dpsql"
    collect(Reports(folder / "plan.json", [folder / "r.jsonl"], b"k" * 32), release, "x")
    return release


def misses(release: Path, measure: bool) -> list[float]:
    """Errors of the eight groups in standard errors."""
    said, cups = parity_people(np.random.default_rng(1))
    what = "SUM(cups)" if measure else "COUNT(*)"
    found = dpsql.query(
        f"SELECT tea, late, quiet, {what} AS n, DP_STDERR({what}) AS e FROM answer GROUP BY tea, late, quiet",
        release,
    )
    errors = []
    for tea, late, quiet, n, error in found.rows:
        if None not in (tea, late, quiet):
            held = (said == [int(v == "yes") for v in (tea, late, quiet)]).all(axis=1)
            errors.append((n - (cups[held].sum() if measure else held.sum())) / error)
    return errors


def test_sql_finds_what_only_three_axes_together_show(tmp_path: Path) -> None:
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    seen = released(tmp_path / "with", JOINT)
    unseen = released(tmp_path / "without", "{epsilon: 3}")
    for measure in (False, True):
        assert len(misses(seen, measure)) == 8
        assert max(np.abs(misses(seen, measure))) < 3.5
        assert min(np.abs(misses(unseen, measure))) > 5


def waves(people: int, leaves: int, rng: np.random.Generator) -> np.ndarray:
    """Rows whose density is a smooth wave along all three axes at once: every pair of axes is even."""
    drawn = rng.integers(0, leaves, size=(4 * people, 3))
    high = 1 + 0.8 * np.prod(np.cos(np.pi * (drawn + 0.5) / leaves), axis=1)
    return np.asarray(drawn[rng.random(len(drawn)) < high / 1.8][:people])


def ordered(share: Fraction | None, people: int = 200_000, epsilon: int = 3) -> CollectionDesign:
    axes = tuple(PlannedAxis(f"a{i}", 12, 12) for i in range(3))
    grids = () if share is None else (PlannedGrid("hot", (0, 1, 2), share),)
    return CollectionDesign(
        "waves", Fraction(epsilon), people, axes, together=((0, 1, 2),), joint=grids, rows_floor=1,
        wave_share=Fraction(0),
    )  # fmt: skip


def fitted(plan: Plan, rows: np.ndarray, seed: int) -> tuple[FittedTable, ProductReading]:
    collection = simulate_tallies(plan, one_row_each(rows), np.random.default_rng(seed))
    known = {a: axis_table(collection, a) for a in range(3)}
    held = table((0, 1, 2), known, interactions(Estimates(collection, known), [(0, 1, 2)]))
    models = tuple(AxisSplit(PrefixVariance(model_of(known[a].counts))) for a in range(3))
    return held, ProductReading(models, dict(held.strengths))


Box = tuple[slice, ...]
EIGHTHS: list[Box] = list(itertools.product((slice(0, 6), slice(6, 12)), repeat=3))


def some_boxes(count: int, rng: np.random.Generator) -> list[Box]:
    return [tuple(slice(*np.sort(rng.choice(13, 2, replace=False))) for _ in range(3)) for _ in range(count)]


def missed(box: Box, held: FittedTable, variance: ProductReading, exact: np.ndarray) -> tuple[float, float]:
    """How far an answer is off, and its stated standard error."""
    masks = [np.zeros((1, 12)) for _ in box]
    for mask, cut in zip(masks, box, strict=True):
        mask[0, cut] = 1
    off = abs(float(held.values[box].sum() - exact[box].sum()))
    return off, float(variance.covariance(masks).noise[0]) ** 0.5


PLANTED = 0.8 * (2 / np.pi) ** 3 / 8
"""What the wave adds to an eighth of the cube, or takes away."""


@pytest.mark.parametrize("share", by_default([Fraction(3, 10), None], 1))
def test_a_fit_of_ordered_axes_finds_the_wave_where_a_grid_sees_the_axes_together(
    share: Fraction | None,
) -> None:
    rows = waves(200_000, 12, np.random.default_rng(1))
    exact = np.histogramdd(rows, bins=[np.arange(13)] * 3)[0] / len(rows)
    plan, rng = read_plan(build_plan(ordered(share))), np.random.default_rng(2)
    hits, errors = [], []
    for seed in range(2):
        held, variance = fitted(plan, rows, seed)
        for box in [*EIGHTHS, *some_boxes(16, rng)]:
            off, error = missed(box, held, variance, exact)
            hits.append(off < 1.96 * error)
            errors += [off] if box in EIGHTHS else []
    assert (np.mean(hits) > 0.85) == (share is not None), np.mean(hits)
    assert (np.mean(errors) < 0.4 * PLANTED) == (share is not None), np.mean(errors)


def test_weights_of_three_axes_exist_only_where_a_view_holds_them() -> None:
    pairs, triple = (
        joint.make_model((6, 6, 6), (6, 6, 6)),
        joint.make_model((6, 6, 6), (6, 6, 6), [(0, 1, 2)]),
    )
    assert triple.features.shape[1] - pairs.features.shape[1] == joint.knots_of(3) ** 3
    assert (triple.features[:, : pairs.features.shape[1]] == pairs.features).all()
    wave = 1 + 0.8 * np.prod([np.cos(np.pi * (a + 0.5) / 6) for a in np.indices((6, 6, 6))], axis=0)
    edges = tuple(np.array([0, 2, 4, 6]) for _ in range(3))
    even = np.full((3, 3, 3), 1e-8)
    seen = joint.marginal_of(wave / wave.sum(), joint.Marginal((0, 1, 2), edges, even, even))
    view = joint.Marginal((0, 1, 2), edges, seen, even)
    off = [
        np.abs(joint.marginal_of(joint.table_of(model, joint.fit(model, [view], WEAK)), view) - seen).max()
        for model in (pairs, triple)
    ]
    assert off[0] > 0.01
    assert off[1] < 0.02 * off[0]


def test_the_posterior_of_a_table_that_reports_pin_down_is_their_covariance_given_the_total() -> None:
    model, noise = joint.make_model((6, 6), (6, 6)), 1e-8
    even = np.full((6, 6), 1 / 36)
    edges = (np.arange(7), np.arange(7))
    view = joint.Marginal((0, 1), edges, even, np.full((6, 6), noise))
    for strength, loose in ((joint.Strength(1e-6, 1e-6, 1e-6), True), (joint.Strength(1e9, 1e9, 1e9), False)):
        weights = joint.fit(model, [view], strength)
        factor = joint.posterior(model, [view], strength, weights)
        assert np.abs(factor.sum(axis=(0, 1))).max() < 1e-12  # the total is known
        ratios = []
        for rows, columns in ((1, 1), (3, 3), (6, 2)):
            box = factor[:rows, :columns].reshape(-1, factor.shape[-1]).sum(axis=0)
            cells = rows * columns
            ratios.append(float(box @ box) / (noise * (cells - cells**2 / 36)))
        assert np.allclose(ratios, 1, rtol=0.02) if loose else ratios[0] < 0.3, ratios


@pytest.mark.slow
def test_rough_pairs_get_a_lattice_finer_than_their_grid() -> None:
    rng = np.random.default_rng(3)
    axes = tuple(PlannedAxis(f"a{i}", 40, 40) for i in range(2))
    design = CollectionDesign(
        "c", Fraction(4), 1_000_000, axes, together=((0, 1),), rows_floor=1, wave_share=Fraction(0)
    )
    plan = read_plan(build_plan(design))
    (cells,) = {len(v.edges[0]) - 1 for v in plan.views if len(v.axes) == 2}
    smooth = rng.normal(20, 8, size=(100_000, 2))
    rough = rng.integers(2, 38, size=(15, 2))[rng.integers(0, 15, 100_000)] + rng.normal(0, 1, (100_000, 2))
    knots = []
    for rows in (smooth, rough):
        leaves = np.clip(np.rint(rows), 0, 39).astype(np.int64)
        collection = simulate_tallies(plan, one_row_each(np.repeat(leaves, 10, axis=0)), rng)
        pair = joint_table(collection, (0, 1), None, 1.0).model.width == 2
        knots.append(round(float(pair.sum()) ** 0.5))
    assert knots[0] < cells < knots[1] == 24


def test_a_grid_of_four_axes_tells_about_every_three_and_two_of_them() -> None:
    axes = tuple(PlannedAxis(f"a{i}", 5, 5) for i in range(4))
    made = CollectionDesign(
        "four", Fraction(3), 20_000, axes, measures=(PlannedMeasure("m", 0, 2),), rows_floor=1,
        joint=(PlannedGrid("hot", (3, 1, 0, 2), Fraction(1, 2)),),
    )  # fmt: skip
    plan = read_plan(build_plan(made))
    rng = np.random.default_rng(1)
    rows = one_row_each(rng.integers(0, 5, size=(20_000, 4)), rng.integers(0, 3, size=(20_000, 1)))
    collection = simulate_tallies(plan, rows, rng)
    known = {a: axis_table(collection, a) for a in range(4)}
    found = interactions(Estimates(collection, known), [(0, 1, 2)])
    assert set(found) == {(0, 1), (0, 2), (1, 2), (0, 1, 2)}
    assert all(part.strength > 0 for part in found.values())


def test_joint_grids_get_their_share_and_a_size_that_fits_the_noise() -> None:
    plan = read_plan(build_plan(ordered(Fraction(3, 10))))
    (grid,) = [v for v in plan.views if len(v.axes) == 3]
    assert grid.share == 300_000
    assert grid.cells == 125  # a tree level near the four knots of the fit
    assert predict(plan, 200_000)[-1].question == "a grid cell of a0 and a1 and a2"
    groups = 3 + 3
    assert joint_granularity(1e6 / groups, 1.0, 2) == pytest.approx(granularity(1e6, 1.0, 3)[1])
    assert joint_granularity(1e5, 1.0, 2, 50) < joint_granularity(1e5, 1.0, 2, 2)


def test_a_grid_is_as_fine_as_its_noise_allows_and_no_finer_than_its_leaves() -> None:
    counts = []
    for people in (10_000, 5_000_000, 1_000_000_000):
        made = ordered(None, people, 1)
        (cells,) = {v.cells for v in read_plan(build_plan(made)).views if len(v.axes) == 2}
        fine = min(max(round(granularity(people, 1.0, 3)[1]), 5), 12)
        assert cells == fine**2
        counts.append(fine)
    assert counts == sorted(set(counts)) and counts[-1] == 12
    mixed = (PlannedAxis("age", 25, 25), PlannedAxis("sex", 2, 0))
    sharp = CollectionDesign("s", Fraction(5), 1_000_000_000, mixed, together=((0, 1),), rows_floor=1)
    assert {v.cells for v in read_plan(build_plan(sharp)).views if len(v.axes) == 2} == {50}


def test_a_joint_grid_with_too_many_cells_says_what_to_change() -> None:
    axes = (PlannedAxis("city", 90, 0), PlannedAxis("sex", 2, 0), PlannedAxis("shop", 40, 0))
    made = CollectionDesign(
        "big", Fraction(1), 1000, axes, joint=(PlannedGrid("hot", (0, 1, 2), Fraction(1, 2)),)
    )
    with pytest.raises(CatalogError, match=r"`hot` has 7200 cells; the most is 4096") as refused:
        build_plan(made)
    assert "city" in str(refused.value.hint)
    with pytest.raises(CatalogError, match="leave nobody"):
        build_plan(CollectionDesign("n", Fraction(1), 10, axes[:2], row_share=Fraction(1)))


def test_shares_of_views_decide_who_is_asked_what(tmp_path: Path) -> None:
    more = "  two: {of: answer, axes: [answer.tea, answer.late], measures: [count]}\n"
    asked = "{epsilon: 3, shares: {two: 3/4}}"
    (tmp_path / "c.yaml").write_text(SURVEY.replace("COLLECTION", asked) + more)
    write_plan(tmp_path / "c.yaml", tmp_path / "plan.json", 1000)
    plan = read_plan((tmp_path / "plan.json").read_bytes())
    share: dict[tuple[int, ...], float] = {}
    for view in plan.views:
        share[view.axes] = share.get(view.axes, 0) + view.share / sum(v.share for v in plan.views)
    # `two` has three groups (two axes, one pair), `all` six
    assert share[(0, 1)] == pytest.approx(0.75 / 3 + 0.25 / 6, abs=1e-4)
    assert share[(2,)] == pytest.approx(0.25 / 6, abs=1e-4)
    assert plan_body(plan)["catalog"]["collection"]["shares"] == {"two": "3/4"}


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "least"), [(1, 0.93), (3, 0.8), (5, 0.93)])
def test_intervals_of_a_declared_grid_cover_where_the_wave_lives_and_elsewhere(
    epsilon: int, least: float
) -> None:
    plan = read_plan(build_plan(ordered(Fraction(3, 10), epsilon=epsilon)))
    eighths: list[bool] = []
    anywhere: list[bool] = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        rows = waves(200_000, 12, rng)
        exact = np.histogramdd(rows, bins=[np.arange(13)] * 3)[0] / len(rows)
        held, variance = fitted(plan, rows, seed + 100)
        for boxes, hits in ((EIGHTHS, eighths), (some_boxes(40, rng), anywhere)):
            for box in boxes:
                off, error = missed(box, held, variance, exact)
                hits.append(off < 1.96 * error)
    assert np.mean(eighths) > least, np.mean(eighths)
    assert np.mean(anywhere) > 0.95, np.mean(anywhere)


def test_each_set_of_axes_is_fitted_once_and_the_plan_says_for_how_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = read_plan(build_plan(ordered(Fraction(1, 2), 20_000)))
    people = one_row_each(np.zeros((20_000, 3), np.int64))
    collection = simulate_tallies(plan, people, np.random.default_rng(3))
    known = {a: axis_table(collection, a) for a in range(3)}
    fitted: list[tuple[int, ...]] = []
    plain = joint_table

    def counted(collection: object, axes: tuple[int, ...], *more: object) -> smooth.JointTable:
        fitted.append(tuple(axes))
        return plain(collection, axes, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(parts, "joint_table", counted)
    monkeypatch.setattr(smooth, "joint_table", counted)
    estimates = Estimates(collection, known)
    first = interactions(estimates, [(0, 1, 2)])
    again = interactions(estimates, [(0, 1, 2)])
    positive = positive_shares(collection, (0, 1, 2), known, estimates.shares)
    assert sorted(fitted) == [(0, 1), (0, 1, 2), (0, 2), (1, 2)]
    assert first == again and positive is not None and positive.shares.min() >= 0
    np.testing.assert_array_equal(positive.shares, estimates.shares[0, 1, 2])
    alone = positive_shares(collection, (0, 1, 2), known)
    assert alone is not None
    np.testing.assert_allclose(alone.shares, positive.shares, rtol=1e-12)
    pair, triple = [((0, 1), ()), ((1, 0), ())], [((0, 1, 2), ())]
    assert joint_seconds(plan, pair) == joint_seconds(plan, pair[:1])
    assert 0 < joint_seconds(plan, pair) < joint_seconds(plan, triple) < 30
    assert joint_seconds(plan, [((0,), ()), ((1,), ())]) == 0


def hours(folder: Path) -> Reports:
    """Reports of people who rise late where they rest late."""
    (folder / "c.yaml").write_text(HOURS)
    write_plan(folder / "c.yaml", folder / "plan.json", PEOPLE)
    plan, rng = read_plan((folder / "plan.json").read_bytes()), np.random.default_rng(4)
    rise = rng.integers(0, 8, PEOPLE)
    rest = np.clip(rise + rng.integers(-1, 2, PEOPLE), 0, 7)
    rows = one_row_each(np.stack([rise, rest], axis=1), np.full((PEOPLE, 1), 2))
    reports = simulate_reports(plan, rows, np.random.default_rng(5))
    (folder / "r.jsonl").write_text("\n".join(to_json(decode(report)) for report in reports))
    return Reports(folder / "plan.json", [folder / "r.jsonl"], b"k" * 32)


def diagonal(release: Path) -> tuple[str, float, float]:
    """A release's id, and how many people rest about when they rise, with its error."""
    asked = dpsql.query("SELECT COUNT(*) FROM answer WHERE rise < 4 AND rest < 4", release)
    return asked.provenance["release"], float(asked.rows[0][0]), float(asked.stderr_rows[0][0])


@pytest.mark.slow
def test_a_slow_fit_comes_after_a_release_that_stays_if_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports, target = hours(tmp_path), tmp_path / "r.dpsql"
    collect(reports, target, "a" * 32)
    whole = diagonal(target)
    target.unlink()
    monkeypatch.setattr(run, "SLOW", 0.0)
    plain, seen = joint_table, list[tuple[str, float, float]]()

    def stopped(*fit: object) -> smooth.JointTable:
        seen.append(diagonal(target))
        raise KeyboardInterrupt

    monkeypatch.setattr(parts, "joint_table", stopped)
    with pytest.raises(KeyboardInterrupt) as stop:
        collect(reports, target, "a" * 32)
    assert stop.value.__notes__ == [run.KEPT]
    first = diagonal(target)
    assert seen == [first]
    verify(target, None)
    assert first[0] != whole[0] and first[2] > 0
    rng = np.random.default_rng(4)
    rise = rng.integers(0, 8, PEOPLE)
    rest = np.clip(rise + rng.integers(-1, 2, PEOPLE), 0, 7)
    assert abs(first[1] - ((rise < 4) & (rest < 4)).sum()) < 5.5 * first[2]

    monkeypatch.setattr(parts, "joint_table", plain)
    target.unlink()
    stages: list[str] = []
    collect(reports, target, "a" * 32, lambda stage: stages.append(str(stage)))
    assert diagonal(target) == whole
    assert [stage for stage in stages if stage.startswith("written; fitting axes together")]


def test_a_machine_that_fails_in_the_slow_fit_says_that_the_release_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports, target = hours(tmp_path), tmp_path / "r.dpsql"
    monkeypatch.setattr(run, "SLOW", 0.0)

    def exhausted(*fit: object) -> smooth.JointTable:
        raise MemoryError

    monkeypatch.setattr(parts, "joint_table", exhausted)
    with pytest.raises(MachineFault, match="the release of the grids alone is whole: out of memory") as fault:
        collect(reports, target, "a" * 32)
    assert fault.value.hint == advice(run.KEPT, MemoryError()) and target.exists()
