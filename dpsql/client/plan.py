"""Reading a collection plan on the device, and refusing one that would cost more than it says.

A plan is public canonical JSON (sorted keys, no spaces); its hash is the first eight bytes of SHA-256 over
the file's bytes. The device trusts nothing in it: weights, domains and bounds are checked before any draw.
"""

from __future__ import annotations

import decimal
import hashlib
import json
import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from dpsql.client.perturb import OTHER
from dpsql.client.report import ORACLES
from dpsql.errors import DataError, PrivacyError

LARGEST_DOMAIN = 1 << 24
LARGEST_DRAW = 1 << 48


@dataclass(frozen=True)
class View:
    """One table of cells that a person may be drawn to report on.

    Args:
        kind: `grid` (edges per axis), `boxes`, `wave` (one axis), `rows` (how many rows the person has), or
            `rows_bit` (the same, rounded stochastically to one bit).
        axes: positions of the plan's axes.
        edges: per axis, increasing cell boundaries from 0 to the axis's leaves (grid, wave).
        boxes: per cell, (lo, hi) of each axis, flattened (boxes).
        measure: position of the plan's measure whose bit is part of the item, or None.
        empty: whether "no row" is an item.
        oracle: GRR, OUE, OLH or WAVE.
        domain: number of items.
        extra: OLH buckets or Square Wave reach, else 0.
        share: integer weight of this view in the draw.
    """

    kind: str
    axes: tuple[int, ...]
    edges: tuple[tuple[int, ...], ...]
    boxes: tuple[tuple[int, ...], ...]
    measure: int | None
    empty: bool
    oracle: str
    domain: int
    extra: int
    share: int

    @property
    def cells(self) -> int:
        """Number of cells, without measure bit and "no row"."""
        if self.kind == "boxes":
            return len(self.boxes)
        return math.prod(len(e) - 1 for e in self.edges)


@dataclass(frozen=True)
class Plan:
    """A checked plan. `raw` holds the exact bytes that were hashed; `epsilon` is an exact fraction.

    `round_shares` are integer weights of the rounds in a device's draw of its round; none: all alike.
    """

    raw: bytes
    collection: str
    epsilon: Fraction
    own: int
    tau: int
    rows_floor: int
    rows_cap: int
    round: int
    rounds: int
    axes: tuple[dict[str, Any], ...]
    measures: tuple[dict[str, Any], ...]
    views: tuple[View, ...]
    round_shares: tuple[int, ...] = ()

    @property
    def hash(self) -> bytes:
        """First eight bytes of SHA-256 over the plan's bytes."""
        return hashlib.sha256(self.raw).digest()[:8]


def largest_weight(epsilon: Fraction) -> int:
    """Return floor(e^epsilon 2^20), with sixty decimal digits behind it.

    Example:
        >>> largest_weight(Fraction(1))
        2850325
    """
    with decimal.localcontext() as context:
        context.prec = 60
        exponent = decimal.Decimal(epsilon.numerator) / decimal.Decimal(epsilon.denominator)
        return int(exponent.exp() * OTHER)


def read_plan(raw: bytes) -> Plan:
    """Read a plan and check every number a draw depends on.

    Args:
        raw: the plan file's bytes.

    Returns:
        The checked plan.

    Raises:
        DataError: if it is not a plan of version 1 or contradicts itself.
        PrivacyError: if its weights cost more than its epsilon.

    **Privacy**: own / 2^20 <= e^epsilon holds exactly for every plan this returns.
    """
    try:
        plan = _read(raw)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise DataError("not a collection plan of version 1") from error
    if not 0 < plan.epsilon <= 16:
        raise PrivacyError("the plan's epsilon is outside (0, 16]", hint="do not take part")
    if not OTHER < plan.own <= largest_weight(plan.epsilon):
        raise PrivacyError("the plan's weight costs more than its epsilon", hint="do not take part")
    _check_rounds(plan)
    for view in plan.views:
        _check_view(plan, view)
    return plan


def _read(raw: bytes) -> Plan:
    body = json.loads(raw)
    if body["dpsql_plan"] != 1 or body["other"] != OTHER:
        raise ValueError("another version")
    views = tuple(
        View(
            v["kind"],
            tuple(v["axes"]),
            tuple(map(tuple, v["edges"])),
            tuple(map(tuple, v["boxes"])),
            v["measure"],
            v["empty"],
            v["oracle"],
            v["domain"],
            v["extra"],
            v["share"],
        )
        for v in body["views"]
    )
    return Plan(
        raw,
        body["collection"],
        Fraction(body["epsilon"]),
        body["own"],
        body["tau"],
        body["rows_floor"],
        body["rows_cap"],
        body["round"],
        body["rounds"],
        tuple(body["axes"]),
        tuple(body["measures"]),
        views,
        tuple(body.get("round_shares", ())),
    )


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
    whole = all(type(s) is int for s in (plan.round, plan.rounds, *shares))
    if not (whole and 0 <= plan.round < plan.rounds <= LARGEST_DRAW):
        raise DataError("the plan's round is not one of its rounds", hint="ask for a new plan")
    if shares and (len(shares) != plan.rounds or min(shares) < 1 or sum(shares) > LARGEST_DRAW):
        raise DataError("the plan's rounds have no sound shares", hint="ask for a new plan")


def _check_view(plan: Plan, view: View) -> None:
    sizes = [plan.axes[a]["leaves"] for a in view.axes]
    sound = (
        view.oracle in ORACLES
        and (view.oracle == "WAVE") == (view.kind == "wave")
        and 1 <= view.domain <= LARGEST_DOMAIN
        and view.domain == items(plan, view)
        and view.share >= 0
        and (view.oracle != "OLH" or view.extra >= 2)
        and (view.kind != "wave" or (view.extra >= 0 and view.measure is None and len(view.axes) == 1))
        and 1 <= plan.tau <= 1 << 16
        and 0 <= plan.rows_floor < plan.rows_cap <= 1 << 16
    )
    if view.kind in ("grid", "wave"):
        sound = (
            sound
            and len(view.edges) == len(sizes)
            and all(
                e[0] == 0 and e[-1] == size and all(a < b for a, b in pairwise(e))
                for e, size in zip(view.edges, sizes, strict=True)
            )
        )
    elif view.kind == "boxes":
        sound = sound and all(len(b) == 2 * len(sizes) for b in view.boxes)
    elif view.kind not in ("rows", "rows_bit"):
        sound = False
    if view.measure is not None:
        measure = plan.measures[view.measure]
        sound = sound and measure["lower"] < measure["upper"]
    if not sound:
        raise DataError("a view of the plan contradicts itself", hint="ask for a new plan")
