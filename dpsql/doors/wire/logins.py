"""The log of logins: who came, from where, when, and whether she was let in. Never a statement.

One line of JSON a login, so that no name can pass for another field, and no character commands a terminal:

    {"time": "2026-11-23T08:00:00Z", "login": "accepted", "role": "ana", "from": "10.0.0.7:5181", "releases": ["a"]}
    {"time": "2026-11-23T08:00:02Z", "login": "refused", "role": "ana", "from": "10.0.0.9:4002", "why": "no TLS"}

Nobody waits for the log. A line that cannot be written at once, or one more refusal in a second than a flood should
fill a disk with, is left out, and the next line says how many were (`left_out`).
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpsql.errors import OperationalError, visible

MOST_NAME = 64
"""Characters of a role that a client names; Postgres has 63."""
MOST_REFUSALS = 50
"""In a second."""


class Log:
    """Writes lines to an open file.

    Args:
        file: its descriptor.
        now: seconds since 1970.
    """

    def __init__(self, file: int, now: Callable[[], float] = time.time) -> None:
        self._file, self._now = file, now
        self._second, self._refusals, self._left_out = 0, 0, 0

    def accepted(self, role: str, place: str, releases: list[str]) -> None:
        """Somebody was let in, and may ask these releases."""
        self._write("accepted", role, place, {"releases": releases})

    def refused(self, role: str, place: str, why: str) -> None:
        """Somebody was not let in."""
        second = int(self._now())
        self._refusals = self._refusals + 1 if second == self._second else 1
        self._second = second
        if self._refusals > MOST_REFUSALS:
            self._left_out += 1
        else:
            self._write("refused", role, place, {"why": why})

    def _write(self, login: str, role: str, place: str, extra: dict[str, Any]) -> None:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._now()))
        left_out = {"left_out": self._left_out} if self._left_out else {}
        line = (
            {"time": moment, "login": login, "role": visible(role)[:MOST_NAME], "from": place}
            | extra
            | left_out
        )
        try:
            if not select.select([], [self._file], [], 0)[1]:  # a pipe that nobody reads
                raise BlockingIOError
            os.write(self._file, (json.dumps(line) + "\n").encode("ascii"))
            self._left_out = 0
        except (OSError, ValueError):  # full, closed or gone: clients are served all the same
            self._left_out += 1


@contextmanager
def login_log(path: Path | None) -> Iterator[Log]:
    """A log at the end of a file that its owner alone can read, made if it is absent; None is standard error.

    Raises:
        OperationalError: it cannot be written.
    """
    if path is None:
        yield Log(sys.stderr.fileno())
        return
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        raise OperationalError(f"cannot write {path}: {error.strerror}", hint="name another file") from error
    try:
        yield Log(file)
    finally:
        os.close(file)
