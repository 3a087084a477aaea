"""Queries that later ones read by name: temporary tables where rows may be stored, common tables where nothing may.

Bounds that are chosen take several questions: histograms of people, norms, weighted cells. Each is a query over the
ones before. DuckDB computes and stores a query when it is named. A server gets every question as one read-only
statement, with the queries that it may need before it; nothing is created there.

**Privacy**: sees queries, and hands out whole numbers of one question at a time, for a draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dpsql.engines.dialect import Dialect
from dpsql.engines.joined_rows import common_table, with_tables
from dpsql.errors import EngineLost
from dpsql.faults import NOTHING, told

IntArray = npt.NDArray[np.int64]
Fetch = Callable[[str], Mapping[str, IntArray]]


class KeyCheck(NamedTuple):
    """Fault of a public key."""

    null: bool
    repeated: bool


NOTHING_HAPPENED = f"{NOTHING} and nothing was left behind"


def engine_lost(engine: str, step: str, why: str, hint: str = NOTHING_HAPPENED) -> EngineLost:
    """The one line about a statement that failed; why is a code or our own words, never the engine's text."""
    return EngineLost(f"{engine}: {step} failed ({why})", hint=told(hint))


class Relations(Protocol):
    """Named queries of one engine."""

    @property
    def dialect(self) -> Dialect:
        """Dialect of the relations."""

    def make(self, name: str, query: str) -> str:
        """Name a query, which may read the ones before it; returns what stands after FROM for it.

        Raises:
            EngineLost: the engine was lost.
        """

    def fetch(self, statement: str) -> Mapping[str, IntArray]:
        """Whole numbers of a SELECT over named queries, by column.

        Raises:
            EngineLost: the engine was lost, or did not answer in time.

        **Privacy**: raw.
        """

    def batches(self, statement: str) -> Iterator[list[tuple[str | int, int]]]:
        """Pairs of a SELECT, some at a time: a value and a whole number.

        Raises:
            EngineLost: the engine was lost, or did not answer in time.

        **Privacy**: raw values, the only ones of private rows that leave an engine; `publishing.selection` alone asks.
        """


BATCH = 50_000
"""Pairs that are fetched at a time."""


@dataclass(frozen=True)
class CommonRelations:
    """Common tables of every statement.

    Args:
        dialect: of the engine.
        run: fetches the answer of a statement.
        stream: fetches pairs, some at a time.
    """

    dialect: Dialect
    run: Fetch
    stream: Callable[[str], Iterator[list[tuple[str | int, int]]]]
    _queries: dict[str, str] = field(default_factory=dict, repr=False)

    def make(self, name: str, query: str) -> str:
        table = self.dialect.identifier(name)
        self._queries.pop(table, None)  # a query that is named again stands after what it reads
        self._queries[table] = query
        return table

    def fetch(self, statement: str) -> Mapping[str, IntArray]:
        """See `Relations`: a common table that no other one reads is not computed."""
        return self.run(self._whole(statement))

    def batches(self, statement: str) -> Iterator[list[tuple[str | int, int]]]:
        return self.stream(self._whole(statement))

    def _whole(self, statement: str) -> str:
        """A statement with the queries before it."""
        tables = [common_table(name, query, self.dialect) for name, query in self._queries.items()]
        if not tables:
            return statement
        if statement.startswith("WITH "):
            return f"WITH {', '.join(tables)}, {statement.removeprefix('WITH ')}"
        return with_tables(tables, statement)
