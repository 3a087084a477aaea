"""Intervals of functions of a noisy value are images of its own interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpsql.executor.engine import ReleaseEngine
from dpsql.intervals.errorfunctions import STEPS, Ends
from tests.answer.test_statements import star
from tests.releases import seeded


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory, publishes: None) -> ReleaseEngine:
    engine, _ = star("kiln", tmp_path_factory.mktemp("kiln"), seeded(3), {"epsilon: 9000": "epsilon: 20"})
    return engine


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
def test_an_interval_is_the_image_of_its_arguments(noisy: ReleaseEngine, item: str) -> None:
    ends = [*_asked(noisy, "AVG(yield)", "batch WHERE line = 'c'")]
    low, value, high = _asked(noisy, item, "batch WHERE line = 'c'")
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
def test_the_image_goes_through_queries(noisy: ReleaseEngine, around: str) -> None:
    alone = _asked(noisy, "SQRT(COUNT(*))", "batch WHERE line = 'b'")
    result = noisy.query(around.format("SQRT(COUNT(*))"))
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
