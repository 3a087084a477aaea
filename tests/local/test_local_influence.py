"""One hostile report: no set of leaves moves further than the release says."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql.client.plan import View, read_plan
from dpsql.local.estimate import axis_table
from dpsql.local.plan import CollectionDesign, PlannedAxis, PlannedMeasure, build_plan
from dpsql.local.tallies import CountedCollection, ViewTally
from dpsql.local.totals import rows_moved
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

PEOPLE = 20_000


def hostile(view: View, width: int, rng: np.random.Generator, wanted: np.ndarray) -> np.ndarray:
    """Support of one report that means harm: every wanted cell at once where the oracle lets it."""
    if view.oracle == "OUE":
        said = np.ones(width) if rng.random() < 0.2 else (rng.random(width) < 0.5).astype(float)
        if len(view.axes) == 1 and rng.random() < 0.5:
            starts = np.array(view.edges[0][:-1])
            said[: starts.size] = wanted[np.minimum(starts, wanted.size - 1)]
        return said.astype(np.int64)
    return (np.arange(width) == rng.integers(width)).astype(np.int64)


def count(collection: CountedCollection, leaves: np.ndarray) -> float:
    return float(collection.accepted * collection.plan.tau * axis_table(collection, 0).counts.shares @ leaves)


@pytest.mark.parametrize(
    ("epsilon", "measured", "tau"), by_default([(1, True, 2), (1, False, 1), (4, False, 2)], 1)
)
def test_no_report_moves_a_count_further(epsilon: int, measured: bool, tau: int) -> None:
    measures = (PlannedMeasure("m", 0, 9),) if measured else ()
    axes = (PlannedAxis("a", 32, 32), PlannedAxis("b", 4, 0))
    plan = read_plan(
        build_plan(
            CollectionDesign(
                "t", Fraction(epsilon), PEOPLE, axes, measures, ((0, 1),), tau=tau, rows_floor=tau - 1
            )
        )
    )
    rng = np.random.default_rng(3)
    leaves = np.stack([rng.integers(0, 32, PEOPLE), rng.integers(0, 4, PEOPLE)], axis=1)
    people = one_row_each(leaves, rng.integers(0, 10, (PEOPLE, len(measures))))
    collection = simulate_tallies(plan, people, rng)
    most, farthest = rows_moved(collection, float(PEOPLE * tau)), 0.0
    for _ in range(250):
        number = int(rng.integers(len(plan.views)))
        wanted = (
            (rng.random(32) < 0.5).astype(float) if rng.random() < 0.7 else (np.arange(32) % 2).astype(float)
        )
        changed = list(collection.tallies)
        support, reports = changed[number].support.copy(), changed[number].reports.copy()
        support[0] += hostile(plan.views[number], support.shape[1], rng, wanted)
        reports[0] += 1
        changed[number] = ViewTally(support, reports)
        moved = count(CountedCollection(plan, changed), wanted)
        farthest = max(farthest, abs(moved - count(collection, wanted)))
    assert farthest < most * 1.001 + 1.01 * tau, "and the reporter herself, who is counted"
    assert most < 12 * farthest, "not so wide that it says nothing"
