"""Numbers and their margins as text: `12 345 ± 62`, and `7 366 -1 058/+1 605` where an interval is lopsided.

A margin is written so that its text gives the ends of the interval back to its last digit.
"""

from __future__ import annotations

import decimal
import math
import re
from typing import Any

from dpsql.errors import visible

NUMBERS = (int, float, decimal.Decimal)
MARGIN = re.compile(r" (?=± |-(?:[\d. ]+|∞)/\+)")
"""Where the margin of a number's text begins."""


def number(value: Any, margin: float | None = None) -> str:
    """A number with thin grouping, rounded to what its margin supports.

    >>> number(12345.678, 62.4), number(0.123456, 0.01), number(None)
    ('12 346', '0.123', 'NULL')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        return visible(str(value))
    if margin is None and isinstance(value, int):
        return str(value)
    return f"{float(value):,.{_places(float(value), margin)}f}".replace(",", " ")


def margins(value: Any, low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """Distances of the interval's ends below and above a value; None where it is open."""
    below = None if low is None else float(value) - float(low)
    return below, None if high is None else float(high) - float(value)


def interval_text(value: Any, low: float | None, high: float | None) -> str:
    """A number with its margin, both to the same decimal place; both sides where they differ.

    Args:
        value: the number.
        low, high: ends of its interval, None where open.

    >>> interval_text(12345.0, 12283.0, 12407.0), interval_text(7366.0, 6308.0, 8971.0)
    ('12 345 ± 62', '7 366 -1 058/+1 605')
    >>> interval_text(3000.0, 3000.0 - 1.7e-5, 3000.0 + 1.7e-5), interval_text(40.0, 12.0, None)
    ('3 000 ± 0', '40 -28/+∞')
    """
    sides = margins(value, low, high)
    known = [side for side in sides if side is not None]
    if not known:
        return f"{number(value)} ± ∞"
    largest = max(map(abs, known))
    places = _places(float(value), largest)
    below, above = ("∞" if side is None else f"{side:,.{places}f}".replace(",", " ") for side in sides)
    shown = f"{float(value):,.{places}f}".replace(",", " ")
    if min(known) < 0:  # an interval beside its number
        return f"{shown} ({number(low, largest)} to {number(high, largest)})"
    return f"{shown} ± {below}" if below == above else f"{shown} -{below}/+{above}"


def split_margin(text: str) -> tuple[str, str]:
    """A number's text and that of its margin, which is empty where it has none.

    >>> split_margin("12 345 ± 62 ~30"), split_margin("-3 -1 058/+1 605"), split_margin("Oslo")
    (('12 345', '± 62 ~30'), ('-3', '-1 058/+1 605'), ('Oslo', ''))
    """
    parts = MARGIN.split(text, maxsplit=1)
    return (parts[0], parts[1]) if len(parts) == 2 else (text, "")


def span(values: list[float | None]) -> str:
    """The least and the most of some margins, to two digits.
    >>> span([3.14159, 62.4, 62.4]), span([5.0]), span([1.0, None])
    ('3.1 to 62', '5.0', '1.0 to ∞')
    """
    finite = sorted(value for value in values if value is not None)
    words = [number(value, value) for value in finite[:1] + finite[-1:]] + ["∞"] * (None in values)
    return " to ".join(dict.fromkeys((words[0], words[-1])))


def _places(value: float, margin: float | None) -> int:
    """Decimal places that show two digits of the margin (three of the value when it has none)."""
    size = margin if margin else abs(value) / 100
    # A margin that is as good as none, such as that of how many people reported, asks for no digits.
    if not size or not math.isfinite(size) or size < 1e-7 * abs(value):
        return 0
    return max(0, min(6, 1 - math.floor(math.log10(size))))
