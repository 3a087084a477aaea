"""Forecast for tables with `max_ids: auto`: statements and typical questions asked of rehearsals.

A rehearsal is the shipped recipe run on a made-up table and asked in SQL like a release. Every number is the median
over `SEEDS` of them. How much each guess matters is told by one rehearsal with half of it and one with twice of it,
against one with the same seed.

Kinds of questions: each view is asked its groups or cells and ranges between even cuts, its table is asked for
everything. COUNT, SUM and AVG of many such boxes are asked at once, by the functions that SQL's errors are made of. An
error is half of the 95% interval over 1.96 and over the answer, as `DP_STDERR` gives it later; the median over
questions, then over rehearsals.

**Privacy**: public facts and guesses alone; nothing private is opened and nothing is spent.
**Source**: docs/method/rows.md, "Expecting before spending".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import inf, isinf, prod
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from dpsql.axis.model import OrderedRule
from dpsql.catalog import Catalog
from dpsql.catalog.base import COUNT, MeasureName, nearest
from dpsql.central.planned import ReleasePlan
from dpsql.contributions.rehearsal import Crowds, Guess, chosen_tables, evenly, ordinary_leaves
from dpsql.curator.dry_release import Priced, Rehearsal, dry_answerer, rehearse
from dpsql.errors import Error, InterfaceError
from dpsql.executor.engine import PredictedColumn, predict
from dpsql.executor.recombine import TermEstimates
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, HIGH, LOW, STDERR
from dpsql.intervals.reads import CutMass, PlanVariances
from dpsql.matrices.model import Edges
from dpsql.planner.axis_query import AxisCells
from dpsql.planner.block import ROWS, Noisy, Ratio, one
from dpsql.planner.leaf_values import AxisQuery
from dpsql.planner.plan import Box, ReleaseView, presence, views_of
from dpsql.planner.schema import Term
from dpsql.release import Release
from dpsql.tree import FloatArray

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
    questions: ClassVar[tuple[AxisQuery, ...]] = ()
    cells: ClassVar[tuple[AxisCells, ...]] = ()

    @property
    def edges(self) -> Edges:
        return (None,) * len(self.masks)

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
    count = boxes.read(leaves[boxes.view.statistics[COUNT].id])
    totals, forms, scale = {Term(COUNT): count}, dict[str, Noisy](COUNT=ROWS), 1.0
    if measure is not None:
        name = MeasureName(measure)
        sums, summed, there = boxes.view.statistics[name], one(Term(name)), presence(name, boxes.view)
        assert there is not None
        scale = 10.0**-sums.scale
        totals[Term(there.measure)] = boxes.read(leaves[there.id])
        totals[Term(name)] = (boxes.read(leaves[sums.id]) + sums.mid * totals[Term(there.measure)]) * scale
        forms |= {"SUM": summed, "AVG": Ratio(summed, one(Term(there.measure)), mean=True)}
    plan = cast(Any, boxes)
    index = tuple(np.arange(len(count)) for _ in boxes.masks)
    uncut = CutMass(*np.zeros((4, len(count))))  # a box is made of whole leaves
    variances = PlanVariances(plan, release, index)
    answered = TermEstimates(plan, totals, {}, variances, dict.fromkeys(totals, uncut))
    return {n: _answer(form, answered, 1.0 if n == "COUNT" else 1 / scale) for n, form in forms.items()}


def _answer(form: Noisy, answered: TermEstimates, scale: float) -> BoxAnswer:
    numbers = Composite.of_form(form, answered)
    errors = [error.values(numbers, DEFAULT_LEVEL) for error in (LOW, HIGH, STDERR)]
    columns = [column * scale for column in (numbers.central(), *errors)]
    if numbers.quotient is not None:
        count = Composite.of_form(form.sides[-1], answered)
        lost = np.abs(count.central()) < SEEN * np.maximum(count.noise(), 1e-150)
        columns = [np.where(lost, np.nan, column) for column in columns]
    return BoxAnswer(*columns)


HOPELESS = 0.5
"""Relative error of a view's typical question from which it says nothing worth its budget."""

SMALLEST = 0.01
"""Ranges with a smaller share of the rows are not asked."""

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
        error: `DP_STDERR` over answer, of COUNT or SUM; None where intervals have no upper end.
        mean_error: the same of AVG; None for counts, where nothing is seen of it, and where it has no end.
        typical: whether the view is judged by it: by ranges if all its axes are ordered, else by groups or cells.
    """

    kind: str
    view: str
    of: str
    measure: MeasureName
    error: float | None
    mean_error: float | None
    typical: bool = False


@dataclass(frozen=True)
class UninformativeView:
    """A view whose typical question is lost in noise.

    Args:
        of, view: the table and the view; the view is empty where no view of the table answers.
        error: its predicted relative error, of a table the least of its views; None where it has no end.
        coarser: the view over some of its axes that answers best below `HOPELESS`; None where there is none.
    """

    of: str
    view: str
    error: float | None
    coarser: str | None


def ask_classes(
    plan: ReleasePlan, crowds: Crowds, release: Release, rehearsal: Rehearsal
) -> Iterator[ClassForecast]:
    """Relative errors of typical questions in one rehearsal, table by table and view by view.

    Args:
        plan: the planned release.
        crowds: how crowded the leaves of axes are expected to be.
        release: the dry release that holds the rehearsal.
        rehearsal: what was made up.
    """
    leaves = {i: cells for i, (_, cells) in rehearsal.parts.items()}
    views = [view for view in views_of(release) if {s.id for s in view.statistics.values()} <= set(leaves)]
    for of in rehearsal.stands_for:
        mine = [view for view in views if view.of == of and COUNT in view.statistics]
        totals: dict[str, ClassForecast] = {}
        for view in mine:
            whole = ViewBoxes(view, [np.ones((1, release.axes[axis].leaves)) for axis in view.axes])
            for measure in _measures(plan, view.name):
                if measure or COUNT not in totals:
                    answers = box_answers(release, whole, leaves, measure or None)
                    found = _forecast("total", whole, answers, measure)
                    totals.setdefault(measure or COUNT, replace(found, view=""))
        yield from totals.values()
        for view in mine:
            for measure in _measures(plan, view.name):
                for kind, typical, masks in _asked(plan, view.axes, crowds):
                    boxes = ViewBoxes(view, masks)
                    answers = box_answers(release, boxes, leaves, measure or None)
                    yield replace(_forecast(kind, boxes, answers, measure), typical=typical)


def _measures(plan: ReleasePlan, view: str) -> list[str]:
    """The measures of a view's rows that are summed, after the empty name for its rows."""
    return ["", *(s.measure.name for s in plan.statistics if s.view == view and s.bounds is not None)]


def _forecast(kind: str, boxes: ViewBoxes, answers: Mapping[str, BoxAnswer], measure: str) -> ClassForecast:
    error = _relative(answers["SUM" if measure else "COUNT"])
    mean = _relative(answers["AVG"]) if measure else None
    return ClassForecast(kind, boxes.view.name, boxes.view.of, MeasureName(measure or COUNT), error, mean)


def _relative(answer: BoxAnswer) -> float | None:
    """The median of errors over answers; infinite where ends are open, None of nothing."""
    seen = ~np.isnan(answer.stderr) & (answer.value != 0)
    return float(np.median(answer.stderr[seen] / np.abs(answer.value[seen]))) if seen.any() else None


def _upper_middle(errors: Sequence[float | None]) -> float | None:
    """The upper median, None where that is no number."""
    known = sorted(error for error in errors if error is not None)
    middle = known[len(known) // 2] if known else inf
    return None if isinf(middle) else middle


def hopeless(plan: ReleasePlan, classes: Sequence[ClassForecast]) -> tuple[UninformativeView, ...]:
    """The tables and views to coarsen or to drop, judged by their counts.

    Args:
        plan: the planned release.
        classes: what is predicted.

    Returns:
        For each table its views, after the table itself where none of them answers.
    """
    best = {
        (c.of, c.view): inf if c.error is None else c.error
        for c in classes
        if c.measure.counts_rows and c.typical
    }
    names = {s.view: {plan.axes[a].axis.name for a in s.axes} for s in plan.statistics}
    found = []
    for of in dict.fromkeys(table for table, _ in best):
        errors = {view: error for (table, view), error in best.items() if table == of}
        for view, error in [("", min(errors.values())), *errors.items()]:
            if error > HOPELESS:
                inside = names.get(view, set())  # no view's axes are those of the table itself
                usable = {v: e for v, e in errors.items() if e <= HOPELESS and names[v] <= inside}
                coarser = min(usable, key=lambda v: usable[v], default=None)
                found.append(UninformativeView(of, view, None if isinf(error) else error, coarser))
    return tuple(found)


ViewWorkload = tuple[str, bool, list[FloatArray]]
"""Questions of one kind on a view: `kind` and `typical` as of `ClassForecast`, and leaf masks, one array for each
axis."""


def _asked(plan: ReleasePlan, axis_ids: Sequence[int], crowds: Crowds) -> Iterator[ViewWorkload]:
    """Kinds of questions on a view, those that enough rows are expected to answer to."""
    axes = [plan.axes[a].axis for a in axis_ids]
    ordered = all(isinstance(axis.rule, OrderedRule) for axis in axes)
    leaves = [ordinary_leaves(axis) for axis in axes]
    shares = [crowds.get(a, evenly(plan, a)) for a in axis_ids]
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
    smallest = min(SMALLEST, 1 / prod(leaves))
    yield _group_kind(plan, axis_ids), not ordered, _seen(singles, shares, smallest)
    yield kind, ordered, _seen(ranges, shares, SMALLEST)


def _seen(masks: list[FloatArray], shares: list[FloatArray], smallest: float) -> list[FloatArray]:
    """Those of some questions that a share of the rows answers to, or the largest one."""
    share = np.prod([mask @ own for mask, own in zip(masks, shares, strict=True)], axis=0)
    seen = share >= min(smallest, float(share.max())) * (1 - 1e-9)
    return [mask[seen] for mask in masks]


def _group_kind(plan: ReleasePlan, axis_ids: Sequence[int]) -> str:
    if len(axis_ids) > 1:
        return "one cell"
    resolved = plan.axes[axis_ids[0]].resolved
    cuts = resolved.cuts or (resolved.spec.cuts if resolved.spec else None)
    return "month" if cuts is not None and cuts.width == "month" else "one-way group"


def _ranges(size: int, ordinary: int, pieces: int) -> FloatArray:
    """All ranges between evenly placed cuts of the ordinary leaves, as masks."""
    cuts = np.unique(np.linspace(0, ordinary, min(pieces, ordinary) + 1).astype(np.int64))
    low, high = np.triu_indices(len(cuts), 1)
    leaf = np.arange(size)
    return ((leaf >= cuts[low][:, None]) & (leaf < cuts[high][:, None])).astype(np.float64)


SEEDS = 5
"""Rehearsals that a number is the median of."""

Prediction = tuple[PredictedColumn, ...] | str
"""A statement's noisy columns, or why it is refused."""


@dataclass(frozen=True)
class UnderpoweredTable:
    """A table, or a measure of it, with too few people for the noise: its intervals have a lower end alone.

    Args:
        of: the table.
        measures: sums of which are meant; empty where its rows are.
    """

    of: str
    measures: tuple[str, ...]


class Foresight(NamedTuple):
    """Forecast by rehearsals.

    Args:
        predictions: of the statements, in their order, for columns of tables with `max_ids: auto`.
        classes: relative errors of typical questions.
        blind: what drowns in the noise.
        stands_for: the most units that one made-up unit stands for; above 1 tables were sampled.
    """

    predictions: tuple[Prediction, ...] = ()
    classes: tuple[ClassForecast, ...] = ()
    blind: tuple[UnderpoweredTable, ...] = ()
    stands_for: int = 1


Rehearsed = tuple[Rehearsal, tuple[Prediction, ...], tuple[ClassForecast, ...]]
"""A rehearsal, and what it answers: statements and classes of questions."""
Ask = Callable[[Sequence[str], Guess, int], Rehearsed]
"""Rehearses a release: (statements, guess, seed)."""


def _rehearsed(
    priced: Priced, catalog: Catalog, crowds: Crowds, workload: Sequence[str], guess: Guess, seed: int
) -> Rehearsed:
    plan = priced.plan
    rehearsal = rehearse(plan, guess, crowds, seed)
    with dry_answerer(priced, catalog, guess, rehearsal) as answerer:
        views = {s.view: rehearsal.stands_for.get(s.of, 1) for s in plan.statistics}
        predictions: list[Prediction] = []
        for sql in workload:
            try:
                predictions.append(_grown(predict(answerer, sql), views))
            except Error as error:
                predictions.append(str(error))
        classes = tuple(ask_classes(plan, crowds, answerer.release, rehearsal))
    return rehearsal, tuple(predictions), classes


def foresee(
    priced: Priced, catalog: Catalog, crowds: Crowds, workload: Sequence[str], guess: Guess
) -> Foresight:
    """Rehearse a release and ask it.

    Args:
        priced: the planned release.
        catalog: as it was written.
        crowds: how crowded the leaves of axes are expected to be.
        workload: statements.
        guess: what is publicly known about its tables with `max_ids: auto`.

    Raises:
        InterfaceError: a mean is stated of what is no measure of these tables, or lies outside its bounds.
    """
    plan, ask = priced.plan, partial(_rehearsed, priced, catalog, crowds)
    known = [f"{of}.{name}" for of, table in catalog.tables.items() for name in table.summable]
    for name in guess.means:
        if name not in known:
            raise InterfaceError(f"mean of {name}: no such measure", hint=nearest(name, tuple(known)))
    if not chosen_tables(plan):
        return Foresight()
    asked = (ask(workload, guess, seed) for seed in range(1, SEEDS + 1))
    rehearsals, predictions, classes = zip(*asked, strict=True)
    # The medians over rehearsals of the same questions
    kinds = []
    for each in zip(*classes, strict=True):
        means = _upper_middle([c.mean_error for c in each])
        kinds.append(replace(each[0], error=_upper_middle([c.error for c in each]), mean_error=means))
    return Foresight(
        tuple(_typical(of_statement) for of_statement in zip(*predictions, strict=True)),
        tuple(kinds),
        tuple(_blind(rehearsals)),
        max(rehearsals[0].stands_for.values()),
    )


def _grown(columns: tuple[PredictedColumn, ...], views: Mapping[str, int]) -> tuple[PredictedColumn, ...]:
    """Columns of a sample of the units as of all of them: errors of counts and sums grow, those of ratios stay."""

    def times(error: float | None, column: PredictedColumn) -> float | None:
        return None if error is None else error * (1 if column.ratio else views.get(column.view, 1))

    return tuple(
        replace(c, least=times(c.least, c), median=times(c.median, c), most=times(c.most, c)) for c in columns
    )


def _typical(seeds: Sequence[Prediction]) -> Prediction:
    """The medians over rehearsals of one statement's columns."""
    told = [each for each in seeds if not isinstance(each, str)]
    if len(told) < len(seeds):
        return next(each for each in seeds if isinstance(each, str))
    return tuple(
        replace(
            each[0], least=_middle([c.least for c in each]), median=_middle([c.median for c in each]),
            most=_middle([c.most for c in each]), relative=_middle([c.relative for c in each]),
            open_groups=sorted(c.open_groups for c in each)[len(each) // 2],
        )
        for each in zip(*told, strict=True)
    )  # fmt: skip


def _middle(numbers: Sequence[float | None]) -> float | None:
    """The median, what has no end above all numbers; None where that is the median."""
    found = float(np.median([inf if x is None else x for x in numbers]))
    return None if isinf(found) else found


def _blind(rehearsals: Sequence[Rehearsal]) -> Iterator[UnderpoweredTable]:
    """Questions without an upper end in most rehearsals."""
    seen = [(of, name) for each in rehearsals for of, names in each.blind.items() for name in names]
    often = [pair for pair in dict.fromkeys(seen) if 2 * seen.count(pair) > len(rehearsals)]
    for of in dict.fromkeys(of for of, _ in often):
        names = tuple(name for table, name in often if table == of)
        yield UnderpoweredTable(of, () if "" in names else names)
