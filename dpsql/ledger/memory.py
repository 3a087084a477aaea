"""Memory of this computer for spends, by which a ledger that begins anew is noticed.

A catalog that was moved or cloned begins a ledger of its own, with a full cap. So each charge leaves a trace outside of
ledgers and catalogs, in `$DPSQL_STATE`, else `$XDG_STATE_HOME/dpsql`, else `~/.local/state/dpsql`: pairs of keyed
digests, one of the lineage's name, one of a table's place or of its rows. A table is refused if the file knows it and
the ledger at hand has charged none of its lineages, unless `--new-ledger` says that these are other people.

It is a warning and not the ledger: it is written after the charge, and where it cannot be read or written, publishing
goes on and the receipt says why. Two publishes of one table that run at the same moment do not see each other, and a
kill between the charge and the row leaves no row.

**Privacy**: no name, no path and no row of data. The key lies in the same file, mode 0600: whoever reads it can test a
guess of a path, of a lineage's name, or of all rows of a table together.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dpsql.errors import LineageError
from dpsql.ledger.files import PRIVATE_DIRECTORY, PRIVATE_FILE, write_json
from dpsql.noise import os_entropy

VARIABLE = "DPSQL_STATE"
"""The environment variable that names the folder."""

MOST_ROWS = 10_000
"""Beyond, the rows that were written longest ago are dropped."""

_FORMAT = "dpsql-memory-1"
_LARGEST = 1 << 22
_PATIENCE = 5.0
"""Seconds to wait for another program that writes the file, which takes milliseconds."""


class MemoryFault(Exception):
    """Reason why nothing is remembered: for the receipt, never raised past this module."""


class _Remembered(NamedTuple):
    """The content of the file.

    Args:
        key: of the digests.
        rows: (digest of a lineage, digest of a table), the newest last.
    """

    key: bytes
    rows: list[tuple[str, str]]

    def digest(self, kind: str, text: str) -> str:
        """A keyed digest of 128 bits."""
        return hmac.new(self.key, f"{kind}:{text}".encode(), hashlib.sha256).hexdigest()[:32]


@dataclass(frozen=True)
class LedgerMemory:
    """The memory of one computer.

    Args:
        folder: where its file lies; None where nobody can say.
        new_ledger: whether tables that were spent on in another ledger are taken: they are about other people.
    """

    folder: Path | None
    new_ledger: bool = False

    @property
    def file(self) -> Path:
        """The file.

        Raises:
            MemoryFault: there is no folder.
        """
        if self.folder is None:
            raise MemoryFault(f"there is no home folder; set {VARIABLE}")
        return self.folder / "spends.json"

    def check(self, lineage: str, charged: Collection[str], tables: Mapping[str, Iterable[str]]) -> None:
        """Refuse a table that another ledger has charged.

        Args:
            lineage: whose budget is to be spent.
            charged: lineages that the ledger at hand has charged.
            tables: table -> its marks: places and digests of rows.

        Raises:
            LineageError: a mark is remembered, and of no lineage of this ledger.
        """
        if self.new_ledger:
            return
        try:
            remembered = _read(self.file)
        except (MemoryFault, OSError):
            return  # `remember` says so
        charged_digests = {remembered.digest("lineage", name) for name in charged}
        spenders: dict[str, set[str]] = {}
        for owner, mark in remembered.rows:
            spenders.setdefault(mark, set()).add(owner)
        for table, marks in tables.items():
            for mark in marks:
                owners = spenders.get(remembered.digest("table", mark), set())
                if owners and not owners & charged_digests:
                    raise _refusal(lineage, table, remembered.digest("lineage", lineage) in owners)

    def remember(self, lineage: str, marks: Iterable[str]) -> str:
        """Write down what was charged.

        Args:
            lineage: whose budget was spent.
            marks: of the tables that were read.

        Returns:
            Why nothing was remembered; empty where it was.
        """
        try:
            file = self.file
            file.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            with _locked(file.with_name(file.name + ".lock")):
                remembered = _read(file)
                owner = remembered.digest("lineage", lineage)
                fresh = dict.fromkeys((owner, remembered.digest("table", mark)) for mark in marks)
                rows = [row for row in remembered.rows if row not in fresh] + list(fresh)
                content = {"format": _FORMAT, "key": remembered.key.hex(), "rows": rows[-MOST_ROWS:]}
                write_json(file, content)
        except MemoryFault as fault:
            return str(fault)
        except OSError as fault:
            return str(fault.strerror or type(fault).__name__)
        return ""


def memory_of_this_computer(*, new_ledger: bool) -> LedgerMemory:
    """The memory that the environment names.

    Args:
        new_ledger: as of `LedgerMemory`.
    """
    return LedgerMemory(_state_folder(), new_ledger)


def _state_folder() -> Path | None:
    if named := os.environ.get(VARIABLE):
        return Path(named).absolute()
    base = Path(os.environ.get("XDG_STATE_HOME") or "")
    if base.is_absolute():  # the specification says that a relative one does not count
        return base / "dpsql"
    try:
        return Path.home() / ".local" / "state" / "dpsql"
    except RuntimeError:
        return None


def _refusal(lineage: str, table: str, is_same: bool) -> LineageError:
    hint = "give --ledger PATH, or --new-ledger if these are other people"
    if is_same:
        return LineageError(f"lineage `{lineage}` has spent before, in another ledger", hint=hint)
    return LineageError(f"another lineage has spent on table `{table}` before, in another ledger", hint=hint)


def _read(file: Path) -> _Remembered:
    """The content of the file; a fresh key and no rows where there is none.

    Raises:
        MemoryFault: it is damaged.
        OSError: it cannot be read.
    """
    try:
        with file.open("rb") as stream:
            content = json.loads(stream.read(_LARGEST))
        rows = [(str(owner), str(mark)) for owner, mark in content["rows"]]
        key = bytes.fromhex(content["key"])
        if content["format"] != _FORMAT or len(key) != 32:
            raise ValueError
    except FileNotFoundError:
        return _Remembered(os_entropy()(32), [])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MemoryFault(f"{file} is damaged; remove it") from error
    return _Remembered(key, rows)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Exclude other programs. The lock file stays empty: who holds it would be a name.

    Raises:
        MemoryFault: another program holds it for too long.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    try:
        start = time.monotonic()
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - start > _PATIENCE:
                    raise MemoryFault(f"{path} is locked by another program") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)
