"""What the recipe for `max_ids: auto` will choose and how far answers will be off, before anything is spent.

Bounds are chosen at publish from noisy histograms, so noise scales are not known before. From what the curator states
in public (`guess.Guess`) and from public tables this module supposes that

    rows per unit    are log-normal
    rows             lie evenly over the keys of public dimensions and over the leaves of other axes, independently
    values           average what was stated, and deviate as the recipe expects

and asks the recipe's own formulas for the factor, the noise and the errors of typical questions.

| here | there | unit |
|---|---|---|
| `Guess.typical` | q.5(n) | rows |
| `Expected.weighted` | sum of w_u n_u | rows |
| `Expected.factor`, `scales` | R and relative errors of factors | 1 |
| `Expected.unit_variance` | sigma_v^2 of a row of budget 1 | stored units squared, weights of 1 |

**Privacy**: public facts and tables alone; no private table is opened.
**Source**: docs/method/user_level.md, "Expecting before spending".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import ceil, hypot, prod, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.axis import Axis
from dpsql.axis.model import OrderedRule
from dpsql.errors import InterfaceError
from dpsql.mechanisms.family.people import Estimate, NoisyHistogram, NoisyTotal, rounded
from dpsql.mechanisms.family.reconcile import component_variances
from dpsql.mechanisms.family.tails import (
    Factor,
    HighTotal,
    Scaled,
    best_clip,
    factors,
    high_total,
    told_total,
)
from dpsql.mechanisms.law import NoiseLaw
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan, Step
from dpsql.publishing.userlevel.choose import (
    LARGEST_BOUND,
    ROWS,
    SUMS,
    TOTAL_ROWS,
    TOTAL_SUMS,
    Owned,
    low_quantile,
    row_edges,
    sum_edges,
)
from dpsql.publishing.userlevel.guess import Crowds, Guess
from dpsql.publishing.userlevel.shapes import SHAPES
from dpsql.star.base import nearest
from dpsql.variance.kronecker import AxisSplit, ProductReading

FloatArray = npt.NDArray[np.float64]

NORMAL = NormalDist()

HISTOGRAMS, GOLDEN = 15, (sqrt(5) - 1) / 2
"""Ways that noisy histograms may come out: which clip they choose, and so a total's noise, differs by half."""

CLEAR_UNITS = 60
"""Units, in noise SDs of a histogram, from which bounds are chosen where they should be. With 1,500 log-normal
units (21 SDs pure, 47 zCDP) two of three releases showed an error above twice the predicted one; with 5,000
(71, 156) none did."""


HOPELESS = 0.5
"""Relative error of a view's typical question from which it says nothing worth its budget."""

SMALLEST = 0.01
"""Ranges with a smaller share of the rows are not asked."""

STEPS = {1: 12, 2: 8, 3: 4}
"""Pieces that each axis is cut into to make ranges, by the number of axes; 2 for more of them."""

MOST_GROUPS = 80
"""Groups of one view that are looked at."""


@dataclass(frozen=True)
class Expected:
    """What one table's release is expected to look like.

    Args:
        of: the counted table.
        tau: rows of a typical unit.
        weighted: rows times weights.
        factor: R of rows.
        scales: errors of the factor of rows, under the empty name, and of each measure.
        unit_variance: of each statistic by index in the plan, before the factor.
        means: what a value of each measure is supposed to average, in stored units.
    """

    of: str
    tau: int
    weighted: float
    factor: float
    scales: Mapping[str, ScaleForecast]
    unit_variance: Mapping[int, float]
    means: Mapping[str, float]


@dataclass(frozen=True)
class Blind:
    """A table with too few units for its bounds to be chosen well.

    Args:
        of: the table.
        fewest: units from which they are, at this budget.
    """

    of: str
    fewest: int


def blind_tables(plan: ReleasePlan, guess: Guess) -> tuple[Blind, ...]:
    """Tables whose histograms of rows per unit will be mostly noise, so that errors may be far above the predicted.

    Args:
        plan: the planned release.
        guess: what is publicly known.
    """
    laws = {s.of: s.law for s in plan.statistics}
    steps = chosen_tables(plan)
    needed = [Blind(of, ceil(CLEAR_UNITS * laws[of].unit_noise(step.spend))) for of, step in steps.items()]
    return tuple(table for table in needed if guess.units < table.fewest)


def chosen_tables(plan: ReleasePlan) -> dict[str, Step]:
    """The tables whose bounds are chosen at publish, with the step that this begins with."""
    steps = {of: plan.step(of, ROWS) for of in dict.fromkeys(s.of for s in plan.statistics)}
    return {of: step for of, step in steps.items() if step is not None}


def expect(plan: ReleasePlan, of: str, guess: Guess, crowds: Crowds) -> Expected:
    """Run the recipe's formulas on expected histograms instead of on released ones.

    Args:
        plan: the planned release.
        of: a table with `max_ids: auto`.
        guess: what is publicly known about it.
        crowds: how crowded the leaves of its axes are expected to be.
    """
    plan = _guessed(plan, guess)
    mine = plan.mine(of)
    shape = SHAPES[next(iter(mine.values())).law]
    owned = Owned(guess.histogram(row_edges()))
    low = low_quantile(plan, of, owned, guess.rows, partial(shape.cell_variance, plan))
    tau, units = rounded(owned.quantile(low)), guess.owners(crowds)
    weights, clip = shape.expected(plan, of, tau, low, units)
    variance = {i: clip * shape.cell_variance(plan, s, tau) for i, s in mine.items()}
    kept = min(1.0, float((weights * units.amounts).sum() / units.amounts.sum()))
    means = {
        s.measure.name: abs(guess.mean_of(s.measure.name, s.bounds))
        for s in mine.values()
        if s.bounds is not None
    }
    scales = _expected_scales(plan, of, guess)
    return Expected(of, tau, guess.rows * kept, 1 / kept, scales, variance, means)


def _guessed(plan: ReleasePlan, guess: Guess) -> ReleasePlan:
    """The plan with sums around what values are supposed to average."""
    moved = [
        s if s.bounds is None else replace(s, mid=round(guess.mean_of(s.measure.name, s.bounds)))
        for s in plan.statistics
    ]
    return replace(plan, statistics=tuple(moved))


def _law(plan: ReleasePlan, of: str) -> NoiseLaw:
    return next(s.law for s in plan.statistics if s.of == of)


class ScaleForecast(NamedTuple):
    """The noise that a scale is expected to have: of answers, and of averages; relative."""

    error: float
    mean_error: float


def _expected_scales(plan: ReleasePlan, of: str, guess: Guess) -> dict[str, ScaleForecast]:
    """The medians of what histograms lead to that are as noisy as the released ones will be."""
    drawn = [_factors(plan, of, guess, i) for i in range(HISTOGRAMS)]
    return {
        name: ScaleForecast(
            float(np.median([each[name].error.noise for each in drawn])),
            float(np.median([each[name].mean_error.noise for each in drawn])),
        )
        for name in drawn[0]
    }


def _factors(plan: ReleasePlan, of: str, guess: Guess, turn: int) -> dict[str, Factor]:
    """The factors of expected totals, pooled as the recipe pools them, for one way that histograms may come out."""
    law, sums = _law(plan, of), {s.measure.name: s for s in plan.mine(of).values() if s.bounds is not None}

    def total(kind: str, selected: str, measure: str, edges: tuple[int, ...], mean: float) -> HighTotal:
        selection, step = plan.step(of, selected, measure), plan.step(of, kind, measure)
        assert selection is not None and step is not None
        histogram = _shaken(guess.histogram(edges, mean), law.unit_noise(selection.spend), turn)
        owned, unit = Owned(histogram), law.unit_noise(step.spend)
        bound = best_clip(owned.tail, unit, LARGEST_BOUND)
        drawn = high_total(NoisyTotal(0, unit * bound, bound), owned.tail, 1)
        return replace(drawn, value=guess.rows * mean)

    told = plan.step(of, TOTAL_ROWS) is None
    rows = told_total(guess.rows) if told else total(TOTAL_ROWS, ROWS, "", row_edges(), 1.0)
    measures = {}
    for name, statistic in sums.items():
        assert statistic.bounds is not None
        mean = abs(guess.mean_of(name, statistic.bounds))
        high = total(TOTAL_SUMS, SUMS, name, sum_edges(statistic), mean)
        measures[name] = Scaled(high, Estimate(high.value, 0.0), 0.0)
    return factors(
        Scaled(rows, Estimate(float(guess.rows), 0.0), 0.0), measures, SHAPES[law].least_gap, told=told
    )


def _shaken(histogram: NoisyHistogram, sd: float, turn: int) -> NoisyHistogram:
    """The histogram with normal noise; bins and turns spread evenly over its law, always alike."""
    place = np.arange(len(histogram.value)) * GOLDEN + (turn + 0.5) / HISTOGRAMS
    noise = np.array([NORMAL.inv_cdf(float(x)) for x in np.clip(place % 1.0, 1e-9, 1 - 1e-9)])
    return NoisyHistogram(histogram.edges, np.rint(histogram.value + sd * noise).astype(np.int64), sd)


@dataclass(frozen=True)
class ClassForecast:
    """The predicted relative error of one kind of question on one view and measure.

    Args:
        kind: total, one-way group, month, one range, one cell or ranges joined.
        view, of, measure: what is asked; the total is the table's, whatever view.
        error: standard error over answer, of COUNT or SUM, with the error of the common factor.
        mean_error: the same of AVG; None for counts.
        typical: whether the view is judged by it: by ranges if all its axes are ordered, else by groups or cells.
    """

    kind: str
    view: str
    of: str
    measure: str
    error: float
    mean_error: float | None
    typical: bool = False


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


def predict_classes(plan: ReleasePlan, guess: Guess, crowds: Crowds) -> tuple[ClassForecast, ...]:
    """Relative errors of typical questions on every table with `max_ids: auto`.

    Args:
        plan: the planned release.
        guess: what is publicly known about the table.
        crowds: how crowded the leaves of its axes are expected to be.

    Returns:
        Kinds of questions, table by table and view by view; nothing where no bound is chosen at publish.

    Raises:
        InterfaceError: a mean is stated of what is no measure of these tables, or lies outside its bounds.
    """
    found: list[ClassForecast] = []
    known = [s.measure.name for s in plan.statistics if s.bounds is not None]
    for name in guess.means:
        if name not in known:
            raise InterfaceError(f"mean of {name}: no such measure", hint=nearest(name, tuple(known)))
    for of in chosen_tables(plan):
        expected = expect(plan, of, guess, crowds)
        variances = _variances(plan, expected)
        found += _totals(plan, expected, variances)
        for i in expected.unit_variance:
            found += _questions(plan, expected, i, variances, crowds)
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
        For each table its views, after the table itself where none of them answers.
    """
    best = {(c.of, c.view): c.error for c in classes if c.measure == "count" and c.typical}
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


def _variances(plan: ReleasePlan, expected: Expected) -> dict[int, ProductReading]:
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
        found[i] = ProductReading(tuple(splits[a] for a in s.axes), parts)
    return found


def _totals(
    plan: ReleasePlan, expected: Expected, variances: Mapping[int, ProductReading]
) -> Iterator[ClassForecast]:
    """The total of each measure; where the factor is applied, the count's own noise cancels."""
    mine = plan.mine(expected.of)
    for name in dict.fromkeys(s.measure.name for s in mine.values() if s.bounds or s.measure.name == "count"):
        noise = min(
            sqrt(float(variances[i].covariance([np.ones((1, n)) for n in plan.shape(s)]).noise[0]))
            for i, s in mine.items()
            if s.measure.name == name
        )
        relative = noise / expected.weighted
        if name == "count":
            yield ClassForecast("total", "", expected.of, name, expected.scales[""].error, None)
        else:
            scale = expected.scales[name]
            mean = hypot(relative / expected.means[name], scale.mean_error)
            yield ClassForecast("total", "", expected.of, name, scale.error, mean)


def _questions(
    plan: ReleasePlan,
    expected: Expected,
    index: int,
    variances: Mapping[int, ProductReading],
    crowds: Crowds,
) -> Iterator[ClassForecast]:
    """Median relative errors of a statistic's groups and ranges."""
    statistic = plan.statistics[index]
    if statistic.bounds is None and statistic.measure.name != "count":
        return
    # the catalog gives every view that sums a count of its own
    counts = next(
        i for i, s in enumerate(plan.statistics) if s.view == statistic.view and s.measure.name == "count"
    )
    for asked in _asked(plan, statistic, crowds):
        rows = expected.weighted * asked.share
        relative, mean = np.sqrt(variances[counts].covariance(asked.masks).noise) / rows, None
        if statistic.bounds is not None:
            rows = rows * expected.means[statistic.measure.name]
            centred = np.sqrt(variances[index].covariance(asked.masks).noise) / rows
            relative, mean = np.hypot(centred, relative), float(np.median(centred))
        scale = expected.scales["" if statistic.bounds is None else statistic.measure.name]
        error = hypot(float(np.median(relative)), scale.error)
        mean = None if mean is None else hypot(mean, scale.mean_error)
        yield ClassForecast(
            asked.kind, statistic.view, statistic.of, statistic.measure.name, error, mean, asked.typical
        )


class Asked(NamedTuple):
    """Questions of one kind on a view.

    Args:
        kind, typical: as of `ClassForecast`.
        masks: leaf masks, one array for each axis.
        share: the part of the rows that each is about.
    """

    kind: str
    typical: bool
    masks: list[FloatArray]
    share: FloatArray


def _asked(plan: ReleasePlan, statistic: PlannedStatistic, crowds: Crowds) -> Iterator[Asked]:
    """Kinds of questions on a view, those that enough rows are expected to answer to."""
    axes = [plan.axes[a].axis for a in statistic.axes]
    ordered = all(isinstance(axis.rule, OrderedRule) for axis in axes)
    leaves = [_ordinary(axis) for axis in axes]
    shares = [
        crowds.get(a, (np.arange(axis.leaves) < n) / n)
        for a, axis, n in zip(statistic.axes, axes, leaves, strict=True)
    ]
    groups = np.arange(min(MOST_GROUPS, prod(leaves)))
    singles = [
        np.eye(axis.leaves)[(groups * max(1, n // len(groups))) % n]
        for axis, n in zip(axes, leaves, strict=True)
    ]
    pieces = STEPS.get(len(axes), 2)
    masks = [_ranges(axis.leaves, n, pieces) for axis, n in zip(axes, leaves, strict=True)]
    order = np.array(list(product(*(range(len(each)) for each in masks))), dtype=np.int64)
    ranges = [each[order[:, position]] for position, each in enumerate(masks)]
    kind = "ranges joined" if len(axes) > 1 else "one range"
    yield _seen(_group_kind(plan, statistic), not ordered, singles, shares, min(SMALLEST, 1 / prod(leaves)))
    yield _seen(kind, ordered, ranges, shares, SMALLEST)


def _seen(
    kind: str, typical: bool, masks: list[FloatArray], shares: list[FloatArray], smallest: float
) -> Asked:
    """Those of some questions that a share of the rows answers to, or the largest one."""
    share = np.prod([mask @ own for mask, own in zip(masks, shares, strict=True)], axis=0)
    seen = share >= min(smallest, float(share.max())) * (1 - 1e-9)
    return Asked(kind, typical, [mask[seen] for mask in masks], share[seen])


def _group_kind(plan: ReleasePlan, statistic: PlannedStatistic) -> str:
    if len(statistic.axes) > 1:
        return "one cell"
    resolved = plan.axes[statistic.axes[0]].resolved
    cuts = resolved.cuts or (resolved.spec.cuts if resolved.spec else None)
    return "month" if cuts is not None and cuts.width == "month" else "one-way group"


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
