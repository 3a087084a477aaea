"""Public guesses about a table, a table made up from them, and the recipe for `max_ids: auto` rehearsed on it.

Two numbers are needed, about how many units and about how many rows there are. Each further one replaces a guess of
ours by knowledge of hers:

| said | supposed where it is not |
|---|---|
| `typical`, rows of the unit in the middle | with `most` nothing more; else log-normal with a deviation of 1 |
| `most`, rows that hardly any unit passes | no such number: the log-normal tail |
| `alike`, the part of a unit's rows in one leaf of hers | a half |
| `means`, the mean of a measure | a quarter of its range above its lower bound |

Rows that a unit does not keep together lie evenly over the keys of public dimensions, and over the leaves of every
other axis. The table made up of these numbers:

    rows per unit   where mean and most are all that is known, the law of the largest entropy: p(n) ~ r^n up to the
                    most, or, where so many units do not come near it by that law, log-normal with the most as the
                    largest; else log-normal with the stated middle; each is the one at which the mean holds
    axes of a unit  one random leaf for each unit, for all of her rows
    other axes      a part `alike` of her rows in one leaf of hers, the rest by public crowds, else evenly
    values          Beta around the stated mean; its smaller parameter is 1: even in the middle, steep near an end

A large table is a sample: each unit stands for k of them, and noise is a k-th, so that relative errors of groups and
ranges stay what they would be. Which of the heaviest people come or do not weighs more among fewer: errors of totals
are told up to sqrt(k) times too large.

**Privacy**: public facts alone; no private table is opened. Its noise is test entropy: nothing that is drawn here may
be stored as a release of anybody's rows.
**Source**: docs/method/rows.md, "Expecting before spending".
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, exp, log
from statistics import NormalDist

import numpy as np

from dpsql.axis.model import Axis
from dpsql.catalog import Catalog
from dpsql.catalog.tables import PublicGuess, one_digit
from dpsql.central.placed_rows import leaf_of_row
from dpsql.central.planned import Bounds, PlannedStatistic, ReleasePlan, Step
from dpsql.contributions.recipe import CLIPPINGS, DrawnRecipe, settle_table
from dpsql.contributions.selection import ROWS, RecipeTable, is_sticky
from dpsql.engines.duck import no_sources
from dpsql.engines.joined_rows import ROW
from dpsql.engines.registry import Engine
from dpsql.errors import InterfaceError
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.release.write import registered
from dpsql.tree import FloatArray, IntArray

Crowds = Mapping[int, FloatArray]
"""Axis of the plan -> the share of the rows that each of its leaves is expected to have."""

NORMAL = NormalDist()

WIDEST, NARROWEST = 4.0, 0.3
"""Standard deviations of log rows that are believed; units with one row each cannot differ at all."""

ALIKE = 0.5
"""The part of a unit's rows that lie in one leaf of hers. Real people are a little less alike: a cautious guess."""


FAR = 2.0
"""Times what the law of the largest entropy reaches, above which the most was not meant as its end: one digit of each
guess is off by as much."""


def normals(place: FloatArray) -> FloatArray:
    """Quantiles of the normal distribution."""
    return np.array([NORMAL.inv_cdf(share) for share in place.tolist()])


@dataclass(frozen=True)
class Guess:
    """Rough public knowledge about a table.

    Args:
        units: how many units own rows.
        rows: how many rows there are.
        typical: rows of a unit in the middle.
        most: rows that hardly any unit passes; None where some may own any number.
        alike: the part of a unit's rows that lie in one leaf of hers; the others fall where they like.
        means: `table.column` -> the mean of a measure, in its own unit.
        tables: of each table its own, where there are several.
    """

    units: int
    rows: int
    typical: float | None = None
    most: float | None = None
    alike: float = ALIKE
    means: Mapping[str, float] = field(default_factory=dict)
    tables: Mapping[str, Guess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse numbers that no table has."""
        if self.units < 1 or self.rows < self.units:
            raise InterfaceError("state at least one unit, and at least as many rows as units")
        if self.typical is not None and not 1 <= self.typical <= self.rows:
            raise InterfaceError("rows of a typical unit: state a number between 1 and all rows")
        if self.most is not None and not max(self.mean, self.typical or 1) <= self.most <= self.rows:
            raise InterfaceError("most rows of a unit: state at least what a mean and a typical unit own")
        if not 0 <= self.alike <= 1:
            raise InterfaceError("how alike the rows of a unit are: state a number between 0 and 1")

    @property
    def mean(self) -> float:
        return self.rows / self.units

    @property
    def median(self) -> float:
        """q.5(n) of log-normal rows, at least 1."""
        return max(1.0, self.mean * exp(-1 / 2) if self.typical is None else self.typical)

    def amounts(self, number: int) -> IntArray:
        """Rows of so many units that stand for all, increasing, and as many rows a unit as were stated."""
        place = (np.arange(number) + 0.5) / number
        if self.typical is None and self.most is not None:
            most = int(self.most)
            if 2 * self.mean > most + 1:
                return most + 1 - geometric(place, most + 1 - self.mean, most)[::-1]
            if FAR * self.mean * log(self.units) >= most:  # what one of so many units owns by that law, about
                return geometric(place, self.mean, most)
            return log_normal(place, self.mean, most, self.units)
        normal = normals(place)
        low, high = max(1e-3, NARROWEST * (1 - self.units / self.rows)), WIDEST
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if self._cut(middle * normal).mean() < self.mean else (low, middle)
        return self._cut(low * normal)

    def _cut(self, logarithms: FloatArray) -> IntArray:
        """Whole rows of units so far from the middle one; at least one, at most what hardly any unit passes."""
        most = self.rows if self.most is None else self.most
        return np.rint(np.clip(self.median * np.exp(logarithms), 1.0, most)).astype(np.int64)

    def mean_of(self, measure: str, bounds: Bounds) -> float:
        """Assumed average of a value, in stored units; never 0, since errors are relative to it."""
        if measure in self.means:
            told = self.means[measure] * 10.0**bounds.scale
            # one digit of a mean may lie beyond a bound that the mean does not pass
            if not one_digit(bounds.lower) <= one_digit(told) <= one_digit(bounds.upper) or not told:
                raise InterfaceError(f"mean of {measure}: state a number within its bounds that is not 0")
            return min(max(told, bounds.lower), bounds.upper)
        return (3 * bounds.lower + bounds.upper) / 4 or (bounds.upper - bounds.lower) / 4 or 1.0


def geometric(place: FloatArray, mean: float, most: int) -> IntArray:
    """Quantiles of whole numbers from 1 to `most` with p(n) ~ r^n and r at most 1, so that their mean is as stated.

    Args:
        place: of each quantile, increasing, in (0, 1).
        mean: at most the middle of 1 and `most`.
        most: the largest number.

    >>> geometric(np.array([0.25, 0.75]), 2.5, 4).tolist()
    [1, 3]
    """
    low, high, numbers = 1e-12, 50.0, np.ones(len(place))
    for _ in range(60):
        fall = (low + high) / 2
        numbers = np.clip(np.ceil(-np.log1p(place * np.expm1(-fall * most)) / fall), 1, most)
        low, high = (fall, high) if numbers.mean() > mean else (low, fall)
    return numbers.astype(np.int64)


def log_normal(place: FloatArray, mean: float, most: int, units: int) -> IntArray:
    """Quantiles of log-normal whole numbers from 1 on, the largest of so many being `most`, with the mean as stated.

    Args:
        place, mean, most: as of `geometric`.
        units: how many there are.

    >>> numbers = log_normal((np.arange(500) + 0.5) / 500, 4.0, 200, 500)
    >>> numbers[[250, 450, 499]].tolist(), round(numbers.mean())
    ([1, 8, 200], 4)
    """
    part = normals(place) / NORMAL.inv_cdf(1 - 0.5 / units)
    low, high, numbers = 1e-3, mean, np.ones(len(place))
    for _ in range(40):
        middle = (low + high) / 2
        numbers = np.clip(np.rint(middle * (most / middle) ** part), 1, most)
        low, high = (middle, high) if numbers.mean() < mean else (low, middle)
    return numbers.astype(np.int64)


def stated_guess(catalog: Catalog) -> Guess | None:
    """The `guess:` of counted tables, each its own.

    Returns:
        None where no table has one, or one with `max_ids: auto` has none.

    **Privacy**: a function of the catalog alone.
    """
    tables = {of: catalog.tables[of] for of in catalog.star.tables}
    guesses = {of: _of_table(of, table.guess) for of, table in tables.items() if table.guess is not None}
    if not guesses or any(table.chooses_rows and of not in guesses for of, table in tables.items()):
        return None
    means = {name: mean for guess in guesses.values() for name, mean in guess.means.items()}
    return replace(max(guesses.values(), key=lambda guess: guess.rows), means=means, tables=guesses)


def _of_table(of: str, stated: PublicGuess) -> Guess:
    units, rows = min(stated.units, stated.rows), stated.rows
    most = None if stated.most_rows is None else float(min(max(stated.most_rows, rows / units), rows))
    return Guess(units, rows, most=most, means={f"{of}.{name}": mean for name, mean in stated.means.items()})


def crowds(catalog: Catalog, public: Engine, plan: ReleasePlan) -> Crowds:
    """Expected occupancy of each axis's leaves: by the keys of public dimensions that lie in them.

    Args:
        catalog: the catalog.
        public: where its public tables are.
        plan: the planned release.

    Returns:
        Shares of the axes over public dimensions, each adding up to 1; other axes are left out.

    **Privacy**: reads public tables alone.
    """
    found = {}
    for i, planned in enumerate(plan.axes):
        meant = planned.resolved
        if meant.path and catalog.tables[meant.table].is_public:
            found[i] = _keys_per_leaf(catalog, public, plan, i)
    return {i: keys / keys.sum() for i, keys in found.items() if keys.sum() > 0}


def _keys_per_leaf(catalog: Catalog, public: Engine, plan: ReleasePlan, axis: int) -> FloatArray:
    """Number of keys of the axis's own table in each of its leaves."""
    own, row = leaf_of_row(catalog, public, plan, axis), public.dialect.identifier(ROW)
    rows = public.rows(catalog, plan.axes[axis].axis.table)
    counted = public.relations("counting").fetch(
        f"SELECT leaf, count(*) AS keys FROM (SELECT {own.digit.sql} AS leaf FROM {rows} AS {row} {own.lookup}) "
        "AS placed WHERE leaf IS NOT NULL GROUP BY leaf"
    )
    found = np.zeros(plan.axes[axis].axis.leaves)
    found[counted["leaf"]] = counted["keys"]
    return found


def ordinary_leaves(axis: Axis) -> int:
    """Leaves that are not NULL, MISSING or OTHER."""
    special = [leaf for leaf in (axis.null_leaf, axis.missing_leaf, axis.other_leaf) if leaf is not None]
    return max(1, axis.leaves - len(special))


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
    columns: dict[str, str] = {}
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
