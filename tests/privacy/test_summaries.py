"""Facts about people, published end to end: what one person moves is what is claimed, whatever she owns."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from dpsql.catalog import load_catalog, tables
from dpsql.catalog.graph import ledger_path
from dpsql.central.central import publish_release
from dpsql.engines import summaries as lines
from dpsql.ledger.store import budget_report
from dpsql.noise import ZeroNoise
from tests.privacy.loss import Distinguished, Loss, RawRows, Tables, measure, write_side

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


def star(owned: int, *, victim: bool, shared: bool = False, seed: int = 3) -> Tables:
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
        catalog(views, delta), star(owned, victim=True, **options), star(owned, victim=False), folder
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


class TestPlanted:
    """Each defect moves more than is claimed, or tells the two apart."""

    def found(self, folder: Path, views: str = PEOPLE, owned: int = 40, **options: bool) -> bool:
        try:
            return loss(folder, views, owned, **options).share > 1
        except Distinguished:
            return True

    def test_nothing_is_found_without_one(self, tmp_path: Path) -> None:
        assert not self.found(tmp_path)

    def test_lines_joined_by_another_key(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The second stage reads another person's first day: hers, if she is there."""
        made = lines._FactStage._joined
        monkeypatch.setattr(
            lines._FactStage, "_joined", lambda self: re.sub(r"\.k = \S+", ".k = 99", made(self))
        )
        assert self.found(tmp_path, GAPS)

    def test_no_group_by_person(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Everybody has the rows of all."""
        made = lines._FactStage._joined
        monkeypatch.setattr(
            lines._FactStage,
            "_joined",
            lambda self: (
                f"SELECT c.k AS k, {', '.join(['1 AS one', *(f'r.{n}' for n in self.raw.values())])} FROM "
                f"({made(self)}) AS r, (SELECT unnest(range(100)) AS k) AS c"
            ),
        )
        assert self.found(tmp_path, FREQUENCY)

    def test_people_without_rows_are_lost(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An inner join loses those who own nothing: she moves no count, so the tight pair shows it."""
        made = lines.people_rows
        monkeypatch.setattr(
            "dpsql.engines.duck.people_rows",
            lambda *given: (
                made(*given).replace(") SELECT", ") SELECT").replace("LEFT JOIN person", "JOIN person")
            ),
        )
        assert loss(tmp_path, PEOPLE, 0).share < 0.98

    def test_the_check_of_rows_put_aside(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Under `unit: row`, or as an axis of bounded rows, one row more moves all n rows of its person: 2 n + 1."""
        monkeypatch.setattr("dpsql.catalog.summaries._check_fact_view", lambda *given: None)
        by_visits = "  rows: {of: sales, axes: [customer.visits], measures: [count], mechanism: identity}\n"
        three, two = (star(owned, victim=True) for owned in (3, 2))
        draw = next(d for d in measure(catalog(by_visits), three, two, tmp_path).draws if d.moved > 1)
        assert draw.moved == 2 * 2 + 1


def test_facts_of_summaries_are_the_lineages(tmp_path: Path) -> None:
    """A fact that no view counts, and the tables on its way, are charged all the same."""
    write_side(tmp_path, catalog(FREQUENCY), star(2, victim=True))
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
        sides = (star(owned, victim=True, shared=shared, seed=seed), star(owned, victim=False, seed=seed))
        worst = max(worst, measure(text, *sides, tmp_path / str(seed), seed=seed).share)
    print(f"figure people-random-loss: {worst:.4f} (<= 1) {'ok' if worst <= 1 else 'short'}")
    assert 0.9 < worst <= 1
