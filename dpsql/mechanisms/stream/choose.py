"""`strategy: auto`: predict every strategy's error for the declared workload and horizon, take the smallest.

Everything here is public: number of batches, kinds of question, currency. Errors are mean variances per unit
count at epsilon = 1 (pure) or rho = 1/2 (zCDP), so they compare within a currency; multiply by 1/epsilon^2
or 1/(2 rho).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal, NamedTuple

import numpy as np

from dpsql.mechanisms.laminar import FloatArray
from dpsql.mechanisms.stream import laminar, time_error, toeplitz
from dpsql.mechanisms.stream.fenwick import fda_budgets, fenwick_nodes
from dpsql.mechanisms.stream.laminar import Currency, NoiseNodes
from dpsql.mechanisms.stream.subtraction import best_subtraction, subtraction_nodes
from dpsql.mechanisms.stream.time_tree import TimePlan

Kind = Literal["increments", "time_tree", "fenwick", "fda", "prefix", "toeplitz"]
Question = Literal["running", "prefix", "range"] | int
"""A running total asked when its batch arrives, a prefix asked later, any range, or windows by length."""


@dataclass(frozen=True)
class Workload:
    """How often each kind of question is asked; relative weights.

    Attributes:
        prefixes: totals so far, asked when their batch arrives.
        ranges: all ranges of batches, equally likely.
        days: single batches.
        windows: (length in batches, weight) pairs.
    """

    prefixes: float = 0.0
    ranges: float = 0.0
    days: float = 0.0
    windows: tuple[tuple[int, float], ...] = ()

    def questions(self) -> tuple[tuple[Question, float], ...]:
        """The questions with a positive weight.

        Raises:
            ValueError: when a weight is negative or none is positive.
        """
        named: tuple[tuple[Question, float], ...] = (
            ("running", self.prefixes),
            ("range", self.ranges),
            (1, self.days),
        )
        asked = tuple((q, w) for q, w in (*named, *self.windows) if w != 0)
        if not asked or any(w < 0 for _, w in asked):
            raise ValueError("a workload needs weights that are not negative, and one that is positive")
        return asked


@dataclass(frozen=True)
class StreamStrategy:
    """A strategy with all its public parameters.

    Attributes:
        kind: which mechanism.
        horizon: number of batches planned for.
        plan: node sizes and budgets (increments and time_tree).
        arity, levels: the k-ary tree (prefix).
    """

    kind: Kind
    horizon: int
    plan: TimePlan | None = None
    arity: int = 0
    levels: int = 0

    @property
    def unbounded(self) -> bool:
        """Whether batches past the horizon are still answered, at a growing error, rather than refused."""
        return self.plan is not None


class Ranked(NamedTuple):
    """A candidate and its predicted error for the workload (mean variance per unit count at unit budget)."""

    error: float
    strategy: StreamStrategy


def default_plan(horizon: int) -> TimePlan:
    """The time axis when no workload is declared: near the best for prefixes and ranges, days kept sharp.

    Below 60 batches increments; to 500 days and blocks of 28; above, nested blocks of 12.

    >>> default_plan(365)
    TimePlan(spans=(1, 28), budgets=(6, 4))
    """
    if horizon < 60:
        return TimePlan()
    if horizon <= 500:
        return TimePlan((1, 28), (6, 4))
    depth = 3 if horizon <= 5_000 else 4 if horizon <= 60_000 else 5
    return TimePlan(tuple(12**level for level in range(depth)), (4,) + (3,) * (depth - 1))


def predicted_error(strategy: StreamStrategy, question: Question, currency: Currency) -> float:
    """Mean variance of the answers to one kind of question over the horizon.

    Args:
        strategy: the strategy and its horizon.
        question: "running", "prefix", "range", or a window length in batches.
        currency: "pure" (epsilon = 1) or "zcdp" (rho = 1/2).

    Raises:
        ValueError: when a window does not fit into the horizon, or Toeplitz is asked for under pure budgets.
    """
    if strategy.plan is not None:
        return _time_error(strategy.plan, strategy.horizon, question, currency)
    if strategy.kind == "toeplitz":
        return _toeplitz_error(strategy.horizon, question, currency)
    nodes, variance = noise_nodes(strategy, currency)
    if question in ("running", "prefix"):
        return laminar.prefix_error(nodes, variance)
    if question == "range":
        return laminar.range_error(nodes, variance)
    return laminar.window_error(nodes, variance, int(question))


def noise_nodes(strategy: StreamStrategy, currency: Currency) -> tuple[NoiseNodes, FloatArray]:
    """The nodes of a prefix strategy and the variance of each at unit budget.

    Raises:
        ValueError: for strategies that are not made of such nodes.
    """
    if strategy.kind not in ("fenwick", "fda", "prefix"):
        raise ValueError(f"{strategy.kind} does not answer prefixes from noise nodes")
    shares = node_shares(strategy, currency)
    return prefix_nodes(strategy), laminar.unit_variance(shares, currency)


def prefix_nodes(strategy: StreamStrategy) -> NoiseNodes:
    """The nodes that a prefix strategy reads."""
    if strategy.kind == "prefix":
        return subtraction_nodes(strategy.horizon, strategy.arity, strategy.levels)
    return fenwick_nodes(strategy.horizon)


def node_shares(strategy: StreamStrategy, currency: Currency) -> FloatArray:
    """The share of the budget of every node of a prefix strategy (float64[n])."""
    if strategy.kind == "fenwick":
        return np.full(strategy.horizon, 1.0 / strategy.horizon.bit_length())
    if strategy.kind == "fda":
        return fda_budgets(strategy.horizon, laminar.exponent_of(currency))
    return laminar.best_shares(prefix_nodes(strategy), currency)


def _time_error(plan: TimePlan, horizon: int, question: Question, currency: Currency) -> float:
    if question == "running":
        return float(time_error.running_variance(plan, horizon, currency).mean())
    axis = time_error.plan_variance(plan, horizon, currency)
    if question == "prefix":
        return time_error.mean_prefix(axis)
    return time_error.mean_range(axis) if question == "range" else time_error.mean_window(axis, int(question))


def _toeplitz_error(horizon: int, question: Question, currency: Currency) -> float:
    if currency != "zcdp":
        raise ValueError("square-root Toeplitz needs Gaussian noise; allow a delta in the catalog")
    if question in ("running", "prefix"):
        return toeplitz.prefix_error(horizon)
    if question == "range":
        return toeplitz.range_error(horizon)
    return toeplitz.window_error(horizon, int(question))


def rank(horizon: int, workload: Workload, currency: Currency) -> tuple[Ranked, ...]:
    """All candidates, the smallest predicted error first.

    Args:
        horizon: number of batches planned for, >= 1.
        workload: the declared questions; windows longer than the horizon are cut to it.
        currency: "pure" or "zcdp" (square-root Toeplitz competes under zCDP only).
    """
    asked = [(min(q, horizon) if isinstance(q, int) else q, weight) for q, weight in workload.questions()]
    scale = sum(weight for _, weight in asked)
    found = []
    for strategy in candidates(horizon, currency):
        error = sum(weight * predicted_error(strategy, q, currency) for q, weight in asked)
        found.append(Ranked(error / scale, strategy))
    return tuple(sorted(found, key=lambda entry: entry.error))


@lru_cache(maxsize=64)
def choose(horizon: int, workload: Workload | None, currency: Currency) -> StreamStrategy:
    """The strategy that `auto` takes.

    Without a declared workload it is the default time axis, which serves every question and never ends.

    **Privacy**: depends on public facts alone, so it costs nothing.

    >>> choose(365, None, "pure").plan, choose(1023, Workload(prefixes=1), "zcdp").kind
    (TimePlan(spans=(1, 28), budgets=(6, 4)), 'toeplitz')
    """
    if workload is None:
        plan = default_plan(horizon)
        return StreamStrategy("time_tree" if len(plan.spans) > 1 else "increments", horizon, plan)
    return rank(horizon, workload, currency)[0].strategy


def named_strategy(
    name: str, horizon: int, currency: Currency, workload: Workload | None = None
) -> StreamStrategy:
    """The strategy that a catalog names, with its parameters filled in from the horizon.

    Args:
        name: auto, chain (the time tree), fenwick, fda, prefix or toeplitz.
        horizon: number of batches planned for.
        currency: "pure" or "zcdp".
        workload: what `auto` and `chain` are tuned for, or None for the default time axis.

    Raises:
        ValueError: an unknown name, or toeplitz under pure budgets.

    >>> named_strategy("chain", 365, "pure").plan, named_strategy("prefix", 1023, "pure").arity
    (TimePlan(spans=(1, 28), budgets=(6, 4)), 11)
    """
    if name == "auto":
        return choose(horizon, workload, currency)
    if name == "chain":
        if workload is None:
            return choose(horizon, None, currency)
        return next(r.strategy for r in rank(horizon, workload, currency) if r.strategy.plan is not None)
    if name == "prefix":
        arity, levels = best_subtraction(horizon, currency)
        return StreamStrategy("prefix", horizon, arity=arity, levels=levels)
    if name == "toeplitz" and currency == "zcdp":
        return StreamStrategy("toeplitz", horizon)
    if name in ("fenwick", "fda"):
        return StreamStrategy("fda" if name == "fda" else "fenwick", horizon)
    raise ValueError(f"no stream strategy {name} under {currency} budgets")


def candidates(horizon: int, currency: Currency) -> Iterator[StreamStrategy]:
    """Every strategy worth predicting at this horizon."""
    yield StreamStrategy("increments", horizon, TimePlan())
    yield StreamStrategy("fenwick", horizon)
    yield StreamStrategy("fda", horizon)
    arity, levels = best_subtraction(horizon, currency)
    yield StreamStrategy("prefix", horizon, arity=arity, levels=levels)
    if currency == "zcdp":
        yield StreamStrategy("toeplitz", horizon)
    plans = {default_plan(horizon), *_plans(horizon)}
    yield from (
        StreamStrategy("time_tree", horizon, p)
        for p in sorted(plans, key=lambda p: (p.spans, p.budgets))
        if len(p.spans) > 1
    )


def _plans(horizon: int) -> Iterator[TimePlan]:
    """Time plans on a coarse grid: neighbours on it differ by a few percent of error."""
    if 8 <= horizon <= 5_000:
        for span, share in product((4, 7, 14, 20, 24, 28, 40, 60), (3, 4, 5, 6, 7, 8)):
            if 2 * span <= horizon:
                yield TimePlan((1, span), (share, 10 - share))
    if 60 <= horizon <= 60_000:
        shares = ((4, 3, 3), (5, 3, 2), (3, 3, 4), (6, 2, 2))
        for span, above, budgets in product((7, 11, 14, 20, 28), (4, 8, 12), shares):
            if 2 * span * above <= horizon:
                yield TimePlan((1, span, span * above), budgets)
    if horizon > 5_000:
        depths = (4, 5) if horizon > 60_000 else (4,)
        for depth, span, own in product(depths, (8, 12, 16), (3, 4, 6)):
            if 2 * span ** (depth - 1) <= horizon:
                yield TimePlan(tuple(span**level for level in range(depth)), (own,) + (3,) * (depth - 1))
