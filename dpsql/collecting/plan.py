"""The collection plan: which views people are drawn to, by which oracle, how often. Public canonical JSON.

A tree per axis, a coarse grid per pair of axes that are asked together, declared joint views, a small share
for row counts. One person answers one view, with all of epsilon.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.client.plan import Plan, largest_weight, read_plan
from dpsql.errors import CatalogError
from dpsql.mechanisms.local.grids import granularity, snapped_edges
from dpsql.mechanisms.local.lprr import level_edges
from dpsql.mechanisms.local.oracles import OTHER, choose_oracle, wave_reach

SHARES = 1_000_000
"""Shares are integers out of about this many."""


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
        joint: sets that get a view of their own (hot GROUP BYs).
        branching: children a tree node.
        tau: slots; rows beyond it stay silent.
        rows_floor, rows_cap: public bounds of a person's rows; with rows_floor >= tau "no row" is no item.
        row_share: share of people who report how many rows they have; a tenth, since of a million people a fiftieth
            leaves an error of 2.7% on every count and a tenth 1.2%.
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
    joint: tuple[tuple[int, ...], ...] = ()
    branching: int = 5
    tau: int = 1
    rows_floor: int = 0
    rows_cap: int = 10
    row_share: Fraction = Fraction(1, 10)
    row_weighting: str = "none"
    wave_share: Fraction = Fraction(1, 4)
    shuffled: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


def build_plan(design: Design) -> bytes:
    """Write the plan.

    Args:
        design: the curator's decisions.

    Returns:
        Canonical JSON; its hash is what reports carry.

    Raises:
        CatalogError: if the design has no axis, or a measure without a range.

    **Privacy**: everything here is public. The oracle is chosen by variance, never by data.
    """
    if not design.axes or design.row_weighting not in ("none", "mar"):
        raise CatalogError("a collection needs an axis, and row_weighting none or mar")
    if any(m.lower >= m.upper for m in design.measures):
        raise CatalogError("a measure's lower bound is not below its upper bound")
    own = largest_weight(design.epsilon)
    body = {
        "dpsql_plan": 1,
        "collection": design.collection,
        "epsilon": str(design.epsilon),
        "own": own,
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
        "views": _views(design, own),
        **design.extra,
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


def _views(design: Design, own: int) -> list[dict[str, Any]]:
    groups = _groups(design)
    rows = design.row_share if _counts_rows(design) else Fraction(0)
    views: list[dict[str, Any]] = []
    for members in groups:
        share = (1 - rows) / len(groups)
        wave = [v for v in members if v["kind"] == "wave"]
        plain = [v for v in members if v["kind"] != "wave"]
        for view in wave:
            views.append({**view, "share": share * design.wave_share})
        left = share * (1 - design.wave_share) if wave else share
        for view in plain:
            for measure in range(len(design.measures)) if design.measures else [None]:
                part = left / len(plain) / max(len(design.measures), 1)
                views.append({**view, "measure": measure, "share": part})
    if rows:
        views += [_rows_view("rows_bit", rows)]
    return [_with_oracle(design, own, v) for v in views]


def _counts_rows(design: Design) -> bool:
    return design.row_share > 0 and design.row_weighting == "mar"


def _groups(design: Design) -> list[list[dict[str, Any]]]:
    """Views that share one group of people: an axis's levels, a pair's grid, a joint view."""
    groups = []
    for position, axis in enumerate(design.axes):
        levels = [_grid((position,), [e]) for e in level_edges(axis.leaves, design.branching)]
        if axis.smooth >= 16 and not design.measures and design.wave_share > 0:
            levels.append({**_grid((position,), [np.arange(axis.leaves + 1)]), "kind": "wave"})
        groups.append(levels)
    cells = granularity(design.people, float(design.epsilon), max(len(design.axes), 2)).two
    pairs = sorted({p for s in design.together for p in itertools.combinations(sorted(s), 2)})
    for pair in pairs:
        edges = [_pair_edges(design.axes[a], design.branching, cells) for a in pair]
        groups.append([_grid(pair, edges)])
    for axes in design.joint:
        groups.append([_grid(axes, [np.arange(design.axes[a].leaves + 1) for a in axes])])
    return groups


def _pair_edges(axis: PlannedAxis, branching: int, cells: float) -> np.ndarray:
    """A tree level for ordered axes; categories keep every leaf apart."""
    return snapped_edges(axis.leaves, branching, cells) if axis.smooth else np.arange(axis.leaves + 1)


def _grid(axes: Sequence[int], edges: Sequence[np.ndarray]) -> dict[str, Any]:
    return {
        "kind": "grid", "axes": list(axes), "edges": [e.tolist() for e in edges], "boxes": [], "measure":
        None,
    }  # fmt: skip


def _rows_view(kind: str, share: Fraction) -> dict[str, Any]:
    return {"kind": kind, "axes": [], "edges": [], "boxes": [], "measure": None, "share": share}


def _with_oracle(design: Design, own: int, view: dict[str, Any]) -> dict[str, Any]:
    cells = math.prod(len(e) - 1 for e in view["edges"])
    empty = design.tau > design.rows_floor and not view["kind"].startswith("rows")
    share = max(1, round(view["share"] * SHARES))
    if view["kind"] == "wave":
        reach = wave_reach(cells, float(design.epsilon))
        return {**view, "empty": empty, "oracle": "WAVE", "domain": cells, "extra": reach, "share": share}
    if view["kind"] == "rows_bit":
        domain = 2
    elif view["kind"] == "rows":
        domain = design.rows_cap + 1
    else:
        domain = cells * (1 if view["measure"] is None else 2) + int(empty)
    oracle = choose_oracle(domain, own)
    return {
        **view,
        "empty": empty,
        "oracle": oracle.name,
        "domain": domain,
        "extra": oracle.extra,
        "share": share,
    }
