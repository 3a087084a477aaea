"""Trees, covers and how often a node is used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InterfaceError
from dpsql.tree import Workload, cover, coverage, kary_tree, tree_from_arrays

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "central.json").read_text())["coverage"]


def test_levels_follow_each_other_and_longer_segments_come_first():
    tree = kary_tree(13, 3)
    for part in tree.level_slices:
        assert np.all(np.diff(tree.lo[part]) > 0)
    for node in np.flatnonzero(~tree.is_leaf):
        children = slice(tree.first_child[node], tree.first_child[node] + tree.child_count[node])
        assert np.all(tree.parent[children] == node)
        assert np.all(np.diff((tree.hi - tree.lo)[children]) <= 0)
    assert np.array_equal(tree.lo[tree.leaves], np.arange(13))
    assert kary_tree(1, 2).size == 1


def test_coverage_vectors():
    assert coverage(kary_tree(3, 3)) == pytest.approx(VECTORS[0]["p"], abs=1e-15)
    tree = kary_tree(6, 3)
    node = int(np.flatnonzero((tree.lo == 2) & (tree.hi == 4))[0])
    assert coverage(tree)[node] == pytest.approx(VECTORS[1]["p"], abs=1e-15)


def test_coverage_of_the_tree_with_smaller_segments_first():
    # The book's figure, 1-based: root, [1,2], [3,5], [1], [2], [3], [4,5], [4], [5].
    lo, hi = [0, 0, 2, 0, 1, 2, 3, 3, 4], [5, 2, 5, 1, 2, 3, 5, 4, 5]
    tree = tree_from_arrays(lo, hi, [-1, 0, 0, 1, 1, 2, 2, 6, 6])
    use = coverage(tree)
    named = {(int(a), int(b)): p for a, b, p in zip(tree.lo, tree.hi, use, strict=True)}
    wanted = VECTORS[2]["p"]
    assert [named[key] for key in [(0, 5), (2, 5), (2, 3), (3, 5), (3, 4), (4, 5)]] == pytest.approx(wanted)
    below = [(2, 5), (2, 3), (3, 5), (3, 4), (4, 5)]
    assert sum(named[key] for key in below) == pytest.approx(VECTORS[2]["H_3_5_2"])


def test_coverage_of_a_lopsided_tree():
    tree = tree_from_arrays([0, 0, 1, 1, 2, 3], [4, 1, 3, 2, 3, 4], [-1, 0, 0, 2, 2, 0])
    named = {(int(a), int(b)): p for a, b, p in zip(tree.lo, tree.hi, coverage(tree), strict=True)}
    order = [(0, 4), (0, 1), (1, 3), (1, 2), (2, 3), (3, 4)]
    assert [named[key] for key in order] == pytest.approx(VECTORS[3]["p"])


@given(st.integers(1, 40), st.integers(2, 6))
def test_covers_are_exact_and_coverage_counts_them(n, k):
    tree = kary_tree(n, k)
    lo, stop = np.triu_indices(n)
    hi = stop + 1
    which, node = cover(tree, lo, hi)
    length = np.bincount(which, (tree.hi - tree.lo)[node], len(lo))
    assert np.array_equal(length, hi - lo)
    assert np.all(tree.lo[node] >= lo[which]) and np.all(tree.hi[node] <= hi[which])
    above = tree.parent[node]
    inside = (above >= 0) & (tree.lo[above] >= lo[which]) & (tree.hi[above] <= hi[which])
    assert not np.any(inside)
    for i in range(0, len(lo), 7):  # one by one they are found in another way
        assert cover(tree, lo[i : i + 1], hi[i : i + 1])[1].tolist() == node[which == i].tolist()
    assert np.bincount(node, minlength=tree.size) / len(lo) == pytest.approx(coverage(tree))
    every = Workload(lo, hi, np.ones(len(lo)))
    assert coverage(tree, every) == pytest.approx(coverage(tree))


def test_cover_of_nothing_and_of_empty_ranges():
    tree = kary_tree(4, 2)
    assert all(len(part) == 0 for part in cover(tree, [2], [2]))
    assert all(len(part) == 0 for part in cover(tree, [], []))


@pytest.mark.parametrize(
    ("lo", "hi", "parent"),
    [
        ([0, 0, 2], [3, 1, 3], [-1, 0, 0]),  # a hole
        ([0, 0, 1], [3, 2, 3], [-1, 0, 0]),  # an overlap
        ([0, 0], [2, 2], [-1, 0]),  # one child
        ([0, 0], [2, 1], [-1, -1]),  # two roots
        ([1, 1, 2], [3, 2, 3], [-1, 0, 0]),  # does not start at 0
        ([0, 0, 1], [2, 1, 2], [-1, 2, 0]),  # a parent after its child
        ([0], [2], [-1]),  # a leaf of two
        ([], [], []),
    ],
)
def test_what_is_not_a_tree_is_refused(lo, hi, parent):
    with pytest.raises(InterfaceError):
        tree_from_arrays(lo, hi, parent)


def test_bad_arguments_are_refused():
    for n, k in ((0, 2), (4, 1)):
        with pytest.raises(InterfaceError):
            kary_tree(n, k)
    with pytest.raises(InterfaceError):
        cover(kary_tree(4, 2), [0], [5])
