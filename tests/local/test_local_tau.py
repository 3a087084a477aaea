"""tau from a public guess or from the people themselves, and what the cut at tau left out."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner

import dpsql
from benchmarks.local.simulated import simulate_tallies
from dpsql.client import Memory, Plan, Row, read_plan
from dpsql.client.entropy import system_entropy
from dpsql.errors import CatalogError, DataError, InterfaceError
from dpsql.examples.retail import make_star, write_star
from dpsql.federation.tables import read_table
from dpsql.interfaces.cli import cli
from dpsql.interfaces.web.report import report_page
from dpsql.local.estimate import axis_table
from dpsql.local.forecast import (
    asks_rows_alone,
    best_tau,
    first_plan,
    predict,
    row_reports,
    second_plan,
    typical_question,
    with_best_rows,
)
from dpsql.local.mechanisms.blue import range_workload
from dpsql.local.mechanisms.truncation import clipped_fraction, lost_rows
from dpsql.local.plan import CollectionDesign, PlannedAxis, build_plan, plan_body, row_reports_of
from dpsql.local.simulate import chosen
from dpsql.local.survey import first_guess
from dpsql.local.tallies import RespondentRows, empty_collection
from dpsql.local.totals import Scale, row_scale
from dpsql.planner.plan import views_of
from dpsql.release.read import open_release
from dpsql.results.result import UNASKED
from tests.thinned import by_default

sys.path.insert(0, str(Path(__file__).parents[2]))

pytestmark = pytest.mark.usefixtures("publishes")

RETAIL = Path(__file__).parents[2] / "catalog" / "retail.yaml"
ROWS = np.array([0.1, 0.4, 0.2, 0.1, 0.1, 0.1])


def design(**changes: object) -> CollectionDesign:
    axes = (PlannedAxis("age", 16, 16), PlannedAxis("place", 5, 0))
    counted = Fraction(1, 10) if changes.get("tau_from", "estimate") == "estimate" else Fraction(0)
    base = CollectionDesign(
        "c",
        Fraction(2),
        60_000,
        axes,
        rows_cap=5,
        tau_from="estimate",
        row_share=counted,
        catalog={"name": "c"},
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def some_people(count: int, rng: np.random.Generator) -> RespondentRows:
    first = np.concatenate([[0], np.cumsum(rng.choice(6, size=count, p=ROWS))])
    leaves = np.stack([rng.integers(0, 16, first[-1]), rng.integers(0, 5, first[-1])], axis=1)
    return RespondentRows(first, leaves, np.zeros((int(first[-1]), 0), dtype=np.int64))


def two_rounds(
    made: CollectionDesign, people: RespondentRows, rng: np.random.Generator
) -> tuple[Plan, Scale]:
    """The second plan of a simulated collection, and its scale."""
    first = read_plan(first_plan(made))
    early = rng.random(people.count) < first.round_shares[0] / sum(first.round_shares)
    told = row_reports(simulate_tallies(first, chosen(people, np.nonzero(early)[0]), rng))
    plan = read_plan(second_plan(made, first, told))
    collection = simulate_tallies(plan, chosen(people, np.nonzero(~early)[0]), rng)
    return plan, row_scale(collection, {a: axis_table(collection, a) for a in range(len(plan.axes))})


def test_the_first_round_asks_for_row_counts_and_nothing_else() -> None:
    plan = read_plan(first_plan(design(row_share=Fraction(1, 8))))
    assert (asks_rows_alone(plan), plan.round, plan.rounds, plan.round_shares) == (True, 0, 2, (1, 7))
    assert [(v.kind, v.oracle, v.domain) for v in plan.views] == [("rows", "GRR", 6)]
    assert read_plan(first_plan(design())).round_shares == (1, 9)
    assert read_plan(first_plan(design(rows_cap=40))).views[0].oracle == "OUE"


def test_the_second_round_is_the_same_collection_and_carries_what_the_first_said() -> None:
    plan, scale = two_rounds(
        design(), some_people(60_000, np.random.default_rng(1)), np.random.default_rng(2)
    )
    held = row_reports_of(plan)
    assert (plan.collection, plan.round, plan.rounds, plan.round_shares) == ("c", 1, 2, (1, 9))
    assert not asks_rows_alone(plan)
    assert all(not v.kind.startswith("rows") for v in plan.views)
    assert held is not None
    assert np.abs(held.shares - ROWS).max() < 0.05
    assert scale.slots == 60_000 * plan.tau  # people of both rounds are counted
    assert row_reports_of(read_plan(build_plan(design()))) is None


def test_the_estimated_tau_is_near_the_best_for_the_true_distribution() -> None:
    people = some_people(60_000, np.random.default_rng(3))
    found = [two_rounds(design(), people, np.random.default_rng(s))[0].tau for s in range(10, 16)]
    best = best_tau(design(row_share=Fraction(0)), ROWS)
    assert 1 < best <= 5
    assert all(abs(tau - best) <= 1 for tau in found), (best, found)


def test_more_people_report_their_rows_where_somebody_may_own_many() -> None:
    def chosen_share(most: int, **changes: object) -> Fraction:
        asked = design(
            tau_from="theory",
            row_weighting="bit",
            row_share=Fraction(1, 10),
            people=20_000,
            rows_cap=most,
            **changes,
        )
        return with_best_rows(asked, np.array(first_guess(most))).row_share

    assert chosen_share(2, row_share_free=True) < chosen_share(28, row_share_free=True) <= Fraction(2, 5)
    assert chosen_share(28) == Fraction(1, 10)  # declared


def range_error(made: CollectionDesign, people: RespondentRows, rng: np.random.Generator) -> float:
    """Mean squared error of the counts of all ranges of all axes, as a share of all rows."""
    first = read_plan(first_plan(made))
    plan, rest = first, people
    if asks_rows_alone(first):
        early = rng.random(people.count) < first.round_shares[0] / sum(first.round_shares)
        rest = chosen(people, np.nonzero(~early)[0])
        told = row_reports(simulate_tallies(first, chosen(people, np.nonzero(early)[0]), rng))
        plan = read_plan(second_plan(made, first, told))
    collection = simulate_tallies(plan, rest, rng)
    known = {a: axis_table(collection, a) for a in range(len(plan.axes))}
    factor, error = row_scale(collection, known).factor, 0.0
    for axis, held in known.items():
        size = held.counts.shares.size
        exact = np.bincount(people.leaves[:, axis], minlength=size)
        off = (held.counts.shares * factor - exact) / people.first[-1]
        error += float(off @ range_workload(size) @ off) / len(known)
    return error


def test_a_first_round_costs_little_beside_the_best_tau_in_hindsight() -> None:
    people, runs = some_people(60_000, np.random.default_rng(3)), 8
    fixed = [
        np.mean(
            [
                range_error(design(tau_from="declared", tau=tau), people, np.random.default_rng(20 * tau + r))
                for r in range(runs)
            ]
        )
        for tau in range(1, 6)
    ]
    found = np.mean([range_error(design(), people, np.random.default_rng(500 + r)) for r in range(runs)])
    assert found < 1.5 * min(fixed), (found, fixed)
    assert found < 0.1 * fixed[0], (found, fixed)


def test_theory_uses_the_guess_and_less_noise_keeps_more_rows() -> None:
    guess = tuple(float(share) for share in ROWS)
    taus = [
        read_plan(first_plan(design(tau_from="theory", row_guess=guess, people=n, row_share=Fraction(0)))).tau
        for n in (300, 10_000, 10_000_000)
    ]
    assert taus[0] < taus[1] <= taus[2] == 5
    noise, answer = typical_question(design(row_share=Fraction(0)))
    lost, tau = lost_rows(ROWS), best_tau(design(row_share=Fraction(0)), ROWS)
    risk = [(answer * lost[t]) ** 2 + t**2 * noise for t in range(1, 6)]
    assert int(np.argmin(risk)) + 1 == tau


def test_a_second_plan_needs_its_own_first_round() -> None:
    made = design()
    first = read_plan(first_plan(made))
    with pytest.raises(DataError, match="no report"):
        row_reports(empty_collection(first))
    other = read_plan(build_plan(made))
    with pytest.raises(DataError, match="not the first round"):
        row_reports(empty_collection(other))
    told = row_reports(
        simulate_tallies(first, some_people(500, np.random.default_rng(1)), np.random.default_rng(1))
    )
    with pytest.raises(DataError, match="catalog"):
        second_plan(replace(made, catalog={"name": "d"}), first, told)
    with pytest.raises(DataError, match="catalog"):
        second_plan(replace(made, tau_from="declared"), first, told)


def test_every_device_answers_exactly_one_round(tmp_path: Path) -> None:
    made = design(row_share=Fraction(1, 2))
    first = read_plan(first_plan(made))
    told = row_reports(
        simulate_tallies(first, some_people(900, np.random.default_rng(1)), np.random.default_rng(1))
    )
    second = read_plan(second_plan(made, first, told))
    early = 0
    for i in range(40):
        device = Memory(tmp_path / f"{i}" / "memory", Fraction(2), Fraction(2))
        said = [device.answer(plan, [Row((3, 1))], system_entropy) for plan in (first, second, first)]
        assert len({report for report in said if report is not None}) == 1
        early += said[0] is not None
    assert 5 < early < 35


def test_clipped_fraction_lies_in_its_interval_as_often_as_it_says() -> None:
    people = some_people(30_000, np.random.default_rng(5))
    rows = np.diff(people.first)
    exact = np.bincount(rows, minlength=6) / rows.size
    one_round = design(tau_from="declared", tau=2, row_share=Fraction(1, 5), people=people.count)
    plan = read_plan(build_plan(one_round))
    hits: list[bool] = []
    taus: list[int] = []
    for seed in range(60):
        rng = np.random.default_rng(100 + seed)
        collection = simulate_tallies(plan, people, rng)
        told = row_scale(collection, {a: axis_table(collection, a) for a in (0, 1)})
        assert (told.weight, told.weight_error) == (1.0, 0.0)
        assert told.clipped is not None
        hits.append(abs(told.clipped.value - clipped_fraction(exact, 2)) < 1.96 * told.clipped.error)
        second, scale = two_rounds(design(epsilon=Fraction(1), people=people.count), people, rng)
        assert scale.clipped is not None
        taus.append(second.tau)
        hits.append(
            abs(scale.clipped.value - clipped_fraction(exact, second.tau)) <= 1.96 * scale.clipped.error
        )
    assert np.mean(taus) < 4.5, taus
    assert np.mean(hits) > 0.88, np.mean(hits)


def test_clipped_fraction_is_unknown_where_nobody_was_asked() -> None:
    plan = read_plan(build_plan(design(tau_from="declared", tau=2)))
    rng = np.random.default_rng(1)
    collection = simulate_tallies(plan, some_people(2000, rng), rng)
    assert row_scale(collection, {a: axis_table(collection, a) for a in (0, 1)}).clipped is None


def test_predictions_of_a_round_of_row_counts() -> None:
    plan = read_plan(first_plan(design()))
    few, many = predict(plan, 1_000), predict(plan, 100_000)
    assert [p.question for p in few] == ["the rows of a person"]
    assert 9 < few[0].error / many[0].error < 11


@pytest.mark.parametrize("kind", ["declared", "theory", "estimate"])
def test_a_handful_of_people_can_be_planned_too(kind: str) -> None:
    plan = read_plan(first_plan(design(people=3, tau_from=kind, row_guess=tuple(map(float, ROWS)))))
    few, many = predict(plan, 3), predict(plan, 3_000_000)
    assert plan.tau == 1
    assert all(a.error == pytest.approx(1000 * b.error, rel=0.01) for a, b in zip(few, many, strict=True))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tau")
    write_star(folder / "data", make_star(2, 4000, 50))
    text = RETAIL.read_text()
    views = "views:\n  buyers: {of: sales, axes: [customer.sex, customer.region], measures: [count]}\n"
    for name, collection in {
        "estimate": "{epsilon: 4, tau: estimate, row_share: 1/5}",
        "blind": "{epsilon: 4, tau: 2}",
        "everybody": "{epsilon: 4, tau: estimate, row_share: 1/2, participation: random, everybody: 3840}",
        "slots": "{epsilon: 4, tau: 8, participation: random, everybody: 3840}",
        "counted": "{epsilon: 4, tau: 2, row_share: 1/10}",
    }.items():
        measures = views.replace("[count]", "[count, sales.amount]") if name == "counted" else views
        (folder / f"{name}.yaml").write_text(
            f"{text[: text.index('views:')]}collection: {collection}\n{measures}"
        )
    return folder


def run(*arguments: str | int | Path) -> str:
    import dpsql.interfaces.cli.curate  # noqa: F401 - commands register themselves

    done = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_two_rounds_through_the_interfaces(shop: Path) -> None:
    catalog = shop / "estimate.yaml"
    said = run("collection-plan", catalog, "-o", shop / "first.json", "--people", "4000", "--label", "x")
    assert "round 1 of 2" in said
    people = json.loads(run("simulate", catalog, "-o", shop / "e.parquet", "--seed", "1", "--json"))["people"]
    early, late = shop / "e.rows.parquet", shop / "e.plan.json"
    made = run(
        "collection-plan", catalog, early, "--after", shop / "e.plan.rows.json", "-o", shop / "n.json",
        "--people", people,
    )  # fmt: skip
    plan = read_plan((shop / "n.json").read_bytes())
    assert f"(tau {plan.tau}, round 2 of 2)" in made
    assert (plan.tau, plan_body(plan)["simulated"]) == (read_plan(late.read_bytes()).tau, True)
    with pytest.raises(DataError, match="row counts alone"):
        dpsql.collect(shop / "e.plan.rows.json", [early], shop / "none.dpsql")
    with pytest.raises(InterfaceError, match="both or neither"):
        dpsql.collection_plan(catalog, shop / "n.json", people=10, reports=[early])
    done = dpsql.collect(late, [shop / "e.parquet"], shop / "e.dpsql")
    assert 0.7 * people < done.manifest.accepted < 0.9 * people
    found = dpsql.query("SELECT COUNT(*) FROM sales", release=shop / "e.dpsql")
    release = open_release(shop / "e.dpsql")
    told = release.meta.local
    release.close()
    assert told.first_round.reports_of_row_counts == people - done.manifest.accepted
    assert 0 <= told.clipped_fraction < 1
    assert 0 < told.clipped_fraction_error < 0.5
    assert any("slots" in note and "left out about" in note for note in found.notes), found.notes


@pytest.mark.parametrize("name", ["everybody", "slots"])
def test_declared_people_leave_their_rows_uncertain(shop: Path, name: str) -> None:
    plan, owners = shop / f"{name}.json", 3840
    assert dpsql.simulate(shop / f"{name}.yaml", shop / f"{name}.parquet", plan, seed=1) == owners
    dpsql.collect(plan, [shop / f"{name}.parquet"], shop / f"{name}.dpsql")
    with dpsql.connect(shop / f"{name}.dpsql") as connection:
        scaled = connection.session.query("SELECT COUNT(*) FROM sales")
    release = open_release(shop / f"{name}.dpsql")
    (table,) = [read_table(release, view) for view in views_of(release)]
    reporters = release.meta.local.reporters
    release.close()
    rows, ((error,),) = scaled.scalar(), scaled.noise_rows
    assert reporters == owners, "of both rounds"
    assert scaled.notes[0].startswith(f"of everybody: shares of a random sample of {owners:,}, times ")
    assert error == pytest.approx(np.sqrt(table.total_variance), rel=1e-6) and error > 100, "as reports say"
    assert rows == pytest.approx(table.total, rel=1e-6)
    owned = duckdb.sql(f"SELECT count(*) FROM '{shop}/data/sales.parquet' GROUP BY customer_id").fetchnumpy()
    within = np.minimum(owned["count_star()"], read_plan(plan.read_bytes()).tau).sum()
    assert abs(rows - within) < 3 * error


@pytest.mark.parametrize("collection", by_default(["tau: 3", "tau: estimate", "row_bit_cap: 3"], 1))
def test_rows_that_nobody_was_asked_about_leave_no_upper_end(
    shop: Path, tmp_path: Path, collection: str
) -> None:
    text = (
        (shop / "slots.yaml").read_text().replace("tau: 8", collection).replace("max_ids: 10", "max_ids: 3")
    )
    (tmp_path / "c.yaml").write_text(text.replace("root: data", f"root: {shop / 'data'}"))
    plan = tmp_path / "c.json"
    dpsql.simulate(tmp_path / "c.yaml", tmp_path / "c.parquet", plan, seed=1)
    dpsql.collect(plan, [tmp_path / "c.parquet"], tmp_path / "c.dpsql")
    with dpsql.connect(tmp_path / "c.dpsql") as connection:
        counts = connection.session.query("SELECT COUNT(*) AS n, -COUNT(*) AS less FROM sales")
        share = connection.session.query(
            "SELECT AVG(CASE WHEN sex = 'F' THEN 1 ELSE 0 END) FROM sales JOIN customer USING (customer_id)"
        )
    (low,), (high,) = counts.interval_rows(0.95)
    assert low[0] is not None and high[0] is None
    assert low[1] is None and high[1] is not None
    assert low[0] < 15340, "all rows of everybody"
    assert set(counts.gaps().values()) == {UNASKED}
    assert any("rows beyond 3 of a person were not asked about" in note for note in counts.flags)
    (low,), (high,) = share.interval_rows(0.95)
    assert 0 < low[0] < high[0] < 1, "an average of the rows that people were asked about"


def test_answers_say_what_is_not_known_and_what_slots_left_out(shop: Path) -> None:
    told, pages = {}, {}
    for name in ("blind", "counted"):
        dpsql.simulate(shop / f"{name}.yaml", shop / f"{name}.parquet", shop / f"{name}.json", seed=1)
        dpsql.collect(shop / f"{name}.json", [shop / f"{name}.parquet"], shop / f"{name}.dpsql")
        notes = dpsql.query("SELECT COUNT(*) FROM sales", release=shop / f"{name}.dpsql").notes
        release = open_release(shop / f"{name}.dpsql")
        told[name] = (release.meta.local.clipped_fraction, " ".join(notes))
        pages[name] = report_page(release)
        release.close()
    with dpsql.connect(
        shop / "counted.dpsql"
    ) as connection:  # rows that slots leave out move a sum by their number
        alone = connection.session.query("SELECT SUM(amount) FROM sales").interval_rows(0.95)
        beside = connection.session.query("SELECT SUM(amount), COUNT(*) FROM sales").interval_rows(0.95)
    assert [end[0][0] for end in alone] == [end[0][0] for end in beside]
    assert told["blind"][0] is None
    assert "was not asked" in told["blind"][1]
    assert told["counted"][0] > 0
    assert "slots (2 a person) left out about" in told["counted"][1]
    assert "was not asked" in pages["blind"]
    assert f"left out about {100 * told['counted'][0]:.2g}% (error" in pages["counted"]
    for page in (told["counted"][1], pages["counted"]):
        assert "0% of the rows belong" not in page


def test_everybody_with_one_row_has_no_tau_to_choose(tmp_path: Path) -> None:
    survey = (RETAIL.parent / "survey.yaml").read_text()
    (tmp_path / "c.yaml").write_text(
        survey.replace("collection: {epsilon: 1}", "collection: {epsilon: 1, tau: estimate}")
    )
    with pytest.raises(CatalogError, match="one row"):
        dpsql.collection_plan(tmp_path / "c.yaml", tmp_path / "p.json", people=10)
