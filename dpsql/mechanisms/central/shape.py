"""What is measured on an axis when one person's rows are spread over its leaves.

A person's rows fall into many leaves, so a row of the strategy that holds many leaves collects them: its cost
grows with the square of her rows, while single leaves cost their number. Leaves alone are therefore best up to
about a hundred; longer axes get one more level, nodes of about sqrt(n) leaves.

**Privacy**: a function of the number of leaves.
**Source**: userlevel.md, "Defaults".
"""

from __future__ import annotations

from math import ceil, isqrt

import numpy as np

from dpsql.mechanisms.central.auto import expected_error
from dpsql.mechanisms.central.choose import AxisChoice
from dpsql.mechanisms.central.lue_dptree import identity_strategy, tree_strategy
from dpsql.tree import kary_tree

LONG = 100
"""Leaves beyond which an axis gets a second level."""

TOTAL = 1 << 15
"""The integer that stands for the whole budget; small, since squared rows are added up per person."""


def shape_strategy(n: int, norm: int) -> AxisChoice:
    """The strategy of one axis of a user-level view.

    Args:
        n: number of leaves.
        norm: 1 for Laplace, 2 for Gaussian noise.

    Returns:
        Leaves, or two levels of a square-root tree with half the budget each.
    """
    if n <= LONG:
        strategy = identity_strategy(n, norm)
        return AxisChoice(strategy, "leaves", expected_error(strategy), ())
    tree = kary_tree(n, ceil(n / isqrt(n)))
    inner = np.where(tree.level == 1, 0.5 if norm == 1 else np.sqrt(0.5), 0.0)
    strategy = tree_strategy(tree, inner, TOTAL, norm)
    return AxisChoice(strategy, "two-level square-root tree", expected_error(strategy), ())
