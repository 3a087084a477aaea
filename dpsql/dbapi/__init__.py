"""PEP 249 over releases: `dpsql.connect(path)` gives a connection that any DB-API client can use.

Statements are read-only, so commit and rollback do nothing. `?` and `:name` placeholders both work;
`paramstyle` names the first.
"""

from __future__ import annotations

import os
from dataclasses import replace

from dpsql.dbapi.connection import Connection
from dpsql.dbapi.cursor import Cursor
from dpsql.dbapi.types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)
from dpsql.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from dpsql.session import open_session

__all__ = [
    "BINARY", "DATETIME", "NUMBER", "ROWID", "STRING", "Binary", "Connection", "Cursor", "DataError",
    "DatabaseError", "Date", "DateFromTicks", "Error", "IntegrityError", "InterfaceError", "InternalError",
    "NotSupportedError", "OperationalError", "ProgrammingError", "Time", "TimeFromTicks", "Timestamp",
    "TimestampFromTicks", "Warning", "apilevel", "connect", "paramstyle", "threadsafety",
]  # fmt: skip

apilevel = "2.0"
threadsafety = 2
paramstyle = "qmark"


def connect(
    *paths: str | os.PathLike[str],
    insecure: bool = False,
    on_partial_bin: str | None = None,
    nonnegative: bool = False,
    as_of: int | str | None = None,
    combine: bool = False,
) -> Connection:
    """Open releases together.

    Args:
        paths: release files or stream directories; with several of one population, each statement goes to the
            one with the smallest predicted error.
        insecure: also open releases that were drawn with test entropy.
        on_partial_bin: where a predicate cuts a bin, `limit` refuses what would be interpolated by more than half,
            `interpolate` nothing, `refuse` all; by default, and where it says `refuse`, as each catalog says.
        nonnegative: answer counts from their non-negative (biased) estimates; standard errors are theirs where a
            release has a model of them (one axis of a local release), else those of the unbiased ones.
        as_of: for streams, the newest batch wanted, by number or label; None takes the newest there is. Either
            way the connection keeps that state while batches are appended.
        combine: with several independent releases of one population, answer with their inverse-variance mean,
            cell by cell where groups match; else the smallest error answers alone and the result says so.

    Returns:
        A read-only connection.

    Raises:
        InterfaceError: no path.
        ReleaseError: a file is not a release.

    **Privacy**: post-processing of releases; costs nothing.
    """
    session = open_session(
        paths, insecure=insecure, on_partial_bin=on_partial_bin, nonnegative=nonnegative, as_of=as_of
    )
    return Connection(replace(session, combine=combine))
