"""What is asked of an axis, and what mechanisms answer: offers, refusals, the choice.

Every candidate's error is computed, from public facts alone. An offer names a lower bound of its error, which is cheap,
so that what cannot win is never searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from dpsql.errors import InterfaceError
from dpsql.mechanisms.axis.strategy import AxisStrategy
from dpsql.mechanisms.law import NoiseLaw
from dpsql.tree import Workload
from dpsql.variance import mean_variance

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
        lo, hi, weight = (np.asarray(part) for part in self.workload)
        inside = bool(np.all((lo >= 0) & (lo < hi) & (hi <= self.leaves)))
        if not len(lo) or not inside or np.any(weight < 0) or not np.sum(weight) > 0:
            raise InterfaceError(f"a workload needs ranges inside [0, {self.leaves}) with positive weight")

    @property
    def reach(self) -> int:
        """The longest range asked."""
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


class Candidate(NamedTuple):
    """A strategy, its exact expected error and what it is called."""

    strategy: AxisStrategy
    error: float
    name: str


class Offer(NamedTuple):
    """A mechanism that may answer.

    Args:
        name: the mechanism.
        at_least: no error below it is possible.
        make: the best that it has; slow where it searches.
    """

    name: str
    at_least: float
    make: Callable[[], Candidate]


class Refusal(NamedTuple):
    """A mechanism that does not answer, and why."""

    name: str
    reason: str


class Mechanism(Protocol):
    """A module that has strategies of one axis."""

    NAMED: Mapping[str, Callable[[AxisQuestion], Candidate]]
    """The catalog's words for it, with what each gives."""

    def offers(self, question: AxisQuestion) -> Iterator[Offer | Refusal]:
        """What it has for a question."""


class AxisChoice(NamedTuple):
    """What was chosen for an axis and why.

    Args:
        strategy: the winner.
        name: what it is, in words.
        expected_error: mean squared error over the questions at epsilon 1 (Laplace) or sigma 1 (Gaussian).
        runners_up: (name, expected error) of the others that were searched, best first.
        refused: mechanisms that did not answer, or could not have won.
    """

    strategy: AxisStrategy
    name: str
    expected_error: float
    runners_up: tuple[tuple[str, float], ...] = ()
    refused: tuple[Refusal, ...] = ()


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


def least(offers: Iterator[Offer | Refusal]) -> AxisChoice:
    """The offer of least error; what cannot win is not searched for.

    Raises:
        InterfaceError: nobody offers anything.
    """
    made: list[Candidate] = []
    refused: list[Refusal] = []
    waiting: list[Offer] = []
    for answer in offers:
        (refused if isinstance(answer, Refusal) else waiting).append(answer)  # type: ignore[arg-type]
    for offer in sorted(waiting, key=lambda each: each.at_least):
        best = min((each.error for each in made), default=np.inf)
        if offer.at_least > best:
            refused.append(Refusal(offer.name, f"errs by {offer.at_least:.6g} at least"))
        else:
            made.append(offer.make())
    if not made:
        raise InterfaceError("no mechanism answers", hint="write `mechanism: identity`")
    first, *others = sorted(made, key=lambda each: each.error)
    runners_up = tuple((each.name, each.error) for each in others)
    return AxisChoice(first.strategy, first.name, first.error, runners_up, tuple(refused))
