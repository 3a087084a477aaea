"""Equal budgets on every level of a tree but the root, which almost no range uses (HB)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from dpsql.mechanisms.axis.arities import arities, refuses_trees
from dpsql.mechanisms.axis.question import AxisQuestion, Candidate, Offer, Refusal, candidate
from dpsql.mechanisms.axis.tree import TreeStrategy, tree_strategy
from dpsql.mechanisms.law import NoiseLaw
from dpsql.tree import Tree, kary_tree

NAMED: Mapping[str, Callable[[AxisQuestion], Candidate]] = {}


def equal_levels(tree: Tree, law: NoiseLaw) -> TreeStrategy:
    """Equal budgets on every level but the root.

    Args:
        tree: the shape.
        law: the noise.
    """
    share = np.where(tree.level == 0, 0.0, 1.0 / max(1, tree.depth - 1))
    return tree_strategy(tree, share ** (1 / law.norm), law=law)


def offers(question: AxisQuestion) -> Iterator[Offer | Refusal]:
    """HB at its best arity."""
    reason = refuses_trees(question)
    if reason:
        yield Refusal("HB", reason)
        return

    def best() -> Candidate:
        trees = {k: equal_levels(kary_tree(question.leaves, k), question.law) for k in arities(question)}
        return min((candidate(tree, f"HB k={k}, no root", question) for k, tree in trees.items()), key=_error)

    yield Offer("HB", 0.0, best)


def _error(made: Candidate) -> float:
    return made.error
