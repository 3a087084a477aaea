"""The exact privacy loss of publishing code on a pair of neighbours, measured end to end.

The left side is published with real noise and every meeting of exact integers with noise is noted. The right side is
published with a source that hands out the left side's *noisy* numbers, so that whatever is chosen from noisy numbers
(bounds, partitions, weights) is chosen alike. The two runs then differ in nothing but their exact integers, and the
loss of the pair at that output is a sum over the draws of numbers that are known exactly:

    Laplace     sum_r units_r |d_r| / denominator      the largest log ratio over all outputs
    joint       sum_r units_r max_j |d_rj| / M_j / t   likewise, for rows of several numbers
    trees       the same, a row for each node: units of its level, d of the leaves below it
    Gaussian    sum_r d_r^2 / (sigma2 - 4)             mu^2 on the exact Gaussian curve

with d the difference of the exact integers, on the circle of 2^64 where noisy integers live. Of rows that are private
keys those are compared that both sides have; a key of one side alone is struck out, as in docs/privacy/keys.md, and
the chance that its side shows it is added up. Two runs that ask for
different draws, or that release anything else that differs, are `Distinguished`: there is no epsilon for that. A pair
gives the loss on one path of choices, which bounds from below what the release costs; a claim that a pair exceeds is
false.

**Privacy**: sees exact integers of both sides: for made-up rows.
**Source**: docs/privacy/loss.md, "1. What is measured"; Dwork and Roth (2014), theorem 3.6.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.budget import SLACK
from dpsql.budget.threshold import passing_chance
from dpsql.central.key_plans import KeyPlan, KeyRound
from dpsql.central.selection import Key
from dpsql.errors import PrivacyError
from dpsql.noise import ExactNoise, LeafNoise, Noise, TreeNoise, insecure_test_entropy, noised

IntArray = npt.NDArray[np.int64]


class Distinguished(PrivacyError):
    """The two sides differ in something that no noise covers."""


class Law(NamedTuple):
    """Distribution asked of a draw: its shape and scale, equal on both sides or the sides are told apart.

    Args:
        where: module and function that drew.
        units, denominator: of a Laplace draw, one of each row.
        sigma2: of a Gaussian draw, else None.
        bounds: M_j of a joint draw, whose integers are one line a number; else empty.
        tree: of leaves that were drawn together; their integers are trees one after the other, in each number's line.
        leaves: those of each tree that are kept.
    """

    where: str
    units: IntArray
    denominator: int
    sigma2: Fraction | None
    bounds: tuple[int, ...] = ()
    tree: TreeNoise | None = None
    leaves: int = 0

    def is_like(self, other: Law) -> bool:
        """True if both ask for the same noise."""
        scales = self.where == other.where and self[2:] == other[2:]
        return scales and np.array_equal(self.units, other.units)


class Meeting(NamedTuple):
    """One place where exact integers met noise."""

    law: Law
    exact: IntArray
    noisy: IntArray


@dataclass(frozen=True)
class DrawLoss:
    """Privacy loss of one draw between the pair.

    Args:
        where: module and function that drew.
        moved: sum |d|: how far the measured integers lie apart.
        epsilon: the largest log ratio; None for a Gaussian draw.
        mu2: of Gaussian differential privacy; for a Laplace draw what a pure epsilon costs.
    """

    where: str
    moved: int
    epsilon: Fraction | None
    mu2: Fraction


@dataclass(frozen=True)
class Loss:
    """Privacy loss of a release between the pair, beside its claim.

    Args:
        draws: in order.
        claimed: what the ledger was charged, in `currency`.
        currency: `epsilon` or `mu2`.
        lines: purpose of each part of what was drawn, and how much of the charge.
        delta: what the ledger was charged for private keys.
        chance: with which one side shows keys that the other does not have, at most.
    """

    draws: tuple[DrawLoss, ...]
    claimed: Fraction
    currency: str
    lines: tuple[tuple[str, Fraction], ...] = ()
    delta: Fraction = Fraction(0)
    chance: Fraction = Fraction(0)

    @property
    def delta_share(self) -> float:
        """The chance of new keys over the delta that they were charged; 0 without private keys."""
        return float(self.chance / self.delta) if self.delta else 0.0

    @property
    def epsilon(self) -> Fraction:
        """The pure loss of all draws together; only where none is Gaussian."""
        if any(draw.epsilon is None for draw in self.draws):
            raise ValueError("Gaussian draws have no pure loss; read mu2")
        return sum((draw.epsilon for draw in self.draws if draw.epsilon is not None), Fraction(0))

    @property
    def mu2(self) -> Fraction:
        """The mu^2 of all draws together."""
        return sum((draw.mu2 for draw in self.draws), Fraction(0))

    @property
    def share(self) -> float:
        """Measured over claimed: above 1 the claim is false. For equal budgets this is the change over M."""
        return float((self.mu2 if self.currency == "mu2" else self.epsilon) / self.claimed)


KeyLabels = tuple[tuple[str, KeyRound], tuple[Key, ...]]
"""Labels of a draw over private keys: the round of a column, and the keys in order."""


def _numbered(labels: KeyLabels, values: IntArray | None) -> dict[Key, int]:
    """An integer of each key."""
    (column, _), keys = labels
    return dict(zip(keys, _flat(_covered(f"keys of {column}", values)).tolist(), strict=True))


KeyRows = dict[tuple[str, KeyRound], dict[Key, int]]
"""By round of a column: key -> integer."""

STRUCK = -(1 << 62)
"""What stands for the noisy weight of a key that the other side does not have: no threshold is as low."""


Drawn = Callable[[Noise], IntArray]
"""Draws from a source what a law asks for."""


class LossNoise(ABC):
    """One side's noise: each draw meets the exact integers that it covers; those over private keys by key."""

    insecure = True

    def __init__(self, noisy_keys: KeyRows) -> None:
        self.exact_keys, self.noisy_keys = KeyRows(), noisy_keys
        self.labels: KeyLabels | None = None

    def label(self, plan: KeyPlan, step: KeyRound, keys: Sequence[Key]) -> None:
        """The next draw covers these keys."""
        self.labels = (plan.column.name, step), tuple(keys)

    def laplace(self, units: IntArray, denominator: int, exact: IntArray | None = None) -> IntArray:
        law = Law(_who_draws(), _flat(units), denominator, None)
        return self._meet(law, exact, lambda noise: noise.laplace(units, denominator))

    def joint(
        self, units: IntArray, denominator: int, bounds: Sequence[int], exact: IntArray | None = None
    ) -> IntArray:
        law = Law(_who_draws(), _flat(units), denominator, None, tuple(bounds))
        return self._meet(law, exact, lambda noise: noise.joint(units, denominator, bounds))

    def trees(self, tree: TreeNoise, exact: IntArray) -> IntArray:
        law = Law(_who_draws(), NO_UNITS, tree.denominator, None, tree.bounds, tree, exact.shape[-1])
        return self._meet(law, exact, lambda noise: noise.trees(tree, np.zeros_like(exact)))

    def stored(self, leaf: LeafNoise, exact: IntArray, drawn: IntArray) -> IntArray:
        # of leaves that a tree drew before: their loss is that of a joint draw whose rows have all levels' rates
        law = Law(_who_draws(), _flat(leaf.units), leaf.denominator, None, leaf.bounds)
        return self._meet(law, exact, lambda noise: drawn)

    def gaussian(self, sigma2: Fraction, size: int, exact: IntArray | None = None) -> IntArray:
        law, labels = Law(_who_draws(), NO_UNITS, 0, sigma2), self.labels
        if labels is None:
            return self._meet(law, exact, lambda noise: noise.gaussian(sigma2, size))
        self.labels = None
        self.exact_keys.setdefault(labels[0], {}).update(_numbered(labels, exact))
        return self._meet_keys(labels, exact, lambda noise: noise.gaussian(sigma2, size))

    @abstractmethod
    def _meet(self, law: Law, exact: IntArray | None, draw: Drawn) -> IntArray:
        """Exact integers with what a law draws, noted."""

    @abstractmethod
    def _meet_keys(self, labels: KeyLabels, exact: IntArray | None, draw: Drawn) -> IntArray:
        """The same of weights of private keys, noted key by key."""


class Witness(LossNoise):
    """The left side's noise: real draws, each meeting noted."""

    def __init__(self, noise: Noise) -> None:
        super().__init__({})
        self.noise, self.meetings = noise, list[Meeting]()

    def _meet(self, law: Law, exact: IntArray | None, draw: Drawn) -> IntArray:
        covered = _covered(law.where, exact)
        noisy = noised(covered, draw(self.noise))
        self.meetings.append(Meeting(law, _flat(covered), noisy))
        return noisy.copy()

    def _meet_keys(self, labels: KeyLabels, exact: IntArray | None, draw: Drawn) -> IntArray:
        noisy = noised(exact, draw(self.noise))
        self.noisy_keys.setdefault(labels[0], {}).update(_numbered(labels, noisy))
        return noisy


class NoiseReplay(LossNoise):
    """The right side's noise: the noisy numbers of the left side, whatever the exact ones are."""

    def __init__(self, left: Witness) -> None:
        super().__init__(left.noisy_keys)
        self.meetings, self.exact = left.meetings, list[IntArray]()

    def _meet(self, law: Law, exact: IntArray | None, draw: Drawn) -> IntArray:
        covered = _covered(law.where, exact)
        if len(self.exact) == len(self.meetings):
            raise Distinguished(f"only the right side draws in {law.where}")
        meeting = self.meetings[len(self.exact)]
        if not meeting.law.is_like(law) or meeting.exact.size != covered.size:
            raise Distinguished(f"{meeting.law.where} and {law.where} ask for different draws")
        self.exact.append(_flat(covered))
        return meeting.noisy.copy()

    def _meet_keys(self, labels: KeyLabels, exact: IntArray | None, draw: Drawn) -> IntArray:
        round_, keys = labels
        noisy = self.noisy_keys.get(round_, {})
        return np.array([noisy.get(key, STRUCK) for key in keys], np.int64)

    def losses(self) -> tuple[DrawLoss, ...]:
        """The loss of each draw, once the right side is published."""
        if len(self.exact) < len(self.meetings):
            raise Distinguished(f"only the left side draws in {self.meetings[len(self.exact)].law.where}")
        return tuple(map(_draw_loss, self.meetings, self.exact))


StruckKeys = tuple[str, KeyRound, dict[Key, int]]
"""Keys of one round that one side alone has: the column, the round (T, sigma^2 and delta), and key -> sum of weights,
all of the one unit's own."""

Publish = Callable[[LossNoise], object]


class RecordedPair(NamedTuple):
    """Both sides of a pair, draw by draw.

    Args:
        meetings: of the left side.
        right: exact integers of the right side, one array a meeting.
        losses: of the draws.
        struck: the keys of one side alone, of the side that shows one more often.
        chance: with which that side shows one of them, at most.
    """

    meetings: tuple[Meeting, ...]
    right: tuple[IntArray, ...]
    losses: tuple[DrawLoss, ...]
    struck: tuple[StruckKeys, ...]
    chance: Fraction


def record_pair(left: Publish, right: Publish, seed: int = 0) -> RecordedPair:
    """Run any publishing code on both sides.

    Args:
        left, right: publish one side with the noise they are given; what they return must be equal.
        seed: of the left side's noise.

    Raises:
        Distinguished: the sides draw differently, or return different things.
    """
    witness = Witness(ExactNoise(insecure_test_entropy(seed)))
    first = left(witness)
    replay = NoiseReplay(witness)
    second = right(replay)
    losses = replay.losses()
    if first != second:
        raise Distinguished("the released files differ beyond the noisy numbers")
    keyed = list(_common_keys(witness, replay))
    sides = witness.exact_keys, replay.exact_keys
    struck = max(_struck(*sides), _struck(*sides[::-1]), key=_chance)
    return RecordedPair(
        (*(meeting for meeting, _ in keyed), *witness.meetings),
        (*(exact for _, exact in keyed), *replay.exact),
        (*(_draw_loss(meeting, exact) for meeting, exact in keyed), *losses),
        struck,
        _chance(struck),
    )


def _common_keys(left: Witness, right: NoiseReplay) -> Iterator[tuple[Meeting, IntArray]]:
    """Each round of a column over the keys that both sides have: the left side's draw, the right side's integers."""
    for name, rows in left.exact_keys.items():
        others = right.exact_keys.get(name, {})
        keys = [key for key in rows if key in others]
        if keys:
            law = Law(f"dpsql.central.selection, keys of {name[0]}", NO_UNITS, 0, name[1].sigma2)
            exact, noisy = (
                _flat([side[name][key] for key in keys]) for side in (left.exact_keys, left.noisy_keys)
            )
            yield Meeting(law, exact, noisy), _flat([others[key] for key in keys])


def _struck(rows: KeyRows, others: KeyRows) -> tuple[StruckKeys, ...]:
    """The keys of one side that the other does not have, round by round."""
    rounds = (
        (column, step, {k: w for k, w in weights.items() if k not in others.get((column, step), {})})
        for (column, step), weights in rows.items()
    )
    return tuple(struck for struck in rounds if struck[2])


def _chance(struck: tuple[StruckKeys, ...]) -> Fraction:
    """An upper bound of the chance that some of these keys passes its threshold."""
    chances = (
        passing_chance(step.threshold, weight, step.sigma2, step.delta)
        for _, step, weights in struck
        for weight in weights.values()
    )
    return sum(chances, Fraction(0))


LAWS = "dpsql.mechanisms.distribution"
NO_UNITS: IntArray = np.zeros(0, np.int64)


def _who_draws() -> str:
    """Module and function that asked a source for noise, or that asked the law of noise which did."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals["__name__"] in (LAWS, __name__):
        frame = frame.f_back
    return f"{frame.f_globals['__name__']}.{frame.f_code.co_name}"


def _covered(where: str, exact: IntArray | None) -> IntArray:
    """The exact integers, refused where noise does not meet any and so cannot be followed."""
    if exact is None:
        raise Distinguished(f"{where} draws noise without the exact integers that it covers")
    return exact


def _flat(values: npt.ArrayLike) -> IntArray:
    return np.array(values, dtype=np.int64).ravel()


def _node_moves(tree: TreeNoise, leaves: int, difference: IntArray) -> tuple[list[int], list[Fraction]]:
    """Units and the size of the move of each node of each tree that moves."""
    trees = difference.reshape(len(tree.bounds), -1, leaves)
    trees = trees[:, np.flatnonzero(np.any(trees, axis=(0, 2)))]
    padding = ((0, 0), (0, 0), (0, tree.leaves - leaves))
    sums = np.pad(trees.astype(object), padding)  # whole numbers of any size
    units: list[int] = []
    moved: list[Fraction] = []
    for rate, arity in zip(reversed(tree.rates), (*reversed(tree.arities), 1), strict=True):
        for node in sums.reshape(len(tree.bounds), -1).T.tolist():
            units.append(rate)
            moved.append(max(Fraction(abs(d), bound) for d, bound in zip(node, tree.bounds, strict=True)))
        sums = sums.reshape(*sums.shape[:2], sums.shape[2] // arity, arity).sum(axis=3)
    return units, moved


LARGEST = 700.0
"""Epsilons above it are this one: e^epsilon is still a number."""


def _pure(epsilon: Fraction) -> Fraction:
    """Cost of a pure draw on the Gaussian curve: (2 Q^-1(1 / (1 + e^epsilon)))^2."""
    odds = exp(min(float(epsilon), LARGEST))
    return Fraction((2 * NormalDist().inv_cdf(1 / (1 + odds))) ** 2)


def _draw_loss(left: Meeting, right: IntArray) -> DrawLoss:
    """The loss of one draw: exact, and the largest over its outputs.

    Noisy integers are what 64 bits keep of a sum, so exact ones are no further apart than on that circle.
    """
    law, difference = left.law, left.exact - right  # of 64 bits: the shorter way round
    apart = difference[np.flatnonzero(difference)].tolist()
    total = sum(map(abs, apart))
    if law.sigma2 is not None:
        return DrawLoss(law.where, total, None, sum(Fraction(d * d) for d in apart) / (law.sigma2 - SLACK))
    if law.tree is not None:
        units, moved = _node_moves(law.tree, law.leaves, difference)
    else:
        bounds = law.bounds or (1,)
        vectors = difference.reshape(len(bounds), -1)
        rows = np.flatnonzero(np.any(vectors, axis=0))
        units = law.units[rows].tolist()
        moved = [
            max(Fraction(abs(d), bound) for d, bound in zip(vector, bounds, strict=True))
            for vector in vectors[:, rows].T.tolist()
        ]
    epsilon = sum((u * d for u, d in zip(units, moved, strict=True)), Fraction(0)) / law.denominator
    return DrawLoss(law.where, total, epsilon, _pure(epsilon))
