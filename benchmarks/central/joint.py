"""Counts and sums by one draw, against a draw for each: `python -m benchmarks.central.joint`.

Predicted variances of every range (exact up to 2.5%, never understated), and how often 95% intervals of noise drawn
by the shipped sampler hold, on one axis, on a product with categories and on a plane of two ordered axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

import numpy as np

from benchmarks.central.ranges import Boxes, sums
from benchmarks.figures import Figures, main
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


def boxes(shape: Sequence[int], rng: np.random.Generator) -> Boxes:
    """Random ranges on each axis."""
    return tuple(np.sort(rng.integers(0, n + 1, (2, RANGES)), axis=0) for n in shape)


def variances(strategies: Sequence[Strategy], ranges: Boxes) -> FloatArray:
    """Of each box, for noise of unit strength."""
    return prod(
        (s.solver.ranges(*ends) for s, ends in zip(strategies, ranges, strict=True)),
        start=np.ones(RANGES),
    )


def measure(figures: Figures) -> None:
    """Draw each shape."""
    rng, noise = np.random.default_rng(36), ExactNoise(os_entropy())
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
                error = sums(leaf_estimates(view, strategies), ranges)
                hits[number, draw] = np.abs(error) <= 1.96 * np.sqrt(unit * view.variance_at_unit_budget)
        for what, bound, held in zip(("COUNT", "SUM"), BOUNDS, hits, strict=True):
            split = LAPLACE.variance_at_unit_budget(axes, EPSILON / 2, bound)
            ratio = law.variance_at_unit_budget(axes, EPSILON, bound) / split
            figures.at_most("one draw over split budgets, COUNT and SUM", ratio, 0.51, f"{what}, {name}")
            share = float(held[:, unit > 0].mean())
            figures.within("one draw, coverage of ranges", share, 0.93, 0.97, f"{what}, {name}")


if __name__ == "__main__":
    main(measure)
