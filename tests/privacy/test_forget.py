"""Erasing a person: what dpsql keeps of one person can be erased, and elsewhere it keeps nothing of her."""

from __future__ import annotations

import json
import stat
import struct
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import dpsql
from dpsql.client import Row, read_plan, respond
from dpsql.client.entropy import system_entropy
from dpsql.errors import DataError, InterfaceError, OperationalError
from dpsql.interfaces.cli import all_commands, cli
from dpsql.local.survey import ReportProvenance, read_items, write_items
from dpsql.noise import ZeroNoise
from tests.local_plans import write_survey
from tests.privacy.test_canaries import published
from tests.stream_shop import StreamShop, make_stream_shop

PEOPLE = 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A collection with a state, of twenty people with tokens."""
    dpsql.collection_plan(write_survey(tmp_path), tmp_path / "plan.json", people=1000)
    plan = read_plan((tmp_path / "plan.json").read_bytes())
    reports = [respond(plan, [Row((3, 1), (7,))], system_entropy) for _ in range(PEOPLE)]
    columns = {"report": pa.array(reports, pa.binary()), "token": [f"person {i}" for i in range(PEOPLE)]}
    pq.write_table(pa.table(columns), tmp_path / "spool.parquet")
    collect(tmp_path, "before.dpsql")
    return tmp_path


def collect(folder: Path, name: str) -> dpsql.local.collector.CollectionManifest:
    return dpsql.collect(
        folder / "plan.json", folder / "spool.parquet", folder / name, state=folder / "state"
    ).manifest


def held(folder: Path) -> list[tuple[int, bytes]]:
    with duckdb.connect(str(folder / "state"), read_only=True) as state:
        return state.execute("SELECT token, report FROM held ORDER BY token").fetchall()


def test_reports_of_a_token_leave_a_collections_state(folder: Path):
    before, bytes_before = dict(held(folder)), (folder / "state").read_bytes()
    found = dpsql.forget(folder / "state", ["person 3", "person 7", "person 7", "nobody"])
    assert found.erased == 2
    after, bytes_after = dict(held(folder)), (folder / "state").read_bytes()
    assert len(after) == PEOPLE - 2 and after.items() <= before.items()
    gone = before.keys() - after.keys()
    hashes = {token: struct.pack("<QQ", token & (2**64 - 1), token >> 64) for token in before}
    assert all(hashes[token] in bytes_before for token in before), "a scan that finds nothing shows nothing"
    assert not any(hashes[token] in bytes_after for token in gone)
    assert stat.S_IMODE((folder / "state").stat().st_mode) == 0o600
    assert {file.name for file in folder.iterdir() if file.name.startswith("state")} == {"state", "state.key"}


def test_what_was_erased_does_not_come_back_and_every_report_is_accounted_for(folder: Path):
    dpsql.forget(folder / "state", ["person 3"])
    manifest = collect(folder, "after.dpsql")  # with the same spool
    assert (manifest.reports, manifest.accepted) == (PEOPLE, PEOPLE - 1)
    assert manifest.rejected == {"erased on request": 1}
    assert dpsql.forget(folder / "state", ["person 3"]).erased == 0
    assert collect(folder, "again.dpsql").rejected == {"erased on request": 1}


def test_nothing_is_erased_by_halves(folder: Path):
    before = (folder / "state").read_bytes()
    with duckdb.connect(str(folder / "state")), pytest.raises(OperationalError):
        dpsql.forget(folder / "state", ["person 3"])
    (folder / "state.key").rename(folder / "elsewhere")
    with pytest.raises(OperationalError, match="its key"):
        dpsql.forget(folder / "state", ["person 3"])
    assert (folder / "state").read_bytes() == before
    assert {file.name for file in folder.iterdir() if file.name.startswith("state")} == {"state"}


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


def test_the_command_reads_people_from_a_file(folder: Path):
    all_commands()
    done = CliRunner().invoke(
        cli, ["forget", str(folder / "state"), "--people", "-", "--json"], input="person 3\n\nperson 4\n"
    )
    assert json.loads(done.output)["erased"] == 2
    done = CliRunner().invoke(cli, ["forget", str(folder / "none"), "--people", "-"], input="person 3\n")
    assert done.exit_code == 2 and done.output.count("\n") == 1
