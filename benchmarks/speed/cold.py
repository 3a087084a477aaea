"""What a cold start costs: CPU of a command from nothing, beside the imports that it cannot do without."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.figures import Figures

RUNS = 5


def cpu_of(command: Sequence[str]) -> float:
    """Seconds of CPU of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(release: Path, figures: Figures) -> None:
    """The figures: each command and its floor in turns, once to warm up.

    Args:
        release: that is asked for one count.
        figures: gain them.
    """
    commands = {
        "libraries": [sys.executable, "-c", "import duckdb, numpy, sqlglot"],
        "query": [sys.executable, "-m", "dpsql", "query", str(release), "SELECT COUNT(*) FROM sales"],
    }
    rounds = [{name: cpu_of(command) for name, command in commands.items()} for _ in range(RUNS + 1)][1:]
    query, floor = (float(np.median([costs[name] for costs in rounds])) for name in ("query", "libraries"))
    print(f"query {query:.3f} s of CPU, libraries {floor:.3f}")
    figures.at_most("a cold `dpsql query` over `import duckdb, numpy, sqlglot`", query / floor, 2.5)
