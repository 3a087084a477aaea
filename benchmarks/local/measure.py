"""Figures of local releases: one axis, rows and a bit, rounds, boxes over several axes.

    python -m benchmarks.local.measure [--quick]

Every line `figure <name>: <value> (<bound>) ok|short` is one promise; the exit code is 1 if any is short.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.figures import Figures
from benchmarks.local import axis as local_axis
from benchmarks.local import bars as local_bars
from benchmarks.local import lle as local_lle
from benchmarks.local import planes as local_planes
from benchmarks.local import rounds as local_rounds
from benchmarks.local import rows as local_rows

PARTS = ("axis", "rows", "bars", "rounds", "boxes", "lle")


def main() -> int:
    """Print all figures; 1 if any is short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs and people")
    parser.add_argument("--only", choices=PARTS, default=None)
    given = parser.parse_args()
    figures = Figures()
    wanted = [given.only] if given.only else list(PARTS)
    if "axis" in wanted:
        local_axis.adaptive_alone(figures)
        local_axis.synthetic(figures, runs=1 if given.quick else 6)
        local_axis.adult(figures, runs=1 if given.quick else 24)
        local_axis.spiky_coverage(figures, runs=4 if given.quick else 40)
    if "rows" in wanted:
        local_rows.ranges(figures, runs=8 if given.quick else 60)
    if "bars" in wanted:
        local_bars.large_ranges(figures, runs=1 if given.quick else 8)
    if "rounds" in wanted:
        local_rounds.published(figures, runs=1 if given.quick else 6)
    if "boxes" in wanted:
        local_planes.five_axes(figures, runs=1 if given.quick else 6)
    if "lle" in wanted:
        local_lle.coverage(figures, runs=1 if given.quick else 20)
        local_lle.against_script(figures, runs=1 if given.quick else 2)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
