"""Counts and sums by one draw: exact loss of whole releases on aimed neighbours, and defects put back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from dpsql.mechanisms.law import Laplace
from dpsql.noise import insecure_test_entropy, knorm
from tests.privacy.joints import DAYS, REPLACED, VICTIM, catalog, crowd, joined, one_more
from tests.privacy.loss import Loss, RawRows, measure
from tests.thinned import by_default

LOW = (VICTIM, 1, DAYS[-1], 7, -3)
HIGH = (VICTIM, 1, DAYS[-1], 7, 9)
NULL = (VICTIM, 1, DAYS[-1], 7, None)
MIDDLE = (VICTIM, 1, DAYS[-1], 7, 3)


def person(text: str, *rows: tuple[object, ...]) -> Callable[[Path], Loss]:
    """A person more with these sales."""
    base = crowd()
    left = joined(base, {"person": [(VICTIM, 7)], "sales": rows})
    return lambda folder: measure(text, left, base, folder)


def nullable(text: str) -> str:
    return text.replace("measure: true}", "measure: true, nullable: true}")


APART = catalog(bounds="max_ids: 4, clipped_share: 0,", mechanism="")
WEIGHED = catalog(
    bounds="max_ids: 4, clipped_share: 0, bounding: weight,", mechanism=", mechanism: lue_dptree"
)
SPREAD = [(VICTIM, 1, DAYS[k], k, 9 if k % 2 else -3) for k in range(4)]
CASES = {
    "highest": (person(APART, *[HIGH] * 9), 1.0),
    "lowest": (person(APART, *[LOW] * 9), 1.0),
    "both signs cancel in the sum and not in the count": (person(APART, *[HIGH, LOW] * 9), 1.0),
    "the middle moves the count alone": (person(APART, *[MIDDLE] * 9), 1.0),
    "NULL moves the rows alone": (person(nullable(APART), *[NULL] * 9), 1.0),
    "no NULL": (person(nullable(APART), *[HIGH] * 9), 1.0),
    "as many cells as rows": (person(APART, *SPREAD), 1.0),
    "weighted rows": (person(WEIGHED, *[HIGH] * 40), 1.0),
    "planes": (
        person(catalog(axes="sales.day, sales.size", mechanism=", mechanism: tents"), *[HIGH] * 9),
        1.0,
    ),
    "another person in her place": (one_more(catalog(promise=REPLACED), 9, replaced=True), 1.0),
}


@pytest.mark.parametrize("name", by_default(CASES, 5))
def test_a_joint_draw_loses_what_it_claims(name: str, tmp_path: Path) -> None:
    measured, proved = CASES[name]
    loss = measured(tmp_path)
    assert 0.98 * proved <= loss.share <= 1
    (line,) = [purpose for purpose, _ in loss.lines if "together" in purpose]
    assert line.startswith("view v: count and sales.amount")
    assert sum(draw.where.endswith("draw_together") for draw in loss.draws) == 1


def test_a_view_of_three_numbers_is_one_draw(tmp_path: Path) -> None:
    two = catalog(measures="[count, sales.amount, sales.twice]").replace(
        "measure: true}}}",
        "measure: true}}, measures: {twice: {expr: 2 * amount + size, scale: 0, lower: -6, upper: 25}}}",
    )
    loss = person(two, *[HIGH] * 9)(tmp_path)
    assert 0.98 <= loss.share <= 1 and len(loss.draws) == 1 + any("beyond" in line for line, _ in loss.lines)


SQUARED = catalog(measures="[count, sales.amount, squares(sales.amount)]")
SQUARES = {
    "highest": person(SQUARED, *[HIGH] * 9),
    "both ends have one square": person(SQUARED, *[HIGH, LOW] * 9),
    "the middle has none": person(SQUARED, *[MIDDLE] * 9),
    "beyond the bounds": person(SQUARED, *[(VICTIM, 1, DAYS[-1], 7, 900)] * 9),
    "not there": person(nullable(SQUARED), *[NULL] * 9),
    "another person in her place": one_more(
        catalog(promise=REPLACED, measures="[count, sales.amount, squares(sales.amount)]"), 9, replaced=True
    ),
    "weighted rows": person(
        WEIGHED.replace("[count, sales.amount]", "[count, sales.amount, squares(sales.amount)]"), *[HIGH] * 40
    ),
}


@pytest.mark.parametrize("name", SQUARES)
def test_squares_ride_in_the_joint_draw(name: str, tmp_path: Path) -> None:
    loss = SQUARES[name](tmp_path)
    assert 0.98 <= loss.share <= 1
    (line,) = [purpose for purpose, _ in loss.lines if "together" in purpose]
    assert "sales.squares_of_amount" in line


def test_squares_under_a_delta_have_a_draw_of_their_own(tmp_path: Path) -> None:
    text = catalog(promise="delta: 1e-6", measures="[count, sales.amount, squares(sales.amount)]")
    assert person(text, *[HIGH] * 9)(tmp_path).share <= 1


def test_squares_bounded_as_the_values_are_found(tmp_path: Path) -> None:
    def broken(self, exacts, axes, spend, sensitivities, noise):
        return was(self, exacts, axes, spend, [*sensitivities[:2], sensitivities[1]], noise)

    was = Laplace.draw_together
    with mock.patch.object(Laplace, "draw_together", broken):
        assert SQUARES["highest"](tmp_path).share > 1.5


def test_under_a_delta_every_number_has_its_own_draw(tmp_path: Path) -> None:
    loss = person(catalog(promise="delta: 1e-6"), *[HIGH] * 9)(tmp_path)
    assert loss.share <= 1 and not any("together" in purpose for purpose, _ in loss.lines)


def bounds_without_tau(was: Callable[..., object]) -> Callable[..., object]:
    """tau is divided out of the count's bound and not of the sum's."""

    def broken(self, exacts, axes, spend, sensitivities, noise):
        return was(self, exacts, axes, spend, [1, *sensitivities[1:]], noise)

    return broken


def bought_twice(was: Callable[..., object]) -> Callable[..., object]:
    """Each number buys the whole draw and is charged a part of a part."""
    return lambda self, amount, currency: was(self, amount * self.numbers, currency)


@pytest.mark.parametrize(
    "attribute, broken", [("draw_together", bounds_without_tau), ("bought", bought_twice)]
)
def test_a_defect_put_back_is_found(attribute: str, broken: Callable[..., object], tmp_path: Path) -> None:
    with mock.patch.object(Laplace, attribute, broken(getattr(Laplace, attribute))):
        assert CASES["highest"][0](tmp_path).share > 1.5


def test_a_sampler_without_its_coin_is_found() -> None:
    """Parts drawn apart and never thinned have twice the variance of the joint law."""
    units = np.full(50_000, 1 << 18, np.int64)
    with mock.patch.object(knorm, "_excess_coin", lambda draws, *_: np.ones(draws.shape[1], bool)):
        apart = knorm.joint_rows(units, 1 << 20, [1, 1], insecure_test_entropy(4))
    jointly = knorm.joint_rows(units, 1 << 20, [1, 1], insecure_test_entropy(4))
    assert np.var(apart[0]) / np.var(jointly[0]) == pytest.approx(2, rel=0.1)


def test_what_a_purchase_or_a_look_draws_stays_apart(tmp_path: Path) -> None:
    text = catalog(mechanism=", mechanism: diffhr, data_dependent: allow", measures="[count]")
    assert not any("together" in purpose for purpose, _ in one_more(text)(tmp_path).lines)
    assert isinstance(crowd()["sales"], RawRows)
