"""The auditor finds every planted bug in every central mechanism, and none in what ships."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from benchmarks.baselines.common import SimulationNoise
from dpsql.curator.audit import blackbox as audit
from dpsql.errors import InterfaceError
from dpsql.matrices.nonnegative import signal_tree
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.optimised_tree import optimise_levels
from dpsql.mechanisms.axis.strategy import AxisStrategy, draw_view
from dpsql.mechanisms.axis.struct_construct import best_struct_construct, equal_strategy
from dpsql.mechanisms.axis.tents import tents
from dpsql.mechanisms.axis.tree import tree_strategy
from dpsql.mechanisms.designs import adaptive, diffhr
from dpsql.noise import Noise, noised
from dpsql.tree import kary_tree
from tests.strategies import by_word

SAMPLES = 20_000
EPSILON = Fraction(1)
CELLS = 8
ROOTED = tree_strategy(kary_tree(CELLS, 4), optimise_levels(kary_tree(CELLS, 4))[0])

TAPERED = {3: adaptive.tapered_strategy(signal_tree(3), 1.5)}  # one strategy whatever the numbers say


STRATEGIES: dict[str, AxisStrategy] = {
    "identity": LeafStrategy(CELLS),
    "lue_dptree": by_word(CELLS, "lue_dptree").strategy,
    "struct_construct": equal_strategy(best_struct_construct(CELLS)),
    "optimised tree": ROOTED,
    "tents": tents(CELLS, (2,)),
    "hb": adaptive.tapered_strategy(kary_tree(CELLS, 3), 1.0),
    "tapered": adaptive.tapered_strategy(kary_tree(CELLS, 3), 1.5),
}


@dataclass
class Halved:
    """Planted: half the noise scale."""

    inner: Noise
    insecure = True

    def laplace(self, units: np.ndarray, denominator: int, exact: np.ndarray | None = None) -> np.ndarray:
        return self.inner.laplace(2 * units, denominator, exact)


@dataclass
class Bare:
    """Planted: the first row of every draw is left without noise."""

    inner: Noise
    runs: int
    insecure = True

    def laplace(self, units: np.ndarray, denominator: int, exact: np.ndarray | None = None) -> np.ndarray:
        drawn = self.inner.laplace(units, denominator)
        drawn[: self.runs] = 0
        return noised(exact, drawn)


def strategy_sampler(strategy: AxisStrategy, plant: str) -> audit.Sampler:
    """Many runs in one draw: the copies are an axis of their own that is measured cell by cell."""

    def sample(data: np.ndarray, size: int) -> np.ndarray:
        noise: Noise = SimulationNoise(int(data.sum()) + size)
        noise = {"halved": Halved(noise), "bare": Bare(noise, size)}.get(plant, noise)
        copies = np.repeat(data[:, None], size, axis=1)
        runs = [draw_view(copies, [strategy, LeafStrategy(size)], EPSILON, 1, noise).value.T]
        if plant == "twice":
            runs.append(draw_view(copies, [strategy, LeafStrategy(size)], EPSILON, 1, noise).value.T)
        return np.concatenate(runs, axis=1)

    return sample


def run_sampler(name: str, plant: str) -> audit.Sampler:
    """One call a run, for mechanisms whose second step depends on the first."""

    def sample(data: np.ndarray, size: int) -> np.ndarray:
        if plant == "twice":
            parts = [draws(name, "none", tuple(data.tolist()), size, part) for part in (0, 1)]
            return np.concatenate(parts, axis=1)
        return draws(name, plant, tuple(data.tolist()), size, 0)

    return sample


@cache
def draws(name: str, plant: str, cells: tuple[int, ...], size: int, part: int) -> np.ndarray:
    """Independent runs; "none" is drawn once for two tests."""
    noise: Noise = SimulationNoise(2 * sum(cells) + part)
    noise = {"halved": Halved(noise), "bare": Bare(noise, 1)}.get(plant, noise)
    data = np.array(cells)
    return np.stack([RUNS[name](data, noise) for _ in range(size)])


def diffhr_run(data: np.ndarray, noise: Noise) -> np.ndarray:
    """The view, the groups and each cell's group sum."""
    release = diffhr.draw_diffhr(data, EPSILON, 1, noise)
    return np.concatenate([release.view, release.group, release.total[release.group]])


def signal_run(data: np.ndarray, noise: Noise) -> np.ndarray:
    """Both noisy numbers and the noisy nodes."""
    release = adaptive.draw_adaptive(data, EPSILON, 1, noise, TAPERED.__getitem__)
    return np.concatenate([release.signal.numbers, release.view.value])


RUNS = {"diffhr": diffhr_run, "adaptive": signal_run}
DATA = {"diffhr": [0, 900], "adaptive": [5, 0, 40]}


def finding(name: str, plant: str) -> audit.AuditFinding:
    if name in STRATEGIES:
        data, sampler = np.arange(CELLS), strategy_sampler(STRATEGIES[name], plant)
    else:
        data, sampler = np.array(DATA[name]), run_sampler(name, plant)
    more = data.copy()
    more[0] += 1
    return audit.audit(sampler, audit.NeighbourPair(data, more), float(EPSILON), SAMPLES)


@pytest.mark.parametrize(
    "name",
    [
        *STRATEGIES,
        *(pytest.param(n, marks=pytest.mark.slow if n == "adaptive" else ()) for n in RUNS),
    ],
)
def test_what_ships_passes(name: str) -> None:
    found = finding(name, "none")
    assert not found.violated
    assert found.lower > 0.1  # it does look


QUICK = {"diffhr": "halved", "adaptive": "bare"}
"""The plant that the default suite looks for where a run is drawn one at a time."""
PLANTED = [
    pytest.param(name, plant, marks=pytest.mark.slow if QUICK.get(name, plant) != plant else ())
    for name in (*STRATEGIES, *RUNS)
    for plant in ("halved", "twice", "bare")
]


@pytest.mark.parametrize(("name", "plant"), PLANTED)
def test_planted_bugs_are_found(name: str, plant: str) -> None:
    assert finding(name, plant).violated


def test_bounds_are_clopper_and_pearsons() -> None:
    from scipy.stats import beta

    for hits, size in [(0, 10), (3, 10), (10, 10), (700, 7000), (1, 7000)]:
        low, high = audit.exact_bounds(hits, size, 0.01)
        assert low == pytest.approx(0.0 if hits == 0 else beta.ppf(0.01, hits, size - hits + 1), abs=1e-9)
        assert high == pytest.approx(1.0 if hits == size else beta.ppf(0.99, hits + 1, size - hits), abs=1e-9)


def test_the_bound_is_honest() -> None:
    """Outputs of one law on both sides: 300 audits at 90% may be above 0 for at most about 30."""
    rng = np.random.default_rng(3)
    wrong = sum(
        audit.lower_bound(rng.laplace(size=(400, 3)), rng.laplace(size=(400, 3)), 0.9) > 0 for _ in range(300)
    )
    assert wrong <= 45


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(InterfaceError):
        audit.audit(
            lambda data, size: np.zeros((size, 1)), audit.NeighbourPair(np.zeros(1), np.ones(1)), 1.0, 50
        )
