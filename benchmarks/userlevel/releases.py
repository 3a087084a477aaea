"""Many user-level releases of one star, drawn by the code that publishes, without the file around them.

The rows are placed and counted once; each release chooses its own bounds, weights and noise from a seeded generator.
Questions are answered by the code that answers: the same readings, the same functions of errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from benchmarks.baselines.common import SimulationNoise
from dpsql.catalog import Catalog, load_catalog
from dpsql.central.axes import axis_maker
from dpsql.central.bounding import DrawnRelease
from dpsql.central.content import release_content
from dpsql.central.placed_rows import exact_sums, place_rows, prepare_tables
from dpsql.central.plan import plan_release
from dpsql.central.planned import ReleasePlan
from dpsql.contributions.recipe import DrawnRecipe, settle_table
from dpsql.contributions.selection import RecipeTable
from dpsql.engines import open_sources
from dpsql.engines.duck import RawSide
from dpsql.matrices.kronecker import AxisSplit
from dpsql.matrices.model import Reading
from dpsql.matrices.reading import reading
from dpsql.noise import Noise
from dpsql.planner.plan import ReleaseView, views_of
from dpsql.release.format import UNIT, AxisMeta, Meta, StatisticMeta
from dpsql.tree import Tree

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Release:
    """One release as the answering side sees it.

    Args:
        meta: its `meta` table.
        catalog: its catalog.
        readings, leaves: of each statistic, by id; leaves in its own units.
        trees: look-up trees by axis.
        drawn: what was chosen.
    """

    meta: Meta
    catalog: Catalog
    readings: tuple[Reading, ...]
    leaves: tuple[FloatArray, ...]
    trees: tuple[Tree, ...]
    drawn: DrawnRecipe
    _kept: dict[object, Any] = field(default_factory=dict, repr=False)

    @property
    def scales(self) -> dict[str, Any]:
        return {scale.of: scale for scale in self.meta.scales}

    @property
    def statistics(self) -> tuple[StatisticMeta, ...]:
        return self.meta.statistics

    @property
    def axes(self) -> tuple[AxisMeta, ...]:
        return self.meta.axes

    def kept(self, key: object, make: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def tree(self, axis: int) -> Tree:
        return self.trees[axis]

    def reading(self, statistic: int) -> Reading:
        return self.readings[statistic]

    def shared(self, left: int, right: int) -> Reading | None:
        return self.readings[left] if left == right else None

    def view(self, name: str) -> ReleaseView:
        """The view of this name."""
        return next(view for view in views_of(cast(Any, self)) if view.name == name)


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

    @property
    def measure(self) -> str:
        """The measure that is asked: the table's first."""
        return next(
            s.measure.name for s in self.plan.row_statistics(self.of).values() if s.bounds is not None
        )

    def axes(self, view: str) -> tuple[int, ...]:
        """Axis ids of a view."""
        return next(s.axes for s in self.plan.statistics if s.view == view)

    @cached_property
    def truth(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Rows and sums of the cells of every view that holds the measure, over all rows; sums in stored units."""
        found = {}
        for s in self.plan.row_statistics(self.of).values():
            if s.measure.name == self.measure:
                cells = exact_sums(
                    self.raw.connection,
                    self.rows,
                    s.axes,
                    self.plan.shape(s),
                    ["1", self.columns[self.measure]],
                )
                found[s.view] = (cells[0].astype(np.float64), cells[1].astype(np.float64))
        return found

    def release(self, seed: int) -> Release:
        """Draw one release."""
        return self.drawn(SimulationNoise(seed))

    def drawn(self, noise: Noise) -> Release:
        """Draw one release with some noise."""
        relations = self.raw.relations("a simulated release")
        table = RecipeTable(relations, self.plan, self.of, self.rows, self.columns, noise)
        return self.told(settle_table(table))

    def told(self, drawn: DrawnRecipe) -> Release:
        """What was drawn of the table, as a release tells it."""
        mine = list(drawn.statistics)
        plan = replace(self.plan, statistics=tuple(drawn.statistics[i] for i in mine))
        order = {i: k for k, i in enumerate(mine)}
        made = DrawnRelease(
            plan, tuple(drawn.views[i] for i in mine), (drawn.scale,), (),
            {order[i]: each for i, each in drawn.corrected.items()},
        )  # fmt: skip
        content = release_content(made, "simulated", insecure=True)
        pieces = [AxisSplit(m) if k < len(plan.axes) else m for k, m in enumerate(content.models)]
        readings, leaves = [], []
        for part in content.statistics:
            own = part.meta
            readings.append(reading(own.reading, [pieces[k] for k in own.models], dict(own.components)))
            where = np.ix_(*(content.axes[axis].tree.leaves for axis in own.axes))
            leaves.append(part.content.nodes[where] / UNIT if own.axes else part.content.nodes / UNIT)
        trees = tuple(axis.tree for axis in content.axes)
        return Release(content.meta, self.plan.catalog, tuple(readings), tuple(leaves), trees, drawn)


def open_star(file: Path, of: str | None = None, *, pure: bool = False, **privacy: str) -> Star:
    """Place the rows of a user-level catalog.

    Args:
        file: the catalog.
        of: the counted table; the first with `max_ids: auto` unless given.
        pure: publish at delta 0.
        privacy: entries of the catalog's privacy to change, for experiments.
    """
    catalog = _changed(load_catalog(file), {"delta": Fraction(0)} if pure else {}, privacy)
    source = catalog.raw_source()
    raw = open_sources(source.kind, source.folder(file), source.tables)
    plan = plan_release(catalog, axis_maker(catalog, raw))
    prepare_tables(catalog, raw, plan)
    of = of or next(s.of for s in plan.statistics if catalog.tables[s.of].max_ids == "auto")
    rows, columns = place_rows(catalog, raw, plan, of, bytes(32))
    return Star(raw, plan, of, rows, columns)


def _changed(catalog: Catalog, *updates: dict[str, object]) -> Catalog:
    privacy = catalog.privacy
    for update in updates:
        privacy = privacy.model_copy(update=update)
    return catalog.model_copy(update={"privacy": privacy})
