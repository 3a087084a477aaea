"""How the house stands: counts over the syntax tree and over one traced run. `make house` prints them.

    python -m tests.house                 the figures
    python -m tests.house --list tags     what one of them counted (tags, cycles, parameters, unreached, upward)

Each figure's rule stands at the head of its module: tags.py, graph.py, shapes.py, reach.py, traced.py, words.py.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from benchmarks.figures import Figures
from tests.house import graph, reach, shapes, tags, traced, words
from tests.house.source import ROOT, Package, read_package

STATEMENTS_BEFORE = 20292
"""Statements of the package at revision 0a96dc3, before it was rebuilt, counted by `shapes.statements`."""

LISTS = {
    "tags": lambda package: [f"{f.place} {f.rule} {f.tag}: {f.text}" for f in tags.questions(package)],
    "cycles": graph.cycles,
    "parameters": shapes.many_parameters,
    "unreached": lambda package: reach.unreached(package, ROOT),
    "upward": lambda package: traced.upward_calls(ROOT),
}


def main() -> int:
    """Print the figures, or one list."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", choices=LISTS)
    asked = parser.parse_args().list
    package = read_package(ROOT / "dpsql")
    if asked:
        print("\n".join(LISTS[asked](package)))
        return 0
    return figures(package)


def figures(package: Package) -> int:
    """Print every figure; 1 if one is short."""
    found, told = tags.questions(package), Figures()
    for (rule, tag), count in Counter((f.rule, f.tag) for f in found).most_common():
        print(f"  {count:4} {rule} {tag}")
    told.at_most("house-variants-asked-what-they-are", len(found), 15)
    told.at_most("house-import-cycles", len(graph.cycles(package)), 0)
    told.at_most("house-functions-of-seven-parameters", len(shapes.many_parameters(package)), 5)
    told.at_most("house-unreached-definitions", len(reach.unreached(package, ROOT)), 0)
    told.at_most("house-statements-ratio", shapes.statements(package) / STATEMENTS_BEFORE, 0.85)
    told.at_most("house-pointer-words", words.share(package), 0.02)
    told.at_most("house-class-names-that-occur-twice", len(words.repeated_classes(package)), 20)
    told.at_most("house-modules", len(package.modules), 230)
    told.at_most("house-upward-calls", len(traced.upward_calls(ROOT)), 0)
    return told.finish()


if __name__ == "__main__":
    sys.exit(main())
