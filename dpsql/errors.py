"""Every error that dpsql raises, under the names that PEP 249 gives to database modules.

    Exception
    |-- Warning                        something worth saying, nothing failed
    `-- Error                          exit code
        |-- InterfaceError             2   the call itself is wrong (no release named, a closed cursor)
        `-- DatabaseError              2
            |-- DataError              1   a value in the statement is out of range
            |-- OperationalError       2   a file cannot be opened, read or written
            |   |-- ReleaseError       2   not a release file, a damaged one, or another format
            |   |-- SourceError        2   the raw side does not hold what the catalog says
            |   |-- MachineFault       4   a full disk, rights, memory, a lock; the line says what is charged
            |   |   `-- EngineLost     4   the engine that holds the rows was lost, refused, or took too long
            |   |-- QueryTimeout       1   the statement was stopped
            |   |   `-- Interrupted  130   by Ctrl-C
            |   |-- MemoryTaken        2   other answers hold the memory that a server has for them
            |   `-- BatchOrderError    2   a batch of a stream that is not the next one, or past the horizon
            |-- IntegrityError         3   release and ledger disagree; spending has stopped
            |-- InternalError          2   a promise inside dpsql was broken; nothing was published
            |-- ProgrammingError       1   the statement is wrong
            |   |-- SqlSyntaxError     1   it does not parse, or it passes a guard's limit
            |   |-- UnknownName        1   a table or column that the release does not have
            |   |   `-- UnknownTable   1   it is a table
            |   `-- CatalogError       2   the catalog is wrong (file, key path, what to write instead)
            |-- NotSupportedError      1   a valid statement that no release can answer
            |   |-- NoViewError        1   no view holds all the axes that the statement needs
            |   |   `-- PartialBinError 1  views hold them, in bins that the statement cuts
            |   `-- RawRowsError       1   the statement asks for rows of people
            `-- PrivacyError           3   answering or publishing would break the promise
                |-- BudgetExceeded     3   the lineage's cap does not hold this spend
                |-- LineageError       3   unknown or contradicting budget identity
                |-- ReleaseExists      3   the label was already used for another specification
                `-- BatchConflict      3   a `append --check`: a public batch was made of other rows

A message is one line: what happened, where, and what to do. It is built from the statement and the
catalog alone and never holds a value from the data.
"""

from __future__ import annotations

import re
from typing import Self

UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that command a terminal, turn its text around, or cannot be written: none is ever shown as it is."""


def visible(text: str) -> str:
    """A text that may come from anybody, safe to show on a terminal: what commands it is written as its code.

    >>> print(visible("shop\\x1b[2J"))
    shop\\x1b[2J
    """
    return UNSEEN.sub(lambda match: ascii(match.group())[1:-1], text)


def visible_lines(text: str) -> str:
    """The same for a text of several lines, which stay lines."""
    return "\n".join(map(visible, text.split("\n")))


class Warning(Exception):
    """Something worth saying; the call went on."""


class Error(Exception):
    """The root of all dpsql errors.

    Args:
        message: one line that says what happened.
        hint: what to do about it, or an empty string.
    """

    exit_code = 2

    clause: str = ""
    """The part of the statement that was refused: SELECT, FROM, WHERE .. or empty."""
    position: tuple[int, int] | None = None
    """First and last character of that part in the statement."""
    caret: str = ""
    """The statement's line with carets under that part, two lines."""
    nearest: str = ""
    """The nearest statement that works, or empty."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.reason, self.hint = visible(message), visible(hint)
        super().__init__(f"{self.reason}; {self.hint}" if hint else self.reason)

    def at(self, clause: str, position: tuple[int, int] | None = None, nearest: str = "") -> Self:
        """The same error, which says where in the statement it arose."""
        self.clause, self.position, self.nearest = clause, position, nearest
        return self


class InterfaceError(Error):
    """The call itself is wrong: no release named, a closed cursor, a bad argument."""


class DatabaseError(Error):
    """Anything that went wrong beyond the interface."""


class DataError(DatabaseError):
    """A value in the statement cannot be used, for instance a date out of range."""

    exit_code = 1


class OperationalError(DatabaseError):
    """A file cannot be opened, read or written."""


class ReleaseError(OperationalError):
    """Not a release file, a damaged one, or one of another format."""


class SourceError(OperationalError):
    """The raw side does not hold what the catalog says. Shown to the curator only."""


class MachineFault(OperationalError):
    """The machine refused: a full or failing disk, rights, memory, a lock. The line says what is charged."""

    exit_code = 4


class EngineLost(MachineFault):
    """The engine that holds the raw rows was lost, refused, or took too long. Shown to the curator only."""


class QueryTimeout(OperationalError):
    """The statement ran longer than allowed and was stopped."""

    exit_code = 1


INTERRUPTED, TERMINATED = 130, 143
"""Exit codes of what Ctrl-C and SIGTERM ended, as shells have them."""


class Interrupted(QueryTimeout):
    """Ctrl-C stopped the statement."""

    exit_code = INTERRUPTED


class MemoryTaken(OperationalError):
    """Other answers hold the memory that a server has for them; the same statement may be answered later."""


class BatchOrderError(OperationalError):
    """A batch of a stream came before the ones it follows, or past the horizon. Shown to the curator only."""


class IntegrityError(DatabaseError):
    """Release and ledger disagree, or the ledger's chain is broken; spending has stopped."""

    exit_code = 3


class InternalError(DatabaseError):
    """A promise inside dpsql was broken. Nothing was published."""


class ProgrammingError(DatabaseError):
    """The statement is wrong."""

    exit_code = 1


class SqlSyntaxError(ProgrammingError):
    """The statement does not parse, or it passes a guard's limit."""


class UnknownName(ProgrammingError):
    """A table or column that the release does not have."""


class UnknownTable(UnknownName):
    """A table that the release does not have."""


class CatalogError(ProgrammingError):
    """The catalog is wrong. The message names the file, the key path and what to write instead."""

    exit_code = 2


class NotSupportedError(DatabaseError):
    """A valid statement that no release can answer."""

    exit_code = 1


class NoViewError(NotSupportedError):
    """No view holds all the axes that the statement needs."""


class PartialBinError(NoViewError):
    """More than half of an answer would be interpolated, since the statement cuts bins."""


class RawRowsError(NotSupportedError):
    """The statement asks for rows of people; a release contains no rows."""


class PrivacyError(DatabaseError):
    """Answering or publishing would break the privacy promise."""

    exit_code = 3


class BudgetExceeded(PrivacyError):
    """The lineage's cap does not hold this spend."""


class LineageError(PrivacyError):
    """An unknown budget identity, or one that contradicts its first use."""


class ReleaseExists(PrivacyError):
    """The label was already used for another specification; a second draw would cost again."""


class BatchConflict(PrivacyError):
    """`append --check`: a public batch was made of other rows. Shown to the curator only."""
