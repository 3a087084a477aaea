"""Joint privacy promise of several open releases, and independence of their noise.

Noise of one release is independent of every other's, unless both were made of one collection's reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpsql.budget import NEIGHBOURS
from dpsql.release.format import Meta

ROW = "row"
REPLACE_ONE = "replace_one"


def independent(metas: Sequence[Meta]) -> bool:
    """True if no two releases share a draw of noise: different releases, and no two of one collection's reports.

    A device answers a collection once, so whatever is made of its reports, under whichever plan, shares their noise.
    """
    return len({_draw(meta) for meta in metas}) == len(metas)


def _draw(meta: Meta) -> str:
    """Identity of the draw behind a release: the release itself, or its collection."""
    return meta.release_id if meta.local is None else meta.local.collection


def promise_together(metas: Sequence[Meta]) -> dict[str, str] | None:
    """Promise to somebody who is in all releases: epsilons for replacing her rows, added up.

    A release that is open twice, and all that is made of one collection's reports, were drawn once and cost once.

    Args:
        metas: the releases' `meta` tables; adding or removing a person counts twice when replacing one.

    Returns:
        Neighbours, unit and epsilon, or None where a release's promise is not a pure epsilon, or where the releases
        protect different units. What is promised to a person holds for each of her rows, not the other way round.
    """
    costs: dict[str, Fraction] = {}
    units = set()
    for meta in metas:
        promise = meta.privacy
        if Fraction(promise.delta) > 0:
            return None
        moves = NEIGHBOURS[REPLACE_ONE].moves, NEIGHBOURS[promise.neighbours].moves
        cost = Fraction(*moves) * Fraction(promise.epsilon)
        costs[_draw(meta)] = max(cost, costs.get(_draw(meta), cost))
        if meta.local is None:  # a report is all that a device says about its person, whatever it is called
            units.add(promise.unit)
    if len(units - {ROW}) > 1:
        return None
    unit = ROW if ROW in units else min(units, default="person")
    return {"neighbours": REPLACE_ONE, "unit": unit, "epsilon": str(sum(costs.values()))}
