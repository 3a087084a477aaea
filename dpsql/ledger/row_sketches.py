"""Keyed sketches of rows, by which a table is known again that was renamed and has a row more or less.

A place is spelled once and a digest of all rows changes with each of them, so a file that is renamed and gets one row
would begin a second budget about the same people. A sketch is the `SKETCH` least keyed hashes of the texts of a table's
whole rows: two tables that share nearly all rows share nearly all of them. It is made anew at each charge, and compared
once for a pair of places of two lineages; the verdict is kept, whatever the rows become.

| table of the ledger | one row per | columns |
|---|---|---|
| `row_sketch` | lineage and places of a table | keyed hashes, least first |
| `row_verdict` | two such pairs | `apart`, `alike`, or `stated` with the curator's reason |

**Privacy**: outside of epsilon (docs/privacy.md, "The same rows under another name"): the refusal depends on raw rows
and is shown to the curator alone, who holds both tables. A hash is one of a row under the ledger's secret; whoever
reads the ledger can test a guess of a whole row against the 64 that are kept. `dpsql forget LEDGER` erases them all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dpsql.errors import LineageError
from dpsql.faults import UNCHARGED, machine
from dpsql.ledger.files import beside, private_log
from dpsql.ledger.identity import LedgerEntry, ReleaseSpend, SourceTable
from dpsql.ledger.locks import held
from dpsql.ledger.store import Store

SKETCH = 64
"""Hashes of one table."""
ALIKE = 58
"""Of them in common: 95% of pairs of tables that share 19 rows in 20 reach it, 2% of those that share 17 in 20."""
FEWEST_ROWS = 640
"""Different rows below which a table has no sketch: its hashes would be a tenth of its rows or more."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS row_sketch (
    lineage VARCHAR, place VARCHAR, hashes VARCHAR NOT NULL, PRIMARY KEY (lineage, place));
CREATE TABLE IF NOT EXISTS row_verdict (
    lineage VARCHAR, place VARCHAR, other_lineage VARCHAR, other_place VARCHAR, verdict VARCHAR NOT NULL,
    reason VARCHAR NOT NULL, PRIMARY KEY (lineage, place, other_lineage, other_place));
"""


@dataclass(frozen=True)
class RowComparison:
    """Sketches of a publish, and whether somebody is there to read a refusal.

    Args:
        least_hashes: a key and a number -> raw table -> its least keyed row hashes, least first, so many or all.
        compare: whether tables are compared: at a terminal or where it was asked for, never in a timer or a server.
        other_people: why rows that are alike are about other people, in the curator's words; empty where they are not.
    """

    least_hashes: Callable[[str, int], Mapping[str, Sequence[str]]]
    compare: bool = False
    other_people: str = ""


class _Sketch(NamedTuple):
    """A stored sketch."""

    lineage: str
    place: str
    hashes: frozenset[str]


def check_sketches(store: Store, spend: ReleaseSpend, comparison: RowComparison) -> None:
    """Refuse a table whose rows another lineage has been charged for, and keep the sketches of those that are charged.

    Args:
        store: the opened ledger, before anything is charged.
        spend: whose budget, and the raw tables.
        comparison: how to make the sketches, and whether to compare them.

    Raises:
        LineageError: a table that is new to its lineage has nearly all rows of another lineage's table.
        MachineFault: the ledger cannot be written.
    """
    name = spend.lineage.name
    charged = {place for entry in _charged(store, name) for t in entry.charged_tables() for place in t.places}
    row_hashes = comparison.least_hashes(store.fingerprint("row sketches"), FEWEST_ROWS)
    private_log(store.path)
    store.connection.execute(_SCHEMA)
    for table in spend.tables:
        # A place that holds too few rows now keeps no older sketch either.
        hashes = row_hashes.get(table.name, ())
        sketch = _Sketch(
            name, _place(store, table), frozenset(hashes[:SKETCH] if len(hashes) >= FEWEST_ROWS else ())
        )
        if comparison.compare and charged.isdisjoint(table.places):
            for stranger in _strangers(store, name):
                _judge(store, table.name, sketch, stranger, comparison.other_people)
        store.connection.execute(
            "INSERT OR REPLACE INTO row_sketch VALUES (?, ?, ?)",
            [name, sketch.place, json.dumps(sorted(sketch.hashes))],
        )


def forget_sketches(ledger: Path) -> int:
    """Erase the sketches of a ledger; verdicts, which hold no row, stay.

    Args:
        ledger: the ledger file.

    Returns:
        How many tables had one.

    Raises:
        IntegrityError: the chain is broken.
        MachineFault: the file cannot be locked, opened or written.
    """
    with machine("nothing was erased", UNCHARGED), held(beside(ledger, ".lock")):
        store = Store(ledger)
        try:
            if not _has_sketches(store):
                return 0  # the file stays as it is
            private_log(store.path)
            erased = store.connection.execute("DELETE FROM row_sketch WHERE hashes <> '[]'").fetchall()
            store.connection.execute("CHECKPOINT")  # the rows leave the write-ahead log
        finally:
            store.close()
    return int(erased[0][0])


def _has_sketches(store: Store) -> bool:
    """True if any hashes are kept; their table is there from the first publish on."""
    some = "SELECT COUNT(*) > 0 FROM duckdb_tables() WHERE table_name = 'row_sketch'"
    kept = "SELECT COUNT(*) > 0 FROM row_sketch WHERE hashes <> '[]'"
    return all(store.connection.execute(sql).fetchall() == [(True,)] for sql in (some, kept))


def _judge(store: Store, table: str, sketch: _Sketch, stranger: _Sketch, reason: str) -> None:
    """Compare two sketches, once for each pair; the verdict is kept before anything is said.

    Raises:
        LineageError: they are alike, and nobody has said that the rows are about other people.
    """
    pair = [sketch.lineage, sketch.place, stranger.lineage, stranger.place]
    where = "lineage = ? AND place = ? AND other_lineage = ? AND other_place = ?"
    stored = store.connection.execute(f"SELECT verdict FROM row_verdict WHERE {where}", pair).fetchall()
    outcome = "alike" if len(sketch.hashes & stranger.hashes) >= ALIKE else "apart"
    verdict = stored[0][0] if stored else outcome
    if verdict == "alike" and reason:
        verdict = "stated"
    written = [*pair, verdict, reason if verdict == "stated" else ""]
    if not stored or stored[0][0] != verdict:
        store.connection.execute("INSERT OR REPLACE INTO row_verdict VALUES (?, ?, ?, ?, ?, ?)", written)
    if verdict == "alike":
        raise LineageError(
            f"(private) table {table!r} has nearly all rows of a table that lineage {stranger.lineage!r} has published",
            hint=f"name lineage {stranger.lineage!r}, or state with --other-people why these rows are about others",
        )


def _strangers(store: Store, name: str) -> Iterator[_Sketch]:
    """Sketches of other lineages that were charged: one whose publish was refused later has no entry."""
    charged = {entry.lineage for entry in store.entries} - {name}
    rows = store.connection.execute("SELECT lineage, place, hashes FROM row_sketch ORDER BY ALL").fetchall()
    for lineage, place, hashes in rows:
        if lineage in charged:
            yield _Sketch(lineage, place, frozenset(json.loads(hashes)))


def _charged(store: Store, name: str) -> Iterator[LedgerEntry]:
    return (entry for entry in store.entries if entry.lineage == name)


def _place(store: Store, table: SourceTable) -> str:
    """A keyed hash of where a table lies: of a folder itself, whatever files come into it; of a data frame's name."""
    return store.fingerprint(f"place {table.places[0]}" if table.places else f"frame {table.name}")
