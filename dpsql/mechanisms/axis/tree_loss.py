"""The mean variance of ranges after least squares on a tree, with its gradient: what budgets are searched by.

Over all ranges it is O(n): it needs the sum of prefix variances and one quadratic form, and both pass upwards as a few
numbers per node; the same recursion backwards gives the gradient.

Over declared ranges, each is a difference of two prefixes inside the lowest node z that holds both of its ends. With
(a, r) of a prefix as in `matrices.tree`, taken inside the children of z that the ends lie in, and Left the sum of s
over earlier siblings,

    T = (Left + a)(right end) - (Left + a)(left end)
    V = (Left + r)(right end) - (Left + 2a - r)(left end) - K_z T^2,    K_x = w_x g_x + g_x^2 K_(parent of x)

K gathers what z and the nodes above it know of the range. Prefixes are shared by all ranges that end there, so
an evaluation takes O(nodes + (borders + ranges) depth) steps, and the same steps backwards give the gradient.
The border n lies in no node: a sibling of the root, with id `size`, stands for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from dpsql.matrices.tree import node_spread
from dpsql.tree import FloatArray, InnerLevel, IntArray, Tree, Workload

Objective = Callable[[FloatArray], tuple[float, FloatArray]]
"""A point, shape (d,), to its value and gradient, shape (d,)."""


def range_loss(tree: Tree, workload: Workload | None = None, whole: float = 0.0) -> Objective:
    """The mean variance of the ranges asked and its gradient, as a function of the nodes' weights.

    Args:
        tree: the shape.
        workload: the ranges asked; None means all ranges, equally often.
        whole: weight of the total of the axis against the mean of the ranges, in [0, 1].
    """
    if workload is None:
        return partial(all_range_loss, tree, whole=whole)
    return partial(asked_loss, asked_ranges(tree, workload, whole))


class _Pass(NamedTuple):
    """Values passed upwards; each of shape (size,). Sums run over prefixes that end inside the node."""

    s: FloatArray  # variance of the node's sum from below
    first: FloatArray  # sum of a
    second: FloatArray  # sum of a^2
    prefixes: FloatArray  # sum of r
    overlap: FloatArray  # a of the mask t_j = n - j
    square: FloatArray  # r of that mask


_Sums = tuple[FloatArray, FloatArray, FloatArray]
"""Of a level: the sum of s over earlier siblings of each child, shape (c,); sums over each parent's children, a row for
each field of `_Pass`, its terms moved by the earlier siblings, shape (6, p); the parents' gains, shape (p,)."""


def all_range_loss(tree: Tree, weight: FloatArray, whole: float = 0.0) -> tuple[float, FloatArray]:
    """Mean variance over all ranges after least squares, and its gradient, in O(n).

    Args:
        tree: the shape.
        weight: 1 / variance of each node's measurement, shape (size,), positive at leaves.
        whole: weight of the total of the axis against the mean of all ranges, in [0, 1].

    Returns:
        (mean variance for unit noise, gradient with respect to the weights, shape (size,)).
    """
    n, leaves = tree.n, tree.leaves
    s = 1 / weight[leaves]
    mask = np.arange(n, 0, -1.0)
    up = np.zeros((len(_Pass._fields), tree.size))
    up[:, leaves] = s, s, s * s, s, s * mask, s * mask**2
    sums = [_upwards(weight, up, level) for level in tree.inner_levels]
    pairs = n * (n + 1) / 2
    root = _Pass(*up[:, 0])
    ranges = ((n + 1) * root.prefixes - root.square) / pairs
    loss = (1 - whole) * ranges + whole * root.s
    adjoints = np.zeros_like(up)
    down = _Pass(*adjoints)
    down.prefixes[:] = (1 - whole) * (n + 1) / pairs  # both sums have the same adjoint at every node
    down.square[:] = (whole - 1) / pairs
    down.s[0] = whole
    gradient = np.zeros(tree.size)
    for level, sums_of_level in zip(reversed(tree.inner_levels), reversed(sums), strict=True):
        gradient[level.parents] = _downwards(weight, up, adjoints, level, sums_of_level)
    total = down.s + down.first + 2 * up[0] * down.second + down.prefixes
    total = total[leaves] + down.overlap[leaves] * mask + down.square[leaves] * mask**2
    gradient[leaves] = -total * s * s
    return float(loss), gradient


def _upwards(weight: FloatArray, up: FloatArray, level: InnerLevel) -> _Sums:
    """One level of the recursion of `matrices.tree`, summed over prefixes; `up` has a row for each field of `_Pass`."""
    parents, children, offset, of, leaves = level
    s, first, second, prefixes, overlap, square = up[:, children]
    running_sum = s.cumsum() - s
    earlier_sum = running_sum - running_sum[offset][of]
    earlier = leaves * earlier_sum
    squares = leaves * earlier_sum**2 + 2 * earlier_sum * first + second
    terms = np.array((s, earlier + first, squares, earlier + prefixes, overlap, square))
    sums = np.add.reduceat(terms, offset, axis=1)
    s, first, second, prefixes, overlap, square = sums
    w = weight[parents]
    gain = 1 / (1 + w * s)
    up[:, parents] = (
        gain * s, gain * first, gain**2 * second, prefixes - w * gain * second,
        gain * overlap, square - w * gain * overlap**2,
    )  # fmt: skip
    return earlier_sum, sums, gain


def _downwards(
    weight: FloatArray, up: FloatArray, down: FloatArray, level: InnerLevel, sums: _Sums
) -> FloatArray:
    """The same level backwards: adjoints of the parents give those of the children and, returned, of their weights."""
    (x, children, offset, of, leaves), (earlier_sum, (spread, first, two, _, overlap, _), gain) = level, sums
    s, one, second, prefixes, to_overlap, square = down[:, x]
    w, gain2, overlap2 = weight[x], gain**2, overlap**2
    to_gain = s * spread + one * first + 2 * second * gain * two
    to_gain += -prefixes * w * two + to_overlap * overlap - square * w * overlap2
    adjoints = (
        s * gain - to_gain * w * gain2, one * gain, second * gain2 - prefixes * w * gain,
        gain * (to_overlap - 2 * square * w * overlap), prefixes,
    )  # fmt: skip
    to_spread, to_one, to_two, below_overlap, to_prefixes = np.array(adjoints)[:, of]
    inner = earlier_sum * leaves + up[1, children]
    through = (leaves * (to_one + to_prefixes) + 2 * to_two * inner).cumsum()
    last = np.append(offset[1:], len(through)) - 1
    down[0, children] = to_spread + through[last][of] - through
    down[1, children] = to_one + 2 * earlier_sum * to_two
    down[2, children] = to_two
    down[4, children] = below_overlap
    gradient: FloatArray = -gain * (prefixes * two + square * overlap2) - to_gain * spread * gain2
    return gradient


@dataclass(frozen=True, eq=False)
class TreeWorkload:
    """Ranges laid out on a tree. Make one with `asked_ranges`.

    A prefix has a place in a table of shape (depth, borders), by the level of the node that it is taken in.

    Args:
        tree: the shape.
        share: weight of each range, shape (q,), sum 1.
        first, last: the nodes in which its ends lie where they part, shape (q,).
        begin, end: place of the prefix of each end in that node, shape (q,).
        steps: how prefixes grow from each level to the one above, from the leaves up: borders, their nodes on the level
            above, and these nodes' children, each of shape (moved,).
        borders: number of borders.
    """

    tree: Tree
    share: FloatArray
    first: IntArray
    last: IntArray
    begin: IntArray
    end: IntArray
    steps: tuple[tuple[IntArray, IntArray, IntArray], ...]
    borders: int

    @cached_property
    def node(self) -> IntArray:
        """The node in which the ends part, shape (q,)."""
        return np.where(self.first > 0, self.tree.parent[self.first], self.tree.size)

    @cached_property
    def grown(self) -> tuple[IntArray, IntArray]:
        """Nodes and children of all steps, from the root down."""
        none = np.zeros(0, np.int64)
        down = self.steps[::-1]
        nodes, children = ([step[i] for step in down] for i in (1, 2))
        return np.concatenate([none, *nodes]), np.concatenate([none, *children])


class _Tables(NamedTuple):
    """Values kept for the backward pass; also the adjoints of the same."""

    s: FloatArray  # variance of each node from below, shape (size,)
    g: FloatArray  # gain of each node, shape (size,)
    earlier_sum: FloatArray  # Left, shape (size + 1,)
    reduction: FloatArray  # K, shape (size + 1,)
    a: FloatArray  # of the prefix of path[level] that ends at each border, shape (depth, borders)
    r: FloatArray


def asked_ranges(tree: Tree, workload: Workload, whole: float = 0.0) -> TreeWorkload:
    """Find where the two ends of each range part, and which prefixes that takes.

    Args:
        tree: the shape.
        workload: the ranges asked, inside the axis, with weights of positive sum.
        whole: the part of the questions that asks for the total instead, in [0, 1].
    """
    share = np.asarray(workload.weight, np.float64) / np.sum(workload.weight)
    lo, hi = np.append(workload.lo, 0), np.append(workload.hi, tree.n)
    border, where = np.unique(np.concatenate([lo, hi]), return_inverse=True)
    path = _paths(tree, border)
    left, right = where[: len(lo)], where[len(lo) :]
    meet = np.argmax(path[:, left] != path[:, right], axis=0)
    top = np.full(len(border), tree.depth)
    np.minimum.at(top, where, np.append(meet, meet))
    steps = []
    for level in range(tree.depth - 1, 0, -1):
        node, child = path[level - 1], path[level]
        grows = (node != child) & (top < level) & (border > np.append(tree.lo, tree.n)[node])  # else empty
        steps.append((np.flatnonzero(grows), node[grows], child[grows]))
    return TreeWorkload(
        tree, np.append((1 - whole) * share, whole), path[meet, left], path[meet, right],
        meet * len(border) + left, meet * len(border) + right, tuple(steps), len(border),
    )  # fmt: skip


def _paths(tree: Tree, border: IntArray) -> IntArray:
    """The node of each level that holds the leaf after each border, or that leaf; shape (depth, borders)."""
    path = np.full((tree.depth, len(border)), tree.size)
    inside = border < tree.n
    node = tree.leaves[border[inside]]
    for level in range(tree.depth - 1, -1, -1):
        node = np.where(tree.level[node] > level, tree.parent[node], node)
        path[level, inside] = node
    return path


def asked_loss(asked: TreeWorkload, weight: FloatArray) -> tuple[float, FloatArray]:
    """Mean variance over the ranges after least squares, and its gradient.

    Args:
        asked: the ranges on their tree.
        weight: 1 / variance of each node's measurement, shape (size,), positive at leaves.

    Returns:
        (mean variance for unit noise, gradient with respect to the weights, shape (size,)).
    """
    up, share = _asked_upwards(asked, weight), asked.share
    a, r = up.a.ravel(), up.r.ravel()
    total = up.earlier_sum[asked.last] + a[asked.end] - up.earlier_sum[asked.first] - a[asked.begin]
    variance = up.earlier_sum[asked.last] + r[asked.end]
    variance -= up.earlier_sum[asked.first] + 2 * a[asked.begin] - r[asked.begin]
    weighted_total = up.reduction[asked.node] * total
    variance -= weighted_total * total
    to_total = -2 * share * weighted_total
    to_a = _sum(asked.end, to_total, a.size) - _sum(asked.begin, to_total + 2 * share, a.size)
    to_r = _sum(asked.end, share, a.size) + _sum(asked.begin, share, a.size)
    to_before = share + to_total
    size = len(up.earlier_sum)
    down = _Tables(
        np.zeros_like(up.s), np.zeros_like(up.g),
        _sum(asked.last, to_before, size) - _sum(asked.first, to_before, size),
        _sum(asked.node, -share * total**2, size), to_a.reshape(up.a.shape), to_r.reshape(up.r.shape),
    )  # fmt: skip
    return float((share * variance).sum()), _asked_downwards(asked, weight, up, down)


def _sum(where: IntArray, value: FloatArray, size: int) -> FloatArray:
    """Values added up by where they belong, shape (size,)."""
    return np.bincount(where, value, size).astype(np.float64, copy=False)


def _asked_upwards(ranges: TreeWorkload, weight: FloatArray) -> _Tables:
    """s, g, Left and K of all nodes; (a, r) of the prefixes, from the leaves up."""
    tree = ranges.tree
    s, g = node_spread(tree, weight)
    earlier_sum = np.append(np.cumsum(s) - s, s[0])
    earlier_sum[1:-1] -= earlier_sum[tree.first_child[tree.parent[1:]]]
    reduction = np.append(weight * g, 0.0)
    for part in tree.level_slices[1:]:
        reduction[part] += g[part] ** 2 * reduction[tree.parent[part]]
    a, r = np.zeros((tree.depth, ranges.borders)), np.zeros((tree.depth, ranges.borders))
    for level, (border, x, child) in zip(range(tree.depth - 1, 0, -1), ranges.steps, strict=True):
        total = earlier_sum[child] + a[level, border]
        part = g[x] * total
        a[level - 1, border] = part
        r[level - 1, border] = earlier_sum[child] + r[level, border] - weight[x] * part * total
    return _Tables(s, g, earlier_sum, reduction, a, r)


def _asked_downwards(ranges: TreeWorkload, weight: FloatArray, up: _Tables, down: _Tables) -> FloatArray:
    """The gradient, from the adjoints of what the ranges read."""
    size = ranges.tree.size
    gains, gradients, befores = ([np.zeros(0)] for _ in range(3))
    for level, (border, x, child) in enumerate(reversed(ranges.steps), start=1):
        to_a, to_r = down.a[level - 1, border], down.r[level - 1, border]
        total, w, g = up.earlier_sum[child] + up.a[level, border], weight[x], up.g[x]
        square = to_r * total * total
        to_total = g * (to_a - 2 * w * to_r * total)
        gains.append(to_a * total - w * square)
        gradients.append(-g * square)
        befores.append(to_total + to_r)
        down.a[level, border] += to_total
        down.r[level, border] += to_r
    node, child = ranges.grown
    down.earlier_sum[:] += _sum(child, np.concatenate(befores), size + 1)
    down.g[:] = _sum(node, np.concatenate(gains), size)
    gradient = _sum(node, np.concatenate(gradients), size)
    return _through_nodes(ranges, weight, up, down, gradient)


def _through_nodes(
    ranges: TreeWorkload, weight: FloatArray, up: _Tables, down: _Tables, gradient: FloatArray
) -> FloatArray:
    """The rest of the gradient: K reads the nodes above; Left, g and s read those below."""
    tree, count = ranges.tree, ranges.tree.child_count
    for parents, children, offset, *_ in tree.inner_levels:
        down.reduction[parents] += np.add.reduceat(down.reduction[children] * up.g[children] ** 2, offset)
    above = np.append(up.reduction[-1], up.reduction[tree.parent[1:]])
    gradient += down.reduction[:-1] * up.g
    down.g[:] += down.reduction[:-1] * (weight + 2 * up.g * above)
    through = np.cumsum(down.earlier_sum[:-1])
    last = (tree.first_child + count - 1)[tree.parent[1:]]
    down.s[:] = np.append(down.earlier_sum[-1], through[last] - through[1:])
    for parents, children, offset, *_ in reversed(tree.inner_levels):
        spread, g = np.add.reduceat(up.s[children], offset), up.g[parents]
        to_gain = (down.g[parents] + down.s[parents] * spread) * g**2
        gradient[parents] -= to_gain * spread
        down.s[children] += np.repeat(down.s[parents] * g - to_gain * weight[parents], count[parents])
    gradient[tree.leaves] -= down.s[tree.leaves] * up.s[tree.leaves] ** 2
    return gradient
