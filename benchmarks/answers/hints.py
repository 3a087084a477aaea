"""Refusals of the tests' corpora: is the statement that each shows answered itself, and does a spelling help?

python -m benchmarks.answers.hints
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.answers.clinic import made, publish
from benchmarks.figures import Figures
from dpsql.answer.answerer import Answerer
from dpsql.errors import Error, UnknownName
from dpsql.release import open_release
from tests.answer.test_sql_refusals import CASES
from tests.oracle.test_clinic import REFUSED
from tests.release_fixture import make_rows, write_fixture


def unanswered(answerer: Answerer, statements: list[str]) -> tuple[int, int]:
    """How many statements' refusals show another statement, and how many of those are refused too."""
    shown = refused = 0
    for text in statements:
        try:
            answerer.query(text)
        except Error as error:
            instead = error.nearest or respelt(text, error)
            if not instead:
                continue
            shown += 1
            try:
                answerer.query(instead)
            except Error as again:
                refused += error.nearest != "" or isinstance(again, UnknownName)
                print(f"{text}\n    shows {instead}\n    which is refused: {again}", flush=True)
    return shown, refused


def respelt(text: str, error: Error) -> str:
    """The statement with the name that a refusal proposes; empty where it proposes none."""
    if "did you mean " not in error.hint or error.position is None:
        return ""
    name = error.hint.partition("did you mean ")[2].partition("?")[0]
    start, end = error.position
    word = text[start : end + 1]
    return text[:start] + (f"{word.rpartition('.')[0]}.{name}" if "." in word else name) + text[end + 1 :]


SPELLINGS = [
    "SELECT COUNT(*) FROM customr", "SELECT COUNT(*) FROM customer WHERE regoin = 'north'",
    "SELECT AVG(amont) FROM sales",
    "SELECT c.agee, COUNT(*) FROM customer c GROUP BY 1", "SELECT COUNT(*) FROM visits", "SELECT resaon FROM visit",
    "SELECT minuets, COUNT(*) FROM visit GROUP BY 1", "SELECT yearID, COUNT(*) FROM visit GROUP BY 1",
]  # fmt: skip


def main() -> int:
    """Measure and print; returns the exit code."""
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder:
        shop = Answerer(open_release(write_fixture(Path(folder) / "shop.dpsql", make_rows(), 1.0)))
        clinic = publish(Path(folder) / "clinic", made(1))
        statements = [*SPELLINGS, *(text for text, *_ in CASES)]
        found = [unanswered(shop, statements), unanswered(clinic, [*statements, *REFUSED])]
    figures.table("refusals that show a statement or a name", sum(shown for shown, _ in found))
    figures.at_most("of these refused themselves", sum(bad for _, bad in found), 0)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
