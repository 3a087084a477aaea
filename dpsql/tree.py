"""Interval trees over the leaves of an axis, as flat breadth-first arrays.

A tree says which intervals a mechanism measures and which intervals the engine looks up. Node 0 is the
root [0, n); every level follows the one above it, from left to right, so the children of a node are
neighbours and a pass over the tree is a loop over levels. Intervals are half-open and 0-based.

    here        there (LUE-DPTree)    unit
    coverage    Pro(x), p_x           probability that a random range uses the node
    cover       Node(Q)               the nodes that add up to a range
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, repeat
from typing import NamedTuple, NewType

import numpy as np
import numpy.typing as npt

from dpsql.errors import InterfaceError

IntArray = npt.NDArray[np.int64]

Exact = NewType("Exact", IntArray)
"""Integers computed from raw rows. They reach noise in `dpsql.mechanisms.distribution` and are stored nowhere else."""

Noisy = NewType("Noisy", IntArray)
"""Integers with noise. `dpsql.mechanisms.distribution` makes them; only they are stored or estimated from."""
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


class Workload(NamedTuple):
    """Ranges that will be asked, with their weights; public, never read from private rows.

    Args:
        lo: first leaf of each range, shape (q,).
        hi: one past the last leaf, shape (q,), lo < hi.
        weight: relative frequency, shape (q,), not negative.
    """

    lo: IntArray
    hi: IntArray
    weight: FloatArray


def single_leaves(n: int) -> Workload:
    """Every leaf of an axis by itself, equally often."""
    leaf = np.arange(n)
    return Workload(leaf, leaf + 1, np.full(n, 1 / n))


class InnerLevel(NamedTuple):
    """The inner nodes of a level and their children, which are neighbours.

    Args:
        parents: node ids, shape (p,).
        children: the node ids of all their children.
        first: place of each parent's first child among the children, shape (p,).
        of: place of each child's parent among the parents, shape (c,).
        leaves: below each child, shape (c,).
    """

    parents: IntArray
    children: slice
    first: IntArray
    of: IntArray
    leaves: IntArray


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree of nested intervals. Make one with `kary_tree` or `tree_from_arrays`, which check it.

    Args:
        lo: first leaf of each node, shape (size,).
        hi: one past the last leaf of each node, shape (size,).
        parent: node id of the parent, -1 at the root, shape (size,).
        level: depth of each node, 0 at the root, shape (size,).
    """

    lo: IntArray
    hi: IntArray
    parent: IntArray
    level: IntArray

    @property
    def n(self) -> int:
        return int(self.hi[0])

    @property
    def size(self) -> int:
        return len(self.lo)

    @property
    def depth(self) -> int:
        return int(self.level[-1]) + 1

    @cached_property
    def level_slices(self) -> list[slice]:
        """The node ids of each level, from the root down."""
        ends = np.searchsorted(self.level, np.arange(self.depth + 1))
        return [slice(int(a), int(b)) for a, b in pairwise(ends)]

    def remaining(self, keeps: FloatArray) -> FloatArray:
        """Share of the whole that a path has left at each node, where nodes keep a share of what reaches them."""
        remaining = np.ones(self.size)
        for nodes in self.level_slices[1:]:
            above = self.parent[nodes]
            remaining[nodes] = remaining[above] * (1 - keeps[above])
        return remaining

    @cached_property
    def child_count(self) -> IntArray:
        """Number of children of each node, shape (size,)."""
        return np.bincount(self.parent[1:], minlength=self.size).astype(np.int64)

    @cached_property
    def first_child(self) -> IntArray:
        """Id of the leftmost child of each node, shape (size,); meaningless for leaves."""
        return 1 + np.cumsum(self.child_count) - self.child_count

    @cached_property
    def is_leaf(self) -> npt.NDArray[np.bool_]:
        """True for nodes of one leaf, shape (size,)."""
        leaf: npt.NDArray[np.bool_] = self.child_count == 0
        return leaf

    @cached_property
    def leaves(self) -> IntArray:
        """Node id of each leaf, shape (n,)."""
        ids = np.flatnonzero(self.is_leaf)
        out = np.empty(self.n, np.int64)
        out[self.lo[ids]] = ids
        return out

    @cached_property
    def inner_levels(self) -> list[InnerLevel]:
        """Each level that has inner nodes, from the bottom up."""
        levels = [np.arange(level.start, level.stop) for level in reversed(self.level_slices)]
        inner = [level[self.child_count[level] > 0] for level in levels]
        return [self._inner_level(parents) for parents in inner if len(parents)]

    def _inner_level(self, parents: IntArray) -> InnerLevel:
        count, first = self.child_count[parents], self.first_child[parents]
        children = slice(int(first[0]), int(first[-1] + count[-1]))
        of, leaves = np.repeat(np.arange(len(parents)), count), self.hi[children] - self.lo[children]
        return InnerLevel(parents, children, first - first[0], of, leaves)


def kary_tree(n: int, k: int) -> Tree:
    """The tree that splits every node into k parts whose lengths differ by at most one, longer parts first.

    Longer parts come first because SC's height argument needs it: with the shorter first the leftmost
    path is not the longest, and a sensitivity read off that path is too small.

    Args:
        n: number of leaves, at least 1.
        k: children per node, at least 2; a node of fewer than k leaves gets one child per leaf.

    Returns:
        The tree; levels may differ by one between leaves.

    Raises:
        InterfaceError: if n < 1 or k < 2.

    **Source** docs/method/views.md, "Interval trees".

    >>> kary_tree(5, 2).hi.tolist()
    [5, 3, 5, 2, 3, 4, 5, 1, 2]
    """
    if n < 1 or k < 2:
        raise InterfaceError(f"no tree has {n} leaves and {k} children per node", hint="n >= 1 and k >= 2")
    return grow(n, lambda lo, _: np.full(len(lo), k, np.int64))


def levels_tree(n: int, widest: int) -> Tree:
    """The k-ary tree of least k among those that have the fewest levels with at most `widest` children a node.

    Args:
        n: number of leaves, at least 1.
        widest: most children of a node, at least 2.

    **Source** docs/method/views.md, "Interval trees".

    >>> [levels_tree(n, 20).depth for n in (20, 365, 4096)], len(levels_tree(100, 8).lo)
    ([2, 3, 4], 131)
    """
    height, k = 1, n
    while k > widest:
        height += 1
        k = next(k for k in range(2, n) if k**height >= n)
    return kary_tree(n, max(k, 2))


def grow(n: int, arity: Callable[[IntArray, IntArray], IntArray]) -> Tree:
    """The tree whose nodes are split evenly into as many parts as `arity` says, a level at a time.

    Args:
        n: number of leaves.
        arity: starts and stops of nodes of two leaves or more -> parts of each, at least 2.
    """
    lo, hi = np.zeros(1, np.int64), np.full(1, n, np.int64)
    los, his, parents, first_id = [lo], [hi], [np.full(1, -1, np.int64)], 0
    while np.any(hi - lo > 1):
        inner = np.flatnonzero(hi - lo > 1)
        parent_id, first_id = first_id + inner, first_id + len(lo)
        lo, hi, interval = split_evenly(lo[inner], hi[inner], arity(lo[inner], hi[inner]))
        los.append(lo)
        his.append(hi)
        parents.append(parent_id[interval])
    level = np.repeat(np.arange(len(los)), [len(level_lo) for level_lo in los])
    return Tree(np.concatenate(los), np.concatenate(his), np.concatenate(parents), level)


def split_evenly(lo: IntArray, hi: IntArray, k: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Cut each interval into min(k, length) parts whose lengths differ by at most one, longer parts first.

    Args:
        lo: starts, shape (m,).
        hi: stops, shape (m,).
        k: parts wanted, shape (m,).

    Returns:
        Starts and stops of the parts, in order, and which interval each is of.

    >>> [a.tolist() for a in split_evenly(np.array([0]), np.array([5]), np.array([3]))]
    [[0, 2, 4], [2, 4, 5], [0, 0, 0]]
    """
    counts = np.minimum(k, hi - lo)
    interval = np.repeat(np.arange(len(lo)), counts)
    rank = np.arange(len(interval)) - np.repeat(np.cumsum(counts) - counts, counts)
    short, longer = np.divmod(hi - lo, counts)
    start = lo[interval] + rank * short[interval] + np.minimum(rank, longer[interval])
    stop = start + short[interval] + (rank < longer[interval])
    return start, stop, interval


def tree_from_arrays(lo: npt.ArrayLike, hi: npt.ArrayLike, parent: npt.ArrayLike) -> Tree:
    """A tree of any shape; nodes may come in any order that has parents before children.

    Args:
        lo: first leaf of each node, shape (size,); node 0 is the root.
        hi: one past the last leaf, shape (size,).
        parent: index of the parent in the same arrays, -1 for the root.

    Returns:
        The same tree in breadth-first order.

    Raises:
        InterfaceError: if the children of a node do not cut it exactly, or a node has one child.

    >>> tree_from_arrays([0, 0, 1], [2, 1, 2], [-1, 0, 0]).leaves.tolist()
    [1, 2]
    """
    lo, hi, parent = (np.asarray(array, np.int64) for array in (lo, hi, parent))
    if not len(lo) or parent[0] != -1 or np.any(parent[1:] < 0) or np.any(parent >= np.arange(len(lo))):
        raise InterfaceError("a tree needs one root, first, and parents before children")
    tree, _ = breadth_first(lo, hi, parent)
    _check(tree)
    return tree


def breadth_first(lo: IntArray, hi: IntArray, parent: IntArray) -> tuple[Tree, IntArray]:
    """Nested intervals below one root in breadth-first order, and the id that each gets.

    Children may leave gaps in their parent: such a tree splits a budget and adds up along its paths, no more.

    >>> breadth_first(np.array([2, 0, 0]), np.array([3, 9, 1]), np.array([1, -1, 1]))[1].tolist()
    [2, 0, 1]
    """
    level, above = np.zeros(len(lo), np.int64), parent
    while np.any(above >= 0):
        level += above >= 0
        above = np.where(above >= 0, parent[above], -1)
    order = np.lexsort((lo, level))
    new_id = np.empty(len(lo), np.int64)
    new_id[order] = np.arange(len(lo))
    parents = np.where(parent[order] < 0, -1, new_id[parent[order]])
    return Tree(lo[order], hi[order], parents, level[order]), new_id


def stored_tree(lo: npt.ArrayLike, hi: npt.ArrayLike, parent: npt.ArrayLike, level: npt.ArrayLike) -> Tree:
    """The tree whose four arrays were stored as they are, in breadth-first order.

    Its time is linear whatever the arrays hold: a file may say that a million nodes hang in one chain.

    Raises:
        InterfaceError: they are those of no tree.

    >>> stored_tree([0, 0, 1], [2, 1, 2], [-1, 0, 0], [0, 1, 1]).leaves.tolist()
    [1, 2]
    """
    tree = Tree(*(np.asarray(array, np.int64) for array in (lo, hi, parent, level)))
    above = tree.parent[1:]
    if not tree.size or tree.parent[0] != -1 or np.any(above < 0) or np.any(above >= np.arange(1, tree.size)):
        raise InterfaceError("a tree needs one root, first, and parents before children")
    if (
        tree.level[0] != 0
        or np.any(tree.level[1:] != tree.level[above] + 1)
        or np.any(np.diff(tree.level) < 0)
    ):
        raise InterfaceError("a tree is stored level by level")
    _check(tree)
    return tree


def _check(tree: Tree) -> None:
    """Children must cut their parent exactly, in at least two parts; leaves have length one."""
    length = tree.hi - tree.lo
    inner = ~tree.is_leaf
    first = tree.first_child[inner]
    last = first + tree.child_count[inner] - 1
    child = np.arange(1, tree.size)
    follows = np.ones(tree.size, bool)
    follows[child] = tree.lo[child] == tree.hi[child - 1]
    follows[first] = True
    good = (
        tree.lo[0] == 0
        and bool(np.all(length >= 1))
        and bool(np.all(length[tree.is_leaf] == 1))
        and bool(np.all(tree.child_count[inner] >= 2))
        and bool(np.all(tree.lo[first] == tree.lo[inner]))
        and bool(np.all(tree.hi[last] == tree.hi[inner]))
        and bool(np.all(np.diff(tree.parent[1:]) >= 0))
        and bool(np.all(follows))
    )
    if not good:
        raise InterfaceError("the children of a node must cut its interval exactly, in two or more parts")


def cover(tree: Tree, lo: npt.ArrayLike, hi: npt.ArrayLike) -> tuple[IntArray, IntArray]:
    """The least set of nodes that adds up to each range, for many ranges at once.

    Args:
        tree: the tree.
        lo: first leaf of each range, shape (q,).
        hi: one past the last leaf, shape (q,); lo == hi gives no node.

    Returns:
        (range index, node id), both of shape (total number of nodes used,).

    **Source** docs/method/views.md, "Interval trees".

    >>> cover(kary_tree(4, 2), [0], [3])[1].tolist()
    [1, 5]
    """
    lo, hi = np.asarray(lo, np.int64), np.asarray(hi, np.int64)
    if np.any(lo < 0) or np.any(hi > tree.n) or np.any(lo > hi):
        raise InterfaceError(f"ranges must lie in [0, {tree.n}) with lo <= hi")
    if lo.size <= FEW:
        return _cover_few(tree, np.atleast_1d(lo).tolist(), np.atleast_1d(hi).tolist())
    range_index = np.flatnonzero(lo < hi)
    node = np.zeros(len(range_index), np.int64)
    covered: list[tuple[IntArray, IntArray]] = []
    while len(range_index):
        overlaps = (tree.lo[node] < hi[range_index]) & (tree.hi[node] > lo[range_index])
        range_index, node = range_index[overlaps], node[overlaps]
        inside = (tree.lo[node] >= lo[range_index]) & (tree.hi[node] <= hi[range_index])
        covered.append((range_index[inside], node[inside]))
        range_index, node = range_index[~inside], node[~inside]
        count = tree.child_count[node]
        rank = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        range_index, node = np.repeat(range_index, count), np.repeat(tree.first_child[node], count) + rank
    if not covered:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([a for a, _ in covered]), np.concatenate([b for _, b in covered])


FEW = 8
"""Ranges that are faster one by one: a step of numpy's costs as much as ten of Python's."""


def _cover_few(tree: Tree, lo: list[int], hi: list[int]) -> tuple[IntArray, IntArray]:
    """`cover` without numpy, in the same order."""
    front = [
        (range_index, 0, 0, tree.n) for range_index in range(len(lo)) if lo[range_index] < hi[range_index]
    ]
    covered: list[tuple[int, int]] = []
    while front:
        below: list[tuple[int, int, int, int]] = []
        for range_index, node, start, stop in front:
            if start >= lo[range_index] and stop <= hi[range_index]:
                covered.append((range_index, node))
            elif start < hi[range_index] and stop > lo[range_index]:
                first = int(tree.first_child[node])
                last = first + int(tree.child_count[node])
                ends = tree.lo[first:last].tolist(), tree.hi[first:last].tolist()
                below += zip(repeat(range_index), range(first, last), *ends)
        front = below
    return np.array([a for a, _ in covered], np.int64), np.array([b for _, b in covered], np.int64)


def coverage(tree: Tree, workload: Workload | None = None, whole: float = 0.0) -> FloatArray:
    """Probability that a random range uses each node (CNCP).

    Args:
        tree: the tree.
        workload: the ranges asked; None means all n(n+1)/2 ranges, equally often.
        whole: the part of the questions that asks for the total instead, in [0, 1].

    Returns:
        Probabilities, shape (size,); they do not sum to 1, a range uses several nodes.

    **Source** docs/method/views.md, "Coverage"; there 1-based and inclusive.

    >>> coverage(kary_tree(3, 3)).round(4).tolist()
    [0.1667, 0.3333, 0.5, 0.3333]
    """
    if workload is not None:
        range_index, node = cover(tree, workload.lo, workload.hi)
        share = np.asarray(workload.weight, np.float64) / np.sum(workload.weight)
        use = np.bincount(node, share[range_index], tree.size).astype(np.float64)
    else:
        n = tree.n
        inside = (tree.lo + 1) * (n - tree.hi + 1)  # ranges that contain the node; int64 holds n up to 2^31
        above = inside[tree.parent]
        above[0] = 0
        use = (inside - above) / (n * (n + 1) / 2)
    use = (1 - whole) * use
    use[0] += whole
    return use


BOXES = 256


def random_boxes(shape: Sequence[int]) -> list[FloatArray]:
    """Masks of random ranges on every axis, shape (256, n) each; the same for the same shape."""
    rng = np.random.default_rng(0)
    masks = []
    for n in shape:
        ends = np.sort(rng.integers(0, n + 1, (BOXES, 2)), axis=1)
        ends[ends[:, 0] == ends[:, 1]] = 0, n
        masks.append(((np.arange(n) >= ends[:, :1]) & (np.arange(n) < ends[:, 1:])).astype(np.float64))
    return masks
