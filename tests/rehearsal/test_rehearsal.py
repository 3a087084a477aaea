"""Made-up stars whose answers are judged: six of fixed seeds, and in `make slow` many new ones."""

from __future__ import annotations

import datetime
from functools import reduce
from importlib import import_module
from pathlib import Path

import duckdb
import pytest

from tests.rehearsal import planted
from tests.rehearsal.claims import false_claims
from tests.rehearsal.differences import DIFFERENCES, KNOWN, NOBODY, OTHER, difference_of
from tests.rehearsal.generator import Knobs, drawn_knobs, generate
from tests.rehearsal.judge import FAILS, Verdict, folded, judge, truths
from tests.rehearsal.planted import DEFECTS, Defect
from tests.rehearsal.questions import TEMPLATES, Question, ask
from tests.rehearsal.run import Rehearsal, rehearse
from tests.thinned import by_default

QUESTIONS = 5
"""Kinds of each star that the default suite asks: eight took 84 CPU s for the six."""
FIXED = {
    "rows": (1, Knobs(people=900, level="row", delta="0", null=0.1)),
    "rows, stamps": (2, Knobs(people=700, level="row", stamps=True, law="poisson", signed=True, second=False)),
    "two paths": (3, Knobs(people=1_500, homes=True, second=False, law="ones")),
    "a fact under a fact": (4, Knobs(people=1_200, child=True, second=False, max_ids="3", law="ones")),
    "returns": (5, Knobs(people=1_500, signed=True, second=False, delta="0", law="poisson")),
    "nobody's rows": (
        6, Knobs(people=1_500, nobody=0.2, broken=0.02, snowflake=True, second=False, max_ids="3", law="ones"),
    ),
}  # fmt: skip


def failures(seed: int, knobs: Knobs, rehearsal: Rehearsal) -> list[Verdict]:
    """Verdicts that fail and that the page does not state."""
    return [
        verdict
        for verdict in rehearse(seed, knobs, rehearsal)
        if verdict.verdict in FAILS and difference_of(verdict) is None
    ]


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("star", by_default(FIXED, 1))
def test_a_loud_star_of_a_fixed_seed(star: str, publishes: None) -> None:
    seed, knobs = FIXED[star]
    assert failures(seed, knobs, Rehearsal(questions=QUESTIONS)) == []


def stars(count: int, way: str) -> list[object]:
    """So many new seeds, those of today."""
    first = int(datetime.datetime.now(datetime.UTC).strftime("%Y%m%d")) * 1_000
    return [pytest.param(first + i, way, marks=pytest.mark.slow) for i in range(count)]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("seed", "way"), [*stars(120, "loud"), *stars(40, "quiet")])
def test_new_stars(seed: int, way: str, publishes: None) -> None:
    """A cell is a miss when it still is one in sixty fresh releases."""
    knobs, releases = drawn_knobs(seed), 4 if way == "loud" else 16
    suspects = failures(seed, knobs, Rehearsal(way, releases, questions=18))
    if suspects:
        kinds = frozenset(verdict.kind for verdict in suspects)
        suspects = failures(seed, knobs, Rehearsal(way, 60, 18, kinds, fresh=True))
    assert suspects == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("miss", KNOWN, ids=lambda miss: miss.name)
def test_known_misses(miss, publishes: None) -> None:
    """An entry that is mended fails here: remove it."""
    kinds = frozenset({miss.kind})
    found = failures(miss.seed, drawn_knobs(miss.seed), Rehearsal(questions=miss.questions, kinds=kinds))
    assert (miss.kind, miss.column) in {(verdict.kind, verdict.column) for verdict in found}


def test_differences_stand_on_the_page() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "sql.md").read_text().split())
    for sentence in (NOBODY, OTHER, *(difference.sentence for difference in DIFFERENCES)):
        assert sentence in page
    assert len(DIFFERENCES) <= 2 and len(KNOWN) <= 2, "the lists may only shrink"


def test_templates_run_on_every_star(tmp_path: Path) -> None:
    """DuckDB answers each statement, and a seed gives the same star and the same statements again."""
    knobs = Knobs(people=60, child=True, snowflake=True, homes=True, signed=True, stamps=True, broken=0.02)
    star = generate(1, knobs)
    star.write(tmp_path)
    with star.exact(tmp_path) as database:
        questions = ask(star, database, 1)
        assert questions == ask(star, database, 1)
        assert len(TEMPLATES) >= 60 and {question.kind for question in questions} >= TEMPLATES.keys() - {
            "by_two"
        }
        for question in questions:
            assert truths(database, question) or question.kind in ("nulls", "having")
            columns = database.execute(question.sql).description
            assert len(columns) == question.keys + len(question.values), question.kind


class FakeResult:
    """One release's answer, as the judge reads it."""

    columns = ("region", "n")
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __init__(self, rows, low, high, *, noisy=(1,), gaps=()) -> None:
        self.rows, self.noisy, self.undefined = rows, noisy, {}
        self._ends, self._gaps = (low, high), dict.fromkeys(gaps, "why")
        self.stderr_rows = tuple((None, 1.0) for _ in rows)

    def interval_rows(self, level):
        return self._ends

    def gaps(self):
        return self._gaps


QUESTION = Question("by", "SELECT region, COUNT(*) AS n FROM t GROUP BY region", "n", 1)


def verdicts(exact, value, low, high, letter="n", **how):
    question = QUESTION._replace(values=letter)
    result = FakeResult((("north", value),), ((None, low),), ((None, high),), **how)
    return {verdict.verdict for verdict in judge(question, exact, [result] * 4)}


@pytest.mark.parametrize(("found", "expected"), [
    (verdicts({("north",): (10.0,)}, 11.0, 9.0, 13.0), "ok"),
    (verdicts({("north",): (10.0,)}, 20.0, 18.0, 22.0), "cell"),
    (verdicts({("north",): (10.0,)}, 10.5, None, None, noisy=()), "exact-wrong"),
    (verdicts({("north",): (10.0,)}, 10.5, None, None), "no-reason"),
    (verdicts({("north",): (10.0,)}, 10.5, None, None, gaps=("n",)), "ok"),
    (verdicts({("north",): (10.0,)}, 10.5, 10.5, 10.5), "zero-width"),
    (verdicts({("north",): (0.5,)}, 0.5, -0.1, 0.9, letter="p"), "impossible"),
    (verdicts({("north",): (10.0,), ("east",): (4.0,)}, 10.0, 9.0, 11.0), "missing"),
    (verdicts({}, 5.0, 4.0, 6.0), "ghost"),
])  # fmt: skip
def test_the_judge(found: set[str], expected: str) -> None:
    assert expected in found
    assert (found == {"ok"}) == (expected == "ok")


def test_claims_are_compared_with_the_rows() -> None:
    database = duckdb.connect()
    database.execute("CREATE TABLE visit AS SELECT unnest([1, 1, 1, 1, 2, 3]) AS person_id")
    beyond = "visit: about {} +- 1 rows (9% of all) of up to 4 rows a unit lie beyond max_ids (1); .."
    farther = "visit: about {} +- 1 units own more than 3 rows, of which 1 count (max_ids), so .."
    assert list(false_claims((beyond.format(3),), database)) == []
    assert list(false_claims((beyond.format(9),), database)) == [(beyond.format(9), 3.0)]
    assert list(false_claims((farther.format(1),), database)) == []
    assert list(false_claims((farther.format(9),), database)) == [(farther.format(9), 1.0)]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_has_a_seam_and_questions(defect: Defect) -> None:
    *owner, last = defect.seam[1].split(".")
    assert last in vars(reduce(getattr, owner, import_module(defect.seam[0])))
    assert defect.kinds <= TEMPLATES.keys()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", by_default([7_000, 7_001], 1))
def test_a_public_table_on_two_paths_lists_its_rows(seed: int, publishes: None) -> None:
    """On stars that were not made for it; the star that was is in `tests/oracle/test_catalog_lists.py`."""
    defect = next(each for each in DEFECTS if each.name == "another table's axis")
    assert not planted.verdicts(defect, seed, broken=False)
    assert planted.verdicts(defect, seed, broken=True)


def test_unlisted_values_count_as_other() -> None:
    result = FakeResult((("north", 1.0), ("(other)", 5.0)), ((None, 0.0),) * 2, ((None, 9.0),) * 2)
    exact = {("north",): (1.0,), ("rare",): (2.0,), (None,): (3.0,)}
    assert folded(exact, QUESTION, [result]) == {("north",): (1.0,), ("(other)",): (5.0,)}
    (several,) = folded(exact, QUESTION._replace(values="a"), [result])[("(other)",)]
    assert several is not None and several != several  # no case


def test_rows_are_written_as_they_were_drawn(tmp_path: Path) -> None:
    star = generate(7, Knobs(people=50, nobody=0.5))
    star.write(tmp_path)
    rows, somebodys = duckdb.sql(
        f"SELECT COUNT(*), COUNT(person_id) FROM '{tmp_path}/visit.parquet'"
    ).fetchall()[0]
    with star.exact(tmp_path) as database:
        assert database.execute("SELECT COUNT(*) FROM visit").fetchall() == [(somebodys,)]
    assert somebodys < rows
