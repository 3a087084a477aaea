"""Designed views against those made by hand: the same star, promise and statements, the same number of releases.

A statement's error in a release is the root of the sum of squared differences from the answer without noise, over the
root of the sum of squared answers. Stars whose catalogs were made by hand for other statements too keep these views: a
designed catalog is made for the corpus alone, which is what a workload is for.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from math import exp, log, sqrt
from pathlib import Path
from typing import NamedTuple

from benchmarks.baselines.common import SimulationNoise
from benchmarks.composites.star import redrawn
from benchmarks.figures import Figures
from benchmarks.firsthour.corpus import Statement, by_hand, statements
from dpsql.answer.answerer import Answerer
from dpsql.answer.result import Result
from dpsql.curate.design.designing import Design, design_catalog
from dpsql.errors import Error
from dpsql.noise import ZeroNoise
from dpsql.star import load_catalog

RELEASES = 20


class Compared(NamedTuple):
    """One statement: its mean squared relative error under the designed views and under those made by hand."""

    statement: Statement
    designed: float
    by_hand: float


def measure(figures: Figures, releases: int = RELEASES) -> None:
    """Design every star of the corpus and compare."""
    corpus = statements()
    served, found = 0, list[Compared]()
    for star in dict.fromkeys(each.star for each in corpus):
        mine = [each for each in corpus if each.star == star]
        made = design_catalog(
            by_hand(star).read_text(encoding="utf-8"), by_hand(star), [each.sql for each in mine], None
        )
        served += made.served
        for each, question in zip(mine, made.questions, strict=True):
            if question.refusal is not None:
                print(f"  {each.name} is not served: {question.refusal[:200]}")
        compared = list(_compare(star, made, mine, releases))
        for each in compared:
            print(
                f"  {star} {each.statement.name}: {sqrt(each.designed):.3g} designed, {sqrt(each.by_hand):.3g} by hand"
            )
        found += compared
    figures.at_least("design-statements-served", served, 50)
    ratios = [log(each.designed / each.by_hand) / 2 for each in found]
    figures.at_most("design-error-over-by-hand", exp(sum(ratios) / len(ratios)), 1.1)
    total = sqrt(sum(each.designed for each in found) / sum(each.by_hand for each in found))
    print(f"  root mean square over all statements, designed over by hand: {total:.3g}")


def _compare(star: str, made: Design, mine: Sequence[Statement], releases: int) -> Iterator[Compared]:
    """Statements that both answer with noise."""
    with tempfile.TemporaryDirectory(prefix="dpsql-design-") as name, ExitStack() as stack:
        folder = Path(name)
        designed = folder / "designed.yaml"
        designed.write_text(made.text, encoding="utf-8")
        errors = []
        for kind, file in (("designed", designed), ("by-hand", by_hand(star))):
            own = folder / kind
            own.mkdir()
            publish = redrawn(load_catalog(file), own)
            exact = publish(ZeroNoise(), "exact.dpsql")
            stack.callback(exact.release.close)
            known = {each: truth for each in mine if (truth := _truth(exact, each.sql)) is not None}
            totals = dict.fromkeys(mine, 0.0)
            for seed in range(releases):
                noisy = publish(SimulationNoise(seed), f"{seed}.dpsql")
                for each, truth in known.items():
                    totals[each] += _error(truth, noisy.query(each.sql)) / releases
                noisy.release.close()
                noisy.release.path.unlink()
            errors.append(totals)
        for each in mine:
            if errors[0][each] > 0 and errors[1][each] > 0:
                yield Compared(each, errors[0][each], errors[1][each])


class Truth(NamedTuple):
    """A statement's noisy columns, and their cells without noise."""

    at: tuple[int, ...]
    cells: dict[tuple[object, ...], float]


def _truth(exact: Answerer, sql: str) -> Truth | None:
    """What a statement answers without noise; None where it has no noisy column or is refused."""
    try:
        answer = exact.query(sql)
    except Error:
        return None
    at = tuple(i for i in range(len(answer.columns)) if any(row[i] for row in answer.stderr_rows))
    return Truth(at, _cells(answer, at)) if at else None


def _error(truth: Truth, noisy: Result) -> float:
    """Squared difference over squared answer."""
    seen = _cells(noisy, truth.at)
    squared = sum(value**2 for value in truth.cells.values())
    differ = sum((value - seen.get(key, 0.0)) ** 2 for key, value in truth.cells.items())
    return differ / squared if squared else 0.0


def _cells(result: Result, at: Sequence[int]) -> dict[tuple[object, ...], float]:
    """Noisy cells by their row's other values."""
    return {
        (i, *(value for j, value in enumerate(row) if j not in at)): float(row[i] or 0.0)
        for row in result.rows for i in at
    }  # fmt: skip


def main() -> int:
    """Measure all; the exit code says whether every figure held."""
    figures = Figures()
    measure(figures)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
