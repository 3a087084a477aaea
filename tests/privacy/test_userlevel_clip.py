"""The joint whitened clip in exact arithmetic: whatever one customer owns, her change is within the bound."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dpsql.central.placed_rows import row_value
from dpsql.contributions import recipe
from dpsql.contributions import recipe as userlevel
from dpsql.contributions.histogram import spread
from dpsql.contributions.statements import (
    LARGEST_NORM,
    UNIT,
    WeightedRows,
    WhitenedStatistic,
    Whitening,
    make_norms,
    make_pure_weights,
    make_weights,
    pure_bound,
    weighted_cells,
    whiten,
)
from dpsql.engines.duck import StoredRelations, no_sources
from dpsql.mechanisms.distribution import LAPLACE, Gaussian
from dpsql.noise import ZeroNoise
from tests.releases import seeded
from tests.strategies import dense
from tests.twins import pure_weight, row_square, weight_of
from tests.userlevel_star import Row, open_table, uneven_rows, write_star

VICTIM = 10_000


def random_customers(people: int, seed: int, days: int) -> tuple[list[Row], dict[int, str | None]]:
    """Customers with 1 .. 10,000 rows: spread out, all in one cell, of one price, out of domain, NULL."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    owned = np.maximum((10 ** (4 * rng.random(people) ** 3)).astype(int), 1)
    owned[:2] = [10_000, 9_999]
    for person, count in enumerate(owned):
        kind = rng.integers(5)
        low, high = ((1, days + 1), (3, 4), (days - 2, days + 1), (-5, days * 2), (1, days + 1))[kind]
        amounts = rng.choice([0.0, 100.0, 1e9, -3.0, float(rng.random() * 100)], count)
        day = rng.integers(low, high, count)
        rows += [
            (
                person,
                None if kind == 4 and i % 3 == 0 else float(a),
                None if kind == 4 and i % 5 == 0 else int(d),
            )
            for i, (a, d) in enumerate(zip(amounts, day, strict=True))
        ]
    return rows, {p: (None, "n", "s", "w", "?")[p % 5] for p in range(0, people, 1) if p % 7}


def per_unit_cells(table, axes, shape, value):
    """Exact sums of one statistic for each unit: unit -> int64 array; numpy's own way, row by row."""
    keys = ", ".join(f"a{axis}" for axis in axes)
    found = table.relations.raw.connection.execute(
        f"SELECT unit, {keys}, CAST(coalesce(sum({value}), 0) AS BIGINT) FROM {table.rows} GROUP BY ALL"
    ).fetchall()
    cells: dict[int, np.ndarray] = {}
    for unit, *where, total in found:
        cells.setdefault(unit, np.zeros(shape, np.int64))[tuple(where)] = total
    return cells


@dataclass
class Settled:
    """What a table's draws were asked for on the way."""

    drawn: userlevel.DrawnRecipe
    whitening: Whitening
    variances: list[Fraction]
    clip: int


def settle(table, monkeypatch) -> Settled:
    """Settle a table and keep what the engine computed on the way."""
    kept: dict[str, object] = {}
    variances: list[Fraction] = []

    def keep(place, name, take):
        whole = getattr(place, name)

        def kept_too(*arguments):
            found = whole(*arguments)
            take(found, *arguments)
            return found

        monkeypatch.setattr(place, name, kept_too)

    keep(recipe, "whiten", lambda found, *_: kept.update(whitening=found))
    keep(recipe, "make_weights", lambda _, *given: kept.update(clip=given[3]))
    keep(Gaussian, "draw_at", lambda _, law, exact, axes, variance, *rest: variances.append(variance))
    drawn = userlevel.settle_table(table)
    return Settled(drawn, variances=variances, **kept)


def told(table, name: str, column: str) -> dict[int, int]:
    """One number a unit, of a table that the recipe leaves behind."""
    return dict(
        table.relations.raw.connection.execute(f'SELECT unit, {column} FROM "{name} sales"').fetchall()
    )


@pytest.mark.parametrize("days", [12, pytest.param(130, marks=pytest.mark.slow)])
def test_a_thousand_random_customers_stay_within_the_budget(tmp_path, monkeypatch, days):
    """sum over statistics and rows of (W row)^2 / V <= mu^2, in fractions."""
    rows, customers = random_customers(1000, days, days)
    table = open_table(write_star(tmp_path, rows, customers, days=days), seeded(days))
    settled = settle(table, monkeypatch)
    weighted = told(table, "weights", "w")
    assert len(settled.variances) == len(table.statistics)
    spent = dict.fromkeys(weighted, Fraction(0))
    order = [i for group in table.plan.by_view("sales") for i in group]
    for place, i in enumerate(order):
        statistic = table.plan.statistics[i]
        matrices = [
            np.rint(dense(s)).astype(np.int64) * s.budget[:, None] for s in table.plan.strategies(statistic)
        ]
        value = row_value(settled.drawn.statistics[i], table.columns)
        for unit, cells in per_unit_cells(table, statistic.axes, table.plan.shape(statistic), value).items():
            exact = cells.astype(object)
            for axis, matrix in enumerate(matrices):
                exact = np.moveaxis(np.tensordot(matrix.astype(object), exact, axes=(1, axis)), 0, axis)
            squares = int((exact * exact).sum())
            spent[unit] += Fraction(weighted[unit] ** 2 * squares) / settled.variances[place]
    mu2 = sum(s.spend for s in table.statistics.values())
    assert len(weighted) > 900
    assert mu2 * Fraction(98, 100) < max(spent.values()) <= mu2


def test_the_engine_and_python_agree_on_every_weight(tmp_path, monkeypatch):
    """W = floor sqrt(min(U^2 K2 // N, U^2)), the integers that the proof has, clipped and not."""
    rows, customers = uneven_rows(800, 5)
    table = open_table(write_star(tmp_path, rows, customers), ZeroNoise())
    settled = settle(table, monkeypatch)
    drawn, whitening = settled.drawn, settled.whitening
    norms = dict(table.relations.raw.connection.execute('SELECT unit, norm FROM "norms sales"').fetchall())
    again = dict.fromkeys(norms, 0)
    for index, statistic in enumerate(table.plan.statistics):
        value = row_value(drawn.statistics[index], table.columns)
        for unit, cells in per_unit_cells(table, statistic.axes, table.plan.shape(statistic), value).items():
            squares = sum(row_square(int(v), whitening.parts[index].shift) for v in cells.ravel())
            again[unit] += whitening.coefficient[index] * squares
    assert again == norms
    weights = dict(table.relations.raw.connection.execute('SELECT unit, w FROM "weights sales"').fetchall())
    clipped = {u: w for u, w in weights.items() if w < UNIT}
    assert 100 < len(clipped) < 800
    assert weights == {unit: weight_of(norm, settled.clip) for unit, norm in norms.items()}


@pytest.mark.parametrize("delta", ["1e-6", "0"])
@pytest.mark.parametrize("extra", [1, 10, 1000, 10_000])
def test_one_more_customer_changes_nobody_else(tmp_path, extra, delta):
    """With the same released choices, all other weights and all other cells stay as they are."""
    rows, customers = uneven_rows(120, 9)
    victim: list[Row] = [(VICTIM, float(7 + i % 50), 1 + i % 12) for i in range(extra)]
    cells, weights = [], []
    for name, more in (("before", []), ("after", victim)):
        file = write_star(tmp_path, rows + more, customers | {VICTIM: "n"}, delta=delta, name=name)
        table = open_table(file, ZeroNoise())
        table = table.centred({"sales.amount": 1000})
        made = weigh(table)
        weights.append(dict(table.relations.raw.connection.execute(f"SELECT unit, w FROM {made}").fetchall()))
        bound = WeightedRows(table.rows, made)
        found = weighted_cells(table.relations, table.plan, "sales", bound, table.columns)
        cells.append(found.of(*table.plan.statistics[:2]))
    own = weights[1].pop(VICTIM)
    assert weights[0] == weights[1]
    count, total = (after - before for before, after in zip(*cells, strict=True))
    assert count.sum() == own * extra
    if delta == "0":
        limit = pure_bound(8, 9000, spread(1000, 0, 10000))
        assert count.sum() <= UNIT * 8
        assert np.abs(total).sum() <= UNIT * limit


def weigh(table):
    """The weights that given choices lead to: tau 8, and a given K under zCDP."""
    if table.law == LAPLACE:
        limit = pure_bound(8, 9000, spread(1000, 0, 10000))
        value = f"{table.columns['sales.amount']} - (1000)"
        return make_pure_weights(table.relations, table.rows, "sales", 8, [(value, limit)])
    whitening = whiten(recipe.whitened_parts(table, 8))
    norms = make_norms(table.relations, table.rows, "sales", recipe.norm_views(table), whitening)
    return make_weights(table.relations, norms, "sales", 1 << whitening.point)


def test_coefficients_are_rounded_up():
    parts = [
        WhitenedStatistic(Fraction(1, 3), Fraction(10**13, 7)),
        WhitenedStatistic(Fraction(2, 3), Fraction(11), 1 << 15),
    ]
    whitening = whiten(parts)
    for part, coefficient in zip(parts, whitening.coefficient, strict=True):
        exact = part.share * (1 << part.shift) * (1 << whitening.point) / (part.typical * part.total**2)
        assert exact <= coefficient < exact + 1
        assert coefficient >= 1 << 12


def test_a_row_that_is_cut_leaves_its_owner_out():
    for typical in (Fraction(3), Fraction(10**12)):
        whitening = whiten([WhitenedStatistic(Fraction(1), typical, 1 << 15)])
        largest = whitening.largest_row(0)
        assert whitening.coefficient[0] * row_square(largest, whitening.parts[0].shift) >= LARGEST_NORM


OWNED = (1, 3, 40)
WORTH = (0, 7, -900)
"""Rows of a unit, and what each of them is worth around the centre."""


def pure_weights(
    relations: StoredRelations, units: list[tuple[int, int, int]]
) -> dict[int, tuple[int, int, int]]:
    """W of each unit with its rows and sum of sizes, as the engine finds them."""
    rows = [(unit, (unit + i) % 4, y) for unit, n, y in units for i in range(n)]
    connection = relations.raw.connection
    connection.execute("CREATE OR REPLACE TEMP TABLE placed (unit INT, a0 INT, m0 BIGINT)")
    connection.executemany("INSERT INTO placed VALUES (?, ?, ?)", rows)
    made = make_pure_weights(relations, "placed", "sales", 2, [("m0", 500)])
    found = connection.execute(f"SELECT unit, w FROM {made}").fetchall()
    return {unit: (w, n, n * abs(y)) for (unit, w), (_, n, y) in zip(sorted(found), units, strict=True)}


def test_one_of_three_units_moves_pure_views_by_their_bounds_at_most():
    """Every three units with few or many rows, cheap or dear ones, with and without one of them."""
    relations, tight = StoredRelations(no_sources(), "testing"), {"rows": 0.0, "sums": 0.0}
    kinds = list(product(OWNED, WORTH))
    for world in product(kinds[::2], kinds[1::2], kinds[4:5]):
        units = [(i, *kind) for i, kind in enumerate(world)]
        every = pure_weights(relations, units)
        for w, n, size in every.values():
            assert w == pure_weight(n, [size], 2, [500])
            assert w * n <= 2 * UNIT and w * size <= 500 * UNIT
            tight["rows"] = max(tight["rows"], w * n / (2 * UNIT))
            tight["sums"] = max(tight["sums"], w * size / (500 * UNIT))
        without = pure_weights(relations, units[1:])
        assert {unit: every[unit] for unit in without} == without
    assert min(tight.values()) > 0.999


@pytest.mark.parametrize("seed", [3, 4])
def test_pure_weights_of_a_table_are_the_integers_that_the_proof_has(tmp_path, monkeypatch, seed):
    rows, customers = random_customers(300, seed, 12)
    table = open_table(write_star(tmp_path, rows, customers, delta="0"), seeded(seed))
    kept: dict[str, tuple] = {}
    whole = recipe.make_pure_weights

    def kept_too(*arguments):
        kept["given"] = arguments
        return whole(*arguments)

    monkeypatch.setattr(recipe, "make_pure_weights", kept_too)
    userlevel.settle_table(table)
    _, _, _, tau, bounds = kept["given"]
    sizes = table.relations.raw.connection.execute('SELECT unit, n, y0 FROM "sizes sales"').fetchall()
    weights = told(table, "weights", "w")
    for unit, n, size in sizes:
        assert weights[unit] == pure_weight(n, [size], tau, [bound for _, bound in bounds])
