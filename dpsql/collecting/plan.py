"""The collection plan: which views people are drawn to, by which oracle, how often. Public canonical JSON.

A tree per axis, a coarse grid per pair of axes that are asked together, declared joint views, a small share
for row counts. One person answers one view, with all of epsilon.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dpsql.client.plan import Axis, Measure, Plan, View, largest_weight, read_plan
from dpsql.collecting.views import views_of
from dpsql.errors import CatalogError
from dpsql.mechanisms.local.truncation import estimated_rows
from dpsql.mechanisms.oracles.oracle import OTHER, FloatArray, Oracle
from dpsql.mechanisms.oracles.registry import oracle_named

ROW_SHARE = Fraction(1, 10)
"""Of a million people a tenth leaves an error of 1.2% on every count, a fiftieth 2.7%."""


PlannedAxis = Axis
PlannedMeasure = Measure


@dataclass(frozen=True)
class RowReports:
    """What a first round brought: reports that support each number of rows.

    Args:
        plan: hash of the first round's plan, in hex.
        oracle: of the reports, over 0 .. R rows.
        support: per number of rows, how many reports support it.
        reports: how many reports were accepted.
    """

    plan: str
    oracle: Oracle
    support: tuple[int, ...]
    reports: int

    @property
    def shares(self) -> FloatArray:
        """Share of people with 0 .. R rows, non-negative."""
        return estimated_rows(self.oracle, np.array(self.support, dtype=np.float64), float(self.reports))

    def body(self) -> dict[str, Any]:
        """As a second plan carries them."""
        oracle = self.oracle
        named = {"oracle": oracle.name, "domain": oracle.domain, "extra": oracle.extra, "own": oracle.own}
        return {"plan": self.plan, **named, "support": list(self.support), "reports": self.reports}


class PlannedRound(NamedTuple):
    """A plan's place in its collection: which round of how many, their weights, what the one before brought."""

    number: int = 0
    rounds: int = 1
    shares: tuple[int, ...] = ()
    reports: RowReports | None = None

    def body(self) -> dict[str, Any]:
        """As plans have it; what is not there is left out."""
        shares = {"round_shares": list(self.shares)} if self.shares else {}
        reports = {} if self.reports is None else {"row_reports": self.reports.body()}
        return {"round": self.number, "rounds": self.rounds, **shares, **reports}


ONLY = PlannedRound()
"""The one round of most collections."""


@dataclass(frozen=True)
class Facts:
    """What a plan says to its collector alone.

    Args:
        catalog: the catalog, as JSON; None in plans made without one.
        service: whose plan of several services it is.
        simulated: whether nobody is protected.
        shuffled: whether reports reach the collector through an anonymous shuffler.
        missing_at_random: whether rows beyond tau are put back as if like the others.
        threshold: in an adaptive collection, the share above which a box is split.
        row_reports: what the round before brought.
    """

    catalog: Mapping[str, Any] | None
    service: str | None
    simulated: bool
    shuffled: bool
    missing_at_random: bool
    threshold: float
    row_reports: RowReports | None


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
        catalog: the catalog, as JSON, for the collector.
        service: whose plan of several services it is.
        simulated: whether to mark the plan as simulated.
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
    catalog: Mapping[str, Any] | None = None
    service: str | None = None
    simulated: bool = False

    @property
    def counted_share(self) -> Fraction:
        """The part of the people who report how many rows they have."""
        if self.row_share is not None:
            return self.row_share
        needed = self.row_weighting == "mar" or self.tau_from == "estimate"
        return ROW_SHARE if needed else Fraction(0)


def build_plan(design: Design, place: PlannedRound = ONLY) -> bytes:
    """Write the plan of a collection with a known tau.

    Args:
        design: the curator's decisions.
        place: which round of how many.

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
    return checked(design, views_of(design, largest_weight(design.epsilon)), place)


def checked(design: Design, views: Sequence[View], place: PlannedRound) -> bytes:
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
        "axes": [axis.body() for axis in design.axes],
        "measures": [asdict(measure) for measure in design.measures],
        "views": [view.body() for view in views],
        **place.body(),
    }
    carried = {"catalog": design.catalog, "service": design.service, "simulated": design.simulated or None}
    body |= {name: value for name, value in carried.items() if value is not None}
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


def facts_of(plan: Plan) -> Facts:
    """What a plan says to its collector alone."""
    body = plan_body(plan)
    held = body.get("row_reports")
    if held is not None:
        oracle = oracle_named(held["oracle"], held["domain"], held["own"], held["extra"])
        held = RowReports(held["plan"], oracle, tuple(held["support"]), held["reports"])
    return Facts(
        catalog=body.get("catalog"),
        service=body.get("service"),
        simulated=bool(body.get("simulated")),
        shuffled=bool(body.get("shuffled")),
        missing_at_random=body.get("row_weighting") == "mar",
        threshold=float(body.get("threshold", 0)),
        row_reports=held,
    )
