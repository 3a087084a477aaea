"""Make the views of one release agree on what they share, then round them once so that everything adds up exactly.

Every view of a family (one table, one measure) counts the same rows, so two views that share axes both
estimate the margin over those axes. Each view is split, axis by axis, into the total (spread along g)
and the remainder; the part for a subset T of axes is estimated by every view that holds T, with
covariances that differ by a factor only. So the best linear unbiased combination is an
inverse-variance average, part by part, in closed form.

| here | there | unit |
|---|---|---|
| `ViewEstimate.variance_at_unit_budget` | c_A: variance of a row at full axis budgets | (measure unit)^2 |
| `totals[i]` | k_i = 1' C_i 1 | 1 |
| `spreads[i]` | g_i = C_i 1 / k_i | 1 |

Corrections are computed from differences between views, so views that agree already (as they do
without noise) are left exactly as they are.

Estimates are rounded to integers of 2^-20. Rounding each cell on its own would break sums by a few units, and two
views would round a shared margin differently. So every axis's last leaf gives way to the axis's total: in the
coordinates (leaf 0 .. leaf n-2, total) each shared margin is a sub-array of its own, rounded once for all views, and
the last leaf is the total minus the others, in integers. The map is unimodular, so no value is ever rounded
twice, and what the last leaf collects is about 2^-21 sqrt(cells), far below any noise. Inner nodes are sums of leaves
(`node_sums`), again in integers.

Non-negative estimates of counts lie near the unbiased ones and agree at every node of a tree: downwards from the root,
the children of every node are projected onto the non-negative numbers that add up to it.

**Privacy**: post-processing of noisy values and public strategies.
**Source**: docs/method/views.md, "Views that share axes", "The non-negative step"; Hay et al. (2010) for the one-view
case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from math import frexp
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.errors import InterfaceError, InternalError
from dpsql.tree import FloatArray, IntArray, Tree, levels_tree, tree_from_arrays

Subset = tuple[int, ...]
AnyArray = npt.NDArray[Any]


@dataclass(frozen=True)
class ViewEstimate:
    """One view's leaf estimates before the views are reconciled.

    Args:
        axes: axis ids of the release, strictly increasing; estimate's dimensions in that order.
        estimate: leaf estimates, shape (n_1, .., n_d).
        unit_variance: variance factor c_A of the view.
    """

    axes: Subset
    estimate: FloatArray
    variance_at_unit_budget: float


def subsets(axes: Subset) -> list[Subset]:
    """All subsets, small ones first.

    >>> subsets((1, 4))
    [(), (1,), (4,), (1, 4)]
    """
    return [subset for size in range(len(axes) + 1) for subset in combinations(axes, size)]


def component_variances(
    views: Sequence[tuple[Subset, float]], totals: Mapping[int, float]
) -> dict[Subset, float]:
    """sigma_T^2 for every subset T of every view's axes.

    Args:
        views: (axes, unit variance) of each view.
        totals: k_i by axis id.

    Returns:
        Subset -> variance factor of that part after averaging over the views that hold it.
    """
    precision: dict[Subset, float] = {}
    for axes, unit in views:
        for subset in subsets(axes):
            precision[subset] = precision.get(subset, 0.0) + 1.0 / _part_variance(subset, axes, unit, totals)
    return {subset: 1.0 / value for subset, value in precision.items()}


def component_covariances(
    views: Sequence[tuple[Subset, float]],
    families: tuple[Mapping[Subset, float], Mapping[Subset, float]],
    totals: Mapping[int, float],
) -> dict[Subset, float]:
    """Covariances of two families part by part, after each has averaged its parts by precision.

    A view's weight in a family is sigma_T^2 / (c prod k), so its covariance c_AB prod k counts sigma_T^2 sigma'_T^2
    c_AB / (c c' prod k) times.

    Args:
        views: (axes, c_AB / (c c')) of each view that both families have: its covariance of a row of whole budget over
            both variances.
        families: `component_variances` of both.
        totals: k_i by axis id.
    """
    covariances: dict[Subset, float] = {}
    for axes, ratio in views:
        for subset in subsets(axes):
            weighted = ratio / _part_variance(subset, axes, 1.0, totals)
            covariances[subset] = covariances.get(subset, 0.0) + weighted
    first, second = families
    return {subset: first[subset] * second[subset] * value for subset, value in covariances.items()}


def reconcile(
    views: Sequence[ViewEstimate], totals: Mapping[int, float], spreads: Mapping[int, FloatArray]
) -> list[FloatArray]:
    """Leaf estimates of every view after averaging all shared parts.

    Args:
        views: the views of one family.
        totals: k_i by axis id.
        spreads: g_i by axis id, shape (n_i,), adding to 1.

    Returns:
        One array for each view, in the shape of its estimate; margins over shared axes agree up to float
        rounding.
    """
    corrections = [np.zeros_like(view.estimate) for view in views]
    for subset in sorted({p for view in views for p in subsets(view.axes)}, key=lambda p: (len(p), p)):
        holders = [k for k, view in enumerate(views) if set(subset) <= set(view.axes)]
        if len(holders) < 2:
            continue
        margins = [_margin(views[k], subset) for k in holders]
        weights = np.array(
            [
                1.0 / _part_variance(subset, views[k].axes, views[k].variance_at_unit_budget, totals)
                for k in holders
            ]
        )
        weights /= weights.sum()
        for k, view_margin in zip(holders, margins, strict=True):
            step = sum(
                (w * (margin - view_margin) for w, margin in zip(weights, margins, strict=True)),
                np.zeros_like(view_margin),
            )
            corrections[k] += _spread_part(step, subset, views[k].axes, spreads)
    return [view.estimate + correction for view, correction in zip(views, corrections, strict=True)]


def _part_variance(subset: Subset, axes: Subset, unit: float, totals: Mapping[int, float]) -> float:
    """Variance factor of the part T as one view alone sees it: c_A prod of k over the axes summed out."""
    return unit * float(np.prod([totals[axis] for axis in axes if axis not in subset], initial=1.0))


def _margin(view: ViewEstimate, subset: Subset) -> FloatArray:
    """Sum over the axes that the part does not hold."""
    away = tuple(position for position, axis in enumerate(view.axes) if axis not in subset)
    return np.asarray(view.estimate.sum(axis=away), dtype=np.float64)


def _spread_part(
    step: FloatArray, subset: Subset, axes: Subset, spreads: Mapping[int, FloatArray]
) -> FloatArray:
    """Keep the remainder of `step` on its own axes and spread it along g over the others."""
    for position, axis in enumerate(subset):
        shape = [1] * len(subset)
        shape[position] = -1
        step = step - spreads[axis].reshape(shape) * step.sum(axis=position, keepdims=True)
    correction = step.reshape([step.shape[subset.index(axis)] if axis in subset else 1 for axis in axes])
    for position, axis in enumerate(axes):
        if axis not in subset:
            shape = [1] * len(axes)
            shape[position] = -1
            correction = correction * spreads[axis].reshape(shape)
    return np.asarray(correction, dtype=np.float64)


UNIT = 1 << 20
"""Stored estimates are integers of 1/UNIT."""
LIMIT = float(1 << 62)


def to_units(estimate: FloatArray) -> IntArray:
    """Nearest integers of 2^-20.

    Raises:
        InternalError: a value would not fit 64 bits.

    >>> to_units(np.array([0.5, -2.0])).tolist()
    [524288, -2097152]
    """
    scaled = np.rint(estimate * UNIT)
    if scaled.size and not float(np.abs(scaled).max()) < LIMIT:
        raise InternalError(
            "an estimate does not fit 64 bits at 2^-20",
            hint="give the measure a coarser scale or lower bounds",
        )
    return scaled.astype(np.int64)


def round_family(views: Sequence[tuple[Subset, FloatArray]]) -> list[IntArray]:
    """Integer leaf arrays of reconciled views that agree exactly on every shared margin.

    Args:
        views: (axis ids, leaf estimates) of each view of one family, margins equal up to float rounding.

    Returns:
        Integer arrays of the same shapes in units of 2^-20.

    Raises:
        InternalError: an estimate does not fit 64 bits; divide all by `family_step` first.
    """
    shared = {subset: to_units(margin) for subset, margin in _shared_margins(views).items()}
    return _from_margins([(axes, estimate.shape) for axes, estimate in views], shared)


def family_step(views: Sequence[tuple[Subset, FloatArray]]) -> int:
    """The least power of two by which estimates must be divided so that they and their sums fit 64 bits; mostly 1.

    Args:
        views: as of `round_family`.

    **Privacy**: a function of noisy numbers.

    >>> family_step([((0,), np.array([2.0**41, 2.0**41, -5.0]))]), family_step([((0,), np.array([7.0, 8.0]))])
    (2, 1)
    """
    sizes = [float(np.abs(estimate).sum()) for _, estimate in views]
    return 1 << max(0, frexp(max(sizes, default=0.0) * UNIT / LIMIT)[1])


def _shared_margins(views: Sequence[tuple[Subset, AnyArray]]) -> dict[Subset, AnyArray]:
    """Every margin that a view has, by its axes: the first view's."""
    margins: dict[Subset, AnyArray] = {}
    for axes, estimate in views:
        for totals in product((False, True), repeat=len(axes)):
            margins.setdefault(_part(axes, totals), _inner_margin(estimate, totals))
    return margins


def agreed_units(views: Sequence[tuple[Subset, IntArray]]) -> list[IntArray]:
    """Integer arrays that agree exactly on every shared margin: the first view's that has it.

    Args:
        views: (axis ids, integers) of each view, margins nearly equal.
    """
    return _from_margins([(axes, units.shape) for axes, units in views], _shared_margins(views))


def _from_margins(
    views: Sequence[tuple[Subset, tuple[int, ...]]], margins: Mapping[Subset, IntArray]
) -> list[IntArray]:
    """Arrays of these axes and shapes, from integers of every margin without each axis's last leaf."""
    restored = []
    for axes, shape in views:
        coordinates = np.zeros(shape, dtype=np.int64)
        for totals in product((False, True), repeat=len(axes)):
            where = tuple(-1 if is_total else slice(0, -1) for is_total in totals)
            coordinates[where] = margins[_part(axes, totals)]
        restored.append(_restore_last_leaves(coordinates))
    return restored


def _part(axes: Subset, totals: tuple[bool, ...]) -> Subset:
    """The axes that a margin keeps."""
    return tuple(axis for axis, is_total in zip(axes, totals, strict=True) if not is_total)


def node_sums(leaves: IntArray, trees: Sequence[Tree | None]) -> IntArray:
    """Exact sums of all node combinations.

    Args:
        leaves: integer leaf array, shape (n_1, .., n_d).
        trees: the look-up tree of each axis; None where numbers do not add up and stay as they are.

    Returns:
        int64 array, shape (nodes_1, .., nodes_d).
    """
    sums = leaves
    for axis, tree in enumerate(trees):
        if tree is None:
            continue
        shape = list(sums.shape)
        shape[axis] = 1
        prefix = np.concatenate([np.zeros(shape, np.int64), np.cumsum(sums, axis=axis)], axis=axis)
        sums = np.take(prefix, tree.hi, axis=axis) - np.take(prefix, tree.lo, axis=axis)
    return sums


def _inner_margin(estimate: AnyArray, totals: tuple[bool, ...]) -> AnyArray:
    """Sum over the axes marked total; all but the last leaf of the others."""
    away = tuple(position for position, is_total in enumerate(totals) if is_total)
    margin = np.asarray(estimate.sum(axis=away))
    return margin[(slice(0, -1),) * margin.ndim]


def _restore_last_leaves(coordinates: IntArray) -> IntArray:
    """Replace each axis's total by its last leaf: total minus the others."""
    for axis in range(coordinates.ndim):
        last = [slice(None)] * coordinates.ndim
        earlier = list(last)
        last[axis], earlier[axis] = slice(-1, None), slice(0, -1)
        earlier_sum = coordinates[tuple(earlier)].sum(axis=axis, keepdims=True)
        coordinates[tuple(last)] = coordinates[tuple(last)] - earlier_sum
    return coordinates


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
