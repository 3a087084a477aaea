"""Keys that are not shown: what a reader is told of them, in refusals, notes, listings and plans.

Where keys were found when the release was made (`categories: private`), rows of all others lie in one leaf, OTHER. A
condition that some of them may meet cuts that leaf: it counts nothing of it, its error bar allows for all of it, and
alone it is refused. It is never a silent 0.

**Privacy**: post-processing of released numbers and of thresholds, which follow from the catalog.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dpsql.catalog.graph import COUNTS
from dpsql.errors import PartialBinError
from dpsql.executor.recombine import TermEstimates, answer_terms
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, HIGH, LOW, STDERR
from dpsql.intervals.forms import one
from dpsql.planner.axis_query import AxisCells, decides, key_list
from dpsql.planner.leaf_values import UNKNOWN, AxisQuery
from dpsql.planner.plan import ReleaseView, ViewPlan
from dpsql.planner.terms import TRUE, Term
from dpsql.release import Release
from dpsql.release.format import KeyListMeta


class LeafCount(NamedTuple):
    """A noisy count over some leaves: its value, standard error and 95% interval."""

    value: float
    stderr: float
    low: float
    high: float


def answered_leaves(
    release: Release, view: ReleaseView, term: Term, selections: Sequence[range]
) -> TermEstimates:
    """A view's own count over some leaves of each axis."""
    cells = []
    for axis, leaves in zip(view.axes, selections, strict=True):
        zeros = np.zeros(len(leaves), np.int64)
        size = release.axes[axis].leaves
        cells.append(
            AxisCells(size, ((),), (), zeros, zeros, np.array(leaves, np.int64), np.ones(len(leaves)), ((),))
        )
    questions = tuple(AxisQuery(axis, ()) for axis in view.axes)
    plan = ViewPlan(view, questions, tuple(cells), TRUE, ((),) * len(cells))
    return answer_terms(plan, [term], tuple(np.zeros(1, np.int64) for _ in cells), release)


def leaf_count(release: Release, view: ReleaseView, axis: int, leaves: range) -> LeafCount | None:
    """The rows of some leaves of one axis of a view; None where it counts nothing.

    Args:
        release, view: an open release and one of its views.
        axis: the axis's position in the view.
        leaves: of that axis.
    """
    measure = next((name for name in COUNTS if name in view.statistics), None)
    if measure is None:
        return None
    selections = [range(release.axes[number].leaves) for number in view.axes]
    selections[axis] = leaves
    answered = answered_leaves(release, view, Term(measure), selections)
    composite = Composite.of_form(one(Term(measure)), answered)
    stderr, low, high = (float(error.values(composite, DEFAULT_LEVEL)[0]) for error in (STDERR, LOW, HIGH))
    return LeafCount(float(answered.totals[Term(measure)][0]), stderr, low, high)


def other_count(release: Release, view: ReleaseView, axis: int) -> LeafCount | None:
    """The rows of keys that are not shown."""
    leaf = release.axes[view.axes[axis]].other_leaf
    if leaf is None:
        return None
    return release.kept(
        ("other", view.name, axis), lambda: leaf_count(release, view, axis, range(leaf, leaf + 1))
    )


def list_words(keys: KeyListMeta) -> str:
    """Number of shown keys in words, and about how many units a key needs.

    >>> from dpsql.release.format import KeyRoundMeta
    >>> list_words(KeyListMeta("t.x", "VARCHAR", 387, 400, 1, (KeyRoundMeta("1", "1/9", "4", 74448896),)))
    'keys of t.x: private, 387 shown, of about 71 people or more each'
    """
    shown = f"of about {keys.people():,.0f} people or more each" if keys.rounds else "all listed before"
    return f"keys of {keys.column}: private, {keys.keys} shown, {shown}"


def listed_words(release: Release, view: ReleaseView) -> Iterator[str]:
    """The same of each list of a view, with the part of its rows in OTHER."""
    for position, axis in enumerate(view.axes):
        keys = key_list(release, axis)
        if keys is None:
            continue
        other = other_count(release, view, position)
        whole = leaf_count(release, view, position, range(release.axes[axis].leaves))
        if other is None or whole is None or whole.low <= 0:
            yield list_words(keys)
            continue
        share, low, high = (
            min(1.0, max(0.0, part))
            for part in (other.value / whole.value, other.low / whole.high, other.high / whole.low)
        )
        yield f"{list_words(keys)}; {share:.1%} of rows in {_outside(release, axis)} ({low:.1%} to {high:.1%})"


def _outside(release: Release, axis: int) -> str:
    """Label of rows whose keys are not shown."""
    meta = release.axes[axis]
    spec = release.catalog.tables[meta.table].columns[meta.columns[0].column]
    return spec.other if spec.type == "string" else "the group without a value"


def unshown_refusal(plan: ViewPlan, release: Release) -> PartialBinError | None:
    """The refusal of a group that keys which are not shown alone may have rows in; None where there is no such group.

    Args:
        plan: a plan that is refused, since more than half of a group is not known.
        release: an open release.
    """
    for position, (query, cells) in enumerate(zip(plan.questions, plan.cells, strict=True)):
        keys, most = key_list(release, query.axis), dict[tuple[int, int], float]()
        for group, truths, coverage in zip(cells.group, cells.truths, cells.coverage, strict=True):
            place = int(group), int(truths)
            most[place] = max(most.get(place, 0.0), float(coverage))
        conditions = (*query.filters, *query.classes)
        culprit = next((p.expression for p in conditions if not decides(p, query, release)), None)
        if keys is None or culprit is None or min(most.values(), default=1.0) > UNKNOWN:
            continue
        other, outside = other_count(release, plan.view, position), _outside(release, query.axis)
        rows = "" if other is None else f", {other.value:,.0f} +- {1.96 * other.stderr:,.0f} rows"
        return PartialBinError(
            f"{culprit.words()}: not among the {keys.keys} keys shown; its rows are in {outside}{rows}; "
            f"{keys.missing} shown",
            hint="ask for shown keys, which SELECT DISTINCT lists; with `on_partial_bin: interpolate` in the catalog "
            "or the connection it is answered, with an error bar that covers all of them",
        ).at("WHERE", culprit.span)
    return None
