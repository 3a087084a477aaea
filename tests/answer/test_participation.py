"""A local release counts those who reported: it says so, and stands for everybody only where its catalog says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dpsql
from dpsql.answer.notes import PARTICIPATIONS, Reads, stands_for_everybody
from dpsql.answer.output import render
from dpsql.answer.session import OpenReleases
from dpsql.doors.dbapi import connect
from dpsql.errors import CatalogError, UnknownName

WHOM = {word: each.note for word, each in PARTICIPATIONS.items()}

ROOT = Path(__file__).parents[2]
PEOPLE, ASKED = 2000, 400
COUNT = "SELECT COUNT(*) AS n FROM customer"
BY_SEX = "SELECT sex, COUNT(*) AS n FROM customer GROUP BY sex"
MEAN = "SELECT AVG(income) AS mean FROM customer"
VIEW = """views:
  people: {of: customer, axes: [customer.age, customer.sex], measures: [count, customer.income]}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two central releases of everybody, and local ones of a fifth, mostly women, by `participation`."""
    from dpsql.examples.retail import make_star, write_star

    folder = tmp_path_factory.mktemp("participation")
    star = make_star(3, PEOPLE, 20)
    write_star(folder / "data", star)
    few = np.argsort(star["customer"]["sex"], kind="stable")[:ASKED]
    asked = {column: values[few] for column, values in star["customer"].items()}
    write_star(folder / "asked", {**star, "customer": asked})
    text = (ROOT / "catalog" / "retail.yaml").read_text()
    head = text[: text.index("views:")].replace("income: {type: int", "income: {type: int, measure: true")
    for name in ("one", "two"):
        central = head.replace("name: retail", f"name: {name}")
        (folder / f"{name}.yaml").write_text(central + VIEW)
        dpsql.publish(folder / f"{name}.yaml", folder / f"{name}.dpsql")
    for word in ("unknown", "random", "all"):
        said = "" if word == "unknown" else f", participation: {word}"
        asks = head.replace("name: retail", f"name: {word}").replace("root: data", "root: asked")
        (folder / f"{word}.yaml").write_text(f"{asks}collection: {{epsilon: 8{said}}}\n{VIEW}")
        dpsql.simulate(folder / f"{word}.yaml", folder / f"{word}.parquet", folder / f"{word}.json", seed=1)
        dpsql.collect(folder / f"{word}.json", folder / f"{word}.parquet", folder / f"{word}.dpsql")
    return folder


def session(folder: Path, *names: str, combine: bool = False) -> OpenReleases:
    return connect(*(folder / f"{name}.dpsql" for name in names), combine=combine).session


@pytest.mark.parametrize("name", ["unknown", "random", "all"])
def test_every_answer_of_a_local_release_says_whom_it_is_about(folder: Path, name: str) -> None:
    released = session(folder, name)
    for sql in (COUNT, BY_SEX, MEAN, "SELECT SUM(income) FROM customer", "SELECT MEDIAN(age) FROM customer"):
        result = released.query(sql)
        assert WHOM[name] in result.notes, sql
        assert WHOM[name] in result.flags, "doors without notes say it too"
        assert WHOM[name] in result.provenance["notes"]
        assert WHOM[name] in render(result, "table", 0.95)
        assert WHOM[name] in released.explain(sql)
        assert WHOM[name] in result._repr_html_()
    assert result.provenance["local"]["participation"] == name
    listed = released.query("SELECT DISTINCT sex FROM customer")
    assert not any(note in WHOM.values() for note in listed.notes)
    assert WHOM[name] in "".join(report_page(folder, name))


def report_page(folder: Path, name: str) -> list[str]:
    from dpsql.doors.report import collected
    from dpsql.release import open_release

    release = open_release(folder / f"{name}.dpsql")
    try:
        return collected(release.meta.local)
    finally:
        release.close()


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("name", ["unknown", "random"])
def test_those_who_reported_do_not_stand_for_everybody(folder: Path, name: str, combine: bool) -> None:
    both = session(folder, "one", name, combine=combine)
    for sql in (COUNT, BY_SEX, "SELECT SUM(income) FROM customer"):
        result = both.query(sql)
        assert result.provenance["routed"]["chosen"] == "one", sql
        assert result.provenance["routed"]["left_out"] == [name]
        left_out = f"{name} is left out: it answers for those who reported to it"
        assert left_out in result.notes
        assert left_out in both.explain(sql)
        low, high = result.interval_rows(0.999)
        assert all(a[-1] < b[-1] for a, b in zip(low, high, strict=True))
    ((count,),) = both.query(COUNT).rows
    assert abs(count - PEOPLE) < 6 * both.query(COUNT).stderr_rows[0][0]


def test_averages_of_a_random_sample_may_stand_in_and_those_of_others_not(folder: Path) -> None:
    mean = session(folder, "one", "random", combine=True).query(MEAN)
    assert {each["release"] for each in mean.provenance["combined"]} == {"one", "random"}
    alone = session(folder, "one", "unknown", combine=True).query(MEAN)
    assert (alone.provenance["routed"]["chosen"], alone.provenance["routed"]["left_out"]) == (
        "one",
        ["unknown"],
    )
    share = "SELECT COUNT(*) / SUM(COUNT(*)) OVER () FROM customer GROUP BY sex"
    assert session(folder, "one", "random").query(share).provenance["routed"]["left_out"] == ["random"]


def test_everybody_s_reports_are_an_alternative(folder: Path) -> None:
    routed = session(folder, "one", "all").query(COUNT)
    assert routed.provenance["routed"]["chosen"] == "all"
    assert routed.provenance["routed"]["left_out"] == []
    assert "combined" in session(folder, "one", "all", combine=True).query(BY_SEX).provenance


def test_one_that_alone_can_answer_does_and_two_of_unknown_people_do_not(folder: Path) -> None:
    assert session(folder, "one", "unknown").query("SELECT COUNT(*) FROM unknown.customer").scalar() == ASKED
    with pytest.raises(UnknownName, match="each for those who reported to it alone"):
        session(folder, "random", "unknown").query(COUNT)
    assert session(folder, "random", "unknown").query("SELECT DISTINCT sex FROM customer").rows


@pytest.mark.parametrize("combine", [False, True])
def test_the_promise_of_all_open_releases_is_told_not_that_of_those_that_answer(
    folder: Path, combine: bool
) -> None:
    def told(*names: str, sql: str = BY_SEX) -> str:
        provenance = session(folder, *names, combine=combine).query(sql).provenance
        told = provenance if "combined" in provenance else provenance["routed"]
        return str(told["all_together"]["epsilon"])

    assert told("one", "two") == "4"
    assert told("one", "two", sql="SELECT COUNT(*) FROM one.customer") == "4"
    assert told("one", "unknown") == "10"
    assert told("one", "two", "unknown", "all") == "20"
    assert told("one", "one") == "2", "one draw, opened twice"


def test_what_participation_may_say(folder: Path) -> None:
    central, unknown = (session(folder, name).releases[0].meta for name in ("one", "unknown"))
    assert stands_for_everybody(central, Reads.TOTALS)
    assert not stands_for_everybody(unknown, Reads.AVERAGES), "nothing said is unknown"
    text = (folder / "all.yaml").read_text().replace("participation: all", "participation: most")
    (folder / "wrong.yaml").write_text(text)
    with pytest.raises(CatalogError, match="participation"):
        dpsql.collection_plan(folder / "wrong.yaml", folder / "wrong.json", people=10)
