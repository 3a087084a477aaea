"""Differences from plain DuckDB that docs/sql.md states; the list may only shrink."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.rehearsal.judge import Verdict


class Difference(NamedTuple):
    """A difference that the page states.

    Args:
        name: in a word or two.
        sentence: of docs/sql.md, to the letter; lines joined by a blank.
        excuses: which verdicts follow from the sentence.
    """

    name: str
    sentence: str
    excuses: Callable[[Verdict], bool]


NOBODY = "Where a person is protected, a row whose key of her is NULL is nobody's: it is in no number."
"""The generator's `Star.exact` leaves such rows out."""

DIFFERENCES: tuple[Difference, ...] = ()


def difference_of(verdict: Verdict) -> Difference | None:
    """The stated difference that explains a verdict."""
    return next((difference for difference in DIFFERENCES if difference.excuses(verdict)), None)
