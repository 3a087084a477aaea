"""Several releases of one population: routing by error, inverse-variance means, what they promise together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.answer.combine import Source, blend, independent, promise_together, rank
from dpsql.answer.errorfunctions import HIGH, LOW, MODEL_BOUND, ErrorFunction
from dpsql.answer.result import Grid, Result
from dpsql.doors.dbapi import connect
from dpsql.release.format import LocalMeta, ManifestMeta, Meta, Promise
from tests.release_fixture import bare_meta

REGIONS = ("north", "south")


def answer(values: Grid, errors: Grid, columns: tuple[str, ...] = ("region", "n")) -> Result:
    def grid(error: ErrorFunction, level: float) -> Grid:
        if error in (LOW, HIGH):
            sign = 2.0 if error is HIGH else -2.0
            return tuple(
                tuple(None if e is None else v + sign * e for v, e in zip(*rows, strict=True))
                for rows in zip(values, errors, strict=True)
            )
        if error is MODEL_BOUND:
            return tuple(tuple(None if e is None else 0.0 for e in row) for row in errors)
        return errors

    return Result(columns, ("VARCHAR", "DOUBLE"), values, {"privacy": {}}, grid=grid)


def source(name: str, result: Result, **meta: Any) -> Source:
    return Source(name, promised(name, "1", **meta), result)


def pair(second: Grid = (("south", 24.0), ("north", 14.0)), **meta: Any) -> list[Source]:
    first = answer((("north", 10.0), ("south", 20.0)), ((None, 1.0), (None, 2.0)))
    return [source("a", first, **meta), source("b", answer(second, ((None, 2.0), (None, 2.0))), **meta)]


def sorting(sources: list[Source]) -> list[Source]:
    """The same answers, of a statement with ORDER BY."""
    return [replace(each, result=replace(each.result, ordered=True)) for each in sources]


def test_cells_are_weighted_by_inverse_variance() -> None:
    found = blend(pair(), opened=[])
    assert found is not None
    assert found.rows == (("north", pytest.approx(10.8)), ("south", pytest.approx(22.0)))
    assert found.stderr_rows == (
        (None, pytest.approx((1 / (1 + 1 / 4)) ** 0.5)),
        (None, pytest.approx(2**0.5)),
    )
    low, high = found.interval_rows(0.95)
    assert high[1][1] - low[1][1] == pytest.approx(4 * 2**0.5)
    assert low[0][0] is None
    assert found.model_bound == ((None, 0.0), (None, 0.0))
    shares = [each["mean_share"] for each in found.provenance["combined"]]
    assert sum(shares) == pytest.approx(1)


def test_an_exact_value_takes_all() -> None:
    first = answer((("north", 10.0),), ((None, 0.0),))
    second = source("b", answer((("north", 20.0),), ((None, 5.0),)))
    found = blend(sorting([source("a", first), second]), opened=[])
    assert found is not None
    assert (found.rows[0][1], found.stderr_rows[0][1]) == (10.0, 0.0)


@pytest.mark.parametrize(
    "second",
    [(("south", 24.0), ("west", 14.0)), (("south", 24.0), ("south", 14.0)), (("south", 1.0),)],
)
def test_other_groups_are_not_blended(second: Grid) -> None:
    first = pair()[0]
    other = answer(second, tuple((None, 1.0) for _ in second))
    assert blend([first, source("b", other)], opened=[]) is None


def test_order_nulls_and_shared_noise_prevent_blending() -> None:
    assert blend(sorting(pair()), opened=[]) is None
    assert blend(pair()[:1], opened=[]) is None
    assert blend(pair(local=reports("x")), opened=[]) is None
    half = answer((("north", 1.0), ("south", None)), ((None, 1.0), (None, None)))
    assert blend([pair()[0], source("b", half)], opened=[]) is None
    assert rank(source("b", half)) > rank(pair()[0])
    assert not independent([promised("1", "1"), promised("1", "2")])


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


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from dpsql.examples.retail import make_star, write_star

    folder = tmp_path_factory.mktemp("both")
    write_star(folder / "data", make_star(3, 5000, 50))
    text = (Path(__file__).parents[2] / "catalog" / "retail.yaml").read_text()
    head = text[: text.index("views:")]
    view = "views:\n  people: {of: customer, axes: [customer.age, customer.sex], measures: [count]}\n"
    (folder / "central.yaml").write_text(head.replace("epsilon: 1.0", "epsilon: 0.02") + view)
    (folder / "local.yaml").write_text(
        head.replace("name: retail", "name: asked") + "collection: {epsilon: 3, participation: all}\n" + view
    )
    dpsql.publish(folder / "central.yaml", folder / "c.dpsql")
    dpsql.simulate(folder / "local.yaml", folder / "r.parquet", folder / "p.json", seed=1)
    dpsql.collect(folder / "p.json", [folder / "r.parquet"], folder / "l.dpsql")
    return folder / "c.dpsql", folder / "l.dpsql"


def test_central_local_and_both(both: tuple[Path, Path]) -> None:
    sql = "SELECT sex, COUNT(*) AS n FROM customer WHERE age BETWEEN 30 AND 59 GROUP BY sex"
    with connect(*both) as routing, connect(*both, combine=True) as combining:
        routed, blended = routing.session.query(sql), combining.session.query(sql)
        assert "people" in routing.session.explain(sql)
        alone = combining.session.query(
            "SELECT sex, COUNT(*) AS n FROM customer GROUP BY sex ORDER BY n LIMIT 1"
        )
    errors = routed.provenance["routed"]["mean_errors"]
    assert errors[routed.provenance["routed"]["chosen"]] == min(errors.values())
    assert routed.provenance["routed"]["all_together"] == {
        "neighbours": "replace_one",
        "unit": "customer.customer_id",
        "epsilon": "76/25",
    }
    assert {each["release"] for each in blended.provenance["combined"]} == {"retail", "asked"}
    for row, single in zip(blended.stderr_rows, routed.stderr_rows, strict=True):
        assert 0 < row[1] < single[1]
    assert "routed" in alone.provenance or "combined" in alone.provenance
