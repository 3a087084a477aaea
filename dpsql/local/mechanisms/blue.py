"""The unbiased estimate of all leaves from all groups of reports, its covariance, and proper histograms from it.

Every group observes shares of cells, each a set of leaves (or a linear blur of them, for Square Wave); their
covariance is diagonal minus one outer product. Generalised least squares under "shares sum to 1" is solved
densely: what is fitted together has at most a few thousand leaf combinations.

Proper histograms, which are non-negative and sum to 1, are NormSub for one level and least squares over the simplex.
Both are biased upwards where little is, so neither replaces the unbiased estimate; they start the smooth fits.

| here        | there | unit |
|-------------|-------|------|
| `design`    | H     | cells x leaves |
| `precision` | Q     | inverse variance of shares |
| `pull`      | g     | H' C^-1 y summed over groups |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.local.oracles.oracle import FloatArray, Oracle, Structure

SMALLEST = 1e-12


@dataclass(frozen=True)
class ViewReports:
    """Reports of one view.

    Args:
        design: (cells, leaves), the share of each cell as a linear function of leaf shares.
        shares: (cells,), unbiased estimate of `design @ leaves`.
        reports: number of reports behind it.
        oracle: how they were perturbed.
        fan: how many items of the oracle each cell adds up.
        stretch: what the shares of items are multiplied by.
    """

    design: FloatArray
    shares: FloatArray
    reports: float
    oracle: Oracle
    fan: float | FloatArray = 1.0
    stretch: float = 1.0


class System(NamedTuple):
    """Normal equations of all groups: precision (leaves, leaves) and pull (leaves,)."""

    precision: FloatArray
    pull: FloatArray


class ShareEstimate(NamedTuple):
    """Leaf shares and their covariance."""

    shares: FloatArray
    covariance: FloatArray


def group_structure(group: ViewReports, cells: FloatArray) -> Structure:
    """Covariance structure of one group's shares (times reports) at plugged-in cell shares."""
    structure = group.oracle.structure(group.oracle.plugged(cells / group.stretch), group.fan)
    return Structure(structure.diagonal * group.stretch**2, structure.tilt * group.stretch)


def system(groups: Sequence[ViewReports], leaves: FloatArray, tilted: bool = True) -> System:
    """Form the normal equations with weights at plugged-in leaf shares.

    Args:
        groups: what was observed.
        leaves: plugged-in leaf shares; a public guess (uniform) keeps the estimate exactly unbiased.
        tilted: whether to use the outer product of a covariance where it matters under the constraint.

    Returns:
        Precision and pull.
    """
    size = leaves.size
    precision, pull = np.zeros((size, size)), np.zeros(size)
    for group in groups:
        weighted = _weights(group, group.design @ leaves, tilted)
        precision += weighted @ group.design
        pull += weighted @ group.shares
    return System(precision, pull)


def constrained_inverse(precision: FloatArray) -> FloatArray:
    """Covariance of the least-squares leaves when they are known to sum to 1."""
    size = precision.shape[0]
    scale = float(np.trace(precision)) / size
    # Along the all-ones direction the constraint fixes the answer; lifting it there makes the inverse exist.
    inverse = np.linalg.pinv(precision + scale * np.ones((size, size)), rcond=SMALLEST, hermitian=True)
    total = inverse.sum(axis=1)
    return np.asarray(inverse - np.outer(total, total) / total.sum())


def solve(equations: System) -> ShareEstimate:
    """Solve the normal equations under "shares sum to 1"."""
    size = equations.pull.size
    inverse = constrained_inverse(equations.precision)
    start = np.full(size, 1 / size)
    shares = start + inverse @ (equations.pull - equations.precision @ start)
    return ShareEstimate(shares, inverse)


def blue(groups: Sequence[ViewReports]) -> ShareEstimate:
    """Best linear unbiased estimate of leaf shares.

    Args:
        groups: what was observed; together they must see every leaf, else unseen splits are even.

    Returns:
        Shares and the exact covariance at the plugged-in estimate.

    The weights come from the uniform histogram, a public guess, so the estimate is exactly unbiased; the
    covariance is exact for the estimated shares (its plug-in error is of order 1/n).
    """
    leaves = groups[0].design.shape[1]
    public = np.full(leaves, 1 / leaves)
    first = solve(system(groups, public))
    clipped = np.clip(first.shares, 0, None)
    return ShareEstimate(
        first.shares, estimator_covariance(groups, public, first.covariance, clipped / clipped.sum())
    )


def gains(groups: Sequence[ViewReports]) -> list[FloatArray]:
    """Per group the matrix (leaves, cells) that `blue` multiplies its shares by, up to a constant: it is linear."""
    size = groups[0].design.shape[1]
    public = np.full(size, 1 / size)
    inverse = solve(system(groups, public)).covariance
    return [np.asarray(inverse @ _weights(group, group.design @ public)) for group in groups]


def drift(groups: Sequence[ViewReports]) -> FloatArray:
    """By how much `blue`'s leaves move if all shares grow together, per relative growth, shape (leaves,)."""
    return np.asarray(sum(gain @ g.shares for gain, g in zip(gains(groups), groups, strict=True)))


def estimator_covariance(
    groups: Sequence[ViewReports], public: FloatArray, inverse: FloatArray, leaves: FloatArray
) -> FloatArray:
    """Exact covariance of a linear estimator with weights at `public`, for data with shares `leaves`."""
    covariance = np.zeros_like(inverse)
    for group in groups:
        gain = inverse @ _weights(group, group.design @ public)
        covariance += group_structure(group, group.design @ leaves).between(gain, gain) / group.reports
    return covariance


def signed_blue(groups: Sequence[ViewReports], counts: FloatArray) -> ShareEstimate:
    """Unbiased leaf values of a centred measure, from groups whose cells hold share(bit 1) - share(bit 0).

    Args:
        groups: designs over leaves alone; shares are the differences.
        counts: plugged-in leaf shares of rows, which set the noise.

    Returns:
        Leaf values in half-ranges of the measure, and their exact covariance.
    """
    clipped_counts, gains = np.clip(counts, 0, 1), signed_gains(groups)
    values = np.asarray(sum(gain @ g.shares for gain, g in zip(gains, groups, strict=True)))
    # no more of bit 1 than rows: else sums and counts together have no law
    clipped_values = np.clip(values, -clipped_counts, clipped_counts)
    covariance = np.zeros((counts.size, counts.size))
    for gain, group in zip(gains, groups, strict=True):
        lean = gain @ (group.design @ clipped_values)
        spread = group_structure(group, group.design @ clipped_counts).diagonal
        covariance += ((gain * spread) @ gain.T - np.outer(lean, lean)) / group.reports
    return ShareEstimate(values, covariance)


def signed_gains(groups: Sequence[ViewReports]) -> list[FloatArray]:
    """Per group the matrix (leaves, cells) that `signed_blue` multiplies its shares by."""
    size = groups[0].design.shape[1]
    public = np.full(size, 1 / size)
    structures = [group_structure(g, g.design @ public) for g in groups]
    weights = [
        (g.design * (g.reports / p.diagonal)[:, None]).T for g, p in zip(groups, structures, strict=True)
    ]
    precision = np.asarray(sum(w @ g.design for w, g in zip(weights, groups, strict=True)))
    inverse = np.linalg.pinv(precision, rcond=SMALLEST, hermitian=True)
    return [np.asarray(inverse @ weight) for weight in weights]


def crossed(
    groups: Sequence[ViewReports], twins: Sequence[ViewReports | None], shares: FloatArray, values: FloatArray
) -> FloatArray:
    """Covariance of `blue`'s leaves with `signed_blue`'s: one report says both, so they err together.

    Args:
        groups: as `blue` has them.
        twins: per group the same view's group of `signed_blue`, None where it tells nothing of the measure.
        shares: plugged-in leaves of `groups`.
        values: plugged-in leaves of `twins`.

    Returns:
        Shape (leaves of `groups`, leaves of `twins`). A cell's bits 1 and 0 have variances that differ by what their
        shares differ by, times the oracle's `slope`.
    """
    twin_gains = iter(signed_gains([twin for twin in twins if twin is not None]))
    covariance = np.zeros((shares.size, values.size))
    for group, gain, twin in zip(groups, gains(groups), twins, strict=True):
        if twin is None:
            continue
        twin_gain, twin_cells = next(twin_gains), twin.design @ values
        lean = gain @ group_structure(group, group.design @ shares).tilt
        slope_term = (
            gain[:, : twin_cells.size] * (group.oracle.slope * group.stretch * twin_cells)
        ) @ twin_gain.T
        covariance += (slope_term - np.outer(lean, twin_gain @ twin_cells)) / group.reports
    return covariance


def _weights(group: ViewReports, cells: FloatArray, tilted: bool = True) -> FloatArray:
    structure = group_structure(group, cells)
    weight = group.reports / structure.diagonal
    weighted = (group.design * weight[:, None]).T
    if tilted and group.oracle.tilted:
        slack = 1 - float(np.sum(structure.tilt**2 / structure.diagonal))
        weighted = weighted + np.outer(weighted @ structure.tilt, structure.tilt * weight) / (
            group.reports * slack
        )
    return weighted


def cell_design(edges: NDArray[np.int64] | Sequence[int], leaves: int) -> FloatArray:
    """0/1 matrix of the cells between boundaries, shape (cells, leaves)."""
    bounds = np.asarray(edges, dtype=np.int64)
    at = np.arange(leaves)
    return np.asarray((at >= bounds[:-1, None]) & (at < bounds[1:, None]), dtype=np.float64)


def range_workload(leaves: int) -> FloatArray:
    """Mean of w w' over all half-open ranges, shape (leaves, leaves)."""
    at = np.arange(leaves)
    low, high = np.minimum(at[:, None], at[None, :]), np.maximum(at[:, None], at[None, :])
    return np.asarray((low + 1) * (leaves - high) / (leaves * (leaves + 1) / 2), dtype=np.float64)


def range_variances(covariance: FloatArray) -> FloatArray:
    """Variance of every range, entry [i, j] for the half-open range [i, j), shape (m + 1, m + 1)."""
    size = covariance.shape[0]
    prefix = np.zeros((size + 1, size + 1))
    prefix[1:, 1:] = covariance.cumsum(axis=0).cumsum(axis=1)
    diagonal = np.diag(prefix)
    return np.asarray(diagonal[:, None] + diagonal[None, :] - 2 * prefix)


TOLERANCE = 1e-12


def normsub(shares: FloatArray) -> FloatArray:
    """Subtract one constant and cut at zero, so that the shares sum to 1.

    Args:
        shares: one level's estimates.

    Returns:
        Non-negative shares: the Euclidean projection onto the simplex.

    **Source**: docs/method/local.md, "NormSub".

    Example:
        >>> normsub(np.array([0.5, -0.25, 0.625, 0.125])).round(4).tolist()
        [0.4167, 0.0, 0.5417, 0.0417]
    """
    ordered = np.sort(shares)[::-1]
    shift = (np.cumsum(ordered) - 1.0) / np.arange(1, shares.size + 1)
    last = int(np.nonzero(ordered > shift)[0][-1])
    return np.asarray(np.maximum(shares - shift[last], 0.0))


def simplex_fit(precision: FloatArray, pull: FloatArray) -> FloatArray:
    """Minimise x'Qx/2 - g'x over x >= 0 with sum 1, by block principal pivoting.

    Args:
        precision: Q, symmetric positive semidefinite, (m, m).
        pull: g, (m,).

    Returns:
        The minimiser, (m,).
    """
    size = pull.size
    scale = max(float(np.trace(precision)) / size, TOLERANCE)
    quadratic = precision / scale + TOLERANCE * np.eye(size)
    linear = pull / scale
    free = np.ones(size, dtype=bool)
    fewest, patience = size + 1, 10
    for _ in range(20 * size + 50):
        shares, price = _equality(quadratic, linear, free)
        slack = quadratic @ shares - linear - price
        wrong = np.where(free, shares < -1e-14, slack < -1e-10)
        count = int(wrong.sum())
        if count == 0:
            break
        if count < fewest:
            fewest, patience = count, 10
        elif patience > 0:
            patience -= 1
        else:  # one at a time cannot cycle
            last = int(np.nonzero(wrong)[0][-1])
            wrong = np.arange(size) == last
        free = np.where(wrong, ~free, free)
        if not free.any():
            free[int(np.argmax(linear))] = True
    shares = np.maximum(shares, 0.0)
    return np.asarray(shares / shares.sum())


def _equality(quadratic: FloatArray, linear: FloatArray, free: np.ndarray) -> tuple[FloatArray, float]:
    """Solve on the free coordinates with sum 1; returns the point and the price of the constraint."""
    at = np.nonzero(free)[0]
    right_sides = np.stack([linear[at], np.ones(at.size)], axis=1)
    solved = np.linalg.solve(quadratic[np.ix_(at, at)], right_sides)
    price = (1 - solved[:, 0].sum()) / solved[:, 1].sum()
    point = np.zeros(linear.size)
    point[at] = solved[:, 0] + price * solved[:, 1]
    return point, float(price)
