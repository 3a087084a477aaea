"""A release in memory, made of releases that are open: their axes, other numbers, other errors.

Answering asks it as it asks a file. It is never stored, so its errors need not be rows of a variance table.

**Privacy**: post-processing of releases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.errors import ReleaseError
from dpsql.matrices.model import Reading
from dpsql.matrices.reconcile import node_sums
from dpsql.release.format import AxisMeta, Meta, StatisticMeta
from dpsql.release.read import LOCKDOWN, MOST_NUMBERS, Release
from dpsql.release.structure import AXIS
from dpsql.release.write import create_cells, create_table
from dpsql.tree import Tree

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TakenAxis:
    """An axis, and the release that its table is taken from."""

    release: Release
    number: int

    @property
    def key(self) -> tuple[str, int]:
        """The same for one axis of one file."""
        return str(self.release.path), self.number

    @property
    def meta(self) -> AxisMeta:
        """As its release describes it."""
        return self.release.axes[self.number]

    @property
    def tree(self) -> Tree:
        """Its look-up tree."""
        return self.release.tree(self.number)


@dataclass(frozen=True)
class MadeStatistic:
    """A statistic and its leaf estimates, integers in units of 2^-20, shape of its axes."""

    meta: StatisticMeta
    leaves: IntArray


def release_in_memory(
    meta: Meta,
    axes: Sequence[TakenAxis],
    statistics: Sequence[MadeStatistic],
    readings: Mapping[tuple[int, int], Reading],
) -> Release:
    """Make it.

    Args:
        meta: what it says of itself; its axes and statistics are those given.
        axes: where each axis comes from.
        statistics: their ids are their positions.
        readings: (statistic, statistic) -> how both err together, the lower id first.

    Raises:
        ReleaseError: it would not fit a question's memory.
    """
    described = replace(
        meta,
        axes=tuple(axis.meta for axis in axes),
        statistics=tuple(replace(s.meta, id=i) for i, s in enumerate(statistics)),
        covariances=(),  # ids are other ones; `readings` hold all pairs
    )
    size = max((prod(axes[a].tree.size for a in statistic.meta.axes) for statistic in statistics), default=0)
    if size > MOST_NUMBERS:
        raise _too_large(size)
    connection = duckdb.connect(":memory:", config=LOCKDOWN)
    try:
        for i, axis in enumerate(axes):
            # read through its release: it is checked, and its file is not opened again by name
            columns = AXIS | {column.name: column.type for column in axis.meta.columns}
            create_table(connection, f"axis_{i}", axis.release.atoms_as_text(axis.number), columns)
        for s, statistic in enumerate(statistics):
            nodes = node_sums(statistic.leaves, [axes[a].tree for a in statistic.meta.axes])
            create_cells(connection, f"node_combination_{s}", "n", {"estimate": nodes})
    except duckdb.OutOfMemoryException as error:
        raise _too_large(size) from error
    release = Release(axes[0].release.path, connection, described, pair_readings=dict(readings))
    release.keep_trees({i: axis.tree for i, axis in enumerate(axes)})
    return release


def _too_large(size: int) -> ReleaseError:
    return ReleaseError(
        f"these releases together have {size} numbers, more than the memory allowed",
        hint="ask each of them alone, or for fewer columns",
    )
