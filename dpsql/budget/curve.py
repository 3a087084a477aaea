"""The exact Gaussian curve: what noise of discrete Gaussians costs at a delta, in mu^2.

*Example.* Epsilon 1 at delta 1e-6 is mu^2 = 0.05603. One unit of a count then has noise of variance 17.85; by rho-zCDP
and its conversion it would have 20.53.

If on every history sum_r d_r^2 / (sigma_r^2 - `SLACK`) <= mu^2 for the differences d_r of the integers that noise is
added to, then all of them together are (epsilon, delta)-DP wherever

    delta_G(mu, epsilon - 2 H) <= e^-H delta,     delta_G(mu, e) = Q(e / mu - mu / 2) - e^e Q(e / mu + mu / 2)

Q(a) = P(N(0, 1) > a), H = 2^-50. Everything is decimal arithmetic wide enough for what cancels, moved by a margin to
the safe side and rounded there; floats only say where to look. With phi the density of N(0, 1) and R = Q / phi,
delta_G(mu, e) = Q(e / mu - mu / 2) - phi(e / mu - mu / 2) R(e / mu + mu / 2): digits and terms follow from delta and
not from epsilon, so a cap of 10,000 takes no longer than one of 10.

| here | there | unit |
|---|---|---|
| `mu2_of` | the largest mu^2 for epsilon at delta | multiple of 10^-18, rounded down |
| `epsilon_of` | the least epsilon of mu^2 at delta | multiple of 10^-18, rounded up |
| `gaussian_sigma2` | sigma^2 that spends mu^2 | multiple of 2^-20, rounded up |

A Laplace number would cost (2 Q^-1(1 / (1 + e^epsilon)))^2 of mu^2, about (pi / 2) epsilon^2, and have pi times the
variance of a Gaussian one. So under a delta all noise is Gaussian, and mechanisms whose noise is Laplace are refused.

**Slots**: chances with which keys that nobody listed are shown, priced by the Gaussian draws that certainly remain.

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

**Privacy**: docs/privacy/delta.md has the proof; `SLACK` and H are the price of integers. Without them the claim
is false. Of slots too: decimals bound dG from above and from below; floats only add, multiply and divide positive
numbers, and `SPARE` is above what they lose.
**Source**: docs/method/rows.md, "From epsilon and delta to mu^2", "The step"; greedy tables: Desfontaines, Voss,
Gipson and Mandayam (2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dpsql.errors import PrivacyError

SLACK = 4
"""What a discrete Gaussian's variance parameter must have above that of the continuous one it is compared with."""

GRAIN = 10**18
"""mu^2 and epsilon are multiples of 10^-18: short texts, exact in the ledger."""

_H = Fraction(1, 1 << 50)
_SIGMA_GRAIN = 1 << 20
_CHARGE_DIGITS = 30  # of delta_G below those of delta: a charge is right to its last grain
_SPARE_DIGITS = 10  # of Mills' ratio below those that it is asked for
_LOST_DIGITS = 8  # more than a sum of fewer than 10^4 terms, each rounded, can lose where errors add up


@lru_cache(maxsize=256)
def mu2_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest mu^2 (rounded down) that implies (epsilon, delta)-DP.

    Args:
        epsilon: > 0.
        delta: 0 < delta < 1.

    Returns:
        mu^2, a multiple of 10^-18 and a proven lower bound.

    Raises:
        PrivacyError: delta is 0 (pure budgets stay in epsilon), or the pair leaves no room at all.

    >>> float(mu2_of(Fraction(1), Fraction(1, 10**6)))  # doctest: +ELLIPSIS
    0.0560...
    """
    _check_delta(delta)
    usable_epsilon = epsilon - 2 * _H
    if usable_epsilon <= 0:
        raise PrivacyError("epsilon is too small for Gaussian noise", hint="give a larger epsilon")
    # rho-zCDP holds epsilon = mu^2 / 2 + mu sqrt(2 log(1 / delta)): a float near the answer, which bounds then decide.
    spread = math.sqrt(-2 * math.log(delta))
    near = (math.sqrt(spread * spread + 2 * float(usable_epsilon)) - spread) ** 2

    def over(grains: int) -> float:
        return _over(Fraction(grains, GRAIN), usable_epsilon, delta)

    low, high = 0, max(math.ceil(near * GRAIN), 1)
    while over(high) <= 0:
        low, high = high, 2 * high + 1
    low = _edge(over, low, high)
    if not low:
        raise PrivacyError(
            "epsilon and delta are too small for Gaussian noise", hint="give a larger epsilon or delta"
        )
    return Fraction(low, GRAIN)


@lru_cache(maxsize=1024)
def epsilon_of(mu2: Fraction, delta: Fraction) -> Fraction:
    """The least epsilon (rounded up) that mu^2 implies at delta.

    Args:
        mu2: >= 0.
        delta: 0 < delta < 1.

    Returns:
        epsilon, a multiple of 10^-18 and a proven upper bound.

    Raises:
        PrivacyError: delta is 0.
    """
    _check_delta(delta)
    if mu2 <= 0:
        return Fraction(0)
    # As in `mu2_of`: an epsilon that is large enough, but for what floats lose.
    mu = math.sqrt(mu2)
    above = (mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))) * (1 + 1e-6) + 1e-15
    smallest = math.ceil(2 * _H * GRAIN)  # below it nothing is left of epsilon
    low, high = smallest - 1, smallest + math.ceil(above * GRAIN)

    def over(below: int) -> float:
        return _over(mu2, Fraction(-below, GRAIN) - 2 * _H, delta)

    while over(-high) > 0:
        low, high = high, 2 * high
    return Fraction(-_edge(over, -high, -low), GRAIN)


def gaussian_sigma2(mu2: Fraction, squared_sensitivity: int) -> Fraction:
    """The variance parameter that spends at most mu^2, rounded up to a multiple of 2^-20.

    Args:
        mu2: > 0.
        squared_sensitivity: the exact squared L2 sensitivity of the integer vector.

    Returns:
        sigma^2 >= squared_sensitivity / mu^2 + 4, and at least 5.

    **Privacy**: discrete Gaussian noise with this parameter spends mu^2 of a lineage that adds mu^2 up.
    """
    exact = max(Fraction(1), Fraction(squared_sensitivity) / mu2) + SLACK
    return Fraction(math.ceil(exact * _SIGMA_GRAIN), _SIGMA_GRAIN)


def upper_tail(square: Fraction, digits: int) -> Fraction:
    """An upper bound of Q(a) = P(N(0, 1) > a), at most 2 10^-digits above it.

    Args:
        square: a^2, for a >= 0.
        digits: >= 1.

    >>> round(float(upper_tail(Fraction(4), 20)), 9)
    0.022750132
    """
    wide = _context_of(digits, math.sqrt(square))
    value = wide.multiply(_density(square, wide), _mills(_root(square, wide), digits + 1, wide))
    return Fraction(wide.add(value, _unit(-digits)))


def delta_bounds(mu2: Fraction, epsilon: Fraction, digits: int) -> tuple[Decimal, Decimal]:
    """Bounds of delta_G(mu, epsilon) that lie 2 10^-digits apart.

    Args:
        mu2: > 0.
        epsilon: >= 0.
        digits: >= 1.
    """
    mu = math.sqrt(mu2)
    wide = _context_of(digits, float(epsilon) / mu + mu / 2)
    root, exact = _root(mu2, wide), _decimal(epsilon, wide)
    ratio, half = wide.divide(exact, root), wide.divide(root, Decimal(2))
    near, distant = wide.subtract(ratio, half), wide.add(ratio, half)
    # e^epsilon phi(distant) = phi(near), so neither e^epsilon nor a tail that small is ever computed.
    density = _density((epsilon - mu2 / 2) ** 2 / mu2, wide)
    upper = wide.multiply(density, _mills(wide.abs(near), digits + 1, wide))
    upper = wide.subtract(Decimal(1), upper) if near < 0 else upper
    value = wide.subtract(upper, wide.multiply(density, _mills(distant, digits + 1, wide)))
    margin = _unit(-digits)
    return wide.subtract(value, margin), wide.add(value, margin)


def _over(mu2: Fraction, epsilon: Fraction, delta: Fraction) -> float:
    """The logarithm of delta_G(mu, epsilon) over (1 - H) delta: above 0, or not above it for certain."""
    digits = _CHARGE_DIGITS + math.ceil(-math.log10(delta))
    _, above = delta_bounds(mu2, epsilon, digits)
    limit = (1 - _H) * delta
    excess = Fraction(above) / limit - 1
    if excess <= 0:
        return math.log1p(max(float(excess), -1 + 2**-53))
    return max(math.log1p(float(excess)), math.ulp(0.0))


def _edge(over: Callable[[int], float], low: int, high: int) -> int:
    """The last whole number at which an increasing function is not above 0.

    Secants find it: a value in wide arithmetic is dear, and bisection takes seventy of them where these take a dozen.

    Args:
        over: the function; its signs alone decide.
        low: where it is not above 0; it is not asked there.
        high: where it is above 0.
    """
    previous, last, slow = (high, over(high)), (low, math.nan), 0
    while high - low > 1:
        guess, width = _crossing(previous, last), high - low
        probe = (low + high) // 2 if guess is None or slow == MOST_SLOW else guess
        probe = min(max(probe, low + 1), high - 1)
        previous, last = last, (probe, over(probe))
        low, high = (probe, high) if last[1] <= 0 else (low, probe)
        slow = slow + 1 if 2 * (high - low) > width and slow < MOST_SLOW else 0
    return low


MOST_SLOW = 6
"""Secants that may leave more than half of a range before it is halved."""


def _crossing(first: tuple[int, float], second: tuple[int, float]) -> int | None:
    """Zero of the line through two points; None where there is none."""
    rise = second[1] - first[1]
    step = -second[1] / rise * (second[0] - first[0]) if rise else math.nan
    return second[0] + math.floor(step) if math.isfinite(step) else None


def _mills(x: Decimal, digits: int, wide: Context) -> Decimal:
    """Mills' ratio Q(x) / phi(x) for x >= 0 with an absolute error below 10^-digits.

    For large x it is the asymptotic series (1 - 1/x^2 + 3/x^4 - 15/x^6 ..) / x, whose partial sums lie on alternate
    sides: the error is below the first term that is left out, and the least term is below e^-(x^2/2). For small x it is
    sqrt(pi / 2) e^(x^2/2) - (x + x^3/3 + x^5/15 ..), whose terms have one sign. Neither takes more than about
    5 (digits + 30) terms, however large x is.

    Args:
        x: >= 0.
        digits: of the error.
        wide: from `_context_of`, for this number of digits and an argument of at least x.
    """
    square, kept = wide.multiply(x, x), digits + _SPARE_DIGITS // 2
    if float(square) / 2 > _natural(digits):
        total, term, odd = Decimal(0), wide.divide(Decimal(1), x), 1
        while wide.abs(term) > _unit(-kept):
            total = wide.add(total, term)
            term = wide.divide(wide.multiply(term, Decimal(-odd)), square)
            odd += 2
        return total
    half = wide.divide(Decimal("0.5"), _density_of(square, wide))
    return wide.subtract(half, _odd_series(x, square, kept, wide))


def _odd_series(x: Decimal, square: Decimal, kept: int, wide: Context) -> Decimal:
    """x + x^3/3 + x^5/15 .. to `kept` digits, in whole multiples of 2^-bits: faster than decimals.

    Each step rounds the factor and the term down, so that a term loses at most (its size + 2) units in it. No term is
    larger than the sum, e^(x^2/2) times sqrt(pi/2), for which `wide` has digits beside `kept`; of n terms less than
    n^2 times that many units are lost, and n is below 10^4.
    """
    bits = math.ceil(wide.prec * math.log2(10))
    scale = 10**wide.prec
    term = total = (int(wide.scaleb(x, wide.prec)) << bits) // scale
    factor = (int(wide.scaleb(square, wide.prec)) << bits) // scale
    rising, least, odd = math.ceil(wide.multiply(square, Decimal(2))) - 2, (1 << bits) // 10**kept, 1
    # What is left after a term whose successors halve is below that term.
    while odd < rising or term > least:
        odd += 2
        term = (term * factor >> bits) // odd
        total += term
    return wide.divide(Decimal(total), Decimal(1 << bits))


def _density(square: Fraction, wide: Context) -> Decimal:
    """phi at the root of a square."""
    return _density_of(_decimal(square, wide), wide)


def _density_of(square: Decimal, wide: Context) -> Decimal:
    circle = wide.sqrt(wide.multiply(Decimal(2), _pi(wide.prec)))
    return wide.divide(wide.exp(wide.divide(square, Decimal(-2))), circle)


def _natural(digits: int) -> float:
    """Half the square from which on the asymptotic series of `_mills` reaches its error."""
    return (digits + _SPARE_DIGITS) * math.log(10)


def _unit(exponent: int) -> Decimal:
    """A power of ten."""
    return Decimal((0, (1,), exponent))


def _context_of(digits: int, argument: float) -> Context:
    """Arithmetic for `_mills` up to an argument: wide enough for what cancels in the series that it takes there."""
    cancelled = min(argument * argument / 2, _natural(digits + 1)) / math.log(10)
    return _context(digits + 2 * _SPARE_DIGITS + math.ceil(cancelled))


def _context(digits: int) -> Context:
    # Decimal's operators use the thread's own context of 28 digits, so everything is asked of this one.
    return Context(prec=digits + _LOST_DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN)


def _decimal(value: Fraction, wide: Context) -> Decimal:
    return wide.divide(Decimal(value.numerator), Decimal(value.denominator))


def _root(value: Fraction, wide: Context) -> Decimal:
    return wide.sqrt(_decimal(value, wide))


@lru_cache(maxsize=64)
def _pi(digits: int) -> Decimal:
    """By Machin's formula in integers: pi / 4 = 4 arctan(1 / 5) - arctan(1 / 239)."""
    scale = 10 ** (digits + _LOST_DIGITS)

    def arctan(divisor: int) -> int:
        power, total, odd, sign = scale // divisor, 0, 1, 1
        while power:
            total += sign * (power // odd)
            power //= divisor * divisor
            odd, sign = odd + 2, -sign
        return total

    scaled = 4 * (4 * arctan(5) - arctan(239))
    return _context(digits).divide(Decimal(scaled), Decimal(scale))


def _check_delta(delta: Fraction) -> None:
    if not 0 < delta < 1:
        raise PrivacyError(
            "Gaussian noise needs a delta above 0 and below 1", hint="with delta 0 spend epsilon instead"
        )


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
_SLOT_DIGITS = 24  # digits of dG below those of eta
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
    digits = 4 * math.ceil((_SLOT_DIGITS - math.log10(delta)) / 4)  # few values: bounds are shared
    mu = Fraction(math.isqrt(math.floor(whole * _POINT * _POINT)), _POINT)  # rounded down
    step = min(Fraction(1, NODES_A_UNIT), Fraction(math.floor(mu / NODES_A_MU * _POINT), _POINT))
    blocks, quarter = 1, Decimal(float(delta / 4))
    while delta_bounds(whole, NODES_A_UNIT * blocks * step / 2, digits)[1] >= quarter:
        blocks += 1
    nodes, places, above = _upper_values(room, step, NODES_A_UNIT * blocks, digits)
    bounds = _lower_values(mu, step, nodes, digits, delta)
    bounds[-1] = min(bounds[-1], float(delta * (1 - SPARE)))

    def holds(first: int, second: int) -> bool:
        return all(holds_one_way(q, p) for q, p in ((first, second), (second, first)))

    def holding(q: int, p: int, among: slice) -> npt.NDArray[np.bool_]:
        """Whether the left side is at most the right one, at some nodes."""
        left = np.zeros(len(nodes[among]))
        for chance, ratio in ((q, p / q), (CHANCES - q, (CHANCES - p) / (CHANCES - q))):
            # The argument is rounded down, where dG is larger. Chords lie above a convex function, and beyond the
            # last node it falls.
            left += chance / CHANCES * np.interp(nodes[among] * (ratio * _DOWN), places, above)
        return left <= bounds[among]

    worst = 0

    def holds_one_way(q: int, p: int) -> bool:
        nonlocal worst
        # Where one pair of a search fails, the next one that fails mostly does too.
        if not holding(q, p, slice(worst, worst + 1))[0]:
            return False
        held = holding(q, p, slice(None))
        worst = int(np.argmin(held))
        return bool(held[worst])

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
