"""Counts of rows with and without NULL: what is drawn, how large its noise is, and how two counts err together."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InternalError
from dpsql.matrices.strategy import axis_budgets
from dpsql.mechanisms.axis import auto_strategy
from dpsql.mechanisms.designs.measurement import DrawParameters
from dpsql.mechanisms.designs.question import draw_together, drawn_numbers, joint_laws
from dpsql.mechanisms.distribution import Laplace
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy
from dpsql.tree import Exact
from tests.strategies import by_word

CELLS, EPSILON = 20_000, Fraction(1, 2)
ALONE = ["count", "x", "count(x)"]
BESIDE = ["x", "count(y)", "count", "count(x)", "y"]


def terms_of(names: list[str], strategies, *, indicators: bool = True) -> list[DrawParameters]:
    """Three rows a person; x moves by up to 30, y by up to 600."""
    laws = joint_laws(names, indicators=indicators)
    bounds = {"x": 30, "y": 600}
    sensitivities = [bounds.get(n, 3) * (2 if law.halves else 1) for n, law in zip(names, laws, strict=True)]
    laws = [Laplace(law.numbers, max(sensitivities), law.apart, law.counts) for law in laws]
    return [DrawParameters(strategies, law, EPSILON, s) for law, s in zip(laws, sensitivities, strict=True)]


def drawn(names: list[str], cells: dict[str, np.ndarray], noise) -> dict[str, np.ndarray]:
    """Statistics over leaves that are measured one by one, counts of values in rows."""
    terms = terms_of(names, [by_word(len(cells["count"]), "identity").strategy])
    views = draw_together([Exact(cells[name]) for name in names], terms, noise)
    halves = {name: 2 if t.law.halves else 1 for name, t in zip(names, terms, strict=True)}
    return {n: view.value / halves[n] for n, view in zip(names, views, strict=True)}


@pytest.mark.parametrize("names", [ALONE, BESIDE, ["count", "count(x)"]])
def test_without_noise_statistics_are_the_exact_ones(names: list[str]) -> None:
    rng = np.random.default_rng(1)
    cells = {"count": rng.integers(50, 90, 8), "x": rng.integers(-99, 99, 8), "y": rng.integers(-99, 99, 8)}
    cells |= {"count(x)": rng.integers(0, 50, 8), "count(y)": rng.integers(0, 50, 8)}
    values = drawn(names, cells, ZeroNoise())
    assert all(np.array_equal(values[name], cells[name]) for name in names)


@pytest.mark.parametrize("names", [ALONE, BESIDE])
def test_noise_has_the_variances_and_covariances_that_are_stated(names: list[str]) -> None:
    zeros = dict.fromkeys(("count", "x", "y", "count(x)", "count(y)"), np.zeros(CELLS, np.int64))
    values = drawn(names, zeros, ExactNoise(insecure_test_entropy(7)))
    (t, *_), laws = terms_of(names, [by_word(CELLS, "identity").strategy]), joint_laws(names, indicators=True)
    widening = {n: law.widening for n, law in zip(names, laws, strict=True)}
    # of a count by a draw of its own
    unit = Laplace(2, 600).variance_at_unit_budget(axis_budgets(t.strategies), EPSILON, 3) / 2
    covariances = {("count", "count(x)"): widening["count(x)"] if names is ALONE else widening["count"] / 2}
    covariances |= {
        ("count", "count(y)"): widening["count"] / 2,
        ("count(x)", "count(y)"): widening["count"] / 4,
    }
    for a in names:
        for b in names:
            scale = [{"x": 10, "y": 200}.get(name, 1) for name in (a, b)]
            stated = widening[a] if a == b else covariances.get((a, b), covariances.get((b, a), 0.0))
            measured = float(np.mean(values[a] / scale[0] * values[b] / scale[1])) / unit
            # Fourth moments of these laws are below 7 squared variances: eight standard errors at least.
            assert measured == pytest.approx(stated, abs=20 * np.sqrt(widening[a] * widening[b] / CELLS))


def test_variances_are_a_part_of_those_of_split_budgets() -> None:
    """4, 4 and 6 where three draws of a third of epsilon each have 18."""
    axes = axis_budgets([auto_strategy(64).strategy])
    variances = {}
    for t, name in zip(terms_of(ALONE, [auto_strategy(64).strategy]), ALONE, strict=True):
        split = Laplace().variance_at_unit_budget(axes, EPSILON / 3, t.sensitivity)
        variances[name] = t.law.variance_at_unit_budget(axes, EPSILON, t.sensitivity) / split
    assert variances == pytest.approx({"count": 6 / 18, "count(x)": 4 / 18, "x": 4 / 18}, rel=0.01)


def test_where_rows_are_not_counted_or_noise_is_drawn_ahead_nothing_changes() -> None:
    plain = [Laplace(2)] * 2
    assert joint_laws(["x", "count(x)"], indicators=True) == plain
    assert joint_laws(["count", "count(x)"], indicators=False) == plain
    assert joint_laws(["count", "x"], indicators=True) == plain
    assert drawn_numbers(plain).draws == ((0, 1),)


def test_numbers_of_two_laws_are_refused() -> None:
    strategies = [by_word(4, "identity").strategy]
    terms = terms_of(ALONE, strategies)
    with pytest.raises(InternalError):
        draw_together(
            [Exact(np.zeros(4, np.int64))] * 2, [terms[0], terms[1]._replace(spend=Fraction(1))], ZeroNoise()
        )
    with pytest.raises(InternalError):
        Laplace(3, apart=True).draw_together([], [], EPSILON, [], ZeroNoise())
