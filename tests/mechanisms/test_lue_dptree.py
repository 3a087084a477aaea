"""LUE-DPTree and SC: the split, least squares on trees, and their figures."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import CatalogError, InternalError
from dpsql.matrices import mean_variance
from dpsql.matrices.tree import TreeVariance, blue
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.axis.tree import (
    Containing,
    best_struct_construct,
    equal_error,
    equal_strategy,
    lue_dptree,
    split_budgets,
    stored_nodes,
    struct_construct,
    subtree_use,
    tree_strategy,
)
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, LAWS
from dpsql.mechanisms.offers import Word
from dpsql.tree import Tree, Workload, coverage, kary_tree, tree_from_arrays
from tests.strategies import by_word, column_bound, error_before_blue

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "central.json").read_text())
LOPSIDED = tree_from_arrays([0, 0, 1, 1, 2, 3], [4, 1, 3, 2, 3, 4], [-1, 0, 0, 2, 2, 0])


def node_matrix(tree: Tree) -> np.ndarray:
    leaf = np.arange(tree.n)
    return ((leaf >= tree.lo[:, None]) & (leaf < tree.hi[:, None])).astype(float)


def test_equal_budgets_before_least_squares():
    wanted = VECTORS["homoscedastic_error"]
    assert equal_error(kary_tree(3, 3)) == pytest.approx(wanted["n3_root_3leaves"])
    assert equal_error(kary_tree(3, 2)) == pytest.approx(wanted["n3_binary"])
    assert equal_error(kary_tree(4, 2)) == pytest.approx(wanted["n4_binary"])


def test_split_of_a_root_and_three_leaves():
    tree, wanted = kary_tree(3, 3), VECTORS["lue_split"][0]
    budget = split_budgets(tree, coverage(tree))
    assert budget == pytest.approx(wanted["eps"], abs=1e-12)
    assert error_before_blue(coverage(tree), budget) == pytest.approx(wanted["error_before_blue"], abs=1e-12)
    assert 2 * mean_variance(TreeVariance(tree, budget**2)) == pytest.approx(
        wanted["error_after_blue"], abs=1e-6
    )
    by_hand = np.array([1 / 3, 2 / 3, 2 / 3, 2 / 3])
    assert error_before_blue(coverage(tree), by_hand) == pytest.approx(wanted["hand_budgets_1_3_2_3"])


def test_split_of_a_complete_binary_tree():
    tree, wanted = kary_tree(4, 2), VECTORS["lue_split"][1]
    budget = split_budgets(tree, coverage(tree))
    assert budget[[0, 1, 3]] == pytest.approx(
        [wanted["eps_root"], wanted["eps_mid"], wanted["eps_leaf"]], abs=1e-6
    )
    assert error_before_blue(coverage(tree), budget) == pytest.approx(wanted["error_before_blue"], abs=1e-6)


def test_split_of_a_lopsided_tree():
    wanted = VECTORS["lue_split"][2]
    budget = split_budgets(LOPSIDED, coverage(LOPSIDED))
    named = {(int(a), int(b)): e for a, b, e in zip(LOPSIDED.lo, LOPSIDED.hi, budget, strict=True)}
    order = [(0, 4), (0, 1), (1, 3), (1, 2), (2, 3), (3, 4)]
    assert [named[key] for key in order] == pytest.approx(wanted["eps"], abs=1e-12)
    assert error_before_blue(coverage(LOPSIDED), budget) == pytest.approx(
        wanted["error_before_blue"], abs=1e-12
    )
    after = 2 * mean_variance(TreeVariance(LOPSIDED, budget**2))
    assert after == pytest.approx(wanted["error_after_blue"], abs=1e-6)
    by_hand = {(0, 4): 1 / 3, (0, 1): 2 / 3, (1, 3): 1 / 3, (1, 2): 1 / 3, (2, 3): 1 / 3, (3, 4): 2 / 3}
    hand = np.array([by_hand[int(a), int(b)] for a, b in zip(LOPSIDED.lo, LOPSIDED.hi, strict=True)])
    assert error_before_blue(coverage(LOPSIDED), hand) == pytest.approx(wanted["hand_budgets"])


@given(st.integers(2, 60), st.integers(2, 5), st.sampled_from([1, 2]), st.integers(0, 2**32))
def test_split_spends_each_path_and_no_nearby_split_is_better(n, k, norm, seed):
    tree, random = kary_tree(n, k), np.random.default_rng(seed)
    use = random.random(tree.size) * (random.random(tree.size) > 0.3)  # some nodes are never used
    budget = split_budgets(tree, use, LAWS[norm])
    path = node_matrix(tree).T @ budget**norm
    assert path == pytest.approx(np.ones(n))
    use = use + 0.01
    budget = split_budgets(tree, use, LAWS[norm])
    nearby = split_budgets(tree, use * np.exp(0.1 * random.normal(size=tree.size)), LAWS[norm])
    assert np.sum(use / budget**2) <= np.sum(use / nearby**2) * (1 + 1e-12)


def test_least_squares_example_with_a_known_root():
    wanted = VECTORS["blue_example"]
    tree = kary_tree(4, 2)
    y = [wanted["root_fixed"], *wanted["y_level1"], *wanted["y_leaves"]]
    y = np.array([float(Fraction(value)) for value in y])
    below = [1 / float(Fraction(wanted["var_level1"]))] * 2 + [1 / float(Fraction(wanted["var_leaf"]))] * 4
    free = blue(tree, np.array([0.0, *below]), y[:, None])[:, 0]
    assert free[1:3] == pytest.approx([float(Fraction(value)) for value in wanted["z"]])
    fixed = blue(tree, np.array([1e14, *below]), y[:, None])[:, 0]  # as good as known
    assert fixed[1:3] == pytest.approx([float(Fraction(value)) for value in wanted["level1_after"]])
    assert fixed[3:] == pytest.approx([float(Fraction(value)) for value in wanted["leaves_after"]])
    alone = TreeVariance(tree, np.array([0.0, *below]))
    assert alone.ranges(0, 2) == pytest.approx(float(Fraction(wanted["var_z"])))
    known = TreeVariance(tree, np.array([1e14, *below]))
    assert known.ranges(0, 2) == pytest.approx(float(Fraction(wanted["var_level1_after"])))


@given(st.integers(2, 40), st.integers(2, 5), st.integers(0, 2**32))
def test_least_squares_equals_the_dense_solution(n, k, seed):
    tree, random = kary_tree(n, k), np.random.default_rng(seed)
    weight = random.random(tree.size) + 0.05
    weight[(random.random(tree.size) < 0.3) & ~tree.is_leaf] = 0.0
    y = random.normal(size=(tree.size, 3))
    matrix = node_matrix(tree)
    wanted = np.linalg.solve(matrix.T @ (weight[:, None] * matrix), matrix.T @ (weight[:, None] * y))
    found = blue(tree, weight, y)
    assert np.abs(found[tree.leaves] - wanted).max() < 1e-12 * max(1, np.abs(wanted).max())
    assert np.abs(found - matrix @ found[tree.leaves]).max() < 1e-12


def test_a_leaf_without_budget_is_refused():
    with pytest.raises(InternalError):
        blue(kary_tree(2, 2), np.array([1.0, 1.0, 0.0]), np.zeros((3, 1)))


@pytest.mark.parametrize(("n", "wanted"), [(256, 180.4), (1024, 342.5), (4096, 585.1)])
def test_binary_figures(n, wanted):
    assert VECTORS["expected_error_all_ranges"]["lue_k2"][str(n)] == wanted
    error = 2 * mean_variance(lue_dptree(kary_tree(n, 2)).solver)
    assert error == pytest.approx(wanted, abs=0.06)
    boost = 2 * mean_variance(equal_strategy(kary_tree(n, 2)).solver)
    assert boost == pytest.approx(VECTORS["expected_error_all_ranges"]["boost_k2"][str(n)], abs=0.06)
    identity = 2 * mean_variance(leaf_strategy(n).solver)
    assert identity == pytest.approx(VECTORS["expected_error_all_ranges"]["identity"][str(n)])


@pytest.mark.parametrize(("n", "k", "wanted"), [(256, 16, 82.3), (1024, 11, 160.8), (4096, 16, 272.9)])
def test_best_arity(n, k, wanted):
    choice = by_word(n, "lue_dptree")
    assert choice.name == f"LUE-DPTree k={k}"
    assert choice.expected_error == pytest.approx(wanted, abs=0.06)


@pytest.mark.parametrize(("n", "wanted"), [(256, 128), (1024, 228), (4096, 384)])
def test_struct_construct_figures(n, wanted):
    tree = best_struct_construct(n)
    strategy = equal_strategy(tree)
    assert 2 * mean_variance(strategy.solver) == pytest.approx(wanted, abs=0.6)
    assert column_bound(strategy) <= strategy.total
    assert equal_error(tree) <= min(equal_error(kary_tree(n, k)) for k in range(2, 21)) + 1e-9


def test_subtree_use_vector():
    tree = tree_from_arrays([0, 0, 2, 0, 1, 2, 3, 4], [5, 2, 5, 1, 2, 3, 4, 5], [-1, 0, 0, 1, 1, 2, 2, 2])
    node = int(np.flatnonzero((tree.lo == 2) & (tree.hi == 5))[0])
    whole = coverage(tree)[node] + subtree_use(Containing(5, None), np.array([2]), np.array([5]), 3)[0]
    assert whole == pytest.approx(VECTORS["coverage"][2]["H_3_5_3"])


@given(st.integers(2, 200), st.integers(2, 5))
def test_the_left_spine_of_struct_construct_is_a_longest_path(n, k):
    tree = struct_construct(n, k)
    assert tree.level[tree.leaves[0]] == tree.depth - 1
    wanted = coverage(tree).sum()
    assert wanted <= coverage(kary_tree(n, k)).sum() + 1e-9


def test_smaller_segments_first_would_be_a_privacy_bug():
    # Seven leaves, smaller part first: the left spine has 3 nodes, another path has 4.
    lo, hi = [0, 0, 3, 0, 1, 3, 5, 1, 2, 3, 4, 5, 6], [7, 3, 7, 1, 3, 5, 7, 2, 3, 4, 5, 6, 7]
    tree = tree_from_arrays(lo, hi, [-1, 0, 0, 1, 1, 2, 2, 4, 4, 5, 5, 6, 6])
    spine = int(tree.level[tree.leaves[0]]) + 1
    assert spine == 3 and tree.depth == 4
    node, budget = np.arange(tree.size), np.ones(tree.size, np.int64)
    with pytest.raises(InternalError):
        stored_nodes((tree.lo, tree.hi, tree.parent), node, budget, spine, 1)
    measured = stored_nodes((tree.lo, tree.hi, tree.parent), node, budget, tree.depth, 1)
    assert len(measured.budget) == tree.size
    safe = tree_strategy(tree, np.full(tree.size, 1 / spine))  # its leaves get what inner nodes leave
    assert column_bound(safe) == safe.total


def log(n: int, ranges: int, seed: int) -> Workload:
    """Random ranges with random weights."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(0, n, ranges)
    return Workload(lo, lo + 1 + rng.integers(0, n - lo), rng.random(ranges) + 0.1)


@given(st.integers(1, 40), st.integers(1, 70), st.integers(0, 9))
def test_ranges_that_hold_an_interval_are_counted(n, ranges, seed):
    asked = log(n, ranges, seed)
    lo, hi = np.triu_indices(n + 1, 1)
    held = ((asked.lo[:, None] <= lo) & (asked.hi[:, None] >= hi)).T @ asked.weight
    assert Containing(n, asked)(lo, hi) == pytest.approx(held)
    low, high = np.triu_indices(n + 1, 1)
    every = ((low[:, None] <= lo) & (high[:, None] >= hi)).sum(axis=0)
    assert Containing(n, None)(lo, hi).tolist() == every.tolist()


def test_struct_construct_by_name_honours_what_is_asked():
    """The greedy choice is made by the ranges asked, and so is the error that the release says."""
    n, plain, mixed = 96, best_struct_construct(96), log(96, 30, 3)
    own = best_struct_construct(n, workload=mixed)
    assert equal_error(own, mixed) < equal_error(plain, mixed)
    choice = by_word(n, "struct_construct", mixed)
    assert choice.expected_error == pytest.approx(2 * mean_variance(equal_strategy(own).solver, mixed))


@pytest.mark.parametrize(
    ("word", "name", "depth"),
    [
        (Word("tree", "kary", 8), "LUE-DPTree k=8", 4),
        (Word("tree", "binary"), "binary LUE-DPTree k=2", 8),
        (Word("tree", "levels", 8), "LUE-DPTree of even levels k=8", 4),
        (Word("tree", "kary"), "LUE-DPTree k=", 0),
    ],
)
def test_shapes_of_trees_by_name(word, name, depth):
    for law in (LAPLACE, GAUSSIAN):
        choice = by_word(100, word, law=law)
        assert choice.name.startswith(name)
        assert choice.strategy.norm == law.norm
        if depth:
            assert choice.strategy.solver.tree.depth == depth
    if word.shape == "levels":
        # three splits of 5 hold 100 leaves; 8 were allowed
        assert int(choice.strategy.solver.tree.child_count.max()) == 5
    if not word.arity and word.shape == "kary":
        assert by_word(100, word) == by_word(100, "tree")._replace(strategy=by_word(100, word).strategy)


def test_a_binary_tree_has_two_children():
    with pytest.raises(CatalogError, match="2 children a node at most, not 8"):
        by_word(100, Word("tree", "binary", 8))
