"""Tables of chances against the method's vectors, and the inequality by other means: enumeration, and an adversary."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import pytest

from dpsql.budget import curve as pricing
from dpsql.budget.curve import (
    CERTAIN,
    CHANCES,
    LEAST_CHANCE,
    SlotPrice,
    is_priced,
    people_at,
    slot_inequality,
    slot_table,
)
from dpsql.errors import PrivacyError
from tests.thinned import by_default, rounds

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "curves.json").read_text())["cases"]
HALF, SURE = Fraction(1, 2), Fraction(98, 100)
FloatArray = npt.NDArray[np.float64]


def price(case: dict[str, Any]) -> SlotPrice:
    return Fraction(case["m"]), Fraction(case["eta"]), Fraction(case["v"])


@pytest.mark.parametrize("case", by_default(VECTORS, 2), ids=lambda case: case["name"][:1])
def test_tables_and_pairs_are_those_of_the_vectors(case: dict[str, Any]) -> None:
    holds = slot_inequality(price(case))
    for pair in case["pairs"]:
        assert holds(int(pair["with"]), int(pair["without"])) == pair["holds"]
    table = slot_table(price(case), int(case["first"][0]))
    assert abs(people_at(table, HALF) - case["people_at_half"]) <= 1
    assert abs(people_at(table, SURE) - case["people_at_98"]) <= 1
    for chance, expected in zip(table, map(int, case["first"]), strict=False):
        assert abs(chance - expected) <= min(expected, CHANCES - expected) >> 10
    assert table[-1] >= CERTAIN and all(first < second for first, second in pairwise(table))


SMALL = {
    "(1, 1e-6) in 12 releases": ("439065733403649/100000000000000000", "8088052983751/500000000000000000",
                                 "145833333333333333333/500000000000000000000000000000", 520),
    "(1, 1e-6) in 100 releases": ("263439440042189/500000000000000000", "19411327161/10000000000000000",
                                  "7/200000000000", 1527),
    "(.1, 1e-6) in 12 releases": ("7409555663423/125000000000000000", "54596725941/250000000000000000",
                                  "145833333333333333333/500000000000000000000000000000", 4279),
}  # fmt: skip
"""v, m, eta of round two at the defaults (share 1/20, 10 keys), and the people at which half of the keys are shown."""


@pytest.mark.parametrize(
    "name", [next(iter(SMALL)), *(pytest.param(n, marks=pytest.mark.slow) for n in list(SMALL)[1:])]
)
def test_a_small_budget_has_a_table_that_ends(name: str) -> None:
    *amounts, people = SMALL[name]
    room, mu2, delta = map(Fraction, amounts)
    table = slot_table((mu2, delta, room), int(delta * CHANCES))
    assert table[-1] >= CERTAIN and abs(people_at(table, HALF) - people) <= 1


def test_a_budget_too_small_for_a_key_is_refused() -> None:
    with pytest.raises(PrivacyError, match="no delta is left"):
        slot_table(A, LEAST_CHANCE - 1)
    hopeless = Fraction(1, 10**18), Fraction(1, 10**7), Fraction(1, 20)
    with pytest.raises(PrivacyError, match="so small a part"):
        slot_table(hopeless, int(hopeless[1] * CHANCES))


A = M, ETA, ROOM = price(VECTORS[0])
STEP = Fraction(1, 300)
FIRST = int(VECTORS[0]["first"][0])


def test_bounds_enclose_the_curve() -> None:
    """dG at points between nodes, by another library in 40 digits: below `above`; chords of the limits below it."""
    nodes, places, above = pricing._upper_values(ROOM, STEP, 900, 32)
    limits = pricing._lower_values(root(ROOM + M), STEP, nodes, 32, ETA)
    with mpmath.workdps(40):
        for u in (0.02, 0.5, 0.999, 1.0, 1.0017, 1.3, 2.0, 7.5, 19.0):
            exact = curve(float(ROOM), u)
            assert exact <= np.interp(u, places, above) <= exact * (1 + mpmath.mpf("1e-2")) + 1e-30
        for u in (1.0, 1.0017, 1.3, 2.0, 7.5, 19.0):
            limit = np.interp(u, nodes, limits)
            exact = curve(float(ROOM + M), u) + float(ETA)
            assert exact * (1 - mpmath.mpf("1e-2")) <= limit <= exact


def root(mu2: Fraction) -> Fraction:
    """Rounded down."""
    return Fraction(math.isqrt(math.floor(mu2 * 2**120)), 2**60)


def curve(mu2: float, u: float) -> mpmath.mpf:
    """delta of the Gaussian pair at epsilon log u."""
    mu, epsilon = mpmath.sqrt(mu2), mpmath.log(u)
    return mpmath.ncdf(mu / 2 - epsilon / mu) - u * mpmath.ncdf(-epsilon / mu - mu / 2)


def quick_curve(mu2: float, u: FloatArray) -> FloatArray:
    """The same for many u in doubles, for totals of 10^-7 and more."""
    from scipy.special import ndtr

    mu, epsilon = np.sqrt(mu2), np.log(np.maximum(u, 1e-300))
    return np.asarray(ndtr(mu / 2 - epsilon / mu) - u * ndtr(-epsilon / mu - mu / 2))


KEYS = 10
TEN = M / KEYS, ETA / KEYS, ROOM
"""Ten slots at the price of one."""
LOGS = np.linspace(0, 3, 601)


def excess(keys: list[tuple[int, int]], table: tuple[int, ...]) -> float:
    """Joint profile of slots and Gaussians of v over its claim; the largest over u >= 1, both ways.

    Args:
        keys: number of others of each key, and whether she has it on the left (0) or on the right (1) side.
        table: by which keys are shown.
    """
    worst = 0.0
    chances = np.array(table) / CHANCES
    left = np.array([chances[min(n, len(table) - 1) - side] for n, side in keys])
    right = np.array([chances[min(n, len(table) - 1) - 1 + side] for n, side in keys])
    for first, second in ((left, right), (right, left)):
        weight, odds = np.ones(1), np.ones(1)
        for q, p in zip(first, second, strict=True):
            weight = np.concatenate((weight * q, weight * (1 - q)))
            odds = np.concatenate((odds * (p / q), odds * ((1 - p) / (1 - q))))
        u = np.exp(LOGS)
        profile = (weight[:, None] * quick_curve(float(ROOM), odds[:, None] * u)).sum(axis=0)
        claim = quick_curve(float(ROOM + M), u) + float(ETA)
        worst = max(worst, float((profile / claim).max()))
    return worst


def designs(number: int) -> list[list[tuple[int, int]]]:
    """Random numbers of others for ten keys, most of them where a key is shown with a chance between .01 and .99."""
    rng = np.random.default_rng(11)
    table = slot_table(TEN, FIRST)
    low, high = (people_at(table, Fraction(chance, 100)) for chance in (1, 99))
    return [
        list(
            zip(
                rng.integers(1 if rng.random() < 0.3 else low, high, KEYS).tolist(),
                rng.integers(0, 2, KEYS).tolist(),
                strict=True,
            )
        )
        for _ in range(number)
    ]


def test_ten_slots_at_unequal_counts_stay_below_their_price() -> None:
    """By enumeration of the 2^10 outcomes, both ways, she in or out or exchanged key by key."""
    table = slot_table(TEN, FIRST)
    worst = max(excess(keys, table) for keys in designs(rounds(60, 15)))
    print(f"figure keys-joint-profile-over-claim: {worst:.4f} (<= 1) ok")
    assert 0.5 < worst <= 1


def adversary(
    table: tuple[int, ...], slots_drawn: int, room: float, claim: tuple[float, float], rows: float = 0.0
) -> float:
    """An adversary who chooses each number of others by what was shown, over the claim: value iteration on log u.

    Args:
        table: by which keys are shown.
        slots_drawn: how many slots, one after the other.
        room: mu^2 of Gaussian rows after them.
        claim: mu^2 and delta.
        rows: mu^2 of Gaussian rows before them.
    """
    logs = np.linspace(-6, 6, 12_001)  # chords between points are above the value: 1e-5 of it
    u = np.exp(logs)
    values = quick_curve(room, u) if room else np.maximum(0, 1 - u)
    start = (logs >= 0) & (logs <= 3)
    chances = [(chance / CHANCES, (CHANCES - chance) / CHANCES) for chance in table]
    pairs = [*pairwise(chances), *pairwise(chances[::-1])]
    for _ in range(slots_drawn):
        best = values
        for (q, not_q), (p, not_p) in pairs:
            shown = np.interp(logs + np.log(p / q), logs, values, right=0.0)
            hidden = np.interp(logs + np.log(not_p / not_q), logs, values, right=0.0)
            best = np.maximum(best, q * shown + not_q * hidden)
        values = best
    normal, weights = np.polynomial.hermite_e.hermegauss(99)
    losses = rows / 2 + np.sqrt(rows) * normal
    mixed = sum(
        w * np.interp(logs - loss, logs, values, left=1.0) for w, loss in zip(weights, losses, strict=True)
    )
    ratio = mixed / weights.sum() / (quick_curve(claim[0], u) + claim[1])
    return float(ratio[start].max())


SLOTS = 5
FEW = M / SLOTS, ETA / SLOTS, ROOM


CLAIM = float(ROOM + M), float(ETA)


def test_an_adversary_who_chooses_each_count_stays_below_the_price() -> None:
    worst = adversary(slot_table(FEW, FIRST), SLOTS, float(ROOM), CLAIM)
    print(f"figure keys-adversary-over-claim: {worst:.4f} (<= 1) ok")
    assert 0.9 < worst <= 1


class TestPlanted:
    """Each breach of a rule passes the claim, or is no table."""

    def test_slots_that_claim_their_own_price_alone(self) -> None:
        """Nothing follows."""
        table = slot_table(FEW, FIRST)
        assert adversary(table, SLOTS, 0.0, (float(M), float(ETA))) > 100

    def test_slots_after_the_last_row(self) -> None:
        """The whole claim, of which nothing is left when keys are drawn."""
        table = slot_table(FEW, FIRST)
        worst = adversary(table, SLOTS, 0.0, CLAIM, rows=float(ROOM))
        print(f"table keys, slots after the last row over claim: {worst:.3f}")
        assert worst > 1.1

    def test_a_count_left_out(self) -> None:
        table = slot_table(FEW, FIRST)
        assert adversary(table[::2], SLOTS, float(ROOM), CLAIM) > 10 and not is_priced(FEW, table[::2])

    def test_a_table_for_half_of_the_keys(self) -> None:
        assert adversary(slot_table(FEW, FIRST), 2 * SLOTS, float(ROOM), CLAIM) > 1.05

    def test_an_eta_that_is_not_charged(self) -> None:
        assert adversary(slot_table(FEW, FIRST), SLOTS, float(ROOM), (CLAIM[0], 0.0)) > 1
