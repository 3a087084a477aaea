"""95% intervals hold the answer on the bounded rows in 93-97% of independent releases, through the whole SQL path.

The catalog measures no rows beyond `max_ids`, so that an interval is that of the noise alone.
"""

from __future__ import annotations

import duckdb
import pytest

from benchmarks.coverage import redrawn
from dpsql.catalog import load_catalog
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


@pytest.fixture(scope="module", params=CASES, ids=str)
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


@pytest.mark.slow
@pytest.mark.timeout(900)  # hundreds of releases
def test_intervals_cover(clinic):
    sql = [f"SELECT COUNT(*), SUM(cost), AVG(cost) {where}" for where in WHERE]
    exact_release = clinic(ZeroNoise(), "exact.dpsql")
    exact = [[float(v) for v in exact_release.query(q).rows[0]] for q in sql]
    held = [0, 0, 0]
    noise = ExactNoise(insecure_test_entropy(20251121))
    for i in range(RELEASES):
        answerer = clinic(noise, f"r{i}.dpsql")
        for q, truth in zip(sql, exact, strict=True):
            low, high = answerer.query(q).interval(0.95)
            for column in range(3):
                held[column] += bool(low.iloc[0, column] <= truth[column] <= high.iloc[0, column])
        answerer.release.close()
    rates = [count / (RELEASES * len(sql)) for count in held]
    assert all(0.93 <= rate <= 0.97 for rate in rates), rates
