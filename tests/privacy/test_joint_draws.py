"""Numbers by one draw, of rows and of leaves of trees: exact loss of whole releases on aimed neighbours, defects put
back, and the law of the leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from dpsql.central import plan
from dpsql.matrices.tree import level_moments
from dpsql.mechanisms.designs import question
from dpsql.mechanisms.designs.question import DrawnNumbers, drawn_numbers, joint_laws
from dpsql.mechanisms.distribution import Laplace
from dpsql.noise import TreeNoise, insecure_test_entropy, knorm
from dpsql.tree import Exact
from tests.privacy.joints import (
    HIGH,
    LOW,
    MIDDLE,
    NULL,
    REPLACED,
    SPREAD,
    catalog,
    nullable,
    one_more,
    person,
)
from tests.privacy.loss import Loss
from tests.thinned import by_default

Measured = Callable[[Path], Loss]

APART = catalog(bounds="max_ids: 4, clipped_share: 0,", mechanism="")
WEIGHED = catalog(
    bounds="max_ids: 4, clipped_share: 0, bounding: weight,", mechanism=", mechanism: lue_dptree"
)
ROWS = {
    "highest": person(APART, *[HIGH] * 9),
    "lowest": person(APART, *[LOW] * 9),
    "both signs cancel in the sum and not in the count": person(APART, *[HIGH, LOW] * 9),
    "the middle moves the count alone": person(APART, *[MIDDLE] * 9),
    "as many cells as rows": person(APART, *SPREAD),
    "weighted rows": person(WEIGHED, *[HIGH] * 40),
    "planes": person(catalog(axes="sales.day, sales.size", mechanism=", mechanism: tents"), *[HIGH] * 9),
    "another person in her place": one_more(catalog(promise=REPLACED), 9, replaced=True),
}


def together(loss: Loss) -> list[str]:
    """Lines of what is drawn by one draw."""
    return [purpose for purpose, _ in loss.lines if "together" in purpose]


def joint_draws(loss: Loss) -> int:
    return sum(draw.where.endswith("draw_together") for draw in loss.draws)


def line_of(words: str) -> Callable[[Loss], bool]:
    """Whether one line is of what one draw draws, with these words in it, and no other is."""
    return lambda loss: len(together(loss)) == 1 and words in together(loss)[0]


def of_leaves(loss: Loss) -> bool:
    (line,) = [purpose for purpose, _ in loss.lines if purpose.startswith("view v: count")]
    return ("together" in line) == ("sales.amount" in line)


def beyond(loss: Loss) -> bool:
    return any("beyond" in line for line, _ in loss.lines)


THREE = person(
    catalog(measures="[count, sales.amount, sales.twice]").replace(
        "measure: true}}}",
        "measure: true}}, measures: {twice: {expr: 2 * amount + size, scale: 0, lower: -6, upper: 25}}}",
    ),
    *[HIGH] * 9,
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
    module = question if attribute == "drawn_numbers" else plan
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
ONE_BY_ONE = "twenty-nine, drawn one by one"
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
    ONE_BY_ONE: (person(many(29, NULLABLE), *MIXED), 29),
}


LEAVES = "max_ids: 4, clipped_share: 0,"
COUNT = catalog(bounds=LEAVES, mechanism="", measures="[count]")
BOTH = catalog(bounds=LEAVES, mechanism="")
CELLS = catalog(bounds=LEAVES, mechanism="", measures="[count]", axes="sales.size, campaign.medium")
WEIGHED_LEAVES = catalog(bounds=f"{LEAVES} bounding: weight,", mechanism="")
TREES = {
    "tau rows in one leaf": person(COUNT, *[HIGH] * 9),
    "tau rows in tau leaves": person(COUNT, *SPREAD),
    "beside categories": person(CELLS, *[HIGH] * 9),
    "count and sum, highest": person(BOTH, *[HIGH] * 9),
    "count and sum, lowest": person(BOTH, *[LOW] * 9),
    "signs cancel in the sum and not in the count": person(BOTH, *[HIGH, LOW] * 9),
    "the middle moves the count alone": person(BOTH, *[MIDDLE] * 9),
    "weighted rows": person(WEIGHED_LEAVES, *[HIGH] * 40),
}
REPLACED_LEAVES = catalog(promise=REPLACED, mechanism="", measures="[count]")


def pairs(
    kind: str,
    cases: Mapping[str, Measured],
    seen: Callable[[Loss], bool],
    least: float = 0.98,
    count: int = 99,
) -> list[object]:
    """Cases of a kind, all but `count` of them slow: what is seen in each loss, and what share of the claim it is."""
    return [
        pytest.param(cases[case.values[0]], seen, least, id=f"{kind}: {case.values[0]}", marks=case.marks)
        for case in by_default(cases, count)
    ]


DELTA = {
    measures: person(catalog(promise="delta: 1e-6", measures=measures), *[HIGH] * 9)
    for measures in ("[count, sales.amount]", SQUARED_MEASURES)
}
LOOK = one_more(catalog(mechanism=", mechanism: diffhr, data_dependent: allow", measures="[count]"))
JOINT = {name: pair for name, (pair, _) in MANY.items() if name != ONE_BY_ONE}
EVERY = [
    *pairs(
        "rows",
        ROWS,
        lambda loss: line_of("view v: count and sales.amount")(loss) and joint_draws(loss) == 1,
        count=5,
    ),
    *pairs("three numbers", {"one draw": THREE}, lambda loss: len(loss.draws) == 1 + 2 * beyond(loss)),
    *pairs("NULL", NULLS, lambda loss: together(loss) == [loss.lines[-1][0]], count=5),
    *pairs("squares", SQUARES, line_of("sales.squares_of_amount"), count=3),
    *pairs("many", JOINT, lambda loss: joint_draws(loss) == 1, count=2),
    # more numbers than one draw takes
    *pairs(
        "many",
        {ONE_BY_ONE: MANY[ONE_BY_ONE][0]},
        lambda loss: not joint_draws(loss) and len(loss.lines) >= MANY[ONE_BY_ONE][1],
        0,
    ),
    # under a delta every number has its own draw; what a purchase or a look draws stays apart
    *pairs("delta", DELTA, lambda loss: not together(loss), 0),
    *pairs("apart", {"a look": LOOK}, lambda loss: not together(loss), 0),
    *pairs("leaves", TREES, of_leaves, count=4),
    # two people in one tree move its root by 0: a count's claim is reached but for the levels that they share
    *pairs(
        "leaves", {"another person in her place": one_more(REPLACED_LEAVES, 9, replaced=True)}, of_leaves, 0.9
    ),
    *pairs("leaves", {"three numbers keep rows": person(nullable(BOTH), *[NULL] * 9)}, lambda loss: True),
]


@pytest.mark.parametrize(("measured", "seen", "least"), EVERY)
def test_a_joint_draw_loses_what_it_claims(measured, seen, least, tmp_path):
    loss = measured(tmp_path)
    assert least <= loss.share <= 1
    assert seen(loss)


def bounded_by(change: Callable[[list[int]], list[int]]) -> Callable[..., Callable[..., object]]:
    """Draws whose numbers have other bounds."""
    return lambda was: (
        lambda self, exacts, axes, spend, sensitivities, noise: was(
            self, exacts, axes, spend, change(sensitivities), noise
        )
    )


without_tau = bounded_by(
    lambda bounds: [1, *bounds[1:]]
)  # tau is divided out of the count's bound, not of the sum's
squares_as_values = bounded_by(
    lambda bounds: [*bounds[:2], bounds[1]]
)  # squares are bounded as the values are


def bought_twice(was: Callable[..., object]) -> Callable[..., object]:
    """Each number buys the whole draw and is charged a part of a part."""
    return lambda self, amount, currency: was(self, amount * self.numbers, currency)


def with_whole_leaves(was: Callable[..., object]) -> Callable[..., object]:
    """The leaves' rate is forgotten in the path sum: they get the whole beside what levels have."""

    def broken(self, axes, cap):
        return (*was(self, axes, cap)[:-1], cap)

    return broken


DEFECTS = [
    ("draw_together", without_tau, ROWS["highest"], 1.5),
    ("affordable", bought_twice, ROWS["highest"], 1.5),
    ("draw_together", squares_as_values, SQUARES["highest"], 1.5),
    ("level_rates", with_whole_leaves, TREES["tau rows in one leaf"], 1.15),
    ("draw_together", without_tau, TREES["the middle moves the count alone"], 1.15),
]


@pytest.mark.parametrize(("attribute", "broken", "measured", "least"), DEFECTS)
def test_a_defect_put_back_is_found(attribute, broken, measured, least, tmp_path: Path) -> None:
    with mock.patch.object(Laplace, attribute, broken(getattr(Laplace, attribute))):
        assert measured(tmp_path).share > least


TREE = TreeNoise((2, 2), (200, 300, 500), 1000, (1,))
NUMBER = 20_000


def leaf_and_root(tree: TreeNoise) -> tuple[float, float]:
    """Observed over exact variances of leaves and of the whole."""
    rates = tuple(rate / tree.denominator for rate in tree.rates)
    leaves = knorm.joint_trees(tree, NUMBER, insecure_test_entropy(6))[0].astype(float)
    exact = level_moments(tree.arities, rates, bound=1).variance
    return float(leaves.var() / exact[-1]), float(leaves.sum(axis=1).var() / exact[0])


def floored(sums, tree, level, entropy):
    """A coin of |sum| / M in whole numbers: here as if M were 3."""
    return REAL_COIN(sums // 3, tree, level, entropy)


def sorted_groups(sums, tree, level, entropy):
    """Groups put in order of their size before they are paired: pairs of small sums are kept too often."""
    order = np.argsort(np.abs(sums[0]))
    return np.isin(np.arange(sums.shape[1]), order[: len(order) // 2])


REAL_COIN = knorm._sum_coin


@pytest.mark.parametrize("coin", [floored, sorted_groups])
def test_a_sampler_with_another_coin_is_found(coin: Callable[..., object]) -> None:
    assert leaf_and_root(TREE) == pytest.approx((1, 1), abs=0.06)
    with mock.patch.object(knorm, "_sum_coin", coin):
        assert abs(np.subtract(leaf_and_root(TREE), 1)).max() > 0.12


def test_siblings_drawn_anew_one_by_one_are_found() -> None:
    """A group that fails keeps its first half: the law is another one."""

    def half_kept(tree: TreeNoise) -> float:
        entropy, t = insecure_test_entropy(7), tree.denominator
        units = np.full(NUMBER, tree.rates[1], np.int64)
        first, second = (knorm.joint_rows(units, t, [1], entropy)[0] for _ in range(2))
        open_ = np.arange(NUMBER)
        while open_.size:
            kept = knorm._sum_coin((first + second)[np.newaxis, open_], tree, 0, entropy)
            open_ = open_[~kept]
            second[open_] = knorm.joint_rows(units[open_], t, [1], entropy)[0]
        return float(first.var())

    tree = TreeNoise((2,), (600, 400), 1000, (1,))
    right = level_moments((2,), (0.6, 0.4), bound=1).variance[-1]
    leaves = knorm.joint_trees(tree, NUMBER, insecure_test_entropy(6))[0]
    assert leaves.var() == pytest.approx(right, rel=0.06)
    assert abs(half_kept(tree) / right - 1) > 0.15


def test_a_cap_on_tries_is_found() -> None:
    """Whatever came out at the second try is taken: roots are too large."""
    tries = []

    def capped(sums, tree, level, entropy):
        tries.append(level)
        return np.ones(sums.shape[1], bool) if len(tries) > 2 else REAL_COIN(sums, tree, level, entropy)

    with mock.patch.object(knorm, "_sum_coin", capped):
        assert leaf_and_root(TREE)[1] > 1.12
