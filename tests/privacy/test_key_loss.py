"""Finding private keys costs what the ledger says: exact losses of whole releases, and the chance of new keys.

A key that one person alone holds is a row of one neighbour and not of the other, so the step's rows cannot be compared
one by one: what they share costs mu^2, what is new costs delta. Both are measured here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from dpsql.budget import SLACK, gaussian_sigma2
from dpsql.budget.threshold import SQUARED_SENSITIVITY, UNIT, key_threshold, key_weight
from dpsql.catalog import load_catalog
from dpsql.central import selection
from dpsql.central.central import publish_release
from dpsql.noise import ExactNoise, Noise, os_entropy

CATALOG = """
dpsql: 1
name: shop
ledger: LEDGER
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet, person: person.parquet}}
privacy: {lineage: p, cap: 9, unit: person.id, epsilon: 2, delta: 1e-4, neighbours: NEIGHBOURS}
tables:
  person: {role: dimension, key: id, private: true}
  sales: {role: fact, max_ids: 2, foreign_keys: {id: person}, columns: {
    item: {type: string, categories: {private: true, per_unit: 4, most: 30}},
    page: {type: string, categories: {private: true, per_unit: 4, most: 30}}}}
views:
  items: {of: sales, axes: [sales.item], measures: [count], mechanism: identity}
  pages: {of: sales, axes: [sales.page], measures: [count], mechanism: identity}
"""
NEW = [f"new {i}" for i in range(6)]
SHARED = [f"item {i}" for i in range(6)]
PAIRS: Mapping[str, list[str]] = {
    "new": NEW[:3],
    "shared": SHARED[:3],
    "half and half": [*NEW[:2], *SHARED[:2]],
    "many": SHARED + NEW,
}


class Quiet:
    """No noise: both sides show the same keys, so that their rounds have the same history."""

    insecure = True

    def gaussian(self, sigma2: Fraction, size: int, exact: Any = None) -> Any:
        return np.zeros(size, np.int64) if exact is None else exact

    laplace = joint = gaussian


def rows(keys: list[str]) -> list[tuple[int, str, str]]:
    """Two hundred people of three items each, and the victim with one row for each of her keys."""
    made = [(i, SHARED[(i + j) % 6], SHARED[(i * j) % 6]) for i in range(200) for j in range(3)]
    return [*made, *((999, key, key) for key in keys)]


def publish(folder: Path, keys: list[str], noise: Noise, neighbours: str) -> None:
    """A release of one side."""
    folder.mkdir()
    with duckdb.connect() as db:
        db.execute("CREATE TABLE sales (id INT, item VARCHAR, page VARCHAR)")
        db.executemany("INSERT INTO sales VALUES (?, ?, ?)", rows(keys))
        db.execute("CREATE TABLE person AS SELECT DISTINCT id FROM sales")
        for table in ("sales", "person"):
            db.execute(f"COPY {table} TO '{folder / table}.parquet' (FORMAT parquet)")
    text = CATALOG.replace("ROOT", str(folder)).replace("LEDGER", str(folder / "ledger.duckdb"))
    (folder / "c.yaml").write_text(text.replace("NEIGHBOURS", neighbours))
    publish_release(load_catalog(folder / "c.yaml"), folder / "r.dpsql", noise=noise, key=bytes(range(32)))


Rounds = list[tuple[Fraction, dict[str, int]]]


def step_rows(monkeypatch: pytest.MonkeyPatch, folder: Path, keys: list[str], neighbours: str) -> Rounds:
    """Publish, and keep sigma^2 and the weights by key of each round, as they meet the noise."""
    rounds: Rounds = []
    passed = selection._passed

    def kept(scan: Any, plan: Any, step: Any, listed: Any) -> Any:
        statement = selection.key_statement(scan, plan.column, listed)
        pairs = [p for batch in scan.raw.relations("x").batches(statement) for p in batch]
        rounds.append((step.sigma2, {str(key): int(weight) for key, weight in pairs}))
        return passed(scan, plan, step, listed)

    with monkeypatch.context() as patch:
        patch.setattr(selection, "_passed", kept)
        publish(folder, keys, Quiet(), neighbours)
    return rounds


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_release_costs_its_mu2_and_its_new_keys_their_delta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair: str, neighbours: str, publishes: None
) -> None:
    with_her = step_rows(monkeypatch, tmp_path / "left", PAIRS[pair], neighbours)
    without = step_rows(monkeypatch, tmp_path / "right", [], neighbours)
    plan = load_catalog(tmp_path / "left" / "c.yaml")
    rounds = [step for each in selection.key_plans(plan) for step in each.rounds]
    moves = 2 if neighbours == "replace_one" else 1
    for (sigma2, left), (same, right), step in zip(with_her, without, rounds, strict=True):
        assert sigma2 == same == step.sigma2
        shared = sum((left.get(key, 0) - right[key]) ** 2 for key in right)
        assert Fraction(shared) / (sigma2 - SLACK) * moves**2 <= step.charge
        new = [weight for key, weight in left.items() if key not in right]
        chance = sum(ndtr(-(step.threshold - weight - 1) / math.sqrt(sigma2)) for weight in new)
        assert chance <= float(step.delta) * (1 + 1e-6)
        assert new or shared or not PAIRS[pair]


def test_one_round_of_shared_keys_is_tight() -> None:
    """Far above the threshold a person of k keys pays nearly all of a round's mu^2."""
    for keys in (1, 2, 4, 50):
        assert key_weight(keys) ** 2 * keys / SQUARED_SENSITIVITY > 0.9999


@pytest.mark.slow
@pytest.mark.parametrize("per_unit", [1, 4])
def test_new_keys_pass_no_more_often_than_delta_over_drawn_steps(per_unit: int) -> None:
    """A million drawn steps at delta 1e-2, and the exact noise: at most d Q, within four standard errors."""
    delta, sigma2 = Fraction(1, 100), gaussian_sigma2(Fraction(1, 20), SQUARED_SENSITIVITY)
    threshold, noise, steps = key_threshold(sigma2, delta, per_unit), ExactNoise(os_entropy()), 1_000_000
    for held in {1, per_unit}:
        weight, passed = key_weight(held), np.zeros(steps, np.bool_)
        for _ in range(held):
            passed |= noise.gaussian(sigma2, steps, np.full(steps, weight, np.int64)) >= threshold
        bound = held * ndtr(-(threshold - weight - 1) / math.sqrt(sigma2))
        assert passed.mean() <= bound + 4 * math.sqrt(bound / steps)
        assert bound <= float(delta) * (1 + 1e-9)


PLANTED = {
    "T without the factor d": lambda sigma2, delta, k: int(
        UNIT + 1 - math.sqrt(sigma2) * ndtri(float(delta))
    ),
    "T without W(d)": lambda sigma2, delta, k: int(1 - math.sqrt(sigma2) * ndtri(float(delta) / k)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_thresholds_break_the_bound(name: str) -> None:
    sigma2, delta, per_unit = gaussian_sigma2(Fraction(1, 20), SQUARED_SENSITIVITY), Fraction(1, 10**6), 50
    wrong = PLANTED[name](sigma2, delta, per_unit)
    worst = max(d * ndtr(-(wrong - key_weight(d) - 1) / math.sqrt(sigma2)) for d in range(1, per_unit + 1))
    assert worst > float(delta) * 1.01
    right = key_threshold(sigma2, delta, per_unit)
    assert max(d * ndtr(-(right - key_weight(d) - 1) / math.sqrt(sigma2)) for d in range(1, 51)) <= float(
        delta
    )
