"""Many spenders at once, threads and processes: never above the cap, and every charge has its release."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from fractions import Fraction
from functools import partial
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


@pytest.mark.parametrize(
    ("processes", "attempts", "cap"), [(2, 15, 1), pytest.param(4, 250, 30, marks=pytest.mark.slow)]
)
def test_concurrent_spends(tmp_path: Path, processes: int, attempts: int, cap: int) -> None:
    context = multiprocessing.get_context("spawn")  # a forked DuckDB is not a real second process
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        spend = partial(spend_from_threads, str(tmp_path), attempts=attempts, cap=Fraction(cap))
        granted = sum(pool.map(spend, range(processes)))
    (lineage,) = budget_report(tmp_path / "ledger.duckdb").lineages
    assert granted == len(lineage.entries) == cap / EPSILON < processes * attempts
    assert lineage.spent == cap and lineage.left == 0
    assert len(list(tmp_path.glob("*.dpsql"))) == granted and all(entry.present for entry in lineage.entries)
    assert not list(tmp_path.glob("*.draft")) and not list(tmp_path.glob(".*.copy"))
