"""Faults of the machine (a full or failing disk, rights, memory) as one typed line, which states the charge.

The end of the line matters most. A curator who does not know whether a release was charged publishes again under
another name, and pays twice. So every stretch of work that spends says for itself what a fault in it means: nothing
was charged, it was, or the same command will find out. In all three the same command is run again.

DuckDB's own words are left out: they may hold a value of the data. They stay with the error as its cause.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import duckdb

from dpsql.errors import MachineFault

FAULTS = (
    OSError,
    MemoryError,
    duckdb.IOException,
    duckdb.OutOfMemoryException,
    duckdb.TransactionException,  # a commit whose log could not be written
    duckdb.FatalException,  # the same, found again by the next statement
    duckdb.InternalException,
    sqlite3.OperationalError,
)
"""What a machine's refusals look like from Python."""

ANEW = "run the same command again"
NOTHING = "nothing was charged"
UNCHARGED = f"{NOTHING}; {ANEW}"
RESERVED = f"the charge is reserved; {ANEW}, nothing is charged twice"
BEGUN = "what had begun stays charged; the same command is charged anew"
CHARGED = f"charged; {ANEW}, nothing is charged twice"
UNSURE = f"{ANEW}: it finds out whether this was charged, nothing is charged twice"

_spending: ContextVar[str | None] = ContextVar("spending", default=None)
"""What is charged by now in the outermost block, in the words of a line's end; None outside of all."""


@contextmanager
def machine(doing: str, then: str) -> Iterator[None]:
    """Say in one line what the machine refused while a block, or a decorated function, ran.

    Ctrl-C and SIGTERM stay what they are, with a note that says what is charged. DuckDB makes a RuntimeError of them.

    Args:
        doing: what was being done, for instance `the release was not written`.
        then: what is charged and what to do.

    Raises:
        MachineFault: a fault of the machine.
    """
    outer = _spending.get()
    _spending.set(outer or "")
    try:
        yield
    except FAULTS as fault:
        raise MachineFault(f"{doing}: {reason(fault)}", hint=advice(told(then), fault)) from fault
    except (KeyboardInterrupt, SystemExit, RuntimeError) as stop:
        if not hasattr(stop, "__notes__"):
            stop.add_note(told(then))
        raise
    finally:
        if outer is None:
            _spending.set(None)


def spending(then: str = UNSURE) -> None:
    """A charge begins: until the outermost `machine` block ends, none says any more that nothing was charged.

    Args:
        then: what is said in its place.
    """
    _spending.set(then)


def told(then: str) -> str:
    """The end of a line, unless a charge has begun since."""
    return (_spending.get() or then) if then.startswith(NOTHING) else then


def advice(then: str, fault: BaseException) -> str:
    """Remedy for a fault: where memory ran out, the same command alone would only run out of it again.

    >>> advice(UNCHARGED, MemoryError())
    'nothing was charged; give the process more memory, then run the same command again'
    """
    return then.replace(ANEW, f"give the process more memory, then {ANEW}") if _is_memory(fault) else then


def _is_memory(fault: BaseException) -> bool:
    return isinstance(fault, MemoryError | duckdb.OutOfMemoryException)


def reason(fault: BaseException) -> str:
    """A fault in a few words, without anything that a row may hold.

    >>> reason(OSError(28, "No space left on device", "shop.dpsql"))
    'No space left on device (shop.dpsql)'
    """
    if isinstance(fault, OSError):
        where = "" if fault.filename is None else f" ({fault.filename})"
        return f"{fault.strerror or type(fault).__name__}{where}"
    if _is_memory(fault):
        return "out of memory"
    return "a database file could not be read or written (is the disk full, closed to you or failing?)"
