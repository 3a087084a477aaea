"""The exact loss of whole releases with a reported column, where keys or reports stand twice.

A neighbour takes away a person: her rows of every table, and every report under her key, however it is spelt.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from dpsql.catalog import load_catalog
from dpsql.central import row_pairs
from dpsql.client import oracles
from dpsql.client.oracles import OTHER, BlockDesign, points, space_of
from dpsql.client.plan import largest_weight
from dpsql.curator.prove.madeup import NeighbourSide, measure_pair
from dpsql.local.mechanisms.channel import Channel, Level, channels, choose_channel, questions
from tests.central.test_hybrid import HEAD, store
from tests.privacy.loss import Loss, RawRows, write_side
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


def loss(sides: Sequence[Path]) -> Loss:
    return measure_pair(
        *(NeighbourSide(load_catalog(p / "catalog.yaml"), p / "r.dpsql") for p in sides), 0
    ).loss


def one_person_more(folder: Path, promise: str, who: Twice) -> Loss:
    return loss((side(folder / "left", promise, who), side(folder / "right", promise, None)))


@pytest.mark.parametrize("name", by_default(CASES, 2))
def test_keys_and_reports_that_stand_twice_cost_no_more(tmp_path: Path, name: str) -> None:
    found = one_person_more(tmp_path, PROMISES[0], CASES[name])
    assert found.share <= 1
    if CASES[name].keys:
        assert found.share >= 0.8, "she has as many dear rows as count"


@pytest.mark.parametrize("promise", PROMISES[1:])
def test_so_do_they_under_other_promises(tmp_path: Path, promise: str) -> None:
    assert 0 < one_person_more(tmp_path, promise, CASES["more rows than count, and all of it"]).share <= 1


@pytest.mark.parametrize(
    ("written", "name"),
    by_default(
        product(
            ["max_ids: 4, bounding: weight", "collection: ages, error_bar: bound"],
            ["once", "more rows than count, and all of it"],
        ),
        2,
    ),
)
def test_so_do_they_where_rows_are_weighted_or_bars_are_a_bound(tmp_path, name, written, monkeypatch):
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


# The channel of a reported attribute: the device's law by enumeration, its scores, and what analysts may learn.


OWN = largest_weight(Fraction(1))


def device_law(level: Level, own: int, monkeypatch: pytest.MonkeyPatch) -> list[Counter[int]]:
    """For each node how many of the T draws give each item: the device's own code on every draw, in strides of 2^20.

    Weights are multiples of nothing, so each maximal run of draws with one outcome is found by asking both of its ends.
    """
    laws = []
    for node in range(level.nodes):
        total: list[int] = []
        draws: dict[int, int] = {}

        def drawn(at: int, node: int = node, total: list[int] = total) -> int:
            def fixed(bound: int, entropy: Any) -> int:
                total[:] = [bound]
                return at

            monkeypatch.setattr(oracles, "below", fixed)
            if level.extra:
                return oracles.block(node, space_of(level.nodes, level.extra), own, lambda n: b"")
            return oracles.grr(node, level.nodes, own, lambda n: b"")

        drawn(0)
        edges = [0]
        likely = 1 if not level.extra else space_of(level.nodes, level.extra).through
        items = level.nodes if not level.extra else space_of(level.nodes, level.extra).blocks
        for k in range(items):
            edges.append(edges[-1] + (own if k < likely else OTHER))
        assert edges[-1] == total[0], "the law's weights are all there are"
        for start, stop in pairwise(edges):
            first, last = drawn(start), drawn(stop - 1)
            assert first == last
            draws[first] = draws.get(first, 0) + stop - start
        laws.append(Counter(draws))
    return laws


@pytest.mark.parametrize(
    "level",
    [
        Level(tuple(range(5)), "GRR"),
        Level(tuple(range(5)), "DESIGN", 3),
        Level(tuple(range(8)), "DESIGN", 2),
        Level(tuple(range(14)), "DESIGN", 3),
        Level(tuple(range(17)), "DESIGN", 5),
    ],
)
def test_the_device_draws_by_the_law_and_no_value_is_likelier_than_the_ratio(level, monkeypatch):
    weights = level.weights(OWN)
    laws = device_law(level, OWN, monkeypatch)
    assert len(set(weights.sum(axis=0).tolist())) == 1
    for node, law in enumerate(laws):
        assert law == Counter({i: int(w) for i, w in enumerate(weights[:, node])})
    ratio = max(Fraction(int(row.max()), int(row.min())) for row in weights)
    assert ratio == Fraction(OWN, OTHER)
    assert float(ratio) <= math.e


def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that hold the item twice as likely as the plan says."""
    real = oracles.block
    monkeypatch.setattr(
        oracles, "block", lambda item, space, own, entropy: real(item, space, 2 * own, entropy)
    )
    with pytest.raises(AssertionError):
        device_law(Level(tuple(range(8)), "DESIGN", 2), OWN, monkeypatch)


@pytest.mark.parametrize("word", ["grr", "design", "tree"])
@pytest.mark.parametrize("leaves", [4, 15, 16])
def test_levels_of_public_weights_keep_the_ratio_and_scores_undo_them(word: str, leaves: int) -> None:
    offers = list(channels(leaves, True, OWN, word))
    assert offers
    for channel in offers:
        law = channel.law
        assert np.allclose(law.sum(axis=0), 1)
        assert (law.max(axis=1) / law.min(axis=1)).max() == pytest.approx(OWN / OTHER)
        assert np.allclose(channel.scores @ law, np.eye(leaves), atol=1e-8)
        assert np.allclose(channel.scores.sum(axis=0), 1, atol=1e-8), "totals are kept"


@pytest.mark.parametrize(
    ("leaves", "epsilon", "word", "single", "ranges"),
    [
        (4, 1, "grr", 1.89, 1.89), (16, 1, "grr", 6.17, 18.7), (16, 2, "grr", 0.66, 2.00),
        (16, 1, "design", 3.36, 10.4), (64, 1, "design", 3.66, 42.5), (64, 3, "grr", 0.28, 3.04),
        (16, 1, "tree", 4.44, 8.9), (64, 2, "tree", 1.30, 4.17), (64, 1, "tree", 6.7, 20.5),
    ],
)  # fmt: skip
def test_costs_of_a_row_are_those_computed_elsewhere(leaves, epsilon, word, single, ranges):
    channel = choose_channel(leaves, True, largest_weight(Fraction(epsilon)), word)
    assert channel.cost(questions(leaves, True)) <= 1.02 * ranges
    assert channel.cost(np.eye(leaves)) <= 1.05 * single


def test_incidence_is_that_of_a_design() -> None:
    """Any point lies in as many blocks, any two points meet in as many."""
    for items, q in ((7, 2), (13, 3), (40, 3), (31, 5)):
        space = space_of(items, q)
        found = np.array(list(points(space)))
        meets = (found @ found.T) % q == 0
        assert meets.shape == (space.blocks, space.blocks)
        assert set(meets.sum(axis=1)) == {space.through}
        pairs = (meets.astype(int) @ meets.astype(int))[~np.eye(space.blocks, dtype=bool)]
        assert len(set(pairs.tolist())) == 1


def test_a_plan_cannot_ask_for_a_design_that_is_none() -> None:
    assert BlockDesign(16, 3).sound(OWN)
    assert not BlockDesign(16, 4).sound(OWN), "four is no prime"
    assert not BlockDesign(1 << 15, 2).sound(OWN)
    assert not BlockDesign(16, 1).sound(OWN)


def attribute_alone(local: float, central: float) -> float:
    """What analysts may learn at most of a person's attribute alone, docs/privacy/local.md."""
    return math.log((math.exp(local + 2 * central) + 1) / (math.exp(local) + math.exp(2 * central)))


@pytest.mark.parametrize(("local", "central"), [(2.0, 1.0), (1.0, 0.5), (0.5, 2.0)])
def test_the_attribute_alone_costs_less_than_either_promise(local: float, central: float) -> None:
    """Releases whose laws given two items are within e^(2 eps_c): no two values are told apart by more."""
    rng = np.random.default_rng(1)
    bound = attribute_alone(local, central)
    assert bound < min(local, 2 * central)
    own = math.exp(local)
    worst = 0.0
    for items in (2, 3, 7):
        law = (np.ones((items, items)) + (own - 1) * np.eye(items)) / (own + items - 1)
        for _ in range(500):
            seen = np.where(rng.random(items) < 0.5, 1.0, math.exp(2 * central))
            mixed = law.T @ seen
            worst = max(worst, math.log(mixed.max() / mixed.min()))
    assert worst <= bound + 1e-12
    assert worst >= 0.999 * bound, "two items reach it"


def test_channels_of_one_level_are_what_they_say() -> None:
    flat = Channel((Level(tuple(range(4)), "GRR"),), OWN)
    assert (flat.items, flat.leaves, flat.starts) == (3, 3, (0, 3))
