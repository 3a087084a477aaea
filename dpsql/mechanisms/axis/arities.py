"""Which arities of trees are tried, and where trees are not worth trying.

Limits bound the time of choosing: under a second up to 65,536 leaves.
"""

from __future__ import annotations

from dpsql.mechanisms.axis.dense import is_optimal
from dpsql.mechanisms.axis.question import FEWEST_LEAVES, AxisQuestion

ARITIES = (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32)
LONG = 1 << 14
"""Leaves from which only arities are tried where the best one has been found."""
_LONG_ARITIES = {1: (12, 16), 2: (2, 3, 8, 12, 16)}  # by norm
LONG_LOG = 1 << 12
"""The same with a log, whose ranges are evaluated one by one."""
_LONG_LOG_ARITIES = (2, 4, 8, 16)
_TREE_LEAVES = 1 << 17  # beyond this trees have lost by a quarter, and take as long as all the rest


def refuses_trees(question: AxisQuestion) -> str:
    """Why no tree is offered, or an empty string."""
    if question.leaves < FEWEST_LEAVES:
        return f"takes axes of {FEWEST_LEAVES} leaves or more"
    if is_optimal(question):
        return "the dense optimum errs less than any rows"
    if question.leaves > _TREE_LEAVES:
        return f"loses by a quarter from {_TREE_LEAVES} leaves on"
    return ""


def arities(question: AxisQuestion) -> tuple[int, ...]:
    """The arities tried on an axis."""
    tried: tuple[int, ...] = ARITIES
    if question.workload is None and question.leaves > LONG:
        tried = _LONG_ARITIES[question.law.norm]
    elif question.workload is not None and question.leaves > LONG_LOG:
        tried = _LONG_LOG_ARITIES
    return tuple(k for k in tried if k <= question.leaves)
