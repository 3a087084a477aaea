"""The total of all rows, which every report tells of: its error bar, whoever was asked what."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.local.simulated import simulate_tallies
from dpsql.client.plan import Plan, read_plan
from dpsql.local.estimate import AxisTable, axis_table, table
from dpsql.local.plan import CollectionDesign, PlannedAxis, PlannedMeasure, build_plan
from dpsql.local.tallies import CountedCollection, RespondentRows
from dpsql.local.totals import centre_of, centred_on, total_of
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

PEOPLE = 10_000
UNEVEN = (((0,), Fraction(9, 10)), ((1,), Fraction(1, 20)), ((2,), Fraction(1, 20)))
PAIRS = ((0, 1), (1, 2), (0, 2))


def plan_of(sizes: tuple[int, ...], epsilon: int = 1, **changes: object) -> Plan:
    axes = tuple(PlannedAxis(f"a{i}", size, size if size > 15 else 0) for i, size in enumerate(sizes))
    return read_plan(build_plan(CollectionDesign("t", Fraction(epsilon), PEOPLE, axes, **changes)))  # type: ignore[arg-type]


def people(sizes: tuple[int, ...], rng: np.random.Generator) -> RespondentRows:
    first = np.concatenate([[0], np.cumsum(rng.integers(0, 2, PEOPLE))])
    rows = int(first[-1])
    leaves = np.stack([rng.integers(0, size, rows) for size in sizes], axis=1)
    return RespondentRows(
        first, leaves, np.clip(np.rint(rng.normal(85, 8, (rows, 1))), 0, 100).astype(np.int64)
    )


def known_of(collection: CountedCollection) -> dict[int, AxisTable]:
    return {a: axis_table(collection, a) for a in range(len(collection.plan.axes))}


@pytest.mark.parametrize(
    ("sizes", "epsilon", "changes"),
    by_default(
        [
            ((4, 9, 9), 1, {"asked": UNEVEN}),
            ((2, 30, 30), 3, {"together": PAIRS}),
            ((16, 3), 1, {"together": ((0, 1),)}),
        ],
        1,
    ),
)
def test_the_total_errs_as_it_says(sizes: tuple[int, ...], epsilon: int, changes: dict[str, object]) -> None:
    plan, rng = plan_of(sizes, epsilon, **changes), np.random.default_rng(1)
    mine = people(sizes, np.random.default_rng(2))
    truth, off, best = (mine.first[-1]) / PEOPLE, [], []
    for _ in range(150):
        collection = simulate_tallies(plan, mine, rng)
        known = known_of(collection)
        found = total_of(collection, known)
        off.append((found.value - truth) / found.variance**0.5)
        best.append(found.variance / min(t.counts.covariance.sum() for t in known.values()))
        held = table((0,), known, {}, None, found)
        assert held.values.sum() == pytest.approx(found.value)
        assert held.strengths[()] == found.variance
        assert table((0,), known, {}).strengths[()] >= found.variance * 0.99
    # Everybody reports, so who is drawn varies less than the error bar takes it to: at epsilon 3 that shows.
    assert np.mean(np.abs(off) < 1.96) >= 0.9
    assert 0.7 < np.std(off) < 1.15
    assert np.mean(best) < 1.02, "no noisier than the axis that knows it best"


@pytest.mark.slow
def test_a_measure_s_total_errs_as_it_says() -> None:
    sizes = (4, 9, 3)
    measures = (PlannedMeasure("m", 0, 100),)
    plan = plan_of(sizes, 3, measures=measures, together=((0, 1),), asked=UNEVEN)
    rng, off = np.random.default_rng(1), []
    values = people((1,), np.random.default_rng(3)).measures
    for _ in range(60):
        values = np.concatenate([values, people((1,), rng).measures])
    truth = values.mean() / 2  # of everybody's like; other people report each time, as error bars take it
    for _ in range(150):
        collection = simulate_tallies(plan, people(sizes, rng), rng)
        known = known_of(collection)
        centre = centre_of(collection, known, 0)
        moved, _ = centred_on(centre, known, {}, {}, 0)
        rest = total_of(collection, moved, 0, centre.half, centre.shift)
        count = total_of(collection, known)
        error = (rest.variance + centre.mid**2 * count.variance) ** 0.5
        off.append((rest.value + centre.mid * count.value - truth) / error)
    assert 0.9 <= np.mean(np.abs(off) < 1.96) <= 0.99
    assert 0.8 < np.std(off) < 1.15


def test_a_total_that_is_known_has_no_error() -> None:
    plan = plan_of((4, 9), rows_floor=1, together=((0, 1),))
    rng = np.random.default_rng(1)
    leaves = np.stack([rng.integers(0, 4, PEOPLE), rng.integers(0, 9, PEOPLE)], axis=1)
    each = RespondentRows(np.arange(PEOPLE + 1), leaves, np.zeros((PEOPLE, 0), np.int64))
    collection = simulate_tallies(plan, each, rng)
    found = total_of(collection, known_of(collection))
    assert found.value == pytest.approx(1)
    assert found.variance < 1e-12
