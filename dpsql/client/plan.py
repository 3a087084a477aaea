"""Reading a collection plan on the device, and refusing one that would cost more than it says.

A plan is public canonical JSON (sorted keys, no spaces); its hash is the first eight bytes of SHA-256 over
the file's bytes. The device trusts nothing in it: weights, domains and bounds are checked before any draw (`check`).
"""

from __future__ import annotations

import decimal
import hashlib
import json
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpsql.client.check import check_plan
from dpsql.client.perturb import OTHER
from dpsql.errors import DataError, PrivacyError

EPSILON = re.compile(r"[0-9]{1,40}(?:[./][0-9]{1,40})?")
"""A decimal or a fraction; an exponent could ask for more digits than a device holds."""
SHORT = decimal.Decimal(10) ** -60
"""What the exponential may be too large by, relatively: a weight is rounded down by it first."""


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
    """Return floor(e^epsilon 2^20), never more: eighty digits are computed and sixty relied on.

    Example:
        >>> largest_weight(Fraction(1))
        2850325
    """
    with decimal.localcontext() as context:
        context.prec = 80
        exponent = decimal.Decimal(epsilon.numerator) / decimal.Decimal(epsilon.denominator)
        return int(exponent.exp() * OTHER * (1 - SHORT))


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
        _check_weight(plan)
        check_plan(plan)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise DataError("not a collection plan of version 1") from error
    return plan


def _check_weight(plan: Plan) -> None:
    if not 0 < plan.epsilon <= 16:
        raise PrivacyError("the plan's epsilon is outside (0, 16]", hint="do not take part")
    if not OTHER < plan.own <= largest_weight(plan.epsilon):
        raise PrivacyError("the plan's weight costs more than its epsilon", hint="do not take part")


def _read(raw: bytes) -> Plan:
    body = json.loads(raw)
    if body["dpsql_plan"] != 1 or body["other"] != OTHER:
        raise ValueError("another version")
    if EPSILON.fullmatch(body["epsilon"]) is None:
        raise ValueError("epsilon is no decimal and no fraction")
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
