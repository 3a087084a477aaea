"""Tallies that many devices' reports would give, in law: drawn from histograms, without making a report.

Benchmarks and tests repeat collections of a million people; what `dpsql` simulates are reports (`collecting.simulate`).
"""

from __future__ import annotations

from fractions import Fraction
from functools import singledispatch
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.client import Plan, read_plan
from dpsql.local.estimate import AxisTable, axis_table
from dpsql.local.oracles import (
    LocalHashingAggregator,
    RandomisedResponseAggregator,
    SquareWaveAggregator,
    UnaryEncodingAggregator,
)
from dpsql.local.oracles.oracle import OTHER, IntArray, Oracle
from dpsql.local.plan import CollectionDesign, PlannedAxis, build_plan
from dpsql.local.smooth import Positive, positive_shares
from dpsql.local.tallies import FOLDS, CountedCollection, RespondentRows, ViewTally, kind_of, oracle_of


@singledispatch
def tally(oracle: Oracle, histogram: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw a tally, shape (width,): of any oracle, by counting one report a device.

    Args:
        oracle: whose reports.
        histogram: devices per item, shape (domain,); of Square Wave also devices without a row, at the end.
        rng: source of pseudo-random numbers.
    """
    payloads = oracle.payloads(np.repeat(np.arange(histogram.size), histogram), rng)
    total = np.zeros(oracle.width, dtype=np.int64)
    for length in {len(payload) for payload in payloads}:
        same = b"".join(payload for payload in payloads if len(payload) == length)
        total += oracle.count(np.frombuffer(same, np.uint8).reshape(-1, length))
    return total


@tally.register
def _(
    oracle: RandomisedResponseAggregator, histogram: NDArray[np.int64], rng: np.random.Generator
) -> IntArray:
    """An answer is the truth with probability (W - S) / total, else uniform over all items."""
    kept = rng.binomial(histogram, (oracle.own - OTHER) / (oracle.own + (oracle.domain - 1) * OTHER))
    rest = int(histogram.sum() - kept.sum())
    return np.asarray(kept + rng.multinomial(rest, np.full(oracle.domain, 1 / oracle.domain)))


@tally.register
def _(oracle: UnaryEncodingAggregator, histogram: NDArray[np.int64], rng: np.random.Generator) -> IntArray:
    """Bits are independent."""
    rest = int(histogram.sum()) - histogram
    return np.asarray(rng.binomial(histogram, 0.5) + rng.binomial(rest, oracle.q))


@tally.register
def _(oracle: LocalHashingAggregator, histogram: NDArray[np.int64], rng: np.random.Generator) -> IntArray:
    """Counted from one drawn report a device."""
    return oracle.support(*oracle.hashed(np.repeat(np.arange(histogram.size), histogram), rng))


@tally.register
def _(oracle: SquareWaveAggregator, histogram: NDArray[np.int64], rng: np.random.Generator) -> IntArray:
    """Near the own leaf with the probability that its weight adds, else uniform over all bins."""
    near, leaves = 2 * oracle.extra + 1, oracle.domain
    total = near * oracle.own + (leaves - 1) * OTHER
    kept = rng.binomial(histogram[:leaves], near * (oracle.own - OTHER) / total)
    found = np.zeros(leaves + near - 1, dtype=np.int64)
    for shift, part in enumerate(rng.multinomial(kept, np.full(near, 1 / near)).T):
        found[shift : shift + leaves] += part
    rest = int(histogram.sum() - kept.sum())
    return found + rng.multinomial(rest, np.full(found.size, 1 / found.size))


def histogram_of_boxes(boxes: IntArray, leaves: IntArray) -> IntArray:
    """Add up a histogram of leaves inside each box."""
    return np.array([leaves[tuple(slice(lo, hi) for lo, hi in box)].sum() for box in boxes], dtype=np.int64)


def one_row_each(leaves: IntArray, measures: IntArray | None = None) -> RespondentRows:
    """People with exactly one row."""
    empty = np.zeros((len(leaves), 0), dtype=np.int64) if measures is None else measures
    return RespondentRows(np.arange(len(leaves) + 1), leaves, empty)


def simulate_tallies(plan: Plan, people: RespondentRows, rng: np.random.Generator) -> CountedCollection:
    """Draw the counts that everybody's reports would give."""
    share = np.array([v.share for v in plan.views], dtype=np.float64)
    drawn = rng.choice(share.size, size=people.count, p=share / share.sum())
    folds = rng.integers(0, FOLDS, size=people.count)
    tallies = []
    for number, view in enumerate(plan.views):
        support, reports = [], []
        for fold in range(FOLDS):
            who = np.nonzero((drawn == number) & (folds == fold))[0]
            items = kind_of(view).draw(plan, view, people, who, rng)
            width = view.domain + int(view.asks.silent)
            support.append(tally(oracle_of(plan, view), np.bincount(items, minlength=width), rng))
            reports.append(who.size)
        tallies.append(ViewTally(np.array(support), np.array(reports)))
    return CountedCollection(plan, tallies)


class OneAxis(NamedTuple):
    """One collection of one axis.

    Args:
        exact: shares of the leaves among the people.
        unbiased: the default plan's table of the axis.
        positive: its non-negative answers.
    """

    exact: np.ndarray
    unbiased: AxisTable
    positive: Positive | None

    @classmethod
    def collect(
        cls, name: str, shares: np.ndarray, people: int, epsilon: str, rng: np.random.Generator
    ) -> OneAxis:
        """Draw people by the shares of the leaves, and collect their reports under the default plan.

        The plan's name stands in its hash, which seeds the refits that error bars are made of.
        """
        leaves = shares.size
        said = rng.choice(leaves, size=people, p=shares)
        axes = (PlannedAxis("a", leaves, leaves),)
        plan = read_plan(build_plan(CollectionDesign(name, Fraction(epsilon), people, axes, rows_floor=1)))
        collection = simulate_tallies(plan, one_row_each(said[:, None]), rng)
        unbiased = axis_table(collection, 0)
        exact = np.bincount(said, minlength=leaves) / people
        return cls(exact, unbiased, positive_shares(collection, (0,), {0: unbiased}))

    def hits(self, masks: np.ndarray) -> np.ndarray:
        """Whether 95% intervals of the non-negative answers cover, by range of leaves."""
        assert self.positive is not None
        assert self.positive.errors is not None
        return covered(masks, self.positive.shares - self.exact, self.positive.errors.covariance([masks]))


def covered(masks: np.ndarray, off: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Whether 95% intervals of ranges cover, whose leaves are off by so much."""
    return np.abs(masks @ off) <= 1.96 * np.sqrt(np.maximum(variance, 0.0)) + 1e-12


def spread(masks: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Variances of ranges, by the covariance of their leaves."""
    return np.asarray(np.sum((masks @ covariance) * masks, axis=1))


def range_masks(leaves: int) -> np.ndarray:
    """Every half-open range, shape (ranges, leaves)."""
    low, high = np.triu_indices(leaves + 1, 1)
    at = np.arange(leaves)
    return ((at >= low[:, None]) & (at < high[:, None])).astype(float)
