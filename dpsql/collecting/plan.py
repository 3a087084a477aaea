"""The collection plan: which views people are drawn to, by which oracle, how often. Public canonical JSON.

A tree per axis, a coarse grid per pair of axes that are asked together, declared joint views, a small share
for row counts. One person answers one view, with all of epsilon.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from dpsql.client.plan import Plan, largest_weight, read_plan
from dpsql.collecting.views import views_of
from dpsql.errors import CatalogError
from dpsql.mechanisms.oracles.oracle import OTHER

ROW_SHARE = Fraction(1, 10)
"""Of a million people a tenth leaves an error of 1.2% on every count, a fiftieth 2.7%."""


@dataclass(frozen=True)
class PlannedAxis:
    """One axis of a collection.

    Args:
        name: as SQL and devices call it.
        leaves: number of leaves, special ones (at the end) included.
        smooth: leading leaves along which neighbours resemble each other; 0 for categories.
        lookup: how a device turns a value into a leaf (`values`, or `lower` and `width`; special leaves).
    """

    name: str
    leaves: int
    smooth: int
    lookup: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedMeasure:
    """One measure: bounds are integers at the declared scale."""

    name: str
    lower: int
    upper: int
    scale: int = 0


class PlannedGrid(NamedTuple):
    """A declared joint grid: its name, positions of its axes, and the part of the people who are asked it."""

    name: str
    axes: tuple[int, ...]
    share: Fraction


@dataclass(frozen=True)
class Design:
    """What a curator decides about a collection.

    Args:
        collection: identity that a device remembers; a second plan of it cannot ask again.
        epsilon: what one person gives.
        people: how many are expected; only grid sizes depend on it.
        axes: the axes.
        measures: measures whose SUM and AVG are wanted.
        together: sets of axis positions that queries use at once; their pairs get grids.
        joint: sets that get a grid of their own (hot GROUP BYs).
        asked: views' axes and their parts of the people; if empty, all axes and pairs are asked evenly.
        branching: children a tree node.
        tau: slots; rows beyond it stay silent.
        tau_from: `declared`, `theory` (from `row_guess`) or `estimate` (a first round asks for row counts).
        row_guess: public guess of the share of people with 0, 1, .. rows.
        rows_floor, rows_cap: public bounds of a person's rows; with rows_floor >= tau "no row" is no item.
        row_share: share of people who report how many rows they have; None: a tenth where that is needed.
        row_weighting: none, or mar (scale by E r / E min(r, tau)).
        wave_share: share of an ordered axis's people who send Square Wave (only without measures).
        shuffled: whether reports reach the collector through an anonymous shuffler.
        extra: further public facts to carry (the catalog).
    """

    collection: str
    epsilon: Fraction
    people: int
    axes: tuple[PlannedAxis, ...]
    measures: tuple[PlannedMeasure, ...] = ()
    together: tuple[tuple[int, ...], ...] = ()
    joint: tuple[PlannedGrid, ...] = ()
    asked: tuple[tuple[tuple[int, ...], Fraction], ...] = ()
    branching: int = 5
    tau: int = 1
    tau_from: str = "declared"
    row_guess: tuple[float, ...] = ()
    rows_floor: int = 0
    rows_cap: int = 10
    row_share: Fraction | None = None
    row_weighting: str = "none"
    wave_share: Fraction = Fraction(1, 4)
    shuffled: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def counted_share(self) -> Fraction:
        """The part of the people who report how many rows they have."""
        if self.row_share is not None:
            return self.row_share
        needed = self.row_weighting == "mar" or self.tau_from == "estimate"
        return ROW_SHARE if needed else Fraction(0)


def build_plan(design: Design, **changes: Any) -> bytes:
    """Write the plan of a collection with a known tau.

    Args:
        design: the curator's decisions.
        changes: fields of the plan that are not those of a collection in one round.

    Returns:
        Canonical JSON; its hash is what reports carry.

    Raises:
        CatalogError: if the design has no axis, a measure without a range, or shares or grids that do not fit.

    **Privacy**: everything here is public. The oracle is chosen by variance, never by data.
    """
    if not design.axes or design.row_weighting not in ("none", "mar"):
        raise CatalogError("a collection needs an axis, and row_weighting none or mar")
    if any(m.lower >= m.upper for m in design.measures):
        raise CatalogError("a measure's lower bound is not below its upper bound")
    return checked(design, views_of(design, largest_weight(design.epsilon)), **changes)


def checked(design: Design, views: Sequence[Mapping[str, Any]], **changes: Any) -> bytes:
    """A plan of given views, read back as a device would read it."""
    body = {
        "dpsql_plan": 1,
        "collection": design.collection,
        "epsilon": str(design.epsilon),
        "own": largest_weight(design.epsilon),
        "other": OTHER,
        "tau": design.tau,
        "rows_floor": design.rows_floor,
        "rows_cap": design.rows_cap,
        "row_weighting": design.row_weighting,
        "shuffled": design.shuffled,
        "round": 0,
        "rounds": 1,
        "axes": [{**a.lookup, "name": a.name, "leaves": a.leaves, "smooth": a.smooth} for a in design.axes],
        "measures": [
            {"name": m.name, "lower": m.lower, "upper": m.upper, "scale": m.scale} for m in design.measures
        ],
        "views": list(views),
        **design.extra,
        **changes,
    }
    raw = canonical(body)
    read_plan(raw)
    return raw


def canonical(body: Mapping[str, Any]) -> bytes:
    """Canonical JSON bytes: sorted keys, no spaces."""
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def plan_body(plan: Plan) -> dict[str, Any]:
    """The whole JSON of a plan, with the fields that devices do not read."""
    body: dict[str, Any] = json.loads(plan.raw)
    return body
