"""Estimated statistics to what a release file holds of them: rounded, added up, described.

One path for central releases, streams, local collections and plans. Leaves of one family are rounded once, so that
views agree on shared margins in every bit; inner nodes are sums of leaves.

**Privacy**: post-processing of noisy integers or reports, and public facts.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from math import prod
from typing import NamedTuple

from dpsql.matrices import AxisVariance
from dpsql.matrices.estimated import Estimated, round_with_partners
from dpsql.matrices.nonnegative import nonnegative, product_tree, signal_tree
from dpsql.matrices.reading import Together
from dpsql.matrices.reconcile import UNIT, family_step, node_sums, to_units
from dpsql.release.format import StatisticMeta
from dpsql.release.write import StatisticContent, StatisticPart
from dpsql.tree import IntArray, Tree


class Description(NamedTuple):
    """Description of a statistic that nothing was drawn for.

    Args:
        view, of, measure, axes, mid, scale, sensitivity, currency, noise_mid: as in `StatisticMeta`.
        budget: what it spent.
        nonnegative: whether the non-negative estimate is made of the unbiased one and stored too.
        family: statistics with one of these are rounded together; those of one table and measure that agree.
    """

    view: str
    of: str
    measure: str
    axes: tuple[int, ...]
    sensitivity: int
    budget: Fraction
    currency: str
    family: Hashable
    mid: int = 0
    scale: int = 0
    noise_mid: float | None = None
    nonnegative: bool = False


class Statistic(NamedTuple):
    """A statistic and its estimates."""

    described: Description
    estimated: Estimated


class Assembled(NamedTuple):
    """Contents of a release.

    Args:
        statistics: in the order given.
        models: of the axes, then of cells measured together, of non-negative estimates and of scaled shares.
    """

    statistics: list[StatisticPart]
    models: list[AxisVariance | Together]


def assemble(
    statistics: Sequence[Statistic], axes: Sequence[AxisVariance], trees: Sequence[Tree]
) -> Assembled:
    """Round, add up and describe.

    Args:
        statistics: estimated; those of one family agree.
        axes: the variance model of each axis.
        trees: its look-up tree.
    """
    models, leaves = numbered_models(statistics, axes), rounded(statistics)
    parts = []
    for number, (statistic, (units, step)) in enumerate(zip(statistics, leaves, strict=True)):
        described, estimated = statistic
        axis_trees = [trees[axis] for axis in described.axes]
        summed = [None if at in estimated.listed else tree for at, tree in enumerate(axis_trees)]
        content = StatisticContent(
            estimated.integers.value,
            estimated.integers.budget,
            node_sums(units, summed),
            _nonnegative(statistic, units, step, axis_trees),
        )
        meta = replace(statistic_meta(number, statistic, models), step=step)
        parts.append(StatisticPart(meta, content))
    return Assembled(parts, models)


def without_numbers(statistics: Sequence[Statistic], axes: Sequence[AxisVariance]) -> Assembled:
    """The same of a plan: what a release would say, with tables that hold nothing.

    Args:
        statistics, axes: as of `assemble`; leaves have their shape alone.
    """
    models, parts = numbered_models(statistics, axes), []
    for number, statistic in enumerate(statistics):
        empty = statistic.estimated.integers.value
        meta = statistic_meta(number, statistic, models)
        content = StatisticContent(empty, empty, empty, empty if meta.nonnegative else None)
        parts.append(StatisticPart(meta, content))
    return Assembled(parts, models)


def rounded(statistics: Sequence[Statistic]) -> list[tuple[IntArray, int]]:
    """Leaves in units of 2^-20 of a step, each family rounded as one, and the step."""
    families: dict[Hashable, list[int]] = {}
    for number, (described, _) in enumerate(statistics):
        families.setdefault(described.family, []).append(number)
    leaves: dict[int, tuple[IntArray, int]] = {}
    for members in families.values():
        views = [(statistics[i].described.axes, statistics[i].estimated.leaves) for i in members]
        partners, step = statistics[members[0]].estimated.partners, family_step(views)
        units = round_with_partners([(axes, estimate / step) for axes, estimate in views], partners)
        leaves |= {i: (leaf_units, step) for i, leaf_units in zip(members, units, strict=True)}
    return [leaves[i] for i in range(len(statistics))]


def _nonnegative(statistic: Statistic, units: IntArray, step: int, trees: Sequence[Tree]) -> IntArray | None:
    """Node sums of the non-negative estimate, where the release stores one."""
    smooth = statistic.estimated.smooth
    if smooth is not None:
        return node_sums(to_units(smooth.leaves / step), trees)
    if not statistic.described.nonnegative:
        return None
    tree = signal_tree(len(units)) if len(trees) == 1 else reduce(product_tree, trees)
    leaves = nonnegative(tree, (units / UNIT).ravel()).reshape(units.shape)
    return node_sums(to_units(leaves), trees)


def numbered_models(
    statistics: Sequence[Statistic], axes: Sequence[AxisVariance]
) -> list[AxisVariance | Together]:
    """Every model that the statistics are read by, each once; a model's number is its position."""
    models: list[AxisVariance | Together] = list(axes)
    estimates = [estimated for _, estimated in statistics]
    alone = [estimated.model for estimated in estimates if not estimated.by_axis]
    smooth = [estimated.smooth.model for estimated in estimates if estimated.smooth is not None]
    beside = [estimated.model for estimated in estimates if estimated.by_axis]
    for model in (*alone, *smooth, *beside):
        if model is not None and all(model is not listed for listed in models):
            models.append(model)
    return models


def statistic_meta(
    number: int, statistic: Statistic, models: Sequence[AxisVariance | Together]
) -> StatisticMeta:
    """Metadata of a statistic.

    Args:
        number: its id.
        statistic: the statistic.
        models: as of `numbered_models`.
    """
    described, estimated = statistic
    smooth, joint = estimated.smooth, () if estimated.model is None else (_number(models, estimated.model),)
    return StatisticMeta(
        id=number,
        view=described.view,
        of=described.of,
        measure=described.measure,
        axes=described.axes,
        mid=described.mid,
        scale=described.scale,
        kind="decimal" if described.scale else "int",
        sensitivity=described.sensitivity,
        budget=str(described.budget),
        currency=described.currency,
        mechanism=estimated.notes,
        cells=prod(models[axis].n for axis in described.axes),  # type: ignore[union-attr, misc]  # axes come first
        reading=estimated.reading,
        models=(*described.axes, *joint) if estimated.by_axis else joint,
        components=tuple(sorted(estimated.components.items())),
        nonnegative=described.nonnegative or smooth is not None,
        biased=estimated.biased,
        nonnegative_model=None if smooth is None or smooth.model is None else _number(models, smooth.model),
        preferred=smooth.preferred if smooth is not None else described.nonnegative and estimated.prefers,
        noise_mid=described.noise_mid,
    )


def _number(models: Sequence[AxisVariance | Together], model: Together) -> int:
    """The position of a model."""
    return next(k for k, listed in enumerate(models) if listed is model)
