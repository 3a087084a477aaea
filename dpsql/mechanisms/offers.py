"""Offers and refusals of mechanisms, and the choice among them.

Every candidate's error is computed, from public facts alone. An offer names a lower bound of its error, which is cheap,
so that what cannot win is never searched for. `S` is the kind of strategy asked for: of one axis, of a family of views,
or of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from dpsql.errors import InterfaceError

S = TypeVar("S")


S_co = TypeVar("S_co", covariant=True)
Named = TypeVar("Named")
Problem = TypeVar("Problem", contravariant=True)


class RatedStrategy(Protocol[S_co]):
    """Protocol of rated strategies; the error may be computed on demand."""

    @property
    def strategy(self) -> S_co:
        """Strategy measured."""

    @property
    def error(self) -> float:
        """Its expected error; infinite where it cannot be known beforehand."""

    @property
    def name(self) -> str:
        """Name of the strategy."""


class Candidate(NamedTuple, Generic[S]):
    """A strategy, its exact expected error and what it is called."""

    strategy: S
    error: float
    name: str


class Offer(NamedTuple, Generic[S]):
    """A mechanism that may answer.

    Args:
        name: the mechanism.
        at_least: no error below it is possible.
        make: the best that it has; slow where it searches.
    """

    name: str
    at_least: float
    make: Callable[[], RatedStrategy[S]]


class Refusal(NamedTuple):
    """A mechanism that does not answer, why, and what to write instead by those who named it."""

    name: str
    reason: str
    hint: str = "write `mechanism: auto`"


class Mechanism(Protocol[Named, Problem, S]):
    """A module that has strategies; `Named` is what a word of the catalog stands for."""

    NAMED: Mapping[str, Named]
    """The catalog's words for it."""

    def offers(self, question: Problem) -> Iterator[Offer[S] | Refusal]:
        """Offers and refusals for a question."""


class Choice(NamedTuple, Generic[S]):
    """Chosen strategy with the reason.

    Args:
        strategy: the winner.
        name: what it is, in words.
        expected_error: mean squared error over the questions at epsilon 1 (Laplace) or sigma 1 (Gaussian).
        runners_up: (name, expected error) of the others that were searched, best first.
        refused: mechanisms that did not answer, or could not have won.
    """

    strategy: S
    name: str
    expected_error: float
    runners_up: tuple[tuple[str, float], ...] = ()
    refused: tuple[Refusal, ...] = ()


def least(offers: Iterable[Offer[S] | Refusal]) -> Choice[S]:
    """The offer of least error; what cannot win is not searched for.

    Raises:
        InterfaceError: nobody offers anything.
    """
    candidates: list[RatedStrategy[S]] = []
    refused: list[Refusal] = []
    waiting: list[Offer[S]] = []
    for answer in offers:
        if isinstance(answer, Refusal):
            refused.append(answer)
        else:
            waiting.append(answer)
    for offer in sorted(waiting, key=lambda contender: contender.at_least):
        best = min((contender.error for contender in candidates), default=np.inf)
        if offer.at_least > best:
            refused.append(Refusal(offer.name, f"has error {offer.at_least:.6g} at least"))
        else:
            candidates.append(offer.make())
    if not candidates:
        raise InterfaceError("no mechanism answers", hint="write `mechanism: identity`")
    first, *losers = sorted(candidates, key=lambda contender: contender.error)
    runners_up = tuple((contender.name, contender.error) for contender in losers)
    return Choice(first.strategy, first.name, first.error, runners_up, tuple(refused))
