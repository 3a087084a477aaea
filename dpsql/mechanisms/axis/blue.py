"""Best linear unbiased estimates on a tree, in two passes.

Upwards, a node's own measurement and the sum of its children's estimates are averaged by inverse variance;
downwards, what the parent knows better is handed to the children in proportion to their variances.

**Source** docs/method/axis.md, "Least squares on a tree": the same estimate as LUE-DPTree's alpha,
beta, c, d recursion, without dividing by the budget of an inner node, which may be zero here.
"""

from __future__ import annotations

import numpy as np

from dpsql.tree import FloatArray, Tree
from dpsql.variance.tree import inner_levels, node_spread


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

    **Source** docs/method/axis.md, "Least squares on a tree".
    """
    spread, gain = node_spread(tree, weight)
    best = np.where(weight[:, None] > 0, y, 0.0)
    below = np.zeros_like(best)
    levels = inner_levels(tree)
    for parents, first in levels:
        children = slice(int(first[0]), int(first[-1] + tree.child_count[parents[-1]]))
        below[parents] = np.add.reduceat(best[children], first - first[0], axis=0)
        share = gain[parents, None]  # of the children; the rest is the node's own
        best[parents] = share * below[parents] + (1 - share) * best[parents]
    for parents, first in reversed(levels):
        children = slice(int(first[0]), int(first[-1] + tree.child_count[parents[-1]]))
        above = tree.parent[children]
        total = np.add.reduceat(spread[children], first - first[0])
        correction = (best[parents] - below[parents]) / total[:, None]
        best[children] += spread[children, None] * correction[np.searchsorted(parents, above)]
    return best
