"""The time axis of a stream: which column it is, how batches are called, which views can be measured along it.

A batch is one grain of the time column: an hour, a day, a week from Monday, or a month. Number 0 holds the origin,
the declared lower bound of the column, so numbers follow from the catalog and the label alone. On the axis each batch
is one leaf.

**Privacy**: functions of the catalog alone.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from dpsql.axis import Axis, build_axis
from dpsql.catalog import Catalog, ResolvedAxis
from dpsql.catalog.base import GRAIN_MICROSECONDS
from dpsql.catalog.columns import DROP, Column, Cuts
from dpsql.catalog.model import Stream
from dpsql.errors import BatchOrderError, CatalogError
from dpsql.mechanisms.designs.registry import DATA_DEPENDENT

Grain = Literal["hour", "day", "week", "month"]

_SPAN = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}


def batch_number(label: str, origin: str, grain: Grain) -> int:
    """The number of the batch that a label names.

    Args:
        label: ISO date or time inside the batch, for instance 2026-11-21, 2026-11-21T13 or 2026-11.
        origin: ISO date or time inside batch 0.
        grain: the length of a batch.

    Raises:
        BatchOrderError: not a date, or before the origin.

    >>> batch_number("2026-01-31", "2026-01-01", "day"), batch_number("2026-03", "2025-12-15", "month")
    (30, 3)
    """
    start, first = _start(label, grain), _start(origin, grain)
    if start < first:
        raise BatchOrderError(f"batch {label} lies before the first batch {origin}", hint="check the label")
    if grain == "month":
        return (start.year - first.year) * 12 + start.month - first.month
    return (start - first) // _SPAN[grain]


def batch_bounds(number: int, origin: str, grain: Grain) -> tuple[datetime, datetime]:
    """The time that a batch covers, half-open.

    >>> [str(t) for t in batch_bounds(1, "2026-01-01", "month")]
    ['2026-02-01 00:00:00', '2026-03-01 00:00:00']
    """
    start = _start(origin, grain)
    if grain != "month":
        return start + number * _SPAN[grain], start + (number + 1) * _SPAN[grain]
    month = start.year * 12 + start.month - 1 + number
    first, following = (start.replace(year=m // 12, month=m % 12 + 1) for m in (month, month + 1))
    return first, following


def _start(label: str, grain: Grain) -> datetime:
    """The beginning of the batch that a label lies in.

    Raises:
        BatchOrderError: not a date.
    """
    text = label.strip()
    try:
        if len(text) == 7:
            text += "-01"
        moment = datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError as error:
        raise BatchOrderError("a batch label is not a date", hint="write for instance 2026-11-21") from error
    if grain == "hour":
        return moment.replace(minute=0, second=0, microsecond=0)
    day = moment.date()
    if grain == "week":
        day -= timedelta(days=day.weekday())
    if grain == "month":
        day = day.replace(day=1)
    return datetime(day.year, day.month, day.day)


MECHANISMS = ("auto", "lue_dptree", "struct_construct", "tree", "identity", "gaussian")
"""Mechanisms that measure integer rows, whose sums over batches are rows again."""

LOOKING = frozenset({"allow", *(word for mechanism in DATA_DEPENDENT for word in mechanism.NAMED)})
"""What a view says, as its mechanism or under `data_dependent`, that wants a look at the data before it measures."""


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
            "lower": str(bounds[0]), "upper": str(bounds[1]), "out_of_domain": DROP, "nullable": False,
            "cuts": Cuts(width=stream.grain, at=()),
        }
    )  # fmt: skip
    return build_axis(catalog, replace(resolved, spec=spec, cuts=None), {})


def is_time(resolved: ResolvedAxis, stream: Stream) -> bool:
    """True if an axis of a view is the stream's time axis."""
    return resolved.path == () and f"{resolved.table}.{resolved.column}" == stream.column


def check_views(catalog: Catalog, stream: Stream, of: str, column: Column) -> None:
    """Refuse views that cannot be measured batch by batch.

    Raises:
        CatalogError: a view of another table, without the time axis, cut otherwise, or of another mechanism.
    """
    if not catalog.views:
        raise CatalogError("views: none are declared", hint="declare at least one view")
    if column.cuts is not None:
        raise CatalogError(
            f"{stream.column}: a stream's time axis has the stream's grain", hint="remove its cuts"
        )
    for name, view in catalog.star.views.items():
        where = f"views.{name}"
        time = [(written, axis) for written, axis in view.axes if is_time(axis, stream)]
        if view.of != of or not time:
            raise CatalogError(
                f"{where}: a view of a stream counts `{of}` along `{stream.column}`",
                hint="add that axis, or move the view to a catalog of its own",
            )
        if time[0][1].cuts is not None or time[0][0].workload:
            raise CatalogError(
                f"{where}: a stream's time axis has the stream's grain and questions",
                hint="remove its cuts; write what is asked of time under `stream.workload`",
            )
        if LOOKING & {view.spec.word, view.spec.data_dependent}:
            raise CatalogError(
                f"{where}: a stream measures the same rows in every batch, so no view may choose them by "
                "data-dependent selection, which each batch would pay for again",
                hint="write `mechanism: auto` and `data_dependent: refuse`",
            )
        if view.spec.word not in MECHANISMS:
            raise CatalogError(
                f"{where}.mechanism: `{view.spec.word}` does not measure batch by batch", hint="write auto"
            )
