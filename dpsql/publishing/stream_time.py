"""The time axis of a stream: which column it is, one leaf a batch, and which views can be measured along it.

**Privacy**: functions of the catalog alone.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from dpsql.axis import Axis, build_axis
from dpsql.catalog import Catalog, ResolvedAxis
from dpsql.catalog.columns import Column, Cuts
from dpsql.catalog.graph import view_axes
from dpsql.catalog.model import Stream
from dpsql.catalog.scalars import GRAIN_MICROSECONDS
from dpsql.errors import BatchOrderError, CatalogError
from dpsql.mechanisms.stream.choose import StreamStrategy
from dpsql.publishing.stream_calendar import batch_bounds

MECHANISMS = ("auto", "lue_dptree", "struct_construct", "tree", "identity", "gaussian")
"""Mechanisms that measure integer rows, whose sums over batches are rows again."""


def stream_column(catalog: Catalog) -> tuple[Stream, str, Column]:
    """The stream, the table whose rows arrive, and its time column.

    Raises:
        CatalogError: the catalog has no stream, or its column no bounds, or a grain finer than the column.
    """
    if catalog.stream is None:
        raise CatalogError(
            "stream: missing", hint="write stream: {column, grain, horizon}, or use `dpsql publish`"
        )
    of, _, name = catalog.stream.column.rpartition(".")
    column = catalog.tables[of].columns[name]
    if column.lower is None or column.upper is None:
        raise CatalogError(
            f"tables.{of}.columns.{name}: a stream's time column needs lower (its first batch) and upper"
        )
    if catalog.stream.grain == "hour" and column.type == "date":
        raise CatalogError("stream.grain: a date has no hours", hint="write grain: day")
    return catalog.stream, of, column


def time_axis(
    catalog: Catalog, resolved: ResolvedAxis, column: Column, stream: Stream, first: int, stop: int
) -> Axis:
    """The axis over the batches [first, stop), one leaf each.

    Raises:
        BatchOrderError: they run past the column's upper bound.
    """
    low, high = str(column.lower), str(column.upper)
    start = max(batch_bounds(first, low, stream.grain)[0], datetime.fromisoformat(low))
    last, end = batch_bounds(stop - 1, low, stream.grain)
    if last > datetime.fromisoformat(high):
        raise BatchOrderError(
            f"batch {last.date()} lies past the upper bound {high} of {stream.column}",
            hint="start a new release for later batches",
        )
    step = timedelta(microseconds=GRAIN_MICROSECONDS["day" if column.type == "date" else column.grain])
    bounds = (start.date(), (end - step).date()) if column.type == "date" else (start, end - step)
    spec = column.model_copy(
        update={
            "lower": str(bounds[0]), "upper": str(bounds[1]), "out_of_domain": "drop", "nullable": False,
            "cuts": Cuts(width=stream.grain, at=()),
        }
    )  # fmt: skip
    return build_axis(catalog, replace(resolved, spec=spec, cuts=None), {})


def is_time(resolved: ResolvedAxis, stream: Stream) -> bool:
    """Whether an axis of a view is the stream's time axis."""
    return resolved.path == () and f"{resolved.table}.{resolved.column}" == stream.column


def check_views(catalog: Catalog, stream: Stream, of: str, column: Column) -> None:
    """Refuse views that cannot be measured batch by batch.

    Raises:
        CatalogError: a view of another table, without the time axis, cut otherwise, or of another mechanism.
    """
    if not catalog.views:
        raise CatalogError("views: there are none", hint="declare at least one view")
    if column.cuts is not None:
        raise CatalogError(
            f"{stream.column}: a stream's time axis has the stream's grain", hint="remove its cuts"
        )
    for name, view in catalog.views.items():
        where = f"views.{name}"
        placed = list(zip(view.axes, view_axes(catalog, view), strict=True))
        time = [(written, axis) for written, axis in placed if is_time(axis, stream)]
        if view.of != of or not time:
            raise CatalogError(
                f"{where}: a view of a stream counts `{of}` along `{stream.column}`",
                hint="add that axis, or move the view to a catalog of its own",
            )
        if time[0][1].cuts is not None or time[0][0].asked:
            raise CatalogError(
                f"{where}: a stream's time axis has the stream's grain and strategy",
                hint="remove its cuts and `asked`",
            )
        if view.mechanism not in MECHANISMS:
            raise CatalogError(
                f"{where}.mechanism: `{view.mechanism}` does not measure batch by batch", hint="write auto"
            )
    if catalog.tables[of].max_ids == "auto":
        raise CatalogError(
            f"tables.{of}.max_ids: a stream cannot choose it", hint="write a number of rows a batch"
        )


def described(strategy: StreamStrategy) -> str:
    """A stream strategy in words."""
    if strategy.plan is None:
        return f"{strategy.kind} over {strategy.horizon} batches"
    if len(strategy.plan.spans) == 1:
        return "each batch on its own"
    blocks = ", ".join(map(str, strategy.plan.spans[1:]))
    return f"batches and blocks of {blocks}, budgets {':'.join(map(str, strategy.plan.budgets))}"
