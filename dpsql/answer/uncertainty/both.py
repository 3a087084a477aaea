"""How two statistics err together: of one view, of two views of a release, of two releases.

**Privacy**: follows from published variances and promises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dpsql.answer.combine import independent
from dpsql.answer.leafsets import FloatArray
from dpsql.release import Release
from dpsql.variance.model import Covariance

Between = Callable[[Sequence[FloatArray], Sequence[FloatArray] | None], Covariance]
"""Covariances of answers under masks of one statistic and of another; None for the same ones."""


def both_err(release: Release, one: int, two: int) -> Between | None:
    """How two statistics of a release err together, the lower first; None where independently."""
    left, right = release.statistics[one], release.statistics[two]
    if left.view == right.view or release.together:
        reading = release.shared(one, two)
        return None if reading is None else reading.covariance
    across = release.across(one, two)
    if across is not None:
        return lambda u, w: across.covariance(u, u if w is None else w)
    if release.meta.reported:  # what a channel does to two views at once is not kept
        return lambda u, w: Covariance(np.full(len(u[0]) if u else 1, np.nan))
    return None


def err_apart(one: Release, two: Release) -> bool:
    """Whether two releases err independently: neither was made of several when they were opened."""
    return independent([one.meta, two.meta]) and not one.together and not two.together
