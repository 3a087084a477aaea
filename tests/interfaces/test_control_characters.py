"""Names and labels come from whoever made a release: none commands the terminal of who reads them."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from dpsql.errors import UNSEEN
from dpsql.federation.session import OpenReleases, open_session
from dpsql.interfaces.cli import all_commands, cli
from dpsql.interfaces.shell import ShellState, run_text
from dpsql.results.render import FORMATS, STYLES, render
from tests.release_fixture import make_rows, write_fixture

HOSTILE = "north\x1b]0;owned\x07\u202e\x9b2J"
SQL = 'SELECT region AS "r\x1b[2J", COUNT(*) AS n FROM shop GROUP BY region ORDER BY region'


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    good = write_fixture(folder / "good.dpsql", make_rows(sales=100), 1.0)
    with duckdb.connect(str(good)) as connection:
        connection.execute("UPDATE axis_1 SET region = ? WHERE region = 'north'", [HOSTILE])
        ((text,),) = connection.execute("SELECT value FROM meta WHERE key = 'catalog'").fetchall()
        catalog = json.loads(text) | {"description": HOSTILE, "population": HOSTILE}
        catalog["tables"]["customer"]["columns"]["region"]["description"] = HOSTILE
        connection.execute("UPDATE meta SET value = ? WHERE key = 'catalog'", [json.dumps(catalog)])
    return good


@pytest.fixture(scope="module")
def opened(path: Path) -> Iterator[OpenReleases]:
    found = open_session([path])
    yield found
    found.close()


def printable(text: str) -> bool:
    """Nothing but line ends commands a terminal."""
    return UNSEEN.search(text.replace("\n", "")) is None


@pytest.mark.parametrize("style", STYLES)
def test_answers_show_the_codes_of_control_characters(opened: OpenReleases, style: str):
    result = opened.query(SQL)
    assert HOSTILE in [row[0] for row in result.rows], "the label is there, exactly"
    text = render(result, style, 0.95)
    assert printable(text)
    assert "owned" in text
    assert printable(str(result))


def test_json_stays_exact_and_csv_keeps_its_rows(opened: OpenReleases):
    result = opened.query(SQL)
    for text in (render(result, "json", 0.95), f"[{','.join(render(result, 'jsonl', 0.95).splitlines())}]"):
        assert [row["r\x1b[2J"] for row in json.loads(text)] == [row[0] for row in result.rows]
    rows = list(csv.reader(io.StringIO(render(result, "csv", 0.95))))
    assert len(rows) == len(result.rows) + 1
    assert r"north\x1b]0;owned\x07\u202e\x9b2J" in [row[0] for row in rows]


@pytest.mark.parametrize("style", FORMATS)
def test_the_command_prints_none(path: Path, style: str):
    all_commands()
    for arguments in (["query", path, SQL, "--format", style], ["explain", path, SQL], ["verify", path]):
        done = CliRunner().invoke(cli, [str(word) for word in arguments])
        assert done.exit_code == 0, done.output
        assert printable(done.output), (arguments, done.output)


def test_the_shell_prints_none(opened: OpenReleases, capsys: pytest.CaptureFixture[str]):
    state = ShellState(opened, terminal=False, style="table", level=0.95)
    state.output = sys.stdout
    for text in (SQL + ";", "\\d", "\\d shop", "\\dv", "\\releases", "\\explain " + SQL, '\\d "\x1b[2J"'):
        run_text(text, state)
    told = capsys.readouterr()
    assert "owned" in told.out
    assert printable(told.out) and printable(told.err)
