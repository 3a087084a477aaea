"""STDDEV, VARIANCE, COVAR and CORR of axes and measures: equal to plain SQL without noise, with errors."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from dpsql.catalog.catalog import parse_catalog
from dpsql.curator.prove.layouts import RawRows
from dpsql.errors import CatalogError, NotSupportedError
from dpsql.noise import ZeroNoise
from tests.releases import Twins, plain_tables, published, write_catalog
from tests.thinned import by_default

CATALOG = """
dpsql: 1
name: mill
source: {kind: parquet, root: ., tables: {batch: batch.parquet}}
privacy: {lineage: mill, cap: 9000, unit: row, epsilon: 9000}
tables:
  batch:
    role: fact
    columns:
      line: {type: string, categories: [a, b, c], out_of_domain: drop}
      speed: {type: int, lower: 1, upper: 12}
      yield: {type: decimal, scale: 2, lower: -5, upper: 12.5, measure: true}
      loss: {type: int, lower: 0, upper: 9, measure: true, nullable: true}
      cost: {type: decimal, scale: 1, lower: 0, upper: 99, measure: true}
views:
  all: {of: batch, axes: [batch.line, batch.speed],
    measures: [count, batch.yield, squares(batch.yield), batch.loss, squares(loss), batch.cost]}
"""


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory, publishes: None) -> Iterator[Twins]:
    folder, draw, rows = tmp_path_factory.mktemp("mill"), random.Random(5), []
    for _ in range(700):
        line, speed = draw.choice("abc"), draw.randrange(1, 13)
        made = max(-5.0, min(12.5, round(draw.gauss(3, 2) + "abc".index(line), 2)))
        rows.append(
            (line, speed, made, draw.choice([None, *range(10)]), round(abs(draw.gauss(20, 9)) + speed, 1))
        )
    kinds = "line VARCHAR, speed INT, yield DECIMAL(9, 2), loss INT, cost DECIMAL(9, 1)"
    answerer = published(write_catalog(folder, CATALOG, {"batch": RawRows(kinds, rows)}), ZeroNoise())
    yield answerer, plain_tables(folder)
    answerer.release.close()


ASKED = [
    "VARIANCE(yield), VAR_POP(yield), STDDEV(yield), STDDEV_POP(yield), STDDEV_SAMP(yield), VAR_SAMP(yield)",
    "STDDEV(loss), VAR_POP(loss)",
    "STDDEV(speed), VARIANCE(speed * speed - 3)",
    "COVAR_POP(yield, speed), COVAR_SAMP(speed, cost), CORR(speed, yield), CORR(speed, speed % 5)",
    "STDDEV(yield) FILTER (WHERE speed > 5), STDDEV(yield) / AVG(yield), SUM(squares_of_yield)",
    "STDDEV(CAST(yield AS DOUBLE))",
]


@pytest.mark.parametrize("items", by_default(ASKED, 3))
@pytest.mark.parametrize("rest", ["", " WHERE line <> 'b'", " GROUP BY line ORDER BY line"])
def test_moments_equal_plain_sql(mill: Twins, items: str, rest: str) -> None:
    text = f"SELECT {items} FROM batch{rest}"
    result = mill[0].query(text)
    want = mill[1].execute(text.replace("squares_of_yield", "(yield - 3.75) * (yield - 3.75)")).fetchall()
    assert len(result.rows) == len(want)
    for got, exact in zip(result.rows, want, strict=True):
        assert [float(v) for v in got] == pytest.approx([float(v) for v in exact], rel=1e-6)
    assert all(error is not None and 0 < error < 1 for row in result.stderr_rows for error in row)


def test_a_flat_group_has_no_spread_and_no_error(mill: Twins) -> None:
    result = mill[0].query("SELECT STDDEV_POP(speed) AS s FROM batch WHERE speed = 3")
    assert result.rows[0][0] == 0 and result.stderr_rows[0][0] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(("text", "reason"), [
    ("SELECT STDDEV(cost) FROM batch", "no view has squares of batch.cost; ask the curator for `squares(batch.cost)`"),
    ("SELECT CORR(cost, yield) FROM batch", "no view has squares of batch.cost"),
    ("SELECT COVAR_POP(cost, yield) FROM batch", "no release has it as a measure"),
    ("SELECT STDDEV(yield + cost) FROM batch", "needs a measure or an axis"),
    ("SELECT AVG(speed * LENGTH(line)) FROM batch", "or count rows by speed and line in a derived table"),
])  # fmt: skip
def test_refused_with_a_way_out(mill: Twins, text: str, reason: str) -> None:
    with pytest.raises(NotSupportedError, match=reason.replace("(", r"\(").replace(")", r"\)")) as caught:
        mill[0].query(text)
    assert caught.value.hint


@pytest.mark.parametrize(("old", "new", "reason"), [
    ("batch.yield, squares(batch.yield)", "squares(batch.yield)", "a variance needs sums as well as"),
    ("squares(loss)", "squares(speed)", "needs sums as well as"),
    ("squares(loss)", "squares(line), batch.line", "not a column with `measure: true`"),
    ("scale: 2, lower: -5", "scale: 5, lower: -5", "would have 10 digits"),
    ("    columns:", "    measures: {squares_of_loss: {expr: loss, lower: 0, upper: 9}}\n    columns:",
     "declare another"),
])  # fmt: skip
def test_catalogs_that_ask_for_the_impossible(old: str, new: str, reason: str) -> None:
    with pytest.raises(CatalogError, match=reason):
        parse_catalog(CATALOG.replace(old, new), "mill.yaml")


def test_squares_are_a_declared_measure_of_the_release(mill: Twins) -> None:
    catalog = parse_catalog(CATALOG, "mill.yaml")
    square = catalog.tables["batch"].measures["squares_of_yield"]
    assert square.expr == "(yield - 3.75) * (yield - 3.75)" and square.scale == 4
    assert square.bounds == (0, 875**2) and math.isclose(float(square.upper), 8.75**2)
    assert mill[0].release.catalog.views["all"].measures.keys() == catalog.views["all"].measures.keys()
