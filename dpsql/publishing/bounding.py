"""Bounding a person's rows by a declared `max_ids`, and telling how much it left out.

| word | a unit's rows beyond tau | what COUNT then means |
|---|---|---|
| `truncate` | left out, by keyed hash | rows, at most tau a unit |
| `weight` | all of them count min(1, tau / rows of the unit) | the same total a unit, spread over all its rows |

With `clipped_share` one more number is released: the rows beyond tau, at most `REACH` tau of one unit. It says how
far answers are biased, which no error bar can.

**Privacy**: the number of rows left out is itself private: one unit changes it by at most REACH tau, and its draw has
a line of its own in the ledger.
**Source**: docs/method/rows.md, "At most tau rows of a unit".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dpsql.catalog.graph import unit_path
from dpsql.catalog.model import Catalog
from dpsql.mechanisms.law import LAPLACE, NoiseLaw
from dpsql.noise import Noise
from dpsql.publishing.exact import cut_sum
from dpsql.publishing.userlevel_plan import Step
from dpsql.sources import RawSide

if TYPE_CHECKING:
    from dpsql.publishing.planned import PlannedStatistic, ReleasePlan

CLIPPED = "rows left out"

REACH = 3
"""Rows of one unit beyond tau are told up to this many times tau: most of what is left out, at little noise."""


@dataclass(frozen=True)
class LeftOut:
    """What bounding left out of one table.

    Args:
        of: the counted table.
        bounding: `truncate` or `weight`.
        tau: rows that one unit counts for.
        rows: noisy number of rows left out.
        stderr: its standard error.
        at_most: rows of one unit that it counts at most.
    """

    of: str
    bounding: str
    tau: int
    rows: int
    stderr: float
    at_most: int

    def fraction(self, kept: float) -> float:
        """The part of all rows that was left out, from a released number of rows that counted."""
        return max(0.0, self.rows) / max(1.0, self.rows + kept)


def is_weighted(catalog: Catalog, of: str) -> bool:
    """Whether the rows of a table count with weights."""
    return catalog.tables[of].bounding == "weight" and unit_path(catalog, of) is not None


def set_aside(
    catalog: Catalog,
    of: str,
    statistics: Sequence[PlannedStatistic],
    buy: Callable[[Fraction, NoiseLaw], Fraction],
) -> tuple[list[Step], list[PlannedStatistic]]:
    """Take the table's `clipped_share` out of the charges of its statistics.

    Args:
        catalog: the catalog.
        of: the counted table.
        statistics: all statistics of the release.
        buy: (charge, law) -> what it buys in the noise's own currency.

    Returns:
        (the step, if the table has one; all statistics); charges add up to what they were.
    """
    share = catalog.tables[of].clipped_share
    if share is None or unit_path(catalog, of) is None:
        return [], list(statistics)
    charge = share * sum((s.charge for s in statistics if s.of == of), Fraction(0))

    def reduced(s: PlannedStatistic) -> PlannedStatistic:
        left = s.charge * (1 - share)
        return replace(s, charge=left, spend=buy(left, s.law))

    step = Step(of, CLIPPED, "", buy(charge, LAPLACE), charge)
    return [step], [reduced(s) if s.of == of else s for s in statistics]


def measure_left_out(
    catalog: Catalog, raw: RawSide, plan: ReleasePlan, of: str, noise: Noise
) -> list[LeftOut]:
    """Draw the number of rows left out, where the table pays for it.

    Args:
        catalog, raw, plan: the release being made; `prepare_tables` has run.
        of: the counted table.
        noise: where noise comes from.

    **Privacy**: the step's epsilon; sensitivity REACH tau.
    """
    from dpsql.publishing.rows import place_rows

    steps = [step for step in plan.steps if (step.of, step.kind) == (of, CLIPPED)]
    if not steps:
        return []
    tau = next(s.tau for s in plan.statistics if s.of == of)
    table, _ = place_rows(catalog, raw, plan, of, tau=0)
    ((beyond,),) = raw.connection.execute(
        f"SELECT {cut_sum(f'least(greatest(n - {tau}, 0), {REACH * tau})')} "
        f"FROM (SELECT count(*) AS n FROM {table} GROUP BY unit)"
    ).fetchall()
    drawn = LAPLACE.draw_bounded(np.array([beyond], np.int64), REACH * tau, steps[0].spend, noise)
    return [LeftOut(of, catalog.tables[of].bounding, tau, int(drawn.value[0]), drawn.sd, REACH * tau)]
