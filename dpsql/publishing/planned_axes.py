"""Axes with what will be measured on them; equal axes with equal strategies are one axis of the release.

**Privacy**: strategies follow from numbers of leaves and declared workloads, both public.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.axis import Axis
from dpsql.catalog.graph import ResolvedAxis
from dpsql.catalog.tables import AxisSpec
from dpsql.mechanisms.central.choose import AxisChoice, axis_strategy
from dpsql.mechanisms.central.shape import shape_strategy
from dpsql.mechanisms.central.strategy import Strategy
from dpsql.publishing.adapted import adapted_choice
from dpsql.publishing.axes import AxisMaker
from dpsql.publishing.workload import declared_workload

SHAPE = "shape"
"""How axes of `max_ids: auto` views are measured, whatever mechanism the view names."""


@dataclass(frozen=True)
class PlannedAxis:
    """An axis together with what will be measured on it."""

    resolved: ResolvedAxis
    axis: Axis
    choice: AxisChoice

    @property
    def strategy(self) -> Strategy:
        """What is measured on the axis."""
        return self.choice.strategy


class AxisPlanner:
    """The axes planned so far; equal axes with equal strategies are one."""

    def __init__(self, make_axis: AxisMaker) -> None:
        self._make = make_axis
        self._made: dict[ResolvedAxis, Axis] = {}
        self._choices: dict[tuple[object, ...], AxisChoice] = {}
        self._ids: dict[tuple[object, ...], int] = {}
        self.entries: list[PlannedAxis] = []

    def axis(self, resolved: ResolvedAxis) -> Axis:
        """The axis of a resolved name, built once."""
        if resolved not in self._made:
            self._made[resolved] = self._make(resolved)
        return self._made[resolved]

    def choice(
        self, resolved: ResolvedAxis, mechanism: str, shared: bool, norm: int, spec: AxisSpec | None = None
    ) -> AxisChoice:
        """The strategy of an axis, chosen once for equal numbers of leaves and equal workloads."""
        axis = self.axis(resolved)
        asked = spec.asked if spec is not None else ()
        key = (resolved if asked else axis.leaves, mechanism, shared, norm, asked)
        if key not in self._choices and mechanism == SHAPE:
            self._choices[key] = shape_strategy(axis.leaves, norm)
        elif key not in self._choices:
            workload = declared_workload(spec, resolved, axis) if spec is not None else None
            self._choices[key] = axis_strategy(
                axis.leaves, mechanism, shared=shared, norm=norm, workload=workload
            )
        return self._choices[key]

    def adapted(self, resolved: ResolvedAxis, method: str) -> int:
        """An axis of its own: its variance model will be known when it is drawn."""
        axis = self.axis(resolved)
        self.entries.append(PlannedAxis(resolved, axis, adapted_choice(method, axis.leaves)))
        return len(self.entries) - 1

    def planned(
        self,
        resolved: ResolvedAxis,
        mechanism: str,
        shared: bool,
        norm: int,
        spec: AxisSpec | None = None,
        *,
        own: str = "",
    ) -> int:
        """The axis's id in the release; a view that is named in `own` shares it with no other."""
        key = (resolved, mechanism, shared, norm, spec.asked if spec is not None else (), own)
        if key not in self._ids:
            self._ids[key] = len(self.entries)
            choice = self.choice(resolved, mechanism, shared, norm, spec)
            self.entries.append(PlannedAxis(resolved, self.axis(resolved), choice))
        return self._ids[key]
