"""Subtraction, the choice between strategies, and the figures they must reach."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InterfaceError, InternalError
from dpsql.mechanisms import continual
from dpsql.mechanisms.continual import prefixes
from dpsql.mechanisms.continual.prefixes import fda_strategy, node_budgets
from dpsql.mechanisms.continual.time_tree import UNIT, TimeStrategy, question_of, tree_strategy
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution
from tests.thinned import by_default
from tests.time_forms import asking, mean_error

pytestmark = pytest.mark.long

LAWS = pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN], ids=lambda law: str(law.name))


@pytest.mark.parametrize(
    ("horizon", "arity", "levels"), [(1, 3, 1), (4, 3, 2), (60, 5, 3), (200, 7, 3), (365, 11, 2)]
)
def test_subtraction_reads_exactly_the_prefix(horizon: int, arity: int, levels: int) -> None:
    nodes = prefixes.subtraction_nodes(horizon, arity, levels)
    batch = np.arange(int(nodes.hi.max()))
    cover = (nodes.lo[:, None] <= batch) & (batch < nodes.hi[:, None])
    length = np.arange(horizon + 1)[:, None]
    read = nodes.sign * ((nodes.first <= length) & (length < nodes.stop))
    assert (read @ cover == (batch < length)).all()
    inside = nodes.parent >= 0
    up = nodes.parent[inside]
    assert (nodes.lo[up] <= nodes.lo[inside]).all() and (nodes.hi[inside] <= nodes.hi[up]).all()
    budget = prefixes.subtraction_strategy(LAPLACE, horizon, arity, levels).stored["budget"]
    assert (cover.T @ budget <= UNIT).all()  # the budget holds even where a middle node is skipped
    assert (budget == node_budgets(nodes, LAPLACE)).all()


@pytest.mark.parametrize(("arity", "levels"), [(4, 2), (1, 2), (3, 0)])
def test_subtraction_refuses(arity: int, levels: int) -> None:
    with pytest.raises(ValueError, match="odd arity"):
        prefixes.subtraction_nodes(10, arity, levels)


def test_frozen_budgets_above_the_whole_are_refused() -> None:
    good = prefixes.subtraction_strategy(LAPLACE, 60, 5, 3).frozen()
    for bad in ([b + 1 for b in good["budget"]], good["budget"][:-1], [0, *good["budget"][1:]]):
        with pytest.raises(ValueError, match="budget"):
            continual.thaw("prefix", LAPLACE, {**good, "budget": bad})
    kept = fda_strategy(LAPLACE, 6).frozen()
    for part in ("corners", "blocks"):
        for bad in ([*kept[part], 1], [UNIT + 1] * len(kept[part]), [0] * len(kept[part])):
            with pytest.raises(ValueError, match="parts"):
                continual.thaw("fda", LAPLACE, {**kept, part: bad})
    with pytest.raises(InternalError, match="called"):
        continual.thaw("time_tree", LAPLACE, {})


def test_figures_of_the_prefix_strategies() -> None:
    def prefix(law: NoiseDistribution, horizon: int) -> float:
        strategy = prefixes.best_subtraction(asking(law, horizon, "prefix"))
        return mean_error(strategy, horizon, "running")

    assert prefix(LAPLACE, 1023) <= 160
    assert prefix(LAPLACE, 65535) <= 560
    assert prefix(GAUSSIAN, 1023) <= 24.5
    assert mean_error(fda_strategy(LAPLACE, 1023), 1023, "running") == pytest.approx(435.5, abs=0.05)
    assert mean_error(fda_strategy(GAUSSIAN, 1023), 1023, "running") == pytest.approx(31.5, abs=0.05)
    assert np.allclose(year_errors(fda_strategy(LAPLACE, 365)), [307, 551, 141, 469], atol=0.5)


def year_errors(strategy: TimeStrategy) -> list[float]:
    return [mean_error(strategy, 365, name) for name in ("prefix", "range", "1", "30")]


def test_figures_of_the_time_axis_of_a_year() -> None:
    blocks = np.array(year_errors(tree_strategy(LAPLACE, (1, 28), (6, 4))))
    assert (blocks <= [100, 97, 6, 61]).all()
    assert np.allclose(year_errors(tree_strategy(LAPLACE)), [366, 245, 2, 60], atol=1)


def shipped(law: NoiseDistribution, horizon: int, *asked: str) -> dict[str, float]:
    """Every candidate by its name, trees one by one, with its mean error over the questions."""
    question = asking(law, horizon, *asked)
    trees = [
        tree_strategy(law),
        *(tree_strategy(law, (1, span), (6, 4)) for span in (7, 28) if 2 * span <= horizon),
    ]
    rest: list[TimeStrategy] = [
        fda_strategy(law, horizon), prefixes.best_subtraction(question),
    ]  # fmt: skip
    return {s.name: question.candidate(s).error for s in (*trees, *rest)}


@LAWS
@pytest.mark.parametrize("horizon", by_default([12, 60, 365, 1023], 1))
@pytest.mark.parametrize("asked", [("prefix",), ("range",), ("running",), ("1",), ("running", "range", "7")])
def test_auto_is_the_least_of_all_that_ship(
    law: NoiseDistribution, horizon: int, asked: tuple[str, ...]
) -> None:
    choice = continual.choose(asking(law, horizon, *asked))
    assert choice.expected_error <= min(shipped(law, horizon, *asked).values()) * (1 + 1e-12)
    assert choice.expected_error == asking(law, horizon, *asked).candidate(choice.strategy).error
    errors = [choice.expected_error, *(error for _, error in choice.runners_up)]
    assert errors == sorted(errors) and len(errors) + len(choice.refused) == 5
    gaussian = {"spectral"} if law == LAPLACE else set()
    assert {refusal.name for refusal in choice.refused} == gaussian | (
        set() if horizon >= 8 else {"blocks of batches"}
    )


@pytest.mark.parametrize(
    ("horizon", "asked", "law", "kind"),
    [
        (365, ("running",), LAPLACE, "prefix"),
        (365, ("prefix",), LAPLACE, "tree"),
        (365, ("range",), LAPLACE, "tree"),
        (365, ("1",), LAPLACE, "tree"),
        (365, ("prefix",), GAUSSIAN, "spectral"),
        (365, ("1",), GAUSSIAN, "tree"),
        (365, ("running", "range", "1", "30"), LAPLACE, "tree"),
        (30, ("range",), GAUSSIAN, "spectral"),
    ],
)
def test_auto_takes(horizon: int, asked: tuple[str, ...], law: NoiseDistribution, kind: str) -> None:
    assert continual.choose(asking(law, horizon, *asked)).strategy.kind == kind


def test_a_day_alone_is_measured_alone_and_short_streams_have_no_blocks() -> None:
    assert continual.choose(asking(LAPLACE, 365, "1")).name == "each batch on its own"
    assert "blocks of batches" in [
        each.name for each in continual.choose(asking(LAPLACE, 7, "range")).refused
    ]


def test_long_streams_take_strategies_with_small_models() -> None:
    choice = continual.choose(asking(GAUSSIAN, 8760, "running"))
    assert choice.strategy.horizon is None
    assert {refusal.name for refusal in choice.refused} == {
        "fda",
        "prefix",
        "spectral",
    }


def test_fda_is_the_best_of_strategies_that_publish_nodes_only() -> None:
    """Equal budgets for the same nodes err by 1,001; subtraction, which draws noise ahead, beats both."""
    choice = continual.choose(asking(LAPLACE, 1023, "prefix"))
    errors = {choice.name: choice.expected_error, **dict(choice.runners_up)}
    assert errors["prefix over 1023 batches"] < errors["fda over 1023 batches"] < 1001


def test_a_strategy_that_asks_less_for_a_unit_wins_by_it() -> None:
    """The objective counts what a unit in several batches pays."""

    cheap = replace(tree_strategy(LAPLACE), price=lambda batches: Fraction(1))
    question = asking(LAPLACE, 30, "range")
    many = type(question)(question.law, question.batches, question.workload, units=4)
    assert many.candidate(cheap).error == pytest.approx(question.candidate(tree_strategy(LAPLACE)).error / 16)
    assert many.candidate(tree_strategy(LAPLACE)).error == question.candidate(tree_strategy(LAPLACE)).error


@LAWS
@pytest.mark.parametrize("word", ["auto", "tree", "fda", "prefix", "spectral"])
def test_the_words_of_the_catalog(word: str, law: NoiseDistribution) -> None:
    named, question = continual.words()[word], asking(law, 200, "running")
    if word == "spectral" and law == LAPLACE:
        with pytest.raises(InterfaceError, match="delta"):
            named(question)
        return
    choice = named(question)
    wanted = {"auto": "prefix" if law == LAPLACE else "spectral"}.get(word, word)
    assert choice.strategy.kind == wanted and choice.expected_error > 0
    assert (word in continual.ALIKE) == (word not in ("auto", "tree", "prefix", "spectral"))


def test_weights_count() -> None:
    question = asking(LAPLACE, 365, "running", "1")
    heavy = type(question)(LAPLACE, 365, (question_of("running", 1), question_of("1", 1000)))
    assert continual.choose(heavy).name == "each batch on its own" != continual.choose(question).name


def test_refusals() -> None:
    for spans, budgets in (((2,), (1,)), ((1, 3, 4), (1, 1, 1)), ((1, 2), (1,)), ((1, 2), (1, 0)), ((), ())):
        with pytest.raises(ValueError):
            tree_strategy(LAPLACE, spans, budgets)
    with pytest.raises(ValueError, match="horizon"):
        fda_strategy(LAPLACE, 0).variance(0)
    with pytest.raises(ValueError):
        fda_strategy(LAPLACE, 3, (1,), (1,))
    with pytest.raises(ValueError):
        question_of("weekly", 1)
