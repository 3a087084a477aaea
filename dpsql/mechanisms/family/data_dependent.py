"""Mechanisms that look at released numbers first: noisy integers, the cells' estimates and the model of their noise.

| word in the catalog | mechanism | biased |
|---|---|---|
| `diffhr` | noisy view, groups of alike cells, noisy group sums | yes |
| `dawa` | private partition into buckets, measured buckets | yes |
| `auto` with `data_dependent: allow` | two noisy numbers choose an unbiased strategy | no |

Each spends its epsilon in named parts; every part is a line of the ledger.

**Privacy**: docs/privacy/data_dependent.md. Estimates and models are functions of the noisy integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.budget import cap_units, scaled_denominator
from dpsql.errors import InternalError
from dpsql.mechanisms.axis.choose import auto_strategy
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.question import AxisChoice, expected_error
from dpsql.mechanisms.axis.strategy import AxisStrategy
from dpsql.mechanisms.central.adaptive import draw_adaptive, unbiased_cells
from dpsql.mechanisms.central.dawa import PARTITION_SHARE, bucket_estimates, draw_dawa, spread
from dpsql.mechanisms.central.diffhr import VIEW_SHARE, cell_estimates, draw_diffhr
from dpsql.mechanisms.central.reconcile import Measured, Subset
from dpsql.mechanisms.central.signal import OCCUPIED_SHARE, ROWS_SHARE, SIGNAL_SHARE
from dpsql.mechanisms.family.measurement import (
    AskedAxis,
    Compared,
    DrawnAxis,
    DrawnMember,
    LinearRows,
    Part,
    Terms,
)
from dpsql.mechanisms.family.product import PRODUCT
from dpsql.mechanisms.law import NoisyRows
from dpsql.noise import Noise, laplace_variance
from dpsql.tree import kary_tree
from dpsql.variance import AxisVariance
from dpsql.variance.grouped import GroupedVariance
from dpsql.variance.plane import PlaneVariance
from dpsql.variance.tree import TreeVariance

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

MOST_LEAVES = 1 << 14
"""Groups of scattered cells cost leaves^2 steps when a release is opened: 4 s here."""


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
    """

    value: IntArray
    budget: IntArray
    leaves: FloatArray
    model: AxisVariance
    unit_variance: float
    chosen: str


@dataclass(frozen=True)
class DataDependent:
    """A view of one axis whose rows follow from released numbers. See `Measurement` for what its methods answer.

    Args:
        name: the catalog's word.
        parts: what its epsilon is spent on.
        biased: whether cells are given the mean of a group.
        choice: leaves of the axis -> what a plan says of it.
        sample: (cells, epsilon, the most that one unit changes the sum of |cells|, noise) -> the view.

    **Privacy**: `sample` is epsilon-DP, by its parts.
    """

    name: str
    parts: tuple[Part, ...]
    biased: bool
    choice: Callable[[int], AxisChoice]
    sample: Callable[[IntArray, Fraction, int, Noise], AdaptedView]
    compared: ClassVar[Compared | None] = None
    linear: ClassVar[LinearRows | None] = None

    def kin(self, view: str) -> str:
        """Its noise is not known beforehand, so it stays alone."""
        return view

    def words(self, strategies: Sequence[str]) -> str:
        """What was drawn, once it was."""
        return PRODUCT.words(strategies)

    def axis_choices(self, leaves: Sequence[int]) -> tuple[AxisChoice, ...] | None:
        """Its variance model will be known when it is drawn."""
        return tuple(self.choice(n) for n in leaves)

    def row_count(self, strategies: Sequence[AxisStrategy]) -> int:
        """As of the plan's choice."""
        return PRODUCT.row_count(strategies)

    def unit_variance(self, terms: Terms) -> float:
        """As of the plan's choice."""
        return PRODUCT.unit_variance(terms)

    def joint_variance(self) -> PlaneVariance | None:
        """One axis has none."""
        return None

    def mean_variance(
        self,
        axes: Subset,
        unit: float,
        family: Sequence[tuple[Subset, float]],
        asked: Mapping[int, AskedAxis],
    ) -> float:
        """As of the plan's choice."""
        return PRODUCT.mean_variance(axes, unit, family, asked)

    def draw(self, cells: IntArray, terms: Terms, noise: Noise) -> NoisyRows:
        """Look, then measure."""
        return self.sample(cells, terms.spend, terms.sensitivity, noise)

    def drawn_axis(self, view: NoisyRows) -> DrawnAxis | None:
        """The model of the rows that were chosen."""
        drawn = _adapted(view)
        return DrawnAxis(drawn.model, drawn.chosen)

    def estimates(
        self, family: Sequence[DrawnMember], strategies: Mapping[int, AxisStrategy]
    ) -> list[FloatArray]:
        """Made with the draw."""
        return [_adapted(view).leaves for _, view in family]

    def components(
        self, family: Sequence[tuple[Subset, float]], totals: Mapping[int, float]
    ) -> dict[Subset, float]:
        """Of the total and of the axis."""
        return PRODUCT.components(family, totals)

    def agreed(
        self, family: Sequence[Measured], totals: Mapping[int, float], spreads: Mapping[int, FloatArray]
    ) -> list[FloatArray]:
        """There is no other view to agree with."""
        return PRODUCT.agreed(family, totals, spreads)


def _adapted(view: NoisyRows) -> AdaptedView:
    """What `DataDependent.draw` returned."""
    if not isinstance(view, AdaptedView):
        raise InternalError("a data-dependent view was drawn by something else")
    return view


@lru_cache(maxsize=64)  # simulations draw the same view again and again
def _strategy(leaves: int) -> AxisStrategy:
    """What measures so many cells or buckets; reads their number alone."""
    return auto_strategy(leaves).strategy


def _as_leaves(words: str) -> Callable[[int], AxisChoice]:
    """A plan's choice where nothing is known before the draw."""

    def choice(leaves: int) -> AxisChoice:
        leaf = LeafStrategy(leaves)
        return AxisChoice(leaf, words, expected_error(leaf), ())

    return choice


def _by_signal(leaves: int) -> AxisChoice:
    """The unbiased optimum, which a full signal leads to."""
    best = auto_strategy(leaves)
    return AxisChoice(
        best.strategy, f"by noisy signal, {best.name} if full", best.expected_error, best.runners_up
    )


def _diffhr(counts: IntArray, epsilon: Fraction, sensitivity: int, noise: Noise) -> AdaptedView:
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
        np.concatenate([drawn.view, drawn.total]), budget, cell_estimates(drawn),
        GroupedVariance(drawn.group, TreeVariance(tree, weight)), 1.0, f"DiffHR, {len(size)} groups",
    )  # fmt: skip


def _dawa(counts: IntArray, epsilon: Fraction, sensitivity: int, noise: Noise) -> AdaptedView:
    """Buckets measured by a strategy over buckets; the cells of one share its mean."""
    drawn = draw_dawa(counts, epsilon, sensitivity, noise, _strategy)
    buckets = len(drawn.edges) - 1
    group = np.repeat(np.arange(buckets), np.diff(drawn.edges))
    return AdaptedView(
        drawn.view.value, drawn.view.budget, spread(drawn.edges, bucket_estimates(drawn)),
        GroupedVariance(group, drawn.strategy.variance()), drawn.view.unit_variance,
        f"DAWA, {buckets} buckets",
    )  # fmt: skip


def _adaptive(counts: IntArray, epsilon: Fraction, sensitivity: int, noise: Noise) -> AdaptedView:
    """The two numbers of the signal are stored in front of the rows."""
    drawn = draw_adaptive(counts, epsilon, sensitivity, noise, _strategy)
    t = scaled_denominator(sensitivity)
    units = [cap_units(epsilon * share, t) for share in (ROWS_SHARE, OCCUPIED_SHARE)]
    numbers = np.array([drawn.signal.rows, drawn.signal.occupied], np.int64)
    chosen = "unbiased optimum, signal is full" if drawn.full else "tapered tree, signal is sparse"
    return AdaptedView(
        np.concatenate([numbers, drawn.view.value]), np.concatenate([np.array(units, np.int64), drawn.view.budget]),
        unbiased_cells(drawn), drawn.strategy.variance(), drawn.view.unit_variance, chosen,
    )  # fmt: skip


DIFFHR = DataDependent(
    "diffhr", (Part("noisy view for grouping", VIEW_SHARE), Part("sums of groups", 1 - VIEW_SHARE)), True,
    _as_leaves("DiffHR"), _diffhr,
)  # fmt: skip
DAWA = DataDependent(
    "dawa", (Part("choice of buckets", PARTITION_SHARE), Part("sums of buckets", 1 - PARTITION_SHARE)), True,
    _as_leaves("DAWA"), _dawa,
)  # fmt: skip
ADAPTIVE = DataDependent(
    "adaptive", (Part("signal for choosing", SIGNAL_SHARE), Part("rows", 1 - SIGNAL_SHARE)), False,
    _by_signal, _adaptive,
)  # fmt: skip

NAMED = {method.name: method for method in (DIFFHR, DAWA)}
"""By the catalog's word; `ADAPTIVE` is what `data_dependent: allow` brings."""
