"""Public guesses of a curator about a table, from which errors are forecast before anything is spent.

Two numbers are needed, about how many units and about how many rows there are. Each further one replaces a guess of
ours by knowledge of hers:

| said | supposed where it is not |
|---|---|
| `typical`, rows of the unit in the middle | log-normal with a deviation of 1, or the one that `most` implies |
| `most`, rows that hardly any unit passes | no such number: the log-normal tail |
| `alike`, the part of a unit's rows in one leaf of hers | a half |
| `means`, the mean of a measure | a quarter of its range above its lower bound |

The table that is made up of these numbers is in `made_up`. Rows that a unit does not keep together lie evenly over the
keys of public dimensions, and over the leaves of every other axis.

**Privacy**: public statements and public tables; no private table is opened.
**Source**: docs/method/user_level.md, "Expecting before spending".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp, log, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dpsql.axis import Axis
from dpsql.catalog import Catalog
from dpsql.catalog.tables import PublicGuess
from dpsql.central.placed_rows import leaf_of_row
from dpsql.central.planned import Bounds, ReleasePlan
from dpsql.engines.engine import Engine
from dpsql.engines.joined_rows import ROW
from dpsql.errors import InterfaceError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Crowds = Mapping[int, FloatArray]
"""Axis of the plan -> the share of the rows that each of its leaves is expected to have."""

NORMAL = NormalDist()

WIDEST, NARROWEST = 4.0, 0.3
"""Standard deviations of log rows that are believed; units with one row each cannot differ at all."""

ALIKE = 0.5
"""The part of a unit's rows that lie in one leaf of hers. Real people are a little less alike: a cautious guess."""


@dataclass(frozen=True)
class Guess:
    """Rough public knowledge about a table.

    Args:
        units: how many units own rows.
        rows: how many rows there are.
        typical: rows of a unit in the middle.
        most: rows that hardly any unit passes; None where some may own any number.
        alike: the part of a unit's rows that lie in one leaf of hers; the others fall where they like.
        means: `table.column` -> the mean of a measure, in its own unit.
        tables: of each table its own, where there are several.
    """

    units: int
    rows: int
    typical: float | None = None
    most: float | None = None
    alike: float = ALIKE
    means: Mapping[str, float] = field(default_factory=dict)
    tables: Mapping[str, Guess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse numbers that no table has."""
        if self.units < 1 or self.rows < self.units:
            raise InterfaceError("state at least one unit, and at least as many rows as units")
        if self.typical is not None and not 1 <= self.typical <= self.rows:
            raise InterfaceError("rows of a typical unit: state a number between 1 and all rows")
        if self.most is not None and not max(self.mean, self.typical or 1) <= self.most <= self.rows:
            raise InterfaceError("most rows of a unit: state at least what a mean and a typical unit own")
        if not 0 <= self.alike <= 1:
            raise InterfaceError("how alike the rows of a unit are: state a number between 0 and 1")

    @property
    def mean(self) -> float:
        return self.rows / self.units

    @property
    def median(self) -> float:
        """q.5(n), at least 1."""
        return max(1.0, self.mean * exp(-(self._deviation**2) / 2) if self.typical is None else self.typical)

    @property
    def _deviation(self) -> float:
        """Deviation d of log rows: z d - d^2 / 2 = log(most / mean), z the normal quantile of the largest unit."""
        if self.most is None:
            return 1.0
        largest = NORMAL.inv_cdf(1 - 0.5 / self.units)
        return largest - sqrt(max(0.0, largest**2 - 2 * log(self.most / self.mean)))

    def amounts(self, number: int) -> IntArray:
        """Rows of so many units that stand for all, increasing: log-normal, and as many rows a unit as were stated."""
        normal = np.array([NORMAL.inv_cdf((i + 0.5) / number) for i in range(number)])
        low, high = max(1e-3, NARROWEST * (1 - self.units / self.rows)), WIDEST
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if self._cut(middle * normal).mean() < self.mean else (low, middle)
        return self._cut(low * normal)

    def _cut(self, logarithms: FloatArray) -> IntArray:
        """Whole rows of units so far from the middle one; at least one, at most what hardly any unit passes."""
        most = self.rows if self.most is None else self.most
        return np.rint(np.clip(self.median * np.exp(logarithms), 1.0, most)).astype(np.int64)

    def mean_of(self, measure: str, bounds: Bounds) -> float:
        """Assumed average of a value, in stored units; never 0, since errors are relative to it."""
        if measure in self.means:
            told = self.means[measure] * 10.0**bounds.scale
            if not bounds.lower <= told <= bounds.upper or not told:
                raise InterfaceError(f"mean of {measure}: state a number within its bounds that is not 0")
            return told
        return (3 * bounds.lower + bounds.upper) / 4 or (bounds.upper - bounds.lower) / 4 or 1.0


def stated_guess(catalog: Catalog) -> Guess | None:
    """The `guess:` of tables with `max_ids: auto`; each of several tables has its own.

    Returns:
        None where there is no such table, or where one has no `guess`.

    **Privacy**: a function of the catalog alone.
    """
    chosen = {of: catalog.tables[of].guess for of in catalog.star.tables if catalog.tables[of].chooses_rows}
    guesses = {of: _of_table(guess) for of, guess in chosen.items() if guess is not None}
    if not guesses or len(guesses) < len(chosen):
        return None
    first = max(guesses.values(), key=lambda guess: guess.rows)
    return first if len(guesses) == 1 else replace(first, tables=guesses)


def _of_table(stated: PublicGuess) -> Guess:
    units, rows = min(stated.units, stated.rows), stated.rows
    most = None if stated.most_rows is None else float(min(max(stated.most_rows, rows / units), rows))
    return Guess(units, rows, most=most)


def crowds(catalog: Catalog, public: Engine, plan: ReleasePlan) -> Crowds:
    """Expected occupancy of each axis's leaves: by the keys of public dimensions that lie in them.

    Args:
        catalog: the catalog.
        public: where its public tables are.
        plan: the planned release.

    Returns:
        Shares of the axes over public dimensions, each adding up to 1; other axes are left out.

    **Privacy**: reads public tables alone.
    """
    found = {}
    for i, planned in enumerate(plan.axes):
        meant = planned.resolved
        if meant.path and catalog.tables[meant.table].is_public:
            found[i] = _keys_per_leaf(catalog, public, plan, i)
    return {i: keys / keys.sum() for i, keys in found.items() if keys.sum() > 0}


def _keys_per_leaf(catalog: Catalog, public: Engine, plan: ReleasePlan, axis: int) -> FloatArray:
    """Number of keys of the axis's own table in each of its leaves."""
    own, row = leaf_of_row(catalog, public, plan, axis), public.dialect.identifier(ROW)
    rows = public.rows(catalog, plan.axes[axis].axis.table)
    counted = public.relations("counting").fetch(
        f"SELECT leaf, count(*) AS keys FROM (SELECT {own.digit.sql} AS leaf FROM {rows} AS {row} {own.lookup}) "
        "AS placed WHERE leaf IS NOT NULL GROUP BY leaf"
    )
    found = np.zeros(plan.axes[axis].axis.leaves)
    found[counted["leaf"]] = counted["keys"]
    return found


def ordinary_leaves(axis: Axis) -> int:
    """Leaves that are not NULL, MISSING or OTHER."""
    special = [leaf for leaf in (axis.null_leaf, axis.missing_leaf, axis.other_leaf) if leaf is not None]
    return max(1, axis.leaves - len(special))
