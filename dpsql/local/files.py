"""Files of a collection: plans, the collector's private state with the key of its tokens, and the release.

Each is read or refused in one line, and written whole or not at all. Plans are public; state and key are readable by
their owner alone. Tokens are pseudonyms that can be guessed. They are kept hashed under a secret key, so the key is
whole or not there, and a state goes on under its own key alone: under another one every token would count once more.

| a crash leaves | the next run |
|---|---|
| `<state>.key.new` or `<state>.new` | makes it anew |
| a key without a state | uses it |
| a state | has its key: that was renamed into place first |

DuckDB makes files with the machine's default mode. So the state is made aside, holding public facts, and gets its mode
before its name; and every commit goes to the file itself, without a log beside it. What does not fit in memory goes to
a folder that nobody else may read, tokens hashed.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from contextlib import suppress
from pathlib import Path

import duckdb

from dpsql.catalog.catalog import file_bytes
from dpsql.client.plan import Plan, read_plan
from dpsql.engines.duck import private_folder
from dpsql.errors import DataError, InterfaceError, MachineFault, OperationalError
from dpsql.faults import FAULTS, machine, reason
from dpsql.ledger.files import PRIVATE_FILE, put_in_place, sync, write_private
from dpsql.release.write import ReleaseBuilder

LARGEST_PLAN = 64 * 2**20
UNCOUNTED = "run the same command again; no report is counted twice"


def plan_file(path: Path) -> Plan:
    """Read a plan file.

    Args:
        path: the file.

    Returns:
        The checked plan.

    Raises:
        OperationalError: it cannot be read, or is no plan.
        PrivacyError: its weights cost more than its epsilon.
    """
    try:
        return read_plan(file_bytes(path, LARGEST_PLAN))
    except OSError as error:
        raise OperationalError(
            f"cannot read the plan {path.name} ({error.strerror})", hint="check the path"
        ) from error
    except DataError as error:
        raise OperationalError(
            f"{path.name}: {error.reason}", hint="make one with `dpsql collection-plan CATALOG -o PLAN`"
        ) from error


def check_folder(path: Path) -> None:
    """Refuse a file to be made in a folder that is not there, before any work is done for it.

    Raises:
        OperationalError: with the folder's name.
    """
    if path.is_dir():
        raise OperationalError(f"{path} is a folder", hint="name a file in it")
    if not path.parent.is_dir():
        raise MachineFault(f"there is no folder {path.parent}", hint="make it, or name another file")


def write_plan_file(path: Path, raw: bytes) -> None:
    """Write a plan, unless another one is there: people may have answered it, and their reports name its bytes.

    Raises:
        OperationalError: another plan is there, or the file cannot be written.
    """
    check_folder(path)
    fresh = path.with_name(path.name + ".new")
    try:
        if path.exists():
            if path.read_bytes() == raw:
                return
            raise OperationalError(
                f"{path.name} contains something else, perhaps a plan that people have answered",
                hint="name another file, or remove it if nobody uses it",
            )
        fresh.write_bytes(raw)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise unwritable(path, error) from error


def write_release_file(
    path: Path, content: ReleaseBuilder, seed: bytes | None, then: str = UNCOUNTED
) -> None:
    """Write a release beside its name, make it durable and read-only, and rename it into place.

    Args:
        path: where.
        content: what it holds.
        seed: the secret key that signs it; None leaves it unsigned.
        then: what to do where it cannot be written.

    Raises:
        OperationalError: the file cannot be written; nothing stays behind.
    """
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.unlink(missing_ok=True)  # what a killed run left
        content.write(fresh, seed)
        fresh.chmod(0o444)
        sync(fresh)
        fresh.replace(path)
    except FAULTS as error:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise unwritable(path, error, then) from error
    with machine(f"{path} is whole, but a power cut may still lose it", "run `sync`"):
        sync(path.parent)


def unwritable(path: Path, fault: BaseException, then: str = UNCOUNTED) -> MachineFault:
    """The error of a file that the system refuses to write."""
    return MachineFault(f"cannot write {path}: {reason(fault)}", hint=then)


KEY_BYTES = 32
MEMORY, MOST_THREADS = "1GB", 4
"""Of a collector, whatever the number of reports; what is more goes to a folder of its owner's alone."""
SCHEMA = """
CREATE TABLE plan (hash BLOB PRIMARY KEY, key BLOB);
CREATE TABLE file (hash VARCHAR PRIMARY KEY, name VARCHAR, reports BIGINT, accepted BIGINT);
CREATE TABLE size (file VARCHAR PRIMARY KEY, bytes BIGINT);
CREATE TABLE rejected (file VARCHAR, reason VARCHAR, reports BIGINT);
CREATE TABLE tally (file VARCHAR, view INTEGER, fold INTEGER, item INTEGER, support BIGINT);
CREATE TABLE people (file VARCHAR, view INTEGER, fold INTEGER, reports BIGINT);
CREATE TABLE held (part UTINYINT, token UHUGEINT, epoch INTEGER, report BLOB);
"""
BACKUP = "bring it back; without it begin with a new state and all spools"


def token_key(state: Path | None, fresh: bytes) -> bytes:
    """The secret under which tokens are hashed: a kept state's own, made once and whole.

    Args:
        state: the state file; without one nothing is kept.
        fresh: 32 secret bytes, used if there is no state yet.

    Raises:
        InterfaceError: `fresh` has another length.
        OperationalError: the state's key is gone, has another length or is open to others, or cannot be written.

    **Privacy**: without the key, hashed tokens tell nothing about the pseudonyms; under a short or empty one they do.
    """
    if state is None:
        return fresh
    if len(fresh) != KEY_BYTES:
        raise InterfaceError(
            f"a key of tokens has {KEY_BYTES} bytes", hint="draw it from the system's entropy"
        )
    file = state.with_name(state.name + ".key")
    try:
        if file.exists():
            check_private(file)
            key = file.read_bytes()
            if len(key) != KEY_BYTES:
                raise OperationalError(
                    f"{file.name} has {len(key)} bytes, a key has {KEY_BYTES}", hint=BACKUP
                )
            return key
        if state.exists():
            raise OperationalError(f"the state {state.name} is here, its key {file.name} is not", hint=BACKUP)
        write_private(file, fresh)
    except OSError as error:
        raise unwritable(file, error) from error
    return fresh


def check_private(file: Path) -> None:
    """Refuse a private file that others can read or write.

    Raises:
        OperationalError: with the file's name.
    """
    if file.stat().st_mode & 0o077:
        raise OperationalError(f"{file.name} is open to others", hint="chmod 600 it and find out why")


def check_state(path: Path) -> None:
    """Refuse a file that is no private DuckDB database; DuckDB itself would read some text files as one.

    Raises:
        OperationalError: it is something else, open to others, or its folder is not there.
    """
    check_folder(path)
    if not path.exists():
        return
    with path.open("rb") as file:
        if file.read(12)[8:] != b"DUCK":
            raise OperationalError(f"{path.name} is not the state of a collection", hint="name a new file")
    check_private(path)


def open_state(plan: Plan, path: Path | None = None, key: bytes = b"") -> duckdb.DuckDBPyConnection:
    """Open a collection's state, making it if there is none.

    Args:
        plan: the collection's plan; a state belongs to one plan.
        path: where it is kept; memory if None.
        key: of its tokens.

    Returns:
        The connection.

    Raises:
        DataError: the state belongs to another plan.
        OperationalError: it cannot be made or opened, or belongs to another key.
    """
    if path is None:
        state = connect_file(None)
        _fill(state, plan, b"")
        return state
    if not path.exists():
        _make(plan, path, key)
    state = connect_file(path)
    try:
        _check_owner(state, plan, path, key)
    except BaseException:
        state.close()
        raise
    return state


def _make(plan: Plan, path: Path, key: bytes) -> None:
    """Make the file aside, give it its mode and then its name."""
    aside = path.with_name(path.name + ".new")
    try:
        aside.unlink(missing_ok=True)
        state = connect_file(aside)
        try:
            _fill(state, plan, _mark(key))
            state.execute("CHECKPOINT")  # closing would do it too, and not say that it failed
        finally:
            state.close()
        put_in_place(aside, path, PRIVATE_FILE)
    except OSError as error:
        raise unwritable(path, error) from error


def connect_file(path: Path | None) -> duckdb.DuckDBPyConnection:
    """A database for reports, in a file or in memory, which spills to a folder of its own.

    Raises:
        OperationalError: it cannot be opened.
    """
    spill = private_folder()
    try:
        state = duckdb.connect(
            ":memory:" if path is None else str(path),
            config={"python_enable_replacements": "false", "temp_directory": spill.name},
        )
    except duckdb.Error as error:
        spill.cleanup()
        raise MachineFault(
            f"cannot open the state {path}", hint=f"if it is damaged, bring back its last copy; {UNCOUNTED}"
        ) from error
    weakref.finalize(state, spill.cleanup)
    state.execute("SET wal_autocheckpoint = '0KB'")
    state.execute(f"SET threads = {min(os.cpu_count() or 1, MOST_THREADS)}")
    state.execute(f"SET memory_limit = '{MEMORY}'")
    state.execute("SET preserve_insertion_order = false")
    return state


def _fill(state: duckdb.DuckDBPyConnection, plan: Plan, mark: bytes) -> None:
    state.execute(SCHEMA)
    state.execute("INSERT INTO plan VALUES (?, ?)", [plan.hash, mark])


def _check_owner(state: duckdb.DuckDBPyConnection, plan: Plan, path: Path, key: bytes) -> None:
    """Refuse another plan's state, and a key that is not this state's."""
    try:
        ((hashed, mark),) = state.execute("SELECT hash, key FROM plan").fetchall()
    except (duckdb.Error, ValueError) as error:
        raise OperationalError(
            f"{path.name} is not the state of a collection", hint="name a new file"
        ) from error
    if bytes(hashed) != plan.hash:
        raise DataError("this collection state belongs to another plan", hint="name a fresh state file")
    if bytes(mark) != _mark(key):
        raise OperationalError(
            f"the key beside {path.name} is not the one its tokens were hashed with", hint=BACKUP
        )


def _mark(key: bytes) -> bytes:
    """Fingerprint of a key."""
    return hashlib.blake2b(b"", key=key, digest_size=16, person=b"dpsql key").digest()
