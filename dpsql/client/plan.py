"""Reading a collection plan on the device, and refusing one that would cost more than it says.

A plan is public canonical JSON (sorted keys, no spaces); its hash is the first eight bytes of SHA-256 over
the file's bytes. The device trusts nothing in it: weights, domains and bounds are checked before any draw (`check`).
"""

from __future__ import annotations

import decimal
import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

from dpsql.client.check import check_plan
from dpsql.client.kinds import KINDS, Kind
from dpsql.client.oracles import DeviceOracle, device_oracle
from dpsql.client.perturb import OTHER
from dpsql.errors import DataError, PrivacyError

EPSILON = re.compile(r"[0-9]{1,40}(?:[./][0-9]{1,40})?")
"""A decimal or a fraction; an exponent could ask for more digits than a device holds."""
SHORT = decimal.Decimal(10) ** -60
"""What the exponential may be too large by, relatively: a weight is rounded down by it first."""


@dataclass(frozen=True)
class Axis:
    """One axis of a plan.

    Args:
        name: as SQL and devices call it.
        leaves: number of leaves, special ones (at the end) included.
        smooth: leading leaves along which neighbours resemble each other; 0 for categories.
        lookup: how a device turns a value into a leaf, as `rows` tells.
    """

    name: str
    leaves: int
    smooth: int
    lookup: Mapping[str, Any] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """As plans have it."""
        return {**self.lookup, "name": self.name, "leaves": self.leaves, "smooth": self.smooth}


@dataclass(frozen=True)
class Measure:
    """One measure: bounds are integers at the declared scale."""

    name: str
    lower: int
    upper: int
    scale: int = 0


@dataclass(frozen=True)
class View:
    """One table of cells that a person may be drawn to report on.

    Args:
        kind: what it asks, by name (`kinds`).
        axes: positions of the plan's axes.
        edges: per axis, increasing cell boundaries from 0 to the axis's leaves (grid, wave).
        boxes: per cell, (lo, hi) of each axis, flattened (boxes).
        measure: position of the plan's measure whose bit is part of the item, or None.
        empty: whether "no row" is an item.
        oracle: how answers are perturbed, by name (`oracles`).
        domain: number of items.
        extra: OLH buckets or Square Wave reach, else 0.
        share: integer weight of this view in the draw.
    """

    kind: str
    axes: tuple[int, ...]
    edges: tuple[tuple[int, ...], ...]
    boxes: tuple[tuple[int, ...], ...] = ()
    measure: int | None = None
    empty: bool = False
    oracle: str = ""
    domain: int = 0
    extra: int = 0
    share: int = 1

    @property
    def cells(self) -> int:
        """Number of cells, without measure bit and "no row"."""
        return self.asks.cells(self)

    @property
    def asks(self) -> Kind:
        """What it asks.

        Raises:
            DataError: something that this program does not know.
        """
        for kind in KINDS:
            if kind.name == self.kind:
                return kind
        raise DataError("a view of the plan asks what is not known here", hint="ask for a new plan")

    @property
    def perturbs(self) -> DeviceOracle:
        """How answers are perturbed.

        Raises:
            DataError: by an oracle that this program does not know.
        """
        oracle = device_oracle(self.oracle)
        if oracle is None:
            raise DataError("a view of the plan names an unknown oracle", hint="ask for a new plan")
        return oracle(self.domain, self.extra)

    def holds(self, axes: Collection[int]) -> bool:
        """Whether its items are cells of a table over all of these axes, and perhaps more."""
        return self.asks.table and set(axes) <= set(self.axes)

    def body(self) -> dict[str, Any]:
        """As plans have it."""
        return asdict(self)


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
    axes: tuple[Axis, ...]
    measures: tuple[Measure, ...]
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
        tuple(map(read_axis, body["axes"])),
        tuple(Measure(m["name"], m["lower"], m["upper"], m["scale"]) for m in body["measures"]),
        tuple(map(_view, body["views"])),
        tuple(body.get("round_shares", ())),
    )


def read_axis(body: Mapping[str, Any]) -> Axis:
    """One axis as plans have it, unchecked."""
    lookup = {key: value for key, value in body.items() if key not in ("name", "leaves", "smooth")}
    return Axis(body["name"], body["leaves"], body.get("smooth", 0), lookup)


def _view(body: Mapping[str, Any]) -> View:
    return View(
        body["kind"],
        tuple(body["axes"]),
        tuple(map(tuple, body["edges"])),
        tuple(map(tuple, body["boxes"])),
        body["measure"],
        body["empty"],
        body["oracle"],
        body["domain"],
        body["extra"],
        body["share"],
    )
