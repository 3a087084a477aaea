"""Rows whose key to the privacy unit is NULL: every answer about their table says that they are in none."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsql.noise import ZeroNoise
from tests import two_facts_star, userlevel_star
from tests.people_star import make_people
from tests.releases import published

pytestmark = pytest.mark.usefixtures("publishes")

SAYS = "{} is NULL have no owner and are not counted; their number is unknown"


def people(folder: Path) -> tuple[Path, str, str]:
    return make_people(folder), "sales", "{id: customer}, max_ids: 3"


def shop(folder: Path) -> tuple[Path, str, str]:
    return userlevel_star.write_star(folder, *userlevel_star.uneven_rows(200, 3)), "sales", "{id: customer}"


def desk(folder: Path) -> tuple[Path, str, str]:
    return two_facts_star.write_star(folder, 300, 1), "loans", "{id: reader}"


@pytest.mark.parametrize("star", [people, shop, desk])
def test_every_answer_about_the_table_says_so(star: object, tmp_path: Path) -> None:
    catalog, table, key = star(tmp_path)  # type: ignore[operator]
    target = key.partition(": ")[2].partition("}")[0]
    nullable = key.replace(f"id: {target}", f"id: {{references: {target}, nullable: true}}")
    catalog.write_text(catalog.read_text().replace(key, nullable, 1))
    answers, says = published(catalog, ZeroNoise()), SAYS.format(f"{table}.id")
    measure = "days" if table == "loans" else "amount"
    for value in ("COUNT(*)", f"SUM({measure})", f"AVG({measure})", f"COUNT(*) / 2 + SUM({measure})"):
        result = answers.query(f"SELECT {value} FROM {table}")
        assert any(says in flag for flag in result.flags), value
        assert sum(says in note for note in result.notes) == 1


def test_a_key_that_is_never_null_has_no_flag(tmp_path: Path) -> None:
    answers = published(make_people(tmp_path), ZeroNoise())
    assert not any("no owner" in note for note in answers.query("SELECT COUNT(*) FROM sales").notes)


def test_people_are_told_nothing(tmp_path: Path) -> None:
    catalog = make_people(tmp_path)
    text = catalog.read_text().replace("{id: customer}", "{id: {references: customer, nullable: true}}")
    catalog.write_text(text)
    answers = published(catalog, ZeroNoise())
    assert any("no owner" in flag for flag in answers.query("SELECT COUNT(*) FROM returns").flags)
    assert not any("no owner" in note for note in answers.query("SELECT COUNT(DISTINCT id) FROM sales").notes)
