"""SUM and AVG of people who report for themselves: counts and sums err together, and error bars know it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.local.simulated import simulate_tallies
from dpsql.client.plan import Plan, read_plan
from dpsql.local.estimate import Interaction, axis_table, table
from dpsql.local.plan import CollectionDesign, PlannedAxis, PlannedMeasure, build_plan
from dpsql.local.tallies import RespondentRows
from dpsql.local.totals import centre_of, centred_on, total_of
from tests.local.test_local_totals import known_of
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

PEOPLE, LEAVES, LONG = 20_000, 6, 30
SIZES = (LEAVES, LEAVES, LONG)


def design(epsilon: int, lower: int, upper: int, tau: int = 1) -> Plan:
    axes = tuple(PlannedAxis(f"a{i}", size, 0) for i, size in enumerate(SIZES))
    measures = (PlannedMeasure("m", lower, upper), PlannedMeasure("n", 0, 9))
    made = CollectionDesign(
        "t", Fraction(epsilon), PEOPLE, axes, measures=measures, tau=tau, rows_floor=1 if tau == 1 else 0
    )
    return read_plan(build_plan(made))


def people(mean: float, lower: int, upper: int, rows: int = 1) -> RespondentRows:
    rng = np.random.default_rng(4)
    first = np.concatenate(
        [[0], np.cumsum(rng.integers(rows - 1, rows + 1, PEOPLE) if rows > 1 else [1] * PEOPLE)]
    )
    count = int(first[-1])
    leaves = np.stack([rng.integers(0, size, count) for size in SIZES], axis=1)
    amounts = np.clip(np.rint(rng.normal(mean, (upper - lower) / 30, count)), lower, upper).astype(np.int64)
    return RespondentRows(first, leaves, np.stack([amounts, rng.integers(0, 10, count)], axis=1))


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "tau", "axis"), [(4, 1, 0), (4, 2, 0), (4, 1, 2)])
def test_the_covariance_of_counts_and_sums_is_what_collections_show(
    epsilon: int, tau: int, axis: int
) -> None:
    plan, mine = design(epsilon, 0, 120, tau), people(115, 0, 120, tau)
    rng, box = np.random.default_rng(9), np.arange(plan.axes[axis].leaves) < 2
    seen, told = [], []
    for _ in range(200):
        collection = simulate_tallies(plan, mine, rng)
        held = axis_table(collection, axis)
        seen.append((held.counts.shares @ box, held.signed[0].shares @ box))
        if len(told) < 5:
            crossed = centre_of(collection, {axis: held}, 0).crossed[axis]
            counts, signed = held.counts.covariance, held.signed[0].covariance
            told.append([box @ crossed @ box / np.sqrt((box @ counts @ box) * (box @ signed @ box))])
    shown, expected = float(np.corrcoef(np.array(seen).T)[0, 1]), float(np.mean(told))
    assert shown == pytest.approx(expected, abs=0.2)
    assert expected > 0.2


SLOW = [
    pytest.param(epsilon, *measure, marks=pytest.mark.slow)
    for epsilon in (1, 3, 5)
    for measure in ((0, 120, 118), (0, 120, 10), (-50, 70, 65), (0, 120, 60))
]


@pytest.mark.parametrize(("epsilon", "lower", "upper", "mean"), [(5, 0, 120, 118), *SLOW])
def test_sums_and_averages_lie_in_their_intervals(epsilon: int, lower: int, upper: int, mean: int) -> None:
    plan, mine = design(epsilon, lower, upper), people(mean, lower, upper)
    box, rng = np.arange(LEAVES) < 2, np.random.default_rng(7)
    chosen = mine.leaves[:, 0] < 2
    amount = mine.measures[chosen, 0]
    sums, averages = [], []
    for _ in range(200):
        collection = simulate_tallies(plan, mine, rng)
        known = {0: axis_table(collection, 0)}
        centre = centre_of(collection, known, 0)
        ((_, table),) = centred_on(centre, known, {}, {}, 0)[0].items()
        counts, own = table.counts, table.signed[0]
        count, rest = counts.shares @ box, own.shares @ box
        noise, more = box @ counts.covariance @ box, box @ own.covariance @ box
        total = rest + centre.mid * count
        sums.append((total - amount.sum() / PEOPLE) / np.sqrt(more + centre.mid**2 * noise))
        off = rest / count
        averages.append((centre.mid + off - amount.mean()) * count / np.sqrt(more + off**2 * noise))
    for off in (np.array(sums), np.array(averages)):
        assert 0.90 <= np.mean(np.abs(off) < 1.96) <= 0.99
        assert 0.85 < off.std() < 1.15
    assert abs(np.mean(sums)) < 0.25


def test_nothing_moves_where_bits_are_even() -> None:
    plan = design(1, 0, 120)
    collection = simulate_tallies(plan, people(60, 0, 120), np.random.default_rng(1))
    assert abs(centre_of(collection, known_of(collection), 0).mid - 60) <= 3


def test_interactions_are_put_around_the_centre_with_no_less_strength() -> None:
    plan = design(5, 0, 120)
    collection = simulate_tallies(plan, people(118, 0, 120), np.random.default_rng(1))
    known = known_of(collection)
    centre = centre_of(collection, known, 0)
    assert 90 < centre.mid <= 120
    signed, count = Interaction(np.full((2, 2), 0.5), 3.0), Interaction(np.full((2, 2), 0.25), 2.0)
    tables, moved = centred_on(centre, known, {(0, 1): signed}, {(0, 1): count, (1, 2): count}, 0)
    assert moved[0, 1].values == pytest.approx(60 * 0.5 + (60 - centre.mid) * 0.25)
    assert moved[0, 1].strength == pytest.approx(3600 * 3.0 + centre.left**2 * 2.0)
    assert moved[1, 2].values == pytest.approx((60 - centre.mid) * 0.25)
    assert tables[0].signed[1] is known[0].signed[1]


@pytest.mark.parametrize(
    ("epsilon", "count", "value"), by_default([(12, 3000, 120), (5, 300, 120), (5, 200, 0), (1, 60, 0)], 1)
)
def test_few_people_or_all_at_a_bound_keep_an_error_bar(epsilon: int, count: int, value: int) -> None:
    plan, rng = design(epsilon, 0, 120), np.random.default_rng(1)
    leaves = np.stack([rng.integers(0, size, count) for size in SIZES], axis=1)
    mine = RespondentRows(np.arange(count + 1), leaves, np.tile([value, 3], (count, 1)))
    box, inside = np.arange(LEAVES) < 3, 0
    for _ in range(40):
        collection = simulate_tallies(plan, mine, rng)
        known = known_of(collection)
        centre = centre_of(collection, known, 0)
        moved, _ = centred_on(centre, known, {}, {}, 0)
        found = table((0,), moved, {}, 0, total_of(collection, moved, 0, centre.half, centre.shift))
        assert min(found.strengths.values()) >= 0
        counts, own = moved[0].counts, moved[0].signed[0]
        held, rest = counts.shares @ box, own.shares @ box
        more, noise = box @ own.covariance @ box, box @ counts.covariance @ box
        assert more > 0
        error = np.sqrt(more + (rest / held) ** 2 * noise) / abs(held)
        inside += abs(centre.mid + rest / held - value) < 1.96 * error
    assert inside >= 35
