"""A private connection for raw rows.

Rows are in memory up to `DPSQL_MEMORY` (1536MiB unless it is set), and what does not fit goes to a folder that nobody
else may read. DuckDB would otherwise spill into the working directory, in files that everybody may read, and leave them
there after a crash. The folder is made under `DPSQL_TMPDIR`, or where the system keeps temporary files, with mode 0700.
It goes when the connection is closed, and at the latest when the process ends by itself; after a kill it stays, closed
to others, for the curator to remove.

**Privacy**: raw rows may stand in the folder in clear text while the connection is open.
"""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory

import duckdb

from dpsql.errors import OperationalError
from dpsql.star.sql import literal

SpillFolder = TemporaryDirectory[str]

SWITCHED_OFF = ("statistics_propagation", "common_subexpressions")
"""Optimizers that would undo a bound.

`statistics_propagation` believes what a file says of its columns. It drops a clip at 10 where a Parquet file's
statistics say that no value is above 5, and a row above 10 would then count whole. `common_subexpressions` takes what
two expressions share out of their TRY: a row could then stop a publish. `tests/privacy/test_switches.py` takes each
back and fails once DuckDB no longer needs it off.
"""

MEMORY = "1536MiB"
"""What rows may take of memory unless `DPSQL_MEMORY` says otherwise."""


def private_folder() -> SpillFolder:
    """A folder that nobody else may read, for what does not fit in memory.

    Raises:
        OperationalError: no folder can be made there.
    """
    place = os.environ.get("DPSQL_TMPDIR") or None
    try:
        return TemporaryDirectory(prefix="dpsql-", dir=place, ignore_cleanup_errors=True)
    except OSError as error:
        raise OperationalError(
            f"no temporary folder can be made ({type(error).__name__})",
            hint="set DPSQL_TMPDIR to a folder where you may write",
        ) from error


def private_connection() -> tuple[duckdb.DuckDBPyConnection, SpillFolder]:
    """A connection in memory with a spill folder of its own.

    Returns:
        (the connection, the folder); whoever closes the first calls `cleanup` of the second.

    Raises:
        OperationalError: no folder can be made there.
    """
    folder = private_folder()
    try:
        connection = duckdb.connect(
            ":memory:",
            config={
                "python_enable_replacements": "false",
                "temp_directory": folder.name,
                "preserve_insertion_order": "false",
                "disabled_optimizers": ", ".join(SWITCHED_OFF),
            },
        )
        _limit(connection)
    except BaseException:
        folder.cleanup()
        raise
    return connection, folder


def _limit(connection: duckdb.DuckDBPyConnection) -> None:
    """Set the memory limit.

    Raises:
        OperationalError: `DPSQL_MEMORY` is no amount of memory.
    """
    limit = os.environ.get("DPSQL_MEMORY") or MEMORY
    try:
        connection.execute(f"SET memory_limit = {literal(limit)}")
    except duckdb.Error as error:
        connection.close()
        raise OperationalError(
            "DPSQL_MEMORY is no amount of memory", hint=f"write one such as `{MEMORY}`"
        ) from error
