"""The whole way from SQL text to a Result, with its caches. Read this first.

text -> guard, parse, whitelist -> blocks + outer statement     (sql/)
block -> view and leaves -> node lists -> one DuckDB statement  (plan, recombine)
relations of groups -> outer statement, run by DuckDB           (outer)

`predict_columns` says standard errors before a statement is answered: of a dry release, or of any. The dry release of
`dpsql plan` has axes and variance models, and estimates of tables alone that were rehearsed on made-up rows; a
statement over it goes the way of every statement.

The rows beyond a declared bound move an answer by its share of all rows (`dpsql.intervals.excess`), which is
private until the release is there. For predictions rows lie evenly over the values of axes, few of them without one
(`WITHOUT`), and the mean of a measure is as stated, or a quarter up its bounds, where `Guess.mean_of` supposes it too.
Groups by categories of a private column are as large as 1, 1/2, 1/3 and so on: the middle one of unequal groups is
smaller than their mean, and how unequal they are is private. A COUNT over all rows needs no such assumption.

**Privacy**: post-processing; a prediction is a function of the statement and of public facts, and works on a release
whose estimates are absent, or made up.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import Any

import duckdb
import numpy as np

from dpsql.errors import (
    DataError,
    Error,
    NotSupportedError,
    NoViewError,
    PartialBinError,
    ProgrammingError,
    ReleaseError,
    SqlSyntaxError,
    visible,
)
from dpsql.executor.explain import decomposition, explain_relation
from dpsql.executor.outer import OuterStatement
from dpsql.executor.recombine import TermEstimates
from dpsql.executor.relation import Relation, answer_block
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, HIGH, LOW, STDERR, quantile
from dpsql.intervals.excess import measured_beyond
from dpsql.intervals.linear import LinearNumbers
from dpsql.intervals.partial_bins import PartialBin, coarse_notes, interpolated, mixed_axes
from dpsql.intervals.reads import value_bounds
from dpsql.matrices.distinct import TouchedReading
from dpsql.planner.answerability import entropy_caveat, estimates_kind, listings, shown
from dpsql.planner.axis_query import FloatArray, special_leaves
from dpsql.planner.block import Block, Form, is_summed
from dpsql.planner.notes import Note, reads_of
from dpsql.planner.plan import ReleaseView, ViewPlan
from dpsql.planner.schema import Schema, Term, read_schema
from dpsql.release import Release
from dpsql.release.format import StatisticMeta, to_json
from dpsql.release.request import LIMIT, requested
from dpsql.results.result import Result
from dpsql.sql.added import bit_offsets
from dpsql.sql.carry import ERROR, carry
from dpsql.sql.parse import parse, pointed
from dpsql.sql.rewrite import split_statement
from dpsql.sql.statement import Statement
from dpsql.sql.statement_cache import Shapes

CACHED = 256
MAX_ROWS_CACHED = 10_000
SIMULATED = "made of simulated reports: it shows what a collection would bring, and protects nobody"


@dataclass
class ReleaseEngine:
    """One open release and what has been asked of it. Safe to use from several threads.

    Args:
        release: an open release.
        timeout: seconds until a statement is stopped.
        on_partial_bin: what is done with bins that a predicate cuts; None as the catalog says.
    """

    release: Release
    timeout: float = LIMIT
    on_partial_bin: PartialBin | None = None
    schema: Schema = field(init=False)
    _results: OrderedDict[tuple[str, str], Result] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.schema = read_schema(self.release)
        self._shapes = Shapes(self.schema)

    def query(self, text: str, *, dialect: str = "") -> Result:
        """Answer one statement.

        Args:
            text: SQL.
            dialect: how to read it; by default DuckDB's and Postgres's.

        Returns:
            The answer.

        Raises:
            dpsql.errors.Error: typed, one line, with the clause, its place and what to do.

        **Privacy**: post-processing of a release; costs nothing.
        """
        key = (text, dialect)
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        try:
            with requested(self.timeout):
                answer = self._answer(text, dialect)
        except Error as error:
            raise pointed(error, text) if isinstance(text, str) else error from error.__cause__
        except RecursionError as error:
            raise SqlSyntaxError(
                "the statement has a chain of operators that is too long", hint="shorten it"
            ) from error
        except duckdb.Error as error:
            raise ReleaseError(
                f"{self.release.path} is damaged ({type(error).__name__})",
                hint="ask its curator for a fresh copy",
            ) from error
        if len(answer.rows) <= MAX_ROWS_CACHED and "moment" not in answer.provenance:
            with self._lock:
                self._results[key] = answer
                while len(self._results) > CACHED:
                    self._results.popitem(last=False)
        return answer

    def explain(self, text: str, *, dialect: str = "") -> str:
        """The plan of a statement as numbered stages, the DuckDB statements last."""
        return "\n".join(self.query(text, dialect=dialect).plan)

    def _answer(self, text: str, dialect: str) -> Result:
        shown_text = shown(text)
        filled = self._shapes.filled(shown_text, dialect)
        if filled is not None:
            # said anew, with its place in this text
            with suppress(ProgrammingError, NotSupportedError, DataError):
                return self._put_together(filled)
        statement = self._shapes.read(shown_text, dialect)
        try:
            return self._put_together(statement)
        except NoViewError:
            if (answer := self._of_times(shown_text, dialect)) is not None:
                return answer
            if not statement.block_errors:
                raise
        carried = split_statement(parse(shown_text, dialect), self.schema, shown_text, carries=True)
        return self._put_together(carried)  # a value of two views has an error that no one of them knows

    def _of_times(self, text: str, dialect: str) -> Result | None:
        """The answer from views of times themselves, where those of their fields have none; None: nor have they."""
        if self.schema.fields:
            schema = replace(self.schema, fields={})
            # of the columns that views have, said before
            with suppress(ProgrammingError, NotSupportedError, DataError):
                return self._put_together(split_statement(parse(text, dialect), schema, text))
        return None

    def _put_together(self, statement: Statement) -> Result:
        relations, by = [self.answer_block(block) for block in statement.blocks], self
        read = [statistic for relation in relations for statistic in statistics_read(relation)]
        preferred = bool(read) and all(statistic.preferred for statistic in read)  # one kind for all
        if self.release.nonnegative is None and preferred:
            by = self.positive
            relations = [by.answer_block(block) for block in statement.blocks]
        return assemble_result(statement, relations, [by] * len(relations), by)

    @cached_property
    def positive(self) -> ReleaseEngine:
        """The same release, answering counts from non-negative estimates."""
        return ReleaseEngine(replace(self.release, nonnegative=True), self.timeout, self.on_partial_bin)

    def answer_block(self, block: Block) -> Relation:
        """The relation of a block's groups.

        Raises:
            NoViewError, NotSupportedError: no view answers it.
        """
        return answer_block(block, self.release, self.schema, self.on_partial_bin)


def assemble_result(
    statement: Statement, relations: Sequence[Relation], by: Sequence[ReleaseEngine], runs: ReleaseEngine
) -> Result:
    """A statement's answer from those of its blocks.

    Args:
        statement: the statement.
        relations: one for each block.
        by: who answered each.
        runs: whose limits the outer statement has.

    Raises:
        PartialBinError: the statement builds on groups that also count others.
    """
    lines = (line for r in relations for answered in r.answered for line in coarse_notes(answered.plan))
    line = next(lines, None)
    # Groups that also count others are shown row by row; a sum over their keys would be of other rows than its words.
    if line is not None and not (statement.direct or (statement.carriers == (0,) and len(relations) == 1)):
        raise PartialBinError(
            f"{line}, and the statement builds on these groups",
            hint="ask for the groups by themselves, or in bins that the view has",
        )
    outer = OuterStatement(
        statement, tuple(relations), partial(listings, runs.release, runs.schema, statement), runs.timeout
    )
    answer = outer.answer
    shown = tuple(row[: len(statement.names)] for row in answer.rows)

    releases = [
        answerer.release for answerer in by
    ]  # not the answerers: results outlive them, and they keep results
    seconds = runs.timeout

    def stages() -> tuple[str, ...]:
        lines, statements = list[str](), list[str]()
        with requested(seconds):
            for number, (relation, release) in enumerate(zip(relations, releases, strict=True)):
                block_lines, block_statements = explain_relation(number, relation, release)
                lines += block_lines
                statements += block_statements
        lines += [f"no error for {name}: {why}" for name, why in outer.undefined.items()]
        lines += [f"DuckDB: {sql}" for sql in (*statements, statement.text)]
        return tuple(f"{i}. {line}" for i, line in enumerate(lines, 1))

    simulated = any(r.meta.local is not None and r.meta.local.simulated for r in (runs.release, *releases))
    stamp = [Note(SIMULATED)] if simulated else []
    stamp += (
        [Note(f"the time is {statement.moment} UTC, when the statement began")] if statement.moment else []
    )
    mapped = [Note(text, flag=True) for text in statement.notes]
    all_notes = [note for relation in relations for note in relation.notes]
    for relation, offset in zip(relations, bit_offsets(statement.blocks), strict=True):
        all_notes += relation.text_notes(statement.key_texts, offset)
    all_notes += [*outer.notes, *mapped, *stamp]
    # notes repeat texts of statements and keys that anybody may have chosen
    notes = list(dict.fromkeys(Note(visible(text), flag) for text, flag in all_notes))
    positive = any(release.nonnegative is not None for release in releases) and any(
        release.estimate(statistic.id) == "nonnegative"
        for release, relation in zip(releases, relations, strict=True)
        for statistic in statistics_read(relation)
    )
    fitted = any(
        entropy_caveat(answered.plan, list(answered.totals), release)
        for release, relation in zip(releases, relations, strict=True)
        for answered in relation.answered
    )
    origin = provenance(runs.release, relations) | {"estimates": estimates_kind(positive, fitted)}
    origin |= {"moment": str(statement.moment)} if statement.moment else {}

    def decompositions() -> list[dict[str, Any]]:
        blocks = enumerate(zip(relations, releases, strict=True))
        with requested(seconds):
            return [decomposition(number, relation, release) for number, (relation, release) in blocks]

    return Result(
        statement.names, answer.types, shown, origin, tuple(n.text for n in notes), outer.grid,
        stages, reads_of(statement.blocks), tuple(n.text for n in notes if n.flag), statement.ordered,
        lambda: outer.undefined, lambda: outer.moved, decompositions,
        tuple(i for i, forms in enumerate(statement.forms) if forms and all(f.counts for f in forms.values())),
    )  # fmt: skip


def statistics_read(relation: Relation) -> list[StatisticMeta]:
    """The statistics that a block's answer is made of."""
    return [
        answered.plan.view.statistics[term.measure]
        for answered in relation.answered
        for term in answered.totals
    ]


def provenance(release: Release, relations: Sequence[Relation]) -> dict[str, Any]:
    """Provenance of an answer: release, privacy promise and views."""
    views = [a.plan.view.name for relation in relations for a in relation.answered if a.plan.view.statistics]
    prefixes = (
        prefix for relation in relations for _, groups in relation.prefixes.values() for prefix in groups
    )
    views += [prefix.view for prefix in prefixes]
    notes = [note.text for relation in relations for note in relation.notes]
    facts = release.kept("provenance", partial(_release_facts, release))
    return {**facts, "views": list(dict.fromkeys(views)), "notes": notes}


def _release_facts(release: Release) -> dict[str, Any]:
    """Provenance that all answers of a release share."""
    local, arrived = release.meta.local, release.meta.stream
    collected: dict[str, Any] = {} if local is None else {"local": to_json(local)}
    collected |= {"simulated": True} if local is not None and local.simulated else {}
    stream = {} if arrived is None else {"as_of_batch": arrived.as_of_batch, "as_of": arrived.as_of}
    privacy, reported = release.meta.privacy, []
    for column in release.meta.reported:  # what her device promises to a person, and what the release does
        reported.append(
            {
                **to_json(column),
                "promise": {
                    "curator": f"epsilon {column.epsilon_local}, replace one value",
                    "analysts": f"epsilon {privacy.epsilon}, {privacy.neighbours}: rows and report together",
                },
            }
        )
    return {
        **({"reported": reported} if reported else {}),
        "release": release.meta.release_id,
        "signer": None if release.signer is None else str(release.signer),
        "catalog": release.name,
        "privacy": to_json(privacy),
        "views": [],
        "scale": {table: to_json(scale) for table, scale in release.scales.items()},
        "notes": [],
        **collected,
        **stream,
    }


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
        name, view.name, groups, cut=bool(cut), cut_bins=sum(bins for bins, _ in cut.values()),
        interpolated=1.0 - math.prod(1.0 - share for _, share in cut.values()), mixed=mixed, ratio=ratio,
    )  # fmt: skip
    chosen = answered.errors.release.catalog.tables[view.of].chooses_rows
    if chosen and not rehearsed and any(term.measure.sums_rows for term in form.terms):
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
    of_rows = all(term.measure.sums_rows for term in form.terms)
    without_size = not of_rows or (not rehearsed and (means is None or counted is None))
    estimated = replace(Composite.of_form(form, answered), dry=without_size)
    low, high = (end.values(estimated, DEFAULT_LEVEL) for end in (LOW, HIGH))
    # of the interval that is printed, which is cut where a count is near 0
    errors = (high - low) / (2 * quantile(DEFAULT_LEVEL))
    relative = _relative(errors, estimated.central()) if rehearsed else None
    errors = errors[~np.isnan(errors)]
    plain = form.counts and [(term.measure.counts_rows, abs(w)) for term, w in form.sides[0].weights] == [
        (True, 1)
    ]
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
        if term.measure.sums_rows
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
