"""The exact privacy loss of publishing code on a pair of neighbours, measured end to end.

The left side is published with real noise and every meeting of exact integers with noise is noted. The right side is
published with a source that hands out the left side's *noisy* numbers, so that whatever is chosen from noisy numbers
(bounds, partitions, weights) is chosen alike. The two runs then differ in nothing but their exact integers, and the
loss of the pair at that output is a sum over the draws of numbers that are known exactly:

    Laplace     sum_r units_r |d_r| / denominator      the largest log ratio over all outputs
    joint       sum_r units_r max_j |d_rj| / M_j / t   likewise, for rows of several numbers
    trees       the same, a row for each node: units of its level, d of the leaves below it
    Gaussian    sum_r d_r^2 / (sigma2 - 4)             mu^2 on the exact Gaussian curve
    slots       (m, eta) for each key that moves       mu^2 and delta, once the table is checked to be worth them

with d the difference of the exact integers, on the circle of 2^64 where noisy integers live. A key of one side alone is
struck out, as in docs/privacy/delta.md, and the chance that its side shows it is added up. Two runs that ask for
different draws, or that release anything else that differs, are `Distinguished`: there is no epsilon for that. A pair
gives the loss on one path of choices, which bounds from below what the release costs; a claim that a pair exceeds is
false.

**Privacy**: sees exact integers of both sides: for made-up rows.
**Source**: docs/audit.md, "1. What is measured"; Dwork and Roth (2014), theorem 3.6.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from dpsql.budget.curve import CHANCES, SLACK, is_priced
from dpsql.central.plan import KeyRound
from dpsql.central.selection import Key
from dpsql.errors import InternalError, PrivacyError
from dpsql.noise import ExactNoise, KeyNames, LeafNoise, Noise, insecure_test_entropy, noised
from dpsql.noise.knorm import TreeNoise

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


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
        mu2: of Gaussian differential privacy; 0 for a Laplace draw.
        delta: of slots.
    """

    where: str
    moved: int
    epsilon: Fraction | None
    mu2: Fraction
    delta: Fraction = Fraction(0)


@dataclass(frozen=True)
class Loss:
    """Privacy loss of a release between the pair, beside its claim.

    Args:
        draws: in order.
        claimed: what the ledger was charged, in `currency`.
        currency: `epsilon` or `mu2`.
        lines: purpose of each part of what was drawn, and how much of the charge.
        delta: what the ledger was charged for private keys.
        chance: the delta of slots, and the chance with which one side shows keys that the other does not have.
    """

    draws: tuple[DrawLoss, ...]
    claimed: Fraction
    currency: str
    lines: tuple[tuple[str, Fraction], ...] = ()
    delta: Fraction = Fraction(0)
    chance: Fraction = Fraction(0)

    @property
    def delta_share(self) -> float:
        """The delta of private keys over what they were charged; 0 without private keys."""
        return float(self.chance / self.delta) if self.delta else 0.0

    @property
    def epsilon(self) -> Fraction:
        """The pure loss of all draws together; only where none is Gaussian."""
        if any(draw.epsilon is None for draw in self.draws):
            raise ValueError("Gaussian draws have no pure loss; read mu2")
        return sum((draw.epsilon for draw in self.draws if draw.epsilon is not None), Fraction(0))

    @property
    def mu2(self) -> Fraction:
        """The mu^2 of all draws together; only where none is Laplace."""
        if any(draw.epsilon is not None for draw in self.draws):
            raise InternalError("Laplace draws have no mu^2; read epsilon")
        return sum((draw.mu2 for draw in self.draws), Fraction(0))

    @property
    def share(self) -> float:
        """Measured over claimed: above 1 the claim is false. For equal budgets this is the change over M."""
        return float((self.mu2 if self.currency == "mu2" else self.epsilon) / self.claimed)


RoundName = tuple[str, KeyRound]
"""A column, and one of its rounds."""

KeyRows = dict[RoundName, dict[Key, int]]
"""By round of a column: key -> its number of people, or whether it is shown."""


Drawn = Callable[[Noise], IntArray]
"""Draws from a source what a law asks for."""


class LossNoise(ABC):
    """One side's noise: each draw meets the exact integers that it covers; those over private keys by key."""

    insecure = True

    def __init__(self, shown_keys: KeyRows, noise: Noise | None = None) -> None:
        self.people, self.shown_keys, self.key_source = KeyRows(), shown_keys, noise
        self.tables: dict[RoundName, tuple[int, ...]] = {}

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
        law = Law(_who_draws(), NO_UNITS, 0, sigma2)
        return self._meet(law, exact, lambda noise: noise.gaussian(sigma2, size))

    def shown(self, table: Sequence[int], people: IntArray, names: KeyNames) -> BoolArray:
        round_, keys = cast(RoundName, names[0]), names[1]
        self.tables[round_] = tuple(table)
        self.people.setdefault(round_, {}).update(zip(keys, people.tolist(), strict=True))
        decided = self.shown_keys.setdefault(round_, {})
        if self.key_source is not None:
            decided |= zip(keys, self.key_source.shown(table, people, names).tolist(), strict=True)
        # What the left side does not have is struck out: it is not shown.
        return np.array([decided.get(key, False) for key in keys], np.bool_)

    @abstractmethod
    def _meet(self, law: Law, exact: IntArray | None, draw: Drawn) -> IntArray:
        """Exact integers with what a law draws, noted."""


class Witness(LossNoise):
    """The left side's noise: real draws, each meeting noted."""

    def __init__(self, noise: Noise) -> None:
        super().__init__({}, noise)
        self.source, self.meetings = noise, list[Meeting]()

    def _meet(self, law: Law, exact: IntArray | None, draw: Drawn) -> IntArray:
        covered = _covered(law.where, exact)
        noisy = noised(covered, draw(self.source))
        self.meetings.append(Meeting(law, _flat(covered), noisy))
        return noisy.copy()


class NoiseReplay(LossNoise):
    """The right side's noise: the noisy numbers of the left side, whatever the exact ones are."""

    def __init__(self, left: Witness) -> None:
        super().__init__(left.shown_keys)
        self.meetings, self.exact = left.meetings, list[IntArray]()

    def _meet(self, law: Law, exact: IntArray | None, draw: Drawn) -> IntArray:
        covered = _covered(law.where, exact)
        if len(self.exact) == len(self.meetings):
            raise Distinguished(f"only the right side draws in {law.where}")
        meeting = self.meetings[len(self.exact)]
        same = meeting.law.where == law.where and meeting.law[2:] == law[2:]
        same = same and np.array_equal(meeting.law.units, law.units)
        if not same or meeting.exact.size != covered.size:
            raise Distinguished(f"{meeting.law.where} and {law.where} ask for different draws")
        self.exact.append(_flat(covered))
        return meeting.noisy.copy()

    def losses(self) -> tuple[DrawLoss, ...]:
        """The loss of each draw, once the right side is published."""
        if len(self.exact) < len(self.meetings):
            raise Distinguished(f"only the left side draws in {self.meetings[len(self.exact)].law.where}")
        return tuple(map(_draw_loss, self.meetings, self.exact))


MovedKeys = tuple[str, KeyRound, dict[Key, tuple[int, int]]]
"""Keys of one round of a column whose numbers of people differ: of the left and of the right side, 0 where nobody has
it."""


def slot_loss(keys: MovedKeys) -> DrawLoss:
    """The price of the keys that both sides have."""
    column, step, people = keys
    slots, (mu2, delta, _) = sum(0 not in sides for sides in people.values()), step.price
    where = f"dpsql.central.selection, keys of {column}"
    return DrawLoss(where, slots, None, slots * mu2, slots * delta)


def _new_chance(keys: MovedKeys, side: int) -> Fraction:
    """An upper bound of the chance that a side, 0 or 1, shows a key that the other does not have."""
    _, step, people = keys
    new = [sides[side] for sides in people.values() if not sides[1 - side]]
    return Fraction(sum(step.table[number - 1] for number in new), CHANCES)


Publish = Callable[[LossNoise], object]


class RecordedPair(NamedTuple):
    """Both sides of a pair, draw by draw.

    Args:
        meetings: of the left side.
        right: exact integers of the right side, one array a meeting.
        losses: of the meetings.
        moved: of each round of keys.
    """

    meetings: tuple[Meeting, ...]
    right: tuple[IntArray, ...]
    losses: tuple[DrawLoss, ...]
    moved: tuple[MovedKeys, ...]

    @property
    def chance(self) -> Fraction:
        """The delta of slots, and the chance with which one side, the worse, shows a key that the other lacks."""
        new = max(sum((_new_chance(keys, side) for keys in self.moved), Fraction(0)) for side in (0, 1))
        return new + sum((slot_loss(keys).delta for keys in self.moved), Fraction(0))


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
    return RecordedPair(
        tuple(witness.meetings), tuple(replay.exact), losses, tuple(_moved_keys(witness, replay))
    )


def _moved_keys(left: Witness, right: NoiseReplay) -> Iterator[MovedKeys]:
    """The keys of each round whose numbers of people differ.

    Raises:
        Distinguished: a key moves by more than a slot, or the table that was drawn by is not worth its price.
    """
    for round_ in dict.fromkeys([*left.people, *right.people]):
        column, step = round_
        sides = left.people.get(round_, {}), right.people.get(round_, {})
        tables = {side.tables.get(round_, step.table) for side in (left, right)}
        people = {key: (sides[0].get(key, 0), sides[1].get(key, 0)) for key in dict.fromkeys(chain(*sides))}
        moved = {key: numbers for key, numbers in people.items() if numbers[0] != numbers[1]}
        if any(abs(first - second) > 1 for first, second in moved.values()):
            raise Distinguished(f"a key of {column} moves by more than one person")
        if tables != {step.table} or not is_priced(step.price, step.table):
            raise Distinguished(f"keys of {column} are shown by a table that is not worth its price")
        yield column, step, moved


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
    return DrawLoss(law.where, total, epsilon, Fraction(0))
