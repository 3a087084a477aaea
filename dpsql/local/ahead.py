"""An adaptive collection in rounds: each plan asks other people about finer boxes where the last round found many.

A device draws its round when it first meets the collection and answers in that round only, with all of epsilon. A plan
carries the tallies of the rounds before, so the last plan and its reports make the release. It
holds unbiased boxes with exact errors, and AHEAD's own histogram as the non-negative counts.

Which boxes are asked follows from other people's reports, so every round is unbiased about its boxes, and least squares
over all rounds is too, with an exact covariance. What neither can tell is how a box's people lie inside it; a variance
of the box's share squared, by 12 on one axis and by less on several, stands for that, in both kinds' errors.

| here     | there | unit |
|----------|-------|------|
| fan-out  | B     | 2 per axis, 2^m in all |
| rounds   | c     | log2 of the largest axis |
| theta    | theta | a cell's share below which splitting costs more noise than it gains detail |

Weights are the inverse variances of all rounds solved together: the two-pass weights in circulation
forget that an unsplit cell is measured again and lose a factor of two.

**Privacy**: post-processing of reports that were private before they left the device.
**Source**: docs/method/local.md, "AHEAD"; one axis, two axes (a quadtree), or more (DE).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog.base import COUNT
from dpsql.client.plan import Plan, View, largest_weight
from dpsql.errors import CatalogError, DataError
from dpsql.local.collector import CollectionManifest
from dpsql.local.content import local_estimate, local_meta, local_release
from dpsql.local.estimate import model_of
from dpsql.local.mechanisms.blue import ShareEstimate, System, ViewReports, blue, normsub, solve
from dpsql.local.mechanisms.priors import with_hidden
from dpsql.local.oracles import UnaryEncodingAggregator
from dpsql.local.oracles.oracle import OTHER, FloatArray, IntArray, estimate, spread
from dpsql.local.plan import CollectionDesign, plan_body, read_back
from dpsql.local.smooth import compatible, outside
from dpsql.local.survey import Survey, design_of
from dpsql.local.tallies import CountedCollection, enclosing
from dpsql.matrices.blocks import BoxReading, BoxVariance
from dpsql.matrices.channel import StackVariance
from dpsql.matrices.estimated import Smooth
from dpsql.matrices.model import PrefixVariance
from dpsql.release.write import Description, ReleaseBuilder, Statistic, assemble


class AheadRound(NamedTuple):
    """One round: boxes (cells, axes, 2) of half-open bounds, non-negative shares, reports, unbiased shares."""

    boxes: IntArray
    shares: FloatArray
    reports: float
    unbiased: FloatArray | None = None


def round_count(sizes: Sequence[int]) -> int:
    """Number of rounds, and of equal groups of people: log2 of the largest axis, rounded up."""
    return max(1, math.ceil(math.log2(max(sizes))))


def threshold(people: float, own: int, sizes: Sequence[int]) -> float:
    """theta = sqrt((B + 1) Var), Var of one cell in one round.

    Args:
        people: all people of all rounds.
        own: integer weight of the truth.
        sizes: leaves of each axis.

    Returns:
        The share above which a cell is split.
    """
    fan_out = 2 ** len(sizes)
    return math.sqrt((fan_out + 1) * spread(own) * round_count(sizes) / people)


def first_boxes(sizes: Sequence[int]) -> IntArray:
    """The first round's boxes: the whole domain split once along every axis."""
    domain = np.array([[[0, size] for size in sizes]], dtype=np.int64)
    return split(domain, np.ones(1, dtype=bool))


def split(boxes: IntArray, chosen: NDArray[np.bool_]) -> IntArray:
    """Halve the chosen boxes along every axis that is longer than one leaf; keep the others."""
    pieces = [boxes[~chosen]]
    grown = boxes[chosen]
    for axis in range(boxes.shape[1]):
        low, high = grown[:, axis, 0], grown[:, axis, 1]
        middle = (low + high) // 2
        left, right = grown.copy(), grown[middle > low].copy()
        left[:, axis, 1] = np.where(middle > low, middle, high)
        right[:, axis, 0] = middle[middle > low]
        grown = np.concatenate([left, right])
    pieces.append(grown)
    return np.concatenate(pieces)


def next_boxes(done: AheadRound, theta: float) -> IntArray:
    """The next round's boxes."""
    return split(done.boxes, done.shares > theta)


def close_round(boxes: IntArray, shares: FloatArray, reports: float) -> AheadRound:
    """Make a round's unbiased shares a proper histogram."""
    return AheadRound(boxes, normsub(shares), reports, shares)


def box_oracle(boxes: IntArray, own: int) -> UnaryEncodingAggregator:
    """AHEAD's oracle is OUE at every size, so that every round has the same variance."""
    return UnaryEncodingAggregator(len(boxes), own)


def finest_shares(rounds: Sequence[AheadRound]) -> FloatArray:
    """Shares of the last round's boxes from all rounds, by inverse variance under "shares sum to 1"."""
    last = rounds[-1].boxes
    size = len(last)
    precision, pull = np.zeros((size, size)), np.zeros(size)
    for done in rounds:
        inside = enclosing(last, done.boxes)
        precision += done.reports * (inside[:, None] == inside[None, :])
        pull += done.reports * done.shares[inside]
    return solve(System(precision, pull)).shares


EVEN, EVEN_MORE = 12.0, 3.0
"""A box of sum s is taken for even up to a variance of s^2 / EVEN of the part that a mask of variance 1 takes: half of
it then errs by 14% of s, as if its slope were drawn from all slopes that leave no leaf negative. Each further axis
divides EVEN by EVEN_MORE, down to 1, all of s in one place: of three axes 12 left 85 to 94% of intervals that cover."""
REDRAWS = 16
"""Redrawn rounds behind the errors of non-negative shares."""


def box_groups(rounds: Sequence[AheadRound], own: int) -> list[ViewReports]:
    """Every round as a group of reports about the last round's boxes."""
    last = rounds[-1].boxes
    groups = []
    for done in rounds:
        design = np.asarray(
            enclosing(last, done.boxes)[None, :] == np.arange(len(done.boxes))[:, None], np.float64
        )
        shares = done.shares if done.unbiased is None else done.unbiased
        groups.append(ViewReports(design, shares, done.reports, box_oracle(done.boxes, own)))
    return groups


def redrawn_errors(rounds: Sequence[AheadRound], own: int, rng: np.random.Generator) -> FloatArray:
    """Products of errors of `positive_boxes` when every round is redrawn around it, (boxes, boxes).

    Args:
        rounds: all rounds; their boxes stay as they are.
        own: integer weight of the truth.
        rng: source of pseudo-random numbers; this is post-processing and protects nobody.
    """
    shares, groups = normsub(finest_shares(rounds)), box_groups(rounds, own)
    total = np.zeros((shares.size, shares.size))
    for _ in range(REDRAWS):
        again = []
        for done, group in zip(rounds, groups, strict=True):
            cells = group.design @ shares
            noise = np.sqrt(group.oracle.structure(cells).diagonal / done.reports)
            again.append(
                close_round(done.boxes, cells + noise * rng.standard_normal(cells.size), done.reports)
            )
        off = normsub(finest_shares(again)) - shares
        total += np.outer(off, off) / REDRAWS
    return total


def spread_evenly(boxes: IntArray, shares: FloatArray, sizes: Sequence[int]) -> FloatArray:
    """Leaf shares when each box is even inside, shape `sizes`."""
    leaves = np.zeros(tuple(sizes))
    for box, share in zip(boxes, shares, strict=True):
        leaves[tuple(slice(lo, hi) for lo, hi in box)] = share / np.prod(box[:, 1] - box[:, 0])
    return leaves


def rounds_design(survey: Survey, people: int, label: str = "", simulated: bool = False) -> CollectionDesign:
    """The adaptive collection of a catalog with `kind: ahead`.

    Raises:
        CatalogError: not one view of counts, or people with several rows.
    """
    design, views = design_of(survey, people, label), list(survey.views.values())
    if len(views) != 1 or survey.measures:
        raise CatalogError(
            "`kind: ahead` asks about one view of counts",
            hint="write a catalog for each view, or leave kind out",
        )
    if design.rows_floor < 1:
        raise CatalogError(
            f"`kind: ahead` asks about one row a person, and a person may have several of `{survey.of}`",
            hint="make the row the unit, or leave kind out",
        )
    return replace(design, simulated=simulated or design.simulated)


def first_plan(design: CollectionDesign) -> bytes:
    """The plan of round 0: every axis split once.

    Args:
        design: of which an adaptive collection has identity, epsilon (what one person gives, in the one round it
            answers), people (of all rounds together; they set the threshold), axes (cells grow by 2^axes where they
            are split), and what is for the collector alone.

    Raises:
        CatalogError: if there is no axis.
    """
    if not design.axes:
        raise CatalogError("an adaptive collection needs an axis")
    sizes = [axis.leaves for axis in design.axes]
    truth_weight = largest_weight(design.epsilon)
    body: dict[str, Any] = {
        "dpsql_plan": 1,
        "collection": design.collection,
        "epsilon": str(design.epsilon),
        "own": truth_weight,
        "other": OTHER,
        "tau": 1,
        "rows_floor": 1,
        "rows_cap": 2,
        "round": 0,
        "rounds": round_count(sizes),
        "threshold": threshold(design.people, truth_weight, sizes),
        "axes": [axis.body() for axis in design.axes],
        "measures": [],
        "views": [_view(first_boxes(sizes)).body()],
        "earlier": [],
    }
    body |= {} if design.catalog is None else {"catalog": design.catalog}
    body |= {"simulated": True} if design.simulated else {}
    return read_back(body)


def is_adaptive(plan: Plan) -> bool:
    """True if a plan is a round of an adaptive collection."""
    return "earlier" in plan_body(plan)


def earlier_rounds(plan: Plan) -> list[AheadRound]:
    """The rounds before a plan's, from the tallies that it carries."""
    rounds = []
    for round_body in plan_body(plan)["earlier"]:
        boxes = np.array(round_body["boxes"], dtype=np.int64).reshape(len(round_body["boxes"]), -1, 2)
        raw = estimate(
            box_oracle(boxes, plan.own),
            np.array(round_body["support"], dtype=np.float64),
            round_body["reports"],
        )
        rounds.append(close_round(boxes, raw, float(round_body["reports"])))
    return rounds


def after_round(collection: CountedCollection) -> bytes:
    """The plan of the round after one whose reports were counted: boxes above the threshold split along every axis.

    Raises:
        DataError: there is no round after it, or no report was accepted.

    **Privacy**: a function of reports that are private already; the people asked next have not answered before.
    """
    done, plan, tally = round_of(collection), collection.plan, collection.tallies[0]
    if plan.round + 1 >= plan.rounds:
        raise DataError(
            f"round {plan.rounds} was the last",
            hint="make the release: dpsql collect PLAN REPORTS -o RELEASE",
        )
    body = plan_body(plan)
    view = _view(next_boxes(done, float(body["threshold"])))
    counted = {
        "plan": plan.hash.hex(),
        "boxes": [list(box) for box in plan.views[0].boxes],
        "support": [int(v) for v in tally.support.sum(axis=0)],
        "reports": tally.total,
    }
    earlier = [*body["earlier"], counted]
    return read_back({**body, "round": plan.round + 1, "views": [view.body()], "earlier": earlier})


def round_of(collection: CountedCollection) -> AheadRound:
    """Reports of one round as a proper histogram over its boxes.

    Raises:
        DataError: if no report of this round was accepted.
    """
    if collection.accepted == 0:
        raise DataError("no report of this round was accepted")
    listed = collection.plan.views[0].boxes
    boxes = np.array(listed, dtype=np.int64).reshape(len(listed), -1, 2)
    return close_round(boxes, collection.shares(0), float(collection.accepted))


def _view(boxes: np.ndarray) -> View:
    """Boxes of every axis, by AHEAD's oracle."""
    oracle = box_oracle(boxes, 0)
    listed = tuple(tuple(box) for box in boxes.reshape(len(boxes), -1).tolist())
    axes = tuple(range(boxes.shape[1]))
    return View("boxes", axes, (), listed, oracle=oracle.name, domain=oracle.domain)


def boxes_of(collection: CountedCollection) -> tuple[list[AheadRound], ShareEstimate, FloatArray, FloatArray]:
    """Estimates of all rounds about the boxes of the last one.

    Returns:
        The rounds; the boxes' shares and covariance; AHEAD's own shares; the variance of a part of each box that a mask
        of variance 1 takes.

    Raises:
        DataError: the plan is not of the last round, or no report of it was accepted.
    """
    plan = collection.plan
    if plan.round + 1 < plan.rounds:
        raise DataError(
            f"this is round {plan.round + 1} of {plan.rounds}; a release is made of the last one",
            hint="make the next plan: dpsql collection-plan CATALOG REPORTS --after PLAN -o NEXT",
        )
    rounds = [*earlier_rounds(plan), round_of(collection)]
    # Boxes follow from reports of other people, so given the boxes every round is unbiased.
    unbiased, positive = blue(box_groups(rounds, plan.own)), normsub(finest_shares(rounds))
    even = max(EVEN / EVEN_MORE ** (len(plan.axes) - 1), 1.0)
    return rounds, unbiased, positive, np.maximum(unbiased.shares, positive) ** 2 / even


def adaptive_content(
    survey: Survey, collection: CountedCollection, manifest: CollectionManifest, release_id: str
) -> ReleaseBuilder:
    """All that the release file of an adaptive collection will hold."""
    (rounds, final, own_shares, within), plan = boxes_of(collection), collection.plan
    ((view, (view_axes, _)),) = survey.views.items()
    sizes, people = [survey.axes[a].leaves for a in view_axes], sum(r.reports for r in rounds)
    bounds = rounds[-1].boxes
    box_variance = BoxVariance(bounds, final.covariance * people**2, within * people**2)
    values = spread_evenly(bounds, final.shares, sizes) * people
    positive = spread_evenly(bounds, own_shares, sizes)
    margins = [_margin(box_variance, sizes, place) for place in range(len(sizes))]
    words = f"AHEAD, {plan.rounds} rounds"
    flagged = {}
    if len(view_axes) == 1:
        name, total = survey.axes[view_axes[0]].name, float(margins[0].sum())
        unbiased = ShareEstimate(values, margins[0])
        flagged = {name: outside(positive * people, unbiased)}
        errors = _positive_errors(plan, rounds, positive * people, box_variance, margins[0])
        smooth = Smooth(positive * people, errors, compatible(positive * people, unbiased))
        estimated = local_estimate(values, {(): total, (0,): 1.0}, words, smooth)
    else:
        positions = tuple(range(len(view_axes)))
        estimated = replace(
            local_estimate(values, {positions: 1.0}, words, Smooth(positive * people, None, False)),
            reading=BoxReading.name,
            model=box_variance,
        )
    described = Description(view, survey.of, COUNT, view_axes, 1, plan.epsilon, "epsilon", family=None)
    local = replace(
        local_meta(survey, plan, manifest),
        people=round(people),
        smooth_outside_unbiased=flagged or None,
        rounds=plan.rounds,
        boxes=len(bounds),
    )
    statistics, models = [Statistic(described, estimated)], [PrefixVariance(margin) for margin in margins]
    return local_release(
        survey,
        [plan],
        plan_body(plan).get("catalog"),
        lambda trees: assemble(statistics, models, trees),
        local,
        release_id,
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
    plan: Plan,
    rounds: Sequence[AheadRound],
    positive: FloatArray,
    box_variance: BoxVariance,
    unbiased: FloatArray,
) -> StackVariance:
    """Errors of AHEAD's histogram of one axis: redrawn rounds, and a part of the unbiased ones."""
    people = float(positive.sum())
    rng = np.random.default_rng(int.from_bytes(plan.hash, "big"))
    again = redrawn_errors(rounds, plan.own, rng) * people**2
    redrawn = _margin(BoxVariance(box_variance.bounds, again, 0 * box_variance.within), [positive.size], 0)
    noise = _margin(
        BoxVariance(box_variance.bounds, box_variance.sums, 0 * box_variance.within), [positive.size], 0
    )
    refits = with_hidden(redrawn, noise)
    inside = unbiased - noise
    return StackVariance(refits.covariance + inside, unbiased, positive, refits.small, refits.large)
