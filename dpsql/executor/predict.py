"""Standard errors of a statement before it is answered: of a dry release, or of any.

The dry release of `dpsql plan` has axes and variance models, and estimates of tables alone that were rehearsed on
made-up rows; a statement over it goes the way of every statement.

The rows beyond a declared bound move an answer by its share of all rows (`dpsql.intervals.excess`), which is
private until the release is there. For predictions rows lie evenly over the values of axes, few of them without one
(`WITHOUT`), and the mean of a measure is as stated, or a quarter up its bounds, where `Guess.mean_of` supposes it too.
Groups by categories of a private column are as large as 1, 1/2, 1/3 and so on: the middle one of unequal groups is
smaller than their mean, and how unequal they are is private. A COUNT over all rows needs no such assumption.

**Privacy**: a prediction is a function of the statement and of public facts; it works on a release whose estimates are
absent, or made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np

from dpsql.catalog.graph import sums_rows
from dpsql.errors import Error
from dpsql.executor.engine import ReleaseEngine
from dpsql.executor.recombine import TermEstimates
from dpsql.executor.relation import Relation, answer_block
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, HIGH, LOW, STDERR, quantile
from dpsql.intervals.excess import measured_beyond
from dpsql.intervals.linear import LinearNumbers
from dpsql.intervals.partial_bins import interpolated, mixed_axes, overall
from dpsql.intervals.reads import value_bounds
from dpsql.matrices.distinct import TouchedReading
from dpsql.planner.axis_query import FloatArray, special_leaves
from dpsql.planner.block import Form, Linear, is_summed
from dpsql.planner.plan import ReleaseView, ViewPlan
from dpsql.planner.terms import Term
from dpsql.release import Release
from dpsql.sql.carry import ERROR, carry
from dpsql.sql.parse import parse, pointed
from dpsql.sql.rewrite import split_statement

HALF = 1.96
"""Half of a 95% interval in standard errors."""
# `table.column` -> the mean of a measure
Means = Mapping[str, float]


@dataclass(frozen=True)
class PredictedColumn:
    """Predicted error of one output column.

    Args:
        name: the column.
        view: the view that will answer, or an empty string.
        groups: how many groups the block has.
        least, median, most: standard errors over the groups; None where they depend on the answer (ratios), or where
            the interval of every group has an open end.
        counts: whether the column is one plain COUNT, the unit that engines are compared in.
        cells: cells of the view.
        cut: whether a predicate cuts a bin: then interpolation errs too, by at most `Result.model_bound`.
        cut_bins: how many bins are cut, over all axes and groups.
        interpolated: part of all that is taken which lies in them, counted in bins.
        mixed: axes whose values are summed and differ inside of a bin.
        open_groups: groups whose interval has an open end, for too few people are expected to be seen in the noise.
        ratio: whether it is one number over another, such as an average: its error does not grow with the rows.
        relative: the median over groups of the error over the answer; None where the release has no estimates.
        components: name of `PARTS` -> its median over the groups, where it is above 0.
        wants_guess: the table whose rows of a unit publishing chooses, where no `guess` says how many there are.
    """

    name: str
    view: str
    groups: int
    least: float | None = None
    median: float | None = None
    most: float | None = None
    counts: bool = False
    cells: int = 0
    cut: bool = False
    cut_bins: int = 0
    interpolated: float = 0.0
    mixed: str = ""
    open_groups: int = 0
    ratio: bool = False
    relative: float | None = None
    components: Mapping[str, float] = field(default_factory=dict)
    wants_guess: str = ""


def predict(answerer: ReleaseEngine, text: str, means: Means | None = None) -> tuple[PredictedColumn, ...]:
    """Predicted standard errors of a statement's noisy columns.

    Args:
        answerer: over a release; its estimates are not used. Where rows beyond a declared bound were measured, the
            intervals reach as far as these may move them if rows lie evenly over the values of the axes.
        text: one statement, in DuckDB's dialect.
        means: by a public guess that also says how many rows there are: low ends then meet what is possible; None
            without one.

    Returns:
        One entry for each output column that has an error. HAVING and LIMIT are not applied: they depend on
        answers.

    Raises:
        ProgrammingError, NotSupportedError: no view can answer; what `query` would raise.
    """
    try:
        statement = split_statement(parse(text, "duckdb"), answerer.schema, text)
        on_partial_bin = answerer.on_partial_bin
        relations = [
            answer_block(block, answerer.release, answerer.schema, on_partial_bin)
            for block in statement.blocks
        ]
        carried = carry(statement)
    except Error as error:
        raise pointed(error, text) from error
    columns = zip(statement.names, statement.forms, strict=True)
    predicted = [
        _column(name, f, relations[b], means) for name, forms in columns for b, f in sorted(forms.items())
    ]
    groups = len(relations[0].columns[0]) if relations else 0
    # made of noisy values in a way that no form says: a standard deviation, for instance
    lineage = zip(statement.names, statement.forms, carried.columns, strict=True)
    composed = [name for name, forms, noisy in lineage if noisy not in (None, ERROR) and not forms]
    return (*predicted, *(PredictedColumn(name, "", groups) for name in composed))


def _column(name: str, form: Form, relation: Relation, means: Means | None) -> PredictedColumn:
    answered = relation.answered_for(form) if is_summed(form) else None
    groups = len(relation.columns[0])
    if answered is None or not is_summed(form):
        return PredictedColumn(name, "", groups)
    view = answered.plan.view
    cut = interpolated(answered.plan, form.terms, answered.errors.release)
    mixed = mixed_axes(answered.plan, form.terms, answered.errors.release)
    rehearsed, ratio = view.of in answered.errors.release.scales, len(form.sides) > 1
    unsaid = PredictedColumn(
        name, view.name, groups, cut=bool(cut), cut_bins=sum(axis.bins for axis in cut),
        interpolated=overall(cut), mixed=mixed, ratio=ratio,
    )  # fmt: skip
    chosen = answered.errors.release.catalog.tables[view.of].chooses_rows
    if chosen and not rehearsed and any(sums_rows(term.measure) for term in form.terms):
        return replace(unsaid, wants_guess=view.of)
    readings = (answered.errors.release.reading(view.statistics[term.measure].id) for term in form.terms)
    if (ratio and not rehearsed) or any(isinstance(reading, TouchedReading) for reading in readings):
        return unsaid  # how many cells a person touches decides the bound of her weight, at publish
    beyond = measured_beyond(answered.errors.release, view.of)
    excess = [e for e in answered.errors.release.meta.excess if e.of == view.of and not rehearsed]
    counted = next((rows.counted for rows in (beyond, *excess) if rows is not None), None)
    if counted is not None:
        answered = with_even_rows(answered, counted, means or {})
        answered = answered if ratio else as_drawn(answered)
    # a guess of rows says not how many people there are
    of_rows = all(sums_rows(term.measure) for term in form.terms)
    without_size = not of_rows or (not rehearsed and (means is None or counted is None))
    estimated = replace(Composite.of_form(form, answered), dry=without_size)
    low, high = (end.values(estimated, DEFAULT_LEVEL) for end in (LOW, HIGH))
    # of the interval that is printed, which is cut where a count is near 0
    errors = (high - low) / (2 * quantile(DEFAULT_LEVEL))
    relative = _relative(errors, estimated.central()) if rehearsed else None
    errors = errors[~np.isnan(errors)]
    plain = (
        isinstance(form, Linear)
        and [term.measure for term in form.terms] == ["count"]
        and abs(form.weights[0][1]) == 1
    )
    closed = errors[np.isfinite(errors)]
    spread = (None,) * 3 if not len(closed) else (closed.min(), np.median(closed), closed.max())
    smallest, median, largest = (None if value is None else float(value) for value in spread)
    parts = {name: part.values(estimated, DEFAULT_LEVEL) for name, part in STDERR.parts.items()}
    medians = {n: float(np.median(v[~np.isnan(v)])) for n, v in parts.items() if not np.all(np.isnan(v))}
    components = {name: median for name, median in medians.items() if np.isfinite(median) and median > 0}
    return replace(
        unsaid, least=smallest, median=median, most=largest, counts=plain, cells=view.cells,
        open_groups=len(errors) - len(closed), relative=relative, components=components,
    )  # fmt: skip


def _relative(errors: np.ndarray, values: np.ndarray) -> float | None:
    """The median of errors over answers; None where most have no end, or nothing is answered."""
    seen = ~np.isnan(errors) & (values != 0)
    found = float(np.median(errors[seen] / np.abs(values[seen]))) if seen.any() else np.inf
    return found if np.isfinite(found) else None


WITHOUT = 0.02
"""Share of rows in each of the leaves of NULL, of no dimension row and of other values. A judgement: who declares that
a column may have none does not say how often."""


def with_even_rows(answered: TermEstimates, rows: float, means: Means) -> TermEstimates:
    """Answers of a view that counts so many rows, evenly over the values of each axis."""
    release, view = answered.errors.release, answered.plan.view
    grouped = [len(np.unique(classes)) > 1 for classes in answered.errors.index]
    shares = [_leaf_shares(release, *axis) for axis in zip(view.axes, grouped, strict=True)]
    per_share = rows / _counted_share(release, view, shares)
    totals = {
        term: per_share * _mean(answered.plan, term, release, means) * _share(answered, term, shares)
        if sums_rows(term.measure)
        else total
        for term, total in answered.totals.items()
    }
    return replace(answered, totals=totals)


MEDIAN = 0.6745
"""Median size of normal noise, in standard deviations."""


def as_drawn(answered: TermEstimates) -> TermEstimates:
    """The same with totals about as large as the median of what a release draws: their own size, and that of noise."""
    totals = {}
    for term, total in answered.totals.items():
        noise = LinearNumbers.of_slopes([(term, np.ones(len(total)))], answered).variances.noise
        totals[term] = np.hypot(total, MEDIAN * np.sqrt(noise))
    return replace(answered, totals=totals)


def _leaf_shares(release: Release, axis: int, grouped: bool) -> FloatArray:
    """The share of rows in each leaf of an axis; which category is the largest matters where groups are shown."""
    meta, leaves = release.axes[axis], np.asarray(release.atoms(axis)["leaf"])
    shares = np.bincount(leaves, minlength=meta.leaves).astype(np.float64)
    special = list(special_leaves(meta))
    if grouped and meta.columns[0].type == "VARCHAR" and not release.catalog.tables[meta.table].is_public:
        shares /= np.arange(1, meta.leaves + 1)
    shares[special] = 0.0
    shares *= (1 - WITHOUT * len(special)) / max(1.0, shares.sum())
    shares[special] = WITHOUT
    return shares


def _counted_share(release: Release, view: ReleaseView, shares: Sequence[FloatArray]) -> float:
    """The share of all rows that a view counts: all, or those that some of its few questions are about."""
    spec = release.catalog.views.get(view.name)
    if spec is None or not spec.questions:
        return 1.0
    counted = np.zeros([len(side) for side in shares], bool)
    for box in (box for question in spec.questions for box in question):
        leaves = (np.concatenate([np.arange(*ends) for ends in intervals]) for intervals in box)
        counted[np.ix_(*leaves)] = True
    cells = reduce(np.multiply.outer, shares, np.ones(()))
    return max(float(cells[counted].sum()), np.finfo(np.float64).tiny)


def _mean(plan: ViewPlan, term: Term, release: Release, means: Means) -> float:
    """The mean of the values that a term adds up."""
    low, high = value_bounds(plan.view.statistics[term.measure], release)
    return means.get(term.measure, (3 * low + high) / 4)


def _share(answered: TermEstimates, term: Term, shares: Sequence[FloatArray]) -> FloatArray:
    """The share of rows that a term takes, for each group shown."""
    index = answered.errors.index
    taken = np.zeros(len(index[0]) if index else 1)
    for box in answered.plan.boxes_for(term):
        masks = answered.plan.by_leaf.box_masks(box)
        sides = ((mask @ share)[groups] for mask, share, groups in zip(masks, shares, index, strict=True))
        taken = taken + reduce(np.multiply, sides, np.ones(len(taken)))
    return taken
