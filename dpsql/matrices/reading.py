"""Codec of variances in a release: from tables to models and readings; two closed lists.

A statistic is stored with the name of its reading, the numbers of the variance tables that it is made of, and its
components. A view that was measured axis by axis has a `ProductReading`: its variance is a sum of Kronecker terms of
its axes' models. A view whose axes were measured together has a `BlockReading` or an `AskedReading`: one model of
all its cells. A view that was scaled to a total has a `ScaledReading`: the first, and how far shares may be off.
Answering asks a reading, and never which one it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from dpsql.errors import InternalError
from dpsql.matrices import blocks, channel, distinct, intervals, kronecker, max_entropy, model, tree
from dpsql.matrices.blocks import (
    AskedReading,
    AskedVariance,
    BlockReading,
    BlockVariance,
    BoxReading,
    BoxVariance,
    shared_blocks,
)
from dpsql.matrices.channel import ChannelModel, ChannelReading, StackReading, StackVariance, shared_channel
from dpsql.matrices.kronecker import AxisSplit, ProductReading, ScaledReading, Spread
from dpsql.matrices.max_entropy import EntropyReading, FittedErrors
from dpsql.matrices.model import AxisVariance, Columns, Components, Reading, Shared

WHOLE, REAL = "BIGINT", "DOUBLE"
"""Types of a variance table's columns."""

Together = (
    AskedVariance
    | Spread
    | distinct.Single
    | StackVariance
    | BoxVariance
    | ChannelModel
    | BlockVariance
    | FittedErrors
)
"""A model of a view's cells."""
Piece = AxisSplit | Together
"""What a reading is made of."""

AXES: dict[str, Callable[[int, Columns], AxisVariance]] = {
    "identity": model.identity_from_columns, "prefix": model.dense_from_columns, "tree": tree.from_columns,
    "levels": tree.levels_from_columns, "intervals": intervals.from_columns, "sine": intervals.sine_from_columns,
    "filter": intervals.filter_from_columns,
}  # fmt: skip
"""Models of one axis by the kind that their table is stored with."""

MEASURED: dict[str, Callable[[int, Columns], set[tuple[int, int]]]] = {
    "identity": lambda n, _: {(leaf, leaf + 1) for leaf in range(n)},
    "tree": tree.measured, "levels": tree.levels_measured,
}  # fmt: skip
"""The intervals that were measured, by the kind of a model; rows of other kinds are no single intervals."""

TOGETHER: dict[str, Callable[[Columns], Together]] = {
    AskedVariance.kind: blocks.asked_from_columns,
    Spread.kind: kronecker.from_columns,
    distinct.GAPS: partial(distinct.from_columns, distinct.GAPS),
    distinct.CELLS: partial(distinct.from_columns, distinct.CELLS),
    StackVariance.kind: channel.stack_from_columns,
    BoxVariance.kind: blocks.boxes_from_columns,
    ChannelModel.kind: channel.from_columns,
    BlockVariance.kind: blocks.from_columns,
    FittedErrors.kind: max_entropy.from_columns,
}
"""Models of a view's cells."""

TABLES: dict[str, Mapping[str, str]] = {
    "identity": {"leaf": REAL},
    "tree": dict.fromkeys(("lo", "hi", "parent", "level"), WHOLE) | {"weight": REAL},
    "levels": {"level": WHOLE, "arity": WHOLE, "share": WHOLE, "weight": REAL},
    "intervals": {"row": WHOLE, "cell": WHOLE, "value": REAL},
    "sine": {"scale": REAL},
    "filter": {"kernel": REAL, "factor": REAL},
    BlockVariance.kind: {"parent": WHOLE, "weight": REAL}
    | dict.fromkeys((f"{name}_{letter}" for name in ("noise", "within", "shared") for letter in "ab"), REAL),
}
"""Columns of tables whose lines are nodes, leaves or rows, by a model's kind; `blocks` without the bounds of its
axes."""

ARRAYS = {"part": WHOLE, "place": WHOLE, "value": REAL}
"""Columns of all other models' tables (`model.table`)."""


def stored_columns(kind: str, axes: int) -> dict[str, str]:
    """The columns of a model's table in order, each `WHOLE` or `REAL`.

    Args:
        kind: the model's, as it is stored.
        axes: of the view that it is about; of a model of one axis 1.

    Raises:
        InternalError: for a kind that no model has.
    """
    outer, _, inner = kind.partition(" ")
    if outer == model.GROUPED and inner in AXES:
        return {"group": WHOLE, "held": WHOLE} | dict(TABLES.get(inner, ARRAYS))
    if kind not in AXES and kind not in TOGETHER:
        raise InternalError(f"no variance model is called {kind!r}", hint="use the version that wrote it")
    bounds = [f"{end}{axis + 1}" for axis in range(axes) for end in ("lo", "hi")]
    of_axes = dict.fromkeys(bounds, WHOLE) if kind == BlockVariance.kind else {}
    return of_axes | dict(TABLES.get(kind, ARRAYS))


class StoredReading(NamedTuple):
    """A reading as statistics name it.

    Args:
        of: what it is made of.
        make: the reading of some pieces and components.
        by_axis: whether its noisy integers are stored with an index for each axis; else they stand in a line.
        pairs: whether node combinations of more than two axes are not stored, and boxes over them are fitted.
    """

    of: type | tuple[type, ...]
    make: Callable[[tuple[Any, ...], Components], Reading]
    by_axis: bool = False
    pairs: bool = False


def _beside_axes(
    reads: Callable[[ProductReading, Any], Reading], pieces: tuple[Any, ...], components: Components
) -> Reading:
    """A reading of the axes' splits, and of one model of the view's cells after them."""
    return reads(ProductReading(pieces[:-1], components), pieces[-1])


READINGS: dict[str, StoredReading] = {
    ProductReading.name: StoredReading(AxisSplit, ProductReading, by_axis=True),
    AskedReading.name: StoredReading(AskedVariance, AskedReading),
    ScaledReading.name: StoredReading(
        (AxisSplit, Spread), partial(_beside_axes, ScaledReading), by_axis=True
    ),
    distinct.GapReading.name: StoredReading(distinct.Single, distinct.GapReading),
    distinct.TouchedReading.name: StoredReading(distinct.Single, distinct.TouchedReading),
    BoxReading.name: StoredReading(BoxVariance, BoxReading),
    BlockReading.name: StoredReading(BlockVariance, BlockReading),
    blocks.LOOKED: StoredReading(AxisSplit, ProductReading),
    StackReading.name: StoredReading(StackVariance, StackReading),
    ChannelReading.name: StoredReading(
        (AxisSplit, ChannelModel), partial(_beside_axes, ChannelReading), by_axis=True
    ),
    EntropyReading.name: StoredReading(
        (AxisSplit, FittedErrors), max_entropy.entropy_reading, by_axis=True, pairs=True
    ),
}
"""Readings by the name that statistics are stored with."""

SHARED: dict[str, Callable[[Any, Any], Shared]] = {
    ChannelReading.name: shared_channel,
    BlockReading.name: shared_blocks,
}
"""How two statistics of one view err together, by the name of their reading; all others err independently."""

FAMILIES: dict[str, Callable[[Any, Any, tuple[tuple[int, int], ...]], Shared | None]] = {
    ProductReading.name: kronecker.of_one_family,
    ScaledReading.name: kronecker.scaled_family,
}
"""How two views of one table and measure err together, by the name of both readings; others are measured alone."""

BETWEEN: dict[str, Callable[..., Reading | Shared]] = {ProductReading.name: kronecker.of_two_families}
"""How statistics of two families err together that a release says so of, by the name of both readings."""


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
    if inner and outer == model.GROUPED:
        return model.grouped_from_columns(n, columns, partial(from_columns, inner))
    if kind not in AXES:
        raise InternalError(f"no variance model is called {kind!r}", hint="use the version that wrote it")
    return AXES[kind](n, columns)


def piece(kind: str, n: int, columns: Columns) -> Piece:
    """Contents of one variance table: the model of an axis of `n` leaves with its split, or that of a view's
    cells."""
    return TOGETHER[kind](columns) if kind in TOGETHER else AxisSplit(from_columns(kind, n, columns))


def reading(name: str, pieces: Sequence[Piece], components: Components) -> Reading:
    """The reading that a statistic is stored with.

    Raises:
        InternalError: for a name that no reading has, or pieces that it is not made of.
    """
    stored = READINGS.get(name)
    if stored is None or not all(isinstance(piece, stored.of) for piece in pieces):
        raise InternalError(f"no statistic is read as {name!r}", hint="use the version that wrote it")
    return stored.make(tuple(pieces), components)


def stored_as_pairs(name: str) -> bool:
    """True if a statistic of this reading holds the tables of its pairs of axes alone (`entropy.pair_places`)."""
    return name in READINGS and READINGS[name].pairs


def indices(name: str, axes: int) -> int:
    """Number of indices of the noisy integers of a reading over some axes.

    Raises:
        InternalError: for a name that no reading has.
    """
    if name not in READINGS:
        raise InternalError(f"no statistic is read as {name!r}", hint="use the version that wrote it")
    return axes if READINGS[name].by_axis else 1
