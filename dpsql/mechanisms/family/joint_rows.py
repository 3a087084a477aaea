"""Several numbers of one view by one pure draw: counts and sums that the same rows of the table move.

**Privacy**: docs/privacy.md, "Several numbers by one draw".
**Source**: docs/method/noise.md, "Joint rows".
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpsql.errors import InternalError
from dpsql.mechanisms.axis.strategy import axis_budgets, measure_view
from dpsql.mechanisms.family.measurement import Terms
from dpsql.mechanisms.law import Laplace, NoiseLaw, NoisyView
from dpsql.noise import Noise
from dpsql.tree import Exact


def draw_together(cells: Sequence[Exact], terms: Sequence[Terms], noise: Noise) -> list[NoisyView]:
    """Measure all numbers of a view by one draw.

    Args:
        cells: exact integers of each number, all of shape (n_1, .., n_d).
        terms: of each number; they differ in sensitivity alone.
        noise: where noise comes from.

    Raises:
        InternalError: numbers that do not share rows, law and spend.
        PrivacyError: spend or sensitivity leave no room for integer budgets.

    **Privacy**: the spend for all numbers together, for neighbours that differ in one unit's rows.
    """
    first, law = terms[0], shared_law([(t.law, t.spend) for t in terms])
    if any(t.strategies != first.strategies for t in terms):
        raise InternalError("numbers of one draw need the same rows")
    rows = [Exact(measure_view(exact, first.strategies)) for exact in cells]
    sensitivities = [t.sensitivity for t in terms]
    return law.draw_together(rows, axis_budgets(first.strategies), first.spend, sensitivities, noise)


def shared_law(spends: Sequence[tuple[NoiseLaw, Fraction]]) -> Laplace:
    """The noise of numbers that share one draw, from the law and the spend of each.

    Raises:
        InternalError: they do not share both, or it is not Laplace noise.
    """
    law, _ = spends[0]
    if not isinstance(law, Laplace) or len(set(spends)) > 1:
        raise InternalError("numbers of one draw need the same rows, law and spend")
    return law
