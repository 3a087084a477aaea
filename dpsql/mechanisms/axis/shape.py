"""What is measured on an axis when one person's rows are spread over its leaves.

A person's rows fall into many leaves, so a row of the strategy that holds many leaves collects them: its cost
grows with the square of her rows, while single leaves cost their number. Leaves alone are therefore best up to
about a hundred; longer axes get one more level, nodes of about sqrt(n) leaves.

**Privacy**: a function of the number of leaves.
**Source**: docs/method/user_level.md, "Rows for spread people".
"""

from __future__ import annotations

from math import ceil, isqrt

import numpy as np

from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.question import AxisChoice, expected_error
from dpsql.mechanisms.axis.tree import tree_strategy
from dpsql.mechanisms.law import NoiseLaw
from dpsql.tree import kary_tree

LONG = 100
"""Leaves beyond which an axis gets a second level."""

TOTAL = 1 << 15
"""The integer that stands for the whole budget; small, since squared rows are added up per person."""


def shape_strategy(n: int, law: NoiseLaw) -> AxisChoice:
    """The strategy of one axis of a user-level view.

    Args:
        n: number of leaves.
        law: the noise.

    Returns:
        Leaves, or two levels of a square-root tree with half the budget each.
    """
    if n <= LONG:
        leaf = LeafStrategy(n, law)
        return AxisChoice(leaf, "leaves", expected_error(leaf))
    tree = kary_tree(n, ceil(n / isqrt(n)))
    inner = np.where(tree.level == 1, 0.5 ** (1 / law.norm), 0.0)
    strategy = tree_strategy(tree, inner, TOTAL, law)
    return AxisChoice(strategy, "two-level square-root tree", expected_error(strategy))
