"""Centres, totals, shares and low bounds of the user-level recipe."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt, prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql import api
from dpsql.budget import scaled_denominator
from dpsql.contributions import recipe
from dpsql.contributions.constants import LOW_QUANTILES, ROW_ENDS
from dpsql.contributions.histogram import (
    NoisyHistogram,
    NoisyTotal,
    PeopleEstimate,
    centre,
    last_clear,
    pooled,
    spread,
)
from dpsql.contributions.recipe import CLIPPINGS
from dpsql.contributions.selection import (
    LARGEST_BOUND,
    ContributionHistogram,
    counts_of,
    low_quantile,
    recipe_shares,
)
from dpsql.contributions.statements import (
    LARGEST_PURE,
    UNIT,
    WhitenedStatistic,
    pure_bound,
    typical_square,
    whiten,
)
from dpsql.errors import InternalError
from dpsql.mechanisms.designs.weighted_leaves import ONE_LEVEL, shape_strategy
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, LAWS
from dpsql.mechanisms.offers import draw_view
from dpsql.noise import ZeroNoise
from tests.strategies import dense
from tests.userlevel_star import Row, open_table, write_star


@pytest.mark.parametrize("law", CLIPPINGS)
@pytest.mark.parametrize("public_rows", [True, False])
@pytest.mark.parametrize("measures", [[], ["a"], ["a", "b", "c"]])
def test_shares_add_to_one_exactly(measures, public_rows, law):
    steps, views = recipe_shares(CLIPPINGS[law].shares, measures, public_rows=public_rows)
    assert sum(steps.values(), Fraction(0)) + views == 1
    assert all(share > 0 for share in steps.values())
    least = Fraction(79 if law == GAUSSIAN else 80, 100)
    assert views >= least
    if measures and not public_rows:
        assert views == least


@pytest.mark.parametrize(
    ("total", "rows", "ends", "expected"),
    [
        (250_000, 1000, (0, 1000), 250), (-5, 1000, (0, 1000), 20), (10**9, 1000, (0, 1000), 980),
        (-4000, 1000, (-100, 100), -4), (999, 20, (0, 1000), 500),
    ],
)  # fmt: skip
def test_the_centre_stays_inside_the_clip_range(total, rows, ends, expected):
    assert centre(NoisyTotal(total, 1.0, 9), NoisyTotal(rows, 10.0, 3), *ends) == expected


def test_pooling_is_the_inverse_variance_mean():
    found = pooled([PeopleEstimate(10.0, 1.0), PeopleEstimate(13.0, 2.0)])
    assert found.value == pytest.approx(10.6) and found.sd == pytest.approx(0.8**0.5)


@given(st.integers(-1000, 1000), st.integers(1, 2000), st.data())
def test_a_deviation_is_below_its_bound(lower, width, data):
    mid = data.draw(st.integers(lower, lower + width))
    assert 1 <= spread(mid, lower, lower + width) <= max(1, width // 2)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("n", [1, 12, ONE_LEVEL, ONE_LEVEL + 1, 366])
def test_a_shape_has_unit_columns_and_covers_every_leaf(n, norm):
    strategy = shape_strategy(n, LAWS[norm]).strategy
    columns = (np.abs(dense(strategy) * strategy.budget[:, None]) ** norm).sum(axis=0)
    assert columns.min() > 0 and columns.max() <= strategy.total**norm
    assert len(strategy.budget) == n if n <= ONE_LEVEL else len(strategy.budget) < n + 2 * n**0.5


def test_a_typical_person_pays_for_rows_that_gather_hers():
    leaves, levels = shape_strategy(100, GAUSSIAN).strategy, shape_strategy(101, GAUSSIAN).strategy
    assert typical_square([leaves], [False], 10) == 10 + Fraction(100, 100)
    assert typical_square([leaves], [True], 10) == 110
    assert typical_square([leaves, leaves], [False, True], 10) == 10 + Fraction(100, 100)
    assert typical_square([levels], [False], 10) > 10 + Fraction(100, 101)


def test_shapes_without_budget_are_refused():
    with pytest.raises(InternalError):
        whiten(
            [WhitenedStatistic(Fraction(2, 3), Fraction(1)), WhitenedStatistic(Fraction(1, 2), Fraction(1))]
        )
    with pytest.raises(InternalError):
        whiten([WhitenedStatistic(Fraction(0), Fraction(1))])
    assert pure_bound(10, 1850, 493) == 493 * 12
    assert pure_bound(1, 3, 100) == 3


def owned(people: list[int]) -> ContributionHistogram:
    """Rows per unit, without noise worth the name."""
    value = np.array([*people, *[0] * (len(ROW_ENDS) + 1 - len(people))])
    return ContributionHistogram(NoisyHistogram(ROW_ENDS, value, 1.0))


@pytest.mark.parametrize("law", CLIPPINGS)
def test_the_low_bound_weighs_noise_against_what_is_left_out(tmp_path, law):
    """rel^2 + out^2 over eight quantiles, by the sum itself; never off the grid, whatever histograms show."""
    table = open_table(write_star(tmp_path, [], {}, delta="0" if law == LAPLACE else "1e-6"), ZeroNoise())
    rng = np.random.default_rng(1)
    starts = (0, *ROW_ENDS)
    middles = np.array(
        [((start + 1) * end) ** 0.5 for start, end in zip(starts, ROW_ENDS, strict=False)] + [2.0**15]
    )
    for _ in range(30):
        people = owned((rng.pareto(1.0, rng.integers(2, 12)) * 10 ** rng.uniform(0, 4)).astype(int).tolist())
        rows = float(rng.integers(0, 10**6))
        share = low_quantile(table.plan, "sales", people, rows, lambda s, tau: float(tau * 40))
        assert share in LOW_QUANTILES
        value, losses = people.histogram.value, {}
        last = last_clear(people.histogram)
        kept_people = np.where((np.arange(len(value)) <= last + 1) & (value >= 2), value, 0)
        cells = [prod(table.plan.shape(s)) for s in counts_of(table.statistics).values()]
        for q in LOW_QUANTILES:
            tau = people.quantile(q)
            kept = float(kept_people @ np.minimum(middles, tau))
            if kept > 0:
                out = 1 - kept / max(rows, float(kept_people @ middles), kept)
                noise = float(np.median([(tau * 40) ** 0.5 * each / kept for each in cells]))
                losses[q] = noise**2 + out**2
        if losses:
            assert losses[share] == pytest.approx(min(losses.values()))
    assert low_quantile(table.plan, "sales", owned([0]), 0.0, lambda s, tau: 1.0) == 0.9


def test_noise_lowers_the_bound_and_what_is_left_out_raises_it(tmp_path):
    table = open_table(write_star(tmp_path, [], {}), ZeroNoise())
    people = owned([100, 200, 300, 300, 200, 100, 50, 20])
    quiet, loud = (
        low_quantile(table.plan, "sales", people, 0.0, lambda s, tau, size=size: size * tau**2)
        for size in (0.01, 100.0)
    )
    assert quiet == 0.99 > loud


def test_far_quantiles_are_read_off_bins_up_to_the_last_clear_one():
    """Three people in a bin of 8,192 rows and 40 in the next: a tenth of all, and none of them is read."""
    people = [30, 60, 75, 30, 75, 8]
    clear, noisy = (
        ContributionHistogram(NoisyHistogram(ROW_ENDS, np.array([*people, *far]), 4.0))
        for far in ([0] * 14, [0] * 10 + [11, 15, 0, 0])
    )
    assert clear.tail.last == noisy.tail.last == 4
    for share in (0.95, 0.98, 0.99):
        assert noisy.quantile(share) == clear.quantile(share) <= 8.0
    assert noisy.quantile(0.9) != clear.quantile(0.9)


def test_no_released_choice_can_make_a_draw_fail():
    """The largest rows, tau and spread that a catalog allows still leave the noise its 64 bits."""
    reach, tau = 1 << 30, 1 << 15
    for mu2 in (Fraction(1, 10**4), Fraction(1)):
        parts = [
            WhitenedStatistic(Fraction(1, 2), Fraction(tau**2)),
            WhitenedStatistic(Fraction(1, 2), Fraction(tau**2) * (reach // 2) ** 2),
        ]
        whitening = whiten(parts)
        for index in range(2):
            variance = whitening.variance(index, whitening.largest_clip(mu2), mu2)
            assert isqrt(int(variance)) + 1 < (1 << 63) // 512
    assert scaled_denominator(UNIT * pure_bound(tau, reach, reach // 2)) >= 1 << 12
    assert scaled_denominator(LARGEST_BOUND) >= 1 << 12
    assert scaled_denominator(UNIT * LARGEST_PURE) >= 1 << 12


@pytest.mark.parametrize("axes", [[101], [366, 101]])
def test_long_axes_leave_the_clip_of_sums_of_cents_alone(axes):
    """Sums that average 160.00, at (1, 1e-9): noise of 64 bits has room for norms far beyond the typical one."""
    strategies = [shape_strategy(n, GAUSSIAN).strategy for n in axes]
    size = typical_square(strategies, [False] * len(axes), 16)
    total = prod(strategy.total for strategy in strategies)
    whitening = whiten([WhitenedStatistic(Fraction(1, 2), size * value**2, total) for value in (1, 16_000)])
    assert whitening.largest_clip(Fraction(16, 1000)) > 1000 << whitening.point


@pytest.mark.parametrize("delta", ["1e-6", "0"])
def test_the_expected_noise_is_that_of_the_draw(tmp_path, delta):
    """Under a delta at the norm of a typical unit: a spend of mu^2, not of rho."""
    table = open_table(write_star(tmp_path, [], {}, delta=delta), ZeroNoise()).centred({"sales.amount": 1000})
    shape, tau = CLIPPINGS[table.law], 8
    if table.law == GAUSSIAN:
        whitening = whiten(recipe.whitened_parts(table, tau))
        spend = sum((s.spend for s in table.statistics.values()), Fraction(0))
        draw = recipe.whitened_draw(table, whitening, 1 << whitening.point, spend)
    for i, statistic in table.statistics.items():
        zeros = np.zeros(table.plan.shape(statistic), np.int64)
        if table.law == GAUSSIAN:
            drawn = draw(i, zeros).view.variance_at_unit_budget / UNIT**2
        else:
            strategies = table.plan.strategies(statistic)
            reach = UNIT * recipe.pure_reach(statistic, tau)
            drawn = (
                draw_view(zeros, strategies, statistic.spend, reach, ZeroNoise()).variance_at_unit_budget
                / UNIT**2
            )
        assert shape.cell_variance(table.plan, statistic, tau) == pytest.approx(drawn, rel=0.01)


# `max_ids: auto` with a measure that may be NULL: rows where it is known have no total of their own that was measured.


WHOLE = """SELECT COUNT(*) - COUNT(amount) AS missing, COUNT(amount) * 1.0 / COUNT(*) AS known,
    COUNT(amount) AS of_known, COUNT(*) AS n, AVG(amount) AS mean FROM sales"""


def star(folder: Path) -> tuple[Path, list[Row]]:
    """1,500 customers with 1 to 8 rows, a sixth of which have no amount."""
    chance = np.random.default_rng(7)
    rows: list[Row] = [
        (
            owner,
            None if chance.random() < 1 / 6 else float(chance.integers(1, 100)),
            int(chance.integers(1, 13)),
        )
        for owner in range(1500)
        for _ in range(min(int(chance.geometric(0.4)), 8))
    ]
    return write_star(folder, rows, {owner: "nsw"[owner % 3] for owner in range(1500)}, nullable=True), rows


def test_the_rows_where_a_measure_is_known_have_an_error_of_their_own(tmp_path, publishes):
    catalog, _ = star(tmp_path)
    answer = api.query(WHOLE, api.publish(catalog, tmp_path / "shop.dpsql").path)
    (missing, known, of_known, n, _), (off_missing, off_known, off_of_known, *_) = (
        answer.rows[0],
        answer.stderr_rows[0],
    )
    # the difference is at least as uncertain as the share, times the rows; both errors were 0, or nearly so
    assert off_known > 0.002 and off_missing > 0.5 * off_known * n
    assert known == pytest.approx(of_known / n) and missing == pytest.approx(n - of_known)
    assert off_of_known > off_known * n / 2
    lines = "\n".join(answer.notes)
    assert (
        "counted and scaled up" in lines
        and "sums of count(" not in lines
        and "averages of count(" not in lines
    )


@pytest.mark.slow
def test_what_is_missing_lies_in_its_interval(tmp_path, publishes):
    """Of 60 releases at 95% fewer than 51 would hold once in 10,000 times."""
    catalog, rows = star(tmp_path)
    amounts = [amount for _, amount, _ in rows if amount is not None]
    truth = (
        len(rows) - len(amounts),
        len(amounts) / len(rows),
        len(amounts),
        len(rows),
        sum(amounts) / len(amounts),
    )
    held = np.zeros(5)
    catalog.write_text(catalog.read_text().replace("cap: 10,", "cap: 1000,"))
    for number in range(60):
        low, high = api.query(WHOLE, api.publish(catalog, tmp_path / f"{number}.dpsql").path).interval_rows(
            0.95
        )
        ends = zip(low[0], high[0], truth, strict=True)
        held += [(a is None or a <= exact) and (b is None or exact <= b) for a, b, exact in ends]
    assert held.min() >= 51, held
