"""The log-smooth stack of one axis: several smoothness priors, each a softmax fit, mixed by held-out people.

Real histograms are smooth, spiky or stepped; no single prior wins on all. Each candidate fits all groups of
reports; convex weights are chosen so that the mix of the candidates fitted without a fold of people
comes nearest to the unbiased estimate from that fold alone, in the workload's norm and the fold's own
(`mix`).

A difference penalty alone must choose: smooth a spike away, or leave all the noise around it. So some priors have two
parts: the smooth one pays for bending, the other for every leaf where it is not zero, so that a spike costs what it
costs once and does not bend its neighbours. They fit columns that people round, or where one value is everybody's.
One prior asks for no smoothness at all (`split_fit`): it fits columns most of whose leaves are empty.

All of it is post-processing.

| here       | there                                    | unit |
|------------|------------------------------------------|------|
| logs       | theta, x = softmax(theta)                | log shares |
| `misfit`   | x'Qx / 2 - g'x, slope and curvature in theta | half squared standard errors |
| roughness  | D^k theta                                | k-th difference along the axis |
| `even`     | u, log shares under w |D^k u|^2 / 2      | |
| `tall`     | s, spikes under v sum sqrt(s^2 + SOFT^2); theta = u + s | |
| fold       | k                                        | a quarter of the people |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpsql.local.mechanisms import blue
from dpsql.local.oracles.oracle import FloatArray

SOFT = 1e-2
"""Differences and spikes of log shares below this count as none for the absolute-value penalties."""


def softmax(logs: FloatArray) -> FloatArray:
    """Shares proportional to exp(logs)."""
    grown = np.exp(logs - logs.max())
    return np.asarray(grown / grown.sum())


def difference(size: int, order: int, smooth: int) -> FloatArray:
    """Difference matrix along the first `smooth` of `size` leaves; special leaves at the end stay free."""
    inner = np.asarray(np.diff(np.eye(smooth), order, axis=0))
    return np.asarray(np.hstack([inner, np.zeros((inner.shape[0], size - smooth))]), dtype=np.float64)


def misfit(equations: blue.System, logs: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Value, slope and Gauss-Newton curvature of the least squares at softmax(logs), up to a constant."""
    shares = softmax(logs)
    push = equations.precision @ shares
    value = float(shares @ push / 2 - equations.pull @ shares)
    residual = push - equations.pull
    slope = shares * (residual - float(shares @ residual))
    pushed_shares = shares * push
    curve = shares[:, None] * equations.precision * shares[None, :]
    curve += (
        float(shares @ push) * np.outer(shares, shares)
        - np.outer(pushed_shares, shares)
        - np.outer(shares, pushed_shares)
    )
    return value, slope, curve


STEPS = 120
LONGEST = 4.0
"""Longest step of a log share."""


_Around = tuple[FloatArray, FloatArray, FloatArray]
"""Slope and curvature of a fit, and the slope of the smooth part's penalty."""


def spiky_smooth(equations: blue.System, prior: Penalty, smooth: int, start: FloatArray) -> FloatArray:
    """Fit log shares as a smooth part plus spikes, by Gauss-Newton steps with Levenberg damping.

    Args:
        equations: normal equations of the groups.
        prior: the prior.
        smooth: leading leaves that the smooth part's penalty covers.
        start: log shares to start from.

    Returns:
        The fitted log shares.
    """
    rough = difference(start.size, prior.order, smooth)
    stiff = prior.weight * rough.T @ rough
    even, tall = start - start.mean(), np.zeros_like(start)
    even, value, around = _look(equations, prior, stiff, even, tall)
    damping = 1e-3
    for _ in range(STEPS):
        even_step, tall_step = _step(tall, around, prior, stiff, damping)
        at, tried, there = _look(equations, prior, stiff, even + even_step, tall + tall_step)
        if tried <= value:
            done = value - tried < 1e-9 * (1 + abs(value))
            even, tall, value, around = at, tall + tall_step, tried, there
            damping = max(damping / 5, 1e-9)
            if done:
                break
        else:
            damping *= 4
            if damping > 1e8:
                break
    return even + tall


def _look(
    equations: blue.System, prior: Penalty, stiff: FloatArray, even: FloatArray, tall: FloatArray
) -> tuple[FloatArray, float, _Around]:
    """The smooth part without its mean, and the value of the fit and what it looks like there."""
    even = even - even.mean()
    value, slope, curve = misfit(equations, even + tall)
    bend = stiff @ even
    value += float(even @ bend) / 2 + prior.spike * float(np.sqrt(tall**2 + SOFT**2).sum())
    return even, value, (slope, curve, bend)


def _step(
    tall: FloatArray, around: _Around, prior: Penalty, stiff: FloatArray, damping: float
) -> tuple[FloatArray, FloatArray]:
    """Step of both parts; the spikes' own equations are diagonal, so they are solved for and put in."""
    slope, curve, bend = around
    mean = float(np.diag(curve).mean())
    curve = curve + np.diag(damping * np.diag(curve) + mean * max(1e-3 * damping, 1e-10))
    stiff = stiff + np.diag(damping * np.diag(stiff))
    size = np.sqrt(tall**2 + SOFT**2)
    give = size / (prior.spike * (1 + damping))  # inverse curvature of each spike's penalty
    ahead = bend - prior.spike * tall / size
    # A constant added to all logs changes nothing; the mean on every entry fixes that direction.
    combined = curve + stiff + (curve * give) @ stiff + mean
    even = np.linalg.solve(combined, -slope - bend - curve @ (give * ahead))
    spikes = give * (stiff @ even + ahead)
    reach = max(float(np.abs(even).max()), float(np.abs(spikes).max()), LONGEST)
    return np.asarray(even * (LONGEST / reach)), np.asarray(spikes * (LONGEST / reach))


SPLIT = 1.0
"""Standard deviation of a half's mean share around that of its interval, relative to it. Over ten columns .5 and 2
erred by 6% and 8% more, a quarter by 78%."""
SPLIT_STEPS = 5
"""Fits, each with standard deviations from the one before."""
SPLIT_LEAST = 1e-4
"""Least mean share that a standard deviation is taken of, of that of an even axis."""


@lru_cache(maxsize=8)
def halvings(size: int, smooth: int) -> tuple[FloatArray, FloatArray]:
    """Every half's mean share less that of its interval, and the latter, over all halvings of the smooth leaves.

    Example:
        >>> [rows.tolist() for rows in halvings(3, 2)]
        [[[0.5, -0.5, 0.0], [-0.5, 0.5, 0.0]], [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]]
        >>> halvings(3, 0)[0].shape
        (0, 3)
    """
    differences, means, intervals = [], [], [(0, smooth)]
    while intervals:
        low, high = intervals.pop()
        if high - low < 2:
            continue
        middle = (low + high) // 2
        halves = [(low, middle), (middle, high)]
        (mean,) = blue.cell_design([low, high], size) / (high - low)
        for start, end in halves:
            differences.append(blue.cell_design([start, end], size)[0] / (end - start) - mean)
            means.append(mean)
        intervals += halves
    return np.reshape(differences, (-1, size)), np.reshape(means, (-1, size))


def split_fit(equations: blue.System, smooth: int, start: FloatArray) -> FloatArray:
    """Fit shares under the prior that a half's mean share differs from its interval's by about as much as that is.

    Nothing need be smooth; but what little an interval holds bounds each of its leaves, so that empty stretches stay
    empty: for columns with gaps, and leaves that many share among leaves that nobody has.

    Args:
        equations: normal equations of the groups.
        smooth: leading leaves that are halved.
        start: shares to start from, all positive.
    """
    differences, means = halvings(start.size, smooth)
    shares = start
    for _ in range(SPLIT_STEPS):
        deviation = SPLIT * np.maximum(means @ shares, SPLIT_LEAST / start.size)
        rows = differences / deviation[:, None]
        shares = blue.simplex_fit(equations.precision + rows.T @ rows, equations.pull)
    return shares


TRUST = 10.0
"""How much the held-out likelihood counts beside the workload when candidates are weighed, in units of noise."""
USUAL = (3, 10, 11)
"""Places in `candidates` of the priors that err least over columns of every kind: kinks, stiff spikes, splits."""
PULL = 3.0
"""How strongly weights are drawn to those three, in units of noise: where few people are held out, noise chose them.
Over ten columns (40 settings, 50,000 people) it took 5% off the mean squared error, 11% at epsilon .5; ten times as
much would double it on a bell of a million people."""


REPEATS = 8
HIDDEN, SEEN = (0.10, 0.30), (0.25, 0.90)
"""Part of the unbiased covariance in that of a stack, for answers below and from a twentieth of everybody, where refits
do not scatter at all; and by what share of the unbiased variance they do where none of it is needed. In 190 collections
(DPBench sets and six shapes, 16 to 96 leaves, epsilon 1 to 3) 95% intervals of large ranges held the answer in 95.2%,
of small ones in 96.8%; one part whatever refits scatter by held 97% where that is much and 92% where it is little."""
ROUGH = 0.2
"""How much less a stack errs than its refits scatter, by their share of the unbiased variance: they are redrawn around
an answer that is rougher than the truth."""


class Penalty(NamedTuple):
    """One smoothness prior over differences of log shares.

    Args:
        order: of the difference.
        weight: of the penalty.
        absolute: whether bends count by their absolute values, smooth near 0, so that a few may be large; else by half
            their squares, and none may be.
        spike: weight of the absolute values of spikes beside the smooth part; 0 of a prior without spikes.
    """

    order: int
    weight: float
    absolute: bool = False
    spike: float = 0.0

    def energy(self, bends: FloatArray) -> float:
        """sum sqrt(|D^k theta|^2 + SOFT^2), or |D^k theta|^2 / 2; times `weight` it is the prior's."""
        return float((self.size(bends) if self.absolute else bends**2 / 2).sum())

    def size(self, bends: FloatArray) -> FloatArray:
        """Divisor of each bend in the slope of the energy, and in its curvature."""
        return np.sqrt(bends**2 + SOFT**2) if self.absolute else np.ones_like(bends)


class Stack(NamedTuple):
    """The stack's answer: leaf shares, each candidate's weight, the unbiased estimate, the equations of all groups."""

    shares: FloatArray
    weights: FloatArray
    unbiased: blue.ShareEstimate
    equations: blue.System


def penalties(leaves: int) -> list[Penalty]:
    """The priors without spikes, scaled so that a histogram seen at another grain is as rough as before."""
    grain = leaves / 256
    return [
        Penalty(3, 1e6 * grain**5),
        Penalty(2, 1e2 * grain**3),
        *(Penalty(2, w * grain, absolute=True) for w in (10.0, 100.0, 1000.0)),
        *(Penalty(1, w, absolute=True) for w in (1.0, 3.0)),
    ]


def spiky_priors(leaves: int) -> list[Penalty]:
    """The priors with spikes: a third difference that may bend, with few or fewer spikes, and one that hardly may."""
    grain = (leaves / 256) ** 5
    return [Penalty(3, w * grain, spike=spike) for w, spike in ((1e6, 1.0), (1e6, 3.0), (1e8, 1.5))]


def log_smooth(equations: blue.System, penalty: Penalty, smooth: int, start: FloatArray) -> FloatArray:
    """Fit log shares under one prior by Gauss-Newton steps with Levenberg damping and a gradient test.

    Args:
        equations: normal equations of the groups.
        penalty: the prior.
        smooth: leading leaves that the prior covers.
        start: log shares to start from.

    Returns:
        The fitted log shares.
    """
    size = start.size
    rough = difference(size, penalty.order, smooth)
    logs: FloatArray = start - start.mean()
    damping = 1e-3
    value, slope, curve = _objective(equations, penalty, rough, logs)
    scale = 1e-7 * max(float(np.abs(slope).max()), 1.0)
    for _ in range(80):
        if float(np.abs(slope).max()) < scale or damping > 1e8:
            break
        mean = float(np.diag(curve).mean())
        # A constant added to all logs changes nothing; the mean on every entry fixes that direction.
        ridge = mean + np.diag(damping * np.diag(curve) + mean * max(1e-3 * damping, 1e-10))
        step = np.linalg.solve(curve + ridge, -slope)
        tried = logs + np.clip(step, -4, 4)
        fresh = _objective(equations, penalty, rough, tried)
        if fresh[0] <= value:
            done = value - fresh[0] < 1e-9 * (1 + abs(value))
            logs = np.asarray(tried - tried.mean())
            damping = max(damping / 5, 1e-9)
            value, slope, curve = fresh
            if done:
                break
        else:
            damping *= 4
    return logs


def _objective(
    equations: blue.System, penalty: Penalty, rough: FloatArray, logs: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Value, gradient and Gauss-Newton curvature of the penalised fit."""
    value, slope, curve = misfit(equations, logs)
    bends = rough @ logs
    size = penalty.size(bends)
    value += penalty.weight * penalty.energy(bends)
    slope = slope + penalty.weight * rough.T @ (bends / size)
    curve += penalty.weight * (rough.T / size) @ rough
    return value, slope, curve


def candidates(equations: blue.System, smooth: int) -> FloatArray:
    """All candidates' shares, one a row: the simplex fit, then one per prior: smooth, with spikes, splits."""
    plain = blue.simplex_fit(equations.precision, equations.pull)
    mixed = 0.9 * plain + 0.1 / plain.size
    start = np.log(mixed)
    fits = [log_smooth(equations, penalty, smooth, start) for penalty in penalties(smooth)]
    fits += [spiky_smooth(equations, prior, smooth, start) for prior in spiky_priors(smooth)]
    return np.array([plain, *map(softmax, fits), split_fit(equations, smooth, mixed)])


def stack(folds: Sequence[Sequence[blue.ViewReports]], smooth: int) -> Stack:
    """Estimate one axis from folds of people.

    Args:
        folds: per fold of people, its groups (the same designs and oracles in each).
        smooth: leading leaves along which neighbours resemble each other.

    Returns:
        The stacked shares and the unbiased estimate.
    """
    pooled_groups = pooled(folds)
    leaves = pooled_groups[0].design.shape[1]
    uniform = np.full(leaves, 1 / leaves)
    first = blue.system(pooled_groups, uniform, tilted=False)
    guess = blue.simplex_fit(first.precision, first.pull)
    systems = [blue.system(groups, guess, tilted=False) for groups in folds]
    total = _sum(systems)
    weights = mix(systems, blue.range_workload(leaves), smooth)
    return Stack(weights @ candidates(total, smooth), weights, blue.solve(first), total)


class Refits(NamedTuple):
    """Scatter of refits, (m, m), and the part of the unbiased covariance that takes their place.

    Args:
        covariance: products of the refits' errors.
        small, large: the part, for small and for large answers.
        shift: mean error of the refits, (m,), where it was taken.
    """

    covariance: FloatArray
    small: float
    large: float
    shift: FloatArray | None = None


def stack_errors(fit: Stack, unbiased: FloatArray, smooth: int, rng: np.random.Generator) -> Refits:
    """Errors of a stack: its fits, with their weights, repeated on redrawn reports.

    Args:
        fit: the stack.
        unbiased: exact covariance of the unbiased shares of the first leaves, (m, m).
        smooth: as for `stack`.
        rng: source of pseudo-random numbers; this is post-processing and protects nobody.

    Returns:
        Mean squared errors and products of errors of the same leaves, and what they do not see.
    """
    leaves, size = unbiased.shape[0], fit.shares.size
    values, vectors = np.linalg.eigh(fit.equations.precision)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    total, shift = np.zeros((leaves, leaves)), np.zeros(leaves)
    for _ in range(REPEATS):
        pull = fit.equations.precision @ fit.shares + root @ rng.standard_normal(size)
        off = (fit.weights @ candidates(blue.System(fit.equations.precision, pull), smooth) - fit.shares)[
            :leaves
        ]
        total, shift = total + np.outer(off, off) / REPEATS, shift + off / REPEATS
    return with_hidden(total, unbiased)._replace(shift=shift)


def with_hidden(redrawn: FloatArray, unbiased: FloatArray) -> Refits:
    """Errors with the part that redrawn fits do not see.

    Redrawn around its own answer, a stack does not see what it smoothed away, nor do a few runs tell every range apart.
    So half is the unbiased covariance, brought to the same mean over all ranges, and a part of the unbiased covariance
    itself takes the place of both: the larger the less refits scatter, as then much was smoothed away.

    Args:
        redrawn: products of the errors of fits to redrawn reports, (m, m).
        unbiased: exact covariance of the unbiased shares, (m, m).

    Example:
        >>> held = with_hidden(np.zeros((2, 2)), np.eye(2))
        >>> held.small, held.large, with_hidden(np.eye(2), np.eye(2)).large
        (0.1, 0.3, 0.0)
    """
    ranges = blue.range_workload(len(unbiased))
    level = float((redrawn * ranges).sum() / max(float((unbiased * ranges).sum()), 1e-300))
    small, large = (hidden * max(1 - level / seen, 0.0) for hidden, seen in zip(HIDDEN, SEEN, strict=True))
    scattered = max(1 - ROUGH * level, 0.0) * (redrawn + level * unbiased) / 2
    return Refits(np.asarray(scattered), small, large)


def mix(parts: Sequence[blue.System], workload: FloatArray, smooth: int) -> FloatArray:
    """Convex weights of the candidates, by folds of people held out.

    Args:
        parts: each fold's normal equations.
        workload: the norm that the answer will be judged in, (m, m).
        smooth: leading leaves along which neighbours resemble each other.

    Returns:
        One weight a candidate.

    The workload's norm alone looks at few coarse directions, in which the held-out people are noisy, and the weights
    are drawn by that noise. What the fold itself tells best (its own precision) tells candidates apart far more
    surely, so it is added: in units of noise, TRUST times the workload. And weights that noise alone would choose stay
    at those of `USUAL`.
    """
    total, leaves = _sum(parts), workload.shape[0]
    noise = float(np.sum(workload * blue.constrained_inverse(total.precision)))
    rows = 1 + len(penalties(smooth)) + len(spiky_priors(smooth)) + 1
    inner, cross = np.zeros((rows, rows)), np.zeros(rows)
    for fold in parts:
        fits = candidates(blue.System(total.precision - fold.precision, total.pull - fold.pull), smooth)
        norm = workload / noise + TRUST / leaves * fold.precision
        inner = inner + fits @ norm @ fits.T
        cross = cross + fits @ norm @ blue.solve(fold).shares  # splits that the fold cannot see are even
    return blue.simplex_fit(
        inner + PULL * np.eye(rows), cross + PULL * np.isin(range(rows), USUAL) / len(USUAL)
    )


def pooled(folds: Sequence[Sequence[blue.ViewReports]]) -> list[blue.ViewReports]:
    """Put the folds of people together."""
    groups = []
    for same in zip(*folds, strict=True):
        reports = sum(g.reports for g in same)
        shares = sum(g.shares * (g.reports / reports) for g in same)
        groups.append(replace(same[0], shares=np.asarray(shares), reports=reports))
    return groups


def _sum(systems: Sequence[blue.System]) -> blue.System:
    return blue.System(
        np.asarray(sum(equations.precision for equations in systems)),
        np.asarray(sum(equations.pull for equations in systems)),
    )
