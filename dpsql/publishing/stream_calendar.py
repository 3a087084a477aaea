"""Batch labels as people write them, and the batch numbers that the stream counts.

A batch is one grain of the time column: an hour, a day, a week from Monday, or a month. Number 0 holds the origin,
the declared lower bound of the column, so numbers follow from the catalog and the label alone.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Literal

from dpsql.errors import BatchOrderError

Grain = Literal["hour", "day", "week", "month"]

_SPAN = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}


def batch_number(label: str, origin: str, grain: Grain, *, now: datetime | None = None) -> int:
    """The number of the batch that a label names.

    Args:
        label: ISO date or time inside the batch, for instance 2026-11-21, 2026-11-21T13 or 2026-11.
        origin: ISO date or time inside batch 0.
        grain: the length of a batch.
        now: refuse batches that have not ended by then; None accepts them.

    Raises:
        BatchOrderError: not a date, before the origin, or not ended yet.

    >>> batch_number("2026-01-31", "2026-01-01", "day"), batch_number("2026-03", "2025-12-15", "month")
    (30, 3)
    """
    start, first = _start(label, grain), _start(origin, grain)
    if start < first:
        raise BatchOrderError(f"batch {label} lies before the first batch {origin}", hint="check the label")
    if now is not None and _end(start, grain) > now:
        raise BatchOrderError(
            f"batch {label} has not ended yet", hint="append it once all its rows are there"
        )
    if grain == "month":
        return (start.year - first.year) * 12 + start.month - first.month
    return (start - first) // _SPAN[grain]


def batch_bounds(number: int, origin: str, grain: Grain) -> tuple[datetime, datetime]:
    """The time that a batch covers, half-open.

    >>> [str(t) for t in batch_bounds(1, "2026-01-01", "month")]
    ['2026-02-01 00:00:00', '2026-03-01 00:00:00']
    """
    start = _start(origin, grain)
    if grain == "month":
        months = start.year * 12 + start.month - 1 + number
        start = start.replace(year=months // 12, month=months % 12 + 1)
    else:
        start += number * _SPAN[grain]
    return start, _end(start, grain)


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
    return _midnight(day)


def _end(start: datetime, grain: Grain) -> datetime:
    """The end of the batch that begins at `start`."""
    if grain != "month":
        return start + _SPAN[grain]
    return _midnight((start.date() + timedelta(days=31)).replace(day=1))


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day)
