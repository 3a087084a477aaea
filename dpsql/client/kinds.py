"""What a view asks of a person, and how her rows become one item of it.

| plan     | items |
|----------|-------|
| grid     | cells between edges of each axis, twice with a measure's bit; "no row" |
| weighted | the same cells of an own row, each with a bit for how many rows there are |
| boxes    | listed boxes, of which the first that holds a row is its cell, likewise |
| wave     | the leaves of one axis, for an oracle that perturbs "no row" itself |
| rows     | how many rows the person has, up to the cap |
| rows_bit | the same between the view's two numbers of rows, rounded stochastically to one bit |

Draws are made in this order: slot, row, measure bit (or the even item); weighted: row, bit, measure bit (or the even
cell). A weighted item is states x cell + state: 0 where the bit is 0, 1 where it is 1, 2 with the measure's bit too.

**Privacy**: every number of rows and every row has an item, so no refusal depends on them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from dpsql.client.entropy import Entropy, below

if TYPE_CHECKING:
    from dpsql.client.plan import Plan, View


class Row(NamedTuple):
    """One joined row: a leaf per axis of the plan, an integer per measure (at the measure's scale)."""

    leaves: tuple[int, ...]
    measures: tuple[int, ...] = ()


@dataclass(frozen=True)
class ReportKind:
    """One way of asking.

    Args:
        name: what plans call it.
        cells: number of a view's cells, without measure bit and "no row".
        items: number of its items, from the view and the plan's cap of rows.
        sound: whether its cells lie on axes of these leaves and its draws have bounds; a row that no cell holds is no
            row.
        draw: turns the person's rows into one item of a plan's view; None is "no row" where `silent`.
        table: whether its items are cells of a table over its axes, with margins along each.
        spares: whether it has an item for "no row" where that can occur.
        silent: whether its oracle perturbs "no row" itself.
    """

    name: str
    cells: Callable[[View], int]
    items: Callable[[View, int], int]
    sound: Callable[[Plan, View, Sequence[int]], bool]
    draw: Callable[[Plan, View, Sequence[Row], Entropy], int | None]
    table: bool = False
    spares: bool = False
    silent: bool = False


def whole(*numbers: object) -> bool:
    """Whether all are integers: 2.0 and true are not.

    Example:
        >>> whole(1, 2), whole(2.0), whole(True)
        (True, False, False)
    """
    return all(type(n) is int for n in numbers)


def _between_edges(view: View) -> int:
    return math.prod(len(edges) - 1 for edges in view.edges)


def _slot_items(view: View, rows_cap: int) -> int:
    """Cells, twice with a measure's bit, and "no row" where it can occur."""
    return view.cells * (1 if view.measure is None else 2) + int(view.empty)


def states(view: View) -> int:
    """Items of one cell of a weighted view: none, a row, and with a measure a row with its bit."""
    return 2 if view.measure is None else 3


def _boxes_sound(plan: Plan, view: View, sizes: Sequence[int]) -> bool:
    """Two bounds an axis; a row outside of all boxes is no row."""
    return all(whole(*box) and len(box) == 2 * len(sizes) for box in view.boxes)


def _one_axis_sound(plan: Plan, view: View, sizes: Sequence[int]) -> bool:
    return _edges_sound(plan, view, sizes) and view.measure is None and len(sizes) == 1


def _bounds_sound(plan: Plan, view: View, sizes: Sequence[int]) -> bool:
    """Two numbers of rows to draw between."""
    return len(view.rows) == 2 and 0 <= view.rows[0] < view.rows[1] <= plan.rows_cap


def _edges_sound(plan: Plan, view: View, sizes: Sequence[int]) -> bool:
    """Increasing edges from 0 to each axis's leaves."""
    return len(view.edges) == len(sizes) and all(
        whole(*e) and e[0] == 0 and e[-1] == size and all(a < b for a, b in pairwise(e))
        for e, size in zip(view.edges, sizes, strict=True)
    )


def _slot_item(
    plan: Plan,
    view: View,
    rows: Sequence[Row],
    entropy: Entropy,
    cell_of: Callable[[View, Sequence[int]], int | None],
) -> int | None:
    """The item of a slot; None where it has no row that the view has a cell for.

    A slot is drawn from 1 .. tau; a person with r rows has min(r, tau) filled slots, and what fills a slot
    is a uniformly drawn own row.
    """
    if below(plan.tau, entropy) >= len(rows):
        return None
    row = rows[below(len(rows), entropy)]
    leaves = _leaves(plan, view, row)
    cell = None if leaves is None else cell_of(view, leaves)
    if cell is None or view.measure is None:
        return cell
    return cell + view.cells * _measure_bit(plan, view.measure, row, entropy)


def _leaves(plan: Plan, view: View, row: Row) -> list[int] | None:
    """A row's leaves on the view's axes; None where one is no leaf."""
    leaves = [row.leaves[a] for a in view.axes]
    inside = all(0 <= leaf < plan.axes[a].leaves for a, leaf in zip(view.axes, leaves, strict=True))
    return leaves if inside else None


def _measure_bit(plan: Plan, number: int, row: Row, entropy: Entropy) -> int:
    """1 as likely as the clamped value is far from the measure's lower bound to its upper one."""
    measure = plan.measures[number]
    value = min(max(row.measures[number], measure.lower), measure.upper) - measure.lower
    return int(below(measure.upper - measure.lower, entropy) < value)


def _nothing(view: View, entropy: Entropy) -> int:
    """The item of a slot without a row; any item alike where the plan has none for it."""
    return view.domain - 1 if view.empty else below(view.domain, entropy)


def _grid_cell(view: View, leaves: Sequence[int]) -> int:
    cell = 0
    for leaf, edges in zip(leaves, view.edges, strict=True):
        cell = cell * (len(edges) - 1) + bisect_right(edges, leaf) - 1
    return cell


def _box(view: View, leaves: Sequence[int]) -> int | None:
    for number, box in enumerate(view.boxes):
        if all(box[2 * i] <= leaf < box[2 * i + 1] for i, leaf in enumerate(leaves)):
            return number
    return None


def _cell_item(plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy) -> int | None:
    slot_item = _slot_item(plan, view, rows, entropy, _grid_cell)
    return _nothing(view, entropy) if slot_item is None else slot_item


def _box_item(plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy) -> int | None:
    slot_item = _slot_item(plan, view, rows, entropy, _box)
    return _nothing(view, entropy) if slot_item is None else slot_item


def _leaf_item(plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy) -> int | None:
    return _slot_item(plan, view, rows, entropy, _grid_cell)


def _weighted_item(plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy) -> int | None:
    """The cell of a uniformly drawn own row, and with probability min(rows, tau) / tau a bit (and the measure's).

    Without a row, or where the drawn one has no cell, any cell alike and no bit.
    """
    row = rows[below(len(rows), entropy)] if rows else None
    leaves = None if row is None else _leaves(plan, view, row)
    if row is None or leaves is None:
        return states(view) * below(view.cells, entropy)
    cell_item = states(view) * _grid_cell(view, leaves)
    if below(plan.tau, entropy) >= len(rows):
        return cell_item
    return cell_item + 1 + (0 if view.measure is None else _measure_bit(plan, view.measure, row, entropy))


def _count_item(plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy) -> int | None:
    return min(len(rows), plan.rows_cap)


def _bit_item(plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy) -> int | None:
    """1 as likely as the number of rows is far from the first to the second of the view's two."""
    floor, cap = view.rows
    return int(below(cap - floor, entropy) < min(max(len(rows), floor), cap) - floor)


KINDS = (
    ReportKind("grid", _between_edges, _slot_items, _edges_sound, _cell_item, table=True, spares=True),
    ReportKind(
        "weighted",
        _between_edges,
        lambda view, cap: states(view) * view.cells,
        _edges_sound,
        _weighted_item,
        table=True,
    ),
    ReportKind("boxes", lambda view: len(view.boxes), _slot_items, _boxes_sound, _box_item, spares=True),
    ReportKind(
        "wave",
        _between_edges,
        lambda view, cap: view.cells,
        _one_axis_sound,
        _leaf_item,
        spares=True,
        silent=True,
    ),
    ReportKind(
        "rows", lambda view: 0, lambda view, cap: cap + 1, lambda plan, view, sizes: True, _count_item
    ),
    ReportKind("rows_bit", lambda view: 0, lambda view, cap: 2, _bounds_sound, _bit_item),
)
"""The list is closed: a kind without its proof has no place in it."""
