"""Views of one table measured together under zCDP: one statistic for each set of axes, free of what its subsets tell.

A catalog declares views; each asks for ranges on some of its axes and for the rest as a whole. The residual design
measures every subset of a view's axes once, with the part of the budget that lowers the mean error of all views
most. So a release gets statistics for sets that no view names, and every answer on the same axes is the same.

| here | there | unit |
|---|---|---|
| `asked[T]` | how often a range is asked on each axis of T and on no other | part of the family's budget |
| `rest`, `share` | means over ranges u of u' C u - k (g.u)^2 and of (g.u)^2 | 1 |
| `components[T]` | sigma_T^2 | stored integers squared |
| `SHARES` | parts that a family's charge is divided into | - |

**Privacy**: the parts are integers that add up to at most `SHARES`, so the charges of a family add up to at most what
its views were given; each set is drawn by `view.draw_gaussian` and they compose (docs/privacy.md). All of it follows
from public facts.
**Source**: docs/method/views.md, "Residual rows".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from dpsql.errors import CatalogError, InternalError
from dpsql.mechanisms.central.residual import Subset, closed_downwards, residual_design
from dpsql.mechanisms.family.measurement import AskedAxis, range_variance
from dpsql.mechanisms.family.residual import axis_of
from dpsql.mechanisms.law import NoiseLaw
from dpsql.publishing.planned import PlannedStatistic
from dpsql.publishing.planned_axes import PlannedAxis

SHARES = 1 << 20
"""A set with less than a millionth of its family's budget gets that much."""

Buy = Callable[[Fraction, NoiseLaw], Fraction]


def families(statistics: Sequence[PlannedStatistic]) -> list[list[PlannedStatistic]]:
    """Statistics by family, in order."""
    kinds = dict.fromkeys(s.family for s in statistics)
    return [[s for s in statistics if s.family == kind] for kind in kinds]


def asked_sets(family: Sequence[PlannedStatistic]) -> dict[Subset, float]:
    """How often each set of axes is asked for ranges: every axis of a view half the time, views by their charges."""
    asked: dict[Subset, float] = {}
    for s in family:
        for part in closed_downwards([s.axes]):
            asked[part] = asked.get(part, 0.0) + float(s.charge) / 2 ** len(s.axes)
    return asked


def spread_out(
    axes: Sequence[PlannedAxis], joined: Sequence[PlannedStatistic], buy: Buy
) -> list[PlannedStatistic]:
    """One statistic for each set of axes, in the place of the views that are measured together.

    Args:
        axes: the release's axes.
        joined: the statistics of these views.
        buy: (charge, law) -> what it buys in the noise's own currency.

    Returns:
        Statistics family by family; charges add up to no more than before.

    Raises:
        CatalogError: two views ask for the same measure on the same axes.
    """
    names = {(s.of, s.axes): s.view for s in reversed(joined)}
    sets: list[PlannedStatistic] = []
    for family in families(joined):
        _check_distinct(axes, family)
        shares = _shares(axes, family)
        whole = sum((s.charge for s in family), Fraction(0))
        for part, units in shares.items():
            charge = whole * Fraction(units, SHARES)
            view = names.get((family[0].of, part)) or set_name(
                family[0].of, [axes[i].axis.name for i in part]
            )
            sets.append(
                replace(family[0], view=view, axes=part, charge=charge, spend=buy(charge, family[0].law))
            )
    return sets


def set_name(of: str, axes: Sequence[str]) -> str:
    """The name of a set that no view names; no declared view can be called so.

    >>> set_name("sales", ["customer.age", "day"])
    '(sales by customer.age, day)'
    """
    return f"({of} by {', '.join(axes)})" if axes else f"({of} in all)"


def _check_distinct(axes: Sequence[PlannedAxis], family: Sequence[PlannedStatistic]) -> None:
    seen: dict[Subset, str] = {}
    for s in family:
        if s.axes in seen:
            names = " and ".join(axes[i].axis.name for i in s.axes)
            raise CatalogError(
                f"views.{s.view}: {seen[s.axes]} measures {s.measure.name} on {names} already",
                hint="put their measures into one view",
            )
        seen[s.axes] = s.view


def _shares(axes: Sequence[PlannedAxis], family: Sequence[PlannedStatistic]) -> dict[Subset, int]:
    """The part of the family's budget of each set, in units of 1 / SHARES."""
    asked = asked_sets(family)
    used = sorted({i for part in asked for i in part})
    place = {axis: k for k, axis in enumerate(used)}
    workloads = {place[i]: work for i in used if (work := axes[i].workload) is not None}
    design = residual_design(
        [axis_of(axes[i].strategy) for i in used],
        {tuple(place[i] for i in part): weight for part, weight in asked.items()}, 0.5, workloads,
    )  # fmt: skip
    left = SHARES - len(asked)
    part_of = {
        part: 1 / design.variance[tuple(place[i] for i in part)] for part in closed_downwards(list(asked))
    }
    units = {part: 1 + int(left * each) for part, each in part_of.items()}
    if sum(units.values()) > SHARES:
        raise InternalError("the sets of a residual design were given more than their family's budget")
    return units


def mean_error(
    axes: Sequence[PlannedAxis], family: Sequence[PlannedStatistic], asked: Mapping[Subset, float]
) -> float:
    """Mean predicted variance of a family's answers, in squared units of the measure at its scale.

    Args:
        axes: the plan's axes.
        family: its statistics: views that will be reconciled, or the sets of a residual design.
        asked: set of axes -> how often ranges on these axes are asked.
    """
    wanted = {
        i: AskedAxis(axes[i].strategy.variance(), axes[i].workload)
        for i in {i for part in asked for i in part}
    }
    units = [(s.axes, s.unit_variance(axes)) for s in family]
    components = family[0].measurement.components(units, {i: axis.split.total for i, axis in wanted.items()})
    return sum(weight * range_variance(components, part, wanted) for part, weight in asked.items())
