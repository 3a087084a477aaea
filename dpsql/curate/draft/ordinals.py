"""Texts in their own order: ranges with numbers in them, grades, months, schools; the alphabet where nothing is known.

An order matters: ranges of neighbours are then few nodes of a tree, and a chart reads from left to right.

**Privacy**: a function of the values alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"\d+(?:\.\d+)?")

SCALES = (
    ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    ("mon", "tue", "wed", "thu", "fri", "sat", "sun"),
    ("first", "second", "third", "fourth"),
    ("low", "medium|middle|moderate", "high", "critical"),
    ("tiny|xs", "small|sm", "medium|md", "large|lg", "huge|xl"),
    ("normal|basic|standard", "bronze", "silver", "gold", "platinum", "diamond"),
    ("never", "rarely|seldom", "sometimes|occasionally", "often|frequently", "always"),
    ("very poor|terrible|very bad", "poor|bad", "fair|average", "good", "very good", "excellent"),
    ("strongly disagree", "disagree", "neutral|neither", "agree", "strongly agree"),
    ("very dissatisfied", "dissatisfied", "neutral", "satisfied", "very satisfied"),
    ("none|no school", "preschool", "1st-4th|primary|elementary", "5th-6th", "7th-8th", "9th", "10th", "11th",
     "12th|partial high|some high", "high school|hs-grad", "partial college|some college|some-college", "assoc",
     "bachelor", "graduate degree|master", "prof-school", "doctor|phd"),
    ("child|minor", "young|youth", "adult", "senior|elderly"),
    ("morning", "noon", "afternoon", "evening", "night"),
)  # fmt: skip
"""What the steps of a scale begin with or hold, from its low end to its high one; `|` parts words of one step."""


def in_order(values: Sequence[str]) -> tuple[str, ...]:
    """Values in their own order, or as they came where nothing is known of one.

    Args:
        values: different texts, in alphabetical order.

    >>> in_order(("$10K - $30K", "$110K - $130K", "$30K - $50K", "$150K +"))
    ('$10K - $30K', '$30K - $50K', '$110K - $130K', '$150K +')
    >>> in_order(("Bronze", "Golden", "Normal", "Silver")), in_order(("Bikes", "Cars"))
    (('Normal', 'Bronze', 'Silver', 'Golden'), ('Bikes', 'Cars'))
    """
    numbers = [_by_number(value) for value in values]
    if all(number is not None for number in numbers):
        return tuple(sorted(values, key=lambda value: _by_number(value) or (0.0,)))
    for scale in SCALES:
        places = {value: _place(value, scale) for value in values}
        if len({p for p in places.values() if p is not None}) > 1 and None not in places.values():
            return tuple(sorted(values, key=lambda value: (places[value] or 0, value)))
    return tuple(values)


def _by_number(value: str) -> tuple[float, ...] | None:
    """The numbers of a range, `<=50K` before `>50K`; None for texts that merely hold one."""
    letters = re.sub(r"[^A-Za-z]", "", value)
    numbers = _NUMBER.findall(value.replace(",", ""))
    if (
        not numbers
        or len(letters) > 10
        or not re.match(r"\s*[$<>=+~-]*\s*\d|under|over|less|more", value, re.IGNORECASE)
    ):
        return None
    low = re.match(r"\s*(<|under|less)", value, re.IGNORECASE) is not None
    return (float(numbers[0]), -1.0 if low else 0.0, *map(float, numbers[1:]))


def _place(value: str, scale: Sequence[str]) -> int | None:
    """The step that a value names by its longest word, or None."""
    text = value.lower().strip()
    named = [
        (len(word), i) for i, step in enumerate(scale) for word in step.split("|") if text.startswith(word)
    ]
    return max(named)[1] if named else None
