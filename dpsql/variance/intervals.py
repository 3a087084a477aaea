"""Variance of ranges after least squares over an identity and interval rows (tents, shallow trees).

For boundaries i <= j and prefix sums S, Var(S_j - S_i) = P_i + P_j - 2 Cov(S_i, S_j). With v_i the partial
row sums that elimination has not yet explained at i, and delta_j = v_i carried from i to j,

    P_i         = c_i - A_i - v_i' Z_i v_i
    Cov(i, j)   = c_i - A_i - v_i' x_i + delta_j' (x_j - Z_j v_j)

where c sums q, A sums y^2/D over eliminated rows, x = M^-1 B q, and Z, x are read at the slots. Only delta
depends on both ends; products of the elimination's steps over dyadic blocks carry it in O(log rows).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.tree import FloatArray, IntArray
from dpsql.variance.interval_rows import (
    Factor,
    IntervalRows,
    backward,
    factorise,
    forward,
    interval_rows,
    row_sums,
)


class _Boundary(NamedTuple):
    """What is known of prefix sums at some leaves' left borders."""

    state: IntArray  # rows eliminated so far
    open: FloatArray  # v, shape (q, slots)
    before: FloatArray  # c - A
    variance: FloatArray  # P


@dataclass(frozen=True, eq=False)
class IntervalVariance:
    """The variance model of `interval_rows`; see the module for the formulas."""

    rows: IntervalRows
    kind: ClassVar[str] = "intervals"

    @property
    def n(self) -> int:
        """Number of leaves."""
        return self.rows.n

    @cached_property
    def factor(self) -> Factor:
        """The factorisation, made on first use."""
        return factorise(self.rows)

    @cached_property
    def _prefix(self) -> tuple[FloatArray, FloatArray]:
        """c, shape (n + 1,), and the running row sums per slot, shape (slots, n + 1)."""
        q = self.rows.diag**-2
        parts = np.zeros((self.rows.slots, self.n + 1))
        np.cumsum(self.rows.value * q, axis=1, out=parts[:, 1:])
        return np.concatenate([[0.0], np.cumsum(q)]), parts

    @cached_property
    def _solution(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """A, shape (p + 1,); what is owed and x at the slots, shape (p + 1, slots)."""
        right = row_sums(self.rows, (self.rows.diag**-2)[:, None])
        solved, owed = forward(self.rows, self.factor, right)
        _, held = backward(self.rows, self.factor, solved)
        explained = np.concatenate([[0.0], np.cumsum(solved[:, 0] ** 2 / self.factor.pivot)])
        return explained, owed[:, :, 0], held[:, :, 0]

    def _at(self, border: IntArray) -> _Boundary:
        """The prefix quantities at the given borders, each in 0..n."""
        rows, (c, parts), (explained, owed, _) = self.rows, self._prefix, self._solution
        state = np.searchsorted(rows.stop, border, side="right")
        unexplained = np.zeros((len(border), rows.slots))
        for slot in range(rows.slots):
            row = rows.holder[slot][np.maximum(border - 1, 0)]
            inside = (border > 0) & (row >= state)  # started before the border and not yet eliminated
            part = parts[slot][border] - parts[slot][rows.start[row]]
            unexplained[:, slot] = np.where(inside, part - owed[state, slot], 0.0)
        before = c[border] - explained[state]
        explains = np.zeros(len(border))
        for a in range(rows.slots):
            for b in range(rows.slots):
                explains += unexplained[:, a] * unexplained[:, b] * self.factor.inverse[state, a, b]
        return _Boundary(state, unexplained, before, before - explains)

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
        first, second = self._at(lo), self._at(hi)
        held = self._solution[2]
        together = first.before - np.sum(first.open * held[first.state], axis=1)
        if np.any(first.open):
            states = np.broadcast_arrays(first.state, second.state)
            carried = self._carry(np.broadcast_to(first.open, (len(states[0]), self.rows.slots)), *states)
            weight = held[second.state]
            weight -= np.einsum("qij,qj->qi", self.factor.inverse[second.state], second.open)
            together = together + np.sum(carried * weight, axis=1)
        return np.where(lo < hi, first.variance + second.variance - 2 * together, 0.0)

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,)."""
        weighted = (np.asarray(masks, np.float64) / self.rows.diag**2).T
        alone = np.sum((weighted.T * self.rows.diag) ** 2, axis=1)
        solved, _ = forward(self.rows, self.factor, row_sums(self.rows, weighted))
        variance: FloatArray = alone - np.sum(solved**2 / self.factor.pivot[:, None], axis=0)
        return variance

    def prefix_variances(self) -> FloatArray:
        """P_i for i = 0..n, shape (n + 1,)."""
        return self._at(np.arange(self.n + 1)).variance

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line per stored entry: (row, cell, value); row -1 holds the leaves' own weights."""
        slot, cell = np.nonzero(self.rows.holder >= 0)
        return {
            "row": np.concatenate([np.full(self.n, -1), self.rows.holder[slot, cell]]),
            "cell": np.concatenate([np.arange(self.n), cell]),
            "value": np.concatenate([self.rows.diag, self.rows.value[slot, cell]]),
        }


def from_columns(n: int, columns: Mapping[str, npt.NDArray[np.generic]]) -> IntervalVariance:
    """The model that `columns` were read from; lines may come in any order."""
    row, cell = columns["row"].astype(np.int64), columns["cell"].astype(np.int64)
    order = np.lexsort((cell, row))
    row, cell, value = row[order], cell[order], columns["value"].astype(np.float64)[order]
    row, cell, diag, value = row[n:], cell[n:], value[:n], value[n:]
    first = np.flatnonzero(np.diff(row, prepend=-1))
    length = np.diff(np.append(first, len(row)))
    rows, _ = interval_rows(diag, cell[first], cell[first] + length, value)
    return IntervalVariance(rows)
