"""Engine of a source: DuckDB for files and its own databases, a session on a server for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dpsql.catalog import Catalog
from dpsql.catalog.source import POSTGRESQL, SPARK, Source, SourceKind
from dpsql.engines.engine import Engine
from dpsql.engines.keys import open_star
from dpsql.engines.postgresql import PostgresSession
from dpsql.engines.server import ServerEngine, ServerSession
from dpsql.engines.spark import SparkSession

SESSIONS: dict[SourceKind, Callable[[str, int], ServerSession]] = {
    POSTGRESQL: PostgresSession,
    SPARK: SparkSession,
}
"""Kind of source -> how its server is opened: (the root, seconds that a statement may run)."""


def open_session(source: Source) -> ServerSession:
    """Open a server.

    Args:
        source: of a kind in `SESSIONS`.

    Raises:
        CatalogError: a variable of its address is not set.
        EngineLost: it cannot be reached.
    """
    return SESSIONS[source.kind](source.address, source.timeout)


def open_engine(catalog: Catalog, names: Iterable[str] | None = None) -> Engine:
    """Open tables of a catalog where their rows are.

    Args:
        catalog: a checked catalog with a source.
        names: which tables, all of the source's unless given.

    Raises:
        CatalogError, SourceError: a table is missing or cannot be read, or a key and a foreign key cannot be equal.
        EngineLost: a server cannot be reached, or is lost.
    """
    source = catalog.raw_source()
    if source.kind not in SESSIONS:
        return open_star(catalog, names)
    wanted = [name for name in (source.tables if names is None else names) if name in catalog.tables]
    session = open_session(source)
    try:
        return ServerEngine(session, catalog, wanted)
    except BaseException:
        session.close()
        raise
