"""Exact budgets: texts become fractions, fractions become integer units, and path sums are checked.

Read in this order: `parse` (text to Fraction), `units` (Fraction to integers over a common denominator,
and the path sums that prove the spend), `zcdp` (epsilon and delta to rho and back).

| here | there | unit |
|---|---|---|
| `cap` | floor(eps t) | 1 / t of epsilon per unit of count |
| `units` (s) | eps_r = s_r / t | the same |
| `rho` | zCDP parameter | |

No float takes part in what is spent: a float-normalised split overspends in about four trees of ten.
"""

from dpsql.budget.parse import MAX_EPSILON, parse_delta, parse_epsilon, share_out
from dpsql.budget.units import (
    DENOMINATOR,
    Rows,
    assert_path_sums,
    cap_units,
    combine,
    largest_path_sum,
    scaled_denominator,
)
from dpsql.budget.zcdp import delta_of, epsilon_of, gaussian_rho, gaussian_sigma2, pure_rho, rho_of

__all__ = [
    "DENOMINATOR",
    "MAX_EPSILON",
    "Rows",
    "assert_path_sums",
    "cap_units",
    "combine",
    "delta_of",
    "epsilon_of",
    "gaussian_rho",
    "gaussian_sigma2",
    "largest_path_sum",
    "parse_delta",
    "parse_epsilon",
    "pure_rho",
    "rho_of",
    "scaled_denominator",
    "share_out",
]
