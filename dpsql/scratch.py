"""One DuckDB of this process for small work: an instance takes 15 ms of CPU to start, a database attached to it one.

Each caller works in a database of its own, in memory or a file, which nobody else sees by its names and which is gone,
or closed, afterwards. Raw rows are read, releases are answered from and a ledger is opened by instances of their own,
with settings of their own.

A file that nobody may read yet is a **draft**: it bears a mark where DuckDB looks for its own, from before the first
table is in it. DuckDB writes its own once, when it makes the file, and whoever opens a draft is told that it is no
database. `shown_bytes` is what the file holds without the mark.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import duckdb

MARK = b"dpsq"
_MAGIC, _PLACE = b"DUCK", 8
_BLOCK = 1 << 20

_lock = threading.Lock()
_numbers = itertools.count()
_instances: list[duckdb.DuckDBPyConnection] = []
"""At most one; its names for Python's variables are off."""
_unusable: list[duckdb.DuckDBPyConnection] = []
"""Never closed: a fork has no copy of the threads that closing waits for."""


def _forget() -> None:
    _unusable.extend(_instances)
    _instances.clear()


os.register_at_fork(after_in_child=_forget)


def _instance() -> duckdb.DuckDBPyConnection:
    with _lock:
        if not _instances:
            _instances.append(duckdb.connect(":memory:", config={"python_enable_replacements": "false"}))
        return _instances[0]


@contextmanager
def scratch(
    file: Path | None = None, *, block_size: int = 0, read_only: bool = False, draft: bool = False
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection whose default database is an empty one in memory, or a file.

    Args:
        file: opened, or made if it is not there; closed at the end of the block.
        block_size: bytes of a new file's blocks; 0 leaves it to DuckDB.
        read_only: whether the file is only read.
        draft: whether a new file is a draft.

    Raises:
        duckdb.Error: the file cannot be opened.
        OSError: the mark cannot be written.
    """
    instance, name = _instance(), f"scratch_{next(_numbers)}"
    place = ":memory:" if file is None else str(file.absolute()).replace("'", "''")
    options = ", ".join([f"BLOCK_SIZE {block_size}"] * bool(block_size) + ["READ_ONLY"] * read_only)
    connection = instance.cursor()
    try:
        connection.execute(f"ATTACH '{place}' AS {name}" + (f" ({options})" if options else ""))
        try:
            if file is not None and draft:
                _mark(file)
            connection.execute(f"USE {name}")
            yield connection
        finally:
            connection.close()
            with instance.cursor() as last:
                last.execute(f"DETACH {name}")
    except duckdb.FatalException:  # the whole instance answers nothing from now on
        _forget()
        raise
    finally:
        connection.close()


def _mark(file: Path) -> None:
    """Make a draft of a database that DuckDB has just begun."""
    with file.open("r+b") as opened:
        opened.seek(_PLACE)
        opened.write(MARK)


def shown_bytes(file: BinaryIO) -> Iterator[bytes]:
    """All bytes of a file in blocks; those of a draft as they will be once it is shown.

    Args:
        file: at its beginning.
    """
    first = file.read(_PLACE + len(MARK))
    yield first[:_PLACE] + _MAGIC if first[_PLACE:] == MARK else first
    while block := file.read(_BLOCK):
        yield block
