"""What `plan` foresees by running the recipe on made-up tables: near what releases show, and nothing is opened."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.userlevel.measure import open_case
from benchmarks.userlevel.predicted import over_shown, rehearsals, stated, typical_errors
from benchmarks.userlevel.questions import questions
from benchmarks.userlevel.releases import open_star
from benchmarks.userlevel.simulator import releases
from benchmarks.userlevel.stars import Views
from dpsql import api
from dpsql.catalog import load_catalog
from dpsql.central.axes import axis_maker, open_public
from dpsql.central.plan import plan_release
from dpsql.central.planned import ReleasePlan
from dpsql.contributions import rehearsal
from dpsql.contributions.rehearsal import Guess, crowds, made_rows, make_up, stands_for
from dpsql.curator import rehearsal as foresight
from dpsql.errors import InterfaceError, ReleaseError
from dpsql.interfaces.cli.plan import plan, plan_text
from dpsql.release import open_release
from tests.releases import published, seeded
from tests.thinned import by_default
from tests.userlevel_star import uneven_rows, write_star

pytestmark = pytest.mark.usefixtures("publishes")

LEAST, MOST = 0.5, 2.5
"""Predictions lie between these times what a release shows."""

BY_DAY = "SELECT day, COUNT(*) AS n, SUM(amount) AS s, AVG(amount) AS a FROM sales GROUP BY day"
CROWDED = """
dpsql: 1
name: shop
source: {kind: parquet, tables: {sales: sales.parquet, customer: customer.parquet, product: product.parquet}}
privacy: {lineage: shop, cap: 10, unit: customer.id, epsilon: 1, delta: 1e-6}
tables:
  customer: {role: dimension, key: id, private: true, columns: {region: {type: string, categories: [n, s, w]}}}
  product:
    role: dimension
    key: id
    private: false
    columns: {price: {type: decimal, scale: 2, lower: 0, upper: 9.99, cuts: {width: 1}}}
  sales: {role: fact, max_ids: auto, foreign_keys: {customer_id: customer, product_id: product}, columns: {}}
views:
  prices: {of: sales, axes: [product.price], measures: [count], share: 1/2}
  regions: {of: sales, axes: [customer.region, product.price], measures: [count], share: 1/2}
"""


def planned(catalog: Path) -> ReleasePlan:
    loaded = load_catalog(catalog)
    return plan_release(loaded, axis_maker(loaded, open_public(loaded)))


@pytest.fixture
def few_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rehearsal, and none for the weights of guesses, where neither is looked at."""
    monkeypatch.setattr(foresight, "SEEDS", 1)


@pytest.mark.parametrize("law", ["1e-6", pytest.param("pure", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["blackfriday", pytest.param("insteval", marks=pytest.mark.slow)])
def test_a_star_shows_what_was_predicted(shared_data, name, law, tmp_path, monkeypatch):
    monkeypatch.setenv("DPSQL_DATA", os.environ.get("DPSQL_DATA", str(shared_data)))
    opened = open_case(name, law, tmp_path)
    ratios = over_shown(opened.star, opened.questions(), stated(opened.star), releases(opened.star, 5))
    assert len(ratios) >= 12
    outside = {cell: ratio for cell, ratio in ratios.items() if not LEAST <= ratio <= MOST}
    assert len(outside) <= (0 if law == "1e-6" else len(ratios) // 5), outside


@pytest.mark.parametrize("delta", by_default(["1e-6", "0"], 1))
def test_statements_are_predicted_as_a_publish_answers_them(tmp_path, delta, monkeypatch):
    rows, customers = uneven_rows(5000, 8)
    catalog = write_star(tmp_path, rows, customers, delta=delta)
    catalog.write_text(catalog.read_text().replace("upper: 100", "upper: 40"))
    (query,) = api.plan(catalog, [BY_DAY], guess=Guess(5000, len(rows))).queries
    answers = []
    for seed in (3, 4, 5):
        answers.append(published(catalog, seeded(seed), str(seed)).query(BY_DAY))
    assert [column.name for column in query.columns] == ["n", "s", "a"]
    for column in query.columns:
        place, errors, relatives = answers[0].columns.index(column.name), [], []
        for answered in answers:
            shown = [
                (own[place], row[place])
                for own, row in zip(answered.stderr_rows, answered.rows, strict=True)
                if own[place] is not None and row[0] is not None
            ]
            errors.append(float(np.median([own for own, _ in shown])))
            relatives.append(float(np.median([own / abs(float(value)) for own, value in shown])))
        error, relative = float(np.median(errors)), float(np.median(relatives))
        assert column.median is not None and column.relative is not None
        assert LEAST <= column.median / error <= MOST, (column, error)
        assert LEAST <= column.relative / relative <= MOST, (column, relative)


@pytest.mark.slow
def test_a_sample_of_the_units_errs_like_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    star = open_star(write_star(tmp_path, *uneven_rows(50, 1), days=6))
    views = Views(("days",), ("days",), (), (), ("regions",))
    asked = questions(star.truth, views, {"days": [True], "regions": [False, True]})
    guess = Guess(12_000, 96_000)
    assert stands_for(guess) == 1
    every = typical_errors(star, asked, rehearsals(star, guess, 9))
    monkeypatch.setattr(rehearsal, "MOST_UNITS", 3_000)
    assert stands_for(guess) == 4
    some = typical_errors(star, asked, rehearsals(star, guess, 9))
    assert every.keys() == some.keys()
    # which of few heavy people come weighs up to sqrt(4) times as much in totals
    most = {"total": 2.0}
    ratios = {cell: some[cell] / every[cell] for cell in every}
    assert all(0.75 < ratio < most.get(kind, 1.4) for (kind, _), ratio in ratios.items()), ratios


def test_counts_of_a_sample_grow_and_averages_stay(tmp_path, few_seeds, monkeypatch):
    catalog, guess = write_star(tmp_path, [], {}), Guess(12_000, 96_000)
    every = api.plan(catalog, [BY_DAY], guess=guess)
    monkeypatch.setattr(rehearsal, "MOST_UNITS", 3_000)
    some = api.plan(catalog, [BY_DAY], guess=guess)
    assert (every.stands_for, some.stands_for) == (1, 4)
    assert "each unit represents 4" in plan_text(some)
    for one, other in zip(every.queries[0].columns, some.queries[0].columns, strict=True):
        assert one.median is not None and other.median is not None
        assert 0.6 < other.median / one.median < 1.6, (one, other)


def test_huge_tables_are_bounded_in_units_and_rows() -> None:
    for guess in (Guess(10**8, 10**9), Guess(20_000, 6_000_000), Guess(300, 10**8), Guess(5, 10**7)):
        made = guess.amounts(guess.units // stands_for(guess))
        assert 1 <= len(made) <= rehearsal.MOST_UNITS
        assert made.sum() <= 1.02 * rehearsal.ROOM
        assert 0.9 * guess.units <= stands_for(guess) * len(made) <= guess.units
    assert Guess(20_000, 6_000_000).units // stands_for(Guess(20_000, 6_000_000)) >= rehearsal.FEWEST_UNITS


def test_units_that_no_memory_holds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InterfaceError, match="cannot be rehearsed"):
        make_up(planned(write_star(tmp_path, [], {})), "sales", Guess(1, 10**7), {}, 1)


def test_the_private_table_is_not_opened(tmp_path: Path, few_seeds: None) -> None:
    guess = Guess(1000, 12000)
    rows, customers = uneven_rows(50, 1)
    catalog = write_star(tmp_path, rows, customers)
    before = api.plan(catalog, [BY_DAY], guess=guess)
    (tmp_path / "shop.duckdb").unlink()
    after = api.plan(catalog, [BY_DAY], guess=guess)
    assert after.classes == before.classes and after.queries == before.queries


def test_a_rehearsal_cannot_be_taken_for_a_release(tmp_path: Path, few_seeds: None) -> None:
    """It is written with test entropy, so nothing opens it by mistake; and it is gone afterwards."""
    from dpsql.curator.dry_release import dry_release, priced_plan, rehearse

    catalog = load_catalog(write_star(tmp_path, [], {}))
    priced = priced_plan(catalog, axis_maker(catalog, open_public(catalog)))
    rehearsal = rehearse(priced.plan, Guess(500, 5000), {}, 1)
    dry_release(priced, catalog, None, rehearsal).write(tmp_path / "dry.dpsql")
    with pytest.raises(ReleaseError):
        open_release(tmp_path / "dry.dpsql")


def test_hopeless_views_are_named_with_a_coarser_one(tmp_path: Path, few_seeds: None) -> None:
    catalog = write_star(tmp_path, [], {}, days=300)
    text = catalog.read_text().replace("{axis: sales.day, cuts: {width: 3}}", "sales.day")
    text = text.replace("share: 0.5", "share: 1/3") + (
        "  plain: {of: sales, axes: [customer.region], measures: {count: 1}, share: 1/3}\n"
    )
    catalog.write_text(text)
    report = api.plan(catalog, guess=Guess(4000, 20_000, most=15))
    named = {h.view: h.coarser for h in report.hopeless}
    assert named["regions"] == "plain"
    assert "view regions is hopeless" in plan_text(report)
    assert "view plain answers better" in plan_text(report)
    tiny = api.plan(catalog, guess=Guess(2, 4))
    assert "table sales is hopeless" in plan_text(tiny)
    assert all(h.coarser is None for h in tiny.hopeless)


def test_more_units_make_smaller_errors_and_public_rows_none_of_the_factor(tmp_path, few_seeds):
    catalog = write_star(tmp_path, [], {})
    few, many = (api.plan(catalog, guess=Guess(n, 10 * n)).classes for n in (1500, 12_000))
    smaller = [b.error < a.error for a, b in zip(few, many, strict=True) if a.error and b.error]
    assert len(smaller) >= len(few) / 2 and all(smaller)
    public = write_star(tmp_path, [], {}, public_rows=True, name="told")
    (total,) = [c.error for c in api.plan(public, guess=Guess(1500, 15_000)).classes if c.kind == "total"][:1]
    assert total == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("delta", by_default(["1e-6", "0"], 1))
def test_blind_tables_are_named_before_anything_is_spent(tmp_path: Path, few_seeds: None, delta: str) -> None:
    catalog = write_star(tmp_path, [], {}, delta=delta)
    few, many = (api.plan(catalog, [BY_DAY], guess=Guess(n, 10 * n)) for n in (60, 8000))
    assert [(b.of, b.measures) for b in few.blind] == [("sales", ())]
    assert "table sales is blind: too few people for the noise" in plan_text(few)
    total = next(c for c in few.classes if c.kind == "total")
    assert total.error is None and "without an upper end" in plan_text(few)
    column = few.queries[0].columns[0]
    assert column.median is None and column.open_groups == column.groups
    assert many.blind == () and "blind" not in plan_text(many)


@pytest.mark.parametrize("change", by_default(["nullable", "pure"], 1))
def test_every_kind_of_recipe_is_predicted(tmp_path: Path, few_seeds: None, change: str) -> None:
    catalog = write_star(
        tmp_path, [], {}, nullable=change == "nullable", delta="0" if change == "pure" else "1e-6"
    )
    classes = api.plan(catalog, guess=Guess(8000, 80000, 6)).classes
    assert {c.kind for c in classes} == {"total", "one-way group", "one range", "one cell", "ranges joined"}
    assert all(c.error is not None and 0 < c.error < 3 for c in classes)
    assert all((c.mean_error is None) == (c.measure == "count") for c in classes)


def test_made_up_units_own_what_was_stated() -> None:
    free, capped = Guess(50_000, 200_000, 3), Guess(50_000, 200_000, 3, most=10)
    for guess in (free, capped, Guess(50_000, 50_000), Guess(3000, 73_000, 22, 92)):
        amounts = guess.amounts(3000)
        assert amounts.min() >= 1 and amounts.mean() == pytest.approx(guess.mean, rel=0.02)
        assert np.median(amounts) == pytest.approx(guess.median, abs=1)
    assert free.amounts(3000).max() > 20
    assert capped.amounts(3000).max() == 10
    assert set(Guess(500, 500).amounts(500)) == {1}


@pytest.mark.parametrize(("rows", "most"), [(14_000, 40), (17_000, 6)])
def test_units_of_which_mean_and_most_are_known_have_the_largest_entropy(rows: int, most: int) -> None:
    """p(n) ~ r^n up to the most, falling or rising."""
    guess = Guess(3000, rows, most=most)
    amounts = guess.amounts(100_000)
    counts = np.bincount(amounts)[1:]
    assert len(counts) == most and amounts.mean() == pytest.approx(guess.mean, rel=1e-3)
    many = counts[np.argsort(counts)[-4:]]
    assert many[1:] / many[:-1] == pytest.approx(np.full(3, many[3] / many[2]), rel=0.01)
    assert (counts[0] > counts[1]) == (2 * guess.mean < most + 1)


def test_rows_of_a_unit_share_her_own_leaf_and_half_of_other_leaves(tmp_path: Path) -> None:
    plan = planned(write_star(tmp_path, [], {}, days=200))
    rows, columns = made_rows(
        plan, "sales", Guess(300, 30_000, means={"sales.amount": 25}), {}, np.random.default_rng(1)
    )
    names = {plan.axes[i].axis.name: f"a{i}" for i in range(len(plan.axes))}
    heavy = [np.flatnonzero(rows["unit"] == unit) for unit in range(250, 300)]
    region = names["customer.region"]
    assert all(len(set(rows[region][own])) == 1 for own in heavy)
    days = names[next(name for name in names if name.startswith("sales.day"))]
    share = [np.bincount(rows[days][own]).max() / len(own) for own in heavy]
    assert 0.45 < np.mean(share) < 0.56
    (column,) = columns.values()
    assert rows[column].mean() == pytest.approx(2500, rel=0.03)
    assert rows[column].min() >= 0 and rows[column].max() <= 10_000


def test_what_is_stated_moves_what_is_predicted(tmp_path: Path, few_seeds: None) -> None:
    catalog = write_star(tmp_path, [], {}, days=60)
    stated_ = (
        Guess(5000, 100_000),
        Guess(5000, 100_000, alike=0),
        Guess(5000, 100_000, means={"sales.amount": 5}),
    )
    plain, apart, cheap = (
        {(c.view, c.kind, c.measure): c.error for c in api.plan(catalog, guess=guess).classes}
        for guess in stated_
    )
    days, sums = ("days", "one-way group", "count"), ("days", "one-way group", "sales.amount")
    assert apart[days] < 0.9 * plain[days]
    assert cheap[sums] > 1.1 * plain[sums] and cheap[days] < 1.1 * plain[days]


def test_rows_are_expected_where_the_keys_of_public_dimensions_are(tmp_path: Path) -> None:
    duckdb.sql(
        "SELECT i AS id, CASE WHEN i < 90 THEN 1.5 ELSE 7.25 END AS price FROM range(100) r(i)"
    ).write_parquet(str(tmp_path / "product.parquet"))
    (tmp_path / "shop.yaml").write_text(CROWDED)
    catalog = load_catalog(tmp_path / "shop.yaml")
    public = open_public(catalog)
    plan = plan_release(catalog, axis_maker(catalog, public))
    found = crowds(catalog, public, plan)
    (axis,) = found
    assert plan.axes[axis].axis.name == "product.price"
    assert found[axis][:10].tolist() == [0, 0.9, 0, 0, 0, 0, 0, 0.1, 0, 0]
    rows, _ = made_rows(plan, "sales", Guess(2000, 20_000), found, np.random.default_rng(1))
    share = np.bincount(rows[f"a{axis}"], minlength=10) / len(rows["unit"])
    assert share[1] == pytest.approx(0.9, abs=0.02) and share[7] == pytest.approx(0.1, abs=0.02)


def test_the_same_seed_makes_the_same_up(tmp_path: Path) -> None:
    plan = planned(write_star(tmp_path, [], {}))
    one, again, other = (make_up(plan, "sales", Guess(400, 4000), {}, seed).drawn for seed in (1, 1, 2))
    for i, view in one.views.items():
        assert np.array_equal(view.value, again.views[i].value)
        assert not np.array_equal(view.value, other.views[i].value)


def test_guesses_that_no_table_has_are_refused(tmp_path: Path, few_seeds: None) -> None:
    for wrong in ((0, 5, None), (6, 5, None), (2, 5, 9.0), (2, 5, 2, 1), (2, 5, 2, 4, 1.5)):
        with pytest.raises(InterfaceError):
            Guess(*wrong)
    catalog = write_star(tmp_path, [], {})
    for means in ({"sales.amoun": 5}, {"sales.amount": 5000}, {"sales.amount": float("nan")}):
        with pytest.raises(InterfaceError, match=r"mean of sales\.amoun"):
            api.plan(catalog, guess=Guess(20, 50, means=means))
    half = CliRunner().invoke(plan, [str(catalog), "--units", "5"])
    assert isinstance(half.exception, InterfaceError)
    unstated = CliRunner().invoke(plan, [str(catalog)])
    assert "write `guess: {units: .., rows: ..}` into the catalog" in unstated.output
    assert "days, one-way group" not in unstated.output
    told = CliRunner().invoke(plan, [str(catalog), "--units", "900", "--rows", "9000"])
    assert "days, one-way group: COUNT" in told.output


def test_units_of_one_row_count_almost_as_they_are(tmp_path: Path) -> None:
    drawn = make_up(planned(write_star(tmp_path, [], {})), "sales", Guess(20_000, 20_000), {}, 1).drawn
    assert drawn.scale.choices.tau == 1
    assert 0.9 < drawn.scale.factors[""].value < 1.25  # those of large values weigh a little less
