"""Make and open the private state file of a stream release: mode 0600, in a directory of mode 0700."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from dpsql.errors import IntegrityError, OperationalError
from dpsql.ledger.files import PRIVATE_DIRECTORY, PRIVATE_FILE, sync
from dpsql.publishing.stream_state import StreamState

FORMAT = "2"

TABLES = """
CREATE TABLE setting (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE batch (number INTEGER PRIMARY KEY, digest BLOB NOT NULL, segment TEXT);
CREATE TABLE prefix_sum (position INTEGER, statistic INTEGER, sums BLOB NOT NULL, PRIMARY KEY (position, statistic));
CREATE TABLE noise (node INTEGER, statistic INTEGER, until INTEGER NOT NULL, draw BLOB NOT NULL,
                    PRIMARY KEY (node, statistic));
CREATE TABLE outbox (id INTEGER PRIMARY KEY, batch INTEGER NOT NULL, statistic INTEGER NOT NULL,
                     level INTEGER NOT NULL, lo INTEGER NOT NULL, hi INTEGER NOT NULL, noised BLOB NOT NULL);
CREATE TABLE contributor (person BLOB PRIMARY KEY, batches INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE left_out (batch INTEGER, rule TEXT, rows INTEGER NOT NULL, PRIMARY KEY (batch, rule));
"""


def create_state(path: Path, settings: dict[str, str], secret: bytes) -> None:
    """Make the private state of a new stream release, mode 0600 in a directory of mode 0700.

    Args:
        path: must not exist.
        settings: texts that never change, for instance release_id and strategy.
        secret: 32 random bytes for digests and counters.

    Raises:
        OperationalError: the file exists already or cannot be made.
    """
    try:
        path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
    except OSError as error:
        raise OperationalError(f"the private state {path} cannot be made ({error.strerror})") from error
    fixed = {
        **{key: text.encode() for key, text in settings.items()},
        "format": FORMAT.encode(),
        "secret": secret,
    }
    with closing(sqlite3.connect(path)) as database:
        database.executescript(f"BEGIN; {TABLES}")
        database.executemany("INSERT INTO setting VALUES (?, ?)", sorted(fixed.items()))
        database.commit()
    sync(path.parent)


def open_state(path: Path) -> StreamState:
    """Open the private state; an unfinished transaction is rolled back by SQLite.

    Raises:
        OperationalError: there is none, it is not private, or it is no stream state.
    """
    if not path.is_file():
        raise OperationalError(f"there is no private state {path}", hint="name the one made with the release")
    if path.stat().st_mode & 0o077:
        raise OperationalError(
            f"the private state {path} is open to others", hint="chmod 600 it and find out why"
        )
    database = sqlite3.connect(path, isolation_level=None, timeout=0)
    state = StreamState(path, database)
    try:
        database.execute(
            "PRAGMA synchronous = EXTRA"
        )  # the directory too: a lost journal would undo a decision
        version = state.setting("format").decode()
    except (sqlite3.DatabaseError, IntegrityError) as error:
        database.close()
        raise OperationalError(
            f"{path} is no stream state", hint="name the one made with the release"
        ) from error
    if version != FORMAT:
        database.close()
        raise OperationalError(
            f"{path} has state format {version}", hint=f"this version reads format {FORMAT}"
        )
    return state
