"""Strategies of a stream as plain values, fixed when it is made.

Strategies are found by optimisation, and another version or machine may find slightly others. Rows of one block would
then be sums of different rows, and neither estimates nor budgets would hold. So the first append writes them into the
promise, which the ledger seals, and every later append takes them from there. So do the leaves of axes over public
tables, as a digest of their labels: a row added to such a table could move every later leaf by one.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dpsql.axis import Axis, CategoryRule, KeyRule
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
    others = [
        _to_json(planned.axis.name, planned.choice) | {"leaves": leaf_digest(planned.axis)}
        for planned in plan.batch.axes[1:]
    ]
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
        raise _other_axes()
    first = replace(axes[0], choice=axes[0].choice._replace(name=described(time)))
    rest = [replace(own, choice=choice) for own, (_, choice) in zip(axes[1:], others, strict=True)]
    return replace(plan, strategy=time, batch=replace(plan.batch, axes=(first, *rest)))


def check_leaves(plan: StreamPlan, kept: dict[str, Any]) -> None:
    """Refuse to append along axes whose leaves stand for other values than they did.

    Args:
        plan: planned anew from the public tables as they are.
        kept: what `frozen` gave.

    Raises:
        IntegrityError: a public table has changed what leaves stand for, or the promise is damaged.
    """
    if [entry.get("leaves") for entry in kept["axes"]] != [leaf_digest(p.axis) for p in plan.batch.axes[1:]]:
        raise _other_axes()


def _other_axes() -> IntegrityError:
    return IntegrityError(
        "the axes are not those that the stream was made with",
        hint="restore the catalog and its public tables, or make a new release",
    )


def leaf_digest(axis: Axis) -> str:
    """A digest of what each leaf stands for, where that follows from public rows; empty where the catalog fixes it."""
    if isinstance(axis.rule, CategoryRule):
        labels: list[list[str]] = [list(axis.rule.values)]
    elif isinstance(axis.rule, KeyRule):
        grain = {(member.path, member.column) for member in axis.resolved.by}
        named = [column.sql_name for column in axis.columns if (column.path, column.column) in grain]
        labels = [[_label(value) for value in axis.values[name].tolist()] for name in named]
    else:
        return ""
    return hashlib.sha256(json.dumps(labels).encode()).hexdigest()


def _label(value: object) -> str:
    """A public value as text, numbers by value: 7, 7.0 and 7.00 are one."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return str(value)
    return str(Fraction(value)) if math.isfinite(value) else str(value)


def _to_json(name: str, choice: AxisChoice) -> dict[str, Any]:
    return {
        "axis": name, "name": choice.name, "error": choice.expected_error, "runners_up": choice.runners_up,
        "kind": choice.strategy.kind, "strategy": choice.strategy.frozen(),
    }  # fmt: skip


def _from_json(entry: dict[str, Any]) -> tuple[str, AxisChoice]:
    strategy = thaw(str(entry["kind"]), entry["strategy"])
    runners = tuple((str(name), float(error)) for name, error in entry["runners_up"])
    return str(entry["axis"]), AxisChoice(strategy, str(entry["name"]), float(entry["error"]), runners)
