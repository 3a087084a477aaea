"""Tents: the share rule, elimination without fill, and the errors that it promises."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InterfaceError, InternalError
from dpsql.matrices import covariance, mean_variance
from dpsql.matrices.intervals import IntervalVariance, factorise, interval_rows
from dpsql.mechanisms.axis.tents import graded_hats, half_widths, hat, level_starts, tents
from dpsql.mechanisms.offers import expected_error
from dpsql.tree import Workload
from tests.strategies import by_word, column_bound

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "central.json").read_text())


def real_tents(n, widths, shares=None):
    """The share rule (or given constant shares) without rounding: diag, start, stop, entry."""
    left, start, entry = np.ones(n), [], []
    for level in range(len(widths), 0, -1):
        h = widths[level - 1]
        for first in level_starts(n, h):
            share = shares[level - 1] if shares else left[first + h - 1] / (level + 1)
            start.append(first)
            entry.append(share * hat(h))
        for first, row in zip(
            start[-len(level_starts(n, h)) :], entry[-len(level_starts(n, h)) :], strict=True
        ):
            left[first : first + 2 * h - 1] -= row
    begin = np.array(start)
    return left, begin, begin + [len(row) for row in entry], np.concatenate(entry)


def neighbours(rows):
    p = len(rows.start)
    return [[m for m in range(k + 1, p) if rows.start[m] < rows.stop[k]] for k in range(p)]


def test_the_small_vector():
    wanted = VECTORS["tents"][0]
    diag, start, stop, entry = real_tents(8, (2,))
    assert diag == pytest.approx(wanted["d"])
    assert {str(a): entry[3 * i : 3 * i + 3].tolist() for i, a in enumerate(start)} == wanted["rows"]
    rows, _ = interval_rows(diag, start, stop, entry)
    factor = factorise(rows)
    assert factor.pivot == pytest.approx(wanted["pivots"], abs=1e-6)
    gains = [factor.gain[k, rows.slot[k + 1]] for k in range(2)]
    assert gains == pytest.approx(wanted["G"], abs=1e-7)
    model = IntervalVariance(rows)
    assert 2 * mean_variance(model) == pytest.approx(wanted["all_range_error"], abs=1e-9)
    for ends, value in wanted["V"].items():
        assert model.ranges(*map(int, ends.split(",")))[0] == pytest.approx(value, abs=1e-10)
    assert covariance(model, 1, 5, 3, 8)[0] == pytest.approx(wanted["cov"]["[1,5),[3,8)"], abs=1e-9)
    assert model.ranges(0, np.arange(1, model.n + 1)) == pytest.approx(wanted["P"], abs=1e-10)


def test_the_two_level_vector():
    wanted = VECTORS["tents"][1]
    diag, start, stop, entry = real_tents(16, (2, 5))
    assert 60 * diag == pytest.approx(wanted["d_times_60"])
    rows, order = interval_rows(diag, start, stop, entry)
    assert [f"{a}-{b - 1}" for a, b in zip(rows.start, rows.stop, strict=True)] == wanted[
        "rows_start_end_by_end"
    ]
    offset = np.cumsum(stop - start) - (stop - start)
    peaks = [60 * entry[offset[k] : offset[k] + stop[k] - start[k]].max() for k in order]
    assert peaks == pytest.approx(wanted["peaks_times_60"])
    assert neighbours(rows) == wanted["N"]
    assert factorise(rows).pivot == pytest.approx(wanted["pivots"], abs=1e-9)
    model = IntervalVariance(rows)
    assert 2 * mean_variance(model) == pytest.approx(wanted["all_range_error"], abs=1e-9)
    assert 2 * model.ranges(0, np.arange(1, model.n + 1)).mean() == pytest.approx(
        wanted["prefix_error"], abs=1e-9
    )
    for ends, value in wanted["V"].items():
        assert model.ranges(*map(int, ends.split(",")))[0] == pytest.approx(value, abs=1e-9)
    solver = IntervalVariance(rows, np.arange(9))
    x = solver.blue(np.append(np.arange(1.0, 17), np.arange(5.0, 14))[:, None])
    assert x[:, 0] == pytest.approx(wanted["blue"]["x"], abs=1e-9)


def test_integer_rows_of_the_vector():
    wanted = VECTORS["tents"][1]
    strategy = tents(16, (2, 5), total=wanted["integer_D"])
    rows = strategy.rows
    order = np.lexsort((rows.start[16:], rows.stop[16:]))
    sums = np.add.reduceat(rows.entry, rows.offset[:-1])[16:][order]
    assert sums.tolist() == wanted["integer_row_sums"]
    assert rows.entry[:16].tolist() == wanted["d_times_60"]
    assert [str(Fraction(1, level + 1)) for level in (1, 2)] == wanted["f"]


def test_one_level_of_constant_share():
    wanted = VECTORS["expected_error_all_ranges"]["tent"]["256"]
    rows, _ = interval_rows(*real_tents(256, (wanted["h"],), [wanted["w_constant"]]))
    error = 2 * mean_variance(IntervalVariance(rows))
    assert error <= wanted["error"] and error == pytest.approx(wanted["error"], rel=2e-3)


EXTRAS = [(0.0, 0.0, False), (0.2, 0.6, False), (0.0, 0.0, True), (0.35, 0.0, True)]


@given(st.integers(4, 300), st.integers(1, 3), st.sampled_from(EXTRAS))
def test_columns_add_up_to_the_total_exactly(n, levels, extras):
    widths, (root, left, graded) = half_widths(n, levels, 1.25), extras
    strategy = tents(n, widths, root=root, left=left, graded=graded)
    rows = strategy.rows
    assert np.all(rows.entry[:n] > 0)
    weighted = np.zeros(n, np.int64)
    cell = np.concatenate([np.arange(a, b) for a, b in zip(rows.start, rows.stop, strict=True)])
    np.add.at(weighted, cell, rows.entry)
    assert np.all(weighted == strategy.total)
    assert column_bound(strategy) == strategy.total


@pytest.mark.parametrize("n", [256, 1024, 4096, 16384])
def test_share_rule_figures(n):
    wanted = VECTORS["expected_error_all_ranges"]["tent"]["share_rule"][str(n)]
    levels = {256: 1, 1024: 2, 4096: 2, 16384: 3}[n]
    built = [tents(n, half_widths(n, levels, width)) for width in (1.2, 1.25, 1.3)]
    best = min(2 * mean_variance(strategy.solver) for strategy in built)
    assert best == pytest.approx(wanted, rel=0.003)


@pytest.mark.parametrize(("n", "widths", "bound"), [(256, (21,), 65.3), (4096, (19, 333), 203.4)])
def test_graded_tents_are_better_for_all_ranges(n, widths, bound):
    graded, even = (2 * mean_variance(tents(n, widths, graded=g).solver) for g in (True, False))
    assert graded <= bound and graded <= 0.995 * even


@pytest.mark.parametrize(("n", "h"), [(7, 2), (64, 11), (4096, 333)])
def test_graded_hats_cover_the_axis_symmetrically(n, h):
    start, rows = graded_hats(n, h)
    assert start[0] == 0 and start[-1] + len(rows[-1]) == n
    peaks = start + [int(np.argmax(row)) for row in rows]
    assert np.all(np.abs(peaks + peaks[::-1] - (n - 1)) <= 1)
    heights, lengths = np.array([row.max() for row in rows]), np.array([len(row) for row in rows])
    middle = (len(rows) + 1) // 2
    assert np.all(np.diff(heights[:middle]) >= 0) and np.all(heights <= 1)
    assert lengths[0] <= lengths[middle - 1] and abs(len(rows) + 1 - n / h) < 2
    total = np.zeros(n)
    for first, row in zip(start, rows, strict=True):
        total[first : first + len(row)] += row
    assert total.max() <= 1 + 1e-12


def test_hats_that_do_not_fit_are_refused():
    for widths in ((1,), (9,), (4, 3), (3, 3)):
        with pytest.raises(InterfaceError):
            tents(16, widths)
    for shares in ({"root": 1.0}, {"left": -0.1}):
        with pytest.raises(InterfaceError):
            tents(16, (2, 5), **shares)


def test_a_leaf_without_its_own_row_is_refused():
    with pytest.raises(InternalError):
        interval_rows(np.array([1.0, 0.0]), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


@given(st.integers(2, 40), st.integers(0, 12), st.integers(0, 2**32))
def test_any_interval_rows_equal_dense_least_squares(n, p, seed):
    random = np.random.default_rng(seed)
    start = random.integers(0, n, p)
    stop = np.minimum(n, start + random.integers(1, n + 1, p))
    entry = random.normal(size=int((stop - start).sum()))
    diag = random.random(n) + 0.2
    rows, order = interval_rows(diag, start, stop, entry)
    matrix, offset = np.diag(diag), np.cumsum(stop - start) - (stop - start)
    for k in order:
        row = np.zeros(n)
        row[start[k] : stop[k]] = entry[offset[k] : offset[k] + stop[k] - start[k]]
        matrix = np.vstack([matrix, row])
    covariance_ = np.linalg.inv(matrix.T @ matrix)
    lo, hi = np.triu_indices(n + 1)
    leaf = np.arange(n)
    masks = ((leaf >= lo[:, None]) & (leaf < hi[:, None])).astype(float)
    wanted = np.einsum("qi,ij,qj->q", masks, covariance_, masks)
    model = IntervalVariance(rows)
    assert model.ranges(lo, hi) == pytest.approx(wanted, abs=1e-8)
    assert model.quadratic(masks) == pytest.approx(wanted, abs=1e-8)
    y = random.normal(size=(n + p, 2))
    found = IntervalVariance(rows, np.arange(p)).blue(y)
    assert found == pytest.approx(covariance_ @ matrix.T @ y, abs=1e-8)


def test_tents_by_name_honour_what_is_asked():
    """Short ranges want narrow hats; without ranges the word gives the rule's graded tents as ever."""
    n, lo = 512, np.arange(500)
    short = Workload(lo, lo + 12, np.ones(500))
    plain, asked = by_word(n, "tents"), by_word(n, "tents", short)
    assert plain.name.startswith("graded tents")
    assert asked.name != plain.name
    assert asked.expected_error < 0.8 * expected_error(plain.strategy, short)
