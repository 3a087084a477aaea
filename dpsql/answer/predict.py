"""What a statement's standard errors will be, without answers: the variance model is all that is read.

**Privacy**: a function of the statement and of public facts; it works on a release whose estimates are absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.answer.answered import terms_of
from dpsql.answer.answerer import Answerer
from dpsql.answer.block import Form, Known, Linear
from dpsql.answer.cuts import interpolated, overall
from dpsql.answer.relation import Relation, relate
from dpsql.answer.sql.parse import parse
from dpsql.answer.sql.refuse import pointed
from dpsql.answer.sql.rewrite import take_apart
from dpsql.errors import Error


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
    found: Sequence[float | None] = relation.errors_of("stderr", form, 0.0)[1] or []
    return np.array([value for value in found if value is not None], np.float64)
