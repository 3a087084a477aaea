"""One interval in every interface: the same two ends, bounds of interpolation included."""

from __future__ import annotations

import csv
import io
import json
import os
import random
from pathlib import Path

import duckdb
import pytest
import yaml

import dpsql
from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.session import OpenReleases, open_session
from dpsql.interfaces.agents import Statement, claimed_answer
from dpsql.interfaces.pgwire.statements import Backend, SessionState
from dpsql.interfaces.shell import ShellState, evaluate
from dpsql.interfaces.web.explore.answers import answer_values
from dpsql.noise import ZeroNoise
from dpsql.release import open_release
from dpsql.results.render import interval_text, margin_lines, render
from dpsql.results.result import Result
from tests.answer.test_statements import FOLDER
from tests.interval_ends import belong
from tests.rehearsal.generator import Knobs, generate
from tests.releases import published, write_catalog
from tests.statements import sections
from tests.thinned import by_default
from tests.userlevel_star import uneven_rows, write_star

pytestmark = pytest.mark.usefixtures("publishes")

_TABLES, VISITS = (FOLDER / "visits.yaml").read_text("utf-8").split("\n---\n")
ROWS = yaml.safe_load(_TABLES)["visits"]
OTHERS = {
    "rehearsal": """
SELECT TIMESTAMP '2024-01-01' + to_seconds(epoch(happened)::BIGINT % 864000) AS seen, seen + INTERVAL 90 SECOND AS day,
  amount::DOUBLE % 10 AS size, (pieces * amount % 100)::DECIMAL(9, 2) AS price, online::INT AS kind,
  50 + hash(visit_id) % 51 AS score FROM '{}/visit.parquet'""",
    "retail": """
SELECT TIMESTAMP '2024-01-01' + to_seconds((epoch(InvoiceDate) + Quantity)::BIGINT % 864000) AS seen,
  seen + INTERVAL 90 SECOND AS day, abs(UnitPrice)::DOUBLE % 10 AS size,
  (abs(Quantity * UnitPrice) % 100)::DECIMAL(9, 2) AS price, CustomerID % 2 AS kind, 50 + CustomerID % 51 AS score
FROM '{}/online-retail/invoice_line.parquet' WHERE CustomerID IS NOT NULL LIMIT 20000""",
}
"""The same table of stars that were not made for it: their rows, folded into its bounds."""


@pytest.fixture(scope="module", params=by_default(["visits", *OTHERS], 1))
def star(
    publishes: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A release, and its rows."""
    if request.param == "visits":
        return request.getfixturevalue("visits"), ROWS
    folder, rows = tmp_path_factory.mktemp(request.param), OTHERS[request.param]
    if request.param == "rehearsal":
        generate(5, Knobs(people=900, stamps=True)).write(folder)
        rows = rows.format(folder)
    elif request.param == "retail":
        if "DPSQL_DATA" not in os.environ:
            pytest.skip("DPSQL_DATA names no folder")
        rows = rows.format(os.environ["DPSQL_DATA"])
    catalog = write_catalog(folder, VISITS, {"visits": rows})
    dpsql.publish(catalog, catalog.with_name("r.dpsql"))
    return catalog.with_name("r.dpsql"), rows


@pytest.fixture(scope="module")
def visits(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    catalog = write_catalog(tmp_path_factory.mktemp("visits"), VISITS, {"visits": ROWS})
    dpsql.publish(catalog, catalog.with_name("r.dpsql"))
    return catalog.with_name("r.dpsql")


@pytest.fixture(scope="module")
def people(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    catalog = write_star(folder, *uneven_rows(500, 3), delta="1e-6")
    dpsql.publish(catalog, folder / "r.dpsql")
    return folder / "r.dpsql"


ASKED = sections(Path(__file__).with_name("interval_ends.sql"))
"""Star -> what it is asked."""


@pytest.mark.parametrize("star", by_default(list(ASKED), 1))
def test_every_interface_prints_the_same_two_ends(star: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(star)
    bounds = 0
    for text, _ in ASKED[star]:
        result = dpsql.query(text, release=path)
        bounds += sum(bool(bound) for row in result.model_bound for bound in row)
        _same_ends(text, result, path)
    assert bounds or star == "people"


def _same_ends(text: str, result: Result, path: Path) -> None:
    low, high = result.interval_rows()
    names, rows = result.with_errors()
    records = list(csv.DictReader(io.StringIO(render(result, "csv", 0.95))))
    objects = json.loads(render(result, "json", 0.95))
    lines = [json.loads(line) for line in render(result, "jsonl", 0.95).splitlines()]
    texts = render(result, "table", 0.95).splitlines()[2:]
    page = answer_values(result, 0.95)["rows"]
    claims = claimed_answer(result, Statement("id", text, 0.95), "id")["rows"]
    wide, frames = result.with_intervals(), result.interval()
    with dpsql.connect(path) as connection:
        cursor = connection.execute(text)
        assert cursor.interval() == (low, high)
        assert cursor.model_bound == result.model_bound and cursor.notes == result.notes
        assert [tuple(row) for row in cursor.fetchall()] == [tuple(row) for row in result.rounded().rows]
    for c in result.noisy:
        name = result.columns[c]
        for r, row in enumerate(result.rows):
            ends = low[r][c], high[r][c]
            place = names.index(f"{name}_low")
            assert (rows[r][place], rows[r][place + 1]) == ends
            assert (objects[r][f"{name}_low"], objects[r][f"{name}_high"]) == ends
            assert (lines[r][f"{name}_low"], lines[r][f"{name}_high"]) == ends
            written = [records[r][f"{name}_{end}"] for end in ("low", "high")]
            assert [float(end) if end else None for end in written] == list(ends)
            at = wide.columns.index(f"{name}_low")
            assert (wide.rows[r][at], wide.rows[r][at + 1]) == ends
            assert (frames[0].iloc[r, c], frames[1].iloc[r, c]) == ends or None in ends
            assert (page[r][c].get("low"), page[r][c].get("high")) == ends
            assert (claims[r][name]["low"], claims[r][name]["high"]) == ends
            if row[c] is not None:
                assert interval_text(row[c], *ends) in texts[r]
                assert interval_text(row[c], *ends).rpartition(" ")[2] in result._repr_html_()
            if None not in ends:
                assert belong(result.stderr_rows[r][c], row[c], *ends)
                bound = result.model_bound[r][c]
                assert bound is None or bound <= max(row[c] - ends[0], ends[1] - row[c]) * (1 + 1e-9)
    if len(result.noisy) == 1 and len(result.rows) == 1:
        (c,) = result.noisy
        margin = interval_text(result.rows[0][c], low[0][c], high[0][c]).partition(" ")[2]
        if margin.startswith("-"):
            assert margin in margin_lines(result)[0]
        inner = (
            f"SELECT DP_INTERVAL_LOW({result.columns[c]}) AS a, DP_INTERVAL_HIGH({result.columns[c]}) AS b, "
        )
        inner += f"DP_STDERR({result.columns[c]}) AS e FROM ({text}) AS t"
        told = dpsql.query(inner, release=path).rows[0]
        assert told == pytest.approx((low[0][c], high[0][c], result.stderr_rows[0][c]))
        releases = OpenReleases((open_release(path),), (ReleaseEngine(open_release(path)),))
        answer = Backend(releases, releases).run(inner, SessionState())
        assert [float(value) for value in next(iter(answer.rows))] == pytest.approx(told)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_view_with_the_narrowest_interval_answers(star: tuple[Path, str]) -> None:
    """Two bins of 50 hide a noise as small as that of twenty bins of 5."""
    visits, rows = star
    result = dpsql.query("SELECT AVG(score) AS a FROM visits", release=visits)
    assert result.provenance["views"] == ["fine"]
    with duckdb.connect() as database:
        (truth,) = database.execute(f"SELECT AVG(score) FROM ({rows})").fetchone() or ()
    (low,), (high,) = (ends[0] for ends in result.interval_rows())
    assert low <= truth <= high and high - low < 6
    grouped = dpsql.query("SELECT kind, AVG(score) AS a FROM visits GROUP BY kind", release=visits)
    assert grouped.provenance["views"] == ["coarse"]
    ends = [
        (low[1], high[1]) for low, high in zip(*grouped.interval_rows(), strict=True) if low[1] is not None
    ]
    assert len(ends) == 2 and all(low <= truth - 0.5 and truth + 0.5 <= high for low, high in ends)


def test_a_bound_of_more_than_half_names_what_is_finer(visits: Path) -> None:
    session = dpsql.connect(visits, on_partial_bin="interpolate")
    alone = session.execute("SELECT COUNT(*) AS n FROM visits WHERE kind = 1 AND score > 80").result
    (flag,) = [note for note in alone.flags if "more than half" in note]
    assert "the view fine has finer bins" in flag
    narrow = session.execute("SELECT COUNT(*) AS n FROM visits WHERE score = 81").result
    (flag,) = [note for note in narrow.flags if "more than half" in note]
    assert (
        "ask the curator for the view `score: {of: visits, axes: [{axis: visits.score, cuts: {width: 1}}]"
        in flag
    )
    assert not dpsql.query("SELECT COUNT(*) AS n FROM visits WHERE score < 75", release=visits).flags


FINER = ("seen", "day", "size", "price")


def _clock(draw: random.Random) -> str:
    return ":".join(f"{draw.randint(least, most):02}" for least, most in ((0, 23), (1, 59), (0, 59)))


def finer_statement(draw: random.Random) -> str:
    """A statement with a condition finer than what the catalog knows of a column."""
    column = draw.choice(FINER)
    operator = draw.choice([">=", ">", "<", "<=", "BETWEEN", "="])
    if column in ("seen", "day"):
        ends = sorted(f"'2024-01-{draw.randint(2, 9):02} {_clock(draw)}'" for _ in range(2))
        word = "TIMESTAMP "
    else:
        digits = 1 if column == "size" else 2
        number = lambda: f"{draw.randint(10, 90) / 10 + 0.01 * draw.choice([3, 7]):.{digits + 1}f}"  # noqa: E731
        ends = sorted([number(), number()], key=float)
        word = ""
    if operator == "BETWEEN":
        return f"SELECT COUNT(*) FROM visits WHERE {column} BETWEEN {word}{ends[0]} AND {word}{ends[1]}"
    return f"SELECT COUNT(*) FROM visits WHERE {column} {operator} {word}{ends[0]}"


def test_conditions_finer_than_a_leaf_are_in_their_interval(star: tuple[Path, str]) -> None:
    """At level .9999: the noise has no part in what is tested."""
    (visits, rows), draw, asked = star, random.Random(11), 0
    with dpsql.connect(visits, on_partial_bin="interpolate") as session, duckdb.connect() as database:
        database.execute(f"CREATE TABLE visits AS {rows}")
        for _ in range(120):
            text = finer_statement(draw)
            (truth,) = database.execute(text).fetchone() or ()
            result = session.execute(text).result
            (low,), (high,) = (ends[0] for ends in result.interval_rows(0.9999))
            assert low - 1e-6 <= truth <= high + 1e-6, text
            asked += any("cut" in note for note in result.notes)
    assert asked > 90


def test_declared_values_are_the_rounded_ones_of_the_source(tmp_path: Path) -> None:
    """Halves up, times down: 4.49 is the whole number 4 and 4.5 is 5; a day ends at midnight."""
    rows = """SELECT * FROM (VALUES (TIMESTAMP '2024-01-03 12:59:59.9', TIMESTAMP '2024-01-03 23:59:59.9', 4.49, 45.54),
        (TIMESTAMP '2024-01-03 13:00:00', TIMESTAMP '2024-01-04 00:00:00', 4.5, 45.55)) AS t(seen, day, size, price)"""
    typed = "seen, day, size::DOUBLE AS size, price::DECIMAL(9, 2) AS price, 0 AS kind, 50 AS score"
    catalog = write_catalog(tmp_path, VISITS, {"visits": f"SELECT {typed} FROM ({rows})"})
    answerer = published(catalog, ZeroNoise())
    for column, two in (
        ("seen", ("2024-01-03 12:00:00", "2024-01-03 13:00:00")), ("day", ("2024-01-03", "2024-01-04")),
        ("size", ("4", "5")), ("price", ("45.5", "45.6")),
    ):  # fmt: skip
        counts = answerer.query(f"SELECT {column}, COUNT(*) FROM visits GROUP BY 1").rows
        assert tuple(str(value) for value, count in counts if count) == two, column


def test_no_line_below_an_answer_is_printed_twice_in_a_session(
    people: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dpsql.interfaces.shell import InputPiece

    state = ShellState(open_session([people]), "table")
    texts = [
        "SELECT COUNT(*) AS n FROM sales", "SELECT SUM(amount) AS s FROM sales", "SELECT AVG(amount) AS a FROM sales",
        "SELECT region, COUNT(*) AS n FROM sales JOIN customer USING (id) GROUP BY region",
    ]  # fmt: skip
    for text in texts * 2:
        evaluate(InputPiece(text, False), state)
    notes = {note for text in texts for note in dpsql.query(text, release=people).notes}
    out = capsys.readouterr().out
    assert notes and all(out.count(note) <= 1 for note in notes)
    evaluate(InputPiece("\\notes", True), state)
    assert capsys.readouterr().out.strip().splitlines() == list(dpsql.query(texts[-1], release=people).notes)
