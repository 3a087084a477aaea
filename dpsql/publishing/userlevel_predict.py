"""How far answers on a `max_ids: auto` table will be off, before anything is spent.

Bounds are chosen at publish from noisy histograms, so noise scales are not known before. Given two numbers that the
curator states in public, about how many units and about how many rows there are, this module supposes that

    rows per unit    are log-normal, with median rows / units / sqrt(e) unless one is stated
    rows             lie evenly over the ordinary leaves of every axis, independently of other axes
    values           average a quarter of their range above the lower bound and deviate as the recipe expects

and asks the recipe's own formulas for the factor, the noise and the errors of typical questions.

**Privacy**: public facts alone; no private table is opened.
**Source**: docs/method/user_level.md, "Expecting before spending".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import hypot, prod, sqrt

import numpy as np
import numpy.typing as npt

from dpsql.axis import Axis
from dpsql.axis.model import OrderedRule
from dpsql.mechanisms.central.reconcile import component_variances
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.publishing.userlevel_expect import Expected, Guess, expect
from dpsql.variance.kronecker import AxisSplit, KroneckerVariance

FloatArray = npt.NDArray[np.float64]

HOPELESS = 0.5
"""Relative error of a view's typical question from which it says nothing worth its budget."""

SMALLEST = 0.01
"""Ranges with a smaller share of the rows are not asked."""

RANGES = ("one range", "ranges joined")

STEPS = {1: 12, 2: 8, 3: 4}
"""Pieces that each axis is cut into to make ranges, by the number of axes; 2 for more of them."""

MOST_GROUPS = 80
"""Groups of one view that are looked at."""


@dataclass(frozen=True)
class ClassForecast:
    """The predicted relative error of one kind of question on one view and measure.

    Args:
        kind: total, one-way group, month, one range, one cell or ranges joined.
        view, of, measure: what is asked; the total is the table's, whatever view.
        error: standard error over answer, of COUNT or SUM, with the error of the common factor.
        mean_error: the same of AVG; None for counts.
    """

    kind: str
    view: str
    of: str
    measure: str
    error: float
    mean_error: float | None


@dataclass(frozen=True)
class Hopeless:
    """A view whose typical question is lost in noise.

    Args:
        of, view: the table and the view; the view is empty where no view of the table answers.
        error: its predicted relative error; of a table, the least of its views.
        coarser: the view over some of its axes that answers best below `HOPELESS`; None where there is none.
    """

    of: str
    view: str
    error: float
    coarser: str | None


def predict_classes(plan: ReleasePlan, guess: Guess) -> tuple[ClassForecast, ...]:
    """Relative errors of typical questions on every table with `max_ids: auto`.

    Args:
        plan: the planned release.
        guess: what is publicly known about the table.

    Returns:
        Kinds of questions, table by table and view by view; nothing where no bound is chosen at publish.
    """
    found: list[ClassForecast] = []
    for of in dict.fromkeys(s.of for s in plan.statistics if s.shape):
        expected = expect(plan, of, guess)
        variances = _variances(plan, expected)
        mine = {i: s for i, s in enumerate(plan.statistics) if s.of == of}
        found += list(_totals(plan, expected, mine, variances))
        for i, statistic in mine.items():
            found += list(_questions(plan, expected, i, statistic, variances))
    return tuple(found)


def by_kind(
    classes: tuple[ClassForecast, ...],
) -> dict[tuple[str, str, str], tuple[float, float | None]]:
    """Errors of each kind of question on a typical view of a table.

    Args:
        classes: what `predict_classes` says.

    Returns:
        (table, kind, measure) -> median error over views, and that of AVG.
    """
    found = {}
    for key in dict.fromkeys((c.of, c.kind, c.measure) for c in classes):
        mine = [c for c in classes if (c.of, c.kind, c.measure) == key]
        means = [c.mean_error for c in mine if c.mean_error is not None]
        error = float(np.median([c.error for c in mine]))
        found[key] = error, float(np.median(means)) if means else None
    return found


def hopeless(plan: ReleasePlan, classes: tuple[ClassForecast, ...]) -> tuple[Hopeless, ...]:
    """The tables and views to coarsen or to drop, judged by their counts.

    Args:
        plan: the planned release.
        classes: what `predict_classes` says.

    Returns:
        For each table its views, after the table itself where none of them answers. A view whose axes are all
        ordered is judged by ranges, another by its groups or cells.
    """
    ordered = {s.view: all(_is_ordered(plan, a) for a in s.axes) for s in plan.statistics}
    best = {
        (c.of, c.view): c.error
        for c in classes
        if c.measure == "count" and c.view and (c.kind in RANGES) == ordered[c.view]
    }
    names = {s.view: {plan.axes[a].axis.name for a in s.axes} for s in plan.statistics}
    found = []
    for of in dict.fromkeys(table for table, _ in best):
        errors = {view: error for (table, view), error in best.items() if table == of}
        if min(errors.values()) > HOPELESS:
            found.append(Hopeless(of, "", min(errors.values()), None))
        for view, error in errors.items():
            if error > HOPELESS:
                usable = {v: e for v, e in errors.items() if e <= HOPELESS and names[v] <= names[view]}
                found.append(Hopeless(of, view, error, min(usable, key=lambda v: usable[v], default=None)))
    return tuple(found)


def _variances(plan: ReleasePlan, expected: Expected) -> dict[int, KroneckerVariance]:
    """The variance of every statistic of the table once views are reconciled, before the factor."""
    splits = {a: AxisSplit(planned.strategy.variance()) for a, planned in enumerate(plan.axes)}
    totals = {a: split.total for a, split in splits.items()}
    found = {}
    for i in expected.unit_variance:
        s = plan.statistics[i]
        family = [
            (plan.statistics[j].axes, unit)
            for j, unit in expected.unit_variance.items()
            if plan.statistics[j].family == s.family
        ]
        parts = {
            tuple(s.axes.index(axis) for axis in part): sigma2
            for part, sigma2 in component_variances(family, totals).items()
            if set(part) <= set(s.axes)
        }
        found[i] = KroneckerVariance(tuple(splits[a] for a in s.axes), parts)
    return found


def _totals(
    plan: ReleasePlan,
    expected: Expected,
    mine: Mapping[int, PlannedStatistic],
    variances: Mapping[int, KroneckerVariance],
) -> Iterator[ClassForecast]:
    """The total of each measure; where the factor is applied, the count's own noise cancels."""
    for name in dict.fromkeys(s.measure.name for s in mine.values() if s.bounds or s.measure.name == "count"):
        noise = min(
            sqrt(float(variances[i].quadratic([np.ones((1, n)) for n in plan.shape(s)])[0]))
            for i, s in mine.items()
            if s.measure.name == name
        )
        relative = noise / expected.weighted
        if name == "count":
            error = expected.scale_error if expected.factor > 1.0 else relative
            yield ClassForecast("total", "", expected.of, name, error, None)
        else:
            relative /= expected.means[name]
            yield ClassForecast(
                "total", "", expected.of, name, hypot(relative, expected.scale_error), relative
            )


def _questions(
    plan: ReleasePlan,
    expected: Expected,
    index: int,
    statistic: PlannedStatistic,
    variances: Mapping[int, KroneckerVariance],
) -> Iterator[ClassForecast]:
    """Median relative errors of a statistic's groups and ranges."""
    if statistic.bounds is None and statistic.measure.name != "count":
        return
    # the catalog gives every view that sums a count of its own
    counts = next(
        i for i, s in enumerate(plan.statistics) if s.view == statistic.view and s.measure.name == "count"
    )
    for kind, masks, share in _asked(plan, statistic):
        rows = expected.weighted * share
        count = np.sqrt(variances[counts].quadratic(masks)) / rows
        if statistic.measure.is_count:
            error = hypot(float(np.median(count)), expected.scale_error)
            yield ClassForecast(kind, statistic.view, statistic.of, "count", error, None)
            continue
        name = statistic.measure.name
        centred = np.sqrt(variances[index].quadratic(masks)) / (rows * expected.means[name])
        error = hypot(float(np.median(np.hypot(centred, count))), expected.scale_error)
        mean = float(np.median(centred))
        yield ClassForecast(kind, statistic.view, statistic.of, name, error, mean)


def _asked(
    plan: ReleasePlan, statistic: PlannedStatistic
) -> Iterator[tuple[str, list[FloatArray], FloatArray]]:
    """Kinds of questions on a view: their leaf masks, one array for each axis, and their shares of the rows."""
    axes = [plan.axes[a].axis for a in statistic.axes]
    leaves = [_ordinary(axis) for axis in axes]
    groups = np.arange(min(MOST_GROUPS, prod(leaves)))
    singles = [
        np.eye(axis.leaves)[(groups * max(1, n // len(groups))) % n]
        for axis, n in zip(axes, leaves, strict=True)
    ]
    yield _group_kind(plan, statistic), singles, np.full(len(groups), 1.0 / prod(leaves))
    pieces = STEPS.get(len(axes), 2)
    masks = [_ranges(axis.leaves, n, pieces) for axis, n in zip(axes, leaves, strict=True)]
    order = np.array(list(product(*(range(len(each)) for each in masks))), dtype=np.int64)
    chosen = [each[order[:, position]] for position, each in enumerate(masks)]
    share = np.prod([each.sum(axis=1) / n for each, n in zip(chosen, leaves, strict=True)], axis=0)
    seen = share >= SMALLEST
    yield RANGES[len(axes) > 1], [each[seen] for each in chosen], share[seen]


def _group_kind(plan: ReleasePlan, statistic: PlannedStatistic) -> str:
    if len(statistic.axes) > 1:
        return "one cell"
    resolved = plan.axes[statistic.axes[0]].resolved
    cuts = resolved.cuts or (resolved.spec.cuts if resolved.spec else None)
    return "month" if cuts is not None and cuts.width == "month" else "one-way group"


def _is_ordered(plan: ReleasePlan, axis: int) -> bool:
    """Whether ranges of the axis are what people ask for: numbers, dates and times."""
    return isinstance(plan.axes[axis].axis.rule, OrderedRule)


def _ordinary(axis: Axis) -> int:
    """Leaves that are not NULL, MISSING or OTHER."""
    special = [leaf for leaf in (axis.null_leaf, axis.missing_leaf, axis.other_leaf) if leaf is not None]
    return max(1, axis.leaves - len(special))


def _ranges(size: int, ordinary: int, pieces: int) -> FloatArray:
    """All ranges between evenly placed cuts of the ordinary leaves, as masks."""
    cuts = np.unique(np.linspace(0, ordinary, min(pieces, ordinary) + 1).astype(np.int64))
    low, high = np.triu_indices(len(cuts), 1)
    leaf = np.arange(size)
    return ((leaf >= cuts[low][:, None]) & (leaf < cuts[high][:, None])).astype(np.float64)
