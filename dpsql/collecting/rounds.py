"""An adaptive collection in rounds: each plan asks other people about finer boxes where the last round found many.

A device draws its round when it first meets the collection and answers in that round only, with all of epsilon.
**Source**: docs/method/local.md, "AHEAD"; one axis, two axes (a quadtree), or more (DE).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.client.plan import Plan, largest_weight, read_plan
from dpsql.collecting.plan import PlannedAxis, canonical, plan_body
from dpsql.collecting.tallies import ViewTally, shares
from dpsql.errors import CatalogError, DataError
from dpsql.mechanisms.local.ahead import (
    Round,
    close_round,
    finest_shares,
    first_boxes,
    next_boxes,
    round_count,
    spread_evenly,
    threshold,
)
from dpsql.mechanisms.oracles.oracle import OTHER, FloatArray


@dataclass(frozen=True)
class RoundsDesign:
    """An adaptive collection.

    Args:
        collection: identity that a device remembers.
        epsilon: what one person gives, in the one round it answers.
        people: how many are expected in all rounds together; sets the threshold.
        axes: one axis or a few; cells grow by 2^axes where they are split.
    """

    collection: str
    epsilon: Fraction
    people: int
    axes: tuple[PlannedAxis, ...]


def first_plan(design: RoundsDesign) -> bytes:
    """The plan of round 0: every axis split once.

    Raises:
        CatalogError: if there is no axis.
    """
    if not design.axes:
        raise CatalogError("an adaptive collection needs an axis")
    sizes = [axis.leaves for axis in design.axes]
    own = largest_weight(design.epsilon)
    body: dict[str, Any] = {
        "dpsql_plan": 1,
        "collection": design.collection,
        "epsilon": str(design.epsilon),
        "own": own,
        "other": OTHER,
        "tau": 1,
        "rows_floor": 1,
        "rows_cap": 2,
        "round": 0,
        "rounds": round_count(sizes),
        "threshold": threshold(design.people, own, sizes),
        "axes": [{**a.lookup, "name": a.name, "leaves": a.leaves, "smooth": a.smooth} for a in design.axes],
        "measures": [],
        "views": [_view(first_boxes(sizes), len(sizes))],
    }
    return _checked(body)


def round_of(plan: Plan, tally: ViewTally) -> Round:
    """What one round's reports say: its boxes' shares as a proper histogram.

    Raises:
        DataError: if no report of this round was accepted.
    """
    if tally.total == 0:
        raise DataError("no report of this round was accepted")
    boxes = np.array(plan.views[0].boxes, dtype=np.int64).reshape(len(plan.views[0].boxes), -1, 2)
    return close_round(boxes, shares(plan, 0, tally), float(tally.total))


def next_plan(plan: Plan, done: Round) -> bytes | None:
    """The plan of the next round, or None after the last.

    Args:
        plan: the plan of the round that is done.
        done: from `round_of`.

    Returns:
        Plan bytes; boxes with a share above the threshold are split along every axis.

    **Privacy**: a function of reports that are private already; the people asked next have not answered before.
    """
    if plan.round + 1 >= plan.rounds:
        return None
    body = plan_body(plan)
    boxes = next_boxes(done, float(body["threshold"]))
    return _checked({**body, "round": plan.round + 1, "views": [_view(boxes, len(plan.axes))]})


def leaf_shares(plan: Plan, rounds: Sequence[Round]) -> FloatArray:
    """Leaf shares from all rounds by inverse variance; even inside the finest boxes."""
    sizes = [axis["leaves"] for axis in plan.axes]
    return spread_evenly(rounds[-1].boxes, finest_shares(rounds), sizes)


def _view(boxes: np.ndarray, axes: int) -> dict[str, Any]:
    return {
        "kind": "boxes",
        "axes": list(range(axes)),
        "edges": [],
        "boxes": boxes.reshape(len(boxes), -1).tolist(),
        "measure": None,
        "empty": False,
        "oracle": "OUE",
        "domain": len(boxes),
        "extra": 0,
        "share": 1,
    }


def _checked(body: dict[str, Any]) -> bytes:
    raw = canonical(body)
    read_plan(raw)
    return raw
