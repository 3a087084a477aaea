"""Pictures of an answer for notebooks: bars with error bars, histogram steps, a heat map for two axes.

matplotlib is an extra (`pip install dpsql[plot]`) and is loaded when a picture is drawn.
"""

from __future__ import annotations

import datetime
import decimal
from typing import TYPE_CHECKING, Any

from dpsql.errors import InterfaceError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpsql.answer.result import Result

KINDS = ("bar", "step", "heat")
NUMBERS = (int, float, decimal.Decimal)


def plot(result: Result, kind: str | None = None, *, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Draw an answer with its error bars.

    Args:
        result: one or two key columns, then at least one noisy column; the first of these is drawn.
        kind: `bar`, `step` or `heat`; by default `heat` for two keys, `step` for ordered keys, else `bar`.
        level: of the error bars.
        ax: where to draw; by default a new figure.

    Returns:
        The matplotlib axes.

    Raises:
        InterfaceError: the answer has no noisy column, too many keys, or an unknown kind was asked.
    """
    import matplotlib.pyplot as pyplot

    value = _first_noisy(result)
    chosen = kind or _fitting(result, value)
    if chosen not in KINDS:
        raise InterfaceError(f"there is no plot {chosen!r}", hint=f"one of {', '.join(KINDS)}")
    where = ax if ax is not None else pyplot.subplots()[1]
    if chosen == "heat":
        _heat(result, value, where)
    else:
        _one_key(result, value, where, chosen, level)
    where.set_title(result.columns[value])
    return where


def _first_noisy(result: Result) -> int:
    for i in range(len(result.columns)):
        if any(row[i] is not None for row in result.stderr_rows):
            return i
    raise InterfaceError("the answer has no noisy column", hint="select a COUNT, SUM or AVG")


def _fitting(result: Result, value: int) -> str:
    if value == 2:
        return "heat"
    if value > 2:
        raise InterfaceError(f"the answer has {value} key columns, a picture takes one or two")
    keys = [row[0] for row in result.rows if row[0] is not None]
    ordered = value == 1 and all(
        isinstance(key, (*NUMBERS, datetime.date)) and key is not True for key in keys
    )
    return "step" if ordered and len(keys) > 2 else "bar"


def _one_key(result: Result, value: int, ax: Axes, kind: str, level: float) -> None:
    low, high = result.interval_rows(level)
    rows = [r for r, row in enumerate(result.rows) if row[value] is not None]
    heights = [float(result.rows[r][value]) for r in rows]
    below = [height - _or(low[r][value], height) for r, height in zip(rows, heights, strict=True)]
    above = [_or(high[r][value], height) - height for r, height in zip(rows, heights, strict=True)]
    places = list(range(len(rows)))
    if kind == "step":
        ax.step(places, heights, where="mid")
        ax.errorbar(places, heights, yerr=[below, above], fmt="none", capsize=2)
    else:
        ax.bar(places, heights, yerr=[below, above], capsize=4)
    names = ["all" if value == 0 else _name(result.rows[r][0]) for r in rows]
    shown = places[:: max(1, len(places) // 12)]
    ax.set_xticks(shown, [names[place] for place in shown], rotation=45 if len(places) > 6 else 0)
    ax.set_xlabel(result.columns[0] if value else "")


def _heat(result: Result, value: int, ax: Axes) -> None:
    across = list(dict.fromkeys(row[1] for row in result.rows))
    down = list(dict.fromkeys(row[0] for row in result.rows))
    grid = [[float("nan")] * len(across) for _ in down]
    for row in result.rows:
        if row[value] is not None:
            grid[down.index(row[0])][across.index(row[1])] = float(row[value])
    picture = ax.imshow(grid, aspect="auto")
    ax.set_xticks(range(len(across)), [_name(key) for key in across], rotation=45)
    ax.set_yticks(range(len(down)), [_name(key) for key in down])
    ax.set_xlabel(result.columns[1])
    ax.set_ylabel(result.columns[0])
    ax.figure.colorbar(picture, ax=ax)


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _name(key: Any) -> str:
    return "NULL" if key is None else str(key)
