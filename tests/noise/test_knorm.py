"""Joint draws against enumerated laws, their acceptance, and the integers all the way through."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from math import prod

import numpy as np
import pytest

from dpsql.errors import InternalError
from dpsql.noise import discrete, insecure_test_entropy, knorm
from dpsql.noise.knorm import TreeNoise, joint_rows, joint_trees
from tests.matrices.test_levels import vectors

T = 1 << 20


def ones(size: int, rate: float) -> np.ndarray:
    return np.full(size, round(rate * T), dtype=np.int64)


def tree(arities: list[int], rates: list[int], t: int, *bounds: int) -> TreeNoise:
    return TreeNoise(tuple(arities), tuple(rates), t, bounds)


class Counted:
    """A test source that counts how many bytes were asked for."""

    def __init__(self, seed: int) -> None:
        self.source, self.total = insecure_test_entropy(seed), 0

    def __call__(self, size: int) -> bytes:
        self.total += size
        return self.source(size)


@pytest.mark.parametrize("law", vectors("rows", "rows"), ids=lambda law: f"{law['eps']}-{law['M']}")
def test_pairs_have_the_enumerated_law(law: dict) -> None:
    size, bound = 200_000, law["M"]
    count, total = joint_rows(ones(size, law["eps"]), T, [1, bound], insecure_test_entropy(7))
    assert count.dtype == total.dtype == np.int64
    for values, variance in ((count, law["var_count"]), (total, law["var_sum"])):
        assert np.var(values) == pytest.approx(variance, rel=5 * np.sqrt(4 / size))
        assert abs(np.mean(values)) < 5 * np.sqrt(variance / size)
    for point, chance in (((0, 0), law["p00"]), ((1, 0), law["p_1_0"]), ((0, bound), law["p_0_M"])):
        seen = np.count_nonzero((count == point[0]) & (total == point[1])) / size
        assert abs(seen - chance) < 5 * np.sqrt(chance / size)
    product = np.mean(count.astype(float) * total)
    assert abs(product) < 5 * np.sqrt(law["var_count"] * law["var_sum"] * 3 / size)


BOUNDS, RATE, REACH = (1, 2, 5), 1.5, 12
"""Three numbers whose law is enumerated up to a size of 12, beyond which e^-18 / e^0 of the points' law lies."""


def enumerated() -> np.ndarray:
    """P(z) of all points of size at most `REACH`."""
    axes = [np.abs(np.arange(-REACH * bound, REACH * bound + 1)) / bound for bound in BOUNDS]
    sizes = reduce(np.maximum, np.ix_(*axes))
    chances = np.exp(-RATE * sizes)
    return chances / chances.sum()


def misfit(size: int, seed: int) -> float:
    """Chi-square of draws against the enumerated law, in standard deviations above its mean."""
    draws = joint_rows(ones(size, RATE), T, BOUNDS, insecure_test_entropy(seed))
    places = [number + REACH * bound for number, bound in zip(draws, BOUNDS, strict=True)]
    expected = size * enumerated()
    inside = np.all([(p >= 0) & (p < n) for p, n in zip(places, expected.shape, strict=True)], axis=0)
    seen = np.zeros_like(expected)
    np.add.at(seen, tuple(place[inside] for place in places), 1)
    often = expected >= 8
    rare = size - seen[often].sum(), size - expected[often].sum()
    square = ((seen - expected)[often] ** 2 / expected[often]).sum() + (rare[0] - rare[1]) ** 2 / rare[1]
    freedom = int(often.sum())
    return (square - freedom) / (2 * freedom) ** 0.5


def test_three_numbers_have_the_enumerated_law() -> None:
    assert abs(misfit(200_000, 21)) < 4


def in_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slacks so wide that exact arithmetic decides what floats decide nearly always."""
    monkeypatch.setattr(knorm, "_coin_slack", lambda _: 0.25)
    monkeypatch.setattr(knorm, "_FLOAT_FLOORS", 0.0)
    monkeypatch.setattr(discrete, "_EXP_SLACK", 0.25)
    monkeypatch.setattr(knorm, "_SLACK", 0.25)


def test_the_law_is_the_same_where_exact_arithmetic_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    in_whole_numbers(monkeypatch)
    assert abs(misfit(2_500, 22)) < 4
    size, tree_law = 2_000, vectors("tree", "tree")[0]
    rates = [round(rate * 1000) for rate in tree_law["rates"]]
    (leaves,) = joint_trees(tree(tree_law["arities"], rates, 1000, 1), size, insecure_test_entropy(18))
    expected = np.array(tree_law["covariance"])
    assert np.abs(np.cov(leaves.T) - expected).max() < 6 * expected.max() * np.sqrt(5 / size)


def test_floats_and_exact_arithmetic_decide_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits give the same vectors, to the last one."""
    by_floats = joint_rows(ones(3_000, RATE), T, BOUNDS, insecure_test_entropy(23))
    # slacks that open many decisions and read no bit more: prefixes of 128 bits settle all of them
    monkeypatch.setattr(knorm, "_FLOAT_FLOORS", 0.0)
    assert np.array_equal(joint_rows(ones(3_000, RATE), T, BOUNDS, insecure_test_entropy(23)), by_floats)


@pytest.mark.parametrize("bounds", [(1, 2, 5), (1, 1 << 40), (1,) * 25, (3, 1 << 20, 1 << 30)])
def test_floors_and_chances_are_those_of_fractions(bounds: tuple[int, ...]) -> None:
    """Floors by floats and by 128 bits are those of 320 bits; chances in floats lie within their proved slack."""
    denominator = 1 << (20 if max(bounds) < 1 << 30 else 10)
    units = np.array([denominator // 64 or 1, denominator, 5 * denominator] * 60)
    boxes = knorm._Boxes(units, denominator, bounds, insecure_test_entropy(24))
    slack, radius_slack = (Fraction(s) for s in (knorm._coin_slack(len(bounds)), knorm._RADIUS_SLACK))
    for place, unit in enumerate(units.tolist()):
        low, high = boxes.radius_bounds(place, 5)
        inside, chance, by_floats = 1, Fraction(1), 1.0
        for j, bound in enumerate(bounds):
            floor = low * bound * denominator // (unit << 320)
            assert floor == high * bound * denominator // (unit << 320) == boxes.floor(j, place)
            real = Fraction(low * bound * denominator, unit << 320)
            assert abs(Fraction(boxes.reals[j, place]) - real) <= real * radius_slack
            inside, chance = inside * (2 * floor + 1), chance * (2 * real + 1)
            by_floats *= float(2 * floor + 1) / (2.0 * float(boxes.reals[j, place]) + 1.0)
        assert abs(Fraction(by_floats) - inside / chance) <= slack * inside / chance


class Script:
    """Words in a given order, then words of a test source."""

    def __init__(self, *words: int) -> None:
        self.words, self.more = list(words), insecure_test_entropy(25)

    def __call__(self, size: int) -> bytes:
        head = b"".join(word.to_bytes(8, "little") for word in self.words[: size // 8])
        del self.words[: size // 8]
        return head + (self.more(size - len(head)) if len(head) < size else b"")


FULL = (1 << 64) - 1


def test_open_floors_read_more_bits() -> None:
    """x = 1 - 2^-128 and more bits: floor(x) stays open until one of the bits that follow is 0."""
    order, whole, fraction, kept = 0, FULL, (FULL, 5, 5, FULL, 5, 5), 0
    script = Script(order, whole, whole, whole, *fraction, kept, kept, kept)
    boxes = knorm._Boxes(np.array([T]), T, (1, 1), script)
    assert boxes.order[0] == 0 and boxes.integers[0] == 0 and boxes.floor(0, 0) == boxes.floor(1, 0) == 0
    assert boxes.fractions.first[0] == boxes.fractions.second[0] == FULL
    assert len(boxes.fractions._further[0]) > 0
    assert not np.any(boxes.fractions.first[1:] == FULL)


@pytest.mark.parametrize("bound", [1, 2, 3, 5, (1 << 62) + 1, (1 << 63) - 1])
def test_uniform_integers_are_scaled_words(bound: int) -> None:
    """floor(n U) by whole numbers, at the first and the last word of each integer and where bits beyond 128 decide."""
    ends = [
        (end << 128) // bound + step for end in (0, 1, bound // 2, bound - 1, bound) for step in (-1, 0, 1)
    ]
    reals = [end for end in ends if 0 <= end < 1 << 128]
    bounds = np.full(len(reals), bound, dtype=np.int64)
    script = Script(*(end >> 64 for end in reals), *(end & FULL for end in reals))
    below = knorm._below(bounds, script)
    for end, drawn in zip(reals, below.tolist(), strict=True):
        assert end * bound >> 128 <= drawn <= ((end + 1) * bound - 1 >> 128) and 0 <= drawn < bound
    (drawn,) = knorm._below(np.array([3]), Script((1 << 64) // 3, (1 << 64) // 3, FULL))
    assert drawn == 1  # 1/3 in bits, then ones
    (drawn,) = knorm._below(np.array([3]), Script((1 << 64) // 3, (1 << 64) // 3, 0))
    assert drawn == 0


def test_orders_are_those_of_exact_weights() -> None:
    """(2 x + 1)(4 x + 1) at s = t: weights 1, 6 and 8 x 2!, over 23; the words at both sides of each step."""
    steps = [(part << 64) // 23 for part in (1, 7)]
    words = [0, steps[0] - 1, steps[0] + 1, steps[1] - 1, steps[1] + 1, FULL]
    orders = knorm._gamma_orders(np.full(6, T), T, (1, 2), Script(*words))
    assert orders.tolist() == [0, 0, 1, 1, 2, 2]
    last_bits = [(part << 128) // 23 & FULL for part in (1, 7)]
    below, above = ([last - 1, last + 1] for last in last_bits)
    for after in (*zip(steps, below, (0, 1), strict=True), *zip(steps, above, (1, 2), strict=True)):
        step, bits, order = after
        swapped = int.from_bytes(bits.to_bytes(8, "big"), "little")
        assert knorm._exact_order(step, [1, 7, 23], Script(swapped)) == order


def test_whole_parts_are_those_of_exact_powers() -> None:
    for k, step in zip(range(44, 0, -1), discrete._WHOLE_STEPS.tolist(), strict=True):
        low, high = (float(bound**k * 2**64) for bound in discrete.exp_bounds(Fraction(1), 4))
        assert low == high and step == int(discrete.exp_bounds(Fraction(1), 4)[1] ** k * 2**64)
        assert discrete._whole_parts(2, Script(step - 1 or FULL, step + 1)).tolist()[1] == k - 1
    assert discrete._whole_parts(1, Script(0, FULL))[0] >= 44
    assert (
        discrete._exact_whole_part(0, Script(FULL)) == 44 and discrete._exact_whole_part(0, Script(0, 1)) > 80
    )


def test_an_exponential_is_exact_and_its_time_does_not_depend_on_it() -> None:
    size = 200_000
    whole, fraction = discrete.exponentials(size, insecure_test_entropy(26))
    exponential = whole + fraction.first * 2.0**-64
    for bound in (0.1, 0.5, 1.0, 1.7, 3.0):
        assert abs(np.mean(exponential > bound) - np.exp(-bound)) < 4.5 * np.sqrt(np.exp(-bound) / size)
    spent, drawn = [], []
    for seed in range(3_000):
        source = Counted(seed)
        whole, fraction = discrete.exponentials(1, source)
        spent.append(source.total)
        drawn.append((float(whole[0]), float(fraction.first[0])))
    assert np.abs(np.corrcoef(np.array(spent), np.array(drawn).T)[0, 1:]).max() < 4.5 / np.sqrt(3_000)


def test_a_coin_of_an_exponential_is_that_of_fractions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where floats decide, exact bounds decide alike."""
    reals = discrete.UniformReals(400, insecure_test_entropy(27))
    places, source = np.arange(400), insecure_test_entropy(28)
    by_floats = discrete._keep_fractions(reals, places, source)
    monkeypatch.setattr(discrete, "_EXP_SLACK", 2.0)
    assert np.array_equal(discrete._keep_fractions(reals, places, insecure_test_entropy(28)), by_floats)
    for fraction in (0.0, 0.3, 1.0):
        low, high = discrete.exp_bounds(Fraction(fraction), 1)
        near = float(discrete._exp_of_fractions(np.array([fraction]))[0])
        assert (
            0 <= high - low < Fraction(1, 1 << 64)
            and abs(Fraction(near) - low) < Fraction(discrete._EXP_SLACK) / 2
        )


DEFECTS: dict[str, tuple[str, Callable[..., object]]] = {
    "every try is kept": ("_Boxes.keep", lambda self: np.ones(self.units.size, bool)),
    "the largest order always": ("_gamma_orders", lambda units, *_: np.full(units.size, 3)),
    "orders as if rates were doubled": (
        "_gamma_orders",
        lambda units, *rest: ORDERS(2 * units, *rest),
    ),
    "the upper end of an interval is never drawn": ("_below", lambda n, entropy: BELOW(np.maximum(n - 1, 1), entropy)),
    "whole parts are forgotten": (
        "_added_up",
        lambda wholes, *rest: ADDED_UP(0 * wholes, *rest),
    ),
    "all reals are added up": (
        "_added_up",
        lambda wholes, fractions, counted: ADDED_UP(wholes, fractions, counted | True),
    ),
}  # fmt: skip
ORDERS, BELOW, ADDED_UP = knorm._gamma_orders, knorm._below, knorm._added_up


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_of_the_sampler_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attribute, broken = DEFECTS[name]
    monkeypatch.setattr(f"dpsql.noise.knorm.{attribute}", broken)
    assert misfit(60_000, 29) > 10


def test_large_floors_have_the_same_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knorm, "_LARGEST", 1)
    assert abs(misfit(6_000, 30)) < 4


def test_what_is_beyond_64_bits_is_wrapped_and_never_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knorm, "check_denominator", lambda _: None)
    source = Counted(31)
    draws = joint_rows(np.ones(600, np.int64), 1 << 8, [1 << 60, 1 << 60], source)
    quarters = np.bincount((draws.ravel() >> 62) + 2, minlength=4) / draws.size
    assert draws.dtype == np.int64 and np.abs(quarters - 0.25).max() < 0.06
    plain = Counted(31)
    joint_rows(np.ones(600, np.int64), 1 << 8, [1 << 30, 1 << 30], plain)
    assert source.total == plain.total + 16 * draws.size


def test_sixteen_numbers_of_a_thousand_cells_take_a_moment() -> None:
    """Tries do not grow as d^d / d!: a count and 15 sums take one each, 16 counts at a rate of 5 five."""
    started = time.process_time()
    draws = joint_rows(ones(1_000, 1.0), T, [1] + [5_000] * 15, insecure_test_entropy(32))
    joint_rows(ones(1_000, 5.0), T, [1] * 16, insecure_test_entropy(33))
    assert time.process_time() - started < 5
    assert np.var(draws[1:] / 5_000) == pytest.approx(102, rel=0.1)


@pytest.mark.parametrize("numbers, rate", [(3, 1.5), (10, 0.5), (16, 5.0)])
def test_tries_are_as_many_as_expected(numbers: int, rate: float) -> None:
    bounds = (1,) * numbers
    boxes = knorm._Boxes(ones(12_000, rate), T, bounds, insecure_test_entropy(34))
    assert 1 / boxes.keep().mean() == pytest.approx(knorm.expected_tries(rate, bounds), rel=0.05)


def test_more_numbers_than_slacks_are_proved_for_are_refused() -> None:
    with pytest.raises(InternalError, match="at most 25 numbers"):
        joint_rows(ones(1, 1.0), T, [1] * 26, insecure_test_entropy(1))


@pytest.mark.parametrize("numbers, variance", [(1, 2.0), (2, 4.0), (3, 20 / 3), (4, 10.0), (11, 52.0)])
def test_a_joint_draw_has_the_variance_of_a_cube(numbers: int, variance: float) -> None:
    size, rate = 100_000, 0.05
    draws = joint_rows(ones(size, rate), T, [3] * numbers, insecure_test_entropy(8))
    assert draws.shape == (numbers, size)
    assert np.var(draws / 3, axis=1) * rate**2 == pytest.approx([variance] * numbers, rel=0.05)


@pytest.mark.parametrize("law", vectors("tree", "tree"), ids=lambda law: str(law["rates"]))
def test_trees_have_the_enumerated_covariance(law: dict) -> None:
    number, t = 60_000, 1000
    rates = [round(rate * t) for rate in law["rates"]]
    (leaves,) = joint_trees(tree(law["arities"], rates, t, 1), number, insecure_test_entropy(9))
    assert leaves.shape == (number, prod(law["arities"])) and leaves.dtype == np.int64
    expected = np.array(law["covariance"])
    slack = 6 * expected.max() * np.sqrt(5 / number)
    assert np.abs(np.cov(leaves.T) - expected).max() < slack
    chance = law["p_zero"]
    assert abs(np.mean(~leaves.any(axis=1)) - chance) < 5 * np.sqrt(chance / number)


def test_pairs_on_a_tree_have_the_enumerated_covariance() -> None:
    (law,) = vectors("tree_pairs", "tree_pairs")
    number, t = 60_000, 1000
    rates = [round(rate * t) for rate in law["rates"]]
    pairs = tree(law["arities"], rates, t, 1, law["M"])
    count, total = joint_trees(pairs, number, insecure_test_entropy(10))
    for values, variance, covariance in (
        (count, law["var_count"], law["cov_count"]),
        (total, law["var_sum"], law["cov_sum"]),
    ):
        matrix = np.cov(values.T)
        assert matrix[0, 0] == pytest.approx(variance, rel=0.06)
        assert matrix[0, 1] == pytest.approx(covariance, rel=0.15)
    assert abs(np.cov(count[:, 0], total[:, 0])[0, 1]) < 5 * np.sqrt(
        law["var_count"] * law["var_sum"] * 3 / number
    )


def test_a_group_that_fails_is_drawn_anew_with_its_leaves() -> None:
    """Draws a leaf, by entropy used, are those of the enumerated acceptance of each level."""
    t, law = 1 << 16, vectors("levels", "levels")[1]
    rates = [round(rate * t) for rate in law["rates"]]
    number, leaves = 2000, prod(law["arities"])
    plain = Counted(11)
    joint_rows(np.full(100_000, rates[-1], dtype=np.int64), t, [1], plain)
    spent = Counted(12)
    (drawn,) = joint_trees(tree(law["arities"], rates, t, 1), number, spent)
    ratio = spent.total / (number * leaves) / (plain.total / 100_000)
    assert ratio == pytest.approx(law["draws_a_leaf"], rel=0.1)  # coins take some bytes as well
    sums = drawn.reshape(number, 4, 16).sum(axis=2)
    variance = law["level_variance"]
    assert np.var(drawn.sum(axis=1)) == pytest.approx(variance[0], rel=6 * np.sqrt(3 / number))
    assert np.var(sums) == pytest.approx(variance[1], rel=0.1)
    assert np.var(drawn) == pytest.approx(variance[3], rel=0.05)


@pytest.mark.parametrize(
    "arities, rates, bounds",
    [([4, 4], [1, 1], [1]), ([4, 4], [1, 1, 15], [1]), ([4, 4], [-1, 1, 16], [1]), ([2], [1, 2], [1 << 60])],
)
def test_trees_that_integers_do_not_hold_are_refused(
    arities: list[int], rates: list[int], bounds: list[int]
) -> None:
    with pytest.raises(InternalError):
        joint_trees(tree(arities, rates, T, *bounds), 1, insecure_test_entropy(1))


def test_a_joint_row_without_budget_or_bound_is_refused() -> None:
    for units, bounds in ((np.zeros(1, np.int64), [1, 1]), (np.ones(1, np.int64), [1, 0])):
        with pytest.raises(InternalError):
            joint_rows(units, T, bounds, insecure_test_entropy(1))


def test_the_least_rate_of_a_level_thins_its_sums() -> None:
    """Two leaves of scale 32 have sums of mean size 48; a root of scale 64 leaves about half of it."""
    free, thinned = (
        np.abs(
            joint_trees(TreeNoise((2,), rates, 64, (1,)), 4_000, insecure_test_entropy(7)).sum(axis=-1)
        ).mean()
        for rates in ((0, 2), (1, 2))
    )
    assert 45 < free < 51 and thinned < 0.7 * free
