"""Exact budgets: currencies whose amounts add up, and amounts as integer units of a draw.

Read in this order: `currency` (what adds up: epsilon, or mu^2), `curve` (what mu^2 means at a delta), `units`
(fractions to integers over a common denominator).

| here | there | unit |
|---|---|---|
| `cap` | floor(eps t) | 1 / t of epsilon per unit of count |
| `units` (s) | eps_r = s_r / t | the same |
| `mu2` | squared parameter of the Gaussian pair N(0, 1), N(mu, 1) | |

No float takes part in what is spent: a float-normalised split overspends in about four trees of ten.
"""

from dpsql.budget.currency import (
    GRAINS,
    KEY_GRAINS,
    NEIGHBOURS,
    Currency,
    Epsilon,
    Mu2,
    Neighbours,
    currency_at,
    key_delta_of,
    share_of_cap,
)
from dpsql.budget.curve import SLACK, epsilon_of, gaussian_sigma2, mu2_of
from dpsql.budget.units import DENOMINATOR, cap_units, combine, scaled_denominator

__all__ = [
    "DENOMINATOR",
    "GRAINS",
    "KEY_GRAINS",
    "NEIGHBOURS",
    "SLACK",
    "Currency",
    "Epsilon",
    "Mu2",
    "Neighbours",
    "cap_units",
    "combine",
    "currency_at",
    "epsilon_of",
    "gaussian_sigma2",
    "key_delta_of",
    "mu2_of",
    "scaled_denominator",
    "share_of_cap",
]
