"""The collection plan: which views people are drawn to, by which oracle, how often. Public canonical JSON.

One person answers one view, with all of epsilon.

| group        | views in it                     | share of the people |
|--------------|---------------------------------|---------------------|
| axis         | its tree's levels, Square Wave  | what is left, evenly or by the views' own shares |
| pair         | one coarse grid                 | the same |
| joint grid   | one grid over three axes or more| declared |
| row counts   | one bit                         | declared |

Levels of one tree share its people by the square root of their depth. With `kind: lprr` a set of axes has one group:
every combination of their trees' levels but that of the roots, which share its people by the sum of depths.

A grid over ordered axes is as fine as its noise allows: a coarser one hides what is narrow from the answers and from
their error bars. Where a joint fit will smooth the noise it has five cells an axis at least.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dpsql.client.plan import Plan, PlanAxis, PlanMeasure, View, largest_weight, read_plan
from dpsql.errors import CatalogError
from dpsql.local.mechanisms import truncation
from dpsql.local.mechanisms.joint import knots_of
from dpsql.local.oracles import SquareWaveAggregator, choose_oracle, oracle_named, wave_reach
from dpsql.local.oracles.oracle import OTHER, FloatArray, Oracle
from dpsql.local.smooth import LARGEST
from dpsql.release.reports import UNDECLARED_ROWS

PlannedAxis = PlanAxis
PlannedMeasure = PlanMeasure


@dataclass(frozen=True)
class RowReports:
    """Reports of a first round that support each number of rows.

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
        return truncation.estimated_rows(
            self.oracle, np.array(self.support, dtype=np.float64), float(self.reports)
        )

    def body(self) -> dict[str, Any]:
        """As a second plan carries them."""
        oracle = self.oracle
        named = {
            "oracle": oracle.name,
            "domain": oracle.domain,
            "extra": oracle.extra,
            "own": oracle.own,
        }
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


class PlannedGrid(NamedTuple):
    """A declared joint grid: its name, positions of its axes, and the part of the people who are asked it."""

    name: str
    axes: tuple[int, ...]
    share: Fraction


@dataclass(frozen=True)
class CollectionDesign:
    """Design of a collection, as the curator decides it.

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
        kind: what views are made of the axes, by name (`GROUPINGS`).
        tau: slots; rows beyond it stay silent. With `bit` the rows at which the bit is certain.
        tau_from: `declared`, `theory` (from `row_guess`) or `estimate` (a first round asks for row counts).
        row_guess: public guess of the share of people with 0, 1, .. rows.
        rows_floor, rows_cap: public bounds of a person's rows; with rows_floor >= tau "no row" is no item.
        row_share: share of people who report how many rows they have.
        row_share_free: whether that share is chosen with tau, from `row_guess`; `row_share` is then where it starts.
        row_weighting: none, or bit (one row and a bit for how many, scaled by E r / E min(r, tau)).
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
    kind: str = "auto"
    tau: int = 1
    tau_from: str = "declared"
    row_guess: tuple[float, ...] = ()
    rows_floor: int = 0
    rows_cap: int = UNDECLARED_ROWS
    row_share: Fraction = Fraction(0)
    row_share_free: bool = False
    row_weighting: str = "none"
    wave_share: Fraction = Fraction(1, 4)
    shuffled: bool = False
    catalog: Mapping[str, Any] | None = None
    service: str | None = None
    simulated: bool = False


def build_plan(design: CollectionDesign, place: PlannedRound = ONLY) -> bytes:
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
    truncation.weighting_named(design.row_weighting)
    if not design.axes:
        raise CatalogError("a collection needs an axis")
    if any(m.lower >= m.upper for m in design.measures):
        raise CatalogError("a measure's lower bound is not below its upper bound")
    return checked(design, views_of(design, largest_weight(design.epsilon)), place)


def checked(design: CollectionDesign, views: Sequence[View], place: PlannedRound) -> bytes:
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
    return read_back(body)


def read_back(body: Mapping[str, Any]) -> bytes:
    """A plan in canonical JSON, read as a device would read it."""
    raw = canonical(body)
    read_plan(raw)
    return raw


def canonical(body: Mapping[str, Any]) -> bytes:
    """Canonical JSON bytes: sorted keys, no spaces."""
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def plan_body(plan: Plan) -> dict[str, Any]:
    """The whole JSON of a plan, with the fields that devices do not read.

    Those for its collector alone: `catalog`, absent in plans made without one; `service`, whose plan of several
    services it is; `simulated`, true if nobody is protected; `shuffled`, true if reports reach the collector through an
    anonymous shuffler; `threshold`, in an adaptive collection the share above which a box is split; `row_reports`.
    """
    body: dict[str, Any] = json.loads(plan.raw)
    return body


def row_reports_of(plan: Plan) -> RowReports | None:
    """Reports that the round before a plan's brought."""
    told = plan_body(plan).get("row_reports")
    if told is None:
        return None
    oracle = oracle_named(told["oracle"], told["domain"], told["own"], told["extra"])
    return RowReports(told["plan"], oracle, tuple(told["support"]), told["reports"])


SHARES = 1_000_000
"""Shares are integers out of about this many."""
MOST_CELLS = 4096
"""Most cells of a joint grid: beyond it a cell's share is below any collection's noise, and counting takes minutes."""
WAVES = 16
"""Fewest ordered leaves for which Square Wave says more than a tree."""
FITTED = 4
"""Fewest ordered leaves of an axis that a joint fit smooths."""
FEWEST = 5
"""Cells an axis that a fitted grid has at least: with two or three, as noise alone would have it for a hundred thousand
people at epsilon 1, two-axis intervals held 99% of boxes, with five 97%; errors are alike."""


class ViewShare(NamedTuple):
    """A view without its oracle, and the part of the people who are asked it."""

    view: View
    share: Fraction


ROW_COUNTS = ViewShare(View("rows", (), ()), Fraction(1))
"""Everybody is asked how many rows she has."""


def views_of(design: CollectionDesign, own: int) -> list[View]:
    """The plan's views with oracles, domains and integer shares.

    Args:
        design: the curator's decisions.
        own: integer weight of the truth.

    Returns:
        Views; shares are out of about a million.

    Raises:
        CatalogError: declared shares leave nobody for the rest, or a joint grid has too many cells.

    **Privacy**: a function of public facts; the oracle is chosen by variance, never by data.
    """
    rows = design.row_share
    axes_share = 1 - rows - sum((grid.share for grid in design.joint), Fraction(0))
    if axes_share <= 0:
        raise CatalogError(
            "declared shares leave nobody for the axes",
            hint="lower row_share or the shares of the joint grids",
        )
    groups_of, spread = GROUPINGS[design.kind]
    groups = groups_of(design)
    view_shares: list[ViewShare] = []
    for members, share in zip(groups, _group_shares(design, groups, axes_share), strict=True):
        view_shares += spread(design, members, share)
    for grid in design.joint:
        view_shares += _spread(design, [_joint_view(design, grid)], grid.share)
    if rows:
        # one-bit views of row counts, as the weighting needs them
        counted = truncation.weighting_named(design.row_weighting).counted(
            design.tau, design.rows_floor, design.rows_cap
        )
        total = sum(counted.values())
        view_shares += [
            ViewShare(View("rows_bit", (), (), rows=between), rows * weight / total)
            for between, weight in sorted(counted.items())
        ]
    return [with_oracle(design, own, each) for each in view_shares]


def with_oracle(design: CollectionDesign, own: int, asked: ViewShare) -> View:
    """Complete a view: oracle of least variance, domain, integer share."""
    view, kind = asked.view, asked.view.asks
    view = replace(view, empty=design.tau > design.rows_floor and kind.spares)
    view = replace(view, domain=kind.items(view, design.rows_cap), share=max(1, round(asked.share * SHARES)))
    oracle: Oracle
    if kind.silent:
        oracle = SquareWaveAggregator(view.domain, own, wave_reach(view.domain, float(design.epsilon)))
    else:
        oracle = choose_oracle(view.domain, own)
    return replace(view, oracle=oracle.name, extra=oracle.extra)


def _spread(design: CollectionDesign, members: Sequence[View], share: Fraction) -> list[ViewShare]:
    """A group's people over its views: Square Wave's part, the rest over measures and levels, finer ones more of them.

    By the square root of depth: unbiased ranges of 25, 64 and 125 leaves then have 3.34, 5.41 and 7.99 times the least
    variance of one report at epsilon 1, evenly 3.64, 5.96 and 9.03.
    """
    wave = [view for view in members if view.asks.silent]
    plain = [view for view in members if not view.asks.silent]
    plain_share = share * (1 - design.wave_share) if wave else share
    depths = [round(1000 * math.sqrt(depth + 1)) for depth in range(len(plain))]
    waves = [ViewShare(view, share * design.wave_share) for view in wave]
    return waves + _over_measures(design, plain, depths, plain_share)


def _over_measures(
    design: CollectionDesign, members: Sequence[View], weights: Sequence[int], share: Fraction
) -> list[ViewShare]:
    """A group's people over its views by weight, and over measures evenly."""
    measures: list[int | None] = [*range(len(design.measures))] or [None]
    return [
        ViewShare(replace(view, measure=measure), share * weight / sum(weights) / len(measures))
        for view, weight in zip(members, weights, strict=True)
        for measure in measures
    ]


def _groups(design: CollectionDesign) -> list[list[View]]:
    """Views that share one group of people: an axis's levels, a pair's grid."""
    groups, weighting = [], truncation.weighting_named(design.row_weighting)
    waves = weighting.waves and not design.measures and design.wave_share > 0
    for position, axis in enumerate(design.axes):
        levels = [
            _grid(design, (position,), [e]) for e in truncation.level_edges(axis.leaves, design.branching)
        ]
        if axis.smooth >= WAVES and waves:
            levels.append(View("wave", (position,), (tuple(range(axis.leaves + 1)),)))
        groups.append(levels)
    _, cells = truncation.granularity(design.people, float(design.epsilon), max(len(design.axes), 2))
    pairs = sorted({p for s in design.together for p in itertools.combinations(sorted(s), 2)})
    return groups + [[_grid(design, pair, _edges(design, pair, cells))] for pair in pairs]


MOST_COMBINATIONS = 512
"""Most combinations of levels that people are drawn to: beyond it each has a handful of them."""


def _level_groups(design: CollectionDesign) -> list[list[View]]:
    """Every combination of levels of each set of axes that is asked at once; without those of more cells than a grid's.

    Raises:
        CatalogError: more combinations than anybody could answer.
    """
    sets = [
        tuple(sorted(s))
        for s in design.together
        if not any(set(s) < set(larger) for larger in design.together)
    ]
    alone = [(a,) for a in range(len(design.axes)) if not any(a in s for s in sets)]
    groups = []
    for axes in sorted({*sets, *alone}):
        trees = [[None, *truncation.level_edges(design.axes[a].leaves, design.branching)] for a in axes]
        count = math.prod(map(len, trees)) - 1
        if count > MOST_COMBINATIONS:
            names = " and ".join(design.axes[a].name for a in axes)
            raise CatalogError(
                f"{names} have {count} combinations of levels; the most is {MOST_COMBINATIONS}",
                hint="raise `branching`, or write views of fewer axes",
            )
        members = []
        for levels in itertools.product(*trees):
            cut_axes = [(a, edges) for a, edges in zip(axes, levels, strict=True) if edges is not None]
            if cut_axes and math.prod(len(edges) - 1 for _, edges in cut_axes) <= MOST_CELLS:
                members.append(_grid(design, [a for a, _ in cut_axes], [edges for _, edges in cut_axes]))
        groups.append(members)
    return groups


def _by_depths(design: CollectionDesign, members: Sequence[View], share: Fraction) -> list[ViewShare]:
    """A set's people over its combinations of levels, by the sum of their depths, and over measures."""
    trees = [truncation.level_edges(axis.leaves, design.branching) for axis in design.axes]
    depths = [
        sum(
            1 + next(i for i, level in enumerate(trees[a]) if tuple(level.tolist()) == edges)
            for a, edges in zip(view.axes, view.edges, strict=True)
        )
        for view in members
    ]
    return _over_measures(design, members, depths, share)


GROUPINGS = {"auto": (_groups, _spread), "lprr": (_level_groups, _by_depths)}
"""By the name that designs call it, a grouping of axes: views that share people, set by set, and the spread of a
group's people over its views."""


def _group_shares(
    design: CollectionDesign, groups: Sequence[Sequence[View]], axes_share: Fraction
) -> list[Fraction]:
    """Assignment of people to groups: evenly, or each view's part spread evenly over its axes and pairs."""
    if not design.asked:
        return [axes_share / len(groups)] * len(groups)
    group_axes = [{a for view in members for a in view.axes} for members in groups]
    weights = [Fraction(0)] * len(groups)
    for axes, share in design.asked:
        inside = [i for i, group in enumerate(group_axes) if group <= set(axes)]
        for i in inside:
            weights[i] += share / len(inside)
    total = sum(weights, Fraction(0))
    return [axes_share * weight / total for weight in weights]


def _joint_view(design: CollectionDesign, grid: PlannedGrid) -> View:
    """One declared grid: ordered axes as fine as the noise allows, categories leaf by leaf."""
    axes = tuple(sorted(grid.axes))
    ordered = [a for a in axes if design.axes[a].smooth]
    category_cells = math.prod(design.axes[a].leaves for a in axes if a not in ordered)
    respondents = float(design.people * grid.share) / max(len(design.measures), 1)
    cells = (
        truncation.joint_granularity(respondents, float(design.epsilon), len(ordered), category_cells)
        if ordered
        else 0.0
    )
    edges = _edges(design, axes, cells)
    count = math.prod(len(e) - 1 for e in edges)
    if count > MOST_CELLS:
        widest = max(axes, key=lambda a: len(edges[axes.index(a)]))
        raise CatalogError(
            f"the joint grid `{grid.name}` has {count} cells; the most is {MOST_CELLS}",
            hint=f"leave an axis out, or make `{design.axes[widest].name}` coarser (cuts, by)",
        )
    return _grid(design, axes, edges)


def _edges(design: CollectionDesign, axes: Sequence[int], cells: float) -> list[truncation.IntArray]:
    """About `cells` cells on ordered axes, other axes leaf by leaf.

    A pair's cells are near equal: a tree's levels are far apart, and the nearest one may have four times too few cells
    or too many. A grid of three axes or more is on a tree level, no finer than the fit that will smooth it.
    """
    chosen = [design.axes[a] for a in axes]
    leaves = math.prod(axis.leaves for axis in chosen) * (2 if design.measures else 1)
    fitted = leaves <= LARGEST and all(axis.smooth >= FITTED for axis in chosen)
    if len(axes) == 2:
        target = max(cells, FEWEST) if fitted else cells
        return [_cut(axis, truncation.even_edges(axis.leaves, target)) for axis in chosen]
    most_cells = min(cells, knots_of(len(axes))) if fitted else cells
    return [
        _cut(axis, truncation.snapped_edges(axis.leaves, design.branching, most_cells)) for axis in chosen
    ]


def _cut(axis: PlannedAxis, edges: truncation.IntArray) -> truncation.IntArray:
    """The edges of an ordered axis; every leaf of another one."""
    return edges if axis.smooth else np.arange(axis.leaves + 1)


def _grid(design: CollectionDesign, axes: Sequence[int], edges: Sequence[truncation.IntArray]) -> View:
    asks = truncation.weighting_named(design.row_weighting).asks
    return View(asks, tuple(axes), tuple(tuple(e.tolist()) for e in edges))
