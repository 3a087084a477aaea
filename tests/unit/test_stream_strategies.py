"""Subtraction, Toeplitz, the choice between strategies, and the figures they must reach."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.mechanisms.stream import choose, laminar, subtraction, toeplitz
from dpsql.mechanisms.stream.choose import StreamStrategy, Workload, predicted_error
from dpsql.mechanisms.stream.time_tree import TimePlan


@pytest.mark.parametrize(
    ("horizon", "arity", "levels"), [(1, 3, 1), (4, 3, 2), (60, 5, 3), (200, 7, 3), (365, 11, 2)]
)
def test_subtraction_reads_exactly_the_prefix(horizon: int, arity: int, levels: int) -> None:
    nodes = subtraction.subtraction_nodes(horizon, arity, levels)
    batch = np.arange(int(nodes.hi.max()))
    cover = (nodes.lo[:, None] <= batch) & (batch < nodes.hi[:, None])
    length = np.arange(horizon + 1)[:, None]
    read = nodes.sign * ((nodes.first <= length) & (length < nodes.stop))
    assert (read @ cover == (batch < length)).all()
    inside = nodes.parent >= 0
    up = nodes.parent[inside]
    assert (nodes.lo[up] <= nodes.lo[inside]).all() and (nodes.hi[inside] <= nodes.hi[up]).all()
    shares = laminar.best_shares(nodes, "pure")
    assert (cover.T @ shares <= 1 + 1e-12).all()  # the budget holds even where a middle node is skipped


def test_subtraction_answers() -> None:
    nodes = subtraction.subtraction_nodes(50, 5, 3)
    exact = np.arange(50)
    assert laminar.answer_prefixes(nodes, exact, np.zeros(nodes.lo.size, np.int64)).tolist() == [
        0,
        *np.cumsum(exact).tolist(),
    ]
    noise = np.arange(nodes.lo.size)
    length = np.arange(51)[:, None]
    read = nodes.sign * ((nodes.first <= length) & (length < nodes.stop))
    wanted = np.concatenate(([0], np.cumsum(exact))) + read @ noise
    assert (laminar.answer_prefixes(nodes, exact, noise) == wanted).all()


@pytest.mark.parametrize(("arity", "levels"), [(4, 2), (1, 2), (3, 0)])
def test_subtraction_refuses(arity: int, levels: int) -> None:
    with pytest.raises(ValueError, match="odd arity"):
        subtraction.subtraction_nodes(10, arity, levels)


def test_figures_of_the_prefix_strategies() -> None:
    def error(
        kind: choose.Kind, horizon: int, question: choose.Question, currency: laminar.Currency
    ) -> float:
        arity, levels = subtraction.best_subtraction(horizon, currency) if kind == "prefix" else (0, 0)
        return predicted_error(StreamStrategy(kind, horizon, None, arity, levels), question, currency)

    assert error("prefix", 1023, "running", "pure") <= 160
    assert error("prefix", 65535, "running", "pure") <= 560
    assert error("fda", 1023, "running", "pure") == pytest.approx(435.5, abs=0.05)
    assert error("fenwick", 1023, "running", "pure") == pytest.approx(1001, abs=0.5)
    assert error("toeplitz", 1023, "running", "zcdp") <= 9.8
    assert error("fda", 1023, "running", "zcdp") == pytest.approx(31.5, abs=0.05)
    assert error("prefix", 1023, "running", "zcdp") <= 24.5
    fda_year = [error("fda", 365, question, "pure") for question in ("prefix", "range", 1, 30)]
    assert np.allclose(fda_year, [307, 551, 141, 469], atol=0.5)


def test_figures_of_the_default_time_axis() -> None:
    axis = choose.choose(365, None, "pure")
    assert axis.unbounded and axis.plan == TimePlan((1, 28), (6, 4))
    year = [predicted_error(axis, question, "pure") for question in ("prefix", "range", 1, 30)]
    assert (np.array(year) <= [100, 97, 6, 61]).all()
    increments = [
        predicted_error(StreamStrategy("increments", 365, TimePlan()), question, "pure")
        for question in ("prefix", "range", 1, 30)
    ]
    assert np.allclose(increments, [366, 245, 2, 60], atol=1)


def test_toeplitz_is_the_square_root_and_decodes() -> None:
    n = 64
    root = toeplitz.root_coefficients(n)
    assert np.allclose(np.convolve(root, root)[:n], 1)
    assert toeplitz.prefix_error(1023) == pytest.approx(9.67, abs=0.005)
    assert toeplitz.lower_bound(1023) == pytest.approx(8.46, abs=0.005)
    coefficients = toeplitz.integer_coefficients(n)
    exact = np.arange(n) % 7
    rows = np.array([toeplitz.toeplitz_row(exact[: t + 1], coefficients) for t in range(n)])
    assert np.allclose(toeplitz.decode_increments(rows, coefficients), exact, atol=1e-6)
    lower = sum(int(c) ** 2 for c in coefficients)
    assert toeplitz.squared_sensitivity(n) == lower
    with pytest.raises(ValueError, match="horizon"):
        toeplitz.toeplitz_row(np.zeros(n + 1, np.int64), coefficients)


@pytest.mark.parametrize("length", [1, 7, 40])
def test_toeplitz_errors_equal_dense_sums(length: int) -> None:
    n = 40
    root = toeplitz.root_coefficients(n)
    decode = np.zeros((n + 1, n))
    for t in range(1, n + 1):
        decode[t, :t] = root[:t][::-1]
    norm = float((root**2).sum())
    lo, hi = np.triu_indices(n + 1, 1)
    pairs = ((decode[hi] - decode[lo]) ** 2).sum(axis=1) * norm
    assert toeplitz.range_error(n) == pytest.approx(pairs.mean())
    assert toeplitz.window_error(n, length) == pytest.approx(pairs[hi - lo == length].mean())
    assert toeplitz.prefix_error(n) == pytest.approx(((decode[1:] ** 2).sum(axis=1) * norm).mean())


@pytest.mark.parametrize(
    ("horizon", "workload", "currency", "kind"),
    [
        (365, Workload(prefixes=1), "pure", "prefix"),
        (365, Workload(ranges=1), "pure", "time_tree"),
        (365, Workload(days=1), "pure", "increments"),
        (365, Workload(prefixes=1), "zcdp", "toeplitz"),
        (12, Workload(ranges=1), "pure", "increments"),
        (365, Workload(1, 1, 1, ((30, 1.0),)), "pure", "time_tree"),
        (20, Workload(windows=((30, 1.0),)), "pure", "time_tree"),
    ],
)
def test_auto_takes_the_smallest_predicted_error(
    horizon: int, workload: Workload, currency: laminar.Currency, kind: str
) -> None:
    ranked = choose.rank(horizon, workload, currency)
    assert choose.choose(horizon, workload, currency).kind == kind == ranked[0].strategy.kind
    assert [entry.error for entry in ranked] == sorted(entry.error for entry in ranked)
    assert {"increments", "fenwick", "fda", "prefix"} <= {entry.strategy.kind for entry in ranked}
    assert any(entry.strategy.kind == "toeplitz" for entry in ranked) == (currency == "zcdp")


def test_fda_is_chosen_among_strategies_that_publish_nodes_only() -> None:
    """FDA beats the plain Fenwick tree; subtraction, which draws noise ahead, beats both."""
    errors = {entry.strategy.kind: entry.error for entry in choose.rank(1023, Workload(prefixes=1), "pure")}
    assert errors["prefix"] < errors["fda"] < errors["fenwick"]


@pytest.mark.parametrize("horizon", [10, 300, 3650, 30_000, 100_000])
def test_default_plan_nests(horizon: int) -> None:
    plan = choose.default_plan(horizon)
    assert plan.spans[-1] <= horizon and sum(plan.budgets) == plan.total


def test_refusals() -> None:
    with pytest.raises(ValueError, match="workload"):
        Workload().questions()
    with pytest.raises(ValueError, match="workload"):
        Workload(prefixes=-1, ranges=1).questions()
    with pytest.raises(ValueError, match="delta"):
        predicted_error(StreamStrategy("toeplitz", 10), "running", "pure")
    with pytest.raises(ValueError, match="noise nodes"):
        choose.noise_nodes(StreamStrategy("toeplitz", 10), "zcdp")
    for spans, budgets in (((2,), (1,)), ((1, 3, 4), (1, 1, 1)), ((1, 2), (1,)), ((1, 2), (1, 0)), ((), ())):
        with pytest.raises(ValueError):
            TimePlan(spans, budgets)
    for strategy in (
        StreamStrategy("fda", 5),
        StreamStrategy("toeplitz", 5),
        StreamStrategy("increments", 5, TimePlan()),
    ):
        with pytest.raises(ValueError, match="window"):
            predicted_error(strategy, 6, "zcdp")


@pytest.mark.parametrize("name", ["auto", "chain", "fenwick", "fda", "prefix", "toeplitz"])
def test_named_strategies(name: str) -> None:
    strategy = choose.named_strategy(name, 200, "zcdp")
    wanted = {"auto": "time_tree", "chain": "time_tree"}.get(name, name)
    assert strategy.kind == wanted and strategy.horizon == 200
    assert predicted_error(strategy, "running", "zcdp") > 0
    prefixes = Workload(prefixes=1)
    assert choose.named_strategy("chain", 200, "zcdp", prefixes).unbounded
    assert choose.named_strategy("auto", 200, "zcdp", prefixes).kind == "toeplitz"


@pytest.mark.parametrize("name", ["toeplitz", "chan"])
def test_unknown_strategies_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        choose.named_strategy(name, 200, "pure")
