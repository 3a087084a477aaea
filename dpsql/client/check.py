"""Refusing a plan: every number that a draw depends on is checked before the first draw.

What a plan gets wrong is found here, where no row is looked at, and never while answering: a device that failed for
some rows and not for others would tell them by its silence. So no draw of a checked plan can fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dpsql.client.entropy import LARGEST_BOUND
from dpsql.client.perturb import OTHER
from dpsql.client.report import ORACLES
from dpsql.errors import DataError

if TYPE_CHECKING:
    from dpsql.client.plan import Plan, View

LARGEST_DOMAIN = 1 << 24
LARGEST_COUNT = 1 << 16
LARGEST_VALUE = 1 << 53
"""Beyond it a JavaScript number is no exact integer."""
KINDS = ("grid", "boxes", "wave", "rows", "rows_bit")
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
        if not (_view_sound(plan, view) and _cells_sound(plan, view) and _draws_sound(plan, view)):
            raise DataError("a view of the plan contradicts itself", hint="ask for a new plan")
    shares = [view.share for view in plan.views]
    if len(shares) > LARGEST_COUNT or not 1 <= sum(shares) <= LARGEST_BOUND:
        raise DataError("the plan's views have no sound shares", hint="ask for a new plan")


def whole(*numbers: object) -> bool:
    """Whether all are integers: 2.0 and true are not.

    Example:
        >>> whole(1, 2), whole(2.0), whole(True)
        (True, False, False)
    """
    return all(type(n) is int for n in numbers)


def items(plan: Plan, view: View) -> int:
    """Count a view's items: cells, twice with a measure bit, and "no row" where it can occur."""
    if view.kind == "rows":
        return plan.rows_cap + 1
    if view.kind == "rows_bit":
        return 2
    both = view.cells * (2 if view.measure is not None else 1)
    return both + int(view.empty and view.kind != "wave")


def _check_rounds(plan: Plan) -> None:
    shares = plan.round_shares
    sound = whole(plan.round, plan.rounds, *shares)
    if not (sound and 0 <= plan.round < plan.rounds <= LARGEST_BOUND):
        raise DataError("the plan's round is not one of its rounds", hint="ask for a new plan")
    if shares and (len(shares) != plan.rounds or min(shares) < 1 or sum(shares) > LARGEST_BOUND):
        raise DataError("the plan's rounds have no sound shares", hint="ask for a new plan")


def _axis_sound(axis: Mapping[str, Any]) -> bool:
    """Leaves, and a look-up that names leaves of the axis alone."""
    leaves, starts, values = axis["leaves"], axis.get("starts", [0]), axis.get("values", [])
    keys = axis.get("keys", {})
    named = [axis[kind] for kind in SPECIAL if axis.get(kind) is not None] + list(keys.values())
    return (
        type(axis["name"]) is str
        and type(axis.get("key", "")) is str
        and whole(leaves, *named)
        and 1 <= leaves <= LARGEST_DOMAIN
        and all(0 <= leaf < leaves for leaf in named)
        and type(values) is list
        and all(type(text) is str for text in values)
        and len(values) <= leaves
        and whole(*starts, axis.get("upper", starts[-1]), axis.get("lower", 0), axis.get("width", 1))
        and all(a < b for a, b in pairwise(starts))
        and len(starts) <= leaves
        and axis.get("width", 1) >= 1
        and whole(axis.get("scale", 0))
        and 0 <= axis.get("scale", 0) <= 18
        and axis.get("grain", "second") in GRAINS
    )


def _measure_sound(measure: Mapping[str, Any]) -> bool:
    lower, upper, scale = measure["lower"], measure["upper"], measure["scale"]
    return (
        type(measure["name"]) is str
        and whole(lower, upper, scale)
        and -LARGEST_VALUE <= lower < upper <= LARGEST_VALUE
        and upper - lower <= LARGEST_BOUND
        and 0 <= scale <= 18
    )


def _view_sound(plan: Plan, view: View) -> bool:
    """Names, types and positions."""
    measured = view.measure is not None
    return (
        view.kind in KINDS
        and type(view.empty) is bool
        and whole(*view.axes, view.domain, view.extra, view.share)
        and all(0 <= a < len(plan.axes) for a in view.axes)
        and (not measured or (whole(view.measure) and 0 <= view.measure < len(plan.measures)))  # type: ignore[operator]
        and view.share >= 0
        and view.oracle in ORACLES
        and (view.oracle == "WAVE") == (view.kind == "wave")
        and (view.kind != "wave" or (not measured and len(view.axes) == 1))
    )


def _cells_sound(plan: Plan, view: View) -> bool:
    """Cells that lie on the view's axes; a row that no box holds is no row (`device`)."""
    sizes = [plan.axes[a]["leaves"] for a in view.axes]
    if view.kind in ("grid", "wave"):
        return len(view.edges) == len(sizes) and all(
            whole(*e) and e[0] == 0 and e[-1] == size and all(a < b for a, b in pairwise(e))
            for e, size in zip(view.edges, sizes, strict=True)
        )
    if view.kind == "boxes":
        return all(whole(*box) and len(box) == 2 * len(sizes) for box in view.boxes)
    return True


def _draws_sound(plan: Plan, view: View) -> bool:
    """A domain that is the view's, and bounds that `below` can draw from."""
    if not 1 <= view.domain <= LARGEST_DOMAIN or view.domain != items(plan, view):
        return False
    if view.oracle == "OLH":
        return 2 <= view.extra <= LARGEST_DOMAIN
    if view.oracle == "WAVE":
        near = 2 * view.extra + 1
        return view.extra >= 0 and near * plan.own + (view.domain - 1) * OTHER <= LARGEST_BOUND
    return True
