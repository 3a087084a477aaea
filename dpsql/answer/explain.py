"""A statement's plan in words: numbered stages, the DuckDB statements last.

**Privacy**: post-processing of a release.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dpsql.answer.answered import AnsweredTerms, runs
from dpsql.answer.block import Block
from dpsql.answer.errorfunctions import DEFAULT_LEVEL, STDERR
from dpsql.answer.leafsets import AxisCells, masks
from dpsql.answer.relation import Relation
from dpsql.answer.terms import Condition, Every, Predicate, Some
from dpsql.answer.uncertainty.composite import Composite
from dpsql.answer.uncertainty.forms import is_summed
from dpsql.answer.uncertainty.partial_bins import Interpolated, interpolated
from dpsql.answer.unshown import listed_words
from dpsql.release import Release


def condition_words(condition: Condition) -> str:
    """A condition in words."""
    if isinstance(condition, Predicate):
        text = condition.expression.words()
        return f"not true: {text}" if condition.negated else text
    if isinstance(condition, (Every, Some)):
        word = " and " if isinstance(condition, Every) else " or "
        return "(" + word.join(condition_words(operand) for operand in condition.parts) + ")"
    return "every row" if condition.value else "no row"


def explain_relation(number: int, relation: Relation, release: Release) -> tuple[list[str], list[str]]:
    """The stages of one block.

    Args:
        number: the block's number.
        relation: its answer.
        release: the release.

    Returns:
        Lines in words, and the DuckDB statements that ran.
    """
    block = relation.block
    joins = ", ".join(".".join(path) for path in block.joins)
    lines = [f"block {number}: rows of {block.root}" + (f", joined along {joins}" if joins else "")]
    if block.columns:
        lines.append(f"condition: {condition_words(block.where)}")
    if block.groups:
        lines.append(f"grouped by {', '.join(group.words() for group in block.groups)}")
    lines += [note.text for note in relation.notes]
    for answered in relation.answered:
        lines += _plan_words(answered, block, release)
    return lines, [lookup.sql for answered in relation.answered for lookup in answered.lookups]


def _plan_words(answered: AnsweredTerms, block: Block, release: Release) -> list[str]:
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
    lines += listed_words(release, view)
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
