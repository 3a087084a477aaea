"""Non-negative estimates of counts near the unbiased ones, consistent at every node of a tree.

Downwards from the root, the children of every node are projected onto the non-negative numbers that add up to it.

**Privacy**: post-processing of estimates.
**Source**: docs/method/views.md, "The non-negative step".
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dpsql.errors import InterfaceError
from dpsql.tree import FloatArray, IntArray, Tree, levels_tree, tree_from_arrays

WIDEST = 20  # children per node; the least error lies between 8 and 20 at every size from 50 to 65,536 cells


@lru_cache(maxsize=64)
def signal_tree(n: int) -> Tree:
    """The k-ary tree over n cells with the least height for which k stays within WIDEST.

    >>> [signal_tree(n).depth for n in (20, 365, 4096)]
    [2, 3, 4]
    """
    return levels_tree(n, WIDEST)


def project_groups(value: FloatArray, group: IntArray, total: FloatArray) -> FloatArray:
    """Project each group of values onto {z >= 0, sum z = total of the group}, all groups at once.

    The nearest point is max(value - theta, 0) with one threshold theta per group. With the values sorted
    downwards, theta is read off the longest prefix whose smallest value stays above it.

    Args:
        value: estimates, shape (m,).
        group: group of each value, sorted upwards from 0 without gaps, shape (m,).
        total: what each group must add up to, not negative, shape (groups,).

    Returns:
        The nearest non-negative values with these totals, shape (m,).

    **Privacy** Post-processing; reads no raw data.

    **Source** Held, Wolfe and Crowder (1974), projection onto the simplex.

    >>> project_groups(np.array([3.0, -1.0, 2.0]), np.zeros(3, np.int64), np.array([4.0])).tolist()
    [2.5, 0.0, 1.5]
    """
    order = np.lexsort((-value, group))
    ranked = value[order]
    size = np.bincount(group, minlength=len(total))
    first = np.cumsum(size) - size
    centred = ranked - ranked[first][group]
    running = np.cumsum(centred)
    running -= (running[first] - centred[first])[group]
    rank = np.arange(len(value)) - first[group] + 1.0
    above = centred > (running - total[group]) / rank
    # The running sum crosses groups and loses digits; it only says who is above. The threshold itself is
    # summed afresh per group, so children add up to their parent to the last bit or two.
    count_above = np.bincount(group, weights=above, minlength=len(total))
    sum_above = np.bincount(group, weights=centred * above, minlength=len(total))
    threshold = (sum_above - total) / np.maximum(count_above, 1.0)
    out = np.empty_like(value)
    out[order] = np.maximum(centred - threshold[group], 0.0)
    return out


def nonnegative(tree: Tree, leaf: FloatArray) -> FloatArray:
    """Non-negative leaf values near `leaf`, consistent at every node of the tree by construction.

    Args:
        tree: any tree over the n leaves.
        leaf: unbiased leaf estimates (their sums are the estimates of the inner nodes), shape (n,).

    Returns:
        Leaf values >= 0, shape (n,); their total is max(0, sum of leaf).

    Raises:
        InterfaceError: if `leaf` is not one finite number per leaf.

    **Privacy** Post-processing; reads no raw data. Biased: never take a standard error from it.

    **Source** docs/method/views.md, "The non-negative step". The projection per parent replaces
    "zero the subtree" of Hay et al. (2010), which does not keep sums.

    >>> from dpsql.tree import kary_tree
    >>> nonnegative(kary_tree(4, 2), np.array([5.0, -1.0, 2.0, 1.0])).tolist()
    [4.0, 0.0, 2.0, 1.0]
    """
    leaf = np.asarray(leaf, np.float64)
    if leaf.shape != (tree.n,) or not np.isfinite(leaf).all():
        raise InterfaceError(f"need {tree.n} finite leaf values", hint="pass one estimate per leaf")
    node = sums_below(tree, leaf)
    node[0] = max(node[0], 0.0)
    for level in tree.level_slices[1:]:
        parent, group = np.unique(tree.parent[level], return_inverse=True)
        node[level] = project_groups(node[level], group.astype(np.int64), node[parent])
    return node[tree.leaves]


def sums_below(tree: Tree, leaf: FloatArray) -> FloatArray:
    """Sum of the leaves under every node, added bottom-up, shape (size,)."""
    node = np.zeros(tree.size)
    node[tree.leaves] = leaf
    for level in reversed(tree.level_slices[1:]):
        np.add.at(node, tree.parent[level], node[level])
    return node


def product_tree(outer: Tree, inner: Tree) -> Tree:
    """The tree over the cells of two axes in row-major order: `outer` first, then `inner` under each row.

    For questions about cells or whole rows. Rectangles cut through many rows and add up the bias of each:
    on 256 x 256 histograms they err 4 to 100 times as much as with the unbiased estimate.

    Args:
        outer: tree over the n1 leaves of the first axis.
        inner: tree over the n2 leaves of the second axis.

    Returns:
        A tree over n1 * n2 cells; apply `nonnegative` to the flattened array of estimates.
    """
    rows, width = outer.n, inner.n
    below = inner.size - 1  # the inner root is the outer leaf itself
    row = np.repeat(np.arange(rows), below)
    parent = np.tile(inner.parent[1:], rows)
    inner_id = outer.size + row * below + parent - 1
    lo = np.concatenate([outer.lo * width, np.tile(inner.lo[1:], rows) + row * width])
    hi = np.concatenate([outer.hi * width, np.tile(inner.hi[1:], rows) + row * width])
    up = np.concatenate([outer.parent, np.where(parent == 0, outer.leaves[row], inner_id)])
    return tree_from_arrays(lo, hi, up)
