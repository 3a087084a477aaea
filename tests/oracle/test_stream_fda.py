"""FDA against its own dual, and against the vectors."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpsql.mechanisms.axis.tree import path_sums, split
from dpsql.mechanisms.continual.prefixes import NoiseNodes, fda_strategy, fenwick_nodes
from dpsql.mechanisms.continual.time_tree import UNIT, TimeStrategy, exponent, share_variance, tree_strategy
from dpsql.mechanisms.distribution import GAUSSIAN as G
from dpsql.mechanisms.distribution import LAPLACE as L
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.tree import FloatArray, IntArray
from tests.time_forms import decoder_matrix, fda_error, fda_share, mean_error, strategy_matrix

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "continual.json").read_text())


@pytest.mark.parametrize("n", [*range(1, 64), 100, 365, 1000, 1023])
def test_dual_certificate(n: int) -> None:
    """A feasible dual point of the same value, its multipliers on odd columns: no better split exists."""
    cover = strategy_matrix(n)
    uses = fenwick_nodes(n).uses
    shares = np.array([fda_share(n, i) for i in range(1, n + 1)])
    assert (cover.T @ shares <= 1 + 1e-12).all()
    assert np.allclose((cover.T @ shares)[::2], 1)
    multiplier = np.zeros(n)
    multiplier[::2] = 2 * uses[::2] / shares[::2] ** 3
    pull = cover @ multiplier
    assert np.allclose(pull, 2 * uses / shares**3)  # stationarity
    dual = float((3 * uses ** (1 / 3) * (pull / 2) ** (2 / 3)).sum() - multiplier.sum())
    assert dual == pytest.approx(fda_error(n), rel=1e-9)


def test_vectors() -> None:
    for m, error in enumerate(VECTORS["err_m"], start=1):
        assert fda_error(2**m - 1) == pytest.approx(error, rel=1e-12)
    for n, error in VECTORS["err_N"].items():
        assert fda_error(int(n)) == pytest.approx(error, abs=1e-8)
    for n, value in VECTORS["sigma_identity_value"].items():
        nodes = fenwick_nodes(int(n))
        assert int(nodes.uses.sum()) * int(n).bit_length() ** 2 == value
    for n, shares in VECTORS["lambda"].items():
        numbered = shares if isinstance(shares, dict) else dict(enumerate(shares, start=1))
        for i, share in numbered.items():
            assert fda_share(int(n), int(i)) == pytest.approx(share, abs=2e-12)
            assert float(share_of(fda_strategy(L, int(n)), int(i))) == pytest.approx(share, abs=2e-8)


def test_seed_example_of_three_batches() -> None:
    cover, decode = strategy_matrix(3), decoder_matrix(3)
    assert cover.tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    assert decode.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    uses = (decode**2).sum(axis=0)
    example = VECTORS["seed_example_N3"]
    assert 2 * int(uses.sum()) * 2**2 == example["sigma_identity"]
    assert 2 * 2**2 * float((uses / np.array([1, 1, 2]) ** 2).sum()) == example["third_row_doubled"]
    assert 2 * fda_error(3) == pytest.approx(example["optimum"], abs=5e-5)


def test_day_and_block_vector() -> None:
    tree = tree_strategy(L, (1, 28), (6, 4))
    wanted = VECTORS["blocks_365"]
    assert mean_error(tree, 365, "prefix") == pytest.approx(wanted["prefix"], abs=1)
    assert mean_error(tree, 365, "range") == pytest.approx(wanted["range"], abs=1)
    assert mean_error(tree, 365, "1") == pytest.approx(wanted["day"], abs=0.05)
    assert mean_error(tree, 365, "30") == pytest.approx(wanted["days30"], abs=0.5)


def share_of(strategy: TimeStrategy, number: int) -> Fraction:
    """lambda_i, of the node that batch i - 1 publishes."""
    return strategy.emissions(number - 1)[0].reads[0].share


def forest_split(nodes: NoiseNodes, law: NoiseDistribution) -> FloatArray:
    """The shares of nodes by the split theorem, in floating point."""
    tree, place = nodes.forest
    uses = np.zeros(tree.size)
    uses[place] = nodes.uses
    return split(tree, uses, law)[place]


def forest_sums(nodes: NoiseNodes, budget: IntArray) -> IntArray:
    """Sum of the budgets from each node up."""
    tree, place = nodes.forest
    spent = np.zeros(tree.size, np.int64)
    spent[place] = budget
    return path_sums(tree, spent)[place]


@pytest.mark.parametrize("law", [L, G], ids=lambda law: str(law.name))
@pytest.mark.parametrize("n", [1, 2, 3, 10, 63, 365, 1000, 4095])
def test_closed_form_is_the_split_theorem(n: int, law: NoiseDistribution) -> None:
    nodes, power = fenwick_nodes(n), exponent(law)
    shares = forest_split(nodes, law)
    budgets = fda_strategy(law, n)
    integers = np.array([share_of(budgets, i) * UNIT for i in range(1, n + 1)], np.int64)
    assert np.allclose(shares, integers / UNIT, atol=2e-8)  # a few units of 2^-30
    optimum = nodes.uses @ share_variance(law, shares)
    assert optimum == pytest.approx(fda_error(n, power), rel=1e-12)
    for i in np.unique(np.linspace(1, n, 40).astype(int)).tolist():
        assert fda_share(n, i, power) == pytest.approx(shares[i - 1], rel=1e-12)
    sums = forest_sums(nodes, integers)
    assert sums.max() <= UNIT and (sums[nodes.parent < 0] == integers[nodes.parent < 0]).all()
    for batch in (-1, n):
        with pytest.raises(ValueError, match="no budget left"):
            budgets.emissions(batch)
