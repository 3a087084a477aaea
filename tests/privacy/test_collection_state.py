"""What a collector and a device keep is theirs alone, and a token's key is whole or not there.

Tokens are low-entropy pseudonyms: hashed without a key, or under one that others can read, anybody can guess them.
"""

from __future__ import annotations

import os
import stat
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.client import Memory, Row, read_plan, respond
from dpsql.client.entropy import system_entropy
from dpsql.errors import OperationalError
from dpsql.ledger import files as ledger_files
from dpsql.local.collector import add_spool
from dpsql.local.files import open_state, token_key
from tests.local_plans import write_survey

KEY = bytes(range(32))


@pytest.fixture(autouse=True)
def open_to_all() -> None:
    """The mode that most machines give to new files."""
    os.umask(0o022)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A plan, and forty reports with tokens in two files."""
    dpsql.collection_plan(write_survey(tmp_path), tmp_path / "plan.json", people=1000)
    plan = read_plan((tmp_path / "plan.json").read_bytes())
    for part in range(2):
        reports = [respond(plan, [Row((3, 1), (7,))], system_entropy) for _ in range(20)]
        columns = {"report": pa.array(reports, pa.binary()), "token": [f"person {i}" for i in range(20)]}
        pq.write_table(pa.table(columns), tmp_path / f"{part}.parquet")
    return tmp_path


def collect(folder: Path, part: int, release: str) -> dpsql.local.run.Collected:
    return dpsql.collect(
        folder / "plan.json", folder / f"{part}.parquet", folder / release, state=folder / "state"
    )


def modes(folder: Path) -> dict[str, int]:
    return {
        file.name: stat.S_IMODE(file.stat().st_mode)
        for file in folder.iterdir()
        if file.name.startswith("state")
    }


def test_state_and_key_are_readable_by_their_owner_alone(folder: Path) -> None:
    collect(folder, 0, "a.dpsql")
    assert modes(folder) == {"state": 0o600, "state.key": 0o600}
    second = collect(folder, 1, "b.dpsql")
    assert modes(folder) == {"state": 0o600, "state.key": 0o600}
    assert second.manifest.rejected == {"repeated token": 20}


def test_no_log_beside_the_state_is_open_to_others_while_reports_are_counted(folder: Path) -> None:
    plan = read_plan((folder / "plan.json").read_bytes())
    state = open_state(plan, folder / "state", token_key(folder / "state", KEY))
    add_spool(state, plan, folder / "0.parquet", KEY)
    assert set(modes(folder).values()) == {0o600}
    state.close()


@pytest.mark.parametrize("length", [0, 1, 31, 33, 64])
def test_a_key_of_another_length_is_refused(folder: Path, length: int) -> None:
    (folder / "state.key").write_bytes(b"k" * length)
    (folder / "state.key").chmod(0o600)
    with pytest.raises(OperationalError, match=f"has {length} bytes"):
        collect(folder, 0, "a.dpsql")
    assert not (folder / "state").exists()
    assert not (folder / "a.dpsql").exists()


def test_a_state_without_its_own_key_is_refused(folder: Path) -> None:
    collect(folder, 0, "a.dpsql")
    key = folder / "state.key"
    held = key.read_bytes()
    key.unlink()
    with pytest.raises(OperationalError, match=r"its key state\.key is not"):
        collect(folder, 1, "b.dpsql")
    assert not key.exists(), "a new key would let every token in once more"
    key.write_bytes(KEY)
    key.chmod(0o600)
    with pytest.raises(OperationalError, match="not the one its tokens were hashed with"):
        collect(folder, 1, "b.dpsql")
    key.write_bytes(held)
    assert collect(folder, 1, "b.dpsql").manifest.rejected == {"repeated token": 20}


@pytest.mark.parametrize("name", ["state", "state.key"])
def test_what_others_can_read_is_refused(folder: Path, name: str) -> None:
    collect(folder, 0, "a.dpsql")
    (folder / name).chmod(0o640)
    with pytest.raises(OperationalError, match=f"{name} is open to others"):
        collect(folder, 1, "b.dpsql")


@pytest.mark.parametrize("broken", ["fsync", "fdopen", "replace"])
def test_a_crash_while_the_key_is_made_leaves_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def crash(*arguments: object) -> None:
        raise KeyboardInterrupt

    owner = ledger_files.Path if broken == "replace" else ledger_files.os
    with monkeypatch.context() as patched:
        patched.setattr(owner, broken, crash)
        with pytest.raises(KeyboardInterrupt):
            token_key(folder / "state", KEY)
    assert not (folder / "state.key").exists()
    assert token_key(folder / "state", KEY) == KEY
    assert (folder / "state.key").read_bytes() == KEY


def test_an_empty_state_is_none(folder: Path) -> None:
    (folder / "state").touch(0o600)
    with pytest.raises(OperationalError, match="not the state of a collection"):
        collect(folder, 0, "a.dpsql")


def test_a_device_s_memory_is_its_owner_s_alone(folder: Path) -> None:
    plan = read_plan((folder / "plan.json").read_bytes())
    memory = Memory(folder / "made" / "memory.json", Fraction(1), Fraction(1))
    assert memory.answer(plan, [Row((3, 1), (7,))], system_entropy)
    found = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (folder / "made").iterdir()}
    assert found == {"memory.json": 0o600, "memory.json.lock": 0o600}
    assert stat.S_IMODE((folder / "made").stat().st_mode) == 0o700
    (folder / "made" / "memory.json").chmod(0o644)  # made by hand, or brought back from a copy
    plan = read_plan((folder / "plan.json").read_bytes())
    assert memory.answer(plan, [Row((3, 1), (7,))], system_entropy)


def test_simulated_reports_are_their_maker_s_alone(folder: Path) -> None:
    """Their draws can be had again from a seed, so they tell as much as the rows."""
    from dpsql.local.simulate import write_spool

    write_spool(folder / "r.parquet", [b"x"] * 3)
    assert stat.S_IMODE((folder / "r.parquet").stat().st_mode) == 0o600
