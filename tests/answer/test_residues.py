"""Numbers that are 0 by algebra decide nothing, whichever way a processor rounds what is left of them."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.curator.forecast import QueryForecast
from dpsql.executor.engine import PredictedColumn
from dpsql.federation.respondents import difference
from dpsql.interfaces.cli.plan import _query_lines
from dpsql.intervals.errorfunctions import fieller

pytestmark = pytest.mark.kernel

RESIDUES = [0.0, 3e-14, -3e-14]


@pytest.mark.parametrize("residue", RESIDUES)
def test_a_total_that_was_scaled_by_itself_is_no_evidence(residue: float) -> None:
    found = difference(np.array([residue]), np.array([[residue]]), np.array([4.0]), np.array([1.0]))
    assert (found.freedom, found.statistic, found.farthest, found.kurtosis) == (0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("residue", RESIDUES)
def test_a_direction_that_cancels_is_no_evidence(residue: float) -> None:
    """Two shares that add up to 1: their difference alone is uncertain."""
    covariance = np.array([[1.0, -1.0], [-1.0, 1.0]]) + residue
    found = difference(np.array([1.0, -1.0 + residue]), covariance, np.array([4.0, 4.0]), np.zeros(2))
    assert found.freedom == 1 and found.statistic == pytest.approx(1.0)
    assert found.farthest == pytest.approx(1.0)


@pytest.mark.parametrize("residue", RESIDUES)
def test_a_denominator_as_large_as_its_margin_has_an_open_interval(residue: float) -> None:
    one = np.ones(1)
    low, high = fieller(5 * one, (3 + residue) * one, one, 0 * one, one, 3.0)
    assert np.isnan(low).all() and np.isnan(high).all()


@pytest.mark.parametrize("residue", RESIDUES)
def test_a_range_of_equal_ends_is_not_printed(residue: float) -> None:
    column = PredictedColumn("n", "people", 3, 11.54, 11.54, 11.54 + residue, counts=True, cells=3)
    _, line = _query_lines(1, QueryForecast("SELECT 1", (column,), None, None))
    assert line == "   n: ± 22.62, 3 groups, view people"
