"""Questions to a person: how many of her rows (tau), which level of a tree, how fine a grid; and shuffling's
gain.

**Truncation.** A person with r rows fills min(r, tau) of tau slots, so COUNT loses sum (r - tau)+ rows and its noise
grows with tau.

| here         | there      | unit |
|--------------|------------|------|
| `row_shares` | P(r)       | share of people with r = 0, 1, .. rows |
| `noise`      | Var        | variance of one share's estimate when one report counts once |
| `cut`        | c          | 1 - E min(r, R) / E r, share of all rows beyond R |

The printed theorem 11 is a maximum of its own objective and has no epsilon in it; the printed median aims at no
error. Both are replaced by the least bias^2 + variance.

**Levels.** The printed longitudinal path mechanism answers with a node of the person's own path, so its support
betrays the value and the ratio is infinite at every epsilon. Here the output ranges over the global node set: exactly
one node of each level lies above any value, so the normaliser is the same for all and the ratio is exactly e^eps.

**Grids.** Cells small enough to be even inside, few enough to rise above the noise; the constants a1 = 0.7, a2 = 0.03
are the fit of the unevenness inside one-axis and two-axis cells.

**Shuffling.** Reports in random order hide a person among the others' answers. Each other report is, with probability
e^-eps, drawn without looking at its owner's value, and then looks like the victim's true or false answer with even
odds. The bound counts these clones numerically; no closed form is used (the one in circulation holds for a restricted
class only).

| here     | there | unit |
|----------|-------|------|
| clones   | C     | Bin(n - 1, e^-eps) |
| first    | A     | Bin(C, 1/2), plus the victim with probability e^eps / (e^eps + 1) |

**One row and a bit.** Reports of one row and a bit say two things of one axis: where all rows lie, and where one row
of each person lies.

They are alike if a person's rows have nothing to do with how many she has (rows missing at random). How far they are
apart says three things: whether that can be true (a test), how much rows beyond R may have moved the answers (the clip
bar), and how far the second, far less noisy, may be believed where the first is wanted (the shrunk mix).

| here    | there           | unit |
|---------|-----------------|------|
| `rows`  | x1 = p + e1     | shares of all rows, rows beyond R cut |
| `person`| x0 = p - d + e0 | shares of one uniform row a person |
| `cut`   | c = 1 - E min(r, R) / E r | share of rows beyond R |
| `tilt`  | d ~ N(0, s^2 G) | difference of the two laws |

With V the mean variance of a range, and b^2 the mean square of x1 - x0 over ranges, less its noise, plus half a
standard error of that:

    clip bar   variance times 1 + (k c / (1 - c))^2 b^2 / V,   k = 2.5, of the mix 3.5;   c with one standard error
    test       contrasts of x1 - x0 over five nodes, chi-squared; its p-value stands in the release
    mix        generalised least squares of x1 and x0, mean over s by likelihood
    G          M diag(w) K diag(w) M',  w = x0,  M = I - w 1',  K = 1 + 4 min(i, j) / m along an ordered axis, else I

The error of E min(r, R), which the bits themselves tell, moves all leaves along one line of their covariance.

**Source**: docs/method/local.md, "Truncation", "One row and a bit", "Levels and paths", "Grids", "Shuffling"; Feldman,
McMillan and Talwar (2021) for the last.
**Privacy**: what is made of one row and a bit is post-processing. What shuffling adds holds for neighbours that replace
one person's value, one randomizer for all with the view drawn inside it, one round, and n honest distinct people; a
linkable token, timing or metadata voids it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import CatalogError
from dpsql.local.mechanisms import blue
from dpsql.local.mechanisms.blue import normsub
from dpsql.local.oracles.oracle import FloatArray, Oracle, covariance, estimate


def lost_rows(row_shares: FloatArray) -> FloatArray:
    """Mean rows a person loses at tau = 0, 1, .., R: E (r - tau)+."""
    above = np.append(np.cumsum(row_shares[::-1])[::-1][1:], 0.0)
    return np.asarray(np.cumsum(above[::-1])[::-1])


def clipped_fraction(row_shares: FloatArray, tau: int) -> float:
    """Share of all rows that tau leaves out.

    Example:
        >>> clipped_fraction(np.array([0.0, 0.5, 0.0, 0.5]), 2)
        0.25
    """
    lost = lost_rows(row_shares)
    return float(lost[min(tau, lost.size - 1)] / lost[0])


class ValueWithError(NamedTuple):
    """A number and its standard error."""

    value: float
    error: float


def lost_by_histogram(oracle: Oracle, tally: FloatArray, reports: float, tau: int) -> ValueWithError:
    """Mean rows of a person beyond tau, E (r - tau)+, from people who report min(rows, R); unbiased.

    Args:
        oracle: of the reports, over 0 .. R.
        tally: reports that support each number of rows.
        reports: number of reports.
        tau: slots.
    """
    shares = estimate(oracle, tally, reports)
    beyond = np.maximum(np.arange(shares.size) - tau, 0).astype(np.float64)
    noise = float(beyond @ covariance(oracle, np.clip(shares, 0, 1), reports) @ beyond)
    return ValueWithError(float(beyond @ shares), float(np.sqrt(max(noise, 0.0))))


def clipped_share(lost: ValueWithError, kept: ValueWithError, together: float = 0.0) -> ValueWithError:
    """Share of all rows that tau leaves out: lost / (lost + kept), with the error that both bring.

    Args:
        lost: mean rows of a person beyond tau.
        kept: mean rows of a person within tau.
        together: their covariance.

    Returns:
        The share, at least 0, and its standard error by the delta method.

    Example:
        >>> share, error = clipped_share(ValueWithError(0.5, 0.1), ValueWithError(1.5, 0.0))
        >>> round(share, 3), round(error, 4)
        (0.25, 0.0375)
    """
    total = max(lost.value + kept.value, 1e-9)
    bends = kept.value**2 * lost.error**2 + lost.value**2 * kept.error**2
    bends -= 2 * kept.value * lost.value * together
    return ValueWithError(max(lost.value, 0.0) / total, float(np.sqrt(max(bends, 0.0))) / total**2)


def theory_tau(row_shares: FloatArray, noise: float, answer: float) -> int:
    """The tau of least bias^2 + variance for an answer that takes a share `answer` of the rows.

    Args:
        row_shares: public guess (T) or estimate (E) of the share of people with r = 0, 1, .. rows.
        noise: variance of the answer's share at tau = 1.
        answer: typical share of an answer.

    Returns:
        tau, at least 1.

    Example:
        >>> shares = np.array([0.0, 0.5, 0.3, 0.2])
        >>> theory_tau(shares, 1e-6, 0.3), theory_tau(shares, 1.0, 0.3)
        (3, 1)
    """
    lost = lost_rows(row_shares)
    taus = np.arange(1, lost.size)
    return int(taus[np.argmin((answer * lost[1:]) ** 2 + taus**2 * noise)])


def estimated_rows(oracle: Oracle, tally: FloatArray, reports: float) -> FloatArray:
    """Share of people with r = 0 .. R rows, from people who report min(rows, R) and then never again (E)."""
    return normsub(estimate(oracle, tally, reports))


TYPICAL = 0.15
"""By how much, as a share of all rows, cutting every row would move a typical answer: rows of people with many rows lie
elsewhere than others, in invented stars by .1 to .2 of the range."""


def bit_cap(row_shares: FloatArray, noise: float, answer: float) -> int:
    """The number of rows R at which a row's bit is certain: least (TYPICAL c)^2 + (R / E min(r, R))^2 noise.

    Args:
        row_shares: public guess or estimate of the share of people with r = 0, 1, .. rows.
        noise: variance of an answer's share at R = 1.
        answer: not asked; what cutting leaves out is not in proportion to it.

    Returns:
        R, at least 1.

    **Source**: docs/method/local.md, "One row and a bit".

    Example:
        >>> even = np.append(0.0, np.full(10, 0.1))
        >>> bit_cap(even, 1e-3, 0.3), bit_cap(even, 1e-5, 0.3)
        (7, 10)
    """
    lost = lost_rows(row_shares)
    caps, rows_within = np.arange(1, lost.size), np.maximum(lost[0] - lost[1:], 1e-12)
    cut = lost[1:] / max(float(lost[0]), 1e-12)
    return int(caps[np.argmin((TYPICAL * cut) ** 2 + (caps / rows_within) ** 2 * noise)])


Between = tuple[int, int]
"""Two numbers of rows: E min(r, second) - E min(r, first) is asked between them."""


@dataclass(frozen=True)
class SlotWeighting:
    """Weighting of a person's rows.

    Args:
        name: what catalogs and plans call it.
        asks: what grids ask, by name.
        waves: whether Square Wave may be asked.
        counted_again: part of the people who report numbers of rows after a first round that asked for these alone,
            from the declared part.
        counted: from tau, floor and cap of rows: between which numbers of rows people are asked how many they have,
            each with its part of those people.
        best: the tau of least error from shares of rows, an answer's variance at tau = 1, and its typical share.
    """

    name: str
    asks: str = "grid"
    waves: bool = True
    counted_again: Callable[[Fraction], Fraction] = lambda share: Fraction(0)
    counted: Callable[[int, int, int], dict[Between, int]] = lambda tau, floor, cap: {(floor, cap): 1}
    best: Callable[[FloatArray, float, float], int] = theory_tau


def _by_parts(tau: int, floor: int, cap: int) -> dict[Between, int]:
    """True if there is a row, rows within tau, and rows beyond it: a bit between close numbers errs less.

    A bit between two numbers errs by their difference over the square root of its people, whatever the rows are. So the
    variances of all add up to least where people are in proportion to differences: beyond 3 of 28 rows 25 of 29.
    """
    bit_weights: dict[Between, int] = {(floor, tau): tau - floor}
    if tau < cap:
        bit_weights[tau, cap] = cap - tau
    if floor == 0:
        bit_weights[0, 1] = bit_weights.get((0, 1), 0) + 1
    return bit_weights


WEIGHTINGS = (
    SlotWeighting("none"),
    SlotWeighting("bit", "weighted", False, lambda share: share, counted=_by_parts, best=bit_cap),
)


def weighting_named(name: str) -> SlotWeighting:
    """The weighting that a catalog or plan names.

    Raises:
        CatalogError: none is called that.
    """
    for weighting in WEIGHTINGS:
        if weighting.name == name:
            return weighting
    raise CatalogError(f"no row_weighting is called `{name}`", hint="write bit or none")


IntArray = NDArray[np.int64]


def level_edges(leaves: int, branching: int) -> list[IntArray]:
    """Cell boundaries of each level below the root of a near-balanced tree, finest last.

    Args:
        leaves: number of leaves, at least 2.
        branching: children a node.

    Returns:
        One increasing array of boundaries a level, from 0 to `leaves`; each refines the one before.

    Example:
        >>> [e.tolist() for e in level_edges(6, 3)]
        [[0, 2, 4, 6], [0, 1, 2, 3, 4, 5, 6]]
    """
    levels: list[IntArray] = []
    cells = branching
    while not levels or levels[-1].size - 1 < leaves:
        levels.append(np.unique(np.arange(cells + 1, dtype=np.int64) * leaves // cells))
        cells *= branching
    return levels


UNEVEN_ONE = 0.7
UNEVEN_TWO = 0.03


def granularity(people: float, epsilon: float, axes: int) -> tuple[float, float]:
    """Best number of cells when people are split over all axes and all pairs of axes.

    Args:
        people: number of reports.
        epsilon: privacy of one report.
        axes: number of axes d; d + d (d - 1) / 2 groups share the people.

    Returns:
        Cells of a one-axis grid and cells per axis of a pair's grid, real numbers.

    Example:
        >>> [round(g, 2) for g in granularity(1e6, 1.0, 6)]
        [23.31, 3.69]
    """
    groups = axes + axes * (axes - 1) / 2
    grown = math.exp(epsilon)
    single_cells = (people * (grown - 1) ** 2 * UNEVEN_ONE**2 / (2 * groups * grown)) ** (1 / 3)
    pair_cells = math.sqrt(2 * UNEVEN_TWO * (grown - 1) * math.sqrt(people / (groups * grown)))
    return single_cells, pair_cells


def joint_granularity(people: float, epsilon: float, ordered: int, others: int = 1) -> float:
    """Best number of cells per ordered axis of one grid over several axes, when everybody asked answers it.

    Least (ordered a2 / g)^2 + (g/2)^ordered max(others/2, 1) v: unevenness inside cells, and noise of a box that holds
    half of every axis. Two ordered axes: as in `granularity`.

    Args:
        people: number of reports on this grid.
        epsilon: privacy of one report.
        ordered: number of ordered axes.
        others: cells of the other axes together, which stay apart.

    Returns:
        Cells per ordered axis, a real number.

    Example:
        >>> round(joint_granularity(1e6 / 21, 1.0, 2), 2), round(joint_granularity(2e5, 1.0, 3), 2)
        (3.69, 4.72)
    """
    grown = math.exp(epsilon)
    noise = 4 * grown / (people * (grown - 1) ** 2) * max(others / 2, 1.0)
    power = 2.0 ** (ordered + 1) * ordered * UNEVEN_TWO**2 / noise
    return float(power ** (1 / (ordered + 2)))


def snapped_edges(leaves: int, branching: int, cells: float) -> IntArray:
    """Boundaries of the tree level whose number of cells is nearest to `cells` in ratio.

    A grid on a tree level lets one-axis reports refine it without cutting its cells.
    """
    levels = level_edges(leaves, branching)
    return min(levels, key=lambda e: abs(math.log((e.size - 1) / max(cells, 1.0))))


def even_edges(leaves: int, cells: float) -> IntArray:
    """Boundaries of about `cells` near-equal cells, at least 2 and at most one per leaf."""
    count = int(min(max(round(cells), 2), leaves))
    return np.unique(np.arange(count + 1, dtype=np.int64) * leaves // count)


BLOCKS = 400
REACH = 9.0


CloneBlock = tuple[float, int, int, FloatArray]
"""Clone counts in one block: probability, least count, survival of Bin(count, 1/2) from the number before it."""


def log_factorial(values: FloatArray) -> FloatArray:
    """log x! by Stirling's series with three corrections; exact sums below 16."""
    small = np.cumsum(np.log(np.maximum(np.arange(16.0), 1.0)))
    x = np.maximum(values, 16.0)
    series = (
        x * np.log(x) - x + 0.5 * np.log(2 * np.pi * x) + 1 / (12 * x) - 1 / (360 * x**3) + 1 / (1260 * x**5)
    )
    return np.where(values < 16, small[np.minimum(values, 15).astype(np.int64)], series)


def _binomial(trials: int, chance: float, at: FloatArray) -> FloatArray:
    logs = log_factorial(np.array([float(trials)])) - log_factorial(at) - log_factorial(trials - at)
    return np.asarray(np.exp(logs + at * math.log(chance) + (trials - at) * math.log1p(-chance)))


def _window(trials: int, chance: float) -> FloatArray:
    middle, width = trials * chance, REACH * math.sqrt(trials * chance * (1 - chance)) + 10
    return np.arange(
        max(0, math.floor(middle - width)), min(trials, math.ceil(middle + width)) + 1, dtype=np.float64
    )


def _blocks(people: int, epsilon: float) -> tuple[list[CloneBlock], float]:
    chance = math.exp(-epsilon)
    at = _window(people - 1, chance)
    mass = _binomial(people - 1, chance, at)
    blocks = []
    for indices in np.array_split(np.arange(at.size), min(BLOCKS, at.size)):
        clones = int(at[indices[0]])  # fewest clones of the block: least noise, so an upper bound
        inner = _window(clones, 0.5)
        survival = np.append(np.cumsum(_binomial(clones, 0.5, inner)[::-1])[::-1], 0.0)
        blocks.append((float(mass[indices].sum()), clones, int(inner[0]), survival))
    return blocks, max(0.0, 1.0 - float(mass.sum()))


def _delta(blocks: list[CloneBlock], missed: float, local: float, central: float) -> float:
    """Upper bound of the hockey-stick divergence at `central`."""
    truth, grown = math.exp(local) / (math.exp(local) + 1), math.exp(central)
    total = missed
    for mass, clones, low, survival in blocks:
        # a first answers are likelier under the true value by at least e^central from this count on
        top = (clones + 1) * (grown * truth - (1 - truth))
        threshold = math.ceil(top / ((2 * truth - 1) * (1 + grown)) - 1e-12)
        # P(Bin(clones, 1/2) >= threshold), and of one less
        above, from_one = (
            float(survival[min(max(least - low, 0), survival.size - 1)])
            for least in (threshold, threshold - 1)
        )
        gain = truth * from_one + (1 - truth) * above - grown * ((1 - truth) * from_one + truth * above)
        total += mass * max(0.0, gain)
    return total


def shuffled_epsilon(people: int, epsilon: float, delta: float) -> float:
    """Least epsilon with (epsilon, delta)-DP of the shuffled reports, found by bisection.

    Args:
        people: honest distinct people whose reports were shuffled together.
        epsilon: local privacy of one report.
        delta: allowed failure probability.

    Returns:
        The central epsilon, never above the local one.

    Example:
        >>> round(shuffled_epsilon(10_000, 1.0, 1e-6), 3)
        0.053
    """
    blocks, missed = _blocks(people, epsilon)
    low, high = 0.0, epsilon
    if _delta(blocks, missed, epsilon, high) > delta:
        return epsilon
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if _delta(blocks, missed, epsilon, middle) <= delta else (middle, high)
    return high


NODES = 5
"""Coarse nodes of the test; four contrasts of them."""
STRENGTHS = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Variances s^2 of the tilt that are weighed by likelihood; 0 is "missing at random", the last believes rows alone."""
LARGEST = 512
"""Most leaves of a shrunk mix, which solves for twice as many a dozen times."""
FLOOR = 1e-4
"""Least share of a leaf in the tilt's prior."""


SURE = 0.5
"""Standard errors of b^2 that are added to it, as noise may hide some: without them intervals of a heavy tail held 92%
of ranges, with one 99%, with half of one 98%."""


BEYOND, BEYOND_MIXED = 2.5, 3.5
"""How many times further from the rows kept the rows cut lie than all rows from one row a person: what the bars of the
unbiased answer and of the mix allow for. In four invented worlds it was 1.9 to 3.7. Where a million people buy the
cheaper the more they buy, 95% intervals of ranges held 94.4% with 2, 95.5% with 2.5; those of the mix, which is a third
less noisy, 93.1% with 2, 96.5% with 3.5."""


class TwoLaws(NamedTuple):
    """Both estimates of one axis's leaves, which one set of reports brought.

    Args:
        rows, person: shares, each adding up to 1.
        own, plain: their covariances.
        cross: covariance of rows (first) and person (second).
    """

    rows: FloatArray
    person: FloatArray
    own: FloatArray
    plain: FloatArray
    cross: FloatArray

    @property
    def apart(self) -> blue.ShareEstimate:
        """The difference of the two and its covariance."""
        return blue.ShareEstimate(self.rows - self.person, self.own + self.plain - self.cross - self.cross.T)


def clip_factor(laws: TwoLaws, covariance: FloatArray, cut: float, beyond: float) -> float:
    """Factor on variances for rows beyond R: an interval by plausibility, not a bound.

    What is left of cutting a share c of the rows is c times the difference of the rows cut and kept; that is taken to
    be some times (k) the difference b of all rows and one row a person, over 1 - c.

    Args:
        laws: both estimates.
        covariance: of the answers' leaves, to be multiplied.
        cut: c, at least 0 and below 1.
        beyond: k.

    Returns:
        1 + (k c / (1 - c))^2 b^2 / V, with V the mean variance of a range.
    """
    ranges, (shift, noise) = blue.range_workload(laws.rows.size), laws.apart
    seen, range_noise = (
        max(0.0, float(shift @ ranges @ shift) - float((noise * ranges).sum())),
        ranges @ noise,
    )
    apart = seen + SURE * math.sqrt(2 * float(np.sum(range_noise * range_noise.T)))
    mean = max(float((covariance * ranges).sum()), 1e-300)
    return 1 + (beyond * cut / (1 - cut)) ** 2 * apart / mean


def missing_at_random(laws: TwoLaws) -> float:
    """p-value of "rows are missing at random": contrasts of the difference over a few coarse nodes, by chi-square.

    Example:
        >>> alike = np.full(4, 0.25)
        >>> noise = (np.eye(4) - 0.25) * 1e-4
        >>> missing_at_random(TwoLaws(alike, alike, noise, noise, 0 * noise))
        1.0
    """
    nodes = blue.cell_design(even_edges(laws.rows.size, NODES), laws.rows.size)[:-1]
    shift, noise = nodes @ laws.apart.shares, nodes @ laws.apart.covariance @ nodes.T
    return chi_square_tail(float(shift @ np.linalg.solve(noise, shift)), len(nodes))


def chi_square_tail(value: float, freedom: int) -> float:
    """Probability that a chi-square variable is larger.

    Example:
        >>> round(chi_square_tail(9.488, 4), 4), round(chi_square_tail(7.815, 3), 4)
        (0.05, 0.05)
    """
    half = max(value, 0.0) / 2
    tail = math.exp(-half) if freedom % 2 == 0 else math.erfc(math.sqrt(half))
    for done in range(2 - freedom % 2, freedom, 2):
        tail += half ** (done / 2) * math.exp(-half) / math.gamma(done / 2 + 1)
    return tail


def shrink(laws: TwoLaws, smooth: int) -> tuple[blue.ShareEstimate, float]:
    """Shares of rows from both estimates, the second trusted as far as the reports bear it out.

    Args:
        laws: both estimates.
        smooth: leading leaves along which the tilt is a path; all others tilt each for itself.

    Returns:
        The mean over the tilt's variances s^2 by likelihood, made non-negative in its own norm; its covariance is that
        within and between them. And the likelihood's share of "missing at random".
    """
    size = laws.rows.size
    free, prior = slice(0, size - 1), _tilt_prior(laws.person, smooth)
    joint_covariance = _proper(
        np.block([[laws.own[free, free], laws.cross[free, free]],
                  [laws.cross[free, free].T, laws.plain[free, free]]])
    )  # fmt: skip
    seen = np.concatenate([laws.rows[free], laws.person[free]])
    twice, apart = np.vstack([np.eye(size - 1)] * 2), np.hstack([np.eye(size - 1), -np.eye(size - 1)])
    shift, noise = laws.apart.shares[free], apart @ joint_covariance @ apart.T
    logs, means, spreads = [], [], []
    for strength in STRENGTHS:
        tilt = strength * prior[free, free]
        logs.append(_log_likelihood(shift, noise + tilt))
        tilted_covariance = joint_covariance.copy()
        tilted_covariance[size - 1 :, size - 1 :] += tilt
        solved = np.linalg.solve(tilted_covariance, np.column_stack([twice, seen]))
        spread = np.linalg.inv(twice.T @ solved[:, :-1])
        means.append(spread @ (twice.T @ solved[:, -1]))
        spreads.append(spread)
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    mean = weights @ np.array(means)
    inner = sum(
        w * (s + np.outer(m - mean, m - mean)) for w, m, s in zip(weights, means, spreads, strict=True)
    )
    lift = np.vstack([np.eye(size - 1), -np.ones(size - 1)])
    last = np.append(mean, 1 - mean.sum())
    covariance = np.asarray(lift @ inner @ lift.T)
    precision = blue.constrained_inverse(covariance)
    return blue.ShareEstimate(blue.simplex_fit(precision, precision @ last), covariance), float(weights[0])


def _proper(covariance: FloatArray) -> FloatArray:
    """A covariance that is estimated at noisy shares, which may have directions of negative variance: their size."""
    sizes, directions = np.linalg.eigh(covariance)
    least = 1e-10 * float(np.trace(covariance)) / len(covariance)
    return np.asarray((directions * np.maximum(np.abs(sizes), least)) @ directions.T)


def _tilt_prior(person: FloatArray, smooth: int) -> FloatArray:
    """M diag(w) K diag(w) M': what people of many rows hold differs in proportion to what is there, without a total."""
    size = person.size
    share = np.maximum(person, FLOOR)
    share = share / share.sum()
    path = np.minimum(np.arange(size)[:, None], np.arange(size)[None, :])
    kernel = np.eye(size)
    kernel[:smooth, :smooth] = 1 + 4 * path[:smooth, :smooth] / max(smooth, 1)
    centre = np.eye(size) - np.outer(share, np.ones(size))
    return np.asarray(centre @ (share[:, None] * kernel * share[None, :]) @ centre.T)


def _log_likelihood(shift: FloatArray, noise: FloatArray) -> float:
    """Of a normal variable, up to a constant."""
    root = np.linalg.cholesky((noise + noise.T) / 2)
    white = np.linalg.solve(root, shift)
    return -float(white @ white) / 2 - float(np.log(np.diag(root)).sum())
