"""The judge of `make bench TOPIC=bi`: it accepts PostgreSQL's rows in any order, and nothing else but empty groups."""

from __future__ import annotations

import datetime

import pytest

from benchmarks.bi.measure import STATEMENTS, difference, plain
from benchmarks.bi.star import statements

WANT = [("web", 3.0), ("app", 5.0)]


@pytest.mark.parametrize(
    ("got", "reason"),
    [
        ([("app", 5.0), ("web", 3.0)], ""),
        ([("app", 5.0), ("web", 3.0), ("desk", 0.0)], ""),
        ([("app", 5.0), ("web", 3.0), ("desk", None)], ""),
        ([("app", 5.0), ("web", 3.0), ("desk", 1.0)], "a row too many: ('desk', 1.0)"),
        ([("app", 5.0), ("app", 5.0)], "no row ('web', 3.0); rows are [('app', 5.0), ('app', 5.0)]"),
        ([("web", 3.0), ("app", 5.1)], "no row ('app', 5.0); rows are [('web', 3.0), ('app', 5.1)]"),
        ([("web", 3.0)], "no row ('app', 5.0); rows are [('web', 3.0)]"),
    ],
)
def test_a_difference_is_found(got: list[tuple[object, ...]], reason: str) -> None:
    assert difference(WANT, got, [[0.0, 0.0] for _ in got]) == reason


def test_a_cut_bin_may_differ_by_its_bound_alone() -> None:
    assert difference([(3.0,)], [(3.4,)], [[0.5]]) == ""
    assert difference([(3.0,)], [(3.6,)], [[0.5]]) != ""


def test_days_and_midnights_are_one() -> None:
    assert plain(datetime.date(2026, 1, 2)) == plain(datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC))


def test_statements_of_twelve_tools() -> None:
    asked = statements(STATEMENTS, datetime.date(2026, 11, 26))
    assert len(asked) >= 120 and len({tool for tool, _, _ in asked}) >= 12
    assert not any("{day" in text for _, _, text in asked)
