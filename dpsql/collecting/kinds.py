"""What views ask, for many people at once and for the estimates: the collector's halves of `dpsql.client.kinds`.

Draws follow the client's steps (slot, row, measure bit, or the even item) on arrays, with numpy's generator.

**Privacy**: draws made here protect nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from dpsql.client.plan import Plan, View
from dpsql.collecting.tallies import IntArray, ViewTally, oracle_of, shares
from dpsql.errors import InternalError
from dpsql.mechanisms.local.truncation import Measured
from dpsql.mechanisms.oracles.oracle import variance


@dataclass(frozen=True)
class People:
    """Rows of many people, sorted by person.

    Args:
        first: index of each person's first row, and one past the last row at the end, shape (people + 1,).
        leaves: leaf per row and axis, shape (rows, axes).
        measures: integer per row and measure, shape (rows, measures).
    """

    first: IntArray
    leaves: IntArray
    measures: IntArray

    @property
    def count(self) -> int:
        """Number of people."""
        return self.first.size - 1

    def rows(self, who: IntArray) -> IntArray:
        """How many rows some people have."""
        return np.asarray(self.first[who + 1] - self.first[who])


class Kind(Protocol):
    """One way of asking, as its collector sees it."""

    name: ClassVar[str]
    """What plans call it."""
    margins: ClassVar[bool]
    """Whether its reports tell of each of its axes alone."""
    histogram: ClassVar[bool]
    """Whether its reports are a histogram of people's numbers of rows."""

    def draw(
        self, plan: Plan, view: View, people: People, who: IntArray, rng: np.random.Generator
    ) -> IntArray:
        """Draw each person's item; the domain itself is the "no row" that the oracle perturbs."""

    def mean_rows(self, plan: Plan, number: int, tally: ViewTally) -> Measured | None:
        """Mean rows of a person, by the reports of one view of the plan; None where they do not tell."""


class Grid:
    """Cells between edges of each axis."""

    name: ClassVar[str] = "grid"
    margins: ClassVar[bool] = True
    histogram: ClassVar[bool] = False

    def draw(
        self, plan: Plan, view: View, people: People, who: IntArray, rng: np.random.Generator
    ) -> IntArray:
        """See `Kind`."""
        return _slot_items(plan, view, people, who, rng, _grid_cells)

    def mean_rows(self, plan: Plan, number: int, tally: ViewTally) -> Measured | None:
        """They do not tell."""
        return None


class Boxes:
    """Listed boxes."""

    name: ClassVar[str] = "boxes"
    margins: ClassVar[bool] = False
    histogram: ClassVar[bool] = False

    def draw(
        self, plan: Plan, view: View, people: People, who: IntArray, rng: np.random.Generator
    ) -> IntArray:
        """See `Kind`."""
        return _slot_items(plan, view, people, who, rng, _boxes)

    def mean_rows(self, plan: Plan, number: int, tally: ViewTally) -> Measured | None:
        """They do not tell."""
        return None


class Leaves:
    """The leaves of one axis, for an oracle that perturbs "no row" itself."""

    name: ClassVar[str] = "wave"
    margins: ClassVar[bool] = True
    histogram: ClassVar[bool] = False

    def draw(
        self, plan: Plan, view: View, people: People, who: IntArray, rng: np.random.Generator
    ) -> IntArray:
        """See `Kind`."""
        return _slot_items(plan, view, people, who, rng, _grid_cells)

    def mean_rows(self, plan: Plan, number: int, tally: ViewTally) -> Measured | None:
        """They do not tell."""
        return None


class RowCount:
    """How many rows, up to the cap."""

    name: ClassVar[str] = "rows"
    margins: ClassVar[bool] = False
    histogram: ClassVar[bool] = True

    def draw(
        self, plan: Plan, view: View, people: People, who: IntArray, rng: np.random.Generator
    ) -> IntArray:
        """The number."""
        return np.asarray(np.minimum(people.rows(who), plan.rows_cap))

    def mean_rows(self, plan: Plan, number: int, tally: ViewTally) -> Measured | None:
        """Another round's people tell (`tau`)."""
        return None


class RowBit:
    """How many rows, from floor to cap, as the chance of a bit."""

    name: ClassVar[str] = "rows_bit"
    margins: ClassVar[bool] = False
    histogram: ClassVar[bool] = False

    def draw(
        self, plan: Plan, view: View, people: People, who: IntArray, rng: np.random.Generator
    ) -> IntArray:
        """The bit."""
        count = np.clip(people.rows(who), plan.rows_floor, plan.rows_cap) - plan.rows_floor
        draw = rng.integers(0, plan.rows_cap - plan.rows_floor, size=who.size)
        return np.asarray(draw < count, dtype=np.int64)

    def mean_rows(self, plan: Plan, number: int, tally: ViewTally) -> Measured | None:
        """From floor to cap, by the share of ones."""
        if not tally.total:
            return None
        up = shares(plan, number, tally)
        reach = plan.rows_cap - plan.rows_floor
        noise = variance(oracle_of(plan, plan.views[number]), np.clip(up, 0, 1), float(tally.total))
        return Measured(plan.rows_floor + float(up[1]) * reach, float(np.sqrt(noise[1])) * reach)


KINDS: tuple[Kind, ...] = (Grid(), Boxes(), Leaves(), RowCount(), RowBit())


def kind_of(view: View) -> Kind:
    """What a view asks.

    Raises:
        InternalError: something that has no half here.
    """
    for kind in KINDS:
        if kind.name == view.kind:
            return kind
    raise InternalError(f"no view asks {view.kind!r}", hint="use the version that wrote the plan")


def _slot_items(
    plan: Plan,
    view: View,
    people: People,
    who: IntArray,
    rng: np.random.Generator,
    cells_of: Callable[[View, IntArray], IntArray],
) -> IntArray:
    rows = people.rows(who)
    filled = rng.integers(0, plan.tau, size=who.size) < rows
    silent = view.asks.silent
    items = np.full(who.size, view.domain if silent else view.domain - 1, dtype=np.int64)
    if not view.empty and not silent:
        items[~filled] = rng.integers(0, view.domain, size=who.size - int(filled.sum()))
    row = people.first[who[filled]] + rng.integers(0, rows[filled])
    cell = cells_of(view, people.leaves[row][:, list(view.axes)])
    if view.measure is not None:
        bounds = plan.measures[view.measure]
        value = np.clip(people.measures[row, view.measure], bounds.lower, bounds.upper) - bounds.lower
        cell = cell + view.cells * (rng.integers(0, bounds.upper - bounds.lower, size=row.size) < value)
    items[filled] = cell
    return items


def _grid_cells(view: View, leaves: IntArray) -> IntArray:
    cell = np.zeros(len(leaves), dtype=np.int64)
    for position, edges in enumerate(view.edges):
        cell = cell * (len(edges) - 1) + np.searchsorted(edges, leaves[:, position], side="right") - 1
    return cell


def _boxes(view: View, leaves: IntArray) -> IntArray:
    boxes = np.array(view.boxes, dtype=np.int64).reshape(len(view.boxes), -1, 2)
    inside = (boxes[None, :, :, 0] <= leaves[:, None, :]) & (leaves[:, None, :] < boxes[None, :, :, 1])
    return np.asarray(np.argmax(inside.all(axis=2), axis=1), dtype=np.int64)
