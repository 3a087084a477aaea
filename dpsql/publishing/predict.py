"""What a release will be, before anything is spent: strategies, cells, bytes, seconds, variances.

A dry release holds the axes and the variance models of the planned release and no estimates at all, so that
the answering side can say every statement's standard error. It is made of the catalog and of public tables;
private tables are not even opened.

**Privacy**: reads no private table and spends nothing. A dry release is marked as not private, so nothing opens it
by mistake.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod, sqrt
from pathlib import Path

import duckdb
import numpy as np

from dpsql.axis import table_sql
from dpsql.catalog import Catalog
from dpsql.mechanisms.family.measurement import AskedAxis
from dpsql.publishing.axes import AxisMaker
from dpsql.publishing.content import LOOKUP_ARITY
from dpsql.publishing.describe import Components, release_meta
from dpsql.publishing.plan import plan_release
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.publishing.stream_predict import whole_stream
from dpsql.release.write import ARRAYS, AxisContent, ReleaseContent, StatisticContent, write_release
from dpsql.sources import RawSide, no_sources
from dpsql.sources.keys import open_star
from dpsql.tree import kary_tree
from dpsql.variance import AxisVariance
from dpsql.variance.kronecker import AxisSplit
from dpsql.variance.plane import PlaneVariance

# Measured on two cores over views of 256 to 262,144 cells; `dpsql plan` says "about".
_FILE_BYTES, _CELL_BYTES, _AXIS_BYTES = 1 << 20, 6.0, 5.5
_STATISTIC_SECONDS, _NODE_SECONDS = 0.2, 2.5e-6


@dataclass(frozen=True)
class StatisticForecast:
    """One view and measure, before it is published.

    Args:
        view, of, measure: what is counted or summed.
        axes: the names of its axes.
        strategies: what will be measured on each axis.
        expected: for each axis the strategy's mean squared error over the axis's workload, at unit noise.
        runners_up: for each axis (strategy, expected error) of the others, best first.
        both: ways to measure its two axes, together or one by one, with expected errors over ranges on both, the
            chosen one first; empty where there is one way.
        together: whether its two axes are measured together; then the three above are of both.
        noise: Laplace or Gaussian.
        charge: what the ledger will be charged, in `currency`.
        currency: epsilon or rho.
        tau: rows of one unit that count; 0 where publishing chooses them (then figures are for units of one row).
        cells: leaf combinations.
        nodes: stored node combinations.
        bytes, seconds: about what storing and drawing it takes; counting raw rows comes on top.
        typical: standard error of the answer to a random range on every axis, in the measure's own unit.
    """

    view: str
    of: str
    measure: str
    axes: tuple[str, ...]
    strategies: tuple[str, ...]
    expected: tuple[float, ...]
    runners_up: tuple[tuple[tuple[str, float], ...], ...]
    both: tuple[tuple[str, float], ...]
    together: bool
    noise: str
    charge: str
    currency: str
    tau: int
    cells: int
    nodes: int
    bytes: int
    seconds: float
    typical: float


def open_public(catalog: Catalog) -> RawSide:
    """Open the public tables of a source; private ones stay closed.

    Raises:
        CatalogError, SourceError: a public table cannot be read.
    """
    if catalog.source is None and not any(table.is_public for table in catalog.tables.values()):
        return no_sources()
    source = catalog.raw_source()
    public = [name for name, table in catalog.tables.items() if table.is_public and name in source.tables]
    if not public:
        return no_sources()
    return open_star(catalog, public)


@dataclass(frozen=True)
class Priced:
    """A plan with what decides its errors.

    Args:
        plan: the plan.
        models: the variance model of each axis.
        units: row variance of each statistic at full axis budgets.
    """

    plan: ReleasePlan
    models: list[AxisVariance]
    units: list[float]


def priced_plan(catalog: Catalog, make_axis: AxisMaker) -> Priced:
    """Plan a catalog; a stream is planned as it will be at its horizon.

    Args:
        catalog: a checked catalog.
        make_axis: builds an axis from public facts.
    """
    if catalog.stream is not None:
        return Priced(*whole_stream(catalog, make_axis))
    plan = plan_release(catalog, make_axis)
    models = [planned.strategy.variance() for planned in plan.axes]
    return Priced(
        plan, models, [_one_row(statistic).unit_variance(plan.axes) for statistic in plan.statistics]
    )


def forecast(priced: Priced) -> tuple[StatisticForecast, ...]:
    """What each statistic of a plan will cost and how noisy it will be."""
    plan = priced.plan
    pairs = zip(priced.models, plan.axes, strict=True)
    asked = {i: AskedAxis(model, planned.workload) for i, (model, planned) in enumerate(pairs)}
    typical: dict[int, float] = {}
    for members in plan.families:
        family = [(plan.statistics[i].axes, priced.units[i]) for i in members]
        for i, (axes, unit) in zip(members, family, strict=True):
            typical[i] = plan.statistics[i].measurement.mean_variance(axes, unit, family, asked)
    return tuple(_forecast(plan, statistic, typical[i]) for i, statistic in enumerate(plan.statistics))


def _forecast(plan: ReleasePlan, statistic: PlannedStatistic, variance: float) -> StatisticForecast:
    axes = [plan.axes[i] for i in statistic.axes]
    measurement = statistic.measurement
    rows, compared = measurement.row_count(plan.strategies(statistic)), measurement.compared
    nodes = prod(kary_tree(planned.axis.leaves, LOOKUP_ARITY).size for planned in axes)
    scale = 10.0 ** -(statistic.bounds.scale if statistic.bounds else 0)
    return StatisticForecast(
        view=statistic.view, of=statistic.of, measure=statistic.measure.name,
        axes=tuple(planned.axis.name for planned in axes),
        strategies=tuple(planned.choice.name for planned in axes),
        expected=tuple(planned.choice.expected_error for planned in axes),
        runners_up=tuple(planned.choice.runners_up for planned in axes),
        both=() if compared is None else ((compared.name, compared.expected_error), *compared.runners_up),
        together=measurement.joint_variance() is not None,
        noise=statistic.law.name, charge=str(statistic.charge),
        currency="rho" if plan.catalog.privacy.delta else "epsilon", tau=statistic.tau,
        cells=prod(plan.shape(statistic)), nodes=nodes,
        bytes=_FILE_BYTES + int((rows + nodes) * (_CELL_BYTES + _AXIS_BYTES * len(axes))),
        seconds=_STATISTIC_SECONDS + statistic.law.seconds * rows + _NODE_SECONDS * nodes,
        typical=sqrt(variance) * scale,
    )  # fmt: skip


def write_dry_release(priced: Priced, connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Write the planned release without estimates: axes and variance models alone.

    Args:
        priced: what would be measured.
        connection: any connection; types of derived axis columns are asked of it.
        path: where; must not exist.

    **Privacy**: nothing private was read to make it, and it is marked so that `connect` refuses it.
    """
    plan = priced.plan
    known = replace(plan, statistics=tuple(_one_row(s) for s in plan.statistics))
    models: list[AxisVariance | PlaneVariance] = list(priced.models)
    models += plan.joint.values()
    meta = release_meta(known, connection, "dry", models, _components(priced), insecure=True)
    trees = [kary_tree(planned.axis.leaves, LOOKUP_ARITY) for planned in plan.axes]
    axes = [
        AxisContent(planned.axis.arrays(), table_sql(planned.axis, ARRAYS), tree)
        for planned, tree in zip(plan.axes, trees, strict=True)
    ]
    empty = [np.zeros((0,) * len(s.axes), np.int64) for s in plan.statistics]
    statistics = [StatisticContent(e, e, e) for e in empty]
    write_release(path, ReleaseContent(meta, axes, models, statistics))


def _components(priced: Priced) -> list[Components]:
    """The variance factors that the parts of every statistic will have once views are reconciled."""
    totals = {i: AxisSplit(model).total for i, model in enumerate(priced.models)}
    statistics = priced.plan.statistics
    components: dict[int, Components] = {}
    for members in priced.plan.families:
        family = [(statistics[i].axes, priced.units[i]) for i in members]
        sigma2 = statistics[members[0]].measurement.components(family, totals)
        for i, (axes, _) in zip(members, family, strict=True):
            components[i] = {part: value for part, value in sigma2.items() if set(part) <= set(axes)}
    return [components[i] for i in range(len(statistics))]


def _one_row(statistic: PlannedStatistic) -> PlannedStatistic:
    """The statistic as it stands; where publishing chooses tau, that of units with one row."""
    return replace(statistic, tau=statistic.tau or 1)
