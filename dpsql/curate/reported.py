"""What a release over a reported column will err by, foreseen from what is publicly known of the people.

People are supposed to lie evenly over the attribute and over all other leaves, and to report, each of them. What their
channel adds follows: h of a question times the rows that it asks for, times how rows of one person add up.

**Privacy**: the catalog and the curator's public guess; no private table is opened.
**Source**: docs/method/hybrid.md, "Error bars".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod, sqrt

import numpy as np
import numpy.typing as npt

from dpsql.mechanisms.local.channel import channel_of
from dpsql.publishing.hybrid import ChannelInputs, invert_channel, reported_at
from dpsql.publishing.planned import ReleasePlan
from dpsql.publishing.squares import COUNT, hybrid_statistics
from dpsql.publishing.userlevel.guess import Guess
from dpsql.release import Release
from dpsql.release.format import UNIT
from dpsql.release.reports import SquareMeta
from dpsql.release.write import ReleaseBuilder, StatisticContent, StatisticPart
from dpsql.star import Catalog
from dpsql.variance.channel import COUNTED, Deviations, Squares
from dpsql.variance.reconcile import node_sums

FloatArray = npt.NDArray[np.float64]
BOXES = 256


@dataclass(frozen=True)
class GuessedSquares:
    """How rows of one person add up, by a guess; without one, the most that they may."""

    plan: ReleasePlan
    guess: Guess | None

    @property
    def stored(self) -> tuple[SquareMeta, ...]:
        return ()

    def rows(self, index: int, counts: FloatArray) -> Squares:
        """As of `DrawnSquares`: as many rows a person as she has on average, as alike as the guess says."""
        if self.guess is None:
            return Squares(float(self.plan.statistics[index].tau), 0.0, (0.0,) * counts.ndim)
        mean = min(self.guess.mean, self.plan.statistics[index].tau)
        return Squares(1.0, mean - 1.0, (self.guess.alike,) * counts.ndim)

    def deviations(self, index: int, counts: FloatArray) -> Deviations:
        """As of `DrawnSquares`: values even over the measure's bounds, a person's independent."""
        bounds = self.plan.statistics[index].bounds
        if bounds is None:
            return COUNTED
        return Deviations((bounds.upper - bounds.lower) ** 2 / 12, 0.0, float(bounds.reach))


def foreseen(
    builder: ReleaseBuilder, catalog: Catalog, plan: ReleasePlan, guess: Guess | None
) -> ReleaseBuilder:
    """A planned release of items as one of values, with the people of a guess; nobody without one.

    Args:
        builder: the planned release, without estimates.
        catalog: as it was written.
        plan: of what is counted.
        guess: what is publicly known.
    """
    statistics = list(builder.statistics)
    for i, number in hybrid_statistics(plan, catalog).items():
        statistic = statistics[i]
        leaves = [plan.axes[axis].axis.leaves for axis in statistic.meta.axes]
        rows = guess.rows if guess is not None and statistic.meta.measure == COUNT else 0
        column = reported_at(catalog, plan.axes[number].resolved)
        if column is None:
            continue
        items = channel_of(*column.asked).law.mean(axis=1)
        place = statistic.meta.axes.index(number)
        shape = [1] * len(leaves)
        shape[place] = leaves[place]
        along = np.concatenate([items, np.zeros(leaves[place] - len(items))]).reshape(shape)
        even = np.broadcast_to(rows * leaves[place] / prod(leaves) * along, leaves)
        trees = [builder.axes[axis].content.tree for axis in statistic.meta.axes]
        nodes = node_sums(np.rint(even * UNIT).astype(np.int64), trees)
        empty = statistic.content.value
        statistics[i] = StatisticPart(statistic.meta, StatisticContent(empty, empty, nodes))
    channel_inputs = ChannelInputs(catalog, plan, GuessedSquares(plan, guess), ())
    return invert_channel(replace(builder, statistics=statistics), channel_inputs)


def typical_errors(release: Release, plan: ReleasePlan, catalog: Catalog) -> Mapping[int, float]:
    """Standard error of a random range on every axis, in stored units, of statistics with a reported column.

    Args:
        release: what `foreseen` wrote, opened.
        plan, catalog: as there.
    """
    rng, errors = np.random.default_rng(0), {}
    for i in hybrid_statistics(plan, catalog):
        masks = []
        for axis in release.statistics[i].axes:
            n = release.axes[axis].leaves
            ends = np.sort(rng.integers(0, n + 1, (BOXES, 2)), axis=1)
            ends[ends[:, 0] == ends[:, 1]] = 0, n
            at = np.arange(n)
            masks.append(((at >= ends[:, :1]) & (at < ends[:, 1:])).astype(np.float64))
        errors[i] = sqrt(float(np.mean(release.reading(i).covariance(masks).noise)))
    return errors
