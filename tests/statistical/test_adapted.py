"""Data-dependent views: their variance model against many draws, and their parts against their epsilon."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms.designs.adaptive import ADAPTIVE
from dpsql.mechanisms.designs.diffhr import DIFFHR
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy

STEPS = np.repeat([40, 900, 40, 3000], [14, 6, 8, 4]).astype(np.int64)
"""Cells whose groups are the same in nearly every draw, so that what is left is noise."""


@pytest.mark.parametrize("method", [DIFFHR, ADAPTIVE])
def test_parts_make_up_the_whole(method):
    assert sum(share for _, share in method.parts) == 1


@pytest.mark.parametrize(("method", "least"), [(DIFFHR, 0.3), (ADAPTIVE, 0.7)])
def test_predicted_variance_is_that_of_many_draws(method, least):
    """Where groups hold equal cells there is no bias, and the model is the whole error; DiffHR's is an upper bound."""
    noise = ExactNoise(insecure_test_entropy(8))
    masks = np.random.default_rng(1).random((4, len(STEPS))) < 0.5
    errors, predicted = [], []
    for _ in range(200):
        view = method.sample(STEPS, Fraction(1), 2, noise)
        errors.append(masks @ (view.leaves - STEPS))
        predicted.append(view.variance_at_unit_budget * view.model.quadratic(masks))
    ratio = np.mean(np.square(errors), axis=0) / np.mean(predicted, axis=0)
    assert np.all((ratio > least) & (ratio < 1.4)), ratio


@pytest.mark.parametrize("method", [DIFFHR, ADAPTIVE])
def test_shapes_and_the_noiseless_case(method):
    view = method.sample(STEPS, Fraction(1), 1, ZeroNoise())
    assert view.value.shape == view.budget.shape
    assert view.leaves.sum() == pytest.approx(STEPS.sum())
    assert np.allclose(view.leaves, STEPS)
    assert method.biased == (method != ADAPTIVE)
    assert view.model.n == len(STEPS)
