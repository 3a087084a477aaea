"""Totals of amounts that few people own most of: where to clip them, what lies beyond, how far that may be off.

A total is drawn with every person clipped to a bound. What the bound leaves out is estimated from the noisy histogram
that chose it. Bins below its last clear one show people and so amounts; from that bin on people are taken to thin out
along some curve, and every curve of a public list has the weight that the noisy bins give it. The list holds power laws
that bend downwards, and spikes of light people followed by a plateau that noise hides. Amounts beyond the bound are a
quantile of the curves, so that an interval is as long as the curves disagree.

| here | there | unit |
|---|---|---|
| `Tail.end`, `last` | e_k, upper end of the last clear bin, and k | amount, - |
| `Tail.clarity` | see: people that stand out of the noise, in its standard deviations | 1 |
| `Tail.curves`, `weights` | people of each bin from k on, and the posterior of each curve | people, 1 |
| `Tail.beyond` | m(B), and its sd, down and up without noise of the total | amount |
| `HighTotal` | T with its errors | amount |

**Privacy**: functions of released values alone.
**Source**: docs/method/user_level.md, "Totals with a high bound".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import hypot, log, log2, sqrt
from typing import NamedTuple

import numpy as np

from dpsql.mechanisms.family.people import NoisyHistogram, NoisyTotal, cleaned
from dpsql.tree import FloatArray

CLEAR_BIN = 2.0
"""Noise SDs above which the next bin belongs to the tail that is seen; one bin further out does not count alone."""

CERTAIN_BIN = 6.0
"""Noise SDs above which a bin does count alone: where some own few rows and others many, with nobody in between. One
bin of ten thousand of Laplace noise passes it."""

INNER_SLOPE = 0.7
"""Slope of amounts within a bin."""

MIDDLE = 0.72
"""Mean amount of a bin's people over its upper end."""

SLOPES = (-1.0, -0.5, 0.0, 0.3, 0.6, 0.9, 1.2, 1.6, 2.0, 2.5, 3.2, 4.0, 6.0)
BENDS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
HEIGHTS = tuple(z / 2 for z in range(-4, 5))
"""Power curves: C 2^-(a i + q i (i - 1) / 2), C so many noise SDs above the last clear bin's count."""

PLATEAUS = (0.15, 0.3, 0.6, 1.0, 1.4, 1.8, 2.2)
LENGTHS = range(1, 11)
SPIKE_SLOPES = (1.5, 3.0, 8.0)
SPIKE_HEIGHTS = (-1.0, 0.0, 1.0)
"""Block curves: C 2^-(a i), and a plateau of so many noise SDs over so many bins."""

FAINT = 16.0
"""Noise SDs of people at which plateaus weigh half as much as power curves."""

BLOCKS_LEAST, BLOCKS_MOST = 0.04, 0.5
NEGLIGIBLE = 1e-5
"""Weight of a curve, over the best one's, below which it is dropped."""

RICHEST = 9.0
"""Times what clear bins own that a curve may own beyond them."""

SIDE = 1.96
"""Standard errors on each side of a 95% interval."""

BLIND_ROWS, BLIND_SUMS = 8.0, 30.0
"""Noise SDs of people below which a histogram shows nothing: of rows, and of sums whose median is in the first bin."""

LOST = 3.0
"""Standard errors downwards that a total must be above 0 to be a scale."""


class TailError(NamedTuple):
    """Standard errors of what a bound leaves out: symmetric, towards less, towards more."""

    sd: float
    down: float
    up: float


@dataclass(frozen=True, eq=False)
class Tail:
    """The upper end of a noisy histogram of amounts.

    Args:
        ends: upper ends of all bins, the open one's twice where it starts, shape (n,).
        drawn: noisy people, shape (n,).
        sd: noise SD of a bin.
        last: the last clear bin.
        people: those of cleaned bins.
        first: whether half of these are in the first bin.
    """

    ends: FloatArray
    drawn: FloatArray
    sd: float
    last: int
    people: float
    first: bool

    @property
    def counts(self) -> FloatArray:
        """People of each bin, at least 0."""
        return np.maximum(self.drawn, 0.0)

    @property
    def end(self) -> float:
        """Upper end of the last clear bin."""
        return float(self.ends[self.last])

    @property
    def clarity(self) -> float:
        return self.people / self.sd

    @property
    def visible(self) -> float:
        """What people up to the last clear bin own, about."""
        inside = slice(0, self.last + 1)
        return float(MIDDLE * (self.ends[inside] * self.counts[inside]).sum())

    def beyond(self, bound: float) -> tuple[float, TailError]:
        """What people own above a bound, by estimate, with its errors.

        Args:
            bound: B, at least 1.
        """
        means = mean_excess(self.ends, bound)
        below, above = means[: self.last], means[self.last :]
        people = self.counts[: self.last]
        curves, weights = self._posterior
        amounts = curves @ above
        reach = above * np.maximum(self.ends[self.last :] - bound, 0.0)
        variance = float(((self.sd * below) ** 2 + (0.2 * people * below) ** 2).sum())
        variance += float(weights @ (0.8 * (curves @ reach) + 0.04 * (curves**2 @ above**2)))
        low, middle, high = _quantiles(amounts, weights, (0.025, 0.5, 0.975))
        mean = float(weights @ amounts)
        scatter = float(weights @ (amounts - mean) ** 2)
        down, up = (sqrt(variance + (side / SIDE) ** 2) for side in (middle - low, high - middle))
        sd = min(sqrt(variance + scatter), (down + up) / 2)
        return float(people @ below) + middle, TailError(sd, down, up)

    @cached_property
    def _posterior(self) -> tuple[FloatArray, FloatArray]:
        """Curves that the bins leave likely, with their weights."""
        start, before = self.drawn[self.last], self.drawn[self.last - 1] if self.last else None
        curves, neighbours, prior = _curves(start, self.sd, len(self.ends) - self.last, self._blocks)
        score = prior - ((self.drawn[self.last :] - curves) ** 2).sum(axis=1) / (2 * self.sd**2)
        if before is not None:
            doubt = self.sd**2 + (0.5 * np.maximum(neighbours, before)) ** 2
            score = score - (before - neighbours) ** 2 / (2 * doubt)
        riches = MIDDLE * curves[:, 1:] @ self.ends[self.last + 1 :]
        visible = max(
            self.visible, MIDDLE * self.end * self.sd / 4
        )  # the least that a curve has in its first bin
        gamma = float(np.clip(0.75 * log2(max(self.clarity, 1e-9) / 12), 0.0, 2.0))
        score = score - gamma * np.log1p(riches / visible)
        allowed = riches <= RICHEST * visible
        score = np.where(allowed, score, -np.inf) if allowed.any() else score
        weights = np.exp(score - score.max())
        likely = weights >= NEGLIGIBLE
        return curves[likely], weights[likely] / weights[likely].sum()

    @property
    def _blocks(self) -> float:
        """Weight of all block curves over that of all power curves."""
        faint = 0.5 * (FAINT / max(self.clarity, 1e-9)) ** 1.5
        return float(np.clip(faint, BLOCKS_LEAST, BLOCKS_MOST))


def _curves(start: float, sd: float, bins: int, blocks: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """All curves from the last clear bin on, what each says of the bin before, and the logarithms of their priors.

    Args:
        start: people of the last clear bin, as drawn.
        sd: noise SD of a bin.
        bins: from the last clear one on.
        blocks: weight of block curves over that of power curves.
    """
    i = np.arange(bins, dtype=np.float64)
    slope, bend, height = (np.array(x)[:, None] for x in zip(*product(SLOPES, BENDS, HEIGHTS), strict=True))
    first = np.maximum(start + height * sd, sd / 4)
    power = first * np.exp2(-(slope * i + bend * i * (i - 1) / 2))
    left = first * np.exp2(np.clip(slope - bend, -2, 8))
    flat, length, steep, shift = (
        np.array(x, np.float64)[:, None]
        for x in zip(*product(PLATEAUS, LENGTHS, SPIKE_SLOPES, SPIKE_HEIGHTS), strict=True)
    )
    spike = np.maximum(start + shift * sd, sd / 4)
    plateau = flat * sd * (((i >= 1) & (i <= length)) + 0.5 * (i == length + 1))
    block = spike * np.exp2(-steep * i) + plateau
    reach = spike * np.exp2(np.clip(steep, -2, 8))
    prior = np.concatenate([np.zeros(len(power)), np.full(len(block), log(blocks * len(power) / len(block)))])
    return np.concatenate([power, block]), np.concatenate([left, reach])[:, 0], prior


def _quantiles(values: FloatArray, weights: FloatArray, shares: tuple[float, ...]) -> Iterator[float]:
    """The least values that hold some shares of the weight."""
    order = np.argsort(values, kind="stable")
    running = np.cumsum(weights[order])
    places = np.searchsorted(running, np.array(shares) * running[-1])
    return iter(values[order][np.minimum(places, len(values) - 1)].tolist())


def mean_excess(ends: FloatArray, bound: float) -> FloatArray:
    """Mean of (x - bound)+ under the density x^-1.7 on (e / 2, e] of each bin.

    Args:
        ends: e of each bin, shape (n,).
        bound: at least 0.
    """
    a = INNER_SLOPE
    begin = np.clip(bound, ends / 2, ends)
    amount = (ends ** (1 - a) - begin ** (1 - a)) / (1 - a)
    people = (begin**-a - ends**-a) / a
    whole = ((ends / 2) ** -a - ends**-a) / a
    return np.asarray(np.maximum(0.0, amount - bound * people) / whole, np.float64)


def last_clear(histogram: NoisyHistogram) -> int:
    """The last clear bin of a noisy histogram.

    It is the median's, or a certain one above, moved up while the next one stands out of the noise: a contiguous run,
    since single far bins over two SDs are noise and moved totals by 200%.

    >>> last_clear(NoisyHistogram((1, 2, 4, 8, 16), np.array([40, 80, 40, 20, 0, 0]), 1.0))
    3
    """
    value, s = histogram.value.astype(np.float64), histogram.sd
    running = np.cumsum(cleaned(histogram))
    last = len(histogram.edges) - 1
    k = min(int(np.searchsorted(running, running[-1] / 2)), last) if running[-1] > 0 else 0
    k = max([k, *np.flatnonzero(value[: last + 1] > CERTAIN_BIN * s)])
    while k < last and value[k + 1] > CLEAR_BIN * s:
        k += 1
    return int(k)


def read_tail(histogram: NoisyHistogram) -> Tail:
    """The tail of a noisy histogram.

    >>> tail = read_tail(NoisyHistogram((1, 2, 4, 8, 16), np.array([40, 80, 40, 20, 0, 0]), 1.0))
    >>> tail.end, tail.people, tail.first
    (8.0, 180.0, False)
    """
    people = cleaned(histogram)
    ends = np.array([*histogram.edges, 2 * histogram.edges[-1]], np.float64)
    whole = float(people.sum())
    drawn = histogram.value.astype(np.float64)
    return Tail(ends, drawn, histogram.sd, last_clear(histogram), whole, bool(2 * people[0] >= whole))


def best_clip(tail: Tail, unit_noise: float, largest: int) -> int:
    """The bound of a total with the least predicted error.

    Args:
        tail: of what each person owns.
        unit_noise: noise SD of the total for a bound of 1.
        largest: the bound's own bound.

    Returns:
        An integer between a quarter of and 64 times the end of the last clear bin, at least 1.
    """
    bounds = sorted({max(1, round(tail.end * 2 ** (j / 4))) for j in range(-8, 25)})
    errors = [(unit_noise * bound) ** 2 + tail.beyond(bound)[1].sd ** 2 for bound in bounds]
    return min(bounds[int(np.argmin(errors))], largest)


@dataclass(frozen=True)
class HighTotal:
    """A total with what its bound left out put back, by estimate.

    Args:
        clipped: as drawn; of public rows without noise.
        put_back: what is added to it, of its sign.
        tail: standard errors of that.
        blind: whether noise hides how much there is; then there is no upper end.
    """

    clipped: NoisyTotal
    put_back: float
    tail: TailError
    blind: bool = False

    @property
    def value(self) -> float:
        """T."""
        return self.clipped.value + self.put_back

    @property
    def sd(self) -> float:
        return hypot(self.clipped.sd, self.tail.sd)


def high_total(drawn: NoisyTotal, tail: Tail, *, rows: bool) -> HighTotal:
    """Put back what the clip of a total left out.

    Args:
        drawn: the clipped total.
        tail: of what each person owns, sizes alone.
        rows: whether rows are counted; else amounts are added.
    """
    (beyond, error), sign = tail.beyond(drawn.bound), -1 if drawn.value < 0 else 1
    faint = tail.clarity < BLIND_ROWS if rows else tail.clarity < BLIND_SUMS and tail.first
    size = sign * drawn.value + beyond
    lost = size <= LOST * hypot(drawn.sd, error.down)
    return HighTotal(drawn, sign * beyond, error, faint or lost)


def told_total(rows: int) -> HighTotal:
    """A total that may be told."""
    return HighTotal(NoisyTotal(rows, 0.0, 0), 0.0, TailError(0.0, 0.0, 0.0))
