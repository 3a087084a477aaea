"""Two axes together by product hats: exact integers, noise once, estimates of the cells.

A Kronecker product of tents also measures hat x leaf and leaf x hat, and pays for it. For rectangles on planes of up
to about 64 x 64 one layer of product hats and the cells themselves are better (445 against 485 at 64 x 64); on larger
planes the product of the one-axis strategies wins, and so it does where whole axes are asked about as often as ranges,
but for planes of about 6 x 6.

| here | there | unit |
|---|---|---|
| `ProductHats` | rows H: each cell times its weight, then the hats; largest column sum B = `total` | rows x cells |
| s | floor(cap / B), the same for every row | epsilon in units of 1/t |
| `denominator` | t M | 1/epsilon per budget unit |
| `unit_variance` | c: variance of a row over B^2 | (stored unit)^2 |

**Privacy**: one unit changes the cells by at most M in L1, so the rows move by at most B M together and the loss is at
most B s / t <= cap / t <= epsilon. The sums, the budgets and the noise are integers.
**Source**: docs/method/views.md, "Product hats".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.budget import cap_units, scaled_denominator
from dpsql.errors import InterfaceError, InternalError, PrivacyError
from dpsql.mechanisms.axis.dense import workload_gram
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.question import AxisChoice
from dpsql.mechanisms.axis.rows import largest_sum
from dpsql.mechanisms.axis.strategy import AxisStrategy, axis_budgets
from dpsql.mechanisms.axis.tents import hat
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
    FamilyCandidate,
    FamilyDesign,
    FamilyQuestion,
    NamedFamily,
    ViewChoice,
)
from dpsql.mechanisms.law import GAUSSIAN, LAPLACE, SMALLEST_RATIO, NoisyRows, NoisyView
from dpsql.mechanisms.offers import Offer, Refusal
from dpsql.noise import Noise, laplace_variance
from dpsql.tree import Exact, FloatArray, IntArray, Workload
from dpsql.variance.plane import PlaneReading, PlaneVariance, kernel_starts
from dpsql.variance.reconcile import Subset

TOTAL = 1 << 14  # kernels of 17 x 17 still have entries of 80 and more at their slopes
SMALLEST = 5  # the smallest hats are 3 x 3
LARGEST = 96  # beyond, Kronecker tents win and the dense core grows
MOST_HATS = 150  # the core is dense: with more of them choosing takes seconds
_HALF_WIDTHS = (3, 4, 5, 6, 7, 8, 9, 12)
_SHARES = (0.3, 0.33, 0.36, 0.42, 0.5, 0.6)
_MIDDLE = 0.36  # at which half-widths are compared


@dataclass(frozen=True, eq=False)
class ProductHats(Alone):
    """One integer kernel moved over the plane, and each cell with what the kernels leave.

    See `Measurement` and `LinearRows` for what its methods answer.

    Args:
        leaf: weight of each cell's own row, at least 1, shape (n1, n2).
        kernel: entries of one product hat, shape (2 h1 - 1, 2 h2 - 1).
        total: what each cell's weights add up to.

    **Privacy** Adding or removing one record moves the rows by at most `total` in L1; checked here.
    """

    leaf: IntArray
    kernel: IntArray
    total: int
    parts: ClassVar[tuple[ChargeLine, ...]] = (ChargeLine("", Fraction(1)),)
    biased: ClassVar[bool] = False
    replay: ClassVar[DrawReplay | None] = None
    reading: ClassVar[str] = PlaneReading.name
    listed: ClassVar[Mapping[int, int]] = {}

    def __post_init__(self) -> None:
        """Refuse weights that add up to more than the whole."""
        if np.any(self.leaf < 1) or np.any(self.leaf + _column(self.leaf.shape, self.kernel) > self.total):
            raise InternalError("product hats are more sensitive than declared")

    @property
    def half_widths(self) -> tuple[int, int]:
        """Leaves from a hat's middle to where it ends, along each axis."""
        return (self.kernel.shape[0] + 1) // 2, (self.kernel.shape[1] + 1) // 2

    @property
    def linear(self) -> LinearRows:
        """These rows."""
        return self

    def words(self, strategies: Sequence[str]) -> str:
        """Of both axes."""
        return f"product hats of half-widths {' x '.join(map(str, self.half_widths))}"

    def row_count(self, strategies: Sequence[AxisStrategy]) -> int:
        """Cells and hats."""
        places = zip(self.leaf.shape, self.kernel.shape, strict=True)
        return self.leaf.size + prod(len(kernel_starts(n, length)) for n, length in places)

    def unit_variance(self, terms: Terms) -> float:
        """All rows have one noise, so it is exact."""
        share = self.budgets(terms)[:1]
        denominator = scaled_denominator(terms.sensitivity) * terms.sensitivity
        smallest = 2.0 * SMALLEST_RATIO * (denominator / float(share[0])) ** 2
        return max(float(laplace_variance(share, denominator)[0]), smallest) / self.total**2

    def joint_variance(self) -> PlaneVariance:
        """A diagonal and a low rank, for noise of scale `total` on every row; Laplace multiplies by 2/epsilon^2."""
        return PlaneVariance(self.leaf / self.total, self.kernel / self.total)

    def mean_variance(
        self,
        axes: Subset,
        unit: float,
        family: Sequence[tuple[Subset, float]],
        asked: Mapping[int, AxisWorkload],
    ) -> float:
        """Over random rectangles."""
        first, second = (workload_gram(n) for n in self.leaf.shape)
        return unit * self.joint_variance().mean_variance(first, second)

    def draw(self, cells: Exact, terms: Terms, noise: Noise) -> NoisyRows:
        """One draw over cells and hats.

        **Privacy**: epsilon-DP for neighbours that differ in one unit's rows.
        """
        budget = self.budgets(terms)
        denominator = scaled_denominator(terms.sensitivity) * terms.sensitivity
        noisy = LAPLACE.draw_units(Exact(self.measure(cells, terms.strategies)), budget, denominator, noise)
        return NoisyView(noisy, budget, self.unit_variance(terms), terms.sensitivity)

    def estimates(
        self, family: Sequence[DrawnMember], strategies: Mapping[int, AxisStrategy]
    ) -> list[FloatArray]:
        """Least squares over both axes."""
        return [self.leaf_estimates(view, ()) for _, view in family]

    def shape(self, strategies: Sequence[AxisStrategy]) -> tuple[int, ...]:
        """One line of cells and hats."""
        return (self.row_count(strategies),)

    def known(self, strategies: Sequence[AxisStrategy]) -> int:
        """All cells."""
        return self.leaf.size

    def budgets(self, terms: Terms) -> IntArray:
        """All the same."""
        rows = self.row_count(terms.strategies)
        share = cap_units(terms.spend, scaled_denominator(terms.sensitivity)) // self.total
        if share == 0:
            raise PrivacyError(
                f"the view's epsilon is too small to be shared out over {rows} rows",
                hint="give the view a larger share, narrow the measure's bounds, or write `mechanism: auto`",
            )
        return np.full(rows, share, np.int64)

    def largest_column(self, budget: IntArray, terms: Terms) -> int:
        """The largest sum over rows of |H_r| s_r of any cell."""
        cells, (height, width) = self.leaf.size, self.kernel.shape

        def spread(share: npt.NDArray[Any]) -> npt.NDArray[Any]:
            kernel = np.abs(self.kernel).astype(share.dtype)
            column: npt.NDArray[Any] = self.leaf * share[:cells].reshape(self.leaf.shape)
            for hat_share, (a, b) in zip(share[cells:], self._places(), strict=True):
                column[a : a + height, b : b + width] += kernel * hat_share
            return column

        return largest_sum(budget, spread)

    def column_cap(self, terms: Terms) -> int:
        """Of the axes' strategies, as the law says."""
        return terms.law.column_cap(axis_budgets(terms.strategies), terms.spend, terms.sensitivity)

    def measure(self, cells: IntArray, strategies: Sequence[AxisStrategy]) -> IntArray:
        """The weighted cells, row by row, then the hats."""
        height, width = self.kernel.shape
        hats = [int((self.kernel * cells[a : a + height, b : b + width]).sum()) for a, b in self._places()]
        return np.concatenate([(self.leaf * cells).ravel(), np.array(hats, np.int64)])

    def weights(self, strategies: Sequence[AxisStrategy]) -> FloatArray:
        """All the same."""
        return np.full(self.row_count(strategies), 1.0 / self.total)

    def leaf_estimates(self, view: NoisyRows, strategies: Sequence[AxisStrategy]) -> FloatArray:
        """Least squares over both axes, refined once on what the rounded first estimate leaves of the integers.

        So float rounding stays relative to the noise and a noiseless view comes back exactly.
        """
        first = np.rint(self.estimate(view.value)).astype(np.int64)
        residual = view.value - self.measure(first, strategies)
        return np.asarray(first + self.estimate(residual), np.float64)

    def estimate(self, y: IntArray) -> FloatArray:
        """Best linear unbiased cell estimates from rows as `measure` orders them, shape (n1, n2)."""
        model = self.joint_variance()
        cells, scaled = self.leaf.size, np.asarray(y, np.float64) / self.total
        start = scaled[:cells].reshape(self.leaf.shape) / model.leaf
        rows = model.rows.reshape(len(model.rows), -1)
        missing = model.core @ (scaled[cells:] - rows @ start.ravel())
        return np.asarray(start + (missing @ rows).reshape(start.shape) / model.leaf**2, np.float64)

    def _places(self) -> Iterator[tuple[int, int]]:
        """Where the kernels stand."""
        starts = (kernel_starts(n, k) for n, k in zip(self.leaf.shape, self.kernel.shape, strict=True))
        return product(*starts)


def _column(shape: tuple[int, ...], kernel: IntArray) -> IntArray:
    """What the moved kernels add up to at each cell, shape (n1, n2)."""
    column = np.zeros(shape, np.int64)
    for a in kernel_starts(shape[0], kernel.shape[0]):
        for b in kernel_starts(shape[1], kernel.shape[1]):
            column[a : a + kernel.shape[0], b : b + kernel.shape[1]] += np.abs(kernel)
    return column


def product_hats(n1: int, n2: int, h1: int, h2: int, share: float, total: int = TOTAL) -> ProductHats:
    """Product hats of the given half-widths and share, rounded down to integers.

    Args:
        n1, n2: leaves of the axes.
        h1, h2: half-widths, 2 h - 1 at most the leaves.
        share: the part of a cell's budget that hats take inside the plane, between 0 and 1.
        total: the integer that stands for the whole budget.

    Raises:
        InterfaceError: for hats that do not fit.
    """
    if 2 * h1 - 1 > n1 or 2 * h2 - 1 > n2 or min(h1, h2) < 1 or not 0 < share < 1:
        raise InterfaceError(f"hats of half-widths {h1} x {h2} do not fit a plane of {n1} x {n2} leaves")
    kernel = np.floor(total * share * np.outer(hat(h1), hat(h2))).astype(np.int64)
    return ProductHats(total - _column((n1, n2), kernel), kernel, total)


def best_product_hats(
    n1: int, n2: int, first: Workload | None = None, second: Workload | None = None, whole: float = 0.0
) -> tuple[ProductHats, float]:
    """The half-width and share with the least expected error on random rectangles.

    Args:
        n1, n2: leaves of the axes, `SMALLEST` to `LARGEST` each.
        first, second: the ranges asked on each axis; None means all ranges.
        whole: how often an axis is asked for its total instead, in [0, 1).

    Returns:
        (strategy, mean squared error at epsilon 1).

    Raises:
        InterfaceError: for planes that are too large or too small for hats.
    """
    if max(n1, n2) > LARGEST or min(n1, n2) < SMALLEST:
        raise InterfaceError(
            f"no product hats for a plane of {n1} x {n2} leaves", hint="use a Kronecker product"
        )
    grams = (workload_gram(n1, first, 0.0, whole), workload_gram(n2, second, 0.0, whole))

    def error(half: tuple[int, int], share: float) -> float:
        return 2 * product_hats(n1, n2, *half, share).joint_variance().mean_variance(*grams)

    halves = sorted({(min(h, (n1 + 1) // 2), min(h, (n2 + 1) // 2)) for h in _HALF_WIDTHS})
    few = [half for half in halves if (n1 // half[0]) * (n2 // half[1]) <= MOST_HATS]
    likely = sorted(few, key=lambda half: error(half, _MIDDLE))[:3]
    lowest_error, half, share = min((error(half, share), half, share) for half in likely for share in _SHARES)
    return product_hats(n1, n2, *half, share), lowest_error


def _alone(view: str) -> str:
    """A view stands for itself."""
    return view


NAMED: Mapping[str, NamedFamily] = {"product_hats": NamedFamily(_alone, whole=0.0)}
"""A view that asks for hats is asked for rectangles alone."""


def offers(question: FamilyQuestion) -> Iterator[Answer]:
    """Product hats, for one view of two short axes that need not agree with others."""
    name = "product hats"
    refusal = _refusal(question)
    yield Refusal(name, *refusal) if refusal else Offer(name, 0.0, lambda: _best(question))


def _refusal(question: FamilyQuestion) -> tuple[str, str] | None:
    """Why hats do not fit, and what to write instead."""
    leaves = question.leaves(question.views[0])
    if not question.named and not (question.open and question.alone and len(question.views) == 1):
        return "measures one view alone, where all is left to auto", "leave one view of the table"
    if len(leaves) != 2:
        return f"measures two axes together, not {len(leaves)}", "write auto, or leave two axes"
    if question.allows(GAUSSIAN):
        return "is for delta 0", "remove privacy.delta, or write auto"
    if question.people:
        return f"needs a declared number in max_ids of {question.of}", "write it, or auto here"
    if question.batches:
        return "is not made batch by batch", "write auto"
    if min(leaves) < SMALLEST or max(leaves) > LARGEST:
        return (
            f"takes axes of {SMALLEST} to {LARGEST} leaves, not {leaves[0]} x {leaves[1]}",
            "cut the axes wider or finer, or write auto",
        )
    return None


def _best(question: FamilyQuestion) -> FamilyCandidate:
    """The hats of least error, by the questions that the axes one by one are judged by."""
    axes = [question.axes[axis] for axis in question.views[0].axes]
    (n1, n2), works = (axis.leaves for axis in axes), [axis.workload for axis in axes]
    if all(work is None for work in works):
        hats, error = _best_for_all_ranges(n1, n2, question.whole)
    else:
        hats, error = best_product_hats(n1, n2, works[0], works[1], question.whole)
    choices: tuple[AxisChoice, ...] = tuple(
        AxisChoice(LeafStrategy(axis.leaves), f"product hats of half-width {half}", error)
        for axis, half in zip(axes, hats.half_widths, strict=True)
    )
    design = FamilyDesign(hats, (ViewChoice(LAPLACE, choices),))
    return FamilyCandidate(hats.words(()), design, lambda: error)


@lru_cache(maxsize=64)  # `dpsql plan --compare` plans the same views again and again
def _best_for_all_ranges(n1: int, n2: int, total_share: float) -> tuple[ProductHats, float]:
    return best_product_hats(n1, n2, None, None, total_share)
