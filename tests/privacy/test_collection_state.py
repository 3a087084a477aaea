"""What a collector and a device keep is theirs alone, and a token's key is whole or not there.

Tokens are low-entropy pseudonyms: hashed without a key, or under one that others can read, anybody can guess them.
"""

from __future__ import annotations

import json
import os
import stat
import struct
from fractions import Fraction
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import dpsql
from dpsql.client import Memory, Row, read_plan, respond
from dpsql.client.entropy import system_entropy
from dpsql.errors import DataError, InterfaceError, OperationalError
from dpsql.interfaces.cli import all_commands, cli
from dpsql.ledger import files as ledger_files
from dpsql.local.collector import add_spool
from dpsql.local.files import open_state, token_key
from dpsql.local.survey import ReportProvenance, read_items, write_items
from dpsql.noise import ZeroNoise
from tests.local_plans import write_survey
from tests.privacy.test_canaries import published
from tests.stream_shop import StreamShop, make_stream_shop

KEY = bytes(range(32))
PEOPLE = 20


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
        reports = [respond(plan, [Row((3, 1), (7,))], system_entropy) for _ in range(PEOPLE)]
        columns = {"report": pa.array(reports, pa.binary()), "token": [f"person {i}" for i in range(PEOPLE)]}
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
def test_a_crash_while_the_key_is_made_leaves_none(folder, monkeypatch, broken):
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


# Erasing a person: what dpsql keeps of one person can be erased, and elsewhere it keeps nothing of her.


@pytest.fixture
def collected(folder: Path) -> Path:
    """The folder, with the state of twenty people."""
    collect(folder, 0, "before.dpsql")
    return folder


def held(folder: Path) -> list[tuple[int, bytes]]:
    with duckdb.connect(str(folder / "state"), read_only=True) as state:
        return state.execute("SELECT token, report FROM held ORDER BY token").fetchall()


def test_reports_of_a_token_leave_a_collections_state(collected: Path):
    before, bytes_before = dict(held(collected)), (collected / "state").read_bytes()
    found = dpsql.forget(collected / "state", ["person 3", "person 7", "person 7", "nobody"])
    assert found.erased == 2
    after, bytes_after = dict(held(collected)), (collected / "state").read_bytes()
    assert len(after) == PEOPLE - 2 and after.items() <= before.items()
    gone = before.keys() - after.keys()
    hashes = {token: struct.pack("<QQ", token & (2**64 - 1), token >> 64) for token in before}
    assert all(hashes[token] in bytes_before for token in before), "a scan that finds nothing shows nothing"
    assert not any(hashes[token] in bytes_after for token in gone)
    assert stat.S_IMODE((collected / "state").stat().st_mode) == 0o600
    assert {file.name for file in collected.iterdir() if file.name.startswith("state")} == {
        "state",
        "state.key",
    }


def test_what_was_erased_does_not_come_back_and_every_report_is_accounted_for(collected: Path):
    dpsql.forget(collected / "state", ["person 3"])
    manifest = collect(collected, 0, "after.dpsql").manifest  # with the same spool
    assert (manifest.reports, manifest.accepted) == (PEOPLE, PEOPLE - 1)
    assert manifest.rejected == {"erased on request": 1}
    assert dpsql.forget(collected / "state", ["person 3"]).erased == 0
    assert collect(collected, 0, "again.dpsql").manifest.rejected == {"erased on request": 1}


def test_nothing_is_erased_by_halves(collected: Path):
    before = (collected / "state").read_bytes()
    with duckdb.connect(str(collected / "state")), pytest.raises(OperationalError):
        dpsql.forget(collected / "state", ["person 3"])
    (collected / "state.key").rename(collected / "elsewhere")
    with pytest.raises(OperationalError, match="its key"):
        dpsql.forget(collected / "state", ["person 3"])
    assert (collected / "state").read_bytes() == before
    assert {file.name for file in collected.iterdir() if file.name.startswith("state")} == {"state"}


def test_stored_reports_lose_a_person_and_keep_what_they_answer(tmp_path: Path):
    file, told = tmp_path / "age.parquet", ReportProvenance("person.age", "ab" * 8, "a channel")
    write_items(file, told, [("ann", 0, 3), ("bob", 1, 4), ("cyd", 0, 5)])
    assert dpsql.forget(file, ["bob", "nobody"]).erased == 1
    assert read_items(file) == (told, [("ann", 0, 3), ("cyd", 0, 5)])
    assert b"bob" not in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(DataError, match="delete the file"):
        dpsql.forget(file, ["ann", "cyd"])
    assert [path.name for path in tmp_path.iterdir()] == ["age.parquet"]


def counts(shop: StreamShop) -> list[int]:
    import sqlite3

    (private,) = (file for file in shop.folder.rglob("*.stream"))
    with sqlite3.connect(private) as state:
        return sorted(count for (count,) in state.execute("SELECT batches FROM contributor"))


def test_a_stream_forgets_a_person_and_admits_her_no_more(tmp_path: Path):
    shop = make_stream_shop(tmp_path, customers=300, noise=ZeroNoise())
    shop.append(0)
    shop.append(1)
    known = counts(shop)
    sales = shop.folder / "data" / "sales.parquet"
    ((her,),) = duckdb.sql(
        f"SELECT customer_id FROM '{sales}' WHERE sold_on = DATE '2025-01-01' LIMIT 1"
    ).fetchall()
    assert dpsql.forget(shop.directory, [str(her)], catalog=shop.catalog).erased == 1
    assert max(counts(shop)) > 10**9
    assert len(counts(shop)) == len(known), "the mark stays, or she would be counted anew"
    rows = shop.folder / "her.parquet"
    moved = f"SELECT * REPLACE (DATE '2025-01-03' AS sold_on) FROM '{sales}' WHERE customer_id = {her}"
    duckdb.sql(f"COPY ({moved}) TO '{rows}'")
    before = everybody(shop)
    shop.append(2, rows)
    assert everybody(shop) == before, "no later batch counts her"
    again = dpsql.forget(shop.directory, ["no such person"], catalog=shop.catalog)
    assert again.erased == 0
    with pytest.raises(InterfaceError, match="catalog"):
        dpsql.forget(shop.directory, ["1"])


def everybody(shop: StreamShop) -> int:
    return int(shop.opened().query("SELECT COUNT(*) FROM sales").rows[0][0])


def test_neither_release_nor_ledger_holds_anything_to_erase(tmp_path: Path):
    """What publishing leaves is looked through in tests/privacy/test_canaries.py."""
    release, _ = published(tmp_path, "pure")
    for file in (release, tmp_path / "ledger"):
        before = file.read_bytes()
        assert "nothing to erase" in dpsql.forget(file, ["1"]).said
        assert file.read_bytes() == before


def test_the_command_reads_people_from_a_file(collected: Path):
    all_commands()
    done = CliRunner().invoke(
        cli, ["forget", str(collected / "state"), "--people", "-", "--json"], input="person 3\n\nperson 4\n"
    )
    assert json.loads(done.output)["erased"] == 2
    done = CliRunner().invoke(cli, ["forget", str(collected / "none"), "--people", "-"], input="person 3\n")
    assert done.exit_code == 2 and done.output.count("\n") == 1
