"""Every shipped strategy of time: estimates are unbiased, models and errors are exact, and the price rule holds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dpsql.matrices.reading import from_columns
from dpsql.mechanisms import continual
from dpsql.mechanisms.continual.prefixes import fda_strategy, subtraction_nodes, subtraction_strategy
from dpsql.mechanisms.continual.time_tree import Emission, TimeStrategy, share_variance, tree_strategy
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution
from dpsql.tree import FloatArray, IntArray
from tests.time_forms import ending, lasting, level_variance, mean_error, running_total

HORIZON = 24


def strategies(law: NoiseDistribution) -> list[TimeStrategy]:
    return [
        tree_strategy(law),
        tree_strategy(law, (1, 3, 6), (5, 3, 2)),
        tree_strategy(law, (1, 24), (5, 3)),
        fda_strategy(law, HORIZON),
        subtraction_strategy(law, HORIZON, 3, 3),
    ]


FILTERS: list[TimeStrategy] = [
    ending(HORIZON),
    ending(HORIZON, "1", "7", units=4, cutoff=0.3),
    lasting(HORIZON),
    lasting(2, "running", "1"),  # a band of 8 batches, within the horizon
]
CASES = [*strategies(LAPLACE), *strategies(GAUSSIAN), *FILTERS]
every = pytest.mark.parametrize("strategy", CASES, ids=lambda s: f"{s.kind}-{s.law.name}")


def published(strategy: TimeStrategy, batches: int) -> list[Emission]:
    return [e for number in range(batches) for e in strategy.emissions(number)]


def row(emission: Emission, batches: int) -> IntArray:
    """The emission's weights on the batches."""
    out = np.zeros(batches, dtype=np.int64)
    out[emission.lo : emission.hi] = 1 if emission.weights is None else emission.weights
    return out


def asked_ranges(batches: int) -> FloatArray:
    prefix = np.vstack([np.zeros(batches), np.tril(np.ones((batches, batches)))])
    lo, hi = np.triu_indices(batches + 1, 1)
    return prefix[hi] - prefix[lo]


def covariance(strategy: TimeStrategy, batches: int) -> FloatArray:
    """Of the batches' estimates, from what is published and how it is decoded, and from nothing else."""
    sent = published(strategy, batches)
    decode = strategy.estimate(batches, np.eye(len(sent)))  # what each published number does
    rows = np.array([row(emission, batches) for emission in sent])
    assert np.allclose(decode @ rows, np.eye(batches), atol=1e-8)
    nodes = sorted({read.node for emission in sent for read in emission.reads})
    reads = np.array([[sum(r.sign for r in e.reads if r.node == node) for node in nodes] for e in sent])
    share = {r.node: float(r.share) for e in sent for r in e.reads}
    spread = decode @ reads
    return np.asarray((spread * share_variance(strategy.law, np.array([share[n] for n in nodes]))) @ spread.T)


@every
@pytest.mark.parametrize("batches", [1, 2, 6, 7, 17, 24])
def test_estimates_are_unbiased_and_the_model_is_their_variance(strategy: TimeStrategy, batches: int) -> None:
    lo, hi = np.triu_indices(batches + 1, 1)
    ask = asked_ranges(batches)
    wanted = np.einsum("ij,jk,ik->i", ask, covariance(strategy, batches), ask)
    model = strategy.variance(batches)
    assert np.allclose(model.ranges(lo, hi), wanted, rtol=1e-5)
    assert np.allclose(model.quadratic(ask), wanted, rtol=1e-5)
    stored = from_columns(model.kind, batches, model.columns())
    assert np.allclose(stored.ranges(lo, hi), wanted, rtol=1e-5)


@every
@pytest.mark.parametrize("batches", [1, 7, 17, 24])
def test_predicted_errors_are_means_of_the_covariance(strategy: TimeStrategy, batches: int) -> None:
    lo, hi = np.triu_indices(batches + 1, 1)
    ask, unit = asked_ranges(batches), strategy.law.error_at_unit_budget
    value = unit * np.einsum("ij,jk,ik->i", ask, covariance(strategy, batches), ask)
    assert mean_error(strategy, batches, "range") == pytest.approx(value.mean(), rel=1e-5)
    assert mean_error(strategy, batches, "prefix") == pytest.approx(value[lo == 0].mean(), rel=1e-5)
    totals = [unit * float(covariance(strategy, length).sum()) for length in range(1, batches + 1)]
    assert mean_error(strategy, batches, "running") == pytest.approx(np.mean(totals), rel=1e-5)
    for length in {1, 5, batches} & set(range(batches + 1)):
        assert mean_error(strategy, batches, str(length)) == pytest.approx(
            value[hi - lo == length].mean(), rel=1e-5
        )
    for length in (0, batches + 1):
        with pytest.raises(ValueError, match="window"):
            mean_error(strategy, batches, str(length))


@every
def test_a_row_of_any_batch_pays_at_most_the_whole(strategy: TimeStrategy) -> None:
    """sum over nodes of share * |weight|^norm <= 1, exactly, with each node's own sum recovered from what is published.

    A node that is read several times hides behind others, so its sum is solved for: emissions = reads @ node sums.
    """
    sent = published(strategy, HORIZON)
    nodes = sorted({read.node for emission in sent for read in emission.reads})
    share = {r.node: r.share for e in sent for r in e.reads}
    reads = np.array([[sum(r.sign for r in e.reads if r.node == node) for node in nodes] for e in sent])
    rows = np.array([row(emission, HORIZON) for emission in sent])
    weights = node_weights(strategy, nodes, reads, rows)
    assert (reads @ weights == rows).all()  # what is published is a function of the noisy node sums alone
    paid = [
        sum(share[node] * abs(int(w)) ** strategy.law.norm for node, w in zip(nodes, column, strict=True))
        for column in weights.T
    ]
    assert Fraction(99, 100) < max(paid) <= 1


@every
def test_a_unit_in_several_batches_pays_at_most_its_price(strategy: TimeStrategy) -> None:
    """Every set of up to three batches of ten, and the worst runs of more; rows of either sign, exactly.

    Rows of the batches S move the nodes by sums of columns, so they pay at most the sum over i, j in S of |X_ij|, X the
    columns' inner products under Gaussian noise. Under Laplace noise they pay the columns' sums of absolute values.
    """
    sent = published(strategy, HORIZON)
    nodes = sorted({read.node for emission in sent for read in emission.reads})
    share = {r.node: r.share for e in sent for r in e.reads}
    reads = np.array([[sum(r.sign for r in e.reads if r.node == node) for node in nodes] for e in sent])
    weights = node_weights(strategy, nodes, reads, np.array([row(e, HORIZON) for e in sent])).astype(object)
    spent = np.array([share[node] for node in nodes], dtype=object)[:, None]
    meet = np.abs(weights.T @ (spent * weights))
    alone = (spent * np.abs(weights)).sum(axis=0)

    def paid(batches: Iterable[int]) -> Fraction:
        own = list(batches)
        return Fraction(alone[own].sum() if strategy.law.norm == 1 else meet[np.ix_(own, own)].sum())

    for size in (1, 2, 3):
        assert max(paid(chosen) for chosen in combinations(range(10), size)) <= strategy.price(size)
    for size in range(1, HORIZON + 1):
        runs = [range(start, start + size) for start in range(HORIZON - size + 1)]
        spread = [range(0, HORIZON, HORIZON // size)][: HORIZON % size == 0]
        assert max(map(paid, (*runs, *spread))) <= strategy.price(size) <= size**strategy.law.norm
    assert strategy.price(1) == 1 and strategy.price(1000) >= strategy.price(HORIZON)


def test_prices_that_are_met() -> None:
    """Blocks that are filled pay all of it; batches on their own pay one each."""
    assert tree_strategy(GAUSSIAN).price(30) == 30 and tree_strategy(LAPLACE, (1, 4), (6, 4)).price(30) == 30
    assert tree_strategy(GAUSSIAN, (1, 28), (6, 4)).price(4) == Fraction(88, 10)
    assert fda_strategy(GAUSSIAN, HORIZON).price(7) == 49


def node_weights(strategy: TimeStrategy, nodes: list[int], reads: IntArray, rows: IntArray) -> IntArray:
    """The exact sum behind each noise node as a row over the batches."""
    if (reads.sum(axis=1) == 1).all() and (reads >= 0).all():
        return np.asarray(reads.T @ rows)
    own = subtraction_nodes(HORIZON, 3, 3)
    batch = np.arange(HORIZON)
    return np.asarray((own.lo[nodes, None] <= batch) & (batch < own.hi[nodes, None]), dtype=np.int64)


@every
def test_shares_are_told_and_frozen_ones_come_back(strategy: TimeStrategy) -> None:
    found = {read.share for emission in published(strategy, HORIZON) for read in emission.reads}
    assert strategy.shares == (min(found), max(found))
    kept = json.loads(json.dumps(strategy.frozen()))
    again = continual.thaw(strategy.kind, strategy.law, kept)
    assert again.frozen() == strategy.frozen() and again.name == strategy.name
    assert [e.reads for e in published(again, HORIZON)] == [e.reads for e in published(strategy, HORIZON)]


@every
def test_kept_sums_are_enough(strategy: TimeStrategy) -> None:
    """Whatever a batch publishes reads exact sums that were kept after the batch before it, and its own."""
    for batch in range(HORIZON):
        kept = {*strategy.needed(batch), batch + 1}
        for emission in strategy.emissions(batch):
            wanted = (
                range(emission.lo, emission.hi + 1)
                if emission.weights is not None
                else (emission.lo, emission.hi)
            )
            assert kept >= set(wanted)


@every
def test_batches_past_the_end_are_refused(strategy: TimeStrategy) -> None:
    with pytest.raises(ValueError, match="no budget left"):
        strategy.emissions(-1)
    if strategy.horizon is None:
        assert strategy.emissions(10 * HORIZON)
        return
    with pytest.raises(ValueError, match="no budget left"):
        strategy.emissions(HORIZON)


@every
def test_further_axes_and_wrong_row_counts(strategy: TimeStrategy) -> None:
    values = np.random.default_rng(2).normal(size=(len(published(strategy, 7)), 2, 3))
    whole = strategy.estimate(7, values)
    assert whole.shape == (7, 2, 3)
    assert np.allclose(whole[:, 1, 2], strategy.estimate(7, values[:, 1, 2]))
    with pytest.raises(ValueError, match="rows"):
        strategy.estimate(7, values[:-1])


def test_long_axes_are_trees() -> None:
    """Ranges inside one block are as exact in 40,000 batches as in those of the block."""
    tree = tree_strategy(LAPLACE, (1, 12, 144), (4, 3, 3))
    lo = np.arange(39_000 // 144 * 144, 39_000 // 144 * 144 + 140)
    last = tree.variance(40_000).ranges(lo, lo + 3)
    assert np.allclose(last, tree.variance(288).ranges(lo % 144, lo % 144 + 3))


TREES = [
    tree_strategy(LAPLACE),
    tree_strategy(LAPLACE, (1, 4), (6, 4)),
    tree_strategy(LAPLACE, (1, 3, 12), (5, 3, 2)),
    tree_strategy(LAPLACE, (1, 2, 4, 16), (5, 3, 2, 2)),
]


def least_squares(plan: TimeStrategy, batches: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Published rows in their order, their precisions and the covariance of the least-squares estimate."""
    emissions = [emission for batch in range(batches) for emission in plan.emissions(batch)]
    batch = np.arange(batches)
    rows = np.array([(e.lo <= batch) & (batch < e.hi) for e in emissions]).astype(float)
    precision = np.array([1 / level_variance(plan)[e.level] for e in emissions])
    return rows, precision, np.linalg.inv(rows.T @ (precision[:, None] * rows))


@pytest.mark.parametrize("plan", TREES)
@pytest.mark.parametrize("batches", [1, 3, 4, 5, 12, 16, 37, 50])
def test_trees_against_dense_least_squares(plan: TimeStrategy, batches: int) -> None:
    rows, precision, covariance = least_squares(plan, batches)
    prefix = np.vstack([np.zeros(batches), np.tril(np.ones((batches, batches)))])
    lo, hi = np.triu_indices(batches + 1)
    ask = prefix[hi] - prefix[lo]
    wanted = np.einsum("ij,jk,ik->i", ask, covariance, ask)
    assert np.allclose(plan.variance(batches).ranges(lo, hi), wanted, rtol=1e-9, atol=1e-9)
    assert mean_error(plan, batches, "range") == pytest.approx(2 * wanted[hi > lo].mean())
    measured = np.random.default_rng(batches).normal(size=(len(rows), 2))
    estimate = covariance @ (rows.T @ (precision[:, None] * measured))
    assert np.allclose(plan.estimate(batches, measured), estimate, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("plan", TREES)
def test_running_total_equals_the_batch_estimate(plan: TimeStrategy) -> None:
    rng = np.random.default_rng(7)
    state = running_total(plan)
    measured, variances = list[float](), list[float]()
    for batch in range(1, 51):
        values = rng.normal(size=len(plan.emissions(batch - 1))).tolist()
        measured += values
        state = state.append(values)
        assert state.estimate == pytest.approx(
            float(plan.estimate(batch, np.array(measured)).sum()), abs=1e-9
        )
        assert state.variance == pytest.approx(float(plan.variance(batch).ranges(0, batch)[0]))
        variances.append(state.variance)
        assert mean_error(plan, batch, "running") == pytest.approx(2 * np.mean(variances))
    with pytest.raises(ValueError, match="zip"):
        state.append([1.0] * 9)


def test_closed_nodes_never_reopen() -> None:
    """Once a top block is closed, later batches change neither its estimates nor their variance."""
    plan = tree_strategy(LAPLACE, (1, 3, 6), (5, 3, 2))
    measured = np.random.default_rng(3).normal(size=45)

    def upto(batches: int) -> FloatArray:
        return plan.estimate(batches, measured[: sum(batches // span for span in plan.stored["spans"])])

    for batches in range(6, 30):
        closed = batches // 6 * 6
        assert (upto(batches)[:closed] == upto(30)[:closed]).all()
