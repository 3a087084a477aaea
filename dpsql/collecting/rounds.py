"""An adaptive collection in rounds: each plan asks other people about finer boxes where the last round found many.

A device draws its round when it first meets the collection and answers in that round only, with all of epsilon. A plan
carries the tallies of the rounds before, so the last plan and its reports make the release (`adaptive`).
**Source**: docs/method/local.md, "AHEAD"; one axis, two axes (a quadtree), or more (DE).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.client.plan import Plan, View, largest_weight, read_plan
from dpsql.collecting.plan import PlannedAxis, canonical, facts_of, plan_body
from dpsql.collecting.survey import Survey, design_of
from dpsql.collecting.tallies import ViewTally, shares
from dpsql.errors import CatalogError, DataError
from dpsql.mechanisms.local.ahead import (
    AheadRound,
    box_oracle,
    close_round,
    finest_shares,
    first_boxes,
    next_boxes,
    round_count,
    spread_evenly,
    threshold,
)
from dpsql.mechanisms.oracles.oracle import OTHER, FloatArray, estimate


@dataclass(frozen=True)
class RoundsDesign:
    """An adaptive collection.

    Args:
        collection: identity that a device remembers.
        epsilon: what one person gives, in the one round it answers.
        people: how many are expected in all rounds together; sets the threshold.
        axes: one axis or a few; cells grow by 2^axes where they are split.
        catalog: the catalog, as JSON, for the collector.
        simulated: whether to mark the plan as simulated.
    """

    collection: str
    epsilon: Fraction
    people: int
    axes: tuple[PlannedAxis, ...]
    catalog: Mapping[str, Any] | None = None
    simulated: bool = False


def rounds_design(survey: Survey, people: int, label: str = "", simulated: bool = False) -> RoundsDesign:
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
    return RoundsDesign(
        design.collection, design.epsilon, people, design.axes, design.catalog, simulated or design.simulated
    )


def first_plan(design: RoundsDesign) -> bytes:
    """The plan of round 0: every axis split once.

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
    return _checked(body)


def is_adaptive(plan: Plan) -> bool:
    """Whether a plan is a round of an adaptive collection."""
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


def after_round(plan: Plan, tally: ViewTally) -> bytes:
    """The plan of the round after one whose reports were counted.

    Raises:
        DataError: there is no round after it, or no report was accepted.
    """
    raw = next_plan(plan, round_of(plan, tally), tally)
    if raw is None:
        raise DataError(
            f"round {plan.rounds} was the last",
            hint="make the release: dpsql collect PLAN REPORTS -o RELEASE",
        )
    return raw


def round_of(plan: Plan, tally: ViewTally) -> AheadRound:
    """What one round's reports say: its boxes' shares as a proper histogram.

    Raises:
        DataError: if no report of this round was accepted.
    """
    if tally.total == 0:
        raise DataError("no report of this round was accepted")
    boxes = np.array(plan.views[0].boxes, dtype=np.int64).reshape(len(plan.views[0].boxes), -1, 2)
    return close_round(boxes, shares(plan, 0, tally), float(tally.total))


def next_plan(plan: Plan, done: AheadRound, tally: ViewTally | None = None) -> bytes | None:
    """The plan of the next round, or None after the last.

    Args:
        plan: the plan of the round that is done.
        done: from `round_of`.
        tally: the round's reports, which the next plan carries.

    Returns:
        Plan bytes; boxes with a share above the threshold are split along every axis.

    **Privacy**: a function of reports that are private already; the people asked next have not answered before.
    """
    if plan.round + 1 >= plan.rounds:
        return None
    view = _view(next_boxes(done, facts_of(plan).threshold))
    body, earlier = plan_body(plan), []
    if tally is not None:
        support = [int(v) for v in tally.support.sum(axis=0)]
        boxes = [list(box) for box in plan.views[0].boxes]
        earlier = [{"plan": plan.hash.hex(), "boxes": boxes, "support": support, "reports": tally.total}]
    carried = [*body["earlier"], *earlier]
    return _checked({**body, "round": plan.round + 1, "views": [view.body()], "earlier": carried})


def leaf_shares(plan: Plan, rounds: Sequence[AheadRound]) -> FloatArray:
    """Leaf shares from all rounds by inverse variance; even inside the finest boxes."""
    sizes = [axis.leaves for axis in plan.axes]
    return spread_evenly(rounds[-1].boxes, finest_shares(rounds), sizes)


def _view(boxes: np.ndarray) -> View:
    """Boxes of every axis, by AHEAD's oracle."""
    oracle = box_oracle(boxes, 0)
    listed = tuple(tuple(box) for box in boxes.reshape(len(boxes), -1).tolist())
    axes = tuple(range(boxes.shape[1]))
    return View("boxes", axes, (), listed, oracle=oracle.name, domain=oracle.domain)


def _checked(body: dict[str, Any]) -> bytes:
    raw = canonical(body)
    read_plan(raw)
    return raw
