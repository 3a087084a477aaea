"""DAWA: exact costs, the least partition against brute force, the safe scale, estimates over buckets."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines import dawa
from dpsql.errors import InterfaceError, PrivacyError
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.noise import ZeroNoise
from tests.releases import seeded

ONE = Fraction(1)


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=40))
def test_costs_are_the_exact_deviations(cells: list[int]) -> None:
    counts = np.array(cells, np.int64)
    top = len(cells).bit_length() - 1
    for level, costs in enumerate(dawa.deviations(counts, top)):
        for bucket, cost in enumerate(costs.tolist()):
            start = bucket * max(1, 1 << level >> 1)
            block = [Fraction(c) for c in cells[start : start + (1 << level)]]
            assert len(block) == 1 << level
            mean = sum(block) / len(block)
            assert Fraction(cost, 1 << top) == sum(abs(x - mean) for x in block)


@given(st.lists(st.integers(0, 50), min_size=2, max_size=33), st.data())
def test_one_record_moves_no_cost_further_than_the_bound(cells: list[int], data: st.DataObject) -> None:
    counts = np.array(cells, np.int64)
    more = counts.copy()
    more[data.draw(st.integers(0, len(cells) - 1))] += 1
    top = len(cells).bit_length() - 1
    largest = dawa.change_bound(0, top)
    moved = zip(dawa.deviations(counts, top), dawa.deviations(more, top), strict=True)
    for level, (a, b) in enumerate(moved):
        assert np.abs(a - b).max(initial=0) + largest <= dawa.change_bound(level, top)


def test_the_scale_is_the_one_of_the_proof() -> None:
    """2(1 - 1/L) + 2(1 - 1/n) for a bucket of L of n cells; one cell still pays for its rivals."""
    top = 4
    for level in range(top + 1):
        bound = Fraction(dawa.change_bound(level, top), 1 << top)
        assert bound == 2 * (1 - Fraction(1, 1 << level)) + 2 * (1 - Fraction(1, 16))


def brute_force(n: int, costs: list[np.ndarray]) -> int:
    """Least cost over all partitions of [0, n) into candidate buckets, by recursion from the right."""
    best = {n: 0}
    for start in range(n - 1, -1, -1):
        options = []
        for level, cost in enumerate(costs):
            step = max(1, 1 << level >> 1)
            if start % step == 0 and start // step < len(cost):
                options.append(int(cost[start // step]) + best[start + (1 << level)])
        best[start] = min(options)
    return best[0]


@given(st.integers(1, 37), st.integers(0, 2**32))
def test_the_partition_is_the_cheapest(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = dawa.deviations(np.zeros(n, np.int64), n.bit_length() - 1)
    costs = [rng.integers(-20, 20, len(cost)) for cost in shape]
    edges = dawa.least_partition(n, costs)
    assert edges[0] == 0 and edges[-1] == n and (np.diff(edges) > 0).all()
    level = np.log2(np.diff(edges)).astype(int)
    starts = [a // max(1, 1 << k >> 1) for k, a in zip(level.tolist(), edges[:-1].tolist(), strict=True)]
    assert sum(int(costs[k][a]) for k, a in zip(level, starts, strict=True)) == brute_force(n, costs)


def test_flat_parts_become_buckets_and_steps_stay() -> None:
    counts = np.repeat([100_000, 0, 0, 70_000], 16).astype(np.int64)
    edges = dawa.partition(counts, ONE, 1, seeded(3))
    assert {0, 16, 48, 64} <= set(edges.tolist())
    assert len(edges) < 20


def test_bucket_sums_come_back_without_noise() -> None:
    counts = np.arange(23, dtype=np.int64) ** 2
    release = dawa.draw_dawa(counts, ONE, 1, ZeroNoise(), leaf_strategy)
    sums = np.add.reduceat(counts, release.edges[:-1])
    np.testing.assert_allclose(dawa.bucket_estimates(release), sums)
    assert dawa.spread(release.edges, sums.astype(float)).sum() == pytest.approx(counts.sum())


@pytest.mark.parametrize("n", [1, 2, 3, 5, 100])
def test_any_number_of_cells(n: int) -> None:
    release = dawa.draw_dawa(np.ones(n, np.int64), ONE, 3, seeded(n), leaf_strategy)
    assert dawa.spread(release.edges, dawa.bucket_estimates(release)).shape == (n,)


def test_no_cell_and_no_budget_are_refused() -> None:
    with pytest.raises(InterfaceError):
        dawa.partition(np.zeros(0, np.int64), ONE, 1, ZeroNoise())
    with pytest.raises(PrivacyError):
        dawa.partition(np.zeros(4, np.int64), Fraction(0), 1, ZeroNoise())


def test_huge_cells_do_not_overflow() -> None:
    counts = np.full(4096, 2**62, np.int64)
    counts[::2] = -(2**62)
    edges = dawa.partition(counts, ONE, 1, seeded(1))
    assert edges[-1] == 4096
