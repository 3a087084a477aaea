"""Exact integer noise: the discrete Laplace and the discrete Gaussian, vectorised, no float in the law.

Read in this order: `Noise` here (what a mechanism is given), its two implementations and their entropy; `discrete` (how
a uniform integer becomes an exact e^(-u/t), and a draw); `knorm`. Only this package touches the operating system's
entropy.

>>> import numpy as np
>>> noise = ExactNoise(os_entropy())
>>> noise.laplace(np.array([1, 2, 3]), 8).shape, noise.insecure
((3,), False)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.noise.discrete import BoolArray, Entropy, IntArray, discrete_gaussian, discrete_laplace, full_words
from dpsql.noise.knorm import TreeNoise, joint_rows, joint_trees


def os_entropy() -> Entropy:
    """The operating system's cryptographic source, the only one fit for a release."""
    return os.urandom


_PAGE = 1 << 14


class _TestEntropy:
    """The bytes of `Generator(PCG64(seed)).bytes`, drawn a page at a time: samplers ask for a few bytes very often."""

    insecure: ClassVar[bool] = True

    def __init__(self, seed: int) -> None:
        self._generator = np.random.PCG64(seed)
        self._page = b""
        self._start = 0

    def __call__(self, size: int) -> bytes:
        start, end = self._start, self._start + size
        if end > len(self._page):
            words = np.asarray(self._generator.random_raw(max(_PAGE, size) // 8 + 1), dtype="<u8")
            self._page = self._page[start:] + words.tobytes()
            start, end = 0, size
        self._start = start + -(-size // 4) * 4  # the generator draws 32 bits at a time
        return self._page[start:end]


def insecure_test_entropy(seed: int) -> Entropy:
    """A repeatable source for tests, marked `insecure = True`.

    Args:
        seed: any non-negative integer; the same seed gives the same draws.

    Returns:
        An entropy source whose draws anybody can repeat.

    **Privacy**: none. A release made with it is stamped `insecure_entropy`.
    """
    return _TestEntropy(seed)


def noised(exact: IntArray | None, drawn: IntArray) -> IntArray:
    """Exact integers plus their draws; the bare draws where there are none."""
    return drawn if exact is None else np.asarray(exact + drawn, dtype=np.int64)


KeyNames = tuple[object, Sequence[str | int]]
"""A round of a column and its keys, in the order of their numbers of people: for sources that compare neighbours."""


def chances_of(table: Sequence[int], people: IntArray) -> npt.NDArray[np.uint64]:
    """Entries of a table, the last of which stands for all larger numbers of people."""
    if np.any(people < 1):  # place -1 would be the last
        raise InternalError("a key that nobody has can not be shown", hint="count people of rows alone")
    return np.array(table, np.uint64).take(np.minimum(people, len(table)) - 1)


class LeafNoise(NamedTuple):
    """Noise of leaves of trees, one of each: a unit that moves leaf i of number j by at most M_j loses units_i /
    denominator.

    Args:
        units: the rates of all levels added up, int64[trees].
        denominator: t.
        bounds: M_j >= 1, one a number.
    """

    units: IntArray
    denominator: int
    bounds: tuple[int, ...]


class Noise(Protocol):
    """Source of noise of a mechanism; the one argument that makes a release private or not.

    Publishing code hands its exact integers over and gets them back with noise, so that a source which watches a
    publish (`tests/privacy/loss.py`) sees every place where the two meet. Without `exact` the bare draws come back.
    """

    @property
    def insecure(self) -> bool:
        """True if the release must be stamped as not private."""

    def laplace(self, units: IntArray, denominator: int, exact: IntArray | None = None) -> IntArray:
        """`exact` plus independent draws, draw i with P(x) proportional to exp(-|x| units_i / denominator)."""

    def joint(
        self, units: IntArray, denominator: int, bounds: Sequence[int], exact: IntArray | None = None
    ) -> IntArray:
        """`exact`, shape (d, *units.shape), plus independent vectors: P(z) ~ exp(-(s/t) max_j |z_j| / M_j)."""

    def trees(self, tree: TreeNoise, exact: IntArray) -> IntArray:
        """`exact`, shape (d, trees, n), plus the first n leaves of independent trees (`joint_trees`)."""

    def stored(self, leaf: LeafNoise, exact: IntArray, drawn: IntArray) -> IntArray:
        """`exact` plus leaves of trees that were drawn before and kept, both of shape (d, trees)."""

    def gaussian(self, sigma2: Fraction, size: int, exact: IntArray | None = None) -> IntArray:
        """`exact` plus independent draws with P(x) proportional to exp(-x^2 / (2 sigma2))."""

    def shown(self, table: Sequence[int], people: IntArray, names: KeyNames) -> BoolArray:
        """For each number of people >= 1 an independent event of its chance in a table of multiples of 2^-64."""


@dataclass(frozen=True)
class ExactNoise:
    """The noise that releases are made with: exact samplers on the given entropy."""

    entropy: Entropy

    @property
    def insecure(self) -> bool:
        """True if the entropy is a marked test source."""
        return bool(getattr(self.entropy, "insecure", False))

    def laplace(self, units: IntArray, denominator: int, exact: IntArray | None = None) -> IntArray:
        return noised(exact, discrete_laplace(units, denominator, self.entropy))

    def joint(
        self, units: IntArray, denominator: int, bounds: Sequence[int], exact: IntArray | None = None
    ) -> IntArray:
        return noised(exact, joint_rows(units, denominator, bounds, self.entropy))

    def trees(self, tree: TreeNoise, exact: IntArray) -> IntArray:
        _, number, leaves = exact.shape
        return noised(exact, joint_trees(tree, number, self.entropy)[:, :, :leaves])

    def stored(self, leaf: LeafNoise, exact: IntArray, drawn: IntArray) -> IntArray:
        return noised(exact, drawn)

    def gaussian(self, sigma2: Fraction, size: int, exact: IntArray | None = None) -> IntArray:
        return noised(exact, discrete_gaussian(sigma2, size, self.entropy))

    def shown(self, table: Sequence[int], people: IntArray, names: KeyNames) -> BoolArray:
        return full_words(people.size, self.entropy) < chances_of(table, people)


@dataclass(frozen=True)
class ZeroNoise:
    """No noise at all, for oracle tests; whatever is published with it is stamped insecure."""

    insecure: ClassVar[bool] = True

    def laplace(self, units: IntArray, denominator: int, exact: IntArray | None = None) -> IntArray:
        """`exact` as it is, in the shape of `units`."""
        return noised(exact, np.zeros(np.shape(units), dtype=np.int64))

    def joint(
        self, units: IntArray, denominator: int, bounds: Sequence[int], exact: IntArray | None = None
    ) -> IntArray:
        """`exact` as it is, shape (d, *units.shape)."""
        return noised(exact, np.zeros((len(bounds), *np.shape(units)), dtype=np.int64))

    def trees(self, tree: TreeNoise, exact: IntArray) -> IntArray:
        """`exact` as it is."""
        return exact.copy()

    def stored(self, leaf: LeafNoise, exact: IntArray, drawn: IntArray) -> IntArray:
        """`exact` plus what is kept, which a draw without noise left at 0."""
        return noised(exact, drawn)

    def gaussian(self, sigma2: Fraction, size: int, exact: IntArray | None = None) -> IntArray:
        """`exact` as it is, or `size` zeros."""
        return noised(exact, np.zeros(size, dtype=np.int64))

    def shown(self, table: Sequence[int], people: IntArray, names: KeyNames) -> BoolArray:
        """What a chance above 1/2 decides."""
        return chances_of(table, people) >= np.uint64(1 << 63)
