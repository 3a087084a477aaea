"""What is known of noisy numbers: one Protocol, so that a function of an error asks a block's groups and what an outer
statement made of them alike.

**Privacy**: published values alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpsql.answer.answered import Answered, central
from dpsql.answer.block import Linear, Noisy, terms_of
from dpsql.answer.cuts import average_of, ratio_moved, value_bounds
from dpsql.answer.leafsets import FloatArray
from dpsql.answer.scaled import Parts, follows_scale, parts_of
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

    def z(self, level: float) -> float:
        """Standard errors on each side of a number that hold it with this chance."""

    def ends(self, z: float) -> tuple[FloatArray, FloatArray]:
        """Ends of the noise's interval of z standard errors; NaN where it is unbounded."""

    def moved(self) -> FloatArray:
        """The most that cutting bins may add."""

    def left_out(self) -> FloatArray:
        """Which share of the rows bounding left out; NaN where noise hides it."""


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

    def z(self, level: float) -> float:
        """See `Estimated`."""
        return self.answered.z(level)

    def ends(self, z: float) -> tuple[FloatArray, FloatArray]:
        """See `Estimated`."""
        return self.answered.errors.interval(self.form, *self.answered.parts(self.form), z)

    def moved(self) -> FloatArray:
        """See `Estimated`."""
        answered, form = self.answered, self.form
        if isinstance(form, Linear):
            return answered.cut(form)
        release, average = answered.errors.release, average_of(form)
        bounds = None
        if average is not None:
            term, factor = average
            low, high = value_bounds(answered.plan.view.statistics[term.measure], release)
            bounds = (min(factor * low, factor * high), max(factor * low, factor * high))
        moved = answered.cut(form.above), answered.cut(form.below)
        return ratio_moved(*answered.parts(form), moved, bounds)

    def left_out(self) -> FloatArray:
        """See `Estimated`."""
        scale = self.answered.errors.release.scales.get(self.answered.plan.view.of)
        rows = any(map(follows_scale, terms_of(self.form)))
        left_out = 0.0 if scale is None or not rows else scale.measure("").left_out
        return np.full(len(self.answered.parts(self.form)[0]), np.nan if left_out is None else left_out)
