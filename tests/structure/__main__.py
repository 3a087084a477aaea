"""Sizes and shapes of the package, each with its bound: `make structure` prints them.

python -m tests.structure                       the figures
python -m tests.structure --list import-cycles  the places that one of them counted
python -m tests.structure --trips retail.dpsql catalog/retail.yaml
                                                what one AVG and one publish run through, after `make demo`
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.figures import Figures
from tests.structure.bounds import BOUNDS, PROJECT, RULES
from tests.structure.source import the_package
from tests.structure.trips import TRIPS, count_trips


def main() -> int:
    """Print every figure, or the places of one; 1 if a figure is above its bound."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", choices=RULES)
    parser.add_argument("--trips", nargs=2, metavar=("RELEASE", "CATALOG"))
    given, package, figures = parser.parse_args(), the_package(), Figures()
    listed, trips = given.list, given.trips
    if listed:
        print("\n".join(RULES[listed](package)))
        return 0
    for name, rule in RULES.items():
        figures.at_most(f"structure-{name}", len(rule(package)), BOUNDS[name].bound)
    for name, (measured, bound) in PROJECT.items():
        figures.at_most(f"structure: {name}", measured(), bound.bound)
    if trips:
        for name, (functions, modules) in count_trips(*map(Path, trips)).items():
            figures.at_most(f"structure: functions that {name} runs", functions, TRIPS[name][0])
            figures.at_most(f"structure: modules that {name} runs", modules, TRIPS[name][1])
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
