"""What is known of noisy numbers: one Protocol, so that a function of an error asks a block's groups and what an outer
statement made of them alike.

**Privacy**: published values alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from dpsql.answer.answered import Answered, central
from dpsql.answer.block import Linear, Noisy, Ratio, terms_of
from dpsql.answer.leafsets import FloatArray
from dpsql.answer.uncertainty.beyond import share_beyond
from dpsql.answer.uncertainty.partial_bins import average_of, ratio_moved, value_bounds
from dpsql.answer.uncertainty.scale import Parts, follows_scale, parts_of
from dpsql.variance.model import Covariance


class Estimated(Protocol):
    """Some noisy numbers and how far they may be off; every array has shape (rows,)."""

    def central(self) -> FloatArray:
        """The numbers; NaN where one is NULL."""

    def noise(self) -> FloatArray:
        """Standard errors of the noise; NaN where not defined."""

    def variance(self, of: Callable[[Covariance], FloatArray | float]) -> FloatArray:
        """One part of their variances."""

    def beside(self) -> Parts | None:
        """Variances beside the noise; None where no shape was scaled."""

    def z(self, level: float) -> FloatArray:
        """Standard errors on each side of a number that cover it with this chance."""

    def ends(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ends of the noise's interval of z standard errors; NaN where it is unbounded."""

    def limits(self) -> Limits | None:
        """Between which values the numbers lie whatever the rows are, for averages of a measure; None for others."""

    def moved(self) -> FloatArray:
        """The most that cutting bins may add."""

    def left_out(self) -> FloatArray:
        """Which share of the rows bounding left out; NaN where it is not measured, or noise hides it."""


class Limits(NamedTuple):
    """The least and the largest value that averages may have."""

    low: float
    high: float


def average_limits(form: Ratio, answered: Answered) -> Limits | None:
    """The limits of an average, by the bounds that the catalog declares; None for any other ratio."""
    average = average_of(form, answered.plan.view)
    if average is None:
        return None
    term, factor = average
    ends = value_bounds(answered.plan.view.statistics[term.measure], answered.errors.release)
    return Limits(min(factor * end for end in ends), max(factor * end for end in ends))


@dataclass(frozen=True, eq=False)
class Groups:
    """A form over a block's groups.

    Args:
        form: linear or a ratio.
        answered: the block's answers.
    """

    form: Noisy
    answered: Answered

    def central(self) -> FloatArray:
        """See `Estimated`."""
        return central(self.form, self.answered)

    def noise(self) -> FloatArray:
        """See `Estimated`."""
        return self.answered.errors.stderr(self.form, *self.answered.parts(self.form))

    def variance(self, of: Callable[[Covariance], FloatArray | float]) -> FloatArray:
        """See `Estimated`."""
        return self.answered.errors.part_variance(of, self.form, *self.answered.parts(self.form))

    def beside(self) -> Parts | None:
        """See `Estimated`."""
        return parts_of(self.form, self.answered)

    def z(self, level: float) -> FloatArray:
        """See `Estimated`."""
        return self.answered.z(self.form, level)

    def ends(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `Estimated`."""
        return self.answered.errors.interval(self.form, *self.answered.parts(self.form), z)

    def limits(self) -> Limits | None:
        """See `Estimated`."""
        return None if isinstance(self.form, Linear) else average_limits(self.form, self.answered)

    def moved(self) -> FloatArray:
        """See `Estimated`."""
        answered, form = self.answered, self.form
        if isinstance(form, Linear):
            return answered.cut(form)
        moved = answered.cut(form.above), answered.cut(form.below)
        return ratio_moved(*answered.parts(form), moved, average_limits(form, answered))

    def left_out(self) -> FloatArray:
        """See `Estimated`."""
        rows = any(map(follows_scale, terms_of(self.form)))
        share = share_beyond(self.answered.errors.release, self.answered.plan.view.of) if rows else 0.0
        return np.full(len(self.answered.parts(self.form)[0]), share)
