"""Variance of ranges after least squares on a tree.

For a node of weight w (1 over the variance of its own measurement) let C be the covariance of the leaves
below it, using measurements at or below it, and u a mask on those leaves. Two numbers pass upwards,

    a = 1' C u        r = u' C u

from the children's sums:  a = g sum(a_c),  r = sum(r_c) - w g (sum a_c)^2,  with s = 1' C 1,
S = sum(s_c), g = 1 / (1 + w S), s = g S. A range touches two paths; all other nodes are full (s, s) or
empty (0, 0), so V is r at the root after O(depth) steps. A node without budget has w = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.matrices.model import Columns
from dpsql.tree import FloatArray, IntArray, Tree, stored_tree


@dataclass(frozen=True, eq=False)
class TreeVariance:
    """The variance model of a tree whose nodes are measured with the given weights.

    Args:
        tree: the shape.
        weight: 1 / variance of each node's measurement for noise of unit strength, shape (size,);
            0 for a node that is not measured, positive at leaves.
    """

    tree: Tree
    weight: FloatArray
    kind: ClassVar[str] = "tree"

    @property
    def n(self) -> int:
        return self.tree.n

    @cached_property
    def spread(self) -> tuple[FloatArray, FloatArray]:
        """s and g of every node, both of shape (size,); g is 1 at leaves."""
        return node_spread(self.tree, self.weight)

    @cached_property
    def _left(self) -> FloatArray:
        """Sum of s over the nodes before each node, shape (size + 1,)."""
        return np.concatenate([[0.0], np.cumsum(self.spread[0])])

    def ranges(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
        """Variance of each half-open range, shape (q,)."""
        lo, hi = np.atleast_1d(np.asarray(lo, np.int64)), np.atleast_1d(np.asarray(hi, np.int64))
        lo, hi = np.broadcast_arrays(lo, hi)
        out = np.zeros(len(lo))
        nonempty = np.flatnonzero(lo < hi)
        out[nonempty] = self._climb(self.tree.leaves[lo[nonempty]], self.tree.leaves[hi[nonempty] - 1])
        return out

    def _climb(self, left: IntArray, right: IntArray) -> FloatArray:
        """Carry (a, r) of the ranges' two boundary paths to the root."""
        tree, s = self.tree, self.spread[0]
        a, r = s[left], s[left]  # of the node on the left path; it holds all once the paths meet
        b, t = np.where(left == right, 0.0, s[right]), np.where(left == right, 0.0, s[right])
        for level in range(tree.depth - 1, 0, -1):
            up_left, up_right = tree.level[left] == level, tree.level[right] == level
            above_left, above_right = tree.parent[left], tree.parent[right]
            apart = left != right
            meet = up_left & up_right & apart & (above_left == above_right)
            end = np.where(meet, right, tree.first_child[above_left] + tree.child_count[above_left])
            between = np.where(apart, self._left[end] - self._left[left + 1], 0.0)
            begin = tree.first_child[above_right]
            preceding = self._left[right] - self._left[begin]
            a, r = self._step(up_left, above_left, a, r, between + meet * b, between + meet * t)
            b, t = self._step(up_right & apart & ~meet, above_right, b, t, preceding, preceding)
            left = np.where(up_left, above_left, left)
            right = np.where(up_right, above_right, right)
        return r

    def _step(
        self, moves: npt.NDArray[np.bool_], above: IntArray, a: FloatArray, r: FloatArray,
        more_a: FloatArray, more_r: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:  # fmt: skip
        """(a, r) at the parent, where a path moves up."""
        total = a + more_a
        gain = self.spread[1][above]
        variance = r + more_r - self.weight[above] * gain * total**2
        return np.where(moves, gain * total, a), np.where(moves, variance, r)

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,); O(n) a row."""
        tree, (s, g) = self.tree, self.spread
        u = np.asarray(masks, np.float64)
        a, r = np.zeros((tree.size, len(u))), np.zeros((tree.size, len(u)))
        a[tree.leaves] = s[tree.leaves, None] * u.T
        r[tree.leaves] = s[tree.leaves, None] * u.T**2
        for parents, children, first, *_ in tree.inner_levels:
            total = np.add.reduceat(a[children], first, axis=0)
            gain = g[parents, None]
            a[parents] = gain * total
            r[parents] = np.add.reduceat(r[children], first, axis=0)
            r[parents] -= self.weight[parents, None] * gain * total**2
        variance: FloatArray = r[0].copy()
        return variance

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line per node: its interval, its parent's id, its level and its weight."""
        shape = {"lo": self.tree.lo, "hi": self.tree.hi, "parent": self.tree.parent, "level": self.tree.level}
        return {**shape, "weight": self.weight}


def measured(n: int, columns: Columns) -> set[tuple[int, int]]:
    """The half-open intervals of nodes with a budget, of a stored tree."""
    drawn = columns["weight"].astype(np.float64) > 0
    return {(int(lo), int(hi)) for lo, hi in zip(columns["lo"][drawn], columns["hi"][drawn], strict=True)}


def node_spread(tree: Tree, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """s (variance of each node's sum from below) and g = 1 / (1 + w S), both of shape (size,).

    Raises:
        InternalError: if a leaf has no weight: nothing then bounds its variance.
    """
    if np.any(weight[tree.leaves] <= 0) or np.any(weight < 0):
        raise InternalError("every leaf of a measured tree needs a positive budget")
    s, g = np.empty(tree.size), np.ones(tree.size)
    s[tree.leaves] = 1 / weight[tree.leaves]
    for parents, children, first, *_ in tree.inner_levels:
        total = np.add.reduceat(s[children], first)
        g[parents] = 1 / (1 + weight[parents] * total)
        s[parents] = g[parents] * total
    return s, g


def from_columns(n: int, columns: Columns) -> TreeVariance:
    """The model that `columns` were read from; lines may come in any order."""
    lo, hi = columns["lo"].astype(np.int64), columns["hi"].astype(np.int64)
    order = np.lexsort((lo, columns["level"].astype(np.int64)))
    level, parent = columns["level"].astype(np.int64)[order], columns["parent"].astype(np.int64)[order]
    tree = stored_tree(lo[order], hi[order], parent, level)
    if tree.n != n:
        raise InternalError(f"a tree of {tree.n} leaves cannot describe an axis of {n}")
    return TreeVariance(tree, columns["weight"].astype(np.float64)[order])
