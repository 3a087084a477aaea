"""What a release will know of the rows beyond declared contribution bounds, before it is published.

How noisy their number will be is public. A dry release has a number of 0, as if no unit had a row beyond its bound:
predicted intervals reach as far as they will then.

**Privacy**: public facts alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from dpsql.publishing.bounding import BEYOND, REACH, law_of
from dpsql.publishing.content import unmeasured
from dpsql.publishing.planned import ReleasePlan
from dpsql.release.format import RowsBeyondBound


class BoundForecast(NamedTuple):
    """A table whose declared bound may cut.

    Args:
        of: the counted table.
        tau: rows of a unit that count.
        charge: what measuring the rows beyond is charged, in `currency`; None where they are not measured.
        currency: epsilon or mu2.
        stderr: standard error of their number.
    """

    of: str
    tau: int
    charge: str | None
    currency: str
    stderr: float | None

    def line(self) -> str:
        """As `dpsql plan` prints it."""
        if self.stderr is None:
            return f"  {self.of}: rows beyond max_ids ({self.tau}) are not measured, and every answer says so"
        return (
            f"  {self.of}: rows beyond max_ids ({self.tau}) are measured to +- {self.stderr:,.0f} rows; intervals "
            "of its counts, sums and averages reach as far as these may move them"
        )


ROWS = float(1 << 30)
"""Rows of a table in a dry release: only shares of them decide how far the rows beyond may move an answer."""


def none_beyond(plan: ReleasePlan) -> Iterator[RowsBeyondBound]:
    """What a release states of every measured table if no unit has a row beyond its bound."""
    for bound in bound_forecasts(plan):
        if bound.stderr is not None:
            counts = any(s.of == bound.of and s.measure.name == "count" for s in plan.statistics)
            yield replace(
                unmeasured(plan.catalog, bound.of), counted=ROWS if counts else None, rows=0, stderr=bound.stderr,
                at_most=REACH * bound.tau,
            )  # fmt: skip


def bound_forecasts(plan: ReleasePlan) -> tuple[BoundForecast, ...]:
    """Every table of a plan whose declared bound may cut."""
    tables, currency = plan.catalog.star.tables.values(), plan.currency.name
    forecasts = []
    for table in (table for table in tables if table.cuts):
        step = plan.step(table.name, BEYOND)
        if step is None:
            forecasts.append(BoundForecast(table.name, table.bounding.max_ids, None, currency, None))
            continue
        stderr = REACH * table.bounding.max_ids * law_of(plan.catalog).unit_noise(step.spend)
        forecasts.append(
            BoundForecast(table.name, table.bounding.max_ids, str(step.charge), currency, stderr)
        )
    return tuple(forecasts)
