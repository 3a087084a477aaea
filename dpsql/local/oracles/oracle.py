"""Collector's side of a frequency oracle: counting of reports, and estimates from tallies.

| here      | there          | unit |
|-----------|----------------|------|
| `own`     | W              | weight of the truth, against 2^20 of any other answer |
| `p`, `q`  | p, q           | probability that an item is supported by its owner, by anybody else |
| `support` | lambda         | q + f (p - q), expected share of reports that support an item |
| cell      |                | one item or several; of Square Wave, a bin, told as it is: p = 1, q = 0 |
| spread    | v(eps)         | 4 e^eps / (e^eps - 1)^2, variance of one OUE report at f = 0 |

Covariances of two items are -lambda_i lambda_j / (n (p - q)^2) for GRR and -f_i f_j / n for OUE, n reports.

Reports of every `Oracle` support the own item with probability p and any other with q, each item independently of the
others unless the oracle says otherwise. Payloads of one number, of a cell that the report names, are in LEB128.

**Source**: docs/method/local.md, "Oracles".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dpsql.client.oracles import read_varint

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Bytes = NDArray[np.uint8]
"""Payloads of equal length, one a row."""
Packed = NDArray[np.uint8] | IntArray
"""Payloads of any length as numbers, one report a row."""
OTHER = 1 << 20


class Structure(NamedTuple):
    """A covariance (diag(diagonal) - tilt tilt') / n of the estimated shares of one oracle's items."""

    diagonal: FloatArray
    tilt: FloatArray

    def between(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Covariance of two sets of sums of items, times n; `left` and `right` are (sums, items)."""
        return np.asarray((left * self.diagonal) @ right.T - np.outer(left @ self.tilt, right @ self.tilt))


Checked = tuple[NDArray[np.bool_], str]
"""Mask of valid payloads, and the faults of the others."""


@dataclass(frozen=True)
class Oracle(ABC):
    """One randomizer over a number of items, as whoever collects its reports sees it.

    Unless it says otherwise a report is one number, its tally counts each, and it supports items independently, by a
    bit for each or by a seed.

    Args:
        domain: number of items.
        own: integer weight of the truth.
        extra: what plans say beside the domain: OLH's buckets, Square Wave's reach, else 0.

    **Privacy**: it reads reports, which are private already. The probabilities are the device's
    (`dpsql.client.oracles`), exactly.
    """

    domain: int
    own: int
    extra: int = 0
    name: ClassVar[str]
    """What plans and reports call it."""
    tilted: ClassVar[bool] = True
    """True if the tilt matters under "shares sum to 1"; else it lies along the constraint and drops out."""

    @classmethod
    @abstractmethod
    def offered(cls, domain: int, own: int) -> Self | None:
        """The oracle for a plan's view with these items; None if it is none for that."""

    @property
    def cost(self) -> Fraction:
        """Variance of one report's share of an item that nobody has; what is offered is compared by it.

        v(eps) = 4 e^eps / (e^eps - 1)^2, whatever the number of items; rounding of buckets is never far.
        """
        ratio = Fraction(self.own, OTHER)
        return 4 * ratio / (ratio - 1) ** 2

    @property
    @abstractmethod
    def exact(self) -> tuple[Fraction, Fraction]:
        """(p, q): probability that a report supports its owner's item, and that it supports somebody else's."""

    @property
    def apart(self) -> int:
        """Bytes of a payload whose every bit is counted by itself; 0 where a payload is counted as one."""
        return 0

    @property
    def width(self) -> int:
        """Number of cells that a tally counts."""
        return self.domain

    @cached_property
    def p(self) -> float:
        """Probability that a report supports its owner's item."""
        return float(self.exact[0])

    @cached_property
    def q(self) -> float:
        """Probability that a report supports somebody else's item."""
        return float(self.exact[1])

    @property
    def gap(self) -> float:
        """p - q."""
        return self.p - self.q

    @property
    def slope(self) -> float:
        """By how much the variances of two items differ, per difference of their shares, times reports."""
        return (1 - 2 * self.q) / self.gap

    @property
    def item_noise(self) -> float:
        """Factor v of the scores' covariance given the items, v (I - J/D) with J all ones, for items spread evenly:

        (q (1 - q) + (p (1 - p) - q (1 - q)) / D) / (p - q)^2.
        """
        p, q = self.p, self.q
        excess = p * (1 - p) - q * (1 - q)
        return (q * (1 - q) + excess / self.domain) / (p - q) ** 2

    def structure(self, shares: FloatArray, fan: float | FloatArray = 1.0) -> Structure:
        """Exact covariance of the estimated shares, times the number of reports.

        The diagonal is lambda (1 - lambda) / (p - q)^2 + f^2 and the tilt f. lambda (1 - lambda) + f^2 (p - q)^2 is
        linear in f, so cells of several items add up without knowing each one.

        Args:
            shares: true (or plugged-in) shares of cells.
            fan: how many items each cell adds up.
        """
        gap = self.gap
        diagonal = fan * self.q * (1 - self.q) / gap**2 + shares * (1 - 2 * self.q) / gap
        return Structure(np.asarray(diagonal), shares)

    def plugged(self, cells: FloatArray) -> FloatArray:
        """Estimated shares of cells made fit for `structure`: cut to 0 .. 1."""
        return np.asarray(np.clip(cells, 0, 1))

    def expected_support(self, shares: FloatArray) -> FloatArray:
        """Expected support of one report by shares of items, lambda, shape (width,)."""
        return self.q + self.gap * shares

    def moved(self, gain: FloatArray, shares: FloatArray, fan: float | FloatArray) -> float:
        """Most that one report more moves the sum of any leaves, times the number of reports.

        A report may support any items at once: the sum over cells of what each may add at most.

        Args:
            gain: leaves moved by each cell's share, shape (leaves, cells).
            shares: the estimated shares of the cells, which the report dilutes.
            fan: how many items each cell adds up.
        """
        gap, fan = self.gap, np.broadcast_to(np.asarray(fan, np.float64), shares.shape)
        weight_of_one, weight_of_zero = fan * (1 - self.q) / gap, fan * self.q / gap
        up, down = np.maximum(gain, 0).sum(axis=0), np.maximum(-gain, 0).sum(axis=0)
        baseline = float(np.abs(gain @ shares).sum())
        return baseline + float(
            max(up @ weight_of_one + down @ weight_of_zero, down @ weight_of_one + up @ weight_of_zero)
        )

    def check(self, payloads: Bytes) -> Checked:
        """Mask of payloads of one length that the oracle can give: a number below the width."""
        return check_numbers(payloads, self.width)

    def count(self, payloads: Bytes) -> IntArray:
        """Sound payloads of one length that support each cell, shape (width,)."""
        return np.bincount(varints(payloads), minlength=self.width)

    def packed(self, payloads: Sequence[bytes]) -> Packed:
        """Sound payloads as one array, to be kept and sliced by person: numbers, shape (reports, 1)."""
        return numbers_of(payloads)[:, None]

    @abstractmethod
    def supports(self, packed: Packed) -> NDArray[np.bool_]:
        """Items that each packed report supports, shape (reports, domain)."""

    @abstractmethod
    def payloads(self, items: IntArray, rng: np.random.Generator) -> list[bytes]:
        """Draw one payload a device with the device's probabilities.

        Args:
            items: an item each; of Square Wave the domain stands for "no row".
            rng: source of pseudo-random numbers; it protects nobody.
        """


def spread(own: int) -> float:
    """v(eps) for the exact weights.

    Example:
        >>> spread(3 << 20)
        3.0
    """
    ratio = own / OTHER
    return 4 * ratio / (ratio - 1) ** 2


def estimate(oracle: Oracle, tally: FloatArray, reports: float) -> FloatArray:
    """Turn a tally into unbiased shares.

    Args:
        oracle: whose reports were counted.
        tally: reports that support each cell, shape (width,).
        reports: number of reports.

    Returns:
        Shares, shape (width,); single ones may be negative.

    **Source**: docs/method/local.md, "Oracles".
    """
    return np.asarray((tally / reports - oracle.q) / (oracle.p - oracle.q))


def variance(oracle: Oracle, shares: FloatArray, reports: float) -> FloatArray:
    """Exact variance lambda (1 - lambda) / (n (p - q)^2) of each estimated share."""
    gap = oracle.p - oracle.q
    support = oracle.q + shares * gap
    return np.asarray(support * (1 - support) / (reports * gap**2))


def covariance(oracle: Oracle, shares: FloatArray, reports: float) -> FloatArray:
    """Exact covariance matrix of the estimated shares, shape (width, width)."""
    structure = oracle.structure(shares)
    return np.asarray((np.diag(structure.diagonal) - np.outer(structure.tilt, structure.tilt)) / reports)


def influence(oracle: Oracle) -> float:
    """Most counts that one hostile report can add to one cell's estimate: (1 - q) / (p - q)."""
    p, q = oracle.exact
    return float((1 - q) / (p - q))


def item_scores(oracle: Oracle, support: NDArray[np.bool_]) -> FloatArray:
    """Unbiased indicators of every item at once, adding up to 1 for each report.

    A person has exactly one item. What a report's scores are off a sum of 1 is taken evenly away from every item: still
    unbiased, margins of joined tables agree, and an answer of most items is no noisier than its complement.

    Args:
        oracle: of the reports.
        support: which items each report supports, shape (people, domain).

    Returns:
        Scores, shape (people, domain).

    **Source**: docs/method/local.md, "Services that cannot join".
    """
    raw = (support - oracle.q) / (oracle.p - oracle.q)
    return np.asarray(raw + (1 - raw.sum(axis=1, keepdims=True)) / oracle.domain)


LONGEST = 4
"""Bytes of the longest number."""


def check_numbers(payloads: Bytes, limit: int, start: int = 0) -> Checked:
    """Mask of payloads that hold, after `start` bytes, a number below `limit` in its shortest form."""
    if not start < payloads.shape[1] <= start + LONGEST:
        return (np.zeros(len(payloads), dtype=bool), "payload length")
    number = payloads[:, start:]
    shaped = (number[:, -1] < 128) & (number[:, :-1] >= 128).all(axis=1)
    shortest = (number[:, -1] > 0) | (number.shape[1] == 1)
    return (shaped & shortest & (varints(number) < limit), "value out of range")


def varints(number: Bytes) -> IntArray:
    """The integers that equally long, checked LEB128 numbers stand for."""
    value = np.zeros(len(number), dtype=np.int64)
    for position in range(number.shape[1]):
        value |= (number[:, position].astype(np.int64) & 0x7F) << (7 * position)
    return value


def numbers_of(payloads: Sequence[bytes], start: int = 0) -> IntArray:
    """The number after `start` bytes of each checked payload, shape (payloads,)."""
    return np.array([read_varint(payload[start:])[0] for payload in payloads], dtype=np.int64)


def farthest(moves: FloatArray) -> float:
    """Largest sum of moves of one sign within a column: the set of leaves that one named cell moves most."""
    return float(max(np.maximum(moves, 0).sum(axis=0).max(), np.maximum(-moves, 0).sum(axis=0).max()))
