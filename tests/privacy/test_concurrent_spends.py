"""Many spenders at once, threads and processes: never above the cap, and every charge has its release."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import BudgetExceeded
from dpsql.ledger.identity import Label, Lineage, ReleaseSpend, SourceTable, SpendLine, new_release_id
from dpsql.ledger.publish import Order, publish_file
from dpsql.ledger.store import budget_report

EPSILON = Fraction(1, 10)


def spend_once(folder: str, name: str, cap: Fraction) -> bool:
    lineage = Lineage("people", "row", "add_remove", Fraction(0), cap)
    try:
        publish_file(
            Path(folder) / "ledger.duckdb",
            ReleaseSpend(
                lineage, EPSILON, (SpendLine("view", EPSILON, "epsilon"),), (SourceTable("rows", ("rows",)),)
            ),
            Order(
                Label("people", name, "spec"),
                Path(folder) / f"{name}.dpsql",
                new_release_id(),
                lambda draft: draft.file.write_bytes(os.urandom(16)) and None,
                dict,
            ),
        )
    except BudgetExceeded:
        return False
    return True


def spend_from_threads(folder: str, process: int, attempts: int, cap: Fraction) -> int:
    with ThreadPoolExecutor(4) as pool:
        names = [f"p{process}-{i}" for i in range(attempts)]
        return sum(pool.map(lambda name: spend_once(folder, name, cap), names))


def check(folder: Path, processes: int, attempts: int, cap: Fraction) -> None:
    context = multiprocessing.get_context("spawn")  # a forked DuckDB is not a real second process
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures = [pool.submit(spend_from_threads, str(folder), p, attempts, cap) for p in range(processes)]
        granted = sum(future.result() for future in futures)
    (lineage,) = budget_report(folder / "ledger.duckdb").lineages
    assert granted == len(lineage.entries) == cap / EPSILON < processes * attempts
    assert lineage.spent == cap and lineage.left == 0
    assert len(list(folder.glob("*.dpsql"))) == granted and all(entry.present for entry in lineage.entries)
    assert not list(folder.glob("*.draft")) and not list(folder.glob(".*.copy"))


def test_60_concurrent_spends(tmp_path):
    check(tmp_path, processes=2, attempts=30, cap=Fraction(2))


@pytest.mark.slow
def test_1000_concurrent_spends(tmp_path):
    check(tmp_path, processes=4, attempts=250, cap=Fraction(30))
