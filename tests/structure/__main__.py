"""Sizes and shapes of the package, each with its bound: `make structure` prints them.

python -m tests.structure                       the figures
python -m tests.structure --list import-cycles  the places that one of them counted
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.figures import Figures
from tests.structure.bounds import BOUNDS, RULES
from tests.structure.source import the_package


def main() -> int:
    """Print every figure, or the places of one; 1 if a figure is above its bound."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", choices=RULES)
    listed, package, figures = parser.parse_args().list, the_package(), Figures()
    if listed:
        print("\n".join(RULES[listed](package)))
        return 0
    for name, rule in RULES.items():
        figures.at_most(f"structure-{name}", len(rule(package)), BOUNDS[name].bound)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
