"""Reconciled views against dense generalised least squares over all views at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from dpsql.matrices.kronecker import AxisSplit, ProductReading, of_two_families
from dpsql.matrices.reconcile import (
    ViewEstimate,
    component_covariances,
    component_variances,
    node_sums,
    reconcile,
    round_family,
)
from dpsql.tree import kary_tree


@dataclass
class DenseModel:
    """A variance model from a covariance matrix."""

    covariance: np.ndarray
    kind: str = "dense-test"

    @property
    def n(self) -> int:
        return len(self.covariance)

    def ranges(self, lo, hi):
        masks = np.zeros((len(lo), self.n))
        for row, (a, b) in enumerate(zip(lo, hi, strict=True)):
            masks[row, a:b] = 1
        return self.quadratic(masks)

    def quadratic(self, masks):
        return np.einsum("gi,ij,gj->g", masks, self.covariance, masks)

    def columns(self):
        return {"covariance": self.covariance.ravel()}


def random_covariance(rng, n):
    root = rng.normal(size=(n, n + 2))
    return root @ root.T / n + np.eye(n)


@pytest.fixture(params=range(4))
def family(request):
    """Four axes of 2-4 leaves, overlapping views, one of them nested in another."""
    rng = np.random.default_rng(request.param)
    sizes = [3, 4, 2, 3]
    covariances = [random_covariance(rng, n) for n in sizes]
    layout = [((0, 1), 2.0), ((1, 2), 0.7), ((0, 2), 1.3), ((1,), 0.5), ((3,), 4.0)][: 3 + request.param % 3]
    return rng, sizes, covariances, layout


def dense_gls(sizes, covariances, layout, estimates):
    """Estimate the full cube's view margins by weighted least squares over a joint parameter."""
    cells = int(np.prod(sizes))
    cube = np.eye(cells).reshape([cells, *sizes])
    designs, precisions, values = [], [], []
    for (axes, unit), estimate in zip(layout, estimates, strict=True):
        away = tuple(1 + i for i in range(len(sizes)) if i not in axes)
        designs.append(cube.sum(axis=away).reshape(cells, -1).T)
        covariance = np.eye(1) * unit
        for axis in axes:
            covariance = np.kron(covariance, covariances[axis])
        precisions.append(np.linalg.inv(covariance))
        values.append(estimate.ravel())
    gram = sum(d.T @ p @ d for d, p in zip(designs, precisions, strict=True))
    right = sum(d.T @ p @ v for d, p, v in zip(designs, precisions, values, strict=True))
    inverse = np.linalg.pinv(gram, rcond=1e-10)
    return [(d @ inverse @ right, d @ inverse @ d.T) for d in designs]


def test_equals_dense_least_squares_and_its_covariance(family):
    rng, sizes, covariances, layout = family
    splits = [AxisSplit(DenseModel(c)) for c in covariances]
    estimates = [rng.normal(size=[sizes[a] for a in axes]) * 5 for axes, _ in layout]
    totals = {i: s.total for i, s in enumerate(splits)}
    spreads = {i: s.spread for i, s in enumerate(splits)}
    got = reconcile(
        [ViewEstimate(a, e, u) for (a, u), e in zip(layout, estimates, strict=True)], totals, spreads
    )
    sigma2 = component_variances(layout, totals)
    for (axes, _), mine, (expected, covariance) in zip(
        layout, got, dense_gls(sizes, covariances, layout, estimates), strict=True
    ):
        np.testing.assert_allclose(mine.ravel(), expected, atol=1e-7)
        positions = {p: tuple(axes.index(a) for a in p) for p in sigma2 if set(p) <= set(axes)}
        model = ProductReading(tuple(splits[a] for a in axes), {positions[p]: sigma2[p] for p in positions})
        masks = [rng.integers(0, 2, size=(7, sizes[a])).astype(float) for a in axes]
        for g, variance in enumerate(model.covariance(masks).noise):
            query = np.ones(1)
            for mask in masks:
                query = np.kron(query, mask[g])
            assert variance == pytest.approx(float(query @ covariance @ query), abs=1e-7)


def test_agreeing_views_come_back_bit_for_bit(family):
    rng, sizes, covariances, layout = family
    cube = rng.integers(0, 1000, size=sizes).astype(float)
    splits = [AxisSplit(DenseModel(c)) for c in covariances]
    totals = {i: s.total for i, s in enumerate(splits)}
    spreads = {i: s.spread for i, s in enumerate(splits)}
    views = [
        ViewEstimate(axes, cube.sum(axis=tuple(i for i in range(4) if i not in axes)), unit)
        for axes, unit in layout
    ]
    for view, mine in zip(views, reconcile(views, totals, spreads), strict=True):
        assert np.array_equal(view.estimate, mine)


def test_rounded_views_share_margins_exactly_and_stay_close():
    rng = np.random.default_rng(5)
    cube = rng.normal(size=(5, 7, 4)) * 1e4
    layout = [(0, 1), (1, 2), (0,), ()]
    views = [(axes, cube.sum(axis=tuple(i for i in range(3) if i not in axes))) for axes in layout]
    first, second, third, total = round_family(views)
    assert np.array_equal(first.sum(axis=0), second.sum(axis=1))
    assert np.array_equal(first.sum(axis=1), third)
    assert int(total) == int(first.sum()) == int(second.sum())
    for (_, exact), mine in zip(views, (first, second, third, total), strict=True):
        np.testing.assert_allclose(mine / 2**20, exact, atol=40 / 2**20)


def test_node_sums_are_sums_of_leaves():
    leaves = np.arange(12).reshape(3, 4)
    trees = [kary_tree(3, 2), kary_tree(4, 2)]
    sums = node_sums(leaves, trees)
    for i in range(trees[0].size):
        for j in range(trees[1].size):
            block = leaves[trees[0].lo[i] : trees[0].hi[i], trees[1].lo[j] : trees[1].hi[j]]
            assert sums[i, j] == block.sum()


def averaged(views, totals, spreads):
    """Reconciling as a matrix, from all leaves of all views to all leaves of all views."""
    sizes = [view.estimate.size for view in views]
    columns = []
    for unit in np.eye(sum(sizes)):
        pieces = np.split(unit, np.cumsum(sizes)[:-1])
        moved = [
            ViewEstimate(v.axes, piece.reshape(v.estimate.shape), v.variance_at_unit_budget)
            for v, piece in zip(views, pieces, strict=True)
        ]
        columns.append(np.concatenate([leaves.ravel() for leaves in reconcile(moved, totals, spreads)]))
    return np.array(columns).T


def test_two_families_err_together_as_dense_matrices_say(family):
    """All rows are counted in every view, those with a value in all but the last, both from the same two draws."""
    rng, sizes, covariances, layout = family
    splits = [AxisSplit(DenseModel(c)) for c in covariances]
    totals, spreads = {i: s.total for i, s in enumerate(splits)}, {i: s.spread for i, s in enumerate(splits)}
    null, present = rng.uniform(0.5, 3, len(layout)), rng.uniform(0.5, 3, len(layout))
    shapes = [tuple(sizes[i] for i in axes) for axes, _ in layout]
    rows = [
        ViewEstimate(axes, np.zeros(shape), null[k] + present[k])
        for k, ((axes, _), shape) in enumerate(zip(layout, shapes, strict=True))
    ]
    values = [
        ViewEstimate(axes, np.zeros(shape), present[k])
        for k, ((axes, _), shape) in enumerate(zip(layout[:-1], shapes, strict=False))
    ]
    drawn = [present[k] * kronecker([covariances[i] for i in axes]) for k, (axes, _) in enumerate(layout)]
    shared = np.zeros((sum(len(d) for d in drawn), sum(len(d) for d in drawn[:-1])))
    at = 0
    for covariance in drawn[:-1]:
        shared[at : at + len(covariance), at : at + len(covariance)] = covariance
        at += len(covariance)
    dense = averaged(rows, totals, spreads) @ shared @ averaged(values, totals, spreads).T
    families = tuple(
        component_variances([(v.axes, v.variance_at_unit_budget) for v in views], totals)
        for views in (rows, values)
    )
    ratios = [
        (v.axes, v.variance_at_unit_budget / (r.variance_at_unit_budget * v.variance_at_unit_budget))
        for r, v in zip(rows, values, strict=False)
    ]
    components = component_covariances(ratios, families, totals)
    top = 0
    for left in rows:
        side = 0
        for right in values:
            readings = tuple(ProductReading(tuple(splits[i] for i in v.axes), {}) for v in (left, right))
            between = of_two_families(readings, (left.axes, right.axes), components)
            u, w = ([rng.normal(size=(1, sizes[i])) for i in v.axes] for v in (left, right))
            block = dense[top : top + left.estimate.size, side : side + right.estimate.size]
            wanted = kronecker(u) @ block @ kronecker(w).T
            assert between.covariance(u, w).noise == pytest.approx(wanted.ravel(), abs=1e-9)
            side += right.estimate.size
        top += left.estimate.size


def kronecker(matrices):
    product = np.eye(1)
    for matrix in matrices:
        product = np.kron(product, matrix)
    return product
