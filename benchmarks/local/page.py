"""benchmarks/results/local.md and its plots: `python -m benchmarks.local.page [--section NAME]...`.

Without `--section` everything is measured, the promised figures too (by `benchmarks.local.measure`, or read from its
printed lines with `--figures`). A section measured alone leaves the other sections' tables on the page as they are.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.local import adult as local_adult
from benchmarks.local import columns as unseen_columns
from benchmarks.local import peers as local_peers
from benchmarks.local import rounds as local_rounds
from benchmarks.local import services as local_services
from benchmarks.local import star as local_star
from benchmarks.local.axis import shapes
from benchmarks.local.grid import axis_errors
from benchmarks.local.joins import (
    Setting,
    Star,
    count_errors,
    make_star,
    measure_errors,
    tau_errors,
)
from benchmarks.local.planes import Case, covered, errors
from benchmarks.page import PLOTS, Errors, plot, table, write

EPSILONS = (1.0, 2.0, 3.0, 4.0, 5.0)
VOLUMES = (0.07, 0.15, 0.22, 0.3)
BOX_EPSILONS = ("0.5", "1", "2", "4")
SHAPES = [
    ("normal", 0.3),
    ("normal", 0.8),
    ("mixture", 0.8),
    ("laplace", 0.8),
    ("power", 0.3),
    ("clusters", 0.0),
]
TWO = [Case(*shape, epsilon) for epsilon in ("1", "4") for shape in [*SHAPES, ("Adult", 0.0)]]
FIVE = [Case(*shape, "1") for shape in SHAPES]
Blocks = dict[str, str]


def columns(
    stars: Sequence[Star], settings: Sequence[Setting], count: int, measure: bool = False
) -> tuple[Errors, Errors]:
    """Errors of every method at every setting, mean over populations: COUNT NMSE, or SUM NMSE and AVG MRE."""
    first: Errors = {}
    second: Errors = {}
    for setting in settings:
        method = measure_errors if measure else count_errors
        each = [method(star, setting, count, 1000 + run) for run, star in enumerate(stars)]
        for name in each[0]:
            means = np.atleast_1d(np.mean([found[name] for found in each], axis=0))
            first.setdefault(name, []).append(float(means[0]))
            second.setdefault(name, []).append(float(means[-1]))
        print(setting, {name: f"{values[-1]:.2e}" for name, values in second.items()}, flush=True)
    return first, second


def populations(given: argparse.Namespace, people: int, runs: int) -> tuple[list[Star], str]:
    """Generated populations, and the words that describe them."""
    stars = [make_star(local_star.star(people, np.random.default_rng(run))) for run in range(runs)]
    return stars, _words(people, runs, given.queries)


def _words(people: int, runs: int, queries: int) -> str:
    plural = "s" if runs > 1 else ""
    return f"{people:,} people, {runs} population{plural}, {queries} boxes a column."


def by_predicates(stars: Sequence[Star], words: str, count: int) -> str:
    """COUNT at epsilon 1 and volume .3 by number of predicates."""
    rows, _ = columns(stars, [Setting(1.0, 0.3, d) for d in (1, 2, 3)], count)
    return words + "\n\n" + table(["1 predicate", "2", "3"], rows)


def counts(given: argparse.Namespace) -> Blocks:
    """COUNT on SYN-1."""
    stars, words = populations(given, given.people, given.runs)
    blocks = {"DIMENSIONS": by_predicates(stars, words, given.queries)}
    epsilons, _ = columns(stars, [Setting(e, 0.3, 2) for e in EPSILONS], given.queries)
    blocks["EPSILONS"] = table([f"epsilon {e:g}" for e in EPSILONS], epsilons)
    volumes, _ = columns(stars, [Setting(1.0, v, 2) for v in VOLUMES], given.queries)
    blocks["VOLUMES"] = table([f"volume {v:g}" for v in VOLUMES], volumes)
    taus: Errors = {}
    for epsilon in (1.0, 3.0, 5.0):
        found = tau_errors(stars[0], Setting(epsilon, 0.3, 2), given.queries, 2000)
        taus |= {f"{name}, epsilon {epsilon:g}": values for name, values in found.items()}
    blocks["TAUS"] = table([f"tau {t}" for t in (1, 2, 3, 4)], dict(sorted(taus.items())))
    title = f"star join, {given.people:,} people, two predicates"
    plot({title: epsilons}, EPSILONS, ("epsilon", "COUNT NMSE"), PLOTS / "local_epsilon.png")
    plot({title: volumes}, VOLUMES, ("volume of each predicate", "COUNT NMSE"), PLOTS / "local_volume.png")
    return blocks


def measures(given: argparse.Namespace) -> Blocks:
    """SUM and AVG on SYN-1."""
    stars, words = populations(given, given.people, given.runs)
    sums, means = columns(stars, [Setting(e, 0.15, 1) for e in EPSILONS], given.queries, measure=True)
    heads = [f"epsilon {e:g}" for e in EPSILONS]
    more = columns(stars, [Setting(2.0, 0.3, d) for d in (1, 2, 3)], given.queries, measure=True)
    labels = ["1 predicate", "2", "3"]
    panels = {"SUM, one predicate of volume 0.15": _known(sums), "AVG, the same": means}
    plot(panels, EPSILONS, ("epsilon", "SUM NMSE, AVG MRE"), PLOTS / "local_measures.png")
    return {
        "SUMS": words + "\n\n" + table(heads, _known(sums)),
        "AVGS": table(heads, means),
        "SUMS_BY_PREDICATES": table(labels, _known(more[0])),
        "AVGS_BY_PREDICATES": table(labels, more[1]),
    }


def _known(rows: Errors) -> Errors:
    """Only the methods that answer at all."""
    return {name: values for name, values in rows.items() if not np.isnan(values).any()}


def star_blocks(prefix: str, stars: Sequence[Star], words: str, count: int) -> Blocks:
    """COUNT by predicates and epsilon, SUM and AVG by epsilon, of another star."""
    blocks = {f"{prefix}_DIMENSIONS": by_predicates(stars, words, count)}
    rows, _ = columns(stars, [Setting(e, 0.3, 2) for e in EPSILONS], count)
    blocks[f"{prefix}_EPSILONS"] = table([f"epsilon {e:g}" for e in EPSILONS], rows)
    sums, means = columns(stars, [Setting(e, 0.15, 1) for e in EPSILONS[::2]], count, measure=True)
    heads = [f"{kind}, {e:g}" for kind in ("SUM", "AVG") for e in EPSILONS[::2]]
    blocks[f"{prefix}_MEASURES"] = table(heads, {name: sums[name] + means[name] for name in sums})
    return blocks


def larger(given: argparse.Namespace) -> Blocks:
    """SYN-2: three times the people."""
    stars, words = populations(given, 3 * given.people, 1)
    return star_blocks("SYN2", stars, words, given.queries)


def fine(given: argparse.Namespace) -> Blocks:
    """SYN-1 with 125 leaves an axis."""
    rng, leaves = np.random.default_rng(0), local_star.LEAVES * local_peers.BRANCHING
    star = make_star(local_star.star(given.people, rng, leaves), leaves)
    settings = [Setting(e, 0.3, d) for e in (1.0, 3.0) for d in (1, 2)]
    rows, _ = columns([star], settings, given.queries)
    words = _words(given.people, 1, given.queries) + "\n\n"
    return {"FINE": words + table([f"{s.dimensions}, epsilon {s.epsilon:g}" for s in settings], rows)}


def adult(given: argparse.Namespace) -> Blocks:
    """The Adult star."""
    stars = [make_star(local_adult.people(np.random.default_rng(run))) for run in range(given.runs)]
    words = _words(stars[0].people.count, given.runs, given.queries)
    return star_blocks("ADULT", stars, words, given.queries)


def services(given: argparse.Namespace) -> Blocks:
    """Two and three services that cannot join on a device."""
    everybody = [local_services.leaves_of(given.people, run) for run in range(given.runs)]

    def rows(settings: Sequence[Setting]) -> Errors:
        found: Errors = {}
        for setting in settings:
            each = [
                local_services.errors(leaves, setting, given.queries, 3000 + run)
                for run, leaves in enumerate(everybody)
            ]
            for name in each[0]:
                found.setdefault(name, []).append(float(np.mean([errors[name] for errors in each])))
            print(setting, {name: f"{values[-1]:.2e}" for name, values in found.items()}, flush=True)
        return found

    words = _words(given.people, given.runs, given.queries) + "\n\n"
    by_predicates = table(["1 predicate", "2", "3"], rows([Setting(1.0, 0.3, d) for d in (1, 2, 3)]))
    by_epsilon = rows([Setting(e, 0.3, 3) for e in (2.0, 4.0, 8.0)])
    return {
        "SERVICES": words + by_predicates,
        "SERVICES_EPSILONS": table(["epsilon 2", "4", "8"], by_epsilon),
    }


def one_axis(given: argparse.Namespace) -> Blocks:
    """Every one-axis method on the four shapes at epsilon 1, and the bell at 0.5 and 2."""
    cases = [(name, "1") for name in shapes(256)] + [("normal", "0.5"), ("normal", "2")]
    rows: Errors = {}
    for number, (name, epsilon) in enumerate(cases):
        found = axis_errors(shapes(256)[name], given.people, epsilon, given.runs, number)
        for method, value in found.items():
            rows.setdefault(method, []).append(value)
        print(name, epsilon, {k: f"{v:.2e}" for k, v in found.items()}, flush=True)
    words = f"{given.people:,} people, {given.runs} runs; columns are histogram and epsilon.\n\n"
    return {"ONE": words + table([f"{name}, {epsilon}" for name, epsilon in cases], rows)}


def several_axes(given: argparse.Namespace) -> Blocks:
    """Boxes on two axes of 64 leaves and on five of 32."""
    blocks, panels = {}, {}
    for name, cases, axes, size, count in (("TWO", TWO, 2, 64, 200), ("FIVE", FIVE, 5, 32, 50)):
        swept = [Case("normal", 0.8, e) for e in BOX_EPSILONS]
        found = {c: errors(c, axes, size, given.people, given.runs, count, axes) for c in [*cases, *swept]}
        for case, values in found.items():
            print(axes, case.title, {k: f"{v:.2e}" for k, v in values.items()}, flush=True)
        by_epsilon = mean_rows([found[c] for c in swept])
        words = f"{given.people:,} people, {given.runs} runs, {count} boxes each."
        parts = [[c for c in cases if c.epsilon == epsilon] for epsilon in ("1", "4")]
        tables = [
            table([c.title for c in part], mean_rows([found[c] for c in part])) for part in parts if part
        ]
        blocks[name] = "\n\n".join([words, *tables])
        blocks[f"{name}_EPSILONS"] = table([f"epsilon {e}" for e in BOX_EPSILONS], by_epsilon)
        panels[f"{axes} axes of {size}, normal, correlation 0.8"] = by_epsilon
    at = [float(e) for e in BOX_EPSILONS]
    plot(panels, at, ("epsilon", "mean squared error of shares"), PLOTS / "local_boxes.png")
    return blocks


def rounds(given: argparse.Namespace) -> Blocks:
    """AHEAD as shipped beside the default plan, a table for each epsilon."""
    blocks = {}
    for name, cases in local_rounds.TABLES.items():
        found = {case: local_rounds.compared(case, given.runs) for case in cases}
        for case, values in found.items():
            print(name, case.title, {k: f"{v:.2e}" for k, v in values.items()}, flush=True)
        parts = [[c for c in cases if c.epsilon == e] for e in dict.fromkeys(c.epsilon for c in cases)]
        tables = [table([c.title for c in part], mean_rows([found[c] for c in part])) for part in parts]
        blocks[name] = "\n\n".join([f"{given.runs} runs.", *tables])
    return blocks


def unseen(_: argparse.Namespace) -> Blocks:
    """One axis of columns that nothing was tuned on."""
    names = [*unseen_columns.JUDGED, *unseen_columns.HELD]
    settings = {
        (name, e): unseen_columns.measured(name, e) for name in names for e in unseen_columns.EPSILONS
    }
    return {"UNSEEN": unseen_columns.table_of(settings)}


def intervals(given: argparse.Namespace) -> Blocks:
    """How many 95% intervals of two-axis boxes hold, by histogram."""
    rows: Errors = {}
    for epsilon in ("1", "4"):
        found = [covered(Case(*s, epsilon), 2, 64, given.people, 3, 200, 9) for s in SHAPES]
        rows[epsilon] = found
    words = f"{given.people:,} people, 3 collections, 200 boxes each.\n\n"
    heads = [Case(*shape, "").title.rstrip(", ") for shape in SHAPES]
    return {"INTERVALS": words + table(heads, rows, "epsilon")}


def mean_rows(found: Sequence[dict[str, float]]) -> Errors:
    """Columns of methods' errors as rows."""
    return {name: [column[name] for column in found] for name in found[0]}


def figures(given: argparse.Namespace) -> Blocks:
    """The promised figures, from a printed run or a run of their own."""
    if given.figures is None:
        command = [sys.executable, "-m", "benchmarks.local.measure"]
        printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    else:
        printed = given.figures.read_text()
    lines = [line.removeprefix("figure ") for line in printed.splitlines() if line.startswith("figure ")]
    return {"FIGURES": "\n".join(["```", *lines, "```"])}


SECTIONS: dict[str, Callable[[argparse.Namespace], Blocks]] = {
    "counts": counts,
    "measures": measures,
    "syn2": larger,
    "fine": fine,
    "adult": adult,
    "services": services,
    "axis": one_axis,
    "unseen": unseen,
    "rounds": rounds,
    "boxes": several_axes,
    "intervals": intervals,
    "figures": figures,
}


def main() -> None:
    """Measure, plot, write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--section", action="append", choices=[*SECTIONS, "text"], help="only these; text: measure nothing"
    )
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--figures", type=Path, help="printed lines of `python -m benchmarks.local.measure`")
    given = parser.parse_args()
    if {"adult", "boxes"} & set(given.section or SECTIONS) and not local_adult.present():
        parser.error("DPSQL_DATA names no Adult table; choose other sections")
    measured: Blocks = {}
    for name in given.section or SECTIONS:
        if name in SECTIONS:
            measured |= SECTIONS[name](given)
        write("local", measured)


if __name__ == "__main__":
    main()
