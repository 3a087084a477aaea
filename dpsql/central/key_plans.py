"""Budget, noise and thresholds of private keys, and the largest length of a list: public facts.

**Privacy**: functions of the catalog and of public tables.
**Source**: docs/method/keys.md, "Budget".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from dpsql.axis import KeyListRule
from dpsql.budget import (
    KEY_GRAINS,
    NEIGHBOURS,
    currency_at,
    gaussian_sigma2,
    key_delta_of,
)
from dpsql.budget.threshold import SQUARED_SENSITIVITY, UNIT, key_threshold
from dpsql.catalog import Catalog
from dpsql.catalog.columns import LARGEST_LIST
from dpsql.catalog.private_columns import PrivateColumn, private_columns
from dpsql.central.axes import AxisMaker
from dpsql.central.planned import Step, charged
from dpsql.errors import CatalogError


class KeyRound(NamedTuple):
    """One round of a column's step.

    Args:
        charge: what the ledger is charged, mu^2.
        mu2: what the noise is drawn for.
        delta: the most chance with which it shows a key of one unit alone.
        sigma2: of the noise.
        threshold: T.
    """

    charge: Fraction
    mu2: Fraction
    delta: Fraction
    sigma2: Fraction
    threshold: int


class KeyPlan(NamedTuple):
    """Plan for the keys of one column: a function of the catalog."""

    column: PrivateColumn
    rounds: tuple[KeyRound, ...]

    def steps(self) -> list[Step]:
        """A line of the ledger for each round."""
        return [
            Step(
                self.column.table,
                f"keys of {self.column.column}, round {i}",
                "",
                step.mu2,
                step.charge,
                step.delta,
            )
            for i, step in enumerate(self.rounds, start=1)
        ]


def key_plans(catalog: Catalog) -> tuple[KeyPlan, ...]:
    """Budget of each column with private keys, in the catalog's order; none without such columns.

    **Privacy**: a column's rounds are charged its share of the release; the deltas of all of them add up to the part of
    `key_delta` that the release's charge is of the cap.
    """
    columns, privacy = private_columns(catalog), catalog.privacy
    if not columns:
        return ()
    currency, charge = currency_at(privacy.delta, privacy.key_delta), charged(privacy)
    whole = key_delta_of(charge, currency.counted(privacy.cap), privacy.key_delta)
    searched = sum(bool(column.rounds) for column in columns)
    delta = Fraction(math.floor(whole / max(1, searched) * KEY_GRAINS), KEY_GRAINS)
    plans = []
    for column in columns:
        deltas = [Fraction(math.floor(delta * part * KEY_GRAINS), KEY_GRAINS) for part in column.rounds]
        rounds = []
        for part, round_delta in zip(column.rounds, deltas, strict=True):
            round_charge = charge * column.share * part
            mu2 = currency.drawn(round_charge, NEIGHBOURS[privacy.neighbours])
            sigma2 = gaussian_sigma2(mu2, SQUARED_SENSITIVITY)
            threshold = key_threshold(sigma2, round_delta, column.per_unit)
            rounds.append(KeyRound(round_charge, mu2, round_delta, sigma2, threshold))
        plans.append(KeyPlan(column, tuple(rounds)))
    return tuple(plans)


class KeyForecast(NamedTuple):
    """Forecast of the keys of a column that will be shown.

    Args:
        column: `table.column`.
        supposed: keys that the plan supposes.
        share: of the budget that finds them, in percent.
        people: (keys that a person has, people at which a key is shown with chance .5, with .98), the last round alone;
            none where all keys were listed before.
    """

    column: str
    supposed: int
    share: float
    people: tuple[tuple[int, float, float], ...]


SURE = 2.054
"""Standard deviations above T at which a key is shown with chance .98."""


def key_forecasts(catalog: Catalog, lists: Mapping[str, int]) -> tuple[KeyForecast, ...]:
    """The forecast of each list: from the catalog's budget alone.

    Args:
        catalog: a checked catalog.
        lists: `table.column` -> keys that the plan supposes.
    """
    forecasts = []
    for plan in key_plans(catalog):
        column = plan.column
        if not plan.rounds:
            forecasts.append(KeyForecast(column.name, lists[column.name], 0.0, ()))
            continue
        last = plan.rounds[-1]
        even, sure = last.threshold / UNIT, (last.threshold + SURE * math.sqrt(last.sigma2)) / UNIT
        people = tuple(
            (keys, even * math.sqrt(keys), sure * math.sqrt(keys))
            for keys in (1, 3, 10)
            if keys <= column.per_unit
        )
        forecasts.append(KeyForecast(column.name, lists[column.name], 100 * float(column.share), people))
    return tuple(forecasts)


def list_limits(catalog: Catalog, make_axis: AxisMaker) -> dict[str, int]:
    """Most keys that each list may hold: what the catalog writes, else what the cells of its views allow.

    Args:
        catalog: a checked catalog.
        make_axis: builds axes with empty lists.

    Raises:
        CatalogError: there is no room for a key, or for those that are listed already.
    """
    limits = {}
    for column in private_columns(catalog):
        limit = min([column.keys.most or LARGEST_LIST, *_cells_left(catalog, column, make_axis)])
        if limit < max(1, column.keys.most or 0, len(column.keys.always)):
            raise CatalogError(
                f"tables.{column.table}.columns.{column.column}.categories: `most` does not fit the `cells` of views "
                f"{', '.join(column.views)}: {max(limit, 0)} keys do",
                hint="lower `most`, drop an axis, cut others wider, or raise `cells`",
            )
        limits[column.name] = limit
    return limits


def _cells_left(catalog: Catalog, column: PrivateColumn, make_axis: AxisMaker) -> Iterator[int]:
    """For each view how many keys its cells allow, its private axes alike."""
    for name in column.views:
        view = catalog.star.views[name]
        axes = [make_axis(resolved) for resolved in view.meant]
        private = [axis for axis in axes if isinstance(axis.rule, KeyListRule)]
        listed = math.prod(axis.leaves for axis in axes if axis not in private)
        special = max(len(axis.special) for axis in private)
        each = _root(view.spec.cells // listed, len(private))
        yield each - special


def _root(value: int, degree: int) -> int:
    """The largest whole number whose power is at most a value."""
    root = 1
    while (root + 1) ** degree <= value and root < LARGEST_LIST:
        root += 1
    return root if value > 0 else 0
