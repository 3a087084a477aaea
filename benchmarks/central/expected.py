"""Expected errors of what `auto` ships, against the bounds that the project promises.

All values are exact expectations at epsilon 1 (Laplace) or ratios to a lower bound (Gaussian); nothing is simulated.
Two axes: the error that the release states. `--quick` leaves out axes beyond 65,536 leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import combinations

import numpy as np

from benchmarks.figures import Figures, main
from benchmarks.processes import cpu_of
from dpsql.budget.curve import mu2_of
from dpsql.mechanisms.axis import auto_strategy
from dpsql.mechanisms.axis.dense import (
    dense_strategy,
    matrix_root,
    optimal_gram,
    sine_strategy,
    workload_gram,
    zero_sum_strategy,
)
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.axis.tree import equal_strategy
from dpsql.mechanisms.designs.measurement import AxisWorkload, StatisticShare, mean_error
from dpsql.mechanisms.designs.residual import RESIDUAL, best_shares
from dpsql.mechanisms.offers import expected_error
from dpsql.tree import kary_tree
from tests.strategies import by_word, svd_bound

ONE_AXIS = {256: 66, 1024: 125, 4096: 207, 16_384: 327, 65_536: 475, 262_144: 676, 1_048_576: 912}
DENSE = (256, 512, 1024)  # below 140 leaves the optimum itself is 1.02 to 1.023 times the SVD bound
SINE = (1025, 4096, 65_536, 1_048_576)
LONG = 65_536
GAINS = {("1", "1e-6"): 1.15021, ("1", "1e-9"): 1.10581, ("0.1", "1e-6"): 1.18161, ("3", "1e-6"): 1.13349}
MU2 = float(mu2_of(Fraction(1), Fraction(1, 10**6)))


Bounded = tuple[str, float, float]
"""A figure, its value, and the most that it may be."""


def figures_of(longest: int) -> Iterator[Bounded]:
    """All figures, the quick ones first."""
    yield "pure, 256 x 256 rectangles", auto_strategy(256).expected_error ** 2 / 2, 2185
    yield "(1, 1e-6), 256 x 256 rectangles", expected_error(dense_strategy(256)) ** 2 / MU2, 1278
    yield "Gaussian at mu^2 1, six axes of 256, all conjunctions of 1 to 3 ranges", six_axes(), 5800
    for (epsilon, delta), known in GAINS.items():
        off = abs(gain(Fraction(epsilon), Fraction(delta)) / known - 1)
        yield f"variance of zCDP accounting over the curve's at ({epsilon}, {delta}): off {known}", off, 1e-4
    for n in DENSE:
        yield f"Gaussian over SVD bound, {n} leaves", expected_error(dense_strategy(n)) / svd_bound(n), 1.02
    for n in (64, 128):
        yield f"Gaussian over the optimum, {n} leaves", expected_error(dense_strategy(n)) / optimum(n), 1.001
    for n in (n for n in SINE if n <= longest):
        yield f"Gaussian over SVD bound, {n} leaves", expected_error(sine_strategy(n)) / svd_bound(n), 1.11
    for n, bound in ((n, bound) for n, bound in ONE_AXIS.items() if n <= longest):
        yield f"pure, all ranges of {n} leaves", auto_strategy(n).expected_error, bound
    for n, bound in ((65_536, 1.0), (1 << 20, 30.0)):
        if n <= longest:
            yield f"choosing for {n} leaves, processor seconds", cpu_of(partial(auto_strategy, n)), bound


def gain(epsilon: Fraction, delta: Fraction) -> float:
    """Variance by the tight conversion of zero-concentrated DP (Canonne, Kamath, Steinke 2020) over the curve's."""
    orders = 1 + np.geomspace(1e-3, 1e4, 200_001)

    def log_delta(rho: float) -> float:
        terms = (orders - 1) * (orders * rho - float(epsilon)) + orders * np.log1p(-1 / orders)
        return float(np.min(terms - np.log(orders - 1)))

    low, high = 0.0, float(epsilon)
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if log_delta(middle) <= np.log(float(delta)) else (low, middle)
    return float(mu2_of(epsilon, delta)) / (2 * low)


def six_axes(n: int = 256) -> float:
    """Mean error of the residual design over all sets of one to three of six axes, asked equally often.

    The rows are the integers that a release of three-axis counts measures.
    """
    sets = {each: float(len(each) > 0) for size in range(4) for each in combinations(range(6), size)}
    axis = AxisWorkload(zero_sum_strategy(n, scale=1 << 12).solver, None)
    asked = dict.fromkeys(range(6), axis)
    shares = best_shares(sets, asked)
    return mean_error(
        RESIDUAL, [StatisticShare(part, 1 / share) for part, share in shares.items()], sets, asked
    )


def optimum(n: int) -> float:
    """A lower bound on every Gaussian strategy for all ranges, within 1e-7 of the optimum: the dual value."""
    gram = workload_gram(n)
    x = optimal_gram(gram, gap=1e-8)
    price = np.diag(np.linalg.solve(x, gram) @ np.linalg.inv(x))
    side = np.sqrt(price)
    return float(np.trace(matrix_root(side[:, None] * gram * side)) ** 2 / price.sum())


def one_axis(n: int) -> dict[str, float]:
    """Errors over all ranges of the mechanisms that docs/accuracy.md sets beside `auto`."""
    return {
        "identity": expected_error(leaf_strategy(n)),
        "binary tree": expected_error(equal_strategy(kary_tree(n, 2))),
        "LUE-DPTree": expected_error(by_word(n, "lue_dptree").strategy),
        "auto": auto_strategy(n).expected_error,
    }


def measure(figures: Figures, *, quick: bool = False) -> None:
    """Print the accuracy page's table, then the figures."""
    for n in (256, 1024, 4096, LONG):
        print(f"{n} leaves: " + "; ".join(f"{name} {error:.1f}" for name, error in one_axis(n).items()))
    for name, value, bound in figures_of(LONG if quick else 1 << 20):
        figures.at_most("expected errors and seconds over what the method reaches", value / bound, 1, name)


if __name__ == "__main__":
    main(measure)
