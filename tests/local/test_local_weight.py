"""The estimated weight of rows (`row_weighting: bit`) in error bars: algebra, every interface, what intervals hold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from benchmarks.local.simulated import simulate_tallies
from dpsql.catalog import load_catalog
from dpsql.client.plan import Plan, read_plan
from dpsql.executor.engine import ReleaseEngine, predict
from dpsql.federation.route import rank
from dpsql.federation.tables import read_table
from dpsql.intervals.reads import weight_error, weight_of
from dpsql.local import content
from dpsql.local.collector import CollectionManifest
from dpsql.local.plan import build_plan
from dpsql.local.survey import Survey, design_of, public_axis_maker, survey_of
from dpsql.local.tallies import RespondentRows
from dpsql.planner.block import ROWS, Block
from dpsql.planner.plan import views_of
from dpsql.planner.schema import TRUE
from dpsql.release import open_release
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

CATALOG = """
dpsql: 1
name: visits
privacy: {lineage: town, cap: 8, unit: person.id, epsilon: 2}
collection: {epsilon: 2, row_bit_cap: 6, row_share: SHARE}
tables:
  person: {role: dimension, key: id, private: true, columns: {sex: {type: string, categories: [F, M]}}}
  visit:
    role: fact
    foreign_keys: {person: {references: person, on_missing: drop}}
    max_ids: 6
    columns:
      hour: {type: string, categories: [a, b, c, d, e, f, g, h], out_of_domain: drop}
      cost: {type: int, lower: 0, upper: 40, measure: true}
views:
  hours: {of: visit, axes: [visit.hour], measures: [count, visit.cost]}
"""
PEOPLE = 5_000
EARLY, LATE = "FILTER (WHERE hour < 'd')", "FILTER (WHERE hour >= 'd')"


def town(folder: Path, share: str) -> tuple[Survey, Plan]:
    """The survey and plan of a town where part of the people are asked how many rows they have."""
    (folder / "town.yaml").write_text(CATALOG.replace("SHARE", share))
    catalog = load_catalog(folder / "town.yaml")
    survey = survey_of(catalog, public_axis_maker(catalog))
    return survey, read_plan(build_plan(design_of(survey, PEOPLE)))


def visitors() -> RespondentRows:
    """People with 0 to 6 visits."""
    rng = np.random.default_rng(0)
    rows = rng.choice(7, size=PEOPLE, p=[0.1, 0.2, 0.2, 0.2, 0.15, 0.1, 0.05])
    first = np.concatenate([[0], np.cumsum(rows)])
    hours = rng.choice(8, size=first[-1], p=np.array([1, 2, 4, 6, 5, 3, 2, 1]) / 24)
    costs = np.clip(rng.poisson(10 + hours), 0, 40)
    return RespondentRows(first, hours[:, None], costs[:, None])


def collection(survey: Survey, plan: Plan, people: RespondentRows, seed: int, target: Path) -> Path:
    """A release of one simulated collection."""
    collection = simulate_tallies(plan, people, np.random.default_rng(seed))
    manifest = CollectionManifest(1, PEOPLE, PEOPLE, {})
    target.unlink(missing_ok=True)
    content.release_content(survey, collection, manifest, f"{seed:032x}").write(target)
    return target


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weight")
    return collection(*town(folder, "1/10"), visitors(), 1, folder / "visits.dpsql")


@pytest.fixture(scope="module")
def older(release: Path) -> Path:
    """The same release, as if it did not tell the weight's error."""
    path = release.with_name("older.dpsql")
    shutil.copy(release, path)
    path.chmod(0o600)
    with duckdb.connect(str(path)) as opened:
        ((text,),) = opened.execute("SELECT value FROM meta WHERE key = 'local'").fetchall()
        told = {key: value for key, value in json.loads(text).items() if key != "row_weight_error"}
        opened.execute("UPDATE meta SET value = ? WHERE key = 'local'", [json.dumps(told)])
    return path


@contextmanager
def without_further_rows(path: Path) -> Iterator[ReleaseEngine]:
    """A release as if nobody could have rows beyond those that were asked about, so that intervals have both ends."""
    opened = open_release(path)
    yield ReleaseEngine(replace(opened, meta=replace(opened.meta, bounding=())))
    opened.close()


@pytest.fixture(scope="module")
def answerer(release: Path) -> Iterator[ReleaseEngine]:
    with without_further_rows(release) as found:
        yield found


@pytest.fixture(scope="module")
def slots(older: Path) -> Iterator[ReleaseEngine]:
    """Answers with the error of the slots alone."""
    with without_further_rows(older) as found:
        yield found


def errors(answerer: ReleaseEngine, *values: str) -> list[float]:
    row = answerer.query(f"SELECT {', '.join(values)} FROM visit").stderr_rows[0]
    assert None not in row
    return [float(error) for error in row]


def test_the_total_errs_by_the_weight_alone_and_constants_do_not_scale(answerer: ReleaseEngine) -> None:
    relative = weight_error(answerer.release)
    count = answerer.query("SELECT COUNT(*) FROM visit").scalar()
    assert 0.03 < relative < 0.2
    found = errors(
        answerer, "COUNT(*)", "COUNT(*) + 5", "3 * COUNT(*) - 7", "COUNT(*) - COUNT(*)", "-COUNT(*)"
    )
    assert found == pytest.approx(np.abs([1, 1, 3, 0, 1]) * relative * count, rel=1e-6, abs=1e-3)


@pytest.mark.parametrize("value", ["COUNT(*)", "SUM(cost)"])
def test_counts_and_sums_over_groups_add_linearly(
    answerer: ReleaseEngine, slots: ReleaseEngine, value: str
) -> None:
    opened = answerer.release
    count = next(s for s in opened.statistics if s.measure == "count")
    weight = weight_of(opened, count)
    assert weight is not None
    relative, rows, _ = weight
    early, late = f"{value} {EARLY}", f"{value} {LATE}"
    asked = (early, late, f"{early} + {late}", f"{early} - {late}", value)
    (values,) = answerer.query(f"SELECT {', '.join(asked)} FROM visit").rows
    one, two, both, apart, whole = np.square(errors(answerer, *asked))
    assert both == pytest.approx(whole)
    assert one + two == pytest.approx((both + apart) / 2)
    own = np.square(errors(slots, *asked))
    assert one > own[0]
    assert whole - apart > own[4] - own[3] + 3 * relative**2 * values[0] * values[1]
    mean = values[4] / rows  # SUM(cost) over all: only its spread around the mean is the slots' own
    spread = relative * values[4]
    if value == "COUNT(*)":
        assert (mean, whole) == (pytest.approx(1), pytest.approx(spread**2))
    else:
        (around,) = np.square(errors(slots, f"SUM(cost) - {mean!r} * COUNT(*)"))
        assert whole == pytest.approx(around + spread**2)


def test_conditional_sums_are_sums(answerer: ReleaseEngine) -> None:
    case, filtered = errors(answerer, "SUM(CASE WHEN hour < 'd' THEN cost ELSE 0 END)", f"SUM(cost) {EARLY}")
    assert case == pytest.approx(filtered)


def test_ratios_do_not_see_the_weight(answerer: ReleaseEngine, slots: ReleaseEngine) -> None:
    sql = (
        f"SELECT AVG(cost), AVG(cost) {EARLY}, SUM(cost) / COUNT(*) + 2, COUNT(*) {EARLY} / COUNT(*),"
        f" AVG(cost) {EARLY} - AVG(cost) {EARLY} FROM visit"
    )
    weighed, plain = answerer.query(sql), slots.query(sql)
    assert weighed.rows == plain.rows
    assert np.allclose(weighed.stderr_rows[0], plain.stderr_rows[0], rtol=1e-12, atol=1e-9)
    for mine, others in zip(weighed.interval_rows(0.95), plain.interval_rows(0.95), strict=True):
        assert np.allclose(mine[0], others[0], rtol=1e-12)
    groups = "SELECT hour, AVG(cost), COUNT(*) FROM visit GROUP BY hour"
    for mine, others in zip(answerer.query(groups).stderr_rows, slots.query(groups).stderr_rows, strict=True):
        assert (mine[1] is None) == (others[1] is None)
        assert mine[1] is None or mine[1] == pytest.approx(others[1])
        assert mine[0] is None


def test_a_constant_in_a_ratio_is_not_weighted(answerer: ReleaseEngine, slots: ReleaseEngine) -> None:
    count = answerer.query("SELECT COUNT(*) FROM visit").scalar()
    # (5 - C) / C = 5 / C - 1 errs as 5 / C does: by r 5 / C
    (found,) = errors(answerer, "(5000 - COUNT(*)) / COUNT(*)")
    assert found == pytest.approx(weight_error(answerer.release) * 5000 / count, rel=1e-6)
    assert found > 2 * errors(slots, "(5000 - COUNT(*)) / COUNT(*)")[0]
    # few enough rows for Fieller's interval
    near = f"SELECT (SUM(cost) - 5000000) / COUNT(*) {EARLY} FROM visit"
    (low, high), (least, most) = (each.query(near).interval_rows(0.5) for each in (answerer, slots))
    assert low[0][0] < least[0][0] - 1
    assert high[0][0] > most[0][0] + 1


def test_releases_that_do_not_tell_the_error_read_as_zero(
    slots: ReleaseEngine, answerer: ReleaseEngine
) -> None:
    assert weight_error(slots.release) == 0
    sql = "SELECT COUNT(*), AVG(cost) FROM visit"
    told, untold = answerer.query(sql), slots.query(sql)
    assert told.components["scale"] == untold.components["scale"] == ((0.0, 0.0),)
    assert told.components["noise"][0][0] > 3 * untold.components["noise"][0][0]
    assert any(
        "that error is shared by all groups and part of their error bars" in note for note in told.notes
    )
    assert any(note.endswith("that error is shared by all groups") for note in untold.notes)


def test_every_interface_tells_the_same_error(answerer: ReleaseEngine) -> None:
    sql = "SELECT COUNT(*), SUM(cost) FROM visit"
    result = answerer.query(sql)
    low, high = result.interval_rows(0.9)
    inside = answerer.query(
        "SELECT DP_STDERR(COUNT(*)), DP_INTERVAL_LOW(COUNT(*), 0.9), DP_INTERVAL_HIGH(SUM(cost), 0.9) FROM visit"
    )
    assert inside.rows[0] == pytest.approx((result.stderr_rows[0][0], low[0][0], high[0][1]))
    count, total = result.stderr_rows[0]
    # the noise of many people's reports is normal
    assert (high[0][0] - low[0][0]) / count == pytest.approx(2 * 1.6448536)
    assert [column.least for column in predict(answerer, sql)] == pytest.approx([count, total])
    assert f"variance = {count**2:.6g} rows a person" in answerer.explain(sql)
    outer = answerer.query("SELECT n FROM (SELECT SUM(cost) AS n FROM visit) AS t")
    assert outer.stderr_rows[0][0] == pytest.approx(total)


def test_routing_and_means_weigh_by_the_whole_error(answerer: ReleaseEngine) -> None:
    (view,) = views_of(answerer.release)
    table = read_table(answerer.release, view)
    assert table is not None
    asked = ("COUNT(*)", f"COUNT(*) {EARLY}", "SUM(cost)", f"SUM(cost) {EARLY}")
    found = np.square(errors(answerer, *asked))
    assert rank([answerer.answer_block(Block("visit", (), (), TRUE, (), (ROWS,)))])[1] ** 2 == pytest.approx(
        found[0]
    )
    assert table.total_variance == pytest.approx(found[0], rel=1e-6)
    whole = [np.ones((1, n)) for n in table.shape]
    mean = float(sum(piece.between(whole, whole)[0] for piece in table.errors["visit.cost", "visit.cost"]))
    assert mean == pytest.approx(found[2], rel=1e-6)


def test_no_weight_no_error(tmp_path: Path) -> None:
    text = CATALOG.replace("row_bit_cap: 6, row_share: SHARE", "row_weighting: none, row_share: 1/10")
    (tmp_path / "plain.yaml").write_text(text)
    catalog = load_catalog(tmp_path / "plain.yaml")
    survey = survey_of(catalog, public_axis_maker(catalog))
    plan = read_plan(build_plan(design_of(survey, PEOPLE)))
    made = collection(survey, plan, visitors(), 1, tmp_path / "plain.dpsql")
    found = dpsql.query("SELECT COUNT(*) FROM visit", release=made)
    opened = open_release(made)
    count = next(s for s in opened.statistics if s.measure == "count")
    assert (weight_error(opened), weight_of(opened, count)) == (0, None)
    opened.close()
    assert 0 < float(found.components["noise"][0][0]) < 0.05 * float(found.scalar())
    assert found.stderr_rows == ((None,),), "rows beyond were not asked about"


@pytest.mark.slow
@pytest.mark.parametrize(
    "collected", by_default(["tau: 3, row_share: 1/5", "tau: 3", "row_bit_cap: 3, row_share: 1/5"], 1)
)
def test_intervals_hold_where_people_of_many_rows_have_other_values(tmp_path: Path, collected: str) -> None:
    """Sums and averages of the rows within a cap were taken for those of all rows."""
    (tmp_path / "c.yaml").write_text(CATALOG.replace("row_bit_cap: 6, row_share: SHARE", collected))
    asked = survey_of(catalog := load_catalog(tmp_path / "c.yaml"), public_axis_maker(catalog))
    plan, few, held = read_plan(build_plan(design_of(asked, 10 * PEOPLE))), visitors(), []
    is_heavy = np.tile(np.repeat(np.diff(few.first), np.diff(few.first)) > 3, 10)
    hours, costs = (np.tile(column, 10) for column in (few.leaves[:, 0], few.measures[:, 0]))
    hours, costs = np.where(is_heavy & (hours < 6), hours + 2, hours), np.where(is_heavy, costs // 3, costs)
    first = np.concatenate([[0], np.cumsum(np.tile(np.diff(few.first), 10))])
    people, early = RespondentRows(first, hours[:, None], costs[:, None]), hours < 3
    exact = np.array([costs.sum(), costs.mean(), early.mean(), costs[early].mean()])
    sql = f"SELECT SUM(cost), AVG(cost), COUNT(*) {EARLY} * 1.0 / COUNT(*), AVG(cost) {EARLY} FROM visit"
    for seed in range(12):
        opened = open_release(collection(asked, plan, people, seed, tmp_path / "r.dpsql"))
        (low,), (high,) = ReleaseEngine(opened).query(sql).interval_rows(0.95)
        opened.close()
        held.append([a <= x and (b is None or x <= b) for a, x, b in zip(low, exact, high, strict=True)])
    assert np.mean(held, axis=0).min() >= 0.9, np.mean(held, axis=0)


@pytest.mark.timeout(3600)  # of a clock, beside whatever else runs
@pytest.mark.slow
@pytest.mark.parametrize("share", ["1/10", "1/2"])
@pytest.mark.usefixtures("no_unasked_rows")
def test_intervals_hold_with_an_estimated_weight(
    tmp_path: Path, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """800 collections: a share of them errs by .008, where one of 200 errs by as much as the bounds are wide."""
    people, (survey, plan) = visitors(), town(tmp_path, share)
    axes = content.survey_axes(survey)
    monkeypatch.setattr(content, "survey_axes", lambda survey: axes)  # the same for every collection
    early = people.leaves[:, 0] < 3
    costs = people.measures[:, 0]
    exact = np.array([costs.size, early.sum(), costs.sum(), costs.mean()])
    sql = f"SELECT COUNT(*), COUNT(*) {EARLY}, SUM(cost), AVG(cost) FROM visit"
    held = []
    for seed in range(1, 801):
        opened = open_release(collection(survey, plan, people, seed, tmp_path / "r.dpsql"))
        low, high = ReleaseEngine(opened).query(sql).interval_rows(0.95)
        opened.close()
        held.append((np.array(low[0]) <= exact) & (exact <= np.array(high[0])))
    for name, found in zip(("COUNT(*)", "COUNT", "SUM", "AVG"), np.mean(held, axis=0), strict=True):
        assert 0.93 <= found <= 0.97, (name, found)
