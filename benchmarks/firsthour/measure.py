"""`make first-hour`: every figure of the first hour."""

from __future__ import annotations

import sys

from benchmarks.figures import Figures
from benchmarks.firsthour import designs, drafts


def main() -> int:
    """Measure all; the exit code says whether every figure held."""
    figures = Figures()
    drafts.measure(figures)
    designs.measure(figures)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
