"""The smooth estimates beside the unbiased ones: the stack for one axis, the joint fit for several.

How smooth is chosen by people held out. A measure's bit is one more axis of two leaves, so that sums and counts come
from one fit. Slots without a row are taken out first: these tables describe rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpsql.client.plan import Plan
from dpsql.collecting.cells import axis_groups, view_cells
from dpsql.collecting.tallies import FOLDS, Tallies, oracle_of
from dpsql.mechanisms.local.joint import Marginal, Model, Strength, fit, make_model, marginal_of, table_of
from dpsql.mechanisms.local.oracles import FloatArray, structure
from dpsql.mechanisms.local.smooth import Stack, stack

STRENGTHS = (
    Strength(1e2, 1e0, 1e-2),
    Strength(1e3, 1e1, 1e-2),
    Strength(1e3, 1e2, 1e-2),
    Strength(1e4, 1e2, 1e-1),
    Strength(1e4, 1e3, 1e0),
    Strength(1e5, 1e4, 1e1),
)
LARGEST = 40_000
"""Most cells of one joint fit; its feature matrix takes cells x weights doubles."""


class Joint(NamedTuple):
    """A fitted table of rows over a set of axes (and bit), its model and weights, and what was chosen."""

    shares: FloatArray
    model: Model
    weights: FloatArray
    strength: Strength
    views: list[Marginal]


def smooth_axis(plan: Plan, tallies: Tallies, axis: int) -> Stack:
    """The log-smooth stack of one axis; special leaves, categories and "no row" stay free of smoothing."""
    folds = [axis_groups(plan, tallies, axis, [k]) for k in range(FOLDS)]
    return stack(folds, int(plan.axes[axis].get("smooth", 0)))


def joint_table(
    plan: Plan, tallies: Tallies, axes: Sequence[int], measure: int | None, filled: float
) -> Joint:
    """Fit a set of axes together from every view that touches it.

    Args:
        plan: the plan.
        tallies: counts per view.
        axes: the set.
        measure: position of a measure whose bit becomes the last axis, or None.
        filled: share of slots that hold a row.

    Returns:
        The fit; `shares` has the shape of the axes' leaves, with a last axis of 2 for a measure.
    """
    sizes = [plan.axes[a]["leaves"] for a in axes]
    smooth = [int(plan.axes[a].get("smooth", 0)) for a in axes]
    if measure is not None:
        sizes, smooth = [*sizes, 2], [*smooth, 0]
    model = make_model(sizes, smooth, _held_together(plan, axes, measure))
    strength = _choose(plan, tallies, axes, measure, filled, model)
    views = marginals(plan, tallies, axes, measure, filled)
    weights = fit(model, views, strength)
    return Joint(table_of(model, weights), model, weights, strength, views)


def _held_together(plan: Plan, axes: Sequence[int], measure: int | None) -> list[tuple[int, ...]]:
    """Sets of three positions or more that one grid tells about, with the measure's bit where it is in."""
    found = []
    for view in plan.views:
        inside = tuple(sorted(list(axes).index(a) for a in view.axes if a in axes))
        if view.kind == "grid" and len(inside) > 2:
            with_bit = measure is not None and view.measure == measure
            found.append((*inside, len(axes)) if with_bit else inside)
    return found


def _choose(
    plan: Plan, tallies: Tallies, axes: Sequence[int], measure: int | None, filled: float, model: Model
) -> Strength:
    """The strength whose fit without two folds of people explains those two best."""
    kept = marginals(plan, tallies, axes, measure, filled, list(range(FOLDS // 2)))
    held = marginals(plan, tallies, axes, measure, filled, list(range(FOLDS // 2, FOLDS)))
    losses, start = [], None
    for strength in STRENGTHS:
        start = fit(model, kept, strength, start)
        fitted = table_of(model, start)
        losses.append(sum(float(np.sum((marginal_of(fitted, v) - v.shares) ** 2 / v.variance)) for v in held))
    return STRENGTHS[int(np.argmin(losses))]


def marginals(
    plan: Plan,
    tallies: Tallies,
    axes: Sequence[int],
    measure: int | None,
    filled: float,
    folds: Sequence[int] | None = None,
) -> list[Marginal]:
    """What every view says about the set: its cells, added up over axes outside the set."""
    found = []
    for number, view in enumerate(plan.views):
        inside = [a for a in view.axes if a in axes]
        if view.kind != "grid" or not inside:
            continue
        held = view_cells(plan, number, tallies, folds)
        if held.reports == 0:
            continue
        parts, fan = held.counts[..., None], float(held.fan)
        with_bit = measure is not None and view.measure == measure and held.signed is not None
        if with_bit and held.signed is not None:
            parts = np.stack([held.counts - held.signed, held.counts + held.signed], axis=-1) / 2
            fan = 1.0
        noise = structure(oracle_of(plan, view), np.clip(parts, 0, 1), fan).diagonal / held.reports
        order = [axes.index(a) for a in inside]
        dropped = tuple(i for i, a in enumerate(view.axes) if a not in inside)
        turn = [*np.argsort(order).tolist(), len(inside)]
        shares = parts.sum(axis=dropped).transpose(turn) / filled
        variance = np.asarray(noise).sum(axis=dropped).transpose(turn) / filled**2
        edges = [np.asarray(view.edges[view.axes.index(a)]) for a in sorted(inside, key=list(axes).index)]
        places = sorted(order)
        if with_bit:
            places, edges = [*places, len(axes)], [*edges, np.array([0, 1, 2])]
        else:
            shares, variance = shares[..., 0], variance[..., 0]
        found.append(Marginal(tuple(places), tuple(edges), shares, variance))
    return found


def bootstrap(joint: Joint, runs: int, rng: np.random.Generator) -> list[FloatArray]:
    """Fit again to what the fitted table would have brought in.

    Args:
        joint: the fit.
        runs: how many times.
        rng: source of pseudo-random numbers; this is post-processing and protects nobody.

    Returns:
        One table per run.
    """
    tables = []
    for _ in range(runs):
        views = [
            Marginal(v.axes, v.edges, _redrawn(marginal_of(joint.shares, v), v, rng), v.variance)
            for v in joint.views
        ]
        tables.append(table_of(joint.model, fit(joint.model, views, joint.strength, joint.weights)))
    return tables


def _redrawn(centre: FloatArray, view: Marginal, rng: np.random.Generator) -> FloatArray:
    return np.asarray(centre + rng.standard_normal(centre.shape) * np.sqrt(view.variance))
