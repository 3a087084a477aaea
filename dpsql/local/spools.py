"""Spool files to rows of DuckDB, a portion at a time: Parquet, CSV and JSON lines, and folders of them.

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
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import duckdb

from dpsql.client.device import MAGIC, encode, from_json
from dpsql.client.oracles import ORACLES
from dpsql.errors import DataError, MachineFault, OperationalError
from dpsql.local.files import UNCOUNTED
from dpsql.release.write import registered

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
    names = _csv_names(spool.path)
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
            reports.append(_json_report(line))
    return reports


def _json_report(line: bytes) -> _Read:
    fields = json.loads(line)
    token, epoch = (
        (fields.pop("token", None), fields.pop("epoch", 0)) if isinstance(fields, dict) else (None, 0)
    )
    report = encode(from_json(json.dumps(fields)))
    if type(epoch) is not int or not (token is None or isinstance(token, str)):
        raise DataError("a token is text and an epoch an integer")
    if abs(epoch) > LARGEST_EPOCH:
        raise DataError("an epoch has 32 bits")
    (token or "").encode()  # fails for half a surrogate pair, which has no bytes to hash
    return report.hex(), token, epoch


_HEX, _EPOCH = re.compile("(?:[0-9a-fA-F]{2})+"), re.compile("-?[0-9]{1,10}")


def _csv_names(path: Path) -> list[str] | None:
    """A CSV file's header; None if it has none that can be read."""
    lines = next(_blocks(path, 0, BLOCK), [])
    with suppress(ValueError, csv.Error, IndexError):
        return next(csv.reader([lines[0].decode("utf-8-sig")], strict=True))
    return None


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
