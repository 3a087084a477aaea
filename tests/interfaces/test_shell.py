"""The shell as users meet it: pipes, files, a pseudo-terminal, completion and Ctrl-C."""

from __future__ import annotations

import io
import os
import shlex
import signal
import sys
import termios
import threading
import time
from dataclasses import replace
from pathlib import Path

import pexpect
import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from dpsql.federation.session import OpenReleases, open_session
from dpsql.interfaces.cli import at_hand
from dpsql.interfaces.python.dbapi import InputPiece, split
from dpsql.interfaces.python.describe import Words
from dpsql.interfaces.shell import NAMES, ShellState, evaluate, shell_completer
from tests.command import dpsql_command
from tests.interrupts import heed_interrupts, piped

pytestmark = pytest.mark.usefixtures("publishes")

TEN = "(VALUES " + ",".join(f"({i})" for i in range(10)) + ")"
ENDLESS = (
    "SELECT COUNT(*) FROM " + ", ".join(f"{TEN} AS t{i}(x)" for i in range(12))
    + " WHERE " + "+".join(f"t{i}.x*t{(i + 1) % 12}.x" for i in range(12)) + " > 7;"
)  # fmt: skip
BY_REGION = "SELECT region, COUNT(*) AS n FROM sales JOIN customer USING (customer_id) GROUP BY region"
SALES = """\
column       type     nullable  comment
-----------  -------  --------  ------------------------------
customer_id  BIGINT   no        key
product_id   INTEGER  no        axis, key
amount       DOUBLE   no        0 to 100; measure
sold_on      DATE     no        2025-01-01 to 2025-12-31; axis
customer_id -> customer.customer_id
product_id -> product.product_id
"""


def run(shop: Path, *arguments: str, text: str = "") -> tuple[str, str, int]:
    """Standard output, standard error and exit code of `dpsql shell`."""
    done = dpsql_command("shell", shop, *arguments, text=text)
    return done.stdout, done.stderr, done.returncode


def test_commands_and_statements_in_order(shop: Path) -> None:
    script = "\\d sales\nSELECT 1 AS one; -- a note\n\\format jsonl\nSELECT 'a;b' AS two;\n.mode csv\nSELECT 3 AS three"
    out, err, code = run(shop, text=script)
    assert out == SALES + 'one\n1\nformat is jsonl\n{"two": "a;b"}\nformat is csv\nthree\n3\n'
    assert (err, code) == ("", 0)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("-c", "SELECT * FROM sales"), 1, "dpsql: the statement asks for rows of sales"),
        (("-c", "SELEC 1"), 1, "dpsql: "),
        (("-c", "\\nothing"), 2, "there is no command \\nothing"),
        (("-f", "absent.sql"), 2, "cannot read absent.sql"),
    ],
)
def test_exit_codes(shop: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    out, err, got = run(shop, *arguments)
    assert (out, got) == ("", code)
    assert words in err
    assert "Traceback" not in err


def test_a_script_stops_at_its_first_error(shop: Path) -> None:
    out, err, code = run(shop, text="SELECT 1 AS a;\nSELECT nothing FROM sales;\nSELECT 2 AS b;\n")
    assert (out, code) == ("a\n1\n", 1)
    assert err.count("dpsql:") == 1


def test_files_in_and_out(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "inner.sql").write_text("SELECT 1 AS one;\n\\x on\n")
    script = [
        f"\\o {tmp_path}/out.txt",
        f"\\i {tmp_path}/inner.sql",
        "\\format table",
        "SELECT 2 AS two;",
        "\\o",
    ]
    out, _, code = run(shop, text="\n".join([*script, "SELECT 3 AS t;", "\\q", "SELECT 4;"]))
    written = (tmp_path / "out.txt").read_text()
    assert written == "one\n1\nexpanded is on\nformat is table\n-[ row 1 ]-\ntwo  2\n"
    assert (out, code) == ("-[ row 1 ]-\nt  3\n", 0)
    (tmp_path / "loop.sql").write_text(f"\\i {tmp_path}/loop.sql\n")
    assert run(shop, "-f", f"{tmp_path}/loop.sql")[2] == 2


def test_switches_and_listings(shop: Path) -> None:
    out, _, code = run(
        shop,
        text="\\error off\n"
        + BY_REGION
        + ";\n\\releases\n\\explain SELECT COUNT(*) FROM sales;\n\\timing on\n.tables\n\\?\n",
    )
    assert code == 0
    assert "error is off\nregion,n\neast," in out
    assert "epsilon 80, unit customer.customer_id" in out
    assert "count: half of the 95% interval / 1.96 is" in out
    assert "timing is on" in out
    assert "\\explain   statement" in out


@pytest.mark.parametrize("text", ["help", "HELP;", "  help  \nSELECT 1 AS one;"])
def test_help_needs_neither_backslash_nor_semicolon(shop: Path, text: str) -> None:
    pieces, rest = split(text)
    assert (pieces[0].command, rest.strip()) == (True, "")
    out = io.StringIO()
    state = ShellState(open_session([shop]), "csv", output=out)
    for piece in pieces:
        evaluate(piece, state)
    assert "\\explain" in out.getvalue()
    assert split("help me;")[0] == [InputPiece("help me", False)]


@pytest.mark.slow
def test_ctrl_c_stops_a_statement(shop: Path) -> None:
    command = [sys.executable, "-m", "dpsql", "shell", str(shop), "-c", "SELECT 1 AS ready", "-c", ENDLESS]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = piped(command, env=environment)
    try:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()  # the shell is up; the endless statement follows at once
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (err, process.returncode) == ("dpsql: the statement was stopped\n", 130)


@pytest.fixture
def terminal(shop: Path, tmp_path: Path) -> pexpect.spawn:
    environment = {
        **os.environ,
        "TERM": "dumb",
        "XDG_STATE_HOME": str(tmp_path),
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    child = pexpect.spawn(
        sys.executable,
        ["-m", "dpsql", "shell", str(shop)],
        env=environment,
        preexec_fn=heed_interrupts,
        timeout=30,
        encoding="utf-8",
        dimensions=(40, 160),
    )
    child.expect("Statements end with ;")
    child.expect("dpsql> ")
    return child


def wait_until_read(terminal: pexpect.spawn, *, by_key: bool) -> None:
    """Until the shell reads key by key, as at its prompt, or leaves lines and signals to the terminal."""
    until = time.monotonic() + 30
    while bool(termios.tcgetattr(terminal.child_fd)[3] & termios.ISIG) == by_key:
        assert time.monotonic() < until
        time.sleep(0.05)


def alone(folder: Path, **environment: str) -> pexpect.spawn:
    """`dpsql` without a word, in a terminal."""
    world = {name: value for name, value in os.environ.items() if name != "DPSQL_RELEASE"}
    world |= {"TERM": "dumb", "XDG_STATE_HOME": str(folder), "PROMPT_TOOLKIT_NO_CPR": "1", **environment}
    command = [sys.executable, ["-m", "dpsql"]]
    return pexpect.spawn(*command, env=world, cwd=folder, timeout=30, encoding="utf-8", dimensions=(40, 160))


@pytest.mark.slow
def test_alone_it_opens_the_release_that_is_set(shop: Path, tmp_path: Path) -> None:
    child = alone(tmp_path, DPSQL_RELEASE=str(shop))
    child.expect("Statements end with ;")
    child.expect("dpsql> ")
    child.send("SELECT 1 AS one;\r")
    child.expect(r"one\r\n")
    child.send("\\q\r")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_alone_it_lists_what_is_at_hand(tmp_path: Path) -> None:
    child = alone(tmp_path)
    child.expect("no release here")
    child.expect("dpsql init data")
    child.expect(pexpect.EOF)
    for number in range(12):
        (tmp_path / f"it's {number:02}.dpsql").touch()
    assert shlex.split(at_hand(tmp_path).splitlines()[1]) == ["dpsql", "shell", "it's 00.dpsql"]
    assert "and 2 more" in at_hand(tmp_path)
    done = dpsql_command(cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("Usage: dpsql")


def test_terminal_session(terminal: pexpect.spawn, tmp_path: Path) -> None:
    terminal.send("SELECT 1 AS one,\r")
    terminal.send("2 AS two;\r")
    terminal.expect(r"one  two\r\n---  ---\r\n  1    2\r\n")
    terminal.send("SELECT * FROM sales;\r")
    terminal.expect("dpsql: the statement asks for rows of sales")
    terminal.expect(r" \^\r\n")
    terminal.send(f"{BY_REGION};\r")
    terminal.expect(r"east .*(± |/\+)")
    terminal.expect("dpsql> ")
    wait_until_read(terminal, by_key=True)
    terminal.send(ENDLESS + "\r")
    wait_until_read(terminal, by_key=False)  # the statement runs: Ctrl-C is a signal again
    time.sleep(1)
    terminal.sendintr()
    terminal.expect(r"statement was stopped\r\n", timeout=20)  # by the key, long before its time is up
    terminal.send("SELECT 5 AS five;\r")
    terminal.expect(r"five\r\n----\r\n   5\r\n")
    terminal.expect("dpsql> ")
    wait_until_read(terminal, by_key=True)
    terminal.sendcontrol("d")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    assert "2 AS two;" in (tmp_path / "dpsql" / "history").read_text()


@pytest.fixture(scope="module")
def completer(shop: Path) -> Completer:
    return shell_completer(
        Words(table for _, table in ShellState(open_session([shop]), "table").tables()), NAMES
    )


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("SELECT COUNT(*) FROM cu", ["customer"]),
        ("SELECT reg", ["region"]),
        ("SELECT sales.", ["customer_id", "product_id", "amount", "sold_on"]),
        ("SELECT 1 FROM customer WHERE region = '", ["east", "west"]),
        ("SELECT 1 FROM sales WHERE category IN ('tea', 'c", ["cake", "coffee"]),
        ("\\re", ["releases"]),
        ("\\d sa", ["sales"]),
        (".format j", ["json", "jsonl"]),
        ("SELECT DP_I", ["DP_INTERVAL_LOW(", "DP_INTERVAL_HIGH("]),
    ],
)
def test_completion(completer: Completer, text: str, offered: list[str]) -> None:
    found = [
        c.text for c in completer.get_completions(Document(text), CompleteEvent(completion_requested=True))
    ]
    assert found == offered


def test_completion_by_keys(completer: Completer) -> None:
    with create_pipe_input() as keys:
        typed = [
            (0.3, "SELECT COUNT(*) FROM cust"),
            (0.6, "\t"),
            (1.2, ";\r"),
        ]  # completion is a task of its own
        for delay, text in typed:
            threading.Timer(delay, keys.send_text, [text]).start()
        session: PromptSession[str] = PromptSession(
            input=keys, output=DummyOutput(), completer=completer, complete_while_typing=False
        )
        assert session.prompt() == "SELECT COUNT(*) FROM customer;"


@pytest.mark.parametrize(
    ("text", "pieces", "rest"),
    [
        ("SELECT ';' ; SELECT 2", [InputPiece("SELECT ';'", False)], " SELECT 2"),
        ("-- ;\nSELECT 1;", [InputPiece("SELECT 1", False)], ""),
        (";;\n\\q;", [InputPiece("\\q", True)], ""),
        ("SELECT 'open;", [], "SELECT 'open;"),
        ('/* ; */ SELECT "a;" ;', [InputPiece('SELECT "a;"', False)], ""),
    ],
)
def test_split(text: str, pieces: list[InputPiece], rest: str) -> None:
    assert split(text) == (pieces, rest)


@pytest.mark.parametrize("style", ["csv", "json", "jsonl"])
def test_notes_of_formats_for_programs_go_to_standard_error(
    shop: Path, style: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `dpsql query` does."""
    state = ShellState(open_session([shop]), style)
    note = "interpolating a cut bin"
    asked = state.asked.query("SELECT COUNT(*) FROM sales")
    monkeypatch.setattr(OpenReleases, "query", lambda *_, **__: replace(asked, notes=(note,)))
    evaluate(InputPiece("SELECT COUNT(*) FROM sales", False), state)
    out, err = capsys.readouterr()
    assert note not in out
    assert f"note: {note}\n" in err
