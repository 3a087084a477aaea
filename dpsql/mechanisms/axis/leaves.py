"""Every leaf measured once, with the whole budget (Dwork)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dpsql.matrices.leaves import IdentityVariance
from dpsql.mechanisms.axis.strategy import (
    AxisChoice,
    AxisProblem,
    EvenRows,
    Frozen,
    NamedAxisMechanism,
    Proposal,
    Word,
    alone,
    candidate,
)
from dpsql.mechanisms.distribution import LAPLACE, LAWS, NoiseDistribution
from dpsql.mechanisms.integer_rows import SparseRows, rows_of_ones
from dpsql.mechanisms.offers import Offer
from dpsql.tree import FloatArray, IntArray


class LeafRows(EvenRows):
    """A row for each leaf. See `AxisStrategy` for what its methods answer."""

    leaves: int
    entry_scale: ClassVar[int] = 1

    def measure_columns(self, x: IntArray) -> IntArray:
        return x.copy()

    def estimate_columns(self, y: FloatArray) -> FloatArray:
        return y

    def entries(self) -> SparseRows:
        """One row of one leaf each."""
        leaf = np.arange(self.leaves)
        return rows_of_ones(self.leaves, leaf, leaf + 1)


@dataclass(frozen=True)
class LeafStrategy(LeafRows):
    """The identity. See `AxisStrategy` for what its methods answer.

    Args:
        leaves: n.
        law: either.

    **Privacy** A leaf's column is one row of budget 1, and `total` is 1.
    """

    leaves: int
    law: NoiseDistribution = LAPLACE
    kind: ClassVar[str] = "identity"
    total: ClassVar[int] = 1

    @property
    def budget(self) -> IntArray:
        """Ones, shape (n,)."""
        return np.ones(self.leaves, np.int64)

    def variance(self) -> IdentityVariance:
        """The same for every leaf."""
        return IdentityVariance(self.leaves, 1.0)

    def frozen(self) -> dict[str, Any]:
        return {"leaves": self.leaves, "norm": self.law.norm}

    @classmethod
    def thawed(cls, frozen: Frozen) -> Self:
        return cls(int(frozen["leaves"]), LAWS[frozen["norm"]])


def named(question: AxisProblem, word: Word) -> AxisChoice:
    """Whatever is asked."""
    return alone(LeafStrategy(question.leaves, question.law), "identity", question)


NAMED: Mapping[str, NamedAxisMechanism] = {"identity": NamedAxisMechanism(named)}


def offers(question: AxisProblem) -> Iterator[Proposal]:
    """Fits every axis."""
    leaf = LeafStrategy(question.leaves, question.law)
    yield Offer("identity", 0.0, lambda: candidate(leaf, "identity", question))
