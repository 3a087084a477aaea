"""What can be said of a statement beside its answer: its plan in words, and what its standard errors will be.

A plan is numbered stages, the DuckDB statements last. A prediction reads the variance model alone.

**Privacy**: a prediction is a function of the statement and of public facts; it works on a release whose estimates are
absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpsql.answer.answered import Answered, runs
from dpsql.answer.block import (
    Block,
    Condition,
    Every,
    Form,
    Known,
    Linear,
    Predicate,
    Ratio,
    Some,
    terms_of,
)
from dpsql.answer.cuts import Interpolated, interpolated, overall
from dpsql.answer.errorfunctions import STDERR
from dpsql.answer.leafsets import AxisCells, masks
from dpsql.answer.relation import Relation, relate
from dpsql.answer.sql.parse import parse, pointed
from dpsql.answer.sql.rewrite import take_apart
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
        return "(" + word.join(condition_words(part) for part in condition.parts) + ")"
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
    joins = ", ".join(f"{'.'.join(j.path)} ({'inner' if j.inner else 'left'})" for j in block.joins)
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
        terms = terms_of(value)
        if isinstance(value, (Linear, Ratio)) and terms and all(term in answered.totals for term in terms):
            above, below = answered.parts(value)
            found = answered.errors.stderr(value, above, below)
            if len(found):
                lines.append(
                    f"predicted standard error: {float(found.min()):.6g} to {float(found.max()):.6g}"
                )
    return lines


def cells_words(cells: AxisCells, most: int = 6) -> str:
    """Leaf intervals of each group, the first few."""
    mask = masks(cells, None)
    row, start, stop = runs(mask > 0)
    names = [f"{key}: " if cells.types else "" for key in cells.keys]
    spans = [f"{names[r]}[{a}, {b})" for r, a, b in zip(row, start, stop, strict=True)]
    more = f" and {len(spans) - most} more" if len(spans) > most else ""
    return (", ".join(spans[:most]) or "no leaf") + more + f" of {cells.leaves} leaves"


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
        least, median, most: standard errors over the groups; None where they depend on the answer (ratios).
        counts: whether the column is one plain COUNT, the unit that engines are compared in.
        cells: cells of the view.
        cut: whether a predicate cuts a bin: then interpolation errs too, by at most `Result.model_bound`.
        cut_bins: how many bins are cut, over all axes and groups.
        interpolated: part of all that is taken which lies in them, counted in bins.
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
        asked = answerer.on_partial_bin
        relations = [relate(block, answerer.release, answerer.schema, asked) for block in statement.blocks]
    except Error as error:
        raise pointed(error, text) from error
    columns = zip(statement.names, statement.forms, strict=True)
    return tuple(
        _column(name, form, relations[block])
        for name, forms in columns
        for block, form in sorted(forms.items())
    )


def _column(name: str, form: Form, relation: Relation) -> PredictedColumn:
    answered = None if isinstance(form, Known) else relation.answered_for(form)
    groups = len(relation.columns[0])
    if answered is None or isinstance(form, Known):
        return PredictedColumn(name, "", groups, None, None, None, False, 0)
    view = answered.plan.view
    cut = interpolated(answered.plan, terms_of(form))
    facts = (bool(cut), sum(each.bins for each in cut), overall(cut))
    if not isinstance(form, Linear):
        return PredictedColumn(name, view.name, groups, None, None, None, False, 0, *facts)
    errors = _errors(relation, form)
    plain = [term.measure for term in terms_of(form)] == ["count"] and abs(form.weights[0][1]) == 1
    spread = (None,) * 3 if not len(errors) else (errors.min(), np.median(errors), errors.max())
    least, median, most = (None if value is None else float(value) for value in spread)
    return PredictedColumn(name, view.name, groups, least, median, most, plain, view.cells, *facts)


def _errors(relation: Relation, form: Linear) -> np.ndarray:
    found: Sequence[float | None] = relation.errors_of(STDERR, form, 0.0)[1] or []
    return np.array([value for value in found if value is not None], np.float64)
