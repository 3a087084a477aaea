"""Strategies of a stream as plain values, fixed when it is made.

Strategies are found by optimisation, and another version or machine may find slightly others. Rows of one block would
then be sums of different rows, and neither estimates nor budgets would hold. So the first append writes them into the
promise, which the ledger seals, and every later append takes them from there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpsql.errors import IntegrityError
from dpsql.mechanisms.axis.question import AxisChoice
from dpsql.mechanisms.axis.registry import thaw
from dpsql.mechanisms.stream.choose import StreamStrategy
from dpsql.mechanisms.stream.time_tree import TimePlan
from dpsql.publishing.stream_plan import StreamPlan
from dpsql.publishing.stream_time import described


def frozen(plan: StreamPlan) -> dict[str, Any]:
    """The strategies of a plan: of time, and of every other axis in the plan's order.

    **Privacy**: public facts; they follow from the catalog and public tables.
    """
    time = plan.strategy
    levels = None if time.plan is None else {"spans": time.plan.spans, "budgets": time.plan.budgets}
    others = [_to_json(planned.axis.name, planned.choice) for planned in plan.batch.axes[1:]]
    kept = {"kind": time.kind, "horizon": time.horizon, "arity": time.arity, "levels": time.levels}
    return {"time": {**kept, "plan": levels}, "axes": others}


def thawed(plan: StreamPlan, kept: dict[str, Any]) -> StreamPlan:
    """The plan with the strategies that the stream was made with.

    Args:
        plan: planned anew.
        kept: what `frozen` gave.

    Raises:
        IntegrityError: they do not fit the plan's axes: a public table or the catalog has changed.
    """
    try:
        levels = kept["time"].pop("plan")
        made = None if levels is None else TimePlan(tuple(levels["spans"]), tuple(levels["budgets"]))
        time = StreamStrategy(plan=made, **kept["time"])
        others = [_from_json(entry) for entry in kept["axes"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IntegrityError("the stream's promise is damaged", hint="restore it from a backup") from error
    axes = plan.batch.axes
    fits = [(planned.axis.name, planned.axis.leaves) for planned in axes[1:]]
    if [(name, choice.strategy.leaves) for name, choice in others] != fits:
        raise IntegrityError(
            "the axes are not those that the stream was made with",
            hint="restore the catalog and its public tables, or make a new release",
        )
    first = replace(axes[0], choice=axes[0].choice._replace(name=described(time)))
    rest = [replace(own, choice=choice) for own, (_, choice) in zip(axes[1:], others, strict=True)]
    return replace(plan, strategy=time, batch=replace(plan.batch, axes=(first, *rest)))


def _to_json(name: str, choice: AxisChoice) -> dict[str, Any]:
    return {
        "axis": name, "name": choice.name, "error": choice.expected_error, "runners_up": choice.runners_up,
        "kind": choice.strategy.kind, "strategy": choice.strategy.frozen(),
    }  # fmt: skip


def _from_json(entry: dict[str, Any]) -> tuple[str, AxisChoice]:
    strategy = thaw(str(entry["kind"]), entry["strategy"])
    runners = tuple((str(name), float(error)) for name, error in entry["runners_up"])
    return str(entry["axis"]), AxisChoice(strategy, str(entry["name"]), float(entry["error"]), runners)
