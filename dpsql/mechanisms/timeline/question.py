"""What is asked of a stream, and how strategies of time are compared for it.

A kind of question has a name, a weight, its mean variance under a strategy, and what rows made for it need to know of
it: about the least mean variance that Gaussian noise allows, and its spectrum, which says how much each frequency of
the batches counts in its answers.

**What a weight means.** Under Laplace noise it multiplies the mean variance. Under Gaussian noise it multiplies the
mean variance over the least one, so that questions asked alike lose alike: totals of a year err by 7, a day by 1.
Windows alone say nothing about slow frequencies, and rows made for them alone leave totals unanswerable (14,000 times
a day's variance); so then a tenth of the weight goes to all kinds alike.

| here | there | unit |
|---|---|---|
| `low` | 1 / (u + (g / N)^2), u = 4 sin^2(theta / 2) | sums of all batches, cut off below g / N |
| `least` | best_q, within 3% of solved optima while windows are below N / 10 | variance at mu^2 1 |
| `units` | b of exact participation | batches that a privacy unit may be in |

**Source**: docs/method/streams.md, "Choosing a time strategy" and "Spectral rows".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import log, pi
from typing import NamedTuple, Protocol

import numpy as np

from dpsql.mechanisms import offers
from dpsql.mechanisms.law import GAUSSIAN, NoiseLaw
from dpsql.mechanisms.offers import Refusal
from dpsql.mechanisms.timeline.strategy import Kinds, TimeErrors, TimeStrategy
from dpsql.tree import FloatArray

FLOOR = 0.1
"""The part of the weight that all kinds share where no total and no range is asked."""


class TimeQuestionKind(Protocol):
    """One kind of question."""

    @property
    def slow(self) -> bool:
        """Whether it sums many batches, so that rows made for it answer everything else as well."""

    def error(self, errors: TimeErrors) -> float:
        """Its mean variance."""

    def least(self, batches: int) -> float:
        """About the least mean variance under Gaussian noise, at mu^2 1."""

    def spectrum(self, theta: FloatArray, low: FloatArray, batches: int) -> FloatArray:
        """How much each frequency counts in its answers."""

    def weight(self, units: int) -> int:
        """What its weight is multiplied by when rows are designed for units in several batches."""


class Totals(NamedTuple):
    """Totals, or all ranges: `ends` of a range that are free.

    Args:
        ends: 1 where each starts with the first batch, else 2.
        constant: of the least variance, ends (log N / pi + constant)^2.
        mean: its mean variance.
    """

    ends: int
    constant: float
    mean: Callable[[TimeErrors], float]
    slow: bool = True

    def error(self, errors: TimeErrors) -> float:
        return self.mean(errors)

    def least(self, batches: int) -> float:
        return self.ends * (log(batches) / pi + self.constant) ** 2

    def spectrum(self, theta: FloatArray, low: FloatArray, batches: int) -> FloatArray:
        return self.ends * low / batches

    def weight(self, units: int) -> int:
        return 1


class Windows(NamedTuple):
    """All windows of so many batches."""

    length: int
    slow: bool = False

    def error(self, errors: TimeErrors) -> float:
        return errors.window(self.length)

    def least(self, batches: int) -> float:
        """See `TimeQuestionKind`. A batch alone is measured alone: 1."""
        return (0.4053 * log(self.length) + 0.9894) ** 2 if self.length > 1 else 1.0

    def spectrum(self, theta: FloatArray, low: FloatArray, batches: int) -> FloatArray:
        wave = np.sin(theta / 2)
        ratio = np.divide(np.sin(self.length * theta / 2), wave, out=np.full(theta.size, float(self.length)),
                          where=wave != 0)  # fmt: skip
        return np.asarray(ratio**2 / (batches - self.length + 1))

    def weight(self, units: int) -> int:
        """Rows of one batch stay nearer to it, and a unit's batches meet less: best of a grid of powers."""
        return units**2 if self.length == 1 else 1


class WeightedQuestion(NamedTuple):
    """A kind of question and how often it is asked.

    Args:
        name: as the catalog calls it.
        weight: against the others; 0 where it is answered without being asked for.
        kind: what it is.
    """

    name: str
    weight: float
    kind: TimeQuestionKind

    def error(self, errors: TimeErrors) -> float:
        return self.kind.error(errors)


TOTALS: Mapping[str, TimeQuestionKind] = {
    "running": Totals(1, 0.757, lambda errors: errors.running()),
    "prefix": Totals(1, 0.757, lambda errors: errors.prefix()),
    "range": Totals(2, 0.284, lambda errors: errors.range()),
}
"""Questions by name; a number of batches is a window of them."""


def question_of(name: str, weight: float) -> WeightedQuestion:
    """A kind of question: running, prefix, range, or a window as its number of batches.

    >>> question_of("range", 1).name, question_of("7", 2).weight
    ('range', 2)
    """
    return WeightedQuestion(name, weight, TOTALS[name] if name in TOTALS else Windows(int(name)))


@dataclass(frozen=True)
class TimeQuestion:
    """What a strategy of time is for.

    Args:
        law: the noise.
        batches: how many are planned for, at least 1.
        workload: the questions, at least one of a weight above 0.
        units: batches that a privacy unit may be in.
        ends: whether no batch comes after those planned for.
        bits: how much integer weights may enlarge exact sums; see `docs/privacy/streams.md`, "Whole numbers".
    """

    law: NoiseLaw
    batches: int
    workload: tuple[WeightedQuestion, ...]
    units: int = 1
    ends: bool = False
    bits: int = 28

    def allows(self, law: NoiseLaw) -> bool:
        """Whether strategies of a law may answer."""
        return self.law == law

    @property
    def outlives(self) -> bool:
        """Whether a strategy must go on past the batches planned for.

        Under Laplace noise the best have an end and the others err by a third more, so it need not.
        """
        return self.allows(GAUSSIAN) and not self.ends

    def weights(self) -> tuple[float, ...]:
        """What the mean variance of each question asked counts, in all 1."""
        weights = np.array([query.weight for query in self.workload]) / sum(
            query.weight for query in self.workload
        )
        if self.allows(GAUSSIAN):
            if not any(query.weight and query.kind.slow for query in self.workload):
                weights = (1 - FLOOR) * weights + FLOOR / weights.size
            weights = weights / [query.kind.least(self.batches) for query in self.workload]
        return tuple((weights / weights.sum()).tolist())

    def candidate(self, strategy: TimeStrategy) -> TimeCandidate:
        """A strategy with its weighted mean squared error over the questions.

        Where units may be in several batches, against a strategy in which all their rows meet in one node.
        """
        errors = strategy.errors(self.batches)
        pairs = zip(self.weights(), self.workload, strict=True)
        mean = sum(weight * query.error(errors) for weight, query in pairs if weight)
        dearer = float(strategy.price(self.units)) ** float(2 / self.law.norm) / self.units**2
        return TimeCandidate(strategy, mean * dearer, strategy.name)


TimeCandidate = offers.Candidate[TimeStrategy]
TimeOffer = offers.Offer[TimeStrategy]
TimeChoice = offers.Choice[TimeStrategy]


class NamedTimeStrategy(NamedTuple):
    """What a word of the catalog stands for.

    Args:
        choose: its strategy.
        tuned: whether it depends on what is asked.
    """

    choose: Callable[[TimeQuestion], TimeChoice]
    tuned: bool


Make = Callable[[TimeQuestion], TimeStrategy]


def only(make: Make, *, tuned: bool) -> NamedTimeStrategy:
    """A word that stands for one strategy."""

    def choose(question: TimeQuestion) -> TimeChoice:
        strategy, error, name = question.candidate(make(question))
        return TimeChoice(strategy, name, error)

    return NamedTimeStrategy(choose, tuned)


class TimeMechanism(Protocol):
    """A module that has strategies of time."""

    NAMED: Mapping[str, NamedTimeStrategy]
    """The catalog's words for them."""
    KINDS: Kinds
    """Its stored strategies."""

    def offers(self, question: TimeQuestion) -> Iterator[TimeOffer | Refusal]:
        """What it has for a question."""


DENSE = 4096
"""Batches up to which `auto` takes strategies of which each batch meets all those before it."""


def dense_offers(question: TimeQuestion, makers: Mapping[str, Make]) -> Iterator[TimeOffer | Refusal]:
    """A module's strategies with an end, unless there are too many batches or more may come."""
    for name, make in makers.items():
        if question.outlives:
            yield Refusal(name, f"it ends after {question.batches} batches", "write `ends: true`")
        elif question.batches > DENSE:
            yield too_long(name)
        else:
            yield TimeOffer(name, 0.0, partial(_made, make, question))


def too_long(name: str) -> Refusal:
    """Of strategies of which each batch meets all those before it."""
    return Refusal(name, f"it holds a number for each pair of batches, {DENSE} at most")


def _made(make: Make, question: TimeQuestion) -> TimeCandidate:
    return question.candidate(make(question))
