"""A release in memory, made of releases that are open: their axes, other numbers, other errors.

Answering asks it as it asks a file. It is never stored, so its errors need not be rows of a variance table.

**Privacy**: post-processing of releases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.release.format import AxisMeta, Meta, StatisticMeta
from dpsql.release.read import Release
from dpsql.release.write import create_cells
from dpsql.star.sql import identifier, literal
from dpsql.tree import Tree
from dpsql.variance.model import Reading

IntArray = npt.NDArray[np.int64]
LOCKED = ("enable_external_access = false", "autoinstall_known_extensions = false",
          "autoload_known_extensions = false", "python_enable_replacements = false", "threads = 1",
          "error_on_division_by_zero = false", "lock_configuration = true")  # fmt: skip


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


def node_sums(leaves: IntArray, trees: Sequence[Tree]) -> IntArray:
    """Sums of leaves under every combination of nodes, exactly."""
    found = leaves
    for axis, tree in enumerate(trees):
        running = np.moveaxis(np.cumsum(found, axis=axis), axis, 0)
        running = np.concatenate([np.zeros_like(running[:1]), running])
        found = np.moveaxis(running[tree.hi] - running[tree.lo], 0, axis)
    return np.ascontiguousarray(found)


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
    """
    described = replace(
        meta,
        axes=tuple(axis.meta for axis in axes),
        statistics=tuple(replace(s.meta, id=i) for i, s in enumerate(statistics)),
    )
    connection = duckdb.connect(":memory:")
    for i, axis in enumerate(axes):
        connection.execute(f"ATTACH {literal(str(axis.release.path))} AS source (READ_ONLY)")
        connection.execute(f"CREATE TABLE {identifier(f'axis_{i}')} AS FROM source.axis_{axis.number}")
        connection.execute("DETACH source")
    for s, made in enumerate(statistics):
        nodes = node_sums(made.leaves, [axes[a].tree for a in made.meta.axes])
        create_cells(connection, f"node_combination_{s}", "n", {"estimate": nodes})
    for setting in LOCKED:
        connection.execute(f"SET {setting}")
    found = Release(axes[0].release.path, connection, described, together=dict(readings))
    found.keep_trees({i: axis.tree for i, axis in enumerate(axes)})
    return found
