"""Adaptive rounds to a release: unbiased boxes with exact errors, AHEAD's own histogram as the non-negative counts.

Which boxes are asked follows from other people's reports, so every round is unbiased about its boxes, and least squares
over all rounds is too, with an exact covariance. What neither can tell is how a box's people lie inside it; a variance
of the box's share squared by 12 stands for that, in both kinds' errors.

**Privacy**: post-processing of reports that were private before they left the device.
**Source**: docs/method/local.md, "AHEAD".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpsql.client.plan import Plan
from dpsql.collecting.collector import CollectionManifest
from dpsql.collecting.content import adaptive_local, statistic_content, survey_axes, survey_promise
from dpsql.collecting.estimate import model_of
from dpsql.collecting.plan import facts_of
from dpsql.collecting.rounds import earlier_rounds, round_of
from dpsql.collecting.smooth import FLAGGED, outside
from dpsql.collecting.survey import Survey
from dpsql.collecting.tallies import Tallies
from dpsql.collecting.tau import Prediction
from dpsql.errors import DataError
from dpsql.mechanisms.local.ahead import (
    EVEN,
    AheadRound,
    positive_boxes,
    redrawn_errors,
    spread_evenly,
    unbiased_boxes,
)
from dpsql.mechanisms.local.blue import ShareEstimate
from dpsql.mechanisms.local.smooth import with_hidden
from dpsql.mechanisms.oracles.oracle import FloatArray, spread
from dpsql.release.format import SpentAmount, StatisticMeta
from dpsql.release.write import ReleaseBuilder, StatisticPart
from dpsql.star import spec_hash
from dpsql.variance.boxes import BoxReading, BoxVariance
from dpsql.variance.kronecker import ProductReading
from dpsql.variance.leaves import PrefixVariance
from dpsql.variance.reconcile import round_family, to_units
from dpsql.variance.stack import StackVariance


def predict_round(plan: Plan, people: int) -> list[Prediction]:
    """Standard error of one box of a round, in rows a person, where nobody is."""
    error = float(np.sqrt(spread(plan.own) * plan.rounds / people))
    return [Prediction("a box of this round; the last one will say how well questions are answered", error)]


class FinalBoxes(NamedTuple):
    """The last round's boxes.

    Args:
        unbiased: their shares and covariance.
        positive: AHEAD's own shares.
        within: variance of a part of each box that a mask of variance 1 takes.
    """

    rounds: Sequence[AheadRound]
    unbiased: ShareEstimate
    positive: FloatArray
    within: FloatArray


def boxes_of(plan: Plan, tallies: Tallies) -> FinalBoxes:
    """What all rounds say of the last one's boxes.

    Raises:
        DataError: the plan is not of the last round, or no report of it was accepted.
    """
    if plan.round + 1 < plan.rounds:
        raise DataError(
            f"this is round {plan.round + 1} of {plan.rounds}; a release is made of the last one",
            hint="make the next plan: dpsql collection-plan CATALOG REPORTS --after PLAN -o NEXT",
        )
    rounds = [*earlier_rounds(plan), round_of(plan, tallies[0])]
    unbiased, positive = unbiased_boxes(rounds, plan.own), positive_boxes(rounds)
    return FinalBoxes(rounds, unbiased, positive, np.maximum(unbiased.shares, positive) ** 2 / EVEN)


def adaptive_content(
    survey: Survey, plan: Plan, tallies: Tallies, manifest: CollectionManifest, release_id: str
) -> ReleaseBuilder:
    """All that the release file of an adaptive collection will hold."""
    boxes, axes = boxes_of(plan, tallies), survey_axes(survey)
    ((view, (view_axes, _)),) = survey.views.items()
    sizes, people = [survey.axes[a].leaves for a in view_axes], sum(r.reports for r in boxes.rounds)
    bounds = boxes.rounds[-1].boxes
    box_variance = BoxVariance(bounds, boxes.unbiased.covariance * people**2, boxes.within * people**2)
    values = spread_evenly(bounds, boxes.unbiased.shares, sizes) * people
    (units,) = round_family([(view_axes, values)])
    positive = spread_evenly(bounds, boxes.positive, sizes)
    margins = [_margin(box_variance, sizes, place) for place in range(len(sizes))]
    models: list[PrefixVariance | StackVariance | BoxVariance] = [PrefixVariance(m) for m in margins]
    described = _statistic(survey, plan, view, view_axes, int(values.size))
    flagged = {}
    if len(view_axes) == 1:
        unbiased = ShareEstimate(values, margins[0])
        errors = _positive_errors(plan, boxes, positive * people, box_variance, margins[0])
        flagged = {survey.axes[view_axes[0]].name: outside(positive * people, unbiased)}
        models.append(errors)
        wanted = flagged[survey.axes[view_axes[0]].name] <= FLAGGED
        total = float(margins[0].sum())
        described = replace(
            described, nonnegative_model=1, preferred=wanted, components=(((), total), ((0,), 1.0))
        )
    else:
        models.append(box_variance)
        positions = tuple(range(len(view_axes)))
        described = replace(
            described, reading=BoxReading.name, models=(len(models) - 1,), components=((positions, 1.0),)
        )
    trees = [axes[a].content.tree for a in view_axes]
    facts = facts_of(plan)
    return ReleaseBuilder(
        release_id,
        facts.catalog or {},
        spec_hash(survey.catalog),
        survey_promise(survey, plan),
        [SpentAmount(f"one report of {plan.collection}", str(plan.epsilon))],
        insecure=False,
        axes=axes,
        models=models,
        statistics=[StatisticPart(described, statistic_content(units, to_units(positive * people), trees))],
        local=replace(
            adaptive_local(survey, plan, manifest),
            people=round(people),
            smooth_outside_unbiased=flagged or None,
            rounds=plan.rounds,
            boxes=len(bounds),
        ),
    )


def _margin(box_variance: BoxVariance, sizes: Sequence[int], place: int) -> FloatArray:
    """Covariance of one axis's leaves, lifted so that its total is positive."""
    size = sizes[place]
    first, second = np.indices((size, size)).reshape(2, -1)

    def masks(leaves: np.ndarray) -> list[FloatArray]:
        ones = [np.ones((leaves.size, axis_leaves)) for axis_leaves in sizes]
        ones[place] = np.eye(size)[leaves]
        return ones

    step = max(1, 4_000_000 // (max(sizes) * len(box_variance.bounds)))
    rows = [
        box_variance.covariance(masks(first[a : a + step]), masks(second[a : a + step]))
        for a in range(0, first.size, step)
    ]
    return model_of(ShareEstimate(np.zeros(size), np.concatenate(rows).reshape(size, size)))


def _positive_errors(
    plan: Plan, boxes: FinalBoxes, positive: FloatArray, box_variance: BoxVariance, unbiased: FloatArray
) -> StackVariance:
    """Errors of AHEAD's histogram of one axis: redrawn rounds, and a part of the unbiased ones."""
    people = float(positive.sum())
    rng = np.random.default_rng(int.from_bytes(plan.hash, "big"))
    again = redrawn_errors(boxes.rounds, plan.own, rng) * people**2
    redrawn = _margin(BoxVariance(box_variance.bounds, again, 0 * box_variance.within), [positive.size], 0)
    noise = _margin(
        BoxVariance(box_variance.bounds, box_variance.sums, 0 * box_variance.within), [positive.size], 0
    )
    refits = with_hidden(redrawn, noise)
    inside = unbiased - noise
    return StackVariance(refits.covariance + inside, unbiased, positive, refits.small, refits.large)


def _statistic(
    survey: Survey, plan: Plan, view: str, view_axes: tuple[int, ...], cells: int
) -> StatisticMeta:
    return StatisticMeta(
        id=0, view=view, of=survey.of, measure="count", axes=view_axes, mid=0, scale=0, kind="int", sensitivity=1,
        budget=str(plan.epsilon), currency="epsilon", mechanism=f"local: AHEAD, {plan.rounds} rounds",
        cells=cells, reading=ProductReading.name, models=view_axes, components=(),
        nonnegative=True,
    )  # fmt: skip
