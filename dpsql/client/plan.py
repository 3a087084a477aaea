"""Reading a collection plan on the device, and refusing one that would cost more than it says or that fails somebody.

A plan is public canonical JSON (sorted keys, no spaces); its hash is the first eight bytes of SHA-256 over
the file's bytes. The device trusts nothing in it: weights, domains and bounds are checked before any draw.

What a plan gets wrong is found here, where no row is looked at, and never while answering: a device that failed for
some rows and not for others would tell them by its silence. So no draw of a checked plan can fail.

A view is of one kind, which says what is asked of a person and how her rows become one item.

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

import decimal
import hashlib
import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from dpsql.client.entropy import LARGEST_BOUND, Entropy, below
from dpsql.client.oracles import LARGEST_DOMAIN, OTHER, DeviceOracle, device_oracle
from dpsql.errors import DataError, PrivacyError


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
    """True if all are integers: 2.0 and true are not.

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


def _edges_sound(plan: Plan, view: View, sizes: Sequence[int]) -> bool:
    """Increasing edges from 0 to each axis's leaves."""
    return len(view.edges) == len(sizes) and all(
        whole(*e) and e[0] == 0 and e[-1] == size and all(a < b for a, b in pairwise(e))
        for e, size in zip(view.edges, sizes, strict=True)
    )


def _slot_item(
    plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy, cell_of: Callable[[View, Sequence[int]], int | None]
) -> int | None:  # fmt: skip
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


def _cell_item(
    plan: Plan,
    view: View,
    rows: Sequence[Row],
    entropy: Entropy,
    cell_of: Callable[[View, Sequence[int]], int | None] = _grid_cell,
) -> int | None:
    """The item of a slot; without a row, that of "no row", or any item alike where the plan has none for it."""
    slot_item = _slot_item(plan, view, rows, entropy, cell_of)
    if slot_item is not None:
        return slot_item
    return view.domain - 1 if view.empty else below(view.domain, entropy)


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


def _bit_item(plan: Plan, view: View, rows: Sequence[Row], entropy: Entropy) -> int | None:
    """1 as likely as the number of rows is far from the first to the second of the view's two."""
    floor, cap = view.rows
    return int(below(cap - floor, entropy) < min(max(len(rows), floor), cap) - floor)


KINDS = (
    ReportKind("grid", _between_edges, _slot_items, _edges_sound, _cell_item, table=True, spares=True),
    ReportKind(
        "weighted", _between_edges, lambda view, cap: states(view) * view.cells, _edges_sound, _weighted_item,
        table=True,
    ),
    ReportKind(
        "boxes", lambda view: len(view.boxes), _slot_items,
        # two bounds an axis; a row outside of all boxes is no row
        lambda plan, view, sizes: all(whole(*box) and len(box) == 2 * len(sizes) for box in view.boxes),
        lambda plan, view, rows, entropy: _cell_item(plan, view, rows, entropy, _box), spares=True,
    ),
    ReportKind(
        "wave", _between_edges, lambda view, cap: view.cells,
        lambda plan, view, sizes: _edges_sound(plan, view, sizes) and view.measure is None and len(sizes) == 1,
        lambda plan, view, rows, entropy: _slot_item(plan, view, rows, entropy, _grid_cell), spares=True, silent=True,
    ),
    ReportKind(
        "rows", lambda view: 0, lambda view, cap: cap + 1, lambda plan, view, sizes: True,
        lambda plan, view, rows, entropy: min(len(rows), plan.rows_cap),
    ),
    ReportKind(
        "rows_bit", lambda view: 0, lambda view, cap: 2,
        # two numbers of rows to draw between
        lambda plan, view, sizes: len(view.rows) == 2 and 0 <= view.rows[0] < view.rows[1] <= plan.rows_cap, _bit_item,
    ),
)  # fmt: skip
"""The list is closed: a kind without its proof has no place in it."""


EPSILON = re.compile(r"[0-9]{1,40}(?:[./][0-9]{1,40})?")
"""A decimal or a fraction; an exponent could ask for more digits than a device holds."""
SHORT = decimal.Decimal(10) ** -60
"""What the exponential may be too large by, relatively: a weight is rounded down by it first."""


@dataclass(frozen=True)
class PlanAxis:
    """One axis of a plan.

    Args:
        name: as SQL and devices call it.
        leaves: number of leaves, special ones (at the end) included.
        smooth: leading leaves along which neighbours resemble each other; 0 for categories.
        lookup: how a device turns a value into a leaf, as `rows` tells.
    """

    name: str
    leaves: int
    smooth: int
    lookup: Mapping[str, Any] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        return {**self.lookup, "name": self.name, "leaves": self.leaves, "smooth": self.smooth}


@dataclass(frozen=True)
class PlanMeasure:
    """One measure: bounds are integers at the declared scale."""

    name: str
    lower: int
    upper: int
    scale: int = 0


@dataclass(frozen=True)
class View:
    """One table of cells that a person may be drawn to report on.

    Args:
        kind: what it asks, by name (`kinds`).
        axes: positions of the plan's axes.
        edges: per axis, increasing cell boundaries from 0 to the axis's leaves (grid, wave).
        boxes: per cell, (lo, hi) of each axis, flattened (boxes).
        measure: position of the plan's measure whose bit is part of the item, or None.
        empty: whether "no row" is an item.
        oracle: how answers are perturbed, by name (`oracles`).
        domain: number of items.
        extra: OLH buckets or Square Wave reach, else 0.
        share: integer weight of this view in the draw.
        rows: numbers of rows at which a row count's bit is 0 and 1 for certain (rows_bit).
    """

    kind: str
    axes: tuple[int, ...]
    edges: tuple[tuple[int, ...], ...]
    boxes: tuple[tuple[int, ...], ...] = ()
    measure: int | None = None
    empty: bool = False
    oracle: str = ""
    domain: int = 0
    extra: int = 0
    share: int = 1
    rows: tuple[int, ...] = ()

    @property
    def cells(self) -> int:
        """Number of cells, without measure bit and "no row"."""
        return self.asks.cells(self)

    @property
    def asks(self) -> ReportKind:
        """Question of the view.

        Raises:
            DataError: something that this program does not know.
        """
        for kind in KINDS:
            if kind.name == self.kind:
                return kind
        raise DataError(
            "a view of the plan asks for something that this version does not know", hint="ask for a new plan"
        )

    @property
    def perturbs(self) -> DeviceOracle:
        """Perturbation of answers.

        Raises:
            DataError: by an oracle that this program does not know.
        """
        oracle = device_oracle(self.oracle)
        if oracle is None:
            raise DataError("a view of the plan names an unknown oracle", hint="ask for a new plan")
        return oracle(self.domain, self.extra)

    def holds(self, axes: Collection[int]) -> bool:
        """True if its items are cells of a table over all of these axes, and perhaps more."""
        return self.asks.table and set(axes) <= set(self.axes)

    def body(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Plan:
    """A checked plan. `raw` holds the exact bytes that were hashed; `epsilon` is an exact fraction.

    `round_shares` are integer weights of the rounds in a device's draw of its round; none: all alike.
    """

    raw: bytes
    collection: str
    epsilon: Fraction
    own: int
    tau: int
    rows_floor: int
    rows_cap: int
    round: int
    rounds: int
    axes: tuple[PlanAxis, ...]
    measures: tuple[PlanMeasure, ...]
    views: tuple[View, ...]
    round_shares: tuple[int, ...] = ()

    @property
    def hash(self) -> bytes:
        """First eight bytes of SHA-256 over the plan's bytes."""
        return hashlib.sha256(self.raw).digest()[:8]


def largest_weight(epsilon: Fraction) -> int:
    """Return floor(e^epsilon 2^20), never more: eighty digits are computed and sixty relied on.

    Example:
        >>> largest_weight(Fraction(1))
        2850325
    """
    with decimal.localcontext() as context:
        context.prec = 80
        exponent = decimal.Decimal(epsilon.numerator) / decimal.Decimal(epsilon.denominator)
        return int(exponent.exp() * OTHER * (1 - SHORT))


def read_plan(raw: bytes) -> Plan:
    """Read a plan and check every number a draw depends on.

    Args:
        raw: the plan file's bytes.

    Returns:
        The checked plan.

    Raises:
        DataError: if it is not a plan of version 1 or contradicts itself.
        PrivacyError: if its weights cost more than its epsilon.

    **Privacy**: own / 2^20 <= e^epsilon holds exactly for every plan this returns.
    """
    try:
        plan = _read(raw)
        if not 0 < plan.epsilon <= 16:
            raise PrivacyError("the plan's epsilon is outside (0, 16]", hint="do not take part")
        if not OTHER < plan.own <= largest_weight(plan.epsilon):
            raise PrivacyError("the plan's weight costs more than its epsilon", hint="do not take part")
        check_plan(plan)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise DataError("not a collection plan of version 1") from error
    return plan


def _read(raw: bytes) -> Plan:
    body = json.loads(raw)
    if body["dpsql_plan"] != 1 or body["other"] != OTHER:
        raise ValueError("another version")
    if EPSILON.fullmatch(body["epsilon"]) is None:
        raise ValueError("epsilon is no decimal and no fraction")
    plain = {
        name: body[name] for name in ("collection", "own", "tau", "rows_floor", "rows_cap", "round", "rounds")
    }
    measures = (
        PlanMeasure(*(measure[field.name] for field in fields(PlanMeasure))) for measure in body["measures"]
    )
    return Plan(
        raw=raw, epsilon=Fraction(body["epsilon"]), axes=tuple(map(read_axis, body["axes"])), measures=tuple(measures),
        views=tuple(map(_view, body["views"])), round_shares=tuple(body.get("round_shares", ())), **plain,
    )  # fmt: skip


def read_axis(body: Mapping[str, Any]) -> PlanAxis:
    """One axis as plans have it, unchecked."""
    lookup = {key: value for key, value in body.items() if key not in ("name", "leaves", "smooth")}
    return PlanAxis(body["name"], body["leaves"], body.get("smooth", 0), lookup)


def _view(body: Mapping[str, Any]) -> View:
    plain = {name: body[name] for name in ("kind", "measure", "empty", "oracle", "domain", "extra", "share")}
    edges, boxes = (tuple(map(tuple, body[name])) for name in ("edges", "boxes"))
    return View(axes=tuple(body["axes"]), edges=edges, boxes=boxes, rows=tuple(body.get("rows", ())), **plain)


LARGEST_COUNT = 1 << 16
LARGEST_VALUE = 1 << 53
"""Beyond it a JavaScript number is no exact integer."""
GRAINS = ("second", "minute", "hour", "day")
SPECIAL = ("null_leaf", "missing_leaf", "other_leaf")


def check_plan(plan: Plan) -> None:
    """Refuse a plan that contradicts itself or that some device could not answer.

    Args:
        plan: as read; its weight against its epsilon is `read_plan`'s business.

    Raises:
        DataError: with what is wrong.
    """
    if type(plan.collection) is not str or not plan.collection:
        raise DataError("the plan does not name its collection", hint="ask for a new plan")
    if not (
        whole(plan.own, plan.tau, plan.rows_floor, plan.rows_cap)
        and 1 <= plan.tau <= LARGEST_COUNT
        and 0 <= plan.rows_floor < plan.rows_cap <= LARGEST_COUNT
    ):
        raise DataError("the plan's row bounds are not valid", hint="ask for a new plan")
    parts = plan.round_shares
    if not (whole(plan.round, plan.rounds, *parts) and 0 <= plan.round < plan.rounds <= LARGEST_BOUND):
        raise DataError("the plan's round is not one of its rounds", hint="ask for a new plan")
    if parts and (len(parts) != plan.rounds or min(parts) < 1 or sum(parts) > LARGEST_BOUND):
        raise DataError("the plan's rounds have no sound shares", hint="ask for a new plan")
    for axis in plan.axes:
        if not _axis_sound(axis):
            raise DataError("an axis of the plan contradicts itself", hint="ask for a new plan")
    for measure in plan.measures:
        sound = (
            type(measure.name) is str
            and whole(measure.lower, measure.upper, measure.scale)
            and -LARGEST_VALUE <= measure.lower < measure.upper <= LARGEST_VALUE
            and measure.upper - measure.lower <= LARGEST_BOUND
            and 0 <= measure.scale <= 18
        )
        if not sound:
            raise DataError("a measure of the plan has no sound bounds", hint="ask for a new plan")
    for view in plan.views:
        if not _view_sound(plan, view):
            raise DataError("a view of the plan contradicts itself", hint="ask for a new plan")
    shares = [view.share for view in plan.views]
    if len(shares) > LARGEST_COUNT or not 1 <= sum(shares) <= LARGEST_BOUND:
        raise DataError("the plan's views have no sound shares", hint="ask for a new plan")


def _axis_sound(axis: PlanAxis) -> bool:
    """Leaves, and a look-up that names leaves of the axis alone."""
    leaves, lookup = axis.leaves, axis.lookup
    starts, values, keys = lookup.get("starts", [0]), lookup.get("values", []), lookup.get("keys", {})
    named = [lookup[kind] for kind in SPECIAL if lookup.get(kind) is not None] + list(keys.values())
    return (
        type(axis.name) is str
        and type(lookup.get("key", "")) is str
        and whole(leaves, *named)
        and 1 <= leaves <= LARGEST_DOMAIN
        and all(0 <= leaf < leaves for leaf in named)
        and type(values) is list
        and all(type(text) is str for text in values)
        and len(values) <= leaves
        and whole(*starts, lookup.get("upper", starts[-1]), lookup.get("lower", 0), lookup.get("width", 1))
        and all(a < b for a, b in pairwise(starts))
        and len(starts) <= leaves
        and lookup.get("width", 1) >= 1
        and whole(lookup.get("scale", 0))
        and 0 <= lookup.get("scale", 0) <= 18
        and lookup.get("grain", "second") in GRAINS
    )


def _view_sound(plan: Plan, view: View) -> bool:
    """Names, types and positions, cells on the view's axes, a domain that is the view's, bounds to draw from."""
    return (
        type(view.empty) is bool
        and whole(*view.axes, view.domain, view.extra, view.share, *view.rows)
        and all(0 <= a < len(plan.axes) for a in view.axes)
        and (view.measure is None or (whole(view.measure) and 0 <= view.measure < len(plan.measures)))
        and view.share >= 0
        and view.asks.silent == view.perturbs.silent
        and view.asks.sound(plan, view, [plan.axes[a].leaves for a in view.axes])
        and 1 <= view.domain <= LARGEST_DOMAIN
        and view.domain == view.asks.items(view, plan.rows_cap)
        and view.perturbs.sound(plan.own)
    )
