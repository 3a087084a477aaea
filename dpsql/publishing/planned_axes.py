"""Axes with what will be measured on them; equal axes with equal strategies are one axis of the release.

**Privacy**: strategies follow from numbers of leaves and declared workloads, both public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from dpsql.axis import Axis
from dpsql.catalog.graph import ResolvedAxis
from dpsql.catalog.tables import AxisSpec
from dpsql.mechanisms.axis.choose import COARSEST, axis_strategy
from dpsql.mechanisms.axis.question import AxisChoice
from dpsql.mechanisms.axis.shape import shape_strategy
from dpsql.mechanisms.axis.strategy import AxisStrategy
from dpsql.mechanisms.axis.zero_sum import zero_sum_choice
from dpsql.mechanisms.law import NoiseLaw
from dpsql.publishing.axes import AxisMaker
from dpsql.publishing.workload import declared_workload
from dpsql.tree import Workload

RESIDUAL = "residual"
"""How axes of views are measured that the residual design joins."""

SHAPE = "shape"
"""How axes of `max_ids: auto` views are measured, whatever mechanism the view names."""


@dataclass(frozen=True)
class PlannedAxis:
    """An axis together with what will be measured on it, and the ranges that it was chosen for (None: all)."""

    resolved: ResolvedAxis
    axis: Axis
    choice: AxisChoice
    workload: Workload | None = None

    @property
    def strategy(self) -> AxisStrategy:
        """What is measured on the axis."""
        return self.choice.strategy


class AxisPlanner:
    """The axes planned so far; equal axes with equal strategies are one.

    Args:
        make_axis: builds an axis from public facts.
        scales: grain of dense rows on axes that stand alone in their views, and on axes that share them.
    """

    def __init__(self, make_axis: AxisMaker, scales: tuple[int, int]) -> None:
        self._make = make_axis
        self.scales = scales
        self._made: dict[ResolvedAxis, Axis] = {}
        self._choices: dict[tuple[object, ...], AxisChoice] = {}
        self._ids: dict[tuple[object, ...], int] = {}
        self.entries: list[PlannedAxis] = []

    def trial(self) -> Self:
        """A planner without entries, for a plan that may not be taken; what is slow to make is shared."""
        other = type(self)(self._make, self.scales)
        other._made, other._choices = self._made, self._choices
        return other

    def axis(self, resolved: ResolvedAxis) -> Axis:
        """The axis of a resolved name, built once."""
        if resolved not in self._made:
            self._made[resolved] = self._make(resolved)
        return self._made[resolved]

    def choice(
        self,
        resolved: ResolvedAxis,
        mechanism: str,
        shared: bool,
        law: NoiseLaw,
        spec: AxisSpec | None = None,
    ) -> AxisChoice:
        """The strategy of an axis, chosen once for equal numbers of leaves and equal workloads."""
        axis = self.axis(resolved)
        asked = spec.asked if spec is not None else ()
        key = (resolved if asked else axis.leaves, mechanism, shared, law, asked)
        if key not in self._choices and mechanism == SHAPE:
            self._choices[key] = shape_strategy(axis.leaves, law)
        elif key not in self._choices and mechanism == RESIDUAL:
            grain = max(self.scales[shared], COARSEST)
            self._choices[key] = zero_sum_choice(axis.leaves, self.workload(resolved, spec), grain)
        elif key not in self._choices:
            self._choices[key] = axis_strategy(
                axis.leaves, mechanism, shared=shared, law=law, workload=self.workload(resolved, spec),
                scale=self.scales[shared],
            )  # fmt: skip
        return self._choices[key]

    def workload(self, resolved: ResolvedAxis, spec: AxisSpec | None) -> Workload | None:
        """The declared ranges of an axis, None for all."""
        return None if spec is None else declared_workload(spec, resolved, self.axis(resolved))

    def apart(self, resolved: ResolvedAxis, choice: AxisChoice) -> int:
        """An axis that no other view shares, with a choice made elsewhere."""
        self.entries.append(PlannedAxis(resolved, self.axis(resolved), choice))
        return len(self.entries) - 1

    def planned(
        self,
        resolved: ResolvedAxis,
        mechanism: str,
        shared: bool,
        law: NoiseLaw,
        spec: AxisSpec | None = None,
        *,
        own: str = "",
    ) -> int:
        """The axis's id in the release; a view that is named in `own` shares it with no other."""
        key = (resolved, mechanism, shared, law, spec.asked if spec is not None else (), own)
        if key not in self._ids:
            self._ids[key] = len(self.entries)
            choice = self.choice(resolved, mechanism, shared, law, spec)
            workload = self.workload(resolved, spec)
            self.entries.append(PlannedAxis(resolved, self.axis(resolved), choice, workload))
        return self._ids[key]
