"""Estimation runs BLAS on one thread, whatever the environment says, and gives the number back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from benchmarks.local.simulated import one_row_each
from dpsql.client import read_plan
from dpsql.local import run
from dpsql.local.run import one_blas_thread
from dpsql.local.simulate import simulate_reports, write_spool
from tests.local.test_local_positive import HEAD

pytestmark = pytest.mark.long

CATALOG = (
    HEAD
    + """
    columns: {age: {type: int, lower: 0, upper: 7, cuts: {width: 1}}}
views: {one: {of: answer, axes: [answer.age], measures: [count]}}
"""
)


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    with threadpool_limits(limits=2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has one thread only")
        yield


def test_one_thread_inside_and_the_former_number_after() -> None:
    with pytest.raises(KeyError), one_blas_thread():
        assert blas_threads() == {1}
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
        raise KeyError
    assert blas_threads() == {2}


def test_python_threads_take_turns() -> None:
    inside: list[str] = []

    def work(name: str) -> None:
        for _ in range(5):
            with one_blas_thread():
                inside.append(name)
                time.sleep(0.002)
                inside.append(name)

    both = [threading.Thread(target=work, args=[name]) for name in ("first", "second")]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(inside) == 20
    assert inside[::2] == inside[1::2]  # whoever entered left before anybody else entered
    assert blas_threads() == {2}


def test_planning_and_collecting_solve_on_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[int]] = {}

    def watched(module: Any, name: str) -> None:
        former = getattr(module, name)

        def inside(*given: Any, **options: Any) -> Any:
            seen[name] = blas_threads()
            return former(*given, **options)

        monkeypatch.setattr(module, name, inside)

    watched(run.forecast, "predict")
    watched(run, "release_content")
    catalog, plan, spool = tmp_path / "c.yaml", tmp_path / "plan.json", tmp_path / "r.parquet"
    catalog.write_text(CATALOG)
    run.write_plan(catalog, plan, 500)
    people = one_row_each(np.arange(500)[:, None] % 8, np.zeros((500, 0), dtype=np.int64))
    write_spool(spool, simulate_reports(read_plan(plan.read_bytes()), people, np.random.default_rng(1)))
    run.collect(run.Reports(plan, [spool], b"k" * 32), tmp_path / "r.dpsql", "x")
    assert seen == {"predict": {1}, "release_content": {1}}
    assert blas_threads() == {2}
