"""A ledger exists once: copies are whole and private, moves leave a note, and an older copy spends nothing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import Error, IntegrityError, MachineFault, OperationalError
from dpsql.ledger import copies
from dpsql.ledger.copies import backup_ledger, move_ledger
from dpsql.ledger.files import beside, signing_seed
from dpsql.ledger.store import budget_report
from tests.command import dpsql_command
from tests.ledger.test_ledger import Curator
from tests.thinned import by_default

pytestmark = pytest.mark.long


@pytest.fixture
def curator(tmp_path: Path) -> Curator:
    curator = Curator(tmp_path / "shop")
    curator.folder.mkdir()
    curator.publish("a")
    return curator


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def spent(ledger: Path) -> Fraction:
    (lineage,) = budget_report(ledger).lineages
    return lineage.spent


def test_a_backup_is_whole_private_and_can_be_restored(curator, tmp_path):
    seed, safe = signing_seed(curator.ledger), tmp_path / "safe"
    bare = backup_ledger(curator.ledger, safe / "bare", with_key=False)
    full = backup_ledger(curator.ledger, safe / "full", with_key=True)
    assert (bare.entries, [file.name for file in bare.files]) == (2, ["bare.head"])
    assert [file.name for file in full.files] == ["full.head", "full.key"]
    assert sorted(file.name for file in safe.iterdir()) == [
        "bare",
        "bare.head",
        "full",
        "full.head",
        "full.key",
    ]
    assert modes(safe) == {0o600} and spent(safe / "full") == Fraction(2, 5)
    shutil.rmtree(curator.ledger.parent)
    move_ledger(safe / "full", curator.ledger)
    assert curator.publish("b").left == Fraction(16, 5) and signing_seed(curator.ledger) == seed
    with pytest.raises(OperationalError, match="exists"):
        backup_ledger(curator.ledger, safe / "bare", with_key=False)
    with pytest.raises(OperationalError, match="there is no ledger"):
        backup_ledger(tmp_path / "none", safe / "none", with_key=False)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_restored_old_copy_spends_nothing(curator, tmp_path, elsewhere):
    """The whole folder is an older one; what was released since is gone from here or lay elsewhere."""
    old = tmp_path / "old"
    shutil.copytree(curator.ledger.parent, old)
    (curator.folder / "out").mkdir()
    curator.publish("b", **({"target": curator.folder / "out" / "b.dpsql"} if elsewhere else {}))
    shutil.rmtree(curator.ledger.parent)
    shutil.copytree(old, curator.ledger.parent)
    for released in curator.folder.rglob("b.dpsql"):
        released.unlink()
    for folder in (curator.folder, curator.folder / "out"):
        with pytest.raises(IntegrityError, match="is an older copy: it has 2 entries"):
            curator.publish("c", target=folder / "c.dpsql")
    assert curator.draws == 2 and spent(curator.ledger) == Fraction(2, 5)
    assert not curator.publish("a").drawn  # what it knows it still tells


def test_a_ledger_that_went_another_way_spends_nothing(curator, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(curator.ledger.parent, old)
    mark = next(curator.folder.glob(".dpsql-*"))
    curator.publish("b")
    newest = mark.read_bytes()
    shutil.rmtree(curator.ledger.parent)
    shutil.copytree(old, curator.ledger.parent)
    for file in (mark, *curator.folder.glob("b.dpsql")):
        file.unlink()
    curator.publish("b")  # nothing could tell: everything that knew of the other one is gone
    mark.chmod(0o600)
    mark.write_bytes(newest)
    with pytest.raises(IntegrityError, match="a different history"):
        curator.publish("c")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"entries": "x", "hash": ""}', '{"entries": -1, "hash": ""}']
)
def test_a_damaged_mark_stops_spending_and_somebody_elses_does_not(curator, monkeypatch, text):
    mark = next(file for file in curator.folder.glob(".dpsql-*"))
    good = mark.read_bytes()
    mark.write_text(text)
    with pytest.raises(IntegrityError, match="spending has stopped"):
        curator.publish("b")
    mark.unlink()
    mark.symlink_to("/dev/zero")
    assert curator.publish("b").drawn and good
    assert not mark.is_symlink() and stat.S_IMODE(mark.stat().st_mode) == 0o600
    mark.write_text(text)
    monkeypatch.setattr(os, "geteuid", lambda: mark.stat().st_uid + 1)
    assert curator.publish("c").drawn


def test_a_mark_has_at_most_four_kibibytes(curator: Curator) -> None:
    mark = next(file for file in curator.folder.glob(".dpsql-*"))
    text = mark.read_text()
    mark.write_text(" " * (4096 - len(text)) + text)
    assert curator.publish("b").drawn
    text = mark.read_text()
    mark.write_text(" " * (4097 - len(text)) + text)
    with pytest.raises(IntegrityError, match="spending has stopped"):
        curator.publish("c")


def state_of(curator: Curator, label: str) -> Path:
    return curator.ledger.with_name(f"{label}.{hashlib.sha256(b'shop').hexdigest()[:8]}.stream")


def test_a_move_leaves_a_note_and_takes_key_and_streams_along(curator, tmp_path):
    seed, state, new = signing_seed(curator.ledger), state_of(curator, "a"), tmp_path / "safe" / "shop.ledger"
    state.write_text("sums")
    other = curator.ledger.with_name("b.00000000.stream")
    other.write_text("of another ledger")
    moved = move_ledger(curator.ledger, new)
    assert moved.entries == 2 and {file.name for file in moved.files} == {
        *("shop.ledger.head", "shop.ledger.key", state.name)
    }
    assert not state.exists() and other.exists() and not curator.ledger.exists()
    for attempt in (
        lambda: curator.publish("b"),
        lambda: curator.publish("a"),
        lambda: budget_report(curator.ledger),
    ):
        with pytest.raises(IntegrityError, match=f"was moved to {new}"):
            attempt()
    with pytest.raises(OperationalError, match="was moved to"):
        move_ledger(curator.ledger, tmp_path / "third")
    assert move_ledger(curator.ledger, new).entries == 2  # again: done
    curator.ledger = new
    assert curator.publish("b").left == Fraction(16, 5) and signing_seed(new) == seed
    assert new.with_name(state.name).read_text() == "sums"


def test_a_move_into_something_is_refused(curator, tmp_path):
    (tmp_path / "taken").write_text("x")
    for new in (tmp_path / "taken", curator.ledger):
        with pytest.raises(OperationalError):
            move_ledger(curator.ledger, new)
    state = state_of(curator, "a")
    state.write_text("sums")
    state.with_name(state.name + "-journal").write_text("half an append")
    with pytest.raises(OperationalError, match="was cut short"):
        move_ledger(curator.ledger, tmp_path / "new")
    assert spent(curator.ledger) == Fraction(2, 5)


@pytest.mark.parametrize("number", by_default(range(1, 12), 4))
def test_a_move_that_was_cut_short_is_finished_and_never_two_spend(curator, tmp_path, monkeypatch, number):
    state_of(curator, "a").write_text("sums")
    signing_seed(curator.ledger)
    new, old, steps, sync = tmp_path / "new" / "ledger", curator.ledger, 0, os.fsync

    def fsync(handle: int) -> None:
        nonlocal steps
        steps += 1
        if steps == number:
            raise OSError(5, "Input/output error")
        sync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(MachineFault, match="run the same command again"):
            move_ledger(old, new)
    can_spend = 0
    for ledger in (old, new):
        copy = tmp_path / f"copy{ledger == old}"
        shutil.copytree(ledger.parent, copy)
        with contextlib.suppress(Error):
            can_spend += bool(budget_report(copy / ledger.name).lineages)
    assert can_spend <= 1
    assert move_ledger(old, new).entries == 2
    curator.ledger = new
    assert curator.publish("b").left == Fraction(16, 5)
    assert not list(new.parent.glob("*.new")) and json.loads(beside(old, ".head").read_text())[
        "moved"
    ] == str(new)
    assert new.with_name(state_of(curator, "a").name).read_text() == "sums"


def test_a_copy_is_looked_at(curator, tmp_path, monkeypatch):
    monkeypatch.setattr(copies, "holds", lambda path, sha256: False)
    with pytest.raises(MachineFault, match="no backup was made: the copy differs"):
        backup_ledger(curator.ledger, tmp_path / "copy", with_key=False)
    assert not (tmp_path / "copy").exists()


def test_commands(curator, tmp_path):
    done = dpsql_command("ledger", "backup", curator.ledger, "-o", tmp_path / "copy", "--json")
    assert json.loads(done.stdout) == {
        "command": "ledger backup", "code": 0,
        "ledger": str(tmp_path / "copy"), "entries": 2, "files": [str(tmp_path / "copy.head")],
    }  # fmt: skip
    moved = dpsql_command("ledger", "move", curator.ledger, tmp_path / "new")
    assert moved.returncode == 0 and "moved the ledger to" in moved.stderr
    assert dpsql_command("ledger", "backup", curator.ledger, "-o", tmp_path / "third").returncode == 2
