"""Every view competes: a data-dependent offer is taken up to 1.1 times the least error available without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from math import isfinite

import pytest

from dpsql.errors import CatalogError
from dpsql.mechanisms.axis import AUTO
from dpsql.mechanisms.axis.strategy import Word
from dpsql.mechanisms.designs import product, registry
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
from dpsql.mechanisms.designs.registry import Family, choose_families
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution
from dpsql.mechanisms.offers import Offer, Refusal

PURE, ZCDP = (LAPLACE,), (GAUSSIAN, LAPLACE)


def table(
    laws: tuple[NoiseDistribution, ...], sizes: tuple[int, ...], *views: tuple[tuple[int, ...], Word, bool]
) -> DesignProblem:
    axes = tuple(FamilyAxis(f"x{i}", n, None, Grains(1 << 10, 1 << 8)) for i, n in enumerate(sizes))
    charge = {"count": Fraction(1, len(views))}
    named = tuple(
        FamilyView(f"v{i}", places, word, allows, charge, True, False)
        for i, (places, word, allows) in enumerate(views)
    )
    return DesignProblem("t", named, axes, laws, False, False)


def refusals(family: Family) -> dict[str, str]:
    return {refusal.name: refusal.reason for refusal in family.choice.refused}


@pytest.mark.long
@pytest.mark.parametrize(
    ("laws", "leaves", "worst"),
    [(PURE, 40, largest_error), (ZCDP, 40, largest_error), (ZCDP, 1024, full_error)],
)
def test_one_axis_that_allows_selection_has_what_one_that_refuses_has(
    laws: tuple[NoiseDistribution, ...], leaves: int, worst: Callable[[int], float]
) -> None:
    """Under a delta, and on so few leaves that a full axis cannot be told."""
    (refuse,) = choose_families(table(laws, (leaves,), ((0,), AUTO, False)))
    (allow,) = choose_families(table(laws, (leaves,), ((0,), AUTO, True)))
    strategies = [family.choice.strategy.views[0].axes[0].name for family in (refuse, allow)]
    assert strategies[0] == strategies[1]
    bound = worst(leaves) * table(laws, (1,), ((0,), AUTO, True)).price(LAPLACE)
    least = allow.choice.expected_error
    assert bound > 1.1 * least
    assert refusals(allow)["by noisy signal"] == (
        f"for v0 may have error {bound:.4g}, above 1.1 times the {least:.4g} available without it"
    )
    assert "`data_dependent: allow`" in refusals(refuse)["by noisy signal"]


@pytest.mark.long
@pytest.mark.parametrize("leaves", [189, 1024])
def test_a_signal_chooses_on_one_axis_of_pure_epsilon(leaves: int) -> None:
    question = table(PURE, (leaves,), ((0,), AUTO, True))
    (family,) = choose_families(question)
    (_, least), *_ = family.choice.runners_up
    assert family.choice.strategy.measurement is ADAPTIVE
    assert least < family.choice.expected_error == full_error(leaves) <= 1.1 * least
    (view,) = question.views
    (unbiased,) = choose_families(replace(question, views=(view._replace(positive=False),)))
    assert unbiased.choice.strategy.measurement is not ADAPTIVE


@pytest.mark.long
def test_the_view_of_the_complaint() -> None:
    """1,024 leaves under a delta: noisy signal errs by 26.6 at least where the dense optimum has 12.4."""
    (family,) = choose_families(table(ZCDP, (1024,), ((0,), AUTO, True)))
    assert family.choice.strategy.views[0].law == GAUSSIAN
    assert family.choice.expected_error == pytest.approx(12.4, abs=0.1)


def test_blocks_are_taken_on_a_plane_of_pure_epsilon_with_their_bound() -> None:
    (family,) = choose_families(table(PURE, (256, 256), ((0, 1), AUTO, True)))
    assert isinstance(family.choice.strategy.measurement, Blocks)
    (_, least), *_ = family.choice.runners_up
    assert least < family.choice.expected_error <= 1.1 * least


def test_blocks_are_refused_under_a_delta_by_name_and_unasked() -> None:
    (family,) = choose_families(table(ZCDP, (256, 256), ((0, 1), AUTO, True)))
    assert not isinstance(family.choice.strategy.measurement, Blocks)
    assert refusals(family)["blocks"] == "is for delta 0"
    with pytest.raises(CatalogError, match="mechanism: blocks is for delta 0"):
        choose_families(table(ZCDP, (256, 256), ((0, 1), Word("blocks"), False)))


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
    monkeypatch.setattr(registry, "DATA_DEPENDENT", (Selecting(times),))
    (family,) = choose_families(table(PURE, (64,), ((0,), AUTO, True)))
    assert (family.choice.name == "selecting") == taken
    assert ("selecting" in refusals(family)) != taken
    assert isfinite(family.choice.expected_error)


def test_of_several_the_first_in_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Selecting(1.05), Selecting(1.0)
    monkeypatch.setattr(registry, "DATA_DEPENDENT", (first, second))
    (family,) = choose_families(table(PURE, (64,), ((0,), AUTO, True)))
    (_, least), *_ = family.choice.runners_up
    assert family.choice.expected_error == pytest.approx(1.05 * least)


def test_the_family_of_the_rest_is_priced_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two views of one axis tell each other's totals; apart they lose that, and no bound below 1.1 makes up for it."""
    monkeypatch.setattr(registry, "DATA_DEPENDENT", (Selecting(1.0),))
    together = table(PURE, (8, 8), ((0, 1), AUTO, True), ((0,), AUTO, False))
    alone = choose_families(table(PURE, (8, 8), ((0, 1), AUTO, True)))
    assert alone[0].choice.name == "selecting"
    split = [
        sum(0.5**-1 * registry._independent(table(PURE, (8, 8), view)).expected_error for view in views)
        for views in [(((0, 1), AUTO, False), ((0,), AUTO, False))]
    ]
    least = registry._independent(together).expected_error
    families = choose_families(together)
    assert (len(families) == 2) == (split[0] <= 1.1 * least)
    if len(families) == 1:
        assert f"{split[0]:.4g}, above" in refusals(families[0])["selecting"]


def test_of_two_views_one_may_leave_and_the_other_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "DATA_DEPENDENT", (Selecting(1.05),))
    families = choose_families(table(PURE, (64, 64), ((0,), AUTO, False), ((1,), AUTO, True)))
    assert [[view.name for view in family.question.views] for family in families] == [["v0"], ["v1"]]
    assert [family.choice.name == "selecting" for family in families] == [False, True]
