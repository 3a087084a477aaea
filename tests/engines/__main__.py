"""Publish by PostgreSQL, Spark and ClickHouse, and compare every integer: `python -m tests.engines`.

Needs Debian's `postgresql`, a Java, and `pip install '.[spark,clickhouse]'`. One of the figures is of 2e6 facts: some
minutes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FIGURES = 8
"""Figure lines that a whole run prints."""


def main() -> int:
    """Print the figure lines; 1 if a test fails, a figure is short or one is missing."""
    folder = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "slow or not slow", str(folder)]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    figures = re.findall("figure .*", run.stdout)
    print("\n".join(figures if run.returncode == 0 else [*figures, run.stdout[-4000:], run.stderr[-2000:]]))
    return int(
        run.returncode != 0 or len(figures) < FIGURES or any(line.endswith(" short") for line in figures)
    )


if __name__ == "__main__":
    sys.exit(main())
