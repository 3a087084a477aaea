"""Every leaf measured once, with the whole budget (Dwork)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np

from dpsql.matrices.model import IdentityVariance
from dpsql.matrices.strategy import Strategy, rows_of_ones
from dpsql.mechanisms.offers import (
    AxisChoice,
    AxisProblem,
    NamedAxisMechanism,
    Offer,
    Proposal,
    Word,
    alone,
    candidate,
)


@lru_cache(maxsize=16)
def leaf_strategy(leaves: int, norm: int = 1) -> Strategy:
    """The identity.

    Args:
        leaves: n.
        norm: of either noise.

    **Privacy** A leaf's column is one row of budget 1, and `total` is 1.
    """
    leaf = np.arange(leaves)
    rows, budget = rows_of_ones(leaves, leaf, leaf + 1), np.ones(leaves, np.int64)
    stored = {"leaves": leaves, "norm": norm}
    return Strategy("identity", stored, rows, budget, 1, norm, IdentityVariance(leaves, 1.0))


def named(question: AxisProblem, word: Word) -> AxisChoice:
    """Whatever is asked."""
    return alone(leaf_strategy(question.leaves, question.law.norm), "identity", question)


NAMED: Mapping[str, NamedAxisMechanism] = {"identity": NamedAxisMechanism(named)}


def offers(question: AxisProblem) -> Iterator[Proposal]:
    """Fits every axis."""
    leaf = leaf_strategy(question.leaves, question.law.norm)
    yield Offer("identity", 0.0, lambda: candidate(leaf, "identity", question))
