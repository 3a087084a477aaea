"""Rows for a few questions over classes of cells: which sums are measured, with how much of the budget each.

A row is a question, what two questions have in common, or a class by itself; or the rows are a full matrix. With
weights u the rows cost, at each class, the sum of u^p over the rows that hold it (p the law's norm), at most 1. The
least error after least squares,

    f(u) = sum over questions w of  w' (H'H)^+ w,        H = rows times their weights,

is searched by prices of the classes: at the optimum each row's gain is worth what its classes cost. Disjoint questions
are each measured with the whole budget, equal ones once; questions that overlap everywhere share the budget as a
pay-per-query tool would share it, which is where the search begins, so that it never ends above it.

**Privacy** Public questions alone. Weights are rounded to integers by those who measure.
**Source** docs/method/views.md, "A few questions".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from dpsql.mechanisms.axis.dense import matrix_root, optimal_gram
from dpsql.tree import FloatArray, IntArray

ROUNDS = 150
"""Ten overlapping rectangles change by less than 0.1% after 100."""

MOST_CLASSES = 600
"""A round decomposes a matrix of this size; beyond, questions are bought in two goes."""

MOST_PAIRS = 40
"""Questions of which all intersections are tried as rows."""

_EVEN = 1e-4  # of the questions' weight, spread over single classes
_SMALLEST = 1e-3  # of the whole budget; a row with less tells next to nothing


class ClassWorkload(NamedTuple):
    """Questions over classes.

    Args:
        classes: class of every cell, -1 where no question is, shape (cells,).
        questions: which classes each holds, 0 or 1, shape (m, K); no two columns are equal.
    """

    classes: IntArray
    questions: IntArray


class WorkloadRows(NamedTuple):
    """Rows with their weights, and the sum of the questions' variances at unit noise.

    Args:
        matrix: the sum of |entries|^p of a column is at most 1, shape (r, K).
        error: f.
    """

    matrix: FloatArray
    error: float


def classes_of(held: IntArray) -> ClassWorkload:
    """Cells that the same questions hold, put together.

    Args:
        held: whether each question holds each cell, 0 or 1, shape (m, cells).

    >>> classes_of(np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 0]])).classes.tolist()
    [1, 2, 2, 0, -1]
    """
    packed = np.packbits(held.astype(np.uint8), axis=0)
    kinds, first, of = np.unique(packed, axis=1, return_index=True, return_inverse=True)
    empty = ~held[:, first].any(axis=0)
    number = np.cumsum(~empty) - 1
    number[empty] = -1
    del kinds
    return ClassWorkload(number[of.ravel()].astype(np.int64), held[:, first[~empty]].astype(np.int64))


def best_rows(questions: IntArray, norm: int) -> WorkloadRows:
    """The rows of least error that are found.

    Args:
        questions: which classes each question holds, shape (m, K).
        norm: 1 where costs of rows add up, 2 where their squares do.
    """
    different = np.unique(questions, axis=0)
    often = np.array([int((questions == row).all(axis=1).sum()) for row in different])
    weighted_questions = different * np.sqrt(often)[:, None]
    candidates = [_searched(rows, start, weighted_questions, norm) for rows, start in _pools(different)]
    return min([*candidates, _full(weighted_questions, norm)], key=lambda rows: rows.error)


def _full(questions: FloatArray, norm: int) -> WorkloadRows:
    """A full matrix: the least error of all where squares add up."""
    gram = questions.T @ questions
    even = (
        _EVEN * np.trace(gram) / len(gram) * np.eye(len(gram))
    )  # fewer questions than classes are no full rank
    matrix = matrix_root(optimal_gram(gram + even, steps=100))
    matrix = matrix / float((np.abs(matrix) ** norm).sum(axis=0).max() ** (1 / norm))
    return WorkloadRows(matrix, _error(matrix, questions).error)


def _pools(different: IntArray) -> Iterator[tuple[IntArray, FloatArray]]:
    """Rows with weights to begin with: questions alone, classes alone, and all together in two ways."""
    m, k = different.shape
    alone = np.eye(k, dtype=np.int64)
    yield different, np.ones(m)
    yield alone, np.ones(k)
    pairs = [a & b for a, b in combinations(different, 2)] if m <= MOST_PAIRS else []
    rows = np.unique(np.array([*different, *alone, *(p for p in pairs if p.any())]), axis=0)
    is_question = (rows[:, None, :] == different[None]).all(axis=2).any(axis=1)
    single = rows.sum(axis=1) == 1
    yield rows, np.where(is_question, 1.0, 0.2)
    yield rows, np.where(single, 1.0, 0.3)


def _searched(rows: IntArray, start: FloatArray, questions: FloatArray, norm: int) -> WorkloadRows:
    """The best of the weights that the prices lead to.

    With s = u^p, f is close to sum c / s^(2/p); the gain of a row, -df/ds, is worth the prices of its classes.
    """
    share = np.asarray(start, np.float64)
    price = np.full(rows.shape[1], 1.0 / rows.shape[1])
    best, best_share = np.inf, share
    for _ in range(ROUNDS):
        spent = rows.T @ share
        share = share / float(spent.max())
        error, solutions = _error(rows * share[:, None] ** (1 / norm), questions)
        if error < best:
            best, best_share = error, share
        price = price * (spent / spent.max()) ** 2
        price = np.maximum(price / price.sum(), 1e-9 / len(price))
        gain = ((rows @ solutions.T) ** 2).sum(axis=1)
        pull = share ** (2 / norm - 1) * gain / (rows @ price)
        share = share * np.maximum(pull / pull.max(), 1e-12) ** (norm / (norm + 2))
    large = best_share > _SMALLEST
    matrix = rows[large] * (best_share[large] / (rows[large].T @ best_share[large]).max())[:, None] ** (
        1 / norm
    )
    return WorkloadRows(matrix, _error(matrix, questions).error)


class _Error(NamedTuple):
    """f, infinite where rows do not tell a question, and (H'H)^+ on each question, shape (m, K)."""

    error: float
    told: FloatArray


def _error(matrix: FloatArray, questions: FloatArray) -> _Error:
    values, vectors = np.linalg.eigh(matrix.T @ matrix)
    seen = values > 1e-10 * max(float(values[-1]), 1e-300)
    inverse = (vectors[:, seen] / values[seen]) @ vectors[:, seen].T
    solutions = questions @ inverse
    missing = questions - (questions @ vectors[:, seen]) @ vectors[:, seen].T
    error = float(np.sum(solutions * questions)) if np.abs(missing).max(initial=0.0) < 1e-6 else np.inf
    return _Error(error, solutions)
