"""95% intervals hold the answer on the bounded rows in 93-97% of independent releases, through the whole SQL path.

The catalog measures no rows beyond `max_ids`, so that an interval is that of the noise alone.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import duckdb
import numpy as np
import pytest

from benchmarks.baselines.common import SimulationNoise
from benchmarks.coverage import redrawn
from dpsql.catalog import load_catalog
from dpsql.matrices.blocks import BlockVariance
from dpsql.mechanisms.axis import auto_strategy
from dpsql.mechanisms.designs import blocks
from dpsql.mechanisms.designs.adaptive import ADAPTIVE
from dpsql.mechanisms.designs.blocks import Blocks
from dpsql.mechanisms.designs.diffhr import DIFFHR
from dpsql.mechanisms.designs.measurement import DrawnMember, DrawParameters
from dpsql.mechanisms.designs.question import FamilyAxis, Grains
from dpsql.mechanisms.distribution import LAPLACE
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy
from tests.thinned import by_default

CATALOG = """
dpsql: 1
name: clinic
source: {{kind: parquet, root: "{root}", tables: {{visit: visit.parquet, person: person.parquet}}}}
privacy: {{lineage: clinic, cap: 10, unit: person.id, epsilon: 2.0, delta: {delta}}}
tables:
  person: {{role: dimension, key: id, private: true, columns: {{
    age: {{type: int, lower: 0, upper: 99, cuts: {{width: 10}}}},
    ward: {{type: string, categories: [a, b, c], nullable: true}}}}}}
  visit: {{role: fact, foreign_keys: {{id: person}}, max_ids: 3, clipped_share: 0, columns: {{
    cost: {{type: int, lower: 0, upper: 40, measure: true}}, day: {{type: int, lower: 1, upper: 12}}}}}}
views:
  who: {{of: visit, axes: [person.age, person.ward], measures: {{count: 0.5, visit.cost: 0.5}},
    share: 0.5, mechanism: {mechanism}}}
  when: {{of: visit, axes: [visit.day, person.ward], measures: {{count: 0.5, visit.cost: 0.5}},
    share: 0.5, mechanism: {mechanism}}}
"""

JOIN = "FROM visit JOIN person USING (id)"
WHERE = [
    "FROM visit", JOIN, f"{JOIN} WHERE age < 50", f"{JOIN} WHERE age BETWEEN 20 AND 69", f"{JOIN} WHERE ward = 'b'",
    f"{JOIN} WHERE ward IN ('a', 'c') AND age >= 30", f"{JOIN} WHERE NOT age BETWEEN 40 AND 59",
    "FROM visit WHERE day <= 6", "FROM visit WHERE day BETWEEN 4 AND 9", f"{JOIN} WHERE day > 2 AND ward = 'a'",
    f"{JOIN} WHERE ward IS NULL OR ward = 'c'", "FROM visit WHERE day IN (1, 3, 5, 7, 9, 11)",
]  # fmt: skip
RELEASES = 200


CASES = [("0", "auto"), ("1e-6", "auto"), ("1e-6", "residual")]


@pytest.fixture(scope="module", params=by_default([(case,) for case in CASES], 2), ids=str)
def clinic(request, tmp_path_factory):
    """A plan and exact cells of a small star, and a way to turn draws into an Answerer."""
    folder = tmp_path_factory.mktemp("clinic")
    db = duckdb.connect()
    db.execute("SELECT setseed(0.5)")
    db.execute(
        f"COPY (SELECT i AS id, (random() * 99)::INT AS age, "
        f"CASE WHEN random() < .1 THEN NULL ELSE chr(97 + (random() * 2)::INT) END AS ward "
        f"FROM range(6000) t(i)) TO '{folder}/person.parquet'"
    )
    db.execute(
        f"COPY (SELECT (random() * 5999)::INT AS id, (random() * 40)::INT AS cost, (1 + random() * 11)::INT AS day "
        f"FROM range(15000)) TO '{folder}/visit.parquet'"
    )
    file = folder / "clinic.yaml"
    file.write_text(CATALOG.format(root=folder, delta=request.param[0], mechanism=request.param[1]))
    return redrawn(load_catalog(file), folder)


@pytest.mark.parametrize("aggregate", by_default(["AVG(cost)", "COUNT(*)", "SUM(cost)"], 1))
def test_nothing_is_asserted_without_signal(clinic, aggregate):
    """The questions below all have enough signal for an interval."""
    answerer = clinic(ExactNoise(insecure_test_entropy(1)), f"signal {aggregate}.dpsql")
    for where in WHERE:
        low, high = answerer.query(f"SELECT {aggregate} {where}").interval(0.95)
        assert low.iloc[0, 0] < high.iloc[0, 0]


def answers(answerer, sql):
    """Values, standard errors and whether 95% intervals are there, one array a statement."""
    result = answerer.query(sql)
    low, high = result.interval(0.95)
    return np.array([result.rows[0], low.iloc[0], high.iloc[0]], float)


def cover(redraw, statements, releases, noise):
    """By column the share of intervals that hold the exact answer, and squared errors over squared half-intervals."""
    exact = redraw(ZeroNoise(), f"zero{len(statements)}.dpsql")
    truths = [answers(exact, sql)[0] for sql in statements]
    held, errors = [], []
    for i in range(releases):
        answerer = redraw(noise, f"r{len(statements)}-{i}.dpsql")
        for sql, truth in zip(statements, truths, strict=True):
            value, low, high = answers(answerer, sql)
            held.append((low <= truth) & (truth <= high))
            errors.append(((value - truth) / ((high - low) / 3.92)) ** 2)
        answerer.release.close()
    return np.mean(held, axis=0), np.mean(errors, axis=0)


@pytest.mark.slow
@pytest.mark.timeout(900)  # hundreds of releases
def test_intervals_cover(clinic):
    statements = [f"SELECT COUNT(*), SUM(cost), AVG(cost) {where}" for where in WHERE]
    held, _ = cover(clinic, statements, RELEASES, ExactNoise(insecure_test_entropy(20251121)))
    assert np.all((held >= 0.93) & (held <= 0.97)), held


# Data-dependent views: their variance model against many draws, and their parts against their epsilon.


STEPS = np.repeat([40, 900, 40, 3000], [14, 6, 8, 4]).astype(np.int64)
"""Cells whose groups are the same in nearly every draw, so that what is left is noise."""


@pytest.mark.parametrize("method", [DIFFHR, ADAPTIVE])
def test_parts_make_up_the_whole(method):
    assert sum(share for _, share in method.parts) == 1


@pytest.mark.parametrize(("method", "least"), [(DIFFHR, 0.3), (ADAPTIVE, 0.7)])
def test_predicted_variance_is_that_of_many_draws(method, least):
    """Where groups hold equal cells there is no bias, and the model is the whole error; DiffHR's is an upper bound."""
    noise = ExactNoise(insecure_test_entropy(8))
    masks = np.random.default_rng(1).random((4, len(STEPS))) < 0.5
    errors, predicted = [], []
    for _ in range(200):
        view = method.sample(STEPS, Fraction(1), 2, noise)
        errors.append(masks @ (view.leaves - STEPS))
        predicted.append(view.variance_at_unit_budget * view.model.quadratic(masks))
    ratio = np.mean(np.square(errors), axis=0) / np.mean(predicted, axis=0)
    assert np.all((ratio > least) & (ratio < 1.4)), ratio


@pytest.mark.parametrize("method", [DIFFHR, ADAPTIVE])
def test_shapes_and_the_noiseless_case(method):
    view = method.sample(STEPS, Fraction(1), 1, ZeroNoise())
    assert view.value.shape == view.budget.shape
    assert view.leaves.sum() == pytest.approx(STEPS.sum())
    assert np.allclose(view.leaves, STEPS)
    assert method.biased == (method != ADAPTIVE)
    assert view.model.n == len(STEPS)


# 95% intervals of blocks hold the exact number of rows in random rectangles, on planes that nothing was tuned on.


LEAVES, BLOCKS_RELEASES, ASKED = 96, 30, 300
Rng = np.random.Generator


def discs(rng: Rng) -> np.ndarray:
    x, y = np.indices((LEAVES, LEAVES))
    plane = rng.poisson(0.01, x.shape)
    for _ in range(4):
        a, b, radius = [*rng.integers(0, LEAVES, 2).tolist(), int(rng.integers(3, 12))]
        plane[(x - a) ** 2 + (y - b) ** 2 <= radius**2] += rng.integers(1, 30)
    return plane


def heavy_cells(rng: Rng) -> np.ndarray:
    plane = np.zeros((LEAVES, LEAVES), np.int64)
    plane[tuple(rng.integers(0, LEAVES, (2, 150)))] = rng.integers(1, 300, 150)
    return plane


def ridge(rng: Rng) -> np.ndarray:
    x, y = np.indices((LEAVES, LEAVES))
    return rng.poisson(8 * np.exp(-(((x - y + rng.integers(-20, 20)) / 4) ** 2)))


def rectangles(rng: Rng) -> list[np.ndarray]:
    ends = np.sort(rng.integers(0, LEAVES + 1, (2, 2 * ASKED, 2)), axis=-1)
    ends = ends[:, np.all(ends[..., 0] < ends[..., 1], axis=0)][:, :ASKED]
    leaf = np.arange(LEAVES)
    return [((leaf >= each[:, :1]) & (leaf < each[:, 1:])).astype(float) for each in ends]


@pytest.mark.parametrize(
    ("make", "epsilon"), by_default(product([discs, heavy_cells, ridge], [Fraction(1, 10), Fraction(1)]), 1)
)
def test_intervals_hold_rectangles_of_planes_nothing_was_tuned_on(make, epsilon, monkeypatch):
    monkeypatch.setattr(blocks, "MOST_LOUD", 2.0)  # blocks, however many of them are loud
    axis = FamilyAxis("x", LEAVES, None, Grains(1, 1))
    measured = Blocks((axis, axis), 1e9)
    terms = DrawParameters([auto_strategy(LEAVES).strategy] * 2, LAPLACE, epsilon, 1)
    held = []
    for seed in range(BLOCKS_RELEASES):
        rng = np.random.default_rng(seed)
        plane, asked = make(rng).astype(np.int64), rectangles(rng)
        drawn = measured.draw(plane, terms, SimulationNoise(1000 + seed))
        own = measured.settled(drawn)
        model = own.facts.model
        assert isinstance(model, BlockVariance)
        leaves = own.estimate([DrawnMember((), drawn)], {})[0].leaves
        wrong = np.einsum("ga,ab,gb->g", asked[0], leaves - plane, asked[1])
        stated = model.covariance(asked)
        held.append(np.mean(np.abs(wrong) <= 1.96 * np.sqrt(stated.noise + stated.within_leaf)))
    mean, error = np.mean(held), np.std(held) / BLOCKS_RELEASES**0.5
    assert mean >= 0.95 - 3 * error, (mean, error)


# Statements over counts of all rows and of rows with a value: they err together, and their intervals say so.


NULLS_CATALOG = """
dpsql: 1
name: flights
source: {{kind: parquet, root: "{root}", tables: {{flight: flight.parquet}}}}
privacy: {{lineage: flights, cap: 10, unit: row, epsilon: 0.75, delta: 0}}
tables:
  flight: {{role: fact, columns: {{
    hour: {{type: int, lower: 0, upper: 23}}, day: {{type: int, lower: 1, upper: 12}},
    carrier: {{type: string, categories: [a, b, c], out_of_domain: drop}},
    delay: {{type: int, lower: -20, upper: 60, measure: true, nullable: true}},
    miles: {{type: int, lower: 0, upper: 9, measure: true}}}}}}
views:
  alone: {{of: flight, axes: [flight.hour, flight.carrier], measures: [count, flight.delay]}}
  beside: {{of: flight, axes: [flight.day, flight.carrier], measures: [count, flight.miles, flight.delay]}}
  rows: {{of: flight, axes: [flight.carrier], measures: [count]}}
"""
FLIGHTS = """
COPY (SELECT (random() * 23)::INT AS hour, (1 + random() * 11)::INT AS day, chr(97 + (random() * 2)::INT) AS carrier,
  CASE WHEN random() < .2 THEN NULL ELSE (random() * 80 - 20)::INT END AS delay, (random() * 9)::INT AS miles
FROM range(20000)) TO '{}/flight.parquet'
"""
NULLS_WHERE = ("", "WHERE hour < 9", "WHERE hour BETWEEN 3 AND 20", "WHERE carrier = 'b'", "WHERE day > 4",
         "WHERE day = 7 AND carrier <> 'a'", "WHERE hour = 5")  # fmt: skip
COLUMNS = (
    "COUNT(*)", "COUNT(delay)", "SUM(delay)", "AVG(delay)", "COUNT(*) - COUNT(delay)", "COUNT(*) + COUNT(delay)",
    "CAST(COUNT(delay) AS DOUBLE) / COUNT(*)", "1 - COUNT(delay) * 1.0 / COUNT(*)",
)  # fmt: skip
STATEMENTS = [f"SELECT {', '.join(COLUMNS)} FROM flight {where}" for where in NULLS_WHERE]
ACROSS = (
    "SELECT h.n - d.m AS apart FROM (SELECT COUNT(*) AS n FROM flight WHERE {0} carrier = 'b') AS h, "
    "(SELECT COUNT(delay) AS m FROM flight WHERE day < 9 AND carrier = 'b') AS d"
)


@pytest.fixture(scope="module")
def flights(tmp_path_factory):
    """A way to turn draws into an Answerer, over one set of cells."""
    folder = tmp_path_factory.mktemp("flights")
    with duckdb.connect() as db:
        db.execute("SELECT setseed(0.3)")
        db.execute(FLIGHTS.format(folder))
    file = folder / "flights.yaml"
    file.write_text(NULLS_CATALOG.format(root=folder))
    return redrawn(load_catalog(file), folder)


def test_errors_over_both_counts_use_their_covariance(flights):
    """COUNT(*) - COUNT(x) is the number of rows with NULL, drawn alone."""
    answerer = flights(ZeroNoise(), "exact.dpsql")
    sql = (
        "SELECT DP_STDERR(COUNT(*) - COUNT(delay), 'noise') AS d, DP_STDERR(COUNT(*) + COUNT(delay), 'noise') AS s, "
        "DP_STDERR(COUNT(delay), 'noise') AS x, DP_STDERR(COUNT(*), 'noise') AS n, "
        "DP_STDERR(COUNT(delay) * 1.0 / COUNT(*), 'noise') AS share, "
        "COUNT(*) AS rows, COUNT(delay) AS present FROM flight WHERE hour = 5 AND carrier = 'a'"
    )
    d, s, x, n, share, rows, present = map(float, answerer.query(sql).rows[0])
    assert d**2 + s**2 == pytest.approx(2 * (x**2 + n**2))
    covariance = (s**2 - d**2) / 4
    # of one view it would be the variance of COUNT(x); rows are averaged
    assert 0.9 < covariance / x**2 <= 1.0001
    part = present / rows
    assert (share * rows) ** 2 == pytest.approx(x**2 - 2 * part * covariance + part**2 * n**2)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # hundreds of releases
@pytest.mark.parametrize(
    ("statements", "releases", "seed", "most", "errors_within"),
    [
        (STATEMENTS, 200, 20261127, 0.02, (0.75, 1.1)),
        # rows of one view less values of another: they share what the views agree on
        (
            [ACROSS.format(where) for where in ("", "hour < 9 AND", "hour > 2 AND")],
            300,
            20261128,
            0.03,
            (0.7, 1.25),
        ),
    ],
    ids=["both counts", "two views"],
)
def test_intervals_over_counts_of_rows_and_of_values_cover(
    flights, statements, releases, seed, most, errors_within
):
    held, errors = cover(flights, statements, releases, ExactNoise(insecure_test_entropy(seed)))
    assert np.all(np.abs(held - 0.95) <= most + 1e-9), held
    assert np.all((errors >= errors_within[0]) & (errors <= errors_within[1])), errors
