"""Several open releases: whether their noise is independent, and what they promise together."""

from __future__ import annotations

from typing import Any

import pytest

from dpsql.release.format import Meta, Promise
from dpsql.release.promises import independent, promise_together
from dpsql.release.reports import LocalMeta, ManifestMeta
from tests.release_fixture import bare_meta

pytestmark = pytest.mark.long


def test_a_name_is_no_draw_of_noise() -> None:
    assert not independent([promised("1", "1"), promised("1", "2")])
    assert independent([promised("1", "1"), promised("2", "1")])


def test_one_collection_s_reports_are_never_independent() -> None:
    twice = [promised(i, "1", local=reports("town", services={})) for i in "ab"]
    assert not independent(twice), "collected twice by services, whose releases name no single plan"
    replanned = [promised(i, "1", local=reports("town", plan_hash=i)) for i in "ab"]
    assert not independent(replanned), "a device's report is the same under a second plan"
    labelled = [promised(i, "1", local=reports(f"town:{i}", plan_hash="x")) for i in "ab"]
    assert independent(labelled)


def reports(collection: str, **more: Any) -> LocalMeta:
    return LocalMeta(collection, "unknown", ManifestMeta(1, 9, 9, {}), 1, **more)


def promised(
    name: str, epsilon: str, unit: str = "person.id", delta: str = "0", local: LocalMeta | None = None
) -> Meta:
    promise = Promise(unit, "add_remove" if local is None else "replace_one", epsilon, delta)
    return bare_meta(name, promise, local)


def test_promises_add_up_for_replacing_one_person() -> None:
    central, other = promised("a", "1/2"), promised("b", "1")
    local = promised("c", "2", local=reports("c"))
    later = promised("d", "2", local=reports("d"))
    found = promise_together([central, other, local, later])
    assert found == {"neighbours": "replace_one", "unit": "person.id", "epsilon": "7"}
    assert promise_together([central, promised("e", "1", delta="1/1000")]) is None


def test_what_was_drawn_once_costs_once() -> None:
    central, local = promised("a", "1/2"), promised("c", "2", local=reports("c"))
    again = promised("e", "2", local=reports("c", plan_hash="x"))
    assert promise_together([central, central, local, again]) == promise_together([central, local])


def test_promises_to_rows_do_not_add_up_to_one_for_people() -> None:
    person, row = promised("a", "1"), promised("b", "1", unit="row")
    assert promise_together([person, row]) == {"neighbours": "replace_one", "unit": "row", "epsilon": "4"}
    assert promise_together([person, promised("c", "1", unit="household.id")]) is None
    reported = promised("d", "1", unit="row", local=reports("d"))
    assert promise_together([person, reported]) == {
        "neighbours": "replace_one",
        "unit": "person.id",
        "epsilon": "3",
    }
