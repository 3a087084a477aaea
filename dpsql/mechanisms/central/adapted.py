"""Data-dependent mechanisms as one thing: noisy integers, the cells' estimates and the model of their noise.

| word in the catalog | mechanism | biased |
|---|---|---|
| `diffhr` | noisy view, groups of alike cells, noisy group sums | yes |
| `dawa` | private partition into buckets, measured buckets | yes |
| `auto` with `data_dependent: allow` | two noisy numbers choose an unbiased strategy | no |

Each spends its epsilon in named parts; every part is a line of the ledger.

**Privacy**: docs/privacy/data_dependent.md. Estimates and models are functions of the noisy integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpsql.budget import cap_units, scaled_denominator
from dpsql.errors import InternalError
from dpsql.mechanisms.axis.strategy import AxisStrategy
from dpsql.mechanisms.central.adaptive import AdaptiveRelease, draw_adaptive, unbiased_cells
from dpsql.mechanisms.central.dawa import PARTITION_SHARE, DawaRelease, bucket_estimates, draw_dawa, spread
from dpsql.mechanisms.central.diffhr import VIEW_SHARE, DiffhrRelease, cell_estimates, draw_diffhr
from dpsql.mechanisms.central.signal import OCCUPIED_SHARE, ROWS_SHARE, SIGNAL_SHARE
from dpsql.noise import Noise, laplace_variance
from dpsql.tree import kary_tree
from dpsql.variance import AxisVariance
from dpsql.variance.grouped import GroupedVariance
from dpsql.variance.tree import TreeVariance

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

DIFFHR, DAWA, ADAPTIVE = "diffhr", "dawa", "adaptive"

MOST_LEAVES = 1 << 14
"""Groups of scattered cells cost leaves^2 steps when a release is opened: 4 s here."""

PARTS: dict[str, tuple[tuple[str, Fraction], ...]] = {
    DIFFHR: (("noisy view for grouping", VIEW_SHARE), ("sums of groups", 1 - VIEW_SHARE)),
    DAWA: (("choice of buckets", PARTITION_SHARE), ("sums of buckets", 1 - PARTITION_SHARE)),
    ADAPTIVE: (("signal for choosing", SIGNAL_SHARE), ("rows", 1 - SIGNAL_SHARE)),
}
"""What each mechanism spends its epsilon on."""


@dataclass(frozen=True, eq=False)
class AdaptedView:
    """A one-axis view whose strategy depends on released numbers.

    Args:
        value: all noisy integers as drawn, shape (rows,).
        budget: integer budget of each, the same shape.
        leaves: estimates of the cells, shape (n,).
        model: their variance model; Var(q) = unit_variance * (u' C u).
        unit_variance: see `NoisyView`.
        chosen: what was measured, in words.
        biased: whether cells were given the mean of a group.
    """

    value: IntArray
    budget: IntArray
    leaves: FloatArray
    model: AxisVariance
    unit_variance: float
    chosen: str
    biased: bool


def draw_adapted(
    method: str,
    counts: IntArray,
    epsilon: Fraction,
    sensitivity: int,
    noise: Noise,
    strategy_for: Callable[[int], AxisStrategy],
) -> AdaptedView:
    """Draw one view by a data-dependent mechanism.

    Args:
        method: `diffhr`, `dawa` or `adaptive`.
        counts: exact cells, shape (n,).
        epsilon: what all parts may spend together.
        sensitivity: the most that one privacy unit changes the sum of |cells|.
        noise: where noise comes from.
        strategy_for: gives the strategy over m cells; reads m alone.

    Returns:
        The view.

    Raises:
        PrivacyError: epsilon leaves no room for integer budgets.

    **Privacy**: epsilon-DP, by the parts of `PARTS`.
    """
    if method == DIFFHR:
        return _diffhr(draw_diffhr(counts, epsilon, sensitivity, noise))
    if method == DAWA:
        return _dawa(draw_dawa(counts, epsilon, sensitivity, noise, strategy_for))
    if method == ADAPTIVE:
        drawn = draw_adaptive(counts, epsilon, sensitivity, noise, strategy_for)
        return _adaptive(drawn, epsilon, sensitivity)
    raise InternalError(f"no data-dependent mechanism is called {method!r}", hint="use one of PARTS")


def _diffhr(drawn: DiffhrRelease) -> AdaptedView:
    """Groups' sums from both looks at them, with an upper bound on their variance.

    The view put like noise into one group, so its errors there do not average out (predicted as if they did, real
    errors were up to twice as large): they count as equal. The second look is fresh.
    """
    size = np.bincount(drawn.group)
    view, total = laplace_variance(np.array(drawn.units), drawn.denominator)
    seen = total / (total + size * view)  # the weight of the view in `cell_estimates`
    tree = kary_tree(len(size), max(len(size), 2))
    weight = np.zeros(tree.size)
    weight[tree.leaves] = 1 / ((1 - seen) ** 2 * total + seen**2 * size**2 * view)
    budget = np.repeat(np.array(drawn.units, np.int64), [len(drawn.view), len(drawn.total)])
    return AdaptedView(
        np.concatenate([drawn.view, drawn.total]), budget, cell_estimates(drawn),
        GroupedVariance(drawn.group, TreeVariance(tree, weight)), 1.0, f"DiffHR, {len(size)} groups", True,
    )  # fmt: skip


def _dawa(drawn: DawaRelease) -> AdaptedView:
    """Buckets measured by a strategy over buckets; the cells of one share its mean."""
    buckets = len(drawn.edges) - 1
    group = np.repeat(np.arange(buckets), np.diff(drawn.edges))
    return AdaptedView(
        drawn.view.value, drawn.view.budget, spread(drawn.edges, bucket_estimates(drawn)),
        GroupedVariance(group, drawn.strategy.variance()), drawn.view.unit_variance,
        f"DAWA, {buckets} buckets", True,
    )  # fmt: skip


def _adaptive(drawn: AdaptiveRelease, epsilon: Fraction, sensitivity: int) -> AdaptedView:
    """The two numbers of the signal are stored in front of the rows."""
    t = scaled_denominator(sensitivity)
    units = [cap_units(epsilon * share, t) for share in (ROWS_SHARE, OCCUPIED_SHARE)]
    numbers = np.array([drawn.signal.rows, drawn.signal.occupied], np.int64)
    chosen = "unbiased optimum, signal is full" if drawn.full else "tapered tree, signal is sparse"
    return AdaptedView(
        np.concatenate([numbers, drawn.view.value]), np.concatenate([np.array(units, np.int64), drawn.view.budget]),
        unbiased_cells(drawn), drawn.strategy.variance(), drawn.view.unit_variance, chosen, False,
    )  # fmt: skip
