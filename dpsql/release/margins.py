"""Margins of node tables in memory: the leaves of a few axes, all others added up.

Inner nodes are sums of leaves, so a range of leaves adds up to the integer that its nodes add up to. A file holds
millions of node combinations; a margin has some thousand rows, and DuckDB sums them in the time that it takes to plan.

A margin whose nodes are not the sums of its leaves, or that is large, is not copied: whoever asks reads the file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from hashlib import sha256
from math import prod
from typing import Any, NamedTuple, TypeVar

import duckdb
import numpy as np

from dpsql.matrices.reconcile import node_sums
from dpsql.release.request import executed
from dpsql.tree import IntArray, Tree

MOST_LEAVES = 1 << 16
"""Rows of a margin: DuckDB scans them in about the time that it takes to plan the scan."""
MOST_ROWS = 1 << 21
"""Rows of all margins of one release: some 50 MB."""

MOST_SUM = 1 << 62

T = TypeVar("T")


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
    """The margins of one release. Safe to use from several threads.

    Args:
        config: of the database in memory: the release's own limits.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config, self._lock = config, threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._tables: dict[Hashable, str | None] = {}
        self._rows = 0

    def copy(
        self,
        sources: Sequence[NodeTable],
        trees: Sequence[Tree],
        labels: Mapping[str, IntArray],
        fetch: Callable[[str], Fetched],
    ) -> str | None:
        """A table of a margin: leaves `l0, l1, ..`, labels, and the estimates `e0, e1, ..` of each source.

        Args:
            sources: statistics that share their axes.
            trees: the look-up trees of the margin's axes.
            labels: name of a column -> the label of each leaf combination, shape (leaves,) in row-major order.
            fetch: runs a statement on the release.

        Returns:
            The table's name; None where the margin is large, or its nodes are not the sums of its leaves.
        """
        key = (*sources, *((name, sha256(label.tobytes()).digest()) for name, label in labels.items()))
        if key not in self._tables:
            size = prod(tree.n for tree in trees)
            if size > MOST_LEAVES or self._rows + size > MOST_ROWS:
                return None
            estimates = [_leaves(source, trees, fetch) for source in sources]
            self._tables[key] = self._created(estimates, trees, labels)
        return self._tables[key]

    def _created(
        self, estimates: Sequence[IntArray | None], trees: Sequence[Tree], labels: Mapping[str, IntArray]
    ) -> str | None:
        """A new table; None where the leaves of an estimate are not to be used."""
        grid = np.indices([tree.n for tree in trees]).reshape(len(trees), -1)
        columns = {f"l{k}": ("INTEGER", leaf) for k, leaf in enumerate(grid)}
        columns |= {name: ("INTEGER", label) for name, label in labels.items()}
        for k, estimate in enumerate(estimates):
            if estimate is None:
                return None
            columns[f"e{k}"] = ("BIGINT", estimate)
        with self._lock:
            name, self._rows = f"margin_{self._rows}", self._rows + grid.shape[1]
            fields = ", ".join(f"unnest(?::{kind}[]) AS {column}" for column, (kind, _) in columns.items())
            values = [array.tolist() for _, array in columns.values()]
            self._opened().execute(f"CREATE TABLE {name} AS SELECT {fields}", values)
        return name

    def prepared(self, sql: str) -> duckdb.Statement:
        """A statement over margins that comes again with other values, parsed once."""
        return self._opened().cursor().extract_statements(sql)[0]

    def rows(self, statement: duckdb.Statement, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run what `prepared` made for the current request.

        Raises:
            QueryTimeout: it was stopped.
        """
        return executed(self._opened().cursor(), statement, values, lambda cursor: cursor.fetchall())

    def _opened(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = duckdb.connect(":memory:", config=dict(self._config))
        return self._connection

    def close(self) -> None:
        """Give its memory back."""
        if self._connection is not None:
            self._connection.close()


def _leaves(source: NodeTable, trees: Sequence[Tree], fetch: Callable[[str], Fetched]) -> IntArray | None:
    """Estimates of all leaf combinations, flat; None where the stored nodes are not their sums."""
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
    return leaves.ravel() if small and np.array_equal(node_sums(leaves, list(trees)), nodes) else None
