"""A black-box auditor: how private a mechanism can be at most, judged by what it puts out.

It runs a mechanism many times on two neighbouring inputs and looks for an event that is likely on one and
unlikely on the other. An epsilon-DP mechanism keeps the ratio of the two below e^epsilon, so a ratio proven
larger, at a stated confidence, proves a bug. A ratio that is not larger proves nothing: proofs are in
docs/privacy.md, this finds slips in code (a halved scale, a node without noise, noise drawn twice).

Part of the samples choose the event, the rest judge it, so the bound is honest whatever the search did.

    steps      sum over outputs of a learned log ratio: near the log likelihood ratio of independent Laplace outputs
    line       the outputs weighed by their inverse covariance: near that of Gaussian ones, however correlated
    event      steps or line >= threshold (or <= threshold), whichever has the best bound on the learning part
    bound      log((P(event) - delta) / Q(event)), both probabilities at their unlucky ends

A mechanism that spends mu^2 is (epsilon, delta)-DP at every delta with the epsilon of the exact curve, so one may look
at the delta where samples tell most. At a delta like 10^-6 they tell nothing: events that rare are not seen.

`check_sampled` runs the mechanism that made a release again on made-up data. For each linear statistic the rows that
hold one cell are drawn with the budgets in the file, on two inputs that differ by k units' whole reach in that cell.
Pure: their outputs may differ by k epsilon at most; k is such that this is about 1.5, where a few thousand samples tell
most, and the auditor's lower bound, divided by k, must not pass the statistic's epsilon. Gaussian: k units cost
k^2 mu^2; k is such that this is about 1, and the bound at delta 0.1 must not pass the epsilon of that mu^2.

**Privacy**: made-up data, fresh noise; nothing of a release is used but its public budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil, isqrt, prod
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dpsql.budget.curve import epsilon_of
from dpsql.central.planned import PlannedStatistic
from dpsql.curator.audit.contents import Check, Replanned, StoredIntegers
from dpsql.errors import InterfaceError
from dpsql.matrices.strategy import axis_budgets
from dpsql.matrices.tree import level_moments
from dpsql.mechanisms.designs.question import drawn_numbers
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, as_laplace
from dpsql.noise import Noise
from dpsql.noise.knorm import TreeNoise

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Sampler: TypeAlias = Callable[[IntArray, int], npt.NDArray[np.generic]]
Score: TypeAlias = Callable[[FloatArray], FloatArray]
Bounds: TypeAlias = Callable[[int, int, float], tuple[float, float]]
"""Lower and upper bound of a probability: (hits, size, risk of each)."""

LEARN = 0.3  # share of the samples that choose the event
THRESHOLDS = 200

TELLING_MU2, TELLING_DELTA = Fraction(1), Fraction(1, 10)
"""Where 20,000 samples find noise of .65 of its scale for certain; at mu^2 1/4 or delta 1/1000 it has to be smaller."""

RIDGE = 1e-9  # of the mean variance: keeps outputs without noise of their own from dividing by 0


class AuditFinding(NamedTuple):
    """Finding of an audit.

    Args:
        claimed: the epsilon that the mechanism promises.
        lower: with probability `confidence`, its true epsilon is at least this.
        confidence: of the lower bound.
        samples: runs on both inputs together.
        delta: at which both epsilons hold; 0 is pure.
    """

    claimed: float
    lower: float
    confidence: float
    samples: int
    delta: float = 0.0

    @property
    def violated(self) -> bool:
        """True if the promise is broken (at this confidence)."""
        return self.lower > self.claimed


NeighbourPair = tuple[IntArray, IntArray]
"""Two neighbouring inputs."""


def audit(
    sample: Sampler,
    pair: NeighbourPair,
    claimed: float,
    samples: int,
    confidence: float = 0.9999,
    delta: float = 0.0,
) -> AuditFinding:
    """Run a mechanism on two neighbours and bound its epsilon from below.

    Args:
        sample: (input, m) -> outputs of m independent runs, shape (m, outputs).
        pair: one input and its neighbour.
        claimed: the epsilon that is promised for this pair.
        samples: runs on both inputs together.
        confidence: of the bound.
        delta: the delta that is promised with it.

    Returns:
        The finding.

    Raises:
        InterfaceError: for fewer than 100 samples, or a confidence or delta outside its range.
    """
    if samples < 100 or not 0 < confidence < 1 or not 0 <= delta < 1:
        raise InterfaceError(
            "an audit needs 100 samples or more, a confidence between 0 and 1, and a delta from 0 up to 1"
        )
    a, b = (np.asarray(sample(neighbour, samples // 2), np.float64) for neighbour in pair)
    return AuditFinding(claimed, lower_bound(a, b, confidence, delta), confidence, 2 * (samples // 2), delta)


def audit_mu2(
    sample: Sampler,
    pair: NeighbourPair,
    mu2: Fraction,
    samples: int,
    confidence: float = 0.9999,
    delta: Fraction = TELLING_DELTA,
) -> AuditFinding:
    """Audit a mechanism that spends mu^2, by the epsilon that this means at one delta.

    Args:
        sample, pair, samples, confidence: as for `audit`.
        mu2: what is promised for this pair; best near `TELLING_MU2`, so let the pair differ by several units
            (k units: k^2 times the mu^2 of one).
        delta: where to look.

    Returns:
        The finding; `claimed` is the epsilon of the exact curve.
    """
    claimed = float(epsilon_of(mu2, delta))
    return audit(sample, pair, claimed, samples, confidence, float(delta))


def lower_bound(first: FloatArray, second: FloatArray, confidence: float, delta: float = 0.0) -> float:
    """A lower confidence bound on epsilon from outputs on two neighbours.

    Args:
        first: outputs on one input, shape (m, outputs).
        second: outputs on the other, shape (m, outputs).
        confidence: of the bound.
        delta: at which epsilon is bounded.

    Returns:
        The bound, at least 0.
    """
    cut = int(LEARN * len(first)), int(LEARN * len(second))
    learning = first[: cut[0]], second[: cut[1]]
    risk = (1 - confidence) / 2  # each of the two probabilities has half
    candidates = [
        (*_best_event((score(learning[0]), score(learning[1])), risk, delta), score)
        for score in (_steps(*learning), _line(*learning))
    ]
    _, event, score = max(candidates, key=lambda best: best[0])
    judged = score(first[cut[0] :]), score(second[cut[1] :])
    return max(0.0, _bound(event, judged, risk, delta, exact_bounds))


def _steps(first: FloatArray, second: FloatArray) -> Score:
    """Per output one cut and the log ratio on either side of it, added up.

    One cut is all that a shifted Laplace has to tell: its log ratio is a step. An output whose two samples
    differ less than chance would has no say.
    """
    cuts, weights = [], []
    for a, b in zip(first.T, second.T, strict=True):
        values = np.unique(np.concatenate([a, b]))
        below_a = np.searchsorted(np.sort(a), values, side="right") / len(a)
        below_b = np.searchsorted(np.sort(b), values, side="right") / len(b)
        best = int(np.argmax(np.abs(below_a - below_b)))
        p, q = (np.array([below[best], 1 - below[best]]) for below in (below_a, below_b))
        ratio = np.log(p * len(a) + 1) - np.log(q * len(b) + 1)
        heard = abs(below_a[best] - below_b[best]) > 2.0 / np.sqrt(len(a))
        cuts.append(values[best])
        weights.append(ratio * heard)
    cut, weight = np.array(cuts), np.array(weights)

    def score(outputs: FloatArray) -> FloatArray:
        above = outputs > cut
        return np.asarray((np.where(above, weight[:, 1], weight[:, 0])).sum(axis=1))

    return score


def _line(first: FloatArray, second: FloatArray) -> Score:
    """The difference of the means times the inverse covariance: the log ratio of two shifted Gaussians.

    Outputs are first brought to unit variance, since their scales may differ by orders of magnitude.
    """
    mean = (first.mean(axis=0) + second.mean(axis=0)) / 2
    spread = np.sqrt((first.var(axis=0) + second.var(axis=0)) / 2)
    unit = np.where(spread > 0, spread, max(float(spread.max()), 1.0) * np.sqrt(RIDGE))
    moved = (first - mean) / unit, (second - mean) / unit
    shift = moved[0].mean(axis=0) - moved[1].mean(axis=0)
    inside = np.concatenate([side - side.mean(axis=0) for side in moved])
    covariance = inside.T @ inside / len(inside) + RIDGE * np.eye(len(unit))
    weight = np.linalg.solve(covariance, shift)
    return lambda outputs: np.asarray(((outputs - mean) / unit) @ weight, np.float64)


Event: TypeAlias = tuple[float, bool]
"""A score at or beyond a threshold, and whether upwards: likely on the first input, else on the second."""


def _bound(
    event: Event, scores: tuple[FloatArray, FloatArray], risk: float, delta: float, bounds: Bounds
) -> float:
    """Log of the least likely-side less delta over the most unlikely-side probability, each at its risk."""
    threshold, upwards = event
    likely, unlikely = scores if upwards else scores[::-1]
    hits = [int((s >= threshold if upwards else s <= threshold).sum()) for s in (likely, unlikely)]
    low, high = bounds(hits[0], len(likely), risk)[0], bounds(hits[1], len(unlikely), risk)[1]
    return float(np.log((low - delta) / high)) if low > delta else -np.inf


def _best_event(scores: tuple[FloatArray, FloatArray], risk: float, delta: float) -> tuple[float, Event]:
    """The best rough bound on the learning part, with its event."""
    values = np.unique(np.concatenate(scores))
    if len(values) > THRESHOLDS:
        values = values[np.linspace(0, len(values) - 1, THRESHOLDS).astype(np.int64)]
    events = [(float(value), upwards) for upwards in (True, False) for value in values]
    return max((_bound(event, scores, risk, delta, rough_bounds), event) for event in events)


def rough_bounds(hits: int, size: int, risk: float) -> tuple[float, float]:
    """Wilson-like bounds, for choosing an event only: fast, and never part of a claim."""
    z = float(np.sqrt(-2 * np.log(risk)))
    centre, spread = hits + z * z / 2, z * np.sqrt(hits * (size - hits) / size + z * z / 4)
    return float((centre - spread) / (size + z * z)), float((centre + spread) / (size + z * z))


def exact_bounds(hits: int, size: int, risk: float) -> tuple[float, float]:
    """Clopper-Pearson bounds of a probability, each wrong with at most the given risk.

    Args:
        hits: how often the event was seen.
        size: how often it could have been.
        risk: of each bound.

    Returns:
        (lower, upper), rounded outwards by the last step of a bisection.

    **Source**: Clopper and Pearson (1934), The use of confidence or fiducial limits.

    >>> [round(p, 6) for p in exact_bounds(0, 10, 0.025)]
    [0.0, 0.308497]
    """
    low = 0.0 if hits == 0 else _solve(lambda p: _at_least(hits, size, p) <= risk)[0]
    high = 1.0 if hits == size else _solve(lambda p: 1 - _at_least(hits + 1, size, p) > risk)[1]
    return low, high


def _solve(holds: Callable[[float], bool]) -> tuple[float, float]:
    """The border of a property of probabilities that holds below it and fails above it."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def _at_least(hits: int, size: int, p: float) -> float:
    """P(Binomial(size, p) >= hits), summed from its logarithms."""
    if p <= 0 or p >= 1:
        return float(p >= 1 or hits == 0)
    log_factorial = _log_factorials(size)
    count = np.arange(hits, size + 1)
    log_p = log_factorial[size] - log_factorial[count] - log_factorial[size - count]
    log_p = log_p + count * np.log(p) + (size - count) * np.log1p(-p)
    return float(np.exp(log_p).sum())


@lru_cache(maxsize=8)
def _log_factorials(size: int) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, size + 1)))])


TELLING = Fraction(3, 2)
"""The epsilon at which samples tell most about a scale."""

TREE_DRAWS, FEWEST_RUNS = 1 << 21, 1000
"""Expected leaf draws of an audit's trees, and trees below which samples tell nothing."""

ROWS = 200
"""Most rows drawn per run: the largest budgets, which tell most."""


def check_sampled(
    made: Replanned, stored: dict[int, StoredIntegers], samples: int, noise: Noise
) -> Iterator[Check]:
    """Audit every linear statistic by sampling.

    Args:
        made: the plan.
        stored: what the file holds.
        samples: runs on both neighbours together.
        noise: where noise comes from.
    """
    for index, stored_view in stored.items():
        draw = made.plan.draw_of(index)
        if index != draw[0]:
            continue  # numbers of one draw are audited together: alone they tell less than it spends
        numbers = [made.plan.statistics[i] for i in draw]
        measures = " and ".join(s.measure.name for s in numbers)
        claim = f"auditor, view {numbers[0].view}: {measures}"
        check = CHECKS[numbers[0].law.norm]
        finding, detail = check(numbers, stored_view, samples, noise)
        yield Check(claim, None if finding is None else not finding.violated, detail)


def _at_least_of(
    run: Sampler, bounds: Sequence[int], spend: Fraction, samples: int
) -> tuple[AuditFinding | None, str]:
    """The finding on as many units' change as samples tell most of, and what it says of one."""
    units = max(1, ceil(TELLING / spend))
    pair = (np.zeros(len(bounds), np.int64), units * np.array(bounds, np.int64))
    finding = audit(run, pair, units * float(spend), samples)
    return finding, f"at least {finding.lower / units:.3g} of epsilon {float(spend):.3g}"


def _check_laplace(
    numbers: Sequence[PlannedStatistic], stored: StoredIntegers, samples: int, noise: Noise
) -> tuple[AuditFinding | None, str]:
    """The finding on k units' change of all numbers of a draw, and what it says of one.

    Rows with NULL that are drawn apart have the rates of the others, which tell more: these are audited.
    """
    column, budget = _rows_of_one_cell(stored)
    law, spend = as_laplace(numbers[0].law), numbers[0].spend
    assert law is not None
    drawn, sensitivities = drawn_numbers([s.law for s in numbers]), [s.drawn_sensitivity for s in numbers]
    bounds = [drawn.bound(sensitivities, i) for i in drawn.draws[-1]]
    denominator = law.denominator(max(sensitivities))
    tree = law.tree_noise(axis_budgets(stored[2].strategies), spend, bounds)
    if tree is not None:
        return _check_tree(tree, spend, samples, noise)

    def run(moves: IntArray, runs: int) -> IntArray:
        units = np.tile(budget, runs)
        if len(bounds) == 1:
            drawn = noise.laplace(units, denominator * bounds[0])[np.newaxis]
        else:
            drawn = noise.joint(units, denominator, bounds)
        moved = (
            drawn.reshape(len(bounds), runs, len(budget)) + np.multiply.outer(moves, column)[:, np.newaxis]
        )
        return np.asarray(np.concatenate(list(moved), axis=1))

    return _at_least_of(run, bounds, spend, samples)


def _check_tree(
    tree: TreeNoise, spend: Fraction, samples: int, noise: Noise
) -> tuple[AuditFinding | None, str]:
    """The same of leaves drawn together: what they tell of a leaf is in the sums of the nodes above it."""
    moments = level_moments(tree.arities, tuple(rate / tree.denominator for rate in tree.rates))
    runs = min(samples, int(TREE_DRAWS / (tree.leaves * moments.draws ** len(tree.bounds))))
    if runs < min(samples, FEWEST_RUNS):
        return None, "its trees take too many draws to be sampled"
    middle, widths = tree.leaves // 2, [prod(tree.arities[level:]) for level in range(len(tree.arities) + 1)]

    def run(moves: IntArray, number: int) -> IntArray:
        exact = np.zeros((len(tree.bounds), number, tree.leaves), np.int64)
        exact[:, :, middle] = moves[:, np.newaxis]
        drawn = noise.trees(tree, exact)
        above = [middle // width * width for width in widths]
        sums = [
            drawn[:, :, first : first + width].sum(axis=2) for first, width in zip(above, widths, strict=True)
        ]
        return np.asarray(np.concatenate([np.stack(list(level), axis=1) for level in sums], axis=1))

    return _at_least_of(run, tree.bounds, spend, runs)


def _check_gaussian(
    numbers: Sequence[PlannedStatistic], stored: StoredIntegers, samples: int, noise: Noise
) -> tuple[AuditFinding | None, str]:
    """The same on the exact curve, at the delta where samples tell most."""
    (statistic,) = numbers
    column, budget = _rows_of_one_cell(stored)
    total_sensitivity = (
        prod(strategy.total for strategy in stored[2].strategies) * statistic.drawn_sensitivity
    )
    variance = Fraction(total_sensitivity**2) / statistic.spend

    def run(cell: IntArray, runs: int) -> IntArray:
        drawn = np.empty((runs, len(budget)), np.int64)
        for share in np.unique(budget):
            same = np.flatnonzero(budget == share)
            sigma2 = GAUSSIAN.row_variance(int(share), variance)
            drawn[:, same] = noise.gaussian(sigma2, runs * len(same)).reshape(runs, len(same))
        return drawn + column * int(cell[0])

    units = max(1, isqrt(ceil(TELLING_MU2 / statistic.spend)))
    second = np.array([units * statistic.drawn_sensitivity])
    finding = audit_mu2(run, (np.array([0]), second), units**2 * statistic.spend, samples)
    of = f"{units} unit{'s' * (units > 1)} at delta {finding.delta:g}"
    return finding, f"at least {finding.lower:.3g} of epsilon {finding.claimed:.3g} ({of})"


CHECKS = {LAPLACE.norm: _check_laplace, GAUSSIAN.norm: _check_gaussian}
"""By the norm of the noise."""


def _rows_of_one_cell(stored: StoredIntegers) -> tuple[IntArray, IntArray]:
    """Entries and budgets of the rows that hold the middle cell, largest weight first."""
    view, linear, terms = stored
    shape = tuple(strategy.leaves for strategy in terms.strategies)
    cell = np.zeros(shape, np.int64)
    cell[tuple(n // 2 for n in shape)] = 1
    column, budget = linear.measure(cell, terms.strategies).ravel(), view.budget.ravel()
    order = np.argsort(-np.abs(column) * budget)[:ROWS]
    rows = order[column[order] != 0]
    return column[rows], budget[rows]
