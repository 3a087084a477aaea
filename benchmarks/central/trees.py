"""Leaves of a tree by one draw, against the method's table: `python -m benchmarks.central.trees`.

Errors are exact, from public facts; coverage and losses are those of the shipped sampler.
"""

from __future__ import annotations

import sys
from fractions import Fraction

import numpy as np

from benchmarks.figures import Figures
from dpsql.curator.prove.loss import record_pair
from dpsql.intervals.errorfunctions import fieller
from dpsql.matrices import mean_variance
from dpsql.matrices.strategy import Strategy, axis_budgets
from dpsql.mechanisms.axis import auto_strategy
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.distribution import LAPLACE, Laplace
from dpsql.mechanisms.offers import JointCells, draw_view
from dpsql.noise import ExactNoise, Noise, os_entropy
from dpsql.tree import Exact

TABLE = {(64, 0.0): 29.19, (256, 0.0): 63.34, (1024, 0.0): 118.2, (4096, 0.0): 198.5,
         (64, 0.5): 27.4, (256, 0.5): 52.3, (1024, 0.5): 89.5, (4096, 0.5): 141.0}  # fmt: skip
EPSILON = Fraction(1, 10)
ROOM = 1 << 26
COVERED, DRAWS, PAIRS, RANGES = 64, 8000, 6000, 60


def strategies() -> dict[tuple[int, float], Strategy]:
    """What `auto` takes for each line of the table."""
    return {
        (n, whole): auto_strategy(n, whole=whole, joint=JointCells(1, 1, ROOM)).strategy for n, whole in TABLE
    }


def mean_error(strategy: Strategy, whole: float, epsilon: Fraction) -> float:
    """Exact mean variance of the questions at an epsilon, times epsilon^2."""
    unit = LAPLACE.variance_at_unit_budget(axis_budgets([strategy]), epsilon, 1)
    return unit * mean_variance(strategy.solver, None, whole) * float(epsilon) ** 2


def print_errors(figures: Figures, made: dict[tuple[int, float], Strategy]) -> None:
    """At epsilon .1 and 1."""
    for (n, whole), table in TABLE.items():
        words = f"{n} leaves" + (", totals as often as ranges" if whole else "")
        strategy = made[n, whole]
        figures.at_most("joint tree over the method's error",
                        mean_error(strategy, whole, EPSILON) / table, 1.02, f"epsilon .1, {words}")  # fmt: skip
        figures.at_most("joint tree over the method's error",
                        mean_error(strategy, whole, Fraction(1)) / table, 1.02, f"epsilon 1, {words}")  # fmt: skip


def hits(error: np.ndarray, variance: np.ndarray | float) -> float:
    """Share of errors within a 95% interval."""
    return float(np.mean(np.abs(error) <= 1.96 * np.sqrt(variance)))


def between(figures: Figures, name: str, share: float) -> None:
    """A coverage has two ends."""
    figures.within("joint tree, coverage", share, 0.93, 0.97, name)


def print_coverage(figures: Figures, strategy: Strategy) -> None:
    """Of leaves, of random ranges and of averages over them; draws of one number and of two."""
    law, bounds, rng = Laplace(2, 30_000), [3, 30_000], np.random.default_rng(36)
    noise, zero = ExactNoise(os_entropy()), Exact(np.zeros((PAIRS, COVERED), np.int64))
    many = Exact(np.zeros((DRAWS, COVERED), np.int64))
    single = draw_view(many, [leaf_strategy(DRAWS), strategy], EPSILON, 1, noise)
    rows = axis_budgets([leaf_strategy(PAIRS), strategy])
    count, total = law.draw_together([zero, zero], rows, EPSILON, bounds, noise)
    lo, hi = np.sort(rng.integers(0, COVERED + 1, (2, RANGES)), axis=0)
    hi = np.maximum(hi, lo + 1)
    lo = np.minimum(lo, hi - 1)
    model = strategy.solver
    masks = ((np.arange(COVERED) >= lo[:, None]) & (np.arange(COVERED) < hi[:, None])).astype(float)
    for name, view in (("COUNT", single), ("COUNT of two numbers", count), ("SUM", total)):
        leaf = view.variance_at_unit_budget * model.ranges(0, 1)[0]
        between(figures, f"joint tree, 95% intervals of leaves hold, {name}", hits(view.value, leaf))
        ranges = view.variance_at_unit_budget * model.ranges(lo, hi)
        between(
            figures, f"joint tree, 95% intervals of ranges hold, {name}", hits(view.value @ masks.T, ranges)
        )
    rows_in, mean = 4000.0, 6000.0  # of a range: rows, and their average in units of the measure
    counts, sums = rows_in + count.value @ masks.T, mean * rows_in + total.value @ masks.T
    spread = np.tile(model.ranges(lo, hi), PAIRS)
    low, high = fieller(
        sums.ravel(),
        counts.ravel(),
        total.variance_at_unit_budget * spread,
        0 * spread,
        count.variance_at_unit_budget * spread,
        1.96,
    )
    inside = (low <= mean) & (mean <= high)
    between(figures, "joint tree, 95% intervals of averages hold", float(np.mean(inside)))


def print_losses(figures: Figures, made: dict[tuple[int, float], Strategy]) -> None:
    """Of a unit of three rows: in one leaf, and in three."""
    for n, whole in ((64, 0.0), (64, 0.5), (256, 0.5)):
        strategy = made[n, whole]
        for words, leaves in (("one leaf", [n - 1] * 3), ("three leaves", [0, n // 2, n - 1])):

            def publish(noise: Noise, person: list[int], strategy: Strategy = strategy) -> bytes:
                cells = np.bincount(person, minlength=strategy.leaves).astype(np.int64)
                return draw_view(Exact(cells), [strategy], Fraction(1, 2), 3, noise).value.tobytes()

            pair = record_pair(lambda noise: publish(noise, leaves), lambda noise: publish(noise, []))  # noqa: B023
            loss = sum(float(draw.epsilon or 0) for draw in pair.losses) / 0.5
            words = f"three rows in {words} of {n}{', totals asked' if whole else ''}"
            figures.within("joint tree, exact loss over claim", loss, 0.98, 1, words)


def main() -> int:
    """Print the figures."""
    figures, made = Figures(), strategies()
    print_errors(figures, made)
    print_losses(figures, made)
    print_coverage(figures, made[COVERED, 0.0])
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
