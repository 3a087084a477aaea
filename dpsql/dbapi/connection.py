"""PEP 249 connections: open releases, read-only, without transactions."""

from __future__ import annotations

from types import TracebackType

from dpsql import errors
from dpsql.dbapi.binding import Parameters
from dpsql.dbapi.cursor import Cursor
from dpsql.errors import InterfaceError
from dpsql.session import OpenReleases, Settings


class Connection:
    """Open releases. Threads may share it (threadsafety 2); each needs a cursor of its own.

    `SET dp_nonnegative = true` holds for all its cursors, until it is closed.
    """

    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError

    def __init__(self, session: OpenReleases) -> None:
        self.session = session
        self.settings = Settings()
        self._closed = False

    def cursor(self) -> Cursor:
        """A new cursor."""
        self.check_open()
        return Cursor(self)

    def execute(self, operation: str, parameters: Parameters | None = None) -> Cursor:
        """A new cursor with the statement's answer."""
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """Nothing to commit: a release is never written."""
        self.check_open()

    def rollback(self) -> None:
        """Nothing to undo: a release is never written."""
        self.check_open()

    def close(self) -> None:
        """Close the releases.

        Raises:
            InterfaceError: it is closed already.
        """
        self.check_open()
        self._closed = True
        self.session.close()

    def check_open(self) -> None:
        """Refuse a closed connection.

        Raises:
            InterfaceError: it is closed.
        """
        if self._closed:
            raise InterfaceError("the connection is closed", hint="call dpsql.connect again")

    def __enter__(self) -> Connection:
        """This connection; closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, unless the block did."""
        if not self._closed:
            self.close()
