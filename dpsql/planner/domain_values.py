"""Values of an axis column itself that the catalog alone says: domain lists, MIN, MAX and COUNT(DISTINCT). No noise.

Notes on values that an axis does not tell apart from NULL, or does not list.

A foreign key that names no row of its dimension dangles. Its rows lie in the MISSING leaf of the dimension's axis,
together with rows whose key is NULL, and there the key is NULL to every expression. That is right where a condition
picks keys that the dimension has, `doctor_id IN (3, 4)`, and wrong for `doctor_id <> 3`, which is true of a key that
dangles and unknown of NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import duckdb
import numpy as np

from dpsql.errors import NotSupportedError
from dpsql.executor.run import bad_expression, run
from dpsql.planner.axis_query import ask_axis, cannot_leave, key_list
from dpsql.planner.block import Block, CatalogValue
from dpsql.planner.leaf_values import AxisQuery, leaf_values, truth_sql
from dpsql.planner.notes import Note
from dpsql.planner.plan import ReleaseView, ViewPlan, has_partner, no_view, partner_column, requires_partner
from dpsql.planner.schema import (
    ColumnRef,
    Condition,
    Expression,
    Predicate,
    Schema,
    conjuncts,
    every,
    predicates,
)
from dpsql.release import Release
from dpsql.release.format import ColumnMeta

FUNCTIONS = {"min": "MIN({})", "max": "MAX({})", "count": "COUNT(DISTINCT {})"}


def catalog_plan(block: Block, release: Release, schema: Schema) -> ViewPlan:
    """A plan without a view: for each column some axis of the release that holds it.

    Args:
        block: a block without noisy terms.
        release: an open release.
        schema: its star.

    Returns:
        The plan; its groups are the domain's values that meet the block's conditions.

    Raises:
        NoViewError: a column that no axis holds.
    """
    # few axes are preferred: one that is chosen serves the next placeholder first
    placed: dict[int, tuple[int, str]] = {}
    chosen: list[int] = []
    for number, ref in enumerate(block.columns):
        offers = [] if ref.partner else _offers(ref, block, schema)
        offers = sorted(offers, key=lambda offer: offer[0] not in chosen)
        if offers:
            placed[number] = (offers[0][0], offers[0][1].name)
            chosen.append(offers[0][0])
    for value in block.values:
        if isinstance(value, CatalogValue) and any(c not in placed for c in value.expression.columns):
            raise not_an_axis(value, block, schema)
    missing = [str(ref) for i, ref in enumerate(block.columns) if i not in placed and not ref.partner]
    if missing:
        raise no_view(block, [f"the catalog publishes no domain of {', '.join(missing)}"], schema)
    axes = tuple(dict.fromkeys(axis for axis, _ in placed.values()))
    partners = _partners(block, schema, placed, release)
    by_axis = _own(block.where, placed | partners)
    questions = []
    for axis in axes:
        groups = tuple(g for g in block.groups if _axis(g, placed) == axis)
        filters = (*by_axis.get(axis, ()), _in_domain(block, release, schema, axis))
        used = {c for e in [*groups, *(p.expression for p in filters)] for c in e.columns}
        columns = tuple((c, placed[c][1]) for c in sorted(used & set(placed)))
        present = tuple((c, partners[c][1] or None) for c in sorted(used & set(partners)))
        questions.append(AxisQuery(axis, columns, filters, groups, partners=present))
    cells = tuple(ask_axis(release, question) for question in questions)
    view = ReleaseView("the catalog", block.root, axes, {}, 0)
    return ViewPlan(view, tuple(questions), cells, every([]), tuple(() for _ in axes))


def _offers(ref: ColumnRef, block: Block, schema: Schema) -> list[tuple[int, ColumnMeta]]:
    """Axes that hold a column for every row of its table; of a list also one that does for some (`reached_notes`)."""
    offers = schema.axis_columns(ref) or schema.anywhere(ref, block.root)
    if offers or any(isinstance(value, CatalogValue) for value in block.values):
        return offers
    reached = schema.reached(ref, block.root)
    return reached if len({column.path for _, column in reached}) == 1 else []


def reached_notes(block: Block, schema: Schema) -> list[Note]:
    """Columns that are listed as far as the rows of another table reach them."""
    notes = []
    for ref in block.columns:
        if not ref.partner and not schema.axis_columns(ref) and not schema.anywhere(ref, block.root):
            for number, _ in _offers(ref, block, schema)[:1]:
                through = schema.end_of(schema.axes[number].of, schema.axes[number].path)
                notes.append(
                    Note(f"{ref}: the values that some row of {through} has, not all of its table", flag=True)
                )
    return notes


def _partners(
    block: Block, schema: Schema, placed: Mapping[int, tuple[int, str]], release: Release
) -> dict[int, tuple[int, str]]:
    """For each partner that a row may have, an axis among those placed that says which rows have it."""
    partners: dict[int, tuple[int, str]] = {}
    for placed_number, (axis, name) in placed.items():
        path = next(column.path for column in schema.axes[axis].columns if column.name == name)
        base = path[: len(path) - len(block.columns[placed_number].path)]
        for number, ref in enumerate(block.columns):
            if ref.partner and number not in partners:
                column = partner_column((*base, *ref.path), ref.column, axis, release)
                partners |= {} if column is None else {number: (axis, column)}
    return partners


def _own(where: Condition, placed: dict[int, tuple[int, str]]) -> dict[int, list[Predicate]]:
    """Conditions that lie on one axis; others do not narrow a domain."""
    by_axis: dict[int, list[Predicate]] = {}
    for operand in conjuncts(where):
        if isinstance(operand, Predicate) and operand.expression.columns <= set(placed):
            by_axis.setdefault(_axis(operand.expression, placed), []).append(operand)
    return by_axis


def _axis(expression: Expression, placed: dict[int, tuple[int, str]]) -> int:
    axes = {placed[c][0] for c in expression.columns if c in placed}
    if len(axes) > 1:
        raise NotSupportedError(
            "an expression compares columns of two axes", hint="compare each with a constant"
        )
    return axes.pop() if axes else next(iter(placed.values()), (0, ""))[0]


def _in_domain(block: Block, release: Release, schema: Schema, axis: int) -> Predicate:
    """Values of the domain and NULL; no partner only under LEFT JOIN, or for its foreign key; never out of domain."""
    path = release.axes[axis].path
    keys = (ref for ref in block.columns if (*ref.path, ref.column) == path)
    through = path in block.joins or any(schema.dangles(block.root, key) for key in keys)
    missing = ", 2" if through and not has_partner(block, release.axes[axis]) else ""
    return Predicate(Expression(f"dp_kind IN (0, 1{missing})", frozenset()))


def known_values(
    known: CatalogValue, block: Block, plan: ViewPlan, release: Release, schema: Schema
) -> tuple[str, list[Any]]:
    """MIN, MAX or COUNT(DISTINCT) of an axis expression, for each group of its axis.

    Args:
        known: what is asked.
        block: its block.
        plan: the block's plan.
        release: an open release.
        schema: its star.

    Returns:
        (DuckDB type, one value for each group of the plan in row-major order of the plan's shape).

    Raises:
        NotSupportedError: the expression is not over one axis.
    """
    position, question = known_query(known, block, plan, schema)
    if known.function == "count":
        _check_heeded(known, block, question)
    values = leaf_values(release, question)
    keys = [f"({values.sql(group, grouped=True)}) AS k{j}" for j, group in enumerate(question.groups)]
    call = FUNCTIONS[known.function].format(f"({known.expression.sql})")
    source = (
        f"(SELECT {', '.join(['kind AS dp_kind', *question.fields, *values.fields])} FROM {values.source})"
    )
    tests = [*question.filters, _in_domain(block, release, schema, question.axis)]
    where = " AND ".join(dict.fromkeys(map(values.truth, tests)))
    by = f" GROUP BY {', '.join(str(j + 1) for j in range(len(keys)))}" if keys else ""
    sql = f"SELECT {', '.join([*keys, f'{call} AS v'])} FROM {source} WHERE {where}{by}"
    try:
        answer = run(release, sql)
    except duckdb.Error as error:
        raise bad_expression(error) from error
    return answer.types[-1], _spread({row[:-1]: row[-1] for row in answer.rows}, plan, position)


def _check_heeded(known: CatalogValue, block: Block, question: AxisQuery) -> None:
    """Refuse a COUNT(DISTINCT) whose condition or group is not over the axis that is counted.

    Raises:
        NotSupportedError: it is: the catalog lists values, and does not say which of them occur together.
    """
    heeded = {predicate.expression for predicate in question.filters} | set(question.groups)
    tests = [
        predicate.expression for predicate in predicates(block.where)
        if not all(block.columns[n].partner for n in predicate.expression.columns)
    ]  # fmt: skip
    other = next((each for each in (*tests, *block.groups) if each not in heeded), None)
    if other is not None:
        words, try_this = known.expression.words(), f"SELECT COUNT(DISTINCT ..) FROM {block.root}"
        raise NotSupportedError(
            f"COUNT(DISTINCT {words}) is how many values the catalog lists, not how many occur with "
            f"{other.words()}",
            hint=f"leave that out, or GROUP BY {words} and see whose COUNT(*) is above its noise",
        ).at("SELECT", known.expression.span, try_this)


def known_query(
    form: CatalogValue, block: Block, plan: ViewPlan, schema: Schema
) -> tuple[int | None, AxisQuery]:
    """The query of the axis that holds an expression.

    Returns:
        (position of the axis in the plan, the plan's query of it); where the plan has no such axis, None and a query
        without filters and groups.

    Raises:
        NotSupportedError: the expression is not over one axis.
    """
    everywhere = [
        {(i, c.name) for i, c in schema.axis_columns(ref) or schema.anywhere(ref, block.root)}
        for ref in (block.columns[n] for n in sorted(form.expression.columns))
    ]
    common = set.intersection(*[{i for i, _ in offers} for offers in everywhere]) if everywhere else set()
    if not common:
        raise not_an_axis(form, block, schema)
    inside = [p for p, axis in enumerate(plan.view.axes) if axis in common]
    axis = plan.view.axes[inside[0]] if inside else min(common)
    names = {
        n: min(name for i, name in offers if i == axis)
        for n, offers in zip(sorted(form.expression.columns), everywhere, strict=True)
    }
    if not inside:
        return None, AxisQuery(axis, tuple(names.items()))
    question = plan.questions[inside[0]]
    columns = tuple(sorted({**dict(question.columns), **names}.items()))
    return inside[0], replace(question, columns=columns, classes=(), factors=())


def _spread(by_group: dict[tuple[Any, ...], Any], plan: ViewPlan, position: int | None) -> list[Any]:
    """Values by group of one axis -> values by group of the block."""
    if position is None:
        return [next(iter(by_group.values()), None)] * max(1, prod(plan.shape))
    keys = plan.cells[position].keys
    return [by_group.get(keys[index[position]]) for index in np.ndindex(plan.shape)]


def not_an_axis(known: CatalogValue, block: Block, schema: Schema) -> NotSupportedError:
    """The refusal of MIN, MAX, MEDIAN or COUNT(DISTINCT) of what is not an axis."""
    columns = ", ".join(str(block.columns[n]) for n in sorted(known.expression.columns)) or "a constant"
    name = {"count": "COUNT(DISTINCT ..)", "quantile": "a quantile"}.get(
        known.function, known.function.upper()
    )
    try_this = schema.example(block.root)
    return NotSupportedError(
        f"{name} of {columns} would depend on single rows: it is not an axis of the release",
        hint=f"try {try_this}",
    ).at("SELECT", known.expression.span, try_this)


def key_notes(block: Block, plans: Sequence[ViewPlan], release: Release, schema: Schema) -> list[Note]:
    """Foreign keys of which a block asks more than which row of the dimension they name.

    Args:
        block: the block.
        plans: the plans that answer it.
        release: an open release.
        schema: its star.
    """
    queries = [(query, [*query.groups, *query.factors]) for plan in plans for query in plan.questions]
    queries += [
        (known_query(known, block, plans[0], schema)[1], [known.expression])
        for known in catalog_values(block)
    ]
    notes = (note for query, values in queries for note in _dangling(query, values, block, release, schema))
    return list(dict.fromkeys(notes))


def _dangling(
    query: AxisQuery, values: Sequence[Expression], block: Block, release: Release, schema: Schema
) -> Iterator[Note]:
    """Foreign keys of an axis query that may dangle, and whose rows then count as rows without a key."""
    axis = release.axes[query.axis]
    for number, name in query.columns:
        ref, column = block.columns[number], next(c for c in axis.columns if c.name == name)
        if not schema.dangles(block.root, ref) or requires_partner(block, (*ref.path, ref.column)):
            continue
        if column.table == ref.table and axis.path != (*column.path, column.column):
            continue  # rows of that table are public: their axis has the key as it stands there
        if any(not p.negated and _picks_keys(p, query, release) for p in query.filters):
            continue  # no row in MISSING is counted
        tests = [p for p in (*query.filters, *query.classes) if number in p.expression.columns]
        compared = all(_picks_keys(test, query, release) for test in tests)
        if not compared or any(number in value.columns for value in values):
            key, dimension = f"{ref.table}.{ref.column}", schema.twin(ref).table
            yield Note(f"{key}: a key that no {dimension} has counts as NULL", flag=True)


def _picks_keys(predicate: Predicate, query: AxisQuery, release: Release) -> bool:
    """True if an expression picks keys that the dimension has: true for none that dangles."""
    expression = predicate.expression
    if not expression.choices:
        return False
    (number,) = expression.columns
    source = f"(SELECT kind AS dp_kind, {', '.join(query.fields)} FROM {leaf_values(release, query).source})"
    truth = truth_sql(Predicate(expression))
    sql = f"SELECT COUNT(DISTINCT dp_c{number}) FROM {source} WHERE dp_kind = 0 AND {truth}"
    return bool(release.kept(sql, lambda: run(release, sql).rows[0][0]) == expression.choices)


def catalog_notes(block: Block, plan: ViewPlan, release: Release, schema: Schema) -> list[Note]:
    """Columns whose values the catalog lists or counts, while rows may have others.

    Args:
        block: the block.
        plan: its first plan.
        release: an open release.
        schema: its star.
    """
    counted = {
        known_query(known, block, plan, schema)[1].axis
        for known in catalog_values(block)
        if known.function in FUNCTIONS
    }
    grouped = {query.axis for query in plan.questions if query.groups and not plan.view.statistics}
    notes = []
    for number in sorted(counted | grouped):
        axis = release.axes[number]
        if axis.other_leaf is not None and not cannot_leave(axis):
            column, keys = f"{axis.table}.{axis.columns[0].column}", key_list(release, number)
            text = f"{column}: values outside the catalog's domain are left out"
            if keys is not None:
                text = keys.among
            notes.append(Note(text, flag=number in counted))  # a list shows what it holds, a number does not
    return list(dict.fromkeys(notes))


def catalog_values(block: Block) -> list[CatalogValue]:
    subjects = (value.subject for value in block.values)
    return list(dict.fromkeys(subject for subject in subjects if isinstance(subject, CatalogValue)))
