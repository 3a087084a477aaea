"""The stack on columns that people round: spikes over a smooth histogram, and the fit behind them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.local.simulated import tally as tally_of
from dpsql.client.plan import largest_weight
from dpsql.local.mechanisms import blue, truncation
from dpsql.local.mechanisms import priors as smooth
from dpsql.local.mechanisms.priors import SOFT, Penalty, difference, misfit, softmax, spiky_smooth
from dpsql.local.oracles import SquareWaveAggregator, choose_oracle, wave_matrix, wave_reach
from dpsql.local.oracles.oracle import estimate
from dpsql.local.smooth import outside

pytestmark = pytest.mark.usefixtures("publishes")

LEAVES = 60
W1 = largest_weight(Fraction(1))


def rounded() -> np.ndarray:
    """A bell whose multiples of five stand out, and one value that 45% of all people have."""
    at = np.arange(LEAVES)
    bell = np.exp(-((at - 28) ** 2) / 200) * np.where(at % 5 == 0, 8.0, 1.0)
    return np.asarray(0.55 * bell / bell.sum() + 0.45 * (at == 25))


def reports(people: int, shares: np.ndarray, rng: np.random.Generator) -> list[blue.ViewReports]:
    """`people` a tree level, and as many again who send Square Wave."""
    found = []
    for edges in truncation.level_edges(LEAVES, 4):
        design = blue.cell_design(edges, LEAVES)
        tool = choose_oracle(len(design), W1)
        histogram = (design @ rng.multinomial(people, shares)).astype(int)
        tally = tally_of(tool, histogram, rng).astype(float)
        found.append(blue.ViewReports(design, estimate(tool, tally, people), people, tool))
    tool = SquareWaveAggregator(LEAVES, W1, wave_reach(LEAVES, 1.0))
    tally = tally_of(tool, np.append(rng.multinomial(people, shares), 0), rng)
    return [*found, blue.ViewReports(wave_matrix(tool), tally / people, people, tool)]


def equations_of(groups: list[blue.ViewReports]) -> blue.System:
    return blue.system(groups, np.full(LEAVES, 1 / LEAVES), tilted=False)


def test_spikes_over_a_bell_are_kept_and_the_rest_is_smoothed() -> None:
    """Priors without spikes hardly beat least squares over the simplex here: they reach 0.97 of its error."""
    shares, workload = rounded(), blue.range_workload(LEAVES)
    stacked, plain, missed = [], [], []
    for run in range(4):
        rng = np.random.default_rng(run)
        folds = [reports(5000, shares, rng) for _ in range(4)]
        found = smooth.stack(folds, LEAVES).shares
        stacked.append((found - shares) @ workload @ (found - shares))
        known = blue.blue(smooth.pooled(folds)).covariance
        missed.append(outside(shares, blue.ShareEstimate(found, known)))
        off = blue.simplex_fit(*equations_of(smooth.pooled(folds))) - shares
        plain.append(off @ workload @ off)
    assert np.mean(stacked) < 0.85 * np.mean(plain)
    assert np.mean(missed) < 0.05  # its error bars are the unbiased estimate's


def test_a_prior_with_spikes_comes_nearer_than_any_without() -> None:
    shares, workload, errors = rounded(), blue.range_workload(LEAVES), []
    for run in range(8):
        fits = smooth.candidates(equations_of(reports(20_000, shares, np.random.default_rng(run))), LEAVES)
        errors.append([(x - shares) @ workload @ (x - shares) for x in fits])
    first = 1 + len(smooth.penalties(LEAVES))
    means = np.mean(errors, axis=0)
    assert means[first:-1].min() < 0.9 * means[:first].min()


def test_splits_come_nearer_than_smooth_priors_where_long_stretches_are_empty() -> None:
    """Fourteen uneven leaves in two stretches; the special leaf at the end stays free."""
    rng, workload, errors = np.random.default_rng(3), blue.range_workload(LEAVES), []
    shares = np.zeros(LEAVES)
    shares[4:14], shares[40:44] = rng.exponential(size=10), rng.exponential(size=4)
    shares[-1] = 0.25 * shares.sum()
    shares /= shares.sum()
    for run in range(6):
        groups = reports(10_000, shares, np.random.default_rng(run))
        fits = smooth.candidates(equations_of(groups), LEAVES - 1)
        errors.append([(x - shares) @ workload @ (x - shares) for x in fits])
        assert fits[-1][-1] == pytest.approx(0.2, abs=0.05)
    means = np.mean(errors, axis=0)
    assert means[-1] < 0.9 * means[: 1 + len(smooth.penalties(LEAVES))].min()


def test_the_usual_priors_are_where_they_are_said_to_be() -> None:
    kinks, spikes, splits = smooth.USUAL
    bends = smooth.penalties(LEAVES)
    assert bends[kinks - 1] == smooth.Penalty(2, 10 * LEAVES / 256, absolute=True)
    assert spikes == len(bends) + len(smooth.spiky_priors(LEAVES))
    assert splits == spikes + 1


def test_the_misfit_s_slope_is_its_derivative() -> None:
    rng = np.random.default_rng(4)
    equations = equations_of(reports(1000, rounded(), rng))
    logs, step = rng.normal(size=LEAVES), 1e-5 * rng.normal(size=LEAVES)
    rise = misfit(equations, logs + step)[0] - misfit(equations, logs - step)[0]
    assert rise == pytest.approx(2 * float(misfit(equations, logs)[1] @ step), rel=1e-4)


def test_a_lone_spike_is_found_and_its_neighbours_stay_smooth() -> None:
    bell = np.exp(-((np.arange(LEAVES) - 30) ** 2) / 150)
    shares = 0.6 * bell / bell.sum() + 0.4 * (np.arange(LEAVES) == 20)
    known = 2e-3  # standard error of every leaf
    precision = np.eye(LEAVES) / known**2
    noise = np.random.default_rng(5).normal(scale=known, size=LEAVES)
    equations, weight = blue.System(precision, precision @ (shares + noise)), 1e6 * (LEAVES / 256) ** 5
    logs = spiky_smooth(equations, Penalty(3, weight, spike=3.0), LEAVES, np.zeros(LEAVES))
    bent = smooth.log_smooth(equations, smooth.Penalty(3, weight), LEAVES, np.zeros(LEAVES))
    off, without = softmax(logs) - shares, softmax(bent) - shares
    assert abs(off[20]) < 2 * known
    assert np.sqrt(np.mean(off**2)) < 0.65 * known < 0.1 * np.sqrt(np.mean(without**2))


@pytest.mark.parametrize("spike", [0.5, 5.0])
def test_the_fit_is_a_minimum_and_special_leaves_are_free(spike: float) -> None:
    rng = np.random.default_rng(6)
    kept = LEAVES - 1
    shares = 0.8 * rounded() + 0.2 * (np.arange(LEAVES) == kept)
    equations, prior = equations_of(reports(3000, shares, rng)), Penalty(3, 1e3, spike=spike)
    logs = spiky_smooth(equations, prior, kept, np.zeros(LEAVES))
    rough = difference(LEAVES, 3, kept)
    stiff = prior.weight * rough.T @ rough

    def objective(logs: np.ndarray) -> float:
        """The best split of the logs into both parts, by reweighting."""
        tall = np.zeros(LEAVES)
        for _ in range(300):
            hold = np.diag(prior.spike / np.sqrt(tall**2 + SOFT**2))
            tall = np.linalg.solve(stiff + hold, stiff @ logs)
        even = logs - tall
        spikes = prior.spike * np.sqrt(tall**2 + SOFT**2).sum()
        return float(misfit(equations, logs)[0] + even @ stiff @ even / 2 + spikes)

    here = objective(logs)
    for size in (1e-2, 0.1):
        assert all(objective(logs + size * rng.normal(size=LEAVES)) > here for _ in range(5))
    alone = np.eye(LEAVES)[-1]
    assert min(objective(logs + alone), objective(logs - alone)) > here + 1
    assert softmax(logs)[-1] == pytest.approx(0.2, abs=0.03)
