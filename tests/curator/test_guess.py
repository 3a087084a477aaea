"""Forecasts follow from the catalog and from public guesses in it alone, and leave out no term."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from dpsql.catalog import load_catalog, parse_catalog
from dpsql.catalog.tables import PublicGuess
from dpsql.central.central import publish_release
from dpsql.contributions.rehearsal import Guess, stated_guess
from dpsql.curator.confirm import confirm_tables, groups_of, open_marks
from dpsql.curator.draft import CuratorChoices, DraftWorkload, draft_from_source
from dpsql.curator.forecast import plan_catalog
from dpsql.errors import CatalogError
from dpsql.executor.engine import HALF
from dpsql.federation.session import open_session
from dpsql.interfaces.cli.draft import _design_lines
from dpsql.interfaces.cli.plan import plan_text
from tests.releases import seeded, write_tables
from tests.thinned import by_default

QUESTIONS = {
    "a library": (
        "(ARRAY['north', 'south', 'east'])[1 + row % 3] AS branch, row % 40 AS days, row % 29 / 2.0 AS fee",
        ["SELECT branch, COUNT(*) FROM rows GROUP BY branch", "SELECT SUM(fee), COUNT(*) FROM rows WHERE days < 10"],
    ),
    "a course": (
        "(ARRAY['a', 'b'])[1 + row % 2] AS module, row % 31 AS clicks",
        ["SELECT module, SUM(clicks) FROM rows GROUP BY module"],
    ),
    "visits": (
        "DATE '2024-01-01' + CAST(row % 366 AS INT) AS day, row % 55 AS minutes",
        ["SELECT COUNT(*) FROM rows WHERE day >= '2024-07-01'"],
    ),
}  # fmt: skip
GUESS = PublicGuess(units=60, rows=3000, most_rows=90)


def source(folder: Path, columns: str, people: int, each: int) -> Path:
    """People with as many rows each; values of columns come again after some hundreds of rows."""
    numbered = f"(SELECT range AS row FROM range({people * each}))"
    return write_tables(folder, {
        "people": f"SELECT range AS person_id FROM range({people})",
        "rows": f"SELECT row // {each} AS person_id, {columns} FROM {numbered}",
    })  # fmt: skip


def drafted(folder: Path, data: Path, questions: list[str], guess: PublicGuess | None) -> tuple[str, str]:
    """The text of a draft, and what is printed of its design."""
    choices = CuratorChoices(
        "people.person_id",
        frozenset(),
        "1",
        "4",
        data_dependent=False,
        guesses={} if guess is None else {"rows": guess},
    )
    made = draft_from_source(data, folder / "c.yaml", "c", lambda _: choices, DraftWorkload(questions))
    assert made.design is not None
    text = made.text.replace(str(data), "DATA")
    return text, "\n".join(_design_lines(made.design))


def confirmed(text: str, data: Path) -> str:
    marks = groups_of(open_marks(parse_catalog(text.replace("DATA", str(data)))))
    return confirm_tables(text.replace("DATA", str(data)), dict.fromkeys(marks, True))[0]


@pytest.mark.parametrize("name", by_default(QUESTIONS, 1))
def test_files_that_differ_in_all_counts_give_one_draft_and_one_forecast(tmp_path: Path, name: str):
    columns, questions = QUESTIONS[name]
    sides = []
    for people, each in ((700, 10), (900, 24)):
        folder = tmp_path / f"{people}"
        data = source(folder / "data", columns, people, each)
        text, printed = drafted(folder, data, questions, GUESS)
        sides.append(
            (text, printed, plan_text(plan_catalog(parse_catalog(confirmed(text, data)), questions)))
        )
    assert sides[0] == sides[1]
    assert "guess: {units: 60, rows: 3000, most_rows: 90}" in sides[0][0]
    assert "±" in sides[0][2]


def test_a_view_along_its_own_measure_is_rehearsed(tmp_path: Path):
    columns, _ = QUESTIONS["a library"]
    data = source(tmp_path / "data", columns, 60, 50)
    questions = ["SELECT SUM(fee) FROM rows WHERE fee < 6", "SELECT AVG(fee) FROM rows"]
    text, _ = drafted(tmp_path, data, questions, GUESS)
    report = plan_catalog(parse_catalog(confirmed(text, data)), questions)
    assert report.classes and all(query.refusal is None for query in report.queries)


@pytest.mark.parametrize("name", by_default(QUESTIONS, 1))
def test_without_a_guess_no_number_is_printed_at_user_level(tmp_path: Path, name: str):
    columns, questions = QUESTIONS[name]
    data = source(tmp_path / "data", columns, 300, 10)
    text, printed = drafted(tmp_path, data, questions, None)
    assert "guess:" not in text and "±" not in printed and "+-" not in printed
    report = plan_catalog(parse_catalog(confirmed(text, data)), questions)
    assert all(
        column.median is None and column.wants_guess == "rows" for q in report.queries for column in q.columns
    )
    answers, _, _ = plan_text(report).partition("the release:")
    assert not any("±" in line for line in answers.splitlines()[1:])
    assert "needs `guess: {units: .., rows: ..}` on rows in the catalog" in answers


@pytest.mark.slow
@pytest.mark.parametrize(("people", "each"), by_default([(1000, 4), (2000, 10), (1000, 2)], 1))
def test_rows_beyond_a_declared_bound_are_in_the_forecast(tmp_path: Path, people: int, each: int):
    columns, _ = QUESTIONS["a library"]
    data = source(tmp_path / "data", columns, people, each)
    questions = ["SELECT COUNT(*) AS n FROM rows WHERE days < 20"]
    guess = PublicGuess(units=people, rows=people * each, most_rows=each)
    text, _ = drafted(tmp_path, data, questions, guess)
    for word, other in (
        ("max_ids: auto", "max_ids: 3"),
        ("cap: 4", "cap: 300"),
        ("epsilon: 1", "epsilon: 30"),
    ):
        assert word in text
        text = text.replace(word, other)
    (column,) = plan_catalog(parse_catalog(confirmed(text, data)), questions).queries[0].columns
    file, halves = tmp_path / "c.yaml", list[float]()
    file.write_text(confirmed(text, data))
    for seed in range(9):
        path = tmp_path / f"{seed}.dpsql"
        publish_release(load_catalog(file), path, noise=seeded(people + each + seed), key=bytes(32))
        with closing(open_session([path], insecure=True)) as session:
            (((low, *_),), ((high, *_),)) = session.query(questions[0]).interval_rows()
        halves.append((high - low) / 2)
    assert column.median is not None and column.median * HALF == pytest.approx(median(halves), rel=0.25)


def test_a_guess_keeps_one_digit(tmp_path: Path):
    columns, questions = QUESTIONS["a course"]
    data = source(tmp_path / "data", columns, 300, 10)
    guess = PublicGuess(units=599, rows=16049, most_rows=44, means={"clicks": 12.7, "module": 3})
    text, _ = drafted(tmp_path, data, questions, guess)
    catalog, written = parse_catalog(text), "{units: 600, rows: 20000, most_rows: 40, means: {clicks: 10.0}}"
    assert f"guess: {written}" in text  # no mean of a column that is not summed
    typed = parse_catalog(
        text.replace(written, "{units: 599, rows: 16049, most_rows: 44, means: {clicks: 12.7}}")
    )
    assert typed.to_json() == catalog.to_json()
    said = Guess(600, 20000, most=40.0, means={"rows.clicks": 10.0})
    assert stated_guess(typed) == replace(said, tables={"rows": said})
    many = "units: 9, rows: 90, means"
    for wrong in (
        "{units: 9, rows: 2}", "{units: 2, rows: 100, most_rows: 3}", "{units: 0, rows: 1}",
        f"{{{many}: {{module: 2}}}}", f"{{{many}: {{clicks: .nan}}}}",
    ):  # fmt: skip
        with pytest.raises(CatalogError, match="guess"):
            parse_catalog(text.replace(written, wrong))


def test_a_stated_mean_moves_forecasts_of_sums_as_an_option_does(tmp_path: Path):
    columns, questions = QUESTIONS["a course"]
    data = source(tmp_path / "data", columns, 2000, 10)
    guesses = [
        PublicGuess(units=2000, rows=20000, most_rows=10, means={"clicks": mean} if mean else {})
        for mean in (0, 3, 20)
    ]
    texts = [drafted(tmp_path / f"{i}", data, questions, guess)[0] for i, guess in enumerate(guesses)]
    catalogs = [parse_catalog(confirmed(text.replace("max_ids: auto", "max_ids: 3"), data)) for text in texts]
    unsaid, low, high = (plan_catalog(c, questions).queries[0].columns[0].median for c in catalogs)
    assert low is not None and high is not None and 2 * low < high
    said = Guess(2000, 20000, most=10.0, means={"rows.clicks": 20.0})
    assert plan_catalog(catalogs[0], questions, guess=said).queries[0].columns[0].median == high != unsaid
