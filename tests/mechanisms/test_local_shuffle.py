"""The numeric clones bound against the shared vectors."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from dpsql.local.mechanisms.truncation import _blocks, _delta, shuffled_epsilon

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "local.json").read_text())


@pytest.mark.parametrize(
    ("people", "delta", "key"), [(100_000, 1e-6, "n1e5_delta1e-6"), (10_000, 1e-6, "n1e4_delta1e-6")]
)
def test_shuffled_epsilons(people: int, delta: float, key: str) -> None:
    for local, central in VECTORS["shuffle_eps_c"][key].items():
        assert shuffled_epsilon(people, float(local), delta) == pytest.approx(central, rel=0.01)


def test_few_people_get_no_amplification() -> None:
    assert shuffled_epsilon(3, 1.0, 1e-9) == pytest.approx(1.0)


@pytest.mark.parametrize("people", [2, 7, 30])
@pytest.mark.parametrize("local", [0.3, 1.0, 3.0])
def test_the_divergence_is_bounded_by_brute_force(people: int, local: float) -> None:
    """Every count of clones and every outcome, without a window or a block."""
    truth, clone = math.exp(local) / (math.exp(local) + 1), math.exp(-local)
    for central in (0.0, 0.05, local / 2, local):
        exact = 0.0
        for clones in range(people):
            mass = math.comb(people - 1, clones) * clone**clones * (1 - clone) ** (people - 1 - clones)
            coin = [math.comb(clones, a) / 2**clones for a in range(clones + 1)]
            chance = [
                [
                    (coin[a - 1] if a else 0.0) * p + (coin[a] if a <= clones else 0.0) * (1 - p)
                    for a in range(clones + 2)
                ]
                for p in (truth, 1 - truth)
            ]
            exact += mass * sum(max(0.0, x - math.exp(central) * y) for x, y in zip(*chance, strict=True))
        blocks, missed = _blocks(people, local)
        assert exact * (1 - 1e-9) - 1e-12 <= _delta(blocks, missed, local, central) <= exact * 1.001 + 1e-9
