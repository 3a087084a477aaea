"""Groups that drown in noise: grey in notebooks, hidden by `min_relative_error`.

A group drowns where each of its noisy numbers has a standard error of at least so many times the number itself, or an
interval with an open end. Only answers that name their groups, by a column without noise, have any.

What is left was picked by its noise: small groups that are shown are those that noise made larger. The note says how
many are hidden, so that nobody takes the others for all.

**Privacy**: post-processing of an answer; costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import compress, islice

from dpsql.answer.errorfunctions import ErrorFunction
from dpsql.answer.result import Grid, Result
from dpsql.errors import InterfaceError


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
    rows = zip(result.rows, result.noise_rows, result.unreliable(min_relative_error), strict=True)
    return tuple(
        any(noise[c] is not None for c in result.noisy)
        and all(row[c] is None or weak[c] for c in result.noisy)
        for row, noise, weak in rows
    )


def hide(result: Result, min_relative_error: float) -> Result:
    """The answer without the groups that drown in noise, and a note of how many there were.

    Args:
        result: the answer.
        min_relative_error: as for `drowned`.

    Raises:
        InterfaceError: no number above 0.
    """
    visible = [not lost for lost in drowned(result, min_relative_error)]
    hidden = len(visible) - sum(visible)
    if not hidden:
        return result

    def grid(error: ErrorFunction, level: float, row_limit: int | None) -> Grid:
        return tuple(islice(compress(result.grid(error, level, None), visible), row_limit))

    note = (
        f"{hidden} of {len(visible)} groups are hidden: the standard error of each of their numbers is at least "
        f"{min_relative_error:g} times the number"
    )
    rows = tuple(compress(result.rows, visible))
    return replace(result, rows=rows, grid=grid, notes=(*result.notes, note), flags=(*result.flags, note))
