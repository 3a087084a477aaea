"""Rows made for what is asked: their integers, their errors against the dense optimum, what units in more batches pay.

Figures are those of 60, 365 and 1,023 batches at mu^2 1, running totals, ranges, and windows of 1, 7 and 30.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dpsql.errors import InterfaceError
from dpsql.mechanisms import continual
from dpsql.mechanisms.continual import spectral
from dpsql.mechanisms.continual.spectral import spectral_strategy
from dpsql.mechanisms.continual.time_tree import StreamProblem, TimeStrategy, question_of, tree_strategy
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE
from dpsql.tree import FloatArray
from tests.thinned import by_default
from tests.time_forms import asking, ending, lasting, mean_error

KINDS = ("running", "range", "1", "7", "30")


def wanting(batches: int, *asked: str, ends: bool = True, units: int = 1, bits: int = 28) -> StreamProblem:
    """All kinds of question, of which some are asked."""
    every = tuple(question_of(kind, float(kind in (asked or KINDS))) for kind in KINDS)
    return StreamProblem(GAUSSIAN, batches, every, units, ends, bits)


def errors(question: StreamProblem) -> list[float]:
    strategy = continual.words()["spectral"](question).strategy
    return [mean_error(strategy, question.batches, asked.name) for asked in question.workload]


@pytest.mark.parametrize(
    ("batches", "asked", "wanted"),
    [
        (60, ("running",), (4.44, None, 2.50, 4.93, 6.67)),
        (60, ("range",), (4.80, 5.31, 2.12, 4.23, 6.29)),
        (60, (), (5.18, 5.46, 1.69, 4.05, 6.34)),
        (365, ("running",), (7.12, 10.3, 3.24, 6.34, 8.74)),
        (365, ("range",), (7.68, 9.61, 2.85, 5.60, 7.74)),
        (365, (), (9.47, 10.9, 1.78, 4.50, 7.33)),
        (365, ("1",), (23.1, 23.5, 1.08, 5.79, 13.9)),
        (365, ("7",), (18.9, 17.6, 2.23, 3.29, 8.90)),
        (365, ("30",), (13.8, 13.0, 2.59, 5.59, 5.70)),
        (1023, (), (12.4, 15.2, 1.84, 4.70, 7.79)),
    ],
)
def test_rows_reach_their_figures(batches: int, asked: tuple[str, ...], wanted: tuple[float, ...]) -> None:
    for found, figure in zip(errors(wanting(batches, *asked)), wanted, strict=True):
        assert figure is None or found <= 1.005 * figure


def questions(batches: int, weights: dict[str, float]) -> FloatArray:
    """V: the weighted mean of the questions' outer products."""
    prefix = np.vstack([np.zeros(batches), np.tril(np.ones((batches, batches)))])
    lo, hi = np.triu_indices(batches + 1, 1)
    ranges, found = prefix[hi] - prefix[lo], np.zeros((batches, batches))
    for kind, weight in weights.items():
        rows = {"running": ranges[lo == 0], "range": ranges}.get(kind)
        rows = ranges[hi - lo == int(kind)] if rows is None else rows
        found += weight * rows.T @ rows / len(rows)
    return found


def dense_optimum(v: FloatArray) -> float:
    """The least tr(V X^-1) max diag X, by the fixed point of its dual; within 1e-4 of the lower bound that it gives."""
    values, vectors = np.linalg.eigh(v)
    half = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    lam = np.ones(len(v)) / len(v)
    for _ in range(400):
        scaled = np.sqrt(lam)[:, None] * half
        inner, around = np.linalg.eigh(scaled @ scaled.T)
        lam = np.diag((around * np.sqrt(np.maximum(inner, 0))) @ around.T).copy()
    return float(lam.sum())


@pytest.mark.parametrize(
    ("asked", "above"),
    [
        (("running",), 1.03),
        (("range",), 1.03),
        (("1",), 1.01),
        (("7",), 1.01),
        (KINDS, 1.01),
        (("30",), 1.08),
    ],
)
def test_the_rule_is_near_the_dense_optimum(asked: tuple[str, ...], above: float) -> None:
    question = wanting(60, *asked)
    weights = dict(zip(KINDS, question.weights(), strict=True))
    best = dense_optimum(questions(60, weights))
    found = continual.words()["spectral"](question).expected_error
    assert best * (1 - 1e-3) <= found <= above * best


@pytest.mark.parametrize("batches", [1, 2, 5, 60, 365])
def test_columns_are_filled_and_never_above_their_norm(batches: int) -> None:
    """Squared column norms as whole numbers of any size, for every batch."""
    strategy = ending(batches, "running", "1")
    rows, factors = strategy.stored["rows"].tolist(), strategy.stored["factors"].tolist()
    norms = [factors[j] ** 2 * sum(c * c for c in rows[: batches - j]) for j in range(batches)]
    assert strategy.shares == (Fraction(1, max(norms)),) * 2
    assert min(norms) >= max(norms) * (1 - 2**-9)
    assert max(norms) <= sum(c * c for c in rows) << 24


def test_the_first_batches_tell_of_themselves_what_is_ever_told() -> None:
    """The inverse of the first rows is the leading block of the inverse of all: no answer changes later."""
    for strategy in (ending(40), lasting(10)):
        whole, part = strategy.variance(40), strategy.variance(13)
        lo, hi = np.triu_indices(14, 1)
        assert np.allclose(whole.ranges(lo, hi), part.ranges(lo, hi), rtol=1e-9)


def columns(strategy: TimeStrategy, batches: int, later: int) -> list[list[int]]:
    """What each batch adds to each of the numbers published until some time later, in whole numbers."""
    found = [[0] * (batches + later) for _ in range(batches)]
    for t in range(batches + later):
        (emission,) = strategy.emissions(t)
        assert emission.weights is not None
        for batch, weight in enumerate(emission.weights.tolist(), start=emission.lo):
            if batch < batches:
                found[batch][t] = weight
    return found


def paid(chosen: tuple[int, ...], meet: list[list[int]]) -> int:
    return sum(abs(meet[i][j]) for i in chosen for j in chosen)


def inner(columns: list[list[int]]) -> list[list[int]]:
    return [[sum(a * b for a, b in zip(one, other, strict=True)) for other in columns] for one in columns]


@pytest.mark.parametrize("batches", [4, 7, 10])
def test_every_set_of_batches_that_a_unit_may_be_in_pays_at_most_its_price(batches: int) -> None:
    """Each subset of up to four batches, by exact path sums of squares in whole numbers; one signed row included."""
    rows = np.array([7, -5, 3, -1, *[0] * (batches - 4)])
    signed = spectral_strategy(GAUSSIAN, rows, np.ones(batches, np.int64))
    cases: list[tuple[TimeStrategy, int]] = [(signed, 0)]
    for units in (1, 2, 4):
        known, lasts = ending(batches, "running", "range", "1", units=units), lasting(2, "running", "1")
        cases += [(known, 0), (lasts, lasts.stored["rows"].size)]
    for strategy, later in cases:
        meet = inner(columns(strategy, batches, later))
        for size in (1, 2, 3, 4):
            most = max(paid(chosen, meet) for chosen in combinations(range(batches), size))
            assert most * strategy.shares[0] <= strategy.price(size) <= size**2
        assert strategy.price(1) == 1


def test_planted_bugs_are_found() -> None:
    """A price of positive parts alone, of one neighbour too few, and a norm of the last column are all too low."""
    signed = spectral_strategy(GAUSSIAN, np.array([7, -5, 3, -1]), np.ones(4, np.int64))
    meet = inner(columns(signed, 4, 0))
    whole = max(paid(chosen, meet) for chosen in combinations(range(4), 2))
    positive = max(sum(max(meet[i][j], 0) for i in s for j in s) for s in combinations(range(4), 2))
    assert positive < whole <= signed.price(2) / signed.shares[0]
    lasts = lasting(4, "running")
    meet = inner(columns(lasts, 9, lasts.stored["rows"].size))
    run = paid(tuple(range(9)), meet)
    r = [meet[0][lag] for lag in range(9)]
    one_side = 9 * sum(sorted(map(abs, r), reverse=True)[:5])
    assert one_side < run <= lasts.price(9) / lasts.shares[0]
    known = ending(12, "running")
    last_column = int(known.stored["factors"][-1]) ** 2 * int(known.stored["rows"][0]) ** 2
    assert last_column < 1 / known.shares[0]


@pytest.mark.parametrize(
    ("units", "price", "least"), [(2, 2.78, 2.6), (4, 6.61, 3.6), (7, 12, 4.85), (30, 43.9, 11.7)]
)
def test_exact_participation(units: int, price: float, least: float) -> None:
    """Against blocks of 28 with all of a unit's rows in one node, the mean of questions weighed by importance."""
    every = tuple(question_of(kind, 1) for kind in ("prefix", *KINDS[1:]))
    question = StreamProblem(GAUSSIAN, 365, every, units, True)
    tree = tree_strategy(GAUSSIAN, (1, 28), (6, 4))
    before = sum(
        w * mean_error(tree, 365, asked.name) for w, asked in zip(question.weights(), every, strict=True)
    )
    choice = continual.words()["spectral"](question)
    assert float(choice.strategy.price(units)) <= price
    assert before / choice.expected_error >= least


def test_all_batches_of_a_unit_are_best_alone() -> None:
    assert continual.choose(wanting(60, units=60)).name == "each batch on its own"


def test_an_endless_stream_goes_on() -> None:
    """Windows err alike for ever; totals of ten horizons a fifth of what blocks give."""
    question = wanting(365, ends=False)
    strategy = continual.choose(question).strategy
    assert strategy.kind == "endless" and strategy.horizon is None
    model = strategy.variance(5000)  # past the table
    early, late = (float(model.ranges(start, start + 30)[0]) for start in (600, 4900))
    assert late == pytest.approx(early, rel=0.01)
    assert float(model.ranges(0, 3650)[0]) < 56
    assert float(tree_strategy(GAUSSIAN, (1, 28), (6, 4)).variance(3650).ranges(0, 3650)[0]) > 5 * 56
    table = strategy.variance(400)
    lo, hi = np.array([0, 3, 399]), np.array([400, 390, 400])
    masks = (np.arange(400) >= lo[:, None]) & (np.arange(400) < hi[:, None])
    assert np.allclose(table.quadratic(masks), table.ranges(lo, hi), rtol=1e-9)
    kept = strategy.needed(3000)
    assert len(kept) == strategy.stored["rows"].size == 4 * 365 and strategy.emissions(3000)[0].lo == kept[0]


@pytest.mark.parametrize(
    ("bits", "above"), by_default([(28, 1.001), (20, 1.005), (14, 1.011), (9, 1.025), (6, 1.03)], 2)
)
def test_coarser_whole_numbers_lose_little(bits: int, above: float) -> None:
    best = continual.choose(wanting(365)).expected_error
    coarse = continual.choose(wanting(365, bits=bits))
    rows, factors = coarse.strategy.stored["rows"], coarse.strategy.stored["factors"]
    largest = int(np.abs(rows).max()) * int(factors.max())
    assert largest < 1 << (bits + 1) and coarse.expected_error <= above * best


def test_refusals() -> None:
    named = continual.words()["spectral"]
    with pytest.raises(InterfaceError, match="Gaussian"):
        named(asking(LAPLACE, 60, "running"))
    with pytest.raises(InterfaceError, match="4096"):
        named(wanting(5000))
    with pytest.raises(InterfaceError, match="no room"):
        named(wanting(60, bits=1))
    refused = {refusal.name: refusal.reason for refusal in continual.choose(wanting(60, ends=False)).refused}
    assert set(refused) == {"fda", "prefix"} and "ends after 60" in refused["fda"]
    good = ending(4).frozen()
    for bad in ({**good, "rows": [0, 1, 1, 1]}, {**good, "factors": [1, 1, 1]}, {**good, "rows": [1 << 31, 1, 1, 1]},
                {**good, "factors": [1, 0, 1, 1]}, {"rows": [1 << 30] * 4, "factors": [2] * 4}):  # fmt: skip
        with pytest.raises(ValueError):
            continual.thaw("spectral", GAUSSIAN, bad)
    with pytest.raises(ValueError):
        continual.thaw("endless", GAUSSIAN, {"rows": [1 << 30] * 4})


def test_windows_alone_leave_the_rest_answerable() -> None:
    """Without the floor, rows for weeks alone leave totals unbounded."""
    week = errors(wanting(365, "7"))
    assert week[0] < 20 and week[3] < 3.3
    lone = spectral.ending_rows(asking(GAUSSIAN, 365, "7"), 1.0)
    assert mean_error(lone, 365, "prefix") < 200
