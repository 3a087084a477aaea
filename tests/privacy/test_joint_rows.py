"""Counts and sums by one draw: exact loss of whole releases on aimed neighbours, and defects put back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from dpsql.central import plan
from dpsql.mechanisms.designs import measurement
from dpsql.mechanisms.designs.measurement import DrawnNumbers, drawn_numbers, joint_laws
from dpsql.mechanisms.distribution import Laplace
from dpsql.tree import Exact
from tests.privacy.joints import (
    HIGH,
    LOW,
    MIDDLE,
    NULL,
    REPLACED,
    SPREAD,
    catalog,
    crowd,
    nullable,
    one_more,
    person,
)
from tests.privacy.loss import Loss, RawRows
from tests.thinned import by_default

APART = catalog(bounds="max_ids: 4, clipped_share: 0,", mechanism="")
WEIGHED = catalog(
    bounds="max_ids: 4, clipped_share: 0, bounding: weight,", mechanism=", mechanism: lue_dptree"
)
CASES = {
    "highest": person(APART, *[HIGH] * 9),
    "lowest": person(APART, *[LOW] * 9),
    "both signs cancel in the sum and not in the count": person(APART, *[HIGH, LOW] * 9),
    "the middle moves the count alone": person(APART, *[MIDDLE] * 9),
    "as many cells as rows": person(APART, *SPREAD),
    "weighted rows": person(WEIGHED, *[HIGH] * 40),
    "planes": person(catalog(axes="sales.day, sales.size", mechanism=", mechanism: tents"), *[HIGH] * 9),
    "another person in her place": one_more(catalog(promise=REPLACED), 9, replaced=True),
}


def joint_line(loss: Loss) -> str:
    """The line of the one joint draw of a pair that loses all that is claimed."""
    assert 0.98 <= loss.share <= 1
    (line,) = [purpose for purpose, _ in loss.lines if "together" in purpose]
    return line


@pytest.mark.parametrize("name", by_default(CASES, 5))
def test_a_joint_draw_loses_what_it_claims(name: str, tmp_path: Path) -> None:
    loss = CASES[name](tmp_path)
    assert joint_line(loss).startswith("view v: count and sales.amount")
    assert sum(draw.where.endswith("draw_together") for draw in loss.draws) == 1


def test_a_view_of_three_numbers_is_one_draw(tmp_path: Path) -> None:
    two = catalog(measures="[count, sales.amount, sales.twice]").replace(
        "measure: true}}}",
        "measure: true}}, measures: {twice: {expr: 2 * amount + size, scale: 0, lower: -6, upper: 25}}}",
    )
    loss = person(two, *[HIGH] * 9)(tmp_path)
    assert 0.98 <= loss.share <= 1 and len(loss.draws) == 1 + 2 * any(
        "beyond" in line for line, _ in loss.lines
    )


MEASURES = """measure: true, nullable: true}}, measures: {
      twice: {expr: 2 * amount + size, scale: 0, lower: -6, upper: 25, nullable: true},
      half: {expr: size, scale: 0, lower: 0, upper: 7}}}"""


def with_nulls(measures: str, text: str = APART) -> str:
    """Amounts that may be NULL, a measure that is NULL with them, and one that never is."""
    return text.replace("[count, sales.amount]", measures).replace("measure: true}}}", MEASURES)


ALONE, BESIDE = "[count, sales.amount]", "[sales.amount, count, sales.half]"
TWO, COUNTS = "[count, sales.amount, sales.twice]", "[count, count(sales.amount)]"
MIXED = [NULL, HIGH] * 9
NULLS = {
    "NULL moves rows with NULL alone": person(with_nulls(ALONE), *[NULL] * 9),
    "no NULL": person(with_nulls(ALONE), *[HIGH] * 9),
    "some NULL": person(with_nulls(ALONE), *MIXED),
    "weighted rows, some NULL": person(with_nulls(ALONE, WEIGHED), *[NULL, HIGH] * 20),
    "counts alone": person(with_nulls(COUNTS), *MIXED),
    "beside a measure that is never NULL, NULL": person(with_nulls(BESIDE), *[NULL] * 9),
    "beside a measure that is never NULL, no NULL": person(with_nulls(BESIDE), *[HIGH] * 9),
    "beside a measure that is never NULL, weighted": person(with_nulls(BESIDE, WEIGHED), *[NULL, HIGH] * 20),
    "two measures, NULL": person(with_nulls(TWO), *[NULL] * 9),
    "two measures, no NULL": person(with_nulls(TWO), *[HIGH] * 9),
    "another person in her place": one_more(with_nulls(ALONE, catalog(promise=REPLACED)), 9, replaced=True),
}


@pytest.mark.parametrize("name", by_default(NULLS, 5))
def test_rows_with_null_lose_what_is_claimed(name: str, tmp_path: Path) -> None:
    loss = NULLS[name](tmp_path)
    assert joint_line(loss) == loss.lines[-1][0]


def one_row(values: dict[str, int]) -> list[Exact]:
    return [Exact(np.array([value])) for value in values.values()]


@pytest.mark.parametrize("others", [[], ["x"], ["x", "z"], ["x", "y", "count(y)"]])
def test_no_row_has_a_size_above_one(others: list[str]) -> None:
    """Every kind of row of two measures with bounds 3 and 5: its sizes in all draws of the line add up to at most 1,
    and one of them to 1. Sizes are norms, so no set of rows whose weights add up to tau loses more than tau."""
    names = ["count", "count(x)", *others]
    bounds = {"count": 1, "count(x)": 1, "count(y)": 1, "x": 3, "y": 5, "z": 5}
    laws = joint_laws(names, indicators=True)
    sensitivities = [bounds[name] * (2 if law.halves else 1) for name, law in zip(names, laws, strict=True)]
    sizes = []
    for x in (None, -3, 0, 2, 3):
        for other in (None, -5, 4, 5):
            row = {"count": 1, "count(x)": int(x is not None), "count(y)": int(other is not None)}
            row |= {"x": x or 0, "y": other or 0, "z": other or 0}
            sizes.append(row_size(drawn_numbers(laws), one_row({n: row[n] for n in names}), sensitivities))
    assert max(sizes) == 1 and min(sizes) == 1


def row_size(numbers: DrawnNumbers, cells: list[Exact], sensitivities: list[int]) -> Fraction:
    """The loss of one row at epsilon 1: of each draw the largest number over its bound, added up."""
    return sum(
        (
            max(Fraction(abs(int(numbers.exact(cells, i)[0])), numbers.bound(sensitivities, i)) for i in draw)
            for draw in numbers.draws
        ),
        Fraction(0),
    )


def counted_beside(laws):
    """All rows are drawn beside the other numbers, in the place of those with NULL."""
    return drawn_numbers(laws)._replace(taken={}, added={})


def indicator_apart(laws):
    """The indicator has a draw of its own, which nobody pays."""
    numbers = drawn_numbers(laws)
    ((*every,),), (i,) = numbers.draws, numbers.taken
    return numbers._replace(draws=((i,), tuple(k for k in every if k != i)))


def halved_bound(laws):
    """An indicator of 2 x - count with the bound of x in rows over two."""

    class Halved(DrawnNumbers):
        def bound(self, sensitivities, i):
            return super().bound(sensitivities, i) // (2 if i in self.taken else 1)

    return Halved(*drawn_numbers(laws))


def apart_beside_all(measures, *, indicators):
    """Rows with NULL are drawn apart beside a measure over all rows."""
    laws = joint_laws(measures, indicators=indicators)
    return [replace(law, apart=law.numbers > 3) for law in laws]


NULL_DEFECTS = {
    "all rows beside the others": ("drawn_numbers", counted_beside, ALONE, HIGH),
    "an indicator without budget": ("drawn_numbers", indicator_apart, BESIDE, HIGH),
    "an indicator of half the bound": ("drawn_numbers", halved_bound, BESIDE, HIGH),
    "rows with NULL beside a sum over all": ("joint_laws", apart_beside_all, BESIDE, NULL),
}


@pytest.mark.parametrize("name", NULL_DEFECTS)
def test_a_defect_of_rows_with_null_is_found(name: str, tmp_path: Path) -> None:
    attribute, broken, measures, row = NULL_DEFECTS[name]
    module = measurement if attribute == "drawn_numbers" else plan
    was = Laplace.draw_together

    def draw(self, exacts, *args):
        return was(replace(self, apart=False, numbers=len(exacts)), exacts, *args)

    with mock.patch.object(module, attribute, broken), mock.patch.object(Laplace, "draw_together", draw):
        assert person(with_nulls(measures), *[row] * 9)(tmp_path).share > 1.5


SQUARED_MEASURES = "[count, sales.amount, squares(sales.amount)]"
SQUARED = catalog(measures=SQUARED_MEASURES)
SQUARES = {
    "highest": person(SQUARED, *[HIGH] * 9),
    "both ends have one square": person(SQUARED, *[HIGH, LOW] * 9),
    "the middle has none": person(SQUARED, *[MIDDLE] * 9),
    "beyond the bounds": person(SQUARED, *[(*HIGH[:-1], 900)] * 9),
    "not there": person(nullable(SQUARED), *[NULL] * 9),
    "another person in her place": one_more(
        catalog(promise=REPLACED, measures=SQUARED_MEASURES), 9, replaced=True
    ),
    "weighted rows": person(WEIGHED.replace("[count, sales.amount]", SQUARED_MEASURES), *[HIGH] * 40),
}


@pytest.mark.parametrize("name", SQUARES)
def test_squares_ride_in_the_joint_draw(name: str, tmp_path: Path) -> None:
    assert "sales.squares_of_amount" in joint_line(SQUARES[name](tmp_path))


def many(numbers: int, nullable: str, text: str = APART) -> str:
    """A count, a measure and its square, and other measures; each with a count of values where it may be NULL."""
    names = [f"m{i}" for i in range((numbers - 1) // (2 if nullable else 1) - 2)]
    declared = ", ".join(
        f"{name}: {{expr: amount, scale: 0, lower: -3, upper: 9{nullable}}}" for name in names
    )
    named = ", ".join(f"sales.{name}" for name in names)
    return text.replace(
        "[count, sales.amount]", f"[count, sales.amount, squares(sales.amount), {named}]"
    ).replace("measure: true}}}", f"measure: true{nullable}}}}}, measures: {{{declared}}}}}")


NULLABLE = ", nullable: true"
MANY = {
    "eleven numbers": (person(many(11, ""), *[HIGH] * 9), 11),
    "twenty-one, NULL": (person(many(21, NULLABLE), *[NULL] * 9), 21),
    "twenty-one, some NULL": (person(many(21, NULLABLE), *MIXED), 21),
    "twenty-one, lowest": (person(many(21, NULLABLE), *[LOW] * 9), 21),
    "eleven, weighted rows": (person(many(11, "", WEIGHED), *[HIGH, LOW] * 20), 11),
    "twenty-one, another person in her place": (
        one_more(many(21, NULLABLE, catalog(promise=REPLACED)), 9, replaced=True),
        21,
    ),
    "twenty-nine, drawn one by one": (person(many(29, NULLABLE), *MIXED), 29),
}


@pytest.mark.parametrize("name", MANY)
def test_many_numbers_lose_what_is_claimed(name: str, tmp_path: Path) -> None:
    measured, numbers = MANY[name]
    loss = measured(tmp_path)
    joint = [draw for draw in loss.draws if draw.where.endswith("draw_together")]
    if numbers > 25:
        assert not joint and len(loss.lines) >= numbers and loss.share <= 1
    else:
        assert len(joint) == 1 and 0.98 <= loss.share <= 1


@pytest.mark.parametrize("measures", ["[count, sales.amount]", SQUARED_MEASURES])
def test_under_a_delta_every_number_has_its_own_draw(measures: str, tmp_path: Path) -> None:
    loss = person(catalog(promise="delta: 1e-6", measures=measures), *[HIGH] * 9)(tmp_path)
    assert loss.share <= 1 and not any("together" in purpose for purpose, _ in loss.lines)


def bounds_without_tau(was: Callable[..., object]) -> Callable[..., object]:
    """tau is divided out of the count's bound and not of the sum's."""

    def broken(self, exacts, axes, spend, sensitivities, noise):
        return was(self, exacts, axes, spend, [1, *sensitivities[1:]], noise)

    return broken


def bought_twice(was: Callable[..., object]) -> Callable[..., object]:
    """Each number buys the whole draw and is charged a part of a part."""
    return lambda self, amount, currency: was(self, amount * self.numbers, currency)


def squares_as_values(was: Callable[..., object]) -> Callable[..., object]:
    """Squares are bounded as the values are."""

    def broken(self, exacts, axes, spend, sensitivities, noise):
        return was(self, exacts, axes, spend, [*sensitivities[:2], sensitivities[1]], noise)

    return broken


DEFECTS = [
    ("draw_together", bounds_without_tau, CASES["highest"]),
    ("affordable", bought_twice, CASES["highest"]),
    ("draw_together", squares_as_values, SQUARES["highest"]),
]


@pytest.mark.parametrize(("attribute", "broken", "measured"), DEFECTS)
def test_a_defect_put_back_is_found(attribute, broken, measured, tmp_path: Path) -> None:
    with mock.patch.object(Laplace, attribute, broken(getattr(Laplace, attribute))):
        assert measured(tmp_path).share > 1.5


def test_what_a_purchase_or_a_look_draws_stays_apart(tmp_path: Path) -> None:
    text = catalog(mechanism=", mechanism: diffhr, data_dependent: allow", measures="[count]")
    assert not any("together" in purpose for purpose, _ in one_more(text)(tmp_path).lines)
    assert isinstance(crowd()["sales"], RawRows)
