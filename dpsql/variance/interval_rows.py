"""Least squares for an identity plus interval rows, exactly and in time linear in the leaves.

The model is y0 = diag x + noise and y_k = row_k x + noise, all noises of variance 1. Rows are intervals, so
eliminating them in the order of their right ends gives no fill: the later rows that overlap row k all
contain k's last leaf, hence overlap each other. Rows that never overlap share a *slot*; a row is then a
scalar in a vector of `slots` numbers, and the state after k eliminations is such a vector.

    symbol    here                   meaning
    q         1 / diag^2             variance of a leaf before the rows help
    M         I + B diag(q) B'       what is factorised, M = L D L'
    G         gain[k, slot]          column k of L below the diagonal
    Z         inverse[k]             M^-1 among the rows that sit in the slots once k rows are eliminated

**Source** docs/method/axis.md, "Least squares with interval rows".
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from dpsql.errors import InternalError
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
        """Number of leaves."""
        return len(self.diag)

    @property
    def slots(self) -> int:
        """The largest number of rows over one leaf."""
        return len(self.holder)


@dataclass(frozen=True, eq=False)
class Factor:
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
            both = (first[runs] >= 0) & (second[runs] >= 0)
            x, y, overlap = first[runs][both], second[runs][both], overlap[both]
            if a == b:
                diagonal[x] += overlap
            else:
                link[np.minimum(x, y), rows.slot[np.maximum(x, y)]] = overlap
    return diagonal, link


def factorise(rows: IntervalRows) -> Factor:
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
        s, now = slot[k], inverse[k]
        now[:] = inverse[k + 1]
        now[s] = 0.0
        now[:, s] = 0.0
        column = -(now @ gain[k])
        now[s] = column
        now[:, s] = column
        now[s, s] = 1.0 / pivot[k] - gain[k] @ column
    return Factor(pivot, gain, inverse)


def forward(rows: IntervalRows, factor: Factor, right: FloatArray) -> tuple[FloatArray, FloatArray]:
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


def backward(rows: IntervalRows, factor: Factor, solved: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Solve D L' x = y.

    Args:
        solved: y of `forward`, shape (p, m).

    Returns:
        x, shape (p, m), and x of the rows in the slots before each step, shape (p + 1, slots, m).
    """
    out = solved / factor.pivot[:, None]
    held = np.zeros((len(solved) + 1, rows.slots, solved.shape[1]))
    for k in range(len(solved) - 1, -1, -1):
        out[k] -= factor.gain[k] @ held[k + 1]
        held[k] = held[k + 1]
        held[k, rows.slot[k]] = out[k]
    return out, held


def row_sums(rows: IntervalRows, x: FloatArray) -> FloatArray:
    """B x: each row applied to each column of x, shape (n, m) -> (p, m)."""
    out = np.zeros((len(rows.start), x.shape[1]))
    for slot in range(rows.slots):
        mine = np.flatnonzero(rows.slot == slot)
        total = np.cumsum(rows.value[slot][:, None] * x, axis=0)
        out[mine] = total[rows.stop[mine] - 1]
        later = rows.start[mine] > 0
        out[mine[later]] -= total[rows.start[mine[later]] - 1]
    return out


def spread(rows: IntervalRows, y: FloatArray) -> FloatArray:
    """B' y: what the rows give back to the leaves, shape (p, m) -> (n, m)."""
    out = np.zeros((rows.n, y.shape[1]))
    for slot in range(rows.slots):
        held = rows.holder[slot] >= 0
        out[held] += rows.value[slot][held, None] * y[rows.holder[slot][held]]
    return out


def blue_rows(rows: IntervalRows, leaf: FloatArray, measured: FloatArray) -> FloatArray:
    """Best linear unbiased leaf estimates.

    Args:
        rows: the measured rows.
        leaf: the leaves' own measurements, shape (n, m).
        measured: the rows' measurements in the layout's order, shape (p, m).

    Returns:
        Estimates, shape (n, m).
    """
    start = leaf / rows.diag[:, None]
    if not len(measured):
        return start
    factor = factorise(rows)
    solved, _ = forward(rows, factor, measured - row_sums(rows, start))
    solution, _ = backward(rows, factor, solved)
    return start + (rows.diag**-2)[:, None] * spread(rows, solution)
