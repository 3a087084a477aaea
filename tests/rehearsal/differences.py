"""Differences from plain DuckDB that docs/sql.md states, and misses that are known; both lists may only shrink."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.rehearsal.judge import Verdict

NOBODY = "Where a person is protected, a row whose key of her is NULL is nobody's: it is in no number."
"""The generator's `Star.exact` leaves such rows out."""
OTHER = "is the group `(other)`, or the column's `other:` word"
"""The judge's `folded` adds groups that the catalog does not list to that one."""


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


def _noted(verdict: Verdict, words: str) -> bool:
    return any(words in note for note in verdict.notes)


DIFFERENCES = (
    Difference(
        "unlisted values",
        "Lists of a catalog's values and quantiles by group leave values outside of its domain out; a note says so.",
        lambda verdict: (
            verdict.verdict == "missing"
            and _noted(verdict, "values outside the catalog's domain are left out")
        ),
    ),
    Difference(
        "groups that the catalog adds",
        "and joins of answers on such a key leave out those that the catalog adds",
        lambda verdict: (
            (verdict.verdict, verdict.kind)
            in {("cell", "mean_over_groups"), ("cell", "mean_of_means"), ("missing", "per_capita")}
            and _noted(verdict, "it is excluded where groups are counted")
        ),
    ),
)


class KnownMiss(NamedTuple):
    """A miss that is not mended yet: `test_known_misses` fails once it is, and then the entry goes.

    Args:
        name: in a word or two.
        seed, kind, column: where it was seen, with `drawn_knobs` and `questions` kinds.
        questions: as of `Rehearsal`.
        reason: what is behind it.
    """

    name: str
    seed: int
    kind: str
    column: str
    questions: int
    reason: str


KNOWN = (
    KnownMiss(
        "one trait of the heavy", 51261135, "scores", "n", 18,
        "a group may own six times its share of rows that weights leave out: NULLs grow with exp(z), as rows do",
    ),
    KnownMiss(
        "hidden owners", 51261142, "count", "n", 18,
        "`auto` chooses 4 rows where noise hides nine units that own 844 of 1,167 rows; a note says so",
    ),
)  # fmt: skip


def difference_of(verdict: Verdict) -> Difference | None:
    """The stated difference that explains a verdict."""
    return next((difference for difference in DIFFERENCES if difference.excuses(verdict)), None)
