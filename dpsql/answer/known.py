"""Values of an axis column itself that the catalog alone says: domain lists, MIN, MAX and COUNT(DISTINCT). No noise."""

from __future__ import annotations

from typing import Any

import duckdb

from dpsql.answer.block import (
    Block,
    ColumnRef,
    Condition,
    Every,
    Expression,
    Known,
    Predicate,
    every,
    predicates,
)
from dpsql.answer.leafsets import (
    AxisQuestion,
    ask_axis,
    axis_source,
    bad_expression,
    quoted,
    truth_sql,
)
from dpsql.answer.plan import Plan, View, no_view
from dpsql.answer.run import run
from dpsql.answer.schema import Schema
from dpsql.errors import NotSupportedError, NoViewError
from dpsql.release import Release

FUNCTIONS = {"min": "MIN({})", "max": "MAX({})", "count": "COUNT(DISTINCT {})"}


def catalog_plan(block: Block, release: Release, schema: Schema) -> Plan:
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
    placed = placements(block, schema)
    for value in block.values:
        if isinstance(value, Known) and any(c not in placed for c in value.expression.columns):
            raise not_an_axis(value, block)
    missing = [str(ref) for i, ref in enumerate(block.columns) if i not in placed]
    people = () if schema.unit is None else schema.unit.columns.get(block.root.lower(), ())
    named = next((ref for i, ref in enumerate(block.columns) if i not in placed and ref in people), None)
    if named is not None:
        raise _no_list_of_people(named, block)
    if missing:
        raise no_view(block, [f"the catalog publishes no domain of {', '.join(missing)}"])
    axes = tuple(dict.fromkeys(axis for axis, _ in placed.values()))
    own = _own(block.where, placed)
    questions = []
    for axis in axes:
        groups = tuple(g for g in block.groups if _axis(g, placed) == axis)
        filters = (*own.get(axis, ()), _in_domain(block, release, axis))
        used = {c for e in [*groups, *(p.expression for p in filters)] for c in e.columns}
        columns = tuple((c, placed[c][1]) for c in sorted(used))
        questions.append(AxisQuestion(axis, columns, filters, groups))
    cells = tuple(ask_axis(release, question) for question in questions)
    view = View("the catalog", block.root, axes, {}, 0)
    return Plan(view, tuple(questions), cells, every([]), tuple(() for _ in axes))


def _no_list_of_people(key: ColumnRef, block: Block) -> NoViewError:
    """The refusal of a DISTINCT or a GROUP BY of the key that names people."""
    counted = f"COUNT(DISTINCT {key.column})"
    return NoViewError(
        f"{key} names single people, and no answer lists them",
        hint=f"{counted} counts each of them once, and takes the same WHERE and GROUP BY",
    ).at("FROM", block.span, f"SELECT {counted} FROM {block.root}")


def placements(block: Block, schema: Schema) -> dict[int, tuple[int, str]]:
    """For each placeholder an axis of the release that holds its column, few axes preferred."""
    found: dict[int, tuple[int, str]] = {}
    chosen: list[int] = []
    for number, ref in enumerate(block.columns):
        offers = schema.axis_columns(ref) or schema.anywhere(ref)
        offers = sorted(offers, key=lambda offer: offer[0] not in chosen)
        if offers:
            found[number] = (offers[0][0], offers[0][1].name)
            chosen.append(offers[0][0])
    return found


def _own(where: Condition, placed: dict[int, tuple[int, str]]) -> dict[int, list[Predicate]]:
    """Conditions that lie on one axis; others do not narrow a domain."""
    own: dict[int, list[Predicate]] = {}
    for part in where.parts if isinstance(where, Every) else (where,):
        inside = list(predicates(part))
        if isinstance(part, Predicate) and inside:
            own.setdefault(_axis(part.expression, placed), []).append(part)
    return own


def _axis(expression: Expression, placed: dict[int, tuple[int, str]]) -> int:
    axes = {placed[c][0] for c in expression.columns if c in placed}
    if len(axes) > 1:
        raise NotSupportedError(
            "an expression compares columns of two axes", hint="compare each with a constant"
        )
    return axes.pop() if axes else next(iter(placed.values()), (0, ""))[0]


def _in_domain(block: Block, release: Release, axis: int) -> Predicate:
    """Values of the domain and NULL; no partner only under LEFT JOIN; never out of domain."""
    path = release.axes[axis].path
    left = bool(path) and any(join.path == path for join in block.joins) and not block.inner(path)
    return Predicate(Expression(f"dp_kind IN (0, 1{', 2' if left else ''})", frozenset()))


def known_values(
    known: Known, block: Block, plan: Plan, release: Release, schema: Schema
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
    position, question = _question(known, block, plan, schema)
    keys = [f"({group.sql}) AS k{j}" for j, group in enumerate(question.groups)]
    call = FUNCTIONS[known.function].format(f"({known.expression.sql})")
    names = [f"{quoted(name)} AS dp_c{i}" for i, name in question.columns]
    table = axis_source(question, release.axes[question.axis])
    source = f"(SELECT {', '.join(['kind AS dp_kind', *names])} FROM {table})"
    where = " AND ".join([*(truth_sql(p) for p in question.filters), "dp_kind = 0"])
    by = f" GROUP BY {', '.join(str(j + 1) for j in range(len(keys)))}" if keys else ""
    sql = f"SELECT {', '.join([*keys, f'{call} AS v'])} FROM {source} WHERE {where}{by}"
    try:
        answer = run(release, sql)
    except duckdb.Error as error:
        raise bad_expression(error) from error
    return answer.types[-1], _spread({row[:-1]: row[-1] for row in answer.rows}, plan, position)


def _question(known: Known, block: Block, plan: Plan, schema: Schema) -> tuple[int | None, AxisQuestion]:
    """The axis that holds the expression: one of the plan's where possible, with its filters and groups."""
    everywhere = [
        {(i, c.name) for i, c in schema.axis_columns(block.columns[n]) or schema.anywhere(block.columns[n])}
        for n in sorted(known.expression.columns)
    ]
    common = set.intersection(*[{i for i, _ in offers} for offers in everywhere]) if everywhere else set()
    if not common:
        raise not_an_axis(known, block)
    inside = [p for p, axis in enumerate(plan.view.axes) if axis in common]
    axis = plan.view.axes[inside[0]] if inside else min(common)
    names = {
        n: next(name for i, name in offers if i == axis)
        for n, offers in zip(sorted(known.expression.columns), everywhere, strict=True)
    }
    if not inside:
        return None, AxisQuestion(axis, tuple(names.items()))
    question = plan.questions[inside[0]]
    columns = tuple(sorted({**dict(question.columns), **names}.items()))
    return inside[0], AxisQuestion(axis, columns, question.filters, question.groups)


def _spread(found: dict[tuple[Any, ...], Any], plan: Plan, position: int | None) -> list[Any]:
    """Values by group of one axis -> values by group of the block."""
    import itertools

    if position is None:
        return [next(iter(found.values()), None)] * max(1, _size(plan))
    keys = plan.cells[position].keys
    ranges = [range(size) for size in plan.shape]
    return [found.get(keys[index[position]]) for index in itertools.product(*ranges)]


def _size(plan: Plan) -> int:
    size = 1
    for each in plan.shape:
        size *= each
    return size


def not_an_axis(known: Known, block: Block) -> NotSupportedError:
    """The refusal of MIN, MAX, MEDIAN or COUNT(DISTINCT) of what is not an axis."""
    columns = ", ".join(str(block.columns[n]) for n in sorted(known.expression.columns)) or "a constant"
    name = {"count": "COUNT(DISTINCT ..)", "quantile": "a quantile"}.get(
        known.function, known.function.upper()
    )
    try_this = f"SELECT COUNT(*) FROM {block.root}"
    return NotSupportedError(
        f"{name} of {columns} would follow single rows: it is no axis of the release", hint=f"try {try_this}"
    ).at("SELECT", known.expression.span, try_this)
