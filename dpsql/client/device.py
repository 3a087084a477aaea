"""From a person's own rows to report bytes: draw a view, slot, row and measure bit, then perturb.

Every device that is asked reports, whatever its rows are; silence would tell. A row that the plan has no place for
counts as no row, and where "no row" is no item an item is drawn evenly. Draws are made in this order: view, slot, row,
measure bit (or the even item), randomizer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from dpsql.client import perturb
from dpsql.client.entropy import Entropy, below
from dpsql.client.plan import Plan, View
from dpsql.client.report import Report, encode, varint
from dpsql.errors import DataError


class Row(NamedTuple):
    """One joined row: a leaf per axis of the plan, an integer per measure (at the measure's scale)."""

    leaves: tuple[int, ...]
    measures: tuple[int, ...] = ()


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
    item = draw_item(plan, view, rows, entropy)
    return encode(Report(plan.hash, number, view.oracle, randomize(plan, view, item, entropy)))


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


def draw_item(plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy) -> int | None:
    """Turn the person's rows into one item of the view; None is "no row" under Square Wave.

    A slot is drawn from 1 .. tau; a person with r rows has min(r, tau) filled slots, and what fills a slot
    is a uniformly drawn own row.

    **Privacy**: it has an item for every number of rows and every row, so no refusal depends on them.
    """
    if view.kind == "rows":
        return min(len(rows), plan.rows_cap)
    if view.kind == "rows_bit":
        count = min(max(len(rows), plan.rows_floor), plan.rows_cap) - plan.rows_floor
        return int(below(plan.rows_cap - plan.rows_floor, entropy) < count)
    if below(plan.tau, entropy) >= len(rows):
        return _nothing(view, entropy)
    row = rows[below(len(rows), entropy)]
    cell = _cell(plan, view, row)
    if cell is None:
        return _nothing(view, entropy)
    if view.measure is None:
        return cell
    lower, upper = plan.measures[view.measure]["lower"], plan.measures[view.measure]["upper"]
    value = min(max(row.measures[view.measure], lower), upper) - lower
    return cell + view.cells * int(below(upper - lower, entropy) < value)


def _nothing(view: View, entropy: Entropy) -> int | None:
    """The item of a slot without a row; any item alike where the plan has none for it."""
    if view.kind == "wave":
        return None
    return view.domain - 1 if view.empty else below(view.domain, entropy)


def randomize(plan: Plan, view: View, item: int | None, entropy: Entropy) -> bytes:
    """Perturb an item with the view's oracle; returns the report's payload."""
    if view.oracle == "WAVE":
        return varint(perturb.wave(item, view.domain, view.extra, plan.own, entropy))
    if item is None:
        raise DataError("only Square Wave has no item for a missing row")
    if view.oracle == "GRR":
        return varint(perturb.grr(item, view.domain, plan.own, entropy))
    if view.oracle == "OUE":
        return perturb.oue(item, view.domain, plan.own, entropy)
    seed, held = perturb.olh(item, view.extra, plan.own, entropy)
    return seed.to_bytes(2, "big") + varint(held)


def _cell(plan: Plan, view: View, row: Row) -> int | None:
    """The cell of a row; None where the plan has no place for it."""
    leaves = [row.leaves[a] for a in view.axes]
    if any(not 0 <= leaf < plan.axes[a]["leaves"] for a, leaf in zip(view.axes, leaves, strict=True)):
        return None
    if view.kind == "boxes":
        for number, box in enumerate(view.boxes):
            if all(box[2 * i] <= leaf < box[2 * i + 1] for i, leaf in enumerate(leaves)):
                return number
        return None
    cell = 0
    for leaf, edges in zip(leaves, view.edges, strict=True):
        cell = cell * (len(edges) - 1) + bisect_right(edges, leaf) - 1
    return cell
