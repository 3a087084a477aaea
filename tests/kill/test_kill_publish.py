"""kill -9 during publish: nothing partial, nothing lost, nothing charged twice, no draw left over.

Fifteen kills are systematic, one at each step of the protocol (six of them inside the ledger's
transactions or right at their ends); the others come at random moments. Each child notes the steps that it
reaches, so the tests know, and demand, that six in ten kills land inside a publish.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from dpsql.errors import IntegrityError, OperationalError, ReleaseError
from dpsql.ledger.publish import opened, settle
from dpsql.ledger.store import budget_report
from dpsql.release import open_release
from tests.kill import publishing_child as child
from tests.thinned import by_default

CHILD = Path(child.__file__)


def start(folder: Path, label: str, step: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(CHILD), str(folder), label, step])


def steps_of(folder: Path, label: str) -> list[str]:
    """Steps in order; a line that the kill cut short does not count."""
    path = folder / "steps"
    lines = path.read_text().splitlines() if path.exists() else []
    parts = [line.split() for line in lines]
    return [part[1] for part in parts if len(part) == 2 and part[0] == label and part[1] in child.STEPS]


def check_after_kill(folder: Path, label: str) -> bool:
    """Recover, publish again, and check every promise. Returns whether the kill was inside the publish."""
    reached = steps_of(folder, label)
    last = child.STEPS.index(reached[-1]) if reached else 0
    ledger = folder / "ledger" / "ledger.duckdb"
    check_drafts(folder)
    if ledger.exists():
        with opened(ledger) as (store, _):
            settle(store)
    assert left_over(folder) == []
    shown = (folder / f"{label}.dpsql").exists()
    charged = [e for lineage in budget_report(ledger).lineages for e in lineage.entries if e.label == label]
    assert len(charged) <= 1 and shown == any(entry.state == "sealed" for entry in charged)
    assert charged or last < child.RESERVED  # nothing is drawn that is not charged
    assert shown or last < child.SEALED
    receipt = child.publish(folder, label, "none")
    assert receipt.drawn == (not shown) and receipt.taken_up == (bool(charged) and not shown)
    if charged:
        assert receipt.release_id == charged[0].release_id
    with duckdb.connect(str(receipt.path), read_only=True) as release:
        assert release.execute("SELECT release_id FROM meta").fetchall() == [(receipt.release_id,)]
        assert release.execute("SELECT count(*) FROM measurement").fetchall() == [(220_000,)]
    assert left_over(folder) == []
    return reached != [] and reached[-1] in child.INSIDE


def check_drafts(folder: Path) -> None:
    """No reader opens what a kill has left of a draw; a database that DuckDB has just begun may bear no mark yet."""
    for draft in (folder / "ledger").glob("*.draft/*.dpsql"):
        try:
            with duckdb.connect(str(draft)) as begun:
                assert begun.execute("SHOW ALL TABLES").fetchall() == []
        except duckdb.Error as error:
            assert "not a valid DuckDB database" in str(error), error
        with pytest.raises(ReleaseError):
            open_release(draft, insecure=True)


def left_over(folder: Path) -> list[Path]:
    return [*folder.glob(".*.copy"), *folder.glob("*.wal"), *(folder / "ledger").glob("*.draft")]


def check_totals(folder: Path, labels: int) -> None:
    (lineage,) = budget_report(folder / "ledger" / "ledger.duckdb").lineages
    assert len(lineage.entries) == labels == len(list(folder.glob("*.dpsql")))
    assert lineage.spent == labels * child.EPSILON


def kill_at_each_step(folder: Path, prefix: str) -> int:
    inside = 0
    for number, step in enumerate(child.STEPS):
        process = start(folder, f"{prefix}{number}", step)
        assert process.wait(60) == -signal.SIGKILL
        inside += check_after_kill(folder, f"{prefix}{number}")
    return inside


def kill_at_random(folder: Path, label: str, clock: random.Random) -> bool:
    """Kill a little after the publish has begun; whatever step that is."""
    process = start(folder, label, "none")
    deadline = time.monotonic() + 60
    while not steps_of(folder, label) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(clock.uniform(0, 0.12))
    process.kill()
    process.wait(60)
    return check_after_kill(folder, label)


@pytest.mark.timeout(3600)  # of a clock, beside whatever else runs
@pytest.mark.parametrize(
    ("rounds", "random_kills"), [(1, 2), pytest.param(5, 135, marks=pytest.mark.slow)], ids=["17", "200"]
)
def test_kills(tmp_path, rounds, random_kills):
    clock, kills = random.Random(rounds), rounds * len(child.STEPS) + random_kills
    inside = sum(kill_at_each_step(tmp_path, f"s{number}-") for number in range(rounds))
    inside += sum(kill_at_random(tmp_path, f"r{number}", clock) for number in range(random_kills))
    assert inside >= 0.6 * kills, f"{inside} of {kills} kills were inside a publish"
    check_totals(tmp_path, kills)


@pytest.mark.parametrize("step", ["sealed:committed", "readable"])
def test_a_charged_draw_that_vanished_stays_charged_and_says_so(tmp_path, step):
    start(tmp_path, "a", step).wait(60)
    (draw,) = tmp_path.glob("ledger/*.draft/a.dpsql")
    draw.unlink()
    with opened(tmp_path / "ledger" / "ledger.duckdb") as (store, _):
        assert settle(store).lost == tmp_path / "a.dpsql"
    (lineage,) = budget_report(tmp_path / "ledger" / "ledger.duckdb").lineages
    assert lineage.spent == child.EPSILON and not lineage.entries[0].present


@pytest.mark.parametrize("kept", by_default([0.0, 0.3, 0.6, 0.9, 0.999], 2))
def test_a_log_that_was_cut_after_the_release_was_shown_stops_spending(tmp_path, kept):
    """DuckDB opens a cut write-ahead log as a shorter history; the head outside the ledger tells."""
    child.publish(tmp_path, "a", "none")
    start(tmp_path, "b", "renamed").wait(60)
    log = tmp_path / "ledger" / "ledger.duckdb.wal"
    log.write_bytes(log.read_bytes()[: int(log.stat().st_size * kept)])
    with pytest.raises((IntegrityError, OperationalError)):
        child.publish(tmp_path, "c", "none")
    assert not (tmp_path / "c.dpsql").exists()


def test_a_crash_while_the_ledger_was_made_is_no_obstacle(tmp_path):
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    (ledger / "ledger.duckdb.new").write_bytes(b"half a file")
    (ledger / "ledger.duckdb.new.wal").write_bytes(b"half a log")
    (ledger / "ledger.duckdb.head").write_text(f'{{"sequence": 0, "hash": "{"0" * 64}"}}')
    assert child.publish(tmp_path, "a", "none").drawn
