"""Intervals of functions of a noisy value are images of its own interval; moments count rows whose value is known."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import duckdb
import numpy as np
import pytest

from dpsql.curator.prove.layouts import RawRows
from dpsql.executor.engine import ReleaseEngine
from dpsql.intervals.errorfunctions import STEPS, Ends
from dpsql.noise import ZeroNoise
from tests.releases import plain_tables, published, seeded, write_catalog

CATALOG = """
privacy: {lineage: kiln, cap: 9020, unit: row, epsilon: EPSILON}
tables:
  batch:
    role: fact
    columns:
      line: {type: string, categories: [a, b, c], out_of_domain: drop}
      speed: {type: int, lower: 1, upper: 12, nullable: true}
      heat: {type: int, lower: 1, upper: 9}
      yield: {type: decimal, scale: 2, lower: -5, upper: 12.5, measure: true}
      loss: {type: int, lower: 0, upper: 9, measure: true, nullable: true}
views:
  all: {of: batch, axes: [batch.line, batch.speed, batch.heat],
    measures: [count, batch.yield, squares(batch.yield), batch.loss, squares(loss)]}
"""

Kilns = tuple[ReleaseEngine, ReleaseEngine, duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def kilns(tmp_path_factory: pytest.TempPathFactory, publishes: None) -> Iterator[Kilns]:
    """A release without noise, one with, and the rows: some with a speed or a heat that the catalog does not know."""
    folder, draw, rows = tmp_path_factory.mktemp("kiln"), random.Random(6), []
    for _ in range(300):
        line, speed = draw.choice("abc"), draw.choice([None, *range(1, 16)])
        speed = 2 if (line, speed) == ("a", 1) else speed
        row = [line, speed, draw.randrange(1, 12), round(draw.gauss(3, 2) + (speed or 0) / 4, 2)]
        rows.append((*row, draw.choice([None, *range(10)])))
    batch = RawRows("line VARCHAR, speed INT, heat INT, yield DECIMAL(9, 2), loss INT", rows)
    answerers = [
        published(write_catalog(folder, CATALOG, {"batch": batch}, EPSILON=epsilon), noise, name)
        for name, epsilon, noise in (("exact", 9000, ZeroNoise()), ("noisy", 20, seeded(3)))
    ]
    yield answerers[0], answerers[1], plain_tables(folder)
    for answerer in answerers:
        answerer.release.close()


KNOWN = {"speed": "speed BETWEEN 1 AND 12", "heat": "heat BETWEEN 1 AND 9"}


@pytest.mark.parametrize("item", [
    "VARIANCE(speed)", "STDDEV(heat)", "VAR_POP(heat * 2 - 1)", "STDDEV(yield)", "VARIANCE(loss)",
    "COVAR_SAMP(speed, yield)",
    "COVAR_POP(yield, heat)", "COVAR_SAMP(loss, speed)", "CORR(loss, heat)", "CORR(speed, yield)", "CORR(speed, speed)",
])  # fmt: skip
def test_moments_count_rows_whose_values_are_known(kilns: Kilns, item: str) -> None:
    known = " AND ".join(test for column, test in KNOWN.items() if column in item) or "true"
    ((exact,),) = kilns[2].execute(f"SELECT {item} FILTER (WHERE {known}) FROM batch").fetchall()
    ((value,),) = kilns[0].query(f"SELECT {item} FROM batch").rows
    assert value == pytest.approx(float(exact), rel=1e-6)


def test_nobody_has_no_spread(kilns: Kilns) -> None:
    """GREATEST alone would make 0 of NULL."""
    items = "STDDEV(yield), VAR_POP(yield), VARIANCE(speed), CORR(yield, speed)"
    ((*nobody,),) = kilns[2].execute(f"SELECT {items} FROM batch WHERE line = 'a' AND speed = 1").fetchall()
    got = kilns[0].query(f"SELECT {items} FROM batch WHERE line = 'a' AND speed = 1").rows[0]
    assert list(got) == nobody == [None] * 4


FUNCTIONS = {
    "SQRT(AVG(yield) - 2)": lambda x: math.sqrt(max(x - 2, 0)), "LN(AVG(yield))": math.log,
    "LOG10(AVG(yield)) * -2 + 1": lambda x: 1 - 2 * math.log10(x), "LOG2(AVG(yield))": math.log2,
    "EXP(AVG(yield))": math.exp, "POWER(AVG(yield), 3)": lambda x: x**3, "AVG(yield) ^ 0.5": math.sqrt,
    "POWER(AVG(yield), -2)": lambda x: x**-2, "7 - CBRT(AVG(yield))": lambda x: 7 - math.cbrt(x),
    "1 / SQRT(AVG(yield))": lambda x: x**-0.5, "ABS(AVG(yield) - 100)": lambda x: 100 - x,
    "GREATEST(AVG(yield), 1)": lambda x: max(x, 1), "LEAST(3, AVG(yield), 90)": lambda x: min(x, 3),
    "SQRT(EXP(AVG(yield)) + 1)": lambda x: math.sqrt(math.exp(x) + 1),
}  # fmt: skip


@pytest.mark.parametrize("item", FUNCTIONS)
def test_an_interval_is_the_image_of_its_arguments(kilns: Kilns, item: str) -> None:
    ends = [*_asked(kilns[1], "AVG(yield)", "batch WHERE line = 'c'")]
    low, value, high = _asked(kilns[1], item, "batch WHERE line = 'c'")
    images = [FUNCTIONS[item](end) for end in ends]
    assert [low, value, high] == pytest.approx([min(images), images[1], max(images)], rel=1e-9)


def _asked(answerer: ReleaseEngine, item: str, source: str) -> list[float]:
    """Low end, value and high end."""
    result = answerer.query(f"SELECT {item} AS v FROM {source}")
    (lows, highs), ((value,),) = result.interval_rows(), result.rows
    return [lows[0][0], value, highs[0][0]]


@pytest.mark.parametrize("around", [
    "SELECT v FROM (SELECT {0} AS v, line FROM batch GROUP BY line) AS t WHERE line = 'b'",
    "SELECT COALESCE(v, 0) FROM (SELECT line, {0} AS v FROM batch GROUP BY line UNION ALL SELECT 'x', {0} FROM batch)"
    " AS t WHERE line = 'b'",
    "SELECT before FROM (SELECT line, LAG({0}) OVER (ORDER BY line) AS before FROM batch GROUP BY line) AS t"
    " WHERE line = 'c'",
    "SELECT CASE WHEN line = 'b' THEN {0} END FROM batch WHERE line = 'b' GROUP BY line",
    "SELECT (SELECT {0} FROM batch WHERE line = 'b')",
])  # fmt: skip
def test_the_image_goes_through_queries(kilns: Kilns, around: str) -> None:
    alone = _asked(kilns[1], "SQRT(COUNT(*))", "batch WHERE line = 'b'")
    result = kilns[1].query(around.format("SQRT(COUNT(*))"))
    lows, highs = result.interval_rows()
    assert [lows[0][0], result.rows[0][0], highs[0][0]] == pytest.approx(alone, rel=1e-9)
    assert alone[0] + alone[2] < 2 * alone[1] - 1e-6  # not symmetric


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("constant", [-2.0, -1.0, 0.5, 2.0, 3.0])
def test_an_image_covers_the_function_of_whatever_its_interval_covers(step: str, constant: float) -> None:
    functions = {
        "times": lambda x: x * constant, "plus": lambda x: x + constant, "sqrt": np.sqrt, "cbrt": np.cbrt,
        "exp": np.exp, "ln": np.log, "abs": np.abs, "reciprocal": lambda x: 1 / x,
        "power": lambda x: np.power(x, constant), "at_least": lambda x: np.maximum(x, constant),
        "at_most": lambda x: np.minimum(x, constant),
    }  # fmt: skip
    function = functions.get(step.removeprefix("always_"), functions["abs"])
    for low, high in ((-3.0, -1.0), (-2.0, 0.5), (-0.5, 2.0), (0.25, 4.0), (0.0, 1.0)):
        x = np.linspace(low, high, 9)
        with np.errstate(all="ignore"):
            ends = STEPS[step](Ends(*(np.array([end]) for end in (low, x[5], high))), np.array([constant]))
            values = function(x)
        values = values[np.isfinite(values)]
        if not np.isnan(ends.low[0]):
            assert np.all((ends.low[0] - 1e-12 <= values) & (values <= ends.high[0] + 1e-12)), (low, high)


def test_what_noise_took_beyond_a_natural_bound_keeps_an_error() -> None:
    x = Ends(np.array([-5.0]), np.array([-3.0]), np.array([-1.0]))
    assert [end[0] for end in STEPS["always_at_least"](x, np.array([0.0]))] == [0, 0, 2]
    assert [end[0] for end in STEPS["at_least"](x, np.array([0.0]))] == [0, 0, 0]
