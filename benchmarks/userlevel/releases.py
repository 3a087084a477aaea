"""Many user-level releases of one star, drawn by the code that publishes, without the file around them.

The rows are placed once; each release chooses its own bounds, weights and noise from a seeded generator. The noise of
every statistic is recorded, so each release also knows what it would have said without noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.baselines.common import SimulationNoise
from dpsql.engines import RawSide, open_sources
from dpsql.mechanisms.law import NoisyView
from dpsql.noise import noised
from dpsql.publishing.axes import axis_maker
from dpsql.publishing.bounding import DrawnRelease
from dpsql.publishing.cells import exact_sums
from dpsql.publishing.content import release_content
from dpsql.publishing.plan import plan_release
from dpsql.publishing.planned import ReleasePlan
from dpsql.publishing.rows import place_rows, prepare_tables
from dpsql.publishing.userlevel.choose import GROUP_ROWS, Table
from dpsql.publishing.userlevel.recipe import Drawn, settle_table
from dpsql.release.format import UNIT
from dpsql.star import Catalog, load_catalog
from dpsql.variance.kronecker import AxisSplit, ProductReading

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

COUNT, SUM = "count", "sum"


class RecordingNoise(SimulationNoise):
    """Seeded noise that remembers its last draw."""

    def __init__(self, seed: int) -> None:
        """Start the generator at `seed`."""
        super().__init__(seed)
        self.drawn: list[IntArray] = []

    def laplace(self, units: IntArray, denominator: int, exact: IntArray | None = None) -> IntArray:
        """See `SimulationNoise`."""
        self.drawn.append(super().laplace(units, denominator))
        return noised(exact, self.drawn[-1])

    def gaussian(self, sigma2: Fraction, size: int, exact: IntArray | None = None) -> IntArray:
        """See `SimulationNoise`."""
        self.drawn.append(super().gaussian(sigma2, size))
        return noised(exact, self.drawn[-1])


@dataclass(frozen=True)
class Numbers:
    """Leaf arrays of one view.

    Args:
        count: rows, shape (n_1, .., n_d).
        total: centred sums in stored units (not centred for the truth), the same shape.
        mid: the centre.
        variances: of counts and of centred sums; None for the truth.
    """

    count: FloatArray
    total: FloatArray
    mid: int = 0
    variances: tuple[ProductReading, ProductReading] | None = None


@dataclass(frozen=True)
class Release:
    """One release: its views, the same views without noise, and what was chosen."""

    views: dict[str, Numbers]
    noiseless: dict[str, Numbers]
    drawn: Drawn


@dataclass(frozen=True)
class Star:
    """A star whose rows are placed.

    Args:
        raw: its raw side.
        plan: what a release would measure.
        of: the counted table.
        rows: its placed rows.
        columns: SQL of its measures.
    """

    raw: RawSide
    plan: ReleasePlan
    of: str
    rows: str
    columns: dict[str, str]

    def axes(self, view: str) -> tuple[int, ...]:
        """Axis ids of a view."""
        return next(s.axes for s in self.plan.statistics if s.view == view)

    def names(self, view: str) -> list[str]:
        """Axis names of a view."""
        return [self.plan.axes[axis].axis.name for axis in self.axes(view)]

    def truth(self) -> dict[str, Numbers]:
        """Every view over all rows, nothing bounded but the rows' own values."""
        found = {}
        for view in dict.fromkeys(s.view for s in self.plan.statistics):
            axes = self.axes(view)
            shape = [self.plan.axes[axis].axis.leaves for axis in axes]
            column = next(iter(self.columns.values()))
            count, total = exact_sums(self.raw.connection, self.rows, axes, shape, ["1", column])
            found[view] = Numbers(count.astype(np.float64), total.astype(np.float64))
        return found

    def release(self, seed: int) -> Release:
        """Draw one release."""
        noise = RecordingNoise(seed)
        drawn = settle_table(Table(self.raw.connection, self.plan, self.of, self.rows, self.columns, noise))
        order = list(drawn.views)
        after = sum(step.kind == GROUP_ROWS for step in self.plan.steps)
        last = noise.drawn[-len(order) - after : len(noise.drawn) - after]
        clean = {
            i: replace(drawn.views[i], value=drawn.views[i].value - d.reshape(drawn.views[i].value.shape))
            for i, d in zip(order, last, strict=True)
        }
        return Release(self._numbers(drawn, drawn.views), self._numbers(drawn, clean), drawn)

    def _numbers(self, drawn: Drawn, views: dict[int, NoisyView]) -> dict[str, Numbers]:
        """Reconciled leaf estimates, as the release file would hold them."""
        order = range(len(self.plan.statistics))
        plan = replace(self.plan, statistics=tuple(drawn.statistics[i] for i in order))
        made = DrawnRelease(plan, tuple(views[i] for i in order))
        content = release_content(made, "simulated", insecure=True)
        found: dict[str, dict[str, tuple[FloatArray, ProductReading, int]]] = {}
        for i, statistic in enumerate(plan.statistics):
            where = np.ix_(*[content.axes[axis].content.tree.leaves for axis in statistic.axes])
            splits = tuple(AxisSplit(content.models[axis]) for axis in statistic.axes)
            variance = ProductReading(splits, dict(content.meta.statistics[i].components))
            kind = COUNT if statistic.bounds is None else SUM
            leaves = content.statistics[i].content.nodes[where] / UNIT
            found.setdefault(statistic.view, {})[kind] = (leaves, variance, statistic.mid)
        return {
            view: Numbers(v[COUNT][0], v[SUM][0], v[SUM][2], (v[COUNT][1], v[SUM][1]))
            for view, v in found.items()
        }


def open_star(file: Path, *, pure: bool = False, **privacy: str) -> Star:
    """Place the rows of a user-level catalog.

    Args:
        file: the catalog.
        pure: publish at delta 0.
        privacy: entries of the catalog's privacy to change, for experiments.
    """
    catalog = _changed(load_catalog(file), {"delta": Fraction(0)} if pure else {}, privacy)
    source = catalog.raw_source()
    raw = open_sources(source.kind, source.folder(file), source.tables)
    plan = plan_release(catalog, axis_maker(catalog, raw))
    prepare_tables(catalog, raw, plan)
    of = plan.statistics[0].of
    rows, columns = place_rows(catalog, raw, plan, of, bytes(32))
    return Star(raw, plan, of, rows, columns)


def _changed(catalog: Catalog, *updates: dict[str, object]) -> Catalog:
    privacy = catalog.privacy
    for update in updates:
        privacy = privacy.model_copy(update=update)
    return catalog.model_copy(update={"privacy": privacy})
