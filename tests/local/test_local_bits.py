"""Reports of one row and a bit (`row_weighting: bit`): unbiased whatever rows have to do with how many."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dpsql
from benchmarks.local.simulated import simulate_tallies
from dpsql.catalog import load_catalog
from dpsql.client.plan import Plan, read_plan
from dpsql.local import content
from dpsql.local.collector import CollectionManifest
from dpsql.local.content import two_laws, weighted_tables
from dpsql.local.estimate import axis_table, filled_share, view_cells
from dpsql.local.forecast import first_plan
from dpsql.local.mechanisms.truncation import (
    BEYOND,
    BEYOND_MIXED,
    TwoLaws,
    clip_factor,
    missing_at_random,
    shrink,
)
from dpsql.local.survey import Survey, design_of, public_axis_maker, survey_of
from dpsql.local.tallies import RespondentRows, kind_of
from dpsql.local.totals import row_scale
from dpsql.release import open_release
from tests.local.test_local_weight import CATALOG

BITS = CATALOG.replace("row_bit_cap: 6, row_share: SHARE", "row_bit_cap: 4")
PEOPLE = 20_000


def town(folder: Path, text: str = BITS) -> tuple[Survey, Plan]:
    (folder / "town.yaml").write_text(text)
    catalog = load_catalog(folder / "town.yaml")
    survey = survey_of(catalog, public_axis_maker(catalog))
    return survey, read_plan(first_plan(design_of(survey, PEOPLE)))


def visitors(early: float, seed: int = 1_000_000, none: float = 0.1) -> RespondentRows:
    """People with 0 to 6 visits; whoever has many comes `early` hours earlier a visit and pays more."""
    rng = np.random.default_rng(seed)
    chances = np.array([none, *(1 - none) / 0.9 * np.array([0.2, 0.2, 0.2, 0.15, 0.1, 0.05])])
    rows = rng.choice(7, size=PEOPLE, p=chances)
    first = np.concatenate([[0], np.cumsum(rows)])
    many = np.repeat(rows, rows)
    hours = np.clip(np.rint(6 - early * many + 1.5 * rng.standard_normal(first[-1])), 0, 7).astype(np.int64)
    return RespondentRows(first, hours[:, None], np.clip(rng.poisson(8 + 3 * many), 0, 40)[:, None])


def release(survey: Survey, plan: Plan, people: RespondentRows, seed: int, target: Path) -> Path:
    collection = simulate_tallies(plan, people, np.random.default_rng(seed))
    target.unlink(missing_ok=True)
    manifest = CollectionManifest(1, PEOPLE, PEOPLE, {})
    content.release_content(survey, collection, manifest, f"{seed:032x}").write(target)
    return target


def test_bits_are_what_people_with_several_rows_are_asked(tmp_path: Path) -> None:
    _, plan = town(tmp_path)
    assert {view.kind for view in plan.views} == {"weighted", "rows_bit"}
    counted = {view.rows: view.share for view in plan.views if view.rows}
    assert sorted(counted) == [(0, 1), (0, 4), (4, 6)]
    # In proportion to what the bits tell apart: variances d^2 / share add up to least.
    assert counted[0, 4] / counted[4, 6] == pytest.approx(2, rel=1e-4)
    assert counted[0, 4] / counted[0, 1] == pytest.approx(4, rel=1e-4)
    assert plan.tau == 4
    _, slots = town(tmp_path, BITS.replace("row_bit_cap: 4", "tau: 1"))
    assert {view.kind for view in slots.views} == {"grid"}
    _, chosen = town(tmp_path, BITS.replace("row_bit_cap: 4", "row_guess: {1: 0.9, 3: 0.1}"))
    assert chosen.tau in (1, 2, 3)
    _, rows = town(tmp_path, BITS.replace("row_bit_cap: 4", "row_bit_cap: estimate"))
    assert [view.kind for view in rows.views] == ["rows"]


def test_drawn_items_follow_the_devices_law(tmp_path: Path) -> None:
    """A state's share over all people is the mean of each one's law, which the exact tests enumerate."""
    _, plan = town(tmp_path)
    people, rng = visitors(0.5), np.random.default_rng(3)
    everybody = np.arange(people.count)
    rows = people.rows(everybody)
    person = np.repeat(everybody, rows)
    for view in (view for view in plan.views if view.axes):
        drawn = np.mean([kind_of(view).draw(plan, view, people, everybody, rng)[:, None] == np.arange(view.domain)
                         for _ in range(20)], axis=(0, 1))  # fmt: skip
        cell = np.searchsorted(view.edges[0], people.leaves[:, 0], side="right") - 1
        law = np.zeros((view.cells, 3))
        weight = 1 / rows[person]
        filled = np.minimum(rows, plan.tau)[person] / plan.tau
        measured = np.clip(people.measures[:, 0], 0, 40) / 40
        np.add.at(
            law, cell, np.stack([1 - filled, filled * (1 - measured), filled * measured], 1) * weight[:, None]
        )
        law[:, 0] += (rows == 0).sum() / view.cells
        np.testing.assert_allclose(
            drawn, law.ravel() / people.count, atol=5 * 0.5 / np.sqrt(20 * people.count)
        )


def test_tables_of_rows_are_unbiased_where_rows_depend_on_how_many(tmp_path: Path) -> None:
    """Cap above everybody's rows: no bias is left; and one row a person is something else, which the test sees."""
    _, plan = town(tmp_path, BITS.replace("row_bit_cap: 4", "row_bit_cap: 6"))
    people = visitors(0.8)
    exact = np.bincount(people.leaves[:, 0], minlength=8) / len(people.leaves)
    middle = (people.measures[:, 0] - 20) / 20
    sums = np.bincount(people.leaves[:, 0], weights=middle, minlength=8) / len(people.leaves)
    off, signed, pulls, rejected = [], [], [], 0
    for seed in range(30):
        collection = simulate_tallies(plan, people, np.random.default_rng(seed))
        table = axis_table(collection, 0)
        off.append(table.counts.shares - exact)
        signed.append((table.signed[0].shares - sums) / np.sqrt(np.diag(table.signed[0].covariance)))
        pulls.append(off[-1] / np.sqrt(np.diag(table.counts.covariance)))
        assert abs(table.counts.shares.sum() - 1) < 1e-9
        laws = two_laws(collection, 0, table.counts)
        rejected += missing_at_random(laws) < 0.05
    for pull in (np.array(pulls), np.array(signed)):
        assert np.abs(pull.mean(axis=0)).max() < 4 / np.sqrt(30)
        assert 0.8 < np.sqrt((pull**2).mean()) < 1.2
    assert rejected == 30


def test_rows_missing_at_random_are_rarely_rejected_also_with_people_without_rows(tmp_path: Path) -> None:
    _, plan = town(tmp_path)
    people = visitors(0.0, none=0.4)
    chances = []
    for seed in range(60):
        collection = simulate_tallies(plan, people, np.random.default_rng(seed))
        laws = two_laws(collection, 0, axis_table(collection, 0).counts)
        chances.append(missing_at_random(laws))
    assert np.mean(np.array(chances) < 0.05) < 0.15
    assert 0.3 < np.mean(chances) < 0.7


@pytest.mark.slow
@pytest.mark.usefixtures("no_unasked_rows")
def test_sql_holds_what_all_rows_say(tmp_path: Path) -> None:
    """Counts, sums and averages of plain SQL over rows that depend on how many."""
    survey, plan = town(tmp_path)
    people, held = visitors(0.4), []
    hours, costs = people.leaves[:, 0], people.measures[:, 0]
    early = hours < 3
    truths = [len(hours), early.sum(), costs[early].sum(), costs.mean(), costs[~early].mean()]
    sql = """SELECT COUNT(*), COUNT(*) FILTER (WHERE hour < 'd'), SUM(cost) FILTER (WHERE hour < 'd'), AVG(cost),
        AVG(cost) FILTER (WHERE hour >= 'd') FROM visit"""
    for seed in range(25):
        made = release(survey, plan, people, seed, tmp_path / f"town{seed}.dpsql")
        result = dpsql.query(sql, release=made)
        bounds = zip(*(np.asarray(side, dtype=float)[0] for side in result.interval(0.95)), strict=True)
        held.append([low <= truth <= high for (low, high), truth in zip(bounds, truths, strict=True)])
    assert np.mean(held) > 0.9
    assert np.mean(held, axis=0).min() > 0.76
    local = open_release(made).meta.local
    assert local is not None
    assert local.missing_at_random is not None
    assert local.missing_at_random["visit.hour"] < 0.05
    assert local.mixed is not None
    assert any("more than 4 rows of visit" in note for note in result.notes)


def test_the_mix_lies_between_the_two_laws() -> None:
    """Where the two agree it has the noise of one row a person; where they are far apart it believes all rows."""
    truth = np.full(12, 1 / 12)
    spread = (np.eye(12) - 1 / 12) * 1e-4
    alike = TwoLaws(truth, truth, 4 * spread, 2 * spread, 2 * spread)
    found, at_random = shrink(alike, 12)
    assert at_random > 0.15
    assert np.trace(found.covariance) < 0.75 * np.trace(alike.own)
    far = alike._replace(person=truth + np.linspace(-0.07, 0.07, 12))
    other, at_random = shrink(far, 12)
    assert at_random < 1e-6
    assert np.abs(other.shares - truth).max() < 0.05
    assert (other.shares >= 0).all()
    assert missing_at_random(far) < 1e-3
    assert 1 < clip_factor(alike, alike.own, 0.2, BEYOND) < 1.2 < clip_factor(far, far.own, 0.2, BEYOND)
    assert clip_factor(far, far.own, 0.0, BEYOND) == 1
    bars = [clip_factor(far, far.own, 0.2, times) - 1 for times in (BEYOND, BEYOND_MIXED)]
    assert bars[1] == pytest.approx(bars[0] * (BEYOND_MIXED / BEYOND) ** 2)


def test_estimated_covariances_without_a_root_are_taken_by_their_size() -> None:
    """6,000 people, R = 3: the difference's covariance had a direction below 0, and `collect` ended in LinAlgError."""
    share = np.arange(1.0, 7.0) / 21
    noise = (np.diag(share) - np.outer(share, share)) * 1e-3
    found, at_random = shrink(TwoLaws(share, share[::-1].copy(), noise, noise, 1.01 * noise), 6)
    assert found.shares.sum() == pytest.approx(1) and min(found.shares) >= 0 <= at_random <= 1
    assert np.linalg.eigvalsh(found.covariance).min() > -1e-12


def test_a_clip_bar_widens_axes_and_interactions_and_scales_follow_the_bits(tmp_path: Path) -> None:
    _, plan = town(tmp_path)
    people = visitors(0.8)
    collection = simulate_tallies(plan, people, np.random.default_rng(1))
    known = {0: axis_table(collection, 0)}
    scale = row_scale(collection, known)
    assert scale.clipped is not None
    found = weighted_tables(collection, known, scale.cut)
    assert found is not None
    np.testing.assert_allclose(
        found.known[0].counts.covariance, known[0].counts.covariance * found.factors[0]
    )
    filled = filled_share(collection)
    exact = np.minimum(people.rows(np.arange(PEOPLE)), 4).mean() / 4
    assert abs(filled.value - exact) < 4 * filled.error
    assert abs(scale.factor - len(people.leaves)) < 4 * scale.weight_error / scale.weight * scale.factor
    cells = view_cells(collection, 0)
    assert cells.stretch == pytest.approx(1 / filled.value)
    assert replace(cells, stretch=1.0).noise(np.zeros(1), 1)[0] < cells.noise(np.zeros(1), 1)[0]
