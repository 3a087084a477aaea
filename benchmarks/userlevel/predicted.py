"""What `dpsql plan` foresees of intervals, over what releases then show: `python -m benchmarks.userlevel.predicted`.

A made-up table and the releases of a star are asked the same questions. Compared is `DP_STDERR` over the answer, the
median over the questions of a class, then over releases. Stated of a star are its units and rows, the middle and the
most, and the mean of its measure, rounded to two digits; of the further stars units, rows and the most alone. Nothing
was mended on the stars that are judged.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.figures import Figures
from benchmarks.userlevel.measure import LAWS, open_case
from benchmarks.userlevel.questions import Questions, answers
from benchmarks.userlevel.releases import Release, Star
from benchmarks.userlevel.simulator import People, releases
from benchmarks.userlevel.stars import FURTHER, HELD_BACK, JUDGED, TOLD
from dpsql.contributions.rehearsal import Guess, crowds, make_up, stands_for
from dpsql.curator.rehearsal import SEEDS

Cell = tuple[str, str]
"""A class of questions and an aggregate."""

LEAST, MOST, SHARE = 0.67, 1.5, 75.0
"""Predictions between these times what is shown are right; so many percent of the classes have to be."""

FACTORS = ((2.0, 80.0), (1.5, 60.0))
"""Of the further stars: within this factor so many percent of the classes. None may be below half of what is shown."""


def rounded(number: float) -> float:
    """Two digits of a number."""
    return float(f"{number:.2g}")


def stated(star: Star) -> Guess:
    """What a curator says of a star: about what is true."""
    people = People(star)
    units, rows = int(rounded(people.number)), int(rounded(len(people.unit)))
    scale = next(s.bounds.scale for s in star.plan.row_statistics(star.of).values() if s.bounds is not None)
    mean = rounded(float(people.value.mean()) * 10.0**-scale)
    typical = rounded(float(np.median(people.owned)))
    most = max(rounded(float(people.owned.max())), rows / units)
    return Guess(units, max(rows, units), typical, most, means={star.measure: mean})


def barely_stated(star: Star) -> Guess:
    """The same without the middle and the mean."""
    guess = stated(star)
    return Guess(guess.units, guess.rows, most=guess.most)


def typical_errors(star: Star, asked: Sequence[Questions], some: Iterable[Release]) -> dict[Cell, float]:
    """The typical error over the answer by (class, aggregate); infinite where most ends are open."""
    medians: dict[Cell, list[float]] = defaultdict(list)
    for release in some:
        errors: dict[Cell, list[float]] = defaultdict(list)
        for each in asked:
            for name, answer in answers(release, each, star.measure).items():
                for kind, error, value in zip(each.kinds, answer.stderr, answer.value, strict=True):
                    if np.isfinite(value) and value:
                        errors[kind, name].append(float(error / abs(value)))
        for cell, own in errors.items():
            medians[cell].append(float(np.median(own)))
    return {cell: float(np.median(own)) for cell, own in medians.items()}


def rehearsals(star: Star, guess: Guess, seeds: int = SEEDS) -> Iterable[Release]:
    """What the plan makes up."""
    known = crowds(star.plan.catalog, star.raw, star.plan)
    for seed in range(1, seeds + 1):
        yield star.told(make_up(star.plan, star.of, guess, known, seed).drawn)


def over_shown(
    star: Star, asked: Sequence[Questions], guess: Guess, some: Iterable[Release]
) -> dict[Cell, float]:
    """What the plan says over what releases show, by (class, aggregate); 1 where both have no upper end."""
    told, shown = typical_errors(star, asked, rehearsals(star, guess)), typical_errors(star, asked, some)
    return {
        cell: 1.0 if np.isinf(told[cell]) and np.isinf(shown[cell]) else told[cell] / shown[cell]
        for cell in shown
        if cell in told
    }


def right(ratios: Mapping[object, float]) -> float:
    """Percent of predictions that are right."""
    return 100 * float(np.mean([LEAST <= ratio <= MOST for ratio in ratios.values()]))


def further(figures: Figures, ratios: Mapping[object, float], law: str) -> None:
    """Figures of the stars that nobody looked at."""
    values = np.array(list(ratios.values()))
    for factor, share in FACTORS:
        near = 100 * float(np.mean((values >= 1 / factor) & (values <= factor)))
        figures.at_least(
            f"plan of further stars within a factor of {factor:g}, % of classes, {law}", near, share
        )
    figures.at_least(
        f"plan of further stars, narrowest over the shown interval, {law}", float(values.min()), 0.5
    )


def main() -> int:
    """Print all figures; 1 if any is short."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*HELD_BACK, *FURTHER, *JUDGED, *TOLD]
    parser.add_argument("--draws", type=int, default=20, help="of noise, of each star and privacy")
    parser.add_argument("--stars", nargs="+", default=names, choices=names)
    parser.add_argument("--laws", nargs="+", default=list(LAWS), choices=LAWS)
    given, figures = parser.parse_args(), Figures()
    for law in given.laws:
        found: dict[str, dict[object, float]] = {"left out": {}, "further": {}, "others": {}}
        for name in given.stars:
            with tempfile.TemporaryDirectory() as folder:
                opened = open_case(name, law, Path(folder))
                guess = barely_stated(opened.star) if name in FURTHER else stated(opened.star)
                ratios = over_shown(
                    opened.star, opened.questions(), guess, releases(opened.star, given.draws)
                )
            print(
                f"told   plan of {name} {law}: {guess}, each unit stands for {stands_for(guess)}", flush=True
            )
            for (kind, aggregate), ratio in ratios.items():
                print(f"told   plan of {name} {law}, {kind}, {aggregate}: x {ratio:.2f}", flush=True)
                group = "left out" if name in HELD_BACK else "further" if name in FURTHER else "others"
                found[group][name, kind, aggregate] = ratio
        if found["further"]:
            further(figures, found.pop("further"), law)
        for stars, ratios_of in found.items():
            if ratios_of:
                what = f"plan over the shown interval within .67-1.5: share of classes, stars {stars}, {law}"
                judged = stars == "left out" and law == "1e-6"
                report = f"{what}, %"
                if judged:
                    figures.at_least(report, right(ratios_of), SHARE)
                else:
                    print(f"told   {report}: {right(ratios_of):.0f} of {len(ratios_of)}", flush=True)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
