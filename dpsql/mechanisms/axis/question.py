"""What is asked of an axis, and what mechanisms answer (see `mechanisms.offers`).

Every candidate's error is computed, from public facts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from dpsql.errors import InterfaceError
from dpsql.mechanisms import offers
from dpsql.mechanisms.axis.strategy import AxisStrategy
from dpsql.mechanisms.law import GAUSSIAN, LAPLACE, NoiseLaw
from dpsql.tree import Workload
from dpsql.variance import mean_variance

Candidate = offers.Candidate[AxisStrategy]
AxisChoice = offers.Choice[AxisStrategy]
Answer: TypeAlias = offers.Offer[AxisStrategy] | offers.Refusal

FEWEST_LEAVES = 4
"""Below it nothing beats measuring each leaf, and no mechanism is asked."""


@dataclass(frozen=True, eq=False)
class AxisQuestion:
    """What is asked of an axis.

    Args:
        leaves: n, at least 1.
        law: the noise.
        workload: the ranges asked; None means all ranges, equally often.
        whole: the part of the questions that asks for the total instead, in [0, 1): what an axis is asked by queries
            that use only the other axes of its view.
        scale: full rows of integers are rounded to multiples of 1 / scale.

    Raises:
        InterfaceError: for an axis without leaves, or ranges that lie outside of it.
    """

    leaves: int
    law: NoiseLaw
    workload: Workload | None
    whole: float
    scale: int

    def __post_init__(self) -> None:
        """Refuse what no axis is asked."""
        if self.leaves < 1:
            raise InterfaceError("an axis needs at least one leaf")
        if not 0 <= self.whole < 1:
            raise InterfaceError("the total is asked a part of the time, in [0, 1)")
        if self.workload is None:
            return
        lo, hi, weight = (np.asarray(column) for column in self.workload)
        inside = bool(np.all((lo >= 0) & (lo < hi) & (hi <= self.leaves)))
        if not len(lo) or not inside or np.any(weight < 0) or not np.sum(weight) > 0:
            raise InterfaceError(f"a workload needs ranges inside [0, {self.leaves}) with positive weight")

    @property
    def reach(self) -> int:
        return (
            self.leaves
            if self.workload is None
            else int(np.max(self.workload.hi - np.asarray(self.workload.lo)))
        )

    def allows(self, law: NoiseLaw) -> bool:
        """Whether strategies of a law may answer."""
        return self.law == law

    def error(self, strategy: AxisStrategy) -> float:
        """Mean squared error of a strategy at epsilon 1 (Laplace) or sigma 1 (Gaussian)."""
        return expected_error(strategy, self.workload, self.whole)


class Word(NamedTuple):
    """A mechanism as the catalog names it, with what it says of a tree.

    Args:
        name: the catalog's word.
        shape: how a tree is split; empty where it is left open.
        arity: children of a node; 0 where it is left open.
    """

    name: str
    shape: str = ""
    arity: int = 0


class NamedAxisMechanism(NamedTuple):
    """What a word of the catalog stands for.

    Args:
        choose: what it gives for a question.
        laws: the noise that it has rows for.
    """

    choose: Callable[[AxisQuestion, Word], AxisChoice]
    laws: tuple[NoiseLaw, ...] = (LAPLACE, GAUSSIAN)


class Mechanism(Protocol):
    """A module that has strategies of one axis."""

    NAMED: Mapping[str, NamedAxisMechanism]
    """The catalog's words for it."""

    def offers(self, question: AxisQuestion) -> Iterator[Answer]:
        """What it has for a question."""


def expected_error(strategy: AxisStrategy, workload: Workload | None = None, whole: float = 0.0) -> float:
    """Mean squared error over the workload at epsilon 1 (Laplace) or sigma 1 (Gaussian).

    Args:
        strategy: what is measured.
        workload: the ranges asked; None means all ranges, equally often.
        whole: the part of the questions that asks for the total instead, in [0, 1].
    """
    return strategy.law.unit_error * mean_variance(strategy.variance(), workload, whole)


def candidate(strategy: AxisStrategy, name: str, question: AxisQuestion) -> Candidate:
    """A strategy with its error."""
    return Candidate(strategy, question.error(strategy), name)


def alone(strategy: AxisStrategy, name: str, question: AxisQuestion) -> AxisChoice:
    """A choice without rivals."""
    return AxisChoice(strategy, name, question.error(strategy))


def best(made: Iterable[Candidate]) -> Candidate:
    """The candidate of least error."""
    return min(made, key=lambda candidate: candidate.error)
