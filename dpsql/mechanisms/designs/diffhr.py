"""DiffHR, made private: cells of alike counts share one noisy sum, wherever they lie.

    here           there (DiffHR)            unit
    view           -                         noisy counts of all cells, the only thing that sorting reads
    grouping error err(C) = AE(C) + LE(C)    squared counts, summed over a group's cells
    groups         C_1, C_2, ..              group of every cell

The published method sorts by finite Metropolis-Hastings steps and clusters on the true counts, for which it
spends nothing: two cells that share a released value tell that their true counts were alike, so it is not
epsilon-DP for any epsilon. Only its last line, noisy sums over fixed groups, is sound. Here epsilon_1 buys a
noisy view of the histogram; sorting and greedy clustering read that view alone, with the view's own noise
subtracted from the spread that they see; epsilon_2 buys the sums of the groups so found. An exact sort of a
private view needs no sampler, so Metropolis-Hastings is gone.

For point questions on histograms of few distinct counts. Long ranges add up the bias of their groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.budget import cap_units, scaled_denominator
from dpsql.errors import InterfaceError
from dpsql.matrices.model import GroupedVariance
from dpsql.matrices.tree import TreeVariance
from dpsql.mechanisms.designs.adaptive import AdaptedView, DataDependent, as_leaves, selecting_offers
from dpsql.mechanisms.designs.measurement import ChargeLine
from dpsql.mechanisms.designs.question import DesignProblem, NamedFamily, Proposal, stands_alone
from dpsql.mechanisms.distribution import LAPLACE, joined
from dpsql.noise import Noise
from dpsql.noise.discrete import laplace_variance
from dpsql.tree import Exact, FloatArray, IntArray, Noisy, kary_tree

VIEW_SHARE = Fraction(3, 4)  # of 1/2, 2/3 and 3/4 the least point error in 7 of 8 cells of the DPBench grid
# Of the noise variance, what is subtracted from the spread inside a group. Sorting has already put like noise
# beside like, so a group of neighbours shows little of it: subtracting all of it makes groups too wide
# (point error 2 to 3 times as large on six of the eight cells), subtracting none splits equal counts.
SEEN_AFTER_SORTING = 0.1


@dataclass(frozen=True, eq=False)
class DiffhrRelease:
    """Release of the private DiffHR, all of it noisy integers and their scales.

    Args:
        view: noisy count of every cell, shape (n,).
        group: group of every cell, numbered from 0 in order of noisy count, shape (n,).
        total: noisy sum of every group, shape (g,).
        units: budgets (of the view, of the sums) over `denominator`.
        denominator: noise scale times budget.
    """

    view: Noisy
    group: IntArray
    total: Noisy
    units: tuple[int, int]
    denominator: int


def cluster(view: Noisy, view_variance: float, sum_variance: float) -> IntArray:
    """Group cells of alike noisy counts, greedily, in one pass over the sorted view.

    A cell joins the open group while that adds less error than the least a new group could cost. The error
    of a group of c cells is its spread, less what is left in it of the view's own noise, plus the noise of
    its mean, sum_variance / c. The least a new group can cost is the noise of its mean if all cells that
    are left joined it without spread (the lazy lower bound).

    Args:
        view: noisy counts, shape (n,); nothing else about the data is read.
        view_variance: variance of one noisy count.
        sum_variance: variance of the noise that each group's sum will get.

    Returns:
        Group of every cell, shape (n,), numbered from 0 upwards in order of noisy count.

    **Privacy** Post-processing of the view.

    **Source** docs/method/views.md, "DiffHR"; there on the true counts.

    >>> cluster(np.array([100, 7, 101, 6, 7]), 0.5, 2.0).tolist()
    [1, 0, 1, 0, 0]
    """
    order = np.argsort(view, kind="stable")
    left_over = SEEN_AFTER_SORTING * view_variance
    remaining = len(view)
    group = np.empty(len(view), np.int64)
    number, size, mean, square, error = -1, 0, 0.0, 0.0, 0.0
    for cell, value in zip(order.tolist(), view[order].tolist(), strict=True):
        step = value - mean
        joined_mean = mean + step / (size + 1)
        joined_square = square + step * (value - joined_mean)
        joined = max(joined_square - size * left_over, 0.0) + sum_variance / (size + 1)
        if number < 0 or joined > error + sum_variance / remaining:
            number, size, mean, square = number + 1, 0, float(value), 0.0
            joined_mean, joined_square, joined = mean, 0.0, sum_variance
        size, mean, square, error = size + 1, joined_mean, joined_square, joined
        group[cell] = number
        remaining -= 1
    return group


def draw_diffhr(counts: Exact, epsilon: Fraction, sensitivity: int, noise: Noise) -> DiffhrRelease:
    """A noisy view, groups made from it, and a noisy sum for each group.

    Args:
        counts: exact cells, shape (n,).
        epsilon: what both steps may spend together.
        sensitivity: the most that one privacy unit changes the sum of |cells|.
        noise: where noise comes from.

    Returns:
        The view, the groups and the sums.

    Raises:
        InterfaceError: if there is no cell.
        PrivacyError: if epsilon leaves no room for integer budgets.

    **Privacy** epsilon-DP: VIEW_SHARE of it for the view, whose cells are disjoint; groups are
    post-processing of the view; the rest for the sums over fixed, disjoint groups
    (docs/privacy/data_dependent.md, section 2).
    """
    if len(counts) < 1:
        raise InterfaceError("a histogram needs at least one cell")
    t = scaled_denominator(sensitivity)
    denominator = t * sensitivity
    first = cap_units(epsilon * VIEW_SHARE, t)
    second = cap_units(epsilon, t) - first
    view = LAPLACE.draw_units(counts, np.full(len(counts), first, np.int64), denominator, noise)
    spread = laplace_variance(np.array([first, second]), denominator)
    group = cluster(view, float(spread[0]), float(spread[1]))
    exact = Exact(np.zeros(int(group.max()) + 1, np.int64))
    np.add.at(exact, group, counts)
    total = LAPLACE.draw_units(exact, np.full(len(exact), second, np.int64), denominator, noise)
    return DiffhrRelease(view, group, total, (first, second), denominator)


def cell_estimates(release: DiffhrRelease) -> FloatArray:
    """The mean of each cell's group, from both noisy looks at it, weighted by their precision, shape (n,).

    The sum of the view's cells is a second estimate of the group's sum; it carries the noise of every cell,
    so it counts in small groups and vanishes in large ones.
    """
    size = np.bincount(release.group)
    view_variance, sum_variance = laplace_variance(np.array(release.units), release.denominator)
    seen = np.bincount(release.group, weights=release.view)
    weight = sum_variance / (sum_variance + size * view_variance)
    total = (1 - weight) * release.total + weight * seen
    return np.asarray((total / size)[release.group], np.float64)


def _diffhr(counts: Exact, epsilon: Fraction, sensitivity: int, noise: Noise) -> AdaptedView:
    """Groups' sums from both looks at them, with an upper bound on their variance.

    The view put like noise into one group, so its errors there do not average out (predicted as if they did, real
    errors were up to twice as large): they count as equal. The second look is fresh.
    """
    drawn = draw_diffhr(counts, epsilon, sensitivity, noise)
    size = np.bincount(drawn.group)
    view, total = laplace_variance(np.array(drawn.units), drawn.denominator)
    seen = total / (total + size * view)  # the weight of the view in `cell_estimates`
    tree = kary_tree(len(size), max(len(size), 2))
    weight = np.zeros(tree.size)
    weight[tree.leaves] = 1 / ((1 - seen) ** 2 * total + seen**2 * size**2 * view)
    budget = np.repeat(np.array(drawn.units, np.int64), [len(drawn.view), len(drawn.total)])
    return AdaptedView(
        joined(drawn.view, drawn.total), budget, cell_estimates(drawn),
        GroupedVariance(drawn.group, TreeVariance(tree, weight)), 1.0, f"DiffHR, {len(size)} groups",
    )  # fmt: skip


DIFFHR = DataDependent(
    "diffhr", "DiffHR", "is used by name only: it is biased, and its error is unknown before it has seen the data",
    (ChargeLine("noisy view for grouping", VIEW_SHARE), ChargeLine("sums of groups", 1 - VIEW_SHARE)), True,
    as_leaves("DiffHR"), _diffhr,
)  # fmt: skip


WHOLE = 0.0
NAMED: Mapping[str, NamedFamily] = {DIFFHR.name: NamedFamily(stands_alone)}


def offers(question: DesignProblem) -> Iterator[Proposal]:
    """By name."""
    yield from selecting_offers(question, DIFFHR, None)
