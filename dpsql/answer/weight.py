"""The weight that counts and sums of a local release share (`row_weighting: mar`), and what its error adds to theirs.

A count is people x E r x its part of all rows within tau, a sum likewise: the weight E r / E min(r, tau) puts every
slot's rows in the place of the slot. So answers share the relative error of E r, and what they count is divided by what
all slots hold: a count of everything does not carry the slots' error at all. By the delta method an answer F has

    Var(F) - 2 (F/W) Cov(F, W) + (F/W)^2 Var(W) + r^2 F^2

in place of Var(F), and a, b of one release have r^2 a b more in common. Ratios see neither: both sides carry the same.

| here | there | unit |
|---|---|---|
| `relative` | r, standard error of E r over E r | 1 |
| `rows` | W, the view's COUNT(*) | rows |
| `variance` | Var(W) of slots alone | squared rows |
| `shared` | Cov(F, W) of slots alone | units of F times rows |

**Privacy**: published values alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsql.answer.leafsets import FloatArray
from dpsql.answer.run import run
from dpsql.release import Release, StatisticMeta
from dpsql.release.format import UNIT


@dataclass(frozen=True)
class Weight:
    """An estimated weight, as the answers of one view see it.

    Args:
        relative: relative standard error of the rows a person has.
        rows: the view's COUNT(*).
        variance: its variance without the weight's error.
    """

    relative: float
    rows: float
    variance: float

    def added(self, values: FloatArray, shared: FloatArray) -> FloatArray:
        """What an answer's variance gains; below 0 where more of the slots' error cancels than the weight brings.

        Args:
            values: the answers without their constants, shape (rows,).
            shared: their covariances with `rows`, shape (rows,).
        """
        part = values / self.rows
        return part**2 * self.variance - 2 * part * shared + (self.relative * values) ** 2


def weight_error(release: Release) -> float:
    """Relative standard error of the weight of rows; 0 where rows have none."""
    local = release.meta.get("local", {})
    return float(local.get("row_weight_error", 0.0)) / float(local.get("row_weight", 1.0))


def weight_of(release: Release, count: StatisticMeta) -> Weight | None:
    """The weight that a view's answers share.

    Args:
        release: an open release.
        count: the view's count.

    Returns:
        None where rows have no estimated weight, or where the view counts no rows.
    """
    relative = weight_error(release)
    if not relative:
        return None
    roots = " AND ".join(f"n{i + 1} = 0" for i in range(len(count.axes)))
    text = f"SELECT {release.estimate(count.id)} FROM node_combination_{count.id} WHERE {roots or 'true'}"
    found = run(release, text).rows
    rows = found[0][0] / UNIT if found else 0.0
    whole = [np.ones((1, release.axes[axis].leaves)) for axis in count.axes]
    return Weight(relative, rows, float(release.variance(count.id).quadratic(whole)[0])) if rows > 0 else None
