"""One error bar: what is shown beside a number, marked, greyed, hidden and exported is its interval."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.central import content
from dpsql.executor.engine import ReleaseEngine, predict
from dpsql.executor.relation import answer_block
from dpsql.federation.session import OpenReleases, open_session
from dpsql.interfaces.pgwire.statements import Backend, SessionState
from dpsql.interfaces.web.explore.answers import answer_values
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import interval
from dpsql.planner.block import Linear
from dpsql.progress import silent
from dpsql.release import open_release
from dpsql.release.format import MeasureScale
from dpsql.results.export import export
from dpsql.results.render import margin_lines, render
from dpsql.results.result import Result
from dpsql.sql.parse import parse
from dpsql.sql.rewrite import split_statement
from tests.interval_ends import belong
from tests.userlevel_star import uneven_rows, write_star

GROUPS = "FROM sales JOIN customer USING (id) GROUP BY 1, 2"
STATEMENTS = (
    f"SELECT region, (day - 1) // 3 AS part, COUNT(*) AS n, SUM(amount) AS s {GROUPS}",
    f"SELECT region, (day - 1) // 3 AS part, AVG(amount) AS a {GROUPS}",
    f"SELECT region, (day - 1) // 3 AS part, COUNT(*) - 300 AS n {GROUPS}",
    f"SELECT region, SUM(n) AS n FROM (SELECT region, (day - 1) // 3 AS part, COUNT(*) AS n {GROUPS}) AS g GROUP BY 1",
    "SELECT COUNT(*) FILTER (WHERE day < 4) / COUNT(*) AS share, COUNT(*) AS n, AVG(amount) AS a FROM sales",
)


def published(folder: Path, name: str) -> Path:
    rows, customers = uneven_rows(3000, 5)
    (folder / name).mkdir()
    out = folder / f"{name}.dpsql"
    dpsql.publish(write_star(folder / name, rows, customers), out)
    return out


def published_with(folder: Path, name: str, ends: Callable[[MeasureScale], MeasureScale]) -> Path:
    """A release whose scales have these ends, whatever the noise of one publish says of them."""
    stored = content._measure_scale
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "_measure_scale", lambda *args: ends(stored(*args)))
        return published(folder, name)


@pytest.fixture(scope="module")
def closed(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release that bounds every total from both sides: one publish in some hundreds would not."""

    def bounded(scale: MeasureScale) -> MeasureScale:
        error, mean = scale.error, scale.mean_error
        error = error if error.up is not None else error._replace(up=error.down)
        return replace(
            scale, error=error, mean_error=mean if mean.up is not None else mean._replace(up=mean.down)
        )

    return published_with(tmp_path_factory.mktemp("bars"), "closed", bounded)


@pytest.fixture(scope="module")
def blind(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release that says of every total that nothing bounds it from above."""

    def unbounded(scale: MeasureScale) -> MeasureScale:
        mean = scale.mean_error._replace(up=None) if scale.measure else scale.mean_error
        return replace(scale, error=scale.error._replace(up=None), mean_error=mean)

    return published_with(tmp_path_factory.mktemp("bars"), "blind", unbounded)


@pytest.fixture(params=["closed", "blind"])
def path(publishes: None, request: pytest.FixtureRequest) -> Path:
    return Path(request.getfixturevalue(request.param))


def useless(result: Result) -> Iterator[tuple[int, int]]:
    """Cells whose half interval reaches their number, or whose interval has an open end."""
    low, high = result.interval_rows(0.95)
    for r, row in enumerate(result.rows):
        for c in result.noisy:
            ends = low[r][c], high[r][c]
            if row[c] is None or result.noise_rows[r][c] is None:
                continue
            if None in ends or (ends[1] - ends[0]) / 2 >= abs(row[c]):
                yield r, c


@pytest.mark.parametrize("text", STATEMENTS)
def test_no_useless_number_is_shown_unmarked(path: Path, text: str) -> None:
    result = dpsql.query(text, path)
    low, high = result.interval_rows(0.95)
    places = list(useless(result))
    for r, row in enumerate(result.stderr_rows):
        for c in result.noisy:
            ends = low[r][c], high[r][c]
            assert (row[c] is None) == (None in ends)
            assert row[c] is None or belong(row[c], result.rows[r][c], *ends)
    cells = answer_values(result, 0.95)["rows"]
    names = result.columns
    records = list(csv.DictReader(io.StringIO(render(result, "csv", 0.95))))
    objects = json.loads(render(result, "json", 0.95))
    lines = {style: render(result, style, 0.95).splitlines() for style in ("markdown", "vertical", "table")}
    for r, c in places:
        value = abs(float(result.rows[r][c]))
        marked = lines["markdown"][2 + r].split("|")[c + 1], lines["vertical"][r * (len(names) + 1) + 1 + c]
        mark = r" \?$" if result.model_bound[r][c] == 0 else r" \?~\S+$"  # beside it what a cut bin may add
        assert all(re.search(mark, cell.strip()) for cell in (*marked, cells[r][c]["text"]))
        assert "?" in lines["table"][2 + r]
        for record in (records[r], objects[r]):
            told = record[f"{names[c]}_stderr"]
            assert told in ("", None) or float(told) >= 0.5 * value
        assert result.marked[r][c]
    assert "? = too noisy" in str(result) or not places
    noisy = frozenset(result.noisy)
    if len(noisy) < len(names):
        shown = dpsql.query(text, path, min_relative_error=0.5)
        gone = [row for r, row in enumerate(result.rows) if all((r, c) in set(places) for c in noisy)]
        assert not [row for row in gone if row in shown.rows]
        assert result._repr_html_().count("opacity") >= len(gone)


def test_totals_of_a_blind_table_have_a_lower_end_only(blind: Path, closed: Path) -> None:
    text = (
        "SELECT COUNT(*) AS n, SUM(amount) AS s, AVG(amount) AS a, -COUNT(*) AS m, DP_STDERR(COUNT(*)) AS e, "
        "DP_INTERVAL_LOW(COUNT(*)) AS low, DP_INTERVAL_HIGH(COUNT(*)) AS high, DP_STDERR(COUNT(*), 'noise') AS noise, "
        "DP_STDERR(COUNT(*), 'tail') AS tail, COUNT(*) FILTER (WHERE day < 4) / COUNT(*) AS share FROM sales"
    )
    result = dpsql.query(text, blind)
    low, high = (ends[0] for ends in result.interval_rows())
    n, _, mean, _, error, lowest, highest, noise, tail, _ = result.rows[0]
    assert (error, highest, tail) == (None, None, None) and lowest == low[0] < n and noise is not None
    assert [high[c] for c in (0, 1)] == [None, None] and low[1] is not None
    assert high[2] == max(100.0, mean) and low[2] is not None  # an average ends at its measure's bound
    assert low[3] is None and high[3] == -low[0]
    assert low[9] is not None and high[9] is not None  # a share has no size
    assert result.stderr_rows[0][2] is not None
    assert any("too few people for the noise" in flag for flag in result.flags)
    assert not any("too few people" in note for note in dpsql.query(text, closed).notes)
    assert None not in dpsql.query(text, closed).rows[0]


def test_outer_statements_have_the_open_ends_of_blocks(blind: Path) -> None:
    by_day = "(SELECT day, COUNT(*) AS n, SUM(amount) AS s FROM sales GROUP BY day) AS g"
    result = dpsql.query(
        f"SELECT SUM(n), SUM(s), SUM(s) / SUM(n), MAX(CASE WHEN day = 3 THEN n END) - SUM(n) FROM {by_day}",
        blind,
    )
    low, high = (ends[0] for ends in result.interval_rows())
    assert high[0] is None and high[1] is None and low[0] is not None and low[1] is not None
    assert high[2] is None or high[2] <= 100.0
    share = dpsql.query(f"SELECT day, n / SUM(n) OVER () AS share FROM {by_day}", blind)
    assert all(row[1] is not None for grid in share.interval_rows() for row in grid)
    asked = dpsql.query(
        f"SELECT DP_STDERR(t), DP_INTERVAL_HIGH(t), DP_INTERVAL_LOW(t) FROM (SELECT SUM(n) AS t FROM {by_day})",
        blind,
    )
    assert asked.rows[0][:2] == (None, None) and asked.rows[0][2] == pytest.approx(low[0])


def test_interfaces_that_show_no_marks_say_it_in_words(blind: Path, tmp_path: Path) -> None:
    text = "SELECT COUNT(*) AS n FROM sales"
    result = dpsql.query(text, blind)
    gap = "n has no ± in some rows: too few people for the noise"  # a count has no denominator
    (below,) = (
        float(value) - low for value, low in zip(result.rows[0], result.interval_rows()[0][0], strict=True)
    )
    line = f"n: margin -{below:,.0f}/+∞ at 95%".replace(",", " ")
    assert margin_lines(result)[1:] == (gap,) and margin_lines(result)[0][:-12] == line[:-12]
    answerer = ReleaseEngine(open_release(blind))
    releases = OpenReleases((answerer.release,), (answerer,))
    state = SessionState()
    flags = state.news(Backend(releases, releases).run(text, state))
    assert (
        any("lower end only" in flag for flag in flags) and margin_lines(result)[0] in flags and gap in flags
    )
    assert any("open end" in line for line in result.plan)
    (column,) = predict(answerer, text)
    assert column.median is None and column.open_groups == 1
    with dpsql.connect(blind) as connection:
        cursor = connection.execute(text)
        assert cursor.stderr == ((None,),) and cursor.interval()[1] == ((None,),)
    views = dpsql.query("SELECT error_total FROM information_schema.dp_views", blind).rows
    assert views == ((None,), (None,))


def test_exports_write_open_ends_as_null(blind: Path, tmp_path: Path) -> None:
    export(open_session([blind]), tmp_path / "out", ("days",), 0.95, silent)
    rows = duckdb.sql(
        f"SELECT count(*), count(count), count(count_low), count(count_high), count(count_stderr) FROM "
        f"'{tmp_path / 'out' / 'days.parquet'}' WHERE count > 0"
    ).fetchall()[0]
    assert rows[0] == rows[1] == rows[2] > 0 and rows[3:] == (0, 0)


@pytest.mark.parametrize("of", ["COUNT(*)", "SUM(amount)"])
def test_noise_that_turns_a_blind_total_does_not_turn_its_open_end(blind: Path, of: str) -> None:
    """Rows that nobody saw only add to a count, and to a sum of values that are never negative."""
    answerer = ReleaseEngine(open_release(blind))
    statement = split_statement(parse(f"SELECT {of} AS n FROM sales", "duckdb"), answerer.schema, of)
    relation = answer_block(statement.blocks[0], answerer.release, answerer.schema, "refuse")
    (form,) = statement.blocks[0].values
    assert isinstance(form, Linear)
    answered = relation.answered_for(form)
    turned = replace(answered, totals={term: -np.abs(total) for term, total in answered.totals.items()})
    for answers in (answered, turned):
        low, high = interval(Composite.of_form(form, answers), 0.95)
        assert np.isfinite(low).all() and np.isinf(high).all()
    answerer.release.close()
