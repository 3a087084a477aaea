"""`dpsql start` goes from a folder to a release by few answers, and on from wherever somebody stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpsql
from dpsql.catalog import load_catalog
from dpsql.examples.retail import make_star, write_star
from tests.command import dpsql_command

pytestmark = pytest.mark.usefixtures("publishes")
QUESTIONS = """SELECT region, COUNT(*) FROM sales JOIN customer USING (customer_id) GROUP BY region;
SELECT AVG(amount) FROM sales;
SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE age < 40;
"""
DRAFT = ["", "", "", "4", "1", "", "800 3000 40 amount=43"]
"""Where the catalog goes, whose privacy, which tables are lists of things, the most, what is spent, whether noisy
numbers may choose, and guesses; an empty line takes the proposal."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_star(tmp_path / "data", make_star(7, 800, 40))
    (tmp_path / "questions.sql").write_text(QUESTIONS)
    return tmp_path


def start(folder: Path, *answers: str) -> tuple[int, str]:
    words = ["start", "data", "questions.sql", "--no-page"]
    done = dpsql_command(*words, cwd=folder, text="\n".join([*answers, ""]))
    return done.returncode, done.stderr


def test_a_folder_becomes_a_release_that_answers_the_questions(folder: Path) -> None:
    code, told = start(folder, *DRAFT, "o", "r", "y")
    assert code == 0, told
    for step in (
        "dpsql init data -o data.yaml",
        "dpsql confirm data.yaml",
        "dpsql plan data.yaml",
        "dpsql publish",
    ):
        assert f"$ {step}" in told
    assert "lists of things, not of people" in told and "product: " in told
    catalog = load_catalog(folder / "data.yaml")
    guess = catalog.tables["sales"].guess
    assert not catalog.public_tables and guess is not None and guess.means == {"amount": 40}
    result = dpsql.query(QUESTIONS.split(";")[0], release=folder / "data.dpsql")
    assert len(result.rows) >= 4 and result.noisy
    assert "dpsql explore data.dpsql" in told
    code, told = start(folder, "")  # again: nothing is asked, drawn or spent
    assert code == 0 and "$ dpsql" not in told
    budget = dpsql_command("budget", "data.yaml", "--json", cwd=folder).stdout
    assert budget.count('"label"') == 1


@pytest.mark.slow
def test_it_goes_on_where_somebody_stopped(folder: Path) -> None:
    code, told = start(folder, *DRAFT, "o", "l")
    assert code == 0 and "run the same command again" in told
    code, told = start(folder, "", "r", "n")
    assert code == 0 and "$ dpsql init" not in told and "nothing was spent" in told
    assert not (folder / "data.dpsql").exists()
    code, told = start(folder, "", "y")
    assert code == 0 and "$ dpsql confirm" not in told
    assert (folder / "data.dpsql").exists()
