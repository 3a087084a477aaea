"""Queries that later ones read by name: temporary tables where rows may be stored, common tables where nothing may.

Bounds that are chosen take several questions: histograms of people, norms, weighted cells. Each is a query over the
ones before. DuckDB computes and stores a query when it is named. A server gets every question as one read-only
statement, with the queries that it may need before it; nothing is created there.

**Privacy**: sees queries, and hands out whole numbers of one question at a time, for a draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dpsql.engines.dialect import Dialect
from dpsql.engines.placed import common_table, with_tables
from dpsql.errors import EngineLost

IntArray = npt.NDArray[np.int64]
Fetch = Callable[[str], Mapping[str, IntArray]]


class KeyCheck(NamedTuple):
    """What is wrong with a public key."""

    null: bool
    repeated: bool


NOTHING_HAPPENED = "nothing was charged and nothing was left behind"


def engine_lost(engine: str, step: str, why: str, hint: str = NOTHING_HAPPENED) -> EngineLost:
    """The one line about a statement that failed; why is a code or our own words, never the engine's text."""
    return EngineLost(f"{engine}: {step} failed ({why})", hint=hint)


class Relations(Protocol):
    """Named queries of one engine."""

    @property
    def dialect(self) -> Dialect:
        """How it spells them."""

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


@dataclass(frozen=True)
class CommonRelations:
    """Common tables of every statement.

    Args:
        dialect: of the engine.
        run: fetches the answer of a statement.
    """

    dialect: Dialect
    run: Fetch
    _queries: dict[str, str] = field(default_factory=dict, repr=False)

    def make(self, name: str, query: str) -> str:
        table = self.dialect.identifier(name)
        self._queries.pop(table, None)  # a query that is named again stands after what it reads
        self._queries[table] = query
        return table

    def fetch(self, statement: str) -> Mapping[str, IntArray]:
        """See `Relations`: a common table that no other one reads is not computed."""
        tables = [common_table(name, query, self.dialect) for name, query in self._queries.items()]
        if statement.startswith("WITH "):
            return self.run(f"WITH {', '.join(tables)}, {statement.removeprefix('WITH ')}")
        return self.run(with_tables(tables, statement))
