"""kill -9 of a whole publish with private keys: keys that are not shown are in no byte that it leaves.

This file is also the program that is killed: `python test_key_kills.py FOLDER POINT`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpsql.catalog import load_catalog
from dpsql.catalog.graph import ledger_path
from dpsql.central import central, selection
from dpsql.ledger import files
from dpsql.ledger.store import budget_report
from dpsql.noise import ExactNoise, os_entropy

CATALOG = """
dpsql: 1
name: shop
source: {kind: parquet, root: raw, tables: {sales: sales.parquet, person: person.parquet}}
privacy: {lineage: shop, cap: 8, epsilon: 2, unit: person.id, delta: 1e-5}
tables:
  person: {role: dimension, key: id, private: true}
  sales: {role: fact, max_ids: 3, foreign_keys: {id: person}, columns: {
    item: {type: string, categories: {private: true, per_unit: 5, most: 40}}}}
views:
  items: {of: sales, axes: [sales.item], measures: [count]}
"""
CANARY = b"canary"
POINTS: dict[str, tuple[Any, str]] = {
    "counting": (ExactNoise, "shown"),
    "keys found": (selection, "_sorted_list"),
    "planned anew": (central, "OpenSource"),
    "drawn": (central, "release_content"),
    "written": (files, "draft_hash"),
    "sealed": (files, "put"),
}
"""Functions at whose begin the process is killed: while counts are read, .. until the file is shown."""
LAST = "--"


def write(folder: Path, people: int) -> None:
    """People of three common items and one of their own each."""
    raw = folder / "raw"
    raw.mkdir()
    with duckdb.connect() as db:
        db.execute(f"COPY (SELECT i AS id FROM range({people}) t(i)) TO '{raw / 'person.parquet'}'")
        own = "'canary ' || i || repeat(md5(i::VARCHAR), 3)"
        db.execute(
            f"COPY (SELECT i AS id, CASE j WHEN 0 THEN {own} ELSE 'item ' || (i + j) % 5 END AS item "
            f"FROM range({people}) t(i), range(4) s(j)) TO '{raw / 'sales.parquet'}'"
        )
    (folder / "shop.yaml").write_text(CATALOG)
    (folder / "spill").mkdir()


def publish(folder: Path) -> None:
    central.publish_release(
        load_catalog(folder / "shop.yaml"),
        folder / "shop.dpsql",
        noise=ExactNoise(os_entropy()),
        key=os.urandom(32),
    )


def spilled(folder: Path) -> bool:
    return any(CANARY in file.read_bytes() for file in (folder / "spill").rglob("*") if file.is_file())


def killed_at(folder: Path, point: str) -> None:
    """Publish, and die at a point."""
    module, name = POINTS[point]
    shipped = getattr(module, name)

    def dying(*given: Any, **named: Any) -> Any:
        if selection_begun:
            print(f"spilled {spilled(folder)}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return shipped(*given, **named)

    selection_begun: list[bool] = []
    shown = selection._shown

    def begun(*given: Any) -> Any:
        selection_begun.append(True)
        return shown(*given)

    selection._shown = begun  # type: ignore[assignment]
    setattr(module, name, dying)
    publish(folder)


def started(folder: Path, point: str, memory: str) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[2]
    environment = {
        **os.environ, "PYTHONPATH": str(root), "DPSQL_TMPDIR": str(folder / "spill"), "DPSQL_MEMORY": memory,
    }  # fmt: skip
    command = [sys.executable, str(Path(__file__)), str(folder), point]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def left_bytes(folder: Path) -> set[str]:
    """Files outside of the source with a key of one person alone, once what waits for the end has swept."""
    until = time.monotonic() + 60
    while any((folder / "spill").iterdir()) and time.monotonic() < until:
        time.sleep(0.02)
    files = [path for path in folder.rglob("*") if path.is_file() and "raw" not in path.parts]
    assert files
    return {path.name for path in files if CANARY in path.read_bytes()}


def check(folder: Path, point: str, memory: str = "512MiB") -> bytes:
    """Kill, look at every byte, recover, and look again."""
    process = started(folder, point, memory)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, said.decode()
    assert CANARY not in said and left_bytes(folder) == set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSQL_TMPDIR", str(folder / "spill"))
        publish(folder)
    assert (folder / "shop.dpsql").exists() and left_bytes(folder) == set()
    (lineage,) = budget_report(ledger_path(load_catalog(folder / "shop.yaml"))).lineages
    states = [entry.state for entry in lineage.entries]
    assert states == (["sealed"] if point == "sealed" else ["ended", "sealed"])
    assert lineage.entries[0].cost == lineage.entries[-1].cost  # nothing goes back once a key round has begun
    assert lineage.spent == sum(entry.cost for entry in lineage.entries)
    return said


def test_every_point_is_a_function_of_the_package() -> None:
    assert all(callable(getattr(module, name)) for module, name in POINTS.values())


@pytest.mark.parametrize(
    "point",
    [pytest.param(name, marks=() if name == "counting" else pytest.mark.slow) for name in POINTS],
)
def test_a_key_of_one_person_is_in_no_byte_after_a_kill(tmp_path: Path, point: str) -> None:
    write(tmp_path, 600)
    check(tmp_path, point)


@pytest.mark.slow
def test_nor_where_rows_had_been_spilled(tmp_path: Path) -> None:
    """With too little memory its keys lie in the temporary folder while it runs."""
    write(tmp_path, 400_000)
    assert b"spilled True" in check(tmp_path, "counting", "100MiB")


@pytest.mark.slow
def test_nor_after_kills_at_random_moments(tmp_path: Path) -> None:
    clock = random.Random(7)
    for number in range(12):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, 20_000)
        process = started(folder, LAST, "100MiB")
        while not any((folder / "spill").iterdir()) and process.poll() is None:
            time.sleep(0.005)
        time.sleep(clock.uniform(0, 1.5))
        process.kill()
        said, _ = process.communicate(timeout=60)
        assert CANARY not in said and left_bytes(folder) == set()


def main(folder: Path, point: str) -> None:
    run: Callable[[], None] = (
        (lambda: publish(folder)) if point == LAST else (lambda: killed_at(folder, point))
    )
    run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
