"""Budget and chances of private keys, and the largest length of a list: public facts.

A release that is charged the part p of the cap has p `key_delta`, shared alike by its columns. Where one key of a
person counts a column has one round, else two, with three and seven tenths of it. A column's part of mu^2 is 1/20, or
1/10 where one key of a person counts; views share the rest, half at least, since beyond that little remains to hide
keys. Every view is planned with lists of no key and of `most` keys before the first draw, so that no list makes a view
fail afterwards.

**Privacy**: functions of the catalog and of public tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from dpsql.axis.model import KeyListRule
from dpsql.budget import KEY_GRAINS, NEIGHBOURS, key_delta_of
from dpsql.budget.curve import CHANCES, GRAIN, SlotPrice, people_at, slot_table
from dpsql.catalog import Catalog
from dpsql.catalog.columns import LARGEST_LIST
from dpsql.catalog.private_columns import PrivateColumn, keys_share, private_columns
from dpsql.central.axes import AxisMaker
from dpsql.central.planned import Step, charged, currency_of
from dpsql.errors import CatalogError


class KeyRound(NamedTuple):
    """One round of a column's step.

    Args:
        charge: what the ledger is charged, mu^2.
        delta: what the ledger is charged; half of it pays for slots, half for keys of one unit alone.
        keys: keys of one unit that count, k.
        price: of each slot.
        table: chances of 1, 2, .. people, multiples of 2^-64.
    """

    charge: Fraction
    delta: Fraction
    keys: int
    price: SlotPrice
    table: tuple[int, ...]


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
                step.charge,
                step.charge,
                step.delta,
            )
            for i, step in enumerate(self.rounds, start=1)
        ]


def key_plans(catalog: Catalog) -> tuple[KeyPlan, ...]:
    """Budget of each column with private keys, in the catalog's order; none without such columns.

    Raises:
        PrivacyError: so little is left for a key that none would ever be shown.

    **Privacy**: a column's rounds are charged its share of the release; the deltas of all of them add up to the part of
    `key_delta` that the release's charge is of the cap. Slots are priced by what remains of the release's own charge
    after all key rounds, in every round and column alike: keys come before every other draw.
    """
    columns, privacy = private_columns(catalog), catalog.privacy
    if not columns:
        return ()
    currency, charge = currency_of(privacy), charged(privacy)
    whole = key_delta_of(charge, currency.counted(privacy.cap), privacy.key_delta)
    searched = sum(bool(column.rounds) for column in columns)
    delta = _rounded_down(whole / max(1, searched), KEY_GRAINS)
    room = _rounded_down(charge * (1 - keys_share(catalog)), GRAIN)
    plans = []
    for column in columns:
        rounds = []
        for part, keys in column.rounds:
            round_charge, round_delta = charge * column.share * part, _rounded_down(delta * part, KEY_GRAINS)
            # To replace a unit is to take one away and to add one: twice the slots, the new keys of either alone.
            slots = NEIGHBOURS[privacy.neighbours].moves * keys
            price = (
                _rounded_down(round_charge / slots, GRAIN),
                _rounded_down(round_delta / (2 * slots), KEY_GRAINS),
                room,
            )
            first = math.floor(CHANCES * round_delta / (2 * keys))
            rounds.append(KeyRound(round_charge, round_delta, keys, price, slot_table(price, first)))
        plans.append(KeyPlan(column, tuple(rounds)))
    return tuple(plans)


def _rounded_down(amount: Fraction, grains: int) -> Fraction:
    return Fraction(math.floor(amount * grains), grains)


class KeyForecast(NamedTuple):
    """Forecast of the keys of a column that will be shown.

    Args:
        column: `table.column`.
        supposed: keys that the plan supposes.
        share: of the budget that finds them, in percent.
        people: at which a key is shown with chance .5 and .98, by the last round alone; none where all keys were
            listed before.
    """

    column: str
    supposed: int
    share: float
    people: tuple[int, ...]


EVEN, SURE = Fraction(1, 2), Fraction(98, 100)
"""Chances whose numbers of people a plan states."""


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
        people = tuple(people_at(plan.rounds[-1].table, chance) for chance in (EVEN, SURE))
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
