"""Counts and sums by one draw, against a draw for each: `python -m benchmarks.central.joint`.

Predicted variances of every range (exact up to 2.5%, never understated), and how often 95% intervals of noise drawn
by the shipped sampler hold, on one axis, on a product with categories and on a plane of two ordered axes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fractions import Fraction
from math import prod

import numpy as np

from benchmarks.figures import Figures
from dpsql.matrices.strategy import Strategy, axis_budgets
from dpsql.mechanisms.axis import auto_strategy
from dpsql.mechanisms.designs.measurement import DrawParameters
from dpsql.mechanisms.designs.question import draw_together
from dpsql.mechanisms.distribution import LAPLACE, Laplace
from dpsql.mechanisms.offers import leaf_estimates
from dpsql.noise import ExactNoise, os_entropy
from dpsql.tree import Exact, FloatArray

SHAPES = {"64 leaves": (64,), "64 x 6 cells": (64, 6), "16 x 16 cells": (16, 16)}
EPSILON = Fraction(1, 2)
BOUNDS = (3, 30_000)
"""Of three rows a person, with amounts of up to 100 in cents."""
DRAWS, RANGES = 300, 40


def boxes(shape: Sequence[int], rng: np.random.Generator) -> list[tuple[FloatArray, FloatArray]]:
    """First and last leaf of random ranges on each axis."""
    return [tuple(np.sort(rng.integers(0, n + 1, (2, RANGES)), axis=0)) for n in shape]


def variances(strategies: Sequence[Strategy], ranges: Sequence[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """Of each box, for noise of unit strength."""
    return prod(
        (s.solver.ranges(*ends) for s, ends in zip(strategies, ranges, strict=True)),
        start=np.ones(RANGES),
    )


def errors(estimate: FloatArray, ranges: Sequence[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """Of each box, where all cells are 0."""
    sums = np.zeros([n + 1 for n in estimate.shape])
    sums[tuple(slice(1, None) for _ in estimate.shape)] = estimate
    for axis in range(estimate.ndim):
        sums = np.cumsum(sums, axis=axis)
    if len(ranges) == 1:
        ((low, high),) = ranges
        return sums[high] - sums[low]
    (a, b), (c, d) = ranges
    return sums[b, d] - sums[a, d] - sums[b, c] + sums[a, c]


def main() -> int:
    """Print the figures."""
    figures, rng, noise = Figures(), np.random.default_rng(36), ExactNoise(os_entropy())
    for name, shape in SHAPES.items():
        strategies = [auto_strategy(n).strategy for n in shape]
        ranges, axes = boxes(shape, rng), axis_budgets(strategies)
        law = Laplace(len(BOUNDS), max(BOUNDS))
        terms = [DrawParameters(strategies, law, EPSILON, bound) for bound in BOUNDS]
        empty = [Exact(np.zeros(shape, np.int64)) for _ in BOUNDS]
        unit = variances(strategies, ranges)
        hits = np.zeros((len(BOUNDS), DRAWS, RANGES), bool)
        for draw in range(DRAWS):
            for number, view in enumerate(draw_together(empty, terms, noise)):
                error = errors(leaf_estimates(view, strategies), ranges)
                hits[number, draw] = np.abs(error) <= 1.96 * np.sqrt(unit * view.variance_at_unit_budget)
        for number, (what, bound) in enumerate(zip(("COUNT", "SUM"), BOUNDS, strict=True)):
            ratio = law.variance_at_unit_budget(axes, EPSILON, bound) / LAPLACE.variance_at_unit_budget(
                axes, EPSILON / 2, bound
            )
            figures.at_most("one draw over split budgets, COUNT and SUM", ratio, 0.51, f"{what}, {name}")
            share = float(hits[number][:, unit > 0].mean())
            figures.within("one draw, coverage of ranges", share, 0.93, 0.97, f"{what}, {name}")
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
