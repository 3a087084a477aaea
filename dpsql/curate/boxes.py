"""COUNT, SUM and AVG of many boxes of one view at once, by the functions that SQL's errors are made of.

**Privacy**: post-processing of a release, or of a dry one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from dpsql.answer.answered import AnsweredTerms
from dpsql.answer.errorfunctions import DEFAULT_LEVEL, HIGH, LOW, STDERR
from dpsql.answer.leafsets import FloatArray
from dpsql.answer.plan import Box, ReleaseView, presence
from dpsql.answer.terms import Term
from dpsql.answer.uncertainty.composite import Composite
from dpsql.answer.uncertainty.forms import Noisy, Ratio, one
from dpsql.answer.uncertainty.reads import PlanVariances
from dpsql.release import Release

SEEN = 3.0
"""Standard errors of a count from 0 below which its average is not judged."""


class BoxAnswer(NamedTuple):
    """One aggregate of many boxes; NaN where AVG is below noise.

    Args:
        value, low, high, stderr: as SQL has them; ends are infinite where they are open.
    """

    value: FloatArray
    low: FloatArray
    high: FloatArray
    stderr: FloatArray


@dataclass(frozen=True, eq=False)
class ViewBoxes:
    """Boxes of leaves of one view, in the place of a statement's plan.

    Args:
        view: the view.
        masks: leaf masks, one array (boxes, leaves) for each axis.
    """

    view: ReleaseView
    masks: Sequence[FloatArray]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.masks[0]),)

    def boxes_for(self, term: Term) -> list[Box]:
        """As of `answer.plan.Plan`: each group is one box."""
        return [(None,) * len(self.masks)]

    def box_masks(self, box: Box) -> Sequence[FloatArray]:
        return self.masks

    def read(self, cells: FloatArray) -> FloatArray:
        """The sums of the cells of each box."""
        letters = "abcdefgh"[: len(self.masks)]
        names = ",".join([letters, *(f"z{letter}" for letter in letters)])
        return np.asarray(np.einsum(f"{names}->z", cells, *self.masks, optimize=True), np.float64)


def box_answers(
    release: Release, boxes: ViewBoxes, leaves: Mapping[int, FloatArray], measure: str | None
) -> dict[str, BoxAnswer]:
    """COUNT of each box, and SUM and AVG of a measure, in stored units.

    Args:
        release: an open release.
        boxes: what is asked.
        leaves: estimates of the leaves of a statistic, by its id, in stored units.
        measure: of the view; None for COUNT alone.
    """
    counted, rows = one(Term("count")), boxes.view.statistics["count"]
    count = boxes.read(leaves[rows.id])
    totals, forms, scale = {Term("count"): count}, dict[str, Noisy](COUNT=counted), 1.0
    if measure is not None:
        sums, summed, there = (
            boxes.view.statistics[measure],
            one(Term(measure)),
            presence(measure, boxes.view),
        )
        assert there is not None
        scale = 10.0**-sums.scale
        totals[Term(there.measure)] = boxes.read(leaves[there.id])
        totals[Term(measure)] = (boxes.read(leaves[sums.id]) + sums.mid * totals[Term(there.measure)]) * scale
        forms |= {"SUM": summed, "AVG": Ratio(summed, one(Term(there.measure)), mean=True)}
    plan = cast(Any, boxes)
    index = tuple(np.arange(len(count)) for _ in boxes.masks)
    lookup = cast(Any, SimpleNamespace(nodes=(len(count),)))
    answered = AnsweredTerms(plan, totals, (lookup,), PlanVariances(plan, release, index), {})
    return {
        name: _answer(form, answered, 1.0 if name == "COUNT" else 1 / scale) for name, form in forms.items()
    }


def _answer(form: Noisy, answered: AnsweredTerms, scale: float) -> BoxAnswer:
    numbers = Composite.of_form(form, answered)
    errors = [error.values(numbers, DEFAULT_LEVEL) for error in (LOW, HIGH, STDERR)]
    columns = [column * scale for column in (numbers.central(), *errors)]
    if numbers.quotient is not None:
        count = Composite.of_form(form.sides[-1], answered)
        lost = np.abs(count.central()) < SEEN * np.maximum(count.noise(), 1e-150)
        columns = [np.where(lost, np.nan, column) for column in columns]
    return BoxAnswer(*columns)
