"""SQLSTATEs of errors, as PostgreSQL's clients expect them."""

from __future__ import annotations

from dpsql import errors


class StatementRefused(errors.ProgrammingError):
    """A statement that PostgreSQL would refuse too.

    Args:
        state: its SQLSTATE.
        message, hint: as of any error.
    """

    def __init__(self, state: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.state = state


STATES = (
    (errors.SqlSyntaxError, "42601"), (errors.UnknownTable, "42P01"), (errors.UnknownName, "42703"),
    (errors.ProgrammingError, "42000"), (errors.NotSupportedError, "0A000"), (errors.DataError, "22000"),
    (errors.QueryTimeout, "57014"), (errors.MemoryTaken, "53200"), (errors.PrivacyError, "42501"),
    (errors.InterfaceError, "08P01"),
)  # fmt: skip
"""The first class that an error is of gives its state."""


def state_of(error: errors.Error) -> str:
    """The SQLSTATE of an error.

    >>> state_of(errors.UnknownTable("there is no table t"))
    '42P01'
    """
    if isinstance(error, StatementRefused):
        return error.state
    return next((state for kind, state in STATES if isinstance(error, kind)), "58000")
