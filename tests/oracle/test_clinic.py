"""A release without noise of three facts over snowflakes with keys that are NULL or dangle equals plain DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.answers.clinic import made, plain, publish
from benchmarks.answers.measure import ask
from benchmarks.answers.statements import FORMS, Maker, Statement
from dpsql.errors import Error, NotSupportedError
from tests.releases import Twins
from tests.statements import sections
from tests.thinned import by_default


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    rows = made(3)
    return publish(tmp_path_factory.mktemp("clinic") / "clinic", rows), plain(rows)


def right(clinic: Twins, text: str, keys: int = 0, dialect: str = "",
          plainly: str = "") -> None:  # fmt: skip
    assert ask(Statement("", text, keys, dialect, plainly), *clinic) == ("right", "")


FILE = sections(Path(__file__).with_name("clinic.sql"))
RIGHT = (
    "an inner join of any hop leaves out rows without the partner",
    "nulls of a measure, truths, and joins in each branch of an OR",
    "conditions of an aggregate stay in its subtotals",
    "texts outside of the domain are a group apart from NULL",
    "a key that names a row needs no note",
)
"""Sections of statements that are right; where one has keys, their number stands above it."""


@pytest.mark.parametrize(
    ("name", "text", "keys"), [(name, text, int(keys or 0)) for name in RIGHT for text, keys in FILE[name]]
)
def test_answers_are_right(clinic: Twins, name: str, text: str, keys: int) -> None:
    right(clinic, text, keys)
    if name == "a key that names a row needs no note":
        assert clinic[0].query(text).flags == ((UNMEASURED,) if "SUM(minutes)" in text else ())


SETS = "FROM visit v JOIN patient p ON v.patient_id = p.patient_id GROUP BY"


def test_grouping_takes_an_alias_and_a_window_over_sets_is_refused(clinic: Twins) -> None:
    by_name = clinic[0].query(f"SELECT region AS r, GROUPING(r) AS g, COUNT(*) AS n {SETS} ROLLUP (r)").rows
    assert (
        by_name == clinic[0].query(f"SELECT region, GROUPING(region), COUNT(*) {SETS} ROLLUP (region)").rows
    )
    with pytest.raises(NotSupportedError, match="groups of all lists"):
        clinic[0].query(f"SELECT region, SUM(COUNT(*)) OVER () {SETS} ROLLUP (region)")


def test_catalog_answers_know_the_null_leaf(clinic: Twins) -> None:
    null = "MAX(CASE WHEN rooms IS NULL THEN 1 ELSE 0 END)"
    count = "COUNT(DISTINCT rooms)"
    text = f"SELECT {count}, {count} + {null}, MAX(COALESCE(rooms, 99)), MIN(rooms) FROM home"
    right(clinic, text)
    assert clinic[0].query(text).rows == ((6, 7, 99, 1),)


def test_groups_that_the_catalog_rules_out_are_not_shown(clinic: Twins) -> None:
    specialties = clinic[0].query(
        "SELECT specialty, COUNT(*) FROM bill JOIN doctor USING (doctor_id) GROUP BY 1"
    )
    assert None not in [key for key, _ in specialties.rows] and len(specialties.rows) == 4
    ages = clinic[0].query("SELECT age, COUNT(*) FROM visit JOIN patient USING (patient_id) GROUP BY 1")
    assert any("patient.age also contain values outside the catalog's domain" in note for note in ages.notes)


def test_asked_for_null_where_the_catalog_rules_it_out_an_answer_says_so(clinic: Twins) -> None:
    never = "the catalog declares patient.age never NULL"
    joined = "FROM visit JOIN patient USING (patient_id) WHERE age"
    for text in (f"SELECT COUNT(*) {joined} IS NULL", f"SELECT COUNT(*) {joined} IS NOT NULL"):
        assert any(never in note for note in clinic[0].query(text).notes)
    assert not any(never in note for note in clinic[0].query(f"SELECT COUNT(*) {joined} > 30").notes)
    reasons = clinic[0].query("SELECT COUNT(*) FROM visit WHERE reason IS NULL")
    assert not any("never NULL" in note for note in reasons.notes)


@pytest.mark.parametrize("text", [text for text, _ in FILE["listed"]])
def test_rows_of_a_public_table_are_listed(clinic: Twins, text: str) -> None:
    got, want = clinic[0].query(text).rows, clinic[1].execute(text).fetchall()
    assert sorted(map(repr, got)) == sorted(map(repr, want))


@pytest.mark.parametrize("text", [text for text, _ in FILE["refused"]])
def test_what_a_refusal_shows_is_answered(clinic: Twins, text: str) -> None:
    with pytest.raises(Error) as refused:
        clinic[0].query(text)
    assert clinic[0].query(refused.value.nearest).rows


@pytest.mark.parametrize("form", by_default(FORMS, 8))
def test_random_statements_of_every_form(clinic: Twins, form: str) -> None:
    maker = Maker(11)
    for statement in [getattr(maker, f"_{form}")() for _ in range(4)]:
        assert ask(statement, *clinic)[0] in ("right", "refused"), statement.text


DANGLING = "visit.doctor_id: a key that no doctor has counts as NULL"
UNMEASURED = (
    "visit.minutes: values beyond its bounds count as the nearest bound; their number was not measured"
)


@pytest.mark.parametrize("text", [text for text, _ in FILE["wrong by a note alone"]])
def test_a_key_that_names_no_row_is_wrong_by_a_note_alone(clinic: Twins, text: str) -> None:
    assert DANGLING in clinic[0].query(text).flags
    assert ask(Statement("", text), *clinic)[0] == "wrong", "no note is needed"


@pytest.mark.parametrize("text", [text for text, _ in FILE["nulls of a key"]])
def test_nulls_of_a_key_are_refused(clinic: Twins, text: str) -> None:
    with pytest.raises(NotSupportedError, match="NULLs of doctor_id and keys that find no doctor"):
        clinic[0].query(text)


@pytest.mark.parametrize("text", [text for text, _ in FILE["of the domain"]])
def test_what_the_catalog_counts_is_of_its_domain(clinic: Twins, text: str) -> None:
    note = "patient.region: values outside the catalog's domain are left out"
    assert note in clinic[0].query(text).flags
    listed = clinic[0].query("SELECT DISTINCT region FROM patient")
    assert note in listed.notes and not listed.flags
