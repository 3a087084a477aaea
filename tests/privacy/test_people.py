"""Distinct people: budgets of a person's gaps in integers, and the exact loss of releases on aimed neighbours."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, pairwise
from math import comb
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from dpsql.catalog import load_catalog, tables
from dpsql.catalog.graph import ledger_path
from dpsql.central.central import publish_release
from dpsql.central.people import gap_cells, gap_sql
from dpsql.engines import summaries as lines
from dpsql.ledger.store import budget_report
from dpsql.matrices import distinct
from dpsql.matrices.distinct import gap_total, gap_weights, gaps_of
from dpsql.mechanisms.designs.distinct import UNIT, cell_reach, cell_weight
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE
from dpsql.noise import ZeroNoise
from tests.privacy.loss import Distinguished, Loss, RawRows, Tables, measure, write_side
from tests.thinned import by_default

CATALOG = """
privacy: {lineage: p, cap: 9, unit: customer.id, epsilon: 1, PRIVACY}
tables:
  customer: {role: dimension, key: id, private: true, columns: {region: {type: string, categories: [n, s, e]}}}
  sales: {role: fact, foreign_keys: {id: customer}, max_ids: BOUND, columns: {
    month: {type: int, lower: 0, upper: 5}, store: {type: int, lower: 0, upper: 4}}}
views:
  asked: {of: sales, axes: [AXES], measures: {count: 1/50, people: 49/50}}
"""
OWN, GAPS_OF, CELLS_OF = "customer.region", "sales.month, customer.region", "sales.month, sales.store"


def gaps_of_person(leaves: tuple[int, ...], n: int) -> list[tuple[int, int]]:
    ends = [-1, *leaves, n]
    return list(pairwise(ends))


@pytest.mark.parametrize("n", range(1, 11))
def test_whoever_she_is_her_rows_have_one_budget(n):
    weights = gap_weights(n).tolist()
    number = {gap: 1 + i for i, gap in enumerate(zip(*(ends.tolist() for ends in gaps_of(n)), strict=True))}
    assert len(number) == comb(n + 2, 2) - 1
    for size in range(1, n + 1):
        for leaves in combinations(range(n), size):
            spent = weights[0] + sum(weights[number[gap]] for gap in gaps_of_person(leaves, n))
            assert spent == gap_total(n)


def test_gaps_are_counted_as_they_are_meant():
    chance = random.Random(3)
    rows = [
        (u, chance.randrange(7), chance.randrange(2)) for u in range(80) for _ in range(chance.randrange(6))
    ]
    wanted: dict[tuple[int, int, int], int] = {}
    for u in {row[0] for row in rows}:
        mine = [row for row in rows if row[0] == u]
        own, leaves = min(row[2] for row in mine), tuple(sorted({row[1] for row in mine}))
        for gap in gaps_of_person(leaves, 7):
            wanted[own, *gap] = wanted.get((own, *gap), 0) + 1
    with duckdb.connect() as raw:
        raw.execute("CREATE TABLE placed (unit INT, a0 INT, a1 INT)")
        raw.executemany("INSERT INTO placed VALUES (?, ?, ?)", rows)
        found = raw.execute(gap_sql("placed", "a1", "a0")).fetchnumpy()
    exact = gap_cells({name: np.asarray(values, np.int64) for name, values in found.items()}, 2, 7)
    gaps = list(zip(*(ends.tolist() for ends in gaps_of(7)), strict=True))
    assert {
        (c, *gap): exact[c, 1 + i] for c in range(2) for i, gap in enumerate(gaps) if exact[c, 1 + i]
    } == wanted
    assert exact[:, 0].sum() == len({row[0] for row in rows})


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN])
def test_weights_keep_what_she_adds_within_the_bound(law):
    for bound in (1, 2, 3, 5, 17, 1000):
        for touched in (*range(1, 80), 10**6, 2**31 - 1):
            weight = cell_weight(touched, bound, law)
            assert weight**law.norm * touched <= UNIT**law.norm * bound
            assert weight == UNIT or (weight + 1) ** law.norm * touched > UNIT**law.norm * bound
            assert cell_reach(bound, law) ** law.norm >= weight**law.norm * touched


def star(touched: list[tuple[int, int]], *, regions: str = "s") -> Tables:
    """Thirty customers of a few sales; the victim, if there, touches what is said, and has a line for each region."""
    rows = [(i, (i * j) % 6, (i + j) % 5) for i in range(30) for j in range(i % 4)]
    rows += [(99, month, store) for month, store in touched for _ in range(3)]
    customers = [(i, "nse"[i % 3]) for i in range(30)] + [(99, region) for region in regions if touched]
    return {
        "sales": RawRows("id INT, month INT, store INT", rows),
        "customer": RawRows("id INT, region VARCHAR", customers),
    }


EVERYWHERE = [(month, store) for month in range(6) for store in range(5)]
VICTIMS = {
    "one cell": [(3, 1)],
    "all cells": EVERYWHERE,
    "every other month": [(month, 0) for month in range(0, 6, 2)],
    "first and last": [(0, 0), (5, 4)],
    "out of domain too": [*EVERYWHERE, (40, 40)],
}


def about_people(loss, currency: str) -> tuple[Fraction, Fraction]:
    """(what the draws about people cost, what their lines were charged)."""
    charged = sum(
        (amount for words, amount in loss.lines if "people" in words or "cells per" in words), Fraction(0)
    )
    own = [draw.mu2 if currency == "mu2" else draw.epsilon for draw in loss.draws[1:]]  # rows are drawn first
    return sum(own, Fraction(0)), charged


@pytest.mark.parametrize(
    "victim",
    [pytest.param(victim, marks=() if victim == "all cells" else pytest.mark.slow) for victim in VICTIMS],
)
@pytest.mark.parametrize(("axes", "least"), [(OWN, 0.98), (GAPS_OF, 0.98), (CELLS_OF, 0.02)])
@pytest.mark.parametrize("privacy", by_default(["delta: 1e-6", "delta: 0"], 1))
def test_a_person_costs_what_people_are_charged(tmp_path, privacy, axes, least, victim):
    catalog = (
        CATALOG.replace("PRIVACY", privacy).replace("BOUND", "2, clipped_share: 0").replace("AXES", axes)
    )
    loss = measure(catalog, star(VICTIMS[victim]), star([]), tmp_path)
    assert loss.share <= 1
    spent, charged = about_people(loss, loss.currency)
    assert least * charged <= spent <= charged


@pytest.mark.parametrize("axes", [OWN, GAPS_OF, CELLS_OF])
@pytest.mark.parametrize("bound", [pytest.param("1", marks=pytest.mark.slow), "auto"])
def test_a_person_in_two_regions_is_one_person(tmp_path, axes, bound):
    catalog = CATALOG.replace("PRIVACY", "delta: 1e-6").replace("BOUND", bound).replace("AXES", axes)
    loss = measure(catalog, star(EVERYWHERE, regions="nse"), star([]), tmp_path)
    assert 0 < loss.share <= 1


def test_replace_one_is_drawn_at_a_quarter(tmp_path):
    catalog = CATALOG.replace("PRIVACY", "delta: 1e-6, neighbours: replace_one").replace("BOUND", "1")
    left, right = star(EVERYWHERE, regions="n"), star([(2, 2)], regions="e")
    loss = measure(catalog.replace("AXES", GAPS_OF), left, right, tmp_path)
    assert 0 < loss.share <= 1


def test_equal_budgets_for_gaps_are_found_out(tmp_path, monkeypatch):
    """The planted bug: every gap at the budget that a person of three gaps may pay."""

    def equal(n: int):
        before, _ = gaps_of(n)
        return np.append(n + 1, np.full(len(before), 9 * (n + 1) // 3)).astype(np.int64)

    monkeypatch.setattr(distinct, "gap_weights", equal)
    catalog = CATALOG.replace("PRIVACY", "delta: 1e-6").replace("BOUND", "2").replace("AXES", GAPS_OF)
    loss = measure(catalog, star(EVERYWHERE), star([]), tmp_path)
    assert loss.share > 1


# Facts about people, published end to end: what one person moves is what is claimed, whatever she owns.


SHOP = """\
privacy: {lineage: p, cap: 9, unit: customer.id, epsilon: 1, DELTA}
tables:
  customer: {role: dimension, key: id, columns: {gap: {type: int, lower: 0, upper: 9, nullable: true}},
    derive: {gap: "date_diff('day', first, second)"}, summaries: {
    visits: {of: sales, is: count(*), type: int, lower: 0, upper: 9},
    spent: {of: sales, is: sum(amount), type: int, lower: 0, upper: 40, measure: true},
    first: {of: sales, is: min(day), type: date, lower: 2025-01-01, upper: 2025-01-09, nullable: true},
    last: {of: sales, is: max(day), type: date, lower: 2025-01-01, upper: 2025-01-09, nullable: true},
    second: {of: sales, is: "nth(day, 2)", type: date},
    toys: {of: sales, is: bool_or(product.kind = 'toys'), type: bool},
    kind: {of: sales, is: mode(product.kind), type: string, categories: [toys, food], nullable: true},
    soon: {of: sales, is: count(*) FILTER (WHERE day > first), type: int, lower: 0, upper: 4}}}
  orders: {role: fact, key: order_id, max_ids: 9, foreign_keys: {id: customer}}
  product: {role: dimension, key: product_id, private: false, columns: {kind: {type: string, categories: [toys, food]}}}
  sales: {role: fact, max_ids: 4, clipped_share: 0, foreign_keys: {order_id: orders, product_id: product}, columns: {
    day: {type: date, lower: 2025-01-01, upper: 2025-01-09}, amount: {type: int, lower: 0, upper: 10}}}
views:
VIEWS
"""
FREQUENCY = "  frequency: {of: customer, axes: [customer.visits], measures: [count], mechanism: identity}\n"
COHORT = "  cohort: {of: customer, axes: [customer.first, customer.last], measures: [count], mechanism: identity}\n"
MONEY = (
    "  money: {of: customer, axes: [customer.toys], measures: [count, customer.spent], mechanism: identity}\n"
)
GAPS = "  gaps: {of: customer, axes: [customer.gap, customer.soon], measures: [count], mechanism: identity}\n"
TASTE = "  taste: {of: customer, axes: [customer.kind], measures: [count], mechanism: identity}\n"
KEPT = "  kept: {of: sales, axes: [customer.first, sales.day], measures: {count: 0.05, people: 0.95}}\n"
PEOPLE = FREQUENCY + COHORT + MONEY + GAPS + TASTE
SCHEMAS = {
    "customer": "id INT", "orders": "order_id INT, id INT", "product": "product_id INT, kind VARCHAR",
    "sales": "order_id INT, product_id INT, day DATE, amount INT",
}  # fmt: skip
VICTIM = 99


def summary_star(owned: int, *, victim: bool, shared: bool = False, seed: int = 3) -> Tables:
    """Thirty customers; the victim, if there, with her orders and their lines."""
    chance = random.Random(seed)
    customers: list[tuple[object, ...]] = [(i,) for i in range(30)]
    orders: list[tuple[object, ...]] = [(i, chance.choice([*range(25), None, 555])) for i in range(60)]
    sales: list[tuple[object, ...]] = [
        (chance.choice([*range(60), None]), chance.choice([1, 2, None]), f"2025-01-0{chance.randint(1, 9)}",
         chance.randint(0, 10))
        for _ in range(120)
    ]  # fmt: skip
    if victim:
        customers.append((VICTIM,))
        orders += [(1000 + i, VICTIM) for i in range(3)]
        sales += [(1000 + i % 3, 1, f"2025-01-0{1 + i % 9}", 10) for i in range(owned)]
        orders += [(7, VICTIM)] if shared else []
    rows = {"customer": customers, "orders": orders, "sales": sales, "product": [(1, "toys"), (2, "food")]}
    return {table: RawRows(SCHEMAS[table], rows[table]) for table in SCHEMAS}


def catalog(views: str, delta: str = "delta: 0") -> str:
    """The shop with some views, and one view more of each summary that these leave unused."""
    unused = [c for c in ("visits", "spent", "last", "toys", "kind", "gap", "soon") if f".{c}" not in views]
    rest = (
        f"  rest_{c}: {{of: customer, axes: [customer.{c}], measures: [count], mechanism: identity}}\n"
        for c in unused
    )
    return SHOP.replace("VIEWS\n", views + "".join(rest)).replace("DELTA", delta)


def loss(folder: Path, views: str, owned: int, delta: str = "delta: 0", **options: bool) -> Loss:
    return measure(
        catalog(views, delta),
        summary_star(owned, victim=True, **options),
        summary_star(owned, victim=False),
        folder,
    )


@pytest.mark.parametrize("delta", ["delta: 0", "delta: 1e-6"])
@pytest.mark.parametrize("owned", [0, 5000])
def test_a_person_costs_what_is_claimed(owned: int, delta: str, tmp_path: Path) -> None:
    """M = 1 in views of people, however many rows she owns; her sum lies at a bound, so it moves by its reach."""
    measured = loss(tmp_path, PEOPLE, owned, delta)
    assert 0.98 <= measured.share <= 1
    moved = sorted(draw.moved for draw in measured.draws)
    assert delta != "delta: 0" or moved == [1, 1, 1, 1, 1 + 20]  # counts, and a count and a sum by one draw


def test_a_shared_order_stays_the_others(tmp_path: Path) -> None:
    assert 0.98 <= loss(tmp_path, PEOPLE, 40, shared=True).share <= 1


@pytest.mark.parametrize("delta", ["delta: 0", "delta: 1e-6"])
def test_distinct_people_by_cohort_cost_what_is_claimed(delta: str, tmp_path: Path) -> None:
    assert 0 < loss(tmp_path, KEPT, 5000, delta).share <= 1


def by_another_key(made: Callable[[Any], str]) -> Callable[[Any], str]:
    """The second stage reads another person's first day: hers, if she is there."""
    return lambda stage: re.sub(r"\.k = \S+", ".k = 99", made(stage))


def everybodys_rows(made: Callable[[Any], str]) -> Callable[[Any], str]:
    """No group by person: everybody has the rows of all."""
    return lambda stage: (
        f"SELECT c.k AS k, {', '.join(['1 AS one', *(f'r.{n}' for n in stage.raw.values())])} FROM "
        f"({made(stage)}) AS r, (SELECT unnest(range(100)) AS k) AS c"
    )


@pytest.mark.parametrize(
    ("broken", "views"), [(None, PEOPLE), (by_another_key, GAPS), (everybodys_rows, FREQUENCY)]
)
def test_a_planted_defect_is_found(tmp_path, monkeypatch, broken, views):
    """It moves more than is claimed, or tells the two apart; nothing does where nothing is planted."""
    if broken is not None:
        monkeypatch.setattr(lines._FactStage, "_joined", broken(lines._FactStage._joined))
    try:
        assert (loss(tmp_path, views, 40).share > 1) == (broken is not None)
    except Distinguished:
        assert broken is not None


def test_people_without_rows_that_are_lost_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: an inner join loses those who own nothing: she moves no count, so the tight pair shows it."""
    made = lines.people_rows
    monkeypatch.setattr(
        "dpsql.engines.duck.people_rows", lambda *of: made(*of).replace("LEFT JOIN person", "JOIN person")
    )
    assert loss(tmp_path, PEOPLE, 0).share < 0.98


def test_the_check_of_rows_put_aside_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: as an axis of bounded rows, one row more moves all n rows of its person: 2 n + 1."""
    monkeypatch.setattr("dpsql.catalog.summaries._check_fact_view", lambda *given: None)
    by_visits = "  rows: {of: sales, axes: [customer.visits], measures: [count], mechanism: identity}\n"
    three, two = (summary_star(owned, victim=True) for owned in (3, 2))
    draw = next(d for d in measure(catalog(by_visits), three, two, tmp_path).draws if d.moved > 1)
    assert draw.moved == 2 * 2 + 1


def test_facts_of_summaries_are_the_lineages(tmp_path: Path) -> None:
    """A fact that no view counts, and the tables on its way, are charged all the same."""
    write_side(tmp_path, catalog(FREQUENCY), summary_star(2, victim=True))
    shop = load_catalog(tmp_path / "catalog.yaml")
    publish_release(shop, tmp_path / "shop.dpsql", noise=ZeroNoise(), key=bytes(32))
    (lineage,) = budget_report(ledger_path(shop)).lineages
    (entry,) = lineage.entries
    assert {table.name for table in entry.tables} == {"customer", "orders", "sales"}


def test_a_word_that_loses_the_rich_is_not_the_default() -> None:
    """OTHER in the place of the nearest bound would hide who lies beyond it."""
    spec = {"of": "sales", "is": "sum(x)", "type": "int", "lower": "0", "upper": "9"}
    assert tables.Summary.model_validate(spec).out_of_domain is tables.NEAREST


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_random_star_costs_more(tmp_path: Path) -> None:
    """The worst over 300 random stars, shares and owners."""
    worst = 0.0
    for seed in range(300):
        chance = random.Random(seed)
        views = "".join(chance.sample([FREQUENCY, COHORT, MONEY, GAPS, TASTE, KEPT], chance.randint(1, 3)))
        text = catalog(views, chance.choice(["delta: 0", "delta: 1e-6"]))
        owned, shared = chance.choice([0, 1, 2, 5, 300]), chance.random() < 0.5
        sides = (
            summary_star(owned, victim=True, shared=shared, seed=seed),
            summary_star(owned, victim=False, seed=seed),
        )
        worst = max(worst, measure(text, *sides, tmp_path / str(seed), seed=seed).share)
    print(f"figure people-random-loss: {worst:.4f} (<= 1) {'ok' if worst <= 1 else 'short'}")
    assert 0.9 < worst <= 1
