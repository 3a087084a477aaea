"""Notes on values that an axis does not tell apart from NULL, or does not list.

A foreign key that names no row of its dimension dangles. Its rows lie in the MISSING leaf of the dimension's axis,
together with rows whose key is NULL, and there the key is NULL to every expression. That is right where a condition
picks keys that the dimension has, `doctor_id IN (3, 4)`, and wrong for `doctor_id <> 3`, which is true of a key that
dangles and unknown of NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsql.executor.run import run
from dpsql.intervals.forms import CatalogValue
from dpsql.planner.axis_query import key_list
from dpsql.planner.block import Block
from dpsql.planner.domain_values import FUNCTIONS, known_query
from dpsql.planner.leaf_values import AxisQuery, leaf_values, truth_sql
from dpsql.planner.notes import Note
from dpsql.planner.plan import ViewPlan, cannot_leave, requires_partner
from dpsql.planner.schema import Schema
from dpsql.planner.terms import Expression, Predicate
from dpsql.release import Release


def has_dangling_keys(block: Block, schema: Schema) -> bool:
    """True if a column of a block is a foreign key that may name no row; nothing else has a note."""
    return any(schema.dangles(block.root, ref) for ref in block.columns)


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
        (known_query(known, block, plans[0], schema)[1], [known.expression]) for known in _known(block)
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
        for known in _known(block)
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
                text = f"{column}: of the {keys.keys} keys shown; {keys.missing}"
            notes.append(Note(text, flag=number in counted))  # a list shows what it holds, a number does not
    return list(dict.fromkeys(notes))


def _known(block: Block) -> list[CatalogValue]:
    subjects = (value.subject for value in block.values)
    return list(dict.fromkeys(subject for subject in subjects if isinstance(subject, CatalogValue)))
