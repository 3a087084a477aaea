"""The exact loss of whole releases with a reported column, where keys or reports stand twice.

A neighbour takes away a person: her rows of every table, and every report under her key, however it is spelt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import pytest

from dpsql.catalog import load_catalog
from dpsql.central import row_pairs
from dpsql.central.central import publish_release
from dpsql.ledger.store import ledger_entries
from dpsql.noise import Noise
from tests.central.test_hybrid import HEAD, store
from tests.privacy.loss import KEY, Loss, RawRows, contents, loss_of, write_side
from tests.thinned import by_default

CATALOG = (
    HEAD.replace("epsilon: 1}", "PROMISE}")
    + """
  customer: {role: dimension, key: id, private: true, columns: {id: {type: int}, age: {type: int, lower: 18, upper: 57,
    out_of_domain: drop, cuts: [28, 38, 48], reported: {epsilon: 2, collection: ages}}}}
  sales: {role: fact, foreign_keys: {id: {references: customer, on_missing: drop}}, max_ids: 4, columns: {
    day: {type: int, lower: 0, upper: 3, out_of_domain: drop},
    amount: {type: int, lower: 0, upper: 10, measure: true}}}
views:
  days: {of: sales, axes: [customer.age, sales.day], measures: [count, sales.amount], share: 0.7}
  people: {of: customer, axes: [customer.age], measures: [count], share: 0.3}
"""
)
SALES, PEOPLE = "id INT, day INT, amount INT", 40
DEAR = [(99, 2, 10)] * 4
PROMISES = ["epsilon: 1", "epsilon: 1, neighbours: replace_one", "epsilon: 1, delta: 1e-6"]


class Twice(NamedTuple):
    """What the person has who comes and goes.

    Args:
        keys: her rows in the unit's table, as they are spelt there.
        reports: (key, item) of each stored report.
        sales: her rows.
    """

    keys: tuple[str, ...]
    reports: tuple[tuple[str, int], ...]
    sales: tuple[tuple[int, int, int], ...] = tuple(DEAR)


CASES = {
    "once": Twice(("99",), (("99", 1),)),
    "her key stands twice": Twice(("99", "99"), (("99", 1),)),
    "her key is spelt in two ways, each with a report": Twice(("99", "099"), (("99", 1), ("099", 3))),
    "two reports of her key": Twice(("99",), (("99", 3), ("99", 0))),
    "more rows than count, and all of it": Twice(
        ("99", "99", "99.0"), (("99", 3), ("99", 0), ("99.0", 2)), tuple(DEAR * 3)
    ),
    "reports without rows": Twice((), (("99", 3), ("99", 1))),
}


def side(folder: Path, promise: str, who: Twice | None) -> Path:
    """Raw tables, stored reports and the catalog, with or without the person."""
    her = who or Twice((), (), ())
    sales = [(i, (i + j) % 4, (i * 3 + j) % 11) for i in range(PEOPLE) for j in range(3)]
    customers = [(str(i),) for i in range(PEOPLE)] + [(key,) for key in her.keys]
    tables = {"sales": RawRows(SALES, [*sales, *her.sales]), "customer": RawRows("id VARCHAR", customers)}
    place = write_side(folder, CATALOG.replace("PROMISE", promise), tables)
    reports = [(str(i), 0, i % 4) for i in range(PEOPLE)] + [(key, 0, item) for key, item in her.reports]
    store(place, reports)
    return place


def publisher(place: Path) -> Callable[[Noise], object]:
    known = load_catalog(place / "catalog.yaml")
    return lambda noise: contents(publish_release(known, place / "r.dpsql", noise=noise, key=KEY).path)


def loss(sides: Sequence[Path]) -> Loss:
    draws = loss_of(publisher(sides[0]), publisher(sides[1]))
    (entry,) = ledger_entries(sides[0] / "ledger.duckdb")
    lines = entry.spend_lines()
    return Loss(draws, sum((line.amount for line in lines), Fraction(0)), lines[0].currency)


def one_person_more(folder: Path, promise: str, who: Twice) -> Loss:
    return loss((side(folder / "left", promise, who), side(folder / "right", promise, None)))


@pytest.mark.parametrize("name", by_default(CASES, 3))
def test_keys_and_reports_that_stand_twice_cost_no_more(tmp_path: Path, name: str) -> None:
    found = one_person_more(tmp_path, PROMISES[0], CASES[name])
    assert found.share <= 1
    if CASES[name].keys:
        assert found.share >= 0.8, "she has as many dear rows as count"


@pytest.mark.parametrize("promise", PROMISES[1:])
def test_so_do_they_under_other_promises(tmp_path: Path, promise: str) -> None:
    assert 0 < one_person_more(tmp_path, promise, CASES["more rows than count, and all of it"]).share <= 1


@pytest.mark.parametrize("name", ["once", "more rows than count, and all of it"])
@pytest.mark.parametrize("written", ["max_ids: 4, bounding: weight", "collection: ages, error_bar: bound"])
def test_so_do_they_where_rows_are_weighted_or_bars_are_a_bound(
    tmp_path: Path, name: str, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = CATALOG.replace("max_ids: 4" if "max_ids" in written else "collection: ages", written)
    monkeypatch.setattr(f"{__name__}.CATALOG", changed)
    assert 0.8 <= one_person_more(tmp_path, PROMISES[0], CASES[name]).share <= 1


def test_a_report_for_each_of_two_spellings_is_replaced_by_nothing_else(tmp_path: Path) -> None:
    """Under replace-one a person becomes another one: her reports and rows all change."""
    other = Twice(("99", "099"), (("99", 0), ("099", 2)), ((99, 0, 0),) * 4)
    pair = CASES["her key is spelt in two ways, each with a report"]
    promise = PROMISES[1]
    found = loss((side(tmp_path / "left", promise, pair), side(tmp_path / "right", promise, other)))
    assert 0.8 <= found.share <= 1


def test_a_report_under_the_key_of_another_is_not_hers(tmp_path: Path) -> None:
    """What the receiver of reports has to check, docs/privacy/local.md: else one person moves the rows of two."""
    thief = Twice(("99",), (("99", 1), ("2", 0)))
    assert one_person_more(tmp_path, PROMISES[0], thief).share > 1


def test_squares_that_are_not_cut_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted defect: noise for people of one pair, and sums of all pairs."""
    exact, planned = row_pairs._exact, row_pairs.planned_squares
    monkeypatch.setattr(
        row_pairs, "planned_squares", lambda *of: (square._replace(bound=1) for square in planned(*of))
    )
    monkeypatch.setattr(row_pairs, "_exact", lambda *of: exact(*of[:-1], of[-1]._replace(bound=1 << 40)))
    assert one_person_more(tmp_path, PROMISES[0], CASES["once"]).share > 1
