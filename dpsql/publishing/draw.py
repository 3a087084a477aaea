"""Draw every statistic of a release, once: the only place where exact cells and noise meet.

A table with a declared number of rows per unit is counted and each statistic drawn; a table with `max_ids: auto`
goes through the recipe of `userlevel`, which first chooses its bounds.

**Privacy**: what is returned is noisy; the cells themselves go nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpsql.catalog import Catalog
from dpsql.mechanisms.law import NoisyRows
from dpsql.noise import Noise
from dpsql.publishing.bounding import LeftOut, is_weighted, measure_left_out
from dpsql.publishing.contributions import histogram
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.publishing.rows import place_rows
from dpsql.publishing.userlevel import TableScale, settle_table
from dpsql.publishing.userlevel_choose import Table
from dpsql.publishing.userlevel_sql import make_pure_weights, weighted_cells
from dpsql.sources import RawSide

IntArray = npt.NDArray[np.int64]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class DrawnRelease:
    """All noisy numbers of a release.

    Args:
        plan: the plan, with what the recipe settled.
        views: noisy integers of each statistic, in the plan's order.
        scales: of each table with `max_ids: auto`.
        left_out: of each table with `clipped_share`.
    """

    plan: ReleasePlan
    views: tuple[NoisyRows, ...]
    scales: tuple[TableScale, ...]
    left_out: tuple[LeftOut, ...] = ()


def draw_release(
    catalog: Catalog, raw: RawSide, plan: ReleasePlan, noise: Noise, progress: Progress
) -> DrawnRelease:
    """Draw all statistics, table by table; `prepare_tables` has run.

    Args:
        catalog, raw, plan: the release being made.
        noise: where noise comes from.
        progress: told each table.

    **Privacy**: spends every line of the plan, once.
    """
    statistics = dict(enumerate(plan.statistics))
    views: dict[int, NoisyRows] = {}
    scales: list[TableScale] = []
    left_out: list[LeftOut] = []
    for of in dict.fromkeys(s.of for s in plan.statistics):
        progress(f"bounding, counting and drawing {of}")
        if any(s.of == of and s.shape for s in plan.statistics):
            rows, columns = place_rows(catalog, raw, plan, of)
            drawn = settle_table(Table(raw.connection, plan, of, rows, columns, noise))
            statistics |= drawn.statistics
            views |= drawn.views
            scales.append(drawn.scale)
        else:
            left_out += measure_left_out(catalog, raw, plan, of, noise)
            for index, cells in count_table(catalog, raw, plan, of).items():
                views[index] = draw_statistic(plan, plan.statistics[index], cells, noise)
    order = range(len(plan.statistics))
    settled = replace(plan, statistics=tuple(statistics[i] for i in order))
    return DrawnRelease(settled, tuple(views[i] for i in order), tuple(scales), tuple(left_out))


def count_table(catalog: Catalog, raw: RawSide, plan: ReleasePlan, of: str) -> dict[int, IntArray]:
    """Exact integers of one table's statistics, by index in the plan.

    **Privacy**: raw; nothing of it leaves but through `draw_statistic`.
    """
    if is_weighted(catalog, of):
        return weighted_histograms(catalog, raw, plan, of)
    table, columns = place_rows(catalog, raw, plan, of)
    return histograms(raw, plan, of, table, columns)


def histograms(
    raw: RawSide, plan: ReleasePlan, of: str, table: str, columns: dict[str, str]
) -> dict[int, IntArray]:
    """Exact integers of one table's statistics from its bounded rows, by index in the plan.

    Args:
        raw, plan: the release being made.
        of: the counted table.
        table, columns: what `place_rows` returned.

    **Privacy**: raw; nothing of it may be shown without noise.
    """
    return {
        index: histogram(raw.connection, table, s.axes, plan.shape(s), _value(s, columns))
        for index, s in enumerate(plan.statistics)
        if s.of == of
    }


def weighted_histograms(catalog: Catalog, raw: RawSide, plan: ReleasePlan, of: str) -> dict[int, IntArray]:
    """Exact sums of rows weighted by min(1, tau / rows of their unit), in units of 2^-20.

    **Privacy**: raw; one unit changes a statistic by at most its `drawn_sensitivity`.
    """
    table, columns = place_rows(catalog, raw, plan, of, tau=0)
    mine = {i: s for i, s in enumerate(plan.statistics) if s.of == of}
    weights = make_pure_weights(raw.connection, table, of, next(iter(mine.values())).tau, [])
    return {
        i: weighted_cells(raw.connection, table, weights, s.axes, plan.shape(s), [_value(s, columns)])[0]
        for i, s in mine.items()
    }


def _value(statistic: PlannedStatistic, columns: dict[str, str]) -> str:
    """What is summed per cell: 1, a centred measure, or 1 where the measure is not NULL."""
    measure = statistic.measure
    if not measure.column:
        return "1"
    column = columns[f"{measure.table}.{measure.column}"]
    if statistic.bounds is None:
        return f"CASE WHEN {column} IS NOT NULL THEN 1 END"
    return f"{column} - ({statistic.bounds.mid})"


def draw_statistic(
    plan: ReleasePlan, statistic: PlannedStatistic, cells: IntArray, noise: Noise
) -> NoisyRows:
    """The one draw of a statistic."""
    return statistic.measurement.draw(cells, statistic.terms(plan.axes), noise)
