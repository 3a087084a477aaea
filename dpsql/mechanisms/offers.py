"""Offers and refusals of mechanisms, and the choice among them.

Every candidate's error is computed, from public facts alone. An offer names a lower bound of its error, which is cheap,
so that what cannot win is never searched for. `S` is the kind of strategy asked for: of one axis, of a family of views,
or of time.

A mechanism of one axis answers an `AxisProblem`; `draw_view` draws a view by the strategies of its axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from dpsql.errors import InterfaceError, InternalError
from dpsql.matrices import mean_variance
from dpsql.matrices.strategy import Strategy, axis_budgets, estimate, measure_view
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, LAWS, NoiseDistribution, NoisyRows, NoisyView
from dpsql.noise import Noise
from dpsql.tree import Exact, FloatArray, IntArray, Workload

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


def draw_view(
    histogram: Exact, strategies: Sequence[Strategy], spend: Fraction, sensitivity: int, noise: Noise
) -> NoisyView:
    """Measure a view by the Kronecker product of its axes' strategies, once.

    Row (r_1, .., r_d) is the product of integer rows and gets its own integer budget. The histogram, the products and
    the noise are int64; the first float appears after the noisy integers exist.

    Args:
        histogram: exact integer leaf combinations, shape (n_1, .., n_d).
        strategies: one for each axis, of one law.
        spend: what the view may spend, in the law's own currency.
        sensitivity: the most that one privacy unit changes the sum of |cells|, in stored units.
        noise: where noise comes from.

    Raises:
        PrivacyError: spend or sensitivity leave no room for integer budgets.

    **Privacy**: the spend, for neighbours that differ in one unit's rows.
    """
    exact = Exact(measure_view(histogram, strategies))
    return law_of(strategies).draw(exact, axis_budgets(strategies), spend, sensitivity, noise)


def law_of(strategies: Sequence[Strategy]) -> NoiseDistribution:
    """The one law of a view's strategies.

    Raises:
        InternalError: for strategies of two laws, or none.
    """
    norms = {strategy.norm for strategy in strategies}
    if len(norms) != 1:
        raise InternalError("the strategies of a view need one law of noise")
    return LAWS[norms.pop()]


def leaf_estimates(view: NoisyRows, strategies: Sequence[Strategy]) -> FloatArray:
    """Best linear unbiased estimates of the leaf combinations.

    The estimate is refined on what is left of the integers after the rounded first estimate, so that float rounding
    stays relative to the noise and a noiseless view comes back exactly.

    Args:
        view: noisy integers.
        strategies: the axes' strategies.

    Returns:
        Estimates, shape (n_1, .., n_d).
    """
    first = np.zeros([strategy.leaves for strategy in strategies], np.int64)
    residual: IntArray = view.value
    for _ in range(max((strategy.refinements for strategy in strategies), default=1)):
        first = first + np.rint(_estimate_view(residual, strategies)).astype(np.int64)
        residual = view.value - measure_view(first, strategies)
    return first + _estimate_view(residual, strategies)


def _estimate_view(rows: IntArray, strategies: Sequence[Strategy]) -> FloatArray:
    leaves = rows.astype(np.float64)
    for axis, strategy in enumerate(strategies):
        leaves = estimate(strategy, leaves, axis)
    return leaves


AxisCandidate: TypeAlias = Candidate[Strategy]
AxisChoice: TypeAlias = Choice[Strategy]
Proposal: TypeAlias = Offer[Strategy] | Refusal

FEWEST_LEAVES = 4
"""Below it nothing beats measuring each leaf, and no mechanism is asked."""


class JointCells(NamedTuple):
    """The cells of a view whose leaves may be drawn together along one axis.

    Args:
        numbers: how many numbers a row of the view moves; all are of one draw.
        trees: cells of the view's other axes, each with a tree of its own.
        room: about the view's epsilon in units of 1/t: how fine the levels' rates are.
    """

    numbers: int
    trees: int
    room: int


@dataclass(frozen=True, eq=False)
class AxisProblem:
    """Requirements on the strategy of one axis.

    Args:
        leaves: n, at least 1.
        law: the noise.
        workload: the ranges asked; None means all ranges, equally often.
        whole: the part of the questions that asks for the total instead, in [0, 1): what an axis is asked by queries
            that use only the other axes of its view.
        scale: full rows of integers are rounded to multiples of 1 / scale.
        joint: what is drawn, where all leaves may be drawn together; None where rows have noise of their own.

    Raises:
        InterfaceError: for an axis without leaves, or ranges that lie outside of it.
    """

    leaves: int
    law: NoiseDistribution
    workload: Workload | None
    whole: float
    scale: int
    joint: JointCells | None = None

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

    def error(self, strategy: Strategy) -> float:
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
    """Mechanism named by a word of the catalog.

    Args:
        choose: what it gives for a question.
        laws: the noise that it has rows for.
    """

    choose: Callable[[AxisProblem, Word], AxisChoice]
    laws: tuple[NoiseDistribution, ...] = (LAPLACE, GAUSSIAN)


AxisMechanism: TypeAlias = Mechanism[NamedAxisMechanism, AxisProblem, Strategy]


def expected_error(strategy: Strategy, workload: Workload | None = None, whole: float = 0.0) -> float:
    """Mean squared error over the workload at epsilon 1 (Laplace) or sigma 1 (Gaussian).

    Args:
        strategy: what is measured.
        workload: the ranges asked; None means all ranges, equally often.
        whole: the part of the questions that asks for the total instead, in [0, 1].
    """
    return LAWS[strategy.norm].error_at_unit_budget * mean_variance(strategy.solver, workload, whole)


def candidate(strategy: Strategy, name: str, question: AxisProblem) -> AxisCandidate:
    """A strategy with its error."""
    return AxisCandidate(strategy, question.error(strategy), name)


def alone(strategy: Strategy, name: str, question: AxisProblem) -> AxisChoice:
    """A choice without rivals."""
    return AxisChoice(strategy, name, question.error(strategy))


def best(made: Iterable[AxisCandidate]) -> AxisCandidate:
    """The candidate of least error."""
    return min(made, key=lambda candidate: candidate.error)
