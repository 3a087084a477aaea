"""Relative errors predicted from public guesses are those that a release then shows, within a factor of 1.5."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.userlevel.predicted import predicted, shown
from benchmarks.userlevel.releases import open_star
from dpsql import api
from dpsql.doors.cli.plan import plan, plan_text
from dpsql.errors import InterfaceError
from dpsql.publishing.axes import axis_maker, open_public
from dpsql.publishing.plan import plan_release
from dpsql.publishing.userlevel.predict import Guess, expect
from dpsql.star import load_catalog
from tests.userlevel_star import uneven_rows, write_star

ROOT = Path(__file__).resolve().parents[2]
FOODMART = Guess(units=5581, rows=86837)
FACTOR = 1.5

SHORT = (("joined", "SUM"), ("joined", "AVG"))
"""Foreseen too small under a delta, since stores differ in what their heavy buyers buy."""


@pytest.mark.parametrize("pure", [False, True])
def test_foodmart_shows_what_was_predicted(
    shared_data: Path, pure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPSQL_DATA", os.environ.get("DPSQL_DATA", str(shared_data)))
    star = open_star(ROOT / "catalog" / "foodmart_user.yaml", pure=pure)
    told, found = predicted(star, "price", FOODMART), shown(star, "price", "month", releases=5)
    if pure:
        del told[
            "group", "AVG"
        ]  # averages below noise are refused, so a release shows its better groups only
    assert len(told) == 15 - pure
    for key, error in told.items():
        if pure or key not in SHORT:
            assert found[key] / FACTOR <= error <= found[key] * FACTOR, (key, error, found[key])


@pytest.mark.xfail(
    strict=True, reason="1.53 and 1.56 over 20 releases: the forecast knows nothing of what stores sell"
)
def test_foodmart_shows_what_was_predicted_of_joined_sums(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPSQL_DATA", os.environ.get("DPSQL_DATA", str(shared_data)))
    star = open_star(ROOT / "catalog" / "foodmart_user.yaml", pure=False)
    told, found = predicted(star, "price", FOODMART), shown(star, "price", "month", releases=5)
    for key in SHORT:
        assert found[key] / FACTOR <= told[key] <= found[key] * FACTOR, (key, told[key], found[key])


@pytest.mark.parametrize("delta", ["1e-6", "0"])
def test_a_small_star_shows_what_was_predicted(tmp_path: Path, delta: str) -> None:
    rows, customers = uneven_rows(5000, 8)
    catalog = write_star(tmp_path, rows, customers, delta=delta)
    catalog.write_text(catalog.read_text().replace("upper: 100", "upper: 40"))
    guess = Guess(5000, len(rows))
    report = api.plan(catalog, guess=guess)
    star = open_star(catalog)
    found = shown(star, "days", "days", releases=5)
    told = {(c.kind, c.measure): c.error for c in report.classes if c.view in ("", "days")}
    for kind in ("total", "one-way group"):
        for measure, aggregate in (("count", "COUNT"), ("sales.amount", "SUM")):
            error, got = told[kind, measure], found[{"one-way group": "month"}.get(kind, kind), aggregate]
            assert got / FACTOR <= error <= got * FACTOR, (kind, measure, error, got)


def test_the_private_table_is_not_opened(tmp_path: Path) -> None:
    guess = Guess(1000, 12000)
    rows, customers = uneven_rows(50, 1)
    catalog = write_star(tmp_path, rows, customers)
    before = api.plan(catalog, guess=guess)
    (tmp_path / "shop.duckdb").unlink()
    assert api.plan(catalog, guess=guess).classes == before.classes


def test_hopeless_views_are_named_with_a_coarser_one(tmp_path: Path) -> None:
    catalog = write_star(tmp_path, [], {}, days=300)
    text = catalog.read_text().replace("{axis: sales.day, cuts: {width: 3}}", "sales.day")
    text = text.replace("share: 0.5", "share: 1/3") + (
        "  plain: {of: sales, axes: [customer.region], measures: {count: 1}, share: 1/3}\n"
    )
    catalog.write_text(text)
    report = api.plan(catalog, guess=Guess(300, 3000))
    named = {h.view: h.coarser for h in report.hopeless}
    assert named["regions"] == "plain"
    assert "view regions is hopeless" in plan_text(report)
    assert "view plain answers better" in plan_text(report)
    tiny = api.plan(catalog, guess=Guess(2, 4))
    assert "table sales is hopeless" in plan_text(tiny)
    assert all(h.coarser is None for h in tiny.hopeless)
    assert api.plan(catalog, guess=Guess(10**6, 10**7)).hopeless == ()


def test_more_units_make_smaller_errors_and_public_rows_none_of_the_factor(tmp_path: Path) -> None:
    catalog = write_star(tmp_path, [], {})
    few, many = (api.plan(catalog, guess=Guess(n, 10 * n)).classes for n in (1000, 4000))
    assert all(b.error < a.error for a, b in zip(few, many, strict=True))
    public = write_star(tmp_path, [], {}, public_rows=True, name="told")
    (total,) = [c.error for c in api.plan(public, guess=Guess(1000, 10_000)).classes if c.kind == "total"][:1]
    assert total == 0.0


def test_tables_with_few_units_are_warned_of(tmp_path: Path) -> None:
    catalog = write_star(tmp_path, [], {}, delta="0")
    few, many = (api.plan(catalog, guess=Guess(n, 10 * n)) for n in (1500, 5581))
    assert [b.of for b in few.blind] == ["sales"]
    assert 1500 < few.blind[0].fewest < 5000
    assert "sales has few units" in plan_text(few)
    assert many.blind == ()


@pytest.mark.parametrize("change", ["nullable", "pure per_group", "pure"])
def test_every_kind_of_recipe_is_predicted(tmp_path: Path, change: str) -> None:
    catalog = write_star(
        tmp_path, [], {}, nullable=change == "nullable", delta="0" if "pure" in change else "1e-6"
    )
    if "per_group" in change:
        text = catalog.read_text().replace("share: 0.5}", "share: 0.5, calibrate: per_group}")
        catalog.write_text(text)
    classes = api.plan(catalog, guess=Guess(4000, 40000, 6)).classes
    assert {c.kind for c in classes} == {"total", "one-way group", "one range", "one cell", "ranges joined"}
    assert all(0 < c.error < 2 for c in classes)
    assert all((c.mean_error is None) == (c.measure == "count") for c in classes)


def test_guesses_that_no_table_has_are_refused(tmp_path: Path) -> None:
    for wrong in ((0, 5, None), (6, 5, None), (2, 5, 9.0)):
        with pytest.raises(InterfaceError):
            Guess(*wrong)
    catalog = write_star(tmp_path, [], {})
    half = CliRunner().invoke(plan, [str(catalog), "--units", "5"])
    assert isinstance(half.exception, InterfaceError)
    unstated = CliRunner().invoke(plan, [str(catalog)])
    assert "state --units and --rows" in unstated.output
    told = CliRunner().invoke(plan, [str(catalog), "--units", "900", "--rows", "9000", "--typical-rows", "5"])
    assert "sales, one-way group: COUNT" in told.output


def test_one_row_each_needs_no_factor(tmp_path: Path) -> None:
    star = write_star(tmp_path, [], {})
    loaded = load_catalog(star)
    found = expect(plan_release(loaded, axis_maker(loaded, open_public(loaded))), "sales", Guess(500, 500))
    assert found.tau == 1 and found.factor == pytest.approx(1.0, abs=0.02)
