"""Two axes at once: product hats and an identity, without the cross terms of a Kronecker product.

A Kronecker product of tents also measures hat x leaf and leaf x hat, and pays for it. For rectangles on planes of up
to about 64 x 64 one layer of product hats and the cells themselves are better (445 against 485 at 64 x 64); on larger
planes the product of the one-axis strategies wins, and so it does where whole axes are asked about as often as ranges,
but for planes of about 6 x 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from dpsql.errors import InterfaceError, InternalError
from dpsql.mechanisms.axis.gram import workload_gram
from dpsql.mechanisms.axis.tents import hat
from dpsql.tree import FloatArray, IntArray, Workload
from dpsql.variance.plane import PlaneVariance, kernel_starts

TOTAL = 1 << 14  # kernels of 17 x 17 still have entries of 80 and more at their slopes
SMALLEST = 5  # the smallest hats are 3 x 3
LARGEST = 96  # beyond, Kronecker tents win and the dense core grows
MOST_HATS = 150  # the core is dense: with more of them choosing takes seconds
_HALF_WIDTHS = (3, 4, 5, 6, 7, 8, 9, 12)
_SHARES = (0.3, 0.33, 0.36, 0.42, 0.5, 0.6)
_MIDDLE = 0.36  # at which half-widths are compared


@dataclass(frozen=True, eq=False)
class ProductHats:
    """One integer kernel moved over the plane, and each cell with what the kernels leave.

    Args:
        leaf: weight of each cell's own row, at least 1, shape (n1, n2).
        kernel: entries of one product hat, shape (2 h1 - 1, 2 h2 - 1).
        total: what each cell's weights add up to.

    **Privacy** Adding or removing one record moves the rows by at most `total` in L1; checked here.
    """

    leaf: IntArray
    kernel: IntArray
    total: int

    @property
    def half_widths(self) -> tuple[int, int]:
        """Leaves from a hat's middle to where it ends, along each axis."""
        return (self.kernel.shape[0] + 1) // 2, (self.kernel.shape[1] + 1) // 2

    def __post_init__(self) -> None:
        """Refuse weights that add up to more than the whole."""
        if np.any(self.leaf < 1) or np.any(self.leaf + _column(self.leaf.shape, self.kernel) > self.total):
            raise InternalError("product hats are more sensitive than declared")


def _column(shape: tuple[int, ...], kernel: IntArray) -> IntArray:
    """What the moved kernels add up to at each cell, shape (n1, n2)."""
    column = np.zeros(shape, np.int64)
    for a in kernel_starts(shape[0], kernel.shape[0]):
        for b in kernel_starts(shape[1], kernel.shape[1]):
            column[a : a + kernel.shape[0], b : b + kernel.shape[1]] += np.abs(kernel)
    return column


def rows_of(strategy: ProductHats) -> int:
    """Number of measured rows: cells and hats."""
    places = zip(strategy.leaf.shape, strategy.kernel.shape, strict=True)
    return strategy.leaf.size + prod(len(kernel_starts(n, length)) for n, length in places)


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


def plane_variance(strategy: ProductHats) -> PlaneVariance:
    """How noisy the estimates are, for noise of scale `total` on every row; Laplace multiplies by 2/epsilon^2."""
    return PlaneVariance(strategy.leaf / strategy.total, strategy.kernel / strategy.total)


def measure_plane(strategy: ProductHats, x: IntArray) -> IntArray:
    """The rows in exact integers: the weighted cells, row by row, then the hats.

    Args:
        strategy: the rows.
        x: integers, shape (n1, n2).

    Returns:
        int64, shape (n1 n2 + hats,), modulo 2^64.

    **Privacy** Raw: never leaves publishing without noise of at least scale total / epsilon.
    """
    height, width = strategy.kernel.shape
    hats = [
        int((strategy.kernel * x[a : a + height, b : b + width]).sum())
        for a in kernel_starts(x.shape[0], height)
        for b in kernel_starts(x.shape[1], width)
    ]
    return np.concatenate([(strategy.leaf * x).ravel(), np.array(hats, np.int64)])


def estimate_plane(strategy: ProductHats, y: IntArray) -> FloatArray:
    """Best linear unbiased cell estimates, shape (n1, n2), from measurements as `measure_plane` orders them."""
    model = plane_variance(strategy)
    cells, scaled = strategy.leaf.size, np.asarray(y, np.float64) / strategy.total
    start = scaled[:cells].reshape(strategy.leaf.shape) / model.leaf
    rows = model.rows.reshape(len(model.rows), -1)
    missing = model.core @ (scaled[cells:] - rows @ start.ravel())
    return np.asarray(start + (missing @ rows).reshape(start.shape) / model.leaf**2, np.float64)


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
        return 2 * plane_variance(product_hats(n1, n2, *half, share)).mean_variance(*grams)

    halves = sorted({(min(h, (n1 + 1) // 2), min(h, (n2 + 1) // 2)) for h in _HALF_WIDTHS})
    few = [half for half in halves if (n1 // half[0]) * (n2 // half[1]) <= MOST_HATS]
    likely = sorted(few, key=lambda half: error(half, _MIDDLE))[:3]
    least, half, share = min((error(half, share), half, share) for half in likely for share in _SHARES)
    return product_hats(n1, n2, *half, share), least
