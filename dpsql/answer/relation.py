"""A block -> the relation of its groups: keys, noisy values, and what their error bars need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dpsql.answer.block import TRUE, Block, ErrorOf, Form, Known, Linear, Ratio, Term
from dpsql.answer.errorbars import LAPLACE_KURTOSIS, Errors, quantile
from dpsql.answer.known import catalog_plan, known_values
from dpsql.answer.leafsets import FloatArray
from dpsql.answer.plan import Plan, choose, presence
from dpsql.answer.quantiles import axis_quantiles
from dpsql.answer.recombine import Lookup, recombine
from dpsql.answer.schema import Schema
from dpsql.errors import NotSupportedError, NoViewError
from dpsql.release import Release
from dpsql.release.format import UNIT

NULL_LEVEL = 0.95
"""An AVG is NULL when its count's interval at this level holds 0."""


@dataclass(frozen=True, eq=False)
class Answered:
    """Terms of a block, answered on one plan.

    Args:
        plan: the plan.
        totals: term -> value for each group, flat.
        lookups: the statements that ran.
        errors: variances for the groups that are shown.
    """

    plan: Plan
    totals: dict[Term, FloatArray]
    lookups: tuple[Lookup, ...]
    errors: Errors

    def value(self, form: Linear) -> FloatArray:
        """A linear form for each group shown."""
        rows = len(self.errors.index[0]) if self.errors.index else 1
        total = np.full(rows, form.constant)
        for term, weight in form.weights:
            total = total + weight * self.totals[term]
        return total

    def parts(self, form: Form) -> tuple[FloatArray, FloatArray]:
        """(value, 1) of a linear form, (numerator, denominator) of a ratio."""
        if isinstance(form, Linear):
            return self.value(form), np.ones(1)
        return self.value(form.above), self.value(form.below)

    @cached_property
    def kurtosis(self) -> float:
        """Excess kurtosis to allow for: pure releases draw Laplace noise, one draw a node combination."""
        pure = any(s.currency == "epsilon" for s in self.plan.view.statistics.values())
        fewest = min((int(np.prod(each.nodes)) for each in self.lookups), default=1)
        rows = max(1, int(np.prod(self.plan.shape)))
        return LAPLACE_KURTOSIS / max(1.0, fewest / rows) if pure else 0.0

    def z(self, level: float) -> float:
        """Standard errors on each side of an answer."""
        return quantile(level, self.kurtosis)


@dataclass(frozen=True, eq=False)
class Relation:
    """The groups of a block.

    Args:
        block: the block.
        names, types, columns: of the relation, dp_at first.
        answered: for each noisy value its plan; keyed by value.
        notes: what a reader should know.
    """

    block: Block
    names: tuple[str, ...]
    types: tuple[str, ...]
    columns: tuple[list[Any], ...]
    answered: dict[Any, Answered] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def answered_for(self, form: Form) -> Answered | None:
        """The plan that holds all terms of a form, or None."""
        wanted = terms_of(form)
        return next((a for a in self.answered.values() if all(term in a.totals for term in wanted)), None)


def terms_of(value: object) -> list[Term]:
    """The noisy terms of a value."""
    if isinstance(value, Linear):
        return [term for term, _ in value.weights]
    if isinstance(value, Ratio):
        return [*terms_of(value.above), *terms_of(value.below)]
    if isinstance(value, ErrorOf):
        return terms_of(value.form)
    return []


def relate(block: Block, release: Release, schema: Schema) -> Relation:
    """Answer a block.

    Args:
        block: the block.
        release: an open release.
        schema: its star.

    Returns:
        The relation of its groups, in catalog order.
    """
    terms = list(dict.fromkeys(term for value in block.values for term in terms_of(value)))
    notes: list[str] = []
    if not terms or (block.listing and not _answerable(block, terms, release, schema)):
        plan = catalog_plan(block, release, schema)
        notes.append("the groups come from the catalog; no noise")
        if terms:
            notes.append("no view can order them by a count; that order is left out")
        return _assemble(block, [(plan, [])], release, schema, notes)
    return _assemble(block, _plans(block, terms, release, schema), release, schema, notes)


def _answerable(block: Block, terms: Sequence[Term], release: Release, schema: Schema) -> bool:
    try:
        choose(block, terms, release, schema)
    except NoViewError:
        return False
    return True


def _plans(block: Block, terms: list[Term], release: Release, schema: Schema) -> list[tuple[Plan, list[Term]]]:
    """One plan for all terms where there is one that cuts no bin, else one for each value."""
    together: Plan | None = None
    try:
        together = choose(block, terms, release, schema)[0]
        if len(block.values) == 1 or not any(cells.cut for cells in together.cells):
            return [(together, terms)]
    except NoViewError:
        if len(block.values) == 1:
            raise
    each: list[tuple[Plan, list[Term]]] = []
    for value in block.values:
        wanted = [term for term in terms_of(value) if not any(term in done for _, done in each)]
        if wanted:
            each.append((choose(block, wanted, release, schema)[0], wanted))
    keys = [tuple(cells.keys for cells in plan.cells if cells.types) for plan, _ in each]
    if any(other != keys[0] for other in keys):
        if together is not None:
            return [(together, terms)]
        raise NotSupportedError("the aggregates need views whose groups differ", hint="ask for them one by one")
    return each


def _assemble(block: Block, plans: list[tuple[Plan, list[Term]]], release: Release, schema: Schema,
              notes: list[str]) -> Relation:
    plan = plans[0][0]
    index = _group_index(block, plan)
    rows = len(index[0]) if index else 1
    answered = {i: _answer(p, t, _group_index(block, p), release) for i, (p, t) in enumerate(plans)}
    names, types, columns = ["dp_at"], ["BIGINT"], [list(range(rows))]
    for j, group in enumerate(block.groups):
        position = next(i for i, q in enumerate(plan.questions) if group in q.groups)
        place = plan.questions[position].groups.index(group)
        keys = plan.cells[position].keys
        names.append(f"k{j}")
        types.append(plan.cells[position].types[place])
        columns.append([keys[g][place] for g in index[position]])
    relation = Relation(block, (), (), (), dict(answered), tuple(notes))
    for i, value in enumerate(block.values):
        kind, column = _column(value, relation, plan, index, release, schema)
        names.append(f"v{i}")
        types.append(kind)
        columns.append(column)
    return Relation(block, tuple(names), tuple(types), tuple(columns), dict(answered), tuple(notes))


def _group_index(block: Block, plan: Plan) -> tuple[np.ndarray, ...]:
    """For each axis the group of each row: the axes vary in the order of GROUP BY, the first slowest."""
    if not plan.cells:
        return ()
    order = _slowest_first(block, plan)
    grids = np.indices([plan.shape[i] for i in order]).reshape(len(order), -1)
    index = [np.zeros(0, np.int64)] * len(order)
    for place, axis in enumerate(order):
        index[axis] = grids[place]
    if block.groups and plan.boxes_of(TRUE) != [(None,) * len(plan.cells)]:
        keep = _occupied(plan)[tuple(index)]
        index = [each[keep] for each in index]
    return tuple(index)


def _slowest_first(block: Block, plan: Plan) -> list[int]:
    first = {}
    for position, question in enumerate(plan.questions):
        places = [block.groups.index(group) for group in question.groups]
        first[position] = min(places) if places else len(block.groups) + position
    return sorted(first, key=lambda position: first[position])


def _occupied(plan: Plan) -> np.ndarray:
    """Groups that meet WHERE at all, where it ties several axes together."""
    some = np.zeros(plan.shape, bool)
    for box in plan.boxes_of(TRUE):
        whole = np.ones(plan.shape, bool)
        for axis, mask in enumerate(plan.box_masks(box)):
            along = [1] * len(plan.shape)
            along[axis] = -1
            whole &= (mask.sum(axis=1) > 0).reshape(along)
        some |= whole
    return some


def _answer(plan: Plan, terms: Sequence[Term], index: tuple[np.ndarray, ...], release: Release) -> Answered:
    """Recombine every statistic that the terms read, once, and add up."""
    wanted: dict[int, dict[Any, None]] = {}
    for term in terms:
        for statistic in _statistics(plan, term):
            wanted.setdefault(statistic, {}).update(dict.fromkeys(plan.boxes_of(term.condition)))
    lookups, found = [], {}
    for statistic, boxes in wanted.items():
        if boxes:
            asked, values = recombine(plan, statistic, list(boxes), release)
            lookups.append(asked)
            found[statistic] = values
    totals = {term: _total(plan, term, found, index) for term in terms}
    return Answered(plan, totals, tuple(lookups), Errors(plan, release, index))


def _statistics(plan: Plan, term: Term) -> list[int]:
    statistic = plan.view.statistics[term.measure]
    if not statistic.mid:
        return [statistic.id]
    count = presence(term.measure, plan.view)
    return [statistic.id] + ([count.id] if count is not None else [])


def _total(plan: Plan, term: Term, found: dict[int, dict[Any, Any]], index: tuple[np.ndarray, ...]) -> FloatArray:
    """(centred sum + mid * count) / 10^scale, added up in integers while they are whole."""
    statistic = plan.view.statistics[term.measure]
    used = _statistics(plan, term)
    units = np.zeros(len(index[0]) if index else 1, np.int64)
    for box in plan.boxes_of(term.condition):
        for which, factor in zip(used, (1, statistic.mid), strict=False):
            part = found[which][box]
            flat = part[index] if index else part.reshape(1)
            wide = part.dtype == np.int64 and factor and np.max(np.abs(flat), initial=0) > 2**62 // abs(factor)
            units = units + (flat.astype(np.float64) if wide else flat) * factor
    return np.asarray(units / UNIT / 10.0**statistic.scale, np.float64)


def _column(value: object, relation: Relation, plan: Plan, index: tuple[np.ndarray, ...], release: Release,
            schema: Schema) -> tuple[str, list[Any]]:
    """One value column: (DuckDB type, values)."""
    rows = len(index[0]) if index else 1
    if isinstance(value, Known):
        if value.function == "quantile":
            return axis_quantiles(value, relation.block, plan, index, release, schema)
        kind, flat = known_values(value, relation.block, plan, release, schema)
        if not index:
            return kind, flat[:1]
        where = np.ravel_multi_index(index, plan.shape)
        return kind, [flat[i] for i in where]
    form = value.form if isinstance(value, ErrorOf) else value
    answered = relation.answered_for(form) if isinstance(form, (Linear, Ratio)) else None
    if answered is None or not isinstance(form, (Linear, Ratio)):
        return "DOUBLE", [None] * rows
    if isinstance(value, ErrorOf):
        return "DOUBLE", nullable(error_values(value.what, form, answered, value.level))
    return "DOUBLE", nullable(central(form, answered))


def central(form: Form, answered: Answered) -> FloatArray:
    """The value of a form; NaN for an AVG whose count may be 0."""
    above, below = answered.parts(form)
    if isinstance(form, Linear):
        return above
    known = below != 0
    if form.mean:
        known &= np.abs(below) > answered.z(NULL_LEVEL) * np.sqrt(answered.errors.variance(form.below))
    found: FloatArray = np.divide(above, below, out=np.full(len(above), np.nan), where=known)
    return found


def error_values(what: str, form: Form, answered: Answered, level: float) -> FloatArray:
    """Standard error or one end of the interval of a form, NaN where it is not defined."""
    above, below = answered.parts(form)
    hidden = np.isnan(central(form, answered)) if isinstance(form, Ratio) else np.zeros(len(above), bool)
    if what == "stderr":
        found = answered.errors.stderr(form, above, below)
    else:
        ends = answered.errors.interval(form, above, below, answered.z(level))
        found = ends[0] if what == "low" else ends[1]
    return np.where(hidden, np.nan, found)


def nullable(values: FloatArray) -> list[float | None]:
    """NaN as None."""
    return [None if value != value else value for value in values.tolist()]
