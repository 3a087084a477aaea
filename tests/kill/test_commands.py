"""The real commands, killed and refused something at chosen system calls: a few of each kind, where strace is.

`benchmarks/withstand/kills.py` and `faults.py` do hundreds.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.kill.commands import STRACE

needs_strace = pytest.mark.skipif(STRACE is None, reason="strace is not installed")


@pytest.mark.slow
@needs_strace
@pytest.mark.parametrize("module", ["kills", "faults"])
def test_a_few_of_each(module: str) -> None:
    """In a process of its own: a fork must have no threads. Too few for the counts, so the exit code is not asked."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.withstand.{module}", "20"],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "DPSQL_STATE": os.devnull,
        },  # as `make withstand` has it: scenes begin anew all the time
    )
    figures = [line for line in done.stdout.splitlines() if line.startswith("figure")]
    assert figures, done.stderr
    assert [line for line in figures if "(<= 0)" in line and not line.endswith("ok")] == [], done.stdout
