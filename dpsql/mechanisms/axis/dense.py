"""The best rows for Gaussian noise on axes of up to about a thousand leaves, rounded to integers.

With Gram matrix X = A' A, noise of variance 1 per row and all diagonal entries of X at most 1, the mean variance of a
workload with Gram matrix V is tr(V X^-1). The minimum is a full matrix, found by a fixed point of dense matrices; then
A = X^(1/2) is rounded to integers. A thousand leaves take under a second. On longer axes the sine transform of
V^(1/2) / max diag (`sine`) is within 11% of the bound and takes O(n log n).

`fixed_point` takes about half of the rounds that plain steps take (Anderson's mixing): a round turns prices into what
they should be multiplied by; over the last rounds the logarithms of these factors are nearly linear in those of the
prices, and the next prices are where the linear model has none left.

**Zero-sum rows** are what is measured of a set of axes beyond its subsets. They tell nothing of the axis's total, which
is measured apart, so they are no strategy of an axis by itself; the residual family (`designs.residual`) puts sets of
axes together. The rows with the least mean error over the declared ranges are found first, then rounded to integers
that still add to zero.

| here | there | unit |
|---|---|---|
| `gram` | X = R' R, X 1 = 0, diagonal at most 1 | n x n |
| `spread` | q' X^+ q | 1 |
| B = `matrix` | R_i, rounded: B 1 = 0 | 1 / total |
| `total` | the largest column norm of B, rounded up | - |

**Source**: docs/method/views.md, "Dense rows for Gaussian noise"; Walker and Ni (2011); docs/method/views.md, "Residual
rows"; Xiao, He, Zhang and Kifer (2023).

The sine transform is the strategy V^(1/4), its rows rounded to integers and measured exactly.

A matrix that the sine transform makes diagonal is a Toeplitz matrix less a Hankel one, so n numbers hold all n^2
entries, and measuring is a convolution:

    A_ij = t(|i - j|) - t(i + j),  i, j = 1..n,    t(d) = 1/(n + 1) sum_k w_k cos(pi k d / (n + 1))

| here | there | unit |
|---|---|---|
| `weight` | w_k, eigenvalues of V^(1/4) over the largest column norm | 1 |
| `table` | T(d) = rint(D t(d)), d = 0..2n + 1 | 1 / D |
| `scale` | D | - |

The convolution is one multiplication of long decimal numbers: entry i of a sequence becomes the digits i k to
i k + k - 1, with k so large that no sum of products reaches over its digits. Python's decimals multiply such numbers
exactly, by a number-theoretic transform, in about n log n steps; nothing there is a float.

**Privacy** The table is a public matrix of integers, B_ij = T(|i - j|) - T(i + j), and B x is computed without a float.
Columns of D A have norm at most D; two roundings an entry and the float error of the table, 1/100 at most, move n
entries by at most 1.01 each. So a column of B has norm at most D + 1.01 sqrt(n), which `l2_bound` says.
**Source** docs/method/views.md, "Sine rows".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation, Overflow, Rounded
from functools import lru_cache
from math import ceil, isqrt, sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.errors import InterfaceError, InternalError
from dpsql.matrices.intervals import SineVariance, column_norm, cosine_sums, weight
from dpsql.matrices.model import PrefixVariance
from dpsql.matrices.strategy import LIMIT, Strategy, square_rows
from dpsql.mechanisms.distribution import GAUSSIAN
from dpsql.mechanisms.offers import (
    FEWEST_LEAVES,
    AxisCandidate,
    AxisChoice,
    AxisProblem,
    NamedAxisMechanism,
    Offer,
    Proposal,
    Refusal,
    candidate,
    expected_error,
)
from dpsql.tree import FloatArray, IntArray, Workload, single_leaves

MEMORY = 2
"""Earlier rounds that are looked at. 500 leaves, asked for their total half of the time: 9 rounds with 0, 5 with 2."""


class Mixing:
    """The prices of round after round.

    Args:
        price: where to begin, positive, shape (n,).

    >>> mixing = Mixing(np.array([1.0, 4.0]))
    >>> for _ in range(6):
    ...     mixing.times((9.0 / mixing.price) ** 0.5)
    >>> [round(float(each), 6) for each in mixing.price]
    [9.0, 9.0]
    """

    def __init__(self, price: FloatArray) -> None:
        self._at: list[FloatArray] = [np.log(price)]
        self._steps: list[FloatArray] = []

    @property
    def price(self) -> FloatArray:
        """The prices of this round, shape (n,)."""
        return np.exp(self._at[-1])

    def times(self, factor: FloatArray) -> None:
        """Go on: the prices should be multiplied by these factors, positive, shape (n,)."""
        step = np.log(factor)
        self._steps.append(step)
        ahead = self._at[-1] + step
        if len(self._steps) > 1:
            at = np.array([self._at[-1] - previous for previous in self._at[:-1]]).T
            bend = np.array([step - previous for previous in self._steps[:-1]]).T
            ahead = ahead - (at + bend) @ np.linalg.lstsq(bend, step, rcond=1e-6)[0]
        self._at = [*self._at[-MEMORY:], ahead]
        self._steps = self._steps[-MEMORY:]


def workload_gram(
    n: int, workload: Workload | None = None, uniform: float = 0.15, whole: float = 0.0
) -> FloatArray:
    """V_ij: the probability that a range holds both leaf i and leaf j, shape (n, n).

    Args:
        n: number of leaves.
        workload: the ranges asked; None means all ranges, equally often.
        uniform: the part of all ranges mixed into a workload, so that no range is left without rows.
        whole: the part of the questions that asks for the total instead.
    """
    leaf = np.arange(n)
    all_ranges = (
        np.minimum.outer(leaf + 1, leaf + 1) * np.minimum.outer(n - leaf, n - leaf) / (n * (n + 1) / 2)
    )
    if workload is None:
        return (1 - whole) * all_ranges + whole
    weight = np.asarray(workload.weight, np.float64) / np.sum(workload.weight)
    corners = np.zeros((n + 1, n + 1))
    for rows, columns, sign in ((0, 0, 1), (0, 1, -1), (1, 0, -1), (1, 1, 1)):
        ends = (workload.lo, workload.hi)
        np.add.at(corners, (ends[rows], ends[columns]), sign * weight)
    declared_ranges = np.cumsum(np.cumsum(corners, axis=0), axis=1)[:n, :n]
    mixed: FloatArray = (1 - uniform) * declared_ranges + uniform * all_ranges
    return (1 - whole) * mixed + whole


def matrix_root(s: FloatArray) -> FloatArray:
    """The square root of a symmetric, positive semidefinite matrix, shape (n, n)."""
    return _unfolded([_root(block) for block in _folded(s)], len(s))


def _root(s: FloatArray) -> FloatArray:
    roots, vectors = _decomposed(s)
    return np.asarray((vectors * roots) @ vectors.T, np.float64)


def _folded(s: FloatArray) -> list[FloatArray]:
    """Two matrices of half the size that a symmetric matrix splits into, if a half turn leaves it alone, as for
    all ranges.

    Their roots make up its root, at a quarter of the time. A leaf in the middle belongs to the first one.
    """
    n = len(s)
    if n < 2 or not np.allclose(s, s[::-1, ::-1], rtol=1e-9, atol=0.0):
        return [s]
    half, upper = n // 2, -(-n // 2)
    near, far = s[:upper, :upper], s[:upper, ::-1][:, :upper]
    even = near + far
    if n % 2:  # the middle is its own mirror image
        even[-1] /= np.sqrt(2)
        even[:, -1] /= np.sqrt(2)
    return [even, (near - far)[:half, :half]]


def _unfolded(blocks: list[FloatArray], n: int) -> FloatArray:
    """The n x n matrix that falls into some blocks."""
    if len(blocks) == 1:
        return blocks[0]
    even, odd = blocks[0].copy(), np.zeros_like(blocks[0])
    half = len(blocks[1])
    odd[:half, :half] = blocks[1]
    if n % 2:
        even[-1] *= np.sqrt(2)
        even[:, -1] *= np.sqrt(2)
    near, far = (even + odd) / 2, ((even - odd) / 2)[:, :half]
    top = np.hstack([near, far[:, ::-1]])
    return np.vstack([top, top[:half][::-1, ::-1]])


def optimal_gram(gram: FloatArray, gap: float = 3e-4, steps: int = 40) -> FloatArray:
    """The X of unit diagonal that minimises tr(V X^-1), to a proven gap.

    With R = (v^1/2 V v^1/2)^1/2, X = v^-1/2 R v^-1/2 is the best X for column prices v; it costs
    tr(R) max diag X, and tr(R)^2 / sum(v) is below every strategy. At the optimum diag X is flat. Rounds of
    v <- v diag(X)^2 are mixed, which needs a quarter of the rounds of v <- v diag(X), as published, or fewer.

    Args:
        gram: V, positive definite, shape (n, n).
        gap: stop when the cost is within this fraction of the lower bound.
        steps: most rounds, each one decomposition of every block.

    Returns:
        X with largest diagonal entry 1, shape (n, n).

    **Source** docs/method/views.md, "Dense rows for Gaussian noise"; Denisov et al. (2022).
    """
    blocks = _folded(gram)
    leaves = sum(np.pad(np.ones(len(block)), (0, len(blocks[0]) - len(block))) for block in blocks)
    mixing = Mixing(np.ones(len(blocks[0])))
    for _ in range(steps):
        price = mixing.price
        side = np.sqrt(price)
        decompositions = [_decomposed(_scaled_by(block, side[: len(block)])) for block in blocks]
        diagonal = np.zeros(len(price))
        for roots, vectors in decompositions:
            diagonal[: len(roots)] += vectors**2 @ roots
        flat = diagonal / leaves / price
        if flat.max() * (leaves @ price) <= (1 + gap) * diagonal.sum():
            break
        mixing.times(flat**2)
    roots_of = [
        _scaled_by((vectors * roots) @ vectors.T, 1 / side[: len(roots)]) for roots, vectors in decompositions
    ]
    x = _unfolded(roots_of, len(gram))
    return np.asarray(x / np.diag(x).max(), np.float64)


def _scaled_by(s: FloatArray, side: FloatArray) -> FloatArray:
    """A matrix with each row and each column times a number, shape (n,)."""
    return np.asarray(side[:, None] * s * side, np.float64)


def _decomposed(s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and vectors of a matrix's square root."""
    values, vectors = np.linalg.eigh(s)
    return np.sqrt(np.maximum(values, 0.0)), vectors


DENSE_LEAVES = 1024  # a dense eigendecomposition of this size takes under a second
DENSE_SCALE = 1 << 14  # rounding rows to 1/16,384 costs about 1e-4 of the variance

ZERO_SUM = "zero_sum"
"""Kind of the zero-sum rows."""

NAMED: Mapping[str, NamedAxisMechanism] = {}


def dense_rows(matrix: npt.ArrayLike, total: int, grain: int) -> Strategy:
    """A full matrix of integer rows of equal budgets, for Gaussian noise.

    Args:
        matrix: H, shape (n, n), of full rank.
        total: bound of the column norms.
        grain: what stands for 1 in the rows.

    Raises:
        InternalError: if a column norm passes `total`.
    """
    rows = np.asarray(matrix, np.int64) / total
    model = PrefixVariance(np.linalg.inv(rows.T @ rows).astype(np.float64), rows)
    return _square("dense", {"matrix": matrix, "total": total, "grain": grain}, model, grain)


def _square(kind: str, stored: Mapping[str, Any], solver: PrefixVariance, scale: int = 1) -> Strategy:
    """A full matrix of rows of equal budgets."""
    rows, total = square_rows(np.asarray(stored["matrix"], np.int64)), stored["total"]
    return Strategy(kind, stored, rows, np.ones(rows.number, np.int64), total, GAUSSIAN.norm, solver, scale)


def dense_strategy(
    n: int, workload: Workload | None = None, scale: int = DENSE_SCALE, whole: float = 0.0
) -> Strategy:
    """The best rows for Gaussian noise, rounded to integers.

    Args:
        n: number of leaves, at most `DENSE_LEAVES`.
        workload: the ranges asked; None means all ranges.
        scale: rows are rounded to multiples of 1 / scale.
        whole: the part of the questions that asks for the total instead.

    Raises:
        InterfaceError: for an axis that is too long.

    **Privacy** `total` is the exact largest column norm of the integer rows, rounded up.
    """
    if n > DENSE_LEAVES:
        raise InterfaceError(f"{n} leaves are too many for dense rows", hint="use sine_strategy")
    rows = matrix_root(optimal_gram(workload_gram(n, workload, whole=whole)))
    for slack in (0.0, 1e-7, 1e-6, 1e-5, 1e-4):  # a hair less than 1 keeps the rounded columns within scale
        integer_rows = np.rint(scale * (1 - slack) * rows).astype(np.int64)
        squares = int((integer_rows * integer_rows).sum(axis=0).max())
        if squares <= scale**2:
            break
    return dense_rows(integer_rows, max(scale, isqrt(squares - 1) + 1), scale)


def reaches(question: AxisProblem) -> bool:
    """True if the axis is short enough for a dense optimum, and the noise is right."""
    return question.law == GAUSSIAN and question.leaves <= DENSE_LEAVES


def offers(question: AxisProblem) -> Iterator[Proposal]:
    """The dense optimum, on axes where it can be computed; the sine transform on longer ones."""
    name = "dense optimum"
    if question.law != GAUSSIAN:
        yield Refusal(name, f"is for {GAUSSIAN.name} noise")
    elif not FEWEST_LEAVES <= question.leaves <= DENSE_LEAVES:
        yield Refusal(name, f"takes axes of {FEWEST_LEAVES} to {DENSE_LEAVES} leaves")
    else:
        yield Offer(name, 0.0, lambda: _optimum(question))
    yield from _sine_offers(question)


def _optimum(question: AxisProblem) -> AxisCandidate:
    strategy = dense_strategy(question.leaves, question.workload, question.scale, question.whole)
    return candidate(strategy, "dense optimum", question)


def best_gram(n: int, workload: Workload | None = None, gap: float = 3e-4, steps: int = 40) -> FloatArray:
    """The X of zero-sum rows with the least mean of q' X^+ q over the declared ranges, largest diagonal entry 1.

    The fixed point of `dense.optimal_gram` on the space of vectors that add to zero: for leaf prices v the
    best Y = W^(-1/2) (W^(1/2) G W^(1/2))^(1/2) W^(-1/2), with W and G the prices and the workload there.

    Args:
        n: number of leaves, 2 to `DENSE_LEAVES`.
        workload: the ranges asked; None means all ranges.
        gap: stop when the cost is within this fraction of a lower bound.
        steps: most rounds.

    Raises:
        InterfaceError: for an axis that is too short or too long.
    """
    if not 2 <= n <= DENSE_LEAVES:
        raise InterfaceError(
            f"residual rows need 2 to {DENSE_LEAVES} leaves, not {n}", hint="cut the axis wider"
        )
    # An orthonormal basis of the vectors that add to zero, shape (n, n - 1)
    k = np.arange(1, n)
    lower = np.where(np.arange(n)[:, None] < k, 1.0, 0.0)
    lower[k, k - 1] = -k
    basis = np.asarray(lower / np.sqrt(k * (k + 1.0)), np.float64)
    projected_gram = basis.T @ workload_gram(n, workload) @ basis
    mixing, x = Mixing(np.ones(n)), np.eye(n)
    for _ in range(steps):
        price = mixing.price
        side, inverse = _roots(basis.T @ (price[:, None] * basis))
        root = _roots(side @ projected_gram @ side)[0]
        x = basis @ inverse @ root @ inverse @ basis.T
        flat = np.diag(x)
        if flat.max() * price.sum() <= (1 + gap) * np.trace(root):
            break
        mixing.times(flat**2)
    return np.asarray(x / np.diag(x).max(), np.float64)


def _roots(s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Square root of a positive definite matrix, and its inverse."""
    values, vectors = np.linalg.eigh(s)
    root = np.sqrt(np.maximum(values, values[-1] * 1e-15))
    return (vectors * root) @ vectors.T, (vectors / root) @ vectors.T


def zero_sum_rows(matrix: npt.ArrayLike, total: int) -> Strategy:
    """Zero-sum rows; estimates are deviations from the mean, and the total has a variance of 1 as if measured apart.

    Args:
        matrix: B, shape (n, n); every row adds to zero.
        total: bound of the column norms.

    Raises:
        InternalError: if a column norm passes `total`.
    """
    rows = np.asarray(matrix, np.int64) / total
    deviations = np.linalg.pinv(rows.T @ rows, rcond=1e-12, hermitian=True)
    model = PrefixVariance(np.asarray(deviations + 1 / len(rows) ** 2, np.float64), rows)
    return _square(ZERO_SUM, {"matrix": matrix, "total": total}, model)


def zero_sum_strategy(n: int, workload: Workload | None = None, scale: int = DENSE_SCALE) -> Strategy:
    """The best zero-sum rows of an axis for the declared ranges, in integers.

    Args:
        n: number of leaves, 2 to `dense.DENSE_LEAVES`.
        workload: the ranges asked; None means all ranges.
        scale: rows are rounded to multiples of about 1 / scale.

    Raises:
        InterfaceError: for an axis that is too short or too long.

    **Privacy** `total` is the exact largest column norm of the integer rows, rounded up.
    """
    values, vectors = np.linalg.eigh(best_gram(n, workload))
    return _in_integers((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, scale)


def _in_integers(rows: FloatArray, scale: int) -> Strategy:
    matrix = _rounded(scale * np.asarray(rows, np.float64))
    largest = int((matrix * matrix).sum(axis=0).max())
    return zero_sum_rows(matrix, isqrt(largest - 1) + 1)


def zero_sum_choice(n: int, workload: Workload | None, scale: int) -> AxisChoice:
    """The zero-sum rows of an axis of the residual design, with their error over ranges.

    Args:
        n, workload, scale: as of `zero_sum_strategy`.
    """
    strategy = zero_sum_strategy(n, workload, scale)
    return AxisChoice(strategy, "residual rows", expected_error(strategy, workload))


def single_leaf_choice(n: int, scale: int) -> AxisChoice:
    """The zero-sum rows with the least error of single leaves: each leaf less the mean, R = (I - 11'/n) sqrt(n/(n-1)).

    All leaves are alike to single leaves, so the best X is the one matrix that no exchange of leaves changes.

    Args:
        n, scale: as of `zero_sum_strategy`.
    """
    strategy = _in_integers((np.eye(n) - 1 / n) * sqrt(n / (n - 1)), scale)
    return AxisChoice(strategy, "residual rows of cells", expected_error(strategy, single_leaves(n)))


def _rounded(rows: FloatArray) -> IntArray:
    """Nearest integers whose every row adds to zero: what is over goes to the entries that were rounded most."""
    rounded = np.rint(rows).astype(np.int64)
    for row, exact in zip(rounded, rows, strict=True):
        over = int(row.sum())
        if over:
            most_rounded = np.argsort((exact - row) * np.sign(over))[: abs(over)]
            row[most_rounded] -= np.sign(over)
    return rounded


_DIGITS = 9  # turned into an integer at a time


def convolve(a: IntArray, b: IntArray, largest: int) -> IntArray:
    """The sums c_k = sum_i a_i b_(k - i), exactly.

    Args:
        a, b: int64, shapes (n,) and (m,), at least one entry each.
        largest: a bound on every |c_k|, |a_i| and |b_i|, below 2^62.

    Returns:
        int64, shape (n + m - 1,).

    >>> convolve(np.array([1, -2]), np.array([3, 4]), 10).tolist()
    [3, -2, -8]
    """
    limbs = -(-len(str(2 * largest + 1)) // _DIGITS)
    count, digits = len(a) + len(b) - 1, limbs * _DIGITS
    context = Context(prec=digits * (count + 2), Emax=MAX_EMAX, Emin=MIN_EMIN,
                      traps=[Inexact, Rounded, InvalidOperation, Overflow])  # fmt: skip
    product = context.multiply(_number(a, limbs, context), _number(b, limbs, context))
    # A bound added to every entry leaves no negative digits; what is above the last entry is dropped.
    lifted = context.add(product, Decimal(f"{largest:0{digits}d}" * count))
    return _entries(format(lifted, "f"), count, limbs) - largest


def _number(values: IntArray, limbs: int, context: Context) -> Decimal:
    """sum_i values_i 10^(9 limbs i)."""
    positive, negative = (_digits(np.maximum(signed, 0), limbs) for signed in (values, -values))
    return context.subtract(positive, negative)


def _digits(values: IntArray, limbs: int) -> Decimal:
    """The number whose groups of digits are the values, the first one lowest."""
    text = np.empty((len(values), limbs * _DIGITS), np.uint8)
    quotient = values[::-1]
    for limb in range(limbs - 1, -1, -1):
        quotient, lower = np.divmod(quotient, 10**_DIGITS)
        digits = lower.astype(np.uint32)  # divided three times as fast as 64 bits
        for place in range(_DIGITS * (limb + 1) - 1, _DIGITS * limb - 1, -1):
            digits, text[:, place] = np.divmod(digits, np.uint32(10))
    text += ord("0")
    return Decimal(text.tobytes().decode("ascii"))


def _entries(text: str, count: int, limbs: int) -> IntArray:
    """The groups of digits of a number as integers, the lowest group first."""
    width = limbs * _DIGITS
    padded = text.rjust(count * width, "0")[-count * width :]
    digits = np.frombuffer(padded.encode("ascii"), np.uint8).reshape(count, width)
    entries = np.zeros(count, np.int64)
    for place in range(width):  # one at a time: all digits as 64 bits would be 600 MB at a million leaves
        entries *= 10
        entries += digits[:, place] - ord("0")
    return entries[::-1].copy()


_LIMB = 16  # bits of a part of numbers that are too large to be multiplied at once
SINE_SCALE = 1 << 20  # the rounding term sqrt(n) is 0.1% of the sensitivity at a million leaves


def l2_bound(n: int, scale: int) -> int:
    """An integer that no column norm of the integer rows passes.

    **Privacy** 1e-9 covers the rounding of `column_norm`, 1.01 that of the entries.
    """
    return ceil(scale * (1 + 1e-9) + 1.01 * sqrt(n))


@lru_cache(maxsize=2)
def table(n: int, scale: int) -> IntArray:
    """T(d) for d = 0..2n + 1, int64."""
    return np.rint(scale / (n + 1) * cosine_sums(weight(n, 0.25))).astype(np.int64)


def measure_sine(x: IntArray, scale: int) -> IntArray:
    """B x for each column of x in exact integers modulo 2^64, shape (n, m).

    Args:
        x: integers, shape (n, m).
        scale: D.

    Raises:
        InternalError: the rows are too large, whatever x is.

    **Privacy** Raw: never leaves publishing without noise.
    """
    n = len(x)
    entries = table(n, scale)
    entry_bound = 2 * int(np.abs(entries).max())
    if entry_bound * n << _LIMB >= LIMIT:
        raise InternalError(f"sine rows of {n} leaves have too large entries")
    largest = entry_bound * max(1, int(np.abs(x).astype(object).sum(axis=0).max()))
    if largest >= LIMIT:
        return (measure_sine(x >> _LIMB, scale) << _LIMB) + measure_sine(x & (1 << _LIMB) - 1, scale)
    period = 2 * (n + 1)
    rows = np.empty_like(x)
    for column in range(x.shape[1]):
        odd = np.zeros(period, np.int64)
        odd[1 : n + 1] = x[:, column]
        odd[n + 2 :] = -x[::-1, column]
        sums = convolve(odd, entries, largest)
        sums[: len(sums) - period] += sums[period:]
        rows[:, column] = sums[1 : n + 1]
    return rows


class SineRows(NamedTuple):
    """The integer rows of a table; n^2 of them, too many to be written down.

    Args:
        cells: n.
        scale: D.
    """

    cells: int
    scale: int

    def measure(self, x: IntArray) -> IntArray:
        return measure_sine(x, self.scale)

    def column_bound(self, budget: IntArray, norm: int) -> int:
        """The square of the proven bound of `l2_bound`; budgets are 1."""
        return l2_bound(self.cells, self.scale) ** 2


def sine_strategy(leaves: int, scale: int = SINE_SCALE) -> Strategy:
    """V^(1/4) of all ranges, for axes too long for dense rows.

    Args:
        leaves: n.
        scale: D; products with the rows of other axes would not fit in 64 bits.

    **Privacy** `total` is the proven bound of `l2_bound` on the column norms of the integer rows.
    """
    total = l2_bound(leaves, scale)
    solver = SineVariance(leaves, column_norm(leaves) * (total / scale) ** 2)
    stored, rows = {"leaves": leaves, "scale": scale}, SineRows(leaves, scale)
    budget = np.ones(leaves, np.int64)
    # Rows are estimated by a matrix close to theirs; each round leaves about a millionth of what was wrong.
    return Strategy("sine", stored, rows, budget, total, GAUSSIAN.norm, solver, scale, refinements=2)


def _sine_offers(question: AxisProblem) -> Iterator[Proposal]:
    """The sine transform, on axes too long for dense rows."""
    name = "sine transform"
    if question.law != GAUSSIAN:
        yield Refusal(name, f"is for {GAUSSIAN.name} noise")
    elif question.leaves <= DENSE_LEAVES:
        yield Refusal(name, "the dense optimum has less error")
    else:
        yield Offer(name, 0.0, lambda: candidate(sine_strategy(question.leaves), name, question))
