"""A release that was made under one kernel of OpenBLAS is audited, verified and continued under another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import duckdb
import pytest

from tests.kernels import ROOT, VARIABLE, another, architecture, runnable

CATALOG = """
dpsql: 1
name: NAME
source: {root: ., tables: {visits: visits.parquet}}
privacy: {lineage: NAME, cap: 4, unit: row, epsilon: 1PRIVACY}
ledger: NAME.duckdb
tables:
  visits:
    role: fact
    columns:
      day: {type: date, lower: 2026-01-01, upper: 2026-01-08}
      age: {type: int, lower: 0, upper: 39}
      spent: {type: int, lower: 0, upper: 90, measure: true}
views: {VIEWS}
STREAM
"""
STREAM = "stream: {column: visits.day, grain: day, horizon: 8}"
VIEWS = """
  planes: {of: visits, axes: [visits.day, visits.age], measures: [count, visits.spent]}
  ages: {of: visits, axes: [visits.age]}
"""
BATCHES = "days: {of: visits, axes: [visits.day, visits.age]}"
ROWS = """
SELECT DATE '2026-01-01' + CAST(i % 8 AS INTEGER) AS day, CAST(i * i % 40 AS INTEGER) AS age,
    CAST(i * 7 % 91 AS INTEGER) AS spent FROM range(4000) AS r(i)
"""
MADE = """
from dpsql import api as dpsql
for name in ("pure", "under_delta"):
    dpsql.publish(f"{name}.yaml", f"{name}.dpsql")
dpsql.append("stream.dpsql", None, "2026-01-01", catalog="stream.yaml")
"""
CONTINUED = """
import json
from dpsql import api as dpsql
held = {}
for name in ("pure", "under_delta"):
    checks = dpsql.audit(f"{name}.dpsql", catalog=f"{name}.yaml", samples=500).checks
    held[name] = [check.claim for check in checks if check.held is False]
    dpsql.verify(f"{name}.dpsql")
    again = dpsql.publish(f"{name}.yaml", f"{name}.dpsql").receipt
    held[name + " again"] = [] if not again.drawn else ["it was drawn again"]
dpsql.check_batch("stream.dpsql", None, "2026-01-01", catalog="stream.yaml")
dpsql.append("stream.dpsql", None, "2026-01-02", catalog="stream.yaml")
dpsql.verify("stream.dpsql")
checks = dpsql.audit("stream.dpsql", catalog="stream.yaml", samples=500).checks
held["stream"] = [check.claim for check in checks if check.held is False]
print(json.dumps(held))
"""


def run(script: str, folder: Path, kernel: str | None) -> str:
    """What a script prints under a kernel; None for the one of this process."""
    environment = {**os.environ, "DPSQL_STATE": os.devnull, "PYTHONPATH": str(ROOT)}
    environment |= {VARIABLE: kernel} if kernel else {}
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


def check_pair(folder: Path, first: str | None, second: str) -> None:
    duckdb.sql(f"COPY ({ROWS}) TO '{folder}/visits.parquet' (FORMAT parquet)")
    for name, privacy, views, stream in (
        ("pure", "", VIEWS, ""), ("under_delta", ", delta: 1e-6", VIEWS, ""), ("stream", "", BATCHES, STREAM),
    ):  # fmt: skip
        text = CATALOG.replace("NAME", name).replace("1PRIVACY", f"1{privacy}")
        written = text.replace("{VIEWS}", f"{{{views}}}" if stream else views).replace(
            "\nSTREAM", f"\n{stream}"
        )
        (folder / f"{name}.yaml").write_text(written, encoding="utf-8")
    run(MADE, folder, first)
    assert all(broken == [] for broken in json.loads(run(CONTINUED, folder, second)).values())


@pytest.mark.usefixtures("publishes")
def test_a_release_goes_on_under_another_kernel(tmp_path: Path) -> None:
    other = another()
    if other is None:
        pytest.skip("this processor has one kernel")
    check_pair(tmp_path, None, other)


@pytest.mark.slow
@pytest.mark.usefixtures("publishes")
@pytest.mark.parametrize(("first", "second"), permutations(runnable(), 2))
def test_a_release_goes_on_under_every_kernel(tmp_path: Path, first: str, second: str) -> None:
    if architecture(first) == architecture(second):
        pytest.skip("one kernel under two names")
    check_pair(tmp_path, first, second)
