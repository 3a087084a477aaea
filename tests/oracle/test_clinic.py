"""A release without noise of three facts over snowflakes with keys that are NULL or dangle equals plain DuckDB."""

from __future__ import annotations

import pytest

from benchmarks.answers.clinic import made, plain, publish
from benchmarks.answers.measure import ask
from benchmarks.answers.statements import FORMS, Maker, Statement
from dpsql.errors import Error, NotSupportedError, NoViewError
from tests.releases import Twins


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    rows = made(3)
    return publish(tmp_path_factory.mktemp("clinic") / "clinic", rows), plain(rows)


def right(clinic: Twins, text: str, keys: int = 0, dialect: str = "",
          plainly: str = "") -> None:  # fmt: skip
    assert ask(Statement("", text, keys, dialect, plainly), *clinic) == ("right", "")


CHAIN = "doctor d ON v.doctor_id = d.doctor_id JOIN ward w ON d.ward_id = w.ward_id"
HOPS = f"{CHAIN} JOIN hospital h ON w.hospital_id = h.hospital_id"
INNER = CHAIN.replace(" ON v.doctor_id = d.doctor_id", "")
LEFT = HOPS.replace("JOIN", "LEFT JOIN")


@pytest.mark.parametrize("text", [
    f"SELECT COUNT(*), SUM(v.minutes) FROM visit v JOIN {CHAIN}",
    f"SELECT COUNT(*), SUM(v.minutes) FROM visit v JOIN {HOPS}",
    "SELECT COUNT(*) FROM visit v, doctor d, ward w WHERE v.doctor_id = d.doctor_id AND d.ward_id = w.ward_id",
    f"SELECT COUNT(*) FROM visit v LEFT JOIN {LEFT} WHERE w.ward_id IS NULL",
    f"SELECT COUNT(*) FROM visit v LEFT JOIN {LEFT} WHERE h.hospital_id IS NOT NULL OR v.reason = 'cold'",
    "SELECT COUNT(*) FROM visit WHERE doctor_id IN (SELECT doctor_id FROM doctor JOIN ward USING (ward_id))",
    "SELECT COUNT(*) FROM visit WHERE doctor_id IN (SELECT doctor_id FROM doctor"
    " WHERE ward_id IN (SELECT ward_id FROM ward))",
    f"SELECT COUNT(*) FROM visit v WHERE EXISTS (SELECT 1 FROM {INNER} WHERE d.doctor_id = v.doctor_id)",
    f"SELECT COUNT(*) FROM visit v WHERE NOT EXISTS (SELECT 1 FROM {INNER} WHERE d.doctor_id = v.doctor_id)",
    "SELECT COUNT(*) FROM visit JOIN patient USING (patient_id) JOIN home USING (home_id)",
    "SELECT COUNT(*) FROM stay JOIN ward USING (ward_id) JOIN hospital USING (hospital_id)",
])  # fmt: skip
def test_an_inner_join_of_any_hop_leaves_out_rows_without_the_partner(clinic: Twins, text: str) -> None:
    right(clinic, text)


def test_a_join_is_refused_where_no_axis_tells_who_has_the_partner(clinic: Twins) -> None:
    with pytest.raises(NoViewError, match="the join along doctor_id"):
        clinic[0].query(
            "SELECT age, COUNT(*) FROM visit JOIN patient USING (patient_id) JOIN doctor USING (doctor_id) GROUP BY 1"
        )
    text = "SELECT rooms, COUNT(*) FROM visit JOIN patient USING (patient_id) LEFT JOIN home USING (home_id) GROUP BY 1"
    right(clinic, text, 1)  # a view that has the ages too says who has a patient


@pytest.mark.parametrize("text", [
    "SELECT COUNT(*), COUNT(cost), SUM(cost) FROM visit WHERE cost IS NOT NULL",
    "SELECT COUNT(*), COUNT(cost) FROM visit WHERE NOT cost IS NOT NULL",
    "SELECT COUNT(*) FILTER (WHERE cost IS NULL), SUM(CASE WHEN cost IS NULL THEN 2 ELSE 1 END) FROM visit",
    "SELECT SUM(COALESCE(cost, 3)), AVG(COALESCE(cost, 3)), SUM(COALESCE(cost, 0)) FROM visit",
    "SELECT SUM(CAST(paid AS INT)), AVG(paid::INT), SUM(paid) FROM bill",
    "SELECT COUNT(*) FROM visit v, doctor d WHERE (v.doctor_id = d.doctor_id AND specialty = 'eye')"
    " OR (specialty = 'skin' AND d.doctor_id = v.doctor_id)",
])  # fmt: skip
def test_nulls_of_a_measure_truths_and_joins_in_each_branch_of_an_or(clinic: Twins, text: str) -> None:
    right(clinic, text)


SETS = "FROM visit v JOIN patient p ON v.patient_id = p.patient_id GROUP BY"


@pytest.mark.parametrize("text", [
    f"SELECT region, GROUPING(region), COUNT(*) FILTER (WHERE region = 'north') {SETS} ROLLUP (region)",
    f"SELECT region, GROUPING(region), SUM(minutes) FILTER (WHERE region <> 'east') * 2 {SETS} CUBE (region)",
    f"SELECT p.region, GROUPING(region), AVG(minutes) FILTER (WHERE region = 'west')"
    f" {SETS} GROUPING SETS ((p.region), ())",
    f"SELECT age > 30 AS a, GROUPING(age > 30), COUNT(*) {SETS} ROLLUP (age > 30)",
    f"SELECT region AS r, GROUPING(region) AS g, COUNT(*) {SETS} ROLLUP (region) HAVING GROUPING(region) = 1",
    f"SELECT region AS r, GROUPING(region) AS g, COUNT(*) {SETS} ROLLUP (region)"
    " ORDER BY GROUPING(region) DESC, COUNT(*)",
    f"SELECT region AS r, GROUPING(region) AS g, COUNT(*) {SETS} region",
])  # fmt: skip
def test_conditions_of_an_aggregate_stay_in_its_subtotals(clinic: Twins, text: str) -> None:
    right(clinic, text, 2)


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


@pytest.mark.parametrize(("text", "keys"), [
    ("SELECT reason, COUNT(*) FROM visit GROUP BY 1", 1),
    ("SELECT COUNT(*), SUM(minutes) FROM visit WHERE reason <> 'cold'", 0),
    ("SELECT COUNT(*) FROM visit WHERE reason NOT IN ('cold', 'check')", 0),
    ("SELECT COUNT(*) FROM visit WHERE reason IS NULL", 0),
    ("SELECT COUNT(*) FROM visit WHERE reason = '(other)'", 0),
    ("SELECT paid, COUNT(*) FROM bill GROUP BY 1", 1),
])  # fmt: skip
def test_texts_outside_of_the_domain_are_a_group_apart_from_null(clinic: Twins, text: str, keys: int) -> None:
    right(clinic, text, keys)


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


@pytest.mark.parametrize("text", [
    "SELECT * FROM doctor", "SELECT specialty, grade FROM doctor WHERE grade > 2",
    "SELECT COUNT(*), AVG(grade) FROM doctor",
    "SELECT d.*, w.ward FROM doctor d JOIN ward w USING (ward_id)", "SELECT COUNT(*) FROM (SELECT * FROM doctor) AS t",
    "SELECT specialty, COUNT(*) FROM doctor GROUP BY 1 HAVING COUNT(*) > 3",
])  # fmt: skip
def test_rows_of_a_public_table_are_listed(clinic: Twins, text: str) -> None:
    got, want = clinic[0].query(text).rows, clinic[1].execute(text).fetchall()
    assert sorted(map(repr, got)) == sorted(map(repr, want))


REFUSED = (
    "SELECT * FROM visit", "SELECT * FROM patient", "SELECT age FROM patient WHERE age > 3",
    "SELECT * FROM home LIMIT 5",
    "SELECT COUNT(*) FROM patient", "SELECT region, COUNT(*) FROM patient GROUP BY 1",
    "SELECT MAX(minutes) FROM visit", "SELECT MEDIAN(cost) FROM visit", "SELECT COUNT(DISTINCT cost) FROM visit",
    "SELECT patient_id, COUNT(*) FROM visit GROUP BY 1", "SELECT cost, COUNT(*) FROM visit GROUP BY 1",
    "SELECT seen_on, rooms, COUNT(*) FROM visit JOIN patient USING (patient_id) JOIN home USING (home_id)"
    " GROUP BY 1, 2",
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_a_refusal_shows_is_answered(clinic: Twins, text: str) -> None:
    with pytest.raises(Error) as refused:
        clinic[0].query(text)
    assert clinic[0].query(refused.value.nearest).rows


@pytest.mark.parametrize("form", FORMS)
def test_random_statements_of_every_form(clinic: Twins, form: str) -> None:
    maker = Maker(11)
    for statement in [getattr(maker, f"_{form}")() for _ in range(4)]:
        assert ask(statement, *clinic)[0] in ("right", "refused"), statement.text


DANGLING = "visit.doctor_id: a key that no doctor has counts as NULL"
UNMEASURED = (
    "visit.minutes: values beyond its bounds count as the nearest bound; their number was not measured"
)


@pytest.mark.parametrize("text", [
    *(f"SELECT COUNT(*) FROM visit WHERE {condition}" for condition in (
        "doctor_id <> 3", "doctor_id NOT IN (3, 4)", "doctor_id > 3", "NOT doctor_id = 3", "doctor_id = 900",
        "doctor_id IN (3, 900)", "doctor_id BETWEEN 3 AND 1000", "doctor_id % 2 = 0",
        "doctor_id <> 3 OR reason = 'cold'", "doctor_id IS NOT DISTINCT FROM 900", "COALESCE(doctor_id, 3) > 4",
        "CAST(doctor_id AS VARCHAR) LIKE '9%'",
        "doctor_id <> 3 AND doctor_id <> 5",
    )),
    "SELECT COUNT(*) FROM visit LEFT JOIN doctor USING (doctor_id) WHERE doctor_id > 3",
    "SELECT COUNT(*) FILTER (WHERE doctor_id <> 3) FROM visit",
    "SELECT SUM(CASE WHEN doctor_id > 3 THEN minutes END) FROM visit",
    "SELECT SUM(doctor_id) FROM visit",
    "SELECT doctor_id, COUNT(*) FROM visit GROUP BY 1",
    "SELECT doctor_id = 3, COUNT(*) FROM visit GROUP BY 1",
    "SELECT doctor_id > 3, SUM(minutes) FROM visit GROUP BY 1",
    "SELECT reason, COUNT(*) FROM visit WHERE doctor_id > 3 GROUP BY 1",
    "SELECT COUNT(DISTINCT doctor_id) FROM visit", "SELECT MAX(doctor_id) FROM visit",
    "SELECT COUNT(*), MAX(doctor_id) FROM visit", "SELECT DISTINCT doctor_id FROM visit",
])  # fmt: skip
def test_a_key_that_names_no_row_is_wrong_by_a_note_alone(clinic: Twins, text: str) -> None:
    assert DANGLING in clinic[0].query(text).flags
    assert ask(Statement("", text), *clinic)[0] == "wrong", "no note is needed"


@pytest.mark.parametrize("text", [
    "SELECT COUNT(*) FROM visit WHERE doctor_id IS NULL", "SELECT COUNT(*) FROM visit WHERE doctor_id IS NOT NULL",
    "SELECT COUNT(doctor_id) FROM visit",
    "SELECT COUNT(*) FROM visit WHERE doctor_id NOT IN (SELECT doctor_id FROM doctor WHERE grade > 2)",
])  # fmt: skip
def test_nulls_of_a_key_are_refused(clinic: Twins, text: str) -> None:
    with pytest.raises(NotSupportedError, match="NULLs of doctor_id and keys that find no doctor"):
        clinic[0].query(text)


@pytest.mark.parametrize(("text", "keys"), [
    *((f"SELECT COUNT(*), SUM(minutes) FROM visit WHERE {condition}", 0) for condition in (
        "doctor_id = 3", "doctor_id IN (3, 4)", "NOT (doctor_id = 3 OR TRUE)", "doctor_id = 3 OR reason = 'cold'",
        "(doctor_id = 3) IS NOT TRUE", "doctor_id IN (3, 4, 5) AND doctor_id > 3",
        "doctor_id IN (SELECT doctor_id FROM doctor WHERE grade > 2)", "reason <> 'cold'",
    )),
    ("SELECT doctor_id, COUNT(*) FROM visit WHERE doctor_id IN (3, 4) GROUP BY 1", 1),
    ("SELECT COUNT(*) FROM visit JOIN doctor USING (doctor_id) WHERE doctor_id > 3", 0),
    ("SELECT COUNT(*) FROM visit v JOIN doctor d ON v.doctor_id = d.doctor_id WHERE v.doctor_id <> 3", 0),
    ("SELECT COUNT(*) FROM visit v LEFT JOIN doctor d ON v.doctor_id = d.doctor_id WHERE d.doctor_id <> 3", 0),
    ("SELECT d.doctor_id, COUNT(*) FROM visit v JOIN doctor d ON v.doctor_id = d.doctor_id GROUP BY 1", 1),
    ("SELECT COUNT(*) FROM bill WHERE doctor_id <> 3", 0),
    ("SELECT doctor_id, COUNT(*) FROM bill GROUP BY 1", 1),
    ("SELECT COUNT(DISTINCT doctor_id), MAX(doctor_id) FROM bill", 0),
    ("SELECT DISTINCT doctor_id FROM bill", 1), ("SELECT DISTINCT doctor_id FROM doctor", 1),
    ("SELECT COUNT(DISTINCT doctor_id) FROM doctor", 0), ("SELECT COUNT(*) FROM doctor WHERE ward_id <> 3", 0),
    ("SELECT COUNT(DISTINCT paid) FROM bill", 0),
])  # fmt: skip
def test_a_key_that_names_a_row_needs_no_note(clinic: Twins, text: str, keys: int) -> None:
    right(clinic, text, keys)
    flags = clinic[0].query(text).flags
    assert flags == ((UNMEASURED,) if "SUM(minutes)" in text else ())


@pytest.mark.parametrize("text", [
    "SELECT COUNT(DISTINCT region) FROM patient", "SELECT COUNT(DISTINCT region), COUNT(*) FROM visit"
    " JOIN patient USING (patient_id)", "SELECT MAX(region) FROM patient",
])  # fmt: skip
def test_what_the_catalog_counts_is_of_its_domain(clinic: Twins, text: str) -> None:
    note = "patient.region: values outside the catalog's domain are left out"
    assert note in clinic[0].query(text).flags
    listed = clinic[0].query("SELECT DISTINCT region FROM patient")
    assert note in listed.notes and not listed.flags
