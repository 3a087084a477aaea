"""CPU time of `make quick` and `make test`, as figures. `make suites` prints them.

    python -m tests.suites [quick] [test]

User and system time of make and of everything that it started and waited for.
"""

from __future__ import annotations

import resource
import subprocess
import sys

from benchmarks.figures import Figures


def cpu_seconds(target: str) -> float:
    """CPU seconds of a target that succeeds.

    Raises:
        CalledProcessError: it fails.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["make", target], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(targets: list[str]) -> int:
    """Measure each target; 1 if one takes longer than it may."""
    figures = Figures()
    if "quick" in targets:
        figures.at_most("make-quick-cpu-seconds", cpu_seconds("quick"), 120)
    if "test" in targets:
        figures.at_most("make-test-cpu-minutes", cpu_seconds("test") / 60, 16)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["quick", "test"]))
