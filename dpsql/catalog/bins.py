"""From bounds and cuts to leaves: the first unit of every leaf of an ordered column."""

from __future__ import annotations

from datetime import date, timedelta
from fractions import Fraction

from dpsql.catalog.columns import CALENDAR, Column, Cuts
from dpsql.catalog.scalars import EPOCH, GRAIN_MICROSECONDS, as_fraction

LARGEST_LEAVES = 2**20
_DAY = GRAIN_MICROSECONDS["day"]
_STEP_MICROSECONDS = {"minute": 60 * 10**6, "hour": 3600 * 10**6, "day": _DAY, "week": 7 * _DAY}
_MONDAY = 4  # 1970-01-01 was a Thursday; 1970-01-05 began a week
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def bin_starts(column: Column, cuts: Cuts | None) -> tuple[int, ...]:
    """The first unit of each leaf, increasing; the first one is the lower bound.

    A leaf runs to the next start, the last one to the upper bound, inclusive. Where a number as width divides
    upper - lower, the upper bound itself joins the last leaf instead of making one of its own. Calendar words
    begin leaves where the calendar does, as DATE_TRUNC would.

    Args:
        column: an ordered column with bounds.
        cuts: a width or a list; None makes each unit a leaf.

    Returns:
        Starts in units of the column.

    Raises:
        ValueError: cuts outside the bounds, or more than 2**20 leaves.

    >>> price = Column(type="int", lower="0", upper="10", cuts=Cuts(width="5"))
    >>> bin_starts(price, price.cuts), bin_starts(price, Cuts(at=("1", "9")))
    ((0, 5), (0, 1, 9))
    """
    lower, upper = column.bounds
    if cuts is None:
        starts: range | list[int] = range(lower, upper + 1)
    elif cuts.at:
        starts = _listed(column, cuts.at, lower, upper)
    elif cuts.width in CALENDAR and column.type in ("date", "timestamp"):
        starts = _calendar(column, cuts.width, lower, upper)
    else:
        starts = _even(column, str(cuts.width), lower, upper)
    if len(starts) > LARGEST_LEAVES:
        raise ValueError(f"{len(starts)} leaves are more than {LARGEST_LEAVES}; write `cuts: {{width: ...}}`")
    return tuple(starts)


def _listed(column: Column, at: tuple[str, ...], lower: int, upper: int) -> list[int]:
    given = [column.units(text) for text in at]
    if given != sorted(set(given)):
        raise ValueError("`cuts` must increase strictly; sort them")
    if given[0] < lower or given[-1] > upper:
        raise ValueError("`cuts` must lie between `lower` and `upper`; drop the ones outside")
    return given if given[0] == lower else [lower, *given]


def _even(column: Column, width: str, lower: int, upper: int) -> range:
    step = _step(column, width)
    starts = range(lower, upper + 1, step)
    closes = len(starts) > 1 and (upper - lower) % step == 0 and step > 1
    return starts[:-1] if closes else starts


def _step(column: Column, width: str) -> int:
    """A width in units of the column."""
    if width in CALENDAR:
        raise ValueError(f"`width: {width}` does not go with type {column.type}; write a number")
    steps = as_fraction(width) * 10**column.digits
    if steps.denominator != 1 or steps < 1:
        raise ValueError(f"`width: {width}` is not a whole number of units of the column; widen it")
    return int(steps)


def _calendar(column: Column, width: str, lower: int, upper: int) -> list[int]:
    """Leaves that begin where the calendar does: a minute, an hour, midnight, Monday, the first of a month."""
    unit = _DAY if column.type == "date" else GRAIN_MICROSECONDS[column.grain]
    if width in _MONTHS:
        return _months(Fraction(_DAY, unit), _MONTHS[width], lower, upper)
    step, rest = divmod(_STEP_MICROSECONDS[width], unit)
    if step == 0 or rest:
        raise ValueError(f"`width: {width}` is finer than the column; widen it")
    origin = _MONDAY * _DAY // unit if width == "week" else 0
    return [lower, *range(lower + step - (lower - origin) % step, upper + 1, step)]


def _months(units_per_day: Fraction, months: int, lower: int, upper: int) -> list[int]:
    """Leaves that begin with a calendar month, quarter or year."""
    first = EPOCH + timedelta(days=int(lower // units_per_day))
    month = (first.year * 12 + first.month - 1) // months * months + months
    starts = [lower]
    while month < 10_000 * 12:
        start = int((date(month // 12, month % 12 + 1, 1) - EPOCH).days * units_per_day)
        if start > upper:
            break
        starts.append(start)
        month += months
    return starts
