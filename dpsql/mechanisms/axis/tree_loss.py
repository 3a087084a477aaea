"""The mean variance of ranges after least squares on a tree, with its gradient: what budgets are searched by.

Over all ranges it is O(n): it needs the sum of prefix variances and one quadratic form, and both pass upwards as a few
numbers per node; the same recursion backwards gives the gradient.

Over declared ranges, each is a difference of two prefixes inside the lowest node z that holds both of its ends. With
(a, r) of a prefix as in `variance.tree`, taken inside the children of z that the ends lie in, and Left the sum of s
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

from dpsql.tree import FloatArray, IntArray, Tree, Workload
from dpsql.variance.tree import inner_levels, node_spread

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
    """What passes upwards; each of shape (size,). Sums run over prefixes that end inside the node."""

    s: FloatArray  # variance of the node's sum from below
    first: FloatArray  # sum of a
    second: FloatArray  # sum of a^2
    prefixes: FloatArray  # sum of r
    overlap: FloatArray  # a of the mask t_j = n - j
    square: FloatArray  # r of that mask


class _Family(NamedTuple):
    """The inner nodes of a level with their children, and sums over the children."""

    parents: IntArray
    children: slice
    first: IntArray  # offset of each parent's first child
    of: IntArray  # index of each child's parent
    earlier_sum: FloatArray  # sum of s over earlier siblings
    spread: FloatArray  # S, sum of s
    first_sum: FloatArray  # sum of (leaves left + first)
    second_sum: FloatArray  # sum of (leaves left^2 + 2 left first + second)
    overlap: FloatArray
    gain: FloatArray


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
    up = _Pass(*(np.zeros(tree.size) for _ in _Pass._fields))
    for field, value in zip(up, (s, s, s * s, s, s * mask, s * mask**2), strict=True):
        field[leaves] = value
    families = [_upwards(tree, weight, up, parents, first) for parents, first in inner_levels(tree)]
    pairs = n * (n + 1) / 2
    ranges = ((n + 1) * up.prefixes[0] - up.square[0]) / pairs
    loss = (1 - whole) * ranges + whole * up.s[0]
    down = _Pass(*(np.zeros(tree.size) for _ in _Pass._fields))
    down.prefixes[:] = (1 - whole) * (n + 1) / pairs  # both sums have the same adjoint at every node
    down.square[:] = (whole - 1) / pairs
    down.s[0] = whole
    gradient = np.zeros(tree.size)
    for family in reversed(families):
        _downwards(tree, weight, up, down, gradient, family)
    total = down.s + down.first + 2 * up.s * down.second + down.prefixes
    total = total[leaves] + down.overlap[leaves] * mask + down.square[leaves] * mask**2
    gradient[leaves] = -total * s * s
    return float(loss), gradient


def _upwards(tree: Tree, weight: FloatArray, up: _Pass, parents: IntArray, first: IntArray) -> _Family:
    """One level of the recursion of `variance.tree`, summed over prefixes."""
    count = tree.child_count[parents]
    children = slice(int(first[0]), int(first[-1] + count[-1]))
    offset, of = first - first[0], np.repeat(np.arange(len(parents)), count)
    leaves = (tree.hi - tree.lo)[children]
    running_sum = np.cumsum(up.s[children]) - up.s[children]
    earlier_sum = running_sum - running_sum[offset][of]

    def add(value: FloatArray) -> FloatArray:
        total: FloatArray = np.add.reduceat(value, offset)
        return total

    spread, overlap = add(up.s[children]), add(up.overlap[children])
    first_sum = add(leaves * earlier_sum + up.first[children])
    second_sum = add(leaves * earlier_sum**2 + 2 * earlier_sum * up.first[children] + up.second[children])
    w = weight[parents]
    gain = 1 / (1 + w * spread)
    up.s[parents] = gain * spread
    up.first[parents] = gain * first_sum
    up.second[parents] = gain**2 * second_sum
    up.prefixes[parents] = add(leaves * earlier_sum + up.prefixes[children]) - w * gain * second_sum
    up.overlap[parents] = gain * overlap
    up.square[parents] = add(up.square[children]) - w * gain * overlap**2
    return _Family(parents, children, offset, of, earlier_sum, spread, first_sum, second_sum, overlap, gain)


def _downwards(
    tree: Tree, weight: FloatArray, up: _Pass, down: _Pass, gradient: FloatArray, family: _Family
) -> None:
    """The same level backwards: adjoints of the parents give those of the children and of the weights."""
    x, children, of, gain = family.parents, family.children, family.of, family.gain
    w, two, overlap = weight[x], family.second_sum, family.overlap
    to_gain = down.s[x] * family.spread + down.first[x] * family.first_sum + 2 * down.second[x] * gain * two
    to_gain += -down.prefixes[x] * w * two + down.overlap[x] * overlap - down.square[x] * w * overlap**2
    gradient[x] = -gain * (down.prefixes[x] * two + down.square[x] * overlap**2)
    gradient[x] -= to_gain * family.spread * gain**2
    to_spread = down.s[x] * gain - to_gain * w * gain**2
    to_two = down.second[x] * gain**2 - down.prefixes[x] * w * gain
    to_one = down.first[x] * gain
    leaves = (tree.hi - tree.lo)[children]
    inner = family.earlier_sum * leaves + up.first[children]
    to_left = leaves * (to_one[of] + down.prefixes[x][of]) + 2 * to_two[of] * inner
    through = np.cumsum(to_left)
    last = np.append(family.first[1:], len(through)) - 1
    down.s[children] = to_spread[of] + through[last][of] - through
    down.first[children] = to_one[of] + 2 * family.earlier_sum * to_two[of]
    down.second[children] = to_two[of]
    down.overlap[children] = (gain * (down.overlap[x] - 2 * down.square[x] * w * overlap))[of]


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

    @cached_property
    def families(self) -> list[tuple[IntArray, slice, IntArray]]:
        """(inner nodes, their children, offsets of their first children) of each level, from the bottom up."""
        count = self.tree.child_count
        return [
            (parents, slice(int(first[0]), int(first[-1] + count[parents[-1]])), first - first[0])
            for parents, first in inner_levels(self.tree)
        ]


class _Tables(NamedTuple):
    """What an evaluation keeps for the way back; also the adjoints of the same."""

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
    return float(share @ variance), _asked_downwards(asked, weight, up, down)


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
    for parents, children, offset in ranges.families:
        down.reduction[parents] += np.add.reduceat(down.reduction[children] * up.g[children] ** 2, offset)
    above = np.append(up.reduction[-1], up.reduction[tree.parent[1:]])
    gradient += down.reduction[:-1] * up.g
    down.g[:] += down.reduction[:-1] * (weight + 2 * up.g * above)
    through = np.cumsum(down.earlier_sum[:-1])
    last = (tree.first_child + count - 1)[tree.parent[1:]]
    down.s[:] = np.append(down.earlier_sum[-1], through[last] - through[1:])
    for parents, children, offset in reversed(ranges.families):
        spread, g = np.add.reduceat(up.s[children], offset), up.g[parents]
        to_gain = (down.g[parents] + down.s[parents] * spread) * g**2
        gradient[parents] -= to_gain * spread
        down.s[children] += np.repeat(down.s[parents] * g - to_gain * weight[parents], count[parents])
    gradient[tree.leaves] -= down.s[tree.leaves] * up.s[tree.leaves] ** 2
    return gradient
