"""One axis of unseen columns: what a release answers by default, beside AHEAD and hierarchy + NNLS, and its intervals.

    python -m benchmarks.local.columns [held]

The six columns and their leaves were committed before any was measured; the two of `HELD` are measured once, at the end.
What the default is made of was chosen on `SEEN`, DPBench's sets and Adult. A column is cut to 128 leaves of equal width,
50,000 people are drawn from it, and every method is judged by the column's own shares.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from benchmarks.central.unseen_lines import LINES, counted
from benchmarks.figures import Figures
from benchmarks.local.axis import adaptive, nonnegative_hierarchy, range_masks
from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql.client import read_plan
from dpsql.collecting.estimate import axis_table
from dpsql.collecting.plan import CollectionDesign, PlannedAxis, build_plan
from dpsql.collecting.smooth import positive_shares
from dpsql.mechanisms.local.blue import range_workload

LEAVES, PEOPLE, EPSILONS = 128, 50_000, ("0.5", "1", "2", "4")
JUDGED = ("flights: distance", "players: weight", "salaries: ten thousands", "diamonds: price")
HELD = ("flights: scheduled minute", "weather: pressure")
SEEN = (
    "flights: arrival delay",
    "flights: departure delay",
    "weather: gusts",
    "players: birth year",
    "pitching: outs",
    "diamonds: carat",
)


def column(name: str) -> np.ndarray:
    """Shares of the leaves of a column, the last of which holds all that is left by a width that divides evenly."""
    counts = counted(LINES[name])
    width = -(-counts.size // LEAVES)
    shares = np.add.reduceat(counts, np.arange(0, counts.size, width))
    return np.asarray(shares / shares.sum())
