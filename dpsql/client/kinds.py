"""What a view asks of a person, and how her rows become one item of it.

| plan     | class | items |
|----------|-------|-------|
| grid     | `Grid` | cells between edges of each axis, twice with a measure's bit; "no row" |
| boxes    | `Boxes` | listed boxes, likewise |
| wave     | `Leaves` | the leaves of one axis, for an oracle that perturbs "no row" itself |
| rows     | `RowCount` | how many rows the person has |
| rows_bit | `RowBit` | the same, rounded stochastically to one bit |

Draws are made in this order: slot, row, measure bit (or the even item).

**Privacy**: every number of rows and every row has an item, so no refusal depends on them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from dpsql.client.entropy import Entropy, below

if TYPE_CHECKING:
    from dpsql.client.plan import Plan, View


class Row(NamedTuple):
    """One joined row: a leaf per axis of the plan, an integer per measure (at the measure's scale)."""

    leaves: tuple[int, ...]
    measures: tuple[int, ...] = ()


class Kind(Protocol):
    """One way of asking."""

    name: ClassVar[str]
    """What plans call it."""
    table: ClassVar[bool]
    """Whether its items are cells of a table over its axes, with margins along each."""
    placed: ClassVar[bool]
    """Whether it asks where a row lies; else how many rows there are."""
    silent: ClassVar[bool]
    """Whether its oracle perturbs "no row" itself."""

    def cells(self, view: View) -> int:
        """Number of cells, without measure bit and "no row"."""

    def items(self, view: View, rows_cap: int) -> int:
        """Number of items."""

    def sound(self, view: View, sizes: Sequence[int]) -> bool:
        """Whether its cells lie on axes of these leaves; a row that no cell holds is no row."""

    def draw(self, plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy) -> int | None:
        """Turn the person's rows into one item; None is "no row" where `silent`."""


class Grid:
    """Cells between edges of each axis."""

    name: ClassVar[str] = "grid"
    table: ClassVar[bool] = True
    placed: ClassVar[bool] = True
    silent: ClassVar[bool] = False

    def cells(self, view: View) -> int:
        """The product over axes."""
        return math.prod(len(edges) - 1 for edges in view.edges)

    def items(self, view: View, rows_cap: int) -> int:
        """Cells, twice with a measure's bit, and "no row" where it can occur."""
        return slot_items(view)

    def sound(self, view: View, sizes: Sequence[int]) -> bool:
        """Edges from the first leaf to the last."""
        return edges_sound(view, sizes)

    def draw(self, plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy) -> int | None:
        """The cell of a slot's row, or "no row"."""
        item = _slot_item(plan, view, rows, entropy, _grid_cell)
        return _nothing(view, entropy) if item is None else item


class Boxes:
    """Listed boxes, of which the first that holds a row is its cell."""

    name: ClassVar[str] = "boxes"
    table: ClassVar[bool] = False
    placed: ClassVar[bool] = True
    silent: ClassVar[bool] = False

    def cells(self, view: View) -> int:
        """Boxes."""
        return len(view.boxes)

    def items(self, view: View, rows_cap: int) -> int:
        """Boxes, twice with a measure's bit, and "no row" where it can occur."""
        return slot_items(view)

    def sound(self, view: View, sizes: Sequence[int]) -> bool:
        """Two bounds an axis; a row outside of all boxes is no row."""
        return all(whole(*box) and len(box) == 2 * len(sizes) for box in view.boxes)

    def draw(self, plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy) -> int | None:
        """The box of a slot's row, or "no row"."""
        item = _slot_item(plan, view, rows, entropy, _box)
        return _nothing(view, entropy) if item is None else item


class Leaves:
    """The leaves of one axis, of which neighbours are alike to the oracle."""

    name: ClassVar[str] = "wave"
    table: ClassVar[bool] = False
    placed: ClassVar[bool] = True
    silent: ClassVar[bool] = True

    def cells(self, view: View) -> int:
        """The product over axes."""
        return math.prod(len(edges) - 1 for edges in view.edges)

    def items(self, view: View, rows_cap: int) -> int:
        """Cells."""
        return view.cells

    def sound(self, view: View, sizes: Sequence[int]) -> bool:
        """One axis, no measure."""
        return edges_sound(view, sizes) and view.measure is None and len(sizes) == 1

    def draw(self, plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy) -> int | None:
        """The leaf of a slot's row, or None."""
        return _slot_item(plan, view, rows, entropy, _grid_cell)


class RowCount:
    """How many rows, up to the cap."""

    name: ClassVar[str] = "rows"
    table: ClassVar[bool] = False
    placed: ClassVar[bool] = False
    silent: ClassVar[bool] = False

    def cells(self, view: View) -> int:
        """It has none."""
        return 0

    def items(self, view: View, rows_cap: int) -> int:
        """None to the cap."""
        return rows_cap + 1

    def sound(self, view: View, sizes: Sequence[int]) -> bool:
        """It has no cells."""
        return True

    def draw(self, plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy) -> int | None:
        """The number."""
        return min(len(rows), plan.rows_cap)


class RowBit:
    """How many rows, from floor to cap, as the chance of a bit."""

    name: ClassVar[str] = "rows_bit"
    table: ClassVar[bool] = False
    placed: ClassVar[bool] = False
    silent: ClassVar[bool] = False

    def cells(self, view: View) -> int:
        """It has none."""
        return 0

    def items(self, view: View, rows_cap: int) -> int:
        """Two."""
        return 2

    def sound(self, view: View, sizes: Sequence[int]) -> bool:
        """It has no cells."""
        return True

    def draw(self, plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy) -> int | None:
        """The bit."""
        count = min(max(len(rows), plan.rows_floor), plan.rows_cap) - plan.rows_floor
        return int(below(plan.rows_cap - plan.rows_floor, entropy) < count)


KINDS: tuple[Kind, ...] = (Grid(), Boxes(), Leaves(), RowCount(), RowBit())


def whole(*numbers: object) -> bool:
    """Whether all are integers: 2.0 and true are not.

    Example:
        >>> whole(1, 2), whole(2.0), whole(True)
        (True, False, False)
    """
    return all(type(n) is int for n in numbers)


def slot_items(view: View) -> int:
    """Cells, twice with a measure's bit, and "no row" where it can occur."""
    return view.cells * (1 if view.measure is None else 2) + int(view.empty)


def edges_sound(view: View, sizes: Sequence[int]) -> bool:
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
    leaves = [row.leaves[a] for a in view.axes]
    if any(not 0 <= leaf < plan.axes[a].leaves for a, leaf in zip(view.axes, leaves, strict=True)):
        return None
    cell = cell_of(view, leaves)
    if cell is None or view.measure is None:
        return cell
    measure = plan.measures[view.measure]
    value = min(max(row.measures[view.measure], measure.lower), measure.upper) - measure.lower
    return cell + view.cells * int(below(measure.upper - measure.lower, entropy) < value)


def _nothing(view: View, entropy: Entropy) -> int:
    """The item of a slot without a row; any item alike where the plan has none for it."""
    return view.domain - 1 if view.empty else below(view.domain, entropy)


def _grid_cell(view: View, leaves: Sequence[int]) -> int | None:
    cell = 0
    for leaf, edges in zip(leaves, view.edges, strict=True):
        cell = cell * (len(edges) - 1) + bisect_right(edges, leaf) - 1
    return cell


def _box(view: View, leaves: Sequence[int]) -> int | None:
    for number, box in enumerate(view.boxes):
        if all(box[2 * i] <= leaf < box[2 * i + 1] for i, leaf in enumerate(leaves)):
            return number
    return None
