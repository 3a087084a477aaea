"""The numeric clones bound against the shared vectors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpsql.mechanisms.local.shuffle import shuffled_epsilon

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "local.json").read_text())


@pytest.mark.parametrize(
    ("people", "delta", "key"), [(100_000, 1e-6, "n1e5_delta1e-6"), (10_000, 1e-6, "n1e4_delta1e-6")]
)
def test_shuffled_epsilons(people: int, delta: float, key: str) -> None:
    for local, central in VECTORS["shuffle_eps_c"][key].items():
        assert shuffled_epsilon(people, float(local), delta) == pytest.approx(central, rel=0.01)


def test_few_people_get_no_amplification() -> None:
    assert shuffled_epsilon(3, 1.0, 1e-9) == pytest.approx(1.0)
