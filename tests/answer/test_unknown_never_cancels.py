"""Rows that a release cannot know of: hidden by its noise, or of nobody.

Where noise hides how many rows there are, shares, averages and quantiles reach as far as values allow. Of rows whose
key to the privacy unit is NULL every answer about their table says that they are in none.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ZeroNoise
from tests import people_star, two_facts_star, userlevel_star
from tests.people_star import make_people
from tests.releases import published, seeded
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")


def desk(folder: Path) -> Path:
    return two_facts_star.write_star(folder, 600, 1, epsilon="0.05")


def shop(folder: Path) -> Path:
    return userlevel_star.write_star(folder, *userlevel_star.uneven_rows(30, 3))


def people(folder: Path) -> Path:
    return people_star.make_people(folder, bound="auto", privacy="epsilon: 0.1, delta: 1e-6")


STARS: dict[Callable[[Path], Path], tuple[str, str, str, tuple[float, float], tuple[int, int]]] = {
    desk: ("loans", "kind", "days", (0, 60), (0, 3)),
    shop: ("sales", "day", "amount", (0, 100), (1, 12)),
    people: ("sales", "month", "amount", (0, 10), (0, 5)),
}
"""A star, its fact, an axis and a measure with their bounds."""


@pytest.fixture(scope="module", params=by_default(STARS, 1), ids=lambda star: star.__name__)
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple:
    """Answers of a release without an end, and what stands in the star."""
    catalog = request.param(tmp_path_factory.mktemp(request.param.__name__))
    return published(catalog, seeded(11)), *STARS[request.param]


def ends(answers: ReleaseEngine, sql: str) -> tuple[float | None, float | None]:
    low, high = answers.query(sql).interval_rows(0.95)
    return low[0][0], high[0][0]


def test_a_count_has_a_lower_end_alone(asked: tuple) -> None:
    answers, table, axis, *_ = asked
    low, high = ends(answers, f"SELECT COUNT(*) FROM {table}")
    result = answers.query(f"SELECT COUNT(*) FROM {table}")
    assert high is None and low is not None and low >= min(0, result.scalar())
    assert result.gaps() == {result.columns[0]: "too few people for the noise"}
    difference = f"COUNT(*) FILTER (WHERE {axis} = 1) - COUNT(*) FILTER (WHERE {axis} = 2)"
    assert ends(answers, f"SELECT {difference} FROM {table}") == (None, None), "either may have more"


def test_a_share_lies_between_0_and_1(asked: tuple) -> None:
    answers, table, axis, measure, *_ = asked
    share = f"COUNT(*) FILTER (WHERE {axis} = 2) * {{}} / COUNT(*)"
    for sql, whole in (
        (f"SELECT {share.format(1.0)} FROM {table}", 1),
        (f"SELECT {share.format(100)} FROM {table}", 100),
        (f"SELECT SUM({measure}) FILTER (WHERE {axis} = 2) * 1.0 / SUM({measure}) FROM {table}", 1),
        (f"SELECT AVG(CASE WHEN {axis} = 2 THEN 1.0 ELSE 0 END) FROM {table}", 1),
        (f"SELECT s FROM (SELECT {axis} AS g, n * 1.0 / SUM(n) OVER () AS s FROM (SELECT {axis}, COUNT(*) AS n "
         f"FROM {table} GROUP BY 1) AS t) AS u WHERE g = 2", 1),
    ):  # fmt: skip
        ((number,),) = answers.query(sql).rows
        if number is not None:
            assert ends(answers, sql) == (min(0, number), max(whole, number)), sql
    low, high = ends(answers, f"SELECT COUNT(*) * 1.0 / COUNT(*) FROM {table}")
    assert (low, high) == (1.0, 1.0), "a whole is known to be one"


def test_averages_and_quantiles_end_at_declared_bounds(asked: tuple) -> None:
    answers, table, axis, measure, of_measure, of_axis = asked
    shown = 0
    for sql, bounds in (
        (f"SELECT AVG({measure}) FROM {table}", of_measure),
        (f"SELECT AVG({axis}) FROM {table}", of_axis),
        (f"SELECT MEDIAN({axis}) FROM {table}", of_axis),
        (f"SELECT SUM(s) / SUM(n) FROM (SELECT {axis}, SUM({measure}) AS s, COUNT(*) AS n FROM {table} GROUP BY 1) g",
         of_measure),
    ):  # fmt: skip
        ((number,),) = answers.query(sql).rows
        if number is None:  # an average whose count may be 0
            continue
        shown += 1
        low, high = ends(answers, sql)
        assert (low, high) == pytest.approx((min(bounds[0], number), max(bounds[1], number)), abs=1e-6), sql
    assert shown >= 2


SAYS = "{} is NULL have no owner and are not counted; their number is unknown"


def of_people(folder: Path) -> tuple[Path, str, str]:
    return make_people(folder), "sales", "{id: customer}"


def of_sales(folder: Path) -> tuple[Path, str, str]:
    return userlevel_star.write_star(folder, *userlevel_star.uneven_rows(200, 3)), "sales", "{id: customer}"


def of_loans(folder: Path) -> tuple[Path, str, str]:
    return two_facts_star.write_star(folder, 300, 1), "loans", "{id: reader}"


@pytest.mark.parametrize("star", by_default([of_people, of_sales, of_loans], 1))
def test_every_answer_about_the_table_says_so(star: object, tmp_path: Path) -> None:
    catalog, table, key = star(tmp_path)  # type: ignore[operator]
    target = key.partition(": ")[2].partition("}")[0]
    nullable = key.replace(f"id: {target}", f"id: {{references: {target}, nullable: true}}")
    catalog.write_text(catalog.read_text().replace(key, nullable))
    answers, says = published(catalog, ZeroNoise()), SAYS.format(f"{table}.id")
    measure = "days" if table == "loans" else "amount"
    for value in ("COUNT(*)", f"SUM({measure})", f"AVG({measure})", f"COUNT(*) / 2 + SUM({measure})"):
        result = answers.query(f"SELECT {value} FROM {table}")
        assert any(says in flag for flag in result.flags), value
        assert sum(says in note for note in result.notes) == 1
    if star is of_people:
        assert any("no owner" in flag for flag in answers.query("SELECT COUNT(*) FROM returns").flags)
        people = answers.query("SELECT COUNT(DISTINCT id) FROM sales")
        assert not any("no owner" in note for note in people.notes), "people are told nothing"


def test_a_key_that_is_never_null_has_no_flag(tmp_path: Path) -> None:
    answers = published(make_people(tmp_path), ZeroNoise())
    assert not any("no owner" in note for note in answers.query("SELECT COUNT(*) FROM sales").notes)
