"""A table made up from public statements, and the recipe for `max_ids: auto` run on it before anything is spent.

    rows per unit   log-normal with the stated middle; the deviation is the one at which the mean holds
    axes of a unit  one random leaf for each unit, for all of her rows
    other axes      a part `alike` of her rows in one leaf of hers, the rest by public crowds, else evenly
    values          Beta around the stated mean; its smaller parameter is 1: even in the middle, steep near an end

A large table is a sample: each unit stands for k of them, and noise is a k-th, so that relative errors of groups and
ranges stay what they would be. Which of the heaviest people come or do not weighs more among fewer: errors of totals
are told up to sqrt(k) times too large.

**Privacy**: public facts alone; no private table is opened. Its noise is test entropy: nothing that is drawn here may
be stored as a release of anybody's rows.
**Source**: docs/method/user_level.md, "Expecting before spending".
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import numpy.typing as npt

from dpsql.central.planned import PlannedStatistic, ReleasePlan, Step
from dpsql.contributions.clipping import CLIPPINGS
from dpsql.contributions.guess import Crowds, FloatArray, Guess, ordinary_leaves
from dpsql.contributions.recipe import DrawnRecipe, settle_table
from dpsql.contributions.selection import ROWS, RecipeTable, is_sticky
from dpsql.engines.duck import no_sources
from dpsql.errors import InterfaceError
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.release.write import registered

IntArray = npt.NDArray[np.int64]

MOST_UNITS, MOST_ROWS = 25_000, 500_000
"""Units and rows that a made-up table has at most; larger ones are sampled."""

FEWEST_UNITS, ROOM = 500, 2_000_000
"""Units that a sample keeps where they own very many rows, unless the rows then pass this number."""

NAME = "made_up"


@dataclass(frozen=True)
class RehearsedTable:
    """One rehearsal of a table.

    Args:
        drawn: what the recipe drew of it.
        stands_for: how many units each one stands for: counts and sums are that many times as large.
    """

    drawn: DrawnRecipe
    stands_for: int


def chosen_tables(plan: ReleasePlan) -> tuple[str, ...]:
    """The tables whose bounds are chosen at publish."""
    return tuple(of for of in dict.fromkeys(s.of for s in plan.statistics) if plan.step(of, ROWS) is not None)


def stands_for(guess: Guess) -> int:
    """Units that each unit of the made-up table stands for."""
    wanted = max(ceil(guess.units / MOST_UNITS), ceil(guess.rows / MOST_ROWS))
    kept = max(1, guess.units // FEWEST_UNITS)
    return min(max(min(wanted, kept), ceil(guess.rows / ROOM)), guess.units)


def make_up(plan: ReleasePlan, of: str, guess: Guess, crowds: Crowds, seed: int) -> RehearsedTable:
    """Make the table up and run the recipe on it.

    Args:
        plan: the planned release.
        of: a table with `max_ids: auto`.
        guess: what is publicly known about it.
        crowds: how crowded the leaves of its axes are expected to be.
        seed: of the made-up rows and of their noise.

    Returns:
        What was drawn; its noise anybody can repeat.

    Raises:
        InterfaceError: units own too many rows.
    """
    times = stands_for(guess)
    rows, columns = made_rows(plan, of, guess, crowds, np.random.default_rng(seed))
    noise = ExactNoise(insecure_test_entropy(seed))
    raw = no_sources()
    with contextlib.closing(raw), registered(raw.connection, NAME, rows):
        raw.connection.execute(f"CREATE TEMP TABLE made_up_rows AS SELECT * FROM {NAME}")
        table = RecipeTable(
            raw.relations("a rehearsal"), quieter(plan, of, times), of, "made_up_rows", columns, noise, times
        )
        return RehearsedTable(settle_table(table), times)


def quieter(plan: ReleasePlan, of: str, times: int) -> ReleasePlan:
    """The plan with so many times less noise on one table."""

    def spent(part: PlannedStatistic | Step, order: int) -> PlannedStatistic | Step:
        return replace(part, spend=part.spend * times**order) if part.of == of else part

    if times == 1:
        return plan
    order = CLIPPINGS[next(iter(plan.row_statistics(of).values())).law].order
    return replace(
        plan,
        statistics=tuple(spent(s, order) for s in plan.statistics),  # type: ignore[misc]
        steps=tuple(spent(s, order) for s in plan.steps),  # type: ignore[misc]
    )


def made_rows(
    plan: ReleasePlan, of: str, guess: Guess, crowds: Crowds, rng: np.random.Generator
) -> tuple[dict[str, IntArray], dict[str, str]]:
    """Columns of the made-up rows as a publish would place them, and the SQL of each measure by `table.column`."""
    if guess.mean > ROOM:
        raise InterfaceError(f"units of more than {ROOM:,} rows each cannot be rehearsed")
    owned = guess.amounts(guess.units // stands_for(guess))
    unit = np.repeat(np.arange(len(owned)), owned)
    mine = plan.row_statistics(of).values()
    rows = {"unit": unit}
    for axis in sorted({axis for s in mine for axis in s.axes}):
        share = crowds.get(axis, evenly(plan, axis))
        if is_sticky(plan, of, axis):
            # who owns many rows is anywhere, so units are spread evenly
            share = evenly(plan, axis)
        own = rng.choice(len(share), len(owned), p=share)[unit]
        if not is_sticky(plan, of, axis):
            apart = rng.random(len(unit)) >= guess.alike
            own[apart] = rng.choice(len(share), int(apart.sum()), p=share)
        rows[f"a{axis}"] = own.astype(np.int64)
    columns = {}
    summed = {s.measure.name: s for s in mine if s.bounds is not None}
    for i, (name, statistic) in enumerate(summed.items()):
        rows[f"m{i}"] = made_values(guess, statistic, len(unit), rng)
        columns[name] = f"m{i}"
    return rows, columns


def evenly(plan: ReleasePlan, axis: int) -> FloatArray:
    """Shares of leaves that are crowded alike; none on NULL, MISSING or OTHER."""
    meant = plan.axes[axis].axis
    ordinary = ordinary_leaves(meant)
    return np.asarray((np.arange(meant.leaves) < ordinary) / ordinary, np.float64)


def made_values(guess: Guess, statistic: PlannedStatistic, number: int, rng: np.random.Generator) -> IntArray:
    """Values of a measure around the stated mean, in stored units."""
    bounds = statistic.bounds
    assert bounds is not None
    span = bounds.upper - bounds.lower
    place = (guess.mean_of(statistic.measure.name, bounds) - bounds.lower) / span if span else 0.0
    if place in (0.0, 1.0):
        return np.full(number, round(bounds.lower + place * span), np.int64)
    least = min(place, 1 - place)
    values = bounds.lower + span * rng.beta(place / least, (1 - place) / least, number)
    return np.rint(values).astype(np.int64)
