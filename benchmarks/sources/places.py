"""One table has one cap: by every spelling and road, renamed, loaded anew, its catalog moved or cloned.

Each case charges a lineage's whole cap and then publishes what is the same table, under another lineage or from a
ledger that begins anew. A publish that succeeds is a fresh cap. Each planted defect takes one rule back, and must let
one through.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.figures import Figures, main
from dpsql.engines import postgresql
from dpsql.errors import BudgetExceeded, LineageError
from tests.engines import test_places as server
from tests.engines.servers import Server, postgres_programs, running_postgres
from tests.ledger import test_spend_memory as memory

_table_places = postgresql.table_places  # a defect takes the name

SPELLINGS = 20
"""Fewer would not be what the figure says."""


def _by_name(connection: Any, name: str) -> tuple[str, ...]:
    """Places by the resolved name alone: a rename has a fresh cap."""
    return tuple(place for place in _table_places(connection, name) if "/name/" in place)


def _as_typed(connection: Any, name: str) -> tuple[str, ...]:
    return (name.lower(),)


DEFECTS: tuple[tuple[str, Any], ...] = (
    ("dpsql.engines.postgresql.table_places", _as_typed),
    ("dpsql.engines.postgresql.table_places", _by_name),
    ("dpsql.central.central.table_digests", lambda *_: ()),
    ("dpsql.ledger.identity.LedgerMemory.check", lambda *_: None),
    ("dpsql.ledger.publish._marks", lambda table, digests: tuple(digests.get(table.name, ()))),
)
"""Rules and what stands in their place: names as typed, no table oid, no digests of rows, no memory, rows alone."""


def fresh_on_a_server(cluster: Server, folder: Path) -> int:
    """Spellings of a charged table of PostgreSQL that a second lineage could publish."""
    fresh = 0
    for number, spelling in enumerate(server.SPELLINGS.values()):
        with _environment() as put:
            shop = server.charged_shop(cluster, _made(folder / f"server {number}"), put)
            fresh += _published(lambda shop=shop, spelling=spelling: shop.publish(**spelling(shop)))
    return fresh


def fresh_in_files(folder: Path) -> int:
    """Catalogs that were moved or cloned, and ledgers that were lost, which could publish once more."""
    fresh = 0
    for number, change in enumerate(memory.BEGUN_ANEW.values()):
        own = _made(folder / f"files {number}")
        with _environment() as put:
            put("DPSQL_STATE", str(own / "state"))
            shop = memory.charged_shop(own)
            fresh += _published(lambda shop=shop, change=change: memory.publish(change(shop), "second"))
    return fresh


def _published(publish: Callable[[], object]) -> bool:
    try:
        publish()
    except (LineageError, BudgetExceeded):
        return False
    return True


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


@contextmanager
def _environment() -> Iterator[Callable[[str, str], None]]:
    """Set variables until the end of a block."""
    with mock.patch.dict(os.environ):
        yield os.environ.__setitem__


def measure(figures: Figures, folder: Path) -> None:
    """Publish all cases as the rules are, and with each taken back."""
    programs = postgres_programs()
    if programs is None:
        sys.exit("this needs a PostgreSQL server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running_postgres(programs, port) as cluster:
        server.prepare(cluster)
        fresh = fresh_on_a_server(cluster, folder / "as it is") + fresh_in_files(folder / "as it is")
        missed = 0
        for number, (rule, broken) in enumerate(DEFECTS):
            own = folder / f"defect {number}"
            with mock.patch(rule, broken):
                missed += not fresh_on_a_server(cluster, own) + fresh_in_files(own)
    figures.table("spellings of one table of a server", len(server.SPELLINGS))
    title = "fresh caps for one table of 20 spellings, moved or cloned catalogs, without --new-ledger"
    figures.at_most(title, fresh, 0)
    figures.table("planted defects of places and memory that were not found", missed)


if __name__ == "__main__":
    main(measure)
