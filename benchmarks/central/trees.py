"""Leaves of a tree by one draw, against the method's table: `python -m benchmarks.central.trees`.

Errors are exact, from public facts; coverage and losses are those of the shipped sampler.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from benchmarks.central.ranges import masks as masks_of
from benchmarks.figures import Figures, main
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
        for epsilon, name in ((EPSILON, ".1"), (Fraction(1), "1")):
            over = mean_error(made[n, whole], whole, epsilon) / table
            figures.at_most("joint tree over the method's error", over, 1.02, f"epsilon {name}, {words}")


def print_coverage(figures: Figures, strategy: Strategy) -> None:
    """Of leaves, of random ranges and of averages over them; draws of one number and of two."""

    def covered(what: str, inside: np.ndarray) -> None:
        figures.within("joint tree, coverage", float(np.mean(inside)), 0.93, 0.97, what)

    law, bounds, rng = Laplace(2, 30_000), [3, 30_000], np.random.default_rng(36)
    noise, zero = ExactNoise(os_entropy()), Exact(np.zeros((PAIRS, COVERED), np.int64))
    many = Exact(np.zeros((DRAWS, COVERED), np.int64))
    single = draw_view(many, [leaf_strategy(DRAWS), strategy], EPSILON, 1, noise)
    rows = axis_budgets([leaf_strategy(PAIRS), strategy])
    count, total = law.draw_together([zero, zero], rows, EPSILON, bounds, noise)
    lo, hi = np.sort(rng.integers(0, COVERED + 1, (2, RANGES)), axis=0)
    hi = np.maximum(hi, lo + 1)
    lo = np.minimum(lo, hi - 1)
    model, (masks,) = strategy.solver, masks_of([COVERED], (np.stack([lo, hi]),))
    for name, view in (("COUNT", single), ("COUNT of two numbers", count), ("SUM", total)):
        unit = view.variance_at_unit_budget
        for what, error, variance in (
            ("leaves", view.value, model.ranges(0, 1)[0]),
            ("ranges", view.value @ masks.T, model.ranges(lo, hi)),
        ):
            inside = np.abs(error) <= 1.96 * np.sqrt(unit * variance)
            covered(f"joint tree, 95% intervals of {what} hold, {name}", inside)
    rows_in, mean = 4000.0, 6000.0  # of a range: rows, and their average in units of the measure
    counts, sums = rows_in + count.value @ masks.T, mean * rows_in + total.value @ masks.T
    spread = np.tile(model.ranges(lo, hi), PAIRS)
    of_sums, of_counts = (view.variance_at_unit_budget * spread for view in (total, count))
    low, high = fieller(sums.ravel(), counts.ravel(), of_sums, 0 * spread, of_counts, 1.96)
    covered("joint tree, 95% intervals of averages hold", (low <= mean) & (mean <= high))


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


def measure(figures: Figures) -> None:
    made = strategies()
    print_errors(figures, made)
    print_losses(figures, made)
    print_coverage(figures, made[COVERED, 0.0])


if __name__ == "__main__":
    main(measure)
