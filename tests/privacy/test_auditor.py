"""The auditor finds every planted bug in every strategy of an axis, and none in what ships."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.baselines.common import SimulationNoise
from dpsql.curator.audit import blackbox as audit
from dpsql.errors import InterfaceError
from dpsql.matrices.strategy import Strategy
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.axis.optimised_tree import optimise_levels
from dpsql.mechanisms.axis.tents import tents
from dpsql.mechanisms.axis.tree import best_struct_construct, equal_strategy, tree_strategy
from dpsql.mechanisms.designs import adaptive
from dpsql.mechanisms.offers import draw_view
from dpsql.noise import Noise, noised
from dpsql.tree import kary_tree
from tests.strategies import by_word

SAMPLES = 20_000
EPSILON = Fraction(1)
CELLS = 8
ROOTED = tree_strategy(kary_tree(CELLS, 4), optimise_levels(kary_tree(CELLS, 4))[0])


STRATEGIES: dict[str, Strategy] = {
    "identity": leaf_strategy(CELLS),
    "lue_dptree": by_word(CELLS, "lue_dptree").strategy,
    "struct_construct": equal_strategy(best_struct_construct(CELLS)),
    "optimised tree": ROOTED,
    "tents": tents(CELLS, (2,)),
    "hb": adaptive.tapered_strategy(kary_tree(CELLS, 3), 1.0),
    "tapered": adaptive.tapered_strategy(kary_tree(CELLS, 3), 1.5),
}


@dataclass
class Planted:
    """Noise of half the scale, or the first row of every draw left without noise; or what ships."""

    inner: Noise
    plant: str
    runs: int
    insecure = True

    def laplace(self, units: np.ndarray, denominator: int, exact: np.ndarray | None = None) -> np.ndarray:
        drawn = self.inner.laplace(2 * units if self.plant == "halved" else units, denominator)
        drawn[: self.runs if self.plant == "bare" else 0] = 0
        return noised(exact, drawn)


def strategy_sampler(strategy: Strategy, plant: str) -> audit.Sampler:
    """Many runs in one draw: the copies are an axis of their own that is measured cell by cell."""

    def sample(data: np.ndarray, size: int) -> np.ndarray:
        noise = Planted(SimulationNoise(int(data.sum()) + size), plant, size)
        copies = np.repeat(data[:, None], size, axis=1)
        drawn = [strategy, leaf_strategy(size)]
        runs = 2 if plant == "twice" else 1
        return np.concatenate(
            [draw_view(copies, drawn, EPSILON, 1, noise).value.T for _ in range(runs)], axis=1
        )

    return sample


def finding(name: str, plant: str) -> audit.AuditFinding:
    data = np.arange(CELLS)
    pair = (data, data + np.eye(CELLS, dtype=np.int64)[0])
    return audit.audit(strategy_sampler(STRATEGIES[name], plant), pair, float(EPSILON), SAMPLES)


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_ships_passes(name: str) -> None:
    found = finding(name, "none")
    assert not found.violated
    assert found.lower > 0.1  # it does look


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("plant", ["halved", "twice", "bare"])
def test_planted_bugs_are_found(name: str, plant: str) -> None:
    assert finding(name, plant).violated


def test_bounds_are_clopper_and_pearsons() -> None:
    from scipy.stats import beta

    for hits, size in [(0, 10), (3, 10), (10, 10), (700, 7000), (1, 7000)]:
        low, high = audit.exact_bounds(hits, size, 0.01)
        assert low == pytest.approx(0.0 if hits == 0 else beta.ppf(0.01, hits, size - hits + 1), abs=1e-9)
        assert high == pytest.approx(1.0 if hits == size else beta.ppf(0.99, hits + 1, size - hits), abs=1e-9)


@pytest.mark.parametrize(("samples", "delta"), [(50, 0.0), (100, -0.1), (100, 1.0)])
def test_too_few_samples_and_a_delta_outside_its_range_are_refused(samples: int, delta: float) -> None:
    with pytest.raises(
        InterfaceError, match="100 samples or more, a confidence between 0 and 1, and a delta"
    ):
        audit.audit(
            lambda data, size: np.zeros((size, 1)), (np.zeros(1), np.ones(1)), 1.0, samples, delta=delta
        )


@pytest.mark.parametrize(("samples", "confidence"), [(400, 0.95), (1_000, 0.9)])
def test_outputs_that_never_agree_have_the_closed_bound(samples: int, confidence: float) -> None:
    """All n held-out outputs of one side, none of the other's: Clopper and Pearson give risk^(1/n), and the rest to 1.

    Each side has half of the risk.
    """
    zeros, ones = np.zeros((samples, 1)), np.ones((samples, 1))
    low = ((1 - confidence) / 2) ** (1 / (samples - int(audit.LEARN * samples)))
    assert audit.lower_bound(zeros, ones, confidence) == pytest.approx(np.log(low / (1 - low)), rel=1e-9)
