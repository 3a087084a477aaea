"""Mechanisms that look at released numbers first: noisy integers, the cells' estimates and the model of their noise.

| word in the catalog | module | mechanism | biased |
|---|---|---|---|
| `diffhr` | `diffhr` | noisy view, groups of alike cells, noisy group sums | yes |
| `signal` | `adaptive` | two noisy numbers choose an unbiased strategy | no |

Such a view has one axis, counts rows, and is never reconciled with other views: its noise is not known beforehand.
What a plan says of it is that of the strategy that it would have without looking.

Each spends its epsilon in named parts; every part is a line of the ledger.

**Privacy**: docs/privacy/data_dependent.md. Estimates and models are functions of the noisy integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import inf

from dpsql.errors import InternalError
from dpsql.matrices import AxisVariance
from dpsql.matrices.estimated import DrawnAxis, Estimated
from dpsql.matrices.kronecker import AxisSplit, ProductReading
from dpsql.matrices.reconcile import Subset
from dpsql.mechanisms.axis import AUTO, auto_strategy
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.strategy import AxisChoice, AxisStrategy, expected_error
from dpsql.mechanisms.designs.measurement import (
    AxisWorkload,
    ChargeLine,
    DrawnMember,
    DrawParameters,
    MeasuredAxis,
    MeasurementFacts,
    estimated,
)
from dpsql.mechanisms.designs.product import PRODUCT
from dpsql.mechanisms.designs.question import (
    DesignProblem,
    FamilyCandidate,
    FamilyDesign,
    Proposal,
    ViewChoice,
)
from dpsql.mechanisms.distribution import LAPLACE, NoisyRows
from dpsql.mechanisms.offers import Offer, Refusal
from dpsql.noise import Noise
from dpsql.tree import Exact, FloatArray, IntArray, Noisy

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
        sparse: whether its rows were chosen for the non-negative estimate, which then answers.
    """

    value: Noisy
    budget: IntArray
    leaves: FloatArray
    model: AxisVariance
    variance_at_unit_budget: float
    chosen: str
    sparse: bool = False


@dataclass(frozen=True)
class DataDependent:
    """A view of one axis whose rows follow from released numbers. See `Measurement` for what its methods answer.

    Args:
        name: the catalog's word.
        title: what it is, in words.
        only: why it is not offered unasked.
        parts: what its epsilon is spent on.
        biased: whether cells are given the mean of a group.
        choice: leaves of the axis -> what a plan says of it.
        sample: (cells, epsilon, the most that one unit changes the sum of |cells|, noise) -> the view.

    **Privacy**: `sample` is epsilon-DP, by its parts.
    """

    name: str
    title: str
    only: str
    parts: tuple[ChargeLine, ...]
    biased: bool
    choice: Callable[[int], AxisChoice]
    sample: Callable[[Exact, Fraction, int, Noise], AdaptedView]

    @property
    def facts(self) -> MeasurementFacts:
        """Nothing but what is spent and how it is read: rows follow from the draw."""
        return MeasurementFacts(self.parts, ProductReading.name, biased=self.biased)

    def words(self, strategies: Sequence[str]) -> str:
        """Drawn statistic in words."""
        return PRODUCT.words(strategies)

    def row_count(self, strategies: Sequence[AxisStrategy]) -> int:
        """As of the plan's choice."""
        return PRODUCT.row_count(strategies)

    def variance_at_unit_budget(self, terms: DrawParameters) -> float:
        """As of the plan's choice."""
        return PRODUCT.variance_at_unit_budget(terms)

    def mean_variance(
        self,
        axes: Subset,
        unit: float,
        family: Sequence[tuple[Subset, float]],
        asked: Mapping[int, AxisWorkload],
    ) -> float:
        """As of the plan's choice."""
        return PRODUCT.mean_variance(axes, unit, family, asked)

    def draw(self, cells: Exact, terms: DrawParameters, noise: Noise) -> NoisyRows:
        return self.sample(cells, terms.spend, terms.sensitivity, noise)

    def estimate(self, family: Sequence[DrawnMember], axes: Mapping[int, MeasuredAxis]) -> list[Estimated]:
        """Made with the draw, on the axis as its rows were chosen."""
        estimates = []
        for member in family:
            drawn = _adapted(member.view)
            (axis,) = member.axes
            chosen = {axis: axes[axis]._replace(split=AxisSplit(drawn.model), words=drawn.chosen)}
            (estimate,) = estimated(self, [member], [drawn.leaves], chosen)
            axis_drawn = DrawnAxis(drawn.model, drawn.chosen)
            estimates.append(replace(estimate, axis=axis_drawn, prefers=drawn.sparse))
        return estimates

    def components(
        self, family: Sequence[tuple[Subset, float]], totals: Mapping[int, float]
    ) -> dict[Subset, float]:
        """Of the total and of the axis."""
        return PRODUCT.components(family, totals)


def _adapted(view: NoisyRows) -> AdaptedView:
    if not isinstance(view, AdaptedView):
        raise InternalError("a data-dependent view was drawn by something else")
    return view


@lru_cache(maxsize=64)  # simulations draw the same view again and again
def strategy_of(leaves: int) -> AxisStrategy:
    """Strategy for so many cells or buckets; depends on their number alone."""
    return auto_strategy(leaves).strategy


def as_leaves(words: str) -> Callable[[int], AxisChoice]:
    """A plan's choice where nothing is known before the draw."""

    def choice(leaves: int) -> AxisChoice:
        leaf = LeafStrategy(leaves)
        return AxisChoice(leaf, words, expected_error(leaf), ())

    return choice


def selecting_offers(
    question: DesignProblem, method: DataDependent, bound: Callable[[int], float] | None
) -> Iterator[Proposal]:
    """Data-dependent selection for one view.

    Args:
        question: the view alone, which names the mechanism or allows it.
        method: the mechanism.
        bound: leaves of the axis -> the most that its error can be expected to be, at epsilon 1; None
            where nothing public bounds it, and then the mechanism is had by name alone.
    """
    is_named = question.named == method.name
    if not is_named and (bound is None or not question.lets(method.name)):
        yield Refusal(method.title, method.only)
        return
    (view,) = question.views
    reasons = {
        "measures one axis": len(view.axes) == 1,
        "measures counts": view.counts,
        "needs `mechanism: auto`": view.word == AUTO,
        f"takes at most {MOST_LEAVES} leaves": question.leaves(view)[0] <= MOST_LEAVES,
        "needs a declared max_ids": not question.people,
        "is not made batch by batch": not question.batches,
        "takes no `workload`: what it measures follows from what it sees": all(
            question.axes[axis].workload is None for axis in view.axes
        ),
    }
    short = [reason for reason, met in reasons.items() if not met]
    if short:
        yield Refusal(method.title, short[0])
        return

    def make() -> FamilyCandidate:
        choices = tuple(method.choice(n) for n in question.leaves(view))
        error = inf if bound is None else question.price(LAPLACE) * bound(question.leaves(view)[0])
        return FamilyCandidate(
            method.title, FamilyDesign(method, (ViewChoice(LAPLACE, choices),)), lambda: error
        )

    yield Offer(method.title, 0.0, make)
