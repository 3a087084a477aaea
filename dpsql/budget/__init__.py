"""Exact budgets: currencies whose amounts add up, and amounts as integer units of a draw.

Read in this order: `currency` (what adds up: epsilon, or rho, and the conversion between them), `units` (fractions to
integers over a common denominator).

| here | there | unit |
|---|---|---|
| `cap` | floor(eps t) | 1 / t of epsilon per unit of count |
| `units` (s) | eps_r = s_r / t | the same |
| `rho` | zCDP parameter | |

No float takes part in what is spent: a float-normalised split overspends in about four trees of ten.
"""

from dpsql.budget.currency import (
    NEIGHBOURS,
    Currency,
    Epsilon,
    Neighbours,
    Rho,
    currency_at,
    epsilon_of,
    gaussian_sigma2,
    rho_of,
)
from dpsql.budget.units import (
    DENOMINATOR,
    cap_units,
    combine,
    scaled_denominator,
)

__all__ = [
    "DENOMINATOR",
    "NEIGHBOURS",
    "Currency",
    "Epsilon",
    "Neighbours",
    "Rho",
    "currency_at",
    "cap_units",
    "combine",
    "epsilon_of",
    "gaussian_sigma2",
    "rho_of",
    "scaled_denominator",
]
