"""Rows of a few questions spend what they may and no more, in fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.budget import SLACK, scaled_denominator
from dpsql.errors import InternalError
from dpsql.mechanisms.designs.measurement import DrawParameters
from dpsql.mechanisms.designs.workload_matrix import AskedRows, best_rows, classes_of
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE


def rows(law, seed: int) -> AskedRows:
    rng = np.random.default_rng(seed)
    held = (rng.random((5, 30)) < 0.4).astype(np.int64)
    classes, questions = classes_of(held)
    matrix = np.trunc(best_rows(questions, law.norm).matrix * (1 << 16)).astype(np.int64)
    largest = int((np.abs(matrix) ** law.norm).sum(axis=0).max())
    total = next(b for b in range(int(largest ** (1 / law.norm)), largest + 1) if b**law.norm >= largest)
    return AskedRows(classes.reshape(5, 6), matrix, total, law)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sensitivity", [1, 250])
def test_no_cell_spends_more_than_epsilon(seed: int, sensitivity: int):
    made, epsilon = rows(LAPLACE, seed), Fraction(1, 7)
    budget = made.budgets(DrawParameters((), LAPLACE, epsilon, sensitivity))
    t, spent = scaled_denominator(sensitivity), []
    for cell in np.ndindex(5, 6):
        one = np.zeros((5, 6), np.int64)
        one[cell] = sensitivity
        moved = made.measure(one, ())
        pairs = zip(moved, budget, strict=True)
        spent.append(sum((abs(int(m)) * Fraction(int(s), t * sensitivity) for m, s in pairs), Fraction(0)))
    assert epsilon * Fraction(98, 100) < max(spent) <= epsilon


@pytest.mark.parametrize("seed", range(3))
def test_no_cell_spends_more_than_mu2(seed: int):
    made, mu2 = rows(GAUSSIAN, seed), Fraction(1, 18)
    sigma2 = GAUSSIAN.row_variance(1, Fraction(made.total**2) / mu2)
    spent = []
    for cell in np.ndindex(5, 6):
        one = np.zeros((5, 6), np.int64)
        one[cell] = 1
        moved = made.measure(one, ())
        spent.append(sum((Fraction(int(m) ** 2) / (sigma2 - SLACK) for m in moved), Fraction(0)))
    assert mu2 * Fraction(98, 100) < max(spent) <= mu2


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN])
def test_overspending_rows_cannot_be_built(law):
    good = rows(law, 1)
    with pytest.raises(InternalError):
        AskedRows(good.classes, good.matrix * 2, good.total, law)
    with pytest.raises(InternalError):
        AskedRows(good.classes, good.matrix, good.total - good.total // 50, law)
