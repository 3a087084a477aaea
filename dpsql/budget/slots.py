"""Chances with which keys that nobody listed are shown, priced by the Gaussian draws that certainly remain.

A slot is one key that one person moves: shown with chance q if her data are there and p if not, or the other way round.
It is priced (m, eta | v) if for both directions and every u > 0

    q dG(v; log(u p / q)) + (1 - q) dG(v; log(u (1 - p) / (1 - q))) <= dG(v + m; log u) + eta                  (S)

with dG(w; e) the delta of the Gaussian pair of mu^2 = w at epsilon e: the slot, and Gaussians of v after it, are no
worse than Gaussians of v + m but for eta. A table has the chance of each number of people; it is right if its first
entry is the chance of a key that one person alone holds, and each pair of neighbouring entries satisfies (S).

| here | there | unit |
|---|---|---|
| `SlotPrice` | (m, eta given v) | mu^2, delta, mu^2 |
| `slot_table` | t_1 < t_2 < .., the greedy table | 2^-64 |
| `slot_inequality` | (S) for every u, decided at finitely many | - |

**Privacy**: docs/privacy/delta.md has the proof. Decimals bound dG from above and from below; floats only add, multiply
and divide positive numbers, and `SPARE` is above what they lose.
**Source**: docs/method/rows.md, "The step"; greedy tables: Desfontaines, Voss, Gipson and Mandayam (2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dpsql.budget.curve import delta_bounds, upper_tail
from dpsql.errors import PrivacyError

CHANCES = 1 << 64
"""Chances are multiples of 2^-64: a key is shown if 64 fresh bits are below its entry."""

CERTAIN = CHANCES - (1 << 34)
"""An entry from here on ends a table: it stands for all larger numbers of people."""

LEAST_CHANCE = 1 << 12
"""Least first entry: below it, rounding it down to a multiple of 2^-64 would lose more than 2^-12 of it."""

SPARE = Fraction(1, 1 << 40)
"""Part of the right side that floats may lose. Interpolation between values a factor 2^8 apart loses 2^-42."""

MOST_FALL = float(1 << 8)
NODES_A_UNIT = 300  # 100 need 10% more people where a person has 8 keys, 600 need 1% fewer
NODES_A_MU = 70  # at 300 a unit a charge of mu .02 ends at t_1, and no key would ever be shown

_UP, _DOWN = 1 + 2.0**-50, 1 - 2.0**-50
_SPARE_DIGITS = 24  # digits of dG below those of eta
_POINT = 1 << 64  # logarithms, and where tangents touch, in multiples of 2^-64: short fractions

FloatArray = npt.NDArray[np.float64]


SlotPrice = tuple[Fraction, Fraction, Fraction]
"""(m, eta, v): the mu^2 and the delta that a slot costs, and the mu^2 of the Gaussian draws that certainly remain."""


@lru_cache(maxsize=16)
def slot_inequality(price: SlotPrice) -> Callable[[int, int], bool]:
    """The inequality (S) at one price, as a predicate of two chances in multiples of 2^-64.

    The left side is convex in u, and the right side lies above chords of tangents; so nodes u_j decide for all u >= 1,
    and beyond the last node the left side falls below eta. Both directions at u >= 1 decide for u < 1: the left side
    of (q, p) at u is 1 - u + u times that of (p, q) at 1 / u.

    Raises:
        PrivacyError: dG falls so fast between nodes that floats cannot interpolate it.
    """
    cost, delta, room = price
    whole = room + cost
    digits = 4 * math.ceil((_SPARE_DIGITS - math.log10(delta)) / 4)  # few values: bounds are shared
    mu = Fraction(math.isqrt(math.floor(whole * _POINT * _POINT)), _POINT)  # rounded down
    step = min(Fraction(1, NODES_A_UNIT), Fraction(math.floor(mu / NODES_A_MU * _POINT), _POINT))
    blocks, quarter = 1, Decimal(float(delta / 4))
    while delta_bounds(whole, NODES_A_UNIT * blocks * step / 2, digits)[1] >= quarter:
        blocks += 1
    nodes, places, above = _upper_values(room, step, NODES_A_UNIT * blocks, digits)
    limits, last = _lower_values(mu, step, nodes, digits, delta), float(delta * (1 - SPARE))

    def holds(first: int, second: int) -> bool:
        return all(holds_one_way(q, p) for q, p in ((first, second), (second, first)))

    def holds_one_way(q: int, p: int) -> bool:
        left = np.zeros(len(nodes))
        for chance, ratio in ((q, p / q), (CHANCES - q, (CHANCES - p) / (CHANCES - q))):
            # The argument is rounded down, where dG is larger. Chords lie above a convex function, and beyond the
            # last node it falls.
            left += chance / CHANCES * np.interp(nodes * (ratio * _DOWN), places, above)
        return bool(left[-1] <= last and np.all(left <= limits))

    return holds


@lru_cache(maxsize=16)
def _upper_values(
    room: Fraction, step: Fraction, count: int, digits: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Nodes near e^(j step), any growing numbers would do; upper bounds of dG(v; log u), with their places: 0, the
    inverses of the nodes, and the nodes."""
    nodes = np.exp(float(step) * np.arange(count + 1))
    wide = Context(prec=40)
    logarithms = (math.floor(Fraction(wide.ln(Decimal(u))) * _POINT - 1) for u in nodes.tolist())
    bounds = [delta_bounds(room, Fraction(max(0, x), _POINT), digits)[1] for x in logarithms]
    above = np.array([float(bound) for bound in bounds]) * _UP
    # dG(v; log u) = 1 - u + u dG(v; -log u), and an inverse that is rounded down is farther from 1.
    inverses = 1 / nodes[:0:-1] * _DOWN
    below_one = (1 - inverses + inverses * above[:0:-1]) * _UP
    places = np.concatenate(([0.0], inverses, nodes))
    values = np.minimum.accumulate(np.concatenate(([1.0], below_one, above)))  # dG falls
    if np.any(values[:-1] > MOST_FALL * values[1:]):
        raise PrivacyError(
            "keys cannot be found at so small a part of the budget", hint="raise epsilon or `share`"
        )
    return nodes, places, values


def _lower_values(
    mu: Fraction, step: Fraction, nodes: FloatArray, digits: int, delta: Fraction
) -> FloatArray:
    """Values at the nodes whose chords lie below dG(v + m; log u) + eta, less `SPARE`.

    The power of a test, Q(a) - u Q(a + mu), is a line below dG for every a and every mu rounded down. One touches in
    each cell; a node takes the lesser of the two lines of its cells.
    """
    unit = Fraction(1, 10**digits)
    lines = []
    for cell in range(len(nodes) - 1):
        touch = (cell + Fraction(1, 2)) * step
        a = Fraction(math.floor((touch / mu - mu / 2) * _POINT), _POINT)
        tail = upper_tail(a * a, digits)
        lines.append((tail - 2 * unit if a >= 0 else 1 - tail, upper_tail((a + mu) ** 2, digits)))
    exact = [Fraction(u) for u in nodes.tolist()]
    ends = [(lines[max(0, j - 1)], lines[min(j, len(lines) - 1)]) for j in range(len(exact))]
    least = (min(q - u * p for q, p in near) for u, near in zip(exact, ends, strict=True))
    return np.array([float((value + delta) * (1 - SPARE)) for value in least])


@lru_cache(maxsize=128)
def slot_table(price: SlotPrice, first: int) -> tuple[int, ...]:
    """The greedy table: each entry is the largest that (S) allows after the one before it, to 2^-20 of it.

    Args:
        price: of each slot.
        first: t_1, for a key that one person alone holds.

    Returns:
        t_1 < t_2 < .., multiples of 2^-64; the last stands for all larger numbers of people.

    Raises:
        PrivacyError: t_1 is below `LEAST_CHANCE`, or the table never reaches `CERTAIN`.

    **Privacy**: each pair of neighbours satisfies (S).
    """
    if first < LEAST_CHANCE:
        raise PrivacyError("keys cannot be found: no delta is left for them", hint="raise `key_delta`")
    holds, table, step = slot_inequality(price), [first], first
    while table[-1] < CERTAIN:
        last = table[-1]
        low, high = last, CHANCES - 1
        step = max(1, min(step, high - low - 1))
        while low + step < high and holds(low + step, last):
            low, step = low + step, 2 * step
        high = min(high, low + step)
        while high - low > max(1, min(low, CHANCES - low) >> 20):
            middle = (low + high) // 2
            low, high = (middle, high) if holds(middle, last) else (low, middle)
        if low == last:
            raise PrivacyError(
                "keys cannot be found at so small a part of the budget", hint="raise epsilon or `share`"
            )
        table, step = [*table, low], low - last
    return tuple(table)


def is_priced(price: SlotPrice, table: Sequence[int]) -> bool:
    """True if every pair of neighbouring entries of a table satisfies (S)."""
    holds = slot_inequality(price)
    return all(low < high < CHANCES and holds(high, low) for low, high in pairwise(table))


def people_at(table: Sequence[int], chance: Fraction) -> int:
    """The least number of people at which a key is shown with a chance."""
    return next(people for people, entry in enumerate(table, start=1) if entry >= chance * CHANCES)
