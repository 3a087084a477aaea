"""A block -> the relation of its groups: keys, noisy values, and what their error bars need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from dpsql.answer.answered import Answered, answer_terms, central, error_values, nullable, terms_of
from dpsql.answer.bias import scale_notes
from dpsql.answer.block import TRUE, Block, ErrorOf, Expression, Form, Known, Noisy, Term, Value
from dpsql.answer.choose import PartialBin, choose
from dpsql.answer.cuts import cut_notes
from dpsql.answer.errorbars import quantile
from dpsql.answer.known import catalog_plan, known_values, not_an_axis
from dpsql.answer.participation import reported_notes
from dpsql.answer.plan import Plan
from dpsql.answer.quantiles import Prefix, along, prefixes
from dpsql.answer.result import NONNEGATIVE
from dpsql.answer.schema import Schema
from dpsql.errors import NotSupportedError, NoViewError
from dpsql.release import Release


@dataclass(frozen=True, eq=False)
class Relation:
    """The groups of a block.

    Args:
        block: the block.
        names, types, columns: of the relation, dp_at first.
        answered: the plans, each with the terms it answers.
        notes: what a reader should know.
        prefixes: for each quantile asked its type and every group's running counts.
    """

    block: Block
    names: tuple[str, ...]
    types: tuple[str, ...]
    columns: tuple[list[Any], ...]
    answered: tuple[Answered, ...] = ()
    notes: tuple[str, ...] = ()
    prefixes: dict[Known, tuple[str, list[Prefix]]] = field(default_factory=dict)

    def answered_for(self, form: Noisy) -> Answered | None:
        """The plan that holds all terms of a form, or None."""
        wanted = terms_of(form)
        return next((a for a in self.answered if all(term in a.totals for term in wanted)), None)

    def errors_of(self, what: str, form: Form | None, level: float) -> tuple[str, list[Any] | None]:
        """Standard error, interval end or model bound of a form for each group.

        Args:
            what: `stderr`, `low`, `high` or `model`.
            form: the form.
            level: of the interval.

        Returns:
            (DuckDB type, values); no values where the error is not defined.
        """
        if isinstance(form, Known):
            kind, found = self.prefixes.get(form, ("DOUBLE", []))
            sign = {"low": -1.0, "high": 1.0}.get(what)
            if sign is None or not found:
                return kind, None
            return kind, [prefix.value(sign * quantile(level)) for prefix in found]
        answered = self.answered_for(form) if form is not None else None
        if form is None or answered is None:
            return "DOUBLE", None
        return "DOUBLE", nullable(error_values(what, form, answered, level))


def relate(
    block: Block,
    release: Release,
    schema: Schema,
    asked: PartialBin | None = None,
    quantile_of: Expression | None = None,
) -> Relation:
    """Answer a block.

    Args:
        block: the block.
        release: an open release.
        schema: its star.
        asked: what the session does with bins that are cut; None as the catalog says.
        quantile_of: a group expression that lies inside of bins by its nature.

    Returns:
        The relation of its groups, in catalog order.
    """
    terms = list(dict.fromkeys(term for value in block.values for term in terms_of(value)))
    notes = reported_notes(release.meta, block)
    if not terms or (block.listing and not _answerable(block, terms, release, schema)):
        plan = catalog_plan(block, release, schema)
        notes.append(_catalog_note(block))
        if terms:
            notes.append("no view can order them by a count; that order is left out")
        return _assemble(block, [(plan, [])], release, schema, notes, asked)
    choice = partial(choose, block, release=release, schema=schema, asked=asked, along=quantile_of)
    plans = _plans(block, terms, choice)
    notes += [note for plan, asked in plans for note in bias_notes(plan, asked, release)]
    return _assemble(block, plans, release, schema, notes, asked)


def bias_notes(plan: Plan, terms: Sequence[Term], release: Release) -> list[str]:
    """What a reader should know about estimates that are biased: their intervals tell of noise alone."""
    name, read = plan.view.name, [plan.view.statistics[term.measure] for term in terms]
    notes = scale_notes(plan, release)
    if any(statistic.biased for statistic in read):
        notes.append(
            f"view {name} is biased ({read[0].mechanism}): errors and intervals tell of its noise alone"
        )
    positive = [statistic for statistic in read if release.estimate(statistic.id) == "nonnegative"]
    if positive:
        own = all(statistic.nonnegative_model is not None for statistic in positive)
        whose = "from repeating their fit" if own else "those of the unbiased ones"
        notes.append(f"{NONNEGATIVE} of view {name}: biased; errors are {whose}")
    elif release.nonnegative and any(statistic.measure == "count" for statistic in read):
        notes.append(f"view {name} has no non-negative estimates: its counts are unbiased")
    return notes + bounding_notes(plan.view.of, release)


def bounding_notes(of: str, release: Release) -> list[str]:
    """What bounding did to the rows of a table, which no error bar tells."""
    notes = []
    if (release.meta["catalog"]["tables"].get(of) or {}).get("bounding") == "weight":
        notes.append(f"rows of {of} are weighted: all rows of one unit count for max_ids rows at most")
    for each in release.meta.get("bounding", ()):
        if each["of"] == of and each["bounding"] == "slots":
            notes.append(_slots_note(each))
        elif each["of"] == of:
            notes.append(f"bounding left out about {100 * each['clipped_fraction']:.2g}% of the rows of {of}")
    return notes


def _slots_note(told: Mapping[str, Any]) -> str:
    """What the slots of people who report for themselves left out."""
    of, tau = told["of"], told["tau"]
    if told["clipped_fraction"] is None:
        return f"people report {tau} of their rows of {of}; nobody was asked how many that leaves out"
    share, error = 100 * told["clipped_fraction"], 100 * told["clipped_fraction_error"]
    put_back = "; counts and sums put them back as if they resembled the others" if told["put_back"] else ""
    return f"slots ({tau} a person) left out about {share:.2g}% (error {error:.1g}%) of the rows of {of}{put_back}"


def _catalog_note(block: Block) -> str:
    asked = [value.form if isinstance(value, ErrorOf) else value for value in block.values]
    if any(isinstance(value, Known) and value.function == "quantile" for value in asked):
        return "the groups come from the catalog; quantiles come from noisy counts along the axis"
    return "the answer comes from the catalog; no noise"


def _answerable(block: Block, terms: Sequence[Term], release: Release, schema: Schema) -> bool:
    try:
        choose(block, terms, release, schema, "interpolate")
    except NoViewError:
        return False
    return True


def _plans(
    block: Block, terms: list[Term], choice: Callable[[list[Term]], Plan]
) -> list[tuple[Plan, list[Term]]]:
    """One plan for all terms where there is one that cuts no bin, else one for each value."""
    together: Plan | None = None
    try:
        together = choice(terms)
        if len(block.values) == 1 or not any(cells.cut for cells in together.cells):
            return [(together, terms)]
    except NoViewError:
        if len(block.values) == 1:
            raise
    each: list[tuple[Plan, list[Term]]] = []
    for value in block.values:
        wanted = terms_of(value)
        if wanted and not any(set(wanted) <= set(done) for _, done in each):
            each.append((choice(wanted), wanted))
    if together is not None and all(plan.view.name == together.view.name for plan, _ in each):
        return [(together, terms)]
    keys = [tuple(cells.keys for cells in plan.cells if cells.types) for plan, _ in each]
    if any(other != keys[0] for other in keys):
        if together is not None:
            return [(together, terms)]
        raise NotSupportedError(
            "the aggregates need views whose groups differ", hint="ask for them one by one"
        )
    return each


def _assemble(
    block: Block,
    plans: list[tuple[Plan, list[Term]]],
    release: Release,
    schema: Schema,
    notes: list[str],
    asked: PartialBin | None,
) -> Relation:
    plan = plans[0][0]
    index = _group_index(block, plan)
    answered = tuple(answer_terms(p, t, _group_index(block, p), release) for p, t in plans)
    notes += [
        note for a, (p, t) in zip(answered, plans, strict=True) for note in cut_notes(p, t, a.cuts, release)
    ]
    names, types = ["dp_at"], ["BIGINT"]
    columns: list[list[Any]] = [list(range(len(index[0]) if index else 1))]
    for j, group in enumerate(block.groups):
        position = next(i for i, q in enumerate(plan.questions) if group in q.groups)
        place = plan.questions[position].groups.index(group)
        keys = plan.cells[position].keys
        names.append(f"k{j}")
        types.append(plan.cells[position].types[place])
        columns.append([keys[g][place] for g in index[position]])
    found = _quantiles(block, columns, release, schema, asked)
    relation = Relation(block, (), (), (), answered, tuple(notes), found)
    for i, value in enumerate(block.values):
        kind, column = _column(value, relation, plan, index, release, schema)
        names.append(f"v{i}")
        types.append(kind)
        columns.append(column)
    return Relation(block, tuple(names), tuple(types), tuple(columns), answered, tuple(notes), found)


def _quantiles(
    block: Block, columns: list[list[Any]], release: Release, schema: Schema, asked: PartialBin | None
) -> dict[Known, tuple[str, list[Prefix]]]:
    """Running counts for every quantile that the block asks, alone or inside an error bar."""
    forms = [value.form if isinstance(value, ErrorOf) else value for value in block.values]
    keys = list(zip(*columns[1:], strict=True)) if len(columns) > 1 else [()]
    found: dict[Known, tuple[str, list[Prefix]]] = {}
    for known in forms:
        if isinstance(known, Known) and known.function == "quantile" and known not in found:
            if not any(schema.axis_columns(block.columns[c]) for c in known.expression.columns):
                raise not_an_axis(known, block)
            inner = relate(along(known, block), release, schema, asked, known.expression)
            found[known] = inner.types[-2], prefixes(known, keys, inner.columns, inner.answered[0])
    return found


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


def _column(
    value: Value,
    relation: Relation,
    plan: Plan,
    index: tuple[np.ndarray, ...],
    release: Release,
    schema: Schema,
) -> tuple[str, list[Any]]:
    """One value column: (DuckDB type, values)."""
    rows = len(index[0]) if index else 1
    if isinstance(value, ErrorOf):
        kind, found = relation.errors_of(value.what, value.form, value.level)
        return kind, [None] * rows if found is None else found
    if isinstance(value, Known):
        if value.function == "quantile":
            kind, groups = relation.prefixes[value]
            return kind, [prefix.value() for prefix in groups]
        kind, flat = known_values(value, relation.block, plan, release, schema)
        return kind, [flat[i] for i in np.ravel_multi_index(index, plan.shape)] if index else flat[:1]
    answered = relation.answered_for(value)
    return "DOUBLE", [None] * rows if answered is None else nullable(central(value, answered))
