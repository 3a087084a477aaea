"""A new function of an error is one entry of a table: SQL knows it, the shell completes it, no other file is touched.

The toy is the standard error as a share of the value.
"""

from __future__ import annotations

import numpy as np
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from docs.make_reference import error_functions
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.executor.engine import ReleaseEngine
from dpsql.interfaces.python.describe import Words
from dpsql.interfaces.shell import shell_completer
from dpsql.intervals.errorfunctions import ERRORS, ErrorFunction, Estimated
from dpsql.planner.axis_query import FloatArray

VARIANCE = 4.0


def relative(numbers: Estimated, level: float) -> FloatArray:
    """Standard error of the noise over value."""
    return numbers.noise() / np.abs(numbers.central())


TOY = ErrorFunction("standard error as a share of the value", relative)


def test_a_toy_is_answered(answerer: ReleaseEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ERRORS, "dp_relative", TOY)
    values = "COUNT(*), DP_STDERR(COUNT(*), 'noise'), DP_RELATIVE(COUNT(*)), AVG(amount), "
    values += "DP_STDERR(AVG(amount), 'noise')"
    asked = f"SELECT region, {values}, DP_RELATIVE(AVG(amount)) FROM sales JOIN customer USING (customer_id) GROUP BY 1"
    rows = answerer.query(asked).rows
    assert len(rows) > 2
    for _, count, error, share, mean, spread, part in rows:
        assert error > 0
        assert share == pytest.approx(error / abs(count))
        assert part == pytest.approx(spread / abs(mean))
    outer = answerer.query("SELECT DP_RELATIVE(n) FROM (SELECT COUNT(*) AS n FROM sales) t")
    assert outer.scalar() == answerer.query("SELECT DP_RELATIVE(COUNT(*)) FROM sales").scalar()


def test_it_takes_what_it_says(answerer: ReleaseEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotSupportedError, match="dp_relative"):
        answerer.query("SELECT DP_RELATIVE(SUM(amount)) FROM sales")
    monkeypatch.setitem(ERRORS, "dp_relative", TOY)
    with pytest.raises(ProgrammingError, match="DP_RELATIVE takes an aggregate"):
        answerer.query("SELECT DP_RELATIVE(COUNT(*), 0.5) FROM sales")


def test_it_is_completed_and_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    completer = shell_completer(Words([]), [])

    def offered() -> list[str]:
        return [c.text for c in completer.get_completions(Document("SELECT DP_REL"), CompleteEvent())]

    assert offered() == []
    monkeypatch.setitem(ERRORS, "dp_relative", TOY)
    assert offered() == ["DP_RELATIVE("]
    assert "`DP_RELATIVE(x)`: standard error as a share of the value" in error_functions()
