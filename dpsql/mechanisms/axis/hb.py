"""Equal budgets on every level of a tree but the root, which almost no range uses (HB)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dpsql.mechanisms.axis.strategy import (
    Answer,
    AxisQuestion,
    Candidate,
    NamedAxisMechanism,
    best,
    candidate,
)
from dpsql.mechanisms.axis.tree import TreeStrategy, arities, refuses_trees, tree_strategy
from dpsql.mechanisms.law import NoiseLaw
from dpsql.mechanisms.offers import Offer, Refusal
from dpsql.tree import Tree, kary_tree

NAMED: Mapping[str, NamedAxisMechanism] = {}


def equal_levels(tree: Tree, law: NoiseLaw) -> TreeStrategy:
    """Equal budgets on every level but the root.

    Args:
        tree: the shape.
        law: the noise.
    """
    share = np.where(tree.level == 0, 0.0, 1.0 / max(1, tree.depth - 1))
    return tree_strategy(tree, share ** (1 / law.norm), law=law)


def offers(question: AxisQuestion) -> Iterator[Answer]:
    """HB at its best arity."""
    reason = refuses_trees(question)
    yield Refusal("HB", reason) if reason else Offer("HB", 0.0, lambda: best(_candidates(question)))


def _candidates(question: AxisQuestion) -> Iterator[Candidate]:
    for k in arities(question):
        strategy = equal_levels(kary_tree(question.leaves, k), question.law)
        yield candidate(strategy, f"HB k={k}, no root", question)
