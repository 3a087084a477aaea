"""Groups that drown in noise: grey in notebooks, hidden by `min_relative_error`.

A group drowns where each of its noisy numbers has a standard error of at least so many times the number itself. Only
answers that name their groups, by a column without noise, have any.

What is left was picked by its noise: small groups that are shown are those that noise made larger. The note says how
many are hidden, so that nobody takes the others for all.

**Privacy**: post-processing of an answer; costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import compress
from typing import Any

from dpsql.answer.errorfunctions import ErrorFunction
from dpsql.answer.result import Grid, Result
from dpsql.errors import InterfaceError

GREY = 0.5
"""From where a group is grey: no number of it is twice its standard error."""


def drowned(result: Result, min_relative_error: float) -> tuple[bool, ...]:
    """Which rows of an answer drown in noise.

    Args:
        result: the answer.
        min_relative_error: standard error over value from which a number counts as drowned, above 0.

    Raises:
        InterfaceError: another number.
    """
    if not 0.0 < min_relative_error < math.inf:
        raise InterfaceError("min_relative_error is a number above 0", hint="for instance 0.5")
    if len(result.noisy) in (0, len(result.columns)):
        return (False,) * len(result.rows)
    pairs = zip(result.rows, result.stderr_rows, strict=True)
    return tuple(
        any(errors[c] is not None for c in result.noisy)
        and all(_is_lost(row[c], errors[c], min_relative_error) for c in result.noisy)
        for row, errors in pairs
    )


def _is_lost(value: Any, error: float | None, at_least: float) -> bool:
    """Whether a number tells nothing: it is NULL, or its error is so large."""
    return value is None or (error is not None and error > 0 and error >= at_least * abs(float(value)))


def hide(result: Result, min_relative_error: float) -> Result:
    """The answer without the groups that drown in noise, and a note of how many there were.

    Args:
        result: the answer.
        min_relative_error: as for `drowned`.

    Raises:
        InterfaceError: no number above 0.
    """
    kept = [not lost for lost in drowned(result, min_relative_error)]
    hidden = len(kept) - sum(kept)
    if not hidden:
        return result

    def grid(error: ErrorFunction, level: float) -> Grid:
        return tuple(compress(result.grid(error, level), kept))

    note = (
        f"{hidden} of {len(kept)} groups are hidden: the standard error of each of their numbers is at least "
        f"{min_relative_error:g} times the number"
    )
    rows = tuple(compress(result.rows, kept))
    return replace(result, rows=rows, grid=grid, notes=(*result.notes, note), flags=(*result.flags, note))
