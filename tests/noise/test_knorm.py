"""Joint draws against enumerated laws, their acceptance, and the integers all the way through."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import numpy as np
import pytest

from dpsql.errors import InternalError
from dpsql.noise import insecure_test_entropy, knorm
from dpsql.noise.knorm import TreeNoise, joint_rows, joint_trees

VECTORS = Path(__file__).parents[1] / "vectors"
T = 1 << 20


def vectors(name: str, key: str) -> list[dict]:
    return json.loads((VECTORS / f"joint_{name}.json").read_text())[key]


def ones(size: int, rate: float) -> np.ndarray:
    return np.full(size, round(rate * T), dtype=np.int64)


def tree(arities: list[int], rates: list[int], t: int, *bounds: int) -> TreeNoise:
    return TreeNoise(tuple(arities), tuple(rates), t, bounds)


class Counted:
    """A test source that counts how many bytes were asked for."""

    def __init__(self, seed: int) -> None:
        self.source, self.total = insecure_test_entropy(seed), 0

    def __call__(self, size: int) -> bytes:
        self.total += size
        return self.source(size)


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


def test_coins_decided_by_fractions_have_the_same_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Floats decide nearly all coins. With a slack of a quarter fractions decide most, and the law stays."""
    monkeypatch.setattr(knorm, "_SLACK", 0.25)
    (law,) = [law for law in vectors("rows", "rows") if (law["eps"], law["M"]) == (1.0, 4)]
    size = 20_000
    count, total = joint_rows(ones(size, law["eps"]), T, [1, law["M"]], insecure_test_entropy(17))
    for values, variance in ((count, law["var_count"]), (total, law["var_sum"])):
        assert np.var(values) == pytest.approx(variance, rel=5 * np.sqrt(4 / size))
    for point, chance in (((0, 0), law["p00"]), ((1, 0), law["p_1_0"]), ((0, law["M"]), law["p_0_M"])):
        seen = np.count_nonzero((count == point[0]) & (total == point[1])) / size
        assert abs(seen - chance) < 5 * np.sqrt(chance / size)
    tree_law = vectors("tree", "tree")[0]
    rates = [round(rate * 1000) for rate in tree_law["rates"]]
    (leaves,) = joint_trees(tree(tree_law["arities"], rates, 1000, 1), size, insecure_test_entropy(18))
    expected = np.array(tree_law["covariance"])
    assert np.abs(np.cov(leaves.T) - expected).max() < 6 * expected.max() * np.sqrt(5 / size)


@pytest.mark.parametrize(
    "numbers, variance", [(1, 2.0), (2, 4.0), (3, 20 / 3), pytest.param(4, 10.0, marks=pytest.mark.slow)]
)
def test_a_joint_draw_has_the_variance_of_a_cube(numbers: int, variance: float) -> None:
    size, rate = 100_000, 0.05
    draws = joint_rows(ones(size, rate), T, [3] * numbers, insecure_test_entropy(8))
    assert draws.shape == (numbers, size)
    assert np.var(draws / 3, axis=1) * rate**2 == pytest.approx([variance] * numbers, rel=0.05)


@pytest.mark.parametrize("law", vectors("tree", "tree"), ids=lambda law: str(law["rates"]))
def test_trees_have_the_enumerated_covariance(law: dict) -> None:
    number, t = 60_000, 1000
    rates = [round(rate * t) for rate in law["rates"]]
    (leaves,) = joint_trees(tree(law["arities"], rates, t, 1), number, insecure_test_entropy(9))
    assert leaves.shape == (number, prod(law["arities"])) and leaves.dtype == np.int64
    expected = np.array(law["covariance"])
    slack = 6 * expected.max() * np.sqrt(5 / number)
    assert np.abs(np.cov(leaves.T) - expected).max() < slack
    chance = law["p_zero"]
    assert abs(np.mean(~leaves.any(axis=1)) - chance) < 5 * np.sqrt(chance / number)


def test_pairs_on_a_tree_have_the_enumerated_covariance() -> None:
    (law,) = vectors("tree_pairs", "tree_pairs")
    number, t = 60_000, 1000
    rates = [round(rate * t) for rate in law["rates"]]
    pairs = tree(law["arities"], rates, t, 1, law["M"])
    count, total = joint_trees(pairs, number, insecure_test_entropy(10))
    for values, variance, covariance in (
        (count, law["var_count"], law["cov_count"]),
        (total, law["var_sum"], law["cov_sum"]),
    ):
        matrix = np.cov(values.T)
        assert matrix[0, 0] == pytest.approx(variance, rel=0.06)
        assert matrix[0, 1] == pytest.approx(covariance, rel=0.15)
    assert abs(np.cov(count[:, 0], total[:, 0])[0, 1]) < 5 * np.sqrt(
        law["var_count"] * law["var_sum"] * 3 / number
    )


def test_a_group_that_fails_is_drawn_anew_with_its_leaves() -> None:
    """Draws a leaf, by entropy used, are those of the enumerated acceptance of each level."""
    t, law = 1 << 16, vectors("levels", "levels")[1]
    rates = [round(rate * t) for rate in law["rates"]]
    number, leaves = 2000, prod(law["arities"])
    plain = Counted(11)
    joint_rows(np.full(100_000, rates[-1], dtype=np.int64), t, [1], plain)
    spent = Counted(12)
    (drawn,) = joint_trees(tree(law["arities"], rates, t, 1), number, spent)
    ratio = spent.total / (number * leaves) / (plain.total / 100_000)
    assert ratio == pytest.approx(law["draws_a_leaf"], rel=0.1)  # coins take some bytes as well
    sums = drawn.reshape(number, 4, 16).sum(axis=2)
    variance = law["level_variance"]
    assert np.var(drawn.sum(axis=1)) == pytest.approx(variance[0], rel=6 * np.sqrt(3 / number))
    assert np.var(sums) == pytest.approx(variance[1], rel=0.1)
    assert np.var(drawn) == pytest.approx(variance[3], rel=0.05)


@pytest.mark.parametrize(
    "arities, rates, bounds",
    [([4, 4], [1, 1], [1]), ([4, 4], [1, 1, 15], [1]), ([4, 4], [-1, 1, 16], [1]), ([2], [1, 2], [1 << 60])],
)
def test_trees_that_integers_do_not_hold_are_refused(
    arities: list[int], rates: list[int], bounds: list[int]
) -> None:
    with pytest.raises(InternalError):
        joint_trees(tree(arities, rates, T, *bounds), 1, insecure_test_entropy(1))


def test_a_joint_row_without_budget_or_bound_is_refused() -> None:
    for units, bounds in ((np.zeros(1, np.int64), [1, 1]), (np.ones(1, np.int64), [1, 0])):
        with pytest.raises(InternalError):
            joint_rows(units, T, bounds, insecure_test_entropy(1))
