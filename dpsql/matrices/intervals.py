"""Least squares for an identity plus interval rows (tents, shallow trees), and the variance of ranges after it.

**Least squares**, exactly and in time linear in the leaves. The model is y0 = diag x + noise and y_k = row_k x + noise,
all noises of variance 1. Rows are intervals, so eliminating them in the order of their right ends gives no fill: the
later rows that overlap row k all contain k's last leaf, hence overlap each other. Rows that never overlap share a
*slot*; a row is then a scalar in a vector of `slots` numbers, and the state after k eliminations is such a vector.

    symbol    here                   meaning
    q         1 / diag^2             variance of a leaf before the rows help
    M         I + B diag(q) B'       what is factorised, M = L D L'
    G         gain[k, slot]          column k of L below the diagonal
    Z         inverse[k]             M^-1 among the rows that sit in the slots once k rows are eliminated

**Ranges.** For boundaries i <= j and prefix sums S, Var(S_j - S_i) = P_i + P_j - 2 Cov(S_i, S_j). With v_i the partial
row sums that elimination has not yet explained at i, and delta_j = v_i carried from i to j,

    P_i         = c_i - A_i - v_i' Z_i v_i
    Cov(i, j)   = c_i - A_i - v_i' x_i + delta_j' (x_j - Z_j v_j)

where c sums q, A sums y^2/D over eliminated rows, x = M^-1 B q, and Z, x are read at the slots. Only delta
depends on both ends; products of the elimination's steps over dyadic blocks carry it in O(log rows).

**Source** docs/method/views.md, "Least squares with interval rows".

**Sine rows**, which a Fourier transform makes diagonal: one table of cosine sums, O(1) per range.

All ranges weigh leaf i against leaf j as V_ij = (number of ranges that hold both), up to scale the inverse
of a second difference matrix; its eigenvectors are sines and its eigenvalues are
lambda_k = (n + 1) / (4 sin^2(pi k / (2 (n + 1)))). The strategy measures V^(1/4), so C is scale V^(-1/2), and

    V(a, b) = scale / (2 (n + 1)) [psi(0) + psi(2a - 1)/2 + psi(2b + 1)/2 - psi(a + b) - psi(b - a + 1)]

for leaves a..b, 1-based and inclusive in this formula alone, with psi(t) = sum_k q_k cos(pi k t / (n + 1))
and q_k = lambda_k^(-1/2) / sin^2(pi k / (2 (n + 1))).

**Filters**: each batch is read through a causal filter of independent noise. A batch's estimate is factor_j * sum over
i <= j of kernel_(j-i) z_i, z of variance 1. So two arrays of one number a leaf hold the covariance of every pair,
however long the axis is: C_ij = factor_i factor_j sum over k <= min(i, j) of kernel_k kernel_(k + |i - j|).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.matrices.model import CHUNK, TABLE, Columns, by_steps, range_variances
from dpsql.tree import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class IntervalRows:
    """An identity and rows over intervals, laid out by slots. Make one with `interval_rows`.

    Args:
        diag: weight of each leaf's own measurement, shape (n,), positive.
        start: first leaf of each row, rows sorted by stop, shape (p,).
        stop: one past the last leaf of each row, shape (p,).
        slot: the slot of each row, shape (p,).
        holder: the row that holds each slot at each leaf, or -1, shape (slots, n).
        value: the entry of that row at that leaf, or 0, shape (slots, n).
    """

    diag: FloatArray
    start: IntArray
    stop: IntArray
    slot: IntArray
    holder: IntArray
    value: FloatArray

    @property
    def n(self) -> int:
        return len(self.diag)

    @property
    def slots(self) -> int:
        """The largest number of rows over one leaf."""
        return len(self.holder)


@dataclass(frozen=True, eq=False)
class LdlFactor:
    """M = L D L' and the selected inverse, in slot form.

    Args:
        pivot: D, shape (p,).
        gain: column k of L, by the slot of the later row, shape (p, slots).
        inverse: M^-1 among the rows in the slots before row k is eliminated, shape (p + 1, slots, slots).
    """

    pivot: FloatArray
    gain: FloatArray
    inverse: FloatArray


def interval_rows(
    diag: FloatArray, start: IntArray, stop: IntArray, entry: FloatArray
) -> tuple[IntervalRows, IntArray]:
    """Sort rows by right end and give them slots.

    Args:
        diag: weight of each leaf's own measurement, shape (n,).
        start: first leaf of each row, shape (p,).
        stop: one past the last leaf of each row, shape (p,).
        entry: entries of all rows one after the other, shape (sum of stop - start,).

    Returns:
        The layout, and the order in which it holds the given rows, shape (p,).

    Raises:
        InternalError: if a leaf is not measured by itself.
    """
    if np.any(diag <= 0):
        raise InternalError("every leaf needs a measurement of its own")
    n, length = len(diag), stop - start
    order = np.lexsort((start, stop))
    slot = _slots(start, stop)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    of_row = np.repeat(np.arange(len(start)), length)
    cell = np.arange(len(of_row)) + np.repeat(start - (np.cumsum(length) - length), length)
    slots = int(slot.max(initial=-1)) + 1
    holder, value = np.full((slots, n), -1, np.int64), np.zeros((slots, n))
    holder[slot[of_row], cell] = rank[of_row]
    value[slot[of_row], cell] = entry
    return IntervalRows(diag, start[order], stop[order], slot[order], holder, value), order


def _slots(start: IntArray, stop: IntArray) -> IntArray:
    """The lowest slot that is free when each row starts: as few slots as rows ever overlap."""
    slot = np.zeros(len(start), np.int64)
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    used = 0
    for row in np.argsort(start, kind="stable").tolist():
        while busy and busy[0][0] <= start[row]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            free.append(used)
            used += 1
        slot[row] = heapq.heappop(free)
        heapq.heappush(busy, (int(stop[row]), int(slot[row])))
    return slot


def _gram(rows: IntervalRows) -> tuple[FloatArray, FloatArray]:
    """M's diagonal, shape (p,), and its entries with later rows by their slot, shape (p, slots)."""
    p, q = len(rows.start), rows.diag**-2
    diagonal, link = np.ones(p), np.zeros((p, rows.slots))
    for a in range(rows.slots):
        weighted = q * rows.value[a]
        for b in range(a, rows.slots):
            first, second = rows.holder[a], rows.holder[b]
            changes = (np.diff(first) != 0) | (np.diff(second) != 0)
            runs = np.concatenate([[0], 1 + np.flatnonzero(changes)])  # two rows overlap in one run
            overlap = np.add.reduceat(weighted * rows.value[b], runs)
            overlapping = (first[runs] >= 0) & (second[runs] >= 0)
            x, y, overlap = first[runs][overlapping], second[runs][overlapping], overlap[overlapping]
            if a == b:
                diagonal[x] += overlap
            else:
                link[np.minimum(x, y), rows.slot[np.maximum(x, y)]] = overlap
    return diagonal, link


def factorise(rows: IntervalRows) -> LdlFactor:
    """Eliminate the rows from left to right; then read the inverse back from right to left."""
    diagonal, gain = _gram(rows)
    p, slots, slot = len(rows.start), rows.slots, rows.slot.tolist()
    pending = np.zeros((slots, slots))  # what eliminated rows subtract from the rows now in the slots
    pivot = diagonal
    for k, s in enumerate(slot):
        column = gain[k] + pending[s]
        column[s] = 0.0
        pivot[k] += pending[s, s]
        gain[k] = column / pivot[k]
        pending -= gain[k][:, None] * column
        pending[s] = 0.0
        pending[:, s] = 0.0
    inverse = np.zeros((p + 1, slots, slots))
    for k in range(p - 1, -1, -1):
        s, current = slot[k], inverse[k]
        current[:] = inverse[k + 1]
        current[s] = 0.0
        current[:, s] = 0.0
        column = -(current @ gain[k])
        current[s] = column
        current[:, s] = column
        current[s, s] = 1.0 / pivot[k] - gain[k] @ column
    return LdlFactor(pivot, gain, inverse)


def forward(rows: IntervalRows, factor: LdlFactor, right: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Solve L y = right.

    Args:
        right: right-hand sides, shape (p, m).

    Returns:
        y, shape (p, m), and what eliminated rows owe the rows in the slots before each step,
        shape (p + 1, slots, m).
    """
    solved = right.copy()
    owed = np.zeros((len(right) + 1, rows.slots, right.shape[1]))
    for k, s in enumerate(rows.slot.tolist()):
        solved[k] -= owed[k, s]
        np.multiply(factor.gain[k][:, None], solved[k], out=owed[k + 1])
        owed[k + 1] += owed[k]
        owed[k + 1, s] = 0.0
    return solved, owed


def backward(rows: IntervalRows, factor: LdlFactor, solved: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Solve D L' x = y.

    Args:
        solved: y of `forward`, shape (p, m).

    Returns:
        x, shape (p, m), and x of the rows in the slots before each step, shape (p + 1, slots, m).
    """
    out = solved / factor.pivot[:, None]
    in_slots = np.zeros((len(solved) + 1, rows.slots, solved.shape[1]))
    for k in range(len(solved) - 1, -1, -1):
        out[k] -= factor.gain[k] @ in_slots[k + 1]
        in_slots[k] = in_slots[k + 1]
        in_slots[k, rows.slot[k]] = out[k]
    return out, in_slots


AT_ONCE = 1 << 20
"""Numbers of several slots that are added up together: a step of numpy's costs as much as some thousand of them."""


def row_sums(rows: IntervalRows, x: FloatArray) -> FloatArray:
    """B x: each row applied to each column of x, shape (n, m) -> (p, m)."""
    out = np.zeros((len(rows.start), x.shape[1]))
    step = max(1, AT_ONCE // max(1, x.size))
    for first in range(0, rows.slots, step):
        entries = rows.value[first : first + step, :, None] * x
        total = np.zeros((len(entries), rows.n + 1, x.shape[1]))
        np.cumsum(entries, axis=1, out=total[:, 1:])
        selected = np.flatnonzero((rows.slot >= first) & (rows.slot < first + step))
        slot = rows.slot[selected] - first
        out[selected] = total[slot, rows.stop[selected]] - total[slot, rows.start[selected]]
    return out


def spread(rows: IntervalRows, y: FloatArray) -> FloatArray:
    """B' y: what the rows give back to the leaves, shape (p, m) -> (n, m)."""
    out = np.zeros((rows.n, y.shape[1]))
    for slot in range(rows.slots):
        occupied = rows.holder[slot] >= 0
        out[occupied] += rows.value[slot][occupied, None] * y[rows.holder[slot][occupied]]
    return out


@dataclass(frozen=True, eq=False)
class IntervalVariance:
    """The variance model of `interval_rows`; see the module for the formulas.

    Args:
        rows: the layout.
        order: in which it holds the rows that are not single leaves, shape (p,); None of a stored model.
    """

    rows: IntervalRows
    order: IntArray | None = None
    kind: ClassVar[str] = "intervals"

    @property
    def n(self) -> int:
        return self.rows.n

    @cached_property
    def factor(self) -> LdlFactor:
        """The factorisation, made on first use."""
        return factorise(self.rows)

    @cached_property
    def _prefix(self) -> tuple[FloatArray, FloatArray]:
        """c, shape (n + 1,), and the running row sums per slot, shape (slots, n + 1)."""
        q = self.rows.diag**-2
        row_prefix = np.zeros((self.rows.slots, self.n + 1))
        np.cumsum(self.rows.value * q, axis=1, out=row_prefix[:, 1:])
        return np.concatenate([[0.0], np.cumsum(q)]), row_prefix

    @cached_property
    def _solution(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Solution after elimination at each state: A, shape (p + 1,); what is owed, and x at slots, (p + 1,
        slots)."""
        right = row_sums(self.rows, (self.rows.diag**-2)[:, None])
        solved, owed = forward(self.rows, self.factor, right)
        _, in_slots = backward(self.rows, self.factor, solved)
        explained = np.concatenate([[0.0], np.cumsum(solved[:, 0] ** 2 / self.factor.pivot)])
        return explained, owed[:, :, 0], in_slots[:, :, 0]

    def _at(self, border: IntArray) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        """Joint distribution of prefix sums at the left borders of some leaves, each in 0..n.

        Returns:
            Rows eliminated so far, v of shape (q, slots), c - A, and P.
        """
        rows, (c, row_prefix), (explained, owed, _) = self.rows, self._prefix, self._solution
        state = np.searchsorted(rows.stop, border, side="right")
        unexplained = np.zeros((len(border), rows.slots))
        for slot in range(rows.slots):
            row = rows.holder[slot][np.maximum(border - 1, 0)]
            inside = (border > 0) & (row >= state)  # started before the border and not yet eliminated
            running = row_prefix[slot][border] - row_prefix[slot][rows.start[row]]
            unexplained[:, slot] = np.where(inside, running - owed[state, slot], 0.0)
        closed = c[border] - explained[state]
        explains = np.zeros(len(border))
        for a in range(rows.slots):
            for b in range(rows.slots):
                explains += unexplained[:, a] * unexplained[:, b] * self.factor.inverse[state, a, b]
        return state, unexplained, closed, closed - explains

    @cached_property
    def _blocks(self) -> list[FloatArray]:
        """Products of elimination steps over blocks of 1, 2, 4, ... rows; each (blocks, slots, slots)."""
        p, slots = self.factor.gain.shape
        step = np.tile(np.eye(slots), (p, 1, 1))
        at = np.arange(p)
        step[at, :, self.rows.slot] = -self.factor.gain
        step[at, self.rows.slot, self.rows.slot] = 0.0
        blocks = [step]
        while len(blocks[-1]) > 1:
            last = blocks[-1][: len(blocks[-1]) // 2 * 2]
            blocks.append(last[1::2] @ last[::2])
        return blocks

    def _carry(self, value: FloatArray, a: IntArray, b: IntArray) -> FloatArray:
        """Take the unexplained parts from state a to state b, a <= b; shape (q, slots)."""
        value, a = value.copy(), a.copy()
        up = list(enumerate(self._blocks))
        for level, block in [*up, *reversed(up)]:
            size = 1 << level
            usable = (a % size == 0) & (a + size <= b)
            climbing = (a >> level) & 1 == 1
            move = np.flatnonzero(usable & (climbing | (a + 2 * size > b)))
            value[move] = np.einsum("qij,qj->qi", block[a[move] >> level], value[move])
            a[move] += size
        return value

    def ranges(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
        """Variance of each half-open range, shape (q,); a single `lo` serves all ranges at little cost."""
        lo, hi = np.atleast_1d(np.asarray(lo, np.int64)), np.atleast_1d(np.asarray(hi, np.int64))
        (state_lo, open_lo, unexplained, variance_lo), (state_hi, open_hi, _, variance_hi) = (
            self._at(lo),
            self._at(hi),
        )
        _, _, in_slots = self._solution
        together = unexplained - np.sum(open_lo * in_slots[state_lo], axis=1)
        if np.any(open_lo):
            states = np.broadcast_arrays(state_lo, state_hi)
            carried = self._carry(np.broadcast_to(open_lo, (len(states[0]), self.rows.slots)), *states)
            weight = in_slots[state_hi]
            weight -= np.einsum("qij,qj->qi", self.factor.inverse[state_hi], open_hi)
            together = together + np.sum(carried * weight, axis=1)
        return np.where(lo < hi, variance_lo + variance_hi - 2 * together, 0.0)

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,)."""
        if (stepwise := by_steps(self, np.asarray(masks, np.float64))) is not None:
            return stepwise
        weighted = (np.asarray(masks, np.float64) / self.rows.diag**2).T
        alone = np.sum((weighted.T * self.rows.diag) ** 2, axis=1)
        solved, _ = forward(self.rows, self.factor, row_sums(self.rows, weighted))
        variance: FloatArray = alone - np.sum(solved**2 / self.factor.pivot[:, None], axis=0)
        return variance

    def blue(self, y: FloatArray) -> FloatArray:
        """Estimates from rows of unit noise, the leaves' first: elimination from left to right."""
        rows = self.rows
        start = y[: self.n] / rows.diag[:, None]
        if len(y) == self.n:
            return start
        assert self.order is not None
        solved, _ = forward(rows, self.factor, y[self.n :][self.order] - row_sums(rows, start))
        solution, _ = backward(rows, self.factor, solved)
        return start + (rows.diag**-2)[:, None] * spread(rows, solution)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line per stored entry: (row, cell, value); row -1 holds the leaves' own weights."""
        slot, cell = np.nonzero(self.rows.holder >= 0)
        return {
            "row": np.concatenate([np.full(self.n, -1), self.rows.holder[slot, cell]]),
            "cell": np.concatenate([np.arange(self.n), cell]),
            "value": np.concatenate([self.rows.diag, self.rows.value[slot, cell]]),
        }


def from_columns(n: int, columns: Columns) -> IntervalVariance:
    """The model that `columns` were read from; lines may come in any order."""
    row, cell = columns["row"].astype(np.int64), columns["cell"].astype(np.int64)
    order = np.lexsort((cell, row))
    row, cell, value = row[order], cell[order], columns["value"].astype(np.float64)[order]
    row, cell, diag, value = row[n:], cell[n:], value[:n], value[n:]
    first = np.flatnonzero(np.diff(row, prepend=-1))
    length = np.diff(np.append(first, len(row)))
    rows, _ = interval_rows(diag, cell[first], cell[first] + length, value)
    return IntervalVariance(rows)


def half_angles(n: int) -> FloatArray:
    """sin(pi k / (2 (n + 1))) for k = 1..n, shape (n,)."""
    sines: FloatArray = np.sin(np.pi * np.arange(1, n + 1) / (2 * (n + 1)))
    return sines


def sine_transform(x: FloatArray) -> FloatArray:
    """The orthonormal sine transform (DST-I) of each column, shape (n, m); it is its own inverse."""
    n = len(x)
    odd = np.zeros((2 * (n + 1), x.shape[1]))
    odd[1 : n + 1] = x
    odd[n + 2 :] = -x[::-1]
    waves: FloatArray = -np.fft.rfft(odd, axis=0).imag[1 : n + 1]
    return waves / float(np.sqrt(2 * (n + 1)))


def cosine_sums(weight: FloatArray) -> FloatArray:
    """sum_k weight_k cos(pi k t / (n + 1)) for t = 0..2n + 1, from weights of k = 1..n."""
    n = len(weight)
    spectrum = np.zeros(n + 2)
    spectrum[1 : n + 1] = weight
    sums: FloatArray = np.fft.irfft(spectrum, 2 * (n + 1)) * (n + 1)
    return sums


def column_norm(n: int) -> float:
    """The largest squared column norm of V^(1/4): the largest diagonal entry of V^(1/2)."""
    root = np.sqrt(n + 1) / (2 * half_angles(n))
    return float((root.sum() - cosine_sums(root)[2 : 2 * n + 1 : 2].min()) / (n + 1))


def weight(n: int, power: float) -> FloatArray:
    """Eigenvalues of V^(power) divided by maxcol^(4 power), shape (n,)."""
    root = np.sqrt(n + 1) / (2 * half_angles(n))  # eigenvalues of V^(1/2)
    values: FloatArray = (root / column_norm(n)) ** (2 * power)
    return values


def transform(x: FloatArray, power: float) -> FloatArray:
    """V^(power) x for each column of x, divided by maxcol^(4 power), shape (n, m).

    With power 1/4 the rows have columns of norm at most 1; with -1/4 it is their inverse.
    """
    return sine_transform(weight(len(x), power)[:, None] * sine_transform(x))


@dataclass(frozen=True, eq=False)
class SineVariance:
    """Leaf covariance scale * V^(-1/2).

    Args:
        n: number of leaves.
        scale: what the strategy's sensitivity multiplies the covariance by.
    """

    n: int
    scale: float
    kind: ClassVar[str] = "sine"

    @cached_property
    def _psi(self) -> FloatArray:
        """The table psi(0..2n + 1)."""
        return cosine_sums(2 / (np.sqrt(self.n + 1) * half_angles(self.n)))

    def ranges(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
        """Variance of each half-open range, shape (q,)."""
        lo, hi = np.atleast_1d(np.asarray(lo, np.int64)), np.atleast_1d(np.asarray(hi, np.int64))
        a, b, psi = lo + 1, hi, self._psi
        sums = psi[0] + psi[2 * a - 1] / 2 + psi[2 * b + 1] / 2 - psi[a + b] - psi[b - a + 1]
        return np.where(lo < hi, self.scale / (2 * (self.n + 1)) * sums, 0.0)

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,)."""
        coverages = np.asarray(masks, np.float64)
        if (stepwise := by_steps(self, coverages)) is not None:
            return stepwise
        waves = sine_transform(coverages.T)
        root = 2 * half_angles(self.n) / np.sqrt(self.n + 1)
        energy: FloatArray = np.sum(root[:, None] * waves**2, axis=0)
        return self.scale * energy

    def blue(self, y: FloatArray) -> FloatArray:
        """Estimates from rows of unit noise, up to what rounding the rows changed, which a second pass takes out."""
        return transform(y, -0.25) * float(np.sqrt(self.scale / column_norm(self.n)))

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line: the scale; the rest follows from n."""
        return {"scale": np.array([self.scale])}


def sine_from_columns(n: int, columns: Columns) -> SineVariance:
    """The model that `columns` were read from."""
    return SineVariance(n, float(columns["scale"].astype(np.float64)[0]))


@dataclass(frozen=True, eq=False)
class FilterVariance:
    """The covariance of filtered noise.

    Args:
        kernel: what a batch reads of its own noise, of that before it, and so on, shape (n,).
        factor: what each batch's reading is multiplied by, shape (n,).

    >>> model = FilterVariance(np.array([1.0, -0.5]), np.ones(2))
    >>> model.ranges([0, 1, 0], [1, 2, 2]).tolist()
    [1.0, 1.25, 1.25]
    """

    kernel: FloatArray
    factor: FloatArray
    kind: ClassVar[str] = "filter"

    @property
    def n(self) -> int:
        return len(self.kernel)

    def lags(self, reach: int) -> Iterator[FloatArray]:
        """Covariances of the leaves i and i + lag, for each lag below `reach`."""
        for lag in range(min(reach, self.n)):
            apart = self.n - lag
            shared = np.cumsum(self.kernel[:apart] * self.kernel[lag:])
            yield shared * self.factor[:apart] * self.factor[lag:]

    @cached_property
    def prefix(self) -> FloatArray:
        """Covariance of the prefix sums, shape (n + 1, n + 1)."""
        out, place = np.zeros((self.n + 1, self.n + 1)), np.arange(1, self.n + 1)
        for lag, pairs in enumerate(self.lags(self.n)):
            out[place[: self.n - lag], place[lag:]] = out[place[lag:], place[: self.n - lag]] = pairs
        np.cumsum(out, axis=0, out=out)
        return np.asarray(np.cumsum(out, axis=1, out=out))

    def ranges(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
        """Variance of each half-open range, shape (q,)."""
        lo, hi = np.broadcast_arrays(*(np.atleast_1d(np.asarray(end, np.int64)) for end in (lo, hi)))
        if self.n <= TABLE:
            return np.asarray(self.prefix[lo, lo] + self.prefix[hi, hi] - 2 * self.prefix[lo, hi])
        return range_variances(self, lo, hi)

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,): what they read of each noise, squared."""
        size = 1 << (2 * self.n - 1).bit_length()
        through = np.conj(np.fft.rfft(self.kernel, size))
        coverages, step = np.asarray(masks), max(1, CHUNK // size)
        variances = []
        for a in range(0, len(coverages), step):
            read = np.fft.rfft(coverages[a : a + step] * self.factor, size, axis=1) * through
            variances.append(np.sum(np.fft.irfft(read, size, axis=1)[:, : self.n] ** 2, axis=1))
        return np.concatenate(variances) if variances else np.zeros(0)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line a leaf: its factor, and the kernel at its place."""
        return {"kernel": self.kernel, "factor": self.factor}


def filter_from_columns(n: int, columns: Columns) -> FilterVariance:
    """The model that `columns` were read from, in the order they were written."""
    kernel, factor = (columns[name].astype(np.float64) for name in ("kernel", "factor"))
    return FilterVariance(kernel, factor)
