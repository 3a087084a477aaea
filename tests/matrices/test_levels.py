"""Moments of joint trees against enumerated ones, and their ranges against dense matrices."""

from __future__ import annotations

import json
from fractions import Fraction
from math import prod
from pathlib import Path

import numpy as np
import pytest

from dpsql.matrices import mean_variance
from dpsql.matrices.strategy import axis_budgets
from dpsql.matrices.tree import LevelVariance, level_moments, level_weights, levels_from_columns
from dpsql.mechanisms.axis.joint_tree import TOTAL, joint_strategy
from dpsql.mechanisms.distribution import Laplace

NO_SHARES = ()
VECTORS = Path(__file__).parents[1] / "vectors"


def vectors(name: str, key: str) -> list[dict]:
    return json.loads((VECTORS / f"joint_{name}.json").read_text())[key]


@pytest.mark.parametrize(
    "law", vectors("levels", "levels"), ids=lambda law: f"{prod(law['arities'])}-{law['rates'][-1]:.3g}"
)
def test_levels_have_the_enumerated_moments(law: dict) -> None:
    moments = level_moments(tuple(law["arities"]), tuple(law["rates"]), bound=1)
    assert moments.variance == pytest.approx(law["level_variance"], rel=1e-3)
    assert moments.draws == pytest.approx(law["draws_a_leaf"], rel=5e-3)
    n = prod(law["arities"])
    model = LevelVariance(
        n, tuple(law["arities"]), NO_SHARES, level_weights(law["arities"], moments.variance)
    )
    assert mean_variance(model) == pytest.approx(law["all_ranges"], rel=1e-3)


@pytest.mark.parametrize("law", vectors("tree", "tree"), ids=lambda law: str(law["rates"]))
def test_small_trees_have_the_enumerated_covariance(law: dict) -> None:
    moments = level_moments(tuple(law["arities"]), tuple(law["rates"]), bound=1)
    assert moments.variance == pytest.approx(law["level_variance"], rel=1e-4)
    assert moments.acceptance == pytest.approx(law["acceptance_by_level"], rel=1e-4)
    arities = tuple(law["arities"])
    model = LevelVariance(prod(arities), arities, NO_SHARES, level_weights(arities, moments.variance))
    expected = np.array(law["covariance"])
    u = np.random.default_rng(3).normal(size=(20, prod(arities)))
    assert model.quadratic(u) == pytest.approx(np.einsum("gi,ij,gj->g", u, expected, u), rel=1e-3)


def pair_variances(
    arities: tuple[int, ...], rates: list[float], bounds: tuple[int, int], points: tuple[int, int]
) -> np.ndarray:
    """Variances of both numbers' node sums by level, P ~ exp(-sum rate max(|a| / M_0, |b| / M_1)), on whole windows."""
    count, total = (np.fft.fftfreq(n, 1 / n) for n in points)
    size = np.maximum(np.abs(count)[:, None] / bounds[0], np.abs(total)[None] / bounds[1])
    inside, transforms = [np.exp(-rates[-1] * size)], []
    for arity, rate in zip(reversed(arities), reversed(rates[:-1]), strict=True):
        transforms.append(np.fft.rfft2(inside[-1] / inside[-1].sum()))
        inside.append(np.fft.irfft2(transforms[-1] ** arity, points) * np.exp(-rate * size))
    outside, variances = np.ones(points), []
    for level, density in enumerate(reversed(inside)):
        if level:
            up = np.fft.rfft2(outside * np.exp(-rates[level - 1] * size))
            outside = np.fft.irfft2(up * transforms[-level] ** (arities[level - 1] - 1), points)
        law = density * outside / (density * outside).sum()
        variances.append((law.sum(axis=1) @ count**2, law.sum(axis=0) @ total**2))
    return np.array(variances)


def test_the_enumeration_of_pairs_is_that_of_the_vector() -> None:
    (law,) = vectors("tree_pairs", "tree_pairs")
    leaf = pair_variances(tuple(law["arities"]), law["rates"], (1, law["M"]), (128, 128))[1]
    assert leaf == pytest.approx([law["var_count"], law["var_sum"]], rel=1e-4)


@pytest.mark.parametrize(
    ("epsilon", "bounds", "points", "above"),
    [
        (0.25, (1, 1), (512, 512), 1.002),
        (0.5, (1, 3), (256, 1024), 1.001),
        (1, (1, 1), (256, 256), 1.02),
        (1, (3, 12), (512, 1024), 1.001),
        (4, (1, 12), (64, 512), 1.25),
    ],
)
def test_two_numbers_on_a_tree_have_the_variance_that_is_stated(
    epsilon: float, bounds: tuple[int, int], points: tuple[int, int], above: float
) -> None:
    """All integers of a small tree: what is stated is never below the truth, and next to it at small epsilon."""
    strategy = joint_strategy(16, (4, 4), (228, 900, TOTAL - 1128))
    law, axes = Laplace(2, max(bounds)), axis_budgets([strategy])
    rates = [epsilon * share for share in strategy.levels.rates(TOTAL)]
    exact = pair_variances((4, 4), rates, bounds, points)
    for number, bound in enumerate(bounds):
        unit = law.variance_at_unit_budget(axes, Fraction(epsilon), bound)
        stated = unit * strategy.solver.ranges([0, 0, 0], [16, 4, 1])
        assert np.all(stated >= (1 - 1e-4) * exact[:, number])  # the grid of moments errs by .005%
        assert np.all(stated <= above * exact[:, number])


@pytest.mark.parametrize("n", [57, 64])
def test_ranges_are_quadratic_forms_of_their_masks(n: int) -> None:
    arities, rates = (4, 4, 4), (0.039, 0.195, 0.263, 0.503)
    model = LevelVariance(
        n, arities, (1, 5, 7, 13), level_weights(arities, level_moments(arities, rates).variance)
    )
    bounds = [(lo, hi) for lo in range(n) for hi in range(lo, n + 1)]
    lo, hi = np.array(bounds).T
    masks = (np.arange(n) >= lo[:, None]) & (np.arange(n) < hi[:, None])
    assert model.ranges(lo, hi) == pytest.approx(model.quadratic(masks), abs=1e-9)
    again = levels_from_columns(n, model.columns())
    assert np.array_equal(again.ranges(lo, hi), model.ranges(lo, hi))
