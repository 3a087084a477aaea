"""Moments of joint trees against enumerated ones, and their ranges against dense matrices."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import numpy as np
import pytest

from dpsql.variance import mean_variance
from dpsql.variance.levels import LevelVariance, from_columns, level_moments, level_weights

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
    again = from_columns(n, model.columns())
    assert np.array_equal(again.ranges(lo, hi), model.ranges(lo, hi))
