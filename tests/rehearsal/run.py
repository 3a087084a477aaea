"""One star rehearsed: rows, catalog, releases, questions and their verdicts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpsql.errors import Error
from dpsql.federation.session import OpenReleases
from dpsql.results.result import Result
from tests.rehearsal.claims import false_claims
from tests.rehearsal.generator import Knobs, Star, generate
from tests.rehearsal.judge import Verdict, judge, truths
from tests.rehearsal.published import LOUD, QUIET, draft, published
from tests.rehearsal.questions import Question, ask

RELEASES = {"loud": 4, "quiet": 16}
CRASH = "crashed:"


@dataclass(frozen=True)
class Rehearsal:
    """How a star is rehearsed.

    Args:
        way: `loud` or `quiet`.
        releases: how many are published.
        questions: so many kinds at random; all of them by default.
        kinds: these alone; the catalog is drafted for all.
        alone: whether the catalog is drafted for `kinds` alone.
        fresh: whether noise is drawn with other seeds than before.
    """

    way: str = "loud"
    releases: int = 4
    questions: int | None = None
    kinds: frozenset[str] = frozenset()
    alone: bool = False
    fresh: bool = False


def rehearse(seed: int, knobs: Knobs, rehearsal: Rehearsal) -> Iterator[Verdict]:
    """Publish a made-up star and judge its answers.

    Args:
        seed: of rows, constants and noise.
        knobs: of the star.
        rehearsal: how.
    """
    star = generate(seed, knobs)
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as place:
        yield from _rehearsed(star, Path(place), rehearsal)


def _rehearsed(star: Star, folder: Path, rehearsal: Rehearsal) -> Iterator[Verdict]:
    (folder / "exact").mkdir()
    star.write(folder / "exact")
    with star.exact(folder / "exact") as database:
        questions = ask(star, database, star.seed, None if rehearsal.alone else rehearsal.questions)
        if rehearsal.alone:
            questions = [question for question in questions if question.kind in rehearsal.kinds]
        catalog = draft(
            star,
            folder,
            [q.sql for q in questions],
            QUIET if rehearsal.way == "quiet" else LOUD[star.knobs.level],
        )
        seeds = [star.seed * 1_000 + 100 * rehearsal.fresh + i for i in range(rehearsal.releases)]
        claimed = set[str]()
        with published(catalog, seeds) as releases:
            for question in (q for q in questions if not rehearsal.kinds or q.kind in rehearsal.kinds):
                results = _answers(question, releases)
                if isinstance(results, str):
                    verdict = "crash" if results.startswith(CRASH) else "unserved"
                    yield Verdict(question.kind, question.sql, "", verdict, notes=(results,))
                else:
                    yield from judge(question, truths(database, question), results)
                    notes = {note for result in results for note in result.notes} - claimed
                    claimed |= notes
                    for note, truth in false_claims(tuple(notes), database):
                        yield Verdict(question.kind, question.sql, "", "claim", truth=truth, notes=(note,))


def _answers(question: Question, releases: Sequence[OpenReleases]) -> list[Result] | str:
    """Each release's answer; the reason where one refuses."""
    results = []
    for release in releases:
        try:
            result = release.query(question.sql)
            result.interval_rows()
            results.append(result)
        except Error as refusal:
            return str(refusal)
        except (ArithmeticError, AssertionError, LookupError, MemoryError, TypeError, ValueError) as crash:
            return f"{CRASH} {type(crash).__name__}: {crash}"
    return results
