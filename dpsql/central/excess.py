"""Values beyond the declared bounds of a measure: how many privacy units have some, and how far beyond.

A sum counts a value beyond its bounds as the nearest bound. `excess_share: 0.01` on a table spends one percent of its
charges, for each measure that its views sum, on the number of units whose values lie beyond: above, below or both, and
near or far by their excess, what a unit's values exceed the bounds by, added up over all its rows. Intervals reach as
far as these may move sums and averages (`dpsql.intervals.excess`).

At one percent of a pure epsilon a number has the error sqrt(2) / (.01 epsilon), 141 at epsilon 1, so an interval is 2.8
times that times the mean excess longer even where nothing lies beyond. So `dpsql init` proposes bounds above the 99.9%
value: the next but one of 1, 2 and 5 times a power of ten, never the largest value itself.

| here | there | unit |
|---|---|---|
| `NEAR` | the excess up to which a unit is near | widths of the bounds |
| `UnitsBeyond.units` | units above near, above far, below near, below far, both | units |

**Privacy**: docs/privacy.md section 2, "Values beyond bounds": a unit is in at most one of a measure's numbers, so
adding or removing it changes one by 1. Each measure has a draw and a line of the ledger.
**Source**: docs/method/rows.md, "Values beyond the bounds".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpsql.catalog import Catalog
from dpsql.catalog.base import LARGEST_UNITS
from dpsql.catalog.derived import PREFIX
from dpsql.central.placed_rows import measure_digits
from dpsql.central.planned import Bounds, PlannedStatistic, ReleasePlan, Step, lowered, spend_of
from dpsql.contributions.selection import Divided
from dpsql.engines.counting import BoundedDigit, units_beyond_bounds
from dpsql.engines.engine import Engine
from dpsql.engines.joined_rows import PlacedRows, Relations
from dpsql.errors import CatalogError
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.noise import Noise
from dpsql.tree import Exact

EXCESS = "values beyond bounds"

NEAR = 3
"""Widths of the bounds up to which a unit's excess is near. More classes would each add the noise of a number."""

MARGIN = NEAR + 1
"""Widths beyond the bounds up to which a value is read: past `NEAR`, so that what is far is seen to be."""

EXCESS_SHARE = Fraction(1, 100)
"""What drafts and designs propose: bounds that were read from rows, or typical ones of a person's rows, cut some."""

MOST_SPENT = Fraction(1, 2)
"""Of a table's charges, by all of its measures."""


@dataclass(frozen=True)
class UnitsBeyond:
    """Units with values of one measure beyond its bounds, measured.

    Args:
        of, measure: the counted table and the measure.
        bounds: its bounds.
        units: noisy numbers: above the upper bound alone near and far, below the lower alone near and far, both; the
            last is left out where every row is a unit.
        stderr: standard error of each.
    """

    of: str
    measure: str
    bounds: Bounds
    units: tuple[int, ...]
    stderr: float


def measured_bounds(statistics: Sequence[PlannedStatistic], of: str) -> dict[str, Bounds]:
    """The measures of a table whose values beyond the bounds can be measured, by name.

    Squares are left out, since those of a value just beyond its bounds are near at once; bounds that wide too.
    """
    return {
        s.measure.name: s.bounds
        for s in statistics
        if s.of == of and s.bounds is not None and not s.measure.column.startswith(PREFIX)
        and max(map(abs, (s.bounds.wider(MARGIN).lower, s.bounds.wider(MARGIN).upper))) < LARGEST_UNITS
    }  # fmt: skip


def excess_steps(
    catalog: Catalog, of: str, statistics: Sequence[PlannedStatistic], law: NoiseDistribution
) -> Divided:
    """Take the `excess_share` of a table out of the charges of its statistics, once for each of its measures.

    Args:
        catalog: the catalog.
        of: the counted table.
        statistics: all statistics of the release.
        law: the noise of these numbers.

    Raises:
        CatalogError: the measures together take more than half of the table's charges.
    """
    share = catalog.tables[of].excess_share or Fraction(0)
    names = measured_bounds(statistics, of) if share else {}
    if not names:
        return Divided([], list(statistics))
    if share * len(names) > MOST_SPENT:
        raise CatalogError(
            f"tables.{of}.excess_share: {share} for each of {len(names)} measures is more than half of the budget",
            hint="lower it",
        )
    charge = share * sum((s.charge for s in statistics if s.of == of), Fraction(0))
    steps = [Step(of, EXCESS, name, spend_of(catalog, charge, law), charge) for name in names]
    return Divided(steps, lowered(catalog, statistics, of, share * len(names)))


def units_beyond(
    catalog: Catalog, raw: Engine, plan: ReleasePlan, rows: PlacedRows, of: str, relations: Relations,
    law: NoiseDistribution, noise: Noise,
) -> tuple[UnitsBeyond, ...]:  # fmt: skip
    """Count the units with values beyond the bounds of a table's measures, and draw their numbers.

    Args:
        catalog, raw, plan: the release being made.
        rows: the table's placed rows.
        of: the counted table.
        relations: what runs the statement.
        law: the noise.
        noise: where it comes from.

    **Privacy**: the spends of the table's steps of this kind; sensitivity 1 each, in L1 and in L2.
    """
    statistics = [s for s in plan.statistics if s.of == of]
    bounds = measured_bounds(statistics, of)
    steps = [step for name in bounds if (step := plan.step(of, EXCESS, name)) is not None]
    digits = measure_digits(catalog, raw, statistics, MARGIN)
    measured = [
        BoundedDigit(digits[step.measure].name, ends.lower, ends.upper, NEAR * ends.width)
        for step in steps for ends in [bounds[step.measure]]
    ]  # fmt: skip
    counted = replace(rows, measures=tuple(digits[step.measure] for step in steps))
    columns = relations.fetch(units_beyond_bounds(counted, measured, raw.dialect))
    exact = np.array([columns[f"v{i}"][0] for i in range(len(columns))], np.int64).reshape(len(steps), -1)
    drawn_measures = []
    for step, numbers in zip(steps, exact, strict=True):
        drawn = law.draw_bounded(Exact(numbers), 1, step.spend, noise)
        drawn_measures.append(
            UnitsBeyond(of, step.measure, bounds[step.measure], tuple(drawn.value.tolist()), drawn.sd)
        )
    return tuple(drawn_measures)
