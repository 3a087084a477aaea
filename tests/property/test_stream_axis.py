"""A stream as an axis: estimates are unbiased and best, and the model says how noisy they are."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.mechanisms.laminar import FloatArray
from dpsql.mechanisms.stream.axis import batch_estimates, batch_variance
from dpsql.mechanisms.stream.choose import StreamStrategy, noise_nodes
from dpsql.mechanisms.stream.laminar import Currency
from dpsql.mechanisms.stream.schedule import Emission, emissions
from dpsql.mechanisms.stream.time_error import plan_variance
from dpsql.mechanisms.stream.time_tree import TimePlan
from dpsql.mechanisms.stream.toeplitz import integer_coefficients, squared_sensitivity

HORIZON = 24
STRATEGIES = [
    StreamStrategy("increments", HORIZON, TimePlan()),
    StreamStrategy("time_tree", HORIZON, TimePlan((1, 3, 6), (5, 3, 2))),
    StreamStrategy("time_tree", HORIZON, TimePlan((1, 24), (5, 3))),
    StreamStrategy("fenwick", HORIZON),
    StreamStrategy("fda", HORIZON),
    StreamStrategy("prefix", HORIZON, arity=3, levels=3),
    StreamStrategy("toeplitz", HORIZON),
]
CURRENCIES: tuple[Currency, ...] = ("pure", "zcdp")
CASES = [(s, c) for s in STRATEGIES for c in CURRENCIES if s.kind != "toeplitz" or c == "zcdp"]


def published(strategy: StreamStrategy, currency: Currency, batches: int) -> list[Emission]:
    return [e for number in range(batches) for e in emissions(strategy, currency, number)]


def row(emission: Emission, batches: int) -> FloatArray:
    """The emission's weights on the batches."""
    out = np.zeros(batches)
    out[emission.lo : emission.hi] = 1 if emission.weights is None else emission.weights
    return out


@pytest.mark.parametrize(("strategy", "currency"), CASES, ids=lambda x: getattr(x, "kind", x))
@pytest.mark.parametrize("batches", [1, 2, 6, 7, 17, 24])
def test_estimates_are_unbiased_and_the_model_is_their_variance(
    strategy: StreamStrategy, currency: Currency, batches: int
) -> None:
    sent = published(strategy, currency, batches)
    decode = batch_estimates(
        strategy, currency, batches, np.eye(len(sent))
    )  # what each published number does
    rows = np.array([row(emission, batches) for emission in sent])
    assert np.allclose(decode @ rows, np.eye(batches), atol=1e-8)
    nodes = sorted({read.node for emission in sent for read in emission.reads})
    reads = np.array([[sum(r.sign for r in e.reads if r.node == node) for node in nodes] for e in sent])
    share = {r.node: r.budget / r.total for e in sent for r in e.reads}
    noise = np.array([1 / share[node] ** (2 if currency == "pure" else 1) for node in nodes])
    if strategy.kind == "toeplitz":
        noise = noise * float(squared_sensitivity(HORIZON))
    spread = decode @ reads
    covariance = (spread * noise) @ spread.T
    model = batch_variance(strategy, currency, batches)
    lo, hi = np.triu_indices(batches + 1, 1)
    prefix = np.vstack([np.zeros(batches), np.tril(np.ones((batches, batches)))])
    ask = prefix[hi] - prefix[lo]
    wanted = np.einsum("ij,jk,ik->i", ask, covariance, ask)
    assert np.allclose(model.ranges(lo, hi), wanted, rtol=1e-5)
    if strategy.plan is not None:
        scale = 2 if currency == "pure" else 1
        assert np.allclose(plan_variance(strategy.plan, batches, currency).ranges(lo, hi), scale * wanted)


@pytest.mark.parametrize(("strategy", "currency"), CASES, ids=lambda x: getattr(x, "kind", x))
def test_every_batch_spends_the_budget_at_most_once(strategy: StreamStrategy, currency: Currency) -> None:
    """Distinct nodes over a batch, their shares added up: the sum over all emissions that the node's sums cover."""
    if strategy.kind == "toeplitz":
        columns = integer_coefficients(HORIZON)
        assert squared_sensitivity(HORIZON) == sum(int(c) ** 2 for c in columns)
        return
    if strategy.kind == "prefix":
        nodes, variance = noise_nodes(strategy, currency)
        batch = np.arange(int(nodes.hi.max()))
        cover = (nodes.lo[:, None] <= batch) & (batch < nodes.hi[:, None])
        share = {r.node: r.budget / r.total for e in published(strategy, currency, HORIZON) for r in e.reads}
        assert (cover.T @ np.array([share[i] for i in range(nodes.lo.size)]) <= 1).all()
        assert variance.min() > 0
        return
    spent = np.zeros(HORIZON)
    for emission in published(strategy, currency, HORIZON):
        (read,) = emission.reads
        spent[emission.lo : emission.hi] += read.budget / read.total
    assert spent.max() <= 1 + 1e-12


def test_further_axes_and_wrong_row_counts() -> None:
    rng = np.random.default_rng(2)
    for strategy, currency in CASES:
        values = rng.normal(size=(len(published(strategy, currency, 7)), 2, 3))
        whole = batch_estimates(strategy, currency, 7, values)
        assert whole.shape == (7, 2, 3)
        assert np.allclose(whole[:, 1, 2], batch_estimates(strategy, currency, 7, values[:, 1, 2]))
        with pytest.raises(ValueError, match="rows"):
            batch_estimates(strategy, currency, 7, values[:-1])


def test_long_axes_are_trees() -> None:
    plan = TimePlan((1, 12, 144), (4, 3, 3))
    strategy = StreamStrategy("time_tree", 40_000, plan)
    lo = np.arange(0, 39_000, 500)
    model = batch_variance(strategy, "pure", 40_000)
    assert np.allclose(
        2 * model.ranges(lo, lo + 997), plan_variance(plan, 40_000, "pure").ranges(lo, lo + 997)
    )
