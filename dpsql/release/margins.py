"""Margins of node tables in memory: running totals of the leaves of a few axes, all others added up.

Inner nodes are sums of leaves, so a range of leaves adds up to the integer that its nodes add up to. A file holds
millions of node combinations; of running totals a range takes two numbers on each axis, however long the axis is.

A margin whose nodes are not the sums of its leaves, or that is large, is not copied: whoever asks reads the file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dpsql.matrices.reconcile import node_sums
from dpsql.tree import IntArray, Tree

MOST_NUMBERS = 1 << 22
"""Running totals of all margins of one release: 32 MB."""

MOST_SUM = 1 << 62


class NodeTable(NamedTuple):
    """Table that stores the node combinations of a statistic.

    Args:
        table, estimate: the table, and its column.
        position: of each axis of the margin in it.
        axes: how many axes it has.
    """

    table: str
    estimate: str
    position: tuple[int, ...]
    axes: int

    def margin(self) -> str:
        """DuckDB text that gives the nodes of the margin's axes, the other axes at their root."""
        others = (f"n{i + 1} = 0" for i in range(self.axes) if i not in self.position)
        where = " AND ".join(others) or "true"
        nodes = ", ".join(f"n{i + 1} AS a{k}" for k, i in enumerate(self.position))
        return f"SELECT {nodes}, {self.estimate} AS estimate FROM {self.table} WHERE {where}"


Fetched = Mapping[str, Any]
"""Columns of a statement's answer as numpy arrays."""


class Margins:
    """The margins of one release. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock, self._numbers = threading.Lock(), 0
        self._totals: dict[NodeTable, IntArray | None] = {}

    def totals(
        self, source: NodeTable, trees: Sequence[Tree], fetch: Callable[[str], Fetched]
    ) -> IntArray | None:
        """Running totals of a margin, shape (n_1 + 1, ..): at (i, ..) the sum of the leaves before i, and so on.

        Args:
            source: the statistic.
            trees: the look-up trees of the margin's axes.
            fetch: runs a statement on the release.

        Returns:
            The totals; None where the margin is large, or its nodes are not the sums of its leaves.
        """
        if source not in self._totals:
            size = prod(tree.n + 1 for tree in trees)
            if self._numbers + size > MOST_NUMBERS:
                return None
            totals = _leaves(source, trees, fetch)
            if totals is not None:
                for axis in range(totals.ndim):
                    totals = np.cumsum(totals, axis=axis)
                totals = np.pad(totals, [(1, 0)] * totals.ndim)
            with self._lock:
                self._numbers += size
                self._totals[source] = totals
        return self._totals[source]


def _leaves(source: NodeTable, trees: Sequence[Tree], fetch: Callable[[str], Fetched]) -> IntArray | None:
    """Estimates of all leaf combinations, shape (n_1, ..); None where the stored nodes are not their sums."""
    columns = fetch(source.margin())
    sizes = tuple(tree.size for tree in trees)
    estimate = columns["estimate"]
    if len(estimate) != prod(sizes) or any(np.ma.is_masked(values) for values in columns.values()):
        return None
    place = tuple(np.asarray(columns[f"a{k}"], np.int64) for k in range(len(trees)))
    if any(np.any((nodes < 0) | (nodes >= size)) for nodes, size in zip(place, sizes, strict=True)):
        return None
    nodes = np.zeros(sizes, np.int64)
    nodes[place] = np.asarray(estimate, np.int64)
    leaves: IntArray = nodes[np.ix_(*(tree.leaves for tree in trees))]
    # no sum of theirs wraps
    small = int(np.max(np.abs(leaves), initial=0)) <= MOST_SUM // max(1, leaves.size)
    return leaves if small and np.array_equal(node_sums(leaves, list(trees)), nodes) else None
