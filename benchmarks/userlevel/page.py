"""The page "what can I ask at epsilon 1": benchmarks/results/userlevel.md.

python -m benchmarks.userlevel.page [--draws N]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.page import markdown, write
from benchmarks.userlevel.measure import LAWS, Measured, measure, open_case
from benchmarks.userlevel.predicted import compared, stated
from benchmarks.userlevel.questions import AGGREGATES, CLASSES
from benchmarks.userlevel.simulator import releases
from benchmarks.userlevel.stars import HELD_BACK, JUDGED, TOLD

PLAN_DRAWS = 20
"""Releases that show what the plan is compared with."""

TITLES = {"1e-6": "(1, 1e-6)", "0.3": "(0.3, 1e-6)", "pure": "pure, epsilon 1"}


def cell(measured: Measured, kind: str, aggregate: str) -> str:
    """Median error, part of intervals that held, median half-width."""
    key = kind, aggregate
    if not measured.held.get(key):
        return "-"
    half = measured.half(key)
    wide = f"{half:.0f}%" if np.isfinite(half) else "open"
    return f"{measured.error(key):.1f}%, **{measured.share(key):.0f}**, {wide}"


def table(found: Mapping[str, Measured]) -> str:
    """One line a star and class of questions."""
    body = []
    for star, measured in found.items():
        for kind in CLASSES:
            cells = [cell(measured, kind, aggregate) for aggregate in AGGREGATES]
            if set(cells) != {"-"}:
                body.append([star, kind, *cells])
    return markdown(["star", "question", *AGGREGATES], body)


def plan_table(draws: int, folder: Path) -> str:
    """What the plan says of the stars that were left out, and what releases then show."""
    body = []
    for name in HELD_BACK:
        opened = open_case(name, "1e-6", folder)
        star = opened.star
        found = compared(star, opened.questions(), stated(star), releases(star, draws))
        for kind in CLASSES:
            pairs = [found.get((kind, aggregate)) for aggregate in AGGREGATES]
            cells = ["-" if each is None else f"{each.told:.1%}, {each.shown:.1%}" for each in pairs]
            if set(cells) != {"-"}:
                body.append([name, kind, *cells])
    return markdown(["star", "question", *AGGREGATES], body)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=200, help="of noise, of each star and privacy")
    draws = parser.parse_args().draws
    tables, plan = [], ""
    with tempfile.TemporaryDirectory() as folder:
        for law in LAWS:
            found = {}
            for name in (*JUDGED, *TOLD, *HELD_BACK):
                opened = open_case(name, law, Path(folder))
                found[name] = measure(opened, releases(opened.star, draws))
            told = "median error, percent of 95% intervals that held, median half-width"
            tables.append(f"### {TITLES[law]}, {draws} draws of noise: {told}\n\n{table(found)}")
        plan = plan_table(min(draws, PLAN_DRAWS), Path(folder))
    values = {"TABLES": "\n\n".join(tables), "PLAN": plan}
    write("userlevel", values)


if __name__ == "__main__":
    main()
