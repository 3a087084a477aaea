"""Many views at once under zCDP: every set of axes measured once, free of what its subsets tell already.

Views over {a, b}, {b, c} and {a, c} would each measure the axis b and the total again. The residual design
takes a family of sets of axes closed downwards and measures for each set S only what is new in it: on the axes
in S rows that add to zero over the axis (`axis.dense`), on all others the total. Measurements of different sets
tell of orthogonal parts of the histogram, so the best linear unbiased estimate is in closed form, and so is every
variance. The integer rows add to zero exactly, so the closed form stays exact.

| here | there | unit |
|---|---|---|
| `gram` | X_i = R_i' R_i, X_i 1 = 0, diagonal at most 1 | n x n |
| `spread` | q' X_i^+ q: what set S with i in S adds to a query q on axis i | 1 |
| `share` | (\\|q\\| / n)^2: what a set without i adds | 1 |
| `variance` | sigma_S^2, of the noise on the rows of S | 1 at mu^2 = 1 |
| `drawn[S]` | (kron over S of B_i) (histogram, added up over all other axes) + noise | integers |

An answer with leaf masks q_i on the axes in A (all other axes whole) has the variance

    sum over S in A of sigma_S^2  prod_{i in S} q_i' X_i^+ q_i  prod_{i in A - S} (|q_i| / n_i)^2 .

Rows of S have column norms of at most 1, so set S costs 1 / sigma_S^2 of mu^2. Minimising sum_S value_S
sigma_S^2 under a given mu^2 gives sigma_S^2 proportional to value_S^(-1/2).

**Privacy** Set S alone spends its mu^2, as `law.Gaussian.draw` says; together they add up. Estimates are
post-processing.
**Source** docs/method/views.md, "Residual rows"; Xiao, He, Zhang and Kifer (2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import prod, sqrt

import numpy as np

from dpsql.errors import InternalError
from dpsql.matrices.estimated import Estimated
from dpsql.matrices.kronecker import ProductReading
from dpsql.matrices.reconcile import Subset, subsets
from dpsql.matrices.strategy import Strategy, estimate, measure
from dpsql.mechanisms.axis import COARSEST
from dpsql.mechanisms.axis.dense import DENSE_LEAVES, single_leaf_choice, zero_sum_choice
from dpsql.mechanisms.designs import measurement
from dpsql.mechanisms.designs.product import PRODUCT
from dpsql.mechanisms.designs.question import (
    DesignProblem,
    FamilyAxis,
    FamilyCandidate,
    FamilyDesign,
    NamedFamily,
    Proposal,
    SetCharge,
    ViewChoice,
)
from dpsql.mechanisms.distribution import GAUSSIAN, NoisyRows
from dpsql.mechanisms.offers import AxisChoice, Offer, Refusal
from dpsql.tree import FloatArray, IntArray

BY_SETS = "by sets"
"""All sets of a table are one family, and views that are measured otherwise another."""


class Residual(measurement.OwnParts, measurement.LinearRows):
    """Residual rows of a set of axes beyond its subsets. See `Measurement` for its methods.

    A set by itself is a product of zero-sum rows; only all sets of a family together have leaf estimates.
    """

    @property
    def facts(self) -> measurement.MeasurementFacts:
        """One part, the product's rows; all sets of a table are one family."""
        return measurement.MeasurementFacts(
            (measurement.ChargeLine("residual", Fraction(1)),), ProductReading.name, BY_SETS, linear=PRODUCT
        )

    def mean_variance(
        self, axes: Subset, unit: float, family: measurement.MemberVariances, asked: measurement.AxisWorkloads
    ) -> float:
        """Added up over the sets below."""
        return measurement.range_variance(dict(family), axes, asked)

    def estimate(
        self, family: Sequence[measurement.DrawnMember], axes: Mapping[int, measurement.MeasuredAxis]
    ) -> list[Estimated]:
        """Every set adds up its subsets."""
        strategies = {i: axis.strategy for i, axis in axes.items()}
        leaves = residual_estimates({member.axes: member.view for member in family}, strategies)
        return measurement.estimated(self, family, [leaves[member.axes] for member in family], axes)


RESIDUAL = Residual()

NAMED: Mapping[str, NamedFamily] = {"residual": NamedFamily(lambda view: BY_SETS, cells=True)}

SHARES = 1 << 20
"""Parts that a family's charge is divided into; a set with less than a millionth of it gets that much.

**Privacy**: the parts are integers that add up to at most `SHARES`, so the charges of a family add up to at most what
its views were given.
"""

GROUPS, TOTALS = 1.2, 3.8
"""Most variance of single groups and of totals where cells come first, over that of ranges half of the time: errors of
1.095 and 1.95 times. Pairs alone, without bounds, would make totals err 3.6 times as much."""

FIRST_MULTIPLIER, LEAST_MULTIPLIER, CLOSE, MOST_ROUNDS = 1e-2, 1e-6, 1e-3, 500

MOST_LEAVES = 512
"""Zero-sum rows of this many leaves take a second to find; longer axes have to ask for them."""

MOST_AXES = 4
"""A view of d axes brings 2^d statistics."""


def offers(question: DesignProblem) -> Iterator[Proposal]:
    """The design for views that name it, or for all views of a table whose mechanisms and shares are open."""
    name = "residual rows"
    refusal = _refusal(question) or ("" if question.named else _unasked(question))
    if isinstance(refusal, Refusal):
        yield refusal._replace(name=name)
    elif refusal:
        yield Refusal(name, refusal)
    else:
        yield Offer(name, 0.0, lambda: _design(question))


def _refusal(question: DesignProblem) -> Refusal | None:
    """Reason why the design is meaningless here."""
    if question.law != GAUSSIAN:
        return Refusal("", "needs delta above 0", "write privacy.delta, or `mechanism: auto`")
    if question.people:
        return Refusal("", f"needs a declared number in max_ids of {question.of}", "write it, or `auto` here")
    if question.batches:
        return Refusal("", "is not made batch by batch", "write `mechanism: auto` in a stream")
    for axis in (question.axes[i] for view in question.views for i in view.axes):
        if not 2 <= axis.leaves <= DENSE_LEAVES:
            return Refusal(
                "", f"takes axes of 2 to {DENSE_LEAVES} leaves and {axis.name} has {axis.leaves}",
                "cut it wider (`cuts`), leave it out, or write `mechanism: auto`",
            )  # fmt: skip
    return _twice(question)


def _twice(question: DesignProblem) -> Refusal | None:
    """Two views that ask for one measure on the same axes: there is one statistic for both."""
    seen: dict[tuple[str, Subset], str] = {}
    for view in question.views:
        for counted in view.charges:
            key = counted, (len(view.sets), *sorted(view.axes))
            if key in seen:
                names = " and ".join(question.axes[i].name for i in view.axes)
                return Refusal(
                    "", f"measures sets of axes once: {seen[key]} and {view.name} measure {counted} on {names}",
                    "put their measures into one view",
                )  # fmt: skip
            seen[key] = view.name
    return None


def _unasked(question: DesignProblem) -> str:
    """Reason why `auto` does not try it, or an empty string."""
    views = question.views
    if not (question.open and question.alone):
        return "replaces all views of a table, and one names another mechanism"
    if not all(view.shared_out for view in views):
        return "divides what all views spend, and one has a share of its own"
    if len(views) == 1 and len(views[0].axes) == 1:
        return "is for several sets of axes"
    if question.axes[0].grains.shared < COARSEST:
        return "has rows of large integers, and sums of the measures leave no room for them"
    if max(len(view.axes) for view in views) > MOST_AXES:
        return f"is tried for views of up to {MOST_AXES} axes"
    if max(question.axes[i].leaves for view in views for i in view.axes) > MOST_LEAVES:
        return f"is tried for axes of up to {MOST_LEAVES} leaves"
    return ""


def _design(question: DesignProblem) -> FamilyCandidate:
    """One statistic for each set of axes that a view covers, with the part of the budget that errs least."""
    views = tuple(
        ViewChoice(GAUSSIAN, tuple(_rows(question, i) for i in view.axes)) for view in question.views
    )
    choices = {i: axis_choice for view, view_choice in zip(question.views, views, strict=True)
               for i, axis_choice in zip(view.axes, view_choice.axes, strict=True)}  # fmt: skip
    asked_axes = {
        i: measurement.AxisWorkload(axis_choice.strategy.solver, question.workload(i))
        for i, axis_choice in choices.items()
    }
    sets = tuple(
        set_part for counted in question.measures for set_part in _sets(question, counted, asked_axes)
    )

    def error() -> float:
        errors = []
        for counted in question.measures:
            charges = _charges(question, counted)
            total_charge = sum(charge for _, charge in charges)
            drawn = [
                measurement.StatisticShare(axes, question.unit(float(charge) / total_charge))
                for measure, axes, charge in sets
                if measure == counted
            ]
            errors.append(
                measurement.mean_error(RESIDUAL, drawn, measurement.asked_sets(charges), asked_axes)
            )
        return sum(errors) / len(errors)

    return FamilyCandidate("residual rows", FamilyDesign(RESIDUAL, views, sets), error)


def _rows(question: DesignProblem, axis: int) -> AxisChoice:
    """Zero-sum rows of one axis."""
    return question.axes[axis].once(_zero_sum, question.by_cells(axis))


def _zero_sum(axis: FamilyAxis, by_cells: bool) -> AxisChoice:
    """Zero-sum rows for single cells, or for the ranges asked."""
    scale = max(axis.grains.shared, COARSEST)
    return (
        single_leaf_choice(axis.leaves, scale)
        if by_cells
        else zero_sum_choice(axis.leaves, axis.workload, scale)
    )


def _charges(question: DesignProblem, counted: str) -> list[measurement.StatisticShare]:
    """Spend of each view on a measure."""
    return [
        measurement.StatisticShare(subset, float(view.charges[counted]) / len(view.sets))
        for view in question.views
        if counted in view.charges
        for subset in view.sets
    ]


def _sets(question: DesignProblem, counted: str, asked_axes: measurement.AxisWorkloads) -> list[SetCharge]:
    """The sets of one measure, each with its part of what the views spend on it."""
    shares = _shares(question, _charges(question, counted), asked_axes)
    remaining = SHARES - len(shares)
    units = {
        subset: 1 + int(remaining * shares[subset])
        for subset in sorted(shares, key=lambda subset: (len(subset), subset))
    }
    if sum(units.values()) > SHARES:
        raise InternalError("the sets of a residual design were given more than their family's budget")
    total_charge = sum((view.charges.get(counted, Fraction(0)) for view in question.views), Fraction(0))
    return [(counted, subset, total_charge * Fraction(share, SHARES)) for subset, share in units.items()]


def _shares(
    question: DesignProblem, charges: Sequence[measurement.StatisticShare], asked: measurement.AxisWorkloads
) -> dict[Subset, float]:
    """The parts of mu^2 with the least mean error: by ranges of each axis half of the time, or by cells.

    Where some axis is one of names, the sets that views ask together come first. Sets below them err at most by
    `GROUPS` and `TOTALS` times what they would if all axes were asked by ranges half of the time.
    """
    sets = measurement.asked_sets(charges)
    if not any(question.by_cells(i) for i in asked):
        return best_shares(sets, asked)
    ranges = {i: question.axes[i].once(_zero_sum, False).strategy.solver for i in asked}
    shares = best_shares(
        sets, {i: measurement.AxisWorkload(model, question.axes[i].workload) for i, model in ranges.items()}
    )
    components = {subset: 1 / share for subset, share in shares.items()}
    by_ranges = {i: measurement.AxisWorkload(model, question.workload(i)) for i, model in ranges.items()}
    together = {axes for axes, _ in charges}
    bounds = {
        subset: (GROUPS if subset else TOTALS) * measurement.range_variance(components, subset, by_ranges)
        for subset in sets
        if any(set(subset) < set(axes) for axes in together)
    }
    weights = dict.fromkeys(sets, 0.0)
    for axes, charge in charges:
        weights[axes] += charge
    return bounded_shares(weights, bounds, asked)


def bounded_shares(
    sets: Mapping[Subset, float], bounds: Mapping[Subset, float], asked: measurement.AxisWorkloads
) -> dict[Subset, float]:
    """As `best_shares`, where the variances of some sets are bounded.

    The variances are linear in the sigma_S^2 and the parts convex, so the best parts are those for weights in which
    each bounded set has a multiplier besides: one that grows while its variance is above the bound and shrinks below.

    Args:
        sets: set of axes, closed downwards -> how often it is asked; may be 0.
        bounds: set of axes -> the largest mean variance at mu^2 1; some parts must keep all of them.
        asked: by axis.
    """
    total = sum(sets.values())
    multipliers = dict.fromkeys(bounds, FIRST_MULTIPLIER)
    for _ in range(MOST_ROUNDS):
        weights = {axes: weight / total + multipliers.get(axes, 0.0) for axes, weight in sets.items()}
        shares = best_shares(weights, asked)
        components = {subset: 1 / share for subset, share in shares.items()}
        used = {
            axes: measurement.range_variance(components, axes, asked) / bound
            for axes, bound in bounds.items()
        }
        if all(
            part <= 1 + CLOSE and (part >= 1 - CLOSE or multipliers[axes] <= LEAST_MULTIPLIER)
            for axes, part in used.items()
        ):
            break
        multipliers = {
            axes: max(multipliers[axes] * part**2, LEAST_MULTIPLIER) for axes, part in used.items()
        }
    return shares


def best_shares(sets: Mapping[Subset, float], asked: measurement.AxisWorkloads) -> dict[Subset, float]:
    """The parts of mu^2 with the least mean error over conjunctions of ranges.

    Args:
        sets: set of axes, closed downwards -> how often ranges on each of them are asked, any positive weights.
        asked: by axis.

    Returns:
        The part of each set; they add up to 1.

    **Source** docs/method/views.md, "Residual rows".
    """
    value = dict.fromkeys(sets, 0.0)
    for axes, weight in sets.items():
        for subset in subsets(axes):
            value[subset] += weight * prod(asked[i].residual if i in subset else asked[i].share for i in axes)
    price = sum(sqrt(set_value) for set_value in value.values())
    return {subset: sqrt(set_value) / price for subset, set_value in value.items()}


def residual_estimates(
    drawn: Mapping[Subset, NoisyRows], strategies: Mapping[int, Strategy]
) -> dict[Subset, FloatArray]:
    """Best linear unbiased leaf estimates of every set of axes from the measurements of all.

    The first estimates are rounded and what is left of the integers is estimated again, so that float rounding
    stays relative to the noise and a noiseless release comes back exactly.

    Args:
        drawn: the noisy integers of a family of sets closed downwards; axes of a set in increasing order.
        strategies: by axis.

    Returns:
        For each set an array with its axes' leaves; they agree on what they share, up to float rounding.
    """
    deviations = {subset: _deviation(view.value, subset, strategies) for subset, view in drawn.items()}
    estimates = {}
    for axes in drawn:
        sets = subsets(axes)
        first = np.rint(_added_up(deviations, sets, axes, strategies)).astype(np.int64)
        residuals = {
            subset: _deviation(
                drawn[subset].value - _measured(first, subset, axes, strategies), subset, strategies
            )
            for subset in sets
        }
        estimates[axes] = np.asarray(first + _added_up(residuals, sets, axes, strategies), np.float64)
    return estimates


def _deviation(rows: IntArray, subset: Subset, strategies: Mapping[int, Strategy]) -> FloatArray:
    """Leaf estimates of what a set has beyond its subsets; they add to zero along every axis."""
    leaves = np.asarray(rows, np.float64)
    for place, axis in enumerate(subset):
        leaves = estimate(strategies[axis], leaves, place)
    return leaves


def _added_up(
    deviations: Mapping[Subset, FloatArray],
    sets: Sequence[Subset],
    axes: Subset,
    strategies: Mapping[int, Strategy],
) -> FloatArray:
    """Every part, spread evenly over the axes that it does not hold."""
    total = np.zeros([strategies[axis].leaves for axis in axes])
    for subset in sets:
        away = float(np.prod([strategies[axis].leaves for axis in axes if axis not in subset], initial=1.0))
        total = (
            total
            + deviations[subset].reshape([strategies[a].leaves if a in subset else 1 for a in axes]) / away
        )
    return np.asarray(total, np.float64)


def _measured(leaves: IntArray, subset: Subset, axes: Subset, strategies: Mapping[int, Strategy]) -> IntArray:
    """Noise-free measurement of a part of some leaves."""
    rows = leaves.sum(axis=tuple(place for place, axis in enumerate(axes) if axis not in subset))
    for place, axis in enumerate(subset):
        rows = measure(strategies[axis], rows, place)
    return np.asarray(rows, np.int64)
