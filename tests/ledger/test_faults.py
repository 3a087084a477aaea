"""What a machine refuses while a release is charged: one line that says what is charged, and the same call ends it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

from dpsql.errors import Error, MachineFault
from dpsql.faults import BEGUN, CHARGED, RESERVED, UNCHARGED, UNSURE, machine
from dpsql.ledger.files import PATIENCE, beside, held
from dpsql.ledger.store import budget_report
from tests.ledger.test_ledger import Curator
from tests.thinned import by_default

pytestmark = pytest.mark.long

CALLS = ("open", "fsync", "replace", "mkdir", "chmod", "unlink", "rmdir")
FAULTS = (errno.ENOSPC, errno.EIO, errno.EPERM, errno.EACCES, errno.EROFS, errno.ENAMETOOLONG)


class Refusal:
    """Lets system calls of one name pass until the n-th, which fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, number: int, fault: int) -> None:
        self.left, self.real = number, getattr(os, name)

        def call(*words: object, **named: object) -> object:
            self.left -= 1
            if self.left == 0:
                raise OSError(fault, os.strerror(fault), str(words[0]))
            return self.real(*words, **named)

        monkeypatch.setattr(os, name, call)


WORDS = {"": UNCHARGED, "reserved": RESERVED, "sealed": CHARGED} | dict.fromkeys(
    ("begun keys", "begun", "ended"), BEGUN
)
"""What a line ends with by how the release stands."""


def spent(curator: Curator) -> Fraction:
    return sum((lineage.spent for lineage in budget_report(curator.ledger).lineages), Fraction(0))


def state(curator: Curator) -> str:
    """How the release `b` stands."""
    entries = [entry for lineage in budget_report(curator.ledger).lineages for entry in lineage.entries]
    return next((entry.state for entry in entries if entry.label == "b"), "")


def check_line(error: Error, curator: Curator, before: Fraction) -> None:
    """One line with exit code 3 or 4, whose last words are true; then the same call gives the release, charged once."""
    said, stands, drawn = str(error), state(curator), curator.draws
    assert (spent(curator) > before) is bool(stands)
    assert error.exit_code in (3, 4) and "\n" not in said
    assert said.endswith(WORDS[stands]) or said.endswith(UNSURE), said
    receipt = curator.publish("b")
    assert receipt.path.exists() and spent(curator) == before + Fraction(2, 5)
    assert receipt.drawn is (curator.draws > drawn) is (stands != "sealed")
    assert curator.left_over() == []


@pytest.mark.parametrize("first", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize("name", by_default(CALLS[1:] + CALLS[:1], 3))
def test_every_refused_call_is_a_sentence_and_the_next_publish_ends_it(tmp_path, monkeypatch, name, first):
    faults = 0
    for number in range(1, 100):
        curator = Curator(tmp_path / str(number))
        curator.folder.mkdir()
        if not first:
            curator.publish("a")
        before = Fraction(0) if first else Fraction(2, 5)
        with monkeypatch.context() as patch:
            refusal = Refusal(patch, name, number, FAULTS[number % len(FAULTS)])
            try:
                curator.publish("b")
                error = None
            except Error as refused:
                error = refused
        if refusal.left > 0:
            break
        if error is not None:
            faults += 1
            check_line(error, curator, before)
        assert curator.publish("b").path.exists() and spent(curator) == before + Fraction(2, 5)
    assert number > 1 and (faults or name == "rmdir")


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Writes past so many bytes of any file fail in this process, in DuckDB as well."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [10, 70, 150, 1000, 4096, 13000, 100_000, 270_000, 500_000])
def test_a_disk_that_takes_no_more_is_a_sentence(tmp_path, size):
    curator = Curator(tmp_path)
    curator.publish("a")
    with largest_file(size):
        try:
            curator.publish("b")
        except MachineFault as error:
            refused = error
        else:
            refused = None
    if refused is None:  # nothing as large was written before the ledger was closed
        assert size > 1000 and spent(curator) == Fraction(4, 5)
    else:
        check_line(refused, curator, Fraction(2, 5))


@pytest.mark.parametrize("size", [70, 5000, 300_000, 600_000, 800_000])
def test_a_ledger_that_found_no_room_is_made_by_the_next_publish(tmp_path, size):
    """DuckDB closes a file that it could not write without a word: such a file must not become the ledger."""
    curator = Curator(tmp_path)
    with largest_file(size), contextlib.suppress(MachineFault):
        curator.publish("a")
    curator.publish("a")
    assert spent(curator) == Fraction(2, 5) and curator.draws <= 2 and curator.left_over() == []


def test_what_ctrl_c_ends_says_what_is_charged(tmp_path):
    """At every step: the note is true, and the same publish gives the release, charged once."""
    steps: list[str] = []
    Curator(tmp_path / "watched").publish("b", kill_point=steps.append)
    said = set()
    for number, step in enumerate(steps):

        def press(now: str, step: str = step) -> None:
            if now == step:
                raise KeyboardInterrupt

        curator = Curator(tmp_path / str(number))
        curator.folder.mkdir()
        with pytest.raises(KeyboardInterrupt) as stopped:
            curator.publish("b", kill_point=press)
        (note,) = stopped.value.__notes__
        stands = state(curator)
        assert note in (UNSURE, WORDS[stands]), step
        said.add(note)
        assert curator.publish("b").drawn is (stands != "sealed"), step
        assert spent(curator) == Fraction(2, 5) and curator.left_over() == []
    assert said == {UNCHARGED, RESERVED, UNSURE, CHARGED}


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_after_a_charge_nobody_says_that_there_was_none(tmp_path, stop):
    with pytest.raises(stop) as stopped, machine("the release was not published", UNCHARGED):
        Curator(tmp_path).publish("b")
        raise stop
    assert stopped.value.__notes__ == [UNSURE]
    with pytest.raises(stop) as stopped, machine("the release was not published", UNCHARGED):
        raise stop
    assert stopped.value.__notes__ == [UNCHARGED]


def out_of_duckdb(path: Path) -> None:
    with duckdb.connect(config={"memory_limit": "2MB", "max_temp_directory_size": "0B"}) as small:
        small.execute("CREATE TABLE t AS SELECT random() AS x FROM range(10000000)")


def out_of_python(path: Path) -> None:
    raise MemoryError


@pytest.mark.parametrize("build", [out_of_duckdb, out_of_python])
def test_out_of_memory_is_a_sentence(tmp_path, build: Callable[[Path], None]):
    curator = Curator(tmp_path)
    words = (
        "out of memory; the charge is reserved; give the process more memory, then run the same command again"
    )
    with pytest.raises(MachineFault, match=words) as caught:
        curator.publish("b", build=build)
    assert state(curator) == "reserved" and curator.left_over() == []
    assert curator.publish("b").drawn, "with memory enough"
    assert caught.value.exit_code == 4


def test_whoever_waits_is_told_for_whom(tmp_path, monkeypatch, caplog):
    curator = Curator(tmp_path)
    monkeypatch.setenv(PATIENCE, "0.1")
    monkeypatch.setattr("dpsql.ledger.files.SILENT", 0.0)
    monkeypatch.setattr("sys.argv", ["/bin/dpsql", "publish", "my shop.yaml"])
    with held(beside(curator.ledger, ".lock")):
        with pytest.raises(MachineFault) as caught:
            curator.publish("a")
        for words in (
            f"held by process {os.getpid()} on {os.uname().nodename} since 20",
            "(dpsql publish 'my shop.yaml')",
        ):
            assert words in str(caught.value)
            assert words in caplog.text
        assert str(caught.value).endswith(UNCHARGED)
    assert curator.publish("a").drawn


@pytest.mark.parametrize(
    ("note", "words"),
    [
        ({"pid": 2**22 + 1, "host": os.uname().nodename, "since": "", "command": ""}, "4194305, which has ended"),
        ({"pid": 1, "host": "\x1b[2Jelsewhere", "since": "noon", "command": "dpsql"}, r"\\x1b\[2Jelsewhere since noon"),
        ({"pid": 1}, "another program, which left no note"),
    ],
)  # fmt: skip
def test_a_note_is_believed_only_while_its_process_lives(tmp_path, monkeypatch, note, words):
    curator = Curator(tmp_path)
    curator.publish("a")
    lock = beside(curator.ledger, ".lock")
    with lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lock.write_text(json.dumps(note))
        monkeypatch.setenv(PATIENCE, "0")
        with pytest.raises(MachineFault, match=words):
            curator.publish("b")
    assert curator.publish("b").drawn  # whatever the note says: its lock went with its process


def test_a_lock_that_was_removed_stops_the_charge(tmp_path):
    curator = Curator(tmp_path)

    def build(path: Path) -> None:
        beside(curator.ledger, ".lock").unlink()
        path.write_text("drawn")

    with pytest.raises(MachineFault, match="removed while it was held") as caught:
        curator.publish("b", build=build)
    check_line(caught.value, curator, Fraction(0))


def test_patience_is_a_number(tmp_path, monkeypatch):
    monkeypatch.setenv(PATIENCE, "soon")
    with pytest.raises(MachineFault, match="not a number of seconds"):
        Curator(tmp_path).publish("a")
