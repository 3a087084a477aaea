"""The views of a plan: an axis's tree, a grid per pair, declared joint grids, row counts; who is asked which.

| group        | views in it                     | share of the people |
|--------------|---------------------------------|---------------------|
| axis         | its tree's levels, Square Wave  | what is left, evenly or by the views' own shares |
| pair         | one coarse grid                 | the same |
| joint grid   | one grid over three axes or more| declared |
| row counts   | one bit                         | declared |

A grid over ordered axes is as fine as its noise allows: a coarser one hides what is narrow from the answers and from
their error bars. Where a joint fit will smooth the noise it has five cells an axis at least.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpsql.client.plan import View
from dpsql.collecting.smooth import LARGEST
from dpsql.errors import CatalogError
from dpsql.mechanisms.local.grids import even_edges, granularity, joint_granularity, snapped_edges
from dpsql.mechanisms.local.lattice import knots_of
from dpsql.mechanisms.local.lprr import IntArray, level_edges
from dpsql.mechanisms.oracles.oracle import Oracle
from dpsql.mechanisms.oracles.registry import choose_oracle
from dpsql.mechanisms.oracles.square_wave import SquareWave, wave_reach

if TYPE_CHECKING:
    from dpsql.collecting.plan import Design, PlannedAxis, PlannedGrid

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


class Asked(NamedTuple):
    """A view without its oracle, and the part of the people who are asked it."""

    view: View
    share: Fraction


ROW_COUNTS = Asked(View("rows", (), ()), Fraction(1))
"""Everybody is asked how many rows she has."""


def views_of(design: Design, own: int) -> list[View]:
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
    rows = design.counted_share
    left = 1 - rows - sum((grid.share for grid in design.joint), Fraction(0))
    if left <= 0:
        raise CatalogError(
            "declared shares leave nobody for the axes",
            hint="lower row_share or the shares of the joint grids",
        )
    groups = _groups(design)
    asked: list[Asked] = []
    for members, share in zip(groups, _group_shares(design, groups, left), strict=True):
        asked += _spread(design, members, share)
    for grid in design.joint:
        asked += _spread(design, [_joint_view(design, grid)], grid.share)
    if rows:
        asked.append(Asked(View("rows_bit", (), ()), rows))
    return [with_oracle(design, own, each) for each in asked]


def with_oracle(design: Design, own: int, asked: Asked) -> View:
    """Complete a view: oracle of least variance, domain, integer share."""
    view, kind = asked.view, asked.view.asks
    view = replace(view, empty=design.tau > design.rows_floor and kind.placed)
    view = replace(view, domain=kind.items(view, design.rows_cap), share=max(1, round(asked.share * SHARES)))
    oracle: Oracle
    if kind.silent:
        oracle = SquareWave(view.domain, own, wave_reach(view.domain, float(design.epsilon)))
    else:
        oracle = choose_oracle(view.domain, own)
    return replace(view, oracle=oracle.name, extra=oracle.extra)


def _spread(design: Design, members: Sequence[View], share: Fraction) -> list[Asked]:
    """A group's people over its views: Square Wave's part, the rest evenly over levels and measures."""
    wave = [view for view in members if view.asks.silent]
    plain = [view for view in members if not view.asks.silent]
    left = share * (1 - design.wave_share) if wave else share
    measures: list[int | None] = [*range(len(design.measures))] or [None]
    part = left / len(plain) / len(measures)
    return [Asked(view, share * design.wave_share) for view in wave] + [
        Asked(replace(view, measure=measure), part) for view in plain for measure in measures
    ]


def _groups(design: Design) -> list[list[View]]:
    """Views that share one group of people: an axis's levels, a pair's grid."""
    groups = []
    for position, axis in enumerate(design.axes):
        levels = [_grid((position,), [e]) for e in level_edges(axis.leaves, design.branching)]
        if axis.smooth >= WAVES and not design.measures and design.wave_share > 0:
            levels.append(View("wave", (position,), (tuple(range(axis.leaves + 1)),)))
        groups.append(levels)
    cells = granularity(design.people, float(design.epsilon), max(len(design.axes), 2)).two
    pairs = sorted({p for s in design.together for p in itertools.combinations(sorted(s), 2)})
    return groups + [[_grid(pair, _edges(design, pair, cells))] for pair in pairs]


def _group_shares(design: Design, groups: Sequence[Sequence[View]], left: Fraction) -> list[Fraction]:
    """Who answers which group: evenly, or each view's part spread evenly over its axes and pairs."""
    if not design.asked:
        return [left / len(groups)] * len(groups)
    held = [set(members[0].axes) for members in groups]
    weights = [Fraction(0)] * len(groups)
    for axes, share in design.asked:
        own = [i for i, group in enumerate(held) if group <= set(axes)]
        for i in own:
            weights[i] += share / len(own)
    whole = sum(weights, Fraction(0))
    return [left * weight / whole for weight in weights]


def _joint_view(design: Design, grid: PlannedGrid) -> View:
    """One declared grid: ordered axes as fine as the noise allows, categories leaf by leaf."""
    axes = tuple(sorted(grid.axes))
    ordered = [a for a in axes if design.axes[a].smooth]
    others = math.prod(design.axes[a].leaves for a in axes if a not in ordered)
    asked = float(design.people * grid.share) / max(len(design.measures), 1)
    cells = joint_granularity(asked, float(design.epsilon), len(ordered), others) if ordered else 0.0
    edges = _edges(design, axes, cells)
    count = math.prod(len(e) - 1 for e in edges)
    if count > MOST_CELLS:
        most = max(axes, key=lambda a: len(edges[axes.index(a)]))
        raise CatalogError(
            f"the joint grid `{grid.name}` has {count} cells; the most is {MOST_CELLS}",
            hint=f"leave an axis out, or make `{design.axes[most].name}` coarser (cuts, by)",
        )
    return _grid(axes, edges)


def _edges(design: Design, axes: Sequence[int], cells: float) -> list[IntArray]:
    """About `cells` cells on ordered axes, other axes leaf by leaf.

    A pair's cells are near equal: a tree's levels are far apart, and the nearest one may have four times too few cells
    or too many. A grid of three axes or more is on a tree level, no finer than the fit that will smooth it.
    """
    chosen = [design.axes[a] for a in axes]
    leaves = math.prod(axis.leaves for axis in chosen) * (2 if design.measures else 1)
    fitted = leaves <= LARGEST and all(axis.smooth >= FITTED for axis in chosen)
    if len(axes) == 2:
        some = max(cells, FEWEST) if fitted else cells
        return [_cut(axis, even_edges(axis.leaves, some)) for axis in chosen]
    most = min(cells, knots_of(len(axes))) if fitted else cells
    return [_cut(axis, snapped_edges(axis.leaves, design.branching, most)) for axis in chosen]


def _cut(axis: PlannedAxis, edges: IntArray) -> IntArray:
    """The edges of an ordered axis; every leaf of another one."""
    return edges if axis.smooth else np.arange(axis.leaves + 1)


def _grid(axes: Sequence[int], edges: Sequence[IntArray]) -> View:
    return View("grid", tuple(axes), tuple(tuple(e.tolist()) for e in edges))
