"""What a collection plan costs and brings, before anyone reports; the number of people it takes, against simulation."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import dpsql
from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql.errors import InterfaceError
from dpsql.interfaces.cli import cli
from dpsql.local.estimate import axis_table
from dpsql.local.forecast import people_needed
from dpsql.local.mechanisms.blue import range_workload
from dpsql.local.mechanisms.truncation import bit_cap
from dpsql.local.run import write_plan
from dpsql.local.survey import first_guess
from tests.local.test_local_tau import run
from tests.thinned import by_default

SURVEY = Path(__file__).parents[2] / "catalog" / "survey.yaml"
CATALOG = """
dpsql: 1
name: towns
privacy: {lineage: towns, cap: 1, unit: row, epsilon: 1}
collection: {epsilon: 1}
tables:
  answer: {role: fact, columns: {
      age: {type: int, lower: 0, upper: 23}, town: {type: string, categories: [a, b, c, d]},
      job: {type: string, categories: [p, q, r]}}}
views:
  both: {of: answer, axes: [answer.age, answer.town], measures: [count], share: 0.7}
  jobs: {of: answer, axes: [answer.job], measures: [count], share: 0.3}
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    (tmp_path / "c.yaml").write_text(CATALOG)
    return tmp_path / "c.yaml"


@pytest.mark.long
@pytest.mark.parametrize("target", by_default([0.05, 0.02], 1))
def test_a_target_s_people_bring_its_error(catalog: Path, tmp_path: Path, target: float) -> None:
    forecast = write_plan(catalog, tmp_path / "p.json", 1000, largest_error=target)
    plan, people = forecast.plan, forecast.people
    assert plan is not None
    worst = max(told.error for told in forecast.predictions)
    assert 0.97 * target < worst <= target
    rng, squares = np.random.default_rng(5), np.zeros(3)
    leaves = [axis.leaves for axis in plan.axes]
    for _ in range(60):
        said = np.stack([rng.integers(0, size, people) for size in leaves], axis=1)
        collection = simulate_tallies(plan, one_row_each(said), rng)
        for axis, size in enumerate(leaves):
            off = axis_table(collection, axis).counts.shares[:size]
            off = off - np.bincount(said[:, axis], minlength=size) / people
            squares[axis] += off @ range_workload(size) @ off / 60
    measured = dict(zip([f"a range of {axis.name}" for axis in plan.axes], np.sqrt(squares), strict=True))
    for told in forecast.predictions[:3]:
        assert 0.8 < measured[told.question] / told.error < 1.25, told
    assert max(measured.values()) < 1.2 * target


def test_the_number_of_people_inverts_any_falling_error() -> None:
    assert people_needed(lambda n: 3 / math.sqrt(n), 0.01) in range(90_000, 91_900)
    stepped = people_needed(lambda n: math.ceil(math.log10(n + 1)) * 3 / math.sqrt(n), 0.01)
    assert math.ceil(math.log10(stepped)) * 3 / math.sqrt(stepped) <= 0.01
    assert stepped < 1.05 * 7 * 7 * 90_000
    assert people_needed(lambda n: 0.001, 0.01) == 1


@pytest.mark.parametrize("target", [0.0, -1.0, 1.0, 5.0, math.nan, 0.01])
def test_targets_that_nobody_reaches(target: float) -> None:
    with pytest.raises(InterfaceError, match="no number of people" if target == 0.01 else "between 0 and 1"):
        people_needed(lambda n: 0.01 + 1 / n, target)


def test_a_view_costs_the_part_that_is_asked_about_it(catalog: Path, tmp_path: Path) -> None:
    forecast = write_plan(catalog, tmp_path / "p.json", 50_000)
    plan = forecast.plan
    assert plan is not None
    parts = {cost.view: cost.part for cost in forecast.costs}
    assert sum(parts.values()) == pytest.approx(1)
    jobs = [view.share for view in plan.views if [plan.axes[a].name for a in view.axes] == ["answer.job"]]
    assert parts["jobs"] == pytest.approx(sum(jobs) / sum(view.share for view in plan.views))
    assert {cost.view: cost.question for cost in forecast.costs}["jobs"] == "a range of answer.job"
    assert not any(told.is_noise for told in forecast.predictions)


def test_without_a_guess_people_of_many_rows_are_few() -> None:
    guess = first_guess(30)
    assert sum(guess) == pytest.approx(1) and guess[0] == 0
    assert guess[1] == pytest.approx(900 * guess[30])
    assert bit_cap(np.array(guess), 2e-3, 0.3) < bit_cap(np.append(0.0, np.full(30, 1 / 30)), 2e-3, 0.3)


def test_the_command_says_costs_noise_and_people(catalog: Path, tmp_path: Path) -> None:
    said = run("collection-plan", SURVEY, "-o", tmp_path / "a.json", "--people", "500")
    assert "are asked about travel, whose largest error is" in said
    assert "too noisy: the error of a range of answer.age is more than half of such an answer" in said
    told = run("collection-plan", catalog, "-o", tmp_path / "b.json", "--target", "5%")
    rows = json.loads(
        run("collection-plan", catalog, "-o", tmp_path / "b.json", "--target", "0.05", "--json")
    )["result"]
    assert f"for errors of at most 5.000% of the people, {rows[0]['people']} people must answer" in told
    assert max(row["error"] for row in rows) <= 0.05
    done = CliRunner().invoke(cli, ["collection-plan", str(catalog), "-o", "x", "--target", "much"])
    assert (done.exit_code, "5% or 0.05" in done.output) == (2, True)


def test_a_first_round_has_no_target(tmp_path: Path) -> None:
    person = "tables:\n  person: {role: dimension, key: id, private: true, columns: {}}"
    text = CATALOG.replace("unit: row", "unit: person.id").replace("tables:", person)
    text = text.replace("{epsilon: 1}\n", "{epsilon: 1, tau: estimate, row_weighting: none}\n")
    text = text.replace(
        "answer: {role: fact, ", "answer: {role: fact, max_ids: 5, foreign_keys: {id: person}, "
    )
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InterfaceError, match="row counts alone"):
        write_plan(tmp_path / "c.yaml", tmp_path / "p.json", 1000, largest_error=0.05)
    assert dpsql.collection_plan(tmp_path / "c.yaml", tmp_path / "p.json", people=1000).costs == []
