"""Whole releases: what they look like never depends on one customer, and odd data give typed results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.central.placed_rows import row_value
from dpsql.contributions import recipe, statements
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
from dpsql.errors import CatalogError, ProgrammingError
from dpsql.executor.engine import ReleaseEngine
from dpsql.ledger.store import budget_report
from dpsql.mechanisms.distribution import LAPLACE, Gaussian
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy
from dpsql.planner.notes import _hidden
from tests import releases
from tests.releases import seeded
from tests.strategies import dense
from tests.thinned import by_default
from tests.twins import pure_weight, row_square, weight_of
from tests.userlevel_star import Row, open_table, uneven_rows, write_star

ASKED = "SELECT COUNT(*), SUM(amount), AVG(amount) FROM sales"


def published(folder, rows, customers, noise=None, **options) -> ReleaseEngine:
    catalog = write_star(folder, rows, customers, **options)
    return releases.published(catalog, noise or seeded(4), options.get("name", "shop"))


@pytest.mark.parametrize("delta", by_default(["1e-6", "0"], 1))
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("nobody", []),
        ("no_owner", [(None, 5.0, 3)] * 50),
        ("one_customer", [(1, 5.0, 3)] * 5000),
        ("dangling", [(77, 5.0, 3), (78, None, None), (79, float("nan"), 99)]),
        ("infinite", [(1, float("inf"), 3), (2, float("-inf"), 3), (3, 1e300, -7)]),
    ],
)
def test_odd_data_publish_and_answer(tmp_path, name, rows, delta):
    answerer = published(tmp_path, rows, {1: "n", 2: None}, delta=delta, name=name)
    count, total, mean = answerer.query(ASKED).rows[0]
    scale = answerer.release.scales["sales"]
    assert all(own.factor >= 1.0 for own in scale.measures) and scale.tau >= 1
    assert math.isfinite(count) and math.isfinite(total)
    assert mean is None or math.isfinite(mean)
    assert (
        len(answerer.query("SELECT region, COUNT(*) FROM sales JOIN customer USING (id) GROUP BY 1").rows)
        >= 3
    )


def test_every_line_is_charged_and_they_add_up(tmp_path):
    rows, customers = uneven_rows(40, 2)
    answerer = published(tmp_path, rows, customers)
    lines = answerer.release.meta.spends
    spends = {purpose: amount for purpose, amount, _ in lines}
    assert len(spends) == len(lines) and not any(Fraction(delta) for *_, delta in lines)
    assert len(spends) == 5 + 4
    assert {"sales: rows per unit", "sales: norms per unit", "view days: count"} <= set(spends)
    mu2 = Fraction(answerer.release.meta.privacy.mu2)
    assert sum(map(Fraction, spends.values())) == mu2
    assert Fraction(spends["sales: rows per unit"]) == mu2 * Fraction(25, 1000)
    views = (Fraction(amount) for purpose, amount in spends.items() if purpose.startswith("view "))
    assert sum(views) == mu2 * Fraction(79, 100)
    report = budget_report(tmp_path / ".dpsql" / "ledger.duckdb")
    assert report.lineages


def test_without_noise_equal_customers_are_answered_exactly(tmp_path):
    """Everybody owns one row in each of six cells: no bin beyond shows anybody, so nothing is put back."""
    rows: list[Row] = [(person, 10.0 + day, 2 * day) for person in range(2000) for day in range(1, 7)]
    answerer = published(tmp_path, rows, {p: "nsw"[p % 3] for p in range(2000)}, noise=ZeroNoise())
    scale = answerer.release.scales["sales"]
    assert scale.measure("").factor == pytest.approx(1.0, abs=1e-3)
    by_day = answerer.query("SELECT day, COUNT(*), SUM(amount), AVG(amount) FROM sales GROUP BY 1").rows
    found = {day: values for day, *values in by_day if day is not None}
    for day in range(1, 7):
        count, total, mean = found[2 * day]
        assert count == pytest.approx(2000, rel=0.01)  # what a clip leaves out is read off bins
        assert total == pytest.approx(2000 * (10 + day), rel=0.01)
        assert mean == pytest.approx(10 + day, rel=0.01)
    assert found[1][0] == pytest.approx(0, abs=1e-6)


def test_public_rows_are_told_exactly_and_said(tmp_path):
    rows, customers = uneven_rows(800, 3)
    answerer = published(tmp_path, rows, customers, public_rows=True)
    assert answerer.release.meta.privacy.rows == "public"
    assert answerer.release.scales["sales"].public_rows
    assert answerer.query("SELECT COUNT(*) FROM sales").scalar() == pytest.approx(len(rows), rel=1e-6)
    assert not any("total rows" in purpose for purpose, *_ in answerer.release.meta.spends)


def test_a_nullable_measure_has_its_own_count(tmp_path):
    rows, customers = uneven_rows(900, 6)
    half: list[Row] = [(p, a if i % 2 else None, d) for i, (p, a, d) in enumerate(rows)]
    answerer = published(tmp_path, half, customers, nullable=True, noise=ZeroNoise())
    every, some = answerer.query("SELECT COUNT(*), COUNT(amount) FROM sales").rows[0]
    assert some / every == pytest.approx(0.5, abs=0.03)


def test_what_was_counted_and_left_out_is_told(tmp_path):
    rows, customers = uneven_rows(3000, 7)
    answerer = published(tmp_path, rows, customers)
    scale = answerer.release.scales["sales"]
    notes = " ".join(answerer.query("SELECT COUNT(*) FROM sales").notes)
    counted = f"sales: at most {scale.tau} rows per customer were counted and scaled up: counts by"
    assert (
        f"{counted} {scale.measure('').factor:.2f} (+- " in notes
        and "that error is shared by all groups" in notes
    )
    owned = np.bincount([row[0] for row in rows])
    assert np.sum(owned > scale.unseen_above) <= scale.unseen
    assert [own.measure for own in scale.measures] == ["", "sales.amount"]
    for own in scale.measures:
        assert own.factor > 1.1 and 0 < own.left_out < 1
        assert 0 < own.error.noise <= min(own.error.down, own.error.up) < 0.5


def test_a_view_without_a_count_is_refused(tmp_path):
    file = write_star(tmp_path, [], {})
    file.write_text(file.read_text().replace("{count: 0.55, sales.amount: 0.45}", "[count(sales.amount)]", 1))
    with pytest.raises(CatalogError, match="count"):
        publish_release(load_catalog(file), tmp_path / "x.dpsql", noise=ZeroNoise(), key=bytes(32))


@pytest.fixture(scope="module")
def uneven(tmp_path_factory) -> ReleaseEngine:
    return published(tmp_path_factory.mktemp("uneven"), *uneven_rows(3000, 8))


def test_answers_tell_noise_scale_spread_and_tail_apart(uneven):
    scale = uneven.release.scales["sales"]
    parts = ", ".join(
        f"DP_STDERR(COUNT(*), '{part}') AS {part}" for part in ("noise", "scale", "spread", "tail")
    )
    result = uneven.query(
        f"SELECT region, COUNT(*) AS c, SUM(amount) AS s, AVG(amount) AS a, DP_BIAS_HINT(COUNT(*)) AS hint, "
        f"DP_STDERR(COUNT(*)) AS e, {parts} FROM sales JOIN customer USING (id) GROUP BY 1"
    )
    first = result.rows[0]
    assert first[4] == scale.measure("").left_out
    ends = [each[0][1] for each in result.interval_rows(0.95)]
    assert first[5] == result.stderr_rows[0][1] == pytest.approx((ends[1] - ends[0]) / (2 * 1.959964))
    assert first[5] >= math.hypot(*first[6:9])
    told = {name: grid[0][1:4] for name, grid in result.components.items()}
    assert first[6:10] == tuple(told[name][0] for name in ("noise", "scale", "spread", "tail"))
    for place, name in enumerate(("", "sales.amount")):
        assert told["scale"][place] == pytest.approx(abs(first[1 + place]) * scale.measure(name).error.noise)
    assert told["scale"][2] == pytest.approx(first[3] * scale.measure("sales.amount").mean_error.noise)
    low, high = result.interval_rows(0.95)
    for column in (1, 2, 3):
        noise, common, spread, tail = (
            told[name][column - 1] for name in ("noise", "scale", "spread", "tail")
        )
        least = 1.96 * math.sqrt(noise**2 + common**2 + spread**2)
        below, above = first[column] - low[0][column], high[0][column] - first[column]
        assert least <= min(below, above) * 1.001
        assert 1.96 * tail * 0.999 <= (below + above) / 2 <= (least + 1.96 * tail) * 1.001
    assert any(f"counts by {scale.measure('').factor:.2f}" in line for line in result.plan)
    with pytest.raises(ProgrammingError, match="one of 'noise', 'channel', 'scale', 'spread', 'tail'"):
        uneven.query("SELECT DP_STDERR(COUNT(*), 'size') FROM sales")


def test_a_total_has_no_noise_of_its_own_and_a_share_no_scale(uneven):
    total = uneven.query("SELECT COUNT(*), SUM(amount), AVG(amount) FROM sales").components
    for part in ("noise", "spread"):
        assert all(error < 1e-6 * 900 for error in total[part][0]), part
    assert all(error > 0 for part in ("scale", "tail") for error in total[part][0])
    share = uneven.query("SELECT COUNT(*) FILTER (WHERE day < 4) / COUNT(*) FROM sales").components
    assert share["scale"][0][0] == pytest.approx(0, abs=1e-9)
    assert share["noise"][0][0] > 0 and share["spread"][0][0] > 0
    both = uneven.query(
        "SELECT COUNT(*) FILTER (WHERE day < 9) - COUNT(*) FILTER (WHERE day < 4), "
        "COUNT(*) FILTER (WHERE day BETWEEN 4 AND 8) FROM sales"
    )
    for name, grid in both.components.items():
        exact = name not in ("spread", "tail")  # what is not measured is a bound for each question by itself
        assert grid[0][0] == pytest.approx(grid[0][1], rel=1e-6 if exact else 0.1), name


@pytest.mark.parametrize(("up", "words"), [(0.0021, "0.41%"), (0.06, "12%"), (0.6, "120%")])
def test_what_noise_may_hide_has_two_digits(up: float, words: str):
    """ "More than 0% of the rows" said that any row that is hidden is missing."""
    measure = SimpleNamespace(error=SimpleNamespace(up=up))
    scale = SimpleNamespace(of="sales", unseen=570, unseen_above=16, rows=5000, measure=lambda name: measure)
    (line,) = _hidden(scale, "customer")
    assert f"more than {words} of all rows" in line


def uneven_regions(least: int, most: int) -> tuple[list[Row], dict[int, str | None]]:
    """Customers of `s` own about ten times as many rows as the others; one common factor cannot know."""
    rng = np.random.default_rng(5)
    owned = rng.integers(least, most + 1, 3000)
    rows: list[Row] = [
        (person, 10.0, int(day))
        for person in range(3000)
        for day in rng.integers(1, 13, owned[person] if person % 3 == 1 else 6)
    ]
    return rows, {person: "nsw"[person % 3] for person in range(3000)}


BY_REGION = "SELECT region, COUNT(*) FROM sales JOIN customer USING (id) GROUP BY 1"


@pytest.mark.parametrize(
    ("delta", "least", "most"),
    [
        ("1e-6", 30, 90),
        ("0", 30, 90),
        ("1e-6", 60, 60),
        # nobody between 7 and 59 rows, and all of a bin at 60: where inside of a bin its people are, no bin shows
        ("0", 60, 60),
    ],
)
def test_intervals_cover_groups_that_own_more(tmp_path, delta, least, most):
    rows, customers = uneven_regions(least, most)
    heavy = sum(person % 3 == 1 for person, *_ in rows)
    answerer = published(tmp_path, rows, customers, ExactNoise(insecure_test_entropy(3)), delta=delta)
    result = answerer.query(BY_REGION)
    low, high = result.interval_rows(0.99)
    for row, below, above in zip(result.rows, low, high, strict=True):
        true = {"s": heavy, None: 0, "(other)": 0}.get(row[0], 6000)
        assert below[1] <= true <= above[1], row
    tables = answerer.release.connection.cursor().execute("SELECT table_name FROM duckdb_tables()").fetchall()
    assert not any(name.startswith("difference") for (name,) in tables)


# The joint whitened clip in exact arithmetic: whatever one customer owns, her change is within the bound.


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


def kept(monkeypatch, place, name) -> list[tuple[Any, tuple[Any, ...]]]:
    """What a function returns and is given, call by call, from now on."""
    whole, calls = getattr(place, name), []

    def kept_too(*arguments):
        calls.append((whole(*arguments), arguments))
        return calls[-1][0]

    monkeypatch.setattr(place, name, kept_too)
    return calls


def settle(table, monkeypatch) -> Settled:
    """Settle a table and keep what the engine computed on the way."""
    whitenings, weights = (kept(monkeypatch, statements, name) for name in ("whiten", "make_weights"))
    draws = kept(monkeypatch, Gaussian, "draw_at")
    drawn = userlevel.settle_table(table)
    variances = [given[3] for _, given in draws]
    return Settled(drawn, whitenings[-1][0], variances, weights[-1][1][3])


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
    norms = told(table, "norms", "norm")
    again = dict.fromkeys(norms, 0)
    for index, statistic in enumerate(table.plan.statistics):
        value = row_value(drawn.statistics[index], table.columns)
        for unit, cells in per_unit_cells(table, statistic.axes, table.plan.shape(statistic), value).items():
            squares = sum(row_square(int(v), whitening.parts[index].shift) for v in cells.ravel())
            again[unit] += whitening.coefficient[index] * squares
    assert again == norms
    weights = told(table, "weights", "w")
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
    calls = kept(monkeypatch, statements, "make_pure_weights")
    userlevel.settle_table(table)
    *_, tau, bounds = calls[-1][1]
    sizes = table.relations.raw.connection.execute('SELECT unit, n, y0 FROM "sizes sales"').fetchall()
    weights = told(table, "weights", "w")
    for unit, n, size in sizes:
        assert weights[unit] == pure_weight(n, [size], tau, [bound for _, bound in bounds])
