"""Strategies of views whose people have weights (`max_ids: auto`): leaves, and one more level on long axes.

A row of a strategy that holds many leaves collects a person's rows, and its cost grows with their square, while single
leaves cost their number. So there is no root and no tall tree.

Noise is drawn in units of 2^-20 / 17 of the measure's scale for each axis of two levels, and sigma stays below 2^53, so
K^2 has a bound.

**Source**: docs/method/rows.md, "Rows for spread people".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil, inf, isqrt

import numpy as np

from dpsql.errors import CatalogError
from dpsql.mechanisms.axis import AUTO
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.axis.tree import tree_strategy
from dpsql.mechanisms.designs.product import PRODUCT
from dpsql.mechanisms.designs.question import (
    DesignProblem,
    FamilyAxis,
    FamilyCandidate,
    FamilyDesign,
    FamilyView,
    NamedFamily,
    Proposal,
    ViewChoice,
)
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.mechanisms.offers import AxisChoice, Offer, Refusal, Word, expected_error
from dpsql.tree import kary_tree

ONE_LEVEL = 100
"""Leaves beyond which an axis gets a second level."""

LEAVES = Word("identity")
"""What a view may name beside auto, on axes of so few leaves."""

SHAPE_TOTAL = 17
"""The integer that stands for the whole budget of an axis of two levels: 12^2 + 12^2 = 17^2 - 1, and 8 + 9 = 17.

Small, since squared rows are added up per person, and since noise is drawn in parts of it: with 2^15, sums of cents
came to the largest variance of 64-bit draws and K was cut. On a star of 101 prices R rose from 1.6 to 3.
"""

NAMED: Mapping[str, NamedFamily] = {}


def offers(question: DesignProblem) -> Iterator[Proposal]:
    """For all views of a table whose people are weighted; of what a view may name, the shape that it gets anyway."""
    name = "one weight a person"
    if not question.people:
        yield Refusal(name, "is for `max_ids: auto`")
        return

    def make() -> FamilyCandidate:
        for view in question.views:
            _check_word(question, view)
        views = tuple(
            ViewChoice(question.law, tuple(question.axes[i].once(_shape, question.law) for i in view.axes))
            for view in question.views
        )
        return FamilyCandidate(name, FamilyDesign(PRODUCT, views), lambda: inf)

    yield Offer(name, 0.0, make)


def _check_word(question: DesignProblem, view: FamilyView) -> None:
    """Refuse a mechanism that the view would not get.

    Raises:
        CatalogError: it names one.
    """
    leaves = max(question.leaves(view), default=0) <= ONE_LEVEL
    if view.word != AUTO and not (leaves and view.word == LEAVES):
        raise CatalogError(
            f"views.{view.name}.mechanism: with `max_ids: auto` people are weighted and leaves are measured, of axes "
            f"with more than {ONE_LEVEL} in two levels, so {view.word.name} is not measured",
            hint="write auto, or a number for max_ids",
        )


def _shape(axis: FamilyAxis, law: NoiseDistribution) -> AxisChoice:
    return shape_strategy(axis.leaves, law)


def shape_strategy(n: int, law: NoiseDistribution) -> AxisChoice:
    """The strategy of one axis where one person's rows are spread over its leaves.

    Leaves alone are best up to about a hundred; longer axes get one more level, nodes of about sqrt(n) leaves.

    Args:
        n: number of leaves.
        law: the noise.

    Returns:
        Leaves, or two levels of a square-root tree with half the budget each.

    **Source** docs/method/rows.md, "Rows for spread people".
    """
    if n <= ONE_LEVEL:
        leaf = leaf_strategy(n, law.norm)
        return AxisChoice(leaf, "leaves", expected_error(leaf))
    tree = kary_tree(n, ceil(n / isqrt(n)))
    inner = np.where(tree.level == 1, 0.5 ** (1 / law.norm), 0.0)
    strategy = tree_strategy(tree, inner, SHAPE_TOTAL, law.norm)
    return AxisChoice(strategy, "two-level square-root tree", expected_error(strategy))
