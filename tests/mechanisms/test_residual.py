"""The residual design against dense weighted least squares, and its budgets against small moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import combinations

import numpy as np
import pytest

from dpsql.errors import InterfaceError
from dpsql.matrices import mean_variance
from dpsql.matrices.reconcile import Subset, subsets
from dpsql.mechanisms.axis.dense import dense_strategy, single_leaf_choice, zero_sum_strategy
from dpsql.mechanisms.designs.measurement import (
    AxisWorkload,
    StatisticShare,
    asked_sets,
    mean_error,
    range_variance,
)
from dpsql.mechanisms.designs.residual import RESIDUAL, best_shares, bounded_shares
from dpsql.tree import Workload, single_leaves

SIZES = (4, 3, 5)
SETS = asked_sets([StatisticShare(axes, 1.0) for axes in ((0, 1), (1, 2), (0, 2))])
STRATEGIES = {i: zero_sum_strategy(n) for i, n in enumerate(SIZES)}
ASKED = {i: AxisWorkload(strategy.solver, None) for i, strategy in STRATEGIES.items()}


def rows(part: Subset) -> np.ndarray:
    """What is measured on a set of axes, in units of its sensitivity; all other axes are added up."""
    factors = [
        own.stored["matrix"] / own.total if i in part else np.ones((1, own.leaves))
        for i, own in STRATEGIES.items()
    ]
    return reduce(np.kron, factors)


def mean_over_sets(shares: Mapping[Subset, float]) -> float:
    """The mean error at mu^2 1."""
    return mean_error(
        RESIDUAL, [StatisticShare(part, 1 / share) for part, share in shares.items()], SETS, ASKED
    )


def test_mean_variances_are_those_of_dense_least_squares():
    """Over all ranges on every axis of a set, from the pseudo-inverse of all that the rows tell about the cells."""
    shares = best_shares(SETS, ASKED)
    information = sum(rows(part).T @ rows(part) * share for part, share in shares.items())
    covariance = np.linalg.pinv(information, hermitian=True, rcond=1e-10)
    for axes in shares:
        masks = []
        for i, n in enumerate(SIZES):
            lo, hi = np.triu_indices(n + 1, 1)
            ranges = (np.arange(n) >= lo[:, None]) & (np.arange(n) < hi[:, None])
            masks.append(ranges.astype(float) if i in axes else np.ones((1, n)))
        boxes = reduce(lambda a, b: np.einsum("ga,hb->ghab", a, b).reshape(len(a) * len(b), -1), masks)
        wanted = np.mean(np.sum((boxes @ covariance) * boxes, axis=1))
        found = range_variance({part: 1 / share for part, share in shares.items()}, axes, ASKED)
        assert found == pytest.approx(wanted, rel=1e-8)


def test_one_record_costs_what_the_budget_says():
    shares = best_shares(SETS, ASKED)
    assert sum(shares.values()) == pytest.approx(1)
    column = sum((rows(part) ** 2).sum(axis=0) * share for part, share in shares.items())
    assert 0.99 < column.max() <= 1 + 1e-9


def test_no_move_of_the_budgets_lowers_the_error():
    shares = best_shares(SETS, ASKED)
    best, draw = mean_over_sets(shares), np.random.default_rng(1)
    for _ in range(50):
        moved = {part: share * float(np.exp(0.3 * draw.standard_normal())) for part, share in shares.items()}
        assert mean_over_sets({part: share / sum(moved.values()) for part, share in moved.items()}) >= best


def alone(n: int) -> AxisWorkload:
    return AxisWorkload(zero_sum_strategy(n).solver, None)


def test_one_axis_alone_is_as_good_as_the_dense_optimum():
    sets, asked = {(): 0.0, (0,): 1.0}, {0: alone(32)}
    drawn = [StatisticShare(part, 1 / share) for part, share in best_shares(sets, asked).items()]
    optimum = mean_variance(dense_strategy(32).solver)
    assert optimum * 0.999 < mean_error(RESIDUAL, drawn, sets, asked) < 1.1 * optimum


def test_declared_ranges_move_the_budget():
    """Single leaves alone ask little of the total; prefixes ask much."""
    leaf, sets = np.arange(16), {(): 0.0, (0,): 1.0}
    points, prefixes = Workload(leaf, leaf + 1, np.ones(16)), Workload(0 * leaf, leaf + 1, np.ones(16))
    shares = [
        best_shares(sets, {0: AxisWorkload(zero_sum_strategy(16, asked).solver, asked)})[()]
        for asked in (points, prefixes)
    ]
    assert shares[0] < 0.5 * shares[1]


def test_residual_beats_separate_marginals():
    """Overlapping sets: an optimal design for each set alone, with the best shares of the budget, is worse."""
    sets = {part: float(len(part) > 0) for part in subsets((0, 1, 2, 3)) if len(part) < 3}
    asked, one = dict.fromkeys(range(4), alone(16)), mean_variance(dense_strategy(16).solver)
    every = [s for k in (1, 2) for s in combinations(range(4), k)]
    separate = sum(np.sqrt(one ** len(s)) for s in every) ** 2 / len(every)
    drawn = [StatisticShare(part, 1 / share) for part, share in best_shares(sets, asked).items()]
    assert mean_error(RESIDUAL, drawn, sets, asked) < 0.8 * separate


@pytest.mark.parametrize("n", [2, 3, 16, 300])
def test_rows_of_single_leaves_are_the_best_for_them(n: int) -> None:
    """No zero-sum rows of columns of norm 1 do better: the mean of X^+ over n - 1 directions whose traces add up to n
    at most is at least (n - 1)^2 / n^2."""
    for scale in (64, 1 << 12):
        choice = single_leaf_choice(n, scale)
        assert not np.any(choice.strategy.rows.measure(np.ones((n, 1), np.int64)))
        model = AxisWorkload(choice.strategy.solver, single_leaves(n))
        close = 1.6 if scale < n else 1.07 if scale == 64 else 1.002
        assert 1 - 1e-9 < model.residual / ((n - 1) / n) ** 2 < close
        assert model.share == pytest.approx(n**-2.0)


def cells_of(sizes: Sequence[int]) -> dict[int, AxisWorkload]:
    return {
        i: AxisWorkload(single_leaf_choice(n, 1 << 12).strategy.solver, single_leaves(n))
        for i, n in enumerate(sizes)
    }


@pytest.mark.parametrize("sizes", [(4, 3, 5), (2, 2, 2), (3, 40, 6, 2, 11)])
def test_bounded_sets_keep_their_bounds_and_no_move_that_does_lowers_the_error(
    sizes: tuple[int, ...],
) -> None:
    asked, pairs = cells_of(sizes), list(combinations(range(len(sizes)), 2))
    below = [(), *((i,) for i in range(len(sizes)))]
    even = best_shares(dict.fromkeys([*pairs, *below], 1.0), asked)
    components = {part: 1 / share for part, share in even.items()}
    bounds = {axes: 1.3 * range_variance(components, axes, asked) for axes in below}
    wanted = {**dict.fromkeys(pairs, 1.0), **dict.fromkeys(below, 0.0)}
    shares = bounded_shares(wanted, bounds, asked)

    def errors(parts: Mapping[Subset, float]) -> tuple[float, float]:
        variances = {part: 1 / share for part, share in parts.items()}
        over = max(range_variance(variances, axes, asked) / bound for axes, bound in bounds.items())
        return sum(range_variance(variances, axes, asked) for axes in pairs), over

    best, over = errors(shares)
    assert sum(shares.values()) == pytest.approx(1) and over <= 1.002
    assert best < errors(even)[0]
    draw, tried = np.random.default_rng(2), 0
    for spread in (0.3, 0.03):
        for _ in range(400):
            moved = {p: share * float(np.exp(spread * draw.standard_normal())) for p, share in shares.items()}
            error, over = errors({p: share / sum(moved.values()) for p, share in moved.items()})
            tried += over <= 1
            assert over > 1 or error > 0.999 * best
    assert tried, "no move keeps the bounds"


def test_refusals():
    with pytest.raises(InterfaceError, match="leaves"):
        zero_sum_strategy(1)
