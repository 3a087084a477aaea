"""Sums that 64 bits do not hold at 2^-20: estimates are stored in a coarser step, and what was cut is not answered."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from dpsql import api
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.errors import NotSupportedError
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ExactNoise, os_entropy
from dpsql.release import open_release
from tests.releases import failed, write_tables
from tests.thinned import by_default

CATALOG = """
dpsql: 1
name: pay
source: {{kind: parquet, root: ., tables: {{pay: pay.parquet, person: person.parquet}}}}
privacy: {{lineage: pay, cap: 100, epsilon: 20, unit: {unit}, delta: {delta}}}
tables:
  person: {{role: dimension, key: id, private: true, columns: {{part: {{type: int, lower: 0, upper: 2}}}}}}
  pay: {{role: fact, {bound}foreign_keys: {{person_id: person}}, columns: {{
    hour: {{type: int, lower: 0, upper: 3}},
    amount: {{type: decimal, scale: 6, lower: -{most}, upper: {most}, measure: true, nullable: true}}}}}}
views:
  hours: {{of: pay, axes: [pay.hour], measures: [count, pay.amount]}}
  parts: {{of: pay, axes: [person.part, pay.hour], measures: [count, pay.amount]}}
"""
STEPS = "SELECT hour, SUM(amount) AS total, AVG(amount) AS mean FROM pay GROUP BY hour ORDER BY hour"


PEOPLE = 3000


def publish(
    folder: Path, delta: str, unit: str = "row", bound: str = "", most: int = 200_000, people: int = PEOPLE
) -> tuple[Path, Path]:
    """People, each with one amount near the lower bound."""
    tables = {
        "person": f"SELECT i AS id, i % 3 AS part FROM range({people}) t(i)",
        "pay": f"SELECT i AS person_id, i % 4 AS hour, CASE WHEN i % 5 > 0 THEN ({9 - most} + i % 9)::DECIMAL(18, 6) "
        f"END AS amount FROM range({people}) t(i)",
    }
    write_tables(folder, tables)
    catalog, target = folder / "pay.yaml", folder / "pay.dpsql"
    catalog.write_text(CATALOG.format(unit=unit, delta=delta, bound=bound, most=most))
    publish_release(load_catalog(catalog), target, noise=ExactNoise(os_entropy()), key=bytes(range(32)))
    return catalog, target


@pytest.mark.parametrize("delta", by_default(["0", "1e-6"], 1))
def test_sums_beyond_64_bits_at_full_digits_are_right(delta: str, tmp_path: Path, publishes: None) -> None:
    catalog, target = publish(tmp_path, delta)
    with closing(open_release(target)) as release:
        assert {s.step > 1 for s in release.statistics if s.measure == "pay.amount"} == {True}
        assert {s.step for s in release.statistics if s.measure == "count"} == {1}
    truth = duckdb.sql(STEPS.replace("FROM pay", f"FROM '{tmp_path}/pay.parquet'")).fetchall()
    answer = api.query(STEPS, release=target)
    shown = [pair for pair in zip(answer.rows, answer.stderr_rows, strict=True) if pair[0][0] is not None]
    for (row, errors), (hour, total, mean) in zip(shown, truth, strict=True):
        assert row[0] == hour
        assert abs(row[1] - float(total)) < 6 * errors[1] < 0.02 * abs(float(total))
        assert abs(row[2] - float(mean)) < 6 * errors[2]
    apart = " OR ".join(f"hour = {hour} AND part = {hour % 3}" for hour in range(4))
    boxes = api.query(
        f"SELECT SUM(amount) FROM pay JOIN person ON person_id = id WHERE {apart}", release=target
    )
    where = f"({apart.replace('part', 'person_id % 3')})"
    ((true,),) = duckdb.sql(f"SELECT SUM(amount) FROM '{tmp_path}/pay.parquet' WHERE {where}").fetchall()
    assert abs(boxes.scalar() - float(true)) < 6 * boxes.stderr_rows[0][0]
    both = "SELECT SUM(p.amount) FROM pay p JOIN person q ON p.person_id = q.id WHERE q.part = 1"
    joined = api.query(both, release=target)
    assert joined.scalar() == pytest.approx(-199_987 * PEOPLE / 3 * 0.8, rel=0.02)
    assert failed(target, catalog) == []


def test_sums_of_weighted_rows_that_were_cut_are_not_answered(tmp_path: Path, publishes: None) -> None:
    """A weight has 20 bits of its own: 6,000 rows of 9e8 units in each hour are more than 2^62.

    In `parts` they are not; but both views were made to agree.
    """
    catalog, target = publish(tmp_path, "1e-6", "person.id", "max_ids: 1, bounding: weight, ", 900, 30_000)
    with closing(open_release(target)) as release:
        cut = {statistic.measure: statistic.cut for statistic in release.statistics}
        assert cut == {"count": False, "count(pay.amount)": False, "pay.amount": True}
        with pytest.raises(NotSupportedError, match=r"pay\.amount, whose sums did not fit 64 bits"):
            ReleaseEngine(release).query("SELECT SUM(amount) FROM pay")
    counted = api.query("SELECT COUNT(*) FROM pay", release=target)
    assert abs(counted.scalar() - 30_000) < 6 * counted.stderr_rows[0][0] < 300
    assert failed(target, catalog) == []
