"""The auditor on everything that is drawn under a delta: nothing that ships is found, every planted bug is.

A promise of mu^2 is a promise of (epsilon, delta) at every delta; it is held to account at the delta where samples tell
most. Noise is the exact sampler that releases are made with.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import isqrt, prod

import numpy as np
import pytest
from scipy.special import ndtr

from dpsql.budget.curve import epsilon_of, mu2_of
from dpsql.curator.audit import blackbox as audit
from dpsql.matrices.strategy import Strategy, measure
from dpsql.mechanisms.axis.dense import dense_strategy, sine_strategy, zero_sum_strategy
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.axis.optimised_tree import optimise_levels
from dpsql.mechanisms.axis.tree import tree_strategy
from dpsql.mechanisms.designs.weighted_leaves import shape_strategy
from dpsql.mechanisms.distribution import GAUSSIAN
from dpsql.noise import ExactNoise, Noise, insecure_test_entropy, noised
from dpsql.tree import kary_tree
from tests.strategies import draw_at
from tests.thinned import by_default

SAMPLES = 20_000
MU2 = audit.TELLING_MU2
REACH = 100  # stored units of one record: cents
CELLS = 8
TREE = kary_tree(CELLS, 4)
LONG = kary_tree(101, 11)  # past `shape.LONG`, where a user-level axis gets its second level

STRATEGIES: dict[str, list[Strategy]] = {
    "identity": [leaf_strategy(CELLS, 2)],
    "tree": [tree_strategy(TREE, optimise_levels(TREE, GAUSSIAN)[0], norm=2)],
    "dense": [dense_strategy(CELLS)],
    "sine": [sine_strategy(CELLS)],
    "two axes": [tree_strategy(kary_tree(4, 2), np.full(7, 0.5), norm=2), leaf_strategy(3, 2)],
    "zero-sum rows": [zero_sum_strategy(CELLS)],
    "residual set": [zero_sum_strategy(4), zero_sum_strategy(3)],
    "user-level shape": [shape_strategy(LONG.n, GAUSSIAN).strategy],
}


@dataclass
class Planted:
    """Exact noise with a bug."""

    plant: str
    runs: int
    inner: Noise
    insecure = True

    def gaussian(self, sigma2: Fraction, size: int, exact: np.ndarray | None = None) -> np.ndarray:
        if self.plant == "scaled by .6":
            sigma2 = sigma2 * Fraction(36, 100)
        if self.plant == "sigma for its square":
            sigma2 = Fraction(isqrt(int(sigma2)) + 1)
        drawn = self.inner.gaussian(sigma2, size)
        if self.plant == "a row left bare":
            drawn[: self.runs] = 0
        if self.plant == "one draw for all rows":
            drawn = np.tile(drawn[: self.runs], size // self.runs)
        return noised(exact, drawn)


@cache
def columns(name: str) -> np.ndarray:
    """Weighted entries of every row in every cell, shape (rows, cells)."""
    strategies = STRATEGIES[name]
    shape = [s.leaves for s in strategies]
    cells = np.eye(int(np.prod(shape)), dtype=np.int64).reshape(*shape, -1)
    for axis, strategy in enumerate(strategies):
        weight = strategy.budget.reshape([-1 if i == axis else 1 for i in range(cells.ndim)])
        cells = measure(strategy, cells, axis) * weight
    return cells.reshape(-1, cells.shape[-1])


def dearest(name: str) -> int:
    """The cell whose record costs most."""
    return int(np.argmax((columns(name).astype(np.float64) ** 2).sum(axis=0)))


def variance(name: str, plant: str) -> Fraction:
    """sigma^2 of a row of budget 1; the bug leaves the weightiest row out of the column norm."""
    squared = prod(strategy.total for strategy in STRATEGIES[name]) ** 2
    if plant == "a node forgotten":
        squared -= int(np.abs(columns(name)[:, dearest(name)]).max()) ** 2
    return Fraction(squared * REACH**2) / MU2


def view_sampler(name: str, plant: str) -> audit.Sampler:
    """Many runs in one draw: the copies are one more axis, measured cell by cell."""
    strategies = STRATEGIES[name]
    shape = tuple(s.leaves for s in strategies)

    def sample(data: np.ndarray, size: int) -> np.ndarray:
        noise: Noise = ExactNoise(insecure_test_entropy(int(data.sum()) + size))
        copies = np.repeat(data.reshape(shape)[..., None], size, axis=-1)
        one_each = leaf_strategy(size, 2)
        drawn = [*strategies, one_each]
        runs = []
        for _ in range(2 if plant == "drawn twice" else 1):
            strength = variance(name, plant) * one_each.total**2
            view = draw_at(copies, drawn, strength, REACH, Planted(plant, size, noise))
            assert view.value.dtype == np.int64  # no float is ever added
            runs.append(view.value.reshape(-1, size).T)
        return np.concatenate(runs, axis=1)

    return sample


def finding(name: str, plant: str, samples: int = SAMPLES) -> audit.AuditFinding:
    data = REACH * np.arange(columns(name).shape[1], dtype=np.int64)
    more = data.copy()
    more[dearest(name)] += REACH
    return audit.audit_mu2(view_sampler(name, plant), (data, more), MU2, samples)


@pytest.mark.parametrize("name", by_default(STRATEGIES, 4))
def test_what_ships_passes(name: str) -> None:
    found = finding(name, "none")
    assert not found.violated
    assert found.lower > 0.3 * found.claimed  # it does look, and the noise is not far too large either


PLANTS = [
    "scaled by .6", "sigma for its square", "drawn twice", "a row left bare", "a node forgotten",
    "one draw for all rows",
]  # fmt: skip
QUICK = [("identity", PLANTS[0], 1), ("tree", PLANTS[4], 1), ("dense", PLANTS[1], 1)]
EVERY = [
    pytest.param(name, plant, 5, marks=pytest.mark.slow)
    for name in STRATEGIES
    for plant in PLANTS
    if columns(name).shape[0] > CELLS or plant != PLANTS[4]
]


@pytest.mark.parametrize(("name", "plant", "times"), [*QUICK, *EVERY])
def test_every_planted_bug_is_found_in_every_strategy(name: str, plant: str, times: int) -> None:
    """Drawing twice doubles mu^2, which takes more samples to see than noise of .6 of its scale."""
    assert finding(name, plant, times * SAMPLES).violated


def gaussian_epsilon(shift: float, delta: float) -> float:
    """The epsilon of a Gaussian at one delta, from its closed form."""
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        cut = middle / shift
        spent = ndtr(shift / 2 - cut) - np.exp(middle) * ndtr(-shift / 2 - cut)
        low, high = (middle, high) if spent > delta else (low, middle)
    return high


@pytest.mark.parametrize("delta", by_default([0.02, 0.0, 0.1], 1))
def test_the_bound_at_a_delta_is_honest(delta: float) -> None:
    """200 audits at 90% may pass the true epsilon about 20 times; the two shares of the risk make it fewer."""
    rng = np.random.default_rng(3)
    truth = gaussian_epsilon(1.0, delta) if delta else 0.0
    shift = 1.0 if delta else 0.0
    runs = [rng.normal(size=(2, 400, 3)) for _ in range(200)]
    for run in runs:
        run[0, :, 1] += shift
    wrong = sum(audit.lower_bound(run[0], run[1], 0.9, delta) > truth for run in runs)
    assert wrong <= 32


def test_the_promise_is_the_tight_conversion() -> None:
    found = finding("identity", "none")
    assert found.delta == 0.1
    assert found.claimed == pytest.approx(float(epsilon_of(MU2, Fraction(1, 10))))
    # the conversion, the truth, what was seen
    assert found.claimed > gaussian_epsilon(1.0, 0.1) > found.lower


def test_a_rare_delta_shows_little() -> None:
    """At (1, 10^-6) samples see no event that is rare enough: that is why the audit looks elsewhere."""
    small = Fraction(1, 10**6)
    data = REACH * np.arange(CELLS, dtype=np.int64)
    more = data + REACH * np.eye(CELLS, dtype=np.int64)[0]
    sampler = view_sampler("identity", "scaled by .6")
    found = audit.audit_mu2(sampler, (data, more), MU2, SAMPLES, delta=small)
    assert mu2_of(Fraction(1), small) < MU2
    assert not found.violated
