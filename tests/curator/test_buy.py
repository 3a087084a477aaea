"""A release of a few questions: exact without noise, as noisy as quoted, charged, audited, and nothing else."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from pathlib import Path

import pytest

import dpsql
from dpsql import api
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.curator.buy import purchase
from dpsql.errors import BudgetExceeded, CatalogError, InterfaceError, NotSupportedError, NoViewError
from dpsql.executor.engine import ReleaseEngine
from dpsql.interfaces.cli.plan import plan_text
from dpsql.noise import ZeroNoise
from dpsql.release import open_release
from tests.command import dpsql_command
from tests.releases import plain_tables, seeded, write_catalog
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

CATALOG = """
dpsql: 1
name: shop
population: people
source:
  {kind: parquet, root: ROOT, tables: {sales: sales.parquet, customer: customer.parquet, product: product.parquet}}
privacy: {lineage: people, cap: 2, unit: customer.id, epsilon: 1.0, DELTA}
tables:
  product: {role: dimension, key: product_id, private: false}
  customer: {role: dimension, key: id, private: true, columns: {
    age: {type: int, lower: 18, upper: 89, nullable: true}, region: {type: string, categories: [north, south, west]}}}
  sales: {role: fact, foreign_keys: {product_id: product, id: customer}, max_ids: 20, columns: {
    day: {type: date, lower: 2025-01-01, upper: 2025-12-31},
    amount: {type: decimal, scale: 2, lower: 0, upper: 20, measure: true}}}
views:
  demand: {of: sales, axes: [{axis: customer.age, cuts: [40, 60]}, {axis: product, by: [kind]}],
    measures: [count, sales.amount], share: 0.6}
  trend: {of: sales, axes: [{axis: sales.day, cuts: {width: month}}, customer.region], measures: [count], share: 0.2}
  people: {of: customer, axes: [customer.age, customer.region], measures: [count], share: 0.2}
"""
TABLES = {
    "product": "SELECT i AS product_id, 'k' || (i % 3) AS kind FROM range(9) t(i)",
    "customer": "SELECT i AS id, CASE WHEN i % 9 = 0 THEN NULL ELSE 18 + i * 7 % 72 END AS age,"
    " ['north', 'south', 'west'][1 + i % 3] AS region FROM range(400) t(i)",
    "sales": "SELECT i % 400 AS id, i % 9 AS product_id, DATE '2025-01-01' + (i * 11 % 365)::INT AS day,"
    " ((i * 37 % 2000) / 100.0)::DECIMAL(9, 2) AS amount FROM range(6000) t(i)",
}
JOIN = "FROM sales JOIN customer USING (id)"
WHERE = [
    "age BETWEEN 23 AND 37 AND day < DATE '2025-03-10'",
    "age BETWEEN 30 AND 55 AND day BETWEEN DATE '2025-02-01' AND DATE '2025-06-15'",
    "age IN (20, 30, 40) OR region = 'west'",
    "age IS NULL AND day > DATE '2025-11-30'",
]
COUNTS = [f"SELECT COUNT(*) {JOIN} WHERE {where}" for where in WHERE]


def shop(folder: Path, delta: str = "delta: 0", text: str = CATALOG) -> Path:
    return write_catalog(folder, text.replace("DELTA", delta), TABLES)


def plain(folder: Path, sql: str) -> list[tuple[object, ...]]:
    with plain_tables(folder) as raw:
        return raw.execute(sql).fetchall()


def release_of(
    folder: Path,
    statements: list[str],
    noise,
    delta: str = "delta: 0",
    epsilon: str = "1",
    text: str = CATALOG,
) -> ReleaseEngine:
    catalog = purchase(load_catalog(shop(folder, delta, text)), statements, Fraction(epsilon))
    publish_release(catalog, folder / "more.dpsql", noise=noise, key=b"k" * 32)
    return ReleaseEngine(open_release(folder / "more.dpsql", insecure=True))


EXACT = [
    *COUNTS,
    f"SELECT region, COUNT(*) AS n {JOIN} WHERE age > 50 GROUP BY region ORDER BY region",
    f"SELECT COUNT(*) FILTER (WHERE region = 'south') AS a, COUNT(*) AS b {JOIN} WHERE day < DATE '2025-05-01'",
    "SELECT kind, SUM(amount) AS s FROM sales JOIN product USING (product_id) GROUP BY kind ORDER BY kind",
    f"SELECT AVG(amount) AS a {JOIN} WHERE age BETWEEN 30 AND 44",
    "SELECT COUNT(*) FROM customer WHERE age < 33 AND region = 'north'",
    "SELECT COUNT(*) FROM sales",
]


@pytest.mark.parametrize("statements", by_default([EXACT[2::2], EXACT], 1))
def test_without_noise_every_answer_is_exact(tmp_path: Path, statements: list[str]):
    asked = release_of(tmp_path, list(statements), ZeroNoise())
    for sql in statements:
        found, wanted = asked.query(sql).rows, plain(tmp_path, sql)
        outside = [row for row in found if row[0] in (None, "(other)")]
        assert numbers([row[1:] for row in outside]) == pytest.approx([0.0] * len(outside), abs=0.02)
        found = [row for row in found if row not in outside]
        assert keys(found) == keys(wanted)
        assert numbers(found) == pytest.approx(numbers(wanted), abs=0.02)


def keys(rows) -> list[str]:
    return [value for row in rows for value in row if isinstance(value, str)]


def numbers(rows) -> list[float]:
    return [float(value) for row in rows for value in row if not isinstance(value, str)]


@pytest.mark.parametrize(
    "delta, least", [("delta: 0", 1.5), pytest.param("delta: 1e-6", 1.2, marks=pytest.mark.slow)]
)
def test_answers_state_the_errors_that_were_quoted(tmp_path: Path, delta: str, least: float):
    """Nobody owns more than `max_ids` rows. The first share of rows follows from no assumption, the others do.

    Rows beyond the bound are a part of each error that counts: under a delta their number has less noise.
    """
    statements = ["SELECT COUNT(*) FROM sales", *COUNTS[:3]]
    quoted = dpsql.quote(shop(tmp_path, delta), statements, epsilon="0.5")
    assert not (tmp_path / ".dpsql").exists()
    asked = release_of(tmp_path, statements, ZeroNoise(), delta, "0.5")
    assert [table.rows for table in asked.release.meta.bounding] == [0]
    for number, (query, sql) in enumerate(zip(quoted.queries, statements, strict=True)):
        result, (column,) = asked.query(sql), query.columns
        (stated,), (noise,) = result.stderr_rows[0], result.noise_rows[0]
        assert stated > least * noise > 0
        assert 0.67 < column.median / stated < 1.5
        assert number or column.median == pytest.approx(stated, rel=1e-6)


def test_noise_alone_is_what_was_quoted(tmp_path: Path):
    alone = CATALOG.replace("max_ids: 20", "max_ids: 20, clipped_share: 0")
    quoted = dpsql.quote(shop(tmp_path, text=alone), COUNTS, epsilon="0.5")
    asked = release_of(tmp_path, COUNTS, seeded(1), "delta: 0", "0.5", alone)
    for query, sql in zip(quoted.queries, COUNTS, strict=True):
        result = asked.query(sql)
        (stated,) = result.stderr_rows[0]
        assert stated == pytest.approx(query.columns[0].median, rel=1e-6)
        assert abs(float(result.scalar()) - plain(tmp_path, sql)[0][0]) < 8 * stated


def test_what_was_not_bought_is_refused(tmp_path: Path):
    asked = release_of(tmp_path, COUNTS, seeded(1))
    for sql in (
        "SELECT COUNT(*) FROM sales",
        f"SELECT COUNT(*) {JOIN} WHERE age BETWEEN 23 AND 36 AND day < DATE '2025-03-10'",
        f"SELECT COUNT(*) {JOIN} WHERE age BETWEEN 56 AND 89",
    ):
        with pytest.raises(NoViewError, match="was bought for a few questions"):
            asked.query(sql)
    both = f"SELECT COUNT(*) {JOIN} WHERE ({WHERE[0]}) OR ({WHERE[1]})"
    parts = f"SELECT COUNT(*) {JOIN} WHERE ({WHERE[0]}) AND NOT ({WHERE[1]})"
    union = float(asked.query(both).scalar())  # classes of cells are measured, so these follow too
    assert union == pytest.approx(
        float(asked.query(parts).scalar()) + float(asked.query(COUNTS[1]).scalar()), abs=1e-3
    )


@pytest.mark.slow
def test_it_is_charged_audited_and_routed_beside_the_main_release(tmp_path: Path):
    catalog = shop(tmp_path)
    main, more = tmp_path / "main.dpsql", tmp_path / "more.dpsql"
    dpsql.publish(catalog, main)
    bought = dpsql.buy(catalog, COUNTS, more, epsilon="0.9")
    assert bought.receipt.charged_epsilon == Fraction(9, 10)
    assert bought.receipt.left_epsilon == Fraction(1, 10)
    assert dpsql.buy(catalog, COUNTS, more, epsilon="0.9").receipt.drawn is False
    with pytest.raises(BudgetExceeded):
        dpsql.buy(catalog, COUNTS[:1], tmp_path / "third.dpsql", epsilon="0.2")
    report = dpsql.api.audit(more, catalog=catalog, samples=2000)
    assert not [check for check in report.checks if check.held is False]
    alone = dpsql.query(COUNTS[0], release=more)
    beside = dpsql.query(COUNTS[0], release=[main, more])
    assert float(beside.scalar()) == float(alone.scalar())
    total = dpsql.query("SELECT COUNT(*) FROM sales", release=[main, more])
    assert float(total.scalar()) == float(dpsql.query("SELECT COUNT(*) FROM sales", release=main).scalar())
    pooled = dpsql.query("SELECT COUNT(*) FROM sales", release=[main, more], combine=True)
    assert float(pooled.scalar()) == float(total.scalar())  # cells that nobody bought are in no pool


def test_what_was_bought_under_a_delta_passes_its_audit(tmp_path: Path):
    catalog, more = shop(tmp_path, "delta: 1e-6"), tmp_path / "more.dpsql"
    dpsql.buy(catalog, COUNTS[:2], more, epsilon="0.5")
    report = dpsql.api.audit(more, catalog=catalog, samples=0)
    assert [check.what for check in report.checks if check.held is False] == []


def test_refusals(tmp_path: Path):
    catalog = load_catalog(shop(tmp_path))
    with pytest.raises(InterfaceError, match="nothing to buy"):
        purchase(catalog, [], Fraction(1))
    with pytest.raises(InterfaceError, match="cannot be spent"):
        purchase(catalog, COUNTS, Fraction(0))
    with pytest.raises(InterfaceError, match="epsilon"):
        dpsql.buy(shop(tmp_path), COUNTS, tmp_path / "x.dpsql", epsilon="much")
    with pytest.raises(NotSupportedError, match="people cannot be bought"):
        purchase(catalog, [f"SELECT COUNT(DISTINCT id) {JOIN}"], Fraction(1))
    with pytest.raises(InterfaceError, match="the limit is 400"):
        purchase(catalog, [f"SELECT age, day, COUNT(*) {JOIN} GROUP BY age, day"], Fraction(1))
    with pytest.raises(NoViewError, match="amount"):
        purchase(catalog, ["SELECT COUNT(*) FROM sales WHERE amount > 3"], Fraction(1))
    text = (
        shop(tmp_path)
        .read_text()
        .replace("measures: [count], share: 0.2}", "measures: [count], mechanism: asked}", 1)
    )
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(CatalogError, match="go together"):
        load_catalog(tmp_path / "bad.yaml")


def test_a_quote_compares_itself_with_the_same_epsilon_without_a_delta(tmp_path: Path):
    """One number at one epsilon: noise of another law, by the factor between the two plans."""
    under_delta = shop(tmp_path / "delta", "delta: 1e-6")
    quoted = api.quote(under_delta, COUNTS[:1], epsilon="0.1")
    pure = api.quote(shop(tmp_path / "pure"), COUNTS[:1], epsilon="0.1")
    factor = pure.statistics[0].typical / quoted.statistics[0].typical
    assert quoted.other_delta == "0" and quoted.other_errors == pytest.approx(factor, rel=0.01)
    assert "narrower at the same epsilon" in plan_text(quoted)


def test_the_command_quotes_and_buys(tmp_path: Path):
    catalog = shop(tmp_path)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return dpsql_command("buy", catalog, COUNTS[0], "--epsilon", "0.5", *words)

    planned = run("--plan").stdout
    assert "bought_sales" in planned and "it spends 0.25 of the lineage's cap" in planned
    assert not (tmp_path / ".dpsql").exists()
    assert "-o more.dpsql" in run().stderr
    done = run("-o", str(tmp_path / "more.dpsql"))
    assert done.returncode == 0, done.stderr
    assert "spent epsilon 0.5" in done.stdout + done.stderr
