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

**Source**: docs/method/local.md, "Truncation", "Levels and paths", "Grids", "Shuffling"; Feldman, McMillan and Talwar
(2021) for the last.
**Privacy**: what shuffling adds holds for neighbours that replace one person's value, one randomizer for all with the
view drawn inside it, one round, and n honest distinct people; a linkable token, timing or metadata voids it.
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
