"""Weighted collections: what reports of one row and a bit say beside the shares of all rows.

The same reports tell where one uniform row of each person lies (`two_laws`). People without a row send any cell alike;
how many they are is told by people who were asked whether they have one, and their part is taken out.

| here       | there | unit |
|------------|-------|------|
| `none`     | z     | share of people without a row |
| lean       | gain x items | leaves moved by a view's items |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpsql.client.plan import Plan
from dpsql.collecting.estimate import AxisReports, AxisTable, Parts, one_row_each, rows_between, told_of
from dpsql.collecting.smooth import Positive
from dpsql.collecting.tallies import Tallies, layout_of, oracle_of, shares
from dpsql.mechanisms.local.blue import ShareEstimate, ViewReports, blue, gains
from dpsql.mechanisms.local.row_bits import (
    BEYOND,
    BEYOND_MIXED,
    LARGEST,
    TwoLaws,
    clip_factor,
    missing_at_random,
    shrink,
)
from dpsql.mechanisms.local.truncation import ValueWithError
from dpsql.mechanisms.oracles.oracle import FloatArray
from dpsql.variance.stack import StackVariance

MOST_WITHOUT = 0.95
"""Noise alone must not make nearly everybody a person without rows."""


def two_laws(plan: Plan, tallies: Tallies, axis: int, counts: ShareEstimate) -> TwoLaws:
    """Both laws of one axis from all weighted views that touch it, with the exact covariance that they share.

    Args:
        plan: a plan with weighted views.
        tallies: counts per view.
        axis: position of the axis.
        counts: the axis's table of all rows.
    """
    none = _without_rows(plan, tallies)
    first = told_of(plan, tallies, axis)
    second = [_one_row_each(plan, tallies, view_estimate, none.value) for view_estimate in first]
    person = blue([view_estimate.group for view_estimate in second])
    size = counts.shares.size
    cross, plain = np.zeros((size, size)), np.zeros((size, size))
    row_gains = gains([view_estimate.group for view_estimate in first])
    person_gains = gains([view_estimate.group for view_estimate in second])
    for of_rows, of_person, a, b in zip(first, second, row_gains, person_gains, strict=True):
        view = plan.views[of_rows.number]
        item_shares = np.clip(shares(plan, of_rows.number, tallies[of_rows.number]), 0, 1)
        structure = oracle_of(plan, view).structure(item_shares)
        left, right = a @ of_rows.items, b @ of_person.items
        cross += _product(left, right, structure.diagonal, structure.tilt) / of_rows.group.reports
        plain += _product(right, right, structure.diagonal, structure.tilt) / of_rows.group.reports
    even = person.shares - 1 / size
    plain += (none.error / (1 - none.value)) ** 2 * np.outer(even, even)
    return TwoLaws(counts.shares, person.shares, counts.covariance, plain, cross)


def _product(left: FloatArray, right: FloatArray, diagonal: FloatArray, tilt: FloatArray) -> FloatArray:
    return np.asarray((left * diagonal) @ right.T - np.outer(left @ tilt, right @ tilt))


def _without_rows(plan: Plan, tallies: Tallies) -> ValueWithError:
    """Share of people without a row; 0 where everybody has one by construction."""
    with_rows = rows_between(plan, tallies, 0, 1)
    if with_rows is None:
        return ValueWithError(0.0, 0.0)
    return ValueWithError(float(np.clip(1 - with_rows.value, 0.0, MOST_WITHOUT)), with_rows.error)


def _one_row_each(plan: Plan, tallies: Tallies, view_estimate: AxisReports, none: float) -> AxisReports:
    """What a view's reports say of one uniform row a person: every state of a cell alike."""
    view, layout = plan.views[view_estimate.number], layout_of(plan.views[view_estimate.number])
    inside = (view_estimate.items[:, layout.rows] != 0).astype(np.float64)
    items = np.zeros_like(view_estimate.items)
    for columns in (layout.rows, layout.silent, *([] if layout.bits is None else [layout.bits])):
        items[:, columns] = inside
    stretch = 1 / (1 - none)
    of_cells = inside.sum(axis=1)
    seen = (
        items @ shares(plan, view_estimate.number, tallies[view_estimate.number])
        - none * of_cells / view.cells
    ) * stretch
    fan = items.sum(axis=1)
    group = ViewReports(
        view_estimate.group.design,
        seen,
        view_estimate.group.reports,
        view_estimate.group.oracle,
        fan,
        stretch,
    )
    return AxisReports(view_estimate.number, items * stretch, group, view_estimate.drift)


class AtRandom(NamedTuple):
    """p-value, and the share of the likelihood at no tilt; None where no mix was made."""

    p_value: float
    likelihood: float | None


class Weighted(NamedTuple):
    """What a weighted collection says beside its tables.

    Args:
        known: every axis's table with the clip bar in its covariances.
        factors: by axis, what the bar multiplied them by.
        positive: by axis, the shrunk mix; None where the axis is too long.
        at_random: by axis, the p-value of "rows are missing at random" and the likelihood's share of it.
    """

    known: dict[int, AxisTable]
    factors: dict[int, float]
    positive: dict[int, Positive | None]
    at_random: dict[int, AtRandom]

    def barred(self, parts: Parts) -> Parts:
        """Interactions with the bar of the axis that it widens most."""
        return {
            key: effect._replace(strength=effect.strength * max(self.factors[a] for a in key))
            for key, effect in parts.items()
        }


def weighted_tables(
    plan: Plan, tallies: Tallies, known: Mapping[int, AxisTable], cut: float
) -> Weighted | None:
    """Bars, mixes and tests of every axis.

    Args:
        plan: the plan.
        tallies: counts per view.
        known: every axis's table.
        cut: estimated share of rows beyond the cap.

    Returns:
        None for plans without weighted views.
    """
    if not one_row_each(plan):
        return None
    weighted, cut = Weighted({}, {}, {}, {}), min(max(cut, 0.0), MOST_WITHOUT)
    for axis, table in known.items():
        laws = two_laws(plan, tallies, axis, table.counts)
        factor = clip_factor(laws, table.counts.covariance, cut, BEYOND)
        weighted.factors[axis], weighted.known[axis] = factor, _with_bar(table, factor)
        mixed = shrink(laws, plan.axes[axis].smooth) if laws.rows.size <= LARGEST else None
        weighted.at_random[axis] = AtRandom(
            missing_at_random(laws), None if mixed is None else mixed.at_random
        )
        weighted.positive[axis] = None
        if mixed is not None:
            bar = clip_factor(laws, mixed.covariance, cut, BEYOND_MIXED)
            spread = mixed.covariance * bar
            weighted.positive[axis] = Positive(
                mixed.shares, StackVariance(spread, spread, mixed.shares, 0.0, 0.0)
            )
    return weighted


def _with_bar(table: AxisTable, factor: float) -> AxisTable:
    counts = ShareEstimate(table.counts.shares, table.counts.covariance * factor)
    return replace(
        table,
        counts=counts,
        signed=tuple(ShareEstimate(s.shares, s.covariance * factor) for s in table.signed),
    )
