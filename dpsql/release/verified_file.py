"""The file whose bytes were checked is the one that DuckDB reads.

DuckDB opens a file by its name, after its signature was checked. Meanwhile another file may come under that name. And
a process that has a database open under a name is given that one again, whatever lies there now. So the file is held
open while it is checked and opened, and at the end DuckDB must have the same one open:

| | Linux | macOS | elsewhere |
|---|---|---|---|
| the name leads to the held file, unchanged in size, times and number | yes | yes | yes |
| DuckDB has this file open (device and number of its own descriptor) | yes | yes | no |
| under this name | yes | no | no |

Who may write the file itself can still change it later, in place: DuckDB reads its blocks when they are asked for.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from dpsql.errors import ReleaseError

DESCRIPTORS = Path("/dev/fd")
"""Where systems list what a process has open."""
# A pipe would keep its reader waiting.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class OpenFile(NamedTuple):
    """A file that is open.

    Args:
        path: its name.
        file: open for reading.
        before: what changes with its bytes, as it was.
    """

    path: Path
    file: BinaryIO
    before: tuple[int, ...]

    def check_opened(self) -> None:
        """DuckDB, which has just been told the name, has this very file open, and nobody has changed it since.

        Raises:
            ReleaseError: it has another one, or the file was changed.
        """
        try:
            named, current = _state(self.path.stat()), _state(os.fstat(self.file.fileno()))
        except OSError as error:
            raise unreadable(self.path, error) from error
        if not named == current == self.before:
            raise ReleaseError(f"{self.path} was changed while it was opened", hint="open it again")
        if not self._open_again():
            raise ReleaseError(
                f"another file lay at {self.path} while it was opened",
                hint="close what this process has open from there, and open it again",
            )

    def _open_again(self) -> bool:
        """True if a second descriptor of this process leads to this file, by the same name; True if nobody
        tells."""
        descriptor = self.file.fileno()
        try:
            numbers = [int(link.name) for link in DESCRIPTORS.iterdir()]
        except OSError:
            return True
        return any(
            _number(number) == self.before[:2] and _name(number) == _name(descriptor)
            for number in numbers
            if number != descriptor
        )


@contextmanager
def held(path: Path) -> Iterator[OpenFile]:
    """Keep a file open while a block runs.

    Args:
        path: a regular file.

    Raises:
        ReleaseError: it cannot be read.
    """
    try:
        file = os.fdopen(os.open(path, _FLAGS), "rb")
    except OSError as error:
        raise unreadable(path, error) from error
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ReleaseError(f"there is no release at {path}", hint="it is not a file")
        yield OpenFile(path, file, _state(status))


def unreadable(path: Path, error: OSError) -> ReleaseError:
    """The error of a file that the system does not let read."""
    return ReleaseError(f"{path} cannot be read ({error.strerror})", hint="check its rights")


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _number(descriptor: int) -> tuple[int, ...]:
    """Device and number of what a descriptor leads to; nothing for one that another thread has closed."""
    try:
        return _state(os.fstat(descriptor))[:2]
    except OSError:
        return ()


def _name(descriptor: int) -> str:
    """The name that a descriptor was opened by; nothing where the system does not tell."""
    try:
        return str((DESCRIPTORS / str(descriptor)).readlink())
    except OSError:
        return ""
