"""Rows and values beyond declared bounds, as a plan tells of them.

How noisy their numbers will be is public. A dry release counts as many rows, and as many beyond, as a guess of units
and rows makes likely, else very many and none beyond, and no values: predicted intervals reach as far as they will.

`plan` takes the number of a stated guess, `design` and `buy` none. Rows are spread evenly over the values of each axis,
with 2% in each special leaf; means are as stated, else a quarter up their bounds.

**Privacy**: made of the plan alone.
**Source**: docs/method/rows.md, "Rows beyond the bound" and "Values beyond the bounds".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import hypot
from typing import NamedTuple

import numpy as np

from dpsql.central.bounding import BEYOND, EXCESS, UnitsBeyond, measured_bounds, reach, unmeasured
from dpsql.central.content import excess_meta
from dpsql.central.planned import ReleasePlan, law_of
from dpsql.contributions.rehearsal import Guess
from dpsql.executor.engine import HALF
from dpsql.release.format import RowsBeyondBound, ValuesBeyondBounds

ROWS = float(1 << 30)
"""Rows of a table of which nobody says how many it has: shares of them decide how far rows beyond move an answer."""

MADE_UP = 10_000
"""Units at most whose rows are made up; each stands for as many others."""


class BoundForecast(NamedTuple):
    """A table whose declared bound may cut.

    Args:
        of: the counted table.
        tau: rows of a unit that count.
        charge: what measuring the rows beyond is charged, in `currency`; None where they are not measured.
        currency: epsilon or mu2.
        stderr: standard error of their number, of units with at most `reach` of them.
        units_stderr: standard error of the number of units with more rows than `reach` beyond.
    """

    of: str
    tau: int
    charge: str | None
    currency: str
    stderr: float | None
    units_stderr: float | None = None

    def line(self) -> str:
        """As `dpsql plan` prints it."""
        if self.stderr is None or self.units_stderr is None:
            return f"  {self.of}: rows beyond max_ids ({self.tau}) are not measured, and every answer says so"
        error = hypot(self.stderr, (reach(self.tau) + 1) * self.units_stderr)
        return (
            f"  {self.of}: rows beyond max_ids ({self.tau}) are measured to ± {HALF * error:,.0f} rows; "
            "intervals of its counts, sums and averages allow for them, and have no end where more than "
            f"{3 * self.units_stderr:,.0f} units own more than {self.tau + reach(self.tau):,} rows"
        )


class ExcessForecast(NamedTuple):
    """A measure with declared bounds.

    Args:
        of, measure: the counted table and the measure.
        charge: what measuring the values beyond its bounds is charged, in `currency`; None where they are not measured.
        currency: epsilon or mu2.
        stderr: standard error of each number of units.
    """

    of: str
    measure: str
    charge: str | None
    currency: str
    stderr: float | None

    def line(self) -> str:
        """As `dpsql plan` prints it."""
        if self.stderr is None:
            return f"  {self.measure}: values beyond its bounds are not measured, and every sum says so"
        return (
            f"  {self.measure}: units with values beyond its bounds are measured to ± {HALF * self.stderr:,.0f}; "
            "intervals of sums and averages allow for them"
        )


def excess_forecasts(plan: ReleasePlan) -> tuple[ExcessForecast, ...]:
    """Every measure of a plan that is summed, with what its values beyond the bounds are measured to."""
    law, forecasts = law_of(plan.catalog), {}
    for s in (s for s in plan.statistics if s.bounds is not None):
        step = plan.step(s.of, EXCESS, s.measure.name)
        forecasts[s.of, s.measure.name] = ExcessForecast(
            s.of, s.measure.name, None if step is None else str(step.charge), plan.currency.name,
            None if step is None else law.bounded_noise(1, step.spend),
        )  # fmt: skip
    return tuple(forecasts.values())


def no_excess(plan: ReleasePlan, guess: Guess | None) -> Iterator[ValuesBeyondBounds]:
    """Excess statistics of a release in which no unit has a value beyond a bound; means as guessed, or a quarter up."""
    for of, measure, _, _, stderr in excess_forecasts(plan):
        if stderr is not None:
            bounds = measured_bounds(plan.statistics, of)[measure]
            numbers = 4 if plan.catalog.star.tables[of].unit is None else 5
            stated = excess_meta(plan, UnitsBeyond(of, measure, bounds, (0,) * numbers, stderr))
            counts = any(s.of == of and s.measure.name.counts_rows for s in plan.statistics)
            mean = (guess or Guess(1, 1)).mean_of(measure, bounds) * 10.0**-bounds.scale
            counted, _, _ = _rows(guess, of, plan.catalog.star.tables[of].bounding.max_ids)
            yield replace(stated, counted=counted if counts else None, mean=mean)


def expected_beyond(plan: ReleasePlan, guess: Guess | None) -> Iterator[RowsBeyondBound]:
    """Statement of every measured table in a release if its units own rows as guessed; none beyond without a guess."""
    for bound in bound_forecasts(plan):
        if bound.stderr is not None:
            counts = any(s.of == bound.of and s.measure.name.counts_rows for s in plan.statistics)
            counted, beyond, units = _rows(guess, bound.of, bound.tau)
            yield replace(
                unmeasured(plan.catalog, bound.of), counted=counted if counts else None, rows=beyond,
                stderr=bound.stderr, at_most=reach(bound.tau), units=units, units_stderr=bound.units_stderr,
            )  # fmt: skip


def _rows(guess: Guess | None, of: str, tau: int) -> tuple[float, int, int]:
    """Rows within a bound, 0 for none, those beyond within reach, and units with more, by a guess."""
    own = guess if guess is None or not guess.tables else guess.tables.get(of)
    if own is None:
        return ROWS, 0, 0
    amounts = own.amounts(min(own.units, MADE_UP))
    beyond = np.maximum(amounts - (tau or own.rows), 0)
    share, most = own.units / len(beyond), reach(tau)
    near, units = beyond[beyond <= most].sum(), (beyond > most).sum()
    return share * float((amounts - beyond).sum()), round(share * near), round(share * units)


def bound_forecasts(plan: ReleasePlan) -> tuple[BoundForecast, ...]:
    """Every table of a plan whose declared bound may cut."""
    tables, currency = plan.catalog.star.tables.values(), plan.currency.name
    forecasts = []
    for table in (table for table in tables if table.cuts):
        step = plan.step(table.name, BEYOND)
        if step is None:
            forecasts.append(BoundForecast(table.name, table.bounding.max_ids, None, currency, None))
            continue
        law, tau = law_of(plan.catalog), table.bounding.max_ids
        stderr = law.bounded_noise(reach(tau), step.spend)
        units_stderr = law.bounded_noise(1, step.spend)
        forecasts.append(BoundForecast(table.name, tau, str(step.charge), currency, stderr, units_stderr))
    return tuple(forecasts)
