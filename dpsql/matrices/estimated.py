"""One statistic, estimated: what every mechanism hands to the release, of whatever trust.

| state | class | where |
|---|---|---|
| requested | `StarView` | `star` |
| planned | `PlannedStatistic` | `publishing` |
| drawn | `NoisyRows` | `mechanisms.law` |
| estimated | `Estimated` | here |
| stored | `StatisticPart` | `release` |

**Privacy**: post-processing of noisy integers or reports, and public facts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from dpsql.matrices.kronecker import AxisSplit
from dpsql.matrices.model import AxisVariance, Components
from dpsql.matrices.partners import Partners
from dpsql.matrices.reading import READINGS, Together, reading
from dpsql.tree import FloatArray, IntArray, Noisy


class Integers(NamedTuple):
    """Drawn integers of a statistic.

    Args:
        value: noisy integers, shape (rows_1, .., rows_d); (rows,) where the axes are measured together.
        budget: integer budget of each, the same shape.
    """

    value: Noisy
    budget: IntArray


class Smooth(NamedTuple):
    """A non-negative estimate that was made along with the unbiased one.

    Args:
        leaves: non-negative, in the shape of the unbiased leaves.
        model: of its errors; None where the unbiased estimate's tell them.
        preferred: whether it answers unless unbiased estimates are asked for.
    """

    leaves: FloatArray
    model: Together | None
    preferred: bool


class DrawnAxis(NamedTuple):
    """An axis whose rows the draw itself chose: the variance model and what was measured, in words."""

    model: AxisVariance
    words: str


@dataclass(frozen=True, eq=False)
class Estimated:
    """A statistic before it is rounded; leaves of one family agree on shared margins up to float rounding.

    Args:
        leaves: leaf estimates in the measure's units, shape (n_1, .., n_d).
        reading: how it answers, one of `READINGS`.
        components: axis positions of every independent part -> its variance factor.
        integers: what was drawn.
        notes: how it was measured, in words.
        biased: whether estimates are biased by more than bounding.
        model: of its cells: alone where axes were measured together, else beside its axes' models; None where these
            say all.
        axis: what the draw settled of the statistic's one axis, or None.
        smooth: the non-negative estimate, where the mechanism makes one itself.
        partners: of the family's axes, where it agrees on the rows without a partner.
        prefers: whether the non-negative estimate that is made of it answers unless unbiased ones are asked for.
    """

    leaves: FloatArray
    reading: str
    components: Components
    integers: Integers
    notes: str
    biased: bool = False
    model: Together | None = None
    axis: DrawnAxis | None = None
    smooth: Smooth | None = None
    partners: Partners = field(default_factory=dict)
    prefers: bool = False

    @property
    def by_axis(self) -> bool:
        """True if its errors are made of its axes' models, with or without one of its own."""
        of = READINGS[self.reading].of
        return AxisSplit in (of if isinstance(of, tuple) else (of,))

    @property
    def listed(self) -> frozenset[int]:
        """Positions of axes along which numbers do not add up."""
        if self.by_axis or self.model is None:
            return frozenset()
        return frozenset(reading(self.reading, [self.model], self.components).listed)
