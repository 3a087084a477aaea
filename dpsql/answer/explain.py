"""A plan in words: numbered stages, the DuckDB statement last."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpsql.answer.answered import Answered, terms_of
from dpsql.answer.block import Block, Condition, Every, Linear, Predicate, Ratio, Some, in_words
from dpsql.answer.cuts import Interpolated, interpolated
from dpsql.answer.leafsets import AxisCells, masks
from dpsql.answer.nodes import runs
from dpsql.answer.relation import Relation
from dpsql.release import Release


def condition_words(condition: Condition, block: Block) -> str:
    """A condition in words."""
    if isinstance(condition, Predicate):
        text = in_words(condition.expression, block.columns)
        return f"not true: {text}" if condition.negated else text
    if isinstance(condition, (Every, Some)):
        word = " and " if isinstance(condition, Every) else " or "
        return "(" + word.join(condition_words(part, block) for part in condition.parts) + ")"
    return "every row" if condition.value else "no row"


def explain_relation(number: int, relation: Relation, release: Release) -> list[str]:
    """The stages of one block.

    Args:
        number: the block's number.
        relation: its answer.
        release: the release.

    Returns:
        One line for each stage, without numbers.
    """
    block = relation.block
    joins = ", ".join(f"{'.'.join(path)} ({kind})" for path, kind in block.joins)
    lines = [f"block {number}: rows of {block.root}" + (f", joined along {joins}" if joins else "")]
    if block.columns:
        lines.append(f"condition: {condition_words(block.where, block)}")
    if block.groups:
        lines.append(f"grouped by {', '.join(in_words(group, block.columns) for group in block.groups)}")
    lines += list(relation.notes)
    for answered in relation.answered:
        lines += _plan_words(answered, block, release)
    return lines


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
        statistic = release.statistics[lookup.statistic]
        nodes = " x ".join(str(n) for n in lookup.nodes)
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
    lines += [f"DuckDB: {lookup.sql}" for lookup in answered.lookups]
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


def numbered(lines: Sequence[str]) -> tuple[str, ...]:
    """Lines with their numbers; DuckDB statements go last."""
    last = [line for line in lines if line.startswith("DuckDB: ")]
    first = [line for line in lines if not line.startswith("DuckDB: ")]
    return tuple(f"{i}. {line}" for i, line in enumerate([*first, *last], 1))
