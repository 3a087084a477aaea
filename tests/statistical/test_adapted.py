"""Data-dependent views: their variance model against many draws, and their parts against their epsilon."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest

from dpsql.errors import InternalError
from dpsql.mechanisms.axis.choose import auto_strategy
from dpsql.mechanisms.central.adapted import ADAPTIVE, DAWA, DIFFHR, PARTS, draw_adapted
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy

STEPS = np.repeat([40, 900, 40, 3000], [14, 6, 8, 4]).astype(np.int64)
"""Cells whose groups are the same in nearly every draw, so that what is left is noise."""


@lru_cache
def strategy_for(n: int):
    return auto_strategy(n).strategy


@pytest.mark.parametrize("method", PARTS)
def test_parts_make_up_the_whole(method):
    assert sum(share for _, share in PARTS[method]) == 1


@pytest.mark.parametrize(("method", "least"), [(DIFFHR, 0.3), (DAWA, 0.7), (ADAPTIVE, 0.7)])
def test_predicted_variance_is_that_of_many_draws(method, least):
    """Where groups hold equal cells there is no bias, and the model is the whole error; DiffHR's is an upper bound."""
    noise = ExactNoise(insecure_test_entropy(8))
    masks = np.random.default_rng(1).random((4, len(STEPS))) < 0.5
    errors, predicted = [], []
    for _ in range(200):
        view = draw_adapted(method, STEPS, Fraction(1), 2, noise, strategy_for)
        errors.append(masks @ (view.leaves - STEPS))
        predicted.append(view.unit_variance * view.model.quadratic(masks))
    ratio = np.mean(np.square(errors), axis=0) / np.mean(predicted, axis=0)
    assert np.all((ratio > least) & (ratio < 1.4)), ratio


@pytest.mark.parametrize("method", [DIFFHR, DAWA, ADAPTIVE])
def test_shapes_and_the_noiseless_case(method):
    view = draw_adapted(method, STEPS, Fraction(1), 1, ZeroNoise(), strategy_for)
    assert view.value.shape == view.budget.shape
    assert view.leaves.sum() == pytest.approx(STEPS.sum())
    assert np.allclose(view.leaves, STEPS)
    assert view.biased == (method != ADAPTIVE)
    assert view.model.n == len(STEPS)


def test_unknown_method():
    with pytest.raises(InternalError, match="no data-dependent"):
        draw_adapted("other", STEPS, Fraction(1), 1, ZeroNoise(), strategy_for)
