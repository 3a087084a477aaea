"""The bound below every strategy of an axis: below all of them, near the best."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.matrices import mean_variance
from dpsql.mechanisms.axis import WHOLE, auto_strategy, optimised_tree
from dpsql.mechanisms.axis.dense import dense_strategy, optimal_gram, sine_strategy, workload_gram
from dpsql.mechanisms.axis.tree import tree_strategy
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE
from dpsql.mechanisms.offers import AxisProblem
from dpsql.tree import Workload
from tests.strategies import svd_bound


def least_variance(n, workload=None, whole=0.0):
    """The SVD bound; also of Laplace rows, whose columns of L1 norm 1 have L2 norms of at most 1."""
    values = np.linalg.eigvalsh(workload_gram(n, workload, 0.0, whole))
    return max(1.0, float(np.sqrt(np.maximum(values, 0.0)).sum() ** 2 / n))


@pytest.mark.long
@settings(max_examples=settings.default.max_examples // 4)
@given(st.integers(2, 40), st.sampled_from([0.0, 0.5]), st.data())
def test_no_strategy_errs_less(n, whole, data):
    log = None
    if data.draw(st.booleans()):
        ends = [data.draw(st.tuples(st.integers(0, n - 1), st.integers(1, n))) for _ in range(3)]
        lo, hi = (np.array([f(a, b) for a, b in ends]) for f in (lambda a, b: min(a, b - 1), max))
        log = Workload(np.append(np.minimum(lo, hi - 1), 0), np.append(hi, n), np.array([1.0, 2.0, 3.0, 0.5]))
    least = least_variance(n, log, whole)
    for law in (LAPLACE, GAUSSIAN):
        choice = auto_strategy(n, log, law, whole)
        assert mean_variance(choice.strategy.solver, log, whole) >= least * (1 - 1e-9)


def test_it_is_near_the_optimum():
    for n in (64, 256):
        assert least_variance(n) == pytest.approx(svd_bound(n))
        for whole in (0.0, WHOLE):
            best = mean_variance(dense_strategy(n, whole=whole).solver, None, whole)
            assert 1 <= best / least_variance(n, None, whole) < (1.03 if not whole else 1.5)
    assert 1 <= mean_variance(sine_strategy(2000).solver) / svd_bound(2000) < 1.11


@pytest.mark.parametrize("n", [16, 72, 200])
@pytest.mark.parametrize("whole", [0.0, 0.5])
def test_mixed_rounds_reach_the_optimum_in_six(n, whole):
    gram = workload_gram(n, whole=whole)

    def cost(steps, gap):
        x = optimal_gram(gram, gap, steps)
        return float(np.trace(np.linalg.solve(x, gram)))

    assert cost(6, 3e-4) <= cost(200, 1e-7) * (1 + 4e-4)


def test_budgets_over_all_ranges_are_searched_once_for_all_grains(monkeypatch):
    searched, search = [], optimised_tree.optimise_nodes

    def counted(tree, *arguments):
        searched.append(tree)
        return search(tree, *arguments)

    def tree_of(whole, scale):
        (offer,) = optimised_tree.offers(AxisProblem(21, LAPLACE, None, whole, scale))
        return offer.make().strategy

    optimised_tree._over_all_ranges.cache_clear()
    monkeypatch.setattr(optimised_tree, "optimise_nodes", counted)
    fine, count = tree_of(0.5, 1 << 14), len(searched)
    assert tree_of(0.5, 1 << 7) is fine and len(searched) == count > 0
    shares, _ = search(fine.solver.tree, LAPLACE, 0.5, None, 120, 3)
    assert fine.budget.tolist() == tree_strategy(fine.solver.tree, shares).budget.tolist()
    assert tree_of(0.0, 1 << 14) is not fine and len(searched) > count
