"""Ctrl-C ends a command with one line that says what is charged, whatever it was doing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator

import click
import duckdb
import pytest
from click.testing import CliRunner

from dpsql.doors.cli.command import CommandGroup
from dpsql.errors import INTERRUPTED
from dpsql.faults import CHARGED, machine


@pytest.fixture
def heeded() -> Iterator[None]:
    """Ctrl-C as a terminal's programs have it, also where these tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def ended(work: Callable[[], object]) -> tuple[int, str, BaseException | None]:
    """A command of a group in a group that does some work: its exit code, its words, what it raised."""
    inner = CommandGroup("inner", commands=[click.Command("work", callback=work)])
    done = CliRunner().invoke(CommandGroup("outer", commands=[inner]), ["inner", "work"])
    return done.exit_code, done.output, done.exception


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_in_python_and_in_duckdb() -> None:
    def counts() -> None:
        with machine("not in place", CHARGED), duckdb.connect() as connection:
            threading.Timer(0.1, press).start()
            while True:  # short statements: DuckDB looks for keys between the tasks of one
                connection.execute("SELECT sum(range) FROM range(1000000)").fetchall()

    def counts_as_duckdb_says_it() -> None:
        with machine("not in place", CHARGED):
            try:
                press()
            except KeyboardInterrupt:
                raise RuntimeError("Query interrupted") from None

    assert ended(press)[:2] == (INTERRUPTED, "dpsql: stopped\n")
    for work in (counts, counts_as_duckdb_says_it):
        assert ended(work)[:2] == (INTERRUPTED, f"dpsql: stopped; {CHARGED}\n")


@pytest.mark.usefixtures("heeded")
def test_no_other_fault_is_taken_for_ctrl_c() -> None:
    def breaks() -> None:
        raise RuntimeError("a mistake")

    code, said, error = ended(breaks)
    assert (code, said) == (1, "") and isinstance(error, RuntimeError)
