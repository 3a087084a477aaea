"""What can be said of a statement beside its answer: its plan in words, and what its standard errors will be.

A plan is numbered stages, the DuckDB statements last. A prediction reads the variance model, and the
estimates of tables that were rehearsed on made-up rows.

**Privacy**: a prediction is a function of the statement and of public facts; it works on a release whose estimates are
absent, or made up.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpsql.answer.answered import Answered, runs
from dpsql.answer.block import Block
from dpsql.answer.errorfunctions import DEFAULT_LEVEL, STDERR
from dpsql.answer.leafsets import AxisCells, masks
from dpsql.answer.relation import Relation, relate
from dpsql.answer.sql.parse import parse, pointed
from dpsql.answer.sql.rewrite import take_apart
from dpsql.answer.terms import Condition, Every, Predicate, Some
from dpsql.answer.uncertainty.composite import Composite
from dpsql.answer.uncertainty.forms import Form, Linear, is_summed
from dpsql.answer.uncertainty.partial_bins import Interpolated, interpolated, overall
from dpsql.errors import Error
from dpsql.release import Release

if TYPE_CHECKING:
    from dpsql.answer.answerer import Answerer


def condition_words(condition: Condition) -> str:
    """A condition in words."""
    if isinstance(condition, Predicate):
        text = condition.expression.words()
        return f"not true: {text}" if condition.negated else text
    if isinstance(condition, (Every, Some)):
        word = " and " if isinstance(condition, Every) else " or "
        return "(" + word.join(condition_words(operand) for operand in condition.parts) + ")"
    return "every row" if condition.value else "no row"


class Stages(NamedTuple):
    """A plan: lines in words, and the DuckDB statements that ran."""

    lines: list[str]
    statements: list[str]

    def numbered(self) -> tuple[str, ...]:
        """All of them with numbers, statements last."""
        lines = [*self.lines, *(f"DuckDB: {sql}" for sql in self.statements)]
        return tuple(f"{i}. {line}" for i, line in enumerate(lines, 1))


def explain_relation(number: int, relation: Relation, release: Release, stages: Stages) -> None:
    """The stages of one block.

    Args:
        number: the block's number.
        relation: its answer.
        release: the release.
        stages: gains them.
    """
    block = relation.block
    joins = ", ".join(".".join(path) for path in block.joins)
    lines = [f"block {number}: rows of {block.root}" + (f", joined along {joins}" if joins else "")]
    if block.columns:
        lines.append(f"condition: {condition_words(block.where)}")
    if block.groups:
        lines.append(f"grouped by {', '.join(group.words() for group in block.groups)}")
    stages.lines.extend([*lines, *(note.text for note in relation.notes)])
    for answered in relation.answered:
        stages.lines.extend(_plan_words(answered, block, release))
        stages.statements.extend(lookup.sql for lookup in answered.lookups)


def _plan_words(answered: Answered, block: Block, release: Release) -> list[str]:
    plan = answered.plan
    view = plan.view
    if not view.statistics:
        return []
    axes = ", ".join(release.axes[i].name for i in view.axes) or "no axis"
    lines = [f"view {view.name}: {view.cells} cells over {axes}"]
    cut = {each.axis: each for each in interpolated(plan, list(answered.totals))}
    for position, axis in enumerate(view.axes):
        words = cells_words(plan.cells[position]) + _cut_words(cut.get(position))
        lines.append(f"axis {release.axes[axis].name}: {words}")
    for lookup in answered.lookups:
        nodes = " x ".join(str(n) for n in lookup.nodes)
        for statistic in (release.statistics[each] for each in lookup.statistics):
            lines.append(
                f"statistic {statistic.measure}: {nodes or '1'} nodes, sensitivity {statistic.sensitivity}, "
                f"{statistic.currency} {float(Fraction(statistic.budget)):.4g}"
            )
    for value in block.values:
        terms = value.terms
        if is_summed(value) and terms and all(term in answered.totals for term in terms):
            errors = STDERR.values(Composite.of_form(value, answered), DEFAULT_LEVEL)
            closed = errors[np.isfinite(errors)]
            if len(closed):
                lines.append(f"predicted standard error: {closed.min():.6g} to {closed.max():.6g}")
            if np.any(np.isinf(errors)):
                lines.append("intervals have an open end: nothing bounds the error")
    return lines


def cells_words(cells: AxisCells, most: int = 6) -> str:
    """Leaf intervals of each group, the first few."""
    mask = masks(cells, None)
    row, start, stop = runs(mask > 0)
    names = [f"{key}: " if cells.types else "" for key in cells.keys]
    spans = [f"{names[r]}[{a}, {b})" for r, a, b in zip(row, start, stop, strict=True)]
    remainder = f" and {len(spans) - most} more" if len(spans) > most else ""
    return (", ".join(spans[:most]) or "no leaf") + remainder + f" of {cells.leaves} leaves"


def _cut_words(cut: Interpolated | None) -> str:
    """How many bins are cut, and how much of what is taken lies in them."""
    if cut is None:
        return ""
    return f" ({cut.bins} bin{'s' * (cut.bins > 1)} cut: {cut.share:.0%} of what is taken is interpolated)"


@dataclass(frozen=True)
class PredictedColumn:
    """How far one output column will be off.

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
        open_groups: groups whose interval has an open end, for too few people are expected to be seen in the noise.
        ratio: whether it is one number over another, such as an average: its error does not grow with the rows.
        relative: the median over groups of the error over the answer; None where the release has no estimates.
    """

    name: str
    view: str
    groups: int
    least: float | None
    median: float | None
    most: float | None
    counts: bool
    cells: int
    cut: bool = False
    cut_bins: int = 0
    interpolated: float = 0.0
    open_groups: int = 0
    ratio: bool = False
    relative: float | None = None


def predict(answerer: Answerer, text: str, *, dialect: str = "duckdb") -> tuple[PredictedColumn, ...]:
    """Predicted standard errors of a statement's noisy columns.

    Args:
        answerer: over a release; its estimates are not used.
        text: one statement.
        dialect: the SQL dialect it is written in.

    Returns:
        One entry for each output column that has an error. HAVING and LIMIT are not applied: they depend on
        answers.

    Raises:
        ProgrammingError, NotSupportedError: no view can answer; what `query` would raise.
    """
    try:
        statement = take_apart(parse(text, dialect), answerer.schema, text)
        on_partial_bin = answerer.on_partial_bin
        relations = [
            relate(block, answerer.release, answerer.schema, on_partial_bin) for block in statement.blocks
        ]
    except Error as error:
        raise pointed(error, text) from error
    columns = zip(statement.names, statement.forms, strict=True)
    return tuple(
        _column(name, form, relations[block])
        for name, forms in columns
        for block, form in sorted(forms.items())
    )


def _column(name: str, form: Form, relation: Relation) -> PredictedColumn:
    answered = relation.answered_for(form) if is_summed(form) else None
    groups = len(relation.columns[0])
    if answered is None or not is_summed(form):
        return PredictedColumn(name, "", groups, None, None, None, False, 0)
    view = answered.plan.view
    cut = interpolated(answered.plan, form.terms)
    facts = (bool(cut), sum(axis.bins for axis in cut), overall(cut))
    rehearsed, ratio = view.of in answered.errors.release.scales, len(form.sides) > 1
    if ratio and not rehearsed:
        return PredictedColumn(name, view.name, groups, None, None, None, False, 0, *facts, ratio=True)
    estimated = Composite.of_form(form, answered)
    errors = STDERR.values(estimated, DEFAULT_LEVEL)
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
    unbounded = len(errors) - len(closed)
    return PredictedColumn(
        name,
        view.name,
        groups,
        smallest,
        median,
        largest,
        plain,
        view.cells,
        *facts,
        unbounded,
        ratio,
        relative,
    )


def _relative(errors: np.ndarray, values: np.ndarray) -> float | None:
    """The median of errors over answers; None where most have no end, or nothing is answered."""
    seen = ~np.isnan(errors) & (values != 0)
    found = float(np.median(errors[seen] / np.abs(values[seen]))) if seen.any() else np.inf
    return found if np.isfinite(found) else None
