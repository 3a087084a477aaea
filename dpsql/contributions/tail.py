"""Totals of amounts that few people own most of: where to clip them, how much lies beyond the clip, and its error.

A total is drawn with every person clipped to a bound. The amount beyond the bound is estimated from the noisy histogram
that chose it. Bins below its last clear one show people and so amounts; from that bin on people are taken to thin out
along some curve, and every curve of a public list has the weight that the noisy bins give it:

- power curves, which bend downwards, and the steepest of which end at once; they fall by the bin, and by half an
  octave in octaves that follow bins of half of one;
- blocks: a spike of light people followed by a plateau that noise hides;
- islands: an end, and people far beyond it.

The amount beyond the bound is a quantile of the curves, so that an interval is as long as the curves disagree.

A bin's upper end is e_b, its noisy count c_b, the noise s; k is the last clear bin and i = b - k. P people are seen;
see = P / s, seen is the sum over b <= k of .72 e_b c_b, at least .72 e_k s / 4. Where bin k is half an octave a whole
octave beyond it is two steps i; before the first whole octave c_(k-1) is that of both halves, and so is its noise.

    power     C 2^-(a i + q i (i + 1) / 2),  C = max(c_k + z s, s / 4)
    blocks    C 2^-(a i) + D s for 1 <= i <= J, half of D one bin further; the less weight the more people are seen
    islands   C 2^-(8 i), and D s in one or two bins further out; under Laplace noise alone

A curve says p = C 2^clip(a, -2, 8) of bin k - 1 and owns own = sum over i >= 1 of .72 e_b curve_b. Its log weight is
the prior's less

    sum over b >= k of (c_b - curve_b)^2 / 2 s^2                               Laplace: sqrt(2) |c_b - curve_b| / s
    the larger of (c_(k-1) - p)^2 / 2 (s^2 + (.5 max(p, c_(k-1)))^2) and log2((max(c_(k-1), 0) + s) / (p + s))^2 / 2,
        less its least over power curves; 0 of islands
    gamma log(1 + own / seen),  gamma = clip(.75 log2(see / 12), 0, 2);  own > 9 seen is ruled out

With g_b the mean of (x - B)+ over amounts x of bin b under weights x^-(1 + a'), a curve owns X = sum curve_b g_b above
B. a' is .7; in bin k a + q / 2 of power curves, everywhere a + q (i + 1/2) of those that end (both twice where bin k is
half an octave, from -1 to 12), the spike's of blocks and islands.

    V of a curve = sum [.8 curve_b g_b (e_b - B)+ + (.2 curve_b g_b)^2]
    m = sum over b < k of c_b g_b + median X
    v = sum over b < k of [(s g_b)^2 + (.2 c_b g_b)^2] + the posterior quantile .9 of V
    down^2 = v + ((median - q.025) / 1.96)^2,  up^2 likewise,  sd = min(sqrt(v + var X), (down + up) / 2)

v has (c_k w / 2)^2 more, w the part of bin k above B, where bin k - 1 has less than 2 s or than c_k / 2 - 2 s people.

The clip B is e_k 2^(j / 2), j = -2 .. 8, with the least (u B)^2 + sd^2, u the noise for a bound of 1. Where see < 8 of
rows, or T is at most 3 standard errors downwards, noise hides how much there is: R is 1, and answers have no upper end.
A sum whose see is below 30 with the median in the first bin takes R of the rows.

| here | there | unit |
|---|---|---|
| `Tail.end`, `last` | e_k, upper end of the last clear bin, and k | amount, - |
| `Tail.clarity` | see: people that stand out of the noise, in its standard deviations | 1 |
| `Curves` | curve_b, p, prior and a' of each curve | people, people, log, 1 |
| `mean_excess` | g_b(B) | amount |
| `Tail.beyond` | m(B), and its sd, down and up without noise of the total | amount |
| `ClippedTotal` | T with its errors | amount |

**Privacy**: functions of released values alone.
**Source**: docs/method/rows.md, "Totals with a high bound".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import hypot, log, log2, sqrt
from typing import NamedTuple

import numpy as np

from dpsql.contributions import constants
from dpsql.contributions.histogram import NoisyHistogram, NoisyTotal, cleaned, last_clear
from dpsql.tree import FloatArray, IntArray


class TailError(NamedTuple):
    """Standard errors of the amount beyond a bound: symmetric, towards less, towards more."""

    sd: float
    down: float
    up: float


class Curves(NamedTuple):
    """Curves of people per bin from the last clear one on.

    Args:
        people: shape (c, bins).
        before: people in the bin before, as a curve continues; NaN where it says nothing of that bin, shape (c,).
        prior: logarithms of prior weights, shape (c,).
        slope: slopes of amounts inside of bins, shape (g, bins); curves that share them are one of g groups.
        group: of each curve, shape (c,).
    """

    people: FloatArray
    before: FloatArray
    prior: FloatArray
    slope: FloatArray
    group: IntArray


@dataclass(frozen=True, eq=False)
class Tail:
    """The upper end of a noisy histogram of amounts.

    Args:
        ends: upper ends of all bins, the open one's twice where it starts, shape (n,).
        drawn: noisy people, shape (n,).
        sd: noise SD of a bin.
        norm: of the noise: 1 for Laplace, 2 for Gaussian.
        last: the last clear bin.
        people: those of cleaned bins.
        first: whether half of these are in the first bin.
        rows: whether amounts are numbers of rows, whole and at least 1; else sizes of sums.
        islands: whether curves may have people far beyond their end. Under Gaussian noise one of 60 far bins at 3
            standard deviations, as in one draw of 50 of a tail that ends, would outweigh all other curves.
    """

    ends: FloatArray
    drawn: FloatArray
    sd: float
    norm: int
    last: int
    people: float
    first: bool
    rows: bool
    islands: bool

    @property
    def starts(self) -> FloatArray:
        """Upper end of the bin before each, shape (n,)."""
        return np.concatenate([[0.0], self.ends[:-1]])

    @cached_property
    def halved(self) -> int:
        """The last bin of half an octave; -1 where there is none."""
        return int(np.flatnonzero(self.ends < 2 * self.starts).max(initial=-1))

    @property
    def steps(self) -> IntArray:
        """Steps of a curve in each bin from the last clear one on: 2 in an octave that follows halves of one."""
        bins = np.arange(self.last, len(self.ends))
        return np.where((self.last <= self.halved) & (bins > self.halved), 2, 1)

    @property
    def before(self) -> tuple[float, float]:
        """People as drawn in the step before the last clear bin, both halves of an octave, and their noise SD."""
        step = self.drawn[self.last - 1 - (0 < self.last == self.halved + 1) : self.last]
        return float(step.sum()), sqrt(len(step)) * self.sd

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
        """About the amount of people up to the last clear bin."""
        inside = slice(0, self.last + 1)
        return float(constants.MIDDLE * (self.ends[inside] * self.counts[inside]).sum())

    def beyond(self, bound: float) -> tuple[float, TailError]:
        """Estimate of the amount that people own above a bound, with its errors.

        Args:
            bound: B, at least 1.
        """
        k, people = self.last, self.counts[: self.last]
        curves, weights = self._posterior
        known = np.full((1, k), constants.INNER_SLOPE)
        below = mean_excess(self.starts[:k], self.ends[:k], bound, known, rows=self.rows)[0]
        excess = mean_excess(self.starts[k:], self.ends[k:], bound, curves.slope, rows=self.rows)[
            curves.group
        ]
        owned = curves.people * excess
        reach = np.maximum(self.ends[k:] - bound, 0.0)
        # few people come or do not (0.8 of them Poisson), and where in their bin they are nobody knows
        chance = (0.8 * owned * reach + (0.2 * owned) ** 2).sum(axis=1)
        variance = float(((self.sd * below) ** 2 + (0.2 * people * below) ** 2).sum())
        variance += next(_quantiles(chance, weights, (constants.CHANCE,)))
        if k and self._rises:
            # no slope says where inside of the last clear bin its people are: they may all own e_k. With 300 of 6,000
            # people at 60 rows and nobody from 20 to 59, totals covered 53% without this term
            inside = max(self.end - max(bound, self.starts[k] + self.rows), 0.0)
            variance += (self.counts[k] * inside / 2) ** 2
        amounts = owned.sum(axis=1)
        low, middle, high = _quantiles(amounts, weights, (0.025, 0.5, 0.975))
        scatter = float(weights @ (amounts - float(weights @ amounts)) ** 2)
        down, up = (sqrt(variance + (side / constants.SIDE) ** 2) for side in (middle - low, high - middle))
        sd = min(sqrt(variance + scatter), (down + up) / 2)
        return float(people @ below) + middle, TailError(sd, down, up)

    @property
    def _rises(self) -> bool:
        """Whether the last clear bin lies beyond a gap, or holds more people than any curve rises to."""
        before, sd = self.before
        doubt = constants.CLEAR_BIN * sd
        return bool(before < max(doubt, self.drawn[self.last] / constants.STEEPEST_RISE - doubt))

    @cached_property
    def _posterior(self) -> tuple[Curves, FloatArray]:
        """Curves that the bins leave likely, with their weights."""
        start = float(self.drawn[self.last])
        curves = possible_curves(start, self.sd, self.steps, *self._blocks, islands=self.islands)
        gap = np.abs(self.drawn[self.last :] - curves.people) / self.sd
        score = curves.prior - (sqrt(2) * gap if self.norm == 1 else gap**2 / 2).sum(axis=1)
        if self.last:
            score = score - self._turn(curves)
        # a curve is the less likely the more its people own beyond what is visible; at least what its first bin owns
        riches = constants.MIDDLE * curves.people[:, 1:] @ self.ends[self.last + 1 :]
        visible = max(self.visible, constants.MIDDLE * self.end * self.sd / 4)
        gamma = float(np.clip(0.75 * log2(max(self.clarity, 1e-9) / 12), 0.0, 2.0))
        score = score - gamma * np.log1p(riches / visible)
        allowed = riches <= constants.RICHEST * visible
        score = np.where(allowed, score, -np.inf) if allowed.any() else score
        weights = np.exp(score - score.max())
        likely = weights >= constants.NEGLIGIBLE
        kept = curves._replace(people=curves.people[likely], group=curves.group[likely])
        return kept, weights[likely] / weights[likely].sum()

    def _turn(self, curves: Curves) -> FloatArray:
        """Log weights that curves lose for the bin before the last clear one.

        The squared gap alone saturates at 2, and a slope of 0 after a drop by 50 cost no more, so slopes are compared
        on a log scale too. Where everybody is in one bin no slope fits; the least loss of a power curve is taken off
        all.
        """
        before, sd = self.before
        doubt = sd**2 + (0.5 * np.maximum(curves.before, before)) ** 2
        ratio = np.log2((max(before, 0.0) + sd) / (curves.before + sd))
        turn = np.maximum((before - curves.before) ** 2 / (2 * doubt), ratio**2 / 2)
        least = np.min(turn[: len(constants.SLOPES) * len(constants.BENDS) * len(constants.HEIGHTS)])
        found: FloatArray = np.nan_to_num(np.maximum(turn - least, 0.0))
        return found

    @property
    def _blocks(self) -> tuple[float, float]:
        """Weights of block curves over that of all power curves: of those that thin out, and of those after an end."""
        faint = 0.5 * (constants.FAINT / max(self.clarity, 1e-9)) ** 1.5
        hidden = faint if self.clarity < constants.FEW_SEEN else 0.0
        return min(max(faint, constants.BLOCKS_LEAST), constants.BLOCKS_MOST), min(
            max(hidden, constants.HIDDEN_LEAST), constants.BLOCKS_MOST
        )


def possible_curves(
    start: float, sd: float, steps: IntArray, blocks: float, hidden: float, *, islands: bool
) -> Curves:
    """All curves from the last clear bin on; power curves come first.

    Args:
        start: people of the last clear bin, as drawn.
        sd: noise SD of a bin.
        steps: of a power curve in each bin from the last clear one on, shape (bins,).
        blocks: weight of block curves over that of power curves.
        hidden: the same of those whose plateau follows an end.
        islands: whether there are any.
    """
    i, place = np.arange(len(steps), dtype=np.float64), np.cumsum(steps) - steps
    step = np.arange(steps.sum(), dtype=np.float64)
    lines = np.array(list(product(constants.SLOPES, constants.BENDS)))
    line = np.repeat(np.arange(len(lines)), len(constants.HEIGHTS))
    slope, bend = lines[line].T[:, :, None]
    first = np.maximum(start + np.tile(constants.HEIGHTS, len(lines)) * sd, sd / 4)[:, None]
    fallen = np.exp2(-np.minimum(slope * step + bend * step * (step + 1) / 2, 80.0))
    power = first * np.add.reduceat(fallen, place, axis=1)
    power_prior = np.log([constants.BENDS[q] for q in bend[:, 0].tolist()])
    # amounts inside of bins thin out as the curve does in its first bin, by the octave, and everywhere where it ends
    inner = steps.max() * (lines[:, :1] + lines[:, 1:] * (place + 0.5))
    inner = np.where((i == 0) | (lines[:, 1:] > constants.ENDING_BEND), inner, constants.INNER_SLOPE)
    spikes = np.where(i == 0, np.array(constants.SPIKE_SLOPES)[:, None], constants.INNER_SLOPE)

    flat, length, steep, height = _combinations(
        constants.PLATEAUS, constants.PLATEAU_BINS, constants.SPIKE_SLOPES, constants.SPIKE_HEIGHTS
    )
    spike = np.maximum(start + height * sd, sd / 4)
    block = spike * np.exp2(-steep * i) + flat * sd * (((i >= 1) & (i <= length)) + 0.5 * (i == length + 1))
    ends = steep[:, 0] == constants.SPIKE_SLOPES[-1]
    block_prior = np.log(np.where(ends, hidden, blocks) * len(power) / len(block))

    starts = constants.ISLAND_STARTS if islands else ()
    size, begin, length, height = _combinations(
        constants.ISLANDS, starts, constants.ISLAND_BINS, constants.SPIKE_HEIGHTS
    )
    light = np.maximum(start + height * sd, sd / 4)
    island = light * np.exp2(-constants.SPIKE_SLOPES[-1] * i) + size * sd * (
        (i >= begin) & (i < begin + length)
    )
    island_prior = np.full(len(island), log(constants.ISLANDS_WEIGHT * len(power) / max(len(island), 1)))

    return Curves(
        np.concatenate([power, block, island]),
        np.concatenate([_continued(first, slope), _continued(spike, steep), np.full(len(island), np.nan)]),
        np.concatenate([power_prior, block_prior, island_prior]),
        np.clip(np.concatenate([inner, spikes]), constants.INNER_LEAST, constants.INNER_MOST),
        np.concatenate(
            [
                line,
                len(lines) + np.searchsorted(constants.SPIKE_SLOPES, steep[:, 0]),
                np.full(len(island), len(inner) + len(spikes) - 1),
            ]
        ),
    )


def _combinations(*values: object) -> FloatArray:
    """Columns of all combinations, each of shape (c, 1)."""
    rows = np.array(list(product(*values)), np.float64)  # type: ignore[call-overload]
    return rows.reshape(-1, len(values)).T[:, :, None]


def _continued(first: FloatArray, slope: FloatArray) -> FloatArray:
    """p: people in the bin before, as a curve says, shape (c,)."""
    return np.asarray(first * np.exp2(np.clip(slope, -2, 8)), np.float64)[:, 0]


def mean_excess(
    starts: FloatArray, ends: FloatArray, bound: float, slope: FloatArray, *, rows: bool
) -> FloatArray:
    """g_b(B): mean of (x - B)+ over the amounts of each bin under weights x^-(1 + slope), shape (g, n).

    Args:
        starts: upper end of the bin before each; 0 of the histogram's first, {1} of rows and on average e / 2 of sums.
        ends: upper end e of each bin, shape (n,).
        bound: B, at least 0.
        slope: shape (g, n).
        rows: whether amounts are whole numbers, listed one by one up to `EXACT_TO`; else points at equal ratios.
    """
    found = np.zeros(slope.shape)
    for b in np.flatnonzero(ends > bound):
        end = float(ends[b])
        exact = rows and end <= constants.EXACT_TO
        x = end * np.exp2((np.arange(constants.POINTS) + 0.5) / constants.POINTS - 1)
        if exact:
            x = np.arange(starts[b] + 1, end + 1)
        if not starts[b]:
            x = np.array([end if rows else 0.5 * end])
        # points at equal ratios have 1 of the exponent in their distances
        power = -(slope[:, b, None] + exact) * np.log(x / end)
        weight = np.exp(power - power.max(axis=1, keepdims=True))
        found[:, b] = (weight @ np.maximum(x - bound, 0.0)) / weight.sum(axis=1)
    return found


def _quantiles(values: FloatArray, weights: FloatArray, shares: tuple[float, ...]) -> Iterator[float]:
    """The least values that hold some shares of the weight."""
    order = np.argsort(values, kind="stable")
    running = np.cumsum(weights[order])
    places = np.searchsorted(running, np.array(shares) * running[-1])
    return iter(values[order][np.minimum(places, len(values) - 1)].tolist())


def read_tail(histogram: NoisyHistogram, *, rows: bool) -> Tail:
    """The tail of a noisy histogram.

    Args:
        histogram: of people by their amounts.
        rows: whether amounts are numbers of rows.

    >>> tail = read_tail(NoisyHistogram((1, 2, 4, 8, 16), np.array([40, 80, 40, 20, 0, 0]), 1.0), rows=True)
    >>> tail.end, tail.people, tail.first
    (8.0, 180.0, False)
    """
    people = cleaned(histogram)
    ends = np.array([*histogram.edges, 2 * histogram.edges[-1]], np.float64)
    whole, drawn = float(people.sum()), histogram.value.astype(np.float64)
    last, first = last_clear(histogram), bool(2 * people[0] >= whole)
    norm = histogram.law.norm
    return Tail(ends, drawn, histogram.sd, norm, last, whole, first, rows, islands=norm == 1)


def best_clip(tail: Tail, unit_noise: float, largest: int) -> int:
    """The bound of a total with the least predicted error.

    Args:
        tail: of what each person owns.
        unit_noise: noise SD of the total for a bound of 1.
        largest: the bound's own bound.

    Returns:
        An integer between a half of and 16 times the end of the last clear bin, at least 1.
    """
    bounds = sorted({max(1, round(tail.end * 2 ** (j / 2))) for j in constants.CLIP_STEPS})
    errors = [(unit_noise * bound) ** 2 + tail.beyond(bound)[1].sd ** 2 for bound in bounds]
    return min(bounds[int(np.argmin(errors))], largest)


@dataclass(frozen=True)
class ClippedTotal:
    """A total with the amount beyond its clip put back, by estimate.

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


def unclipped(drawn: NoisyTotal, tail: Tail) -> ClippedTotal:
    """Put back the amount beyond the clip of a total.

    Args:
        drawn: the clipped total.
        tail: of what each person owns, sizes alone.
    """
    (beyond, error), sign = tail.beyond(drawn.bound), -1 if drawn.value < 0 else 1
    faint = (
        tail.clarity < constants.BLIND_ROWS
        if tail.rows
        else tail.clarity < constants.BLIND_SUMS and tail.first
    )
    size = sign * drawn.value + beyond
    lost = size <= constants.LOST * hypot(drawn.sd, error.down)
    return ClippedTotal(drawn, sign * beyond, error, faint or lost)


def public_total(rows: int) -> ClippedTotal:
    """A total that may be printed exactly."""
    return ClippedTotal(NoisyTotal(rows, 0.0, 0), 0.0, TailError(0.0, 0.0, 0.0))
