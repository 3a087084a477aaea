"""A few questions measured together: just what they need, and nothing else of the table.

| here | there | unit |
|---|---|---|
| `AskedRows` | rows H over classes of cells, weights as integers; largest column norm B = `total` | rows x classes |
| budgets | the law's, for one axis of rows of weight 1 out of B | as of `law` |
| `unit_variance` | c: variance of a row over B^2 | (stored unit)^2 |

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
from math import nan, prod
from typing import ClassVar

import numpy as np

from dpsql.errors import CatalogError, InternalError
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.question import AxisChoice
from dpsql.mechanisms.axis.rows import SparseRows
from dpsql.mechanisms.axis.strategy import AxisStrategy
from dpsql.mechanisms.family.asked_rows import MOST_CLASSES, best_rows, classes_of
from dpsql.mechanisms.family.measurement import (
    Alone,
    AxisWorkload,
    ChargeLine,
    DrawnMember,
    DrawReplay,
    LinearRows,
    Terms,
)
from dpsql.mechanisms.family.question import (
    Answer,
    Boxes,
    FamilyCandidate,
    FamilyDesign,
    FamilyQuestion,
    NamedFamily,
    ViewChoice,
)
from dpsql.mechanisms.law import AxisBudget, NoiseLaw, NoisyRows
from dpsql.mechanisms.offers import Offer, Refusal
from dpsql.noise import Noise
from dpsql.tree import Exact, FloatArray, IntArray
from dpsql.variance.asked import AskedReading, AskedVariance
from dpsql.variance.reconcile import Subset

TOTAL = 1 << 16
"""What stands for the whole budget: a row with a hundredth of it is rounded by 0.2%."""


@dataclass(frozen=True, eq=False)
class AskedRows(Alone):
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
    law: NoiseLaw
    parts: ClassVar[tuple[ChargeLine, ...]] = (ChargeLine("", Fraction(1)),)
    biased: ClassVar[bool] = False
    replay: ClassVar[DrawReplay | None] = None
    reading: ClassVar[str] = AskedReading.name
    listed: ClassVar[Mapping[int, int]] = {}

    def __post_init__(self) -> None:
        """Refuse rows that are more sensitive than they say."""
        if self._rows.column_bound(self._axis.budget, self.law.norm) > self.total**self.law.norm:
            raise InternalError("rows of a few questions are more sensitive than declared")

    @property
    def _rows(self) -> SparseRows:
        """H row by row."""
        p, k = self.matrix.shape
        stops = np.full(p, k, np.int64)
        return SparseRows(k, stops * 0, stops, k * np.arange(p + 1), self.matrix.ravel())

    @property
    def _axis(self) -> AxisBudget:
        """All rows in a line, of equal budgets."""
        return AxisBudget(np.ones(len(self.matrix), np.int64), self.total)

    @property
    def linear(self) -> LinearRows:
        return self

    def words(self, strategies: Sequence[str]) -> str:
        return f"{len(self.matrix)} sums for a few questions"

    def row_count(self, strategies: Sequence[AxisStrategy]) -> int:
        return len(self.matrix)

    def unit_variance(self, terms: Terms) -> float:
        return terms.law.unit_variance([self._axis], terms.spend, terms.sensitivity)

    @cached_property
    def _model(self) -> AskedVariance:
        return AskedVariance(self.classes, self.matrix / self.total)

    def joint_variance(self) -> AskedVariance:
        """Least squares over the classes."""
        return self._model

    def mean_variance(
        self,
        axes: Subset,
        unit: float,
        family: Sequence[tuple[Subset, float]],
        asked: Mapping[int, AxisWorkload],
    ) -> float:
        """Of a class that is known by itself; ranges on every axis were not asked, and most are not known."""
        return float(unit * np.diag(self._model.covariance_of_classes).mean())

    def draw(self, cells: Exact, terms: Terms, noise: Noise) -> NoisyRows:
        """Sums of classes in exact integers, rows of them, then one draw of the law.

        **Privacy**: the spend, for neighbours that differ in one unit's rows.
        """
        exact = Exact(self.measure(cells, terms.strategies))
        return terms.law.draw(exact, [self._axis], terms.spend, terms.sensitivity, noise)

    def estimates(
        self, family: Sequence[DrawnMember], strategies: Mapping[int, AxisStrategy]
    ) -> list[FloatArray]:
        """Least squares over the classes, each spread evenly over its cells; cells not measured are 0."""
        return [self.leaf_estimates(view, ()) for _, view in family]

    def shape(self, strategies: Sequence[AxisStrategy]) -> tuple[int, ...]:
        return (len(self.matrix),)

    def known(self, strategies: Sequence[AxisStrategy]) -> int:
        return self._model.rank

    def budgets(self, terms: Terms) -> IntArray:
        return terms.law.budgets([self._axis], terms.spend, terms.sensitivity)

    def largest_column(self, budget: IntArray, terms: Terms) -> int:
        """As the law adds up."""
        return terms.law.largest_column(budget, [self._rows], [self._axis])

    def column_cap(self, terms: Terms) -> int:
        """Of these rows, as the law says."""
        return terms.law.column_cap([self._axis], terms.spend, terms.sensitivity)

    def measure(self, cells: IntArray, strategies: Sequence[AxisStrategy]) -> IntArray:
        """H times the sums of the classes, modulo 2^64."""
        flat, of = np.asarray(cells, np.int64).ravel(), self.classes.ravel()
        sums = np.zeros(self.matrix.shape[1], np.int64)
        np.add.at(sums, of[of >= 0], flat[of >= 0])
        return np.asarray(self.matrix @ sums, np.int64)

    def weights(self, strategies: Sequence[AxisStrategy]) -> FloatArray:
        return np.full(len(self.matrix), 1.0 / self.total)

    def leaf_estimates(self, view: NoisyRows, strategies: Sequence[AxisStrategy]) -> FloatArray:
        """Least squares, refined once, so that float rounding stays relative to the noise."""
        first = self._class_sums(view.value)
        sums = first + self._class_sums(view.value - self.matrix @ first)
        even = np.append(sums / self._model.sizes, 0.0)  # class -1 is the last
        return np.asarray(even[self.classes], np.float64)

    def _class_sums(self, y: FloatArray | IntArray) -> FloatArray:
        rows = self._model.rows
        return np.asarray(self._model.covariance_of_classes @ (rows.T @ (y / self.total)), np.float64)


NAMED: Mapping[str, NamedFamily] = {"asked": NamedFamily(lambda view: view, whole=0.0)}


def offers(question: FamilyQuestion) -> Iterator[Answer]:
    """The rows for one view that lists its questions."""
    name = "sums for a few questions"
    reason = _reason(question)
    if reason:
        yield Refusal(name, reason)
    else:
        yield Offer(name, 0.0, lambda: _best(question))


def _reason(question: FamilyQuestion) -> str:
    """Why it does not answer, or an empty string."""
    if not question.named:
        return "is for views that list their questions"
    if question.people:
        return f"needs a declared number in max_ids of {question.of}"
    if question.batches:
        return "is not made batch by batch"
    return "" if question.views[0].questions else "needs `questions`"


def held_cells(questions: Sequence[Boxes], leaves: Sequence[int]) -> IntArray:
    """Whether each question holds each cell, 0 or 1, shape (m, cells).

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
            raise CatalogError(f"questions: [{low}, {high}) is no interval of {n} leaves")
        mask[low:high] += 1
    return mask


def _best(question: FamilyQuestion) -> FamilyCandidate:
    """The law and the rows of least error for the questions of the one view."""
    (view,) = question.views
    leaves = question.leaves(view)
    kinds = classes_of(held_cells(view.questions, leaves))
    if not 1 <= kinds.questions.shape[1] <= MOST_CLASSES:
        raise CatalogError(
            f"views.{view.name}.questions: {kinds.questions.shape[1]} kinds of cells, the limit is {MOST_CLASSES}",
            hint="buy them in two goes" if kinds.questions.size else "ask for something that can occur",
        )
    rows_by_law = {law: best_rows(kinds.questions, law.norm) for law in question.laws}
    law = min(rows_by_law, key=lambda law: question.price(law) * law.unit_error * rows_by_law[law].error)
    matrix = np.trunc(TOTAL * rows_by_law[law].matrix).astype(np.int64)
    largest = int((np.abs(matrix) ** law.norm).sum(axis=0).max())
    total = int(law.integer_root(np.array([largest]))[0])
    total += total**law.norm < largest
    rows = AskedRows(kinds.classes.reshape(leaves), matrix, total, law)
    error = law.unit_error * float(np.sum(rows_by_law[law].error)) / len(view.questions)
    choices: tuple[AxisChoice, ...] = tuple(
        AxisChoice(LeafStrategy(n, law), rows.words(()), error) for n in leaves
    )
    return FamilyCandidate(rows.words(()), FamilyDesign(rows, (ViewChoice(law, choices),)), lambda: nan)
