"""Labels of batches and their numbers."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import BatchOrderError
from dpsql.streams.plan import Grain, batch_bounds, batch_number

GRAINS: tuple[Grain, ...] = ("hour", "day", "week", "month")
MOMENTS = st.datetimes(datetime(1999, 1, 1), datetime(2040, 1, 1))


@given(MOMENTS, st.timedeltas(timedelta(0), timedelta(days=4000)), st.sampled_from(GRAINS))
def test_a_label_lies_in_its_batch(origin: datetime, after: timedelta, grain: Grain) -> None:
    moment = origin + after
    number = batch_number(moment.isoformat(), origin.isoformat(), grain)
    start, end = batch_bounds(number, origin.isoformat(), grain)
    assert start <= moment < end
    assert batch_bounds(number + 1, origin.isoformat(), grain)[0] == end
    assert batch_bounds(0, origin.isoformat(), grain)[0] <= origin


def test_weeks_begin_on_monday() -> None:
    assert batch_bounds(0, "2026-11-21", "week")[0] == datetime(2026, 11, 16)
    assert batch_number("2026-11-23", "2026-11-21", "week") == 1


@pytest.mark.parametrize(
    ("label", "words"),
    [
        *((label, "not a date") for label in ("tomorrow", "2026-13-01", "", "2026-02-30")),
        ("2025-12-31", "before the first"),
    ],
)
def test_labels_that_name_no_batch(label: str, words: str) -> None:
    with pytest.raises(BatchOrderError, match=words):
        batch_number(label, "2026-01-01", "day")
