"""Every view competes: a data-dependent offer is taken up to 1.1 times the least error available without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import isfinite

import pytest

from dpsql.errors import CatalogError
from dpsql.mechanisms import designs
from dpsql.mechanisms.axis import AUTO
from dpsql.mechanisms.designs import Family, choose_families, product
from dpsql.mechanisms.designs.adaptive import ADAPTIVE, full_error, largest_error
from dpsql.mechanisms.designs.blocks import Blocks
from dpsql.mechanisms.designs.question import (
    DesignProblem,
    FamilyAxis,
    FamilyCandidate,
    FamilyView,
    Grains,
    NamedFamily,
    Proposal,
)
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution
from dpsql.mechanisms.offers import Offer, Refusal, Word
from tests.thinned import by_default


def table(
    law: NoiseDistribution, sizes: tuple[int, ...], *views: tuple[tuple[int, ...], Word, bool]
) -> DesignProblem:
    axes = tuple(FamilyAxis(f"x{i}", n, None, Grains(1 << 10, 1 << 8)) for i, n in enumerate(sizes))
    charge = {"count": Fraction(1, len(views))}
    named = tuple(
        FamilyView(f"v{i}", places, word, allows, charge, True, False)
        for i, (places, word, allows) in enumerate(views)
    )
    return DesignProblem("t", named, axes, law, False, False)


def refusals(family: Family) -> dict[str, str]:
    return {refusal.name: refusal.reason for refusal in family.choice.refused}


@pytest.mark.long
def test_one_axis_of_few_leaves_that_allows_selection_has_what_one_that_refuses_has() -> None:
    """On so few leaves a full axis cannot be told."""
    (refuse,) = choose_families(table(LAPLACE, (40,), ((0,), AUTO, False)))
    (allow,) = choose_families(table(LAPLACE, (40,), ((0,), AUTO, True)))
    strategies = [family.choice.strategy.views[0].axes[0].name for family in (refuse, allow)]
    assert strategies[0] == strategies[1]
    bound, least = largest_error(40), allow.choice.expected_error
    assert bound > 1.1 * least
    assert refusals(allow)["by noisy signal"] == (
        f"for v0 may have error {bound:.4g}, above 1.1 times the {least:.4g} available without it"
    )
    assert "`data_dependent: allow`" in refusals(refuse)["by noisy signal"]


@pytest.mark.long
@pytest.mark.parametrize("leaves", by_default([189, 1024], 1))
def test_a_signal_chooses_on_one_axis_of_pure_epsilon(leaves: int) -> None:
    question = table(LAPLACE, (leaves,), ((0,), AUTO, True))
    (family,) = choose_families(question)
    (_, least), *_ = family.choice.runners_up
    assert family.choice.strategy.measurement is ADAPTIVE
    assert least < family.choice.expected_error == full_error(leaves) <= 1.1 * least
    (view,) = question.views
    (unbiased,) = choose_families(replace(question, views=(view._replace(positive=False),)))
    assert unbiased.choice.strategy.measurement is not ADAPTIVE


def test_blocks_are_taken_on_a_plane_of_pure_epsilon_with_their_bound() -> None:
    (family,) = choose_families(table(LAPLACE, (256, 256), ((0, 1), AUTO, True)))
    assert isinstance(family.choice.strategy.measurement, Blocks)
    (_, least), *_ = family.choice.runners_up
    assert least < family.choice.expected_error <= 1.1 * least


@pytest.mark.parametrize(
    ("word", "name", "sizes"),
    [("blocks", "blocks", (256, 256)), ("signal", "by noisy signal", (40,)), ("diffhr", "DiffHR", (40,))],
)
def test_selection_is_refused_under_a_delta_by_name_and_unasked(
    word: str, name: str, sizes: tuple[int, ...]
) -> None:
    axes = tuple(range(len(sizes)))
    (family,) = choose_families(table(GAUSSIAN, sizes, (axes, AUTO, True)))
    assert family.choice.strategy.views[0].law == GAUSSIAN
    assert name in refusals(family)
    with pytest.raises(CatalogError, match=f"mechanism: {word} is for delta 0"):
        choose_families(table(GAUSSIAN, sizes, (axes, Word(word), False)))


@pytest.mark.parametrize(
    ("law", "word", "needed"),
    [
        (GAUSSIAN, "tents", "delta 0"),
        (GAUSSIAN, "struct_construct", "delta 0"),
        (LAPLACE, "gaussian", "delta above 0"),
    ],
)
def test_rows_of_the_other_law_are_refused_by_name(law: NoiseDistribution, word: str, needed: str) -> None:
    with pytest.raises(CatalogError, match=f"mechanism: {word} needs {needed}"):
        choose_families(table(law, (40,), ((0,), Word(word), False)))


class Selecting:
    """A data-dependent mechanism whose bound is a multiple of the product's error."""

    NAMED: dict[str, NamedFamily] = {}  # noqa: RUF012
    WHOLE = 0.0

    def __init__(self, times: float) -> None:
        self.times = times

    def offers(self, question: DesignProblem) -> Iterator[Proposal]:
        if not question.lets("selecting"):
            yield Refusal("selecting", "is for `data_dependent: allow`")
            return
        (offer,) = product.offers(question)
        assert isinstance(offer, Offer)
        made = offer.make()
        yield Offer("selecting", 0.0, lambda: FamilyCandidate(
            "selecting", made.strategy, lambda: self.times * made.error))  # fmt: skip


@pytest.mark.parametrize(("times", "taken"), [(1.09, True), (1.11, False)])
def test_the_bar_is_a_tenth(monkeypatch: pytest.MonkeyPatch, times: float, taken: bool) -> None:
    monkeypatch.setattr(designs, "DATA_DEPENDENT", (Selecting(times),))
    (family,) = choose_families(table(LAPLACE, (64,), ((0,), AUTO, True)))
    assert (family.choice.name == "selecting") == taken
    assert ("selecting" in refusals(family)) != taken
    assert isfinite(family.choice.expected_error)


def test_of_several_the_first_in_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Selecting(1.05), Selecting(1.0)
    monkeypatch.setattr(designs, "DATA_DEPENDENT", (first, second))
    (family,) = choose_families(table(LAPLACE, (64,), ((0,), AUTO, True)))
    (_, least), *_ = family.choice.runners_up
    assert family.choice.expected_error == pytest.approx(1.05 * least)


def test_the_family_of_the_rest_is_priced_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two views of one axis tell each other's totals; apart they lose that, and no bound below 1.1 makes up for it."""
    monkeypatch.setattr(designs, "DATA_DEPENDENT", (Selecting(1.0),))
    together = table(LAPLACE, (8, 8), ((0, 1), AUTO, True), ((0,), AUTO, False))
    alone = choose_families(table(LAPLACE, (8, 8), ((0, 1), AUTO, True)))
    assert alone[0].choice.name == "selecting"
    split = [
        sum(0.5**-1 * designs._independent(table(LAPLACE, (8, 8), view)).expected_error for view in views)
        for views in [(((0, 1), AUTO, False), ((0,), AUTO, False))]
    ]
    least = designs._independent(together).expected_error
    families = choose_families(together)
    assert (len(families) == 2) == (split[0] <= 1.1 * least)
    if len(families) == 1:
        assert f"{split[0]:.4g}, above" in refusals(families[0])["selecting"]


def test_of_two_views_one_may_leave_and_the_other_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(designs, "DATA_DEPENDENT", (Selecting(1.05),))
    families = choose_families(table(LAPLACE, (64, 64), ((0,), AUTO, False), ((1,), AUTO, True)))
    assert [[view.name for view in family.question.views] for family in families] == [["v0"], ["v1"]]
    assert [family.choice.name == "selecting" for family in families] == [False, True]
