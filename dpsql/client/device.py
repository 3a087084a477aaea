"""From a person's own rows to report bytes: draw a view, slot, row and measure bit, then perturb.

Every device that is asked reports, whatever its rows are; silence would tell. A row that the plan has no place for
counts as no row, and where "no row" is no item an item is drawn evenly. Draws are made in this order: view, slot, row,
measure bit (or the even item), randomizer.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.client.entropy import Entropy, below
from dpsql.client.kinds import Row
from dpsql.client.plan import Plan
from dpsql.client.report import Report, encode
from dpsql.errors import DataError


def respond(plan: Plan, rows: Sequence[Row], entropy: Entropy) -> bytes:
    """Make one report about one person.

    Args:
        plan: a checked plan.
        rows: all rows of the person, already joined; may be empty.
        entropy: where bytes come from.

    Returns:
        Report bytes, version 1.

    **Privacy**: the view does not depend on the rows, and inside a view the output is one randomizer's, so
    the report is epsilon-LDP for everything the person owns. Call it once a collection (see `memory`).
    """
    number = _drawn([v.share for v in plan.views], entropy)
    view = plan.views[number]
    item = view.asks.draw(plan, view, rows, entropy)
    return encode(Report(plan.hash, number, view.oracle, view.perturbs.payload(item, plan.own, entropy)))


def draw_round(plan: Plan, entropy: Entropy) -> int:
    """Draw the one round of a collection in which a device answers, by the plan's weights.

    **Privacy**: it does not depend on the person's rows, so silence in the other rounds tells nothing.
    """
    return _drawn(plan.round_shares, entropy) if plan.round_shares else below(plan.rounds, entropy)


def _drawn(shares: Sequence[int], entropy: Entropy) -> int:
    """Draw a position by integer weights."""
    draw = below(sum(shares), entropy)
    for number, share in enumerate(shares):
        if draw < share:
            return number
        draw -= share
    raise DataError("the plan's shares are not positive")
