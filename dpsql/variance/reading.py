"""What a release keeps of its variances -> the models and readings that answer; two closed lists.

A statistic is stored with the name of its reading, the numbers of the variance tables that it is made of, and its
components. A view that was measured axis by axis has a `ProductReading`: its variance is a sum of Kronecker terms of
its axes' models. A view whose axes were measured together has a `PlaneReading`: one model of all of its cells. A view
that was scaled to a total has a `ScaledReading`: the first, and how far shares may be off.
Answering asks a reading, and never which one it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dpsql.errors import InternalError
from dpsql.variance import (
    asked,
    blocks,
    boxes,
    channel,
    distinct,
    filtered,
    intervals,
    kronecker,
    leaves,
    plane,
    scaled,
    sine,
    stack,
    tree,
)
from dpsql.variance.asked import AskedReading, AskedVariance
from dpsql.variance.blocks import BlockReading, BlockVariance, LookedReading, looked_reading, shared_blocks
from dpsql.variance.boxes import BoxReading, BoxVariance
from dpsql.variance.channel import ChannelModel, ChannelReading, channel_reading, shared_channel
from dpsql.variance.kronecker import AxisSplit, ProductReading
from dpsql.variance.model import AxisVariance, Columns, Components, Reading, Shared
from dpsql.variance.plane import PlaneReading, PlaneVariance
from dpsql.variance.scaled import ScaledReading, Spread, scaled_reading
from dpsql.variance.stack import StackReading, StackVariance

Together = (
    PlaneVariance
    | AskedVariance
    | Spread
    | distinct.Single
    | StackVariance
    | BoxVariance
    | ChannelModel
    | BlockVariance
)
"""A model of a view's cells."""
Piece = AxisSplit | Together
"""What a reading is made of."""

AXES: dict[str, Callable[[int, Columns], AxisVariance]] = {
    "identity": leaves.identity_from_columns, "prefix": leaves.dense_from_columns, "tree": tree.from_columns,
    "intervals": intervals.from_columns, "sine": sine.from_columns, "filter": filtered.from_columns,
}  # fmt: skip
"""Models of one axis by the kind that their table is stored with."""

TOGETHER: dict[str, Callable[[Columns], Together]] = {
    PlaneVariance.kind: plane.from_columns,
    AskedVariance.kind: asked.from_columns,
    Spread.kind: scaled.from_columns,
    distinct.GAPS: partial(distinct.from_columns, distinct.GAPS),
    distinct.CELLS: partial(distinct.from_columns, distinct.CELLS),
    StackVariance.kind: stack.from_columns,
    BoxVariance.kind: boxes.from_columns,
    ChannelModel.kind: channel.from_columns,
    BlockVariance.kind: blocks.from_columns,
}
"""Models of a view's cells."""

READINGS: dict[str, tuple[type | tuple[type, ...], Callable[[tuple[Any, ...], Components], Reading]]] = {
    ProductReading.name: (AxisSplit, ProductReading),
    PlaneReading.name: (PlaneVariance, PlaneReading),
    AskedReading.name: (AskedVariance, AskedReading),
    ScaledReading.name: ((AxisSplit, Spread), scaled_reading),
    distinct.GapReading.name: (distinct.Single, distinct.GapReading),
    distinct.TouchedReading.name: (distinct.Single, distinct.TouchedReading),
    BoxReading.name: (BoxVariance, BoxReading),
    BlockReading.name: (BlockVariance, BlockReading),
    LookedReading.name: (AxisSplit, looked_reading),
    StackReading.name: (StackVariance, lambda pieces, components: StackReading(pieces[0])),
    ChannelReading.name: ((AxisSplit, ChannelModel), channel_reading),
}
"""Readings by the name that statistics are stored with, each with what it is made of."""

SHARED: dict[str, Callable[[Any, Any], Shared]] = {
    ChannelReading.name: shared_channel,
    BlockReading.name: shared_blocks,
}
"""How two statistics of one view err together, by the name of their reading; all others err independently."""


FAMILIES: dict[str, Callable[[Any, Any, tuple[tuple[int, int], ...]], Shared | None]] = {
    ProductReading.name: kronecker.of_one_family,
    ScaledReading.name: scaled.of_one_family,
}
"""How two views of one table and measure err together, by the name of both readings; others are measured alone."""


def from_columns(kind: str, n: int, columns: Columns) -> AxisVariance:
    """The model of one axis that `columns()` was read from.

    Args:
        kind: the model's `kind`.
        n: number of leaves.
        columns: the arrays that `columns()` gave.

    Raises:
        InternalError: for a kind that no model has.
    """
    outer, _, inner = kind.partition(" ")
    if inner and outer == leaves.GROUPED:
        return leaves.grouped_from_columns(n, columns, partial(from_columns, inner))
    if kind not in AXES:
        raise InternalError(f"no variance model is called {kind!r}", hint="use the version that wrote it")
    return AXES[kind](n, columns)


def piece(kind: str, n: int, columns: Columns) -> Piece:
    """What one variance table holds: the model of an axis of `n` leaves with its split, or that of a view's cells."""
    return TOGETHER[kind](columns) if kind in TOGETHER else AxisSplit(from_columns(kind, n, columns))


def reading(name: str, pieces: Sequence[Piece], components: Components) -> Reading:
    """The reading that a statistic is stored with.

    Raises:
        InternalError: for a name that no reading has, or pieces that it is not made of.
    """
    of, made = READINGS.get(name, (type(None), None))
    if made is None or not all(isinstance(each, of) for each in pieces):
        raise InternalError(f"no statistic is read as {name!r}", hint="use the version that wrote it")
    return made(tuple(pieces), components)
