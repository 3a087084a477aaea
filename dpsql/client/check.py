"""Refusing a plan: every number that a draw depends on is checked before the first draw.

What a plan gets wrong is found here, where no row is looked at, and never while answering: a device that failed for
some rows and not for others would tell them by its silence. So no draw of a checked plan can fail.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from dpsql.client.entropy import LARGEST_BOUND
from dpsql.client.kinds import whole
from dpsql.client.oracles import LARGEST_DOMAIN
from dpsql.errors import DataError

if TYPE_CHECKING:
    from dpsql.client.plan import Axis, Measure, Plan, View

LARGEST_COUNT = 1 << 16
LARGEST_VALUE = 1 << 53
"""Beyond it a JavaScript number is no exact integer."""
GRAINS = ("second", "minute", "hour", "day")
SPECIAL = ("null_leaf", "missing_leaf", "other_leaf")


def check_plan(plan: Plan) -> None:
    """Refuse a plan that contradicts itself or that some device could not answer.

    Args:
        plan: as read; its weight against its epsilon is `read_plan`'s business.

    Raises:
        DataError: with what is wrong.
    """
    if type(plan.collection) is not str or not plan.collection:
        raise DataError("the plan does not name its collection", hint="ask for a new plan")
    if not (
        whole(plan.own, plan.tau, plan.rows_floor, plan.rows_cap)
        and 1 <= plan.tau <= LARGEST_COUNT
        and 0 <= plan.rows_floor < plan.rows_cap <= LARGEST_COUNT
    ):
        raise DataError("the plan's row bounds are not valid", hint="ask for a new plan")
    _check_rounds(plan)
    for axis in plan.axes:
        if not _axis_sound(axis):
            raise DataError("an axis of the plan contradicts itself", hint="ask for a new plan")
    for measure in plan.measures:
        if not _measure_sound(measure):
            raise DataError("a measure of the plan has no sound bounds", hint="ask for a new plan")
    for view in plan.views:
        if not (_view_sound(plan, view) and _draws_sound(plan, view)):
            raise DataError("a view of the plan contradicts itself", hint="ask for a new plan")
    shares = [view.share for view in plan.views]
    if len(shares) > LARGEST_COUNT or not 1 <= sum(shares) <= LARGEST_BOUND:
        raise DataError("the plan's views have no sound shares", hint="ask for a new plan")


def _check_rounds(plan: Plan) -> None:
    shares = plan.round_shares
    sound = whole(plan.round, plan.rounds, *shares)
    if not (sound and 0 <= plan.round < plan.rounds <= LARGEST_BOUND):
        raise DataError("the plan's round is not one of its rounds", hint="ask for a new plan")
    if shares and (len(shares) != plan.rounds or min(shares) < 1 or sum(shares) > LARGEST_BOUND):
        raise DataError("the plan's rounds have no sound shares", hint="ask for a new plan")


def _axis_sound(axis: Axis) -> bool:
    """Leaves, and a look-up that names leaves of the axis alone."""
    leaves, lookup = axis.leaves, axis.lookup
    starts, values, keys = lookup.get("starts", [0]), lookup.get("values", []), lookup.get("keys", {})
    named = [lookup[kind] for kind in SPECIAL if lookup.get(kind) is not None] + list(keys.values())
    return (
        type(axis.name) is str
        and type(lookup.get("key", "")) is str
        and whole(leaves, *named)
        and 1 <= leaves <= LARGEST_DOMAIN
        and all(0 <= leaf < leaves for leaf in named)
        and type(values) is list
        and all(type(text) is str for text in values)
        and len(values) <= leaves
        and whole(*starts, lookup.get("upper", starts[-1]), lookup.get("lower", 0), lookup.get("width", 1))
        and all(a < b for a, b in pairwise(starts))
        and len(starts) <= leaves
        and lookup.get("width", 1) >= 1
        and whole(lookup.get("scale", 0))
        and 0 <= lookup.get("scale", 0) <= 18
        and lookup.get("grain", "second") in GRAINS
    )


def _measure_sound(measure: Measure) -> bool:
    return (
        type(measure.name) is str
        and whole(measure.lower, measure.upper, measure.scale)
        and -LARGEST_VALUE <= measure.lower < measure.upper <= LARGEST_VALUE
        and measure.upper - measure.lower <= LARGEST_BOUND
        and 0 <= measure.scale <= 18
    )


def _view_sound(plan: Plan, view: View) -> bool:
    """Names, types and positions, and cells that lie on the view's axes."""
    return (
        type(view.empty) is bool
        and whole(*view.axes, view.domain, view.extra, view.share)
        and all(0 <= a < len(plan.axes) for a in view.axes)
        and (view.measure is None or (whole(view.measure) and 0 <= view.measure < len(plan.measures)))
        and view.share >= 0
        and view.asks.silent == view.perturbs.silent
        and view.asks.sound(view, [plan.axes[a].leaves for a in view.axes])
    )


def _draws_sound(plan: Plan, view: View) -> bool:
    """A domain that is the view's, and bounds that `below` can draw from."""
    return (
        1 <= view.domain <= LARGEST_DOMAIN
        and view.domain == view.asks.items(view, plan.rows_cap)
        and view.perturbs.sound(plan.own)
    )
