"""Distinct people: budgets of a person's gaps in integers, and the exact loss of releases on aimed neighbours."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations, pairwise
from math import comb

import duckdb
import numpy as np
import pytest

from dpsql.central.people import gap_cells, gap_sql
from dpsql.matrices.distinct import gap_total, gap_weights, gaps_of
from dpsql.mechanisms.designs import distinct
from dpsql.mechanisms.designs.distinct import UNIT, cell_reach, cell_weight
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE
from tests.privacy.loss import RawRows, Tables, measure

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
@pytest.mark.parametrize("privacy", ["delta: 0", "delta: 1e-6"])
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
