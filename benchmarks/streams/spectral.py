"""Rows made for what is asked: their errors, what units in several batches pay, life without an end, and coverage.

Variances per unit count at mu^2 1, closed forms. The bounds are the figures worked out beforehand with dense linear
algebra; each must be reached within half a percent.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from benchmarks.streams.agree import Figure
from dpsql.mechanisms.continual import MECHANISMS, choose, words
from dpsql.mechanisms.continual.time_strategy import StreamProblem, TimeStrategy, question_of
from dpsql.mechanisms.continual.time_tree import TimeTreeStrategy
from dpsql.mechanisms.distribution import GAUSSIAN
from dpsql.mechanisms.integer_rows import AxisBudget
from dpsql.mechanisms.offers import Refusal
from dpsql.noise import ExactNoise, os_entropy
from dpsql.streams.append import StreamStatistic
from dpsql.tree import FloatArray

KINDS = ("running", "range", "1", "7", "30")
MIX = "all alike"
REACH = 1.005
"""What a figure may pass the one worked out beforehand by."""
BLOCKS = TimeTreeStrategy(GAUSSIAN, (1, 28), (6, 4))
"""What a year of days got before what is asked was asked for."""
RELEASES, RANGES = 240, 200
SPEND = Fraction(1, 20)


class Row(NamedTuple):
    """Known errors of one number of batches and what is asked; None where nothing is promised."""

    batches: int
    asked: str
    errors: tuple[float | None, ...]


TABLE = (
    Row(60, "running", (4.44, 5.75, 2.50, 4.93, 6.67)), Row(60, "range", (4.80, 5.31, 2.12, 4.23, 6.29)),
    Row(60, MIX, (5.18, 5.46, 1.69, 4.05, 6.34)),
    Row(365, "running", (7.12, 10.3, 3.24, 6.34, 8.74)), Row(365, "range", (7.68, 9.61, 2.85, 5.60, 7.74)),
    Row(365, MIX, (9.47, 10.9, 1.78, 4.50, 7.33)),
    Row(365, "1", (23.1, 23.5, 1.08, 5.79, 13.9)), Row(365, "7", (18.9, 17.6, 2.23, 3.29, 8.90)),
    Row(365, "30", (13.8, 13.0, 2.59, 5.59, 5.70)),
    Row(1023, "running", (8.96, 13.5, 3.65, 7.15, 9.83)), Row(1023, "range", (9.62, 12.7, 3.27, 6.41, 8.81)),
    Row(1023, MIX, (12.4, 15.2, 1.84, 4.70, 7.79)),
    Row(3650, "running", (11.5, 18.0, 4.17, 8.16, 11.2)), Row(3650, "range", (12.3, 17.1, 3.79, 7.41, 10.2)),
    Row(3650, MIX, (16.6, 21.8, 1.90, 4.91, 8.27)),
)  # fmt: skip
UNITS = ((2, 2.6), (4, 3.6), (30, 11.8))
"""Batches of a unit, and how many times less than before the mean variance is, by importance."""


def question(batches: int, asked: str = MIX, *, units: int = 1, ends: bool = True) -> StreamProblem:
    """Questions as a catalog asks them: all kinds, of which some are given a weight."""
    every = tuple(question_of(kind, float(asked in (MIX, kind))) for kind in KINDS)
    return StreamProblem(GAUSSIAN, batches, every, units, ends)


def rows_for(asking: StreamProblem) -> TimeStrategy:
    """The spectral rows for a question."""
    return words()["spectral"].choose(asking).strategy


def errors(strategy: TimeStrategy, asking: StreamProblem) -> list[float]:
    """Mean variance of each kind of question, for units in several batches with what they pay."""
    found, paid = strategy.errors(asking.batches), float(strategy.price(asking.units))
    return [paid * asked.error(found) for asked in asking.workload]


def weighed(asking: StreamProblem, found: list[float]) -> float:
    """The mean variance by importance."""
    return float(np.dot(asking.weights(), found))


def table_figures() -> Iterator[Figure]:
    """The worst cell of each number of batches against what was worked out beforehand."""
    for batches in sorted({row.batches for row in TABLE}):
        worst = 0.0
        for row in TABLE:
            if row.batches == batches:
                asking = question(batches, row.asked)
                pairs = zip(errors(rows_for(asking), asking), row.errors, strict=True)
                worst = max([worst, *(found / known for found, known in pairs if known)])
        yield Figure(f"spectral rows, N = {batches}, worst cell of the table / figure", worst, REACH)


def participation_figures() -> Iterator[Figure]:
    """What units in several batches pay, against blocks with all of their rows in one node."""
    for units, times in UNITS:
        asking = question(365, units=units)
        before = weighed(asking, [units**2 * asked.error(BLOCKS.errors(365)) for asked in asking.workload])
        now = choose(asking).strategy
        ratio = weighed(asking, errors(now, asking)) / before
        name = f"a unit in {units} batches, N = 365: variance / blocks of 28 by (c D)^2 ({1 / ratio:.2f} times less)"
        yield Figure(name, ratio, 1 / times)


def choice_of_rest_figures() -> Iterator[Figure]:
    """Nothing asked: the pick's mean by importance over the least of all that ship."""
    for ends in (True, False):
        for batches in (60, 365, 1023):
            asking = question(batches, ends=ends)
            offers = (offer for mechanism in MECHANISMS for offer in mechanism.offers(asking))
            least = min(offer.make().error for offer in offers if not isinstance(offer, Refusal))
            end = "an end" if ends else "no end"
            name = f"Gaussian, N = {batches}, {end}, nothing asked: auto / least shipped, by importance"
            yield Figure(name, choose(asking).expected_error / least, 1.0)


def endless_figures() -> Iterator[Figure]:
    """A stream without an end: against one whose end is known, and after ten horizons."""
    for asked, bound in ((MIX, 1.07), ("running", 1.09), ("range", 1.055)):
        known, open_ended = (choose(question(365, asked, ends=ends)) for ends in (True, False))
        name = f"no end, N = 365, asked {asked}: auto / rows with an end ({open_ended.name})"
        yield Figure(name, open_ended.expected_error / known.expected_error, bound)
    rows = choose(question(365, ends=False)).strategy
    total = float(rows.variance(3650).ranges(0, 3650)[0])
    blocks = float(BLOCKS.variance(3650).ranges(0, 3650)[0])
    yield Figure("no end, the total after 10 horizons of 365", total, 54.7 * REACH)
    yield Figure("no end, the total after 10 horizons / on blocks of 28", total / blocks, 0.2)
    early, late = (float(rows.variance(3650).ranges(start, start + 30)[0]) for start in (365, 3620))
    yield Figure("no end, 30 days after 10 horizons / in the second year", late / early, 1.01)


def coverage_figures() -> Iterator[Figure]:
    """95% intervals of ranges over releases drawn with the noise that appends draw."""
    cases = [("an end", rows_for(question(120)), 120), ("days of 4", rows_for(question(120, "1", units=4)), 120),
             ("no end, three horizons", rows_for(question(40, ends=False)), 120)]  # fmt: skip
    for name, strategy, batches in cases:
        inside = covered(strategy, batches)
        yield Figure(f"{name}: |share of {inside.size} 95% intervals that hold, {RELEASES} releases - 0.95|",
                     abs(float(inside.mean()) - 0.95), 0.02)  # fmt: skip


def covered(strategy: TimeStrategy, batches: int) -> FloatArray:
    """Whether each range's interval holds its exact count, release by release."""
    statistic = StreamStatistic(GAUSSIAN, (AxisBudget(np.ones(RELEASES, np.int64), 1),), SPEND, 1)
    rng, source = np.random.default_rng(5), ExactNoise(os_entropy())
    counts = rng.poisson(30, (batches, RELEASES))
    published = []
    for batch in range(batches):
        (emission,) = strategy.emissions(batch)
        assert emission.weights is not None
        exact = emission.weights @ counts[emission.lo : emission.hi]
        published.append(statistic.noised(exact, emission.reads[0].share, source))
    found = np.cumsum(strategy.estimate(batches, np.array(published)) - counts, axis=0)
    error = np.vstack([np.zeros(RELEASES), found])
    lo, hi = np.sort(rng.integers(0, batches + 1, (2, RANGES)), axis=0)
    lo, hi = lo[lo < hi], hi[lo < hi]
    unit = statistic.variance_at_unit_budget(max(strategy.shares()))
    sd = np.sqrt(strategy.variance(batches).ranges(lo, hi) * unit)
    return np.asarray(np.abs(error[hi] - error[lo]) <= 1.959964 * sd[:, None])


def spectral_figures() -> Iterator[Figure]:
    """All of them."""
    yield from table_figures()
    yield from participation_figures()
    yield from choice_of_rest_figures()
    yield from endless_figures()
    yield from coverage_figures()


def spectral_table() -> Iterator[str]:
    """Errors by what is asked, with an end and without, beside what was there before."""
    yield from ("", "### Mean variance, mu^2 = 1, by what is asked", "")
    yield from ("| N | asked | total so far | any range | day | 7 days | 30 days |", "|--:|---|" + "--:|" * 5)
    for batches in (60, 365, 1023, 3650):
        cases = [
            (row.asked, rows_for(question(batches, row.asked))) for row in TABLE if row.batches == batches
        ]
        cases.append((f"{MIX}, no end", rows_for(question(batches, ends=False))))
        cases.append(("blocks of 28", BLOCKS))
        for asked, strategy in cases:
            cells = " | ".join(f"{value:.4g}" for value in errors(strategy, question(batches)))
            yield f"| {batches:,} | {asked} | {cells} |"
    yield from ("", "### A unit in several batches, N = 365, all asked alike", "")
    yield from (
        "| batches | total so far | any range | day | 7 days | 30 days | price | times less than before |",
    )
    yield "|--:|" + "--:|" * 7
    for units in (1, 2, 4, 7, 30):
        asking = question(365, units=units)
        strategy = rows_for(asking)
        before = weighed(asking, [units**2 * asked.error(BLOCKS.errors(365)) for asked in asking.workload])
        found = errors(strategy, asking)
        cells = " | ".join(f"{value:,.4g}" for value in found)
        price = f"{float(strategy.price(units)):.2f} ({units**2})"
        yield f"| {units} | {cells} | {price} | {before / weighed(asking, found):.1f} |"
