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

**Spool files** become rows of DuckDB, a portion at a time: Parquet, CSV and JSON lines, and folders of them.

| ending   | a row                                                     | read by |
|----------|-----------------------------------------------------------|---------|
| .parquet | column `report` BLOB                                      | DuckDB, all columns at once |
| .csv     | a header line; column `report`, the bytes in hex          | a block of lines at a time |
| others   | a line of JSON, the report's twin                         | a block of lines at a time |

Each may hold `token` (text) and `epoch` (an integer of 32 bits, else 0) beside the report. CSV is RFC 4180 in UTF-8
with commas, and a field holds no line break; nothing about a file is guessed. Nothing in a file can stop a collection:
what is no report is counted by reason.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import duckdb

from dpsql.catalog.catalog import file_bytes
from dpsql.client.device import MAGIC, encode, from_json
from dpsql.client.oracles import ORACLES
from dpsql.client.plan import Plan, read_plan
from dpsql.engines.duck import private_folder
from dpsql.errors import DataError, InterfaceError, MachineFault, OperationalError
from dpsql.faults import FAULTS, machine, reason
from dpsql.ledger.files import PRIVATE_FILE, put_in_place, sync, write_private
from dpsql.release.write import ReleaseBuilder, registered

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


def _mark(key: bytes) -> bytes:
    """Fingerprint of a key."""
    return hashlib.blake2b(b"", key=key, digest_size=16, person=b"dpsql key").digest()


LARGEST_EPOCH = 2**31 - 1
BLOCK = 1 << 23
"""Bytes of text read at once."""
LONGEST_LINE = 1 << 26
"""Bytes of the longest line that is looked at; a longer one is no report."""
ENDINGS = (".parquet", ".csv", ".jsonl", ".ndjson")
NOT_JSON, NOT_CSV = "not a JSON report of version 1", "not a CSV report"
NO_COLUMN = "no report column of bytes"


class CountedFile(NamedTuple):
    """A file that was counted: hash and size of what it held then."""

    digest: str
    size: int


class Spool(NamedTuple):
    """One file to be counted.

    Args:
        path: the file.
        held: what it held when it was hashed; text that was added since is left for the next time.
        known: text files counted before; lines that one of them held at the head of this file are left out.
        unreadable: what is no report at all, by reason; filled while the file is read.
    """

    path: Path
    held: CountedFile
    known: Sequence[CountedFile]
    unreadable: Counter[str]

    def portions(self, connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
        """Relations in SQL, one after the other: `report` BLOB, never NULL, `token` VARCHAR, `epoch` INTEGER, `place`.

        Each can be read, as often as wanted, until the next is asked for. `place` numbers a file's rows.

        Raises:
            duckdb.Error: here or while a relation is read, a Parquet file that is damaged.
        """
        read = _FORMATS.get(self.path.suffix)
        return read(self, connection) if read else _text(self, connection, NOT_JSON, _json_reports)


def spool_files(paths: Sequence[Path]) -> list[Path]:
    """Files as they are; of folders all spools in them, at any depth.

    Raises:
        OperationalError: a folder without any.
    """
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        spools = sorted(file for file in path.rglob("*") if file.suffix in ENDINGS and file.is_file())
        if not spools:
            raise OperationalError(f"{path} contains no spool", hint=f"spools end in {', '.join(ENDINGS)}")
        files += spools
    return files


def counted_file(path: Path) -> CountedFile:
    """SHA-256 and size of a file's content.

    Raises:
        OperationalError: there is none.
        MachineFault: it cannot be read.
    """
    running, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                running.update(block)
                size += len(block)
    except FileNotFoundError as error:
        raise OperationalError(f"cannot read the spool {path.name}", hint="check the path") from error
    except OSError as error:
        raise MachineFault(f"cannot read the spool {path.name} ({error.strerror})", hint=UNCOUNTED) from error
    return CountedFile(running.hexdigest(), size)


def check_damage(spool: Spool, connection: duckdb.DuckDBPyConnection, error: duckdb.Error) -> None:
    """Tell a file that is damaged, whose reports are lost, from a machine that did not read it and may do so later.

    Args:
        spool: what could not be read.
        connection: reads it once more.
        error: what reading it ended with.

    Raises:
        MachineFault: its bytes cannot be read, are others by now, or are read this time; or memory is short.
    """
    damaged = False
    if counted_file(spool.path) == spool.held:
        try:
            for portion in spool._replace(unreadable=Counter()).portions(connection):
                connection.execute(f"SELECT max(report), max(token), max(epoch) FROM {portion}").fetchall()
        except duckdb.Error as again:
            damaged = not isinstance(again, duckdb.OutOfMemoryException)
    if not damaged:
        raise MachineFault(
            f"{spool.path.name} could not be counted",
            hint=f"check that disk and memory have room and nobody writes the file, and {UNCOUNTED}",
        ) from error


def _parquet(spool: Spool, connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """One relation: the file itself."""
    name = re.sub(r"([*?\[])", r"[\1]", str(spool.path)).replace("'", "''")  # a name is no pattern
    file = f"read_parquet('{name}', hive_partitioning = false)"
    described = connection.execute(f"DESCRIBE SELECT * FROM {file}").fetchall()
    types = {str(row[0]): str(row[1]) for row in described}
    if types.get("report") != "BLOB":
        spool.unreadable[NO_COLUMN] += _number(connection, f"SELECT count(*) FROM {file}")
        return
    token = "CAST(token AS VARCHAR)" if "token" in types else "NULL"
    epoch = "coalesce(TRY_CAST(epoch AS INTEGER), 0)" if "epoch" in types else "0"
    spool.unreadable["no report"] += _number(connection, f"SELECT count(*) - count(report) FROM {file}")
    place = "row_number() OVER () - 1" if "file_row_number" in types else "file_row_number"
    yield (
        f"(SELECT report, CAST({token} AS VARCHAR) AS token, {epoch} AS epoch, {place} AS place "
        f"FROM {file} WHERE report IS NOT NULL)"
    )


def _number(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    return int(connection.execute(query).fetchall()[0][0])


_Read = tuple[str, str | None, int]
"""One line as it stands: the report in hex digits, its token and its epoch."""


def _csv(spool: Spool, connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    names: list[str] | None = None
    with suppress(ValueError, csv.Error, IndexError, StopIteration):
        header = next(_blocks(spool.path, 0, BLOCK))[0]
        names = next(csv.reader([header.decode("utf-8-sig")], strict=True))
    if names is None or "report" not in names:
        for lines in _blocks(spool.path, 0, spool.held.size):
            spool.unreadable[NO_COLUMN] += len(lines)
        spool.unreadable[NO_COLUMN] -= names is not None
        return iter(())
    places: dict[str, int] = {
        name: names.index(name) for name in ("report", "token", "epoch") if name in names
    }
    return _text(
        spool, connection, NOT_CSV, lambda lines: _csv_reports(lines, len(names), places), headed=True
    )


_FORMATS: dict[str, Callable[[Spool, duckdb.DuckDBPyConnection], Iterator[str]]] = {
    ".parquet": _parquet,
    ".csv": _csv,
}


def _text(
    spool: Spool,
    connection: duckdb.DuckDBPyConnection,
    reason: str,
    read: Callable[[Sequence[bytes]], list[_Read]],
    headed: bool = False,
) -> Iterator[str]:
    """A relation a block of lines."""
    start = _counted_part(spool)
    place, skipped = 0, headed and start == 0
    for lines in _blocks(spool.path, start, spool.held.size):
        reports = read(lines[1:] if skipped else lines)
        spool.unreadable[reason] += len(lines) - skipped - len(reports)
        skipped = False
        if not reports:
            continue
        names = ("digits", "token", "epoch")
        columns = {name: list(values) for name, values in zip(names, zip(*reports, strict=True), strict=True)}
        with registered(connection, "block", columns):
            yield (
                "(SELECT from_hex(digits) AS report, CAST(token AS VARCHAR) AS token, CAST(epoch AS INTEGER) "
                f"AS epoch, {place} + row_number() OVER () - 1 AS place FROM block)"
            )
        place += len(reports)


def _blocks(path: Path, start: int, stop: int) -> Iterator[list[bytes]]:
    """Lines of a file between two bytes, some at a time; a line that is too long comes cut."""
    with path.open("rb") as file:
        file.seek(start)
        tail = b""
        while block := file.read(min(BLOCK, stop - file.tell())):
            buffer = tail + block
            # A carriage return at the end may belong to a line feed that is still to come.
            end = max(buffer.rfind(b"\n"), buffer.rfind(b"\r", 0, len(buffer) - 1)) + 1
            tail = buffer[end:][:LONGEST_LINE]
            if end:
                yield buffer[:end].splitlines()
        if tail:
            yield tail.splitlines()


_CANONICAL = re.compile(
    rb'\{"report": ?1, ?"plan": ?"([0-9a-f]{16})", ?"view": ?(0|[1-9][0-9]{0,4}), ?"oracle": ?"([A-Z]{1,9})", ?'
    rb'"payload": ?"((?:[0-9a-f]{2})+)"(?:, ?"token": ?"([ !#-\[\]-~]*)")?(?:, ?"epoch": ?(0|-?[1-9][0-9]{0,8}))?\}'
)
"""A line as `to_json` writes it, perhaps with token and epoch: read in a step. Any other goes through `from_json`."""


def _json_reports(lines: Sequence[bytes]) -> list[_Read]:
    codes = {oracle.name.encode(): oracle.code for oracle in ORACLES}
    magic, reports = MAGIC.hex(), list[_Read]()
    for line in lines:
        plain = _CANONICAL.fullmatch(line)
        if plain is not None:
            plan, view, oracle, payload, token, epoch = plain.groups()
            if int(view) < 1 << 16 and oracle in codes:
                digits = f"{magic}{plan.decode()}{int(view):04x}{codes[oracle]:02x}{payload.decode()}"
                reports.append((digits, None if token is None else token.decode(), int(epoch or 0)))
                continue
        with suppress(ValueError, DataError, RecursionError):
            fields, token, epoch = json.loads(line), None, 0
            if isinstance(fields, dict):
                token, epoch = fields.pop("token", None), fields.pop("epoch", 0)
            report = encode(from_json(json.dumps(fields)))
            whole = type(epoch) is int and abs(epoch) <= LARGEST_EPOCH  # 32 bits
            if whole and (token is None or isinstance(token, str)):
                (token or "").encode()  # fails for half a surrogate pair, which has no bytes to hash
                reports.append((report.hex(), token, epoch))
    return reports


_HEX, _EPOCH = re.compile("(?:[0-9a-fA-F]{2})+"), re.compile("-?[0-9]{1,10}")


def _csv_reports(lines: Sequence[bytes], width: int, places: dict[str, int]) -> list[_Read]:
    reports = list[_Read]()
    for line in lines:
        with suppress(ValueError, csv.Error, StopIteration):
            text = line.decode()
            cells = next(csv.reader([text], strict=True)) if '"' in text else text.split(",")
            if len(cells) == width:
                fields = {name: cells[place] for name, place in places.items()}
                digits, epoch = fields["report"], fields.get("epoch") or "0"
                if _HEX.fullmatch(digits) and _EPOCH.fullmatch(epoch) and abs(int(epoch)) <= LARGEST_EPOCH:
                    reports.append((digits, fields.get("token") or None, int(epoch)))
    return reports


def _counted_part(spool: Spool) -> int:
    """Length of the counted head of a file, in bytes, whole lines only."""
    done, at, running = 0, 0, hashlib.sha256()
    with spool.path.open("rb") as file:
        for digest, length in sorted(spool.known, key=lambda counted: counted.size):
            if at <= length < spool.held.size:
                while at < length:
                    block = file.read(min(BLOCK, length - at))
                    running.update(block)
                    at += len(block)
                if running.hexdigest() == digest:
                    done = length
        if not done:
            return 0
        file.seek(done)
        if file.read(1) in (b"\n", b"\r"):
            return done
        while done:
            start = max(done - BLOCK, 0)
            file.seek(start)
            block = file.read(done - start)
            end = max(block.rfind(b"\n"), block.rfind(b"\r"))
            if end >= 0:
                return start + end + 1
            done = start
    return 0
