"""Amounts in the words of the catalog: epsilon at the lineage's delta.

With delta 0 epsilon itself is counted. Under a delta epsilons do not add up, so rho is counted: a cap becomes the
largest rho that implies it, and what was spent or is left is told as the epsilon that this rho implies.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from dpsql.budget import epsilon_of, rho_of

_ROOM_GRAIN = 10**9


@lru_cache(maxsize=256)
def counted(epsilon: Fraction, delta: Fraction) -> Fraction:
    """What an epsilon at delta allows to be counted, by the tight conversion that releases use: epsilon, or rho."""
    return rho_of(epsilon, delta) if delta else epsilon


def spent_epsilon(amount: Fraction, delta: Fraction) -> Fraction:
    """The epsilon at delta of a counted amount, rounded up."""
    return epsilon_of(amount, delta) if delta else amount


def left_epsilon(amount: Fraction, delta: Fraction) -> Fraction:
    """The largest epsilon of one release that a counted amount still holds, rounded down to 10^-9 under a delta.

    >>> left_epsilon(counted(Fraction(4), Fraction(1, 10**6)), Fraction(1, 10**6)) <= 4
    True
    """
    if not delta:
        return amount
    room = Fraction(math.floor(epsilon_of(amount, delta) * _ROOM_GRAIN), _ROOM_GRAIN)
    return room if room <= 0 or counted(room, delta) <= amount else room - Fraction(1, _ROOM_GRAIN)


def at_delta(delta: Fraction) -> str:
    """` at delta 1e-06`, or nothing for pure budgets."""
    return f" at delta {float(delta):g}" if delta else ""
