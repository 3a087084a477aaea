"""Whom a local release stands for: what is scaled, tested, mixed, left out and said, block by block."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.errors import CatalogError, InterfaceError, UnknownName
from dpsql.federation.session import OpenReleases
from dpsql.federation.tables import read_table
from dpsql.interfaces.python.dbapi import connect
from dpsql.noise import ExactNoise
from dpsql.planner.notes import PARTICIPATIONS
from dpsql.planner.plan import views_of
from dpsql.progress import silent
from dpsql.results.export import export
from dpsql.results.render import render
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

ROOT = Path(__file__).parents[2]
PEOPLE, ASKED = 8000, 2000
WHOM = {word: each.note.format(f"{ASKED:,}") for word, each in PARTICIPATIONS.items()}
COUNT = "SELECT COUNT(*) AS n FROM customer"
BY_SEX = "SELECT sex, COUNT(*) AS n FROM customer GROUP BY sex"
BY_AGE = "SELECT (age - 18) // 12 AS g, COUNT(*) AS n FROM customer GROUP BY 1"
MEAN = "SELECT AVG(income) AS mean FROM customer"
VIEW = """views:
  people: {of: customer, axes: [{axis: customer.age, cuts: {width: 12}}, customer.sex],
    measures: [count, customer.income]}
"""
FINER = """views:
  people: {of: customer, axes: [{axis: customer.age, cuts: {width: 6}}, customer.region], measures: [count]}
"""
REGION = "views:\n  places: {of: customer, axes: [customer.region], measures: [count]}\n"
NOT_SCALED = "respondents of {} differ from the population of one: they are neither scaled to it nor combined"
DIFFERS = NOT_SCALED.format("biased")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Central releases of everybody, and local ones of a quarter: by chance, mostly women, or of everybody."""
    from dpsql.examples.retail import make_star, write_star

    folder = tmp_path_factory.mktemp("participation")
    star = make_star(3, PEOPLE, 20)
    write_star(folder / "data", star)
    rng = np.random.default_rng(5)
    young = np.where(star["customer"]["age"] < 42, 3.0, 1.0)
    drawn = {
        "asked": rng.choice(PEOPLE, ASKED, replace=False),
        "women": np.argsort(star["customer"]["sex"], kind="stable")[:ASKED],
        "young": rng.choice(PEOPLE, ASKED, replace=False, p=young / young.sum()),
    }
    for name, few in drawn.items():
        write_star(folder / name, {**star, "customer": {c: v[few] for c, v in star["customer"].items()}})
    text = (ROOT / "catalog" / "retail.yaml").read_text()
    head = text[: text.index("views:")].replace("income: {type: int", "income: {type: int, measure: true")
    for name, view in (("one", VIEW), ("two", VIEW), ("places", REGION)):
        central = head.replace("name: retail", f"name: {name}").replace("epsilon: 1.0", "epsilon: 0.04")
        (folder / f"{name}.yaml").write_text(central + view)
        # Always the same noise: a test at 1% would reject a good sample now and then.
        made = load_catalog(folder / f"{name}.yaml")
        publish_release(made, folder / f"{name}.dpsql", noise=ExactNoise(rng.bytes), key=bytes(32))
    collect(folder, head, "unknown", "asked", "")
    collect(folder, head, "random", "asked", ", participation: random")
    collect(folder, head, "biased", "women", ", participation: random")
    collect(folder, head, "declared", "asked", f", participation: random, everybody: {PEOPLE}")
    collect(folder, head, "all", "data", ", participation: all")
    otherwise = head.replace("description: full years", "description: age at the last birthday")
    collect(folder, otherwise, "finer", "young", ", participation: random", FINER)
    collect(folder, otherwise, "finer_random", "asked", ", participation: random", FINER)
    collect(folder, head, "part", "young", ", participation: all")
    collect(folder, otherwise, "faint", "young", ", participation: random", FINER, epsilon=1)
    collect(
        folder, head, "placed", "asked", ", participation: random", VIEW + REGION.removeprefix("views:\n")
    )
    return folder


def collect(
    folder: Path, head: str, name: str, root: str, said: str, view: str = VIEW, epsilon: int = 8
) -> None:
    asks = head.replace("name: retail", f"name: {name}").replace("root: data", f"root: {root}")
    (folder / f"{name}.yaml").write_text(f"{asks}collection: {{epsilon: {epsilon}{said}}}\n{view}")
    dpsql.simulate(folder / f"{name}.yaml", folder / f"{name}.parquet", folder / f"{name}.json", seed=1)
    dpsql.collect(folder / f"{name}.json", folder / f"{name}.parquet", folder / f"{name}.dpsql")


def session(folder: Path, *names: str, combine: bool = False) -> OpenReleases:
    return connect(*(folder / f"{name}.dpsql" for name in names), combine=combine).session


@pytest.mark.parametrize("name", by_default(["unknown", "random"], 1))
def test_every_answer_of_a_local_release_says_whom_it_is_about(folder: Path, name: str) -> None:
    released = session(folder, name)
    for sql in (COUNT, BY_SEX, MEAN, "SELECT SUM(income) FROM customer", "SELECT MEDIAN(age) FROM customer"):
        result = released.query(sql)
        assert WHOM[name] in result.notes, sql
        assert WHOM[name] in result.flags, "interfaces without notes say it too"
        assert WHOM[name] in result.provenance["notes"]
        assert WHOM[name] in render(result, "table", 0.95)
        assert WHOM[name] in released.explain(sql)
        assert WHOM[name] in result._repr_html_()
    assert result.provenance["local"]["participation"] == name
    listed = released.query("SELECT DISTINCT sex FROM customer")
    assert not any(note in WHOM.values() for note in listed.notes)
    assert released.query(COUNT).rows == ((ASKED,),), "nobody says how many everybody is"


@pytest.mark.parametrize("combine", [False, True])
def test_unknown_people_answer_nothing_that_a_central_release_can(folder: Path, combine: bool) -> None:
    both = session(folder, "one", "unknown", combine=combine)
    for sql in (COUNT, BY_SEX, MEAN, "SELECT SUM(income) FROM customer"):
        result = both.query(sql)
        assert result.provenance["routed"]["chosen"] == "one", sql
        assert result.provenance["routed"]["left_out"] == ["unknown"]
        left_out = "unknown is left out: it covers only those who reported to it"
        assert left_out in result.notes
        assert left_out in both.explain(sql)
    assert not both.query(COUNT).provenance["routed"]["tests"]


@pytest.mark.kernel
def test_a_random_sample_is_scaled_to_what_a_central_release_counts(folder: Path) -> None:
    both = session(folder, "one", "random")
    result = both.query(BY_AGE)
    total = session(folder, "one").query(COUNT).scalar()
    assert result.provenance["routed"]["chosen"] == "random", "it errs less"
    assert sum(row[1] for row in result.rows) == pytest.approx(total, abs=1e-4)
    margins = "weighted to the margins of customer.age and customer.sex in one"
    assert result.notes[0].startswith(f"of everybody: {ASKED:,} respondents of a random sample, {margins}")
    low, high = both.query(COUNT).interval_rows(0.999)
    assert low[0][0] < PEOPLE < high[0][0]
    ((test,),) = (result.provenance["routed"]["tests"],)
    assert (test["local"], test["central"], test["rejected"]) == ("random", "one", False)


def test_a_declared_number_scales_a_sample_that_stands_alone(folder: Path) -> None:
    alone = session(folder, "declared")
    assert alone.query(COUNT).rows == ((PEOPLE,),)
    shares = session(folder, "random").query(BY_SEX).rows
    for row, few in zip(alone.query(BY_SEX).rows, shares, strict=True):
        assert row[1] == pytest.approx(few[1] * PEOPLE / ASKED)
    assert "(declared)" in alone.query(COUNT).notes[0]


@pytest.mark.parametrize("name", by_default(["declared", "random", "unknown"], 1))
def test_exported_cells_are_scaled_as_answers_are(folder: Path, tmp_path: Path, name: str) -> None:
    released = session(folder, name)
    (view,) = export(released, tmp_path / "out", (), 0.95, silent)["views"]
    answer = released.query(
        "SELECT (age - 18) // 12, sex, COUNT(*), DP_STDERR(COUNT(*)), DP_INTERVAL_HIGH(COUNT(*)), "
        "SUM(income), DP_STDERR(SUM(income)) FROM customer GROUP BY 1, 2 ORDER BY 1, 2"
    )
    picked = "(age_low - 18) // 12, sex, count, count_stderr, count_high, sum_income, sum_income_stderr"
    cells = duckdb.sql(f"SELECT {picked} FROM '{tmp_path}/out/people.parquet' ORDER BY 1, 2").fetchall()
    assert len(cells) == len(answer.rows) == 12
    for cell, row in zip(cells, answer.rows, strict=True):
        assert cell[:2] == row[:2] and cell[2:] == pytest.approx(row[2:], rel=1e-9)
    assert view["notes"][0] == answer.notes[0]


@pytest.mark.kernel
@pytest.mark.parametrize("combine", by_default([True, False], 1))
def test_a_sample_that_differs_is_mixed_with_nothing(folder: Path, combine: bool) -> None:
    both = session(folder, "one", "biased", combine=combine)
    for sql in (COUNT, BY_SEX, MEAN):
        result = both.query(sql)
        assert result.provenance["routed"]["chosen"] == "one"
        assert [test["rejected"] for test in result.provenance["routed"]["tests"]] == [True]
        assert DIFFERS in result.notes
        assert DIFFERS in both.explain(sql)


@pytest.mark.kernel
def test_columns_are_compared_on_common_edges_whatever_they_are_called_in_words(folder: Path) -> None:
    for name in ("finer", "finer_random"):
        tests = session(folder, "one", name).router.standing.tests
        assert [test.rejected for test in tests] == [name == "finer"]
        columns = {column.column: column for column in tests[0].columns}
        assert columns["customer.age"].compared, "groups of 6 and of 12 years, described otherwise"
        assert not columns["customer.region"].compared
        assert columns["customer.region"].reason == "one has no such column for rows of customer"


@pytest.mark.kernel
def test_respondents_who_differ_are_weighted_to_central_margins(folder: Path) -> None:
    both = session(folder, "one", "finer")
    people = duckdb.read_parquet(str(folder / "data" / "customer.parquet"))
    for a, b in ((18, 29), (30, 53), (66, 89)):
        condition = f"region = 'north' AND age BETWEEN {a} AND {b}"
        result = both.query(f"SELECT COUNT(*) FROM customer WHERE {condition}")
        truth = people.filter(condition).aggregate("count(*)").fetchall()[0][0]
        (low,), (high,) = (bound[0] for bound in result.interval_rows(0.95))
        assert low < truth < high
        assert high - low < 1.2 * truth, "not an interval that holds anything"
        assert result.notes[0].startswith(
            "of everybody: 2,000 respondents, not a random sample, weighted to the margins of"
        )
        assert result.notes[0] in result.flags
    by_region = both.query("SELECT region, COUNT(*) AS n FROM customer GROUP BY 1").rows
    whole = both.query("SELECT COUNT(*) FROM customer WHERE region IS NULL OR region IS NOT NULL").scalar()
    assert sum(row[1] for row in by_region) == pytest.approx(whole, abs=1e-4)
    explained = both.explain(COUNT).splitlines()
    assert explained[0].startswith("answered by one (mean standard error ")
    assert explained[1] == "not by finer: its respondents differ from the population"
    assert explained[2].startswith("finer against one: chi-squared ")


@pytest.mark.kernel
def test_a_biased_sample_that_no_test_rejects_is_weighted_too(folder: Path) -> None:
    both, alone = session(folder, "one", "faint"), session(folder, "faint")
    assert [test.rejected for test in both.router.standing.tests] == [False], "noise hides it"
    young = duckdb.sql(f"SELECT count(*) FROM '{folder}/data/customer.parquet' WHERE age < 42").fetchall()[0][
        0
    ]
    sql = "SELECT COUNT(*) FROM customer WHERE age < 42 AND (region IS NULL OR region IS NOT NULL)"
    result, few = both.query(sql), alone.query(sql)
    error, scale = result.stderr_rows[0][0], PEOPLE / ASKED
    assert abs(result.scalar() - young) < 2 * error
    assert error < few.stderr_rows[0][0] * scale, "margins are narrower than reports"
    assert abs(few.scalar() * scale - young) > 2.5 * few.stderr_rows[0][0] * scale, (
        "scaled, as nothing rejects"
    )
    assert "random sample, weighted to the margins of customer.age in one" in result.flags[0]


@pytest.mark.kernel
def test_views_with_no_margin_in_common_are_scaled(folder: Path) -> None:
    both = session(folder, "one", "placed")
    regions = both.query("SELECT region, COUNT(*) AS n FROM customer GROUP BY 1").rows
    total = session(folder, "one").query(COUNT).scalar()
    assert sum(row[1] for row in regions) == pytest.approx(total, abs=1e-4)


def test_a_declared_number_is_a_margin_of_its_own(folder: Path) -> None:
    both = session(folder, "one", "declared")
    (candidate,) = [each for each in both.router.standing.candidates if each.name == "declared"]
    weighted = candidate.answerer.release
    tables = [read_table(weighted, view) for view in views_of(weighted)]
    assert weighted.meta.local.stands_for.margins == ("customer.age", "customer.sex")
    assert [table.total for table in tables] == [pytest.approx(PEOPLE, abs=1e-4)]
    assert tables[0].total_variance == pytest.approx(0, abs=1e-4)


@pytest.mark.kernel
def test_all_people_are_tested_too(folder: Path) -> None:
    both = session(folder, "one", "part")
    result = both.query(COUNT)
    assert result.provenance["routed"]["chosen"] == "one"
    assert NOT_SCALED.format("part") in result.notes


@pytest.mark.kernel
def test_what_cannot_be_compared_is_said(folder: Path) -> None:
    result = session(folder, "places", "random").query(MEAN)
    assert any(
        note.startswith(
            "respondents of random were not tested for being a random sample: customer.region not comparable"
        )
        for note in result.notes
    )


@pytest.mark.kernel
def test_together_they_err_less_and_parts_add_up(folder: Path) -> None:
    pooled, routed = session(folder, "one", "all", combine=True), session(folder, "one", "all")
    result = pooled.query(BY_AGE)
    assert result.provenance["combined"] == ["one", "all"]
    for row, single in zip(result.stderr_rows, routed.query(BY_AGE).stderr_rows, strict=True):
        assert 0 < row[1] < single[1]
    both = f"SELECT ({COUNT}) - SUM(n) FROM ({BY_SEX}) AS g"
    assert pooled.query(both).rows[0][0] == 0.0
    assert len(pooled.query(both).provenance["routed"]["blocks"]) == 2
    by_age = "SELECT (age - 18) // 12 AS g, COUNT(*) AS n FROM customer WHERE sex = 'F' GROUP BY 1"
    women = pooled.query("SELECT COUNT(*) FROM customer WHERE sex = 'F'").scalar()
    assert sum(row[1] for row in pooled.query(by_age).rows) == women


def test_a_sample_is_weighted_to_a_central_release_and_not_combined_with_it(folder: Path) -> None:
    """That no test rejects a sample does not make it random, and weighted reports err with the central margins."""
    pooled, routed = session(folder, "one", "random", combine=True), session(folder, "one", "random")
    for statement in (BY_AGE, BY_SEX, COUNT):
        assert "combined" not in pooled.query(statement).provenance
        assert pooled.query(statement).rows == routed.query(statement).rows


def test_a_total_and_its_parts_come_from_one_table(folder: Path) -> None:
    both = session(folder, "one", "all")
    assert both.query(COUNT).rows == ((PEOPLE,),), "a census counts exactly"
    statement = f"SELECT ({COUNT}) - SUM(n) FROM ({BY_SEX}) AS g"
    result = both.query(statement)
    assert result.rows[0][0] == 0.0
    assert len(set(result.provenance["routed"]["blocks"])) == 1


def test_blocks_that_no_one_release_answers_are_routed_one_by_one(folder: Path) -> None:
    both, central, census = (session(folder, *names) for names in (("places", "all"), ("places",), ("all",)))
    region = "SELECT COUNT(*) AS n FROM customer WHERE region = 'north'"
    women = "SELECT COUNT(*) AS n FROM customer WHERE sex = 'F' AND age < 42"
    result = both.query(f"{region} UNION ALL {women}")
    expected = [central.query(region), census.query(women)]
    assert result.rows == tuple(each.rows[0] for each in expected)
    assert result.stderr_rows == tuple(each.stderr_rows[0] for each in expected)
    assert result.provenance["routed"]["blocks"] == ["places", "all"]
    assert any("by the catalog" in note for note in result.notes)


def test_two_of_unknown_people_do_not_answer_for_each_other(folder: Path) -> None:
    assert session(folder, "one", "unknown").query("SELECT COUNT(*) FROM unknown.customer").scalar() == ASKED
    with pytest.raises(UnknownName, match="each for those who reported to it alone"):
        session(folder, "biased", "unknown").query(COUNT)
    assert session(folder, "biased", "unknown").query("SELECT DISTINCT sex FROM customer").rows


@pytest.mark.parametrize("combine", by_default([True, False], 1))
def test_the_promise_of_all_open_releases_is_told_not_that_of_those_that_answer(
    folder: Path, combine: bool
) -> None:
    def told(*names: str, sql: str = BY_SEX) -> str:
        provenance = session(folder, *names, combine=combine).query(sql).provenance
        return str(provenance["routed"]["all_together"]["epsilon"])

    assert told("one", "two") == "4/25"
    assert told("one", "two", sql="SELECT COUNT(*) FROM one.customer") == "4/25"
    assert told("one", "unknown") == "202/25"
    assert told("one", "two", "unknown", "all") == "404/25"
    assert told("one", "one") == "2/25", "one draw, opened twice"


def test_paths_are_asked_together_as_connect_does(folder: Path) -> None:
    paths = [folder / "one.dpsql", folder / "random.dpsql"]
    assert dpsql.query(BY_SEX, paths).rows == session(folder, "one", "random").query(BY_SEX).rows
    found = dpsql.query(BY_SEX, paths, combine=True)
    assert found.rows == session(folder, "one", "random", combine=True).query(BY_SEX).rows
    assert "weighted to the margins of" in dpsql.explain(BY_AGE, paths)
    assert dpsql.query(COUNT, [paths[0]]).rows == dpsql.query(COUNT, paths[0]).rows
    with pytest.raises(InterfaceError):
        dpsql.query(COUNT, [])


def test_what_participation_may_say(folder: Path) -> None:
    wrong = {
        "participation: most": "participation",
        "participation: all, everybody: 10": "everybody",
        "participation: random, everybody: 0": "everybody",
    }
    for said, message in wrong.items():
        text = (folder / "all.yaml").read_text().replace("participation: all", said)
        (folder / "wrong.yaml").write_text(text)
        with pytest.raises(CatalogError, match=message):
            dpsql.collection_plan(folder / "wrong.yaml", folder / "wrong.json", people=10)
