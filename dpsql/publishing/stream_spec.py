"""What is fixed when a stream release is made, what one batch brings, and where its noise comes from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.budget import combine
from dpsql.mechanisms.stream.choose import StreamStrategy
from dpsql.mechanisms.stream.laminar import Currency
from dpsql.mechanisms.stream.schedule import Read
from dpsql.noise import Noise

IntArray = NDArray[np.int64]
Draw: TypeAlias = Callable[[int, Read, IntArray], IntArray]
"""(position of a statistic, noise node, exact sums) -> the sums with the node's noise: int64[cells]."""


class StreamStatistic(NamedTuple):
    """One statistic of the stream and its budget.

    Attributes:
        name: for messages.
        cells: rows of the other axes' strategy, flat (1 where time is the only axis).
        cap: what the statistic spends, in units of 1/denominator of epsilon (pure).
        denominator: t of rule N4, sensitivity included (pure).
        budget: int64[m], relative budgets of the rows of the first other axis (Gaussian: of all, so m = cells).
        total: largest path sum of `budget`.
        sigma2: Gaussian variance of a row at the whole time budget (zCDP), or None.
        further: (budget, total) of the axes after the first other one (pure).
    """

    name: str
    cells: int
    cap: int = 0
    denominator: int = 1
    budget: IntArray = np.ones(1, np.int64)
    total: int = 1
    sigma2: Fraction | None = None
    further: tuple[tuple[IntArray, int], ...] = ()

    def units(self, read: Read) -> IntArray:
        """Laplace units of every cell for one noise node (int64[cells]): time first, then axis by axis."""
        time = (np.array([read.budget], dtype=np.int64), read.total)
        combined = combine(self.cap, [time, (self.budget, self.total), *self.further])
        return np.broadcast_to(combined.reshape(-1), (self.cells,))


@dataclass(frozen=True)
class StreamSpec:
    """What is fixed when the release is made: strategy, currency, cells of each statistic, lifetime cap."""

    strategy: StreamStrategy
    currency: Currency
    cells: tuple[int, ...]
    lifetime: int | None = None

    def text(self) -> str:
        """Canonical JSON; an append under another specification is refused."""
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True)
class Batch:
    """One batch, aggregated.

    Attributes:
        number: 0-based, without gaps; an empty day is a batch of zeros.
        content: bytes that identify its raw rows; stored as an HMAC only.
        increments: per statistic, int64[cells]: exact sums over the batch's rows.
        people: the privacy units in it, if the release has a lifetime cap.
        left_out: rows left out per rule (late, over the cap, unknown key); for the curator only.
        types: the column types of its rows; the first batch's hold for all.
    """

    number: int
    content: bytes
    increments: tuple[IntArray, ...]
    people: tuple[str, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)
    types: str = ""


def noise_for(statistics: Sequence[StreamStatistic], noise: Noise) -> Draw:
    """The draws of a stream: a node's units are the statistic's cap, split over time first, then over the
    other axes.

    **Privacy**: flooring at each step only lowers a budget, so the path sums of the product stay within the
    cap.
    """

    def draw(statistic: int, read: Read, exact: IntArray) -> IntArray:
        entry = statistics[statistic]
        if entry.sigma2 is not None:
            rows = np.empty(entry.cells, dtype=np.int64)
            for budget in np.unique(entry.budget):
                # budgets of Gaussian rows are parts of a standard deviation, time shares are parts of rho
                sigma2 = (
                    entry.sigma2 * Fraction(read.total, read.budget) * Fraction(entry.total, int(budget)) ** 2
                )
                same = np.broadcast_to(entry.budget == budget, (entry.cells,))
                rows[same] = noise.gaussian(sigma2, int(same.sum()), exact[same])
            return rows
        return noise.laplace(entry.units(read), entry.denominator, exact)

    return draw


def contribution(rows: int, batches: int) -> int:
    """Rows that one person can add to one running sum: c rows a batch, D batches in a lifetime.

    Pure noise scales with it; under zCDP rho scales with its square, since all rows may meet in one node.

    >>> contribution(3, 4), contribution(3, 4) ** 2
    (12, 144)
    """
    return rows * batches
