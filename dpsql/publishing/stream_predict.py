"""What a stream will be at its horizon, before anything is spent: the whole plan, variance models, noise.

**Privacy**: functions of the catalog and of public tables.
"""

from __future__ import annotations

from typing import NamedTuple

from dpsql.catalog import Catalog
from dpsql.mechanisms.stream.axis import batch_variance
from dpsql.publishing.axes import AxisMaker
from dpsql.publishing.planned import ReleasePlan
from dpsql.publishing.stream_calendar import batch_number
from dpsql.publishing.stream_plan import plan_stream
from dpsql.publishing.stream_present import unit_variance
from dpsql.variance import AxisVariance


class Whole(NamedTuple):
    """A stream at its horizon.

    Args:
        plan: its plan as a release.
        models: variance model of each axis, time first.
        units: variance of a number of each statistic that would spend its whole budget.
    """

    plan: ReleasePlan
    models: list[AxisVariance]
    units: list[float]


def whole_stream(catalog: Catalog, make_axis: AxisMaker) -> Whole:
    """A stream once all batches up to its horizon, or to its column's upper bound, are public.

    Args:
        catalog: a catalog with `stream`.
        make_axis: builds the other axes from public tables.

    Raises:
        CatalogError: the catalog cannot be streamed.
    """
    stream = plan_stream(catalog, make_axis, 0)
    bound = batch_number(str(stream.column.upper), stream.origin, stream.stream.grain) + 1
    batches = min(stream.stream.horizon, bound)
    plan = stream.whole(batches)
    models = [
        batch_variance(stream.strategy, stream.currency, batches),
        *(planned.strategy.variance() for planned in plan.axes[1:]),
    ]
    return Whole(plan, models, [unit_variance(stream, statistic) for statistic in stream.statistics()])
