"""Totals of amounts that few people own most of: where to clip them, what lies beyond, how far that may be off.

A total is drawn with every person clipped to a bound. What the bound leaves out is estimated from the noisy histogram
that chose it: bins below its last clear one show people and so amounts; past that bin the histogram is noise, and
people are taken to thin out as fast as the last two bins do (a Pareto tail), at most as many as the noisy bins there
may hold. Real tails run from none to Pareto, so a total's interval is longer on the side of more.

Counts and each measure have a total and a factor of their own, since people who own many rows buy other things than
the rest. Factors of one table are usually alike, and noise of two independent tails would spoil averages: the gap
between them is shrunk unless it is clear.

| here | there | unit |
|---|---|---|
| `Tail.end` | e_k, upper end of the last clear bin | amount |
| `Tail.slope`, `worst_slope` | a = log2 of how much fewer people the last clear bin holds | 1 |
| `Tail.over`, `worst_over` | people past e_k | people |
| `Tail.excess` | E(B), and V(B) its variance | amount |
| `Tail.beyond` | G: what people past e_k own above B | amount |
| `HighTotal` | T, w, its down and up SD | amount |
| `Factor` | R, rel: relative SDs of an answer's scale | 1 |

**Privacy**: functions of released values alone.
**Source**: docs/method/user_level.md, "Totals with a high bound", "A factor for each measure".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, hypot, log, log2, sqrt

import numpy as np

from dpsql.mechanisms.family.people import Estimate, NoisyHistogram, NoisyTotal, cleaned

CLEAR_BIN = 2.0
"""Noise SDs above which the next bin belongs to the tail that is seen; one bin further out does not count alone."""

CERTAIN_BIN = 6.0
"""Noise SDs above which a bin does count alone: where some own few rows and others many, with nobody in between. One
bin of ten thousand of Laplace noise passes it."""

STEEPEST, FLATTEST = 16.0, 1.4
"""How many times fewer people a bin may hold than the one before."""

LEAST_FILL = 1.5
"""What people past the last clear bin own above it, in its ends, at least."""

INNER_SLOPE = 0.7
"""Slope of amounts within a bin below the last clear one."""

TYPICAL, BOLD, CAUTIOUS = 0.35, 0.1, 0.8
"""Parts of a Pareto tail: of its error, of what is put back, of the most that may be missing."""

SEEN = 3.0
"""Standard errors that totals must be above 0 before factors are read off them."""

CLEAR = 2.0
"""Standard errors from which the gap between two factors counts as real."""

ALIKE = 0.015
"""How far factors differ where no gap is clear."""


@dataclass(frozen=True)
class Tail:
    """The upper end of a noisy histogram of amounts.

    Args:
        edges: upper ends of the bins up to the last clear one.
        counts: their noisy people, at least 0.
        sd: noise SD of a bin.
        slope, worst_slope: how steeply the tail falls, as read and against us.
        over, worst_over: people past the last end, likewise.
    """

    edges: tuple[float, ...]
    counts: tuple[float, ...]
    sd: float
    slope: float
    worst_slope: float
    over: float
    worst_over: float

    @property
    def end(self) -> float:
        """Upper end of the last clear bin."""
        return self.edges[-1]

    def excess(self, bound: float) -> Estimate:
        """What people up to the last clear bin own above a bound, with its standard error."""
        value = variance = 0.0
        last = len(self.edges) - 1
        for i, (edge, count) in enumerate(zip(self.edges, self.counts, strict=True)):
            if edge > bound:
                mean = _mean_excess(edge, bound, max(self.slope, 0.5) if i == last else INNER_SLOPE)
                value += count * mean
                variance += (self.sd * mean) ** 2 + (0.2 * count * mean) ** 2
        return Estimate(value, sqrt(variance))

    def beyond(self, bound: float, *, worst: bool = False) -> float:
        """What people past the last clear bin would own above a bound, were the tail Pareto."""
        people, slope = (self.worst_over, self.worst_slope) if worst else (self.over, self.slope)
        fill = max(LEAST_FILL, 1 / (max(slope, 1.5) - 1))
        if bound <= self.end:
            return people * (self.end - bound + self.end * fill)
        return float(people * (self.end / bound) ** max(self.slope, 1.5) * bound * fill)


def read_tail(histogram: NoisyHistogram) -> Tail:
    """The tail of a noisy histogram.

    Its last clear bin is the median's, or a certain one above, moved up while the next one stands out of the noise: a
    contiguous run, since single far bins over two SDs are noise and moved totals by 200%.

    >>> tail = read_tail(NoisyHistogram((1, 2, 4, 8, 16), np.array([40, 80, 40, 20, 0, 0]), 1.0))
    >>> tail.end, tail.slope, round(tail.over, 1)
    (8.0, 1.0, 1.7)
    """
    value, s = histogram.value.astype(np.float64), histogram.sd
    running = np.cumsum(cleaned(histogram))
    last = len(histogram.edges) - 1
    k = min(int(np.searchsorted(running, running[-1] / 2)), last) if running[-1] > 0 else 0
    k = max([k, *np.flatnonzero(value[: last + 1] > CERTAIN_BIN * s)])
    while k < last and value[k + 1] > CLEAR_BIN * s:
        k += 1
    own, before = max(float(value[k]), s), float(value[k - 1]) if k else 0.0
    ratio = float(np.clip(before / own, FLATTEST, STEEPEST))
    seen = max(0.0, float(value[k + 1 : k + 4].sum())) + 1.7 * s
    over = min(own / (ratio - 1), seen)
    worst = float(np.clip((before - s) / (own + s), FLATTEST, ratio))
    return Tail(
        tuple(map(float, histogram.edges[: k + 1])), tuple(np.maximum(value[: k + 1], 0.0).tolist()), s,
        log2(ratio), log2(worst), over, max(over, min((own + s) / (worst - 1), seen)),
    )  # fmt: skip


def best_clip(tail: Tail, unit_noise: float, largest: int) -> int:
    """The bound of a total with the least predicted error.

    Args:
        tail: of what each person owns.
        unit_noise: noise SD of the total for a bound of 1.
        largest: the bound's own bound.

    Returns:
        An integer between a quarter of and four times the end of the last clear bin, at least 1.
    """
    bounds = sorted({max(1, round(tail.end * 2 ** (j / 4))) for j in range(-8, 9)})
    return min(min(bounds, key=lambda b: _error(tail, b, unit_noise, TYPICAL * tail.beyond(b))), largest)


def _error(tail: Tail, bound: int, unit_noise: float, beyond: float) -> float:
    """Squared error of a total: noise, what is seen above the bound, and what is not."""
    return (unit_noise * bound) ** 2 + tail.excess(bound).sd ** 2 + beyond**2


def _mean_excess(edge: float, bound: float, slope: float) -> float:
    """Mean of (x - bound)+ under the density x^(-1-a) on (edge / 2, edge]."""
    a = slope + 1e-9 * (slope == 1.0)
    low, high = edge / 2, edge
    start = max(low, bound)
    whole = (low**-a - high**-a) / a
    amount = (high ** (1 - a) - start ** (1 - a)) / (1 - a)
    people = (start**-a - high**-a) / a
    return float(max(0.0, amount - bound * people) / whole)


@dataclass(frozen=True)
class HighTotal:
    """A total with what its bound left out put back, by estimate.

    Args:
        clipped: as drawn; of public rows without noise.
        value: T.
        sd: w, its standard error where it is averaged with others.
        down, up: standard errors towards less and more of it.
        noise: the part of these that is noise.
        put_back: the part of `value` above what one person may count for.
    """

    clipped: NoisyTotal
    value: float
    sd: float
    down: float
    up: float
    noise: float
    put_back: float


def high_total(drawn: NoisyTotal, tail: Tail, sign: int) -> HighTotal:
    """Put back what the clip of a total left out.

    Args:
        drawn: the clipped total.
        tail: of what each person owns, sizes alone.
        sign: of the amounts: 1 or -1.
    """
    seen, typical = tail.excess(drawn.bound), tail.beyond(drawn.bound)
    back = seen.value + BOLD * typical
    noise = hypot(drawn.sd, seen.sd)
    return HighTotal(
        drawn, drawn.value + sign * back, hypot(noise, TYPICAL * typical), hypot(noise, BOLD * typical),
        hypot(noise, CAUTIOUS * tail.beyond(drawn.bound, worst=True)), noise, back,
    )  # fmt: skip


def told_total(rows: int) -> HighTotal:
    """A total that may be told."""
    return HighTotal(NoisyTotal(rows, 0.0, 0), float(rows), 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Relative:
    """Relative standard errors of a scale, common to all answers that have it.

    Args:
        noise: the part that is noise.
        down, up: with what the tail may hold, towards less and more of the size of an answer.
    """

    noise: float
    down: float
    up: float


@dataclass(frozen=True)
class Factor:
    """What the views' totals of a measure are multiplied by.

    Args:
        value: R, at least 1.
        measured: R before it was cut; None where a total is lost in noise, and R is not known.
        total: the total that answers add up to.
        error: of answers.
        mean_error: of averages, sums over counts; that of the rows themselves is unused.
        put_back: the part of the total above what one person may count for.
    """

    value: float
    measured: float | None
    total: float
    error: Relative
    mean_error: Relative
    put_back: float


@dataclass(frozen=True)
class Scaled:
    """A measure as its factor is made of it.

    Args:
        high: its total with a high bound.
        low: the views' total of it, not centred.
        rows: what the views' totals of its rows and of its centred values err by together in an average, relative.
    """

    high: HighTotal
    low: Estimate
    rows: float

    @property
    def known(self) -> bool:
        """Whether both totals stand out of the noise, on the same side of 0."""
        seen = abs(self.high.value) > SEEN * self.high.sd and abs(self.low.value) > SEEN * self.low.sd
        return seen and self.high.value * self.low.value > 0

    @property
    def logarithm(self) -> float:
        """log R before pooling."""
        return log(self.high.value / self.low.value)

    @property
    def relative(self) -> float:
        """a or b: relative standard error of R."""
        return hypot(self.high.sd / self.high.value, self.low.sd / self.low.value)


LOST = Relative(1.0, 1.0, 1.0)
"""Where noise hides a total, an answer may be all scale."""


@dataclass(frozen=True)
class Pooled:
    """Rows and one measure put together.

    Args:
        gap, spread: log R of the measure less that of rows, and p.
        squares: a^2 + b^2 of both.
        clear: whether the gap counts as real.
    """

    gap: float
    spread: float
    squares: float
    clear: bool

    def moved(self, own: float) -> float:
        """How far a factor of relative error `own` moves towards the other, as a part of the gap."""
        return own**2 / (self.squares + self.spread**2)

    def rest(self, own: float, least: float) -> float:
        """The relative standard error that is left to a factor of relative error `own`."""
        return sqrt(max(0.0, own**2 - own**4 / (self.squares + max(self.spread, least) ** 2)))


def pool(rows: Scaled, measure: Scaled) -> Pooled:
    """How rows and a measure agree about how much the views left out."""
    squares = rows.relative**2 + measure.relative**2
    gap = measure.logarithm - rows.logarithm
    clear = gap**2 > CLEAR**2 * squares
    return Pooled(gap, sqrt(gap**2 - squares) if clear else ALIKE, squares, clear)


def factors(
    rows: Scaled, measures: Mapping[str, Scaled], least: float, *, told: bool = False
) -> dict[str, Factor]:
    """The factor of rows, under the empty name, and of each measure.

    Args:
        rows: what is counted.
        measures: what is summed, by name.
        least: how far factors are taken to differ at least, in intervals.
        told: whether the number of rows is exact and stays as it is.

    Returns:
        Factors. Rows are pooled with the measure of least error, then the other measures move towards them.
    """
    if not rows.known:
        lost = Factor(1.0, None, rows.low.value, LOST, LOST, 0.0)
        return {"": lost, **{name: replace_total(lost, each) for name, each in measures.items()}}
    seen = {name: each for name, each in measures.items() if each.known}
    best = min(seen, key=lambda name: seen[name].relative, default=None)
    own, step, left = rows.relative, 0.0, rows.relative
    if best is not None and not told:
        pooled = pool(rows, seen[best])
        step, left = pooled.gap * pooled.moved(own), pooled.rest(own, least)
    if told:
        left = 0.0
    found = {"": _factor(rows, step, left, Relative(0.0, 0.0, 0.0))}
    for name, each in measures.items():
        if name not in seen:
            found[name] = replace_total(found[""], each)
            continue
        pooled = pool(rows, each)
        back = -pooled.gap * pooled.moved(each.relative)
        if told or name != best:  # rows have moved already, or stay: the measure alone moves
            gap = each.logarithm - (rows.logarithm + step)
            back = -gap * each.relative**2 / (each.relative**2 + left**2 + pooled.spread**2)
        found[name] = _factor(
            each, back, pooled.rest(each.relative, least), _mean_error(rows, each, pooled, least)
        )
    return found


def replace_total(factor: Factor, measure: Scaled) -> Factor:
    """The factor of rows for a measure whose own total noise hides: averages are kept."""
    apart = Relative(*(max(x, 0.05) for x in (factor.error.noise, factor.error.down, factor.error.up)))
    return Factor(factor.value, factor.measured, factor.value * measure.low.value, apart, apart, 0.0)


def _factor(own: Scaled, step: float, left: float, mean_error: Relative) -> Factor:
    """A factor that has moved by `step` in logarithms."""
    measured = exp(own.logarithm + step)
    value = max(1.0, measured)
    share = left / own.high.sd if own.high.sd else 0.0
    error = Relative(share * own.high.noise, share * own.high.down, share * own.high.up)
    whole = value * own.low.value
    back = own.high.put_back / abs(own.high.value)
    return Factor(value, measured, whole, error, mean_error, back)


def _mean_error(rows: Scaled, measure: Scaled, pooled: Pooled, least: float) -> Relative:
    """What averages err by, whatever they are about: the gap that stays, and the views' own totals."""
    q, a, b = max(pooled.spread, least), rows.relative, measure.relative
    kappa = q**2 / (q**2 + pooled.squares)
    kept = (1 - pooled.spread**2 / (pooled.spread**2 + pooled.squares)) * measure.rows

    def side(rows_sd: float, measure_sd: float) -> float:
        own = (a * rows_sd / rows.high.sd if rows.high.sd else a, b * measure_sd / measure.high.sd)
        return sqrt(kappa * (own[0] ** 2 + own[1] ** 2) + kept**2)

    noise = side(rows.high.noise, measure.high.noise)
    if not pooled.clear:
        both = side(rows.high.sd, measure.high.sd)
        return Relative(noise, both, both)
    return Relative(noise, side(rows.high.up, measure.high.down), side(rows.high.down, measure.high.up))
