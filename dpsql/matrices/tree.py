"""Variance of ranges on a tree: after least squares on its nodes, and of leaves drawn together with all node sums.

For a node of weight w (1 over the variance of its own measurement) let C be the covariance of the leaves
below it, using measurements at or below it, and u a mask on those leaves. Two numbers pass upwards,

    a = 1' C u        r = u' C u

from the children's sums:  a = g sum(a_c),  r = sum(r_c) - w g (sum a_c)^2,  with s = 1' C 1,
S = sum(s_c), g = 1 / (1 + w S), s = g S. A range touches two paths; all other nodes are full (s, s) or
empty (0, 0), so V is r at the root after O(depth) steps. A node without budget has w = 0.

**Leaves drawn together** with all node sums of a uniform tree (`noise.knorm`):

| here | there | unit |
|---|---|---|
| `arities` | k_0 .. k_{L-1}, the root's first; m_l leaves lie below a node of level l | - |
| `rates` | b_0 .. b_L = c_l / t, the root's first | 1 / unit of size |
| V_l | variance of the sum of the leaves below a node of level l | squared units of size |

Siblings are exchangeable, so leaves whose lowest common node is at level l have one covariance

    gamma_L = V_L        gamma_l = (V_l - k_l V_{l+1}) / (k_l (k_l - 1) m_{l+1}^2)
    u' C u = sum_l mu_l sum_{v at level l} (sum of u below v)^2        mu_0 = gamma_0, mu_l = gamma_l - gamma_{l-1}

V_l comes from convolutions of the levels' densities, all of whose terms are positive.

With rates b_l and densities over the integers s of a sum, * convolution,

    f_L = e^(-b_L |s|)    f_l = e^(-b_l |s|) (f_{l+1} convolved k_l times)    o_0 = 1
    o_l = (o_{l-1} e^(-b_{l-1} |s|)) * f_l^(k_{l-1} - 1)                      the sum below a node of level l: f_l o_l

Two numbers are two trees at half of the rates, since max(|a|, |b|) = (|a + b| + |a - b|) / 2. That is the limit of
small rates; whole numbers at larger rates err less, so what a release states is never below the truth.

**Source**: docs/method/rows.md, "Joint trees".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, log2, prod
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.matrices.model import Columns, by_steps
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

    def running_totals(self) -> FloatArray:
        """Variance of each prefix [0, t), t = 1..n, from the nodes that end at t or before, shape (n,).

        >>> from dpsql.tree import kary_tree
        >>> TreeVariance(kary_tree(4, 2), np.array([0, *[0.25] * 6])).running_totals().round(4).tolist()
        [4.0, 2.6667, 6.6667, 5.3333]
        """
        closed = np.zeros(self.tree.n + 1)
        np.add.at(closed, self.tree.hi, self.spread[0])
        np.subtract.at(closed, self.tree.hi[self.tree.parent[1:]], self.spread[0][1:])  # the parent's has all
        return np.cumsum(closed[1:])

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,); O(n) a row."""
        tree, (s, g) = self.tree, self.spread
        u = np.asarray(masks, np.float64)
        if (stepwise := by_steps(self, u)) is not None:
            return stepwise
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

    def blue(self, y: FloatArray) -> FloatArray:
        """Leaf estimates from the measured nodes in order, each at unit noise."""
        node = np.flatnonzero(self.weight > 0)
        nodes = np.zeros((self.tree.size, y.shape[1]))
        nodes[node] = y / np.sqrt(self.weight[node])[:, None]
        return blue(self.tree, self.weight, nodes)[self.tree.leaves]

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line per node: its interval, its parent's id, its level and its weight."""
        shape = {"lo": self.tree.lo, "hi": self.tree.hi, "parent": self.tree.parent, "level": self.tree.level}
        return {**shape, "weight": self.weight}


def blue(tree: Tree, weight: FloatArray, y: FloatArray) -> FloatArray:
    """Weighted least squares under the constraint that a node is the sum of its children.

    Args:
        tree: the shape.
        weight: 1 / variance of each node's measurement, shape (size,); 0 for a node that was not
            measured, positive at leaves.
        y: measurements, shape (size, m); not read where the weight is 0.

    Returns:
        Estimates of all nodes, shape (size, m); inner nodes are the sums of their children.

    Raises:
        InternalError: if a leaf has no weight.

    **Privacy** Post-processing of noisy measurements.

    **Source** docs/method/views.md, "Least squares on a tree".
    """
    spread, gain = node_spread(tree, weight)
    best = np.where(weight[:, None] > 0, y, 0.0)
    below = np.zeros_like(best)
    for parents, children, first, *_ in tree.inner_levels:
        below[parents] = np.add.reduceat(best[children], first, axis=0)
        share = gain[parents, None]  # of the children; the rest is the node's own
        best[parents] = share * below[parents] + (1 - share) * best[parents]
    for parents, children, first, of, _ in reversed(tree.inner_levels):
        total = np.add.reduceat(spread[children], first)
        correction = (best[parents] - below[parents]) / total[:, None]
        best[children] += spread[children, None] * correction[of]
    return best


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


FINE = 0.025
"""Step of a grid in units of 1 / (rate of the leaves): variances are right to .005%; at .1 to .08%."""
_TAIL = 1e-9
"""Of the mass that may lie in the outer eighth of a window; else it is doubled."""
_REACH = 40.0
"""Of the first window in units of 1 / (rate of the leaves); doubling does the rest."""
_DEEPEST = 64
"""Levels of a stored tree that are read: more would have more leaves than any axis."""
_LONGEST_STREAM = 1 << 13
"""Leaves of a stored tree that is longer than its axis: batches of a stream that are still to come."""
_WIDEST = 1 << 20
"""Points of a window: at its end the moments of the widest tree allowed have long converged."""


class LevelMoments(NamedTuple):
    """Of node sums, the root's level first.

    Args:
        variance: V_l, shape (L + 1,).
        acceptance: chance that a group of siblings is kept, one a level above the leaves, shape (L,).
    """

    variance: FloatArray
    acceptance: FloatArray

    @property
    def draws(self) -> float:
        """Expected leaf draws for one leaf of a tree of one number."""
        return float(np.prod(1 / self.acceptance))


@lru_cache(maxsize=256)
def level_moments(
    arities: tuple[int, ...], rates: tuple[float, ...], bound: int = 0, step: float = FINE
) -> LevelMoments:
    """Variances of node sums by level, for one number.

    Args:
        arities: children of a node at each level, the root's first.
        rates: b_0 .. b_L, the leaves' positive.
        bound: M, for integers of which a unit moves one by M; 0 for the limit of large M.
        step: of the grid, in units of 1 / (rate of the leaves).

    Returns:
        Moments in squared units of size, M^2 in squared integers.
    """
    grid = step / rates[-1]
    lattice = 1.0 / bound if bound and 1.0 / bound > grid else grid
    points = 1 << max(8, ceil(log2(2 * _REACH / rates[-1] / lattice)))
    while True:
        moments, outer = _window(arities, rates, lattice, points)
        if outer < _TAIL or points >= _WIDEST:
            return moments
        points *= 2


def _window(
    arities: Sequence[int], rates: Sequence[float], step: float, points: int
) -> tuple[LevelMoments, float]:
    """Moments on one window of grid points, and the largest mass in its outer eighth."""
    distance = np.abs(np.fft.fftfreq(points, 1 / points) * step)
    decays = [np.exp(-rate * distance) for rate in rates]
    inside, acceptance = [_normal(decays[-1])], []
    transforms: list[npt.NDArray[np.complex128]] = []
    for arity, decay in zip(reversed(arities), reversed(decays[:-1]), strict=True):
        transforms.append(np.fft.rfft(inside[-1]))
        sums = np.maximum(np.fft.irfft(transforms[-1] ** arity, points), 0.0)
        kept = sums * decay
        acceptance.append(float(kept.sum() / sums.sum()))
        inside.append(_normal(kept))
    for levels in (inside, acceptance, transforms):
        levels.reverse()
    outside = np.ones(points)
    variance, outer = [], 0.0
    square, edge = distance**2, distance > 0.875 * distance.max()
    for level, density in enumerate(inside):
        if level:
            weighted = outside * decays[level - 1]
            siblings = transforms[level - 1] ** (arities[level - 1] - 1)
            outside = np.maximum(np.fft.irfft(np.fft.rfft(weighted) * siblings, points), 0.0)
            outside /= outside.max()
        law = _normal(density * outside)
        variance.append(float(law @ square))
        outer = max(outer, float(law[edge].sum()))
    return LevelMoments(np.array(variance), np.array(acceptance)), outer


def _normal(density: FloatArray) -> FloatArray:
    total: FloatArray = density / density.sum()
    return total


def level_weights(arities: Sequence[int], variance: FloatArray) -> FloatArray:
    """mu_l from V_l, shape (L + 1,)."""
    gamma = np.array(variance, np.float64)
    below = 1
    for level in range(len(arities) - 1, -1, -1):
        arity = arities[level]
        gamma[level] = (variance[level] - arity * variance[level + 1]) / (arity * (arity - 1) * below**2)
        below *= arity
    return np.diff(gamma, prepend=0.0)


@dataclass(frozen=True, eq=False)
class LevelVariance:
    """Covariance of the first `n` leaves of a uniform tree, by level.

    Args:
        n: leaves that are kept; padding beyond them is dropped.
        arities: the root's first, their product at least n.
        shares: relative rates of the levels, the root's first, shape (L + 1,).
        weights: mu_l, the root's first, shape (L + 1,); some may be negative, the covariance is not.
    """

    n: int
    arities: tuple[int, ...]
    shares: tuple[int, ...]
    weights: FloatArray
    kind: ClassVar[str] = "levels"

    @cached_property
    def widths(self) -> list[int]:
        """Leaves below a node of each level, the root's first."""
        return [prod(self.arities[level:]) for level in range(len(self.arities) + 1)]

    def ranges(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
        """Variance of each half-open range, shape (q,)."""
        low, high = np.atleast_1d(np.asarray(lo, np.int64)), np.atleast_1d(np.asarray(hi, np.int64))
        low, high = np.broadcast_arrays(low, high)
        total = np.zeros(low.shape)
        for width, weight in zip(self.widths, self.weights, strict=True):
            first, last = -(-low // width), high // width  # whole nodes are first .. last - 1
            left = (first * width - low).astype(np.float64)
            right = (high - last * width).astype(np.float64)
            apart = (last - first) * float(width) ** 2 + left**2 + right**2
            inside = (high - low).astype(np.float64) ** 2
            total += weight * np.where(first > last, inside, apart)
        return np.where(low < high, total, 0.0)

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,)."""
        u = np.asarray(masks, np.float64)
        sums = np.pad(u, ((0, 0), (0, self.widths[0] - self.n)))
        total = self.weights[-1] * np.sum(sums**2, axis=1)
        for level in range(len(self.arities) - 1, -1, -1):
            sums = sums.reshape(len(u), -1, self.arities[level]).sum(axis=2)
            total = total + self.weights[level] * np.sum(sums**2, axis=1)
        return np.asarray(total)

    def blue(self, y: FloatArray) -> FloatArray:
        """The leaves as they were drawn."""
        return y

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line a level, the root's first: its arity, 1 for leaves, its share and its weight."""
        arity, share = np.array([*self.arities, 1], np.int64), np.array(self.shares, np.int64)
        return {"level": np.arange(len(arity)), "arity": arity, "share": share, "weight": self.weights}


def levels_measured(n: int, columns: Columns) -> set[tuple[int, int]]:
    """The half-open intervals of nodes at levels with a share, of stored levels; padding beyond n is cut."""
    model = levels_from_columns(n, columns)
    widths = [width for width, share in zip(model.widths, model.shares, strict=True) if share]
    return {(lo, min(lo + width, n)) for width in widths for lo in range(0, n, width)}


def levels_from_columns(n: int, columns: Columns) -> LevelVariance:
    """The model that `columns` were read from; lines may come in any order."""
    order = np.argsort(columns["level"].astype(np.int64))[:_DEEPEST]
    arities = tuple(columns["arity"].astype(np.int64)[order].tolist())
    shares = tuple(columns["share"].astype(np.int64)[order].tolist())
    if (
        min(arities[:-1], default=1) < 2
        or arities[-1] != 1
        or not n <= prod(arities) <= max(2 * n, _LONGEST_STREAM)
    ):
        raise InternalError(f"a tree of levels {arities} cannot describe an axis of {n} leaves")
    return LevelVariance(n, arities[:-1], shares, columns["weight"].astype(np.float64)[order])
