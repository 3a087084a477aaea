"""Rows without a partner: all axes of a dimension and all views tell of the same, in floats and in integers."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.matrices.estimated import partner_of, reconcile_with_partners, round_with_partners
from dpsql.matrices.kronecker import AxisSplit
from dpsql.matrices.reconcile import ViewEstimate
from dpsql.mechanisms.axis.joint_tree import TOTAL, joint_strategy
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.axis.tents import tents
from tests.strategies import by_word

LEAVES = {0: 5, 1: 3, 2: 4, 3: 4, 4: 3}
"""Age and region of a customer, category and brand of a product, a day; MISSING in the middle of region's leaves."""
SPLITS = {axis: AxisSplit(leaf_strategy(n).solver) for axis, n in LEAVES.items()}
PARTNERS = {
    0: partner_of(("customer_id",), 4, SPLITS[0]),
    1: partner_of(("customer_id",), 1, SPLITS[1]),
    2: partner_of(("product_id",), 3, SPLITS[2]),
    3: partner_of(("product_id",), 3, SPLITS[3]),
}
VIEWS = [(0, 4), (1,), (0, 1, 2), (1, 2), (2, 3), (3, 4), (0, 3), (4,)]
RNG = np.random.default_rng(36)


def rows() -> np.ndarray:
    """A star in which MISSING is one event for all axes of a dimension."""
    table = RNG.integers(0, 50, tuple(LEAVES.values()))
    for left, right in ((0, 1), (2, 3)):
        for axis, other in ((left, right), (right, left)):
            lacking = [slice(None)] * table.ndim
            lacking[axis] = PARTNERS[axis].missing
            for leaf in range(LEAVES[other]):
                if leaf != PARTNERS[other].missing:
                    lacking[other] = leaf
                    table[tuple(lacking)] = 0
    return table.astype(float)


def margin(table: np.ndarray, axes: tuple[int, ...], kept: tuple[int, ...]) -> np.ndarray:
    return table.sum(axis=tuple(position for position, axis in enumerate(axes) if axis not in kept))


def reconciled(noise: float) -> tuple[list[ViewEstimate], list[np.ndarray]]:
    table, axes = rows(), SPLITS
    exact = [margin(table, tuple(LEAVES), view) for view in VIEWS]
    views = [
        ViewEstimate(view, cells + noise * RNG.normal(size=cells.shape), 1.0 + len(view))
        for view, cells in zip(VIEWS, exact, strict=True)
    ]
    totals = {axis: split.total for axis, split in axes.items()}
    spreads = {axis: split.spread for axis, split in axes.items()}
    return views, reconcile_with_partners(views, totals, spreads, PARTNERS)


def disagreements(views: list[tuple[tuple[int, ...], np.ndarray]]) -> float:
    """The largest difference of what views share: margins, rows without each partner, structural zeros."""
    worst = 0.0
    seen: dict[object, np.ndarray] = {}
    for axes, cells in views:
        for kept in [axes[:k] + axes[k + 1 :] for k in range(len(axes))] + [(axis,) for axis in axes] + [()]:
            shared = margin(cells, axes, kept)
            worst = max(worst, float(np.abs(seen.setdefault(kept, shared) - shared).max(initial=0)))
        for path in {partner.path for partner in PARTNERS.values()}:
            own = [axis for axis in axes if axis in PARTNERS and PARTNERS[axis].path == path]
            for axis in own:
                position = axes.index(axis)
                lacking = np.take(cells, PARTNERS[axis].missing, axis=position)
                others = axes[:position] + axes[position + 1 :]
                for kept in [()] + [(other,) for other in others if other not in own]:
                    shared = margin(lacking, others, kept)
                    was = seen.setdefault((path, kept), shared)
                    worst = max(worst, float(np.abs(was - shared).max(initial=0)))
                for other in set(own) - {axis}:
                    at = np.delete(np.arange(LEAVES[other]), PARTNERS[other].missing)
                    worst = max(worst, float(np.abs(np.take(lacking, at, axis=others.index(other))).max()))
    return worst


def test_every_view_tells_the_same_of_rows_without_a_partner() -> None:
    views, estimates = reconciled(noise=30.0)
    before = disagreements([(view.axes, view.estimate) for view in views])
    after = disagreements([(view.axes, cells) for view, cells in zip(views, estimates, strict=True)])
    assert before > 10 and after < 1e-9


def test_after_rounding_all_of_it_is_exact() -> None:
    views, estimates = reconciled(noise=30.0)
    units = round_with_partners(
        [(v.axes, cells) for v, cells in zip(views, estimates, strict=True)], PARTNERS
    )
    assert all(cells.dtype == np.int64 for cells in units)
    assert disagreements([(view.axes, cells) for view, cells in zip(views, units, strict=True)]) == 0
    for cells, rounded in zip(estimates, units, strict=True):
        assert np.abs(rounded / 2**20 - cells).max() < 1e-3


def test_without_noise_nothing_moves() -> None:
    views, estimates = reconciled(noise=0.0)
    for view, cells in zip(views, estimates, strict=True):
        assert np.abs(view.estimate - cells).max() < 1e-9


def covariance(split: AxisSplit) -> np.ndarray:
    """Of all leaves, from the model's quadratic form."""
    n = split.model.n
    pairs = np.eye(n)[:, None] + np.eye(n)[None]
    alone, both = split.model.quadratic(np.eye(n)), split.model.quadratic(pairs.reshape(n * n, n))
    return (both.reshape(n, n) - alone[:, None] - alone[None]) / 2


AXES = {
    "cells": leaf_strategy(12),
    "few cells": leaf_strategy(3),
    "tree": by_word(12, "lue_dptree").strategy,
    "tents": tents(64, (10,)),
    "joint tree": joint_strategy(64, (4, 4, 4), (150, 800, 1080, TOTAL - 2030)),
}


@pytest.mark.parametrize("other", ["few cells", "cells", "joint tree"])
@pytest.mark.parametrize("one", AXES)
def test_answers_err_as_stated_or_less(one: str, other: str) -> None:
    """Every range of one axis, exactly, where another axis of the dimension measures MISSING too."""
    first, second = (AxisSplit(AXES[name].solver) for name in (one, other))
    n, m = first.model.n, second.model.n
    partners = {0: partner_of(("c",), n - 1, first), 1: partner_of(("c",), m - 1, second)}
    totals, spreads = {0: first.total, 1: second.total}, {0: first.spread, 1: second.spread}
    columns = [
        reconcile_with_partners(
            [ViewEstimate((0,), unit[:n], 1.0), ViewEstimate((1,), unit[n:], 1.0)], totals, spreads, partners
        )[0]
        for unit in np.eye(n + m)
    ]
    noise = np.zeros((n + m, n + m))
    noise[:n, :n], noise[n:, n:] = covariance(first), covariance(second)
    estimate = np.array(columns).T
    after = estimate @ noise @ estimate.T
    bounds = np.array([(lo, hi) for lo in range(n) for hi in range(lo + 1, n + 1)])
    masks = ((np.arange(n) >= bounds[:, :1]) & (np.arange(n) < bounds[:, 1:])).astype(float)
    unit = 1 / (1 / first.total + 1 / second.total)
    stated = first.model.ranges(*bounds.T) + (unit - first.total) * (masks @ first.spread) ** 2
    ratio = np.einsum("gi,ij,gj->g", masks, after, masks) / stated
    assert ratio.mean() <= 1 and ratio.max() < 1.15
