"""Scale factors of rows and of each measure: totals over those of views with a low bound, with their errors.

Counts and each measure have a total and a factor of their own, since people who own many rows buy other things than
the rest. Factors of one table are usually alike, and two independent tails would spoil averages: the gap between them
is shrunk, by more where heavy owners are seen to own the same things as others. Both tails are read off the same
people, so their errors go together.

| here | there | unit |
|---|---|---|
| `Scaled.noise`, `tail` | n, t: relative errors of log R by noise, and by what is beyond the bound | 1 |
| `Pooled.variance`, `together` | g^2 of the gap, c | 1 |
| `Pooled.prior` | p^2: how far factors may differ, squared | 1 |
| `unevenness` | uneven: whether heavy owners own other things | 1 |
| `Scaled.influence` | lambda: weight of the rows' factor in that of a measure | 1 |
| `TotalsFactor` | R, and relative errors of its answers: rel_N, rel_S, rel_A | 1 |

An answer R c is a share c / L_t of the total N, so its scale errs by the noise of N alone. Noise of the views' total
L_t is in R, and in the gap between two factors; in an answer it is noise of the share.

With n the relative noise of a total and of its views' total, u that of the total alone, t that of what lies beyond the
bound, a^2 = n_N^2 + t_N^2 of rows and b^2 of sums, c = .5 t_N t_S, gap = log R_S - log R_N:

    g^2 = a^2 + b^2 - 2 c,   p0 = .03 + .15 uneven,   p^2 = max(p0^2, min(gap^2 - g^2, .25)) if gap^2 > 4 g^2, else p0^2
    log R_N += gap (a^2 - c) / (g^2 + p^2)            log R_S -= gap (b^2 - c) / (g^2 + p^2)
    rel_N^2 = [1 - (a^2 - c)^2 / (g^2 + p^2) / a^2] (u_N^2 + side_N^2)      rel_S^2 likewise, and (.05 lambda)^2
    rel_A^2 = p^2 / (g^2 + p^2) [n_N^2 + n_S^2 + up_N^2 + down_S^2 - up_N down_S]  downwards; sides exchanged upwards
              + (g^2 / (g^2 + p^2) times the views' own error of the average)^2
    where gap < -2 g, up_S^2 and rel_A^2 upwards have max(0, R_N / R_S - 1)^2 (1 / 1.96 + .5)^2 more
    rel_x^2 = rel_N^2 + l_x^2 + l_N^2                 where x is known; of COUNT(x) / COUNT(*) l_x^2 + l_N^2

side is down or up of the tail, lambda = clip((b^2 - c) / (g^2 + p^2), 0, 1), l the relative noise of a views' total.
Rows are pooled with the measure of least error; other measures then move towards them. A measure whose own total noise
hides has the factor of the rows, and averages without an upper end that err by hypot(.06, .12 log R) downwards.

**Privacy**: functions of released values alone.
**Source**: docs/method/rows.md, "A factor for each measure".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, expm1, hypot, inf, log, sqrt

import numpy as np

from dpsql.contributions import constants
from dpsql.contributions.histogram import NoisyHistogram, PeopleEstimate, clear_people, middles, quantile_of
from dpsql.contributions.tail import ClippedTotal, TailError


@dataclass(frozen=True)
class Relative:
    """Relative standard errors of a scale, common to all answers that have it.

    Args:
        noise: the part that is noise.
        down, up: with what the tail may hold, towards less and more of the size of an answer; infinite without end.
    """

    noise: float
    down: float
    up: float


@dataclass(frozen=True)
class TotalsFactor:
    """Scale factor of the views' totals of a measure.

    Args:
        value: R; below 1 where noise takes the total of the views above that of all rows.
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

    def of_known(self, low: PeopleEstimate, rows: PeopleEstimate) -> TotalsFactor:
        """That of the rows where a measure is known: R is the rows', and their own clipped total was not drawn.

        COUNT(x) = N L_x / L_t, and both totals of views are noisy.

        Args:
            low: the views' total of these rows, L_x.
            rows: that of all rows, L_t.
        """
        apart = hypot(*(total.sd / abs(total.value) if total.value else 1.0 for total in (low, rows)))
        error = Relative(*(hypot(side, apart) for side in (self.error.noise, self.error.down, self.error.up)))
        return replace(self, error=error, mean_error=Relative(apart, apart, apart))


@dataclass(frozen=True)
class Scaled:
    """A measure as its factor is made of it.

    Args:
        high: its total with a high bound.
        low: the views' total of it, not centred.
        rows: what the views' totals of its rows and of its centred values err by together in an average, relative.
        uneven: whether heavy owners own other things than the rest.
    """

    high: ClippedTotal
    low: PeopleEstimate
    rows: float = 0.0
    uneven: float = 0.0

    @property
    def clear(self) -> bool:
        """True if both totals stand out of the noise, on the same side of 0."""
        visible = not self.high.blind and abs(self.low.value) > constants.SEEN * self.low.sd
        return visible and self.high.value * self.low.value > 0

    @property
    def logarithm(self) -> float:
        """log R before pooling."""
        return log(self.high.value / self.low.value)

    @property
    def low_noise(self) -> float:
        """Relative noise of the views' total."""
        return abs(self.low.sd / self.low.value) if self.low.value else 1.0

    @property
    def total_noise(self) -> float:
        """Relative noise of the clipped total."""
        return self.high.clipped.sd / abs(self.high.value)

    @property
    def noise(self) -> float:
        return hypot(self.total_noise, self.low_noise)

    @property
    def tail(self) -> TailError:
        return TailError(*(side / abs(self.high.value) for side in self.high.tail))

    @property
    def variance(self) -> float:
        """a^2 or b^2."""
        return self.noise**2 + self.tail.sd**2


@dataclass(frozen=True)
class Pooled:
    """Rows and one measure put together.

    Args:
        gap: log R of the measure less that of rows.
        variance: of the gap's error.
        together: covariance of both factors' errors.
        prior: p^2.
    """

    gap: float
    variance: float
    together: float
    prior: float

    @property
    def shift(self) -> float:
        """Shrinkage of the gap, as a part of it and of a unit of variance."""
        return 1 / (self.variance + self.prior)

    def step(self, variance: float) -> float:
        """Step of a factor towards the other.

        Args:
            variance: its a^2 or b^2.
        """
        return self.gap * (variance - self.together) * self.shift

    def influence(self, variance: float) -> float:
        """lambda: the weight that one factor has in the other.

        Args:
            variance: b^2 of the other.
        """
        return min(1.0, max(0.0, (variance - self.together) * self.shift))

    def rest(self, variance: float) -> float:
        """The part of a factor's variance that stays when it has moved."""
        return max(0.0, 1 - (variance - self.together) ** 2 * self.shift / variance) if variance else 0.0


def pool(rows: Scaled, measure: Scaled) -> Pooled:
    """Pooled scale factors of the rows and of a measure."""
    together = constants.TOGETHER * rows.tail.sd * measure.tail.sd
    variance = rows.variance + measure.variance - 2 * together
    gap = measure.logarithm - rows.logarithm
    least = (constants.ALIKE + constants.UNEVEN * measure.uneven) ** 2
    prior = (
        max(least, min(gap**2 - variance, constants.WIDEST))
        if gap**2 > constants.GAP**2 * variance
        else least
    )
    return Pooled(gap, variance, together, prior)


def unevenness(rows: NoisyHistogram, sums: NoisyHistogram) -> float:
    """By how much means over medians of sums differ from those of rows, in logarithms.

    Args:
        rows: people by their rows.
        sums: people by the size of their sums.

    >>> even = NoisyHistogram((1, 2, 4, 8), np.array([10, 40, 20, 10, 0]), 0.1)
    >>> unevenness(even, even)
    0.0
    """
    return abs(log(_mean_over_median(sums, sums=True)) - log(_mean_over_median(rows)))


def _mean_over_median(histogram: NoisyHistogram, *, sums: bool = False) -> float:
    """Of cleaned people up to the bin past the last clear one.

    Args:
        histogram: of amounts.
        sums: whether amounts in the first bin lie anywhere below its end, while rows are whole numbers.
    """
    people = clear_people(histogram, 1)
    whole = float(people.sum())
    if whole <= 0:
        return 1.0
    mean = float(people @ middles(histogram.edges)) / whole
    if sums and 2 * people[0] > whole:
        return mean / (histogram.edges[0] * 0.5 * whole / float(people[0]))
    return mean / quantile_of(np.rint(people), histogram.edges, 0.5)


def factors(
    rows: Scaled, measures: Mapping[str, Scaled], *, public_rows: bool = False
) -> dict[str, TotalsFactor]:
    """The factor of rows, under the empty name, and of each measure.

    Args:
        rows: what is counted.
        measures: what is summed, by name.
        public_rows: whether the number of rows is exact and stays as it is.

    Returns:
        Factors. Rows are pooled with the measure of least error, then the other measures move towards them.
    """
    if not rows.clear:
        lost = _lost(rows)
        return {"": lost, **{name: _lost(each) for name, each in measures.items()}}
    pairs = {name: pool(rows, each) for name, each in measures.items() if each.clear}
    best = min(pairs, key=lambda name: measures[name].variance, default=None)
    step, rest = 0.0, 0.0 if public_rows else 1.0
    if best is not None and not public_rows:
        step, rest = pairs[best].step(rows.variance), pairs[best].rest(rows.variance)
    result = {"": _factor(rows, step, rest, Relative(0.0, 0.0, 0.0))}
    for name, each in measures.items():
        if name not in pairs:
            result[name] = _follower(result[""], each)
            continue
        pair = pairs[name]
        back = -pair.step(each.variance)
        if public_rows or name != best:  # rows have moved already, or stay: the measure alone moves
            gap = each.logarithm - (rows.logarithm + step)
            back = -gap * each.variance / (each.variance + rest * rows.variance + pair.prior)
        influence = constants.INFLUENCE * pair.influence(each.variance)
        lag = _lag_error(pair, log(result[""].value) - each.logarithm - back)
        mean_error = _mean_error(rows, each, pair)
        mean_error = replace(mean_error, up=hypot(mean_error.up, lag))
        factor = _factor(each, back, pair.rest(each.variance), mean_error, influence)
        result[name] = replace(factor, error=replace(factor.error, up=hypot(factor.error.up, lag)))
    return result


def _lag_error(pair: Pooled, apart: float) -> float:
    """Standard error upwards of a sum whose factor is below that of the rows by more than errors explain.

    People who own many rows are seen among rows and not among sums: perhaps their values are small, perhaps noise
    hides their sums. Up to the factor of the rows they may be as much as those of other rows, and beyond it as far as
    values of heavy people differ.

    Args:
        pair: of the rows and the measure.
        apart: how far the factor of the rows is above that of the measure, in logarithms, once both have moved.
    """
    below = pair.gap < 0 and pair.gap**2 > constants.GAP**2 * pair.variance
    return max(0.0, expm1(apart)) * (1 / constants.SIDE + constants.VALUES) if below else 0.0


def _lost(measure: Scaled) -> TotalsFactor:
    """Unscaled views without an upper end, where noise hides the total of rows."""
    noise = measure.low_noise
    mean = Relative(measure.rows, hypot(constants.MEAN_LEAST, measure.rows), inf)
    return TotalsFactor(1.0, None, measure.low.value, Relative(noise, noise, inf), mean, 0.0)


def _follower(rows: TotalsFactor, measure: Scaled) -> TotalsFactor:
    """The factor of rows for a measure whose own total noise hides: averages are as views have them, without an end."""
    mean = hypot(constants.MEAN_LEAST, constants.MEAN_SLOPE * log(rows.value))
    error = Relative(rows.error.noise, hypot(rows.error.down, mean), inf)
    mean_error = Relative(min(measure.rows, mean), mean, inf)
    whole = rows.value * measure.low.value
    return TotalsFactor(rows.value, rows.measured, whole, error, mean_error, 0.0)


def _factor(
    measure: Scaled, step: float, rest: float, mean_error: Relative, influence: float = 0.0
) -> TotalsFactor:
    """A factor that has moved by `step` in logarithms, and keeps the part `rest` of its variance.

    Args:
        measure: its totals.
        step, rest: of pooling.
        mean_error: of averages.
        influence: relative error of what it took from the rows' factor.
    """
    measured = exp(measure.logarithm + step)
    value, noise = max(constants.FACTOR_LEAST, measured), sqrt(rest) * measure.total_noise
    sides = (hypot(noise, sqrt(rest) * side, influence) for side in (measure.tail.down, measure.tail.up))
    back = measure.high.put_back / measure.high.value
    return TotalsFactor(value, measured, value * measure.low.value, Relative(noise, *sides), mean_error, back)


def _mean_error(rows: Scaled, measure: Scaled, pooled: Pooled) -> Relative:
    """Standard error shared by all averages: the remaining gap, and the noise of the views' own totals."""
    stays = pooled.prior * pooled.shift
    noise = rows.noise**2 + measure.noise**2
    base = (pooled.variance * pooled.shift * measure.rows) ** 2

    def side(of_rows: float, of_sums: float) -> float:
        return sqrt(stays * (noise + of_rows**2 + of_sums**2 - of_rows * of_sums) + base)

    return Relative(
        side(0.0, 0.0), side(rows.tail.up, measure.tail.down), side(rows.tail.down, measure.tail.up)
    )
