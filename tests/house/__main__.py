"""How the house stands: counts over the syntax tree and over one traced run. `make structure` prints them.

    python -m tests.house                 the figures
    python -m tests.house --list tags     what one of them counted (tags, cycles, parameters, unreached, upward,
                                          values, long, names, protocols, replays)

Each figure's rule stands at the head of its module: tags.py, graph.py, shapes.py, values.py, reach.py, traced.py,
replay.py, words.py.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from benchmarks.figures import Figures
from tests.house import graph, reach, replay, shapes, tags, traced, values, words
from tests.house.source import ROOT, Package, the_package

CODE_LINES_BEFORE = 52189
"""Lines of code of the package at revision 7799f96, counted by `shapes.code_lines`."""

LISTS = {
    "tags": lambda package: [f"{f.place} {f.rule} {f.tag}: {f.text}" for f in tags.questions(package)],
    "cycles": graph.cycles,
    "parameters": shapes.many_parameters,
    "unreached": lambda package: reach.unreached(package, ROOT),
    "upward": lambda package: traced.upward_calls(ROOT),
    "values": values.idle_values,
    "long": shapes.long_modules,
    "names": shapes.repeated_modules,
    "replays": lambda package: [
        f"{name}: {module}"
        for name, family in replay.REPLAYS.items()
        for module in replay.touched(package, family)
    ],
    "protocols": lambda package: [f"{count} {place}" for count, place in shapes.protocols(package)],
}


def main() -> int:
    """Print the figures, or one list."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", choices=LISTS)
    asked = parser.parse_args().list
    package = the_package()
    if asked:
        print("\n".join(LISTS[asked](package)))
        return 0
    return figures(package)


def figures(package: Package) -> int:
    """Print every figure; 1 if one is short."""
    for (rule, tag), count in Counter((f.rule, f.tag) for f in tags.questions(package)).most_common():
        print(f"  {count:4} {rule} {tag}")
    print(f"  {shapes.code_lines(package):,} lines of code")
    printed = Figures()
    for name, (value, bound) in counts(package).items():
        printed.at_most(name, value, bound)
    printed.at_most("house-upward-calls", len(traced.upward_calls(ROOT)), 0)
    return printed.finish()


def counts(package: Package) -> dict[str, tuple[float, float]]:
    """Each figure that the syntax trees give, with its bound."""
    return {
        "house-variants-asked-what-they-are": (len(tags.questions(package)), 15),
        "house-import-cycles": (len(graph.cycles(package)), 0),
        "house-functions-of-seven-parameters": (len(shapes.many_parameters(package)), 5),
        "house-unreached-definitions": (len(reach.unreached(package, ROOT)), 0),
        "house-code-lines-ratio": (shapes.code_lines(package) / CODE_LINES_BEFORE, 0.91),
        "house-pointer-words": (words.share(package), 0.02),
        "house-class-names-that-occur-twice": (len(words.repeated_classes(package)), 20),
        "house-idle-value-classes": (len(values.idle_values(package)), 60),
        "house-modules": (len(package.modules), 335),
        "house-modules-above-600-lines": (len(shapes.long_modules(package)), 0),
        "house-module-names-that-occur-twice": (len(shapes.repeated_modules(package)), 0),
        "house-protocol-members": (shapes.protocols(package)[-1][0], 14),
        **{
            f"house-replay-of-{name}": (len(replay.touched(package, family)), 3)
            for name, family in replay.REPLAYS.items()
        },
        "house-statistic-meta-places": (len(shapes.constructions(package, "StatisticMeta")), 1),
    }


if __name__ == "__main__":
    sys.exit(main())
