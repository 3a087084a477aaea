"""The recipe for `max_ids: auto`: shape with a low bound and one weight per person, scale from high totals.

Read `settle_table` from the top. Every number that leaves the engine is noised at once, by the draw whose
ledger line is the step of the same name; what a step decides is computed from released numbers alone.

    bounds, totals and centres  choose.py           tau, N and S of each measure, mid
    norms per unit (zCDP)       shapes.py           K, K_H
    views                       shapes.py           shapes; R = N over their total, one for each measure
    differences                 shapes.py           what R leaves out of groups
    corrections, errors         groups.py           post-processing

**Privacy**: docs/privacy/user_level.md.
**Source**: docs/method/user_level.md, "Shape and scale".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import hypot

from dpsql.mechanisms.family.people import PeopleEstimate
from dpsql.mechanisms.family.pooling import Scaled, TotalsFactor, factors
from dpsql.mechanisms.family.whitened import UNIT
from dpsql.mechanisms.law import NoisyView
from dpsql.publishing.planned import PlannedStatistic
from dpsql.publishing.userlevel.choose import RecipeChoices, RecipeTable, choose_bounds
from dpsql.publishing.userlevel.groups import Agreed, Corrected, Low, agree, measured
from dpsql.publishing.userlevel.shapes import SHAPES


@dataclass(frozen=True)
class TableScale:
    """What a release says about the scale of one table.

    Args:
        of: the counted table.
        choices: what was chosen.
        factors: R of each measure by name; of rows under the empty name.
        follows: names of the axes whose groups are seen to follow how much a unit owns.
        public_rows: whether the number of rows was told.
    """

    of: str
    choices: RecipeChoices
    factors: Mapping[str, TotalsFactor]
    follows: tuple[str, ...]
    public_rows: bool


@dataclass(frozen=True)
class DrawnRecipe:
    """One table's statistics, drawn, each by its index in the plan.

    Args:
        statistics: as they were settled.
        views: their noisy integers.
        corrected: what is added to the scaled estimates, and how far shares may be off.
        differences: noisy integers of what one factor leaves out.
        scale: the table's scale.
    """

    statistics: Mapping[int, PlannedStatistic]
    views: Mapping[int, NoisyView]
    corrected: Mapping[int, Corrected]
    differences: Mapping[int, NoisyView]
    scale: TableScale


def settle_table(table: RecipeTable) -> DrawnRecipe:
    """Choose the bounds of one table and draw its views.

    Args:
        table: the table; its rows are placed.

    Returns:
        Settled statistics, their noisy views and the table's scale.

    **Privacy**: spends the table's steps and the shares of its views, each once.
    """
    shape = SHAPES[table.law]
    choices = choose_bounds(table, partial(shape.cell_variance, table.plan), shape.fear)
    table = table.centred(choices.mids)
    shaped = shape.draw(table, choices)
    views = {i: each.view for i, each in shaped.views.items()}
    agreed = agree(table.plan, views)
    low = Low(agreed, scale_factors(table, choices, agreed))
    drawn = shaped.differ(low.factors[""].value)
    found = measured(low, drawn, shape.wide)
    settled = {
        i: replace(
            s, tau=choices.tau, sensitivity=shaped.views[i].reach, unit=UNIT, factor=low.factor(s).value / UNIT,
            noise_mid=s.mid * low.factor(s).value / low.factors[""].value,
        )
        for i, s in table.statistics.items()
    }  # fmt: skip
    scale = TableScale(table.of, choices, low.factors, found.follows, table.public_rows)
    return DrawnRecipe(settled, views, found.statistics, drawn.views, scale)


def scale_factors(table: RecipeTable, choices: RecipeChoices, views: Agreed) -> Mapping[str, TotalsFactor]:
    """R of rows and of each measure.

    Args:
        table: the table, around its centres.
        choices: its totals with a high bound.
        views: its low views.
    """
    rows = Scaled(choices.rows, views.total("count"))
    measures = {}
    for name, high in choices.sums.items():
        own = f"count({name})"
        counted, centred = views.total(own if views.of(own) else "count"), views.total(name)
        mid = choices.mids[name]
        low = PeopleEstimate(centred.value + mid * counted.value, hypot(centred.sd, mid * counted.sd))
        mean = low.value / counted.value if counted.value else 0.0
        apart = hypot(centred.sd, (mean - mid) * counted.sd)
        measures[name] = Scaled(high, low, apart / abs(low.value) if low.value else 1.0, choices.uneven[name])
    scaled = dict(factors(rows, measures, told=table.public_rows))
    known = sorted(
        {s.measure.name for s in table.statistics.values()} & {f"count({name})" for name in measures}
    )
    return scaled | {name: scaled[""].of_known(views.total(name), rows.low) for name in known}
