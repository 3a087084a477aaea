"""Commands as scripts call them: output, JSON, exit codes, completion, doctor."""

from __future__ import annotations

import errno
import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.command import dpsql_command
from tests.interfaces_release import build
from tests.statements import sections

pytestmark = pytest.mark.usefixtures("publishes")


def dpsql(*arguments: str | Path, folder: Path | None = None) -> tuple[str, str, int]:
    """Standard output, standard error and exit code."""
    done = dpsql_command(*arguments, cwd=folder)
    return done.stdout, done.stderr, done.returncode


def test_query_formats(shop: Path) -> None:
    statement = "SELECT 1 AS a, 'x' AS b"
    shown = {
        style: dpsql("query", shop, statement, "--format", style)[0]
        for style in ("csv", "json", "jsonl", "markdown", "table")
    }
    assert shown["csv"] == "a,b\n1,x\n"
    assert json.loads(shown["json"]) == [{"a": 1, "b": "x"}]
    assert shown["jsonl"] == '{"a": 1, "b": "x"}\n'
    assert shown["markdown"] == "| a | b |\n|---|---|\n| 1 | x |\n"
    assert shown["table"] == "a  b\n-  -\n1  x\n"


def test_explain_json_agrees_with_query(shop: Path) -> None:
    statement = "SELECT COUNT(*) AS n FROM sales"
    report = json.loads(dpsql("explain", shop, statement, "--json")[0])
    (row,) = json.loads(dpsql("query", shop, statement, "--format", "json")[0])
    assert report["columns"] == ["n"]
    assert report["stderr"] == [[row["n_stderr"]]]
    assert report["plan"] == dpsql("explain", shop, statement)[0].splitlines()


def test_budget_says_what_is_left(shop: Path) -> None:
    report = json.loads(dpsql("budget", shop.with_suffix(".yaml"), "--json")[0])
    (lineage,) = report["lineages"]
    assert (lineage["cap"], lineage["spent"], lineage["left"]) == ("2000", "80", "1920")
    (release,) = lineage["releases"]
    assert sum(float(eval_fraction(line["amount"])) for line in release["spends"]) == pytest.approx(80)
    text, _, code = dpsql("budget", shop.with_suffix(".yaml"))
    assert text.startswith(
        "shop: 80 of 2000 epsilon spent, 1920 left (unit customer.customer_id, add_remove)\n"
    )
    assert code == 0


def eval_fraction(text: str) -> float:
    """`4/5` as a number."""
    above, _, below = text.partition("/")
    return int(above) / int(below or 1)


def test_publish_again_charges_nothing(tmp_path: Path) -> None:
    build(tmp_path).unlink()  # its stamp is gone, and so is the id that the ledger knows
    other = tmp_path / "again.dpsql"
    out, err, code = dpsql("publish", tmp_path / "shop.yaml", "-o", other, "--json")
    report = json.loads(out)
    assert (report["drawn"], report["charged"], report["left"], code) == (True, "80", "1840", 0)
    assert err == ""  # progress is for terminals
    again = json.loads(dpsql("publish", tmp_path / "shop.yaml", "-o", other, "--json")[0])
    assert (again["drawn"], again["release_id"]) == (False, report["release_id"])


def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    build(tmp_path).unlink()  # its stamp is gone, and so is the id that the ledger knows
    words = ["publish", str(tmp_path / "shop.yaml"), "-o", str(tmp_path / "b.dpsql")]
    command = [sys.executable, "-m", "dpsql", *words]
    leader, follower = pty.openpty()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=follower, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
        assert process.wait() == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""
    assert b"planned: 5 statistics" in shown
    assert b"published" in shown


def test_sql_errors_point_into_the_statement(shop: Path) -> None:
    _, err, code = dpsql("query", shop, "SELECT COUNT(*) FROM sale")
    assert code == 1
    first, line, caret = err.splitlines()
    assert first.startswith("dpsql: there is no table 'sale'; did you mean sales?")
    assert line == "SELECT COUNT(*) FROM sale"
    assert caret == "                     ^^^^"


def test_doctor(shop: Path, tmp_path: Path) -> None:
    out, _, code = dpsql("doctor", shop)
    assert code == 0
    assert f"ok   {shop}: release shop, 3 views" in out
    (tmp_path / "bad.dpsql").write_text("no")
    report = json.loads(dpsql("doctor", tmp_path / "bad.dpsql", "--json")[0])
    assert [each["what"] for each in report["findings"] if not each["fine"]] == [str(tmp_path / "bad.dpsql")]
    assert dpsql("doctor", tmp_path / "bad.dpsql")[2] == 2


def test_completion_of_commands() -> None:
    environment = {
        **os.environ,
        "_DPSQL_COMPLETE": "bash_complete",
        "COMP_WORDS": "dpsql pub",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "dpsql"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert "plain,publish" in done.stdout


def test_a_full_standard_output_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was done stays done; the line says so."""
    echo = click.echo

    def full(message: object = None, *, err: bool = False, **others: object) -> None:
        if not err:
            raise OSError(errno.ENOSPC, "No space left on device")
        echo(message, err=err)

    monkeypatch.setattr(click, "echo", full)
    catalog = tmp_path / "survey.yaml"
    catalog.write_bytes((Path(__file__).parents[2] / "catalog" / "survey.yaml").read_bytes())
    done = dpsql_command("budget", catalog)
    assert (done.returncode, len(done.stderr.splitlines())) == (4, 1)
    assert "the command succeeded, but its output cannot be written (No space left on device)" in done.stderr


def test_faults_that_nobody_foresaw_are_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*words: object) -> None:
        raise MemoryError

    monkeypatch.setattr("dpsql.api.budget", broken)
    done = dpsql_command("budget", tmp_path / "shop.yaml")
    assert (done.returncode, done.stderr) == (
        4, "dpsql: the system refused: out of memory; give the process more memory, then run the same command again\n",
    )  # fmt: skip


MISTAKES = sections(Path(__file__).with_name("mistakes.txt"))


@pytest.mark.parametrize(("typed", "said"), [case for (case,) in MISTAKES.values()], ids=MISTAKES)
def test_a_mistake_is_named_with_what_to_write_instead(
    typed: str, said: str, shop: Path, tmp_path: Path
) -> None:
    files = {
        "excel/a.xlsx": b"PK", "empty/a.csv": b"", "twice/a.csv": b"id,ID\n1,2\n", "ragged/a.csv": b"a,b\n1,2\n3,4,5\n",
        "latin/a.csv": b"id,city\n1,K\xf6ln\n2,N\xeemes\n", "lines/a.csv": b"id,city\n1,K\xf6ln\n",
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    places = {"shop": str(shop), "shop.yaml": str(shop.with_suffix(".yaml"))}
    before = sorted(tmp_path.iterdir())
    out, told, code = dpsql(*(places.get(word, word) for word in shlex.split(typed)), folder=tmp_path)
    assert said in " ".join(told.split()) and code in (1, 2) and "Traceback" not in told, told
    assert out == "" and sorted(tmp_path.iterdir()) == before


def test_lines_that_are_lost_on_purpose_make_a_draft(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,city\n" + b"1,K\xf6ln\n2,Bonn\n" * 60)
    out, told, code = dpsql("init", "a.csv", "-o", "some.yaml", "--skip-lines", folder=tmp_path)
    assert code == 0 and "60 of its lines" in out + told
    out, told, code = dpsql("init", "a.csv", "-o", "all.yaml", "--encoding", "cp1252", folder=tmp_path)
    assert code == 0 and "of its lines" not in out + told
    assert "K\u00f6ln" in (tmp_path / "all.yaml").read_text("utf-8")
