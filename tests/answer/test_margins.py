"""Every interface tells how far a number may be off: by noise, and by interpolating the bins that a statement cuts."""

from __future__ import annotations

import csv
import datetime
import io
import json
from pathlib import Path

import pytest

import dpsql
from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.session import OpenReleases
from dpsql.interfaces.pgwire.statements import Backend, SessionState
from dpsql.release import open_release
from dpsql.results.render import margin_lines, render
from dpsql.results.result import Result
from tests.release_fixture import make_rows, write_fixture

TEXT = "SELECT region, COUNT(*) AS n FROM shop WHERE price < 12 GROUP BY region"
COLUMNS = ["region", "n", "n_stderr", "n_low", "n_high", "n_bound"]


@pytest.fixture(scope="module")
def result(fixture_file: Path) -> Result:
    return dpsql.query(TEXT, release=fixture_file)


def rows_of(result: Result) -> list[list[object]]:
    low, high = result.interval_rows(0.95)
    grids = (result.stderr_rows, low, high, result.model_bound)
    return [[*row, *(grid[r][1] for grid in grids)] for r, row in enumerate(result.rows)]


def test_columns_of_errors(result: Result) -> None:
    frame = result.df(errors=True)
    assert list(frame.columns) == COLUMNS
    assert frame.n_bound.min() > 0
    assert frame.to_numpy()[:, 1:].tolist() == [row[1:] for row in rows_of(result)]
    assert list(result.df().columns) == ["region", "n"]
    narrow = result.df(errors=True, level=0.5)
    assert (narrow.n_high < frame.n_high).all()
    records = list(csv.DictReader(io.StringIO(render(result, "csv", 0.95))))
    assert list(records[0]) == COLUMNS
    assert [float(record["n_bound"]) for record in records] == list(frame.n_bound)
    objects = json.loads(render(result, "json", 0.95))
    assert [list(item.values()) for item in objects] == rows_of(result)
    assert list(json.loads(render(result, "jsonl", 0.5).splitlines()[0])) == COLUMNS
    assert json.loads(render(result, "jsonl", 0.5).splitlines()[0])["n_high"] == narrow.n_high[0]


def test_formats_for_people(result: Result) -> None:
    for style in ("table", "markdown", "vertical"):
        assert "~" in render(result, style, 0.95)
        # the low end is nearer: most of the bin is not taken
        assert "77 -15/+21 ~18" in render(result, style, 0.95)
    assert "<small>-15/+21 ~18</small>" in result._repr_html_()
    assert str(result) == render(result, "table", 0.95)


def test_whole_days_are_shown_as_days(fixture_file: Path) -> None:
    """DuckDB makes a TIMESTAMP of a truncated DATE; people see a date, programs the type that they asked for."""
    asked = "SELECT DATE_TRUNC('month', sold_on) AS month, COUNT(*) AS n FROM shop GROUP BY 1 ORDER BY 1"
    result = dpsql.query(asked, release=fixture_file)
    for style in ("table", "markdown", "vertical"):
        shown = render(result, style, 0.95)
        assert "2025-01-01" in shown and "00:00" not in shown
        assert "00:00" not in render(result, style, 0.95, errors=False)
    assert result.rows[0][0] == datetime.datetime(2025, 1, 1) and "2025-01-01 00:00" in render(
        result, "csv", 0.95
    )
    hours = dpsql.query(
        asked.replace("sold_on)", "sold_on + INTERVAL 1 HOUR) + INTERVAL 1 HOUR"), release=fixture_file
    )
    assert "2025-01-01 01:00:00" in str(hours)


def test_names_that_are_taken(fixture_file: Path) -> None:
    text = "SELECT COUNT(*) AS n, DP_STDERR(COUNT(*)) AS n_stderr FROM shop"
    (item,) = json.loads(render(dpsql.query(text, release=fixture_file), "json", 0.95))
    assert list(item) == ["n", "n_stderr_", "n_low", "n_high", "n_bound", "n_stderr"]
    assert item["n_stderr_"] == item["n_stderr"]


def test_an_interval_without_an_end_is_no_exact_number(fixture_file: Path) -> None:
    """A ratio whose denominator may be 0 was shown like a number without any error."""
    rows = "age = 18 AND region = 'north' AND category = 'tea'"
    text = f"SELECT COUNT(*) / COUNT(*) FILTER (WHERE {rows}) AS q FROM shop"
    found = ReleaseEngine(
        open_release(write_fixture(fixture_file.parent / "loud.dpsql", make_rows(), 1e4))
    ).query(text)
    assert found.interval_rows()[0] == ((None,),)
    assert found.stderr_rows == ((None,),) and found.noise_rows[0][0] is not None
    assert found.noisy == (0,) and found.marked == ((True,),)
    assert "± ∞ ?" in render(found, "table", 0.95)
    assert "± ∞" in found._repr_html_()
    assert margin_lines(found)[0].startswith("q: margin ∞ at 95%")


def test_the_wire_says_it_beside_the_rows(fixture_file: Path, result: Result) -> None:
    answerer = ReleaseEngine(open_release(fixture_file))
    releases = OpenReleases((answerer.release,), (answerer,))
    backend = Backend(releases, releases)
    answer = backend.run(TEXT, SessionState())
    assert [name for name, _, _ in answer.columns or ()] == ["region", "n"]
    assert len(answer.flags) == 1
    assert answer.flags[0].startswith("n: margin ")
    assert " at 95%, of which cut bins are " in answer.flags[0]
    assert backend.run("SELECT DISTINCT region FROM customer", SessionState()).flags == ()
    whole = backend.run("SELECT COUNT(*) AS n FROM shop", SessionState())
    assert whole.flags == margin_lines(dpsql.query("SELECT COUNT(*) AS n FROM shop", release=fixture_file))
    assert "cut" not in whole.flags[0]


def test_names_of_unnamed_columns_follow_the_statement_not_its_constants(fixture_file: Path) -> None:
    """Names are kept by shape; a quoted name, a cast or another function is another shape."""
    answerer = ReleaseEngine(open_release(fixture_file))
    backend = Backend(
        OpenReleases((answerer.release,), (answerer,)),
        OpenReleases((answerer.release,), (answerer,)),
    )

    def names(sql: str) -> list[str]:
        return [name for name, _, _ in backend.run(sql, SessionState()).columns or ()]

    for low in (20, 31, 47):
        assert names(f"SELECT COUNT(*), SUM(amount) FROM shop WHERE age >= {low}") == ["count", "sum"]
        assert names(f"SELECT COUNT(*) AS n{low}, AVG(amount) FROM shop WHERE age >= {low}") == [
            f"n{low}",
            "avg",
        ]
        assert names(f'SELECT COUNT(*) AS "{low}", AVG(amount) FROM shop') == [str(low), "avg"]
        assert names(f"SELECT COUNT(*) + {low}, SUM(amount) FROM shop") == ["?column?", "sum"]
    assert len(backend.called) < 12
