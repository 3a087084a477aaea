"""What planning a plane under a delta costs, against searching every offer of both laws.

Laplace noise is bought at pi times the variance under a delta, so that a bound below all strategies tells beforehand
that none of its trees and tents can win. The rival searches them anyway, by the same public functions.

**Privacy**: public sizes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from benchmarks.figures import Figures
from dpsql.axis import Axis, build_axis
from dpsql.mechanisms.axis import WHOLE, auto_strategy
from dpsql.mechanisms.axis.dense import DENSE_SCALE
from dpsql.mechanisms.law import GAUSSIAN, LAPLACE
from dpsql.publishing.plan import plan_release
from dpsql.star import ResolvedAxis, catalog_from_json

PLANES = ((72, 1000), (70, 998), (74, 1002))
"""Sizes of one plan each, since a plan remembers the axes that it has seen."""

CATALOG = """{{"dpsql": 1, "name": "plane", "privacy": {{"lineage": "plane", "cap": "4", "unit": "row", "epsilon": "1",
"delta": "1e-6"}}, "tables": {{"facts": {{"role": "fact", "columns": {{"x": {{"type": "int", "lower": 1, "upper": {0}}},
"y": {{"type": "int", "lower": 1, "upper": {1}}}}}}}}},
"views": {{"both": {{"of": "facts", "axes": ["facts.x", "facts.y"]}}}}}}"""


def seconds(action: Callable[[], object]) -> float:
    """Processor seconds of one run."""
    start = time.process_time()
    action()
    return time.process_time() - start


def planned(n1: int, n2: int) -> float:
    """Processor seconds of one plan."""
    catalog = catalog_from_json(CATALOG.format(n1, n2))

    def make(resolved: ResolvedAxis) -> Axis:
        return build_axis(catalog, resolved, {})

    return seconds(lambda: plan_release(catalog, make))


def searched(n1: int, n2: int) -> float:
    """Processor seconds of all strategies of both axes under both laws."""
    return sum(
        seconds(lambda n=n, law=law: auto_strategy(n, None, law, WHOLE, DENSE_SCALE))  # type: ignore[misc]
        for law in (GAUSSIAN, LAPLACE)
        for n in (n1, n2)
    )


def main() -> int:
    """Print the figure."""
    figures = Figures()
    ours, all_offers = (sum(run(*plane) for plane in PLANES) for run in (planned, searched))
    figures.at_most(
        "planning 72 x 1,000 under a delta, CPU over searching all offers", ours / all_offers, 0.4
    )
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
