"""Conditions that may hold for some values outside of the domain and not for others: intervals reach all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from benchmarks.answers import clinic
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import Noise, ZeroNoise
from dpsql.release import open_release
from tests.release_fixture import make_rows, raw_star, write_fixture
from tests.releases import plain_tables, published, seeded, write_catalog
from tests.statements import sections

pytestmark = pytest.mark.usefixtures("publishes")

CATALOG = """
privacy: {lineage: desk, cap: 9000, unit: person.id, epsilon: EPSILON}
tables:
  person: {role: dimension, key: id, private: true, columns: {age: {type: int, lower: 0, upper: 9}}}
  calls:
    role: fact
    max_ids: 1
    foreign_keys: {id: person}
    columns:
      place: {type: string, categories: [north, south], nullable: true}
      minutes: {type: int, lower: 0, upper: 20, measure: true}
      price: {type: decimal, scale: 2, lower: 0, upper: 20, out_of_domain: other, nullable: true}
      day: {type: date, lower: "2025-01-01", upper: "2025-03-31", out_of_domain: other}
      written: {type: string, categories: ["2025-01-01", "2025-02-01"]}
views:
  prices: {of: calls, axes: [{axis: calls.price, cuts: [0, 2, 8, 10, 20]}], measures: [count]}
  days: {of: calls, axes: [calls.day], measures: [count]}
  written: {of: calls, axes: [calls.written], measures: [count]}
  places: {of: calls, axes: [calls.place, person.age], measures: [count, calls.minutes]}
  people: {of: calls, axes: [calls.place], measures: [count, people]}
  weeks:
    of: calls
    axes: [{axis: calls.day, cuts: ["2025-01-01", "2025-01-20", "2025-02-12", "2025-03-03"]}]
    measures: [count, people]
"""
Star = tuple[ReleaseEngine, duckdb.DuckDBPyConnection]
FILE = sections(Path(__file__).with_name("unlisted_conditions.sql"))


def released(folder: Path, noise: Noise, epsilon: str, west: int) -> ReleaseEngine:
    tables = {
        "calls": (
            f"SELECT i AS id, CASE WHEN i % 11 = 0 THEN NULL WHEN i % 3 = 0 THEN 'north' "
            f"WHEN i % 5 < {west} THEN 'west' WHEN i % 7 = 0 AND {west} > 0 THEN 'forest' ELSE 'south' END AS place, "
            "i % 21 AS minutes, CASE WHEN i % 7 > 0 THEN (i % 3000) / 100 - 1 END::DECIMAL(9, 2) AS price, "
            "DATE '2024-12-01' + CAST(i % 150 AS INTEGER) AS day, "
            "CAST(DATE '2024-12-01' + CAST(i % 3 * 31 AS INTEGER) AS VARCHAR) AS written FROM range(2000) AS t(i)"
        ),
        "person": "SELECT i AS id, i % 10 AS age FROM range(2000) AS t(i)",
    }
    return published(write_catalog(folder, CATALOG, tables, EPSILON=epsilon), noise)


@pytest.fixture(scope="module")
def desk(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Star]:
    folder = tmp_path_factory.mktemp("desk")
    answerer = released(folder, ZeroNoise(), "4000", west=2)
    yield answerer, plain_tables(folder)
    answerer.release.close()


def outside(answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection, sql: str) -> list[object]:
    """Numbers outside of their intervals; groups are in one order, the domain's further ones last."""
    answer, wrong = answerer.query(sql), list[object]()
    low, high = answer.interval_rows()
    for row, below, above in zip(raw.execute(sql).fetchall(), low, high, strict=False):
        for value, bottom, top in zip(row, below, above, strict=True):
            if None not in (bottom, top) and not float(bottom) - 1e-3 <= float(value) <= float(top) + 1e-3:
                wrong.append((value, bottom, top))
    return wrong


@pytest.mark.parametrize("sql", [sql for sql, _ in FILE["open"]])
def test_intervals_reach_the_rows_that_may_be_meant(desk: Star, sql: str) -> None:
    assert outside(*desk, sql) == []
    assert any("unlisted values" in note for note in desk[0].query(sql).notes) or "MEDIAN" in sql


AGED = "sales JOIN customer USING (customer_id)"
SEEN = "visit JOIN patient USING (patient_id)"
GROUPED = [
    ("desk", "place", "calls", "place = 'west'"), ("desk", "place", "calls", "place LIKE '%st' OR place = 'north'"),
    ("desk", "place", "calls", "place > 'p'"), ("desk", "place", "calls", "place IN ('north', 'wset')"),
    ("desk", "place", "calls", "NOT (place < 'p')"), ("desk", "day", "calls", "day > '2025-06-01'"),
    ("desk", "day", "calls", "day < '2025-01-04'"), ("desk", "MONTH(day)", "calls", "MONTH(day) = 12"),
    ("desk", "price", "calls", "price > 20"), ("desk", "price", "calls", "price BETWEEN 21 AND 23 OR price < 0"),
    ("desk", "day", "calls", "day IN ('2024-12-05', '2025-01-05')"),
    ("desk", "CASE WHEN place = 'west' THEN 'w' ELSE 'o' END", "calls", "TRUE"),
    ("desk", "CASE WHEN place = 'west' THEN 'w' ELSE 'o' END", "calls", "place <> 'south'"),
    ("fixture", "age", AGED, "17 > age"), ("fixture", "age", AGED, "age NOT IN (18, 19)"),
    ("fixture", "age // 10", AGED, "age BETWEEN 40 AND 99"), ("fixture", "region", AGED, "age > 38"),
    ("clinic", "age", SEEN, "age > 70"), ("clinic", "age", SEEN, "NOT age <= 58"),
    ("clinic", "region", SEEN, "region LIKE 'a%'"), ("clinic", "reason", "visit", "reason IN ('cold', 'unheard')"),
]  # fmt: skip


@pytest.fixture(scope="module")
def stars(desk: Star, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Star]:
    """Releases without noise of a star made for it and of two that were not, each with its rows."""
    folder, rows, seen = tmp_path_factory.mktemp("stars"), make_rows(), clinic.made(3)
    fixture = ReleaseEngine(open_release(write_fixture(folder / "f.dpsql", rows)))
    visits = clinic.publish(folder / "clinic", seen), clinic.filled(clinic.TABLES, seen)
    return {"desk": desk, "fixture": (fixture, raw_star(rows)), "clinic": visits}


@pytest.mark.parametrize(("star", "key", "source", "condition"), GROUPED)
def test_rows_outside_of_the_domain_are_in_a_group(
    stars: dict[str, Star],
    star: str, key: str, source: str, condition: str,
) -> None:  # fmt: skip
    """`WHERE 17 > age GROUP BY age` had no group and no note, the sum over its groups an interval of width 0."""
    answerer, raw = stars[star]
    sql = f"SELECT {key} AS k, COUNT(*) AS n FROM {source} WHERE {condition} GROUP BY 1"
    answer, truth = answerer.query(sql), dict(raw.execute(sql).fetchall())
    rows = {row[0]: ends for row, *ends in zip(answer.rows, *answer.interval_rows(), strict=True)}
    for value in truth.keys() & rows.keys() - {None, "(other)"}:
        assert rows[value][0][1] - 0.1 <= truth[value] <= rows[value][1][1] + 0.1, value
    outside = sum(count for value, count in truth.items() if value not in rows)
    room = max((high[1] for value, (_, high) in rows.items() if value in (None, "(other)", "o")), default=0)
    assert outside <= room + 0.1
    (low,), (high,) = answerer.query(f"SELECT SUM(n) FROM ({sql}) AS t").interval_rows()
    assert low[0] - 0.1 <= sum(truth.values()) <= high[0] + 0.1
    assert outside == 0 or any("unlisted values" in note for note in answer.notes)


@pytest.mark.parametrize("condition", [
    "= 'nroth'", "= 'north'", "IN ('north', 'west')", "NOT IN ('north', 'west')", "<> 'west'", "LIKE '%st'", "> 'p'",
    "IS NOT NULL",
])  # fmt: skip
@pytest.mark.parametrize("form", ["{} HAVING place {}", "SELECT * FROM ({}) AS t WHERE (place) {}"])
def test_conditions_on_groups_say_which_texts_have_none(desk: Star, form: str, condition: str) -> None:
    """They were empty tables, or lacked groups, in silence."""
    sql = form.format("SELECT place, COUNT(*) AS n FROM calls GROUP BY place", condition)
    flags = [flag for flag in desk[0].query(sql).flags if "calls.place" in flag]
    if condition in ("= 'north'", "IS NOT NULL"):
        assert flags == []
    elif "LIKE" in condition or ">" in condition.replace("<>", ""):
        assert flags == ["a condition on calls.place takes all unlisted values for one, '(other)'"]
    else:
        near = "'nroth' (nearest: 'north')" if "nroth" in condition else "'west'"
        assert flags == [
            f"no group of calls.place is {near}; rows of unlisted values are in the group '(other)'"
        ]


@pytest.mark.parametrize("sql", [sql for sql, _ in FILE["decided"]])
def test_conditions_on_listed_texts_alone_are_decided(desk: Star, sql: str) -> None:
    answer = desk[0].query(sql)
    (low,), (high,) = answer.interval_rows()
    assert outside(*desk, sql) == [] and high[0] - low[0] < 1.0
    assert not any("unlisted values" in note for note in answer.notes)


def test_a_repeated_shape_keeps_its_flag(desk: Star) -> None:
    """From the third text on `<>` was answered without it."""
    sql = "SELECT COUNT(*) AS again FROM calls WHERE place <> '{}'"
    for text in ("west", "east", "wales", "york"):
        assert any(f"no value '{text}'" in flag for flag in desk[0].query(sql.format(text)).flags), text


def test_texts_outside_are_asked_for_by_their_group(desk: Star) -> None:
    answerer, raw = desk
    ((others,),) = raw.execute("SELECT COUNT(*) FROM calls WHERE place NOT IN ('north', 'south')").fetchall()
    answer = answerer.query("SELECT COUNT(*) FROM calls WHERE place = '(other)'")
    assert answer.scalar() == pytest.approx(others, abs=1e-3)
    assert not any("lists no value" in note for note in answer.notes)


def test_an_average_of_rows_that_are_perhaps_not_meant_is_null(desk: Star) -> None:
    """It was that of all unlisted texts, whichever of them was meant."""
    assert desk[0].query("SELECT AVG(minutes) FROM calls WHERE place = 'west'").scalar() is None
    answer = desk[0].query(
        "SELECT place, AVG(minutes) FROM calls WHERE place = 'north' OR LENGTH(place) = 6 GROUP BY 1"
    )
    assert {row[0]: row[1] is None for row in answer.rows if row[0] in ("north", "(other)")}["north"] is False
    assert all(row[1] is None for row in answer.rows if row[0] == "(other)")


@pytest.mark.parametrize("condition", [
    "place = 'west'", "place > 'p'", "place LIKE '%th'", "day > DATE '2025-02-11'", "day <= DATE '2025-02-11'",
])  # fmt: skip
def test_people_who_may_be_meant_are_in_the_interval(desk: Star, condition: str) -> None:
    sql = (
        f"SELECT COUNT(*) FROM person WHERE EXISTS (SELECT 1 FROM calls WHERE id = person.id AND {condition})"
    )
    assert outside(*desk, sql) == []
    (low,), (high,) = desk[0].query(sql).interval_rows()
    assert 0 < high[0] - low[0] < 1000


def test_noise_below_0_does_not_hide_that_there_may_be_rows(tmp_path: Path) -> None:
    """Where the mass of unlisted texts came out below 0, their share had an interval of 1e-12."""
    for seed in range(6):
        answerer = released(tmp_path / str(seed), seeded(seed), "2", west=0)
        other = answerer.query("SELECT COUNT(*) FROM calls WHERE place = '(other)'")
        half = other.interval_rows()[1][0][0] - other.scalar()
        for sql, rows in (
            ("SELECT COUNT(*) FROM calls WHERE place = 'west'", 1.0),
            ("SELECT AVG(CASE WHEN place = 'west' THEN 1.0 ELSE 0 END) FROM calls", 2000.0),
        ):
            (_,), (high,) = answerer.query(sql).interval_rows()
            assert high[0] * rows > 0.3 * half, (seed, sql)
        answerer.release.close()
        if other.scalar() < 0:
            return
    pytest.fail("no draw was below 0")


@pytest.mark.parametrize(("sql", "bounded"), [
    ("SELECT AVG(price) FROM calls", False),
    ("SELECT SUM(price) FROM calls WHERE price > 8", False),
    ("SELECT AVG(price) FROM calls WHERE price BETWEEN 2 AND 10", True),
    ("SELECT SUM(price) FILTER (WHERE price BETWEEN 2 AND 10) FROM calls", True),
    ("SELECT AVG(age) FROM calls JOIN person USING (id)", True),
    ("SELECT AVG(LENGTH(place)) FROM calls", False),
    ("SELECT AVG(LENGTH(place)) FROM calls WHERE place IN ('north', 'south')", True),
])  # fmt: skip
def test_sums_of_an_axis_have_no_ends_where_values_beyond_it_are_seen(
    desk: Star, sql: str, bounded: bool
) -> None:
    """AVG(price) was that of the prices within the bounds, under a note."""
    assert outside(*desk, sql) == []
    (low,), (high,) = desk[0].query(sql).interval_rows()
    assert (low[0] is not None, high[0] is not None) == (bounded, bounded)
