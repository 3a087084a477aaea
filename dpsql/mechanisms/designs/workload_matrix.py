"""A few questions measured together: just what they need, and nothing else of the table.

A row is a question, what two questions have in common, or a class of cells by itself; or the rows are a full matrix.
With weights u the rows cost, at each class, the sum of u^p over the rows that hold it (p the law's norm), at most 1.
The least error after least squares,

    f(u) = sum over questions w of  w' (H'H)^+ w,        H = rows times their weights,

is searched by prices of the classes: at the optimum each row's gain is worth what its classes cost. Disjoint questions
are each measured with the whole budget, equal ones once; questions that overlap everywhere share the budget as a
pay-per-query tool would share it, which is where the search begins, so that it never ends above it.

A round, with s = u^p and g_r = -df / d(u_r^2), so that s^(2/p - 1) g_r is -df/ds up to a factor:

    s_r <- s_r (s_r^(2/p - 1) g_r / sum of the prices of r's classes)^(p / (p + 2))
    price of a class <- price (its cost over the largest)^2

| here | there | unit |
|---|---|---|
| `AskedRows` | rows H over classes of cells, weights as integers; largest column norm B = `total` | rows x classes |
| budgets | the law's, for one axis of rows of weight 1 out of B | as of `law` |
| `variance_at_unit_budget` | c: variance of a row over B^2 | (stored unit)^2 |

**Privacy**: one unit changes the cells by at most M in L1, and a cell's column of H has norm at most B, in integers: so
the rows move by at most B M in the law's norm, which is what the law takes. Classes follow from public
questions (docs/privacy.md, section 4).
**Source**: docs/method/views.md, "A few questions".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import nan, prod
from typing import NamedTuple

import numpy as np

from dpsql.errors import CatalogError, InternalError
from dpsql.matrices.blocks import AskedReading, AskedVariance
from dpsql.matrices.estimated import Estimated
from dpsql.matrices.reconcile import Subset
from dpsql.matrices.strategy import AxisBudget, SparseRows, Strategy, integer_root
from dpsql.mechanisms.axis.dense import matrix_root, optimal_gram
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.designs import measurement
from dpsql.mechanisms.designs.question import (
    Boxes,
    DesignProblem,
    FamilyCandidate,
    FamilyDesign,
    NamedFamily,
    Proposal,
    ViewChoice,
    stands_alone,
)
from dpsql.mechanisms.distribution import NoiseDistribution, NoisyRows
from dpsql.mechanisms.offers import AxisChoice, Offer, Refusal
from dpsql.tree import FloatArray, IntArray

ROUNDS = 150
"""Ten overlapping rectangles change by less than 0.1% after 100."""

MOST_CLASSES = 600
"""A round decomposes a matrix of this size; beyond, questions are bought in two goes."""

MOST_PAIRS = 40
"""Questions of which all intersections are tried as rows."""

_EVEN = 1e-4  # of the questions' weight, spread over single classes
_SMALLEST = 1e-3  # of the whole budget; a row with less tells next to nothing


class WorkloadRows(NamedTuple):
    """Rows with their weights, and the sum of the questions' variances at unit noise.

    Args:
        matrix: the sum of |entries|^p of a column is at most 1, shape (r, K).
        error: f.
    """

    matrix: FloatArray
    error: float


def classes_of(held: IntArray) -> tuple[IntArray, IntArray]:
    """Cells that the same questions hold, put together.

    Args:
        held: whether each question holds each cell, 0 or 1, shape (m, cells).

    Returns:
        Class of every cell, -1 where no question is, shape (cells,); which classes each question holds, 0 or 1, shape
        (m, K), no two columns equal.

    >>> classes_of(np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 0]]))[0].tolist()
    [1, 2, 2, 0, -1]
    """
    packed = np.packbits(held.astype(np.uint8), axis=0)
    kinds, first, of = np.unique(packed, axis=1, return_index=True, return_inverse=True)
    empty = ~held[:, first].any(axis=0)
    number = np.cumsum(~empty) - 1
    number[empty] = -1
    del kinds
    return number[of.ravel()].astype(np.int64), held[:, first[~empty]].astype(np.int64)


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
    # fewer questions than classes are no full rank
    even = _EVEN * np.trace(gram) / len(gram) * np.eye(len(gram))
    matrix = matrix_root(optimal_gram(gram + even, steps=100))
    matrix = matrix / float((np.abs(matrix) ** norm).sum(axis=0).max() ** (1 / norm))
    return WorkloadRows(matrix, _error(matrix, questions)[0])


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
    return WorkloadRows(matrix, _error(matrix, questions)[0])


def _error(matrix: FloatArray, questions: FloatArray) -> tuple[float, FloatArray]:
    """f, infinite where rows do not tell a question, and (H'H)^+ on each question, shape (m, K)."""
    values, vectors = np.linalg.eigh(matrix.T @ matrix)
    seen = values > 1e-10 * max(float(values[-1]), 1e-300)
    inverse = (vectors[:, seen] / values[seen]) @ vectors[:, seen].T
    solutions = questions @ inverse
    missing = questions - (questions @ vectors[:, seen]) @ vectors[:, seen].T
    error = float(np.sum(solutions * questions)) if np.abs(missing).max(initial=0.0) < 1e-6 else np.inf
    return error, solutions


TOTAL = 1 << 16
"""What stands for the whole budget: a row with a hundredth of it is rounded by 0.2%."""


@dataclass(frozen=True, eq=False)
class AskedRows(measurement.OwnParts, measurement.LinearRows):
    """Integer rows over classes of cells. See `Measurement` and `LinearRows` for what its methods answer.

    Args:
        classes: class of every cell, -1: not measured, shape (n_1, .., n_d).
        matrix: H, shape (p, K).
        total: B.
        law: the noise.

    **Privacy** A column norm above `total` is refused here.
    """

    classes: IntArray
    matrix: IntArray
    total: int
    law: NoiseDistribution

    def __post_init__(self) -> None:
        """Refuse rows that are more sensitive than they say."""
        (rows,), (axis,) = self.entries(()), self.row_budgets(())
        if rows.column_bound(axis.budget, self.law.norm) > self.total**self.law.norm:
            raise InternalError("rows of a few questions are more sensitive than declared")

    def row_budgets(self, strategies: Sequence[Strategy]) -> list[AxisBudget]:
        """All rows in a line, of equal budgets."""
        return [AxisBudget(np.ones(len(self.matrix), np.int64), self.total)]

    def entries(self, strategies: Sequence[Strategy]) -> Sequence[SparseRows]:
        """H row by row."""
        p, k = self.matrix.shape
        stops = np.full(p, k, np.int64)
        return [SparseRows(k, stops * 0, stops, k * np.arange(p + 1), self.matrix.ravel())]

    @property
    def facts(self) -> measurement.MeasurementFacts:
        """One part, rows over classes, one model of all cells."""
        return measurement.MeasurementFacts(
            (measurement.ChargeLine("", Fraction(1)),), AskedReading.name, linear=self, model=self._model
        )

    def words(self, strategies: Sequence[str]) -> str:
        return f"{len(self.matrix)} sums for a few questions"

    @cached_property
    def _model(self) -> AskedVariance:
        return AskedVariance(self.classes, self.matrix / self.total)

    def mean_variance(
        self, axes: Subset, unit: float, family: measurement.MemberVariances, asked: measurement.AxisWorkloads
    ) -> float:
        """Of a class that is known by itself; ranges on every axis were not asked, and most are not known."""
        return float(unit * np.diag(self._model.covariance_of_classes).mean())

    def estimate(
        self, family: Sequence[measurement.DrawnMember], axes: Mapping[int, measurement.MeasuredAxis]
    ) -> list[Estimated]:
        """Least squares over the classes, each spread evenly over its cells; cells not measured are 0."""
        return measurement.estimated(
            self, family, [self.leaf_estimates(member.view, ()) for member in family], axes
        )

    def known(self, strategies: Sequence[Strategy]) -> int:
        return self._model.rank

    def measure(self, cells: IntArray, strategies: Sequence[Strategy]) -> IntArray:
        """H times the sums of the classes, modulo 2^64."""
        flat, of = np.asarray(cells, np.int64).ravel(), self.classes.ravel()
        sums = np.zeros(self.matrix.shape[1], np.int64)
        np.add.at(sums, of[of >= 0], flat[of >= 0])
        return np.asarray(self.matrix @ sums, np.int64)

    def leaf_estimates(self, view: NoisyRows, strategies: Sequence[Strategy]) -> FloatArray:
        """Least squares, refined once, so that float rounding stays relative to the noise."""
        first = self._class_sums(view.value)
        sums = first + self._class_sums(view.value - self.matrix @ first)
        even = np.append(sums / self._model.sizes, 0.0)  # class -1 is the last
        return np.asarray(even[self.classes], np.float64)

    def _class_sums(self, y: FloatArray | IntArray) -> FloatArray:
        rows = self._model.rows
        return np.asarray(self._model.covariance_of_classes @ (rows.T @ (y / self.total)), np.float64)


NAMED: Mapping[str, NamedFamily] = {"asked": NamedFamily(stands_alone, whole=0.0)}


def offers(question: DesignProblem) -> Iterator[Proposal]:
    """The rows for one view that lists its questions."""
    name = "sums for a few questions"
    reason = _reason(question)
    if reason:
        yield Refusal(name, reason)
    else:
        yield Offer(name, 0.0, lambda: _best(question))


def _reason(question: DesignProblem) -> str:
    """Reason for a refusal, or an empty string."""
    if not question.named:
        return "is for views that list their questions"
    if question.people:
        return f"needs a declared number in max_ids of {question.of}"
    if question.batches:
        return "is not made batch by batch"
    return "" if question.views[0].questions else "needs `questions`"


def held_cells(questions: Sequence[Boxes], leaves: Sequence[int]) -> IntArray:
    """True if each question holds each cell, 0 or 1, shape (m, cells).

    Args:
        questions: for each one disjoint boxes: half-open intervals of leaves on each axis.
        leaves: of each axis.

    Raises:
        CatalogError: an interval outside of its axis, a box with other axes, or boxes that overlap.
    """
    membership = np.zeros((len(questions), prod(leaves)), np.int64)
    for row, boxes in zip(membership, questions, strict=True):
        for box in boxes:
            if len(box) != len(leaves):
                raise CatalogError("questions: a box needs intervals of leaves for each axis of the view")
            cells = np.ones(1, np.int64)
            for intervals, n in zip(box, leaves, strict=True):
                cells = np.outer(cells, _mask(intervals, n)).ravel()
            row += cells
    if membership.max(initial=0) > 1:
        raise CatalogError("questions: boxes of one question must not overlap")
    return membership


def _mask(intervals: Sequence[tuple[int, int]], n: int) -> IntArray:
    mask = np.zeros(n, np.int64)
    for low, high in intervals:
        if not 0 <= low < high <= n:
            raise CatalogError(f"questions: [{low}, {high}) is not an interval of {n} leaves")
        mask[low:high] += 1
    return mask


def _best(question: DesignProblem) -> FamilyCandidate:
    """The rows of least error for the questions of the one view."""
    (view,), law = question.views, question.law
    leaves = question.leaves(view)
    classes, questions = classes_of(held_cells(view.questions, leaves))
    if not 1 <= questions.shape[1] <= MOST_CLASSES:
        raise CatalogError(
            f"views.{view.name}.questions: {questions.shape[1]} kinds of cells, the limit is {MOST_CLASSES}",
            hint="buy them in two purchases" if questions.size else "ask for something that can occur",
        )
    best = best_rows(questions, law.norm)
    matrix = np.trunc(TOTAL * best.matrix).astype(np.int64)
    largest = int((np.abs(matrix) ** law.norm).sum(axis=0).max())
    total = int(integer_root(np.array([largest]), law.norm)[0])
    total += total**law.norm < largest
    rows = AskedRows(classes.reshape(leaves), matrix, total, law)
    error = law.error_at_unit_budget * float(np.sum(best.error)) / len(view.questions)
    choices: tuple[AxisChoice, ...] = tuple(
        AxisChoice(leaf_strategy(n, law.norm), rows.words(()), error) for n in leaves
    )
    return FamilyCandidate(rows.words(()), FamilyDesign(rows, (ViewChoice(law, choices),)), lambda: nan)
