"""Tables with `max_ids: auto` rehearsed before anything is spent: the recipe on made-up rows, as a release holds it.

**Privacy**: public facts and guesses alone; the noise is test entropy, and a release that holds a rehearsal is marked
as not private.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dpsql.answer.leafsets import FloatArray
from dpsql.publishing.bounding import DrawnRelease
from dpsql.publishing.content import release_content
from dpsql.publishing.planned import ReleasePlan
from dpsql.publishing.userlevel.guess import Crowds, Guess
from dpsql.publishing.userlevel.made_up import RehearsedTable, chosen_tables, make_up
from dpsql.release.format import UNIT, ScaleMeta
from dpsql.release.write import ReleaseBuilder, StatisticPart
from dpsql.variance import AxisVariance
from dpsql.variance.reading import Together


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """One rehearsal of all tables with `max_ids: auto`.

    Args:
        parts: what the release holds of each of their statistics, by index in the plan, and its leaves in stored units.
        spreads: how far shares may be off, the last model of each statistic.
        scales: of each table.
        stands_for: how many units each made-up unit stands for, by table: counts and sums, and their errors, are that
            many times as large.
    """

    parts: Mapping[int, tuple[StatisticPart, FloatArray]]
    spreads: Mapping[int, AxisVariance | Together]
    scales: tuple[ScaleMeta, ...]
    stands_for: Mapping[str, int]

    def put_into(self, builder: ReleaseBuilder) -> ReleaseBuilder:
        """A dry release with these statistics in the place of its own."""
        models, statistics = list(builder.models), list(builder.statistics)
        for i, (part, _) in self.parts.items():
            numbers = part.meta.models
            if i in self.spreads:
                numbers = (*numbers[:-1], len(models))
                models.append(self.spreads[i])
            statistics[i] = StatisticPart(replace(part.meta, id=i, models=numbers), part.content)
        return replace(builder, models=models, statistics=statistics, scales=self.scales)

    @property
    def blind(self) -> dict[str, tuple[str, ...]]:
        """Table -> what has no upper end of it: the empty name for its rows, else names of measures."""
        found = {s.of: tuple(m.measure for m in s.measures if m.error.up is None) for s in self.scales}
        return {of: names for of, names in found.items() if names}


def rehearse(plan: ReleasePlan, guess: Guess, crowds: Crowds, seed: int) -> Rehearsal:
    """Make every table with `max_ids: auto` up and run the recipe on it.

    Args:
        plan: the planned release.
        guess: what is publicly known about these tables.
        crowds: how crowded the leaves of axes are expected to be.
        seed: of made-up rows and noise.
    """
    made = {of: make_up(plan, of, guess, crowds, seed) for of in chosen_tables(plan)}
    content = release_content(_drawn(plan, made), "rehearsal", insecure=True)
    parts, spreads = {}, {}
    for i, part in zip(
        (i for each in made.values() for i in each.drawn.statistics), content.statistics, strict=True
    ):
        where = np.ix_(*(content.axes[axis].content.tree.leaves for axis in part.meta.axes))
        nodes = part.content.nodes
        parts[i] = part, np.asarray((nodes[where] if part.meta.axes else nodes) / UNIT, np.float64)
        if part.meta.models and part.meta.models[-1] >= len(plan.axes):
            spreads[i] = content.models[part.meta.models[-1]]
    stands_for = {of: each.stands_for for of, each in made.items()}
    return Rehearsal(parts, spreads, tuple(content.scales), stands_for)


def _drawn(plan: ReleasePlan, made: Mapping[str, RehearsedTable]) -> DrawnRelease:
    """The rehearsed tables as one release, without the others."""
    mine = [(i, each.drawn) for each in made.values() for i in each.drawn.statistics]
    return DrawnRelease(
        replace(plan, statistics=tuple(drawn.statistics[i] for i, drawn in mine)),
        tuple(drawn.views[i] for i, drawn in mine),
        tuple(each.drawn.scale for each in made.values()),
        (),
        {place: drawn.corrected[i] for place, (i, drawn) in enumerate(mine) if i in drawn.corrected},
        {place: drawn.differences[i] for place, (i, drawn) in enumerate(mine) if i in drawn.differences},
    )
