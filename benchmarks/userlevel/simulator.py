"""Many releases of one star without its rows: exact numbers of each person are taken once, noise is drawn again.

A release chooses its bounds, weights and centres from its own noisy numbers, so weighted cells differ from one to the
next. All of them are sums over people of what the engine computes from their rows: people by amounts, clipped totals,
norms and weighted cells. Here these sums are products with sparse matrices (people by cells) that are made once, in the
place of the engine's SQL. Everything else is the code that publishes and the code that answers: histograms' noise,
tails, clips, factors, weights, readings, intervals.

    python -m benchmarks.userlevel.measure --alone --stars nafld --draws 40

What may differ from a publish: weights are roots of doubles (relative 1e-16), and noise comes from a seeded generator.
Whole publishes are compared with it (`matched`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from unittest import mock

import numpy as np
from scipy import sparse

from benchmarks.userlevel.releases import Release, Star
from dpsql.central.planned import PlannedStatistic
from dpsql.contributions import selection, statements
from dpsql.contributions.statements import UNIT, NormView, WeightedRows, Whitening
from dpsql.errors import InternalError
from dpsql.release import write
from dpsql.tree import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Cells:
    """What people add to one view, (people, cells): rows and sums of the measure."""

    rows: sparse.csr_array
    sums: sparse.csr_array

    @cached_property
    def turned(self) -> tuple[sparse.csr_array, sparse.csr_array]:
        """The same as (cells, people)."""
        return self.rows.T.tocsr(), self.sums.T.tocsr()

    @cached_property
    def squares(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of each person: squared rows, rows times sums, squared sums."""
        pairs = ((self.rows, self.rows), (self.rows, self.sums), (self.sums, self.sums))
        one, two, three = (np.asarray(a.multiply(b).sum(axis=1)).ravel() for a, b in pairs)
        return one, two, three


class People:
    """Who stands in for the engine: the exact numbers of every person of a star.

    Args:
        star: a star with one measure that is never NULL, on axes of single leaves.
    """

    def __init__(self, star: Star) -> None:
        self.star, plan = star, star.plan
        names = {s.measure.name for s in plan.row_statistics(star.of).values()}
        if names != {"count", star.measure} or any(not a.strategy.rows.is_identity for a in plan.axes):
            raise InternalError("the simulator is for one measure, and for axes of leaves")
        self.column = star.columns[star.measure]
        axes = sorted({axis for s in plan.row_statistics(star.of).values() for axis in s.axes})
        keys = ", ".join(f"a{axis}" for axis in axes)
        taken = star.raw.connection.execute(
            f"SELECT unit, {keys}, {self.column} AS y FROM {star.rows}"
        ).fetchnumpy()
        _, self.unit = np.unique(np.asarray(taken["unit"]), return_inverse=True)
        self.number = int(self.unit.max()) + 1
        self.value = np.asarray(taken["y"], np.int64)
        self.leaf = {axis: np.asarray(taken[f"a{axis}"], np.int64) for axis in axes}
        self.owned = np.bincount(self.unit, minlength=self.number)
        self.sums = np.bincount(self.unit, self.value, self.number).astype(np.int64)
        self._cells: dict[tuple[int, ...], Cells] = {}
        self._sizes: dict[int, IntArray] = {}

    def cells(self, axes: tuple[int, ...]) -> Cells:
        """Those of a view."""
        if axes not in self._cells:
            shape = [self.star.plan.axes[axis].axis.leaves for axis in axes]
            place = np.ravel_multi_index(tuple(self.leaf[axis] for axis in axes), tuple(shape))
            size = (self.number, int(np.prod(shape)))
            self._cells[axes] = Cells(
                sparse.coo_array((np.ones(len(place)), (self.unit, place)), shape=size).tocsr(),
                sparse.coo_array((self.value.astype(np.float64), (self.unit, place)), shape=size).tocsr(),
            )
        return self._cells[axes]

    def amount(self, sql: str) -> IntArray:
        """What the recipe calls an amount of each person."""
        if sql == "norm":
            return np.asarray(self.norm)
        return {"n": self.owned, "s0": self.sums, "abs(s0)": np.abs(self.sums)}[sql]

    def people_per_bin(self, people: str, amount: str, edges: Sequence[int]) -> IntArray:
        bins = np.searchsorted(
            np.asarray(edges, np.float64), self.amount(amount).astype(np.float64), side="left"
        )
        return np.bincount(bins, minlength=len(edges) + 1).astype(np.int64)

    def clipped_total(self, people: str, amount: str, bound: int) -> int:
        return int(np.clip(self.amount(amount), -bound, bound).sum())

    def make_norms(self, rows: str, of: str, views: Sequence[NormView], whitening: Whitening) -> str:
        norm = np.zeros(self.number)
        for view in views:
            cells = self.cells(tuple(sorted(view.axes)))
            one, two, three = cells.squares
            for index, value in view.values.items():
                mid = self.mid(value)
                square = one if mid is None else three - 2 * mid * two + mid**2 * one
                norm += float(whitening.coefficient[index]) * square
        self.norm = norm
        return "norms"

    def mid(self, value: str) -> int | None:
        """The centre in the SQL of what a row adds; None for rows."""
        if value == "1":
            return None
        return int(value.removeprefix(f"{self.column} - (").removesuffix(")"))

    def make_weights(self, norms: str, of: str, clip: int) -> str:
        self.clip = clip
        ratio = np.divide(float(UNIT) ** 2 * clip, self.norm, out=np.zeros(self.number), where=self.norm > 0)
        self.weight = np.floor(np.sqrt(np.minimum(ratio, float(UNIT) ** 2)))
        return "weights"

    def make_pure_weights(self, rows: str, of: str, tau: int, bounds: Sequence[tuple[str, int]]) -> str:
        ((value, bound),) = bounds
        self.clip, mid = tau, self.mid(value)
        if mid not in self._sizes:
            sizes = np.abs(self.value - (mid or 0))
            self._sizes = {mid or 0: np.bincount(self.unit, sizes, self.number).astype(np.int64)}
        (self.size,) = self._sizes.values()
        of_rows, of_sums = UNIT * tau // self.owned, UNIT * bound // np.maximum(self.size, 1)
        self.weight = np.minimum(UNIT, np.minimum(of_rows, of_sums)).astype(np.float64)
        return "weights"

    def weighted_cells(
        self, plan: object, of: str, bound: WeightedRows, columns: Mapping[str, str]
    ) -> Weighted:
        return Weighted(self, self.weight)


@dataclass(frozen=True, eq=False)
class Weighted:
    """Cells of people who count with a weight."""

    people: People
    weight: FloatArray

    def of(self, *statistics: PlannedStatistic) -> list[IntArray]:
        rows, sums = self.people.cells(statistics[0].axes).turned
        plan, counted = self.people.star.plan, rows @ self.weight
        return [
            np.rint(counted if s.bounds is None else sums @ self.weight - s.mid * counted)
            .astype(np.int64).reshape(plan.shape(s))
            for s in statistics
        ]  # fmt: skip


@contextlib.contextmanager
def simulated(people: People) -> Iterator[Star]:
    """The star with its people in the place of its engine.

    **Yields**: a star whose `release` draws noise alone.
    """
    asked = {
        selection: ("people_per_bin", "clipped_total"),
        statements: ("make_norms", "make_weights", "make_pure_weights", "weighted_cells"),
    }
    kept: dict[int, object] = {}
    axis_parts = write.axis_parts

    def once(axes: object) -> object:
        return kept.setdefault(0, axis_parts(axes))  # type: ignore[arg-type]

    with contextlib.ExitStack() as stack:
        for module, names in asked.items():
            for name in names:
                method = getattr(people, name)
                stack.enter_context(
                    mock.patch.object(module, name, lambda _, *rest, method=method: method(*rest))
                )
        stack.enter_context(mock.patch.object(selection, "make_people", lambda *_: "people"))
        stack.enter_context(mock.patch.object(write, "axis_parts", lambda a: kept[0] if kept else once(a)))
        yield replace(people.star)


def releases(star: Star, draws: int, first: int = 1) -> Iterator[Release]:
    """So many simulated releases of a star."""
    with simulated(People(star)) as drawn:
        for seed in range(first, first + draws):
            yield drawn.release(seed)
