"""A stream as an ordinary axis: estimates of its batches from what was published, and their variance model.

Published numbers are taken in the order of publication (batch by batch, finest level first), as the segments hold
them; further axes may follow the first and must already hold best estimates inside each time node. So a view over
time and other attributes is a Kronecker product like any other: this axis's model times the others'.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.laminar import FloatArray, IntArray
from dpsql.mechanisms.stream import toeplitz
from dpsql.mechanisms.stream.choose import StreamStrategy, noise_nodes
from dpsql.mechanisms.stream.fenwick import lowbit
from dpsql.mechanisms.stream.laminar import Currency, NoiseNodes
from dpsql.mechanisms.stream.time_tree import TimePlan, time_blue
from dpsql.tree import Tree, tree_from_arrays
from dpsql.variance import AxisVariance
from dpsql.variance.identity import IdentityVariance
from dpsql.variance.prefix import PrefixVariance
from dpsql.variance.tree import TreeVariance


def batch_estimates(
    strategy: StreamStrategy, currency: Currency, batches: int, published: NDArray[np.generic]
) -> FloatArray:
    """Best linear unbiased estimates of the batches.

    Args:
        strategy: the strategy of the stream.
        currency: what its budgets are shares of.
        batches: how many batches are public.
        published: (rows, ...) noisy sums in order of publication.

    Returns:
        float64[batches, ...].

    Raises:
        ValueError: when the number of rows is not what so many batches publish.

    **Privacy**: post-processing.
    """
    noisy = np.asarray(published, dtype=np.float64)
    if strategy.plan is not None:
        plan, edges = strategy.plan, strategy.plan.edges(batches)
        level = _levels(plan, batches)
        if len(noisy) != level.size:
            raise ValueError(f"{batches} batches publish {level.size} rows, not {len(noisy)}")
        return time_blue(edges, plan.variances(currency), [noisy[level == i] for i in range(len(edges))])
    if len(noisy) != batches:
        raise ValueError(f"{batches} batches publish {batches} rows, not {len(noisy)}")
    if strategy.kind == "toeplitz":
        return toeplitz.decode_increments(noisy, toeplitz.integer_coefficients(strategy.horizon))
    prefix = np.concatenate([np.zeros((1, *noisy.shape[1:])), noisy])
    if strategy.kind in ("fenwick", "fda"):
        for length in range(1, batches + 1):
            prefix[length] += prefix[length - lowbit(length)]
    return np.diff(prefix, axis=0)


def batch_variance(strategy: StreamStrategy, currency: Currency, batches: int) -> AxisVariance:
    """The variance model of `batch_estimates`, for noise of variance 1 on a node that spends the whole budget.

    Multiply by 2/epsilon^2 (Laplace) or by the variance of a whole rho's Gaussian. Prefix strategies use a dense
    model: meant for some thousand batches, as their horizon is.
    """
    if strategy.plan is not None:
        return _tree_model(strategy.plan, currency, batches)
    if strategy.kind == "toeplitz":
        root = toeplitz.root_coefficients(strategy.horizon)
        inverse = np.diff(root[:batches], prepend=0.0)  # first column of the inverse root: f_j - f_{j-1}
        place = np.subtract.outer(np.arange(batches), np.arange(batches))
        decode = np.where(place >= 0, inverse[np.maximum(place, 0)], 0.0)
        return PrefixVariance(decode @ decode.T * float((root**2).sum()))
    nodes, variance = noise_nodes(strategy, currency)
    whole = 2.0 if currency == "pure" else 1.0
    return PrefixVariance(_increments(nodes, variance / whole, batches))


def _levels(plan: TimePlan, batches: int) -> IntArray:
    """Level of each published number, in order of publication."""
    length = np.arange(1, batches + 1)
    closing = np.stack([length % span == 0 for span in plan.spans], axis=1)
    return np.asarray(np.nonzero(closing)[1], dtype=np.int64)


def _increments(nodes: NoiseNodes, variance: FloatArray, batches: int) -> FloatArray:
    """Covariance of the differences of consecutive prefixes: a node enters at `first` and leaves at `stop`."""
    entry = np.zeros((batches + 2, nodes.lo.size))
    column = np.arange(nodes.lo.size)
    entry[np.minimum(nodes.first, batches + 1), column] += 1
    entry[np.minimum(nodes.stop, batches + 1), column] -= 1
    change = entry[1 : batches + 1]
    return np.asarray((change * variance) @ change.T)


def _tree_model(plan: TimePlan, currency: Currency, batches: int) -> AxisVariance:
    """The closed nodes as a tree under one root that is not measured; open nodes are not in it."""
    weight = plan.variances(currency)[::-1]
    weight = (2.0 if currency == "pure" else 1.0) / weight  # precision per unit noise, coarsest level first
    if len(plan.spans) == 1 or batches < plan.spans[1]:
        return IdentityVariance(batches, float(1 / weight[-1]))
    bounds = [edges for edges in reversed(plan.edges(batches)) if edges.size > 1]
    lo, hi = [np.array([0])], [np.array([batches])]
    precision, parent = [np.array([0.0])], [np.array([-1])]
    if bounds[0].size == 2 and bounds[0][1] == batches:  # the root is itself a closed node
        bounds, precision = bounds[1:], [weight[len(plan.spans) - len(bounds), None]]
    start = 0  # number of the first node of the level above
    for edges, own in zip(bounds, weight[len(plan.spans) - len(bounds) :], strict=True):
        above = np.append(lo[-1], hi[-1][-1])  # nodes past the last closed one hang from the root
        place = np.searchsorted(above, edges[:-1], side="right") - 1
        parent.append(np.where(place < lo[-1].size, start + place, 0))
        start += lo[-1].size
        lo.append(edges[:-1])
        hi.append(edges[1:])
        precision.append(np.full(edges.size - 1, own))
    tree = tree_from_arrays(np.concatenate(lo), np.concatenate(hi), np.concatenate(parent))
    return TreeVariance(
        tree, _in_order(tree, np.concatenate(lo), np.concatenate(hi), np.concatenate(precision))
    )


def _in_order(tree: Tree, lo: IntArray, hi: IntArray, precision: FloatArray) -> FloatArray:
    """The nodes' precisions in the tree's order; no two nodes cover the same batches."""
    given, wanted = np.lexsort((hi, lo)), np.lexsort((tree.hi, tree.lo))
    out = np.empty(lo.size)
    out[wanted] = precision[given]
    return out
