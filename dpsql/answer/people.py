"""Counting each person once: which answers are there, what to publish for the others, and what a reader should know.

A person may be in several cells of an axis that is not her own, so cells do not add up to people. What is stored can
answer some sums of cells and no others (`variance.distinct`); the rest is refused with the view that would answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.answer.block import Block
from dpsql.answer.plan import ViewPlan, conditions
from dpsql.answer.schema import Schema
from dpsql.answer.terms import Term, predicates
from dpsql.errors import NoViewError
from dpsql.release import Release
from dpsql.star.graph import PEOPLE


def not_taken(plan: ViewPlan, terms: Sequence[Term], release: Release) -> str:
    """Why a view's stored numbers do not add up to what is asked; empty where they do."""
    for term in terms:
        statistic = plan.view.statistics[term.measure]
        reading = release.reading(statistic.id)
        if not reading.takes(plan.box_masks(box) for box in plan.boxes_for(term)):
            if not reading.listed:
                return f"{plan.view.name} was bought for a few questions, and what is asked is no sum of them"
            names = ", ".join(release.axes[statistic.axes[at]].name for at in sorted(reading.listed))
            cell_kind = "ranges of whole leaves" if len(reading.listed) == 1 else "single cells"
            return f"{plan.view.name} counts people in {cell_kind} of {names}; who is in two cells would count twice"
    return ""


def asks_people(terms: Sequence[Term]) -> bool:
    """Whether people are counted, each once."""
    return any(term.measure == PEOPLE for term in terms)


def asks_only_people(terms: Sequence[Term]) -> bool:
    """Whether nothing else is asked."""
    return all(term.measure == PEOPLE for term in terms)


def no_people_view(
    block: Block, terms: Sequence[Term], said: Sequence[str], release: Release, schema: Schema
) -> NoViewError:
    """The refusal that shows the view that would answer.

    Args:
        block, terms: what is asked.
        said: why the views there are do not answer.
        release: an open release.
        schema: its star.
    """
    used = {c for group in block.groups for c in group.columns}
    used |= {
        c
        for condition in conditions(block, terms)
        for p in predicates(condition)
        for c in p.expression.columns
    }
    axes = [
        _axis_name(block, column, release) for column in sorted(used) if not block.columns[column].partner
    ]
    axes = list(dict.fromkeys(axes)) or [axis.name for axis in release.axes if axis.of == block.root][:1]
    view = f"people: {{of: {block.root}, axes: [{', '.join(axes)}], measures: [count, {PEOPLE}]}}"
    reasons = dict.fromkeys(line for line in said if not line.endswith(f"lacks {PEOPLE}"))
    why = "; ".join(reasons) or f"no view counts the people of {block.root}"
    hint = f"ask the curator for a view such as `{view}`, its axis cut at the ends you ask; COUNT(*) counts visits"
    error = NoViewError(f"people cannot be counted so: {why}"[:600], hint=hint)
    return error.at("SELECT", block.span, schema.example(block.root))


def _axis_name(block: Block, column: int, release: Release) -> str:
    """A column as a catalog would name its axis, seen from the block's root."""
    ref = block.columns[column]
    for axis in release.axes:
        on_axis = any((c.table, c.column, c.path) == (ref.table, ref.column, ref.path) for c in axis.columns)
        if on_axis and axis.of == block.root:
            return axis.name
    return f"{ref.table}.{ref.column}"


def people_caveat(plan: ViewPlan, terms: Sequence[Term], release: Release) -> str:
    """What does not add up, where people are counted; empty where all does."""
    for term in terms:
        if term.measure == PEOPLE:
            statistic = plan.view.statistics[PEOPLE]
            listed = sorted(release.reading(statistic.id).listed)
            if listed:
                names = " and ".join(release.axes[statistic.axes[at]].name for at in listed)
                unit = release.catalog.privacy.unit.table
                return f"each unit of {unit} counts once: numbers of different {names} do not add up to that of all"
    return ""
