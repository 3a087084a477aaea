"""How axes are cut for reports: the levels of a tree, of which a person reports on one, and how fine a grid should be.

**Levels.** The printed longitudinal path mechanism answers with a node of the person's own path, so its support betrays
the value and the ratio is infinite at every epsilon. Here the output ranges over the global node set: exactly one node
of each level lies above any value, so the normaliser is the same for all and the ratio is exactly e^eps.

**Grids.** Cells small enough to be even inside, few enough to rise above the noise; the constants a1 = 0.7, a2 = 0.03
are the fit of the unevenness inside one-axis and two-axis cells.

**Source**: docs/method/local.md, "Levels and paths" and "Grids".
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


def level_edges(leaves: int, branching: int) -> list[IntArray]:
    """Cell boundaries of each level below the root of a near-balanced tree, finest last.

    Args:
        leaves: number of leaves, at least 2.
        branching: children a node.

    Returns:
        One increasing array of boundaries a level, from 0 to `leaves`; each refines the one before.

    Example:
        >>> [e.tolist() for e in level_edges(6, 3)]
        [[0, 2, 4, 6], [0, 1, 2, 3, 4, 5, 6]]
    """
    levels: list[IntArray] = []
    cells = branching
    while not levels or levels[-1].size - 1 < leaves:
        levels.append(np.unique(np.arange(cells + 1, dtype=np.int64) * leaves // cells))
        cells *= branching
    return levels


UNEVEN_ONE = 0.7
UNEVEN_TWO = 0.03


class Granularity(NamedTuple):
    """Real-valued number of cells of a one-axis grid, and per axis of a two-axis grid."""

    one: float
    two: float


def granularity(people: float, epsilon: float, axes: int) -> Granularity:
    """Best number of cells when people are split over all axes and all pairs of axes.

    Args:
        people: number of reports.
        epsilon: privacy of one report.
        axes: number of axes d; d + d (d - 1) / 2 groups share the people.

    Returns:
        Cells of a one-axis grid and cells per axis of a pair's grid.

    Example:
        >>> [round(g, 2) for g in granularity(1e6, 1.0, 6)]
        [23.31, 3.69]
    """
    groups = axes + axes * (axes - 1) / 2
    grown = math.exp(epsilon)
    single_cells = (people * (grown - 1) ** 2 * UNEVEN_ONE**2 / (2 * groups * grown)) ** (1 / 3)
    pair_cells = math.sqrt(2 * UNEVEN_TWO * (grown - 1) * math.sqrt(people / (groups * grown)))
    return Granularity(single_cells, pair_cells)


def joint_granularity(people: float, epsilon: float, ordered: int, others: int = 1) -> float:
    """Best number of cells per ordered axis of one grid over several axes, when everybody asked answers it.

    Least (ordered a2 / g)^2 + (g/2)^ordered max(others/2, 1) v: unevenness inside cells, and noise of a box that holds
    half of every axis. Two ordered axes: as in `granularity`.

    Args:
        people: number of reports on this grid.
        epsilon: privacy of one report.
        ordered: number of ordered axes.
        others: cells of the other axes together, which stay apart.

    Returns:
        Cells per ordered axis, a real number.

    Example:
        >>> round(joint_granularity(1e6 / 21, 1.0, 2), 2), round(joint_granularity(2e5, 1.0, 3), 2)
        (3.69, 4.72)
    """
    grown = math.exp(epsilon)
    noise = 4 * grown / (people * (grown - 1) ** 2) * max(others / 2, 1.0)
    power = 2.0 ** (ordered + 1) * ordered * UNEVEN_TWO**2 / noise
    return float(power ** (1 / (ordered + 2)))


def snapped_edges(leaves: int, branching: int, cells: float) -> IntArray:
    """Boundaries of the tree level whose number of cells is nearest to `cells` in ratio.

    A grid on a tree level lets one-axis reports refine it without cutting its cells.
    """
    levels = level_edges(leaves, branching)
    return min(levels, key=lambda e: abs(math.log((e.size - 1) / max(cells, 1.0))))


def even_edges(leaves: int, cells: float) -> IntArray:
    """Boundaries of about `cells` near-equal cells, at least 2 and at most one per leaf."""
    count = int(min(max(round(cells), 2), leaves))
    return np.unique(np.arange(count + 1, dtype=np.int64) * leaves // count)
