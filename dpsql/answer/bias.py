"""What bounding may have done to an answer, beside the noise: hints, not error bars.

Tables with `max_ids: auto` publish weighted shapes and one common factor. The factor puts back what weighting left out
of the table as a whole; a group whose units own more or fewer rows than others stays off by some of it.
"""

from __future__ import annotations

import numpy as np

from dpsql.answer.leafsets import FloatArray
from dpsql.answer.plan import Plan
from dpsql.answer.weight import weight_error
from dpsql.release import Release


def bias_hint(plan: Plan, release: Release, rows: int) -> FloatArray:
    """DP_BIAS_HINT: about which share of the rows the low bound left out, 1 - 1/R; shape (rows,).

    Args:
        plan: the plan.
        release: an open release.
        rows: number of groups shown.

    Returns:
        The same share for every group; 0 where every row counts alike, NaN where noise hides it.
    """
    scale = release.scales.get(plan.view.of)
    if scale is None:
        return np.zeros(rows)
    return np.full(rows, np.nan if scale.left_out is None else scale.left_out)


def scale_notes(plan: Plan, release: Release) -> list[str]:
    """The same in words, with R, its error and the axes of the view that may be off most."""
    scale = release.scales.get(plan.view.of)
    if scale is None or scale.left_out is None:
        return []
    if scale.factor == 1.0:
        return [
            f"{scale.of}: rows of one unit were weighted down; about {scale.left_out:.0%} of the rows are left out"
        ]
    sticky = [release.axes[i].name for i in plan.view.axes if release.axes[i].name in scale.sticky]
    # Nobody who reports for herself is weighted down: what her slots leave out has a note of its own.
    told = " and part of their error bars" if weight_error(release) else ""
    reach = f"; {scale.weighted_down:.0%} of the rows belong to units with more than {scale.tau}"
    return [
        f"{scale.of}: counts and sums are shapes times {scale.factor:.3g} (error {scale.relative_error:.1%}, common to "
        f"all of them{told})"
        + (reach if scale.weighted_down else "")
        + (f"; groups along {', '.join(sticky)} may be off most" if sticky else "")
    ]
