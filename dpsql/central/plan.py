"""Plan of a release, decided before anything private is read: axes, strategies, budgets.

The plan follows from the catalog and from public tables alone. It fixes the node set, every noise scale
and so every predicted error; publishing then only fills in numbers.

**Privacy**: the statistics' charges add up to at most the catalog's epsilon (the mu^2 of its epsilon and delta, or an
equal share of the cap), in exact fractions. Under replace-one neighbours noise is drawn for half the epsilon or a
quarter of the mu^2 that is charged.

Private keys have a budget, chances and a largest length of a list, all public facts. A release that is charged the part
p of the cap has p `key_delta`, shared alike by its columns. Where one key of a person counts a column has one round,
else two, with three and seven tenths of it. A column's part of mu^2 is 1/20, or 1/10 where one key of a person counts;
views share the rest, half at least, since beyond that little remains to hide keys. Every view is planned with lists of
no key and of `most` keys before the first draw, so that no list makes a view fail afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from dpsql.axis.model import KeyListRule, check_cells
from dpsql.budget import KEY_GRAINS, NEIGHBOURS, key_delta_of
from dpsql.budget.curve import CHANCES, GRAIN, SlotPrice, slot_table
from dpsql.catalog.catalog import Catalog, StarView
from dpsql.catalog.columns import LARGEST_LIST
from dpsql.catalog.model import View
from dpsql.catalog.private_columns import PrivateColumn, keys_share, private_columns, reported_columns
from dpsql.central.axes import AxisMaker
from dpsql.central.bounding import bounding_of, excess_steps
from dpsql.central.people import plan_people
from dpsql.central.planned import (
    AxisPlanner,
    Bounds,
    PlannedStatistic,
    ReleasePlan,
    Step,
    UnitQuery,
    charged,
    currency_of,
    law_of,
    set_name,
    spend_of,
)
from dpsql.errors import CatalogError
from dpsql.mechanisms.axis.dense import DENSE_SCALE
from dpsql.mechanisms.designs import Family, choose_families
from dpsql.mechanisms.designs.product import PRODUCT
from dpsql.mechanisms.designs.question import (
    DesignProblem,
    FamilyAxis,
    FamilyDesign,
    FamilyView,
    Grains,
    joint_laws,
    too_many_tries,
)
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.mechanisms.offers import Word
from dpsql.noise.discrete import HEADROOM

ROW_BITS = 24
"""Rows that dense strategies leave room for: sixteen million in one cell, each at its bound."""
STREAM_ROW_BITS = 32
"""Rows that a stream may ever count; beyond, sums that do not fit whole weights wrap, which costs no privacy."""

ROOM = 16
"""Noise is hardly ever wider than sixteen times its scale."""


def plan_release(catalog: Catalog, make_axis: AxisMaker) -> ReleasePlan:
    """Plan a release.

    Args:
        catalog: a checked catalog.
        make_axis: builds an axis, reading public tables where it needs them.

    Returns:
        The plan.

    Raises:
        CatalogError: a view is over its cell cap, no views, or a bound is missing.
    """
    if not catalog.views:
        raise CatalogError("views: none are declared", hint="declare at least one view")
    planner = AxisPlanner(make_axis, _grains(catalog))
    for view in catalog.star.views.values():
        axes = sorted((planner.axis(resolved) for resolved in view.meant), key=lambda axis: -axis.leaves)
        check_cells(
            view.name, view.spec.cells, axes[: view.spec.together],
            "cut the axes wider (`cuts`), drop an axis, or raise `cells`",
        )  # fmt: skip
    families = [
        family for of in catalog.star.tables for family in choose_families(_question(catalog, of, planner))
    ]
    statistics = _jointly(catalog, _statistics(catalog, planner, families))

    steps = [step for plan in key_plans(catalog) for step in plan.steps()]
    for of in dict.fromkeys(s.of for s in statistics):
        measured, statistics = excess_steps(catalog, of, statistics, law_of(catalog))
        bounding_steps, statistics = bounding_of(catalog, of).divide(catalog, statistics)
        steps += [*measured, *bounding_steps]
    for of, table in catalog.star.tables.items():
        views = [
            (view, _share(catalog, view.name, view.unit_share))
            for view in catalog.star.views_of(of)
            if view.unit_share
        ]
        if views:
            query = UnitQuery(
                catalog, table, views, tuple(statistics), planner, _question(catalog, of, planner)
            )
            unit_statistics, unit_steps = plan_people(query)
            statistics, steps = [*statistics, *unit_statistics], [*steps, *unit_steps]
    plan = ReleasePlan(catalog, tuple(planner.entries), tuple(statistics), tuple(steps), tuple(families))
    return plan.refined()


def _question(catalog: Catalog, of: str, planner: AxisPlanner) -> DesignProblem:
    """All views of one table, as mechanisms see them."""
    axes: list[FamilyAxis] = []
    views = []
    for view in catalog.star.views_of(of):
        view_axes = [planner.family_axis(axis.meant, axis.written) for axis in view.axes]
        axes += [axis for axis in view_axes if axis not in axes]
        views.append(
            FamilyView(
                view.name, tuple(axes.index(axis) for axis in view_axes), _word(view.spec),
                view.spec.may_select,
                {measure.name: _share(catalog, view.name, measure.share) for measure in view.measures},
                all(measure.name.is_count for measure in view.measures), view.spec.share is None, view.spec.questions,
                view.spec.together, _widest(catalog, view), view.spec.nonnegative is not False,
            )
        )  # fmt: skip
    return DesignProblem(
        of, tuple(views), tuple(axes), law_of(catalog), batches=catalog.stream is not None,
        people=bounding_of(catalog, of).people,
    )  # fmt: skip


def _widest(catalog: Catalog, view: StarView) -> int:
    """The most that a unit changes a number of a view, in drawn integers; 0 where leaves are not drawn together."""
    bounding = bounding_of(catalog, view.of)
    if catalog.privacy.delta or catalog.stream is not None or not bounding.tau:
        return 0
    reach = [1 if m.name.is_count else Bounds(*m.bounds, m.scale).reach for m in view.measures]
    return bounding.tau * bounding.unit * max(reach, default=1)


def _word(view: View) -> Word:
    """Mechanism of a view in words; cubes are measured by sets of axes."""
    if view.ways is not None:
        return Word("residual")
    return Word(view.word) if view.tree is None else Word(view.word, view.tree.tree, view.tree.arity or 0)


def _statistics(catalog: Catalog, planner: AxisPlanner, families: Sequence[Family]) -> list[PlannedStatistic]:
    """The statistics of all views, then those of sets of axes that stand in the place of views."""
    chosen = {view.name: (family, own) for family in families
              for view, own in zip(family.question.views, family.choice.strategy.views, strict=True)}  # fmt: skip
    placed: dict[str, tuple[int, ...]] = {}
    declared: dict[str, list[PlannedStatistic]] = {}
    for name, view in catalog.star.views.items():
        family, own = chosen[name]
        question = family.question
        axes = next(family_view.axes for family_view in question.views if family_view.name == name)
        placed[name] = tuple(
            planner.placed(axis.meant, choice, question.workload(i))
            for axis, choice, i in zip(view.axes, own.axes, axes, strict=True)
        )
        declared[name] = _of_view(catalog, name, placed[name], own.law, family.choice.strategy)
    direct = [s for name, own in declared.items() for s in own if not chosen[name][0].choice.strategy.sets]
    return direct + [s for family in families for s in _of_sets(catalog, family, placed, declared, planner)]


def _of_sets(
    catalog: Catalog,
    family: Family,
    placed: Mapping[str, tuple[int, ...]],
    declared: Mapping[str, Sequence[PlannedStatistic]],
    planner: AxisPlanner,
) -> list[PlannedStatistic]:
    """One statistic for each set of axes, in the place of the views that are measured together."""
    views = family.question.views
    ids = {i: axis for view in views for i, axis in zip(view.axes, placed[view.name], strict=True)}
    like = {str(s.measure.name): s for view in reversed(views) for s in declared[view.name]}
    names = {tuple(sorted(placed[view.name])): view.name for view in reversed(views) if len(view.sets) == 1}
    cubes = [view.name for view in views if len(view.sets) > 1]
    statistics = []
    for measure, subset, charge in family.choice.strategy.sets:
        axes, base = tuple(sorted(ids[i] for i in subset)), like[measure]
        axis_names = [planner.entries[i].axis.name for i in axes]
        name = names.get(axes) or set_name(base.of, axis_names, cubes)
        spend = spend_of(catalog, charge, base.law)
        statistics.append(replace(base, view=name, axes=axes, charge=charge, spend=spend))
    return statistics


def _jointly(catalog: Catalog, statistics: Sequence[PlannedStatistic]) -> list[PlannedStatistic]:
    """The statistics, those that the same rows move drawn together where that is pure and proved.

    A row moves the count and the sums of its cell by one factor, so they share one draw (docs/privacy.md, "Several
    numbers by one draw"). Not where counts and sums are bounded apart (`max_ids: auto`), where a view's numbers have
    rows of their own (any measurement but `PRODUCT`) and where they are too many for one draw (`too_many_tries`). Rows
    with NULL are told by numbers of their own, but in streams, which draw noise ahead, and beside reported columns,
    whose channel is undone statistic by statistic.

    Raises:
        CatalogError: a view gives shares to numbers that share one draw.
    """
    if catalog.privacy.delta:
        return list(statistics)
    groups: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for i, statistic in enumerate(statistics):
        if statistic.tau and statistic.measurement is PRODUCT:
            groups.setdefault((statistic.view, statistic.axes), []).append(i)
    drawn = list(statistics)
    indicators = catalog.stream is None and not reported_columns(catalog)
    for group in groups.values():
        if len(group) == 1:
            continue
        members = [statistics[i] for i in group]
        laws = joint_laws([s.measure.name for s in members], indicators=indicators)
        members = [  # a count of values whose drawn integers are halves of a row
            replace(s, unit=2 * s.unit, factor=s.factor / 2) if law.halves else s
            for s, law in zip(members, laws, strict=True)
        ]
        sensitivities = [s.drawn_sensitivity for s in members]
        charge = sum((s.charge for s in members), Fraction(0)) / len(group)
        if too_many_tries(spend_of(catalog, charge, laws[0]), laws, sensitivities):
            continue
        _check_no_shares(catalog, members[0].view)
        for i, statistic, law in zip(group, members, laws, strict=True):
            spend = spend_of(catalog, charge, law)
            drawn[i] = replace(
                statistic, law=replace(law, widest=max(sensitivities)), charge=charge, spend=spend
            )
    return drawn


def _check_no_shares(catalog: Catalog, name: str) -> None:
    """Refuse shares where one draw gives every number the whole: below a ratio of 10 they would gain nothing.

    Sets of axes that no view names share alike.
    """
    view = catalog.star.views.get(name)
    shares = {} if view is None else {n: share for n, share in view.spec.measures.items() if n.sums_rows}
    if len(set(shares.values())) > 1:
        listed = ", ".join(view.spec.measures if view is not None else ())
        raise CatalogError(
            f"views.{name}.measures: without a delta its numbers share one draw, which has no shares",
            hint=f"write `measures: [{listed}]`",
        )


def _grains(catalog: Catalog) -> Grains:
    """The grain of dense rows on axes of their own and on shared ones.

    Products of as many rows as a view has axes, summed over all of a table's rows, must fit in 62 bits. In a stream
    time is one of these axes, so that its whole weights have as many bits as the rows of any other.
    """
    widest = max(view.spec.together for view in catalog.star.views.values())
    largest = 1
    for view in catalog.star.views.values():
        unit = bounding_of(catalog, view.of).unit
        largest = max([largest, *(unit * Bounds(*m.bounds, m.scale).reach for m in view.measures)])
    rows = ROW_BITS if catalog.stream is None else STREAM_ROW_BITS
    room = max(0, 62 - rows - largest.bit_length())
    return Grains(min(DENSE_SCALE, 1 << room), min(DENSE_SCALE, 1 << room // widest))


def _share(catalog: Catalog, name: str, share: Fraction) -> Fraction:
    """Charge of a part of a view."""
    return charged(catalog.privacy) * (1 - keys_share(catalog)) * catalog.shares[name] * share


def _of_view(
    catalog: Catalog, name: str, axes: tuple[int, ...], law: NoiseDistribution, design: FamilyDesign
) -> list[PlannedStatistic]:
    """Statistics of one view, each with its exact budget.

    Args:
        catalog, name: the view.
        axes: ids of its axes in the release, in its own order.
        law: its noise.
        design: of its family.
    """
    view = catalog.star.views[name]
    bounding = bounding_of(catalog, view.of)
    statistics: list[PlannedStatistic] = []
    following = design.following or design.measurement
    for measure in view.measures:
        bounds = None if measure.name.is_count else Bounds(*measure.bounds, measure.scale)
        charge = _share(catalog, name, measure.share)
        if bounds is not None:
            # estimates are 64-bit integers of 2^-20; a unit's part and its noise leave room for others'
            most = bounds.reach * max(bounding.tau, 1)
            if not fits(most, bounding.unit, charge):
                raise CatalogError(
                    f"views.{name}.measures: sums of {measure.name} and their noise may not fit 64 bits",
                    hint="narrow its bounds, lower its scale or max_ids, or give it a larger share",
                )
        planned = PlannedStatistic(
            name, view.of, measure, tuple(sorted(axes)), law, spend_of(catalog, charge, law), charge,
            bounding.tau, bounds, bounds.mid if bounds else 0, 0, bounding.unit, 1.0 / bounding.unit,
            measurement=following if statistics else design.measurement,
        )  # fmt: skip
        statistics.append(planned.bounded_to(bounding.tau))
    return statistics


def fits(most: int, unit: int, charge: Fraction) -> bool:
    """True if 64 bits hold a sum with its noise: see `_of_view`."""
    noise = most * max(Fraction(1), 1 / charge)
    return noise * ROOM < 1 << 43 and noise * ROOM * unit * HEADROOM < 1 << 63


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


EVEN, SURE = Fraction(1, 2), Fraction(98, 100)
"""Chances whose numbers of people a plan states."""


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
