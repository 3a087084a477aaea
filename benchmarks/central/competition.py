"""What `data_dependent: allow` errs by against `refuse`: ten axes of 12 to 4,096 leaves and five planes, both laws.

    DPSQL_DATA=... python -m benchmarks.central.competition

Both catalogs are planned by `choose_families`. Where `allow` takes what `refuse` takes the ratio is that of the exact
errors, which is 1. Where it takes blocks they are drawn and measured over 5,000 random rectangles, against the exact
error of the product over all rectangles.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from math import isfinite

from benchmarks.central import blocks, datasets
from benchmarks.figures import Figures
from dpsql.mechanisms.axis import AUTO
from dpsql.mechanisms.family.blocks import Blocks
from dpsql.mechanisms.family.question import FamilyAxis, FamilyQuestion, FamilyView, Grains
from dpsql.mechanisms.family.registry import Family, choose_families
from dpsql.mechanisms.law import GAUSSIAN, LAPLACE

LAWS = {"delta 0": (LAPLACE,), "a delta": (GAUSSIAN, LAPLACE)}
EPSILON, RUNS = Fraction(1, 10), 6
LINES = (12, 17, 24, 40, 100, 256, 365, 1024, 2048, 4096)
PLANES = datasets.DPBENCH_2D[:5]


def planned(shape: tuple[int, ...], law: str, allows: bool) -> Family:
    """What measures a view of such axes that is alone in its table."""
    axes = tuple(FamilyAxis(str(i), n, None, Grains(1 << 15, 1 << 12)) for i, n in enumerate(shape))
    places = tuple(range(len(shape)))
    view = FamilyView("view", places, AUTO, allows, {"count": Fraction(1)}, True, True)
    (family,) = choose_families(
        FamilyQuestion("table", (view,), axes, LAWS[law], batches=False, people=False)
    )
    return family


def ratio(shape: tuple[int, ...], name: str, law: str, figures: Figures) -> bool:
    """Print and hold the error of `allow` over that of `refuse`; whether blocks are taken."""
    allow, refuse = (planned(shape, law, allows) for allows in (True, False))
    takes_blocks = isinstance(allow.choice.strategy.measurement, Blocks)
    if takes_blocks:
        error = blocks.measured(datasets.dpbench_2d(name), EPSILON, RUNS).error
        least = blocks.method(shape).product_error
    else:
        errors = [f.question.price(v.law) * v.error for f in (allow, refuse) for v in f.choice.strategy.views]
        bound, (error, least) = allow.choice.expected_error, errors
        error = bound if isfinite(bound) else error  # not rated where nothing competes
    print(f"{name}, {law}: {allow.choice.name}, {error:.4g} against {least:.4g}", flush=True)
    figures.at_most("one axis: allow over refuse", error / least, 1.1, f"{name}, {law}")
    return takes_blocks


def main() -> int:
    """Print the figures."""
    figures = Figures()
    taken = 0
    for law in LAWS:
        for leaves in LINES:
            ratio((leaves,), f"{leaves} leaves", law, figures)
        for name in PLANES:
            taken += ratio((256, 256), name, law, figures)
    figures.at_least("planes by blocks under delta 0, of 5", taken, 5)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
