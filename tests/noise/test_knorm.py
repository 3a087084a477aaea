"""Joint draws against enumerated laws, their acceptance, and the integers all the way through."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dpsql.errors import InternalError
from dpsql.noise import insecure_test_entropy
from dpsql.noise.knorm import joint_rows

VECTORS = Path(__file__).parents[1] / "vectors"
T = 1 << 20


def vectors(name: str, key: str) -> list[dict]:
    return json.loads((VECTORS / f"joint_{name}.json").read_text())[key]


def ones(size: int, rate: float) -> np.ndarray:
    return np.full(size, round(rate * T), dtype=np.int64)


@pytest.mark.parametrize("law", vectors("rows", "rows"), ids=lambda law: f"{law['eps']}-{law['M']}")
def test_pairs_have_the_enumerated_law(law: dict) -> None:
    size, bound = 200_000, law["M"]
    count, total = joint_rows(ones(size, law["eps"]), T, [1, bound], insecure_test_entropy(7))
    assert count.dtype == total.dtype == np.int64
    for values, variance in ((count, law["var_count"]), (total, law["var_sum"])):
        assert np.var(values) == pytest.approx(variance, rel=5 * np.sqrt(4 / size))
        assert abs(np.mean(values)) < 5 * np.sqrt(variance / size)
    for point, chance in (((0, 0), law["p00"]), ((1, 0), law["p_1_0"]), ((0, bound), law["p_0_M"])):
        seen = np.count_nonzero((count == point[0]) & (total == point[1])) / size
        assert abs(seen - chance) < 5 * np.sqrt(chance / size)
    product = np.mean(count.astype(float) * total)
    assert abs(product) < 5 * np.sqrt(law["var_count"] * law["var_sum"] * 3 / size)


@pytest.mark.parametrize(
    "numbers, variance", [(1, 2.0), (2, 4.0), (3, 20 / 3), pytest.param(4, 10.0, marks=pytest.mark.slow)]
)
def test_a_joint_draw_has_the_variance_of_a_cube(numbers: int, variance: float) -> None:
    size, rate = 100_000, 0.05
    draws = joint_rows(ones(size, rate), T, [3] * numbers, insecure_test_entropy(8))
    assert draws.shape == (numbers, size)
    assert np.var(draws / 3, axis=1) * rate**2 == pytest.approx([variance] * numbers, rel=0.05)


def test_a_joint_row_without_budget_or_bound_is_refused() -> None:
    for units, bounds in ((np.zeros(1, np.int64), [1, 1]), (np.ones(1, np.int64), [1, 0])):
        with pytest.raises(InternalError):
            joint_rows(units, T, bounds, insecure_test_entropy(1))
