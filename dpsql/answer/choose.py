"""Which view answers a block.

Every view that can is a candidate. The one with the least predicted variance answers; ties go to the fewest cells, then
to the name. Views that would have to cut a bin come after those that need not.

| `on_partial_bin` | where a predicate or a group cuts a bin |
|---|---|
| `limit`, the default | it is interpolated; refused if more than half of any group would be |
| `interpolate` | it is interpolated, however much of the answer that is |
| `refuse` | refused |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from dpsql.answer.block import Block, Expression, Term
from dpsql.answer.partial import excess, refuse_partial
from dpsql.answer.plan import (
    Plan,
    is_declared,
    make_plan,
    needed_measures,
    no_view,
    place,
    predicted,
    views_of,
)
from dpsql.answer.schema import Schema
from dpsql.errors import InterfaceError, PartialBinError
from dpsql.release import Release

PartialBin = Literal["interpolate", "limit", "refuse"]
LENIENT: tuple[PartialBin, ...] = get_args(PartialBin)
"""The most lenient first."""


def checked(word: str | None) -> PartialBin | None:
    """What a session asks for where a bin is cut; None as each catalog says.

    Raises:
        InterfaceError: another word.
    """
    known = next((each for each in LENIENT if each == word), None)
    if word is not None and known is None:
        raise InterfaceError("on_partial_bin is none of its words", hint=f"write one of {', '.join(LENIENT)}")
    return known


def choose(
    block: Block,
    terms: Sequence[Term],
    release: Release,
    schema: Schema,
    asked: PartialBin | None = None,
    along: Expression | None = None,
) -> Plan:
    """The best plan for some terms of a block.

    Args:
        block: the block.
        terms: which terms must be answered together.
        release: an open release.
        schema: its star.
        asked: what the session does with bins that are cut.
        along: the column of a quantile, which lies inside of bins by its nature.

    Returns:
        The plan.

    Raises:
        PartialBinError: views hold what it needs, but more than half of it would be interpolated.
        NoViewError: no view has what the block needs; says what is lacking, view by view.
    """
    said, plans = [], []
    partial: PartialBinError | None = None
    lacking: int | None = None
    for view in views_of(release):
        if view.of.lower() != block.root.lower():
            continue
        if not needed_measures(terms, view):
            said.append(
                f"{view.name} lacks {', '.join(t.measure for t in terms if t.measure not in view.statistics)}"
            )
            continue
        placed = place(block, terms, view, release, schema)
        if isinstance(placed, str):
            if is_declared(view.name):
                said.append(f"{view.name} lacks {placed}")
            lacking = next((i for i, ref in enumerate(block.columns) if str(ref) == placed), lacking)
            continue
        plan = make_plan(block, terms, view, placed, release)
        rule = partial_bin(plan, release, asked)
        if rule == "refuse" and (cut := _cut_axes(plan, release)):
            said.append(f"{view.name} would cut a bin of {cut}; put the bounds on its edges")
        elif rule == "limit" and (most := excess(plan, terms, release, along)):
            partial = partial or refuse_partial(plan, most, block, release, along)
        else:
            plans.append(plan)
    if not plans:
        raise partial or no_view(block, said, lacking)
    if len(plans) == 1:
        return plans[0]
    return min(
        plans,
        key=lambda p: (
            any(c.cut for c in p.cells),
            _is_biased(p, terms),
            predicted(p, terms, release),
            p.view.cells,
            p.view.name,
        ),
    )


def _is_biased(plan: Plan, terms: Sequence[Term]) -> bool:
    """Whether an estimate is biased: its variance is then no measure of its error, and unbiased views come first."""
    return any(plan.view.statistics[term.measure].biased for term in terms)


def partial_bin(plan: Plan, release: Release, asked: PartialBin | None) -> PartialBin:
    """What is done where a plan cuts bins.

    Args:
        plan: the plan. Its view's catalog entry says, else the catalog; a set of axes that no view names does what the
            most lenient view over these axes does.
        release: an open release.
        asked: what the session asks: it may lift the limit, and may refuse, but lifts no refusal of the catalog.
    """
    named, axes = {plan.view.name}, set(plan.view.axes)
    if not is_declared(plan.view.name):
        named = {s.view for s in release.statistics if axes <= set(s.axes) and is_declared(s.view)}
    catalog = release.meta["catalog"]
    views, default = catalog.get("views", {}), catalog.get("on_partial_bin", "limit")
    words = [(views.get(name) or {}).get("on_partial_bin") or default for name in named]
    rule = next(word for word in LENIENT if word in (words or [default]))
    return rule if asked is None or rule == "refuse" else asked


def _cut_axes(plan: Plan, release: Release) -> str:
    """Axes whose bins the plan cuts."""
    pairs = zip(plan.questions, plan.cells, strict=True)
    return ", ".join(release.axes[question.axis].name for question, cells in pairs if cells.cut)
