"""Ctrl-C and SIGTERM end a command with one line that says what is charged, whatever it was doing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator

import click
import duckdb
import pytest
from click.testing import CliRunner

from dpsql.errors import INTERRUPTED, TERMINATED
from dpsql.faults import CHARGED, machine
from dpsql.interfaces.cli import CommandGroup
from dpsql.release.request import executed, heeding_keys


@pytest.fixture
def heeded() -> Iterator[None]:
    """Ctrl-C as a terminal's programs have it, also where these tests run in the background."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    assert {number: signal.signal(number, handler) for number, handler in before.items()} == usual


def ended(work: Callable[[], object]) -> tuple[int, str, BaseException | None]:
    """A command of a group in a group that does some work: its exit code, its words, what it raised."""
    inner = CommandGroup("inner", commands=[click.Command("work", callback=work)])
    done = CliRunner().invoke(CommandGroup("outer", commands=[inner]), ["inner", "work"])
    return done.exit_code, done.output, done.exception


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)])
def test_a_signal_in_python_and_in_duckdb(number: signal.Signals, code: int) -> None:
    def press() -> None:
        os.kill(os.getpid(), number)

    def counts() -> None:
        with machine("not in place", CHARGED), duckdb.connect() as connection:
            threading.Timer(0.1, press).start()
            while True:  # short statements: DuckDB looks for keys between the tasks of one
                connection.execute("SELECT sum(range) FROM range(1000000)").fetchall()

    def counts_as_duckdb_says_it() -> None:
        with machine("not in place", CHARGED):
            try:
                press()
            except (KeyboardInterrupt, SystemExit):
                raise RuntimeError("Query interrupted") from None

    assert ended(press)[:2] == (code, "dpsql: stopped\n")
    for work in (counts, counts_as_duckdb_says_it):
        assert ended(work)[:2] == (code, f"dpsql: stopped; {CHARGED}\n")


@pytest.mark.usefixtures("heeded")
def test_a_statement_ends_with_sigterm_too() -> None:
    """A thread of its own works on it, and whoever ends the program does not wait for the statement."""

    def asks() -> None:
        def never_ends() -> None:
            with duckdb.connect() as connection:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
                pairs = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range < b.range"
                executed(connection.cursor(), pairs, [], lambda cursor: cursor.fetchall())

        heeding_keys(never_ends, 60)

    assert ended(asks)[:2] == (TERMINATED, "dpsql: stopped\n")


@pytest.mark.usefixtures("heeded")
def test_no_other_fault_is_taken_for_ctrl_c() -> None:
    def breaks() -> None:
        raise RuntimeError("a mistake")

    code, said, error = ended(breaks)
    assert (code, said) == (1, "") and isinstance(error, RuntimeError)
