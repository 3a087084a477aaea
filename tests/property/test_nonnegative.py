"""The non-negative estimate: the nearest consistent point per parent, on any tree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpsql.errors import InterfaceError
from dpsql.matrices.reconcile import nonnegative, product_tree, project_groups, sums_below
from dpsql.tree import kary_tree

NUMBERS = st.floats(-1e6, 1e6, width=64)


@given(st.integers(1, 60), st.integers(2, 7), st.data())
def test_leaves_are_nonnegative_and_add_up_to_the_clamped_total(n: int, k: int, data: st.DataObject) -> None:
    leaf = data.draw(arrays(np.float64, n, elements=NUMBERS))
    out = nonnegative(kary_tree(n, k), leaf)
    assert (out >= 0).all()
    assert out.sum() == pytest.approx(max(leaf.sum(), 0.0), rel=1e-9, abs=1e-6)


@given(st.integers(1, 40), st.integers(2, 5), st.data())
def test_a_nonnegative_estimate_stays_as_it_is(n: int, k: int, data: st.DataObject) -> None:
    leaf = data.draw(arrays(np.float64, n, elements=st.floats(0, 1e6)))
    np.testing.assert_allclose(nonnegative(kary_tree(n, k), leaf), leaf, rtol=1e-9, atol=1e-6)


@given(st.lists(st.lists(st.floats(-50, 50), min_size=1, max_size=6), min_size=1, max_size=5), st.data())
def test_grouped_projection_equals_each_group_alone(groups: list[list[float]], data: st.DataObject) -> None:
    total = np.array([data.draw(st.floats(0, 80)) for _ in groups])
    which = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    out = project_groups(np.concatenate([np.array(g) for g in groups]), which, total)
    for g, values in enumerate(groups):
        alone = project_groups(np.array(values), np.zeros(len(values), np.int64), total[g : g + 1])
        np.testing.assert_allclose(out[which == g], alone, atol=1e-9)


def test_the_projection_is_the_nearest_point() -> None:
    from scipy.optimize import minimize

    value = np.array([3.0, -2.0, 0.5, 1.0])
    best = minimize(
        lambda z: float(((z - value) ** 2).sum()),
        np.ones(4) / 2,
        method="SLSQP",
        bounds=[(0, None)] * 4,
        constraints=[{"type": "eq", "fun": lambda z: z.sum() - 2.0}],
        options={"ftol": 1e-14},
    )
    out = project_groups(value, np.zeros(4, np.int64), np.array([2.0]))
    np.testing.assert_allclose(out, best.x, atol=1e-6)


def test_every_parent_keeps_its_total() -> None:
    tree = kary_tree(37, 3)
    leaf = np.random.default_rng(5).normal(0.5, 3, 37)
    node = sums_below(tree, nonnegative(tree, leaf))
    assert (node >= 0).all()
    half = tree.level == 1
    assert node[half].sum() == pytest.approx(node[0])


def test_product_tree_covers_two_axes_in_row_major_order() -> None:
    tree = product_tree(kary_tree(5, 2), kary_tree(6, 3))
    assert tree.n == 30
    assert {(0, 6), (6, 12), (24, 30)} <= set(zip(tree.lo.tolist(), tree.hi.tolist(), strict=True))
    leaf = np.random.default_rng(1).normal(1, 2, 30)
    assert nonnegative(tree, leaf).sum() == pytest.approx(leaf.sum())


def test_wrong_shapes_and_infinities_are_refused() -> None:
    with pytest.raises(InterfaceError, match="4 finite"):
        nonnegative(kary_tree(4, 2), np.zeros(3))
    with pytest.raises(InterfaceError, match="4 finite"):
        nonnegative(kary_tree(4, 2), np.array([0, 1, np.inf, 2.0]))
