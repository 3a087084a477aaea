"""Predicates and group expressions of one axis, evaluated on the axis table -> coverage of leaves.

DuckDB evaluates them, one statement an axis. Each atom of the axis table gets its group key, the truth of every
predicate and its weight in its leaf; atoms with equal group and equal truths are added up, so what comes back is the
coverage of each leaf by each (group, truths) class.

Asking DuckDB about an axis of a few hundred atoms takes most of a millisecond, nearly all of it overhead. A filter
that is a comparison of an INTEGER-like, DECIMAL or DATE column with a constant, as most filters of a dashboard are,
means the same in numpy; all else is left to DuckDB, whose semantics the SQL has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias, cast

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.catalog.base import GRAIN_MICROSECONDS
from dpsql.executor.run import bad_expression, run
from dpsql.matrices.model import TABLE
from dpsql.planner.leaf_values import (
    PLACEHOLDER,
    UNKNOWN,
    AxisQuery,
    bounds_of,
    cell_column,
    has_runs,
    leaf_values,
    numpy_constant,
)
from dpsql.planner.schema import Expression, Predicate
from dpsql.release import AxisMeta, Release
from dpsql.release.format import OTHER, KeyListMeta
from dpsql.row_expressions import identifier as quoted


def cells_that_hold(release: Release, question: AxisQuery) -> AxisCells | None:
    """The cells of the atoms that meet all filters.

    On a long axis in order of its column one atom is compared of each run of leaves between two constants.

    Args:
        release: an open release.
        question: filters of an atomic axis.

    Returns:
        None where a filter is more than a comparison.
    """
    compared = [each for predicate in question.filters for each in predicate.expression.comparisons]
    if not all(predicate.expression.comparisons for predicate in question.filters):
        return None
    numpy_columns = {number: cell_column(release, question.axis, name) for number, name in question.columns}
    constants = {each: numpy_constant(numpy_columns[each.column], each) for each in compared}
    columns = {number: column for number, column in numpy_columns.items() if column is not None}
    if None in constants.values():
        return None
    atoms, meta = release.atoms(question.axis), release.axes[question.axis]
    edges, at = None, cast(Any, slice(None))
    if has_runs(release, question.axis) and all(column.rising for column in columns.values()):
        ends = [
            np.searchsorted(columns[each.column].values[: columns[each.column].rising], constants[each], side)
            for each in compared for side in ("left", "right")
        ]  # fmt: skip
        edges = run_edges(meta, [*ends, *(column.rising for column in columns.values())])
        at = edges[:-1]
    leaf, weight = atoms["leaf"][at], atoms["weight"][at]
    hold = np.ones(len(leaf), np.bool_) if not question.inner else leaf != meta.missing_leaf
    for predicate in question.filters:
        truth = np.ones(len(hold), np.bool_)
        for each in predicate.expression.comparisons:
            column = columns[each.column]
            truth &= each.operator(column.values[at], constants[each]) & column.known[at]
        hold &= ~truth if predicate.negated else truth
    cells = _covered(meta.leaves, np.asarray(leaf[hold], np.int64), np.asarray(weight[hold], np.float64))
    return replace(cells, edges=edges)


def run_edges(axis: AxisMeta, ends: Iterable[Any]) -> IntArray:
    """Edges of runs of leaves that end at some leaves, and on both sides of each special leaf."""
    special = special_leaves(axis)
    return np.unique(np.array([0, axis.leaves, *special, *(leaf + 1 for leaf in special), *ends], np.int64))


MOST_UNDECIDED = 6
"""Conditions of one axis whose truths are all told apart in the leaf of unshown keys."""
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
MANY_ATOMS = 4096
NEAR = 1e-9
"""Coverages this near to 0 or 1 are 0 or 1: weights are sums of floats."""


class AtomFactor(NamedTuple):
    """Values of an expression over the atoms of each cell, arrays of shape (c,); NULL is 0.

    Args:
        total: added up, each times the atom's weight in its leaf.
        low, high: the least and the largest.
    """

    total: FloatArray
    low: FloatArray
    high: FloatArray


class WeightedValues(NamedTuple):
    """Leaf values multiplied by a factor expression.

    Args:
        truths: the truth patterns taken, None for all.
        factor: which of the axis's factors.
    """

    truths: frozenset[int] | None
    factor: int


Taken: TypeAlias = frozenset[int] | WeightedValues | None
"""What is taken of an axis: some truth patterns, or all."""


@dataclass(frozen=True, eq=False)
class AxisCells:
    """Coverage of leaves by classes, sparse.

    Args:
        leaves: number of leaves of the axis.
        keys: group keys in catalog order, one tuple each; a single () without groups.
        types: DuckDB type of each key.
        group, truths, leaf: indices, shape (c,); truths index `patterns`, leaves are the first of each run.
        coverage: share of the leaf, shape (c,).
        patterns: distinct truths of the class predicates.
        factors: what rows are multiplied by.
        whole: whether masks take cut leaves whole, and weighed ones at the most that a row counts for, or leave them
            out, and take weighed ones at the least; None by the share that is taken.
        open_leaf: the leaf of values outside of the domain, where conditions may hold for some of them.
        edges: where runs of leaves begin, and the number of leaves, on a long axis; None where leaves stand alone.
    """

    leaves: int
    keys: tuple[tuple[Any, ...], ...]
    types: tuple[str, ...]
    group: IntArray
    truths: IntArray
    leaf: IntArray
    coverage: FloatArray
    patterns: tuple[tuple[bool, ...], ...]
    factors: tuple[AtomFactor, ...] = ()
    whole: bool | None = None
    open_leaf: int | None = None
    edges: IntArray | None = None

    def run_of(self, first: npt.ArrayLike) -> IntArray:
        """The runs that begin with some leaves."""
        return np.asarray(first if self.edges is None else np.searchsorted(self.edges, first), np.int64)

    @cached_property
    def widths(self) -> IntArray:
        """Leaves of each run."""
        return np.ones(self.leaves, np.int64) if self.edges is None else np.diff(self.edges)

    def place(self, run: IntArray) -> IntArray:
        """The first leaf of some runs."""
        return run if self.edges is None else self.edges[run]

    @property
    def by_leaf(self) -> AxisCells:
        """The same with one cell for each leaf."""
        if self.edges is None:
            return self
        widths = self.widths[self.run_of(self.leaf)]
        at = np.repeat(np.arange(len(widths)), widths)
        leaf = np.arange(len(at)) - np.repeat(np.cumsum(widths) - widths, widths) + self.leaf[at]
        return replace(
            self, group=self.group[at], truths=self.truths[at], leaf=leaf, coverage=self.coverage[at], edges=None
        )  # fmt: skip

    @cached_property
    def cut(self) -> bool:
        """True if a bin is cut by a predicate or a group."""
        known = slice(None) if self.open_leaf is None else self.leaf != self.open_leaf
        return bool(np.any(self.coverage[known] < 1.0))

    @property
    def uncertain(self) -> bool:
        """True if a bin is cut, or conditions may hold for some values outside of the domain."""
        return self.cut or self.open_leaf is not None


def whole_axis(leaves: int) -> AxisCells:
    """All leaves, fully."""
    edges = np.array([0, leaves]) if leaves > TABLE else None
    first = np.arange(leaves if edges is None else 1)
    zeros, ones = 0 * first, np.ones(len(first))
    return AxisCells(leaves, ((),), (), zeros, zeros, first, ones, ((),), edges=edges)


def axis_sql(question: AxisQuery, release: Release, many: bool = False, runs: bool = False) -> str:
    """The DuckDB statement that evaluates an axis question: atoms that hold, or coverage by group and leaf.

    Args:
        question: the question.
        release: an open release.
        many: whether there are so many atoms that those that hold are better added up where they are.
        runs: whether leaves in a row that are alike come as one: keys, truths, first leaf, coverage, stop, filters.
    """
    values = leaf_values(release, question)
    inner = ["atom", "leaf", "weight", "kind AS dp_kind", *question.fields, *values.fields]
    keys = {f"k{j}": f"({values.sql(group, grouped=True)})" for j, group in enumerate(question.groups)}
    truths = {f"p{j}": values.truth(each) for j, each in enumerate(question.classes)}
    named = (keys | truths).items()
    factors = [
        f"CASE WHEN dp_kind <> 3 THEN ({values.sql(each, grouped=True)}) END AS x{j}"
        for j, each in enumerate(question.factors)
    ]
    wanted = [values.truth(each) for each in question.filters] + (["dp_kind <> 2"] if question.inner else [])
    where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
    source = f"(SELECT {', '.join(inner)} FROM {values.source})"
    if runs:
        # filters keep values away that an expression does not take
        held = f"({' AND '.join(wanted) or 'TRUE'})"
        fields = [f"CASE WHEN {held} THEN {text} END AS {name}" for name, text in named]
        rows = f"SELECT {', '.join([*fields, f'{held} AS held', 'dp_kind', 'leaf'])} FROM {source}"
        alike = f"row({', '.join([*keys, *truths, 'held', 'dp_kind'])})"
        # one thread reads rows as the file has them (`has_runs`): sorting them again takes twice as long as all else
        beside = f"SELECT *, lag(leaf) OVER () AS before, lag({alike}) OVER () AS previous FROM ({rows})"
        starts = f"before IS NULL OR leaf <> before + 1 OR {alike} IS DISTINCT FROM previous"
        stop = f"COALESCE(lead(before) OVER () + 1, {release.axes[question.axis].leaves})"
        return f"SELECT {', '.join([*keys, *truths, 'leaf', '1.0', stop, 'held'])} FROM ({beside}) WHERE {starts}"
    if not keys and not truths and not factors:
        if not many:
            return (
                f"SELECT leaf, weight FROM {source}{where}"  # added up in numpy: half the time of a GROUP BY
            )
        return f"SELECT leaf, SUM(weight) FROM {source}{where} GROUP BY leaf"
    fields = [*(f"{text} AS {name}" for name, text in named), *factors, "leaf", "weight", "atom"]
    rows = f"SELECT {', '.join(fields)} FROM {source}{where}"
    by = ", ".join([*keys, *truths, "leaf"])
    aggregates = ["SUM(weight) AS coverage", "MIN(atom) AS first"]
    for j in range(len(factors)):
        aggregates += [f"CAST({call} AS DOUBLE)" for call in (f"COALESCE(SUM(x{j} * weight), 0)",
                  f"MIN(COALESCE(x{j}, 0))", f"MAX(COALESCE(x{j}, 0))")]  # fmt: skip
    return f"SELECT {', '.join([by, *aggregates])} FROM ({rows}) GROUP BY {by} ORDER BY first"


def ask_axis(release: Release, question: AxisQuery) -> AxisCells:
    """Evaluate an axis question.

    Args:
        release: an open release.
        question: what to evaluate.

    Returns:
        The cells, on a long axis in runs of leaves.

    Raises:
        DataError: DuckDB cannot evaluate an expression on the axis (a bad cast, a division by zero).
    """
    leaves = release.axes[question.axis].leaves
    if question.whole:
        return release.kept(("whole", leaves), lambda: whole_axis(leaves))
    if question.plain and release.axes[question.axis].atomic and leaves <= MANY_ATOMS:
        # numpy compares so few atoms in the time that it takes to look it up
        return _asked(release, question, leaves)
    return release.kept(question, lambda: _asked(release, question, leaves))  # it comes back with every chart


def _asked(release: Release, question: AxisQuery, leaves: int) -> AxisCells:
    """The cells, with what a condition or a group may mean for keys not shown and for values outside of the domain."""
    cells, axis = _ask(release, question, leaves), release.axes[question.axis]
    if not has_unlisted(release, question.axis):
        return cells
    bounded, first = is_bounded(release, question.axis), axis.columns[0].name
    names = [{n for number, n in question.columns if number in g.columns} for g in question.groups]
    # values beyond the bounds then share at most the groups at the ends, as their months and their tens do
    rising = [
        bounded
        and read == {first}
        and each.monotone
        and kind != "BOOLEAN"
        and CHOICE.search(each.sql) is None
        for each, kind, read in zip(question.groups, cells.types, names, strict=True)
    ]
    made = []
    for j, (each, read) in enumerate(zip(question.groups, names, strict=True)):
        bare = each.sql == "leaf" or (PLACEHOLDER.fullmatch(each.sql) and (read == {first} or not bounded))
        apart = bare or (rising[j] and _ends_apart(each, question.axis, release))
        if read and not apart and not decides(Predicate(each), question, release):
            made.append(j)
    if not (question.filters or question.classes or made):
        return cells
    undecided = [not decides(predicate, question, release) for predicate in question.filters]
    open_classes = {
        j: each for j, each in enumerate(question.classes) if not decides(each, question, release)
    }
    if not (any(undecided) or open_classes or made) or never_together(question.filters, question, release):
        return cells
    decided = [f for f, is_open in zip(question.filters, undecided, strict=True) if not is_open]
    alone = replace(question, filters=(*decided, _UNSHOWN), factors=())
    unshown = release.kept(alone, lambda: _ask(release, alone, leaves))  # the same whatever is compared with
    together = [
        truths for truths in _open_truths(open_classes)
        if not never_together(
            [*question.filters, *(question.classes[j] for j, met in truths.items() if met)], question, release
        )
    ]  # fmt: skip
    ordinary = ~np.isin(cells.leaf, special_leaves(axis))
    within, listed = (set(cells.group[at].tolist()) for at in (cells.leaf != axis.other_leaf, ordinary))
    if made and all(rising[j] for j in made):  # nothing beyond the bounds is between two others
        ends = cells.leaf[ordinary].min(initial=leaves), cells.leaf[ordinary].max(initial=0)
        within = set(cells.group[np.isin(cells.leaf, ends)].tolist())
    return _uncertain(cells, unshown, axis.other_leaf, together, (made, within, listed), any(undecided))


def _ends_apart(group: Expression, number: int, release: Release) -> bool:
    """True if the values right beyond both bounds of an axis are in other groups than the bounds: no month is cut."""
    axis = release.axes[number]
    column = axis.columns[0]
    low, high = (quoted(each.name) for each in bounds_of(axis, column.name))
    tables = release.catalog.tables
    spec = tables[column.table].columns.get(column.column) if column.table in tables else None
    step = "INTERVAL 1 DAY" if column.type == "DATE" else "INTERVAL 1 SECOND"
    if column.type.startswith("TIMESTAMP") and spec is not None:
        step = f"to_microseconds({GRAIN_MICROSECONDS[spec.grain]})"
    elif not column.type.startswith(("DATE", "TIMESTAMP")):
        step = f"CAST({Decimal(1).scaleb(-(spec.digits if spec is not None else 0)):f} AS DECIMAL(18, 9))"
    values = f"SELECT MIN({low}) AS lo, MAX({high}) AS hi FROM axis_{number} WHERE kind = 0"
    at = [PLACEHOLDER.sub(f"({value})", group.sql) for value in ("lo", f"lo - {step}", "hi", f"hi + {step}")]
    sql = f"SELECT ({at[0]}) IS DISTINCT FROM ({at[1]}) AND ({at[2]}) IS DISTINCT FROM ({at[3]}) FROM ({values})"
    try:
        return bool(release.kept(sql, lambda: run(release, sql).rows[0][0]))
    except duckdb.Error as error:
        raise bad_expression(error) from error


CHOICE = re.compile(r"\b(CASE|IF|COALESCE)\b")
_UNSHOWN = Predicate(Expression(f"dp_kind = {OTHER}", frozenset()))


def has_unlisted(release: Release, axis: int) -> bool:
    """True if an axis's OTHER holds values that nobody knows: keys not shown, values that the catalog does not list,
    numbers and times beyond its bounds."""
    meta = release.axes[axis]
    return (meta.other_leaf is not None and not cannot_leave(meta)) or key_list(release, axis) is not None


def cannot_leave(axis: AxisMeta) -> bool:
    """True if the type of an axis has no values outside of its domain: no group stands for them."""
    return axis.other_leaf is not None and {column.type for column in axis.columns[:1]} == {"BOOLEAN"}


def is_bounded(release: Release, axis: int) -> bool:
    """True if an axis's OTHER holds numbers or times beyond its bounds."""
    return release.axes[axis].columns[0].type != "VARCHAR" and key_list(release, axis) is None


def key_list(release: Release, axis: int) -> KeyListMeta | None:
    """The list of keys that an axis is over; None where the catalog says its values."""
    meta = release.axes[axis]
    return release.meta.key_list(meta.table, meta.columns[0].column) if meta.columns else None


def decides(predicate: Predicate, question: AxisQuery, release: Release) -> bool:
    """True if a condition is the same for all keys that are not shown, and for all values beyond the bounds.

    It is where the column is compared for equality with shown keys alone, or asked for NULL; and where numbers or times
    within the bounds are compared such that nothing above and nothing below them is met.
    """
    expression, names = predicate.expression, dict(question.columns)
    if not expression.columns & names.keys():
        return True
    axis = release.axes[question.axis]
    if {names.get(number) for number in expression.columns} != {axis.columns[0].name}:
        return False
    bounded = is_bounded(release, question.axis)
    if expression.comparisons and bounded:
        return never_together([Predicate(expression)], question, release)
    constants = expression.choices or (0 if bounded else expression.barred)
    if expression.of_null or not constants:
        return expression.of_null
    (number,) = expression.columns
    source = f"(SELECT kind AS dp_kind, {', '.join(question.fields)} FROM axis_{question.axis})"
    met = f"({expression.sql})" if expression.choices else f"NOT ({expression.sql})"
    sql = f"SELECT COUNT(DISTINCT dp_c{number}) FROM {source} WHERE dp_kind IN (0, {OTHER}) AND {met}"
    try:
        return bool(release.kept(sql, lambda: run(release, sql).rows[0][0]) == constants)
    except duckdb.Error as error:
        raise bad_expression(error, _texts(release, question)) from error


def never_together(predicates: Sequence[Predicate], question: AxisQuery, release: Release) -> bool:
    """True if no number or time beyond an axis's bounds meets all conditions: some compare it with constants within the
    bounds, and nothing above and nothing below these meets all of those."""
    axis, names = release.axes[question.axis], dict(question.columns)
    if not is_bounded(release, question.axis):
        return False
    first, last = (quoted(column.name) for column in bounds_of(axis, axis.columns[0].name))
    sql = f"SELECT MIN({first}), MAX({last}) FROM axis_{question.axis} WHERE kind = 0"
    low, high = release.kept(sql, lambda: run(release, sql).rows[0])
    within = []
    compared = (each for p in predicates if not p.negated for each in p.expression.comparisons)
    for comparison in (each for each in compared if names.get(each.column) == axis.columns[0].name):
        constant: Any = comparison.constant
        if isinstance(low, datetime) and isinstance(constant, date):
            constant = datetime(constant.year, constant.month, constant.day)
        if isinstance(constant, date) == isinstance(low, date) and low <= constant <= high:
            within.append(comparison.operator)
    return bool(within) and not any(all(compare(side, 0) for compare in within) for side in (-1, 1))


def _uncertain(
    cells: AxisCells, unshown: AxisCells, leaf: int | None, together: Sequence[Mapping[int, bool]],
    groups_made: tuple[Sequence[int], set[int], set[int]], filtered: bool,
) -> AxisCells:  # fmt: skip
    """Cells in which the leaf of unshown keys is taken as far as conditions and groups decide.

    Args:
        cells: as evaluated.
        unshown: that leaf alone, as far as decided filters keep it.
        leaf: its position.
        together: truths that class predicates may have which some unshown keys may meet: those of a key that meets none
            first.
        groups_made: places of group expressions that may take unshown keys for others, the groups in which they may be
            then, and those that listed values are in.
        filtered: whether an open condition filters.
    """
    keep = cells.leaf != leaf
    patterns = {pattern: i for i, pattern in enumerate(cells.patterns)}
    groups, (made, within, listed) = {key: i for i, key in enumerate(cells.keys)}, groups_made
    rows, is_open, fixed = [], False, set(range(len(cells.types))) - set(made)
    for group, truth, coverage in zip(unshown.group, unshown.truths, unshown.coverage, strict=True):
        key, known = unshown.keys[int(group)], unshown.patterns[int(truth)]
        number = groups.setdefault(key, len(groups))
        others = {j for j in within if made and all(cells.keys[j][i] == key[i] for i in fixed)}
        cases = [(at, truths) for at in (number, *(others - {number})) for truths in together]
        # no leaf is in the group of CASE WHEN place = 'west', where its rows are
        away = number in others & listed
        is_open |= filtered or away or len(cases) > 1
        for i, (at, truths) in enumerate(cases):
            pattern = tuple(truths.get(j, met) for j, met in enumerate(known))
            share = UNKNOWN if filtered or i else 1.0 - UNKNOWN * (len(cases) - 1 + away)
            rows.append((at, patterns.setdefault(pattern, len(patterns)), leaf, float(coverage) * share))
    if not is_open:
        return cells
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    indices = [
        np.concatenate([old[keep], new.astype(np.int64)])
        for old, new in zip((cells.group, cells.truths, cells.leaf), columns[:3], strict=True)
    ]
    coverage = np.concatenate([cells.coverage[keep], columns[3].astype(np.float64)])
    none = np.zeros(len(rows))  # a factor is 0 in the leaf of unshown keys
    factors = tuple(
        AtomFactor(*(np.concatenate([v[keep], none]) for v in factor)) for factor in cells.factors
    )
    return replace(
        cells, keys=tuple(groups), group=indices[0], truths=indices[1], leaf=indices[2], coverage=coverage,
        patterns=tuple(patterns), factors=factors, open_leaf=leaf,
    )  # fmt: skip


def _open_truths(classes: Mapping[int, Predicate]) -> list[dict[int, bool]]:
    """The truths that open conditions may have for unshown keys: those of a key that meets none first."""
    expressions = list(dict.fromkeys(each.expression for each in classes.values()))
    met: list[tuple[Expression, ...]] = [(), *((each,) for each in expressions), tuple(expressions)]
    if len(expressions) <= MOST_UNDECIDED:
        met = [each for size in range(len(expressions) + 1) for each in combinations(expressions, size)]
    return [{j: (each.expression in chosen) != each.negated for j, each in classes.items()} for chosen in met]


def _ask(release: Release, question: AxisQuery, leaves: int) -> AxisCells:
    finer = leaf_values(release, question).finer
    if release.axes[question.axis].atomic and question.plain and not finer:
        cells = cells_that_hold(release, question)
        if cells is not None:
            return cells
    try:
        if not (finer or question.factors) and has_runs(release, question.axis):
            answer = run(release, axis_sql(question, release, runs=True))
            rows = [row[:-1] for row in answer.rows if row[-1]]
            cells = _grouped(leaves, question, answer.types[: len(question.groups)], rows)
            ends = (end for row in rows for end in row[-3::2])
            return replace(cells, edges=run_edges(release.axes[question.axis], ends))
        counted = f"SELECT COUNT(*) > {MANY_ATOMS} FROM axis_{question.axis}"
        many = bool(release.kept(counted, lambda: run(release, counted).rows[0][0]))
        answer = run(release, axis_sql(question, release, many))
        return _grouped(leaves, question, answer.types[: len(question.groups)], answer.rows)
    except duckdb.Error as error:
        raise bad_expression(error, _texts(release, question)) from error


def _texts(release: Release, question: AxisQuery) -> list[str]:
    """The columns of text that a question reads."""
    read = {name for _, name in question.columns}
    return [c.column for c in release.axes[question.axis].columns if c.name in read and c.type == "VARCHAR"]


def _grouped(
    leaves: int, question: AxisQuery, types: tuple[str, ...], rows: Sequence[tuple[Any, ...]]
) -> AxisCells:
    """Number groups and truths in order of appearance: rows come in order of their first atom."""
    if not (question.groups or question.classes or question.factors):
        atoms = np.array([row[:2] for row in rows], np.float64).reshape(len(rows), 2)
        return _covered(leaves, atoms[:, 0].astype(np.int64), atoms[:, 1])
    wide = len(question.groups)
    stop = wide + len(question.classes)
    keys: dict[tuple[Any, ...], int] = {}
    patterns: dict[tuple[bool, ...], int] = {}
    group = [keys.setdefault(row[:wide], len(keys)) for row in rows]
    truths = [patterns.setdefault(row[wide:stop], len(patterns)) for row in rows]
    if not wide:
        keys = {(): 0}
    values = np.array([row[stop + 3 :] for row in rows], np.float64).reshape(
        len(rows), len(question.factors), 3
    )
    return AxisCells(
        leaves, tuple(keys), types, np.array(group, np.int64), np.array(truths, np.int64),
        np.array([row[stop] for row in rows], np.int64), _rounded([row[stop + 1] for row in rows]),
        tuple(patterns) or ((False,) * len(question.classes),),
        tuple(AtomFactor(*values[:, j].T) for j in range(len(question.factors))),
    )  # fmt: skip


def _covered(leaves: int, leaf: IntArray, weight: FloatArray) -> AxisCells:
    """The cells of atoms that hold, which are one class."""
    # Several atoms a leaf are added up; else that would take most of a long axis's time.
    if not np.all(leaf[1:] > leaf[:-1]):
        total = np.bincount(leaf, weight, leaves)
        leaf = np.flatnonzero(total).astype(np.int64)
        weight = np.asarray(total[leaf], np.float64)
    zeros = np.zeros(len(leaf), np.int64)
    return AxisCells(leaves, ((),), (), zeros, zeros, leaf, _rounded(weight), ((),))


def _rounded(coverage: Any) -> FloatArray:
    values = np.asarray(coverage, np.float64)
    return np.where(np.abs(values - 1.0) < NEAR, 1.0, values)


def masks(cells: AxisCells, taken: Taken) -> FloatArray:
    """Coverage of every run of leaves by every group, over what is taken.

    Returns:
        Shape (groups, runs), in [0, 1]; where a factor weighs it, times the factor's mean over what is covered.
    """
    if cells.whole is not None:
        shares = replace(cells, whole=None)
        if isinstance(taken, WeightedValues):
            low, high = reach(shares, taken)
            end = np.maximum(np.abs(low), np.abs(high)) if cells.whole else low
            return np.where(np.isfinite(low), end, 0.0)
        return (np.ceil if cells.whole else np.floor)(masks(shares, taken))
    mask = np.zeros((len(cells.keys), len(cells.widths)))
    keep = classes_taken(cells, taken)
    at = cells.group[keep], cells.run_of(cells.leaf[keep])
    if isinstance(taken, WeightedValues):
        np.add.at(mask, at, cells.factors[taken.factor].total[keep])
    else:
        np.add.at(mask, at, cells.coverage[keep])
        mask[at] = _rounded(np.minimum(mask[at], 1.0))  # few of many thousands: the others are 0
    return mask


def classes_taken(cells: AxisCells, taken: Taken) -> Any:
    """Cells whose truth pattern is among the selected ones."""
    truths = taken.truths if isinstance(taken, WeightedValues) else taken
    return slice(None) if truths is None else np.isin(cells.truths, list(truths))


class RowContribution(NamedTuple):
    """The least and the most that one row of each leaf may count for in each group, shape (groups, runs)."""

    low: FloatArray
    high: FloatArray


def reach(cells: AxisCells, taken: WeightedValues) -> RowContribution:
    """Between which values a factor lies in each leaf; 0 is one of them where a part of the leaf is not taken."""
    keep, factor = classes_taken(cells, taken), cells.factors[taken.factor]
    at = cells.group[keep], cells.run_of(cells.leaf[keep])
    low, high = (np.full((len(cells.keys), len(cells.widths)), end) for end in (np.inf, -np.inf))
    np.minimum.at(low, at, factor.low[keep])
    np.maximum.at(high, at, factor.high[keep])
    partly = masks(cells, taken.truths) < 1.0
    return RowContribution(
        np.where(partly, np.minimum(low, 0.0), low), np.where(partly, np.maximum(high, 0.0), high)
    )


def special_leaves(axis: AxisMeta) -> tuple[int, ...]:
    """Positions of the NULL, MISSING and OTHER leaves."""
    return tuple(leaf for leaf in (axis.null_leaf, axis.missing_leaf, axis.other_leaf) if leaf is not None)
